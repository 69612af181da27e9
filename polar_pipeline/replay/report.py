"""The report of a run: one HTML file without links to others, readable in light and dark.

The page is `templates/report.html.j2`. Jinja escapes every text that goes into it; this module prepares the numbers and
pictures.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence

import cv2
import numpy as np

from polar_pipeline._util.text import SHOWN_REASON, printable
from polar_pipeline.options.products import PRODUCTS
from polar_pipeline.pictures.colors import (
    WHEEL_SIDE,
    bar_colors,
    fades,
    picture,
    pictured_range,
    viridis,
    wheel,
)
from polar_pipeline.pictures.files import encode_picture
from polar_pipeline.polarimetry.colormaps import DOLP_MAP
from polar_pipeline.quality.latency import percentiles
from polar_pipeline.replay.compare import ProductComparison
from polar_pipeline.replay.html import charts
from polar_pipeline.replay.html.page import ColorBar, Wheel, data_url, gradient, page_template
from polar_pipeline.replay.run import Summary

#: Longest side of the pictures in the report, in pixels.
PICTURE_SIDE = 480


def format_timings(timings: Mapping[str, Sequence[float]]) -> str:
    """Format the percentiles of every stage as a plain-text table."""
    lines = [f"{'stage [ms]':<12} {'p50':>9} {'p95':>9} {'p99':>9} {'max':>9}"]
    for stage, seconds in timings.items():
        values = percentiles(1000 * np.asarray(seconds)).values()
        lines.append(f"{stage:<12} " + " ".join(f"{value:>9.3f}" for value in values))
    return "\n".join(lines)


def render(
    title: str,
    facts: Mapping[str, str],
    summary: Summary,
    comparisons: Sequence[ProductComparison] = (),
    color_style: str = "plain",
    verdict: str = "",
) -> str:
    """Render the report as HTML, with the facts first; the same arguments make the same text.

    `comparisons` and `verdict` are empty where nothing was compared with a golden recording.
    """
    rejected = [(cause, len(errors), printable(errors[0], SHOWN_REASON)) for cause, errors in summary.rejected.items()]
    rows = [(row.stamp_ns, row.ssim) for row in summary.frames if row.stamp_ns is not None and row.ssim is not None]
    similarity = [((stamp - rows[0][0]) / 1e9, value) for stamp, value in rows if math.isfinite(value)]
    html: str = page_template(Path(__file__).parent / "templates").render(
        report={"title": title, "facts": facts, "rejected": rejected, "comparisons": comparisons, "verdict": verdict},
        failures=[(row, _worst_pictures(row)) for row in comparisons if not row.passed],
        frames=[
            {
                "title": f"stamp {sample.stamp_ns / 1e9:.6f} s" if summary.has_times else sample.name,
                "pictures": [
                    _picture(name, plane, array, color_style)
                    for name, array in sample.products.items()
                    if array.ndim
                    for plane in range(max(1, len(PRODUCTS[name].planes)))
                ],
            }
            for sample in summary.samples
        ],
        similarity=charts.line_chart(similarity) if similarity else None,
        stages=[
            {"name": name, "percentiles": percentiles(times), "histogram": charts.histogram(times)}
            for name, times in ((name, 1000 * np.asarray(seconds)) for name, seconds in summary.timings.items())
        ],
    )
    return html


def _picture(name: str, plane: int, array: np.ndarray, style: str) -> Dict[str, Any]:
    """Describe a product, or a plane of it, for the template: its picture, and the bar or the wheel of its colors."""
    bar, row = _color_bar(name, plane), PRODUCTS[name]
    colors = None
    if bar is None and row.legend == "wheel":
        rgb, inside = wheel(name, style, WHEEL_SIDE)
        url = data_url(encode_picture(np.dstack([rgb, 255 * inside.astype(np.uint8)]), ".png"), "png")
        colors = Wheel(url, "DoLP: 0 at the center, 1 at the rim" if fades(name, style) else "")
    return {
        "name": f"{name} {row.planes[plane][0]}" if row.planes else name,
        "text": row.text,
        "url": data_url(encode_picture(picture(name, array, PICTURE_SIDE, plane))),
        "bar": bar,
        "wheel": colors,
    }


def _worst_pictures(row: ProductComparison) -> List[Dict[str, Any]]:
    """Describe the golden image, the result and the error of the worst frame, with a ring around the worst pixel."""
    if row.worst is None or row.worst.pixel is None or not row.worst.images:
        return []
    golden, got, error = row.worst.images
    plane = 0
    if error.ndim == 3:
        plane = int(error[row.worst.pixel[1], row.worst.pixel[0]].argmax()) if PRODUCTS[row.name].planes else 0
        error = error.max(-1)
    block = -(-max(error.shape) // PICTURE_SIDE)  # each pixel of the picture has the largest error of a block
    padded = np.pad(error, [(0, -side % block) for side in error.shape])
    error = padded.reshape(padded.shape[0] // block, block, padded.shape[1] // block, block).max((1, 3))
    top = float(error[np.isfinite(error)].max(initial=0.0)) or 1.0
    pictures = {
        "golden": picture(row.name, golden, PICTURE_SIDE, plane),
        "result": picture(row.name, got, PICTURE_SIDE, plane),
        "error": viridis((error / top).astype(np.float32)),
    }
    for image in pictures.values():
        scale = max(image.shape) / max(golden.shape)
        center = (round(row.worst.pixel[0] * scale), round(row.worst.pixel[1] * scale))
        cv2.circle(image, center, max(3, max(image.shape) // 24), (255, 0, 255), 2)
    bars = {"error": ColorBar(gradient(DOLP_MAP), "0", f"{top:.4g} {row.unit}"), "golden": _color_bar(row.name, plane)}
    bars["result"] = bars["golden"]
    return [
        {"name": name, "text": row.name, "url": data_url(encode_picture(image)), "bar": bars[name], "wheel": None}
        for name, image in pictures.items()
    ]


def _color_bar(name: str, plane: int) -> Optional[ColorBar]:
    """Return the legend of a product as a color bar; an end has the sign ≤ or ≥ where values lie beyond it."""
    colors, row = bar_colors(name, plane), PRODUCTS[name]
    if not len(colors):
        return None
    (low, high), values = pictured_range(name, plane), row.planes[plane][1:] if row.planes else row.values
    factor, unit = {"rad": (180 / math.pi, " degrees"), "full scale": (100.0, " % of full scale")}.get(
        row.unit, (1.0, "")
    )
    below, above = "≤ " if low > values[0] else "", "≥ " if high < values[1] else ""
    return ColorBar(gradient(colors), f"{below}{factor * low:.3g}", f"{above}{factor * high:.3g}{unit}")
