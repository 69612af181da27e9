"""The report of a calibration: what it says, and that nothing from outside can change its structure."""

from __future__ import annotations

import base64
import re
from collections import Counter
from dataclasses import replace
from typing import Any, List, Tuple
from xml.etree import ElementTree as ET

import cv2
import numpy as np
import pytest
from sessions import estimate

import polar_pipeline
from polar_pipeline.calibration import Calibration
from polar_pipeline.polarimetry.colormaps import DIVERGING_MAP
from polar_pipeline.sensor.mosaic import SENSORS
from polar_pipeline.tools.calibrate.advice import Advice
from polar_pipeline.tools.calibrate.defects import CAUSES
from polar_pipeline.tools.calibrate.estimate import CalibrationResult
from polar_pipeline.tools.calibrate.report import BAD, GOOD, block_means, defect_picture, render_calibration
from polar_pipeline.tools.calibrate.simulation import Bench, Deviations, simulate_sensor

BENCH = Bench(tuple(range(0, 180, 20)), 8, 16, drift=0.02)
SECTIONS = ["Expected errors", "Pixels", "Defective pixels", "Settings of the polarizer", "Noise"]
QUANTITIES = ["Gain", "Angle deviation", "Extinction ratio", "Residual", "Expected error", "Light", "Black level"]


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

    def table(self, corner: str) -> List[List[str]]:
        """The rows of the table whose first cell is this."""
        (rows,) = [rows for rows in self.tables if rows[0][0] == corner]
        return rows


@pytest.fixture(scope="module", name="result")
def fixture_result() -> CalibrationResult:
    """Of a sensor with defects."""
    return estimate(simulate_sensor(SENSORS["IMX250MZR"], (64, 96), 2, Deviations(defects=1e-3)), BENCH)


@pytest.fixture(scope="module", name="page")
def fixture_page(result: CalibrationResult) -> Page:
    return Page(render_calibration(result, "session"))


def test_it_has_every_section_and_needs_nothing(result: CalibrationResult, page: Page) -> None:
    text = render_calibration(result, "session")
    assert text.startswith("<!DOCTYPE html>\n")
    assert page.headings == {"h1": ["Calibration of IMX250MZR from session"], "h2": SECTIONS, "h3": QUANTITIES}
    assert "No warnings." in page.text
    assert page.tags["img"] == len(QUANTITIES) + 1  # a map each, and the defects
    assert page.tags["svg"] == len(QUANTITIES) + 3  # a histogram each, lamp, residual, photon transfer curve
    assert page.tags["figcaption"] == page.tags["img"] + page.tags["svg"]
    assert page.tags["title"] > len(QUANTITIES)  # the page's, and the count of every bar
    assert "http" not in text
    assert "script" not in page.tags
    assert "nan" not in page.text.lower()


def test_facts(result: CalibrationResult, page: Page) -> None:
    old = result.calibration
    facts = {**old.facts, "temperature": 21.5, "exposure": 8.0, "flat_field": True}
    noted = Calibration(old.sensor, old.offset, old.codes, old.scales, old.defects, old.bit_depth, facts)
    shown = dict(Page(render_calibration(replace(result, calibration=noted), "s")).table("sensor"))
    assert shown == {
        "sensor": "IMX250MZR (90 45 / 135 0)",
        "size": "96x64 pixels from (0, 0) of the sensor's own readout",
        "bit depth": "12",
        "frames": "72 of 9 polarizer settings, 16 dark",
        "angles": "estimated from the frames and the readings",
        "lens shading": "corrected (--flat-field)",
        "temperature": "21.5 degrees Celsius",
        "exposure": "8.0 ms",
        "sha256": noted.digest,
        "polar_pipeline": polar_pipeline.__version__,
    }
    assert dict(page.table("sensor"))["lens shading"] == "kept"


