"""Target: serialized messages."""

from __future__ import annotations

import random
import struct
from typing import Any, Dict, List, NamedTuple, Optional, Set, Tuple

import numpy as np

from fuzz import cdr
from fuzz.engine import Case, Target, WrongError, refused
from fuzz.mutate import Writer, mutated, some_bytes, special
from polar_pipeline import messages
from polar_pipeline.geometry import Geometry
from polar_pipeline.messages import CAMERA_INFO, COMPRESSED, FLOAT32, IMAGE
from polar_pipeline.sensor.frames import MAX_PIXELS, MAX_SIDE, MIN_SIDE, FrameError

_NAMES = {"image": IMAGE, "compressed": COMPRESSED, "camera_info": CAMERA_INFO, "float32": FLOAT32}
#: Packing -> significant bits -> the names of mosaics, written down from the makers' lists.
_MOSAICS = {
    "u8": {
        8: """mono8 8UC1 bayer_rggb8 bayer_bggr8 bayer_gbrg8 bayer_grbg8 Mono8 BayerRG8 BayerBG8 BayerGB8 BayerGR8
        PolarizeMono8 Polarized8 BayerRGPolarized8 BaumerPolarized8 PolarizedMono8 PolarizedBayerBG8"""
    },
    "u16": {
        10: "Mono10 BayerRG10 BayerBG10 BayerGB10 BayerGR10 BaumerPolarized10",
        12: "Mono12 BayerRG12 BayerBG12 BayerGB12 BayerGR12 PolarizeMono12 BaumerPolarized12",
        14: "Mono14 BayerRG14 BayerBG14 BayerGB14 BayerGR14",
        16: """mono16 16UC1 bayer_rggb16 bayer_bggr16 bayer_gbrg16 bayer_grbg16 Mono16 BayerRG16 BayerBG16 BayerGB16
        BayerGR16 PolarizeMono16 Polarized16 BayerRGPolarized16 PolarizedMono16 PolarizedBayerBG16""",
    },
    "p": {
        10: "Mono10p BayerRG10p BayerBG10p BayerGB10p BayerGR10p Polarized10p BayerRGPolarized10p",
        12: """Mono12p BayerRG12p BayerBG12p BayerGB12p BayerGR12p PolarizeMono12p Polarized12p BayerRGPolarized12p
        BaumerPolarized12p PolarizedMono12p PolarizedBayerBG12p""",
    },
    "packed": {
        10: "Mono10Packed BayerRG10Packed BayerBG10Packed BayerGB10Packed BayerGR10Packed",
        12: """Mono12Packed BayerRG12Packed BayerBG12Packed BayerGB12Packed BayerGR12Packed PolarizeMono12Packed
        PolarizedMono12Packed PolarizedBayerBG12Packed""",
    },
}
#: The same of four ready angles a pixel, by the colours of four neighbouring pixels.
_SPLIT = {
    "": {
        "u8": {
            8: """PolarizedAngles_0d_45d_90d_135d_Mono8 polarized_angles_0d_45d_90d_135d_mono8 PolarizedQuadMono8""",
        },
        "u16": {
            16: """PolarizedAngles_0d_45d_90d_135d_Mono16 polarized_angles_0d_45d_90d_135d_mono16 PolarizedQuadMono16"""
        },
        "p": {12: "PolarizedAngles_0d_45d_90d_135d_Mono12p polarized_angles_0d_45d_90d_135d_mono12p"},
    },
    "RGGB": {
        "u8": {8: "PolarizedAngles_0d_45d_90d_135d_BayerRG8 polarized_angles_0d_45d_90d_135d_bayer_rg8"},
        "u16": {16: "PolarizedAngles_0d_45d_90d_135d_BayerRG16 polarized_angles_0d_45d_90d_135d_bayer_rg16"},
        "p": {12: "PolarizedAngles_0d_45d_90d_135d_BayerRG12p polarized_angles_0d_45d_90d_135d_bayer_rg12p"},
    },
    "BGGR": {"u8": {8: "PolarizedQuadBG8"}, "u16": {16: "PolarizedQuadBG16"}},
}


