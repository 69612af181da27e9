"""The order of a recording's messages, and the memory that blocks take together."""

from __future__ import annotations

from pathlib import Path
from typing import Dict, Iterable, List, Tuple

import pytest

from polar_pipeline.replay.limits import BlockLocation, RecordedMessage, SourceError, TooLargeError, in_order

#: Offset -> times of the messages in the block there.
Blocks = Dict[int, List[int]]
#: Bytes of a block's data, and of the objects of one message.
DATA, MESSAGE = 1000, 512


def read(blocks: Blocks, limit: int) -> Tuple[List[Tuple[int, int, int]], List[int]]:
    """(time, offset of the block, index in it) of every message, and the room that each block was read with."""
    rooms = []

    def load(offset: int, room: int) -> Tuple[int, Iterable[RecordedMessage]]:
        rooms.append(room)
        rows = enumerate(blocks[offset])
        return DATA, (RecordedMessage(time, offset, memoryview(bytes([index]))) for index, time in rows)

    places = [BlockLocation(min(times), offset) for offset, times in blocks.items()]
    found = in_order(Path("bag"), places, load, limit)
    return [(row.time_ns, row.connection, row.data[0]) for row in found], rooms


def test_messages_come_by_time_and_then_by_their_place() -> None:
    blocks = {300: [5, 6, 9], 100: [1, 9, 5], 200: [5, 5, 12]}
    found, _ = read(blocks, 1 << 20)
    assert found == [
        *((1, 100, 0), (5, 100, 2), (5, 200, 0), (5, 200, 1), (5, 300, 0)),
        *((6, 300, 1), (9, 100, 1), (9, 300, 2), (12, 200, 2)),
    ]


def test_blocks_are_held_from_their_first_message_to_their_last() -> None:
    size = DATA + 2 * MESSAGE
    _, rooms = read({0: [0, 10], 1: [5, 15], 2: [11, 20], 3: [30, 31]}, 4 * size)
    assert rooms == [4 * size, 3 * size, 3 * size, 4 * size]


@pytest.mark.parametrize("second", [[5, 15], [20, 21]])
def test_blocks_together_stay_within_the_limit(second: List[int]) -> None:
    size = DATA + 2 * MESSAGE
    blocks = {0: [0, 10], 1: second}
    needed = 2 * size if second[0] < 10 else size
    assert len(read(blocks, needed)[0]) == 4
    with pytest.raises(TooLargeError, match="bag needs more at once than it may take"):
        read(blocks, needed - 1)


def test_a_block_that_is_named_twice() -> None:
    def load(_: int, __: int) -> Tuple[int, Iterable[RecordedMessage]]:
        return DATA, [RecordedMessage(0, 0, memoryview(b""))]

    with pytest.raises(SourceError, match="names the chunk at byte 7 twice"):
        list(in_order(Path("bag"), [BlockLocation(0, 7), BlockLocation(3, 7)], load, 1 << 20))
