"""One launch of a frame: what it computes, the kernels that can, and how one of them runs on a device."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Dict, Generic, Iterable, Iterator, List, Mapping, Optional, Set, Tuple, TypeVar, Union

import numpy as np

from polar_pipeline.backends.cuda.device import WARP, Device
from polar_pipeline.backends.cuda.driver import Argument, Driver
from polar_pipeline.backends.cuda.memory import Constants, DeviceArray, Slot
from polar_pipeline.options import Options

_LOG = logging.getLogger(__name__)
#: Schedules that are compiled at most until one keeps everything in registers.
MAX_TRIES = 6

#: Shape and element type of an array.
ArrayType = Tuple[Tuple[int, ...], str]
#: Preprocessor definitions.
Defines = Dict[str, Union[int, str]]


@dataclass(frozen=True, order=True)
class Schedule:
    """How a launch divides its work.

    Attributes:
        kernel: Name of the kernel (`Kernel.name`).
        threads: Per block.
        tile_x: Pixels of the output along x: of a block, of a warp, or of a thread, by kernel.
        tile_y: Pixels of the output along y of a block; 0 for kernels without tiles.
        rows: Rows that a thread moves down: of the output, or in the first stage of ADR in a tile; 0 for others.
    """

    kernel: str
    threads: int
    tile_x: int
    tile_y: int = 0
    rows: int = 0


@dataclass(frozen=True)
class Strip:
    """A part of a frame, which is uploaded, computed and downloaded while its neighbors are.

    Attributes:
        raw: Rows of the mosaic that are uploaded with it.
        grid: Number of blocks along x, y and z that compute it.
        first_block: Number of the first one.
        rows: Rows of the outputs that are complete with it.
    """

    raw: slice
    grid: Tuple[int, int, int]
    first_block: int
    rows: slice


class Launch(ABC):
    """What one launch computes: a value, for one size and format of frames; needs no device.

    Subclasses have width and height: of the frame for the first launch, else of what the launch makes.
    """

    #: Name of the launch in timings.
    stage: ClassVar[str]
    #: The argument of its kernels, as NumPy describes the structure.
    argument_type: ClassVar[np.dtype]
    #: Name of an array that a frame may lack, without which there is nothing to compute; "" for none.
    needs = ""
    width: int
    height: int

    @property
    def size(self) -> Tuple[int, int]:
        """(width, height), under which schedules are kept."""
        return self.width, self.height

    @property
    def output_size(self) -> Tuple[int, int]:
        """(height, width) of what is stored."""
        return self.height, self.width

    @property
    @abstractmethod
    def key(self) -> str:
        """The launch as short text without its size: the key of measured schedules."""

    @property
    @abstractmethod
    def outputs(self) -> Dict[str, ArrayType]:
        """Arrays of one frame for the caller, by name."""

    @abstractmethod
    def scratch(self, schedule: Schedule) -> Dict[str, int]:
        """Return the bytes of each array of one frame that stays on the device, by name."""

    @property
    @abstractmethod
    def read_bytes(self) -> int:
        """Bytes that the launch reads for one frame, each once."""

    @property
    @abstractmethod
    def written_bytes(self) -> int:
        """Bytes that the launch stores for one frame."""

    @property
    @abstractmethod
    def kernels(self) -> Tuple[AnyKernel, ...]:
        """The kernels that can do it, the preferred one first."""

    def kernel(self, schedule: Schedule) -> AnyKernel:
        """Return the kernel of a schedule."""
        return next(kernel for kernel in self.kernels if kernel.name == schedule.kernel)

    @abstractmethod
    def defines(self) -> Defines:
        """Return the preprocessor definitions of what is computed."""

    @abstractmethod
    def set_up(self, argument: np.ndarray, options: Options, schedule: Schedule) -> Dict[str, np.ndarray]:
        """Fill in what is the same for all frames; return arrays that the kernel reads, by their names there."""

    @abstractmethod
    def fill(self, argument: np.ndarray, addresses: Mapping[str, int]) -> None:
        """Fill in the addresses of a frame's arrays: `raw`, `counts`, outputs, scratch."""


LaunchT = TypeVar("LaunchT", bound=Launch)


@dataclass(frozen=True)
class Kernel(ABC, Generic[LaunchT]):
    """A kernel with its schedules and their resources.

    Attributes:
        name: Name of the kernel, and of its file in `kernels/`.
    """

    name: str
    #: What a byte that is loaded again as a halo costs, compared with one from memory: it comes from a cache.
    halo_cost: ClassVar[float] = 0.5

    @property
    def file(self) -> str:
        """Stem of the file, and name of the function in it."""
        return self.name

    @abstractmethod
    def schedules(self, launch: LaunchT, device: Device) -> Iterator[Schedule]:
        """Return the schedules for a launch, whether they fit the device or not."""

    @abstractmethod
    def shared_bytes(self, launch: LaunchT, schedule: Schedule) -> int:
        """Return the dynamic shared memory of a block; each kernel asserts that its own structure fits."""

    @abstractmethod
    def registers(self, launch: LaunchT, schedule: Schedule, device: Device) -> int:
        """Return the largest number of registers per thread; the compiled kernel has the actual number."""

    @abstractmethod
    def grid(self, launch: LaunchT, schedule: Schedule, frames: int = 1) -> Tuple[int, int, int]:
        """Return the number of blocks along x, y and z; z is the frame."""

    @abstractmethod
    def loads(self, launch: LaunchT, schedule: Schedule) -> float:
        """Return how often each input pixel is loaded, halos included; at least 1."""

    def defines(self, launch: LaunchT, schedule: Schedule) -> Defines:
        """Return the preprocessor definitions of a launch and its schedule; tiles count raw pixels there."""
        sizes = {"TILE_X": schedule.tile_x, "TILE_Y": schedule.tile_y, "ROWS": schedule.rows}
        return {
            **launch.defines(),
            "THREADS": schedule.threads,
            "SHARED_BYTES": self.shared_bytes(launch, schedule),
            **{name: size for name, size in sizes.items() if size},
        }


