"""A calibration for 8-bit frames at half resolution, as the CPU kernels correct them in 16-bit integers.

In 16 bits, twice as many pixels are corrected at a time as in floats. `kernels/cpu/correct_bytes.hpp` has the
arithmetic. Instead of the 32 bits of `calibration/quantization.py`, a pixel has two words of two bytes each:

- its gain, less 1, above its black level times the gain;
- its own term above its other one.

The high byte of a word is the first number, the low byte the second. The kernel does not separate the high byte: it
uses the whole word as the first number. So the high byte is chosen such that the word, its low byte included, is
nearest to the first number. Every block of superpixels has its own ranges, in 256 steps each: outliers elsewhere do not
make them coarser. Both terms have the same steps; the range of the own one is symmetric about 0.
"""

from __future__ import annotations

from typing import List, NamedTuple, Optional, Tuple
from weakref import WeakKeyDictionary

import numpy as np

from polar_pipeline.calibration import Correction
from polar_pipeline.calibration.quantization import dequantize

#: Superpixels whose words lie together, and units of a level; `BLOCK` and `UNITS` of `kernels/cpu/correct_bytes.hpp`.
BLOCK, UNITS = 128, 64
#: Full scale, as kernels store what they corrected.
WORD_FULL_SCALE = 255 * UNITS
#: What a correction adds is computed in up to 2**4 parts of a unit.
_MAX_BITS = 4
#: What stands for 1 in words, and the largest code of a byte that has its negative.
_ONE, _TOP = 1 << 15, 127
#: Half the widest ranges of the gain, the black level and the terms in a block whose steps are fine enough: the
#: similarity of images of full resolution stays within its bound. Real sensors' outliers are within them.
_WIDEST = (0.12, 0.012, 0.15, 0.15)
#: Rows of superpixels that are packed at a time.
_ROWS = 64

_SHORT = np.int16
#: `struct WordBlock` of `kernels/cpu/correct_bytes.hpp`, of 64 bytes more than its words.
_BLOCK_TYPE = np.dtype(
    [
        *(("gains", _SHORT, (4, BLOCK)), ("terms", _SHORT, (4, BLOCK))),
        *((name, _SHORT) for name in ("gain", "gain_step", "offset", "offset_step", "other", "term_step")),
        *((name, _SHORT) for name in ("share", "zero", "full")),
        ("unused", _SHORT, 23),
    ]
)


class _Range(NamedTuple):
    """The middle of a number's range in each block, and half its width: (rows, blocks) float64."""

    middle: np.ndarray
    half: np.ndarray

    @property
    def largest(self) -> np.ndarray:
        """The largest absolute value."""
        return np.abs(self.middle) + self.half


_packed: WeakKeyDictionary[Correction, Optional[np.ndarray]] = WeakKeyDictionary()


def correction_words(correction: Correction) -> Optional[np.ndarray]:
    """Return a correction for a mono sensor as (rows of superpixels, blocks) of `struct WordBlock`; None if unfit.

    They are made once for each correction: half a second for 5 megapixels, which then take 21 MB.
    """
    if correction not in _packed:
        _packed[correction] = _pack(correction)
    return _packed[correction]


