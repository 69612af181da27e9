"""Estimation of a sensor's calibration from the sums over a session's frames."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import reduce
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

import numpy as np

from polar_pipeline.calibration import Calibration, PixelParameters, superpixel_phase
from polar_pipeline.calibration.calibration import MAX_DEFECTS
from polar_pipeline.sensor.mosaic import Sensor
from polar_pipeline.tools.calibrate.advice import (
    Advice,
    about_dark_frames,
    about_errors,
    about_extinction,
    about_frames,
    about_pixels,
    about_place,
    about_polarizer,
)
from polar_pipeline.tools.calibrate.balance import balance_pairs
from polar_pipeline.tools.calibrate.defects import CAUSES, find_defects
from polar_pipeline.tools.calibrate.errors import (
    HEADLINE,
    ExpectedError,
    area_error,
    expected_errors,
    sample_superpixels,
)
from polar_pipeline.tools.calibrate.illumination import light_maps, smooth_light
from polar_pipeline.tools.calibrate.noise import Noise, fit_noise
from polar_pipeline.tools.calibrate.pixels import (
    MAX_EXTINCTION,
    correction_parameters,
    designs,
    fit_pixels,
    interpret,
    site_means,
)
from polar_pipeline.tools.calibrate.polarizer import ANGLE_ERROR, Polarizer, fit_polarizer, site_angles
from polar_pipeline.tools.calibrate.sums import NoisePoint, SessionSums
from polar_pipeline.tools.calibrate.texture import measure_texture


@dataclass(frozen=True, eq=False)
class CalibrationResult:
    """A calibration and its diagnostics; images are (H, W) in the order of the sensor's own readout."""

    calibration: Calibration
    gain: np.ndarray  # gain of each pixel relative to the light nearby; 1 on average
    angle: np.ndarray  # angle of each pixel's polarizer minus its nominal angle, in degrees
    extinction: np.ndarray  # extinction ratio, at most 10 000
    black: np.ndarray  # black level as a share of full scale
    light: np.ndarray  # the smooth part of the signal, as a share of full scale: lamp and lens
    causes: np.ndarray  # uint8, why a pixel is defective: bit k for `defects.CAUSES[k]`; 0 if it is not
    relative_residual: np.ndarray  # as in `PixelFits`, relative to the noise of the frames
    dark_frames: int  # number of dark frames
    noise: Optional[Noise]  # full well and read noise; None if the frames do not tell
    points: Tuple[NoisePoint, ...]  # points of the photon transfer curve, which `noise` was fitted to
    advice: Sequence[Advice]  # warnings, and problems that make the calibration worse than none
    #: Number of frames of each setting of the polarizer, in order.
    frames: Mapping[str, int] = field(default_factory=dict)
    polarizer: Optional[Polarizer] = None  # the settings of the polarizer; None without one
    #: Expected errors of DoLP and AoLP; none without a polarizer.
    errors: List[ExpectedError] = field(default_factory=list)

    @property
    def warnings(self) -> List[str]:
        """Texts of the advice that is not about problems."""
        return [row.text for row in self.advice if not row.is_problem]

    @property
    def problems(self) -> List[str]:
        """Texts of the advice about problems."""
        return [row.text for row in self.advice if row.is_problem]

    @property
    def headline(self) -> Optional[ExpectedError]:
        """The expected error that stands for all; None without a polarizer."""
        return next((row for row in self.errors if row.dolp == HEADLINE), None)

    def error_map(self) -> np.ndarray:
        """Return (H, W): error of DoLP at the DoLP of `headline`, by place."""
        row, used = self.headline, self.causes == 0
        assert row is not None
        error = self.relative_residual / (self.light / self.light[used].mean())
        error *= row.dolp_error / np.sqrt(np.mean(np.square(error[used])))
        return error


