"""Calibrations: what they hold, their files, and what a frame needs of them."""

from __future__ import annotations

import gc
import hashlib
import itertools
import json
import os
import weakref
import zipfile
from pathlib import Path
from typing import Any, Dict, Tuple

import numpy as np
import pytest
from calibrations import ideal_calibration, some_calibration
from hypothesis import given, settings
from hypothesis import strategies as st
from sessions import corrected, superpixels
from support import examples

from polar_pipeline import Pipeline
from polar_pipeline.calibration import Calibration, PixelParameters, correction, load_calibration, save_calibration
from polar_pipeline.calibration.correction import correction_for
from polar_pipeline.calibration.file import load_calibration_once
from polar_pipeline.calibration.quantization import FIELDS, Scale, dequantize
from polar_pipeline.options import make_options
from polar_pipeline.sensor.forward import nominal_angles
from polar_pipeline.sensor.frames import FrameError, RawFrame
from polar_pipeline.sensor.mosaic import ANGLES, SENSORS, Sensor, parse_tile
from polar_pipeline.tools.calibrate.simulation import simulate_sensor

MONO, COLOR = SENSORS["IMX250MZR"], SENSORS["IMX250MYR"]

# -------------------------------------------------------------------------------------------------------- quantization


def test_fields_by_hand() -> None:
    """0x80 | 0x155 << 8 | 0x2a << 18 | 0x55 << 25, by the layout that the documentation states."""
    scales = (Scale(0, 1), Scale(100, 0.5), Scale(-1, 0.25), Scale(2, 2))
    code = np.array([[0x80 + 0x155 * 256 + 0x2A * 2**18 + 0x55 * 2**25]], np.uint32)
    assert [image.item() for image in dequantize(code, scales)] == [128, 100 + 341 / 2, -1 + 42 / 4, 2 + 170]


@pytest.mark.parametrize("offset", [(0, 0), (3, 2)])
def test_terms_are_those_of_the_own_polarizer(offset: Tuple[int, int]) -> None:
    """By hand: the Stokes vector along a polarizer of 45 degrees is (S2, -S1), and of 90 degrees (-S1, -S2)."""
    own_other = {0: (0.01, 0.03), 45: (0.03, -0.01), 90: (-0.01, -0.03), 135: (-0.03, 0.01)}
    ideal = ideal_calibration(MONO, (16, 16)).parameters()
    given = ideal._replace(e1=np.full((16, 16), 0.01), e2=np.full((16, 16), 0.03))
    found = Calibration.from_parameters(given, MONO, offset)
    terms = dequantize(found.codes, found.scales)[2:]
    for y, x in itertools.product(range(2), repeat=2):
        angle = MONO.angles[(y + offset[1]) % 2][(x + offset[0]) % 2]
        np.testing.assert_allclose([term[y, x] for term in terms], own_other[angle], atol=0.06 / 127 / 2)


@pytest.mark.parametrize("rotation", [0.0, 8.0])
def test_rounding_does_not_depend_on_a_rotation(rotation: float) -> None:
    """Errors of DoLP at 0.9 by rounding alone: of a whole sensor that is rotated, and of one that is not.

    The other term of 24576 pixels has a range of 8 standard deviations of sin(1.6 degrees)/2, and steps of 1/127 of
    that. Their error of 0.0009/sqrt(12) times 0.9/sqrt(2), the light over all directions, is 0.00016 of S0. DoLP is
    off by 0.00016 due to S1 and S2, and by 0.9 times 0.00016 due to S0. With the other numbers that is 0.00023.
    """
    camera = simulate_sensor(MONO, (128, 192), 3)
    angles, m = nominal_angles(MONO, (128, 192)), (camera.extinction - 1) / (camera.extinction + 1)
    turn = 2 * (angles + np.deg2rad(camera.deviation + rotation))
    analyzer = np.stack([m * np.cos(turn), m * np.sin(turn)], -1)
    wanted = np.stack([np.cos(2 * angles), np.sin(2 * angles)], -1)
    four = {angle: analyzer[r::2, c::2] for angle in ANGLES for r, c in [MONO.position(angle)]}
    matrix = np.stack([four[0] - four[90], four[45] - four[135]], -2) / 2  # (S1, S2) of z = matrix (S1, S2)
    inverse = np.linalg.inv(matrix).repeat(2, 0).repeat(2, 1)
    e1, e2 = np.moveaxis(((wanted - analyzer)[..., np.newaxis, :] / 2 @ inverse)[..., 0, :], -1, 0)
    exact = PixelParameters(camera.black, 1 / camera.gain, e1, e2)
    rounded = Calibration.from_parameters(exact, MONO).parameters()
    for parameters, bound in ((exact, 1e-12), (rounded, 3e-4)):
        errors = []
        for aolp in np.deg2rad(np.arange(0, 180, 22.5)):
            stokes = 0.9 * np.array([np.cos(2 * aolp), np.sin(2 * aolp)])
            light = camera.black + camera.gain * (1 + analyzer @ stokes) / 2
            s0, s1, s2 = superpixels(corrected(light, parameters, camera), camera)
            errors.append(np.hypot(s1, s2) / s0 - 0.9)
        assert np.sqrt(np.mean(np.square(errors))) < bound


