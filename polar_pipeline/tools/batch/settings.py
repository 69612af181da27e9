"""The settings of a batch, and the key of a result."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, Mapping, Optional

from polar_pipeline.camera.recorded import camera_files
from polar_pipeline.options import Options, make_options
from polar_pipeline.recordings.limits import MAX_BYTES, SourceError
from polar_pipeline.replay.job import metadata
from polar_pipeline.tools.batch.copies import SPOOL_BYTES
from polar_pipeline.tools.batch.files import scheme_of
from polar_pipeline.tools.batch.recordings import Recording, list_recordings


@dataclass(frozen=True)
class BatchSettings:
    """Settings by which the recordings of a batch are processed.

    Attributes:
        arguments: Arguments of `Pipeline`.
        topic: Topic of the raw images; "" for the only one.
        rate: Frames per second of pictures.
        max_bytes: Largest size of one frame, and of the uncompressed chunks in memory at once.
        writes_products: Whether products and report are written, and not only the table of frames.
        compare: Folder of the golden recordings; None for no comparison.
        tolerances: Product -> largest error, in place of the defaults.
        reference: Folder of the recordings that SSIM mode `reference` compares with; None in other modes.
        spool: Folder for copies of remote recordings; None for one among each machine's temporary files.
        spool_bytes: Largest total size of these copies.
    """

    arguments: Mapping[str, Any] = field(default_factory=dict)
    topic: str = ""
    rate: Optional[float] = None
    max_bytes: int = MAX_BYTES
    writes_products: bool = True
    compare: Optional[Path] = None
    tolerances: Mapping[str, float] = field(default_factory=dict)
    reference: Optional[Path] = None
    spool: Optional[Path] = None
    spool_bytes: int = SPOOL_BYTES

    def options(self) -> Options:
        """Return the options of the pipeline.

        Raises:
            ValueError: One does not exist or is out of range.
        """
        return make_options(**{name: value for name, value in self.arguments.items() if name != "threads"})

    def described(self) -> Dict[str, str]:
        """Return options and version as text: equal on all machines that compute the same results."""
        return metadata(self.options())


def golden_of(folder: Path, name: str) -> Path:
    """Return the golden recording of a recording: from an earlier batch, or a file of its name.

    Raises:
        SourceError: The folder has no golden recording of that name.
    """
    paths = (folder / "recordings" / name / "products.mcap", folder / f"{name}.mcap")
    for path in paths:
        if path.is_file():
            return path
    raise SourceError(f"there is no golden recording {paths[0]}, nor {paths[1]}")


def result_key(settings: BatchSettings, described: Mapping[str, str], recording: Recording) -> str:
    """Return the key of a result, a hash of everything that the result depends on, as 64 hexadecimal digits.

    `described` is `BatchSettings.described` of the settings.

    Raises:
        SourceError: A golden or reference recording is missing.
        OSError: The state of the camera cannot be read.
    """
    states = [] if scheme_of(recording.location) else camera_files(Path(recording.location))
    golden = [str(golden_of(folder, recording.name)) for folder in (settings.compare, settings.reference) if folder]
    parts = [
        recording.token,
        recording.name,
        sorted(described.items()),
        [settings.topic, settings.rate, settings.max_bytes, settings.writes_products],
        sorted(settings.tolerances.items()),
        [list_recordings([path])[0].token for path in golden],
        *(hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "" for path in states),
    ]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()
