"""The second launch, structural similarity: what it has to do, and how it does it on a device (`kernels/ssim.cu`)."""

from __future__ import annotations

from functools import lru_cache
from itertools import product
from typing import Dict, Iterator, List, NamedTuple, NoReturn, Optional, Tuple, Union

import numpy as np

from polar_pipeline.coefficients import SSIM_BLOCK, SSIM_C2, gaussian, ssim_literals
from polar_pipeline.cuda.device import WARP, Device, occupancy
from polar_pipeline.cuda.schedule import (
    MIN_OCCUPANCY,
    REREAD_SHARE,
    Cost,
    Occupant,
    Prediction,
    Schedule,
    ScheduleError,
    bound,
    predict_launch,
    weigh,
)
from polar_pipeline.cuda.work import PAIRS, Work
from polar_pipeline.options import Options
from polar_pipeline.plan import MOSAIC, Plan

#: `struct Comparison` of `kernels/ssim.cu`.
COMPARISON = np.dtype(
    [
        ("first", np.uint64),
        ("second", np.uint64),
        ("first_stride", np.uint64),
        ("second_stride", np.uint64),
        ("map", np.uint64),
        ("pieces", np.uint64),
        ("done", np.uint64),
        ("blocks", np.uint64),
        ("mean", np.uint64),
    ],
    align=True,
)
#: What the images come as: of a type, or within the raw mosaic, whose launch makes them itself; types of the map.
INPUTS = {"float16": 0, "float32": 1, MOSAIC: 2}
MAPS = {"": 0, "uint8": 1, "float32": 2}
WINDOWS = {"registers": 0, "tensor": 1}


