"""The fuzzer: a short run on every target, the same each time; and that it finds what it is for."""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import random
import signal
import time
from pathlib import Path
from typing import Any, Callable, Dict

import pytest
from fuzz import run
from fuzz.engine import Case, HangError, Target, fuzz
from support import IS_EXHAUSTIVE

#: Inputs tried on each target: some seconds, or a minute.
INPUTS = {"messages": 4000, "recordings": 2000}
INPUTS = INPUTS if IS_EXHAUSTIVE else {name: count // 10 for name, count in INPUTS.items()}


@pytest.mark.scaled
@pytest.mark.parametrize("name", run.TARGETS)
def test_nothing_is_found(name: str, tmp_path: Path) -> None:
    outcomes = fuzz(run.load(name), 1, 120, tmp_path, INPUTS[name])
    assert sum(outcomes.values()) == INPUTS[name]
    assert 0.05 < outcomes["accepted"] / INPUTS[name] < 0.95


class Broken(Target):
    """A target of which an input shows a defect."""

    name = "broken"
    patience = 1
    defect: Callable[[], Any]

    def make(self, rng: random.Random) -> Case:
        return Case("bin", bytes([rng.randrange(60)]))

    def run(self, case: Case) -> str:
        if case.data == b"\1":
            self.defect()
        return "accepted"


#: An exception, or the signal that ends the process, and what causes it.
DEFECTS: Dict[Any, Callable[[], Any]] = {
    KeyError: lambda: {}["width"],
    HangError: lambda: time.sleep(1000),
    MemoryError: lambda: bytes(300 << 20),
    signal.SIGABRT: lambda: (faulthandler.disable(), os.abort()),
}


@pytest.mark.parametrize("error", DEFECTS)
def test_the_input_of_a_defect_stays(error: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Broken, "defect", staticmethod(DEFECTS[error]), raising=False)
    arguments = (Broken, 1, 60, tmp_path)
    if isinstance(error, signal.Signals):
        process = multiprocessing.get_context("fork").Process(target=fuzz, args=arguments)
        process.start()
        process.join(60)
        assert process.exitcode == -error
    else:
        with pytest.raises(error):
            fuzz(*arguments)
    (path,) = tmp_path.iterdir()
    assert path.read_bytes() == b"\1"