def calibrate(
    sums: SessionSums,
    angles: Mapping[str, Optional[float]],
    sensor: Sensor,
    offset: Optional[Tuple[int, int]] = None,
    is_flat_field: bool = False,
    notes: Optional[Mapping[str, float]] = None,
    angle_error: float = ANGLE_ERROR,
    polarizer_extinction: float = np.inf,
) -> CalibrationResult:
    """Estimate the calibration of a sensor.

    Args:
        sums: Sums of the frames, in the order of the sensor's own readout.
        angles: Angle of each setting in degrees as read, in the convention of AoLP; None if unknown. All are estimated.
            Settings of the k-th session are named `k/...` from the second on.
        sensor: The mosaic in the sensor's own readout.
        offset: (x, y) of the frames' first pixel in that readout; None if it was not given, which is a problem of
            frames that are smaller than the sensor.
        is_flat_field: Whether the gain is to correct the lens shading and the lamp too.
        notes: Facts for the calibration, such as the temperature.
        angle_error: Standard deviation of the angles as read, in degrees.
        polarizer_extinction: Extinction ratio of the polarizer before the lens; infinite for an ideal one.

    Raises:
        ValueError: Dark frames or enough angles are missing, there is no light, or too many pixels are unusable; the
            message says what helps.
    """
    level, start = sums.level, offset or (0, 0)
    black, dark_noise = _measure_dark(sums)
    dark_images = {"black level": black, "dark noise": dark_noise}
    points = tuple(point for setting in sums.settings.values() for point in setting.points)
    noise = fit_noise(points, float(black.mean()), level)  # with the same defects as the points' means
    names, settings = list(sums.light), list(sums.light.values())
    facts: Dict[str, Any] = {"settings": len(settings), "dark_frames": sums.dark.count, **(notes or {})}
    if noise is not None:
        facts["noise"] = {"full_well": round(noise.full_well, 1), "read_noise": round(noise.read_noise, 3)}
    if not settings:
        return _without_polarizer(sums, sensor, offset, dark_images, noise, points, facts)
    saturated = reduce(np.logical_or, (setting.saturated for setting in sums.settings.values()))
    if saturated.mean() > MAX_DEFECTS:
        raise ValueError(
            f"{saturated.mean():.1%} of the pixels are saturated in some frames, at most {MAX_DEFECTS:.0%} are "
            "allowed: shorten the exposure until the brightest are below 85 % of full scale"
        )
    early = find_defects(dark_images, {"saturated": saturated}, level) > 0  # means over the sensor leave them out
    means, reacts = site_means(sums, settings, black, ~early)
    readings = np.array([angles[name] for name in names], float)
    prefixes = [name.partition("/")[0] if "/" in name else "" for name in names]
    sessions = np.array([int(prefix) - 1 if prefix.isdigit() else 0 for prefix in prefixes])
    polarizer = fit_polarizer(means, sums.sensor, readings, sessions, angle_error, polarizer_extinction)
    frames = {name: setting.count for name, setting in sums.light.items()}
    by_angle = designs(sums.sensor, polarizer, np.array(list(frames.values())), noise, level)
    by_site = [by_angle[int(np.rint(np.rad2deg(angle) / 45))] for angle in site_angles(sums.sensor)]
    variance = np.stack([design.variance / design.level**2 for design in by_site])
    maps = light_maps(settings, black, reacts, polarizer, variance)
    fits = fit_pixels(sums, settings, black, maps, by_angle)
    light = smooth_light(fits.level, reacts, sums.sensor)
    balance_pairs(fits, light, reacts, sums.sensor, polarizer.pair_differences)
    light = smooth_light(fits.level, reacts, sums.sensor)
    images = interpret(sums.sensor, fits, light)
    unusable = {"saturated": saturated, "no reaction": ~reacts & ~early}
    usual_residual = max(float(np.median(fits.relative_residual[reacts])), 1e-6)  # it may be 0 of frames without noise
    causes = find_defects({**dark_images, "fit": fits.relative_residual / usual_residual, **images}, unusable, level)
    used = causes == 0
    if np.mean(~used) > MAX_DEFECTS:
        listed = ", ".join(f"{name} {share:.1%}" for name, share in _shares(causes).items() if share)
        raise ValueError(
            f"{np.mean(~used):.1%} of the pixels cannot be used ({listed}), at most {MAX_DEFECTS:.0%} are allowed: "
            "check that the light is uniform and that dark frames are dark"
        )
    facts.update(
        frames=sum(frames.values()),
        angles=[round(float(angle), 3) for angle in np.rad2deg(polarizer.angles)],
        angles_known=not np.isnan(readings).any(),
        lamp=[round(float(factor), 5) for factor in polarizer.lamp],
        flat_field=is_flat_field,
    )
    sample = sample_superpixels(sums.sensor, images["gain"], fits, used)
    modulation = float(np.median(np.hypot(*sample[1:])))
    level_of = fits.level if is_flat_field else images["gain"]
    phase = superpixel_phase(start, (False, False), sums.shape)
    parameters = correction_parameters(sums.sensor, fits, black, level_of, used, phase)
    calibration = Calibration.from_parameters(parameters, sensor, start, ~used, sums.bit_depth, facts)
    # the value that 1 % of the pixels exceed at their brightest setting
    brightest = float(np.percentile(np.max([setting.mean(slice(None, None, 9)) for setting in settings], axis=0), 99))
    residual_variance = float(np.mean(fits.relative_residual[used] ** 2))
    common = area_error(maps, residual_variance, polarizer.pair_error)
    usual_noise = float(np.median(dark_noise)) ** 2
    rounding = level**2 / 12 if usual_noise < level**2 / 4 else 0.0  # without noise, frames round alike
    black_variance = usual_noise / sums.dark.count + rounding
    texture = measure_texture(images["gain"], used)
    errors = expected_errors(
        sample, calibration.scales, by_angle, residual_variance, black_variance, common, texture.error
    )
    headline = next(row for row in errors if row.dolp == HEADLINE)
    advice = [
        *about_frames(sums, float(np.median(black)), brightest, noise),
        *about_pixels(_shares(causes), sums, light, images["gain"], is_flat_field),
        *about_polarizer(polarizer, maps, names, angle_error),
        *about_extinction(headline, modulation),
        *about_errors(headline, common, texture),
        *about_place(sums.shape, sensor, offset),
    ]
    return CalibrationResult(
        calibration=calibration,
        **images,
        black=black,
        light=light,
        causes=causes,
        relative_residual=fits.relative_residual,
        dark_frames=sums.dark.count,
        noise=noise,
        points=points,
        advice=advice,
        frames=frames,
        polarizer=polarizer,
        errors=errors,
    )


