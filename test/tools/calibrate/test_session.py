"""Sessions of pictures and of recordings: the same frames in any form give the same calibration."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Tuple, Union

import cv2
import numpy as np
import pytest
from sessions import record

from polar_pipeline.calibration import Calibration
from polar_pipeline.calibration.correction import correction_for
from polar_pipeline.options import make_options
from polar_pipeline.recordings import messages
from polar_pipeline.recordings.limits import SourceError
from polar_pipeline.recordings.recompress import compress_recording
from polar_pipeline.recordings.sink import open_sink
from polar_pipeline.sensor.frames import FrameError
from polar_pipeline.sensor.mosaic import SENSORS
from polar_pipeline.tools.calibrate.anglefile import read_angles
from polar_pipeline.tools.calibrate.estimate import calibrate
from polar_pipeline.tools.calibrate.plateaus import Plateau, find_plateaus
from polar_pipeline.tools.calibrate.session import add_frames, open_sessions
from polar_pipeline.tools.calibrate.simulation import Bench, Deviations, simulate_sensor, synthetic_session
from polar_pipeline.tools.calibrate.sums import DARK

MONO = SENSORS["IMX250MZR"]
BENCH = Bench((0.0, 22.5, 45.0, 70.0, 90.0, 112.5, 135.0, 160.0), 2, 4)
SHAPE = (32, 48)
CAMERA = simulate_sensor(MONO, SHAPE, 1)
FRAMES = list(synthetic_session(CAMERA, BENCH, 12, 1))
EXPECTED = calibrate(record(CAMERA, BENCH), {str(k): a for k, a in enumerate(BENCH.angles)}, MONO)


def write(path: Path, mosaic: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".npy":
        np.save(str(path), mosaic)
    else:
        assert cv2.imwrite(str(path), mosaic)


def calibrated(
    path: Union[Path, List[Path]], table: Optional[Path] = None, are_unknown: bool = False, **options: Any
) -> Tuple[Calibration, Dict[str, Optional[float]]]:
    chosen = make_options(**{"bit_depth": 12, **options})
    paths = [path] if isinstance(path, Path) else path
    with open_sessions(paths, chosen, table, not are_unknown) as session:
        sums = add_frames(session.frames, chosen)
        return calibrate(sums, session.angles, chosen.sensor, chosen.roi_offset).calibration, session.angles


def same_pixels(found: Calibration) -> None:
    """The same parameters: sums in another order, or of other scale, differ in the last bits, which can turn a code."""
    expected = EXPECTED.calibration
    np.testing.assert_allclose(found.scales, expected.scales, rtol=1e-6)
    for one, other, scale in zip(found.parameters(), expected.parameters(), expected.scales):
        np.testing.assert_allclose(one, other, rtol=0, atol=1.001 * scale.step)
    assert np.mean(found.codes == expected.codes) > 0.99


LAYOUTS: Dict[str, Callable[[int, int], str]] = {
    "files": lambda setting, k: f"light/{BENCH.angles[setting]:05.1f}_{k}.png" if setting >= 0 else f"dark/{k}.png",
    "folders": lambda setting, k: f"angle_{BENCH.angles[setting]:05.1f}/{k}.tiff" if setting >= 0 else f"DARK/{k}.tif",
    "one folder": lambda setting, k: f"{BENCH.angles[setting]:05.1f}deg_{k}.pgm" if setting >= 0 else f"dark_{k}.pgm",
    "arrays": lambda setting, k: f"light/pol{BENCH.angles[setting]:05.1f}/{k}.npy" if setting >= 0 else f"dark/{k}.npy",
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_folders_of_pictures(layout: str, tmp_path: Path) -> None:
    for setting, number, mosaic in FRAMES:
        write(tmp_path / LAYOUTS[layout](setting, number), mosaic)
    write(tmp_path / "test" / "another.png", FRAMES[0][2])
    (tmp_path / "notes.txt").write_text("no picture", encoding="utf-8")
    found, angles = calibrated(tmp_path)
    assert list(angles.values()) == list(BENCH.angles)
    same_pixels(found)


def test_high_bits(tmp_path: Path) -> None:
    """Without the alignment, an error says what is missing."""
    for setting, number, mosaic in FRAMES:
        write(tmp_path / LAYOUTS["files"](setting, number), mosaic << 4)
    for bits, message in ((0, "--bit-depth 12 --alignment msb"), (12, "above full scale 4095: give --alignment msb")):
        with pytest.raises(ValueError, match=message):
            calibrated(tmp_path, bit_depth=bits)
    found, _ = calibrated(tmp_path, alignment="msb")
    same_pixels(found)
    # what rounding adds to the noise is taken away by the size of a level, which is 16 here
    assert found.facts["noise"] == pytest.approx(EXPECTED.calibration.facts["noise"], rel=1e-3)


def test_names_of_settings_with_unknown_angles(tmp_path: Path) -> None:
    for setting, number, mosaic in FRAMES:
        name = f"light/step{setting}/{number}.png" if setting >= 0 else f"dark/{number}.png"
        write(tmp_path / name, mosaic)
    with pytest.raises(ValueError, match=r"'step0' names no angle: .*045\.0_3\.png.*--angles unknown"):
        calibrated(tmp_path)
    found, angles = calibrated(tmp_path, are_unknown=True)
    assert angles == {f"step{k}": None for k in range(8)}
    measured = np.array(found.facts["angles"])
    # 1536 deviations of 0.8 degrees have a mean of 0.02; the noise of 8 settings of 2 frames comes on top
    assert np.abs((measured - BENCH.angles + 90) % 180 - 90).max() < 0.15
    assert found.facts["angles_known"] is False


@pytest.mark.parametrize("is_dark_listed", [True, False])
def test_tables_of_pictures(is_dark_listed: bool, tmp_path: Path) -> None:
    rows = ["file,angle"]
    for setting, number, mosaic in FRAMES:
        name = f"dark/{number}.png" if setting < 0 else f"shots/{setting}_{number}.png"
        write(tmp_path / name, mosaic)
        if setting >= 0:
            rows.append(f"{name}, {BENCH.angles[setting]}")
    if is_dark_listed:
        rows.insert(1, "dark, Dark")
    (tmp_path / "angles.csv").write_text("\n".join(rows), encoding="utf-8")
    found, angles = calibrated(tmp_path)
    assert list(angles.values()) == list(BENCH.angles)
    same_pixels(found)


def test_a_table_of_folders_with_one_known_angle(tmp_path: Path) -> None:
    for setting, number, mosaic in FRAMES:
        write(tmp_path / (f"dark/{number}.png" if setting < 0 else f"{'abcdefgh'[setting]}/{number}.png"), mosaic)
    rows = [f"{letter},{'unknown' if letter != 'c' else 50}" for letter in "abcdefgh"]
    table = tmp_path / "my angles.csv"
    table.write_text("\n".join(["file,angle", *rows]), encoding="utf-8")
    found, angles = calibrated(tmp_path, table)
    assert [angle for angle in angles.values() if angle is not None] == [50.0]
    measured = np.array(found.facts["angles"])
    assert np.abs((measured - BENCH.angles - 5 + 90) % 180 - 90).max() < 0.2


def test_a_table_with_an_empty_folder(tmp_path: Path) -> None:
    write(tmp_path / "045" / "0.png", FRAMES[0][2])
    (tmp_path / "090").mkdir()
    (tmp_path / "angles.csv").write_text("file,angle\n045,45\n090,90\n", encoding="utf-8")
    with pytest.raises(SourceError, match="090, in the table of angles, holds no pictures"):
        calibrated(tmp_path)


@pytest.mark.parametrize(
    ("name", "angle"),
    [("-15.000", -15), ("+15", 15), ("_15", 15), ("angle-15", 15), ("angle_-15", -15), ("Pol 7.5_deg", 7.5)],
)
def test_angles_in_names(name: str, angle: float, tmp_path: Path) -> None:
    """`capture --angle -15` writes the first one."""
    write(tmp_path / name / "0.png", FRAMES[0][2])
    with open_sessions([tmp_path], make_options(bit_depth=12)) as session:
        assert session.angles == {name: angle}


def test_several_sessions_are_one(tmp_path: Path) -> None:
    """Half of the settings and of the dark frames in each."""
    for setting, number, mosaic in FRAMES:
        is_later = setting > 3 or (setting < 0 and number > 1)
        write(tmp_path / "ab"[is_later] / LAYOUTS["files"](setting, number), mosaic)
    names = [f"2/{angle:05.1f}" for angle in BENCH.angles[4:]]
    paths = [tmp_path / "a", tmp_path / "b"]
    found, angles = calibrated(paths)
    assert list(angles.items()) == [*((f"{a:05.1f}", a) for a in BENCH.angles[:4]), *zip(names, BENCH.angles[4:])]
    assert [found.facts[name] for name in ("settings", "frames", "dark_frames")] == [8, 16, 4]
    np.testing.assert_array_equal(found.codes & 0xFF, EXPECTED.calibration.codes & 0xFF)  # black levels
    with pytest.raises(ValueError, match=r"a table of angles is of one folder or recording: put angles\.csv into each"):
        calibrated(paths, tmp_path / "angles.csv")
    write(tmp_path / "b" / "dark" / "9.png", np.zeros((32, 40), np.uint16))
    with pytest.raises(FrameError, match=r"b/dark/9\.png: all frames must have 48x32 pixels, got 40x32"):
        calibrated(paths)


@pytest.mark.parametrize(
    ("names", "settings"),
    [
        (("flat/0.png", "flat/1.png"), {"flat": 2}),
        (("flat/low_0.png", "flat/high_0.png", "Flat/high_1.png"), {"flat/low": 1, "flat/high": 2}),
        (("flat/1/0.png", "flat/2/0.png", "flat/2/1.png"), {"flat/1": 1, "flat/2": 2}),
        (("flat_0.png", "flat_1.png", "light/flat5_0.png"), {"flat": 2, "flat5": 1}),
        (("unpolarized/0.png", "unpolarized/1.png"), {"unpolarized": 2}),
    ],
    ids=lambda value: str(value[0]) if isinstance(value, tuple) else "",
)
def test_light_without_a_polarizer(names: Tuple[str, ...], settings: Dict[str, int], tmp_path: Path) -> None:
    for name in (*names, "dark/0.png", "045.0/0.png"):
        write(tmp_path / name, np.zeros(SHAPE, np.uint16))
    options = make_options(bit_depth=12)
    with open_sessions([tmp_path, tmp_path], options) as session:
        sums = add_frames(session.frames, options)
    every = {**settings, **{f"2/{name}": count for name, count in settings.items()}}
    assert {name: one.count for name, one in sums.flat.items()} == every
    assert list(sums.light) == ["045.0", "2/045.0"]
    assert sums.dark.count == 2
    assert session.angles == {"045.0": 45.0, "2/045.0": 45.0, **dict.fromkeys(every)}


# --------------------------------------------------------------------------------------------------------- recordings


def recording(path: Path, encoding: str = "mono16", mosaics: Optional[List[np.ndarray]] = None) -> Path:
    """The frames as messages, 10 a second."""
    channels = 1 if encoding == "mono16" else 4
    with open_sink(path, {}) as sink:
        for index, mosaic in enumerate(mosaics or [mosaic for _, _, mosaic in FRAMES]):
            stamp = 10**18 + index * 10**8
            cdr = messages.encode_image(stamp, "cam", encoding, mosaic.reshape(SHAPE[0], -1, channels))
            sink.write("/images", messages.IMAGE, stamp, cdr)
    return path


def spans(columns: str, scale: float, reach: float) -> str:
    rows = [f"0,{3 * scale + reach:g},dark"]
    for setting, angle in enumerate(BENCH.angles):
        first = 4 + 2 * setting
        rows.append(f"{first * scale - reach:g},{(first + 1) * scale + reach:g},{angle}")
    return "\n".join([columns, *rows])


@pytest.mark.parametrize("is_compressed", [False, True])
@pytest.mark.parametrize(
    ("columns", "scale", "reach"), [("first,last,angle", 1, 0), ("start,end,angle", 0.1, 0.04)], ids=["frames", "times"]
)
def test_recordings(columns: str, scale: float, reach: float, is_compressed: bool, tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    table.write_text(spans(columns, scale, reach), encoding="utf-8")
    path = recording(tmp_path / "in.mcap")
    if is_compressed:
        compress_recording(path, tmp_path / "compressed.mcap")
        path = tmp_path / "compressed.mcap"
    found, angles = calibrated(path, table)
    assert list(angles.values()) == list(BENCH.angles)
    same_pixels(found)


@pytest.mark.parametrize(
    ("columns", "row", "name"),
    [("first,last,angle", "7,6,45", "7 to 6"), ("start,end,angle", "60,61,dark", "60 to 61")],
)
def test_rows_without_frames(columns: str, row: str, name: str, tmp_path: Path) -> None:
    """The limits in the wrong order, or beyond the end; another row of the same angle does not hide it."""
    path, table = recording(tmp_path / "in.mcap"), tmp_path / "table.csv"
    table.write_text(f"{columns}\n0,3,45\n{row}\n", encoding="utf-8")
    options = make_options(bit_depth=12)
    with open_sessions([path], options, table) as session, pytest.raises(ValueError, match=f"is from '{name}'"):
        add_frames(session.frames, options)


def test_frames_of_ready_angles_are_refused(tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    table.write_text(spans("first,last,angle", 1, 0), encoding="utf-8")
    path = recording(tmp_path / "in.mcap", encoding="PolarizedQuadMono16")
    with pytest.raises(FrameError, match="a calibration is of a sensor's mosaic"):
        calibrated(path, table)


def test_tables_name_light_without_a_polarizer(tmp_path: Path) -> None:
    path, table = recording(tmp_path / "in.mcap"), tmp_path / "table.csv"
    table.write_text("first,last,angle\n0,3,dark\n4,5,Flat\n6,8,20\n9,9,unknown\n", encoding="utf-8")
    options = make_options(bit_depth=12)
    with open_sessions([path], options, table) as session:
        sums = add_frames(session.frames, options)
    assert session.angles == {"flat/4 to 5": None, "20": 20.0, "9 to 9": None}
    assert {name: one.count for name, one in sums.settings.items()} == {
        "dark": 4,
        "flat/4 to 5": 2,
        "20": 3,
        "9 to 9": 1,
    }


def turned_by_hand() -> Tuple[List[np.ndarray], Dict[str, Tuple[int, Optional[float]]]]:
    """Mosaics of a recording; of each setting its number of frames and the angle (None of light without polarizer)."""
    rng = np.random.default_rng(4)
    mosaics: List[np.ndarray] = []
    settings: Dict[str, Tuple[int, Optional[float]]] = {}

    def add(count: int, level: float, angle: float = 0.0, dolp: float = 1.0) -> str:
        """Record frames of one kind of light, and name them by their times: they come every 0.1 s."""
        turn = np.deg2rad(2 * angle)
        stokes = level * np.array([1, dolp * np.cos(turn), dolp * np.sin(turn)])
        mosaics.extend(CAMERA.expose(stokes, 12, rng) for _ in range(count))
        return f"{len(mosaics) / 10 - count / 10:.1f} to {len(mosaics) / 10 - 0.1:.1f} s"

    add(9, 0.0)  # cap on
    for level in (0.004, 0.05, 0.3):  # while it is taken off
        add(1, level)
    for k, angle in enumerate((*BENCH.angles, 0.0)):
        settings[add(6 + k % 3, 0.8, angle)] = (6 + k % 3, angle)
        for part in (1, 4, 9, 14):  # the polarizer turns
            add(1, 0.8, angle + part)
    add(12, 0.015, 20.0)  # a hand before the lens
    add(1, 0.5)
    name = add(7, 0.7, 30.0, 0.05)  # without the polarizer
    settings[f"flat/{name}"] = (7, None)
    add(5, 0.0)
    return mosaics, settings


def test_settings_of_a_recording_are_its_plateaus(tmp_path: Path) -> None:
    mosaics, expected = turned_by_hand()
    path = recording(tmp_path / "in.mcap", mosaics=mosaics)
    options = make_options(bit_depth=12)
    with open_sessions([path], options) as session:
        sums = add_frames(session.frames, options)
    assert session.total == len(mosaics)
    assert session.angles == dict.fromkeys(expected)
    assert sums.dark.count == 9 + 5
    assert {name: sums.settings[name].count for name in expected} == {name: row[0] for name, row in expected.items()}
    found = calibrate(sums, session.angles, MONO).calibration
    measured = np.array(found.facts["angles"])
    given = np.array([angle for _, angle in expected.values() if angle is not None])
    # 1536 deviations of 0.8 degrees have a mean of 0.02; that of the noise of 6 frames is 0.03 degrees at each setting
    assert np.abs((measured - given + 90) % 180 - 90).max() < 0.15


def light(angles: np.ndarray, dolp: float = 1.0, level: float = 0.4) -> np.ndarray:
    """Means (N, 2, 2) of the pixels of MONO behind a polarizer at these angles, by Malus's law."""
    tile = np.deg2rad([[90.0, 45.0], [135.0, 0.0]])
    return level * (1 + dolp * np.cos(2 * (np.deg2rad(angles)[:, np.newaxis, np.newaxis] - tile)))


