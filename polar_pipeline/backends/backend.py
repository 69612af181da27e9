"""The interface of a backend, its errors, and the reused arrays that hold results."""

from __future__ import annotations

import sys
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Protocol, Tuple
from weakref import WeakValueDictionary

import numpy as np

from polar_pipeline.backends.result import Result
from polar_pipeline.polarimetry.coefficients import SSIM_BLOCK

#: Maximum number of unused arrays per shape and type, and total bytes above which arrays of older shapes are freed.
_KEPT, _KEPT_BYTES = 16, 512 << 20
#: Bytes in front of each array of `Buffers`, for a message's header.
HEADROOM = 512
#: Alignment in bytes of arrays and of a message's pixels: a cache line, and the widest vector.
ALIGNMENT = 64

#: Address of an array's first byte -> the memory of `Buffers` that contains it.
_BLOCKS: WeakValueDictionary[int, np.ndarray] = WeakValueDictionary()

_LONE = [np.empty(1)]
#: `sys.getrefcount` of a list element without other references; it differs between Python versions.
_UNSHARED = sys.getrefcount(_LONE[0])
#: An array of CuPy, which is not imported here and has no types.
CupyArray = Any
#: A frame that a backend computes: a `Frame`, or what its `device_frame` returns.
BackendFrame = Any


class CompileError(RuntimeError):
    """A kernel that could not be compiled; the text holds the compiler's messages."""


class ScheduleError(ValueError):
    """Error for a lack of schedules or a broken file of them; the message gives requirement and limit."""


class DeviceError(RuntimeError):
    """Failed call to the GPU."""


class DeviceMemoryError(DeviceError):
    """Lack of memory on the GPU, or shared with the CPU; a backend that needs less may work."""


class DeviceLostError(DeviceError):
    """Loss of the GPU for this process: its results cannot be trusted or waited for."""


class Backend(Protocol):
    """What computes the frames of a pipeline."""

    @property
    def depth(self) -> int:
        """Frames that can be in flight: submitted, their result not yet taken."""

    @property
    def device(self) -> str:
        """Description of the device."""

    def is_ready(self, frame: BackendFrame) -> bool:
        """Return whether a frame of this shape and format needs no preparation."""

    def prepare(self, frame: BackendFrame) -> None:
        """Prepare for frames like this one.

        Raises:
            CompileError: A kernel does not compile.
            DeviceError: The device is too small, or stopped working.
            FrameError: The calibration or the geometry does not fit the frame.
        """

    def frame_memory(self, size: int) -> Optional[np.ndarray]:
        """Return (size,) uint8 that saves a copy of frames received there; None if any memory will do."""

    def device_frame(self, raw: CupyArray) -> BackendFrame:
        """Return a frame or batch that is in device memory, without a copy.

        Raises:
            FrameError: The backend or the options do not accept it.
        """

    def submit(self, frame: BackendFrame, reference: Optional[np.ndarray] = None) -> Callable[[], Result]:
        """Start computing a frame.

        Args:
            frame: The mosaic.
            reference: (h, w) float32 that SSIM compares S0/2 with, in mode `reference`.

        Returns:
            What waits for the frame, or computes it, and returns its results.
        """

    def reset(self) -> None:
        """Forget the previous frame (SSIM mode `temporal`)."""

    def close(self) -> None:
        """Release everything that is not in use."""


#: Device types of DLPack: CUDA, and host memory that CUDA manages.
_CUDA_ARRAYS = (2, 13)


def is_on_device(array: object) -> bool:
    """Return whether an array of any library is in device memory."""
    kind = getattr(array, "__dlpack_device__", None)  # first: PyTorch's tensors that need gradients fail on the other
    return hasattr(array, "__cuda_array_interface__") if kind is None else int(kind()[0]) in _CUDA_ARRAYS


def block_pixels(height: int, width: int) -> np.ndarray:
    """Count the pixels of each block of an (H, W) map; blocks at the right and lower border are partial."""
    rows, columns = (np.minimum(SSIM_BLOCK, size - np.arange(0, size, SSIM_BLOCK)) for size in (height, width))
    return rows[:, np.newaxis] * columns


class _Block(NamedTuple):
    """Memory of an array of `Buffers`, and the offset at which the array begins."""

    memory: np.ndarray
    start: int


class Buffers:
    """Output arrays, reused once nothing refers to them any more: fresh pages cost more time than the computation.

    An array that is referenced from anywhere else, directly or through a view, is left alone. Each has
    space for a header in front of it (`prepend_header`). Arrays in use are counted in no limit: a consumer that holds
    many results gets new arrays once, not with every frame.

    Args:
        make: Makes an array of a shape and type with arbitrary content.
    """

    def __init__(self, make: Callable[[Tuple[int, ...], str], np.ndarray] = np.empty) -> None:
        self._make = make
        self._blocks: Dict[Tuple[Tuple[int, ...], str], List[_Block]] = {}

    def get(self, shape: Tuple[int, ...], dtype: str) -> np.ndarray:
        """Return an array of this shape and type with arbitrary content."""
        known = self._blocks.pop((shape, dtype), [])
        self._blocks[shape, dtype] = known  # last: the others were used longer ago
        for block in known:
            if sys.getrefcount(block.memory) == _UNSHARED:
                if len(known) > _KEPT:
                    for k in reversed(_unused(known)[_KEPT:]):
                        del known[k]
                return np.ndarray(shape, dtype, *block)  # its `base` is the block's memory, as of every view of it
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        # through a memoryview: an array has the innermost array as base, and views of the block must not pass it by
        memory = np.frombuffer(self._make((HEADROOM + size + ALIGNMENT,), "uint8").data, "uint8")
        block = _Block(memory, HEADROOM + -(memory.ctypes.data + HEADROOM) % ALIGNMENT)
        _BLOCKS[memory.ctypes.data + block.start] = memory
        known.append(block)
        while len(self._blocks) > 1 and self._unused_bytes() > _KEPT_BYTES:
            del self._blocks[next(iter(self._blocks))]
        return np.ndarray(shape, dtype, *block)

    def _unused_bytes(self) -> int:
        return sum(blocks[k].memory.nbytes for blocks in self._blocks.values() for k in _unused(blocks))


def _unused(blocks: List[_Block]) -> List[int]:
    """Return the indices of the blocks without references from elsewhere."""
    return [k for k in range(len(blocks)) if sys.getrefcount(blocks[k].memory) == _UNSHARED]


def skip_to_alignment(memory: np.ndarray, header: int) -> np.ndarray:
    """Return the rest of (N,) uint8 from where pixels that follow a header of `header` bytes are aligned."""
    return memory[-(header + memory.ctypes.data) % ALIGNMENT :]


def prepend_header(header: bytes, array: np.ndarray) -> Optional[memoryview]:
    """Return the bytes of a header followed by an array of `Buffers`, contiguous and without a copy.

    The array and the result share memory. Another call for the same array overwrites the previous header.

    Returns:
        None if there is no room in front of the array.
    """
    block = _BLOCKS.get(array.ctypes.data)
    if block is None or array.base is not block or not array.flags.c_contiguous or len(header) > HEADROOM:
        return None
    start = array.ctypes.data - block.ctypes.data
    message = block.data[start - len(header) : start + array.nbytes]
    message[: len(header)] = header
    return message
