"""What several test modules share."""

from __future__ import annotations

import fcntl
import os
import re
import subprocess
import sys
import time
from collections import deque
from contextlib import suppress
from functools import lru_cache
from itertools import combinations, product
from pathlib import Path
from typing import Any, Callable, Deque, Dict, Iterable, List, Mapping, Optional, Sequence, Set, TypeVar

import cv2
import numpy as np
import pytest
from domains import DomainClaim, ports

from polar_pipeline.live.parameters import PARAMETERS

ROOT = Path(__file__).resolve().parent.parent.parent
#: Seconds that a test waits for another thread or process; only how long a failing test takes.
TIMEOUT = 30.0
#: Whether the nodes of the tests communicate through Fast DDS, as by default.
IS_FAST_DDS = "fastrtps" in os.environ.get("RMW_IMPLEMENTATION", "rmw_fastrtps_cpp")


#: Raw frames of a real IMX250MZR, 8 bit.
FRAMES = ROOT / "frames"
REAL_FRAMES = ("imx250mzr_camera.png", "imx250mzr_fruits.png")


@lru_cache(maxsize=None)
def real_frame(name: str) -> np.ndarray:
    """A raw frame of a real camera, (2048, 2448) uint8, read-only: every test gets the same array."""
    raw = cv2.imread(str(FRAMES / name), cv2.IMREAD_UNCHANGED)
    assert raw is not None, f"{FRAMES / name} cannot be read"
    raw.flags.writeable = False
    return raw


#: Whether whole products of parameters are tested, where otherwise a part is.
MATRIX_VARIABLE = "POLAR_PIPELINE_MATRIX"
IS_EXHAUSTIVE = os.environ.get(MATRIX_VARIABLE) == "1"
Row = TypeVar("Row")
Made = TypeVar("Made")


def examples(count: int) -> int:
    """How many random examples to try: all, or two fifths of them where products of parameters are tested in part."""
    return count if IS_EXHAUSTIVE else count * 2 // 5


def representative(
    rows: Sequence[Row],
    features: Callable[[Row], Iterable[Any]],
    more: Optional[Callable[[Row], Iterable[Any]]] = None,
) -> List[Any]:
    """Parameters for a test: few rows that have every feature, in their order.

    Others follow where more of a product of parameters is tested (`IS_EXHAUSTIVE`), and are marked `exhaustive`.

    Args:
        rows: All parameters.
        features: What is special about a row, such as its values or pairs of them; by place and value.
        more: The features that `exhaustive` rows must have; by default they are all other rows.
    """
    chosen = _cover(rows, features)
    others = set(range(len(rows))) if more is None else _cover(rows, more)
    return [
        pytest.param(*(row if type(row) is tuple else (row,)), marks=() if k in chosen else pytest.mark.exhaustive)
        for k, row in enumerate(rows)
        if k in chosen or (IS_EXHAUSTIVE and k in others)
    ]


def _cover(rows: Sequence[Row], features: Callable[[Row], Iterable[Any]]) -> Set[int]:
    """Places of few rows that have every feature.

    The row with most features that no chosen row has comes next, of several the first.
    """
    featured = [set(enumerate(features(row))) for row in rows]
    missing, chosen = set().union(*featured), set()
    while missing:
        best = max(range(len(rows)), key=lambda index: len(featured[index] & missing))
        chosen.add(best)
        missing -= featured[best]
    return chosen


def pairs_of(*names: Sequence[Any]) -> List[Any]:
    """Parameters for a test: of every combination of values so many that any two, if exhaustive any three, meet."""
    return representative(
        list(product(*names)), lambda row: combinations(row, 2), lambda row: combinations(row, min(3, len(row)))
    )


def first_of(rows: Sequence[Row], count: int = 1) -> List[Any]:
    """Parameters for a test: the first rows, and the others where whole products of parameters are tested."""
    places = iter(range(len(rows)))
    return representative(rows, lambda _: [min(next(places), count - 1)])


#: This process's newest ROS domains. What a test leaves behind has time to end before its domain is used again.
_CLAIMS: Deque[DomainClaim] = deque()
_KEPT_DOMAINS = 6


def own_domain() -> str:
    """A `ROS_DOMAIN_ID` that is new to this process, and that no other process has or uses on this machine."""
    _CLAIMS.append(DomainClaim(_CLAIMS[-1].number if _CLAIMS else os.getpid()))
    _remove_ports(_CLAIMS[-1].number)
    remove_segments()
    if len(_CLAIMS) > _KEPT_DOMAINS:
        _CLAIMS.popleft().close()
    return str(_CLAIMS[-1].number)


def _remove_ports(domain: int) -> None:
    """Remove what killed processes left in shared memory as ports of a domain in which nothing takes part any more."""
    for path in Path("/dev/shm").glob("*port*"):
        found = re.match(r"(sem\.)?fast(dds|rtps)_port(\d+)", path.name)
        if found and int(found[3]) in ports(domain):
            with suppress(OSError):  # of another user, or gone meanwhile
                path.unlink()


def remove_segments(age: float = 10.0) -> None:
    """Remove what killed processes left in shared memory: up to 134 MB each, and who finds no more of it crashes.

    Args:
        age: Seconds that a segment must exist; a younger one may not be locked yet.
    """
    for lock in Path("/dev/shm").glob("fast*_????????????????_el"):
        with suppress(OSError), lock.open() as stream:  # locked, of another user, or gone meanwhile
            if time.time() - os.fstat(stream.fileno()).st_mtime >= age:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)  # Fast DDS has the lock while the process lives
                lock.with_name(lock.name[: -len("_el")]).unlink()
                lock.unlink()


def on_cpu(arguments: Sequence[str]) -> List[str]:
    """A command of `polar-pipeline`; what computes by it does so on the CPU, unless it names a backend."""
    command = list(arguments)
    if command[:1] in (["replay"], ["process"]) and "--backend" not in command:
        command[1:1] = ["--backend", "cpu"]
    return command


def run_python(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run Python, which imports this package. What it writes is kept, unless options of `subprocess.run` differ."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    options["env"] = {**os.environ, "PYTHONPATH": path, **options.get("env", {})}
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **options}
    return subprocess.run([sys.executable, *arguments], check=False, **options)


def changed(values: Mapping[str, object]) -> Dict[str, object]:
    """The parameters that differ from their defaults; sequences as lists."""
    lists = {name: list(value) if isinstance(value, (list, tuple)) else value for name, value in values.items()}
    defaults = {
        name: list(row.default) if isinstance(row.default, tuple) else row.default for name, row in PARAMETERS.items()
    }
    return {name: value for name, value in lists.items() if value != defaults[name]}


def wait_for(condition: Callable[[], Any], what: str) -> Any:
    """The first true value of a condition."""
    end = time.monotonic() + TIMEOUT
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(0.01)
    raise AssertionError(f"waited {TIMEOUT} s in vain for {what}")


def ended_afterwards(make: Callable[..., Made], end: Callable[[Made], object]) -> Iterable[Callable[..., Made]]:
    """Yield `make` to a test for a fixture; afterwards, end everything that the test has made."""
    made: List[Made] = []

    def make_another(*arguments: Any, **options: Any) -> Made:
        made.append(make(*arguments, **options))
        return made[-1]

    yield make_another
    for each in made:
        end(each)
