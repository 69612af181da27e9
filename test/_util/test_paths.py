"""Paths as users write them, the order of names and hidden files, wherever files are listed or named."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, List

import cv2
import numpy as np
import pytest
from support import on_cpu

from polar_pipeline import Pipeline, cli
from polar_pipeline._util.paths import as_path, natural_order
from polar_pipeline._util.text import described, failure
from polar_pipeline.calibration import Calibration, PixelParameters, load_calibration, save_calibration
from polar_pipeline.geometry.lens import load_lens
from polar_pipeline.live.preset import read_nodes
from polar_pipeline.live.snapshot import output_folder
from polar_pipeline.options import make_options
from polar_pipeline.recordings.limits import SourceError
from polar_pipeline.recordings.source import is_recording, open_source
from polar_pipeline.sensor.mosaic import get_sensor
from polar_pipeline.tools.batch.recordings import list_recordings
from polar_pipeline.tools.calibrate.session import open_sessions

LENS = """{image_width: 64, image_height: 48, distortion_model: plumb_bob,
camera_matrix: {data: [50, 0, 32, 0, 50, 24, 0, 0, 1]}, distortion_coefficients: {data: [0, 0, 0, 0, 0]},
rectification_matrix: {data: [1, 0, 0, 0, 1, 0, 0, 0, 1]},
projection_matrix: {data: [50, 0, 32, 0, 0, 50, 24, 0, 0, 0, 1, 0]}}
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "a home"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    return folder


def spellings(path: Path, home: Path) -> List[Any]:
    """A file below the home as users write it."""
    place = path.relative_to(home)
    url = f"file://{str(path).replace(' ', '%20')}"
    return [
        str(path),
        path,
        f"~/{place}",
        Path("~") / place,
        url,
        url.replace("//", "//localhost", 1),
        Path(url),
        url.upper()[:4] + url[4:],
    ]


def test_paths_as_users_write_them(home: Path) -> None:
    for name in spellings(home / "x #1?.png", home):
        assert as_path(name) == home / "x #1?.png"
    assert as_path("a~b/file") == Path("a~b/file")
    assert as_path("file.png") == Path("file.png")
    for name in ("file://elsewhere/x.png", "~nobody_of_this_name/x.png"):
        with pytest.raises(ValueError, match=r"file:///data|no home is known"):
            as_path(name)


def test_public_functions_take_every_spelling(home: Path) -> None:
    ones = np.ones((48, 64))
    parameters = PixelParameters(0 * ones, ones, 0 * ones, 0 * ones)
    calibration = Calibration.from_parameters(
        parameters, get_sensor("IMX250MZR"), (0, 0), np.zeros((48, 64), bool), 8, {}
    )
    file, lens, nodes = home / "sensor.npz", home / "lens.yaml", home / "nodes.yaml"
    lens.write_text(LENS)
    nodes.write_text("/**: {ros__parameters: {sensor: IMX250MZR}}")
    raw = np.full((48, 64), 100, np.uint8)
    cv2.imwrite(str(home / "raw.png"), raw)
    for name in spellings(file, home):
        save_calibration(name, calibration, force=True)
        assert load_calibration(name).digest == calibration.digest
        with Pipeline(calibration=name, products="dolp", backend="cpu") as pipeline:
            assert pipeline.options.calibration is not None
    for name in spellings(lens, home):
        assert load_lens(name).width == 64
        assert make_options(rectify=name, products="dolp").geometry is not None
    for name in spellings(nodes, home):
        assert read_nodes(name) == {"/**": {"sensor": "IMX250MZR"}}
    for name in spellings(home / "raw.png", home):
        with open_source(name) as source:
            assert source.total == 1
        assert [row.location for row in list_recordings([str(name)])] == [str(home / "raw.png")]
    for name in spellings(home / "snapshots", home):
        assert output_folder(str(name), "snapshot.folder") == home / "snapshots"
    with pytest.raises(OSError, match=r"no home is known for ~nobody_here; name another one as snapshot\.folder"):
        output_folder("~nobody_here", "snapshot.folder")


def test_commands_take_every_spelling(home: Path, capsys: Any) -> None:
    raw, out = home / "raw.png", home / "out"
    cv2.imwrite(str(raw), np.random.default_rng(0).integers(20, 200, (48, 64), np.uint8))
    (home / "lens.yaml").write_text(LENS)
    (home / "node.yaml").write_text("/**: {ros__parameters: {raw.bit_depth: 8}}")
    given = zip(*(map(str, spellings(home / name, home)) for name in ("raw.png", "out", "lens.yaml", "node.yaml")))
    for image, folder, lens, params in given:
        words = ["process", image, "-o", folder, "--products", "dolp", "--rectify", lens, "--force"]
        assert cli.main(on_cpu(words)) == 0
        assert (out / "raw_dolp.png").exists()
        shutil.rmtree(str(out))
        words = ["replay", image, "-o", f"{folder}.MCAP", "--params", params, "--products", "dolp"]
        assert cli.main(on_cpu(words)) == 0
        (home / "out.MCAP").unlink()
        (home / "out.html").unlink()
    with pytest.raises(SystemExit):
        cli.main(["process", "file://elsewhere/raw.png"])
    assert "argument INPUT: a URL of a file on this machine is written file:///data/a.mcap" in capsys.readouterr().err
    for words in (
        ["process", str(raw), "--calibration", "~nobody_here/x.npz"],
        ["replay", str(raw), "-o", f"{out}.mcap", "--rectify", "file://elsewhere/lens.yaml"],
        ["batch", "file://elsewhere/x.mcap", "-o", str(out)],
    ):
        code, said = cli.main(words), capsys.readouterr().err
        assert (code in (1, 2), "Traceback" in said) == (True, False), said
        assert "no home is known" in said or "file:///data/a.mcap" in said


