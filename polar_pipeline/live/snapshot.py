"""Snapshots for bug reports: a frame, and everything that its products depend on. Imports no ROS.

Everything is written under a temporary name that becomes the folder's when it is complete.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import subprocess
import sys
import time
import traceback
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, Mapping, Optional, Sequence, Tuple

import numpy as np

from polar_pipeline import __version__
from polar_pipeline._util.errors import errors_as
from polar_pipeline._util.files import PARTIAL, remove_leftovers, replacing, replacing_folder
from polar_pipeline._util.imports import importing
from polar_pipeline._util.machine import with_remedy
from polar_pipeline._util.paths import as_path
from polar_pipeline.live.parameters import Settings
from polar_pipeline.live.preset import to_yaml
from polar_pipeline.options import FROM_FRAMES
from polar_pipeline.pictures.files import encode_picture
from polar_pipeline.pipeline import Pipeline
from polar_pipeline.recordings import messages
from polar_pipeline.recordings.messages import CAMERA_INFO, IMAGE, Cdr, ImageMessage, Status
from polar_pipeline.sensor.frames import FrameError


@dataclass(frozen=True)
class Snapshot:
    """A frame, and the state of the node that computes it.

    Messages are serialized. `received_ns` is the time of receipt on the node's clock; `settings` follow from all
    `parameters`; `statuses` are the newest diagnostics.
    """

    node: str
    cdr: Cdr
    received_ns: int
    parameters: Mapping[str, Any]
    settings: Settings
    camera_info: Optional[bytes]
    reference: Optional[bytes]
    statuses: Sequence[Status]


#: Seconds that the checks of the machine may take.
_DOCTOR_SECONDS = 120
#: Names of snapshots and recordings: of the node, and when it was taken.
NAME = re.compile(r".+_(\d{8}_\d{6}_\d{3})")


def output_folder(name: str, parameter: str) -> Path:
    """Return the folder that a parameter names, or one in the home of ROS; OSError if the user has no home."""
    home = os.environ.get("ROS_HOME") or "~/.ros"
    with errors_as(lambda text: FileNotFoundError(f"{text}; name another one as {parameter}")):
        return as_path(name) if name else as_path(home) / "polar_pipeline"


def new_path(folder: Path, node: str, suffix: str = "") -> Path:
    """Return a path for what a node writes now, whose stem is a `NAME`."""
    now = time.time()
    stamp = f"{time.strftime('%Y%m%d_%H%M%S', time.gmtime(now))}_{int(now % 1 * 1000):03d}"
    return folder / f"{node.strip('/').replace('/', '_')}_{stamp}{suffix}"


def write_snapshot(snapshot: Snapshot) -> Path:
    """Write a snapshot into a new folder, complete or not at all; remove the oldest snapshots to keep the quota.

    Products are computed again with the snapshot's settings. If that fails, `error.txt` says why.

    Raises:
        OSError: The snapshot cannot be written, or takes more than the quota alone.
    """
    target = new_path(output_folder(snapshot.settings.snapshot_folder, "snapshot.folder"), snapshot.node)
    remove_leftovers(target.parent, rf"\.{NAME.pattern}{PARTIAL}")
    with replacing_folder(target) as partial:
        for file, data in _texts(snapshot):
            _write(partial / file, data.encode())
        _write_frame(partial, snapshot)
        _make_room(target.parent, snapshot.settings.snapshot_quota_mb * 1_000_000, _folder_size(partial))
    return target


def save_parameters(folder: str, node: str, values: Mapping[str, object]) -> Path:
    """Write the parameters of a node as a file for `params_file:=`, which replaces the former one; return its path."""
    path = output_folder(folder, "snapshot.folder") / f"{node.strip('/').replace('/', '_')}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path, force=True) as stream:
        stream.write(to_yaml(values, f"{node}, polar_pipeline {__version__}").encode())
    return path


def _make_room(folder: Path, quota: int, needed: int) -> None:
    """Remove the oldest snapshots until `needed` bytes of the quota are free; OSError if the quota is smaller."""
    if needed > quota:
        raise OSError(errno.EDQUOT, f"a snapshot of {needed} bytes is larger than the quota of {quota}", str(folder))
    names = {path: NAME.fullmatch(path.name) for path in folder.iterdir() if path.is_dir() and not path.is_symlink()}
    oldest = sorted((match.group(1), path) for path, match in names.items() if match)
    sizes = {path: _folder_size(path) for _, path in oldest}
    used = sum(sizes.values())
    for _, path in oldest:
        if used + needed <= quota:
            return
        shutil.rmtree(path, ignore_errors=True)
        used -= sizes[path]


def _folder_size(folder: Path) -> int:
    """Sum the bytes of a folder's files; a folder that disappears meanwhile, as by another node, counts as 0."""
    try:
        return total_size(folder.iterdir())
    except FileNotFoundError:
        return 0


