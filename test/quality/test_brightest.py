"""Brightest angles of superpixels: compiled and in NumPy, of every raw format, by a count of every pixel."""

from __future__ import annotations

from typing import Any, Tuple

import numpy as np
import pytest

from polar_pipeline.backends.cpu.library import KernelsError
from polar_pipeline.quality import brightest as module
from polar_pipeline.quality.brightest import ENOUGH, RANKS, exposure_region, measure_brightest
from polar_pipeline.sensor.frames import FORMATS, FrameError, PackedFrame, RawFrame, frame_from_buffer, pack
from polar_pipeline.sensor.mosaic import SENSORS

CHANCE = np.random.default_rng(9)


def peaks_of(mosaic: np.ndarray, region: Tuple[int, int, int, int], strides: Tuple[int, int] = (1, 1)) -> np.ndarray:
    """Brightest pixels of superpixels, one by one; rows and columns that count are even and odd by turns."""
    x, y, width, height = region
    places = [
        [2 * (stride * k + (k % 2 if stride > 1 else 0)) for k in range(size // 2)]
        for stride, size in zip(strides, (height, width))
    ]
    rows, columns = ([at for at in row if at + 2 <= size] for row, size in zip(places, (height, width)))
    return np.array([mosaic[y + row : y + row + 2, x + at : x + at + 2].max() for row in rows for at in columns])


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("name", ["8", "10", "12", "14", "16", "10p", "12p", "10Packed", "12Packed"])
@pytest.mark.parametrize("roi", [(0, 0, 0, 0), (6, 10, 32, 18), (7, 3, 0, 0)])
def test_every_format_is_counted_exactly(
    name: str, roi: Tuple[int, int, int, int], compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    fmt, (height, width) = FORMATS[name], (42, 64)
    mosaic = CHANCE.integers(0, 1 << fmt.bits, (height, width)).astype(np.uint16)
    mosaic[::8, ::6] = (1 << fmt.bits) - 1
    frame = frame_from_buffer(pack(mosaic, fmt), fmt, height, width)
    assert isinstance(frame, PackedFrame) is ("p" in name or "P" in name)
    if not compiled:
        monkeypatch.setattr(module, "load_kernels", lambda: (_ for _ in ()).throw(KernelsError("none")))
    x, y = roi[0] // 2 * 2, roi[1] // 2 * 2
    peaks = peaks_of(mosaic, (x, y, roi[2] or width - x, roi[3] or height - y))
    result = measure_brightest(frame, 90.0, roi)
    assert result.saturated == pytest.approx(np.mean(peaks == fmt.full_scale), abs=1e-12)
    unit = max(1, (1 << fmt.bits) >> 12)  # 12 bits are told apart
    expected = np.sort(peaks)[int(np.ceil(0.9 * len(peaks))) - 1]
    assert abs(result.level * fmt.full_scale - expected) <= unit
    assert result.levels is not None
    for rank, level in list(zip(RANKS, result.levels))[1:]:
        value = np.sort(peaks)[int(np.ceil(rank * len(peaks))) - 1]
        assert level == 1.0 if value == fmt.full_scale else abs(level * fmt.full_scale - value) <= unit


def test_bits_that_a_format_leaves_open_do_not_count() -> None:
    """GigE Vision's 10Packed uses two of four bits for the low bits of a pixel."""
    fmt, mosaic = FORMATS["10Packed"], CHANCE.integers(0, 1 << 10, (32, 32)).astype(np.uint16)
    data = np.frombuffer(pack(mosaic, fmt), np.uint8).copy()
    expected = measure_brightest(frame_from_buffer(data, fmt, 32, 32), 60.0)
    data[1::3] |= 0xCC
    assert measure_brightest(frame_from_buffer(data, fmt, 32, 32), 60.0)[:2] == expected[:2]


def test_a_number_stands_for_the_light_that_rounds_to_it() -> None:
    """Of 256 superpixels 64 are 2 and the others 3: half of all is a third of the way from 2.5 to 3.5."""
    mosaic = np.full((32, 32), 3, np.uint8)
    mosaic[:8] = 2
    assert measure_brightest(RawFrame(mosaic, 255), 50.0).level * 255 == pytest.approx(2.5 + 1 / 3)
    assert measure_brightest(RawFrame(mosaic, 255), 100.0).level * 255 == pytest.approx(3.5)
    assert measure_brightest(RawFrame(np.zeros((16, 16), np.uint8), 255), 50.0).level == 0.0


@pytest.mark.parametrize("full_scale", [255, 200])
def test_saturated_is_what_reaches_full_scale(full_scale: int) -> None:
    mosaic = np.full((32, 32), full_scale - 1, np.uint8)
    mosaic[5, 7], mosaic[4, 6], mosaic[9, 9] = full_scale, 255, 255
    result = measure_brightest(RawFrame(mosaic, full_scale), 50.0)
    assert result.saturated == 2 / 256, "two pixels are in one superpixel"
    assert result.level == pytest.approx((full_scale - 1) / full_scale, abs=0.5 / full_scale)


@pytest.mark.parametrize(
    ("shape", "strides"), [((2048, 2448), (8, 2)), ((1024, 1224), (4, 1)), ((1024, 640), (2, 1)), ((480, 540), (1, 1))]
)
def test_of_large_frames_a_sample_counts(shape: Tuple[int, int], strides: Tuple[int, int]) -> None:
    mosaic = CHANCE.integers(0, 256, shape).astype(np.uint8)
    peaks = peaks_of(mosaic, (0, 0, shape[1], shape[0]), strides)
    assert len(peaks) == pytest.approx(mosaic.size / 4 / strides[0] / strides[1], rel=0.02)
    assert len(peaks) >= min(ENOUGH, mosaic.size // 4)
    assert measure_brightest(RawFrame(mosaic, 255), 50.0).saturated == np.mean(peaks == 255)


@pytest.mark.parametrize("shape", [(2048, 2448), (1024, 1224), (1024, 640), (64, 64)])
def test_each_color_counts_by_its_share(shape: Tuple[int, int]) -> None:
    tile = np.array(SENSORS["IMX250MYR"].colors)
    for color, share in enumerate((0.25, 0.5, 0.25)):
        mosaic = np.tile(np.where(tile == color, 255, 20).astype(np.uint8), (shape[0] // 4, shape[1] // 4))
        assert measure_brightest(RawFrame(mosaic, 255)).saturated == pytest.approx(share, abs=0.01)


def test_memory_of_any_layout() -> None:
    mosaic = CHANCE.integers(0, 4096, (64, 96)).astype(np.uint16)
    wide = np.zeros((64, 200), np.uint16)
    wide[:, 3:99] = mosaic
    expected = measure_brightest(RawFrame(mosaic, 4095), 70.0)
    for view in (wide[:, 3:99], np.asfortranarray(mosaic), np.repeat(mosaic, 2, 1)[:, ::2]):
        result = measure_brightest(RawFrame(view, 4095), 70.0)
        assert result[:2] == expected[:2]


@pytest.mark.parametrize("roi", [(0, 0, 66, 0), (60, 0, 6, 0), (0, 40, 0, 0), (0, 0, 8, 8), (64, 0, 0, 0)])
def test_a_region_outside_is_refused(roi: Any) -> None:
    with pytest.raises(FrameError, match=r"camera.exposure_roi must lie within 64x48 pixels and have 16x16") as caught:
        exposure_region(roi, (48, 64))
    assert caught.value.cause == "exposure"
