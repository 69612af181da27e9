"""Features of polarization cameras of seven makers where they differ from the fake camera's, as their manuals state."""

from __future__ import annotations

from typing import Any, Dict, NamedTuple, Tuple

#: Numbers of pixel formats (PFNC).
FORMATS = {"Mono8": "01080001", "Mono10": "01100003", "Mono10Packed": "010C0004", "Mono12": "01100005"}
FORMATS.update({"Mono12Packed": "010C0006", "Mono12p": "010C0047", "Mono16": "01100007"})


class Vendor(NamedTuple):
    """A maker's camera.

    Attributes:
        model: Name of the model.
        sensor: Sensor of a model that the product knows; "" for other models.
        changes: Changed features.
        without: Features that the camera lacks.
        deep: Pixel format that `12p` selects.
        line: First input of the trigger.
        gain: Gain in dB with which the camera starts, None if it is not known in dB; and the value of the feature for
            6.0206 dB, a factor of 2.
        gamma: Exponent with which the camera starts.
    """

    model: str
    sensor: str
    changes: Dict[str, Dict[str, Any]]
    without: Tuple[str, ...]
    deep: str
    line: str
    gain: Tuple[Any, float] = (0.0, 6.0206)
    gamma: float = 1.0


def _formats(*names: str) -> Dict[str, Any]:
    return {"value": names[0], "entries": " ".join(f"{name} {FORMATS[name]}" for name in names)}


def _sources(*names: str) -> Dict[str, Any]:
    return {"value": names[0], "entries": " ".join(f"{name} {k}" for k, name in enumerate(names))}


def _vendor(name: str) -> Dict[str, Any]:
    return {"value": name}


_ON_OFF: Dict[str, Any] = {"kind": "bool", "value": False}
_NO_PTP = ("PtpEnable", "PtpStatus", "PtpDataSetLatch")

VENDORS = {
    "FLIR": Vendor(
        "Blackfly S BFS-PGE-51S5P-C",
        "IMX250MZR",
        {
            "DeviceVendorName": _vendor("FLIR"),
            "PixelFormat": _formats("Mono8", "Mono16", "Mono10Packed", "Mono12Packed", "Mono12p"),
            "Gain": {"unit": "dB", "high": 47.99, "scale": 1e4},
            "GammaEnable": {"kind": "bool", "value": True},  # the factory's setting
            "Gamma": {"value": 0.8, "low": 0.25, "high": 4.0},
            "LUTEnable": _ON_OFF,
            "TriggerSource": _sources("Software", "Line0", "Line3"),
        },
        (),
        "Mono12p",
        "Line0",
        gamma=0.8,
    ),
    "LUCID": Vendor("TRI050S-P", "IMX250MZR", {"Gain": {"unit": "dB", "scale": 1e4}}, (), "PolarizeMono12p", "Line0"),
    "Basler": Vendor(  # classic GigE: raw numbers
        "acA2440-20gp",
        "",
        {
            "DeviceVendorName": _vendor("Basler"),
            "PixelFormat": _formats("Mono8", "Mono12", "Mono12Packed"),
            "ExposureTime": {"name": "ExposureTimeAbs", "unit": "us"},
            "AcquisitionFrameRate": {"name": "AcquisitionFrameRateAbs"},
            "Gain": {"name": "GainRaw", "kind": "int", "value": 136, "low": 136, "high": 542},
            "BlackLevel": {"name": "BlackLevelRaw", "kind": "int", "value": 32, "high": 255},
            "GammaEnable": {"kind": "bool", "value": False},
            "GammaSelector": {"kind": "enum", "value": "sRGB", "entries": "User 1 sRGB 2"},
            "LUTEnable": _ON_OFF,
            "TriggerSource": _sources("Line1", "Software"),
            "PtpEnable": {"name": "GevIEEE1588"},
            "PtpStatus": {"name": "GevIEEE1588Status"},
            "PtpDataSetLatch": {"name": "GevIEEE1588DataSetLatch"},
        },
        (),
        "Mono12Packed",
        "Line1",
        (None, 0),
    ),
    "JAI": Vendor(
        "GO-5100MP-PGE",
        "IMX250MZR",
        {
            "DeviceVendorName": _vendor("JAI Corporation"),
            "PixelFormat": _formats("Mono8", "Mono10", "Mono10Packed", "Mono12", "Mono12Packed"),
            "Gain": {"value": 1.0, "low": 1.0, "high": 126.0, "scale": 1e4},  # a factor, without a unit
            "LUTMode": {"kind": "enum", "value": "Off", "entries": "Off 0 Gamma 1 LUT 2"},
            "Gamma": {"value": 0.45},
            "TriggerSource": _sources("Low", "High", "Software", "Line5", "Line6"),
        },
        (),
        "Mono12Packed",
        "Line5",
        (0.0, 2.0),
    ),
    "TIS": Vendor(
        "DZK 33GX250",
        "IMX250MZR",
        {
            "DeviceVendorName": _vendor("The Imaging Source Europe GmbH"),
            "PixelFormat": _formats("Mono8", "Mono16", "Mono12Packed"),
            "Gain": {"unit": "dB", "value": 3.0, "scale": 1e4},
            "Gamma": {"low": 0.25, "high": 4.0},
            "LUTEnable": _ON_OFF,
            "TriggerSource": _sources("Any", "Line1", "Software"),
        },
        _NO_PTP,
        "Mono12Packed",
        "Line1",
        (3.0, 6.0206),
    ),
    "Baumer": Vendor(
        "VCXG-50MP",
        "IMX250MZR",
        {
            "DeviceVendorName": _vendor("Baumer Optronic"),
            "PixelFormat": _formats("Mono8", "Mono10", "Mono12"),
            "Gain": {"value": 2.0, "low": 1.0, "high": 251.0, "scale": 1e4},
            "LUTEnable": _ON_OFF,
            "TriggerSource": _sources("All", "Line0", "Software", "Off"),
        },
        ("GainAuto", "ExposureAuto"),
        "Mono12",
        "Line0",
        (6.0206, 2.0),
    ),
    "Daheng": Vendor(
        "MER2-503-23GM-P POL",
        "",
        {
            "DeviceVendorName": _vendor("Daheng Imaging"),
            "PixelFormat": _formats("Mono8", "Mono16"),
            "Gain": {"unit": "dB", "high": 24.0, "scale": 1e4},
            "GammaEnable": _ON_OFF,
            "GammaMode": {"kind": "enum", "value": "sRGB", "entries": "sRGB 0 User 1"},
            "Gamma": {"name": "GammaParam"},
            "LUTEnable": _ON_OFF,
            "TriggerSource": _sources("Software", "Line0", "Line2", "Line3"),
        },
        (*_NO_PTP, "AcquisitionFrameRateEnable"),
        "Mono16",
        "Line0",
    ),
}
