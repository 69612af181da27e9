"""The report of a run: one HTML file that needs nothing else, readable in light and dark."""

from __future__ import annotations

import base64
from html import escape
from typing import Dict, Iterable, List, Mapping, NamedTuple, Sequence, Tuple

import numpy as np

from polar_pipeline.products import PRODUCTS
from polar_pipeline.replay.compare import Row
from polar_pipeline.replay.picture import encode, picture
from polar_pipeline.replay.run import Sample

#: Longest side of the pictures in the report, in pixels.
PICTURE_SIDE = 480
_BINS = 40
_CHART = (640, 160)
_MARGIN = 44

_STYLE = """
:root { color-scheme: light dark; --fore: #1d2430; --back: #fbfbf9; --soft: #6a7280; --line: #d9dce1; --mark: #0b6e99;
  --bad: #b3261e; --good: #1a7f4b; }
@media (prefers-color-scheme: dark) { :root { --fore: #e6e8ec; --back: #15181d; --soft: #9aa3b0; --line: #333a44;
  --mark: #56b3d8; --bad: #ff8a80; --good: #6fd39b; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--fore); background: var(--back); max-width: 68rem;
  margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin-bottom: .2rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; }
h3 { font-size: 1rem; font-weight: 600; margin: 1.2rem 0 .4rem; }
p { margin: .4rem 0; } .soft { color: var(--soft); } .bad { color: var(--bad); } .good { color: var(--good); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .8rem .25rem 0; text-align: right; border-bottom: 1px solid var(--line); }
th { font-weight: 600; } th:first-child, td:first-child, th.text, td.text { text-align: left; }
.pictures { display: grid; grid-template-columns: repeat(auto-fill, minmax(17rem, 1fr)); gap: 1rem; }
figure { margin: 0; } figure img { width: 100%; border-radius: 4px; display: block; background: #000; }
figcaption { font-size: .85rem; color: var(--soft); padding-top: .25rem; } figcaption b { color: var(--fore); }
.bar { height: .5rem; border-radius: 2px; margin-top: .3rem; }
.charts { display: grid; grid-template-columns: repeat(auto-fill, minmax(22rem, 1fr)); gap: 1rem 1.5rem; }
svg { width: 100%; max-width: 46rem; height: auto; display: block; }
svg text { font: 12px system-ui, sans-serif; fill: var(--soft); }
svg .axis { stroke: var(--line); } svg .mark { fill: var(--mark); } svg .line { fill: none; stroke: var(--mark);
  stroke-width: 1.5; }
"""
#: Colour bars below the pictures: CSS gradient, label of its ends.
_BARS = {
    "dolp": ("linear-gradient(90deg,#440154,#3b528b,#21918c,#5ec962,#fde725)", "0", "1"),
    "aolp": ("linear-gradient(90deg,red,yellow,lime,cyan,blue,magenta,red)", "0", "pi rad"),
    "ssim_map": ("linear-gradient(90deg,#000,#fff)", "≤ 0.8", "1"),
}


class Report(NamedTuple):
    """What a report says.

    Attributes:
        title: Heading.
        facts: Name -> value, listed first.
        rejected: (cause, frames, what was wrong with the first).
        samples: Frames to show.
        ssim: (seconds since the first frame, mean similarity) over the run.
        timings: Stage -> seconds per frame.
        rows: The comparison with a golden recording; empty without one.
    """

    title: str
    facts: Mapping[str, str]
    rejected: Sequence[Tuple[str, int, str]]
    samples: Sequence[Sample]
    ssim: Sequence[Tuple[float, float]]
    timings: Mapping[str, Sequence[float]]
    rows: Sequence[Row] = ()


def percentiles(seconds: Sequence[float]) -> Dict[str, float]:
    """p50, p95, p99 and max in milliseconds."""
    values = 1000 * np.asarray(seconds)
    p50, p95, p99 = np.percentile(values, [50, 95, 99])
    return {"p50": float(p50), "p95": float(p95), "p99": float(p99), "max": float(values.max())}


def format_timings(timings: Mapping[str, Sequence[float]]) -> str:
    """The percentiles of every stage as a table for people."""
    lines = [f"{'stage [ms]':<12} {'p50':>9} {'p95':>9} {'p99':>9} {'max':>9}"]
    for stage, seconds in timings.items():
        lines.append(f"{stage:<12} " + " ".join(f"{value:>9.3f}" for value in percentiles(seconds).values()))
    return "\n".join(lines)


