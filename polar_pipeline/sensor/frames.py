"""Raw frames and their pixel formats: checked mosaics from a camera's bytes, or from arrays.

A new pixel format is one row in :data:`FORMATS`; `encodings` has the names. Packings are those of the GenICam pixel
format naming convention (PFNC 2.4) and of GigE Vision.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Dict, List, Optional, Tuple, Union

import numpy as np

from polar_pipeline._util.text import printable, quoted
from polar_pipeline._util.values import whole_number
from polar_pipeline.sensor.mosaic import ANGLES, CHANNELS, Sensor

#: Smallest frame side in pixels: the widest demosaic window and its reflected border must fit.
MIN_SIDE = 16
#: Largest frame side in pixels, and most pixels of a frame: what the kernels' 32-bit indices reach.
MAX_SIDE, MAX_PIXELS = 65535, 1 << 28
#: Bytes to a multiple of which drivers round a row up.
ROW_ALIGNMENTS = tuple(1 << power for power in range(9))
#: Bits of a pixel in known formats, refused ones included. A step that is exactly a row of such pixels is not padding.
PIXEL_BITS = (8, 10, 12, 14, 16, 24, 30, 32, 36, 48, 64, 96, 128)
#: Most exposures that a frame is merged from.
MAX_EXPOSURES = 16
#: Share of the superpixels of a merged frame above which they can be a misfit: a few differ beside saturated parts.
MIN_MISFIT = 0.01
#: Full scale of 16-bit numbers that use all bits.
SIXTEEN_BITS = (1 << 16) - 1
#: Rows of a frame, more or less, whose bits are looked at.
_SAMPLED_ROWS = 128
#: Share of numbers in which both bytes are not 0 if they are in the wrong order, and how many different ones: fewer may
#: leave out bits by chance.
_SWAPPED_SHARE, _SWAPPED_NUMBERS = 0.001, 32
#: Depths of cameras, and what numbers below them may have.
_DEPTHS = {8: "8, 10 or 12", 10: "10 or 12", 12: "12", 14: "14"}


class FrameError(ValueError):
    """A raw frame that cannot be used; `cause` is a short stable key for counting (see `docs/robustness.md`)."""

    def __init__(self, cause: str, message: str) -> None:
        super().__init__(message)
        self.cause = cause


@dataclass(frozen=True)
class FrameWarning:
    """Something about a raw frame that looks wrong, although the frame can be processed.

    Attributes:
        cause: A short stable key, as of `FrameError` (see `docs/robustness.md`).
        text: What looks wrong, and the option that corrects it.
    """

    cause: str
    text: str


@dataclass(frozen=True)
class Light:
    """Light of a frame that no mosaic can hold: angle images in color, or Stokes vectors.

    Attributes:
        angles: (4, H, W), in color (4, H, W, 3), float32, full scale 1: what polarizers at `ANGLES` let through. NaN
            where it is unknown.
        is_measured: Whether the angles were measured; otherwise they were computed from Stokes vectors.
    """

    angles: np.ndarray
    is_measured: bool = True


@dataclass(frozen=True)
class Exposures:
    """The exposures that a frame was merged from (`polar_pipeline.merge_exposures`), the longest first.

    Attributes:
        index: (ceil(H/2), ceil(W/2)) uint8: the exposure that each superpixel was taken from.
        moved: Of the same shape, bool: the exposures show different light there, so the last one was taken.
        lights: What each exposure had of the light of the last one: exposure time times gain as a factor. At least 1.
        gains_db: Their gains in dB above that of the last one.
        full_scale: Value of a saturated pixel in the exposures.
    """

    index: np.ndarray
    moved: np.ndarray
    lights: Tuple[float, ...]
    gains_db: Tuple[float, ...]
    full_scale: int

    @property
    def largest_ratio(self) -> int:
        """Ratio of the longest exposure to the shortest one, gains included, rounded to an integer.

        A camera's exposures are never exactly those asked for, and a GPU has kernels for each value.
        """
        return round(self.lights[0])

    @property
    def misfit(self) -> str:
        """Why the exposures do not fit each other: they show different light nearly everywhere; "" if they do.

        Superpixels that only the last exposure does not saturate cannot be compared, and do not count.
        """
        different = int(np.count_nonzero(self.moved))
        alike = int(np.count_nonzero(self.index < len(self.lights) - 1))
        if different <= max(alike, MIN_MISFIT * self.moved.size):
            return ""
        share = different / (different + alike)
        text = "exposure times, gains, the black level or the full scale is wrong, or everything moved"
        return f"the exposures show different light in {share:.0%} of the superpixels that can be compared: {text}"


@dataclass(frozen=True)
class RawFrame:
    """A mosaic as numbers.

    A number above full scale means full scale: every backend clips it before it interpolates, so that such a pixel is
    saturated and no brighter than white. `mosaic` itself is not clipped.

    Attributes:
        mosaic: (H, W) uint8 or native-endian uint16.
        full_scale: The value of a saturated pixel; larger ones in `mosaic` count as this one.
        is_split: Whether the camera split it into four angles a pixel (`of_angles`), which are not interpolated.
        light: Light from which products are computed in place of the mosaic, which holds its gray values (`of_light`).
        exposures: What it was merged from; None for a frame of one exposure.
    """

    mosaic: np.ndarray
    full_scale: int
    is_split: bool = False
    light: Optional[Light] = None
    exposures: Optional[Exposures] = None

    @classmethod
    def of_angles(cls, angles: np.ndarray, sensor: Sensor, full_scale: int = 0, bayer: Optional[str] = "") -> RawFrame:
        """Make a frame of (H, W, 4) angle images, as cameras that split superpixels send them: a (2H, 2W) mosaic.

        Args:
            angles: (H, W, 4) uint8, uint16 or other integers up to 65535, behind the polarizers at 0, 45, 90 and 135
                degrees.
            sensor: Its mosaic.
            full_scale: Value of a saturated pixel; 0 as for `as_frame`.
            bayer: Colors of four neighboring pixels, row by row, such as `RGGB`; "" for a monochrome sensor, None for
                those of the sensor.

        Raises:
            FrameError: Wrong type or shape (as `as_frame`), or the sensor has other colors (cause `encoding`).
        """
        quad = [(row, column) for row in (0, 2) for column in (0, 2)]
        own = "".join(CHANNELS[sensor.color_index(*place)] for place in quad) if sensor.is_color else ""
        if bayer is not None and own != bayer:
            raise FrameError(
                "encoding",
                f"the angles are {bayer or 'monochrome'}, those of sensor {sensor.name} are {own or 'monochrome'}: set "
                "the camera's sensor",
            )
        check_array("angles", angles)
        if angles.ndim != 3 or angles.shape[2] != len(ANGLES):
            raise FrameError("size", f"angles must be (H, W, 4), got shape {quoted(angles.shape)}")
        mosaic = np.empty((2 * angles.shape[0], 2 * angles.shape[1]), angles.dtype)
        for index, angle in enumerate(ANGLES):
            row, column = sensor.position(angle)
            mosaic[row::2, column::2] = angles[..., index]
        frame = as_frame(mosaic, full_scale)
        return cls(frame.unpack().mosaic, frame.full_scale, is_split=True)

    @classmethod
    def of_light(cls, light: Light, sensor: Sensor) -> RawFrame:
        """Make a frame of angle images in color or Stokes vectors, with a mosaic of their gray values for checks.

        Raises:
            FrameError: Wrong shape (cause `size`).
        """
        angles = light.angles
        if angles.ndim not in (3, 4) or len(angles) != len(ANGLES) or angles.shape[3:] not in ((), (3,)):
            raise FrameError("size", f"light must be (4, H, W) or (4, H, W, 3), got shape {quoted(angles.shape)}")
        gray = angles.mean(-1) if angles.ndim == 4 else angles
        mosaic = np.zeros((2 * gray.shape[1], 2 * gray.shape[2]), np.uint16)
        check_size(*mosaic.shape)
        for angle, image in zip(ANGLES, gray):
            row, column = sensor.position(angle)
            mosaic[row::2, column::2] = np.rint(np.clip(np.nan_to_num(image), 0, 1) * SIXTEEN_BITS)
        return cls(mosaic, SIXTEEN_BITS, is_split=True, light=light)

    @property
    def shape(self) -> Tuple[int, int]:
        """(height, width) in pixels."""
        height, width = self.mosaic.shape
        return height, width

    def unpack(self) -> RawFrame:
        """Return the frame itself; see `PackedFrame`."""
        return self


@dataclass(frozen=True)
class RawFormat:
    """Packing of pixels into bytes by a camera.

    Attributes:
        bits: Significant bits per pixel.
        packing: `"u8"`, `"u16"`, `"p"` (PFNC `p`: a little-endian bit stream), `"packed"` (GigE Vision: two pixels in
            three bytes) or `"float"` (little-endian, full scale 1; only Stokes vectors).
        shift: Left shift of the significant bits within 16 (0: LSB aligned, 16 - bits: MSB aligned). Bits below them
            count as the fraction of a level that they stand for.
        channels: Numbers a pixel, side by side: 1 for a mosaic, 4 for angle images (`RawFrame.of_angles`), 12 for those
            in color, 3 for Stokes vectors (`RawFrame.of_light`).
        bayer: Colors of angle images, as in `RawFrame.of_angles`; None if they are not stated.
    """

    bits: int
    packing: str
    shift: int = 0
    channels: int = 1
    bayer: Optional[str] = ""

    @property
    def full_scale(self) -> int:
        """The value of a saturated pixel; 16-bit pixels can hold larger ones, which mean this one (`RawFrame`)."""
        return ((1 << self.bits) - 1) << self.shift

    def row_bytes(self, width: int) -> int:
        """Return the bytes of one row of `width` pixels without padding."""
        width *= self.channels
        if self.packing == "packed":
            return (width + 1) // 2 * 3
        return (width * {"u8": 8, "u16": 16, "p": self.bits, "float": 32}[self.packing] + 7) // 8


@dataclass(frozen=True)
class PackedFrame:
    """A mosaic as the camera packed it.

    Attributes:
        rows: (H, row bytes) uint8.
        fmt: Packing of the pixels: `p` or `packed`.
        width: Pixels per row.
    """

    rows: np.ndarray
    fmt: RawFormat
    width: int
    is_split: ClassVar[bool] = False
    exposures: ClassVar[None] = None

    @property
    def shape(self) -> Tuple[int, int]:
        """(height, width) in pixels."""
        return len(self.rows), self.width

    @property
    def full_scale(self) -> int:
        """The value of a saturated pixel."""
        return self.fmt.full_scale

    def unpack(self) -> RawFrame:
        """Return the mosaic as numbers."""
        return RawFrame(unpack_rows(np.ascontiguousarray(self.rows), self.fmt, self.width), self.full_scale)


#: A mosaic in either form.
Frame = Union[RawFrame, PackedFrame]
#: Pixel formats by bit depth and packing; the keys are what names of pixel formats end in.
FORMATS: Dict[str, RawFormat] = {
    "8": RawFormat(8, "u8"),
    "10": RawFormat(10, "u16"),
    "12": RawFormat(12, "u16"),
    "14": RawFormat(14, "u16"),
    "16": RawFormat(16, "u16"),
    "10p": RawFormat(10, "p"),
    "12p": RawFormat(12, "p"),
    "10Packed": RawFormat(10, "packed"),
    "12Packed": RawFormat(12, "packed"),
    "32F": RawFormat(32, "float"),
}


def frame_from_buffer(
    data: Union[bytes, bytearray, memoryview, np.ndarray],
    fmt: RawFormat,
    height: int,
    width: int,
    step: int = 0,
    big_endian: bool = False,
    alignment: str = "lsb",
) -> Frame:
    """View raw bytes as a mosaic: of bytes, of words of this machine, or still packed.

    Args:
        data: The bytes of the image, row by row.
        fmt: Packing of the pixels.
        height: Rows.
        width: Pixels per row.
        step: Bytes from one row to the next; 0 means no padding.
        big_endian: Byte order of 16-bit pixels.
        alignment: The option `alignment`, for unpacked pixels under a packed name.

    Returns:
        The mosaic and its full scale; of a format of more channels their numbers side by side. A packed format whose
        rows hold two bytes a pixel is taken as the driver's unpacked form (`sent_format`), in the bits that the numbers
        use (`full_scale_of_depth`).

    Raises:
        FrameError: The size is out of range (`check_size`, cause `size`), or `step` or the number of bytes does not fit
            the format (`checked_step`).
    """
    scale = 2 if fmt.channels > 1 else 1
    check_size(scale * height, scale * width)
    flat = np.frombuffer(data, np.uint8) if not isinstance(data, np.ndarray) else data.reshape(-1).view(np.uint8)
    stated, fmt = fmt, sent_format(fmt, height, width, step, flat.size)
    row = fmt.row_bytes(width)
    kind = f"{fmt.bits} bit {fmt.packing}" + (f" in {fmt.channels} channels" if fmt.channels > 1 else "")
    step = checked_step(flat.size, height, width, row, step, kind)
    rows = np.lib.stride_tricks.as_strided(flat, (height, row), (step, 1), writeable=False)
    if fmt.packing == "u8":
        return RawFrame(rows, fmt.full_scale)
    width *= fmt.channels
    if fmt.packing == "u16":
        dtype = ">u2" if big_endian else "<u2"
        if flat.ctypes.data % 2:
            wide = rows.copy().view(dtype)
        else:  # The type before the strides: NumPy up to 1.22 cannot view padded rows as another type.
            wide = np.lib.stride_tricks.as_strided(flat.view(dtype), (height, width), (step, 2), writeable=False)
        numbers = wide.astype(np.uint16, copy=False)
        if fmt is stated:
            return RawFrame(numbers, fmt.full_scale)
        return RawFrame(numbers, full_scale_of_depth(used_bits(numbers), fmt.bits, alignment))
    return PackedFrame(rows, fmt, width)


def checked_step(size: int, height: int, width: int, row: int, step: int, kind: str) -> int:
    """Check the bytes from one row of an image to the next, and return them.

    Drivers round rows up to a multiple of 2, 4, ... 256 bytes, and an image has `step` bytes for each of its rows. A
    step that is exactly a row of pixels of another size (`PIXEL_BITS`) shows that the encoding is wrong. It is refused
    even if rounding gives the same number.

    Args:
        size: Bytes of the image.
        height: Rows.
        width: Pixels per row.
        row: Bytes of a row without padding.
        step: Bytes of a row as stated; 0 means no padding.
        kind: Description of the pixels for messages.

    Raises:
        FrameError: Rows are longer or shorter (cause `step`), or bytes are missing (`truncated`) or left (`step`).
    """
    step = step or row
    others = [(width * bits + 7) // 8 for bits in PIXEL_BITS] + [RawFormat(12, "packed").row_bytes(width)]
    if step != row and (step not in _rounded(row) or step in others):
        raise FrameError(
            "step",
            f"step must be {row} bytes for {width} pixels of {kind}, or those rounded up to a multiple of at most "
            f"{ROW_ALIGNMENTS[-1]} if that is not a row of other pixels, got {step}",
        )
    if size != step * height:
        raise FrameError(
            "truncated" if size < step * height else "step",
            f"{width}x{height} pixels of {kind} with step {step} need {step * height} bytes, got {size}",
        )
    return step


def _rounded(row: int) -> List[int]:
    """List the lengths in bytes that a row can have with padding."""
    return [-(-row // alignment) * alignment for alignment in ROW_ALIGNMENTS]


def sent_format(fmt: RawFormat, height: int, width: int, step: int, size: int) -> RawFormat:
    """Return the format of pixels in `size` bytes: some drivers unpack to 16 bit under a packed name.

    Rows of exactly two bytes a pixel are unpacked. If padding could make packed rows as long, the format stays packed,
    and `checked_step` refuses the image.
    """
    if fmt.packing not in ("p", "packed") or fmt.channels > 1 or (step or size / height) != 2 * width:
        return fmt
    return fmt if step in _rounded(fmt.row_bytes(width)) else RawFormat(fmt.bits, "u16", 16 - fmt.bits)


def used_bits(numbers: np.ndarray) -> int:
    """Return the bits that any of a frame's 16-bit numbers uses, by about 128 rows: 0.03 ms for a camera's frame."""
    step = len(numbers) // _SAMPLED_ROWS | 1  # odd, to take rows of all polarizers
    return int(np.bitwise_or.reduce(np.bitwise_or.reduce(numbers[::step], axis=0), axis=None))


def has_swapped_bytes(numbers: np.ndarray, used: int) -> bool:
    """Return whether 16-bit numbers use the bits of numbers of fewer bits whose bytes are in the other order.

    Light uses adjacent bits: 0x0FFF, or 0xFFF0, which are 0xFF0F and 0xF0FF in the other order. `used` is what
    `used_bits` returns.
    """
    other = used >> 8 | (used & 0xFF) << 8
    adjacent = other // ((other & -other) or 1)
    if used == SIXTEEN_BITS or not (used >> 8 and used & 0xFF) or adjacent & (adjacent + 1):
        return False
    rows = numbers[:: len(numbers) // _SAMPLED_ROWS | 1]
    share = np.count_nonzero((rows > 0xFF) & (rows & 0xFF != 0)) / rows.size
    return bool(share > _SWAPPED_SHARE) and len(np.unique(rows)) >= _SWAPPED_NUMBERS


def swapped_bytes() -> FrameWarning:
    """Return the warning about 16-bit numbers in the wrong byte order."""
    return FrameWarning(
        "encoding",
        "16-bit numbers have their two bytes in the other order: the driver states the wrong one (is_bigendian), or a "
        "file without a header is big-endian: save np.fromfile(FILE, '>u2') in its shape as NPY",
    )


def full_scale_of_bits(used: int) -> int:
    """Return the value of a saturated pixel among 16-bit numbers of unknown depth, by the bits that they use.

    Numbers that leave 2, 4, 6 or 8 low bits unused, and use all of the next four, are of 14, 12, 10 or 8 bits in the
    high bits. Other numbers may use all 16 bits.
    """
    for unused in (2, 4, 6, 8):
        if used & ((1 << unused + 4) - 1) == 0b1111 << unused:
            return SIXTEEN_BITS >> unused << unused
    return SIXTEEN_BITS


def full_scale_of_depth(used: int, bits: int, alignment: str) -> int:
    """Return the value of a saturated pixel among 16-bit numbers of known depth, by the bits that they use.

    Numbers of the high bits leave the low bits unused. The option `alignment` "msb" decides for the high bits.
    """
    low, shift = (1 << bits) - 1, 16 - bits
    is_low = alignment == "lsb" and used <= low and used & ((1 << shift) - 1)
    return low if is_low else low << shift


def bit_warnings(frame: Frame, bit_depth: int, calibrated: int = 0) -> List[FrameWarning]:
    """Return what looks wrong about the bits of a frame's numbers.

    Args:
        frame: The frame.
        bit_depth: The option `bit_depth`.
        calibrated: Bits of the frames of the calibration; 0 without a calibration, or if it does not state them.
    """
    if isinstance(frame, PackedFrame):
        return []
    if frame.mosaic.dtype == np.uint16:
        used = used_bits(frame.mosaic)
        if has_swapped_bytes(frame.mosaic, used):
            return [swapped_bytes()]
        text = _bits_contradiction(used, frame.full_scale, bit_depth, calibrated)
    else:
        text = f"pixels have 8 bits, and bit_depth is {bit_depth}: leave out raw.bit_depth (--bit-depth)"
        text = text if bit_depth not in (0, 8) else ""
    return [FrameWarning("bits", text)] if text else []


def _bits_contradiction(used: int, full_scale: int, bit_depth: int, calibrated: int) -> str:
    """Return how the bits that 16-bit numbers use contradict their full scale, and the option that fits; "" if not."""
    if full_scale == SIXTEEN_BITS:
        bits = next((bits for bits in _DEPTHS if used < 1 << bits), 16)
        # multiples of 4 are dark pixels of a camera that uses the high bits
        if 16 in (bits, bit_depth) or not used & 0b11:
            return ""
        if calibrated:  # of fewer bits, or it would have decided
            text = f"numbers have {bits} bits, and the calibration is of frames of {calibrated}"
            return f"{text}: calibrate with frames of {bits} bits"
        return (
            f"no 16-bit number is above {(1 << bits) - 1}: if the camera has fewer bits, set --bit-depth "
            f"{_DEPTHS[bits]} (raw.bit_depth), otherwise 16"
        )
    shift = (full_scale & -full_scale).bit_length() - 1
    largest, low = full_scale >> shift, (1 << shift) - 1
    if largest & (largest + 1):  # a full scale of the caller's
        return ""
    if shift and used <= largest and used & low:
        return f"no number is above {largest}: the bits are low ones, --alignment lsb fits (raw.alignment)"
    if shift or used <= largest:
        return ""
    bits = bin(largest).count("1")
    if used & ((1 << 16 - bits) - 1) == 0:
        return f"numbers above full scale, {full_scale}, use high bits only: --alignment msb fits (raw.alignment)"
    depth = next((depth for depth in _DEPTHS if used < 1 << depth), 16)
    text = f"numbers are above full scale, {full_scale}: "
    if not bit_depth:  # an option would be refused
        text += "the encoding states too few bits; in the driver, or after --raw, choose one in 16, with which "
    return f"{text}--bit-depth {depth} fits (raw.bit_depth)"


def check_size(height: int, width: int) -> None:
    """Refuse frames whose sides or whose pixels in all are out of range.

    Raises:
        FrameError: They are (cause `size`).
    """
    if min(height, width) < MIN_SIDE or max(height, width) > MAX_SIDE or height * width > MAX_PIXELS:
        raise FrameError(
            "size",
            f"a frame must have at least {MIN_SIDE}x{MIN_SIDE} pixels, at most {MAX_SIDE} a side and {MAX_PIXELS} "
            f"in all, got {quoted(width)}x{quoted(height)}",
        )


def unpack_rows(rows: np.ndarray, fmt: RawFormat, width: int) -> np.ndarray:
    """Unpack (H, row bytes) uint8 of a `p` or `packed` format to (H, width) uint16."""
    size = group_bytes(fmt)
    padded = np.pad(rows, ((0, 0), (0, -rows.shape[1] % size)))
    groups = padded.reshape(rows.shape[0], -1, size).astype(np.uint16)
    values = [
        groups[..., low] >> shift & (1 << bits) - 1 | (groups[..., high] & (1 << fmt.bits - bits) - 1) << bits
        for low, shift, bits, high in _places(fmt)
    ]
    return np.ascontiguousarray(np.stack(values, -1).reshape(rows.shape[0], -1)[:, :width])


def group_bytes(fmt: RawFormat) -> int:
    """Return the bytes of the smallest number of pixels of a `p` or `packed` format that end with a byte."""
    return 5 if (fmt.bits, fmt.packing) == (10, "p") else 3


def _places(fmt: RawFormat) -> List[Tuple[int, int, int, int]]:
    """Return the places of the pixels in a group of a `p` or `packed` format.

    Returns:
        For each pixel the byte of its lowest bits, the place of the first one there, and their number; and the byte
        that begins with its other bits.
    """
    if fmt.packing == "packed":
        return [(1, 0, fmt.bits - 8, 0), (1, 4, fmt.bits - 8, 2)]
    starts = (divmod(start, 8) for start in range(0, 8 * group_bytes(fmt), fmt.bits))
    return [(byte, bit, 8 - bit, byte + 1) for byte, bit in starts]


def pack(mosaic: np.ndarray, fmt: RawFormat, big_endian: bool = False) -> bytes:
    """Pack LSB-aligned (H, W) numbers as the bytes of a camera, the inverse of `unpack` without row padding."""
    height, width = mosaic.shape
    if fmt.packing == "u8":
        return mosaic.astype(np.uint8).tobytes()
    if fmt.packing == "u16":
        return (mosaic.astype(np.uint16) << fmt.shift).astype(">u2" if big_endian else "<u2").tobytes()
    places = _places(fmt)
    padded = np.pad(mosaic, ((0, 0), (0, -width % len(places)))).astype(np.uint16).reshape(height, -1, len(places))
    groups = np.zeros((*padded.shape[:2], group_bytes(fmt)), np.uint8)
    for index, (low, shift, bits, high) in enumerate(places):
        value = padded[..., index] & (1 << fmt.bits) - 1
        groups[..., low] |= ((value & (1 << bits) - 1) << shift).astype(np.uint8)
        groups[..., high] |= (value >> bits).astype(np.uint8)
    return np.ascontiguousarray(groups.reshape(height, -1)[:, : fmt.row_bytes(width)]).tobytes()


def check_array(name: str, array: object) -> None:
    """Refuse what is not an array of raw numbers; masked ones too, since no product can leave pixels out.

    Arrays of uint8, and of integers of at least 16 bits in any byte order, are accepted; `native_numbers` converts
    them.

    Raises:
        FrameError: It is something else (cause `type`).
    """
    dtype = array.dtype if isinstance(array, np.ndarray) and not isinstance(array, np.ma.MaskedArray) else None
    if dtype is None or not (dtype == np.uint8 or (dtype.kind in "iu" and dtype.itemsize > 1)):
        kind = type(array).__name__ if dtype is None else str(dtype)
        is_float = dtype is not None and dtype.kind == "f"
        advice = (
            f"; for values from 0 to 1, np.rint(65535 * {name}).astype(np.uint16) converts them" if is_float else ""
        )
        raise FrameError(
            "type",
            f"{name} must be a uint8 or uint16 array, or one of other integers from 0 to {SIXTEEN_BITS}, got "
            f"{printable(kind)}{advice}",
        )


def native_numbers(name: str, array: np.ndarray) -> np.ndarray:
    """Return an array that `check_array` accepts as uint8, or as uint16 in this machine's byte order.

    Raises:
        FrameError: A number needs more than 16 bits, or is negative (cause `type`).
    """
    if array.dtype.char in "BH" and array.dtype.isnative:
        return array
    low, high = int(array.min()), int(array.max())
    if low < 0 or high > SIXTEEN_BITS:
        number = low if low < 0 else high
        raise FrameError("type", f"{name} must hold integers from 0 to {SIXTEEN_BITS}, got {number} ({array.dtype})")
    return array.astype(np.uint16)


def as_frame(raw: Union[np.ndarray, Frame], full_scale: int = 0) -> Frame:
    """Validate a mosaic given as an array.

    Args:
        raw: (H, W) uint8, uint16 or other integers up to 65535, of any strides and byte order; a `RawFrame`; or a
            `PackedFrame` from `frame_from_buffer`, which is valid.
        full_scale: Value of a saturated pixel of an array; 0 takes the type's maximum, or that of the high bits if a
            16-bit array uses no others (`full_scale_of_bits`).

    Raises:
        FrameError: Wrong type (`type`), as `check_array` and `native_numbers`; wrong shape, size or full scale
            (`size`).
    """
    if isinstance(raw, PackedFrame):
        return raw
    is_split, light, exposures = False, None, None
    if isinstance(raw, RawFrame):
        full_scale, is_split, light, exposures = raw.full_scale, raw.is_split, raw.light, raw.exposures
        raw = raw.mosaic
    check_array("raw", raw)
    if raw.ndim != 2:
        raise FrameError("size", f"raw must be (H, W), got shape {quoted(raw.shape)}")
    check_size(*raw.shape)
    raw = native_numbers("raw", raw)
    limit = (1 << 8 * raw.itemsize) - 1
    try:
        full_scale = whole_number(f"full_scale of uint{8 * raw.itemsize}", full_scale, 0, limit)
    except ValueError as err:
        raise FrameError("size", str(err)) from None
    limit = limit if full_scale or raw.dtype == np.uint8 else full_scale_of_bits(used_bits(raw))
    return RawFrame(np.asarray(raw), full_scale or limit, is_split, light, exposures)
