"""Simulated sensors, and synthetic calibration sessions: what they record of dark and of a rotated polarizer.

No two pixels of a sensor are alike, as on real ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Iterator, Optional, Tuple

import numpy as np

from polar_pipeline.sensor.forward import analyzed, digitize, nominal_angles
from polar_pipeline.sensor.mosaic import Sensor
from polar_pipeline.tools.calibrate.sums import DARK

#: What can be wrong with a pixel, in `SimulatedSensor.defects`; 0 if nothing is.
LEAKY, DEAD, STUCK = 1, 2, 3
#: Lowest extinction ratio that is drawn.
_MIN_EXTINCTION = 50.0
#: Range of the dark signal of defective pixels that have one, as a share of full scale.
_LEAKAGE = (0.05, 0.5)
#: Light of each color, relative to green.
_COLORS = (0.8, 1.0, 0.7)
#: DoLP and AoLP in degrees of the test frames.
TEST_LIGHT = ((0.0, 0.0), (0.05, 20.0), (0.3, 70.0), (0.9, 115.0), (0.95, 160.0))


@dataclass(frozen=True)
class Deviations:
    """Deviations of a sensor's pixels from ideal ones: normal distributions by mean and standard deviation.

    Attributes:
        gain: Relative standard deviation of the gain.
        angle: Standard deviation of the polarizer angle in degrees.
        extinction: Extinction ratio; at least 50 is drawn.
        black: Black level as a share of full scale; at least 0 is drawn.
        defects: Share of the pixels that are defective: a third each with a dark signal, dead, and stuck.
        shading: By how much the lens darkens the corners, 0 to below 1; it falls with the square of the radius.
        full_well: Electrons at full scale.
        read_noise: Standard deviation in electrons.
    """

    gain: float = 0.01
    angle: float = 0.8
    extinction: Tuple[float, float] = (300.0, 80.0)
    black: Tuple[float, float] = (0.008, 0.0015)
    defects: float = 0.0
    shading: float = 0.0
    full_well: float = 10_000.0
    read_noise: float = 2.5


@dataclass(frozen=True, eq=False)
class SimulatedSensor:
    """A sensor whose pixels are known one by one. Build it with `simulate_sensor`.

    Attributes:
        sensor: The mosaic.
        gain: (H, W), 1 on average.
        deviation: (H, W), by how much the polarizer is turned from its nominal angle, in degrees.
        extinction: (H, W), extinction ratio.
        black: (H, W), black level as a share of full scale.
        shade: (H, W), what the lens lets through, 1 at the center.
        defects: (H, W) uint8: 0, `LEAKY`, `DEAD` or `STUCK`.
        level: (H, W), dark signal of `LEAKY` pixels and reading of `STUCK` ones, as a share of full scale.
        full_well: Electrons at full scale.
        read_noise: Standard deviation in electrons.
    """

    sensor: Sensor
    gain: np.ndarray
    deviation: np.ndarray
    extinction: np.ndarray
    black: np.ndarray
    shade: np.ndarray
    defects: np.ndarray
    level: np.ndarray
    full_well: float
    read_noise: float

    @property
    def shape(self) -> Tuple[int, int]:
        """(height, width) in pixels."""
        height, width = self.gain.shape
        return height, width

    def expose(
        self,
        stokes: np.ndarray,
        bit_depth: int = 12,
        rng: Optional[np.random.Generator] = None,
    ) -> np.ndarray:
        """Return what the sensor records of a scene; `sensor.forward.expose` describes units and shapes.

        Args:
            stokes: (H, W, 3), or (H, W, 3, 3) for a color sensor, or what broadcasts to the sensor's size.
            bit_depth: 8 to 16.
            rng: Source of the noise; None for none.

        Returns:
            (H, W) uint8 (8 bit) or uint16 (more, LSB aligned).
        """
        axes = (3, 3) if self.sensor.is_color else (3,)
        field = np.broadcast_to(stokes, (*self.shape, *axes))
        light = self.shade * self.gain * analyzed(field, self.sensor, *self._terms())
        light = light + np.where(self.defects == LEAKY, self.level, 0)
        full_well = self.full_well if rng is not None else 0.0
        levels = digitize(light, bit_depth, full_well, self.read_noise, rng, self.black)
        stuck = self.defects == STUCK
        levels[stuck] = np.rint(self.level[stuck] * ((1 << bit_depth) - 1)).astype(levels.dtype)
        return levels

    def _terms(self) -> Tuple[np.ndarray, np.ndarray]:
        """Return the factors by which each pixel multiplies S1 and S2."""
        angle = 2 * (nominal_angles(self.sensor, self.shape) + np.deg2rad(self.deviation))
        m = (self.extinction - 1) / (self.extinction + 1)
        return m * np.cos(angle), m * np.sin(angle)


def simulate_sensor(
    sensor: Sensor, shape: Tuple[int, int], seed: int = 0, deviations: Optional[Deviations] = None
) -> SimulatedSensor:
    """Create a sensor with random pixels; the same arguments give the same sensor.

    Args:
        sensor: The mosaic.
        shape: (height, width) in pixels.
        seed: Seed of the random numbers.
        deviations: How its pixels deviate; by default as in `Deviations`.

    Raises:
        ValueError: A share is out of range.
    """
    spread = deviations or Deviations()
    if not (0 <= spread.defects < 1 and 0 <= spread.shading < 1):
        raise ValueError(f"defects and shading must be in [0, 1), got {spread.defects} and {spread.shading}")
    rng = np.random.default_rng(seed)
    gain = 1 + spread.gain * rng.standard_normal(shape)
    deviation = spread.angle * rng.standard_normal(shape)
    extinction = np.maximum(rng.normal(*spread.extinction, shape), _MIN_EXTINCTION)
    black = np.maximum(rng.normal(*spread.black, shape), 0)
    y, x = (np.linspace(-1, 1, size) for size in shape)
    shade = 1 - spread.shading * (y[:, np.newaxis] ** 2 + x**2) / 2
    is_bad = rng.random(shape) < spread.defects
    defects = np.where(is_bad, rng.integers(LEAKY, STUCK + 1, shape), 0).astype(np.uint8)
    level = np.where(defects == LEAKY, rng.uniform(*_LEAKAGE, shape), rng.random(shape))
    gain = np.where(defects == DEAD, 0, gain / gain.mean())
    return SimulatedSensor(
        sensor, gain, deviation, extinction, black, shade, defects, level, spread.full_well, spread.read_noise
    )


# ------------------------------------------------------------------------------------------------------------ sessions


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


def synthetic_session(
    camera: SimulatedSensor, bench: Bench, bit_depth: int, seed: int
) -> Iterator[Tuple[int, int, np.ndarray]]:
    """Yield (setting, number in it, mosaic) of each frame: dark ones, whose setting is -1, then those of each angle.

    Args:
        camera: The sensor.
        bench: Lamp and polarizer in front of the sensor.
        bit_depth: 8 to 16.
        seed: Seed of the noise.
    """
    rng = np.random.default_rng(seed)
    for number in range(bench.dark_frames):
        yield -1, number, camera.expose(_field(camera, np.zeros(3)), bit_depth, rng)
    for setting in range(len(bench.angles)):
        stokes = _field(camera, bench.stokes(setting))
        for number in range(bench.frames):
            yield setting, number, camera.expose(stokes, bit_depth, rng)


def picture_name(bench: Bench, setting: int, number: int, has_angles: bool = True) -> Path:
    """Return the path of a frame in a session's folder.

    Args:
        bench: Lamp and polarizer of the session.
        setting: Setting of the frame, -1 of a dark one.
        number: Number of the frame in its setting.
        has_angles: Whether names say the angle, or only which frames belong together.
    """
    if setting < 0:
        return Path(DARK) / f"{number:03d}.png"
    name = f"{bench.angles[setting]:07.3f}" if has_angles else f"setting{setting:02d}"
    return Path("light") / f"{name}_{number:03d}.png"


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
