"""A batch on a real cluster of two processes: the results of `replay`, whatever happens to a worker or a recording."""

from __future__ import annotations

import json
import os
import re
import signal
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any, Dict, Iterator, List

import numpy as np
import pytest

pytest.importorskip("distributed")
pytest.importorskip("pyarrow")
from distributed import Client
from pyarrow import parquet
from recordings import PERIOD, START, is_writing, partial_files, record
from support import wait_for

from polar_pipeline import Pipeline
from polar_pipeline.camera.facts import CAMERA_METADATA, CameraFacts
from polar_pipeline.camera.recorded import save_facts
from polar_pipeline.recordings.messages import IMAGE, encode_image
from polar_pipeline.recordings.rawpicture import CAMERA_FILE
from polar_pipeline.recordings.sink import open_sink
from polar_pipeline.recordings.source import without_progress
from polar_pipeline.replay.job import Job, process_recording
from polar_pipeline.tools.batch import units
from polar_pipeline.tools.batch.cluster import check_workers, local_client
from polar_pipeline.tools.batch.library import process
from polar_pipeline.tools.batch.recordings import list_recordings
from polar_pipeline.tools.batch.results import result_folder
from polar_pipeline.tools.batch.run import Batch
from polar_pipeline.tools.batch.settings import BatchSettings

ARGUMENTS: Dict[str, Any] = {
    "products": ("dolp", "aolp", "ssim"),
    "ssim_mode": "temporal",
    "backend": "cpu",
    "threads": 1,
}
SETTINGS = BatchSettings(ARGUMENTS)


@pytest.fixture(name="client", scope="module")
def fixture_client() -> Iterator[Client]:
    with local_client(2, [], 3) as client:
        yield client


@pytest.fixture(name="sources")
def fixture_sources(tmp_path: Path) -> List[str]:
    return [str(record(tmp_path / "in" / f"r{seed}.mcap", 12 + seed, seed=seed)) for seed in range(3)]


def run(client: Client, sources: List[str], folder: Path, settings: BatchSettings = SETTINGS) -> Batch:
    batch = Batch(settings, list_recordings(sources), folder)
    batch.run(client)
    batch.write_overview()
    return batch


def statuses(batch: Batch) -> List[str]:
    """In the order of names."""
    return [batch.outcomes[name].status for name in sorted(batch.outcomes)]


def expected_products(source: str, tmp_path: Path, **more: Any) -> bytes:
    """What `replay` writes."""
    path = tmp_path / "expected.mcap"
    with Pipeline(**{**ARGUMENTS, **more}) as pipeline:
        process_recording(Job(Path(source), products=path, force=True), pipeline)
    return path.read_bytes()


def check(sources: List[str], folder: Path, tmp_path: Path) -> None:
    """Every result is that of `replay`, complete, and there is nothing else."""
    for source in sources:
        name = Path(source).stem
        found = folder / "recordings" / name
        assert sorted(path.name for path in found.iterdir()) == ["products.mcap", "report.html", "result.json"]
        assert (found / "products.mcap").read_bytes() == expected_products(source, tmp_path)
        table = parquet.read_table(folder / "frames" / f"recording={name}" / "part-0.parquet")
        result = json.loads((found / "result.json").read_text())
        assert table.num_rows == result["frames"] + result["rejected"]
    assert len(list((folder / "recordings").iterdir())) == len(sources)
    assert partial_files(folder) == []


