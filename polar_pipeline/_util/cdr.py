"""CDR, the serialization of ROS 2: the fields of a message in their order, each aligned to its size.

A message begins with four bytes, of which the second is its byte order (plain CDR, OMG formal/02-06-51).
"""

from __future__ import annotations

import struct
from typing import Union

import numpy as np

#: Bytes of a serialized message.
Cdr = Union[bytes, bytearray, memoryview]

#: Bytes in front of the first field, which alignment does not count.
_HEAD = 4
#: First two bytes -> byte order, as NumPy and `struct` name it.
_BYTE_ORDERS = {b"\0\0": ">", b"\0\1": "<"}


class CdrReader:
    """Reader of the fields of a serialized message, in their order.

    Raises:
        ValueError: The message is not CDR. Each method raises it for a message that ends too early.
    """

    def __init__(self, cdr: Cdr) -> None:
        self._bytes = memoryview(cdr)
        self._place = _HEAD
        head = bytes(self._bytes[:2])
        if head not in _BYTE_ORDERS:
            raise ValueError(f"the encoding must be 0 or 1, got {head.hex() or 'nothing'}")
        self._order = _BYTE_ORDERS[head]

    def numbers(self, code: str, count: int) -> np.ndarray:
        """Read `count` numbers of a type as NumPy names it, as a view of the message."""
        dtype = np.dtype(self._order + code)
        start = self._place + -(self._place - _HEAD) % dtype.itemsize
        self._place = start + count * dtype.itemsize
        if self._place > len(self._bytes):
            raise ValueError(f"the message ends before byte {self._place}")
        return np.frombuffer(self._bytes, dtype, count, start)

    def number(self, code: str) -> int:
        """Read a number of an integer type."""
        return int(self.numbers(code, 1)[0])

    def sequence(self, code: str) -> np.ndarray:
        """Read a sequence, which begins with its length."""
        return self.numbers(code, self.number("u4"))

    def text(self) -> str:
        """Read a text, whose length includes its final zero; an empty text may lack the zero.

        Raises:
            ValueError: The text does not end in a zero, or is not UTF-8.
        """
        data = self.sequence("u1").tobytes()
        if data and data[-1]:
            raise ValueError("a text does not end in a zero")
        return data[:-1].decode()

    def end(self) -> None:
        """Check that the message ends here, except for padding to a multiple of four bytes."""
        if not len(self._bytes) - 4 < self._place <= len(self._bytes):
            raise ValueError(f"fields take {self._place} bytes")


class CdrWriter:
    """Writer of a little-endian serialized message, field after field.

    Attributes:
        data: The message with the fields that were added.
    """

    def __init__(self) -> None:
        self.data = bytearray(b"\0\1\0\0")

    def numbers(self, codes: str, *values: float) -> None:
        """Add numbers of types as `struct` names them."""
        for code, value in zip(codes, values):
            packed = struct.pack(f"<{code}", value)
            self.data += bytes(-(len(self.data) - _HEAD) % len(packed))
            self.data += packed

    def array(self, values: np.ndarray) -> None:
        """Add numbers of the array's type, without their count."""
        self.data += bytes(-(len(self.data) - _HEAD) % values.itemsize)
        self.data += values.astype(values.dtype.newbyteorder("<"), copy=False).tobytes()

    def sequence(self, values: np.ndarray) -> None:
        """Add numbers of the array's type, behind their count."""
        self.numbers("I", values.size)
        if values.size:
            self.array(values)

    def text(self, text: str) -> None:
        """Add a text."""
        data = text.encode() + b"\0"
        self.numbers("I", len(data))
        self.data += data
