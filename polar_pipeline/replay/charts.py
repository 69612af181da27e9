"""Geometry of the report's charts, which `templates/charts.html.j2` draws as SVG. Places are in pixels, y downwards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Sequence, Tuple

import numpy as np

#: Width and height of a chart without the line of labels below it, and the margin left of the vertical axis.
WIDTH, HEIGHT, MARGIN = 640, 160, 44
#: Bars of a histogram.
BINS = 40
#: A line of at most this many points has a dot at each of them.
MAX_DOTS = 60
_RIGHT = WIDTH - 8
_TOP = 10


@dataclass(frozen=True)
class Axes:
    """Labels of the ends of both axes."""

    left: str
    right: str
    bottom: str
    top: str


@dataclass(frozen=True)
class LineChart:
    """A line through (x, y), and whether its points are marked."""

    axes: Axes
    points: Tuple[Tuple[float, float], ...]
    has_dots: bool


@dataclass(frozen=True)
class Bar:
    """One bar of a histogram: its upper left corner, its size, and the number that it stands for."""

    x: float
    y: float
    width: float
    height: float
    count: int


@dataclass(frozen=True)
class Histogram:
    """Bars from left to right; empty bins have none."""

    axes: Axes
    bars: Tuple[Bar, ...]


def _scaled(values: np.ndarray, low: float, high: float, start: float, end: float) -> np.ndarray:
    """Values on an axis from low to high -> pixels from start to end."""
    return start + (values - low) / ((high - low) or 1) * (end - start)


def line_chart(points: Sequence[Tuple[float, float]]) -> LineChart:
    """A line chart of (seconds, value); the vertical axis ends at multiples of 0.02.

    Args:
        points: At least one, by time.
    """
    seconds, values = np.array(points).T
    low, high = np.floor(values.min() * 50) / 50, np.ceil(values.max() * 50) / 50
    x = _scaled(seconds, seconds[0], seconds[-1], MARGIN, _RIGHT)
    y = _scaled(values, low, high, HEIGHT, _TOP)
    axes = Axes(f"{seconds[0]:.2f} s", f"{seconds[-1]:.2f} s", f"{low:.2f}", f"{high:.2f}")
    return LineChart(axes, tuple(zip(x.tolist(), y.tolist())), len(x) <= MAX_DOTS)


def histogram(milliseconds: np.ndarray) -> Histogram:
    """A histogram of the milliseconds of frames."""
    counts, edges = np.histogram(milliseconds, bins=BINS)
    x = _scaled(edges, edges[0], edges[-1], MARGIN, _RIGHT)
    y = _scaled(counts, 0, counts.max(), HEIGHT, _TOP)
    bars = tuple(
        Bar(float(left), float(top), max(1.0, float(right - left - 1)), float(HEIGHT - top), int(count))
        for left, right, top, count in zip(x, x[1:], y, counts)
        if count
    )
    return Histogram(Axes(f"{edges[0]:.3g} ms", f"{edges[-1]:.3g} ms", "0", str(counts.max())), bars)
