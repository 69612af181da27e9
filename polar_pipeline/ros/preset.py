"""Parameters as YAML that `--params-file` and the launch files take. Imports no ROS."""

from __future__ import annotations

from typing import Any, Dict, Mapping

import yaml

from polar_pipeline.ros.parameters import PARAMETERS


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


def flatten(tree: Mapping[str, Any], prefix: str = "") -> Dict[str, Any]:
    """Nested parameters by names with dots between their parts, the inverse of what `to_yaml` does."""
    flat: Dict[str, Any] = {}
    for name, value in tree.items():
        flat.update(flatten(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {f"{prefix}{name}": value})
    return flat
