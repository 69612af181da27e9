"""The commands `simulate` and `calibrate`, one after the other."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from itertools import cycle
from pathlib import Path
from typing import Any, Dict, List

import cv2
import numpy as np
import pytest
from sessions import true_parameters
from support import first_of

from polar_pipeline import SENSORS, cli
from polar_pipeline.calibration import load_calibration
from polar_pipeline.camera.facts import CAMERA_METADATA, CameraFacts
from polar_pipeline.camera.recorded import save_facts
from polar_pipeline.recordings import messages
from polar_pipeline.recordings.messages import IMAGE
from polar_pipeline.recordings.sink import open_sink
from polar_pipeline.tools.calibrate import make
from polar_pipeline.tools.calibrate.estimate import CalibrationResult
from polar_pipeline.tools.calibrate.estimate import calibrate as calibrate_sums
from polar_pipeline.tools.calibrate.simulation import Deviations, simulate_sensor

FRAMES = ["--bit-depth", "12", "--roi-offset", "0", "0"]
SESSION = ["calibrate", "session", "-o", "sensor.npz", *FRAMES]
SHORT = ["--size", "96x64", "--angles", "9", "--frames", "10", "--dark-frames", "16", "--shading", "0"]


def simulate(folder: Path, *more: str) -> List[str]:
    command = ["simulate", str(folder), *SHORT, *more]
    assert cli.main(command) == 0
    return command


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A session that no test changes."""
    folder = tmp_path_factory.mktemp("simulated") / "session"
    simulate(folder)
    return folder


@pytest.fixture(scope="module")
def textured(session: Path) -> Path:
    """This session, with a texture of 10 % with grains of 4 pixels of the lamp, which calibrations take for gains."""
    folder = Path(shutil.copytree(session, session.parent / "textured"))
    grains = cv2.GaussianBlur(np.random.default_rng(0).standard_normal((64, 96)), (0, 0), 2)
    texture = 1 + 0.1 * grains / grains.std()
    for path in (folder / "light").iterdir():
        raw = cv2.imread(str(path), cv2.IMREAD_UNCHANGED)
        black = 0.008 * 4095
        cv2.imwrite(str(path), np.clip(np.rint((raw - black) * texture + black), 0, 4095).astype(np.uint16))
    return folder


