"""Messages as rosbags reads and writes them, a second implementation of what `recordings/messages.py` does."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from rosbags.typesys import Stores, get_typestore


@lru_cache(maxsize=1)
def typestore() -> Any:
    """The message types of ROS 2."""
    return get_typestore(Stores.ROS2_HUMBLE)


def encode(message: Any, name: str) -> bytes:
    """Serialize a message of rosbags."""
    return bytes(typestore().serialize_cdr(message, name))


def decode(cdr: Any, name: str) -> Any:
    """Read a serialized message as an object of rosbags."""
    return typestore().deserialize_cdr(cdr, name)
