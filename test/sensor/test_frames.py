"""The raw frames in the folder `frames`: what their README says of them, and that they are a camera's."""

from __future__ import annotations

import hashlib
import re
from typing import Any

import numpy as np
import pytest
from raw_frames import picture_pixels
from support import FRAMES, REAL_FRAMES, real_frame

from polar_pipeline import Pipeline
from polar_pipeline.sensor.mosaic import ANGLES

PLANES = tuple(f"angle_{angle}" for angle in ANGLES)
README = (FRAMES / "README.md").read_text(encoding="utf-8")


def test_every_frame_is_listed_with_the_license() -> None:
    assert sorted(path.name for path in FRAMES.iterdir()) == ["LICENSE", "README.md", *REAL_FRAMES]
    assert tuple(re.findall(r"^\| `(\w+\.png)`", README, re.MULTILINE)) == REAL_FRAMES
    notice = (FRAMES / "LICENSE").read_text(encoding="utf-8")
    assert re.match(
        r"MIT License\n\nCopyright \(c\) \d{4} \S.*\n\nPermission is hereby granted, free of charge", notice
    )
    assert "The above copyright notice and this permission notice shall be included" in " ".join(notice.split())


@pytest.mark.parametrize("name", REAL_FRAMES)
def test_pixels_are_those_of_the_source(name: str) -> None:
    (digest,) = re.findall(rf"^\| `{name}` .* `([0-9a-f]{{64}})` \|$", README, re.MULTILINE)
    raw = real_frame(name)
    assert (raw.shape, raw.dtype) == ((2048, 2448), np.uint8)
    assert hashlib.sha256(raw.tobytes()).hexdigest() == digest
    np.testing.assert_array_equal(picture_pixels(FRAMES / name), raw)


def disagreement(raw: np.ndarray, **options: Any) -> float:
    """Root mean square of (I0 + I90) - (I45 + I135), which is 0 by Malus' law, in levels of 255."""
    out = Pipeline("IMX250MZR", PLANES, backend="cpu", **options)(raw)
    residual = out["angle_0"] + out["angle_90"] - out["angle_45"] - out["angle_135"]
    return 255 * float(np.sqrt(np.mean(residual**2)))


@pytest.mark.parametrize("name", REAL_FRAMES)
def test_better_interpolation_brings_the_polarizers_of_a_real_frame_together(name: str) -> None:
    """What is left of the residual is noise and gain of the sensor: there is no truth to compare with."""
    raw = real_frame(name)
    assert disagreement(raw, co_sited=True) < disagreement(raw, co_sited=False) - 0.3
    bilinear, gradient, adaptive = (
        disagreement(raw, resolution="full", demosaic=method) for method in ("bilinear", "gradient", "adaptive")
    )
    assert adaptive < gradient - 0.02 < bilinear - 0.04
