"""Coefficients of every method, shared by the reference, the CPU backend and the kernels (as literals)."""

from __future__ import annotations

import math
from typing import Dict, Tuple

#: Malvar, He and Cutler (ICASSP 2004), sixteenths. Green at red or blue: center, axial +-1, axial +-2.
MHC_GREEN = (8, 4, -2)
#: Red or blue at green, along the row of that color: center, horizontal +-1, horizontal +-2, vertical +-2, diagonals.
#: For the color of the column, transposed.
MHC_ROW = (10, 8, -2, 1, -2)
#: Red at blue, blue at red: center, diagonals, axial +-2.
MHC_ACROSS = (12, 4, -3)
#: Weight of the center's detail in the gradient demosaic.
BETA = 0.25
#: RGB weights of luma: those of the Bayer quad.
LUMA = (0.25, 0.5, 0.25)
#: ADR's smallest intensity, one 8-bit level (`docs/adaptive_demosaic.md`).
EPSILON = 1 / 255
#: ADR's low-pass filters, sixteenths: own phase at 0 and +-2, other phase at +-1 and +-3.
ADR_SAME, ADR_OTHER = (8, 4), (7, 1)
#: ADR's alpha: bias toward intensity detail, and the limit of its correlation term.
ADR_BIAS, ADR_LIMIT = 0.1, 0.3
#: ADR's switch: share of the gradients' energy that counts as polarization without correlation, weight of second
#: differences, and the gain of the ratio of means.
ADR_UNCORRELATED, ADR_CURVED, ADR_GAIN = 0.3, 0.2, 2.0
#: Energy of gradients that is noise: that of 16 levels of 255.
ADR_GRADIENT_NOISE = 256 * EPSILON**2
#: Largest secant step, in distances of two pixels; and ADR's share of the weighted mean where it interpolates.
ADR_STEP, ADR_WEIGHTED = 0.25, 0.1
#: atan(t)/pi = t (a1 + a3 t^2 + a5 t^4 + ...) on [-1, 1], minimax: largest error 0.0007 degrees; for 8-bit AoLP
#: 0.05 levels of 256.
ATAN = (0.31826735, -0.10513928, 0.05734648, -0.02710611, 0.0066352026)
ATAN_BYTE = (0.31683227, -0.091892943, 0.025254387)
#: SSIM (Wang et al., 2004): taps and sigma of its Gaussian window, and K1 = 0.01, K2 = 0.03 at data range 1.
SSIM_WINDOW, SSIM_SIGMA = 11, 1.5
SSIM_C1, SSIM_C2 = 0.01**2, 0.03**2
#: Full scale of the images that a GPU stores for SSIM as 16-bit integers: 128 a level. Sums of two angles, interpolated
#: with quarters, sixteenths or not at all, are exact; the sum of two images fits 16 bits.
SSIM_FULL = 128 * 255
#: Ordered dither of these integers, sixteenths of a unit: pixel (y, x) is rounded down after entry (y % 4, x % 2) is
#: added. Without it, a flat dark image of more than 8 bits would be off by up to half a unit, and the similarity by
#: 0.002. Of all orders of the eight fractions with ``f(x) xor g(y)``, it averages flat images and ramps best, also at
#: the border, where reflection repeats lines: to a sixth and a quarter of a unit.
SSIM_DITHER = ((1, 15), (3, 13), (11, 5), (9, 7))
#: What noise gains of a method in a flat field leave out (`backends/noise`), a, b, c, d: with a signal-to-noise ratio t
#: of (S1, S2), standard deviations are ``a - b/(1 + t^2/c)`` of what gains say; along (S1, S2), ``1 - d p^4`` of that.
#: ADR averages more where it sees no polarization, and restores less of weak angles at high DoLP; simulated.
NOISE_LINEAR = (1.0, 0.0, 1.0, 0.0)
NOISE_WEIGHTED = (0.985, 0.0, 1.0, 0.0)
NOISE_ADAPTIVE = {"half": (1.015, 0.24, 1.6, 0.1), "full": (1.015, 0.25, 1.5, 0.16)}
#: With a signal-to-noise ratio t, `dolp_sigma` is 1 - 0.4/(1 + t^4)^2 of the standard deviation of a component, so that
#: 68 % of the errors of a length, which is never negative, lie within it. From a true t of 0.5 on it is the root mean
#: square error of debiased DoLP to 9 %. The standard deviation of AoLP is (1 + 1.5/t^4)/(2 t), at most that of angles
#: of any direction.
SIGMA_LENGTH, SIGMA_ANGLE = 0.4, 1.5
AOLP_SIGMA_MAX = math.pi / math.sqrt(12)
#: Denoising: pixels on each side of the window in which S0 explains S1 and S2, and of that of Lee's filter of S0.
DENOISE_REACH, DENOISE_LEE = 3, 2
#: Noise that denoising leaves in S1 and S2 where it drops everything that S0 does not explain, without the noise of S0:
#: the variance is `DENOISE_MEANS` times that of the mean over the window, taken twice; where S0 has detail, the fit of
#: slopes adds the share `DENOISE_SLOPES` of this variance. Simulated with every method and resolution, in flat fields
#: and half of the public scenes.
DENOISE_MEANS, DENOISE_SLOPES = 1.2, 0.55
#: With `denoise` "auto", the standard deviations of DoLP between which it sets in.
DENOISE_AUTO = (0.005, 0.01)
#: The network of `demosaic` "learned": superpixels on each side over which its input is averaged, in units of a raw
#: pixel's noise the largest contrast that it sees and the limit of what it adds, and the standard deviations of DoLP
#: between which it sets in.
LEARNED_REACH, LEARNED_CLIP, LEARNED_LIMIT = 4, 60.0, 0.45
LEARNED_FADE = (0.008, 0.016)
#: Merged exposures: their relative error, and the sum of four squared differences over their variances above which a
#: superpixel shows different light; noise alone exceeds it in 5 of a million.
MERGE_TOLERANCE, MERGE_LIMIT = 0.01, 30.0
#: Side in pixels of the blocks of the similarity map whose means are given beside the mean of all.
SSIM_BLOCK = 64


