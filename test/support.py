"""What several test modules share."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any, Callable, List, Sequence

ROOT = Path(__file__).resolve().parent.parent
#: Seconds that a test waits for another thread or process; only how long a failing test takes.
TIMEOUT = 30.0


def data_folder() -> Path:
    """Where real frames lie, if anywhere."""
    return Path(os.environ.get("POLAR_DATA") or ROOT.parent / "shared" / "data")


def on_cpu(arguments: Sequence[str]) -> List[str]:
    """A command of `polar-pipeline`; what computes by it does so on the CPU, unless it names a backend."""
    command = list(arguments)
    if command[:1] in (["replay"], ["process"]) and "--backend" not in command:
        command[1:1] = ["--backend", "cpu"]
    return command


def wait_for(condition: Callable[[], Any], what: str) -> Any:
    """The first true value of a condition."""
    end = time.monotonic() + TIMEOUT
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(0.01)
    raise AssertionError(f"waited {TIMEOUT} s in vain for {what}")
