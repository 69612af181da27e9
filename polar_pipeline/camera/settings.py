"""Parameters of a camera: their declaration, and how they are written to a camera and read back.

Functions that take a `CameraDevice` raise `CameraError` if it does not answer, or refuses a value.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from typing import Any, Callable, Dict, List, Sequence, Tuple

from polar_pipeline._util.text import quoted
from polar_pipeline._util.values import choice, matching, real, several
from polar_pipeline.camera.aravis import CameraDevice, CameraError
from polar_pipeline.camera.facts import (
    EXPOSURE,
    GAIN,
    GAMMA_ENABLE,
    PTP_ENABLE,
    RATE,
    RATE_ENABLE,
    REGION,
    SCHEDULED_RATE,
    START_MODE,
    choose_format,
    find_number,
    first_of,
    is_format,
    mixing_features,
    picture_size,
    read_number,
    read_region,
)
from polar_pipeline.options import declare
from polar_pipeline.options.option import declared, pixels
from polar_pipeline.sensor.frames import MIN_SIDE

#: Longest text of a parameter in characters, most entries of `features`, and values that need no quotes.
_MAX_TEXT, _MAX_FEATURES, _PLAIN = 4096, 100, r"-?\w[\w.+-]*"
#: An entry of `features`, with a value in JSON's quotes or without, or of the YAML maps of earlier versions.
_FEATURE = re.compile(r'\s*(\w+)\s*[=:]\s*("(?:[^"\\]|\\.)*"\s*|[^\s,"\'\[\]{}][^,\n"\'\[\]{}]*)(?:,|\n|$)')
#: Value of `gain_db` that keeps the camera's gain.
KEEP_GAIN = -100.0
#: Automatic exposures: none, that of the camera, and that of this package (`exposure.py`).
EXPOSURE_MODES = ("off", "camera", "polarization")


def parse_features(name: str, value: object) -> Dict[str, str]:
    """Parse a text such as `BlackLevel=10, GammaEnable=false` to texts by name of the feature, or raise ValueError."""
    text = value.strip() if isinstance(value, str) and len(value) <= _MAX_TEXT else "?"
    text = text[1:-1] if text[:1] + text[-1:] == "{}" else text
    rows = _FEATURE.findall(text)
    with suppress(ValueError):  # of json
        if not _FEATURE.sub("", text).strip() and len(rows) <= _MAX_FEATURES:
            return {row[0]: json.loads(row[1], strict=False) if row[1][0] == '"' else row[1].strip() for row in rows}
    raise ValueError(f"{name} must be features such as BlackLevel=10, GammaEnable=false, got {quoted(value)}")


def format_features(rows: Dict[str, str]) -> str:
    """Return features by name as the text that `parse_features` reads, and that YAML does not take for a map."""
    texts = (text if re.fullmatch(_PLAIN, text) else json.dumps(text) for text in rows.values())
    return ", ".join(map("=".join, zip(rows, texts))).replace(":", "\\u003a").replace("#", "\\u0023")


def _features(name: str, value: object) -> str:
    parse_features(name, value)
    return str(value)


_region = several(pixels, 4, "[x, y, width, height]")


def _exposure_mode(name: str, value: object) -> str:
    """Check the automatic exposure; true, as in earlier versions and by YAML's words, is that of the camera."""
    return choice(name, {False: "off", True: "camera"}[value] if isinstance(value, bool) else value, EXPOSURE_MODES)


def _hdr_ratio(name: str, value: object) -> float:
    ratio = real(name, value)
    if ratio != 1 and not 4 <= ratio <= 16:
        raise ValueError(f"{name} must be 1, or in [4, 16], got {quoted(value)}")
    return ratio


