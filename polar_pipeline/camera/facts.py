"""State of a camera that its frames depend on: model, sensor, region, mirrored readout, gain and exposure time.

Functions that read a `CameraDevice` raise `CameraError` if it does not answer.
"""

from __future__ import annotations

import math
import re
import sys
from dataclasses import asdict, dataclass, replace
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

from polar_pipeline._util.text import printable, quoted
from polar_pipeline._util.values import number, several, truth
from polar_pipeline.camera.aravis import CameraDevice, CameraError
from polar_pipeline.options.option import pixels
from polar_pipeline.recordings.rawpicture import CAMERA_METADATA as CAMERA_METADATA
from polar_pipeline.recordings.rawpicture import nonlinearity
from polar_pipeline.sensor.encodings import ENCODINGS
from polar_pipeline.sensor.mosaic import FULL_FRAME, LARGE_FRAME, sensor_of_model

#: Height of a frame -> sensor, for models that are known by their pixel formats only.
_HEIGHTS = {FULL_FRAME[0]: "IMX250", 2056: "IMX250", LARGE_FRAME[0]: "IMX253", 3008: "IMX253"}
#: Names of features that differ between versions of GenICam's naming convention; the first one that exists counts.
EXPOSURE, GAIN = ("ExposureTime", "ExposureTimeAbs"), ("Gain", "GainAbs", "GainRaw")
#: Units of a gain that is a factor, and makers whose gain is a factor although its description states no unit.
_FACTORS, _FACTOR_MAKERS = ("x", "\u00d7", "factor", "times"), r"(?i)\b(jai|baumer|ids|photonfocus|chromasens)\b"
RATE, RATE_ENABLE = (
    ("AcquisitionFrameRate", "AcquisitionFrameRateAbs"),
    ("AcquisitionFrameRateEnable", "AcquisitionFrameRateEnabled"),
)
#: Feature that starts frames in step with PTP, with its value (LUCID), and the frame rate then.
START_MODE, SCHEDULED_RATE = ("AcquisitionStartMode", "PTPSync"), ("PTPSyncFrameRate",)
PTP_ENABLE, PTP_STATUS = ("PtpEnable", "GevIEEE1588"), ("PtpStatus", "GevIEEE1588Status")
_PTP_LATCH = ("PtpDataSetLatch", "GevIEEE1588DataSetLatch")
#: Features of a gamma correction (switch, curve, exponent), JAI's choice of gamma or lookup table, and black level.
GAMMA_ENABLE, _GAMMA_CURVE = ("GammaEnable", "GammaEnabled"), ("GammaSelector", "GammaMode")
_GAMMA, _LUT_MODE, _BLACK_LEVEL = ("Gamma", "GammaParam"), ("LUTMode", "JAILUTMode"), ("BlackLevel", "BlackLevelRaw")
#: Exponent closest to the curve of sRGB.
_SRGB = 1 / 2.2
#: Features of the region, (x, y, width, height), and of what it may have: (width, height).
REGION = ("OffsetX", "OffsetY", "Width", "Height")
_WHOLE = (("WidthMax", "SensorWidth"), ("HeightMax", "SensorHeight"))
#: States of PTP in which the camera's clock is the network's.
PTP_LOCKED = ("Slave", "Master", "PassiveMaster", "Passive")


