"""Conversion of arguments from text, for argparse."""

from __future__ import annotations

import argparse
import math
import re
from pathlib import Path
from typing import Tuple

from polar_pipeline._util.errors import errors_as
from polar_pipeline._util.paths import as_path
from polar_pipeline._util.text import did_you_mean, quoted
from polar_pipeline.options.products import PRODUCTS, listed_products
from polar_pipeline.sensor.frames import MAX_PIXELS, MAX_SIDE, MIN_SIDE

#: Most seconds of --wait and --seconds: a day. Clocks and timers overflow beyond.
DAY_S = 86400.0
#: Digits of the longest integer that is accepted.
_DIGITS = 18


def parse_integer(text: str, lowest: float = -math.inf, highest: float = math.inf) -> int:
    """Parse a whole number in [lowest, highest]."""
    # Python refuses thousands of digits, or is slow
    if re.fullmatch(f"[-+]?[0-9]{{1,{_DIGITS}}}", text) is None or not lowest <= int(text) <= highest:
        raise argparse.ArgumentTypeError(f"expected a whole number{_range(lowest, highest)}, got {quoted(text)}")
    return int(text)


def parse_number(text: str, lowest: float = -math.inf, highest: float = math.inf) -> float:
    """Parse a finite number in [lowest, highest]."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and lowest <= value <= highest):
        raise argparse.ArgumentTypeError(f"expected a number{_range(lowest, highest)}, got {quoted(text)}")
    return value


def _range(lowest: float, highest: float) -> str:
    """Describe the limits of a number, if it has any."""
    if math.isinf(lowest):
        return ""
    return f" from {lowest:.9g} to {highest:.9g}" if math.isfinite(highest) else f" >= {lowest:.9g}"


def parse_size(text: str) -> Tuple[int, int]:
    """Parse (width, height) of a raw frame from `WIDTHxHEIGHT`."""
    sides = re.fullmatch("([0-9]{1,6})x([0-9]{1,6})", text)
    width, height = map(int, sides.groups()) if sides else (0, 0)
    if min(width, height) < MIN_SIDE or max(width, height) > MAX_SIDE or width * height > MAX_PIXELS:
        raise argparse.ArgumentTypeError(
            f"expected WIDTHxHEIGHT, at least {MIN_SIDE}x{MIN_SIDE}, each at most {MAX_SIDE}, and {MAX_PIXELS} pixels "
            f"in all, got {quoted(text)}"
        )
    return width, height


@errors_as(argparse.ArgumentTypeError)
def parse_path(text: str) -> Path:
    """Parse a path or a `file://` URL; `~` stands for the user's home."""
    return as_path(text)


@errors_as(argparse.ArgumentTypeError)
def parse_products(text: str) -> Tuple[str, ...]:
    """Parse product names, separated by commas or spaces; `all` stays a name (`listed_products`)."""
    return listed_products(text)


def parse_angle_order(text: str) -> Tuple[int, ...]:
    """Parse angles in degrees, separated by commas; whether all four are there is checked with the file."""
    return tuple(parse_integer(part, 0, 135) for part in text.split(","))


def parse_tolerance(text: str) -> Tuple[str, float]:
    """Parse a product and its tolerance from `PRODUCT=VALUE`."""
    name, separator, value = text.partition("=")
    if not separator or name not in PRODUCTS:
        raise argparse.ArgumentTypeError(
            f"expected PRODUCT=VALUE with a product among {', '.join(PRODUCTS)}, got {quoted(text)}"
            f"{did_you_mean(name, PRODUCTS)}"
        )
    return name, parse_number(value, 0)
