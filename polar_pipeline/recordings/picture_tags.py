"""Statements of PNG, TIFF and JPEG files about their pixels, which OpenCV applies in part, or not at all."""

from __future__ import annotations

import itertools
import re
import struct
from math import prod
from typing import Dict, FrozenSet, Iterable, List, NamedTuple, Optional, Sequence, Set, Tuple, Union

import numpy as np

from polar_pipeline.sensor.frames import FrameError, FrameWarning
from polar_pipeline.sensor.mosaic import ANGLES

_JPEG = FrameWarning(
    "jpeg",
    "JPEG destroys the polarization of a mosaic, as it mixes neighboring pixels: save PNG or TIFF; record the raw "
    "topic, or image_transport's zstd or png, and make recordings smaller by 'polar-pipeline compress'",
)
_WIDTH, _HEIGHT, _BITS, _COMPRESSION, _ORIENTATION, _SAMPLES, _PLANES = 256, 257, 258, 259, 274, 277, 284
#: Tags that state the largest number: MaxSampleValue, and WhiteLevel of DNG.
_MAXIMA = (281, 50717)
#: Tags by which DNG maps the numbers of a sensor to light: LinearizationTable, and BlackLevel with those of columns and
#: rows.
_LEVELS = (50712, 50714, 50715, 50716)
_DESCRIPTION, _PAGE_NAME, _PAGE_NUMBER = 270, 285, 297
#: Tags of ImageJ: bytes of its header and of each of its values, and these.
_IMAGEJ_SIZES, _IMAGEJ_VALUES = 50838, 50839
#: Names of channels, and significant bits, in the description of an OME-TIFF.
_OME_CHANNEL = re.compile(r'<(?:\w+:)?Channel\b[^<>]*\bName="([^"]*)"')
_OME_ORDER, _OME_SIZE = re.compile(r'\bDimensionOrder="XY([CZT]{3})"'), re.compile(r'\bSize([CZT])="([0-9]{1,6})"')
_OME_BITS = re.compile(r'\bSignificantBits="([0-9]{1,2})"')
#: Tags that decide what pixels are: tag -> (name, number without the tag, numbers that are read).
_DECISIVE = {
    _BITS: ("bits", 1, (8, 16, 32, 64)),
    262: ("photometric interpretation", 1, (1, 2)),
    266: ("fill order", 1, (1,)),
    _ORIENTATION: ("orientation", 1, (1,)),
    254: ("kind of page, a preview or mask", 0, (0, 2)),
    _SAMPLES: ("samples per pixel", 1, (1, 3)),  # OpenCV reads one of four, or multiplies three by the fourth
    # OpenCV returns black pixels, and no error, for a compression that it does not know, such as PNG in TIFF
    _COMPRESSION: ("compression", 1, (1, 5, 6, 7, 8, 32773, 32946, 34925, 50000)),
    _PLANES: ("planar configuration", 1, (1,)),  # OpenCV mixes the colors of planes of 16 bit
    339: ("sample format", 1, (1, 3, 4)),
    **dict.fromkeys(_LEVELS, ("black level or table of levels", 0, (0,))),
}
#: Type of fractions, which are two numbers each; and types of numbers -> their layout for `struct`.
_FRACTION = 5
_LAYOUTS = {1: "B", 3: "H", 4: "I", _FRACTION: "II"}
#: Channels of a pixel, each of which has numbers of its own, and pages of a file, at most.
_MAX_CHANNELS, _MAX_PAGES = 4, 100_000
#: Bytes of the name of a page that are read, at most.
_MAX_NAME = 256
#: Compressions that lose details: JPEG in two forms.
_LOSSY = (6, 7)
#: Axes of pages in the descriptions of ImageJ and of tifffile.
_IMAGEJ_AXIS = re.compile(r"\n(frames|slices|channels)=([0-9]{1,6})(?=\n)")
_SHAPE = re.compile(r'\{"shape": \[([0-9, ]+)\](?:, "axes": "(\w+)")?')
#: Descriptions by which ImageJ and tifffile state pictures behind the first page without pages of their own.
_STACK = re.compile(rb'ImageJ=[^\0]{0,200}?\nimages=(?!1\n)|\{"shape": \[([0-9, ]+)\]')
_SEVERAL = (
    "a file of several pictures, of which OpenCV would read the first: save them as pages of a TIFF file, or each as a "
    "file"
)
#: How TIFF files begin, and Exif data in PNG and JPEG, which are built like them.
TIFF_MAGICS = (b"II*\0", b"MM\0*")


