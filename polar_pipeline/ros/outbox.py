"""Serialized messages to the middleware: several topics at once, without a copy in Python and without its lock.

rclpy copies the bytes of a serialized message into a string first and holds the interpreter's lock until the middleware
is done with them: a millisecond for 5 MB in which no other thread of the node gets on. So the C function that rclpy
itself ends in is called with the message's own memory. Where it cannot be found, rclpy does it.
"""

from __future__ import annotations

import ctypes
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, Optional, Sequence

import numpy as np
from rclpy.publisher import Publisher

from polar_pipeline.cpu.strips import cores
from polar_pipeline.messages import Cdr

#: Topics published at once at most: more copies than this a machine's memory does not carry.
MOST_AT_ONCE = 4


class Letter(NamedTuple):
    """A message, and where it goes."""

    publisher: Publisher
    cdr: Cdr


class _Bytes(ctypes.Structure):
    """rcutils_uint8_array_t."""

    _fields_ = [
        ("buffer", ctypes.c_void_p),
        ("length", ctypes.c_size_t),
        ("capacity", ctypes.c_size_t),
        ("allocator", ctypes.c_void_p * 5),
    ]


class _Text(ctypes.Structure):
    """rcutils_error_string_t."""

    _fields_ = [("text", ctypes.c_char * 1024)]


class _Middleware:
    """The functions of rcl that publish; AttributeError or OSError where they are missing."""

    def __init__(self) -> None:
        self._publish = ctypes.CDLL("librcl.so").rcl_publish_serialized_message
        self._publish.argtypes = (ctypes.c_void_p, ctypes.POINTER(_Bytes), ctypes.c_void_p)
        self._publish.restype = ctypes.c_int
        utilities = ctypes.CDLL("librcutils.so")
        self._error, self._forget = utilities.rcutils_get_error_string, utilities.rcutils_reset_error
        self._error.argtypes, self._error.restype = (), _Text

    def publish(self, publisher: Publisher, cdr: Cdr) -> None:
        """Publish the bytes; they may change as soon as this returns.

        Raises:
            RuntimeError: The middleware refuses.
        """
        data = np.frombuffer(cdr, np.uint8)
        message = _Bytes(data.ctypes.data, data.size, data.size)
        with publisher.handle:  # so that nobody destroys it meanwhile
            failed = self._publish(publisher.handle.pointer, ctypes.byref(message), None)
        if failed:
            reason = self._error().text.decode(errors="replace")
            self._forget()
            raise RuntimeError(f"{publisher.topic_name} cannot be published: {reason} ({failed})")


def _find_middleware() -> Optional[_Middleware]:
    try:
        return _Middleware()
    except (AttributeError, OSError):
        return None


class Outbox:
    """Publishes the messages of one frame after the other."""

    def __init__(self) -> None:
        self._middleware = _find_middleware()
        threads = min(cores(), MOST_AT_ONCE) - 1  # and the caller's
        self._pool = ThreadPoolExecutor(threads, "polar_pipeline_outbox") if threads else None

    @property
    def is_direct(self) -> bool:
        """Whether messages go to the middleware from where they lie."""
        return self._middleware is not None

    def send(self, letters: Sequence[Letter]) -> None:
        """Publish messages of different topics, and wait until the middleware has them.

        Raises:
            RuntimeError: The middleware refuses one; the others are published all the same.
        """
        if self._pool is None or len(letters) < 2:
            for letter in letters:
                self._send(letter)
            return
        others = [self._pool.submit(self._send, letter) for letter in letters[1:]]
        try:
            self._send(letters[0])
        finally:
            failures = [other.exception() for other in others]
        for failure in failures:
            if failure is not None:
                raise failure

    def _send(self, letter: Letter) -> None:
        if self._middleware is None:
            letter.publisher.publish(bytes(letter.cdr))
        else:
            self._middleware.publish(letter.publisher, letter.cdr)

    def close(self) -> None:
        """End the threads."""
        if self._pool is not None:
            self._pool.shutdown()
