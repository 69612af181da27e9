"""The CPU backend compared with the float64 reference."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from polar_pipeline import Pipeline, RawFrame, reference
from polar_pipeline.products import PRODUCTS

#: float32 planes carry about seven digits; sums of some thirty terms near 1 stay within this.
FLOAT_NOISE = 2e-5
DOLP_BOUND = 2e-3
AOLP_BOUND = np.deg2rad(0.5)
SSIM_BOUND = 1e-3
#: The rounding of S1 and S2 over their noise counts here: some 1e-7 over 1e-3, times twice the deviation squared.
AOLP_SIGMA_BOUND = 5e-4


def compare(frame: RawFrame, **options: Any) -> None:
    """Every product of the CPU backend lies within the error bounds around the reference's."""
    pipeline = Pipeline(products=tuple(PRODUCTS), **options, backend="cpu")
    sensor, correction = pipeline.options.read_out(frame.shape), pipeline.options.correction(frame.shape)
    seen = frame if correction is None else correction.replace_defects(frame)
    truth = reference.run(seen, sensor, pipeline.plan, pipeline.options)
    floats = replace(pipeline.options, dtypes=("float32",) * len(PRODUCTS))
    exact = reference.run(seen, sensor, pipeline.plan, floats)
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
                error = error[exact["dolp"] >= 0.05]  # below, the angle is noise
            assert error.max(initial=0) <= 1, name
            continue
        assert np.array_equal(np.isnan(got), np.isnan(want)), name
        error = np.abs(got - want)
        if name == "aolp":
            error = np.minimum(error, np.pi - error)[exact["dolp"] >= 0.05]
            assert got[~np.isnan(got)].min(initial=0) >= 0
            assert got[~np.isnan(got)].max(initial=0) < np.pi
            bound = AOLP_BOUND
        elif name == "dolp":
            error, bound = error[exact["stokes"][..., 0] >= 0.1], DOLP_BOUND
        else:
            bound = {"aolp_sigma": AOLP_SIGMA_BOUND}.get(name, SSIM_BOUND if name.startswith("ssim") else FLOAT_NOISE)
        assert np.nan_to_num(error).max(initial=0) <= bound, name
