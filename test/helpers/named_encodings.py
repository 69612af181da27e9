"""The names of raw frames' encodings, written down from the makers' lists, and what their pixels are, one by one."""

from __future__ import annotations

from typing import Any, Dict, NamedTuple, Optional, Set

import numpy as np

from polar_pipeline.sensor.frames import MAX_PIXELS, MAX_SIDE, MIN_SIDE

#: Packing -> significant bits -> the names of mosaics, written down from the makers' lists.
_MOSAICS = {
    "u8": {
        8: """mono8 8UC1 bayer_rggb8 bayer_bggr8 bayer_gbrg8 bayer_grbg8 Mono8 BayerRG8 BayerBG8 BayerGB8 BayerGR8
        PolarizeMono8 Polarized8 BayerRGPolarized8 BaumerPolarized8 PolarizedMono8 PolarizedBayerBG8"""
    },
    "u16": {
        10: "Mono10 BayerRG10 BayerBG10 BayerGB10 BayerGR10 BaumerPolarized10",
        12: "Mono12 BayerRG12 BayerBG12 BayerGB12 BayerGR12 PolarizeMono12 BaumerPolarized12",
        14: "Mono14 BayerRG14 BayerBG14 BayerGB14 BayerGR14",
        16: """mono16 16UC1 bayer_rggb16 bayer_bggr16 bayer_gbrg16 bayer_grbg16 Mono16 BayerRG16 BayerBG16 BayerGB16
        BayerGR16 PolarizeMono16 Polarized16 BayerRGPolarized16 PolarizedMono16 PolarizedBayerBG16""",
    },
    "p": {
        10: "Mono10p BayerRG10p BayerBG10p BayerGB10p BayerGR10p Polarized10p BayerRGPolarized10p",
        12: """Mono12p BayerRG12p BayerBG12p BayerGB12p BayerGR12p PolarizeMono12p Polarized12p BayerRGPolarized12p
        BaumerPolarized12p PolarizedMono12p PolarizedBayerBG12p""",
    },
    "packed": {
        10: "Mono10Packed BayerRG10Packed BayerBG10Packed BayerGB10Packed BayerGR10Packed",
        12: """Mono12Packed BayerRG12Packed BayerBG12Packed BayerGB12Packed BayerGR12Packed PolarizeMono12Packed
        PolarizedMono12Packed PolarizedBayerBG12Packed""",
    },
}
#: The same of four angle images, by the colors of four neighboring pixels.
_SPLIT = {
    "": {
        "u8": {
            8: """PolarizedAngles_0d_45d_90d_135d_Mono8 polarized_angles_0d_45d_90d_135d_mono8 PolarizedQuadMono8""",
        },
        "u16": {
            16: """PolarizedAngles_0d_45d_90d_135d_Mono16 polarized_angles_0d_45d_90d_135d_mono16 PolarizedQuadMono16"""
        },
        "p": {12: "PolarizedAngles_0d_45d_90d_135d_Mono12p polarized_angles_0d_45d_90d_135d_mono12p"},
    },
    "RGGB": {
        "u8": {8: "PolarizedAngles_0d_45d_90d_135d_BayerRG8 polarized_angles_0d_45d_90d_135d_bayer_rg8"},
        "u16": {16: "PolarizedAngles_0d_45d_90d_135d_BayerRG16 polarized_angles_0d_45d_90d_135d_bayer_rg16"},
        "p": {12: "PolarizedAngles_0d_45d_90d_135d_BayerRG12p polarized_angles_0d_45d_90d_135d_bayer_rg12p"},
    },
    "BGGR": {"u8": {8: "PolarizedQuadBG8"}, "u16": {16: "PolarizedQuadBG16"}},
}


class Named(NamedTuple):
    """What an encoding means: bits and packing of a number, numbers a pixel, and the colors of angle images."""

    bits: int
    packing: str
    channels: int = 1
    bayer: str = ""


def _named(names: Dict[str, Dict[int, str]], *rest: Any) -> Dict[str, Named]:
    rows = ((packing, bits, text) for packing, row in names.items() for bits, text in row.items())
    return {name: Named(bits, packing, *rest) for packing, bits, text in rows for name in text.split()}


