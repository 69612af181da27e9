"""The CUDA backend: a few launches per frame, compiled for its format and scheduled for the device."""

from __future__ import annotations

import os
from contextlib import suppress
from functools import lru_cache
from traceback import clear_frames
from typing import Callable, Dict, List, Optional, Tuple, Union

import numpy as np

from polar_pipeline._util.text import quoted
from polar_pipeline._util.values import whole_number
from polar_pipeline.backends.backend import Buffers, CupyArray, DeviceLostError, DeviceMemoryError
from polar_pipeline.backends.cuda.device_arrays import DeviceFrame
from polar_pipeline.backends.cuda.driver import Driver
from polar_pipeline.backends.cuda.launch import Launch
from polar_pipeline.backends.cuda.memory import SLOTS, Constants, FrameMemory
from polar_pipeline.backends.cuda.program import DeviceProgram, Program, make_launches, noise_frame
from polar_pipeline.backends.noise.model import require_one_noise
from polar_pipeline.backends.result import Result
from polar_pipeline.options import Options, make_options
from polar_pipeline.sensor.frames import Frame, FrameError, PackedFrame, RawFrame, check_size

#: A frame on the host or on the device.
AnyFrame = Union[Frame, DeviceFrame]
#: Share of the device's memory that frames of former formats and sizes may keep.
_KEPT_SHARE = 1 / 8
#: Frames whose times count where kinds of memory are compared, and frames before them that fill caches.
_MEASURED_FRAMES, _WARM_UP_FRAMES = 5, 2
#: Bytes of a pixel -> its raw format.
_RAW_FORMATS = {1: "u8", 2: "u16"}
#: (raw format, full scale, shape, variant, frames of a batch): what kernels are compiled for. The variant is whether
#: angles are ready, and the light of the longest exposure of merged frames, else 0.
_FormatKey = Tuple[str, int, Tuple[int, int], Tuple[bool, int], int]
_PLAIN = (False, 0)


def make_program(
    driver: Driver,
    launches: Tuple[Launch, ...],
    options: Options,
    buffers: Buffers,
    constants: Constants,
    frames: int = 0,
) -> Program:
    """Make a program for frames of a format; on an integrated GPU with the kind of memory that is measured faster.

    An integrated GPU reads what the CPU wrote without a copy, but does not cache it (NVIDIA, CUDA for Tegra). Which of
    mapped and copied memory takes less time depends on the device, and on how often kernels read a line again.

    Args:
        driver: The device.
        launches: The launches, in order.
        options: Options of the pipeline.
        buffers: Source of pinned arrays for the outputs.
        constants: Arrays on the device that programs share.
        frames: Number of frames of a batch; 0 for single frames.

    Raises:
        CompileError: A kernel does not compile.
        DeviceError: The device is too small, or stopped working.
        ScheduleError: No schedule fits the device.
    """
    if options.output == "device":  # its results need the device's memory
        return DeviceProgram(driver, launches, options, constants, False, frames)
    if not driver.device.integrated:
        return Program(driver, launches, options, constants, driver.device.maps_host)
    mapped = Program(driver, launches, options, constants, True)
    seconds = _measure(mapped, launches, options, buffers)
    with suppress(DeviceMemoryError):  # copies need more memory
        copied = Program(driver, launches, options, constants, False)
        if _measure(copied, launches, options, buffers) < seconds:
            return copied
    return mapped


def _measure(program: Program, launches: Tuple[Launch, ...], options: Options, buffers: Buffers) -> float:
    """Measure the seconds of a frame of noise from the caller's array to the caller's arrays: a median."""
    rows, reference = noise_frame(launches, options)
    seconds: List[float] = []
    try:
        for _ in range(_WARM_UP_FRAMES + _MEASURED_FRAMES):
            frame = program.submit(rows, buffers, reference)()
            seconds.append(sum(frame.timings.values()))
    finally:
        program.forget()
    return float(np.median(seconds[_WARM_UP_FRAMES:]))