class Named(NamedTuple):
    """What an encoding means: bits and packing of a number, numbers a pixel, and the colours of ready angles."""

    bits: int
    packing: str
    channels: int = 1
    bayer: str = ""


def _named(names: Dict[str, Dict[int, str]], *rest: Any) -> Dict[str, Named]:
    rows = ((packing, bits, text) for packing, row in names.items() for bits, text in row.items())
    return {name: Named(bits, packing, *rest) for packing, bits, text in rows for name in text.split()}


#: Every encoding of a raw frame.
ENCODINGS: Dict[str, Named] = {
    **_named(_MOSAICS),
    **{name: row for bayer, names in _SPLIT.items() for name, row in _named(names, 4, bayer).items()},
}
_COMMON = ["mono8", "mono16", "bayer_rggb8", "PolarizeMono12p", "BayerRG12Packed", "Mono10p", "Mono12", "mono8"]
_COMMON += ["PolarizedAngles_0d_45d_90d_135d_Mono8", "PolarizedAngles_0d_45d_90d_135d_Mono12p"]
_ALL = sorted(ENCODINGS)
_OTHERS = [
    "",
    "rgb8",
    "32FC1",
    "32FC3",
    "bgr8",
    "MONO8",
    "mono8 ",
    "mono\0",
    "8UC3",
    "yuv422",
    "Mono14p",
    "PolarizedDolp_Mono8",
    "\x1b[2J",
    "ü",
]
#: Encodings of products -> type, channels.
_PRODUCTS = {
    "mono8": ("u1", 1),
    "rgb8": ("u1", 3),
    "16UC1": ("u2", 1),
    "16UC3": ("u2", 3),
    "32FC1": ("f4", 1),
    "32FC3": ("f4", 3),
}
_CAUSES = ("cdr", "encoding", "size", "step", "truncated")
_STAMP = 1_700_000_000_123_456_789


