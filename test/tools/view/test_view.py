"""`polar-pipeline view`: what it writes is read back with Rerun, and compared with what `Pipeline` computes."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, Dict, List

import cv2
import numpy as np
import pytest
from rrd import chunks, image, read, rerun
from support import run_python

from polar_pipeline import Pipeline
from polar_pipeline.camera.facts import CAMERA_METADATA, CameraFacts
from polar_pipeline.cli import main
from polar_pipeline.options.products import PRODUCTS
from polar_pipeline.options.topics import PRODUCT_TOPICS
from polar_pipeline.recordings import messages
from polar_pipeline.recordings.messages import IMAGE
from polar_pipeline.recordings.sink import open_sink
from polar_pipeline.tools.view import telemetry
from polar_pipeline.tools.view.recording import RecordingView, angle_colors

START, PERIOD = 1_700_000_000_000_000_001, 40_000_000
SHAPE = (64, 80)
#: Product -> its values with the first and the last color: as float, and as the 8-bit encoding.
SPANS = {
    "dolp": ((0, 1), (0, 255)),
    "dolp_sigma": ((0, 0.1), (0, 25.5)),
    "aolp_sigma": ((0, math.pi / 2 / math.sqrt(3)), (0, 256 / 2 / math.sqrt(3))),
    "significance": ((0, 1), (0, 255)),
    "ssim_map": ((0, 1), None),
}


def angle_classes(array: np.ndarray) -> np.ndarray:
    """AoLP as `Pipeline` returns it in 256ths of 180 degrees; 256 is no angle."""
    if array.dtype == np.float32:
        shares = np.round(np.rad2deg(array.astype(float)) / 180 * 256)
        return np.where(np.isnan(array), 256, shares % 256)
    return array if array.dtype == np.uint8 else np.round(array / 256) % 256


def frames(count: int = 3) -> List[np.ndarray]:
    """Smooth raw frames with some saturated pixels."""
    y, x = np.mgrid[: SHAPE[0], : SHAPE[1]]
    found = [
        np.rint(110 + 80 * np.sin((x + 3 * k) / 9) * np.cos(y / 7) + 9 * (x % 2)).astype(np.uint8) for k in range(count)
    ]
    for k, raw in enumerate(found):
        raw[8 : 8 + 4 * k, 12:20] = 255
    return found


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    path = tmp_path / "in.mcap"
    with open_sink(path, {}) as sink:
        for k, raw in enumerate(frames()):
            stamp = START + k * PERIOD
            sink.write("/images", IMAGE, stamp + 7, messages.encode_image(stamp, "camera", "mono8", raw))
    return path


def view(*arguments: object) -> int:
    return main(["view", "--backend", "cpu", *map(str, arguments)])


@pytest.mark.parametrize(("sensor", "resolution"), [("IMX250MZR", "half"), ("IMX250MYR", "full")])
def test_what_is_shown_is_the_pipelines(sensor: str, resolution: str, recording: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.rrd"
    options = ("--sensor", sensor, "--resolution", resolution, "--products", ",".join(PRODUCTS))
    assert view(recording, "--save", out, *options) == 0
    dtype = {name: row.dtypes[0] for name, row in PRODUCT_TOPICS.items()}
    pipeline = Pipeline(sensor, tuple(PRODUCTS), resolution=resolution, dtype=dtype, backend="cpu")
    rows = read(out)
    for k, raw in enumerate(frames()):
        expected = pipeline(raw)
        for name, array in expected.items():
            topic = f"/{PRODUCT_TOPICS[name].name}"
            if name == "stokes":
                parts = {f"{topic}/s{c}": array[..., c] for c in range(3)}
            elif name == "ssim":
                assert rows[topic][k]["scalars"] == float(array)
                continue
            else:
                parts = {topic: array}
            for entity, part in parts.items():
                row = rows[entity][k]
                assert (row["stamp"], row["frame"]) == (START + k * PERIOD, k), "the frame's stamp, not the recording's"
                want = angle_classes(part) if name == "aolp" else part
                np.testing.assert_array_equal(image(row), want, err_msg=entity)
                if part.dtype == np.float32 and name in SPANS:
                    assert row["depth_range"] == pytest.approx(SPANS[name][0]), entity
        saturated = expected.invalid[0] / expected["dolp"].size
        assert rows["/quality/saturated"][k]["scalars"] == saturated
        assert rows["/quality/lowest_block"][k]["scalars"] == pytest.approx(float(np.nanmin(expected.blocks)), abs=1e-6)
    assert rows["/quality/saturated"][2]["scalars"] > 0
    for k in range(3):
        stages = {entity: found[k]["scalars"] for entity, found in rows.items() if entity.startswith("/latency/")}
        total = stages.pop("/latency/total_ms")
        assert {"/latency/decode_ms", "/latency/polarization_ms", "/latency/ssim_ms"} <= set(stages)
        assert "/latency/write_ms" not in stages
        assert 0 < sum(stages.values()) <= total
    maps = rerun.components.Colormap
    for entity, colors in (("dolp", maps.Viridis), ("stokes/s0", maps.Grayscale), ("stokes/s1", maps.CyanToYellow)):
        assert {row["colormap"] for row in rows[f"/polarization/{entity}"]} == {colors.value}, entity
    done = run_python("-m", "rerun", "rrd", "verify", str(out), env={"HOME": str(tmp_path)})
    assert done.returncode == 0, done.stderr


def test_the_colors_of_aolp_are_those_of_the_product() -> None:
    logged: Dict[Any, Any] = {}

    def context(classes: Any) -> None:
        logged.update({number: (label, color) for number, label, color in classes})

    angle_colors(SimpleNamespace(AnnotationContext=context))
    with Pipeline(products="aolp,aolp_color", dtype={"aolp": "uint8"}, backend="cpu") as pipeline:
        found = pipeline(frames()[0])
    levels, shown = found["aolp"], found["aolp_color"]
    valid = shown.any(-1)
    for level in np.unique(levels[valid])[::16]:
        assert logged[level][0] == f"{int(level) * 180 / 256:.1f} deg"
        near = np.abs(shown[valid & (levels == level)].astype(int) - logged[level][1])
        assert near.max() <= 4, "one step of the map, where the rounded angle is the next one"
    assert logged[256] == ("invalid", (0, 0, 0))
    assert len(logged) == 257


@pytest.mark.parametrize("dtype", ["uint8", "uint16"])
def test_encoded_images_have_encoded_ranges(dtype: str, recording: Path, tmp_path: Path) -> None:
    products = ("dolp", "aolp", "dolp_sigma", "aolp_sigma", "significance", "ssim_map")
    assert view(recording, "--save", tmp_path / "out.rrd", "--products", ",".join(products), "--dtype", dtype) == 0
    rows = read(tmp_path / "out.rrd")
    expected = Pipeline(products=products, dtype=dtype, backend="cpu")(frames()[0])
    for name in products:
        row = rows[f"/{PRODUCT_TOPICS[name].name}"][0]
        if name == "aolp":
            np.testing.assert_array_equal(image(row), angle_classes(expected[name]))
            continue
        span = SPANS[name][1]
        if dtype == "uint16":  # a number to the viewer, also where 8 bits are an image of grays
            low, high = span or (0, 255)
            span = (low, high * (256 if name.startswith("aolp") else 257))
        np.testing.assert_array_equal(image(row), expected[name], err_msg=name)
        assert ("depth_range" in row) == (span is not None), name
        if span is not None:
            assert row["depth_range"] == pytest.approx(span, rel=1e-6), name


def test_the_layout_shows_every_image_and_curve(recording: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.rrd"
    assert view(recording, "--save", out, "--products", "intensity,dolp,stokes,ssim") == 0
    opened = chunks.RrdReader(out)
    (layout,) = opened.blueprints()
    names, origins, queries, ranges = [], [], [], []
    for chunk in opened.stream(store=layout):
        values = chunk.to_record_batch().to_pydict()
        names += [row[0] for row in values.get("ViewBlueprint:display_name", [])]
        origins += [row[0] for row in values.get("ViewBlueprint:space_origin", [])]
        queries += list(values.get("ViewContents:query", []))
        ranges += [row[0] for row in values.get("ScalarAxis:range", [])]
    images = ["intensity", "polarization/dolp", *(f"polarization/stokes/s{c}" for c in range(3))]
    assert sorted(names) == sorted([*images, "quality", "latency [ms]"])
    assert sorted(origins) == sorted([*(f"/{name}" for name in images), "/", "/latency"])
    assert ["/quality/ssim", "/quality/lowest_block", "/quality/saturated"] in queries
    assert [list(found) for found in ranges] == [[0, 1]]
    entities = set(read(out))
    assert {f"/{name}" for name in images} | {
        "/quality/ssim",
        "/quality/lowest_block",
        "/quality/saturated",
    } <= entities


def test_options_of_replay(tmp_path: Path) -> None:
    pytest.importorskip("yaml")
    params, two = tmp_path / "robot.yaml", tmp_path / "two.mcap"
    params.write_text("polar_pipeline:\n  ros__parameters:\n    resolution: full\n    output_depth: uint8\n")
    with open_sink(two, {}) as sink:
        for topic in ("/left", "/right"):
            for k, raw in enumerate(frames()):
                sink.write(
                    topic, IMAGE, k + 1, messages.encode_image(k + 1, "camera", "mono8", raw + (topic == "/left"))
                )
    options = ("--products", "dolp", "--params", params, "--topic", "/right", "--frames", 2, "--demosaic", "bilinear")
    assert view(two, "--save", tmp_path / "out.rrd", *options) == 0
    pipeline = Pipeline(products="dolp", resolution="full", demosaic="bilinear", dtype="uint8", backend="cpu")
    rows = read(tmp_path / "out.rrd")["/polarization/dolp"]
    assert [row["stamp"] for row in rows] == [1, 2]
    for row, raw in zip(rows, frames()):
        np.testing.assert_array_equal(image(row), pipeline(raw)["dolp"])


def test_the_state_of_the_camera_in_a_recording(tmp_path: Path, capsys: Any) -> None:
    """As `replay`, the viewer takes the region and the mirrored readout from it."""
    facts = CameraFacts("", "", "", "IMX250MZR", "Mono8", SHAPE[::-1], (1, 0), (False, True), 0.0, 1.0, None)
    source, out = tmp_path / "in.mcap", tmp_path / "out.rrd"
    with open_sink(source, {CAMERA_METADATA: json.dumps(facts.rows())}) as sink:
        sink.write("/raw", IMAGE, 1, messages.encode_image(1, "camera", "mono8", frames()[0]))
    assert view(source, "--save", out, "--products", "angle_0", "--dtype", "uint8") == 0
    pipeline = Pipeline(products="angle_0", dtype="uint8", backend="cpu", roi_offset=(1, 0), flip=(False, True))
    (row,) = read(out)["/angles/angle_000"]
    np.testing.assert_array_equal(image(row), pipeline(frames()[0])["angle_0"])
    assert view(source, "--save", out, "--force", "--flip-x") == 2
    assert "was recorded with (False, True)" in capsys.readouterr().err
    with open_sink(source, {CAMERA_METADATA: "{}"}, force=True):
        pass
    assert view(source, "--save", out, "--force") == 2
    assert "in.mcap cannot be read: the state of the camera: it must have vendor" in capsys.readouterr().err


def test_a_picture_and_frames_that_cannot_be_used(tmp_path: Path, capsys: Any) -> None:
    folder = tmp_path / "pictures"
    folder.mkdir()
    cv2.imwrite(str(folder / "a.png"), frames()[0])
    (folder / "b.png").write_bytes(b"no picture")
    cv2.imwrite(str(folder / "c.png"), frames()[1])
    assert view(folder, "--save", tmp_path / "out.rrd", "--products", "dolp", "--rate", 10) == 0
    assert [row["stamp"] for row in read(tmp_path / "out.rrd")["/polarization/dolp"]] == [100_000_000, 300_000_000]
    assert "not usable: 1 x file" in capsys.readouterr().err
    assert view(folder / "b.png", "--save", tmp_path / "none.rrd") == 1
    assert "none of the 1 frames could be used" in capsys.readouterr().err
    assert not (tmp_path / "none.rrd").exists()


# ------------------------------------------------------------------------------------------------------------- the file


@pytest.mark.parametrize(("rate", "stamps"), [([], []), (["--rate", "10"], [100_000_000, 200_000_000])])
def test_pictures_have_times_by_a_rate_only(rate: List[str], stamps: List[int], tmp_path: Path, capsys: Any) -> None:
    """In the viewer, in the report and in what `replay` prints; without times, frames have names."""
    (tmp_path / "in").mkdir()
    for k, raw in enumerate(frames(2)):
        cv2.imwrite(str(tmp_path / "in" / f"shot_{k}.png"), raw)
    assert view(tmp_path / "in", "--save", tmp_path / "x.rrd", "--products", "intensity", *rate) == 0
    rows = read(tmp_path / "x.rrd")["/intensity"]
    assert [row["stamp"] for row in rows if "stamp" in row] == stamps
    assert [row["frame"] for row in rows] == [0, 1]
    capsys.readouterr()
    words = ["-o", str(tmp_path / "x.mcap"), "--products", "intensity", "--backend", "cpu", *rate]
    assert main(["replay", str(tmp_path / "in"), *words]) == 0
    assert ("late: " in capsys.readouterr().out) == bool(rate)
    report = (tmp_path / "x.html").read_text(encoding="utf-8")
    assert ("shot_0" in report, "stamp 0.100000 s" in report) == (not rate, bool(rate))


def listed(folder: Path) -> Dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize(("error", "code"), [(KeyboardInterrupt(), 130), (RuntimeError("no more"), 1)])
def test_a_file_is_complete_or_absent(
    error: BaseException, code: int, recording: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "old.rrd").write_bytes(b"old")
    before = listed(folder)
    real, shown = RecordingView.show, []

    def show(*arguments: Any) -> None:
        if len(shown) % 2:
            raise error
        shown.append(real(*arguments))

    monkeypatch.setattr(RecordingView, "show", show)
    for name in ("new.rrd", "old.rrd"):
        shown.clear()
        assert view(recording, "--save", folder / name, "--force") == code
        assert len(shown) == 1
        assert listed(folder) == before
    monkeypatch.undo()
    assert view(recording, "--save", folder / "old.rrd") == 1, "not without --force"
    assert listed(folder) == before
    assert view(recording, "--save", folder / "old.rrd", "--force", "--products", "dolp") == 0
    assert len(read(folder / "old.rrd")["/polarization/dolp"]) == 3


def test_a_disk_that_is_full(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    cv2.imwrite(str(tmp_path / "raw.png"), np.random.default_rng(0).integers(10, 200, (512, 512)).astype(np.uint8))
    (tmp_path / "out").mkdir()
    done = run_python(
        *("-m", "polar_pipeline", "view", str(tmp_path / "raw.png"), "--backend", "cpu"),
        *("--products", "dolp", "--save", str(tmp_path / "out" / "out.rrd")),
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000)),
        timeout=60,
    )
    assert done.returncode == 1
    assert "out.rrd" in done.stderr.splitlines()[-1]
    assert "File too large" in done.stderr.splitlines()[-1]
    assert not list((tmp_path / "out").iterdir())


# ----------------------------------------------------------------------------------------------------------- the viewer


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user without settings of Rerun; gives where they would be."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    return telemetry.settings_file()


def test_the_viewer_is_opened_without_statistics(recording: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: List[Dict[str, Any]] = []

    def spawn(**arguments: Any) -> None:
        assert json.loads(home.read_text())["analytics_enabled"] is False, "before anything can be sent"
        opened.append(arguments)

    monkeypatch.setattr(rerun, "spawn", spawn)
    assert view(recording, "--products", "dolp") == 0
    ((layout, stream),) = [(row["default_blueprint"], row["recording"]) for row in opened]
    assert isinstance(layout, rerun.blueprint.Blueprint)
    assert isinstance(stream, rerun.RecordingStream)


def test_statistics_that_were_on_are_turned_off_without_rerun(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rerun would send that its command was used."""
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("Rerun is run"))
    home.parent.mkdir(parents=True)
    home.write_text(json.dumps({"analytics_enabled": True, "analytics_id": "abc", "metadata": {"a": 1}}))
    telemetry.disable_telemetry()
    written = home.read_text()
    assert json.loads(written) == {"analytics_enabled": False, "analytics_id": "abc", "metadata": {"a": 1}}
    status = home.stat()
    time.sleep(0.01)
    telemetry.disable_telemetry()
    assert (home.stat().st_ino, home.stat().st_mtime_ns) == (status.st_ino, status.st_mtime_ns), "left alone"


