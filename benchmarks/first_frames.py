"""The first frames of fresh processes, whose folder of compiled kernels is empty or not; part of `gpu.py`.

Seconds from the call of `Pipeline` to the first result, with 8-bit frames of noise. The start of CUDA does not count:
it takes the same time in any program.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any, Dict, List, Mapping, Sequence, Tuple

_ROUNDS = 3
#: (height, width) of the frames of a camera whose region grows from frame to frame.
SIZES = tuple((1200 + 8 * k, 1600 + 8 * k) for k in range(75))


def _run(options: Mapping[str, Any], sizes: Sequence[Tuple[int, int]], folder: str) -> List[float]:
    """Compute a frame of each size by one pipeline in a fresh process, and return the seconds that each has taken."""
    task = json.dumps({"options": options, "sizes": sizes})
    environment = {**os.environ, "CUPY_CACHE_DIR": folder}
    child = subprocess.run(
        [sys.executable, __file__, task], env=environment, check=True, stdout=subprocess.PIPE, text=True
    )
    seconds: List[float] = json.loads(child.stdout)
    return seconds


def first_frames(options: Mapping[str, Any], shape: Tuple[int, int]) -> Dict[str, Any]:
    """Measure the first frame of (height, width), and a frame of each of `SIZES`, by a pipeline of some options."""
    times: Dict[str, List[float]] = {"cold_s": [], "warm_s": []}
    for _ in range(_ROUNDS):
        with tempfile.TemporaryDirectory() as folder:
            times["cold_s"] += _run(options, [shape], folder)
            times["warm_s"] += _run(options, [shape], folder)
    with tempfile.TemporaryDirectory() as folder:
        of_sizes = _run(options, SIZES, folder)
    report: Dict[str, Any] = {name: round(statistics.median(seconds), 3) for name, seconds in times.items()}
    report["sizes"] = {"count": len(SIZES), "cold_s": round(sum(of_sizes), 1), "slowest_s": round(max(of_sizes), 2)}
    return report


def main() -> None:
    """Compute frames as the first argument says, in JSON, and print the seconds of each."""
    import cupy  # not above: `gpu.py` imports this module before it knows that there is CuPy
    import numpy as np

    from polar_pipeline import Pipeline

    task = json.loads(sys.argv[1])
    frames = [np.random.default_rng(0).integers(13, 204, size, np.uint8) for size in task["sizes"]]
    cupy.zeros(1)
    seconds, begin = [], time.perf_counter()
    pipeline = Pipeline(**task["options"])
    for frame in frames:
        pipeline(frame)
        end = time.perf_counter()
        seconds.append(end - begin)
        begin = end
    print(json.dumps(seconds))


if __name__ == "__main__":
    main()
