"""A lens calibration in the terms of `sensor_msgs/CameraInfo`: K, D, R and P; and its file."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Dict, List, Mapping, NamedTuple, Sequence, Tuple

import numpy as np

from polar_pipeline._util.documents import unreadable
from polar_pipeline._util.paths import AnyPath, as_path
from polar_pipeline._util.text import quoted
from polar_pipeline._util.values import real, sequence, whole_number
from polar_pipeline.sensor.frames import MAX_SIDE

#: Matrices of a file, D, K, R and P in `sensor_msgs/CameraInfo` -> their shapes; one row or column of any length for D.
_MATRICES = {
    "distortion_coefficients": (0, 0),
    "camera_matrix": (3, 3),
    "rectification_matrix": (3, 3),
    "projection_matrix": (3, 4),
}
#: Those without which a file is refused. Without the others, nothing is rotated, and the camera matrix projects.
_REQUIRED = ("distortion_coefficients", "camera_matrix")
#: Distortion model -> the numbers of coefficients that it can have.
MODELS: Dict[str, Tuple[int, ...]] = {"plumb_bob": (4, 5), "rational_polynomial": (8,), "equidistant": (4,)}
#: Most coefficients of a model. OpenCV writes more for thin prisms and tilted sensors, which are 0 of other lenses.
_MOST_TERMS = 8
#: Condition number of a camera matrix from which it cannot be inverted; those of cameras are below 1e7.
_MAX_CONDITION = 1e12


class CameraNumbers(NamedTuple):
    """The matrices of a `sensor_msgs/CameraInfo` as (3, 3), (n,), (3, 3) and (3, 4); zeros where they are not known."""

    k: np.ndarray
    d: np.ndarray
    r: np.ndarray
    p: np.ndarray


@dataclass(frozen=True)
class LensCalibration:
    """The lens in front of a camera. Build it with `make_lens`, which validates.

    Pixel centers have integer coordinates.

    Attributes:
        height: Rows of the raw frames that it is of; 0 for frames of any size.
        width: Columns of these.
        model: One of `MODELS`.
        d: Coefficients of the model.
        k: (9,) camera matrix of the raw image, row by row.
        r: (9,) rotation from the camera to its rectified axes.
        p: (12,) projection onto the rectified image.
        is_recorded: Whether it came with recorded frames, all of which must have the same one.
    """

    height: int
    width: int
    model: str
    d: Tuple[float, ...]
    k: Tuple[float, ...]
    r: Tuple[float, ...]
    p: Tuple[float, ...]
    is_recorded: bool = field(default=False, compare=False, repr=False)

    def matrix(self, name: str) -> np.ndarray:
        """Return `k` or `r` as (3, 3), or `p` as (3, 4)."""
        return np.array(getattr(self, name), np.float64).reshape(3, -1)

    def numbers(self) -> CameraNumbers:
        """Return the calibration's numbers as matrices."""
        return CameraNumbers(self.matrix("k"), np.array(self.d), self.matrix("r"), self.matrix("p"))

    def describe(self) -> str:
        """Describe the calibration in a few words."""
        return f"{self.model}, {self.width}x{self.height}, focal length {self.p[0]:.1f} pixels"


@np.errstate(all="ignore")  # a message may have any numbers
def make_lens(
    size: Tuple[int, int], model: str, d: Sequence[float], k: Sequence[float], r: Sequence[float], p: Sequence[float]
) -> LensCalibration:
    """Validate a lens calibration.

    Args:
        size: (height, width) of the raw frames; zeros for any.
        model: One of `MODELS`; "" for a lens without distortion.
        d: Its coefficients; none for a lens without distortion.
        k: (9,) camera matrix.
        r: (9,) rotation; zeros for none.
        p: (12,) projection; zeros to keep the camera matrix.

    Raises:
        ValueError: The camera is not calibrated, the model is unknown, or a number is impossible.
    """
    if not model and not len(d):
        model, d = "plumb_bob", (0.0,) * 5
    if model not in MODELS:
        raise ValueError(f"the distortion model must be one of {', '.join(MODELS)}, got {quoted(model)}")
    if len(d) not in MODELS[model]:
        allowed = " or ".join(map(str, MODELS[model]))
        raise ValueError(f"the model {model} has {allowed} coefficients, got {len(d)}")
    matrices = {name: _numbers(name, row, count) for name, row, count in (("k", k, 9), ("r", r, 9), ("p", p, 12))}
    if not any(matrices["r"]):
        matrices["r"] = (1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0)
    if not any(matrices["p"]):
        rows = matrices["k"]
        matrices["p"] = (*rows[:3], 0.0, *rows[3:6], 0.0, *rows[6:], 0.0)
    lens = LensCalibration(*size, model, _numbers("d", d, len(d)), matrices["k"], matrices["r"], matrices["p"])
    for name in ("k", "p"):
        matrix = lens.matrix(name)
        is_camera = matrix[0, 0] > 0 and matrix[1, 1] > 0 and tuple(matrix[2, :3]) == (0.0, 0.0, 1.0)
        if not (is_camera and np.linalg.cond(matrix[:, :3]) < _MAX_CONDITION):
            raise ValueError(f"{name} is not a camera matrix (is the camera calibrated?), got {quoted(matrices[name])}")
    rotation = lens.matrix("r")
    if not np.allclose(rotation @ rotation.T, np.eye(3), atol=1e-3) or np.linalg.det(rotation) < 0:
        raise ValueError(f"r is not a rotation, got {quoted(matrices['r'])}")
    return lens


