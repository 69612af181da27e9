"""Products as entities of Rerun: numbers with a color map and a fixed range, or colors."""

from __future__ import annotations

from typing import Any, Iterator, Tuple

import numpy as np

from polar_pipeline.options.products import PRODUCTS, level_scale
from polar_pipeline.options.topics import PRODUCT_TOPICS
from polar_pipeline.polarimetry.colormaps import AOLP_MAP
from polar_pipeline.recordings.picture import aolp_indices, picture

#: The module `rerun`, and objects of it: images, layouts, recordings. It is an extra, and its versions differ.
RerunModule = Any
RerunObject = Any
#: Class of pixels without AoLP; the others are the indices of `AOLP_MAP`.
_NO_ANGLE = 256
#: Color map of a product -> Rerun's name of it.
_COLORMAPS = {"gray": "Grayscale", "viridis": "Viridis"}


def entities_of(name: str) -> Tuple[str, ...]:
    """Return the paths of the entities of an image: its topic, or one below it for each plane."""
    path = PRODUCT_TOPICS[name].name
    return tuple(f"{path}/{plane}" for plane, *_ in PRODUCTS[name].planes) or (path,)


def logged(rerun: RerunModule, name: str, array: np.ndarray) -> Iterator[Tuple[str, RerunObject]]:
    """Yield the entities of an image of a product: path, and logged object.

    Numbers stay as they are, so that the viewer shows them. AoLP becomes classes, since Rerun's images of numbers take
    no map but its own. Colors of other types than 8 bit become 8 bit.

    Args:
        rerun: The module.
        name: Product.
        array: As `Pipeline` returns it, (h, w) or (h, w, 3).
    """
    row, paths, scale = PRODUCTS[name], entities_of(name), level_scale(name, str(array.dtype))
    path, colormap = paths[0], _COLORMAPS.get(row.colors, "")
    if row.planes:
        for plane, channel, (_, *span) in zip(paths, range(len(paths)), row.planes):
            yield plane, _numbers(rerun, array[..., channel], colormap, (span[0], span[1]))
    elif array.ndim == 3:
        yield path, rerun.Image(array if array.dtype == np.uint8 else picture(name, array))
    elif row.wraps:
        angles = array / scale
        classes = np.where(np.isnan(angles), _NO_ANGLE, aolp_indices(np.nan_to_num(angles)))
        yield path, rerun.SegmentationImage(classes.astype(np.uint16))
    elif row.colors == "gray" and array.dtype == np.uint8:
        yield path, rerun.Image(array, color_model="L")
    else:
        low, high = row.viewed
        yield path, _numbers(rerun, array, colormap, (low * scale, high * scale))


def angle_colors(rerun: RerunModule) -> RerunObject:
    """Return colors and labels of the classes of AoLP, which are logged once for all frames."""
    labels = [(k, f"{k * 180 / 256:.1f} deg", tuple(map(int, color))) for k, color in enumerate(AOLP_MAP)]
    return rerun.AnnotationContext([*labels, (_NO_ANGLE, "invalid", (0, 0, 0))])


def _numbers(rerun: RerunModule, array: np.ndarray, colormap: str, span: Tuple[float, float]) -> RerunObject:
    """Return an image of numbers, with a color map from the first to the last value of a span."""
    return rerun.DepthImage(np.ascontiguousarray(array), meter=1.0, colormap=colormap, depth_range=list(span))
