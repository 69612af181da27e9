"""Results as files, which OpenCV and NumPy read again, and as a notebook shows them."""

from __future__ import annotations

import base64
import json
import os
import pickle
import re
from pathlib import Path
from typing import Any, Dict

import cv2
import numpy as np
import pytest

from polar_pipeline import PRODUCTS, Pipeline, Result

RAW = np.random.default_rng(0).integers(0, 250, (48, 64)).astype(np.uint8)
RAW[:4, :4], RAW[8:12, 8:12] = 255, 0
#: All products, in every type that they offer.
KINDS: Dict[str, Dict[str, Any]] = {
    "mono float32": {},
    "color float32": {"sensor": "IMX250MYR"},
    "color uint16": {"sensor": "IMX250MYR", "dtype": "uint16"},
    "mono uint8": {"dtype": "uint8"},
}


def result_of(raw: np.ndarray = RAW, **options: Any) -> Result:
    with Pipeline(**{"products": tuple(PRODUCTS), "backend": "cpu", **options}) as pipeline:
        return pipeline(raw)


def read(path: Path) -> np.ndarray:
    """A picture with its channels in the order of the products."""
    image = cv2.imread(str(path), cv2.IMREAD_UNCHANGED)
    return image[..., ::-1] if image.ndim == 3 else image


@pytest.mark.parametrize("options", KINDS.values(), ids=KINDS)
def test_a_folder_holds_every_number(tmp_path: Path, options: Dict[str, Any]) -> None:
    result = result_of(**options)
    result.save(tmp_path / "new" / "out")
    names = {f"{name}.{'tiff' if array.dtype == np.float32 else 'png'}" for name, array in result.items() if array.ndim}
    assert {path.name for path in (tmp_path / "new" / "out").iterdir()} == {*names, "numbers.json"}
    for name in names:
        image = read(tmp_path / "new" / "out" / name)
        np.testing.assert_array_equal(image, result[name.partition(".")[0]])
        assert image.dtype == result[name.partition(".")[0]].dtype
    numbers = json.loads((tmp_path / "new" / "out" / "numbers.json").read_text())
    assert numbers == {
        "ssim": float(result["ssim"]),
        "invalid": {"saturated": result.invalid[0], "dark": result.invalid[1]},
    }
    assert sum(result.invalid) > 0


def test_a_batch_has_a_file_for_each_frame(tmp_path: Path) -> None:
    result = result_of(np.stack([RAW, RAW // 2, RAW // 4]), products="dolp,preview,ssim", ssim_mode="temporal")
    assert result.frames == 3
    result.save(str(tmp_path / "out"))
    files = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert files == [
        *(f"dolp_{k:03d}.tiff" for k in range(3)),
        "numbers.json",
        *(f"preview_{k:03d}.png" for k in range(3)),
    ]
    np.testing.assert_array_equal(read(tmp_path / "out" / "preview_002.png"), result["preview"][2])
    similarities = json.loads((tmp_path / "out" / "numbers.json").read_text())["ssim"]
    assert similarities == [None, *map(float, result["ssim"][1:])], "the first has no frame before it"


@pytest.mark.parametrize("raw", [RAW, np.stack([RAW, RAW])], ids=["frame", "batch"])
def test_an_archive_holds_every_number(tmp_path: Path, raw: np.ndarray) -> None:
    result = result_of(raw)
    result.save(tmp_path / "out.npz")
    with np.load(tmp_path / "out.npz") as archive:
        assert {*archive} == {*PRODUCTS, "invalid"}
        assert tuple(archive["invalid"]) == result.invalid
        for name, array in result.items():
            np.testing.assert_array_equal(archive[name], array)
            assert archive[name].dtype == array.dtype
    assert [path.name for path in tmp_path.iterdir()] == ["out.npz"]


@pytest.mark.parametrize("name", ["out", "out.npz"])
def test_nothing_is_replaced_unless_asked(tmp_path: Path, name: str) -> None:
    first, second = result_of(products="dolp"), result_of(products="aolp,ssim")
    first.save(tmp_path / name)
    before = contents(tmp_path)
    with pytest.raises(FileExistsError, match="exists already; force=True replaces it"):
        second.save(tmp_path / name)
    assert contents(tmp_path) == before
    second.save(tmp_path / name, force=True)
    assert contents(tmp_path) != before
    assert not any("dolp" in path for path in contents(tmp_path)), "nothing of the first is left"


def contents(folder: Path) -> Dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("data", "data holds other files than a result, such as 'thesis.tex'"),
        ("file", "file exists already, and is not a folder"),
        ("folder.npz", "exists already, and is not a file"),
    ],
)
def test_other_files_are_never_replaced(tmp_path: Path, name: str, words: str) -> None:
    for folder in ("data", "folder.npz"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "thesis.tex").write_text("years of work")
    (tmp_path / "file").write_text("years of work")
    before = contents(tmp_path)
    with pytest.raises(FileExistsError, match=words):
        result_of().save(tmp_path / name, force=True)
    assert contents(tmp_path) == before


@pytest.mark.parametrize("name", ["out.png", "OUT.TIF", "out.npy"])
def test_a_folder_is_not_named_as_a_picture(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match=r"as a folder, or as a file \.npz; got .*(out|OUT)\."):
        result_of().save(tmp_path / name)
    assert not contents(tmp_path)


@pytest.mark.parametrize("name", ["out", "out.npz"])
def test_an_error_leaves_nothing(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(json, "dumps", fail)
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space"):
        result_of(products="dolp").save(tmp_path / name)
    assert not [*tmp_path.iterdir()]


def test_a_notebook_shows_a_picture() -> None:
    result = result_of(products="intensity,dolp,aolp,ssim")
    html = result._repr_html_()
    (data,) = re.findall(r'src="data:image/png;base64,([^"]+)"', html)
    picture = cv2.imdecode(np.frombuffer(base64.b64decode(data), np.uint8), cv2.IMREAD_COLOR)
    assert min(picture.shape[:2]) > 200
    assert picture.std() > 20
    saturated, dark = result.invalid
    assert html.endswith(f"<p>ssim {float(result['ssim']):.4f}; {saturated} pixels saturated, {dark} dark</p>")
    batch = result_of(np.stack([RAW, RAW // 2]), products="intensity,dolp,aolp,ssim")._repr_html_()
    assert re.findall(r'src="data:image/png;base64,([^"]+)"', batch) == [data], "the first frame"
    assert f"<p>first of 2 frames; ssim {float(result['ssim']):.4f}; " in batch
    assert re.fullmatch(
        r"<p>ssim 0\.\d{4}; \d+ pixels saturated, \d+ dark</p>", result_of(products="ssim")._repr_html_()
    )


def test_results_can_be_sent_to_other_processes() -> None:
    result = result_of()
    other = pickle.loads(pickle.dumps(result))
    assert (other.timings, other.invalid, other.frames) == (result.timings, result.invalid, 0)
    for name, array in result.items():
        np.testing.assert_array_equal(other[name], array)
