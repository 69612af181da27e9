"""The forward model of a polarization sensor: from a scene to the mosaic that the sensor records."""

from __future__ import annotations

from typing import Optional, Tuple, Union

import numpy as np

from polar_pipeline.sensor.mosaic import Sensor


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
    if sensor.is_color:
        colors = color_indices(sensor, stokes.shape)[..., np.newaxis, np.newaxis]
        stokes = np.take_along_axis(stokes, colors, 2)[:, :, 0]
    if cosine is None or sine is None:
        turn = 2 * np.deg2rad(sensor.angles)
        cosine, sine = (_tiled(values, stokes.shape) for values in (np.cos(turn), np.sin(turn)))
    signal: np.ndarray = (stokes[..., 0] + stokes[..., 1] * cosine + stokes[..., 2] * sine) / 2
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

    Raises:
        ValueError: The bit depth is something else.
    """
    if not 8 <= bit_depth <= 16:
        raise ValueError(f"bit_depth must be 8 to 16, got {bit_depth}")
    if full_well and rng is not None:
        electrons = rng.poisson(np.clip(signal, 0, None) * full_well) + rng.normal(0, read_noise, signal.shape)
        signal = electrons / full_well
    top = (1 << bit_depth) - 1
    levels = np.rint((signal + black) * top)
    return np.clip(levels, 0, top).astype(np.uint8 if bit_depth == 8 else np.uint16)


def nominal_angles(sensor: Sensor, shape: Tuple[int, int]) -> np.ndarray:
    """Return (H, W) float64: the nominal polarizer angle of every pixel in rad."""
    return _tiled(np.deg2rad(sensor.angles), shape)


def color_indices(sensor: Sensor, shape: Tuple[int, ...]) -> np.ndarray:
    """Return (H, W): the index into `CHANNELS` of every pixel; 0 for a mono sensor."""
    return _tiled(np.array(sensor.colors if sensor.colors is not None else [[0]]), shape)


def _tiled(tile: np.ndarray, shape: Tuple[int, ...]) -> np.ndarray:
    """Repeat a tile over the first two of these sides."""
    size = len(tile)
    image: np.ndarray = np.tile(tile, (-(-shape[0] // size), -(-shape[1] // size)))[: shape[0], : shape[1]]
    return image
