"""Text from outside is shown short and without control characters."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polar_pipeline._util.text import SHOWN, did_you_mean, printable, printable_lines, quoted


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("mono8", "mono8"),
        ("äöü 偏光", "äöü 偏光"),
        ("a\nb\tc", r"a\nb\tc"),
        ("\x1b[2Jgone", r"\x1b[2Jgone"),
        ("\x9b31m", r"\x9b31m"),  # the 8-bit form of an escape sequence
        ("abc\u202edef", r"abc\u202edef"),  # turns the direction of what follows
        ("\ud800", r"\ud800"),  # half a character, which cannot be printed
        ("x" * 201, "x" * 200 + "... (201 characters)"),
        ("\0" * 60, "\\x00" * 50 + "... (60 characters)"),  # escapes count
    ],
)
def test_printable(text: str, shown: str) -> None:
    assert printable(text) == shown


@given(st.text(max_size=400))
def test_what_is_shown_is_one_short_printable_line(text: str) -> None:
    for shown in (printable(text), quoted(text)):
        assert shown.isprintable()
        assert len(shown) <= SHOWN + 40


def test_lines_stay_lines() -> None:
    assert printable_lines("one\n\x1btwo\n") == "one\n\\x1btwo\n"
    assert len(printable_lines("x" * 10**6)) < 8100


def test_quoted_values() -> None:
    bomb: list = []
    for _ in range(60):
        bomb = [bomb] * 9
    loop: list = []
    loop.append(loop)
    assert quoted("mono8") == "'mono8'"
    assert quoted("x" * 200) == repr("x" * 200)
    assert quoted("x" * 201) == "'" + "x" * 201 + "... (201 characters)"
    assert quoted("x" * 8_000_000) == "'" + "x" * 201 + "... (8000000 characters)"
    assert quoted(1.5) == "1.5"
    assert quoted([1, 2]) == "[1, 2]"
    assert len(quoted(loop)) < 100
    for value in (bomb, 10**6000, b"\0" * 10**6, {"a" * 1000: "b" * 1000}, ["\x1b[2J"]):
        assert len(quoted(value)) <= SHOWN + 40
        assert quoted(value).isprintable()


def test_similar_words() -> None:
    products = ["dolp", "aolp", "Intensity", "ssim_map"]
    assert did_you_mean("alop", products) == "; did you mean aolp?"
    assert did_you_mean("INTENSTY", products) == "; did you mean Intensity?"
    assert did_you_mean("IMX250", ["IMX250MZR", "IMX250MYR", "other"]) in (
        "; did you mean IMX250MZR or IMX250MYR?",
        "; did you mean IMX250MYR or IMX250MZR?",
    )
    for value in ("nothing", "", 5, None, ["dolp"], b"dolp", "dolp" * 1_000_000):
        assert did_you_mean(value, products) == ""
    assert did_you_mean("dolp", []) == ""
