"""Synthetic calibration sessions: dark frames, and frames of a rotated polarizer, by a simulated sensor."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Iterator, NamedTuple, Tuple

import numpy as np

from polar_pipeline.calibrate.sums import DARK
from polar_pipeline.calibration.simulation import SimulatedSensor

#: Light of each color, relative to green.
_COLORS = (0.8, 1.0, 0.7)
#: DoLP and AoLP in degrees of the test frames.
TEST_LIGHT = ((0.0, 0.0), (0.05, 20.0), (0.3, 70.0), (0.9, 115.0), (0.95, 160.0))


@dataclass(frozen=True)
class Bench:
    """A lamp and a polarizer before the camera.

    Attributes:
        angles: Angles of the polarizer in degrees, in the order of the session.
        frames: Number of frames at each angle.
        dark_frames: Before them.
        light: S0 behind the polarizer, 0 to 1: the brightest pixels reach this share of full scale.
        drift: By which share the lamp becomes darker from the first angle to the last.
    """

    angles: Tuple[float, ...]
    frames: int = 16
    dark_frames: int = 64
    light: float = 0.8
    drift: float = 0.0

    def lamp(self) -> np.ndarray:
        """Return (K,) brightness of the lamp at each angle."""
        return 1 - self.drift * np.linspace(0, 1, len(self.angles))

    def stokes(self, setting: int) -> np.ndarray:
        """Return (3,) Stokes vector behind the polarizer."""
        angle = 2 * np.deg2rad(self.angles[setting])
        stokes: np.ndarray = self.light * self.lamp()[setting] * np.array([1, np.cos(angle), np.sin(angle)])
        return stokes


class SyntheticFrame(NamedTuple):
    """A frame of a synthetic session: its setting (or `DARK`), its number in it, and the mosaic."""

    setting: int
    number: int
    mosaic: np.ndarray


def synthetic_session(camera: SimulatedSensor, bench: Bench, bit_depth: int, seed: int) -> Iterator[SyntheticFrame]:
    """Yield the frames of a session: dark ones, whose setting is -1, then those of each angle of the polarizer.

    Args:
        camera: The sensor.
        bench: Lamp and polarizer in front of the sensor.
        bit_depth: 8 to 16.
        seed: Seed of the noise.
    """
    rng = np.random.default_rng(seed)
    for number in range(bench.dark_frames):
        yield SyntheticFrame(-1, number, camera.expose(_field(camera, np.zeros(3)), bit_depth, rng))
    for setting in range(len(bench.angles)):
        stokes = _field(camera, bench.stokes(setting))
        for number in range(bench.frames):
            yield SyntheticFrame(setting, number, camera.expose(stokes, bit_depth, rng))


def picture_name(bench: Bench, frame: SyntheticFrame, has_angles: bool = True) -> Path:
    """Return the path of a frame in a session's folder.

    Args:
        bench: Bench of the session.
        frame: The frame.
        has_angles: Whether names say the angle, or only which frames belong together.
    """
    if frame.setting < 0:
        return Path(DARK) / f"{frame.number:03d}.png"
    name = f"{bench.angles[frame.setting]:07.3f}" if has_angles else f"setting{frame.setting:02d}"
    return Path("light") / f"{name}_{frame.number:03d}.png"


def sample_frames(camera: SimulatedSensor, bit_depth: int, seed: int) -> Iterator[Tuple[str, np.ndarray]]:
    """Yield (name, mosaic) of evenly polarized frames of `TEST_LIGHT`, to try a calibration on."""
    rng = np.random.default_rng(seed + 1)
    for dolp, aolp in TEST_LIGHT:
        angle = np.deg2rad(2 * aolp)
        stokes = np.array([1, dolp * np.cos(angle), dolp * np.sin(angle)])
        yield f"dolp_{dolp:.2f}_aolp_{aolp:03.0f}.png", camera.expose(_field(camera, stokes), bit_depth, rng)


def _field(camera: SimulatedSensor, stokes: np.ndarray) -> np.ndarray:
    """Return uniform light in the form that `SimulatedSensor.expose` takes."""
    if not camera.sensor.is_color:
        return stokes
    return np.array(_COLORS)[:, np.newaxis] * stokes
