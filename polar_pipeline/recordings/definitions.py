"""Definitions of ROS messages, from rosbags: to write them into recordings, and to read messages of ROS 1."""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Union

from rosbags.serde import SerdeError
from rosbags.typesys import Stores, get_typestore
from rosbags.typesys.store import Typestore

from polar_pipeline._util.text import printable
from polar_pipeline.sensor.frames import FrameError

#: Errors of the library for malformed bytes; it checks some lengths and trusts others.
_MALFORMED = (SerdeError, struct.error, ValueError, IndexError, AssertionError, TypeError, OverflowError, MemoryError)


@lru_cache(maxsize=1)
def _store() -> Typestore:
    """Return the message types of ROS 2; those used here are the same in every release."""
    return get_typestore(Stores.ROS2_HUMBLE)


@lru_cache(maxsize=64)
def message_definition(message_type: str) -> bytes:
    """Return the definition of a message type, or b"" for a type that is not part of ROS 2."""
    if message_type not in _store().types:
        return b""
    text, _ = _store().generate_msgdef(message_type, ros_version=2)
    return text.encode()


def from_ros1(data: Union[bytes, memoryview], message_type: str) -> memoryview:
    """Convert a serialized ROS 1 message to CDR bytes.

    Raises:
        FrameError: The bytes are not such a message (cause `cdr`).
    """
    try:
        return memoryview(_store().ros1_to_cdr(data, message_type))
    except _MALFORMED as err:
        raise FrameError("cdr", f"{len(data)} bytes are not a ROS 1 {message_type}: {printable(str(err))}") from err
