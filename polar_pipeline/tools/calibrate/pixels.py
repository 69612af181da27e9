"""Least squares of every pixel: its response to light behind the polarizer, and the parameters of its correction."""

from __future__ import annotations

from typing import Dict, List, NamedTuple, Optional, Tuple

import numpy as np

from polar_pipeline.calibration import PixelParameters
from polar_pipeline.sensor.forward import color_indices
from polar_pipeline.sensor.mosaic import ANGLES, Sensor
from polar_pipeline.tools.calibrate.illumination import LightMaps
from polar_pipeline.tools.calibrate.noise import Noise
from polar_pipeline.tools.calibrate.polarizer import Polarizer, half_turn, site_angles
from polar_pipeline.tools.calibrate.reductions import stokes, superpixels
from polar_pipeline.tools.calibrate.sums import FrameSums, SessionSums

#: Pixels whose values of all settings are in memory at once.
_BAND_PIXELS = 1 << 18
#: Without measured noise, the variance of a value is proportional to the signal plus this share of its highest.
_FLOOR = 0.02
#: A pixel whose values differ between the settings by less than this share of the median contrast is dead or stuck.
_MIN_CONTRAST = 0.2
#: Highest extinction ratio that is stated: beyond it noise decides.
MAX_EXTINCTION = 10_000.0


class Design(NamedTuple):
    """The least squares of the pixels behind one polarizer angle."""

    solver: np.ndarray  # (3, K), from a pixel's values to its A, B and C
    basis: np.ndarray  # (K, 3), from A, B and C to the values
    #: (K,) of the mean of each setting's frames, in squares of full scale, of a pixel in average light.
    variance: np.ndarray
    level: float  # mean A of the pixels


class PixelFits(NamedTuple):
    """Responses of the pixels, (H, W) float32: a value is ``lamp level (1 + cosine cos 2a + sine sin 2a)``."""

    level: np.ndarray  # A as a share of full scale
    cosine: np.ndarray  # B/A, by which a pixel multiplies S1
    sine: np.ndarray  # C/A, by which it multiplies S2
    #: Error with which the other settings predict each setting, root mean square over the settings, relative to the
    #: noise that is expected; 1 where noise explains it.
    relative_residual: np.ndarray


