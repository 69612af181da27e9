"""A process that was asked to end ends, whatever it is stuck in."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Callable, Iterator, List

import pytest
from support import ROOT, TIMEOUT, assert_gone, wait_for

from polar_pipeline._util import watchdog

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="looks at processes through /proc")

#: How the entry point of the node begins, with the watchdog's file as argument; `stop` is the event that ends it.
START = (
    "import ctypes, os, signal, sys, time; from polar_pipeline._util import watchdog; watchdog.__file__ = sys.argv[1];"
    "from polar_pipeline.node import _stop_on_signals; stop = _stop_on_signals();"
)
#: Waits for ever in C functions that hold the interpreter's lock, as a deadlock in a driver does.
STUCK = (
    "lock = ctypes.PyDLL(None).pthread_mutex_lock; mutex = ctypes.create_string_buffer(64);"
    "print('stuck', flush=True); lock(mutex); lock(mutex)"
)
WELL = "print('well', flush=True)\nwhile not stop.is_set(): time.sleep(0.01)\nprint('done', flush=True)"
SLOW = WELL.replace("print('done'", "time.sleep(1.5); print('done'")
#: Sends itself signals at lines of what handles one: a handler is interrupted by the next.
NESTED = """
def interrupt(frame, event, argument):
    if event == "line" and frame.f_code.co_name != "is_set" and left:
        os.kill(os.getpid(), left.pop())
    return interrupt
left = [signal.SIGINT, signal.SIGTERM] * 3
print("nested", flush=True)
sys.settrace(interrupt)
while not stop.is_set():
    time.sleep(0.01)
sys.settrace(None)
print("done", flush=True)
"""


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen]]:
    made: List[subprocess.Popen] = []

    def run(body: str, file: str = watchdog.__file__) -> subprocess.Popen:
        process = subprocess.Popen(
            [sys.executable, "-c", START + body, file],
            cwd=str(ROOT),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            universal_newlines=True,
        )
        made.append(process)
        assert process.stdout.readline()
        wait_for(lambda: companions(process.pid), "the second process")
        wait_for(lambda: all(ignores_signals(pid) for pid in companions(process.pid)), "its readiness")
        return process

    yield run
    for process in made:
        process.kill()
        process.communicate()


def companions(pid: int) -> List[int]:
    """Processes that a process has started."""
    return [int(number) for number in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def ignores_signals(pid: int) -> bool:
    rows = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return bool(int(rows["SigIgn"], 16) & 1 << signal.SIGTERM - 1)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ends_by_itself(start: Callable, number: signal.Signals) -> None:
    process = start(WELL)
    (second,) = companions(process.pid)
    process.send_signal(number)
    out, err = process.communicate(timeout=TIMEOUT)
    assert (process.returncode, out, err) == (0, "done\n", "")
    assert_gone(second)


def test_has_time_to_finish(start: Callable) -> None:
    process = start(SLOW)
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGTERM)  # as `timeout` sends it: to the process, and to its group
    out, err = process.communicate(timeout=TIMEOUT)
    assert (process.returncode, out, err) == (0, "done\n", "")


def test_a_signal_interrupts_the_handler_of_another(start: Callable) -> None:
    process = start(NESTED)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=TIMEOUT)
    assert (process.returncode, out, err) == (0, "done\n", "")


@pytest.mark.parametrize("numbers", [(signal.SIGTERM, signal.SIGTERM), (signal.SIGINT, signal.SIGTERM)])
def test_a_second_signal_kills(start: Callable, numbers: List[signal.Signals]) -> None:
    process = start(STUCK)
    (second,) = companions(process.pid)
    process.send_signal(numbers[0])
    time.sleep(1)
    assert process.poll() is None, "one signal alone does not end what is stuck"
    process.send_signal(numbers[1])
    _, err = process.communicate(timeout=5)
    assert process.returncode == -signal.SIGKILL
    assert "asked a second time to end" in err
    assert_gone(second)


def test_ten_seconds_kill_and_say_where(start: Callable, tmp_path: Path) -> None:
    """In a copy, whose ten seconds are two."""
    source = Path(watchdog.__file__).read_text(encoding="utf-8")
    assert source.count("\nGRACE = 10.0\n") == 1
    copy = tmp_path / "watchdog.py"
    copy.write_text(source.replace("\nGRACE = 10.0\n", "\nGRACE = 2.0\n"), encoding="utf-8")
    process = start(STUCK, str(copy))
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=TIMEOUT)
    assert process.returncode == -signal.SIGABRT
    assert "still there 2 s after it was asked to end" in err
    assert 'File "<string>", line 1 in <module>' in err, "where it was stuck"


def test_the_second_process_does_not_outlive_a_killed_one(start: Callable) -> None:
    process = start(WELL)
    (second,) = companions(process.pid)
    os.kill(second, signal.SIGINT)  # a terminal sends it to both
    process.kill()
    process.communicate(timeout=TIMEOUT)
    assert_gone(second)


def test_a_tied_process_does_not_outlive_a_killed_one(tmp_path: Path) -> None:
    """It is the very process that was started, and gets SIGTERM, on which it may say goodbye."""
    child = (
        "import signal, sys, time; from pathlib import Path\n"
        "def end(*_): Path(sys.argv[1]).touch(); sys.exit()\n"
        "signal.signal(signal.SIGTERM, end); print('there', flush=True); time.sleep(60)"
    )
    body = (
        "import subprocess, sys; from polar_pipeline._util.watchdog import tied\n"
        "process = subprocess.Popen(tied([sys.executable, '-c', sys.argv[1], sys.argv[2]]))\n"
        "print(process.pid, flush=True); process.wait()"
    )
    command = [sys.executable, "-c", body, child, str(tmp_path / "goodbye")]
    with subprocess.Popen(command, cwd=str(ROOT), stdout=subprocess.PIPE, universal_newlines=True) as process:
        pid, said = (process.stdout.readline().strip() for _ in range(2))
        assert said == "there"
        assert companions(process.pid) == [int(pid)]
        process.kill()
        process.wait(TIMEOUT)
    assert_gone(int(pid))
    wait_for((tmp_path / "goodbye").exists, "its own end")


def test_without_a_second_process_it_still_ends(start: Callable) -> None:
    process = start(WELL)
    (second,) = companions(process.pid)
    os.kill(second, signal.SIGKILL)
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=TIMEOUT)
    assert (process.returncode, out) == (0, "done\n")