@dataclass(frozen=True)
class CameraFacts:
    """State of a camera that its frames depend on.

    Attributes:
        sensor: Name of the sensor; "" if the model is unknown and its pixel formats tell nothing.
        pixel_format: GenICam name of the pixel format.
        size: (width, height) of the frames.
        roi_offset: (x, y) of the region on the sensor, before any flip.
        flip: (ReverseX, ReverseY).
        gain_db: Gain in dB; None if the camera does not tell, or has a number without a unit.
        exposure_us: Exposure time in microseconds; 0 if the camera does not tell.
        temperature: Temperature in degrees Celsius; None if the camera does not tell.
        gamma: Exponent of the gamma correction; 1 if pixel values are linear.
        lut: Whether a lookup table changes the pixels.
        black_level: Black level in the camera's own unit; None if the camera does not tell.
    """

    vendor: str
    model: str
    serial: str
    sensor: str
    pixel_format: str
    size: Tuple[int, int]
    roi_offset: Tuple[int, int]
    flip: Tuple[bool, bool]
    gain_db: Optional[float] = None
    exposure_us: float = 0.0
    temperature: Optional[float] = None
    gamma: float = 1.0
    lut: bool = False
    black_level: Optional[float] = None

    @property
    def name(self) -> str:
        """The camera in a few words."""
        return printable(f"{self.model} {self.serial}", 100)

    def options(self) -> Dict[str, object]:
        """Return the options of a pipeline for the camera's frames, by name."""
        region: Dict[str, object] = {"roi_offset": self.roi_offset, "flip": self.flip}
        return {"sensor": self.sensor, **region} if self.sensor else region

    def picture_options(self) -> Dict[str, object]:
        """Return the options of pictures of its frames: these do not tell how many of 16 bits are used."""
        bits = ENCODINGS[self.pixel_format].bits
        # in 16 bits, cameras send numbers of fewer bits too
        return {**self.options(), **({"bit_depth": bits, "alignment": "lsb"} if bits < 16 else {})}

    def values(self) -> Dict[str, str]:
        """Return the state as texts by name, for diagnostics and recordings."""
        texts = {
            "camera": f"{self.vendor} {self.name}",
            "sensor": self.sensor or "unknown",
            "pixel format": self.pixel_format,
            "region": "{}x{} at {},{}".format(*self.size, *self.roi_offset),
            "flip": ", ".join(name for name, is_on in zip("xy", self.flip) if is_on) or "none",
            **self.exposure_values(),
            "gamma": f"{self.gamma:g}",
            "lookup table": "on" if self.lut else "off",
        }
        numbers = {"black level": self.black_level, "temperature [C]": self.temperature}
        return {**texts, **{name: f"{value:.1f}" for name, value in numbers.items() if value is not None}}

    @property
    def nonlinearity(self) -> str:
        """Why pixel values are not proportional to light, and the remedy; "" if they are."""
        return nonlinearity(self.gamma, self.lut)

    def rows(self) -> Dict[str, object]:
        """Return the state, with the bits of a pixel, in types of YAML and JSON; the inverse of `facts_of`."""
        rows = {key: list(row) if isinstance(row, tuple) else row for key, row in asdict(self).items()}
        return {**rows, "bit_depth": ENCODINGS[self.pixel_format].bits}

    def exposure_values(self) -> Dict[str, str]:
        """Return exposure time and gain as texts by name."""
        gain = "unknown" if self.gain_db is None else f"{self.gain_db:.2f}"
        return {"exposure [us]": f"{self.exposure_us:.1f}", "gain [dB]": gain}


def _finite(name: str, value: object) -> float:
    return number(name, value, -sys.float_info.max, sys.float_info.max)


#: Checks of the fields of `CameraFacts` in a file: of numbers, whatever a camera may state that is finite.
_CHECKS: Dict[str, Callable[[str, Any], Any]] = {
    **dict.fromkeys(("vendor", "model", "serial", "sensor", "pixel_format"), lambda _, value: str(value)),
    **dict.fromkeys(("size", "roi_offset"), several(pixels, 2, "two values")),
    "flip": several(truth, 2, "two values"),
    **dict.fromkeys(("exposure_us", "gamma"), _finite),
    **dict.fromkeys(
        ("gain_db", "temperature", "black_level"), lambda name, value: None if value is None else _finite(name, value)
    ),
    "lut": truth,
}


