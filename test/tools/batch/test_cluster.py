"""The workers that a cluster starts, and the runner of units on them."""

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
import psutil
from distributed import Client

from polar_pipeline._util.cpus import available_cores
from polar_pipeline.tools.batch import cluster, run
from polar_pipeline.tools.batch.cluster import dashboard_of, default_jobs, local_client, usable_gpus
from polar_pipeline.tools.batch.recordings import Recording
from polar_pipeline.tools.batch.results import Outcome
from polar_pipeline.tools.batch.settings import BatchSettings
from polar_pipeline.tools.batch.units import Task

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
    assert {row["threads"] for row in found} == {max(1, available_cores() // 2)}
    assert {row["monitors_gpu"] for row in found} == {False}, "with pynvml, workers for these GPUs would not start"


def fake_recording(task: Task) -> Outcome:
    name = task.recording.name
    if name == "13":
        raise KeyError("thirteen")
    if name == "killer":
        os._exit(1)
    return Outcome(name, "", "ok", "", 2 * int(name))


@pytest.fixture(autouse=True)
def _units(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "run_task", fake_recording)


def task(name: str) -> Task:
    return Task(BatchSettings({"products": "dolp"}), {}, Recording(name, f"/{name}.mcap", 1, ""), Path("/"), "")


def test_outcomes_of_units(client: Client) -> None:
    outcomes: Dict[str, Outcome] = {}
    tasks = [task(str(number)) for number in range(150)]
    assert run.process_tasks(client, tasks, lambda _, outcome: outcomes.update({outcome.name: outcome})) == []
    assert len(outcomes) == 150
    assert outcomes.pop("13").reason == "could not be run: KeyError: 'thirteen'"
    assert all(outcome.frames == 2 * int(name) for name, outcome in outcomes.items())


def test_a_unit_that_kills_its_worker_does_not_stop_others(client: Client) -> None:
    """Units that waited at the lost worker may be suspects too; alone, only one of them is lost again."""
    done: Dict[str, int] = {}
    names = ["killer", "1", "2", "3", "4", "5"]

    def end(_: Task, outcome: Outcome) -> None:
        done[outcome.name] = outcome.frames

    suspects = run.process_tasks(client, list(map(task, names)), end)
    assert {*done, *(suspect.recording.name for suspect in suspects)} == set(names)
    lost = [each.recording.name for suspect in suspects for each in run.process_tasks(client, [suspect], end)]
    assert lost == ["killer"]
    assert done == {str(k): 2 * k for k in range(1, 6)}
    client.wait_for_workers(2)


def test_a_dashboard_is_named_where_there_is_one(client: Client) -> None:
    assert dashboard_of(client).startswith("http://" if find_spec("bokeh") else "none (")


class FakeClient:
    """A client of a cluster with a dashboard, if its scheduler has bokeh."""

    dashboard_link = "http://10.0.0.1:8787/status"

    def __init__(self, packages: Any) -> None:
        self.packages = packages

    def run_on_scheduler(self, function: Any, *arguments: Any) -> Any:
        assert function is find_spec, "what this process has says nothing about the scheduler"
        return self.packages[arguments[0]]


@pytest.mark.parametrize(
    ("packages", "link", "text"),
    [
        ({"bokeh": object()}, FakeClient.dashboard_link, FakeClient.dashboard_link),
        ({"bokeh": object()}, "", "none (pip install bokeh)"),
        ({"bokeh": None}, FakeClient.dashboard_link, "none (pip install bokeh)"),
        ({}, FakeClient.dashboard_link, "unknown"),
    ],
)
def test_the_dashboard_is_that_of_the_scheduler(packages: Any, link: str, text: str) -> None:
    client: Any = FakeClient(packages)
    client.dashboard_link = link
    assert dashboard_of(client) == text


def listening() -> List[str]:
    """Addresses at which this process listens."""
    process = psutil.Process()
    connections = getattr(process, "net_connections", None) or process.connections
    return [row.laddr.ip for row in connections("inet") if row.status == psutil.CONN_LISTEN]


def test_processes_listen_on_this_machine_only(client: Client) -> None:
    addresses = [listening(), *client.run(listening).values()]
    assert {address for row in addresses for address in row} == {"127.0.0.1"}


def test_workers_share_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "_LIST_GPUS", f"print({6 << 30}, {80 << 30}, sep='\\n')")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert usable_gpus() == {"0": 6 << 30, "1": 80 << 30}
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3, GPU-5")
    gpus = usable_gpus()
    assert gpus == {"3": 6 << 30, "GPU-5": 80 << 30}
    monkeypatch.setattr(cluster, "MEMORY_LIMIT", 64 << 30)
    for cores, jobs in ((1, 1), (12, 12), (32, 6 + 8)):
        monkeypatch.setattr(cluster, "available_cores", lambda cores=cores: cores)
        assert default_jobs(gpus) == jobs
        assert default_jobs({}) == cores
    monkeypatch.setattr(cluster, "MEMORY_LIMIT", 5 << 30)
    assert default_jobs(gpus) == 5
    monkeypatch.setattr(cluster, "_LIST_GPUS", "raise ImportError")
    assert usable_gpus() == {}
