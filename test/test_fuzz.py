"""The fuzzer: a short run on every target, the same each time; and that it finds what it is for."""

from __future__ import annotations

import dataclasses
import os
import random
import time
from pathlib import Path
from typing import Any, List

import numpy as np
import pytest
from fuzz import cdr, run
from fuzz.engine import Case, Tally, Target, WrongError, fuzz, rng_of, save
from fuzz.messages import Messages
from fuzz.targets import TARGETS, load
from support import IS_EXHAUSTIVE

from polar_pipeline import FrameError, messages

#: Inputs tried on each target: a second or two, and some seconds.
INPUTS = {"messages": 4000, "values": 60, "recordings": 2000, "parameters": 4000, "files": 1200, "commands": 400}
INPUTS["rawzstd"] = 4000
INPUTS = INPUTS if IS_EXHAUSTIVE else {name: max(7, count // 16) for name, count in INPUTS.items()}


@pytest.mark.scaled
@pytest.mark.parametrize("name", TARGETS)
def test_nothing_is_found(name: str) -> None:
    tally = fuzz(load(name), seed=1, seconds=120, inputs=INPUTS[name])
    assert not tally.findings, [row.text for row in tally.findings]
    assert tally.inputs == sum(tally.outcomes.values()) == INPUTS[name]
    if name != "values":  # all of which are right
        kinds = [outcome.split(":")[0] for outcome, count in tally.outcomes.items() for _ in range(count)]
        assert min(kinds.count("accepted"), kinds.count("refused")) > 0.05 * len(kinds)


@pytest.mark.parametrize("name", TARGETS)
def test_inputs_depend_on_the_seed_alone(name: str, tmp_path: Path) -> None:
    def made(seed: int, folder: str) -> List[Case]:
        (tmp_path / folder).mkdir()
        target = load(name)(tmp_path / folder)
        return [target.make(rng_of(seed, name, index)) for index in range(20)]

    one, again, other = made(1, "one"), made(1, "again"), made(2, "other")
    assert one == again
    assert one != other
    assert len(set(one)) > 15


# ------------------------------------------------------------------------------------------------ what is there to find


class Broken(Target):
    """Whose every hundredth input shows a defect."""

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


class Exits(Broken):
    def fail(self) -> None:
        os._exit(0)


class Hangs(Broken):
    def fail(self) -> None:
        time.sleep(1000)


class Grows(Broken):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.ballast = np.ones(os.getpid() % 8 << 20, np.uint8)  # so workers start with different amounts of memory

    def fail(self) -> None:
        np.ones(200 << 20, np.uint8)


class Leaks(Broken):
    def make(self, rng: random.Random) -> Case:
        self.__dict__.setdefault("held", []).append(b"x" * 50_000)
        return Case("bin", bytes([rng.randrange(8, 256)]))


class Asks(Broken):
    """For more than there is, behind a documented error."""

    def fail(self) -> None:
        raise FrameError("cdr", "too long") from MemoryError()

    def run(self, case: Case) -> str:
        from fuzz.engine import refused

        try:
            return super().run(case)
        except FrameError as err:
            return refused(err)


def tried(kind: Any, inputs: int) -> Tally:
    return fuzz(kind, seed=1, seconds=30, inputs=inputs, max_mb=64)


@pytest.mark.parametrize(
    ("kind", "what", "text"),
    [
        (Undocumented, "exception", "KeyError: 'width'"),
        (Wrong, "wrong", "WrongError: an image that is none"),
        (Aborts, "crash", "ended by SIGABRT"),
        (Exits, "crash", "ended with code 0"),
        (Hangs, "hang", "no answer within 2 s"),
        (Grows, "memory", "more memory than allowed"),
        (Asks, "memory", "OutOfMemoryError"),
    ],
)
def test_a_defect_is_found_with_its_input(kind: Any, what: str, text: str, tmp_path: Path) -> None:
    tally = tried(kind, 250)
    (finding,) = tally.findings  # of many, one of a kind
    assert (finding.what, finding.case) == (what, Case("bin", b"\x07"))
    assert text in finding.text
    assert kind(tmp_path).make(rng_of(1, "broken", finding.index)) == finding.case
    path = save(finding, "broken", tmp_path / "found")
    assert path.read_bytes() == b"\x07"
    assert path.suffix == ".bin"
    if what not in ("crash", "hang"):  # what it tried just before is lost with a process
        assert tally.outcomes["accepted"] > 0.9 * tally.inputs


def test_where_a_hang_is_and_a_defect_was_raised_is_told() -> None:
    assert "in fail" in tried(Hangs, 250).findings[0].text
    assert "test_fuzz.py" in tried(Undocumented, 250).findings[0].text


def test_memory_that_grows_slowly_is_found() -> None:
    finding = tried(Leaks, 5000).findings[0]
    assert finding.what == "memory"
    assert "inputs" in finding.text


class TooTolerant(Messages):
    """The package as it would be if it took texts without their end, and headers that no message can carry on."""

    def run(self, case: Case) -> str:
        before = messages.check_header
        messages.check_header = lambda _: None
        try:
            return super().run(case)
        finally:
            messages.check_header = before


class Mistaken(Messages):
    """The package as it would be if it took big-endian pixels for little-endian ones."""

    def run(self, case: Case) -> str:
        before = messages.to_raw
        messages.to_raw = lambda image, *rest: before(dataclasses.replace(image, is_bigendian=False), *rest)
        try:
            return super().run(case)
        finally:
            messages.to_raw = before


@pytest.mark.parametrize(
    ("kind", "text"),
    [(TooTolerant, "a header that no message could carry on is taken"), (Mistaken, "pixels differ: ")],
)
def test_a_package_that_is_wrong_is_found(kind: Any, text: str) -> None:
    tally = fuzz(kind, seed=1, seconds=60, inputs=3000)
    assert any(row.what == "wrong" and text in row.text for row in tally.findings)


def test_the_oracle_is_strict() -> None:
    good = bytes(messages.encode_image(5, "cam", "mono8", np.ones((16, 16), np.uint8)))
    assert cdr.parse("image", good).fields["encoding"] == "mono8"
    assert cdr.parse("image", good + bytes(3)).loose == {"padding"}
    for wrong in (b"", good[:-1], good + bytes(4), b"\0\2" + good[2:], good[:16] + b"\xff" + good[17:]):
        with pytest.raises(cdr.NotCdrError):
            cdr.parse("image", wrong)
    assert cdr.parse("image", good.replace(b"mono8\0", b"mono88")).loose == {"terminator"}


# --------------------------------------------------------------------------------------------------------- command line


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    figures = tmp_path / "figures.json"
    assert run.main(["5", "--seed", "3", "--target", "messages", "--inputs", "500", "--json", str(figures)]) == 0
    said = capsys.readouterr().out
    assert said.startswith("seed 3\nmessages: 500 inputs, ")
    assert '"inputs": 500' in figures.read_text()
    (tmp_path / "a.float32").write_bytes(b"\0\1\0\0\0\0\0\0")
    assert run.main(["--target", "messages", "--replay", str(tmp_path / "a.float32")]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'a.float32'}: accepted\n"


def test_what_is_found_is_told_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(TARGETS, "messages", "test_fuzz:Wrong")
    monkeypatch.setattr(run, "FINDINGS", tmp_path)
    assert run.main(["5", "--seed", "1", "--target", "messages", "--inputs", "500"]) == 1
    (kept,) = tmp_path.iterdir()
    said = capsys.readouterr().out
    assert "1 findings" in said
    assert "wrong: WrongError: an image that is none" in said
    assert f"--target messages --replay {kept}" in said
    assert kept.read_bytes() == b"\x07"