def test_errors_and_pixels_are_those_of_the_result(result: CalibrationResult, page: Page) -> None:
    rows = np.array([[cell or "nan" for cell in row] for row in page.table("DoLP")[1:]], float)
    expected = [(row.dolp, row.dolp_before, row.dolp_error, row.aolp_before, row.aolp_error) for row in result.errors]
    np.testing.assert_allclose(rows, expected, rtol=0, atol=0.0051)  # two decimals of degrees
    np.testing.assert_allclose(rows[:, 1:3], np.array(expected)[:, 1:3], rtol=0, atol=0.000051)
    used = result.causes == 0
    quantities = (
        ("gain [%]", 100 * (result.gain - 1), 0.01),
        ("angle deviation [degrees]", result.angle, 0.01),
        ("extinction ratio [:1]", result.extinction, 1),
        ("residual [x noise]", result.relative_residual, 0.01),
        ("expected error", result.error_map(), 0.0001),
        ("light [%]", 100 * result.light, 0.1),
        ("black level [%]", 100 * result.black, 0.001),
    )
    for row, (name, image, unit) in zip(page.table("")[1:], quantities):
        good = image[used]
        ends = np.percentile(good, [0.1, 99.9])
        assert row[0] == name
        expected = [good.mean(), good.std(), ends[0], np.median(good), ends[1]]
        np.testing.assert_allclose(np.array(row[1:], float), expected, rtol=0, atol=0.51 * unit)


def test_every_cause_of_a_defect_is_counted_and_explained(result: CalibrationResult, page: Page) -> None:
    rows = page.table("cause")[1:]
    counts = [int((result.causes & 2**k > 0).sum()) for k in range(len(CAUSES))]
    assert [(row[0], int(row[1])) for row in rows] == list(zip(CAUSES, counts))
    assert len({row[2] for row in rows}) == len(CAUSES)
    assert sum(counts) > 0
    assert f"{len(result.calibration.defects)} pixels cannot be used" in page.text


def test_settings_are_listed(result: CalibrationResult, page: Page) -> None:
    lamp = 1 - 0.02 * np.linspace(0, 1, 9)
    polarizer = result.polarizer
    assert polarizer is not None
    for k, row in enumerate(page.table("setting")[1:]):
        angle = np.rad2deg(polarizer.angles[k]) % 180
        assert row[:3] == [str(k), f"{angle:.2f}", f"{20 * k - angle:+.2f}"]
        assert float(row[3]) == pytest.approx(lamp[k] / lamp.mean(), abs=1e-3)  # noise of the lamp, as in test_estimate
        assert float(row[4]) == pytest.approx(100 * np.sqrt(np.mean(polarizer.residuals[:, k] ** 2)), abs=5.1e-5)
        assert row[5] == "8"
    assert len(page.table("setting")) == 10


def test_unknown_angles_and_noise_of_a_color_sensor() -> None:
    camera = simulate_sensor(SENSORS["IMX250MYR"], (64, 96), 2)
    result = estimate(camera, replace(BENCH, frames=1), angles=dict.fromkeys(range(9)))
    assert result.polarizer is not None
    page = Page(render_calibration(result, "s"))
    assert dict(page.table("sensor"))["angles"] == "estimated from the frames"
    for row, angle in zip(page.table("setting")[1:], np.rad2deg(result.polarizer.angles)):
        assert row[1:3] == [f"{angle % 180:.2f}", ""]
    assert "Unknown: it takes two or more frames of each setting" in page.text
    assert page.tags["svg"] == len(QUANTITIES) + 2
    assert "Each point is the mean of 4x4 pixels." in page.text


def test_photon_transfer_curve(result: CalibrationResult, page: Page) -> None:
    """Its line against full well and read noise in units of levels, and its dots against the line."""
    assert result.noise is not None
    facts = dict(page.tables[-1])
    assert facts["full well"] == f"{result.noise.full_well:.0f} electrons"
    assert facts["read noise"] == f"{result.noise.read_noise:.2f} electrons"
    text = render_calibration(result, "s")
    chart = text[text.rindex("<svg") :]
    dots = np.array(re.findall(r'cx="([0-9.]+)" cy="([0-9.]+)"', chart), float)
    line = re.findall(r'points="([^"]+)"', chart)[-1]
    (x0, y0), (x1, y1) = (tuple(map(float, pair.split(","))) for pair in line.split())
    off = dots[:, 1] - (y0 + (dots[:, 0] - x0) / (x1 - x0) * (y1 - y0))
    assert len(dots) > 50
    # variances of 1536 pixels are known to sqrt(2/1536), 3.6 %, of at most 150 pixels
    assert np.sqrt(np.mean(off**2)) < 0.036 * 150


def test_session_without_a_polarizer(result: CalibrationResult) -> None:
    """What was not measured is not shown."""
    page = Page(render_calibration(replace(result, polarizer=None, frames={}, errors=[], noise=None), "s"))
    assert page.headings["h2"] == ["Pixels", "Defective pixels", "Noise"]
    assert page.headings["h3"] == ["Black level"]
    assert dict(page.table("sensor"))["frames"] == "0 of 0 polarizer settings, 16 dark"


