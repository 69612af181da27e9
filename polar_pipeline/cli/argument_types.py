"""Conversion of arguments from text, for argparse."""

from __future__ import annotations

import argparse
import math
import re
import sys
from typing import Tuple

from polar_pipeline._util.text import quoted
from polar_pipeline.products import get_products
from polar_pipeline.sensor.frames import MAX_PIXELS, MAX_SIDE, MIN_SIDE

#: Most seconds of --wait and --seconds: a day. Clocks and timers overflow beyond.
DAY_S = 86400.0
#: Digits of the longest integer that is accepted.
_DIGITS = 18


def parse_integer(text: str) -> int:
    """An integer of any sign."""
    if re.fullmatch(f"[-+]?[0-9]{{1,{_DIGITS}}}", text) is None:  # Python refuses thousands of digits, or is slow
        raise argparse.ArgumentTypeError(f"expected a whole number, got {quoted(text)}")
    return int(text)


def parse_real(text: str) -> float:
    """A number, NaN and infinity included."""
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected a number, got {quoted(text)}") from None


def parse_finite(text: str) -> float:
    """A finite number."""
    value = parse_real(text)
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"expected a finite number, got {quoted(text)}")
    return value


def parse_nonnegative(text: str, highest: float = sys.float_info.max) -> float:
    """A number from 0 to `highest`."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= highest:
        limit = "" if highest == sys.float_info.max else f" and at most {highest:g}"
        raise argparse.ArgumentTypeError(f"expected a number >= 0{limit}, got {quoted(text)}")
    return value


def parse_seconds(text: str) -> float:
    """Seconds from 0 to a day."""
    return parse_nonnegative(text, DAY_S)


def parse_size(text: str) -> Tuple[int, int]:
    """(width, height) of a raw frame from `WIDTHxHEIGHT`."""
    sides = re.fullmatch("([0-9]{1,6})x([0-9]{1,6})", text)
    width, height = map(int, sides.groups()) if sides else (0, 0)
    if min(width, height) < MIN_SIDE or max(width, height) > MAX_SIDE or width * height > MAX_PIXELS:
        raise argparse.ArgumentTypeError(
            f"expected WIDTHxHEIGHT, at least {MIN_SIDE}x{MIN_SIDE}, each at most {MAX_SIDE}, and {MAX_PIXELS} pixels "
            f"in all, got {quoted(text)}"
        )
    return width, height


def parse_products(text: str) -> Tuple[str, ...]:
    """Product names, separated by commas."""
    try:
        return get_products(text)
    except ValueError as err:
        raise argparse.ArgumentTypeError(str(err)) from err
