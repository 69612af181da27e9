"""What `polar-pipeline batch` gains and costs, measured side by side in one run.

1. Two worker processes against one, each of one CPU thread; and two processes against one that replay the same
   recordings without Dask, which is what the machine's cores and memory allow.
2. A batch with one worker against `replay` of the same recordings, one after the other, with all cores.
3. Units that do nothing: milliseconds a unit, and the memory of the scheduler.

The runs of a comparison alternate, and the median is reported. Recordings are those of a real camera's frame, 24 a
second, in a temporary folder (`--folder` for another).
"""

from __future__ import annotations

import argparse
import resource
import shutil
import statistics
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Callable, Dict, Iterator, List, Sequence

import cv2
import numpy as np

from polar_pipeline import Pipeline, messages
from polar_pipeline._util.cpus import available_cores
from polar_pipeline.batch.cluster import gpu_names, local_client
from polar_pipeline.batch.loop import Loop, Unit
from polar_pipeline.batch.run import Batch
from polar_pipeline.batch.settings import BatchSettings
from polar_pipeline.batch.storage import list_recordings
from polar_pipeline.messages import IMAGE
from polar_pipeline.replay.job import Job, process_recording
from polar_pipeline.replay.sink import open_sink

ROOT = Path(__file__).resolve().parent.parent
RATE = 24
ARGUMENTS = {"products": ("dolp", "aolp"), "dtype": "uint8"}
#: Resident memory is looked at after so many units, and at the end.
WARM_UNITS = 1000


