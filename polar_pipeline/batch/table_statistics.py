"""Statistics of a recording, computed from its table of frames by PyArrow: figures, latency, worst minutes."""

from __future__ import annotations

import collections
import heapq
from pathlib import Path
from typing import Any, Callable, Counter, Dict, Iterable, List, NamedTuple, Optional

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from polar_pipeline.batch.table import STAGES

#: Relative error of a percentile.
ACCURACY = 0.005
#: Columns whose means, and whose sums, are figures of a recording.
MEANS = ("ssim", "lowest", "saturated", "dark", "dolp")
SUMS = ("rejected", "lost", "late", "repeated")
_PLACE = ["lowest_x", "lowest_y", "lowest_place"]
_MINUTE_NS = 60 * 10**9
_GROWTH = (1 + ACCURACY) / (1 - ACCURACY)


class Minute(NamedTuple):
    """A minute of a recording, by the clock of its stamps.

    Attributes:
        start_s: Its start in seconds since 1970.
        frames: Frames in the table, processed or not.
        dropped: Frames that were rejected, and frames that the recording lacks.
        lowest: Mean similarity of the lowest block; None if nothing was compared.
        saturated: Mean share of saturated pixels; None if no frame was processed.
        place: The place where the lowest block was most often, by column of the table.
        share: Share of the frames in which it was there: near 1 for dirt, low for motion.
    """

    start_s: int
    frames: int
    dropped: int
    lowest: Optional[float]
    saturated: Optional[float]
    place: Optional[Dict[str, Any]] = None
    share: float = 0.0


#: Ranking -> sort key of a minute, the worst first; None for minutes that are not bad in this way.
RANKINGS: Dict[str, Callable[[Minute], Optional[float]]] = {
    "similarity": lambda minute: minute.lowest,
    "dropped": lambda minute: -minute.dropped or None,
    "saturated": lambda minute: -(minute.saturated or 0.0) or None,
}


class Latency:
    """Milliseconds per stage as histograms, which can be merged, and the exact maxima.

    The bins of a histogram grow by a constant factor, so that the center of a bin is within `ACCURACY` of its values.
    """

    def __init__(self) -> None:
        self._bins: Dict[str, Counter[float]] = collections.defaultdict(collections.Counter)
        self._largest: Dict[str, float] = collections.defaultdict(float)

    def add(self, stage: str, values: np.ndarray) -> None:
        """Add the milliseconds of many frames."""
        with np.errstate(divide="ignore"):
            bins = np.ceil(np.log(values.astype(np.float64)) / np.log(_GROWTH))
        self._bins[stage].update(dict(zip(*(row.tolist() for row in np.unique(bins, return_counts=True)))))
        self._largest[stage] = max(self._largest[stage], float(values.max(initial=0.0)))

    def merge(self, other: Latency) -> None:
        """Add all frames of another one."""
        for stage, bins in other._bins.items():
            self._bins[stage].update(bins)
            self._largest[stage] = max(self._largest[stage], other._largest[stage])

    def percentiles(self) -> Dict[str, Dict[str, float]]:
        """Return stage -> p50, p95 and p99 within `ACCURACY`, and the exact maximum."""
        percentiles = {}
        for stage in (stage for stage in STAGES if self._bins.get(stage)):
            bins, counts = np.array(sorted(self._bins[stage].items())).T
            places = np.searchsorted(np.cumsum(counts), np.array((0.5, 0.95, 0.99)) * (counts.sum() - 1), side="right")
            values = np.minimum((1 - ACCURACY) * _GROWTH ** bins[places], self._largest[stage]).tolist()
            percentiles[stage] = dict(zip(("p50", "p95", "p99", "max"), (*values, self._largest[stage])))
        return percentiles


class Statistics(NamedTuple):
    """The statistics of a recording.

    Attributes:
        figures: `frames` (rows of the table), `start_ns` (the first stamp), `duration` in seconds, `layout_fits` (for
            several parts, whether all fit), `SUMS`, `MEANS`, and of the lowest block of all frames `least` and its
            place; None where the table has no value.
        latency: Milliseconds per stage.
        minutes: The worst minutes for each of `RANKINGS`, by time.
    """

    figures: Dict[str, Any]
    latency: Latency
    minutes: List[Minute]


