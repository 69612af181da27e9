"""What `polar-pipeline batch` gains and costs, measured side by side in one run.

1. Two worker processes against one, each of one CPU thread; and two processes against one that replay the same
   recordings without Dask, which is what the machine's cores and memory allow.
2. A batch with one worker against a process that replays the same recordings: wall-clock time, and CPU time of all
   processes together, which other programs on the machine disturb less; with one thread, and with all cores.
3. Units that do nothing, with the arguments of real ones: milliseconds a unit, and the memory of the scheduler.

All runs of 1 and 2 are made once in every round, by processes that stay; ratios are those of runs of one round, and the
median is reported.
Recordings are those of a real camera's frame, 24 a second, in a temporary folder (`--folder` for another).
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import statistics
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Callable, ContextManager, Dict, Iterator, List, Sequence
from unittest.mock import patch

import common
import cv2
import numpy as np
from distributed import Client

from polar_pipeline import Pipeline
from polar_pipeline._util.cpus import available_cores
from polar_pipeline._util.malloc import keep_freed_memory
from polar_pipeline.recordings import messages
from polar_pipeline.recordings.messages import IMAGE
from polar_pipeline.recordings.sink import open_sink
from polar_pipeline.replay.job import Job, process_recording
from polar_pipeline.tools.batch import run as batch_run
from polar_pipeline.tools.batch.cluster import local_client, usable_gpus
from polar_pipeline.tools.batch.recordings import Recording, list_recordings
from polar_pipeline.tools.batch.results import Outcome
from polar_pipeline.tools.batch.run import Batch, process_tasks
from polar_pipeline.tools.batch.settings import BatchSettings
from polar_pipeline.tools.batch.units import Task

ROOT = Path(__file__).resolve().parent.parent
RATE = 24
ARGUMENTS = {"products": ("dolp", "aolp"), "dtype": "uint8"}
#: Resident memory is looked at after so many units, and at the end.
WARM_UNITS = 1000


@dataclass(frozen=True)
class Cost:
    """Seconds of a run by the clock, and of CPU time in all its processes."""

    wall: float
    cpu: float


#: Makes a run, and says what it cost.
Run = Callable[[], Cost]
#: Name of a run -> its cost in every round.
Costs = Dict[str, List[Cost]]


def record(path: Path, seconds: float, scale: int) -> None:
    """A recording of a camera's frame that moves by 4 pixels a frame; its sides are divided by `scale`."""
    raw = cv2.imread(str(ROOT / "frames" / "imx250mzr_camera.png"), cv2.IMREAD_UNCHANGED)
    height, width = (side // scale // 4 * 4 for side in raw.shape)
    with open_sink(path, {}) as sink:
        for index in range(round(seconds * RATE)):
            stamp = 1_700_000_000_000_000_000 + round(index * 1e9 / RATE)
            frame = np.roll(raw, 4 * index, 1)[:height, :width]
            sink.write("/image_raw", IMAGE, stamp, messages.encode_image(stamp, "camera", "mono8", frame))


def alternate(runs: Dict[str, Run], rounds: int) -> Costs:
    """The cost of each run in every round; one more round is made before, and not counted.

    Every other round is in reverse order: on a virtual machine, the first run to touch a page of memory pays for it.
    """
    costs: Costs = {name: [] for name in runs}
    for number in range(rounds + 1):
        for name in list(runs)[:: -1 if number % 2 else 1]:
            cost = runs[name]()
            if number:
                costs[name].append(cost)
    return costs


def cpu_seconds() -> float:
    """CPU time of this process."""
    used = os.times()
    return used.user + used.system


def cluster_seconds(client: Client) -> float:
    """CPU time of the workers and of this process, in which scheduler and client run."""
    return cpu_seconds() + sum(client.run(cpu_seconds).values())


@contextmanager
def batches(sources: Sequence[str], folder: Path, jobs: int, threads: int, gpus: List[str]) -> Iterator[Run]:
    """Runs batches on a cluster of its own: what each costs, scheduler and client included."""
    settings = BatchSettings({**ARGUMENTS, "backend": "cuda" if gpus else "cpu", "threads": threads})

    def run() -> Cost:
        os.sync()  # what was written before is not written during the measurement
        before, started = cluster_seconds(client), time.perf_counter()
        batch = Batch(settings, list_recordings(sources), folder)
        batch.run(client)
        batch.write_overview()
        cost = Cost(time.perf_counter() - started, cluster_seconds(client) - before)
        if any(row.status != "ok" for row in batch.outcomes.values()):
            raise RuntimeError(next(row.reason for row in batch.outcomes.values() if row.reason))
        shutil.rmtree(folder)
        return cost

    with local_client(jobs, gpus, 0) as client:
        yield run


@contextmanager
def replays(sources: Sequence[str], folder: Path, processes: int, threads: int) -> Iterator[Run]:
    """Runs processes that replay their share of the recordings, without Dask: what they cost together."""
    shares = [sources[number::processes] for number in range(processes)]
    folders = [folder / f"process{number}" for number in range(processes)]

    def run() -> Cost:
        folder.mkdir()
        os.sync()
        started = time.perf_counter()
        cpu = sum(pool.map(replay_all, shares, folders, [threads] * processes))
        cost = Cost(time.perf_counter() - started, cpu)
        shutil.rmtree(folder)
        return cost

    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        yield run


def replay_all(sources: Sequence[str], folder: Path, threads: int) -> float:
    """Process recordings one after the other, as `polar-pipeline replay` does; seconds of CPU time."""
    before = cpu_seconds()
    keep_freed_memory()
    cv2.setNumThreads(threads)
    folder.mkdir()
    with Pipeline(**{**ARGUMENTS, "backend": "cpu", "threads": threads}) as pipeline:
        for number, source in enumerate(sources):
            paths = (folder / f"{number}.{suffix}" for suffix in ("mcap", "html"))
            process_recording(Job(Path(source), products=next(paths), report=next(paths)), pipeline)
    return cpu_seconds() - before


def ratio(costs: Costs, name: str, other: str, kind: str = "wall") -> float:
    """The cost of a run, divided by that of another one of the same round; the median of the rounds."""
    pairs = zip(costs[name], costs[other])
    return statistics.median(getattr(one, kind) / getattr(two, kind) for one, two in pairs)


def stand_in(task: Task, *_: object) -> Outcome:
    """A unit that does nothing, with the argument and the result of a real one."""
    return Outcome(task.recording.name, task.unit, "ok", "", 240, 0, "cpu", 1.0, "", True)


def resident_mb() -> float:
    """Resident memory of this process, in which the scheduler and the client run."""
    with suppress(OSError):
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * resource.getpagesize() / 1e6
    return float("nan")


def scheduling(count: int, jobs: int) -> Dict[str, Any]:
    """What `count` units cost that do nothing."""
    memory: Dict[int, float] = {}
    settings, done = BatchSettings(ARGUMENTS), 0
    described, folder = settings.described(), Path("/data/results")

    def task(number: int) -> Task:
        name = f"robot7_drive_{number:05d}"
        recording = Recording(name, f"/data/drives/{name}.mcap", 10**9, f"{number:064x}")
        return Task(settings, described, recording, folder, f"{number:064x}")

    def ended(_: Task, __: Outcome) -> None:
        nonlocal done
        done += 1
        if done in (min(WARM_UNITS, count), count):
            memory[done] = round(resident_mb(), 1)

    with patch.object(batch_run, "run_task", stand_in), local_client(jobs, [], 0) as client:
        process_tasks(client, [task(number) for number in range(count, count + 100)], lambda _, __: None)
        before, started = cluster_seconds(client), time.perf_counter()
        process_tasks(client, [task(number) for number in range(count)], ended)
        wall, cpu = time.perf_counter() - started, cluster_seconds(client) - before
    each = {"wall_ms": round(1000 * wall / count, 3), "cpu_ms": round(1000 * cpu / count, 3)}
    return {"units": count, "workers": jobs, **each, "memory_mb": memory}


def processing(sources: Sequence[str], folder: Path, rounds: int) -> Dict[str, Any]:
    """Workers against processes without Dask, and two of each against one."""
    cores, gpus = available_cores(), list(usable_gpus())
    with ExitStack() as stack:
        runs: Dict[str, Run] = {}

        def add(name: str, runner: ContextManager[Run]) -> None:
            runs[name] = stack.enter_context(runner)

        for name, count, threads in (("1 of 1 thread", 1, 1), ("2 of 1 thread", 2, 1), ("all cores", 1, cores)):
            add(f"batch, {name}", batches(sources, folder / f"batch {name}", count, threads, []))
            add(f"replay, {name}", replays(sources, folder / f"replay {name}", count, threads))
        for count in (1, 2) if len(gpus) > 1 else ():
            add(f"batch, {count} GPUs", batches(sources, folder / f"{count} GPUs", count, 1, gpus[:count]))
        costs = alternate(runs, rounds)
    figures = {
        f"two {what} against one": ratio(costs, f"{what}, 1 of 1 thread", f"{what}, 2 of 1 thread")
        for what in ("batch", "replay")
    }
    for name in ("1 of 1 thread", "all cores"):
        for kind in ("wall", "cpu"):
            figures[f"overhead, {name}, {kind} [%]"] = (
                100 * ratio(costs, f"batch, {name}", f"replay, {name}", kind) - 100
            )
    if len(gpus) > 1:
        figures["two GPUs against one"] = ratio(costs, "batch, 1 GPUs", "batch, 2 GPUs")
    return {
        "figures": {name: round(value, 2) for name, value in figures.items()},
        "seconds": {
            name: [{kind: round(value, 3) for kind, value in asdict(row).items()} for row in rows]
            for name, rows in costs.items()
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recordings", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=10.0, help="length of each recording")
    parser.add_argument("--scale", type=int, default=2, help="divides the sides of the camera's 2448x2048 pixels")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--units", type=int, default=10_000)
    parser.add_argument("--folder", type=Path, help="where recordings and results are made")
    name = f"batch_{common.slug(common.cpu_model())}.json"
    parser.add_argument("--output", type=Path, default=common.RESULTS / name)
    values = parser.parse_args()
    report: Dict[str, Any] = {
        "machine": common.machine(["dask", "distributed", "numpy", "pyarrow"]),
        "recordings": {"count": values.recordings, "seconds": values.seconds, "scale": values.scale, "rate": RATE},
        "load_before": [round(value, 2) for value in os.getloadavg()],
        "scheduling": scheduling(values.units, 2),  # first, in a process that is as small as that of a batch
    }
    print(report["scheduling"], "(target 2 ms, flat memory)", flush=True)
    with tempfile.TemporaryDirectory(dir=values.folder) as temporary:
        folder = Path(temporary)
        sources = [str(folder / f"r{number}.mcap") for number in range(values.recordings)]
        for source in sources:
            record(Path(source), values.seconds, values.scale)
        report.update(processing(sources, folder, values.rounds))
    report["load_after"] = [round(value, 2) for value in os.getloadavg()]
    common.write(values.output, report)
    print(common.table(["figure", "value"], list(report["figures"].items())))
    print("targets: two against one 1.8, where two of replay reach that; overhead at most 5 %")


if __name__ == "__main__":
    main()
