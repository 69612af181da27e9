"""The line that pytest prints for each reason why tests were skipped, also when several processes run them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support import ROOT

TESTS = {
    "test_marked.py": """
import pytest

@pytest.mark.skipif(True, reason="no GPU")
@pytest.mark.parametrize("number", range(3))
def test_marked(number): pass

def test_called(): pytest.skip("no GPU")

def test_lines(): pytest.skip("two\\n    lines")

@pytest.fixture
def missing(): pytest.importorskip("a_module_that_is_missing")

def test_of_a_fixture(missing): pass

def test_passes(): pass

@pytest.mark.xfail
def test_fails(): assert False
""",
    "test_whole.py": "import pytest\npytest.importorskip('a_module_that_is_missing')\ndef test_nothing(): pass\n",
    "test_whole_too.py": "import pytest\npytest.skip('no GPU', allow_module_level=True)\n",
}
MISSING = "could not import 'a_module_that_is_missing': No module named 'a_module_that_is_missing'"


@pytest.mark.parametrize("workers", ["0", "2"])
def test_one_line_per_reason(workers: str, tmp_path: Path) -> None:
    for name, text in TESTS.items():
        (tmp_path / name).write_text(text)
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "test"), "PYTEST_ADDOPTS": ""}
    command = [sys.executable, "-m", "pytest", "-p", "skips", "-p", "no:cacheprovider", "-c", os.devnull, "-n", workers]
    done = subprocess.run(
        [*command, "--rootdir", str(tmp_path), str(tmp_path)],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    _, text = done.stdout.split(" skipped ==")
    lines = [line for line in text.splitlines() if ": " in line]
    assert lines == ["4 tests and 1 file: no GPU", f"1 test and 1 file: {MISSING}", "1 test: two lines"]
