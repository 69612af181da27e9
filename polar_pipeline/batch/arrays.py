"""The pipeline inside a Dask computation: one product of every frame of an array."""

from __future__ import annotations

from typing import Any, Dict, Mapping, Optional, Tuple

import dask.array as da
import numpy as np
from dask import delayed

from polar_pipeline.batch.pipelines import kept_pipeline
from polar_pipeline.options import Options, Value, make_options
from polar_pipeline.pipeline import Pipeline

#: Sides of the frame that shows what shape a product has.
_SMALL = 64


def map_frames(array: da.Array, product: str = "dolp", **options: Value) -> da.Array:
    """A product of every raw frame, computed when Dask computes it.

    A worker makes its pipeline once for each thread, and keeps it. With SSIM mode `temporal` every block is given the
    last frame of the one before it.

    Args:
        array: (N, H, W) uint8 or uint16, in blocks of frames; blocks that divide frames are joined.
        product: Name of the product.
        options: Arguments of `Pipeline`, but for its products; one thread by default, as Dask runs several.

    Returns:
        (N, h, w), (N, h, w, channels) or, for a number, (N,): the products stacked, in the blocks of `array`.

    Raises:
        ValueError: An option or the array is not allowed, or its sizes are unknown; mode `reference`, which needs a
            second stream of frames, is refused.
    """
    arguments: Dict[str, Any] = {"threads": 1, **options, "products": product}
    checked = make_options(**{name: value for name, value in arguments.items() if name != "threads"})
    if checked.products != (product,):
        raise ValueError(f"one product is computed, got {', '.join(checked.products)}")
    if checked.ssim_mode == "reference":
        raise ValueError("SSIM mode 'reference' needs a second stream of frames; use 'consistency' or 'temporal'")
    if array.ndim != 3 or array.dtype not in (np.uint8, np.uint16):
        raise ValueError(f"expected (N, H, W) uint8 or uint16, got {array.dtype} of {array.ndim} dimensions")
    if any(np.isnan(size) for size in array.shape):
        raise ValueError("the array's sizes must be known (compute_chunk_sizes)")
    array = array.rechunk({1: -1, 2: -1})
    tail, dtype = _form(arguments, checked, array)
    needs_previous = checked.ssim_mode == "temporal" and product in ("ssim", "ssim_map")
    blocks, last, found = array.to_delayed().ravel(), None, []
    for count, block in zip(array.chunks[0], blocks):
        computed = delayed(_block)(block, last, arguments, tail, dtype)
        found.append(da.from_delayed(computed, (count, *tail), dtype))
        last = delayed(_last)(block, last) if needs_previous else None
    return da.concatenate(found)


def _form(arguments: Mapping[str, Any], options: Options, array: da.Array) -> Tuple[Tuple[int, ...], np.dtype[Any]]:
    """Shape and type of the product of one frame."""
    name = options.products[0]
    plain = {"backend": "cpu", "precision": "fp32", "calibration": "", "scale": 1, "rotate": 0, "roi": (0, 0, 0, 0)}
    plain["rectify"] = ""
    with Pipeline(**{**arguments, **plain}) as pipeline:
        small = pipeline(np.zeros((_SMALL, _SMALL), array.dtype))[name]
    own = pipeline.output_size((_SMALL, _SMALL))
    if small.ndim < 2:
        return small.shape, small.dtype
    height, width = options.output_size(array.shape[1:])
    scale = small.shape[0] / own[0], small.shape[1] / own[1]  # 1, or less for a map of a lower resolution
    return (round(height * scale[0]), round(width * scale[1]), *small.shape[2:]), small.dtype


def _last(block: np.ndarray, before: Optional[np.ndarray]) -> Optional[np.ndarray]:
    """The last frame of a block; of the one before it where it has none."""
    return block[-1].copy() if len(block) else before


def _block(
    block: np.ndarray,
    before: Optional[np.ndarray],
    arguments: Dict[str, Any],
    tail: Tuple[int, ...],
    dtype: np.dtype[Any],
) -> np.ndarray:
    """The products of a block of frames; `before` is the frame before it, None for none."""
    pipeline = kept_pipeline(arguments)
    pipeline.reset()
    if before is not None:
        pipeline(before)
    found = np.empty((len(block), *tail), dtype)
    for place, frame in enumerate(block):
        found[place] = pipeline(np.ascontiguousarray(frame))[arguments["products"]]
    return found
