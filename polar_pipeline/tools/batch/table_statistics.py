"""Statistics of a recording, computed from its table of frames by PyArrow: figures, latency, worst minutes."""

from __future__ import annotations

import heapq
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Optional

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from polar_pipeline.tools.batch.table import STAGES

#: Relative error of a percentile of latencies up to 65 s.
ACCURACY = 0.0005
_MEANS = ("ssim", "saturated", "dark", "dolp")
_PLACE = ["lowest_x", "lowest_y", "lowest_place"]
_COLUMNS = ["stamp", "layout_fits", "rejected", "lost", "late", "repeated", "lowest", *_MEANS, *_PLACE]
_COLUMNS += [f"{stage}_ms" for stage in STAGES]
_MINUTE_NS = 60 * 10**9


class Minute(NamedTuple):
    """A minute of a recording, by the clock of its stamps, with the means of its frames; None without a value.

    Attributes:
        start_s: Its start in seconds since 1970.
        dropped: Frames that were rejected, and frames that the recording lacks.
        lowest: Similarity of the lowest block.
        place: The place where the lowest block was most often, by column of the table.
        share: Share of the frames in which it was there: near 1 for dirt, low for motion.
    """

    recording: str
    start_s: int
    frames: int
    dropped: int
    lowest: Optional[float]
    saturated: Optional[float]
    place: Optional[Dict[str, Any]] = None
    share: float = 0.0


#: Ranking -> sort key of a minute, the worst first; None for minutes that are not bad in this way.
RANKINGS: Dict[str, Callable[[Minute], Any]] = {
    "similarity": lambda minute: minute.lowest,
    "dropped": lambda minute: -minute.dropped or None,
    "saturated": lambda minute: -(minute.saturated or 0.0) or None,
}


class Latency:
    """Milliseconds per stage as histograms, which can be merged.

    A bin is a number of half precision, within `ACCURACY` of its values; its bits have the order of the numbers.
    """

    def __init__(self) -> None:
        self._counts = np.zeros((len(STAGES), 1 << 15), np.int64)

    def add(self, stage: str, values: np.ndarray) -> None:
        """Count the milliseconds of many frames."""
        bins = np.minimum(values, np.finfo(np.float16).max).astype(np.float16).view(np.uint16)
        self._counts[STAGES.index(stage)] += np.bincount(bins, minlength=1 << 15)

    def merge(self, other: Latency) -> None:
        """Add all frames of another one."""
        self._counts += other._counts

    def percentiles(self) -> Dict[str, Dict[str, float]]:
        """Return stage -> p50, p95, p99 and maximum, for stages with values."""
        percentiles = {}
        for stage, counts in zip(STAGES, self._counts):
            if counts.any():
                ranks = np.array((0.5, 0.95, 0.99, 1.0)) * (counts.sum() - 1)
                bins = np.searchsorted(np.cumsum(counts), ranks, side="right").astype(np.uint16)
                percentiles[stage] = dict(zip(("p50", "p95", "p99", "max"), bins.view(np.float16).tolist()))
        return percentiles


class Statistics(NamedTuple):
    """The statistics of a recording.

    Attributes:
        figures: `frames` (rows of the table), `start_s` (time of the first stamp), `duration` in seconds, `rate` in
            frames per second, `layout_fits`, the numbers of frames `dropped` (as in `Minute`), `late` and `repeated`,
            the means `ssim`, `saturated`, `dark` and `dolp`, the similarity `lowest` of the lowest block of all frames
            and its `place` (as in `Minute`); None if the table has no value.
        latency: Milliseconds per stage.
        minutes: The worst minutes for each of `RANKINGS`, by time.
    """

    figures: Dict[str, Any]
    latency: Latency
    minutes: List[Minute]


def worst(minutes: Iterable[Minute], ranking: str, count: int) -> List[Minute]:
    """Return the worst minutes of a ranking, the worst first."""
    key = RANKINGS[ranking]
    return heapq.nsmallest(count, (minute for minute in minutes if key(minute) is not None), key=key)


def read_statistics(path: Path, recording: str, minutes: int = 3) -> Statistics:
    """Compute the statistics of a recording from its table, with `minutes` of the worst for each of `RANKINGS`.

    Raises:
        OSError: The table cannot be read, or is not such a table.
    """
    try:
        with path.open("rb") as stream:  # PyArrow takes no path that is not UTF-8
            table = pq.read_table(stream, columns=_COLUMNS, partitioning=None)
        stamps = table["stamp"].cast(pa.int64())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as err:
        raise OSError(f"{path} is not a table of frames: {err}") from err
    latency = Latency()
    for stage in STAGES:
        latency.add(stage, table[f"{stage}_ms"].drop_null().to_numpy())
    # a frame without a stamp belongs to the minute of the frame before it
    minute = pc.divide(pc.fill_null_backward(pc.fill_null_forward(stamps)), _MINUTE_NS)
    table = table.append_column("minute", minute)
    return Statistics(_figures(table, stamps), latency, _worst_minutes(table, recording, minutes))


def _figures(table: pa.Table, stamps: pa.ChunkedArray) -> Dict[str, Any]:
    total = {name: pc.sum(table[name]).as_py() or 0 for name in ("rejected", "lost", "late", "repeated")}
    start, end = (value or 0 for value in pc.min_max(stamps).as_py().values())
    duration = (end - start) / 1e9
    least = pc.index(table["lowest"], pc.min(table["lowest"])).as_py()
    return {
        **{name: pc.mean(table[name]).as_py() for name in _MEANS},
        "frames": table.num_rows,
        "dropped": total["rejected"] + total["lost"],
        "late": total["late"],
        "repeated": total["repeated"],
        "start_s": start // 10**9,
        "duration": duration,
        "rate": (table.num_rows - 1) / duration if duration else None,
        "layout_fits": pc.max(table["layout_fits"].cast(pa.int8())).as_py(),
        "lowest": table["lowest"][least].as_py() if least >= 0 else None,
        "place": table.select(_PLACE).slice(least, 1).to_pylist()[0] if least >= 0 else None,
    }


def _worst_minutes(table: pa.Table, recording: str, count: int) -> List[Minute]:
    sums = [("rejected", "count"), ("rejected", "sum"), ("lost", "sum"), ("lowest", "mean"), ("saturated", "mean")]
    minutes = [
        Minute(
            recording,
            60 * row["minute"],
            row["rejected_count"],
            row["rejected_sum"] + (row["lost_sum"] or 0),
            row["lowest_mean"],
            row["saturated_mean"],
        )
        for row in table.group_by("minute").aggregate(sums).sort_by("minute").to_pylist()
        if row["minute"] is not None
    ]
    selected = {minute.start_s: minute for ranking in RANKINGS for minute in worst(minutes, ranking, count)}
    return [_placed(minute, table) for _, minute in sorted(selected.items())]


def _placed(minute: Minute, table: pa.Table) -> Minute:
    """Return a minute with the place where its lowest block was most often."""
    rows = table.filter(pc.and_(pc.equal(table["minute"], minute.start_s // 60), pc.is_valid(table["lowest"])))
    order = [("lowest_count", "descending"), ("lowest_y", "ascending"), ("lowest_x", "ascending")]
    places = rows.group_by(_PLACE).aggregate([("lowest", "count")]).sort_by(order)
    if not places.num_rows:
        return minute
    (place,) = places.slice(0, 1).to_pylist()
    return minute._replace(place=place, share=place["lowest_count"] / rows.num_rows)
