"""Geometry of a report's charts, which `templates/charts.html.j2` draws as SVG. Places are in pixels, y downwards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Optional, Sequence, Tuple

import numpy as np

Points = Sequence[Tuple[float, float]]
Ends = Tuple[float, float]

#: Width and height of a chart without the line of labels below it, and the margin left of the vertical axis.
WIDTH, HEIGHT, MARGIN = 640, 160, 44
#: Bars of a histogram.
BINS = 40
#: A line of at most this many points has a dot at each of them.
MAX_DOTS = 60
_RIGHT = WIDTH - 8
_TOP = 10


class Axes(NamedTuple):
    """Labels of the ends of both axes."""

    left: str
    right: str
    bottom: str
    top: str


@dataclass(frozen=True)
class Bar:
    """One bar of a histogram: its upper left corner, its size, and the number that it stands for."""

    x: float
    y: float
    width: float
    height: float
    count: int


class Chart(NamedTuple):
    """A line through (x, y) and dots, or the bars of a histogram from left to right; empty bins have no bar."""

    axes: Axes
    line: Points = ()
    dots: Points = ()
    bars: Tuple[Bar, ...] = ()


def _scaled(values: np.ndarray, low: float, high: float, start: float, end: float) -> np.ndarray:
    """Map values on an axis from low to high to pixels from start to end."""
    return start + (values - low) / ((high - low) or 1) * (end - start)


def line_chart(points: Points) -> Chart:
    """Make a line chart of (seconds, value), by time; the vertical axis ends at multiples of 0.02."""
    seconds, values = np.array(points).T
    low, high = np.floor(values.min() * 50) / 50, np.ceil(values.max() * 50) / 50
    axes = Axes(f"{seconds[0]:.2f} s", f"{seconds[-1]:.2f} s", f"{low:.2f}", f"{high:.2f}")
    return plot(axes, points, (seconds[0], seconds[-1]), (low, high))


def plot(axes: Axes, line: Points, ends_of_x: Ends, ends_of_y: Ends, dots: Optional[Points] = None) -> Chart:
    """Make a chart of a line and dots (x, y), at least one of each; points beyond an axis are drawn at its end.

    Without `dots`, there is one at each point of a line that has at most `MAX_DOTS`.
    """

    def places(points: Points) -> Points:
        x, y = np.clip(points, *np.array([ends_of_x, ends_of_y]).T).T
        rows = zip(_scaled(x, *ends_of_x, MARGIN, _RIGHT).tolist(), _scaled(y, *ends_of_y, HEIGHT, _TOP).tolist())
        return tuple(rows)

    if dots is None:
        dots = line if len(line) <= MAX_DOTS else ()
    return Chart(axes, places(line), places(dots) if dots else ())


def histogram(values: np.ndarray, unit: str = " ms", ends: Optional[Ends] = None) -> Chart:
    """Make a histogram of at least one value; values beyond `ends`, by default the extremes, are left out."""
    counts, edges = np.histogram(values, bins=BINS, range=ends)
    x = _scaled(edges, edges[0], edges[-1], MARGIN, _RIGHT)
    y = _scaled(counts, 0, counts.max(), HEIGHT, _TOP)
    bars = tuple(
        Bar(float(left), float(top), max(1.0, float(right - left - 1)), float(HEIGHT - top), int(count))
        for left, right, top, count in zip(x, x[1:], y, counts)
        if count
    )
    return Chart(Axes(label(edges[0], unit), label(edges[-1], unit), "0", str(counts.max())), bars=bars)


def label(value: float, unit: str) -> str:
    """Format a number with three significant digits, without an exponent if it is large, and its unit."""
    return f"{value:.0f}{unit}" if abs(value) >= 999.5 else f"{value:.3g}{unit}"