class CudaBackend:
    """Backend that computes frames on a GPU.

    Args:
        options: Options of the pipeline.
        driver: The GPU; by default the first.

    Raises:
        RuntimeError: There is no GPU, or no CuPy.
    """

    #: Frames that can be in flight: submitted, their result not yet taken.
    depth = SLOTS

    def __init__(self, options: Options, driver: Optional[Driver] = None) -> None:
        self._options = options
        self._driver = driver or Driver()
        self._programs: Dict[_FormatKey, Program] = {}
        self._kept = _KEPT_SHARE * self._driver.total_memory()
        self._constants = Constants(self._driver)
        self._pinned = Buffers(self._driver.host_array)
        self._frames = FrameMemory(self._driver)
        self._latest: Optional[_FormatKey] = None  # of the previous frame

    @property
    def device(self) -> str:
        """Description of the GPU; for an integrated one, once measured, with the kind of memory."""
        facts = [self._driver.name, self._driver.device.arch]
        if self._driver.device.integrated and self._programs:
            latest = list(self._programs.values())[-1]
            facts.append("host memory mapped" if latest.maps_host else "copies in device memory")
        return f"cuda ({', '.join(facts)})"

    def is_ready(self, frame: AnyFrame) -> bool:
        """Return whether the kernels for frames of this shape and format are compiled and loaded."""
        return _readable(frame)[1] in self._programs

    def prepare(self, frame: AnyFrame) -> None:
        """Compile and load the kernels for frames like this one, and allocate their memory.

        Raises:
            CompileError: A kernel does not compile.
            DeviceMemoryError: The device is too small.
            DeviceLostError: The device stopped working.
            FrameError: The frame has pixels that the calibration lacks.
        """
        self._driver.run(self._prepare, *_readable(frame))

    def _prepare(self, frame: AnyFrame, key: _FormatKey) -> Program:
        program = self._programs.pop(key, None)
        if program is not None:
            self._programs[key] = program  # last: the others are older
            return program
        if self._latest in self._programs:  # which is in use is closed last
            self._programs[self._latest] = self._programs.pop(self._latest)
        options = self._options if isinstance(frame, DeviceFrame) else self._options.for_frame(frame)
        if not isinstance(frame, DeviceFrame):
            require_one_noise(options, frame)
        while program is None:
            try:
                program = self._make_program(key, options)
            except DeviceMemoryError:  # noqa: PERF203 - closing the oldest frees memory
                if not self._close_oldest():
                    raise
        rows = self._programs.values()
        while program.memory + sum(row.memory for row in rows) > self._kept and self._close_oldest():
            pass
        self._programs[key] = program
        return program

    def _close_oldest(self) -> bool:
        """Close the least recently used launches without a frame in flight; return whether some were closed."""
        idle = next((key for key, row in self._programs.items() if not row.is_busy), None)
        if idle is None:
            return False
        del self._programs[idle]
        return True

    def _make_program(self, key: _FormatKey, options: Options) -> Program:
        raw_format, full_scale, shape, _, frames = key
        launches = make_launches(options, raw_format, full_scale, shape)
        try:
            return make_program(self._driver, launches, options, self._pinned, self._constants, frames)
        except BaseException as err:
            # The frames of the traceback would keep memory of the device in use. Closures stay, as of comprehensions:
            # no such function that refers to this memory may fail.
            cause: Optional[BaseException] = err
            while cause is not None:
                clear_frames(cause.__traceback__)
                cause = cause.__cause__ or cause.__context__
            raise

    def frame_memory(self, size: int) -> Optional[np.ndarray]:
        """Return (size,) uint8 in pinned memory to receive a frame in; None if no memory is left.

        Its content is free once nothing refers to it. May be called from any thread.
        """
        return self._frames.get(size)

    def submit(self, frame: AnyFrame, reference: Optional[np.ndarray] = None) -> Callable[[], Result]:
        """Start computing a frame, without waiting for it; at most `depth` can be in flight.

        Frames come back in the order in which they were submitted.

        Args:
            frame: The mosaic.
            reference: (h, w) float32 that SSIM compares S0/2 with, in mode `reference`; uploaded when it changes.

        Returns:
            What waits for the frame and returns its results. It raises a DeviceLostError if the device stopped working,
            and a RuntimeError if the results were taken before.

        Raises:
            CompileError: The kernel does not compile.
            DeviceMemoryError: The device is too small.
            DeviceLostError: The device stopped working.
            FrameError: The frame has pixels that the calibration lacks.
            RuntimeError: `depth` frames are in flight.
        """
        frame, key = _readable(frame)
        rows = frame.rows if isinstance(frame, PackedFrame) else frame.mosaic
        if key != self._latest or key not in self._programs:
            program = self._driver.run(self._prepare, frame, key)
            program.forget()  # the frame it had last is not the previous frame
            self._latest = key
        is_pinned = isinstance(rows, np.ndarray) and self._frames.holds(rows)
        return self._driver.run(self._programs[key].submit, rows, self._pinned, reference, is_pinned)

    def device_frame(self, raw: Union[CupyArray, RawFrame]) -> DeviceFrame:
        """Return a frame or batch that is in device memory, without a copy.

        Args:
            raw: Array of any library, or a `RawFrame` of one.

        Raises:
            FrameError: Wrong type (`type`), shape, size or full scale (`size`); the options compare a frame with
                another one; or only the calibration states how many of 16 bits are used (`calibration`).
            ValueError: It is on another GPU.
        """
        options = self._options
        array = self._driver.as_array(raw.mosaic if isinstance(raw, RawFrame) else raw)
        if array.dtype.char not in "BH":
            raise FrameError("type", f"raw must be a uint8 or uint16 array, got {array.dtype}")
        if array.ndim not in (2, 3) or 0 in array.shape:
            raise FrameError("size", f"raw must be (H, W), or (N, H, W) for a batch, got shape {quoted(array.shape)}")
        check_size(*array.shape[-2:])
        limit = (1 << 8 * array.itemsize) - 1
        if options.calibrated_bits not in (0, options.bit_depth) and limit > 255 and not isinstance(raw, RawFrame):
            bits, got = options.calibrated_bits, options.bit_depth
            text = (
                f"the calibration is of frames of {bits} bits: set bit_depth to {bits} for frames on the GPU, got {got}"
            )
            raise FrameError("calibration", text)
        full_scale = raw.full_scale if isinstance(raw, RawFrame) else min(options.full_scale, limit)
        try:
            frame = DeviceFrame(array, whole_number("full_scale", full_scale, 0, limit) or limit)
        except ValueError as err:
            raise FrameError("size", str(err)) from None
        if frame.frames and (options.output != "device" or (options.has_ssim and options.ssim_mode != "consistency")):
            raise FrameError("size", "a batch needs output='device', and for SSIM ssim_mode='consistency'")
        return frame

    def reset(self) -> None:
        """Forget the previous frame (SSIM mode `temporal`)."""
        self._latest = None

    def close(self) -> None:
        """Release everything but what is still in use: results, and frames in flight."""
        self._programs.clear()
        self._latest = None


