"""A bounded folder for copies that several processes share: its limit, its order, and what killed processes leave."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import List

import pytest
from support import TIMEOUT, wait_for

from polar_pipeline.batch.sources import StorageError
from polar_pipeline.batch.spool import Spool

#: Reserves bytes many times, and each time writes as many and adds up what is in the folder.
WORKER = """
import random, sys
from pathlib import Path
from polar_pipeline.batch.spool import Spool
folder, limit, seed = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
chance = random.Random(seed)
for _ in range(25):
    size = chance.choice([100, 400, 900, 1000])
    with Spool(folder, limit).reserve(size, "x") as entry:
        (entry / "data").write_bytes(bytes(size))
        total = 0
        for path in folder.glob("copy_*/data"):
            try:
                total += path.stat().st_size
            except FileNotFoundError:
                pass
        assert total <= limit, total
        print(len(list(folder.glob("copy_*/data"))), flush=True)
"""
HOLDER = """
import sys, time
from pathlib import Path
from polar_pipeline.batch.spool import Spool
with Spool(Path(sys.argv[1]), 1000).reserve(1000, "x") as entry:
    (entry / "data").write_bytes(bytes(1000))
    print("reserved", flush=True)
    time.sleep(600)
"""


def start(program: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", program, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def entries(folder: Path) -> List[str]:
    return sorted(path.name for path in folder.iterdir() if path.name != ".lock")


def test_two_processes_keep_the_limit(tmp_path: Path) -> None:
    both = [start(WORKER, tmp_path, 1000, seed) for seed in (1, 2)]
    said = [process.communicate(timeout=TIMEOUT)[0].split() for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert [len(lines) for lines in said] == [25, 25]
    assert entries(tmp_path) == []


def test_a_killed_process_leaves_no_reservation(tmp_path: Path) -> None:
    holder = start(HOLDER, tmp_path)
    try:
        assert holder.stdout
        assert holder.stdout.readline() == "reserved\n"
        assert len(entries(tmp_path)) == 1
    finally:
        holder.send_signal(signal.SIGKILL)
        holder.communicate()
    assert len(entries(tmp_path)) == 1, "it had no time to remove it"
    with Spool(tmp_path, 1000).reserve(1000, "y") as entry:
        assert entries(tmp_path) == [entry.name]
    assert entries(tmp_path) == []


def test_reservations_wait_in_order(tmp_path: Path) -> None:
    """One that would fit does not pass an earlier one that does not; all in threads of one process."""
    granted: List[str] = []
    spool = Spool(tmp_path, 1000)

    def reserve(size: int, name: str, release: threading.Event) -> None:
        with spool.reserve(size, name):
            granted.append(name)
            release.wait(TIMEOUT)

    events = [threading.Event() for _ in range(3)]
    rows = zip((600, 800, 100), ("first", "large", "small"), events)
    threads = []
    for count, row in enumerate(rows, 1):
        threads.append(threading.Thread(target=reserve, args=row))
        threads[-1].start()
        wait_for(lambda count=count: len(entries(tmp_path)) == count, "the request")
    wait_for(lambda: granted, "the first one")
    time.sleep(0.3)  # for what must not happen; a slow machine makes this test weaker, not wrong
    assert granted == ["first"]
    events[0].set()
    wait_for(lambda: len(granted) == 3, "the others, which fit together")
    for event in events:
        event.set()
    for thread in threads:
        thread.join(TIMEOUT)
    assert set(granted) == {"first", "large", "small"}
    assert entries(tmp_path) == []


def test_what_is_not_a_reservation_stays(tmp_path: Path) -> None:
    for name in ("copy_1_2_notes", "recording.mcap"):
        (tmp_path / name).write_bytes(b"mine")
    with Spool(tmp_path, 10).reserve(10, "x"):
        pass
    assert entries(tmp_path) == ["copy_1_2_notes", "recording.mcap"]


def test_errors(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"^drive has 2 MB, and the spool takes 1 MB$"), ExitStack() as stack:
        stack.enter_context(Spool(tmp_path, 1 << 20).reserve(2 << 20, "drive"))
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StorageError, match=r"the spool .*file/spool cannot be made: Not a directory"):
        Spool(tmp_path / "file" / "spool", 1)
    spool = Spool(tmp_path / "gone", 1)
    (tmp_path / "gone").rmdir()
    with pytest.raises(StorageError, match="cannot be used: No such file"), ExitStack() as stack:
        stack.enter_context(spool.reserve(1, "x"))


def test_an_error_in_the_block_is_passed_on(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 1)
    with pytest.raises(ZeroDivisionError), spool.reserve(1, "x") as entry:
        (entry / "data").write_bytes(bytes([1 // len(entries(tmp_path)[1:])]))
    assert entries(tmp_path) == []