# ---------------------------------------------------------------------------------------------------------- the record


def test_parameters_come_back() -> None:
    shape = (20, 24)
    rng = np.random.default_rng(2)
    given = PixelParameters(*(rng.normal(mean, 0.1, shape) for mean in (0, 1, 0, 0)))
    bad = np.zeros(shape, bool)
    bad[3, 5] = True
    given.gain[3, 5] = np.nan  # of a pixel that is not used
    found = Calibration.from_parameters(given, MONO, (3, 4), bad, 10, {"temperature": 31.5})
    assert found.defects.tolist() == [[3, 5]]
    widest = 2 * max(np.abs(image[~bad]).max() for image in (given.e1, given.e2))  # range of terms at any angle
    widths = (np.ptp(given.black[~bad]), np.ptp(given.gain[~bad]), widest, widest)
    for (_, bits), wanted, got, width in zip(FIELDS, given, found.parameters(), widths):
        assert np.abs(wanted - got)[~bad].max() <= width / (2**bits - 1) / 2 * (1 + 1e-6)  # half a step
    assert (found.shape, found.offset, found.bit_depth, found.facts) == (shape, (3, 4), 10, {"temperature": 31.5})
    assert "IMX250MZR, 24x20 pixels from (3, 4), sha256 " in repr(found)
    with pytest.raises(ValueError, match="read-only"):
        found.codes[0, 0] = 1


def test_digests_tell_calibrations_apart() -> None:
    first = some_calibration(MONO)
    same, other = some_calibration(MONO), some_calibration(MONO, seed=1)
    assert first == same
    assert hash(first) == hash(same)
    assert first != other
    facts = Calibration(MONO, (0, 0), first.codes, first.scales, first.defects, 12, {"exposure": 3})
    assert facts != first
    assert first != "text"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"gain": np.full((16, 16), np.nan)}, "gain must be finite numbers of 16x16 pixels"),
        ({"e1": np.zeros((16, 17))}, "e1 must be finite numbers of 16x16 pixels"),
        ({"gain": np.full((16, 16), 1e6)}, r"gain must be in \[0\.1, 10\.0\], got 1e\+06 to 1e\+06"),
    ],
)
def test_parameters_that_are_refused(change: Dict[str, Any], message: str) -> None:
    parameters = ideal_calibration(MONO, (16, 16)).parameters()
    with pytest.raises(ValueError, match=message):
        Calibration.from_parameters(parameters._replace(**change), MONO)


def test_too_many_defects() -> None:
    parameters = ideal_calibration(MONO, (20, 20)).parameters()
    with pytest.raises(ValueError, match=r"at most 2% of the pixels can be defective, got 2\.2%"):
        Calibration.from_parameters(parameters, MONO, (0, 0), np.arange(400).reshape(20, 20) < 9)


# --------------------------------------------------------------------------------------------------------------- files


@pytest.fixture(name="path")
def fixture_path(tmp_path: Path) -> Path:
    path = tmp_path / "sensor.npz"
    save_calibration(path, some_calibration(COLOR, offset=(4, 8)))
    return path


@pytest.mark.parametrize(
    "sensor",
    [
        COLOR,
        parse_tile("135 0 / 90 45", "mine"),
        parse_tile("R0 R45 G0 G45 / R135 R90 G135 G90 / G0 G45 B0 B45 / G135 G90 B135 B90", "mine"),
    ],
    ids=lambda sensor: sensor.tile(),
)
def test_files_come_back(sensor: Sensor, tmp_path: Path) -> None:
    """With at most 4 bytes a pixel, the header included."""
    path, calibration = tmp_path / "sensor.npz", some_calibration(sensor, (512, 612), offset=(4, 8))
    save_calibration(path, calibration)
    found = load_calibration(path)
    assert (found, found.sensor, found.offset) == (calibration, sensor, (4, 8))
    assert path.stat().st_size <= 4 * 512 * 612


