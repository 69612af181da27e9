"""The results of frames: products by name, their files, and the picture that a notebook shows."""

from __future__ import annotations

import html
import json
import math
import re
from base64 import b64encode
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Optional, Tuple

import numpy as np

from polar_pipeline._util.files import PARTIAL, remove_leftovers, replacing, replacing_folder
from polar_pipeline._util.paths import AnyPath, as_path
from polar_pipeline._util.text import printable, quoted
from polar_pipeline.options.products import PRODUCTS

#: File of the numbers of a result that is saved as a folder.
NUMBERS_FILE = "numbers.json"
#: Names of the files in such a folder.
_FILE_NAME = re.compile(rf"(?:{'|'.join(PRODUCTS)})(?:_[0-9]+)?\.(?:png|tiff)|{re.escape(NUMBERS_FILE)}")
#: Endings of files that a result is not saved as: a folder of that name would be a mistake.
_OTHER_FILES = (".npy", ".png", ".jpg", ".jpeg", ".tif", ".tiff", ".mat", ".h5", ".zip")


class Result(Mapping[str, np.ndarray]):
    """The products of one frame, or of a batch of N frames: a mapping from product name to array.

    Arrays of a batch have an axis of N frames before the others. A notebook shows a result as a picture.

    Attributes:
        timings: Seconds per stage, in order: `prepare`, `polarization`, `denoise`, `geometry` and `ssim`, without those
            that the options do not ask for. The network of `demosaic: learned` is in `denoise`, on a GPU in `learned`.
            A GPU also has `upload` and `download`, which includes no download that ended during the upload. Of a batch
            the sums over its frames.
        invalid: Output pixels that are (saturated, dark): NaN in float polarization images; in integer ones 0, and the
            highest level in `dolp_sigma`, `aolp_sigma` and `significance`. Dark pixels are counted only with a product
            whose row needs `invalid`. Of a batch the sums over its frames.
        blocks: (rows, columns) float32, mean similarity of the map's blocks of `SSIM_BLOCK` x `SSIM_BLOCK` pixels,
            those at the right and at the bottom partial; NaN with nothing to compare with; None unless `ssim` or
            `ssim_map` is a product.
        frames: Number of frames of a batch; 0 for a single frame.
    """

    def __init__(
        self,
        products: Dict[str, np.ndarray],
        timings: Dict[str, float],
        invalid: Tuple[int, int],
        blocks: Optional[np.ndarray] = None,
        frames: int = 0,
    ) -> None:
        self._products = products
        self.timings = timings
        self.invalid = invalid
        self.blocks = blocks
        self.frames = frames

    def __getitem__(self, name: str) -> np.ndarray:
        try:
            return self._products[name]
        except KeyError:
            raise KeyError(f"{quoted(name)} was not asked for; this result has {', '.join(self)}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._products)

    def __len__(self) -> int:
        return len(self._products)

    def __repr__(self) -> str:
        shapes = ", ".join(f"{name} {array.dtype}{list(array.shape)}" for name, array in self.items())
        return f"{type(self).__name__}({shapes})"

    def host_arrays(self) -> Dict[str, np.ndarray]:
        """Return the products as arrays of NumPy; those on a GPU are copied once they are complete."""
        return self._products

    def save(self, path: AnyPath, force: bool = False) -> None:
        """Write the products as a folder, or as one file for NumPy. What is written is complete, or absent.

        A folder has one file for each image: PNG for 8 and 16 bit, TIFF for float32; `dolp.tiff`, of a batch
        `dolp_000.tiff`, `dolp_001.tiff` and so on. `numbers.json` has the products that are numbers, `ssim`, and
        `invalid`; null means NaN. Files hold S0, S1, S2 or red, green, blue, which `cv2.imread` returns in reverse
        order.

        Args:
            path: The folder, which is made, or a file that ends in `.npz`: `numpy.load(path)` then has the products by
                name, and `invalid`.
            force: Whether a file of that name is replaced, or a folder that holds nothing but such files.

        Raises:
            FileExistsError: It exists, and `force` is false; or the folder holds other files.
            ValueError: The name is that of another kind of file.
            OSError: The files cannot be written.
        """
        path = as_path(path)
        if path.suffix.lower() in _OTHER_FILES:
            raise ValueError(f"a result is saved as a folder, or as a file .npz; got {printable(str(path))}")
        is_archive = path.suffix.lower() == ".npz"
        _check_replaceable(path, force, is_archive)
        arrays = self.host_arrays()
        if is_archive:
            with replacing(path, force) as stream:
                members: Dict[str, Any] = {**arrays, "invalid": np.array(self.invalid)}
                np.savez(stream, **members)
            return
        remove_leftovers(path.parent, rf"\.{re.escape(path.name)}{PARTIAL}")
        with replacing_folder(path, force) as folder:
            self._write(folder, arrays)

    def _write(self, folder: Path, arrays: Dict[str, np.ndarray]) -> None:
        """Write the files of a folder."""
        from polar_pipeline.pictures.files import encode_picture  # here: a frame needs no OpenCV

        numbers: Dict[str, object] = {}
        for name, array in arrays.items():
            if PRODUCTS[name].is_number:
                values = [None if math.isnan(value) else value for value in array.reshape(-1).tolist()]
                numbers[name] = values if self.frames else values[0]
                continue
            suffix = ".tiff" if array.dtype == np.float32 else ".png"
            digits = max(3, len(str(self.frames - 1)))
            images = (
                [(f"{name}_{k:0{digits}d}", image) for k, image in enumerate(array)] if self.frames else [(name, array)]
            )
            for stem, image in images:
                (folder / f"{stem}{suffix}").write_bytes(encode_picture(np.ascontiguousarray(image), suffix))
        saturated, dark = self.invalid
        numbers["invalid"] = {"saturated": saturated, "dark": dark}
        (folder / NUMBERS_FILE).write_text(json.dumps(numbers, indent=2) + "\n", encoding="utf-8")

    def _repr_html_(self) -> str:
        """Return the overview of the images, and the numbers; of a batch those of its first frame."""
        from polar_pipeline.pictures.files import encode_picture  # here: a frame needs neither
        from polar_pipeline.pictures.overview import overview

        arrays = self.host_arrays()
        if self.frames:
            arrays = {name: array[0] for name, array in arrays.items()}
        images = {name: array for name, array in arrays.items() if array.ndim}
        saturated, dark = self.invalid
        words = [f"first of {self.frames} frames"] if self.frames else []
        words += [f"{name} {float(array):.4f}" for name, array in arrays.items() if not array.ndim]
        words += [f"{saturated} pixels saturated, {dark} dark" + (" in all" if self.frames else "")]
        lines: List[str] = []
        if images:
            data = b64encode(encode_picture(overview(images), ".png")).decode()
            lines.append(f'<img alt="{html.escape(", ".join(images))}" src="data:image/png;base64,{data}">')
        return "\n".join([*lines, f"<p>{html.escape('; '.join(words))}</p>"])


def _check_replaceable(path: Path, force: bool, is_archive: bool) -> None:
    """Refuse a path that exists, unless it may be replaced by a file or a folder of the same kind.

    Raises:
        FileExistsError: It may not.
    """
    if not path.exists():
        return
    if path.is_dir() == is_archive:
        raise FileExistsError(
            f"{printable(str(path))} exists already, and is not a {'file' if is_archive else 'folder'}"
        )
    if not force:
        raise FileExistsError(f"{printable(str(path))} exists already; force=True replaces it")
    others = [] if is_archive else [file.name for file in path.iterdir() if not _FILE_NAME.fullmatch(file.name)]
    if others:
        raise FileExistsError(f"{printable(str(path))} holds other files than a result, such as {quoted(min(others))}")