def _numbers(name: str, values: Any, count: int) -> Tuple[float, ...]:
    numbers = tuple(real(name, value) for value in sequence(values, count))
    if len(numbers) != count or not np.isfinite(numbers).all():
        raise ValueError(f"{name} must be {count} finite numbers, got {quoted(values)}")
    return numbers


def load_lens(path: AnyPath) -> LensCalibration:
    """Load the lens calibration in a YAML file of ROS's camera_calibration, or a YAML or JSON file of OpenCV.

    Raises:
        ValueError: The file cannot be read, is not a lens calibration, or is of a camera that is not calibrated; the
            message names the file.
    """
    from polar_pipeline._util.yamlfile import read_yaml  # a pipeline without such a file loads no YAML

    path = as_path(path)
    content = read_yaml(path)
    try:
        if not isinstance(content, Mapping):
            raise ValueError("it is not a mapping in YAML or JSON")
        facts = {_key(name): value for name, value in content.items()}
        if len(facts) < len(content):
            raise ValueError("a name occurs twice, written in two ways")
        height, width = (
            whole_number(f"image_{x}", facts.get(f"image{x}", 0), 0, MAX_SIDE) for x in ("height", "width")
        )
        d, k, r, p = (_numbers_of(facts, name, shape) for name, shape in _MATRICES.items())
        if not any(d[_MOST_TERMS:]):
            d = d[:_MOST_TERMS]
        return make_lens((height, width), _model(facts, len(d)), d, k, r, p)
    except ValueError as err:
        raise unreadable(path, f"{err}") from err


def _key(name: object) -> str:
    """Return a name as it is compared: OpenCV's programs write Camera_Matrix, camera_matrix and cameraMatrix."""
    key = str(name).replace("_", "").lower()
    return "distortioncoefficients" if key == "distcoeffs" else key


def _numbers_of(facts: Mapping[str, Any], name: str, shape: Tuple[int, int]) -> List[Any]:
    """Return the numbers of a matrix, row by row; none for one that may be missing."""
    matrix = facts.get(_key(name))
    if matrix is None and name not in _REQUIRED:
        return [0.0] * (shape[0] * shape[1])
    if not isinstance(matrix, Mapping) or not isinstance(matrix.get("data"), list):
        raise ValueError(f"{name} has no list called data")
    data: List[Any] = matrix["data"]
    stated = (matrix.get("rows", shape[0]), matrix.get("cols", shape[1]))
    if stated not in (shape, (1, len(data)), (len(data), 1)):
        raise ValueError(f"{name} has {len(data)} numbers, and states {quoted(stated)} rows and columns")
    return data


def _model(facts: Mapping[str, Any], count: int) -> str:
    """Return the distortion model that a file states, or that its number of coefficients shows."""
    is_fisheye = bool(facts.get("fisheyemodel"))
    model = str(facts.get("distortionmodel") or ("equidistant" if is_fisheye else ""))
    if is_fisheye and model != "equidistant":
        raise ValueError(f"distortion_model {quoted(model)} contradicts fisheye_model")
    if model or not count:
        return model
    names = [name for name, counts in MODELS.items() if count in counts]
    if len(names) != 1:
        several = f"need a distortion_model, {' or '.join(names)}" if names else f"are of none of {', '.join(MODELS)}"
        raise ValueError(f"{count} distortion coefficients {several}")
    return names[0]