@pytest.mark.parametrize("content", ["", "[]", "{}", "no json"])
def test_statistics_that_cannot_be_turned_off(content: str, recording: Path, home: Path, capsys: Any) -> None:
    home.parent.mkdir(parents=True)
    home.write_text(content)
    assert view(recording) == 1
    assert "Rerun's usage statistics cannot be turned off in" in capsys.readouterr().err
    assert home.read_text() == content


# ---------------------------------------------------------------------------------------------------------------- usage


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ([], 2, "needs a SOURCE, or --topic NAME for a live topic"),
        (["in.mcap", "--rate", "3"], 2, "--rate is for pictures"),
        (["--topic", "/a", "--rate", "3"], 2, "--rate is for pictures"),
        (["in.mcap", "--force"], 2, "--force is for --save"),
        (["in.mcap", "--save", "out.mcap"], 2, "--save writes an .rrd file, got out.mcap"),
        (["in.mcap", "--save", "out.rrd", "--ssim-mode", "reference"], 2, "go together"),
        (["in.mcap", "--save", "nowhere/out.rrd"], 1, "there is no folder nowhere"),
        (["in.mcap", "--topic", "/other", "--save", "out.rrd"], 1, "has no images on /other"),
        (["none.mcap", "--save", "out.rrd"], 1, "none.mcap does not exist"),
    ],
)
def test_wrong_usage(
    arguments: List[str], code: int, said: str, recording: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(recording.parent)
    assert view(*arguments) == code
    assert said in capsys.readouterr().err
    assert [path.name for path in recording.parent.iterdir()] == ["in.mcap"]


@pytest.mark.parametrize("module", [None, ModuleType("rerun")])
def test_rerun_is_not_installed(
    module: Any, recording: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setitem(sys.modules, "rerun", module)
    monkeypatch.setitem(sys.modules, "rerun.blueprint", module and SimpleNamespace())
    assert view(recording, "--save", tmp_path / "out.rrd") == 1
    assert "pip install '/path/to/polar_pipeline[view]'" in capsys.readouterr().err
    assert not (tmp_path / "out.rrd").exists()
