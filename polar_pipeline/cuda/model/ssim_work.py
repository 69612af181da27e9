"""What the SSIM launch has to do: the contract between Python and `kernels/ssim.cu`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Dict, Tuple, Union

import numpy as np

from polar_pipeline.coefficients import SSIM_BLOCK, SSIM_C2, SSIM_FULL, gaussian, ssim_literals
from polar_pipeline.cuda.model.transform_work import TransformWork
from polar_pipeline.cuda.model.work import PAIRS, PolarizationWork
from polar_pipeline.options import Options
from polar_pipeline.plan import MOSAIC, Plan

#: `struct Comparison` of `kernels/ssim.cu`.
SSIM_ARGUMENT = np.dtype(
    [
        ("first", np.uint64),
        ("second", np.uint64),
        ("first_stride", np.uint64),
        ("second_stride", np.uint64),
        ("map", np.uint64),
        ("pieces", np.uint64),
        ("done", np.uint64),
        ("blocks", np.uint64),
        ("mean", np.uint64),
        ("mask", np.uint64),
        ("inside", np.uint64),
    ],
    align=True,
)
#: What the images come as: of a type, or within the raw mosaic, whose launch makes them itself; types of the map.
INPUTS = {"uint16": 0, "float32": 1, MOSAIC: 2}
MAPS = {"": 0, "uint8": 1, "float32": 2, "uint16": 3}


@dataclass(frozen=True)
class SsimWork:
    """One launch: two images in, or the mosaic that they are made of, and their similarity out.

    Attributes:
        height: Pixels of an image along y.
        width: And along x.
        stride: Pixels in each direction over which images are averaged first.
        window: Taps of the Gaussian, odd.
        sigma: Its standard deviation in averaged pixels.
        source: Element type of the images, or `mosaic`: a key of `INPUTS`.
        map_dtype: Element type of the map, empty if it is not wanted: a key of `MAPS`.
        masked: Whether a mask says where the images have no values: there the map has none, and means take none.
    """

    height: int
    width: int
    stride: int
    window: int
    sigma: float
    source: str
    map_dtype: str
    masked: bool = False

    @property
    def map_size(self) -> Tuple[int, int]:
        """(height, width) of the map."""
        return self.height // self.stride, self.width // self.stride

    @property
    def block_size(self) -> Tuple[int, int]:
        """(rows, columns) of the blocks whose means are taken."""
        height, width = self.map_size
        return -(-height // SSIM_BLOCK), -(-width // SSIM_BLOCK)


def make_ssim_work(work: Union[PolarizationWork, TransformWork], plan: Plan, options: Options) -> SsimWork:
    """The SSIM launch of a plan, on the images that the launch before stores; if it stores none, on the mosaic."""
    source = next((dtype for name, dtype in work.outputs if name in PAIRS), MOSAIC)
    map_dtype = options.dtype_of("ssim_map") if "ssim_map" in plan.products else ""
    return SsimWork(
        *work.output_size,
        options.ssim_stride,
        options.ssim_window,
        options.ssim_sigma,
        source,
        map_dtype,
        isinstance(work, TransformWork) and work.positions,
    )


def as_compared(image: np.ndarray, dtype: str) -> np.ndarray:
    """An image in [0, 1] as the SSIM launch reads it: `uint16` of full scale `SSIM_FULL`, limited; or `float32`."""
    if dtype == "uint16":
        return np.rint(np.clip(image, 0, 1) * np.float32(SSIM_FULL)).astype(np.uint16)
    return image.astype(dtype)


def ssim_key(work: SsimWork) -> str:
    """A work as short text without its size."""
    shown = f"{work.source} to {work.map_dtype or 'means only'}, {work.window} taps"
    return shown + (f", stride {work.stride}" if work.stride > 1 else "") + ", masked" * work.masked


@dataclass(frozen=True)
class HalfTaps:
    """A window as halves.

    Attributes:
        taps: From the centre outwards; the window sums to exactly 1.
        error: How far the similarity of black and white is off at most, where a line or an edge lies within the window.
    """

    taps: Tuple[float, ...]
    error: float


@lru_cache(maxsize=None)
def half_taps(window: int, sigma: float) -> HalfTaps:
    """The window for tensor cores.

    The sum of the taps from k outwards is rounded, up or down, to what the next inner tap is a multiple of: then each
    tap is a half, and so is the centre, which takes the rest. Of all ways to round, the one is taken that moves the
    similarity least where a line or an edge lies k pixels away. There the variance is about as large as the tap or the
    sum, and the similarity of that to nothing is C2 / (variance + C2).
    """
    exact = np.array(gaussian(window, sigma)[window // 2 :])
    tails = np.append(np.cumsum(exact[::-1])[::-1][1:], 0.0)  # from k + 1 outwards
    grids = [float(np.spacing(np.float16(tap))) for tap in exact]
    grids[0] /= 2  # both sides of the window are in the centre's rest
    found = []
    for ups in product((np.floor, np.ceil), repeat=window // 2):
        rounded = np.array([up(tail / grid) * grid for up, tail, grid in zip(ups, tails, grids)] + [0.0])
        taps = np.append(1 - 2 * rounded[0], rounded[:-1] - rounded[1:])
        if np.array_equal(taps, taps.astype(np.float16)) and (taps >= 0).all():
            line, edge = np.abs(taps - exact) / (exact + SSIM_C2) ** 2, np.abs(rounded - tails) / (tails + SSIM_C2) ** 2
            found.append((SSIM_C2 * float(max(line.max(), edge.max())), tuple(taps.tolist())))
    error, best = min(found)
    return HalfTaps(best, error)


def ssim_defines(work: SsimWork) -> Dict[str, Union[int, str]]:
    """The preprocessor definitions that make the kernel do this work."""
    found = ssim_literals(work.window, work.sigma)
    halves = np.array(half_taps(work.window, work.sigma).taps, np.float16).view(np.uint16)
    return {
        **found,
        "SSIM_TAPS": ",".join(found[f"SSIM_TAP_{k}"] for k in range(len(halves))),
        "SSIM_HALF_TAPS": ",".join(f"{bits:#x}u" for bits in halves),
        "WIDTH": work.width,
        "HEIGHT": work.height,
        "STRIDE": work.stride,
        "INPUT": INPUTS[work.source],
        "OUT_MAP": MAPS[work.map_dtype],
        "MASKED": int(work.masked),
    }
