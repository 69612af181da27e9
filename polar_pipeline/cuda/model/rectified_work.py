"""The first launch where it also rectifies: the contract between Python and `kernels/mono_rectified.cu`."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Dict, Optional, Tuple, Union

import numpy as np

from polar_pipeline.cuda.model.specs import SSIM_FROM_MOSAIC
from polar_pipeline.cuda.model.transform_work import MAX_FRACTION
from polar_pipeline.cuda.model.work import (
    TYPES,
    PolarizationWork,
    image_outputs,
    polarization_defines,
    polarization_key,
)
from polar_pipeline.geometry import SamplingMap, make_map
from polar_pipeline.options import Options
from polar_pipeline.plan import Plan

#: (width, height) of the tiles of the output to choose from.
TILES = ((64, 16), (32, 32), (32, 16))
#: Superpixels of a thread along x: windows begin and end at multiples of it.
UNIT = 8
#: Bits of the columns and rows of a position together, and of its columns at least.
POSITION_BITS, MIN_COLUMN_BITS = 12, 6
#: Up to here the kernel's sums, of 11 bits, say exactly which superpixels are dark.
MAX_MIN_INTENSITY = 0.25


@dataclass(frozen=True)
class RectifiedWork:
    """One launch: mosaic in, products of a rectified image out.

    Attributes:
        mosaic: What the launch would do without a geometry: from the same frames to the same products.
        size: (height, width) of the outputs.
        windows: (width, height) of the largest part of the Stokes image that a tile's samples lie in, by `TILES`.
        sampling: The map, of which these windows are.
    """

    mosaic: PolarizationWork
    size: Tuple[int, int]
    windows: Tuple[Tuple[int, int], ...]
    sampling: SamplingMap = field(compare=False, repr=False)

    @property
    def output_size(self) -> Tuple[int, int]:
        """(height, width) of the outputs."""
        return self.size

    @property
    def outputs(self) -> Tuple[Tuple[str, str], ...]:
        """(name, element type) of what is stored."""
        return self.mosaic.outputs

    @property
    def dtypes(self) -> Dict[str, str]:
        """Element type per output."""
        return self.mosaic.dtypes

    def window(self, tile: Tuple[int, int]) -> Tuple[int, int]:
        """(width, height) of the window of a tile."""
        return self.windows[TILES.index(tile)]


def not_in_one_launch(work: PolarizationWork, plan: Plan, options: Options) -> Optional[str]:
    """Why one launch cannot make the products of a geometry from the mosaic, None if it can.

    Args:
        work: The launch that stores planes.
        plan: What to compute.
        options: How, with a geometry.
    """
    geometry = options.geometry
    assert geometry is not None
    outputs = image_outputs(plan, options)
    needs = (
        ("rectify without scale", geometry.lens is not None and geometry.scale == 1),
        ("rotate 0 or 180", geometry.rotate % 180 == 0),
        *((text, met(replace(work, outputs=outputs))) for text, met in SSIM_FROM_MOSAIC),
        ("an even height", work.height % 2 == 0),
        (
            "neither images of angles nor ssim_mode consistency",
            not any(name == "sums" or name.startswith("angle_") for name, _ in outputs),
        ),
        (f"min_intensity up to {MAX_MIN_INTENSITY}", options.min_intensity <= MAX_MIN_INTENSITY),
    )
    return next((f"rectifying in one launch needs {text}" for text, met in needs if not met), None)


def make_rectified_work(work: PolarizationWork, plan: Plan, options: Options) -> RectifiedWork:
    """The launch that makes the rectified products of some options; `not_in_one_launch` says whether it can.

    Args:
        work: The launch that would store planes.
        plan: What to compute.
        options: How, with a geometry.

    Raises:
        FrameError: The geometry does not fit the frame.
    """
    assert options.geometry is not None
    sampling = make_map(options.geometry, work.output_size)
    windows = tuple(_window(sampling, tile) for tile in TILES)
    return RectifiedWork(replace(work, outputs=image_outputs(plan, options)), sampling.size, windows, sampling)


def positions_by_tile(sampling: SamplingMap, tile: Tuple[int, int]) -> np.ndarray:
    """(tiles, height, width, 2) float32: columns and rows of samples; -1 outside, and where a tile leaves the output.

    Args:
        sampling: A map with positions and scale 1.
        tile: (width, height).
    """
    assert sampling.positions is not None
    (x, y), (height, width) = tile, sampling.size
    down, across = -(-height // y), -(-width // x)
    rest = ((0, down * y - height), (0, across * x - width), (0, 0))
    padded = np.pad(sampling.positions, rest, constant_values=-1).reshape(down, y, across, x, 2)
    return np.ascontiguousarray(padded.transpose(0, 2, 1, 3, 4)).reshape(-1, y, x, 2)


def window_corners(placed: np.ndarray) -> np.ndarray:
    """(tiles, 2) uint32: column and row where the window of each tile begins.

    A window begins at a multiple of `UNIT`, and with a column that no sample needs, except at the picture's border.

    Args:
        placed: From `positions_by_tile`.
    """
    is_outside = placed[..., :1] < 0
    lowest = np.where(is_outside, np.float32(np.inf), placed).min((1, 2))
    corners = np.floor(np.where(np.isinf(lowest), 0, lowest)).astype(np.int64)
    corners[:, 0] = np.maximum(corners[:, 0] - 1, 0) // UNIT * UNIT
    return corners.astype(np.uint32)


def _window(sampling: SamplingMap, tile: Tuple[int, int]) -> Tuple[int, int]:
    """(width, height) of the largest window of a tile: both neighbours of a sample, and a column that none needs."""
    placed = positions_by_tile(sampling, tile)
    most = (placed - window_corners(placed)[:, np.newaxis, np.newaxis]).max((0, 1, 2))
    columns, rows = (max(0, int(number)) + 2 for number in most)
    return -(-(columns + 1) // UNIT) * UNIT, rows


def column_bits(window: Tuple[int, int]) -> int:
    """Bits of a position for the columns of a window, and for one more, where samples outside lie."""
    return max(MIN_COLUMN_BITS, window[0].bit_length())


def rectified_defines(work: RectifiedWork) -> Dict[str, Union[int, str]]:
    """The preprocessor definitions that make the kernel do this work."""
    height, width = work.size
    source_height, source_width = work.mosaic.output_size
    return {
        **polarization_defines(work.mosaic),
        "HALF_RESOLUTION": 0,  # WIDTH and HEIGHT are those of the outputs
        "SOURCE_WIDTH": source_width,
        "SOURCE_HEIGHT": source_height,
        "WIDTH": width,
        "HEIGHT": height,
        "SCALE": 1,
        "POSITIONS": 1,
        "FRACTION": MAX_FRACTION,
        "BY_COLUMNS": 0,
        "PLANES": TYPES["float16"],
    }


def rectified_key(work: RectifiedWork) -> str:
    """A work as short text without its size: the key of tuned schedules."""
    return f"rectified {polarization_key(work.mosaic)}"
