"""Copies of a process end as processes do, and leave nothing of theirs behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Dict, List

import pytest

pytest.importorskip("rclpy")

import drill
from support import remove_segments, wait_for

pytestmark = [
    pytest.mark.ros,
    pytest.mark.skipif(sys.platform != "linux", reason="needs Linux, whose orphans can be adopted"),
]


def start(folder: Path, text: str, *arguments: str) -> drill.Process:
    """A copy that runs a program."""
    program = folder / "program.py"
    program.write_text(text)
    return drill.Process(folder / "log", str(program), *arguments, is_forked=True)


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("print('done')", 0, "done\n"),
        ("raise SystemExit(3)", 3, ""),
        ("raise SystemExit('no camera')", 1, "no camera\n"),
        ("import sys; sys.exit(None)", 0, ""),
        ("import atexit; atexit.register(print, 'last')", 0, "last\n"),
        (
            "import threading, time; threading.Thread(target=lambda: [time.sleep(0.1), print('late')]).start()",
            0,
            "late\n",
        ),
    ],
)
def test_exit_codes_and_output(tmp_path: Path, text: str, code: int, said: str) -> None:
    process = start(tmp_path, text)
    assert (process.wait(), process.text) == (code, said)
    assert not process.is_alive()


def test_an_error_is_shown(tmp_path: Path) -> None:
    process = start(tmp_path, "1 / 0")
    assert process.wait() == 1
    assert process.text.startswith("Traceback")
    assert process.text.endswith("ZeroDivisionError: division by zero\n")


def test_arguments_and_environment_are_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "import os, sys; print(sys.argv[1:], os.environ.get('ONE'), os.environ['ROS_DOMAIN_ID'], sys.stdin.read())"
    found: Dict[str, List[str]] = {}
    for value in ("1", "2"):
        monkeypatch.setenv("ONE", value)
        process = start(tmp_path, text, "--ros-args", value)
        assert process.wait() == 0, process.text
        found[value] = process.text.splitlines()
    domain = os.environ["ROS_DOMAIN_ID"]
    assert found == {value: [f"['--ros-args', '{value}'] {value} {domain} "] for value in ("1", "2")}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=lambda n: n.name)
def test_signals_end_it(tmp_path: Path, number: signal.Signals) -> None:
    process = start(tmp_path, "import time; print('begun', flush=True); time.sleep(1000)")
    wait_for(lambda: process.text == "begun\n", "its output")
    assert process.is_alive()
    with pytest.raises(subprocess.TimeoutExpired):
        process._process.wait(0.01)
    process.send(number)
    assert process.wait() == -number
    assert not Path(f"/proc/{process.pid}").exists()
    process.send(number)


NODE = """
import re, sys, time
from pathlib import Path
import rclpy

rclpy.init()
node = rclpy.create_node("cyclic")
node.itself = node
maps = Path("/proc/self/maps").read_text()
print(*sorted(set(re.findall("/dev/shm/fast(?:dds|rtps)_[0-9a-f]{16}$", maps, re.M))), flush=True)
end = time.monotonic() + float(sys.argv[1])
while rclpy.ok() and time.monotonic() < end:  # until SIGTERM
    time.sleep(0.01)
"""


def segments(process: drill.Process) -> List[Path]:
    """What a node has in shared memory, once it is there."""
    wait_for(lambda: process.text.endswith("\n"), "its output")
    return [Path(path) for path in process.text.split()]


def test_shared_memory_goes_with_its_process(tmp_path: Path) -> None:
    process = start(tmp_path, NODE, "0")
    found = segments(process)
    assert process.wait() == 0
    assert found
    assert not any(path.exists() for path in found)


def test_shared_memory_of_a_killed_process_is_removed_later(tmp_path: Path) -> None:
    killed, alive = ((tmp_path / name) for name in ("killed", "alive"))
    for folder in (killed, alive):
        folder.mkdir()
    first = start(killed, NODE, "1000")
    left = set(segments(first))
    second = start(alive, NODE, "1000")
    used = set(segments(second)) - left
    first.send(signal.SIGKILL)
    first.wait()
    assert left
    assert used
    remove_segments()
    assert all(path.exists() for path in left | used), "too young to tell"
    remove_segments(age=0)
    assert not any(path.exists() for path in left)
    assert all(path.exists() for path in used)
    second.close()
