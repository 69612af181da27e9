"""The tests on an emulated arm64: what they say where they cannot run."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

import arm64
import pytest
from support import ROOT


def run(folder: Path) -> subprocess.CompletedProcess:
    """`test/arm64.py` where programs are only looked for in a folder."""
    command = [sys.executable, str(ROOT / "test" / "arm64.py")]
    return subprocess.run(command, env={"PATH": str(folder)}, capture_output=True, text=True, check=False)


@pytest.mark.skipif(platform.machine() == "aarch64", reason="an arm64 machine does not emulate")
def test_a_machine_without_the_tools_is_told_in_one_line(tmp_path: Path) -> None:
    done = run(tmp_path)
    assert (done.returncode, done.stderr) == (arm64.SKIPPED, "")
    (line,) = done.stdout.splitlines()
    assert line.startswith("arm64: skipped, missing: ")


def test_what_is_made_once_is_made_again_from_other_things(tmp_path: Path) -> None:
    folder = tmp_path / "root"
    made = []
    for version in (1, 1, 2):
        with arm64.made_once(folder, version) as is_new:
            made.append(is_new)
            if is_new:
                assert list(folder.iterdir()) == []
                (folder / "file").touch()
    assert made == [True, False, True]


def test_what_was_interrupted_is_made_again(tmp_path: Path) -> None:
    folder = tmp_path / "root"
    with pytest.raises(KeyboardInterrupt), arm64.made_once(folder, 1):
        raise KeyboardInterrupt
    with arm64.made_once(folder, 1) as is_new:
        assert is_new
