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
from polar_pipeline.recordings.messages import MAX_S0, ImageMessage
from polar_pipeline.sensor.frames import MIN_SIDE, SIXTEEN_BITS, FrameError, FrameWarning
from polar_pipeline.sensor.mosaic import ANGLES

#: Contents of an array, which a user can name.
CONTENTS = ("auto", "mosaics", "angles", "tiles", "stokes")
#: Orders of dimensions that are read, for each content: n frames, h rows, w columns, a four angles, c three colors, s
#: the parameters S0, S1, S2.
LAYOUTS: Dict[str, Tuple[str, ...]] = {
    "mosaics": ("hw", "nhw", "hwn"),
    "angles": (
        *("ahw", "hwa", "nahw", "nhwa", "anhw", "hwna", "ahwn", "hwan"),
        *("ahwc", "hwac", "hwca", "achw", "cahw", "nahwc", "nhwac", "nhwca", "anhwc"),
    ),
    "tiles": ("hw", "nhw", "hwc", "nhwc"),
    "stokes": ("hws", "nhws"),
}
#: Orders with frames last, as in MATLAB.
FRAMES_LAST = ("hwn", "hwna", "ahwn", "hwan")
_SIZES = {"a": len(ANGLES), "c": 3, "s": 3}
#: Largest number that a file states -> ending of the encoding.
ENDINGS = {255: "8", 1023: "10", 4095: "12", 16383: "14", 65535: "16"}
#: Pixels of a side of the blocks that are looked at, and most blocks in a row and in a column; and pixels of a side of
#: the squares in them whose means are compared, with a quarter of the noise.
_BLOCK, _BLOCKS, _SQUARE = 16, 10, 4
#: Largest number of the most bits that cameras have in signed numbers of 16 bits.
_SIGNED_BITS = 16383
#: Distance of the rows by which most color pictures are told from gray ones.
_SAMPLED = 64
#: Pixels of a side of the largest tile of a mosaic, a color sensor's; and ratio of the variance between the pixels of a
#: tile and that within each, in a quarter of the blocks, above which an image is a mosaic. Images of scenes and noise
#: have 1 to 3, rounded slopes up to 5.5; mosaics 17 and more where light is polarized by three percent.
_TILE, _LATTICE = 4, 6.0
#: `_alternation` of an axis across polarizers at least, and of one across frames at most.
_ALTERNATING, _STEADY = 1.2, 1.05
#: Ratio of differences of neighbors to those of pixels two apart below which an image is of a scene without much noise.
_SMOOTH = 0.9
#: Factors by which I0 + I90 = I45 + I135 holds better for some pairs of planes than for all others: where this makes
#: four angle images likely, and where it contradicts an order.
_LIKELY, _CLEAR = 1.4, 3.0
#: Share by which the gains of pairs of planes differ at most; two percent in real sensors.
_GAIN = 0.03
#: Share of the light by which I0 + I90 and I45 + I135 differ at most in four images of one scene. A gamma makes it 4 %.
_DIFFERENT = 0.1
#: Share by which one of them is brighter than the other in all of a frame, above which the angles are others, or the
#: numbers not linear; real frames have less than one percent.
_UNEQUAL = 0.05
#: Angles of the tile of IMX250 and the like, row by row.
_USUAL_TILE = (90, 45, 135, 0)
#: Two pairs of planes.
_Pairs = Tuple[Tuple[int, int], Tuple[int, int]]
#: The pairs of planes that are perpendicular -> the usual orders of angles with them. The last ones are those of the
#: pixels of a sensor's tile, and clockwise in a picture of tiles.
_ORDERS: Dict[_Pairs, str] = {
    ((0, 2), (1, 3)): "the order 0,45,90,135",
    ((0, 1), (2, 3)): "the order 0,90,45,135",
    ((0, 3), (1, 2)): "90,45,135,0 (a sensor's tile) or 0,45,135,90",
}
#: Factor by which the sums of two pairs of planes differ more than both others, if planes are alike in pairs.
_PAIRED = 10.0
#: Degrees by which stated angles may differ from 0, 45, 90 and 135.
_NEAR = 0.5
#: How a stack of angle images is saved.
_STACKED = "them as (N, 4, H, W)"
#: Correlation of images of one scene, and deviation of its light as a share of the mean, both beyond those of a lamp.
_ALIKE, _DETAIL = 0.9, 0.02
#: How far floats lie beyond 0 and 1 by rounding.
_ROUNDING = 1e-5
#: Factor by which neighbors across the borders of tiles differ more than others.
_SEAM = 3.0
#: Least number of squares that are compared.
_MIN_SQUARES = 16


