"""Pictures, comparisons and charts, against answers made by hand."""

from __future__ import annotations

import re
from pathlib import Path
from typing import List

import numpy as np
import pytest

from polar_pipeline import Pipeline
from polar_pipeline.pictures.colors import picture
from polar_pipeline.polarimetry.colormaps import AOLP_MAP, DOLP_MAP


def labels_of(page: str) -> List[str]:
    """Labels of the axes of all charts."""
    return re.findall(r"<text [^>]*>([^<]*)</text>", page)


def test_a_picture_of_stokes_vectors_has_a_color_for_each_parameter() -> None:
    """S0 from 0 to 2, S1 and S2 from -1 to 1."""
    stokes = np.array([[[2, 1, -1], [0, -1, 1], [1, 0, 0.5], [0.5, -0.5, np.nan]]], np.float32)
    assert picture("stokes", stokes).tolist() == [[[255, 255, 0], [0, 0, 255], [128, 128, 191], [0, 0, 0]]]


def test_pictures_shrink_without_mixing_angles_or_invalid_pixels() -> None:
    angles = np.tile(np.deg2rad(np.array([[1, 179, 179, 1]], np.float32)), (32, 8))
    assert {tuple(color) for color in picture("aolp", angles, 8).reshape(-1, 3)} <= {
        tuple(AOLP_MAP[k]) for k in (1, 255)
    }
    # blocks of 2x2 pixels with none to four invalid ones: the mean of the valid pixels, if there are at least two
    degrees = np.full((2, 10), 0.5, np.float32)
    degrees[:, :2] = [[0.2, 0.4], [0.4, 0.6]]
    for block in range(1, 5):
        degrees[:, 2 * block : 2 * block + 2] = np.where(np.arange(4).reshape(2, 2) < block, np.nan, 0.5)
    assert picture("dolp", degrees, 5).tolist() == [[*DOLP_MAP[[102, 128, 128]].tolist(), [0, 0, 0], [0, 0, 0]]]
    deviations = np.where(np.isnan(degrees), 255, np.rint(255 * 0.1 * degrees)).astype(np.uint8)
    assert picture("dolp_sigma", deviations, 5)[0, 3:].tolist() == [[0, 0, 0], [0, 0, 0]]
    assert picture("dolp_sigma", deviations, 5)[0, 1:3].tolist() == 2 * [DOLP_MAP[130].tolist()], "13 levels of 25.5"


def test_stokes_vectors_are_compared_in_their_ranges() -> None:
    """Of constant images, SSIM compares the means alone: (2 m n + c) / (m^2 + n^2 + c) with c = 0.01^2."""
    pytest.importorskip("mcap")
    from polar_pipeline.replay.compare import _similarity

    first, second = (np.tile(np.array(row, np.float32), (16, 16, 1)) for row in ((1.0, 0.5, -0.5), (1.0, 0.0, 0.0)))
    means = ((0.5, 0.5), (0.75, 0.5), (0.25, 0.5))
    expected = np.mean([(2 * m * n + 1e-4) / (m * m + n * n + 1e-4) for m, n in means])
    assert _similarity("stokes", first, second) == pytest.approx(expected, abs=1e-5)  # float32


def test_the_time_of_a_report_begins_with_the_first_frame() -> None:
    pytest.importorskip("jinja2")
    from polar_pipeline.quality.frame_checks import NO_FRAME
    from polar_pipeline.replay.report import render
    from polar_pipeline.replay.run import ReplayedFrame, Summary

    rows = (1.0, float("nan"), {"cpu": 0.001}), (1.5, 0.93, {"cpu": 0.004}), (3.25, 0.97, {})
    frames = [ReplayedFrame(round(1e9 * stamp), ssim=ssim, timings=timings) for stamp, ssim, timings in rows]
    text = render("t", {}, Summary(frames, 1.0, [], NO_FRAME.layout, ""))
    assert labels_of(text) == ["0.50 s", "2.25 s", "0.92", "0.98", "1 ms", "4 ms", "0", "1"]


def test_the_time_of_a_replayed_report_begins_with_the_first_frame(tmp_path: Path) -> None:
    pytest.importorskip("mcap")
    from polar_pipeline.replay.job import Job, process_recording

    (tmp_path / "frames").mkdir()
    for k in range(4):
        np.save(tmp_path / "frames" / f"{k}.npy", np.random.default_rng(k).integers(0, 200, (32, 32)).astype(np.uint8))
    with Pipeline(products="ssim", backend="cpu") as pipeline:
        process_recording(Job(tmp_path / "frames", report=tmp_path / "report.html", rate=10.0), pipeline)
    assert labels_of((tmp_path / "report.html").read_text(encoding="utf-8"))[:2] == ["0.00 s", "0.30 s"]
