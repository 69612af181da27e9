"""Summaries of replays made by hand, for the tests of batches."""

from __future__ import annotations

from typing import Any, List, Optional

import numpy as np

from polar_pipeline.quality.layout import LayoutCheck
from polar_pipeline.quality.statistics import FrameQuality, Spot
from polar_pipeline.replay.run import FrameProducts, ReplayedFrame, Summary

#: 2023-11-14 22:13:20 UTC, 20 s into a minute.
START = 1_700_000_000 * 10**9
PERIOD = 10**9 // 25


def frame(index: int, **figures: Any) -> ReplayedFrame:
    """A processed frame of a recording at 25 Hz.

    Args:
        index: Its place, from which its stamp follows.
        **figures: `lowest`, `x`, `y`, `place`, `total` in seconds, `mark`, and the fields of the quality and the frame.
    """
    given = {"lowest": 0.75, "x": 16, "y": 48, "place": "lower left", "total": 0.01, "mark": index, **figures}
    spot = Spot(given["lowest"], given["x"], given["y"], given["place"]) if given["lowest"] is not None else None
    quality = FrameQuality(
        given.get("ssim", 0.875), spot, given.get("saturated", 0.25), given.get("dark", 0.125), given["mark"]
    )
    timings = {"decode": 0.001, "polarization": given["total"] - 0.001, "total": given["total"]}
    means = (given.get("intensity", 0.5), given.get("dolp", 0.0625))
    stamp = given.get("stamp", START + index * PERIOD)
    return ReplayedFrame(stamp, "", "", timings, given.get("late", False), given.get("ssim", 0.875), quality, *means)


def summary(frames: List[ReplayedFrame], period: float = PERIOD / 1e9, fits: Optional[bool] = True) -> Summary:
    """A replay of these frames, with a sample."""
    y, x = np.mgrid[:80, :96]
    samples = [FrameProducts(START, {"intensity": ((x + y) % 256).astype(np.uint8)})]
    return Summary(frames, period, samples, LayoutCheck(fits, ""), "cpu")
