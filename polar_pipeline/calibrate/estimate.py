"""Estimation of a sensor's calibration from the sums over a session's frames."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Dict, List, Mapping, Optional, Tuple

import numpy as np

from polar_pipeline.calibrate.advice import about_frames, about_pixels, about_polarizer
from polar_pipeline.calibrate.defects import CAUSES, find_defects
from polar_pipeline.calibrate.errors import ExpectedError, expected_errors
from polar_pipeline.calibrate.illumination import smooth_light
from polar_pipeline.calibrate.noise import Noise, fit_noise
from polar_pipeline.calibrate.pixels import PixelFits, designs, fit_pixels, site_means
from polar_pipeline.calibrate.polarizer import fit_polarizer, half_turn, orientations
from polar_pipeline.calibrate.sums import NoisePoint, SessionSums
from polar_pipeline.calibration import Calibration, PixelParameters
from polar_pipeline.calibration.calibration import MAX_DEFECTS
from polar_pipeline.sensor.forward import color_indices, nominal_angles
from polar_pipeline.sensor.mosaic import Sensor

#: Highest extinction ratio that is stated: beyond it noise decides.
_MAX_EXTINCTION = 10_000.0


@dataclass(frozen=True, eq=False)
class CalibrationResult:
    """A calibration and its diagnostics; images are (H, W) in the order of the sensor's own readout.

    Attributes:
        calibration: The calibration.
        gain: Gain of each pixel relative to the light nearby; 1 on average.
        angle: By how much the polarizer of each pixel is turned from its nominal angle, in degrees.
        extinction: Extinction ratio, at most 10 000.
        black: Black level as a share of full scale.
        light: The smooth part of the signal, as a share of full scale: lamp and lens.
        causes: uint8, why a pixel is defective: bit k for `defects.CAUSES[k]`; 0 if it is not.
        excess: Root mean square of what the fit of each pixel leaves, relative to the noise of the frames.
        settings: Names of the settings of the polarizer, in order.
        given: Their angles as given, in degrees; None if unknown.
        angles: Their angles in degrees: those given, or the estimated ones.
        lamp: Their lamp factors, 1 on average.
        deviations: Root mean square of what the fit leaves of their means over the sensor, as shares of full scale.
        frames: Number of their frames.
        dark_frames: Number of dark frames.
        noise: Full well and read noise; None if the frames do not tell.
        points: Points of the photon transfer curve, which `noise` was fitted to.
        errors: Expected errors of DoLP and AoLP.
        warnings: Warnings with advice.
        problems: What makes the calibration worse than none.
    """

    calibration: Calibration
    gain: np.ndarray
    angle: np.ndarray
    extinction: np.ndarray
    black: np.ndarray
    light: np.ndarray
    causes: np.ndarray
    excess: np.ndarray
    settings: Tuple[str, ...]
    given: Tuple[Optional[float], ...]
    angles: Tuple[float, ...]
    lamp: Tuple[float, ...]
    deviations: Tuple[float, ...]
    frames: Tuple[int, ...]
    dark_frames: int
    noise: Optional[Noise]
    points: Tuple[NoisePoint, ...]
    errors: List[ExpectedError]
    warnings: List[str]
    problems: List[str] = field(default_factory=list)


def calibrate(
    sums: SessionSums,
    angles: Mapping[str, Optional[float]],
    sensor: Sensor,
    offset: Tuple[int, int] = (0, 0),
    is_flat_field: bool = False,
    notes: Optional[Mapping[str, float]] = None,
    angle_error: float = 0.5,  # noqa: ARG001
    polarizer_extinction: float = math.inf,  # noqa: ARG001
) -> CalibrationResult:
    """Estimate the calibration of a sensor.

    Args:
        sums: Sums of the frames, in the order of the sensor's own readout.
        angles: Angle of each setting in degrees, in the convention of AoLP; None if it is unknown. If any is, all
            are estimated, and those given only fix the rotation of all.
        sensor: The mosaic in the sensor's own readout.
        offset: (x, y) of the frames' first pixel in that readout.
        is_flat_field: Whether the gain is to correct the lens shading and the lamp too.
        notes: Facts for the calibration, such as the temperature.
        angle_error: Standard deviation of the given angles in degrees.
        polarizer_extinction: Extinction ratio of the polarizer.

    Raises:
        ValueError: Dark frames or enough angles are missing, there is no light, or too many pixels are unusable; the
            message says what helps.
    """
    level = sums.level
    black, dark_noise = sums.dark.mean(), np.sqrt(sums.dark.variance())
    names, settings = list(sums.light), list(sums.light.values())
    if not settings:
        raise ValueError("a session needs frames of a rotated polarizer, best at 18 angles; got dark frames only")
    saturated = np.any([one.saturated for one in sums.settings.values()], axis=0)
    if saturated.mean() > MAX_DEFECTS:
        raise ValueError(
            f"{saturated.mean():.1%} of the pixels are saturated in some frames, at most {MAX_DEFECTS:.0%} are "
            "allowed: shorten the exposure until the brightest are below 85 % of full scale"
        )
    dark_images = {"black level": black, "dark noise": dark_noise}
    early = find_defects(dark_images, {"saturated": saturated}, level) > 0  # means over the sensor leave them out
    means, reacts = site_means(sums, settings, black, ~early)
    points = [point for one in sums.settings.values() for point in one.points]
    noise = fit_noise(points, float(black.mean()), level)  # with the same defects as the points' means
    known = [angles[name] for name in names]
    polarizer = fit_polarizer(means, sums.sensor, known)
    orientations(polarizer, sums.sensor)
    frames = np.array([one.count for one in settings])
    by_angle = designs(sums.sensor, polarizer, frames, noise, level)
    fits = fit_pixels(sums, settings, black, by_angle)
    light, images = _interpret(sums.sensor, fits, reacts)
    usual = max(float(np.median(fits.excess[reacts])), 1e-6)
    causes = find_defects(
        {**dark_images, "fit": fits.excess / usual, **images},
        {"saturated": saturated, "no reaction": ~reacts & ~early},
        level,
    )
    used = causes == 0
    shares = {name: float(np.mean(causes >> k & 1)) for k, name in enumerate(CAUSES)}
    shares["saturated"] = float(np.mean(causes == 1))  # by light alone
    if np.mean(~used) > MAX_DEFECTS:
        listed = ", ".join(f"{name} {value:.1%}" for name, value in shares.items() if value)
        raise ValueError(
            f"{np.mean(~used):.1%} of the pixels cannot be used ({listed}), at most {MAX_DEFECTS:.0%} are allowed: "
            "check that the light is uniform and that dark frames are dark"
        )
    facts: Dict[str, Any] = {
        "settings": len(settings),
        "frames": int(frames.sum()),
        "dark_frames": sums.dark.count,
        "angles": [round(float(angle), 3) for angle in np.rad2deg(polarizer.angles)],
        "angles_known": None not in known,
        "lamp": [round(float(factor), 5) for factor in polarizer.lamp],
        "flat_field": is_flat_field,
        **(notes or {}),
    }
    if noise is not None:
        facts["noise"] = {"full_well": round(noise.full_well, 1), "read_noise": round(noise.read_noise, 3)}
    parameters = _parameters(sums.sensor, fits, black, images["gain"], is_flat_field, used)
    calibration = Calibration.from_parameters(parameters, sensor, offset, ~used, sums.bit_depth, facts)
    shade = float(np.percentile(light / light.max(), 1))
    # the value that 1 % of the pixels exceed at their brightest setting
    brightest = float(np.percentile(np.max([one.mean(slice(None, None, 9)) for one in settings], axis=0), 99))
    return CalibrationResult(
        calibration,
        images["gain"],
        images["angle"],
        images["extinction"],
        black,
        light,
        causes,
        fits.excess,
        tuple(names),
        tuple(known),
        tuple(np.rad2deg(polarizer.angles).tolist()),
        tuple(polarizer.lamp.tolist()),
        tuple(np.sqrt(np.mean(polarizer.residuals**2, 0)).tolist()),
        tuple(frames.tolist()),
        sums.dark.count,
        noise,
        tuple(points),
        expected_errors(calibration, sums.sensor, by_angle, _black_variance(sums, dark_noise), used),
        [
            *about_frames(sums, float(np.median(black)), brightest, noise),
            *about_pixels(shares, sums.light, shade, is_flat_field),
            *about_polarizer(polarizer, means, sums.sensor, names, known),
        ],
    )


def _interpret(sensor: Sensor, fits: PixelFits, reacts: np.ndarray) -> Tuple[np.ndarray, Dict[str, np.ndarray]]:
    """Return the light, and gain, angle and extinction ratio of each pixel by name; see `CalibrationResult`."""
    a, b, c = fits.terms
    light = smooth_light(a, reacts, sensor)
    angle = np.rad2deg(half_turn(np.arctan2(c, b) / 2 - nominal_angles(sensor, a.shape)))
    m = np.hypot(b, c) / np.maximum(a, 1e-9)
    highest = (_MAX_EXTINCTION - 1) / (_MAX_EXTINCTION + 1)
    m = np.minimum(m, highest)
    return light, {"gain": a / light, "angle": angle, "extinction": (1 + m) / (1 - m)}


def _parameters(
    sensor: Sensor, fits: PixelFits, black: np.ndarray, relative: np.ndarray, is_flat: bool, used: np.ndarray
) -> PixelParameters:
    """Return the parameters of the correction; pixels that are not used have those of an ideal pixel."""
    a, b, c = (np.where(used, term, start) for term, start in zip(fits.terms, (1.0, 0.0, 0.0)))
    gain = np.where(used, a if is_flat else relative, 1.0)
    colors = color_indices(sensor, a.shape)
    for color in np.unique(colors):
        channel = colors == color
        if (channel & used).any():
            gain[channel] /= gain[channel & used].mean()
    angle = 2 * nominal_angles(sensor, a.shape)
    return PixelParameters(black, 1 / gain, (np.cos(angle) - b / a) / 2, (np.sin(angle) - c / a) / 2)


def _black_variance(sums: SessionSums, dark_noise: np.ndarray) -> float:
    """Return the variance of the mean black level of a pixel, in squares of full scale."""
    level = sums.level
    usual = float(np.median(dark_noise)) ** 2
    rounding = level**2 / 12 if usual < level**2 / 4 else 0.0  # without noise, frames round alike
    return usual / sums.dark.count + rounding