def steps(pause: int = 0) -> np.ndarray:
    """Angles of a polarizer that rests for 40 frames and turns for 24, five times, with a pause within each turn."""
    turn = 20 * np.arange(0.5, 24) / 24
    turn = np.insert(turn, 10, np.full(pause, turn[10]))
    return np.concatenate([20 * k + np.r_[np.zeros(40), turn] for k in range(5)])


@pytest.mark.parametrize("kind", ["noise", "flicker", "lamp that fades", "pauses", "steady"])
def test_plateaus_of_constant_light(kind: str) -> None:
    """Frames of steps of 0.8 degrees are in no plateau; noise allows one such frame at each end."""
    rng = np.random.default_rng(0)
    pause = 8 if kind == "pauses" else 0  # the hand takes a new grip
    expected = [((64 + pause) * k, (64 + pause) * k + 39) for k in range(5)]
    frames = light(steps(pause))
    if kind == "noise":
        frames = frames * rng.normal(1, 1e-3, frames.shape)
    elif kind == "flicker":
        frames = frames * rng.normal(1, 0.02, (len(frames), 1, 1))
    elif kind == "lamp that fades":
        frames = frames * np.linspace(1, 0.95, len(frames))[:, np.newaxis, np.newaxis]
    found = find_plateaus(frames)
    assert [one.kind for one in found] == [""] * 5
    np.testing.assert_allclose([(one.first, one.last) for one in found], expected, atol=kind == "noise")


