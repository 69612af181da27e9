"""The report of a calibration: what it says, and that nothing from outside can change its structure."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from typing import List, Tuple
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from sessions import estimate

import polar_pipeline
from polar_pipeline.calibrate.defects import CAUSES
from polar_pipeline.calibrate.estimate import CalibrationResult
from polar_pipeline.calibrate.report import BAD, GOOD, block_means, defect_picture, render_calibration
from polar_pipeline.calibrate.synthetic import Bench
from polar_pipeline.calibration import Calibration
from polar_pipeline.calibration.simulation import Deviations, simulate_sensor
from polar_pipeline.sensor.mosaic import SENSORS

MONO = SENSORS["IMX250MZR"]
BENCH = Bench(tuple(range(0, 180, 20)), 4, 16, drift=0.02)
SECTIONS = ("Expected errors", "Pixels", "Defective pixels", "Settings of the polarizer", "Noise")
QUANTITIES = ("Gain", "Angle deviation", "Extinction ratio", "Black level", "Residual", "Light")


class Page:
    """The elements of a page: every one is closed in its turn, or the page is none.

    Attributes:
        tags: Number of elements by name.
        headings: Texts of h1, h2 and h3.
        tables: Rows of cells of each table.
        items: Texts of list items.
        text: All text that is shown.
    """

    def __init__(self, text: str) -> None:
        root = ET.fromstring(re.sub(r"<(meta|img|br)\b([^>]*)>", r"<\1\2/>", text.partition("\n")[2]))
        assert not any(name.startswith("on") for element in root.iter() for name in element.attrib)
        self.tags = Counter(element.tag for element in root.iter())
        self.headings = {tag: [element.text for element in root.iter(tag)] for tag in ("h1", "h2", "h3")}
        self.tables = [
            [["".join(cell.itertext()) for cell in row] for row in found.iter("tr")] for found in root.iter("table")
        ]
        self.items = [element.text for element in root.iter("li")]
        self.text = "".join(root[1].itertext())


@pytest.fixture(scope="module")
def result() -> CalibrationResult:
    """Of a sensor with defects."""
    return estimate(simulate_sensor(MONO, (64, 96), 2, Deviations(defects=1e-3)), BENCH)


def table(page: Page, corner: str) -> List[List[str]]:
    """The rows below the first one of the table whose first cell is this."""
    (found,) = [rows for rows in page.tables if rows[0][0] == corner]
    return found[1:] if corner != "sensor" else found


def changed(result: CalibrationResult, **facts: object) -> CalibrationResult:
    """The result with other facts in its calibration."""
    old = result.calibration
    new = Calibration(old.sensor, old.offset, old.codes, old.scales, old.defects, old.bit_depth, {**old.facts, **facts})
    return replace(result, calibration=new)


def test_it_has_every_section_and_needs_nothing(result: CalibrationResult) -> None:
    text = render_calibration(result, "session")
    page = Page(text)
    assert text.startswith("<!DOCTYPE html>\n")
    assert page.headings["h1"] == ["Calibration of IMX250MZR from session"]
    assert page.headings["h2"] == list(SECTIONS)
    assert page.headings["h3"] == list(QUANTITIES)
    assert "No warnings." in page.text
    assert page.tags["img"] == len(QUANTITIES) + 1  # a map each, and the defects
    assert page.tags["svg"] == len(QUANTITIES) + 3  # a histogram each, lamp, residual, photon transfer curve
    assert page.tags["figcaption"] == page.tags["img"] + page.tags["svg"]
    assert page.tags["title"] > len(QUANTITIES)  # the page's, and the count of every bar
    assert "http" not in text
    assert "script" not in page.tags
    assert "nan" not in page.text.lower()


def test_facts(result: CalibrationResult) -> None:
    noted = changed(result, temperature=21.5, exposure=8.0, flat_field=True)
    facts = dict(table(Page(render_calibration(noted, "s")), "sensor"))
    assert facts == {
        "sensor": "IMX250MZR (90 45 / 135 0)",
        "size": "96x64 pixels from (0, 0) of the sensor's own readout",
        "bit depth": "12",
        "frames": "36 of 9 polarizer settings, 16 dark",
        "angles": "given",
        "lens shading": "corrected (--flat-field)",
        "temperature": "21.5 degrees Celsius",
        "exposure": "8.0 ms",
        "sha256": noted.calibration.digest,
        "polar_pipeline": polar_pipeline.__version__,
    }
    assert dict(table(Page(render_calibration(result, "s")), "sensor"))["lens shading"] == "kept"


def test_errors_and_pixels_are_those_of_the_result(result: CalibrationResult) -> None:
    page = Page(render_calibration(result, "s"))
    rows = np.array(table(page, "DoLP"), float)
    expected = [(row.dolp, row.dolp_before, row.dolp_error, row.aolp_before, row.aolp_error) for row in result.errors]
    np.testing.assert_allclose(rows, expected, rtol=0, atol=0.0051)  # two decimals of degrees
    np.testing.assert_allclose(rows[:, 1:3], np.array(expected)[:, 1:3], rtol=0, atol=0.000051)
    used = np.ones((64, 96), bool)
    used[tuple(result.calibration.defects.T)] = False
    images = (
        100 * (result.gain - 1),
        result.angle,
        result.extinction,
        100 * result.black,
        result.excess,
        100 * result.light,
    )
    found = table(page, "")
    assert [row[0] for row in found] == [
        "gain [%]",
        "angle deviation [degrees]",
        "extinction ratio [:1]",
        "black level [%]",
        "residual [x noise]",
        "light [%]",
    ]
    for row, image, unit in zip(found, images, (0.01, 0.01, 1, 0.001, 0.01, 0.1)):
        good = np.sort(image[used])
        means = [good.mean(), good.std(), np.median(good)]
        np.testing.assert_allclose([float(row[k]) for k in (1, 2, 4)], means, rtol=0, atol=0.51 * unit)
        # one pixel in a thousand lies below the lowest value, and above the highest; both are rounded to `unit`
        k = int(0.001 * (good.size - 1))
        assert good[k] - unit / 2 <= float(row[3]) <= good[k + 1] + unit / 2
        assert good[-2 - k] - unit / 2 <= float(row[5]) <= good[-1 - k] + unit / 2


def test_every_cause_of_a_defect_is_counted_and_explained(result: CalibrationResult) -> None:
    page = Page(render_calibration(result, "s"))
    rows = table(page, "cause")
    assert [row[0] for row in rows] == list(CAUSES)
    assert len({row[2] for row in rows}) == len(CAUSES)
    counts = [int((np.bitwise_and(result.causes, 2**k) > 0).sum()) for k in range(len(CAUSES))]
    assert [int(row[1]) for row in rows] == counts
    assert sum(counts) > 0
    assert f"{len(result.calibration.defects)} pixels cannot be used" in page.text


def test_settings_are_listed(result: CalibrationResult) -> None:
    rows = table(Page(render_calibration(result, "s")), "setting")
    lamp = 1 - 0.02 * np.linspace(0, 1, 9)
    for k, row in enumerate(rows):
        assert row[:3] == [str(k), f"{20 * k}.00", "given"]
        assert float(row[3]) == pytest.approx(lamp[k] / lamp.mean(), abs=1e-3)  # noise of the lamp, as in test_estimate
        assert float(row[4]) == pytest.approx(100 * result.deviations[k], abs=5.1e-5)
        assert row[5] == "4"
    assert len(rows) == 9


def test_unknown_angles_and_noise() -> None:
    bench = replace(BENCH, frames=1)
    found = estimate(simulate_sensor(MONO, (64, 96), 2), bench, angles=dict.fromkeys(range(9)))
    page = Page(render_calibration(found, "s"))
    assert dict(table(page, "sensor"))["angles"] == "estimated from the frames"
    for row, angle in zip(table(page, "setting"), found.angles):
        assert row[1:3] == [f"{angle:.2f}", "estimated"]
    assert "Unknown: it takes two or more frames of each setting" in page.text
    assert page.tags["svg"] == len(QUANTITIES) + 2


def test_photon_transfer_curve(result: CalibrationResult) -> None:
    """Its line against full well and read noise in units of levels, and its dots against the line."""
    text = render_calibration(result, "s")
    assert result.noise is not None
    page = Page(text)
    facts = dict(page.tables[-1])
    assert facts["full well"] == f"{result.noise.full_well:.0f} electrons"
    assert facts["read noise"] == f"{result.noise.read_noise:.2f} electrons"
    chart = text[text.rindex("<svg") :]
    dots = np.array(re.findall(r'cx="([0-9.]+)" cy="([0-9.]+)"', chart), float)
    (x0, y0), (x1, y1) = (
        tuple(map(float, pair.split(","))) for pair in re.findall(r'points="([^"]+)"', chart)[-1].split()
    )
    off = dots[:, 1] - (y0 + (dots[:, 0] - x0) / (x1 - x0) * (y1 - y0))
    assert len(dots) > 50
    # variances of 1536 pixels are known to sqrt(2/1536), 3.6 %, of at most 150 pixels
    assert np.sqrt(np.mean(off**2)) < 0.036 * 150


# ------------------------------------------------------------------------------------------------------------- outside


def test_warnings_come_first(result: CalibrationResult) -> None:
    advice = ("only 4 settings: take <b>18</b>", "dark & bright")
    text = render_calibration(replace(result, warnings=list(advice)), "s")
    page = Page(text)
    assert page.items == list(advice)
    assert page.headings["h2"] == ["Warnings", *SECTIONS]
    assert text.index("take &lt;b&gt;18") < text.index("<table>")
    assert "No warnings." not in page.text


def test_hostile_names_are_escaped(result: CalibrationResult) -> None:
    hostile = "<script>alert('1')</script>\x1b[31m"
    names = (hostile, '"><img src=x onerror=alert(1)>', *result.settings[2:])
    page = Page(render_calibration(replace(result, settings=names, warnings=[hostile]), hostile))
    plain = Page(render_calibration(replace(result, warnings=["w"]), "s"))
    assert page.tags == plain.tags
    shown = hostile.replace("\x1b", "\\x1b")
    assert page.headings["h1"] == [f"Calibration of IMX250MZR from {shown}"]
    assert [row[0] for row in table(page, "setting")][:2] == [shown, names[1]]
    assert page.items == [shown]


# ---------------------------------------------------------------------------------------------------------------- maps


def test_values_of_defective_pixels_do_not_show(result: CalibrationResult) -> None:
    """Whatever they are, the text is the same."""
    bad = result.causes > 0
    assert bad.sum() > 3
    others = {}
    for name in ("gain", "angle", "extinction", "excess", "light"):
        others[name] = np.where(bad, 1e6, getattr(result, name))
        others[name][tuple(np.argwhere(bad)[0])] = np.nan
    others["black"] = result.black.copy()  # the photon transfer curve begins at its mean
    others["black"][tuple(np.argwhere(bad)[0])] += 0.5
    others["black"][tuple(np.argwhere(bad)[1])] -= 0.5
    assert render_calibration(replace(result, **others), "s") == render_calibration(result, "s")


def test_means_of_blocks() -> None:
    rng = np.random.default_rng(0)
    image, used = rng.random((11, 17)), rng.random((11, 17)) > 0.2
    used[4:8, 8:12] = False
    image[~used] = np.nan
    found = block_means(image, used, 4)
    assert found.shape == (3, 5)
    for row in range(3):
        for column in range(5):
            part = np.s_[4 * row : 4 * row + 4, 4 * column : 4 * column + 4]
            values = image[part][used[part]]
            assert found[row, column] == pytest.approx(values.mean() if values.size else np.nan, nan_ok=True)
    assert np.isnan(found[1, 2])


@pytest.mark.parametrize("place", [(0, 0), (1023, 1224), (2047, 2447)])
def test_a_single_defect_can_be_seen(place: Tuple[int, int]) -> None:
    causes = np.zeros((2048, 2448), np.uint8)
    assert (defect_picture(causes) == GOOD).all()
    causes[place] = 128
    rgb = defect_picture(causes)
    assert max(rgb.shape) <= 480
    rows, columns = np.nonzero((rgb == BAD).all(-1))
    assert 4 <= len(rows) <= 9
    scale = 2448 / rgb.shape[1]
    assert abs(rows.mean() - place[0] / scale) <= 1.5
    assert abs(columns.mean() - place[1] / scale) <= 1.5


def test_a_color_sensor() -> None:
    """Its light differs between colors, but not in the map: each point is a mean of all colors."""
    found = estimate(simulate_sensor(SENSORS["IMX250MYR"], (64, 96), 2), BENCH)
    page = Page(render_calibration(found, "s"))
    assert page.headings["h3"] == list(QUANTITIES)
    assert "Each point is the mean of 4x4 pixels." in page.text
