"""Statements of PNG, TIFF and JPEG files about their pixels, which OpenCV applies in part, or not at all."""

from __future__ import annotations

import re
import struct
from typing import Dict, Iterable, Optional, Tuple

from polar_pipeline.sensor.frames import FrameError, FrameWarning

_JPEG = FrameWarning(
    "jpeg",
    "JPEG destroys the polarization of a mosaic, as it mixes neighboring pixels: save PNG or TIFF; record the raw "
    "topic, or image_transport's zstd or png, and make recordings smaller by 'polar-pipeline compress'",
)
_COMPRESSION, _ORIENTATION, _MAXIMUM = 259, 274, 281
#: Tags that decide what pixels are: tag -> (name, number without the tag, numbers that are read).
_DECISIVE = {
    258: ("bits", 1, (8, 16)),
    262: ("photometric interpretation", 1, (1,)),
    266: ("fill order", 1, (1,)),
    _ORIENTATION: ("orientation", 1, (1,)),
    277: ("samples per pixel", 1, (1,)),
    339: ("sample format", 1, (1, 4)),
}
#: Types of numbers -> their layout for `struct`.
_LAYOUTS = {1: "B", 3: "H", 4: "I"}
#: Compressions that lose details: JPEG in two forms, JPEG 2000, and lossy DNG.
_LOSSY = (6, 7, 34712, 34892)
#: Descriptions by which ImageJ and tifffile state pictures behind the first page without pages of their own.
_STACK = re.compile(rb'ImageJ=[^\0]{0,200}?\nimages=(?!1\n)|\{"shape": \[[0-9]+, [0-9]+, [0-9]+')
#: How TIFF files begin, and Exif data in PNG and JPEG, which are built like them.
_TIFF_MAGICS = (b"II*\0", b"MM\0*")


def read_tags(data: bytes) -> Tuple[Tuple[FrameWarning, ...], int]:
    """Read the tags of a PNG, TIFF or JPEG file.

    Returns:
        Warnings, and the largest number; 0 if the file does not state it.

    Raises:
        FrameError: The file holds several pictures, or pixels that are not those of a mosaic (cause `type`).
        struct.error: The file is damaged.
    """
    is_jpeg = data[:2] == b"\xff\xd8"
    if data[:4] in _TIFF_MAGICS:
        tags, has_more = _read_page(data)
        _check(tags, _DECISIVE)
        has_more |= _STACK.search(data) is not None
    else:
        exif = data.partition(b"Exif\0\0" if is_jpeg else b"eXIf")[2]
        _check(_read_page(exif)[0] if exif[:4] in _TIFF_MAGICS else {}, (_ORIENTATION,))
        tags, has_more = {}, not is_jpeg and b"acTL" in data[: data.find(b"IDAT")]  # of an animation
    if has_more:
        raise FrameError(
            "type",
            "a file of several pictures, of which OpenCV would read the first. Save each mosaic as a file; pass four "
            "angle images to RawFrame.of_angles",
        )
    return ((_JPEG,) if is_jpeg or tags.get(_COMPRESSION) in _LOSSY else ()), tags.get(_MAXIMUM) or 0


def _check(tags: Dict[int, Optional[int]], decisive: Iterable[int]) -> None:
    """Refuse pixels that are not those of a mosaic as it was read out."""
    for tag in decisive:
        name, default, allowed = _DECISIVE[tag]
        number = tags.get(tag, default)
        if number not in allowed:
            expected, got = " or ".join(map(str, allowed)), "several numbers" if number is None else number
            raise FrameError(
                "type",
                f"{name} (tag {tag}) must be {expected}, got {got}: save the mosaic as it was read out, not turned, in "
                "gray of 8 or 16 bit",
            )


def _read_page(data: bytes) -> Tuple[Dict[int, Optional[int]], bool]:
    """Return the numbers of the tags of the first page of a TIFF file, None for several, and whether more follow."""
    order = "<" if data[:2] == b"II" else ">"
    (start,) = struct.unpack_from(f"{order}I", data, 4)
    (count,) = struct.unpack_from(f"{order}H", data, start)
    end = start + 2 + 12 * count
    tags: Dict[int, Optional[int]] = {}
    for at in range(start + 2, end, 12):
        tag, kind, number = struct.unpack_from(f"{order}HHI", data, at)
        is_one = number == 1 and kind in _LAYOUTS
        tags[tag] = struct.unpack_from(order + _LAYOUTS[kind], data, at + 8)[0] if is_one else None
    return tags, struct.unpack_from(f"{order}I", data, end) != (0,)
