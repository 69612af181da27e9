"""Several cameras on one robot, described by a YAML file. Imports no ROS."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Tuple

from polar_pipeline._util.errors import errors_as
from polar_pipeline._util.paths import AnyPath, as_path
from polar_pipeline._util.text import printable, quoted
from polar_pipeline._util.values import number, truth
from polar_pipeline._util.yamlfile import read_yaml
from polar_pipeline.live.preset import check_parameters, find_stray, flatten
from polar_pipeline.live.rig import Sync

#: How cameras are distributed over processes: all in `one`, or `each` in one of its own.
PROCESSES = ("one", "each")
#: More cameras than a robot has: a list of thousands is a mistake, and would start as many nodes.
MAX_CAMERAS = 64
#: Characters that a full name may have: ROS allows 247, of which a node's own topics and services need up to 32.
MAX_NAME = 200
#: What a name is made of, for error messages; ROS itself would refuse it later.
RULE = f"letters, digits and single underscores, no digit first, parts joined by /, at most {MAX_NAME} characters"
_FULL = re.compile(r"(/[A-Za-z_][A-Za-z0-9_]*)+")


@dataclass(frozen=True)
class Camera:
    """One camera's node.

    Attributes:
        namespace: Namespace of the node and of its topics, from the root: `/front`.
        name: Name of the node.
        image_topic: Topic of raw frames; relative to the namespace unless it begins with `/`.
        camera_info_topic: Topic of the lens calibration, relative like `image_topic`.
        params_file: The node's parameters as a YAML file.
        parameters: Parameters that override those of the file: name with dots -> value.
        exposure_factor: Exposure time of the camera divided by that of the leader, in a rig in step.
    """

    namespace: str
    name: str = "polar_pipeline"
    image_topic: str = "image_raw"
    camera_info_topic: str = "camera_info"
    params_file: Optional[Path] = None
    parameters: Mapping[str, object] = field(default_factory=dict)
    exposure_factor: float = 1.0

    @property
    def full_name(self) -> str:
        """The node's name with its namespace."""
        return f"{self.namespace.rstrip('/')}/{self.name}"

    @property
    def remappings(self) -> List[Tuple[str, str]]:
        """Names of the node's inputs, and the topics that replace them."""
        return [("image_raw", self.image_topic), ("camera_info", self.camera_info_topic)]


@dataclass(frozen=True)
class Rig:
    """The cameras, how they are distributed over processes (`PROCESSES`), and how they are kept in step."""

    processes: str
    cameras: Tuple[Camera, ...]
    sync: Optional[Sync] = None


def read_rig(path: AnyPath, namespace: str = "") -> Rig:
    """Read a rig from a YAML file such as `config/rig.yaml`, with a prefix of the cameras' namespaces.

    Raises:
        ValueError: The file or a `params_file` cannot be read, or does not describe a rig; the message names the file,
            and the camera.
    """
    path = as_path(path)
    document = read_yaml(path)
    with errors_as(lambda text: ValueError(f"{printable(str(path))}: {printable(text, 400)}")):
        return _rig(document, path.parent, namespace)


def _rig(document: Any, folder: Path, namespace: str) -> Rig:
    _check_keys(document, ("processes", "cameras", "sync"))
    processes, rows = document.get("processes", PROCESSES[0]), document.get("cameras")
    if processes not in PROCESSES:
        raise ValueError(f"processes must be one of {', '.join(PROCESSES)}, got {quoted(processes)}")
    if not isinstance(rows, list) or not 1 <= len(rows) <= MAX_CAMERAS:
        raise ValueError(f"cameras must be a list of 1 to {MAX_CAMERAS} cameras, got {quoted(rows)}")
    cameras: List[Camera] = []
    for index, row in enumerate(rows, 1):
        try:
            cameras.append(_camera(row, folder, namespace))
        except ValueError as err:  # noqa: PERF203 - one line says which camera
            raise ValueError(f"camera {index}: {err}") from err
    names = [camera.full_name for camera in cameras]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"two cameras are called {', '.join(twice)}; give each a namespace of its own")
    if "sync" in document:
        with errors_as(lambda text: ValueError(f"sync: {text}")):
            return Rig(processes, tuple(cameras), _sync(document["sync"], processes, cameras, namespace))
    if any(camera.exposure_factor != 1 for camera in cameras):
        raise ValueError("exposure_factor needs sync, which states whose exposure it multiplies")
    return Rig(processes, tuple(cameras))


