"""Measurement of schedules with Kernel Tuner, for `polar-pipeline tune`."""

from __future__ import annotations

import importlib
from dataclasses import replace
from itertools import groupby
from typing import Any, Dict, List, Mapping, Optional, Tuple

import numpy as np

from polar_pipeline.backend import Buffers
from polar_pipeline.cuda.arguments import FRAME_ARGUMENT, SSIM_ARGUMENT
from polar_pipeline.cuda.backend import prepare_launches
from polar_pipeline.cuda.correction import DeviceCorrection
from polar_pipeline.cuda.driver import DeviceError, Driver
from polar_pipeline.cuda.kernels import KERNELS, Schedule, kernels_of, launch_defines
from polar_pipeline.cuda.solver import candidates, requested_works
from polar_pipeline.cuda.source import OPTIONS, source
from polar_pipeline.cuda.tuned import Measured, keep
from polar_pipeline.cuda.work import OUTPUTS, PAIRS, PLANES, PolarizationWork, SsimWork, Work, noise_frames
from polar_pipeline.options import Options

_SEED = 20240229
#: Frames in a launch of the first kernel: more bytes than any cache holds.
_FRAMES = 32
#: Launches of as many frames whose mean is taken.
_ITERATIONS = 7
#: Schedules of a kernel that are tried, those of least effort first.
_TRIED = 100
#: What sums in other orders may differ by: they are means of values up to 1 in float.
_SUM_ERROR = 1e-5


def tune(options: Options, device_name: str, raw_format: str, size: Tuple[int, int]) -> Dict[str, Measured]:
    """Measure the best candidates of each launch, but that of a geometry, and write the fastest into this user's file.

    The file is that of the device (`tuned_path`).

    Kernels work on the kind of memory that the backend takes for these options on this machine. Before a configuration
    is timed, its outputs must equal those of its kernel's first configuration.

    Args:
        options: Options of the pipeline.
        device_name: The device that the file is for: the one of this machine.
        raw_format: A key of `CAMERA_FORMATS`.
        size: (width, height) of the frame.

    Returns:
        By launch (the key of its work), the fastest schedule and its time.

    Raises:
        RuntimeError: Kernel Tuner, CuPy or the device is missing, or two schedules give different results.
        FrameError: The frame has pixels that the calibration lacks.
        OSError: The file cannot be written.
        ScheduleError: The file is broken, or no schedule fits the device.
    """
    try:
        cupy: Any = importlib.import_module("cupy")
        tuner: Any = importlib.import_module("kernel_tuner")
    except ImportError as err:
        raise RuntimeError(f"tune needs CuPy and Kernel Tuner (pip extra tune): {err}") from err
    try:
        driver = Driver()
    except DeviceError as err:
        raise RuntimeError(f"tune needs a GPU: {err}") from err
    if driver.device.name != device_name:
        raise RuntimeError(f"the GPU of this machine is {driver.device.name}, not {device_name}")
    works = requested_works(options, raw_format, size)
    found = options.correction((size[1], size[0]))
    correction = None if found is None else DeviceCorrection(driver, found)
    prepared = prepare_launches(driver, works, options, Buffers(driver.host_array), correction)
    prepared.close()
    memory = _Memory(cupy, driver, prepared.maps_host)
    fastest = {}
    for work in works:
        trial: _Trial
        if isinstance(work, PolarizationWork):
            trial = _PolarizationTrial(memory, work, options.min_intensity, correction)
        elif isinstance(work, SsimWork):
            trial = _SsimTrial(memory, work)
        else:
            continue
        best = fastest[work.key] = trial.measure(tuner)
        keep(work, driver.device, best)
    if correction is not None:
        correction.close()
    return fastest


