"""The launches of `demosaic: learned`, in which a network corrects denoised planes of the Stokes image."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Dict, Iterator, List, Mapping, NamedTuple, Tuple

import numpy as np

from polar_pipeline.backends.cuda.device import WARP, Device
from polar_pipeline.backends.cuda.launch import (
    AnyKernel,
    Defines,
    Kernel,
    Schedule,
    register_bound,
    round_up,
)
from polar_pipeline.backends.cuda.pixels import CORRECTED, DENOISED, FRAME_ARGUMENT, PLANES
from polar_pipeline.backends.cuda.planes import PlaneLaunch
from polar_pipeline.backends.cuda.polarization import PolarizationLaunch
from polar_pipeline.backends.network import CHANNELS, LAYERS, alignment, grid_size, weights
from polar_pipeline.backends.noise.gains import plane_gains
from polar_pipeline.options import Options
from polar_pipeline.polarimetry.coefficients import NOISE_LINEAR, c_float

#: Images of the network, in half.
_IMAGES = ("fine", "middle", "merged", "change", "noise")
_READ_PLANES = (*PLANES, *(DENOISED[name] for name in PLANES[:2]))
#: `struct LearnedArguments` of `kernels/learned.cuh`.
LEARNED_ARGUMENT = np.dtype(
    [
        ("frame", FRAME_ARGUMENT),
        *((name, np.uint64) for name in (*_READ_PLANES, "weights", "biases", *_IMAGES)),
        *((name, np.float32) for name in ("light_gain", "polarization_gain")),
    ],
    align=True,
)


class Part(NamedTuple):
    """One of the launches.

    Attributes:
        reads: Names of arrays that it reads.
        writes: Names of the images that it stores; the last part stores products or planes.
        step: Pixels of the planes along each side of an output of the part.
        tile: Outputs of a block along x and y, the same on all devices.
        channels: Channels of the image in shared memory, which is one output larger on each side; 0 without an image.
    """

    reads: Tuple[str, ...]
    writes: Tuple[str, ...]
    step: int
    tile: Tuple[int, int]
    channels: int


#: The parts in order, by the name of their kernel; the numbers are those of `kernels/learned.cuh`.
PARTS: Dict[str, Part] = {
    "learned_features": Part(_READ_PLANES, ("fine",), 2, (32, 16), CHANNELS[0]),
    "learned_middle": Part(("fine",), ("middle",), 4, (32, 8), CHANNELS[1]),
    "learned_coarse": Part(("middle",), ("merged",), 8, (16, 8), CHANNELS[2]),
    "learned_fine": Part(("merged", "fine"), ("fine",), 4, (32, 8), CHANNELS[1]),
    "learned_change": Part(("fine", DENOISED["means"]), ("change", "noise"), 2, (32, 16), CHANNELS[0]),
    "learned_products": Part(("change", *_READ_PLANES[3:]), (), 1, (128, 8), 0),
}
_THREADS = 256
#: Side of the matrices that tensor cores multiply, and bytes in which the lanes of a warp exchange a matrix of floats.
_MATRIX, _SCRATCH = 16, 1024
#: Unused channels of each pixel in shared memory, so that neighboring pixels lie in different banks.
_SPACING = 8


@dataclass(frozen=True)
class LearnedLaunch(PlaneLaunch):
    """A launch of the network; the launch that denoises comes before.

    Attributes:
        part: A key of `PARTS`. Only the last part has `stored`.
    """

    stage = "learned"
    argument_type = LEARNED_ARGUMENT
    part: str

    @property
    def is_last(self) -> bool:
        """Whether the part stores the products, or the planes that a geometry reads."""
        return not PARTS[self.part].writes

    @property
    def plane_names(self) -> Tuple[str, ...]:
        """The planes of the polarization launch that the network reads: all."""
        return PLANES

    @property
    def reads(self) -> Tuple[str, ...]:
        """Names of the arrays that the part reads."""
        if not self.is_last:
            return PARTS[self.part].reads
        return (*PARTS[self.part].reads, *(PLANES[2],) * self.needs_excess, *("noise",) * self.mosaic.uses_noise)

    @property
    def writes(self) -> Tuple[str, ...]:
        """Names of the arrays that the part stores."""
        return PARTS[self.part].writes or tuple(CORRECTED.get(name, name) for name in self.dtypes)

    @property
    def alignment(self) -> Tuple[Tuple[int, int], int]:
        """Rows and columns of superpixels of the network that begin before the frame, and the sign of S2."""
        return alignment(self.mosaic.sensor)

    @property
    def grid_size(self) -> Tuple[int, int]:
        """(height, width) in superpixels of the network."""
        return grid_size(self.mosaic.sensor, self.output_size)

    def _array_bytes(self, name: str) -> int:
        """Return the bytes of an array that a part reads, or of an image that it stores."""
        pixels, superpixels = self.height * self.width, self.grid_size[0] * self.grid_size[1]
        if name in _READ_PLANES:
            return pixels * np.dtype(self.planes).itemsize * (1 + ("differences" in name))
        half_channels = {"fine": 4 * CHANNELS[0], "middle": CHANNELS[1], "merged": CHANNELS[1], "noise": 4 * 4}
        if name in half_channels:
            return superpixels * half_channels[name] // 2
        return pixels * (8 if name == "change" else 4)

    @property
    def read_bytes(self) -> int:
        """Bytes of the planes and images that the part reads for one frame."""
        return sum(map(self._array_bytes, self.reads))

    @property
    def written_bytes(self) -> int:
        """Bytes that the part stores for one frame."""
        return super().written_bytes + sum(map(self._array_bytes, PARTS[self.part].writes))

    @property
    def key(self) -> str:
        """The launch as short text without its size: the key of measured schedules."""
        parts = [self.part.replace("_", " "), "mono", self.planes]
        if self.is_last:
            parts += [*self.mosaic.limits_text, self.stored_text]
        return " ".join(parts)

    def scratch(self, schedule: Schedule) -> Dict[str, int]:
        """Return the bytes of images of the network, or of corrected planes."""
        return {**super().scratch(schedule), **{name: self._array_bytes(name) for name in PARTS[self.part].writes}}

    @property
    def kernels(self) -> Tuple[AnyKernel, ...]:
        return (LearnedKernel(self.part),)

    def set_up(self, argument: np.ndarray, options: Options, schedule: Schedule) -> Dict[str, np.ndarray]:
        super().set_up(argument, options, schedule)
        gains = plane_gains(*self.mosaic.method)
        argument["light_gain"], argument["polarization_gain"] = gains.s0[0, 0], gains.polarization[0]
        packed = pack_network()
        return {} if self.is_last else {"weights": packed.weights, "biases": packed.biases}

    def fill(self, argument: np.ndarray, addresses: Mapping[str, int]) -> None:
        self.fill_outputs(argument["frame"], addresses)
        for name in {*self.reads, *PARTS[self.part].writes}:
            argument[name] = addresses[name]

    def defines(self) -> Defines:
        (top, left), sign = self.alignment
        packed, (grid_height, grid_width) = pack_network(), self.grid_size
        defines: Defines = {
            **super().defines(),
            **{f"{name.upper()}_TILES": first for name, first in packed.first_tiles.items()},
            **{f"{name.upper()}_BIASES": first for name, first in packed.first_biases.items()},
            "PART": list(PARTS).index(self.part),
            "TOP": top,
            "LEFT": left,
            "S2_SIGN": c_float(sign),
            "GRID_HEIGHT": grid_height,
            "GRID_WIDTH": grid_width,
        }
        if self.is_last and self.mosaic.uses_noise:
            defines.update(self.mosaic.noise_defines(NOISE_LINEAR))
        return defines


def learned_launches(
    mosaic: PolarizationLaunch, size: Tuple[int, int], planes: str, stored: Tuple[Tuple[str, str], ...]
) -> List[LearnedLaunch]:
    """Return the launches of the network in order; arguments are attributes of `PlaneLaunch`, and (height, width)."""
    return [LearnedLaunch(mosaic, *size, planes, () if row.writes else stored, name) for name, row in PARTS.items()]


@dataclass(frozen=True)
class LearnedKernel(Kernel[LearnedLaunch]):
    """The kernel of a part: a block makes a tile."""

    @property
    def file(self) -> str:
        return "learned"

    def schedules(self, launch: LearnedLaunch, device: Device) -> Iterator[Schedule]:
        yield Schedule(self.name, _THREADS, *PARTS[launch.part].tile)

    def shared_bytes(self, launch: LearnedLaunch, schedule: Schedule) -> int:
        part = PARTS[launch.part]
        if not part.channels:
            return 0
        rows, columns = schedule.tile_y + 2, schedule.tile_x + 2
        image, scratch = 2 * rows * columns * (part.channels + _SPACING), _THREADS // WARP * _SCRATCH
        around = 4 * 4 * rows * columns if launch.part == "learned_features" else 0
        return round_up(image + scratch + around, 32)

    def registers(self, launch: LearnedLaunch, schedule: Schedule, device: Device) -> int:
        blocks = 3 if device.capability >= 80 else 2  # `BLOCKS` of `kernels/learned.cuh`
        return register_bound(schedule.threads, schedule.threads * blocks)

    def grid(self, launch: LearnedLaunch, schedule: Schedule, frames: int = 1) -> Tuple[int, int, int]:
        step = PARTS[launch.part].step
        height, width = launch.output_size if step == 1 else (2 * side // step for side in launch.grid_size)
        return -(-width // schedule.tile_x) * -(-height // schedule.tile_y), 1, frames

    def loads(self, launch: LearnedLaunch, schedule: Schedule) -> float:
        halo = 2 * (PARTS[launch.part].channels > 0)
        return (1 + halo / schedule.tile_x) * (1 + halo / schedule.tile_y)


# ---------------------------------------------------------------------------------------------------------- the weights


class PackedNetwork(NamedTuple):
    """The weights of the network as the kernels read them.

    Attributes:
        weights: (tiles, 2, 16, 16) float16, read-only: a tile has the weights of 16 inputs and 16 outputs of a layer,
            first as [output, input], then in the order of lanes (`order_of_tile`). Tiles of the same inputs follow
            each other.
        biases: (outputs of all layers,) float32, read-only.
        first_tiles: Name of a layer -> index of its first tile.
        first_biases: Name of a layer -> index of its first bias.
    """

    weights: np.ndarray
    biases: np.ndarray
    first_tiles: Dict[str, int]
    first_biases: Dict[str, int]


@lru_cache(maxsize=1)
def pack_network() -> PackedNetwork:
    """Pack the weights of the network. Every call returns the same arrays, so that they are uploaded once."""
    tiles, biases = [np.empty((0, 2, _MATRIX, _MATRIX), np.float16)], [np.empty(0, np.float32)]
    first_tiles, first_biases = {}, {}
    for name in LAYERS:
        first_tiles[name], first_biases[name] = sum(map(len, tiles)), sum(map(len, biases))
        matrix, bias = matrix_of(name)
        blocks = matrix.reshape(len(matrix) // _MATRIX, _MATRIX, -1, _MATRIX).transpose(0, 2, 3, 1)
        blocks = blocks.reshape(-1, _MATRIX, _MATRIX)
        is_image = LAYERS[name].size == 3
        by_lane = blocks.reshape(len(blocks), -1)[:, order_of_tile(is_image)].reshape(blocks.shape)
        tiles.append(np.stack([blocks, by_lane], 1))
        biases.append(bias)
    packed = PackedNetwork(np.concatenate(tiles), np.concatenate(biases), first_tiles, first_biases)
    packed.weights.flags.writeable = packed.biases.flags.writeable = False
    return packed


def matrix_of(name: str) -> Tuple[np.ndarray, np.ndarray]:
    """Return the weights of a layer as (inputs, outputs), both multiples of 16, and the biases of the outputs.

    Inputs are ordered by the pixel of the window, then by channel. Outputs of `up` layers are ordered by the pixel of
    the square, then by channel. Inputs of `enter` and outputs of `leave` have four channels of each pixel of a
    superpixel, as each of four lanes has one pixel (`kernels/learned_features.cuh`, `kernels/learned_change.cuh`).
    """
    layer = LAYERS[name]
    matrix = weights()[name].transpose(2, 3, 1, 0).reshape(-1, layer.outputs)
    bias = weights()[f"{name}_bias"].astype(np.float32)
    if name.startswith("up"):
        order = np.arange(layer.outputs).reshape(-1, 4).T.reshape(-1)
        matrix, bias = matrix[:, order], bias[order]
    if name == "leave":  # of each lane: three values of its pixel from (3 values, 4 pixels), and one of the noise
        order = np.arange(layer.outputs).reshape(4, 4).T.reshape(-1)
        matrix, bias = matrix[:, order], bias[order]
    if name == "enter":  # (2 halves, 4 pixels, 4 values) from seven values of four pixels, and the level
        padded = np.pad(matrix, [(0, 3), (0, 0)])
        matrix = padded.reshape(2, 4, 4, -1).transpose(0, 2, 1, 3).reshape(padded.shape)
    return matrix, bias


@lru_cache(maxsize=2)
def order_of_tile(is_image: bool) -> np.ndarray:
    """Return the order in which lanes read 16 x 16 weights [output, input]: (256,) indices, eight of each lane.

    They are the second factors of two products of `tensor_multiply_add`, which give lane 4 g + t outputs 4 t to
    4 t + 3.

    Args:
        is_image: Whether the lanes read inputs from an image in shared memory; otherwise lane 4 g + t has inputs 4 t to
            4 t + 3 in its registers.
    """
    order = []
    for lane in range(WARP):
        g, t = lane // 4, lane % 4
        pairs = (2 * t, 2 * t + 8) if is_image else (4 * t, 4 * t + 2)
        for half in range(2):
            row = 4 * (g // 2) + 2 * half + g % 2
            order += [_MATRIX * row + first + k for first in pairs for k in range(2)]
    return np.array(order)
