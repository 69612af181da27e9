"""The tool `polar-pipeline`: what it prints, writes and returns."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, Dict, List, Sequence

import cv2
import numpy as np
import pytest
from calibrations import some_calibration
from mcap.reader import make_reader
from scenes import synthetic
from skimage.io import imread
from support import ROOT, on_cpu, run_python, wait_for

from polar_pipeline import SENSORS, Pipeline, __version__, cli
from polar_pipeline.backends.cuda.device import DEVICES
from polar_pipeline.backends.cuda.launch import Schedule
from polar_pipeline.backends.cuda.schedules import Measured
from polar_pipeline.calibration import save_calibration
from polar_pipeline.camera import aravis
from polar_pipeline.camera.facts import CameraFacts
from polar_pipeline.camera.recorded import save_facts
from polar_pipeline.cli.option_arguments import requested_options
from polar_pipeline.options import make_options
from polar_pipeline.options.products import DEFAULT_PRODUCTS
from polar_pipeline.options.topics import PRODUCT_TOPICS
from polar_pipeline.pictures.colors import legend
from polar_pipeline.recordings import messages
from polar_pipeline.recordings.rawpicture import CAMERA_FILE
from polar_pipeline.recordings.sink import open_sink
from polar_pipeline.recordings.source import open_source
from polar_pipeline.replay.compare import open_golden
from polar_pipeline.sensor.forward import expose

FRAMES = [np.rint(110 + 80 * np.sin(np.mgrid[:32, :40].sum(0) / 9 + k)).astype(np.uint8) for k in range(3)]


def main(arguments: Sequence[str]) -> int:
    """The tool's exit code; it computes on the CPU."""
    return cli.main(on_cpu(arguments))


@pytest.fixture(name="bag")
def fixture_bag(tmp_path: Path) -> Path:
    with open_sink(tmp_path / "in.mcap", {}) as sink:
        for k, raw in enumerate(FRAMES):
            sink.write("/images", messages.IMAGE, k + 1, messages.encode_image(k + 1, "cam", "mono8", raw))
    return tmp_path / "in.mcap"


@pytest.fixture(name="pictures")
def fixture_pictures(tmp_path: Path) -> Path:
    folder = tmp_path / "pictures"
    folder.mkdir()
    for k, raw in enumerate(FRAMES):
        cv2.imwrite(str(folder / f"{k}.png"), raw)
    return folder


def names(folder: Path) -> List[str]:
    return sorted(path.name for path in folder.iterdir())


def test_replay_writes_a_recording_and_a_report(bag: Path, tmp_path: Path, capsys: Any) -> None:
    out = tmp_path / "out.mcap"
    assert main(["replay", str(bag), "-o", str(out)]) == 0
    text = capsys.readouterr().out
    assert "3 frames on cpu" in text
    assert "polarization" in text
    assert names(tmp_path) == ["in.mcap", "out.html", "out.mcap"]
    assert "Replay of in.mcap" in (tmp_path / "out.html").read_text(encoding="utf-8")


def test_replay_names_the_calibration(bag: Path, tmp_path: Path) -> None:
    """In the recording's metadata and in the report; results are those of the library."""
    with open_source(bag) as source:
        raws = [messages.to_raw(record.image()) for record in source.records]
    calibration = some_calibration(SENSORS["IMX250MZR"], raws[0].shape)
    path, out = tmp_path / "sensor.npz", tmp_path / "out.mcap"
    save_calibration(path, calibration)
    assert main(on_cpu(["replay", str(bag), "-o", str(out), "--calibration", str(path), "--products", "dolp"])) == 0
    with out.open("rb") as stream:
        (row,) = make_reader(stream).iter_metadata()
    assert row.metadata["calibration"] == calibration.digest
    assert f"sha256 {calibration.digest}" in (tmp_path / "out.html").read_text(encoding="utf-8")
    with open_golden(out) as golden, Pipeline(products="dolp", calibration=calibration, backend="cpu") as pipeline:
        for stamp, raw in zip(golden.places["dolp"], raws):
            np.testing.assert_array_equal(golden.load("dolp", stamp), pipeline(raw)["dolp"])
    assert main(on_cpu(["replay", str(bag), "-o", str(out), "--force", "--calibration", "none.npz"])) == 2


def test_replay_compares_in_one_line(bag: Path, tmp_path: Path, capsys: Any) -> None:
    golden = str(tmp_path / "golden.mcap")
    assert main(["replay", str(bag), "-o", golden, "--report", "-", "--products", "dolp,intensity"]) == 0
    assert names(tmp_path) == ["golden.mcap", "in.mcap"]
    capsys.readouterr()
    assert main(["replay", str(bag), "--compare", golden]) == 0
    table = capsys.readouterr().out
    assert [line.split()[0] for line in table.splitlines()[-2:]] == ["intensity", "dolp"]
    assert "FAILED" not in table
    # the superpixels' own places instead of their common center: other values
    assert main(["replay", str(bag), "--compare", golden, "--no-co-sited"]) == 1
    assert "FAILED" in capsys.readouterr().out
    loose = ["--tolerance", "dolp=1", "--tolerance", "intensity=255"]
    assert main(["replay", str(bag), "--compare", golden, "--no-co-sited", *loose]) == 0
    assert main(["replay", str(bag), "--compare", golden, "--tolerance", "aolp=1"]) == 2
    assert "a tolerance is for what is compared, intensity, dolp; got 'aolp'" in capsys.readouterr().err


