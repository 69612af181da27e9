"""Tries inputs on a target in a process of its own, and reports what should not happen.

Input number k of a target depends on the seed, the target's name and k alone. So the process that watches can make the
input again that killed the one that tried it.
"""

from __future__ import annotations

import faulthandler
import hashlib
import multiprocessing
import os
import random
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Set, Tuple, Type
from typing import Counter as Counts

#: Megabytes that a target may take beyond what it took before the first input.
MAX_MB = 256
#: Distinct findings, or processes lost, after which a target is given up.
MAX_FINDINGS = 10
#: Seconds between two reports of a worker, that it gets to start, and to end.
_PULSE, _START, _PATIENCE = 0.2, 120.0, 10.0
#: Inputs after which memory is looked at; those that take so many seconds are looked at one by one.
_OFTEN, _SLOW = 500, 0.005
#: Bytes of address space beyond the limit, for the stacks and heaps of threads, which are reserved but not taken.
_RESERVED = 4 << 30
_STDERR_BYTES = 1 << 20


class Case(NamedTuple):
    """One input.

    Attributes:
        kind: What it is, which is the suffix of its file.
        data: Its bytes.
    """

    kind: str
    data: bytes


class WrongError(Exception):
    """The package took what it should refuse, or made something else of it than it should."""


class Target:
    """What inputs are tried on.

    Args:
        folder: For files; empty at the start, and the target's alone.
    """

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
        """Try an input.

        Returns:
            `accepted`, or `refused: ` and the documented error.

        Raises:
            WrongError: The package's answer is wrong.
            Exception: Any other is undocumented.
        """
        raise NotImplementedError


class Finding(NamedTuple):
    """What should not happen.

    Attributes:
        what: `crash`, `hang`, `exception`, `wrong` or `memory`.
        text: What happened, for people.
        index: Number of the input; it may be one of many where memory grew slowly.
        case: The input.
    """

    what: str
    text: str
    index: int
    case: Case


class Tally(NamedTuple):
    """What a run on one target came to.

    Attributes:
        inputs: Tried.
        outcomes: What `Target.run` returned -> how often; those of the last moments before a crash are lost.
        seconds: That the inputs took.
        peak_mb: Most memory of a worker in megabytes.
        slowest_s: Seconds of the slowest input.
        findings: One of each kind.
    """

    inputs: int
    outcomes: Dict[str, int]
    seconds: float
    peak_mb: float
    slowest_s: float
    findings: List[Finding]


def rng_of(seed: int, name: str, index: int) -> random.Random:
    """Where the choices of an input come from."""
    return random.Random(f"{seed}/{name}/{index}")


