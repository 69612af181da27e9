"""Pipelines on a second GPU: the same bits, beside those of the first, and chosen by `CUDA_VISIBLE_DEVICES`."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any, Dict, List

import numpy as np
import pytest
from test_backend import real_driver

from polar_pipeline.cuda.backend import CudaBackend
from polar_pipeline.cuda.driver import DeviceError, Driver
from polar_pipeline.options import make_options
from polar_pipeline.sensor.frames import RawFrame

pytestmark = pytest.mark.gpu
OPTIONS = make_options(products=("intensity", "dolp", "aolp", "preview", "ssim_map", "ssim"))
FRAMES = [
    RawFrame(np.random.default_rng(seed).integers(0, 256, (128, 192)).astype(np.uint8), 255) for seed in range(12)
]


@pytest.fixture(autouse=True)
def two_gpus() -> None:
    """Skips where there are not two."""
    real_driver("gpu")
    import cupy

    if cupy.cuda.runtime.getDeviceCount() < 2:
        pytest.skip("needs two GPUs")


def run_on(index: int) -> List[Dict[str, np.ndarray]]:
    """The products of every frame on a GPU, which is busy with as many at once as it takes."""
    made = CudaBackend(OPTIONS, Driver(index=index))
    tickets: List[Any] = []
    found = []
    for frame in FRAMES:
        tickets.append(made.submit(frame))
        if len(tickets) == made.depth:
            found.append({name: array.copy() for name, array in made.result(tickets.pop(0)).products.items()})
    found += [{name: array.copy() for name, array in made.result(ticket).products.items()} for ticket in tickets]
    made.close()
    return found


def assert_equal(found: List[Dict[str, np.ndarray]], wanted: List[Dict[str, np.ndarray]]) -> None:
    assert len(found) == len(wanted) == len(FRAMES)
    for frame, (one, other) in enumerate(zip(found, wanted)):
        for name in OPTIONS.products:
            np.testing.assert_array_equal(one[name], other[name], err_msg=f"{name} of frame {frame}")


def test_both_work_at_once_in_threads_of_their_own() -> None:
    wanted = run_on(0)
    with ThreadPoolExecutor(4) as threads:
        for found in threads.map(run_on, (0, 1, 1, 0)):
            assert_equal(found, wanted)


def test_one_that_does_not_exist_is_said() -> None:
    with pytest.raises(DeviceError, match="no GPU 99"):
        Driver(index=99)
