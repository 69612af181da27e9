"""A calibration's correction of frames of one size, on the device."""

from __future__ import annotations

from typing import Tuple

import numpy as np

from polar_pipeline.backends.backend import CupyArray
from polar_pipeline.backends.cuda.driver import Driver
from polar_pipeline.backends.cuda.memory import DeviceArray
from polar_pipeline.calibration import Correction

#: Raw formats of one number a pixel -> its type.
_NUMBERS = {"u8": np.uint8, "u16": np.uint16}
#: What a raw byte of 1 becomes, as `kernels/mono_half_correct.cuh` multiplies it.
_BYTE = 65504 / 2**24
#: Bits of a float's mantissa.
_MANTISSA = 23
#: Bit of the mantissa that a kernel moves the first bit of a field to: `..._bits` of `kernels/correction.cuh`, and
#: `number_of` of `kernels/mono_half_correct.cuh`.
_PLACES, _HALF_PLACES = (8, 8, 16, 16), (0, 0, 2, 2)
#: Bits of a half's mantissa.
_HALF_MANTISSA = 10


def fill_argument(argument: np.ndarray, correction: Correction, codes: int) -> None:
    """Fill in the correction of a kernel's argument.

    Args:
        argument: A `FRAME_ARGUMENT` that has its full scale.
        correction: Correction of the frame.
        codes: Address of its codes on the device.
    """
    argument["codes"], argument["one"] = codes, 1
    argument["phase_y"], argument["phase_x"] = correction.phase
    full_scale = float(argument["full_scale"])
    units = (-full_scale, 1 / full_scale, 1, 1)  # minus the black level in raw numbers, gain to shares of full scale
    for k, (scale, place, unit) in enumerate(zip(correction.scales, _PLACES, units)):
        slope = scale.step * (1 << _MANTISSA - place)
        argument["slope"][k], argument["base"][k] = unit * slope, unit * (scale.lowest - slope)
    half_units = (-255 * _BYTE, 1 / (255 * _BYTE), 1, 1)
    for k, (scale, place, unit) in enumerate(zip(correction.scales, _HALF_PLACES, half_units)):
        slope = scale.step * (1 << _HALF_MANTISSA - place)
        base = unit * (scale.lowest - slope) - (k == 1)  # the gain, less 1
        argument["half_slope"][k], argument["half_base"][k] = _in_both_lanes(unit * slope), _in_both_lanes(base)


def _in_both_lanes(value: float) -> int:
    """Return the bits of the nearest half, twice in a word; infinite outside the range of halves."""
    with np.errstate(over="ignore"):
        return int(np.array(value).astype(np.float16).view(np.uint16)) * 0x10001


class DeviceCorrection:
    """A correction of frames, whose codes are in device memory.

    Args:
        driver: Driver of the device.
        correction: Correction of the frames.

    Raises:
        DeviceMemoryError: The device is too small.
    """

    def __init__(self, driver: Driver, correction: Correction) -> None:
        self._correction = correction
        self._codes = DeviceArray(driver, correction.codes)

    def replace_defects(self, raw: np.ndarray, raw_format: str) -> None:
        """Replace the defective pixels of a frame, in place; see `Correction.replace_defects`.

        Args:
            raw: The bytes of the frame, row by row without padding.
            raw_format: A key of `CAMERA_FORMATS`.
        """
        if not self.has_defects:
            return
        defects, sources, lost = self._correction.defects, self._correction.sources, self._correction.lost
        shape = self._correction.codes.shape
        if raw_format in _NUMBERS:
            mosaic = raw.view(_NUMBERS[raw_format]).reshape(shape)
            mosaic[defects] = mosaic[sources]
            mosaic[lost] = np.iinfo(mosaic.dtype).max  # kernels take larger numbers for full scale
        else:
            rows = raw.reshape(shape[0], -1)
            _copy_packed(rows, defects, sources)
            _saturate_packed(rows, lost)

    @property
    def has_defects(self) -> bool:
        """Whether any pixel is replaced."""
        return bool(self._correction.defects[0].size)

    def replace_on_device(self, mosaic: CupyArray) -> None:
        """Replace the defective pixels of a CuPy array (H, W) or (N, H, W), in place, in CuPy's current stream."""
        defects, sources, lost = self._correction.defects, self._correction.sources, self._correction.lost
        every = (Ellipsis,)
        mosaic[every + defects] = mosaic[every + sources]
        mosaic[every + lost] = np.iinfo(mosaic.dtype).max

    def fill(self, argument: np.ndarray) -> None:
        """Fill in the correction of a kernel's argument; see `fill_argument`."""
        fill_argument(argument, self._correction, self._codes.pointer)


#: Pixels of 12 bits, two in three bytes: the parity of a pixel's column, and the bits of the middle byte that it has.
_HALVES = ((0, 0x0F), (1, 0xF0))


def _copy_packed(rows: np.ndarray, to: Tuple[np.ndarray, np.ndarray], source: Tuple[np.ndarray, np.ndarray]) -> None:
    """Copy pixels of 12 bits.

    Args:
        rows: (H, row bytes) uint8, changed in place.
        to: (rows, columns) of the pixels to overwrite; none of them is the source of another one.
        source: (rows, columns) of the pixels to copy, each in an even column if the other one is.
    """
    for odd, mask in _HALVES:  # one after the other: two pixels share a byte
        chosen = to[1] % 2 == odd
        (y, x), (from_y, from_x) = ((pixels[0][chosen], pixels[1][chosen] // 2 * 3) for pixels in (to, source))
        rows[y, x + 2 * odd] = rows[from_y, from_x + 2 * odd]
        rows[y, x + 1] = rows[y, x + 1] & (0xFF ^ mask) | rows[from_y, from_x + 1] & mask


def _saturate_packed(rows: np.ndarray, places: Tuple[np.ndarray, np.ndarray]) -> None:
    """Give pixels of 12 bits full scale, in place; `rows` and (rows, columns) as those of `_copy_packed`."""
    for odd, mask in _HALVES:
        y, x = (pixels[places[1] % 2 == odd] for pixels in (places[0], places[1] // 2 * 3))
        rows[y, x + 2 * odd] = 0xFF
        rows[y, x + 1] |= mask
