"""Parameters as YAML that `--params-file` and the launch files take. Imports no ROS."""

from __future__ import annotations

from array import array
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Sequence, Set, Tuple

import yaml

from polar_pipeline._util.text import printable, quoted
from polar_pipeline.ros.parameters import PARAMETERS, is_ros_value
from polar_pipeline.ros.yamlfile import read_yaml

#: Characters that the name of a node or of a parameter in a file may have.
MAX_NAME = 500
#: How much a name has to be like one of this package's to be taken for it misspelled, as difflib counts.
LIKENESS = 0.8
#: Switches that rclpy gives every node; it has parameters below `qos_overrides` too.
_SWITCHES = ("use_sim_time", "start_type_description_service")
_QOS = "qos_overrides."


class _Dumper(yaml.SafeDumper):  # type: ignore[misc]
    """Lists on one line, as in the package's own files."""


class _Text(str):
    """A value, not a name."""


_Dumper.add_representer(list, lambda dumper, row: dumper.represent_sequence("tag:yaml.org,2002:seq", row, True))
# in quotes: ROS's parser takes words for numbers or truth values that this one does not, such as y, nan or 1e3
_Dumper.add_representer(_Text, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, '"'))


def plain(value: Any) -> Any:
    """A parameter's value as YAML knows it: ROS hands arrays over as tuple, list or `array.array`.

    Raises:
        ValueError: A parameter cannot have it.
    """
    if isinstance(value, (tuple, list, array)):
        value = tuple(value)
    if not is_ros_value(value):
        raise ValueError(f"no parameter can be {quoted(value)}")
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    return _Text(value) if isinstance(value, str) else value


def changed(values: Mapping[str, Any]) -> Dict[str, Any]:
    """Those that differ from their defaults."""
    return {name: value for name, value in values.items() if plain(value) != plain(PARAMETERS[name].default)}


def to_yaml(values: Mapping[str, Any], title: str) -> str:
    """A parameter file for nodes of any name.

    Args:
        values: Name, with dots between its parts, -> value.
        title: A comment above.

    Raises:
        ValueError: No file can hold a value; the message names the parameter.
    """
    tree: Dict[str, Any] = {}
    for name, value in values.items():
        *folders, leaf = name.split(".")
        folder = tree
        for part in folders:
            folder = folder.setdefault(part, {})
        try:
            folder[leaf] = plain(value)
        except ValueError as err:
            raise ValueError(f"{name}: {err}") from err
    text: str = yaml.dump({"/**": {"ros__parameters": tree}}, Dumper=_Dumper, sort_keys=False)
    return f"# {printable(title)}\n{text}"


def from_yaml(path: Path) -> Dict[str, Any]:
    """Every parameter's value by a file that `--params-file` takes; what it does not name has its default.

    Those of every node (`/**`) come first, then those of the only node that the file names.

    Raises:
        ValueError: The file cannot be read, is no such file, names another parameter than this package's, or a value
            that is not allowed; the message names the file.
    """
    nodes = read_nodes(path)
    everyone = nodes.pop("/**", {})
    if len(nodes) > 1:
        raise _wrong(path, f"has parameters of several nodes: {', '.join(nodes)}")
    found = {**everyone, **next(iter(nodes.values()), {})}
    try:
        check(found)
    except ValueError as err:
        raise _wrong(path, f"says what no node takes: {err}") from err
    return {name: found.get(name, row.default) for name, row in PARAMETERS.items()}


def check(values: Mapping[str, Any]) -> None:
    """Refuse parameters that a node of this package has not, or cannot have the value of.

    Raises:
        ValueError: With the name of the parameter.
    """
    foreign = [name for name in values if not is_known(name)]
    if foreign:
        raise ValueError(f"no parameter of this package is called {printable(', '.join(foreign))}")
    for name, value in values.items():
        if name in PARAMETERS:
            PARAMETERS[name].checked(value)
        elif name in _SWITCHES and not isinstance(value, bool):
            raise ValueError(f"{name} must be true or false, got {quoted(value)}")
        elif not is_ros_value(value):
            raise ValueError(f"{printable(name)} must be a truth value, a number or text, got {quoted(value)}")


