"""Parameter files: YAML that `--params-file` and the launch files take. Imports no ROS."""

from __future__ import annotations

import re
from array import array
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Container, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Set, Tuple

import yaml

from polar_pipeline._util.errors import errors_as
from polar_pipeline._util.paths import AnyPath, as_path
from polar_pipeline._util.text import did_you_mean, printable, quoted
from polar_pipeline._util.yamlfile import read_yaml
from polar_pipeline.live.parameters import PARAMETERS, check_parameter, is_ros_value

#: Longest name of a node or of a parameter in a file, in characters.
MAX_NAME = 500
#: Similarity (difflib's ratio) from which a name counts as a misspelled one of this package.
_MIN_SIMILARITY = 0.8
#: Boolean parameters that rclpy gives every node.
_SWITCHES = ("use_sim_time", "start_type_description_service")
#: Prefix of the QoS of topics, which rclpy declares when it creates them.
QOS = "qos_overrides."


class _Dumper(yaml.SafeDumper):  # type: ignore[misc]
    """YAML dumper that writes lists on one line, as in the package's own files."""


class _QuotedText(str):
    """Text that is written in quotes."""


_Dumper.add_representer(list, lambda dumper, row: dumper.represent_sequence("tag:yaml.org,2002:seq", row, True))
# Quotes, because ROS's parser reads words such as y, nan or 1e3 as truth values or numbers, and this one does not.
_Dumper.add_representer(_QuotedText, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, '"'))


def _plain(value: object) -> object:
    """Convert a parameter's value to types of YAML; ROS passes arrays as tuple, list or `array.array`."""
    if isinstance(value, (tuple, list, array)):
        return [_plain(item) for item in value]
    return _QuotedText(value) if isinstance(value, str) else value


def to_yaml(values: Mapping[str, object], title: str) -> str:
    """Format a parameter file for nodes of any name; the title is a comment in the first line."""
    tree: Dict[str, Any] = {}
    for name, value in values.items():
        *folders, leaf = name.split(".")
        folder = tree
        for part in folders:
            folder = folder.setdefault(part, {})
        folder[leaf] = _plain(value)
    text: str = yaml.dump({"/**": {"ros__parameters": tree}}, Dumper=_Dumper, sort_keys=False)
    return f"# {printable(title)}\n{text}"


def from_yaml(path: Path) -> Dict[str, object]:
    """Read the parameters of a node of this package from a parameter file.

    The file's values for every node (`/**`) apply first, then those for the one node that it names. Unknown parameters
    and values that are not allowed raise ValueError.
    """
    nodes = read_nodes(path)
    everyone = nodes.pop("/**", {})
    if len(nodes) > 1:
        raise _wrong(path, f"has parameters of several nodes: {', '.join(nodes)}")
    values = {**everyone, **next(iter(nodes.values()), {})}
    with errors_as(lambda text: _wrong(path, f"contains invalid parameters: {text}")):
        check_parameters(values)
    return {name: value for name, value in values.items() if name in PARAMETERS}


def check_parameters(values: Mapping[str, object]) -> None:
    """Raise ValueError for parameters that a node of this package does not have, and values that are not allowed."""
    foreign = [name for name in values if not is_known(name)]
    if foreign:
        hint = did_you_mean(foreign[0], PARAMETERS)
        raise ValueError(f"no parameter of this package is called {printable(', '.join(foreign))}{hint}")
    for name, value in values.items():
        if name in PARAMETERS:
            check_parameter(name, value)
        elif name in _SWITCHES and not isinstance(value, bool):
            raise ValueError(f"{name} must be true or false, got {quoted(value)}")
        elif not is_ros_value(value):
            raise ValueError(f"{printable(name)} must be a truth value, a number or text, got {quoted(value)}")


def is_known(name: str) -> bool:
    """Return whether a node of this package has a parameter of this name, including the parameters of rclpy."""
    return name in PARAMETERS or name in _SWITCHES or name.startswith(QOS)


def params_files(argv: Sequence[str]) -> List[Path]:
    """List the files that a command line names with `--params-file` between `--ros-args` and `--`."""
    paths: List[Path] = []
    is_ros, words = False, iter(argv)
    for word in words:
        if word in ("--ros-args", "--"):
            is_ros = word == "--ros-args"
        elif is_ros and word == "--params-file":
            paths += [Path(path) for path in [next(words, "")] if path]
    return paths