@dataclass(frozen=True)
class CameraSettings:
    """Values of the parameters of a camera."""

    source: str = declare(
        "",
        "Camera that the node reads itself: 'aravis' for the first polarization camera on the network, "
        "'aravis:SERIAL' or 'aravis:IP'; '' takes frames from the topic image_raw.",
        read_only=True,
        check=matching(r"|aravis|aravis:[\w.-]{1,100}", "'', aravis, aravis:SERIAL or aravis:IP"),
    )
    pixel_format: str = declare(
        "8",
        "Pixel format: '8' or '12p' for the camera's mosaic of 8 or 12 bits, or the camera's own name.",
        check=matching(r"\w{1,100}", "8, 12p or a pixel format of the camera"),
    )
    exposure_us: float = declare(
        0.0,
        "Exposure time; with camera.exposure_auto the one at the last change. 0 keeps the camera's.",
        limits=(0.0, 1e8),
        unit="us",
    )
    exposure_auto: str = declare(
        "off",
        "Automatic exposure. 'off': none; while camera.exposure_us is 0 at the start, the camera's own stays as it is. "
        "'camera': the camera's own. 'polarization': the node chooses exposure time and gain, keeps the brightest "
        "polarizer angles below saturation, and switches the camera's gamma off.",
        choices=EXPOSURE_MODES,
        check=_exposure_mode,
    )
    exposure_target: float = declare(
        0.85, "Level of the brightest angles that 'polarization' aims at, as a share of full scale.", limits=(0.1, 0.95)
    )
    exposure_percentile: float = declare(
        99.5,
        "Percentile of the superpixels' brightest angles that is brought to camera.exposure_target.",
        limits=(50.0, 100.0),
        unit="%",
    )
    exposure_max_us: float = declare(
        20000.0, "Longest exposure time of 'polarization', within a period of frames.", limits=(1.0, 1e8), unit="us"
    )
    gain_max_db: float = declare(
        18.0,
        "Highest gain of 'polarization'; gain is raised only when the exposure time is at its limit.",
        limits=(0.0, 96.0),
        unit="dB",
    )
    exposure_roi: Tuple[int, ...] = declare(
        (0, 0, 0, 0),
        "Region of the frame in which exposure is measured; zeros: all of it.",
        unit="pixels",
        check=_region,
    )
    flicker_hz: int = declare(
        0, "Mains frequency if lamps flicker: times become multiples of half a period.", choices=(0, 50, 60), unit="Hz"
    )
    hdr_ratio: float = declare(
        1.0,
        "Ratio of two exposures by turns, each pair of which is merged to one frame, 4 to 16; the longer one is "
        "camera.exposure_us. 1 takes frames of one exposure.",
        limits=(1.0, 16.0),
        check=_hdr_ratio,
    )
    gain_db: float = declare(
        KEEP_GAIN, "Gain; -100 keeps the camera's. 'polarization' chooses it.", limits=(KEEP_GAIN, 96.0), unit="dB"
    )
    frame_rate: float = declare(0.0, "Frames per second; 0 keeps the camera's.", limits=(0.0, 10000.0), unit="Hz")
    roi: Tuple[int, ...] = declare(
        (0, 0, 0, 0),
        "Region in the camera's picture, (x, y, width, height), rounded to even numbers; zeros keep the camera's.",
        unit="pixels",
        check=_region,
    )
    trigger: str = declare(
        "free",
        "Start of frames: 'free' at the frame rate, 'scheduled' at the frame rate in step with PTP, 'software' by the "
        "service ~/trigger, 'line' by the camera's first input, or the name of an input such as 'Line1'.",
        check=matching(r"\w{1,100}", "free, scheduled, software, line or an input of the camera"),
    )
    ptp: bool = declare(False, "Set the camera's clock by PTP (IEEE 1588), and stamp frames by it.")
    packet_size: int = declare(
        0,
        "Bytes of a packet of GigE Vision; 0 takes the largest that arrives.",
        limits=(0, 16384),
        unit="bytes",
    )
    packet_delay_ns: int = declare(
        0,
        "Time between two packets of GigE Vision, to share a link between cameras.",
        limits=(0, 10_000_000),
        unit="ns",
    )
    features: str = declare(
        "",
        "Other GenICam features, written last, such as 'BlackLevel=10, GammaEnable=false'.",
        check=_features,
    )
    stamp: str = declare(
        "middle",
        "Time of a frame: the 'middle' of its exposure or its 'start'.",
        choices=("middle", "start"),
    )
    info_file: str = declare(
        "",
        "Lens calibration (file of ROS's camera_calibration or OpenCV) that is published as camera_info; '' for none.",
        read_only=True,
    )


