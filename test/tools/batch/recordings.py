"""Recordings for the tests of batches, and what a batch has written so far."""

from __future__ import annotations

from pathlib import Path
from typing import List

import numpy as np

from polar_pipeline.recordings import messages
from polar_pipeline.recordings.messages import IMAGE
from polar_pipeline.recordings.sink import open_sink

START = 1_700_000_000_000_000_000
PERIOD = 100_000_000


def record(path: Path, frames: int, side: int = 64, seed: int = 0) -> Path:
    """A recording of noise that moves; the camera starts again in the middle, and one frame is too small."""
    path.parent.mkdir(parents=True, exist_ok=True)
    raw = np.random.default_rng(seed).integers(20, 200, (side, side)).astype(np.uint8)
    with open_sink(path, {}, force=True) as sink:
        for index in range(frames):
            stamp = START + PERIOD * (index if index < frames // 2 else index - frames // 2 + 1)
            frame = np.roll(raw, index, 1)
            frame = frame[:8] if index == frames // 3 else frame
            sink.write("/raw", IMAGE, START + index * PERIOD, messages.encode_image(stamp, "cam", "mono8", frame))
    return path


def is_writing(folder: Path) -> bool:
    """Whether a worker has written products of a recording that is not complete."""
    try:
        return any(path.stat().st_size > 0 for path in folder.glob("recordings/.*.part/.products.mcap.*"))
    except OSError:  # it was just completed
        return False


def partial_files(folder: Path) -> List[Path]:
    return [path for path in folder.rglob("*") if path.name.endswith(".part")]
