"""The fuzzer: a short run on every target, the same each time; and that it finds what it is for."""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import random
import signal
import time
from pathlib import Path
from typing import Any, Callable, Dict, Tuple

import pytest
from fuzz import run
from fuzz.engine import Case, Target, WrongError, fuzz
from support import IS_EXHAUSTIVE

#: Inputs tried on each target: some seconds, or a minute.
INPUTS = {"messages": 4000, "recordings": 2000}
INPUTS = INPUTS if IS_EXHAUSTIVE else {name: count // 10 for name, count in INPUTS.items()}


@pytest.mark.scaled
@pytest.mark.parametrize("name", run.TARGETS)
def test_nothing_is_found(name: str, tmp_path: Path) -> None:
    tally = fuzz(run.load(name), 1, 120, tmp_path / "current", INPUTS[name])
    assert not tally.findings, [row.text for row in tally.findings]
    assert tally.inputs == sum(tally.outcomes.values()) == INPUTS[name]
    share = tally.outcomes["accepted"] / tally.inputs
    assert 0.05 < share < 0.95


def wrong() -> Any:
    raise WrongError("an image that is none")


#: Input -> the kind and the text of what is found, and what causes it.
DEFECTS: Dict[int, Tuple[str, str, Callable[[], Any]]] = {
    1: ("exception", "KeyError: 'width'", lambda: {}["width"]),
    2: ("wrong", "WrongError: an image that is none", wrong),
    3: ("hang", "no answer within 1 s", lambda: time.sleep(1000)),
    4: ("exception", "MemoryError", lambda: bytes(300 << 20)),
}


class Broken(Target):
    """A target that has a defect of each kind."""

    name = "broken"
    patience = 1

    def make(self, rng: random.Random) -> Case:
        return Case("bin", bytes([rng.randrange(60)]))

    def run(self, case: Case) -> str:
        if case.data[0] in DEFECTS:
            DEFECTS[case.data[0]][2]()
        return "accepted"


def test_defects_are_found_with_their_inputs(tmp_path: Path) -> None:
    tally = fuzz(Broken, 1, 60, tmp_path / "current", 200)
    found = {row.case.data[0]: (row.what, row.text) for row in tally.findings}
    assert {number: what for number, (what, _) in found.items()} == {k: what for k, (what, *_) in DEFECTS.items()}
    assert all(DEFECTS[number][1] in text for number, (_, text) in found.items())
    assert tally.outcomes["accepted"] > 0.8 * tally.inputs


def test_the_input_of_a_crash_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DEFECTS, 1, ("", "", lambda: (faulthandler.disable(), os.abort())))
    process = multiprocessing.get_context("fork").Process(target=fuzz, args=(Broken, 1, 60, tmp_path / "current"))
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGABRT
    assert (tmp_path / "current").read_bytes() == b"\x01"