#: Numbers and texts of a page by tag; () for a tag that is not read.
Numbers = Dict[int, Tuple[int, ...]]
Texts = Dict[int, Union[bytes, memoryview]]


class Tags(NamedTuple):
    """What a file states.

    Attributes:
        warnings: About the file.
        maxima: The largest numbers of a pixel in its pages; 0 of pages that do not say.
        bits: Significant bits of a pixel; 0 if it does not say.
        pages: Number of pictures.
        names: Of the pictures, or of the channels; empty if it does not name them.
        places: The pages in the order of frames of four pages each, if it states axes of several frames; else ().
    """

    warnings: Tuple[FrameWarning, ...] = ()
    maxima: FrozenSet[int] = frozenset({0})
    bits: int = 0
    pages: int = 1
    names: Tuple[str, ...] = ()
    places: Tuple[int, ...] = ()


def read_tags(data: bytes) -> Tags:
    """Read the tags of a PNG, TIFF, BMP or JPEG file.

    Raises:
        FrameError: The file states pixels that are not those of a mosaic or angle image as it was read out, or several
            pictures of which OpenCV would read the first (cause `type`).
        struct.error: The file is damaged.
    """
    is_jpeg = data[:2] == b"\xff\xd8"
    if data[:4] in TIFF_MAGICS:
        return _read_tiff(data)
    chunks = _png_chunks(data) if data[:4] == b"\x89PNG" else {}
    exif = data.partition(b"Exif\0\0")[2] if is_jpeg else chunks.get(b"eXIf", b"")
    if exif[:4] in TIFF_MAGICS:
        _check(_read_page(exif, _first_page(exif))[0], (_ORIENTATION,))
    if b"acTL" in chunks:  # an animation
        raise FrameError("type", _SEVERAL)
    return Tags((_JPEG,) if is_jpeg else (), bits=(chunks.get(b"sBIT") or b"\0")[0])


def _png_chunks(data: bytes) -> Dict[bytes, bytes]:
    """Return the chunks of a PNG file by kind, the first of each."""
    chunks: Dict[bytes, bytes] = {}
    at = 8
    while at + 8 <= len(data):
        size, kind = struct.unpack_from(">I4s", data, at)
        chunks.setdefault(kind, data[at + 8 : at + 8 + size])
        at += 12 + size
    return chunks


def _read_tiff(data: bytes) -> Tags:
    """Read the tags of a TIFF file; errors are those of `read_tags`."""
    place = _first_page(data)
    first, texts, _ = _read_page(data, place)
    names: List[str] = []
    page_numbers: List[int] = []
    places: Set[int] = set()
    maxima: Set[int] = set()
    is_lossy = False
    while place or not names:
        if place in places or len(names) > _MAX_PAGES:
            raise FrameError("type", f"its pages follow each other in a circle, or are more than {_MAX_PAGES}")
        places.add(place)
        numbers, page_texts, place = _read_page(data, place)
        is_plain = _number(numbers, _SAMPLES, 1) == 1 or _number(numbers, _BITS, 1) == 8  # planes are read then
        _check(numbers, (tag for tag in _DECISIVE if not (is_plain and tag == _PLANES)))
        maxima.add(next(filter(None, (_number(numbers, tag, 0) for tag in _MAXIMA)), 0))
        is_lossy = is_lossy or _number(numbers, _COMPRESSION, 1) in _LOSSY
        names.append(_as_text(page_texts.get(_PAGE_NAME, b"")[:_MAX_NAME]))
        page_numbers += numbers.get(_PAGE_NUMBER, ())[:1]
    if len(names) == 1 and _has_stack(data, first):
        raise FrameError("type", _SEVERAL)
    if len(set(page_numbers)) == len(names) and page_numbers != sorted(page_numbers):
        raise FrameError("type", f"its pages have the numbers {page_numbers[:8]}, in another order than in the file")
    description = _as_text(texts.get(_DESCRIPTION, b""))
    bits = _OME_BITS.search(description)
    axes = _axes(description, len(names))
    return Tags(
        (_JPEG,) if is_lossy else (),
        frozenset(maxima),
        int(bits.group(1)) if bits else 0,
        len(names),
        tuple(names if all(names) else _ome_channels(description, axes) or _imagej_labels(data, first, texts)),
        _places(axes),
    )


