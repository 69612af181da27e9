"""Products as what Rerun logs: numbers with a colour map and a fixed range, or colours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, Iterator, Tuple

import numpy as np

from polar_pipeline.colormaps import AOLP_MAP
from polar_pipeline.products import level_scale
from polar_pipeline.replay.picture import SIGMA_TOP, aolp_indices, picture
from polar_pipeline.topics import PRODUCT_TOPICS

#: The module `rerun`, and objects of it: images, layouts, recordings. It is an extra, and its versions differ.
RerunModule = Any
RerunObject = Any
#: Class of pixels without AoLP; the others are the indices of `AOLP_MAP`.
_NO_ANGLE = 256
#: The planes of a Stokes vector: end of the entity's path, and the range of values.
_STOKES = (("s0", (0.0, 2.0)), ("s1", (-1.0, 1.0)), ("s2", (-1.0, 1.0)))


@dataclass(frozen=True)
class ColorScale:
    """How numbers are shown.

    Attributes:
        colormap: Name of one of Rerun's.
        span: The values with the first and the last colour, in the unit of the float product.
    """

    colormap: str
    span: Tuple[float, float]


_GREY = ColorScale("Grayscale", (0.0, 1.0))
#: Products with one number a pixel -> how they are shown, if not as greys from 0 to 1.
_SCALES: Dict[str, ColorScale] = {
    "dolp": ColorScale("Viridis", (0.0, 1.0)),
    **{name: ColorScale("Viridis", (0.0, float(top))) for name, top in SIGMA_TOP.items()},
}


def span_of(name: str, dtype: np.dtype) -> Tuple[float, float]:
    """The values of a product's image with the first and the last colour, in the numbers that the image holds."""
    scale = level_scale(name, str(dtype))
    low, high = _SCALES.get(name, _GREY).span
    return low * scale, high * scale


def entities_of(name: str) -> Tuple[str, ...]:
    """Paths of the entities of an image: its topic, or one below it for each plane of a Stokes vector."""
    path = PRODUCT_TOPICS[name].name
    return tuple(f"{path}/{plane}" for plane, _ in _STOKES) if name == "stokes" else (path,)


def logged(rerun: RerunModule, name: str, array: np.ndarray) -> Iterator[Tuple[str, RerunObject]]:
    """The entities of an image of a product: path, and what is logged there.

    Numbers stay as they are, so that the viewer shows them. AoLP becomes classes, since Rerun's images of numbers take
    no map but its own. Colours of other types than 8 bit become 8 bit.

    Args:
        rerun: The module.
        name: Product.
        array: As `Pipeline` returns it, (h, w) or (h, w, 3).
    """
    path, *others = entities_of(name)
    if others:
        for plane, (channel, (_, span)) in zip((path, *others), enumerate(_STOKES)):
            yield plane, _numbers(rerun, array[..., channel], _GREY.colormap, span)
    elif array.ndim == 3:
        yield path, rerun.Image(array if array.dtype == np.uint8 else picture(name, array))
    elif name == "aolp":
        angles = array / level_scale(name, str(array.dtype))
        classes = np.where(np.isnan(angles), _NO_ANGLE, aolp_indices(np.nan_to_num(angles)))
        yield path, rerun.SegmentationImage(classes.astype(np.uint16))
    elif name not in _SCALES and array.dtype == np.uint8:
        yield path, rerun.Image(array, color_model="L")
    else:
        yield path, _numbers(rerun, array, _SCALES.get(name, _GREY).colormap, span_of(name, array.dtype))


def angle_colors(rerun: RerunModule) -> RerunObject:
    """Colors and labels of the classes of AoLP; what is logged once for all frames."""
    labels = [(k, f"{k * 180 / 256:.1f} deg", tuple(map(int, color))) for k, color in enumerate(AOLP_MAP)]
    return rerun.AnnotationContext([*labels, (_NO_ANGLE, "invalid", (0, 0, 0))])


def _numbers(rerun: RerunModule, array: np.ndarray, colormap: str, span: Tuple[float, float]) -> RerunObject:
    """An image of numbers, with a colour map from the first to the last value of a span."""
    return rerun.DepthImage(np.ascontiguousarray(array), meter=1.0, colormap=colormap, depth_range=list(span))