def files(folder: Path) -> Dict[str, bytes]:
    """Content of the files in a folder by name; hidden ones, which may be half written, are among them."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


@pytest.mark.parametrize(
    ("sensor", "bits", "unknown"),
    first_of([(name, *kind) for name, kind in zip(SENSORS, cycle([(8, False), (12, True), (12, False)]))], 3),
)
def test_from_a_session_to_a_file(sensor: str, bits: int, unknown: bool, tmp_path: Path, capsys: Any) -> None:
    folder, out = tmp_path / "a session", tmp_path / "sensor.npz"
    simulate(folder, "--sensor", sensor, "--bit-depth", str(bits), *(["--unknown-angles"] if unknown else []))
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == f"wrote 106 frames and 5 in 'test' to {folder}"
    # what it says comes next works as it is, up to the name of the file
    words = shlex.split(shown[1].partition("polar-pipeline ")[2].replace("sensor.npz", str(out)))
    notes = ["--temperature", "21.5", "--exposure", "8"]
    assert cli.main([*words, *notes]) == 0
    text = capsys.readouterr()
    assert f"wrote {out}: {sensor}, 96x64 pixels from (0, 0), sha256 " in text.out
    assert "9 settings of the polarizer with 90 frames, 16 dark frames, 96x64 pixels" in text.out
    assert f", {bits} bit" in text.out
    assert "warning" not in text.err
    found = load_calibration(out)
    assert (found.sensor, found.shape, found.bit_depth) == (SENSORS[sensor], (64, 96), bits)
    assert (found.facts["temperature"], found.facts["exposure"]) == (21.5, 8.0)
    assert found.facts["noise"]["full_well"] == pytest.approx(10_000, rel=0.05)
    camera = simulate_sensor(SENSORS[sensor], (64, 96), 0, Deviations(defects=5e-4, shading=0.0))
    good = camera.defects == 0
    np.testing.assert_array_equal(found.defects, np.argwhere(~good))
    # 90 frames of 4000 electrons, of 2800 in dim colors: gains to 0.2 %; rounding of black levels at 8 bits adds 0.4 %
    error = (found.parameters().gain - true_parameters(camera).gain)[good]
    assert np.sqrt(np.mean(error**2)) < (0.0035 if bits == 12 else 0.0065)


def test_the_frames_to_try_it_on(session: Path) -> None:
    names = sorted(path.name for path in (session / "test").iterdir())
    assert len(names) == 5
    assert "dolp_0.30_aolp_070.png" in names
    raw = cv2.imread(str(session / "test" / "dolp_0.90_aolp_115.png"), cv2.IMREAD_UNCHANGED) / 4095
    seen = [raw[r::2, c::2].mean() - 0.008 for r, c in ((1, 1), (0, 1), (0, 0), (1, 0))]  # 0, 45, 90, 135 degrees
    s0, s1, s2 = sum(seen) / 2, seen[0] - seen[2], seen[1] - seen[3]
    # means of 1536 pixels of 1 % and 0.5 % noise, and an extinction ratio of 300, which lowers DoLP by 0.7 %
    assert np.hypot(s1, s2) / s0 == pytest.approx(0.9 * 299 / 301, abs=0.004)
    assert np.rad2deg(np.arctan2(s2, s1) / 2) % 180 == pytest.approx(115, abs=0.2)


def test_sessions_are_the_same_for_the_same_seed(tmp_path: Path) -> None:
    few = ["--angles", "4", "--frames", "1", "--dark-frames", "1"]
    for name, seed in (("a", "1"), ("b", "1"), ("c", "2")):
        simulate(tmp_path / name, *few, "--seed", seed)
    a, b, c = ((tmp_path / name / "light" / "045.000_000.png").read_bytes() for name in "abc")
    assert a == b
    assert a != c


def test_warnings_are_shown(tmp_path: Path, capsys: Any) -> None:
    simulate(tmp_path / "session", "--angles", "4")
    assert calibrate(tmp_path / "session", "-o", str(tmp_path / "a.npz"), "--flat-field") == 0
    assert load_calibration(tmp_path / "a.npz").facts["flat_field"] is True
    assert "warning: only 4 settings of the polarizer: take 18" in capsys.readouterr().err
    assert "<li>only 4 settings of the polarizer: take 18" in (tmp_path / "a.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("more", [[], ["--force"], ["--accept-bad"]], ids=" ".join)
def test_a_calibration_that_is_worse_than_none(
    more: List[str], textured: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """The report is written always; what is known of the polarizer is passed on."""
    given: Dict[str, object] = {}

    def estimated(*arguments: Any, **named: Any) -> CalibrationResult:
        given.update(named)
        return calibrate_sums(*arguments, **named)

    monkeypatch.setattr(make, "calibrate", estimated)
    out, is_accepted = tmp_path / "a.npz", "--accept-bad" in more
    known = ["--angle-error", "1.5", "--polarizer-extinction", "400", *more]
    assert calibrate(textured, "-o", str(out), *known) == (0 if is_accepted else 1)
    assert given == {"angle_error": 1.5, "polarizer_extinction": 400.0}
    shown = capsys.readouterr()
    assert "error: the error of DoLP is 0.0" in shown.err
    assert "as gains are in part texture before the camera" in shown.err
    assert "<li>the error of DoLP is 0.0" in (tmp_path / "a.html").read_text(encoding="utf-8")
    assert f"wrote {tmp_path / 'a.html'}\n" in shown.out
    assert "times smaller" not in shown.out
    assert re.search(r"in uniform light become \d+\.\d times LARGER\n", shown.out)
    assert ("--accept-bad writes it" in shown.err) is not is_accepted
    assert set(files(tmp_path)) == ({"a.npz", "a.html"} if is_accepted else {"a.html"})


def test_force_replaces_no_good_calibration_by_a_bad_one(session: Path, textured: Path, tmp_path: Path) -> None:
    out = tmp_path / "a.npz"
    assert calibrate(session, "-o", str(out)) == 0
    good = out.read_bytes()
    assert calibrate(textured, "-o", str(out), "--force") == 1
    assert out.read_bytes() == good
    assert calibrate(textured, "-o", str(out), "--accept-bad") == 1, "it replaces nothing"
    assert out.read_bytes() == good
    assert calibrate(textured, "-o", str(out), "--force", "--accept-bad") == 0
    assert out.read_bytes() != good


@pytest.mark.parametrize(
    ("sensor", "arguments", "said"),
    [
        ("IMX250MZR", ["--bit-depth", "12"], ["name the place of their first pixel with --roi-offset X Y"]),
        ("IMX250MZR", ["--roi-offset", "0", "0"], ["name the camera's number of bits with --bit-depth"]),
        ("IMX250MZR", [], ["--bit-depth", "--roi-offset"]),
        ("IMX250MYR", FRAMES, ["name the sensor with --sensor"]),
    ],
)
def test_missing_arguments_are_wrong_usage(
    sensor: str, arguments: List[str], said: List[str], session: Path, tmp_path: Path, capsys: Any
) -> None:
    """And no calibration that would be worse than none: nothing is written, whatever is accepted."""
    if sensor != "IMX250MZR":
        session = tmp_path / "session"
        simulate(session, "--sensor", sensor)
    for more in ([], ["--force", "--accept-bad"]):
        capsys.readouterr()
        assert cli.main(["calibrate", str(session), "-o", str(tmp_path / "a.npz"), *arguments, *more]) == 2
        shown = capsys.readouterr().err
        assert [text for text in said if text not in shown] == []
        assert "worse than none" not in shown
        assert not files(tmp_path)


def test_arguments_that_seem_wrong_can_be_meant(session: Path, tmp_path: Path, capsys: Any) -> None:
    """A number of bits that contradicts the noise is a problem, which can be accepted."""
    words = ["calibrate", str(session), "-o", str(tmp_path / "a.npz"), "--roi-offset", "0", "0"]
    assert cli.main([*words, "--bit-depth", "16"]) == 1
    assert "--accept-bad writes it" in capsys.readouterr().err
    assert cli.main([*words, "--bit-depth", "16", "--accept-bad"]) == 0


def test_the_report_of_a_calibration_that_was_not_written_is_replaced(
    session: Path, textured: Path, tmp_path: Path, capsys: Any
) -> None:
    """By the next run without --force; the reports of calibrations that were written stay."""
    bad = ["calibrate", str(textured), *FRAMES, "-o", str(tmp_path / "a.npz")]
    report = tmp_path / "a.html"
    assert cli.main(bad) == 1
    assert "No calibration was written" in report.read_text(encoding="utf-8")
    assert cli.main(bad) == 1
    assert "--accept-bad writes it" in capsys.readouterr().err
    assert calibrate(session, "-o", str(tmp_path / "a.npz")) == 0
    good = report.read_text(encoding="utf-8")
    assert "No calibration was written" not in good
    assert cli.main([*bad, "--force", "--accept-bad"]) == 0
    forced = report.read_text(encoding="utf-8")
    assert "No calibration was written" not in forced
    (tmp_path / "a.npz").unlink()
    for text in (good, forced):
        report.write_text(text, encoding="utf-8")
        capsys.readouterr()
        assert calibrate(session, "-o", str(tmp_path / "a.npz")) == 1
        assert "a.html exists already; --force replaces it" in capsys.readouterr().err
        assert report.read_text(encoding="utf-8") == text


def test_dark_frames_alone_make_a_file(tmp_path: Path, capsys: Any) -> None:
    simulate(tmp_path / "session", "--defects", "0")
    shutil.rmtree(tmp_path / "session" / "light")
    assert calibrate(tmp_path / "session", "-o", str(tmp_path / "a.npz")) == 0
    shown = capsys.readouterr()
    assert "warning" not in shown.err
    assert "0 settings of the polarizer with 0 frames, 16 dark frames" in shown.out
    # mean and deviation of `Deviations.black` over 6144 pixels
    ideal = r"no polarizer: gains .* those of an ideal sensor; black level 0\.80% \+-0\.15% of full scale"
    assert re.search(ideal, shown.out)
    assert load_calibration(tmp_path / "a.npz").facts["dark_frames"] == 16


def test_recordings_with_the_state_of_the_camera(tmp_path: Path, capsys: Any) -> None:
    """They need no arguments for region and mirrored readout, which may not contradict."""
    facts = CameraFacts("", "", "", "IMX250MZR", "Mono8", (64, 48), (4, 2), (True, False), 0.0, 1.0, None, gamma=0.5)
    raws = np.random.default_rng(0).integers(1, 9, (20, 48, 64)).astype(np.uint8)
    for name, metadata in (("with", {CAMERA_METADATA: json.dumps(facts.rows())}), ("without", {})):
        with open_sink(tmp_path / f"{name}.mcap", metadata) as sink:
            for k, raw in enumerate(raws):
                sink.write("/raw", IMAGE, k + 1, messages.encode_image(k + 1, "camera", "mono8", raw))
    (tmp_path / "angles.csv").write_text("first,last,angle\n0,19,dark\n")

    def calibrated(name: str, *more: str) -> int:
        words = [str(tmp_path / f"{name}.mcap"), "--angles", str(tmp_path / "angles.csv"), "--bit-depth", "8"]
        return cli.main(["calibrate", *words, "-o", str(tmp_path / f"{name}.npz"), "--report", "-", *more])

    assert calibrated("with") == 0
    assert "with.mcap: the camera applies gamma 0.5, so DoLP is wrong" in capsys.readouterr().err
    assert calibrated("without", "--roi-offset", "4", "2", "--flip-x") == 0
    first, second = (load_calibration(tmp_path / f"{name}.npz") for name in ("with", "without"))
    assert first.digest == second.digest
    capsys.readouterr()
    assert calibrated("with", "--force", "--flip-y") == 2
    assert "with.mcap: (True, False)" in capsys.readouterr().err


@pytest.mark.parametrize("place", ["session", "session/light", "recording.mcap"])
def test_frames_of_another_size_than_the_camera_stated(place: str, tmp_path: Path, capsys: Any) -> None:
    """Its region and mirrored readout are not those of the frames, wherever the state of the camera is."""
    facts = CameraFacts("", "", "", "IMX250MZR", "Mono12", (96, 62), (0, 0), (False, False), 0.0, 1.0, None)
    source, named = tmp_path / "session", tmp_path / place
    if named.suffix:
        source = named
        with open_sink(source, {CAMERA_METADATA: json.dumps(facts.rows())}) as sink:
            for k in range(1, 21):
                sink.write("/raw", IMAGE, k, messages.encode_image(k, "", "mono16", np.full((64, 96), k, np.uint16)))
        (tmp_path / "angles.csv").write_text("first,last,angle\n0,19,dark\n")
    else:
        simulate(source, "--angles", "4", "--frames", "1", "--dark-frames", "2")
        named = named / "camera.yaml"
        save_facts(named, facts)
    words = [str(source), "--bit-depth", "12", "-o", str(tmp_path / "a.npz")]
    words += ["--angles", str(tmp_path / "angles.csv")] if place.endswith("mcap") else []
    capsys.readouterr()
    assert cli.main(["calibrate", *words]) == 1
    shown = capsys.readouterr().err
    assert "96x64 pixels" in shown
    assert f"{'camera.yaml' if place == 'session/light' else named}" in shown
    assert "states 96x62" in shown
    assert not list(tmp_path.glob("a.*"))


def test_a_file_is_checked_on_new_frames(tmp_path: Path, capsys: Any) -> None:
    """Frames of the same camera, of another one, and of another sensor; there is nothing to write."""
    few = ["--angles", "4", "--frames", "2", "--dark-frames", "2"]
    simulate(tmp_path / "session")
    simulate(tmp_path / "other", *few, "--seed", "1")
    (tmp_path / "same").mkdir()
    for angle in ("000", "120"):
        (tmp_path / "session" / "light" / f"{angle}.000_003.png").rename(tmp_path / "same" / f"{angle}_0.png")
    (tmp_path / "session" / "test" / "dolp_0.00_aolp_000.png").rename(tmp_path / "same" / "unpolarized_0.png")
    out = str(tmp_path / "a.npz")
    assert calibrate(tmp_path / "session", "-o", out) == 0
    before = files(tmp_path)
    capsys.readouterr()
    assert calibrate(tmp_path / "same", "--check", out) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in lines[:3]] == ["000", "120", "unpolarized"]
    assert re.fullmatch(r"with the calibration errors are [1-9]\.\d times smaller than without", lines[-1])
    assert not any("untested" in line for line in lines)
    (tmp_path / "same" / "unpolarized_0.png").unlink()
    assert calibrate(tmp_path / "same", "--check", out) == 0
    assert "low DoLP is untested" in capsys.readouterr().out
    assert calibrate(tmp_path / "other", "--check", out) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("black level: 0.")
    assert lines[-1].endswith("times LARGER than without: do not use it")
    assert calibrate(tmp_path / "other", "--check", out, "--sensor", "IMX250MYR") == 1
    assert "calibration is of a IMX250MZR" in capsys.readouterr().err
    assert files(tmp_path) == before


def test_files_that_exist(tmp_path: Path, capsys: Any) -> None:
    command = simulate(tmp_path / "session", "--frames", "2")
    capsys.readouterr()
    assert cli.main(command) == 1
    assert "exists already; name a new folder" in capsys.readouterr().err
    out = tmp_path / "sensor.npz"
    out.write_bytes(b"precious")
    command = ["-o", str(out)]
    assert calibrate(tmp_path / "session", *command) == 1
    assert "--force replaces it" in capsys.readouterr().err
    assert out.read_bytes() == b"precious"
    assert calibrate(tmp_path / "session", *command, "--force") == 0
    assert load_calibration(out).shape == (64, 96)


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["calibrate", "nothing", "-o", "a.npz"], 1, "nothing does not exist"),
        (["calibrate", ".", "-o", "a.npz"], 2, "lies in an input"),
        (["calibrate", "session", "--check", "b.npz"], 1, "b.npz"),
        (["calibrate", "session", "--check", "b.npz", "--report", "a.html"], 2, "--check takes no --report"),
        (["calibrate", "session", "--check", "b.npz", "--flat-field"], 2, "--check takes no --flat-field"),
        (["calibrate", "session", "--check", "b.npz", "--accept-bad"], 2, "--check takes no --accept-bad"),
        (["calibrate", "session", "nothing", "-o", "a.npz"], 1, "nothing does not exist"),
        (["calibrate", "session", "three", "-o", "session/a.npz"], 2, "lies in an input"),
        (
            ["calibrate", "session", "-o", "a.npz", "--bit-depth", "10"],
            1,
            "above full scale 1023: give the camera's --bit-depth, 12 or",
        ),
        (["calibrate", "session", "-o", "a.txt"], 2, "the output is an .npz file, got a.txt"),
        (["calibrate", "session", "-o", "a.npz", "--bit-depth", "7"], 2, "bit_depth must be one of 0, 8"),
        (["calibrate", "session", "-o", "a.npz", "--angles", "none.csv"], 1, "none.csv cannot be read"),
        (["calibrate", "empty", "-o", "a.npz"], 1, "empty holds no pictures"),
        (["calibrate", "three", "-o", "a.npz", "--bit-depth", "12"], 1, "at least 4 polarizer angles"),
        (["calibrate", "session", "-o", "a.npz", "--bit-depth", "12", "--flip-x"], 1, "flips do not fit the frames"),
        (["simulate", "a", "--size", "10000x10000"], 2, "at most 16777216 pixels, got 10000x10000"),
        (["simulate", "a", "--sensor", "IMX"], 2, "sensor must be one of"),
        ([*SESSION, "--report", "old.html"], 1, "old.html exists already; --force replaces it"),
        ([*SESSION, "--report", "no/where.html"], 1, "there is no folder no"),
        ([*SESSION, "--report", "session/a.html"], 2, "lies in an input"),
        ([*SESSION, "--report", "./sensor.npz"], 2, "-o and --report are the same file"),
        ([*SESSION, "--report", ""], 1, ". is a folder, not a file to write"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_cannot_be_done_is_said(
    arguments: List[str], code: int, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    for name in ("session", "three"):
        simulate(Path(name), "--angles", "4", "--frames", "1", "--dark-frames", "1")
    (tmp_path / "three" / "light" / "045.000_000.png").unlink()
    Path("old.html").write_bytes(b"precious")
    capsys.readouterr()
    assert cli.main(arguments) == code
    shown = capsys.readouterr()
    assert text in shown.err
    assert "settings of the polarizer" not in shown.out or "--report" not in arguments, "it is said before the work"
    assert files(tmp_path) == {"old.html": b"precious"}
    assert not list((tmp_path / "session").glob("*.html"))


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([], "one of the arguments -o/--output --check is required"),
        (["-o", "a.npz", "--check", "b.npz"], "--check: not allowed with argument -o"),
        (["-o", "a.npz", "--angle-error", "0"], "expected a number from 0.001 to 90, got '0'"),
        (["-o", "a.npz", "--polarizer-extinction", "1"], "expected a number >= 2, got '1'"),
    ],
)
def test_wrong_arguments(arguments: List[str], text: str, capsys: Any) -> None:
    with pytest.raises(SystemExit, match="2"):
        cli.main(["calibrate", "session", *arguments])
    assert text in capsys.readouterr().err


def calibrate(folder: Path, *more: str) -> int:
    return cli.main(["calibrate", str(folder), *FRAMES, *more])


def test_where_the_report_goes(session: Path, tmp_path: Path, capsys: Any) -> None:
    out = ["-o", str(tmp_path / "sensor.npz")]
    assert calibrate(session, *out) == 0
    assert set(files(tmp_path)) == {"sensor.npz", "sensor.html"}
    assert f"wrote {tmp_path / 'sensor.html'}\n" in capsys.readouterr().out
    text = (tmp_path / "sensor.html").read_text(encoding="utf-8")
    assert "<h1>Calibration of IMX250MZR from session</h1>" in text
    assert load_calibration(tmp_path / "sensor.npz").digest in text
    # the same session makes the same report, under any name
    assert calibrate(session, *out, "--force", "--report", str(tmp_path / "other.html")) == 0
    assert (tmp_path / "other.html").read_text(encoding="utf-8") == text
    assert calibrate(session, "-o", str(tmp_path / "alone.npz"), "--report", "-") == 0
    assert not (tmp_path / "alone.html").exists()
