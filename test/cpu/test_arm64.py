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


def test_the_cross_compiler_gets_a_processor_that_it_knows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arm64, "FOLDER", tmp_path)
    stand_in = tmp_path / "g++"
    stand_in.write_text('#!/bin/sh\nfor argument; do echo "$argument"; done\n')
    stand_in.chmod(0o755)
    compiler = arm64.make_compiler(arm64.Tools("qemu", str(stand_in), ""))
    done = subprocess.run(
        [str(compiler), "-O3", "-mcpu=native", "a file.cpp"], stdout=subprocess.PIPE, text=True, check=True
    )
    assert done.stdout.splitlines() == ["-O3", f"-mcpu={arm64.PROCESSOR}", "a file.cpp"]
