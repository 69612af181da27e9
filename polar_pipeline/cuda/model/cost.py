"""The time that a launch takes on a device, from what it moves and computes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import hypot
from typing import Mapping

from polar_pipeline.cuda.model.device import WARP, Device, clocks, resident_blocks
from polar_pipeline.cuda.model.instructions import SHARES

#: Share of the peak bandwidth that a copy reaches: 4.24 of 4.8 TB/s on an H200.
COPY_SHARE = 0.883
#: Time of a byte that was read before, and so comes from the cache, against one from memory.
REREAD_SHARE = 0.663
#: Time of a byte of a launch whose frames and outputs are still in the second-level cache, since it holds as much: all
#: of it up to the first share of the cache, nothing from the second on.
CACHED_SHARE, CACHED_UP_TO, CACHED_FROM = 0.764, 0.8, 1.2
#: What a stored byte costs more for every image above so many that are stored at the same time: with a few, an H200
#: reaches 0.85 to 0.9 of its bandwidth, with ten 0.67.
IMAGE_SHARE, FEW_IMAGES = 0.076, 6
#: Seconds from a load to its value under traffic; so much of the bandwidth must be in flight at any time.
LATENCY_S = 0.595e-6
#: What of it remains where a launch has little on its way: loads wait for few others.
UNLOADED_SHARE = 0.484
#: Issue slots of a multiprocessor per clock: four schedulers of a warp each, on every device since Volta.
ISSUE_SLOTS = 4 * WARP
#: Resident warps of a multiprocessor with which waiting takes as long as issuing; measured with 12 to 40 warps.
BUSY_WARPS = 22
#: Microseconds from one launch to the next, by `integrated`: fitted to an H200's times; assumed for Jetsons.
LAUNCH_US = {False: 3.76, True: 5.0}
#: Share of the time of a round of blocks that passes while a launch begins and ends with fewer than all of them.
TAIL_SHARE = 0.269
#: Memory and arithmetic that take about as long hide each other only in part: a launch takes this norm of the two.
OVERLAP_NORM = 5
#: Blocks a clock that a device starts at most, as measured with blocks of a warp.
BLOCKS_PER_CLOCK = 0.438


@dataclass(frozen=True)
class Cost:
    """What a launch moves and computes for one frame.

    Attributes:
        read: Bytes of the input; the last packed pixel may take one and a half.
        reread: Bytes loaded by all blocks, halo included; likewise.
        written: Bytes of the outputs.
        operations: Issue slots of a lane, halo and idle threads included; also those that pass while another pipe is
            busy.
        images: How many are written.
        longer: How many times as long all of this takes, as measured, and not explained by its numbers.
    """

    read: float
    reread: float
    written: int
    operations: float
    images: int = 1
    longer: float = 1.0

    @property
    def write_cost(self) -> float:
        """What a stored byte costs, against one of a few images."""
        return 1 + IMAGE_SHARE * max(0, self.images - FEW_IMAGES)


@dataclass(frozen=True)
class Prediction:
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
    return clocks(capability, share) * ISSUE_SLOTS


def _memory_us(moved: float, taken: Cost, device: Device, frames: int) -> float:
    """Microseconds for so many bytes of each frame, all of them from memory."""
    return taken.longer * frames * moved / (device.bandwidth_gbs * COPY_SHARE * 1e3)


def roofline(taken: Cost, device: Device, frames: int = 1) -> Prediction:
    """The time of a launch that keeps all of the device busy."""
    moved = taken.read + REREAD_SHARE * max(0, taken.reread - taken.read) + taken.written * taken.write_cost
    return Prediction(
        _memory_us(moved, taken, device, frames),
        taken.longer * frames * taken.operations / (device.multiprocessors * ISSUE_SLOTS * device.clock_mhz),
        0.0,
        LAUNCH_US[device.integrated],
    )


@dataclass(frozen=True)
class LaunchFootprint:
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
        latency_us: Of a block, in which it computes nothing, however many others are resident; but for the first
            ones, as the launch begins with them.
        tail_share: Share of the time of a round of blocks that passes while the launch begins and ends.
        frame_us: Of a frame, however large it is.
        whole_tile_bytes: Bytes that one frame would move if every block lay within the picture, stores only where a
            block does not load meanwhile; 0: as many as it moves.
        overlaps_previous: Whether its blocks begin while the launch before still works: then they start where that one
            finishes first, and the busiest multiprocessor gets as many as fit.
    """

    blocks: int
    threads: int
    registers: int
    shared: int
    in_flight: float
    exposed: float
    busy_warps: float = BUSY_WARPS
    latency_us: float = 0.0
    tail_share: float = TAIL_SHARE
    frame_us: float = 0.0
    whole_tile_bytes: float = 0.0
    overlaps_previous: bool = False


def _uncached_share(taken: Cost, device: Device, frames: int) -> float:
    """Time of a byte against one from memory, where what the launch before left in the cache is used again."""
    if not device.cache_bytes:
        return 1.0
    filled = frames * (taken.read + taken.written) / device.cache_bytes
    share = min(1.0, max(0.0, (filled - CACHED_UP_TO) / (CACHED_FROM - CACHED_UP_TO)))
    return CACHED_SHARE + (1 - CACHED_SHARE) * share


def predict_launch(taken: Cost, footprint: LaunchFootprint, device: Device, frames: int = 1) -> Prediction:
    """Predicted time of a launch.

    The roofline, worse where the busiest multiprocessor has more than its share of the blocks, where too few warps are
    resident to hide latencies, where too few bytes are in flight for the bandwidth (then blocks are on their way side
    by side, and the longest one counts), where barriers keep a block from loading and computing at a time, so that
    only its neighbours fill the gaps, and where blocks end sooner than the device starts others. A launch begins and
    ends with fewer blocks than fit.
    """
    ideal = roofline(taken, device, frames)
    blocks = footprint.blocks * frames
    mean = blocks / device.multiprocessors
    fitting = resident_blocks(device, footprint.threads, footprint.registers, footprint.shared)
    busiest = max(-(-blocks // device.multiprocessors), min(fitting, blocks) if footprint.overlaps_previous else 0)
    needed = device.bandwidth_gbs * 1e9 * LATENCY_S / device.multiprocessors
    whole_us = _memory_us(footprint.whole_tile_bytes, taken, device, frames) or ideal.memory_us
    on_their_way = min(1.0, min(fitting, mean) * footprint.in_flight / needed)  # against what the bandwidth needs
    latency = UNLOADED_SHARE + (1 - UNLOADED_SHARE) * on_their_way**0.5
    memory = _uncached_share(taken, device, frames) * max(ideal.memory_us, whole_us * latency / on_their_way)
    resident = min(fitting, busiest)
    slack = footprint.busy_warps * WARP / (resident * footprint.threads)
    slack += footprint.latency_us * max(0.0, mean - 1) / (resident * ideal.arithmetic_us)
    arithmetic = ideal.arithmetic_us * busiest / mean * hypot(1, slack)
    waiting = footprint.exposed * min(memory, arithmetic) / fitting
    overlapped = (memory**OVERLAP_NORM + arithmetic**OVERLAP_NORM) ** (1 / OVERLAP_NORM)
    busy = max(overlapped, blocks / (BLOCKS_PER_CLOCK * device.clock_mhz))
    tail = footprint.tail_share * busy * min(1.0, fitting / mean)
    waiting += busy - max(memory, arithmetic) + tail + frames * footprint.frame_us
    return Prediction(memory, arithmetic, waiting, ideal.launch_us)
