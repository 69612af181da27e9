"""Target: what is computed, against the float64 reference."""

from __future__ import annotations

import json
import random
from typing import Any, Dict, Tuple

import cv2
import numpy as np

from fuzz.engine import Case, Target, WrongError
from fuzz.messages import other_rows
from polar_pipeline import Pipeline, RawFrame
from polar_pipeline.products import PRODUCTS
from polar_pipeline.sensor.frames import RawFormat, frame_from_buffer, pack

_TILES = ("IMX250MZR", "IMX250MYR", "0 45 / 135 90", "135 0 / 90 45")
#: Width of pixels as packed -> packing.
_FORMATS = ("u8", "u16", "p", "packed")
#: How a mosaic may lie in memory.
_LAYOUTS = ("plain", "padded", "columns", "upside down", "odd", "fortran", "mirrored")


def _options(rng: random.Random) -> Dict[str, Any]:
    """Valid options, most of them as they are by default."""
    every: Dict[str, Any] = {
        "sensor": rng.choice(_TILES),
        "resolution": rng.choice(("half", "full")),
        "demosaic": rng.choice(("auto", "bilinear", "gradient", "adaptive")),
        "dtype": rng.choice(("float32", "uint8", "uint16")),
        "co_sited": rng.random() < 0.6,
        "ssim_mode": rng.choice(("consistency", "consistency", "temporal")),
        "ssim_stride": rng.choice((1, 1, 2, 3, 5, 8)),
        "ssim_window": rng.choice((3, 5, 7, 11, 15)),
        "ssim_sigma": rng.choice((0.5, 1.5, 5.0, round(rng.uniform(0.5, 5), 3))),
        # no fraction that S0 can be: where they are equal, rounding would decide
        "min_intensity": rng.choice((0.0, 0.01, 0.1, 1.0, 1.99, round(rng.uniform(0, 1.99), 4))) + 3.1415926e-5,
        "roi_offset": [rng.choice((0, 1, 2, 3, 65535)), rng.choice((0, 1, 2, 7))],
        "flip": [rng.random() < 0.5, rng.random() < 0.5],
        "threads": rng.choice((1, 2, 3)),
    }
    return {name: value for name, value in every.items() if rng.random() < 0.6 or name == "min_intensity"}


class Values(Target):
    """Every product of random frames and options, by the CPU backend."""

    name = "values"
    patience = 60.0

    def make(self, rng: random.Random) -> Case:
        packing = rng.choice(_FORMATS)
        case = {
            "seed": rng.getrandbits(32),
            "shape": [rng.choice((16, 17, 18, 31, 40, 67)), rng.choice((16, 17, 19, 32, 45, 130, 515))],
            "packing": packing,
            "bits": {"u8": 8, "u16": rng.randint(8, 16), "p": rng.choice((10, 12)), "packed": rng.choice((10, 12))}[
                packing
            ],
            "alignment": rng.choice(("lsb", "msb")),
            "scene": rng.choice(("smooth", "smooth", "noise", "extremes", "flat", "dark")),
            "above": rng.random() < 0.2,
            "big_endian": rng.random() < 0.3,
            "padding": rng.choice((0, 0, 1, 2, 7)),
            "layout": rng.choice(_LAYOUTS),
            "full_scale": rng.choice((0, 0, 0, 1, 7, 100)),
            "options": _options(rng),
        }
        return Case("json", json.dumps(case, indent=1).encode())

    def run(self, case: Case) -> str:
        from cpu_comparison import compare

        given = json.loads(case.data)
        options = {**given["options"]}
        for name in ("roi_offset", "flip"):
            if name in options:
                options[name] = tuple(options[name])
        frame, packed = _frames(given)
        before = frame.mosaic.copy()
        try:
            compare(frame, **options)
        except AssertionError as err:
            raise WrongError(str(err).strip()[:500]) from err
        if not np.array_equal(frame.mosaic, before):
            raise WrongError("the raw frame was changed")
        if packed is not None:
            _equal(frame, packed, options)
        return "accepted"


