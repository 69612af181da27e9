"""Statistics of a recording, read back from its table batch by batch of rows: figures, latency, worst minutes."""

from __future__ import annotations

import collections
import heapq
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Counter, Dict, Iterable, List, Mapping, Optional, Tuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from ddsketch import DDSketch

from polar_pipeline.batch.table import GROUP_ROWS, STAGES
from polar_pipeline.quality.latency import ACCURACY, RANKS, Percentiles
from polar_pipeline.quality.statistics import Spot

#: Columns that are means of processed frames.
MEANS = ("ssim", "lowest", "saturated", "dark", "intensity", "dolp")
_COUNTS = ("rejected", "lost", "late", "repeated")
_PLACES = ("lowest_x", "lowest_y", "lowest_place")
_COLUMNS = ("stamp", *_COUNTS, *MEANS, *_PLACES, "layout_fits", *(f"{stage}_ms" for stage in STAGES))
_MINUTE_NS = 60 * 10**9
#: Bits of a column in a key that holds a place: x, and y above it.
_SIDE_BITS = 24


@dataclass(frozen=True)
class Minute:
    """A minute of a recording, by the clock of its stamps.

    Attributes:
        start_s: Its start in seconds since 1970.
        frames: Frames in the table, processed or not.
        dropped: Frames that were rejected, and those that the recording lacks.
        means: Column -> mean of the processed frames, as far as there is one.
        spot: Where the lowest block most often was, with its mean similarity in those frames.
        share: In which share of the frames it was there: near 1 for dirt, low for motion.
    """

    start_s: int
    frames: int
    dropped: int
    means: Mapping[str, float]
    spot: Optional[Spot]
    share: float


#: Ranking -> sort key of a minute, the worst first; None for minutes that are not bad in this way.
RANKINGS: Dict[str, Callable[[Minute], Optional[float]]] = {
    "similarity": lambda minute: minute.means.get("lowest"),
    "dropped": lambda minute: -minute.dropped or None,
    "saturated": lambda minute: -minute.means.get("saturated", 0.0) or None,
}


@dataclass(frozen=True)
class Latency:
    """Milliseconds per stage as sketches, which can be merged, and the exact maxima."""

    sketches: Dict[str, DDSketch] = field(default_factory=dict)
    largest: Dict[str, float] = field(default_factory=dict)

    def add(self, stage: str, values: np.ndarray) -> None:
        """Add the milliseconds of many frames."""
        if values.size:
            self._merge(stage, sketch_of(values), float(values.max()))

    def merge(self, other: Latency) -> None:
        """Add all frames of another one."""
        for stage, sketch in other.sketches.items():
            self._merge(stage, sketch, other.largest[stage])

    def _merge(self, stage: str, sketch: DDSketch, largest: float) -> None:
        self.sketches.setdefault(stage, DDSketch(ACCURACY)).merge(sketch)
        self.largest[stage] = max(self.largest.get(stage, 0.0), largest)

    def percentiles(self) -> Dict[str, Percentiles]:
        """Stage -> percentiles within `ACCURACY`, in milliseconds, in the order of `STAGES`."""
        found = {}
        for stage in filter(self.sketches.__contains__, STAGES):
            largest = self.largest[stage]
            p50, p95, p99 = (min(self.sketches[stage].get_quantile_value(rank) or 0.0, largest) for rank in RANKS)
            found[stage] = Percentiles(p50, p95, p99, largest)
        return found


@dataclass(frozen=True)
class RecordingStatistics:
    """The statistics of a recording.

    Attributes:
        frames: Rows of its table.
        counts: Frames that are rejected, lost, late and repeated.
        start_ns: Its first stamp; None if no frame has one.
        duration: Seconds from its first stamp to its last.
        means: Column -> mean of the processed frames, as far as there is one.
        spot: The lowest block of all frames.
        layout_fits: The layout's verdict; of several parts, whether all that have one say so.
        latency: Milliseconds per stage.
        minutes: Its worst minutes for each of `RANKINGS`, by time.
    """

    frames: int
    counts: Mapping[str, int]
    start_ns: Optional[int]
    duration: float
    means: Mapping[str, float]
    spot: Optional[Spot]
    layout_fits: Optional[bool]
    latency: Latency
    minutes: List[Minute]

    @property
    def dropped(self) -> int:
        """Frames that were rejected, and those that the recording lacks."""
        return self.counts["rejected"] + self.counts["lost"]


