"""Text from outside (messages, files, parameters) made safe to show: short, and without control characters.

Logs, diagnostics, error messages and terminals show it only through these functions: an encoding of 8 MB must not
become a log line of 8 MB, and an escape sequence in a topic's name must not reach a terminal.
"""

from __future__ import annotations

import difflib
import reprlib
import struct
from array import array
from typing import Iterable

#: Characters of foreign text that are shown.
SHOWN = 200
#: Characters of the reason of a failure, which may name files or list what is allowed.
SHOWN_REASON = 1000
#: Characters of the longest word that is compared with others, which takes time of the square of its length.
_LONGEST_WORD = 64
#: Characters of a text of several lines, such as a compiler's messages or a traceback, that are shown.
SHOWN_LINES = 8000


def printable(text: str, limit: int = SHOWN, keep: str = "") -> str:
    """Escape every character that is not printable, and cut the text after `limit` characters.

    Args:
        text: Any text.
        limit: Characters that are shown, those of escapes included.
        keep: Control characters that stay as they are.
    """
    escaped = "".join(
        char if char.isprintable() or char in keep else char.encode("unicode_escape").decode() for char in text[:limit]
    )
    return _cut(escaped, limit, text)


def printable_lines(text: str) -> str:
    """Apply `printable` to a text of several lines."""
    return printable(text, SHOWN_LINES, keep="\n")


def quoted(value: object) -> str:
    """Format a rejected value as Python writes it, but short; it may be text, a number, or nested to any depth."""
    if isinstance(value, str):
        return _cut(repr(value[: SHOWN + 1]), SHOWN + 2, value)
    return printable(_BRIEF.repr(value.tolist() if isinstance(value, array) else value))


def did_you_mean(value: object, allowed: Iterable[str]) -> str:
    """Return the end of an error message that names the allowed words most like a rejected one; "" if none is like it.

    Args:
        value: Value of any type; only a word of usual length is compared, whatever the case of its letters.
        allowed: Words that are allowed; the message has the best one, or two that are both very similar.
    """
    if not isinstance(value, str) or len(value) > _LONGEST_WORD:
        return ""
    words = {word.lower(): word for word in allowed}
    word = value.lower()
    similar = difflib.get_close_matches(word, words, n=2, cutoff=0.8) or difflib.get_close_matches(word, words, n=1)
    return f"; did you mean {' or '.join(words[name] for name in similar)}?" if similar else ""


def numbered(name: str, number: int, count: int = 1) -> str:
    """Return the name of one of several frames: its number, from 0 on, has at least 4 digits, and those of `count`."""
    return f"{name}_{number:0{max(4, len(str(count - 1)))}d}"


def _cut(escaped: str, limit: int, text: str) -> str:
    """Cut an escaped text after `limit` characters, and append its length if something is missing."""
    is_complete = len(escaped) <= limit and len(text) <= limit
    return escaped if is_complete else f"{escaped[:limit]}... ({len(text)} characters)"


#: Errors of Python itself, whose texts are about code: a library that raises one met data that it does not expect.
_OF_CODE = (AssertionError, AttributeError, LookupError, StopIteration, TypeError, struct.error)


def described(err: BaseException) -> str:
    """Describe an error in short, printable text: its reason, without names of classes and numbers of the system."""
    if isinstance(err, OSError) and err.strerror:
        return printable(err.strerror)
    if isinstance(err, MemoryError):
        return "it needs more memory than this process may have"
    if isinstance(err, _OF_CODE):
        return "its values do not fit together"
    return printable(str(err)) or type(err).__name__


def failure(err: BaseException) -> str:
    """Describe an error that ended a task: one of the system with its file, an unexpected one with its class."""
    if isinstance(err, OSError):
        return printable(": ".join(filter(None, [err.strerror or str(err), str(err.filename or "")])), SHOWN_REASON)
    return f"{type(err).__name__}: {printable(str(err))}"


class _Brief(reprlib.Repr):
    def __init__(self) -> None:
        super().__init__()
        self.maxstring = self.maxother = self.maxlong = 80

    def repr_int(self, value: int, level: int) -> str:
        try:
            return super().repr_int(value, level)
        except ValueError:  # Python refuses to write out thousands of digits
            return f"<integer of {value.bit_length()} bits>"


_BRIEF = _Brief()
