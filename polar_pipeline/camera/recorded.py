"""The state of the camera in a recording of the live node or beside captured frames; options of a pipeline follow."""

from __future__ import annotations

import json
import logging
from functools import partial
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

import yaml

from polar_pipeline._util.documents import unreadable
from polar_pipeline._util.errors import errors_as
from polar_pipeline._util.yamlfile import read_yaml
from polar_pipeline.camera.facts import CAMERA_METADATA, CameraFacts, facts_of
from polar_pipeline.options import OPTIONS, make_options
from polar_pipeline.recordings.angle_files import frame_files, is_pattern
from polar_pipeline.recordings.contents import NOTHING_STATED, Stated
from polar_pipeline.recordings.limits import MAX_BYTES
from polar_pipeline.recordings.messages import stated_offset
from polar_pipeline.recordings.rawpicture import CAMERA_FILE, read_camera_file
from polar_pipeline.recordings.source import first_camera_info, recorded_metadata

_LOG = logging.getLogger(__name__)
#: Arguments of `Pipeline`, by name.
Arguments = Dict[str, Any]
#: Options that follow from the state of a camera; messages tell their number of bits, pictures do not.
OF_THE_CAMERA = ("sensor", "roi_offset", "flip", "bit_depth")


def save_facts(path: Path, facts: CameraFacts) -> None:
    """Write the state of a camera to a YAML file."""
    path.write_text(yaml.safe_dump(facts.rows(), sort_keys=False, default_flow_style=None), encoding="utf-8")


def load_facts(path: Path) -> CameraFacts:
    """Read the state of a camera from a YAML file; raise ValueError if the file cannot be read, or has other values."""
    rows = read_yaml(path)
    with errors_as(partial(unreadable, path)):
        return facts_of(rows)


def recorded_state(recording: Path) -> Optional[CameraFacts]:
    """Return the state of the camera in a recording of the live node, or None; ValueError if it cannot be read."""
    text = recorded_metadata(recording).get(CAMERA_METADATA)
    try:
        return None if text is None else facts_of(json.loads(text))
    except (RecursionError, ValueError) as err:
        raise unreadable(recording, f"the state of the camera: {err}") from err


def camera_files(frames: Path, stated: Stated = NOTHING_STATED) -> List[Path]:
    """List where the state of the camera of captured frames is: beside each file, or in a folder of pictures."""
    if is_pattern(str(frames)):
        files = [file for row in frame_files(frames, stated)[0] for file in row.files]
        return [folder / CAMERA_FILE for folder in dict.fromkeys(file.parent for file in files)]
    is_folder = frames.is_dir() or str(frames) == "-"  # beside the standard input there is nothing
    return [(frames if is_folder else frames.parent) / CAMERA_FILE]


def warn_of_nonlinearity(place: Path, state: Optional[CameraFacts]) -> None:
    """Log that pixel values of frames, whose state of the camera is at `place`, are not proportional to light."""
    if state is not None and state.nonlinearity:
        _LOG.warning("%s: %s", place, state.nonlinearity)


def recorded_region(arguments: Arguments, recording: Path, topic: str, max_bytes: int) -> Arguments:
    """Return the option `roi_offset` by the first `camera_info` of a recording; nothing if it states no region."""
    info = first_camera_info(recording, topic, max_bytes)
    if info is None:
        return {}
    options = make_options(**{name: arguments[name] for name in ("sensor", "flip") if name in arguments})
    offset = stated_offset(info, options.flip, options.sensor)
    return {} if offset is None else {"roi_offset": offset}


def _recorded_options(recording: Path, stated: Stated) -> Iterator[Tuple[Path, Dict[str, object]]]:
    """Yield the options by the states of the camera of a recording and where they are, or what has no state."""
    state = recorded_state(recording)
    if state is not None:
        warn_of_nonlinearity(recording, state)
        yield recording, state.options()
        return
    paths = camera_files(recording, stated)
    for path in paths:
        state = load_facts(path) if read_camera_file(path) else None
        warn_of_nonlinearity(path, state)
        if state is not None:
            yield path, state.picture_options()
        else:
            yield path.parent if len(paths) > 1 else recording, {}


def with_recorded_state(
    arguments: Arguments,
    recordings: Sequence[Path],
    topic: str = "",
    max_bytes: int = MAX_BYTES,
    stated: Stated = NOTHING_STATED,
) -> Arguments:
    """Return arguments of a pipeline with those that follow from the state of the camera, if recordings have one.

    Without one, the region is that of the first `camera_info`. `messages.to_raw` checks each frame against its own
    `camera_info`. A recording may be a picture, a folder of pictures or a pattern; `stated` is how these are read.

    Raises:
        ValueError: A state cannot be read, or contradicts an argument or another one; the message names both.
        SourceError: A pattern has no files.
    """
    rows: List[Tuple[Path, Arguments]] = []
    for recording in dict.fromkeys(recordings):
        for path, options in _recorded_options(recording, stated):
            for name, value in options.items():
                if name in arguments and not OPTIONS[name].is_same(arguments[name], value):
                    raise ValueError(f"{name} is {arguments[name]}, and {path} was recorded with {value}")
            row = {**options, **arguments}
            if "roi_offset" not in row:
                row.update(recorded_region(row, recording, topic, max_bytes))
            rows.append((path, row))
            if row != rows[0][1]:
                both = f"{rows[0][0]} and {path}"
                raise ValueError(f"{both} are of different settings of the camera: process their frames one by one")
    return rows[0][1] if rows else arguments