def sketch_of(values: np.ndarray) -> DDSketch:
    """A sketch of many values at once, not negative: each is added as the representative of the bin it belongs to."""
    sketch = DDSketch(ACCURACY)
    positive = values[values > 0].astype(np.float64)
    if positive.size < values.size:
        sketch.add(0.0, values.size - positive.size)
    gamma = (1 + ACCURACY) / (1 - ACCURACY)
    keys, counts = np.unique(np.ceil(np.log(positive) / np.log(gamma)), return_counts=True)
    for value, count in zip((2 * gamma**keys / (1 + gamma)).tolist(), counts.tolist()):
        sketch.add(value, count)
    return sketch


def worst(minutes: Iterable[Minute], ranking: str, count: int) -> List[Minute]:
    """The worst minutes of a ranking, the worst first."""
    key = RANKINGS[ranking]
    ranked = [(value, minute) for minute in minutes for value in [key(minute)] if value is not None]
    return [minute for _, minute in heapq.nsmallest(count, ranked, key=lambda row: row[0])]


def read_statistics(path: Path, minutes: int = 3) -> RecordingStatistics:
    """The statistics of a recording, of which only some rows are in memory at any time.

    Args:
        path: Its table, or a folder of the tables of its parts.
        minutes: How many of its worst minutes to keep for each of `RANKINGS`.

    Raises:
        OSError: It cannot be read, or is no such table.
    """
    files = [path] if path.is_file() else sorted(path.glob("*.parquet"), key=lambda each: (len(each.name), each.name))
    if not files:
        raise FileNotFoundError(f"no table in {path}")
    reader = _Reader()
    for each in files:
        _read(each, reader)
    return reader.statistics(minutes)


def _read(path: Path, reader: _Reader) -> None:
    """Put the rows of a file into a reader."""
    try:
        with pq.ParquetFile(str(path)) as file:
            for batch in file.iter_batches(GROUP_ROWS, columns=list(_COLUMNS), use_threads=False):
                reader.add(batch)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, KeyError) as err:
        raise OSError(f"{path} is no table of frames: {err}") from err


class _Sums:
    """Numbers of rows, and the sums and numbers of values of `MEANS`, that belong together."""

    def __init__(self) -> None:
        self.frames = self.dropped = 0
        self.values = np.zeros((2, len(MEANS)))
        self.places: Counter[int] = collections.Counter()
        self.similarity: Counter[int] = collections.Counter()

    def means(self) -> Dict[str, float]:
        return {name: float(total / count) for name, total, count in zip(MEANS, *self.values) if count}


