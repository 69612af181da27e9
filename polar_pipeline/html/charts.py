"""Geometry of a report's charts, which `templates/charts.html.j2` draws as SVG. Places are in pixels, y downwards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional, Sequence, Tuple, Union

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
class Chart:
    """A line through (x, y), and dots."""

    axes: Axes
    line: Tuple[Tuple[float, float], ...]
    dots: Tuple[Tuple[float, float], ...]


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
    """Map values on an axis from low to high to pixels from start to end."""
    return start + (values - low) / ((high - low) or 1) * (end - start)


def line_chart(points: Sequence[Tuple[float, float]]) -> Chart:
    """Make a line chart of (seconds, value); the vertical axis ends at multiples of 0.02.

    Args:
        points: At least one, by time.
    """
    seconds, values = np.array(points).T
    low, high = np.floor(values.min() * 50) / 50, np.ceil(values.max() * 50) / 50
    axes = Axes(f"{seconds[0]:.2f} s", f"{seconds[-1]:.2f} s", f"{low:.2f}", f"{high:.2f}")
    return lines(points, (float(low), float(high)), axes)


def lines(points: Sequence[Tuple[float, float]], ends: Tuple[float, float], axes: Axes) -> Chart:
    """Make a line chart of (x, y) from the first point to the last one.

    Args:
        points: At least one, in the order of x.
        ends: Ends of the vertical axis.
        axes: Labels.
    """
    places = _places(points, (points[0][0], points[-1][0]), ends)
    return Chart(axes, places, places if len(places) <= MAX_DOTS else ())


def scatter(
    dots: Sequence[Tuple[float, float]],
    line: Sequence[Tuple[float, float]],
    ends: Tuple[Tuple[float, float], Tuple[float, float]],
    axes: Axes,
) -> Chart:
    """Make a chart of dots (x, y) and a line; dots beyond an end of an axis are drawn at the end.

    Args:
        dots: At least one.
        line: At least one point.
        ends: Ends of the horizontal and the vertical axis.
        axes: Labels.
    """
    low, high = np.array(ends).T
    return Chart(axes, _places(line, *ends), _places(np.clip(dots, low, high), *ends))


def _places(
    points: Union[np.ndarray, Sequence[Tuple[float, float]]],
    ends_of_x: Tuple[float, float],
    ends_of_y: Tuple[float, float],
) -> Tuple[Tuple[float, float], ...]:
    """Return the places of (x, y) on a chart."""
    x, y = np.array(points).T
    return tuple(zip(_scaled(x, *ends_of_x, MARGIN, _RIGHT).tolist(), _scaled(y, *ends_of_y, HEIGHT, _TOP).tolist()))


def histogram(values: np.ndarray, unit: str = " ms", ends: Optional[Tuple[float, float]] = None) -> Histogram:
    """Make a histogram.

    Args:
        values: At least one.
        unit: Follows the labels of the horizontal axis.
        ends: Ends of the axis; values beyond them are left out. None for the lowest and the highest value.
    """
    counts, edges = np.histogram(values, bins=BINS, range=ends)
    x = _scaled(edges, edges[0], edges[-1], MARGIN, _RIGHT)
    y = _scaled(counts, 0, counts.max(), HEIGHT, _TOP)
    bars = tuple(
        Bar(float(left), float(top), max(1.0, float(right - left - 1)), float(HEIGHT - top), int(count))
        for left, right, top, count in zip(x, x[1:], y, counts)
        if count
    )
    return Histogram(Axes(label(edges[0], unit), label(edges[-1], unit), "0", str(counts.max())), bars)


def label(value: float, unit: str) -> str:
    """Format a number with three significant digits, without an exponent if it is large, and its unit."""
    return f"{value:.0f}{unit}" if abs(value) >= 999.5 else f"{value:.3g}{unit}"
