"""Messages at the limits of what is accepted: the last value that is, and the first one that is refused."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest

from polar_pipeline import FrameError, messages
from polar_pipeline.messages import FLOAT32


def image(nanoseconds: int = 0, frame_id: str = "cam") -> bytes:
    """A serialized image whose stamp has these nanoseconds."""
    cdr = bytearray(messages.encode_image(0, frame_id, "mono8", np.zeros((16, 16), np.uint8)))
    struct.pack_into("<iI", cdr, 4, 1, nanoseconds)
    return bytes(cdr)


def cause_of(error: Any) -> str:
    return str(error.value.cause)


def test_nanoseconds_are_below_a_second() -> None:
    assert messages.decode_image(image(999_999_999)).stamp_ns == 1_999_999_999
    with pytest.raises(FrameError, match="must be below 1000000000, got 1000000000") as error:
        messages.decode_image(image(1_000_000_000))
    assert cause_of(error) == "cdr"


def test_names_have_at_most_1024_characters() -> None:
    assert messages.decode_image(image(frame_id="x" * 1024)).frame_id == "x" * 1024
    with pytest.raises(FrameError, match="at most 1024 characters, got 1025") as error:
        messages.decode_image(image(frame_id="x" * 1025))
    assert cause_of(error) == "cdr"


@pytest.mark.parametrize("byte_order", ["<", ">"])
def test_at_most_three_bytes_follow_a_message(byte_order: str) -> None:
    """Middlewares pad messages to multiples of four bytes."""
    cdr = (b"\0\1\0\0" if byte_order == "<" else b"\0\0\0\0") + struct.pack(f"{byte_order}f", 0.5)
    for padding in range(4):
        assert messages.decode(cdr + bytes(padding), FLOAT32).data == 0.5
    for wrong in (cdr + bytes(4), cdr[:-1], b""):
        with pytest.raises(FrameError, match=r"bytes are no std_msgs/msg/Float32") as error:
            messages.decode(wrong, FLOAT32)
        assert cause_of(error) == "cdr"


@pytest.mark.parametrize("length", [255, 257, (1 << 31) - 1, 1 << 31, (1 << 32) - 16, (1 << 32) - 1])
def test_a_wrong_number_of_pixels_is_no_image(length: int) -> None:
    """In rosbags 0.9, the last for Python 3.8, lengths above 2^31 are negative."""
    cdr = bytearray(image())
    assert struct.unpack_from("<I", cdr, len(cdr) - 260) == (256,)
    struct.pack_into("<I", cdr, len(cdr) - 260, length)
    if length == 255:  # one byte of padding behind the pixels
        assert messages.decode_image(bytes(cdr)).data.size == 255
        return
    with pytest.raises(FrameError, match=r"bytes are no sensor_msgs/msg/Image") as error:
        messages.decode_image(bytes(cdr))
    assert cause_of(error) == "cdr"


@pytest.mark.parametrize(
    ("time_ns", "stamp_ns"), [(-1, 0), (0, 0), (5, 5), ((1 << 31) * 10**9 - 1, None), ((1 << 31) * 10**9, None)]
)
def test_times_beyond_a_stamp_become_the_nearest_one(time_ns: int, stamp_ns: Any) -> None:
    found = messages.stamp_within_range(time_ns)
    assert found == ((1 << 31) * 10**9 - 1 if stamp_ns is None else stamp_ns)
    cdr = messages.encode_image(found, "", "mono8", np.zeros((16, 16), np.uint8))
    assert messages.peek_stamp(cdr) == messages.decode_image(cdr).stamp_ns == found