def test_replay_shows_frames_that_cannot_be_used(bag: Path, tmp_path: Path, capsys: Any) -> None:
    mixed, golden = tmp_path / "mixed.mcap", str(tmp_path / "golden.mcap")
    with open_sink(mixed, {}) as sink:
        for k, encoding in enumerate(["mono8", "", "mono8"]):
            sink.write("/images", messages.IMAGE, k + 1, messages.encode_image(k + 1, "cam", encoding, FRAMES[k]))
    assert main(["replay", str(bag), "-o", golden]) == 0
    assert main(["replay", str(mixed), "-o", str(tmp_path / "out.mcap")]) == 0
    said = capsys.readouterr()
    assert "2 frames on cpu" in said.out
    assert "1 could not be used" in said.out
    assert "1 x encoding" in said.err
    assert "could not be used" in (tmp_path / "out.html").read_text(encoding="utf-8")
    assert main(["replay", str(mixed), "--compare", golden]) == 1  # a frame is missing


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "COMMAND"),
        (["replay"], "source"),
        (["replay", "in.mcap"], "needs -o OUT.mcap"),
        (["replay", "in.mcap", "-o", "out.bag"], "an .mcap file, got out.bag"),
        (["replay", "in.mcap", "-o", "out.mcap", "--products", "dop"], "intensity, .*got .*'dop'"),
        (["replay", "in.mcap", "-o", "out.mcap", "--sensor", "IMX9"], f"{', '.join(SENSORS)} or a tile"),
        (["replay", "in.mcap", "-o", "out.mcap", "--min-intensity", "nan"], "expected a number, got 'nan'"),
        (["replay", "in.mcap", "-o", "out.mcap", "--rate", "0"], "expected a number from .* to .*, got '0'"),
        (["replay", "in.mcap", "-o", "out.mcap", "--tolerance", "dop=1"], "PRODUCT=VALUE.*'dop=1'"),
        (["replay", "in.mcap", "-o", "out.mcap", "--tolerance", "dolp=-1"], "number >= 0"),
        (["replay", "in.mcap", "-o", "out.mcap", "--tolerance", "dolp=1"], "--tolerance is for --compare"),
        (["replay", "in.mcap", "-o", "out.mcap", "--rate", "5"], "--rate is for pictures; in.mcap has times"),
        (["replay", "in.mcap", "-o", "out.mcap", "--report", "./out.mcap"], "are the same file, "),
        (["process", "raw.png", "--ssim-mode", "temporal"], "unrecognized arguments: --ssim-mode"),
        (["layout", "raw.png", "--polarizer", "361"], "expected a number from -360 to 360, got '361'"),
        (["layout", "raw.png", "--products", "dolp"], "unrecognized arguments: --products"),
        (["layout", "raw.png", "--resolution", "full", "--no-co-sited"], "unrecognized arguments: --resolution"),
        (["process", "raw.png", "--backend", "opencl"], "invalid choice: 'opencl'"),
        (["plan", "--device", "tx2"], "xavier.*h200"),
        (["plan", "--size", "12x2048"], "at least 16x16, .*got '12x2048'"),
        (["plan", "--size", "65536x16"], "each at most 65535, and 268435456 pixels in all"),
        (["plan", "--size", "32768x32768"], "each at most 65535, and 268435456 pixels in all"),
        (["plan", "--min-intensity", "3"], r"min_intensity must be in \[0, 2\)"),
        (["tune"], "--device"),
        (["simulate", "out", "--angles", "3"], "expected a whole number from 4"),
        (["simulate", "out", "--frames", "0"], "expected a whole number from 1"),
        (["simulate", "out", "--bit-depth", "17"], "expected a whole number from 8 to 16"),
        (["simulate", "out", "--defects", "0.6"], "expected a number from 0 to 0.5"),
        (["simulate", "out", "--size", "8x8"], "expected"),
    ],
)
def test_wrong_usage_returns_2_and_says_what_is_allowed(arguments: List[str], words: str, capsys: Any) -> None:
    try:
        code: Any = main(arguments)
    except SystemExit as stop:  # argparse
        code = stop.code
    assert code == 2
    assert re.search(words, capsys.readouterr().err)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["replay", "none.mcap", "-o", "out.mcap"], "none.mcap does not exist"),
        (
            ["replay", "in.mcap", "-o", "no/where/out.mcap"],
            "cannot write no/where/out.html: there is no folder no/where\n",
        ),
        (["replay", "in.mcap", "-o", "no/where/out.mcap", "--report", "-"], "no/where/out.mcap: there is no folder"),
        (["replay", "in.mcap", "-o", "out.mcap", "--report", ""], ". is a folder, not a file to write"),
        (["replay", "in.mcap", "-o", "out.mcap", "--topic", "/x"], "no images on /x"),
        (["process", "none.png"], "none.png"),
    ],
)
def test_failures_return_1_in_one_line(
    arguments: List[str], words: str, bag: Path, capsys: Any, monkeypatch: Any
) -> None:
    monkeypatch.chdir(bag.parent)
    assert main(arguments) == 1
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1
    assert names(bag.parent) == ["in.mcap"]


