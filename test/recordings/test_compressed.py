"""Compressed images as image_transport's plugins and other writers send them: read, warned about or refused.

Messages are serialized here; the truth is the mosaic that was compressed.
"""

from __future__ import annotations

import gzip
import logging
import struct
import zlib
from pathlib import Path
from typing import Any, List, Sequence

import cv2
import numpy as np
import pytest
import zstandard
from recorded_frames import serialized, write
from support import on_cpu

from polar_pipeline import cli
from polar_pipeline.recordings import messages
from polar_pipeline.recordings.compressed import decompress_image
from polar_pipeline.recordings.messages import COMPRESSED, ImageMessage
from polar_pipeline.recordings.rawzstd import compress_message
from polar_pipeline.recordings.source import open_source
from polar_pipeline.sensor.frames import FrameError

RAW8 = np.random.default_rng(1).integers(1, 256, (32, 40)).astype(np.uint8)
RAW16 = np.random.default_rng(2).integers(1, 4096, (32, 40)).astype(np.uint16)


def main(arguments: Sequence[str]) -> int:
    """The tool's exit code; it computes on the CPU."""
    return cli.main(on_cpu(arguments))


def compressed(text: str, data: bytes) -> bytes:
    """A `sensor_msgs/CompressedImage` in CDR."""
    cdr = b"\0\1\0\0" + struct.pack("<iI", 5, 7)
    for content in (b"cam\0", text.encode() + b"\0"):
        cdr += bytes(-len(cdr) % 4) + struct.pack("<I", len(content)) + content
    return cdr + bytes(-len(cdr) % 4) + struct.pack("<I", len(data)) + data


def encoded(pixels: np.ndarray, suffix: str) -> bytes:
    return bytes(cv2.imencode(suffix, pixels)[1])


def read(text: str, data: bytes, max_bytes: int = 1 << 20) -> ImageMessage:
    return decompress_image(compressed(text, data), max_bytes)


def refused(text: str, data: bytes, match: str, cause: str = "encoding", max_bytes: int = 1 << 20) -> None:
    with pytest.raises(FrameError, match=match) as caught:
        read(text, data, max_bytes)
    assert caught.value.cause == cause
    assert str(caught.value).startswith("a compressed image of format ")


def causes(image: ImageMessage) -> List[str]:
    return [row.cause for row in image.warnings]


# ------------------------------------------------------------------------------------------------- PNG, TIFF and JPEG


@pytest.mark.parametrize(
    ("text", "raw", "encoding", "full_scale"),
    [
        ("", RAW8, "mono8", 255),
        ("png", RAW8, "mono8", 255),
        ("PNG", RAW16, "mono16", 65535),
        ("image/png", RAW8, "mono8", 255),
        ("mono8; png compressed ", RAW8, "mono8", 255),
        ("Mono8;PNG  Compressed mono8", RAW8, "Mono8", 255),
        ("; png compressed ", RAW8, "mono8", 255),
        ("bayer_rggb8; png compressed ", RAW8, "bayer_rggb8", 255),
        ("bayer_rggb16 ; png compressed bayer_rggb16", RAW16, "bayer_rggb16", 65535),
        ("mono16; png compressed mono16", RAW16, "mono16", 65535),
        ("16UC1; png compressed", RAW16, "16UC1", 65535),
        ("PolarizeMono12; png", RAW16, "PolarizeMono12", 4095),
        ("mono16; tiff compressed ", RAW16, "mono16", 65535),
        ("Mono12", RAW16, "Mono12", 4095),
    ],
)
def test_pictures_have_the_encoding_that_is_stated(text: str, raw: np.ndarray, encoding: str, full_scale: int) -> None:
    image = read(text, encoded(raw, ".tiff" if "tiff" in text else ".png"))
    assert (image.encoding, image.stamp_ns, image.frame_id, causes(image)) == (encoding, 5_000_000_007, "cam", [])
    frame = messages.to_raw(image).unpack()
    assert frame.full_scale == full_scale
    np.testing.assert_array_equal(frame.mosaic, raw)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("bayer_rggb8; jpeg compressed mono8", "the mosaic was lost when bayer_rggb8 was converted to mono8"),
        ("bayer_rggb8;JPEG compressed  mono8", "the mosaic was lost"),
        ("Bayer_RGGB8; png compressed ", "encoding must be"),
        ("BayerRG8; jpg compressed mono8", "the mosaic was lost"),
        ("bayer_rggb16; jpeg compressed mono8", "the mosaic was lost"),
        ("bayer_grbg8; png compressed mono8", "the mosaic was lost"),
        ("bayer_rggb8; jpeg compressed bgr8", "mixed from several pixels"),
        ("mono8; jpeg compressed bgr8", "mixed from several pixels"),
        ("rgb8; jpeg compressed bgr8", "mixed from several pixels"),
        ("rgb8; jpeg compressed ", "mixed from several pixels"),
        ("bgr8", "mixed from several pixels"),
        ("; jpeg compressed bgr8", "mixed from several pixels"),
        ("yuv422; jpeg compressed ", "mixed from several pixels"),
        ("32FC1; tiff compressed ", "raw pixels are integers"),
        ("PolarizedDolp_Mono8; png compressed ", "an image that the camera computed"),
        ("PolarizedAngles_0d_45d_90d_135d_Mono8; png compressed ", "its pixels are mono8, and it states Polarized"),
        ("h264", "encoding must be"),
        ("foo; jpeg compressed mono8", "encoding must be"),
        ("mono16; png compressed ", "its pixels are mono8"),
        ("mono16; png compressed mono16", "its pixels are mono8"),
        ("Mono12p; png", "its pixels are mono8"),
        ("Stokes32F; png compressed ", "its pixels are mono8"),
        ("Stokes32F; jpeg compressed ", "its pixels are mono8"),
        ("Angles16; jpeg compressed mono8", "its pixels are mono8"),
    ],
)
def test_formats_that_are_refused(text: str, match: str) -> None:
    refused(text, encoded(RAW8, ".jpg" if "jp" in text else ".png"), match)


