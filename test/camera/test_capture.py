"""The commands `camera` and `capture` with a camera on loopback, and calibrations from what they wrote."""

from __future__ import annotations

import os
import queue
import re
import shutil
import signal
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable, Dict, Iterator, List, Tuple

import cv2
import numpy as np
import pytest
import yaml
from fake_camera import FakeCamera, camera_features, genicam
from raw_frames import picture_pixels
from sessions import polarization_errors
from stand_in import StandIn
from support import wait_for
from vendors import VENDORS

from polar_pipeline import SENSORS, cli
from polar_pipeline.calibration import load_calibration
from polar_pipeline.camera import source as source_module
from polar_pipeline.camera.facts import read_facts
from polar_pipeline.camera.settings import CameraSettings
from polar_pipeline.recordings import messages
from polar_pipeline.recordings.source import open_source
from polar_pipeline.tools.calibrate import capture as capturing
from polar_pipeline.tools.calibrate.simulation import simulate_sensor

pytestmark = pytest.mark.camera
#: Frames with 12 bits, all different.
FRAMES = np.random.default_rng(0).integers(0, 4096, (16, 128, 160)).astype(np.uint16)
FAST = {"AcquisitionFrameRate": 100.0, "AcquisitionFrameRateEnable": True}


@pytest.fixture
def camera() -> Iterator[FakeCamera]:
    with FakeCamera(FRAMES, features=FAST) as one:
        yield one


def run(*words: object) -> int:
    return cli.main([str(word) for word in words])


def read(folder: Path) -> List[np.ndarray]:
    """The frames in a folder of `capture`."""
    files = sorted(path for path in folder.iterdir() if path.suffix in (".png", ".npy"))
    if files:
        return [picture_pixels(file) for file in files]
    with open_source(folder / "frames.mcap") as source:
        return [messages.to_raw(record.image()).unpack().mosaic for record in source.records]


def state(folder: Path) -> Dict[str, Any]:
    found: Dict[str, Any] = yaml.safe_load((folder / "camera.yaml").read_text())
    return found


# --------------------------------------------------------------------------------------------------------------- camera


def test_list_info_and_set(camera: FakeCamera, capsys: Any) -> None:
    assert run("camera", "list") == 0
    assert capsys.readouterr().out == "LUCID Vision Labs  TRI050S-P  POL001  127.0.0.1  IMX250MZR\n"
    assert run("camera", "set", "ExposureTime=7000.0", "PixelFormat=PolarizeMono12p") == 0
    assert capsys.readouterr().out == "ExposureTime=7000\nPixelFormat=PolarizeMono12p\n"
    assert (camera.get("ExposureTime"), camera.get("PixelFormat")) == (7000.0, "PolarizeMono12p")
    for name in ("POL001", "127.0.0.1"):
        assert run("camera", "set", name, "Gain=3") == 0
        assert run("camera", "info", name) == 0
        shown = capsys.readouterr().out
        assert re.search(r"^exposure \[us\] +7000\.0 +\(30 to 1e\+07\)$", shown, re.MULTILINE)
        assert re.search(r"^gain \[dB\] +3\.00 +\(0 to 48\)$", shown, re.MULTILINE)
        assert re.search(r"^region +160x128 at 0,0$", shown, re.MULTILINE)


