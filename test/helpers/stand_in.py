"""A camera without a library: features in memory, with the methods of `CameraDevice`."""

from __future__ import annotations

from typing import Any, Collection, Dict, List, Sequence, Tuple

from polar_pipeline.camera.aravis import CameraDevice, CameraError

#: Features of a camera that has all of them; a pair is a number's range.
FEATURES: Dict[str, Any] = {
    "DeviceVendorName": "LUCID Vision Labs",
    "DeviceModelName": "TRI050S-P",
    "WidthMax": 2448,
    "HeightMax": 2048,
    "Width": 2448,
    "Height": 2048,
    "OffsetX": 0,
    "OffsetY": 0,
    "PixelFormat": "Mono8",
    "ExposureTime": 5000.0,
    "ExposureAuto": "Off",
    "Gain": 0.0,
    "GainAuto": "Continuous",
    "AcquisitionFrameRate": 24.0,
    "AcquisitionFrameRateEnable": False,
    "PtpEnable": False,
    "PtpStatus": "Disabled",
}
BOUNDS = {
    "ExposureTime": (30.0, 1e6),
    "Gain": (0.0, 48.0),
    "GainRaw": (0.0, 480.0),
    "AcquisitionFrameRate": (1.0, 30.0),
}


class StandIn(CameraDevice):
    """A camera with features by name; `writes` are the names and values that were written."""

    def __init__(self, without: Collection[str] = (), formats: Sequence[str] = ("Mono8",), **features: Any) -> None:
        self.is_gige = True
        self.features = {name: value for name, value in {**FEATURES, **features}.items() if name not in without}
        self.formats = list(formats)
        self.steps = {"OffsetX": 1, "OffsetY": 1, "Width": 1, "Height": 1}
        self.writes: List[Tuple[str, Any]] = []
        self.sent = (9000, 0)
        self.source = ""
        self.units: Dict[str, str] = {}
        self.sources = ["Software", "Line1", "Line2"]

    def has(self, feature: str) -> bool:
        return feature in self.features

    def get(self, feature: str) -> str:
        if feature not in self.features:
            raise CameraError(f"the camera has no feature {feature!r}")
        value = self.features[feature]
        return str(value).lower() if isinstance(value, bool) else str(value)

    def set(self, feature: str, value: Any) -> None:
        self.get(feature)
        self.writes.append((feature, value))
        self.features[feature] = value

    def number(self, feature: str) -> float:
        return float(self.get(feature))

    def kind_and_unit(self, feature: str) -> Tuple[str, str]:
        return "integer" if isinstance(self.features[feature], int) else "float", self.units.get(feature, "")

    def is_on(self, feature: str) -> bool:
        return self.get(feature) == "true"

    def execute(self, feature: str) -> None:
        self.writes.append((feature, "execute"))

    def bounds(self, feature: str) -> Tuple[float, float]:
        return BOUNDS[feature]

    def increment(self, feature: str) -> int:
        return self.steps[feature]

    def choices(self, feature: str) -> List[str]:
        return {"PixelFormat": self.formats, "TriggerSource": self.sources}[feature]

    def serial(self) -> str:
        return "POL001"

    def is_controlled(self) -> bool:
        return True

    def set_trigger(self, source: str) -> None:
        self.source = source

    def set_packets(self, size: int, delay_ns: int) -> None:
        self.sent = (size or 9000, delay_ns)

    def packets(self) -> Tuple[int, int]:
        return self.sent
