"""Products as uint16: the float products, rounded to levels of 65535 to 1, and of 65536 to pi."""

from __future__ import annotations

import numpy as np

from polar_pipeline import Pipeline
from polar_pipeline.sensor.mosaic import SENSORS


def test_aolp_wraps_at_pi(backend: str) -> None:
    """Angles within half a level of pi are 0, others the highest level."""
    # with S1 = 60000, an S2 of 2.88 is half a level
    for s2, level in ((0, 0), (2, 0), (-2, 0), (4, 1), (-4, 65535), (-9, 65534)):
        raw = np.zeros((32, 32), np.uint16)
        mosaic = SENSORS["IMX250MZR"]
        for angle, value in ((0, 60000), (45, 500 + max(s2, 0)), (90, 0), (135, 500 - min(s2, 0))):
            row, column = mosaic.position(angle)
            raw[row::2, column::2] = value
        with Pipeline(mosaic, "aolp", backend, dtype="uint16", co_sited=False) as pipeline:
            out = pipeline(raw)["aolp"]
        exact = round(np.arctan2(s2, 60000) / 2 / np.pi * 65536) % 65536
        assert exact == level
        assert np.all(out == level), s2
