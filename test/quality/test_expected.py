"""The similarity that noise alone leaves, where the output is rotated or a part of the frame."""

from __future__ import annotations

from typing import Any, Dict

import numpy as np
import pytest

from polar_pipeline import Pipeline, RawFrame
from polar_pipeline.quality.statistics import FrameQuality, measure

#: 2x2 blocks; the upper right one is dark, and more noisy than any sensor.
FRAME = np.random.default_rng(0).normal(3000, 10, (256, 256))
FRAME[:128, 128:] = np.random.default_rng(1).normal(400, 200, (128, 128))


def quality(**options: Any) -> FrameQuality:
    frame = RawFrame(FRAME.clip(0, 4000).astype(np.uint16), 4095)
    with Pipeline(products="ssim", backend="cpu", camera_gain=20.0, **options) as pipeline:
        return measure(pipeline, frame, pipeline(frame))


@pytest.mark.parametrize(
    ("options", "place"),
    [
        ({"rotate": 90}, (32, 32)),
        ({"rotate": 180}, (32, 96)),
        ({"rotate": 270}, (96, 96)),
        ({"roi": (64, 0, 64, 64)}, (32, 32)),
        ({"rotate": 270, "roi": (64, 64, 64, 64)}, (32, 32)),
    ],
)
def test_it_is_that_of_the_same_pixels(options: Dict[str, Any], place: Any) -> None:
    """A block as dark as that one could be far more alike than a bright one."""
    plain, got = quality(), quality(**options)
    assert plain.lowest is not None
    assert got.lowest is not None
    assert (plain.lowest.x, plain.lowest.y, got.lowest.x, got.lowest.y) == (96, 32, *place)
    assert quality(roi=(0, 0, 64, 64)).expected < 0.9 < plain.expected
    assert got.expected == pytest.approx(plain.expected, abs=5e-3)  # centers are rounded by a pixel, a 64th