class _Memory:
    """Arrays in the same kinds of memory as those of the backend."""

    def __init__(self, cupy: Any, driver: Driver, maps_host: bool) -> None:
        self._cupy = cupy
        self._driver = driver
        self._maps_host = maps_host
        self.device = driver.device

    def own(self, array: np.ndarray) -> Any:
        """Return a copy that only the device sees."""
        return self._cupy.asarray(array)

    def shared(self, array: np.ndarray) -> Any:
        """Return a copy of an array that the host fills or reads."""
        if not self._maps_host:
            return self.own(array)
        pinned = self._driver.host_array(array.shape, array.dtype.str)
        np.copyto(pinned, array)
        return pinned

    def wait(self) -> None:
        """Wait until the device has finished."""
        self._cupy.cuda.runtime.deviceSynchronize()


def _address(array: Any) -> int:
    address: int = array.ctypes.data if isinstance(array, np.ndarray) else array.data.ptr
    return address


class _Trial:
    """A launch on noise on the GPU, and the results of its schedules.

    Args:
        memory: Memory of the arrays.
        work: Work of the launch.

    Attributes:
        work: The same.
        frames: In one launch.
        argument: The kernel's.
        outputs: Outputs of the launch, by name.
        sums: Those whose last bits depend on the order of additions, and so on the schedule.
    """

    frames = 1
    argument: Any
    outputs: Dict[str, Any]
    sums: Tuple[str, ...] = ()

    def __init__(self, memory: _Memory, work: Work) -> None:
        self.work = work
        self._memory = memory
        self._first: Dict[str, Dict[str, Any]] = {}

    def text(self, schedule: Schedule) -> str:
        """Return the kernel's source."""
        return source(schedule.kernel, launch_defines(self.work, schedule))

    def family(self, schedule: Schedule) -> str:
        """Return the name of the group of schedules whose outputs are identical."""
        raise NotImplementedError

    def clear(self) -> None:
        """Clear the outputs and counts of the last launches."""
        self._memory.wait()
        for array in self.outputs.values():
            array.fill(0)

    def as_first(self, family: str) -> bool:
        """Return whether the outputs are those of the first configuration of a family."""
        self._memory.wait()
        found = {name: array.copy() for name, array in self.outputs.items()}
        first = self._first.setdefault(family, found)
        for name, array in found.items():
            limit = _SUM_ERROR if name in self.sums else 0
            if (abs(array - first[name]) > limit).any():
                return False
        return True

    def measure(self, tuner: Any) -> Measured:
        """Measure all schedules, and return the fastest one."""

        def launched_alike(schedule: Schedule) -> Tuple[str, str, int]:
            return schedule.kernel, schedule.window, schedule.threads

        timed: List[Measured] = []
        device = self._memory.device
        able = [row for kernel in kernels_of(self.work) for row in candidates(kernel, self.work, device)[:_TRIED]]
        for _, group in groupby(sorted(able, key=launched_alike), launched_alike):
            timed += self._measure(tuner, list(group))
        if not timed:
            raise RuntimeError(f"no schedule of {self.work.key} could be measured; Kernel Tuner says why")
        return min(timed, key=lambda row: row.us or 0)

    def _measure(self, tuner: Any, schedules: List[Schedule]) -> List[Measured]:
        """Measure the schedules of one kernel, window and number of threads."""
        kernel = KERNELS[schedules[0].kernel]
        trial = self

        class Prepare(tuner.observers.BenchmarkObserver):  # type: ignore[misc]
            """Observer that clears the outputs of a configuration, and allows it more than 48 KiB of shared memory."""

            def register_device(self, dev: Any) -> None:
                copy = dev.copy_shared_memory_args

                def copy_shared_memory_args(smem_args: Mapping[str, int]) -> None:
                    copy(smem_args)
                    dev.func.max_dynamic_shared_size_bytes = smem_args["size"]
                    trial.clear()

                dev.copy_shared_memory_args = copy_shared_memory_args

            def get_results(self) -> Dict[str, Any]:
                return {}

        rows, _ = tuner.tune_kernel(
            kernel.name,
            lambda values: self.text(schedules[values["choice"]]),
            lambda values: kernel.grid(self.work, schedules[values["choice"]], self.frames),
            [self.argument],
            {"block_size_x": [schedules[0].threads], "choice": list(range(len(schedules)))},
            grid_div_x=[],
            grid_div_y=[],
            grid_div_z=[],
            defines={},
            smem_args={"size": lambda values: kernel.shared_bytes(self.work, schedules[values["choice"]])},
            observers=[Prepare()],
            answer=[None],
            verify=lambda *_: self.as_first(self.family(schedules[0])),
            compiler_options=list(OPTIONS),
            iterations=_ITERATIONS * _FRAMES // self.frames,
            lang="CUPY",
        )
        # what could not be compiled or launched has the name of its error for a time
        measured = [row for row in rows if isinstance(row["time"], float)]
        return [Measured(schedules[row["choice"]], 1000 * row["time"] / self.frames) for row in measured]


