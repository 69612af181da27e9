"""Files of schedules: shipped for each architecture, and measured by `polar-pipeline tune`."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Optional, Tuple, Type, get_type_hints

from polar_pipeline._util.documents import read_json
from polar_pipeline._util.files import replacing
from polar_pipeline._util.share import share_path
from polar_pipeline._util.text import printable
from polar_pipeline.backends.backend import ScheduleError
from polar_pipeline.backends.cuda.device import Device
from polar_pipeline.backends.cuda.kernels import Schedule
from polar_pipeline.backends.cuda.work import Work

#: Environment variable that names the folder of the schedules measured by this user, in place of `tuned` in the user's
#: data folder.
TUNED_VARIABLE = "POLAR_PIPELINE_TUNED"
#: Field of a schedule -> its type.
_TYPES: Mapping[str, Type[Any]] = get_type_hints(Schedule)


@dataclass(frozen=True)
class Measured:
    """Fastest schedule of a work, and its microseconds per frame, or None if a shipped one was predicted."""

    schedule: Schedule
    us: Optional[float]


#: (work, width, height) -> its fastest schedule.
_Table = Dict[Tuple[str, int, int], Measured]


def tuned_folder() -> Path:
    """Return the folder of `polar-pipeline tune`: `$POLAR_PIPELINE_TUNED`, else one in the user's data folder.

    The XDG Base Directory Specification defines the latter. Not platformdirs: its releases for Python 3.8 take a
    relative variable as a folder below the current one, while the specification has it ignored.

    Raises:
        FileNotFoundError: The user has no home, and neither variable is set.
    """
    named = os.environ.get(TUNED_VARIABLE)
    if named:
        return Path(named)
    data = Path(os.environ.get("XDG_DATA_HOME", ""))
    if not data.is_absolute():
        data = Path("~/.local/share")
        with suppress(RuntimeError, KeyError):  # the latter up to Python 3.8
            data = data.expanduser()
        if not data.is_absolute():
            raise FileNotFoundError("this user has no home folder; set XDG_DATA_HOME to a folder of your own")
    return data / "polar_pipeline" / "tuned"


def tuned_path(device: Device) -> Path:
    """Return the path of this user's schedules for a device; it need not exist. Raises as `tuned_folder`."""
    return tuned_folder() / f"{device.name}.json"


def shipped_path(device: Device) -> Path:
    """Return the path of the schedules that the package ships for an architecture; it need not exist."""
    return share_path("config") / "tuned" / f"sm_{device.capability}.json"


def tuned(work: Work, device: Device) -> Iterator[Tuple[str, Measured]]:
    """Yield (`measured` by this user or `shipped`, schedule) of a work: the nearest size first, then the best.

    Raises:
        ScheduleError: A file of measured schedules is broken.
    """
    tables = {"shipped": _read(shipped_path(device))}
    with suppress(FileNotFoundError):  # no home: this user measured nothing
        tables = {"measured": _read(tuned_path(device)), **tables}
    width, height = work.size
    for basis, table in tables.items():
        rows = [(abs(x * y - width * height), found) for (key, x, y), found in table.items() if key == work.key]
        yield from ((basis, found) for _, found in sorted(rows, key=lambda row: row[0]))


def keep(work: Work, device: Device, best: Measured) -> Path:
    """Write a measured schedule into this user's file of the device, in place of the entry for that work and size.

    Returns:
        The file.

    Raises:
        OSError: The file cannot be written.
        ScheduleError: The file is broken.
    """
    path = tuned_path(device)
    rows = {**_read(path), (work.key, *work.size): best}
    entries: List[Dict[str, Any]] = [
        {
            "work": key,
            "size": [width, height],
            "schedule": asdict(row.schedule),
            "us": row.us,
        }
        for (key, width, height), row in sorted(rows.items())
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path, force=True) as stream:
        stream.write((json.dumps(entries, indent=1) + "\n").encode())
    _read.cache_clear()
    return path


@lru_cache(maxsize=None)
def _read(path: Path) -> _Table:
    if not os.path.exists(str(path)):  # noqa: PTH110 - False too for a home that this user may not enter
        return {}
    try:
        return dict(map(_row, read_json(path)))
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as err:
        reason = printable(f"{type(err).__name__}: {err}", 400)
        raise ScheduleError(f"{printable(str(path))} is not a list of tuned schedules: {reason}") from err


def _row(row: Any) -> Tuple[Tuple[str, int, int], Measured]:
    """Return a measured schedule in the form of files, and its key, without fields of former versions.

    Values are not checked here: `solve` takes a schedule only if its kernel offers the same one.

    Raises:
        KeyError: It is not a measured schedule; or an AttributeError, a TypeError, a ValueError, or an OverflowError.
    """
    work, (width, height), schedule, us = (row[name] for name in ("work", "size", "schedule", "us"))
    found = Schedule(**{name: kind(schedule[name]) for name, kind in _TYPES.items() if name in schedule})
    return (str(work), int(width), int(height)), Measured(found, None if us is None else float(us))
