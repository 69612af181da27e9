"""Recordings and clusters for the tests of batches."""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Callable, Iterator, List, Tuple

import numpy as np
from support import TIMEOUT

from polar_pipeline import messages
from polar_pipeline.messages import IMAGE
from polar_pipeline.replay.sink import open_sink

START = 1_700_000_000_000_000_000
PERIOD = 100_000_000

_SCHEDULER = """
import asyncio
from distributed import Scheduler
async def main():
    async with Scheduler(host="127.0.0.1", port=0, dashboard=False) as scheduler:
        print(scheduler.address, flush=True)
        await scheduler.finished()
asyncio.run(main())
"""
_WORKER = """
import asyncio, sys
{before}
from distributed import Worker
async def main():
    async with Worker(sys.argv[1], nthreads=1, host="127.0.0.1", dashboard=False) as worker:
        print(worker.address, flush=True)
        await worker.finished()
if __name__ == "__main__":
    asyncio.run(main())
"""


def record(path: Path, frames: int, side: int = 64, seed: int = 0) -> Path:
    """A recording of noise that moves; the camera starts again in the middle, and one frame is too small."""
    path.parent.mkdir(exist_ok=True)
    raw = np.random.default_rng(seed).integers(20, 200, (side, side)).astype(np.uint8)
    with open_sink(path, {}, force=True) as sink:
        for index in range(frames):
            stamp = START + PERIOD * (index if index < frames // 2 else index - frames // 2 + 1)
            frame = np.roll(raw, index, 1)
            frame = frame[:8] if index == frames // 3 else frame
            sink.write("/raw", IMAGE, START + index * PERIOD, messages.encode_image(stamp, "cam", "mono8", frame))
    return path


def wait_for(condition: Callable[[], object], what: str) -> None:
    end = time.monotonic() + TIMEOUT
    while not condition():
        assert time.monotonic() < end, f"no {what}"
        time.sleep(0.005)


def is_writing(folder: Path) -> bool:
    """Whether a worker has written products of a recording that is not complete."""
    try:
        return any(path.stat().st_size > 0 for path in folder.glob("recordings/.*.part/.products.mcap.*"))
    except OSError:  # it was just completed
        return False


def partial_files(folder: Path) -> List[Path]:
    return [path for path in folder.rglob("*") if path.name.endswith(".part")]


@contextmanager
def script(text: str, *arguments: str) -> Iterator[Tuple[subprocess.Popen[str], str]]:
    """A Python script in a process of its own, and the first line that it prints."""
    command = [sys.executable, "-c", text, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline().strip()
            assert line.startswith("tcp://"), line
            yield process, line
        finally:
            process.kill()


@contextmanager
def scheduler_and_worker(before: str = "") -> Iterator[Tuple[subprocess.Popen[str], str, str]]:
    """A scheduler's process and address, and the address of its worker, which runs `before` first."""
    with script(_SCHEDULER) as (process, address), script(_WORKER.format(before=before), address) as (_, worker):
        yield process, address, worker
