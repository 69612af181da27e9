"""Diagnostic images of a frame: what `Pipeline.debug` returns. No product needs them."""

from __future__ import annotations

from typing import Dict

import numpy as np

from polar_pipeline.backends.reference.correction import correct
from polar_pipeline.backends.reference.demosaicking import DEBAYER, normalize, polarization_switch
from polar_pipeline.backends.reference.operators import luma
from polar_pipeline.options import Options
from polar_pipeline.sensor.frames import RawFrame


def diagnostics(frame: RawFrame, options: Options) -> Dict[str, np.ndarray]:
    """Compute diagnostic images by name.

    Returns:
        `polarization_switch`: (H, W) float32, 0 where `adaptive` restores detail, up to 1 at edges of polarization.

    Raises:
        ValueError: The adaptive demosaic is not used; the message says what to set.
    """
    _check(frame, options)
    sensor, correction = options.read_out(frame.shape), options.correction(frame.shape)
    if correction is None:
        z = normalize(frame)
    else:
        z = normalize(correction.replace_defects(frame))
        z = correct(z, correction)
    mosaic = luma(DEBAYER[options.debayer](z, sensor)) if sensor.is_color else z
    return {"polarization_switch": polarization_switch(mosaic).astype(np.float32)}


def _check(frame: RawFrame, options: Options) -> None:
    """Refuse frames and options without a polarization switch."""
    if frame.is_split:
        reason = "angle images are not interpolated: give it mosaics and"
    elif options.resolution == "half" and not options.co_sited:
        reason = "with co_sited=False at half resolution no angle is interpolated: set co_sited=True and"
    elif options.interpolation != "adaptive":
        given = f", here demosaic={options.demosaic!r}" if options.demosaic != options.interpolation else ""
        reason = f"this pipeline uses {options.interpolation!r}{given}: set"
    else:
        return
    raise ValueError(f"polarization_switch belongs to the adaptive demosaic; {reason} demosaic='adaptive'")