def _sync(row: Any, processes: str, cameras: List[Camera], namespace: str) -> Sync:
    _check_keys(row, ("tolerance_ms", "leader", "strict"))
    if processes != "one" or len(cameras) < 2:
        raise ValueError(f"processes: one and two cameras are needed, got {processes} and {len(cameras)}")
    name = _absolute(f"{namespace}/{row.get('leader')}")
    leaders = [camera for camera in cameras if name in (camera.namespace, camera.full_name)]
    if len(leaders) != 1 or leaders[0].exposure_factor != 1:
        names = ", ".join(camera.full_name for camera in cameras)
        raise ValueError(f"leader must be one of {names}, with exposure_factor 1, got {quoted(row.get('leader'))}")
    return Sync(
        tolerance_ms=number("tolerance_ms", row.get("tolerance_ms", 1.0), 0.001, 1000.0),
        leader=leaders[0].full_name.lstrip("/"),
        strict=truth("strict", row.get("strict", False)),
        factors={camera.full_name.lstrip("/"): camera.exposure_factor for camera in cameras},
    )


def _check_keys(row: Any, allowed: Tuple[str, ...]) -> None:
    if not isinstance(row, dict) or not set(row) <= set(allowed):
        got = printable(", ".join(map(str, row))) if isinstance(row, dict) else quoted(row)
        raise ValueError(f"a mapping with keys among {', '.join(allowed)} is needed, got {got}")


def _camera(row: Any, folder: Path, namespace: str) -> Camera:
    _check_keys(row, tuple(key.name for key in fields(Camera)))
    for name, value in row.items():
        if name not in ("parameters", "exposure_factor") and not isinstance(value, str):
            raise ValueError(f"{name} must be text, got {quoted(value)}")
    values: Dict[str, Any] = dict(row)
    values["exposure_factor"] = number("exposure_factor", row.get("exposure_factor", 1.0), 0.01, 100.0)
    values["namespace"] = _absolute(f"{namespace}/{row.get('namespace', '')}")
    parameters = row.get("parameters")
    if not isinstance(parameters, (dict, type(None))):
        raise ValueError(f"parameters must be names and values, got {quoted(parameters)}")
    values["parameters"] = flatten(parameters or {})
    check_parameters(values["parameters"])
    camera = Camera(**values)
    if not is_name(camera.full_name) or "/" in camera.name:
        called = f"namespace {quoted(camera.namespace)} and name {quoted(camera.name)}"
        raise ValueError(f"a node's name needs {RULE}, got {called}")
    if camera.params_file is not None:
        with errors_as(lambda text: ValueError(f"params_file {quoted(row['params_file'])}: {printable(text, 300)}")):
            path = folder / as_path(row["params_file"])
            stray = find_stray(path, camera.full_name)
            if stray:
                raise ValueError(stray)
        camera = replace(camera, params_file=path)
    for topic in (camera.image_topic, camera.camera_info_topic):
        if not is_name(expand(topic, camera.full_name)):
            raise ValueError(f"a topic's name needs {RULE}, got {quoted(topic)}")
    return camera


def _absolute(name: str) -> str:
    """Return a name from the root, with single slashes."""
    return "/" + "/".join(filter(None, name.split("/")))


def is_name(full: str) -> bool:
    """Return whether a text is a valid full name of a node or topic, such as `/front/polar_pipeline`."""
    # names with two underscores in a row are keywords of remapping rules, such as __node
    return len(full) <= MAX_NAME and "__" not in full and _FULL.fullmatch(full) is not None


def expand(topic: str, node: str) -> str:
    """Expand a topic's name, from the root, below the node (`~/`) or in the node's namespace, to its full name."""
    if topic.startswith("/"):
        return topic
    folder = node if topic.startswith("~/") else node.rpartition("/")[0]
    return f"{folder}/{topic[2:] if topic.startswith('~/') else topic}"
