"""The fuzzer: a short run on every target, the same each time; and that it finds what it is for."""

from __future__ import annotations

import os
import random
import time
from typing import Any

import numpy as np
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


class Broken(Target):
    """A target of which every hundredth input shows a defect."""

    name = "broken"
    patience = 2.0

    def make(self, rng: random.Random) -> Case:
        return Case("bin", bytes([rng.randrange(100)]))

    def run(self, case: Case) -> str:
        if case.data == b"\x07":
            self.fail()
        return "accepted"

    def fail(self) -> None:
        raise NotImplementedError


class Undocumented(Broken):
    def fail(self) -> None:
        raise KeyError("width")


class Wrong(Broken):
    def fail(self) -> None:
        raise WrongError("an image that is none")


class Aborts(Broken):
    def fail(self) -> None:
        os.abort()


class Hangs(Broken):
    def fail(self) -> None:
        time.sleep(1000)


class Grows(Broken):
    def fail(self) -> None:
        np.ones(200 << 20, np.uint8)


@pytest.mark.parametrize(
    ("kind", "what", "text"),
    [
        (Undocumented, "exception", "KeyError: 'width'"),
        (Wrong, "wrong", "WrongError: an image that is none"),
        (Aborts, "crash", "ended by SIGABRT"),
        (Hangs, "hang", "no answer within 2 s"),
        (Grows, "memory", "more memory than allowed"),
    ],
)
def test_a_defect_is_found_with_its_input(kind: Any, what: str, text: str) -> None:
    tally = fuzz(kind, seed=1, seconds=30, inputs=250, max_mb=64)
    (finding,) = tally.findings  # of many, one of a kind
    assert (finding.what, finding.case) == (what, Case("bin", b"\x07"))
    assert text in finding.text
    assert tally.outcomes["accepted"] > 0.9 * tally.inputs
