"""Launches as compiled kernels on the device."""

from __future__ import annotations

import logging
from dataclasses import replace
from itertools import islice
from typing import Dict, Mapping, Optional, Tuple

import numpy as np

from polar_pipeline.backends.cuda.arguments import SSIM_ARGUMENT, TRANSFORM_ARGUMENT, fill_options
from polar_pipeline.backends.cuda.driver import Driver
from polar_pipeline.backends.cuda.kernels import launch_defines, piece_count
from polar_pipeline.backends.cuda.memory import COUNTERS, DeviceArray
from polar_pipeline.backends.cuda.sampling import pack_map
from polar_pipeline.backends.cuda.solver import Launch, solve
from polar_pipeline.backends.cuda.work import OUTPUTS, SsimWork, TransformWork, Work
from polar_pipeline.geometry import make_map
from polar_pipeline.options import Options
from polar_pipeline.polarimetry.coefficients import SSIM_BLOCK

_LOG = logging.getLogger(__name__)
#: Shape and element type of an array.
ArrayType = Tuple[Tuple[int, ...], str]
#: Counters of the launch before that of a geometry, which counts pixels of the output itself.
UNUSED_COUNTS = "unused counts"
#: Schedules that are compiled at most until one keeps everything in registers.
MOST_TRIES = 6


class CompiledLaunch:
    """The kernel of a launch, compiled and loaded.

    Args:
        driver: The device.
        launch: Work and schedule of the kernel.
        frames: In one launch.

    Attributes:
        schedule: Schedule of the work.
        spilled_bytes: Spilled bytes of each thread, what its registers cannot hold.

    Raises:
        CompileError: The kernel does not compile.
    """

    def __init__(self, driver: Driver, launch: Launch, frames: int = 1) -> None:
        self.schedule = launch.schedule
        self._driver = driver
        self._grid = launch.kernel.grid(launch.work, launch.schedule, frames)
        self._shared_bytes = launch.shared_bytes
        defines = launch_defines(launch.work, launch.schedule)
        self._kernel = driver.load(launch.schedule.kernel, defines, self._shared_bytes)
        self.spilled_bytes = driver.local_bytes(self._kernel)

    def launch(self, stream: int, argument: np.ndarray) -> None:
        """Start the kernel, in the stream's order.

        Args:
            stream: Handle of the stream.
            argument: The kernel's only argument, a structure passed by value.
        """
        self._driver.launch(self._kernel, self._grid, self.schedule.threads, self._shared_bytes, stream, argument)


def compile_launch(driver: Driver, work: Work, frames: int = 1) -> CompiledLaunch:
    """Compile a work by its best schedule: the first that was measured or spills no registers, else that spills least.

    Args:
        driver: The device.
        work: Work of the launch.
        frames: In one launch.

    Raises:
        CompileError: The kernel does not compile.
        ScheduleError: No schedule fits the device.
    """
    best: Optional[CompiledLaunch] = None
    for launch in islice(solve(work, driver.device), MOST_TRIES):
        compiled = CompiledLaunch(driver, launch, frames)
        if best is not None and compiled.spilled_bytes >= best.spilled_bytes:
            continue
        best = compiled
        if not best.spilled_bytes or launch.measured_us is not None:
            break
    assert best is not None
    if best.spilled_bytes:
        _LOG.debug("%s spills %d bytes of a thread: %s", best.schedule.kernel, best.spilled_bytes, work.key)
    return best


