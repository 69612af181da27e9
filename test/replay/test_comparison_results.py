"""What `replay --compare` tells a CI job: exit code, text, JSON, JUnit XML and report name the worst frame.

Errors are put into a golden recording by the mcap library alone.
"""

from __future__ import annotations

import base64
import json
import re
from decimal import Decimal
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, List, Optional
from xml.etree import ElementTree as ET

import cv2
import numpy as np
import pytest
from mcap.reader import make_reader
from mcap.writer import Writer
from recorded_frames import Row, stamp, write
from rosbags_messages import decode

from polar_pipeline.cli import main
from polar_pipeline.quality.frame_checks import NO_FRAME
from polar_pipeline.replay.compare import ProductComparison, WorstFrame
from polar_pipeline.replay.report import render
from polar_pipeline.replay.run import Summary

#: Frames of the recording, and (height, width) of its products: half of the mosaic's.
FRAMES, SHAPE = 60, (32, 40)
#: The frame with an error, its pixel (x, y), and the error in levels.
FRAME, PIXEL, ERROR = 57, (31, 11), 50
Message = Optional[bytes]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording `in.mcap`, and its products `golden.mcap`."""
    path = tmp_path_factory.mktemp("recording")
    rows, columns = np.mgrid[: 2 * SHAPE[0], : 2 * SHAPE[1]]
    mosaics = [np.rint(120 + 60 * np.sin(rows / 5 + columns / 7 + k)).astype(np.uint8) for k in range(FRAMES)]
    write(path / "in.mcap", [(stamp(k), Row(stamp(k), stamp(k), raw).cdr()) for k, raw in enumerate(mosaics)])
    words = ["-o", str(path / "golden.mcap"), "--report", "-", "--products", "intensity,dolp", "--dtype", "uint8"]
    assert main(["replay", str(path / "in.mcap"), *words]) == 0
    return path


def rewrite(source: Path, path: Path, change: Callable[[str, int, bytes], Message]) -> Path:
    """Copy a recording; `change` gets topic, stamp and message, and returns the new message, or None for none."""
    with source.open("rb") as stream, path.open("wb") as out:
        writer, channels = Writer(out), {}
        writer.start("ros2")
        for schema, channel, row in make_reader(stream).iter_messages():
            if channel.topic not in channels:
                number = writer.register_schema(schema.name, schema.encoding, schema.data)
                channels[channel.topic] = writer.register_channel(channel.topic, "cdr", number)
            data = change(channel.topic, row.log_time, row.data)
            if data is not None:
                writer.add_message(channels[channel.topic], row.log_time, data, row.publish_time)
        writer.finish()
    return path


def spoil(topic: str, time_ns: int, data: bytes) -> Message:
    """Make one pixel of DoLP in one frame wrong."""
    if (topic, time_ns) != ("/polarization/dolp", stamp(FRAME)):
        return data
    changed = bytearray(data)
    place = len(data) - SHAPE[0] * SHAPE[1] + PIXEL[1] * SHAPE[1] + PIXEL[0]  # the pixels end the message
    changed[place] = data[place] - ERROR if data[place] >= ERROR else data[place] + ERROR
    before, after = (np.asarray(decode(bytes(row), "sensor_msgs/msg/Image").data) for row in (data, changed))
    assert np.count_nonzero(before != after) == 1
    return bytes(changed)


def seconds(index: int) -> str:
    """The stamp of a frame in seconds, with all of its digits."""
    return str(Decimal(stamp(index)).scaleb(-9))


def compare(folder: Path, golden: Path, out: Path, *words: str) -> int:
    outputs = ["--report", str(out / "r.html"), "--json", str(out / "r.json"), "--junit", str(out / "r.xml")]
    source = str(folder / "in.mcap")
    return main(["replay", source, "--compare", str(golden), "--dtype", "uint8", *outputs, *words])


def test_an_error_in_one_frame_is_named_everywhere(folder: Path, tmp_path: Path, capsys: Any) -> None:
    assert compare(folder, rewrite(folder / "golden.mcap", tmp_path / "spoiled.mcap", spoil), tmp_path) == 1
    place = f"frame {FRAME}, stamp {seconds(FRAME)} s, pixel x {PIXEL[0]}, y {PIXEL[1]}: error {ERROR} levels"
    assert f"\ndolp: {place}, tolerance 1\n" in capsys.readouterr().out

    result = json.loads((tmp_path / "r.json").read_text(encoding="utf-8"))
    rows = {row["name"]: row for row in result["products"]}
    assert (result["passed"], rows["dolp"]["passed"], rows["intensity"]["passed"]) == (False, False, True)
    assert rows["dolp"]["worst"] == {"frame": FRAME, "stamp_ns": stamp(FRAME), "x": PIXEL[0], "y": PIXEL[1]}
    assert (rows["dolp"]["error"], rows["dolp"]["frames"], rows["intensity"]["worst"]) == (ERROR, FRAMES, None)

    suite = ET.parse(tmp_path / "r.xml").getroot().find("testsuite")
    assert suite is not None
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("2", "1", "0")
    cases = {case.get("name"): case for case in suite.iter("testcase")}
    assert {case.get("classname") for case in cases.values()} == {"in.mcap"}
    assert cases["intensity"].find("failure") is None
    failure = cases["dolp"].find("failure")
    assert failure is not None
    assert place in str(failure.get("message"))

    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    top = page[: page.index("<table>")]  # what a phone shows first
    assert "failed: dolp of 2 products compared with spoiled.mcap" in top
    assert place in top
    assert captions(page)[:3] == ["golden", "result", "error"]


def captions(page: str) -> List[str]:
    """Names of the pictures of a page."""
    return re.findall(r"<b>(\w+)</b> [^<]*</figcaption>", page)


def test_equal_products_pass(folder: Path, tmp_path: Path, capsys: Any) -> None:
    assert compare(folder, folder / "golden.mcap", tmp_path) == 0
    assert "passed: 2 products compared with golden.mcap" in capsys.readouterr().out
    result = json.loads((tmp_path / "r.json").read_text(encoding="utf-8"))
    assert result["passed"]
    assert {row["psnr"] for row in result["products"]} == {None}  # infinite, which JSON lacks
    assert ET.parse(tmp_path / "r.xml").getroot().find(".//failure") is None
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "passed: 2 products compared with golden.mcap" in page[: page.index("<table>")]
    assert "error" not in captions(page)


def test_missing_frames_are_named(folder: Path, tmp_path: Path, capsys: Any) -> None:
    golden = rewrite(
        folder / "golden.mcap",
        tmp_path / "fewer.mcap",
        lambda topic, time_ns, data: None if topic == "/intensity" and time_ns in (stamp(3), stamp(5)) else data,
    )
    assert compare(folder, golden, tmp_path) == 1
    text = f"2 frames are in only one of the two recordings, the earliest has stamp {seconds(3)} s"
    assert f"\nintensity: {text}" in capsys.readouterr().out
    rows = {row["name"]: row for row in json.loads((tmp_path / "r.json").read_text(encoding="utf-8"))["products"]}
    assert (rows["intensity"]["missing"], rows["intensity"]["missing_stamp_ns"]) == (2, stamp(3))
    assert rows["dolp"]["passed"]


def damage(path: Path) -> None:
    """Change a byte in the middle, which only the checksum of a chunk tells."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    "change",
    [Path.unlink, lambda path: path.write_bytes(path.read_bytes()[:-2000]), lambda path: path.write_bytes(b""), damage],
    ids=["missing", "cut off", "empty", "damaged"],
)
def test_a_golden_recording_that_cannot_be_used_is_no_difference(
    change: Callable[[Path], Any], folder: Path, tmp_path: Path, capsys: Any
) -> None:
    golden = rewrite(folder / "golden.mcap", tmp_path / "golden.mcap", lambda _topic, _time, data: data)
    change(golden)
    assert compare(folder, golden, tmp_path) == 2
    said = capsys.readouterr().err
    assert "golden.mcap" in said
    assert "Traceback" not in said
    assert not [*tmp_path.glob("r.*")]


