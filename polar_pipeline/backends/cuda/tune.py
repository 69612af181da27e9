"""Measurement of schedules on the GPU of this machine, for `polar-pipeline tune`."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Dict, List, Mapping, Optional, Tuple

import numpy as np

from polar_pipeline._util.progress import with_bar
from polar_pipeline.backends.backend import Buffers, CompileError, DeviceError, DeviceLostError
from polar_pipeline.backends.cuda.arguments import FRAME_ARGUMENT, SSIM_ARGUMENT, as_compared, fill_options
from polar_pipeline.backends.cuda.backend import prepare_launches
from polar_pipeline.backends.cuda.correction import DeviceCorrection
from polar_pipeline.backends.cuda.driver import Driver
from polar_pipeline.backends.cuda.kernels import Schedule, kernels_of
from polar_pipeline.backends.cuda.launch import CompiledLaunch
from polar_pipeline.backends.cuda.memory import DeviceArray, Sizes, Slot
from polar_pipeline.backends.cuda.solver import Launch, candidates, requested_works
from polar_pipeline.backends.cuda.tuned import Measured, keep
from polar_pipeline.backends.cuda.work import OUTPUTS, PAIRS, PLANES, PolarizationWork, SsimWork, Work, noise_frames
from polar_pipeline.options import Options

_LOG = logging.getLogger(__name__)
_SEED = 20240229
#: Frames in a launch of the first kernel: more bytes than any cache holds.
_FRAMES = 32
#: Times that so many frames are computed, whose mean is taken.
_ITERATIONS = 7
#: Schedules of a kernel that are tried, those of least effort first.
_TRIED = 100
#: Outputs that are means of values up to 1 in float, and what sums in another order may make them differ by.
_MEANS, _MEAN_ERROR = ("blocks", "mean"), 1e-5


def tune(options: Options, device_name: str, raw_format: str, size: Tuple[int, int]) -> Dict[str, Measured]:
    """Measure the best candidates of each launch, but that of a geometry, and write the fastest into this user's file.

    The file is that of the device (`tuned_path`).

    Kernels work on the kind of memory that the backend takes for these options on this machine. Before a schedule is
    timed, its outputs must equal those of its kernel's first schedule.

    Args:
        options: Options of the pipeline.
        device_name: The device that the file is for: the one of this machine.
        raw_format: A key of `CAMERA_FORMATS`.
        size: (width, height) of the frame.

    Returns:
        By launch (the key of its work), the fastest schedule and its time.

    Raises:
        RuntimeError: CuPy or the device is missing, or two schedules give different results.
        FrameError: The frame has pixels that the calibration lacks.
        OSError: The file cannot be written.
        ScheduleError: The file is broken, or no schedule fits the device.
    """
    try:
        driver = Driver()
    except RuntimeError as err:
        raise RuntimeError(f"tune needs a GPU: {err}") from err
    if driver.device.name != device_name:
        raise RuntimeError(f"the GPU of this machine is {driver.device.name}, not {device_name}")
    works, fastest = requested_works(options, raw_format, size), {}
    found = options.correction((size[1], size[0]))
    correction = None if found is None else DeviceCorrection(driver, found)
    maps_host = prepare_launches(driver, works, options, Buffers(driver.host_array), correction).maps_host
    for work in works:
        if isinstance(work, PolarizationWork):
            trial = _polarization_trial(driver, work, options, correction, maps_host)
        elif isinstance(work, SsimWork):
            trial = _ssim_trial(driver, work, maps_host)
        else:
            continue
        best = fastest[work.key] = trial.measure()
        keep(work, driver.device, best)
    return fastest


class _Array:
    """An array of a kernel: where it works on the host's memory in pinned memory, else on the device.

    Args:
        driver: The device.
        content: What it holds at first.
        is_mapped: Whether kernels work on the host's memory.

    Attributes:
        pointer: Its address for kernels.
    """

    def __init__(self, driver: Driver, content: np.ndarray, is_mapped: bool) -> None:
        self._driver = driver
        self._host = driver.host_array(content.shape, content.dtype.str)
        np.copyto(self._host, content)
        self._on_device = None if is_mapped else DeviceArray(driver, self._host)
        self.pointer = self._host.ctypes.data if self._on_device is None else self._on_device.pointer

    def clear(self, stream: int) -> None:
        """Fill it with zeros, in the stream's order, while no kernel runs."""
        if self._on_device is None:
            self._host.fill(0)
        else:
            self._driver.clear(self.pointer, self._host.nbytes, stream)

    def read(self, stream: int) -> np.ndarray:
        """Return the array's content once the stream's work is done."""
        if self._on_device is not None:
            self._driver.download(self._host, self.pointer, stream)
        return self._host


