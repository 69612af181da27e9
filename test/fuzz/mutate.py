"""Bytes that know where their numbers are, and changes of them that make sense."""

from __future__ import annotations

import random
import re
import struct
from typing import Callable, List, Sequence, Tuple

#: Where a number lies, and how it is written, as `struct` says.
Place = Tuple[int, str]

_BITS = {"b": 8, "B": 8, "h": 16, "H": 16, "i": 32, "I": 32, "q": 64, "Q": 64}
_SPECIAL = [0, 1, 2, 3, 4, 7, 8, 15, 16, 17, 24, 31, 32, 64, 100, 101, 127, 128, 255, 256, 1000, 1023, 1024, 1025, 4096]
_SPECIAL += [10_000, 0x7FFF, 0x8000, 65535, 65536, 10**9 - 1, 10**9, 4 * 10**9, (1 << 28) + 1]
_SPECIAL += [sign * (1 << bits) + more for bits in (31, 32, 63, 64) for sign in (1, -1) for more in (-1, 0, 1)]


class Writer:
    """Bytes in the making.

    Attributes:
        order: Byte order of the numbers, `<` or `>`.
        data: The bytes.
        places: Where the numbers are.
    """

    def __init__(self, order: str = "<", data: bytes = b"") -> None:
        self.order = order
        self.data = bytearray(data)
        self.places: List[Place] = []

    def number(self, kind: str, value: float) -> None:
        """Append a number."""
        self.places.append((len(self.data), kind))
        self.data += struct.pack(self.order + kind, value)

    def raw(self, data: bytes) -> None:
        """Append bytes."""
        self.data += data

    def join(self, other: Writer) -> None:
        """Append what another one has."""
        self.places += [(len(self.data) + place, kind) for place, kind in other.places]
        self.data += other.data

    def align(self, size: int, start: int = 0) -> None:
        """Append zeros up to the next multiple of `size` behind `start`."""
        self.data += bytes(-(len(self.data) - start) % size)


def words(text: str) -> List[str]:
    """Texts that are lines, or two spaces apart."""
    return [row.strip() for row in re.split(r"  |\n", text) if row.strip()]


def some_bytes(rng: random.Random, count: int) -> bytes:
    """Random bytes."""
    return rng.getrandbits(8 * count).to_bytes(count, "little") if count else b""


def special(rng: random.Random, bits: int) -> int:
    """A number at which something may go wrong, of so many bits."""
    value = rng.choice(_SPECIAL) if rng.random() < 0.8 else rng.getrandbits(rng.randint(1, bits))
    return value & ((1 << bits) - 1)


def mutated(rng: random.Random, writer: Writer, untouched: float = 0.15) -> bytes:
    """The bytes of a writer, changed at a few places.

    Args:
        rng: Where choices come from.
        writer: Stays as it is.
        untouched: How often nothing is changed.
    """
    data = bytearray(writer.data)
    if rng.random() < untouched:
        return bytes(data)
    for _ in range(rng.choice((1, 1, 1, 1, 2, 2, 3, 5))):
        _pick(rng, bool(writer.places))(rng, data, writer.places, writer.order)
    return bytes(data)


def _number(rng: random.Random, data: bytearray, places: Sequence[Place], order: str) -> None:
    place, kind = rng.choice(places)
    if kind not in _BITS or place + _BITS[kind] // 8 > len(data):
        return _byte(rng, data, places, order)
    bits, how = _BITS[kind], order + kind.upper()
    (value,) = struct.unpack_from(how, data, place)
    near = rng.random()
    if near < 0.25:
        value += rng.choice((-8, -4, -2, -1, 1, 2, 4, 8))
    elif near < 0.3:
        value *= 2
    else:
        value = special(rng, bits)
    struct.pack_into(how, data, place, value & ((1 << bits) - 1))
    return None


def _swap(rng: random.Random, data: bytearray, places: Sequence[Place], order: str) -> None:
    (one, kind), (two, other) = rng.choice(places), rng.choice(places)
    size = struct.calcsize(order + kind)
    if kind == other and max(one, two) + size <= len(data):
        data[one : one + size], data[two : two + size] = data[two : two + size], data[one : one + size]


def _bit(rng: random.Random, data: bytearray, *_: object) -> None:
    if data:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def _byte(rng: random.Random, data: bytearray, *_: object) -> None:
    if data:
        data[rng.randrange(len(data))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))


def _spot(rng: random.Random, data: bytearray, places: Sequence[Place]) -> int:
    if places and rng.random() < 0.7:
        place, kind = rng.choice(places)
        return min(len(data), place + rng.choice((0, struct.calcsize(kind))))
    return rng.randrange(len(data) + 1)


def _cut(rng: random.Random, data: bytearray, places: Sequence[Place], _: str) -> None:
    if rng.random() < 0.5:
        del data[_spot(rng, data, places) :]
    else:
        del data[max(0, len(data) - rng.randint(1, 12)) :]


def _extend(rng: random.Random, data: bytearray, *_: object) -> None:
    data += some_bytes(rng, rng.choice((1, 2, 3, 4, 5, 8, 100))) if rng.random() < 0.5 else bytes(rng.randint(1, 9))


def _drop(rng: random.Random, data: bytearray, places: Sequence[Place], _: str) -> None:
    start, end = sorted((_spot(rng, data, places), _spot(rng, data, places)))
    del data[start : min(end, start + 64)]


def _repeat(rng: random.Random, data: bytearray, places: Sequence[Place], _: str) -> None:
    start, end = sorted((_spot(rng, data, places), _spot(rng, data, places)))
    data[start:start] = data[start:end]


def _insert(rng: random.Random, data: bytearray, places: Sequence[Place], _: str) -> None:
    place = _spot(rng, data, places)
    data[place:place] = some_bytes(rng, rng.randint(1, 8))


Change = Callable[[random.Random, bytearray, Sequence[Place], str], None]
_ANYWHERE: List[Change] = [_bit, _byte, _byte, _cut, _extend, _drop, _repeat, _insert]
_AT_PLACES: List[Change] = [*_ANYWHERE, _swap, _swap, *[_number] * 8]


def _pick(rng: random.Random, has_places: bool) -> Change:
    return rng.choice(_AT_PLACES if has_places else _ANYWHERE)