def facts_of(stated: object) -> CameraFacts:
    """Return the state of a camera from `CameraFacts.rows` of a file; raise ValueError if a value is not allowed."""
    names = [*CameraFacts.__dataclass_fields__, "bit_depth"]
    older = {"gamma": 1.0, "lut": False, "black_level": None}  # in files of earlier versions, which lack them
    rows: Dict[str, Any] = {**older, **stated} if isinstance(stated, dict) else {}
    if set(rows) != set(names):
        raise ValueError(f"it must have {', '.join(names)}")
    fmt = ENCODINGS.get(str(rows["pixel_format"]))
    if fmt is None or fmt.bits != rows["bit_depth"]:
        raise ValueError(f"pixel format {quoted(rows['pixel_format'])} has no {quoted(rows['bit_depth'])} bits")
    return CameraFacts(**{name: check(name, rows[name]) for name, check in _CHECKS.items()})


def first_of(device: CameraDevice, names: Tuple[str, ...]) -> str:
    """Return the first of some features that the camera has; "" if it has none."""
    return next((name for name in names if device.has(name)), "")


class Number(NamedTuple):
    """Feature that is a number; a gain `is_factor` if it is not in decibels."""

    name: str
    is_factor: bool = False

    def convert(self, value: float) -> float:
        """Convert a value of the feature to that of a parameter."""
        return 20 * math.log10(max(value, 1e-5)) if self.is_factor else value

    def invert(self, value: float) -> float:
        """Convert the value of a parameter to that of the feature; a factor has nine digits."""
        return float(f"{10 ** (value / 20):.9g}") if self.is_factor else value


def find_number(device: CameraDevice, names: Tuple[str, ...]) -> Optional[Number]:
    """Return the first of some numbers that the camera has; None if it has none, or a gain without a unit."""
    for name in filter(device.has, names):
        if names != GAIN:
            return Number(name)
        kind, unit = device.kind_and_unit(name)
        unit = unit.strip(" []().").lower()
        if unit in ("db", *_FACTORS):
            return Number(name, unit != "db")
        if not unit and kind == "float":
            return Number(name, re.search(_FACTOR_MAKERS, device.get("DeviceVendorName")) is not None)
    return None


def read_number(device: CameraDevice, names: Tuple[str, ...]) -> Optional[float]:
    """Return the first of some numbers that the camera has, a gain in decibels; None if none is readable and finite."""
    feature, value = find_number(device, names), math.nan
    if feature:
        with device.tolerating_refusal():
            value = feature.convert(device.number(feature.name))
    return value if math.isfinite(value) else None


def _read_tone(device: CameraDevice) -> Tuple[float, bool]:
    """Return the exponent of the camera's gamma correction, 1 if it is off, and whether a lookup table is on."""
    enable, curve, mode = (first_of(device, names) for names in (GAMMA_ENABLE, _GAMMA_CURVE, _LUT_MODE))
    choice = device.get(mode) if mode else "Gamma"
    lut = choice not in ("Off", "Gamma") or (device.has("LUTEnable") and device.is_on("LUTEnable"))
    if choice != "Gamma" or (enable and not device.is_on(enable)):
        return 1.0, lut
    if curve and device.get(curve).lower() == "srgb":
        return _SRGB, lut
    value = read_number(device, _GAMMA)
    return value if value is not None else _SRGB if enable or mode else 1.0, lut


def read_region(device: CameraDevice) -> Tuple[int, int, int, int]:
    """Return (x, y, width, height) of the camera's region in its picture."""
    x, y, width, height = (int(device.number(name)) for name in REGION)
    return x, y, width, height


def picture_size(device: CameraDevice) -> Tuple[int, int]:
    """Return the (width, height) that a region may have."""
    width, height = (int(device.number(first_of(device, names))) for names in _WHOLE)
    return width, height


def mosaic_formats(device: CameraDevice) -> List[str]:
    """List the camera's pixel formats that hold a mosaic."""
    return [name for name in device.choices("PixelFormat") if _is_mosaic(name)]


def _is_mosaic(pixel_format: str) -> bool:
    return pixel_format in ENCODINGS and ENCODINGS[pixel_format].channels == 1


def mixing_features(device: CameraDevice) -> List[str]:
    """List the features by which the camera mixes pixels of different polarizers."""
    names = ("BinningHorizontal", "BinningVertical", "DecimationHorizontal", "DecimationVertical")
    return [name for name in names if device.has(name) and device.number(name) != 1]


