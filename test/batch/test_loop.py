"""The loop that keeps a bounded number of units in flight, and the workers that a cluster starts."""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import Any, Dict, Iterator, List

import pytest

pytest.importorskip("distributed")
import cv2
import dask
from distributed import Client

from polar_pipeline.batch.cluster import dashboard_of, gpu_names, local_client, threads_of_each
from polar_pipeline.batch.loop import UNITS_PER_THREAD, Loop, Unit
from polar_pipeline.batch.progress import Progress


@pytest.fixture(name="client", scope="module")
def fixture_client() -> Iterator[Client]:
    """Two processes as for two GPUs; nothing computes on them."""
    with local_client(2, ["3", "GPU-5"], 0) as client:
        yield client


def double(number: int) -> int:
    if number == 13:
        raise KeyError("thirteen")
    if number == 77:
        os._exit(1)
    return 2 * number


def environment() -> Dict[str, str]:
    monitors_gpu = str(dask.config.get("distributed.diagnostics.nvml"))
    return {
        "gpu": os.environ["CUDA_VISIBLE_DEVICES"],
        "threads": str(cv2.getNumThreads()),
        "monitors_gpu": monitors_gpu,
    }


def test_every_worker_has_its_gpu_and_its_threads(client: Client) -> None:
    """Set before its first code runs."""
    found = sorted(client.run(environment).values(), key=lambda row: row["gpu"])
    assert [row["gpu"] for row in found] == ["3", "GPU-5"]
    assert {row["threads"] for row in found} == {str(threads_of_each(2))}
    assert {row["monitors_gpu"] for row in found} == {"False"}, "with pynvml, workers for these GPUs would not start"


def test_a_bounded_number_is_in_flight(client: Client) -> None:
    taken: List[int] = []
    done: List[Any] = []
    most = 0

    def units() -> Iterator[Unit]:
        nonlocal most
        for number in range(60):
            taken.append(number)
            most = max(most, len(taken) - len(done))
            yield Unit(double, (number,))

    def finished(unit: Unit, result: Any) -> List[Unit]:
        done.append((unit.arguments[0], result))
        return [Unit(double, (100 + unit.arguments[0],))] if unit.arguments[0] < 5 else []

    Loop(client).run(units(), finished)
    results = dict(done)
    assert isinstance(results.pop(13), KeyError)
    assert results == {number: 2 * number for number in [*range(13), *range(14, 60), *range(100, 105)]}
    assert most <= 2 * UNITS_PER_THREAD + 1


def test_a_unit_that_kills_its_worker_does_not_stop_others(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("polar_pipeline.batch.loop._LOOK_S", 0.001)  # it waits for every unit several times
    results: Dict[int, Any] = {}

    def finished(unit: Unit, result: Any) -> List[Unit]:
        results[unit.arguments[0]] = result
        return []

    Loop(client).run(iter([Unit(double, (number,)) for number in (77, 1, 2, 3, 4, 5)]), finished)
    assert type(results.pop(77)).__name__ == "KilledWorker"
    assert results == {number: 2 * number for number in range(1, 6)}
    client.wait_for_workers(2)


def test_a_dashboard_is_named_where_there_is_one(client: Client) -> None:
    assert dashboard_of(client).startswith("http://" if find_spec("bokeh") else "none (")


def test_no_gpus_for_the_cpu() -> None:
    assert gpu_names("cpu") == []


def test_progress(capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line a minute where there is no terminal; frames to come are estimated from sizes."""
    now = [0.0]
    monkeypatch.setattr("polar_pipeline.batch.progress.time.monotonic", lambda: now[0])
    progress = Progress(4, 300, 1)
    progress.start()
    progress.advance("a", 10, 20, 100)
    now[0] = 30.0
    progress.show()
    assert capsys.readouterr().err == ""
    now[0] = 60.0
    progress.show()
    said = capsys.readouterr().err
    assert said == "1 of 4 recordings, 10 of about 60 frames, 0.2 frames/s, about 05:00 to go\n"
    progress.close()