ESCAPE = "\x1b]0;owned\x07"
#: What no option takes: too long, too large, no number, control characters.
NONSENSE = ["9" * 5000, "-1", "nan", "inf", "1e300", "1e-300", ESCAPE, "x" * 100_000, ""]


@pytest.mark.parametrize("value", NONSENSE, ids=[value[:6].strip("\x1b") for value in NONSENSE])
@pytest.mark.parametrize(
    "arguments",
    [
        ["replay", "raw.npy", "-o", "out.mcap", "--rate={}"],
        ["replay", "raw.npy", "-o", "out.mcap", "--max-mb={}"],
        ["replay", "raw.npy", "--compare", "golden.mcap", "--tolerance={}=1"],
        ["process", "raw.npy", "--bit-depth={}"],
        ["process", "raw.npy", "--roi-offset", "0", "{}"],
        ["process", "raw.npy", "--ssim-sigma={}"],
        ["process", "raw.npy", "--sensor={}"],
        ["process", "raw.npy", "--products={}"],
        ["plan", "--size={}x{}"],
        ["bench", "node", "--seconds={}"],
        ["{}"],
    ],
    ids=" ".join,
)
def test_values_that_are_none(arguments: List[str], value: str, tmp_path: Path, capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("raw.npy", FRAMES[0])
    try:
        code: Any = main([word.format(value, value) for word in arguments])
    except SystemExit as stop:  # argparse
        code = stop.code
    assert code == 2
    said = capsys.readouterr().err
    assert said.replace("\n", "").isprintable()
    assert len(said) < 5000
    assert names(tmp_path) == ["raw.npy"]


# ------------------------------------------------------------------------------------------ what is read is not written


def test_replay_does_not_write_over_what_it_reads(bag: Path, tmp_path: Path, capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["replay", "in.mcap", "-o", "golden.mcap", "--dtype", "float32", "--report", "-"]) == 0
    (tmp_path / "params.yaml").write_text("products: {}\n")
    (tmp_path / "lens.yaml").write_text("a lens\n")
    (tmp_path / "sensor.npz").write_text("a calibration\n")
    (tmp_path / "link.mcap").symlink_to("in.mcap")
    os.link(str(bag), str(tmp_path / "hard.mcap"))
    (tmp_path / "folder").mkdir()
    (tmp_path / "around").symlink_to(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    for arguments in (
        ["in.mcap", "-o", "in.mcap"],
        ["in.mcap", "-o", "around/in.mcap"],
        ["in.mcap", "-o", "link.mcap"],
        ["link.mcap", "-o", "in.mcap"],
        ["in.mcap", "-o", "hard.mcap"],
        ["in.mcap", "-o", "out.mcap", "--report", "in.mcap"],
        ["in.mcap", "--compare", "golden.mcap", "-o", "golden.mcap"],
        ["in.mcap", "--reference", "golden.mcap", "--ssim-mode", "reference", "-o", "golden.mcap"],
        ["in.mcap", "--params", "params.yaml", "-o", "out.mcap", "--report", "params.yaml"],
        ["in.mcap", "--rectify", "lens.yaml", "-o", "out.mcap", "--report", "lens.yaml"],
        ["in.mcap", "--calibration", "sensor.npz", "-o", "out.mcap", "--report", "sensor.npz"],
    ):
        assert main(["replay", *arguments, "--force"]) == 2, arguments
        assert "would replace an input" in capsys.readouterr().err
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()} == before
    assert main(["replay", "in.mcap", "-o", "folder/in.mcap", "--force"]) == 0


def test_replay_does_not_write_into_what_it_reads(pictures: Path, tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "other").symlink_to(pictures)
    (tmp_path / "elsewhere.mcap").write_bytes(b"")
    (pictures / "link.mcap").symlink_to(tmp_path / "elsewhere.mcap")
    before = names(pictures)
    for source, out in (
        (pictures, pictures / "out.mcap"),
        (pictures, tmp_path / "other" / "out.mcap"),
        (tmp_path / "other", pictures / "below" / "out.mcap"),
        (pictures, pictures / "link.mcap"),
    ):
        assert main(["replay", str(source), "-o", str(out), "--force"]) == 2
        assert re.search("lies in an input, the folder|would replace an input", capsys.readouterr().err)
    linked = str(tmp_path / "linked.mcap")
    os.link(str(pictures / "0.png"), linked)
    assert main(["replay", str(pictures), "-o", linked, "--force"]) == 2
    assert names(pictures) == before


def test_results_of_a_pattern_go_into_a_folder_below_its_files_but_not_beside_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """Beside them, the next run could take them for frames."""
    monkeypatch.chdir(tmp_path)
    for angle in (0, 45, 90, 135):
        cv2.imwrite(f"scene_{angle:03d}.png", np.full((32, 40), 100, np.uint8))
    arguments = ["process", "scene_{000,045,090,135}.png", "--products", "intensity"]
    assert main([*arguments, "-o", "."]) == 2
    assert "lies in an input, the folder of scene_" in capsys.readouterr().err
    assert main([*arguments, "-o", "out"]) == 0
    assert names(tmp_path / "out") == ["scene_intensity.png"]


def test_process_does_not_write_over_its_picture(pictures: Path, capsys: Any) -> None:
    raw = pictures / "0.png"
    before = raw.read_bytes()
    os.link(str(raw), str(pictures / "0_intensity.png"))
    arguments = ["process", str(raw), "--products", "intensity", "--dtype", "uint8", "--force", "-o", str(pictures)]
    assert main(arguments) == 2
    assert "would replace an input" in capsys.readouterr().err
    (pictures / "0_intensity.png").unlink()
    assert main(arguments) == 0
    assert raw.read_bytes() == before


def test_process_writes_all_of_its_files_or_none(pictures: Path, tmp_path: Path, capsys: Any) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "0_dolp.tiff").touch()
    arguments = ["process", str(pictures / "0.png"), "--products", "intensity,dolp,ssim", "--format", "tiff", "-o"]
    assert main([*arguments, str(out)]) == 1
    assert "0_dolp.tiff exists already; --force replaces it" in capsys.readouterr().err
    assert names(out) == ["0_dolp.tiff"]
    assert main([*arguments, str(out / "0_dolp.tiff")]) == 2
    assert "0_dolp.tiff is not a folder" in capsys.readouterr().err
    assert main([*arguments, str(out), "--force"]) == 0
    assert {"0_dolp.tiff", "0_intensity.tiff"} <= set(names(out))


