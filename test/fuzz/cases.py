"""One input of a fuzzer, and the error of a wrong answer."""

from __future__ import annotations

from typing import Any, NamedTuple


class Case(NamedTuple):
    """One input: its kind, which is the suffix of its file, and its bytes."""

    kind: str
    data: bytes


class WrongError(Exception):
    """The package took what it should refuse, or made something else of it than it should."""


def same(got: Any, want: Any, what: str) -> None:
    """Refuse a value that differs from the oracle's."""
    if got != want:
        raise WrongError(f"{what} is {str(got)[:80]!r}, it should be {str(want)[:80]!r}")


def refused(err: Exception, *causes: str) -> str:
    """The outcome of an input that is refused, whose cause and text must be as documented."""
    cause = getattr(err, "cause", "")
    if cause not in (causes or ("",)) or not str(err).isprintable() or len(str(err)) > 2000:
        raise WrongError(f"cause {cause!r} is not documented, or the text is bad: {str(err)[:300]!r}") from err
    return f"refused: {cause or type(err).__name__}"