def test_files_are_not_replaced_by_accident(path: Path) -> None:
    before = path.read_bytes()
    with pytest.raises(FileExistsError):
        save_calibration(path, some_calibration(MONO))
    assert path.read_bytes() == before
    save_calibration(path, some_calibration(MONO), force=True)
    assert load_calibration(path).sensor == MONO


#: Scales of a sensor without deviations.
IDEAL = ([0.0, 0.0], [1.0, 0.0], [0.0, 0.0], [0.0, 0.0])


def rewrite(path: Path, is_signed: bool = False, **changes: Any) -> None:
    with np.load(str(path)) as found:
        arrays = {name: found[name] for name in found.files}
    header = json.loads(arrays["header"].tobytes())
    for name, value in changes.items():
        if name in arrays:
            arrays[name] = value
        else:
            header[name] = value
    if "digest" not in changes and is_signed:
        content = {name: value for name, value in header.items() if name not in ("version", "digest")}
        arrays_of = b"".join(arrays[name].tobytes() for name in ("codes", "defects"))
        header["digest"] = hashlib.sha256(json.dumps(content, sort_keys=True).encode() + arrays_of).hexdigest()
    if "header" not in changes:
        arrays["header"] = np.frombuffer(json.dumps(header).encode(), np.uint8)
    with path.open("wb") as stream:
        np.savez(stream, **{name: value for name, value in arrays.items() if value is not None})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"version": 3}, "its format has version 3, this release reads up to 2"),
        ({"version": "x"}, "no calibration: its header has no version"),
        ({"digest": "0" * 64}, "it is damaged: its digest does not fit its content"),
        ({"bit_depth": 10}, "it is damaged"),
        ({"codes": np.zeros((96, 112), np.uint32)}, "it is damaged"),
        ({"codes": np.zeros((96, 112), np.int64)}, r"codes must be \(H, W\) uint32, got int64"),
        ({"codes": np.zeros((2, 112), np.uint32)}, r"codes must be \(H, W\) uint32, got uint32 \(2, 112\)"),
        ({"codes": np.array([[None]], object)}, "cannot be read"),
        ({"defects": np.array([[96, 0]], np.int32)}, "defects must be places within the image"),
        ({"defects": np.array([[-1, 0]], np.int32)}, "defects must be places within the image"),
        ({"defects": np.zeros(2, np.int32)}, r"defects must be \(n, 2\) int32, got int32 \(2,\)"),
        ({"defects": None}, "no calibration: it holds other things"),
        ({"defects": np.zeros((300, 2), np.int32)}, r"at most 2% of the pixels can be defective, got 2\.8%"),
        ({"scales": [[0, 1]] * 3}, "scales must be 4 pairs of numbers, got 3"),
        ({"scales": [["x", 1]] * 4}, "scales must be a number, got 'x'"),
        ({"scales": [[0, -0.001], *IDEAL[1:]]}, r"black must be in \[-1\.0, 1\.0\], got 0 to -0\.255"),
        ({"scales": [[-1.5, 0], *IDEAL[1:]]}, r"black must be in \[-1\.0, 1\.0\], got -1\.5 to -1\.5"),
        ({"scales": [IDEAL[0], [1, 1e6], *IDEAL[2:]]}, r"gain must be in \[0\.1, 10\.0\], got 1 to 1\.023e\+09"),
        ({"scales": [IDEAL[0], [float("nan"), 0], *IDEAL[2:]]}, r"gain must be in \[0\.1, 10\.0\], got nan to nan"),
        ({"scales": [IDEAL[0], [10**400, 0], *IDEAL[2:]]}, r"gain must be in \[0\.1, 10\.0\], got inf to inf"),
        ({"scales": [*IDEAL[:2], [-1, 0.016], IDEAL[3]]}, r"own term must be in \[-1\.0, 1\.0\], got -1 to 1\.032"),
        ({"scales": [*IDEAL[:3], [-2, 0.01]]}, r"other term must be in \[-1\.0, 1\.0\], got -2 to -0\.73"),
        ({"bit_depth": 17}, r"bit_depth must be in \[8, 16\], got 17"),
        ({"bit_depth": "12"}, "bit_depth must be a number, got '12'"),
        ({"facts": []}, r"facts must be a JSON object, got \[\]"),
        ({"facts": {"noise": 5}}, "noise must be a full_well and a read_noise, got 5"),
        ({"facts": {"noise": {"full_well": 1000}}}, "read_noise must be a number, got None"),
        ({"facts": {"noise": {"full_well": 10**400, "read_noise": 1}}}, r"full_well must be in \[10\.0, 10000000\.0\]"),
        (
            {"facts": {"noise": {"full_well": 0, "read_noise": 1}}},
            r"full_well must be in \[10\.0, 10000000\.0\], got 0",
        ),
        ({"facts": {"noise": {"full_well": 900, "read_noise": 1e9}}}, r"read_noise must be in \[0, 900\.0\]"),
        ({"facts": {"noise": {"full_well": 900, "read_noise": -1}}}, r"read_noise must be in \[0, 900\.0\], got -1"),
        ({"offset": [-1, 0]}, r"offset must be in \[0, 65535\], got -1"),
        ({"offset": [0, 1.5]}, r"offset must be a whole number, got 1\.5"),
        ({"offset": 3}, "cannot be read"),
        ({"sensor": "\x1b[2J"}, r"its sensor's name must be short and printable, got '.x1b\[2J'"),
        ({"sensor": "x" * 5000}, "its sensor's name must be short and printable, got 'xxx"),
        ({"tile": "90 45 / 0 135"}, "diagonal neighbors must be orthogonal"),
        ({"header": np.frombuffer(b"[1]", np.uint8)}, "its header has no version"),
        ({"header": np.frombuffer(b"{", np.uint8)}, "cannot be read"),
    ],
)
def test_files_that_are_refused(changes: Dict[str, Any], message: str, path: Path) -> None:
    rewrite(path, **changes)
    with pytest.raises(ValueError, match=message) as found:
        load_calibration(path)
    assert str(found.value).startswith(str(path))
    assert "\n" not in str(found.value)


