"""The polarization launch that options ask for, and in which precision it computes."""

from __future__ import annotations

from dataclasses import replace
from typing import Tuple

from polar_pipeline.calibration import superpixel_phase
from polar_pipeline.cuda.model.specs import KERNELS, sums_in_integers
from polar_pipeline.cuda.model.work import CAMERA_FORMATS, PAIRS, PLANES, PolarizationWork, image_outputs
from polar_pipeline.noise import SHOWS_AOLP, SHOWS_DOLP
from polar_pipeline.options import Options
from polar_pipeline.plan import Plan, make_plan


def make_work(
    plan: Plan, options: Options, raw_format: str, full_scale: int, shape: Tuple[int, int]
) -> PolarizationWork:
    """The polarization launch of a plan on frames of one format and shape.

    With a geometry it stores what the next launch interpolates, instead of products.

    Args:
        plan: Products and operators.
        options: How to compute them.
        raw_format: A key of `RAW_FORMATS`.
        full_scale: Raw number of a saturated pixel.
        shape: (height, width) of the mosaic.
    """
    # Half holds 11 bits: 8-bit samples and their small sums exactly, finer ones not.
    half_precision = options.precision == "fp16" or (options.precision == "auto" and full_scale <= 255)
    work = PolarizationWork(
        options.read_out(shape),
        options.resolution == "half",
        options.co_sited,
        options.interpolation,
        options.debayer,
        raw_format,
        full_scale,
        half_precision,
        image_outputs(plan, options),
        shape[1],
        shape[0],
        options.calibration is not None,
        options.debias and not SHOWS_DOLP.isdisjoint(plan.products),
        options.max_aolp_sigma > 0 and not SHOWS_AOLP.isdisjoint(plan.products),
        superpixel_phase(options.roi_offset, options.flip, shape) if options.calibration is not None else (0, 0),
    )
    has_geometry = options.geometry is not None
    in_float = options.precision == "fp32"
    if options.precision == "auto" and not _stays_in_half(work, has_geometry):
        work, in_float = replace(work, half_precision=False), True
    if not has_geometry:
        return work
    has_excesses = any(name == "sums" or name.startswith("angle_") for name in work.dtypes)
    planes = PLANES if has_excesses else PLANES[:2]
    return replace(work, outputs=tuple((name, "float32" if in_float else "float16") for name in planes))


def _stays_in_half(work: PolarizationWork, has_geometry: bool) -> bool:
    """Whether 8-bit frames are computed in half precision.

    Not if SSIM compares their images, unless a kernel adds these up in integers: what half rounds moves the similarity
    by up to 0.0055.
    """
    if work.dtypes.keys().isdisjoint(PAIRS):
        return True
    return not has_geometry and any(sums_in_integers(kernel, work) for kernel in KERNELS)


def work_of(options: Options, raw_format: str, size: Tuple[int, int]) -> PolarizationWork:
    """The polarization launch of some options.

    Args:
        options: What to compute and how.
        raw_format: A key of `RAW_FORMATS`.
        size: (width, height) of the frame.

    Raises:
        FrameError: The frame has pixels that the calibration lacks.
    """
    options.correction((size[1], size[0]))
    full_scale = options.full_scale if raw_format == "u16" else CAMERA_FORMATS[raw_format].full_scale
    return make_work(make_plan(options.products), options, raw_format, full_scale, (size[1], size[0]))
