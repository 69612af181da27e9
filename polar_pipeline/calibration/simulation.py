"""Simulated sensors with individual pixels: their frames, and the parameters that correct them.

They extend the forward model of `sensor.forward`, and lie here because they know the parameters of a calibration.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional, Tuple

import numpy as np

from polar_pipeline.calibration.calibration import PixelParameters
from polar_pipeline.sensor.forward import analyzed, color_indices, digitize, nominal_angles
from polar_pipeline.sensor.mosaic import CHANNELS, Sensor

#: What can be wrong with a pixel, in `SimulatedSensor.defects`; 0 if nothing is.
LEAKY, DEAD, STUCK = 1, 2, 3
#: Lowest extinction ratio that is drawn.
_MIN_EXTINCTION = 50.0
#: Range of the dark signal of defective pixels that have one, as a share of full scale.
_LEAKAGE = (0.05, 0.5)


@dataclass(frozen=True)
class Deviations:
    """Deviations of a sensor's pixels from ideal ones: normal distributions by mean and standard deviation.

    Attributes:
        gain: Relative standard deviation of the gain.
        angle: Standard deviation of the polarizer angle in degrees.
        extinction: Extinction ratio; at least 50 is drawn.
        black: Black level as a share of full scale; at least 0 is drawn.
        drift: Rise of the black level per kelvin as a share of full scale, and its deviation.
        defects: Share of the pixels that are defective: a third each with a dark signal, dead, and stuck.
        shading: By how much the lens darkens the corners, 0 to below 1; it falls with the square of the radius.
        full_well: Electrons at full scale.
        read_noise: Standard deviation in electrons.
    """

    gain: float = 0.01
    angle: float = 0.8
    extinction: Tuple[float, float] = (300.0, 80.0)
    black: Tuple[float, float] = (0.008, 0.0015)
    drift: Tuple[float, float] = (1e-4, 3e-5)
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
        drift: (H, W), rise of the black level per kelvin.
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
    drift: np.ndarray
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
        exposure: float = 1.0,
        temperature_offset: float = 0.0,
    ) -> np.ndarray:
        """Return what the sensor records of a scene; `sensor.forward.expose` describes units and shapes.

        Args:
            stokes: (H, W, 3), or (H, W, 3, 3) for a color sensor, or what broadcasts to the sensor's size.
            bit_depth: 8 to 16.
            rng: Source of the noise; None for none.
            exposure: What the light, but no dark signal, is multiplied by.
            temperature_offset: Kelvin above the temperature that `black` is of.

        Returns:
            (H, W) uint8 (8 bit) or uint16 (more, LSB aligned).
        """
        if not 8 <= bit_depth <= 16:
            raise ValueError(f"bit_depth must be 8 to 16, got {bit_depth}")
        axes = (3, 3) if self.sensor.is_color else (3,)
        field = np.broadcast_to(stokes, (*self.shape, *axes))
        light = exposure * self.shade * self.gain * analyzed(field, self.sensor, *self._terms())
        light = light + np.where(self.defects == LEAKY, self.level, 0)
        full_well = self.full_well if rng is not None else 0.0
        black = self.black + self.drift * temperature_offset
        levels = digitize(light, bit_depth, full_well, self.read_noise, rng, black)
        stuck = self.defects == STUCK
        levels[stuck] = np.rint(self.level[stuck] * ((1 << bit_depth) - 1)).astype(levels.dtype)
        return levels

    def parameters(self, flat_field: bool = False) -> PixelParameters:
        """Return the parameters that a perfect calibration would find; those of defective pixels are meaningless.

        Args:
            flat_field: Whether the gain corrects the lens shading too.
        """
        angles, colors = nominal_angles(self.sensor, self.shape), color_indices(self.sensor, self.shape)
        gain = self.gain * self.shade if flat_field else self.gain
        used, relative = self.defects == 0, np.ones(self.shape)
        for color in range(len(CHANNELS) if self.sensor.is_color else 1):
            channel = colors == color
            relative[channel] = gain[channel & used].mean()
        cosine, sine = self._terms()
        with np.errstate(divide="ignore"):
            u = np.where(used, relative / gain, 1)
        return PixelParameters(self.black.copy(), u, (np.cos(2 * angles) - cosine) / 2, (np.sin(2 * angles) - sine) / 2)

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
    drift = rng.normal(*spread.drift, shape)
    y, x = (np.linspace(-1, 1, size) for size in shape)
    shade = 1 - spread.shading * (y[:, np.newaxis] ** 2 + x**2) / 2
    is_bad = rng.random(shape) < spread.defects
    defects = np.where(is_bad, rng.integers(LEAKY, STUCK + 1, shape), 0).astype(np.uint8)
    level = np.where(defects == LEAKY, rng.uniform(*_LEAKAGE, shape), rng.random(shape))
    gain = np.where(defects == DEAD, 0, gain / gain.mean())
    return SimulatedSensor(
        sensor, gain, deviation, extinction, black, drift, shade, defects, level, spread.full_well, spread.read_noise
    )
