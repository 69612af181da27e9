"""GPUs as rows: what a kernel may use there, and how fast it may hope to be."""

from __future__ import annotations

import re
from typing import Any, Dict, Mapping, NamedTuple

from polar_pipeline.text import quoted

#: Warps are 32 threads everywhere; registers go to a warp in steps of 256, on four schedulers per multiprocessor.
WARP = 32
_REGISTER_STEP = 256
_SCHEDULERS = 4


class Device(NamedTuple):
    """One GPU.

    Attributes:
        name: Key of its row, and of its tuned schedules (`config/tuned/<name>.json`).
        arch: Compute capability as the compiler calls it: `sm_72`.
        multiprocessors: How many it has.
        shared_per_block: Shared memory that a block may have, opt-in included, bytes.
        shared_per_multiprocessor: Shared memory of all blocks on one multiprocessor, bytes.
        registers_per_multiprocessor: 32-bit registers.
        max_threads_per_multiprocessor: Resident threads.
        max_blocks_per_multiprocessor: Resident blocks.
        clock_mhz: Highest clock of the multiprocessors.
        bandwidth_gbs: Peak of its memory, 1e9 bytes per second.
        integrated: Whether it shares its memory with the CPU.
    """

    name: str
    arch: str
    multiprocessors: int
    shared_per_block: int
    shared_per_multiprocessor: int
    registers_per_multiprocessor: int
    max_threads_per_multiprocessor: int
    max_blocks_per_multiprocessor: int
    clock_mhz: int
    bandwidth_gbs: float
    integrated: bool

    @property
    def capability(self) -> int:
        """Compute capability times ten: 72."""
        return int(self.arch[3:])

    @property
    def overlaps(self) -> bool:
        """Whether a launch may begin while the one before it in its stream works: kernels know how to wait for it."""
        return self.capability >= 90


_KIB = 1024
# Limits per compute capability from the CUDA C++ programming guide; clocks and bandwidths from NVIDIA's data sheets at
# the highest power mode. sm_72: 48 KiB per block, so that two blocks share a multiprocessor's 96.
_TABLE = (
    Device("xavier", "sm_72", 8, 48 * _KIB, 96 * _KIB, 65536, 2048, 32, 1377, 137, True),
    Device("xavier-nx", "sm_72", 6, 48 * _KIB, 96 * _KIB, 65536, 2048, 32, 1100, 59.7, True),
    Device("orin", "sm_87", 16, 163 * _KIB, 164 * _KIB, 65536, 1536, 16, 1300, 205, True),
    Device("orin-nx", "sm_87", 8, 163 * _KIB, 164 * _KIB, 65536, 1536, 16, 918, 102.4, True),
    Device("orin-nano", "sm_87", 8, 163 * _KIB, 164 * _KIB, 65536, 1536, 16, 625, 68, True),
    Device("h200", "sm_90", 132, 227 * _KIB, 228 * _KIB, 65536, 2048, 32, 1980, 4800, False),
)
#: Every known device by name.
DEVICES: Dict[str, Device] = {row.name: row for row in _TABLE}
#: CUDA 13 no longer tells clocks. What is assumed then shifts all predictions alike; it hardly changes their order.
_UNTOLD = {"clockRate": 1_500_000, "memoryClockRate": 3_000_000}


def get_device(name: str) -> Device:
    """A device by name.

    Raises:
        ValueError: No row has that name.
    """
    if name not in DEVICES:
        raise ValueError(f"device must be one of {', '.join(DEVICES)}, got {quoted(name)}")
    return DEVICES[name]


def from_properties(properties: Mapping[str, Any]) -> Device:
    """The device that a driver describes; its row where there is one.

    Args:
        properties: What `cudaGetDeviceProperties` tells, by the names of its fields, as
            `cupy.cuda.runtime.getDeviceProperties` gives them.
    """
    told = {**_UNTOLD, **properties}
    text = told["name"].decode() if isinstance(told["name"], bytes) else str(told["name"])
    name = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    capability = 10 * told["major"] + told["minor"]
    found = Device(
        f"{name}-{told['multiProcessorCount']}",
        f"sm_{capability}",
        told["multiProcessorCount"],
        told["sharedMemPerBlockOptin"],
        told["sharedMemPerMultiprocessor"],
        told["regsPerMultiprocessor"],
        told["maxThreadsPerMultiProcessor"],
        told["maxBlocksPerMultiProcessor"],
        told["clockRate"] // 1000,
        2 * told["memoryClockRate"] * 1e3 * told["memoryBusWidth"] / 8 / 1e9,  # two transfers a clock
        bool(told["integrated"]),
    )
    same = [
        row
        for row in _TABLE
        if (row.arch, row.multiprocessors, row.integrated) == (found.arch, found.multiprocessors, found.integrated)
        and (row.integrated or row.name in name)  # Jetsons of one family share a name, data centre GPUs a chip
    ]
    return min(same, key=lambda row: abs(row.clock_mhz - found.clock_mhz), default=found)


def resident_blocks(device: Device, threads: int, registers: int, shared: int) -> int:
    """Blocks that a multiprocessor holds at a time.

    Args:
        device: The GPU.
        threads: Per block.
        registers: Per thread.
        shared: Bytes per block.
    """
    warps = -(-threads // WARP)
    per_warp = -(-registers * WARP // _REGISTER_STEP) * _REGISTER_STEP
    resident_warps = device.registers_per_multiprocessor // _SCHEDULERS // per_warp * _SCHEDULERS
    step, reserved = (128, 1024) if device.capability >= 80 else (256, 0)  # the driver keeps some for itself
    per_block = -(-(shared + reserved) // step) * step
    limits = [
        device.max_blocks_per_multiprocessor,
        device.max_threads_per_multiprocessor // (warps * WARP),
        resident_warps // warps,
    ]
    if per_block:
        limits.append(device.shared_per_multiprocessor // per_block)
    return min(limits)


def occupancy(device: Device, threads: int, registers: int, shared: int) -> float:
    """Share of a multiprocessor's warps that are resident, 0 to 1; 0 if not one block fits.

    Args:
        device: The GPU.
        threads: Per block.
        registers: Per thread.
        shared: Bytes per block.
    """
    warps = resident_blocks(device, threads, registers, shared) * -(-threads // WARP)
    return warps * WARP / device.max_threads_per_multiprocessor
