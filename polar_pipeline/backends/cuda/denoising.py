"""The launch of `denoise`: planes of the Stokes image in, denoised planes or products out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, Iterator, Mapping, Tuple

import numpy as np

from polar_pipeline.backends.cuda.device import Device
from polar_pipeline.backends.cuda.launch import AnyKernel, Defines, Kernel, Schedule, register_bound
from polar_pipeline.backends.cuda.pixels import FRAME_ARGUMENT, PLANES
from polar_pipeline.backends.cuda.planes import PlaneLaunch
from polar_pipeline.backends.noise.gains import plane_gains
from polar_pipeline.options import Options
from polar_pipeline.polarimetry.coefficients import DENOISE_LEE, DENOISE_REACH

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
class DenoiseLaunch(PlaneLaunch):
    """The launch of `denoise`, behind the first one.

    Attributes:
        is_auto: Whether only pixels change whose noise matters.
    """

    stage = "denoise"
    argument_type = DENOISE_ARGUMENT
    is_auto: bool

    @property
    def plane_names(self) -> Tuple[str, ...]:
        """The planes of `PLANES` that the launch reads: angles, and the noise of angles, need the last one."""
        return PLANES if self.needs_excess or self.mosaic.uses_noise else PLANES[:2]

    @property
    def key(self) -> str:
        """The launch as short text without its size: the key of measured schedules."""
        parts = ["denoise", "color" if self.is_color else "mono", self.planes, *["auto"] * self.is_auto]
        return " ".join((*parts, *self.mosaic.limits_text, self.stored_text))

    @property
    def kernels(self) -> Tuple[AnyKernel, ...]:
        return (DenoiseKernel("denoise"),)

    def set_up(self, argument: np.ndarray, options: Options, schedule: Schedule) -> Dict[str, np.ndarray]:
        gains = plane_gains(*self.mosaic.method)
        channels = len(gains.s0)
        argument["light_gains"][:channels, :channels] = gains.s0 / 4  # variances of S0/2
        argument["polarization_gains"][:channels] = gains.polarization
        argument["strength"] = 2 * options.denoise_strength  # S1 and S2: twice
        argument["means_noise"] = gains.of_means
        return super().set_up(argument, options, schedule)

    def fill(self, argument: np.ndarray, addresses: Mapping[str, int]) -> None:
        self.fill_outputs(argument["frame"], addresses)
        for name in self.plane_names:
            argument[name] = addresses[name]

    def defines(self) -> Defines:
        return {
            **super().defines(),
            **(self.mosaic.noise_defines() if self.mosaic.uses_noise else {}),
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
