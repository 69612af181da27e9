"""Bytes that know where their numbers are, and changes of them that make sense."""

from __future__ import annotations

import random
import struct
from typing import List, Tuple

_BITS = {"b": 8, "B": 8, "?": 8, "h": 16, "H": 16, "i": 32, "I": 32, "q": 64, "Q": 64}
_SPECIAL = [0, 1, 2, 3, 4, 7, 8, 15, 16, 17, 24, 31, 32, 64, 100, 101, 127, 128, 255, 256, 1000, 1023, 1024, 1025, 4096]
_SPECIAL += [10_000, 0x7FFF, 0x8000, 65535, 65536, 10**9 - 1, 10**9, 4 * 10**9, (1 << 28) + 1]
_SPECIAL += [sign * (1 << bits) + more for bits in (31, 32, 63, 64) for sign in (1, -1) for more in (-1, 0, 1)]


class Writer:
    """Bytes in the making: their byte order, and the places and types of the numbers in them."""

    def __init__(self, order: str = "<", data: bytes = b"") -> None:
        self.order = order
        self.data = bytearray(data)
        self.places: List[Tuple[int, str]] = []

    def number(self, kind: str, value: float) -> None:
        """Append a number."""
        self.places.append((len(self.data), kind))
        self.data += struct.pack(self.order + kind, value)

    def raw(self, data: bytes) -> None:
        """Append bytes."""
        self.data += data

    def align(self, size: int, start: int = 0) -> None:
        """Append zeros up to the next multiple of `size` behind `start`."""
        self.data += bytes(-(len(self.data) - start) % size)


def some_bytes(rng: random.Random, count: int) -> bytes:
    """Random bytes."""
    return rng.getrandbits(8 * count).to_bytes(count, "little") if count else b""


def special(rng: random.Random, bits: int) -> int:
    """A number of so many bits at which something may go wrong."""
    value = rng.choice(_SPECIAL) if rng.random() < 0.8 else rng.getrandbits(rng.randint(1, bits))
    return value & ((1 << bits) - 1)


def mutated(rng: random.Random, writer: Writer, untouched: float = 0.15) -> bytes:
    """The bytes of a writer, which stays as it is, changed at a few places; unchanged with probability `untouched`."""
    data = bytearray(writer.data)
    if rng.random() < untouched:
        return bytes(data)
    for _ in range(rng.choice((1, 1, 1, 1, 2, 2, 3, 5))):
        if writer.places and rng.random() < 0.55:
            _change_number(rng, data, writer)
        else:
            _change_bytes(rng, data, writer)
    return bytes(data)


def _change_number(rng: random.Random, data: bytearray, writer: Writer) -> None:
    place, kind = rng.choice(writer.places)
    if kind not in _BITS or place + _BITS[kind] // 8 > len(data):
        return
    bits, form = _BITS[kind], writer.order + kind.upper().replace("?", "B")
    (value,) = struct.unpack_from(form, data, place)
    near = rng.random()
    value = value + rng.choice((-8, -4, -2, -1, 1, 2, 4, 8)) if near < 0.3 else special(rng, bits)
    struct.pack_into(form, data, place, value & ((1 << bits) - 1))


def _change_bytes(rng: random.Random, data: bytearray, writer: Writer) -> None:
    """Set, cut, remove, repeat or insert bytes, mostly where a number begins."""

    def spot() -> int:
        if writer.places and rng.random() < 0.7:
            return min(len(data), rng.choice(writer.places)[0])
        return rng.randrange(len(data) + 1)

    how, (start, end) = rng.randrange(5), sorted((spot(), spot()))
    if how == 0 and data:
        data[rng.randrange(len(data))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
    elif how == 1:
        del data[start if rng.random() < 0.5 else max(0, len(data) - rng.randint(1, 12)) :]
    elif how == 2:
        del data[start : min(end, start + 64)]
    elif how == 3:
        data[start:start] = data[start:end]
    else:
        data[start:start] = some_bytes(rng, rng.choice((1, 2, 3, 4, 5, 8, 100)))
