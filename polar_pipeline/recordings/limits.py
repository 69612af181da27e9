"""The error of a recording that cannot be read, and limits of the sizes that recordings declare.

A size that a file declares is compared with the limit before it is read or decompressed (`check_size`). Memory that no
size declares is bounded by the process: see `_util/memory_limit.py`.
"""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import Iterator

from polar_pipeline._util.text import described
from polar_pipeline.sensor.frames import FrameError

#: Default limit in bytes of one frame, and of an uncompressed chunk of a recording: 2^28 pixels of 16 bit, the largest
#: number in a frame. A sensor of 150 megapixels, larger than any with polarizers, takes 300 MB.
MAX_BYTES = 512 << 20


class SourceError(Exception):
    """A recording that cannot be read."""


class StrictError(SourceError):
    """A warning, which `--strict` makes an error."""


def megabytes(size: int) -> str:
    """Format a number of bytes in megabytes."""
    return f"{size / (1 << 20):.4g} MB"


@contextmanager
def reading(path: Path, state: str = "cannot be read") -> Iterator[None]:
    """Turn every error in a block that reads a recording into a `SourceError` that names the file.

    No library lists what it raises on damaged bytes. Besides errors of their own it has been struct.error, KeyError,
    TypeError, AttributeError, AssertionError, OverflowError, MemoryError, RecursionError, EOFError, StopIteration and
    UnicodeDecodeError, so every exception counts.
    """
    try:
        yield
    except (SourceError, ImportError):  # the latter: an extra is not installed
        raise
    except FrameError as err:
        raise SourceError(f"{path} {state}: {err}") from err
    except Exception as err:
        raise SourceError(f"{path} {state}: {described(err)}") from err


def check_size(what: str, size: int, limit: int) -> None:
    """Compare a declared size in bytes with the limit.

    Raises:
        FrameError: The data are larger (cause `size`).
    """
    if size > limit:
        raise FrameError("size", f"{what} of {megabytes(size)}, the limit is {megabytes(limit)} (--max-mb)")