def render(report: Report) -> str:
    """The report as HTML; the same report makes the same text."""
    parts = [f"<h1>{escape(report.title)}</h1>", _table([], [(escape(k), _text(v)) for k, v in report.facts.items()])]
    if report.rejected:
        parts.append('<h2 class="bad">Frames that could not be used</h2>')
        rows = [(escape(cause), str(count), _text(reason)) for cause, count, reason in report.rejected]
        parts.append(_table(["cause", "frames", _text("the first one", "th")], rows))
    if report.rows:
        parts += ["<h2>Comparison with the golden recording</h2>", _comparison(report.rows)]
    for sample in report.samples:
        parts.append(f'<h2>Frame <span class="soft">stamp {sample.stamp_ns / 1e9:.6f} s</span></h2>')
        parts.append('<div class="pictures">')
        parts += [_figure(name, array) for name, array in sample.products.items() if array.ndim]
        parts.append("</div>")
    finite = [point for point in report.ssim if np.isfinite(point[1])]
    if finite:
        parts += ["<h2>Image quality over time</h2>", "<p>Mean SSIM of each frame; seconds since the first.</p>"]
        parts.append(_line_chart(finite))
    if report.timings:
        parts += ["<h2>Latency per stage</h2>", _latency(report.timings)]
    body = "\n".join(parts)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(report.title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def _text(words: str, cell: str = "td") -> str:
    """A cell that is read from the left; `_table` takes it as it is."""
    return f'<{cell} class="text">{escape(words)}</{cell}>'


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of cells, which are HTML already."""

    def line(cells: Sequence[str], kind: str) -> str:
        return "<tr>" + "".join(c if c.startswith(f"<{kind} ") else f"<{kind}>{c}</{kind}>" for c in cells) + "</tr>"

    lines = [line(head, "th")] if head else []
    lines += [line(row, "td") for row in rows]
    return '<div class="wide"><table>\n' + "\n".join(lines) + "\n</table></div>"


def _figure(name: str, array: np.ndarray) -> str:
    data = base64.b64encode(encode(picture(name, array, PICTURE_SIDE))).decode()
    text = escape(PRODUCTS[name].text)
    bar = ""
    if name in _BARS:
        gradient, low, high = _BARS[name]
        bar = f'<div class="bar" style="background:{gradient}"></div>{low} <span style="float:right">{high}</span><br>'
    return (
        f'<figure><img alt="{text}" src="data:image/jpeg;base64,{data}">'
        f"<figcaption>{bar}<b>{escape(name)}</b> {text}</figcaption></figure>"
    )


def _comparison(rows: Sequence[Row]) -> str:
    head = ["product", "frames", "missing", "max error", "tolerance", "unit", "PSNR [dB]", "SSIM", "result"]
    cells = []
    for row in rows:
        result = '<b class="good">ok</b>' if row.passed else f'<b class="bad">failed</b> {escape(row.note)}'
        similarity = "" if np.isnan(row.ssim) else f"{row.ssim:.6f}"
        figures = (str(row.frames), str(row.missing), f"{row.error:.4g}", f"{row.tolerance:.4g}", escape(row.unit))
        cells.append((escape(row.name), *figures, f"{row.psnr:.2f}", similarity, result))
    return _table(head, cells)


def _latency(timings: Mapping[str, Sequence[float]]) -> str:
    rows, charts = [], []
    for stage, seconds in timings.items():
        figures = percentiles(seconds)
        rows.append((escape(stage), *(f"{value:.3f}" for value in figures.values())))
        charts.append(
            f"<figure>{_histogram(1000 * np.asarray(seconds))}<figcaption><b>{escape(stage)}</b></figcaption></figure>"
        )
    table = _table(["stage [ms]", "p50", "p95", "p99", "max"], rows)
    return f'{table}\n<h3>Frames by milliseconds</h3>\n<div class="charts">' + "\n".join(charts) + "</div>"


def _chart(marks: str, x_ends: Tuple[str, str], y_ends: Tuple[str, str]) -> str:
    """The frame of a chart: axes and the labels of their ends."""
    width, height = _CHART
    return (
        f'<svg viewBox="0 0 {width} {height + 20}" role="img">'
        f'<path class="axis" fill="none" d="M{_MARGIN} 8V{height}H{width - 8}"/>{marks}'
        f'<text x="{_MARGIN}" y="{height + 15}">{x_ends[0]}</text>'
        f'<text x="{width - 8}" y="{height + 15}" text-anchor="end">{x_ends[1]}</text>'
        f'<text x="{_MARGIN - 5}" y="{height}" text-anchor="end">{y_ends[0]}</text>'
        f'<text x="{_MARGIN - 5}" y="16" text-anchor="end">{y_ends[1]}</text></svg>'
    )


def _place(values: np.ndarray, low: float, high: float, start: float, end: float) -> np.ndarray:
    """Values on an axis from low to high -> pixels from start to end."""
    return start + (values - low) / ((high - low) or 1) * (end - start)


def _line_chart(points: Sequence[Tuple[float, float]]) -> str:
    seconds, values = np.array(points).T
    low, high = np.floor(values.min() * 50) / 50, np.ceil(values.max() * 50) / 50
    x = _place(seconds, seconds[0], seconds[-1], _MARGIN, _CHART[0] - 8)
    y = _place(values, low, high, _CHART[1], 10)
    line = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y))
    dots = (
        "".join(f'<circle class="mark" cx="{a:.1f}" cy="{b:.1f}" r="2.5"/>' for a, b in zip(x, y))
        if len(x) <= 60
        else ""
    )
    ends = (f"{seconds[0]:.2f} s", f"{seconds[-1]:.2f} s")
    return _chart(f'<polyline class="line" points="{line}"/>{dots}', ends, (f"{low:.2f}", f"{high:.2f}"))


def _histogram(values: np.ndarray) -> str:
    counts, edges = np.histogram(values, bins=_BINS)
    x = _place(edges, edges[0], edges[-1], _MARGIN, _CHART[0] - 8)
    y = _place(counts, 0, counts.max(), _CHART[1], 10)
    bars: List[str] = []
    for left, right, top, count in zip(x, x[1:], y, counts):
        if count:
            bars.append(
                f'<rect class="mark" x="{left:.1f}" y="{top:.1f}" width="{max(1.0, right - left - 1):.1f}" '
                f'height="{_CHART[1] - top:.1f}"><title>{count}</title></rect>'
            )
    return _chart("".join(bars), (f"{edges[0]:.3g} ms", f"{edges[-1]:.3g} ms"), ("0", str(counts.max())))
