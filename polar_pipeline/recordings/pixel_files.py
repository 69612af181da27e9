"""Pixels in files: pictures, TIFF with pages, arrays of NumPy and MATLAB, files without a header, lossless video.

What a picture states about its pixels is read by `picture_tags`. It is applied here, or the file is refused.
"""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Tuple, Union

import cv2
import numpy as np

from polar_pipeline._util.documents import regular_status
from polar_pipeline._util.imports import importing
from polar_pipeline._util.text import numbered, printable, quoted
from polar_pipeline.recordings.angle_files import ARRAYS, RAW, VIDEOS, FrameFiles
from polar_pipeline.recordings.contents import (
    ENDINGS,
    Frames,
    Pixels,
    Stated,
    has_lattice,
    is_smooth,
    split_frames,
    stacked_angles,
    to_message,
    without_plain_channels,
)
from polar_pipeline.recordings.limits import check_size, described
from polar_pipeline.recordings.messages import Cdr, ImageMessage
from polar_pipeline.recordings.picture_tags import read_tags
from polar_pipeline.sensor.encodings import get_format
from polar_pipeline.sensor.frames import MIN_SIDE, FrameError

#: Suffixes of files that may hold several frames.
STACKS = (".tif", ".tiff", *ARRAYS, *VIDEOS)
#: How PNG, TIFF, binary PGM, JPEG and BMP files begin. OpenCV reads other formats too, by libraries that are rarely
#: checked.
_MAGICS = (b"\x89PNG", b"II*\0", b"MM\0*", b"P5", b"\xff\xd8", b"BM")
#: Header of a PGM file: width, height and maxval, between them white space and comments.
_PGM = re.compile(
    rb"P5%b([1-9][0-9]{0,8})%b([1-9][0-9]{0,8})%b([0-9]{1,9})(?:\r\n|\s)" % ((rb"(?:\s|#[^\n]*\n)+",) * 3)
)
#: Codecs of video that lose nothing, as OpenCV names them, and pixel formats of one channel of 8 bit.
_LOSSLESS, _GRAY = ("ffv1", "hfyu", "ffvh", "dib ", "y800", "grey", "rawv", "\0\0\0\0"), ("y800", "grey", "y8  ")
#: The format of a file without a header.
_RAW_FORMAT = re.compile(r"([1-9][0-9]{0,4})[xX]([1-9][0-9]{0,4}):(\w+)")


class FrameSource:
    """The frames in a file, or in four files of angle images.

    Args:
        files: The files.
        stated: How to read what they do not state.
        max_bytes: Largest size of a file that is read at once, and of a frame.
        is_named: Whether names alone say that files are angle images.

    Attributes:
        name: Name of the frame, or of the stack of frames.
        path: The first file.
    """

    def __init__(self, files: FrameFiles, stated: Stated, max_bytes: int, is_named: bool = False) -> None:
        self._paths, self.name, self.path = files.files, files.name, files.files[0]
        self._stated, self._max_bytes, self._is_named = stated, max_bytes, is_named

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
            if len(self._paths) > 1 or path.suffix.lower() not in STACKS:
                return 1
            if path.suffix.lower() in (".tif", ".tiff") and read_tags(self._bytes(path)).pages == 1:
                return 1
            return len(self._load()[1].array)
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
        if self._stated.raw:
            yield from self._raw_messages()
        elif path.suffix.lower() in VIDEOS:
            yield from self._video_messages()
        else:
            pixels, frames = self._load()
            count = len(frames.array)
            for k in range(count):
                name = self.name if count == 1 else numbered(self.name, k, count)
                yield replace(to_message(frames, k, pixels, self._max_bytes), frame_id=name)

    def _load(self) -> Tuple[Pixels, Frames]:
        if len(self._paths) == 1:
            pixels = self._pixels(self._paths[0])
            frames = split_frames(pixels.array, self._stated)
            is_doubtful = self._is_named and self._stated.content == "auto" and frames.content == "mosaics"
            if is_doubtful and is_smooth(frames.array[0]) and not has_lattice(frames.array[0]):
                raise FrameError(
                    "type",
                    "can be a mosaic (--content mosaics), or one of several angle images by the names of the files, as "
                    "neighboring pixels are alike: name four of these by a pattern such as 'name_{a,b,c,d}.png'",
                )
            return pixels, frames
        images = [self._pixels(path) for path in self._paths]
        arrays = [image.array for image in images]
        if self._is_named and self._stated.content == "auto" and all(map(_is_mosaic, arrays)):
            raise FrameError(
                "type",
                "can be four angle images (--content angles; of a color sensor with --sensor), as their names say, or "
                "four mosaics (--content mosaics), as neighboring pixels differ: say which",
            )
        frames = stacked_angles(arrays, self._stated)
        maxima = {image.maximum for image in images}
        if len(maxima) > 1:
            raise FrameError("type", f"angle images of one frame state different full scales: {sorted(maxima)}")
        warnings = tuple(dict.fromkeys(row for image in images for row in image.warnings))
        return Pixels(frames.array, maxima.pop(), warnings), frames

    def _bytes(self, path: Path) -> bytes:
        check_size("a file", regular_status(path).st_size, self._max_bytes)
        return path.read_bytes()

    def _pixels(self, path: Path) -> Pixels:
        if str(path) == "-":
            return decode_pixels(sys.stdin.buffer.read(self._max_bytes + 1), self._max_bytes)
        suffix = path.suffix.lower()
        if suffix in RAW:
            raise FrameError("file", "a file without a header: say its format, such as --raw 2448x2048:Mono12p")
        if suffix == ".npy":
            regular_status(path)
            return Pixels(np.load(str(path), mmap_mode="r", allow_pickle=False))  # `np.load` allocates what is stated
        if suffix in ARRAYS:
            return Pixels(_from_archive(path, self._stated.array, self._max_bytes))
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
            frames = split_frames(image, stated)
            stated = replace(stated, content=frames.content)  # of the first frame
            yield replace(to_message(frames, 0, Pixels(image), self._max_bytes), frame_id=numbered(self.name, k))
            k += 1
        count = int(video.get(cv2.CAP_PROP_FRAME_COUNT))
        if not k or k < count:
            raise FrameError("file", f"a damaged video: OpenCV decodes {k} of {count} frames")


