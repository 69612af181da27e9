"""The queue between the executor's thread and the worker."""

from __future__ import annotations

import threading
from typing import List, Optional

import pytest
from support import TIMEOUT, wait_for

from polar_pipeline.live.drop_oldest_queue import DropOldestQueue


@pytest.mark.parametrize(("size", "kept"), [(1, [4]), (2, [3, 4]), (4, [1, 2, 3, 4])])
def test_the_oldest_are_dropped_and_the_rest_stays_in_order(size: int, kept: List[int]) -> None:
    queue: DropOldestQueue[int] = DropOldestQueue(size)
    assert [queue.put(item) for item in range(1, 5)] == [k >= size for k in range(4)]
    assert [queue.take(wait=False) for _ in kept] == kept
    assert queue.take(wait=False) is None


def test_take_waits_for_an_item_or_the_end() -> None:
    queue: DropOldestQueue[int] = DropOldestQueue(2)
    taken: List[Optional[int]] = []
    thread = threading.Thread(target=lambda: taken.extend([queue.take(), queue.take()]))
    thread.start()
    queue.put(7)
    wait_for(lambda: not queue._items, "the item")
    assert thread.is_alive()
    queue.close()
    thread.join(TIMEOUT)
    assert taken == [7, None]


def test_a_closed_queue_gives_nothing_out() -> None:
    queue: DropOldestQueue[int] = DropOldestQueue(1)
    queue.put(1)
    queue.close()
    assert not queue.put(2)
    assert queue.take() is None
    assert not queue._items, "nothing is kept either"
