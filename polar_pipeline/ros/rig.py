"""Several cameras on one robot, as a YAML file says. Imports no ROS."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Tuple

import yaml

from polar_pipeline.ros.parameters import PARAMETERS
from polar_pipeline.ros.preset import flatten

#: How cameras are spread over processes: all in `one`, or `each` in one of its own.
PROCESSES = ("one", "each")


class Camera(NamedTuple):
    """One camera's node.

    Attributes:
        namespace: Of the node and of its topics, from the root: `/front`.
        name: Of the node.
        image_topic: Where raw frames come from; relative to the namespace unless it begins with `/`.
        camera_info_topic: The same for the camera's calibration.
        params_file: The node's parameters as a YAML file.
        parameters: More of them, which win: name with dots -> value.
    """

    namespace: str
    name: str = "polar_pipeline"
    image_topic: str = "image_raw"
    camera_info_topic: str = "camera_info"
    params_file: Optional[Path] = None
    parameters: Mapping[str, Any] = {}

    @property
    def full_name(self) -> str:
        """The node's name with its namespace."""
        return f"{self.namespace.rstrip('/')}/{self.name}"

    @property
    def remappings(self) -> List[Tuple[str, str]]:
        """Names of the node's inputs, and the topics in their place."""
        return [("image_raw", self.image_topic), ("camera_info", self.camera_info_topic)]


class Rig(NamedTuple):
    """The cameras, and how they are spread over processes (`PROCESSES`)."""

    processes: str
    cameras: Tuple[Camera, ...]


def read_rig(path: Path, namespace: str = "") -> Rig:
    """A rig from a YAML file; `config/rig.yaml` shows one.

    Args:
        path: The file.
        namespace: In front of the cameras' own namespaces.

    Raises:
        ValueError: The file cannot be read, or says something that no rig can be; the message names the camera.
    """
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as err:
        raise ValueError(f"{path} cannot be read: {err}") from err
    _check(str(path), document, ("processes", "cameras"))
    processes, rows = document.get("processes", PROCESSES[0]), document.get("cameras")
    if processes not in PROCESSES:
        raise ValueError(f"{path}: processes must be one of {', '.join(PROCESSES)}, got {processes!r}")
    if not isinstance(rows, list) or not rows:
        raise ValueError(f"{path}: cameras must be a list of at least one, got {rows!r}")
    cameras = tuple(_camera(f"{path}: camera {k}", row, path.parent, namespace) for k, row in enumerate(rows, 1))
    names = [camera.full_name for camera in cameras]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"{path}: two cameras are called {', '.join(twice)}; give each a namespace of its own")
    return Rig(processes, cameras)


def _check(where: str, row: Any, allowed: Tuple[str, ...]) -> None:
    if not isinstance(row, dict) or not set(row) <= set(allowed):
        got = ", ".join(map(str, row)) if isinstance(row, dict) else repr(row)
        raise ValueError(f"{where} must have keys among {', '.join(allowed)}; got {got}")


def _camera(where: str, row: Any, folder: Path, namespace: str) -> Camera:
    _check(where, row, Camera._fields)
    texts = {name: value for name, value in row.items() if name != "parameters"}
    wrong = {name: value for name, value in texts.items() if not isinstance(value, str)}
    if wrong:
        raise ValueError(f"{where}: {', '.join(wrong)} must be text, got {', '.join(map(repr, wrong.values()))}")
    values: Dict[str, Any] = dict(texts)
    values["namespace"] = "/" + "/".join(filter(None, f"{namespace}/{row.get('namespace', '')}".split("/")))
    if "params_file" in row:
        values["params_file"] = folder / Path(row["params_file"]).expanduser()
        if not values["params_file"].is_file():
            raise ValueError(f"{where}: params_file {values['params_file']} does not exist")
    parameters = row.get("parameters") or {}
    if not isinstance(parameters, dict):
        raise ValueError(f"{where}: parameters must be names and values, got {parameters!r}")
    values["parameters"] = flatten(parameters)
    unknown = [name for name in values["parameters"] if not _is_parameter(name)]
    if unknown:
        raise ValueError(f"{where}: no parameter is called {', '.join(unknown)}")
    return Camera(**values)


def _is_parameter(name: str) -> bool:
    """Whether a node has it: this package's own, and what ROS gives every node."""
    return name in PARAMETERS or name == "use_sim_time" or name.startswith("qos_overrides.")
