"""Pixels in files: pictures, TIFF with pages, arrays of NumPy and MATLAB, files without a header, lossless video.

What a picture states about its pixels is read by `picture_tags`. It is applied here, or the file is refused.
"""

from __future__ import annotations

import io
import re
import struct
import sys
import zlib
from contextlib import suppress
from dataclasses import replace
from functools import cached_property, partial
from math import prod
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Tuple, Union

import cv2
import numpy as np

from polar_pipeline._util.documents import regular_status
from polar_pipeline._util.errors import errors_as
from polar_pipeline._util.imports import importing
from polar_pipeline._util.text import described, numbered, printable, quoted
from polar_pipeline.recordings.angle_files import (
    ARCHIVES,
    ARRAYS,
    RAW,
    VIDEOS,
    FrameFiles,
    angles_of_names,
    places_of_angles,
)
from polar_pipeline.recordings.contents import (
    ENDINGS,
    Frames,
    Pixels,
    Stated,
    has_lattice,
    is_smooth,
    refuse_three,
    split_frames,
    stacked_angles,
    to_message,
    without_plain_channels,
)
from polar_pipeline.recordings.limits import SourceError, check_size
from polar_pipeline.recordings.messages import Cdr, ImageMessage
from polar_pipeline.recordings.picture_tags import TIFF_MAGICS, read_tags
from polar_pipeline.sensor.encodings import get_format
from polar_pipeline.sensor.frames import (
    MIN_SIDE,
    SIXTEEN_BITS,
    FrameError,
    FrameWarning,
    full_scale_of_bits,
    used_bits,
)
from polar_pipeline.sensor.mosaic import ANGLES

#: How PNG, TIFF, binary PGM, JPEG and BMP files begin. OpenCV reads other formats too, by libraries that are rarely
#: checked.
_MAGICS = (b"\x89PNG", *TIFF_MAGICS, b"P5", b"\xff\xd8", b"BM")
#: Header of a PGM file: width, height and maxval, between them white space and comments.
_PGM = re.compile(
    rb"P5%b([1-9][0-9]{0,8})%b([1-9][0-9]{0,8})%b([0-9]{1,9})(?:\r\n|\s)" % ((rb"(?:\s|#[^\n]*\n)+",) * 3)
)
#: Codecs of video that lose nothing, as OpenCV names them, and pixel formats of one channel of 8 bit.
_LOSSLESS, _GRAY = ("ffv1", "hfyu", "ffvh", "dib ", "y800", "grey", "rawv", "\0\0\0\0"), ("y800", "grey", "y8  ")
#: `cv2.CAP_PROP_ORIENTATION_META`, which OpenCV before 4.5 does not name; it does not turn frames either.
_ORIENTATION = 48
#: Types of elements in MAT files: compressed ones, arrays, flags of arrays, and those of numbers or text.
_COMPRESSED, _MATRIX, _FLAGS, _PLAIN = 15, 14, 6, (*range(1, 8), 9, 12, 13, 16, 17, 18)
#: Classes of arrays of numbers or text: their numbers in MAT files, and their names in SciPy.
_CODES = (4, *range(6, 16))
_CLASSES = re.compile("char|double|single|logical|u?int(8|16|32|64)")
#: Classes whose numbers MATLAB stores as integers where they are whole -> their types.
_STORED_AS_INTEGERS = {"double": np.float64, "single": np.float32, "logical": np.bool_}
#: Names of arrays that state the angles of planes, and the significant bits of pixels.
_ANGLES, _BIT_DEPTH = ("angles", "angle"), ("bit_depth",)
#: Numbers of an array that states something about pixels, at most.
_MAX_STATED = 64
#: The format of a file without a header.
_RAW_FORMAT = re.compile(r"([1-9][0-9]{0,4})[xX]([1-9][0-9]{0,4}):(\w+)")


