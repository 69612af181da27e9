"""How much memory this process may still map, where the system limits it (`ulimit -v`)."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Optional


def address_space_left() -> Optional[int]:
    """Bytes that this process may still map; None where there is no limit, or no way to know."""
    if sys.platform == "win32":
        return None
    import resource

    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return None
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    except OSError:
        return None
    return max(0, limit - pages * resource.getpagesize())


def require_address_space(size: int, purpose: str) -> None:
    """Raise an error if less than `size` bytes are left under a limit.

    NumPy and OpenCV crash where one of their smaller allocations fails.

    Raises:
        MemoryError: With what is needed and what is left.
    """
    left = address_space_left()
    if left is not None and left < size:
        raise MemoryError(f"{purpose} may take {size >> 20} MB, of the process's limit {left >> 20} MB are left")
