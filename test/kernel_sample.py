"""What the CPU's kernels may be asked for, from every corner, in memory that ends where their business does.

Run as a program it writes every result into a file, for `test_sanitizers.py` to compare builds of the kernels:

    kernel_sample.py RESULTS.npz [--kernels FOLDER] [--part PART]
"""

from __future__ import annotations

import argparse
import ctypes
import itertools
import zlib
from pathlib import Path
from typing import Any, Dict, Iterator, Tuple

import numpy as np
from calibrations import some_calibration

from polar_pipeline import Pipeline, RawFrame
from polar_pipeline.backend import Buffers
from polar_pipeline.cpu import library
from polar_pipeline.products import NOISE_PRODUCTS, PRODUCTS
from polar_pipeline.sensor.mosaic import SENSORS

Results = Dict[str, np.ndarray]
#: Options, shape, type and full scale of a frame; numbers above full scale occur.
Case = Tuple[Dict[str, Any], Tuple[int, int], str, int]
#: The smallest, odd ones, rows of one piece (512 output pixels), of one more, and of several; of several tiles.
SHAPES = ((16, 16), (17, 19), (35, 38), (18, 1024), (16, 1027), (20, 2075), (131, 259))
FORMATS = (("uint8", 255), ("uint8", 200), ("uint16", 1023), ("uint16", 65535))
#: Resolution and demosaicking.
METHODS = (
    {"resolution": "half", "co_sited": False},
    *(
        {"resolution": resolution, "demosaic": method}
        for method in ("bilinear", "gradient", "adaptive")
        for resolution in ("half", "full")
    ),
)
WITHOUT_NOISE = tuple(name for name in PRODUCTS if name not in NOISE_PRODUCTS)

_malloc = ctypes.CDLL(None).malloc
_malloc.restype, _malloc.argtypes = ctypes.c_void_p, (ctypes.c_size_t,)


def memory(shape: Tuple[int, ...], dtype: str, step: int = 0, offset: int = 0) -> np.ndarray:
    """An array in a piece of memory of its own, which ends with the array's last byte; never freed.

    Args:
        shape: Of the array.
        dtype: Of its elements.
        step: Bytes from one row to the next, if not just a row's.
        offset: Bytes in front of it, behind an address that is a multiple of 16.
    """
    row = int(np.prod(shape[1:])) * np.dtype(dtype).itemsize
    step = step or row
    size = offset + step * (shape[0] - 1) + row if shape else row
    block = (ctypes.c_ubyte * size).from_address(_malloc(size))
    ctypes.memset(block, 0xA5, size)
    strides = np.empty(shape[1:], dtype).strides
    return np.ndarray(shape, dtype, block, offset, (step, *strides) if shape else ())


def noise(key: str, array: np.ndarray, end: float) -> np.ndarray:
    """Fill an array with numbers up to `end`, a block of them dark; those of a key are always the same."""
    values = np.random.default_rng(zlib.crc32(key.encode())).random(array.shape) * end
    values[:4, :6] = 0
    array[...] = values.astype(array.dtype)
    return array


def mono() -> Iterator[Case]:
    """Mosaics of each shape and type, by every method."""
    for shape, (kind, full_scale), method in itertools.product(SHAPES, FORMATS, METHODS):
        for dtype in ("float32", "uint8", "uint16"):
            yield {**method, "dtype": dtype, "debias": dtype == "uint8", "max_aolp_sigma": 5.0}, shape, kind, full_scale


def colors() -> Iterator[Case]:
    """Mosaics of colours."""
    for shape, (kind, full_scale), method in itertools.product(((16, 16), (17, 19), (131, 259)), FORMATS, METHODS):
        for dtype in ("float32", "uint8"):
            yield {"sensor": "IMX250MYR", **method, "dtype": dtype}, shape, kind, full_scale


