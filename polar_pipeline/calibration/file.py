"""Calibrations as files: NumPy's `npz`, with a header in JSON."""

from __future__ import annotations

import json
import logging
import os
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Dict, Hashable, Tuple
from weakref import WeakValueDictionary

import numpy as np

from polar_pipeline._util.documents import regular_status, unreadable
from polar_pipeline._util.files import replacing
from polar_pipeline._util.paths import AnyPath, as_path
from polar_pipeline._util.text import described, printable, quoted
from polar_pipeline._util.values import real, whole_number
from polar_pipeline.calibration.calibration import MAX_CALIBRATED_PIXELS, MAX_DEFECTS, Calibration, PixelParameters
from polar_pipeline.calibration.quantization import FIELDS, Scale, dequantize
from polar_pipeline.sensor.frames import MAX_SIDE, MIN_SIDE
from polar_pipeline.sensor.mosaic import parse_tile

_LOG = logging.getLogger(__name__)
#: Version of the format that is written; files of later versions are refused. From 2 on, codes hold the own and the
#: other term, which invert the matrix of a superpixel exactly; in 1, e1 and e2 to first order in the deviations.
VERSION = 2
#: Longest header in bytes.
_MAX_HEADER = 1 << 20
_MEMBERS = ("header", "codes", "defects")


def save_calibration(path: AnyPath, calibration: Calibration, force: bool = False) -> None:
    """Write a calibration: complete, or not at all.

    Args:
        path: Path of the file.
        calibration: Calibration to write.
        force: Whether to replace a file that exists.

    Raises:
        OSError: The file cannot be written; `FileExistsError` if there is one already.
    """
    digest = replace(calibration, digest="").digest  # not that of a file of version 1
    header = {"version": VERSION, "digest": digest, **calibration.header()}
    data = np.frombuffer(json.dumps(header, sort_keys=True).encode(), np.uint8)
    with replacing(as_path(path), force) as stream:
        np.savez_compressed(stream, header=data, codes=calibration.codes, defects=calibration.defects)


def load_calibration(path: AnyPath) -> Calibration:
    """Read a calibration; log a warning if it is of version 1.

    Raises:
        ValueError: The file cannot be read, is not a calibration, of a later version, or damaged; the message names it.
    """
    path = as_path(path)
    _status(path)
    try:
        with zipfile.ZipFile(str(path)) as archive:
            _check_sizes(archive)
        with np.load(str(path), allow_pickle=False) as members:
            calibration, version = _decode({name: members[name] for name in _MEMBERS})
    except ValueError as err:
        raise unreadable(path, str(err)) from None
    except Exception as err:  # what NumPy and its libraries raise of a damaged file is not documented
        raise unreadable(path, f"no calibration ({described(err)})") from err
    if version == 1:
        _LOG.warning(
            f"{printable(str(path))} was made by version 1.0 or older, whose correction of large rotations is of first "
            "order: calibrate again"
        )
    return calibration


#: Calibrations in use, by file and its status.
_IN_USE: WeakValueDictionary[Hashable, Calibration] = WeakValueDictionary()


def load_calibration_once(path: Path) -> Calibration:
    """Load a calibration; read its file again only if it has changed or its calibration is not in use."""
    status = _status(path)
    key = (path, status.st_ino, status.st_size, status.st_mtime_ns)
    calibration = _IN_USE.get(key)
    if calibration is None:
        calibration = _IN_USE[key] = load_calibration(path)
    return calibration


def _status(path: Path) -> os.stat_result:
    """Return the status of a regular file.

    Raises:
        ValueError: There is none of that name; the message names it.
    """
    try:
        return regular_status(path)
    except (OSError, ValueError) as err:
        raise unreadable(path, described(err)) from None


def _check_sizes(archive: zipfile.ZipFile) -> None:
    """Refuse an archive whose members are not those of a calibration, or larger than any.

    Raises:
        ValueError: They are.
    """
    sizes = {row.filename: row.file_size for row in archive.infolist()}
    if sorted(sizes) != sorted(f"{name}.npy" for name in _MEMBERS):
        raise ValueError("no calibration: it holds other things")
    pixels = MAX_CALIBRATED_PIXELS
    limits = {"header": _MAX_HEADER, "codes": 4 * pixels, "defects": 8 * MAX_DEFECTS * pixels}
    for name, limit in limits.items():
        if sizes[f"{name}.npy"] > limit + 1024:
            raise ValueError(f"{name} has {sizes[f'{name}.npy']} bytes, at most {limit:.0f} are allowed")


def _decode(arrays: Dict[str, np.ndarray]) -> Tuple[Calibration, int]:
    """Build the calibration from the arrays of a file; return it, and the version of the file.

    Raises:
        ValueError: The arrays are not a calibration.
    """
    header = json.loads(arrays["header"].tobytes())
    version = header.get("version") if isinstance(header, dict) else None
    if not isinstance(version, int) or version < 1:
        raise ValueError("no calibration: its header has no version")
    if version > VERSION:
        raise ValueError(f"its format has version {version}, this release reads up to {VERSION}")
    codes, defects = arrays["codes"], arrays["defects"]
    if codes.ndim != 2 or codes.dtype != np.uint32 or min(codes.shape) < MIN_SIDE:
        raise ValueError(f"codes must be (H, W) uint32, got {codes.dtype} {codes.shape}")
    if defects.shape != (len(defects), 2) or defects.dtype != np.int32:
        raise ValueError(f"defects must be (n, 2) int32, got {defects.dtype} {defects.shape}")
    if ((defects < 0) | (defects >= codes.shape)).any():
        raise ValueError("defects must be places within the image")
    name = str(header["sensor"])
    if printable(name) != name:
        raise ValueError(f"its sensor's name must be short and printable, got {quoted(name)}")
    x, y = (whole_number("offset", value, 0, MAX_SIDE) for value in header["offset"])
    if not isinstance(header["facts"], dict):
        raise ValueError(f"facts must be a JSON object, got {quoted(header['facts'])}")
    scales = tuple(Scale(real("scales", lowest), real("scales", step)) for lowest, step in header["scales"])
    if len(scales) != len(FIELDS):
        raise ValueError(f"scales must be {len(FIELDS)} pairs of numbers, got {len(scales)}")
    calibration = Calibration(
        parse_tile(header["tile"], name),
        (x, y),
        codes,
        scales,
        defects,
        whole_number("bit_depth", header["bit_depth"]),
        header["facts"],
    )
    if calibration.digest != header["digest"]:
        raise ValueError("it is damaged: its digest does not fit its content")
    return _converted(calibration) if version == 1 else calibration, version


def _converted(old: Calibration) -> Calibration:
    """Return a calibration of version 1, whose codes hold e1 and e2, with new codes and the digest of the old ones."""
    is_defect = np.zeros(old.shape, bool)
    is_defect[tuple(old.defects.T)] = True
    parameters = PixelParameters(*dequantize(old.codes, old.scales))
    new = Calibration.from_parameters(parameters, old.sensor, old.offset, is_defect, old.bit_depth, old.facts)
    return replace(new, digest=old.digest)
