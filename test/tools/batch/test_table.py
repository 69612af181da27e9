"""Tables of frames: every value against those that were put in, and what other libraries read from the files."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from pathlib import Path
from typing import List, Optional, Tuple

import numpy as np
import pytest
from batch_samples import PERIOD, START, frame, summary

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

from polar_pipeline import FrameError, Pipeline  # noqa: E402
from polar_pipeline.recordings import messages  # noqa: E402
from polar_pipeline.recordings.messages import IMAGE  # noqa: E402
from polar_pipeline.recordings.source import Recorded  # noqa: E402
from polar_pipeline.replay.run import ReplayedFrame, replay  # noqa: E402
from polar_pipeline.tools.batch.table import FRAME_SCHEMA, STAGES, frame_table, table_path, write_table  # noqa: E402

AT = dt.datetime(2023, 11, 14, 22, 13, 20, tzinfo=dt.timezone.utc)


def some_frames() -> List[ReplayedFrame]:
    return [
        frame(0, mark=7),
        ReplayedFrame(None, "cdr", "cut off"),
        frame(2, mark=7, late=True, ssim=None, lowest=None, dark=None, intensity=None, dolp=None),
        ReplayedFrame(START + 3 * PERIOD, "size", "another size"),
        frame(7, mark=None, lowest=-0.5, x=1200, y=8, place="upper right"),
        frame(1, mark=None),  # the camera started again
        frame(2, mark=7),
    ]


def test_every_value_of_a_row() -> None:
    rows = frame_table(summary(some_frames())).to_pylist()
    assert rows[0] == {
        **dict.fromkeys(FRAME_SCHEMA.names),
        "index": 0,
        "stamp": AT,
        "rejected": False,
        "decode_ms": 1.0,
        "polarization_ms": pytest.approx(9.0),
        "total_ms": 10.0,
        "late": False,
        "ssim": 0.875,
        "lowest": 0.75,
        "expected": 1.0,
        "lowest_x": 16,
        "lowest_y": 48,
        "lowest_place": "lower left",
        "saturated": 0.25,
        "dark": 0.125,
        "intensity": 0.5,
        "dolp": 0.0625,
        "layout_fits": True,
        "fingerprint": 7,
        "repeated": False,
    }
    known = {"rejected": True, "late": False, "layout_fits": True, "repeated": False}
    nothing = dict.fromkeys(FRAME_SCHEMA.names)
    assert rows[1] == {**nothing, **known, "index": 1, "cause": "cdr"}
    stamp = AT + dt.timedelta(milliseconds=120)
    assert rows[3] == {**nothing, **known, "index": 3, "stamp": stamp, "cause": "size", "lost": 0}
    assert [row["index"] for row in rows] == list(range(7))
    # the second frame has no stamp, and stands for what lies between its neighbors; frames 4 to 6 are not there
    assert [row["lost"] for row in rows] == [None, None, 0, 0, 3, None, 0]
    assert [row["repeated"] for row in rows] == [False, False, True, False, False, False, False]
    assert [row["late"] for row in rows] == [False, False, True, False, False, False, False]
    assert [rows[2][name] for name in ("ssim", "lowest", "lowest_place", "dark", "intensity", "dolp")] == [None] * 6
    assert (rows[4]["lowest"], rows[4]["lowest_x"], rows[4]["lowest_place"]) == (-0.5, 1200, "upper right")


@pytest.mark.parametrize(
    ("places", "period", "lost"),
    [
        ((0, 9), float("inf"), [None, None]),
        ((0, 1500, 3001), PERIOD / 1e9, [None, 1499, None]),
        ((0, 1500), 1e-9, [None, None]),  # of stamps that count frames
    ],
)
def test_lost_frames_are_not_known_without_a_period_and_after_a_pause(
    places: Tuple[int, ...], period: float, lost: List[Optional[int]]
) -> None:
    rows = frame_table(summary(list(map(frame, places)), period, fits=None)).to_pylist()
    assert [row["lost"] for row in rows] == lost
    assert {row["layout_fits"] for row in rows} == {None}


@pytest.mark.parametrize("rotate", [0, 90])
def test_rows_of_a_real_replay(rotate: int) -> None:
    """A rejected frame between others."""
    raws = np.random.default_rng(0).integers(20, 250, (2, 70, 80)).astype(np.uint8)
    records = [Recorded(START, IMAGE, bytes(messages.encode_image(START, "", "mono8", raw))) for raw in raws]
    records.insert(1, Recorded(START + 1, IMAGE, FrameError("size", "of no use")))
    with Pipeline(products="intensity, dolp, ssim", backend="cpu", rotate=rotate) as pipeline:
        done = replay(records, len(records), pipeline)
        results = [pipeline(raw) for raw in raws]
    rows = frame_table(done).to_pylist()
    assert [row["cause"] for row in rows] == [None, "size", None]
    assert set(done.timings) <= set(STAGES)
    for row, result in zip([rows[0], rows[2]], results):
        for name in ("intensity", "dolp", "ssim"):
            assert row[name] == pytest.approx(float(np.nanmean(result[name])), rel=1e-5)
        stages = [row[f"{stage}_ms"] for stage in STAGES[:-1] if row[f"{stage}_ms"] is not None]
        assert sum(stages) == pytest.approx(row["total_ms"])
        assert row["lowest"] == pytest.approx(float(result.blocks.min()), abs=1e-6)
        assert row["saturated"] == pytest.approx(result.invalid[0] / result["dolp"].size)


def test_every_stage_of_a_frame_has_a_column() -> None:
    """Also the network, which only a GPU has as a stage of its own."""
    seconds = {stage: 0.001 * (k + 1) for k, stage in enumerate(STAGES)}
    table = frame_table(summary([replace(frame(0), timings=seconds)]))
    row = table.to_pylist()[0]
    assert {stage: row[f"{stage}_ms"] for stage in STAGES} == pytest.approx({k: 1000 * v for k, v in seconds.items()})
    assert "learned" in STAGES
    assert frame_table(summary([frame(0)])).to_pylist()[0]["learned_ms"] is None


def test_files_keep_every_value(tmp_path: Path) -> None:
    table, path = frame_table(summary(some_frames())), table_path(tmp_path, "run")
    assert path.relative_to(tmp_path).as_posix() == "frames/recording=run/part-0.parquet"
    for content in (frame_table(summary([])), table):
        write_table(content, path)
        assert pq.ParquetFile(str(path)).read().equals(content)
    column = pq.ParquetFile(str(path)).metadata.row_group(0).column(3)
    assert (column.path_in_schema, column.compression) == ("cause", "ZSTD")
    assert [each.name for each in path.parent.iterdir()] == [path.name]