class TransformLaunch:
    """The launch of a geometry, with its map.

    Args:
        driver: The device.
        work: Work of the launch.
        options: Options of the pipeline, with a geometry.
        full_scale: Raw number of a saturated pixel.
        frames: In one launch.

    Attributes:
        chosen: What the kernel does, and how.
        argument: A `TRANSFORM_ARGUMENT` with all but addresses of planes, outputs and counters.
        outside: (height, width) uint8, 1 where a sample is outside the Stokes image; None where there are none.
        scratch: Bytes of each array that it needs on the device, by name: the planes, and counters that are not read.

    Raises:
        CompileError: The kernel does not compile.
        DeviceMemoryError: The device is too small.
        ScheduleError: No schedule fits the device.
    """

    def __init__(self, driver: Driver, work: TransformWork, options: Options, full_scale: int, frames: int = 1) -> None:
        assert options.geometry is not None
        sampling = make_map(options.geometry, work.source)
        self.outside = sampling.outside
        self.chosen = next(solve(work, driver.device))
        self.argument = np.zeros((), TRANSFORM_ARGUMENT)
        fill_options(self.argument["frame"], options, full_scale)
        steps = (int(column + sampling.source[1] * row) for column, row in sampling.corner.T)
        self.argument["right"], self.argument["down"], self.argument["origin"] = steps
        self.argument["turn"] = sampling.turn
        self._map: Dict[str, DeviceArray] = {}
        if sampling.positions is not None:
            packed = pack_map(sampling, work, self.chosen.schedule)
            self.chosen = replace(self.chosen, work=replace(work, fraction=packed.fraction))
            for name in ("positions", "origins", "turns"):
                self._map[name] = DeviceArray(driver, getattr(packed, name))
                self.argument[name] = self._map[name].pointer
        self._compiled = CompiledLaunch(driver, self.chosen, frames)
        self._outputs, self._planes = work.dtypes, work.plane_names
        self.scratch = {**work.plane_bytes, UNUSED_COUNTS: 4 * COUNTERS}

    def launch(self, stream: int, counts: int, addresses: Mapping[str, int]) -> None:
        """Make the products of the planes, in the stream's order.

        Args:
            stream: Handle of the stream.
            counts: Address of the counters of saturated and dark pixels.
            addresses: Address of every plane and output.
        """
        frame = self.argument["frame"]
        frame["counts"] = counts
        for name in self._outputs:
            frame["out"][OUTPUTS.index(name)] = addresses[name]
        for name in self._planes:
            self.argument[name] = addresses[name]
        self._compiled.launch(stream, self.argument)


class SsimLaunch:
    """The SSIM launch, with the arrays that it fills.

    Args:
        driver: The device.
        work: Work of the launch.
        compiled: Its kernel.
        outside: (height, width) uint8, not 0 where the images have no values; None if they have values everywhere.

    Attributes:
        outputs: Type of each array that it fills for the host, by name: `ssim_map` if it is wanted, `ssim`, `blocks`.
        scratch: Bytes of each array that it needs on the device, by name.
    """

    def __init__(
        self, driver: Driver, work: SsimWork, compiled: CompiledLaunch, outside: Optional[np.ndarray] = None
    ) -> None:
        self._compiled = compiled
        masks = _masks(work, outside) if work.masked else {}
        self._masks = {name: DeviceArray(driver, array) for name, array in masks.items()}
        self.outputs: Dict[str, ArrayType] = {"ssim": ((), "float32"), "blocks": (work.block_size, "float32")}
        if work.map_dtype:
            self.outputs["ssim_map"] = (work.map_size, work.map_dtype)
        self.scratch = {"pieces": 4 * piece_count(work, compiled.schedule), "done": 4}

    def launch(self, stream: int, first: int, second: int, addresses: Mapping[str, int], stride: int = 0) -> None:
        """Compare two images of each frame, in the stream's order.

        Args:
            stream: Handle of the stream.
            first: Address of the first image.
            second: Address of the second one.
            stride: Bytes from the images of a frame to those of the next one.
            addresses: Address of every array in `outputs` and `scratch`.
        """
        argument = np.zeros((), SSIM_ARGUMENT)
        argument["first"], argument["second"] = first, second
        argument["first_stride"] = argument["second_stride"] = stride
        argument["mean"] = addresses["ssim"]
        argument["map"] = addresses.get("ssim_map", 0)
        for name in ("blocks", *self.scratch):
            argument[name] = addresses[name]
        for name, array in self._masks.items():
            argument[name] = array.pointer
        self._compiled.launch(stream, argument)


def _masks(work: SsimWork, outside: Optional[np.ndarray]) -> Dict[str, np.ndarray]:
    """Return the mask of the map, and the numbers of pixels with a value in its blocks and in all.

    Args:
        work: Work of the launch.
        outside: (height, width), not 0 where the images have no values; None if they have values everywhere.
    """
    (height, width), stride = work.map_size, work.stride
    mask = np.zeros((height, width), np.uint8)
    if outside is not None:
        cut = outside[: height * stride, : width * stride].reshape(height, stride, width, stride)
        mask[...] = cut.max((1, 3)) > 0
    rows, columns = np.arange(0, height, SSIM_BLOCK), np.arange(0, width, SSIM_BLOCK)
    inside = np.add.reduceat(np.add.reduceat(1 - mask.astype(np.float64), rows, 0), columns, 1).reshape(-1)
    return {"mask": mask, "inside": np.append(inside, inside.sum()).astype(np.float32)}
