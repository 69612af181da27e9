"""The CPU backend compared with the float64 reference."""

from __future__ import annotations

from typing import Any, Dict, Sequence, Tuple

import cv2
import numpy as np

from polar_pipeline import Pipeline, RawFrame, reference
from polar_pipeline.options import Options
from polar_pipeline.plan import make_plan
from polar_pipeline.products import NOISE_PRODUCTS, PRODUCTS

#: float32 planes carry about seven digits; sums of some thirty terms near 1 stay within this.
FLOAT_NOISE = 2e-5
DOLP_BOUND = 2e-3
AOLP_BOUND = np.deg2rad(0.5)
SSIM_BOUND = 1e-3
#: A step of the map, where the rounded angle or degree is the next one, and the rounding of what it is mixed with.
COLOR_BOUNDS = {"aolp_color": 5, "dolp_color": 4}
#: The rounding of S1 and S2 over their noise counts here: some 1e-7 over 1e-3, times twice the deviation squared.
AOLP_SIGMA_BOUND = 5e-4


def random_frame(shape: Tuple[int, int], bits: int = 8, seed: int = 0, sigma: float = 1.0) -> RawFrame:
    """Smooth noise over the complete range, so that some pixels are black, and some saturated."""
    image = cv2.GaussianBlur(np.random.default_rng(seed).random(shape), (0, 0), sigma)
    image = (image - image.min()) / (image.max() - image.min())
    top = (1 << bits) - 1
    return RawFrame(np.rint(image * top).astype(np.uint8 if bits == 8 else np.uint16), top)


def truth_of(frame: RawFrame, options: Options) -> Dict[str, Any]:
    """What the reference makes of a frame, defects replaced."""
    correction = options.correction(frame.shape)
    seen = frame if correction is None else correction.replace_defects(frame)
    return reference.run(seen, options.read_out(frame.shape), make_plan(options.products), options)


def compare(
    frame: RawFrame,
    products: Sequence[str] = tuple(PRODUCTS),
    lit: float = 0.0,
    float_noise: float = FLOAT_NOISE,
    **options: Any,
) -> None:
    """Every product of the CPU backend lies within the error bounds around the reference's.

    Args:
        frame: What it is given.
        products: What it computes, but for those that a geometry excludes.
        lit: S0 from which DoLP and AoLP are compared in 8 bit.
        float_noise: Bound of products that are sums of pixels.
        options: Of `Pipeline`.
    """
    if {"scale", "rotate", "roi", "rectify"} & {*options}:
        products = tuple(name for name in products if name not in NOISE_PRODUCTS)
    pipeline = Pipeline(products=products, **options, backend="cpu")
    truth = exact = truth_of(frame, pipeline.options)
    if not {"stokes", "dolp"} <= set(products) or {truth["stokes"].dtype.kind, truth["dolp"].dtype.kind} != {"f"}:
        with Pipeline(products=("stokes", "dolp"), **{**options, "dtype": "float32"}, backend="cpu") as floats:
            exact = truth_of(frame, floats.options)
    out = pipeline(frame)
    assert out.invalid == truth["invalid"]
    np.testing.assert_allclose(out.blocks, truth["blocks"], rtol=0, atol=SSIM_BOUND)
    for name, got in out.items():
        want = truth[name]
        assert got.shape == want.shape, name
        if got.dtype == np.uint8:
            error = np.abs(got.astype(int) - want.astype(int))
            if name == "aolp":
                error = np.minimum(error, 256 - error)
            if name in ("dolp", "aolp", "aolp_color", "dolp_color"):
                angle = exact["dolp"] >= 0.05  # below, the angle is noise
                error = error[~(exact["stokes"][..., 0] < lit) & (angle | name.startswith("dolp"))]
            assert error.max(initial=0) <= COLOR_BOUNDS.get(name, 1), name
            continue
        level = 0.0
        if got.dtype == np.uint16:  # both are rounded
            level = np.pi / 65536 if name.startswith("aolp") else 1 / 65535
        values, want = got * (level or 1), want * (level or 1)
        assert np.array_equal(np.isnan(values), np.isnan(want)), name
        error = np.abs(values - want)
        if name == "aolp":
            error = np.minimum(error, np.pi - error)[exact["dolp"] >= 0.05]
            assert values[~np.isnan(values)].min(initial=0) >= 0
            assert values[~np.isnan(values)].max(initial=0) < np.pi
            bound = AOLP_BOUND
        elif name == "dolp":
            error, bound = error[exact["stokes"][..., 0] >= 0.1], DOLP_BOUND
        else:
            bound = {"aolp_sigma": AOLP_SIGMA_BOUND}.get(name, SSIM_BOUND if name.startswith("ssim") else float_noise)
        assert np.nan_to_num(error).max(initial=0) <= bound + level, name