@pytest.mark.parametrize("speed", [0.01, 0.5, 8.0])
def test_light_that_is_never_constant_is_refused(speed: float) -> None:
    """Degrees a frame: slowly, every few frames are alike; at half a degree, none."""
    with pytest.raises(ValueError, match=r"never constant for 4 frames|at most 100 are allowed: turn"):
        find_plateaus(light(speed * np.arange(3000)))


@pytest.mark.parametrize("black", [0.0, 0.008])
def test_a_recording_with_the_cap_on_is_dark(black: float) -> None:
    frames = np.random.default_rng(1).normal(black, 1e-5, (30, 2, 2))
    assert find_plateaus(frames) == [Plateau(0, 29, DARK)]


def test_a_recording_needs_a_table_of_frames(tmp_path: Path) -> None:
    path = recording(tmp_path / "in.mcap")
    with pytest.raises(ValueError, match=r"never constant for 4 frames.* or give a table .*--angles FILE\.csv"):
        calibrated(path)  # it has 2 frames at each angle
    table = tmp_path / "table.csv"
    table.write_text("file,angle\nx.png,0\n", encoding="utf-8")
    with pytest.raises(ValueError, match="columns first, last and angle, or start, end and angle"):
        calibrated(path, table)


# ------------------------------------------------------------------------------------------------------------ readout


