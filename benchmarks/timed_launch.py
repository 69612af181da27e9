"""Launches of the package on this GPU, on many frames at once."""

from __future__ import annotations

from typing import Any, Dict, Tuple

import numpy as np
from batches import BatchBuffers
from timing import FRAMES, cupy, driver

from polar_pipeline.backends.cuda.arguments import SSIM_ARGUMENT, fill_options
from polar_pipeline.backends.cuda.driver import LoadedKernel
from polar_pipeline.backends.cuda.kernels import Schedule, launch_defines, piece_count
from polar_pipeline.backends.cuda.launch import TransformLaunch, compile_launch
from polar_pipeline.backends.cuda.solver import Launch
from polar_pipeline.backends.cuda.work import OUTPUTS, PolarizationWork, SsimWork, TransformWork, Work
from polar_pipeline.options import Options


def chosen(work: Work) -> Launch:
    """The launch that the backend takes on this GPU."""
    return Launch(work, compile_launch(driver(), work).schedule, driver().device)


def loaded(launch: Launch) -> LoadedKernel:
    """The kernel of a launch."""
    defines = launch_defines(launch.work, launch.schedule)
    return driver().load(launch.schedule.kernel, defines, launch.shared_bytes)


class TimedLaunch:
    """A compiled launch; calling it starts it once.

    Args:
        launch: What it does and how.

    Attributes:
        launch: The same.
        registers: Of a thread.
        spill_bytes: Of a thread.
        shared_bytes: Of a block.
    """

    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        self._kernel = loaded(launch)
        owner = self._kernel.owner
        self.registers, self.spill_bytes = owner.num_regs, owner.local_size_bytes
        self.shared_bytes = owner.shared_size_bytes + launch.shared_bytes

    @property
    def schedule(self) -> Schedule:
        """How it does its work."""
        return self.launch.schedule

    def __call__(self, argument: np.ndarray, frames: int = FRAMES) -> None:
        launch, stream = self.launch, cupy.cuda.get_current_stream().ptr
        grid = launch.kernel.grid(launch.work, launch.schedule, frames)
        driver().launch(self._kernel, grid, launch.schedule.threads, launch.shared_bytes, stream, argument)


class TimedSsim(TimedLaunch):
    """An SSIM launch on images in device memory.

    Args:
        launch: What it does and how.
        first: Address of the first image of frame 0.
        second: Address of the second image of frame 0.
        stride: Bytes from one frame to the next.
    """

    def __init__(self, launch: Launch, first: int, second: int, stride: int) -> None:
        super().__init__(launch)
        work = launch.work
        assert isinstance(work, SsimWork)
        self._first, self._second, self._stride = first, second, stride
        self.arrays = {
            "map": cupy.empty((FRAMES, *work.map_size), work.map_dtype or "uint8"),
            "pieces": cupy.empty((FRAMES, piece_count(work, launch.schedule)), np.float32),
            "done": cupy.zeros(FRAMES, np.uint32),
            "blocks": cupy.empty((FRAMES, *work.block_size), np.float32),
            "mean": cupy.empty(FRAMES, np.float32),
        }

    def compare(self, frame: int = 0, count: int = FRAMES) -> None:
        """Compare the images of some frames."""
        argument = np.zeros((), SSIM_ARGUMENT)
        argument["first"] = self._first + frame * self._stride
        argument["second"] = self._second + frame * self._stride
        argument["first_stride"] = argument["second_stride"] = self._stride
        for name, array in self.arrays.items():
            argument[name] = array.data.ptr + frame * array[0].nbytes
        self(argument, count)


class TimedGeometry:
    """Both launches of frames with a geometry.

    Args:
        works: What they do.
        options: Of the frames.
    """

    def __init__(self, works: Tuple[Work, ...], options: Options) -> None:
        mosaic, transform = works[:2]
        assert isinstance(mosaic, PolarizationWork)
        assert isinstance(transform, TransformWork)
        self._transform = TransformLaunch(driver(), transform, options, mosaic.full_scale)
        self._first, self._last = TimedLaunch(chosen(mosaic)), TimedLaunch(self._transform.chosen)
        self._buffers = BatchBuffers(mosaic, FRAMES)
        self._planes = {n: cupy.zeros(FRAMES * size, cupy.uint8) for n, size in transform.plane_bytes.items()}
        self._counts = cupy.zeros((FRAMES, 2), cupy.uint32)
        self.out: Dict[str, Any] = {
            name: cupy.zeros((FRAMES, *options.shape_of(name, transform.output_size)), dtype)
            for name, dtype in transform.outputs
        }
        self.schedules = (self._first.schedule, self._last.schedule)
        self._arguments = [self._arguments_of(k, options, mosaic.full_scale) for k in range(FRAMES)]

    def _arguments_of(self, k: int, options: Options, full_scale: int) -> Tuple[np.ndarray, np.ndarray]:
        """The argument of each launch for the batch that begins at a frame."""
        frame, last = self._buffers.argument(k), self._transform.argument.copy()
        fill_options(frame, options, full_scale)
        for name, plane in self._planes.items():
            frame["out"][OUTPUTS.index(name)] = last[name] = plane.data.ptr + k * self._buffers.sizes[name]
        for name, images in self.out.items():
            last["frame"]["out"][OUTPUTS.index(name)] = images[k].data.ptr
        last["frame"]["counts"] = self._counts[k].data.ptr
        return frame, last

    def __call__(self, k: int, count: int) -> None:
        first, last = self._arguments[k]
        self._first(first, count)
        self._last(last, count)
