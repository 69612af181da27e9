"""rcl, the C library below rclpy, through ctypes: publishes a serialized message from the memory that it lies in.

rclpy copies the bytes of a serialized message into a string first and holds the interpreter's lock until the middleware
is done with them: a millisecond for 5 MB in which no other thread of the node gets on. The C function that rclpy itself
ends in takes the message's own memory and leaves the lock free. No other module of `ros/` uses ctypes. Imports no ROS.
"""

from __future__ import annotations

import ctypes
from typing import Any, Optional

import numpy as np

from polar_pipeline.messages import Cdr


class _SerializedMessage(ctypes.Structure):
    """rcutils_uint8_array_t."""

    _fields_ = [
        ("buffer", ctypes.c_void_p),
        ("length", ctypes.c_size_t),
        ("capacity", ctypes.c_size_t),
        ("allocator", ctypes.c_void_p * 5),
    ]


class _ErrorString(ctypes.Structure):
    """rcutils_error_string_t."""

    _fields_ = [("text", ctypes.c_char * 1024)]


class Rcl:
    """The functions of rcl that publish.

    Raises:
        AttributeError, OSError: A library or a function of it cannot be found.
    """

    def __init__(self) -> None:
        self._publish = ctypes.CDLL("librcl.so").rcl_publish_serialized_message
        self._publish.argtypes = (ctypes.c_void_p, ctypes.POINTER(_SerializedMessage), ctypes.c_void_p)
        self._publish.restype = ctypes.c_int
        utilities = ctypes.CDLL("librcutils.so")
        self._get_error, self._reset_error = utilities.rcutils_get_error_string, utilities.rcutils_reset_error
        self._get_error.argtypes, self._get_error.restype = (), _ErrorString

    def publish(self, publisher: Any, cdr: Cdr) -> None:
        """Publish serialized bytes; they may change as soon as this returns.

        Args:
            publisher: `rclpy.publisher.Publisher`.
            cdr: The message.

        Raises:
            RuntimeError: The middleware refuses.
        """
        data = np.frombuffer(cdr, np.uint8)
        message = _SerializedMessage(data.ctypes.data, data.size, data.size)
        with publisher.handle:  # keeps it from being destroyed meanwhile
            failed = self._publish(publisher.handle.pointer, ctypes.byref(message), None)
        if failed:
            reason = self._get_error().text.decode(errors="replace")
            self._reset_error()
            raise RuntimeError(f"{publisher.topic_name} cannot be published: {reason} ({failed})")


def load_rcl() -> Optional[Rcl]:
    """The functions of rcl, or None where they cannot be found."""
    try:
        return Rcl()
    except (AttributeError, OSError):
        return None
