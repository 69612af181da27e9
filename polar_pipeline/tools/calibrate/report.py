"""The report of a calibration: one HTML file without links to others.

The page and its explanations are `templates/report.html.j2`; this module prepares the numbers, maps and charts.
"""

from __future__ import annotations

from pathlib import Path
from typing import Callable, Dict, List, NamedTuple, Optional, Tuple

import cv2
import numpy as np

from polar_pipeline import __version__
from polar_pipeline._util.text import printable
from polar_pipeline.pictures.colors import diverging, viridis
from polar_pipeline.pictures.files import encode_picture
from polar_pipeline.polarimetry.colormaps import DIVERGING_MAP, DOLP_MAP
from polar_pipeline.replay.html import charts
from polar_pipeline.replay.html.page import ColorBar, data_url, gradient, page_template
from polar_pipeline.tools.calibrate.defects import CAUSES
from polar_pipeline.tools.calibrate.estimate import CalibrationResult
from polar_pipeline.tools.calibrate.reductions import reduce_blocks

#: Maximum side of a map in pixels.
SIDE = 480
#: Colors of a map of defects: pixels that can be used, and those that cannot.
GOOD, BAD = (40, 44, 52), (255, 255, 255)
#: Share of the blocks of a map, and of the pixels of a histogram, that lie beyond each end.
_MAP_TAIL, _HISTOGRAM_TAIL = 0.01, 0.001
#: Maximum number of dots in the photon transfer curve.
_MAX_DOTS = 400
#: Minimum range of the vertical axes of lamp factors and of the settings' residuals, in percent.
_LAMP_REACH, _RESIDUAL_REACH = 0.1, 0.02
#: Paragraph in the report of a calibration that was not written, by which the next run knows that it may be replaced.
_NOT_WRITTEN = '<p class="bad" id="not-written">No calibration was written.</p>'
#: Bytes at the beginning of a report in which that paragraph is, after the title and the style of the page.
_HEAD_BYTES = 1 << 16


class _Quantity(NamedTuple):
    """A number of every pixel, with a heading for which the template has a text, and the decimals of its table.

    The map shows means, or harmonic means. A signed quantity is a difference, whose colors diverge around 0.
    """

    name: str
    unit: str
    decimals: int
    image: Callable[[CalibrationResult], np.ndarray]
    is_harmonic: bool = False
    is_signed: bool = False


#: Quantities of every session, and quantities of sessions with a polarizer.
_DARK = (_Quantity("black level", " %", 3, lambda result: 100 * result.black),)
_POLARIZER = (
    _Quantity("gain", " %", 2, lambda result: 100 * (result.gain - 1), is_signed=True),
    _Quantity("angle deviation", " degrees", 2, lambda result: result.angle, is_signed=True),
    _Quantity("extinction ratio", ":1", 0, lambda result: result.extinction, is_harmonic=True),
    _Quantity("residual", " x noise", 2, lambda result: result.relative_residual),
    _Quantity("expected error", "", 4, CalibrationResult.error_map),
    _Quantity("light", " %", 1, lambda result: 100 * result.light),
)


def is_of_unwritten_calibration(report: Path) -> bool:
    """Return whether a file is the report of a calibration that was not written.

    Raises:
        OSError: The file cannot be read.
    """
    if not report.is_file():
        return False
    with report.open("rb") as stream:
        return _NOT_WRITTEN.encode() in stream.read(_HEAD_BYTES)


def render_calibration(result: CalibrationResult, source: str, is_written: bool = True) -> str:
    """Render the report as HTML; the same arguments give the same text.

    `source` names the session's folder or recording. `is_written` tells whether the calibration is written too.
    """
    used = result.causes == 0
    settings, polarizer = [], result.polarizer
    lamp, residuals = np.zeros(0), np.zeros(0)
    if polarizer is not None:
        lamp, residuals = 100 * (polarizer.lamp - 1), 100 * np.sqrt(np.mean(polarizer.residuals**2, 0))
        angles = np.rad2deg(polarizer.angles)
        errors = (polarizer.readings - angles + 90) % 180 - 90
        texts = ["" if np.isnan(error) else f"{error:+.2f}" for error in errors.tolist()]
        names, frames = map(printable, result.frames), result.frames.values()
        settings = list(zip(names, texts, angles.tolist(), polarizer.lamp.tolist(), residuals.tolist(), frames))
    html: str = page_template(Path(__file__).parent / "templates").render(
        report={
            "title": f"Calibration of {printable(result.calibration.sensor.name)} from {printable(source)}",
            "facts": _facts(result),
            "result": result,
        },
        is_written=is_written,
        not_written=_NOT_WRITTEN,
        warnings=[printable(text, 2000) for text in result.warnings],
        problems=[printable(text, 2000) for text in result.problems],
        headline=result.headline,
        figures=[_figure(quantity, result, used) for quantity in (*(_POLARIZER if polarizer else ()), *_DARK)],
        tail=f"{100 * _HISTOGRAM_TAIL:g}",
        defects=[(name, int(np.count_nonzero(result.causes >> k & 1))) for k, name in enumerate(CAUSES)],
        defect_count=int(np.count_nonzero(~used)),
        defect_url=data_url(encode_picture(defect_picture(result.causes), ".png"), "png"),
        settings=settings,
        lamp=_over_settings(lamp.tolist(), -_LAMP_REACH, _LAMP_REACH),
        residuals=_over_settings(residuals.tolist(), 0.0, _RESIDUAL_REACH),
        transfer=_transfer(result),
    )
    return html


