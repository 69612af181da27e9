"""Tries inputs on a target, and reports what should not happen.

Input number k of a target depends on the seed, the target's name and k alone. An input is on the disk while it is
tried, so that the one that ends the process stays there.
"""

from __future__ import annotations

import faulthandler
import random
import resource
import signal
import tempfile
import time
import traceback
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Dict, Iterator, NamedTuple, NoReturn, Tuple, Type

#: Megabytes that an input may take: `RLIMIT_DATA` of the process, as the commands have one.
MAX_MB = 256
#: Distinct findings after which a target is given up.
MAX_FINDINGS = 10


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
        """Try an input; returns `accepted`, or `refused: ` and the documented error. Every exception is a finding."""
        raise NotImplementedError


class Finding(NamedTuple):
    """What should not happen: `hang`, `exception` or `wrong`, as text, with its input."""

    what: str
    text: str
    index: int
    case: Case


class Tally(NamedTuple):
    """The number of inputs, how often each outcome of `Target.run` came, and one finding of each kind."""

    inputs: int
    outcomes: Dict[str, int]
    findings: Tuple[Finding, ...]


def refused(err: Exception, cause: str = "") -> str:
    """The outcome of an input that is refused with a documented error."""
    return f"refused: {cause or type(err).__name__}"


def fuzz(kind: Type[Target], seed: int, seconds: float, current: Path, inputs: int = 1 << 60) -> Tally:
    """Try at most so many inputs on a target for some seconds; `current` is the file of the one that is tried."""
    outcomes: Counter[str] = Counter()
    findings: Dict[str, Finding] = {}
    index, end = 0, time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as folder:
        target = kind(Path(folder))
        target.run(target.make(random.Random(0)))  # what is loaded at the first use is not an input's memory
        with _limits():
            while index < inputs and time.monotonic() < end and len(findings) < MAX_FINDINGS:
                case = target.make(random.Random(f"{seed}/{kind.name}/{index}"))
                current.write_bytes(case.data)
                what, text = _tried(target, case)
                if what:
                    findings.setdefault(f"{text[:28]} {text.splitlines()[-1]}", Finding(what, text, index, case))
                else:
                    outcomes[text] += 1
                index += 1
    current.unlink()
    return Tally(index, dict(outcomes), tuple(findings.values()))


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
        resource.setrlimit(resource.RLIMIT_DATA, limits)
        signal.signal(signal.SIGALRM, handler)


def _hangs(*_: Any) -> NoReturn:
    raise HangError


def _tried(target: Target, case: Case) -> Tuple[str, str]:
    """What came of an input: "" and the outcome, or the kind of a finding and its text."""
    faulthandler.dump_traceback_later(3 * target.patience, exit=True)  # where the alarm does not interrupt a library
    signal.alarm(target.patience)
    try:
        return "", target.run(case)
    except HangError:
        return "hang", f"no answer within {target.patience} s"
    except BaseException as err:  # noqa: BLE001 - SystemExit is one too
        rows = traceback.extract_tb(err.__traceback__)
        ours = [row for row in rows if "polar_pipeline" in row.filename] or rows
        text = f"{type(err).__name__}: {str(err)[:1000]}\nat {ours[-1].filename}:{ours[-1].lineno}"
        return "wrong" if isinstance(err, WrongError) else "exception", text
    finally:
        signal.alarm(0)
        faulthandler.cancel_dump_traceback_later()
