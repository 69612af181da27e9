"""The folder of a batch: where results are, and which of them are complete."""

from __future__ import annotations

import base64
import json
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Dict, Optional

from polar_pipeline._util.documents import read_json
from polar_pipeline._util.files import PARTIAL, remove_leftovers
from polar_pipeline.batch.overview import RecordingResult
from polar_pipeline.batch.table import table_path

#: Folders of a batch: results by recording, their tables, and segments that were not merged yet.
RECORDINGS, FRAMES, SEGMENTS = "recordings", "frames", "segments"
#: File of a batch's folder with its settings, and the names of its recordings.
SETTINGS = "batch.json"
#: File of a result's folder that says which unit it is of.
RESULT = "result.json"


@dataclass(frozen=True)
class Outcome:
    """What came of a recording.

    Attributes:
        name: Of the recording.
        unit: What identifies the unit (`unit_of`).
        status: `ok`, `differs` or `failed`.
        reason: Why it is not `ok`.
        frames: Frames processed.
        rejected: Frames that could not be used.
        device: What computed it.
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

    def encoded(self) -> bytes:
        """As the file `RESULT` holds it."""
        return json.dumps(asdict(self), indent=1).encode()

    def shown(self) -> RecordingResult:
        """As the overview lists it."""
        is_there = self.status != "failed"
        return RecordingResult(
            self.name,
            self.status,
            self.reason,
            f"{RECORDINGS}/{self.name}/report.html" if self.has_products and is_there else None,
            f"{FRAMES}/recording={self.name}" if is_there else None,
            base64.b64decode(self.thumbnail),
            self.device,
            self.seconds,
        )


def result_folder(folder: Path, name: str) -> Path:
    """Where the results of a recording are."""
    return folder / RECORDINGS / name


def segment_folder(folder: Path, name: str, unit: str) -> Path:
    """Where a segment waits until it is merged."""
    return folder / SEGMENTS / name / unit


def completed(folder: Path, name: str, unit: Optional[str]) -> Optional[Outcome]:
    """The complete result of a unit; None where there is none, or one of another unit.

    Args:
        folder: Of the batch.
        name: Of the recording.
        unit: Which unit; None for any.
    """
    try:
        values = read_json(result_folder(folder, name) / RESULT)
        outcome = Outcome(**values)
    except (OSError, ValueError, TypeError):
        return None
    is_wanted = unit in (None, outcome.unit) and outcome.name == name
    return outcome if is_wanted and table_path(folder, name).is_file() else None


def known_names(folder: Path) -> Dict[str, str]:
    """Location of a recording -> its name in the last run into a folder; empty where there was none."""
    try:
        names = json.loads((folder / SETTINGS).read_text(encoding="utf-8"))["names"]
        return {str(location): str(name) for location, name in names.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def make_folders(folder: Path) -> None:
    """Make the folders of a batch, and remove what killed processes left in them.

    Raises:
        OSError: They cannot be made.
    """
    for name in (RECORDINGS, FRAMES):
        (folder / name).mkdir(parents=True, exist_ok=True)
    clean(folder)


def clean(folder: Path) -> None:
    """Remove incomplete files and folders that no process holds, and folders of segments that are empty."""
    remove_leftovers(folder, rf"\..+{PARTIAL}")
    remove_leftovers(folder / RECORDINGS, rf"\..+{PARTIAL}")
    for place in (SEGMENTS, FRAMES):
        with suppress(OSError):
            for inner in (folder / place).iterdir():
                remove_leftovers(inner, rf"\..+{PARTIAL}")
    for empty in (*(folder / SEGMENTS).glob("*"), folder / SEGMENTS):
        with suppress(OSError):
            empty.rmdir()
