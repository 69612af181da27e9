"""The fuzzer: a short run on every target, the same each time; and that it finds what it is for."""

from __future__ import annotations

import os
import random
import time
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
def test_nothing_is_found(name: str) -> None:
    tally = fuzz(run.load(name), seed=1, seconds=120, inputs=INPUTS[name])
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
    3: ("crash", "ended by SIGABRT", os.abort),
    4: ("hang", "no answer within 1 s", lambda: time.sleep(1000)),
    5: ("exception", "MemoryError", lambda: bytes(300 << 20)),
}


class Broken(Target):
    """A target that has a defect of each kind."""

    name = "broken"
    patience = 1.0

    def make(self, rng: random.Random) -> Case:
        return Case("bin", bytes([rng.randrange(60)]))

    def run(self, case: Case) -> str:
        if case.data[0] in DEFECTS:
            DEFECTS[case.data[0]][2]()
        return "accepted"


def test_defects_are_found_with_their_inputs() -> None:
    tally = fuzz(Broken, seed=1, seconds=60, inputs=150)
    assert {row.case.data[0]: row.what for row in tally.findings} == {
        number: what for number, (what, _, _) in DEFECTS.items()
    }
    assert all(DEFECTS[row.case.data[0]][1] in row.text for row in tally.findings)
    assert tally.outcomes["accepted"] > 0.8 * tally.inputs
