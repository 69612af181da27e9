"""Calibration sessions of simulated sensors, and an independent correction to judge calibrations by."""

from __future__ import annotations

from typing import Dict, Optional, Tuple

import numpy as np

from polar_pipeline.calibration import PixelParameters
from polar_pipeline.sensor.frames import RawFrame
from polar_pipeline.tools.calibrate.estimate import CalibrationResult, calibrate
from polar_pipeline.tools.calibrate.simulation import Bench, SimulatedSensor, synthetic_session
from polar_pipeline.tools.calibrate.sums import DARK, SessionSums

#: What the issue asks for: 18 angles over half a turn, 16 frames of each, 64 dark frames.
BENCH = Bench(tuple(range(0, 180, 10)))


def record(camera: SimulatedSensor, bench: Bench = BENCH, bit_depth: int = 12, seed: int = 1) -> SessionSums:
    """The sums over a session's frames; settings are named by their numbers."""
    sums = SessionSums(camera.sensor)
    for setting, _, mosaic in synthetic_session(camera, bench, bit_depth, seed):
        sums.add(DARK if setting < 0 else str(setting), RawFrame(mosaic, (1 << bit_depth) - 1))
    return sums


def estimate(
    camera: SimulatedSensor,
    bench: Bench = BENCH,
    bit_depth: int = 12,
    angles: Optional[Dict[int, Optional[float]]] = None,
    is_flat_field: bool = False,
) -> CalibrationResult:
    """The calibration from a session; `angles` replaces the known ones by setting."""
    known: Dict[str, Optional[float]] = {str(k): angle for k, angle in enumerate(bench.angles)}
    known.update({str(k): angle for k, angle in (angles or {}).items()})
    return calibrate(record(camera, bench, bit_depth), known, camera.sensor, (0, 0), is_flat_field)


def electrons(camera: SimulatedSensor, bench: Bench) -> float:
    """Electrons that a pixel collects in the frames of the polarizer, on average."""
    return camera.full_well * bench.light / 2 * bench.frames * len(bench.angles)


def true_parameters(camera: SimulatedSensor, flat_field: bool = False) -> PixelParameters:
    """The parameters that a perfect calibration finds; those of defective pixels are meaningless."""
    sensor, (height, width) = camera.sensor, camera.shape
    angles = np.deg2rad(np.tile(sensor.angles, (height // 2, width // 2)))
    colors = np.tile(sensor.colors or [[0] * 4] * 4, (height // 4, width // 4))
    turned = 2 * (angles + np.deg2rad(camera.deviation))
    m = (camera.extinction - 1) / (camera.extinction + 1)
    gain = camera.gain * camera.shade if flat_field else camera.gain
    used, u = camera.defects == 0, np.ones(camera.shape)
    for color in np.unique(colors):
        own = used & (colors == color)
        u[own] = gain[own].mean() / gain[own]
    return PixelParameters(camera.black, u, *inverted_terms(m * np.cos(turned), m * np.sin(turned), angles))


def inverted_terms(
    cosine: np.ndarray, sine: np.ndarray, angles: np.ndarray, phase: Tuple[int, int] = (0, 0)
) -> Tuple[np.ndarray, np.ndarray]:
    """e1 and e2 that make pixels ideal: what they lack of cos 2t and sin 2t, times the inverse of their superpixel.

    Args:
        cosine: (H, W), the factors of S1.
        sine: (H, W), the factors of S2.
        angles: (H, W), nominal angles t in rad.
        phase: (row, column) of the first pixel in its superpixel; one that is cut has the inverse of the next.
    """
    seen, ideal = np.stack([cosine, sine], -1), np.stack([np.cos(2 * angles), np.sin(2 * angles)], -1)
    first = [
        np.clip((np.arange(size) + start) // 2 * 2 - start, start, start + (size - start) // 2 * 2 - 2)
        for size, start in zip(angles.shape, phase)
    ]
    at = [np.ix_(first[0] + row, first[1] + column) for row in range(2) for column in range(2)]
    # S1 = I0 - I90 and S2 = I45 - I135: each pixel of the superpixel counts by its ideal factors
    matrices = sum(ideal[place][..., :, np.newaxis] * seen[place][..., np.newaxis, :] / 2 for place in at)
    terms = ((ideal - seen) / 2)[..., np.newaxis, :] @ np.linalg.inv(matrices)
    return terms[..., 0, 0], terms[..., 0, 1]


def superpixels(mosaic: np.ndarray, camera: SimulatedSensor) -> Tuple[np.ndarray, np.ndarray, np.ndarray]:
    """S0, S1, S2 of each superpixel of a mosaic of light, each pixel where it is."""
    seen = {}
    for row in range(2):
        for column in range(2):
            seen[camera.sensor.angles[row][column]] = mosaic[row::2, column::2]
    return (seen[0] + seen[45] + seen[90] + seen[135]) / 2, seen[0] - seen[90], seen[45] - seen[135]


def corrected(light: np.ndarray, parameters: PixelParameters, camera: SimulatedSensor) -> np.ndarray:
    """The light by z = (I - d) u, then z + e1 S1 + e2 S2 with S1 and S2 from z of its own superpixel; float64."""
    z = (light - parameters.black) * parameters.gain
    _, s1, s2 = (np.repeat(np.repeat(image, 2, 0), 2, 1) for image in superpixels(z, camera))
    return z + parameters.e1 * s1 + parameters.e2 * s2


def polarization_errors(
    camera: SimulatedSensor, dolp: float, parameters: Optional[PixelParameters], black: np.ndarray
) -> Tuple[float, float]:
    """Root mean square errors of DoLP and AoLP (degrees) in even light without noise, S0 = 1, over all directions.

    Args:
        camera: The sensor.
        dolp: Of the light.
        parameters: Of the correction; None subtracts `black` only.
        black: (H, W), measured black level.
    """
    degrees, angles = [], []
    for aolp in np.arange(0, 180, 22.5):
        turn = np.deg2rad(2 * aolp)
        stokes = np.array([1.0, dolp * np.cos(turn), dolp * np.sin(turn)])
        light = camera.expose(stokes, 16) / 65535
        mosaic = light - black if parameters is None else corrected(light, parameters, camera)
        s0, s1, s2 = superpixels(mosaic, camera)
        degrees.append(np.hypot(s1, s2) / s0 - dolp)
        angles.append((np.rad2deg(np.arctan2(s2, s1)) / 2 - aolp + 90) % 180 - 90)
    return float(np.sqrt(np.mean(np.square(degrees)))), float(np.sqrt(np.mean(np.square(angles))))
