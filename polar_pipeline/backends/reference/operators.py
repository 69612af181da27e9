"""The operators of the reference that follow demosaicking, and `run`, which makes every product of a frame."""

from __future__ import annotations

import time
from functools import partial
from typing import Any, Dict, Optional

import numpy as np

from polar_pipeline.backends.reference.correction import correct
from polar_pipeline.backends.reference.demosaicking import co_site, demosaic, normalize, reflect, shifted
from polar_pipeline.backends.reference.denoising import denoise, filtered
from polar_pipeline.backends.reference.geometry import transform
from polar_pipeline.backends.reference.learned import correct_by_network, stated_covariance
from polar_pipeline.backends.reference.noise import (
    covariance,
    covariance_left,
    debiased,
    plane_gains,
    significance,
    uncertainty,
)
from polar_pipeline.options import Options
from polar_pipeline.options.products import NOISE_PRODUCTS, PRODUCTS
from polar_pipeline.polarimetry.coefficients import (
    LUMA,
    SSIM_BLOCK,
    SSIM_C1,
    SSIM_C2,
    SSIM_SIGMA,
    SSIM_WINDOW,
    gaussian,
)
from polar_pipeline.polarimetry.colormaps import AOLP_MAP, COLOR_STYLES, DOLP_MAP
from polar_pipeline.sensor.frames import RawFrame
from polar_pipeline.sensor.mosaic import ANGLES

# ------------------------------------------------------------------------------------------------------- polarimetry


def luma(angles: np.ndarray) -> np.ndarray:
    """Convert (..., 3) RGB to (...): weights 1/4, 1/2, 1/4."""
    return angles @ np.array(LUMA)


def stokes(angles: np.ndarray) -> np.ndarray:
    """Convert (4, ...) to (..., 3): S0 = sum/2, S1 = I0 - I90, S2 = I45 - I135."""
    i0, i45, i90, i135 = angles
    return np.stack([(i0 + i45 + i90 + i135) / 2, i0 - i90, i45 - i135], -1)


def intensity(angles: np.ndarray) -> np.ndarray:
    """Convert (4, ...) to (...): S0/2, the mean of the four angles."""
    return angles.mean(0)


def polarized(stokes_vector: np.ndarray) -> np.ndarray:
    """Convert (..., 3) to (...): sqrt(S1^2 + S2^2)."""
    return np.hypot(stokes_vector[..., 1], stokes_vector[..., 2])


def unpolarized(stokes_vector: np.ndarray) -> np.ndarray:
    """Convert (..., 3) to (...): (S0 - sqrt(S1^2 + S2^2))/2, at least 0: the least that a polarizer lets through."""
    return np.maximum(stokes_vector[..., 0] - polarized(stokes_vector), 0) / 2


def polarizer(stokes_vector: np.ndarray, degrees: float) -> np.ndarray:
    """Convert (..., 3) to (...): (S0 + S1 cos 2a + S2 sin 2a)/2, at least 0, for a polarizer at angle a."""
    turn = 2 * np.deg2rad(degrees)
    return np.maximum(stokes_vector @ np.array([1, np.cos(turn), np.sin(turn)]), 0) / 2


def saturated(frame: RawFrame, half: bool) -> np.ndarray:
    """Return a mask of the output pixels with a saturated one among their four samples.

    Half resolution looks at the superpixel, full resolution at the 3x3 pixels that the bilinear interpolation reads.
    """
    is_saturated = frame.mosaic >= frame.full_scale
    if half:
        return co_site(is_saturated[np.newaxis].astype(float))[0] > 0
    z = reflect(is_saturated, 1)
    return np.any([shifted(z, dy, dx, 1) for dy in (-1, 0, 1) for dx in (-1, 0, 1)], axis=0)


def dolp(stokes_vector: np.ndarray) -> np.ndarray:
    """Convert (..., 3) to (...): sqrt(S1^2 + S2^2)/S0, clipped to [0, 1] as noise can exceed it; 0 at S0 = 0."""
    s0, s1, s2 = np.moveaxis(stokes_vector, -1, 0)
    return np.clip(np.hypot(s1, s2) / np.where(s0 > 0, s0, np.inf), 0, 1)


def aolp(stokes_vector: np.ndarray) -> np.ndarray:
    """Convert (..., 3) to (...): atan2(S2, S1)/2 in [0, pi), counter-clockwise from +x of the scene."""
    angle = np.arctan2(stokes_vector[..., 2], stokes_vector[..., 1]) / 2 % np.pi
    return np.where(angle >= np.pi, 0.0, angle)


def preview(value: np.ndarray, dolp_image: np.ndarray, aolp_image: np.ndarray) -> np.ndarray:
    """Convert hue AoLP, saturation DoLP, value S0/2 to (..., 3) RGB uint8 by the hexagonal model of Smith (1978)."""
    saturation, hue = np.nan_to_num(dolp_image), np.nan_to_num(aolp_image) / np.pi * 6
    rgb = []
    for n in (5, 3, 1):
        k = (n + hue) % 6
        rgb.append(value * (1 - saturation * np.clip(np.minimum(k, 4 - k), 0, 1)))
    return display("preview", np.stack(rgb, -1))