@pytest.mark.parametrize("flip", [(True, False), (False, True), (True, True)])
@pytest.mark.parametrize("offset", [(0, 0), (3, 6)])
@pytest.mark.parametrize("name", ["IMX250MZR", "IMX250MYR"])
def test_flipped_frames_of_a_region(
    name: str, offset: Tuple[int, int], flip: Tuple[bool, bool], tmp_path: Path
) -> None:
    """The calibration is in the order of the sensor's readout, and fits frames in that of the camera's."""
    sensor = SENSORS[name]
    camera = simulate_sensor(sensor.as_read_out(offset), SHAPE, 2, Deviations(defects=0.005))
    turn = (slice(None, None, -1 if flip[1] else 1), slice(None, None, -1 if flip[0] else 1))
    for setting, number, mosaic in synthetic_session(camera, BENCH, 12, 1):
        write(tmp_path / LAYOUTS["files"](setting, number), mosaic[turn])
    found, _ = calibrated(tmp_path, sensor=name, roi_offset=offset, flip=flip)
    assert (found.sensor, found.offset, found.shape) == (sensor, offset, SHAPE)
    bench_angles: Dict[str, Optional[float]] = {str(k): a for k, a in enumerate(BENCH.angles)}
    straight = calibrate(record(camera, BENCH), bench_angles, sensor, offset)
    np.testing.assert_array_equal(found.codes, straight.calibration.codes)
    np.testing.assert_array_equal(found.defects, np.argwhere(camera.defects))
    used = correction_for(found, offset, flip, SHAPE)
    good = np.ones(SHAPE, bool)
    good[used.defects] = False
    mirrored = camera.black[turn]
    assert np.abs(used.parameters().black - mirrored)[good].max() < 0.001  # black levels deviate by up to 0.006


