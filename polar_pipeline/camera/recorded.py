"""The state of the camera in a recording of the live node, from which options of a pipeline follow."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, Optional

from polar_pipeline._util.documents import unreadable
from polar_pipeline.camera.facts import CAMERA_METADATA, CameraFacts, facts_of
from polar_pipeline.options import OPTIONS
from polar_pipeline.replay.source import recorded_metadata

#: Arguments of `Pipeline`, by name.
Arguments = Dict[str, Any]
#: Options that follow from the state of a camera.
OF_THE_CAMERA = ("sensor", "roi_offset", "flip")


def recorded_state(recording: Path) -> Optional[CameraFacts]:
    """Return the state of the camera in a recording of the live node; None for any other recording.

    Raises:
        ValueError: The state cannot be read; the message names the recording.
    """
    text = recorded_metadata(recording).get(CAMERA_METADATA)
    try:
        return None if text is None else facts_of(json.loads(text))
    except (RecursionError, ValueError) as err:
        raise unreadable(recording, f"the state of the camera: {err}") from err


def with_recorded_state(arguments: Arguments, recording: Path) -> Arguments:
    """Return arguments of a pipeline with those that follow from the state of the camera in a recording, if it has one.

    Args:
        arguments: Arguments that are set.
        recording: The recording.

    Raises:
        ValueError: The state cannot be read, or contradicts an argument; the message names both.
    """
    state = recorded_state(recording)
    found = state.options() if state else {}
    for name, value in found.items():
        if name in arguments and not OPTIONS[name].is_same(arguments[name], value):
            raise ValueError(f"{name} is {arguments[name]}, and {recording} was recorded with {value}")
    return {**found, **arguments}
