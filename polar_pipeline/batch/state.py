"""Segments on disk: what was found in one, as JSON, until all segments of the recording are merged."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, Callable, Dict, List, Sequence, Tuple, Type, TypeVar, Union, cast, get_type_hints

from polar_pipeline.replay.compare import Tally
from polar_pipeline.replay.run import Summary
from polar_pipeline.replay.segment import Part

#: Files of a segment's folder.
PRODUCTS, STATE = "products.mcap", "segment.json"
Value = TypeVar("Value")


def write_part(folder: Path, part: Part, thumbnail: str) -> None:
    """Write what was found in a segment, without its samples, and a picture as text.

    Raises:
        OSError: It cannot be written.
    """
    summary = {row.name: _plain(getattr(part.summary, row.name)) for row in fields(Summary) if row.name != "samples"}
    values = {"summary": summary, "tallies": _plain(dict(part.tallies)), "thumbnail": thumbnail}
    text = json.dumps(values, default=float)
    (folder / STATE).write_text(text, encoding="utf-8")


def read_part(folder: Path) -> Tuple[Part, str]:
    """A segment that `write_part` wrote, and the picture.

    Raises:
        OSError: It is not there.
        ValueError: It is damaged.
    """
    try:
        values = json.loads((folder / STATE).read_text(encoding="utf-8"))
        summary = _made(Summary, {**values["summary"], "samples": []})
        tallies = _made(Dict[str, Tally], values["tallies"])
        thumbnail = str(values["thumbnail"])
    except (KeyError, TypeError, ValueError, AttributeError) as err:
        raise ValueError(f"{folder / STATE} is damaged: {err}") from err
    products = folder / PRODUCTS
    return Part(summary, tallies, products if products.exists() else None), thumbnail


def _plain(value: Any) -> Any:
    """A value as JSON has it."""
    if is_dataclass(value) and not isinstance(value, type):
        return {row.name: _plain(getattr(value, row.name)) for row in fields(value)}
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    return value


def _made(kind: Type[Value], value: Any) -> Value:
    """The value of a type that `_plain` made plain."""
    made: Value = _make(kind, value)
    return made


def _make(kind: Any, value: Any) -> Any:
    origin: Any = getattr(kind, "__origin__", None)
    inner: Sequence[Any] = getattr(kind, "__args__", ())
    if origin is Union:
        return None if value is None else _make(next(row for row in inner if row is not type(None)), value)
    if origin in (list, List):
        return [_make(inner[0], row) for row in value]
    if origin in (dict, Dict, Mapping):
        return {name: _make(inner[1], row) for name, row in value.items()}
    if origin is tuple:
        return tuple(_make(row, part) for row, part in zip(inner, value))
    if is_dataclass(kind):
        hints, make = _hints(kind), cast("Callable[..., Any]", kind)
        return make(**{name: _make(hints[name], row) for name, row in value.items()})
    if hasattr(kind, "_fields"):  # a named tuple
        return kind(*(_make(_hints(kind)[name], row) for name, row in zip(kind._fields, value)))
    return value


_HINTS: Dict[Any, Dict[str, Any]] = {}


def _hints(kind: Any) -> Dict[str, Any]:
    """Field -> its type."""
    if kind not in _HINTS:
        _HINTS[kind] = get_type_hints(kind)
    return _HINTS[kind]