@pytest.mark.parametrize(
    "text",
    [
        "mono8; png compressed ",
        "8UC1; png compressed mono8",
        "mono16; png compressed mono8",
        "Mono12; png compressed Mono10",
        "mono8; png compressed mono16",
        "Mono12; png compressed mono16",
    ],
)
def test_pictures_of_other_bits_than_stated_are_refused(text: str) -> None:
    refused(text, encoded(RAW16, ".png"), "its pixels are mono16")


def test_pgm_of_other_numbers_than_stated_is_refused() -> None:
    data = b"P5 40 32 4095\n" + RAW16.astype(">u2").tobytes()
    assert read("Mono12; pgm", data).encoding == "Mono12"
    refused("Mono10; pgm", data, "its pixels are Mono12")


@pytest.mark.parametrize("bits", [8, 10, 12])
def test_names_in_16_leave_the_depth_to_the_picture(bits: int) -> None:
    """The chunk sBIT of a PNG of 16 bit, and maxval of a PGM."""
    raw = RAW16 >> (12 - bits)
    chunk = b"sBIT" + bytes([bits])
    png = encoded(raw, ".png")
    png = png[:33] + struct.pack(">I", 1) + chunk + struct.pack(">I", zlib.crc32(chunk)) + png[33:]
    pgm = b"P5 40 32 %d\n" % ((1 << bits) - 1) + (
        raw.astype(">u2").tobytes() if bits > 8 else raw.astype("u1").tobytes()
    )
    for text, data in (("mono16; png compressed ", png), ("bayer_rggb16; pgm", pgm), ("16UC1; compressedDepth", b"")):
        if bits == 8 and data is pgm:
            refused(text, data, "its pixels are mono8")  # bits were lost
            continue
        frame = messages.to_raw(read(text, data or bytes(12) + png)).unpack()
        assert frame.full_scale == (1 << bits) - 1
        np.testing.assert_array_equal(frame.mosaic, raw)


@pytest.mark.parametrize("width", [16, 32, 40, 64])
@pytest.mark.parametrize("shift", [0, 4])
def test_a_picture_under_a_packed_name_is_unpacked(width: int, shift: int) -> None:
    """At some widths, packed rows with padding would be as long."""
    raw = (np.resize(RAW16, (32, width)) << shift).astype(np.uint16)
    frame = messages.to_raw(read("Mono12p; png compressed ", encoded(raw, ".png"))).unpack()
    assert frame.full_scale == 0xFFF << shift
    np.testing.assert_array_equal(frame.mosaic, raw)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("jpeg", ["jpeg"]),
        ("", ["jpeg"]),
        ("mono8; jpeg compressed mono8", ["jpeg"]),
        ("bayer_rggb8; jpeg compressed ", ["jpeg"]),
        ("mono16; jpeg compressed mono8", ["jpeg", "encoding"]),
        ("16UC1; jpeg compressed ", ["jpeg", "encoding"]),
        ("Mono12; jpeg compressed mono8", ["jpeg", "encoding"]),
    ],
)
def test_jpeg_and_lost_bits_are_warned_about(text: str, expected: List[str]) -> None:
    image = read(text, encoded(RAW8, ".jpg"))
    assert causes(image) == expected
    assert messages.to_raw(image).unpack().full_scale == 255
    assert causes(read("mono16; png compressed mono8", encoded(RAW8, ".png"))) == ["encoding"]


def test_commands_show_the_warnings_once(tmp_path: Path, capsys: Any) -> None:
    cdr = compressed("mono16; jpeg compressed mono8", encoded(np.full((32, 40), 99, np.uint8), ".jpg"))
    source = write(tmp_path / "in.mcap", [(k, cdr) for k in (1, 2, 3)], "/image/compressed", COMPRESSED)
    assert main(["replay", str(source), "-o", str(tmp_path / "out.mcap")]) == 0
    text = capsys.readouterr().err
    assert text.count("jpeg: JPEG destroys") == 1
    assert text.count("encoding: mono16 was converted to 8 bit") == 1
    assert main(["replay", str(source), "-o", str(tmp_path / "strict.mcap"), "--strict"]) == 1
    assert not (tmp_path / "strict.mcap").exists()


