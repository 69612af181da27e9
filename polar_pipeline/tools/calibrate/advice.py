"""Advice about a session by its result: warnings, and problems that make it worse than no calibration."""

from __future__ import annotations

from typing import Dict, Iterator, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from polar_pipeline.sensor.forward import color_indices
from polar_pipeline.sensor.mosaic import Sensor
from polar_pipeline.tools.calibrate.errors import HEADLINE, ExpectedError
from polar_pipeline.tools.calibrate.illumination import LightMaps
from polar_pipeline.tools.calibrate.noise import Noise
from polar_pipeline.tools.calibrate.polarizer import Polarizer, half_turn, harmonic_rows, largest_gap
from polar_pipeline.tools.calibrate.sums import SessionSums
from polar_pipeline.tools.calibrate.texture import Texture

#: Fewer settings or frames than these bring a warning.
_FEW_ANGLES, _FEW_FRAMES, _FEW_DARK = 8, 4, 16
#: Largest gap between angles relative to that of evenly spread ones.
_GAP = 2.5
#: Share of full scale below which the brightest pixels are too dark, and above which dark frames are not dark.
_LOW_EXPOSURE, _DARK_LIMIT = 0.3, 0.1
#: Light in the dark frames that their noise shows, as a share of full scale.
_DARK_LIGHT = 0.002
#: Maximum full well relative to that of the sensor. Above it frames are means of several, or, if the brightest pixels
#: are below the second number as a share of full scale, the bit depth is wrong.
_MAX_FULL_WELL, _UNUSED = 2.0, 1 / 8
#: Darkest relative to the brightest light on the sensor.
_UNIFORM = 0.5
#: Modulation of pixels, (r - 1)/(r + 1) for an extinction ratio r: that of 500, which few sensors exceed, and the
#: highest without a warning (1000) and without a problem. Above 1, black levels are too high.
_BEST, _USUAL, _POSSIBLE = 0.996, 0.998, 1.02
#: The light at some setting and place relative to the mean of the settings.
_UNEVEN = 0.05
#: Amplitude of the lamp at twice the polarizer's angle, and the difference between the gains of orthogonal polarizers.
_TURNING, _PAIR = 0.02, 0.005
#: Amplitude of the residuals at 4 times the polarizer's angle, relative to the signal's own, at twice the angle.
_FOURTH, _NOT_LINEAR = 0.003, 0.02
#: Minimum number of settings for harmonic analysis.
_MIN_SETTINGS = 6
#: Deviation of an angle, or of the mean of all, as read, in its standard deviations; and mean turn of all pixels in
#: degrees, of which a sensor has 0.3 at most.
_READING, _TURNED = 3.0, 0.5
#: Factor by which the calibration reduces the error of DoLP: below the first a warning, below the second a problem.
_MIN_FACTOR, _WORSE = 4.5, 1.25
#: Minimum factor if all light that the pixels seem to let through passes beside the polarizer.
_MIN_FACTOR_OF_PIXELS = 4.0
#: Difference between the four superpixels of a Bayer quad, relative.
_COLORS = 0.03
#: Share of the pixels saturated or defective that is worth mentioning.
_MANY = 1e-3


class Advice(NamedTuple):
    """A text about the session, and what to do.

    A problem makes the result worse than no calibration, a warning less exact than it could be. `option` names the
    option whose value is wrong or missing, if that makes the result worse.
    """

    text: str
    is_problem: bool = False
    option: str = ""


def about_frames(sums: SessionSums, black: float, brightest: float, noise: Optional[Noise]) -> Iterator[Advice]:
    """Judge numbers of frames, their exposure and their noise.

    `black` is the mean black level, and `brightest` the value that 1 % of the pixels exceed at their brightest setting,
    as shares of full scale.
    """
    about_dark = list(about_dark_frames(sums, black, noise, brightest))
    yield from about_dark
    light = sums.light
    if len(light) < _FEW_ANGLES:
        yield Advice(f"only {len(light)} settings of the polarizer: take 18, every 10 degrees, for smaller errors")
    name = min(light, key=lambda name: light[name].count)
    if light[name].count < _FEW_FRAMES:
        yield Advice(f"only {light[name].count} frames of setting {name}: take 16 of each, which halves the noise of 4")
    if noise is None:
        yield Advice("full well and read noise are unknown: take two or more frames of each setting")
    if brightest < _LOW_EXPOSURE and not any(row.is_problem for row in about_dark):
        yield Advice(
            f"the brightest pixels reach {brightest:.0%} of full scale: expose longer, to between 60 % and 85 %"
        )