# ------------------------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "first line must be one of file,angle; first,last,angle; start,end,angle"),
        ("angle,file\n1,2\n", "got 'angle,file'"),
        ("file,angle\n", "it has no rows"),
        ("file,angle\na.png,north\n", "line 2: a number is expected, got 'north'"),
        ("file,angle\na.png,nan\n", "line 2: a number is expected, got 'nan'"),
        ("file,angle\na.png,1,2\n", "line 2: 2 values expected, got 3"),
        ("file,angle\na.png,10\nb.png,361\n", "line 3: an angle must be -360 to 360 degrees"),
        ("first,last,angle\nx,3,10\n", "line 2: a number is expected, got 'x'"),
        ("file,angle\n\xff\xfe,1\n", "cannot be read"),
    ],
)
def test_tables_that_are_none_are_refused(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "angles.csv"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(ValueError, match=message) as error:
        read_angles(path)
    assert str(path) in str(error.value)


def test_sessions_that_are_none_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="does not exist"):
        calibrated(tmp_path / "nothing")
    with pytest.raises(SourceError, match="holds no pictures"):
        calibrated(tmp_path)
    (tmp_path / "angles.csv").write_text("file,angle\na.png,0\n", encoding="utf-8")
    with pytest.raises(SourceError, match=r"a\.png, in the table of angles, does not exist"):
        calibrated(tmp_path)
    (tmp_path / "angles.csv").write_text("first,last,angle\n0,1,0\n", encoding="utf-8")
    with pytest.raises(ValueError, match="has columns file and angle"):
        calibrated(tmp_path)


