"""Bounds on what a recording makes this process allocate, and the error of a recording that cannot be read."""

from __future__ import annotations

import bz2
import heapq
import io
import os
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Callable, Dict, Iterable, Iterator, List, Optional, Set, Tuple

import lz4.frame  # type: ignore[import-untyped]
import zstandard

from polar_pipeline._util.text import printable

#: Bytes of one frame, and of what is held of a recording at once, unless told otherwise: the most pixels that a frame
#: may have, 2^28, of 16 bit. A sensor of 150 megapixels, larger than any with polarizers, takes 300 MB.
MAX_BYTES = 512 << 20
#: Bytes of an index, as a part of the limit: read whole, its records take about ten times as much memory.
INDEX_PART = 8
#: Bytes that a message held takes beside its data, in Python's objects.
_OVERHEAD = 512
_PIECE = 1 << 20
#: Characters of the longest line that is read.
_LINE = 4096


class SourceError(Exception):
    """A recording that cannot be read."""


class TooLargeError(SourceError):
    """A recording that needs more memory than it may take."""


def megabytes(size: int) -> str:
    """A number of bytes, for people."""
    return f"{size / (1 << 20):.4g} MB"


def described(err: BaseException) -> str:
    """An error of a library: its class and what it says, short and printable; of the system's, the reason alone."""
    if isinstance(err, OSError) and err.strerror:
        return printable(err.strerror)
    return f"{type(err).__name__}: {printable(str(err))}"


@contextmanager
def reading(path: Path, state: str = "cannot be read") -> Iterator[None]:
    """Around what looks into a recording: whatever goes wrong there is a `SourceError` that names the file.

    No library lists what damaged bytes make it raise. Beside errors of their own it has been struct.error, KeyError,
    TypeError, AttributeError, AssertionError, OverflowError, MemoryError, RecursionError, EOFError, StopIteration and
    UnicodeDecodeError, so every exception counts.
    """
    try:
        yield
    except SourceError:
        raise
    except Exception as err:
        raise SourceError(f"{path} {state}: {described(err)}") from err


class BoundedFile(io.BufferedReader):
    """A regular file, open for reading, which allocates no more than it holds, whatever length it is asked for.

    Args:
        path: The file.
        limit: Bytes of the largest single read.

    Raises:
        OSError: It cannot be opened, or is a folder, a pipe or a device.
    """

    def __init__(self, path: Path, limit: int) -> None:
        if path.exists() and not path.is_file():  # opening a pipe would wait for a writer, a device may never end
            raise OSError(f"{path} is no regular file")
        super().__init__(io.FileIO(str(path)))
        self.length = os.fstat(self.fileno()).st_size
        self._path = path
        self._limit = limit

    def read(self, size: Optional[int] = -1, /) -> bytes:
        """At most `size` bytes; fewer where the file ends.

        Raises:
            TooLargeError: They would be more than the limit.
        """
        left = max(0, self.length - self.tell())
        size = left if size is None or size < 0 else min(size, left)
        if size > self._limit:
            raise too_large(self._path, f"{megabytes(size)} at once", self._limit)
        return super().read(size)

    def readline(self, size: Optional[int] = -1, /) -> bytes:
        """At most 4096 bytes of a line."""
        return super().readline(_LINE if size is None or size < 0 else min(size, _LINE))


def too_large(path: Path, what: str, limit: int) -> TooLargeError:
    """The error of a file that asks for too much memory."""
    return TooLargeError(f"{path} needs {what}, the limit is {megabytes(limit)} (--max-mb)")


# ------------------------------------------------------------------------------------------------------- decompression


class Section:
    """The next `length` bytes of a file, as a file."""

    def __init__(self, stream: IO[bytes], length: int) -> None:
        self._stream = stream
        self._left = length

    def read(self, size: int = -1) -> bytes:
        """At most `size` bytes; fewer where the section ends."""
        data = self._stream.read(self._left if size < 0 else min(size, self._left))
        self._left -= len(data)
        return data


