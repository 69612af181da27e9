"""The pipeline inside a Dask computation: one product of every frame of an array."""

from __future__ import annotations

from typing import Any, Dict

import dask.array as da
import numpy as np

from polar_pipeline.options import Value, make_options
from polar_pipeline.pipeline import Pipeline
from polar_pipeline.tools.batch.pipelines import kept_pipeline


def map_frames(array: da.Array, product: str = "dolp", **options: Value) -> da.Array:
    """Compute a product of every raw frame when Dask computes the array.

    A worker makes its pipeline once for each thread, and keeps it. With SSIM mode `temporal` every block is given the
    last frame of the one before it.

    Args:
        array: (N, H, W) uint8 or uint16, in blocks of frames; blocks that divide frames are joined, and empty ones
            left out.
        product: Name of the product.
        options: Arguments of `Pipeline` other than its products; one thread by default, as Dask runs several.

    Returns:
        (N, h, w), (N, h, w, channels) or, for a number, (N,): the products stacked, in the blocks of `array`.

    Raises:
        ValueError: An option or the array is not allowed, or its sizes are unknown; mode `reference` is refused, as it
            needs a second stream of frames.
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
    array = array.rechunk({0: tuple(filter(None, array.chunks[0])) or (0,), 1: -1, 2: -1})
    with Pipeline(**{**arguments, "backend": "cpu", "precision": "fp32"}) as pipeline:
        example = np.asarray(pipeline(np.zeros(array.shape[1:], array.dtype))[product])
    blocks = array
    if checked.ssim_mode == "temporal" and product in ("ssim", "ssim_map") and len(array):
        blocks = da.overlap.overlap(array, {0: (1, 0)}, {0: "none"})
    return da.map_blocks(
        _products,
        blocks,
        arguments,
        chunks=(array.chunks[0], *example.shape),
        drop_axis=[1, 2],
        new_axis=list(range(1, 1 + example.ndim)),
        meta=example[np.newaxis][:0],
    )


def _products(block: np.ndarray, arguments: Dict[str, Any], block_info: Any = None) -> np.ndarray:
    """Compute the products of a block of frames; a block may begin with the frame before its first one."""
    output = block_info[None]
    pipeline = kept_pipeline(arguments)
    pipeline.reset()
    products = np.empty(output["chunk-shape"], output["dtype"])
    before = len(block) - len(products)
    for place, frame in enumerate(block):
        product = pipeline(np.ascontiguousarray(frame))[arguments["products"]]
        if place >= before:
            products[place - before] = product
    return products
