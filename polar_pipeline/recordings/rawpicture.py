"""Raw frames in picture files and compressed images, as image messages; and the state of the camera beside them."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Dict, Mapping, Union

from polar_pipeline._util.paths import AnyPath, as_path
from polar_pipeline._util.values import sequence
from polar_pipeline._util.yamlfile import read_yaml
from polar_pipeline.recordings.angle_files import FrameFiles
from polar_pipeline.recordings.contents import NOTHING_STATED, Stated, split_frames, to_message
from polar_pipeline.recordings.limits import MAX_BYTES
from polar_pipeline.recordings.messages import Cdr, ImageMessage, has_mosaic
from polar_pipeline.recordings.pixel_files import FrameSource, decode_pixels
from polar_pipeline.sensor.frames import FrameError

_LOG = logging.getLogger(__name__)
#: Name of the file with the state of the camera, beside captured frames.
CAMERA_FILE = "camera.yaml"
#: Name of the same state, as JSON, in the metadata of a recording.
CAMERA_METADATA = "camera"
#: Tolerance within which the exponent of a gamma correction counts as 1.
_LINEAR = 1e-3


def read_picture(path: AnyPath, max_bytes: int = MAX_BYTES, stated: Stated = NOTHING_STATED) -> ImageMessage:
    """Read the only frame in a file.

    The file's name without suffix becomes the frame_id. `max_bytes` limits the file and the image. `stated` is how to
    read a file that does not state it itself.

    Raises:
        FrameError: The file is not a picture (cause `file`), holds no frame or several (`type`), is too large, or not
            of the size that `CAMERA_FILE` beside it states (`size`).
    """
    path = as_path(path)
    source = FrameSource(FrameFiles(path.stem, (path,)), stated, max_bytes)
    if len(source) > 1:
        raise FrameError("type", f"{path}: {len(source)} frames, where one is expected")
    return checked_picture(next(source.messages()), path, camera_beside(path.parent))


def checked_picture(image: Union[ImageMessage, FrameError], path: Path, camera: Mapping[str, object]) -> ImageMessage:
    """Return a frame of a file, whose size must be the one that the state of the camera beside the file has.

    Raises:
        FrameError: It is not (cause `size`), or the frame could not be read.
    """
    if isinstance(image, FrameError):
        raise image
    size, stated = (image.width, image.height), camera.get("size")
    stated = sequence(stated, 2) if isinstance(stated, (list, tuple)) and len(stated) == 2 else ()
    if stated not in ((), size) and has_mosaic(image.encoding):  # its region and flips would be wrong
        text = "a picture of {}x{} pixels, and {} beside it states {}x{}".format(*size, CAMERA_FILE, *stated)
        raise FrameError("size", f"{path}: {text}")
    return image


def decode_picture(data: Cdr, max_bytes: int = MAX_BYTES) -> ImageMessage:
    """Decode the raw mosaic in the bytes of a picture file, as a message without stamp and frame_id.

    Raises:
        FrameError: The bytes are not such a picture (cause `file`), not a raw mosaic (`type`), or too large (`size`).
    """
    return to_message(split_frames(decode_pixels(data, max_bytes), Stated("mosaics")), 0, max_bytes)


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


def camera_beside(folder: Path) -> Dict[str, object]:
    """Read the fields of the state of a camera in a folder; empty without one, or if it cannot be read, with a warning.

    Commands that need the state of the camera refuse one that cannot be read.
    """
    try:
        return read_camera_file(folder / CAMERA_FILE)
    except ValueError as err:
        _LOG.warning("%s", err)
        return {}


def nonlinearity(gamma: float, lut: bool) -> str:
    """Return why pixel values of a camera are not proportional to light, and the remedy; "" if they are."""
    text = f"gamma {gamma:.2g}" if abs(gamma - 1) > _LINEAR else ""
    causes = " and ".join(filter(None, [text, "a lookup table" if lut else ""]))
    remedy = "switch it off by camera.features or --features, such as 'GammaEnable=false, LUTEnable=false'"
    return f"the camera applies {causes}, so DoLP is wrong: {remedy}" if causes else ""