def test_hostile_names_are_escaped_and_advice_comes_first(result: CalibrationResult) -> None:
    hostile = "<script>alert('1')</script>\x1b[31m"
    names = (hostile, '"><img src=x onerror=alert(1)>', *list(result.frames)[2:])

    def rendered(text: str, session: str, **changes: Any) -> Page:
        advice = [Advice(text), Advice(text, is_problem=True)]
        return Page(render_calibration(replace(result, advice=advice, **changes), session))

    page = rendered(hostile, hostile, frames=dict.fromkeys(names, 8))
    assert page.tags == rendered("w", "s").tags
    shown = hostile.replace("\x1b", "\\x1b")
    assert page.headings["h1"] == [f"Calibration of IMX250MZR from {shown}"]
    assert page.headings["h2"] == ["Problems: this calibration is worse than none", "Warnings", *SECTIONS]
    assert [row[0] for row in page.table("setting")][1:3] == [shown, names[1]]
    assert page.items == [shown, shown]
    assert "No warnings." not in page.text


def test_values_of_defective_pixels_do_not_show(result: CalibrationResult) -> None:
    """Whatever they are, the text is the same."""
    bad = result.causes > 0
    assert bad.sum() > 3
    others = {}
    for name in ("gain", "angle", "extinction", "relative_residual", "light"):
        others[name] = np.where(bad, 1e6, getattr(result, name))
        others[name][tuple(np.argwhere(bad)[0])] = np.nan
    assert render_calibration(replace(result, **others), "s") == render_calibration(result, "s")


def test_maps_of_differences_are_white_at_0_and_as_far_in_both_directions(result: CalibrationResult) -> None:
    """The left half is 2 % more sensitive than the right: the map is orange and white, or blue and white."""
    half = np.where(np.arange(result.gain.shape[1]) < result.gain.shape[1] // 2, 1.02, 1.0)
    for sign, end in ((1, DIVERGING_MAP[255]), (-1, DIVERGING_MAP[1])):
        changed = replace(result, gain=np.broadcast_to(1 + sign * (half - 1), result.gain.shape))
        text = render_calibration(changed, "s")
        picture = re.search(r'alt="Map: gain" src="data:image/jpeg;base64,(.*?)"', text)
        assert picture is not None
        rgb = cv2.imdecode(np.frombuffer(base64.b64decode(picture[1]), np.uint8), cv2.IMREAD_COLOR)[..., ::-1]
        for column, color in ((0.25, end), (0.75, DIVERGING_MAP[128])):
            shown = np.median(rgb[:, round(column * rgb.shape[1])], 0)  # without defects
            np.testing.assert_allclose(shown, color, atol=4)  # JPEG
        assert re.search(r'</div>-2 % <span style="float:right">2 %</span>', text)


def test_means_of_blocks() -> None:
    image, used = np.arange(30.0).reshape(5, 6), np.ones((5, 6), bool)
    used[0, 0] = used[4, :4] = False
    image[~used] = np.nan
    expected = [[(1 + 6 + 7) / 3, 5.5, 7.5], [15.5, 17.5, 19.5], [np.nan, np.nan, 28.5]]
    np.testing.assert_allclose(block_means(image, used, 2), expected)


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


def test_axes_of_charts(result: CalibrationResult) -> None:
    """The lamp's axis has 0 in its middle, the residual's begins at 0, unless values lie beyond the usual ends."""
    assert result.polarizer is not None
    for factor, deviation, lamp, residual in (
        (1.0005, 1e-4, ["-0.1 %", "0.1 %"], ["0 %", "0.02 %"]),
        (1.004, 5e-4, ["-0.1 %", "0.4 %"], ["0 %", "0.05 %"]),
    ):
        polarizer = replace(result.polarizer, lamp=np.full(9, factor), residuals=np.full((4, 9), deviation))
        text = render_calibration(replace(result, polarizer=polarizer), "s")
        labels = [re.findall(r"<text [^>]*>([^<]*)</text>", chart) for chart in text.split("<svg ")[1:]]
        assert labels[-3:-1] == [["setting 1", "setting 9", *ends] for ends in (lamp, residual)]
        assert (labels[-1][0], labels[-1][2]) == ("0 %", "0")
