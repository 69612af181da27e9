"""DoLP of light from a smooth dielectric by the zenith angle of its surface, and the closed inverses.

With the zenith angle t outside the material, t' inside, sin t = n sin t', Fresnel's equations give the ratio of both
polarizations as cos^2(t - t') for light that leaves the material, and as cos^2(t + t') / cos^2(t - t') for reflected
light. Sources:

- Atkinson and Hancock: Recovery of surface orientation from diffuse polarization. IEEE Transactions on Image
  Processing 15(6), 2006.
- Morel, Meriaudeau, Stolz, Gorria: Polarization imaging applied to 3D reconstruction of specular metallic surfaces.
  Machine Vision Applications in Industrial Inspection XIII, SPIE 5679, 2005.
- Wolff and Boult: Constraining object features using a polarization reflectance model. IEEE Transactions on Pattern
  Analysis and Machine Intelligence 13(7), 1991.
"""

from __future__ import annotations

from typing import Tuple

import numpy as np

from polar_pipeline._util.values import number
from polar_pipeline.polarimetry.world.light import checked_array


def _index(refractive_index: float) -> float:
    return number("refractive_index", refractive_index, 1.01, 10.0)


def _angles(zenith: object, refractive_index: float) -> Tuple[np.ndarray, np.ndarray]:
    """Return the zenith angles outside and inside the material."""
    outside = checked_array("zenith", np.asarray(zenith), None, np.pi / 2, "in rad, 0 to pi/2", "iuf")
    return outside, np.arcsin(np.sin(outside) / _index(refractive_index))


def diffuse_dolp(zenith: np.ndarray, refractive_index: float = 1.5) -> np.ndarray:
    """Compute the DoLP of light that is scattered inside a material and leaves it (Atkinson and Hancock, 2006).

    Args:
        zenith: Angles between surface normal and viewing ray, 0 to pi/2 rad, of any shape.
        refractive_index: Index of the material, 1.01 to 10.

    Raises:
        ValueError: The refractive index or a zenith angle is out of range.
    """
    outside, inside = _angles(zenith, refractive_index)
    square = np.cos(outside - inside) ** 2
    return np.asarray((1 - square) / (1 + square))


def specular_dolp(zenith: np.ndarray, refractive_index: float = 1.5) -> np.ndarray:
    """Compute the DoLP of reflected unpolarized light (Wolff and Boult, 1991; Morel et al., 2005).

    Args:
        zenith: Angles between surface normal and viewing ray, 0 to pi/2 rad, of any shape.
        refractive_index: Index of the material, 1.01 to 10.

    Raises:
        ValueError: The refractive index or a zenith angle is out of range.
    """
    outside, inside = _angles(zenith, refractive_index)
    plus, minus = np.cos(outside + inside) ** 2, np.cos(outside - inside) ** 2
    return np.asarray((minus - plus) / (minus + plus))


def diffuse_zenith(dolp: np.ndarray, refractive_index: float = 1.5) -> np.ndarray:
    """Compute the zenith angle of a surface that scatters light diffusely, the inverse of `diffuse_dolp`.

    Returns:
        0 to pi/2 rad; NaN where DoLP exceeds that of grazing light, (n^2 - 1)/(n^2 + 1), or is negative or NaN.

    Raises:
        ValueError: The refractive index is out of range, or DoLP is not of numbers.
    """
    index, dolp = _index(refractive_index), checked_array("dolp", np.asarray(dolp), kinds="iuf")
    with np.errstate(invalid="ignore"):
        # tan t = n sin(t - t') / (n cos(t - t') - 1), with cos^2(t - t') = (1 - dolp) / (1 + dolp)
        zenith = np.arctan2(index * np.sqrt(2 * dolp), index * np.sqrt(1 - dolp) - np.sqrt(1 + dolp))
        return np.where(zenith <= np.pi / 2, zenith, np.nan)


def specular_zeniths(dolp: np.ndarray, refractive_index: float = 1.5) -> Tuple[np.ndarray, np.ndarray]:
    """Compute both zenith angles of a surface that reflects unpolarized light, the inverses of `specular_dolp`.

    Returns:
        Angles below and above Brewster's angle atan(n), 0 to pi/2 rad; NaN where DoLP is beyond [0, 1] or NaN.

    Raises:
        ValueError: The refractive index is out of range, or DoLP is not of numbers.
    """
    index, dolp = _index(refractive_index), checked_array("dolp", np.asarray(dolp), kinds="iuf")
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = np.sqrt((1 - dolp) / (1 + dolp))
        below = np.where(dolp >= 0, (1 - ratio) / (1 + ratio), np.nan)  # tan t tan t'
        return _reflecting(below, index), _reflecting(1 / below, index)


def _reflecting(product: np.ndarray, index: float) -> np.ndarray:
    """Compute t from tan t tan t'."""
    scaled = product * (index**2 - 1)
    return np.arctan(np.sqrt(product * (scaled + np.sqrt(scaled**2 + 4 * index**2)) / 2))