def peak_bytes() -> int:
    """Most memory that this process had since it started."""
    try:
        status = Path("/proc/self/status").read_bytes()
        return int(status[status.index(b"VmHWM:") + 6 :].split(None, 1)[0]) << 10
    except (OSError, ValueError):  # no Linux
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def scratch() -> Optional[str]:
    """Where to make folders: in memory if possible."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def is_out_of_memory(err: Optional[BaseException]) -> bool:
    """Whether an error, or what caused it, is that there is no memory."""
    while err is not None:
        if "nsufficient memory" in str(err) or "annot allocate memory" in str(err):
            return True
        if isinstance(err, MemoryError):
            rows = traceback.extract_tb(err.__traceback__)
            # Python up to 3.8 says so of a text that is nested too deeply for its parser
            return not (rows and Path(rows[-1].filename).name == "ast.py")
        err = err.__cause__ or err.__context__
    return False


class OutOfMemoryError(Exception):
    """A documented error hides that memory ran out."""


def refused(err: Exception, cause: str = "") -> str:
    """The outcome of an input that is refused with a documented error."""
    if is_out_of_memory(err):
        raise OutOfMemoryError(str(err)) from err
    return f"refused: {cause or type(err).__name__}"


# --------------------------------------------------------------------------------------------------------------- worker


class _Job(NamedTuple):
    kind: Type[Target]
    seed: int
    first: int
    count: int
    seconds: float
    max_bytes: int
    folder: str


def _work(job: _Job, pipe: Any, current: Any) -> None:
    log = Path(job.folder, "stderr").open("ab")  # noqa: SIM115 - to the end of the process
    os.dup2(log.fileno(), 2)
    faulthandler.enable(log)
    faulthandler.register(signal.SIGUSR1, log)
    folder = Path(job.folder, "files")
    folder.mkdir()
    target = job.kind(folder)
    for index in range(3):  # what is loaded or compiled at the first use is no input's memory
        with suppress(BaseException):
            target.run(target.make(rng_of(0, target.name, index)))
    limit = peak_bytes() + job.max_bytes
    if sys.platform == "linux":
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        room = pages * resource.getpagesize() + job.max_bytes + _RESERVED
        resource.setrlimit(resource.RLIMIT_AS, (room, resource.RLIM_INFINITY))
    outcomes: Counts[str] = Counter()
    pipe.send(("ready",))
    start = reported = time.monotonic()
    slowest, end = 0.0, job.first + job.count
    told: Set[str] = set()
    for index in range(job.first, job.first + job.count):
        current.value = index
        began = time.monotonic()
        if began - reported > _PULSE:
            pipe.send(("tally", outcomes, began - start, peak_bytes(), slowest))
            outcomes, reported = Counter(), began
            if began - start > job.seconds:
                end = index
                break
        case = target.make(rng_of(job.seed, target.name, index))
        found: Optional[Tuple[str, str]] = None
        began = time.monotonic()
        try:
            outcomes[target.run(case)] += 1
        except WrongError as err:
            found = "wrong", _told(err)
        except (MemoryError, OutOfMemoryError) as err:
            found = "memory", _told(err)
        except BaseException as err:  # noqa: BLE001 - SystemExit is one too
            found = "memory" if is_out_of_memory(err) else "exception", _told(err)
        took = time.monotonic() - began
        slowest = max(slowest, took)
        if found is None and (took > _SLOW or index % _OFTEN == 0):
            peak = peak_bytes()
            if peak > limit:
                # no figure on the first line, which tells kinds of findings apart: workers start with more or less
                text = (
                    f"more memory than allowed\n{peak >> 20} of {limit >> 20} MB after {index - job.first + 1} inputs"
                )
                found = "memory", text
            if os.fstat(2).st_size > _STDERR_BYTES:
                os.ftruncate(2, 0)
        if found is not None:
            if _key(*found) not in told:
                told.add(_key(*found))
                pipe.send(("finding", index, *found))
            if found[0] == "memory":  # the peak stays; a new process starts low
                end = index + 1
                break
    pipe.send(("tally", outcomes, time.monotonic() - start, peak_bytes(), slowest))
    pipe.send(("end", end))


def _key(what: str, text: str) -> str:
    """What findings of the same kind have in common: what they are, how they begin, and where."""
    first, *more = text.splitlines()
    return f"{what}: {first[:60]} {more[-1] if more and what != 'memory' else ''}"


def _told(err: BaseException) -> str:
    """An error, and where in this package it was raised."""
    rows = traceback.extract_tb(err.__traceback__)
    ours = [row for row in rows if "polar_pipeline" in row.filename] or rows
    name = err.__class__.__name__
    return (
        f"{name}: {str(err)[:1000]}\nat {ours[-1].filename}:{ours[-1].lineno} ({rows[-1].filename}:{rows[-1].lineno})"
    )


# -------------------------------------------------------------------------------------------------------------- watcher


def fuzz(kind: Type[Target], seed: int, seconds: float, inputs: int = sys.maxsize, max_mb: int = MAX_MB) -> Tally:
    """Try inputs on a target.

    Args:
        kind: The target; its module must have a name to import it by.
        seed: Of the inputs.
        seconds: To try inputs for, without those to start.
        inputs: Most inputs.
        max_mb: Megabytes that the target may take beyond what it took before the first input.
    """
    watcher = _Watcher(kind, seed, max_mb << 20)
    spent, index = 0.0, 0
    while spent < seconds and index < inputs and watcher.failures < MAX_FINDINGS > len(watcher.findings):
        index, took = watcher.run(index, inputs - index, seconds - spent)
        spent += took
    peak_mb, findings = watcher.peak / (1 << 20), list(watcher.findings.values())
    return Tally(index, dict(watcher.outcomes), spent, peak_mb, watcher.slowest, findings)


class _Watcher:
    """Has workers try inputs, one after the other, and takes down what comes of it."""

    def __init__(self, kind: Type[Target], seed: int, max_bytes: int) -> None:
        self.outcomes: Counts[str] = Counter()
        self.findings: Dict[str, Finding] = {}
        self.failures = 0
        self.peak, self.slowest = 0, 0.0
        self._kind, self._seed, self._max_bytes = kind, seed, max_bytes

    def run(self, first: int, count: int, seconds: float) -> Tuple[int, float]:
        """One worker, from an input on: the number of the next input, and the seconds that these took."""
        context = multiprocessing.get_context("spawn")
        with tempfile.TemporaryDirectory(dir=scratch()) as folder:
            job = _Job(self._kind, self._seed, first, count, seconds, self._max_bytes, folder)
            ours, theirs = context.Pipe(duplex=False)
            current = context.RawValue("Q", first)
            process = context.Process(target=_work, args=(job, theirs, current), daemon=True)
            process.start()
            theirs.close()
            try:
                return self._follow(process, ours, current, folder)
            finally:
                process.kill()
                process.join()
                ours.close()

    def _follow(self, process: Any, pipe: Any, current: Any, folder: str) -> Tuple[int, float]:
        before, patience, changed, took = -1, _START, time.monotonic(), 0.0
        while True:
            try:
                row: Tuple[Any, ...] = pipe.recv() if pipe.poll(_PULSE) else ("nothing",)
            except EOFError:
                process.join()
                self._failed("crash", f"{_ending(process.exitcode)}\n{_last_words(folder)}", current.value, patience)
                return current.value + 1, took
            what, *values = row
            if what == "ready":
                patience = self._kind.patience
            elif what == "tally":
                outcomes, took, peak, slowest = values
                self.outcomes.update(outcomes)
                self.peak, self.slowest = max(self.peak, peak), max(self.slowest, slowest)
            elif what == "finding":
                self._found(*values)
            elif what == "end":
                process.join(_PATIENCE)
                return values[0], took
            if what != "nothing" or current.value != before:
                before, changed = current.value, time.monotonic()
            elif time.monotonic() - changed > patience:
                os.kill(process.pid, signal.SIGUSR1)  # says where it hangs
                time.sleep(1.0)
                text = f"no answer within {patience:g} s\n{_last_words(folder)}"
                self._failed("hang", text, current.value, patience)
                return current.value + 1, took + patience

    def _failed(self, what: str, text: str, index: int, patience: float) -> None:
        if patience == _START:
            raise RuntimeError(f"{self._kind.name} does not start: {text}")
        self.failures += 1
        self._found(index, what, text)

    def _found(self, index: int, what: str, text: str) -> None:
        key = _key(what, text)
        if key not in self.findings:
            with tempfile.TemporaryDirectory(dir=scratch()) as folder:
                case = self._kind(Path(folder)).make(rng_of(self._seed, self._kind.name, index))
            self.findings[key] = Finding(what, text, index, case)


def _ending(code: int) -> str:
    return f"ended by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"


def _last_words(folder: str) -> str:
    """The innermost frame of this package in what a process said last."""
    try:
        text = Path(folder, "stderr").read_bytes()[-8000:].decode(errors="replace")
    except OSError:
        return ""
    rows = [row.strip() for row in text.splitlines() if row.strip().startswith("File ")]
    ours = [row for row in rows if "polar_pipeline" in row]
    return (ours or rows or text.splitlines()[-1:] or [""])[0]


# --------------------------------------------------------------------------------------------------------------- output


def save(finding: Finding, name: str, folder: Path) -> Path:
    """The input of a finding as a file."""
    folder.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256(finding.case.data).hexdigest()[:8]
    path = folder / f"{name.replace(' ', '_')}-{finding.what}-{digest}.{finding.case.kind}"
    path.write_bytes(finding.case.data)
    return path


def line(name: str, tally: Tally) -> str:
    """A tally on one line."""
    taken = tally.outcomes.get("accepted", 0)
    causes = {key[9:]: count for key, count in tally.outcomes.items() if key.startswith("refused: ")}
    listed = ", ".join(f"{cause} {count}" for cause, count in sorted(causes.items(), key=lambda row: -row[1]))
    rate = tally.inputs / tally.seconds if tally.seconds else 0.0
    speed = f"{rate:.0f}/s, {tally.peak_mb:.0f} MB, slowest {tally.slowest_s:.2f} s"
    refusals = f"{sum(causes.values())}{f' ({listed})' if listed else ''}"
    return (
        f"{name}: {tally.inputs} inputs, {speed}; {taken} accepted, {refusals} refused, {len(tally.findings)} findings"
    )
