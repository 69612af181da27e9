"""The C library's heap, told to keep what is freed: a fresh buffer of megabytes costs a page fault every 4 KB."""

from __future__ import annotations

import ctypes

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3  # malloc.h
#: Bytes that may lie unused at the heap's end, and the size from which a buffer is mapped by itself.
KEPT = 1 << 28
#: The most that glibc before 2.35 (JetPack 5) takes for that size.
OLD_LIMIT = 1 << 25
#: Bytes by which the heap grows.
GROWTH = 1 << 26


def keep_freed_memory() -> bool:
    """Have this process reuse the memory of large messages instead of giving it back and asking for it anew.

    glibc maps buffers beyond a threshold of its own, which moves with what is freed, and gives them back when they are
    freed. The middleware makes and frees a buffer per message. Without this, a process that takes 16 MB of images per
    frame may spend 28 ms per frame on page faults, or nothing, as the threshold happens to move.

    Returns:
        Whether the C library has such a setting; only glibc does.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False
    is_mapped_late = mallopt(_M_MMAP_THRESHOLD, KEPT) or mallopt(_M_MMAP_THRESHOLD, OLD_LIMIT)
    return bool(is_mapped_late and mallopt(_M_TRIM_THRESHOLD, KEPT) and mallopt(_M_TOP_PAD, GROWTH))
