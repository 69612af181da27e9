"""What is stated beside a frame is applied, checked or refused, or warned about: never the same image without a word.

Each case is a pair of inputs whose pixels have the same bytes and whose statement differs. Files and messages are made
by hand here: CDR by the fuzzer's own writer, TIFF, PGM and NPY from their specifications.
"""

from __future__ import annotations

import re
import struct
import zlib
from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple, Union

import cv2
import numpy as np
import pytest
from fuzz import cdr
from support import ROOT, on_cpu, wait_for
from test_engine import Engine

from polar_pipeline import cli
from polar_pipeline.quality.frame_checks import NO_FRAME

mcap_writer = pytest.importorskip("mcap.writer", reason="mcap is not installed: pip extra recordings")
mcap_reader = pytest.importorskip("mcap.reader")

HEIGHT, WIDTH = 64, 80
#: Polarizers of an IMX250MZR, row by row.
TILE = ((90, 45), (135, 0))
DOLP, AOLP = 0.5, 30.0
IMAGE, INFO, COMPRESSED = (f"sensor_msgs/msg/{name}" for name in ("Image", "CameraInfo", "CompressedImage"))
#: Largest error of a Stokes image at half resolution: the samples are rounded to 8 bit, and S0 changes by 1/160 from
#: one column to the next, of which interpolation to one site leaves nothing.
TOLERANCE = 0.01


def light() -> np.ndarray:
    """The mosaic, full scale 1: S0 from 0.5 to 1 along x, with fixed noise of a level."""
    y, x = np.mgrid[:HEIGHT, :WIDTH]
    theta = np.deg2rad(np.array(TILE)[y % 2, x % 2])
    s0 = 0.5 + 0.5 * x / WIDTH
    mosaic = s0 / 2 * (1 + DOLP * np.cos(2 * (theta - np.deg2rad(AOLP))))
    return mosaic + np.random.default_rng(3).normal(0, 1 / 512, mosaic.shape)


def numbers(bits: int) -> np.ndarray:
    return np.rint(np.clip(light(), 0, 1) * ((1 << bits) - 1)).astype(np.uint8 if bits == 8 else np.uint16)


# ------------------------------------------------------------------------------------------------------------ the files

#: Messages: topic, type and bytes; a type may end in " in " and how its messages are encoded, other than in CDR.
Rows = List[Tuple[str, str, bytes]]
#: An input: messages, or what writes files into a folder and returns the one to read.
Input = Union[Rows, Callable[[Path], Path]]


def mcap_file(folder: Path, rows: Rows) -> Path:
    """A recording of messages."""
    path = folder / "in.mcap"
    with path.open("wb") as stream:
        writer = mcap_writer.Writer(stream)
        writer.start("ros2", "test")
        channels: Dict[str, int] = {}
        for index, (topic, kind, data) in enumerate(rows):
            if topic not in channels:
                name, _, encoding = kind.partition(" in ")
                schema = writer.register_schema(name, "ros2msg", b"")
                channels[topic] = writer.register_channel(topic, encoding or "cdr", schema)
            writer.add_message(channels[topic], 10**18 + index, data, 10**18 + index)
        writer.finish()
    return path


def header() -> Dict[str, Any]:
    return {"sec": 10**9, "nanosec": 0, "frame_id": b"camera"}


