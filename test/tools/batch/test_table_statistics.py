"""Statistics of tables: figures against NumPy over the rows, percentiles against NumPy's within the accuracy."""

from __future__ import annotations

import os
from pathlib import Path
from typing import List, Mapping

import numpy as np
import pytest
from batch_samples import PERIOD, START, frame, summary

pytest.importorskip("pyarrow")

from polar_pipeline.replay.run import ReplayedFrame, Summary
from polar_pipeline.tools.batch.table import frame_table, write_table
from polar_pipeline.tools.batch.table_statistics import ACCURACY, RANKINGS, Latency, Minute, read_statistics, worst


def check_percentiles(found: Mapping[str, float], values: np.ndarray) -> None:
    """Each lies between the values next to its rank, within the relative accuracy."""
    for name, rank in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99)):
        low, high = (float(np.percentile(values, 100 * rank, method=method)) for method in ("lower", "higher"))
        assert (1 - ACCURACY) * low * (1 - 1e-6) <= found[name] <= (1 + ACCURACY) * high * (1 + 1e-6)
    assert found["max"] == pytest.approx(values.max(), rel=ACCURACY)


def test_merged_percentiles_are_those_of_all_values() -> None:
    """Recordings of different lengths and speeds, whose percentiles cannot be averaged."""
    generator = np.random.default_rng(1)
    parts = [generator.lognormal(mean, 0.6, count) for mean, count in ((0, 5000), (3, 700), (-4, 40), (6, 3))]
    merged = Latency()
    for part in parts:
        one = Latency()
        one.add("total", part)
        one.add("write", np.zeros(part.size))
        one.add("ssim", np.zeros(0))
        merged.merge(one)
    found = merged.percentiles()
    check_percentiles(found["total"], np.concatenate(parts))
    assert set(found["write"].values()) == {0}
    assert list(found) == ["write", "total"]


def save(folder: Path, frames: Summary) -> Path:
    write_table(frame_table(frames), folder / "part-0.parquet")
    return folder / "part-0.parquet"