def aolp_color(aolp_image: np.ndarray, dolp_image: np.ndarray, style: str) -> np.ndarray:
    """Paint AoLP and DoLP as (..., 3) RGB uint8 by `AOLP_MAP`, faded to gray by a style; NaN is black."""
    gray, least = COLOR_STYLES[style]
    share = np.maximum(np.nan_to_num(dolp_image), least)[..., np.newaxis]
    mixed = gray + share * (AOLP_MAP[display("aolp", aolp_image)] - gray)
    return np.where(np.isnan(aolp_image)[..., np.newaxis], 0, np.rint(mixed)).astype(np.uint8)


def dolp_color(dolp_image: np.ndarray) -> np.ndarray:
    """Convert (...) to (..., 3) RGB uint8 by `DOLP_MAP`; NaN is black."""
    return np.where(np.isnan(dolp_image)[..., np.newaxis], 0, DOLP_MAP[display("dolp", dolp_image)]).astype(np.uint8)


# --------------------------------------------------------------------------------------------------------------- SSIM


def shrink(image: np.ndarray, stride: int) -> np.ndarray:
    """Convert (H, W) to (H // stride, W // stride): means of stride x stride pixels, without partial ones."""
    height, width = image.shape[0] // stride, image.shape[1] // stride
    cropped = image[: height * stride, : width * stride]
    return cropped.reshape(height, stride, width, stride).mean((1, 3))


def ssim_map(
    x: np.ndarray, y: np.ndarray, stride: int = 1, window: int = SSIM_WINDOW, sigma: float = SSIM_SIGMA
) -> np.ndarray:
    """Compare (H, W) with (H, W) as (H // stride, W // stride): structural similarity, Wang et al. (2004).

    A Gaussian window, K1 = 0.01, K2 = 0.03, data range 1, population covariance, symmetric border. Images are averaged
    over stride x stride pixels first, as Wang's own code does with large ones.
    """
    x, y = shrink(x, stride), shrink(y, stride)
    blur = partial(filtered, taps=np.array(gaussian(window, sigma)), border="symmetric")
    mx, my = blur(x), blur(y)
    vx, vy, vxy = blur(x * x) - mx * mx, blur(y * y) - my * my, blur(x * y) - mx * my
    c1, c2 = SSIM_C1, SSIM_C2
    return (2 * mx * my + c1) * (2 * vxy + c2) / ((mx**2 + my**2 + c1) * (vx + vy + c2))