def image(pixels: np.ndarray, encoding: str, **stated: Any) -> bytes:
    """A `sensor_msgs/Image`."""
    data = pixels.tobytes()
    row = {"height": HEIGHT, "width": WIDTH, "step": len(data) // HEIGHT, "is_bigendian": 0}
    return bytes(cdr.write("image", {**header(), **row, "encoding": encoding.encode(), "data": data, **stated}).data)


def camera_info(**stated: Any) -> bytes:
    """An uncalibrated `sensor_msgs/CameraInfo`."""
    zeros = {"distortion_model": b"", "d": [], "k": [0.0] * 9, "r": [0.0] * 9, "p": [0.0] * 12}
    return bytes(cdr.write("camera_info", {**header(), **zeros, "height": HEIGHT, "width": WIDTH, **stated}).data)


def compressed(fmt: str, data: bytes) -> bytes:
    """A `sensor_msgs/CompressedImage`."""
    out = struct.pack("<4xiII", 10**9, 0, 7) + b"camera\0\0" + struct.pack("<I", len(fmt) + 1) + fmt.encode() + b"\0"
    out += bytes(-(len(out) - 4) % 4) + struct.pack("<I", len(data)) + data
    return b"\0\1" + out[2:]


def message(pixels: np.ndarray, encoding: str, **stated: Any) -> Rows:
    """An image without a camera_info."""
    return [("/image_raw", IMAGE, image(pixels, encoding, **stated))]


def with_info(**stated: Any) -> Rows:
    """An image of 8 bit after its camera_info."""
    return [("/camera_info", INFO, camera_info(**stated)), *message(numbers(8), "mono8")]


def transported(fmt: str, pixels: np.ndarray, suffix: str = ".png") -> Rows:
    """An image compressed by image_transport."""
    return [("/image_raw/compressed", COMPRESSED, compressed(fmt, cv2.imencode(suffix, pixels)[1].tobytes()))]


def file(name: str, data: bytes, **others: bytes) -> Callable[[Path], Path]:
    """A picture, and other files beside it (`__` stands for a point)."""

    def write(folder: Path) -> Path:
        for other, content in others.items():
            (folder / other.replace("__", ".")).write_bytes(content)
        (folder / name).write_bytes(data)
        return folder / name

    return write


def pictures(*names: str) -> Callable[[Path], Path]:
    """A folder of equal pictures."""

    def write(folder: Path) -> Path:
        (folder / "pictures").mkdir()
        for name in names:
            (folder / "pictures" / f"{name}.png").write_bytes(png(numbers(8)))
        return folder / "pictures"

    return write


def tiff(pixels: np.ndarray, pages: int = 1, **tags: int) -> bytes:
    """A little-endian TIFF of one strip a page; tags are named `t274`."""
    data = pixels.tobytes()
    out = b"II*\0" + struct.pack("<I", 8 + len(data)) + data
    for page in range(pages):
        values = {256: WIDTH, 257: HEIGHT, 258: 8 * pixels.itemsize, 259: 1, 262: 1, 273: 8, 277: 1, 278: HEIGHT}
        values[279] = len(data)
        values.update({int(name[1:]): value for name, value in tags.items()})
        entries = b"".join(struct.pack("<HHII", tag, 4, 1, values[tag]) for tag in sorted(values))
        start = len(out)
        size = 2 + len(entries) + 4
        out += struct.pack("<H", len(values)) + entries + struct.pack("<I", start + size if page < pages - 1 else 0)
    return out


def pgm(pixels: np.ndarray, maxval: int) -> bytes:
    return f"P5\n{WIDTH} {HEIGHT}\n{maxval}\n".encode() + pixels.astype(">u2" if maxval > 255 else "u1").tobytes()


def npy(data: bytes, kind: str, is_fortran: bool = False) -> bytes:
    text = f"{{'descr': '{kind}', 'fortran_order': {is_fortran}, 'shape': ({HEIGHT}, {WIDTH}), }}\n"
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(text)) + text.encode() + data


def png(pixels: np.ndarray, **chunks: bytes) -> bytes:
    """A PNG with chunks, by name, after its header."""
    data = cv2.imencode(".png", pixels)[1].tobytes()
    more = b"".join(
        struct.pack(">I", len(body)) + name.encode() + body + struct.pack(">I", zlib.crc32(name.encode() + body))
        for name, body in chunks.items()
    )
    return data[:33] + more + data[33:]


def camera_yaml(**changes: Any) -> bytes:
    """The file that `capture` writes beside pictures."""
    rows = {
        "vendor": "LUCID Vision Labs",
        "model": "TRI050S-P",
        "serial": "1",
        "sensor": "IMX250MZR",
        "pixel_format": "PolarizeMono8",
        "size": [WIDTH, HEIGHT],
        "roi_offset": [0, 0],
        "flip": ["false", "false"],
        "gain_db": 0.0,
        "exposure_us": 1000.0,
        "temperature": "null",
        "bit_depth": 8,
        **changes,
    }
    text = "".join(f"{name}: {str(value).replace(chr(39), '')}\n" for name, value in rows.items())
    return text.encode()


def beside(**changes: Any) -> Callable[[Path], Path]:
    return file("0.png", png(numbers(8)), camera__yaml=camera_yaml(**changes))


# ---------------------------------------------------------------------------------------------------------- the ways in


class Outcome(NamedTuple):
    """What a user gets: the Stokes image, None if the input was refused; and what was said on stderr."""

    stokes: Optional[np.ndarray]
    said: str


def stokes_of_replay(path: Path) -> np.ndarray:
    """The Stokes image; several of them for a recording of several frames."""
    frames = []
    with path.open("rb") as stream:
        for _, channel, row in mcap_reader.make_reader(stream).iter_messages():
            if channel.topic == "/polarization/stokes":
                fields = cdr.parse("image", row.data).fields
                frames.append(np.frombuffer(fields["data"], "<f4").reshape(fields["height"], fields["width"], 3))
    assert frames, "no Stokes image"
    return frames[0] if len(frames) == 1 else np.stack(frames)