# ----------------------------------------------------------------------------------------------------- names of files


def test_natural_order() -> None:
    names = [
        "9",
        "10",
        "b9",
        "b10",
        "frame_0",
        "frame_1",
        "frame_02",
        "frame_2",
        "frame_10",
        "frame_10a2",
        "frame_10a10",
    ]
    for rows in (names, names[::-1], sorted(names)):
        assert sorted(rows, key=natural_order) == names
    assert sorted(["x²", "x3"], key=natural_order) == ["x3", "x²"]  # a superscript is not a digit of a number


def numbered(folder: Path, count: int = 12) -> Path:
    """A folder of pictures whose number is their level, with what systems leave in folders."""
    folder.mkdir(parents=True)
    for k in range(count):
        np.save(str(folder / f"frame_{k}.npy"), np.full((16, 16), 10 + k, np.uint8))
        (folder / f"._frame_{k}.npy").write_bytes(b"\0\5\26\7")
    for name in (".DS_Store", "Thumbs.db", ".hidden.png"):
        (folder / name).write_bytes(b"no picture")
    return folder


def test_pictures_have_their_natural_order(tmp_path: Path) -> None:
    folder = numbered(tmp_path / "run")
    with open_source(folder, rate=10) as source:
        rows = [(row.time_ns, int(row.image().data[0])) for row in source.records]
    assert rows == [(100_000_000 * (k + 1), 10 + k) for k in range(12)]
    assert [Path(row.location).name for row in list_recordings([str(tmp_path)])] == ["run"]
    assert [Path(row.location).name for row in list_recordings([f"{folder}/*.npy"])] == [
        f"frame_{k}.npy" for k in range(12)
    ]


def test_pictures_of_a_calibration_have_their_natural_order(tmp_path: Path) -> None:
    folder = numbered(tmp_path / "session" / "045.0").parent
    numbered(folder / ".thumbnails" / "090.0")
    with open_sessions([folder], make_options(products="intensity", bit_depth=8)) as session:
        assert session.angles == {"045.0": 45.0}
        assert [int(row.frame.mosaic[0, 0]) for row in session.frames] == list(range(10, 22))


@pytest.mark.parametrize("suffix", [".MCAP", ".Mcap", ".mcap.ZSTD"])
def test_suffixes_in_any_case(suffix: str, tmp_path: Path) -> None:
    import zstandard
    from mcap.writer import Writer

    path = tmp_path / f"in{suffix}"
    with path.open("wb") as stream:
        writer = Writer(stream)
        writer.start("ros2", "test")
        writer.finish()
    if suffix.endswith("ZSTD"):
        path.write_bytes(zstandard.compress(path.read_bytes()))
    assert is_recording(path)
    assert is_recording(tmp_path / "other.BAG")
    assert [row.location for row in list_recordings([str(tmp_path)])] == [str(path)]
    with pytest.raises(SourceError, match="it has: no messages"), open_source(path):
        pass


# ------------------------------------------------------------------------------------------------------------- errors


def test_errors_are_sentences(tmp_path: Path, capsys: Any) -> None:
    """Without names of Python's exceptions and numbers of the system's errors."""
    (tmp_path / "folder.npz").mkdir()
    (tmp_path / "text.bag").write_text("no bag")
    said = []
    for path in (tmp_path / "folder.npz", tmp_path / "gone.npz", tmp_path / ("x" * 300)):
        with pytest.raises(ValueError, match="cannot be read: ") as caught:
            load_calibration(path)
        said.append(str(caught.value))
    with pytest.raises(ValueError, match="cannot be read: ") as refused:
        load_lens(str(tmp_path))
    said.append(str(refused.value))
    raw = tmp_path / "raw.png"
    cv2.imwrite(str(raw), np.full((48, 64), 100, np.uint8))
    for words in (
        ["replay", tmp_path / "text.bag", "-o", tmp_path / "o.mcap"],
        ["process", raw, "-o", "/proc/nowhere"],
        ["replay", raw, "-o", "/proc/o.mcap"],
    ):
        assert cli.main(on_cpu(map(str, words))) == 1
        said.append(capsys.readouterr().err)
    for text in said:
        assert not any(word in text for word in ("Error:", "Errno", "Traceback")), text
    assert "folder.npz cannot be read: it is not a regular file" in said[0]
    assert "gone.npz cannot be read: No such file" in said[1]
    assert described(KeyError("x")) == "its values do not fit together"
    assert failure(PermissionError(13, "Permission denied", "/x")) == "Permission denied: /x"
