"""The report of a calibration: one HTML file without links to others.

The page is `templates/report.html.j2`; this module prepares the numbers, maps and charts.
"""

from __future__ import annotations

from pathlib import Path
from typing import Callable, Dict, List, NamedTuple, Optional, Tuple

import numpy as np

from polar_pipeline import __version__
from polar_pipeline._util.text import printable
from polar_pipeline.calibrate.defects import CAUSES
from polar_pipeline.calibrate.errors import ExpectedError
from polar_pipeline.calibrate.estimate import CalibrationResult
from polar_pipeline.calibrate.maps import block_means, block_side, defect_picture, map_picture, robust_ends
from polar_pipeline.html import charts
from polar_pipeline.html.page import VIRIDIS, ColorBar, data_url, page_template
from polar_pipeline.replay.picture import encode_picture

#: Share of the blocks of a map, and of the pixels of a histogram, that lie beyond each end.
_MAP_TAIL, _HISTOGRAM_TAIL = 0.01, 0.001
#: Most dots in the photon transfer curve.
_MAX_DOTS = 400
#: Shortest vertical axes of the lamp factors and of the settings' residuals, in percent.
_LAMP_REACH, _RESIDUAL_REACH = 0.2, 0.02

#: What each cause of a defect means.
CAUSE_TEXTS = {
    "saturated": "reached full scale in some frame: too much light, or a pixel that is stuck there",
    "no reaction": "does not follow the polarizer: dead or stuck",
    "black level": "its mean in the dark is far from that of the others",
    "dark noise": "its values in the dark vary far more or less than those of the others",
    "gain": "its sensitivity is far from that of the pixels nearby: a defect, or dust",
    "angle": "its polarizer is turned far more than those of the others",
    "extinction": "its extinction ratio is below 10: it has no polarizer that works",
    "fit": "its values do not follow the model: they jump between frames",
}


class _Quantity(NamedTuple):
    """A number of every pixel.

    Attributes:
        name: Heading.
        unit: Follows labels.
        decimals: In the table.
        image: (H, W) from the result.
        is_harmonic: Whether the map shows harmonic means.
        differs: Whether it may differ from pixel to pixel, so that a map of single pixels makes sense.
        text: Explanation of the figures.
    """

    name: str
    unit: str
    decimals: int
    image: Callable[[CalibrationResult], np.ndarray]
    is_harmonic: bool
    differs: bool
    text: str


_QUANTITIES = (
    _Quantity(
        "gain",
        " %",
        2,
        lambda result: 100 * (result.gain - 1),
        False,
        True,
        "Sensitivity of each pixel compared with the light nearby; 0 % is average. About 1 % from pixel to pixel is "
        "usual. Spots and stripes in the map are dust, or light that is not smooth: clean the optics and repeat.",
    ),
    _Quantity(
        "angle deviation",
        " degrees",
        2,
        lambda result: result.angle,
        False,
        True,
        "By how much the polarizer of each pixel is turned from its nominal angle; 0.5 to 1 degree is usual. A mean "
        "other than 0 is the rotation between the camera and the scale of the polarizer, and AoLP will count from "
        "that scale.",
    ),
    _Quantity(
        "extinction ratio",
        ":1",
        0,
        lambda result: result.extinction,
        True,
        True,
        "Signal of light along a pixel's polarizer compared with light across it; 80 to 500 is usual. It includes the "
        "extinction ratio of the polarizer before the lens. Ratios that fall toward the corners come from oblique "
        "light: close the aperture.",
    ),
    _Quantity(
        "black level",
        " %",
        3,
        lambda result: 100 * result.black,
        False,
        True,
        "Mean of each pixel in the dark, as a share of full scale. It should be even; a glow at one side is light that "
        "entered, or warm electronics.",
    ),
    _Quantity(
        "residual",
        " x noise",
        2,
        lambda result: result.excess,
        False,
        True,
        "What the fit of each pixel leaves, as a multiple of the noise of the frames. 1 means that noise explains it; "
        "areas above 2 saw reflections, light that is not uniform, or a polarizer that moved.",
    ),
    _Quantity(
        "light",
        " %",
        1,
        lambda result: 100 * result.light,
        False,
        False,
        "Smooth part of the signal, averaged over the settings, as a share of full scale: the lamp and the lens "
        "together. The calibration keeps it unless it was made with --flat-field. It should be brightest near the "
        "center and fall evenly around it.",
    ),
)


def render_calibration(result: CalibrationResult, source: str) -> str:
    """Render the report as HTML; the same result gives the same text.

    Args:
        result: Result to show.
        source: Name of the session's folder or recording.
    """
    used = result.causes == 0
    title = f"Calibration of {printable(result.calibration.sensor.name)} from {printable(source)}"
    html: str = page_template(Path(__file__).parent / "templates").render(
        report={"title": title, "facts": _facts(result), "result": result},
        warnings=[printable(text, 2000) for text in result.warnings],
        errors=[_error_row(row) for row in result.errors],
        figures=[_figure(quantity, result, used) for quantity in _QUANTITIES],
        tail=f"{100 * _HISTOGRAM_TAIL:g}",
        defects=[
            (name, int(np.count_nonzero(result.causes >> k & 1)), CAUSE_TEXTS[name]) for k, name in enumerate(CAUSES)
        ],
        defect_count=int(np.count_nonzero(~used)),
        defect_url=data_url(encode_picture(defect_picture(result.causes), ".png"), "png"),
        settings=_settings(result),
        lamp=_over_settings([100 * (factor - 1) for factor in result.lamp], _LAMP_REACH),
        residuals=_over_settings([100 * value for value in result.deviations], _RESIDUAL_REACH),
        transfer=_transfer(result),
    )
    return html


