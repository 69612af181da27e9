"""The lens calibration of an output: the raw frame's, transformed by the geometry."""

from __future__ import annotations

from typing import Tuple

import numpy as np

from polar_pipeline._util.text import quoted
from polar_pipeline.geometry.lens import MODELS, CameraNumbers
from polar_pipeline.geometry.output import Geometry


def of_the_frame(camera: CameraNumbers, binning: Tuple[int, int], offset: Tuple[int, int]) -> CameraNumbers:
    """Compute the calibration of a frame from that of the sensor, as image_geometry does.

    Args:
        camera: Camera of the sensor's full resolution.
        binning: Pixels that are one along x and y; 0 means 1.
        offset: (x, y) of the region of interest in pixels of the full resolution.
    """
    scale = np.array([[1 / (binning[0] or 1)], [1 / (binning[1] or 1)]])
    matrices = []
    for matrix in (camera.k, camera.p):
        moved = matrix.copy()
        if moved.any():
            moved[:2, 2] -= offset
            moved[:2] *= scale
        matrices.append(moved)
    return CameraNumbers(matrices[0], camera.d, camera.r, matrices[1])


@np.errstate(all="ignore")  # a message may have any numbers
def of_the_output(
    camera: CameraNumbers, model: str, geometry: Geometry, source: Tuple[int, int], stride: int = 1
) -> CameraNumbers:
    """Compute the calibration of an output.

    A rotated output is that of a camera that is rotated about its optical axis: its axes, R, the tangential distortion
    and the baseline in P turn too. A rectified one has no distortion and no R left, and K is that of P.

    Args:
        camera: Camera of the frame.
        model: Its distortion model.
        geometry: Geometry of the output over the frame.
        source: (height, width) of the Stokes image.
        stride: Pixels of which the output has means in addition, as similarity maps do.

    Raises:
        ValueError: The model of the distortion, or the number of its coefficients, cannot be rotated.
    """
    offset = 0.5 / stride - 0.5
    shrink = np.array([[1 / stride, 0, offset], [0, 1 / stride, offset], [0, 0, 1]])
    pixels = shrink @ np.linalg.inv(geometry.matrix(source)) @ geometry.from_raw()
    turn = np.eye(3)
    turn[:2, :2] = np.rint(pixels[:2, :2] / np.sqrt(np.linalg.det(pixels[:2, :2])))
    k = pixels @ camera.k @ turn.T
    p = pixels @ camera.p @ np.block([[turn.T, np.zeros((3, 1))], [np.zeros((1, 3)), np.ones((1, 1))]])
    r, d = turn @ camera.r @ turn.T, camera.d.copy()
    if geometry.lens is not None:
        k, r, d = p[:, :3].copy(), np.eye(3), np.zeros(5)
    elif geometry.rotate and d.any():
        if len(d) not in MODELS.get(model, ()):
            known = ", ".join(f"{name} ({' or '.join(map(str, counts))})" for name, counts in MODELS.items())
            raise ValueError(
                f"only the distortion of {known} coefficients can be rotated, got the model {quoted(model)} ({len(d)})"
            )
        if model != "equidistant":
            d[[3, 2]] = turn[:2, :2] @ d[[3, 2]]  # p2 acts along x, p1 along y
    return CameraNumbers(*(matrix + 0.0 for matrix in (k, d, r, p)))  # no -0
