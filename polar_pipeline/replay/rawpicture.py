"""Raw mosaics in picture files and compressed images, read by OpenCV and NumPy."""

from __future__ import annotations

from pathlib import Path
from typing import Dict, Optional, Tuple, Union

import cv2
import numpy as np

from polar_pipeline._util.documents import regular_status
from polar_pipeline._util.values import sequence
from polar_pipeline._util.yamlfile import read_yaml
from polar_pipeline.replay.limits import MAX_BYTES, check_size, described
from polar_pipeline.sensor.frames import FrameError

#: Name of the file with the state of the camera, beside captured frames.
CAMERA_FILE = "camera.yaml"
#: How PNG, TIFF, JPEG and PNM files begin. OpenCV reads other formats too, by libraries that are rarely checked.
_MAGICS = (b"\x89PNG", b"II*\0", b"MM\0*", b"II+\0", b"MM\0+", b"\xff\xd8", b"P2", b"P3", b"P5", b"P6")

Bytes = Union[bytes, memoryview]


def read_raw(path: Path, max_bytes: int = MAX_BYTES) -> np.ndarray:
    """Read a raw image from a PNG, TIFF, PGM, JPEG or NPY file: (H, W) uint8 or uint16.

    Args:
        path: The file.
        max_bytes: Largest size of the file and of the image.

    Raises:
        FrameError: The file is not a picture (cause `file`), not a raw mosaic (`type`), too large, or not of the size
            that `CAMERA_FILE` beside it states (`size`).
    """
    try:
        check_size("a file", regular_status(path).st_size, max_bytes)
        is_npy = path.suffix.lower() == ".npy"
        pixels = _read_npy(path, max_bytes) if is_npy else decode_picture(path.read_bytes(), max_bytes)
        (height, width), stated = pixels.shape, _stated_size(path.parent / CAMERA_FILE)
        if stated not in ((), (width, height)):  # its region and flips would be wrong
            wanted = "{}x{}".format(*stated)
            raise FrameError(
                "size", f"a picture of {width}x{height} pixels, and {CAMERA_FILE} beside it states {wanted}"
            )
        return pixels
    except FrameError as err:
        raise FrameError(err.cause, f"{path}: {err}") from err
    except Exception as err:  # what a damaged NPY file raises is not documented; tokenize.TokenError, for example
        raise FrameError("file", f"{path} cannot be read: {described(err)}") from err


def read_camera_file(path: Path) -> Dict[str, object]:
    """Read the state of a camera from the YAML file beside captured frames, as field -> value.

    Returns:
        The fields; empty without a file, or if the file has no `pixel_format`.

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


def _read_npy(path: Path, max_bytes: int) -> np.ndarray:
    """Read the array in an NPY file; it is mapped first, since `np.load` would allocate what the file states."""
    mapped = np.load(str(path), mmap_mode="r", allow_pickle=False)
    if not isinstance(mapped, np.ndarray):
        raise FrameError("file", "it is an archive, not an NPY file")
    return np.array(_checked(mapped, max_bytes))


def _checked(pixels: np.ndarray, max_bytes: int) -> np.ndarray:
    """Return the pixels, if they are a raw mosaic that is not too large."""
    check_size("a picture", pixels.nbytes, max_bytes)
    if pixels.ndim != 2 or pixels.dtype not in (np.uint8, np.uint16):
        raise FrameError("type", f"a raw mosaic has one channel of 8 or 16 bit, got {pixels.dtype} {pixels.shape}")
    return pixels


def decode_picture(data: Bytes, max_bytes: int = MAX_BYTES) -> np.ndarray:
    """Decode the raw mosaic in the bytes of a PNG, TIFF, PGM or JPEG file: (H, W) uint8 or uint16.

    Args:
        data: The bytes.
        max_bytes: Largest size of the picture; OpenCV decodes up to 2^30 pixels before it is checked.

    Raises:
        FrameError: The bytes are not such a picture (cause `file`), not a raw mosaic (`type`), or too large (`size`).
    """
    if not bytes(data[:4]).startswith(_MAGICS):
        raise FrameError("file", f"{len(data)} bytes are not a picture: neither PNG, TIFF, PGM nor JPEG")
    try:
        pixels: Optional[np.ndarray] = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED)
    except Exception as err:  # cv2.error, MemoryError, SystemError
        raise FrameError("file", f"{len(data)} bytes are not a picture: {described(err)}") from err
    if pixels is None:
        raise FrameError("file", f"{len(data)} bytes are not a picture that OpenCV can read")
    return _checked(pixels, max_bytes)
