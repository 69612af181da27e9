"""Regions and binning that `camera_info` states: applied, checked against the options, or refused.

Frames are computed by hand from the sensor's tile; their messages are written by `fuzz.cdr`, recordings by the mcap
library.
"""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np
import pytest
from fuzz import cdr
from mcap.reader import make_reader
from mcap.writer import Writer

from polar_pipeline.calibration import Calibration, PixelParameters
from polar_pipeline.calibration.file import save_calibration
from polar_pipeline.cli.entry import main
from polar_pipeline.live.camera import CameraInput
from polar_pipeline.options import make_options
from polar_pipeline.recordings import messages
from polar_pipeline.recordings.source import open_source
from polar_pipeline.sensor.frames import FrameError
from polar_pipeline.sensor.mosaic import SENSORS
from polar_pipeline.tools.calibrate.session import open_sessions

SHAPE, WHOLE, PERIOD = (48, 64), (2048, 2448), 40_000_000
START = 1_700_000_000_000_000_000
TILES = {
    "IMX250MZR": "90 45 / 135 0",
    "IMX250MYR": "R90 R45 G90 G45 / R135 R0 G135 G0 / G90 G45 B90 B45 / G135 G0 B135 B0",
}
DOLP, AOLP = 0.5, 30.0


class Info(NamedTuple):
    """What a `camera_info` states; the region is x, y, width, height."""

    region: Tuple[int, int, int, int] = (0, 0, 0, 0)
    binning: Tuple[int, int] = (0, 0)
    size: Tuple[int, int] = WHOLE
    time: Optional[int] = None


def frame(offset: Tuple[int, int], sensor: str = "IMX250MZR", flip: Tuple[bool, bool] = (False, False)) -> np.ndarray:
    """Light of S0 1, DoLP 0.5 and AoLP 30 degrees as the region at this (x, y) of the sensor reads it out.

    Red, green and blue are of different brightness.
    """
    rows = [row.split() for row in TILES[sensor].split("/")]
    y, x = np.mgrid[: SHAPE[0], : SHAPE[1]] + np.array(offset[::-1])[:, None, None]
    cells = np.array(rows)[y % len(rows), x % len(rows)]
    level = {"R": 0.9, "G": 0.7, "B": 0.5}
    angle = np.array([float(cell.lstrip("RGB")) for cell in cells.ravel()]).reshape(SHAPE)
    light = np.array([level.get(cell[0], 1.0) for cell in cells.ravel()]).reshape(SHAPE)
    raw = np.rint(light * 120 * (1 + DOLP * np.cos(2 * np.deg2rad(AOLP - angle)))).astype(np.uint8)
    return raw[:: -1 if flip[1] else 1, :: -1 if flip[0] else 1]


