"""`map_frames`: the pipeline inside a Dask computation, against `Pipeline` frame by frame."""

from __future__ import annotations

from typing import Any, Dict, Tuple

import numpy as np
import pytest

pytest.importorskip("distributed")
import dask
import dask.array as da

from polar_pipeline import Pipeline
from polar_pipeline.tools.batch.arrays import map_frames
from polar_pipeline.tools.batch.pipelines import kept_pipeline

COUNT, SHAPE = 7, (48, 64)


def raw_frames(dtype: str = "uint8") -> np.ndarray:
    return np.random.default_rng(0).integers(20, 200, (COUNT, *SHAPE)).astype(dtype)


@pytest.mark.parametrize(("scheduler", "dtype"), [("synchronous", "uint8"), ("threads", "uint16")])
@pytest.mark.parametrize(
    ("product", "options"),
    [
        ("dolp", {}),
        ("stokes", {"resolution": "full"}),
        ("aolp", {"dtype": "uint8"}),
        ("intensity", {"sensor": "IMX250MYR"}),
        ("ssim", {}),
        ("ssim", {"ssim_mode": "temporal"}),
        ("ssim_map", {"ssim_mode": "temporal", "ssim_stride": 3}),
    ],
)
def test_the_same_as_frame_by_frame(product: str, options: Dict[str, Any], scheduler: str, dtype: str) -> None:
    frames = raw_frames(dtype)
    lazy = map_frames(da.from_array(frames, chunks=((3, 1, 3), 24, 64)), product, backend="cpu", **options)
    with Pipeline(products=product, backend="cpu", threads=1, **options) as pipeline:
        expected = np.stack([pipeline(frame)[product] for frame in frames])
    assert (lazy.shape, lazy.dtype, lazy.chunks[0]) == (expected.shape, expected.dtype, (3, 1, 3))
    with dask.config.set(scheduler=scheduler):
        np.testing.assert_array_equal(lazy.compute(), expected)


@pytest.mark.parametrize(("count", "blocks"), [(7, (3, 0, 4)), (0, (0,))])
def test_blocks_without_frames(count: int, blocks: Tuple[int, ...]) -> None:
    options: Dict[str, Any] = {"ssim_mode": "temporal", "backend": "cpu"}
    frames = raw_frames()[:count]
    lazy = map_frames(da.from_array(frames, chunks=(blocks, *SHAPE)), "ssim", **options)
    with Pipeline(products="ssim", threads=1, **options) as pipeline:
        expected = [pipeline(frame)["ssim"] for frame in frames]
    np.testing.assert_array_equal(lazy.compute(scheduler="synchronous"), expected)


def test_a_pipeline_is_kept() -> None:
    arguments = {"products": "dolp", "backend": "cpu", "threads": 1}
    first = kept_pipeline(arguments)
    assert kept_pipeline(dict(arguments)) is first
    second = kept_pipeline({**arguments, "products": "aolp"})
    assert second is not first
    with pytest.raises(RuntimeError, match="closed"):
        first(raw_frames()[0])


@pytest.mark.parametrize(
    ("shape", "dtype", "options", "said"),
    [
        ((2, 48, 64), np.float32, {}, "uint8 or uint16"),
        ((48, 64), np.uint8, {}, "dimensions"),
        ((2, 48, 64), np.uint8, {"ssim_mode": "reference", "product": "ssim"}, "second stream"),
        ((2, 48, 64), np.uint8, {"product": "dolp,aolp"}, "one product"),
        ((2, 48, 64), np.uint8, {"product": "depth"}, "depth"),
    ],
)
def test_what_is_refused(shape: Tuple[int, ...], dtype: Any, options: Dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        map_frames(da.zeros(shape, dtype=dtype), backend="cpu", **options)


def test_unknown_sizes_are_refused() -> None:
    array = da.from_array(raw_frames(), chunks=(2, -1, -1))
    with pytest.raises(ValueError, match="compute_chunk_sizes"):
        map_frames(array[array.max(axis=(1, 2)) > 0], backend="cpu")
