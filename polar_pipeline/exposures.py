"""`merge_exposures`: one frame of several exposures, with their common range and their noise.

The merged frame is what the shortest exposure would have recorded with 16 bits and less noise. So every option that
holds for the shortest exposure holds for it: calibration, sensor, `camera_gain`. With the exposure k, which had L times
the light of the shortest one, a raw number of share i of full scale and black level b becomes b + (i - b)/L. Its
variance is that of i over L^2, which differs from superpixel to superpixel: `RawFrame.exposures` says which is where.

An exposure and the next shorter one show the same light if i - b and L (i' - b) agree, or i is saturated and the other
number is at least full scale. A number below full scale that says less than the shorter exposure does disagrees too:
it is of another moment, or the camera saturates below full scale.
"""

from __future__ import annotations

import warnings
from typing import Optional, Sequence, Union

import numpy as np

from polar_pipeline._util.cpus import available_cores
from polar_pipeline._util.text import quoted
from polar_pipeline.backends.cpu.arguments import Bracket
from polar_pipeline.backends.cpu.library import load_kernels
from polar_pipeline.backends.noise.model import exposure_noise, level_of, noise_by_gain
from polar_pipeline.options import Options, make_options
from polar_pipeline.pipeline import Raw, input_frame
from polar_pipeline.polarimetry.coefficients import MERGE_LIMIT, MERGE_TOLERANCE
from polar_pipeline.sensor.frames import MAX_EXPOSURES, SIXTEEN_BITS, Exposures, FrameError, RawFrame

__all__ = ["merge_exposures"]

#: Largest gain in dB, and largest negative one: 96 dB are a factor of 16 bits, more than cameras have.
MAX_GAIN = 96.0


def merge_exposures(
    frames: Sequence[Raw],
    exposure_us: Sequence[float],
    gain_db: Union[float, Sequence[float]] = 0.0,
    *,
    black: float = 0.0,
    options: Optional[Options] = None,
    threads: int = 0,
) -> RawFrame:
    """Merge exposures of one scene to a frame, which `Pipeline` takes.

    All pixels of a superpixel are of one exposure: the longest one in which none of them is saturated. Where exposures
    show different light, by more than their noise explains, something has moved: these superpixels and those beside
    them are of the shortest exposure, and `exposures.moved` marks them. Superpixels are compared one by one, and in
    sums over 3 x 3. Products with noise need the backend `cpu`.

    Args:
        frames: 2 to 16 frames of one size and bit depth, in any order: arrays, or frames of `read_frames`.
        exposure_us: Exposure time of each, in one unit.
        gain_db: Gain of each in dB, or of all, -96 to 96. With times and gains, the longest exposure may have up to
            65535 times the light of the shortest one.
        black: Raw number without light, which is subtracted; with a calibration 0, as the calibration has it.
        options: Those of the pipeline, `pipeline.options`: sensor, region, calibration, bit depth, and `camera_gain` of
            the shortest exposure. None for the defaults.
        threads: Most threads to use; 0 for one per core.

    Returns:
        A frame of 16 bits in which the shortest exposure has the light that it had, with `exposures`.

    Raises:
        FrameError: A frame cannot be used, or they do not have one size, bit depth and form (cause `exposures`).
        ValueError: Exposure times or gains are missing or not allowed, or `black` contradicts the calibration.
        RuntimeError: The CPU kernels were not built.

    Warns:
        UserWarning: Most superpixels that can be compared show different light: exposure times, gains, `black` or the
            full scale is wrong. Or the longest exposure has less noise than the steps of the merged frame.
    """
    options = make_options() if options is None else options
    merged = merge(
        [input_frame(raw, options).unpack() for raw in frames], exposure_us, gain_db, black, options, threads
    )
    assert merged.exposures is not None
    if merged.exposures.misfit:
        warnings.warn(merged.exposures.misfit, stacklevel=2)
    (_, floor), *_ = exposure_noise(options, merged)
    if floor < 2 / merged.full_scale**2 / 12:
        text = "the merged frame has 16 bits, whose steps exceed the noise of the longest exposure"
        warnings.warn(f"{text}: leave it or the shortest one out", stacklevel=2)
    return merged


