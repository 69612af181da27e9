"""Arrays that are copied to the device once, outside the path of frames."""

from __future__ import annotations

import numpy as np

from polar_pipeline.cuda.driver import DeviceError, Driver


class DeviceArray:
    """A copy of an array in device memory, complete before any kernel reads it.

    Args:
        driver: The device.
        array: Array to copy.

    Attributes:
        pointer: Address of the copy.

    Raises:
        DeviceMemoryError: The device is too small.
    """

    def __init__(self, driver: Driver, array: np.ndarray) -> None:
        self._driver = driver
        pinned = driver.host_array(array.shape, array.dtype.str)
        np.copyto(pinned, array)
        self.pointer = driver.malloc(pinned.nbytes)
        stream, event = 0, 0
        try:
            stream, event = driver.make_stream(), driver.make_event()
            driver.upload(self.pointer, pinned, stream)
            driver.record(event, stream)
            driver.wait(event)  # kernels of every stream read it
        except DeviceError:
            self.close()
            raise
        finally:
            if event:
                driver.free_event(event)
            if stream:
                driver.free_stream(stream)

    def close(self) -> None:
        """Release the device memory."""
        self._driver.free(self.pointer)
