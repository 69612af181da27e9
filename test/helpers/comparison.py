"""Backends compared with the float64 reference, within the documented bounds.

Those are in `docs/performance.md`, "Errors", and in `docs/geometry.md`, "On a GPU".
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

import cv2
import numpy as np

from polar_pipeline import Pipeline, RawFrame
from polar_pipeline.backends import reference
from polar_pipeline.options import Options
from polar_pipeline.options.products import NOISE_PRODUCTS, PRODUCTS, VALUE_PRODUCTS, invalid_level, level_scale
from polar_pipeline.sensor.mosaic import ANGLES

#: Where S0 is this close to `min_intensity`, pixels may count as dark or not: in half, in float.
DARK_BAND = {True: 1e-3, False: 1e-5}
#: What is off by at most this much, by half precision; with a geometry; planes of half are interpolated there.
LIGHT_BOUND, GEOMETRY_BOUND = {True: 1 / 255, False: 2e-5}, 1.5e-3
DOLP_BOUND, AOLP_BOUND = 2e-3, np.deg2rad(0.5)
#: In float; of its standard deviation: the rounding of S1 and S2 over their noise.
AOLP_SIGMA_BOUND = 5e-4
#: Rounding of S1 and S2 where they are about their noise, as shares of full scale: in half, a quarter of a level. The
#: significance changes by up to 0.61 of that rounding over their noise, the steepest slope of exp(-t^2/2).
SIGNIFICANCE_ROUNDING, STEEPEST = {True: 1e-3, False: 1e-6}, 0.61
#: The same over the noise that a network leaves, which is computed in half: some thousandths of the deviation of a raw
#: pixel, of which a tenth is left in even areas.
LEARNED_ROUNDING = 0.02
#: From the raw frame to the map, and with a geometry; with `precision: fp16`, which rounds what is compared.
SSIM_BOUND, SSIM_GEOMETRY_BOUND, SSIM_HALF_BOUND = 1e-3, 2e-3, 6e-3
#: By ADR at full resolution in half, a part of the pixels may exceed a bound by a factor; an angle by this over DoLP.
#: White noise exceeds it (`test_adaptive_bounds.py`).
ADAPTIVE_SHARE, ADAPTIVE_FACTOR, ADAPTIVE_ANGLE = 0.04, 4.0, 0.01
#: Levels of 8 bit, in half and in float: two steps of the map of angles, or one; one of degrees; and rounding.
COLOR_LEVELS = {True: {"aolp_color": 9, "dolp_color": 5}, False: {"aolp_color": 5, "dolp_color": 4}}


def random_frame(shape: Tuple[int, int], bits: int = 8, seed: int = 0, sigma: float = 1.0) -> RawFrame:
    """Smooth noise over the complete range, so that some pixels are black, and some saturated."""
    image = cv2.GaussianBlur(np.random.default_rng(seed).random(shape), (0, 0), sigma)
    image = (image - image.min()) / (image.max() - image.min())
    top = (1 << bits) - 1
    return RawFrame(np.rint(image * top).astype(np.uint8 if bits == 8 else np.uint16), top)


def as_floats(options: Options, *products: str, **changes: Any) -> Options:
    """The same options with other products, which are float where they can be."""
    dtype = tuple((name, PRODUCTS[name].dtype("float32")) for name in products)
    return replace(options, products=products, dtype=dtype, **changes)


def run_reference(frame: Any, options: Options, other: Optional[np.ndarray] = None) -> Dict[str, Any]:
    """What the float64 reference makes of a frame, defects replaced."""
    seen, correction = frame.unpack(), options.correction(frame.shape)
    if correction is not None:
        seen = correction.replace_defects(seen)
    return reference.run(seen, options, other)


def run_floats(frame: Any, options: Options, other: Optional[np.ndarray] = None) -> Dict[str, Any]:
    """What the float64 reference makes of a frame: the products, not rounded to their types, and every angle image."""
    angles = (f"angle_{degrees}" for degrees in ANGLES)
    return run_reference(frame, as_floats(options, *dict.fromkeys((*options.products, *angles))), other)


def problems_of(
    options: Options,
    frame: Any,
    found: Mapping[str, np.ndarray],
    wanted: Mapping[str, Any],
    planes: float = GEOMETRY_BOUND,
    strays: float = 0.01,
    band: Tuple[float, float] = (0.0, 1.0),
) -> List[str]:
    """What lies beyond a bound, in words.

    Args:
        options: The pipeline's.
        frame: Its frame.
        found: Its products.
        wanted: What `run_floats` makes of the frame.
        planes: Bound of what comes from planes of half, and of what a geometry interpolates; 0 where neither counts.
        strays: With a geometry, the share of pixels that may be invalid on one side only.
        band: Share of the pixels that may exceed a bound, and by which factor.
    """
    half = (options.precision != "fp32" and frame.full_scale <= 255) or options.precision == "fp16"
    # planes of float hold what the first launch computes; positions and rotations of a lens are rounded in any case
    from_planes = options.geometry is not None or (options.denoising != "off" and half)
    is_exact = not from_planes or (not half and (options.geometry is None or options.geometry.lens is None))
    is_exact = is_exact and not options.is_learned  # a network computes in half
    has_geometry = not is_exact and planes > 0
    needed = {"aolp_sigma": options.max_aolp_sigma > 0, "dolp_sigma": "significance" in found}
    judged = ("stokes", "dolp", *(name for name, is_needed in needed.items() if is_needed))
    without = {"ssim_mode": "consistency", "debias": False, "min_intensity": 0.0, "max_aolp_sigma": 0.0}
    exact = run_reference(frame, as_floats(options, *judged, **without))
    # saturated pixels have no polarization whatever their light is
    known = ~np.isnan(exact["stokes"][..., 0])
    s0, degree = np.nan_to_num(exact["stokes"][..., 0]), np.nan_to_num(exact["dolp"])
    is_steep = half and options.resolution == "full" and options.interpolation == "adaptive"
    decided = known & (np.abs(s0 - options.min_intensity) > DARK_BAND[half] * (3 if has_geometry else 1))
    if options.max_aolp_sigma:
        # close to the limit, an angle may be hidden or not
        sigma = np.rad2deg(np.nan_to_num(exact["aolp_sigma"]))
        decided &= np.abs(sigma - options.max_aolp_sigma) > (0.4 if half else 0.05)
    lit, clear = decided & (s0 >= 0.1), decided & (s0 >= 0.1) & (degree >= 0.05)
    light = max(LIGHT_BOUND[half], planes * has_geometry)
    wrong = []
    for name, image in found.items():
        dtype, is_color = str(image.dtype), PRODUCTS[name].types == ("uint8",)
        is_angle = name in ("aolp", "aolp_sigma")
        assert dtype == dict(options.dtype)[name]
        got, want, level = image.astype(np.float64), np.asarray(wanted[name], np.float64), 0.0
        if is_color:
            level = float(COLOR_LEVELS[half].get(name, 1)) + has_geometry
        elif dtype != "float32":
            level = 1 / level_scale(name, dtype)
            got, want = got * level, want if is_angle else np.clip(want, 0, 1)
        fair, bound = np.ones(want.shape, bool), light
        if name.startswith("ssim"):
            bound = SSIM_HALF_BOUND if options.precision == "fp16" else SSIM_BOUND
            bound = max(bound, SSIM_GEOMETRY_BOUND * has_geometry)
        elif is_angle:
            fair, bound = clear, AOLP_BOUND
            if has_geometry:
                bound = np.maximum(bound, planes / degree.clip(0.05) / s0.clip(0.1))
            if name == "aolp_sigma":
                bound = AOLP_SIGMA_BOUND
                if half:
                    bound = np.deg2rad(0.2) + 0.05 / degree.clip(0.05) * np.nan_to_num(want)
        elif name == "dolp_sigma":
            fair, bound = lit, LIGHT_BOUND[half]
        elif name == "significance":
            noise = s0.clip(0.1) * np.nan_to_num(exact["dolp_sigma"], nan=1.0)
            fair, bound = lit, STEEPEST * (SIGNIFICANCE_ROUNDING[half] / noise + LEARNED_ROUNDING * options.is_learned)
        elif PRODUCTS[name].is_value:
            fair, bound = lit, DOLP_BOUND / (s0.clip(0.1) if has_geometry else 1)
        elif is_color:
            fair, bound = np.broadcast_to((lit if name == "dolp_color" else clear)[..., np.newaxis], want.shape), 0.0
        elif name == "stokes":
            fair, bound = np.broadcast_to(decided[..., np.newaxis], want.shape), 2 * light
        is_missing = np.isnan(want)
        apart = np.zeros(want.shape, bool)
        if dtype == "float32":
            apart = (np.isnan(got) != is_missing) & fair
        elif name in ("aolp", *VALUE_PRODUCTS):
            apart = (image != invalid_level(name, dtype)) & is_missing & fair
        if apart.sum() > strays * apart.size * has_geometry:
            wrong.append(f"{name}: {apart.sum()} of {apart.size} pixels are invalid on one side only")
        error = np.abs(got - want)
        if name == "aolp":
            error = np.minimum(error, np.pi - error)
        error = np.where(fair & ~np.isnan(error), error, 0)  # sigma masks pixels by a threshold of its own
        beyond = error > bound + level * 1.001
        share, factor = (ADAPTIVE_SHARE, ADAPTIVE_FACTOR) if is_steep else band
        if beyond.sum() <= share * error.size and not name.startswith("ssim"):
            widest = ADAPTIVE_ANGLE / degree.clip(0.05) if is_steep and is_angle else factor * (bound + level)
            beyond &= error > widest
        if is_color and beyond.sum() <= strays * beyond.size * has_geometry:
            continue  # pixels that are invalid on one side only
        if beyond.any():
            wrong.append(f"{name} {dtype}: {beyond.sum()} of {error.size} beyond, up to {error.max():.3g}")
    return wrong


def compare(frame: RawFrame, products: Sequence[str] = tuple(PRODUCTS), planes: float = 0.0, **options: Any) -> None:
    """Every product of the CPU backend lies within the bounds around the reference's; the same pixels are invalid.

    Args:
        frame: What it is given.
        products: What it computes, but for those that a geometry or the network excludes.
        planes: Bound of what a geometry interpolates.
        options: Of `Pipeline`.
    """
    if {"scale", "rotate", "roi", "rectify"} & {*options}:
        products = tuple(name for name in products if name not in NOISE_PRODUCTS)
    with Pipeline(products=products, **options, backend="cpu") as pipeline:
        out, chosen = pipeline(frame), replace(pipeline.options, precision="fp32")
    truth = run_floats(frame, chosen)
    assert out.invalid == truth["invalid"]
    np.testing.assert_allclose(out.blocks, truth["blocks"], rtol=0, atol=SSIM_BOUND)
    for name, image in out.items():
        assert image.shape == truth[name].shape, name
        if image.dtype == np.float32:
            np.testing.assert_array_equal(np.isnan(image), np.isnan(truth[name]), err_msg=name)
    assert problems_of(chosen, frame, out, truth, planes=planes, strays=0) == []


def sigma_ratios(results: Sequence[Mapping[str, np.ndarray]]) -> Tuple[float, Dict[str, float]]:
    """Compare stated standard deviations with those over recordings of one scene, without the border.

    Returns:
        The share of pixels whose DoLP is at least five deviations; and for `dolp` and `aolp` the root of the mean
        stated variance of these pixels over that of their real variance.
    """
    inner = (slice(12, -12), slice(12, -12))
    images = {name: np.stack([result[name][inner] for result in results]).astype(float) for name in results[0]}
    turns = np.exp(2j * images["aolp"])
    images["aolp"] = np.angle(turns / turns.mean(0)) / 2  # differences from the mean angle
    is_certain = np.mean(images["dolp"] / images["dolp_sigma"], 0) > 5
    ratios = {}
    for name in ("dolp", "aolp"):
        stated, real = np.mean(images[f"{name}_sigma"] ** 2, 0), images[name].var(0, ddof=1)
        ratios[name] = float(np.sqrt(stated[is_certain].mean() / real[is_certain].mean()))
    return float(is_certain.mean()), ratios
