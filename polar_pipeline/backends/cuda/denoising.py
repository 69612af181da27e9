"""The launch of `denoise`: planes of the Stokes image in, denoised planes or products out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, Iterator, Mapping, Tuple

import numpy as np

from polar_pipeline.backends.cuda.device import Device
from polar_pipeline.backends.cuda.launch import AnyKernel, ArrayType, Defines, Kernel, Launch, Schedule, register_bound
from polar_pipeline.backends.cuda.polarization import (
    ANGLE_IMAGES,
    DENOISED,
    FRAME_ARGUMENT,
    OUTPUTS,
    PLANES,
    TYPE_NUMBERS,
    PolarizationLaunch,
    fill_options,
    image_bytes,
    output_defines,
    plane_bytes,
    product_arrays,
)
from polar_pipeline.backends.noise.gains import plane_gains
from polar_pipeline.options import Options
from polar_pipeline.polarimetry.coefficients import DENOISE_LEE, DENOISE_REACH, literals

#: `struct DenoiseArguments` of `kernels/denoise.cuh`.
DENOISE_ARGUMENT = np.dtype(
    [
        ("frame", FRAME_ARGUMENT),
        *((name, np.uint64) for name in PLANES),
        ("light_gains", np.float32, (3, 3)),
        ("polarization_gains", np.float32, (3,)),
        ("strength", np.float32),
        ("means_noise", np.float32, (11,)),
    ],
    align=True,
)


@dataclass(frozen=True)
class DenoiseLaunch(Launch):
    """The launch of `denoise`, behind the first one.

    Attributes:
        mosaic: The first launch of the frame as it would be without denoising: its methods, products and noise.
        height: Height of planes and outputs.
        width: Width of planes and outputs.
        planes: Element type of the planes.
        is_auto: Whether only pixels change whose noise matters.
        stored: (name, element type) of each stored array: products, or planes that a geometry reads.
    """

    stage = "denoise"
    argument_type = DENOISE_ARGUMENT
    mosaic: PolarizationLaunch
    height: int
    width: int
    planes: str
    is_auto: bool
    stored: Tuple[Tuple[str, str], ...]

    @property
    def is_color(self) -> bool:
        """Whether there are planes of three colors."""
        return self.mosaic.sensor.is_color

    @property
    def dtypes(self) -> Dict[str, str]:
        """Element type of each stored array."""
        return dict(self.stored)

    @property
    def plane_names(self) -> Tuple[str, ...]:
        """The planes of `PLANES` that the launch reads: angles, and the noise of angles, need the last one."""
        has_angles = any(name in (*ANGLE_IMAGES, PLANES[2]) for name in self.dtypes)
        return PLANES if has_angles or self.mosaic.uses_noise else PLANES[:2]

    @property
    def read_bytes(self) -> int:
        """Bytes of the planes of one frame."""
        return image_bytes(self.output_size, ((name, self.planes) for name in self.plane_names), self.is_color)

    @property
    def written_bytes(self) -> int:
        """Bytes that the launch stores for one frame."""
        return image_bytes(self.output_size, self.stored, self.is_color)

    @property
    def key(self) -> str:
        """The launch as short text without its size: the key of measured schedules."""
        parts = ["denoise", "color" if self.is_color else "mono", self.planes, *["auto"] * self.is_auto]
        parts += ["debias"] * self.mosaic.debias + ["limits-aolp"] * self.mosaic.limits_aolp
        return " ".join((*parts, "+".join(f"{name}:{dtype}" for name, dtype in self.stored)))

    @property
    def outputs(self) -> Dict[str, ArrayType]:
        return product_arrays(self.stored, self.output_size, self.is_color)

    def scratch(self, _: Schedule) -> Dict[str, int]:
        """Return the bytes of denoised planes."""
        sizes = plane_bytes(self.stored, self.output_size, self.is_color)
        return {DENOISED[name]: size for name, size in sizes.items()}

    @property
    def kernels(self) -> Tuple[AnyKernel, ...]:
        return (DenoiseKernel("denoise"),)

    def set_up(self, argument: np.ndarray, options: Options, schedule: Schedule) -> Dict[str, np.ndarray]:
        fill_options(argument["frame"], options, self.mosaic.full_scale)
        gains = plane_gains(*self.mosaic.method)
        channels = len(gains.s0)
        argument["light_gains"][:channels, :channels] = gains.s0 / 4  # variances of S0/2
        argument["polarization_gains"][:channels] = gains.polarization
        argument["strength"] = 2 * options.denoise_strength  # S1 and S2: twice
        argument["means_noise"] = gains.of_means
        return {}

    def fill(self, argument: np.ndarray, addresses: Mapping[str, int]) -> None:
        frame = argument["frame"]
        frame["counts"] = addresses["counts"]
        frame["out"] = [addresses.get(DENOISED.get(name, name), 0) for name in OUTPUTS]
        for name in self.plane_names:
            argument[name] = addresses[name]

    def defines(self) -> Defines:
        sizes = {"WIDTH": self.width, "HEIGHT": self.height}
        return {
            **literals(),
            **output_defines(self.dtypes),
            **(self.mosaic.noise_defines() if self.mosaic.uses_noise else {}),
            **sizes,
            **{f"SOURCE_{name}": size for name, size in sizes.items()},
            "COLOR": int(self.is_color),
            "HALF_RESOLUTION": 0,
            "HALF_PRECISION": 0,
            "PLANES": TYPE_NUMBERS[self.planes],
            "IS_AUTO": int(self.is_auto),
            "BLOCKS": _BLOCKS[self.is_color],
        }


#: The tile, and the threads of a block: at least one for four pixels of the tile and its surroundings. All devices have
#: the same, as the rounding of sums depends on it.
_TILE_X, _TILE_Y, _THREADS = 32, 20, 256
#: Blocks of a multiprocessor for which registers must suffice: in mono, and in color.
_BLOCKS = (3, 2)
#: Pixels around the tile whose lines are fitted, and those that are loaded.
_FITTED = DENOISE_REACH + DENOISE_LEE
_LOADED = _FITTED + DENOISE_REACH


@dataclass(frozen=True)
class DenoiseKernel(Kernel[DenoiseLaunch]):
    """The kernel that denoises: a block makes a tile."""

    def schedules(self, launch: DenoiseLaunch, device: Device) -> Iterator[Schedule]:
        yield Schedule(self.name, _THREADS, _TILE_X, _TILE_Y)

    def shared_bytes(self, launch: DenoiseLaunch, schedule: Schedule) -> int:
        return 4 * 6 * (schedule.tile_y + 2 * _FITTED) * (schedule.tile_x + 2 * _LOADED + 1)

    def registers(self, launch: DenoiseLaunch, schedule: Schedule, device: Device) -> int:
        return register_bound(schedule.threads, schedule.threads * _BLOCKS[launch.is_color])

    def grid(self, launch: DenoiseLaunch, schedule: Schedule, frames: int = 1) -> Tuple[int, int, int]:
        return -(-launch.width // schedule.tile_x) * -(-launch.height // schedule.tile_y), 1, frames

    def loads(self, launch: DenoiseLaunch, schedule: Schedule) -> float:
        return (1 + 2 * _LOADED / schedule.tile_x) * (1 + 2 * _LOADED / schedule.tile_y)
