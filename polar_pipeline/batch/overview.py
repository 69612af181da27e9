"""The overview of a batch: `index.html`."""

from __future__ import annotations

import html
from dataclasses import dataclass
from pathlib import Path
from typing import Mapping, Optional, Sequence

from polar_pipeline._util.files import replacing


@dataclass(frozen=True)
class RecordingResult:
    """What came of a recording.

    Attributes:
        name: Of the recording.
        status: `ok`, `differs` or `failed`.
        reason: Why it is not `ok`.
        report: Path of its report relative to the folder of the batch.
        table: Path of its frames, likewise.
        thumbnail: PNG; may be empty.
        device: What computed it.
        seconds: How long it took.
    """

    name: str
    status: str
    reason: str
    report: Optional[str]
    table: Optional[str]
    thumbnail: bytes
    device: str
    seconds: float


def write_overview(folder: Path, results: Sequence[RecordingResult], facts: Mapping[str, str]) -> None:
    """Write `index.html`; the file is complete or not there."""
    rows = "".join(f"<tr><td>{html.escape(row.name)}<td>{row.status}<td>{html.escape(row.reason)}" for row in results)
    text = "".join(f"<p>{html.escape(name)}: {html.escape(value)}" for name, value in facts.items())
    with replacing(folder / "index.html", force=True) as stream:
        stream.write(f"<!doctype html><title>Batch</title>{text}<table>{rows}</table>".encode())