def _mean(values: np.ndarray) -> float:
    """Compute the mean of all values but NaN; NaN if there are no others."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if known.size else np.nan


def block_means(similarity: np.ndarray) -> np.ndarray:
    """Convert (H, W) to (ceil(H / SSIM_BLOCK), ceil(W / SSIM_BLOCK)): means of blocks without NaN."""
    height, width = similarity.shape
    return np.array(
        [
            [_mean(similarity[i : i + SSIM_BLOCK, j : j + SSIM_BLOCK]) for j in range(0, width, SSIM_BLOCK)]
            for i in range(0, height, SSIM_BLOCK)
        ]
    )


# ------------------------------------------------------------------------------------------------------------ display


def display(name: str, values: np.ndarray, dtype: str = "uint8") -> np.ndarray:
    """Convert a float product to levels of `uint8` or `uint16`, with 255 or 65535 as the highest.

    AoLP wraps at one level more, everything else spans [0, 1]; NaN becomes 0, of a deviation the highest level.
    """
    top = int(np.iinfo(dtype).max)
    clean = np.nan_to_num(values, nan=np.pi if PRODUCTS[name].is_invalid_high else 0)
    if PRODUCTS[name].wraps:
        return (np.rint((top + 1) * clean / np.pi) % (top + 1)).astype(dtype)
    if PRODUCTS[name].unit == "rad":
        return np.rint(np.clip((top + 1) * clean / np.pi, 0, top)).astype(dtype)
    return np.rint(top * np.clip(clean, 0, 1)).astype(dtype)


# ------------------------------------------------------------------------------------------------------- all products


def polarization(
    vector: np.ndarray, bad: np.ndarray, options: Options, matrix: Optional[np.ndarray]
) -> Dict[str, np.ndarray]:
    """Compute the products that have invalid pixels.

    Args:
        vector: (H, W, 3) Stokes vectors of luma.
        bad: (H, W) saturated and dark pixels.
        options: Options of the pipeline.
        matrix: (H, W, 3, 3) covariance matrices of S1, S2 and S0 by noise; None if no product depends on it.
    """
    images: Dict[str, np.ndarray] = {"stokes": np.where(bad[..., np.newaxis], np.nan, vector)}
    degree, angle, uncertain = dolp(vector), aolp(vector), bad
    if matrix is not None:
        noise = uncertainty(matrix, vector, options)
        images.update(dolp_sigma=np.where(bad, np.nan, noise.dolp), aolp_sigma=np.where(bad, np.nan, noise.aolp))
        images["significance"] = np.where(bad, np.nan, significance(degree, noise.component))
        degree = debiased(degree, noise.component) if options.debias else degree
        if options.max_aolp_sigma:
            uncertain = bad | (noise.aolp > np.deg2rad(options.max_aolp_sigma))
    angle = np.where(uncertain, np.nan, angle)
    shown = preview(vector[..., 0] / 2, np.where(uncertain, np.nan, degree), angle)
    images.update(aolp_color=aolp_color(angle, degree, options.color_style), preview=shown)
    degree = np.where(bad, np.nan, degree)
    return {**images, "dolp": degree, "aolp": angle, "dolp_color": dolp_color(degree)}


def run(frame: RawFrame, options: Options, other: Optional[np.ndarray] = None) -> Dict[str, Any]:
    """Compute every product of the options from one frame.

    Args:
        frame: The mosaic, with its defective pixels replaced (`Correction.replace_defects`); or its `light`.
        options: Options of the pipeline.
        other: Image to compare with in the SSIM modes `temporal` and `reference`: S0/2, luma.

    Returns:
        Product name -> array, `"invalid"` -> (saturated, dark) pixel counts, `"blocks"` -> mean similarity of blocks,
        None if no product compares, `"value"` -> (h, w) S0/2 of luma, and `"seconds"` -> time of later stages.
    """
    sensor = options.read_out(frame.shape)
    if frame.light is None:
        correction = options.correction(frame.shape)
        z = normalize(frame) if correction is None else correct(normalize(frame), correction)
        angles = demosaic(z, sensor, options)
        too_bright = saturated(frame, options.resolution == "half")
    else:
        angles = frame.light.angles.astype(np.float64)
        too_bright = np.asarray((angles >= 1).any((0, *range(3, angles.ndim))) & frame.light.is_measured)
    is_color = angles.ndim == 4
    gray = luma(angles) if is_color else angles  # which SSIM compares
    dark = ~too_bright & ~(stokes(gray)[..., 0] >= options.min_intensity)  # NaN too
    bad = too_bright | dark
    seconds: Dict[str, float] = {}
    is_denoised, matrix = options.denoising != "off", None
    if is_denoised:
        start = time.perf_counter()
        before = angles
        angles, left = denoise(before, sensor, options, frame.full_scale)
        if options.is_learned:
            angles, of_noise = correct_by_network(before, angles, sensor, options, frame.full_scale)
        seconds["denoise"] = time.perf_counter() - start
    if options.debias or options.max_aolp_sigma or any(name in NOISE_PRODUCTS for name in options.products):
        if options.is_learned:
            matrix = stated_covariance(of_noise, stokes(angles)[..., 0], sensor, options, frame.full_scale)
        else:
            matrix = covariance(angles, sensor, options, frame.full_scale)
            if is_denoised:
                matrix = covariance_left(matrix, left, plane_gains(*options.method_on(sensor)))
    if options.geometry is not None:
        start = time.perf_counter()
        if not options.counts_dark:
            dark = np.zeros_like(dark)
        if is_denoised:
            gray, *_ = transform(gray, too_bright, dark, options.geometry)
        angles, too_bright, dark, outside = transform(angles, too_bright, dark, options.geometry)
        if not is_denoised:
            gray = luma(angles) if is_color else angles
        bad = too_bright | dark | outside
        seconds["geometry"] = time.perf_counter() - start
    value = intensity(gray)
    vector = stokes(luma(angles) if is_color else angles)
    images = polarization(vector, bad, options, matrix)
    if options.has_ssim:
        start = time.perf_counter()
        if options.ssim_mode == "consistency":
            first, other = (gray[0] + gray[2]) / 2, (gray[1] + gray[3]) / 2
        else:
            first = value
        if other is None:
            similarity = np.full(options.shape_of("ssim_map", value.shape), np.nan)
        else:
            similarity = ssim_map(first, other, options.ssim_stride, options.ssim_window, options.ssim_sigma)
        if options.geometry is not None and outside.any():
            similarity = np.where(shrink(outside.astype(float), options.ssim_stride) > 0, np.nan, similarity)
        images.update(ssim_map=similarity, ssim=np.asarray(_mean(similarity)))
        seconds["ssim"] = time.perf_counter() - start
    if options.geometry is not None:
        angles = np.where(outside.reshape(outside.shape + (1,) * (angles.ndim - 3)), np.nan, angles)
    images.update({f"angle_{degrees}": angles[k] for k, degrees in enumerate(ANGLES)}, intensity=intensity(angles))
    colors = stokes(angles)
    images.update(unpolarized=unpolarized(colors), polarized=polarized(colors))
    images.update(polarizer=polarizer(colors, options.polarizer_angle))
    out: Dict[str, Any] = {"value": value, "seconds": seconds}
    for name in options.products:
        values = images[name]
        is_encoded = options.dtype_of(name) != "float32" and values.dtype != np.uint8
        out[name] = display(name, values, options.dtype_of(name)) if is_encoded else values
    out["blocks"] = block_means(similarity) if options.has_ssim else None
    out["invalid"] = (int(too_bright.sum()), int(dark.sum()) if options.counts_dark else 0)
    return out
