"""Warnings about a session, which say what to do."""

from __future__ import annotations

from typing import Dict, List, Optional, Sequence, Tuple

import numpy as np

from polar_pipeline.calibrate.noise import Noise
from polar_pipeline.calibrate.polarizer import Polarizer, fit_polarizer, half_turn, orientations, site_angles
from polar_pipeline.calibrate.sums import FrameSums, SessionSums
from polar_pipeline.sensor.forward import color_indices
from polar_pipeline.sensor.mosaic import Sensor

#: Fewer settings or frames than these bring a warning.
_FEW_ANGLES, _FEW_FRAMES, _FEW_DARK = 8, 4, 16
#: Largest gap between angles relative to that of evenly spread ones.
_GAP = 2.5
#: Share of full scale below which the brightest pixels are too dark, and above which dark frames are not dark.
_LOW_EXPOSURE, _DARK_LIMIT = 0.3, 0.1
#: Full scale of 16 bits, which numbers of fewer bits seem to have too; and the share of it that 12 bits reach.
_LARGEST, _FEW_BITS = 65535, 1 / 16
#: Darkest relative to the brightest light on the sensor.
_UNIFORM = 0.5
#: Change of the light as the polarizer turns: amplitude, and its multiple of what chance explains.
_TURNING, _CHANCE = 0.005, 4.0
#: Amplitude of what is left at 4 times the polarizer's angle, relative to the signal's own, at twice the angle.
_FOURTH = 0.003
#: Difference between the gains of orthogonal polarizers.
_PAIR = 0.01
#: Deviation of a given angle from the one that the frames say, in degrees.
_READING = 0.7
#: Mean turn of all pixels from their nominal angles, in degrees.
_TURNED = 2.0
#: Share of the pixels saturated or defective that is worth mentioning.
_MANY = 1e-3


def turning_amplitudes(angles: np.ndarray, lamp: np.ndarray) -> Dict[int, Tuple[float, float]]:
    """Measure how the light follows the polarizer: multiple of its angle -> (relative amplitude, amplitude by chance).

    A lamp that drifts evenly counts as such. The simple angle is fitted only where the angles cover more than 200
    degrees; over less, drift looks the same.

    Args:
        angles: (K,) in rad, as given: not modulo pi.
        lamp: (K,) lamp factors in the order of the session.
    """
    count = len(lamp)
    multiples = [2]
    if np.ptp(angles) > np.deg2rad(200):
        multiples.insert(0, 1)
    columns = [np.ones(count), np.linspace(-1, 1, count)]
    for multiple in multiples:
        columns += [np.cos(multiple * angles), np.sin(multiple * angles)]
    if count < len(columns) + 2:
        return {}
    design = np.stack(columns, 1)
    terms = np.linalg.lstsq(design, lamp, rcond=None)[0]
    left = lamp - design @ terms
    chance = float(np.sqrt(left @ left / (count - len(columns)) * 2 / count))
    return {multiple: (float(np.hypot(*terms[2 + 2 * k : 4 + 2 * k])), chance) for k, multiple in enumerate(multiples)}


def fourth_amplitude(polarizer: Polarizer) -> float:
    """Compute the amplitude of cos 4a and sin 4a in the residuals of the means, relative to the modulation.

    A response with a square has it, with another sign for each second polarizer angle, so that no lamp explains it.
    """
    waves = np.stack([np.cos(4 * polarizer.angles), np.sin(4 * polarizer.angles)], 1)
    if len(waves) < 6:
        return 0.0
    terms = np.linalg.lstsq(waves, polarizer.residuals.T, rcond=None)[0]
    modulation = np.hypot(polarizer.terms[:, 1], polarizer.terms[:, 2])
    return float(np.sqrt(np.mean((np.hypot(terms[0], terms[1]) / modulation) ** 2)))


def pair_difference(polarizer: Polarizer, sensor: Sensor) -> float:
    """Compute the largest relative difference between the mean gains of orthogonal pixels of one color."""
    nominal = np.rint(np.rad2deg(site_angles(sensor))).astype(int)
    colors = color_indices(sensor, (sensor.period, sensor.period)).ravel()
    gains = polarizer.terms[:, 0]
    worst = 0.0
    for color in np.unique(colors):
        level = {angle: float(gains[(colors == color) & (nominal == angle)].mean()) for angle in (0, 45, 90, 135)}
        worst = max(worst, *(2 * abs(level[a] - level[b]) / (level[a] + level[b]) for a, b in ((0, 90), (45, 135))))
    return worst


def reading_errors(means: np.ndarray, sensor: Sensor, known: Sequence[float]) -> np.ndarray:
    """Return (K,) given angles minus estimated angles in degrees, without their median."""
    free = fit_polarizer(means, sensor, [None] * len(known))
    errors = np.rad2deg(half_turn(np.deg2rad(np.asarray(known)) - free.angles))
    middle = float(np.median(errors))
    return np.rad2deg(half_turn(np.deg2rad(errors - middle)))


