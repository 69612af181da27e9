"""SSIM from raw frames to the map where the two images differ in level: the CUDA backend against float64.

`POLAR_SSIM_PAIRS=3000 pytest -m gpu test/backends/cuda/test_ssim_levels.py` tries more pairs
than the 300 of a plain run.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Dict, List

import numpy as np
import pytest
from comparison import SSIM_BOUND, run_reference
from ssim_pairs import random_pair
from support import examples
from test_backend import make_driver, on_gpus

from polar_pipeline.backends.cuda.backend import CudaBackend
from polar_pipeline.options import make_options
from polar_pipeline.sensor.frames import RawFrame

PAIRS = int(os.environ.get("POLAR_SSIM_PAIRS", "300"))
#: Pairs for each set of options, so that kernels are compiled once for all of them.
EACH = 6
MODES = ("consistency", "temporal", "reference")
#: Windows with their deviations. Tensor cores compute those of stride 1 and full half taps, the registers the others.
WINDOWS = ((11, 1.5), (3, 1.5), (5, 0.8), (7, 1.5), (9, 2.0), (11, 3.0), (13, 2.5), (15, 1.5), (15, 5.0), (11, 0.5))
STRIDES = (1, 1, 2, 3)


@dataclass(frozen=True)
class Case:
    """A set of options, by its number."""

    number: int

    @property
    def arguments(self) -> Dict[str, Any]:
        """Options of the pipeline: every mode with every window, then with other strides."""
        turn, mode = divmod(self.number, len(MODES))
        window, sigma = WINDOWS[turn % len(WINDOWS)]
        stride = STRIDES[turn % len(STRIDES)]
        return {"ssim_mode": MODES[mode], "ssim_window": window, "ssim_sigma": sigma, "ssim_stride": stride}

    def errors(self, driver: Any, count: int) -> List[float]:
        """The largest error of the map of each of some pairs."""
        rng = np.random.default_rng((49, self.number))
        bits, resolution = int(rng.choice([8, 12, 16])), str(rng.choice(["half", "full"]))
        products = ("ssim", "ssim_map")
        options = make_options(products=products, resolution=resolution, demosaic="bilinear", **self.arguments)
        made, errors = CudaBackend(options, driver), []
        for _ in range(count):
            x, y = random_pair(rng, 64, 72)
            first, second = mosaic(x, x, bits), mosaic(y, y, bits)
            other = run_reference(first, options)["value"].clip(0, 1).astype(np.float32)
            if options.ssim_mode == "consistency":
                second, other = mosaic(x, y, bits), None
            elif options.ssim_mode == "temporal":
                made.submit(first)()
            found = made.submit(second, other if options.ssim_mode == "reference" else None)()
            exact = run_reference(second, options, other)
            errors.append(float(np.abs(found["ssim_map"] - exact["ssim_map"]).max()))
            errors[-1] = max(errors[-1], abs(float(found["ssim"]) - float(exact["ssim"])))
        made.close()
        return errors


def mosaic(sum_of_upright: np.ndarray, sum_of_diagonal: np.ndarray, bits: int) -> RawFrame:
    """A mono mosaic (90 45 / 135 0) of light behind which I0 + I90 and I45 + I135 are what is given, times two."""
    frame = np.empty(tuple(2 * side for side in sum_of_upright.shape))
    frame[::2, ::2] = frame[1::2, 1::2] = sum_of_upright
    frame[::2, 1::2] = frame[1::2, ::2] = sum_of_diagonal
    top = (1 << bits) - 1
    return RawFrame(np.rint(frame * top).astype(np.uint8 if bits == 8 else np.uint16), top)


def check(numbers: range, driver: Any, count: int = EACH) -> None:
    beyond = [
        f"{number}: {error:.6f} {Case(number).arguments}"
        for number in numbers
        for error in Case(number).errors(driver, count)
        if error > SSIM_BOUND
    ]
    assert not beyond, "\n".join(beyond)


@pytest.mark.scaled
@pytest.mark.parametrize("device", ["orin", "xavier"])
def test_frames_of_different_levels_on_stand_ins(device: str) -> None:
    """Every mode of the package's window and of one of three taps; tensor cores on Orin, registers on Xavier."""
    check(range(2 * len(MODES)), make_driver(device), examples(EACH))


@pytest.mark.scaled
@pytest.mark.parametrize("bits", [8, 12, 16])
@pytest.mark.parametrize("mode", MODES)
def test_flat_dark_frames(mode: str, bits: int) -> None:
    """Beside a black one, where the similarity is steepest: integers must not all be rounded alike."""
    options = make_options(products=("ssim_map",), ssim_mode=mode, ssim_window=15, demosaic="bilinear")
    made = CudaBackend(options, make_driver("orin"))
    black, top = np.zeros((32, 40)), (1 << bits) - 1
    for level in np.linspace(0.005, 0.03, examples(24)):
        x = np.full(black.shape, round(level * top) / top)
        first, second, other = mosaic(black, black, bits), mosaic(x, x, bits), None
        if mode == "consistency":
            second = mosaic(x, black, bits)
        else:
            made.submit(first, None if mode == "temporal" else black.astype(np.float32))()
            other = black.astype(np.float32)
        found = made.submit(second, other if mode == "reference" else None)()
        exact = run_reference(second, options, other)
        assert np.abs(found["ssim_map"] - exact["ssim_map"]).max() <= (1e-4 if bits == 8 else 8e-4)
    made.close()


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("device", on_gpus)
def test_frames_of_different_levels(device: str) -> None:
    check(range(-(-PAIRS // EACH)), make_driver(device))
