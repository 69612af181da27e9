"""ROS 1 bags, read by rosbags."""

from __future__ import annotations

from typing import Iterator, List, Optional

from rosbags.rosbag1 import Reader

from polar_pipeline.replay.limits import Span, check_size
from polar_pipeline.replay.mcapfile import TimedMessage, Topics


class Rosbag1:
    """The messages of an open ROS 1 bag.

    Attributes:
        topics: Topics and types, which have their names in ROS 2.

    Args:
        reader: The open bag.
        limit: Largest size in bytes of a chunk as stored. What it inflates to is not declared where rosbags looks.

    Raises:
        FrameError: A chunk is larger (cause `size`).
    """

    def __init__(self, reader: Reader, limit: int) -> None:
        check_size("a chunk", max((row.datasize for row in reader.chunks.values()), default=0), limit)
        self._reader = reader
        self.topics: Topics = {}
        for row in reader.connections:
            _, before = self.topics.get(row.topic, ("", 0))
            self.topics[row.topic] = (row.msgtype, before + row.msgcount)

    def messages(self, topic: str, kind: str, span: Optional[Span] = None) -> Iterator[TimedMessage]:
        """Times and serialized messages of a type on a topic, by time."""
        chosen = [row for row in self._reader.connections if (row.topic, row.msgtype) == (topic, kind)]
        for _, time_ns, data in self._reader.messages(chosen, *(span or ())):
            yield time_ns, data

    def spans(self, topic: str) -> List[Span]:
        """The times of recording between which the messages on a topic lie; empty without any."""
        indexes = [self._reader.indexes[row.id] for row in self._reader.connections if row.topic == topic]
        times = [row.time for rows in filter(None, indexes) for row in (rows[0], rows[-1])]
        return [(min(times), max(times) + 1)] if times else []