def row_bytes(encoding: str, width: int) -> int:
    """Bytes of a row without padding."""
    bits, packing, channels, _ = ENCODINGS[encoding]
    if packing == "packed":
        return -(-width // 2) * 3
    return -(-width * channels * {"u8": 8, "u16": 16, "p": bits}[packing] // 8)


def other_rows(width: int) -> Set[int]:
    """Bytes of rows of any known image: of pixels of so many bits, or of two in three bytes."""
    return {-(-width * bits // 8) for bits in (8, 10, 12, 14, 16, 24, 30, 32, 36, 48, 64, 96, 128)} | {
        -(-width // 2) * 3
    }


def _is_step(step: int, row: int, width: int) -> bool:
    """Whether rows can be so many bytes apart: no padding, or up to a multiple of 2, 4, ... 256, and no other row."""
    is_rounded = any(
        step % multiple == 0 and row <= step < row + multiple for multiple in (2, 4, 8, 16, 32, 64, 128, 256)
    )
    return step == row or (is_rounded and step not in other_rows(width))


def unpacked(fields: Dict[str, Any]) -> Optional[np.ndarray]:
    """The pixels of an image as documented, one by one; None if there are none."""
    height, width, step = fields["height"], fields["width"], fields["step"]
    if fields["encoding"] not in ENCODINGS:
        return None
    bits, packing, channels, bayer = ENCODINGS[fields["encoding"]]
    side = 2 if channels == 4 else 1
    if min(height, width) * side < MIN_SIDE or max(height, width) * side > MAX_SIDE:
        return None
    if height * width * channels > MAX_PIXELS or bayer:  # the sensor is monochrome
        return None
    data = np.frombuffer(fields["data"], np.uint8)
    row = row_bytes(fields["encoding"], width)
    is_long = channels == 1 and packing in ("p", "packed") and (step or len(data) / height) == 2 * width
    if is_long and not any(-(-row // size) * size == step for size in (2, 4, 8, 16, 32, 64, 128, 256)):
        packing, row = "u16", 2 * width  # a driver's unpacked form
    step = step or row
    if not _is_step(step, row, width) or len(data) != step * height:
        return None
    numbers = _numbers(data.reshape(height, step)[:, :row], bits, packing, width * channels, fields["is_bigendian"])
    if channels == 1:
        return numbers
    mosaic = np.zeros((2 * height, 2 * width), int)
    i0, i45, i90, i135 = numbers.reshape(height, width, 4).transpose(2, 0, 1)
    mosaic[0::2, 0::2], mosaic[0::2, 1::2], mosaic[1::2, 0::2], mosaic[1::2, 1::2] = i90, i45, i135, i0
    return mosaic


def _numbers(rows: np.ndarray, bits: int, packing: str, count: int, is_bigendian: bool) -> np.ndarray:
    """The numbers in rows of bytes."""
    height = len(rows)
    if packing == "u8":
        return rows.astype(int)
    if packing == "u16":
        high, low = (0, 1) if is_bigendian else (1, 0)
        return rows[:, high::2].astype(int) * 256 + rows[:, low::2]
    if packing == "p":
        stream = np.unpackbits(rows, axis=1, bitorder="little")[:, : count * bits].reshape(height, count, bits)
        return stream @ (1 << np.arange(bits))
    triples = rows.reshape(height, -1, 3).astype(int)
    extra = bits - 8
    even = triples[..., 0] << extra | triples[..., 1] & ((1 << extra) - 1)
    odd = triples[..., 2] << extra | triples[..., 1] >> 4 & ((1 << extra) - 1)
    return np.stack([even, odd], -1).reshape(height, -1)[:, :count]


# --------------------------------------------------------------------------------------------------------------- inputs


def _text(rng: random.Random, common: List[str]) -> bytes:
    near = rng.random()
    if near < 0.85:
        return rng.choice(common).encode()
    if near < 0.95:
        return some_bytes(rng, rng.randint(0, 9))
    return b"x" * rng.choice((100, 1023, 1024, 1025, 3000))


def _put_text(writer: Writer, text: bytes) -> None:
    writer.align(4, 4)
    writer.number("I", len(text) + 1)
    writer.raw(text)
    writer.number("B", 0)


def _start(rng: random.Random) -> Writer:
    order = rng.choice("<<<>")
    writer = Writer(order)
    writer.number("B", 0)
    writer.number("B", int(order == "<"))
    writer.raw(b"\0\0" if rng.random() < 0.9 else some_bytes(rng, 2))
    return writer


def _stamp(rng: random.Random) -> Tuple[int, int]:
    if rng.random() < 0.8:
        return divmod(_STAMP, 10**9)
    return (
        rng.choice((0, -1, 1, 2**31 - 1, -(2**31))),
        rng.choice((0, 1, 10**9 - 1, 10**9, 4 * 10**9, 2**32 - 1)),
    )


def _put_header(rng: random.Random, writer: Writer) -> None:
    seconds, nanoseconds = _stamp(rng)
    writer.number("i", seconds)
    writer.number("I", nanoseconds)
    _put_text(writer, _text(rng, ["", "cam", "camera_optical_frame"]))


def image_of(rng: random.Random) -> Tuple[str, int, int, int, int, bytes]:
    """Encoding, height, width, step, byte order and data of an image, mostly right."""
    near = rng.random()
    encoding = rng.choice(_COMMON) if near < 0.7 else rng.choice(_ALL) if near < 0.85 else rng.choice(_OTHERS)
    height, width = rng.choice((16, 16, 17, 20, 15)), rng.choice((16, 16, 18, 19, 31, 1))
    if encoding in ENCODINGS:
        row = row_bytes(encoding, width)
    else:
        kind, channels = _PRODUCTS.get(encoding, ("u1", 1))
        row = width * channels * int(kind[1])
    step = row + rng.choice((0, 0, 0, 0, 1, -row % 4, -row % 32, -row % 256, -1, width, 2 * width - row, -row))
    size = max(0, (step or row) * height + rng.choice((0, 0, 0, 0, 0, 0, 0, -1, row - step, 1, -step)))
    if rng.random() < 0.1:
        height, width = rng.choice((height, special(rng, 32))), rng.choice((width, special(rng, 32)))
    if rng.random() < 0.05:
        step = special(rng, 32)
    return encoding, height, width, max(0, step), rng.choice((0, 0, 0, 1, 1, 2, 255)), some_bytes(rng, size)


def _make_image(rng: random.Random) -> Writer:
    encoding, height, width, step, is_bigendian, data = image_of(rng)
    writer = _start(rng)
    _put_header(rng, writer)
    writer.align(4, 4)
    writer.number("I", height)
    writer.number("I", width)
    _put_text(writer, encoding.encode() if rng.random() < 0.97 else b"e" * rng.choice((200, 65536)))
    writer.number("B", is_bigendian)
    writer.align(4, 4)
    writer.number("I", step)
    writer.number("I", len(data))
    writer.raw(data)
    return writer


def _make_compressed(rng: random.Random) -> Writer:
    writer = _start(rng)
    _put_header(rng, writer)
    _put_text(writer, _text(rng, ["png", "jpeg", "mono8; png compressed "]))
    data = some_bytes(rng, rng.choice((0, 1, 7, 100)))
    writer.align(4, 4)
    writer.number("I", len(data))
    writer.raw(data)
    return writer


def _double(rng: random.Random) -> float:
    return rng.choice((0.0, 1.0, 611.5, -200.0, 1e308, 5e-324, float("nan"), float("inf"), rng.uniform(-2000, 2000)))


def _make_camera_info(rng: random.Random) -> Writer:
    writer = _start(rng)
    _put_header(rng, writer)
    writer.align(4, 4)
    writer.number("I", 1024)
    writer.number("I", 1224)
    _put_text(writer, _text(rng, ["plumb_bob", "equidistant", ""]))
    count = rng.choice((0, 4, 5, 5, 5, 8, 14, 99, 100, 101, 1000))
    writer.align(4, 4)
    writer.number("I", count)
    writer.align(8, 4)
    for _ in range(count):
        writer.raw(struct.pack(f"{writer.order}d", 0.1))
    for _ in range(30):
        writer.number("d", _double(rng))
    for _ in range(6):
        writer.number("I", rng.choice((0, 1, 2, 100)))
    writer.number("B", rng.choice((0, 1, 1, 2)))
    return writer


def _make_float32(rng: random.Random) -> Writer:
    writer = _start(rng)
    writer.number("f", rng.choice((0.0, 0.25, float("nan"), -float("inf"), rng.uniform(-1, 1))))
    return writer


def _make_ros1(rng: random.Random) -> Writer:
    encoding, height, width, step, is_bigendian, data = image_of(rng)
    writer = Writer()
    seconds, nanoseconds = _stamp(rng)
    for value in (rng.choice((0, 7, 2**32 - 1)), seconds & 0xFFFFFFFF, nanoseconds):
        writer.number("I", value)
    for text in (_text(rng, ["cam", ""]), None, encoding.encode()):
        if text is None:
            writer.number("I", height)
            writer.number("I", width)
        else:
            writer.number("I", len(text))
            writer.raw(text)
    writer.number("B", is_bigendian)
    writer.number("I", step)
    writer.number("I", len(data))
    writer.raw(data)
    return writer


_MAKERS = {
    "image": _make_image,
    "compressed": _make_compressed,
    "camera_info": _make_camera_info,
    "float32": _make_float32,
    "ros1": _make_ros1,
}
_KINDS = ["image"] * 6 + ["camera_info", "camera_info", "compressed", "float32", "ros1", "ros1"]


# -------------------------------------------------------------------------------------------------------------- checks


def same(got: Any, want: Any, what: str) -> None:
    """Refuse what differs."""
    if got != want:
        raise WrongError(f"{what} is {str(got)[:80]!r}, it should be {str(want)[:80]!r}")


class Messages(Target):
    """CDR of images, compressed images, calibrations and numbers, and images of ROS 1."""

    name = "messages"

    def make(self, rng: random.Random) -> Case:
        kind = rng.choice(_KINDS)
        return Case(kind, mutated(rng, _MAKERS[kind](rng), 0.25))

    def run(self, case: Case) -> str:
        if case.kind == "ros1":
            return _run_ros1(case.data)
        try:
            wanted: Optional[cdr.Parsed] = cdr.parse(case.kind, case.data)
        except cdr.NotCdrError:
            wanted = None
        return {"image": _run_image, "camera_info": _run_camera_info}.get(case.kind, _run_other)(case, wanted)


def _documented(err: FrameError) -> str:
    if err.cause not in _CAUSES:
        raise WrongError(f"cause {err.cause} is not documented for messages")
    if not str(err).isprintable() or len(str(err)) > 2000:
        raise WrongError(f"a message of {len(str(err))} characters, or not printable")
    return refused(err, err.cause)


def _check_refusal(err: FrameError, wanted: Optional[cdr.Parsed], is_wrong: bool = False) -> str:
    """A refusal, which is right for what is no message and allowed for what is loose, and else needs a reason."""
    if wanted is not None and not wanted.loose and not is_wrong:
        raise WrongError(f"a valid message is refused: {err}")
    return _documented(err)


def _header_is_wrong(fields: Dict[str, Any]) -> bool:
    return bool(fields["nanosec"] >= 10**9 or len(fields["frame_id"]) > messages.MAX_NAME)


def _stamp_ns(fields: Dict[str, Any]) -> int:
    return int(fields["sec"] * 10**9 + fields["nanosec"])


def _run_image(case: Case, wanted: Optional[cdr.Parsed]) -> str:
    for given in (case.data, memoryview(bytearray(case.data))):
        try:
            image = messages.decode_image(given)
        except FrameError as err:  # noqa: PERF203
            return _check_refusal(err, wanted, wanted is not None and _header_is_wrong(wanted.fields))
    if wanted is None:
        raise WrongError("what is no image message is taken for one")
    fields = wanted.fields
    if _header_is_wrong(fields):
        raise WrongError("a header that no message could carry on is taken")
    _compare_image(image, fields)
    same(messages.peek_stamp(case.data), image.stamp_ns, "the stamp that peek_stamp finds")
    stamped = messages.restamp(case.data, 5_000_000_007)
    same(cdr.parse("image", stamped).fields, {**fields, "sec": 5, "nanosec": 7}, "a message with another stamp")
    _run_to_array(image, fields)
    bits, packing, *_ = ENCODINGS.get(fields["encoding"], (0, ""))
    pixels = unpacked(fields)
    try:
        frame = messages.to_raw(image)
        raw = frame.unpack()
    except FrameError as err:
        if pixels is not None:
            raise WrongError(f"a frame that is one is refused: {err}") from err
        return _documented(err)
    if pixels is None:
        raise WrongError(f"pixels are taken that are none: {fields['encoding']} {raw.mosaic.shape}")
    if raw.mosaic.dtype not in (np.uint8, np.uint16) or not np.array_equal(raw.mosaic, pixels):
        raise WrongError(f"pixels differ: {fields['encoding']}, {fields['width']}x{fields['height']}")
    is_unpacked = packing in ("p", "packed") and raw.full_scale != (1 << bits) - 1
    same(raw.full_scale, ((1 << bits) - 1) << (16 - bits if is_unpacked else 0), "full scale")
    return "accepted"


def _compare_image(image: Any, fields: Dict[str, Any]) -> None:
    same(image.stamp_ns, _stamp_ns(fields), "stamp")
    for name in ("frame_id", "height", "width", "encoding", "step"):
        same(getattr(image, name), fields[name], name)
    same(image.is_bigendian, bool(fields["is_bigendian"]), "is_bigendian")
    same(image.data.tobytes(), fields["data"], "data")


def _run_to_array(image: Any, fields: Dict[str, Any]) -> None:
    """A product's image is read as documented, or refused."""
    kind, channels = _PRODUCTS.get(fields["encoding"], ("", 0))
    height, width, step, data = (fields[name] for name in ("height", "width", "step", "data"))
    row = width * channels * int(kind[1:] or 0)
    is_right = bool(kind) and step >= row and _is_step(step, row, width) and len(data) == step * height
    try:
        array = messages.to_array(image)
    except FrameError as err:
        _documented(err)
        if is_right:
            raise WrongError(f"a product that is one is refused: {err}") from err
        return
    if not is_right:
        raise WrongError("a product is read that is none")
    order = ">" if fields["is_bigendian"] else "<"
    rows = range(height if row else 0)  # without columns, any number of rows fits into no data
    want = b"".join(data[k * step : k * step + row] for k in rows)
    if array.astype(order + kind).tobytes() != want:
        raise WrongError("pixels of a product differ")
    same(array.shape, (height, width, channels)[: 2 if channels == 1 else 3], "shape")


def _run_camera_info(case: Case, wanted: Optional[cdr.Parsed]) -> str:
    try:
        info = messages.decode_camera_info(case.data)
    except FrameError as err:
        fields = wanted.fields if wanted is not None else {}
        is_long = bool(fields) and (
            len(fields["d"]) > 8 * messages.MAX_COEFFICIENTS or len(fields["distortion_model"]) > messages.MAX_NAME
        )
        return _check_refusal(err, wanted, is_long)
    if wanted is None:
        raise WrongError("what is no calibration is taken for one")
    fields = wanted.fields
    same(messages.stamp_of(info), _stamp_ns(fields), "stamp")
    for half in (False, True):
        with np.errstate(all="ignore"):  # it may hold any numbers
            made = messages.transform_camera_info(info, Geometry(step=2), (512, 612)) if half else info
        again = cdr.parse("camera_info", bytes(messages.encode_camera_info(made, 5_000_000_007, "cam"))).fields
        want = {**fields, "sec": 5, "nanosec": 7, "frame_id": "cam"}
        if half:
            none = ("binning_x", "binning_y", "x_offset", "y_offset", "roi_height", "roi_width", "do_rectify")
            want.update({"height": 512, "width": 612, **dict.fromkeys(none, 0)})
        for name in want:
            if name in ("k", "p", "r") and half:
                one, two = np.frombuffer(again[name]), _halved(fields, name)
                # the smallest numbers lose digits, and products of the largest ones become infinite
                is_known = np.isfinite(one).all() and np.isfinite(two).all()
                if is_known and not np.allclose(one, two, rtol=1e-12, atol=1e-300):
                    raise WrongError(f"{name} is {one}, it should be {two}")
            else:
                same(again[name], want[name], name)
    return "accepted"


def _halved(fields: Dict[str, Any], name: str) -> np.ndarray:
    """A matrix for an image of half the size: (x + 0.5) / 2 - 0.5 of every coordinate x in the binned and cut frame.

    The last row of a camera's matrix is (0, 0, 1); what others make of it is linear too.
    """
    values = np.frombuffer(fields[name]).reshape(3, -1).copy()
    if name != "r" and values.any():
        with np.errstate(all="ignore"):
            for row, axis in enumerate("xy"):
                values[row, 2] -= fields[f"{axis}_offset"]
                values[row] = values[row] / (fields[f"binning_{axis}"] or 1) / 2 - values[2] / 4
    return values.reshape(-1)


def _run_other(case: Case, wanted: Optional[cdr.Parsed]) -> str:
    try:
        message = messages.decode(case.data, _NAMES[case.kind])
    except FrameError as err:
        return _check_refusal(err, wanted)
    if wanted is None:
        raise WrongError(f"what is no {case.kind} is taken for one")
    if case.kind == "float32":
        got = struct.pack("<f", message.data)
        if message.data == message.data:  # of a NaN, the bits may change
            same(got, wanted.fields["data"], "data")
            same(bytes(messages.encode_float32(message.data))[4:], wanted.fields["data"], "data, encoded again")
        return "accepted"
    same(messages.stamp_of(message), _stamp_ns(wanted.fields), "stamp")
    same(message.header.frame_id, wanted.fields["frame_id"], "frame_id")
    same(message.format, wanted.fields["format"], "format")
    same(message.data.tobytes(), wanted.fields["data"], "data")
    return "accepted"


def _run_ros1(data: bytes) -> str:
    try:
        wanted: Optional[cdr.Parsed] = cdr.parse_ros1("image", data)
    except cdr.NotCdrError as err:
        wanted, is_negative = None, isinstance(err, cdr.NegativeLengthError)
    try:
        made = bytes(messages.from_ros1(data, IMAGE))
        messages.decode_image(made)  # the conversion copies bytes; what they are is seen here
    except FrameError as err:
        return _check_refusal(err, wanted, wanted is not None and _header_is_wrong(wanted.fields))
    if wanted is None:
        if is_negative:  # unlike in CDR, nothing is left that would tell
            return "accepted"
        raise WrongError("what is no message of ROS 1 is taken for one")
    same(cdr.parse("image", made).fields, wanted.fields, "a message of ROS 1")
    return "accepted"
