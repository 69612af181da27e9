"""Messages as bytes, against the CDR rules by hand, rosbags and the real message types."""

from __future__ import annotations

import dataclasses
import struct
from typing import Any, Tuple

import numpy as np
import pytest
from rosbags_messages import encode, typestore

from polar_pipeline import PRODUCTS, FrameError, Pipeline
from polar_pipeline.recordings import messages
from polar_pipeline.sensor.frames import FORMATS, pack

STAMP = 1_700_000_000_123_456_789
RAW = (np.arange(32 * 40).reshape(32, 40) % 251).astype(np.uint8)


def ros2(name: str) -> Any:
    """A real message class, from a ROS installation."""
    package, _, kind = name.split("/")
    pytest.importorskip("rclpy")
    return getattr(pytest.importorskip(f"{package}.msg"), kind)


def image_by_hand(data: bytes, size: Tuple[int, int], encoding: bytes = b"mono8\0", step: int = 0) -> bytes:
    """A little-endian `sensor_msgs/Image` with frame `cam`, written field by field as CDR lays them out."""
    out = b"\0\1\0\0" + struct.pack("<iI", *divmod(STAMP, 10**9)) + struct.pack("<I4s", 4, b"cam\0")
    out += struct.pack("<III", *size, len(encoding)) + encoding
    out += b"\0" + b"\0" * (-(len(out) - 4 + 1) % 4)  # is_bigendian, then aligned to 4 from behind the encapsulation
    return out + struct.pack("<II", step or size[1], len(data)) + data


def test_image_is_laid_out_as_cdr_says() -> None:
    cdr = messages.encode_image(STAMP, "cam", "mono8", RAW)
    assert bytes(cdr) == image_by_hand(RAW.tobytes(), RAW.shape)


def test_decoded_image_is_a_view_of_the_bytes() -> None:
    cdr = bytearray(image_by_hand(RAW.tobytes(), RAW.shape))
    image = messages.decode_image(cdr)
    fields = {**vars(image), "data": None}
    assert tuple(fields.values()) == (STAMP, "cam", 32, 40, "mono8", False, 40, None, ())
    np.testing.assert_array_equal(image.data, RAW.reshape(-1))
    cdr[-1] ^= 0xFF
    assert image.data[-1] == RAW[-1, -1] ^ 0xFF


def test_bytes_of_another_message_are_refused() -> None:
    with pytest.raises(FrameError, match="not a sensor_msgs/msg/CameraInfo"):
        messages.decode_camera_info(image_by_hand(RAW.tobytes(), RAW.shape))


@pytest.mark.parametrize("big_endian", [False, True])
@pytest.mark.parametrize("name", ["mono16", "PolarizeMono12p", "BayerRG12Packed", "bayer_rggb8"])
def test_raw_pixels_come_back_from_a_message(name: str, big_endian: bool) -> None:
    key = {"mono16": "16", "PolarizeMono12p": "12p", "BayerRG12Packed": "12Packed", "bayer_rggb8": "8"}[name]
    fmt = FORMATS[key]
    mosaic = np.random.default_rng(1).integers(0, 1 << fmt.bits, (16, 18), np.uint16)
    data = np.frombuffer(pack(mosaic, fmt, big_endian), np.uint8)
    image = messages.ImageMessage(STAMP, "", 16, 18, name, big_endian, fmt.row_bytes(18), data)
    raw = messages.to_raw(image)
    assert raw.full_scale == (1 << fmt.bits) - 1
    np.testing.assert_array_equal(raw.unpack().mosaic, mosaic)


@pytest.mark.parametrize("sensor", ["IMX250MZR", "IMX250MYR"])
@pytest.mark.parametrize("dtype", ["float32", "uint8", "uint16"])
def test_every_product_survives_its_message(sensor: str, dtype: str) -> None:
    result = Pipeline(sensor, tuple(PRODUCTS), dtype=dtype, backend="cpu")(RAW)
    for name, array in result.items():
        kind, cdr = messages.product_message(name, array, STAMP, "cam")
        if name == "ssim":
            assert kind == messages.FLOAT32
            assert bytes(cdr) == b"\0\1\0\0" + struct.pack("<f", float(array))
            continue
        image = messages.decode_image(cdr)
        assert (kind, image.stamp_ns, image.frame_id) == (messages.IMAGE, STAMP, "cam")
        np.testing.assert_array_equal(messages.to_array(image), array)
        assert messages.to_array(image).dtype == array.dtype


def test_product_images_read_elsewhere() -> None:
    """Big-endian pixels and padded rows, as other writers make them."""
    words = np.array([[1, 0xABCD]], np.uint16)
    image = messages.ImageMessage(STAMP, "", 1, 2, "16UC1", True, 4, words.astype(">u2").view(np.uint8).reshape(-1))
    np.testing.assert_array_equal(messages.to_array(image), words)
    want = np.arange(18, dtype=np.float32).reshape(2, 3, 3)
    rows = np.zeros((2, 64), np.uint8)
    rows[:, :36] = want.astype(">f4").view(np.uint8).reshape(2, 36)
    image = messages.ImageMessage(STAMP, "", 2, 3, "32FC3", True, 64, rows.reshape(-1))
    np.testing.assert_array_equal(messages.to_array(image), want)
    for change, cause in (
        ({"encoding": "mono16"}, "encoding"),
        ({"step": 35}, "step"),
        ({"height": 3}, "truncated"),
        ({"encoding": "32FC1", "step": 36}, "step"),
    ):
        with pytest.raises(FrameError) as caught:
            messages.to_array(dataclasses.replace(image, **change))
        assert caught.value.cause == cause


