"""The folder of a batch, and what identifies a unit."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

pytest.importorskip("distributed")
pytest.importorskip("pyarrow")
from recordings import record

from polar_pipeline.tools.batch.recordings import Recording
from polar_pipeline.tools.batch.results import Outcome, completed, make_folders, recorded_names, result_folder
from polar_pipeline.tools.batch.settings import BatchSettings, result_key
from polar_pipeline.tools.batch.table import table_path

ARGUMENTS = {"products": ("dolp", "ssim"), "backend": "cpu", "threads": 1}


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
    assert recorded_names(tmp_path) == {"/a": "drive_a.b-1"}


#: Not JSON, with an unknown field, without one, and with a value of another type.
BAD_STATES = [
    "half",
    '{"name": "a", "unit": "unit", "status": "ok", "reason": "", "state": 1}',
    '{"name": "a"}',
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
    assert completed(tmp_path, "a", "other") is None
    assert not caplog.records
    result = result_folder(tmp_path, "a") / "result.json"
    result.write_text(text)
    assert completed(tmp_path, "a", "unit") is None
    (line,) = caplog.messages
    assert line.startswith(f"{result} is not understood, and its recording is processed again: ")


def test_what_identifies_a_unit(tmp_path: Path) -> None:
    recording = Recording("a", "a.mcap", 1, "content")
    settings = BatchSettings(ARGUMENTS)
    golden = record(tmp_path / "golden" / "a.mcap", 2)

    def unit(settings: BatchSettings = settings, recording: Recording = recording) -> str:
        return result_key(settings, settings.described(), recording)

    assert unit(BatchSettings({**ARGUMENTS, "threads": 7}, spool=tmp_path)) == unit()
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
        result_key(settings, {**settings.described(), "version": "0"}, recording),
    ]
    assert len(set(others)) == len(others)
