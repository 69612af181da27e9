"""What test processes that run at once share, and what they do not."""

from __future__ import annotations

import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import Any, List

import pytest
from harness import COMPILER
from support import IS_EXHAUSTIVE, ROOT, first_of, pairs, pairs_of, representative

OWN_DOMAINS = "import support; print(*[support.own_domain() for _ in range(9)], flush=True); input()"
BUILD = """
import sys, harness
from pathlib import Path
from polar_pipeline.cuda.arguments import output_defines
harness.CACHE = Path(sys.argv[2])
print("ready", flush=True)
input()
harness.prune_cache()
harness.launch_on_host(
    harness.build(Path(sys.argv[1]), output_defines({})),
    lambda _: harness.np.zeros((), harness.FRAME_ARGUMENT),
    harness.Grid((1, 1, 1), 1),
    {},
)
"""
KERNEL = """#include "frame.cuh"
extern "C" __global__ void nothing(const FrameArguments frame) { grid_dependency_wait(); }
"""


def at_once(count: int, code: str, *arguments: str) -> List[str]:
    """What processes print in a line that live at the same time; then they get one, and must end well."""
    command = [sys.executable, "-c", code, *arguments]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    started = [subprocess.Popen(command, cwd=str(ROOT / "test"), text=True, **pipes) for _ in range(count)]
    said = [process.stdout.readline() for process in started]
    for process in started:
        process.stdin.write("\n")
        process.stdin.flush()
    for process in started:
        _, errors = process.communicate()
        assert process.returncode == 0, errors
    return said


def test_ros_domains_of_processes_differ() -> None:
    domains = [line.split() for line in at_once(3, OWN_DOMAINS)]
    for row in domains:
        assert len(set(row)) == 9, "each is new to its process"
    kept = [set(row[-6:]) for row in domains]
    assert len(set.union(*kept)) == 18, "no other process has one of the newest"


@pytest.mark.scaled
@pytest.mark.skipif(COMPILER is None, reason="no C++ compiler (c++, or what CXX names)")
def test_processes_build_one_kernel_at_once(tmp_path: Path) -> None:
    kernel = tmp_path / "nothing.cu"
    kernel.write_text(KERNEL)
    for k in range(3 if IS_EXHAUSTIVE else 1):
        at_once(2, BUILD, str(kernel), str(tmp_path / f"cache {k}"))
        left = sorted(path.name.split("-")[0] for path in (tmp_path / f"cache {k}").iterdir())
        assert left == ["nothing", "runner"]


def chosen(rows: List[Any]) -> List[Any]:
    return [row.values for row in rows if not row.marks]


ROWS = list(product("abcd", "xyz", (True, False)))


def test_few_rows_have_every_feature() -> None:
    few = chosen(representative(ROWS, lambda row: row))
    assert len(few) == 4
    assert few == [row for row in ROWS if row in few], "they keep their order"
    for place in range(3):
        assert {row[place] for row in few} == {row[place] for row in ROWS}


def test_any_two_values_meet() -> None:
    few = chosen(pairs_of("abcd", "xyz", (True, False)))
    assert {pair for row in few for pair in pairs(*row)} == {pair for row in ROWS for pair in pairs(*row)}
    assert 12 <= len(few) < len(ROWS)


def test_the_first_rows_are_chosen() -> None:
    assert chosen(first_of("abcd", 2)) == [("a",), ("b",)]
    assert len(first_of("abcd", 2)) == (4 if IS_EXHAUSTIVE else 2), "the others follow where everything is tested"