#: Fields by which the exposure of any camera's frames is judged.
JUDGING = ("exposure_target", "exposure_percentile", "exposure_roi")
#: Declarations by the name of the field.
CAMERA_OPTIONS = declared(CameraSettings, "camera.")


def _numbers(device: CameraDevice) -> Dict[str, Tuple[str, ...]]:
    """Return the fields that are numbers of a camera, and their features."""
    rate = SCHEDULED_RATE if _is_scheduled(device) else RATE
    return {"exposure_us": EXPOSURE, "gain_db": GAIN, "frame_rate": rate}


def _is_scheduled(device: CameraDevice) -> bool:
    """Return whether the camera starts its frames in step with PTP."""
    return device.has(START_MODE[0]) and device.get(START_MODE[0]) == START_MODE[1]


def _write_number(device: CameraDevice, names: Tuple[str, ...], field: str, value: float) -> None:
    """Write a number; an error names the parameter if the camera has no such feature, or another range."""
    feature = find_number(device, names)
    if feature is None:
        raise CameraError(f"camera.{field} cannot be set: the camera has no {names[0]} in {CAMERA_OPTIONS[field].unit}")
    low, high = map(feature.convert, device.bounds(feature.name))
    if low <= high and not low <= value <= high:  # a camera whose limits are nonsense checks by itself
        raise CameraError(f"camera.{field} of this camera must be in [{low:g}, {high:g}], got {value:g}")
    device.set(feature.name, feature.invert(value))


def _write_start(device: CameraDevice, new: CameraSettings) -> None:
    """Write the exposure time that an automatic exposure begins with."""
    if new.exposure_us and new.exposure_auto != "off":
        if device.has("ExposureAuto"):
            device.set("ExposureAuto", "Off")  # the time can be written only then
        _write_number(device, EXPOSURE, "exposure_us", new.exposure_us)


def _write_exposure(device: CameraDevice, new: CameraSettings) -> None:
    """Write the automatic exposure or the time; of two by turns both, so that both are checked, the longer one last."""
    mode, has_auto = new.exposure_auto, device.has("ExposureAuto")
    if mode == "camera" and not has_auto:
        raise CameraError("camera.exposure_auto cannot be 'camera': the camera has no ExposureAuto")
    if has_auto and (mode != "off" or new.exposure_us or new.hdr_ratio > 1):
        device.set("ExposureAuto", "Continuous" if mode == "camera" else "Off")
    if mode == "polarization":
        if find_number(device, EXPOSURE) is None:
            raise CameraError(f"camera.exposure_auto cannot be 'polarization': the camera has no {EXPOSURE[0]}")
        enable = first_of(device, GAMMA_ENABLE)
        if enable:
            device.set(enable, False)
    if new.hdr_ratio > 1:
        if mode != "off":
            raise CameraError(f"camera.hdr_ratio needs camera.exposure_auto off, got {mode}")
        longer = new.exposure_us or read_number(device, EXPOSURE) or 0.0
        for exposure_us in (longer / new.hdr_ratio, longer):
            _write_number(device, EXPOSURE, "exposure_us", exposure_us)
    elif mode == "off" and new.exposure_us:
        _write_number(device, EXPOSURE, "exposure_us", new.exposure_us)


def _write_gain(device: CameraDevice, new: CameraSettings) -> None:
    if device.has("GainAuto"):
        device.set("GainAuto", "Off")
    if new.gain_db != KEEP_GAIN:
        _write_number(device, GAIN, "gain_db", new.gain_db)