#: What JSON can hold, numbers beyond all floats included.
NONSENSE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.just(10**400) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=4,
)
#: Numbers, many of them in the range of a sensor's parameters.
NUMBERS = st.floats(-0.1, 1.1) | st.floats()
SCALES = st.tuples(*(st.just(scale) | st.tuples(NUMBERS, st.floats(0, 0.001) | NUMBERS) for scale in IDEAL))
NOISE = st.fixed_dictionaries({"full_well": st.floats(0, 1e8) | NONSENSE, "read_noise": NUMBERS | NONSENSE})
FIELDS_OF_HEADER = {
    "sensor": st.text(max_size=5) | NONSENSE,
    "tile": st.sampled_from([MONO.tile(), "135 0 / 90 45"]) | NONSENSE,
    "offset": st.lists(st.integers(-1, 10), min_size=2, max_size=2) | NONSENSE,
    "scales": SCALES | NONSENSE,
    "bit_depth": st.integers(7, 17) | NONSENSE,
    "facts": st.fixed_dictionaries({"noise": NOISE}) | NONSENSE,
}


@settings(max_examples=examples(250), deadline=None)
@given(changes=st.one_of([st.fixed_dictionaries({name: values}) for name, values in FIELDS_OF_HEADER.items()]))
def test_any_header_gives_a_usable_calibration_or_is_refused(
    changes: Dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.npz"
    save_calibration(path, some_calibration(COLOR, (24, 32)), force=True)
    rewrite(path, is_signed=True, **changes)
    said = ""
    try:
        found = load_calibration(path)
    except ValueError as err:
        said = str(err)
    if said:
        assert said.startswith(f"{path} cannot be read: ")
        return
    given: Dict[str, Any] = {"calibration": found, "roi_offset": found.offset, "backend": "cpu"}
    with Pipeline(found.sensor, "intensity,dolp_sigma", **given) as pipeline:
        result = pipeline(np.full((24, 32), 100, np.uint8))
    assert (np.abs(result["intensity"] - 0.5) <= 0.5).all()
    assert not np.isinf(result["dolp_sigma"]).any()  # it is NaN where nothing is left above the black level


def test_a_header_without_a_field(path: Path) -> None:
    with np.load(str(path)) as found:
        header = json.loads(found["header"].tobytes())
    for name in header:
        rest = json.dumps({key: value for key, value in header.items() if key != name}).encode()
        rewrite(path, header=np.frombuffer(rest, np.uint8))
        with pytest.raises(ValueError, match="cannot be read"):
            load_calibration(path)


def test_files_of_version_1_are_read_with_a_note(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Their codes are those of e1 and e2; what is loaded has their digest, and is saved with one of its own."""
    written = load_calibration(path)
    assert not caplog.messages
    rewrite(path, version=1)
    found = load_calibration(path)
    text = "was made by version 1.0 or older, whose correction of large rotations is of first order: calibrate again"
    assert caplog.messages == [f"{path} {text}"]
    assert found.digest == written.digest
    good = np.ones(found.shape, bool)
    good[tuple(written.defects.T)] = False
    steps = [scale.step for scale in found.scales]
    for got, wanted, step in zip(
        found.parameters(), dequantize(written.codes, written.scales), (*steps[:2], *[max(steps[2:])] * 2)
    ):
        assert np.abs(got - wanted)[good].max() <= step / 2 * (1 + 1e-6)
    save_calibration(path, found, force=True)
    caplog.clear()
    again = load_calibration(path)
    assert not caplog.messages
    np.testing.assert_array_equal(again.codes, found.codes)
    assert (again.scales, again.offset, again.sensor) == (found.scales, found.offset, found.sensor)


def test_damaged_files(path: Path) -> None:
    """A file that is cut is refused; so is a changed byte, or it has no effect, as in a date of the archive."""
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    refused = 0
    for place in rng.integers(0, len(whole), 60):
        path.write_bytes(whole[:place])
        with pytest.raises(ValueError, match="cannot be read"):
            load_calibration(path)
        changed = bytearray(whole)
        changed[place] ^= 0xFF
        path.write_bytes(changed)
        try:
            assert load_calibration(path) == some_calibration(COLOR, offset=(4, 8))
        except ValueError:
            refused += 1
    assert refused > 50


def test_no_file(tmp_path: Path) -> None:
    """A pipe would wait for a writer, and the node with it."""
    (tmp_path / "other.npz").write_bytes(b"no archive at all" * 100)
    os.mkfifo(str(tmp_path / "pipe.npz"))
    paths = dict.fromkeys((tmp_path / "pipe.npz", Path(os.devnull), tmp_path), "it is not a regular file")
    for path, said in {**paths, tmp_path / "none.npz": "", tmp_path / "other.npz": "", Path("a\0b"): ""}.items():
        for load in (load_calibration, load_calibration_once):
            with pytest.raises(ValueError, match=f"cannot be read: {said}"):
                load(path)


def test_members_are_not_unpacked_without_limit(tmp_path: Path) -> None:
    """A gigabyte of zeros takes a megabyte in the archive."""
    path = tmp_path / "bomb.npz"
    with path.open("wb") as stream:
        empty = np.zeros(0, np.uint8)
        np.savez_compressed(stream, header=np.zeros(2 << 20, np.uint8), codes=empty, defects=empty)
    with pytest.raises(ValueError, match=r"header has 2097280 bytes, at most 1048576 are allowed"):
        load_calibration(path)
    with zipfile.ZipFile(str(path), "w", zipfile.ZIP_DEFLATED) as archive:
        for name, size in (("header", 10), ("codes", 5 << 24), ("defects", 10)):
            archive.writestr(f"{name}.npy", bytes(size))
    with pytest.raises(ValueError, match=rf"codes has {5 << 24} bytes, at most {4 << 24} are allowed"):
        load_calibration(path)


@pytest.mark.parametrize("member", [b"text", b"\x93NUMPY\x01\0\x12\0{'descr': '<u4', (\n"], ids=["text", "cut header"])
def test_members_that_are_no_arrays(member: bytes, tmp_path: Path) -> None:
    path = tmp_path / "sensor.npz"
    with zipfile.ZipFile(str(path), "w") as archive:
        for name in ("header", "codes", "defects"):
            archive.writestr(f"{name}.npy", member)
    with pytest.raises(ValueError, match=r"sensor.npz cannot be read: no calibration"):
        load_calibration(path)


def test_a_calibration_is_kept_as_long_as_it_is_in_use(tmp_path: Path) -> None:
    path = tmp_path / "sensor.npz"
    save_calibration(path, some_calibration(MONO))
    first = load_calibration_once(path)
    assert load_calibration_once(path) is first
    gone = weakref.ref(first)
    del first
    gc.collect()
    assert gone() is None
    save_calibration(path, some_calibration(MONO, seed=1), force=True)
    assert load_calibration_once(path) == some_calibration(MONO, seed=1)


# -------------------------------------------------------------------------------------------------------------- frames


@pytest.mark.parametrize("sensor", [MONO, COLOR], ids=["mono", "color"])
@pytest.mark.parametrize("flip", [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize("offset", [(4, 8), (7, 9), (5, 12)])
@pytest.mark.parametrize("shape", [(24, 32), (21, 27)])
def test_parameters_of_a_region(
    sensor: Any, flip: Tuple[bool, bool], offset: Tuple[int, int], shape: Tuple[int, int]
) -> None:
    """Pixel by pixel: where in the sensor's own readout a pixel of the frame lies."""
    calibration = some_calibration(sensor, (60, 64), (4, 8), defects=0)
    found = correction_for(calibration, offset, flip, shape)
    seen = sensor.as_read_out(offset, flip, shape)
    for y in range(shape[0]):
        for x in range(shape[1]):
            row = offset[1] + (shape[0] - 1 - y if flip[1] else y)
            column = offset[0] + (shape[1] - 1 - x if flip[0] else x)
            assert found.codes[y, x] == calibration.codes[row - 8, column - 4]
            assert seen.angle_index(y, x) == sensor.angle_index(row, column)
            pair = (y + found.phase[0]) // 2, (x + found.phase[1]) // 2
            if y and x:
                before = (y - 1 + found.phase[0]) // 2, (x - 1 + found.phase[1]) // 2
                above = offset[1] + (shape[0] - y if flip[1] else y - 1)
                left = offset[0] + (shape[1] - x if flip[0] else x - 1)
                assert (pair[0] == before[0]) == (row // 2 == above // 2)
                assert (pair[1] == before[1]) == (column // 2 == left // 2)


def test_corrections_are_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cameras of a rig take turns, each with its own calibration; and one whose frames change keeps the newest only."""
    made = []
    make = correction._make_correction
    monkeypatch.setattr(correction, "_make_correction", lambda *given: made.append(given) or make(*given))
    rig = [some_calibration(MONO, (40, 40), seed=seed) for seed in range(9)]
    for _ in range(3):
        for calibration in rig:
            correction_for(calibration, (0, 0), (False, False), (32, 32))
    assert len(made) == 9
    shapes = [(height, 32) for height in range(20, 30)]
    for shape in shapes:
        assert correction_for(rig[0], (0, 0), (False, False), shape).codes.shape == shape
    assert [shape for _, _, shape in rig[0].corrections] == shapes[-4:]


def test_pipelines_refuse_frames_beyond_the_calibration() -> None:
    calibration = some_calibration(MONO, (60, 64), (4, 8))
    with Pipeline(calibration=calibration, roi_offset=(5, 8), backend="cpu") as pipeline:
        for shape, message in (((60, 64), r"the frame has 64x60 from \(5, 8\)"), ((61, 16), "the frame has 16x61")):
            with pytest.raises(FrameError, match=message):
                pipeline(np.zeros(shape, np.uint8))
        assert pipeline(np.zeros((40, 40), np.uint8))["dolp"].shape == (20, 20), "the next good frame works"
    for offset in ((3, 8), (4, 7), (53, 8), (4, 53)):
        with pytest.raises(ValueError, match=r"roi_offset .* lies outside the calibration, which is of 64x60 pixels"):
            Pipeline(calibration=calibration, roi_offset=offset)


@pytest.mark.parametrize("sensor", [MONO, COLOR], ids=["mono", "color"])
def test_replacements(sensor: Any) -> None:
    """The nearest good pixel behind the same polarizer and color, found by looking at all of them."""
    shape = (40, 44)
    calibration = some_calibration(sensor, shape, defects=0.015)
    found = correction_for(calibration, (0, 0), (False, False), shape)
    bad = set(map(tuple, calibration.defects.tolist()))
    good = [(y, x) for y in range(shape[0]) for x in range(shape[1]) if (y, x) not in bad]

    def kind(y: int, x: int) -> Tuple[int, int]:
        return sensor.angle_index(y, x), sensor.color_index(y, x)

    assert len(found.defects[0]) == len(bad) > 10
    for row, column, y, x in zip(*found.defects, *found.sources):
        assert (row, column) in bad
        assert (y, x) not in bad
        assert kind(y, x) == kind(row, column)
        nearest = min((r - row) ** 2 + (c - column) ** 2 for r, c in good if kind(r, c) == kind(row, column))
        assert (y - row) ** 2 + (x - column) ** 2 == nearest
        assert found.codes[row, column] == calibration.codes[y, x]


def test_replaced_pixels() -> None:
    calibration = some_calibration(MONO, (32, 32))
    correction = correction_for(calibration, (0, 0), (True, False), (32, 32))
    frame = RawFrame(np.arange(1024, dtype=np.uint16).reshape(32, 32), 4095)
    before = frame.mosaic.copy()
    seen = correction.replace_defects(frame)
    np.testing.assert_array_equal(frame.mosaic, before)
    changed = np.argwhere(seen.mosaic != frame.mosaic)
    places = sorted([row, 31 - column] for row, column in calibration.defects.tolist())
    assert changed.tolist() == places
    clean = correction_for(some_calibration(MONO, (32, 32), defects=0), (0, 0), (False, False), (32, 32))
    assert clean.replace_defects(frame) is frame


@pytest.mark.parametrize("sensor", [MONO, COLOR], ids=["mono", "color"])
@pytest.mark.parametrize("resolution", ["half", "full"])
def test_a_cluster_of_defects_is_invalid(sensor: Sensor, resolution: str) -> None:
    """Clusters of 22x22 pixels in a corner and 38x38 inside have pixels with nothing good within 16 pixels."""
    shape = (400, 400)
    parameters = ideal_calibration(sensor, shape).parameters()
    bad = np.zeros(shape, bool)
    bad[:22, :22] = bad[200:238, 100:138] = True
    calibration = Calibration.from_parameters(parameters, sensor, (0, 0), bad)
    lost = correction_for(calibration, (0, 0), (False, False), shape).lost
    places = sorted(zip(*(axis.tolist() for axis in lost)))
    wanted = [at for at in np.argwhere(bad).tolist() if not _has_good_pixel(bad, sensor, *at)]
    assert places == [tuple(at) for at in wanted]
    assert {at[0] < 100 for at in wanted} == {True, False}

    raw = np.full(shape, 100, np.uint8)
    raw[bad] = 0
    given: Dict[str, Any] = {"sensor": sensor, "products": "dolp", "calibration": calibration, "resolution": resolution}
    with Pipeline(backend="cpu", **given) as pipeline:
        result = pipeline(raw)
    invalid = np.isnan(result["dolp"])
    half, reach = (2, 0) if resolution == "half" else (1, 1)
    touched = np.zeros((invalid.shape[0] + 2, invalid.shape[1] + 2), bool)
    for row, column in wanted:
        y, x = row // half + 1, column // half + 1
        touched[y - reach : y + reach + 1, x - reach : x + reach + 1] = True
    np.testing.assert_array_equal(invalid, touched[1:-1, 1:-1])
    assert result.invalid == (invalid.sum(), 0)


def _has_good_pixel(bad: np.ndarray, sensor: Sensor, row: int, column: int) -> bool:
    """Whether a good pixel of the same polarizer and color lies in the 33x33 pixels around a pixel."""
    top, left = max(row - 16, 0), max(column - 16, 0)
    around = np.argwhere(~bad[top : row + 17, left : column + 17]).tolist()
    kinds = {(sensor.angle_index(top + y, left + x), sensor.color_index(top + y, left + x)) for y, x in around}
    return (sensor.angle_index(row, column), sensor.color_index(row, column)) in kinds


# ------------------------------------------------------------------------------------------------------------- options


def test_the_calibration_of_another_sensor() -> None:
    with pytest.raises(ValueError, match=r"calibration is of a IMX250MYR \(R90 .*\), sensor is IMX250MZR \(90 45"):
        make_options("IMX250MZR", calibration=some_calibration(COLOR))
    options = make_options("90 45 / 135 0", calibration=some_calibration(MONO))
    assert options.calibration == some_calibration(MONO)
    assert make_options(calibration="").calibration is make_options(calibration=None).calibration is None


def test_a_path_or_the_calibration_itself(path: Path) -> None:
    for value in (path, str(path), load_calibration(path)):
        options = make_options("IMX250MYR", calibration=value, roi_offset=(4, 8))
        assert options.calibration == load_calibration(path)
        assert make_options(**options.arguments()) == options
