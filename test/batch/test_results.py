"""Segments on disk, the folder of a batch, and what identifies a unit."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, replace
from pathlib import Path

import pytest

pytest.importorskip("distributed")
pytest.importorskip("pyarrow")
from recordings import START, record

from polar_pipeline import Pipeline
from polar_pipeline.batch.recordings import Recording
from polar_pipeline.batch.results import (
    Outcome,
    completed,
    known_names,
    make_folders,
    read_part,
    result_folder,
    write_part,
)
from polar_pipeline.batch.settings import BatchSettings, unit_of
from polar_pipeline.batch.table import table_path
from polar_pipeline.replay.compare import Tally
from polar_pipeline.replay.job import Job
from polar_pipeline.replay.segment import Part, process_segment

ARGUMENTS = {"products": ("dolp", "ssim"), "backend": "cpu", "threads": 1}


def test_a_segment_on_disk(tmp_path: Path) -> None:
    source = record(tmp_path / "in" / "a.mcap", 9)
    with Pipeline(**ARGUMENTS) as pipeline:  # type: ignore[arg-type]
        part = process_segment(Job(source), (START, START + 10**12), pipeline, lambda rows, _: rows)
    tally = Tally(3, 1, math.inf, [0.1, 0.2], 7, [0.9], True, "a note")
    write_part(tmp_path, Part(part.summary, {"dolp": tally}, None))
    found = read_part(tmp_path)
    assert found
    assert found == Part(replace(part.summary, samples=[]), {"dolp": tally}, None)
    assert found.summary.rejected_count == 1


def test_a_page_that_no_batch_wrote_stays(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text("mine")
    with pytest.raises(FileExistsError, match=r"has an index\.html that no batch wrote"):
        make_folders(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["index.html"]
    (tmp_path / "batch.json").touch()
    make_folders(tmp_path)


def test_names_of_an_earlier_run_stay_in_the_folder(tmp_path: Path) -> None:
    """Names that no batch gives are not used: their results would be elsewhere."""
    names = {"/a": "drive_a.b-1", "/b": "../../b", "/c": "/c", "/d": "", "/e": ".e", "/f": "f/g", "/h": "x" * 300}
    (tmp_path / "batch.json").write_text(json.dumps({"names": names}))
    assert known_names(tmp_path) == {"/a": "drive_a.b-1"}


#: Not JSON, of an earlier version, with an unknown field, without one, and with a value of another type.
BAD_STATES = [
    "half",
    '{"summary": {"frames": []}, "tallies": {}}',
    '{"summary": {"class": "Summary", "x": 1}, "tallies": {}}',
    '{"summary": 1}',
    '{"name": "a", "unit": "unit", "status": "ok", "reason": "", "frames": "many"}',
    "[]",
]


@pytest.mark.parametrize("text", BAD_STATES)
def test_a_file_that_is_not_understood(text: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It counts as missing, with a line in the log."""
    outcome = Outcome("a", "unit", "ok", "")
    for path in (result_folder(tmp_path, "a") / "result.json", table_path(tmp_path, "a")):
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(asdict(outcome)))
    assert completed(tmp_path, "a", "unit") == outcome
    assert completed(tmp_path, "a", "other") is read_part(tmp_path) is None
    assert not caplog.records
    result, segment = result_folder(tmp_path, "a") / "result.json", tmp_path / "segment.json"
    for path in (result, segment):
        path.write_text(text)
    assert completed(tmp_path, "a", "unit") is read_part(tmp_path) is None
    assert [record.getMessage().partition(": ")[0] for record in caplog.records] == [
        f"{result} is not understood, and its recording is processed again",
        f"{segment} is not understood, and its segment is processed again",
    ]


def test_what_identifies_a_unit(tmp_path: Path) -> None:
    recording = Recording("a", "a.mcap", 1, "content")
    settings = BatchSettings(ARGUMENTS)
    golden = record(tmp_path / "golden" / "a.mcap", 2)

    def unit(settings: BatchSettings = settings, recording: Recording = recording) -> str:
        return unit_of(settings, settings.described(), recording)

    assert unit(BatchSettings({**ARGUMENTS, "threads": 7}, split_ns=5, spool=tmp_path)) == unit()
    assert unit(recording=replace(recording, location="elsewhere")) == unit()
    compared = replace(settings, compare=golden.parent)
    before = unit(compared)
    record(golden, 3)
    others = [
        unit(),
        before,
        unit(compared),
        unit(recording=replace(recording, token="other")),
        unit(recording=replace(recording, name="b")),
        unit(BatchSettings({**ARGUMENTS, "debias": True})),
        unit(replace(settings, topic="/raw")),
        unit(replace(settings, rate=5.0)),
        unit(replace(settings, max_bytes=1)),
        unit(replace(settings, writes_products=False)),
        unit(replace(settings, tolerances={"dolp": 1.0})),
        unit_of(settings, {**settings.described(), "version": "0"}, recording),
    ]
    assert len(set(others)) == len(others)
