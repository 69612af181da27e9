"""rcl, the C library below rclpy, through ctypes: publishes and takes serialized messages without a copy in Python.

rclpy copies the bytes of a serialized message once more, and holds the interpreter's lock until the middleware is done
with them: a millisecond for 5 MB in which no other thread of the node gets on. The C functions that rclpy itself calls
work on the message's own memory and leave the lock free. No other module of `ros/` uses ctypes. Imports no ROS.
"""

from __future__ import annotations

import ctypes
from typing import Any, Callable, Dict, Optional

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


class _Allocator(ctypes.Structure):
    """rcutils_allocator_t."""

    _fields_ = [("functions", ctypes.c_void_p * 5)]


class _ErrorString(ctypes.Structure):
    """rcutils_error_string_t."""

    _fields_ = [("text", ctypes.c_char * 1024)]


class _TakenMessage:
    """A message in memory of the middleware's allocator, for as long as this object or an array of it exists.

    Args:
        allocator: What allocates.
        free: Frees the memory of a message.
        memory: (N,) uint8 to take the message into if it fits; it is then not this object's.
    """

    def __init__(self, allocator: _Allocator, free: Callable[[Any], int], memory: Optional[np.ndarray]) -> None:
        self._address = None if memory is None else memory.ctypes.data
        size = 0 if memory is None else memory.nbytes
        self.fields = _SerializedMessage(self._address, 0, size, allocator.functions)
        self._free = free

    @property
    def is_own(self) -> bool:
        """Whether the message lies in memory of this object."""
        return bool(self.fields.buffer != self._address)

    @property
    def __array_interface__(self) -> Dict[str, Any]:
        return {"shape": (self.fields.length,), "typestr": "|u1", "data": (self.fields.buffer, False), "version": 3}

    def __del__(self) -> None:
        if self.is_own:
            self._free(ctypes.byref(self.fields))


#: allocate(size, state), reallocate(pointer, size, state) of an rcutils_allocator_t, and the place of the latter.
_ALLOCATE = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
_REPLACE = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
_REALLOCATE = 2
#: rcl_ret_t: there was no message, and there is no memory for it.
_TAKE_FAILED, _BAD_ALLOC = 401, 10


class Rcl:
    """The functions of rcl that publish and take.

    Raises:
        AttributeError, OSError: A library or a function of it cannot be found.
    """

    def __init__(self) -> None:
        rcl = ctypes.CDLL("librcl.so")
        self._take = rcl.rcl_take_serialized_message
        self._take.argtypes = (ctypes.c_void_p, ctypes.POINTER(_SerializedMessage), ctypes.c_void_p, ctypes.c_void_p)
        self._take.restype = ctypes.c_int
        self._publish = rcl.rcl_publish_serialized_message
        self._publish.argtypes = (ctypes.c_void_p, ctypes.POINTER(_SerializedMessage), ctypes.c_void_p)
        self._publish.restype = ctypes.c_int
        utilities = ctypes.CDLL("librcutils.so")
        self._get_error, self._reset_error = utilities.rcutils_get_error_string, utilities.rcutils_reset_error
        self._get_error.argtypes, self._get_error.restype = (), _ErrorString
        self._free = utilities.rcutils_uint8_array_fini
        utilities.rcutils_get_default_allocator.restype = _Allocator
        self._allocator = utilities.rcutils_get_default_allocator()
        # A message that does not fit into the memory given comes into new memory; what was given must not be freed.
        allocate = _ALLOCATE(self._allocator.functions[0])
        self._replace = _REPLACE(lambda _, size, __: allocate(size, None))
        self._replacing = _Allocator(self._allocator.functions)
        self._replacing.functions[_REALLOCATE] = ctypes.cast(self._replace, ctypes.c_void_p).value

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
            raise RuntimeError(f"{publisher.topic_name} cannot be published: {self._pop_error()} ({failed})")

    def take(self, subscription: Any, memory: Optional[np.ndarray] = None) -> Optional[memoryview]:
        """The next message of a subscription, None if there is none.

        Args:
            subscription: `rclpy.subscription.Subscription`, with `raw=True`.
            memory: (N,) uint8 to take it into, with `N` of at least 1; what does not fit comes into new memory.

        Raises:
            MemoryError: There is no memory for it.
            RuntimeError: The middleware cannot give it.
        """
        message = _TakenMessage(self._allocator if memory is None else self._replacing, self._free, memory)
        with subscription.handle:  # keeps it from being destroyed meanwhile
            failed = self._take(subscription.handle.pointer, ctypes.byref(message.fields), None, None)
        if not failed and not message.fields.length:
            return memoryview(b"")
        if not failed:
            return (
                np.asarray(message).data if memory is None or message.is_own else memory[: message.fields.length].data
            )
        reason = self._pop_error()
        if failed == _TAKE_FAILED:
            return None
        text = f"{subscription.topic_name} cannot be taken from: {reason} ({failed})"
        raise MemoryError(text) if failed == _BAD_ALLOC else RuntimeError(text)

    def _pop_error(self) -> str:
        """Why the last call failed."""
        reason: str = self._get_error().text.decode(errors="replace")
        self._reset_error()
        return reason


def load_rcl() -> Optional[Rcl]:
    """The functions of rcl, or None where they cannot be found."""
    try:
        return Rcl()
    except (AttributeError, OSError):
        return None
