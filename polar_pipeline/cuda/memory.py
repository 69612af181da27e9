"""Host and device memory of the frames in flight on the GPU; nothing is allocated per frame once running."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional
from weakref import WeakValueDictionary

import numpy as np

from polar_pipeline.backend import Buffers
from polar_pipeline.cuda.driver import DeviceError, DeviceMemoryError, Driver

#: Frames that can be in flight: one uploaded, one computed, one downloaded.
SLOTS = 3
#: Counters that a kernel adds to: saturated, dark.
COUNTERS = 2


@dataclass(frozen=True)
class Sizes:
    """Bytes that one frame takes.

    Attributes:
        raw: Bytes of the raw frame.
        outputs: Bytes of each output that comes back to the host.
        scratch: Bytes of each array that stays on the device.
        reference: Bytes of the image that SSIM compares with; 0 without one.
    """

    raw: int
    outputs: Mapping[str, int]
    scratch: Mapping[str, int]
    reference: int = 0


def device_bytes(sizes: Sizes, maps_host: bool) -> int:
    """Return the device memory that a ring of slots takes.

    Args:
        sizes: Memory of one frame.
        maps_host: Whether kernels work on pinned host memory directly; then the device has no copy of it.
    """
    shared = 0 if maps_host else sizes.raw + sizes.reference + sum(sizes.outputs.values())
    return SLOTS * (shared + sum(sizes.scratch.values()) + COUNTERS * 4)


class FrameMemory:
    """Pinned memory that frames are received in; any thread may use it.

    Args:
        driver: The device.
    """

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._lock = threading.Lock()
        self._buffers = Buffers(driver.host_array)
        self._given: WeakValueDictionary[int, np.ndarray] = WeakValueDictionary()  # by address

    def get(self, size: int) -> Optional[np.ndarray]:
        """Return (size,) uint8 without other references, or None if the device has no more memory."""
        with self._lock, self._driver.selected():
            try:
                memory = self._buffers.get((size,), "uint8")
            except DeviceError:
                return None
            block: Any = memory.base
            self._given[block.ctypes.data] = block
            return memory

    def holds(self, array: np.ndarray) -> bool:
        """Return whether an array without gaps lies in memory of this object."""
        if not array.flags.c_contiguous:
            return False
        begin = array.ctypes.data
        with self._lock:
            given = list(self._given.items())
        return any(at <= begin and begin + array.nbytes <= at + block.nbytes for at, block in given)


class Slot:
    """Memory for one frame: its raw bytes on host and device, its outputs on the device, its own stream and events.

    With mapped host memory, raw bytes and reference exist once, and outputs need no memory here: kernels write directly
    into the caller's arrays.

    Args:
        driver: The device.
        sizes: Memory of the frame.
        maps_host: Whether kernels work on pinned host memory, rather than on copies in device memory.

    Attributes:
        raw: (raw,) uint8, pinned: the raw bytes of a frame that lies elsewhere.
        raw_pointer: The address that kernels read the frame from.
        outputs: The address that kernels write each output to.
        scratch: The address of each array that only kernels use; zeros at first.
        reference: (reference,) uint8, pinned: the image that SSIM compares with.
        reference_pointer: The address that kernels read it from.
        version: Number of the reference that is stored.
        counts: (2,) uint32, pinned: saturated, dark.
        counts_pointer: The address that kernels add to.
        stream: The slot's stream.
        marks: Events at the start, and after upload, polarization launch, geometry launch, SSIM launch and download.
        hold: The arrays that the frame in flight fills; empty once its result was taken.
        source: What the frame in flight is read from: `raw`, or the caller's array.
    """

    def __init__(self, driver: Driver, sizes: Sizes, maps_host: bool = False) -> None:
        self._driver = driver
        self._pointers: List[int] = []
        self.stream = driver.make_stream()
        self.marks = [driver.make_event() for _ in range(6)]
        self.hold: Dict[str, np.ndarray] = {}
        self.source: Optional[np.ndarray] = None
        self.version = 0
        try:
            self.raw: np.ndarray = driver.host_array((sizes.raw,), "uint8")
            self.counts: np.ndarray = driver.host_array((COUNTERS,), "uint32")
            self.reference: np.ndarray = driver.host_array((sizes.reference,), "uint8")
            self.counts_pointer = self._malloc(self.counts.nbytes)
            self.raw_pointer, self.reference_pointer = (
                array.ctypes.data if maps_host or not array.nbytes else self._malloc(array.nbytes)
                for array in (self.raw, self.reference)
            )
            self.outputs: Dict[str, int] = (
                {} if maps_host else {name: self._malloc(size) for name, size in sizes.outputs.items()}
            )
            self.scratch: Dict[str, int] = {}
            for name, size in sizes.scratch.items():
                self.scratch[name] = self._malloc(size)
                driver.clear(self.scratch[name], size, self.stream)
        except DeviceError:
            self.close()
            raise

    def _malloc(self, size: int) -> int:
        pointer = self._driver.malloc(size)
        self._pointers.append(pointer)
        return pointer

    def close(self) -> None:
        """Release everything."""
        for pointer in self._pointers:
            self._driver.free(pointer)
        for event in self.marks:
            self._driver.free_event(event)
        self._driver.free_stream(self.stream)
        self.hold, self.source = {}, None


class FrameBuffers:
    """A ring of slots for frames of one shape and format: upload, kernels and download of neighbors overlap.

    Args:
        driver: The device.
        sizes: Memory of one frame.
        maps_host: Whether kernels work on pinned host memory, rather than on copies in device memory.

    Raises:
        DeviceMemoryError: They do not fit; the message says how much is needed and how much is free.
    """

    def __init__(self, driver: Driver, sizes: Sizes, maps_host: bool = False) -> None:
        self._slots: List[Slot] = []
        self._next = 0
        try:
            for _ in range(SLOTS):
                self._slots.append(Slot(driver, sizes, maps_host))
        except DeviceError as err:
            self.close()
            if not isinstance(err, DeviceMemoryError):
                raise
            need = device_bytes(sizes, maps_host)
            raise DeviceMemoryError(f"{SLOTS} frames need {need} bytes on the device: {err}") from err

    def take(self) -> Slot:
        """Return the slot for the next frame.

        Raises:
            RuntimeError: Every slot's frame is still in flight: its result was not taken.
        """
        slot = self._slots[self._next]
        if slot.hold:
            raise RuntimeError(f"{SLOTS} frames are in flight: take a result before the next frame")
        self._next = (self._next + 1) % SLOTS
        return slot

    @property
    def is_busy(self) -> bool:
        """Whether a frame is in flight: submitted, and its result not yet taken."""
        return any(slot.hold for slot in self._slots)

    def close(self) -> None:
        """Release everything; safe on a lost device, and twice."""
        for slot in self._slots:
            slot.close()
        self._slots.clear()
