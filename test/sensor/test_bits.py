"""Significant bits of 16-bit numbers: found in the bits that pixels use, stated by names, options and calibrations.

Frames are computed by hand for the tile `90 45 / 135 0`.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any, Dict, Optional

import cv2
import numpy as np
import pytest
from fuzz import cdr

from polar_pipeline import Pipeline, RawFrame
from polar_pipeline.calibration import Calibration, PixelParameters
from polar_pipeline.calibration.file import save_calibration
from polar_pipeline.cli.entry import main
from polar_pipeline.options import make_options
from polar_pipeline.quality.frame_checks import check_frame
from polar_pipeline.recordings import messages
from polar_pipeline.sensor.frames import FrameError, as_frame, bit_warnings
from polar_pipeline.sensor.mosaic import SENSORS

SHAPE = (48, 80)
ANGLES = np.tile([[90.0, 45.0], [135.0, 0.0]], (SHAPE[0] // 2, SHAPE[1] // 2))
DOLP, AOLP = 0.5, 30.0


def numbers(bits: int, shift: int = 0, level: float = 0.5) -> np.ndarray:
    """Light of DoLP 0.5 and AoLP 30 degrees, up to S0 = 2 * `level` from half of it at the left, in so many bits."""
    light = level * np.linspace(0.5, 1, SHAPE[1]) * (1 + DOLP * np.cos(2 * np.deg2rad(AOLP - ANGLES)))
    top = (1 << bits) - 1
    return (np.minimum(np.rint(light * top), top).astype(np.uint16) << shift).astype(np.uint16)


def message(raw: np.ndarray, encoding: str = "mono16") -> messages.ImageMessage:
    fields = {
        "sec": 1,
        "nanosec": 0,
        "frame_id": b"cam",
        "height": raw.shape[0],
        "width": raw.shape[1],
        "encoding": encoding.encode(),
        "is_bigendian": 0,
        "step": raw.nbytes // len(raw),
        "data": raw.tobytes(),
    }
    return messages.decode_image(bytes(cdr.write("image", fields).data))


def calibration(bits: int) -> Calibration:
    """An ideal sensor with a black level of 5 %, measured with so many bits."""
    ideal = PixelParameters(*(np.full(SHAPE, value) for value in (0.05, 1.0, 0.0, 0.0)))
    return Calibration.from_parameters(ideal, SENSORS["IMX250MZR"], bit_depth=bits)


def full_scale(raw: np.ndarray, encoding: str = "mono16", **options: Any) -> int:
    return messages.to_raw(message(raw, encoding), make_options(**options)).full_scale


@pytest.mark.parametrize(("bits", "scale"), [(14, 0xFFFC), (12, 0xFFF0), (10, 0xFFC0), (8, 0xFF00)])
@pytest.mark.parametrize("encoding", ["mono16", "16UC1", "bayer_rggb16", "Mono16", "PolarizeMono16", "array"])
def test_numbers_in_the_high_bits_saturate_at_their_largest(bits: int, scale: int, encoding: str) -> None:
    """Also a frame in which every pixel is saturated; each is invalid, as 04 of the bug reports shows."""
    for raw in (numbers(bits, 16 - bits), np.full(SHAPE, scale, np.uint16)):
        found = as_frame(raw).full_scale if encoding == "array" else full_scale(raw, encoding)
        assert found == scale
        pipeline = Pipeline(products=("dolp",), backend="cpu")
        result = pipeline(raw if encoding == "array" else messages.to_raw(message(raw, encoding)))
        assert np.isnan(result["dolp"]).all() == (raw[0, 0] == scale)


@pytest.mark.parametrize(
    "raw",
    [
        np.full(SHAPE, 40000, np.uint16),
        np.full(SHAPE, 65535, np.uint16),
        np.zeros(SHAPE, np.uint16),
        numbers(16),
        numbers(16, level=0.3) | np.uint16(1),
    ],
)
def test_other_numbers_have_16_bits(raw: np.ndarray) -> None:
    assert full_scale(raw) == as_frame(raw).full_scale == 65535


def test_ready_angles_too() -> None:
    angles = np.stack([numbers(12, 4)] * 4, -1)
    assert RawFrame.of_angles(angles, SENSORS["IMX250MZR"]).full_scale == 0xFFF0
    image = message(angles, "PolarizedAngles_0d_45d_90d_135d_Mono16")
    assert messages.to_raw(messages.ImageMessage(**{**vars(image), "width": SHAPE[1]})).full_scale == 0xFFF0


def warning(raw: np.ndarray, encoding: str = "mono16", **options: Any) -> str:
    """The only warning about a frame's bits; "" for none."""
    made = make_options(**options)
    frame = messages.to_raw(message(raw, encoding), made)
    rows = [row.text for row in check_frame(frame, made).warnings if row.cause == "bits"]
    assert len(rows) < 2
    return "".join(rows)