def many_frames() -> List[ReplayedFrame]:
    """Three minutes and a bit, from 20 s into one; in the second the lens is dirty, in the third frames are missing."""
    generator = np.random.default_rng(3)
    frames = []
    for index in range(4500):
        minute = (20 + index // 25) // 60
        dirty = minute == 1 and index % 10 != 0
        x, y = (304, 400) if dirty else (int(generator.integers(0, 600)), int(generator.integers(0, 500)))
        lowest = float(generator.uniform(0.2, 0.3) if dirty else generator.uniform(0.5, 0.9))
        figures = {"lowest": lowest, "x": x, "y": y, "place": "lower middle" if dirty else "center"}
        if minute == 2 and index % 100 in (1, 2):
            continue
        if minute == 2 and index % 100 == 50:
            frames.append(ReplayedFrame(None, "cdr", ""))
            continue
        saturated = 0.5 if minute == 0 else 0.0
        frames.append(frame(index, saturated=saturated, total=float(generator.uniform(0.005, 0.05)), **figures))
    return frames


def test_figures_of_a_recording(tmp_path: Path) -> None:
    frames = many_frames()
    figures, latency, minutes = read_statistics(save(tmp_path, summary(frames)), "run", minutes=1)
    good = [row for row in frames if not row.cause]
    assert [figures[name] for name in ("frames", "dropped", "late")] == [len(frames), 15 + 30, 0]
    assert (figures["start_s"], figures["duration"]) == (START // 10**9, 4499 * PERIOD / 1e9)
    assert figures["rate"] == pytest.approx((len(frames) - 1) / figures["duration"])
    assert figures["saturated"] == pytest.approx(np.mean([row.quality.saturated for row in good]), rel=1e-6)
    least = min((row.quality.lowest for row in good), key=lambda spot: spot.ssim)
    assert [figures["place"][f"lowest_{name}"] for name in ("x", "y", "place")] == [least.x, least.y, least.place]
    assert figures["lowest"] == pytest.approx(least.ssim)
    assert figures["layout_fits"] == 1
    check_percentiles(latency.percentiles()["total"], 1000 * np.array([row.timings["total"] for row in good]))
    start = START // 10**9 // 60 * 60
    assert [minute.start_s for minute in minutes] == [start, start + 60, start + 120]
    bright, dirty, missing = minutes
    assert bright.saturated == 0.5
    assert dirty.place
    assert [dirty.place[f"lowest_{name}"] for name in ("x", "y", "place")] == [304, 400, "lower middle"]
    assert dirty.share == pytest.approx(0.9)
    assert dirty.lowest is not None
    assert 0.2 < dirty.lowest < 0.4
    assert (dirty.frames, dirty.dropped, missing.frames, missing.dropped) == (1500, 0, 1470, 45)


def test_frames_without_a_stamp_belong_to_the_minute_before(tmp_path: Path) -> None:
    """Frames before the first stamp belong to the first minute."""
    bad = ReplayedFrame(None, "cdr", "")
    frames = [bad, frame(0), bad, bad, frame(25 * 60), bad]  # a minute later
    figures, _, minutes = read_statistics(save(tmp_path, summary(frames)), "run")
    assert [minute.frames for minute in minutes] == [4, 2]
    assert (figures["frames"], figures["dropped"]) == (6, 4 + 25 * 60 - 3)


def test_a_first_frame_has_no_similarity(tmp_path: Path) -> None:
    """Of places that are equally often, the first in the order of the image's rows counts."""
    places = [(8, 16), (0, 16), (8, 8), (99, 8)]
    frames = [frame(0, ssim=float("nan"), lowest=float("nan"))]
    frames += [frame(k + 1, ssim=0.5, lowest=0.25, x=x, y=y) for k, (x, y) in enumerate(places)]
    figures, _, (minute,) = read_statistics(save(tmp_path, summary(frames)), "run")
    assert (figures["ssim"], figures["lowest"], minute.lowest, minute.share) == (0.5, 0.25, 0.25, 0.25)
    assert minute.place
    assert (minute.place["lowest_x"], minute.place["lowest_y"]) == (8, 8)


def test_recordings_without_stamps_or_frames(tmp_path: Path) -> None:
    figures, latency, minutes = read_statistics(save(tmp_path / "empty", summary([])), "run")
    assert (figures["frames"], figures["rate"], figures["duration"], minutes) == (0, None, 0.0, [])
    assert figures["ssim"] is None
    assert latency.percentiles() == {}
    bad = summary([ReplayedFrame(None, "cdr", "")], fits=None)
    figures, _, minutes = read_statistics(save(tmp_path / "bad", bad), "run")
    assert (figures["frames"], figures["dropped"], figures["layout_fits"], minutes) == (1, 1, None, [])
    assert figures["lowest"] is None
    (tmp_path / "other").write_bytes(b"no table")
    with pytest.raises(OSError, match=r"other is not a table of frames"):
        read_statistics(tmp_path / "other", "run")
    with pytest.raises(FileNotFoundError):
        read_statistics(tmp_path / "nothing", "run")


def test_a_folder_whose_name_is_not_utf8(tmp_path: Path) -> None:
    path = save(tmp_path / os.fsdecode(b"\xff"), summary([frame(0)]))
    assert read_statistics(path, "run").figures["frames"] == 1


def test_rankings() -> None:
    minutes = [Minute("a", 0, 10, 3, 0.9, 0.0), Minute("a", 60, 10, 0, 0.1, 0.2), Minute("a", 120, 10, 9, 0.5, 0.1)]
    assert {name: [row.start_s for row in worst(minutes, name, 2)] for name in RANKINGS} == {
        "similarity": [60, 120],
        "dropped": [120, 0],
        "saturated": [60, 120],
    }
    assert len(worst(minutes, "dropped", 9)) == 2  # one minute has none
