"""Target: serialized messages, compared with a strict parser."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, Dict

import numpy as np
from named_encodings import ENCODINGS, row_bytes, unpacked

from fuzz import cdr
from fuzz.cases import Case, WrongError, refused, same
from fuzz.mutate import Writer, mutated, some_bytes, special
from polar_pipeline.recordings import messages
from polar_pipeline.recordings.definitions import from_ros1
from polar_pipeline.recordings.messages import IMAGE
from polar_pipeline.sensor.frames import FrameError

_KINDS = ["image"] * 6 + ["camera_info", "camera_info", "ros1", "ros1"]
_COMMON = ["mono8", "mono16", "bayer_rggb8", "PolarizeMono12p", "BayerRG12Packed", "Mono10p", "Mono12", "mono8"]
_COMMON += ["PolarizedAngles_0d_45d_90d_135d_Mono8", "PolarizedAngles_0d_45d_90d_135d_Mono12p"]
_OTHERS = ["", "rgb8", "32FC1", "32FC3", "MONO8", "mono8 ", "mono\0", "8UC3", "yuv422", "\x1b[2J", "ü"]
_CAUSES = ("cdr", "encoding", "size", "step", "truncated")
_STAMP = 1_700_000_000_123_456_789


# --------------------------------------------------------------------------------------------------------------- inputs


def _text(rng: random.Random, *common: str) -> bytes:
    near = rng.random()
    if near < 0.85:
        return rng.choice(common).encode()
    return some_bytes(rng, rng.randint(0, 9)) if near < 0.95 else b"x" * rng.choice((100, 1024, 1025, 3000))


def _header(rng: random.Random) -> Dict[str, Any]:
    seconds, nanoseconds = divmod(_STAMP, 10**9)
    if rng.random() < 0.2:
        seconds = rng.choice((0, -1, 1, 2**31 - 1, -(2**31)))
        nanoseconds = rng.choice((0, 1, 10**9 - 1, 10**9, 4 * 10**9, 2**32 - 1))
    return {"sec": seconds, "nanosec": nanoseconds, "frame_id": _text(rng, "", "cam", "camera_optical_frame")}


def image_fields(rng: random.Random) -> Dict[str, Any]:
    """The fields of an image, mostly right."""
    near = rng.random()
    encoding = rng.choice(_COMMON if near < 0.7 else sorted(ENCODINGS) if near < 0.85 else _OTHERS)
    height, width = rng.choice((16, 16, 17, 20, 15)), rng.choice((16, 16, 18, 19, 31, 1))
    row = row_bytes(encoding, width) if encoding in ENCODINGS else 4 * width
    step = max(0, row + rng.choice((0, 0, 0, 0, 1, -row % 4, -row % 32, -1, width, 2 * width - row, -row)))
    size = max(0, (step or row) * height + rng.choice((0, 0, 0, 0, 0, 0, 0, -1, row - step, 1, -step)))
    if rng.random() < 0.1:
        height, width = rng.choice((height, special(rng, 32))), rng.choice((width, special(rng, 32)))
    return {
        **_header(rng),
        "height": height,
        "width": width,
        "encoding": encoding.encode(),
        "is_bigendian": rng.choice((0, 0, 0, 1, 1, 2, 255)),
        "step": step if rng.random() < 0.95 else special(rng, 32),
        "data": some_bytes(rng, size),
    }


def made(rng: random.Random, kind: str) -> Writer:
    """A message, mostly valid."""
    fields = image_fields(rng)
    if kind == "ros1":
        fields["sec"] = abs(fields["sec"]) % 2**31
    elif kind == "camera_info":
        values = (0.0, 1.0, 611.5, -200.0, 1e308, 5e-324, float("nan"), float("inf"))
        for name, count in (("k", 9), ("r", 9), ("p", 12)):
            fields[name] = [rng.choice(values) for _ in range(count)]
        fields["distortion_model"] = _text(rng, "plumb_bob", "equidistant", "")
        fields.update(d=[0.1] * rng.choice((0, 4, 5, 5, 8, 14, 99, 100, 101)), do_rectify=rng.random() < 0.5)
    return cdr.write(kind, fields, "<" if kind == "ros1" else rng.choice("<<<>"))


# -------------------------------------------------------------------------------------------------------------- checks


class Messages:
    """CDR of images and lens calibrations, and images of ROS 1; files need no folder."""

    def __init__(self, _: Path) -> None:
        pass

    def make(self, rng: random.Random) -> Case:
        """An input; it depends on `rng` alone."""
        kind = rng.choice(_KINDS)
        return Case(kind, mutated(rng, made(rng, kind), 0.25))

    def run(self, case: Case) -> str:
        """Try an input; returns `accepted`, or `refused: ` and the documented error. Every exception is a defect."""
        is_negative, wanted, data = False, None, case.data
        try:
            wanted = cdr.parse(case.kind, data)
        except cdr.NotCdrError as err:
            is_negative = isinstance(err, cdr.NegativeLengthError)
        try:
            if case.kind == "camera_info":
                message = messages.decode_camera_info(data)
            else:
                data = bytes(from_ros1(data, IMAGE)) if case.kind == "ros1" else data
                message = messages.decode_image(memoryview(bytearray(data)))
        except FrameError as err:
            if wanted is not None and not wanted.is_loose and not _is_beyond_limits(wanted.fields):
                raise WrongError(f"a valid message is refused: {err}") from err
            return refused(err, *_CAUSES)
        if wanted is None:
            if case.kind == "ros1" and is_negative:  # unlike in CDR, nothing in the converted message shows it
                return "accepted"
            raise WrongError(f"bytes that are not {case.kind} are taken for it")
        fields = wanted.fields
        if _is_beyond_limits(fields):
            raise WrongError("a header that no message could carry on is taken")
        same(messages.peek_stamp(data), fields["sec"] * 10**9 + fields["nanosec"], "stamp")
        if case.kind != "camera_info":
            return _check_image(message, fields, data)
        again = cdr.parse("camera_info", bytes(messages.encode_camera_info(message, 5_000_000_007, "cam"))).fields
        same(again, {**fields, "sec": 5, "nanosec": 7, "frame_id": "cam"}, "a calibration, encoded again")
        return "accepted"


def _is_beyond_limits(fields: Dict[str, Any]) -> bool:
    if "d" in fields:
        is_long = len(fields["distortion_model"]) > messages.MAX_NAME
        return is_long or len(fields["d"]) > 8 * messages.MAX_COEFFICIENTS
    return fields.get("nanosec", 0) >= 10**9 or len(fields.get("frame_id", "")) > messages.MAX_NAME


def _check_image(image: Any, fields: Dict[str, Any], data: bytes) -> str:
    same(image.stamp_ns, messages.peek_stamp(data), "stamp")
    for name in ("frame_id", "height", "width", "encoding", "step"):
        same(getattr(image, name), fields[name], name)
    same((image.is_bigendian, image.data.tobytes()), (bool(fields["is_bigendian"]), fields["data"]), "data")
    wanted = {name: value for name, value in fields.items() if name != "seq"}
    restamped = cdr.parse("image", messages.restamp(data, 5_000_000_007)).fields
    same(restamped, {**wanted, "sec": 5, "nanosec": 7}, "a message with another stamp")
    bits, packing, *_ = ENCODINGS.get(fields["encoding"], (0, ""))
    pixels = unpacked(fields)
    try:
        raw = messages.to_raw(image).unpack()
    except FrameError as err:
        if pixels is not None:
            raise WrongError(f"a valid frame is refused: {err}") from err
        return refused(err, *_CAUSES)
    if pixels is None or raw.mosaic.dtype not in (np.uint8, np.uint16) or not np.array_equal(raw.mosaic, pixels):
        raise WrongError(f"pixels differ: {fields['encoding']}, {fields['width']}x{fields['height']}")
    is_unpacked = packing in ("p", "packed") and raw.full_scale != (1 << bits) - 1
    same(raw.full_scale, ((1 << bits) - 1) << (16 - bits if is_unpacked else 0), "full scale")
    return "accepted"
