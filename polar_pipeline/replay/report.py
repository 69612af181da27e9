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
from polar_pipeline.options.products import PRODUCTS, Product
from polar_pipeline.pictures.colors import legend, picture, viridis
from polar_pipeline.pictures.files import encode_picture
from polar_pipeline.quality.latency import percentiles
from polar_pipeline.replay.compare import ProductComparison
from polar_pipeline.replay.html import charts
from polar_pipeline.replay.html.page import GRAYS, PHASE, VIRIDIS, ColorBar, data_url, page_template
from polar_pipeline.replay.run import Summary

#: Longest side of the pictures in the report, in pixels.
PICTURE_SIDE = 480

#: Color map of a product -> gradient of its color bar.
_GRADIENTS = {"viridis": VIRIDIS, "phase": PHASE, "gray": GRAYS}


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
                "seconds": sample.stamp_ns / 1e9,
                "pictures": [
                    _picture(name, array, color_style) for name, array in sample.products.items() if array.ndim
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


def _picture(name: str, array: np.ndarray, style: str) -> Dict[str, Any]:
    """Describe a product for the template; `wheel` is the address of a picture of what its colors mean, or ""."""
    bar = _color_bar(PRODUCTS[name])
    wheel = None if bar else legend(name, style)
    return {
        "name": name,
        "text": PRODUCTS[name].text,
        "url": data_url(encode_picture(picture(name, array, PICTURE_SIDE))),
        "bar": bar,
        "wheel": "" if wheel is None else data_url(encode_picture(wheel, ".png"), "png"),
    }


def _worst_pictures(row: ProductComparison) -> List[Dict[str, Any]]:
    """Describe the golden image, the result and the error of the worst frame, with a ring around the worst pixel."""
    if row.worst is None or row.worst.pixel is None or not row.worst.images:
        return []
    golden, got, error = row.worst.images
    error = error if error.ndim == 2 else error.max(-1)
    block = -(-max(error.shape) // PICTURE_SIDE)  # each pixel of the picture has the largest error of a block
    padded = np.pad(error, [(0, -side % block) for side in error.shape])
    error = padded.reshape(padded.shape[0] // block, block, padded.shape[1] // block, block).max((1, 3))
    top = float(error[np.isfinite(error)].max(initial=0.0)) or 1.0
    pictures = {
        "golden": picture(row.name, golden, PICTURE_SIDE),
        "result": picture(row.name, got, PICTURE_SIDE),
        "error": viridis((error / top).astype(np.float32)),
    }
    for image in pictures.values():
        scale = max(image.shape) / max(golden.shape)
        center = (round(row.worst.pixel[0] * scale), round(row.worst.pixel[1] * scale))
        cv2.circle(image, center, max(3, max(image.shape) // 24), (255, 0, 255), 2)
    bars = {"error": ColorBar(VIRIDIS, "0", f"{top:.4g} {row.unit}"), "golden": _color_bar(PRODUCTS[row.name])}
    bars["result"] = bars["golden"]
    return [
        {"name": name, "text": row.name, "url": data_url(encode_picture(image)), "bar": bars[name], "wheel": ""}
        for name, image in pictures.items()
    ]


def _color_bar(row: Product) -> Optional[ColorBar]:
    """Return the legend of a product as a color bar; an end has the sign ≤ or ≥ where values lie beyond it."""
    if row.legend != "bar":
        return None
    (low, high), unit = row.pictured, " rad" if row.unit == "rad" else ""
    top = "pi" if high == math.pi else f"{high:.2g}"
    below, above = "≤ " if low > row.values[0] else "", "≥ " if high < row.values[1] else ""
    return ColorBar(_GRADIENTS[row.colors], f"{below}{low:g}", f"{above}{top}{unit}")
