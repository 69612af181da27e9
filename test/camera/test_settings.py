"""Parameters of a camera: their checks, and how they are written and read back."""

from __future__ import annotations

import math
import random
from dataclasses import fields, replace
from typing import Any, Tuple

import pytest
import yaml
from stand_in import BOUNDS, StandIn

from polar_pipeline.camera.aravis import CameraError
from polar_pipeline.camera.facts import read_facts
from polar_pipeline.camera.settings import (
    CAMERA_OPTIONS,
    KEEP_GAIN,
    CameraSettings,
    changed_fields,
    format_features,
    parse_features,
    ranges,
    read_back,
    snapped,
    stops_frames,
    write,
)
from polar_pipeline.live.parameters import check_parameter

ALL = [row.name for row in fields(CameraSettings)]


def written(device: StandIn, changed: Any = ALL, **values: Any) -> CameraSettings:
    """Write settings to a camera and read them back."""
    settings = CameraSettings(**values)
    write(device, settings, list(changed))
    return read_back(device, settings)


def test_features_are_texts_as_they_stand() -> None:
    expected = {
        "BlackLevel": "10",
        "GammaEnable": "false",
        "TriggerMode": "Off",
        "Mask": "0x10",
        "DeviceUserID": "a: b",
    }
    for text in (
        'BlackLevel=10, GammaEnable=false, TriggerMode=Off,Mask = 0x10, DeviceUserID="a: b"',
        'BlackLevel=10\nGammaEnable=false\nTriggerMode=Off\nMask=0x10\nDeviceUserID="a\\u003a b"\n',
        '{BlackLevel: 10, GammaEnable: false, TriggerMode: Off, Mask: 0x10, DeviceUserID: "a: b"}',  # earlier versions
        "BlackLevel: 10\nGammaEnable: false\nTriggerMode: Off\nMask: 0x10\nDeviceUserID: a: b\n",
    ):
        assert parse_features("f", text) == expected
    assert parse_features("f", "") == parse_features("f", "{}") == {}


@pytest.mark.parametrize(
    "value",
    [
        *("[]", "text", "null", "{A: [1]}", "{A: {B: 1}}", "{'A B': 1}", "{1.5: 1}", "{A", "A=", "A=1,,B=2", "A B=1"),
        *("!!python/name:os.system ''", "[" * 3000, "{? [A] : 1}", "\0", "&a {A: *a}", "A=" + 5000 * "1", 'A="', "=1"),
        *(", ".join(f"F{k}=1" for k in range(101)), 'A="\\x"', 'A="b" c', "A='b'", 5, True, ["A"], None),
    ],
)
def test_other_features_are_refused(value: object) -> None:
    with pytest.raises(
        ValueError, match=r"camera.features must be features such as BlackLevel=10, GammaEnable=false, got"
    ):
        CAMERA_OPTIONS["features"].check("camera.features", value)


@pytest.mark.parametrize("name", ["8", "12p", "Mono12Packed"])
def test_what_ros_makes_of_a_text_is_taken(name: str) -> None:
    """`ros2 param set` and `ros2 param load` read the texts of parameters as YAML."""
    parameter = "camera.pixel_format"
    assert check_parameter(parameter, yaml.safe_load(name)) == check_parameter(parameter, name) == name
    with pytest.raises(ValueError, match="must be 8, 12p or a pixel format of the camera, got True"):
        check_parameter(parameter, True)
    for text in ("a", "a: b", "#", "a #b", "- a", "x" * 300, "\u00e9\n:"):
        features = format_features({"BlackLevel": "8", "DeviceUserID": text})
        assert yaml.safe_load(features) == features
        assert check_parameter("camera.features", features) == features


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("source", "usb", "must be '', aravis, aravis:SERIAL or aravis:IP"),
        ("source", "aravis:", "must be"),
        ("source", "aravis:a b", "must be"),
        ("pixel_format", "", "must be 8, 12p or a pixel format"),
        ("pixel_format", 8.0, "must be"),
        ("trigger", "", "must be free, scheduled, software, line or an input of the camera"),
        ("trigger", "Line 1", "must be"),
        ("roi", [0, 0, 64], r"must be \[x, y, width, height\]"),
        ("roi", "0 0 64 64", "must be"),
        ("roi", [0, 0, 64, -2], "camera.roi must be"),
    ],
)
def test_values_are_checked(name: str, value: object, words: str) -> None:
    option = CAMERA_OPTIONS[name]
    with pytest.raises(ValueError, match=words):
        option.check(option.parameter, value)
    fine = {"source": ("", "aravis", "aravis:10.0.0.2"), "pixel_format": ("8", "12p"), "roi": ([0, 0, 0, 0],)}
    for good in {**fine, "trigger": ("free", "Line2")}[name]:
        option.check(option.parameter, good)


