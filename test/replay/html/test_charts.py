"""Geometry of charts, computed by hand from the size of a chart."""

from __future__ import annotations

import numpy as np
import pytest

from polar_pipeline.replay.html.charts import Axes, histogram, label, line_chart, plot


def test_line_charts() -> None:
    """Drawn from (44, 160), the lower left corner, to (632, 10); the vertical axis ends at multiples of 0.02."""
    chart = line_chart([(0.5, 0.905), (1.5, 0.97)])
    assert chart.axes == Axes("0.50 s", "1.50 s", "0.90", "0.98")
    np.testing.assert_allclose(chart.line, [(44, 160 - 150 * 0.005 / 0.08), (632, 160 - 150 * 0.07 / 0.08)])
    assert chart.dots == chart.line
    single = line_chart([(3.0, 1.0)])  # neither axis has a length
    assert single.axes == Axes("3.00 s", "3.00 s", "1.00", "1.00")
    assert single.line == ((44, 160),)
    assert line_chart([(k, 0.5) for k in range(60)]).dots
    assert not line_chart([(k, 0.5) for k in range(61)]).dots


def test_histograms() -> None:
    chart = histogram(np.array([1.0, 3.0, 1.0, 1.0]))
    assert chart.axes == Axes("1 ms", "3 ms", "0", "3")
    width = (632 - 44) / 40 - 1  # 40 bins, with a gap of a pixel
    assert [bar.count for bar in chart.bars] == [3, 1]
    found = [(bar.x, bar.y, bar.width, bar.height) for bar in chart.bars]
    np.testing.assert_allclose(found, [(44, 10, width, 150), (632 - width - 1, 110, width, 50)])
    chart = histogram(np.array([-50.0, 0.0, 0.1, 2.0, 1e9]), " %", (0.0, 2.0))  # between given ends
    assert chart.axes == Axes("0 %", "2 %", "0", "1")
    assert sum(bar.count for bar in chart.bars) == 3


def test_lines_and_dots() -> None:
    axes = Axes("a", "b", "c", "d")
    assert plot(axes, [(2.0, 5.0), (3.0, 6.0), (4.0, 7.0)], (2, 4), (5, 7)).line == ((44, 160), (338, 85), (632, 10))
    chart = plot(axes, [(0.0, 0.0), (2.0, 10.0)], (0.0, 2.0), (0.0, 10.0), [(1.0, 5.0), (-1.0, 99.0)])
    assert chart.dots == ((338, 85), (44, 10))  # what lies beyond an end is drawn at it
    assert (chart.line, chart.axes) == (((44, 160), (632, 10)), axes)


@pytest.mark.parametrize(
    ("value", "text"), [(0.0, "0 %"), (-2.348, "-2.35 %"), (999.4, "999 %"), (999.6, "1000 %"), (-12345.6, "-12346 %")]
)
def test_labels(value: float, text: str) -> None:
    assert label(value, " %") == text
