"""The report of a run: one HTML file without links to others, readable in light and dark.

The page is `templates/report.html.j2`. Jinja escapes every text that goes into it; this module prepares the numbers and
pictures.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Dict, Mapping, Optional, Sequence, Tuple

import numpy as np

from polar_pipeline.html import charts
from polar_pipeline.html.page import GRAYS, PHASE, VIRIDIS, ColorBar, data_url, page_template
from polar_pipeline.products import PRODUCTS, Product
from polar_pipeline.replay.compare import ProductComparison
from polar_pipeline.replay.picture import encode_picture, legend, picture
from polar_pipeline.replay.run import FrameProducts

#: Longest side of the pictures in the report, in pixels.
PICTURE_SIDE = 480

#: Color map of a product -> gradient of its color bar.
_GRADIENTS = {"viridis": VIRIDIS, "phase": PHASE, "gray": GRAYS}


def percentiles_ms(seconds: Sequence[float]) -> Dict[str, float]:
    """Compute p50, p95, p99 and max in milliseconds."""
    values = 1000 * np.asarray(seconds)
    p50, p95, p99 = np.percentile(values, [50, 95, 99])
    return {"p50": float(p50), "p95": float(p95), "p99": float(p99), "max": float(values.max())}


def format_timings(timings: Mapping[str, Sequence[float]]) -> str:
    """Format the percentiles of every stage as a plain-text table."""
    lines = [f"{'stage [ms]':<12} {'p50':>9} {'p95':>9} {'p99':>9} {'max':>9}"]
    for stage, seconds in timings.items():
        lines.append(f"{stage:<12} " + " ".join(f"{value:>9.3f}" for value in percentiles_ms(seconds).values()))
    return "\n".join(lines)


def render(
    title: str,
    facts: Mapping[str, str],
    samples: Sequence[FrameProducts],
    ssim: Sequence[Tuple[float, float]],
    timings: Mapping[str, Sequence[float]],
    rejected: Sequence[Tuple[str, int, str]] = (),
    comparisons: Sequence[ProductComparison] = (),
    color_style: str = "plain",
) -> str:
    """Render the report as HTML; the same arguments make the same text.

    Args:
        title: Heading.
        facts: Name -> value, listed first.
        samples: Frames to show.
        ssim: (seconds since the first frame, mean similarity) over the run.
        timings: Stage -> seconds per frame.
        rejected: (cause, frames, error of the first frame).
        comparisons: Each product's comparison with a golden recording; empty without one.
        color_style: Option `color_style`.
    """
    known = [(seconds, value) for seconds, value in ssim if np.isfinite(value)]
    html: str = page_template(Path(__file__).parent / "templates").render(
        report={"title": title, "facts": facts, "rejected": rejected, "comparisons": comparisons},
        frames=[
            {
                "seconds": sample.stamp_ns / 1e9,
                "pictures": [
                    _picture(name, array, color_style) for name, array in sample.products.items() if array.ndim
                ],
            }
            for sample in samples
        ],
        similarity=charts.line_chart(known) if known else None,
        stages=[
            {
                "name": name,
                "percentiles": percentiles_ms(seconds),
                "histogram": charts.histogram(1000 * np.asarray(seconds)),
            }
            for name, seconds in timings.items()
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


def _color_bar(row: Product) -> Optional[ColorBar]:
    """Return the legend of a product as a color bar; an end has the sign ≤ or ≥ where values lie beyond it."""
    if row.legend != "bar":
        return None
    (low, high), unit = row.pictured, " rad" if row.unit == "rad" else ""
    top = "pi" if high == math.pi else f"{high:.2g}"
    below, above = "≤ " if low > row.values[0] else "", "≥ " if high < row.values[1] else ""
    return ColorBar(_GRADIENTS[row.colors], f"{below}{low:g}", f"{above}{top}{unit}")