def worst(minutes: Iterable[Minute], ranking: str, count: int) -> List[Minute]:
    """Return the worst minutes of a ranking, the worst first."""
    key = RANKINGS[ranking]
    ranked = [(value, minute) for minute in minutes for value in [key(minute)] if value is not None]
    return [minute for _, minute in heapq.nsmallest(count, ranked, key=lambda row: row[0])]


def read_statistics(folder: Path, minutes: int = 3) -> Statistics:
    """Compute the statistics of a recording.

    Args:
        folder: The tables of its parts.
        minutes: How many of its worst minutes to keep for each of `RANKINGS`.

    Raises:
        OSError: The tables cannot be read, or are not such tables.
    """
    times = [f"{stage}_ms" for stage in STAGES]
    columns = ["stamp", "layout_fits", *SUMS, *MEANS, *_PLACE, *times]
    try:
        table = pq.read_table(str(folder), columns=columns, partitioning=None)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as err:
        raise OSError(f"{folder} is not a table of frames: {err}") from err
    for name in MEANS:  # NaN, as in a first frame without a previous one, is not a figure
        column = pc.if_else(pc.is_nan(table[name]), pa.scalar(None, pa.float32()), table[name])
        table = table.set_column(table.column_names.index(name), name, column)
    latency = Latency()
    for stage, name in zip(STAGES, times):
        latency.add(stage, table[name].drop_null().to_numpy())
    stamps = table["stamp"].cast(pa.int64())
    ends = pc.min_max(stamps).as_py()
    figures: Dict[str, Any] = {name: pc.mean(table[name]).as_py() for name in MEANS}
    figures.update({name: pc.sum(table[name]).as_py() or 0 for name in SUMS})
    figures.update(frames=table.num_rows, start_ns=ends["min"], duration=0.0)
    figures["layout_fits"] = pc.min_max(table["layout_fits"].cast(pa.int8())).as_py()["min"]
    least = pc.index(table["lowest"], pc.min(table["lowest"])).as_py()
    if least >= 0:
        figures.update({name: table[name][least].as_py() for name in _PLACE}, least=table["lowest"][least].as_py())
    if ends["min"] is None:
        return Statistics(figures, latency, [])
    figures["duration"] = (ends["max"] - ends["min"]) / 1e9
    # a frame without a stamp belongs to the minute of the frame before it
    stamps = pc.fill_null_backward(pc.fill_null_forward(stamps))
    return Statistics(
        figures, latency, _worst_minutes(table.append_column("minute", pc.divide(stamps, _MINUTE_NS)), minutes)
    )


def _worst_minutes(table: pa.Table, count: int) -> List[Minute]:
    sums = [("rejected", "count"), ("rejected", "sum"), ("lost", "sum"), ("lowest", "mean"), ("saturated", "mean")]
    minutes = [
        Minute(
            60 * row["minute"],
            row["rejected_count"],
            row["rejected_sum"] + (row["lost_sum"] or 0),
            row["lowest_mean"],
            row["saturated_mean"],
        )
        for row in table.group_by("minute").aggregate(sums).sort_by("minute").to_pylist()
    ]
    kept = {minute.start_s: minute for ranking in RANKINGS for minute in worst(minutes, ranking, count)}
    return [_placed(minute, table) for _, minute in sorted(kept.items())]


def _placed(minute: Minute, table: pa.Table) -> Minute:
    """Return a minute with the place where its lowest block was most often."""
    rows = table.filter(pc.and_(pc.equal(table["minute"], minute.start_s // 60), pc.is_valid(table["lowest"])))
    order = [("lowest_count", "descending"), ("lowest_y", "ascending"), ("lowest_x", "ascending")]
    places = rows.group_by(_PLACE).aggregate([("lowest", "count")]).sort_by(order)
    if not places.num_rows:
        return minute
    (place,) = places.slice(0, 1).to_pylist()
    return minute._replace(place=place, share=place["lowest_count"] / rows.num_rows)
