"""The record that describes an option."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional, Tuple, Union

#: What an option can be set to.
Value = Union[bool, int, float, str, Tuple[bool, ...], Tuple[int, ...], Tuple[float, ...], Tuple[str, ...]]


@dataclass(frozen=True)
class Option:
    """One option, as every interface shows it.

    Attributes:
        name: Name of the argument of `Pipeline`, or of the node's parameter.
        default: Value unless one is given; its type is the option's type.
        text: Help text, the same in `help(Pipeline)`, on the command line, in `ros2 param describe` and in the
            documentation.
        choices: Allowed words; empty where the option is no choice.
        limits: (lowest, highest) number; None where there is no range.
        unit: What a number counts or is measured in; "" for a plain number and for everything else.
        read_only: Whether a node keeps the value it started with; every other option can change between two frames.
        numbers: Allowed numbers; empty where `limits` says enough.
    """

    name: str
    default: Value
    text: str
    choices: Tuple[str, ...] = ()
    limits: Optional[Tuple[float, float]] = None
    unit: str = ""
    read_only: bool = False
    numbers: Tuple[int, ...] = ()
