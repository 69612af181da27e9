"""Where frames lie on their way through the GPU; nothing is allocated per frame once running."""

from __future__ import annotations

from typing import Dict, List, Mapping

import numpy as np

from polar_pipeline.cuda.driver import DeviceMemoryError, Driver

#: Frames that can be under way: one uploaded, one computed, one downloaded.
SLOTS = 3
#: Counters that a kernel adds to: saturated, dark.
COUNTERS = 2


def device_bytes(raw_bytes: int, outputs: Mapping[str, int], integrated: bool) -> int:
    """Device memory that a ring of slots takes; an integrated GPU works on the host's memory.

    Args:
        raw_bytes: Of one raw frame.
        outputs: Bytes of one array of each output.
        integrated: Whether GPU and CPU share their memory.
    """
    frame = 0 if integrated else raw_bytes + sum(outputs.values())
    return SLOTS * (frame + COUNTERS * 4)


class Slot:
    """The place of one frame: its raw bytes on host and device, its outputs on the device, its own stream and marks.

    On an integrated GPU the raw bytes have one place, and outputs none: kernels write where the caller reads.

    Attributes:
        raw: (raw_bytes,) uint8, pinned: what is filled with a frame.
        raw_pointer: Where kernels read it.
        outputs: Where kernels write, by output.
        counts: (2,) uint32, pinned: saturated, dark.
        counts_pointer: Where kernels add to them.
        stream: The slot's queue.
        marks: Events at start, upload's end, kernel's end, download's end.
        hold: The arrays that the frame under way here fills; empty once its result was taken.
    """

    def __init__(self, driver: Driver, raw_bytes: int, outputs: Mapping[str, int]) -> None:
        self._driver = driver
        self._pointers: List[int] = []
        self.stream = driver.make_stream()
        self.marks = [driver.make_event() for _ in range(4)]
        self.hold: Dict[str, np.ndarray] = {}
        try:
            self.raw: np.ndarray = driver.host_array((raw_bytes,), "uint8")
            self.counts: np.ndarray = driver.host_array((COUNTERS,), "uint32")
            self.counts_pointer = self._malloc(self.counts.nbytes)
            integrated = driver.device.integrated
            self.raw_pointer: int = self.raw.ctypes.data if integrated else self._malloc(raw_bytes)
            self.outputs: Dict[str, int] = (
                {} if integrated else {name: self._malloc(size) for name, size in outputs.items()}
            )
        except DeviceMemoryError:
            self.close()
            raise

    def _malloc(self, size: int) -> int:
        pointer = self._driver.malloc(size)
        self._pointers.append(pointer)
        return pointer

    def close(self) -> None:
        """Give everything back."""
        for pointer in self._pointers:
            self._driver.free(pointer)
        for event in self.marks:
            self._driver.free_event(event)
        self._driver.free_stream(self.stream)


class FrameBuffers:
    """A ring of slots for frames of one shape and format: upload, kernel and download of neighbours overlap.

    Args:
        driver: The device.
        raw_bytes: Of one raw frame.
        outputs: Bytes of one array of each output.

    Raises:
        DeviceMemoryError: They do not fit; the text gives need and what is free.
    """

    def __init__(self, driver: Driver, raw_bytes: int, outputs: Mapping[str, int]) -> None:
        self._slots: List[Slot] = []
        self._next = 0
        try:
            for _ in range(SLOTS):
                self._slots.append(Slot(driver, raw_bytes, outputs))
        except DeviceMemoryError as err:
            self.close()
            need = device_bytes(raw_bytes, outputs, driver.device.integrated)
            raise DeviceMemoryError(f"{SLOTS} frames need {need} bytes on the device: {err}") from err

    def take(self) -> Slot:
        """The slot for the next frame.

        Raises:
            RuntimeError: Every slot's frame is still under way, its result not yet taken.
        """
        slot = self._slots[self._next]
        if slot.hold:
            raise RuntimeError(f"{SLOTS} frames are under way: take a result before the next frame")
        self._next = (self._next + 1) % SLOTS
        return slot

    def close(self) -> None:
        """Give everything back; safe on a lost device, and twice."""
        for slot in self._slots:
            slot.close()
        self._slots.clear()