class _PolarizationTrial(_Trial):
    """The polarization launch, on frames that no cache holds."""

    frames = _FRAMES

    def __init__(
        self,
        memory: _Memory,
        work: PolarizationWork,
        min_intensity: float,
        correction: Optional[DeviceCorrection] = None,
    ) -> None:
        super().__init__(memory, work)
        raw = noise_frames(work, _FRAMES, _SEED)
        step = raw.shape[-1]
        self._raw = memory.shared(raw)
        out = {}
        for name, dtype in work.outputs:
            size = replace(work, outputs=((name, dtype),)).written_bytes
            place = memory.own if name in (*PAIRS, *PLANES) else memory.shared
            out[name] = place(np.zeros(_FRAMES * size, np.uint8))
        self.outputs = {"counts": memory.own(np.zeros((_FRAMES, 2), np.uint32)), **out}
        frame = np.zeros((), FRAME_ARGUMENT)
        frame["raw"], frame["counts"] = _address(self._raw), _address(self.outputs["counts"])
        for name, array in out.items():
            frame["out"][OUTPUTS.index(name)] = _address(array)
        frame["raw_stride"], frame["step"] = work.height * step, step
        frame["width"], frame["height"] = work.width, work.height
        frame["full_scale"], frame["min_intensity"] = work.full_scale, min_intensity
        if correction is not None:
            correction.fill(frame)
        self.argument = frame[()]

    def family(self, schedule: Schedule) -> str:
        return schedule.kernel


class _SsimTrial(_Trial):
    """The SSIM launch, on one frame whose images were stored just before."""

    sums = ("blocks", "mean")

    def __init__(self, memory: _Memory, work: SsimWork) -> None:
        super().__init__(memory, work)
        noise = np.random.default_rng(_SEED)
        images = (noise.random((work.height, work.width), np.float32).astype(work.source) for _ in range(2))
        self._images = [memory.own(image) for image in images]
        rows, columns = work.map_size
        pieces, done = np.zeros(rows * columns, np.float32), np.zeros(1, np.uint32)
        self._scratch = {"pieces": memory.own(pieces), "done": memory.own(done)}
        if work.masked:
            counts = np.ones(work.block_size[0] * work.block_size[1] + 1, np.float32)
            self._scratch.update(mask=memory.own(np.zeros(work.map_size, np.uint8)), inside=memory.own(counts))
        kinds: Dict[str, Tuple[Tuple[int, ...], str]] = {
            "blocks": (work.block_size, "float32"),
            "mean": ((1,), "float32"),
        }
        if work.map_dtype:
            kinds["map"] = work.map_size, work.map_dtype
        self.outputs = {name: memory.shared(np.zeros(*kind)) for name, kind in kinds.items()}
        task = np.zeros((), SSIM_ARGUMENT)
        task["first"], task["second"] = _address(self._images[0]), _address(self._images[-1])
        for name, array in {**self._scratch, **self.outputs}.items():
            task[name] = _address(array)
        self.argument = task[()]

    def family(self, schedule: Schedule) -> str:
        return schedule.window
