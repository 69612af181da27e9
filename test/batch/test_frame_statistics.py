"""Statistics of tables: figures against NumPy over the rows, percentiles against NumPy's within a sketch's accuracy."""

from __future__ import annotations

from pathlib import Path
from typing import List

import numpy as np
import pytest
from batch_samples import PERIOD, START, frame, summary

pytest.importorskip("pyarrow")

from polar_pipeline.batch.frame_statistics import (
    RANKINGS,
    Latency,
    Minute,
    read_statistics,
    sketch_of,
    worst,
)
from polar_pipeline.batch.table import frame_table, write_table
from polar_pipeline.quality.latency import ACCURACY
from polar_pipeline.quality.statistics import Spot
from polar_pipeline.replay.run import ReplayedFrame


def within(values: np.ndarray, rank: float) -> tuple[float, float]:
    """The bounds of a percentile by a sketch: the values next to its rank, and the relative accuracy."""
    low, high = (float(np.percentile(values, 100 * rank, method=method)) for method in ("lower", "higher"))
    return (1 - ACCURACY) * low * (1 - 1e-9), (1 + ACCURACY) * high * (1 + 1e-9)


def test_merged_percentiles_are_those_of_all_values() -> None:
    """Recordings of different lengths and speeds, whose percentiles cannot be averaged."""
    generator = np.random.default_rng(1)
    parts = [generator.lognormal(mean, 0.6, count) for mean, count in ((0, 5000), (3, 700), (-4, 40), (6, 3))]
    merged = Latency()
    for part in parts:
        one = Latency()
        one.add("total", part)
        one.add("write", np.zeros(part.size))
        merged.merge(one)
    everything = np.concatenate(parts)
    found = merged.percentiles()
    for got, rank in zip(found["total"], (0.5, 0.95, 0.99)):
        low, high = within(everything, rank)
        assert low <= got <= high
    assert found["total"].max == everything.max()
    assert found["write"] == (0, 0, 0, 0)
    assert list(found) == ["write", "total"]


@pytest.mark.parametrize("rank", [0.0, 0.01, 0.5, 0.9, 1.0])
def test_a_sketch_of_many_values_at_once(rank: float) -> None:
    values = np.random.default_rng(2).uniform(1e-3, 50, 3000)
    sketch = sketch_of(values)
    low, high = within(values, rank)
    assert sketch.count == values.size
    assert low <= sketch.get_quantile_value(rank) <= high


