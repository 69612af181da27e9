"""Pictures, comparisons and charts, against answers made by hand."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import List

import cv2
import numpy as np
import pytest

from polar_pipeline import Pipeline
from polar_pipeline.options.products import PRODUCTS
from polar_pipeline.pictures.colors import picture
from polar_pipeline.polarimetry.colormaps import AOLP_MAP, DIVERGING_MAP, DOLP_MAP


def labels_of(page: str) -> List[str]:
    """Labels of the axes of all charts."""
    return re.findall(r"<text [^>]*>([^<]*)</text>", page)


def test_planes_of_both_signs_diverge_around_0() -> None:
    """S0 is gray from 0 to 2; S1 and S2 are blue to orange from -1/4 to 1/4."""
    stokes = np.array([[[2, 0.25, -0.25], [0, -1, 1], [1, 0, 0.125], [0.5, -0.5, np.nan]]], np.float32)
    s0, s1, s2 = (picture("stokes", stokes, plane=plane)[0].tolist() for plane in range(3))
    assert s0 == [[255] * 3, [0] * 3, [128] * 3, [0] * 3]
    low, zero, half, high = DIVERGING_MAP[[1, 128, 192, 255]].tolist()
    assert s1 == [high, low, zero, [0] * 3]
    assert s2 == [low, high, half, [0] * 3]


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


def test_legends_of_a_report() -> None:
    """Bars with their numbers, angles in degrees, and wheels that take the colors of the page."""
    pytest.importorskip("jinja2")
    from polar_pipeline.quality.frame_checks import NO_FRAME
    from polar_pipeline.replay.report import render
    from polar_pipeline.replay.run import FrameProducts, Summary

    names = ("intensity", "stokes", "dolp", "aolp", "dolp_sigma", "preview", "aolp_color")
    arrays = {name: np.zeros(PRODUCTS[name].shape((8, 8), is_color=False), np.float32) for name in names}
    page = render("t", {}, Summary([], 1.0, [FrameProducts(0, arrays)], NO_FRAME.layout, ""), color_style="faded")
    figures = {name: text for text, name in re.findall(r"<figcaption>(.*?)<b>(.*?)</b>", page, re.DOTALL)}
    ends = {
        name: re.findall(r'</div>(.*?) <span style="float:right">(.*?)</span>', text) for name, text in figures.items()
    }
    assert ends == {
        "intensity": [("0", "100 % of full scale")],
        "stokes s0": [("0", "200 % of full scale")],
        "stokes s1": [("≤ -25", "≥ 25 % of full scale")],
        "stokes s2": [("≤ -25", "≥ 25 % of full scale")],
        "dolp": [("0", "1")],
        "aolp": [("0", "180 degrees")],
        "dolp_sigma": [("0", "≥ 0.1")],
        "preview": [],
        "aolp_color": [],
    }
    for name in ("preview", "aolp_color"):
        assert labels_of(figures[name]) == ["0", "45", "90", "135"] * 2
        assert "DoLP: 0 at the center, 1 at the rim" in figures[name]
        (address,) = re.findall(r'<image href="data:image/png;base64,(.*?)"', figures[name])
        wheel = cv2.imdecode(np.frombuffer(base64.b64decode(address), np.uint8), cv2.IMREAD_UNCHANGED)
        assert wheel[0, 0, 3] == 0, "transparent around it"
        assert (wheel[len(wheel) // 2, :, 3] == 255).mean() > 0.95


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
