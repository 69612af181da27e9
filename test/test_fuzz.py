"""The fuzzer: a short run on every target, the same each time; and that it finds what it is for."""

from __future__ import annotations

import os
import random
import struct
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fuzz import cdr, run
from fuzz.engine import Case, Target, WrongError, fuzz, rng_of
from support import IS_EXHAUSTIVE

from polar_pipeline import messages

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


@pytest.mark.parametrize("name", run.TARGETS)
def test_inputs_depend_on_the_seed_alone(name: str, tmp_path: Path) -> None:
    target = run.load(name)(tmp_path)
    one, again, other = ([target.make(rng_of(seed, name, k)) for k in range(20)] for seed in (1, 1, 2))
    assert one == again
    assert one != other
    assert len(set(one)) > 15


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


def test_the_oracle_is_strict() -> None:
    good = bytes(messages.encode_image(5, "cam", "mono8", np.ones((16, 16), np.uint8)))
    fields = cdr.parse("image", good).fields
    texts = {name: fields[name].encode() for name in ("frame_id", "encoding")}
    assert cdr.write("image", {**fields, **texts}).data == good
    assert cdr.parse("image", good + bytes(3)).loose == {"padding"}
    for wrong in (b"", good[:-1], good + bytes(4), b"\0\2" + good[2:], good[:16] + b"\xff" + good[17:]):
        with pytest.raises(cdr.NotCdrError):
            cdr.parse("image", wrong)
    assert cdr.parse("image", good.replace(b"mono8\0", b"mono88")).loose == {"terminator"}
    swapped = {"frame_id": b"", "distortion_model": b"", "d": [0.5], "k": [2.0] * 9, "r": [0.0] * 9, "p": [0.0] * 12}
    calibration = cdr.parse("camera_info", bytes(cdr.write("camera_info", swapped, ">").data)).fields
    assert (calibration["d"], calibration["k"]) == (struct.pack("<d", 0.5), struct.pack("<9d", *[2.0] * 9))


def test_the_command_line(tmp_path: Path, monkeypatch: Any, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.image").write_bytes(b"\0\1\0\0")
    assert run.main(["--target", "messages", "--replay", str(tmp_path / "a.image")]) == 0
    assert capsys.readouterr().out == '{\n "a.image": "refused: cdr"\n}\n'
    monkeypatch.setitem(run.TARGETS, "messages", "test_fuzz:Wrong")
    monkeypatch.setattr(run, "FINDINGS", tmp_path / "found")
    assert run.main(["5", "--seed", "1", "--target", "messages", "--inputs", "250"]) == 1
    (kept,) = (tmp_path / "found").iterdir()
    said = capsys.readouterr().out
    assert said.startswith("seed 1\nmessages: 250 inputs, 1 findings; ")
    assert "wrong: WrongError: an image that is none" in said
    assert f"--target messages --replay {kept}" in said
    assert kept.read_bytes() == b"\x07"