def test_messages_to_be_played_log_the_warnings(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rows = [(1, compressed("jpeg", encoded(RAW8, ".jpg"))), (2, compressed("Mono12", encoded(RAW16, ".png")))]
    with caplog.at_level(logging.WARNING), open_source(
        write(tmp_path / "in.mcap", rows, "/image/compressed", COMPRESSED)
    ) as source:
        played = [messages.decode_image(record.cdr()) for record in source.records]
    assert [row.encoding for row in played] == ["mono8", "Mono12"]
    assert [row.getMessage()[:5] for row in caplog.records] == ["jpeg:"]


# ------------------------------------------------------------------------------- other plugins, and this package's own


def deflated(raw: np.ndarray, encoding: bytes, body: bytes, is_bigendian: bool = False, step: int = 0) -> bytes:
    """The data of image_transport's `zstd` and `zlib`."""
    head = struct.pack("<IIBII", *raw.shape, is_bigendian, step or raw.shape[1] * raw.itemsize, len(encoding))
    return head + encoding + body


@pytest.mark.parametrize("pack", [gzip.compress, zlib.compress, zstandard.ZstdCompressor().compress])
@pytest.mark.parametrize("text", ["zstd", "zlib", "ZSTD"])
@pytest.mark.parametrize("is_bigendian", [False, True])
def test_deflated_images_have_all_their_fields(pack: Any, text: str, is_bigendian: bool) -> None:
    body = pack(RAW16.astype(">u2" if is_bigendian else "<u2").tobytes())
    image = read(text, deflated(RAW16, b"Mono12", body, is_bigendian))
    assert (image.encoding, image.is_bigendian, image.step, image.frame_id) == ("Mono12", is_bigendian, 80, "cam")
    frame = messages.to_raw(image).unpack()
    assert frame.full_scale == 4095
    np.testing.assert_array_equal(frame.mosaic, RAW16)
    padded = np.pad(RAW8, ((0, 0), (0, 24)))
    image = read(text, deflated(RAW8, b"bayer_rggb8", pack(padded.tobytes()), step=64))
    np.testing.assert_array_equal(messages.to_raw(image).unpack().mosaic, RAW8)


def test_deflated_images_that_are_refused() -> None:
    body = gzip.compress(RAW8.tobytes())
    good = deflated(RAW8, b"mono8", body)
    for data in (
        b"",
        good[:16],
        good[:22] + b"nonsense",
        deflated(RAW8, b"\xff", body),
        good[:22] + b"\x28\xb5\x2f\xfd" + b"\xff" * 20,
    ):
        refused("zstd", data, "cannot be decompressed", "file")
    refused("zstd", good, "an image of .* the limit", "size", max_bytes=RAW8.size - 1)
    for body, cause in ((gzip.compress(bytes(64 << 20)), "step"), (gzip.compress(RAW8[1:].tobytes()), "truncated")):
        image = read("zstd", deflated(RAW8, b"mono8", body))
        assert image.data.size <= RAW8.size + 1  # of 64 MB only this much was inflated
        with pytest.raises(FrameError) as caught:
            messages.to_raw(image)
        assert caught.value.cause == cause
    with pytest.raises(FrameError, match="mixed from several pixels"):
        messages.to_raw(read("zstd", deflated(RAW8, b"rgb8", gzip.compress(bytes(3840)), step=120)))


def test_compressed_depth() -> None:
    data = struct.pack("<iff", 0, 0.0, 0.0) + encoded(RAW16, ".png")
    for text in ("16UC1; compressedDepth", "16UC1; compressedDepth png", "mono16;compresseddepth  PNG"):
        image = read(text, data)
        assert causes(image) == []
        np.testing.assert_array_equal(messages.to_raw(image).unpack().mosaic, RAW16)
    image = read("16UC1; compressedDepth png", data[:12] + encoded(np.where(RAW16 > 3000, 0, RAW16), ".png"))
    assert causes(image) == ["encoding"]
    assert "depth_max" in image.warnings[0].text
    refused("32FC1; compressedDepth png", data, "raw pixels are integers")
    refused("16UC1; compressedDepth rvl", data, "RVL is not read", "file")
    refused("16UC1; compressedDepth png", data[12:], "not a picture", "file")


def test_polar_zstd_must_have_the_encoding_that_its_format_states() -> None:
    message = messages.decode_compressed(compress_message(serialized(0, RAW8)))
    assert message.format == "mono8; polar_zstd"
    assert read("mono8; polar_zstd", message.data.tobytes()).encoding == "mono8"
    refused("Mono12; polar_zstd", message.data.tobytes(), "its pixels are 'mono8'")