def read_facts(device: CameraDevice) -> CameraFacts:
    """Read the state of a camera; raise `CameraError` if it mixes pixels of several polarizers or sends no mosaic."""
    for name in mixing_features(device):
        raise CameraError(f"{name} is {device.get(name)}: it mixes polarizer angles; set it to 1")
    x, y, width, height = read_region(device)
    pixel_format = device.get("PixelFormat")
    if not _is_mosaic(pixel_format):
        raise CameraError(f"pixel format {pixel_format} is not a mosaic: set camera.pixel_format")
    flip = tuple(device.has(name) and device.is_on(name) for name in ("ReverseX", "ReverseY"))
    # the region is counted in the mirrored picture (GenICam SFNC, ReverseX)
    whole = picture_size(device)
    offset = (whole[0] - x - width if flip[0] else x, whole[1] - y - height if flip[1] else y)
    model, (gamma, lut) = device.get("DeviceModelName"), _read_tone(device)
    facts = CameraFacts(
        vendor=device.get("DeviceVendorName"),
        model=model,
        serial=device.serial(),
        sensor=sensor_of_model(model) or _sensor_of_formats(device, whole[1]),
        pixel_format=pixel_format,
        size=(width, height),
        roi_offset=offset,
        flip=(flip[0], flip[1]),
        gamma=gamma,
        lut=lut,
        black_level=read_number(device, _BLACK_LEVEL),
    )
    return read_changing(device, facts)


def read_changing(device: CameraDevice, facts: CameraFacts) -> CameraFacts:
    """Return the state of a camera with what it changes by itself read again: gain, exposure time and temperature."""
    return replace(
        facts,
        gain_db=read_number(device, GAIN),
        exposure_us=max(read_number(device, EXPOSURE) or 0.0, 0.0),
        temperature=read_number(device, ("DeviceTemperature",)),
    )


def read_ptp(device: CameraDevice) -> str:
    """Read the state of PTP, such as `Slave`; "" if the camera has none or it is off."""
    enable, status, latch = (first_of(device, names) for names in (PTP_ENABLE, PTP_STATUS, _PTP_LATCH))
    if not (enable and status) or not device.is_on(enable):
        return ""
    if latch:
        device.execute(latch)
    return device.get(status)


def _sensor_of_formats(device: CameraDevice, height: int) -> str:
    """Return the sensor of a camera with pixel formats of a polarizer mosaic, by its height; "" for other cameras."""
    formats = mosaic_formats(device)
    if not any("olarized" in name or "olarizeM" in name for name in formats) or height not in _HEIGHTS:
        return ""
    return f"{_HEIGHTS[height]}{'MYR' if any('Bayer' in name for name in formats) else 'MZR'}"


def is_format(name: str, setting: str) -> bool:
    """Return whether a camera's pixel format is the one of a parameter: that name, or `8` or `12p` for any mosaic."""
    return name == setting or re.fullmatch(rf"[A-Za-z]+{re.escape(setting)}", name) is not None


def choose_format(device: CameraDevice, setting: str) -> str:
    """Return the camera's pixel format for a format of a parameter: its own name, or `8` or `12p` for any mosaic.

    A camera may offer several names: a color camera's monochrome picture is not a mosaic and comes last, `12Packed`,
    `12` and `16` replace a missing `12p`, and the name of a polarizer mosaic comes before others.
    """
    names = mosaic_formats(device)
    if setting in names:
        return setting
    has_color = any("Bayer" in name for name in names)
    choices = [
        (has_color and not ("olariz" in name or "Bayer" in name), rank, "olariz" not in name, "Bayer" not in name, name)
        for rank, fitting in enumerate(("12p", "12Packed", "12", "16") if setting == "12p" else (setting,))
        for name in names
        if is_format(name, fitting)
    ]
    if not choices:
        raise CameraError(f"camera.pixel_format {quoted(setting)} is not among the camera's: {', '.join(names)}")
    return min(choices)[-1]
