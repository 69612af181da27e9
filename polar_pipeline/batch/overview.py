"""The page of a batch: one HTML file with every recording, sortable and filterable in the browser, without a server.

The page is `templates/overview.html.j2`. Jinja escapes every text that goes into it, also in its data, from which
`templates/overview.js` makes the rows.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple
from urllib.parse import quote

import numpy as np

from polar_pipeline._util.files import replacing
from polar_pipeline._util.text import printable
from polar_pipeline.batch.frame_statistics import (
    RANKINGS,
    Latency,
    Minute,
    RecordingStatistics,
    read_statistics,
    worst,
)
from polar_pipeline.html.page import data_url, page_template
from polar_pipeline.quality.latency import Percentiles
from polar_pipeline.replay.picture import encode_picture, picture
from polar_pipeline.replay.run import Summary

#: Results of a recording, the worst first.
STATUSES = ("failed", "differs", "ok")
#: Longest side of a thumbnail in pixels, and the steps of its 256 levels, which make its file small.
THUMBNAIL_SIDE, THUMBNAIL_STEP = 96, 16
#: Products that a thumbnail may show, the preferred first.
THUMBNAIL_PRODUCTS = ("preview", "intensity", "dolp", "aolp")
#: Minutes that are listed for each ranking: of all recordings, and of one of them, there and with itself.
WORST_MINUTES, WORST_OF_RECORDING = 10, 3
#: Longest reason that is shown, in characters.
_MAX_REASON = 500


@dataclass(frozen=True)
class RecordingResult:
    """What became of a recording.

    Attributes:
        name: Its name.
        status: One of `STATUSES`.
        reason: Why it is not ok; "" if it is.
        report: Its report, relative to the folder of the batch; None without one.
        table: Its table of frames, or the folder of those of its parts, likewise.
        thumbnail: A picture of it as PNG; may be empty.
        device: What it was computed on; "" if it was not.
        seconds: How long that took.
    """

    name: str
    status: str
    reason: str
    report: Optional[str]
    table: Optional[str]
    thumbnail: bytes
    device: str
    seconds: float


@dataclass(frozen=True)
class _Column:
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
_HEADINGS = {
    "similarity": "Lowest similarity: dirt, fog, focus",
    "dropped": "Most frames dropped",
    "saturated": "Most saturated pixels",
}


def thumbnail(summary: Summary) -> bytes:
    """A small picture of the middle sample of a replay as PNG; empty without a product that can be shown."""
    if not summary.samples:
        return b""
    products = summary.samples[len(summary.samples) // 2].products
    name = next((name for name in THUMBNAIL_PRODUCTS if name in products), None)
    if name is None:
        return b""
    rgb = picture(name, products[name], THUMBNAIL_SIDE)
    coarse = rgb // THUMBNAIL_STEP * THUMBNAIL_STEP + rgb // THUMBNAIL_STEP  # 0 and 255 stay
    is_grey = bool((coarse == coarse[..., :1]).all())
    return encode_picture(coarse[..., 0] if is_grey else coarse, ".png")


def write_overview(folder: Path, results: Sequence[RecordingResult], facts: Mapping[str, str]) -> None:
    """Write `index.html` of a batch, complete or not at all.

    The statistics come from the tables, of which only some rows are in memory at any time. A table that cannot be read
    makes its recording one that failed.

    Args:
        folder: Of the batch.
        results: Its recordings.
        facts: Name -> value, listed first.

    Raises:
        OSError: The page cannot be written.
    """
    latency = Latency()
    minutes: Dict[str, List[Tuple[int, Minute]]] = {ranking: [] for ranking in RANKINGS}
    rows: List[Dict[str, Any]] = []
    frames = dropped = 0
    duration = 0.0
    for place, result in enumerate(results):
        found, final = _statistics(folder, result)
        rows.append(_row(final, found))
        if found is None:
            continue
        frames, dropped, duration = frames + found.frames, dropped + found.dropped, duration + found.duration
        latency.merge(found.latency)
        for ranking, kept in minutes.items():
            minutes[ranking] = _with_worst(kept, place, found.minutes, ranking)
    counts = {status: sum(row["status"] == status for row in rows) for status in STATUSES}
    totals = {
        "recordings": f"{len(rows)}: " + ", ".join(f"{counts[status]} {status}" for status in reversed(STATUSES)),
        "frames": f"{frames}, and {dropped} dropped; {duration / 3600:.2f} hours",
    }
    html = page_template(Path(__file__).parent / "templates", "overview.html.j2").render(
        report={"title": f"Batch of {len(rows)} recording{'s' if len(rows) != 1 else ''}"},
        facts={**facts, **totals},
        stages=_stages(latency.percentiles()),
        rankings=[
            {"heading": _HEADINGS[ranking], "minutes": [(rows[place]["name"], _minute(row)) for place, row in kept]}
            for ranking, kept in minutes.items()
        ],
        most=WORST_OF_RECORDING,
        columns=_COLUMNS,
        statuses=STATUSES,
        data={"columns": [(row.key, row.decimals) for row in _COLUMNS], "statuses": STATUSES, "rows": rows},
    )
    with replacing(folder / "index.html", force=True) as stream:
        stream.write(html.encode())


def _statistics(folder: Path, result: RecordingResult) -> Tuple[Optional[RecordingStatistics], RecordingResult]:
    """The statistics of a recording, None without a table; and its result, failed if the table cannot be read."""
    if result.table is None:
        return None, result
    try:
        return read_statistics(folder / result.table, WORST_OF_RECORDING), result
    except OSError as err:
        reason = "; ".join(filter(None, (result.reason, str(err))))
        values = (result.report, None, result.thumbnail, result.device, result.seconds)
        return None, RecordingResult(result.name, "failed", reason, *values)


def _with_worst(
    kept: List[Tuple[int, Minute]], place: int, minutes: Sequence[Minute], ranking: str
) -> List[Tuple[int, Minute]]:
    """The worst minutes of a ranking so far, with those of a recording at a place among them."""
    both = [*kept, *((place, minute) for minute in worst(minutes, ranking, WORST_OF_RECORDING))]
    owners = {id(minute): owner for owner, minute in both}
    found = worst((minute for _, minute in both), ranking, WORST_MINUTES)
    return [(owners[id(minute)], minute) for minute in found]


def _stages(percentiles: Mapping[str, Percentiles]) -> List[Tuple[str, List[str]]]:
    return [(stage, [f"{value:.3f}" for value in values]) for stage, values in percentiles.items()]


def _row(result: RecordingResult, found: Optional[RecordingStatistics]) -> Dict[str, Any]:
    """A recording as the page's script takes it; numbers in the units of `_COLUMNS`."""
    row: Dict[str, Any] = {
        "name": printable(result.name),
        "status": result.status,
        "reason": printable(result.reason, _MAX_REASON),
        "device": printable(result.device),
        "seconds": _short(result.seconds) if result.device else None,
        "report": _link(result.report),
        "table": _link(result.table),
        "thumbnail": data_url(result.thumbnail, "png") if result.thumbnail else "",
        "minutes": [],
    }
    if found is None:
        return row
    means, spot, total = found.means, found.spot, found.latency.percentiles().get("total")
    row.update(
        frames=found.frames,
        dropped=found.dropped,
        late=found.counts["late"],
        repeated=found.counts["repeated"],
        duration=_short(found.duration),
        rate=_short((found.frames - 1) / found.duration) if found.duration else None,
        ssim=_short(means.get("ssim")),
        lowest=_short(spot.ssim if spot else None),
        at=_at(spot.x, spot.y, spot.place) if spot else "",
        saturated=_short(means.get("saturated"), 100),
        dark=_short(means.get("dark"), 100),
        dolp=_short(means.get("dolp")),
        start=_utc((found.start_ns or 0) // 10**9, "%Y-%m-%d %H:%M:%S"),
        layout="" if found.layout_fits is None else "fits" if found.layout_fits else "does not fit",
        minutes=[_minute(minute) for minute in found.minutes],
    )
    if total:
        row.update({name: _short(getattr(total, name)) for name in ("p50", "p95", "p99", "max")})
    return row


def _minute(minute: Minute) -> Dict[str, str]:
    """A minute as text."""
    means, spot = minute.means, minute.spot
    return {
        "start": _utc(minute.start_s, "%Y-%m-%d %H:%M"),
        "frames": str(minute.frames),
        "lowest": _text(means.get("lowest"), 4),
        "at": f"{_at(spot.x, spot.y, spot.place)}, {100 * minute.share:.0f} %" if spot else "",
        "dropped": str(minute.dropped),
        "saturated": _text(means.get("saturated"), 3, 100),
    }


def _at(x: int, y: int, place: str) -> str:
    return f"{place} ({x}, {y})"


def _utc(seconds: int, form: str) -> str:
    return dt.datetime.fromtimestamp(seconds, dt.timezone.utc).strftime(form)


def _text(value: Optional[float], decimals: int, scale: float = 1.0) -> str:
    return "" if value is None else f"{scale * value:.{decimals}f}"


def _short(value: Optional[float], scale: float = 1.0) -> Optional[float]:
    """A number with the digits that the page needs; None for what JSON cannot hold."""
    return float(f"{scale * value:.6g}") if value is not None and np.isfinite(value) else None


def _link(path: Optional[str]) -> str:
    """A path relative to the page as its address, which has no scheme and no host whatever the path holds."""
    return "" if path is None else "./" + quote(path.lstrip("/"))
