"""Raw frames and their pixel formats: turns a camera's bytes, or arrays, into checked mosaics.

A new pixel format is one row in :data:`FORMATS`. Packings are those of the GenICam pixel format naming convention
(PFNC 2.4) and of GigE Vision.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Dict, List, Tuple, Union

import numpy as np

from polar_pipeline._util.text import printable, quoted
from polar_pipeline._util.values import choice, whole_number

#: Smallest frame side in pixels: the widest demosaic window and its reflected border must fit.
MIN_SIDE = 16
#: Largest frame side in pixels, and most pixels of a frame: what the kernels' 32-bit indices reach.
MAX_SIDE, MAX_PIXELS = 65535, 1 << 28
#: (height, width) of the known sensors' frames.
FULL_FRAME = (2048, 2448)


class FrameError(ValueError):
    """A raw frame that cannot be used; `cause` is a short stable key for counting (see `docs/robustness.md`)."""

    def __init__(self, cause: str, message: str) -> None:
        super().__init__(message)
        self.cause = cause


@dataclass(frozen=True)
class RawFrame:
    """A mosaic as numbers.

    A number above full scale means full scale: every backend clips it before it interpolates, so that such a pixel is
    saturated and no brighter than white. `mosaic` itself is not clipped.

    Attributes:
        mosaic: (H, W) uint8 or native-endian uint16.
        full_scale: The value of a saturated pixel; larger ones in `mosaic` count as this one.
    """

    mosaic: np.ndarray
    full_scale: int

    @property
    def shape(self) -> Tuple[int, int]:
        """(height, width) in pixels."""
        height, width = self.mosaic.shape
        return height, width

    def unpack(self) -> RawFrame:
        """The frame itself; see `PackedFrame`."""
        return self


@dataclass(frozen=True)
class RawFormat:
    """How a camera packs pixels into bytes.

    Attributes:
        bits: Significant bits per pixel.
        packing: `"u8"`, `"u16"`, `"p"` (PFNC `p`: a little-endian bit stream) or `"packed"` (GigE Vision: two pixels in
            three bytes).
        shift: Left shift of the significant bits within 16 (0: LSB aligned, 16 - bits: MSB aligned). Bits below them
            count as the fraction of a level that they stand for.
    """

    bits: int
    packing: str
    shift: int = 0

    @property
    def full_scale(self) -> int:
        """The value of a saturated pixel; 16-bit pixels can hold larger ones, which mean this one (`RawFrame`)."""
        return ((1 << self.bits) - 1) << self.shift

    def row_bytes(self, width: int) -> int:
        """Bytes of one row of `width` pixels without padding."""
        if self.packing == "packed":
            return (width + 1) // 2 * 3
        return (width * {"u8": 8, "u16": 16, "p": self.bits}[self.packing] + 7) // 8


@dataclass(frozen=True)
class PackedFrame:
    """A mosaic as the camera packed it.

    Attributes:
        rows: (H, row bytes) uint8.
        fmt: How pixels are packed: `p` or `packed`.
        width: Pixels per row.
    """

    rows: np.ndarray
    fmt: RawFormat
    width: int

    @property
    def shape(self) -> Tuple[int, int]:
        """(height, width) in pixels."""
        return len(self.rows), self.width

    @property
    def full_scale(self) -> int:
        """The value of a saturated pixel."""
        return self.fmt.full_scale

    def unpack(self) -> RawFrame:
        """The mosaic as numbers."""
        return RawFrame(unpack_rows(np.ascontiguousarray(self.rows), self.fmt, self.width), self.full_scale)


#: A mosaic in either form.
Frame = Union[RawFrame, PackedFrame]
#: Where the significant bits of 16-bit pixels can lie: at the low end or at the high end.
ALIGNMENTS = ("lsb", "msb")
#: Pixel formats by bit depth and packing; the names are what follows a PFNC colour prefix.
FORMATS: Dict[str, RawFormat] = {
    "8": RawFormat(8, "u8"),
    "10": RawFormat(10, "u16"),
    "12": RawFormat(12, "u16"),
    "16": RawFormat(16, "u16"),
    "10p": RawFormat(10, "p"),
    "12p": RawFormat(12, "p"),
    "10Packed": RawFormat(10, "packed"),
    "12Packed": RawFormat(12, "packed"),
}
_BAYER = r"bayer_(?:rggb|bggr|gbrg|grbg)"
_ROS_ENCODING = re.compile(rf"(?:mono|{_BAYER})(8|16)|(8|16)UC1")
_PFNC = re.compile(
    r"(?:Polarized?|Polarise)?(?:Angles_0d_45d_90d_135d_)?(?:Mono|Bayer(?:RG|BG|GB|GR))(8|10|12|16|10p|12p|10Packed|12Packed)"
)
_POLARIZED = re.compile(
    r"polarized_angles_0d_45d_90d_135d_(?:mono|bayer_(?:rg|bg|gb|gr))(8|10|12|16|10p|12p|10packed|12packed)"
)


def get_format(encoding: str, bit_depth: int = 0, alignment: str = "lsb") -> RawFormat:
    """The raw format behind a `sensor_msgs/Image` encoding or PFNC name.

    The encoding says only how pixels are packed, not which mosaic it is: a polarizer mosaic tagged `bayer_rggb8` is no
    Bayer image.

    Args:
        encoding: `mono8`, `mono16`, `bayer_*8`, `bayer_*16`, `8UC1`, `16UC1`, a PFNC name such as `PolarizeMono12p` or
            `BayerRG12Packed`, or `polarized_angles_0d_45d_90d_135d_*`.
        bit_depth: Significant bits of 16-bit pixels, 8 to 16; 0 takes the encoding's own.
        alignment: `"lsb"` or `"msb"`: where the significant bits of 16-bit pixels lie.

    Raises:
        FrameError: The encoding is unknown or empty (cause `encoding`).
        ValueError: `bit_depth` or `alignment` is out of range.
    """
    bit_depth = check_bit_depth(bit_depth)
    choice("alignment", alignment, ALIGNMENTS)
    found = None
    if isinstance(encoding, str):
        found = _ROS_ENCODING.fullmatch(encoding) or _PFNC.fullmatch(encoding) or _POLARIZED.fullmatch(encoding)
    if found is None:
        raise FrameError(
            "encoding",
            "encoding must be mono8, mono16, bayer_*8, bayer_*16, 8UC1, 16UC1 or a PFNC name such as PolarizeMono8, "
            f"PolarizeMono12p or BayerRG12Packed, got {quoted(encoding)}",
        )
    key = next(group for group in found.groups() if group).replace("packed", "Packed")
    known = FORMATS[key]
    if known.packing != "u16":
        return known
    bits = bit_depth or known.bits
    return RawFormat(bits, "u16", 16 - bits if alignment == "msb" else 0)


def check_bit_depth(bit_depth: object) -> int:
    """The significant bits of 16-bit pixels: 8 to 16, or 0 for those of the encoding or the type.

    Raises:
        ValueError: It is something else.
    """
    bits = whole_number("bit_depth", bit_depth)
    if bits != 0 and not 8 <= bits <= 16:
        raise ValueError(f"bit_depth must be 0 (from the encoding or type) or 8 to 16, got {quoted(bit_depth)}")
    return bits


def unpack(
    data: Union[bytes, bytearray, memoryview, np.ndarray],
    fmt: RawFormat,
    height: int,
    width: int,
    step: int = 0,
    big_endian: bool = False,
) -> RawFrame:
    """Raw bytes as numbers: `frame_from_buffer`, then packed pixels are unpacked."""
    return frame_from_buffer(data, fmt, height, width, step, big_endian).unpack()


def frame_from_buffer(
    data: Union[bytes, bytearray, memoryview, np.ndarray],
    fmt: RawFormat,
    height: int,
    width: int,
    step: int = 0,
    big_endian: bool = False,
) -> Frame:
    """Raw bytes as a mosaic: a view where its pixels are bytes or words of this machine, or still packed.

    Args:
        data: The bytes of the image, row by row.
        fmt: How pixels are packed.
        height: Rows.
        width: Pixels per row.
        step: Bytes from one row to the next; 0 means no padding.
        big_endian: Byte order of 16-bit pixels.

    Returns:
        The mosaic and its full scale. A 10 or 12 bit packed name whose rows hold two bytes per pixel is taken as the
        driver's unpacked form, MSB aligned.

    Raises:
        FrameError: The size is out of range (`check_size`, cause `size`), `step` is shorter than a row (`step`), or
            data is missing (`truncated`).
    """
    check_size(height, width)
    flat = np.frombuffer(data, np.uint8) if not isinstance(data, np.ndarray) else data.reshape(-1).view(np.uint8)
    fmt = sent_format(fmt, height, width, step, flat.size)
    row = fmt.row_bytes(width)
    step = step or row
    if step < row:
        raise FrameError("step", f"step must be at least {row} bytes for {width} pixels of {fmt.bits} bit, got {step}")
    needed = step * (height - 1) + row
    if flat.size < needed:
        raise FrameError(
            "truncated",
            f"{width}x{height} pixels of {fmt.bits} bit {fmt.packing} with step {step} need {needed} bytes, "
            f"got {flat.size}",
        )
    rows = np.lib.stride_tricks.as_strided(flat, (height, row), (step, 1), writeable=False)
    if fmt.packing == "u8":
        return RawFrame(rows, fmt.full_scale)
    if fmt.packing == "u16":
        dtype = ">u2" if big_endian else "<u2"
        if step % 2 or flat.ctypes.data % 2:
            wide = rows.copy().view(dtype)
        else:  # The type before the strides: NumPy up to 1.22 cannot view padded rows as another type.
            words = flat[: flat.size // 2 * 2].view(dtype)
            wide = np.lib.stride_tricks.as_strided(words, (height, width), (step, 2), writeable=False)
        return RawFrame(wide.astype(np.uint16, copy=False), fmt.full_scale)
    return PackedFrame(rows, fmt, width)


def sent_format(fmt: RawFormat, height: int, width: int, step: int, size: int) -> RawFormat:
    """How pixels lie in `size` bytes: unpacked and MSB aligned where rows of a packed format hold two bytes a pixel."""
    if fmt.packing in ("p", "packed") and max(step, size // height) >= 2 * width:
        return RawFormat(fmt.bits, "u16", 16 - fmt.bits)
    return fmt


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
    """(H, row bytes) uint8 -> (H, width) uint16 of a `p` or `packed` format."""
    if fmt.packing == "packed":
        triples = rows.reshape(rows.shape[0], -1, 3).astype(np.uint16)
        low_bits = fmt.bits - 8
        mask = (1 << low_bits) - 1
        first = triples[..., 0] << low_bits | triples[..., 1] & mask
        second = triples[..., 2] << low_bits | triples[..., 1] >> 4 & mask
        return np.ascontiguousarray(np.stack([first, second], -1).reshape(rows.shape[0], -1)[:, :width])
    padded = np.pad(rows, ((0, 0), (0, -rows.shape[1] % group_bytes(fmt))))
    groups = padded.reshape(rows.shape[0], -1, group_bytes(fmt)).astype(np.uint16)
    mask = (1 << fmt.bits) - 1
    values = [(groups[..., k] | groups[..., k + 1] << 8) >> shift & mask for k, shift in _places(fmt)]
    return np.ascontiguousarray(np.stack(values, -1).reshape(rows.shape[0], -1)[:, :width])


def group_bytes(fmt: RawFormat) -> int:
    """Bytes of the smallest number of pixels of a `p` or `packed` format that end with a byte."""
    return 5 if (fmt.bits, fmt.packing) == (10, "p") else 3


def _places(fmt: RawFormat) -> List[Tuple[int, int]]:
    """Where each pixel of a group of a `p` format begins: byte, and bit in it; it ends in the byte after that one."""
    return [divmod(start, 8) for start in range(0, 8 * group_bytes(fmt), fmt.bits)]


def pack(mosaic: np.ndarray, fmt: RawFormat, big_endian: bool = False) -> bytes:
    """The inverse of `unpack` without row padding: LSB-aligned (H, W) numbers as the bytes a camera would send."""
    height, width = mosaic.shape
    if fmt.packing == "u8":
        return mosaic.astype(np.uint8).tobytes()
    if fmt.packing == "u16":
        return (mosaic.astype(np.uint16) << fmt.shift).astype(">u2" if big_endian else "<u2").tobytes()
    if fmt.packing == "packed":
        even = np.pad(mosaic, ((0, 0), (0, width % 2))).astype(np.uint16).reshape(height, -1, 2)
        low_bits = fmt.bits - 8
        mask = (1 << low_bits) - 1
        middle = even[..., 0] & mask | (even[..., 1] & mask) << 4
        return np.stack([even[..., 0] >> low_bits, middle, even[..., 1] >> low_bits], -1).astype(np.uint8).tobytes()
    places = _places(fmt)
    padded = np.pad(mosaic, ((0, 0), (0, -width % len(places)))).astype(np.uint16).reshape(height, -1, len(places))
    groups = np.zeros((*padded.shape[:2], group_bytes(fmt)), np.uint8)
    for index, (k, shift) in enumerate(places):
        word = (padded[..., index] & (1 << fmt.bits) - 1) << shift
        groups[..., k] |= word.astype(np.uint8)
        groups[..., k + 1] |= (word >> 8).astype(np.uint8)
    return np.ascontiguousarray(groups.reshape(height, -1)[:, : fmt.row_bytes(width)]).tobytes()


def as_frame(raw: Union[np.ndarray, Frame], full_scale: int = 0) -> Frame:
    """Validate a mosaic given as an array.

    Args:
        raw: (H, W) uint8 or native-endian uint16 of any strides, a `RawFrame`, or a `PackedFrame` from
            `frame_from_buffer`, which is valid.
        full_scale: Value of a saturated pixel of an array; 0 takes the type's maximum.

    Raises:
        FrameError: Wrong type (`type`), shape, size or full scale (`size`). Arrays of the other byte order are of the
            wrong type, and so are masked ones, since no product can leave pixels out.
    """
    if isinstance(raw, PackedFrame):
        return raw
    if isinstance(raw, RawFrame):
        mosaic, full_scale = raw.mosaic, raw.full_scale
    else:
        mosaic = raw
    is_masked = isinstance(mosaic, np.ma.MaskedArray)
    if not isinstance(mosaic, np.ndarray) or is_masked or mosaic.dtype not in (np.uint8, np.uint16):
        kind = type(mosaic).__name__ if is_masked or not isinstance(mosaic, np.ndarray) else str(mosaic.dtype)
        raise FrameError(
            "type", f"raw must be a uint8 or uint16 array in this machine's byte order, got {printable(kind)}"
        )
    if mosaic.ndim != 2:
        raise FrameError("size", f"raw must be (H, W), got shape {quoted(mosaic.shape)}")
    check_size(*mosaic.shape)
    limit = int(np.iinfo(mosaic.dtype).max)
    try:
        full_scale = whole_number(f"full_scale of {mosaic.dtype}", full_scale, 0, limit)
    except ValueError as err:
        raise FrameError("size", str(err)) from None
    return RawFrame(np.asarray(mosaic), full_scale or limit)