class _Trial:
    """A launch on noise on the GPU, and the results of its schedules.

    Args:
        driver: The device.
        work: Work of the launch.
        frames: In one launch.
        argument: The kernel's, without the addresses of `arrays`.
        inputs: Arrays that kernels read, or write for themselves, by name.
        outputs: What kernels write, by name.
    """

    def __init__(
        self,
        driver: Driver,
        work: Work,
        frames: int,
        argument: np.ndarray,
        inputs: Mapping[str, _Array],
        outputs: Mapping[str, _Array],
    ) -> None:
        self._driver, self._work, self._frames, self._argument = driver, work, frames, argument
        self._inputs, self._outputs = inputs, outputs
        for name, array in {**inputs, **outputs}.items():
            if name in OUTPUTS:
                argument["out"][OUTPUTS.index(name)] = array.pointer
            else:
                argument[name] = array.pointer
        slot = self._slot = Slot(driver, Sizes(0, {}, {}), maps_host=True)  # for its stream and its events
        self._stream, (self._begin, self._end, *_) = slot.stream, slot.marks
        self._first: Dict[Tuple[str, str], Dict[str, np.ndarray]] = {}

    def measure(self) -> Measured:
        """Measure all schedules, and return the fastest one.

        Raises:
            RuntimeError: None could be measured, or two give different results.
        """
        timed: List[Tuple[float, Schedule]] = []
        work, device = self._work, self._driver.device
        tried = [row for kernel in kernels_of(work) for row in candidates(kernel, work, device)[:_TRIED]]
        for schedule in with_bar(tried, len(tried), "schedule"):
            try:
                timed.append((self._time(schedule), schedule))
            except DeviceLostError:  # noqa: PERF203 - after other errors, the next schedule may work
                raise
            except (CompileError, DeviceError) as err:
                _LOG.warning("%s: %s", schedule, err)
        if not timed:
            raise RuntimeError(f"no schedule of {self._work.key} could be measured")
        microseconds, schedule = min(timed)
        return Measured(schedule, microseconds)

    def _time(self, schedule: Schedule) -> float:
        """Check the outputs of a schedule, and return its microseconds per frame."""
        driver, launch = self._driver, Launch(self._work, schedule, self._driver.device)
        compiled = CompiledLaunch(driver, launch, self._frames)
        for array in self._outputs.values():
            array.clear(self._stream)
        compiled.launch(self._stream, self._argument)
        outputs = {name: array.read(self._stream) for name, array in self._outputs.items()}
        self._wait()
        family = schedule.kernel, schedule.window
        first = self._first.setdefault(family, {name: content.copy() for name, content in outputs.items()})
        for name, content in outputs.items():
            is_near = name in _MEANS and np.allclose(content, first[name], rtol=0, atol=_MEAN_ERROR)
            if not is_near and not np.array_equal(content, first[name]):
                raise RuntimeError(f"{schedule} gives another {name} than the first schedule of its kernel")
        seconds = 0.0
        launches = _ITERATIONS * _FRAMES // self._frames
        for _ in range(launches):
            driver.record(self._begin, self._stream)
            compiled.launch(self._stream, self._argument)
            self._wait()
            seconds += driver.elapsed(self._begin, self._end)
        return 1e6 * seconds / launches / self._frames

    def _wait(self) -> None:
        """Wait until the device has done everything."""
        self._driver.record(self._end, self._stream)
        self._driver.wait(self._end)


def _polarization_trial(
    driver: Driver, work: PolarizationWork, options: Options, correction: Optional[DeviceCorrection], maps_host: bool
) -> _Trial:
    """Create a trial of the polarization launch, on frames that no cache holds."""
    raw = noise_frames(work, _FRAMES, _SEED)
    outputs = {"counts": _Array(driver, np.zeros((_FRAMES, 2), np.uint32), is_mapped=False)}
    for name, dtype in work.outputs:
        size = replace(work, outputs=((name, dtype),)).written_bytes
        stays = name in (*PAIRS, *PLANES)  # on the device
        outputs[name] = _Array(driver, np.zeros(_FRAMES * size, np.uint8), maps_host and not stays)
    argument = np.zeros((), FRAME_ARGUMENT)
    argument["raw_stride"], argument["step"] = raw[0].nbytes, raw.shape[-1]
    argument["width"], argument["height"] = work.width, work.height
    fill_options(argument, options, work.full_scale)
    if correction is not None:
        correction.fill(argument)
    return _Trial(driver, work, _FRAMES, argument, {"raw": _Array(driver, raw, maps_host)}, outputs)


def _ssim_trial(driver: Driver, work: SsimWork, maps_host: bool) -> _Trial:
    """Create a trial of the SSIM launch, on one frame whose images were stored just before."""
    noise = np.random.default_rng(_SEED)
    size = work.height, work.width
    inputs = {name: as_compared(noise.random(size, np.float32), work.source) for name in ("first", "second")}
    rows, columns = work.map_size
    inputs.update(pieces=np.zeros(rows * columns, np.float32), done=np.zeros(1, np.uint32))
    if work.masked:
        counts = np.ones(work.block_size[0] * work.block_size[1] + 1, np.float32)
        inputs.update(mask=np.zeros(work.map_size, np.uint8), inside=counts)
    outputs = {"blocks": np.zeros(work.block_size, np.float32), "mean": np.zeros(1, np.float32)}
    if work.map_dtype:
        outputs["map"] = np.zeros(work.map_size, work.map_dtype)
    return _Trial(
        driver,
        work,
        1,
        np.zeros((), SSIM_ARGUMENT),
        {name: _Array(driver, array, is_mapped=False) for name, array in inputs.items()},
        {name: _Array(driver, array, maps_host) for name, array in outputs.items()},
    )
