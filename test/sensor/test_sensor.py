"""Mosaics, raw pixel formats and the forward model, against hand-made answers and by properties."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, List, Tuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from polar_pipeline.options import make_options
from polar_pipeline.sensor.encodings import get_format
from polar_pipeline.sensor.forward import expose
from polar_pipeline.sensor.frames import FORMATS, RawFormat, as_frame, frame_from_buffer, pack
from polar_pipeline.sensor.mosaic import (
    ANGLES,
    CAMERA_MODELS,
    CHANNELS,
    SENSORS,
    Sensor,
    get_sensor,
    parse_tile,
    sensor_of_model,
)

MONO, COLOR = SENSORS["IMX250MZR"], SENSORS["IMX250MYR"]
#: The eight valid 2x2 tiles: an angle, its row neighbor, and below them what is orthogonal to their diagonals.
TILES = [f"{a} {b} / {(b + 90) % 180} {(a + 90) % 180}" for a in ANGLES for b in ANGLES if (a - b) % 90]

sides = st.integers(16, 37)
tiles = st.sampled_from([MONO, COLOR, *map(parse_tile, TILES)])


def labels(sensor: Sensor, shape: Tuple[int, int]) -> np.ndarray:
    """(H, W) unique number per kind of pixel: polarizer angle plus 1000 per color."""
    return np.array(
        [
            [ANGLES[sensor.angle_index(r, c)] + 1000 * sensor.color_index(r, c) for c in range(shape[1])]
            for r in range(shape[0])
        ]
    )


# --------------------------------------------------------------------------------------------------------------- tiles


_MZR = [[90, 45], [135, 0]]
#: Numbers of `labels`: red, 1000 for green, 2000 for blue.
_MYR = [[90, 45, 1090, 1045], [135, 0, 1135, 1000], [1090, 1045, 2090, 2045], [1135, 1000, 2135, 2000]]
#: Every sensor: its tile and the size of its frames in the manuals, electrons at full scale and read noise.
MANUALS = {
    "IMX250MZR": (_MZR, (2048, 2448), 10_500, 2.4),
    "IMX250MYR": (_MYR, (2048, 2448), 10_500, 2.4),
    "IMX264MZR": (_MZR, (2048, 2448), 10_500, 2.4),
    "IMX264MYR": (_MYR, (2048, 2448), 10_500, 2.4),
    "IMX253MZR": (_MZR, (3000, 4096), 10_500, 2.4),
    "IMX253MYR": (_MYR, (3000, 4096), 10_500, 2.4),
}


def test_known_sensors_are_those_of_the_manuals() -> None:
    assert set(SENSORS) == set(MANUALS)
    for name, (tile, size, full_well, read_noise) in MANUALS.items():
        sensor = SENSORS[name]
        assert (sensor.name, sensor.period) == (name, len(tile))
        assert labels(sensor, (len(tile), len(tile))).tolist() == tile
        assert sensor.size == make_options(name).largest_frame() == size
        assert (sensor.full_well, sensor.read_noise) == (full_well, read_noise)
    assert [MONO.position(angle) for angle in ANGLES] == [(1, 1), (0, 1), (0, 0), (1, 0)]


@given(
    tiles,
    st.tuples(st.integers(0, 9), st.integers(0, 9)),
    st.tuples(st.booleans(), st.booleans()),
    st.tuples(sides, sides),
)
def test_offsets_and_flips_move_the_tile_as_they_move_pixels(
    sensor: Sensor, offset: Tuple[int, int], flip: Tuple[bool, bool], shape: Tuple[int, int]
) -> None:
    x, y = offset
    frame = labels(sensor, (50, 50))[y : y + shape[0], x : x + shape[1]]
    frame = frame[:: -1 if flip[1] else 1, :: -1 if flip[0] else 1]
    sensor = replace(sensor, full_well=5000.0, read_noise=3.0)
    seen = sensor.as_read_out(offset, flip, shape)
    assert np.array_equal(labels(seen, shape), frame)
    assert (seen.full_well, seen.read_noise) == (5000.0, 3.0)
    # What is seen is itself a valid tile in the manuals' notation.
    names = [
        " ".join(
            (CHANNELS[seen.color_index(r, c)] if seen.is_color else "") + str(ANGLES[seen.angle_index(r, c)])
            for c in range(seen.period)
        )
        for r in range(seen.period)
    ]
    assert parse_tile(" / ".join(names), sensor.name).tile() == seen.tile()


@pytest.mark.parametrize("text", TILES)
def test_a_tile_is_a_sensor(text: str) -> None:
    assert get_sensor(text).angles == parse_tile(text).angles
    assert get_sensor(MONO) is MONO
    with pytest.raises(ValueError, match="offset must be >= 0"):
        get_sensor(text).as_read_out((0, -1))
    assert get_sensor(text).color_index(1, 2) == 0


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "expected a tile"),
        ("90 45", "expected a tile"),
        ("90 45 / 135", "expected a tile"),
        ("90 45 / 135 x", "expected a tile"),
        ("90 45 / 135 30", "each of"),
        ("90 90 / 135 0", "each of"),
        ("90 0 / 135 45", "orthogonal"),
        ("R90 R45 / R135 R0", "no colors"),
        ("90 45 90 45 / 135 0 135 0 / 90 45 90 45 / 135 0 135 0", "without a color"),
        ("R90 R45 G90 G45 / R135 R0 G135 G0 / G90 G45 B45 B90 / G135 G0 B135 B0", "does not repeat"),
        ("R90 R45 G90 G45 / R135 R0 G135 G0 / B90 B45 G90 G45 / B135 B0 G135 G0", "no Bayer pattern"),
        ("R90 R45 R90 R45 / R135 R0 R135 R0 / G90 G45 B90 B45 / G135 G0 B135 B0", "no Bayer pattern"),
    ],
)
def test_wrong_tiles_are_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_tile(text)
    with pytest.raises(ValueError, match=f"{', '.join(SENSORS)} or a tile"):
        get_sensor(text)


@pytest.mark.parametrize(
    ("model", "sensor"),
    [
        ("TRI050S-P", "IMX250MZR"),
        ("TRI050S-Q", "IMX250MYR"),
        ("PHX050S-QC", "IMX250MYR"),
        ("PHX050S1-P", "IMX264MZR"),
        ("TRI050S1-QC", "IMX264MYR"),
        ("TRI050S-C", ""),
        ("TRI050S-PX", ""),
        ("Blackfly S BFS-U3-51S5P", "IMX250MZR"),
        ("BFS-PGE-51S5P-C", "IMX250MZR"),
        ("Blackfly S BFS-U3-51S5PC", "IMX250MYR"),
        ("BFS-U3-51S5PC-C", "IMX250MYR"),
        ("Blackfly S BFS-PGE-123S6P", "IMX253MZR"),
        ("Blackfly S BFS-U3-51S5M", ""),
        ("DZK 33UX250", "IMX250MZR"),
        ("DYK 33GX250", "IMX250MYR"),
        ("DMK 33UX250", ""),
        ("VCXU-50MP", "IMX250MZR"),
        ("VCXU-50M", ""),
        ("GO-5100MP-PGE", "IMX250MZR"),
        ("GO-5100M-PGE", ""),
        ("Mako G-508B POL", "IMX250MZR"),
        ("Mako G-508B", ""),
        ("XCG-CP510", "IMX250MZR"),
        ("XCG-CG510", ""),
        ("PL-D755MU-POL", "IMX250MZR"),
        ("", ""),
    ],
)
def test_a_model_of_a_camera_names_its_sensor(model: str, sensor: str) -> None:
    """A model with a wrong or without a sensor of polarizers is refused: it is neither guessed nor corrected."""
    assert sensor_of_model(model) == sensor_of_model(model.upper()) == sensor
    if sensor:
        assert get_sensor(model) is get_sensor(model.lower()) is SENSORS[sensor]
    else:
        with pytest.raises(ValueError, match="or the model of a camera such as"):
            get_sensor(model)


def test_sensors_are_named_in_any_case_and_corrected_if_misspelled() -> None:
    assert set(CAMERA_MODELS.values()) <= set(SENSORS)
    for name, sensor in SENSORS.items():
        assert get_sensor(name) is get_sensor(name.lower()) is get_sensor(name.title()) is sensor
    for word, meant in (("imx250mrz", "IMX250MZR"), ("IMX250", "IMX250MZR or IMX250MYR"), ("tri050-p", "TRI050S-P")):
        with pytest.raises(ValueError, match=f"did you mean .*{meant}"):
            get_sensor(word)


# --------------------------------------------------------------------------------------------------------- pixel names


def test_bit_depth_and_alignment_of_16_bit_pixels() -> None:
    assert get_format("mono16", 12) == RawFormat(12, "u16", 0)
    assert get_format("mono16", 12, "msb") == RawFormat(12, "u16", 4)
    assert get_format("polarized_angles_0d_45d_90d_135d_mono16", 12) == RawFormat(12, "u16", channels=4)
    assert get_format("Mono10", 0, "msb") == RawFormat(10, "u16", 6)
    assert get_format("mono8", 12, "msb") == RawFormat(8, "u8", 0)
    assert [RawFormat(8, "u8").full_scale, RawFormat(12, "p").full_scale] == [255, 4095]
    assert RawFormat(12, "u16", 4).full_scale == 0xFFF0


# ------------------------------------------------------------------------------------------------------------- packing

#: Format -> the bytes of a few pixels, worked out by hand from PFNC and GigE Vision.
EXAMPLES = [
    ("Mono8", {}, [0x00, 0x7F, 0xFF], "00 7f ff"),
    ("Mono12p", {}, [0xABC, 0x123], "bc 3a 12"),
    ("Mono12Packed", {}, [0xABC, 0x123], "ab 3c 12"),
    ("Mono10p", {}, [0x2A5, 0x15A, 0x3C3, 0x03C], "a5 6a 35 3c 0f"),
    ("Mono10Packed", {}, [0x2A5, 0x15A], "a9 21 56"),
    ("Mono12", {}, [0xABC, 0x123], "bc 0a 23 01"),
    ("mono16", {}, [0xABCD, 0x0001], "cd ab 01 00"),
]


@pytest.mark.parametrize(("encoding", "options", "pixels", "text"), EXAMPLES)
def test_packings_byte_by_byte(encoding: str, options: Any, pixels: List[int], text: str) -> None:
    fmt = get_format(encoding, **options)
    repeats = 48 // len(pixels)
    data = bytes.fromhex(text) * (repeats * 16)
    frame = frame_from_buffer(data, fmt, 16, len(pixels) * repeats).unpack()
    expected = np.tile(pixels, (16, repeats))
    assert np.array_equal(frame.mosaic, expected)
    assert frame.mosaic.dtype == (np.uint8 if encoding == "Mono8" else np.uint16)
    assert frame.full_scale == (1 << fmt.bits) - 1
    assert pack(expected, fmt) == data


def test_msb_alignment_and_byte_order() -> None:
    fmt = get_format("mono16", 12, "msb")
    little = frame_from_buffer(bytes.fromhex("c0ab") * 256, fmt, 16, 16).unpack()
    big = frame_from_buffer(bytes.fromhex("abc0") * 256, fmt, 16, 16, big_endian=True).unpack()
    for frame in (little, big):
        assert (frame.mosaic == 0xABC0).all()
        assert frame.full_scale == 0xFFF0
        assert frame.mosaic.dtype == np.uint16
        assert frame.mosaic.dtype.isnative


@pytest.mark.parametrize("start", [0, 1])
def test_eight_and_sixteen_bit_pixels_are_views_where_memory_allows(start: int) -> None:
    data = np.arange(16 * 32 + 2, dtype=np.uint16).view(np.uint8)[start:]
    assert np.shares_memory(frame_from_buffer(data[: 16 * 32], FORMATS["8"], 16, 32).unpack().mosaic, data)
    wide = frame_from_buffer(data[: 16 * 64], FORMATS["16"], 16, 32).unpack().mosaic
    expected = np.frombuffer(data.tobytes()[: 16 * 64], "<u2").reshape(16, 32)
    assert np.array_equal(wide, expected)
    assert wide.flags.aligned
    assert np.shares_memory(wide, data) == (start == 0)


def test_as_frame() -> None:
    assert as_frame(np.zeros((16, 16), np.uint8)).full_scale == 255
    assert as_frame(np.zeros((16, 16), np.uint16)).full_scale == 65535
    assert as_frame(np.zeros((16, 16), np.uint16), 4095).full_scale == 4095


# ------------------------------------------------------------------------------------------------------- forward model


@given(tiles, sides, sides, st.integers(8, 16), st.integers(0))
def test_a_scene_is_recorded_by_malus_law(sensor: Sensor, height: int, width: int, bit_depth: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    size = (height, width, 3) if sensor.is_color else (height, width)
    light, degree, angle = rng.uniform(0, 0.6, size), rng.uniform(0, 1, size), rng.uniform(0, np.pi, size)
    stokes = (
        2
        * light[..., np.newaxis]
        * np.stack([np.ones(size), degree * np.cos(2 * angle), degree * np.sin(2 * angle)], -1)
    )
    raw = expose(stokes, sensor, bit_depth)
    top = 2**bit_depth - 1
    for row, column in [(0, 0), (1, 0), (0, 1), (1, 1), (height - 1, width - 1), (2, 3), (7, 2)]:
        at: Tuple[int, ...] = (row, column)
        if sensor.is_color:
            at = (row, column, sensor.color_index(row, column))
        theta = np.deg2rad(ANGLES[sensor.angle_index(row, column)])
        # An unpolarized half passes any polarizer by 1/2, the polarized part by cos^2 of the angle between.
        passed = 2 * light[at] * ((1 - degree[at]) / 2 + degree[at] * np.cos(theta - angle[at]) ** 2)
        # Half a level of rounding; beyond full scale the pixel saturates.
        assert abs(raw[row, column] - min(passed, 1) * top) <= 0.5 + 1e-6
    assert raw.dtype == (np.uint8 if bit_depth == 8 else np.uint16)


def test_noise_has_the_variance_of_photons_and_readout() -> None:
    full_well, read_noise, level = 10_000.0, 20.0, 0.25
    stokes = np.broadcast_to([2 * level, 0.0, 0.0], (200, 200, 3))
    raw = expose(stokes, MONO, 16, full_well, read_noise, np.random.default_rng(1)) / 65535
    variance = level / full_well + (read_noise / full_well) ** 2
    # 40,000 samples: the mean is known to sqrt(variance)/200, the variance to sqrt(2)/200; five sigma each.
    assert abs(raw.mean() - level) < 5 * np.sqrt(variance) / 200
    assert abs(raw.var() / variance - 1) < 5 * np.sqrt(2) / 200


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"stokes": np.zeros((16, 16, 3, 3))}, "must have shape"),
        ({"sensor": COLOR}, "must have shape"),
        ({"bit_depth": 7}, "bit_depth"),
        ({"bit_depth": 17}, "bit_depth"),
        ({"full_well": 1000.0}, "needs rng"),
    ],
)
def test_impossible_exposures_are_refused(arguments: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        expose(**{"stokes": np.zeros((16, 16, 3)), "sensor": MONO, **arguments})