def about_dark_frames(
    sums: SessionSums, black: float, noise: Optional[Noise], brightest: Optional[float] = None
) -> Iterator[Advice]:
    """Judge the dark frames and the sensor's noise; see `about_frames`."""
    dark, sensor = sums.dark, sums.sensor
    if dark.count < _FEW_DARK:
        yield Advice(f"only {dark.count} dark frames: take 64, black levels are as noisy as their mean")
    if black > _DARK_LIMIT:
        yield Advice(f"dark frames read {black:.1%} of full scale: cover the lens, or lower the camera's black level")
    if noise is not None and noise.full_well > _MAX_FULL_WELL * sensor.full_well:
        is_unused = brightest is not None and brightest < _UNUSED
        yield Advice(
            f"the noise of the frames means {noise.full_well:.0f} electrons at full scale, where {sensor.name} has "
            f"{sensor.full_well:.0f}: name the camera's number of bits with --bit-depth, unless frames are means of "
            "several; then the stated noise of images is too small",
            is_unused,
            option="bit_depth",
        )
    elif noise is not None and dark.count > 1:
        dark_variance = float(np.median(dark.variance())) - sums.level**2 / 12
        dark_light = dark_variance * noise.full_well - sensor.read_noise**2 / noise.full_well
        if dark_light > max(_DARK_LIGHT, sums.level):
            yield Advice(
                f"the dark frames are as noisy as light of {dark_light:.1%} of full scale: cover the lens and switch "
                "the lamp off, unless the exposure is long or the sensor hot"
            )


def about_place(shape: Tuple[int, int], sensor: Sensor, offset: Optional[Tuple[int, int]]) -> Iterator[Advice]:
    """Judge whether it is known where frames of a (height, width) lie on the sensor; `offset` is None if not said."""
    (height, width), (rows, columns) = shape, sensor.size
    if offset is None and shape != sensor.size and height <= rows and width <= columns:
        yield Advice(
            f"the frames have {width}x{height} pixels, {sensor.name} has {columns}x{rows}: name the place of their "
            "first pixel with --roi-offset X Y (0 0 if it is the sensor's first)",
            is_problem=True,
            option="roi_offset",
        )