def record(path: Path, seconds: float, scale: int) -> None:
    """A recording of a camera's frame that moves by 4 pixels a frame; its sides are divided by `scale`."""
    raw = cv2.imread(str(ROOT / "frames" / "imx250mzr_camera.png"), cv2.IMREAD_UNCHANGED)
    height, width = (side // scale // 4 * 4 for side in raw.shape)
    with open_sink(path, {}) as sink:
        for index in range(round(seconds * RATE)):
            stamp = 1_700_000_000_000_000_000 + round(index * 1e9 / RATE)
            frame = np.roll(raw, 4 * index, 1)[:height, :width]
            sink.write("/image_raw", IMAGE, stamp, messages.encode_image(stamp, "camera", "mono8", frame))


def alternate(runs: Dict[str, Callable[[], float]], repeats: int) -> Dict[str, float]:
    """The median seconds of each run; each is made once before, and not counted."""
    found: Dict[str, List[float]] = {name: [] for name in runs}
    for repeat in range(repeats + 1):
        for name, run in runs.items():
            seconds = run()
            if repeat:
                found[name].append(seconds)
    return {name: statistics.median(times) for name, times in found.items()}


def batch_seconds(sources: Sequence[str], folder: Path, jobs: int, threads: int, gpus: List[str]) -> float:
    """Seconds that a batch takes on a cluster that is there."""
    out = folder / "out"
    arguments = {**ARGUMENTS, "backend": "cuda" if gpus else "cpu", "threads": threads}
    with local_client(jobs, gpus, 0) as client:
        settings = BatchSettings(arguments)
        # the first one makes the pipelines
        Batch(client, replace(settings, topic="/image_raw"), list_recordings(sources[:jobs]), folder / "first").run()
        batch = Batch(client, settings, list_recordings(sources), out)
        started = time.perf_counter()
        batch.run()
        seconds = time.perf_counter() - started
    if any(row.status != "ok" for row in batch.outcomes.values()):
        raise RuntimeError(next(row.reason for row in batch.outcomes.values() if row.reason))
    for path in (out, folder / "first"):
        shutil.rmtree(path)
    return seconds


def replays_at_once(sources: Sequence[str], folder: Path, processes: int) -> float:
    """Seconds that so many processes take, each with its share of the recordings and one CPU thread."""
    shares = [sources[number::processes] for number in range(processes)]
    folders = [folder / f"process{number}" for number in range(processes)]
    for path in folders:
        path.mkdir()
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        list(pool.map(replay_seconds, [share[:1] for share in shares], folders, [1] * processes))  # starts them
        started = time.perf_counter()
        list(pool.map(replay_seconds, shares, folders, [1] * processes))
        seconds = time.perf_counter() - started
    for path in folders:
        shutil.rmtree(path)
    return seconds


def replay_seconds(sources: Sequence[str], folder: Path, threads: int) -> float:
    """Seconds that the same recordings take in this process, one after the other, as `replay` processes them."""
    out = folder / "replayed"
    out.mkdir()
    with Pipeline(**{**ARGUMENTS, "backend": "cpu", "threads": threads}) as pipeline:
        pipeline(np.zeros((64, 64), np.uint8))
        started = time.perf_counter()
        for number, source in enumerate(sources):
            paths = (out / f"{number}.{suffix}" for suffix in ("mcap", "html"))
            process_recording(Job(Path(source), products=next(paths), report=next(paths)), pipeline)
        seconds = time.perf_counter() - started
    shutil.rmtree(out)
    return seconds


def stand_in(number: int) -> int:
    """A unit that does nothing."""
    return number


def resident_mb() -> float:
    """Resident memory of this process, in which the scheduler and the client run."""
    with suppress(OSError):
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * resource.getpagesize() / 1e6
    return float("nan")


def scheduling(count: int, jobs: int) -> str:
    """What `count` units cost that do nothing."""
    memory: List[float] = []
    done = 0

    def units() -> Iterator[Unit]:
        return (Unit(stand_in, (number,), -number) for number in range(count))

    def finished(_: Unit, result: object) -> List[Unit]:
        nonlocal done
        if isinstance(result, BaseException):
            raise result
        done += 1
        if done in (min(WARM_UNITS, count), count):
            memory.append(resident_mb())
        return []

    with local_client(jobs, [], 0) as client:
        Loop(client).run(iter([Unit(stand_in, (0,))] * 100), lambda *_: [])
        started = time.perf_counter()
        Loop(client).run(units(), finished)
        seconds = time.perf_counter() - started
    return (
        f"{count} units that do nothing: {1000 * seconds / count:.2f} ms a unit; resident memory "
        f"{memory[0]:.0f} MB after {min(WARM_UNITS, count)}, {memory[-1]:.0f} MB at the end"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recordings", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=10.0, help="length of each recording")
    parser.add_argument("--scale", type=int, default=2, help="divides the sides of the camera's 2448x2048 pixels")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--units", type=int, default=10_000)
    parser.add_argument("--folder", type=Path, help="where recordings and results are made")
    values = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=values.folder) as name:
        folder = Path(name)
        sources = [str(folder / f"r{number}.mcap") for number in range(values.recordings)]
        for source in sources:
            record(Path(source), values.seconds, values.scale)
        frames = values.recordings * round(values.seconds * RATE)
        print(f"{values.recordings} recordings of {values.seconds:g} s, {frames} frames, {available_cores()} cores")
        seconds = alternate(
            {f"{jobs} of 1 thread": lambda jobs=jobs: batch_seconds(sources, folder, jobs, 1, []) for jobs in (1, 2)},
            values.repeats,
        )
        for label, value in seconds.items():
            print(f"workers: {label}: {value:.2f} s, {frames / value:.1f} frames/s")
        one, two = seconds.values()
        print(f"two workers are {one / two:.2f} times as fast as one (target 1.8)")
        seconds = alternate(
            {str(count): lambda count=count: replays_at_once(sources, folder, count) for count in (1, 2)},
            values.repeats,
        )
        print(f"two processes of replay without Dask are {seconds['1'] / seconds['2']:.2f} times as fast as one")
        cores = available_cores()
        seconds = alternate(
            {
                "replay": lambda: replay_seconds(sources, folder, cores),
                "batch": lambda: batch_seconds(sources, folder, 1, cores, []),
            },
            values.repeats,
        )
        overhead = seconds["batch"] / seconds["replay"] - 1
        print(
            f"replay {seconds['replay']:.2f} s, batch of one worker {seconds['batch']:.2f} s: "
            f"overhead {100 * overhead:+.1f} % (target at most 5 %)"
        )
        gpus = gpu_names("auto")
        if len(gpus) > 1:
            seconds = alternate(
                {
                    f"{jobs} GPUs": lambda jobs=jobs: batch_seconds(sources, folder, jobs, 1, gpus[:jobs])
                    for jobs in (1, 2)
                },
                values.repeats,
            )
            one, two = seconds.values()
            print(f"two GPUs are {one / two:.2f} times as fast as one (target 1.8)")
    print(scheduling(values.units, 2) + " (target 2 ms, flat)")


if __name__ == "__main__":
    main()
