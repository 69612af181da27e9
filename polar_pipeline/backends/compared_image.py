"""Check of the image that SSIM compares frames with in mode `reference`."""

from __future__ import annotations

from typing import Optional, Tuple

import numpy as np

from polar_pipeline._util.text import printable, quoted
from polar_pipeline.options import Options
from polar_pipeline.sensor.frames import FrameError

#: How far a reference may be beyond [0, 1]: the step of half precision above 1, by which S0/2 can have been rounded.
_REFERENCE_SLACK = 2.0**-10
_LARGEST = int(np.float32(1 + _REFERENCE_SLACK).view(np.uint32))


def check_reference(reference: np.ndarray) -> None:
    """Refuse an image that SSIM cannot compare with: of NaN, infinity or numbers beyond [0, 1] it would make NaN.

    Args:
        reference: float32 of any shape: S0/2 of full scale 1. Beyond [0, 1] by rounding is allowed.

    Raises:
        FrameError: The image holds NaN, infinity or numbers beyond [0, 1] (cause `reference`).
    """
    # As integers, floats that are not negative have the same order, and infinity, NaN and negative ones lie above: one
    # pass over a good image, where comparing takes two.
    if reference.view(np.uint32).max(initial=0) <= _LARGEST:
        return
    with np.errstate(invalid="ignore"):  # older NumPy warns of NaN
        bad = ~((reference >= -_REFERENCE_SLACK) & (reference <= 1 + _REFERENCE_SLACK))
    if bad.any():
        got = quoted(float(reference[bad][0]))
        raise FrameError("reference", f"the reference must hold numbers in [0, 1], S0/2 of full scale 1, got {got}")


def check_reference_argument(reference: Optional[np.ndarray], options: Options, size: Tuple[int, int]) -> None:
    """Refuse a reference that is missing, not wanted, or unfit for an output of `size` = (height, width)."""
    if (reference is not None) != (options.ssim_mode == "reference"):
        state = "takes no" if reference is not None else "needs a"
        raise ValueError(f"ssim_mode {options.ssim_mode!r} {state} reference image")
    if reference is None:
        return
    is_array = isinstance(reference, np.ndarray) and not isinstance(reference, np.ma.MaskedArray)
    if not is_array or reference.shape != size or reference.dtype != np.float32:
        got = f"{reference.dtype} {reference.shape}" if is_array else type(reference).__name__
        raise ValueError(f"reference must be a float32 array of shape {size}, got {printable(got)}")
    check_reference(reference)