class FrameSource:
    """The frames in a file, or in four files of angle images.

    Args:
        files: The files.
        stated: How to read what they do not state.
        max_bytes: Largest size of a file that is read at once, and of a frame.
        has_angles: Whether there are angles in the names of files that can be angle images by their names alone; None
            for other files.

    Attributes:
        name: Name of the frame, or of the stack of frames.
        path: The first file.
    """

    def __init__(self, files: FrameFiles, stated: Stated, max_bytes: int, has_angles: Optional[bool] = None) -> None:
        self._paths, self.name, self.path = files.files, files.name, files.files[0]
        self._stated, self._max_bytes, self._has_angles = stated, max_bytes, has_angles

    def __len__(self) -> int:
        return self._count

    @cached_property
    def _count(self) -> int:
        """Number of frames; 1 for a file that cannot be read, whose frame says why."""
        path = self._paths[0]
        try:
            if self._stated.raw:
                return path.stat().st_size // self._raw_frame()[3]
            if path.suffix.lower() in VIDEOS:
                return max(1, int(_open_video(path).get(cv2.CAP_PROP_FRAME_COUNT)))
            if path.suffix.lower() not in ARRAYS and (not _is_tiff(path) or read_tags(self._bytes(path)).pages == 1):
                return 1
            if len(self._paths) > 1 and self._pixels(path).array.ndim == 2:
                return 1
            return len(self._load().array)
        except Exception:  # noqa: BLE001 - reported with the frame
            return 1

    def messages(self) -> Iterator[Union[ImageMessage, FrameError]]:
        """Yield each frame as an `ImageMessage`, or the `FrameError` that says why it cannot be read."""
        try:
            yield from self._messages()
        except FrameError as err:
            yield FrameError(err.cause, f"{self._label}: {err}")
        except (ImportError, MemoryError):
            raise
        except Exception as err:  # noqa: BLE001 - what a damaged NPY file raises is not documented, for example
            yield FrameError("file", f"{self._label} cannot be read: {described(err)}")

    @property
    def _label(self) -> str:
        return ", ".join(printable(str(path)) for path in self._paths)

    def _messages(self) -> Iterator[ImageMessage]:
        path = self._paths[0]
        if len(self._paths) > 1 and path.suffix.lower() in VIDEOS:
            text = "four videos of angle images are not read as one: save them as TIFF or NPY"
            raise FrameError("type", f"{text}; if they are mosaics, say --content mosaics")
        if self._stated.raw:
            yield from self._raw_messages()
        elif path.suffix.lower() in VIDEOS:
            yield from self._video_messages()
        else:
            frames = self._load()
            count = len(frames.array)
            for k in range(count):
                name = self.name if count == 1 else numbered(self.name, k, count)
                yield replace(to_message(frames, k, self._max_bytes), frame_id=name)

    def _load(self) -> Frames:
        if len(self._paths) == 1:
            frames = split_frames(self._pixels(self._paths[0]), self._stated)
            first, is_auto = frames.array[0], self._stated.content == "auto"
            is_doubtful = self._has_angles is not None and is_auto and frames.content == "mosaics"
            # noise hides that neighbors are alike; names that only count are those of dark frames too
            if is_doubtful and (self._has_angles or is_smooth(first)) and not has_lattice(first):
                raise FrameError(
                    "type",
                    "can be a mosaic (--content mosaics), or one of several angle images by the names of the files, as "
                    "neighboring pixels do not differ as those of a mosaic: name four of these by a pattern such as "
                    "'name_{a,b,c,d}.png'",
                )
            return frames
        images = [self._pixels(path) for path in self._paths]
        arrays = [image.array for image in images]
        if self._has_angles is not None and self._stated.content == "auto" and all(map(_is_mosaic, arrays)):
            raise FrameError(
                "type",
                "can be four angle images (--content angles; of a color sensor with --sensor), as their names say, or "
                "four mosaics (--content mosaics), as neighboring pixels differ: say which",
            )
        stated = [image.angles for image in images]
        angles = tuple(row[0] for row in stated) if all(len(row) == 1 for row in stated) else ()
        frames = stacked_angles(arrays, self._stated, angles, all(image.is_paged for image in images))
        maxima = {image.maximum for image in images}
        if len(maxima) > 1:
            raise FrameError("type", f"angle images of one frame state different full scales: {sorted(maxima)}")
        warnings = dict.fromkeys(row for image in images for row in image.warnings)
        return frames._replace(maximum=maxima.pop(), warnings=(*warnings, *frames.warnings))

    def _bytes(self, path: Path) -> bytes:
        check_size("a file", regular_status(path).st_size, self._max_bytes)
        return path.read_bytes()

    def _pixels(self, path: Path) -> Pixels:
        if str(path) == "-":
            return decode_pixels(sys.stdin.buffer.read(self._max_bytes + 1), self._max_bytes)
        suffix = path.suffix.lower()
        if self._stated.array and suffix not in ARCHIVES:
            raise FrameError("file", "--array names an array of an NPZ or MAT file, and this file is neither")
        if suffix in RAW:
            raise FrameError("file", "a file without a header: say its format, such as --raw 2448x2048:Mono12p")
        if suffix == ".npy":
            size = regular_status(path).st_size
            array: Any = np.load(str(path), mmap_mode="r", allow_pickle=False)  # `np.load` allocates what is stated
            behind = size - array.offset - array.nbytes
            if behind:
                raise FrameError(
                    "file", f"{behind} bytes behind the array, as of a second one: save one array in a file"
                )
            return Pixels(array)
        if suffix in ARCHIVES:
            return _from_archive(path, self._stated.array, self._max_bytes)
        return decode_pixels(self._bytes(path), self._max_bytes, path)

    def _raw_frame(self) -> Tuple[str, int, int, int]:
        """Return encoding, height, width and bytes of a frame without a header."""
        match = _RAW_FORMAT.fullmatch(self._stated.raw)
        if match is None:
            raise FrameError("file", f"a raw format is written 2448x2048:Mono12p, got {quoted(self._stated.raw)}")
        width, height, encoding = int(match.group(1)), int(match.group(2)), match.group(3)
        return encoding, height, width, height * get_format(encoding).row_bytes(width)

    def _raw_messages(self) -> Iterator[ImageMessage]:
        path = self._paths[0]
        encoding, height, width, size = self._raw_frame()
        total = regular_status(path).st_size
        if total == 0 or total % size:
            raise FrameError(
                "size", f"{total} bytes are not a number of frames of {width}x{height} {encoding}, {size} bytes each"
            )
        check_size("a frame", size, self._max_bytes)
        data = np.memmap(str(path), np.uint8, "r")
        for k in range(total // size):
            name = self.name if total == size else numbered(self.name, k)
            pixels = data[k * size : (k + 1) * size]
            yield ImageMessage(0, name, height, width, encoding, False, size // height, pixels)

    def _video_messages(self) -> Iterator[ImageMessage]:
        video, stated, k = _open_video(self._paths[0]), self._stated, 0
        while True:
            is_frame, image = video.read()
            if not is_frame:
                break
            frames = split_frames(Pixels(image), stated)
            stated = replace(stated, content=frames.content)  # of the first frame
            yield replace(to_message(frames, 0, self._max_bytes), frame_id=numbered(self.name, k))
            k += 1
        count = int(video.get(cv2.CAP_PROP_FRAME_COUNT))
        if not k or k < count:
            raise FrameError("file", f"a damaged video: OpenCV decodes {k} of {count} frames")


def _is_tiff(path: Path) -> bool:
    """Return whether a file begins as a TIFF file, which may have another suffix."""
    regular_status(path)  # a pipe would wait for a writer
    with path.open("rb") as stream:
        return stream.read(4) in TIFF_MAGICS


def _is_mosaic(image: np.ndarray) -> bool:
    image = without_plain_channels(image)
    return image.ndim == 2 and min(image.shape) >= MIN_SIDE and has_lattice(image)


def _open_video(path: Path) -> Any:
    """Open a lossless video of 8 bit in gray.

    Raises:
        FrameError: OpenCV cannot read it (cause `file`), or it is compressed with losses, has colors or is turned
            (`type`).
    """
    video = cv2.VideoCapture(str(path.absolute()))  # FFmpeg takes a relative name with a colon for a protocol
    if not video.isOpened():
        raise FrameError("file", "a video that OpenCV cannot read")
    turn = video.get(_ORIENTATION)
    if turn:
        raise FrameError(
            "type", f"a video that is to be turned by {turn:g} degrees: save the mosaic as it was read out"
        )
    codec, pixels = (_code(video.get(name)) for name in (cv2.CAP_PROP_FOURCC, cv2.CAP_PROP_CODEC_PIXEL_FORMAT))
    if codec not in _LOSSLESS or pixels not in _GRAY:
        raise FrameError(
            "type",
            f"a video of raw mosaics must be lossless (FFV1) and gray of 8 bit, got {printable(codec)} of "
            f"{printable(pixels) or 'unknown pixels'}: losses destroy the polarization",
        )
    return video


def _code(number: float) -> str:
    return int(number).to_bytes(4, "little", signed=False).decode("latin-1").lower() if number >= 0 else ""


def _from_archive(path: Path, name: str, max_bytes: int) -> Pixels:
    """Read an array of an NPZ or MAT file: the named one, the only one with pixels, or four named by angles.

    An array `angles` of four numbers states their order, a number `bit_depth` the significant bits.

    Raises:
        FrameError: It is not clear which (cause `file`), or it is too large (`size`).
    """
    check_size("a file", regular_status(path).st_size, max_bytes)
    wanted = [name, *_ANGLES, *_BIT_DEPTH] if name else None  # None: all
    if path.suffix.lower() == ".mat":
        arrays = _mat_arrays(path.read_bytes(), wanted, max_bytes)
    else:
        loaded = np.load(str(path), mmap_mode="r", allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            raise FrameError("file", "an NPY file that is named .npz: name it .npy")
        with loaded as archive:
            keys = [key for key in archive.files if wanted is None or key in wanted]
            arrays = {key: archive[key] for key in keys if _has_numbers(archive, key, max_bytes)}
    rows = {key: row for key, row in arrays.items() if isinstance(row, np.ndarray) and not key.startswith("__")}
    images = {key: row for key, row in rows.items() if row.ndim >= 2 and row.size > 64 and row.dtype.kind in "iufb"}
    angles, bits = (_stated_numbers(rows, names) for names in (_ANGLES, _BIT_DEPTH))
    bit_depth = bits[0] if len(bits) == 1 else 0
    if angles and all(0 <= angle <= np.pi for angle in angles) and max(angles) > 1:  # radians
        angles = [float(angle) for angle in np.rint(10 * np.degrees(angles)) / 10]
    if len(angles) != 1 and len(angles) % len(ANGLES):  # not one for each plane
        angles = []
    if name and name not in images:
        raise FrameError("file", f"no array of pixels is named {quoted(name)}: leave out --array for a list")
    if name or len(images) == 1:
        array = np.asarray(images[name] if name else next(iter(images.values())))
        return Pixels(array, _largest(bit_depth, array), angles=tuple(angles))
    named = _named_angles(images)
    if named is not None:
        return Pixels(named, _largest(bit_depth, named), angles=ANGLES)
    if not images:
        kinds = ", ".join(f"{printable(key)} ({row.dtype} {row.shape})" for key, row in rows.items()) or "nothing"
        raise FrameError("file", f"it has no array of pixels as numbers (H, W) or more, but {kinds}: save them as one")
    listed = ", ".join(f"{printable(key)} {row.shape}" for key, row in images.items())
    raise FrameError("file", f"which array is not clear, it has {listed}: say which by --array NAME, or save one array")


def _mat_arrays(data: bytes, names: Optional[List[str]], max_bytes: int) -> Dict[str, Any]:
    """Return the arrays of numbers or text in a MAT file, all or those of some names; and None for other arrays.

    Raises:
        FrameError: The file has version 7.3 or is damaged (cause `file`), or an array is too large (`size`).
    """
    with importing():
        from scipy.io import loadmat, whosmat
    is_version_5 = 0 not in data[:4] and data[124 + (data[126:127] == b"I")] == 1
    if is_version_5:
        _check_mat(memoryview(data), max_bytes)
    try:
        rows = [row for row in whosmat(io.BytesIO(data)) if names is None or row[0] in names]
    except NotImplementedError as err:
        raise FrameError("file", "a MAT file of version 7.3 is not read: save it with -v7, or as NPY") from err
    plain = [name for name, _, kind in rows if _CLASSES.fullmatch(kind)]
    if not is_version_5 and any(prod(shape) > len(data) for name, shape, _ in rows if name in plain):
        raise FrameError("file", "a damaged MAT file: it is smaller than its arrays")
    arrays = loadmat(io.BytesIO(data), variable_names=plain) if plain else {}
    for name, _, kind in rows:
        array = arrays.setdefault(name, np.array(None))
        if is_version_5 and kind in _STORED_AS_INTEGERS and array.dtype.kind in "iu":
            arrays[name] = array.astype(_STORED_AS_INTEGERS[kind])
    return arrays


def _check_mat(data: memoryview, max_bytes: int) -> None:
    """Refuse unknown types of elements in the arrays of a MAT file, by which SciPy would end the process."""
    order = "<" if bytes(data[126:128]) == b"IM" else ">"
    for stored, content in _mat_elements(data[128:], order):
        kind, body = stored, content
        if kind == _COMPRESSED:
            unpacked = memoryview(zlib.decompressobj().decompress(content, max_bytes + 1))
            check_size("an array", len(unpacked), max_bytes)
            kind, body = next(_mat_elements(unpacked, order))
        parts = list(_mat_elements(body, order))
        kinds = [part[0] for part in parts]
        if kind != _MATRIX or kinds[:1] != [_FLAGS] or len(parts[0][1]) != 8:
            raise FrameError("file", "a damaged MAT file: it has elements that are not arrays")
        (flags,) = struct.unpack_from(f"{order}I", parts[0][1])
        is_complex = flags >> 11 & 1
        if flags & 0xFF in _CODES and (len(parts) < 4 + is_complex or not set(kinds).issubset(_PLAIN)):
            raise FrameError("file", f"a damaged MAT file: an array has elements of the types {kinds[:8]}")


def _mat_elements(data: memoryview, order: str) -> Iterator[Tuple[int, memoryview]]:
    """Yield the elements in a part of a MAT file, by their types."""
    at = 0
    while at < len(data):
        kind, size = struct.unpack_from(f"{order}II", data, at)
        start, end = at + 8, at + 8 + size
        if kind >> 16:  # up to four bytes are stored in place of the size
            kind, size = kind & 0xFFFF, kind >> 16
            start, end = at + 4, at + 4 + size
        if end > len(data):
            raise FrameError("file", f"a damaged MAT file: an element of {size} bytes is not complete")
        yield kind, data[start:end]
        at = end + (-end % 8 if kind != _COMPRESSED else 0)


def _has_numbers(archive: Any, key: str, max_bytes: int) -> bool:
    """Return whether an array of an NPZ file holds numbers, without decompressing it.

    Raises:
        FrameError: Its images are larger than the limit (cause `size`).
    """
    if f"{key}.npy" not in archive.zip.namelist():
        return False
    with archive.zip.open(f"{key}.npy") as stream:
        version = np.lib.format.read_magic(stream)
        read_header = getattr(np.lib.format, f"read_array_header_{version[0]}_0", None)
        if read_header is None:  # version 3 is for names of fields
            return False
        shape, _, dtype = read_header(stream)
    check_size("an image", int(np.prod(sorted(shape)[-2:], dtype=object)) * dtype.itemsize, max_bytes)
    return not dtype.hasobject


def _stated_numbers(arrays: Dict[str, np.ndarray], names: Tuple[str, ...]) -> List[float]:
    """Return the few numbers of the first array of some names; [] if there is none."""
    named = (arrays[name] for name in names if name in arrays)
    row = next((each for each in named if each.dtype.kind in "iufUS" and 0 < each.size <= _MAX_STATED), None)
    with suppress(ValueError):  # a text that is no number
        return [] if row is None else row.ravel().astype(float).tolist()
    return []


def _largest(bits: float, array: np.ndarray, is_high: bool = False) -> int:
    """Return the largest number of integers with a stated number of significant bits; 0 for the largest of their type.

    They are the low bits, or the high ones of 16. `is_high` says that they should be the latter, as in PNG.

    Raises:
        FrameError: No camera has so many bits (cause `type`).
    """
    if not bits or array.dtype.kind not in "iu" or array.itemsize == 1:
        return 0
    maximum = next((each for each in ENDINGS if each.bit_length() == bits), 0)
    if not maximum:
        listed = ", ".join(str(each.bit_length()) for each in ENDINGS)
        raise FrameError("type", f"it states {bits:g} significant bits, which must be one of {listed}")
    used, unit = int(np.bitwise_or.reduce(array, axis=None)), (SIXTEEN_BITS + 1) // (maximum + 1)
    if is_high and (used > maximum or used % unit == 0):
        return 0
    if used > maximum and used % unit:
        raise FrameError("type", f"it states {bits:g} significant bits, and its numbers use the bits {used:#x}")
    return maximum if used <= maximum else 0


def _named_angles(images: Dict[str, np.ndarray]) -> Optional[np.ndarray]:
    """Stack four arrays whose names differ in the angles 0, 45, 90 and 135, as (4, ...) in this order."""
    rows = list(images.values())
    in_order = [rows[place] for place in places_of_angles(list(images))]
    if len({(row.shape, row.dtype) for row in in_order}) != 1:
        return None
    refuse_three(in_order[0])
    return np.stack(in_order)


# --------------------------------------------------------------------------------------------------------- pictures


def decode_pixels(data: Cdr, max_bytes: int, path: Optional[Path] = None) -> Pixels:
    """Decode the pixels of a PNG, TIFF, PGM, JPEG or BMP file; colors are red, green, blue.

    OpenCV decodes up to 2^30 pixels before the size is compared with `max_bytes`.

    Args:
        data: The bytes of the file.
        max_bytes: Largest size of the pixels.
        path: The file, if it is one: only then several pages are read.

    Raises:
        FrameError: The bytes are not such a picture (cause `file`), states what cannot be applied (`type`), or it is
            too large (`size`).
    """
    data = bytes(data)
    if not data.startswith(_MAGICS):
        raise FrameError(
            "file",
            f"{len(data)} bytes are not a picture: neither PNG, TIFF (not BigTIFF), PGM (binary, P5), BMP nor JPEG",
        )
    try:
        if data[:2] == b"P5":
            return _decode_pgm(data, max_bytes)
        tags = read_tags(data)
        pages: List[np.ndarray] = []
        if tags.pages > 1:
            if path is None:
                raise FrameError("type", f"{tags.pages} pictures in a message, which must hold one")
            pages = list(cv2.imreadmulti(str(path), flags=cv2.IMREAD_UNCHANGED)[1])
            if len(pages) != tags.pages or len({(page.shape, page.dtype) for page in pages}) > 1:
                raise FrameError("type", f"{tags.pages} pages of different sizes or types: the mosaics must be alike")
            pixels: Optional[np.ndarray] = np.stack([_as_rgb(page) for page in pages])
        else:
            picture = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED)
            pixels = None if picture is None else _as_rgb(picture)
        if pixels is None:
            raise FrameError("file", f"{len(data)} bytes are not a picture that OpenCV can read")
    except FrameError:
        raise
    except Exception as err:  # cv2.error, MemoryError, SystemError, struct.error
        raise FrameError("file", f"{len(data)} bytes are not a picture: {described(err)}") from err
    check_size("a picture", pixels.nbytes, max_bytes)
    bits = tags.bits if pixels.dtype == np.uint16 and tags.bits <= 16 else 0
    maximum, warnings = _largest(bits, pixels, data[:4] == b"\x89PNG"), tags.warnings
    stated, is_wide = max(tags.maxima), pixels.dtype == np.uint16
    if len(tags.maxima) > 1 and is_wide and not tags.maxima.isdisjoint(ENDINGS):
        raise FrameError("type", f"pages state different full scales, {sorted(tags.maxima)} (0: none): save them alike")
    if not maximum and is_wide and stated not in (0, *ENDINGS, full_scale_of_bits(used_bits(pixels))):
        text = f"the file states numbers up to {stated}, and full scale is 65535 unless --bit-depth says otherwise"
        warnings = (*warnings, FrameWarning("bits", text))
    elif not maximum and is_wide:
        maximum = stated
    with errors_as(partial(FrameError, "type"), SourceError):
        return Pixels(pixels, maximum, warnings, angles_of_names(tags.names), tags.pages > 1, tags.places)


def _as_rgb(picture: np.ndarray) -> np.ndarray:
    """Return a picture of OpenCV with its colors in the order of the file."""
    if picture.ndim == 2 or picture.shape[2] < 3:
        return picture
    return picture[..., ::-1] if picture.shape[2] == 3 else picture[..., [2, 1, 0, 3]]


def _decode_pgm(data: bytes, max_bytes: int) -> Pixels:
    """Decode a PGM file, whose maxval is full scale; errors are those of `decode_pixels`."""
    head = _PGM.match(data)
    if head is None:
        raise FrameError(
            "file", f"{len(data)} bytes are not a picture: a PGM file begins with P5, width, height and maxval"
        )
    width, height, maximum = map(int, head.groups())
    if maximum not in ENDINGS:
        raise FrameError("type", f"maxval of a PGM file must be {', '.join(map(str, ENDINGS))}, got {maximum}")
    dtype = np.dtype("u1" if maximum < 256 else ">u2")
    size, content = height * width * dtype.itemsize, data[head.end() :]
    check_size("a picture", size, max_bytes)
    if len(content) != size:
        raise FrameError(
            "file",
            f"{width}x{height} pixels of PGM need {size} bytes behind the header, got {len(content)}; only single "
            "pictures are read",
        )
    return Pixels(np.frombuffer(content, dtype).reshape(height, width), maximum)