def test_restamp_changes_the_stamp_alone() -> None:
    cdr = image_by_hand(RAW.tobytes(), RAW.shape)
    image = messages.decode_image(messages.restamp(cdr, 5_000_000_007))
    assert image.stamp_ns == 5_000_000_007
    np.testing.assert_array_equal(image.data, RAW.reshape(-1))
    assert messages.restamp(cdr, STAMP) == cdr
    assert messages.peek_stamp(cdr) == STAMP
    assert messages.peek_stamp(bytes(cdr)[:12]) == STAMP
    assert messages.peek_stamp(bytes(cdr)[:11]) is None
    store = typestore()
    big = store.serialize_cdr(store.deserialize_cdr(cdr, messages.IMAGE), messages.IMAGE, little_endian=False)
    assert messages.decode_image(messages.restamp(big, 5_000_000_007)).stamp_ns == 5_000_000_007
    assert messages.peek_stamp(messages.restamp(big, 5_000_000_007)) == 5_000_000_007


def camera_info() -> messages.CameraInfo:
    k = np.array([1000.0, 0, 611.5, 0, 1100, 511.5, 0, 0, 1])
    p = np.array([1000.0, 0, 611.5, -200, 0, 1100, 511.5, 0, 0, 0, 1, 0])
    d, r = np.array([0.1, 0, 0, 0, 0]), np.eye(3).reshape(-1)
    return messages.CameraInfo(
        1_000_000_002, "cam", 1024, 1224, "plumb_bob", d, k, r, p, (1, 2), (8, 16, 20, 40), do_rectify=True
    )


@pytest.mark.parametrize("little_endian", [False, True])
@pytest.mark.parametrize(("frame_id", "count"), [("", 0), ("cam", 5), ("caméra", 8), ("left", 14)])
def test_rosbags_reads_and_writes_the_same_calibrations(frame_id: str, count: int, little_endian: bool) -> None:
    """Names and coefficients of several lengths, for the alignment of what follows them."""
    info = dataclasses.replace(camera_info(), frame_id=frame_id, d=np.linspace(-1, 1, count))
    types, store = typestore().types, typestore()
    header = types["std_msgs/msg/Header"](types["builtin_interfaces/msg/Time"](1, 2), frame_id)
    roi = types["sensor_msgs/msg/RegionOfInterest"](8, 16, 20, 40, True)
    fields = header, 1024, 1224, "plumb_bob", info.d, info.k, info.r, info.p, 1, 2, roi
    cdr = store.serialize_cdr(types[messages.CAMERA_INFO](*fields), messages.CAMERA_INFO, little_endian=little_endian)
    got = messages.decode_camera_info(cdr)
    for field in dataclasses.fields(info):
        np.testing.assert_array_equal(getattr(got, field.name), getattr(info, field.name))
    assert bytes(messages.encode_camera_info(got, 1_000_000_002, frame_id)) == encode(
        types[messages.CAMERA_INFO](*fields), messages.CAMERA_INFO
    )


def test_a_message_is_refused_wherever_it_is_cut_off() -> None:
    data = np.arange(4, dtype=np.uint8)
    for decode, cdr in (
        (messages.decode_image, messages.encode_image(STAMP, "cam", "mono8", data.reshape(2, 2))),
        (messages.decode_compressed, messages.encode_compressed(STAMP, "cam", "png", data)),
        (messages.decode_camera_info, messages.encode_camera_info(camera_info(), STAMP, "cam")),
    ):
        decode(cdr)
        for length in range(len(cdr)):
            with pytest.raises(FrameError, match=f"{length} bytes are not a sensor_msgs/msg/") as caught:
                decode(bytes(cdr[:length]))
            assert caught.value.cause == "cdr"


def test_texts_end_in_a_zero_and_are_utf_8() -> None:
    """An empty text may lack its zero, as some writers have it."""

    def image_of(text: bytes) -> bytes:
        rest = struct.pack("<II", 1, 1) + struct.pack("<I", 1) + bytes(4) + struct.pack("<II", 1, 1) + b"x"
        return b"\0\1\0\0" + bytes(8) + struct.pack("<I", len(text)) + text + bytes(-len(text) % 4) + rest

    assert messages.decode_image(image_of(b"")).frame_id == ""
    assert messages.decode_image(image_of("é\0".encode())).frame_id == "é"
    for wrong in (b"cam", b"\xff\0"):
        with pytest.raises(FrameError, match="not a sensor_msgs/msg/Image"):
            messages.decode_image(image_of(wrong))


