"""The SSIM kernel against the float64 reference; on the CPU, and on a GPU if there is one.

Every launch also checks memory, races and what is written, and happens twice: threads in
reverse, other bytes in memory.
"""

from __future__ import annotations

from itertools import product
from typing import Any, Dict, Mapping, NamedTuple, Optional, Tuple

import numpy as np
import pytest
from harness import GPUS, Launch, grid_of, program_of, run_in_every_order
from ssim_pairs import random_pair
from support import IS_EXHAUSTIVE, examples, representative

from polar_pipeline.backends import reference
from polar_pipeline.backends.cuda.arguments import SSIM_ARGUMENT, as_compared, half_taps
from polar_pipeline.backends.cuda.device import DEVICES, Device
from polar_pipeline.backends.cuda.kernels import KERNELS, Schedule, piece_count
from polar_pipeline.backends.cuda.solver import candidates
from polar_pipeline.backends.cuda.work import SsimWork
from polar_pipeline.polarimetry.coefficients import SSIM_FULL, gaussian

#: Distance to the reference. Registers: squares of up to 1 in float, 6e-8 the last place, in up to 30 sums, against
#: 2 C2 = 1.8e-3 where variances vanish: 2.2e-4 is the most of 3,000 random pairs, with 15 taps. Tensor cores: taps are
#: halves, and what is computed with is two halves; the bound of every backend.
BOUND = {"registers": 3e-4, "tensor": 1e-3}
ORIN = DEVICES["orin"]


class Found(NamedTuple):
    """What the kernel made: (frames, h, w) map if asked for, (frames, rows, columns) blocks' means, (frames,) means."""

    map: Optional[np.ndarray]
    blocks: np.ndarray
    mean: np.ndarray


