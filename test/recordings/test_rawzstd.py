"""Lossless compression of raw images: bit by bit what went in, in the documented format, and damage is refused."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from raw_zstd_decoder import expanded
from support import ROOT

from polar_pipeline import FrameError
from polar_pipeline.recordings.messages import ImageMessage
from polar_pipeline.recordings.rawzstd import SAMPLES, compress_raw, decompress_raw, is_raw_zstd
from polar_pipeline.sensor.encodings import get_format
from polar_pipeline.sensor.frames import pack

PACKED = ("Polarized10p", "PolarizeMono12p", "Mono10Packed", "PolarizeMono12Packed")
SPLIT = "PolarizedAngles_0d_45d_90d_135d"
ENCODINGS = ("mono8", "mono16", "bayer_rggb16", "Mono12", *PACKED)


def message(mosaic: np.ndarray, encoding: str, padding: int = 0, big_endian: bool = False) -> ImageMessage:
    """A mosaic as a camera would send it; padding is not 0, so that it shows if it is lost."""
    height, width = mosaic.shape
    rows = np.frombuffer(pack(mosaic, get_format(encoding), big_endian), np.uint8).reshape(height, -1)
    rows = np.pad(rows, ((0, 0), (0, padding)), constant_values=0xA5)
    return ImageMessage(7, "cam", height, width, encoding, big_endian, rows.shape[1], rows.reshape(-1))


def check(image: ImageMessage) -> bytes:
    """Compress and expand an image, also by the decoder of the tests; returns the compressed data."""
    data = compress_raw(image)
    again, oracle = decompress_raw(data), expanded(data)
    assert oracle is not None
    for name in ("height", "width", "encoding", "is_bigendian", "step"):
        assert getattr(again, name) == getattr(image, name)
        assert oracle.get(name, getattr(image, name)) == getattr(image, name)
    assert again.data.tobytes() == oracle["data"] == image.data.tobytes()
    return data


@given(
    encoding=st.sampled_from(ENCODINGS),
    size=st.tuples(st.integers(1, 40), st.integers(1, 40)),
    padding=st.integers(0, 9),
    big_endian=st.booleans(),
    rest=st.integers(-9, 9),
    seed=st.integers(0, 2**32 - 1),
    spread=st.sampled_from((1, 20, 1 << 16)),
)
def test_every_image_comes_back(
    encoding: str, size: Any, padding: int, big_endian: bool, rest: int, seed: int, spread: int
) -> None:
    rng = np.random.default_rng(seed)
    mosaic = rng.integers(0, min(spread, 1 << get_format(encoding).bits), size)
    image = message(mosaic, encoding, padding, big_endian)
    more = rng.integers(0, 256, max(0, rest), np.uint8)
    check(replace(image, data=np.concatenate([image.data, more])[: image.data.size + rest]))


@pytest.mark.parametrize(
    "image",
    [
        ImageMessage(7, "cam", 5, 4, "rgb8", False, 12, np.arange(60, dtype=np.uint8)),
        ImageMessage(7, "cam", 0, 0, "", False, 0, np.zeros(0, np.uint8)),
        ImageMessage(7, "cam", 2**32 - 1, 2**32 - 1, "mono8", True, 2**32 - 1, np.arange(9, dtype=np.uint8)),
        ImageMessage(7, "cam", 4, 4, "mono8", False, 0, np.arange(16, dtype=np.uint8)),
        ImageMessage(7, "cam", 4, 4, "Mono10Packed", False, 6, np.full(24, 0xFF, np.uint8)),
        ImageMessage(7, "cam", 4, 2, f"{SPLIT}_Mono12p", False, 12, np.arange(48, dtype=np.uint8)),
    ],
    ids=["color", "empty", "impossible", "step of 0", "bits that belong to no pixel", "four channels"],
)
def test_other_images_come_back(image: ImageMessage) -> None:
    check(image)


@pytest.mark.parametrize(("encoding", "share"), [("mono8", 0.5), ("mono16", 0.52), ("PolarizeMono12p", 0.68)])
def test_real_frames_shrink(encoding: str, share: float) -> None:
    """The shares are those measured, rounded up (benchmarks/raw_compression.py)."""
    raw = cv2.imread(str(ROOT / "frames" / "imx250mzr_camera.png"), cv2.IMREAD_UNCHANGED)[512:768]
    fine = np.random.default_rng(0).integers(0, 16, raw.shape)
    image = message(raw if encoding == "mono8" else raw.astype(np.uint16) * 16 + fine, encoding)
    data = check(image)
    assert len(data) < share * image.data.nbytes
    assert SAMPLES[data[5]] == {"mono8": "u1", "mono16": "<u2"}.get(encoding, "12p")


def test_the_distance_is_that_of_the_mosaic() -> None:
    """Rows of equal polarizers are 2 apart, and 4 with colors in between; of other images, neighbors are closest."""
    steps = np.random.default_rng(2).integers(-2, 3, (64, 64))
    for period in (1, 2, 4):
        levels = (
            128 + np.cumsum(steps.reshape(-1, period, 64), 0).reshape(64, 64) + 40 * (np.mgrid[:64, :64][0] % period)
        )
        assert check(message(levels, "mono8"))[6] == period


DATA = compress_raw(message(np.random.default_rng(1).integers(0, 256, (20, 30)), "mono8"))


@pytest.mark.parametrize(
    ("data", "cause", "text"),
    [
        (b"", "file", "0 bytes are not a polar_zstd image"),
        (DATA[:31], "file", "31 bytes are not a polar_zstd image"),
        (b"\x89PNG" + DATA[4:], "file", "are not a polar_zstd image"),
        (DATA[:4] + b"\2" + DATA[5:], "file", "a polar_zstd image of version 2; version 1 can be read"),
        (DATA[:5] + b"\x08" + DATA[6:], "file", "are of kind 0 to 7, got 8"),
        (DATA[:6] + b"\0" + DATA[7:], "file", "of u1 cannot have rows of 30 bytes, 0 apart"),
        (DATA[:5] + b"\5" + DATA[6:20] + b"\x1f" + DATA[21:], "file", "of 12p cannot have rows of 31 bytes"),
        (DATA[:24] + b"\xff\xff\xff\xff" + DATA[28:], "size", "an image of 4096 MB, the limit is 1 MB (--max-mb)"),
        (DATA[:24] + b"\1" + DATA[25:], "file", "needs 513 bytes, its zstd frame has 600"),
        (DATA[:28] + b"\xff\xff" + DATA[30:], "file", "is cut short in its encoding"),
        (DATA[:32] + b"\xff" + DATA[33:], "file", "the encoding of a polar_zstd image is not UTF-8"),
        (DATA[:-1], "file", "a polar_zstd image cannot be decompressed"),
        (DATA[:-1] + bytes([DATA[-1] ^ 1]), "file", "a polar_zstd image cannot be decompressed"),
        (DATA[:37], "file", "a polar_zstd image cannot be decompressed"),
    ],
)
def test_damage_is_refused(data: bytes, cause: str, text: str) -> None:
    with pytest.raises(FrameError, match=re.escape(text)) as caught:
        decompress_raw(data, 1 << 20)
    assert caught.value.cause == cause


def test_format_of_the_message() -> None:
    for text in ("mono8; polar_zstd", "polar_zstd", "a;b; polar_zstd level 1"):
        assert is_raw_zstd(text)
    for text in ("", "mono8; png compressed ", "polar_zstd; png", "mono8; polar_zstd2"):
        assert not is_raw_zstd(text)
