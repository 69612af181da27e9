"""A frame and all that made its products, in a folder for a bug report. Imports no ROS.

Everything is written under a temporary name that becomes the folder's when it is complete.
"""

from __future__ import annotations

import os
import shutil
import time
import traceback
from pathlib import Path
from typing import Any, Dict, Iterator, Mapping, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from polar_pipeline import __version__, doctor, messages
from polar_pipeline.files import replacing
from polar_pipeline.messages import CAMERA_INFO, IMAGE, ImageMessage, Status
from polar_pipeline.pipeline import Pipeline
from polar_pipeline.products import PRODUCTS
from polar_pipeline.replay.picture import encode
from polar_pipeline.replay.sink import open_sink
from polar_pipeline.ros.parameters import SSIM_PRODUCTS, Settings, make_settings
from polar_pipeline.ros.preset import to_yaml
from polar_pipeline.sensor import FrameError


class Snapshot(NamedTuple):
    """What a node knows about a frame.

    Attributes:
        node: The node's name.
        cdr: The frame as it came in.
        received_ns: When, on the node's clock.
        parameters: Every parameter's value.
        camera_info: Newest calibration as it came in.
        reference: Newest reference image as it came in.
        statuses: Newest diagnostics.
    """

    node: str
    cdr: bytes
    received_ns: int
    parameters: Mapping[str, Any]
    camera_info: Optional[bytes]
    reference: Optional[bytes]
    statuses: Sequence[Status]


def default_folder() -> Path:
    """Where snapshots go unless a folder is named: ROS's own home."""
    return Path(os.environ.get("ROS_HOME") or Path.home() / ".ros") / "polar_pipeline"


def write_snapshot(folder: Path, snapshot: Snapshot) -> Path:
    """Write a snapshot into a new folder, whole or not at all.

    Products are computed anew by the parameters. Where that fails, `error.txt` says why.

    Returns:
        The new folder.

    Raises:
        OSError: It cannot be written.
    """
    now = time.time()
    stamp = f"{time.strftime('%Y%m%d_%H%M%S', time.gmtime(now))}_{int(now % 1 * 1000):03d}"
    target = folder.expanduser() / f"{snapshot.node.strip('/').replace('/', '_')}_{stamp}"
    partial = target.with_name(f".{target.name}.{os.getpid()}.part")
    partial.mkdir(parents=True)
    try:
        for name, data in _texts(snapshot):
            _write(partial / name, data.encode())
        _write_frame(partial, snapshot)
        partial.rename(target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return target


def _write(path: Path, data: bytes) -> None:
    with replacing(path) as stream:
        stream.write(data)


def _texts(snapshot: Snapshot) -> Iterator[Tuple[str, str]]:
    yield "parameters.yaml", to_yaml(snapshot.parameters, f"{snapshot.node}, polar_pipeline {__version__}")
    yield "doctor.txt", doctor.as_text(doctor.run_checks())
    lines = []
    for status in snapshot.statuses:
        lines += [f"{status.name}: {status.message}", *(f"    {key}: {value}" for key, value in status.values.items())]
    yield "diagnostics.txt", "\n".join(lines) + "\n"


def _write_frame(folder: Path, snapshot: Snapshot) -> None:
    """The frame as it came, as a picture, and its products."""
    try:
        image: Optional[ImageMessage] = messages.decode_image(snapshot.cdr)
    except FrameError:  # of which `error.txt` will tell
        image = None
    stamp_ns = image.stamp_ns if image is not None else snapshot.received_ns
    with open_sink(folder / "raw.mcap", {"node": snapshot.node}) as sink:
        sink.write("/image_raw", IMAGE, stamp_ns, snapshot.cdr)
        if snapshot.camera_info is not None:
            sink.write("/camera_info", CAMERA_INFO, stamp_ns, snapshot.camera_info)
    settings = make_settings(snapshot.parameters)
    if snapshot.reference is not None and settings.options.ssim_mode == "reference":
        with open_sink(folder / "reference.mcap", {"node": snapshot.node}) as sink:
            sink.write("/intensity", IMAGE, stamp_ns, messages.restamp(snapshot.reference, stamp_ns))
    try:
        arrays = _compute(snapshot, settings)
    except Exception:  # noqa: BLE001 - it may be what the report is about
        _write(folder / "error.txt", traceback.format_exc().encode())
        return
    for name, array in arrays.items():
        suffix = ".npy" if array.dtype == np.float32 else ".png"
        _write(folder / f"{name}{suffix}", encode(array, suffix))


def _compute(snapshot: Snapshot, settings: Settings) -> Dict[str, np.ndarray]:
    """The raw mosaic and its products; those of SSIM only where no reference is needed."""
    options = settings.options
    raw = messages.to_raw(messages.decode_image(snapshot.cdr), options.bit_depth, options.alignment)
    needless = SSIM_PRODUCTS if options.ssim_mode == "reference" else ()
    pipeline = Pipeline(**settings.arguments(tuple(name for name in PRODUCTS if name not in needless)))
    try:
        return {"raw": np.ascontiguousarray(raw.unpack().mosaic), **pipeline(raw)}
    finally:
        pipeline.close()
