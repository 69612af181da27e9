"""Bounds on what a recording makes this process allocate, and the error of a recording that cannot be read."""

from __future__ import annotations

import bz2
import heapq
import io
import os
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Callable, Dict, Iterable, Iterator, List, Optional, Protocol, Set, Tuple

import lz4.frame  # type: ignore[import-untyped]
import zstandard

from polar_pipeline._util.text import printable

#: Default limit in bytes of one frame, and of the parts of a recording held in memory at once: 2^28 pixels, the largest
#: number in a frame, of 16 bit. A sensor of 150 megapixels, larger than any with polarizers, takes 300 MB.
MAX_BYTES = 512 << 20
#: The limit of an index is the limit divided by this: its records take about ten times as much memory as the index.
INDEX_DIVISOR = 8
#: Bytes of Python objects per message held in memory, beside its data.
_MESSAGE_OVERHEAD_BYTES = 512
#: Bytes that are decompressed at a time.
_PIECE_BYTES = 1 << 20
#: Bytes of the longest line that is read.
_LINE_BYTES = 4096


class SourceError(Exception):
    """A recording that cannot be read."""


class TooLargeError(SourceError):
    """A recording that needs more memory than the limit."""


def megabytes(size: int) -> str:
    """A number of bytes as text, in megabytes."""
    return f"{size / (1 << 20):.4g} MB"


def described(err: BaseException) -> str:
    """A library's error as short, printable text: class and message, or for an OSError the reason alone."""
    if isinstance(err, OSError) and err.strerror:
        return printable(err.strerror)
    return f"{type(err).__name__}: {printable(str(err))}"


@contextmanager
def reading(path: Path, state: str = "cannot be read") -> Iterator[None]:
    """A block that reads a recording: every error in it becomes a `SourceError` that names the file.

    No library lists what it raises on damaged bytes. Besides errors of their own it has been struct.error, KeyError,
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
    """A regular file, open for reading; a read never allocates more than the file holds, whatever length is requested.

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
        return super().readline(_LINE_BYTES if size is None or size < 0 else min(size, _LINE_BYTES))


def too_large(path: Path, what: str, limit: int) -> TooLargeError:
    """The error of a file that asks for too much memory."""
    return TooLargeError(f"{path} needs {what}, the limit is {megabytes(limit)} (--max-mb)")


# ------------------------------------------------------------------------------------------------------- decompression


class Readable(Protocol):
    """What can be read piece by piece."""

    def read(self, size: int = -1) -> bytes:
        """At most `size` bytes, or all that are left."""


class Section:
    """The next `length` bytes of a file, with the `read` of a file."""

    def __init__(self, stream: IO[bytes], length: int) -> None:
        self._stream = stream
        self._left = length

    def read(self, size: int = -1) -> bytes:
        """At most `size` bytes; fewer where the section ends."""
        data = self._stream.read(self._left if size < 0 else min(size, self._left))
        self._left -= len(data)
        return data


def _zstd(source: Any) -> Any:
    return zstandard.ZstdDecompressor().stream_reader(source, read_across_frames=True)


_OPENERS: Dict[str, Callable[[Any], Any]] = {
    "": lambda source: source,
    "none": lambda source: source,
    "zstd": _zstd,
    "lz4": lz4.frame.LZ4FrameFile,
    "bz2": bz2.BZ2File,
}


def inflate(source: Readable, compression: str, limit: int) -> Optional[bytes]:
    """Decompress a file piece by piece, without trusting the sizes that it states.

    Args:
        source: The file, open for reading.
        compression: `zstd`, `lz4`, `bz2`; "" or `none`.
        limit: Largest size of the result in bytes.

    Returns:
        The bytes, or None if they are more than the limit.

    Raises:
        ValueError: An unknown compression.
        Exception: Whatever the decompressor raises on damaged bytes.
    """
    result = io.BytesIO()
    for piece in inflated_pieces(source, compression):
        if result.tell() + len(piece) > limit:
            return None
        result.write(piece)
    return result.getvalue()


def inflated_pieces(source: Readable, compression: str) -> Iterator[bytes]:
    """The pieces of a decompressed file, for results of any size; otherwise like `inflate`."""
    if compression not in _OPENERS:
        raise ValueError(f"unknown compression {printable(compression)}")
    stream = _OPENERS[compression](source)
    while True:
        piece = stream.read(_PIECE_BYTES)
        if not piece:
            return
        yield piece


# ----------------------------------------------------------------------------------------------------- messages in time


@dataclass(frozen=True)
class RecordedMessage:
    """One message of a recording.

    Attributes:
        time_ns: Time of recording.
        connection: Number of its channel or connection.
        data: Its bytes, a view into the block that holds it.
        published_ns: Time of publishing, of mcap.
        sequence: Its number among its publisher's messages, of mcap.
    """

    time_ns: int
    connection: int
    data: memoryview
    published_ns: int = 0
    sequence: int = 0


@dataclass(frozen=True)
class BlockLocation:
    """A chunk of a recording, or a message outside of any: the time of its first message, and its offset in bytes."""

    time_ns: int
    offset: int


#: Times of recording in nanoseconds: the first, and the end, which is not in it.
Span = Tuple[int, int]


def is_within(time_ns: int, span: Optional[Span]) -> bool:
    """Whether a time is in a span; every time is where there is none."""
    return span is None or span[0] <= time_ns < span[1]


def overlaps(start_ns: int, end_ns: int, span: Optional[Span]) -> bool:
    """Whether a block with these first and last times may hold messages of a span."""
    return span is None or (start_ns < span[1] and end_ns >= span[0])


#: (offset of a block, limit of its size in bytes) -> (its size in bytes, those of its messages that are wanted).
BlockReader = Callable[[int, int], Tuple[int, Iterable[RecordedMessage]]]


def in_order(path: Path, blocks: Iterable[BlockLocation], load: BlockReader, limit: int) -> Iterator[RecordedMessage]:
    """The messages of a recording sorted by time; messages of equal time in the order of the file.

    A block is read when the time of its first message is reached and released after its last message. Blocks that
    overlap in time are in memory together.

    Args:
        path: The file, for errors.
        blocks: The blocks that hold the messages.
        load: Reads a block.
        limit: Largest size in bytes of the blocks in memory together.

    Raises:
        TooLargeError: They need more.
        SourceError: A block is named twice.
    """
    # (time, offset of the block, number of the message in it, the message); without a message: a block to be read
    queue: List[Tuple[int, int, int, Optional[RecordedMessage]]] = [
        (row.time_ns, row.offset, -1, None) for row in blocks
    ]
    heapq.heapify(queue)
    held: Dict[int, Tuple[int, int]] = {}  # offset -> bytes of the block, its messages to come
    taken = 0
    seen: Set[int] = set()
    while queue:
        _, offset, _, message = heapq.heappop(queue)
        if message is None:
            if offset in seen:
                raise SourceError(f"{path} is damaged: its index names the chunk at byte {offset} twice")
            seen.add(offset)
            size, messages = load(offset, limit - taken)
            count = 0
            for count, row in enumerate(messages, 1):
                size += _MESSAGE_OVERHEAD_BYTES
                if taken + size > limit:
                    raise too_large(path, "more at once than it may take", limit)
                heapq.heappush(queue, (row.time_ns, offset, count, row))
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
