"""Schedules of launches: those that fit a device, ordered by their cost; measured ones first.

All schedules of a kernel give the same results. What a kernel really takes is known once it is compiled: while one
spills registers, the next schedule is tried (`compile_launch`).
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

from polar_pipeline._util.documents import read_json
from polar_pipeline._util.files import replacing
from polar_pipeline._util.share import share_path
from polar_pipeline._util.text import printable
from polar_pipeline.backends.backend import ScheduleError
from polar_pipeline.backends.cuda.device import Device, occupancy, resident_blocks
from polar_pipeline.backends.cuda.launch import Launch, Schedule

#: Environment variable that names the folder of the schedules measured by this user, in place of `tuned` in the user's
#: data folder.
TUNED_VARIABLE = "POLAR_PIPELINE_TUNED"
#: Threads of a block at most.
MAX_THREADS = 1024
#: What the last wave of blocks costs, which does not fill the device, in shares of a full one.
_LAST_WAVE = 0.2


class Measured(NamedTuple):
    """A measured schedule, and its microseconds."""

    schedule: Schedule
    us: float


#: (launch, width, height, whether frames are computed one by one) -> its fastest schedule.
_Table = Dict[Tuple[str, int, int, bool], Measured]


def limit(launch: Launch, schedule: Schedule, device: Device) -> Optional[str]:
    """Return the limit of a device that a schedule exceeds, or None."""
    kernel = launch.kernel(schedule)
    if schedule.threads > MAX_THREADS:
        return f"needs {schedule.threads} threads, a block has {MAX_THREADS}"
    shared, registers = kernel.shared_bytes(launch, schedule), kernel.registers(launch, schedule, device)
    if shared > device.shared_per_block:
        return f"needs {shared} bytes of shared memory, a block has {device.shared_per_block}"
    if not resident_blocks(device, schedule.threads, registers, shared):
        need = schedule.threads * registers
        return f"needs {need} registers, a multiprocessor has {device.registers_per_multiprocessor}"
    return None


def cost(launch: Launch, schedule: Schedule, device: Device, frames: int = 1) -> float:
    """Return a figure proportional to the expected time, to compare schedules of a kernel.

    It is the bytes that are moved, halos included, over the resident warps, which hide latency; and the last wave of
    blocks. Without more factors, it is 5 % from the best schedule in the mean of 72 cases on an H200.
    """
    kernel = launch.kernel(schedule)
    shared, registers = kernel.shared_bytes(launch, schedule), kernel.registers(launch, schedule, device)
    x, y, _ = kernel.grid(launch, schedule)
    resident = device.multiprocessors * resident_blocks(device, schedule.threads, registers, shared)
    again = launch.read_bytes * (kernel.loads(launch, schedule) - 1)
    moved = launch.read_bytes + launch.written_bytes + kernel.halo_cost * again
    return (
        moved / occupancy(device, schedule.threads, registers, shared) * (1 + _LAST_WAVE * resident / (x * y * frames))
    )


def candidates(launch: Launch, device: Device, frames: int = 1) -> List[Schedule]:
    """Return the schedules that fit a device: kernel by kernel, the preferred one first, and each by cost."""
    schedules: List[Schedule] = []
    for kernel in launch.kernels:
        able = [row for row in kernel.schedules(launch, device) if limit(launch, row, device) is None]
        schedules += sorted(able, key=lambda row: (cost(launch, row, device, frames), row))
    return schedules


def choose(launch: Launch, device: Device, frames: int = 1) -> Iterator[Tuple[str, Schedule]]:
    """Yield (`measured` by this user, `shipped` or `solved`, schedule), the best first, each schedule once.

    Args:
        launch: What is computed.
        device: Device that computes.
        frames: In one launch: measured schedules of single frames are not for batches, and the other way round.

    Raises:
        ScheduleError: No schedule fits the device (the message names need and limit of the kernel's smallest one), or a
            file of measured schedules is broken.
    """
    rows = candidates(launch, device, frames)
    able = {row: "solved" for row in rows if row.kernel == rows[0].kernel}  # of the preferred kernel that has some
    if not able:
        kernel = launch.kernels[-1]
        smallest = min(kernel.schedules(launch, device), key=lambda row: kernel.shared_bytes(launch, row))
        raise ScheduleError(f"{kernel.name} on {device.name}: {limit(launch, smallest, device)}")
    width, height = launch.size
    for basis, path in (("measured", tuned_path(device.name)), ("shipped", shipped_path(device))):
        table = _read(path).items() if path is not None else ()
        same = [
            (abs(x * y - width * height), row)
            for (key, x, y, is_single), row in table
            if key == launch.key and is_single == (frames == 1)
        ]
        for _, row in sorted(same, key=lambda pair: pair[0]):  # the nearest size first
            if able.get(row.schedule) == "solved":
                able[row.schedule] = basis
                yield basis, row.schedule
    yield from ((basis, schedule) for schedule, basis in able.items() if basis == "solved")


# ------------------------------------------------------------------------------------------------------- measured ones


def tuned_path(device: str) -> Optional[Path]:
    """Return the path of this user's schedules for a device, which need not exist; None for a user without a home.

    It is in `$POLAR_PIPELINE_TUNED`, else in the user's data folder by the XDG Base Directory Specification. Not
    platformdirs: its releases for Python 3.8 take a relative variable as a folder below the current one, while the
    specification has it ignored.
    """
    data = Path(os.environ.get("XDG_DATA_HOME", ""))
    if not data.is_absolute():
        data = Path("~/.local/share")
        with suppress(RuntimeError, KeyError):  # the latter up to Python 3.8
            data = data.expanduser()
    named = os.environ.get(TUNED_VARIABLE)
    if not named and not data.is_absolute():
        return None
    return (Path(named) if named else data / "polar_pipeline" / "tuned") / f"{device}.json"


def shipped_path(device: Device) -> Path:
    """Return the path of the schedules that the package ships for an architecture; it need not exist."""
    return share_path("config") / "tuned" / f"sm_{device.capability}.json"


@lru_cache(maxsize=None)
def _read(path: Path) -> _Table:
    if not os.path.exists(str(path)):  # noqa: PTH110 - False too for a home that this user may not enter
        return {}
    try:
        return dict(map(_row, read_json(path)))
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as err:
        reason = printable(f"{type(err).__name__}: {err}", 400)
        raise ScheduleError(f"{printable(str(path))} is not a list of tuned schedules: {reason}") from err


def _row(row: Any) -> Tuple[Tuple[str, int, int, bool], Measured]:
    """Return a row of a file; `choose` takes its schedule only if a kernel offers the same one."""
    (width, height), fields = row["size"], row["schedule"]
    numbers = (int(fields[name]) for name in ("threads", "tile_x", "tile_y", "rows"))
    key = str(row["work"]), int(width), int(height), int(row.get("frames", 1)) == 1
    return key, Measured(Schedule(str(fields["kernel"]), *numbers), float(row["us"]))


def save_schedule(launch: Launch, device: Device, best: Measured) -> Path:
    """Write a measured schedule of single frames into this user's file, in place of the one for that launch and size.

    Raises:
        OSError: The file cannot be written, or the user has no home.
        ScheduleError: The file is broken.
    """
    path = tuned_path(device.name)
    if path is None:
        raise FileNotFoundError("this user has no home folder; set XDG_DATA_HOME to a folder of your own")
    rows = {**_read(path), (launch.key, *launch.size, True): best}
    entries = [
        {"work": key, "size": [x, y], "frames": 1 if single else 2, "schedule": asdict(row.schedule), "us": row.us}
        for (key, x, y, single), row in sorted(rows.items())
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path, force=True) as stream:
        stream.write((json.dumps(entries, indent=1) + "\n").encode())
    _read.cache_clear()
    return path