def _shares(causes: np.ndarray) -> Dict[str, float]:
    """Return the share of the pixels with each defect, by name; `saturated` counts pixels without another defect."""
    shares = {name: float(np.mean(causes >> k & 1)) for k, name in enumerate(CAUSES)}
    return {**shares, "saturated": float(np.mean(causes == 1))}


def _measure_dark(sums: SessionSums) -> Tuple[np.ndarray, np.ndarray]:
    """Return black level and noise of each pixel in the dark, as shares of full scale."""
    black = sums.dark.mean().astype(np.float32)
    cut = float(np.mean(black == 0))
    if cut > MAX_DEFECTS:
        raise ValueError(
            f"{cut:.1%} of the pixels read 0 in every dark frame: raise the camera's black level, so that it cuts "
            "nothing off"
        )
    return black, np.sqrt(sums.dark.variance().astype(np.float32))


def _without_polarizer(
    sums: SessionSums,
    sensor: Sensor,
    offset: Optional[Tuple[int, int]],
    dark_images: Dict[str, np.ndarray],
    noise: Optional[Noise],
    points: Tuple[NoisePoint, ...],
    facts: Dict[str, Any],
) -> CalibrationResult:
    """Return a result with measured black levels, defects in the dark and noise; all else is that of ideal pixels.

    Raises:
        ValueError: Too many pixels are defective.
    """
    black = dark_images["black level"]
    causes = find_defects(dark_images, {"saturated": sums.dark.saturated}, sums.level)
    ones, zeros = np.ones(sums.shape, np.float32), np.zeros(sums.shape, np.float32)
    flat = [setting.mean() for setting in sums.flat.values()]
    parameters = PixelParameters(black, ones, zeros, zeros)
    calibration = Calibration.from_parameters(parameters, sensor, offset or (0, 0), causes > 0, sums.bit_depth, facts)
    advice = [*about_dark_frames(sums, float(np.median(black)), noise), *about_place(sums.shape, sensor, offset)]
    return CalibrationResult(
        calibration=calibration,
        gain=ones,
        angle=zeros,
        extinction=np.full(sums.shape, MAX_EXTINCTION, np.float32),
        black=black,
        light=np.mean(flat, 0) if flat else ones,
        causes=causes,
        relative_residual=ones,
        dark_frames=sums.dark.count,
        noise=noise,
        points=points,
        advice=advice,
    )