# ------------------------------------------------------------------------------------------------------------- bounds


def image_at(nanoseconds: int = 0, frame_id: str = "cam") -> bytes:
    """A serialized image whose stamp has these nanoseconds."""
    cdr = bytearray(messages.encode_image(0, frame_id, "mono8", np.zeros((16, 16), np.uint8)))
    struct.pack_into("<iI", cdr, 4, 1, nanoseconds)
    return bytes(cdr)


def test_stamps_and_names_have_limits() -> None:
    for good, wrong, said in (
        (image_at(999_999_999), image_at(1_000_000_000), "must be below 1000000000, got 1000000000"),
        (image_at(frame_id="x" * 1024), image_at(frame_id="x" * 1025), "at most 1024 characters, got 1025"),
    ):
        messages.decode_image(good)
        with pytest.raises(FrameError, match=said) as error:
            messages.decode_image(wrong)
        assert error.value.cause == "cdr"


@pytest.mark.parametrize("byte_order", ["<", ">"])
def test_at_most_three_bytes_follow_a_message(byte_order: str) -> None:
    """Middlewares pad messages to multiples of four bytes."""
    cdr = (b"\0\1\0\0" if byte_order == "<" else b"\0\0\0\0") + struct.pack(f"{byte_order}f", 0.5)
    for padding in range(4):
        assert messages.decode_float32(cdr + bytes(padding)) == 0.5
    for wrong in (cdr + bytes(4), cdr[:-1], b""):
        with pytest.raises(FrameError, match=r"bytes are not a std_msgs/msg/Float32") as error:
            messages.decode_float32(wrong)
        assert error.value.cause == "cdr"


@pytest.mark.parametrize(
    ("time_ns", "stamp_ns"), [(-1, 0), (0, 0), (5, 5), ((1 << 31) * 10**9 - 1, None), ((1 << 31) * 10**9, None)]
)
def test_times_beyond_a_stamp_become_the_nearest_one(time_ns: int, stamp_ns: Any) -> None:
    found = messages.stamp_within_range(time_ns)
    assert found == ((1 << 31) * 10**9 - 1 if stamp_ns is None else stamp_ns)
    cdr = messages.encode_image(found, "", "mono8", np.zeros((16, 16), np.uint8))
    assert messages.peek_stamp(cdr) == messages.decode_image(cdr).stamp_ns == found


# ------------------------------------------------------------------------------------------- as ROS itself reads them


def test_ros_reads_diagnostics() -> None:
    statuses = [
        messages.Status(0, "first", "ok", "IMX250MZR", {"p50": "1.5", "a longer name": ""}),
        messages.Status(2, "second", "bad", "", {}),
    ]
    kind = ros2(messages.DIAGNOSTICS)
    from rclpy.serialization import deserialize_message

    got = deserialize_message(bytes(messages.encode_diagnostics(STAMP, statuses)), kind)
    assert (got.header.stamp.sec, got.header.stamp.nanosec) == divmod(STAMP, 10**9)
    assert [(row.level, row.name, row.message, row.hardware_id) for row in got.status] == [
        (b"\0", "first", "ok", "IMX250MZR"),
        (b"\2", "second", "bad", ""),
    ]
    assert [(row.key, row.value) for row in got.status[0].values] == [("p50", "1.5"), ("a longer name", "")]


def test_images_that_ros_wrote() -> None:
    image = ros2(messages.IMAGE)()
    from rclpy.serialization import serialize_message

    image.header.stamp.sec, image.header.stamp.nanosec = divmod(STAMP, 10**9)
    image.header.frame_id, image.encoding = "a frame", "PolarizeMono8"
    image.height, image.width, image.step = 32, 40, 40
    image.data.frombytes(RAW.tobytes())
    got = messages.decode_image(serialize_message(image))
    assert (got.stamp_ns, got.frame_id, got.encoding) == (STAMP, "a frame", "PolarizeMono8")
    np.testing.assert_array_equal(messages.to_raw(got).mosaic, RAW)


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("padding", [0, 32])
def test_stokes_vectors_of_any_byte_order_and_step(order: str, padding: int) -> None:
    light = np.random.default_rng(0).uniform(0, 1, (32, 40, 3)) * [1, 0.4, 0.4] + [1, 0, 0]
    rows = np.zeros((32, 12 * 40 + padding), np.uint8)
    rows[:, : 12 * 40] = light.astype(f"{order}f4").reshape(32, -1).view(np.uint8)
    options = Pipeline(backend="cpu").options
    place = 0, "cam", 32, 40, "Stokes32F", order == ">", rows.shape[1]
    frame = messages.to_raw(messages.ImageMessage(*place, rows.reshape(-1)), options)
    with Pipeline(products="stokes", backend="cpu") as pipeline:
        np.testing.assert_allclose(pipeline(frame)["stokes"], light, atol=1e-6)  # float32
    wrong = messages.ImageMessage(*place, (1000 * light).astype(f"{order}f4").reshape(-1).view(np.uint8))
    with pytest.raises(FrameError, match=r"at most 2 at full scale 1|step"):
        messages.to_raw(wrong, options)
