"""The folder of a batch: outcomes of recordings, which of them are complete, and segments that were not merged yet."""

from __future__ import annotations

import json
import logging
import re
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, TypeVar, get_type_hints

from polar_pipeline._util.files import PARTIAL, remove_leftovers
from polar_pipeline.batch.recordings import is_name
from polar_pipeline.batch.table import table_path
from polar_pipeline.quality.layout import LayoutCheck
from polar_pipeline.quality.statistics import FrameQuality, Spot
from polar_pipeline.replay.compare import Tally
from polar_pipeline.replay.limits import Span
from polar_pipeline.replay.run import ReplayedFrame, Summary
from polar_pipeline.replay.segment import Part

#: Folders of a batch: results by recording, their tables, and segments that were not merged yet.
RECORDINGS, FRAMES, SEGMENTS = "recordings", "frames", "segments"
#: Files with the settings of a batch, the outcome of a recording, the figures of a segment, and products.
SETTINGS, RESULT, STATE, PRODUCTS = "batch.json", "result.json", "segment.json", "products.mcap"
#: Table of a recording in the folder of its result, where queries do not find it: the last run had other settings.
TABLE = "frames.parquet"
#: The page with all recordings.
PAGE = "index.html"
#: Name of the folder of a segment.
_SEGMENT = r"[0-9a-f]{64}(_-?\d+){2}"
_LOG = logging.getLogger(__name__)
Content = TypeVar("Content")
#: Classes of the figures of a segment, by name.
_CLASSES: Dict[str, Any] = {
    kind.__name__: kind for kind in (Summary, ReplayedFrame, FrameQuality, Spot, LayoutCheck, Tally)
}


@dataclass(frozen=True)
class Outcome:
    """Result of a recording.

    Attributes:
        name: Name of the recording.
        unit: Identity of the result (`unit_of`).
        status: `ok`, `differs` or `failed`.
        reason: Why it is not `ok`.
        frames: Frames processed.
        rejected: Frames that could not be used.
        device: Device that computed it.
        seconds: How long it took, the segments together.
        thumbnail: PNG in Base64; may be empty.
        has_products: Whether products and a report were written.
    """

    name: str
    unit: str
    status: str
    reason: str
    frames: int = 0
    rejected: int = 0
    device: str = ""
    seconds: float = 0.0
    thumbnail: str = ""
    has_products: bool = False


def result_folder(folder: Path, name: str) -> Path:
    """Return the folder of the results of a recording."""
    return folder / RECORDINGS / name


def segment_folder(folder: Path, name: str, unit: str, span: Span) -> Path:
    """Return the folder of a segment that was not merged yet, of a recording whose result has the identity `unit`."""
    return folder / SEGMENTS / name / f"{unit}_{span[0]}_{span[1]}"


def segment_folders(folder: Path, name: str) -> List[Path]:
    """List the folders of segments of a recording, also those of another `unit`; other folders may lie beside them."""
    return [path for path in (folder / SEGMENTS / name).glob("*") if re.fullmatch(_SEGMENT, path.name)]


def completed(folder: Path, name: str, unit: str) -> Optional[Outcome]:
    """Return the complete result of a recording; None if there is none, or one of another unit.

    A table that `set_table_aside` moved returns to its place.

    Args:
        folder: Folder of the batch.
        name: Name of the recording.
        unit: Identity of the result.
    """
    outcome = _loaded(result_folder(folder, name) / RESULT, "recording", _outcome)
    if outcome is None or (outcome.name, outcome.unit) != (name, unit):
        return None
    table = table_path(folder, name)
    if not table.is_file():
        with suppress(OSError):
            (result_folder(folder, name) / TABLE).replace(table)
    return outcome if table.is_file() else None


def _outcome(values: Dict[str, Any]) -> Outcome:
    outcome = Outcome(**values)
    for name, kind in get_type_hints(Outcome).items():
        if not isinstance(getattr(outcome, name), kind):
            raise TypeError(f"{name} is not of type {kind.__name__}")
    return outcome


def set_table_aside(folder: Path, name: str) -> None:
    """Move the table of a result of another unit into the folder of the result: queries are over one run's tables.

    Raises:
        OSError: The table cannot be moved.
    """
    result = result_folder(folder, name)
    if (result / RESULT).exists():
        with suppress(FileNotFoundError, NotADirectoryError):
            table_path(folder, name).replace(result / TABLE)


def known_names(folder: Path) -> Dict[str, str]:
    """Return location of a recording -> its name in the last run into a folder; empty if there was none.

    Values that are not a name, such as `../elsewhere`, are left out.
    """
    try:
        names = json.loads((folder / SETTINGS).read_text(encoding="utf-8"))["names"]
        return {location: name for location, name in names.items() if is_name(name)}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def make_folders(folder: Path) -> None:
    """Make the folders of a batch, and remove incomplete files of killed processes.

    Raises:
        OSError: They cannot be made, or the page would replace one that no batch wrote.
    """
    if (folder / PAGE).exists() and not (folder / SETTINGS).exists():
        raise FileExistsError(f"{folder} has an {PAGE} that no batch wrote; choose another folder")
    for name in (RECORDINGS, FRAMES):
        (folder / name).mkdir(parents=True, exist_ok=True)
    clean(folder)


def clean(folder: Path) -> None:
    """Remove incomplete files and folders that no process holds, and folders of segments that are empty."""
    for place in (folder, folder / RECORDINGS, *folder.glob(f"{SEGMENTS}/*"), *folder.glob(f"{FRAMES}/*")):
        remove_leftovers(place, rf"\..+{PARTIAL}")
    for empty in (*(folder / SEGMENTS).glob("*"), folder / SEGMENTS):
        with suppress(OSError):
            empty.rmdir()


def write_part(folder: Path, part: Part) -> None:
    """Write the figures of a segment without its samples.

    Raises:
        OSError: They cannot be written.
    """
    values = {"summary": replace(part.summary, samples=[]), "tallies": part.tallies}
    (folder / STATE).write_text(json.dumps(values, default=_plain), encoding="utf-8")


def read_part(folder: Path) -> Optional[Part]:
    """Read a segment that `write_part` wrote; None if there is none, or it is not understood."""

    def _part(values: Dict[str, Any]) -> Part:
        if not isinstance(values["summary"], Summary):
            raise TypeError("it is of another version")
        products = folder / PRODUCTS
        return Part(values["summary"], values["tallies"], products if products.exists() else None)

    return _loaded(folder / STATE, "segment", _part)


def _loaded(path: Path, what: str, make: Callable[[Any], Content]) -> Optional[Content]:
    """Return what is made of a file of JSON; None if there is none, or it is not understood, which is logged."""
    try:
        return make(json.loads(path.read_text(encoding="utf-8"), object_hook=_made))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError) as err:
        _LOG.warning("%s is not understood, and its %s is processed again: %s", path, what, err)
        return None


def _plain(value: Any) -> Any:
    """Convert a value of these classes, or a number of NumPy, for JSON."""
    if type(value).__name__ in _CLASSES:
        return {"class": type(value).__name__, **{row.name: getattr(value, row.name) for row in fields(value)}}
    return float(value)


def _made(values: Dict[str, Any]) -> Any:
    """Restore a value that `_plain` converted."""
    kind = _CLASSES.get(values.pop("class", ""))
    return kind(**values) if kind else values
