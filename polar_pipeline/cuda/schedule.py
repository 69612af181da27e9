"""How the first launch can do its work on a device: which kernel, which tiles, how many threads.

The solver lists every schedule that meets the hard constraints (`candidates`) and predicts its time (`predict`).
"""

from __future__ import annotations

from functools import lru_cache
from itertools import product
from math import hypot
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, NoReturn, Optional, Tuple

import numpy as np

from polar_pipeline.cuda.device import WARP, Device, clocks, occupancy, resident_blocks
from polar_pipeline.cuda.instructions import SHARES
from polar_pipeline.cuda.work import OUTPUTS, PAIRS, Work, red_sites
from polar_pipeline.plan import Limits
from polar_pipeline.products import PRODUCTS


class ScheduleError(ValueError):
    """A schedule that cannot run; the text gives need and limit."""


class Schedule(NamedTuple):
    """How one launch does its work.

    Attributes:
        kernel: Stem of the file in `kernels/`.
        window: Where the lines live: `registers`, `ring` or `tile`.
        threads: Per block.
        tile_x: Output pixels along x: of a block (tile, ring), or of a thread (registers).
        tile_y: Output pixels along y of a block (tile), else 0.
        rows: Rows that a thread marches down: of the output (registers, ring), or in ADR's first stage (tile).
        lines: Lines in the ring, else 0.
    """

    kernel: str
    window: str
    threads: int
    tile_x: int
    tile_y: int = 0
    rows: int = 0
    lines: int = 0


#: WINDOW as the kernels read it.
WINDOWS = {"registers": 0, "ring": 1, "tile": 2}

# ------------------------------------------------------------------------------------------------- what a kernel can do


def _has(**fields: Any) -> Callable[[Work], bool]:
    return lambda work: all(getattr(work, name) == value for name, value in fields.items())


def _stores(*images: str, pairs: bool = False) -> Callable[[Work], bool]:
    able = {(name, "uint8") for name in images} | {(name, "float16") for name in (PAIRS if pairs else ())}
    return lambda work: able.issuperset(work.outputs)


def _regular(work: Work) -> bool:
    return len(set(red_sites(work.sensor).values())) == 1


_ANGLE_IMAGES = tuple(name for name in OUTPUTS if name.startswith("angle_"))
_BYTES_IN = (
    ("8-bit pixels of full scale 255", _has(raw_format="u8", full_scale=255)),
    ("a width that is a multiple of 16", lambda work: work.width % 16 == 0),
    ("half precision", _has(half_precision=True)),
)
_MONO = ("a mono sensor", lambda work: not work.sensor.is_color)
_PIXELS = ("intensity", "dolp", "aolp")


class Kernel(NamedTuple):
    """What one kernel asks for.

    Attributes:
        windows: Where its lines can live.
        pixels: Output pixels of a thread along x with a register window; 0 without.
        threads: Numbers worth a thought with a register window.
        rows: Rows that it can march down with a register window without spilling; for angle images alone, and others.
        effort: Issue slots against those of `tile` (`OPERATIONS`), per window, as measured.
        needs: (what it needs in words, whether a work has it).
    """

    windows: Tuple[str, ...]
    pixels: int
    threads: Tuple[int, ...]
    rows: Tuple[Tuple[int, ...], Tuple[int, ...]]
    effort: Tuple[float, ...]
    needs: Tuple[Tuple[str, Callable[[Work], bool]], ...] = ()


#: Every kernel that makes products from a mosaic; `tile` does any work.
KERNELS: Dict[str, Kernel] = {
    "mono_half": Kernel(
        ("registers",),
        8,
        (64, 128, 160),
        ((2, 4), (2, 4)),
        (0.3,),
        (
            *_BYTES_IN,
            _MONO,
            ("half resolution, bilinear, co-sited", _has(half=True, demosaic="bilinear", co_sited=True)),
            (
                "intensity, dolp and aolp as uint8, and what SSIM compares as float16, only",
                _stores(*_PIXELS, pairs=True),
            ),
        ),
    ),
    "mono_full": Kernel(
        ("registers",),
        16,
        (32, 64, 128),
        ((2,), (2,)),
        (0.36,),
        (
            *_BYTES_IN,
            _MONO,
            ("full resolution, bilinear", _has(half=False, demosaic="bilinear")),
            ("intensity, dolp and aolp as uint8 only", _stores(*_PIXELS)),
        ),
    ),
    "color_half": Kernel(
        ("registers", "ring"),
        4,
        (32, 64, 96, 160),
        ((2, 4, 6), (2,)),
        (0.38, 0.32),
        (
            *_BYTES_IN,
            ("a colour sensor with red at the same place of all four lattices", _regular),
            ("half resolution, every angle at its own site", _has(half=True, co_sited=False)),
            ("Malvar-He-Cutler", _has(debayer="mhc")),
            (
                "intensity, angle images, dolp, aolp and preview as uint8, and what SSIM compares as float16, only",
                _stores(*_PIXELS, *_ANGLE_IMAGES, "preview", pairs=True),
            ),
        ),
    ),
    "tile": Kernel(("tile",), 0, (), ((), ()), (1.0,)),
}