def gaussian(window: int = SSIM_WINDOW, sigma: float = SSIM_SIGMA) -> Tuple[float, ...]:
    """Return `window` Gaussian taps that sum to 1."""
    weights = [math.exp(-((k - window // 2) ** 2) / (2 * sigma**2)) for k in range(window)]
    return tuple(weight / math.fsum(weights) for weight in weights)


#: The filter that smooths the energy of what denoising leaves over, from its center on.
DENOISE_TAPS = gaussian(5, 1.2)[2:]
#: What S0 does not explain is part of the energy that decides how much of it is kept, so noise along it raises the
#: share that is kept: it comes through more than noise beside it, by this times the share that is not kept.
DENOISE_OWN = 2 * DENOISE_TAPS[0] ** 2


def ssim_literals(window: int = SSIM_WINDOW, sigma: float = SSIM_SIGMA) -> Dict[str, str]:
    """Return SSIM's constants and window as definitions; tap k is for both pixels k away from the center."""
    taps = gaussian(window, sigma)[window // 2 :]
    numbers = {
        "SSIM_C1": SSIM_C1,
        "SSIM_C2": SSIM_C2,
        "SSIM_FULL": SSIM_FULL,
        **{f"SSIM_TAP_{k}": tap for k, tap in enumerate(taps)},
    }
    sizes = {"SSIM_RADIUS": window // 2, "SSIM_BLOCK": SSIM_BLOCK}
    return {**{name: str(size) for name, size in sizes.items()}, **_written(numbers)}


def literals() -> Dict[str, str]:
    """Return these numbers as preprocessor definitions for the kernels, with intensities in levels of 1/255."""
    numbers: Dict[str, float] = {"BETA": BETA, "LUMA_RED": LUMA[0], "LUMA_GREEN": LUMA[1]}
    for name, taps, places in (
        ("MHC_GREEN", MHC_GREEN, ("CENTER", "NEAR", "FAR")),
        ("MHC_ROW", MHC_ROW, ("CENTER", "NEAR", "FAR", "SIDE", "DIAGONAL")),
        ("MHC_ACROSS", MHC_ACROSS, ("CENTER", "DIAGONAL", "FAR")),
        ("ADR_SAME", ADR_SAME, ("0", "2")),
        ("ADR_OTHER", ADR_OTHER, ("1", "3")),
    ):
        numbers.update({f"{name}_{place}": tap / 16 for place, tap in zip(places, taps)})
    noise = 4 * (255 * EPSILON) ** 2
    numbers.update({"ADR_NOISE": noise, "ADR_BIAS": ADR_BIAS, "ADR_LIMIT": ADR_LIMIT})
    numbers.update({"ADR_UNCORRELATED": ADR_UNCORRELATED, "ADR_CURVED": ADR_CURVED, "ADR_GAIN": ADR_GAIN})
    numbers.update({"ADR_STEP": ADR_STEP, "ADR_WEIGHTED": ADR_WEIGHTED})
    numbers["ADR_GRADIENT_NOISE"] = 255**2 * ADR_GRADIENT_NOISE
    numbers["SSIM_FULL"] = SSIM_FULL
    numbers.update(SIGMA_LENGTH=SIGMA_LENGTH, SIGMA_ANGLE=SIGMA_ANGLE, AOLP_SIGMA_MAX=AOLP_SIGMA_MAX)
    for name, series in (("ATAN", ATAN), ("ATAN_BYTE", ATAN_BYTE)):
        numbers.update({f"{name}_{2 * k + 1}": value for k, value in enumerate(series)})
    numbers.update({f"DENOISE_TAP_{k}": tap for k, tap in enumerate(DENOISE_TAPS)})
    numbers.update(DENOISE_AUTO_LOW=DENOISE_AUTO[0], DENOISE_AUTO_HIGH=DENOISE_AUTO[1], DENOISE_SLOPES=DENOISE_SLOPES)
    numbers.update(DENOISE_OWN=DENOISE_OWN)
    numbers.update(LEARNED_CLIP=LEARNED_CLIP, LEARNED_LIMIT=LEARNED_LIMIT)
    numbers.update(LEARNED_FADE_LOW=LEARNED_FADE[0], LEARNED_FADE_HIGH=LEARNED_FADE[1])
    reaches = {"DENOISE_REACH": DENOISE_REACH, "DENOISE_LEE": DENOISE_LEE, "LEARNED_REACH": LEARNED_REACH}
    units = [16 * place for row in SSIM_DITHER for place in row]
    dither = {f"SSIM_DITHER_{y}": f"{int.from_bytes(bytes(units[2 * y :][:4]), 'little'):#x}u" for y in (0, 2)}
    return {**_written(numbers), **{name: str(reach) for name, reach in reaches.items()}, **dither}


def c_float(number: float) -> str:
    """Format a number as C's float literal."""
    text = f"{number:.9g}"
    return f"{text}f" if "." in text or "e" in text else f"{text}.0f"


def _written(numbers: Dict[str, float]) -> Dict[str, str]:
    """Format numbers as C's float literals."""
    return {name: c_float(value) for name, value in numbers.items()}