def _readable(frame: AnyFrame) -> Tuple[AnyFrame, _FormatKey]:
    """Return a frame that kernels can read, with 10-bit packed pixels unpacked, and its format for the compiler."""
    if isinstance(frame, DeviceFrame):
        return frame, (_RAW_FORMATS[frame.mosaic.itemsize], frame.full_scale, frame.shape, _PLAIN, frame.frames)
    if isinstance(frame, PackedFrame):
        if frame.fmt.bits == 12:
            return frame, (f"12{frame.fmt.packing}", frame.full_scale, frame.shape, _PLAIN, 0)
        frame = frame.unpack()
    if frame.light is not None:
        raise FrameError(
            "type",
            "angle images in color and Stokes vectors are computed on the CPU: set --backend cpu (backend='cpu')",
        )
    variant = frame.is_split, frame.exposures.largest_ratio if frame.exposures else 0
    return frame, (_RAW_FORMATS[frame.mosaic.itemsize], frame.full_scale, frame.mosaic.shape, variant, 0)


@lru_cache(maxsize=1)  # of each process: see below
def problem() -> Optional[str]:
    """Return why the backend cannot work on this machine, or None if it computed a small frame.

    A GPU that is full or was lost is no reason: that may pass, and every frame reports it.
    """
    try:
        backend = CudaBackend(make_options(products=("dolp",)))
        backend.submit(RawFrame(np.zeros((32, 32), np.uint8), 255))()
    except (DeviceMemoryError, DeviceLostError):
        return None
    except (RuntimeError, ValueError, OSError) as err:
        return str(err)
    return None


#: A process that was forked from one that uses the GPU cannot use it.
os.register_at_fork(after_in_child=problem.cache_clear)
