"""State of the camera in captured frames: the file `camera.yaml` beside them."""

from __future__ import annotations

import math
from dataclasses import asdict, replace
from pathlib import Path
from typing import Dict, List, NamedTuple, Optional, Sequence

from polar_pipeline._util.paths import natural_order
from polar_pipeline.camera.facts import CameraFacts
from polar_pipeline.camera.recorded import load_facts
from polar_pipeline.recordings.rawpicture import CAMERA_FILE

#: Patterns of the file's place in a session's folder.
_PLACES = (CAMERA_FILE, f"*/{CAMERA_FILE}", f"*/*/{CAMERA_FILE}")
#: Fields that may differ between the settings of a session, and the relative difference of equal numbers.
_CHANGING, _TOLERANCE = ("vendor", "temperature"), 1e-3


class Captured(NamedTuple):
    """State of the camera while frames were captured, and the file that states it."""

    facts: CameraFacts
    file: Path


def difference(first: CameraFacts, second: CameraFacts) -> str:
    """Return what makes frames unfit for one session, such as `gain_db 0.0 and 6.0`; "" if they fit."""
    rows = ((name, getattr(first, name), getattr(second, name)) for name in asdict(first) if name not in _CHANGING)
    return ", ".join(f"{name} {a} and {b}" for name, a, b in rows if not agrees(a, b))


def agrees(first: object, second: object) -> bool:
    """Return whether values are equal, numbers but for rounding."""
    if isinstance(first, float) and isinstance(second, float):
        return math.isclose(first, second, rel_tol=_TOLERANCE)
    return first == second


def captured_state(paths: Sequence[Path]) -> Optional[Captured]:
    """Return the state of the camera beside folders of pictures and recordings, or None if no file states it.

    The temperature is the mean over the files.

    Raises:
        ValueError: A file cannot be read, or two of them differ; the message names them.
    """
    files: List[Path] = []
    for path in paths:
        folder, places = (path, _PLACES) if path.is_dir() else (path.parent, _PLACES[:1])
        matches = sorted((file for place in places for file in folder.glob(place)), key=natural_order)
        files += [file for file in matches if file.parent == folder or not is_left_out(file.parent.name)]
    rows = [load_facts(file) for file in files]
    for file, row in zip(files, rows):
        differs = difference(rows[0], row)
        if differs:
            raise ValueError(f"{files[0]} and {file} are of different sessions: {differs}")
    if not rows:
        return None
    temperatures = [row.temperature for row in rows if row.temperature is not None]
    mean = sum(temperatures) / len(temperatures) if temperatures else None
    return Captured(replace(rows[0], temperature=mean), files[0])


def is_left_out(folder: str) -> bool:
    """Return whether a folder of this name is not part of a session: `test`, and those that are not complete."""
    return folder == "test" or folder.startswith(".")


def frame_arguments(facts: CameraFacts) -> Dict[str, object]:
    """Return the arguments of `calibrate` that follow from the state of the camera, by name."""
    notes = {"exposure": facts.exposure_us / 1000 or None, "temperature": facts.temperature, "gain_db": facts.gain_db}
    return {**facts.picture_options(), **{name: value for name, value in notes.items() if value is not None}}
