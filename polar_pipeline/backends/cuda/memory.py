"""Host and device memory of the frames in flight on the GPU; nothing is allocated per frame once running.

Memory, streams and events are released with the object that has them.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from typing import Any, Callable, Deque, Dict, List, Mapping, Optional
from weakref import WeakValueDictionary, finalize

import numpy as np

from polar_pipeline._util.cpus import available_cores
from polar_pipeline.backends.backend import Buffers, DeviceError, DeviceMemoryError
from polar_pipeline.backends.cpu.library import KernelsError, load_kernels
from polar_pipeline.backends.cuda.driver import TO_DEVICE, Argument, Driver

#: Frames that can be in flight: one uploaded, one computed, one downloaded.
SLOTS = 3
#: Strips of a large frame: more of them take longer to start than they save.
_STRIPS = 2
#: Timed events of a frame at most: at the start, after the upload, and after each of eleven launches.
_MARKS = 13
#: Threads that copy a frame: more of them gain nothing.
_STAGING_THREADS = 8
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
        frames: Frames that are computed together; the other sizes are of all of them.
    """

    raw: int
    outputs: Mapping[str, int]
    scratch: Mapping[str, int]
    reference: int = 0
    frames: int = 1

    def device_bytes(self, maps_host: bool) -> int:
        """Return the device memory that a ring of slots takes.

        Args:
            maps_host: Whether kernels work on pinned host memory directly; then the device has no copy of it.
        """
        copies = 0 if maps_host else self.raw + self.reference + sum(self.outputs.values())
        return SLOTS * (copies + sum(self.scratch.values()) + self.frames * COUNTERS * 4)


class FrameMemory:
    """Pinned memory that frames are received in; any thread may use it.

    Args:
        driver: The device.
    """

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._lock = threading.Lock()
        self._buffers = Buffers(driver.host_array)
        self._ranges: Dict[int, int] = {}  # of memory that is in use: first address -> the one behind the last

    def get(self, size: int) -> Optional[np.ndarray]:
        """Return (size,) uint8 without other references, or None if the device has no more memory."""
        with self._lock:
            try:
                memory = self._driver.run(self._buffers.get, (size,), "uint8")
            except DeviceError:
                return None
            block: Any = memory.base
            begin = block.ctypes.data
            if begin not in self._ranges:
                self._ranges[begin] = begin + block.nbytes
                finalize(block, self._ranges.pop, begin).atexit = False
            return memory

    def holds(self, array: np.ndarray) -> bool:
        """Return whether an array without gaps lies in memory of this object."""
        if not array.flags.c_contiguous:
            return False
        begin = array.__array_interface__["data"][0]
        for first, end in list(self._ranges.items()):  # noqa: SIM110 - of every frame; a copy: other threads add to it
            if first <= begin and begin + array.nbytes <= end:
                return True
        return False


def stage(target: np.ndarray, rows: np.ndarray) -> None:
    """Copy a frame into pinned memory, by several threads: one takes longer than the upload.

    Args:
        target: (N,) uint8, the memory; the rows come without their padding.
        rows: (H, ...) pixels or packed bytes.
    """
    try:
        kernels = load_kernels()
    except KernelsError:
        kernels = None
    if kernels is None or rows.strides[0] < rows[0].nbytes or not rows[0].flags.c_contiguous:
        np.copyto(target[: rows.nbytes].view(rows.dtype).reshape(rows.shape), rows)
    else:
        kernels.copy_rows(target, rows, min(_STAGING_THREADS, available_cores()))


class DeviceMemory:
    """Device memory, freed once nothing refers to it.

    Args:
        driver: The device.
        size: Bytes.

    Attributes:
        pointer: Its address.

    Raises:
        DeviceMemoryError: The device is too small.
    """

    def __init__(self, driver: Driver, size: int) -> None:
        self.pointer = driver.malloc(size)
        finalize(self, driver.free, self.pointer).atexit = False  # the end of the process releases everything


class DeviceArray(DeviceMemory):
    """A copy of an array in device memory, complete before any kernel reads it.

    Args:
        driver: The device.
        array: Array to copy.

    Attributes:
        source: The same.

    Raises:
        DeviceMemoryError: The device is too small.
    """

    def __init__(self, driver: Driver, array: np.ndarray) -> None:
        self.source = array  # whose identity stays its own meanwhile
        pinned = driver.host_array(array.shape, array.dtype.str)
        np.copyto(pinned, array)
        super().__init__(driver, pinned.nbytes)
        driver.copy_now(self.pointer, pinned.ctypes.data, pinned.nbytes, TO_DEVICE)


class Constants:
    """Arrays on the device that programs share: each is uploaded once, and freed once no program uses it.

    Args:
        driver: The device.
    """

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._arrays: WeakValueDictionary[int, DeviceArray] = WeakValueDictionary()  # by the array's identity

    def get(self, array: np.ndarray) -> DeviceArray:
        """Return an array on the device.

        Raises:
            DeviceMemoryError: The device is too small.
        """
        on_device = self._arrays.get(id(array))
        if on_device is None:
            on_device = self._arrays[id(array)] = DeviceArray(self._driver, array)
        return on_device


