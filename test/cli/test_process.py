"""`polar-pipeline process`: any source in, pictures, arrays and videos out; and what is refused."""

from __future__ import annotations

import io
import itertools
import json
import re
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any, Dict, List, Sequence, Tuple

import cv2
import numpy as np
import pytest
import tifffile
from support import on_cpu

from polar_pipeline import Pipeline, cli, read_frames
from polar_pipeline.camera.facts import CAMERA_METADATA, CameraFacts
from polar_pipeline.camera.recorded import save_facts
from polar_pipeline.pictures.brightness import display_gain, for_display
from polar_pipeline.pictures.colors import picture
from polar_pipeline.pictures.overview import overview
from polar_pipeline.recordings import messages
from polar_pipeline.recordings.rawpicture import CAMERA_FILE
from polar_pipeline.recordings.sink import open_sink
from polar_pipeline.replay.compare import open_golden
from polar_pipeline.sensor.frames import FrameError

HEIGHT, WIDTH = 48, 64
ANGLES = (0, 45, 90, 135)


def light(angle: float, step: int = 0) -> np.ndarray:
    """The image behind a polarizer, of a ramp along x with a DoLP of 0.4 and an AoLP of 20 + 10 `step` degrees."""
    s0 = np.linspace(0.2, 0.8, WIDTH) * np.ones((HEIGHT, 1)) + 0.05 * np.sin(np.arange(HEIGHT) / 2)[:, np.newaxis]
    return s0 / 2 * (1 + 0.4 * np.cos(2 * np.radians(angle - 20 - 10 * step)))


def mosaic(step: int = 0) -> np.ndarray:
    """A frame of an IMX250MZR of 8 bit."""
    raw = np.zeros((HEIGHT, WIDTH), np.uint8)
    for (row, column), angle in {(0, 0): 90, (0, 1): 45, (1, 0): 135, (1, 1): 0}.items():
        raw[row::2, column::2] = np.rint(255 * light(angle, step))[row::2, column::2]
    return raw


@pytest.fixture(name="folder")
def fixture_folder(tmp_path: Path) -> Path:
    """Three mosaics."""
    (tmp_path / "in").mkdir()
    for step in range(3):
        cv2.imwrite(str(tmp_path / "in" / f"f_{step}.png"), mosaic(step))
    return tmp_path / "in"


def process(*words: object) -> int:
    return cli.main(on_cpu(["process", *map(str, words)]))


def scene(folder: Path, offset: Tuple[int, int] = (0, 0), **state: Any) -> Path:
    """A picture of a region of the sensor, `a.png`, with the state of the camera beside it."""
    folder.mkdir(parents=True)
    cv2.imwrite(str(folder / "a.png"), np.roll(mosaic(), (-offset[1], -offset[0]), (0, 1)))
    facts = {"sensor": "IMX250MZR", "pixel_format": "Mono8", "flip": (False, False), **state}
    save_facts(folder / CAMERA_FILE, CameraFacts("", "", "", size=(WIDTH, HEIGHT), roi_offset=offset, **facts))
    return folder / "a.png"


def is_of_light(dolp: np.ndarray) -> bool:
    """Whether DoLP is that of `light`, where it is bright and not at the border."""
    return bool(np.abs(dolp[2:-2, 16:-2] - 0.4).max() < 0.03)


def names(folder: Path) -> List[str]:
    return sorted(path.name for path in folder.iterdir())


def imread(path: Path) -> np.ndarray:
    image = cv2.imread(str(path), cv2.IMREAD_UNCHANGED)
    return image if image.ndim == 2 else image[..., ::-1]


def test_pictures_for_people_by_default(folder: Path, tmp_path: Path) -> None:
    """Four pictures and an overview of each frame; the brightness of all is that of the first frame."""
    out = tmp_path / "out"
    assert process(folder, "-o", out) == 0
    pictures = ("intensity", "dolp_color", "aolp_color", "preview")
    legends = [f"{name}_legend.png" for name in pictures[1:]]
    expected = [f"f_{step}_{name}.png" for step in range(3) for name in (*pictures, "overview")]
    assert names(out) == sorted([*expected, *legends])
    types = {"intensity": "uint8"}
    with Pipeline(products=pictures, color_style="faded", dtype=types, backend="cpu") as pipeline:
        results = [pipeline(mosaic(step)) for step in range(3)]
    gain = display_gain(results[0]["intensity"])
    assert gain > 1.5
    for step, result in enumerate(results):
        np.testing.assert_array_equal(
            imread(out / f"f_{step}_intensity.png"), for_display(result["intensity"], gain)[..., 0]
        )
        for name in pictures[1:3]:
            np.testing.assert_array_equal(imread(out / f"f_{step}_{name}.png"), result[name])
        shown = overview(result, f"f_{step}", gain=gain, balance=(1.0,), color_style="faded")
        np.testing.assert_array_equal(imread(out / f"f_{step}_overview.png"), shown)


