"""Tries inputs on a target in a process of its own, and reports what should not happen.

Input number k of a target depends on the seed, the target's name and k alone. So the process that watches can make the
input again that killed the one that tried it.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import random
import resource
import signal
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path
from typing import Any, Dict, NamedTuple, Tuple, Type

#: Megabytes that an input may take: `RLIMIT_DATA` of the process, as the commands have one.
MAX_MB = 256
#: Distinct findings after which a target is given up.
MAX_FINDINGS = 10
#: Seconds that a worker gets to start.
_START = 120.0


class Case(NamedTuple):
    """One input: its kind, which is the suffix of its file, and its bytes."""

    kind: str
    data: bytes


class WrongError(Exception):
    """The package took what it should refuse, or made something else of it than it should."""


class Target:
    """What inputs are tried on, with a folder of its own for files."""

    #: Name on the command line and of the folder in the corpus.
    name = ""
    #: Seconds that one input may take.
    patience = 20.0

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def make(self, rng: random.Random) -> Case:
        """An input; it depends on `rng` alone."""
        raise NotImplementedError

    def run(self, case: Case) -> str:
        """Try an input; returns `accepted`, or `refused: ` and the documented error. Every exception is a finding."""
        raise NotImplementedError


class Finding(NamedTuple):
    """What should not happen: `crash`, `hang`, `exception` or `wrong`, as text, with its input."""

    what: str
    text: str
    index: int
    case: Case


class Tally(NamedTuple):
    """The number of inputs, how often each outcome of `Target.run` came, and one finding of each kind."""

    inputs: int
    outcomes: Dict[str, int]
    findings: Tuple[Finding, ...]


def rng_of(seed: int, name: str, index: int) -> random.Random:
    """Where the choices of an input come from."""
    return random.Random(f"{seed}/{name}/{index}")


def refused(err: Exception, cause: str = "") -> str:
    """The outcome of an input that is refused with a documented error."""
    return f"refused: {cause or type(err).__name__}"


def _work(kind: Type[Target], seed: int, first: int, folder: str, pipe: Any) -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # what OpenCV says of damaged pictures
    target = kind(Path(folder))
    for index in range(3):  # what is loaded at the first use is not an input's memory
        _tried(target, target.make(rng_of(0, target.name, index)))
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    taken = int(status[status.index("VmData:") + 7 :].split(None, 1)[0]) << 10
    resource.setrlimit(resource.RLIMIT_DATA, (taken + (MAX_MB << 20), resource.RLIM_INFINITY))
    pipe.send(("", ""))
    for index in itertools.count(first):
        pipe.send(_tried(target, target.make(rng_of(seed, target.name, index))))


def _tried(target: Target, case: Case) -> Tuple[str, str]:
    """What came of an input: "" and the outcome, or the kind of a finding and its text."""
    try:
        return "", target.run(case)
    except BaseException as err:  # noqa: BLE001 - SystemExit is one too
        rows = traceback.extract_tb(err.__traceback__)
        ours = [row for row in rows if "polar_pipeline" in row.filename] or rows
        text = f"{type(err).__name__}: {str(err)[:1000]}\nat {ours[-1].filename}:{ours[-1].lineno}"
        return "wrong" if isinstance(err, WrongError) else "exception", text


def fuzz(kind: Type[Target], seed: int, seconds: float, inputs: int = 1 << 60) -> Tally:
    """Try at most so many inputs on a target for some seconds, without the time to start."""
    outcomes: Counter[str] = Counter()
    findings: Dict[str, Finding] = {}
    context = multiprocessing.get_context("spawn")
    index, left = 0, seconds
    while index < inputs and left > 0 and len(findings) < MAX_FINDINGS:
        with tempfile.TemporaryDirectory() as folder:
            ours, theirs = context.Pipe(duplex=False)
            process = context.Process(target=_work, args=(kind, seed, index, folder, theirs), daemon=True)
            process.start()
            theirs.close()
            what, text = _answer(ours, process, _START)
            if what:
                raise RuntimeError(f"{kind.name} does not start: {text}")
            while index < inputs and left > 0 and len(findings) < MAX_FINDINGS and what not in ("crash", "hang"):
                began = time.monotonic()
                what, text = _answer(ours, process, kind.patience)
                left -= time.monotonic() - began
                if not what:
                    outcomes[text] += 1
                else:
                    key = f"{what}: {text[:28]} {text.splitlines()[-1]}"
                    with tempfile.TemporaryDirectory() as other:
                        case = kind(Path(other)).make(rng_of(seed, kind.name, index))
                    findings.setdefault(key, Finding(what, text, index, case))
                index += 1
            process.kill()
            process.join()
    return Tally(index, dict(outcomes), tuple(findings.values()))


def _answer(pipe: Any, process: Any, patience: float) -> Tuple[str, str]:
    """What a worker says next of an input."""
    try:
        if not pipe.poll(patience):
            return "hang", f"no answer within {patience:g} s"
        answer: Tuple[str, str] = pipe.recv()
        return answer
    except EOFError:
        process.join()
        code = process.exitcode
        return "crash", f"ended by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