def _axes(description: str, pages: int) -> Tuple[Tuple[str, int], ...]:
    """Return the axes of pages and their sizes, as OME, ImageJ or tifffile state them; () for another number of pages.

    The last axis changes fastest. Those of tifffile may have no name.
    """
    order, shape = _OME_ORDER.search(description), _SHAPE.match(description)
    if order is not None:
        sizes = dict(_OME_SIZE.findall(description))
        axes = [(axis, int(sizes.get(axis, 1))) for axis in reversed(order.group(1))]
    elif shape is not None:
        numbers = [int(number) for number in shape.group(1).split(",") if number.strip()]
        axes = list(zip(shape.group(2) or "?" * len(numbers), numbers))
        while axes and prod(size for _, size in axes) != pages:  # the last ones are those of a page
            axes.pop()
    else:
        sizes = dict(_IMAGEJ_AXIS.findall(description))
        axes = [(axis[0].upper(), int(sizes.get(axis, 1))) for axis in ("frames", "slices", "channels")]
    return tuple(axes) if prod(size for _, size in axes) == pages else ()


def _places(axes: Tuple[Tuple[str, int], ...]) -> Tuple[int, ...]:
    """Return pages with such axes in the order of frames of four, which are channels or else those of another axis.

    () if there is a single frame, or no axis of four; or if they can be three colors of four angles.
    """
    sizes = [size for _, size in axes]
    is_color = ("C", 3) in axes or (prod(sizes) == 12 and axes[0][0] == "?")
    fours = [((name == "C", place), place) for place, (name, size) in enumerate(axes) if size == len(ANGLES)]
    if not fours or is_color or prod(sizes) == len(ANGLES):
        return ()
    return tuple(np.moveaxis(np.arange(prod(sizes)).reshape(sizes), max(fours)[1], -1).ravel().tolist())