#: Every encoding of a raw frame.
ENCODINGS: Dict[str, Named] = {
    **_named(_MOSAICS),
    **{name: row for bayer, names in _SPLIT.items() for name, row in _named(names, 4, bayer).items()},
}


def row_bytes(encoding: str, width: int) -> int:
    """Bytes of a row without padding."""
    bits, packing, channels, _ = ENCODINGS[encoding]
    if packing == "packed":
        return -(-width // 2) * 3
    return -(-width * channels * {"u8": 8, "u16": 16, "p": bits}[packing] // 8)


def other_rows(width: int) -> Set[int]:
    """Bytes of rows of any known image: of pixels of so many bits, or of two in three bytes."""
    return {-(-width * bits // 8) for bits in (8, 10, 12, 14, 16, 24, 30, 32, 36, 48, 64, 96, 128)} | {
        -(-width // 2) * 3
    }


def is_step(step: int, row: int, width: int) -> bool:
    """Whether rows can be so many bytes apart: no padding, or up to a multiple of 2, 4, ... 256, and no other row."""
    is_rounded = any(
        step % multiple == 0 and row <= step < row + multiple for multiple in (2, 4, 8, 16, 32, 64, 128, 256)
    )
    return step == row or (is_rounded and step not in other_rows(width))


def unpacked(fields: Dict[str, Any], colors: str = "") -> Optional[np.ndarray]:
    """The pixels of an image as documented, one by one, for a sensor of these colors; None if there are none."""
    height, width, step = fields["height"], fields["width"], fields["step"]
    if fields["encoding"] not in ENCODINGS:
        return None
    bits, packing, channels, bayer = ENCODINGS[fields["encoding"]]
    side = 2 if channels == 4 else 1
    if min(height, width) * side < MIN_SIDE or max(height, width) * side > MAX_SIDE:
        return None
    if height * width * channels > MAX_PIXELS or bayer != (colors if channels == 4 else ""):
        return None
    data = np.frombuffer(fields["data"], np.uint8)
    row = row_bytes(fields["encoding"], width)
    is_long = channels == 1 and packing in ("p", "packed") and (step or len(data) / height) == 2 * width
    if is_long and not any(-(-row // size) * size == step for size in (2, 4, 8, 16, 32, 64, 128, 256)):
        packing, row = "u16", 2 * width  # a driver's unpacked form
    step = step or row
    if not is_step(step, row, width) or len(data) != step * height:
        return None
    numbers = _numbers(data.reshape(height, step)[:, :row], bits, packing, width * channels, fields["is_bigendian"])
    if channels == 1:
        return numbers
    mosaic = np.zeros((2 * height, 2 * width), int)
    i0, i45, i90, i135 = numbers.reshape(height, width, 4).transpose(2, 0, 1)
    mosaic[0::2, 0::2], mosaic[0::2, 1::2], mosaic[1::2, 0::2], mosaic[1::2, 1::2] = i90, i45, i135, i0
    return mosaic


def _numbers(rows: np.ndarray, bits: int, packing: str, count: int, is_bigendian: bool) -> np.ndarray:
    """The numbers in rows of bytes."""
    height = len(rows)
    if packing == "u8":
        return rows.astype(int)
    if packing == "u16":
        high, low = (0, 1) if is_bigendian else (1, 0)
        return rows[:, high::2].astype(int) * 256 + rows[:, low::2]
    if packing == "p":
        stream = np.unpackbits(rows, axis=1, bitorder="little")[:, : count * bits].reshape(height, count, bits)
        return stream @ (1 << np.arange(bits))
    triples = rows.reshape(height, -1, 3).astype(int)
    extra = bits - 8
    even = triples[..., 0] << extra | triples[..., 1] & ((1 << extra) - 1)
    odd = triples[..., 2] << extra | triples[..., 1] >> 4 & ((1 << extra) - 1)
    return np.stack([even, odd], -1).reshape(height, -1)[:, :count]
