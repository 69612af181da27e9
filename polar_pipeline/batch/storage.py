"""Recordings of a batch: where they are, and what identifies their content."""

from __future__ import annotations

import hashlib
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Iterator, List, Sequence

from polar_pipeline.replay.limits import SourceError
from polar_pipeline.replay.source import is_recording, recording_of


@dataclass(frozen=True)
class Recording:
    """A recording.

    Attributes:
        name: Unique in the batch, and a name for a folder.
        location: Path or URL.
        size: In bytes.
        token: Identifies the content.
    """

    name: str
    location: str
    size: int
    token: str


def list_recordings(sources: Sequence[str]) -> List[Recording]:
    """The recordings that paths name: files, rosbag2 folders, and folders of them.

    Raises:
        SourceError: There is no such file.
    """
    found: List[Recording] = []
    for source in sources:
        path = Path(source)
        if not path.exists():
            raise SourceError(f"{path} does not exist")
        inner = [path]
        if path.is_dir() and not (path / "metadata.yaml").exists():
            inner = [row for row in sorted(path.iterdir()) if row.is_dir() or is_recording(row)]
        for row in map(recording_of, inner):
            files = [row] if row.is_file() else sorted(part for part in row.rglob("*") if part.is_file())
            digest = hashlib.sha256()
            for part in files:
                digest.update(f"{part.name} {part.stat().st_size} {part.stat().st_mtime_ns}\n".encode())
            size = sum(part.stat().st_size for part in files)
            found.append(Recording(row.stem, str(row), size, digest.hexdigest()))
    return found


@contextmanager
def local_copy(recording: Recording, spool: Path, max_bytes: int) -> Iterator[Path]:
    """The recording as a local path: its own.

    Args:
        recording: The recording.
        spool: Folder for copies.
        max_bytes: Most that they may take together.
    """
    if "://" in recording.location:
        raise SourceError(f"{recording.location} cannot be fetched into {spool} within {max_bytes} bytes")
    yield Path(recording.location)
