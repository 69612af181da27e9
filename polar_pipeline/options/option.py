"""Descriptions of options: their declaration in a class, and the check of a value."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from functools import partial
from typing import TYPE_CHECKING, Any, Callable, Dict, Generic, Optional, Tuple, TypeVar, Union, cast

from polar_pipeline._util.text import quoted
from polar_pipeline._util.values import choice, number, truth, whole_number
from polar_pipeline.sensor.frames import MAX_SIDE
from polar_pipeline.sensor.mosaic import Sensor

#: What an option can be set to.
Value = Union[bool, int, float, str, Tuple[bool, ...], Tuple[int, ...], Tuple[float, ...], Tuple[str, ...]]
_Given = TypeVar("_Given", contravariant=True)
_Held = TypeVar("_Held", covariant=True)
_T = TypeVar("_T")


class Accepts(Generic[_Given, _Held]):
    """Annotation of an option that accepts values of other types than it holds: `Accepts[given, held]`."""

    if TYPE_CHECKING:  # type checkers read it as a descriptor; there is none at run time

        def __get__(self, instance: object, owner: type) -> _Held: ...

        def __set__(self, instance: object, value: _Given) -> None: ...


@dataclass(frozen=True)
class Option:
    """One option, as every interface shows it.

    Attributes:
        default: Value unless one is given; its type is the option's type.
        text: Help text, the same in `help(Pipeline)`, on the command line, in `ros2 param describe` and in the
            documentation.
        choices: Allowed words; empty where the option is not a choice.
        limits: (lowest, highest) number; None if there is no range.
        unit: What a number counts or is measured in; "" for a plain number and for everything else.
        read_only: Whether a node keeps the value it started with; every other option can change between two frames.
        numbers: Allowed numbers; empty where `limits` says enough.
        name: Name of the field that declares it.
        check: Checks a value, where choices, numbers and limits do not say all: (name in messages, value) -> the value
            that `Options` holds; it takes that value too. None for the check that these say.
        note: What `help(Pipeline)` says beyond `text`.
        parameter: The node's parameter that sets it; "" for none. A declared one has the field's name by default.
        group: `machine` (where to compute), `frame` (what the pixels of a frame are), `products` (what to compute), or
            `library` (not for the command line); some commands have one group only.
        flags: Of a truth value, or of each of a pair: the argument of the command line that sets it to the opposite of
            its default, and what `--help` says before `text`. By default the option's name, and nothing.
        metavar: What `--help` calls the values; by default the unit.
        shown_default: Default that `--help` shows, "" for none; by default `default`.
    """

    default: Value
    text: str
    choices: Tuple[str, ...] = ()
    limits: Optional[Tuple[float, float]] = None
    unit: str = ""
    read_only: bool = False
    numbers: Tuple[int, ...] = ()
    name: str = ""
    check: Optional[Callable[[str, Any], Any]] = None
    note: str = ""
    parameter: str = ""
    group: str = "products"
    flags: Tuple[Tuple[str, str], ...] = ()
    metavar: Tuple[str, ...] = ()
    shown_default: Optional[str] = None

    def held(self, value: object, shown: str) -> object:
        """Convert a value to Python's own type.

        Args:
            value: Value of any type.
            shown: What error messages call the option.

        Raises:
            ValueError: The value is not allowed; the message says what is.
        """
        if self.check is not None:
            return self.check(shown, value)
        if self.choices:
            return choice(shown, value, self.choices)
        if self.numbers:
            if whole_number(shown, value) not in self.numbers:
                numbers = ", ".join(map(str, self.numbers))
                raise ValueError(f"{shown} must be one of {numbers}, got {quoted(value)}")
            return whole_number(shown, value)
        if self.limits is None:
            return truth(shown, value)
        return (number if isinstance(self.default, float) else whole_number)(shown, value, *self.limits)

    def is_same(self, first: object, second: object) -> bool:
        """Return whether two values mean the same; of sensors only the mosaic counts.

        Raises:
            ValueError: A value is not allowed.
        """
        a, b = self.held(first, self.name), self.held(second, self.name)
        return a == b or (isinstance(a, Sensor) and isinstance(b, Sensor) and a.tile() == b.tile())


def declare(default: Value, text: str, **details: object) -> _T:  # type: ignore[type-var]
    """Declare an option as a field of a dataclass, whose type this returns; for the details see `Option`."""
    return cast(_T, field(default=default, metadata={"option": {"default": default, "text": text, **details}}))


def declared(cls: type, prefix: str = "") -> Dict[str, Option]:
    """Return the options that a dataclass declares, by name; `prefix` is the first part of their parameters' names."""
    rows = {row.name: row.metadata["option"] for row in fields(cls) if "option" in row.metadata}
    return {name: Option(**{"parameter": prefix + name, **row, "name": name}) for name, row in rows.items()}


#: Check of a number of pixels along a side of a frame.
pixels = partial(whole_number, low=0, high=MAX_SIDE)
