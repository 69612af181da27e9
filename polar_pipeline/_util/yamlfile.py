"""Reads YAML files written by hand, with limits on size and depth. Imports no ROS."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, List, Set, Tuple

import yaml

from polar_pipeline._util.documents import MAX_DIGITS, read_limited, unreadable
from polar_pipeline._util.text import printable

#: Values, lists and mappings that a file may have, each of them counted wherever an alias repeats it.
MAX_NODES = 20_000
#: Levels of nesting.
MAX_DEPTH = 40
_TEXT = "tag:yaml.org,2002:str"


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    """The safe loader, which stops at files that are too large or too deep for it.

    Two kinds of values are read as ROS's own parser reads them: a date is text, and 1e-3 is a number.
    """

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self._count = self._depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        """As PyYAML's, which calls itself for every level."""
        self._count += 1
        self._depth += 1
        _check_counts(self._count, self._depth)
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in rows if not tag.endswith(":timestamp")]
    for first, rows in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)[eE][-+]?[0-9]+\Z"), list("-+.0123456789")
)


def read_yaml(path: Path) -> Any:
    """The content of a YAML file, as `yaml.safe_load` reads it but for dates, which are text, and numbers such as 1e-3.

    Raises:
        ValueError: It cannot be read, is not one YAML document, names a key twice, or is too large: more than
            `MAX_NODES` values or `MAX_DEPTH` levels; the message names the file.
    """
    try:
        loader = _Loader(read_limited(path))
    except yaml.YAMLError as err:  # not UTF-8 or UTF-16
        raise unreadable(path, _reason(err)) from err
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        _check(node)
        return loader.construct_document(node)
    except (yaml.YAMLError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as err:
        # what PyYAML makes of `!!int ""` or `!!bool maybe` are errors of Python's own
        raise unreadable(path, _reason(err)) from err
    finally:
        loader.dispose()


def _reason(err: Exception) -> str:
    """An error in a few words; PyYAML's own have several lines."""
    mark = getattr(err, "problem_mark", None)
    if isinstance(err, yaml.MarkedYAMLError) and mark is not None:
        said = ", ".join(filter(None, (err.context, err.problem)))
        return f"line {mark.line + 1}, column {mark.column + 1}: {said}"
    if isinstance(err, (yaml.YAMLError, ValueError)):
        return " ".join(str(err).replace(' in "<byte string>"', "").split())
    return f"a value does not fit its tag ({type(err).__name__})"


def _check_counts(count: int, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise ValueError(f"it is nested more than {MAX_DEPTH} levels deep")
    if count > MAX_NODES:
        raise ValueError(f"it has more than {MAX_NODES} values")


def _check(root: yaml.Node) -> None:
    """Refuse what would cost too much to construct, or would be read differently from how it looks.

    Aliases are followed, so that one within itself is too deep, and a few that repeat each other are too many.
    """
    count = 0
    todo: List[Tuple[yaml.Node, int]] = [(root, 1)]
    while todo:
        node, depth = todo.pop()
        count += 1
        _check_counts(count, depth)
        if isinstance(node, yaml.MappingNode):
            _check_keys(node)
            todo += [(child, depth + 1) for pair in node.value for child in pair]
        elif isinstance(node, yaml.SequenceNode):
            todo += [(child, depth + 1) for child in node.value]
        elif node.tag != _TEXT and len(node.value) > MAX_DIGITS:
            raise ValueError(f"line {node.start_mark.line + 1}: a number has {len(node.value)} digits")


def _check_keys(node: yaml.MappingNode) -> None:
    """Refuse a key that occurs twice: PyYAML would take the last one, and ROS merges what lies below both."""
    seen: Set[Tuple[str, str]] = set()
    for key, _ in node.value:
        if isinstance(key, yaml.ScalarNode):
            if (key.tag, key.value) in seen:
                raise ValueError(f"line {key.start_mark.line + 1}: the key {printable(key.value)} occurs twice")
            seen.add((key.tag, key.value))