def test_what_is_no_file_is_not_replaced(pictures: Path, tmp_path: Path, capsys: Any) -> None:
    os.mkfifo(str(tmp_path / "pipe.mcap"))
    assert main(["replay", str(pictures), "-o", str(tmp_path / "pipe.mcap"), "--report", "-", "--force"]) == 1
    assert "is not a regular file" in capsys.readouterr().err


# ---------------------------------------------------------------------------------------------------------- last errors


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (MemoryError(), "polar-pipeline: not enough memory\n"),
        (RecursionError("too deep"), "polar-pipeline: too deep\n"),
        (OverflowError("too large"), "polar-pipeline: a library failed: too large\n"),
        (RuntimeError(f"{ESCAPE} and more"), "polar-pipeline: \\x1b]0;owned\\x07 and more\n"),
        (cv2.error("no"), "polar-pipeline: a library failed: no\n"),
    ],
)
def test_errors_of_libraries_are_one_line(error: Exception, words: str, capsys: Any, monkeypatch: Any) -> None:
    def fail() -> None:
        raise error

    monkeypatch.setattr("polar_pipeline.cli.doctor.run_checks", fail)
    assert main(["doctor"]) == 1
    assert capsys.readouterr().err == words


def test_defects_keep_their_traceback(capsys: Any, monkeypatch: Any) -> None:
    for error in (AssertionError("7"), TypeError("7"), KeyError("7"), ValueError("7")):
        monkeypatch.setattr("polar_pipeline.cli.doctor.as_text", lambda *_, raised=error: _raise(raised))
        assert main(["doctor"]) == 1
        said = capsys.readouterr().err
        assert "Traceback" in said
        assert said.endswith(f"this is a defect of polar_pipeline {__version__}; please report the lines above\n")
    # an AttributeError is one where it is raised here, but not in another package
    monkeypatch.setattr("polar_pipeline.cli.doctor.run_checks", lambda: [None])
    assert main(["doctor", "--json"]) == 1
    assert "Traceback" in capsys.readouterr().err
    monkeypatch.setattr("polar_pipeline.cli.doctor.run_checks", lambda: _raise(AttributeError("7")))
    assert main(["doctor"]) == 1
    assert capsys.readouterr().err == "polar-pipeline: a library failed: 7\n"


def _raise(error: Exception) -> None:
    raise error