def about_pixels(
    causes: Dict[str, float], sums: SessionSums, light: np.ndarray, gain: np.ndarray, is_flat: bool
) -> Iterator[Advice]:
    """Judge saturation, defects, the evenness of the light, and whether colors look like gains.

    `causes` are the shares of pixels with each defect. The gain, (H, W), is relative to the smooth part of the light,
    (H, W). With `is_flat`, the gain of the calibration includes the unevenness of the light.
    """
    sensor = sums.sensor
    if causes["saturated"] > _MANY:
        share = {name: float(setting.saturated.mean()) for name, setting in sums.light.items()}
        worst = max(share, key=lambda name: share[name])
        yield Advice(
            f"{causes['saturated']:.1%} of the pixels are saturated in some frames, most at setting {worst}: "
            "shorten the exposure until the brightest are below 85 % of full scale"
        )
    others = {name: value for name, value in causes.items() if name != "saturated" and value > _MANY}
    if others:
        listed = ", ".join(f"{name} {value:.2%}" for name, value in others.items())
        yield Advice(
            f"many defective pixels ({listed}): look for dust, glare on the lens, and light in the dark frames"
        )
    colors = color_indices(sensor, light.shape)
    shade = min(float(np.percentile(own / own.max(), 1)) for own in (light[colors == c] for c in np.unique(colors)))
    if shade < _UNIFORM:
        advice = "the flat field would take the lamp for the lens" if is_flat else "pixels in the dark have more noise"
        yield Advice(
            f"the light falls to {shade:.0%} of its highest across the sensor, and {advice}: use an integrating "
            "sphere, or a diffuser close to the polarizer"
        )
    if not sensor.is_color:
        height, width = (side // 4 * 4 for side in gain.shape)
        quads = gain[:height, :width].reshape(height // 4, 2, 2, width // 4, 2, 2)
        classes = np.median(quads.mean((2, 5)), (0, 2))
        if np.ptp(classes) > _COLORS:
            yield Advice(
                f"the gains of neighboring superpixels differ by {np.ptp(classes):.0%}, as behind color filters: "
                "name the sensor with --sensor, IMX250MYR for example",
                is_problem=True,
                option="sensor",
            )


def about_polarizer(
    polarizer: Polarizer, maps: LightMaps, names: Sequence[str], angle_error: float
) -> Iterator[Advice]:
    """Judge the polarizer and the lamp; `angle_error` is the standard deviation of angles as read, in degrees."""
    gap = largest_gap(np.rad2deg(polarizer.angles))
    if gap > _GAP * 180 / len(polarizer.angles):
        yield Advice(f"no polarizer angle within a gap of {gap:.0f} degrees: spread the angles evenly over 180 degrees")
    has_reading = np.flatnonzero(np.isfinite(polarizer.readings))
    if has_reading.size:
        errors = np.rad2deg(half_turn(np.deg2rad(polarizer.readings[has_reading]) - polarizer.angles[has_reading]))
        worst = int(np.argmax(np.abs(errors)))
        if abs(errors[worst]) > _READING * angle_error:
            yield Advice(
                f"setting {names[has_reading[worst]]} deviates by {errors[worst]:+.1f} degrees from the angle that its "
                f"frames show (root mean square of all {np.sqrt(np.mean(errors**2)):.1f}): the angles of the frames "
                "are used; check the readings"
            )
    amplitude, pair, count = 0.0, max(map(abs, polarizer.pair_differences)), len(polarizer.lamp)
    if count >= _MIN_SETTINGS:
        amplitude = float(np.hypot(*harmonic_rows(polarizer.angles, np.zeros(count, int)) @ polarizer.lamp))
    signs = [f"the lamp changes by {amplitude:.1%} with twice its angle"] if amplitude > _TURNING else []
    if pair > _PAIR:
        signs.append(f"the gains of orthogonal pixels differ by {pair:.1%} on average")
    if float(maps.spread.max()) > _UNEVEN:
        signs.append(f"the light over the sensor changes by {maps.spread.max():.1%} as the polarizer turns")
    if signs:
        yield Advice(
            "the lamp seems polarized, the polarizer tilted or dirty, or the lens sees it at a slant: "
            f"{', '.join(signs)}. This is corrected as far as the frames show it; to be sure, put a diffuser between "
            "lamp and polarizer, or record a second session with the lamp or the camera turned by 90 degrees, and "
            "calibrate from both"
        )
    fourth = _fourth_amplitude(polarizer)
    if fourth > _FOURTH:
        yield Advice(
            f"{fourth:.1%} of the signal follows 4 times the polarizer's angle: the response seems not linear. Turn "
            "the camera's gamma off, and keep the brightest pixels below 85 % of full scale",
            fourth > _NOT_LINEAR,
        )
    if abs(polarizer.turned) > max(_TURNED, _READING * angle_error / np.sqrt(max(1, has_reading.size))):
        yield Advice(
            f"all pixels are turned by {polarizer.turned:+.1f} degrees from the polarizer's scale, and so will AoLP "
            "be: check that the scale is 0 at the camera's x axis, that the mount is centered and turned in one "
            "direction only, and take angles from 0 to 360 degrees; or take the angles as unknown"
        )


def about_errors(row: ExpectedError, misfit_error: float, texture: Texture) -> Iterator[Advice]:
    """Judge the expected error at `HEADLINE`; `misfit_error` is its part by residuals of whole areas."""
    if texture.is_visible:
        yield Advice(
            f"the gains of neighboring pixels deviate alike (correlation {texture.correlation:.2f}), as by texture of "
            "the lamp, dirt, or a polarizer that is a wedge: the calibration would add it to images. Bring the lamp "
            "out of focus, clean the polarizer, and turn it over 360 degrees"
        )
    factor = row.dolp_before / row.dolp_error
    text = f"the error of DoLP is {row.dolp_error:.4f}, without calibration {row.dolp_before:.4f}"
    if texture.error > row.dolp_error / 2:
        text += ", as gains are in part texture before the camera"
    elif misfit_error > row.dolp_error / 2:
        text += (
            ", as areas of the sensor see light of another angle or brightness than the fit says: look for "
            "reflections, a polarizer that is not parallel to the sensor, and dirt on it"
        )
    else:
        text += ": take more frames, and expose longer"
    if factor < _MIN_FACTOR:
        yield Advice(text, factor < _WORSE)


def about_extinction(row: ExpectedError, modulation: float) -> Iterator[Advice]:
    """Judge what the pixels lack of a complete modulation, of which light beside the polarizer may be a part.

    Such light counts as the pixels', so it makes the result wrong, and what it corrects looks larger than it is.

    Args:
        row: The expected error at `HEADLINE`.
        modulation: Median over the pixels of the amplitude relative to the mean as the polarizer turns.
    """
    if modulation > _USUAL:
        yield Advice(
            "the pixels seem to extinguish light completely: the dark frames are brighter than the pixels are "
            "without light. Cover the lens, and take dark frames at the exposure and temperature of the others",
            modulation > _POSSIBLE,
        )
        return
    before = np.sqrt(max(row.dolp_before**2 - (HEADLINE * (1 - modulation)) ** 2, 0.0))  # by gains and angles alone
    text = (
        f"the median extinction ratio is {(1 + modulation) / (1 - modulation):.0f}: light passes beside the polarizer "
        "(switch other lamps off, cover the gap), or the polarizer is poor (--polarizer-extinction states that of a "
        "known one), or its light is of a wavelength that the sensor's polarizers are not for"
    )
    # if the pixels themselves are ideal, or of the best kind
    for best, factor, is_problem in ((1.0, 1.0, True), (_BEST, _MIN_FACTOR_OF_PIXELS, False)):
        lost = HEADLINE * (best / modulation - 1)
        if lost > row.dolp_error / 2 and before < factor * np.hypot(lost, row.dolp_error):
            yield Advice(text, is_problem)
            return


def _fourth_amplitude(polarizer: Polarizer) -> float:
    """Compute the amplitude of cos 4a and sin 4a in the residuals of the means, relative to the modulation.

    A response with a square has it, with another sign for each second polarizer angle, so that no lamp explains it.
    """
    waves = np.stack([np.cos(4 * polarizer.angles), np.sin(4 * polarizer.angles)], 1)
    if len(waves) < _MIN_SETTINGS:
        return 0.0
    terms = np.linalg.lstsq(waves, polarizer.residuals.T, rcond=None)[0]
    modulation = np.hypot(polarizer.terms[:, 1], polarizer.terms[:, 2])
    return float(np.sqrt(np.mean((np.hypot(terms[0], terms[1]) / modulation) ** 2)))
