"""Which schedules of the polarization launch can run on a device: the hard constraints and the search space."""

from __future__ import annotations

from itertools import product
from typing import Iterator, List, Mapping, NoReturn, Optional, Tuple

from polar_pipeline.cuda.model.device import WARP, Device, occupancy
from polar_pipeline.cuda.model.geometry import (
    is_adaptive,
    loaded_pixels,
    needs_all_angles,
    output_step,
    shared_bytes,
    unit_size,
)
from polar_pipeline.cuda.model.registers import registers, spills
from polar_pipeline.cuda.model.schedule import Schedule, ScheduleError
from polar_pipeline.cuda.model.specs import KERNELS, supports, usable_kernels
from polar_pipeline.cuda.model.work import PolarizationWork

#: Below this share of resident warps, latency shows. Register windows live well with it: 96 registers on sm_72.
MIN_OCCUPANCY = 0.3
#: Likewise from sm_90 on in strips, whose next lines are loaded a step ahead.
_WIDE_OCCUPANCY = 0.25
MAX_THREADS = 1024


def with_enough_warps(occupancies: Mapping[Schedule, float]) -> List[Schedule]:
    """Schedules by their occupancy: those with less than `MIN_OCCUPANCY` only where none has more."""
    least = min(MIN_OCCUPANCY, max(occupancies.values(), default=0))
    return [schedule for schedule, share in occupancies.items() if share >= least]


def check(work: PolarizationWork, schedule: Schedule, device: Device) -> None:
    """Refuse a schedule that cannot do the work, or not on this device.

    Raises:
        ScheduleError: With what it needs and what there is.
    """
    problem = _problem(work, schedule, device)
    if problem:
        raise ScheduleError(f"{schedule.kernel} ({schedule.window}) on {device.name}: {problem}")


def _problem(work: PolarizationWork, schedule: Schedule, device: Device) -> Optional[str]:
    if schedule.kernel not in KERNELS:
        return f"the kernels are {', '.join(KERNELS)}"
    kernel = KERNELS[schedule.kernel]
    if schedule.window not in kernel.windows:
        return f"its window can be {' or '.join(kernel.windows)}"
    unsupported = supports(schedule.kernel, work)
    if unsupported:
        return unsupported
    if schedule.threads % WARP or not WARP <= schedule.threads <= MAX_THREADS:
        return f"threads must be a multiple of {WARP} up to {MAX_THREADS}, got {schedule.threads}"
    x, y = unit_size(schedule)
    if schedule.kernel == "tile" and (x < 1 or output_step(work) * x % 8 or y < 1 or output_step(work) * y % 4):
        return f"a tile must be a multiple of 8x4 raw pixels, got {output_step(work) * x}x{output_step(work) * y}"
    if schedule.window in ("registers", "strip") and schedule.tile_x not in kernel.pixels:
        return f"a thread makes {' or '.join(map(str, kernel.pixels))} pixels along x, got {schedule.tile_x}"
    if is_adaptive(work) and schedule.window == "tile" and schedule.rows < 1:
        return f"the adaptive method slides down at least 1 row, got {schedule.rows}"
    if schedule.window != "tile" and schedule.rows not in _rows(work, schedule):
        return f"rows can be {', '.join(map(str, _rows(work, schedule)))}, got {schedule.rows}"
    need = shared_bytes(work, schedule)
    if need > device.shared_per_block:
        return f"needs {need} bytes of shared memory, a block has {device.shared_per_block}"
    file = schedule.threads * registers(work, schedule, device)
    if file > device.registers_per_multiprocessor:
        return f"needs {file} registers, a multiprocessor has {device.registers_per_multiprocessor}"
    return None


def _rows(work: PolarizationWork, schedule: Schedule) -> Tuple[int, ...]:
    """Rows that a thread can march down."""
    return KERNELS[schedule.kernel].rows[needs_all_angles(work)]


#: Raw pixels of tiles that are no powers of two: one that divides 2448x2048, and those that suit the adaptive method's
#: halo and rows.
_MORE_TILES = ((80, 32), (72, 32), (64, 60), (64, 40), (64, 28), (56, 32), (56, 28))


#: Raw rows of a tile of the adaptive method at least: with fewer, works in float spill on sm_72.
_ADAPTIVE_ROWS = 8


def search_space(work: PolarizationWork) -> Iterator[Schedule]:
    """Every schedule that can be a good one for a work, on any device."""
    able = usable_kernels(work)
    for name in able:
        kernel = KERNELS[name]
        counts = kernel.rows[needs_all_angles(work)]
        for threads, pixels, rows in product(kernel.threads, kernel.pixels, counts):  # none for tiles
            yield Schedule(name, kernel.windows[0], threads, pixels, rows=rows)
    if "tile" in able:
        yield from _tiles(work)


def _tiles(work: PolarizationWork) -> Iterator[Schedule]:
    """Schedules of `tile` for a work."""
    slides = (5, 6, 7, 9, 12) if is_adaptive(work) else (0,)
    threads_of_tiles = (128, 160, 192, 224, 256, 288, 320) if is_adaptive(work) else (128, 160, 192, 256, 320)
    step = output_step(work)
    tiles = [*product((16, 32, 64, 128), (4, 8, 16, 32)), *((x // step, y // step) for x, y in _MORE_TILES)]
    if is_adaptive(work):
        tiles = [(x, y) for x, y in tiles if step * y >= _ADAPTIVE_ROWS]
    for (x, y), threads, rows in product(tiles, threads_of_tiles, slides):
        schedule = Schedule("tile", "tile", threads, x, y, rows)
        if loaded_pixels(work, schedule) >= 4 * threads:
            yield schedule


def candidates(work: PolarizationWork, device: Device) -> List[Schedule]:
    """Every schedule that meets the hard constraints; all give the same result.

    Those whose launch bounds leave fewer registers than sm_72 needs are not among them (`polar-pipeline kernels` shows
    the few that spill all the same); those with less than `MIN_OCCUPANCY` only where none has more.
    """
    able = [s for s in search_space(work) if _problem(work, s, device) is None and not spills(work, s, device)]
    resident = [expected_occupancy(work, schedule, device) for schedule in able]
    most = max(resident, default=0)
    return [s for s, share in zip(able, resident) if share >= min(_min_occupancy(s, device), most)]


def _min_occupancy(schedule: Schedule, device: Device) -> float:
    """The share of resident warps that a schedule needs."""
    return _WIDE_OCCUPANCY if schedule.window == "strip" and device.capability >= 90 else MIN_OCCUPANCY


def refuse(work: PolarizationWork, device: Device) -> NoReturn:
    """Say why no schedule fits a device.

    Raises:
        ScheduleError: Need and limit of the smallest.
    """
    smallest = min(search_space(work), key=lambda schedule: shared_bytes(work, schedule))
    check(work, smallest, device)
    raise ScheduleError(f"{smallest.kernel} ({smallest.window}) on {device.name}: every schedule spills registers")


def expected_occupancy(work: PolarizationWork, schedule: Schedule, device: Device) -> float:
    """Share of resident warps that the solver counts with, 0 to 1."""
    return occupancy(device, schedule.threads, registers(work, schedule, device), shared_bytes(work, schedule))
