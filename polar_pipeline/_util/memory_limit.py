"""Limits of memory: that of the tool, so that a hostile file ends in an error, and that of the user (`ulimit -v`)."""

from __future__ import annotations

import resource
from contextlib import contextmanager
from pathlib import Path
from typing import Iterator, Optional

_CGROUP = Path("/sys/fs/cgroup")


@contextmanager
def limited_memory() -> Iterator[None]:
    """Let this process, and each process that it starts, take at most the memory that is available now.

    The limit is `RLIMIT_DATA`, private writable memory; an allocation beyond it fails with an error. `RLIMIT_AS` would
    forbid CUDA, which reserves address space. Nothing is limited on systems without `/proc`. A lower limit stays.
    """
    limit = memory_limit()
    soft, _ = resource.getrlimit(resource.RLIMIT_DATA)
    if limit is None or (soft != resource.RLIM_INFINITY and soft <= limit):
        yield
        return
    with _soft_limit(limit):
        yield


@contextmanager
def without_limit() -> Iterator[None]:
    """Lift `limited_memory` for a moment; the hard limit of the process stays."""
    with _soft_limit(resource.getrlimit(resource.RLIMIT_DATA)[1]):
        yield


@contextmanager
def _soft_limit(size: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def memory_limit() -> Optional[int]:
    """Return the bytes that this process has and may still take, or None if they are unknown."""
    try:
        available = _kilobytes(Path("/proc/meminfo"), "MemAvailable") << 10
        taken = _kilobytes(Path("/proc/self/status"), "VmData") << 10
    except (OSError, LookupError, ValueError):
        return None
    try:  # of a container
        most, used = (int((_CGROUP / f"memory.{name}").read_text(encoding="ascii")) for name in ("max", "current"))
    except (OSError, ValueError):  # "max" is no limit
        return taken + available
    return taken + max(0, min(available, most - used))


def _kilobytes(path: Path, name: str) -> int:
    """Read a line such as `VmData:  100 kB` of a file of the kernel."""
    rows = (line.split() for line in path.read_text(encoding="utf-8").splitlines())
    return int({row[0]: row[1] for row in rows if len(row) > 1}[f"{name}:"])


def require_address_space(size: int, purpose: str) -> None:
    """Raise an error if less than `size` bytes are left under a limit of the address space (`ulimit -v`).

    NumPy and OpenCV crash where one of their smaller allocations fails. Nothing is checked on systems without `/proc`.

    Raises:
        MemoryError: The limit is too low; the message says what is needed and what is left.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    statm = Path("/proc/self/statm")
    if limit == resource.RLIM_INFINITY or not statm.exists():
        return
    left = max(0, limit - int(statm.read_text(encoding="ascii").split()[0]) * resource.getpagesize())
    if left < size:
        raise MemoryError(f"{purpose} may take {size >> 20} MB, of the process's limit {left >> 20} MB are left")