def by_replay(source: Path, folder: Path, *options: str) -> Optional[np.ndarray]:
    out = folder / "out.mcap"
    arguments = ["replay", str(source), "-o", str(out), "--report", "-", "--products", "stokes", *options]
    return None if cli.main(on_cpu(arguments)) else stokes_of_replay(out)


def by_process(source: Path, folder: Path, *options: str) -> Optional[np.ndarray]:
    arguments = ["process", str(source), "-o", str(folder / "out"), "--format", "npy", "--products", "stokes"]
    if cli.main(on_cpu([*arguments, *options])):
        return None
    frames = [np.load(path) for path in sorted((folder / "out").glob("*_stokes.npy"))]
    return np.asarray(frames[0] if len(frames) == 1 else frames)


def by_view(source: Path, folder: Path, *options: str) -> Optional[np.ndarray]:
    """The planes of the Stokes image in a file of Rerun."""
    rrd = pytest.importorskip("rrd")
    out = folder / "out.rrd"
    if cli.main(on_cpu(["view", str(source), "--save", str(out), "--products", "stokes", *options])):
        return None
    planes = [row for name, row in sorted(rrd.read(out).items()) if name.startswith("/polarization/stokes/")]
    frames = [np.stack([rrd.image(rows[k]) for rows in planes], -1) for k in range(len(planes[0]))]
    return np.asarray(frames[0] if len(frames) == 1 else frames)


WAYS = {"replay": by_replay, "process": by_process, "view": by_view}


def by_node(rows: Rows, **parameters: Any) -> Outcome:
    """The node without its middleware: what it publishes, and what is in its diagnostics."""
    engine = Engine(**parameters)
    try:
        engine.subscribe("stokes")
        for _, kind, data in rows:
            if kind == INFO:
                engine.processor.put_camera_info(data)
            else:
                engine.feed(data)
        counts = "published", "dropped"
        wait_for(lambda: any(int(n) for name, n in engine.values().items() if name.startswith(counts)), "the frame")
        wait_for(lambda: not engine.sender.sent or engine.publisher._check is not NO_FRAME, "the check of the frame")
        sent = [cdr.parse("image", row["polarization/stokes"]).fields for row in engine.sender.sent]
        warnings = [row.message for row in engine.publisher.statuses("")[1:] if row.level]
        said = " ".join([engine.values()["last error"], *warnings])
    finally:
        engine.processor.close()
    if not sent:
        return Outcome(None, said)
    return Outcome(np.frombuffer(sent[0]["data"], "<f4").reshape(sent[0]["height"], sent[0]["width"], 3), said)


class Case(NamedTuple):
    """Two inputs of the same pixels.

    Attributes:
        row: First word of its row in the table of the documents.
        true: The input that states the truth, which is read without a word.
        other: The input that states something else.
        options: Of both.
    """

    row: str
    true: Input
    other: Input
    options: Tuple[str, ...] = ()


