"""The public API: what it accepts, what it refuses, what it says."""

from __future__ import annotations

from typing import Any, Dict

import numpy as np
import pytest

from polar_pipeline import PRODUCTS, FrameError, Pipeline, RawFrame

RAW = (np.arange(32 * 40).reshape(32, 40) % 251).astype(np.uint8)


def test_result_is_a_mapping_with_timings() -> None:
    out = Pipeline(products="aolp, dolp, ssim")(RAW)
    assert list(out) == ["dolp", "aolp", "ssim"]
    assert len(out) == 3
    assert out["ssim"].shape == ()
    assert list(out.timings) == ["prepare", "polarization", "ssim"]
    assert all(seconds >= 0 for seconds in out.timings.values())
    assert "dolp float32[16, 20]" in repr(out)


@pytest.mark.parametrize("resolution", ["half", "full"])
@pytest.mark.parametrize("sensor", ["IMX250MZR", "IMX250MYR"])
def test_shapes_and_types_follow_the_table(sensor: str, resolution: str) -> None:
    pipeline = Pipeline(sensor, tuple(PRODUCTS), resolution=resolution, dtype={"intensity": "uint8"})
    size = pipeline.output_size(RAW.shape)
    assert size == ((16, 20) if resolution == "half" else (32, 40))
    out = pipeline(RAW)
    for name, product in PRODUCTS.items():
        assert out[name].shape == product.shape(size, sensor == "IMX250MYR")
        assert out[name].dtype == ("uint8" if name in ("intensity", "preview") else "float32")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"sensor": "IMX999"}, "IMX250MZR, IMX250MYR or a tile.*IMX999"),
        ({"products": ("dop",)}, "among intensity.*'dop'"),
        ({"products": ()}, "got none"),
        ({"backend": "opencl"}, "auto, cpu, cuda.*'opencl'"),
        ({"resolution": "third"}, "half, full.*'third'"),
        ({"precision": "fp8"}, "auto, fp32, fp16.*'fp8'"),
        ({"precision": "fp16"}, "needs backend 'cuda'"),
        ({"dtype": "int8"}, "float32, uint8.*'int8'"),
        ({"dtype": {"dolp": "half"}}, "dtype of dolp.*'half'"),
        ({"dtype": {"dop": "uint8"}}, "'dop'"),
        ({"demosaic": "nearest"}, "auto, bilinear, gradient, adaptive.*'nearest'"),
        ({"ssim_mode": "psnr"}, "consistency, temporal, reference.*'psnr'"),
        ({"ssim_stride": 0}, r"\[1, 8\].*0"),
        ({"ssim_stride": 1.5}, "whole.*1.5"),
        ({"ssim_window": 17}, r"\[3, 15\].*17"),
        ({"ssim_window": 8}, "odd.*8"),
        ({"ssim_sigma": float("nan")}, r"\[0.5, 5.0\].*nan"),
        ({"min_intensity": 2.0}, r"\[0, 2\).*2.0"),
        ({"min_intensity": float("nan")}, "nan"),
        ({"bit_depth": 7}, "8 to 16.*7"),
        ({"alignment": "left"}, "lsb.*msb.*'left'"),
        ({"roi_offset": (-1, 0)}, ">= 0"),
        ({"roi_offset": (1, 2, 3)}, "pair"),
        ({"flip": (True,)}, "pair"),
        ({"threads": -1}, "threads.*-1"),
        ({"threads": 1.5}, "threads.*whole.*1.5"),
        ({"ssim_window": 12.5}, "ssim_window.*whole.*12.5"),
        ({"ssim_sigma": "2"}, "ssim_sigma.*number.*'2'"),
        ({"bit_depth": 12.5}, "bit_depth.*whole.*12.5"),
        ({"bit_depth": float("inf")}, "bit_depth.*whole.*inf"),
        ({"roi_offset": (0.5, 0)}, "roi_offset.*whole.*0.5"),
        ({"roi_offset": 4}, "roi_offset.*pair.*4"),
        ({"flip": True}, "flip.*pair.*True"),
        ({"flip": ("false", "true")}, "flip.*true or false.*'false'"),
        ({"co_sited": "false"}, "co_sited.*true or false.*'false'"),
    ],
)
def test_impossible_options_say_what_is_allowed(options: Dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Pipeline(**options)


def test_whole_numbers_may_come_as_floats() -> None:
    """As from JSON or NumPy; they mean what the integers mean."""
    counts = {"ssim_window": 7, "ssim_stride": 2, "bit_depth": 12}
    plain = Pipeline(products="ssim", roi_offset=(2, 3), flip=(True, False), **counts)
    floats: Dict[str, Any] = {name: float(value) for name, value in counts.items()}
    other = Pipeline(
        products="ssim", roi_offset=(2.0, np.float32(3)), flip=np.array([True, False]), threads=1.0, **floats
    )
    assert repr(other.options) == repr(plain.options)  # of the same types too
    assert float(other(RAW)["ssim"]) == float(plain(RAW)["ssim"])


@pytest.mark.parametrize(
    ("raw", "cause", "words"),
    [
        (RAW.astype(np.float32), "type", "uint8 or uint16.*float32"),
        ("frame", "type", "str"),
        (RAW[np.newaxis], "size", r"\(1, 32, 40\)"),
        (RAW[:8], "size", "16x16.*8, 40"),
        (RawFrame(RAW, 4095), "size", "full_scale.*255.*4095"),
    ],
)
def test_bad_frames_are_refused_and_the_next_good_one_works(raw: Any, cause: str, words: str) -> None:
    pipeline = Pipeline()
    with pytest.raises(FrameError, match=words) as caught:
        pipeline(raw)
    assert caught.value.cause == cause
    assert pipeline(RAW)["dolp"].shape == (16, 20)


def test_reference_images_are_checked() -> None:
    good = np.zeros((16, 20), np.float32)
    with pytest.raises(ValueError, match="takes no reference"):
        Pipeline()(RAW, reference=good)
    pipeline = Pipeline(products=("ssim",), ssim_mode="reference")
    with pytest.raises(ValueError, match="needs a reference"):
        pipeline(RAW)
    with pytest.raises(ValueError, match=r"\(16, 20\).*\(16, 19\)"):
        pipeline(RAW, reference=good[:, 1:])


def test_frames_of_many_sizes_and_depths_share_a_pipeline() -> None:
    pipeline = Pipeline(products=("intensity",), bit_depth=12)
    deep = RAW.astype(np.uint16) * 16
    small = pipeline(RAW)["intensity"]
    large = pipeline(np.tile(deep, (2, 2)))["intensity"]
    assert large.shape == (32, 40)
    # 16 v / 4095 against v / 255: the two full scales differ by 0.4 %.
    np.testing.assert_allclose(large[4:10, 4:10], small[4:10, 4:10], rtol=0.005)


def test_msb_aligned_equals_lsb_aligned() -> None:
    deep = RAW.astype(np.uint16) * 16
    low = Pipeline(products=("stokes",), bit_depth=12)(deep)["stokes"]
    high = Pipeline(products=("stokes",), bit_depth=12, alignment="msb")(deep << 4)["stokes"]
    # The same numbers times 16 over a full scale times 16: only float32 rounding differs.
    np.testing.assert_allclose(low, high, atol=1e-6)


def test_a_backend_that_cannot_work_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("polar_pipeline.pipeline.backend_problem", lambda _: "no GPU found")
    with pytest.raises(RuntimeError, match="'cuda' cannot work here: no GPU found"):
        Pipeline(backend="cuda")


def test_submit_and_result_are_a_call_in_two_steps() -> None:
    frames = [np.random.default_rng(k).integers(10, 240, (32, 48)).astype(np.uint8) for k in range(3)]
    products = ("dolp", "ssim")
    one = Pipeline(products=products, backend="cpu", ssim_mode="temporal")
    other = Pipeline(products=products, backend="cpu", ssim_mode="temporal")
    for frame in frames:
        want, got = one(frame), other.result(other.submit(frame))
        assert list(got) == list(want)
        assert set(got.timings) == set(want.timings)
        for name in products:
            np.testing.assert_array_equal(got[name], want[name])
    assert other.depth >= 1
    with pytest.raises(ValueError, match="takes no reference"):
        other.submit(frames[0], reference=np.zeros((16, 24), np.float32))
