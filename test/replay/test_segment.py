"""Recordings processed in segments: the same products and figures as those of the complete recording."""

from __future__ import annotations

import re
import sqlite3
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Callable, List, Tuple

import cv2
import numpy as np
import pytest
from recorded_frames import START, Row, make_mcap, make_rosbag1, make_rosbag2
from support import pairs_of

from polar_pipeline import Pipeline
from polar_pipeline.replay.compare import ProductComparison, open_golden
from polar_pipeline.replay.job import Job, process_recording
from polar_pipeline.replay.run import Summary
from polar_pipeline.replay.segment import can_merge, merge_segments, process_segment, segments
from polar_pipeline.replay.source import open_source

PERIOD = 40_000_000
#: Frames whose stamps begin again, frames that cannot be used, and the frames of the recordings.
RESTART, BROKEN, COUNT = 9, (4, 5, 10, 17), 20


def raw_frame(index: int) -> np.ndarray:
    y, x = np.mgrid[: 8 if index in BROKEN else 48, :64]
    found: np.ndarray = np.rint(110 + 80 * np.sin((x + 3 * index) / 9) * np.cos(y / 7)).astype(np.uint8)
    return found


def stamp(index: int) -> int:
    """The camera starts again at frame `RESTART`: its clock goes back."""
    return START + PERIOD * (index if index < RESTART else index - RESTART + 2)


ROWS = [Row(START + k * PERIOD, stamp(k), raw_frame(k)) for k in range(COUNT)]


def make_pictures(folder: Path, _: object) -> Path:
    (folder / "in").mkdir()
    for index in range(COUNT):
        cv2.imwrite(str(folder / "in" / f"{index:03d}.png"), raw_frame(index))
    return folder / "in"


def in_segments(
    job: Job, pipeline: Pipeline, length_ns: int, folder: Path
) -> Tuple[int, Summary, List[ProductComparison]]:
    """The number of segments, and what they give."""
    with open_source(job.source) as source:
        spans, total = segments(source, length_ns), source.total
    fields = {**vars(job), "report": None}
    parts = [
        process_segment(Job(**{**fields, "products": folder / f"{k}.mcap"}), span, pipeline, lambda rows, _: rows)
        for k, span in enumerate(spans)
    ]
    assert can_merge(parts)
    return len(spans), *merge_segments(job, parts, total, pipeline.options)


@pytest.mark.parametrize(
    ("make", "length", "mode"),
    pairs_of((make_mcap, make_rosbag2, make_rosbag1, make_pictures), (1, 3, 7), ("temporal", "consistency")),
)
def test_the_same_as_unsplit(make: Callable[[Path, Any], Path], length: int, mode: str, tmp_path: Path) -> None:
    path = make(tmp_path, ROWS)
    names = ("complete", "merged")
    complete, merged = (
        Job(path, products=tmp_path / f"{name}.mcap", report=tmp_path / f"{name}.html") for name in names
    )
    with Pipeline(products="dolp,aolp,ssim,ssim_map", ssim_mode=mode, backend="cpu", threads=1) as pipeline:
        expected, _ = process_recording(complete, pipeline)
        count, got, _ = in_segments(merged, pipeline, length * PERIOD, tmp_path)
    assert count >= COUNT // length
    assert (tmp_path / "complete.mcap").read_bytes() == (tmp_path / "merged.mcap").read_bytes()
    np.testing.assert_array_equal(got.ssim, expected.ssim)
    assert (np.isnan(expected.ssim).sum() > 0) == (mode == "temporal")
    same = ("stamps", "rejected", "invalid", "quality", "layout", "device", "period", "rejected_count", "repeats")
    assert {name: getattr(got, name) for name in same} == {name: getattr(expected, name) for name in same}
    columns = ("stamp_ns", "cause", "reason", "ssim", "quality", "intensity", "dolp")
    for ours, theirs in zip(got.frames, expected.frames):
        for name in columns:
            assert repr(getattr(ours, name)) == repr(getattr(theirs, name))
    assert len(got.frames) == len(expected.frames)
    assert len(got.samples) == len(expected.samples) > 1
    for ours, theirs in zip(got.samples, expected.samples):
        assert ours.stamp_ns == theirs.stamp_ns
        for name, array in theirs.products.items():
            np.testing.assert_array_equal(ours.products[name], array)
    pictures = [
        re.findall(r"data:image[^\"]+", (tmp_path / f"{name}.html").read_text()) for name in ("complete", "merged")
    ]
    assert pictures[0] == pictures[1]
    assert pictures[0]


def test_the_same_comparison(tmp_path: Path) -> None:
    """Of a recording without stamps that return; one that has them is compared as one."""
    times = [START + k * PERIOD for k in range(8)]
    path = make_mcap(tmp_path, [Row(time, time, raw_frame(k)) for k, time in enumerate(times)])
    with ExitStack() as stack:
        pipeline = stack.enter_context(Pipeline(products="dolp,aolp", backend="cpu", threads=1))
        other = stack.enter_context(Pipeline(products="dolp,aolp", backend="cpu", threads=1, co_sited=False))
        process_recording(Job(path, products=tmp_path / "golden.mcap"), other)
        golden = stack.enter_context(open_golden(tmp_path / "golden.mcap"))
        job = Job(path, golden=golden)
        _, expected = process_recording(job, pipeline)
        _, _, rows = in_segments(job, pipeline, 3 * PERIOD, tmp_path)
    assert rows == expected
    assert expected[0].error > 0


def test_stamps_in_two_segments_are_not_compared_apart(tmp_path: Path) -> None:
    path = make_mcap(tmp_path, ROWS)
    with ExitStack() as stack:
        pipeline = stack.enter_context(Pipeline(products="dolp", backend="cpu", threads=1))
        process_recording(Job(path, products=tmp_path / "golden.mcap"), pipeline)
        golden = stack.enter_context(open_golden(tmp_path / "golden.mcap"))
        with open_source(path) as source:
            spans = segments(source, 7 * PERIOD)
        parts = [process_segment(Job(path, golden=golden), span, pipeline, lambda rows, _: rows) for span in spans]
    assert not can_merge(parts)


def test_files_that_overlap_in_time_are_not_split(tmp_path: Path) -> None:
    path = make_rosbag2(tmp_path, ROWS)
    database = next(path.glob("*.db3"))
    copy = path / "in_1.db3"
    copy.write_bytes(database.read_bytes())
    database.rename(path / "in_0.db3")
    (path / "metadata.yaml").unlink()
    with open_source(path) as source:
        assert source.total == 2 * COUNT
        assert segments(source, PERIOD) == []
    with sqlite3.connect(copy) as base:
        base.execute("UPDATE messages SET timestamp = timestamp + ?", (COUNT * PERIOD,))
    with open_source(path) as source:
        assert len(segments(source, PERIOD)) == 2 * COUNT


def test_an_index_of_false_times_is_not_split(tmp_path: Path) -> None:
    """Times that lie far apart would make more segments than there are images."""
    rows = [Row(START + k * PERIOD, START, raw_frame(0)) for k in (0, 10**9)]
    with open_source(make_mcap(tmp_path, rows)) as source:
        assert segments(source, PERIOD) == []
