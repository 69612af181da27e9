"""Fuzzers for messages and recordings: a corpus of inputs with known outcomes, and random inputs.

`make test` tries the same random inputs in every run; `make fuzz SECONDS=60 SEED=1` tries others. Input number k
depends on the seed and k alone. It is in a file while it is tried, and stays there if it shows a defect: an exception,
a wrong answer, a hang, or the end of the process.
"""

from __future__ import annotations

import json
import os
import random
import resource
import time
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Dict, Iterator

import pytest
from fuzz.cases import Case
from fuzz.messages import Messages
from fuzz.recordings import CORPUS, Recordings
from support import IS_EXHAUSTIVE, ROOT

TARGETS: Dict[str, Any] = {"messages": Messages, "recordings": Recordings}
#: Inputs of a target where no time is given: some seconds, or a minute.
INPUTS = 8000 if IS_EXHAUSTIVE else 800
#: Seconds for each target, and the seed of its inputs.
SECONDS, SEED = float(os.environ.get("FUZZ_SECONDS", "0")) / len(TARGETS), os.environ.get("FUZZ_SEED", "1")
#: Where the input of a defect stays.
FINDINGS = ROOT / "build" / "fuzz"
#: Megabytes that an input may take: `RLIMIT_DATA` of the process, as the commands have one.
MAX_MB = 256
#: Target -> file of the corpus -> what becomes of it.
EXPECTED: Dict[str, Dict[str, str]] = {
    name: json.loads((CORPUS / name / "expected.json").read_text(encoding="utf-8")) for name in TARGETS
}


@contextmanager
def limited_memory() -> Iterator[None]:
    """Limit the memory of this process to `MAX_MB` more than it has."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    taken = int(status[status.index("VmData:") + 7 :].split(None, 1)[0]) << 10
    limits = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (taken + (MAX_MB << 20), limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, limits)


def fuzz(target: Any, name: str, findings: Path, inputs: int, seconds: float) -> Dict[str, int]:
    """Try so many random inputs, or as many as fit into a time; gives how often each outcome came."""
    findings.mkdir(parents=True, exist_ok=True)
    outcomes: Dict[str, int] = Counter()

    def attempt(index: int) -> None:
        case = target.make(random.Random(f"{SEED}/{name}/{index}"))
        path = findings / f"{name}-{SEED}-{index}.{case.kind}"
        path.write_bytes(case.data)
        outcomes[target.run(case)] += 1
        path.unlink()

    attempt(0)  # what is loaded at the first use is not an input's memory
    index, end = 1, time.monotonic() + seconds
    with limited_memory():
        while time.monotonic() < end if seconds else index < inputs:
            attempt(index)
            index += 1
    return outcomes


@pytest.mark.scaled
@pytest.mark.timeout(SECONDS + 120)
@pytest.mark.parametrize("name", TARGETS)
def test_random_inputs(name: str, tmp_path: Path) -> None:
    print(f"seed {SEED}; the input of a defect stays in {FINDINGS}", flush=True)
    outcomes = fuzz(TARGETS[name](tmp_path), name, FINDINGS, INPUTS, SECONDS)
    print(f"{name}: {sum(outcomes.values())} inputs: {dict(outcomes)}")
    assert 0.05 < outcomes["accepted"] / sum(outcomes.values()) < 0.95


class Broken:
    """A target of which one input shows a defect."""

    def __init__(self, defect: Any) -> None:
        self._defect = defect

    def make(self, rng: random.Random) -> Case:
        return Case("bin", bytes([rng.randrange(60)]))

    def run(self, case: Case) -> str:
        return str(self._defect()) if case.data == b"\1" else "accepted"


@pytest.mark.parametrize(
    ("error", "defect"), [(KeyError, lambda: {}["width"]), (MemoryError, lambda: bytes(300 << 20))]
)
def test_the_input_of_a_defect_stays(error: Any, defect: Any, tmp_path: Path) -> None:
    with pytest.raises(error):
        fuzz(Broken(defect), "broken", tmp_path, 1000, 0)
    (path,) = tmp_path.iterdir()
    assert path.read_bytes() == b"\1"


# --------------------------------------------------------------------------------------------------------------- corpus


@pytest.fixture(scope="module", name="targets")
def fixture_targets(tmp_path_factory: pytest.TempPathFactory) -> Dict[str, Any]:
    """Each target, made once."""
    return {name: kind(tmp_path_factory.mktemp(name)) for name, kind in TARGETS.items()}


@pytest.mark.timeout(60)
@pytest.mark.parametrize(("name", "file"), [(name, file) for name, files in EXPECTED.items() for file in files])
def test_an_input_of_the_corpus_comes_to_what_is_written_down(name: str, file: str, targets: Dict[str, Any]) -> None:
    path = CORPUS / name / file
    with limited_memory():
        assert targets[name].run(Case(path.suffix[1:], path.read_bytes())) == EXPECTED[name][file]


def test_the_corpus_is_complete_and_small() -> None:
    paths = [path for name in TARGETS for path in (CORPUS / name).glob("*") if path.name != "expected.json"]
    assert {path.name for path in paths} == {file for files in EXPECTED.values() for file in files}
    assert len(paths) <= 60
    assert sum(path.stat().st_size for path in paths) < 100_000
