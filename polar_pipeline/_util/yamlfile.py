"""YAML files written by hand. Imports no ROS."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from polar_pipeline._util.documents import read_limited, unreadable
from polar_pipeline._util.text import printable

#: Values, lists and mappings that a hand-written file may have, each counted wherever an alias repeats it.
MAX_NODES = 20_000
#: Levels of nesting.
MAX_DEPTH = 40
#: First line of YAML files that OpenCV writes, which is not a directive of YAML.
_OPENCV = b"%YAML:1.0"


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    """Safe loader that refuses repeated keys, since ROS merges the values below both.

    Two kinds of values are read as ROS's own parser reads them: a date is text, and 1e-3 is a number.
    """

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        """Compose a mapping, as PyYAML does, and check its keys."""
        node = super().compose_mapping_node(anchor)
        seen = set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if key.value in seen:
                raise ValueError(f"line {key.start_mark.line + 1}: the key {printable(key.value)} occurs twice")
            seen.add(key.value)
        return node


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in rows if not tag.endswith(":timestamp")]
    for first, rows in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_constructor("tag:yaml.org,2002:opencv-matrix", yaml.SafeLoader.construct_yaml_map)
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)[eE][-+]?[0-9]+\Z"), list("-+.0123456789")
)


def read_yaml(path: Path, max_nodes: int = MAX_NODES) -> Any:
    """Read a YAML file as `yaml.safe_load`, but leave dates as text and read 1e-3 as a number.

    Matrices in files that OpenCV writes are mappings.

    Raises:
        ValueError: The file cannot be read, is not one YAML document, names a key twice, or is too large: more than
            `max_nodes` values or `MAX_DEPTH` levels; the message names the file.
    """
    data = read_limited(path)
    try:
        loader = _Loader(data[len(_OPENCV) :] if data.startswith(_OPENCV) else data)
        node = loader.get_single_node()
        if node is None:
            return None
        _check_size(node, max_nodes)
        return loader.construct_document(node)
    except (yaml.YAMLError, ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as err:
        # what PyYAML makes of `!!int ""` or `!!bool maybe` are errors of Python's own
        mark = getattr(err, "problem_mark", None)
        reason = " ".join(str(getattr(err, "problem", None) or err).split())
        raise unreadable(path, reason if mark is None else f"line {mark.line + 1}: {reason}") from err


def _check_size(root: yaml.Node, max_nodes: int) -> None:
    """Refuse aliases within themselves, and those that repeat each other into more than any file describes."""
    todo = [(root, 1)]
    count = 0
    while todo:
        node, depth = todo.pop()
        count += 1
        if depth > MAX_DEPTH:
            raise ValueError(f"it is nested more than {MAX_DEPTH} levels deep")
        if count > max_nodes:
            raise ValueError(f"it has more than {max_nodes} values")
        if isinstance(node, yaml.MappingNode):
            todo += [(child, depth + 1) for pair in node.value for child in pair]
        elif isinstance(node, yaml.SequenceNode):
            todo += [(child, depth + 1) for child in node.value]