class Similarity(NamedTuple):
    """One launch: two images in, or the mosaic that they are made of, and their similarity out.

    Attributes:
        height: Pixels of an image along y.
        width: And along x.
        stride: Pixels each way over which images are averaged first.
        window: Taps of the Gaussian, odd.
        sigma: Its standard deviation in averaged pixels.
        source: Element type of the images, or `mosaic`: a key of `INPUTS`.
        map_dtype: Element type of the map, empty where nobody wants it: a key of `MAPS`.
    """

    height: int
    width: int
    stride: int
    window: int
    sigma: float
    source: str
    map_dtype: str

    @property
    def map_size(self) -> Tuple[int, int]:
        """(height, width) of the map."""
        return self.height // self.stride, self.width // self.stride

    @property
    def block_size(self) -> Tuple[int, int]:
        """(rows, columns) of the blocks whose means are taken."""
        height, width = self.map_size
        return -(-height // SSIM_BLOCK), -(-width // SSIM_BLOCK)


def similarity_of(work: Work, plan: Plan, options: Options) -> Similarity:
    """The second launch of a plan, on what the first one stores; where that is nothing, on the mosaic."""
    source = next((dtype for name, dtype in work.outputs if name in PAIRS), MOSAIC)
    map_dtype = options.dtype_of("ssim_map") if "ssim_map" in plan.products else ""
    return Similarity(
        *work.output_size, options.ssim_stride, options.ssim_window, options.ssim_sigma, source, map_dtype
    )


def work_key(work: Similarity) -> str:
    """A work as short text without its size."""
    shown = f"{work.source} to {work.map_dtype or 'means only'}, {work.window} taps"
    return shown + (f", stride {work.stride}" if work.stride > 1 else "")


class HalfTaps(NamedTuple):
    """A window as halves.

    Attributes:
        taps: From the centre outwards; the window sums to exactly 1.
        error: How far the similarity of black and white is off at most, where a line or an edge lies within the window.
    """

    taps: Tuple[float, ...]
    error: float


@lru_cache(maxsize=None)
def half_taps(window: int, sigma: float) -> HalfTaps:
    """The window for tensor cores.

    The sum of the taps from k outwards is rounded, up or down, to what the next inner tap is a multiple of: then each
    tap is a half, and so is the centre, which takes the rest. Of all ways to round, the one is taken that moves the
    similarity least where a line or an edge lies k pixels away. There the variance is about as large as the tap or the
    sum, and the similarity of that to nothing is C2 / (variance + C2).
    """
    exact = np.array(gaussian(window, sigma)[window // 2 :])
    tails = np.append(np.cumsum(exact[::-1])[::-1][1:], 0.0)  # from k + 1 outwards
    grids = [float(np.spacing(np.float16(tap))) for tap in exact]
    grids[0] /= 2  # both sides of the window are in the centre's rest
    found = []
    for ups in product((np.floor, np.ceil), repeat=window // 2):
        rounded = np.array([up(tail / grid) * grid for up, tail, grid in zip(ups, tails, grids)] + [0.0])
        taps = np.append(1 - 2 * rounded[0], rounded[:-1] - rounded[1:])
        if np.array_equal(taps, taps.astype(np.float16)) and (taps >= 0).all():
            line, edge = np.abs(taps - exact) / (exact + SSIM_C2) ** 2, np.abs(rounded - tails) / (tails + SSIM_C2) ** 2
            found.append((SSIM_C2 * float(max(line.max(), edge.max())), tuple(taps.tolist())))
    error, best = min(found)
    return HalfTaps(best, error)


def defines(work: Similarity) -> Dict[str, Union[int, str]]:
    """The preprocessor definitions that make the kernel do this work."""
    found = ssim_literals(work.window, work.sigma)
    halves = np.array(half_taps(work.window, work.sigma).taps, np.float16).view(np.uint16)
    return {
        **found,
        "SSIM_TAPS": ",".join(found[f"SSIM_TAP_{k}"] for k in range(len(halves))),
        "SSIM_HALF_TAPS": ",".join(f"{bits:#x}u" for bits in halves),
        "WIDTH": work.width,
        "HEIGHT": work.height,
        "STRIDE": work.stride,
        "INPUT": INPUTS[work.source],
        "OUT_MAP": MAPS[work.map_dtype],
    }


# ------------------------------------------------------------------------------------------------ what a schedule takes

#: Error of the window in half up to which tensor cores are used; the bound of all is 1e-3.
_HALF_ERROR = 5e-4
#: Threads of a block, with `registers`: more do not fit twice on a multiprocessor.
_MAX_THREADS = 352
#: Threads of a block, with `tensor`; and of one that has a multiprocessor for itself, where few small ones would crowd.
_TENSOR_THREADS, _ALONE = (32, 64, 128), 352
#: Rows that a strip can have: a part of a block of the map, or several.
_ROWS = (16, 32, 64, 128, 256, 512)
#: Registers that a thread takes at most, by the longest window.
_TAKEN = {"registers": {3: 80, 7: 96, 11: 128, 15: 144}, "tensor": {15: 128}}
#: With `registers`: rows between two barriers, which is also the pixels of a thread along x.
_BATCH = 4
#: With `tensor`: columns of a warp, rows that enter at a time, steps on their way, bytes of two images in each.
_COLUMNS, _STEP, _STAGES, _STAGE_BYTES = 16, 8, 3, 1024


def piece(schedule: Schedule) -> Tuple[int, int]:
    """(rows, columns) of the map that are summed before the last block adds up."""
    return min(schedule.rows, SSIM_BLOCK), _BATCH if schedule.window == "registers" else _COLUMNS


def pieces(work: Similarity, schedule: Schedule) -> int:
    """How many of those a map has."""
    (height, width), (y, x) = work.map_size, piece(schedule)
    return -(-height // y) * -(-width // x)


def grid(work: Similarity, schedule: Schedule, frames: int = 1) -> Tuple[int, int, int]:
    """Blocks along x, y and z: numbered along x, row by row; z is the frame."""
    height, width = work.map_size
    across = -(-width // (schedule.tile_x * (schedule.threads // WARP if schedule.window == "tensor" else 1)))
    return across * -(-height // schedule.rows), 1, frames


def shared_bytes(schedule: Schedule) -> int:
    """Dynamic shared memory of a block; `kernels/ssim.cu` asserts that its `Shared`, or its ring, fits."""
    if schedule.window == "tensor":
        return schedule.threads // WARP * _STAGES * _STAGE_BYTES
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


def _space(work: Similarity, device: Device) -> Iterator[Schedule]:
    """Every schedule worth a thought."""
    width = work.map_size[1]
    halo = work.window - 1
    fewest = -(-width // ((_MAX_THREADS - halo) // _BATCH * _BATCH))  # with fewer strips, threads do not suffice
    widths = {_up(-(-width // strips), _BATCH) for strips in range(fewest, max(32, 2 * fewest) + 1)}
    for tile_x, rows in product(sorted(widths), _ROWS):
        yield Schedule("ssim", "registers", _up(tile_x + halo, WARP), tile_x, rows=rows)
    for threads, rows in product((*_TENSOR_THREADS, _ALONE) if device.overlaps else _TENSOR_THREADS, _ROWS):
        yield Schedule("ssim", "tensor", threads, _COLUMNS, rows=rows)


def _up(number: int, step: int) -> int:
    return -(-number // step) * step


def supports(window: str, work: Similarity, device: Device) -> Optional[str]:
    """Why a window cannot do a work on a device, None if it can."""
    if work.source == MOSAIC and work.stride > 1:
        return "the mosaic is compared without a stride only"
    if window != "tensor":
        return None
    needs = (
        ("compute capability 8.0", device.capability >= 80),
        ("images in half without a stride", work.source == "float16" and work.stride == 1),
        ("a width that is a multiple of 8", work.width % 8 == 0),
        ("a Gaussian that halves can hold", half_taps(work.window, work.sigma).error <= _HALF_ERROR),
    )
    return next((f"tensor needs {text}" for text, met in needs if not met), None)


def candidates(work: Similarity, device: Device) -> List[Schedule]:
    """Every schedule that meets the hard constraints; all with the same window give the same map.

    With `registers`, those with less than `MIN_OCCUPANCY` only where none has more.
    """
    able = {}
    for schedule in _space(work, device):
        if supports(schedule.window, work, device) is None and shared_bytes(schedule) <= device.shared_per_block:
            taken = schedule.threads, registers(work, schedule), shared_bytes(schedule)
            able[schedule] = 1.0 if schedule.window == "tensor" else occupancy(device, *taken)
    least = min(MIN_OCCUPANCY, max((share for plan, share in able.items() if plan.window == "registers"), default=0))
    return [schedule for schedule, share in able.items() if share >= max(least, 1e-9)]


def check(work: Similarity, schedule: Schedule, device: Device) -> None:
    """Refuse a schedule that cannot do the work, or not on this device.

    Raises:
        ScheduleError: It is none of the candidates.
    """
    if schedule not in candidates(work, device):
        raise ScheduleError(f"ssim on {device.name}: {schedule} is none of its schedules")


def refuse(work: Similarity, device: Device) -> NoReturn:
    """Say why no schedule fits a device.

    Raises:
        ScheduleError: In any case; need and limit of the smallest.
    """
    smallest = min((plan for plan in _space(work, device) if plan.window == "registers"), key=shared_bytes)
    problem = supports("registers", work, device) or (
        f"a map of {work.map_size[1]}x{work.map_size[0]} needs {shared_bytes(smallest)} bytes of shared memory and "
        f"{smallest.threads * registers(work, smallest)} registers, a block has {device.shared_per_block} and "
        f"{device.registers_per_multiprocessor}"
    )
    raise ScheduleError(f"ssim on {device.name}: {problem}")


def registers(work: Similarity, schedule: Schedule) -> int:
    """Registers of a thread, at most: what the kernel's launch bounds leave, or what it takes where that is less."""
    warps, taken = schedule.threads // WARP, _TAKEN[schedule.window]
    longest = next(taps for taps in taken if work.window <= taps)
    blocks = max(1, (16 if work.window > 11 and schedule.window == "registers" else 20) // warps)
    return min(bound(schedule.threads, blocks), taken[longest])


# ------------------------------------------------------------------------------------------------------------ objective

#: Bytes of both images' pixel, or of the superpixel that they are made of.
_PIXEL_BYTES = {"float16": 4, "float32": 8, MOSAIC: 4}
#: Issue slots of a thread of `registers`, counted in the code that sm_90 gets (`benchmarks/instructions.py --ssim`):
#: beginning and end of a strip; a row above its first row of the map, and a row of the map, both without taps and
#: loads; a tap of a row of the map, along y and x, for four moments; loading both samples of a row from the mosaic.
_ENDS, _ROW_ABOVE, _ROW, _TAP, _LOAD_MOSAIC = 130, 15, 34, 8.2, 23
#: Issue slots of a step of a warp on tensor cores (230 as compiled, as an H200 took longer), of which beginning and end
#: take some more.
_TENSOR_STEP, _TENSOR_ENDS = 395, 3
#: Resident warps with which waiting takes as long as issuing, on tensor cores.
_BUSY_WARPS = 8
#: Resident warps times issue slots of a row of the map, but for its loads, with which waiting takes as long as issuing,
#: with `registers`: a row waits as long with any window, and with a longer one there is more to issue meanwhile. Fitted
#: to an H200's times.
_WAITING = 1450.0
#: Microseconds from one block to the next where the blocks of a frame count themselves.
_COUNT_US = 0.001


def cost(work: Similarity, schedule: Schedule, device: Device) -> Cost:
    """What a schedule moves and computes for one frame."""
    blocks, halo, warps = grid(work, schedule)[0], work.window - 1, schedule.threads // WARP
    operations: float
    if schedule.window == "tensor":
        loaded = blocks * warps * 2 * _COLUMNS * (schedule.rows + 2 * _STEP)
        operations = blocks * schedule.threads * (schedule.rows // _STEP + _TENSOR_ENDS) * _TENSOR_STEP
    else:
        loaded = blocks * (schedule.tile_x + halo) * (schedule.rows + halo) * work.stride**2
        operations = blocks * schedule.threads * _strip_slots(work, schedule.rows)
    pixel = _PIXEL_BYTES[work.source]
    height, width = work.map_size
    stored = np.dtype(work.map_dtype).itemsize if work.map_dtype else 0
    weighed = weigh({f"ssim {schedule.window} {work.source}": operations}, True, device)
    return Cost(pixel * work.height * work.width, pixel * loaded, stored * height * width, weighed)


def _load_slots(work: Similarity) -> int:
    """Issue slots in which a thread of `registers` loads, converts and averages both samples of a row."""
    if work.source == MOSAIC:
        return _LOAD_MOSAIC
    value = 2 if work.source == "float16" else 1  # load and conversion
    if work.stride == 1:
        return 2 * value
    loop = 16 if work.stride > 2 else 0  # of a row of the pixel: addresses, comparison and jump
    return 2 * work.stride * ((value + 1) * work.stride + loop) + 2


def _row_slots(work: Similarity) -> float:
    """Issue slots of a thread of `registers` for a row of the map."""
    return _TAP * work.window + _ROW + _load_slots(work)


def _strip_slots(work: Similarity, rows: int) -> float:
    """Issue slots of a thread of `registers` for a strip of some rows of the map.

    Rows above the strip enter only those sums that get a result: half of the taps, on average.
    """
    load = _load_slots(work)
    above = (work.window - 1) * (2 * work.window + _ROW_ABOVE + load)
    return _ENDS + 4 * load + above + rows * _row_slots(work)


def predict(work: Similarity, schedule: Schedule, device: Device, frames: int = 1) -> Prediction:
    """Predicted time of a launch."""
    in_flight: float
    if schedule.window == "tensor":
        in_flight = schedule.threads // WARP * (_STAGES - 1) * _STAGE_BYTES
        exposed = 0.0
    else:
        # from a stride of 3 on, the kernel loads a row of one image's pixel at a time
        at_a_time = work.stride**2 * _BATCH if work.stride <= 2 else work.stride / 2
        in_flight = schedule.threads * at_a_time * _PIXEL_BYTES[work.source]
        # rows above the strip and its first ones; all others are loaded while former ones are computed
        exposed = (work.window - 1 + _BATCH) / (work.window - 1 + schedule.rows)
    blocks, taken = grid(work, schedule)[0], cost(work, schedule, device)
    occupant = Occupant(
        blocks,
        schedule.threads,
        registers(work, schedule),
        shared_bytes(schedule),
        in_flight,
        exposed,
        _BUSY_WARPS if schedule.window == "tensor" else _WAITING / (_row_slots(work) - _load_slots(work)),
        whole=taken.read + REREAD_SHARE * max(0, taken.reread - taken.read),  # stores wait for nothing
        crowds=device.overlaps,
    )
    found = predict_launch(taken, occupant, device, frames)
    # counters of frames are apart, and sums of one frame hide behind the next frame's blocks
    return found._replace(waiting_us=found.waiting_us + blocks * _COUNT_US + _sum_us(work, schedule, device))


def _sum_us(work: Similarity, schedule: Schedule, device: Device) -> float:
    """Microseconds in which the last block loads all pieces of a frame, one line of 128 bytes a clock.

    Neighbouring threads load from neighbouring blocks of the map, so that a load of a warp touches as many lines as a
    block of the map has pieces along x.
    """
    along = SSIM_BLOCK // piece(schedule)[1]
    return pieces(work, schedule) * along / WARP / device.clock_mhz
