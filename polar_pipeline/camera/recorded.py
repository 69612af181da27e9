"""The state of the camera in a recording of the live node or beside captured frames; options of a pipeline follow."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any, Dict, Optional

import yaml

from polar_pipeline._util.documents import unreadable
from polar_pipeline._util.errors import errors_as
from polar_pipeline._util.yamlfile import read_yaml
from polar_pipeline.camera.facts import CAMERA_METADATA, CameraFacts, facts_of
from polar_pipeline.options import OPTIONS, make_options
from polar_pipeline.recordings.limits import MAX_BYTES
from polar_pipeline.recordings.messages import stated_offset
from polar_pipeline.recordings.rawpicture import CAMERA_FILE, read_camera_file
from polar_pipeline.recordings.source import first_camera_info, recorded_metadata

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


def camera_file(frames: Path) -> Path:
    """Return where the state of the camera of captured frames is: beside a file, or in a folder of pictures."""
    return (frames if frames.is_dir() else frames.parent) / CAMERA_FILE


def recorded_region(arguments: Arguments, recording: Path, topic: str, max_bytes: int) -> Arguments:
    """Return the option `roi_offset` by the first `camera_info` of a recording; nothing if it states no region."""
    info = first_camera_info(recording, topic, max_bytes)
    if info is None:
        return {}
    options = make_options(**{name: arguments[name] for name in ("sensor", "flip") if name in arguments})
    offset = stated_offset(info, options.flip, options.sensor)
    return {} if offset is None else {"roi_offset": offset}


def with_recorded_state(
    arguments: Arguments, recording: Path, topic: str = "", max_bytes: int = MAX_BYTES
) -> Arguments:
    """Return arguments of a pipeline with those that follow from the state of the camera, if a recording has one.

    Without one, the region is that of the first `camera_info`. `messages.to_raw` checks each frame against its own
    `camera_info`. The recording may be a picture or a folder of pictures.

    Raises:
        ValueError: The state cannot be read, or contradicts an argument; the message names both.
    """
    state, path = recorded_state(recording), camera_file(recording)
    options: Dict[str, object] = state.options() if state else {}
    if state is None and read_camera_file(path):
        options = load_facts(path).picture_options()
    for name, value in options.items():
        if name in arguments and not OPTIONS[name].is_same(arguments[name], value):
            raise ValueError(f"{name} is {arguments[name]}, and {recording} was recorded with {value}")
    arguments = {**options, **arguments}
    if "roi_offset" not in arguments:
        arguments.update(recorded_region(arguments, recording, topic, max_bytes))
    return arguments