def corrected() -> Iterator[Case]:
    """Frames that a calibration corrects, from every place of a superpixel on."""
    for sensor, method in itertools.product(("IMX250MZR", "IMX250MYR"), METHODS):
        for offset, dtype in (((0, 0), "float32"), ((1, 0), "uint8"), ((2, 3), "uint8")):
            options = {
                "sensor": sensor,
                **method,
                "calibration": some_calibration(SENSORS[sensor]),
                "roi_offset": offset,
            }
            for kind, full_scale in FORMATS:
                yield {**options, "dtype": dtype}, (40, 38), kind, full_scale


def transformed() -> Iterator[Case]:
    """Outputs of another geometry."""
    for sensor, resolution in itertools.product(("IMX250MZR", "IMX250MYR"), ("half", "full")):
        for geometry in (
            {"scale": 2},
            {"rotate": 90},
            {"scale": 4, "rotate": 180},
            {"roi": (1, 2, 5, 0), "rotate": 270},
        ):
            for shape in ((64, 64), (67, 1051)):
                options = {"sensor": sensor, "resolution": resolution, "demosaic": "bilinear", **geometry}
                yield {**options, "products": WITHOUT_NOISE}, shape, "uint8", 255


def similarities() -> Iterator[Case]:
    """Windows and strides of SSIM, and its modes."""
    for stride, window, dtype in itertools.product((1, 2, 3, 8), (3, 5, 11, 15), ("float32", "uint8", "uint16")):
        for shape in ((16, 16), (150, 431)):
            options = {"products": ("ssim_map", "ssim"), "ssim_stride": stride, "ssim_window": window, "dtype": dtype}
            yield options, shape, "uint8", 255
            yield {**options, "ssim_mode": "temporal"}, shape, "uint8", 255


PARTS = {function.__name__: function for function in (mono, colors, corrected, transformed, similarities)}


def layouts(kind: str) -> Iterator[np.ndarray]:
    """Mosaics that lie in memory in all ways."""
    size = np.dtype(kind).itemsize
    yield memory((20, 39), kind, step=64 * size)
    yield memory((20, 39), kind, step=41 * size)
    yield memory((20, 39), kind, offset=1)
    yield memory((20, 39), kind)[::-1]
    yield memory((20, 78), kind)[:, ::2]


def compute(key: str, raw: np.ndarray, full_scale: int, options: Dict[str, Any]) -> Results:
    """Every product of two frames, the second one with the first as its predecessor."""
    results: Results = {}
    with Pipeline(**{"products": tuple(PRODUCTS), **options}, backend="cpu", threads=3) as pipeline:
        for number in range(2 if options.get("ssim_mode") == "temporal" else 1):
            out = pipeline(RawFrame(noise(f"{key}{number}", raw, np.iinfo(raw.dtype).max + 0.9), full_scale))
            results.update({f"{key} {number} {name}": image for name, image in out.items()})
            results[f"{key} {number} invalid"] = np.array(out.invalid)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path)
    parser.add_argument("--kernels", type=Path, help="folder of the built library")
    parser.add_argument("--part", choices=PARTS, help="only this one")
    values = parser.parse_args()
    if values.kernels:
        library.FOLDER = values.kernels
    Buffers.get = lambda _, shape, dtype: memory(shape, dtype)  # type: ignore[method-assign]
    results: Results = {}
    for part in [values.part] if values.part else PARTS:
        for number, (options, shape, kind, full_scale) in enumerate(PARTS[part]()):
            offset = number % 2 * np.dtype(kind).itemsize
            results.update(compute(f"{part} {number}", memory(shape, kind, offset=offset), full_scale, options))
    if not values.part:
        for kind, method in itertools.product(("uint8", "uint16"), METHODS):
            for number, raw in enumerate(layouts(kind)):
                key = f"layout {kind} {number} {method}"
                results.update(compute(key, raw, 255, {**method, "products": ("stokes", "preview")}))
    np.savez(str(values.results), **results)


if __name__ == "__main__":
    main()
