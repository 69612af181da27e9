"""GPUs and their limits, one row each."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, Mapping

#: Warps are 32 threads everywhere; registers go to a warp in steps of 256, on four schedulers per multiprocessor.
WARP = 32
_REGISTER_STEP = 256
_SCHEDULERS = 4


@dataclass(frozen=True)
class Device:
    """One GPU.

    Attributes:
        name: Key of its row, and of its tuned schedules (`<name>.json`).
        arch: Compute capability as the compiler calls it: `sm_72`; `compute_72` for PTX.
        multiprocessors: Number of multiprocessors.
        shared_per_block: Shared memory that a block may have, opt-in included, bytes.
        shared_per_multiprocessor: Shared memory of all blocks on one multiprocessor, bytes.
        registers_per_multiprocessor: 32-bit registers.
        max_threads_per_multiprocessor: Resident threads.
        max_blocks_per_multiprocessor: Resident blocks.
        bandwidth_gbs: Peak of its memory, 1e9 bytes per second.
        integrated: Whether it shares its memory with the CPU.
        maps_host: Whether kernels work on pinned host memory where it lies, rather than on copies in device memory.
            An integrated GPU does not cache it (NVIDIA, CUDA for Tegra), so bytes that are read again come from memory;
            which is faster there is measured on the first frame (`CudaBackend`), and this holds until then.
    """

    name: str
    arch: str
    multiprocessors: int
    shared_per_block: int
    shared_per_multiprocessor: int
    registers_per_multiprocessor: int
    max_threads_per_multiprocessor: int
    max_blocks_per_multiprocessor: int
    bandwidth_gbs: float
    integrated: bool
    maps_host: bool

    @property
    def capability(self) -> int:
        """Compute capability times ten: 72."""
        return int(self.arch.partition("_")[2])


_KIB = 1024
# Limits per compute capability from the CUDA C++ programming guide; bandwidths from NVIDIA's data sheets at the highest
# power mode of the module's first release: Orin Nano 8GB has 102 GB/s in the later one. sm_72: 48 KiB per block, so
# that two blocks share a multiprocessor's 96.
_TABLE = (
    Device("xavier", "sm_72", 8, 48 * _KIB, 96 * _KIB, 65536, 2048, 32, 137, True, True),
    Device("xavier-nx", "sm_72", 6, 48 * _KIB, 96 * _KIB, 65536, 2048, 32, 59.7, True, True),
    Device("orin", "sm_87", 16, 163 * _KIB, 164 * _KIB, 65536, 1536, 16, 205, True, True),
    Device("orin-32gb", "sm_87", 14, 163 * _KIB, 164 * _KIB, 65536, 1536, 16, 205, True, True),
    Device("orin-nx", "sm_87", 8, 163 * _KIB, 164 * _KIB, 65536, 1536, 16, 102.4, True, True),
    Device("orin-nano", "sm_87", 8, 163 * _KIB, 164 * _KIB, 65536, 1536, 16, 68, True, True),
    Device("orin-nano-4gb", "sm_87", 4, 163 * _KIB, 164 * _KIB, 65536, 1536, 16, 34, True, True),
    Device("h200", "sm_90", 132, 227 * _KIB, 228 * _KIB, 65536, 2048, 32, 4800, False, False),
)
#: Every known device by name.
DEVICES: Dict[str, Device] = {row.name: row for row in _TABLE}
#: Assumed where it is not reported, as by CUDA 13; only the bandwidth that `plan` shows depends on it.
_MEMORY_CLOCK = 3_000_000
#: Peak of an integrated GPU without a row, GB/s per multiprocessor. `memoryClockRate` and `memoryBusWidth` describe no
#: memory there: they gave 60 GB/s for 205. Known Jetsons have 8.5 to 17.
_INTEGRATED_GBS = 12.8
#: Bytes of memory that only an Orin NX 16GB has, of the modules with 8 multiprocessors of compute capability 8.7.
_MORE_THAN_8GB = 10e9


def board_model(path: Path = Path("/proc/device-tree/model")) -> str:
    """Return a board's own name, such as `NVIDIA Jetson Orin NX Developer Kit`; "" on PCs and in most containers."""
    try:
        return path.read_bytes().decode("utf-8", "replace").strip("\0\n ")
    except OSError:
        return ""


def from_properties(properties: Mapping[str, Any], model: str = "") -> Device:
    """Return the device that a driver describes, by its row if there is one.

    Args:
        properties: The fields of `cudaGetDeviceProperties` by name, as `cupy.cuda.runtime.getDeviceProperties`
            returns them.
        model: The board's, from `board_model`.
    """
    reported = {"memoryClockRate": _MEMORY_CLOCK, **properties}
    text = reported["name"].decode() if isinstance(reported["name"], bytes) else str(reported["name"])
    name = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    capability = 10 * reported["major"] + reported["minor"]
    multiprocessors, integrated = reported["multiProcessorCount"], bool(reported["integrated"])
    if integrated:
        bandwidth = _INTEGRATED_GBS * multiprocessors
    else:
        # two transfers a clock
        bandwidth = 2 * reported["memoryClockRate"] * 1e3 * reported["memoryBusWidth"] / 8 / 1e9
    device = Device(
        f"{name}-{multiprocessors}",
        f"sm_{capability}",
        multiprocessors,
        reported["sharedMemPerBlockOptin"],
        reported["sharedMemPerMultiprocessor"],
        reported["regsPerMultiprocessor"],
        reported["maxThreadsPerMultiProcessor"],
        reported["maxBlocksPerMultiProcessor"],
        bandwidth,
        integrated,
        integrated,
    )
    same = [
        row
        for row in _TABLE
        if (row.arch, row.multiprocessors, row.integrated) == (device.arch, device.multiprocessors, device.integrated)
        and (row.integrated or row.name in name)  # Jetsons of one family share a name, data center GPUs a chip
    ]
    if len(same) > 1:
        return DEVICES[_orin_of_8(properties, model)]
    return same[0] if same else device


def _orin_of_8(properties: Mapping[str, Any], model: str) -> str:
    """Return the row of an Orin with 8 multiprocessors, by the board's model, else by its memory."""
    for family in ("orin-nx", "orin-nano"):
        if re.search(rf"\b{family.partition('-')[2]}\b", model.lower()):
            return family
    return "orin-nx" if properties.get("totalGlobalMem", 0) > _MORE_THAN_8GB else "orin-nano"


def resident_blocks(device: Device, threads: int, registers: int, shared: int) -> int:
    """Return the number of blocks that a multiprocessor holds at a time.

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
    """Compute the share of a multiprocessor's warps that are resident, 0 to 1; 0 if no block fits.

    Arguments are those of `resident_blocks`.
    """
    warps = resident_blocks(device, threads, registers, shared) * -(-threads // WARP)
    return warps * WARP / device.max_threads_per_multiprocessor
