"""Names of pixel formats: which raw frames an image message can hold, and which it cannot.

The table in `docs/encodings.md` is written from here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Dict, Tuple

from polar_pipeline._util.text import did_you_mean, quoted
from polar_pipeline.sensor.frames import FORMATS, FrameError, RawFormat


@dataclass(frozen=True)
class EncodingFamily:
    """Names of pixel formats that differ in their ending and in a Bayer pattern.

    Attributes:
        origin: Who defines them.
        name: Their common part; `{bayer}` and `{format}` stand for the rest.
        formats: What `{format}` can be, keys of `FORMATS`.
        bayer: What `{bayer}` can be.
        sensor: Kind of sensor that the names tell of: `mono`, `color`, or `any`. The mosaic is the option's anyway.
        channels: Numbers a pixel.
        states_colors: Whether the names tell whether the sensor has colors; if not, those of the option are taken.
    """

    origin: str
    name: str
    formats: Tuple[str, ...]
    bayer: Tuple[str, ...] = ("",)
    sensor: str = "any"
    channels: int = 1
    states_colors: bool = True

    def members(self) -> Dict[str, RawFormat]:
        """Return each name and its format."""
        patterns = {"BG": "BGGR", "RG": "RGGB"} if self.channels > 1 else {}
        return {
            self.name.format(bayer=bayer, format=key): replace(
                FORMATS[key],
                channels=self.channels,
                bayer=patterns.get(bayer.upper(), "") if self.states_colors else None,
            )
            for bayer in self.bayer
            for key in self.formats
        }


_BAYER = ("RG", "BG", "GB", "GR")
_ROS = ("8", "16")
_PFNC = ("8", "10", "12", "14", "16", "10p", "12p", "10Packed", "12Packed")
_FLIR = ("8", "10p", "12p", "16")
_TIS = ("8", "12p", "12Packed", "16")
_SPLIT = ("8", "12p", "16")
_FILES = ("8", "10", "12", "14", "16")
#: The names that are taken. `10Packed` and `12Packed` are GigE Vision's.
FAMILIES = (
    EncodingFamily("sensor_msgs", "mono{format}", _ROS),
    EncodingFamily("sensor_msgs", "{format}UC1", _ROS),
    EncodingFamily("sensor_msgs", "bayer_{bayer}{format}", _ROS, ("rggb", "bggr", "gbrg", "grbg")),
    EncodingFamily("PFNC", "Mono{format}", _PFNC),
    EncodingFamily("PFNC", "Bayer{bayer}{format}", _PFNC, _BAYER),
    EncodingFamily("LUCID", "PolarizeMono{format}", ("8", "12", "12p", "12Packed", "16"), sensor="mono"),
    EncodingFamily("FLIR", "Polarized{format}", _FLIR, sensor="mono"),
    EncodingFamily("FLIR", "Bayer{bayer}Polarized{format}", _FLIR, ("RG",), "color"),
    EncodingFamily("Baumer", "BaumerPolarized{format}", ("8", "10", "12", "12p"), sensor="mono"),
    EncodingFamily("The Imaging Source", "PolarizedMono{format}", _TIS, sensor="mono"),
    EncodingFamily("The Imaging Source", "PolarizedBayer{bayer}{format}", _TIS, ("BG",), "color"),
    EncodingFamily("LUCID", "PolarizedAngles_0d_45d_90d_135d_Mono{format}", _SPLIT, sensor="mono", channels=4),
    EncodingFamily("LUCID", "PolarizedAngles_0d_45d_90d_135d_Bayer{bayer}{format}", _SPLIT, ("RG",), "color", 4),
    EncodingFamily("arena_camera_ros2", "polarized_angles_0d_45d_90d_135d_mono{format}", _SPLIT, ("",), "mono", 4),
    EncodingFamily(
        "arena_camera_ros2", "polarized_angles_0d_45d_90d_135d_bayer_{bayer}{format}", _SPLIT, ("rg",), "color", 4
    ),
    EncodingFamily("The Imaging Source", "PolarizedQuadMono{format}", _ROS, sensor="mono", channels=4),
    EncodingFamily("The Imaging Source", "PolarizedQuad{bayer}{format}", _ROS, ("BG",), "color", 4),
    EncodingFamily("polar_pipeline, of files", "Angles{format}", _FILES, channels=4, states_colors=False),
    EncodingFamily("polar_pipeline, of files", "AnglesRGB{format}", _FILES, channels=12, states_colors=False),
    EncodingFamily("polar_pipeline, of files", "Stokes{format}", ("32F",), channels=3, states_colors=False),
)
#: Every name that is taken, and how its pixels lie.
ENCODINGS: Dict[str, RawFormat] = {name: fmt for family in FAMILIES for name, fmt in family.members().items()}


@dataclass(frozen=True)
class RefusedFamily:
    """Known names that are refused.

    Attributes:
        names: Some of them, for the documentation.
        pattern: A regular expression of all.
        reason: Why, and what to choose instead.
    """

    names: str
    pattern: str
    reason: str


_COMPUTED = "an image that the camera computed, the raw pixels are lost: choose a format of raw pixels"
#: The known names that are refused. What is in none of the tables is unknown.
REFUSED = (
    RefusedFamily("", "", "the driver has no name for the camera's pixel format: choose one that it maps"),
    RefusedFamily(
        "PolarizedStokes_*, PolarizedDolp_*, PolarizedAolp_*, PolarizedDolpAolp_*, PolarizedDolpAngle_* (LUCID)",
        r"Polarized(Stokes|Dolp|Aolp|DolpAolp|DolpAngle)_\w+",
        _COMPUTED,
    ),
    RefusedFamily("PolarizedADIMono*, PolarizedADIRGB* (The Imaging Source)", r"PolarizedADI\w+", _COMPUTED),
    RefusedFamily(
        "Mono14p, BayerRG14p",
        r"(Mono|Bayer(RG|BG|GB|GR))14p",
        "pixels of 14 bit are read unpacked only: choose 12p, or 16 bit",
    ),
    RefusedFamily(
        "Mono10pmsb, Mono12pmsb (CoaXPress)",
        r"(Mono|Bayer(RG|BG|GB|GR))[0-9]+pmsb",
        "a packing that begins with the high bits cannot be read: let the frame grabber unpack to 16 bit",
    ),
    RefusedFamily(
        "rgb8, bgr8, rgba16, 8UC3, RGB8, BGRa8, yuv422, YUV422_8, YCbCr422_8",
        r"(?i)((rgb|bgr)a?[0-9]+\w*|(8|16)UC[2-4]|(yuv|uyvy|yuyv|ycbcr|nv)\w*)",
        "an image that the camera or the driver has mixed from several pixels, the mosaic is lost: choose a format of "
        "raw pixels",
    ),
    RefusedFamily(
        "32FC1, 16SC1, Mono8s", r"(8|16|32)SC[1-4]|(32|64)FC[1-4]|Mono8s", "raw pixels are integers from 0 on"
    ),
)


def get_format(encoding: str, bit_depth: int = 0, alignment: str = "lsb") -> RawFormat:
    """Return the raw format of a `sensor_msgs/Image` encoding or PFNC name.

    The encoding says only how pixels are packed, not which mosaic it is: a polarizer mosaic tagged `bayer_rggb8` is no
    Bayer image.

    Args:
        encoding: A name in `ENCODINGS`.
        bit_depth: The option `bit_depth`: significant bits of 16-bit pixels whose encoding states no fewer; 0 takes the
            encoding's own.
        alignment: The option `alignment`: where the significant bits of 16-bit pixels lie.

    Raises:
        FrameError: The encoding is unknown, refused, or states another number of bits (cause `encoding`).
    """
    known = ENCODINGS.get(encoding) if isinstance(encoding, str) else None
    if known is None:
        raise FrameError("encoding", _refusal(encoding))
    if 8 < known.bits < 16 and bit_depth not in (0, known.bits):
        raise FrameError(
            "encoding",
            f"encoding {encoding} states {known.bits} bits, raw.bit_depth (--bit-depth) is {bit_depth}: set it to 0, "
            "or correct the encoding in the driver or after --raw",
        )
    if known.packing != "u16":
        return known
    bits = bit_depth or known.bits
    return replace(known, bits=bits, shift=16 - bits if alignment == "msb" else 0)


def _refusal(encoding: object) -> str:
    text = (
        "encoding must be mono8, mono16, bayer_*8, bayer_*16, 8UC1, 16UC1 or a name of a camera's pixel format such as "
        f"PolarizeMono8, Polarized12p or BayerRG12Packed, got {quoted(encoding)}"
    )
    reasons = [row.reason for row in REFUSED if isinstance(encoding, str) and re.fullmatch(row.pattern, encoding)]
    return ": ".join((text, *reasons)) if reasons else text + did_you_mean(encoding, ENCODINGS)