def test_exact_numbers(folder: Path, tmp_path: Path) -> None:
    """As the library computes them: TIFF, NPY, archives, and levels of 8 bit where the type is named."""
    with Pipeline(products="intensity, dolp, ssim", backend="cpu") as pipeline:
        want = pipeline(mosaic(1))
    words = [folder / "f_1.png", "--products", "intensity,dolp,ssim"]
    assert process(*words, "-o", tmp_path / "tiff", "--format", "tiff") == 0
    assert names(tmp_path / "tiff") == ["f_1_dolp.tiff", "f_1_intensity.tiff"]
    np.testing.assert_array_equal(imread(tmp_path / "tiff" / "f_1_dolp.tiff"), want["dolp"])
    np.testing.assert_array_equal(imread(tmp_path / "tiff" / "f_1_intensity.tiff"), want["intensity"])
    assert process(*words, "-o", tmp_path / "npz", "--format", "npz") == 0
    with np.load(tmp_path / "npz" / "f_1.npz") as archive:
        assert set(archive.files) == {"intensity", "dolp", "ssim"}
        for name in archive.files:
            assert archive[name].dtype == want[name].dtype
            np.testing.assert_array_equal(archive[name], want[name])
    assert process(folder / "f_1.png", "--products", "dolp", "--dtype", "uint16", "-o", tmp_path / "levels") == 0
    with Pipeline(products="dolp", dtype="uint16", backend="cpu") as pipeline:
        np.testing.assert_array_equal(imread(tmp_path / "levels" / "f_1_dolp.png"), pipeline(mosaic(1))["dolp"])
    assert process(folder / "f_1.png", "--products", "dolp", "-o", tmp_path / "png") == 0
    np.testing.assert_array_equal(imread(tmp_path / "png" / "f_1_dolp.png"), picture("dolp", want["dolp"]))


@pytest.mark.parametrize("kind", ["npy", "npz", "tiff"])
def test_arrays_have_the_bits_of_their_frames(kind: str, tmp_path: Path) -> None:
    """Light of 16 bit, which is not rounded to 8."""
    cv2.imwrite(str(tmp_path / "a.png"), np.full((HEIGHT, WIDTH), 20001, np.uint16))
    words = [tmp_path / "a.png", "--products", "intensity", "--format", kind]
    assert process(*words, "-o", tmp_path / "out") == 0
    assert process(*words, "-o", tmp_path / "levels", "--dtype", "uint8") == 0
    if kind == "tiff":
        light, levels = imread(tmp_path / "out" / "a_intensity.tiff"), imread(tmp_path / "levels" / "a_intensity.png")
    else:
        name = "a.npz" if kind == "npz" else "a_intensity.npy"
        light, levels = (np.load(tmp_path / folder / name) for folder in ("out", "levels"))
        light, levels = (row["intensity"] if kind == "npz" else row for row in (light, levels))
    np.testing.assert_allclose(light, 20001 / 65535, atol=1e-6)
    assert (levels.dtype, light.dtype) == (np.uint8, np.float32)
    np.testing.assert_array_equal(levels, 78)


@pytest.mark.parametrize("gain", ["auto", "1", "2.5"])
def test_gain(gain: str, folder: Path, tmp_path: Path) -> None:
    assert process(folder / "f_0.png", "--products", "intensity", "--gain", gain, "-o", tmp_path / "out") == 0
    with Pipeline(products="intensity", dtype="uint8", backend="cpu") as pipeline:
        levels = pipeline(mosaic())["intensity"]
    factor = display_gain(levels) if gain == "auto" else float(gain)
    np.testing.assert_array_equal(
        imread(tmp_path / "out" / "f_0_intensity.png"), np.rint(np.minimum(np.float32(factor) * levels, 255))
    )