def supports(kernel: str, work: Work) -> Optional[str]:
    """Why a kernel cannot do a work, None if it can."""
    for text, met in KERNELS[kernel].needs:
        if not met(work):
            return f"{kernel} needs {text}"
    return None


# --------------------------------------------------------------------------------------------------- geometry of a work

#: Reach of a method beyond a pixel, in raw pixels.
_MONO_HALO = {"bilinear": 1, "gradient": 2, "adaptive": 4}
_COLOR_HALO = {"bilinear": 2, "mhc": 4, "weighted": 6}
#: Values per pixel of outputs that are no products: (mono, colour).
_CHANNELS = {"sums": (2, 2), "s0": (1, 1), **{name: PRODUCTS[name].channels for name in OUTPUTS if name in PRODUCTS}}
#: Raw lines in use in the ring: six of each row parity, for Malvar-He-Cutler on two rows; it moves on by four.
WINDOW_LINES = 12
_RING_STEP = 4


def halos(work: Work) -> Tuple[int, int]:
    """Reach of (polarizer interpolation, debayering) in raw pixels."""
    mono = 0 if work.half and not work.co_sited else _MONO_HALO[work.demosaic]
    return mono, _COLOR_HALO[work.debayer] if work.sensor.is_color else 0


def _is_adaptive(work: Work) -> bool:
    return work.demosaic == "adaptive" and halos(work)[0] > 0


def _step(work: Work) -> int:
    """Raw pixels from one output pixel to the next."""
    return 2 if work.half else 1


