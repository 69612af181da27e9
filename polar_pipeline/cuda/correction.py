"""A calibration's correction of frames of one size, on the device."""

from __future__ import annotations

from typing import Tuple

import numpy as np

from polar_pipeline.calibration import Correction
from polar_pipeline.calibration.quantization import FIELDS
from polar_pipeline.cuda.driver import DeviceError, Driver

#: Bits of a float's mantissa.
_MANTISSA = 23
#: Bit of the mantissa that the kernel moves the first bit of a field to (`kernels/tile_correct.cuh`).
_PLACES = (8, 8, 16, 16)


def fill_argument(argument: np.ndarray, correction: Correction, codes: int) -> None:
    """Tell a kernel what to correct pixels by.

    Args:
        argument: A `POLARIZATION_ARGUMENT`.
        correction: Of the frame.
        codes: Address of its codes on the device.
    """
    argument["codes"] = codes
    argument["phase_y"], argument["phase_x"] = correction.phase
    for k, (scale, place) in enumerate(zip(correction.scales, _PLACES)):
        slope = scale.step * (1 << _MANTISSA - place)
        argument["slope"][k], argument["base"][k] = slope, scale.lowest - slope


class DeviceCorrection:
    """A correction whose codes are in device memory.

    Args:
        driver: The device.
        correction: Of the frames.

    Raises:
        DeviceMemoryError: The device is too small.
    """

    def __init__(self, driver: Driver, correction: Correction) -> None:
        self._driver = driver
        self._correction = correction
        pinned = driver.host_array(correction.codes.shape, correction.codes.dtype.str)
        np.copyto(pinned, correction.codes)
        self._pointer = driver.malloc(pinned.nbytes)
        stream, event = 0, 0
        try:
            stream, event = driver.make_stream(), driver.make_event()
            driver.upload(self._pointer, pinned, stream)
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

    def fill(self, argument: np.ndarray) -> None:
        """Tell a kernel what to correct pixels by; see `fill_argument`."""
        fill_argument(argument, self._correction, self._pointer)

    def close(self) -> None:
        """Release the device memory."""
        self._driver.free(self._pointer)