def _zstd(source: IO[bytes]) -> Any:
    return zstandard.ZstdDecompressor().stream_reader(source, read_across_frames=True)


_OPENERS: Dict[str, Callable[[Any], Any]] = {
    "": lambda source: source,
    "none": lambda source: source,
    "zstd": _zstd,
    "lz4": lz4.frame.LZ4FrameFile,
    "bz2": bz2.BZ2File,
}


def inflate(source: Any, compression: str, limit: int) -> Optional[bytes]:
    """What a compressed file holds, read piece by piece: sizes that it states are not believed.

    Args:
        source: The file, open for reading.
        compression: `zstd`, `lz4`, `bz2`; "" or `none`.
        limit: Bytes of the result.

    Returns:
        The bytes, or None if they are more than the limit.

    Raises:
        ValueError: An unknown compression.
        Exception: Whatever the decompressor raises on damaged bytes.
    """
    whole = io.BytesIO()
    for piece in inflated_pieces(source, compression):
        if whole.tell() + len(piece) > limit:
            return None
        whole.write(piece)
    return whole.getvalue()


def inflated_pieces(source: Any, compression: str) -> Iterator[bytes]:
    """Like `inflate`, for results of any size."""
    if compression not in _OPENERS:
        raise ValueError(f"unknown compression {printable(compression)}")
    stream = _OPENERS[compression](source)
    while True:
        piece = stream.read(_PIECE)
        if not piece:
            return
        yield piece


# ----------------------------------------------------------------------------------------------------- messages in time


@dataclass(frozen=True)
class RecordedMessage:
    """One message of a recording.

    Attributes:
        time_ns: When it was recorded.
        connection: Number of its channel or connection.
        data: Its bytes, a view into the block that holds it.
    """

    time_ns: int
    connection: int
    data: memoryview


@dataclass(frozen=True)
class BlockLocation:
    """A chunk of a recording, or a message outside of any: the time of its first message, and where it lies."""

    time_ns: int
    offset: int


#: Reads the block at an offset, of at most so many bytes: how many it takes, and its messages that are wanted.
BlockReader = Callable[[int, int], Tuple[int, Iterable[RecordedMessage]]]


def in_order(path: Path, blocks: Iterable[BlockLocation], load: BlockReader, limit: int) -> Iterator[RecordedMessage]:
    """The messages of a recording by time, those of one time by their place in the file.

    A block is read when its time has come and dropped behind its last message; blocks that overlap in time are held
    together.

    Args:
        path: The file, for errors.
        blocks: Where the messages are.
        load: Reads a block.
        limit: Bytes that blocks held together may take.

    Raises:
        TooLargeError: They take more.
        SourceError: A block is named twice.
    """
    heap: List[Tuple[int, int, int, Optional[RecordedMessage]]] = [
        (row.time_ns, row.offset, -1, None) for row in blocks
    ]
    heapq.heapify(heap)
    held: Dict[int, Tuple[int, int]] = {}  # offset -> bytes of the block, its messages to come
    taken = 0
    seen: Set[int] = set()
    while heap:
        _, offset, _, message = heapq.heappop(heap)
        if message is None:
            if offset in seen:
                raise SourceError(f"{path} is damaged: its index names the chunk at byte {offset} twice")
            seen.add(offset)
            size, messages = load(offset, limit - taken)
            count = 0
            for count, row in enumerate(messages, 1):
                size += _OVERHEAD
                if taken + size > limit:
                    raise too_large(path, "more at once than it may take", limit)
                heapq.heappush(heap, (row.time_ns, offset, count, row))
            if count:
                held[offset] = (size, count)
                taken += size
            continue
        size, count = held.pop(offset)
        if count > 1:
            held[offset] = (size, count - 1)
        else:
            taken -= size
        yield message