def total_size(files: Iterable[Path]) -> int:
    """Sum the bytes of files; a file that disappears meanwhile counts as 0."""
    total = 0
    for path in files:
        with suppress(FileNotFoundError):
            total += path.lstat().st_size
    return total


def _write(path: Path, data: bytes) -> None:
    with replacing(path) as stream:
        stream.write(data)


def _texts(snapshot: Snapshot) -> Iterator[Tuple[str, str]]:
    yield "parameters.yaml", to_yaml(snapshot.parameters, f"{snapshot.node}, polar_pipeline {__version__}")
    yield "doctor.txt", _doctor()
    lines = []
    for status in snapshot.statuses:
        lines += [f"{status.name}: {status.message}", *(f"    {key}: {value}" for key, value in status.values.items())]
    yield "diagnostics.txt", "\n".join(lines) + "\n"


def _doctor() -> str:
    """Return the output of `polar-pipeline doctor`, in a process of its own: it loads what a node has no use for."""
    command = [sys.executable, "-m", "polar_pipeline", "doctor"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            timeout=_DOCTOR_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as err:  # the frame is worth more than the checks
        return f"{err}\n"
    return done.stdout.decode("utf-8", "replace")


def _write_frame(folder: Path, snapshot: Snapshot) -> None:
    """Write the frame as it was received, as a picture, and its products."""
    try:
        with importing():
            from polar_pipeline.recordings.sink import open_sink
    except ImportError as err:
        raise RuntimeError(with_remedy(err)) from err
    try:
        image: Optional[ImageMessage] = messages.decode_image(snapshot.cdr)
    except FrameError:  # `error.txt` says why
        image = None
    stamp_ns = snapshot.received_ns if image is None or image.stamp_ns < 0 else image.stamp_ns  # mcap's are unsigned
    calibration = snapshot.settings.options.calibration
    facts = {"node": snapshot.node, "calibration": calibration.digest if calibration else ""}
    with open_sink(folder / "raw.mcap", facts) as sink:
        sink.write("/image_raw", IMAGE, stamp_ns, snapshot.cdr)
        if snapshot.camera_info is not None:
            sink.write("/camera_info", CAMERA_INFO, stamp_ns, snapshot.camera_info)
    if snapshot.reference is not None and snapshot.settings.options.ssim_mode == "reference":
        with open_sink(folder / "reference.mcap", {"node": snapshot.node}) as sink:
            sink.write("/intensity", IMAGE, stamp_ns, messages.restamp(snapshot.reference, stamp_ns))
    try:
        arrays = _compute(snapshot)
    except Exception:  # noqa: BLE001 - it may be what the report is about
        _write(folder / "error.txt", traceback.format_exc().encode())
        return
    for name, array in arrays.items():
        suffix = ".npy" if array.dtype == np.float32 else ".png"
        _write(folder / f"{name}{suffix}", encode_picture(array, suffix))


def _compute(snapshot: Snapshot) -> Dict[str, np.ndarray]:
    """Compute the raw mosaic and its products; those of SSIM only if no reference is needed."""
    info = None if snapshot.camera_info is None else messages.decode_camera_info(snapshot.camera_info)
    image = messages.decode_image(snapshot.cdr)
    settings = snapshot.settings.of_region(info, image.encoding)
    if info is not None and settings.options.rectify == FROM_FRAMES:
        settings = settings.rectified_by(messages.lens_of(info))
    options = settings.options
    raw = messages.to_raw(image, options, info)
    with Pipeline(**settings.arguments(settings.without_reference(options.products))) as pipeline:
        return {"raw": np.ascontiguousarray(raw.unpack().mosaic), **pipeline(raw)}