@pytest.mark.parametrize(
    ("raw", "encoding", "options", "text"),
    [
        (numbers(12), "mono16", {}, "--bit-depth 12 (raw.bit_depth)"),
        (numbers(14), "16UC1", {}, "--bit-depth 14 (raw.bit_depth)"),
        (numbers(10), "mono16", {}, "--bit-depth 10 or 12 (raw.bit_depth)"),
        (numbers(8), "mono16", {}, "--bit-depth 8, 10 or 12 (raw.bit_depth)"),
        (numbers(12, level=0.7), "Mono10", {}, "choose one in 16, with which --bit-depth 12 fits"),
        (numbers(14), "BayerRG12", {}, "choose one in 16, with which --bit-depth 14 fits"),
        (numbers(14), "PolarizeMono12", {}, "choose one in 16, with which --bit-depth 14 fits"),
        (numbers(16, level=0.7), "Mono14", {}, "choose one in 16, with which --bit-depth 16 fits"),
        (numbers(14), "mono16", {"calibration": calibration(12)}, "calibrate with frames of 14 bits"),
        (numbers(12, 4), "mono16", {"bit_depth": 12}, "--alignment msb"),
        (numbers(10, 6), "mono16", {"bit_depth": 10}, "--alignment msb"),
        (numbers(12, 4), "Mono12", {}, "--alignment msb"),
        (numbers(12), "mono16", {"bit_depth": 12, "alignment": "msb"}, "--alignment lsb"),
        (numbers(12), "Mono12", {"alignment": "msb"}, "--alignment lsb"),
        (numbers(12), "Mono12p", {"alignment": "msb"}, "--alignment lsb"),
        (numbers(12, level=0.7), "mono16", {"bit_depth": 10}, "--bit-depth 12"),
        (numbers(16, level=0.7), "mono16", {"bit_depth": 12}, "--bit-depth 16"),
        (numbers(8).astype(np.uint8), "mono8", {"bit_depth": 12}, "leave out raw.bit_depth"),
    ],
)
def test_options_that_do_not_fit(raw: np.ndarray, encoding: str, options: Dict[str, Any], text: str) -> None:
    assert text in warning(raw, encoding, **options)


@pytest.mark.parametrize(
    ("raw", "encoding", "options"),
    [
        (numbers(8), "mono16", {}),
        (numbers(12), "mono16", {}),
        (numbers(14), "Mono12", {}),
        (numbers(14), "Mono12", {"bit_depth": 12}),
        (numbers(16, level=0.7), "BayerRG10", {}),
        (numbers(12, 4), "Mono12", {}),
        (numbers(12), "Mono12p", {"alignment": "msb"}),
        (numbers(16, level=0.7), "mono16", {"bit_depth": 12}),
    ],
)
def test_what_a_warning_names_ends_it(raw: np.ndarray, encoding: str, options: Dict[str, Any]) -> None:
    """Each option that is named is taken, and so is what a refusal of it names."""
    for _ in range(4):
        try:
            text = warning(raw, encoding, **options)
        except FrameError as err:
            text = str(err)
        if not text:
            return
        if "one in 16" in text:
            encoding = "mono16"
        if "set it to 0" in text:
            options = {**options, "bit_depth": 0}
        elif "--bit-depth" in text:
            options = {**options, "bit_depth": int(text.partition("--bit-depth ")[2].split()[0].rstrip(","))}
        if "--alignment" in text:
            options = {**options, "alignment": text.partition("--alignment ")[2].split()[0]}
    pytest.fail(f"{text} again")


