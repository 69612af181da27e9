"""Which schedule a launch takes: what was the fastest when measured (`polar-pipeline tune`), else what is predicted."""

from __future__ import annotations

import json
import os
from functools import lru_cache
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Tuple, Union

from polar_pipeline._util.documents import read_json
from polar_pipeline._util.files import replacing
from polar_pipeline._util.folders import data_folder
from polar_pipeline._util.share import share_path
from polar_pipeline._util.text import printable, quoted
from polar_pipeline.cuda.model import schedule as polarization
from polar_pipeline.cuda.model import ssim
from polar_pipeline.cuda.model.device import Device
from polar_pipeline.cuda.model.schedule import Prediction, Schedule, ScheduleError
from polar_pipeline.cuda.model.ssim import Similarity
from polar_pipeline.cuda.model.work import Work

#: Environment variable that names the folder of the schedules that were measured here, in place of `tuned` in the
#: user's data folder.
TUNED_VARIABLE = "POLAR_PIPELINE_TUNED"
#: What the first launch does, or the second.
AnyWork = Union[Work, Similarity]
#: More than any size in a schedule, or of an image.
MAX_SIZE = 1 << 20
#: More microseconds than any frame takes.
MAX_US = 1e9


class Measured(NamedTuple):
    """The fastest schedule of a work, and microseconds a frame."""

    schedule: Schedule
    us: float


def _solver(work: AnyWork) -> Any:
    """The module that knows the schedules of a work."""
    return ssim if isinstance(work, Similarity) else polarization


def candidates(work: AnyWork, device: Device) -> List[Schedule]:
    """Every schedule that meets the hard constraints."""
    found: List[Schedule] = _solver(work).candidates(work, device)
    return found


def predict(work: AnyWork, schedule: Schedule, device: Device) -> Prediction:
    """Predicted time of one frame."""
    found: Prediction = _solver(work).predict(work, schedule, device)
    return found


def choose(work: AnyWork, device: Device) -> Schedule:
    """The measured schedule where there is one, else the one with the shortest predicted time.

    Raises:
        ScheduleError: None fits the device; the text gives need and limit.
    """
    found = tuned(work, device)
    if found is not None:
        return found.schedule
    able = candidates(work, device)
    if not able:
        _solver(work).refuse(work, device)
    return min(able, key=lambda schedule: (predict(work, schedule, device).us, schedule))


# --------------------------------------------------------------------------------------------------------------- tuned


def work_key(work: AnyWork) -> str:
    """A work as short text without its size: the key of tuned schedules."""
    if isinstance(work, Similarity):
        return f"ssim {ssim.work_key(work)}"
    parts = ["color" if work.sensor.is_color else "mono", "half" if work.half else "full"]
    if work.half and not work.co_sited:
        parts.append("own-site")
    else:
        parts.append(work.demosaic)
    if work.sensor.is_color:
        parts.append(work.debayer)
    parts += [work.raw_format, "fp16" if work.half_precision else "fp32"]
    parts.append("+".join(f"{name}:{dtype}" for name, dtype in work.outputs))
    return " ".join(parts)


def tuned_folder() -> Path:
    """Where `polar-pipeline tune` writes: `$POLAR_PIPELINE_TUNED`, by default `tuned` in the user's data folder.

    Raises:
        FileNotFoundError: The user has no home, and the variable is not set.
    """
    named = os.environ.get(TUNED_VARIABLE)
    return Path(named) if named else data_folder() / "tuned"


def tuned_path(device: Device) -> Path:
    """Where the schedules of a device lie that this user measured, or would; it raises what `tuned_folder` does."""
    return tuned_folder() / f"{device.name}.json"


def shipped_path(device: Device) -> Path:
    """Where the tuned schedules of a device lie that the package ships, if it ships any."""
    return share_path("config") / "tuned" / f"{device.name}.json"


def _known(device: Device) -> Dict[Tuple[str, int, int], Measured]:
    """The measured schedules of a device, those of this user in place of shipped ones.

    Raises:
        ScheduleError: A file of tuned schedules is broken.
    """
    shipped = _read(shipped_path(device))
    try:
        path = tuned_path(device)
    except FileNotFoundError:  # no home: nothing was measured here
        return shipped
    return {**shipped, **_read(path)}


def tuned(work: AnyWork, device: Device) -> Optional[Measured]:
    """The measured schedule of a work on a device, if there is one and it holds there.

    Raises:
        ScheduleError: The file of tuned schedules is broken.
    """
    found = _known(device).get((work_key(work), work.width, work.height))
    if found is None:
        return None
    try:
        _solver(work).check(work, found.schedule, device)
    except ScheduleError:
        return None
    return found


def keep(work: AnyWork, device: Device, best: Measured) -> Path:
    """Put a measured schedule into this user's file of the device, in place of what it holds for that work and size.

    Returns:
        The file.

    Raises:
        OSError: It cannot be written.
        ScheduleError: It is broken.
    """
    path = tuned_path(device)
    rows = {**_read(path), (work_key(work), work.width, work.height): best}
    entries: List[Dict[str, Any]] = [
        {"work": key, "size": [width, height], "schedule": row.schedule._asdict(), "us": round(row.us, 3)}
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
        said = printable(str(err), 400)
        raise ScheduleError(f"{printable(str(path))} is no list of tuned schedules: {said}") from err


def _row(row: Any) -> Tuple[Tuple[str, int, int], Measured]:
    """A measured schedule as files have it, and its key.

    Raises:
        ValueError: It is none.
    """
    try:
        work, (width, height), schedule, us = (row[name] for name in ("work", "size", "schedule", "us"))
        found = Schedule(**schedule)
    except (KeyError, TypeError, ValueError) as err:
        raise ValueError(f"{quoted(row)} has not the keys of a measured schedule") from err
    texts, sizes = (work, *found[:2]), (width, height, *found[2:])
    if not all(isinstance(text, str) for text in texts):
        raise ValueError(f"work, kernel and window must be text, got {quoted(texts)}")
    if not all(type(size) is int and 0 <= size <= MAX_SIZE for size in sizes):
        raise ValueError(f"sizes must be whole numbers in [0, {MAX_SIZE}], got {quoted(sizes)}")
    if type(us) not in (int, float) or not 0 <= us <= MAX_US:
        raise ValueError(f"us must be a number in [0, {MAX_US:g}], got {quoted(us)}")
    return (work, width, height), Measured(found, float(us))
