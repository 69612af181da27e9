"""What looks wrong in raw frames: every fault gives its warning and no other, and good frames give none."""

from __future__ import annotations

from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Callable, Dict, List, Tuple

import cv2
import numpy as np
import pytest
from scenes import SCENES, synthetic
from support import FRAMES, REAL_FRAMES, ROOT, first_of, pairs_of, real_frame, representative

from polar_pipeline import SENSORS, RawFrame
from polar_pipeline.options import make_options
from polar_pipeline.quality.frame_checks import _byte_warnings, check_frame
from polar_pipeline.sensor.forward import expose
from polar_pipeline.sensor.frames import FORMATS, Frame, PackedFrame, has_swapped_bytes, pack, used_bits

#: A region whose size is not a half or a quarter of the sensor's.
SHAPE = (1020, 1216)
MONO, COLOR = "IMX250MZR", "IMX250MYR"
Fault = Callable[[np.ndarray], np.ndarray]


def causes(frame: Frame, sensor: str = MONO, **options: object) -> List[str]:
    return [row.cause for row in check_frame(frame, make_options(sensor, **options)).warnings]


@lru_cache(maxsize=None)
def stokes_of(name: str, is_color: bool) -> np.ndarray:
    return synthetic(name, SHAPE, 0, is_color=is_color).astype(np.float32)


@lru_cache(maxsize=None)
def scene(name: str, sensor: str, electrons: float = 10_500) -> np.ndarray:
    """A synthetic scene with shot and read noise, and pixels whose gains differ by 1 %; 8 bit."""
    rng = np.random.default_rng(0)
    stokes = stokes_of(name, sensor == COLOR)
    raw = expose(stokes, SENSORS[sensor], 12, full_well=electrons, read_noise=2.4, rng=rng)
    return np.clip(np.rint(raw / 4095 * 255 * rng.normal(1, 0.01, SHAPE)), 0, 255).astype(np.uint8)


@pytest.fixture(scope="module")
def good() -> Dict[str, np.ndarray]:
    return {MONO: real_frame(REAL_FRAMES[1]), COLOR: scene("plastic", COLOR)}


def as_bits(raw: np.ndarray, bits: str) -> Frame:
    """The frame in 8 bit; in 12 bit with random low bits; or as those packed."""
    if bits == "8":
        return RawFrame(raw, 255)
    low = np.random.default_rng(7).integers(0, 16, raw.shape)
    wide = np.where(raw == 255, 4095, np.where(raw == 0, 0, 16 * raw.astype(int) + low)).astype(np.uint16)
    if bits == "12":
        return RawFrame(wide, 4095)
    return PackedFrame(
        np.frombuffer(pack(wide, FORMATS[bits]), np.uint8).reshape(len(wide), -1), FORMATS[bits], raw.shape[1]
    )


def changed(change: Callable[[np.ndarray], None]) -> Fault:
    def fault(raw: np.ndarray) -> np.ndarray:
        out = raw.copy()
        change(out)
        return out

    return fault


def assign(target: object, value: object) -> Fault:
    """A fault that puts a value, or other pixels of the frame, into a part of it."""

    def change(raw: np.ndarray) -> None:
        raw[target] = raw[value].copy() if isinstance(value, tuple) else value  # type: ignore[index]

    return changed(change)


def torn(dy: int, dx: int, axis: int = 0, share: float = 0.5) -> Fault:
    """From a line on, the picture is that of (dy, dx) pixels further."""

    def fault(raw: np.ndarray) -> np.ndarray:
        raw = raw if axis == 0 else raw.T
        first = int(len(raw) * share)
        out = np.concatenate([raw[:first], np.roll(raw, (-dy, -dx), (0, 1))[first:]])
        return np.ascontiguousarray(out if axis == 0 else out.T)

    return fault


