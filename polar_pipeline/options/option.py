"""The declaration of an option, and the check of its values.

Options are declared as fields of a dataclass: those of a pipeline in `Options`, those of the live node in `Settings`,
those of its camera in `CameraSettings`, the limits of quality in `QualityLimits`, and brightness in `Display`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from functools import partial
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    Dict,
    Generic,
    Literal,
    Mapping,
    Optional,
    Tuple,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from polar_pipeline._util.values import choice, number, text_value, truth, whole_number
from polar_pipeline.sensor.frames import MAX_SIDE
from polar_pipeline.sensor.mosaic import Sensor

#: What an option can be set to.
Value = Union[bool, int, float, str, Tuple[bool, ...], Tuple[int, ...], Tuple[float, ...], Tuple[str, ...]]
_Accepted = TypeVar("_Accepted", contravariant=True)
_Stored = TypeVar("_Stored", covariant=True)
_T = TypeVar("_T")


#: Words that YAML, and so files of parameters and `ros2 param set`, reads as truth values unless they are quoted.
_YAML_WORDS = {False: "off", True: "on"}


class Accepts(Generic[_Accepted, _Stored]):
    """Annotation of an option that accepts values of other types than it stores: `Accepts[accepted, stored]`."""

    if TYPE_CHECKING:  # type checkers read it as a descriptor; there is none at run time

        def __get__(self, instance: object, owner: type) -> _Stored: ...

        def __set__(self, instance: object, value: _Accepted) -> None: ...


@dataclass(frozen=True)
class Option:
    """One option, as every interface shows it.

    Attributes:
        default: Value unless another is set; its type is the option's type.
        text: Help text, the same in `help(Pipeline)`, on the command line, in `ros2 param describe` and in the
            documentation.
        choices: Allowed words or whole numbers; empty if any are. By default those of a field annotated as `Literal`.
        limits: (lowest, highest) number; None if there is no range.
        check: Checks and converts a value, where the default's type, choices and limits do not say all: (name in
            messages, value) -> the value that is stored; it accepts that value too.
        unit: What a number counts or is measured in; "" for a plain number and for everything else.
        note: What `help(Pipeline)` says beyond `text`.
        parameter: The node's parameter that sets it; "" for none. A declared one has the field's name by default.
        read_only: Whether a node keeps the value it started with; every other option can change between two frames.
        dynamic: Whether the node's parameter can change its type; `check` says what is allowed.
        group: `frame` (what the pixels of a frame are), `products` (what to compute), `ssim`, `geometry` (pixels of the
            outputs), `machine` (where to compute), or `library` (not for the command line); some commands have one
            group only.
        name: Name of the field that declares it.
    """

    default: Value
    text: str
    choices: Tuple[Union[str, int], ...] = ()
    limits: Optional[Tuple[float, float]] = None
    check: Optional[Callable[[str, Any], Any]] = None
    unit: str = ""
    note: str = ""
    parameter: str = ""
    read_only: bool = False
    dynamic: bool = False
    group: str = "products"
    name: str = ""

    def validate(self, value: object, name: str = "") -> object:
        """Check a value, and convert it to the type that is stored, which is Python's own.

        Args:
            value: Value of any type.
            name: What the caller's users call the option, for error messages; by default its name.

        Raises:
            ValueError: The value is not allowed; the message says what is.
        """
        name = name or self.name
        if self.check is not None:
            return self.check(name, value)
        if self.limits is not None:
            return (number if isinstance(self.default, float) else whole_number)(name, value, *self.limits)
        if self.choices:
            if isinstance(value, bool) and _YAML_WORDS[value] in self.choices:
                value = _YAML_WORDS[value]
            return choice(name, value if isinstance(self.default, str) else whole_number(name, value), self.choices)
        return (text_value if isinstance(self.default, str) else truth)(name, value)

    def is_same(self, first: object, second: object) -> bool:
        """Return whether two values mean the same; of sensors only the mosaic counts.

        Raises:
            ValueError: A value is not allowed.
        """
        a, b = self.validate(first), self.validate(second)
        return a == b or (isinstance(a, Sensor) and isinstance(b, Sensor) and a.tile() == b.tile())


#: Values of options by name, as `Option.validate` returns them.
CheckedValues = Dict[str, Any]


def validate(
    rows: Mapping[str, Option], values: Mapping[str, object], name_of: Callable[[Option], str]
) -> CheckedValues:
    """Check the values of options, each by itself: for the library, the command line, ROS parameters and files.

    Args:
        rows: Options by name.
        values: Values of any type by the name of the option; a missing one has its default.
        name_of: Returns what users of the caller call an option, for error messages.

    Raises:
        ValueError: A value is not allowed; the message says what is.
    """
    return {name: row.validate(values.get(name, row.default), name_of(row)) for name, row in rows.items()}


def declare(default: Value, text: str, **details: object) -> _T:  # type: ignore[type-var]
    """Declare an option as a field of a dataclass, whose type this returns; for the details see `Option`."""
    return cast(_T, field(default=default, metadata={"option": {"default": default, "text": text, **details}}))


def declared(cls: type, prefix: str = "") -> Dict[str, Option]:
    """Return the options that a dataclass declares, by name; `prefix` is the first part of their parameters' names."""
    hints = get_type_hints(cls)
    rows = {row.name: row.metadata["option"] for row in fields(cls) if "option" in row.metadata}
    return {
        name: Option(**{"parameter": prefix + name, "choices": _literals(hints[name]), **row, "name": name})
        for name, row in rows.items()
    }


def _literals(hint: object) -> Tuple[Union[str, int], ...]:
    """Return the values of a `Literal`, also as one of the types of a `Union` that an option accepts."""
    if get_origin(hint) is Literal:
        return get_args(hint)
    accepted = {Accepts: get_args(hint)[:1], Union: get_args(hint)}.get(get_origin(hint), ())
    return tuple(value for each in accepted for value in _literals(each))


#: Check of a number of pixels along a side of a frame.
pixels = partial(whole_number, low=0, high=MAX_SIDE)