class Slot:
    """Memory for one frame, its own stream and events.

    With mapped host memory, raw bytes and reference exist once, and outputs need no memory here: kernels write directly
    into the caller's arrays. Everything is released once nothing refers to the slot.

    Args:
        driver: The device.
        sizes: Memory of the frame.
        maps_host: Whether kernels work on pinned host memory, rather than on copies in device memory.
        stays: Whether results stay on the device; then events note no times.

    Attributes:
        addresses: Where kernels find each array: `raw`, `counts`, `reference`, outputs, and scratch, zeros at first.
        arguments: Arguments of the launches, by the compiled launch.
        has_moved: Whether `addresses` changed since the arguments were filled.
        raw: (raw,) uint8, pinned: the raw bytes of a frame that lies elsewhere.
        staging: Its address.
        raw_pointer: The address that raw bytes are uploaded to.
        memory: The memory of each output as CuPy takes it, where results stay on the device; they may outlive the slot.
        reference: (reference,) uint8, pinned: the image that SSIM compares with.
        staged: (h, w) float32, the image that `reference` holds; nothing at first.
        counts: (2 x frames,) uint32, pinned: saturated, dark.
        counts_pointer: Its address.
        own_stream: The slot's stream.
        stream: The stream of the last frame: the slot's, or that of the caller.
        uploads: The stream of strips that are uploaded.
        downloads: The stream of strips that are downloaded before the last one is computed.
        marks: Timed events at the start, after the upload, and after each launch.
        computed: Event after the latest launch.
        done: Event after the downloads; it notes its time, too.
        hold: The arrays that the frame in flight fills; empty once its result was taken.
        source: What the frame in flight is read from: `raw`, or the caller's array.
        use: Number of frames that were computed here; results on the device are of one of them.
        readers: Streams by handle that the slot's next frame on the device follows, and what keeps them.
        read: Event at the end of a reader.
        uploaded: Event after the upload of each strip.
        downloaded: Event after the downloads of the strips but the last.

    Raises:
        DeviceMemoryError: The device is too small.
    """

    def __init__(self, driver: Driver, sizes: Sizes, maps_host: bool = False, stays: bool = False) -> None:
        self._driver = driver
        self._memory: List[DeviceMemory] = []
        self.stream = self.own_stream = self._own(driver.make_stream(), driver.free_stream)
        self.uploads, self.downloads = (self._own(driver.make_stream(), driver.free_stream) for _ in range(2))
        self.marks: List[int] = []
        while len(self.marks) < _MARKS:
            self.marks.append(self._make_event(not stays))
        self.done = self._make_event(not stays)
        self.computed, self.read, self.downloaded = (self._make_event() for _ in range(3))
        self.uploaded = [self._make_event() for _ in range(_STRIPS)]
        self.arguments: Dict[object, Argument] = {}
        self.has_moved = True
        self.hold: Dict[str, Any] = {}
        self.source: Optional[Any] = None
        self.use = 0
        self.readers: Dict[int, Any] = {self.stream: None}  # which clears scratch
        self.staged = np.empty(0, np.float32)
        self.raw: np.ndarray = driver.host_array((sizes.raw,), "uint8")
        self.counts: np.ndarray = driver.host_array((sizes.frames * COUNTERS,), "uint32")
        self.reference: np.ndarray = driver.host_array((sizes.reference,), "uint8")
        self.addresses = {"raw": 0, "counts": self._malloc(self.counts.nbytes), "reference": self.reference.ctypes.data}
        self.staging = self.raw_pointer = self.raw.ctypes.data
        self.counts_pointer = self.counts.ctypes.data
        self.memory: Dict[str, Any] = {}
        if not maps_host:
            self.raw_pointer = self._malloc(self.raw.nbytes)
            if sizes.reference:
                self.addresses["reference"] = self._malloc(sizes.reference)
            for name, size in sizes.outputs.items():
                self.addresses[name] = self._malloc(size)
                if stays:
                    self.memory[name] = driver.memory_at(self.addresses[name], size, self._memory[-1])
        for name, size in sizes.scratch.items():
            self.addresses[name] = self._malloc(size)
            driver.fill(self.addresses[name], 0, size, self.stream)

    def place(self, name: str, address: int) -> None:
        """Tell kernels where an array is from now on."""
        if self.addresses.get(name) != address:
            self.addresses[name], self.has_moved = address, True

    def _own(self, handle: int, free: Callable[[int], None]) -> int:
        """Have a handle released before any memory of the slot, which the device may still be filling."""
        finalize(self, free, handle).atexit = False  # the end of the process releases everything
        return handle

    def _make_event(self, is_timed: bool = False) -> int:
        return self._own(self._driver.make_event(is_timed), self._driver.free_event)

    def _malloc(self, size: int) -> int:
        self._memory.append(DeviceMemory(self._driver, size))
        return self._memory[-1].pointer


def make_slots(driver: Driver, sizes: Sizes, maps_host: bool = False, stays: bool = False) -> Deque[Slot]:
    """Create slots for frames of one shape and format: upload, kernels and download of neighbors overlap.

    Arguments are those of `Slot`.

    Raises:
        DeviceMemoryError: They do not fit; the message says how much is needed and how much is free.
    """
    try:
        return deque(Slot(driver, sizes, maps_host, stays) for _ in range(SLOTS))
    except DeviceMemoryError as err:
        need = sizes.device_bytes(maps_host)
        raise DeviceMemoryError(f"{SLOTS} frames need {need} bytes on the device: {err}") from err