@dataclass(frozen=True)
class Stated:
    """How to read files that do not state it themselves.

    Attributes:
        content: What arrays hold, one of `CONTENTS`.
        order: Angles of planes, pages, channels or tiles in degrees, in their order; () for the usual one, which is
            checked.
        array: Name of the array in an archive (NPZ, MAT); "" for the only one.
        raw: Size and encoding of the frames in a file without a header, such as `2448x2048:Mono12p`; "" for none.

    Raises:
        ValueError: They contradict each other, or have an unknown value.
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
        if self.raw and (self.content not in ("auto", "mosaics") or self.order):
            got = f"the order {self.order} of angles" if self.order else f"content {self.content}"
            raise ValueError(
                f"files without a header hold mosaics, got {got}: four numbers a pixel, in the order 0, 45, 90, 135, "
                "are a raw format such as 1224x1024:Angles8"
            )
        if self.order and self.content in ("mosaics", "stokes"):
            raise ValueError(f"an order of angles is of angle images or tiles, got content {self.content}")


#: For files that state all.
NOTHING_STATED = Stated()


class Pixels(NamedTuple):
    """An array as a file stores it.

    Attributes:
        array: Its numbers.
        maximum: The largest number that the file states; 0 for none.
        warnings: About the file.
        angles: The angles of its planes in degrees that the file states; () for none.
        is_paged: Whether frames or planes come first, as they are pages.
        places: Pages in the order of frames of four angles, if the file states axes of several such frames; else ().
    """

    array: np.ndarray
    maximum: int = 0
    warnings: Tuple[FrameWarning, ...] = ()
    angles: Tuple[float, ...] = ()
    is_paged: bool = False
    places: Tuple[int, ...] = ()


class Frames(NamedTuple):
    """Frames of one content: (N, H, W) mosaics, (N, 4, H, W) or (N, 4, H, W, 3) angles, or (N, H, W, 3) Stokes.

    `layout` is how the file stores them; `maximum` and `warnings` are those of `Pixels`, and warnings about the light.
    """

    content: str
    array: np.ndarray
    layout: str
    maximum: int = 0
    warnings: Tuple[FrameWarning, ...] = ()

    @property
    def is_tiny(self) -> bool:
        """Whether a side of the images is shorter than that of any mosaic."""
        shape = self.array.shape
        return min(shape[-3:-1] if shape[-1] == _SIZES["c"] else shape[-2:]) < MIN_SIDE


def split_frames(pixels: Pixels, stated: Stated) -> Frames:
    """Find the frames in an array of pixels, as views where it is possible.

    Args:
        pixels: Numbers of any shape in `LAYOUTS`; 12 channels are four angles of three colors.
        stated: What the user says of them.

    Raises:
        FrameError: It holds no frames, or several readings are possible (cause `type`), or the angles contradict their
            order (`type`).
    """
    array, angles = pixels.array, pixels.angles if len(pixels.angles) > 1 else ()  # one is that of a single image
    if array.dtype.kind not in "iuf":
        raise FrameError("type", f"raw pixels are integers, or floats from 0 to 1; got {array.dtype}")
    array = without_plain_channels(array)
    contents = [stated.content] if stated.content != "auto" else ["angles", "tiles"] if stated.order else [*LAYOUTS]
    # images of a frame follow each other; where the file states frames of four, 12 images are not four of three colors
    following = ("anhw", "achw", "cahw") if pixels.places else ("anhw",)
    readings = [
        Frames(content, _arranged(variant, layout), layout, pixels.maximum, pixels.warnings)
        for variant in _variants(array, pixels.places)
        for content in contents
        for layout in LAYOUTS[content]
        if _fits(variant.shape, layout)
        and not (pixels.is_paged and layout in FRAMES_LAST)
        and not (layout in following and variant.ndim > array.ndim)
    ]
    if pixels.places and len(angles) == len(pixels.places):
        angles = tuple(angles[place] for place in pixels.places)
    readings = [row for row in readings if row.content != "tiles" or _has_quarters(row.array.shape)]
    mosaics = [row for row in readings if row.content == "mosaics"]
    if len(mosaics) > 1:  # frames may be first or last
        wrong = mosaics[0] if _are_frames_last(array) else mosaics[1]
        readings = [row for row in readings if row is not wrong]
    if any(row.layout in FRAMES_LAST and not row.is_tiny for row in readings):
        readings = [row for row in readings if not row.is_tiny]
    if not readings:
        raise FrameError("type", _refusal(array, stated))
    if stated.content == "auto" or len(readings) > 1:
        readings = _likely(array, readings, stated, angles)
    frames = readings[0]
    if frames.content == "tiles":
        frames = frames._replace(array=np.stack(_quarters(frames.array), 1))
    if frames.content == "stokes":
        _check_stokes(frames.array[0])
    if frames.content == "mosaics" and stated.content == "auto" and len(angles) == len(ANGLES):
        _check_tile(_order_in(angles))
    return _in_order(frames, stated, angles) if frames.content in ("angles", "tiles") else frames


def stacked_angles(
    images: Sequence[np.ndarray], stated: Stated, angles: Tuple[float, ...] = (), is_paged: bool = False
) -> Frames:
    """Put the images behind four polarizers together; gray, Bayer or color, one of each or stacks of as many frames.

    Args:
        images: In the order of `ANGLES`, or of the angles that are stated.
        stated: What the user says of them.
        angles: The angle that each of their files states; () for none.
        is_paged: Whether stacks are pages: three of them are frames, not colors.

    Raises:
        FrameError: They differ in size or type (cause `size`), have another shape than images, or contradict their
            order (`type`).
    """
    if len({image.shape for image in images}) > 1:  # one may have equal channels of gray, and another one none
        images = [without_plain_channels(image) for image in images]
    if len({(image.shape, image.dtype) for image in images}) > 1:
        sizes = ", ".join(f"{image.dtype} {image.shape}" for image in images)
        raise FrameError("size", f"four angle images must have one size and type, got {sizes}")
    if not is_paged:
        refuse_three(images[0])
    planes = without_plain_channels(np.stack(images))
    layouts = ("ahw", "ahwc", "anhw", "anhwc")
    layout = next((each for each in layouts if _fits(planes.shape, each, is_stack=True)), None)
    if layout is None:
        raise FrameError(
            "type",
            "an angle image is (H, W) or (H, W, 3), or a stack of them, (N, H, W) or (N, H, W, 3); got "
            f"{images[0].dtype} {images[0].shape}",
        )
    return _in_order(Frames("angles", _arranged(planes, layout), layout), stated, angles)


def refuse_three(image: np.ndarray) -> None:
    """Refuse an array of each angle that can be three frames or three colors (cause `type`)."""
    if image.ndim == 3 and len(image) == 3 and image.shape[2] != 3:
        raise FrameError(
            "type",
            f"arrays of angles {image.shape} can be three frames or three colors: save (4, H, W, 3) of colors, or "
            "(N, 4, H, W) of frames",
        )


def has_lattice(image: np.ndarray) -> bool:
    """Return whether neighbors in a gray image differ in the same way in all tiles, as those of mosaics do.

    Second differences are compared, which are 0 on slopes, by an analysis of variance of each block.
    """
    blocks = _blocks(image)[..., 0].swapaxes(1, 2)
    steps = np.abs(np.diff(blocks, axis=3))
    rounding = steps.min(initial=np.inf, where=steps > 0) ** 2 / 2 if steps.any() else 1.0  # its variance
    return any(_variance_ratio(np.diff(blocks, 2, axis), rounding) > _LATTICE for axis in (2, 3))


def _variance_ratio(blocks: np.ndarray, rounding: float) -> float:
    """Return how much more the pixels of a tile differ than by chance, by the third quartile of blocks (A, B, h, w)."""
    rows, columns = (size // _TILE for size in blocks.shape[2:])
    count = rows * columns
    places = blocks[:, :, : rows * _TILE, : columns * _TILE].reshape(-1, rows, _TILE, columns, _TILE)
    middles = np.median(places, (1, 3), keepdims=True)  # an edge in a scene crosses few tiles
    between = count * middles.var((1, 2, 3, 4)) * _TILE**2 / (_TILE**2 - 1)
    within = ((places - middles) ** 2).sum((1, 2, 3, 4)) / (_TILE**2 * (count - 1))
    return float(np.percentile(between / (within + rounding), 75))


def is_smooth(image: np.ndarray) -> bool:
    """Return whether the neighbors in a gray image are alike, as in images of scenes."""
    blocks = _blocks(image)
    near, far = (
        np.abs(blocks[:, step:] - blocks[:, :-step]).mean()
        + np.abs(blocks[:, :, :, step:] - blocks[:, :, :, :-step]).mean()
        for step in (1, 2)
    )
    return bool(near < _SMOOTH * far)


def to_message(frames: Frames, index: int, max_bytes: int) -> ImageMessage:
    """Return a frame as an image message: a mosaic, `Angles*` and `AnglesRGB*` of four angles, or `Stokes32F`.

    Raises:
        FrameError: The numbers are of a type or range that no frame has (cause `type`), or too many (`size`).
    """
    array, maximum = frames.array[index], frames.maximum
    if frames.content == "stokes":
        check_size("a picture", 4 * array.size, max_bytes)
        array, encoding = array.astype("<f4", copy=False), "Stokes32F"
    else:
        prefix = "Mono"
        if frames.content != "mosaics":
            prefix = "AnglesRGB" if array.ndim == 4 else "Angles"
            array = np.moveaxis(array, 0, 2)  # the angles of a pixel side by side
        check_size("a picture", 2 * array.size if array.itemsize > 1 else array.size, max_bytes)
        if array.dtype.kind == "f":
            array, maximum = _quantized(array), SIXTEEN_BITS
        array = _unsigned(array)
        if maximum and array.max() > maximum:
            raise FrameError("type", f"the file states numbers up to {maximum}, and holds {array.max()}")
        if maximum == 255:
            array = array.astype(np.uint8)
        ending = "8" if array.itemsize == 1 else ENDINGS.get(maximum, "16")
        encoding = f"{prefix}{ending}" if prefix != "Mono" or ending in ("10", "12", "14") else f"mono{ending}"
    height, width = array.shape[:2]
    data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return ImageMessage(0, "", height, width, encoding, False, data.size // height, data, frames.warnings)


def _unsigned(array: np.ndarray) -> np.ndarray:
    """Convert integers from 0 to 65535 of any type and byte order to uint8 or little-endian uint16.

    Raises:
        FrameError: They are no integers, or out of range (cause `type`).
    """
    if array.dtype.kind not in "iu":
        raise FrameError("type", f"raw pixels are integers, or floats from 0 to 1; got {array.dtype}")
    if array.dtype == np.uint8:
        return array
    if array.dtype.itemsize > 2 or array.dtype.kind == "i":
        low, high = int(array.min()), int(array.max())
        if low < 0 or high > SIXTEEN_BITS:
            raise FrameError("type", f"raw pixels are integers from 0 to {SIXTEEN_BITS}, got {low} to {high}")
        if high <= 255:
            raise FrameError("type", f"{array.dtype} up to {high} can be of 8 or more bits: save uint8 or uint16")
        if array.dtype.itemsize == 2 and high > _SIGNED_BITS:
            raise FrameError(
                "type",
                f"{array.dtype} up to {high} can have a full scale of 32767 or of 65535: save uint16 of 10, 12, 14 or "
                "16 bits",
            )
    return array.astype("<u2", copy=False)


def _quantized(array: np.ndarray) -> np.ndarray:
    """Convert floats from 0 to 1 to 16 bit, whose steps are far below the noise of any camera."""
    low, high = float(array.min()), float(array.max())
    if not (low >= -_ROUNDING and high <= 1 + _ROUNDING):  # of NaN too
        text = ": divide by it" if np.isfinite(low + high) else ", and the array has numbers that are not finite"
        raise FrameError(
            "type",
            f"raw pixels in float must be shares of full scale, 0 to 1, got {low:.6g} to {high:.6g}{text}",
        )
    return np.rint(np.clip(array.astype(np.float64), 0, 1) * SIXTEEN_BITS).astype("<u2")  # float16 has no 65535


# ----------------------------------------------------------------------------------------------------------- shapes


def without_plain_channels(array: np.ndarray) -> np.ndarray:
    """Drop what adds nothing to gray pixels: channels that are equal, and an alpha channel that is full everywhere."""
    if array.ndim < 3:
        return array
    channels = array.shape[-1]
    if channels == 1:
        return array[..., 0]
    if array.ndim == 4 and array.shape[1] == 1:  # (N, 1, H, W), as networks have it
        return array[:, 0]
    if channels in (2, 4) and array.dtype.kind == "u":
        opaque = np.iinfo(array.dtype).max
        if (array[..., -1] == opaque).all() and not (array[..., 0] == opaque).all():
            return without_plain_channels(array[..., :-1])
    is_gray = channels == 3
    for part in (array[..., ::_SAMPLED, :, :], array):  # most color pictures show their colors soon
        is_gray = is_gray and not (part != part[..., :1]).any()
    return array[..., 0] if is_gray else array


def _variants(array: np.ndarray, places: Tuple[int, ...] = ()) -> List[np.ndarray]:
    """Return an array, with 12 channels split into angles and colors in both ways, and 4 N images into N frames.

    `places` are those of `Pixels`.
    """
    shape, angles = array.shape, len(ANGLES)
    if places:
        in_order = array if places == tuple(range(len(array))) else array[list(places)]
        return [array, in_order.reshape(-1, angles, *shape[1:])]
    if array.ndim >= 3 and shape[-1] == 12:
        return [array.reshape(*shape[:-1], angles, 3), array.reshape(*shape[:-1], 3, angles)]
    if array.ndim == 3 and shape[0] == 12:
        return [array, array.reshape(angles, 3, *shape[1:]), array.reshape(3, angles, *shape[1:])]
    if array.ndim == 3 and shape[0] > angles and shape[0] % angles == 0 and min(shape) >= MIN_SIDE // 2:
        return [array, array.reshape(-1, angles, *shape[1:])]
    return [array]


def _fits(shape: Tuple[int, ...], layout: str, is_stack: bool = False) -> bool:
    """Return whether an array can have a layout. `is_stack`: three images are three frames, and not colors."""
    if len(shape) != len(layout):
        return False
    least = MIN_SIDE if layout in LAYOUTS["mosaics"] else MIN_SIDE // 2
    sizes = dict(zip(layout, shape))
    if layout in ("anhw", *FRAMES_LAST) and sizes["n"] == _SIZES["c"] and not is_stack:  # then they are colors
        return False
    if layout in FRAMES_LAST and sizes["n"] >= min(sizes["h"], sizes["w"]):
        return False
    return all(
        sizes[axis] >= least if axis in "hw" else sizes[axis] == _SIZES.get(axis, sizes[axis]) and sizes[axis] > 0
        for axis in layout
    )


def _arranged(array: np.ndarray, layout: str) -> np.ndarray:
    """Return an array of a layout in the order of `Frames`, as a view where it is possible."""
    frames = array.transpose([layout.index(axis) for axis in "nahwcs" if axis in layout])
    return frames if "n" in layout else frames[np.newaxis]


def _has_quarters(shape: Tuple[int, ...]) -> bool:
    """Return whether frames (N, 2H, 2W, ...) can be four tiles."""
    return all(size % 2 == 0 and size >= MIN_SIDE for size in shape[1:3])


def _quarters(array: np.ndarray) -> List[np.ndarray]:
    """Return the four tiles of frames (N, 2H, 2W, ...), row by row, as views (N, H, W, ...)."""
    height, width = (size // 2 for size in array.shape[1:3])
    return [array[:, y : y + height, x : x + width] for y in (0, height) for x in (0, width)]


# --------------------------------------------------------------------------------------------------------- readings


def _likely(array: np.ndarray, readings: Sequence[Frames], stated: Stated, angles: Tuple[float, ...]) -> List[Frames]:
    """Return the only reading that the numbers allow.

    Raises:
        FrameError: There are none or several (cause `type`); the message names them with their options.
    """
    plausible: List[Tuple[Frames, int]] = []
    for row in readings:  # mosaics come first
        is_sure = any(evidence > 0 for _, evidence in plausible)
        plausible.append((row, _evidence(row, is_sure)))
    sure = [row for row, evidence in plausible if evidence > 0]
    named = [(row, evidence) for row, evidence in plausible if row.content == "angles"]
    mosaics = [row for row in sure if row.content == "mosaics" and len(row.array) == len(angles)]
    if angles and not sure and _are_polarizers(angles):  # if light contradicts all planes, `_in_order` says so
        sure = [row for row, evidence in named if evidence >= 0 or len(ANGLES) * len(row.array) == len(angles)]
    elif mosaics and _order_in(angles):
        sure = [*mosaics, *(row for row, evidence in named if evidence >= 0)]
    if len(sure) == 1:
        return sure
    if sure and {row.content for row in sure} == {"angles"}:  # the angles may be first or last
        sure.sort(key=_misfit)
        if 2 * _misfit(sure[0]) < _misfit(sure[1]):
            return sure[:1]
        first = [row for row in sure if row.layout not in FRAMES_LAST]
        if len(first) == 1:
            return first
    possible = sure or [row for row, evidence in plausible if evidence == 0]
    if len(possible) == 1:
        return possible
    if not possible:
        raise FrameError("type", _refusal(array, stated if stated.content == "auto" else NOTHING_STATED))
    listed = " or ".join(dict.fromkeys(f"{_described(row)} (--content {row.content})" for row in possible))
    if len({row.content for row in possible}) == 1:
        each = "mosaics as (N, H, W)" if possible[0].content == "mosaics" else "(4, H, W), or in color (4, H, W, 3)"
        raise FrameError(
            "type",
            f"{array.dtype} {array.shape} can be {listed} in several orders of its dimensions: save {each}",
        )
    raise FrameError("type", f"{array.dtype} {array.shape} can be {listed}: say which")


def _are_frames_last(array: np.ndarray) -> bool:
    """Return whether pixels alternate along the first axis, as in a mosaic, but not along the last one."""
    return _alternation(array, 0) > _ALTERNATING and _alternation(array, -1) < _STEADY


def _alternation(array: np.ndarray, axis: int) -> float:
    """Return how much more neighbors along an axis differ than every second: above 1 across the columns of a mosaic."""
    lines = np.moveaxis(array, axis, -1)
    rows, columns, _ = lines.shape
    part = _finite(lines[:: -(-rows // _SAMPLED) | 1, :: -(-columns // _SAMPLED) | 1, :_SAMPLED])
    near, far = (np.abs(part[..., step:] - part[..., :-step]).mean() + 1e-9 for step in (1, 2))
    return float(near / far)


def _evidence(frames: Frames, is_sure: bool) -> int:
    """Return whether the numbers of the first frame speak for a reading (1), against it (-1), or neither.

    `is_sure` says whether they speak for another reading.
    """
    first = frames.array[0]
    if frames.content == "stokes":
        return 1 if _are_stokes(first) and (first[..., 1:] < 0).any() else -1
    if frames.content == "mosaics":
        # a tenth of all scenes have little polarization, so smooth pixels say nothing against a mosaic; three smooth
        # images can be red, green and blue, or S0, S1 and S2
        is_rare = frames.layout == "hwn" or len(frames.array) == 3
        return 1 if has_lattice(first) else -1 if is_rare else 0
    if frames.content == "tiles":
        return _tile_evidence([tile[0] for tile in _quarters(frames.array)], is_sure)
    lights = [_compared(frame) for frame in (first, frames.array[-1])]
    if max(map(_disagreement, lights)) > _DIFFERENT:
        return -1
    is_usual = all(_perpendicular(light, _LIKELY) == _pairs_of(ANGLES) for light in lights)
    is_usual = is_usual and max(map(_imbalance, lights)) < _UNEQUAL
    return 1 if is_usual or (len(frames.array) == 1 and _perpendicular(lights[0], _CLEAR)) else 0


def _tile_evidence(tiles: Sequence[np.ndarray], is_sure: bool) -> int:
    """Return whether the quarters of a picture are images of one scene, as `_evidence` does.

    The picture breaks where they meet, and I0 + I90 = I45 + I135. Before a dark background it does not break there.
    """
    if _has_seams(tiles):
        light = _compared(tiles)
        if _disagreement(light) < _DIFFERENT / 2:
            return 1 if _perpendicular(light, _LIKELY) else 0
    return 0 if not is_sure and _are_alike(tiles) else -1


def _are_alike(images: Sequence[np.ndarray]) -> bool:
    """Return whether four images show the same scene, and more than the light of a lamp."""
    sizes = images[0].shape[:2]
    grid = np.broadcast_arrays(*np.ogrid[-1 : 1 : sizes[0] * 1j, -1 : 1 : sizes[1] * 1j])
    y, x = (_means(axis).ravel() for axis in grid)
    lamp = np.stack([np.ones_like(x), x, y, x * x, x * y, y * y], -1)
    values = np.stack([_means(image).mean(-1).ravel() for image in images], -1)
    details = values - lamp @ np.linalg.lstsq(lamp, values, rcond=None)[0]
    has_details = len(values) >= _MIN_SQUARES and (details.std(0) > _DETAIL * values.mean(0)).all()
    return bool(has_details and np.corrcoef(details.T).min() > _ALIKE)


def _blocks(image: np.ndarray) -> np.ndarray:
    """Return blocks of (H, W) or (H, W, C) from everywhere in an image as floats, (A, side, B, side, C)."""
    side = _BLOCK if min(image.shape[:2]) >= _BLOCK else _BLOCK // 2
    rows, columns = (size // side for size in image.shape[:2])
    split = image[: rows * side, : columns * side].reshape(rows, side, columns, side, -1)
    chosen = split[:: -(-rows // _BLOCKS), :, :: -(-columns // _BLOCKS)]
    return _finite(chosen)


def _finite(array: np.ndarray) -> np.ndarray:
    """Return an array as float64, with 0 for NaN and infinity."""
    return np.nan_to_num(array.astype(np.float64), copy=False, nan=0.0, posinf=0.0, neginf=0.0)


def _squares(image: np.ndarray) -> np.ndarray:
    """Return the squares in the `_blocks` of an image, (S, pixels, C)."""
    blocks = _blocks(image)
    rows, side, columns, _, channels = blocks.shape
    size = _SQUARE if side == _BLOCK else _SQUARE // 2
    split = blocks.reshape(rows, side // size, size, columns, side // size, size, channels)
    return split.transpose(0, 1, 3, 4, 2, 5, 6).reshape(-1, size * size, channels)


def _means(image: np.ndarray) -> np.ndarray:
    """Return the means of the `_squares` of an image, (S, C)."""
    return _squares(image).mean(1)


def _compared(images: Sequence[np.ndarray]) -> np.ndarray:
    """Return the means of squares in four images, (4, N), without those that hold a saturated pixel in any image.

    Saturated pixels break I0 + I90 = I45 + I135.
    """
    squares = np.stack([_squares(image) for image in images])
    usable = squares.max((0, 2, 3)) < 0.98 * _full_scale(float(squares.max()))
    return squares.mean(2)[:, usable].reshape(len(squares), -1)


def _full_scale(top: float) -> float:
    """Return the largest number if it can be that of saturated pixels, in any number of high or low bits; else inf."""
    if top == 1:
        return top
    number = int(top)
    number //= (number & -number) or 1  # without the low bits that are 0
    return top if number >= 255 and number & (number + 1) == 0 else np.inf


def _perpendicular(light: np.ndarray, factor: float) -> Optional[_Pairs]:
    """Find the pairs of planes whose sums are equal, as those of perpendicular polarizers; None if it is not clear."""
    rests = _differences(light)
    best, second = sorted(rests, key=rests.__getitem__)[:2]
    rounding = 0.5 if light.size and light.max() > 1 else 5e-4
    return best if rests[second] > factor * rests[best] + rounding else None


def _differences(light: np.ndarray) -> Dict[_Pairs, float]:
    """Return the mean difference between the sums of each two pairs of planes, by the means of squares (4, N).

    What different gains of the planes explain does not count.
    """
    if light.shape[1] < _MIN_SQUARES:
        return dict.fromkeys(_ORDERS, 0.0)
    a, b, c, d = light
    sums = {((0, 2), (1, 3)): a + c - b - d, ((0, 1), (2, 3)): a + b - c - d, ((0, 3), (1, 2)): a + d - b - c}
    total = light.sum(0) / 2
    gains = {pairs: float(row @ total / (total @ total or 1.0)) for pairs, row in sums.items()}
    return {
        pairs: float(np.abs(row - np.clip(gains[pairs], -_GAIN, _GAIN) * total).mean()) for pairs, row in sums.items()
    }


def _disagreement(light: np.ndarray) -> float:
    """Return the share of the light by which the sums of pairs of planes differ at least."""
    if not light.size:
        return 0.0
    rounding = 0.5 if light.max() > MAX_S0 else 0.0  # the numbers are integers
    return max(0.0, min(_differences(light).values()) - rounding) / (2 * float(np.abs(light).mean()) or 1.0)


def _imbalance(light: np.ndarray) -> float:
    """Return the share by which I0 + I90 and I45 + I135 differ in all of a frame, by the means of squares (4, N)."""
    i0, i45, i90, i135 = light
    total = light.sum(0) / 2
    return abs(float((i0 + i90 - i45 - i135) @ total / (total @ total or 1.0)))


def _are_pairs(light: np.ndarray) -> bool:
    """Return whether four planes are two pairs of like ones, as two images behind each of two polarizers are."""
    _, second, third = sorted(_differences(light).values())
    return third > max(_DETAIL * 2 * float(np.abs(light).mean()), _PAIRED * second)


def _misfit(frames: Frames) -> float:
    """Return the share of polarization by which I0 + I90 and I45 + I135 differ in the first frame."""
    rests = _differences(_compared(frames.array[0]))
    return rests[_pairs_of(ANGLES)] / (sum(rests.values()) or 1.0)


def _has_seams(tiles: Sequence[np.ndarray]) -> bool:
    """Return whether a picture breaks where its quarters meet, to the right or below.

    Squares of 2x2 pixels are compared, since neighboring pixels differ behind a color filter array too.
    """
    upper_left, upper_right, lower_left, _ = tiles
    for before, after in ((upper_left.swapaxes(0, 1), upper_right.swapaxes(0, 1)), (upper_left, lower_left)):
        length = before.shape[1] // 2 * 2
        lines = _finite(np.concatenate([before[-4:, :length], after[:4, :length]]))
        lines = lines.reshape(4, 2, length // 2, -1).mean((1, 3))
        near, across, far = np.median(np.abs(np.diff(lines, axis=0)), axis=1)
        if across > max(_SEAM / 2 * (near + far), _DETAIL * lines.mean()):
            return True
    return False


def _are_stokes(array: np.ndarray) -> bool:
    """Return whether (H, W, 3) are floats that can be S0, S1, S2 of light: DoLP hardly above 1."""
    if array.dtype.kind != "f":
        return False
    s0, s1, s2 = np.moveaxis(_blocks(array), -1, 0)
    return bool((np.hypot(s1, s2) <= 1.05 * s0 + 1e-6).mean() > 0.9)


def _check_stokes(array: np.ndarray) -> None:
    """Refuse (H, W, 3) that are not S0, S1, S2 as shares of full scale (cause `type`)."""
    if array.dtype.kind != "f":
        raise FrameError("type", f"Stokes vectors are floats, S1 and S2 below 0 too, got {array.dtype}")
    if not _are_stokes(array):
        raise FrameError(
            "type",
            "S1² + S2² is above S0², so the channels are not S0, S1, S2 of light, in this order, as floats; "
            "cv2.imwrite reverses their order in a TIFF file",
        )
    brightest = float(np.nanmax(array[..., 0]))
    if brightest > MAX_S0:
        raise FrameError(
            "type",
            f"S0 = I0 + I90 is at most 2 at full scale 1, got {brightest:.6g}: divide S0, S1 and S2 by full scale",
        )


def _are_polarizers(angles: Sequence[float]) -> bool:
    """Return whether angles are none but 0, 45, 90 and 135 degrees, turned by 180 or not."""
    return all(abs(angle - 45 * round(angle / 45)) <= _NEAR for angle in angles)


def _order_in(angles: Sequence[float]) -> Tuple[int, ...]:
    """Return the order of 0, 45, 90 and 135 in angles that repeat it; () for others."""
    nearest = [45 * round(angle / 45) % 180 for angle in angles]
    first = nearest[: len(ANGLES)]
    is_whole = sorted(first) == list(ANGLES) and nearest == first * (len(nearest) // len(ANGLES))
    return tuple(first) if is_whole and _are_polarizers(angles) else ()


def _check_tile(tile: Tuple[int, ...]) -> None:
    """Refuse a tile of another sensor than the usual one, row by row (cause `type`): it is known to `--sensor` only."""
    if tile and tile != _USUAL_TILE and abs(tile[0] - tile[3]) == 90:  # a tile has perpendicular diagonals
        text = "{} {} / {} {}".format(*tile)
        raise FrameError(
            "type", f"the file states the tile {text} of its sensor: say --content mosaics --sensor {quoted(text)}"
        )


def _stated_order(angles: Tuple[float, ...], frames: Frames, stated: Stated) -> Tuple[int, ...]:
    """Return the order of the planes of a frame that a file or the user states, or the usual one.

    Raises:
        FrameError: The file states other angles, or the user another order (cause `type`).
    """
    order, planes = _order_in(angles), len(ANGLES) * len(frames.array)
    is_mixed = len(angles) == planes > len(ANGLES) and not order and _are_polarizers(angles)
    if order and len(angles) in (len(ANGLES), planes) and stated.order in ((), order):
        return order
    if not angles or (stated.order and not order and not is_mixed):
        return stated.order or ANGLES
    option = "save" if is_mixed else "say which they are by --angle-order, or save"
    raise FrameError(
        "type",
        f"the file states the angles {quoted(list(angles))} of its {planes} planes, where 0, 45, 90 and 135 of a frame "
        f"must follow each other: {option} {_STACKED}; or say --content mosaics",
    )


def _in_order(frames: Frames, stated: Stated, angles: Tuple[float, ...]) -> Frames:
    """Sort planes by angle, in the order that is stated or the usual one, which the light must not contradict.

    Args:
        frames: Angle images.
        stated: What the user says of them.
        angles: Those that the file states; () for none.

    Raises:
        FrameError: I0 + I90 and I45 + I135 differ, and the user does not say that these are angle images, or in which
            order; or tiles have an order that their light does not show (cause `type`).
    """
    light, order = _compared(frames.array[0]), _stated_order(angles, frames, stated)
    is_guess = frames.content == "tiles" and not (stated.order or angles)
    pairs = _perpendicular(light, _LIKELY if is_guess else _CLEAR)
    text, option, listed = "", "", ",".join(map(str, order))
    if _disagreement(light) > _DIFFERENT:
        text = f"I0 + I90 and I45 + I135 differ by {_disagreement(light):.0%}, so these are not images of one scene"
        option = "" if stated.content != "auto" else ": --content angles if they are, or mosaics"
    elif pairs is not None and pairs != _pairs_of(order):
        text = f"in the order {listed} of angles, I0 + I90 differs from I45 + I135; {_ORDERS[pairs]} fits"
        option = ": say which by --angle-order"
    elif is_guess and pairs is None:
        text = f"the order of the tiles is not clear, {listed} row by row or another one"
        option = ": say which by --angle-order"
    places = [order.index(angle) for angle in ANGLES]
    if option and not stated.order:
        if len(frames.array) > 1 and stated.content == "angles":  # `--angle-order` would be wrong where these are mixed
            option = f" with --angle-order, unless the images of a frame do not follow each other: save {_STACKED}"
        raise FrameError("type", f"{text}{option}")
    if not text and _imbalance(light[places]) > _UNEQUAL:
        text = (
            f"I0 + I90 and I45 + I135 differ by {_imbalance(light[places]):.0%} in all of the frame: the angles "
            f"are not {listed}, or the numbers are not linear, as with a gamma"
        )
    if not text and len(frames.array) > 1 and _are_pairs(light):
        text = "in the first frame each plane is like another one: do the four images of a frame follow each other?"
    if text:
        frames = frames._replace(warnings=(*frames.warnings, FrameWarning("mosaic", text)))
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


def _refusal(array: np.ndarray, stated: Stated) -> str:
    """Explain why an array holds no frame."""
    got, content = f"got {array.dtype} {array.shape}", stated.content
    if stated.order and content == "auto":
        return f"four angle images or tiles are expected where an order of angles is stated (--angle-order), {got}"
    if content == "stokes":
        return f"Stokes vectors S0, S1, S2 must be (H, W, 3) or (N, H, W, 3), {got}"
    if array.ndim >= 3 and array.shape[-1] == 3 and content == "auto":
        return (
            f"a color picture is not a mosaic, {got}: save the mosaic as gray; four color pictures of a frame are read "
            "together ('scene_{000,045,090,135}.png'), Stokes vectors S0, S1, S2 by --content stokes"
        )
    if array.ndim == 3 and len(array) == 3 and content == "auto":
        return f"three smooth images can be colors or Stokes vectors, {got}: mosaics are read by --content mosaics"
    what = (
        "a mosaic (H, W), four angle images (4, H, W) or (H, W, 4), or a stack of them"
        if content == "auto"
        else content
    )
    return f"pixels must be {what}, each side at least {MIN_SIDE}; {got}"