def _facts(result: CalibrationResult) -> Dict[str, str]:
    calibration, facts = result.calibration, result.calibration.facts
    height, width = calibration.shape
    found = {
        "sensor": f"{calibration.sensor.name} ({calibration.sensor.tile()})",
        "size": f"{width}x{height} pixels from {calibration.offset} of the sensor's own readout",
        "bit depth": str(calibration.bit_depth),
        "frames": f"{sum(result.frames)} of {len(result.settings)} polarizer settings, {result.dark_frames} dark",
        "angles": "given" if None not in result.given else "estimated from the frames",
        "lens shading": "corrected (--flat-field)" if facts.get("flat_field") else "kept",
    }
    if "temperature" in facts:
        found["temperature"] = f"{facts['temperature']} degrees Celsius"
    if "exposure" in facts:
        found["exposure"] = f"{facts['exposure']} ms"
    return {
        **{name: printable(text) for name, text in found.items()},
        "sha256": calibration.digest,
        "polar_pipeline": __version__,
    }


def _number(value: float, decimals: int) -> str:
    """Format a number for a table; NaN and infinity leave the cell empty."""
    return f"{round(value, decimals) + 0.0:.{decimals}f}" if np.isfinite(value) else ""  # + 0.0: no "-0.00"


def _error_row(row: ExpectedError) -> Tuple[str, ...]:
    """Format a row: DoLP, its error before and after, and the errors of AoLP."""
    return (
        f"{row.dolp:g}",
        _number(row.dolp_before, 4),
        _number(row.dolp_error, 4),
        _number(row.aolp_before, 2),
        _number(row.aolp_error, 2),
    )


def _figure(quantity: _Quantity, result: CalibrationResult, used: np.ndarray) -> Dict[str, object]:
    """Return the map and the histogram of a quantity for the template, without defective pixels."""
    image, period = quantity.image(result), result.calibration.sensor.period
    side = block_side(result.calibration.shape, 1 if quantity.differs else period, period)
    means = 1 / block_means(1 / image, used, side) if quantity.is_harmonic else block_means(image, used, side)
    low, high = robust_ends(means, _MAP_TAIL)
    values = image[used]
    ends = robust_ends(values, _HISTOGRAM_TAIL)
    numbers = (float(np.mean(values)), float(np.std(values)), ends[0], float(np.median(values)), ends[1])
    row = (f"{quantity.name} [{quantity.unit.strip()}]", *(_number(number, quantity.decimals) for number in numbers))
    return {
        "name": quantity.name,
        "text": quantity.text,
        "url": data_url(encode_picture(map_picture(means, (low, high)))),
        "bar": ColorBar(VIRIDIS, charts.label(low, quantity.unit), charts.label(high, quantity.unit)),
        "block": side,
        "histogram": charts.histogram(values, quantity.unit, ends),
        "row": row,
    }


def _settings(result: CalibrationResult) -> List[Tuple[str, ...]]:
    """List the rows of the table of settings: name, angle, source of the angle, lamp, residual, frames."""
    source = "estimated" if None in result.given else "given"
    rows = zip(result.settings, result.angles, result.lamp, result.deviations, result.frames)
    return [
        (printable(name), f"{angle:.2f}", source, f"{lamp:.4f}", f"{100 * deviation:.4f}", str(frames))
        for name, angle, lamp, deviation, frames in rows
    ]


def _over_settings(values: List[float], reach: float) -> charts.Chart:
    """Plot percentages over the settings; the vertical axis is at least `reach` long."""
    low, high = min(values), max(values)
    missing = max(0.0, reach - (high - low)) / 2
    low, high = low - missing, high + missing
    if min(values) >= 0 > low:  # a residual is never negative
        low, high = 0.0, high - low
    axes = charts.Axes("setting 1", f"setting {len(values)}", charts.label(low, " %"), charts.label(high, " %"))
    return charts.lines([(float(k), value) for k, value in enumerate(values)], (low, high), axes)


def _transfer(result: CalibrationResult) -> Optional[charts.Chart]:
    """Plot the photon transfer curve (variance in squares of levels over signal), or return None if it is unknown."""
    noise = result.noise
    if noise is None:
        return None
    level = 1 / ((1 << result.calibration.bit_depth) - 1)
    black = float(result.black.mean())
    points = sorted((point.signal - black, point.variance / level**2) for point in result.points)
    dots = points[:: -(-len(points) // _MAX_DOTS)]
    right = max(0.01, points[-1][0])
    line = [(x, float(noise.variance(np.array(x))) / level**2 + 1 / 12) for x in (0.0, right)]
    top = 1.05 * max(line[-1][1], robust_ends(np.array(dots)[:, 1], _MAP_TAIL)[1])
    axes = charts.Axes("0 %", charts.label(100 * right, " %"), "0", charts.label(top, ""))
    return charts.scatter(dots, line, ((0.0, right), (0.0, top)), axes)
