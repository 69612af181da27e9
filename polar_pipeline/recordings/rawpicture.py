"""Raw mosaics in picture files and compressed images, as image messages: read by OpenCV and NumPy.

What a file states about its pixels is read by `picture_tags`. It is applied here, or the file is refused.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Dict, Optional, Tuple

import cv2
import numpy as np

from polar_pipeline._util.documents import regular_status
from polar_pipeline._util.paths import AnyPath, as_path
from polar_pipeline._util.text import printable
from polar_pipeline._util.values import sequence
from polar_pipeline._util.yamlfile import read_yaml
from polar_pipeline.recordings.limits import MAX_BYTES, check_size, described
from polar_pipeline.recordings.messages import Cdr, ImageMessage
from polar_pipeline.recordings.picture_tags import read_tags
from polar_pipeline.sensor.frames import FrameError, FrameWarning
from polar_pipeline.sensor.mosaic import ANGLES

#: Name of the file with the state of the camera, beside captured frames.
CAMERA_FILE = "camera.yaml"
#: How PNG, TIFF, binary PGM and JPEG files begin. OpenCV reads other formats too, by libraries that are rarely checked.
_MAGICS = (b"\x89PNG", b"II*\0", b"MM\0*", b"P5", b"\xff\xd8")
#: Header of a PGM file: width, height and maxval, between them white space and comments.
_PGM = re.compile(
    rb"P5%b([1-9][0-9]{0,8})%b([1-9][0-9]{0,8})%b([0-9]{1,9})(?:\r\n|\s)" % ((rb"(?:\s|#[^\n]*\n)+",) * 3)
)
#: Largest number that a file states -> encoding of its pixels.
_ENCODINGS = {255: "mono8", 1023: "Mono10", 4095: "Mono12", 16383: "Mono14", 65535: "mono16"}


def read_picture(path: AnyPath, max_bytes: int = MAX_BYTES, stamp_ns: int = 0) -> ImageMessage:
    """Read a raw image from a PNG, TIFF, PGM, JPEG or NPY file.

    The file's name without suffix becomes the frame_id. `max_bytes` limits the file and the image.

    Raises:
        FrameError: The file is not a picture (cause `file`), not a raw mosaic (`type`), too large, or not of the size
            that `CAMERA_FILE` beside it states (`size`).
    """
    path = as_path(path)
    try:
        check_size("a file", regular_status(path).st_size, max_bytes)
        is_npy = path.suffix.lower() == ".npy"
        image = _read_npy(path, max_bytes) if is_npy else decode_picture(path.read_bytes(), max_bytes)
        size, stated = (image.width, image.height), _stated_size(path.parent / CAMERA_FILE)
        if stated not in ((), size):  # its region and flips would be wrong
            raise FrameError(
                "size",
                "a picture of {}x{} pixels, and {} beside it states {}x{}".format(*size, CAMERA_FILE, *stated),
            )
        return replace(image, stamp_ns=stamp_ns, frame_id=path.stem)
    except FrameError as err:
        raise FrameError(err.cause, f"{path}: {err}") from err
    except Exception as err:  # what a damaged NPY file raises is not documented; tokenize.TokenError, for example
        raise FrameError("file", f"{path} cannot be read: {described(err)}") from err


def read_camera_file(path: Path) -> Dict[str, object]:
    """Read the fields of the state of a camera from the YAML file beside captured frames.

    They are empty without a file, or if the file has no `pixel_format`.

    Raises:
        ValueError: The file cannot be read; the message names it.
    """
    rows = read_yaml(path) if path.is_file() else None
    if not isinstance(rows, dict) or "pixel_format" not in rows:  # parameters of a node may have this name
        return {}
    return rows


def _stated_size(path: Path) -> Tuple[object, ...]:
    """Return the (width, height) in a file with the state of a camera; () without a file or a size."""
    try:
        return sequence(read_camera_file(path).get("size"), 2)
    except ValueError:  # commands that need the state of the camera say what is wrong
        return ()


def check_not_angle_images(path: Path, max_bytes: int = MAX_BYTES) -> None:
    """Refuse four angle images: pictures whose names differ in one number alone, 0, 45, 90 and 135.

    Files with other numbers at that place too are a sequence of frames, or a session for `calibrate`. A folder is
    checked, or a picture with the other files of its folder.

    Raises:
        FrameError: Four such files have one size (cause `type`).
    """
    is_folder = path.is_dir()
    groups: Dict[Tuple[str, str], Dict[int, Path]] = {}
    for file in (path if is_folder else path.parent).iterdir():
        for number in re.finditer("[0-9]+", file.stem):
            group = groups.setdefault((file.name[: number.start()], file.name[number.end() :]), {})
            group[int(number.group())] = file
    for group in groups.values():
        if set(group) != set(ANGLES) or not (is_folder or path in group.values()):
            continue
        images = [read_picture(file, max_bytes) for file in group.values()]
        if len({(image.width, image.height) for image in images}) == 1:
            names = ", ".join(printable(group[angle].name) for angle in ANGLES)
            raise FrameError(
                "type",
                f"{names} look like four angle images by their names, not like mosaics: stack them for "
                "RawFrame.of_angles (docs/encodings.md), or rename them if they are mosaics",
            )


def _read_npy(path: Path, max_bytes: int) -> ImageMessage:
    """Read the array in an NPY file; it is mapped first, since `np.load` would allocate the size that it states."""
    mapped = np.load(str(path), mmap_mode="r", allow_pickle=False)
    if not isinstance(mapped, np.ndarray):
        raise FrameError("file", "it is an archive, not an NPY file")
    pixels = mapped[..., 0] if mapped.ndim == 3 and mapped.shape[2] == 1 else mapped
    return _as_message(pixels, max_bytes)


def decode_picture(data: Cdr, max_bytes: int = MAX_BYTES) -> ImageMessage:
    """Decode the raw mosaic in the bytes of a PNG, TIFF, PGM or JPEG file, as a message without stamp and frame_id.

    OpenCV decodes up to 2^30 pixels before the size is compared with `max_bytes`.

    Raises:
        FrameError: The bytes are not such a picture (cause `file`), not a raw mosaic (`type`), or too large (`size`).
    """
    data = bytes(data)
    if not data.startswith(_MAGICS):
        raise FrameError(
            "file", f"{len(data)} bytes are not a picture: neither PNG, TIFF (not BigTIFF), PGM (binary, P5) nor JPEG"
        )
    try:
        if data[:2] == b"P5":
            return _decode_pgm(data, max_bytes)
        frame_warnings, maximum = read_tags(data)
        pixels: Optional[np.ndarray] = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED)
        if pixels is None:
            raise FrameError("file", f"{len(data)} bytes are not a picture that OpenCV can read")
    except FrameError:
        raise
    except Exception as err:  # cv2.error, MemoryError, SystemError, struct.error
        raise FrameError("file", f"{len(data)} bytes are not a picture: {described(err)}") from err
    return _as_message(pixels, max_bytes, maximum if pixels.itemsize == 2 else 0, frame_warnings)


def _decode_pgm(data: bytes, max_bytes: int) -> ImageMessage:
    """Decode a PGM file, whose maxval is full scale; errors are those of `decode_picture`."""
    head = _PGM.match(data)
    if head is None:
        raise FrameError(
            "file", f"{len(data)} bytes are not a picture: a PGM file begins with P5, width, height and maxval"
        )
    width, height, maximum = map(int, head.groups())
    if maximum not in _ENCODINGS:
        raise FrameError("type", f"maxval of a PGM file must be {', '.join(map(str, _ENCODINGS))}, got {maximum}")
    dtype = np.dtype("u1" if maximum < 256 else ">u2")
    size, content = height * width * dtype.itemsize, data[head.end() :]
    check_size("a picture", size, max_bytes)
    if len(content) != size:
        raise FrameError(
            "file",
            f"{width}x{height} pixels of PGM need {size} bytes behind the header, got {len(content)}; only single "
            "pictures are read",
        )
    return _as_message(np.frombuffer(content, dtype).reshape(height, width), max_bytes, maximum)


def _as_message(
    pixels: np.ndarray, max_bytes: int, maximum: int = 0, frame_warnings: Tuple[FrameWarning, ...] = ()
) -> ImageMessage:
    """Wrap a raw mosaic in an image message; `maximum` is the stated full scale, or 0."""
    check_size("a picture", pixels.nbytes, max_bytes)
    if pixels.ndim != 2 or pixels.dtype.newbyteorder("=") not in (np.uint8, np.uint16):
        raise FrameError(
            "type",
            f"a raw mosaic has one channel of 8 or 16 bit, got {pixels.dtype} {pixels.shape} (four angle images: "
            "RawFrame.of_angles)",
        )
    if maximum and pixels.size and pixels.max() > maximum:
        raise FrameError("type", f"the file states numbers up to {maximum}, and holds {pixels.max()}")
    height, width = pixels.shape
    encoding = _ENCODINGS.get(maximum, f"mono{8 * pixels.itemsize}")
    data = np.ascontiguousarray(pixels.astype(pixels.dtype.newbyteorder("<"), copy=False)).reshape(-1).view(np.uint8)
    return ImageMessage(0, "", height, width, encoding, False, width * pixels.itemsize, data, frame_warnings)
