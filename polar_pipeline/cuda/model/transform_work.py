"""What the launch of a geometry has to do: the contract between Python and `kernels/transform.cu`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, Tuple, Union

import numpy as np

from polar_pipeline.coefficients import literals
from polar_pipeline.cuda.model.work import (
    PLANES,
    POLARIZATION_ARGUMENT,
    TYPES,
    PolarizationWork,
    image_outputs,
    output_defines,
)
from polar_pipeline.options import Options
from polar_pipeline.plan import Plan

#: Most bits of a position below a pixel: those of `geometry.sampling.STEP`.
MAX_FRACTION = 10
#: `struct TransformArguments` of `kernels/transform.cuh`.
TRANSFORM_ARGUMENT = np.dtype(
    [
        ("frame", POLARIZATION_ARGUMENT),
        *((name, np.uint64) for name in PLANES),
        *((name, np.uint64) for name in ("positions", "origins", "turns")),
        *((name, np.int32) for name in ("origin", "right", "down")),
        ("turn", np.float32),
    ],
    align=True,
)


@dataclass(frozen=True)
class TransformWork:
    """One launch: planes of the Stokes image in, products of another geometry out.

    Attributes:
        source: (height, width) of the planes.
        height: Of the outputs.
        width: Of the outputs.
        scale: Samples along each side of an output pixel.
        positions: Whether samples lie between pixels, where a map says; else they are pixels.
        by_columns: Whether neighbouring columns of the output lie in neighbouring rows of the planes.
        color: Whether there are planes of three colours.
        half_precision: Whether the kernel computes in pairs of half.
        planes: Element type of the planes.
        outputs: (name, element type) of what is stored.
        fraction: Bits of a position below a pixel; of no meaning without positions.
    """

    source: Tuple[int, int]
    height: int
    width: int
    scale: int
    positions: bool
    by_columns: bool
    color: bool
    half_precision: bool
    planes: str
    outputs: Tuple[Tuple[str, str], ...]
    fraction: int = MAX_FRACTION

    @property
    def output_size(self) -> Tuple[int, int]:
        """(height, width) of the outputs."""
        return self.height, self.width

    @property
    def dtypes(self) -> Dict[str, str]:
        """Element type per output."""
        return dict(self.outputs)

    @property
    def plane_names(self) -> Tuple[str, ...]:
        """The planes that it reads, of `PLANES`."""
        return PLANES if self.has_excess else PLANES[:2]

    @property
    def has_excess(self) -> bool:
        """Whether the third of `PLANES` is read."""
        return any(name == "sums" or name.startswith("angle_") for name in self.dtypes)


def make_transform_work(first: PolarizationWork, plan: Plan, options: Options) -> TransformWork:
    """The launch of the geometry of some options, on what the first launch stores.

    Raises:
        FrameError: The geometry does not fit the frame.
    """
    geometry = options.geometry
    assert geometry is not None
    return TransformWork(
        first.output_size,
        *options.output_size((first.height, first.width)),
        geometry.scale,
        geometry.lens is not None,
        geometry.rotate % 180 != 0,
        first.sensor.is_color,
        first.half_precision,
        first.dtypes["means"],
        image_outputs(plan, options),
    )


def transform_defines(work: TransformWork) -> Dict[str, Union[int, str]]:
    """The preprocessor definitions that make the kernel do this work, coefficients as literals."""
    return {
        **literals(),
        **output_defines(work.dtypes),
        "COLOR": int(work.color),
        "HALF_RESOLUTION": 0,
        "HALF_PRECISION": int(work.half_precision),
        "SOURCE_WIDTH": work.source[1],
        "SOURCE_HEIGHT": work.source[0],
        "WIDTH": work.width,
        "HEIGHT": work.height,
        "SCALE": work.scale,
        "POSITIONS": int(work.positions),
        "FRACTION": work.fraction,
        "BY_COLUMNS": int(work.by_columns),
        "PLANES": TYPES[work.planes],
    }


def transform_key(work: TransformWork) -> str:
    """A work as short text without its size: the key of tuned schedules."""
    parts = ["color" if work.color else "mono", "fp16" if work.half_precision else "fp32", work.planes]
    parts += ["rectified"] * work.positions + [f"scale-{work.scale}"] * (work.scale > 1)
    parts += ["by-columns"] * work.by_columns
    parts.append("+".join(f"{name}:{dtype}" for name, dtype in work.outputs))
    return " ".join(parts)