def fields(side: int) -> Fault:
    """First the even rows of superpixels of `side` pixels, then the odd ones."""

    def fault(raw: np.ndarray) -> np.ndarray:
        rows = raw[: len(raw) // (2 * side) * 2 * side].reshape(-1, side, raw.shape[1])
        return np.concatenate([rows[::2], rows[1::2]]).reshape(-1, raw.shape[1])

    return fault


def interleaved(raw: np.ndarray) -> np.ndarray:
    """Rows of superpixels from the upper and the lower half in turns."""
    rows = raw[: len(raw) // 8 * 8].reshape(2, -1, 4, raw.shape[1])
    return rows.transpose(1, 0, 2, 3).reshape(-1, raw.shape[1])


def quarter(raw: np.ndarray) -> None:
    raw[: len(raw) // 2, : raw.shape[1] // 2] = 0


ALL = slice(None)
FAULTS: Dict[str, tuple] = {
    "good": (lambda raw: raw, []),
    "a quarter is zero": (changed(quarter), ["dead"]),
    "a block in the middle": (assign((slice(300, 500), slice(301, 700)), 0), ["dead"]),
    "a gray block": (assign((slice(300, 500), slice(301, 700)), 90), ["dead"]),
    "the lower rows are zero": (assign((slice(700, None),), 0), ["dead"]),
    "dead column": (assign((ALL, 333), 0), ["dead"]),
    "stuck column": (assign((ALL, 400), 255), ["dead"]),
    "stuck gray column": (assign((ALL, 401), 77), ["dead"]),
    "twelve lost rows": (assign((slice(601, 613),), 0), ["dead"]),
    "dead rows": (assign((slice(301, 303),), 0), ["dead"]),
    "repeated row": (assign((334,), (333,)), ["lines"]),
    "repeated row of a polarizer": (assign((335,), (333,)), ["lines"]),
    "repeated column": (assign((ALL, 335), (ALL, 334)), ["lines"]),
    "tear by a row": (torn(1, 0), ["lines"]),
    "tear by a column": (torn(0, 1), ["lines"]),
    "tear by both": (torn(1, 1), ["lines"]),
    "tear in the lower quarter": (torn(1, 0, share=0.7512), ["lines"]),
    "the right half is torn": (torn(1, 0, axis=1), ["lines"]),
    "fields of superpixels": (fields(4), ["lines"]),
    "interleaved halves": (interleaved, ["lines"]),
    "too dark": (lambda raw: raw // 16 * 2, ["dark"]),
    "one value": (lambda raw: np.full_like(raw, raw.max() // 2), ["dead"]),
    "black": (np.zeros_like, ["dark"]),
    "white": (lambda raw: np.full_like(raw, 255), []),
    "gamma 0.45": (lambda raw: np.rint(255 * (raw / 255) ** 0.45).astype(np.uint8), ["gamma"]),
    "gamma 0.75": (lambda raw: np.rint(255 * (raw / 255) ** 0.75).astype(np.uint8), ["gamma"]),
}


@pytest.mark.parametrize(
    ("name", "sensor", "bits"),
    representative(
        [(name, *row) for name in FAULTS for row in ((MONO, "8"), (COLOR, "12"), (COLOR, "8"), (MONO, "12p"))],
        lambda row: (row[:2], (row[0], row[2] == "8"), row[1:]),
    ),
)
def test_every_fault_gives_its_warning_and_no_other(
    name: str, sensor: str, bits: str, good: Dict[str, np.ndarray]
) -> None:
    fault, expected = FAULTS[name]
    if name.startswith("repeated") or name in ("one value", "stuck gray column", "a gray block"):
        frame = as_bits(good[sensor], bits).unpack()
        frame = RawFrame(fault(frame.mosaic), frame.full_scale)  # low bits are copied too
    else:
        frame = as_bits(fault(good[sensor]), bits)
    assert causes(frame, sensor) == expected


@pytest.mark.parametrize("path", sorted(FRAMES.glob("*.png")), ids=lambda path: path.stem)
def test_no_warning_about_real_frames(path: Path) -> None:
    raw = real_frame(path.name)
    for first in range(2):  # of every offset
        for left in range(2):
            cut = raw[first:, left:]
            for bits in ("8", "12p") if left == 0 else ("8",):
                assert causes(as_bits(np.ascontiguousarray(cut), bits), roi_offset=(left, first)) == []
    assert causes(RawFrame(np.ascontiguousarray(raw[::-1, ::-1]), 255), flip=(True, True)) == []
    assert causes(RawFrame(np.ascontiguousarray(raw[300:812, 500:1200]), 255), roi_offset=(500, 300)) == []


@pytest.mark.parametrize(("name", "sensor", "electrons"), pairs_of(SCENES, (MONO, COLOR), (10_500, 1_000)))
def test_no_warning_about_scenes(name: str, sensor: str, electrons: float) -> None:
    assert causes(RawFrame(scene(name, sensor, electrons), 255), sensor) == []


@pytest.mark.parametrize("sensor", [MONO, COLOR])
def test_no_warning_about_even_light(sensor: str) -> None:
    """An integrating sphere with vignetting, a saturated sky with a straight horizon, and black below it."""
    rng = np.random.default_rng(2)
    y, x = np.mgrid[-1 : 1 : SHAPE[0] * 1j, -1 : 1 : SHAPE[1] * 1j]  # type: ignore[misc]
    gain = rng.normal(1, 0.01, SHAPE)
    sphere = rng.poisson(6_000 * (1 - 0.3 * (x * x + y * y)) * gain) / 10_500
    assert causes(RawFrame(np.rint(255 * sphere).astype(np.uint8), 255), sensor) == []
    sky = np.where(y < -0.2 + 0.001 * x, 2.0, np.where(y > 0.5, 0.0, 0.3))
    blurred = cv2.GaussianBlur(sky, (7, 7), 0.7)  # a lens
    noisy = rng.poisson(10_500 * blurred * gain) / 10_500
    assert causes(RawFrame(np.clip(np.rint(255 * noisy), 0, 255).astype(np.uint8), 255), sensor) == []


@pytest.mark.parametrize(("sensor", "wavelength", "path"), pairs_of((MONO, COLOR), (20, 30, 200, 1000), range(4)))
def test_no_warning_about_aolp_that_turns(sensor: str, wavelength: int, path: int) -> None:
    """Fringes of stressed plastic: AoLP turns by 45 degrees within lines, which looks like a shift by a pixel."""
    y, x = np.mgrid[: SHAPE[0], : SHAPE[1]].astype(float)
    doubled = 2 * np.pi / wavelength * (x, y, x + y, np.hypot(y - 510, x - 600))[path]
    stokes = 0.6 * np.stack([np.ones(SHAPE), 0.5 * np.cos(doubled), 0.5 * np.sin(doubled)], -1)
    if sensor == COLOR:
        stokes = np.repeat(stokes[..., np.newaxis, :], 3, 2)
    rng = np.random.default_rng(0)
    raw = expose(stokes, SENSORS[sensor], 8, full_well=10_500, read_noise=2.4, rng=rng)
    assert causes(RawFrame(raw, 255), sensor) == []


@pytest.mark.parametrize("top", [255, 4095])
@pytest.mark.parametrize("sensor", [MONO, COLOR])
@pytest.mark.parametrize("shape", [(48, 64), (210, 600), (480, 640), (1024, 96), (2048, 2448)])
def test_no_warning_about_ramps_without_noise(shape: Tuple[int, int], sensor: str, top: int) -> None:
    """Light from 0.5 to 1 along x, y or both, of DoLP 0.5 and AoLP 30 degrees: many lines are alike."""
    y, x = np.mgrid[0 : 1 : shape[0] * 1j, 0 : 1 : shape[1] * 1j]  # type: ignore[misc]
    doubled = np.zeros(shape)
    for angle in (0, 45, 90, 135):
        row, column = SENSORS[sensor].position(angle)
        doubled[row::2, column::2] = np.deg2rad(2 * angle)
    for ramp in (x, y, (x + y) / 2):
        light = (0.5 + 0.5 * ramp) / 2 * (1 + 0.5 * np.cos(doubled - np.deg2rad(60)))
        raw = np.rint(top * light).astype(np.uint8 if top == 255 else np.uint16)
        assert causes(RawFrame(raw, top), sensor) == []


def test_low_bits_are_one_warning(good: Dict[str, np.ndarray]) -> None:
    """Numbers of 12 bit taken as 16 bit are dark too, but the bits are the cause."""
    assert causes(RawFrame(as_bits(good[MONO], "12").unpack().mosaic, 65535)) == ["bits"]


@pytest.mark.parametrize("gamma", first_of((0.45, 0.75, 0.5, 0.7), 2))
@pytest.mark.parametrize("name", [*REAL_FRAMES, "camera 12 bit", *SCENES])
def test_gamma(name: str, gamma: float) -> None:
    """What is read is within 10 % of the gamma that was applied; the text names the feature of cameras."""
    raw = real_frame(REAL_FRAMES[0] if name == "camera 12 bit" else name) if name not in SCENES else scene(name, MONO)
    top = 4095 if name == "camera 12 bit" else 255
    bent = np.rint(top * (raw / 255) ** gamma).astype(np.uint8 if top == 255 else np.uint16)
    (warning,) = check_frame(RawFrame(bent, top), make_options(MONO)).warnings
    assert warning.cause == "gamma"
    assert "GammaEnable" in warning.text
    value = float(warning.text.partition("gamma of about ")[2].partition(",")[0])
    assert value == pytest.approx(gamma, rel=0.1)


def test_a_gamma_without_polarization_does_not_show() -> None:
    rng = np.random.default_rng(0)
    light = rng.poisson(5_000 * rng.normal(1, 0.01, SHAPE)) / 10_500
    assert causes(RawFrame(np.rint(255 * light**0.45).astype(np.uint8), 255)) == []


@pytest.mark.parametrize("name", REAL_FRAMES)
def test_gray_pictures_are_not_mosaics(name: str) -> None:
    """An ordinary picture, one scaled by 1.4, a JPEG, an angle image, and four of them side by side."""
    raw = real_frame(name)
    angles = [raw[row::2, column::2] for row in range(2) for column in range(2)]
    gray = cv2.GaussianBlur(raw, (0, 0), 1.2)  # over all polarizers
    pictures = {
        "gray": gray,
        "scaled": cv2.resize(gray, (1700, 1422), interpolation=cv2.INTER_AREA),
        "jpeg": cv2.imdecode(cv2.imencode(".jpg", gray)[1], cv2.IMREAD_UNCHANGED),
        "angle": angles[0][:1000],
        "quad": np.vstack([np.hstack(angles[:2]), np.hstack(angles[2:])]),
    }
    for kind, picture in pictures.items():
        assert causes(RawFrame(np.ascontiguousarray(picture), 255)) == ["mosaic"], kind


@pytest.mark.parametrize(("name", "sensor", "phase"), pairs_of(SCENES, (MONO, COLOR), range(4)))
def test_pictures_of_a_bayer_camera_are_not_mosaics(name: str, sensor: str, phase: int) -> None:
    light = stokes_of(name, True)[..., 0] / 2
    colors = np.roll([[0, 1], [1, 2]], divmod(phase, 2), (0, 1))
    raw = np.take_along_axis(light, np.tile(colors, (SHAPE[0] // 2, SHAPE[1] // 2))[..., np.newaxis], 2)[..., 0]
    noisy = np.random.default_rng(0).poisson(10_500 * raw) / 10_500
    assert causes(RawFrame(np.clip(np.rint(255 * noisy), 0, 255).astype(np.uint8), 255), sensor) == ["mosaic"]


@pytest.mark.parametrize("sensor", [MONO, "IMX253MZR"])
def test_half_and_quarter_of_the_sensor(sensor: str) -> None:
    height, width = SENSORS[sensor].size
    for divisor in (2, 4):
        shape = height // divisor, width // divisor
        raw = np.random.default_rng(0).integers(20, 200, shape).astype(np.uint8)
        assert causes(RawFrame(raw, 255), sensor) == ["size"]
        assert causes(RawFrame(raw, 255), sensor, roi_offset=(2, 0)) == []
        assert causes(RawFrame(raw[:-2], 255), sensor) == []


@pytest.mark.parametrize(
    ("sensor", "size", "offset", "expected"),
    [
        (MONO, (2448, 2048), (1, 0), ["size"]),
        (MONO, (2448, 2048), (0, 1), ["size"]),
        (MONO, (2448, 2048), (60000, 60000), ["size"]),
        (MONO, (640, 480), (1840, 0), ["size"]),
        (COLOR, (2448, 2048), (2, 0), ["size"]),
        (MONO, (640, 480), (1808, 1568), []),
        (MONO, (640, 480), (1807, 1567), []),
        (MONO, (2448, 2048), (8, 8), []),  # cameras with 2464x2056 pixels
        ("IMX253MZR", (4096, 3000), (8, 4), []),
        ("90 45 / 135 0", (640, 480), (5001, 0), []),  # a sensor of unknown size
    ],
)
def test_a_frame_that_ends_beyond_the_sensor(
    sensor: str, size: Tuple[int, int], offset: Tuple[int, int], expected: List[str]
) -> None:
    raw = np.random.default_rng(0).integers(20, 200, size[::-1]).astype(np.uint8)
    assert causes(RawFrame(raw, 255), sensor, roi_offset=offset) == expected


def test_a_size_that_is_turned() -> None:
    height, width = SENSORS[MONO].size
    raw = np.random.default_rng(0).integers(20, 200, (width, height)).astype(np.uint8)
    assert causes(RawFrame(raw, 255)) == ["size"]


@pytest.mark.parametrize("sensor", [MONO, COLOR])
@pytest.mark.parametrize(
    ("written", "read", "share"),
    [(*names, share) for names in (("12p", "12Packed"), ("12Packed", "12p")) for share in (1, 0.5, 0.3, 0.1, 0.02)]
    + [("16", ">u2", 1), ("16", ">u2", 0.1)],
)
def test_bytes_that_are_read_in_another_way(written: str, read: str, share: float, sensor: str) -> None:
    """The right reading of the same pixels, also of dark ones, has no such warning."""
    rng = np.random.default_rng(0)
    raw = share * 16.0 * scene("plastic", sensor)
    raw = np.clip(np.rint(raw + rng.normal(8, 2 + np.sqrt(raw) / 2)), 0, 4095).astype(np.uint16)
    if written == "16":
        right: Frame = RawFrame(raw << 4, 65535)
        wrong: Frame = RawFrame((raw << 4).byteswap(), 65535)
    else:
        rows = np.frombuffer(pack(raw, FORMATS[written]), np.uint8).reshape(len(raw), -1)
        right, wrong = (PackedFrame(rows, FORMATS[name], raw.shape[1]) for name in (written, read))
    assert "encoding" not in causes(right, sensor)
    assert causes(wrong, sensor) == ["encoding"]


@pytest.mark.parametrize("aolp", [22.5, 112.5])
@pytest.mark.parametrize("packing", ["12p", "12Packed", "10Packed"])
def test_no_warning_about_the_packing_of_a_display(packing: str, aolp: float) -> None:
    """Between polarized light at 22.5 degrees and its columns of 0 and 45 degrees, the contrast is 5.8."""
    rng = np.random.default_rng(0)
    y, x = np.mgrid[:256, :256]
    text = np.kron(rng.random((32, 32)) > 0.5, np.ones((8, 8))) * 0.9 + 0.02
    angle = np.array([[90, 45], [135, 0]])[y % 2, x % 2]
    light = text / 2 * (1 + np.cos(2 * np.radians(angle - aolp)))
    top = (1 << FORMATS[packing].bits) - 1
    raw = np.rint(np.clip(rng.poisson(light * 10_000) / 10_000, 0, 1) * top).astype(np.uint16)
    rows = np.frombuffer(pack(raw, FORMATS[packing]), np.uint8).reshape(256, -1)
    assert "encoding" not in causes(PackedFrame(rows, FORMATS[packing], 256))


def exposed(light: np.ndarray, bits: int) -> np.ndarray:
    """Light from 0 to 1 with shot noise, in so many bits."""
    top = (1 << bits) - 1
    electrons = np.random.default_rng(0).poisson(10_500 * light)
    return np.rint(np.minimum(electrons / 10_500, 1) * top).astype(np.uint16)


@pytest.mark.parametrize("share", [1, 0.6, 0.5, 0.35, 0.25])
@pytest.mark.parametrize("name", REAL_FRAMES)
def test_bytes_of_real_frames_at_other_exposures(name: str, share: float) -> None:
    """In the other packing and in the other byte order, whatever depth an option states; not in the right one."""
    light = share * real_frame(name)[:1000, :1200] / 255
    raw = exposed(light, 12)
    for right, wrong in (("12p", "12Packed"), ("12Packed", "12p")):
        rows = np.frombuffer(pack(raw, FORMATS[right]), np.uint8).reshape(len(raw), -1)
        assert "encoding" not in causes(PackedFrame(rows, FORMATS[right], raw.shape[1]))
        assert causes(PackedFrame(rows, FORMATS[wrong], raw.shape[1])) == ["encoding"]
    for bits, shift in ((12, 0), (12, 4), (10, 0), (10, 6), (14, 0), (14, 2), (15, 0), (8, 4)):
        swapped = (exposed(light, bits) << shift).astype(np.uint16)
        assert "encoding" not in causes(RawFrame(swapped, 65535))
        if np.mean(swapped > 255) < 0.002:  # numbers of 8 bits look alike in both orders
            continue
        for depth in (0, bits, 16):
            full_scale = ((1 << (depth or 16)) - 1) << (shift if depth == bits else 0)
            frame = RawFrame(swapped.byteswap(), full_scale)
            assert causes(frame, bit_depth=depth) == ["encoding"], (bits, shift, depth)


@pytest.mark.parametrize("electrons", [0, 10_500])
@pytest.mark.parametrize("side", [2, 3, 4, 5, 6, 7, 8])
def test_no_warning_about_the_bytes_of_stripes_and_displays(side: int, electrons: int) -> None:
    """Stripes, checkerboards and text on displays of any polarization, with noise and without."""
    y, x = np.mgrid[:256, :258]
    text = np.kron(np.random.default_rng(0).random((130, 130)) > 0.5, np.ones((side, side)))[:256, :258]
    angle = np.array([[90, 45], [135, 0]])[y % 2, x % 2]
    for pattern in (x // side % 2, y // side % 2, (x // side + y // side) % 2, text):
        for dolp, aolp, low, share in product((0, 0.5, 1), (0, 22.5, 60), (0.02, 0.4), (1, 0.3, 0.1)):
            light = share * np.where(pattern > 0, 0.95, low) / 2 * (1 + dolp * np.cos(2 * np.radians(angle - aolp)))
            raw = exposed(light, 12) if electrons else np.rint(4095 * light).astype(np.uint16)
            for packing in ("12p", "12Packed"):
                rows = np.frombuffer(pack(raw, FORMATS[packing]), np.uint8).reshape(256, -1)
                assert not list(_byte_warnings(PackedFrame(rows, FORMATS[packing], 258))), (dolp, aolp, low, share)
            for shift in (0, 4):
                shifted = (raw << shift).astype(np.uint16)
                assert not has_swapped_bytes(shifted, used_bits(shifted)), (dolp, aolp, low, share)


@pytest.mark.parametrize("numbers", [[0xFF0F], [0xFF0F, 0x100, 0x4203], [0xF0FF, 0x1020], [0, 0xFFFF], [0]])
def test_few_numbers_do_not_show_their_byte_order(numbers: List[int]) -> None:
    raw = np.resize(np.array(numbers, np.uint16), (64, 65))
    assert not has_swapped_bytes(raw, used_bits(raw))


def test_a_line_of_metadata_does_not_look_like_swapped_bytes() -> None:
    """8 bits in the high ones; the camera wrote a counter into some pixels of the first row."""
    raw = scene("plastic", MONO).astype(np.uint16) << 8
    raw[0, :16] += 15
    assert "encoding" not in causes(RawFrame(raw, 65535))


def test_angle_images_in_the_other_byte_order() -> None:
    low = np.random.default_rng(0).integers(0, 16, (512, 512)).astype(np.uint16)
    raw = (16 * scene("plastic", MONO).astype(np.uint16)[:512, :512] + low) << 4
    planes = np.stack([raw[1::2, 1::2], raw[::2, 1::2], raw[::2, ::2], raw[1::2, ::2]], -1)
    options = make_options(MONO)
    right, wrong = (RawFrame.of_angles(images, options.sensor, 65535, "") for images in (planes, planes.byteswap()))
    assert "encoding" not in causes(right)
    assert causes(wrong) == ["encoding"]


@pytest.mark.parametrize("side", [16, 17, 24, 48, 64, 100])
@pytest.mark.parametrize("bits", ["8", "12", "12p", "10p", "10Packed"])
def test_small_frames(side: int, bits: str) -> None:
    """Frames too small for most checks, of both sensors, are random numbers without a warning."""
    rng = np.random.default_rng(side)
    top = 255 if bits == "8" else (1 << FORMATS[bits].bits) - 1
    raw = rng.integers(0, top + 1, (side, side + 3)).astype(np.uint8 if bits == "8" else np.uint16)
    frame: Frame = RawFrame(raw, top)
    if bits[-1] not in "82":
        frame = PackedFrame(
            np.frombuffer(pack(raw, FORMATS[bits]), np.uint8).reshape(side, -1), FORMATS[bits], side + 3
        )
    assert causes(frame) == causes(frame, COLOR) == []


@pytest.mark.parametrize("shape", [(48, 56), (56, 48)])
def test_a_line_of_few_pixels_may_have_one_value(shape: Tuple[int, int]) -> None:
    """A dark frame of few levels: by chance, all pixels of a column of 48 are alike."""
    raw = np.random.default_rng(0).integers(40, 44, shape).astype(np.uint8)
    raw[:, 4] = raw[4] = 41
    assert causes(RawFrame(raw, 255)) == []


def test_documents_name_every_cause() -> None:
    """Every cause of this module's table is in docs/robustness.md."""
    text = (ROOT / "docs" / "robustness.md").read_text(encoding="utf-8")
    for cause in {cause for _, expected in FAULTS.values() for cause in expected} | {"size", "mosaic", "layout"}:
        assert f"\n| `{cause}` |" in text, cause
