"""The similarity that noise alone leaves between I0+I90 and I45+I135: the maximum of a consistent frame."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from polar_pipeline.backends.noise.gains import pair_gains
from polar_pipeline.backends.noise.model import raw_noise
from polar_pipeline.options import Options
from polar_pipeline.polarimetry.coefficients import SSIM_BLOCK, SSIM_C2, gaussian
from polar_pipeline.sensor.frames import Frame, PackedFrame


def expected_similarity(options: Options, frame: Frame, x: int, y: int) -> float:
    """Compute the similarity of a flat block of unpolarized light in mode `consistency`.

    Args:
        options: Options of the pipeline that processed the frame.
        frame: The raw frame, for the brightness of the block.
        x: Column of the block's center in pixels of the Stokes image.
        y: Row of the block's center.
    """
    is_half = options.resolution == "half"
    method = (options.sensor, is_half, options.for_frame(frame).co_sited, options.interpolation, options.debayer)
    variance, covariance = pair_gains(*method, options.ssim_stride)
    shot, floor = raw_noise(options, frame.full_scale)
    raw = shot * _brightness(frame, x, y, options.ssim_stride, 2 if is_half else 1) + floor
    # a window's own mean is subtracted from its pixels
    taps = gaussian(options.ssim_window, options.ssim_sigma)
    seen = raw * (1 - math.fsum(tap**2 for tap in taps) ** 2)
    return (2 * covariance * seen + SSIM_C2) / (2 * variance * seen + SSIM_C2)


def _brightness(frame: Frame, x: int, y: int, stride: int, step: int) -> float:
    """Compute the mean of a block's raw pixels as a share of full scale."""
    reach = SSIM_BLOCK * stride * step // 2
    rows = slice(max(0, step * y - reach), step * y + reach)
    if isinstance(frame, PackedFrame):
        frame = replace(frame, rows=frame.rows[rows]).unpack()
        rows = slice(None)
    columns = slice(max(0, step * x - reach), step * x + reach)
    return min(float(np.mean(frame.mosaic[rows, columns])) / frame.full_scale, 1.0)