@pytest.mark.parametrize(
    ("raw", "encoding", "options"),
    [
        (numbers(16), "mono16", {}),
        (numbers(12, 4), "mono16", {}),
        (numbers(12, 4, level=0.01), "mono16", {}),
        (numbers(12), "mono16", {"bit_depth": 12}),
        (numbers(12, 4), "mono16", {"bit_depth": 12, "alignment": "msb"}),
        (numbers(12), "Mono12", {}),
        (numbers(12), "Mono12p", {}),
        (numbers(12, 4), "Mono12p", {"alignment": "msb"}),
        (numbers(12), "mono16", {"bit_depth": 16}),  # the user knows better
        (numbers(12, 4), "mono16", {"bit_depth": 16}),
        (np.zeros(SHAPE, np.uint16), "mono16", {}),
        (numbers(8).astype(np.uint8), "mono8", {}),
    ],
)
def test_frames_of_which_nothing_looks_wrong(raw: np.ndarray, encoding: str, options: Dict[str, Any]) -> None:
    assert warning(raw, encoding, **options) == ""


@pytest.mark.parametrize("encoding", ["Mono12", "PolarizeMono12", "BayerRG12", "Mono12p", "Mono12Packed"])
@pytest.mark.parametrize("bits", [8, 10, 14, 16])
def test_a_depth_that_contradicts_the_name_is_refused(encoding: str, bits: int) -> None:
    with pytest.raises(FrameError, match=f"{encoding} states 12 bits, .*--bit-depth.* is {bits}") as refusal:
        full_scale(numbers(12), encoding, bit_depth=bits)
    assert refusal.value.cause == "encoding"
    assert full_scale(numbers(12), encoding, bit_depth=12) == 4095


@pytest.mark.parametrize("encoding", ["Mono12p", "PolarizeMono12Packed", "BayerRG12Packed"])
@pytest.mark.parametrize("shift", [0, 4])
@pytest.mark.parametrize("alignment", ["lsb", "msb"])
def test_unpacked_numbers_under_a_packed_name(encoding: str, shift: int, alignment: str) -> None:
    """Rows of 16-bit words, in the low or the high bits; the alignment "msb" decides."""
    raw = numbers(12, shift)
    made = Pipeline(products=("stokes",), backend="cpu", alignment=alignment)
    if shift == 0 and alignment == "msb":
        assert full_scale(raw, encoding, alignment=alignment) == 0xFFF0
        return
    stokes = made(messages.to_raw(message(raw, encoding), made.options))["stokes"]
    # S0 at the right border is 1; a level of 12 bit is 0.0005, and the border is mirrored in interpolation
    np.testing.assert_allclose(np.median(stokes[..., 0]), 0.75, atol=0.01)
    np.testing.assert_allclose(
        np.median(np.hypot(*np.moveaxis(stokes[..., 1:], -1, 0)) / stokes[..., 0]), DOLP, atol=0.01
    )


