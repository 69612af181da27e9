"""Target: serialized messages."""

from __future__ import annotations

import random
import struct
from typing import Any, Dict, List, Optional, Tuple

import numpy as np

from fuzz import cdr
from fuzz.engine import Case, Target, WrongError, refused
from fuzz.mutate import Writer, mutated, some_bytes, special
from polar_pipeline import messages
from polar_pipeline.geometry import Geometry
from polar_pipeline.messages import CAMERA_INFO, COMPRESSED, FLOAT32, IMAGE
from polar_pipeline.sensor.frames import MAX_PIXELS, MAX_SIDE, MIN_SIDE, FrameError

_NAMES = {"image": IMAGE, "compressed": COMPRESSED, "camera_info": CAMERA_INFO, "float32": FLOAT32}
#: Significant bits and how they are packed, by what encodings end in.
_SIZES = {"8": (8, "u8"), "16": (16, "u16")}
_PFNC = {**_SIZES, "10": (10, "u16"), "12": (12, "u16"), "10p": (10, "p"), "12p": (12, "p")}
_PFNC.update({"10Packed": (10, "packed"), "12Packed": (12, "packed")})
_ANGLES = "0d_45d_90d_135d_"
#: Every encoding of a raw frame -> significant bits, packing.
ENCODINGS: Dict[str, Tuple[int, str]] = {
    **{f"mono{size}": row for size, row in _SIZES.items()},
    **{f"{size}UC1": row for size, row in _SIZES.items()},
    **{f"bayer_{tile}{size}": row for tile in ("rggb", "bggr", "gbrg", "grbg") for size, row in _SIZES.items()},
    **{
        f"{polarized}{angles}{color}{size}": row
        for polarized in ("", "Polarize", "Polarized", "Polarise")
        for angles in ("", f"Angles_{_ANGLES}")
        for color in ("Mono", "BayerRG", "BayerBG", "BayerGB", "BayerGR")
        for size, row in _PFNC.items()
    },
    **{
        f"polarized_angles_{_ANGLES}{color}{size.lower()}": row
        for color in ("mono", "bayer_rg", "bayer_bg", "bayer_gb", "bayer_gr")
        for size, row in _PFNC.items()
    },
}
_COMMON = ["mono8", "mono16", "bayer_rggb8", "PolarizeMono12p", "BayerRG12Packed", "Mono10p", "Mono12", "mono8"]
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
    "Mono14",
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
    bits, packing = ENCODINGS[encoding]
    if packing == "packed":
        return -(-width // 2) * 3
    return -(-width * {"u8": 8, "u16": 16, "p": bits}[packing] // 8)


def unpacked(fields: Dict[str, Any]) -> Optional[np.ndarray]:
    """The pixels of an image as documented, one by one; None if there are none."""
    height, width, step = fields["height"], fields["width"], fields["step"]
    if fields["encoding"] not in ENCODINGS:
        return None
    if min(height, width) < MIN_SIDE or max(height, width) > MAX_SIDE or height * width > MAX_PIXELS:
        return None
    data = np.frombuffer(fields["data"], np.uint8)
    bits, packing = ENCODINGS[fields["encoding"]]
    row, shift = row_bytes(fields["encoding"], width), 0
    if packing in ("p", "packed") and max(step, len(data) // height) >= 2 * width:  # a driver's unpacked form
        packing, row, shift = "u16", 2 * width, 16 - bits
    step = step or row
    if step < row or len(data) < step * (height - 1) + row:
        return None
    rows = np.stack([data[k * step : k * step + row] for k in range(height)])
    if packing == "u8":
        return rows.astype(int)
    if packing == "u16":
        high, low = (0, 1) if fields["is_bigendian"] else (1, 0)
        return rows[:, high::2].astype(int) * 256 + rows[:, low::2]
    del shift
    if packing == "p":
        stream = np.unpackbits(rows, axis=1, bitorder="little")[:, : width * bits].reshape(height, width, bits)
        return stream @ (1 << np.arange(bits))
    triples = rows.reshape(height, -1, 3).astype(int)
    extra = bits - 8
    even = triples[..., 0] << extra | triples[..., 1] & ((1 << extra) - 1)
    odd = triples[..., 2] << extra | triples[..., 1] >> 4 & ((1 << extra) - 1)
    return np.stack([even, odd], -1).reshape(height, -1)[:, :width]


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
    step = row + rng.choice((0, 0, 0, 0, 1, 2, 5, -1, width, 2 * width - row, -row))
    size = max(0, (step or row) * height + rng.choice((0, 0, 0, 0, 0, -1, row - step, 1, -step)))
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
    bits, packing = ENCODINGS.get(fields["encoding"], (0, ""))
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
    is_right = bool(kind) and step >= row and len(data) >= step * height
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