def header(stamp: int) -> Any:
    return {"sec": stamp // 10**9, "nanosec": stamp % 10**9, "frame_id": b"cam"}


def image_message(stamp: int, raw: np.ndarray) -> bytes:
    encoding = b"mono8" if raw.ndim == 2 else b"PolarizedAngles_0d_45d_90d_135d_Mono8"
    size = {"height": raw.shape[0], "width": raw.shape[1], "encoding": encoding, "is_bigendian": 0}
    step = raw.nbytes // len(raw)
    return bytes(cdr.write("image", {**header(stamp), **size, "step": step, "data": raw.tobytes()}).data)


def record(path: Path, frames: Sequence[np.ndarray], infos: Sequence[Info]) -> Path:
    """A recording of frames and their calibrations, each one nanosecond before its frame or at its own time."""
    rows: List[Tuple[int, str, bytes]] = []
    for k, raw in enumerate(frames):
        rows.append((START + k * PERIOD, "/cam/image_raw", image_message(START + k * PERIOD, raw)))
    for k, info in enumerate(infos):
        time = START + k * PERIOD - 1 if info.time is None else info.time
        rows.append(
            (time, "/cam/camera_info", cdr.write_camera_info(info.region, info.binning, info.size, START + k * PERIOD))
        )
    with path.open("wb") as stream:
        writer = Writer(stream)
        writer.start()
        channels = {}
        for topic, kind in (("/cam/image_raw", "Image"), ("/cam/camera_info", "CameraInfo")):
            schema = writer.register_schema(f"sensor_msgs/msg/{kind}", "ros2msg", b"")
            channels[topic] = writer.register_channel(topic, "cdr", schema)
        for time, topic, data in sorted(rows):
            writer.add_message(channels[topic], time, data, time)
        writer.finish()
    return path


def light(path: Path, *arguments: str) -> Tuple[float, float, int]:
    """DoLP and AoLP in degrees that `replay` makes of a recording, without the border, and the number of frames."""
    out = path.with_name("out.mcap")
    assert main(["replay", str(path), "-o", str(out), "--force", "--backend", "cpu", *arguments]) == 0
    images = {"/polarization/dolp": [], "/polarization/aolp": []}  # type: ignore[var-annotated]
    with out.open("rb") as stream:
        for _, channel, row in make_reader(stream).iter_messages():
            if channel.topic in images:
                image = messages.decode_image(row.data)
                images[channel.topic].append(image.data.view("<f4").reshape(image.height, image.width)[4:-4, 4:-4])
    dolp, aolp = images.values()
    return float(np.median(dolp)), float(np.rad2deg(np.median(aolp))), len(dolp)


def is_right(found: Tuple[float, float, int]) -> bool:
    """Whether it is the light of `frame`; a level of 8 bit is 0.008 of DoLP and 0.3 degrees."""
    return abs(found[0] - DOLP) < 0.01 and abs(found[1] - AOLP) < 0.5


@pytest.mark.parametrize(
    ("sensor", "offset"),
    [("IMX250MZR", (101, 200)), ("IMX250MZR", (7, 9)), ("IMX250MYR", (6, 5)), ("IMX250MYR", (2, 0))],
)
@pytest.mark.parametrize("size", [WHOLE, (0, 0), SHAPE])
def test_the_region_is_taken(sensor: str, offset: Tuple[int, int], size: Tuple[int, int], tmp_path: Path) -> None:
    path = record(tmp_path / "in.mcap", [frame(offset, sensor)], [Info((*offset, *SHAPE[::-1]), size=size)])
    assert is_right(light(path, "--sensor", sensor))


@pytest.mark.parametrize("flip", [(True, False), (False, True), (True, True)])
@pytest.mark.parametrize("is_calibrated", [False, True])
def test_a_region_of_a_mirrored_picture(flip: Tuple[bool, bool], is_calibrated: bool, tmp_path: Path) -> None:
    """The message counts in the mirrored picture; a calibration needs the very pixels of the sensor."""
    mirrored = (101, 203)
    ends = zip(mirrored, SHAPE[::-1], WHOLE[::-1], flip)
    offset = tuple(whole - first - size if is_on else first for first, size, whole, is_on in ends)
    arguments = [name for name, is_on in zip(("--flip-x", "--flip-y"), flip) if is_on]
    if is_calibrated:
        ideal = PixelParameters(*(np.full(SHAPE, value) for value in (0.0, 1.0, 0.0, 0.0)))
        calibration = Calibration.from_parameters(ideal, SENSORS["IMX250MZR"], (offset[0], offset[1]), bit_depth=8)
        save_calibration(tmp_path / "sensor.npz", calibration)
        arguments += ["--calibration", str(tmp_path / "sensor.npz")]
    raw = frame((offset[0], offset[1]), flip=flip)
    path = record(tmp_path / "in.mcap", [raw], [Info((*mirrored, *SHAPE[::-1]))])
    assert is_right(light(path, *arguments))


@pytest.mark.parametrize(
    ("info", "arguments", "text"),
    [
        (Info((101, 200, 64, 48)), ("--roi-offset", "0", "0"), r"\(101, 200\).*--roi-offset.*\(0, 0\)"),
        (Info((101, 200, 64, 48)), ("--roi-offset", "101", "201"), r"\(101, 200\).*--roi-offset.*\(101, 201\)"),
        (Info((0, 0, 64, 48)), ("--roi-offset", "1", "0"), r"\(0, 0\).*--roi-offset.*\(1, 0\)"),
        (Info((101, 200, 62, 48)), (), "region of 62x48 from .*the frame has 64x48"),
        (Info(binning=(2, 2)), (), "binning of 2x2"),
        (Info((101, 200, 64, 48), (1, 2)), (), "binning of 1x2"),
    ],
)
def test_contradictions_are_refused(
    info: Info, arguments: Tuple[str, ...], text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = record(tmp_path / "in.mcap", [frame((101, 200))], [info])
    assert main(["replay", str(path), "-o", str(tmp_path / "out.mcap"), *arguments]) == 1
    error = capsys.readouterr().err
    assert re.search(rf"1 x region.*{text}", error), error
    assert not (tmp_path / "out.mcap").exists()


@pytest.mark.parametrize(
    ("info", "text"),
    [
        (Info((2440, 200, 64, 48)), "64x48 from (2440, 200) of a picture of 2448x2048"),
        (Info((100, 2001, 64, 48)), "64x48 from (100, 2001) of a picture of 2448x2048"),
        (Info(((1 << 32) - 2, 0, 64, 48)), "64x48 from (4294967294, 0) of a picture of 2448x2048"),
        (Info(((1 << 32) - 2, 0, 64, 48), size=(0, 0)), "64x48 from (4294967294, 0)"),
        (Info(((1 << 32) - 2, 0, 64, 48), size=SHAPE), "64x48 from (4294967294, 0)"),
    ],
)
@pytest.mark.parametrize("arguments", [(), ("--flip-x",), ("--roi-offset", "0", "0")])
def test_regions_beyond_the_picture_are_refused(
    info: Info, text: str, arguments: Tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = record(tmp_path / "in.mcap", [frame((0, 0))], [info])
    assert main(["replay", str(path), "-o", str(tmp_path / "out.mcap"), *arguments]) > 0
    error = capsys.readouterr().err
    assert f"camera_info states a region of {text}" in error
    assert "Traceback" not in error


@pytest.mark.parametrize(
    ("info", "arguments"),
    [
        (Info((101, 200, 64, 48)), ("--roi-offset", "1", "0")),  # the same modulo the tile
        (Info(), ("--roi-offset", "101", "200")),  # all zeros state nothing
        (Info((0, 0, 2448, 2048)), ("--roi-offset", "101", "200")),  # nor does the whole picture
        (Info((0, 0, 64, 48), size=SHAPE), ("--roi-offset", "101", "200")),
        (Info((101, 200, 64, 48), (1, 1)), ()),
    ],
)
def test_statements_that_agree(info: Info, arguments: Tuple[str, ...], tmp_path: Path) -> None:
    path = record(tmp_path / "in.mcap", [frame((101, 200))], [info])
    assert is_right(light(path, *arguments))


@pytest.mark.parametrize("is_after", [False, True])
def test_a_region_that_changes(is_after: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Frames of another offset are refused, also if their calibrations follow them with the same stamps."""
    places = [(101, 200), (101, 200), (102, 200), (103, 200)]
    infos = [
        Info((*place, *SHAPE[::-1]), time=START + k * PERIOD + 1 if is_after else None)
        for k, place in enumerate(places)
    ]
    path = record(tmp_path / "in.mcap", [frame(place) for place in places], infos)
    result = light(path)
    assert is_right(result)
    assert result[2] == 3, "the last one's offset is odd again"
    assert "1 x region" in capsys.readouterr().err
    with open_source(path) as source:
        offsets = [record.camera_info and record.camera_info.region[:2] for record in source.records]
    assert offsets == places


@pytest.mark.parametrize("whole", [(0, 0, 0, 0), (0, 0, 64, 48)])
@pytest.mark.parametrize("arguments", [(), ("--roi-offset", "101", "200")])
def test_no_region_after_one_is_the_complete_picture(
    whole: Tuple[int, int, int, int], arguments: Tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The offset of the first frame is not that of later ones; the live node takes none for these."""
    places, info = [(101, 200), (0, 0), (0, 0)], Info(whole, size=SHAPE)
    path = record(tmp_path / "in.mcap", list(map(frame, places)), [Info((101, 200, 64, 48)), info, info])
    result = light(path, *arguments)
    assert is_right(result)
    assert result[2] == 1
    assert "2 x region; the first: camera_info states that frames begin at (0, 0)" in capsys.readouterr().err
    result = light(path, "--roi-offset", "0", "0")
    assert is_right(result)
    assert result[2] == 2


def test_a_session_is_of_one_region(tmp_path: Path) -> None:
    """A calibration is of single pixels: an offset that agrees modulo the tile is another one."""
    places = [(100, 200), (102, 200)]
    path = record(tmp_path / "in.mcap", [frame(p) for p in places], [Info((*p, *SHAPE[::-1])) for p in places])
    (tmp_path / "angles.csv").write_text("first,last,angle\n0,1,0\n", encoding="utf-8")
    with open_sessions([path], make_options(roi_offset=(100, 200)), tmp_path / "angles.csv") as session:
        next(session.frames)
        with pytest.raises(FrameError, match=r"\(102, 200\).*\(100, 200\)") as refusal:
            next(session.frames)
    assert refusal.value.cause == "region"


def test_calibrate_takes_the_region(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = record(tmp_path / "in.mcap", [frame((100, 200))], [Info((100, 200, *SHAPE[::-1]))])
    out = ["-o", str(tmp_path / "sensor.npz")]
    assert main(["calibrate", str(path), *out, "--roi-offset", "0", "0"]) == 2
    assert "--roi-offset (0, 0) contradicts" in capsys.readouterr().err.replace("[0, 0]", "(0, 0)")


@pytest.mark.parametrize("flip", [(False, False), (True, False), (True, True)])
def test_the_nodes_own_camera_agrees_with_itself(flip: Tuple[bool, bool]) -> None:
    """Its region is counted in the mirrored picture (SFNC, ReverseX), and so is that of the calibration it sends."""
    lens = messages.CameraInfo(0, "", *WHOLE, "plumb_bob", np.zeros(5), np.zeros(9), np.zeros(9), np.zeros(12))
    node = SimpleNamespace(_info=lens, frame_id="camera")
    x, y, width, height = region = (101, 203, 64, 48)
    info = messages.decode_camera_info(CameraInput._encode_info(node, *region))  # type: ignore[arg-type]
    on_sensor = (2448 - x - width if flip[0] else x, 2048 - y - height if flip[1] else y)
    options = make_options(flip=flip, roi_offset=on_sensor)
    messages.check_region(info, options, (height, width), is_exact=True)
    node._info = None  # without a file the message has a size only
    info = messages.decode_camera_info(CameraInput._encode_info(node, *region))  # type: ignore[arg-type]
    messages.check_region(info, options, (height, width), is_exact=True)


def test_ready_angles_do_not_depend_on_the_region(tmp_path: Path) -> None:
    angles = [0.5 * (1 + DOLP * np.cos(2 * np.deg2rad(AOLP - angle))) for angle in (0, 45, 90, 135)]
    raw = np.tile(np.rint(240 * np.array(angles)), (*SHAPE, 1)).astype(np.uint8)
    path = record(tmp_path / "in.mcap", [raw], [Info((101, 200, *SHAPE[::-1]))])
    assert is_right(light(path))
