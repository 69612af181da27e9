"""The forward model of a polarization sensor: from a scene to the mosaic that the sensor records."""

from __future__ import annotations

from typing import Optional, Tuple, Union

import numpy as np

from polar_pipeline.sensor.mosaic import ANGLES, Sensor


def expose(
    stokes: np.ndarray,
    sensor: Sensor,
    bit_depth: int = 8,
    full_well: float = 0.0,
    read_noise: float = 0.0,
    rng: Optional[np.random.Generator] = None,
) -> np.ndarray:
    """Simulate what a sensor records of a scene: Malus' law, noise, saturation, quantization.

    Args:
        stokes: (H, W, 3) linear Stokes vectors S0, S1, S2 per pixel for a mono sensor, (H, W, 3, 3) for a color one
            with RGB as axis 2. Full scale is an intensity behind the polarizer of 1, so S0 lies in [0, 2].
        sensor: The mosaic.
        bit_depth: 8 to 16.
        full_well: Electrons at full scale: adds shot noise. 0 turns it off.
        read_noise: Standard deviation in electrons; needs `full_well`.
        rng: Source of the noise; needed with `full_well`.

    Returns:
        (H, W) uint8 (8 bit) or uint16 (more, LSB aligned).

    Raises:
        ValueError: A shape or option does not fit.
    """
    if not 8 <= bit_depth <= 16:
        raise ValueError(f"bit_depth must be 8 to 16, got {bit_depth}")
    if full_well and rng is None:
        raise ValueError("full_well adds noise and needs rng")
    return digitize(analyzed(stokes, sensor), bit_depth, full_well, read_noise, rng)


def analyzed(
    stokes: np.ndarray, sensor: Sensor, cosine: Optional[np.ndarray] = None, sine: Optional[np.ndarray] = None
) -> np.ndarray:
    """Return the light behind the polarizer and color filter of each pixel, as a share of full scale.

    Args:
        stokes: Stokes vectors as for `expose`.
        sensor: The mosaic.
        cosine: (H, W), by what each pixel multiplies S1; None for ideal polarizers at their nominal angles.
        sine: The same for S2; given with `cosine`.

    Returns:
        (H, W) float64, (S0 + cosine S1 + sine S2) / 2.

    Raises:
        ValueError: The shape of `stokes` does not fit the sensor.
    """
    shape = (3, 3) if sensor.is_color else (3,)
    if stokes.shape[2:] != shape:
        raise ValueError(
            f"stokes of {sensor.name} must have shape (H, W, {', '.join(map(str, shape))}), got {stokes.shape}"
        )
    signal = np.empty(stokes.shape[:2])
    for row in range(sensor.period):
        for column in range(sensor.period):
            angle = np.deg2rad(2 * ANGLES[sensor.angle_index(row, column)])
            site = (slice(row, None, sensor.period), slice(column, None, sensor.period))
            s = stokes[site] if not sensor.is_color else stokes[site][:, :, sensor.color_index(row, column)]
            c, d = (np.cos(angle), np.sin(angle)) if cosine is None or sine is None else (cosine[site], sine[site])
            signal[site] = (s[..., 0] + s[..., 1] * c + s[..., 2] * d) / 2
    return signal


def digitize(
    signal: np.ndarray,
    bit_depth: int,
    full_well: float = 0.0,
    read_noise: float = 0.0,
    rng: Optional[np.random.Generator] = None,
    black: Union[float, np.ndarray] = 0.0,
) -> np.ndarray:
    """Convert light on pixels to the sensor's numbers: noise, black level, saturation, quantization.

    Args:
        signal: (H, W), light as a share of full scale.
        bit_depth: 8 to 16.
        full_well: Electrons at full scale: adds shot noise. 0 turns noise off.
        read_noise: Standard deviation in electrons; needs `full_well`.
        rng: Source of the noise; needed with `full_well`.
        black: Black level as a share of full scale, one number or (H, W); without shot noise.

    Returns:
        (H, W) uint8 (8 bit) or uint16 (more, LSB aligned).
    """
    if full_well and rng is not None:
        electrons = rng.poisson(np.clip(signal, 0, None) * full_well) + rng.normal(0, read_noise, signal.shape)
        signal = electrons / full_well
    top = (1 << bit_depth) - 1
    levels = np.rint((signal + black) * top)
    return np.clip(levels, 0, top).astype(np.uint8 if bit_depth == 8 else np.uint16)


def behind_polarizers(stokes: np.ndarray) -> np.ndarray:
    """Convert (..., 3) Stokes vectors to (4, ...): the light behind each of `ANGLES`."""
    theta = 2 * np.deg2rad(ANGLES)
    return np.stack([(stokes @ np.array([1, np.cos(t), np.sin(t)])) / 2 for t in theta])


def sample_mosaic(angles: np.ndarray, sensor: Sensor) -> np.ndarray:
    """Sample four full angle images as a mosaic, to measure a demosaic against truth.

    Args:
        angles: (4, H, W) in the order of `ANGLES`, or (4, H, W, 3) RGB for a color sensor; any type.
        sensor: The mosaic.

    Returns:
        (H, W) of the same type.
    """
    mosaic = np.empty(angles.shape[1:3], angles.dtype)
    for row in range(sensor.period):
        for column in range(sensor.period):
            site = (slice(row, None, sensor.period), slice(column, None, sensor.period))
            plane = angles[sensor.angle_index(row, column)]
            mosaic[site] = plane[site] if not sensor.is_color else plane[site][..., sensor.color_index(row, column)]
    return mosaic


def nominal_angles(sensor: Sensor, shape: Tuple[int, int]) -> np.ndarray:
    """Return (H, W) float64: the nominal polarizer angle of every pixel in rad."""
    tile = np.deg2rad([[ANGLES[sensor.angle_index(r, c)] for c in range(2)] for r in range(2)])
    return _tiled(tile, shape)


def color_indices(sensor: Sensor, shape: Tuple[int, int]) -> np.ndarray:
    """Return (H, W): the index into `CHANNELS` of every pixel; 0 for a mono sensor."""
    tile = np.array([[sensor.color_index(r, c) if sensor.is_color else 0 for c in range(4)] for r in range(4)])
    return _tiled(tile, shape)


def _tiled(tile: np.ndarray, shape: Tuple[int, int]) -> np.ndarray:
    size = len(tile)
    image: np.ndarray = np.tile(tile, (-(-shape[0] // size), -(-shape[1] // size)))[: shape[0], : shape[1]]
    return image
