"""Reads the lens calibrations of recorded images: of the topic beside theirs, or the recording's only one."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Iterator, Optional

from polar_pipeline import messages
from polar_pipeline._util.text import printable
from polar_pipeline.geometry import LensCalibration
from polar_pipeline.messages import CAMERA_INFO, Cdr
from polar_pipeline.replay.limits import MAX_BYTES, SourceError
from polar_pipeline.replay.source import Recorded, is_recording, open_source, recording_of
from polar_pipeline.sensor.frames import FrameError


@contextmanager
def open_camera_infos(path: Path, topic: str = "", max_bytes: int = MAX_BYTES) -> Iterator[Iterator[Recorded]]:
    """Open the lens calibrations of the images on a topic; none of pictures, and where it is not clear which they are.

    The arguments are those of `open_source`.
    """
    with ExitStack() as stack:
        records: Iterator[Recorded] = iter(())
        if is_recording(recording_of(path)):
            with suppress(SourceError):
                opened = open_source(path, topic, max_bytes=max_bytes, kinds=(CAMERA_INFO,))
                records = stack.enter_context(opened).records
        yield records


def decoded(record: Recorded) -> Cdr:
    """A recorded `sensor_msgs/CameraInfo`, serialized.

    Raises:
        FrameError: It cannot be decoded (causes `cdr`, `size`).
    """
    message = record.message()
    messages.decode_camera_info(message)
    return message


def recorded_camera_info(path: Path, topic: str = "", max_bytes: int = MAX_BYTES) -> Optional[Cdr]:
    """The first lens calibration of the images on a topic that can be decoded, serialized; None without one."""
    with open_camera_infos(path, topic, max_bytes) as records:
        for record in records:
            with suppress(FrameError):
                return decoded(record)
    return None


def recorded_lens(path: Path, topic: str = "", max_bytes: int = MAX_BYTES) -> LensCalibration:
    """The first lens calibration of the images on a topic of a recording.

    Raises:
        SourceError: It has none, of more than one topic, or one that cannot be used.
    """
    if not path.exists() or not is_recording(recording_of(path)):
        raise SourceError(f"{path} is not a recording with a lens calibration: name a YAML file")
    with open_source(path, topic, max_bytes=max_bytes, kinds=(CAMERA_INFO,)) as source:
        try:
            return messages.lens_of(messages.decode_camera_info(next(source.records).message()))
        except (StopIteration, FrameError) as err:
            reason = str(err) or "there is no message"
            raise SourceError(f"the lens calibration on {printable(source.topic)} of {path}: {reason}") from err
