"""Memory that is kept after it was freed."""

from __future__ import annotations

import sys

import pytest
from support import run_python


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="a setting of glibc")
def test_freed_memory_is_kept() -> None:
    """Buffers cost no page faults from the second round on, also where glibc would have its heap shrink in between."""
    code = """
import ctypes
import resource
from polar_pipeline._util.malloc import keep_freed_memory
if not hasattr(ctypes.CDLL(None), "mallopt"):
    raise SystemExit("no glibc")
keep_freed_memory()
for k in range(5):
    buffers = [bytearray(24 << 20) for _ in range(3)]
    for buffer in buffers:
        buffer[::4096] = bytes(6 << 10)
    del buffers, buffer
    if k == 0:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
    run = run_python("-c", code)
    if "no glibc" in run.stderr:
        pytest.skip("not glibc")
    assert run.returncode == 0, run.stderr
    assert int(run.stdout) < 1000, "four rounds of buffers returned and mapped again are 73728 pages"
