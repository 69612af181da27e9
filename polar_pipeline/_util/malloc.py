"""Have glibc malloc retain freed memory, or return it: a new buffer of megabytes costs a page fault every 4 KB."""

from __future__ import annotations

import ctypes
from contextlib import suppress

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -2, -3, -8  # malloc.h
#: Unused bytes at the end of the heap that are retained, and the size from which a buffer gets a mapping of its own.
RETAINED_BYTES = 1 << 28
#: The largest value of that size that glibc before 2.35 (JetPack 5) accepts.
OLD_MMAP_LIMIT_BYTES = 1 << 25
#: Bytes by which the heap grows.
GROWTH_BYTES = 1 << 26


def keep_freed_memory() -> None:
    """Make malloc retain freed memory, so that large messages reuse it; only glibc can.

    glibc maps buffers above a threshold and unmaps them when they are freed. The threshold adapts to the buffers that
    are freed. The middleware allocates and frees a buffer per message. Without this setting, a process that receives
    16 MB of images per frame may spend 28 ms per frame on page faults, or none, depending on the threshold.
    """
    with suppress(AttributeError, OSError):
        mallopt = ctypes.CDLL(None).mallopt
        if not mallopt(_M_MMAP_THRESHOLD, RETAINED_BYTES):
            mallopt(_M_MMAP_THRESHOLD, OLD_MMAP_LIMIT_BYTES)
        mallopt(_M_TRIM_THRESHOLD, RETAINED_BYTES)
        mallopt(_M_TOP_PAD, GROWTH_BYTES)


def use_one_heap() -> None:
    """Make the threads that start later share one heap, so that all of them reuse the memory that any of them freed."""
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)


def release_freed_memory() -> None:
    """Return freed memory to the system, also what `keep_freed_memory` has retained; only glibc can."""
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)