def _ome_channels(description: str, axes: Tuple[Tuple[str, int], ...]) -> List[str]:
    """Return the name of the channel of each page, as the description of an OME-TIFF states them; [] without names."""
    channels, sizes = _OME_CHANNEL.findall(description), dict(axes)
    if sizes.get("C") != len(channels):
        return channels
    inner = prod(size for _, size in axes[[name for name, _ in axes].index("C") + 1 :])
    return [channels[page // inner % len(channels)] for page in range(prod(sizes.values()))]


def _has_stack(data: bytes, tags: Numbers) -> bool:
    """Return whether a TIFF file of one page describes more pixels than those of the page."""
    described = _STACK.search(data)
    if described is None or described.group(1) is None:
        return described is not None
    pixels = prod(int(size) for size in described.group(1).split(b",") if size.strip())
    return pixels != prod(_number(tags, tag, 1) or 1 for tag in (_WIDTH, _HEIGHT, _SAMPLES))


def _check(tags: Numbers, decisive: Iterable[int]) -> None:
    """Refuse pixels that are not those of a mosaic as it was read out."""
    for tag in decisive:
        name, default, allowed = _DECISIVE[tag]
        number = _number(tags, tag, default)
        if number not in allowed:
            expected, got = " or ".join(map(str, allowed)), "several numbers" if number is None else number
            raise FrameError(
                "type",
                f"{name} (tag {tag}) must be {expected}, got {got}: save the mosaic as it was read out, not turned, "
                "with black at 0, in gray of 8 or 16 bit, compressed by Deflate or not; four angle images as pages",
            )


def _number(tags: Numbers, tag: int, default: int) -> Optional[int]:
    """Return the number of a tag, or the default without the tag; None for different numbers of the channels."""
    row = tags.get(tag, (default,))
    return row[0] if len(set(row)) == 1 else None


def _byte_order(data: bytes) -> str:
    """Return the byte order of a TIFF file, as `struct` names it."""
    return "<" if data[:2] == b"II" else ">"


def _first_page(data: bytes) -> int:
    """Return the offset of the first page of a TIFF file."""
    place: int = struct.unpack_from(f"{_byte_order(data)}I", data, 4)[0]
    return place


def _read_page(data: bytes, start: int) -> Tuple[Numbers, Texts, int]:
    """Read a page of a TIFF file: the numbers and the texts of its tags, and the offset of the next page or 0."""
    order = _byte_order(data)
    (count,) = struct.unpack_from(f"{order}H", data, start)
    end = start + 2 + 12 * count
    numbers: Numbers = {}
    texts: Texts = {}
    for at in range(start + 2, end, 12):
        tag, kind, number = struct.unpack_from(f"{order}HHI", data, at)
        layout = f"{order}{number * _LAYOUTS.get(kind, 'B')}"
        limit = _MAX_PAGES if tag == _IMAGEJ_SIZES else _MAX_CHANNELS
        is_text = tag in (_DESCRIPTION, _PAGE_NAME, _IMAGEJ_VALUES)
        if not is_text and not (kind in _LAYOUTS and 1 <= number <= limit):
            numbers[tag] = ()
            continue
        is_inside = struct.calcsize(layout) <= 4
        place = at + 8 if is_inside else struct.unpack_from(f"{order}I", data, at + 8)[0]
        if is_text:
            texts[tag] = memoryview(data)[place : place + number]  # a view: many pages may state one long text
        else:
            row = struct.unpack_from(layout, data, place)
            numbers[tag] = row if kind != _FRACTION else _whole(row)
    return numbers, texts, struct.unpack_from(f"{order}I", data, end)[0]


def _whole(row: Sequence[int]) -> Tuple[int, ...]:
    """Return the fractions of which a row holds numerators and denominators; () if one is not a whole number."""
    pairs = list(zip(row[::2], row[1::2]))
    return tuple(top // low for top, low in pairs) if all(low and top % low == 0 for top, low in pairs) else ()


def _as_text(data: Union[bytes, memoryview]) -> str:
    return bytes(data).partition(b"\0")[0].decode("utf-8", "replace")


def _imagej_labels(data: bytes, numbers: Numbers, texts: Texts) -> Tuple[str, ...]:
    """Return the labels of pages that ImageJ states: a header of kinds and counts, then values of stated sizes."""
    values, sizes, order = texts.get(_IMAGEJ_VALUES, b""), numbers.get(_IMAGEJ_SIZES, ()), _byte_order(data)
    if not sizes:
        return ()
    kinds: List[bytes] = []
    for at in range(4, sizes[0] - 7, 8):
        kind, count = struct.unpack_from(f"{order}4sI", values, at)
        kinds += [kind[::-1] if order == "<" else kind] * min(count, _MAX_PAGES)
    starts = itertools.accumulate(sizes)
    codec = "utf-16-le" if order == "<" else "utf-16-be"
    rows = zip(kinds, starts, sizes[1:])
    return tuple(str(values[start : start + size], codec, "replace") for kind, start, size in rows if kind == b"labl")