def _up(number: int, step: int) -> int:
    return -(-number // step) * step


def _is_fused(work: Work) -> bool:
    """Whether a thread of `color_half` needs the angles of both row parities."""
    return any(name not in _ANGLE_IMAGES for name in work.dtypes)


def _unit(schedule: Schedule) -> Tuple[int, int]:
    """Output pixels along x and along y of what shares its loads: a block, or a warp with a register window."""
    if schedule.window == "tile":
        return schedule.tile_x, schedule.tile_y
    return schedule.tile_x * (WARP if schedule.window == "registers" else 1), schedule.rows


def _units(work: Work, schedule: Schedule) -> int:
    """How many of those an output has."""
    height, width = work.output_size
    x, y = _unit(schedule)
    if schedule.window == "registers" and not work.sensor.is_color:  # threads follow each other from row to row
        return -(-(-(-width // schedule.tile_x) * -(-height // y)) // WARP)
    return -(-width // x) * -(-height // y)


def grid(work: Work, schedule: Schedule, frames: int = 1) -> Tuple[int, int, int]:
    """Blocks along x, y and z; z is the frame. Where not a tile, they are numbered along x, row by row.

    Threads of a mono kernel follow each other from row to row. Warps of a colour kernel stand on strips; without
    products of all four angles, each on the lines of one row parity.
    """
    height, width = work.output_size
    x, y = _unit(schedule)
    across, down = -(-width // x), -(-height // y)
    if schedule.window == "tile":
        return across, down, frames
    if schedule.window == "ring":
        return across * down, 1, frames
    warps = schedule.threads // WARP
    if work.sensor.is_color:
        return -(-across // warps) * down * (1 if _is_fused(work) else 2), 1, frames
    return -(-_units(work, schedule) // warps), 1, frames


def _loaded(work: Work, schedule: Schedule) -> int:
    """Raw pixels that a unit loads; along x, halos are whole quads of pixels."""
    (x, y), reach, step = _unit(schedule), halos(work), _step(work)
    return (step * x + 2 * sum(_up(halo, 4) for halo in reach)) * (step * y + 2 * sum(reach))


def _shared_tile(work: Work, schedule: Schedule) -> int:
    """`struct Shared` of `kernels/tile.cu`, which asserts that it fits."""
    mono, color = halos(work)
    step, channels, pixel = _step(work), 3 if work.sensor.is_color else 1, 2 if work.half_precision else 4
    x, y = step * schedule.tile_x, step * schedule.tile_y
    edge = _up(mono, 4) + _up(color, 4)
    mosaic = channels * (y + 2 * mono) * (x + 2 * _up(mono, 4))
    raw = (y + 2 * (mono + color)) * (x + 2 * edge) * (0 if not color else 2 if work.debayer == "weighted" else 1)
    stage = 3 * channels * (y + 2) * (x + 8) if _is_adaptive(work) else 0
    hot = _up((y + 2) * (x // 4 + 2), 4)
    return _up(pixel * mosaic + max(4, pixel * max(raw, stage)) + hot + 8, 16)


def _shared_staging(work: Work, schedule: Schedule) -> int:
    """Two rows of two RGB images on their way out, 128 pixels a warp (`kernels/color_half.cu`)."""
    return schedule.threads // WARP * 4 * 3 * 128 if work.sensor.is_color else 0


def _shared_ring(work: Work, schedule: Schedule) -> int:
    """Raw lines with 16 bytes on both sides, and the staging."""
    return schedule.lines * (2 * schedule.tile_x + 32) + _shared_staging(work, schedule)


_SHARED = {"tile": _shared_tile, "registers": _shared_staging, "ring": _shared_ring}


def shared_bytes(work: Work, schedule: Schedule) -> int:
    """Dynamic shared memory of a block, in bytes."""
    return _SHARED[schedule.window](work, schedule)


class Registers(NamedTuple):
    """Registers of a thread of `tile`.

    Attributes:
        need: With fewer it spills.
        taken: With room it takes these at most.
        everything: Likewise where the Stokes vector is stored beside other products.
    """

    need: int
    taken: int
    everything: int


#: As compiled for the Jetsons, by (method, what a thread works on): mono in half and in float, colour in half and in
#: float. Both rows: it brings the angles of two raw rows together.
_TILE_REGISTERS = {
    ("plain", "one row"): (
        Registers(64, 56, 70),
        Registers(64, 64, 72),
        Registers(64, 72, 80),
        Registers(96, 96, 112),
    ),
    ("plain", "both rows"): (
        Registers(64, 64, 72),
        Registers(75, 80, 80),
        Registers(80, 80, 96),
        Registers(96, 96, 96),
    ),
    ("adaptive", "one row"): (
        Registers(78, 78, 78),
        Registers(88, 96, 96),
        Registers(80, 96, 96),
        Registers(96, 96, 96),
    ),
    ("adaptive", "both rows"): (
        Registers(80, 80, 80),
        Registers(88, 96, 96),
        Registers(80, 96, 96),
        Registers(96, 96, 96),
    ),
}
#: Those of `tile` from sm_90 on, where it has no launch bound, at most in pairs of half.
_HOPPER_REGISTERS = 80
#: Registers of a window in registers, where its launch bound leaves as many.
_WINDOW_REGISTERS = 96
_REGISTERS_PER_SCHEDULER = 16384


def bound(threads: int, blocks: int) -> int:
    """Registers of a thread that a launch bound leaves.

    Args:
        threads: Per block.
        blocks: That a multiprocessor has to have room for.
    """
    warps = -(-blocks * (threads // WARP) // 4)
    return min(255, _REGISTERS_PER_SCHEDULER // (warps * WARP) // 8 * 8)


def _resident(device: Device) -> int:
    """`RESIDENT` of `kernels/frame.cuh`."""
    return 512 if 80 <= device.capability < 90 else 640


def _tile_registers(work: Work, schedule: Schedule, device: Device) -> Tuple[int, int]:
    """Registers that `tile` needs in order not to spill, and those that it takes at most (its launch bound)."""
    both_rows = work.half and work.co_sited and work.demosaic != "bilinear"
    rows = _TILE_REGISTERS["adaptive" if _is_adaptive(work) else "plain", "both rows" if both_rows else "one row"]
    need, taken, everything = rows[2 * work.sensor.is_color + (not work.half_precision)]
    asked = everything if "stokes" in work.dtypes and len(work.outputs) > 1 else taken
    if work.half_precision and device.capability >= 90:
        asked = min(asked, _HOPPER_REGISTERS)
    return need, min(asked, _tile_bound(schedule, device))


def _tile_bound(schedule: Schedule, device: Device) -> int:
    """Registers that the launch bound of `tile` leaves a thread."""
    return bound(schedule.threads, -(-_resident(device) // schedule.threads) if device.capability < 90 else 1)


def registers(work: Work, schedule: Schedule, device: Device) -> int:
    """Registers of a thread that the solver counts with: never fewer than the compiled kernel takes on a Jetson."""
    if schedule.kernel == "tile":
        return _tile_registers(work, schedule, device)[1]
    resident = _resident(device)
    if device.capability >= 90 and schedule.kernel == "mono_full":
        resident = 1024
    elif device.capability >= 90 and schedule.kernel == "color_half" and schedule.window == "registers":
        stores_pair = "sums" in work.dtypes
        resident = 640 if schedule.rows > 4 or stores_pair else 768 if _is_fused(work) else 1024
    return bound(schedule.threads, resident // schedule.threads) if schedule.threads <= resident else _WINDOW_REGISTERS


def _spills(work: Work, schedule: Schedule, device: Device) -> bool:
    """Whether its launch bound leaves too few registers."""
    if schedule.kernel == "tile":
        return _tile_registers(work, schedule, device)[0] > _tile_bound(schedule, device)
    return schedule.kernel == "mono_half" and schedule.rows > 2 and device.capability < 80


def schedule_defines(work: Work, schedule: Schedule) -> Dict[str, int]:
    """The preprocessor definitions that compile a schedule into its kernel; tiles count raw pixels there.

    What a schedule leaves at 0 has no meaning with its window, and is left out.
    """
    step = _step(work) if schedule.window == "tile" else 1
    sizes = {
        "THREADS": schedule.threads,
        "TILE_X": step * schedule.tile_x,
        "TILE_Y": step * schedule.tile_y,
        "ROWS": schedule.rows,
        "LINES": schedule.lines,
    }
    window = {"WINDOW": WINDOWS[schedule.window], "SHARED_BYTES": shared_bytes(work, schedule)}
    if schedule.kernel != "tile":  # compiled for one size: lines become immediate offsets
        window.update(WIDTH=work.width, HEIGHT=work.height)
    return {**window, **{name: size for name, size in sizes.items() if size}}


# ----------------------------------------------------------------------------------------------------- hard constraints

#: Below this share of resident warps, latency shows. Register windows live well with it: 96 registers on sm_72.
MIN_OCCUPANCY = 0.3
MAX_THREADS = 1024


def check(work: Work, schedule: Schedule, device: Device) -> None:
    """Refuse a schedule that cannot do the work, or not on this device.

    Raises:
        ScheduleError: With what it needs and what there is.
    """
    problem = _problem(work, schedule, device)
    if problem:
        raise ScheduleError(f"{schedule.kernel} ({schedule.window}) on {device.name}: {problem}")


def _problem(work: Work, schedule: Schedule, device: Device) -> Optional[str]:
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
    x, y = _unit(schedule)
    if schedule.window == "tile" and (x < 1 or _step(work) * x % 8 or y < 1 or _step(work) * y % 4):
        return f"a tile must be a multiple of 8x4 raw pixels, got {_step(work) * x}x{_step(work) * y}"
    if schedule.window == "registers" and schedule.tile_x != kernel.pixels:
        return f"a thread makes {kernel.pixels} pixels along x, got {schedule.tile_x}"
    if _is_adaptive(work) and schedule.window == "tile" and schedule.rows < 1:
        return f"the adaptive method slides down at least 1 row, got {schedule.rows}"
    if schedule.window != "tile" and schedule.rows not in _rows(work, schedule):
        return f"rows can be {', '.join(map(str, _rows(work, schedule)))}, got {schedule.rows}"
    if schedule.window == "ring" and schedule.tile_x != 4 * schedule.threads:
        return f"a strip of {schedule.threads} threads is {4 * schedule.threads} pixels wide, got {schedule.tile_x}"
    if schedule.window == "ring" and schedule.lines not in _RING_LINES:
        return f"the ring can have {', '.join(map(str, _RING_LINES))} lines, got {schedule.lines}"
    need = shared_bytes(work, schedule)
    if need > device.shared_per_block:
        return f"needs {need} bytes of shared memory, a block has {device.shared_per_block}"
    file = schedule.threads * registers(work, schedule, device)
    if file > device.registers_per_multiprocessor:
        return f"needs {file} registers, a multiprocessor has {device.registers_per_multiprocessor}"
    return None


#: Rows that a block moves the ring down, and lines it can have: those in use, and some under way.
_RING_ROWS = (4, 8, 16, 32)
_RING_LINES = (WINDOW_LINES + _RING_STEP, WINDOW_LINES + 2 * _RING_STEP, WINDOW_LINES + 3 * _RING_STEP)


def _rows(work: Work, schedule: Schedule) -> Tuple[int, ...]:
    """Rows that a thread can march down."""
    return _RING_ROWS if schedule.window == "ring" else KERNELS[schedule.kernel].rows[_is_fused(work)]


#: Raw pixels of tiles beside powers of two: one that 2448x2048 has a whole number of, and those with which the adaptive
#: method's halo and rows come out well.
_MORE_TILES = ((72, 32), (64, 60), (64, 40), (64, 28), (56, 32), (56, 28))


def _space(work: Work) -> Iterator[Schedule]:
    """Every schedule worth a thought for a work, whatever the device."""
    able = [kernel for kernel in KERNELS if supports(kernel, work) is None]
    for name in able:
        if "registers" in KERNELS[name].windows:
            for threads, rows in product(KERNELS[name].threads, KERNELS[name].rows[_is_fused(work)]):
                yield Schedule(name, "registers", threads, KERNELS[name].pixels, rows=rows)
    if "color_half" in able and not _is_fused(work):  # in the ring, products of all four angles spill
        for threads in sorted({_up(-(-work.output_size[1] // (4 * strips)), WARP) for strips in range(1, 11)}):
            for rows, lines in product(_RING_ROWS, _RING_LINES):
                yield Schedule("color_half", "ring", threads, 4 * threads, rows=rows, lines=lines)
    slides = (5, 6, 9, 10) if _is_adaptive(work) else (0,)
    step = _step(work)
    tiles = [*product((16, 32, 64, 128), (4, 8, 16, 32)), *((x // step, y // step) for x, y in _MORE_TILES)]
    for (x, y), threads, rows in product(tiles, (128, 160, 192, 256, 320), slides):
        schedule = Schedule("tile", "tile", threads, x, y, rows)
        if _loaded(work, schedule) >= 4 * threads:
            yield schedule


def candidates(work: Work, device: Device) -> List[Schedule]:
    """Every schedule that meets the hard constraints; all give the same result.

    Those whose launch bounds leave fewer registers than sm_72 needs are not among them (`polar-pipeline kernels` shows
    the few that spill all the same); those with less than `MIN_OCCUPANCY` only where none has more.
    """
    able = [s for s in _space(work) if _problem(work, s, device) is None and not _spills(work, s, device)]
    resident = [expected_occupancy(work, schedule, device) for schedule in able]
    least = min(MIN_OCCUPANCY, max(resident, default=0))
    return [schedule for schedule, share in zip(able, resident) if share >= least]


def refuse(work: Work, device: Device) -> NoReturn:
    """Say why no schedule fits a device.

    Raises:
        ScheduleError: Need and limit of the smallest.
    """
    smallest = min(_space(work), key=lambda schedule: shared_bytes(work, schedule))
    check(work, smallest, device)
    raise ScheduleError(f"{smallest.kernel} ({smallest.window}) on {device.name}: every schedule spills registers")


def expected_occupancy(work: Work, schedule: Schedule, device: Device) -> float:
    """Share of resident warps that the solver counts with, 0 to 1."""
    return occupancy(device, schedule.threads, registers(work, schedule, device), shared_bytes(work, schedule))


def limits(work: Work, device: Device) -> Limits:
    """What a launch may use on a device, for the plan: the smallest window that any schedule needs is what it takes."""
    smallest = min(shared_bytes(work, schedule) for schedule in _space(work) if not _spills(work, schedule, device))
    return Limits(len(OUTPUTS), device.shared_per_block, {"angles": smallest})


# ------------------------------------------------------------------------------------------------------------ objective

#: Issue slots of an H200 per pixel and stage in `tile`, in pairs of half: fitted to its times over sensors, methods,
#: formats, tiles and numbers of resident warps (`benchmarks/model.py`). Demosaicking counts per raw pixel (and channel,
#: where so said). `SHARES` says which pipes take them, and how many more a device needs.
OPERATIONS = {
    "load u8": 16.3,  # load, unpack, scale, look for saturation, store to shared memory
    "load u16": 24.7,
    "load 12p": 25.7,
    "load 12packed": 24,
    "mono bilinear": 4.6,  # per channel
    "mono gradient": 9.9,  # per channel
    "adaptive slide": 40,  # per channel: first stage
    "mono adaptive": 44.9,  # per channel: second stage
    "color bilinear": 17.2,
    "color mhc": 10.4,
    "color weighted": 56.6,
    "co-site": 8.2,  # per output pixel and channel
    "stokes": 20,  # per output pixel: S0, S1, S2, length and direction
    "intensity": 5,  # per output pixel and channel
    "preview": 24,  # per output pixel
    "store": 4.9,  # per output pixel and channel stored
}
#: Rows of the mosaic that a run of ADR's first stage reads before its first result, in work for rows.
_ADAPTIVE_START = 2
#: What an idle thread costs of a busy one: a block waits for its slowest thread, and other blocks fill the gap.
IDLE_SHARE = 0.55
#: Clocks that a word of shared memory takes a bank in float, by stage, as several lanes ask for one bank at a time.
#: Fitted; an H200's counters say 2.4 (mono) and 3 (colour) for whole kernels at half resolution, in half 0.9.
CONFLICTS = {"load": 2.8, "co-site": 2.1, "color mhc": 2.1, "adaptive slide": 2.2, "mono adaptive": 2.2}
#: Share of the peak bandwidth that a copy reaches: 4.24 of 4.8 TB/s on an H200.
COPY_SHARE = 0.85
#: Time of a byte that was read before, and so comes from the cache, against one from memory.
REREAD_SHARE = 0.6
#: Seconds from a load to its value under traffic; so much of the bandwidth must be in flight at any time.
LATENCY_S = 0.7e-6
#: Issue slots of a multiprocessor per clock: four schedulers of a warp each, on every device since Volta.
ISSUE_SLOTS = 4 * WARP
#: Resident warps of a multiprocessor with which waiting takes as long as issuing; measured with 12 to 40 warps.
BUSY_WARPS = 22
#: Microseconds from one launch to the next, by `integrated`: measured on an H200; assumed for Jetsons.
LAUNCH_US = {False: 2.6, True: 5.0}
#: Share of the time of a round of blocks that passes while a launch begins and ends with fewer than all of them.
TAIL_SHARE = 0.3
#: Blocks a clock that a device starts at most, as measured with blocks of a warp.
BLOCKS_PER_CLOCK = 0.41


class Cost(NamedTuple):
    """What a launch moves and computes for one frame.

    Attributes:
        read: Bytes of the input; the last packed pixel may take one and a half.
        reread: Bytes loaded by all blocks, halo included; likewise.
        written: Bytes of the outputs.
        operations: Issue slots of a lane, halo and idle threads included; also those that pass while another pipe is
            busy.
    """

    read: float
    reread: float
    written: int
    operations: float


class Prediction(NamedTuple):
    """Predicted time of a launch, microseconds.

    Attributes:
        memory_us: For the bytes alone.
        arithmetic_us: For the operations alone.
        waiting_us: Part of the shorter of the two that the longer one does not hide, and of both at the beginning and
            at the end; for blocks to start.
        launch_us: Overhead.
    """

    memory_us: float
    arithmetic_us: float
    waiting_us: float
    launch_us: float

    @property
    def us(self) -> float:
        """The slower of memory and arithmetic, what waits for it, and the overhead."""
        return max(self.memory_us, self.arithmetic_us) + self.waiting_us + self.launch_us


def output_bytes(work: Work) -> int:
    """Bytes that a launch stores for one frame."""
    height, width = work.output_size
    values = sum(_CHANNELS[name][work.sensor.is_color] * np.dtype(dtype).itemsize for name, dtype in work.outputs)
    return height * width * values


def _raw_bytes(work: Work, pixels: int) -> float:
    return pixels * {"u8": 1, "u16": 2}.get(work.raw_format, 1.5)  # not rounded: time has to grow with size


def weigh(operations: Mapping[str, float], half_precision: bool, device: Device) -> float:
    """Issue slots that pass while a device goes through the stages of a kernel, one after the other.

    Each stage takes as long as the pipe that has most to do in it: barriers separate the stages of a block.

    Args:
        operations: Stage -> issue slots of an H200 in pairs of half, of which `SHARES` knows the parts.
        half_precision: Whether the kernel computes in pairs of half.
        device: The GPU.
    """
    return sum(slots * _weight(stage, half_precision, device.capability) for stage, slots in operations.items())


@lru_cache(maxsize=None)
def _weight(stage: str, half_precision: bool, capability: int) -> float:
    """Issue slots that pass while the slowest pipe does what takes one of an H200's, in pairs of half."""
    known = sorted({number for _, _, number in SHARES})
    share = SHARES[stage, half_precision, max(number for number in known if number <= max(capability, known[0]))]
    if not half_precision:
        conflicts = CONFLICTS.get("load" if stage.startswith("load") else stage, 1.0)
        share = share._replace(memory=share.memory * conflicts)
    return clocks(capability, share) * ISSUE_SLOTS


def _stages(work: Work, schedule: Schedule) -> Dict[str, float]:
    """Issue slots of an H200 by stage of `tile`, in pairs of half."""
    mono, _ = halos(work)
    step, channels = _step(work), 3 if work.sensor.is_color else 1
    x, y = _unit(schedule)
    units = _units(work, schedule)

    def waited(pixels: int, grain: int) -> float:
        """Pixels of a stage of a block, `grain` to a thread, and part of what its idle threads could have made."""
        idle = _up(pixels, grain * schedule.threads) - pixels if schedule.window == "tile" else 0
        return units * (pixels + IDLE_SHARE * idle)

    mosaic = (step * x + 2 * _up(mono, 4)) * (step * y + 2 * mono)
    made = waited(x * y, 4)
    found = {f"load {work.raw_format}": OPERATIONS[f"load {work.raw_format}"] * waited(_loaded(work, schedule), 4)}
    if work.sensor.is_color:
        name = f"color {work.debayer}"
        found[name] = OPERATIONS[name] * waited(mosaic, 16 if work.debayer == "mhc" else 4)
    if _is_adaptive(work):  # in runs of rows, which begin by filling a window of nine
        runs = -(-(step * y + 2) // schedule.rows) * (schedule.rows + _ADAPTIVE_START)
        columns = waited(channels * (step * x + 8) * runs, 2 * schedule.rows)
        found["adaptive slide"] = OPERATIONS["adaptive slide"] * columns
    # adaptive at half resolution takes two pixels of one channel to a thread, all else four of all channels
    values = waited(channels * x * y, 2) if _is_adaptive(work) and work.half else channels * made
    if not work.half or (work.co_sited and work.demosaic != "bilinear"):  # else moving to the centre is all
        found[f"mono {work.demosaic}"] = OPERATIONS[f"mono {work.demosaic}"] * step**2 * values
    if work.half and work.co_sited:
        found["co-site"] = OPERATIONS["co-site"] * values
    names = work.dtypes
    per_pixel = OPERATIONS["store"] * sum(_CHANNELS[name][work.sensor.is_color] for name in names)
    per_pixel += OPERATIONS["stokes"] * any(name not in ("intensity", *_ANGLE_IMAGES) for name in names)
    per_pixel += OPERATIONS["intensity"] * channels * ("intensity" in names)
    per_pixel += OPERATIONS["preview"] * ("preview" in names)
    return {**found, "products": per_pixel * made}


def cost(work: Work, schedule: Schedule, device: Device) -> Cost:
    """What a schedule moves and computes for one frame."""
    stages = _stages(work, schedule)
    kernel = KERNELS[schedule.kernel]
    if schedule.kernel != "tile":
        effort = kernel.effort[kernel.windows.index(schedule.window)]
        name = schedule.kernel + (" angles" if work.sensor.is_color and not _is_fused(work) else "")
        stages = {name: effort * sum(stages.values())}
    return Cost(
        _raw_bytes(work, work.width * work.height),
        _raw_bytes(work, _units(work, schedule) * _loaded(work, schedule)),
        output_bytes(work),
        weigh(stages, work.half_precision, device),
    )


def roofline(taken: Cost, device: Device, frames: int = 1) -> Prediction:
    """The time of a launch that keeps all of the device busy."""
    moved = taken.read + REREAD_SHARE * max(0, taken.reread - taken.read) + taken.written
    return Prediction(
        frames * moved / (device.bandwidth_gbs * COPY_SHARE * 1e3),
        frames * taken.operations / (device.multiprocessors * ISSUE_SLOTS * device.clock_mhz),
        0.0,
        LAUNCH_US[device.integrated],
    )


def _in_flight(work: Work, schedule: Schedule) -> float:
    """Bytes that a block has on their way at a time."""
    if schedule.window == "ring":  # the lines that the window does not use
        return (schedule.lines - WINDOW_LINES) * _raw_bytes(work, 2 * schedule.tile_x)
    if schedule.window == "registers":  # the rows of the next step, 16 bytes a load
        return schedule.threads * 16 * min(4, 2 * schedule.rows)
    return schedule.threads * 32


class Occupant(NamedTuple):
    """What a launch takes of the device.

    Attributes:
        blocks: Of one frame.
        threads: Per block.
        registers: Per thread.
        shared: Bytes per block.
        in_flight: Bytes that a block has on their way at a time.
        exposed: Share of its loads that a block waits for with nothing to compute meanwhile, 0 to 1; 1 where its
            threads wait for each other before they go on loading.
        busy_warps: Resident warps of a multiprocessor with which waiting takes as long as issuing.
        whole: Bytes that one frame would move if every block lay within the picture, stores only where a block does not
            load meanwhile; 0: as many as it moves.
        crowds: Whether its blocks begin while the launch before still works: then they come where that one leaves
            first, and the busiest multiprocessor gets as many as fit.
    """

    blocks: int
    threads: int
    registers: int
    shared: int
    in_flight: float
    exposed: float
    busy_warps: float = BUSY_WARPS
    whole: float = 0.0
    crowds: bool = False


def predict(work: Work, schedule: Schedule, device: Device, frames: int = 1) -> Prediction:
    """Predicted time of a launch."""
    blocks_x, blocks_y, _ = grid(work, schedule)
    occupant = Occupant(
        blocks_x * blocks_y,
        schedule.threads,
        registers(work, schedule, device),
        shared_bytes(work, schedule),
        _in_flight(work, schedule),
        float(schedule.window != "registers"),
        whole=_whole(work, schedule),
    )
    return predict_launch(cost(work, schedule, device), occupant, device, frames)


def _whole(work: Work, schedule: Schedule) -> float:
    """Bytes of whole tiles or strips, as the roofline counts them."""
    (x, y), (height, width) = _unit(schedule), work.output_size
    read, written = _raw_bytes(work, _step(work) ** 2 * x * y), output_bytes(work) / (height * width) * x * y
    reread = max(read, _raw_bytes(work, _loaded(work, schedule)))
    return _units(work, schedule) * (read + REREAD_SHARE * (reread - read) + written)


def predict_launch(taken: Cost, occupant: Occupant, device: Device, frames: int = 1) -> Prediction:
    """Predicted time of a launch.

    The roofline, worse where the busiest multiprocessor has more than its share of the blocks, where too few warps are
    resident to hide latencies, where too few bytes are in flight for the bandwidth (then blocks are on their way side
    by side, and the longest one counts), where barriers keep a block from loading and computing at a time, so that
    only its neighbours fill the gaps, and where blocks end sooner than the device starts others. A launch begins and
    ends with fewer blocks than fit.
    """
    ideal = roofline(taken, device, frames)
    blocks = occupant.blocks * frames
    mean = blocks / device.multiprocessors
    fitting = resident_blocks(device, occupant.threads, occupant.registers, occupant.shared)
    busiest = max(-(-blocks // device.multiprocessors), min(fitting, blocks) if occupant.crowds else 0)
    needed = device.bandwidth_gbs * 1e9 * LATENCY_S / device.multiprocessors
    whole_us = frames * occupant.whole / (device.bandwidth_gbs * COPY_SHARE * 1e3) or ideal.memory_us
    memory = max(ideal.memory_us, whole_us / (min(fitting, mean) * occupant.in_flight / needed))
    slack = occupant.busy_warps * WARP / (min(fitting, busiest) * occupant.threads)
    arithmetic = ideal.arithmetic_us * busiest / mean * hypot(1, slack)
    waiting = occupant.exposed * min(memory, arithmetic) / fitting
    busy = max(memory, arithmetic, blocks / (BLOCKS_PER_CLOCK * device.clock_mhz))
    waiting += busy - max(memory, arithmetic) + TAIL_SHARE * busy * min(1.0, fitting / mean)
    return Prediction(memory, arithmetic, waiting, ideal.launch_us)
