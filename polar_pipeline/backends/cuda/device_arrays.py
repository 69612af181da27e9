"""Frames and results in device memory, shared with other libraries without a copy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Dict, Tuple

import numpy as np

from polar_pipeline.backends.backend import CupyArray
from polar_pipeline.backends.cuda.driver import TO_HOST
from polar_pipeline.backends.result import Result

if TYPE_CHECKING:  # which imports this module
    from polar_pipeline.backends.cuda.driver import Driver
    from polar_pipeline.backends.cuda.memory import Slot


@dataclass(frozen=True)
class DeviceFrame:
    """A mosaic in device memory, or a batch of mosaics that are computed together.

    Attributes:
        mosaic: CuPy array, (H, W) or (N, H, W), of uint8 or uint16.
        full_scale: Value of a saturated pixel.
    """

    mosaic: CupyArray
    full_scale: int
    is_split: ClassVar[bool] = False

    @property
    def shape(self) -> Tuple[int, int]:
        """(height, width) in pixels."""
        height, width = self.mosaic.shape[-2:]
        return height, width

    @property
    def frames(self) -> int:
        """Number of mosaics of a batch; 0 for a single mosaic."""
        return int(self.mosaic.shape[0]) if self.mosaic.ndim == 3 else 0


class DeviceResult(Result):
    """The products of one frame or batch as CuPy arrays, which the device may still be computing.

    Nothing here waits for the device unless asked: `wait` makes a stream wait, `synchronize` the caller. The arrays are
    in a ring of `Pipeline.depth` frames: they change when `depth` more frames have been submitted. Work that was
    enqueued until then, in streams that were made to wait, is done before.

    `invalid` and `blocks` are those of `Result`; the former waits for the device and copies to the host. `timings` has
    no times of the device: to measure them would take about as long as the kernels.

    Args:
        driver: The device.
        slot: Memory of the frame.
        products: Arrays by product.
        blocks: Mean similarities of blocks; None without SSIM.
        frames: Number of frames of a batch; 0 for a single frame.

    Attributes:
        stream: Handle of the stream that computes the frame: of a frame on the device the one that was CuPy's current
            one when it was submitted.
    """

    def __init__(self, driver: Driver, slot: Slot, products: Dict[str, Any], blocks: Any, frames: int) -> None:
        self._products = products
        self.frames = frames
        self.timings = {}
        self.blocks = blocks
        self.stream = slot.stream
        self._driver, self._slot, self._use = driver, slot, slot.use

    def _check(self) -> None:
        if self._slot.use != self._use:
            raise RuntimeError(
                "the memory of this result was reused: it is valid until `depth` more frames are submitted"
            )

    def wait(self, stream: object = None) -> None:
        """Make a stream wait for the frame, without waiting here.

        Args:
            stream: Stream of CuPy or PyTorch, or its handle; by default CuPy's current one.

        Raises:
            RuntimeError: The memory was reused for another frame.
        """
        self._check()
        reader: Any = self._driver.current_stream() if stream is None else stream
        handle = int(getattr(reader, "cuda_stream", getattr(reader, "ptr", reader)))
        if handle != self.stream:
            self._driver.run(self._driver.follow, handle, self._slot.done)
        self._slot.readers[handle] = reader

    def synchronize(self) -> None:
        """Wait here until the frame is complete.

        Raises:
            DeviceLostError: The device stopped working.
            RuntimeError: The memory was reused for another frame.
        """
        self._check()
        self._driver.run(self._driver.wait, self._slot.done)

    def host_arrays(self) -> Dict[str, np.ndarray]:
        """Return copies of the products as arrays of NumPy; errors are those of `synchronize`."""
        self.synchronize()
        copies = {name: np.empty(array.shape, array.dtype) for name, array in self.items()}
        for name, copy in copies.items():
            address = self._slot.addresses[name]
            self._driver.run(self._driver.copy_now, copy.ctypes.data, address, copy.nbytes, TO_HOST)
        return copies

    @property
    def invalid(self) -> Tuple[int, int]:  # type: ignore[override]
        """Output pixels that are (saturated, dark), of all frames of a batch; errors are those of `synchronize`."""
        self.synchronize()
        counts = self._slot.counts
        self._driver.run(
            *(self._driver.copy_now, counts.ctypes.data, self._slot.addresses["counts"], counts.nbytes, TO_HOST)
        )
        saturated, dark = counts.reshape(-1, 2).sum(0, dtype=np.int64).tolist()
        return saturated, dark
