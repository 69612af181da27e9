"""The workers that a cluster starts, and the runner that keeps a bounded number of units in flight on them."""

from __future__ import annotations

import os
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Dict, Iterator, List

import pytest

pytest.importorskip("distributed")
pytest.importorskip("pyarrow")
import cv2
import dask
from distributed import Client
from pyarrow import parquet
from recordings import PERIOD, record

from polar_pipeline.batch import run
from polar_pipeline.batch.cluster import dashboard_of, default_jobs, gpu_names, local_client, threads_of_each
from polar_pipeline.batch.recordings import Recording, list_recordings
from polar_pipeline.batch.results import Outcome
from polar_pipeline.batch.settings import BatchSettings
from polar_pipeline.batch.units import Division, Task

#: A stand-in for CuPy that keeps what it sees when the process imports it, whoever does so first.
STAND_IN = """
import os
from pathlib import Path
SEEN = os.environ.get("CUDA_VISIBLE_DEVICES", "all")
Path(__file__).with_name(f"imported_{os.getpid()}").write_text(SEEN)
"""


@pytest.fixture(name="client", scope="module")
def fixture_client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """Two processes as for two GPUs; nothing computes on them."""
    folder = tmp_path_factory.mktemp("stand_in")
    (folder / "cupy").mkdir()
    (folder / "cupy" / "__init__.py").write_text(STAND_IN)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        patch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        with local_client(2, ["3", "GPU-5"], 0) as client:
            yield client


def facts() -> Dict[str, Any]:
    cupy = import_module("cupy")
    return {
        "gpu": cupy.SEEN,
        "files": sorted(path.read_text() for path in Path(str(cupy.__file__)).parent.glob(f"imported_{os.getpid()}")),
        "threads": cv2.getNumThreads(),
        "monitors_gpu": dask.config.get("distributed.diagnostics.nvml"),
    }


def test_every_worker_has_its_gpu_and_its_threads(client: Client) -> None:
    """The GPU is set before anything in the process could use another one."""
    found = sorted(client.run(facts).values(), key=lambda row: row["gpu"])
    assert [row["gpu"] for row in found] == ["3", "GPU-5"]
    assert [row["files"] for row in found] == [["3"], ["GPU-5"]]
    assert {row["threads"] for row in found} == {threads_of_each(2)}
    assert {row["monitors_gpu"] for row in found} == {False}, "with pynvml, workers for these GPUs would not start"


def fake_plan(_: Task) -> Division:
    return Division([(0, 1), (1, 2), (2, 3)], 3)


def fake_segment(task: Task, span: Any) -> Outcome:
    return Outcome(task.recording.name, "", "ok", "", span[0])


def fake_merge(task: Task, _: Division, outcomes: List[Outcome]) -> Outcome:
    return Outcome(task.recording.name, "", "ok", "", sum(outcome.frames for outcome in outcomes))


def fake_recording(task: Task) -> Outcome:
    if task.recording.name == "13":
        raise KeyError("thirteen")
    if task.recording.name == "killer":
        os._exit(1)
    return Outcome(task.recording.name, "", "ok", "", 2 * int(task.recording.name))