def plan_of(work: SsimWork, window: str, rows: int = 16, strips: int = 1) -> Schedule:
    """A schedule with so many strips along x, and a block of two warps for tensor cores."""
    if window == "tensor":
        return Schedule("ssim", "tensor", 64, 32, rows=rows)
    tile_x = -(-work.map_size[1] // (4 * strips)) * 4
    return Schedule("ssim", "registers", max(64, -(-(tile_x + work.window - 1) // 32) * 32), tile_x, rows=rows)


def has_tensor(work: SsimWork, device: Device) -> bool:
    """Whether the solver takes tensor cores for a work."""
    return all(row.window == "tensor" for row in candidates(KERNELS["ssim"], work, device))


def check(launch: Launch, work: SsimWork, plan: Schedule, x: np.ndarray, y: np.ndarray) -> Found:
    """Compare (frames, h, w) images, in every order of `VARIANTS`: the result is what the reference says of them.

    Skips what a Jetson cannot do.
    """
    inputs = {"first": as_compared(x, work.source), "second": as_compared(y, work.source)}
    device = GPUS.get(launch.__name__)
    if device is not None and plan.window == "tensor" and not has_tensor(work, device):
        pytest.skip(f"{launch.__name__} has no tensor cores")
    frames = len(inputs["first"])
    map_size = frames * int(np.prod(work.map_size)) * np.dtype(work.map_dtype or "uint8").itemsize
    sizes = {"map": map_size, "blocks": 4 * frames * int(np.prod(work.block_size)), "mean": 4 * frames}
    sizes["pieces"] = 4 * frames * piece_count(work, plan)

    def make_frame(addresses: Mapping[str, int]) -> np.ndarray:
        argument = np.zeros((), SSIM_ARGUMENT)
        for name, address in addresses.items():
            argument[name] = address
        argument["first_stride"] = argument["second_stride"] = inputs["first"][0].nbytes
        return argument

    program, grid, wanted = program_of(work, plan), grid_of(work, plan, frames), ["blocks", "mean", "pieces"]
    wanted += ["map"] if work.map_dtype else []
    found = run_in_every_order(launch, program, make_frame, grid, inputs, {"done": 4 * frames}, sizes, wanted)
    assert not found["done"].any()
    image = found["map"].view(work.map_dtype).reshape(frames, *work.map_size) if work.map_dtype else None
    blocks = found["blocks"].view(np.float32).reshape(frames, *work.block_size)
    result = Found(image, blocks, found["mean"].view(np.float32))
    assert_similar(result, work, BOUND[plan.window], seen(x, work), seen(y, work))
    return result


def seen(image: np.ndarray, work: SsimWork) -> np.ndarray:
    """An image in [0, 1] as the kernel sees it, rounded to what it is stored as."""
    stored = as_compared(image, work.source)
    return stored / SSIM_FULL if work.source == "uint16" else stored.astype(float)


def assert_similar(found: Found, work: SsimWork, bound: float, x: np.ndarray, y: np.ndarray) -> None:
    """Map, means of blocks and mean are what the reference says of (frames, h, w) images."""
    for k in range(len(x)):
        images = [image[k].astype(np.float64) for image in (x, y)]
        expected = reference.ssim_map(*images, work.stride, work.window, work.sigma)
        if found.map is not None and work.map_dtype == "float32":
            assert np.abs(found.map[k] - expected).max() <= bound, f"frame {k}"
        elif found.map is not None:
            levels = reference.display("ssim_map", expected, work.map_dtype).astype(int)
            error = np.abs(found.map[k].astype(int) - levels).max()
            assert error <= (1 if work.map_dtype == "uint8" else 65535 * bound + 1)  # both are rounded
        assert np.abs(found.blocks[k] - reference.block_means(expected)).max() <= bound
        assert abs(found.mean[k] - expected.mean()) <= bound


def texture(height: int, width: int, frames: int = 1, seed: int = 0) -> Tuple[np.ndarray, np.ndarray]:
    """Noise over the whole range, and the same with some more of it."""
    rng = np.random.default_rng(seed)
    x = rng.random((frames, height, width))
    return x, np.clip(x + rng.normal(0, 0.2, x.shape), 0, 1)


def work_of(height: int, width: int, dtype: str = "uint16", map_dtype: str = "float32", **more: float) -> SsimWork:
    """Wang's window, unless told otherwise."""
    return SsimWork(
        height, width, int(more.get("stride", 1)), int(more.get("window", 11)), more.get("sigma", 1.5), dtype, map_dtype
    )


# ----------------------------------------------------------------------------------------------------------- the window


@pytest.mark.parametrize(("window", "sigma"), [*product(range(3, 16, 2), (0.5, 0.8, 1.5, 3.0, 5.0))])
def test_taps_in_half_sum_to_one(window: int, sigma: float) -> None:
    taps = half_taps(window, sigma).taps
    np.testing.assert_array_equal(taps, np.array(taps, np.float16))
    assert taps[0] + 2 * sum(taps[1:]) == 1
    # a unit in the last place of the largest tap that there can be
    np.testing.assert_allclose(taps, gaussian(window, sigma)[window // 2 :], rtol=0, atol=2**-11)


def test_a_window_that_halves_cannot_hold_stays_off_tensor_cores() -> None:
    assert has_tensor(work_of(64, 64), ORIN)
    assert not has_tensor(work_of(64, 64, sigma=0.5), ORIN)


#: The two ways to compute the windows of a map.
PLANS = ("registers", "tensor")
#: Kind of windows, (height, width) and options: windows, deviations, sizes around those of blocks, types of the map and
#: no map, strides whose remainder is dropped, and images of floats.
WORKS = [
    *((plan, (37, 40), {"window": window}) for plan in PLANS for window in (3, 11, 15)),
    ("tensor", (37, 40), {"window": 5}),
    ("registers", (37, 40), {"window": 7}),
    *((plan, (20, 24), {"sigma": sigma}) for plan in PLANS for sigma in (1.0, 4.0)),
    *(("registers", size, {}) for size in ((1, 1), (3, 5), (16, 65), (67, 30))),
    *(("tensor", size, {}) for size in ((1, 8), (5, 16), (16, 72), (67, 32))),
    *(("registers", (30, 46), {"map_dtype": dtype}) for dtype in ("uint8", "uint16", "")),
    *(("tensor", (30, 48), {"map_dtype": dtype}) for dtype in ("uint8", "uint16", "")),
    ("registers", (20, 30), {"dtype": "float32"}),
    ("registers", (41, 61), {"stride": 2}),
    ("registers", (62, 91), {"stride": 3, "dtype": "float32"}),
    ("registers", (167, 244), {"stride": 8}),
]


@pytest.mark.parametrize(("plan", "size", "options"), WORKS)
def test_works(launch: Launch, plan: str, size: Tuple[int, int], options: Dict[str, Any]) -> None:
    work = work_of(*size, **options)
    check(launch, work, plan_of(work, plan), *texture(*size))


# --------------------------------------------------------------------------------------------------------- the pictures


def _lines(period: int, axis: int) -> np.ndarray:
    image = np.zeros((1, 40, 48))
    image[
        (slice(None), slice(None, None, period)) if axis else (slice(None), slice(None), slice(None, None, period))
    ] = 1
    return image


_FLAT = np.ones((1, 40, 48))
_FAINT = np.random.default_rng(4).standard_normal(_FLAT.shape)
_RNG = np.random.default_rng(3)
PICTURES = {
    "equal": (0.37 * _FLAT, 0.37 * _FLAT),
    "black": (0 * _FLAT, 0 * _FLAT),
    "white": (_FLAT, _FLAT),
    "black and white": (0 * _FLAT, _FLAT),
    "flat and different": (0.9 * _FLAT, 0.85 * _FLAT),
    "dark and darker": (0.012 * _FLAT, 0.004 * _FLAT),
    "extremes": (_RNG.integers(0, 2, _FLAT.shape), _RNG.integers(0, 2, _FLAT.shape)),
    "opposite": (_lines(2, 0), 1 - _lines(2, 0)),
    "columns on black": (_lines(12, 0), 0 * _FLAT),
    "rows on black": (_lines(12, 1), 0 * _FLAT),
    "columns on white": (1 - _lines(9, 0), _FLAT),
    "edge": (np.cumsum(_lines(48, 0), 2) * (np.arange(48) > 23), 0.5 * _FLAT),
    "faint": (0.8 + 0.004 * _RNG.standard_normal(_FLAT.shape), 0.8 + 0.004 * _RNG.standard_normal(_FLAT.shape)),
    "faint, after white": (0.32 + 0.03 * _FAINT, np.clip(0.98 + 0.03 * _FAINT, 0, 1)),
    "levels": (_RNG.integers(0, 256, _FLAT.shape) / 255, _RNG.integers(0, 256, _FLAT.shape) / 255),
}
_Y, _X = np.mgrid[:64, :72]
for _contrast in (0.005, 0.02, 0.1):  # a rounded sum shows: two frames, moved by two pixels, or set apart by noise
    _waves = np.sin(0.7 * _X + 0.2 * _Y) + np.sin(0.5 * _Y) + 0.1 * _RNG.standard_normal((64, 72))
    _waves = np.clip(0.7 + _contrast * _waves, 0, 1)[np.newaxis]
    PICTURES[f"waves of {_contrast}, moved"] = _waves, np.roll(_waves, 2, 2)
    for _noise in (0.001, 0.005, 0.02, 0.1):
        _noisy = np.clip(_waves + _noise * _RNG.standard_normal(_waves.shape), 0, 1)
        PICTURES[f"waves of {_contrast}, noise of {_noise}"] = _waves, _noisy


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("size", [(40, 48), (64, 72)])
def test_pictures(launch: Launch, plan: str, size: Tuple[int, int]) -> None:
    names = [name for name, (image, _) in PICTURES.items() if image.shape[1:] == size]
    x, y = (np.concatenate(images).astype(float) for images in zip(*(PICTURES[name] for name in names)))
    work = work_of(*size)
    result = check(launch, work, plan_of(work, plan), x, y)
    equal = [k for k, name in enumerate(names) if name in ("equal", "black", "white")]
    # Registers: the difference is 0, and what is left is the reciprocal's rounding. Tensor cores: squares and products
    # round apart, 1.2e-7 of up to 2 and 1, against C2 = 9e-4.
    assert result.map is not None
    np.testing.assert_allclose(result.map[equal], 1, rtol=0, atol={"registers": 1e-6, "tensor": 5e-4}[plan])


#: Kind of windows, taps, deviation and other options: every part of the arithmetic that depends on them.
LEVEL_WORKS = [
    *(("tensor", window, sigma, {}) for window, sigma in ((3, 0.8), (5, 1.5), (7, 1.5), (11, 1.5), (15, 5.0))),
    *(("registers", window, sigma, {}) for window, sigma in ((3, 0.5), (11, 1.5), (15, 3.0))),
    ("registers", 11, 1.5, {"stride": 2}),
    ("registers", 7, 1.5, {"stride": 3, "dtype": "float32"}),
    ("registers", 15, 1.5, {"dtype": "float32"}),
]


@pytest.mark.scaled
@pytest.mark.parametrize(("plan", "window", "sigma", "options"), LEVEL_WORKS)
def test_images_of_different_levels(
    launch: Launch, plan: str, window: int, sigma: float, options: Dict[str, Any]
) -> None:
    """A frame after a much brighter or darker one: a difference has as many bits as a sum, and so has its square."""
    stride = options.get("stride", 1)
    pairs = [random_pair(np.random.default_rng((window, k)), 40 * stride, 48 * stride) for k in range(examples(24))]
    x, y = (np.stack(images) for images in zip(*pairs))
    work = work_of(*x.shape[1:], window=window, sigma=sigma, **options)
    check(launch, work, plan_of(work, plan), x, y)


@pytest.mark.parametrize(
    ("plan", "rows"),
    representative(list(product(PLANS, (16, 128, 32, 64))), lambda row: row if row[1] in (16, 128) else ()),
)
def test_strips_of_any_size_and_batches(launch: Launch, plan: str, rows: int) -> None:
    work = work_of(141, 136)
    found = check(launch, work, plan_of(work, plan, rows, strips=3), *texture(141, 136, frames=2))
    assert found.mean[0] != found.mean[1]


@pytest.mark.scaled
def test_blocks_of_any_size_on_tensor_cores(launch: Launch) -> None:
    work = work_of(20, 200)  # the largest block has 176 columns
    x, y = texture(20, 200)
    plans = {plan.threads: plan for plan in candidates(KERNELS["ssim"], work, DEVICES["h200"])}
    assert max(plans) == 352
    if not IS_EXHAUSTIVE:
        plans = {threads: plans[threads] for threads in (min(plans), sorted(plans)[len(plans) // 2], max(plans))}
    first, *others = (check(launch, work, plan, x, y) for plan in plans.values())
    for found in others:
        np.testing.assert_array_equal(found.map, first.map)