def test_only_the_memory_of_a_camera_has_its_description(
    camera: FakeCamera, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Aravis would open local files and other computers' ones, or read gigabytes by 512 bytes."""
    monkeypatch.setattr(source_module, "list_cameras", list)  # a search of the network takes a second
    out, address = tmp_path / "out", "127.0.0.1"
    file = tmp_path / "local.xml"
    file.write_text(genicam(camera_features("TRI050S-P", "POL001", FRAMES.shape[1:], 1), ()), encoding="utf-8")
    good = "Local:camera.xml;0x10000;3e8"
    camera.describe(None, "http://www.example.com/camera.xml")  # which the standard allows
    assert run("camera", "info", address) == 0
    for first, second in (
        (f"file://{file}", ""),
        (f"File:///{file}", good),
        ("", f"FILE:{file}"),
        ("http://127.0.0.1:9/a.xml", ""),
        ("ftp://127.0.0.1/a.xml", good),
        ("Local:camera.xml;10000;7fffffff", ""),
        ("", "local:///camera.zip;0x10000;0x80000000?SchemaVersion=1.1.0"),
        ("Local:a;1;3e8;10000;7fffffff", good),
        ("local:;", ""),
        ("nonsense \x1b[31m" + 400 * "x", ""),
    ):
        camera.describe(first, second)
        for words in (["camera", "info", address], ["capture", "-o", out, "--camera", address]):
            assert run(*words) == 1
            shown = capsys.readouterr().err
            assert (
                "the description of the camera at 127.0.0.1 must be in its own memory and have at most 16 MiB" in shown
            )
            assert shown.count("\n") == 1
            assert "\x1b" not in shown


@pytest.mark.parametrize(
    ("features", "words"), [({"Gamma": 0.8}, "gamma 0.8"), ({"LUTEnable": True}, "a lookup table")]
)
def test_frames_of_a_session_are_proportional_to_light(
    features: Dict[str, Any], words: str, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_module, "list_cameras", list)
    capture = ["capture", "--camera", "127.0.0.1", "--frames", 1, "-o"]
    changes = {"GammaEnable": {"kind": "bool", "value": True}, "LUTEnable": {"kind": "bool", "value": False}}
    with FakeCamera(FRAMES, features={**FAST, **features}, changes=changes):
        for more in (["--dark"], ["--angle", 0], ["--guide"]):
            assert run(*capture, tmp_path / "s", *more) == 1
            assert f"the camera applies {words}" in capsys.readouterr().err
        assert run(*capture, tmp_path / "free") == 0
        assert f"warning: the camera applies {words}, so DoLP is wrong: switch it off" in capsys.readouterr().err
        cure = ["--features", "Gamma=1, LUTEnable=false"]
        assert run(*capture, tmp_path / "s", "--dark", *cure) == 0
    first, second = (state(tmp_path / name) for name in ("free", "s/dark"))
    assert (first["gamma"], first["lut"]) == (pytest.approx(features.get("Gamma", 1.0)), "LUTEnable" in features)
    assert (second["gamma"], second["lut"], second["black_level"]) == (1.0, False, 0.0)


def test_a_camera_without_12p_captures_what_it_has(tmp_path: Path, capsys: Any) -> None:
    vendor = VENDORS["JAI"]
    with FakeCamera(FRAMES, features=FAST, changes=vendor.changes, without=vendor.without, model=vendor.model):
        assert run("capture", "-o", tmp_path / "out", "--frames", 2) == 0
    assert "camera.pixel_format 12p becomes Mono12Packed\n" in capsys.readouterr().out
    assert state(tmp_path / "out")["pixel_format"] == "Mono12Packed"
    assert all(frame.tobytes() in [one.tobytes() for one in FRAMES] for frame in read(tmp_path / "out"))


@pytest.mark.usefixtures("camera")
def test_errors_are_one_line(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    for words, code, text in (
        ("camera set POL001 Nope=1", 1, "the camera has no feature 'Nope'"),
        ("camera set Gain=3 PixelFormat=Mono9", 1, "PixelFormat cannot be 'Mono9'"),
        ("camera set POL001 Gain", 2, "features are given as FEATURE=VALUE"),
        ("camera info X9", 1, "X9 is not found; cameras here: LUCID Vision Labs TRI050S-P POL001 at 127.0.0.1"),
        ("capture -o out --camera X9", 1, "X9 is not found"),
        ("capture -o out --camera a/b", 2, "--camera must be"),
        ("capture -o out --gain-db 100", 2, "--gain-db must be in"),
        ("capture -o out --exposure-us 1", 1, "must be in [30, 1e+07], got 1"),
        ("capture -o out --pixel-format 10", 1, "'10' is not among the camera's"),
        ("capture -o out --dark --exposure-auto", 1, "need --exposure-us"),
        ("capture -o . --frames 1", 1, ". exists already"),
        ("capture -o out --dark --angles 9", 2, "--angles needs --guide"),
    ):
        assert run(*words.split()) == code, words
        shown = capsys.readouterr().err
        assert text in shown
        assert shown.count("\n") == 1
        assert list(tmp_path.iterdir()) == []


# -------------------------------------------------------------------------------------------------------------- frames


@pytest.mark.parametrize(("kind", "bits"), [("png", "12p"), ("npy", "8"), ("mcap", "12p"), ("mcap", "8")])
@pytest.mark.usefixtures("camera")
def test_frames_are_bit_exact(kind: str, bits: str, tmp_path: Path, capsys: Any) -> None:
    out = tmp_path / "out"
    assert run("capture", "-o", out, "--frames", 5, "--format", kind, "--pixel-format", bits) == 0
    assert re.search(
        f"^wrote 5 frames to {re.escape(str(out))}(; .* lost and taken again)?$", capsys.readouterr().out, re.M
    )
    names = ["frames.mcap"] if kind == "mcap" else [f"{k:03d}.{kind}" for k in range(5)]
    assert sorted(path.name for path in out.iterdir()) == sorted([*names, "camera.yaml"])
    sent = [frame.tobytes() for frame in (FRAMES if bits == "12p" else (FRAMES >> 4).astype(np.uint8))]
    indices = [sent.index(frame.tobytes()) for frame in read(out)]
    assert len(set(indices)) == 5
    assert state(out) == {
        "vendor": "LUCID Vision Labs",
        "model": "TRI050S-P",
        "serial": "POL001",
        "sensor": "IMX250MZR",
        "pixel_format": f"PolarizeMono{bits}",
        "size": [160, 128],
        "roi_offset": [0, 0],
        "flip": [False, False],
        "gain_db": 0.0,
        "gamma": 1.0,
        "lut": False,
        "black_level": 0.0,
        "exposure_us": 5000.0,
        "temperature": 41.5,
        "bit_depth": 12 if bits == "12p" else 8,
    }


def test_settings_reach_camera_and_file(camera: FakeCamera, tmp_path: Path) -> None:
    camera.set("ReverseX", True)
    words = ["--exposure-us", 800, "--gain-db", 6, "--roi", 48, 5, 64, 48, "--features", "BlackLevel=10"]
    assert run("capture", "-o", tmp_path / "s", "--flat", 2, "--frames", 2, *words) == 0
    assert camera.get("BlackLevel") == 10
    found = state(tmp_path / "s" / "flat" / "2")
    assert (found["exposure_us"], found["gain_db"], found["size"]) == (800.0, 6.0, [64, 48])
    assert (found["roi_offset"], found["flip"]) == ([48, 4], [True, False])
    sent = {frame[4:52, 48:112][:, ::-1].tobytes() for frame in FRAMES}
    assert {frame.tobytes() for frame in read(tmp_path / "s" / "flat" / "2")} <= sent


def test_lost_frames_are_counted_and_taken_again(camera: FakeCamera, tmp_path: Path, capsys: Any) -> None:
    camera.lose(0.15)
    assert run("capture", "-o", tmp_path / "out", "--frames", 12) == 0
    assert re.search(r"; [1-9][0-9]* frames were lost and taken again$", capsys.readouterr().out.strip())
    frames = read(tmp_path / "out")
    assert len(frames) == 12
    assert {frame.tobytes() for frame in frames} <= {frame.tobytes() for frame in FRAMES}


def after_two_frames(monkeypatch: Any, act: Callable[[Any], None]) -> None:
    """Have `capture` call a function with its `FrameCapture` when it has written two frames."""
    frames = capturing.FrameCapture.frames

    def interrupted(self: Any, count: int) -> Iterator[Any]:
        for index, frame in enumerate(frames(self, count)):
            if index == 2:
                act(self)
            yield frame

    monkeypatch.setattr(capturing.FrameCapture, "frames", interrupted)


@pytest.mark.parametrize("kind", ["png", "mcap"])
def test_camera_that_goes_away(kind: str, camera: FakeCamera, tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    def kill(capture: Any) -> None:
        camera.kill()
        wait_for(lambda: capture._source.problem, "the camera's thread to see it")
        get = capture._queue.get
        monkeypatch.setattr(capture._queue, "get", lambda timeout: get(timeout=timeout / 100))  # none comes any more

    after_two_frames(monkeypatch, kill)
    assert run("capture", "-o", tmp_path / "s", "--dark", "--frames", 60_000, "--format", kind) == 1
    assert re.fullmatch(
        r"polar-pipeline: no frame came for \d s: TRI050S-P POL001 has gone, or was started again\n",
        capsys.readouterr().err,
    )
    assert list((tmp_path / "s").iterdir()) == []


def test_frames_stay_if_the_camera_goes_after_the_last_one(tmp_path: Path) -> None:
    states = [read_facts(StandIn())]
    cdr = messages.encode_image(0, "camera", "mono8", np.zeros(states[0].size[::-1], np.uint8))

    class Gone:
        lost = 0
        facts = property(lambda _: states.pop())

        def frames(self, count: int) -> Iterator[Any]:
            return iter([cdr] * count)

    camera: Any = Gone()
    capturing.capture_folder(camera, tmp_path / "out", 2, "png")
    assert len(read(tmp_path / "out")) == 2


@pytest.mark.usefixtures("camera")
def test_an_interrupted_capture_leaves_complete_folders(tmp_path: Path, monkeypatch: Any) -> None:
    assert run("capture", "-o", tmp_path / "s", "--angle", 30, "--frames", 2) == 0
    after_two_frames(monkeypatch, lambda _: os.kill(os.getpid(), signal.SIGINT))
    assert run("capture", "-o", tmp_path / "s", "--dark", "--frames", 60_000) == 130
    assert [path.name for path in (tmp_path / "s").iterdir()] == ["030.000"]


def test_frames_of_other_settings_are_refused(camera: FakeCamera, tmp_path: Path, capsys: Any) -> None:
    folder = tmp_path / "s"
    first = ["--frames", 1, "--exposure-us", 900, "--gain-db", 2]
    assert run("capture", "-o", folder, "--dark", *first) == 0
    camera.set("ExposureTime", 5000.0)
    assert run("capture", "-o", folder, "--angle", 0, "--frames", 1, "--format", "npy") == 0  # continues with the same
    assert (state(folder / "000.000")["exposure_us"], state(folder / "000.000")["gain_db"]) == (900.0, 2.0)
    capsys.readouterr()
    for words, text in (
        (["--gain-db", 3], "gain_db 2.0 and 3.0"),
        (["--exposure-us", 950], "exposure_us 900.0 and 950.0"),
        (["--pixel-format", 8], "pixel_format PolarizeMono12p and PolarizeMono8"),
        (["--roi", 0, 0, 80, 64], "size (160, 128) and (80, 64)"),
    ):
        assert run("capture", "-o", folder, "--angle", 10, "--frames", 1, *words) == 1
        shown = capsys.readouterr().err
        assert f"the camera differs from {folder / '000.000' / 'camera.yaml'}: {text}; name another folder\n" in shown
        assert shown.count("\n") == 1
    assert run("capture", "-o", folder, "--dark") == 1
    assert f"{folder / 'dark'} exists already" in capsys.readouterr().err
    assert sorted(path.name for path in folder.iterdir()) == ["000.000", "dark"]


def test_state_that_changes_between_frames_ends_it(
    camera: FakeCamera, tmp_path: Path, monkeypatch: Any, capsys: Any
) -> None:
    after_two_frames(monkeypatch, lambda _: camera.set("Gain", 5.0))
    assert run("capture", "-o", tmp_path / "s", "--dark", "--frames", 60_000) == 1
    assert "the state of the camera changed between frames: gain_db 0.0 and 5.0\n" in capsys.readouterr().err


def test_an_automatic_exposure_may_change_between_frames(camera: FakeCamera, tmp_path: Path, monkeypatch: Any) -> None:
    """Frames of the changed exposure come behind those that wait in the queue."""

    def change(capture: Any) -> None:
        camera.set("ExposureTime", 6000.0)
        wait_for(lambda: capture.facts.exposure_us == 6000.0, "the camera's thread to see it")

    after_two_frames(monkeypatch, change)
    words = ["--exposure-auto", "--frames", 3 + 2 * capturing._WAITING]
    assert run("capture", "-o", tmp_path / "out", *words) == 0
    assert len(read(tmp_path / "out")) == 3 + 2 * capturing._WAITING


def test_frames_that_wait_in_the_system_are_left_out() -> None:
    """Stamps are the middles of exposures of 10 ms: the fifth frame is the first whose exposure begins later."""
    now = time.time_ns()
    facts = replace(read_facts(StandIn()), exposure_us=10_000.0)
    middles = [now + 1_000_000 * ms for ms in (-400, -300, -200, 4, 60_000, 60_010, 60_020)]
    cdrs = [messages.encode_image(stamp, "camera", "mono8", np.zeros((16, 16), np.uint8)) for stamp in middles]
    capture: Any = capturing.FrameCapture.__new__(capturing.FrameCapture)
    capture._source = SimpleNamespace(
        connection=SimpleNamespace(facts=facts, settings=CameraSettings()), problem="no more frames"
    )

    class Waiting:
        """The frames that arrive after the request; those before it were removed."""

        get_nowait = queue.Queue().get_nowait

        def get(self, timeout: float) -> Any:  # noqa: ARG002
            return cdrs.pop(0), facts

    capture._queue = Waiting()
    assert [messages.peek_stamp(cdr) for cdr in capture.frames(2)] == middles[4:6]


# --------------------------------------------------------------------------------------------------------------- guide


class User:
    """A user before a camera with a simulated sensor, who answers the prompts of the guide."""

    def __init__(self, camera: FakeCamera, answers: Dict[str, List[str]], frames: int, light: float) -> None:
        self.camera = camera
        self.answers = answers  # to prompts with the key in them; Enter otherwise
        self.frames = frames
        self.light = light  # S0 at an exposure of 1 us
        self.sensor = simulate_sensor(SENSORS["IMX250MZR"], FRAMES.shape[1:], seed=3)
        self.prompts: List[str] = []
        self.shown: Dict[str, List[np.ndarray]] = {}
        self._angle = 0.0

    def __call__(self, prompt: str) -> str:
        self.prompts.append(prompt)
        turned = re.search(r"the polarizer to ([0-9.]+) degrees", prompt)
        exposure = re.match(r"([0-9]+) us (may|would)", prompt)
        answers = next((row for key, row in self.answers.items() if key in prompt and row), [""])
        answer = answers.pop(0)
        if answer == "stop":
            raise EOFError
        if prompt.startswith("Cover"):
            self.show("dark", None)
        elif prompt.startswith("Switch on"):
            self.show("", 0.0)
        elif exposure and answer == "":
            self.show("", 0.0, float(exposure[1]))
        elif turned and answer == "":
            self.show(f"{float(turned[1]):07.3f}", float(turned[1]))
        return answer

    def show(self, name: str, angle: Any, exposure: float = 0.0) -> None:
        """Have the camera show frames of the polarizer at an angle, or of darkness."""
        turn = np.deg2rad(2 * (angle or 0.0))
        light = 0.0 if angle is None else self.light * (exposure or self.camera.get("ExposureTime"))
        rng = np.random.default_rng(len(self.prompts))
        count = self.frames * (4 if angle is None else 1)
        stokes = light * np.array([1, np.cos(turn), np.sin(turn)])
        self.shown[name] = [self.sensor.expose(stokes, 12, rng) for _ in range(count)]
        self.camera.show(np.stack(self.shown[name]))


def guide(user: User, folder: Path, monkeypatch: Any, *more: object) -> int:
    monkeypatch.setattr("builtins.input", user)
    return run("capture", "--guide", "-o", folder, "--frames", user.frames, "--angles", 9, *more)


def dolp_errors(user: User, path: Path) -> Tuple[float, float]:
    """Errors of DoLP and AoLP of a calibration in light of DoLP 0.1."""
    return polarization_errors(user.sensor, 0.1, load_calibration(path).parameters(), user.sensor.black)


@pytest.mark.parametrize("kind", ["png", "mcap"])
def test_guide_calibrates_as_well_as_from_files(
    kind: str, camera: FakeCamera, tmp_path: Path, monkeypatch: Any, capsys: Any
) -> None:
    """At the exposure of the camera the frames are too dark; the user repeats the step at 40 degrees."""
    user = User(camera, {"Turn the polarizer to 60 degrees": ["r"]}, 8, 0.3 / 5000)
    is_automatic = kind == "mcap"
    camera.set("ExposureAuto", "Continuous" if is_automatic else "Off")  # a camera's own choice is taken over
    assert guide(user, tmp_path / "s", monkeypatch, "--format", kind) == 0
    shown = capsys.readouterr()
    assert ("The camera chose 5000 us by itself; automatic exposure is now off.\n" in shown.out) == is_automatic
    assert camera.get("ExposureAuto") == "Off"
    assert "At 5000 us the brightest pixels reach 3" in shown.out
    assert "9 settings of the polarizer with 72 frames, 32 dark frames, 160x128 pixels, 12 bit" in shown.out
    assert f"wrote {tmp_path / 'sensor.npz'}: IMX250MZR, 160x128 pixels" in shown.out
    assert "warning" not in shown.err
    assert (tmp_path / "sensor.html").exists()
    assert sum("to 40 degrees" in prompt for prompt in user.prompts) == 2
    exposures = {state(path)["exposure_us"] for path in (tmp_path / "s").iterdir()}
    assert len(exposures) == 1
    assert 10_500 < exposures.pop() < 12_500  # 0.72 / 0.32 times as long
    found = load_calibration(tmp_path / "sensor.npz")
    assert (found.facts["exposure"], found.facts["temperature"]) == (pytest.approx(11.5, abs=1), 41.5)
    assert (found.facts["gain_db"], found.offset, found.bit_depth) == (0.0, (0, 0), 12)
    for name, frames in user.shown.items():
        for index, frame in enumerate(frames if name else []):
            path = tmp_path / "files" / name / f"{index:03d}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            assert cv2.imwrite(str(path), frame)
    words = ["--bit-depth", 12, "--roi-offset", 0, 0]
    assert run("calibrate", tmp_path / "files", "-o", tmp_path / "files.npz", *words) == 0
    before = polarization_errors(user.sensor, 0.1, None, user.sensor.black)
    captured, files = dolp_errors(user, tmp_path / "sensor.npz"), dolp_errors(user, tmp_path / "files.npz")
    assert captured == pytest.approx(files, rel=0.1)
    assert captured[0] < before[0] / 4


def test_interrupted_session_is_continued(camera: FakeCamera, tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    """With its exposure, which the camera has forgotten; the arguments of `calibrate` follow from the files."""
    user = User(camera, {"Turn the polarizer to 120 degrees": ["stop"]}, 4, 0.6 / 5000)
    assert guide(user, tmp_path / "s", monkeypatch) == 1
    assert "the input has ended; the same command goes on with the session" in capsys.readouterr().err
    names = [path.name for path in (tmp_path / "s").iterdir()]
    assert sorted(names) == ["000.000", "020.000", "040.000", "060.000", "080.000", "100.000", "dark"]
    exposure = state(tmp_path / "s" / "dark")["exposure_us"]
    user.answers.update({"7 of 10": ["r"], "Cover": ["stop"]})
    assert guide(user, tmp_path / "s", monkeypatch) == 1
    assert user.prompts[-1].startswith("Cover")  # all steps again
    camera.set("ExposureTime", 77.0)
    user.prompts.clear()
    assert guide(user, tmp_path / "s", monkeypatch) == 0
    assert user.prompts[0].startswith("7 of 10 steps are complete: dark, 000.000, 020.000")
    assert [prompt[:35].strip() for prompt in user.prompts[1:]] == [
        *(f"Turn the polarizer to {angle} degrees." for angle in (120, 140, 160)),
        "All frames are captured. Enter: cal",
    ]
    assert {state(path)["exposure_us"] for path in (tmp_path / "s").iterdir()} == {exposure}
    capsys.readouterr()
    assert guide(user, tmp_path / "s", monkeypatch) == 1
    assert "sensor.npz exists already" in capsys.readouterr().err
    (tmp_path / "sensor.npz").unlink()
    user.prompts.clear()
    assert guide(user, tmp_path / "s", monkeypatch) == 1
    assert "sensor.html exists already; move it" in capsys.readouterr().err
    assert user.prompts == []
    # the report of a calibration that is worse than none
    (tmp_path / "sensor.html").write_text('<p class="bad" id="not-written">No calibration was written.</p>')
    assert guide(user, tmp_path / "s", monkeypatch) == 0
    assert "No calibration was written" not in (tmp_path / "sensor.html").read_text(encoding="utf-8")
    # what a killed command left does not count
    shutil.copytree(tmp_path / "s" / "020.000", tmp_path / "s" / ".025.000.0a1b2c3d.part")
    # arguments that contradict what the camera said
    words = ["calibrate", tmp_path / "s", "-o", tmp_path / "again.npz"]
    for argument, text in (
        (["--bit-depth", 10], "--bit-depth 10 contradicts {}: 12"),
        (["--alignment", "msb"], "--alignment msb contradicts {}: lsb"),
        (["--roi-offset", 2, 0], "--roi-offset [2, 0] contradicts {}: (0, 0)"),
        (["--flip-x"], "--flip [True, False] contradicts {}: (False, False)"),
        (["--sensor", "IMX250MYR"], "--sensor IMX250MYR contradicts {}: IMX250MZR"),
        (["--exposure", 9], "--exposure 9.0 contradicts {}: " + f"{exposure / 1000:g}"),
        (["--gain-db", 1], "--gain-db 1.0 contradicts {}: 0.0"),
        (["--temperature", 20], "--temperature 20.0 contradicts {}: 41.5"),
    ):
        assert run(*words, *argument) == 2
        assert text.format(tmp_path / "s" / "000.000" / "camera.yaml") in capsys.readouterr().err
    assert run(*words, "--bit-depth", 12, "--sensor", "IMX264MZR", "--temperature", 41.5) == 0
    assert load_calibration(tmp_path / "again.npz").sensor.name == "IMX264MZR"
    # folders of different sessions
    shutil.copytree(tmp_path / "s" / "020.000", tmp_path / "s" / "025.000")
    file = tmp_path / "s" / "025.000" / "camera.yaml"
    file.write_text(file.read_text().replace("gain_db: 0.0", "gain_db: 6.0"))
    capsys.readouterr()
    assert run(*words, "--force") == 1
    assert capsys.readouterr().err.endswith(f"{file} are of different sessions: gain_db 0.0 and 6.0\n")
    file.write_text("{}")
    assert run(*words, "--force") == 1
    assert f"{file} cannot be read: it must have vendor, model" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("light", "start", "prompts", "exposure"),
    [
        (2.4, 5000, ["2500 us may fit. Enter: set it", "1250 us may fit. Enter: set it"], 1250),
        (0.3, 5000, ["10"], 5000),
        (1e-5, 100_000, ["No exposure of the camera fits"], 100_000),
    ],
)
def test_exposure_is_found_or_kept(
    light: float, start: int, prompts: List[str], exposure: int, camera: FakeCamera, tmp_path: Path, monkeypatch: Any
) -> None:
    """An exposure is halved while pixels are saturated; others are kept by the user."""
    camera.set("ExposureTime", start)
    user = User(camera, {"Cover": ["stop"], "would give": ["k"], "No exposure": ["k"]}, 2, light / 5000)
    assert guide(user, tmp_path / "s", monkeypatch) == 1
    assert len(user.prompts) == len(prompts) + 2
    assert all(prompt.startswith(text) for prompt, text in zip(user.prompts[1:], prompts))
    assert camera.get("ExposureTime") == exposure
    assert not (tmp_path / "s").exists()


def test_light_that_is_wrong_is_said(camera: FakeCamera, tmp_path: Path, capsys: Any) -> None:
    # with noise, as of a working camera
    level = 0.7 * 4095 / 2 + np.random.default_rng(0).normal(0, 1, FRAMES.shape[1:])
    ramp = np.linspace(1, 0.2, FRAMES.shape[2])
    cases: Tuple[Tuple[str, List[np.ndarray], str], ...] = (
        ("--dark", [level], "the frames are not dark, they read 35% of full scale: is the cap on?"),
        ("--angle=0", [level / 2], "the brightest pixels reach 35% of full scale, 60% to 85% are best"),
        ("--angle=1", [np.full_like(level, 4095)], "pixels are saturated, 60% to 85% are best"),
        ("--angle=2", [level * ramp], "the light is uneven, it falls to 2"),
        ("--angle=3", [level, level * 1.05], "the light changed by 4.9% between frames"),
        ("--flat", [level / 4], ""),
        ("--angle=4", [level], ""),
    )
    for word, frames, text in cases:
        camera.show(np.stack(frames).astype(np.uint16))
        with suppress(FileNotFoundError):
            shutil.rmtree(tmp_path / "s")
        assert run("capture", "-o", tmp_path / "s", word, "--frames", 4) == 0
        shown = capsys.readouterr().err
        assert shown.count("\n") == bool(text)
        assert text in shown