GRAY = image(numbers(8), "mono8")
TWELVE = numbers(12)
HIGH = TWELVE << 4
#: A mosaic that image_transport sent as PNG.
SENT_AS_PNG = transported("mono8; png compressed mono8", numbers(8))
MESSAGES = {
    "encoding_of_channels": Case("encoding", message(numbers(8), "mono8"), message(numbers(8), "rgb8")),
    "encoding_of_depth": Case("encoding", message(TWELVE, "Mono12"), message(TWELVE, "Mono14")),
    "encoding_without_depth": Case("encoding", message(TWELVE, "Mono12"), message(TWELVE, "mono16")),
    "encoding_against_option": Case(
        "encoding", message(TWELVE, "mono16"), message(TWELVE, "Mono10"), ("--bit-depth", "12")
    ),
    "encoding_computed": Case("encoding", message(numbers(8), "mono8"), message(numbers(8), "PolarizedDolp_Mono8")),
    "encoding_unknown": Case("encoding", message(numbers(8), "mono8"), message(numbers(8), "")),
    "endianness": Case("is_bigendian", message(TWELVE, "Mono12"), message(TWELVE, "Mono12", is_bigendian=1)),
    "step": Case("step", message(numbers(8), "mono8"), message(numbers(8), "mono8", step=WIDTH * 2)),
    "width": Case("step", message(numbers(8), "mono8"), message(numbers(8), "mono8", width=WIDTH // 2)),
    "height": Case("step", message(numbers(8), "mono8"), message(numbers(8), "mono8", height=HEIGHT // 2)),
    **{
        f"region_{x}_{y}": Case(
            "roi",
            with_info(),
            with_info(height=2048, width=2448, x_offset=x, y_offset=y, roi_height=HEIGHT, roi_width=WIDTH),
        )
        for x, y in ((1, 0), (0, 1), (101, 201))
    },
    "region_of_another_size": Case(
        "roi", with_info(), with_info(height=2048, width=2448, x_offset=1, roi_height=HEIGHT // 2, roi_width=WIDTH)
    ),
    "region_against_option": Case(
        "roi",
        with_info(height=2048, width=2448, x_offset=2, y_offset=2, roi_height=HEIGHT, roi_width=WIDTH),
        with_info(height=2048, width=2448, x_offset=3, y_offset=2, roi_height=HEIGHT, roi_width=WIDTH),
        ("--roi-offset", "2", "2"),
    ),
    "binning_x": Case("binning_x", with_info(), with_info(width=2 * WIDTH, binning_x=2)),
    "binning_y": Case("binning_x", with_info(binning_x=1, binning_y=1), with_info(height=2 * HEIGHT, binning_y=2)),
    "format_debayered": Case(
        "format",
        SENT_AS_PNG,
        transported("bayer_rggb8; jpeg compressed mono8", numbers(8), ".jpg"),
    ),
    "format_computed": Case(
        "format",
        SENT_AS_PNG,
        transported("PolarizedAolp_Mono8; png compressed mono8", numbers(8)),
    ),
    "format_of_colors": Case(
        "format",
        SENT_AS_PNG,
        transported("rgb8; png compressed bgr8", numbers(8)),
    ),
    "format_jpeg": Case(
        "format",
        SENT_AS_PNG,
        transported("mono8; jpeg compressed mono8", numbers(8), ".jpg"),
    ),
    "format_of_depth": Case(
        "format",
        transported("mono16; png compressed mono16", HIGH),
        transported("mono16; jpeg compressed mono8", (HIGH >> 8).astype(np.uint8), ".jpg"),
    ),
    "bits_high": Case("bits", message(np.minimum(HIGH, 0xFFF0), "mono16"), message(TWELVE, "mono16")),
    "bits_against_option": Case("bits", message(TWELVE, "mono16"), message(HIGH, "mono16"), ("--bit-depth", "12")),
}
RECORDINGS = {
    "type_of_messages": Case("type", message(numbers(8), "mono8"), [("/image_raw", "sensor_msgs/msg/Imu", GRAY)]),
    "encoding_of_messages": Case("type", message(numbers(8), "mono8"), [("/image_raw", f"{IMAGE} in json", GRAY)]),
    "names_of_angles": Case("names", pictures("f_0", "f_1", "f_2", "f_3"), pictures("_000", "_045", "_090", "_135")),
}
ORIENTED = {
    f"orientation_{value}": Case("274", file("0.tif", tiff(numbers(8))), file("0.tif", tiff(numbers(8), t274=value)))
    for value in (2, 3, 6, 8)
}
PICTURES = {
    **ORIENTED,
    "white_is_zero": Case("262", file("0.tif", tiff(numbers(8))), file("0.tif", tiff(numbers(8), t262=0))),
    "white_is_zero_16": Case("262", file("0.tif", tiff(HIGH)), file("0.tif", tiff(HIGH, t262=0))),
    "pages_2": Case("pages", file("0.tif", tiff(numbers(8))), file("0.tif", tiff(numbers(8), 2))),
    "pages_4": Case("pages", file("0.tif", tiff(numbers(8))), file("0.tif", tiff(numbers(8), 4))),
    "maxval_14": Case("maxval", file("0.pgm", pgm(TWELVE, 4095)), file("0.pgm", pgm(TWELVE, 16383))),
    "maxval_16": Case("maxval", file("0.pgm", pgm(TWELVE, 4095)), file("0.pgm", pgm(TWELVE, 65535))),
    "maxval_odd": Case("maxval", file("0.pgm", pgm(TWELVE, 4095)), file("0.pgm", pgm(TWELVE, 5000))),
    "maxval_8": Case("maxval", file("0.pgm", pgm(numbers(8), 255)), file("0.pgm", pgm(numbers(8), 254))),
    "maxval_against_option": Case(
        "maxval", file("0.pgm", pgm(TWELVE, 4095)), file("0.pgm", pgm(TWELVE, 16383)), ("--bit-depth", "12")
    ),
    "jpeg": Case("JPEG", file("0.png", png(numbers(8))), file("0.jpg", cv2.imencode(".jpg", numbers(8))[1].tobytes())),
    "byte_order": Case("dtype", file("0.npy", npy(HIGH.tobytes(), "<u2")), file("0.npy", npy(HIGH.tobytes(), ">u2"))),
    "fortran_order": Case(
        "dtype",
        file("0.npy", npy(numbers(8).tobytes(), "|u1")),
        file("0.npy", npy(numbers(8).tobytes(), "|u1", is_fortran=True)),
    ),
    "camera_offset": Case("camera.yaml", beside(), beside(roi_offset=[1, 0])),
    "camera_flip": Case("camera.yaml", beside(), beside(flip=["true", "false"])),
    "camera_sensor": Case("camera.yaml", beside(), beside(sensor="IMX250MYR")),
    "camera_size": Case("camera.yaml", beside(), beside(size=[WIDTH, HEIGHT // 2])),
    "camera_offset_against_option": Case(
        "camera.yaml", beside(roi_offset=[2, 0]), beside(roi_offset=[3, 0]), ("--roi-offset", "2", "0")
    ),
    "bits_of_a_picture": Case("bits", file("0.png", png(HIGH)), file("0.png", png(TWELVE))),
}


def outcome(way: str, given: Input, folder: Path, options: Tuple[str, ...], capsys: Any) -> Outcome:
    if way == "node":
        assert isinstance(given, list)
        values = {"bit_depth": ("raw__bit_depth", 1), "roi_offset": ("raw__roi_offset", 2)}
        parameters: Dict[str, Any] = {}
        if options:
            name, count = values[options[0][2:].replace("-", "_")]
            numbers_of_option = [int(text) for text in options[1:]]
            parameters[name] = numbers_of_option if count > 1 else numbers_of_option[0]
        return by_node(given, **parameters)
    folder.mkdir()
    source = mcap_file(folder, given) if isinstance(given, list) else given(folder)
    capsys.readouterr()
    stokes = WAYS[way](source, folder, *options)
    return Outcome(stokes, capsys.readouterr().err)


def cases() -> List[Any]:
    """Every case on every way in that takes its input; `view` reads as `replay` does, and is tried for the matrix."""
    ways: Dict[str, Dict[str, Case]] = {
        "replay": {**MESSAGES, **RECORDINGS, **PICTURES},
        "process": PICTURES,
        "node": {name: case for name, case in MESSAGES.items() if not name.startswith("format")},
        "view": {**MESSAGES, **RECORDINGS, **PICTURES},
    }
    return [
        pytest.param(way, case, id=f"{way}-{name}", marks=[pytest.mark.exhaustive] if way == "view" else [])
        for way, rows in ways.items()
        for name, case in rows.items()
    ]


@pytest.mark.parametrize(("way", "case"), cases())
def test_a_changed_statement_is_never_the_same_image_without_a_word(
    way: str, case: Case, tmp_path: Path, capsys: Any
) -> None:
    true = outcome(way, case.true, tmp_path / "true", case.options, capsys)
    assert true.stokes is not None, true.said
    assert not true.said
    angle = np.deg2rad(2 * AOLP)
    s0 = 0.5 + 0.5 * (2 * np.mgrid[: HEIGHT // 2, : WIDTH // 2][1] + 0.5) / WIDTH
    expected = np.stack([s0, s0 * DOLP * np.cos(angle), s0 * DOLP * np.sin(angle)], -1)
    inside = (slice(2, -2), slice(2, -2))
    first = true.stokes[0] if true.stokes.ndim == 4 else true.stokes
    np.testing.assert_allclose(first[inside], expected[inside], atol=TOLERANCE)
    other = outcome(way, case.other, tmp_path / "other", case.options, capsys)
    if other.stokes is None:
        assert other.said.strip(), "refused without a reason"
        assert "Error" not in other.said, "the name of a Python exception is not a reason"
        assert "defect" not in other.said
    elif not other.said.strip():
        is_same = other.stokes.shape == true.stokes.shape and np.allclose(other.stokes, true.stokes, 0, 1e-4)
        assert not is_same, "the same image without a word"  # 1e-4: a fortieth of a level of 8 bit


def test_every_row_of_the_table_has_a_case() -> None:
    text = (ROOT / "docs" / "encodings.md").read_text(encoding="utf-8")
    section = text.partition("## What is read from where")[2].partition("\nWhat is stated beside a recording")[0]
    stated = set(re.findall(r"^\| `?([^`|]+?)`? \|", section, re.MULTILINE)) - {"stated", "---"}
    assert stated == {case.row for case in (*MESSAGES.values(), *RECORDINGS.values(), *PICTURES.values())}
