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

#: Defects of a pixel in `SimulatedSensor.defects`; 0 for none.
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
    """Deviations of a sensor's pixels from ideal ones: normal distributions by mean and standard deviation."""

    gain: float = 0.01  # relative standard deviation of the gain
    angle: float = 0.8  # standard deviation of the polarizer angle in degrees
    extinction: Tuple[float, float] = (300.0, 80.0)  # extinction ratio; at least 50 is drawn
    black: Tuple[float, float] = (0.008, 0.0015)  # black level as a share of full scale; at least 0 is drawn
    defects: float = 0.0  # share of the pixels that are defective: a third each with a dark signal, dead, and stuck
    shading: float = 0.0  # loss of light in the corners, 0 to below 1; it grows with the square of the radius
    full_well: float = 10_000.0  # electrons at full scale
    read_noise: float = 2.5  # standard deviation in electrons


@dataclass(frozen=True, eq=False)
class SimulatedSensor:
    """A sensor with images of (H, W) that describe each pixel. Build it with `simulate_sensor`."""

    sensor: Sensor  # the mosaic
    gain: np.ndarray  # gain, 1 on average
    deviation: np.ndarray  # angle of the polarizer minus its nominal angle, in degrees
    extinction: np.ndarray  # extinction ratio
    black: np.ndarray  # black level as a share of full scale
    shade: np.ndarray  # transmission of the lens, 1 at the center
    defects: np.ndarray  # uint8: 0, `LEAKY`, `DEAD` or `STUCK`
    level: np.ndarray  # dark signal of `LEAKY` pixels and reading of `STUCK` ones, as a share of full scale
    full_well: float  # electrons at full scale
    read_noise: float  # standard deviation in electrons

    @property
    def shape(self) -> Tuple[int, int]:
        """(height, width) in pixels."""
        height, width = self.gain.shape
        return height, width

    def expose(self, stokes: np.ndarray, bit_depth: int = 12, rng: Optional[np.random.Generator] = None) -> np.ndarray:
        """Return the frame, (H, W), that the sensor records of a scene; see `sensor.forward.expose`.

        `stokes` broadcasts to (H, W, 3), or (H, W, 3, 3) for a color sensor. Without `rng` there is no noise.
        """
        axes = (3, 3) if self.sensor.is_color else (3,)
        field = np.broadcast_to(stokes, (*self.shape, *axes))
        angle = 2 * (nominal_angles(self.sensor, self.shape) + np.deg2rad(self.deviation))
        m = (self.extinction - 1) / (self.extinction + 1)
        light = self.shade * self.gain * analyzed(field, self.sensor, m * np.cos(angle), m * np.sin(angle))
        light = light + np.where(self.defects == LEAKY, self.level, 0)
        full_well = self.full_well if rng is not None else 0.0
        levels = digitize(light, bit_depth, full_well, self.read_noise, rng, self.black)
        stuck = self.defects == STUCK
        levels[stuck] = np.rint(self.level[stuck] * ((1 << bit_depth) - 1)).astype(levels.dtype)
        return levels


def simulate_sensor(
    sensor: Sensor, shape: Tuple[int, int], seed: int = 0, deviations: Optional[Deviations] = None
) -> SimulatedSensor:
    """Create a sensor of (height, width) random pixels; the same arguments give the same sensor.

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
    """A lamp and a polarizer before the camera."""

    angles: Tuple[float, ...]  # angles of the polarizer in degrees, in the order of the session
    frames: int = 16  # number of frames at each angle
    dark_frames: int = 64  # before them
    light: float = 0.8  # s0 behind the polarizer, 0 to 1: the brightest pixels reach this share of full scale
    drift: float = 0.0  # relative loss of the lamp's light from the first angle to the last

    def lamp(self) -> np.ndarray:
        """Return (K,) brightness of the lamp at each angle."""
        return 1 - self.drift * np.linspace(0, 1, len(self.angles))


def synthetic_session(
    camera: SimulatedSensor, bench: Bench, bit_depth: int, seed: int
) -> Iterator[Tuple[int, int, np.ndarray]]:
    """Yield (setting, number in it, mosaic) of each frame: dark ones, whose setting is -1, then those of each angle."""
    rng = np.random.default_rng(seed)
    for number in range(bench.dark_frames):
        yield -1, number, camera.expose(np.zeros(3), bit_depth, rng)
    for setting, (angle, lamp) in enumerate(zip(bench.angles, bench.lamp())):
        stokes = _uniform_light(camera, bench.light * lamp, 1.0, angle)
        for number in range(bench.frames):
            yield setting, number, camera.expose(stokes, bit_depth, rng)


def picture_name(bench: Bench, setting: int, number: int, has_angles: bool = True) -> Path:
    """Return the path of a frame of `synthetic_session` in a folder; its name tells the angle or only the setting."""
    if setting < 0:
        return Path(DARK) / f"{number:03d}.png"
    name = f"{bench.angles[setting]:07.3f}" if has_angles else f"setting{setting:02d}"
    return Path("light") / f"{name}_{number:03d}.png"


def sample_frames(camera: SimulatedSensor, bit_depth: int, seed: int) -> Iterator[Tuple[str, np.ndarray]]:
    """Yield (name, mosaic) of evenly polarized frames of `TEST_LIGHT`, to try a calibration on."""
    rng = np.random.default_rng(seed + 1)
    for dolp, aolp in TEST_LIGHT:
        stokes = _uniform_light(camera, 1.0, dolp, aolp)
        yield f"dolp_{dolp:.2f}_aolp_{aolp:03.0f}.png", camera.expose(stokes, bit_depth, rng)


def _uniform_light(camera: SimulatedSensor, s0: float, dolp: float, aolp: float) -> np.ndarray:
    """Return the Stokes vector of uniform light, AoLP in degrees, or of each color's light for a color sensor."""
    angle = np.deg2rad(2 * aolp)
    stokes: np.ndarray = s0 * np.array([1, dolp * np.cos(angle), dolp * np.sin(angle)])
    return np.array(_COLORS)[:, np.newaxis] * stokes if camera.sensor.is_color else stokes
