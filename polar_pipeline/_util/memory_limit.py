"""Limits the memory of a process, so that a hostile file ends in an error and does not take the machine's memory."""

from __future__ import annotations

import resource
from contextlib import contextmanager
from pathlib import Path
from typing import Iterator, Optional

_CGROUP = Path("/sys/fs/cgroup")


@contextmanager
def limited_memory(share: float = 1.0) -> Iterator[None]:
    """Let this process, and each process that it starts, take at most a share of the memory that is available now.

    The limit is `RLIMIT_DATA`, private writable memory; an allocation beyond it fails with an error. `RLIMIT_AS` would
    forbid CUDA, which reserves address space. Nothing is limited on systems without `/proc`. A lower limit stays.
    """
    limit = memory_limit(share)
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if limit is None or (soft != resource.RLIM_INFINITY and soft <= limit):
        yield
        return
    resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def memory_limit(share: float) -> Optional[int]:
    """Bytes that this process has and may take of the available memory; None where the system does not say."""
    try:
        available = _kilobytes(Path("/proc/meminfo"), "MemAvailable") << 10
        taken = _kilobytes(Path("/proc/self/status"), "VmData") << 10
    except (OSError, LookupError, ValueError):
        return None
    try:  # of a container
        most, used = (int((_CGROUP / f"memory.{name}").read_text(encoding="ascii")) for name in ("max", "current"))
    except (OSError, ValueError):  # "max" is no limit
        return taken + int(share * available)
    return taken + int(share * max(0, min(available, most - used)))


def _kilobytes(path: Path, name: str) -> int:
    """A line such as `VmData:  100 kB` of a file of the kernel."""
    rows = (line.split() for line in path.read_text(encoding="utf-8").splitlines())
    return int({row[0]: row[1] for row in rows if len(row) > 1}[f"{name}:"])