def test_a_recording_without_products_is_no_golden_one(folder: Path, tmp_path: Path, capsys: Any) -> None:
    assert compare(folder, folder / "in.mcap", tmp_path) == 2
    assert "holds no products" in capsys.readouterr().err


def test_results_are_of_comparisons(folder: Path, tmp_path: Path, capsys: Any) -> None:
    for word in ("--json", "--junit"):
        words = [str(folder / "in.mcap"), "-o", str(tmp_path / "out.mcap"), word, str(tmp_path / "r")]
        assert main(["replay", *words]) == 2
        assert "--compare" in capsys.readouterr().err
    assert compare(folder, folder / "golden.mcap", tmp_path, "--junit", str(folder / "in.mcap"), "--force") == 2


def pictures(page: str) -> Dict[str, np.ndarray]:
    """Name -> picture of each figure of a page, (h, w, 3)."""
    rows: Iterable[Any] = re.findall(r'base64,([^"]+)">\s*<figcaption>.*?<b>(\w+)</b>', page, re.DOTALL)
    return {
        name: cv2.imdecode(np.frombuffer(base64.b64decode(data), np.uint8), cv2.IMREAD_COLOR) for data, name in rows
    }


def test_a_single_wrong_pixel_of_a_large_frame_is_visible() -> None:
    """In pictures of a third of its size; a ring marks it in all three."""
    shape, (x, y) = (1002, 1440), (1201, 400)
    golden = np.full(shape, 100, np.uint8)
    got = golden.copy()
    got[y, x] = 200
    worst = WorstFrame(0, 1, (x, y), (golden, got, abs(got.astype(float) - golden)))
    row = ProductComparison("intensity", 1, 0, 100.0, 1.0, "levels", 10.0, 0.9, "", worst)
    images = pictures(render("t", {}, Summary([], 1.0, [], NO_FRAME.layout, ""), [row], verdict="failed"))
    assert list(images) == ["golden", "result", "error"]
    center = slice(y // 3 - 3, y // 3 + 4), slice(x // 3 - 3, x // 3 + 4)
    ring = slice(y // 3 - 24, y // 3 + 25), slice(x // 3 - 24, x // 3 + 25)
    assert int(images["error"][center][..., 1].max()) > 150  # yellow, on violet
    for image in images.values():
        assert image.shape == (334, 480, 3)
        difference = abs(image.astype(int) - np.median(image, (0, 1))).max(-1)
        assert difference[ring].max() > 80
        difference[ring] = 0
        assert difference.max() < 12  # JPEG
