"""A lens calibration from the YAML file that ROS's camera_calibration writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Mapping

from polar_pipeline._util.documents import unreadable
from polar_pipeline._util.values import whole_number
from polar_pipeline.geometry.lens import LensCalibration, make_lens
from polar_pipeline.sensor.frames import MAX_SIDE

#: Matrices of a file -> their names in `sensor_msgs/CameraInfo`.
_MATRICES = {
    "distortion_coefficients": "d",
    "camera_matrix": "k",
    "rectification_matrix": "r",
    "projection_matrix": "p",
}


def load_lens(path: Path) -> LensCalibration:
    """Load the lens calibration in a file.

    Raises:
        ValueError: It cannot be read, is not a lens calibration, or the camera is not calibrated; the message names it.
    """
    try:
        from polar_pipeline._util.yamlfile import read_yaml
    except ImportError as err:
        raise ValueError(f"a lens calibration in a file needs PyYAML: {err}") from err
    content = read_yaml(path)
    try:
        if not isinstance(content, Mapping):
            raise ValueError("it is not a mapping")
        size = tuple(whole_number(name, content.get(name, 0), 0, MAX_SIDE) for name in ("image_height", "image_width"))
        matrices = {short: _data(content, name) for name, short in _MATRICES.items()}
        return make_lens((size[0], size[1]), str(content.get("distortion_model", "")), **matrices)
    except ValueError as err:
        raise unreadable(path, f"{err}") from err


def _data(content: Mapping[Any, Any], name: str) -> Any:
    matrix = content.get(name)
    if not isinstance(matrix, Mapping) or not isinstance(matrix.get("data"), list):
        raise ValueError(f"{name} has no list called data")
    return matrix["data"]