def test_a_second_run_does_what_is_missing(client: Client, sources: List[str], tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert run(client, sources[:2], out).skipped == 0
    times = {path: path.stat().st_mtime_ns for path in out.glob("recordings/*/*")}
    assert run(client, sources, out).skipped == 2
    assert {path: path.stat().st_mtime_ns for path in times} == times
    (out / "frames" / "recording=r1" / "part-0.parquet").unlink()
    assert run(client, sources, out).skipped == 2
    check(sources, out, tmp_path)
    record(Path(sources[0]), 9, seed=7)  # another content
    assert run(client, sources, out).skipped == 2
    assert run(client, sources, out, replace(SETTINGS, max_bytes=1 << 20)).skipped == 0
    check(sources, out, tmp_path)


def test_tables_of_other_settings(client: Client, sources: List[str], tmp_path: Path) -> None:
    """Queries do not find them, whether the recording fails or the run ends before it; no result is lost."""
    out = tmp_path / "out"
    tables = [out / "frames" / f"recording=r{number}" / "part-0.parquet" for number in range(3)]
    golden = tmp_path / "golden"
    run(client, sources[:1], golden)
    run(client, sources, out)
    contents = [table.read_bytes() for table in tables]
    others = replace(SETTINGS, arguments={**ARGUMENTS, "resolution": "full"}, compare=golden)
    Batch(others, list_recordings(sources), out)  # and not run
    assert [path for path in tables if path.exists()] == []
    assert run(client, sources, out).skipped == 3
    assert [table.read_bytes() for table in tables] == contents
    check(sources, out, tmp_path)
    batch = run(client, sources, out, others)
    assert statuses(batch) == ["differs", "failed", "failed"]
    assert [path for path in tables if path.exists()] == tables[:1]
    assert run(client, sources, out).skipped == 2
    assert [table.read_bytes() for table in tables[1:]] == contents[1:]
    check(sources, out, tmp_path)
    futures = process(sources, out, client, replace(SETTINGS, topic="/none"))
    assert {row.status for row in client.gather(futures)} == {"failed"}
    assert [path for path in tables if path.exists()] == []


def test_folders_that_are_not_results_stay(client: Client, tmp_path: Path) -> None:
    """A recording in the place of its own result is not replaced by it."""
    inside = record(tmp_path / "out" / "recordings" / "r0" / "r0.mcap", 12)
    content = inside.read_bytes()
    batch = run(client, [str(inside)], tmp_path / "out")
    assert statuses(batch) == ["failed"]
    assert "recordings/r0 is not a result of a batch" in batch.outcomes["r0"].reason
    assert inside.read_bytes() == content


def test_the_state_of_the_camera_in_a_recording(client: Client, tmp_path: Path) -> None:
    """As `replay`, a batch takes the region and the mirrored readout from it, and refuses options that contradict."""
    facts = CameraFacts("", "", "", "IMX250MZR", "Mono8", (64, 64), (1, 0), (False, True), 0.0, 1.0, None)
    source, out = tmp_path / "in" / "r0.mcap", tmp_path / "out"
    raw = np.random.default_rng(0).integers(20, 200, (64, 64)).astype(np.uint8)
    source.parent.mkdir()
    with open_sink(source, {CAMERA_METADATA: json.dumps(facts.rows())}) as sink:
        for stamp in (START, START + PERIOD):
            sink.write("/raw", IMAGE, stamp, encode_image(stamp, "cam", "mono8", raw))
    assert statuses(run(client, [str(source)], out)) == ["ok"]
    expected = expected_products(str(source), tmp_path, roi_offset=(1, 0), flip=(False, True))
    assert (out / "recordings" / "r0" / "products.mcap").read_bytes() == expected
    batch = run(client, [str(source)], out, replace(SETTINGS, arguments={**ARGUMENTS, "roi_offset": (2, 0)}))
    assert statuses(batch) == ["failed"]
    assert "roi_offset is (2, 0), and" in batch.outcomes["r0"].reason


@pytest.mark.parametrize("kind", ["folder", "file"])
def test_the_state_of_the_camera_beside_frames(client: Client, kind: str, tmp_path: Path) -> None:
    """Frames are processed again if it changes; `replay` takes the same options from it."""
    folder, out = tmp_path / "in" / "captured", tmp_path / "out"
    source = folder if kind == "folder" else folder / "frames.mcap"
    raw = np.random.default_rng(0).integers(20, 200, (64, 64)).astype(np.uint8)
    folder.mkdir(parents=True)
    if kind == "folder":
        np.save(folder / "0.npy", raw)
    else:
        with open_sink(source, {}) as sink:
            sink.write("/raw", IMAGE, START, encode_image(START, "cam", "mono8", raw))
    for offset in ((0, 0), (1, 0)):
        facts = CameraFacts("", "", "", "IMX250MZR", "Mono8", (64, 64), offset, (False, False), 0.0, 1.0, None)
        save_facts(folder / CAMERA_FILE, facts)
        assert statuses(run(client, [str(source)], out)) == ["ok"]
        expected = expected_products(str(source), tmp_path, **facts.picture_options())
        assert (out / "recordings" / source.stem / "products.mcap").read_bytes() == expected
        assert run(client, [str(source)], out).skipped == 1


def test_the_results_of_replay_beside_a_corrupt_recording(
    client: Client, sources: List[str], tmp_path: Path, capsys: Any
) -> None:
    data = Path(sources[1]).read_bytes()
    Path(sources[1]).write_bytes(data[: len(data) // 2])
    batch = run(client, sources, tmp_path / "out")
    assert statuses(batch) == ["ok", "failed", "ok"]
    assert "cut off" in batch.outcomes["r1"].reason
    check([sources[0], sources[2]], tmp_path / "out", tmp_path)
    Path(sources[1]).write_bytes(data)
    capsys.readouterr()
    batch = run(client, sources, tmp_path / "out")
    assert "3 of 3 recordings" in capsys.readouterr().err
    assert (statuses(batch), batch.skipped) == (["ok", "ok", "ok"], 2)
    found = {name: (row.frames, row.rejected) for name, row in batch.outcomes.items()}
    assert found == {"r0": (11, 1), "r1": (12, 1), "r2": (13, 1)}
    check(sources, tmp_path / "out", tmp_path)
    assert (tmp_path / "out" / "index.html").stat().st_size > 0


def test_a_recording_without_usable_frames(client: Client, tmp_path: Path) -> None:
    source = record(tmp_path / "in" / "none.mcap", 4, side=8)
    batch = run(client, [str(source)], tmp_path / "out")
    assert "none of the 4 frames" in batch.outcomes["none"].reason


def test_comparison(client: Client, sources: List[str], tmp_path: Path) -> None:
    """With an earlier batch and with a folder of recordings; a difference stays one in a second run."""
    run(client, sources[:2], tmp_path / "golden")
    flat = tmp_path / "flat"
    flat.mkdir()
    (flat / "r0.mcap").write_bytes((tmp_path / "golden" / "recordings" / "r0" / "products.mcap").read_bytes())
    compared = replace(SETTINGS, compare=tmp_path / "golden")
    batch = run(client, sources, tmp_path / "same", compared)
    assert statuses(batch) == ["ok", "ok", "failed"]
    assert "no golden recording" in batch.outcomes["r2"].reason
    other = replace(compared, arguments={**ARGUMENTS, "co_sited": False}, compare=flat)
    for skipped in (0, 1):
        batch = run(client, sources[:1], tmp_path / "other", other)
        assert batch.outcomes["r0"].status == "differs"
        assert "dolp: frame " in batch.outcomes["r0"].reason  # the worst one, by name
        assert batch.skipped == skipped


def test_only_the_table(client: Client, sources: List[str], tmp_path: Path) -> None:
    out, settings = tmp_path / "out", replace(SETTINGS, writes_products=False)
    assert run(client, sources[:1], out, settings).outcomes["r0"].status == "ok"
    assert [path.name for path in out.glob("recordings/r0/*")] == ["result.json"]
    assert json.loads((out / "recordings" / "r0" / "result.json").read_text())["thumbnail"]
    assert (out / "frames" / "recording=r0" / "part-0.parquet").exists()


def test_two_runs_at_once(client: Client, sources: List[str], tmp_path: Path) -> None:
    out, errors = tmp_path / "out", []

    def second() -> None:
        try:
            with Client(client.scheduler.address, set_as_default=False) as other:
                run(other, sources, out)
        except BaseException as err:  # noqa: BLE001 - shown by the test
            errors.append(err)

    thread = threading.Thread(target=second)
    thread.start()
    batch = run(client, sources, out)
    thread.join()
    assert errors == []
    assert {row.status for row in batch.outcomes.values()} == {"ok"}
    check(sources, out, tmp_path)
    assert run(client, sources, out).skipped == 3


def test_a_run_that_is_overtaken(sources: List[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another run completed the same recording while this one was reading it: the result is a complete one."""
    (task,) = Batch(SETTINGS, list_recordings(sources[:1]), tmp_path / "out").left

    def be_overtaken(records: Any, _: int) -> Any:
        monkeypatch.setattr(units, "_until_cancelled", without_progress)
        assert units.run_task(task).status == "ok"
        return records

    monkeypatch.setattr(units, "_until_cancelled", be_overtaken)
    assert units.run_task(task).status == "ok"
    names = sorted(path.name for path in result_folder(task.folder, "r0").iterdir())
    assert names == ["products.mcap", "report.html", "result.json"]
    assert partial_files(task.folder) == []


def test_a_worker_is_killed(client: Client, sources: List[str], tmp_path: Path) -> None:
    long = str(record(tmp_path / "in" / "long.mcap", 40, side=768))
    out, pids = tmp_path / "out", client.run(os.getpid)

    def kill() -> None:
        wait_for(lambda: is_writing(out), "worker that writes")
        for pid in pids.values():
            os.kill(pid, signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    batch = run(client, [long, *sources], out)
    thread.join()
    client.wait_for_workers(2)
    assert not set(pids.values()) & set(client.run(os.getpid).values())
    assert {row.status for row in batch.outcomes.values()} == {"ok"}
    check([long, *sources], out, tmp_path)


def test_futures(client: Client, sources: List[str], tmp_path: Path) -> None:
    futures = process([*sources, *list_recordings(sources[:1])][:3], tmp_path / "out", client, SETTINGS)
    assert [row.frames for row in client.gather(futures)] == [11, 12, 13]
    check(sources, tmp_path / "out", tmp_path)


def test_a_cancelled_future_stops_its_worker(client: Client, tmp_path: Path) -> None:
    """It leaves nothing, and the worker goes on with the next recording."""
    out = tmp_path / "out"
    long, short = record(tmp_path / "in" / "long.mcap", 400, side=512), record(tmp_path / "in" / "short.mcap", 4)
    (future,) = process([long], out, client, SETTINGS)
    wait_for(lambda: is_writing(out), "worker that writes")
    future.cancel()
    wait_for(lambda: not partial_files(out), "end of the unit")
    assert list((out / "recordings").iterdir()) == []
    (future,) = process([short], out, client, SETTINGS)
    assert future.result().status == "ok"


def test_workers_are_checked(client: Client, sources: List[str], tmp_path: Path) -> None:
    """Before work starts, and, as further workers may join, in every unit."""
    described = SETTINGS.described()
    check_workers(client, SETTINGS, described, tmp_path)
    with pytest.raises(RuntimeError, match=r"worker tcp://\S+ differs: version is '.*', not '0'"):
        check_workers(client, SETTINGS, {**described, "version": "0"}, tmp_path)
    with pytest.raises(RuntimeError, match=r"worker tcp://\S+ does not see the folder"):
        check_workers(client, SETTINGS, described, tmp_path / "none")
    with pytest.raises(RuntimeError, match=r"worker tcp://\S+ cannot take part: ValueError: dtype"):
        check_workers(client, replace(SETTINGS, arguments={"dtype": "complex"}), described, tmp_path)
    (task, *_) = Batch(SETTINGS, list_recordings(sources), tmp_path).left
    outcome = client.submit(units.run_task, replace(task, described={**described, "version": "0"})).result()
    assert outcome.status == "failed"
    assert re.match(r"worker tcp://\S+ differs: version is '.*', not '0'", outcome.reason)
