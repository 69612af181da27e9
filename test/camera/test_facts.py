"""What a camera knows of its frames, from its features."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any, Dict, Tuple

import pytest
from calibrations import realistic_calibration
from stand_in import StandIn

from polar_pipeline import SENSORS
from polar_pipeline.calibration import save_calibration
from polar_pipeline.camera.aravis import CameraError
from polar_pipeline.camera.facts import choose_format, facts_of, read_facts, read_ptp
from polar_pipeline.live.parameters import make_settings


@pytest.mark.parametrize(
    ("formats", "height", "sensor"),
    [
        (("Mono8", "PolarizedMono8"), 2048, "IMX250MZR"),
        (("Mono8", "BayerRGPolarized8"), 2056, "IMX250MYR"),
        (("PolarizeMono12p",), 3000, "IMX253MZR"),
        (("PolarizeMono8",), 1200, ""),
        (("Mono8", "BayerRG8"), 2048, ""),
        (("PolarizedDolpAolp_Mono8", "Mono8"), 2048, ""),  # not a mosaic
    ],
)
def test_unknown_models_are_told_by_their_formats(formats: Tuple[str, ...], height: int, sensor: str) -> None:
    facts = read_facts(StandIn(formats=formats, DeviceModelName="X", HeightMax=height))
    assert facts.sensor == sensor
    assert facts.options() == {"roi_offset": (0, 0), "flip": (False, False), **({"sensor": sensor} if sensor else {})}
    assert facts.values()["sensor"] == (sensor or "unknown")


@pytest.mark.parametrize("flips", [{}, {"ReverseX": True}, {"ReverseX": False, "ReverseY": True}])
def test_the_region_is_counted_on_the_sensor(flips: Dict[str, bool]) -> None:
    facts = read_facts(StandIn(OffsetX=3, OffsetY=5, Width=101, Height=64, **flips))
    x = 2448 - 3 - 101 if flips.get("ReverseX") else 3
    y = 2048 - 5 - 64 if flips.get("ReverseY") else 5
    assert (facts.roi_offset, facts.size) == ((x, y), (101, 64))
    assert facts.flip == (flips.get("ReverseX", False), flips.get("ReverseY", False))
    assert facts.values()["region"] == f"101x64 at {x},{y}"


def test_what_a_camera_lacks_has_a_default() -> None:
    names = ("Gain", "ExposureTime", "ExposureAuto", "PtpEnable", "PtpStatus", "WidthMax", "HeightMax")
    bare = StandIn(without=names, SensorWidth=2448, SensorHeight=2048)
    facts = read_facts(bare)
    assert (facts.gain_db, facts.exposure_us, facts.temperature) == (None, 0.0, None)
    assert "temperature [C]" not in facts.values()
    assert read_ptp(bare) == ""
    older = read_facts(
        StandIn(without=("Gain", "ExposureTime"), GainAbs=10.0, ExposureTimeAbs=70.0, DeviceTemperature=41)
    )
    assert (older.gain_db, older.exposure_us, older.temperature) == (10.0, 70.0, 41.0)
    assert older.values()["temperature [C]"] == "41.0"


@pytest.mark.parametrize("nonsense", [math.nan, math.inf, -math.inf])
def test_numbers_that_are_not_finite_are_unknown(nonsense: float) -> None:
    facts = read_facts(StandIn(Gain=nonsense, ExposureTime=nonsense, DeviceTemperature=nonsense))
    assert (facts.gain_db, facts.exposure_us, facts.temperature) == (None, 0.0, None)


@pytest.mark.parametrize("values", [(-1.0, -1.0, -999.0), (1e4, 1e9, 1e4)])
def test_a_file_has_any_finite_numbers(values: Tuple[float, ...]) -> None:
    facts = read_facts(StandIn(Gain=values[0], ExposureTime=values[1], DeviceTemperature=values[2]))
    assert facts_of(json.loads(json.dumps(facts.rows()))) == facts


@pytest.mark.parametrize("name", ["BinningHorizontal", "BinningVertical", "DecimationHorizontal", "DecimationVertical"])
def test_mixed_pixels_are_refused(name: str) -> None:
    read_facts(StandIn(**{name: 1}))
    with pytest.raises(CameraError, match=f"{name} is 2: it mixes polarizer angles; set it to 1"):
        read_facts(StandIn(**{name: 2}))


def test_a_camera_that_lacks_its_size_is_refused() -> None:
    with pytest.raises(CameraError, match="no feature"):
        read_facts(StandIn(without=("Width",)))


def test_ptp_is_latched_and_read() -> None:
    device = StandIn(PtpEnable=True, PtpStatus="Slave", PtpDataSetLatch="")
    assert read_ptp(device) == "Slave"
    assert device.writes == [("PtpDataSetLatch", "execute")]
    assert read_ptp(StandIn(PtpEnable=False, PtpStatus="Slave")) == ""
    old: Any = StandIn(without=("PtpEnable", "PtpStatus"), GevIEEE1588=True, GevIEEE1588Status="Master")
    assert read_ptp(old) == "Master"


def test_formats_are_chosen_by_the_mosaic() -> None:
    mono: Any = StandIn(formats=("Mono8", "Mono12p", "PolarizeMono8", "PolarizeMono12p", "RGB8"))
    assert choose_format(mono, "8") == "PolarizeMono8"
    assert choose_format(mono, "12p") == "PolarizeMono12p"
    assert choose_format(mono, "Mono8") == "Mono8"
    color: Any = StandIn(formats=("Mono8", "BayerRG8", "BayerRG12p"))
    assert choose_format(color, "8") == "BayerRG8"
    assert choose_format(StandIn(formats=("Mono8", "BayerRG8", "BayerRGPolarized8")), "8") == "BayerRGPolarized8"
    for names, chosen in (
        ("Mono8 Mono10 Mono12Packed Mono12 Mono16", "Mono12Packed"),
        ("Mono8 Mono10p Mono12 Mono16", "Mono12"),
        ("Mono8 Mono16", "Mono16"),
        ("Mono8 Mono12p BayerRG8 BayerRG12 BayerRG16", "BayerRG12"),  # a color camera's mosaic
        ("Mono8 Mono12p PolarizeMono8", "Mono12p"),
    ):
        assert choose_format(StandIn(formats=names.split()), "12p") == chosen
    with pytest.raises(CameraError, match=r"camera.pixel_format '12p' is not among the camera's: Mono8, Mono10p"):
        choose_format(StandIn(formats=("Mono8", "Mono10p")), "12p")
    for wanted in ("RGB8", "14p", "2p"):
        with pytest.raises(
            CameraError, match=f"camera.pixel_format '{wanted}' is not among the camera's: Mono8, Mono12p"
        ):
            choose_format(mono, wanted)


@pytest.mark.parametrize(
    ("features", "gamma", "lut"),
    [
        ({}, 1.0, False),
        ({"GammaEnable": True, "Gamma": 1.0, "LUTEnable": False}, 1.0, False),
        ({"GammaEnable": False, "Gamma": 0.8}, 1.0, False),
        ({"GammaEnable": True, "Gamma": 0.8}, 0.8, False),
        ({"Gamma": 0.5, "LUTEnable": True}, 0.5, True),  # without a switch
        ({"GammaEnable": True, "GammaSelector": "sRGB", "Gamma": 1.0}, 1 / 2.2, False),
        ({"GammaEnable": True, "GammaMode": "User", "GammaParam": 0.7}, 0.7, False),
        ({"GammaEnable": True}, 1 / 2.2, False),  # of an exponent that the camera does not tell
        ({"LUTMode": "Off", "Gamma": 0.45}, 1.0, False),
        ({"LUTMode": "Gamma", "Gamma": 0.45}, 0.45, False),
        ({"JAILUTMode": "LUT", "Gamma": 0.45}, 1.0, True),
    ],
)
def test_pixel_values_that_are_not_proportional_to_light_are_named(
    features: Dict[str, Any], gamma: float, lut: bool
) -> None:
    facts = read_facts(StandIn(BlackLevelRaw=12, **features))
    assert (facts.gamma, facts.lut, facts.black_level) == (gamma, lut, 12.0)
    assert (f"gamma {gamma:.2g}" in facts.nonlinearity, "lookup table" in facts.nonlinearity) == (gamma != 1, lut)
    assert (facts.values()["lookup table"], facts.values()["black level"]) == ("on" if lut else "off", "12.0")
    assert facts_of(json.loads(json.dumps(facts.rows()))) == facts
    rows = {name: value for name, value in facts.rows().items() if name not in ("gamma", "lut", "black_level")}
    assert facts_of(rows) == replace(facts, gamma=1.0, lut=False, black_level=None)  # of an earlier version
    for name, value in (("gamma", "x"), ("gamma", None), ("lut", 2), ("black_level", "x")):
        with pytest.raises(ValueError, match=name):
            facts_of({**facts.rows(), name: value})


def test_a_calibration_needs_values_that_are_proportional_to_light(tmp_path: Path) -> None:
    file = tmp_path / "sensor.npz"
    save_calibration(file, replace(realistic_calibration(SENSORS["IMX250MZR"], (64, 96)), facts={"gain_db": 3.0}))
    with_calibration = make_settings({"camera.source": "aravis", "calibration": str(file)})
    linear = read_facts(StandIn(Width=96, Height=64, Gain=9.0, Gamma=1.0))
    assert with_calibration.of_camera(linear).options.camera_gain == 6.0
    for change, words in (({"gamma": 0.5}, "gamma 0.5"), ({"lut": True}, "a lookup table")):
        with pytest.raises(ValueError, match=f"calibration needs linear pixel values: the camera applies {words}"):
            with_calibration.of_camera(replace(linear, **change))
        make_settings({"camera.source": "aravis"}).of_camera(replace(linear, **change))
    unknown = make_settings({"camera.source": "aravis", "camera_gain": 4.0})
    assert unknown.of_camera(replace(linear, gain_db=None)).options.camera_gain == 4.0  # the parameter tells it