def _write_rate(device: CameraDevice, new: CameraSettings) -> None:
    if new.frame_rate and new.trigger == "scheduled":
        _write_number(device, SCHEDULED_RATE, "frame_rate", new.frame_rate)
    if not new.frame_rate or new.trigger != "free":
        return
    enable = first_of(device, RATE_ENABLE)
    if enable:
        device.set(enable, True)
    _write_number(device, RATE, "frame_rate", new.frame_rate)


def _write_region(device: CameraDevice, new: CameraSettings) -> None:
    if not any(new.roi):
        return
    for name in mixing_features(device):  # another program may have left it so: the region is one of single pixels
        device.set(name, 1)
    if new.roi == read_region(device):  # an odd region of the camera's own stays
        return
    x, y, width, height = snapped(new.roi, picture_size(device), [device.increment(name) for name in REGION])
    for name, value in (("OffsetX", 0), ("OffsetY", 0), ("Width", width), ("Height", height)):
        device.set(name, value)
    device.set("OffsetX", x)
    device.set("OffsetY", y)


def _write_trigger(device: CameraDevice, new: CameraSettings) -> None:
    source = {"free": "", "scheduled": "", "software": "Software"}.get(new.trigger)
    if source is None:
        sources = device.choices("TriggerSource") if device.has("TriggerSource") else []
        source = next((name for name in sources if name == new.trigger or name[:4].lower() == new.trigger), None)
    if source is None:
        raise CameraError(f"camera.trigger {quoted(new.trigger)} is not among the camera's: {', '.join(sources)}")
    device.set_trigger(source)
    if device.has(START_MODE[0]):
        device.set(START_MODE[0], START_MODE[1] if new.trigger == "scheduled" else "Normal")
    elif new.trigger == "scheduled":
        raise CameraError(f"camera.trigger cannot be scheduled: the camera has no {START_MODE[0]}; use an input")


def _write_ptp(device: CameraDevice, new: CameraSettings) -> None:
    enable = first_of(device, PTP_ENABLE)
    if enable:
        device.set(enable, new.ptp)
    elif new.ptp:
        raise CameraError("camera.ptp cannot be set: the camera has no PTP")


def _write_features(device: CameraDevice, new: CameraSettings) -> None:
    for feature, value in parse_features("camera.features", new.features).items():
        device.set(feature, value)


#: Fields that are written together, how, and whether no frames may come meanwhile; in the order of writing.
_WRITERS: Tuple[Tuple[Tuple[str, ...], Callable[[CameraDevice, CameraSettings], None], bool], ...] = (
    (("pixel_format",), lambda device, new: device.set("PixelFormat", choose_format(device, new.pixel_format)), True),
    (("roi",), _write_region, True),
    (("ptp",), _write_ptp, False),
    (("trigger",), _write_trigger, True),
    (("exposure_us",), _write_start, False),
    (("exposure_us", "exposure_auto", "hdr_ratio"), _write_exposure, False),
    (("gain_db",), _write_gain, False),
    (("frame_rate", "trigger"), _write_rate, False),
    (
        ("packet_size", "packet_delay_ns"),
        lambda device, new: device.set_packets(new.packet_size, new.packet_delay_ns),
        True,
    ),
    (("features",), _write_features, True),
)