def many_frames() -> List[ReplayedFrame]:
    """Three minutes and a bit, from 20 s into one; in the second the lens is dirty, in the third frames are missing."""
    generator = np.random.default_rng(3)
    frames = []
    for index in range(4500):
        minute = (20 + index // 25) // 60
        dirty = minute == 1 and index % 10 != 0
        x, y = (304, 400) if dirty else (int(generator.integers(0, 600)), int(generator.integers(0, 500)))
        lowest = float(generator.uniform(0.2, 0.3) if dirty else generator.uniform(0.5, 0.9))
        figures = {"lowest": lowest, "x": x, "y": y, "place": "lower middle" if dirty else "centre"}
        if minute == 2 and index % 100 in (1, 2):
            continue
        if minute == 2 and index % 100 == 50:
            frames.append(ReplayedFrame(None, "cdr", ""))
            continue
        saturated = 0.5 if minute == 0 else 0.0
        frames.append(frame(index, saturated=saturated, total=float(generator.uniform(0.005, 0.05)), **figures))
    return frames


def test_figures_of_a_recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where minutes, and rows without a stamp, are cut by the batches in which rows are read."""
    frames = many_frames()
    write_table(frame_table("run", summary(frames)), tmp_path / "table.parquet")
    monkeypatch.setattr("polar_pipeline.batch.frame_statistics.GROUP_ROWS", 97)
    found = read_statistics(tmp_path / "table.parquet", minutes=1)
    good = [row for row in frames if not row.cause]
    assert (found.frames, found.counts["rejected"], found.counts["lost"]) == (len(frames), 15, 30)
    assert found.dropped == 45
    assert (found.start_ns, found.duration) == (START, 4499 * PERIOD / 1e9)
    for name in ("lowest", "saturated"):
        values = [row.quality.lowest.ssim if name == "lowest" else row.quality.saturated for row in good]
        assert found.means[name] == pytest.approx(np.mean(values), rel=1e-6)
    least = min((row.quality.lowest for row in good), key=lambda spot: spot.ssim)
    assert (found.spot.x, found.spot.y, found.spot.place) == (least.x, least.y, least.place)
    assert found.spot.ssim == pytest.approx(least.ssim)
    assert found.layout_fits is True
    total = 1000 * np.array([row.timings["total"] for row in good])
    got = found.latency.percentiles()["total"]
    for value, rank in zip(got, (0.5, 0.95, 0.99)):
        low, high = within(total, rank)
        assert low <= value <= high * (1 + 1e-6)
    assert got.max == pytest.approx(total.max())
    start = START // 10**9 // 60 * 60
    assert [minute.start_s for minute in found.minutes] == [start, start + 60, start + 120]
    bright, dirty, missing = found.minutes
    assert bright.means["saturated"] == 0.5
    assert (dirty.spot.x, dirty.spot.y, dirty.spot.place) == (304, 400, "lower middle")
    assert dirty.share == pytest.approx(0.9)
    assert 0.2 < dirty.spot.ssim < 0.3
    assert (dirty.frames, dirty.dropped, missing.frames, missing.dropped) == (1500, 0, 1470, 45)


@pytest.mark.parametrize("rows", [1, 2, 100])
def test_frames_without_a_stamp_belong_to_the_minute_before(
    rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those before the first stamp to the first minute, if they are read together with it."""
    bad = ReplayedFrame(None, "cdr", "")
    frames = [bad, frame(0), bad, bad, frame(25 * 60), bad]  # a minute later
    write_table(frame_table("run", summary(frames)), tmp_path / "table.parquet")
    monkeypatch.setattr("polar_pipeline.batch.frame_statistics.GROUP_ROWS", rows)
    found = read_statistics(tmp_path / "table.parquet")
    assert [minute.frames for minute in found.minutes] == [4 if rows > 1 else 3, 2]
    assert (found.frames, found.counts["rejected"]) == (6, 4)


def test_parts_are_read_as_one(tmp_path: Path) -> None:
    frames = many_frames()
    write_table(frame_table("run", summary(frames)), tmp_path / "all.parquet")
    for k, first in enumerate(range(0, 4500, 400)):
        part = summary(frames[first : first + 400])
        write_table(frame_table("run", part, first), tmp_path / "parts" / f"part-{k}.parquet")
    together, parts = read_statistics(tmp_path / "all.parquet"), read_statistics(tmp_path / "parts")
    for name in ("frames", "start_ns", "duration", "spot", "layout_fits"):
        assert getattr(parts, name) == getattr(together, name)
    assert parts.means == pytest.approx(together.means)
    assert parts.latency.percentiles() == together.latency.percentiles()
    assert [minute.start_s for minute in parts.minutes] == [minute.start_s for minute in together.minutes]


def test_recordings_without_stamps_or_frames(tmp_path: Path) -> None:
    write_table(frame_table("run", summary([])), tmp_path / "empty.parquet")
    found = read_statistics(tmp_path / "empty.parquet")
    assert (found.frames, found.start_ns, found.duration, found.minutes) == (0, None, 0.0, [])
    assert not found.means
    write_table(frame_table("run", summary([ReplayedFrame(None, "cdr", "")], fits=None)), tmp_path / "bad.parquet")
    found = read_statistics(tmp_path / "bad.parquet")
    assert (found.frames, found.dropped, found.spot, found.layout_fits, found.minutes) == (1, 1, None, None, [])
    (tmp_path / "other.parquet").write_bytes(b"no table")
    with pytest.raises(OSError, match=r"other\.parquet is no table of frames"):
        read_statistics(tmp_path / "other.parquet")
    with pytest.raises(FileNotFoundError, match="no table"):
        read_statistics(tmp_path / "nothing")


def test_rankings() -> None:
    def minute(start: int, lowest: float, dropped: int, saturated: float) -> Minute:
        return Minute(start, 10, dropped, {"lowest": lowest, "saturated": saturated}, Spot(lowest, 1, 2, "centre"), 1.0)

    minutes = [minute(0, 0.9, 3, 0.0), minute(60, 0.1, 0, 0.2), minute(120, 0.5, 9, 0.1)]
    assert {name: [row.start_s for row in worst(minutes, name, 2)] for name in RANKINGS} == {
        "similarity": [60, 120],
        "dropped": [120, 0],
        "saturated": [60, 120],
    }
    assert len(worst(minutes, "dropped", 9)) == 2  # one has none