def merge(
    frames: Sequence[RawFrame],
    exposure_us: Sequence[float],
    gain_db: Union[float, Sequence[float]],
    black: float,
    options: Options,
    threads: int = 0,
) -> RawFrame:
    """Merge exposures without warnings; arguments and errors are those of `merge_exposures`."""
    times, gains = np.array(exposure_us, np.float64), np.array(gain_db, np.float64)
    if not 2 <= len(frames) <= MAX_EXPOSURES or times.shape != (len(frames),) or gains.shape not in ((), times.shape):
        text = f"2 to {MAX_EXPOSURES} frames must come with an exposure time each, and a gain each or one for all"
        raise ValueError(f"{text}; got {len(frames)} frames, {quoted(exposure_us)} and {quoted(gain_db)}")
    if not (np.isfinite(times).all() and (times > 0).all() and (np.abs(gains) <= MAX_GAIN).all()):
        text = f"exposure times must be above 0, got {quoted(exposure_us)}; gains within {MAX_GAIN:g} dB"
        raise ValueError(f"{text}, got {quoted(gain_db)}")
    gains = np.broadcast_to(gains, times.shape)
    with np.errstate(all="ignore"):
        light = times * 10 ** (gains / 20)
        ratio = light.max() / light.min()
    if not ratio <= SIXTEEN_BITS:
        text = f"the light of exposures must differ by a factor of at most {SIXTEEN_BITS}"
        raise ValueError(f"{text}; got times {quoted(exposure_us)} and gains {quoted(gain_db)}")
    kinds = {(row.shape, row.mosaic.dtype.name, row.full_scale, row.is_split) for row in frames}
    if len(kinds) > 1 or any(row.light is not None or row.exposures is not None for row in frames):
        text = "exposures must be mosaics of one size, type and full scale"
        raise FrameError("exposures", f"{text}, got {quoted(sorted(map(str, kinds)))}")
    full_scale, correction = frames[0].full_scale, options.correction(frames[0].shape)
    if not 0 <= black < full_scale or (black and correction is not None):
        text = f"black must be a raw number below {full_scale}, and 0 with a calibration, which has it"
        raise ValueError(f"{text}; got {quoted(black)}")
    order = np.argsort(-light, kind="stable")
    # defective pixels have the same number in every exposure, as if something had moved
    frames = [frames[k] if correction is None else correction.replace_defects(frames[k]) for k in order]
    lights = tuple(float(light[k] / light.min()) for k in order)
    gains_db = tuple(float(gains[k] - gains[order[-1]]) for k in order)
    noise = noise_by_gain(options, gains_db, full_scale)
    # arrays of the kernel
    shape, count, bracket = frames[0].shape, len(frames), Bracket()
    mosaics = [np.require(row.mosaic, requirements="A") for row in frames]
    mosaics = [row if row.strides[1] == row.itemsize else row.copy() for row in mosaics]
    out = np.empty(shape, np.uint16)
    index, moved, differ = (np.empty([-(-size // 2) for size in shape], np.uint8) for _ in range(3))
    rows, columns = index.shape
    deviations = np.zeros((count - 1, 2 * rows + 4, 2 * columns + 4), np.int8)
    bracket.raw[:count] = [row.ctypes.data for row in mosaics]
    bracket.steps[:count] = [row.strides[0] for row in mosaics]
    bracket.lights[:count], (bracket.shots[:count], bracket.floors[:count]) = lights, zip(*noise)
    bracket.mosaic, bracket.exposures = out.ctypes.data, index.ctypes.data
    bracket.moved, bracket.differ, bracket.deviations = (row.ctypes.data for row in (moved, differ, deviations))
    bracket.count, bracket.is_wide, bracket.full_scale = count, mosaics[0].itemsize == 2, full_scale
    (bracket.height, bracket.width), bracket.black = shape, black / full_scale
    bracket.tolerance, bracket.offset, bracket.limit = MERGE_TOLERANCE, level_of(full_scale) / 2, MERGE_LIMIT
    if correction is not None:
        bracket.codes, (bracket.black, bracket.black_step) = correction.codes.ctypes.data, correction.scales[0]
    load_kernels().merge(bracket, threads or available_cores())
    exposures = Exposures(index, moved.view(bool), lights, gains_db, full_scale)
    return RawFrame(out, SIXTEEN_BITS, frames[0].is_split, exposures=exposures)
