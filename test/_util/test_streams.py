"""Programs that are started without standard streams: they work, and write into no file what belongs to a stream."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Tuple

import pytest
from support import ROOT

#: Writes a file of a name, and then messages as Python, C and a child process do.
BODY = """
import os, subprocess, sys
from polar_pipeline._util.stop_flag import stop_on_signals
stop_on_signals()
with open(sys.argv[1], "wb") as file:
    for stream in (sys.stdout, sys.stderr):
        print("text", file=stream, flush=True)
    for number in (1, 2):
        os.write(number, b"text")
    subprocess.run(["sh", "-c", "echo text; echo text >&2"], check=True)
    file.write(b"content")
"""


CLOSED = [(), (2,), (1, 2), (0, 1, 2)]


def run(closed: Tuple[int, ...], *arguments: str) -> Tuple[int, bytes, bytes]:
    """Exit code and output of Python, started without these streams."""

    def close() -> None:
        for number in closed:
            os.close(number)

    command = [sys.executable, *arguments]
    done = subprocess.run(command, cwd=str(ROOT), capture_output=True, preexec_fn=close, check=False)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("closed", CLOSED)
def test_no_message_gets_into_a_file(closed: Tuple[int, ...], tmp_path: Path) -> None:
    code, *outputs = run(closed, "-c", BODY, str(tmp_path / "file"))
    assert code == 0
    assert (tmp_path / "file").read_bytes() == b"content"
    assert [len(output) for output in outputs] == [0 if number in closed else 14 for number in (1, 2)]


@pytest.mark.parametrize("closed", CLOSED)
def test_a_command_works(closed: Tuple[int, ...], tmp_path: Path) -> None:
    arguments = ("simulate", str(tmp_path / "session"), "--size", "64x64", "--angles", "5", "--frames", "1")
    code, said, _ = run(closed, "-m", "polar_pipeline", *arguments)
    assert (code, bool(said)) == (0, 1 not in closed)
    assert (tmp_path / "session" / "dark").is_dir()