@pytest.fixture(autouse=True)
def _units(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, function in (
        ("plan_unit", fake_plan),
        ("segment_unit", fake_segment),
        ("merge_unit", fake_merge),
        ("recording_unit", fake_recording),
    ):
        monkeypatch.setattr(run, name, function)


def task(name: str, split_ns: int = 0) -> Task:
    settings = BatchSettings({"products": "dolp"}, split_ns=split_ns)
    return Task(settings, {}, Recording(name, f"/{name}.mcap", 1, ""), Path("/"), "", "topic")


@pytest.mark.parametrize("split_ns", [0, 1])
def test_a_bounded_number_is_in_flight(client: Client, split_ns: int) -> None:
    done: Dict[str, Outcome] = {}
    taken = most = 0

    def tasks() -> Iterator[Task]:
        nonlocal taken, most
        for number in range(150):
            taken += 1
            most = max(most, taken - len(done))
            yield task(str(number), split_ns)

    runner = run.Runner(client, lambda outcome: done.update({outcome.name: outcome}))
    assert runner.run(tasks()) == []
    assert len(done) == 150
    assert most <= 2 * run.UNITS_PER_THREAD + 1
    if split_ns:
        assert {outcome.frames for outcome in done.values()} == {3}
    else:
        assert done.pop("13").reason == "could not be run: KeyError: 'thirteen'"
        assert all(outcome.frames == 2 * int(name) for name, outcome in done.items())


def test_a_unit_that_kills_its_worker_does_not_stop_others(client: Client) -> None:
    """Units that waited at the lost worker may be suspects too; alone, only one of them is lost again."""
    done: Dict[str, Outcome] = {}
    names = ["killer", "1", "2", "3", "4", "5"]
    runner = run.Runner(client, lambda outcome: done.update({outcome.name: outcome}))
    suspects = runner.run(iter([task(name) for name in names]))
    assert {*done, *(suspect.recording.name for suspect in suspects)} == set(names)
    lost = [each.recording.name for suspect in suspects for each in runner.run(iter([suspect]))]
    assert lost == ["killer"]
    assert {name: outcome.frames for name, outcome in done.items()} == {str(k): 2 * k for k in range(1, 6)}
    client.wait_for_workers(2)


def test_a_dashboard_is_named_where_there_is_one(client: Client) -> None:
    assert dashboard_of(client).startswith("http://" if find_spec("bokeh") else "none (")


def test_no_gpus_for_the_cpu() -> None:
    assert gpu_names("cpu") == []


def test_progress(capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line a minute without a terminal; the number of frames is estimated from sizes."""
    now = [0.0]
    monkeypatch.setattr("polar_pipeline.batch.run.time.monotonic", lambda: now[0])
    progress = run.Progress(4, {"a": 100, "b": 100, "c": 100})
    now[0] = 30.0
    progress.report("a", 10, 20)
    assert capsys.readouterr().err == ""
    now[0] = 60.0
    progress.show()
    said = capsys.readouterr().err
    assert said == "1 of 4 recordings, 10 of about 60 frames, 0.2 frames/s, about 05:00 to go\n"
    progress.close()


def test_bars_in_a_terminal(capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    progress = run.Progress(2, {"a": 100, "b": 100})
    progress.report("a", 10, 20)
    progress.show(recordings=1)
    progress.close()
    said = capsys.readouterr().err
    assert "1/2" in said
    assert "10/40" in said


def bus() -> str:
    """The place of this process's GPU in the machine."""
    return str(import_module("cupy").cuda.runtime.deviceGetPCIBusId(0))


def results(client: Client, sources: List[str], folder: Path, split_ns: int) -> Dict[str, bytes]:
    """Products, and the columns of the tables but for times, by name of the recording."""
    settings = BatchSettings({"products": ("dolp", "aolp", "ssim"), "backend": "cuda"}, split_ns=split_ns)
    batch = run.Batch(settings, list_recordings(sources), folder)
    batch.run(client)
    assert {row.reason for row in batch.outcomes.values()} == {""}
    found = {}
    for name in batch.outcomes:
        found[name] = (folder / "recordings" / name / "products.mcap").read_bytes()
        table = parquet.read_table(folder / "frames" / f"recording={name}" / "part-0.parquet")
        kept = [column for column in table.column_names if not column.endswith("_ms") and column != "late"]
        found[f"{name} table"] = repr(table.select(kept).to_pylist()).encode()
    return found


@pytest.mark.gpu
def test_two_gpus_make_what_one_makes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # the real units
    gpus = gpu_names("cuda")
    if len(gpus) < 2:
        pytest.skip("needs two GPUs")
    assert default_jobs(gpus) == len(gpus)
    sources = [str(record(tmp_path / "in" / f"r{seed}.mcap", 40, side=512, seed=seed)) for seed in range(4)]
    with local_client(1, gpus[:1], 0) as client:
        expected = results(client, sources, tmp_path / "one", 0)
    with local_client(2, gpus[:2], 0) as client:
        assert len(set(client.run(bus).values())) == 2
        for split_ns in (0, 10 * PERIOD):
            assert results(client, sources, tmp_path / f"two{split_ns}", split_ns) == expected
