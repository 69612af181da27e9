"""The page of a batch: one HTML file with every recording, sortable and filterable in the browser, without a server.

The page is `templates/overview.html.j2`. Jinja escapes every text that goes into it, also in its data, from which
`templates/overview.js` makes the rows.
"""

from __future__ import annotations

import base64
import datetime as dt
from dataclasses import replace
from pathlib import Path
from typing import Any, Dict, Iterable, List, Mapping, NamedTuple, Optional, Tuple
from urllib.parse import quote

import numpy as np

from polar_pipeline._util.files import replacing
from polar_pipeline._util.text import printable
from polar_pipeline.pictures.colors import picture
from polar_pipeline.pictures.files import encode_picture
from polar_pipeline.replay.html.page import page_template
from polar_pipeline.replay.run import Summary
from polar_pipeline.tools.batch.results import PAGE, RECORDINGS, Outcome
from polar_pipeline.tools.batch.table import table_path
from polar_pipeline.tools.batch.table_statistics import RANKINGS, Latency, Minute, Statistics, read_statistics, worst

#: Results of a recording, the worst first.
STATUSES = ("failed", "differs", "ok")
#: Longest side of a thumbnail in pixels, and the steps of its 256 levels, which make its file small.
THUMBNAIL_SIDE, THUMBNAIL_STEP = 96, 16
#: Products that a thumbnail may show, the preferred first.
THUMBNAIL_PRODUCTS = ("preview", "intensity", "dolp", "aolp")
#: Minutes that are listed for each ranking: of all recordings, and of one of them, there and with itself.
WORST_MINUTES, WORST_OF_RECORDING = 10, 3
#: Longest reason on the page, in characters.
_MAX_REASON = 500


class _Column(NamedTuple):
    """A column of the page: key of its values, also in filters, heading, decimals of its numbers, and its meaning."""

    key: str
    heading: str
    decimals: int
    text: str


_COLUMNS = (
    _Column("frames", "frames", 0, "rows of its table, processed or not"),
    _Column("dropped", "dropped", 0, "frames that could not be used, and those that the recording lacks"),
    _Column("late", "late", 0, "frames that took longer than the frame period"),
    _Column("duration", "duration [s]", 1, "from the first stamp to the last"),
    _Column("rate", "rate [Hz]", 2, "frames per second of the recording"),
    _Column("p50", "p50 [ms]", 2, "median of the processing time per frame"),
    _Column("p95", "p95 [ms]", 2, "95th percentile of the processing time per frame"),
    _Column("p99", "p99 [ms]", 2, "99th percentile of the processing time per frame"),
    _Column("ssim", "SSIM", 4, "mean similarity"),
    _Column("lowest", "lowest block", 4, "lowest similarity of a block, and where it is"),
    _Column("saturated", "saturated [%]", 3, "share of the pixels, mean of the frames"),
    _Column("dark", "dark [%]", 3, "share of the pixels, mean of the frames"),
    _Column("dolp", "DoLP", 4, "mean degree of linear polarization of the valid pixels"),
    _Column("seconds", "computed in [s]", 1, "time that it took"),
)
#: Numbers of a row that come from the table.
_FIGURES = (*(column.key for column in _COLUMNS if column.key != "seconds"), "max", "repeated")
_HEADINGS = {
    "similarity": "Lowest similarity: dirt, fog, focus",
    "dropped": "Most frames dropped",
    "saturated": "Most saturated pixels",
}


