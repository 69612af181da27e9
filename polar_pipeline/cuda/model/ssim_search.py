"""Which schedules of the SSIM launch can run on a device, and what they take of it."""

from __future__ import annotations

from itertools import product
from typing import Dict, Iterator, List, NoReturn, Optional, Tuple

from polar_pipeline.coefficients import SSIM_BLOCK
from polar_pipeline.cuda.model.device import WARP, Device, occupancy
from polar_pipeline.cuda.model.geometry import round_up
from polar_pipeline.cuda.model.registers import register_bound
from polar_pipeline.cuda.model.schedule import Schedule, ScheduleError
from polar_pipeline.cuda.model.search import MIN_OCCUPANCY
from polar_pipeline.cuda.model.ssim_work import SsimWork, half_taps
from polar_pipeline.plan import MOSAIC

WINDOWS = {"registers": 0, "tensor": 1}
#: Error of the window in half up to which tensor cores are used; the bound of all is 1e-3.
_HALF_ERROR = 5e-4
#: Threads of a block, with `registers`: more do not fit twice on a multiprocessor.
_MAX_THREADS = 352
#: Threads of a block, with `tensor`; and of a block that has a multiprocessor to itself, where a few small blocks would
#: share one.
_TENSOR_THREADS, _ALONE = (32, 64, 128), 352
#: Rows that a strip can have: a part of a block of the map, or several.
_ROWS = (16, 32, 64, 128, 256, 512)
#: Registers that a thread takes at most, by the longest window; with the shortest one fewer where its launch bound
#: leaves no more than 96.
_TAKEN = {"registers": {3: 88, 7: 96, 11: 128, 15: 144}, "tensor": {15: 168}}
_TAKEN_WITHIN_96 = {3: 80}
#: With `registers`: rows between two barriers, which is also the pixels of a thread along x.
_BATCH = 4
#: With `tensor`: columns of a warp, columns that it loads beside them, rows of a step, steps in shared memory, and
#: bytes of each step.
_COLUMNS, _HALO, _STEP, _STEPS, _STEP_BYTES = 32, 16, 8, 3, 1792


def piece_size(schedule: Schedule) -> Tuple[int, int]:
    """(rows, columns) of the map that are summed before the last block adds up."""
    return min(schedule.rows, SSIM_BLOCK), _BATCH if schedule.window == "registers" else _COLUMNS


def piece_count(work: SsimWork, schedule: Schedule) -> int:
    """How many of those a map has."""
    (height, width), (y, x) = work.map_size, piece_size(schedule)
    return -(-height // y) * -(-width // x)


def grid(work: SsimWork, schedule: Schedule, frames: int = 1) -> Tuple[int, int, int]:
    """Blocks along x, y and z: numbered along x, row by row; z is the frame."""
    height, width = work.map_size
    across = -(-width // (schedule.tile_x * (schedule.threads // WARP if schedule.window == "tensor" else 1)))
    return across * -(-height // schedule.rows), 1, frames


def shared_bytes(schedule: Schedule) -> int:
    """Dynamic shared memory of a block; `kernels/ssim.cu` asserts that its `Shared`, or its ring, fits."""
    if schedule.window == "tensor":
        return schedule.threads // WARP * _STEPS * _STEP_BYTES
    return 4 * (2 * 4 * _BATCH * (schedule.threads + 8) + schedule.tile_x)


def schedule_defines(schedule: Schedule) -> Dict[str, int]:
    """The preprocessor definitions that compile a schedule into the kernel."""
    return {
        "WINDOW": WINDOWS[schedule.window],
        "THREADS": schedule.threads,
        "TILE_X": schedule.tile_x,
        "ROWS": schedule.rows,
        "SHARED_BYTES": shared_bytes(schedule),
    }


def _search_space(work: SsimWork, device: Device) -> Iterator[Schedule]:
    """Every schedule that can be a good one."""
    width = work.map_size[1]
    halo = work.window - 1
    fewest = -(-width // ((_MAX_THREADS - halo) // _BATCH * _BATCH))  # with fewer strips, threads do not suffice
    widths = {round_up(-(-width // strips), _BATCH) for strips in range(fewest, max(32, 2 * fewest) + 1)}
    for tile_x, rows in product(sorted(widths), _ROWS):
        yield Schedule("ssim", "registers", round_up(tile_x + halo, WARP), tile_x, rows=rows)
    for threads, rows in product((*_TENSOR_THREADS, _ALONE) if device.overlaps else _TENSOR_THREADS, _ROWS):
        yield Schedule("ssim", "tensor", threads, _COLUMNS, rows=rows)


def supports(window: str, work: SsimWork, device: Device) -> Optional[str]:
    """Why a window cannot do a work on a device, None if it can."""
    if work.source == MOSAIC and work.stride > 1:
        return "the mosaic is compared without a stride only"
    if window != "tensor":
        return None
    needs = (
        ("compute capability 8.0", device.capability >= 80),
        ("images of 16 bit without a stride", work.source == "uint16" and work.stride == 1),
        ("a width that is a multiple of 8", work.width % 8 == 0),
        ("a Gaussian that halves can hold", half_taps(work.window, work.sigma).error <= _HALF_ERROR),
    )
    return next((f"tensor needs {text}" for text, met in needs if not met), None)


def candidates(work: SsimWork, device: Device) -> List[Schedule]:
    """Every schedule that meets the hard constraints; all with the same window give the same map.

    With `registers`, those with less than `MIN_OCCUPANCY` only where none has more.
    """
    able = {}
    for schedule in _search_space(work, device):
        if supports(schedule.window, work, device) is None and shared_bytes(schedule) <= device.shared_per_block:
            taken = schedule.threads, registers(work, schedule), shared_bytes(schedule)
            able[schedule] = 1.0 if schedule.window == "tensor" else occupancy(device, *taken)
    min_share = min(
        MIN_OCCUPANCY, max((share for plan, share in able.items() if plan.window == "registers"), default=0)
    )
    return [schedule for schedule, share in able.items() if share >= max(min_share, 1e-9)]


def refuse(work: SsimWork, device: Device) -> NoReturn:
    """Say why no schedule fits a device.

    Raises:
        ScheduleError: In any case; need and limit of the smallest.
    """
    smallest = min((plan for plan in _search_space(work, device) if plan.window == "registers"), key=shared_bytes)
    problem = supports("registers", work, device) or (
        f"a map of {work.map_size[1]}x{work.map_size[0]} needs {shared_bytes(smallest)} bytes of shared memory and "
        f"{smallest.threads * registers(work, smallest)} registers, a block has {device.shared_per_block} and "
        f"{device.registers_per_multiprocessor}"
    )
    raise ScheduleError(f"ssim on {device.name}: {problem}")


def registers(work: SsimWork, schedule: Schedule) -> int:
    """Registers of a thread, at most: what the kernel's launch bounds leave, or what it takes where that is less."""
    warps, taken = schedule.threads // WARP, _TAKEN[schedule.window]
    longest = next(taps for taps in taken if work.window <= taps)
    resident = 12 if schedule.window == "tensor" else 16 if work.window > 11 else 20
    blocks = max(1, resident // warps)
    bound = register_bound(schedule.threads, blocks)
    most = _TAKEN_WITHIN_96.get(longest, taken[longest]) if bound <= 96 else taken[longest]
    return min(bound, most)
