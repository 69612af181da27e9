"""The noise of raw pixels, and which products depend on it."""

from __future__ import annotations

from dataclasses import replace
from typing import Iterable, List, Tuple

from polar_pipeline.options import Options
from polar_pipeline.options.methods import LATTICE_METHODS, METHODS
from polar_pipeline.options.products import NOISE_PRODUCTS, PRODUCTS
from polar_pipeline.polarimetry.coefficients import NOISE_LINEAR
from polar_pipeline.sensor.frames import Frame, FrameError
from polar_pipeline.sensor.mosaic import Sensor

#: Products that `debias` changes, and those that `max_aolp_sigma` changes.
SHOWS_DOLP = frozenset(row.name for row in PRODUCTS.values() if "dolp" in row.shows)
SHOWS_AOLP = frozenset(row.name for row in PRODUCTS.values() if "aolp" in row.shows)


def uses_noise(options: Options) -> bool:
    """Return whether a product depends on the noise."""
    products = set(options.products)
    return (
        not products.isdisjoint(NOISE_PRODUCTS)
        or (options.debias and not products.isdisjoint(SHOWS_DOLP))
        or (options.max_aolp_sigma > 0 and not products.isdisjoint(SHOWS_AOLP))
    )


def raw_noise(options: Options, full_scale: int) -> Tuple[float, float]:
    """Return (variance over intensity, variance in the dark) of a raw pixel, intensities as shares of full scale.

    Full well and read noise are the calibration's where it has measured them, and else the sensor's; rounding to levels
    is noise too.
    """
    full_well, read_noise = options.sensor.full_well, options.sensor.read_noise
    if options.calibration is not None and options.calibration.noise is not None:
        full_well, read_noise = options.calibration.noise
    electrons = full_well / 10 ** (options.camera_gain / 20)
    return 1 / electrons, (read_noise / electrons) ** 2 + level_of(full_scale) ** 2 / 12


def noise_by_gain(options: Options, gains_db: Iterable[float], full_scale: int) -> List[Tuple[float, float]]:
    """Return `raw_noise` of frames whose gains are so many dB above `camera_gain`."""
    gains = (replace(options, camera_gain=options.camera_gain + gain) for gain in gains_db)
    return [raw_noise(each, full_scale) for each in gains]


def exposure_noise(options: Options, frame: Frame) -> Tuple[Tuple[float, float], ...]:
    """Return (variance over intensity, variance in the dark) of a raw pixel, as `raw_noise`, of each exposure."""
    exposures = frame.exposures
    if exposures is None:
        return (raw_noise(options, frame.full_scale),)
    rounding = 1 / frame.full_scale**2 / 12
    noise = noise_by_gain(options, exposures.gains_db, exposures.full_scale)
    return tuple((shot / light, floor / light**2 + rounding) for light, (shot, floor) in zip(exposures.lights, noise))


def require_one_noise(options: Options, frame: Frame) -> None:
    """Refuse products with noise of merged frames, which only the compiled kernels of the CPU compute.

    Raises:
        FrameError: There are some (cause `exposures`).
    """
    if frame.exposures is not None and uses_noise(options):
        text = "products with noise, debias and max_aolp_sigma of merged frames need compiled kernels and --backend cpu"
        raise FrameError("exposures", f"{text} (backend='cpu'): leave them out")


def level_of(full_scale: int) -> float:
    """Return the step between raw numbers as a share of full scale; MSB-aligned ones have zeros below their bits."""
    lowest = full_scale & -full_scale
    is_shifted = (full_scale // lowest) & (full_scale // lowest + 1) == 0
    return (lowest if is_shifted else 1) / full_scale


def method_constants(
    sensor: Sensor, is_half: bool, co_sited: bool, demosaic: str, debayer: str
) -> Tuple[float, float, float, float]:
    """Return the constants of a method that its flat-field gains lack. Arguments are those of `stokes_gains`."""
    if is_half and not co_sited:
        return LATTICE_METHODS[debayer].noise_half if sensor.is_color else NOISE_LINEAR
    return METHODS[demosaic].noise_half if is_half else METHODS[demosaic].noise_full