@pytest.mark.parametrize(
    ("roi", "steps", "expected"),
    [
        ((3, 1, 96, 64), (1, 1, 1, 1), (2, 0, 96, 64)),
        ((0, 0, 0, 0), (1, 1, 1, 1), (0, 0, 160, 128)),
        ((5, 7, 0, 0), (1, 1, 1, 1), (4, 6, 156, 122)),
        ((10, 10, 65, 33), (4, 2, 8, 3), (8, 10, 64, 30)),
        ((0, 0, 160, 128), (16, 16, 16, 16), (0, 0, 160, 128)),
    ],
)
def test_regions_are_snapped(roi: Tuple[int, ...], steps: Tuple[int, ...], expected: Tuple[int, ...]) -> None:
    assert snapped(roi, (160, 128), steps) == expected


@pytest.mark.parametrize("roi", [(100, 0, 96, 64), (0, 0, 160, 129), (160, 0, 0, 64), (0, 0, 15, 64), (0, 120, 64, 0)])
def test_regions_outside_are_refused(roi: Tuple[int, ...]) -> None:
    with pytest.raises(CameraError, match=r"camera.roi must lie within 160x128 pixels and have 16x16"):
        snapped(roi, (160, 128), (1, 1, 1, 1))


def test_snapped_regions_fit_the_camera() -> None:
    chance = random.Random(1)
    fitting = 0
    for _ in range(2000):
        picture = (chance.randrange(100, 200), chance.randrange(100, 200))
        steps = tuple(chance.choice((1, 2, 3, 4, 8)) for _ in range(4))
        roi = tuple(chance.randrange(0, 100) for _ in range(4))
        try:
            x, y, width, height = snapped(roi, picture, steps)
        except CameraError:
            continue
        fitting += 1
        assert all(number % 2 == 0 and number % step == 0 for number, step in zip((x, y, width, height), steps))
        assert x + width <= picture[0]
        assert y + height <= picture[1]
        assert x <= roi[0] < x + 2 * steps[0]
    assert fitting > 100


def test_all_settings_are_written_and_read_back() -> None:
    device = StandIn(formats=("PolarizeMono8", "PolarizeMono12p"), BlackLevel=0, DeviceUserID="", TriggerMode="On")
    state = written(
        device,
        pixel_format="12p",
        exposure_us=900.0,
        gain_db=6.0,
        frame_rate=20.0,
        roi=(3, 1, 96, 64),
        trigger="free",
        ptp=True,
        packet_size=1500,
        packet_delay_ns=7,
        features='BlackLevel=7, DeviceUserID="a: b", TriggerMode=Off',
    )
    assert device.features["PixelFormat"] == "PolarizeMono12p"
    assert (state.exposure_us, state.exposure_auto, state.gain_db, state.frame_rate) == (900.0, "off", 6.0, 20.0)
    assert (state.roi, state.ptp, state.packet_size, state.packet_delay_ns) == ((2, 0, 96, 64), True, 1500, 7)
    assert state.features == r'BlackLevel=7, DeviceUserID="a\u003a b", TriggerMode=Off'
    assert parse_features("f", state.features) == {"BlackLevel": "7", "DeviceUserID": "a: b", "TriggerMode": "Off"}
    assert (device.features["GainAuto"], device.features["AcquisitionFrameRateEnable"]) == ("Off", True)
    assert read_back(device, state) == state
    write(device, state, ALL)
    assert read_back(device, state) == state