def _pack(correction: Correction) -> Optional[np.ndarray]:
    rows, columns = ((size + phase + 1) // 2 for size, phase in zip(correction.codes.shape, correction.phase))
    blocks = np.zeros((rows, -(-columns // BLOCK)), _BLOCK_TYPE)
    for first in range(0, rows, _ROWS):
        some = blocks[first : first + _ROWS]
        if not _fill(some, _numbers(correction, first, some.shape, columns)):
            return None
    blocks.flags.writeable = False
    return blocks


def _numbers(correction: Correction, first: int, shape: Tuple[int, int], columns: int) -> List[np.ndarray]:
    """Return the gain less 1, the black level times the gain, and the own and the other term.

    Args:
        correction: Correction of the frame.
        first: Row of superpixels.
        shape: Rows from there on, and blocks.
        columns: Superpixels in a row; the last block repeats the last of them.

    Returns:
        Four (rows, blocks, 4, `BLOCK`) float32.
    """
    images = [np.empty((*shape, 4, BLOCK), np.float32) for _ in range(4)]
    height, width = correction.codes.shape
    for place in range(4):
        y = _inside(2 * np.arange(first, first + shape[0]) - correction.phase[0] + place // 2, height)
        x = 2 * np.minimum(np.arange(shape[1] * BLOCK), columns - 1) - correction.phase[1] + place % 2
        codes = correction.codes[np.ix_(y, _inside(x, width))]
        black, gain, own, other = dequantize(codes, correction.diagonal_scales, "float32")
        for image, number in zip(images, (gain - 1, black * gain, own, other)):
            image[:, :, place] = number.reshape(*shape, BLOCK)
    return images


def _fill(blocks: np.ndarray, numbers: List[np.ndarray]) -> bool:
    """Write the words of blocks and what they mean; False, and nothing written, if a range is too wide for 16 bits."""
    ends = [(image.min((2, 3)).astype(float), image.max((2, 3)).astype(float)) for image in numbers]
    gain, offset, own, other = (_Range((low + high) / 2, (high - low) / 2) for low, high in ends)
    half = np.maximum(own.largest, other.half)
    ranges = (gain, offset, _Range(np.zeros(half.shape), half), _Range(other.middle, half))
    if any((each.half > widest).any() for each, widest in zip(ranges, _WIDEST)):
        return False
    fitting = [_fits(*ranges, bits) for bits in range(1, _MAX_BITS + 1)]
    if not fitting[0].all():
        return False
    one = np.left_shift(_ONE, np.sum(fitting, 0))  # what stands for 1, more finely than in a word
    units = (one, one // _ONE * WORD_FULL_SCALE, one, one)
    middles = [np.rint(each.middle * unit) for each, unit in zip(ranges, units)]
    steps = [np.rint(each.half * unit * (_ONE / 256 / _TOP)) for each, unit in zip(ranges, units)]
    codes = []
    for image, middle, step, unit in zip(numbers, middles, steps, units):
        scale = np.divide(_ONE, step, out=np.zeros(step.shape), where=step != 0)
        codes.append(image * _each(unit * scale) - _each(middle * scale))
    blocks["gains"], blocks["terms"] = _two_bytes(*codes[:2]), _two_bytes(*codes[2:])
    blocks["gain"], blocks["offset"], _, blocks["other"] = middles
    blocks["gain_step"], blocks["offset_step"], _, blocks["term_step"] = steps
    blocks["share"], blocks["full"] = _ONE * _ONE // one, WORD_FULL_SCALE
    return True


def _each(of_blocks: np.ndarray) -> np.ndarray:
    """Repeat a number of each block for all of its superpixels."""
    return of_blocks.astype(np.float32)[:, :, None, None]


def _fits(gain: _Range, offset: _Range, own: _Range, other: _Range, bits: int) -> np.ndarray:
    """Return (rows, blocks) bool: whether no sum that the kernel stores exceeds 16 bits, in 2**-bits of a unit."""
    parts, margin = 1 << bits, 1.02  # ranges of codes are a little wider than those of numbers
    single = WORD_FULL_SCALE * margin * (gain.largest + offset.half)
    difference = WORD_FULL_SCALE + 2 * single
    largest = margin * np.max([gain.largest, own.largest, other.largest], 0)
    added = single + WORD_FULL_SCALE * np.abs(offset.middle) + difference * margin * (own.largest + other.largest)
    sums = [2 * single * parts, difference, added * parts, largest * parts * _ONE]
    return np.asarray(np.max(sums, 0) < _ONE - 64)  # for roundings


def _two_bytes(both: np.ndarray, low: np.ndarray) -> np.ndarray:
    """Return words that are near to `both`, whose low bytes times 256 are near to `low`."""
    low_byte = np.clip(np.rint(low / 256), -_TOP - 1, _TOP).astype(np.int32) & 255
    high_byte = np.clip(np.rint((both - low_byte) / 256), -_TOP - 1, _TOP).astype(np.int32)
    return np.asarray(high_byte * 256 + low_byte)


def _inside(places: np.ndarray, size: int) -> np.ndarray:
    """Clip rows or columns: one beyond the border becomes that of the neighboring superpixel."""
    return np.where(places < 0, places + 2, np.where(places >= size, places - 2, places))
