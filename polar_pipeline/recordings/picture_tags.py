"""Statements of PNG, TIFF and JPEG files about their pixels, which OpenCV applies in part, or not at all."""

from __future__ import annotations

import re
import struct
from math import prod
from typing import Dict, Iterable, NamedTuple, Optional, Tuple

from polar_pipeline.sensor.frames import FrameError, FrameWarning

_JPEG = FrameWarning(
    "jpeg",
    "JPEG destroys the polarization of a mosaic, as it mixes neighboring pixels: save PNG or TIFF; record the raw "
    "topic, or image_transport's zstd or png, and make recordings smaller by 'polar-pipeline compress'",
)
_WIDTH, _HEIGHT, _COMPRESSION, _ORIENTATION, _SAMPLES, _MAXIMUM = 256, 257, 259, 274, 277, 281
#: Tags that decide what pixels are: tag -> (name, number without the tag, numbers that are read).
_DECISIVE = {
    258: ("bits", 1, (8, 16, 32, 64)),
    262: ("photometric interpretation", 1, (1, 2)),
    266: ("fill order", 1, (1,)),
    _ORIENTATION: ("orientation", 1, (1,)),
    254: ("kind of page, a preview or mask", 0, (0, 2)),
    _SAMPLES: ("samples per pixel", 1, (1, 3)),  # OpenCV reads one of four, or multiplies three by the fourth
    339: ("sample format", 1, (1, 3, 4)),
}
#: Types of numbers -> their layout for `struct`.
_LAYOUTS = {1: "B", 3: "H", 4: "I"}
#: Channels of a pixel, each of which has numbers of its own, and pages of a file, at most.
_MAX_CHANNELS, _MAX_PAGES = 4, 100_000
#: Compressions that lose details: JPEG in two forms, JPEG 2000, and lossy DNG.
_LOSSY = (6, 7, 34712, 34892)
#: Descriptions by which ImageJ and tifffile state pictures behind the first page without pages of their own.
_STACK = re.compile(rb'ImageJ=[^\0]{0,200}?\nimages=(?!1\n)|\{"shape": \[([0-9, ]+)\]')
#: How TIFF files begin, and Exif data in PNG and JPEG, which are built like them.
_TIFF_MAGICS = (b"II*\0", b"MM\0*")


class Tags(NamedTuple):
    """What a file states: warnings about it, its largest number (0 if it does not say), and its number of pictures."""

    warnings: Tuple[FrameWarning, ...] = ()
    maximum: int = 0
    pages: int = 1


def read_tags(data: bytes) -> Tags:
    """Read the tags of a PNG, TIFF, BMP or JPEG file.

    Raises:
        FrameError: The file states pixels that are not those of a mosaic or angle image as it was read out, or several
            pictures of which OpenCV would read the first (cause `type`).
        struct.error: The file is damaged.
    """
    is_jpeg = data[:2] == b"\xff\xd8"
    pages = 1
    if data[:4] in _TIFF_MAGICS:
        tags, place = _read_page(data, _first_page(data))
        _check(tags, _DECISIVE)
        while place:
            more, place = _read_page(data, place)
            _check(more, _DECISIVE)
            pages += 1
            if pages > _MAX_PAGES:
                raise FrameError("type", f"more than {_MAX_PAGES} pages in a file")
        has_hidden = pages == 1 and _has_stack(data, tags)
    else:
        exif = data.partition(b"Exif\0\0" if is_jpeg else b"eXIf")[2]
        _check(_read_page(exif, _first_page(exif))[0] if exif[:4] in _TIFF_MAGICS else {}, (_ORIENTATION,))
        tags, has_hidden = {}, not is_jpeg and b"acTL" in data[: data.find(b"IDAT")]  # of an animation
    if has_hidden:
        raise FrameError(
            "type",
            "a file of several pictures, of which OpenCV would read the first: save them as pages of a TIFF file, or "
            "each as a file",
        )
    is_lossy = is_jpeg or tags.get(_COMPRESSION) in _LOSSY
    return Tags((_JPEG,) if is_lossy else (), tags.get(_MAXIMUM) or 0, pages)


def _has_stack(data: bytes, tags: Dict[int, Optional[int]]) -> bool:
    """Return whether a TIFF file of one page describes more pixels than those of the page."""
    described = _STACK.search(data)
    if described is None or described.group(1) is None:
        return described is not None
    pixels = prod(int(size) for size in described.group(1).split(b",") if size.strip())
    return pixels != prod(tags.get(tag) or 1 for tag in (_WIDTH, _HEIGHT, _SAMPLES))


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
                "gray of 8 or 16 bit; four angle images as pages",
            )


def _first_page(data: bytes) -> int:
    """Return the offset of the first page of a TIFF file."""
    place: int = struct.unpack_from(f"{'<' if data[:2] == b'II' else '>'}I", data, 4)[0]
    return place


def _read_page(data: bytes, start: int) -> Tuple[Dict[int, Optional[int]], int]:
    """Return the numbers of the tags of a page of a TIFF file, None for different ones, and the offset of the next."""
    order = "<" if data[:2] == b"II" else ">"
    (count,) = struct.unpack_from(f"{order}H", data, start)
    end = start + 2 + 12 * count
    tags: Dict[int, Optional[int]] = {}
    for at in range(start + 2, end, 12):
        tag, kind, number = struct.unpack_from(f"{order}HHI", data, at)
        numbers: Tuple[int, ...] = ()
        if kind in _LAYOUTS and 1 <= number <= _MAX_CHANNELS:
            layout = f"{order}{number}{_LAYOUTS[kind]}"
            is_inside = struct.calcsize(layout) <= 4
            numbers = struct.unpack_from(
                layout, data, at + 8 if is_inside else struct.unpack_from(f"{order}I", data, at + 8)[0]
            )
        tags[tag] = numbers[0] if len(set(numbers)) == 1 else None  # one number for all channels
    return tags, int(struct.unpack_from(f"{order}I", data, end)[0])