def test_zeros_keep_what_the_camera_has() -> None:
    device = StandIn(ExposureAuto="Continuous", AcquisitionFrameRate=12.0, Width=100)
    state = written(device)
    assert (state.exposure_us, state.exposure_auto, state.frame_rate) == (5000.0, "camera", 12.0)
    assert state.roi == (0, 0, 100, 2048)
    assert {name for name, _ in device.writes} == {"PixelFormat", "GainAuto", "PtpEnable"}
    assert (device.source, device.sent) == ("", (9000, 0))


def test_exposure_is_by_hand_or_automatic() -> None:
    device = StandIn(ExposureAuto="Continuous")
    assert written(device, ["exposure_us"], exposure_us=700.0).exposure_auto == "off"
    assert written(device, ["exposure_auto"], exposure_us=700.0, exposure_auto="camera").exposure_auto == "camera"
    with pytest.raises(CameraError, match=r"camera.exposure_us cannot be set while camera.exposure_auto is camera"):
        written(device, ["exposure_us"], exposure_us=900.0, exposure_auto="camera")
    state = written(device, ["exposure_us", "exposure_auto"], exposure_us=900.0, exposure_auto="camera")
    assert (state.exposure_us, state.exposure_auto) == (900.0, "camera")


def test_exposure_for_polarization_needs_neither_automatic_nor_gamma() -> None:
    device: Any = StandIn(ExposureAuto="Continuous", GammaEnable=True, Gamma=0.8)
    state = written(device, ["exposure_auto"], exposure_auto="polarization")
    assert (state.exposure_auto, device.features["ExposureAuto"]) == ("polarization", "Off")
    assert (device.features["GammaEnable"], device.features["Gamma"]) == (False, 0.8)
    device = StandIn(without={"GammaEnable", "ExposureAuto"})
    assert written(device, ["exposure_auto"], exposure_auto="polarization").exposure_auto == "polarization"
    for name in ("exposure_us", "gain_db"):
        with pytest.raises(CameraError, match=f"camera.{name} cannot be set while .* is polarization"):
            written(device, [name], exposure_auto="polarization", **{name: 5.0})
    assert written(device, ["gain_db"], exposure_auto="camera", gain_db=5.0).gain_db == 5.0
    with pytest.raises(CameraError, match=r"cannot be 'polarization': the camera has no ExposureTime"):
        written(StandIn(without={"ExposureTime"}), ["exposure_auto"], exposure_auto="polarization")


@pytest.mark.parametrize(
    ("value", "expected"),
    [(False, "off"), (True, "camera"), ("off", "off"), ("camera", "camera"), ("polarization", "polarization")],
)
def test_who_chooses_the_exposure_was_a_truth_value(value: object, expected: str) -> None:
    assert CAMERA_OPTIONS["exposure_auto"].validate(value) == expected


@pytest.mark.parametrize("value", ["on", "Polarization", "", 1, None])
def test_others_do_not_choose_the_exposure(value: object) -> None:
    with pytest.raises(ValueError, match="exposure_auto must be one of off, camera, polarization"):
        CAMERA_OPTIONS["exposure_auto"].validate(value)


def test_triggers() -> None:
    for trigger, source in (("software", "Software"), ("line", "Line1"), ("Line2", "Line2"), ("free", "")):
        device = StandIn(TriggerMode="Off", TriggerSource="Line1")
        written(device, trigger=trigger, frame_rate=20.0)
        assert device.source == source
        assert device.features["AcquisitionFrameRateEnable"] is (trigger == "free")
    with pytest.raises(CameraError, match=r"camera.trigger 'Line7' is not among the camera's: Software, Line1, Line2"):
        written(device, trigger="Line7")
    for source, trigger in (("Software", "software"), ("Line2", "Line2"), ("Action0", "Action0")):
        assert read_back(StandIn(TriggerMode="On", TriggerSource=source), CameraSettings()).trigger == trigger


