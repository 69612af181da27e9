"""What an array of pixels from a file holds: mosaics, angle images or Stokes vectors, one frame or several.

Shapes and numbers decide (`LAYOUTS`). Where they allow several readings, an array is refused, unless the user says
which one it is (`Stated`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from polar_pipeline._util.text import quoted
from polar_pipeline.recordings.limits import check_size
from polar_pipeline.recordings.messages import ImageMessage
from polar_pipeline.sensor.frames import MIN_SIDE, SIXTEEN_BITS, FrameError, FrameWarning
from polar_pipeline.sensor.mosaic import ANGLES

#: Contents of an array, which a user can name.
CONTENTS = ("auto", "mosaics", "angles", "tiles", "stokes")
#: Orders of dimensions that are read, for each content: n frames, h rows, w columns, a four angles, c three colors, s
#: the parameters S0, S1, S2.
LAYOUTS: Dict[str, Tuple[str, ...]] = {
    "mosaics": ("hw", "nhw"),
    "angles": (
        *("ahw", "hwa", "nahw", "nhwa"),
        *("ahwc", "hwac", "hwca", "achw", "cahw", "nahwc", "nhwac", "nhwca"),
    ),
    "tiles": ("hw", "nhw"),
    "stokes": ("hws", "nhws"),
}
_SIZES = {"a": len(ANGLES), "c": 3, "s": 3}
#: Largest number that a file states -> ending of the encoding.
_ENDINGS = {255: "8", 1023: "10", 4095: "12", 16383: "14", 65535: "16"}
#: Pixels of a side at most that are looked at.
_CROP = 512
#: Ratio of differences of neighbors to those of pixels two apart above which pixels are of a mosaic.
_ROUGH = 1.1
#: Factors by which I0 + I90 = I45 + I135 holds better for some pairs of planes than for all others: where this makes
#: four angle images likely, and where it contradicts an order. Gains of real sensors differ by a percent.
_LIKELY, _CLEAR = 1.4, 3.0
#: Two pairs of planes.
_Pairs = Tuple[Tuple[int, int], Tuple[int, int]]
#: The pairs of planes that are perpendicular -> the usual order of angles with them.
_ORDERS: Dict[_Pairs, Tuple[int, ...]] = {
    ((0, 2), (1, 3)): (0, 45, 90, 135),
    ((0, 1), (2, 3)): (0, 90, 45, 135),
    ((0, 3), (1, 2)): (0, 45, 135, 90),
}
#: The orders of tiles in use, row by row: ascending, and as the pixels of the sensor's tile.
_TILES = ((0, 45, 90, 135), (90, 45, 135, 0))
#: Factor by which neighbors across the borders of tiles differ more than others.
_SEAM = 4.0
#: Least number of pixels that are compared.
_MIN_PIXELS = 16


@dataclass(frozen=True)
class Stated:
    """How to read files that do not state it themselves.

    Attributes:
        content: What arrays hold, one of `CONTENTS`.
        order: Angles of planes, pages, channels or tiles in degrees, in their order; () for the usual one, which is
            checked.
        array: Name of the array in an archive (NPZ, MAT); "" for the only one.
        raw: Size and encoding of the frames in a file without a header, such as `2448x2048:Mono12p`; "" for none.
    """

    content: str = "auto"
    order: Tuple[int, ...] = ()
    array: str = ""
    raw: str = ""

    def __post_init__(self) -> None:
        if self.content not in CONTENTS:
            raise ValueError(f"content must be one of {', '.join(CONTENTS)}, got {quoted(self.content)}")
        if self.order and sorted(self.order) != list(ANGLES):
            raise ValueError(f"the order of angles must hold 0, 45, 90 and 135 once each, got {quoted(self.order)}")


#: For files that state all.
NOTHING_STATED = Stated()


class Pixels(NamedTuple):
    """An array as a file stores it: its numbers, the largest number that the file states (0: none), and warnings."""

    array: np.ndarray
    maximum: int = 0
    warnings: Tuple[FrameWarning, ...] = ()


class Frames(NamedTuple):
    """Frames of one content: (N, H, W) mosaics, (N, 4, H, W) or (N, 4, H, W, 3) angles, or (N, H, W, 3) Stokes."""

    content: str
    array: np.ndarray
    warnings: Tuple[FrameWarning, ...] = ()


def split_frames(array: np.ndarray, stated: Stated = NOTHING_STATED) -> Frames:
    """Find the frames in an array of pixels, as views where it is possible.

    Args:
        array: Numbers of any shape in `LAYOUTS`; 12 channels are four angles of three colors.
        stated: What the user says of it.

    Raises:
        FrameError: It holds no frames, or several readings are possible (cause `type`), or the angles contradict their
            order (`mosaic`).
    """
    if array.dtype.kind not in "iuf":
        raise FrameError("type", f"raw pixels are integers, or floats from 0 to 1; got {array.dtype}")
    array = _without_plain_channels(array)
    readings = [
        Frames(content, variant.transpose(*_axes(layout)).reshape(*_leading(layout), *_sizes(variant, layout)))
        for variant in _variants(array)
        for content, layouts in LAYOUTS.items()
        for layout in layouts
        if _fits(variant.shape, layout) and stated.content in ("auto", content)
    ]
    readings = [row._replace(array=_quarters(row.array)) if row.content == "tiles" else row for row in readings]
    readings = [row for row in readings if row.content != "tiles" or row.array.size]
    if not readings:
        raise FrameError("type", _refusal(array, stated.content))
    if stated.content == "auto" or len(readings) > 1:
        readings = _likely(array, readings)
    (frames,) = readings
    return _in_order(frames, stated.order) if frames.content in ("angles", "tiles") else frames


def stacked_angles(images: Sequence[np.ndarray], order: Tuple[int, ...]) -> Frames:
    """Put the images behind four polarizers together; gray, Bayer or color.

    Args:
        images: In the order of their angles.
        order: The angles; () for that of `ANGLES`.

    Raises:
        FrameError: They differ in size or type (cause `size`), are no single pictures (`type`), or contradict their
            order (`mosaic`).
    """
    images = [_without_plain_channels(image) for image in images]
    if len({(image.shape, image.dtype) for image in images}) > 1:
        sizes = ", ".join(f"{image.dtype} {image.shape}" for image in images)
        raise FrameError("size", f"four angle images must have one size and type, got {sizes}")
    if not (_fits(images[0].shape, "hw") or _fits(images[0].shape, "hws")):
        raise FrameError("type", f"an angle image is (H, W) or (H, W, 3), got {images[0].dtype} {images[0].shape}")
    return _in_order(Frames("angles", np.stack(images)[np.newaxis]), order)


def is_rough(planes: np.ndarray) -> bool:
    """Return whether the neighbors in all gray images (4, H, W) differ as those of mosaics."""
    return planes.ndim == 3 and min(map(_roughness, planes)) > _ROUGH


def to_message(frames: Frames, index: int, pixels: Pixels, max_bytes: int) -> ImageMessage:
    """Return a frame as an image message: a mosaic, `Angles*` and `AnglesRGB*` of four angles, or `Stokes32F`.

    Raises:
        FrameError: The numbers are of a type or range that no frame has (cause `type`), or too many (`size`).
    """
    array, prefix = frames.array[index], "Mono"
    if frames.content == "stokes":
        check_size("a picture", 4 * array.size, max_bytes)
        if array.dtype.kind != "f":
            raise FrameError("type", f"Stokes vectors are floats, S1 and S2 below 0 too, got {array.dtype}")
        return _message(np.ascontiguousarray(array, "<f4"), "Stokes32F", frames, pixels)
    if frames.content != "mosaics":
        prefix = "AnglesRGB" if array.ndim == 4 else "Angles"
        array = np.moveaxis(array, 0, 2)  # the angles of a pixel side by side
    check_size("a picture", 2 * array.size if array.itemsize > 1 else array.size, max_bytes)
    maximum = pixels.maximum
    if array.dtype.kind == "f":
        array, maximum = _quantized(array), SIXTEEN_BITS
    array = to_unsigned(array)
    if maximum and array.size and array.max() > maximum:
        raise FrameError("type", f"the file states numbers up to {maximum}, and holds {array.max()}")
    ending = _ENDINGS.get(maximum, str(8 * array.itemsize))
    if array.itemsize == 1:
        ending = "8"
    return _message(
        array,
        f"{prefix}{ending}" if prefix != "Mono" or ending in ("10", "12", "14") else f"mono{ending}",
        frames,
        pixels,
    )


def _message(array: np.ndarray, encoding: str, frames: Frames, pixels: Pixels) -> ImageMessage:
    height, width = array.shape[:2]
    data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    warnings = (*pixels.warnings, *frames.warnings)
    return ImageMessage(0, "", height, width, encoding, False, data.size // height, data, warnings)


def to_unsigned(array: np.ndarray) -> np.ndarray:
    """Convert integers from 0 to 65535 of any type and byte order to uint8 or little-endian uint16.

    Raises:
        FrameError: They are no integers, or out of range (cause `type`).
    """
    if array.dtype.kind not in "iu":
        raise FrameError("type", f"raw pixels are integers, or floats from 0 to 1; got {array.dtype}")
    if array.dtype == np.uint8:
        return array
    if array.dtype.itemsize > 2 or array.dtype.kind == "i":
        low, high = (int(array.min()), int(array.max())) if array.size else (0, 0)
        if low < 0 or high > SIXTEEN_BITS:
            raise FrameError("type", f"raw pixels are integers from 0 to {SIXTEEN_BITS}, got {low} to {high}")
    return array.astype("<u2", copy=False)


def _quantized(array: np.ndarray) -> np.ndarray:
    """Convert floats from 0 to 1 to 16 bit, whose steps are far below the noise of any camera."""
    low, high = (float(array.min()), float(array.max())) if array.size else (0.0, 0.0)
    if not (low >= 0 and high <= 1):  # of NaN too
        raise FrameError(
            "type",
            f"raw pixels in float must be shares of full scale, 0 to 1, got {low:.6g} to {high:.6g}: divide by it",
        )
    return np.rint(array * SIXTEEN_BITS).astype("<u2")


# ----------------------------------------------------------------------------------------------------------- shapes


def _without_plain_channels(array: np.ndarray) -> np.ndarray:
    """Drop what adds nothing to gray pixels: channels that are equal, and an alpha channel that is full everywhere."""
    if array.ndim < 3:
        return array
    channels = array.shape[-1]
    if channels == 1:
        return array[..., 0]
    if array.ndim == 3 and channels in (2, 4) and array.dtype.kind == "u":
        opaque = np.iinfo(array.dtype).max
        if (array[..., -1] == opaque).all() and not (array[..., 0] == opaque).all():
            return _without_plain_channels(array[..., :-1])
    is_gray = channels == 3 and array.dtype.kind in "iu" and not (array != array[..., :1]).any()
    return array[..., 0] if is_gray else array


def _variants(array: np.ndarray) -> List[np.ndarray]:
    """Return an array, with 12 channels split into angles and colors in both ways."""
    shape = array.shape
    if array.ndim >= 3 and shape[-1] == 12:
        return [array.reshape(*shape[:-1], 4, 3), array.reshape(*shape[:-1], 3, 4)]
    if array.ndim == 3 and shape[0] == 12:
        return [array, array.reshape(4, 3, *shape[1:]), array.reshape(3, 4, *shape[1:])]
    return [array]


def _fits(shape: Tuple[int, ...], layout: str) -> bool:
    if len(shape) != len(layout):
        return False
    least = MIN_SIDE if layout in ("hw", "nhw") else MIN_SIDE // 2
    sizes = dict(zip(layout, shape))
    return all(
        sizes[axis] >= least if axis in "hw" else sizes[axis] == _SIZES.get(axis, sizes[axis]) and sizes[axis] > 0
        for axis in layout
    )


def _axes(layout: str) -> List[int]:
    """Return the axes of a layout in the order of `Frames`."""
    return [layout.index(axis) for axis in "nahwcs" if axis in layout]


def _leading(layout: str) -> Tuple[int, ...]:
    return () if "n" in layout else (1,)


def _sizes(array: np.ndarray, layout: str) -> List[int]:
    return [array.shape[axis] for axis in _axes(layout)]


def _quarters(array: np.ndarray) -> np.ndarray:
    """Convert (N, 2H, 2W) to (N, 4, H, W), row by row; an odd size gives an empty array."""
    height, width = (size // 2 for size in array.shape[1:])
    if array.shape[1] % 2 or array.shape[2] % 2 or min(height, width) < MIN_SIDE // 2:
        return array[:0]
    return array.reshape(len(array), 2, height, 2, width).transpose(0, 1, 3, 2, 4).reshape(-1, 4, height, width)


# --------------------------------------------------------------------------------------------------------- readings


def _likely(array: np.ndarray, readings: Sequence[Frames]) -> List[Frames]:
    """Return the only reading that the numbers allow.

    Raises:
        FrameError: There are none or several (cause `type`); the message names them with their options.
    """
    plausible = [(row, _evidence(row)) for row in readings]
    sure = [row for row, evidence in plausible if evidence > 0]
    if len(sure) == 1:
        return sure
    if sure and {row.content for row in sure} == {"angles"}:  # the angles may be first or last
        sure.sort(key=_misfit)
        if 2 * _misfit(sure[0]) < _misfit(sure[1]):
            return sure[:1]
    possible = sure or [row for row, evidence in plausible if evidence == 0]
    if len(possible) == 1:
        return possible
    if not possible:
        raise FrameError("type", _refusal(array, "auto"))
    listed = " or ".join(dict.fromkeys(f"{_described(row)} (--content {row.content})" for row in possible))
    if len({row.content for row in possible}) == 1:
        raise FrameError(
            "type",
            f"{array.dtype} {array.shape} can be {listed} in several orders of its dimensions: save each frame as "
            "(4, H, W), or in color as (4, H, W, 3)",
        )
    raise FrameError("type", f"{array.dtype} {array.shape} can be {listed}: say which")


def _evidence(frames: Frames) -> int:
    """Return whether the numbers of the first frame speak for a reading (1), against it (-1), or neither."""
    if not frames.array.size:
        return -1
    if frames.content == "stokes":
        return 1 if _are_stokes(frames.array[0]) else -1
    first = frames.array[0]
    if frames.content == "mosaics":
        # a tenth of all scenes have little polarization, so smooth pixels say nothing against a mosaic
        return 1 if _roughness(first) > _ROUGH else 0
    planes = _crops(first)
    if max(map(_roughness, planes)) > _ROUGH:
        return -1
    if frames.content == "tiles":
        pairs = _perpendicular(planes, _LIKELY)
        return 1 if pairs in [_pairs_of(order) for order in _TILES] and _has_seams(planes) else -1
    return 1 if _perpendicular(planes, _LIKELY) == _pairs_of(ANGLES) or _perpendicular(planes, _CLEAR) else 0


def _crop(image: np.ndarray) -> np.ndarray:
    """Return the middle of an image as floats."""
    tops = [max(0, (size - _CROP) // 2) for size in image.shape[:2]]
    return image[tops[0] : tops[0] + _CROP, tops[1] : tops[1] + _CROP].astype(np.float64)


def _crops(angles: np.ndarray) -> List[np.ndarray]:
    """Return the middle of (4, H, W) or (4, H, W, 3) angle images as floats."""
    return [_crop(plane) for plane in angles]


def _roughness(image: np.ndarray) -> float:
    """Return the mean difference of neighbors over that of pixels two apart: below 1 for images, above for mosaics."""
    crop = _crop(image)
    near = np.abs(np.diff(crop, axis=0)).mean() + np.abs(np.diff(crop, axis=1)).mean()
    far = np.abs(crop[2:] - crop[:-2]).mean() + np.abs(crop[:, 2:] - crop[:, :-2]).mean()
    return float(near / far) if far else (np.inf if near else 1.0)


def _perpendicular(planes: Sequence[np.ndarray], factor: float) -> Optional[_Pairs]:
    """Find the pairs of planes whose sums are equal, as those of perpendicular polarizers; None if it is not clear."""
    rests = _differences(planes)
    best, second = sorted(rests, key=rests.__getitem__)[:2]
    rounding = 1.0 if max(float(plane.max()) for plane in planes) > 1 else 1e-3
    return best if rests[second] > factor * rests[best] + rounding else None


def _differences(planes: Sequence[np.ndarray]) -> Dict[_Pairs, float]:
    """Return the mean difference between the sums of each two pairs of planes."""
    top = max(float(plane.max()) for plane in planes)
    is_full = top == 1 or (top >= 255 and int(top) & (int(top) + 1) == 0)  # saturated pixels break the rule
    usable = np.all([plane < 0.98 * top for plane in planes], axis=0) | (not is_full)
    a, b, c, d = (plane[usable] for plane in planes)
    sums = {((0, 2), (1, 3)): a + c - b - d, ((0, 1), (2, 3)): a + b - c - d, ((0, 3), (1, 2)): a + d - b - c}
    is_enough = usable.sum() >= _MIN_PIXELS
    return {pairs: float(np.abs(row).mean()) if is_enough else 0.0 for pairs, row in sums.items()}


def _misfit(frames: Frames) -> float:
    """Return the share of polarization by which I0 + I90 and I45 + I135 differ in the first frame."""
    rests = _differences(_crops(frames.array[0]))
    return rests[_pairs_of(ANGLES)] / (sum(rests.values()) or 1.0)


def _has_seams(planes: Sequence[np.ndarray]) -> bool:
    """Return whether an image breaks where tiles meet, to the right or below."""
    upper_left, upper_right, lower_left, _ = planes
    usual = np.median(np.abs(np.diff(upper_left, axis=1))) + np.median(np.abs(np.diff(upper_left, axis=0)))
    across = np.median(np.abs(upper_left[:, -1] - upper_right[:, 0]))
    down = np.median(np.abs(upper_left[-1] - lower_left[0]))
    return bool(max(across, down) > _SEAM / 2 * usual)


def _are_stokes(array: np.ndarray) -> bool:
    """Return whether (H, W, 3) are floats S0, S1, S2 of light: S1 or S2 below 0 somewhere, and DoLP hardly above 1."""
    if array.dtype.kind != "f":
        return False
    s0, s1, s2 = np.moveaxis(_crop(array), -1, 0)
    known = ~np.isnan(s0 + s1 + s2)
    if not known.any() or min(s1[known].min(), s2[known].min()) >= 0:
        return False
    return bool(s0[known].min() >= 0 and (np.hypot(s1, s2)[known] <= 1.05 * s0[known] + 1e-6).mean() > 0.98)


def _in_order(frames: Frames, order: Tuple[int, ...]) -> Frames:
    """Sort planes by angle, in the order that is stated or the usual one, which the light must not contradict.

    Raises:
        FrameError: I0 + I90 and I45 + I135 differ, and would not in another order (cause `mosaic`).
    """
    pairs = _perpendicular(_crops(frames.array[0]), _LIKELY if frames.content == "tiles" and not order else _CLEAR)
    usual = _TILES if frames.content == "tiles" else (ANGLES,)
    chosen = order or next((each for each in usual if pairs == _pairs_of(each)), () if pairs else usual[0])
    if frames.content == "tiles" and not order and not pairs:
        listed = " or ".join(",".join(map(str, each)) for each in usual)
        raise FrameError("mosaic", f"the tiles can be {listed}, row by row: say which by --angle-order")
    if pairs is not None and pairs != _pairs_of(chosen or usual[0]):
        fitting = ",".join(map(str, _ORDERS[pairs]))
        stated = ",".join(map(str, order or usual[0]))
        text = f"in the order {stated} of angles, I0 + I90 differs from I45 + I135; the order {fitting} fits"
        if not order:
            raise FrameError("mosaic", f"{text}: say which by --angle-order")
        frames = frames._replace(warnings=(FrameWarning("mosaic", text),))
    places = [(chosen or usual[0]).index(angle) for angle in ANGLES]
    return frames if places == [0, 1, 2, 3] else frames._replace(array=frames.array[:, places])


def _pairs_of(order: Sequence[int]) -> _Pairs:
    """Return the places of perpendicular angles in an order, sorted."""
    first, second = sorted(tuple(sorted((order.index(low), order.index(low + 90)))) for low in (0, 45))
    return (first[0], first[1]), (second[0], second[1])


def _described(frames: Frames) -> str:
    """Describe a reading in a few words."""
    count, kind = len(frames.array), frames.content
    if kind == "mosaics":
        return f"{count} mosaics" if count > 1 else "a mosaic"
    what = {"angles": "four angle images", "tiles": "four tiles of angles", "stokes": "Stokes vectors"}[kind]
    return f"{count} frames of {what}" if count > 1 else what


def _refusal(array: np.ndarray, content: str) -> str:
    """Explain why an array holds no frame."""
    got = f"got {array.dtype} {array.shape}"
    if array.ndim >= 3 and array.shape[-1] == 3 and content == "auto":
        return (
            f"a color picture is not a mosaic, {got}: save the mosaic as gray; four color pictures of a frame are read "
            "together ('scene_{000,045,090,135}.png'), Stokes vectors S0, S1, S2 by --content stokes"
        )
    what = (
        "a mosaic (H, W), four angle images (4, H, W) or (H, W, 4), or a stack of them"
        if content == "auto"
        else content
    )
    return f"pixels must be {what}, each side at least {MIN_SIDE}; {got}"