def test_four_angle_images_and_other_files_at_once(folder: Path, tmp_path: Path) -> None:
    """Names of frames that several inputs have get a number."""
    (tmp_path / "angles").mkdir()
    for angle in ANGLES:
        cv2.imwrite(str(tmp_path / "angles" / f"f_0_{angle:03d}.png"), np.rint(255 * light(angle)).astype(np.uint8))
    np.save(tmp_path / "stack.npy", np.stack([mosaic(step) for step in range(3)]))
    inputs = [tmp_path / "angles", folder / "f_0.png", tmp_path / "stack.npy"]
    assert process(*inputs, "-o", tmp_path / "out", "--format", "npy", "--products", "stokes") == 0
    expected = ["f_0", "f_0_2", "stack_0000", "stack_0001", "stack_0002"]
    assert names(tmp_path / "out") == sorted(f"{name}_stokes.npy" for name in expected)
    stokes = np.load(tmp_path / "out" / "f_0_stokes.npy")
    i0, i45, i90, i135 = (light(angle) for angle in ANGLES)
    exact = np.stack([(i0 + i45 + i90 + i135) / 2, i0 - i90, i45 - i135], -1)
    np.testing.assert_allclose(stokes, exact, atol=2.5 / 255)  # two roundings to 8 bit, and float32
    np.testing.assert_array_equal(
        np.load(tmp_path / "out" / "f_0_2_stokes.npy"), np.load(tmp_path / "out" / "stack_0000_stokes.npy")
    )


def test_no_name_of_a_frame_is_given_twice(tmp_path: Path) -> None:
    """A number behind a name can be the name of another frame."""
    (tmp_path / "in").mkdir()
    for k, name in enumerate(("1.png", "1.tif", "1_2.png")):
        cv2.imwrite(str(tmp_path / "in" / name), mosaic(k))
    assert process(tmp_path / "in", "-o", tmp_path / "out", "--format", "npy", "--products", "stokes") == 0
    stokes = [np.load(path) for path in sorted((tmp_path / "out").glob("*.npy"))]
    assert len(stokes) == 3
    assert all((a != b).any() for a, b in itertools.combinations(stokes, 2))


