"""The folder of a batch: outcomes of recordings, and which of them are complete."""

from __future__ import annotations

import json
import logging
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, Optional, get_type_hints

from polar_pipeline._util.files import PARTIAL, remove_leftovers
from polar_pipeline.tools.batch.recordings import is_name
from polar_pipeline.tools.batch.table import table_path

#: Folders of a batch: results by recording, and their tables.
RECORDINGS, FRAMES = "recordings", "frames"
#: Files with the settings of a batch, the outcome of a recording, and products.
SETTINGS, RESULT, PRODUCTS = "batch.json", "result.json", "products.mcap"
#: Table of a recording in the folder of its result, where queries do not find it: the last run had other settings.
TABLE = "frames.parquet"
#: The page with all recordings.
PAGE = "index.html"
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Outcome:
    """Result of a recording, as its `result.json` has it.

    Attributes:
        name: Name of the recording.
        unit: Key of the result (`result_key`).
        status: `ok`, `differs` or `failed`, for the `reason`.
        frames: Frames processed, without those `rejected`.
        thumbnail: PNG in Base64; may be empty.
        has_products: Whether products and a report were written.
        warnings: What looks wrong about its frames.
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
    warnings: str = ""


def result_folder(folder: Path, name: str) -> Path:
    """Return the folder of the results of a recording."""
    return folder / RECORDINGS / name


def completed(folder: Path, name: str, unit: str) -> Optional[Outcome]:
    """Return the complete result of a recording; None if there is none, or one of another unit.

    A table that `set_table_aside` moved returns to its place.
    """
    path = result_folder(folder, name) / RESULT
    try:
        outcome = Outcome(**json.loads(path.read_text(encoding="utf-8")))
        for field, kind in get_type_hints(Outcome).items():
            if not isinstance(getattr(outcome, field), kind):
                raise TypeError(f"{field} is not of type {kind.__name__}")
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError) as err:
        _LOG.warning("%s is not understood, and its recording is processed again: %s", path, err)
        return None
    if (outcome.name, outcome.unit) != (name, unit):
        return None
    table = table_path(folder, name)
    if not table.is_file():
        with suppress(OSError):
            (result_folder(folder, name) / TABLE).replace(table)
    return outcome if table.is_file() else None


def set_table_aside(folder: Path, name: str) -> None:
    """Move the table of a result of another unit into the folder of the result: queries are over one run's tables.

    Raises:
        OSError: The table cannot be moved.
    """
    result = result_folder(folder, name)
    if (result / RESULT).exists():
        with suppress(FileNotFoundError, NotADirectoryError):
            table_path(folder, name).replace(result / TABLE)


def recorded_names(folder: Path) -> Dict[str, str]:
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
        OSError: A folder cannot be made, or the page would replace one that no batch wrote.
    """
    if (folder / PAGE).exists() and not (folder / SETTINGS).exists():
        raise FileExistsError(f"{folder} has an {PAGE} that no batch wrote; choose another folder")
    for name in (RECORDINGS, FRAMES):
        (folder / name).mkdir(parents=True, exist_ok=True)
    clean(folder)


def clean(folder: Path) -> None:
    """Remove incomplete files and folders that no process holds."""
    for place in (folder, folder / RECORDINGS, *folder.glob(f"{FRAMES}/*")):
        remove_leftovers(place, rf"\..+{PARTIAL}")