def _facts(result: CalibrationResult) -> Dict[str, str]:
    calibration, facts = result.calibration, result.calibration.facts
    height, width = calibration.shape
    is_read = result.polarizer is None or not np.isnan(result.polarizer.readings).any()
    texts = {
        "sensor": f"{calibration.sensor.name} ({calibration.sensor.tile()})",
        "size": f"{width}x{height} pixels from {calibration.offset} of the sensor's own readout",
        "bit depth": str(calibration.bit_depth),
        "frames": f"{sum(result.frames.values())} of {len(result.frames)} polarizer settings, {result.dark_frames} "
        "dark",
        "angles": "estimated from the frames" + (" and the readings" if is_read else ""),
        "lens shading": "corrected (--flat-field)" if facts.get("flat_field") else "kept",
    }
    for name, unit in (("temperature", "degrees Celsius"), ("exposure", "ms"), ("gain_db", "dB")):
        if name in facts:
            texts[name] = f"{facts[name]} {unit}"
    texts = {name: printable(text) for name, text in texts.items()}
    return {**texts, "sha256": calibration.digest, "polar_pipeline": __version__}


# ----------------------------------------------------------------------------------------------------- maps and charts


def _figure(quantity: _Quantity, result: CalibrationResult, used: np.ndarray) -> Dict[str, object]:
    """Return the map and the histogram of a quantity for the template, without defective pixels."""
    image, period = quantity.image(result), result.calibration.sensor.period
    side = -(-max(image.shape) // (SIDE * period)) * period  # of blocks of complete superpixels
    means = 1 / block_means(1 / image, used, side) if quantity.is_harmonic else block_means(image, used, side)
    low, high = _ends(means, _MAP_TAIL)
    if quantity.is_signed:
        high = max(-low, high)
        low, picture, colors = -high, diverging(np.nan_to_num(means / (high or 1))), DIVERGING_MAP[1:]
    else:
        picture, colors = viridis(np.nan_to_num((means - low) / ((high - low) or 1))), DOLP_MAP
    picture[np.isnan(means)] = 0
    values = image[used]
    ends = _ends(values, _HISTOGRAM_TAIL)
    numbers = (np.mean(values), np.std(values), ends[0], np.median(values), ends[1])
    return {
        "name": quantity.name,
        "url": data_url(encode_picture(_enlarged(picture))),
        "bar": ColorBar(gradient(colors), charts.label(low, quantity.unit), charts.label(high, quantity.unit)),
        "block": side,
        "histogram": charts.histogram(values, quantity.unit, ends),
        "unit": quantity.unit.strip(),
        "numbers": [f"{round(float(number), quantity.decimals) + 0.0:.{quantity.decimals}f}" for number in numbers],
    }


def block_means(image: np.ndarray, used: np.ndarray, side: int) -> np.ndarray:
    """Average (H, W) over blocks of `side` pixels, counting only some pixels; NaN in blocks without any."""
    counts = reduce_blocks(np.add, used.astype(np.float64), side)
    sums = reduce_blocks(np.add, np.where(used, image, 0.0), side)
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)


def _ends(values: np.ndarray, share: float) -> Tuple[float, float]:
    """Return the values below and above which a share of all values lies; NaN does not count."""
    low, high = np.percentile(values[~np.isnan(values)], [100 * share, 100 * (1 - share)])
    return float(low), float(high)


def defect_picture(causes: np.ndarray) -> np.ndarray:
    """Paint the places of defects, where `causes` is not 0, as (h, w, 3) uint8 RGB, each at least two pixels wide."""
    bad = reduce_blocks(np.maximum, (causes > 0).astype(np.uint8), -(-max(causes.shape) // SIDE))
    if max(bad.shape) > SIDE // 2:  # one pixel of the picture may be lost on a screen
        bad = cv2.dilate(bad, np.ones((3, 3), np.uint8))
    return _enlarged(np.array([GOOD, BAD], np.uint8)[bad])


def _enlarged(rgb: np.ndarray) -> np.ndarray:
    """Repeat every pixel of a picture as often as fits in `SIDE`."""
    factor = max(1, SIDE // max(rgb.shape[:2]))
    return np.repeat(np.repeat(rgb, factor, 0), factor, 1)


def _over_settings(values: List[float], low: float, high: float) -> Optional[charts.Chart]:
    """Plot percentages over the settings; the vertical axis has at least these ends. None without settings."""
    if not values:
        return None
    low, high = min(*values, low), max(*values, high)
    axes = charts.Axes("setting 1", f"setting {len(values)}", charts.label(low, " %"), charts.label(high, " %"))
    return charts.plot(axes, list(enumerate(values)), (0, len(values) - 1), (low, high))


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
    top = 1.05 * max(line[-1][1], _ends(np.array(dots)[:, 1], _MAP_TAIL)[1])
    axes = charts.Axes("0 %", charts.label(100 * right, " %"), "0", charts.label(top, ""))
    return charts.plot(axes, line, (0.0, right), (0.0, top), dots)
