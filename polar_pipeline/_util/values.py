"""Checks of values that come from outside: options, parameters, settings. Each returns the plain Python value.

A bad value is a `ValueError` of one line: the name of the value, what is allowed, and what was given.
"""

from __future__ import annotations

import math
import re
from array import array
from numbers import Integral, Real
from typing import Callable, Tuple, TypeVar

import numpy as np

from polar_pipeline._util.text import did_you_mean, quoted

_T = TypeVar("_T")
#: Longest text in characters, as long as a path can be.
MAX_TEXT = 4096
#: Types of ordered sequences of values; text, sets and mappings are not among them.
_SEQUENCES = (list, tuple, array, np.ndarray)


def real(name: str, value: object) -> float:
    """Return a number of Python or NumPy as the nearest float, NaN and infinity included; Booleans are refused.

    Integers and fractions beyond all floats become infinity, whatever their sign.

    Raises:
        ValueError: The value is not a number.
    """
    if isinstance(value, bool) or not isinstance(value, Real):
        raise ValueError(f"{name} must be a number, got {quoted(value)}")
    try:
        return float(value)
    except OverflowError:
        return math.inf


def number(name: str, value: object, low: float, high: float) -> float:
    """Check a real number in [low, high].

    Raises:
        ValueError: The value is not a number, NaN, or out of range.
    """
    result = real(name, value)
    if not low <= result <= high:  # NaN is refused too
        raise ValueError(f"{name} must be in [{low}, {high}], got {quoted(value)}")
    return result


def whole_number(name: str, value: object, low: float = -math.inf, high: float = math.inf) -> int:
    """Check a whole number in [low, high], given as an integer or as a float such as 2.0.

    Raises:
        ValueError: The value is not a whole number, or out of range.
    """
    size = real(name, value)
    if not (isinstance(value, Integral) or size % 1 == 0):  # of NaN and infinity it is NaN
        raise ValueError(f"{name} must be a whole number, got {quoted(value)}")
    if not low <= size <= high:
        raise ValueError(f"{name} must be in [{low}, {high}], got {quoted(value)}")
    return int(value) if isinstance(value, Integral) else int(size)


def truth(name: str, value: object) -> bool:
    """Check a Boolean of Python or NumPy, or one of the integers 0 and 1.

    Raises:
        ValueError: The value is something else.
    """
    if not isinstance(value, (bool, np.bool_, Integral)) or value not in (0, 1):
        raise ValueError(f"{name} must be true or false, got {quoted(value)}")
    return bool(value)


def choice(name: str, value: object, allowed: Tuple[_T, ...]) -> _T:
    """Return the allowed word or number that is equal to a value.

    Raises:
        ValueError: No allowed word or number is equal to it; the message lists them.
    """
    for word in allowed:
        if isinstance(value, type(word)) and value == word:
            return word
    words = list(map(str, allowed))
    raise ValueError(f"{name} must be one of {', '.join(words)}, got {quoted(value)}{did_you_mean(value, words)}")


def is_text(value: object) -> bool:
    """Return whether a value is text that ROS parameters and paths can hold."""
    return (
        isinstance(value, str)
        and len(value) <= MAX_TEXT
        and "\0" not in value
        and not any("\ud800" <= char <= "\udfff" for char in value)
    )


def text_value(name: str, value: object) -> str:
    """Check a text.

    Raises:
        ValueError: The value is something else, too long, or has a NUL.
    """
    if not is_text(value):
        raise ValueError(f"{name} must be text of at most {MAX_TEXT} characters, without NUL, got {quoted(value)}")
    return str(value)


def matching(pattern: str, words: str) -> Callable[[str, object], str]:
    """Return a check of texts that match a regular expression; `words` say what is allowed."""

    def check(name: str, value: object) -> str:
        if not isinstance(value, str) or re.fullmatch(pattern, value) is None:
            raise ValueError(f"{name} must be {words}, got {quoted(value)}")
        return value

    return check


def several(
    item: Callable[[str, object], object], count: int, words: str
) -> Callable[[str, object], Tuple[object, ...]]:
    """Return a check of `count` values, each by `item`; `words` say what is allowed."""

    def check(name: str, value: object) -> Tuple[object, ...]:
        items = sequence(value, count)
        if not items:
            raise ValueError(f"{name} must be {words}, got {quoted(value)}")
        return tuple(item(name, each) for each in items)

    return check


def sequence(value: object, length: int) -> Tuple[object, ...]:
    """Return the values of a list, tuple or one-dimensional array of `length`, or an empty tuple for anything else."""
    if isinstance(value, _SEQUENCES) and getattr(value, "ndim", 1) == 1 and len(value) == length:
        return tuple(value)
    return ()
