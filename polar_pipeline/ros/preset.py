"""Parameters as YAML that `--params-file` and the launch files take. Imports no ROS."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, Mapping

import yaml

from polar_pipeline.ros.parameters import PARAMETERS, Parameter

#: What rclpy gives every node.
_OF_EVERY_NODE = ("use_sim_time", "qos_overrides", "start_type_description_service")


class _Dumper(yaml.SafeDumper):  # type: ignore[misc]
    """Lists on one line, as in the package's own files."""


class _Text(str):
    """A value, not a name."""


_Dumper.add_representer(list, lambda dumper, row: dumper.represent_sequence("tag:yaml.org,2002:seq", row, True))
# in quotes: ROS's parser takes words for numbers or truth values that this one does not, such as y, nan or 1e3
_Dumper.add_representer(_Text, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, '"'))


def plain(value: Any) -> Any:
    """A parameter's value as YAML knows it: ROS hands arrays over as tuple, list or `array.array`."""
    if isinstance(value, str):
        return _Text(value)
    return value if isinstance(value, (bool, int, float)) else list(value)


def changed(values: Mapping[str, Any]) -> Dict[str, Any]:
    """Those that differ from their defaults."""
    return {name: value for name, value in values.items() if plain(value) != plain(PARAMETERS[name].default)}


def to_yaml(values: Mapping[str, Any], title: str) -> str:
    """A parameter file for nodes of any name.

    Args:
        values: Name, with dots between its parts, -> value.
        title: A comment above.
    """
    tree: Dict[str, Any] = {}
    for name, value in values.items():
        *folders, leaf = name.split(".")
        folder = tree
        for part in folders:
            folder = folder.setdefault(part, {})
        folder[leaf] = plain(value)
    text: str = yaml.dump({"/**": {"ros__parameters": tree}}, Dumper=_Dumper, sort_keys=False)
    return f"# {title}\n{text}"


def from_yaml(path: Path) -> Dict[str, Any]:
    """Every parameter's value by a file that `--params-file` takes; what it does not name has its default.

    Those of every node (`/**`) come first, then those of the only node that the file names.

    Raises:
        OSError: It cannot be read.
        ValueError: It is no such file, or names another parameter than this package's, or one of another type.
    """
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
        nodes = {name: flatten(node["ros__parameters"]) for name, node in document.items()}
    except (AttributeError, KeyError, TypeError, ValueError, yaml.YAMLError) as err:
        raise ValueError(f"{path} is no file of ROS parameters: {err!r}") from err
    everyone = nodes.pop("/**", {})
    if len(nodes) > 1:
        raise ValueError(f"{path} has parameters of several nodes: {', '.join(nodes)}")
    found = {**everyone, **next(iter(nodes.values()), {})}
    foreign = [name for name in found if name not in PARAMETERS and name.split(".")[0] not in _OF_EVERY_NODE]
    if foreign:
        raise ValueError(f"{path}: no parameter of this package is called {', '.join(foreign)}")
    for name, row in PARAMETERS.items():
        if name in found and not _is_like(row, found[name]):
            raise ValueError(f"{path}: {name} must be of the kind of {plain(row.default)!r}, got {found[name]!r}")
    return {name: found.get(name, row.default) for name, row in PARAMETERS.items()}


def _is_like(row: Parameter, value: Any) -> bool:
    """Whether a value is of a parameter's type; whole numbers do for others."""
    kinds = {float: (int, float), tuple: (list,)}.get(type(row.default), (type(row.default),))
    return row.dynamic or (isinstance(value, kinds) and isinstance(value, bool) == isinstance(row.default, bool))


def flatten(tree: Mapping[str, Any], prefix: str = "") -> Dict[str, Any]:
    """Nested parameters by names with dots between their parts, the inverse of what `to_yaml` does."""
    flat: Dict[str, Any] = {}
    for name, value in tree.items():
        flat.update(flatten(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {f"{prefix}{name}": value})
    return flat
