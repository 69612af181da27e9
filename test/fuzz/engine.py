"""Tries inputs on a target until one shows a defect: an exception, a wrong answer, a hang, or the end of the process.

Input number k of a target depends on the seed, the target's name and k alone. An input is on the disk while it is
tried, and stays there if it shows a defect.
"""

from __future__ import annotations

import faulthandler
import random
import resource
import signal
import tempfile
import time
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Dict, Iterator, NamedTuple, NoReturn, Type

#: Megabytes that an input may take: `RLIMIT_DATA` of the process, as the commands have one.
MAX_MB = 256


class Case(NamedTuple):
    """One input: its kind, which is the suffix of its file, and its bytes."""

    kind: str
    data: bytes


class WrongError(Exception):
    """The package took what it should refuse, or made something else of it than it should."""


class HangError(BaseException):
    """An input takes too long."""


class Target:
    """What inputs are tried on, with a folder of its own for files."""

    #: Name on the command line and of the folder in the corpus.
    name = ""
    #: Seconds that one input may take.
    patience = 20

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def make(self, rng: random.Random) -> Case:
        """An input; it depends on `rng` alone."""
        raise NotImplementedError

    def run(self, case: Case) -> str:
        """Try an input; returns `accepted`, or `refused: ` and the documented error. Every exception is a defect."""
        raise NotImplementedError


def refused(err: Exception, cause: str = "") -> str:
    """The outcome of an input that is refused with a documented error."""
    return f"refused: {cause or type(err).__name__}"


def fuzz(kind: Type[Target], seed: int, seconds: float, kept: Path, inputs: int = 1 << 60) -> Dict[str, int]:
    """Try at most so many inputs on a target for some seconds; the folder `kept` has the one that is tried.

    Returns:
        How often each outcome of `Target.run` came.

    Raises:
        BaseException: What an input raised.
    """
    outcomes: Counter[str] = Counter()
    end = time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as folder:
        target = kind(Path(folder))
        target.run(target.make(random.Random(0)))  # what is loaded at the first use is not an input's memory
        with _limits():
            for index in range(inputs):
                case = target.make(random.Random(f"{seed}/{kind.name}/{index}"))
                current = kept / f"{kind.name}-{seed}-{index}.{case.kind}"
                current.write_bytes(case.data)
                faulthandler.dump_traceback_later(3 * kind.patience, exit=True)  # where no alarm interrupts a library
                signal.alarm(kind.patience)
                outcomes[target.run(case)] += 1
                signal.alarm(0)
                current.unlink()
                if time.monotonic() > end:
                    break
    return dict(outcomes)


@contextmanager
def _limits() -> Iterator[None]:
    """Limit this process's memory, and let its alarm raise."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    taken = int(status[status.index("VmData:") + 7 :].split(None, 1)[0]) << 10
    handler, limits = signal.signal(signal.SIGALRM, _hangs), resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (taken + (MAX_MB << 20), limits[1]))
    try:
        yield
    finally:
        signal.alarm(0)
        faulthandler.cancel_dump_traceback_later()
        resource.setrlimit(resource.RLIMIT_DATA, limits)
        signal.signal(signal.SIGALRM, handler)


def _hangs(*_: Any) -> NoReturn:
    raise HangError
