"""Serialized messages to the middleware: two topics at once, without a copy in Python and without its lock.

rclpy copies the bytes of a serialized message into a string first and holds the interpreter's lock until the middleware
is done with them: a millisecond for 5 MB in which no other thread of the node gets on. So the C function that rclpy
itself ends in is called with the message's own memory. Where it cannot be found, rclpy does it.
"""

from __future__ import annotations

import ctypes
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import Deque, NamedTuple, Optional, Sequence

import numpy as np
from rclpy.publisher import Publisher

from polar_pipeline._util.cpus import available_cores
from polar_pipeline.messages import Cdr


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
    """Publishes the messages of one frame after the other, two at once.

    Fast DDS copies a message into the writer's history, and then, under a lock of the participant, into shared memory.
    Two threads take turns at that; a third would only delay what is sent first.
    """

    def __init__(self) -> None:
        self._middleware = _find_middleware()
        self._helper = ThreadPoolExecutor(1, "polar_pipeline_outbox") if available_cores() > 1 else None

    @property
    def is_direct(self) -> bool:
        """Whether messages go to the middleware from where they lie."""
        return self._middleware is not None

    def send(self, letters: Sequence[Letter]) -> None:
        """Publish messages of different topics, and wait until the middleware has them.

        Raises:
            RuntimeError: The middleware refuses one; the others are published all the same.
        """
        waiting = deque(letters)
        other = self._helper.submit(self._send_waiting, waiting) if self._helper and len(letters) > 1 else None
        failures = [self._send_waiting(waiting), other.result() if other else None]
        for failure in failures:
            if failure is not None:
                raise failure

    def _send_waiting(self, waiting: Deque[Letter]) -> Optional[RuntimeError]:
        """Publish what nobody has taken yet; gives the last failure."""
        failure = None
        while True:
            try:
                letter = waiting.popleft()
            except IndexError:
                return failure
            try:
                self._send(letter)
            except RuntimeError as err:
                failure = err

    def _send(self, letter: Letter) -> None:
        if self._middleware is None:
            letter.publisher.publish(bytes(letter.cdr))
        else:
            self._middleware.publish(letter.publisher, letter.cdr)

    def close(self) -> None:
        """End the thread."""
        if self._helper is not None:
            self._helper.shutdown()
