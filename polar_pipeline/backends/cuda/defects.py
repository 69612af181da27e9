"""Replacement of defective pixels in raw frames, before and after their upload."""

from __future__ import annotations

from typing import Tuple

import numpy as np

from polar_pipeline.backends.backend import CupyArray
from polar_pipeline.calibration import Correction

#: Raw formats of one number a pixel -> its type.
_NUMBERS = {"u8": np.uint8, "u16": np.uint16}


class DefectReplacement:
    """Replacement of the defective pixels of raw frames; see `Correction.replace_defects`.

    Args:
        correction: Correction of the frames.
    """

    def __init__(self, correction: Correction) -> None:
        self._correction = correction

    def replace(self, raw: np.ndarray, raw_format: str) -> None:
        """Replace the defective pixels of a frame, in place.

        Args:
            raw: The bytes of the frame, row by row without padding.
            raw_format: A key of `CAMERA_FORMATS`.
        """
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

    def replace_on_device(self, mosaic: CupyArray) -> None:
        """Replace the defective pixels of a CuPy array (H, W) or (N, H, W), in place, in CuPy's current stream."""
        defects, sources, lost = self._correction.defects, self._correction.sources, self._correction.lost
        every = (Ellipsis,)
        mosaic[every + defects] = mosaic[every + sources]
        mosaic[every + lost] = np.iinfo(mosaic.dtype).max


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
