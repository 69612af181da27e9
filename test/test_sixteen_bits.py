"""Products as uint16: the float products, rounded to levels of 65535 to 1, and of 65536 to pi."""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np

from polar_pipeline import Pipeline, RawFrame
from polar_pipeline.sensor.mosaic import SENSORS

#: Half a level, and the rounding of float32 on two ways to compute a level: some units in the last place of 65535.
TOLERANCE = 0.5 + 4 * 65536 * 2**-24
#: Added to that for maps of similarity: on a GPU either type can take another window, each within 0.001 of the truth.
MAP_TOLERANCE = {"cpu": 0.0, "cuda": 0.002 * 65535}


def frame_of(bits: int, shape: Any = (66, 90)) -> RawFrame:
    """Smooth noise over the complete range, with some saturated pixels, and a black corner."""
    image = cv2.GaussianBlur(np.random.default_rng(bits).random(shape), (5, 5), 1.0)
    image = (image - image.min()) / (image.max() - image.min())
    image[:12, :12] = 0
    top = (1 << bits) - 1
    return RawFrame(np.rint(image * top).astype(np.uint8 if bits == 8 else np.uint16), top)


def test_aolp_wraps_at_pi(backend: str) -> None:
    """Angles within half a level of pi are 0, others the highest level."""
    # with S1 = 60000, an S2 of 2.88 is half a level
    for s2, level in ((0, 0), (2, 0), (-2, 0), (4, 1), (-4, 65535), (-9, 65534)):
        raw = np.zeros((32, 32), np.uint16)
        mosaic = SENSORS["IMX250MZR"]
        for angle, value in ((0, 60000), (45, 500 + max(s2, 0)), (90, 0), (135, 500 - min(s2, 0))):
            row, column = mosaic.position(angle)
            raw[row::2, column::2] = value
        with Pipeline(mosaic, "aolp", backend, dtype="uint16", co_sited=False) as pipeline:
            out = pipeline(raw)["aolp"]
        exact = round(np.arctan2(s2, 60000) / 2 / np.pi * 65536) % 65536
        assert exact == level
        assert np.all(out == level), s2


def test_what_is_alike_by_less_than_nothing_is_0(backend: str) -> None:
    """Similarity below 0, as of an image and its negative, is level 0, as in 8 bit."""
    frame = frame_of(8)
    found = {}
    with Pipeline(products="intensity", backend=backend) as pipeline:
        negative = 1 - pipeline(frame)["intensity"]
    for dtype in ("float32", "uint8", "uint16"):
        with Pipeline(products="ssim_map", backend=backend, ssim_mode="reference", dtype=dtype) as pipeline:
            found[dtype] = pipeline(frame, reference=negative)["ssim_map"]
    below = found["float32"] < -0.002  # so that all ways to compute it agree
    assert below.mean() > 0.5
    assert not found["uint8"][below].any()
    assert not found["uint16"][below].any()
    error = np.abs(found["uint16"] - 65535 * np.clip(found["float32"].astype(float), 0, 1))
    assert error.max() <= TOLERANCE + MAP_TOLERANCE[backend]
    with Pipeline(products="ssim_map", backend=backend, ssim_mode="temporal", dtype="uint16") as pipeline:
        assert not pipeline(frame)["ssim_map"].any()  # no frame before: NaN as float


def test_types_by_product(backend: str) -> None:
    types = {"dolp": "uint16", "aolp": "uint8", "preview": "uint16", "stokes": "uint16"}
    with Pipeline(products=(*types, "ssim", "angle_0"), backend=backend, dtype=types) as pipeline:
        out = pipeline(frame_of(8))
    found = {name: str(array.dtype) for name, array in out.items()}
    assert found == {
        "angle_0": "float32",
        "stokes": "float32",
        "dolp": "uint16",
        "aolp": "uint8",
        "preview": "uint8",
        "ssim": "float32",
    }