def thumbnail(summary: Summary) -> str:
    """Return a small picture of the middle sample of a replay, PNG in Base64; "" without a product to show."""
    samples = summary.samples
    products = samples[len(samples) // 2].products if samples else {}
    name = next((name for name in THUMBNAIL_PRODUCTS if name in products), None)
    if name is None:
        return ""
    rgb = picture(name, products[name], THUMBNAIL_SIDE)
    coarse = rgb // THUMBNAIL_STEP * THUMBNAIL_STEP + rgb // THUMBNAIL_STEP  # 0 and 255 stay
    is_gray = bool((coarse == coarse[..., :1]).all())
    return base64.b64encode(encode_picture(coarse[..., 0] if is_gray else coarse, ".png")).decode()


def write_overview(folder: Path, outcomes: Iterable[Outcome], facts: Mapping[str, str]) -> None:
    """Write `index.html` of a batch, complete or not at all; `facts` are listed after the totals.

    The statistics come from the tables, of which one is in memory at any time. A table that cannot be read makes its
    recording one that failed.
    """
    latency = Latency()
    minutes: Dict[str, List[Minute]] = {ranking: [] for ranking in RANKINGS}
    rows: List[Dict[str, Any]] = []
    for outcome in outcomes:
        row, statistics = _row(folder, outcome)
        rows.append(row)
        if statistics is None:
            continue
        latency.merge(statistics.latency)
        for ranking in RANKINGS:
            minutes[ranking] += worst(statistics.minutes, ranking, WORST_OF_RECORDING)
    frames, dropped, duration = (sum(row.get(name, 0) for row in rows) for name in ("frames", "dropped", "duration"))
    counts = {status: sum(row["status"] == status for row in rows) for status in STATUSES}
    totals = {
        "recordings": f"{len(rows)}: " + ", ".join(f"{counts[status]} {status}" for status in reversed(STATUSES)),
        "frames": f"{frames:.0f}, and {dropped:.0f} dropped; {duration / 3600:.2f} hours",
    }
    html = page_template(Path(__file__).parent / "templates", "overview.html.j2").render(
        report={"title": f"Batch of {len(rows)} recording{'s' if len(rows) != 1 else ''}"},
        facts={**totals, **facts},
        stages=[(stage, [f"{value:.3f}" for value in row.values()]) for stage, row in latency.percentiles().items()],
        rankings=[
            {"heading": heading, "minutes": [_minute(row) for row in worst(minutes[ranking], ranking, WORST_MINUTES)]}
            for ranking, heading in _HEADINGS.items()
        ],
        most=WORST_OF_RECORDING,
        columns=_COLUMNS,
        statuses=STATUSES,
        data={"columns": [(row.key, row.decimals) for row in _COLUMNS], "statuses": STATUSES, "rows": rows},
    )
    with replacing(folder / PAGE, force=True) as stream:
        stream.write(html.encode())


def _row(folder: Path, outcome: Outcome) -> Tuple[Dict[str, Any], Optional[Statistics]]:
    """Return a recording as the page's script takes it, numbers in the units of `_COLUMNS`; and its statistics."""
    statistics, report, table = None, "", ""
    if outcome.status != "failed":
        report = f"{RECORDINGS}/{outcome.name}/report.html" if outcome.has_products else ""
        try:
            path = table_path(folder, outcome.name)
            statistics = read_statistics(path, printable(outcome.name), WORST_OF_RECORDING)
            table = path.parent.relative_to(folder).as_posix()
        except OSError as err:
            reason = "; ".join(filter(None, (outcome.reason, str(err))))
            outcome = replace(outcome, status="failed", reason=reason)
    row: Dict[str, Any] = {
        "name": printable(outcome.name),
        "status": outcome.status,
        "reason": printable("; ".join(filter(None, (outcome.reason, outcome.warnings))), _MAX_REASON),
        "device": printable(outcome.device),
        "seconds": _short(outcome.seconds) if outcome.device else None,
        "report": _link(report),
        "table": _link(table),
        "thumbnail": f"data:image/png;base64,{outcome.thumbnail}" if outcome.thumbnail else "",
        "minutes": [],
    }
    if statistics is None:
        return row, None
    figures = {**statistics.figures, **statistics.latency.percentiles().get("total", {})}
    for name in ("saturated", "dark"):
        figures[name] = None if figures[name] is None else 100 * figures[name]
    row.update({name: _short(figures.get(name)) for name in _FIGURES})
    row.update(
        at=_at(figures["place"]) if figures["place"] else "",
        start=_utc(figures["start_s"], "%Y-%m-%d %H:%M:%S"),
        layout={None: "", 0: "does not fit", 1: "fits"}[figures["layout_fits"]],
        minutes=[_minute(minute) for minute in statistics.minutes],
    )
    return row, statistics


def _minute(minute: Minute) -> Dict[str, str]:
    """Return a minute as text."""
    return {
        "recording": minute.recording,
        "start": _utc(minute.start_s, "%Y-%m-%d %H:%M"),
        "frames": str(minute.frames),
        "lowest": "" if minute.lowest is None else f"{minute.lowest:.4f}",
        "at": f"{_at(minute.place)}, {100 * minute.share:.0f} %" if minute.place else "",
        "dropped": str(minute.dropped),
        "saturated": "" if minute.saturated is None else f"{100 * minute.saturated:.3f}",
    }


def _at(place: Mapping[str, Any]) -> str:
    return f"{place['lowest_place'] or ''} ({place['lowest_x']}, {place['lowest_y']})"


def _utc(seconds: int, form: str) -> str:
    return dt.datetime.fromtimestamp(seconds, dt.timezone.utc).strftime(form)


def _short(value: Optional[float]) -> Optional[float]:
    """Return a number with the digits that the page needs; None for what JSON cannot hold."""
    return float(f"{value:.6g}") if value is not None and np.isfinite(value) else None


def _link(path: str) -> str:
    """Return the address of a path relative to the page, which has no scheme and no host whatever the path contains."""
    return "./" + quote(path.lstrip("/")) if path else ""
