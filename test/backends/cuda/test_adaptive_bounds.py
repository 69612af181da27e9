"""ADR in half on white noise, where it exceeds the bounds of other methods by what `docs/performance.md` says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from comparison import as_floats, run_reference
from test_backend import COPIED, make_driver, on_gpus, stand_in

from polar_pipeline.backends.cuda.backend import CudaBackend
from polar_pipeline.options import make_options
from polar_pipeline.sensor.frames import RawFrame


@pytest.fixture(params=["stand-in", *on_gpus])
def driver(request: pytest.FixtureRequest) -> Any:
    """A GPU, or the stand-in for one."""
    return stand_in(COPIED) if request.param == "stand-in" else make_driver(request.param)


@pytest.mark.parametrize("bits", [8, 12, 16])
@pytest.mark.parametrize("resolution", ["full", "half"])
def test_white_noise(driver: Any, resolution: str, bits: int) -> None:
    """Errors of AoLP in degrees, where DoLP is at least 0.05, and of DoLP, where S0 is at least 0.1.

    The largest of 2.4 million pixels at full resolution, where ADR divides by nearly zero, were 7.3 (S0 below 0.1),
    3.2 and 0.023; of 200,000 at half resolution, by the rounding of samples, 0.8, 0.66 and 0.0029. At most 2 % of the
    angles are off by more than 0.5 degrees.
    """
    options = make_options(
        products=("dolp", "aolp"),
        resolution=resolution,
        demosaic="adaptive",
        precision="fp16",
        min_intensity=0.0,
        dtype="float32",
    )
    made, top = CudaBackend(options, driver), (1 << bits) - 1
    is_full = resolution == "full"
    dim_limit, lit_limit, degree_limit = (10.0, 4.0, 0.03) if is_full else (1.0, 0.75, 0.004)
    for level in (0.02, 0.03, 0.1, 0.3, 1.0):
        raw = np.random.default_rng(int(1000 * level)).random((64, 96)) * level * top
        frame = RawFrame(np.rint(raw).astype(np.uint8 if bits == 8 else np.uint16), top)
        got, exact = made.submit(frame)(), run_reference(frame, as_floats(options, "stokes", "dolp", "aolp"))
        light, degree = exact["stokes"][..., 0], exact["dolp"]
        lit, clear = light >= 0.1, (degree >= 0.05) & (light >= 0.005)
        error = np.abs(got["aolp"].astype(float) - exact["aolp"])
        error = np.rad2deg(np.minimum(error, np.pi - error))
        assert error[clear & ~lit].max(initial=0) <= dim_limit, level
        assert error[clear & lit].max(initial=0) <= lit_limit, level
        assert np.mean(error[clear] > 0.5) <= 0.02, level
        assert np.abs(got["dolp"] - degree)[lit & ~np.isnan(degree)].max(initial=0) <= degree_limit, level
    made.close()