@pytest.mark.parametrize(
    ("second", "message"),
    [
        (np.zeros((32, 40), np.uint16), r"b\.png: all frames must have 48x32 pixels, got 40x32"),
        (np.zeros(SHAPE, np.uint8), r"b\.png: all frames must have full scale 4095, got 255"),
        (np.arange(3, dtype=np.uint8) + np.zeros((*SHAPE, 3), np.uint8), r"b\.png: pixels must be mosaics"),
    ],
)
def test_frames_that_do_not_fit_are_refused(second: np.ndarray, message: str, tmp_path: Path) -> None:
    write(tmp_path / "dark" / "a.png", np.zeros(SHAPE, np.uint16))
    write(tmp_path / "dark" / "b.png", second)
    with pytest.raises(FrameError, match=message):
        calibrated(tmp_path)


def test_a_broken_frame_of_a_session_is_named(tmp_path: Path, caplog: Any) -> None:
    """One frame of three has a copied row; dark frames are dark without a warning."""
    rng = np.random.default_rng(0)
    for name, level in (("dark", 5), ("000", 120), ("090", 100)):
        (tmp_path / name).mkdir()
        raw = rng.normal(level, 2, (128, 128)).astype(np.uint8)
        if name == "090":
            raw[51] = raw[50]
        cv2.imwrite(str(tmp_path / name / "0.png"), raw)
    options = make_options("IMX250MZR")
    with open_sessions([tmp_path], options) as session:
        add_frames(session.frames, options)
    (line,) = (record.getMessage() for record in caplog.records)
    assert line.startswith(f"lines: {tmp_path / '090' / '0.png'}: 1 row (51) equal to another one")