@pytest.mark.parametrize("words", [["camera", "list"], ["camera", "info"], ["capture", "-o", "out"]])
def test_cameras_without_aravis(words: List[str], capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(aravis, "_LIBRARY", "libnothing.so")
    aravis.load_aravis.cache_clear()
    assert main(words) == 1
    shown = capsys.readouterr().err
    assert shown.startswith("polar-pipeline: cameras need Aravis 0.8 (libnothing.so")
    assert shown.endswith("): sudo apt install libaravis-0.8-0\n")
    assert shown.count("\n") == 1


@pytest.mark.parametrize("arguments", [["doctor"], ["plan", "--help"]])
def test_a_reader_that_went_away_is_no_error(arguments: List[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = run_python("-m", "polar_pipeline", *arguments, stdout=writing)
    os.close(writing)
    is_help = arguments[-1] == "--help"  # there, argparse ignores it by itself
    assert (done.returncode if not is_help else 141, done.stderr) == (141, "")


def test_output_onto_a_full_disk_is_an_error() -> None:
    with Path("/dev/full").open("wb") as full:
        done = run_python("-m", "polar_pipeline", "plan", stdout=full)
    assert (done.returncode, done.stderr) == (1, "polar-pipeline: No space left on device\n")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_replay_leaves_nothing(number: signal.Signals, code: int, bag: Path, tmp_path: Path) -> None:
    """A pipe that never delivers stands for a long recording: the signal arrives while the output is open."""
    script = (
        "import sys, time\n"
        "from polar_pipeline import cli\n"
        "from polar_pipeline.replay import job\n"
        "def slow(*_, **__):\n"
        "    print('running', flush=True)\n"
        "    time.sleep(60)\n"
        "job.replay = slow\n"
        "sys.exit(cli.main(sys.argv[1:]))\n"
    )
    arguments = [sys.executable, "-c", script, "replay", "--backend", "cpu", str(bag), "-o", str(tmp_path / "out.mcap")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "running\n"
        assert any(name.endswith(".part") for name in names(tmp_path))
        process.send_signal(number)
        _, said = process.communicate(timeout=30)
    assert process.returncode == code
    assert "Traceback" not in said
    assert names(tmp_path) == ["in.mcap"]


def test_process_one_picture(pictures: Path, tmp_path: Path, capsys: Any) -> None:
    raw, out = pictures / "0.png", tmp_path / "out"
    everything = ["--products", "intensity,stokes,dolp,preview,ssim", "--format", "tiff"]
    assert main(["process", str(raw), "-o", str(out), *everything]) == 0
    assert "ssim 0." in capsys.readouterr().out
    assert names(out) == ["0_dolp.tiff", "0_intensity.tiff", "0_preview.png", "0_stokes.tiff", "preview_legend.png"]
    want = Pipeline(products="intensity, dolp, stokes, preview", backend="cpu")(FRAMES[0])
    for name in ("dolp.tiff", "intensity.tiff"):
        got = cv2.imread(str(out / f"0_{name}"), cv2.IMREAD_UNCHANGED)
        np.testing.assert_array_equal(got, want[name.split(".")[0]])
    for name in ("stokes.tiff", "preview.png"):  # in the file the order is ours, cv2.imread gives the other one
        got = imread(out / f"0_{name}")
        np.testing.assert_array_equal(got, want[name.split(".")[0]])
        np.testing.assert_array_equal(cv2.imread(str(out / f"0_{name}"), cv2.IMREAD_UNCHANGED), got[..., ::-1])
    words = ["--products", "dolp,preview", "--dtype", "uint16"]
    assert main(["process", str(raw), "-o", str(tmp_path / "words"), *words]) == 0
    assert names(tmp_path / "words") == ["0_dolp.png", "0_preview.png", "preview_legend.png"]
    got = cv2.imread(str(tmp_path / "words" / "0_dolp.png"), cv2.IMREAD_UNCHANGED)
    np.testing.assert_array_equal(got, Pipeline(products="dolp", dtype="uint16", backend="cpu")(FRAMES[0])["dolp"])
    assert main(["process", str(raw), "-o", str(out), *everything]) == 1
    assert main(["process", str(raw), "-o", str(out), *everything, "--force", "--format", "npy"]) == 0
    np.testing.assert_array_equal(np.load(out / "0_stokes.npy"), want["stokes"])


def test_the_state_of_the_camera_beside_captured_pictures(tmp_path: Path, capsys: Any) -> None:
    """Region, mirrored readout and number of bits need no arguments, and these may not contradict."""
    folder, out, recording = tmp_path / "captured", tmp_path / "out", tmp_path / "out.mcap"
    folder.mkdir()
    raw = FRAMES[0].astype(np.uint16) << 4
    cv2.imwrite(str(folder / "0.png"), raw)
    facts = CameraFacts("", "", "", "IMX250MZR", "Mono12", (40, 32), (1, 0), (False, True), 0.0, 1.0, None)
    save_facts(folder / CAMERA_FILE, facts)
    words = ["--products", "dolp,intensity", "--dtype", "uint8", "--force"]
    assert main(["process", str(folder / "0.png"), "-o", str(out), *words]) == 0
    assert main(["replay", str(folder), "-o", str(recording), *words]) == 0
    options: Any = {"dtype": "uint8", "bit_depth": 12, "roi_offset": (1, 0), "flip": (False, True)}
    want = Pipeline(products="dolp, intensity", backend="cpu", **options)(raw)
    for name, image in want.items():
        np.testing.assert_array_equal(imread(out / f"0_{name}.png"), image)
        with open_golden(recording) as golden:
            (frame,) = golden.frames()
            np.testing.assert_array_equal(golden.load(name, *frame), image)
    capsys.readouterr()
    assert main(["process", str(folder / "0.png"), "-o", str(out), *words, "--flip-x"]) == 2
    assert "was recorded with (False, True)" in capsys.readouterr().err
    assert main(["layout", str(folder / "0.png"), "--bit-depth", "10"]) == 2
    assert "bit_depth is 10" in capsys.readouterr().err
    (folder / CAMERA_FILE).write_text("pixel_format: Mono12\n")
    assert main(["process", str(folder / "0.png"), "-o", str(out), *words]) == 2
    assert "camera.yaml cannot be read: it must have vendor" in capsys.readouterr().err
    (folder / CAMERA_FILE).write_text("/**: {ros__parameters: {raw.bit_depth: 10}}\n")  # of a node
    assert main(["process", str(folder / "0.png"), "-o", str(out), *words]) == 0


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("command", ["replay", "calibrate"])
def test_a_signal_between_two_outputs(
    command: str, number: signal.Signals, code: int, bag: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first output has its name: the second one gets it too, before the command ends."""
    words, out = ["replay", str(bag), "-o", str(tmp_path / "out" / "a.mcap")], {"a.mcap", "a.html"}
    if command == "calibrate":
        few = ["--size", "96x64", "--angles", "4", "--frames", "1", "--dark-frames", "1"]
        assert main(["simulate", str(tmp_path / "session"), *few]) == 0
        words, out = (
            ["calibrate", str(tmp_path / "session"), "-o", str(tmp_path / "out" / "a.npz")],
            {"a.npz", "a.html"},
        )
        words += ["--bit-depth", "12", "--roi-offset", "0", "0"]
    (tmp_path / "out").mkdir()
    rename = Path.replace

    def renamed(self: Path, target: Path) -> Any:
        rename(self, target)
        os.kill(os.getpid(), number)

    monkeypatch.setattr(Path, "replace", renamed)
    assert main(words) == code
    assert {path.name for path in (tmp_path / "out").iterdir()} == out


@pytest.mark.parametrize("suffix", ["png", "npy"])
def test_captured_pictures_of_another_size(suffix: str, tmp_path: Path, capsys: Any) -> None:
    """Region and mirrored readout in `camera.yaml` are of its size, and hold for no other picture in the folder."""
    folder, recording = tmp_path / "captured", tmp_path / "out.mcap"
    folder.mkdir()
    for name, raw in (("0", FRAMES[0]), ("1", FRAMES[0][2:, 4:])):
        if suffix == "npy":
            np.save(folder / f"{name}.npy", raw)
        else:
            cv2.imwrite(str(folder / f"{name}.png"), raw)
    height, width = FRAMES[0].shape
    facts = CameraFacts("", "", "", "IMX250MZR", "Mono8", (width, height), (1, 0), (False, True), 0.0, 1.0, None)
    save_facts(folder / CAMERA_FILE, facts)
    bad = folder / f"1.{suffix}"
    said = f"{bad}: a picture of {width - 4}x{height - 2} pixels, and camera.yaml beside it states {width}x{height}"
    (tmp_path / "angles.csv").write_text(f"file,angle\n0.{suffix},dark\n1.{suffix},dark\n")
    for words in (
        ["process", str(bad), "-o", str(tmp_path / "out")],
        ["layout", str(bad)],
        ["replay", str(bad), "-o", str(recording)],
        ["calibrate", str(folder), "--angles", str(tmp_path / "angles.csv"), "-o", str(tmp_path / "a.npz")],
    ):
        assert main(words) == 1
        assert said in capsys.readouterr().err
    assert main(["replay", str(folder), "-o", str(recording), "--products", "dolp"]) == 0
    shown = capsys.readouterr()
    assert f"not usable: 1 x size; the first: {said}" in shown.err
    assert "1 frames on" in shown.out


def test_colors_come_with_legends(pictures: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    products = ["--products", "aolp_color,dolp_color,polarizer,preview"]
    products += ["--polarizer-angle", "30", "--color-style", "light", "--dtype", "uint8"]
    assert main(["process", str(pictures / "0.png"), "-o", str(out), *products, "--backend", "cpu"]) == 0
    colored = ("aolp_color", "dolp_color", "preview")
    legends = [f"{name}_legend.png" for name in colored]
    assert names(out) == sorted([*(f"0_{name}.png" for name in (*colored, "polarizer")), *legends])
    for name, path in zip(colored, legends):
        np.testing.assert_array_equal(imread(out / path), legend(name, "light"))
    options: Any = {"polarizer_angle": 30, "color_style": "light", "dtype": "uint8", "backend": "cpu"}
    with Pipeline(products="aolp_color, polarizer", **options) as pipeline:
        want = pipeline(FRAMES[0])
    for name, image in want.items():
        np.testing.assert_array_equal(imread(out / f"0_{name}.png"), image, err_msg=name)


@pytest.mark.parametrize(("frame", "sensor"), [("IMX250MYR", "IMX250MZR"), ("IMX250MZR", "IMX250MZR")])
def test_process_says_that_the_layout_does_not_fit(frame: str, sensor: str, tmp_path: Path, capsys: Any) -> None:
    """A color frame taken as mono; `replay` says the same."""
    path, is_color = tmp_path / "0.png", SENSORS[frame].is_color
    stokes = synthetic("spheres", (512, 512), is_color=is_color)
    cv2.imwrite(str(path), expose(stokes * np.float32([[0.5], [1], [0.7]]) if is_color else stokes, SENSORS[frame]))
    options = ["--sensor", sensor, "--backend", "cpu"]
    assert main(["process", str(path), "-o", str(tmp_path), "--products", "dolp", *options]) == 0
    said = capsys.readouterr().err
    assert ("layout: the frame shows color filters" in said) == (frame != sensor)
    assert main(["replay", str(path), "-o", str(tmp_path / "out.mcap"), *options]) == 0
    assert capsys.readouterr().err.splitlines()[-1:] == said.splitlines()


def test_layout_of_a_picture(tmp_path: Path, capsys: Any) -> None:
    path = str(tmp_path / "sheet.png")
    even = np.array([1, 0, 0.9], np.float32)  # DoLP 0.9 at 45 degrees
    cv2.imwrite(path, expose(np.broadcast_to(even, (512, 512, 3)), SENSORS["IMX250MZR"]))
    assert main(["layout", path]) == 0
    assert capsys.readouterr().out == "no contradiction; a mono frame does not tell odd offsets and flips apart\n"
    assert main(["layout", path, "--polarizer", "45"]) == 0
    said = capsys.readouterr().out
    assert "--roi-offset 0 0: the sheet reads 45.0 degrees, fits 45 degrees" in said
    assert main(["layout", path, "--polarizer", "90"]) == 1
    assert re.search("--roi-offset 0 0: the sheet reads 45.0 degrees, does not fit", capsys.readouterr().out)
    assert main(["layout", path, "--polarizer", "45", "--roi-offset", "1", "0"]) == 1
    assert "--roi-offset 2 0: the sheet reads 45.0 degrees, fits" in capsys.readouterr().out
    color = str(tmp_path / "color.png")
    filters = np.array([60, 120, 90], np.uint8)[np.array(SENSORS["IMX250MYR"].colors)]
    cv2.imwrite(color, np.tile(filters, (64, 64)))
    assert main(["layout", color, "--sensor", "IMX250MYR"]) == 0
    assert main(["layout", color, "--sensor", "IMX250MYR", "--roi-offset", "1", "0"]) == 1
    assert "raw.roi_offset [0, 0]" in capsys.readouterr().out
    assert main(["layout", color, "--polarizer", "45"]) == 1
    assert "no polarizer in view" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "changes"),
    [
        ([], {}),
        (["--flip-x"], {"flip": (True, False)}),
        (["--no-co-sited"], {"co_sited": False}),
        (["--own-site"], {"co_sited": False}),  # the former name
        (["--roi-offset", "3", "2"], {"roi_offset": (3, 2)}),
        (["--bit-depth", "12", "--alignment", "msb"], {"bit_depth": 12, "alignment": "msb"}),
        (["--sensor", "IMX250MYR"], {"sensor": "IMX250MYR"}),
        (["--products", "dolp,ssim", "--dtype", "uint8"], {"products": ("dolp", "ssim"), "dtype": "uint8"}),
    ],
)
def test_arguments_become_options(arguments: List[str], changes: Dict[str, Any]) -> None:
    products = changes.get("products", DEFAULT_PRODUCTS)
    types = {name: PRODUCT_TOPICS[name].dtypes[0] for name in products}  # as the live node publishes them
    wanted = make_options(**{"products": products, "dtype": types, **changes})
    assert requested_options(cli.make_parser("plan").parse_args(["plan", *arguments])) == wanted


def test_doctor(capsys: Any) -> None:
    assert main(["doctor"]) == 0
    assert f"{__version__} in " in capsys.readouterr().out
    assert main(["doctor", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {"topic": "numpy", "state": "ok", "text": np.__version__, "group": "Library"} in rows


def test_the_list_of_commands_comes_without_loading_them() -> None:
    """Each command imports what it needs when it is used, so that `--help` is quick."""
    script = (
        "import sys\n"
        "from polar_pipeline import cli\n"
        "try:\n"
        "    cli.main(['--help'])\n"
        "finally:\n"
        "    print(sorted({'numpy', 'cv2', 'rosbags'} & set(sys.modules)), file=sys.stderr)\n"
    )
    assert run_python("-c", script).stderr == "[]\n"


def test_plan_for_programs_and_people(capsys: Any) -> None:
    assert main(["plan", "--json", "--device", "orin", "--bit-depth", "12", "--size", "640x480", "--no-co-sited"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["device"]["arch"] == "sm_87"
    first, second = shown["launches"]
    assert (first["name"], second["name"]) == ("polarization", "ssim")
    assert first["size"] == [640, 480]
    assert first["work"].startswith("mono half own-site u16 fp32 intensity:uint8+dolp:float32")
    assert first["bytes"]["read"] == 2 * 640 * 480
    assert 0 < first["schedule"]["shared_bytes"] <= 163 * 1024
    assert first["memory_us"] == pytest.approx((first["bytes"]["read"] + first["bytes"]["written"]) / 205e3, abs=0.01)
    assert second["schedule"]["kernel"] == "ssim_tensor"
    assert (
        main(["plan", "--sensor", "IMX250MYR", "--products", "intensity,dolp,preview,ssim", "--device", "xavier"]) == 0
    )
    text = capsys.readouterr().out
    for words in (
        r"stokes_planes +S0, S1, S2\n +computed once for dolp, preview, ssim",
        r"mosaic -> intensity, dolp, preview, ssim_pair",
        r"memory +[\d.]+ us at 137 GB/s: no launch is shorter",
        r"launch ssim\n(.*\n)*.*schedule +ssim_registers: threads \d+",
    ):
        assert re.search(words, text), words


def test_plan_says_what_does_not_fit(capsys: Any, monkeypatch: Any) -> None:
    small = replace(DEVICES["xavier"], shared_per_block=500)
    monkeypatch.setitem(DEVICES, "xavier", small)
    assert main(["plan", "--device", "xavier"]) == 1
    assert re.search(r"needs \d+ bytes of shared memory, a block has 500", capsys.readouterr().err)


def test_tune_says_what_is_missing(capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    assert main(["tune", "--device", "xavier"]) == 1
    assert "tune needs a GPU: CuPy cannot be imported" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "raw", "size"),
    [
        ("--size 640x480", "u8", (640, 480)),
        ("--size 64x480 --bit-depth 12", "u16", (64, 480)),
        ("--raw 12p --bit-depth 12", "12p", (2448, 2048)),
    ],
)
def test_tune_measures_the_frame_that_is_named(words: str, raw: str, size: Any, capsys: Any, monkeypatch: Any) -> None:
    calls: List[Any] = []
    best = Measured(Schedule("tile", 32, 16), 1.5)
    monkeypatch.setattr("polar_pipeline.cli.tune.tune", lambda *call: calls.append(call) or {"a work": best})
    assert main(["tune", "--device", "orin", "--products", "dolp", *words.split()]) == 0
    ((options, *others),) = calls
    assert (options.products, options.bit_depth, others) == (("dolp",), 12 * ("12" in words), ["orin", raw, size])
    out = capsys.readouterr().out
    assert re.match(r"1\.50 us a frame with .*: a work\nwrote .*/orin\.json\n$", out)


def test_play_without_ros_says_so(pictures: Path, capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.setitem(sys.modules, "rclpy.duration", None)
    monkeypatch.delitem(sys.modules, "polar_pipeline.tools.play.play", raising=False)
    assert main(["play", str(pictures)]) == 1
    assert "needs ROS 2" in capsys.readouterr().err


@pytest.mark.ros
@pytest.mark.parametrize("topic", ["bad topic", ""])
def test_play_to_what_is_no_topic(topic: str, pictures: Path, capsys: Any) -> None:
    assert main(["play", str(pictures), "--to", topic]) == 1
    assert "is not a topic's name" in capsys.readouterr().err


@pytest.mark.ros
@pytest.mark.parametrize("kind", ["bag", "pictures"])
def test_play_publishes_into_ros(kind: str, start: Any, request: Any) -> None:
    """A player in its own process, a plain subscriber here."""
    from sensor_msgs.msg import Image

    peer, got = request.getfixturevalue("peer"), []

    def keep(cdr: bytes) -> None:  # rclpy looks at the signature
        got.append(messages.decode_image(cdr))

    peer.node.create_subscription(Image, "/cam/image_raw", keep, 50, raw=True)
    source = str(request.getfixturevalue(kind))
    arguments = ["play", source, "--to", "/cam/image_raw", "--rate", "50", "--loop", "--wait", "30"]
    process = start("-m", "polar_pipeline", *arguments)
    wait_for(lambda: len(got) >= 7, "frames of more than two rounds")
    process.assert_end(130, signal.SIGINT)
    first = next(k for k in range(3) if np.array_equal(messages.to_raw(got[0]).mosaic, FRAMES[k]))
    for k, image in enumerate(got):
        np.testing.assert_array_equal(messages.to_raw(image).mosaic, FRAMES[(first + k) % 3])
    stamps = [image.stamp_ns for image in got]
    if kind != "pictures":
        assert stamps == [(first + k) % 3 + 1 for k in range(len(got))]
    else:
        assert stamps == sorted(stamps)
        assert stamps[0] > 10**18  # the clock's


@pytest.mark.parametrize("command", ["process", "replay", "layout"])
def test_strict_makes_a_warning_an_error_and_leaves_no_output(command: str, tmp_path: Path, capsys: Any) -> None:
    """A color frame taken as mono looks wrong, the same frame as color does not."""
    light = synthetic("spheres", (512, 512), is_color=True) * np.float32([[0.5], [1], [0.7]])
    cv2.imwrite(str(tmp_path / "0.png"), expose(light, SENSORS["IMX250MYR"]))
    out = tmp_path / ("out.mcap" if command == "replay" else "out")
    outputs = [] if command == "layout" else ["-o", str(out), "--products", "dolp"]
    arguments = [command, str(tmp_path / "0.png"), "--strict", *outputs]
    assert main([*arguments, "--sensor", "IMX250MZR"]) == 1
    said = capsys.readouterr()
    assert "the frame shows color filters" in said.out + said.err
    assert not out.exists()
    assert main([*arguments, "--sensor", "IMX250MYR"]) == 0