def about_frames(sums: SessionSums, black: float, brightest: float, noise: Optional[Noise]) -> List[str]:
    """List warnings about numbers of frames and their exposure.

    Args:
        sums: Sums of the session.
        black: Mean black level as a share of full scale.
        brightest: Value that 1 % of the pixels exceed at their brightest setting, as a share of full scale.
        noise: Noise of the sensor.
    """
    found = []
    light, dark, full_scale = sums.light, sums.dark, sums.full_scale
    if len(light) < _FEW_ANGLES:
        found.append(f"only {len(light)} settings of the polarizer: take 18, every 10 degrees, for the stated errors")
    fewest = min(light, key=lambda name: light[name].count)
    if light[fewest].count < _FEW_FRAMES:
        found.append(
            f"only {light[fewest].count} frames of setting {fewest}: take 16 of each, which halves the noise of 4"
        )
    if dark.count < _FEW_DARK:
        found.append(f"only {dark.count} dark frames: take 64, black levels are as noisy as their mean")
    if black > _DARK_LIMIT:
        found.append(f"dark frames read {black:.1%} of full scale: cover the lens, or lower the camera's black level")
    if full_scale == _LARGEST and brightest < _FEW_BITS:
        found.append(
            f"the brightest pixels reach {brightest * full_scale:.0f} of {full_scale}: name the camera's number of "
            "bits with --bit-depth; only if it is 16, expose longer"
        )
    elif brightest < _LOW_EXPOSURE:
        found.append(
            f"the brightest pixels reach {brightest:.0%} of full scale: expose longer, to between 60 % and 85 %"
        )
    if noise is None:
        found.append("full well and read noise are unknown: take two or more frames of each setting")
    return found


def about_pixels(causes: Dict[str, float], light: Dict[str, FrameSums], shade: float, is_flat: bool) -> List[str]:
    """List warnings about saturation, defects and the evenness of the light.

    Args:
        causes: Share of the pixels with each defect.
        light: The settings of the polarizer.
        shade: Darkest relative to the brightest light on the sensor.
        is_flat: Whether the gain includes the light's unevenness.
    """
    found = []
    if causes["saturated"] > _MANY:
        share = {name: float(sums.saturated.mean()) for name, sums in light.items()}
        worst = max(share, key=lambda name: share[name])
        found.append(
            f"{causes['saturated']:.1%} of the pixels are saturated in some frames, most at setting {worst}: "
            "shorten the exposure until the brightest are below 85 % of full scale"
        )
    others = {name: value for name, value in causes.items() if name != "saturated" and value > _MANY}
    if others:
        listed = ", ".join(f"{name} {value:.2%}" for name, value in others.items())
        found.append(
            f"many defective pixels ({listed}): look for dust, glare on the lens, and light in the dark frames"
        )
    if shade < _UNIFORM:
        advice = "the flat field would take the lamp for the lens" if is_flat else "pixels in the dark have more noise"
        found.append(
            f"the light falls to {shade:.0%} of its highest across the sensor, and {advice}: use an integrating "
            "sphere, or a diffuser close to the polarizer"
        )
    return found


def about_polarizer(
    polarizer: Polarizer, means: np.ndarray, sensor: Sensor, names: Sequence[str], known: Sequence[Optional[float]]
) -> List[str]:
    """List warnings about the angles and the tilt of the polarizer.

    Args:
        polarizer: The fit.
        means: (J, K) that it was fitted to.
        sensor: The mosaic.
        names: Names of the settings.
        known: Their angles in degrees, or None.
    """
    found = []
    degrees = np.sort(np.rad2deg(polarizer.angles) % 180)
    gap = float(np.diff(np.r_[degrees, degrees[0] + 180]).max())
    if gap > max(_GAP * 180 / len(degrees), 50.0 if len(degrees) < _FEW_ANGLES else 0.0):
        found.append(f"no polarizer angle within a gap of {gap:.0f} degrees: spread the angles evenly over 180 degrees")
    given = [angle for angle in known if angle is not None]
    is_known = len(given) == len(known)
    signs = []
    angles = np.deg2rad(given) if is_known else polarizer.angles
    for multiple, (amplitude, chance) in turning_amplitudes(angles, polarizer.lamp).items():
        if amplitude > max(_TURNING, _CHANCE * chance):
            signs.append(f"the light changes by {amplitude:.1%} with {multiple} times its angle")
    pair = pair_difference(polarizer, sensor)
    if pair > _PAIR:
        signs.append(f"the gains of orthogonal pixels differ by {pair:.1%} on average")
    if signs:
        found.append(
            f"the polarizer seems tilted, or the lamp polarized: {', '.join(signs)}. Mount it parallel to the sensor, "
            "with a diffuser between lamp and polarizer"
        )
    fourth = fourth_amplitude(polarizer)
    if fourth > _FOURTH:
        found.append(
            f"{fourth:.1%} of the signal follows 4 times the polarizer's angle: the response seems not linear. Turn "
            "the camera's gamma off, and keep the brightest pixels below 85 % of full scale"
        )
    turned = float(np.mean(orientations(polarizer, sensor)))
    if abs(turned) > _TURNED:
        found.append(
            f"all pixels are turned by {turned:+.1f} degrees, as if the polarizer's scale had another zero than the "
            "camera's x axis: turn its scale, or take the angles as unknown"
        )
    if is_known and len(given) > 4:
        errors = reading_errors(means, sensor, given)
        worst = int(np.argmax(np.abs(errors)))
        if abs(errors[worst]) > _READING:
            found.append(
                f"setting {names[worst]} deviates by {errors[worst]:+.1f} degrees from the angle that its frames show "
                f"(root mean square of all {np.sqrt(np.mean(errors**2)):.1f}): check the readings, or take the angles "
                "as unknown"
            )
    return found