def _is_mosaic(image: np.ndarray) -> bool:
    image = without_plain_channels(image)
    return image.ndim == 2 and min(image.shape) >= MIN_SIDE and has_lattice(image)


def _open_video(path: Path) -> Any:
    """Open a lossless video of 8 bit in gray.

    Raises:
        FrameError: OpenCV cannot read it (cause `file`), or it is compressed with losses or has colors (`type`).
    """
    video = cv2.VideoCapture(str(path))
    if not video.isOpened():
        raise FrameError("file", "a video that OpenCV cannot read")
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


def _from_archive(path: Path, name: str, max_bytes: int) -> np.ndarray:
    """Read an array of an NPZ or MAT file: the named one, the only one with pixels, or four named by angles.

    Raises:
        FrameError: It is not clear which (cause `file`).
    """
    check_size("a file", regular_status(path).st_size, max_bytes)
    if path.suffix.lower() == ".mat":
        with importing():
            from scipy.io import loadmat
        try:
            arrays: Dict[str, Any] = loadmat(str(path), variable_names=[name] if name else None)
        except NotImplementedError as err:
            raise FrameError("file", "a MAT file of version 7.3 is not read: save it with -v7, or as NPY") from err
    else:
        with np.load(str(path), allow_pickle=False) as archive:
            arrays = {key: archive[key] for key in archive.files if name in ("", key)}
    images = {
        key: row for key, row in arrays.items() if isinstance(row, np.ndarray) and row.ndim >= 2 and row.size > 64
    }
    if name:
        if name not in images:
            raise FrameError("file", f"no array of pixels is named {quoted(name)}: leave out --array for a list")
        return np.asarray(images[name])
    if len(images) == 1:
        return np.asarray(next(iter(images.values())))
    angles = _named_angles(images)
    if angles is not None:
        return angles
    listed = ", ".join(f"{printable(key)} {row.shape}" for key, row in images.items()) or "no arrays of pixels"
    raise FrameError("file", f"which array is not clear, it has {listed}: say which by --array NAME")


def _named_angles(images: Dict[str, np.ndarray]) -> Optional[np.ndarray]:
    """Stack four arrays whose names end in 0, 45, 90 and 135, as (4, ...)."""
    named: Dict[int, np.ndarray] = {}
    for key, row in images.items():
        number = re.search(r"(?<![0-9])0*(0|45|90|135)(?:deg|d)?$", key)
        if number is None:
            return None
        named[int(number.group(1))] = row
    is_one_of_each = sorted(named) == [0, 45, 90, 135] and len(images) == len(named)
    if not is_one_of_each or len({(row.shape, row.dtype) for row in named.values()}) > 1:
        return None
    return np.stack([named[angle] for angle in sorted(named)])


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
    return Pixels(pixels, tags.maximum if pixels.dtype == np.uint16 else 0, tags.warnings)


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