def is_known(name: str) -> bool:
    """Whether a node of this package has a parameter of this name, rclpy's own included."""
    return name in PARAMETERS or name in _SWITCHES or name.startswith(_QOS)


def params_files(argv: Sequence[str]) -> List[Path]:
    """The files that a command line names with `--params-file`, as ROS reads it: between `--ros-args` and `--`."""
    found: List[Path] = []
    is_ros, words = False, iter(argv)
    for word in words:
        if word in ("--ros-args", "--"):
            is_ros = word == "--ros-args"
        elif is_ros and word == "--params-file":
            found += [Path(path) for path in [next(words, "")] if path]
    return found


def judge_unknown(names: Iterable[str], node: str, files: Iterable[Path]) -> Tuple[List[str], List[str]]:
    """Which of the unknown parameters given to a node are mistakes, and which may be meant for other nodes.

    Those of other nodes stand in a file below a pattern such as `/**`, not below this node's name, and are not like
    any of this package's.

    Args:
        names: Of the parameters.
        node: Its name, with its namespace.
        files: Files of parameters that it was given.

    Returns:
        Mistakes, each with the name that it may have been meant to be; then those of other nodes.
    """
    shared: Set[str] = set()
    own: Set[str] = set()
    for path in files:
        with suppress(ValueError):  # of a file that ROS reads and this package does not, all is the node's own
            for pattern, values in read_nodes(path).items():
                if "*" in pattern:
                    shared.update(values)
                elif pattern.strip("/") == node.strip("/"):
                    own.update(values)
    groups = {name.split(".")[0] for name in PARAMETERS if "." in name}
    wrong, foreign = [], []
    for name in names:
        close = get_close_matches(name[:MAX_NAME], PARAMETERS, 1, LIKENESS)
        if name in shared - own and not close and name.split(".")[0] not in groups:
            foreign.append(name)
        else:
            wrong.append(printable(name) + (f" (perhaps {close[0]})" if close else ""))
    return wrong, foreign


def read_nodes(path: Path) -> Dict[str, Dict[str, Any]]:
    """A file of parameters, of nodes of any package: name of a node, as the file has it, -> its parameters.

    Raises:
        ValueError: The file cannot be read, or is none of parameters; the message names it.
    """
    document = read_yaml(path)
    nodes: Dict[str, Dict[str, Any]] = {}
    try:
        for name, parameters in _nodes(document):
            if name in nodes:
                raise ValueError(f"the node {printable(name)} occurs twice")
            nodes[name] = flatten(parameters)
    except ValueError as err:
        raise _wrong(path, f"is no file of ROS parameters: {err}") from err
    return nodes


def _nodes(tree: Any, folder: str = "") -> Iterator[Tuple[str, Mapping[Any, Any]]]:
    """Names of nodes with their parameters; namespaces may be levels of their own."""
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
    """A name of a length that a file of any size may repeat."""
    if len(name) > MAX_NAME:
        raise ValueError(f"a name has {len(name)} characters, more than {MAX_NAME}")
    return name


def _wrong(path: Path, reason: str) -> ValueError:
    return ValueError(f"{printable(str(path))} {printable(reason, 400)}")


def flatten(tree: Mapping[Any, Any], prefix: str = "") -> Dict[str, Any]:
    """Nested parameters by names with dots between their parts, the inverse of what `to_yaml` does.

    Raises:
        ValueError: A name is too long, or occurs twice, such as `raw: {flip: ...}` beside `raw.flip: ...`.
    """
    flat: Dict[str, Any] = {}
    for key, value in tree.items():
        name = _short(f"{prefix}{key}")
        for each, inner in (flatten(value, f"{name}.") if isinstance(value, Mapping) else {name: value}).items():
            if each in flat:
                raise ValueError(f"the parameter {printable(each)} occurs twice")
            flat[each] = inner
    return flat