class _Reader:
    """Takes in the rows of a recording's table."""

    def __init__(self) -> None:
        self._all = _Sums()
        self._minutes: Dict[int, _Sums] = collections.defaultdict(_Sums)
        self._counts: Counter[str] = collections.Counter(dict.fromkeys(_COUNTS, 0))
        self._ends: Optional[Tuple[int, int]] = None
        self._newest = -1
        self._spot: Optional[Spot] = None
        self._words: Dict[int, str] = {}
        self._fits: List[bool] = []
        self._latency = Latency()

    def add(self, batch: pa.RecordBatch) -> None:
        """Take in some rows, in the recording's order."""
        rows = {name: batch.column(k) for k, name in enumerate(batch.schema.names)}
        if not batch.num_rows:
            return
        for name in _COUNTS:
            self._counts[name] += pc.sum(rows[name]).as_py() or 0
        self._fits += [fits for fits in pc.unique(rows["layout_fits"]).to_pylist() if fits is not None]
        for stage in STAGES:
            self._latency.add(stage, _numbers(rows[f"{stage}_ms"].drop_null()))
        values = np.stack([_numbers(rows[name]) for name in MEANS])
        dropped = _numbers(pc.fill_null(rows["lost"], 0)) + _numbers(rows["rejected"])
        self._all.frames += batch.num_rows
        self._all.values += np.nansum(values, axis=1), np.isfinite(values).sum(axis=1)
        stamps = self._stamps(rows["stamp"])
        self._add_lowest(rows, stamps)
        if stamps is None:
            return
        found, group = np.unique(stamps // _MINUTE_NS, return_inverse=True)
        for k, minute in enumerate(found.tolist()):
            some, sums = group == k, self._minutes[minute]
            sums.frames += int(some.sum())
            sums.dropped += int(dropped[some].sum())
            sums.values += np.nansum(values[:, some], axis=1), np.isfinite(values[:, some]).sum(axis=1)

    def _stamps(self, column: pa.Array) -> Optional[np.ndarray]:
        """Nanoseconds of every row, those of the row before where it has none; None if no row had one so far."""
        stamps = _numbers(pc.fill_null(column.cast(pa.int64()), -1))
        known = stamps[stamps >= 0]
        if known.size:
            ends = (int(known.min()), int(known.max()))
            self._ends = ends if self._ends is None else (min(ends[0], self._ends[0]), max(ends[1], self._ends[1]))
        elif self._newest < 0:
            return None
        start = np.where(stamps >= 0, np.arange(stamps.size), -1)
        last = np.maximum.accumulate(start)
        filled = np.where(last >= 0, stamps[last], self._newest if self._newest >= 0 else known[:1])
        self._newest = int(filled[-1])
        return filled

    def _add_lowest(self, rows: Mapping[str, Any], stamps: Optional[np.ndarray]) -> None:
        """Count where the lowest blocks are."""
        values = _numbers(rows["lowest"])
        some = np.flatnonzero(np.isfinite(values))
        if not some.size:
            return
        x, y = (_numbers(pc.fill_null(rows[name], 0)).astype(np.int64) for name in _PLACES[:2])
        least = int(some[values[some].argmin()])
        if self._spot is None or values[least] < self._spot.ssim:
            word = rows["lowest_place"][least].as_py() or ""
            self._spot = Spot(float(values[least]), int(x[least]), int(y[least]), word)
        if stamps is None:
            return
        places = (y << _SIDE_BITS) + x
        minutes, group = np.unique(stamps[some] // _MINUTE_NS, return_inverse=True)
        keys, first, inverse, counts = np.unique(
            (group.astype(np.int64) << 2 * _SIDE_BITS) + places[some],
            return_index=True,
            return_inverse=True,
            return_counts=True,
        )
        sums = np.bincount(inverse.ravel(), weights=values[some])
        words = rows["lowest_place"].take(pa.array(some[first])).to_pylist()
        for key, word, count, total in zip(keys.tolist(), words, counts.tolist(), sums.tolist()):
            minute, place = int(minutes[key >> 2 * _SIDE_BITS]), key & ((1 << 2 * _SIDE_BITS) - 1)
            self._words[place] = word or ""
            self._minutes[minute].places[place] += count
            self._minutes[minute].similarity[place] += total

    def _minute(self, minute: int) -> Minute:
        sums = self._minutes[minute]
        spot, share = None, 0.0
        if sums.places:
            place, count = sums.places.most_common(1)[0]
            x, y = place & ((1 << _SIDE_BITS) - 1), place >> _SIDE_BITS
            spot = Spot(float(sums.similarity[place]) / count, x, y, self._words[place])
            share = count / sum(sums.places.values())
        return Minute(60 * minute, sums.frames, sums.dropped, sums.means(), spot, share)

    def statistics(self, minutes: int) -> RecordingStatistics:
        """All statistics, with so many worst minutes for each ranking."""
        found = [self._minute(minute) for minute in sorted(self._minutes)]
        kept = {each.start_s: each for ranking in RANKINGS for each in worst(found, ranking, minutes)}
        start, end = self._ends or (None, 0)
        return RecordingStatistics(
            self._all.frames,
            dict(self._counts),
            start,
            0.0 if start is None else (end - start) / 1e9,
            self._all.means(),
            self._spot,
            all(self._fits) if self._fits else None,
            self._latency,
            [kept[start_s] for start_s in sorted(kept)],
        )


def _numbers(column: Any) -> np.ndarray:
    """A column as an array; of one with nulls, floating point with NaN for them."""
    array: np.ndarray = column.to_numpy(zero_copy_only=False)
    return array.astype(np.float64) if array.dtype == np.float32 or array.dtype == object else array