def judge_unknown(
    names: Iterable[str], node: str, files: Iterable[Path], own_names: Iterable[str] = PARAMETERS
) -> Tuple[List[str], List[str]]:
    """Sort the unknown parameters given to a node into mistakes and parameters that may be meant for other nodes.

    A parameter counts as another node's if a file has it below a pattern such as `/**`, not below this node's name,
    and it does not resemble any parameter that this node has; its QoS parameters resemble those of its own topics only.

    Returns:
        The mistakes, each with the name it was probably meant to be, and the parameters of other nodes.
    """
    shared: Set[str] = set()
    own: Set[str] = set()
    for path in files:
        with suppress(ValueError):  # what only ROS can read counts as the node's own
            for pattern, values in read_nodes(path).items():
                if "*" in pattern:
                    shared.update(values)
                elif pattern.strip("/") == node.strip("/"):
                    own.update(values)
    own_names = list(own_names)
    groups = tuple({f"{name.rpartition('.')[0]}." for name in own_names if "." in name})
    wrong, foreign = [], []
    for name in names:
        close = get_close_matches(name[:MAX_NAME], own_names, 1, _MIN_SIMILARITY)
        resembles = name.startswith(groups) or (bool(close) and not name.startswith(QOS))
        if name in shared - own and not resembles:
            foreign.append(name)
        else:
            wrong.append(printable(name) + (f" (perhaps {close[0]})" if close else ""))
    return wrong, foreign


def find_stray(path: AnyPath, node: str, applied: Optional[Container[str]] = None) -> str:
    """Describe a parameter file that has nothing for a node, which ROS would ignore without a word; else return "".

    `applied` has the names of the parameters that the node was given: before Kilted, rclpy knows no pattern but `/**`.
    """
    nodes = {f"/{name.lstrip('/')}": values for name, values in read_nodes(path).items()}
    for name, values in nodes.items():
        pattern = re.escape(name).replace(r"/\*\*", r"(/\w+)*").replace(r"/\*", r"/\w+")
        is_applied = applied is None or name == "/**" or any(each in applied for each in values)
        if is_applied and re.fullmatch(pattern, node):
            return ""
    return f"{printable(str(path))} is for {printable(', '.join(nodes)) or 'no node'}, not for {node} or /**"


def read_nodes(path: AnyPath) -> Dict[str, Dict[str, object]]:
    """Read the parameters of nodes of any package from a file, by node; ValueError if it is not a parameter file."""
    path = as_path(path)
    document = read_yaml(path)
    nodes: Dict[str, Dict[str, object]] = {}
    with errors_as(lambda text: _wrong(path, f"is not a file of ROS parameters: {text}")):
        for name, parameters in _nodes(document):
            if name in nodes:
                raise ValueError(f"the node {printable(name)} occurs twice")
            nodes[name] = flatten(parameters)
    return nodes


def _nodes(tree: Any, folder: str = "") -> Iterator[Tuple[str, Mapping[Any, Any]]]:
    """Yield names of nodes with their parameters; a namespace may be a level of its own."""
    if not isinstance(tree, dict):
        raise ValueError(
            f"{printable(folder) or 'it'} must have names of nodes, then ros__parameters; got {quoted(tree)}"
        )
    for name, below in tree.items():
        if name == "ros__parameters":
            if not folder or not isinstance(below, dict):
                raise ValueError(f"ros__parameters must be names and values below a node's name, got {quoted(below)}")
            yield folder, below
            continue
        if not isinstance(name, str):
            raise ValueError(f"the name of a node must be text, got {quoted(name)}")
        yield from _nodes(below, _short(f"{folder}/{name}" if folder else name))


def _short(name: str) -> str:
    """Refuse a name so long that a file could multiply it into gigabytes."""
    if len(name) > MAX_NAME:
        raise ValueError(f"a name has {len(name)} characters, more than {MAX_NAME}")
    return name


def _wrong(path: Path, reason: str) -> ValueError:
    return ValueError(f"{printable(str(path))} {printable(reason, 400)}")


def flatten(tree: Mapping[object, object], prefix: str = "") -> Dict[str, object]:
    """Flatten nested parameters to names with dots; the inverse of the nesting in `to_yaml`.

    A name must not occur twice, such as `raw: {flip: ...}` beside `raw.flip: ...`.
    """
    flat: Dict[str, object] = {}
    for key, value in tree.items():
        name = _short(f"{prefix}{key}")
        for each, inner in (flatten(value, f"{name}.") if isinstance(value, Mapping) else {name: value}).items():
            if each in flat:
                raise ValueError(f"the parameter {printable(each)} occurs twice")
            flat[each] = inner
    return flat
