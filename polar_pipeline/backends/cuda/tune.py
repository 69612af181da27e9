"""Measurement of schedules on the GPU of this machine, for `polar-pipeline tune`."""

from __future__ import annotations

import logging
from typing import Dict, List, Optional, Tuple

import numpy as np

from polar_pipeline._util.progress import with_bar
from polar_pipeline.backends.backend import Buffers, CompileError, DeviceError, DeviceLostError
from polar_pipeline.backends.cuda.backend import make_program
from polar_pipeline.backends.cuda.driver import Driver
from polar_pipeline.backends.cuda.launch import Schedule
from polar_pipeline.backends.cuda.memory import Constants
from polar_pipeline.backends.cuda.program import Program, noise_frame, requested_launches
from polar_pipeline.backends.cuda.schedules import Measured, candidates, save_schedule
from polar_pipeline.backends.result import Result
from polar_pipeline.options import Options

_LOG = logging.getLogger(__name__)
#: Schedules of a launch that are tried, those of least cost first; frames of each, of which the median time counts.
_TRIED, _FRAMES = 100, 15
#: What sums in another order may make similarities differ by.
_MEAN_ERROR = 1e-5


def tune(options: Options, device_name: str, raw_format: str, size: Tuple[int, int]) -> Dict[str, Measured]:
    """Measure the schedules of each launch of a frame, and write the fastest into this user's file (`tuned_path`).

    Kernels work on the kind of memory that the backend takes for these options on this machine. The products by a
    schedule must equal those by the first schedule of its kernel.

    Args:
        options: Options of the pipeline.
        device_name: The device that the file is for: the one of this machine.
        raw_format: A key of `CAMERA_FORMATS`.
        size: (width, height) of the frame.

    Returns:
        By key of the launch, the fastest schedule and its time.

    Raises:
        RuntimeError: CuPy or the device is missing, no schedule works, or two of a kernel give different products.
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
    launches, fastest = requested_launches(options, raw_format, size), {}
    constants, buffers = Constants(driver), Buffers(driver.host_array)
    rows, reference = noise_frame(launches, options)
    maps_host = make_program(driver, launches, options, buffers, constants).maps_host
    for launch in launches:
        timed: List[Tuple[float, Schedule]] = []
        first: Dict[str, Result] = {}
        tried = candidates(launch, driver.device)[:_TRIED]
        for schedule in with_bar(tried, len(tried), "schedule"):
            try:
                forced = {launch.key: schedule}
                program = Program(driver, launches, options, constants, maps_host, schedules=forced)
                results = [program.submit(rows, buffers, reference)() for _ in range(_FRAMES)]
            except DeviceLostError:
                raise
            except (CompileError, DeviceError) as err:
                _LOG.warning("%s: %s", schedule, err)
                continue
            other = _difference(first.setdefault(schedule.kernel, results[-1]), results[-1])
            if other:
                raise RuntimeError(f"{schedule} gives another {other} than the first schedule of its kernel")
            timed.append((1e6 * float(np.median([result.timings[launch.stage] for result in results])), schedule))
        if not timed:
            raise RuntimeError(f"no schedule of {launch.key} could be measured")
        microseconds, schedule = min(timed)
        fastest[launch.key] = Measured(schedule, microseconds)
        save_schedule(launch, driver.device, fastest[launch.key])
    return fastest


def _difference(first: Result, other: Result) -> Optional[str]:
    """Return the name of a product that differs, or None."""
    for name, array in first.items():
        tolerance = _MEAN_ERROR if name == "ssim" else 0.0
        if not np.allclose(array, other[name], rtol=0, atol=tolerance, equal_nan=True):
            return name
    return None