AnyKernel = Kernel[Any]


def round_up(number: int, step: int) -> int:
    """Round a number up to a multiple of `step`."""
    return -(-number // step) * step


def register_bound(threads: int, resident: int) -> int:
    """Return the registers per thread under a launch bound that keeps a number of threads resident."""
    blocks = max(1, -(-resident // threads))
    warps = -(-blocks * (threads // WARP) // 4)
    return min(255, 16384 // (warps * WARP) // 8 * 8)


def resident_threads(device: Device) -> int:
    """Return `RESIDENT` of `kernels/frame.cuh`."""
    return 512 if 80 <= device.capability < 90 else 640


class CompiledLaunch:
    """A launch on a device: a compiled kernel, its argument, and the arrays that are the same for all frames.

    Args:
        driver: The device.
        launch: What is computed.
        schedule: How.
        frames: In one launch.

    Attributes:
        launch: The same.
        schedule: The same.
        stage: Name of the launch in timings.
        outputs: Arrays of one frame for the caller, by name.
        scratch: Bytes of each array of one frame that stays on the device, by name.
        spilled_bytes: Bytes of each thread that its registers cannot hold.

    Raises:
        CompileError: The kernel does not compile.
    """

    def __init__(self, driver: Driver, launch: Launch, schedule: Schedule, frames: int = 1) -> None:
        kernel = launch.kernel(schedule)
        self.launch, self.schedule = launch, schedule
        self.stage, self.outputs, self.scratch = launch.stage, launch.outputs, launch.scratch(schedule)
        self._grid, shared_bytes = kernel.grid(launch, schedule, frames), kernel.shared_bytes(launch, schedule)
        self._kernel = driver.load(kernel.file, kernel.defines(launch, schedule), shared_bytes)
        self._driver, self._needs = driver, launch.needs
        self._block = schedule.threads, 1, 1, shared_bytes
        self.spilled_bytes = driver.local_bytes(self._kernel)
        self._argument = np.zeros((), launch.argument_type)
        self._constants: List[DeviceArray] = []

    def set_up(self, options: Options, constants: Constants) -> None:
        """Complete what is the same for all frames: options, and arrays that kernels read.

        Raises:
            DeviceMemoryError: The device is too small.
        """
        arrays = self.launch.set_up(self._argument, options, self.schedule)
        for name, array in arrays.items():
            self._constants.append(constants.get(array))
            self._argument[name] = self._constants[-1].pointer

    def start(self, slot: Slot, strip: Optional[Strip] = None) -> bool:
        """Start the kernel for the frame of a slot, in the order of its stream; return False if it lacks an input.

        Args:
            slot: Memory of the frame.
            strip: The part of the frame to compute; only a `PolarizationLaunch` has such parts.
        """
        if self._needs and not slot.addresses[self._needs]:
            return False
        argument = slot.arguments.get(self)
        is_new = argument is None
        if argument is None:
            argument = slot.arguments[self] = Argument(self._argument)
        if slot.has_moved or is_new:
            self.launch.fill(argument.values, slot.addresses)
        grid = self._grid
        if strip is not None:
            grid, argument.values["first_block"] = strip.grid, strip.first_block
        self._driver.launch(self._kernel.function, *grid, *self._block, slot.stream, argument.parameters, 0)
        return True


def schedules_to_compile(
    launch: Launch, device: Device, schedules: Iterable[Tuple[str, Schedule]]
) -> Iterator[Tuple[str, Schedule]]:
    """Yield the first schedules whose threads differ in what they do or in their registers, `MAX_TRIES` at most.

    Schedules that differ only in the number of threads spill alike: where one does, the others are not worth a try.
    """
    tried: Set[Schedule] = set()
    for basis, schedule in schedules:
        registers = launch.kernel(schedule).registers(launch, schedule, device)
        thread = replace(schedule, threads=registers)
        if thread not in tried:
            tried.add(thread)
            yield basis, schedule
        if len(tried) == MAX_TRIES:
            return


def compile_launch(
    driver: Driver, launch: Launch, schedules: Iterable[Tuple[str, Schedule]], frames: int = 1
) -> CompiledLaunch:
    """Compile a launch with the first measured or spill-free schedule, otherwise with the one with the fewest spills.

    Args:
        driver: The device.
        launch: What is computed.
        schedules: (why, schedule), the best first, at least one.
        frames: In one launch.

    Raises:
        CompileError: The kernel does not compile.
        ScheduleError: No schedule fits the device.
    """
    best: Optional[CompiledLaunch] = None
    for basis, schedule in schedules_to_compile(launch, driver.device, schedules):
        compiled = CompiledLaunch(driver, launch, schedule, frames)
        if best is None or compiled.spilled_bytes < best.spilled_bytes:
            best = compiled
        if not compiled.spilled_bytes or basis != "solved":
            break
    assert best is not None
    if best.spilled_bytes:
        _LOG.debug("%s spills %d bytes of a thread: %s", best.schedule.kernel, best.spilled_bytes, launch.key)
    return best
