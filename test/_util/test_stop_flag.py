"""A process that was asked to end ends, whatever it is stuck in."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from typing import Callable, Iterator, List

import pytest
from support import ROOT, TIMEOUT, ended_afterwards

from polar_pipeline._util import stop_flag

#: Begins as the entry point of the node; the seconds until a kill are an argument.
START = (
    "import ctypes, os, signal, sys, time; from polar_pipeline._util import stop_flag;"
    "stop_flag.GRACE = float(sys.argv[1]); stop = stop_flag.stop_on_signals(); print('there', flush=True)\n"
)
UNTIL_ASKED = "while not stop.is_set(): time.sleep(0.01)\n"
#: Waits for ever in C functions that hold the interpreter's lock, as a deadlock in a driver does.
STUCK = UNTIL_ASKED + (
    "lock = ctypes.PyDLL(None).pthread_mutex_lock; mutex = ctypes.create_string_buffer(64); lock(mutex); lock(mutex)"
)
WELL = UNTIL_ASKED + "time.sleep(1.5 * stop_flag.SAME_REQUEST); print('done', flush=True)"
#: Sends itself signals at lines of what handles one: a handler is interrupted by the next.
NESTED = """
def interrupt(frame, event, argument):
    if event == "line" and frame.f_code.co_name != "is_set" and left:
        os.kill(os.getpid(), left.pop())
    return interrupt
left = [signal.SIGINT, signal.SIGTERM] * 3
sys.settrace(interrupt)
while not stop.is_set():
    time.sleep(0.01)
sys.settrace(None)
print("done", flush=True)
"""


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen]]:
    def run(body: str, grace: float = stop_flag.GRACE) -> subprocess.Popen:
        process = subprocess.Popen(
            [sys.executable, "-c", START + body, str(grace)],
            cwd=str(ROOT),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            universal_newlines=True,
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "there\n"
        return process

    def end(process: subprocess.Popen) -> None:
        process.kill()
        process.communicate()

    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # `nohup make test` ignores it, and so would these processes
    try:
        yield from ended_afterwards(run, end)
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("body", [WELL, NESTED])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_has_time_to_finish(start: Callable, body: str, number: signal.Signals) -> None:
    process = start(body)
    process.send_signal(number)
    process.send_signal(number)  # as `timeout` sends it: to the process, and to its group
    out, err = process.communicate(timeout=TIMEOUT)
    assert (process.returncode, out, err) == (0, "done\n", "")


def test_nohup_goes_on_without_its_terminal(start: Callable) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as `nohup` starts a process
    try:
        process = start(UNTIL_ASKED + "print('done', flush=True)")
    finally:
        signal.signal(signal.SIGHUP, before)
    process.send_signal(signal.SIGHUP)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.5)
    process.send_signal(signal.SIGTERM)
    assert process.communicate(timeout=TIMEOUT)[0] == "done\n"


@pytest.mark.parametrize("numbers", [(signal.SIGTERM, signal.SIGTERM), (signal.SIGINT, signal.SIGTERM)])
def test_a_second_signal_kills(start: Callable, numbers: List[signal.Signals]) -> None:
    process = start(UNTIL_ASKED + "time.sleep(60)")
    process.send_signal(numbers[0])
    time.sleep(1)
    assert process.poll() is None, "one signal alone does not end what is stuck"
    process.send_signal(numbers[1])
    _, err = process.communicate(timeout=TIMEOUT)
    assert process.returncode == -signal.SIGKILL
    assert "asked a second time to end" in err


def test_ten_seconds_kill_and_say_where(start: Callable) -> None:
    """Within two seconds here, with the interpreter's lock held."""
    assert stop_flag.GRACE == 10
    process = start(STUCK, 2)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 1
    assert 'File "<string>", line 3 in <module>' in err, "where it was stuck"
