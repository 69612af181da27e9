"""Serialized messages between the node and rcl, the C library below rclpy, without a copy in Python.

rclpy copies the bytes of a serialized message once more, and holds the interpreter's lock until the middleware is done
with them: a millisecond for 5 MB in which no other thread of the node gets on. The two C functions that rclpy itself
calls work on the message's own memory and leave the lock free. No other module of `ros/` uses ctypes.
"""

from __future__ import annotations

import ctypes
from concurrent.futures import Executor
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence

import numpy as np
from rclpy.waitable import NumberOfEntities, Waitable

from polar_pipeline.live.publisher import OutgoingMessage
from polar_pipeline.recordings.messages import Cdr


class _SerializedMessage(ctypes.Structure):
    """Structure rcutils_uint8_array_t."""

    _fields_ = [
        ("buffer", ctypes.c_void_p),
        ("length", ctypes.c_size_t),
        ("capacity", ctypes.c_size_t),
        ("allocator", ctypes.c_void_p * 5),
    ]


class _Allocator(ctypes.Structure):
    """Structure rcutils_allocator_t."""

    _fields_ = [("functions", ctypes.c_void_p * 5)]


class _ErrorString(ctypes.Structure):
    """Structure rcutils_error_string_t."""

    _fields_ = [("text", ctypes.c_char * 1024)]


class _TakenMessage:
    """A message in memory of the middleware's allocator, for as long as this object or an array of it exists.

    A message that fits into `memory`, (N,) uint8, lies there instead.
    """

    def __init__(self, allocator: _Allocator, free: Callable[[Any], int], memory: Optional[np.ndarray]) -> None:
        self._address = None if memory is None else memory.ctypes.data
        size = 0 if memory is None else memory.nbytes
        self.fields = _SerializedMessage(self._address, 0, size, allocator.functions)
        self.fields.allocator[_STATE] = size
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


#: allocate(size, state), reallocate(pointer, size, state) of an rcutils_allocator_t, and the places of two members.
_ALLOCATE = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
_REPLACE = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)
_REALLOCATE, _STATE = 2, 4
#: rcl_ret_t: there was no message, and there is no memory for it.
_TAKE_FAILED, _BAD_ALLOC = 401, 10


class Rcl:
    """The functions of rcl that publish and take; AttributeError or OSError if one cannot be loaded."""

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
        # Without `memory`, rcl allocates by itself. It holds a lock of the subscription meanwhile; a thread that
        # publishes in this process may wait for that lock, and hold the interpreter's lock, which Python would need.
        self._free = utilities.rcutils_uint8_array_fini
        utilities.rcutils_get_default_allocator.restype = _Allocator
        self._allocator = utilities.rcutils_get_default_allocator()
        # A message that does not fit into `memory` comes into new memory; `memory` must not be freed. CycloneDDS also
        # shrinks the memory to every message. The allocator's state is the size of `memory`.
        allocate = _ALLOCATE(self._allocator.functions[0])
        self._replace = _REPLACE(lambda memory, size, capacity: memory if size <= capacity else allocate(size, None))
        self._replacing = _Allocator(self._allocator.functions)
        self._replacing.functions[_REALLOCATE] = ctypes.cast(self._replace, ctypes.c_void_p).value

    def publish(self, publisher: Any, cdr: Cdr) -> None:
        """Publish serialized bytes, which may change afterwards; RuntimeError if the middleware refuses."""
        data = np.frombuffer(cdr, np.uint8)
        message = _SerializedMessage(data.ctypes.data, data.size, data.size)
        with publisher.handle:  # keeps it from being destroyed meanwhile
            failed = self._publish(publisher.handle.pointer, ctypes.byref(message), None)
        if failed:
            raise RuntimeError(f"{publisher.topic_name} cannot be published: {self._pop_error()} ({failed})")

    def take(self, subscription: Any, memory: Optional[np.ndarray] = None) -> Optional[memoryview]:
        """Take the next message of a subscription with `raw=True`, or return None if there is none.

        A message that fits into `memory`, (N,) uint8 with N above 0, is taken into it.

        Raises:
            MemoryError: There is no memory for the message.
            RuntimeError: The middleware cannot deliver it.
        """
        message = _TakenMessage(self._allocator if memory is None else self._replacing, self._free, memory)
        with subscription.handle:  # keeps it from being destroyed meanwhile
            failed = self._take(subscription.handle.pointer, ctypes.byref(message.fields), None, None)
        length = message.fields.length
        if not failed and not length:
            return memoryview(b"")
        if not failed:
            return np.asarray(message).data if memory is None or message.is_own else memory[:length].data
        reason = self._pop_error()
        if failed == _TAKE_FAILED:
            return None
        text = f"{subscription.topic_name} cannot be taken from: {reason} ({failed})"
        raise MemoryError(text) if failed == _BAD_ALLOC else RuntimeError(text)

    def _pop_error(self) -> str:
        """Return and clear the reason why the last call failed."""
        reason: str = self._get_error().text.decode(errors="replace")
        self._reset_error()
        return reason