def snapped(roi: Tuple[int, ...], picture: Tuple[int, int], steps: Sequence[int]) -> Tuple[int, int, int, int]:
    """Round a region to even numbers that are multiples of the camera's steps.

    Args:
        roi: (x, y, width, height); a width or height of 0 extends to the border.
        picture: (width, height) of the camera's picture.
        steps: The camera's steps of the four numbers.

    Raises:
        CameraError: The region lies outside of the picture, or is too small.
    """
    even = [step if step % 2 == 0 else 2 * step for step in steps]
    x, y = (value // step * step for value, step in zip(roi[:2], even[:2]))
    right, bottom = (start + size if size else whole for start, size, whole in zip(roi[:2], roi[2:], picture))
    width, height = ((end - start) // step * step for end, start, step in zip((right, bottom), (x, y), even[2:]))
    if right > picture[0] or bottom > picture[1] or min(width, height) < MIN_SIDE:
        raise CameraError(
            f"camera.roi must lie within {picture[0]}x{picture[1]} pixels and have {MIN_SIDE}x{MIN_SIDE} of "
            f"them, got {list(roi)}"
        )
    return x, y, width, height


def changed_fields(old: CameraSettings, new: CameraSettings) -> List[str]:
    """List the fields in which settings differ."""
    return [row.name for row in fields(CameraSettings) if getattr(old, row.name) != getattr(new, row.name)]


def stops_frames(changed: List[str]) -> bool:
    """Return whether no frames may come while these fields are written."""
    return any(stops and set(names) & set(changed) for names, _, stops in _WRITERS)


def write(device: CameraDevice, new: CameraSettings, changed: List[str]) -> None:
    """Write the changed fields of settings to a camera; fields before a refused one are written."""
    for field in {"camera": ("exposure_us",), "polarization": ("exposure_us", "gain_db")}.get(new.exposure_auto, ()):
        if field in changed and "exposure_auto" not in changed:
            raise CameraError(f"camera.{field} cannot be set while camera.exposure_auto is {new.exposure_auto}")
    for names, writer, _ in _WRITERS:
        if set(names) & set(changed):
            writer(device, new)


def undo(device: CameraDevice, old: CameraSettings, changed: List[str], features: Dict[str, str]) -> None:
    """Restore settings after some of the `changed` fields were written.

    `features` has the former values of the features that were to be written, by name.
    """
    for name, value in reversed(list(features.items())):  # a region can be written once its binning is as before
        if device.get(name) != value:
            device.set(name, value)
    others = ["pixel_format", "roi"] if features else []  # a feature such as binning may have changed them
    write(device, old, [*changed, *others, "exposure_us", "exposure_auto"])


def read_features(device: CameraDevice, settings: CameraSettings) -> Dict[str, str]:
    """Return the values of the features that settings name, as far as the camera has them and can read them."""
    values = {}
    for name in parse_features("camera.features", settings.features):
        with device.tolerating_refusal():
            values[name] = device.get(name)
    return values


def read_back(device: CameraDevice, settings: CameraSettings) -> CameraSettings:
    """Return settings with the values that the camera has."""
    numbers = {field: read_number(device, names) for field, names in _numbers(device).items()}
    actual: Dict[str, Any] = {field: value for field, value in numbers.items() if value is not None}
    if settings.hdr_ratio > 1 and settings.exposure_us:  # the camera may have the shorter one just now
        del actual["exposure_us"]
    if device.has("ExposureAuto"):
        is_camera = device.get("ExposureAuto") != "Off"
        actual["exposure_auto"] = "camera" if is_camera else settings.exposure_auto.replace("camera", "off")
    actual["roi"] = read_region(device)
    pixel_format = device.get("PixelFormat")
    if not is_format(pixel_format, settings.pixel_format):  # by `features`
        actual["pixel_format"] = pixel_format
    if device.has("TriggerMode"):
        untriggered = "scheduled" if _is_scheduled(device) else "free"
        source = device.get("TriggerSource") if device.get("TriggerMode") != "Off" else untriggered
        actual["trigger"] = "software" if source == "Software" else source
    enable = first_of(device, PTP_ENABLE)
    actual["ptp"] = bool(enable) and device.is_on(enable)
    if device.is_gige:
        actual["packet_size"], actual["packet_delay_ns"] = device.packets()
    features = read_features(device, settings)
    if features:
        actual["features"] = format_features(features)
    return replace(settings, **actual)


def ranges(device: CameraDevice, settings: CameraSettings) -> Dict[str, Tuple[float, float]]:
    """Return the lowest and highest value of each field that is a number of the camera, by the field's name.

    A range contains the value in `settings`, which may have been read while the camera had another range.
    """
    limits = {}
    for field, names in _numbers(device).items():
        feature = find_number(device, names)
        if feature:
            (low, high), value = map(feature.convert, device.bounds(feature.name)), getattr(settings, field)
            limits[field] = min(value, low), max(value, high)
    return limits
