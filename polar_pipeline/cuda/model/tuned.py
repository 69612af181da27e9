"""Which schedule a launch takes: what was the fastest when measured (`polar-pipeline tune`), else what is predicted."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, astuple, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

from polar_pipeline._util.documents import read_json
from polar_pipeline._util.files import replacing
from polar_pipeline._util.folders import data_folder
from polar_pipeline._util.share import share_path
from polar_pipeline._util.text import printable, quoted
from polar_pipeline.cuda.model.device import Device
from polar_pipeline.cuda.model.launch_model import LaunchModel
from polar_pipeline.cuda.model.schedule import Schedule, ScheduleError

#: Environment variable that names the folder of the schedules measured by this user, in place of `tuned` in the user's
#: data folder.
TUNED_VARIABLE = "POLAR_PIPELINE_TUNED"
#: More than any size in a schedule, or of an image.
MAX_SIZE = 1 << 20
#: More microseconds than any frame takes.
MAX_US = 1e9


@dataclass(frozen=True)
class Measured:
    """The fastest schedule of a work, and microseconds a frame."""

    schedule: Schedule
    us: float


#: By how much longer than the fastest schedule's a predicted time may be for it to count as equal; and how many frames
#: are many.
_AS_FAST, _MANY_FRAMES = 0.03, 64


def choose(model: LaunchModel) -> Schedule:
    """The measured schedule where there is one, else the one with the shortest predicted time.

    Raises:
        ScheduleError: None fits the device; the message gives what is needed and the limit.
    """
    found = tuned(model)
    return predicted_fastest(model) if found is None else found.schedule


def predicted_fastest(model: LaunchModel) -> Schedule:
    """The schedule with the shortest predicted time for one frame.

    Predictions are not good enough to tell apart what takes about as long. Of such schedules it is the one that is the
    fastest for many frames, which leaves most of the GPU to others.

    Raises:
        ScheduleError: None fits the device; the message gives what is needed and the limit.
    """
    able = {schedule: model.predict(schedule).us for schedule in model.candidates()}
    if not able:
        model.refuse()
    limit = (1 + _AS_FAST) * min(able.values())
    near = [schedule for schedule, us in able.items() if us <= limit]
    return min(near, key=lambda schedule: (model.predict(schedule, _MANY_FRAMES).us, able[schedule], schedule))


# --------------------------------------------------------------------------------------------------------------- tuned


def tuned_folder() -> Path:
    """The folder that `polar-pipeline tune` writes to: `$POLAR_PIPELINE_TUNED`, else `tuned` in the user's data folder.

    Raises:
        FileNotFoundError: The user has no home, and the variable is not set.
    """
    named = os.environ.get(TUNED_VARIABLE)
    return Path(named) if named else data_folder() / "tuned"


def tuned_path(device: Device) -> Path:
    """The file of the schedules that this user measured on a device; it need not exist. Raises as `tuned_folder`."""
    return tuned_folder() / f"{device.name}.json"


def shipped_path(device: Device) -> Path:
    """The file of the tuned schedules that the package ships for a device; it need not exist."""
    return share_path("config") / "tuned" / f"{device.name}.json"


def _known(device: Device) -> Dict[Tuple[str, int, int], Measured]:
    """The measured schedules of a device; those of this user take precedence over shipped ones.

    Raises:
        ScheduleError: A file of tuned schedules is broken.
    """
    shipped = _read(shipped_path(device))
    try:
        path = tuned_path(device)
    except FileNotFoundError:  # no home: this user measured nothing
        return shipped
    return {**shipped, **_read(path)}


def tuned(model: LaunchModel) -> Optional[Measured]:
    """The measured schedule of a launch, if there is one and it can run.

    Raises:
        ScheduleError: The file of tuned schedules is broken.
    """
    found = _known(model.device).get((model.key, *model.size))
    if found is None:
        return None
    try:
        model.check(found.schedule)
    except ScheduleError:
        return None
    return found


def keep(model: LaunchModel, best: Measured) -> Path:
    """Write a measured schedule into this user's file of the device, in place of the entry for that work and size.

    Returns:
        The file.

    Raises:
        OSError: It cannot be written.
        ScheduleError: It is broken.
    """
    path = tuned_path(model.device)
    rows = {**_read(path), (model.key, *model.size): best}
    entries: List[Dict[str, Any]] = [
        {"work": key, "size": [width, height], "schedule": asdict(row.schedule), "us": round(row.us, 3)}
        for (key, width, height), row in sorted(rows.items())
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path, force=True) as stream:
        stream.write((json.dumps(entries, indent=1) + "\n").encode())
    _read.cache_clear()
    return path


@lru_cache(maxsize=None)
def _read(path: Path) -> Dict[Tuple[str, int, int], Measured]:
    if not os.path.exists(str(path)):  # noqa: PTH110 - False too for a home that this user may not enter
        return {}
    try:
        rows = read_json(path)
        if not isinstance(rows, list):
            raise ValueError(f"it must be a list, got {quoted(rows)}")
        return dict(map(_row, rows))
    except ValueError as err:
        reason = printable(str(err), 400)
        raise ScheduleError(f"{printable(str(path))} is no list of tuned schedules: {reason}") from err


def _row(row: Any) -> Tuple[Tuple[str, int, int], Measured]:
    """A measured schedule as files have it, and its key.

    Raises:
        ValueError: It is not a measured schedule.
    """
    try:
        work, (width, height), schedule, us = (row[name] for name in ("work", "size", "schedule", "us"))
        found = Schedule(**schedule)
    except (KeyError, TypeError, ValueError) as err:
        raise ValueError(f"{quoted(row)} lacks the keys of a measured schedule") from err
    kernel, window, *numbers = astuple(found)
    texts, sizes = (work, kernel, window), (width, height, *numbers)
    if not all(isinstance(text, str) for text in texts):
        raise ValueError(f"work, kernel and window must be text, got {quoted(texts)}")
    if not all(type(size) is int and 0 <= size <= MAX_SIZE for size in sizes):
        raise ValueError(f"sizes must be whole numbers in [0, {MAX_SIZE}], got {quoted(sizes)}")
    if type(us) not in (int, float) or not 0 <= us <= MAX_US:
        raise ValueError(f"us must be a number in [0, {MAX_US:g}], got {quoted(us)}")
    return (work, width, height), Measured(found, float(us))