def site_means(
    sums: SessionSums, settings: List[FrameSums], black: np.ndarray, used: np.ndarray
) -> Tuple[np.ndarray, np.ndarray]:
    """Compute the mean signal of the mosaic's sites at each setting, and find the pixels that react to the polarizer.

    Returns:
        (J, K) means, and (H, W) bool: pixels of `used` whose signal follows the polarizer.
    """
    lowest, highest = np.full(sums.shape, np.inf), np.full(sums.shape, -np.inf)
    for setting in settings:
        mean = setting.mean()
        np.minimum(lowest, mean, out=lowest)
        np.maximum(highest, mean, out=highest)
    contrast = highest - lowest
    reacts = used & (contrast >= _MIN_CONTRAST * np.median(contrast[used]))
    period = sums.sensor.period
    means = np.zeros((period**2, len(settings)))
    for k, setting in enumerate(settings):
        signal = setting.mean() - black
        for site in range(period**2):
            at = (slice(site // period, None, period), slice(site % period, None, period))
            count = np.count_nonzero(reacts[at])
            means[site, k] = signal[at].sum(where=reacts[at]) / max(1, count)
    return means, reacts


def designs(
    sensor: Sensor, polarizer: Polarizer, frames: np.ndarray, noise: Optional[Noise], level: float
) -> List[Design]:
    """Set up the least squares of each angle in `ANGLES`, weighted by the noise of its pixels at each setting.

    `frames` are the numbers of frames, (K,), and `level` is one level as a share of full scale.
    """
    basis, by_angle = polarizer.basis, []
    for angle in ANGLES:
        terms = polarizer.terms[np.isclose(site_angles(sensor), np.deg2rad(angle))].mean(0)
        signal = np.maximum(basis @ terms, 0)
        if noise is None:
            variance = (signal + _FLOOR * signal.max()) / frames
        else:
            variance = (noise.variance(signal) + level**2 / 12) / frames
            variance = np.maximum(variance, 1e-4 * variance.max())  # models are not exact
        root = 1 / np.sqrt(variance)
        solver = np.linalg.pinv(basis * root[:, np.newaxis]) * root
        by_angle.append(Design(solver, basis, variance, float(terms[0])))
    return by_angle


def fit_pixels(
    sums: SessionSums, settings: List[FrameSums], black: np.ndarray, maps: LightMaps, by_angle: List[Design]
) -> PixelFits:
    """Fit A, B and C of every pixel, in bands of rows."""
    height, width = sums.shape
    terms = np.zeros((3, height, width), np.float32)
    relative_residual = np.zeros((height, width), np.float32)
    step = max(2, _BAND_PIXELS // width // 2 * 2)
    for top in range(0, height, step):
        rows = slice(top, top + step)
        light = [setting.mean(rows) - black[rows] for setting in settings]
        values = np.stack([signal / maps.factor(k, rows) for k, signal in enumerate(light)])
        for nominal, at in _sites(sums.sensor):
            design, every = by_angle[ANGLES.index(nominal)], (slice(None), *at)
            own = values[every]
            response = np.tensordot(design.solver, own, 1)
            residual = own - np.tensordot(design.basis, response, 1)
            terms[:, rows][every] = response
            # The error with which the other settings predict a setting is its residual divided by the freedom, the
            # variance of the residual relative to that of the value.
            freedom = np.maximum(1 - np.einsum("kt,tk->k", design.basis, design.solver), 1e-3)
            scale = 1 / (design.variance * freedom * len(settings))
            relative_residual[rows][at] = np.sqrt(np.tensordot(scale, residual**2, 1))
        terms[1:, rows] /= np.maximum(terms[0, rows], 1e-9)
    return PixelFits(terms[0], terms[1], terms[2], relative_residual)


def interpret(sensor: Sensor, fits: PixelFits, light: np.ndarray) -> Dict[str, np.ndarray]:
    """Return gain relative to the smooth light, angle's deviation in degrees and extinction ratio, (H, W) by name."""
    angle = np.arctan2(fits.sine, fits.cosine)
    for nominal, at in _sites(sensor):
        angle[at] = np.rad2deg(half_turn(angle[at] / 2 - np.float32(np.deg2rad(nominal))))
    m = np.hypot(fits.cosine, fits.sine)
    np.minimum(m, (MAX_EXTINCTION - 1) / (MAX_EXTINCTION + 1), out=m)
    return {"gain": fits.level / light, "angle": angle, "extinction": (1 + m) / (1 - m)}


def correction_parameters(
    sensor: Sensor, fits: PixelFits, black: np.ndarray, level: np.ndarray, used: np.ndarray, phase: Tuple[int, int]
) -> PixelParameters:
    """Compute the parameters of the correction; pixels that are not used have those of an average pixel.

    `level`, (H, W), is made even by the gain: the gain relative to the light nearby, or A itself. `phase` is the (row,
    column) of the region's first pixel in its superpixel. `fits.cosine` and `fits.sine` become e1 and e2 in place.
    """
    gain = np.where(used, level, 1).astype(np.float32)
    colors = color_indices(sensor, (sensor.period, sensor.period))
    for color in np.unique(colors):
        sites = [(slice(r, None, len(colors)), slice(c, None, len(colors))) for r, c in np.argwhere(colors == color)]
        total, count = (sum(float(image[at].sum(where=used[at])) for at in sites) for image in (gain, used))
        for at in sites:
            gain[at] *= count / total if total else 1
    for _, at in _sites(sensor):
        for image in (fits.cosine, fits.sine):
            image[at][~used[at]] = image[at].mean(where=used[at]) if used[at].any() else 0
    make_exact_terms(fits.cosine, fits.sine, sensor, phase)
    return PixelParameters(black, np.divide(1, gain, out=gain), fits.cosine, fits.sine)


def make_exact_terms(cosine: np.ndarray, sine: np.ndarray, sensor: Sensor, phase: Tuple[int, int] = (0, 0)) -> None:
    """Replace the factors by which pixels multiply S1 and S2, (H, W) each, by e1 and e2.

    An ideal pixel of angle t measures ``(cos 2t - cosine, sin 2t - sine)/2 (S1, S2)`` more. The correction has (S1, S2)
    only as M times the true ones, from the four pixels of the superpixel themselves, so the factor takes M^-1. Pixels
    of a superpixel that the region cuts take the M of the next complete one; see `correction_parameters`.
    """
    (_, m11, m21), (_, m12, m22) = (stokes(superpixels(image, sensor, phase) / 2) for image in (cosine, sine))
    inverse = np.stack([m22, -m12, -m21, m11]) / (m11 * m22 - m12 * m21)
    for nominal, at in _sites(sensor):
        rows, columns = (
            np.clip((np.arange(size)[along] + start) // 2 - start, 0, count - 1)
            for size, along, start, count in zip(cosine.shape, at, phase, m11.shape)
        )
        i11, i12, i21, i22 = inverse[:, rows][:, :, columns]
        turn = 2 * np.deg2rad(nominal)
        own1, own2 = (np.cos(turn) - cosine[at]) / 2, (np.sin(turn) - sine[at]) / 2
        cosine[at], sine[at] = own1 * i11 + own2 * i21, own1 * i12 + own2 * i22


def _sites(sensor: Sensor) -> Tuple[Tuple[int, Tuple[slice, slice]], ...]:
    """Return the angle in degrees and the place of the pixels of each of the four polarizers."""
    return tuple(
        (sensor.angles[r][c], (slice(r, None, 2), slice(c, None, 2))) for r, c in ((0, 0), (0, 1), (1, 0), (1, 1))
    )