def _equal(frame: RawFrame, packed: Any, options: Dict[str, Any]) -> None:
    """A frame as bytes makes what it makes as numbers."""
    pipeline = Pipeline(products=tuple(PRODUCTS), **options)
    want, got = pipeline(frame), Pipeline(products=tuple(PRODUCTS), **options)(packed)
    for name, image in want.items():
        if not np.array_equal(got[name], image, equal_nan=image.dtype != np.uint8):
            raise WrongError(f"{name} of a packed frame differs")
    if got.invalid != want.invalid:
        raise WrongError(f"{got.invalid} pixels of a packed frame are invalid, {want.invalid} of numbers")


def _frames(given: Dict[str, Any]) -> Tuple[RawFrame, Any]:
    """The frame as numbers, laid out somehow, and the same from bytes if its numbers fit into them."""
    rng = np.random.default_rng(given["seed"])
    height, width = given["shape"]
    bits, packing = given["bits"], given["packing"]
    shift = 16 - bits if packing == "u16" and given["alignment"] == "msb" else 0
    fmt = RawFormat(bits, packing, shift)
    top = (1 << bits) - 1
    mosaic = np.rint(_scene(given["scene"], rng, (height, width)) * top).astype(np.uint16)
    data = pack(mosaic, fmt, given["big_endian"])
    row = fmt.row_bytes(width)
    step = row + -row % (1 << given["padding"])
    padding = rng.integers(0, 256, (height, step), np.uint8)
    padding[:, :row] = np.frombuffer(data, np.uint8).reshape(height, row)
    if step > row and step in other_rows(width):  # rows of other pixels
        step, padding = row, np.ascontiguousarray(padding[:, :row])
    packed = frame_from_buffer(padding.reshape(-1), fmt, height, width, step, given["big_endian"])
    numbers = (mosaic << shift).astype(np.uint8 if packing == "u8" else np.uint16)
    if not np.array_equal(packed.unpack().mosaic, numbers):
        raise WrongError(f"{packing} of {bits} bit does not come back")
    full_scale = min(given["full_scale"] or fmt.full_scale, fmt.full_scale)
    if given["above"] and packing == "u16":
        some = rng.random(numbers.shape) < 0.1
        numbers[some] = rng.integers(0, 65536, some.sum())
    elif full_scale == fmt.full_scale:
        return RawFrame(_laid_out(numbers, given["layout"]), full_scale), packed
    return RawFrame(_laid_out(numbers, given["layout"]), full_scale), None


def _scene(name: str, rng: np.random.Generator, shape: Tuple[int, int]) -> np.ndarray:
    """A mosaic of numbers in [0, 1]."""
    noise = rng.random(shape)
    if name == "noise":
        return noise
    if name == "extremes":
        return np.asarray(rng.integers(0, 2, shape), float)
    if name == "flat":
        return np.full(shape, rng.choice([0, 1, rng.random()]), float)
    smooth = cv2.GaussianBlur(noise, (5, 5), 1.0)
    smooth = (smooth - smooth.min()) / (smooth.max() - smooth.min())
    return np.asarray(smooth * (0.01 if name == "dark" else 1))


def _laid_out(mosaic: np.ndarray, layout: str) -> np.ndarray:
    """The same numbers elsewhere in memory."""
    height, width = mosaic.shape
    dtype = mosaic.dtype
    views = {
        "plain": lambda: np.empty((height, width), dtype),
        "padded": lambda: np.full((height, width + 9), 99, dtype)[:, 3 : 3 + width],
        "columns": lambda: np.full((height, 2 * width), 99, dtype)[:, ::2],
        "upside down": lambda: np.empty((height, width), dtype)[::-1],
        "odd": lambda: np.empty(mosaic.nbytes + 1, np.uint8)[1:].view(dtype).reshape(height, width),
        "fortran": lambda: np.empty((width, height), dtype).T,
        "mirrored": lambda: np.empty((height, width), dtype)[:, ::-1],
    }
    view = views[layout]()
    view[...] = mosaic
    return np.asarray(view)