def load_rcl() -> Optional[Rcl]:
    """Load the functions of rcl, or return None if they cannot be found."""
    try:
        return Rcl()
    except (AttributeError, OSError):
        return None


class DirectInput(Waitable):  # type: ignore[misc]
    """Waitable that takes a subscription's messages through rcl, and calls its callback.

    To the executor it stands for the subscription, which the node has to hide from it: an executor would take the
    messages of a subscription itself, copy them, and hold the interpreter's lock meanwhile.

    The subscription has `raw=True` and a callback that raises nothing. `memory` returns memory to take the next message
    into, or None.
    """

    def __init__(self, node: Any, subscription: Any, rcl: Rcl, memory: Callable[[], Optional[np.ndarray]]) -> None:
        super().__init__(node.default_callback_group)
        self._subscription = subscription
        self._rcl = rcl
        self._memory = memory
        self._index: Optional[int] = None
        self._uses = 0
        self._is_closed = False
        self._guarded_take = node.guarded(self._take)

    def __enter__(self) -> None:
        self._subscription.handle.__enter__()
        self._uses += 1

    def __exit__(self, *error: Any) -> None:
        self._uses -= 1
        self._subscription.handle.__exit__(*error)

    def get_num_entities(self) -> NumberOfEntities:
        """Return the number of entities that this adds to a wait set."""
        return NumberOfEntities(1, 0, 0, 0, 0, 0)

    def add_to_wait_set(self, wait_set: Any) -> None:
        """Wait for messages; executors also call this for a subscription that is destroyed."""
        self._index = wait_set.add_subscription(self._subscription.handle) if self._uses else None

    def is_ready(self, wait_set: Any) -> bool:
        """Return whether there is a message."""
        return self._index is not None and bool(wait_set.is_ready("subscription", self._index))

    def take_data(self) -> None:
        """Take a message and call back; `execute` would do it one round of the executor later."""
        self._guarded_take()

    async def execute(self, _: Any) -> None:
        """Do nothing: `take_data` has taken the message."""

    def close(self) -> None:
        """Take no more messages; an executor may have seen one before the subscription is destroyed."""
        self._is_closed = True

    def _take(self) -> None:
        if self._is_closed:
            return
        message = self._rcl.take(self._subscription, self._memory())
        if message is not None:
            self._subscription.callback(message)


class MessagePublisher:
    """Publisher of the messages of a frame, two at once.

    Fast DDS copies a message into the writer's history, and then, under a lock of the participant, into shared memory.
    Two threads take turns at that; a third would only delay what is sent first. One thread at a time calls `send`; that
    of `background` publishes beside it if it has nothing else to do.
    """

    def __init__(self, background: Optional[Executor] = None) -> None:
        self._rcl = load_rcl()
        self._background = background

    def send(self, messages: Sequence[OutgoingMessage]) -> None:
        """Publish messages of different topics; RuntimeError if the middleware refuses one, after all others."""
        waiting = iter(messages)  # each thread takes the next message
        other = None
        if self._background is not None and len(messages) > 1:
            other = self._background.submit(self._publish_waiting, waiting)
        failures = self._publish_waiting(waiting)
        if other is not None and not other.cancel():  # a busy helper has not begun, and nothing waits for it
            failures += other.result()
        if failures:
            raise failures[0]

    def _publish_waiting(self, waiting: Iterator[OutgoingMessage]) -> List[RuntimeError]:
        """Publish the messages that no thread has taken yet; return the failures."""
        failures = []
        for topic, cdr in waiting:
            try:
                if self._rcl is None:
                    topic.publish(bytes(cdr))
                else:
                    self._rcl.publish(topic, cdr)
            except RuntimeError as err:  # noqa: PERF203 - the others are published all the same
                failures.append(err)
        return failures
