"""A limit on the process's memory: frames that do not fit are refused as a whole, and the next ones work."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc

import numpy as np
import pytest

from polar_pipeline import Pipeline, backend

CODE = """
import resource, sys
import numpy as np
from polar_pipeline import Pipeline

MB = 1 << 20


def limit(spare):
    pages = int(open("/proc/self/statm").read().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + spare, resource.RLIM_INFINITY))


pipeline = Pipeline("IMX250MYR", resolution="full", backend="cpu", threads=2, products="intensity")
small, large = np.full((48, 64), 100, np.uint8), np.full((600, 1000), 100, np.uint8)
pipeline(small)
limit(20 * MB)
for _ in range(20):
    try:
        pipeline(large)
    except MemoryError as error:
        print(error)
    else:
        sys.exit("20 MB are not enough")
pipeline(small)  # as before
limit(300 * MB)
assert pipeline(large)["intensity"].shape == (*large.shape, 3)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="a limit that Linux keeps")
def test_a_frame_that_does_not_fit_is_refused_as_a_whole() -> None:
    """NumPy and OpenCV crash where some of their allocations fail: seen in one of some hundred frames."""
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    assert len(said) == 20
    assert all(line.startswith("a frame of this size may take ") for line in said)


def test_frames_of_many_sizes_and_a_closed_pipeline_keep_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "_KEPT_BYTES", 40_000_000)
    pipeline = Pipeline(backend="cpu", products="intensity,stokes,ssim", resolution="full", ssim_mode="temporal")
    pipeline(np.full((400, 600), 99, np.uint8))
    tracemalloc.start()
    try:
        for k in range(40):
            pipeline(np.full((400, 600 - 2 * k), 99, np.uint8))
        used = tracemalloc.get_traced_memory()[0]
        assert 400 * 500 * 13 < used < 50_000_000, "13 bytes a pixel of products, and what SSIM compares"
        pipeline.close()
        assert tracemalloc.get_traced_memory()[0] < 400 * 500
    finally:
        tracemalloc.stop()