@pytest.mark.parametrize(
    ("raw", "encoding", "options", "scale"),
    [
        (numbers(12), "mono16", {}, 4095),
        (numbers(12), "mono16", {"bit_depth": 12}, 4095),
        (numbers(12, 4), "mono16", {}, 0xFFF0),
        (numbers(12, 4, level=0.02), "mono16", {}, 0xFFF0),
        (numbers(16), "mono16", {}, 65535),
        (numbers(8).astype(np.uint8), "mono8", {}, 255),
        (numbers(10), "Mono10", {}, 1023),
        (numbers(12), "mono16", {"bit_depth": 10}, None),
        (numbers(12), "mono16", {"bit_depth": 16}, None),
    ],
)
def test_the_bits_of_a_calibration(
    raw: np.ndarray, encoding: str, options: Dict[str, Any], scale: Optional[int]
) -> None:
    """They decide where nothing else states the depth; an option that differs is refused."""
    made = make_options(calibration=calibration(12), **options)
    if scale is None:
        with pytest.raises(FrameError, match=r"calibration is of frames of 12 bits, and .*--bit-depth"):
            messages.to_raw(message(raw, encoding), made)
        with pytest.raises(FrameError, match=r"calibration is of frames of 12 bits, and .*--bit-depth"):
            Pipeline(backend="cpu", calibration=calibration(12), **options)(raw)
        return
    assert messages.to_raw(message(raw, encoding), made).full_scale == scale
    if encoding == "mono16" and raw.max() > 2000:  # brighter than the black level
        arguments = {"products": ("stokes",), "backend": "cpu", "calibration": calibration(12), **options}
        s0 = np.median(Pipeline(**arguments)(raw)["stokes"][..., 0])
        expected = np.median(raw.astype(float) / scale) * 2 - 0.1  # S0 is twice the mean of the pixels
        assert abs(s0 - expected) < 0.05


def test_process_with_a_calibration_and_without(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """12 bits in a 16-bit TIFF: the calibration tells it; without one a warning names the option."""
    cv2.imwrite(str(tmp_path / "raw12.tiff"), numbers(12))
    save_calibration(tmp_path / "sensor.npz", calibration(12))
    command = ["process", str(tmp_path / "raw12.tiff"), "-o", str(tmp_path), "--products", "stokes", "--format", "npy"]

    def s0() -> float:
        return float(np.median(np.load(tmp_path / "raw12_stokes.npy")[..., 0]))

    assert main([*command, "--calibration", str(tmp_path / "sensor.npz")]) == 0
    assert abs(s0() - 0.65) < 0.01, "0.75 without the black level of twice 5 %"
    assert "bit" not in capsys.readouterr().err
    assert main([*command, "--force"]) == 0
    assert "--bit-depth 12" in capsys.readouterr().err
    assert main([*command, "--force", "--strict"]) == 1
    assert main([*command, "--force", "--bit-depth", "12", "--strict"]) == 0
    assert abs(s0() - 0.75) < 0.01
    assert main([*command, "--force", "--bit-depth", "14", "--calibration", str(tmp_path / "sensor.npz")]) == 1
    assert "12 bits, and raw.bit_depth (--bit-depth) is 14" in capsys.readouterr().err


def test_the_library_warns_once(recwarn: pytest.WarningsRecorder) -> None:
    pipeline = Pipeline(products=("dolp",), backend="cpu")
    for _ in range(3):
        pipeline(numbers(12))
    assert ["--bit-depth 12" in str(row.message) for row in recwarn] == [True]
    assert recwarn[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Pipeline(products=("dolp",), backend="cpu", bit_depth=12)(numbers(12))
        Pipeline(products=("dolp",), backend="cpu")(numbers(12, 4))
        Pipeline(products=("dolp",), backend="cpu")(RawFrame(numbers(12), 4095))


def test_bits_are_looked_at_in_rows_of_every_polarizer() -> None:
    """In a frame of many rows too, where only one polarizer's pixels use the high bits."""
    raw = np.zeros((2048, 32), np.uint16) | np.uint16(0x0FFF)
    for row, column in ((0, 0), (0, 1), (1, 0), (1, 1)):
        tall = raw.copy()
        tall[row::2, column::2] = 0x1FFF
        assert bit_warnings(as_frame(tall, 4095), 12)[0].text.endswith("--bit-depth 14 fits (raw.bit_depth)")