def test_frames_in_step_with_ptp(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(BOUNDS, "PTPSyncFrameRate", (1.0, 20.0))
    features = {"AcquisitionStartMode": "Normal", "PTPSyncFrameRate": 10.0}
    device = StandIn(TriggerMode="Off", TriggerSource="Line1", **features)
    state = written(device, ptp=True, trigger="scheduled", frame_rate=12.5)
    assert (state.trigger, state.frame_rate, state.ptp) == ("scheduled", 12.5, True)
    assert (device.features["AcquisitionStartMode"], device.features["PTPSyncFrameRate"]) == ("PTPSync", 12.5)
    assert device.features["AcquisitionFrameRate"] == 24.0
    assert ranges(device, state)["frame_rate"] == (1.0, 20.0)
    assert [name for name, _ in device.writes].index("PtpEnable") < device.writes.index(
        ("AcquisitionStartMode", "PTPSync")
    )
    state = written(device, frame_rate=20.0)
    assert (state.trigger, state.frame_rate, device.features["AcquisitionStartMode"]) == ("free", 20.0, "Normal")


@pytest.mark.parametrize(
    ("vendor", "name", "value", "limits", "unit", "expected"),
    [
        ("FLIR", "Gain", 6.0, (0.0, 47.99), "dB", (6.0, 0.0, 47.99)),
        ("JAI Corporation", "Gain", 10.0, (1.0, 126.0), "", (20.0, 0.0, 42.007)),  # as its manual has it
        ("Baumer Optronic", "Gain", 2.0, (1.0, 251.0), "", (6.0206, 0.0, 47.993)),
        ("Any", "Gain", 2.0, (1.0, 16.0), "x", (6.0206, 0.0, 24.082)),
        ("JAI Corporation", "Gain", 2.0, (0.0, 24.0), "[dB]", (2.0, 0.0, 24.0)),  # the unit counts
        ("Allied Vision", "Gain", 3, (0, 40), "dB", (3.0, 0.0, 40.0)),
        ("Basler", "GainAbs", 3.0, (0.0, 36.0), "", (3.0, 0.0, 36.0)),
    ],
)
def test_gain_is_in_decibels(
    monkeypatch: pytest.MonkeyPatch,
    vendor: str,
    name: str,
    value: float,
    limits: Tuple[float, float],
    unit: str,
    expected: Tuple[float, float, float],
) -> None:
    monkeypatch.setitem(BOUNDS, name, limits)
    device: Any = StandIn(without={"Gain"} - {name}, **{"DeviceVendorName": vendor, name: value})
    device.units[name] = unit
    state = written(device, ["gain_db"])
    assert device.features[name] == value  # the default keeps it
    assert state.gain_db == pytest.approx(expected[0], abs=1e-3)
    assert ranges(device, state)["gain_db"] == pytest.approx(expected[1:], abs=1e-3)
    for gain_db, native in zip(ranges(device, state)["gain_db"], limits):
        assert written(device, ["gain_db"], gain_db=gain_db).gain_db == gain_db
        assert device.features[name] == native
    with pytest.raises(CameraError, match=r"camera.gain_db of this camera must be in \["):
        written(device, ["gain_db"], gain_db=expected[2] + 0.01)


@pytest.mark.parametrize(
    ("name", "value", "unit"), [("GainRaw", 10, ""), ("Gain", 256, ""), ("Gain", 5.0, "%"), ("GainRaw", 10, "DN")]
)
def test_raw_numbers_are_not_decibels(name: str, value: float, unit: str) -> None:
    device: Any = StandIn(without={"Gain"} - {name}, **{name: value})
    device.units[name] = unit
    assert written(device).gain_db == KEEP_GAIN
    assert (read_facts(device).gain_db, read_facts(device).values()["gain [dB]"]) == (None, "unknown")
    assert "gain_db" not in ranges(device, CameraSettings())
    with pytest.raises(CameraError, match=r"camera.gain_db cannot be set: the camera has no Gain in dB"):
        written(device, gain_db=6.0)
    assert device.features[name] == value


@pytest.mark.parametrize(
    ("values", "without", "words"),
    [
        ({"exposure_us": 1.0}, (), r"camera.exposure_us of this camera must be in \[30, 1e\+06\], got 1"),
        ({"gain_db": 50.0}, (), r"camera.gain_db of this camera must be in \[0, 48\], got 50"),
        ({"frame_rate": 31.0}, (), r"camera.frame_rate of this camera must be in \[1, 30\], got 31"),
        ({"exposure_us": 100.0}, ("ExposureTime",), "camera.exposure_us cannot be set: the camera has no ExposureTime"),
        ({"gain_db": 1.0}, ("Gain",), "camera.gain_db cannot be set: the camera has no Gain"),
        ({"frame_rate": 5.0}, ("AcquisitionFrameRate",), "camera.frame_rate cannot be set: the camera has no"),
        ({"exposure_auto": "camera"}, ("ExposureAuto",), "camera.exposure_auto cannot be 'camera': the camera has no"),
        ({"ptp": True}, ("PtpEnable",), "camera.ptp cannot be set: the camera has no PTP"),
        ({"ptp": True, "trigger": "scheduled"}, (), "scheduled: the camera has no AcquisitionStartMode; use an input"),
        ({"features": "Nonsense=1"}, (), "no feature 'Nonsense'"),
        ({"pixel_format": "12p"}, (), "camera.pixel_format '12p'"),
        ({"roi": (0, 0, 5000, 64)}, (), "camera.roi must lie within 2448x2048"),
    ],
)
def test_what_a_camera_cannot_is_named(values: Any, without: Tuple[str, ...], words: str) -> None:
    with pytest.raises(CameraError, match=words):
        written(StandIn(without=without), **values)


def test_a_camera_that_lacks_everything_works() -> None:
    names = ("Gain", "GainAuto", "ExposureTime", "ExposureAuto", "PtpEnable", "AcquisitionFrameRate")
    device = StandIn(without=(*names, "AcquisitionFrameRateEnable"), formats=("Mono8",))
    assert written(device) == replace(CameraSettings(), roi=(0, 0, 2448, 2048), packet_size=9000)
    assert ranges(device, CameraSettings()) == {}
    device.is_gige = False
    assert read_back(device, CameraSettings()).packet_size == 0


@pytest.mark.parametrize("text", ["a: b", "", " ", "#", "\u00e9t\u00e9", "\U0001f600", "\x7f\x80\n\"'\\", "y " * 500])
def test_any_text_of_a_feature_can_be_written_again(text: str) -> None:
    state = read_back(StandIn(DeviceUserID=text), CameraSettings(features="DeviceUserID=x"))
    assert parse_features("f", state.features) == {"DeviceUserID": text}


@pytest.mark.parametrize("limits", [(48.0, 0.0), (math.nan, math.nan), (-math.inf, math.inf)])
def test_nonsense_of_a_camera_stops_nothing(limits: Tuple[float, float], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(BOUNDS, "Gain", limits)
    monkeypatch.setitem(BOUNDS, "AcquisitionFrameRate", (1.0, 23.9))  # changes after the frame rate was read
    device = StandIn(ExposureTime=math.nan)
    state = written(device, gain_db=3.0)
    assert (state.gain_db, state.exposure_us) == (3.0, 0.0)
    low, high = ranges(device, state)["gain_db"]
    assert low <= 3.0 <= high
    assert ranges(device, state)["frame_rate"] == (1.0, 24.0)


def test_only_some_changes_stop_the_frames() -> None:
    old = CameraSettings()
    assert changed_fields(old, replace(old, gain_db=1.0, stamp="start")) == ["gain_db", "stamp"]
    for name in ("exposure_us", "exposure_auto", "gain_db", "frame_rate", "ptp", "stamp"):
        assert not stops_frames([name])
    for name in ("pixel_format", "roi", "trigger", "packet_size", "packet_delay_ns", "features"):
        assert stops_frames(["gain_db", name])


def test_a_pixel_format_among_the_features_is_read_back() -> None:
    """It is written last; a group such as `12p` stays as it was asked for, if the camera has a format of it."""
    formats = ("PolarizeMono8", "PolarizeMono12p")
    device = StandIn(formats=formats)
    state = written(device, pixel_format="8", features="PixelFormat=PolarizeMono12p")
    assert (state.pixel_format, state.features) == ("PolarizeMono12p", "PixelFormat=PolarizeMono12p")
    assert written(StandIn(formats=formats), pixel_format="12p").pixel_format == "12p"
    assert written(device, ["features"], pixel_format="12p", features="PixelFormat=Mono8").pixel_format == "Mono8"