def test_a_picture_from_the_standard_input(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The state of a camera in the current folder is not of it."""
    data = io.TextIOWrapper(io.BytesIO((folder / "f_2.png").read_bytes()))
    monkeypatch.setattr(sys, "stdin", data)
    scene(tmp_path / "captured", (1, 0))
    monkeypatch.chdir(tmp_path / "captured")
    assert process("-", "-o", tmp_path / "out", "--products", "dolp", "--format", "npy") == 0
    assert names(tmp_path / "out") == ["stdin_dolp.npy"]
    assert is_of_light(np.load(tmp_path / "out" / "stdin_dolp.npy"))


def test_frames_without_a_header(tmp_path: Path) -> None:
    (tmp_path / "dump.raw").write_bytes(b"".join(mosaic(step).tobytes() for step in range(2)))
    words = ["--raw", f"{WIDTH}x{HEIGHT}:Mono8", "--products", "intensity"]
    assert process(tmp_path / "dump.raw", "-o", tmp_path / "out", *words) == 0
    assert names(tmp_path / "out") == ["dump_0000_intensity.png", "dump_0001_intensity.png"]


def test_recordings_of_products_are_exported(folder: Path, tmp_path: Path, capsys: Any) -> None:
    pytest.importorskip("mcap")
    recording, out = tmp_path / "products.mcap", tmp_path / "out"
    products = ["--products", "intensity,dolp,aolp"]
    assert cli.main(on_cpu(["replay", str(folder), "-o", str(recording), "--report", "-", *products])) == 0
    assert process(recording, "-o", out, "--format", "npy") == 2  # `on_cpu` names a backend
    assert "--backend is for raw frames" in capsys.readouterr().err
    assert cli.main(["process", str(recording), "-o", str(out), "--format", "npy"]) == 0
    kinds = ("aolp", "dolp", "intensity")
    arrays = [f"products_{k:04d}_{name}.npy" for k in range(3) for name in kinds]
    assert names(out) == sorted([*arrays, *(f"products_{k:04d}_overview.png" for k in range(3))])
    with Pipeline(products="dolp", backend="cpu") as pipeline:
        np.testing.assert_array_equal(np.load(out / "products_0002_dolp.npy"), pipeline(mosaic(2))["dolp"])


def test_a_frame_that_cannot_be_used_is_counted(folder: Path, tmp_path: Path, capsys: Any) -> None:
    (folder / "f_1.png").write_bytes(b"nonsense")
    assert process(folder, "-o", tmp_path / "out", "--products", "intensity") == 0
    said = capsys.readouterr()
    assert "2 frames on cpu" in said.out
    assert "not usable: 1 x file; the first: " in said.err
    assert names(tmp_path / "out") == ["f_0_intensity.png", "f_2_intensity.png"]
    for path in folder.iterdir():
        path.write_bytes(b"nonsense")
    assert process(folder, "-o", tmp_path / "none", "--products", "intensity") == 1
    assert not (tmp_path / "none").exists()


def test_each_warning_is_said_once_and_counted(tmp_path: Path, capsys: Any) -> None:
    """Gray pictures, whose neighbors are alike."""
    (tmp_path / "in").mkdir()
    rng = np.random.default_rng(0)
    for k in range(3):
        noise = cv2.resize(rng.integers(40, 200, (64, 64), np.uint8), (512, 512), interpolation=cv2.INTER_CUBIC)
        cv2.imwrite(str(tmp_path / "in" / f"{k}.png"), noise)
    assert process(tmp_path / "in", "-o", tmp_path / "out", "--products", "intensity") == 0
    said = capsys.readouterr()
    assert said.err.count("neighbors are alike") == 1
    assert "mosaic: 0: neighbors" in said.err
    assert "3 frames with the warning mosaic" in said.out
    assert process(tmp_path / "in", "-o", tmp_path / "strict", "--products", "intensity", "--strict") == 1
    assert not (tmp_path / "strict").exists()


@pytest.mark.parametrize(
    ("inputs", "out"),
    [(["in"], "in"), (["in"], "in/out"), (["in/*.png"], "in"), (["in/f_0.png", "in/f_{0,1,2,3}.png"], "in")],
)
def test_results_do_not_lie_among_inputs(
    inputs: Sequence[str], out: str, folder: Path, tmp_path: Path, capsys: Any
) -> None:
    """The next run would take them for frames."""
    cv2.imwrite(str(folder / "f_3.png"), mosaic())
    assert process(*(tmp_path / name for name in inputs), "-o", tmp_path / out) == 2
    assert "lies in an input" in capsys.readouterr().err
    assert len(names(folder)) == 4


def test_files_are_replaced_only_by_force(folder: Path, tmp_path: Path, capsys: Any) -> None:
    words = [folder, "-o", tmp_path / "out", "--products", "intensity"]
    assert process(*words) == 0
    (tmp_path / "out" / "f_0_intensity.png").unlink()
    assert process(*words) == 1
    assert "f_1_intensity.png exists already; --force replaces it" in capsys.readouterr().err
    assert process(*words, "--force") == 0


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["nothing*.png"], 2, "no picture, array or video matches 'nothing"),
        (["missing.png"], 1, "missing.png does not exist"),
        (["in", "--video", "out.gif"], 2, "--video writes .webm or .mp4"),
        (["in", "--angle-order", "0,45,90"], 2, "must hold 0, 45, 90 and 135 once each"),
        (["in", "--gain", "0"], 2, "gain"),
        (["in", "--gain", "2", "--format", "npz", "--products", "intensity"], 2, "--format npz writes numbers as they"),
        (["in", "--gain", "2", "--dtype", "uint16", "--products", "intensity"], 2, "--dtype uint16 writes numbers as"),
    ],
)
def test_what_is_refused(
    words: Sequence[str],
    code: int,
    message: str,
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Any,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert folder.exists()
    try:
        status = process(*words, "-o", tmp_path / "out")
    except SystemExit as err:  # of the parser
        status = int(err.code or 0)
    assert status == code
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("products", [[], ["--products", "aolp_color"]])
def test_video(products: List[str], folder: Path, tmp_path: Path) -> None:
    """Of the overview, or of the only product; colors within the rounding of a lossy codec."""
    av: Any = pytest.importorskip("av")
    out = tmp_path / "out"
    assert process(folder, "-o", out, "--video", tmp_path / "v.webm", *products) == 0
    with av.open(str(tmp_path / "v.webm")) as video:
        frames = [frame.to_ndarray(format="rgb24") for frame in video.decode(video=0)]
    assert len(frames) == 3
    name = "aolp_color" if products else "overview"
    shown = imread(out / f"f_0_{name}.png")
    difference = frames[0][: shown.shape[0], : shown.shape[1]].astype(int) - shown
    assert np.abs(difference).mean() < 6


def test_frames_of_another_size_than_the_video(folder: Path, tmp_path: Path, capsys: Any) -> None:
    pytest.importorskip("av")
    cv2.imwrite(str(folder / "f_1.png"), np.full((70, 90), 100, np.uint8))
    words = [folder, "--products", "dolp"]
    assert process(*words, "-o", tmp_path / "out", "--video", tmp_path / "v.webm") == 2
    said = capsys.readouterr().err
    assert "a picture of f_1 has 45x35 pixels, and the frames before it 32x24; a video is of frames of one" in said
    assert not (tmp_path / "v.webm").exists()
    assert names(tmp_path / "out") == ["f_0_dolp.png"]
    assert process(*words, "-o", tmp_path / "out", "--force") == 0


def test_legends_of_other_colors_are_not_replaced(folder: Path, tmp_path: Path, capsys: Any) -> None:
    """They are of the pictures that are there already."""
    out = tmp_path / "out"
    words = ["-o", out, "--products", "aolp_color", "--color-style"]
    assert process(folder / "f_0.png", *words, "dark") == 0
    assert process(folder / "f_1.png", *words, "dark") == 0
    before = (out / "aolp_color_legend.png").read_bytes()
    assert process(folder / "f_2.png", *words, "light") == 1
    assert "aolp_color_legend.png exists already; --force replaces it" in capsys.readouterr().err
    assert names(out) == ["aolp_color_legend.png", "f_0_aolp_color.png", "f_1_aolp_color.png"]
    assert (out / "aolp_color_legend.png").read_bytes() == before
    assert process(folder / "f_2.png", *words, "light", "--force") == 0
    assert (out / "aolp_color_legend.png").read_bytes() != before
    cv2.imwrite(str(folder / "aolp_color_legend.png"), mosaic())
    words[1] = folder
    assert process(folder / "aolp_color_legend.png", *words, "dark", "--force") == 2
    assert "aolp_color_legend.png would replace an input" in capsys.readouterr().err


def test_the_library_reads_the_same(folder: Path, tmp_path: Path) -> None:
    """`read_frames` in a loop, as the guide shows it."""
    assert process(folder, "-o", tmp_path / "out", "--products", "stokes", "--format", "npy") == 0
    rows: List[Tuple[str, np.ndarray]] = []
    with Pipeline(products="stokes", backend="cpu") as pipeline:
        for frame in read_frames(folder):
            assert frame.stamp_ns is None
            rows.append((frame.name, pipeline(frame)["stokes"].copy()))
    assert [name for name, _ in rows] == ["f_0", "f_1", "f_2"]
    for name, stokes in rows:
        np.testing.assert_array_equal(np.load(tmp_path / "out" / f"{name}_stokes.npy"), stokes)


def test_the_library_warns_of_what_is_not_a_mosaic(tmp_path: Path) -> None:
    """Of the first picture, whose neighbors are alike; `array` alone says nothing."""
    rng = np.random.default_rng(0)
    (tmp_path / "in").mkdir()
    for k in range(2):
        noise = cv2.resize(rng.integers(40, 200, (64, 64), np.uint8), (512, 512), interpolation=cv2.INTER_CUBIC)
        cv2.imwrite(str(tmp_path / "in" / f"{k}.png"), noise)
    frames = list(read_frames(tmp_path / "in"))
    assert {frame.array.shape for frame in frames} == {(512, 512)}
    with Pipeline(products="intensity", backend="cpu") as pipeline:
        with pytest.warns(UserWarning, match="^0: neighbors are alike"):
            pipeline(frames[0])
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            pipeline(frames[1])


def test_libraries_print_nothing_about_files_that_are_read_well(tmp_path: Path) -> None:
    """TIFF files of ImageJ have tags that OpenCV does not know, and of which it would print a line each."""
    images = [np.rint(255 * light(angle)).astype(np.uint8) for angle in ANGLES]
    tifffile.imwrite(tmp_path / "in.tif", np.stack(images), imagej=True, metadata={"Labels": list(map(str, ANGLES))})
    arguments = ["process", "in.tif", "-o", "out", "--products", "intensity", "--backend", "cpu"]
    ended = subprocess.run(
        [sys.executable, "-m", "polar_pipeline", *arguments],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        check=True,
        text=True,
    )
    assert ended.stderr == ""


# ------------------------------------------------------------------------------------------ recorded state of a camera


@pytest.mark.parametrize("command", ["process", "replay"])
@pytest.mark.parametrize("pattern", ["set_{scene}/a.png", "set_*/a.png"])
def test_each_picture_of_a_pattern_has_the_camera_beside_it(
    command: str, pattern: str, tmp_path: Path, capsys: Any
) -> None:
    """Frames of several folders are computed by the state in these, or refused where the states differ."""
    scene(tmp_path / "set_a", (1, 0))
    source, out = tmp_path / pattern, tmp_path / ("out" if command == "process" else "out.mcap")
    words = on_cpu([command, str(source), "-o", str(out), "--products", "dolp"])
    words += ["--format", "npy"] if command == "process" else ["--dtype", "float32"]
    assert cli.main(words) == 0
    if command == "process":
        assert is_of_light(np.load(out / "a_dolp.npy"))
    else:
        with open_golden(out) as golden:
            (frame,) = golden.frames()
            assert is_of_light(golden.load("dolp", *frame))
    scene(tmp_path / "set_b", (0, 0))
    capsys.readouterr()
    assert cli.main([*words, "--force"]) == 2
    said = capsys.readouterr().err
    assert all(str(tmp_path / name / CAMERA_FILE) in said for name in ("set_a", "set_b"))
    assert "different settings of the camera: process their frames one by one" in said
    (tmp_path / "set_b" / CAMERA_FILE).unlink()
    assert cli.main([*words, "--force"]) == 2
    assert f"{tmp_path / 'set_a' / CAMERA_FILE} and {tmp_path / 'set_b'} are of" in capsys.readouterr().err
    both = [str(tmp_path / name / "a.png") for name in ("set_a", "set_b")]
    assert command != "process" or process(*both, "-o", tmp_path / "both") == 2


@pytest.mark.parametrize("state", [{"gamma": 0.5}, {"lut": True}])
@pytest.mark.parametrize("kind", ["picture", "recording"])
def test_numbers_that_are_not_proportional_to_light(kind: str, state: Any, tmp_path: Path, capsys: Any) -> None:
    source = scene(tmp_path / "in", **state)
    if kind == "recording":
        pytest.importorskip("mcap")
        (frame,) = read_frames(source)
        with open_sink(tmp_path / "in.mcap", {CAMERA_METADATA: json.dumps(dict(frame.camera))}) as sink:
            sink.write("/images", messages.IMAGE, 1, messages.encode_image(1, "", "mono8", frame.array))
        source = tmp_path / "in.mcap"
    assert process(source, "-o", tmp_path / "out", "--products", "dolp") == 0
    said = capsys.readouterr().err
    assert said.count("so DoLP is wrong") == 1
    assert ("gamma 0.5" in said, "lookup table" in said) == ("gamma" in state, "lut" in state)
    assert process(source, "-o", tmp_path / "strict", "--strict", "--products", "dolp") == 1
    (frame,) = read_frames(source)
    with Pipeline(backend="cpu") as pipeline, pytest.warns(UserWarning, match="so DoLP is wrong"):
        pipeline(frame)


@pytest.mark.parametrize("kind", ["picture", "recording"])
@pytest.mark.parametrize(
    ("offset", "state", "options"),
    [
        ((1, 0), {}, {"roi_offset": (1, 0)}),
        ((1, 0), {}, {"roi_offset": (3, 2)}),
        ((0, 0), {"flip": (True, False)}, {"flip": (True, False)}),
        ((0, 0), {"sensor": "IMX250MYR"}, {"sensor": "IMX250MYR"}),
        ((2, 4), {}, {}),
        ((0, 0), {"sensor": "IMX264MZR"}, {}),
    ],
)
def test_the_library_refuses_options_that_contradict_the_camera(
    kind: str, offset: Tuple[int, int], state: Dict[str, Any], options: Dict[str, Any], tmp_path: Path
) -> None:
    """Region, mirrored readout and sensor; a region that begins with the same polarizer fits."""
    (frame,) = read_frames(scene(tmp_path / "in", offset, **state))
    if kind == "recording":
        pytest.importorskip("mcap")
        with open_sink(tmp_path / "in.mcap", {CAMERA_METADATA: json.dumps(dict(frame.camera))}) as sink:
            sink.write("/images", messages.IMAGE, 1, messages.encode_image(1, "", "mono8", frame.array))
        (frame,) = read_frames(tmp_path / "in.mcap")
    np.testing.assert_array_equal(frame.array, np.roll(mosaic(), (-offset[1], -offset[0]), (0, 1)))
    with Pipeline(products="dolp", backend="cpu", **options) as pipeline:
        dolp = pipeline(frame)["dolp"]
    assert state or is_of_light(dolp)
    if options:
        with Pipeline(products="dolp", backend="cpu") as pipeline, pytest.raises(FrameError) as refusal:
            pipeline(frame)
        name = next(iter(options))
        assert refusal.value.cause == "camera"
        assert re.search(rf"was recorded with .*: Pipeline\({name}=", str(refusal.value))


def test_the_library_takes_the_number_of_bits_from_the_camera(tmp_path: Path) -> None:
    path = scene(tmp_path / "in", pixel_format="Mono12")
    cv2.imwrite(str(path), mosaic().astype(np.uint16) * 4)  # whose numbers fit in 10 bits
    (frame,) = read_frames(path)
    with Pipeline(products="stokes", backend="cpu") as pipeline:
        stokes = pipeline(frame)["stokes"]
    with Pipeline(products="stokes", bit_depth=12, backend="cpu") as pipeline:
        np.testing.assert_array_equal(stokes, pipeline(frame)["stokes"])
    np.testing.assert_allclose(stokes[..., 0].max(), 0.8 * 4 * 255 / 4095, rtol=0.1)
    with Pipeline(bit_depth=10, backend="cpu") as pipeline, pytest.raises(FrameError, match="recorded with 12"):
        pipeline(frame)


def record_with_lens(path: Path, encoding: str, numbers: np.ndarray, focal: float = 100, **changes: Any) -> None:
    """A recording of a frame with its lens calibration."""
    k = np.float64([focal, 0, WIDTH / 2, 0, focal, HEIGHT / 2, 0, 0, 1])
    p = np.insert(k, (3, 6, 9), 0)
    info = messages.CameraInfo(1, "", HEIGHT, WIDTH, "plumb_bob", np.zeros(5), k, np.eye(3).reshape(-1), p)
    image = messages.ImageMessage(1, "", HEIGHT, WIDTH, encoding, False, numbers.shape[1], numbers.reshape(-1))
    with open_sink(path, {}) as sink:
        sink.write("/images/image", messages.IMAGE, 1, messages.encode_message(image))
        cdr = bytes(messages.encode_camera_info(replace(info, **changes), 1, ""))
        sink.write("/images/camera_info", messages.CAMERA_INFO, 1, cdr)


def test_the_lens_of_a_recording_is_not_that_of_another_one(tmp_path: Path, capsys: Any) -> None:
    pytest.importorskip("mcap")
    inputs = [tmp_path / f"{name}.mcap" for name in "abc"]
    for path, focal in zip(inputs, (100, 100, 120)):
        record_with_lens(path, "mono8", mosaic(), focal)
    words = ["--rectify", "camera_info", "--products", "dolp", "-o", tmp_path / "out"]
    assert process(*inputs[:2], *words) == 0
    assert process(*inputs, *words, "--force") == 2
    assert "different lens calibrations: process them one by one" in capsys.readouterr().err


@pytest.mark.parametrize("encoding", ["mono8", "PolarizedAngles_0d_45d_90d_135d_BayerRG8"])
def test_numbers_need_no_options(encoding: str, tmp_path: Path) -> None:
    """`frame.array` depends neither on the region that `camera_info` states nor on the colors of the sensor."""
    pytest.importorskip("mcap")
    shape = (4, HEIGHT, WIDTH) if "Angles" in encoding else (HEIGHT, WIDTH)
    numbers = np.random.default_rng(0).integers(0, 255, shape, np.uint8)
    sent = np.moveaxis(numbers, 0, -1).reshape(HEIGHT, -1) if "Angles" in encoding else numbers
    record_with_lens(tmp_path / "in.mcap", encoding, sent, region=(1, 0, HEIGHT, WIDTH))
    (frame,) = read_frames(tmp_path / "in.mcap")
    assert frame.camera_info is not None
    np.testing.assert_array_equal(frame.array, numbers)
