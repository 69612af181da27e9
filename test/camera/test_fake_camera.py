"""The camera on loopback: what it promises to the tests of those that receive from it."""

from __future__ import annotations

import ctypes
import socket
import struct
import time
from contextlib import contextmanager
from typing import Any, Iterator, List, Tuple

import numpy as np
import pytest
from fake_camera import PORT, FakeCamera, camera_features, function, genicam, loopback_addresses
from support import TIMEOUT

from polar_pipeline.sensor.frames import FORMATS, frame_from_buffer
from polar_pipeline.sensor.mosaic import SENSORS

pytestmark = pytest.mark.camera
Pointer, Text, Int = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int
SIZE = (48, 64)
FRAMES = np.random.default_rng(0).integers(0, 4096, (3, *SIZE)).astype(np.uint16)


def arv(name: str, result: Any, kinds: List[Any], *values: Any) -> Any:
    """Call a function of Aravis whose last argument takes an error, which is raised."""
    error = Pointer()
    answer = function(f"arv_camera_{name}", result, *kinds, Pointer)(*values, ctypes.byref(error))
    if error:
        raise OSError(ctypes.string_at(ctypes.cast(error.value + 8, ctypes.POINTER(Text))[0]).decode())
    return answer


class Client:
    """An Aravis client that takes frames of a camera, by address or name."""

    def __init__(self, name: str) -> None:
        self.camera = arv("new", Pointer, [Text], name.encode())

    def set(self, feature: str, value: str) -> None:
        function("arv_device_set_features_from_string", Int, Pointer, Text, Pointer)(
            function("arv_camera_get_device", Pointer, Pointer)(self.camera), f"{feature}={value}".encode(), None
        )

    def text(self, feature: str) -> str:
        return arv("get_string", Text, [Pointer, Text], self.camera, feature.encode()).decode()

    def integer(self, feature: str) -> int:
        return int(arv("get_integer", ctypes.c_int64, [Pointer, Text], self.camera, feature.encode()))

    def number(self, feature: str) -> float:
        return float(arv("get_float", ctypes.c_double, [Pointer, Text], self.camera, feature.encode()))

    @contextmanager
    def acquiring(self) -> Iterator[Any]:
        """Give a function that returns status, number, timestamp and bytes of the next frame; None without one."""
        size, buffers = self.integer("PayloadSize"), {}
        stream = arv("create_stream", Pointer, [Pointer, Pointer, Pointer], self.camera, None, None)
        push = function("arv_stream_push_buffer", None, Pointer, Pointer)
        for memory in [ctypes.create_string_buffer(size) for _ in range(4)]:
            buffer = function("arv_buffer_new", Pointer, ctypes.c_size_t, Pointer)(size, memory)
            buffers[buffer] = memory
            push(stream, buffer)

        def take(seconds: float = TIMEOUT) -> Any:
            pop = function("arv_stream_timeout_pop_buffer", Pointer, Pointer, ctypes.c_uint64)
            buffer = pop(stream, int(seconds * 1e6))
            if not buffer:
                return None
            kinds = {"status": Int, "frame_id": ctypes.c_uint64, "timestamp": ctypes.c_uint64}
            facts = [function(f"arv_buffer_get_{name}", kind, Pointer)(buffer) for name, kind in kinds.items()]
            data = buffers[buffer].raw
            push(stream, buffer)
            return (*facts, data)

        try:
            arv("start_acquisition", None, [Pointer], self.camera)
            yield take
        finally:
            arv("stop_acquisition", None, [Pointer], self.camera)
            function("g_object_unref", None, Pointer)(stream)

    def close(self) -> None:
        function("g_object_unref", None, Pointer)(self.camera)


@pytest.fixture
def camera() -> Iterator[FakeCamera]:
    with FakeCamera(FRAMES) as made:
        yield made


@pytest.fixture
def client(camera: FakeCamera) -> Iterator[Client]:
    made = Client(camera.address)
    yield made
    made.close()


def take(client: Client) -> Tuple[int, int, int, bytes]:
    with client.acquiring() as next_frame:
        frame = next_frame()
    assert frame is not None
    assert frame[0] == 0
    return frame


@pytest.mark.parametrize("name", ["Mono8", "Mono10p", "Mono12", "Mono12p", "Mono12Packed", "Mono16", "PolarizeMono12p"])
def test_frames_have_the_pixel_format(client: Client, name: str) -> None:
    client.set("PixelFormat", name)
    _, number, _, data = take(client)
    bits = name.replace("Polarize", "")[4:]
    sent = frame_from_buffer(data, FORMATS[bits], *SIZE).unpack().mosaic
    wanted = FRAMES[number % 3].astype(int)
    expected = {"8": wanted // 16, "10p": wanted // 4, "16": wanted * 16}.get(bits, wanted)
    np.testing.assert_array_equal(sent, expected)


def test_regions_and_flips_are_those_of_the_sensor(camera: FakeCamera, client: Client) -> None:
    """The region is counted in the mirrored picture: frames of the sensor's angles themselves."""
    sensor = SENSORS["IMX250MYR"]
    rows, columns = np.indices(SIZE)

    def angles(mosaic: Any) -> np.ndarray:
        return np.vectorize(lambda r, c: mosaic.angle_index(r, c) + 4 * mosaic.color_index(r, c))(rows, columns)

    camera.show(angles(sensor).astype(np.uint8))
    client.set("PixelFormat", "Mono8")
    for feature, value in {"Width": 21, "Height": 15, "OffsetX": 3, "OffsetY": 6}.items():
        client.set(feature, str(value))
    for flip in ((False, False), (True, False), (False, True), (True, True)):
        client.set("ReverseX", str(flip[0]).lower())
        client.set("ReverseY", str(flip[1]).lower())
        sent = np.frombuffer(take(client)[3], np.uint8).reshape(15, 21)
        offset = (SIZE[1] - 3 - 21 if flip[0] else 3, SIZE[0] - 6 - 15 if flip[1] else 6)  # before the flip
        expected = angles(sensor.as_read_out(offset, flip, (15, 21)))[:15, :21]
        np.testing.assert_array_equal(sent, expected)


def test_features(client: Client, camera: FakeCamera) -> None:
    assert (client.text("DeviceVendorName"), client.text("DeviceSerialNumber")) == ("LUCID Vision Labs", "POL001")
    assert (client.integer("WidthMax"), client.integer("HeightMax")) == SIZE[::-1]
    for feature, value in {"ExposureTime": 1234.0, "Gain": 12.3, "Gamma": 0.45, "AcquisitionFrameRate": 12.5}.items():
        client.set(feature, str(value))
        assert client.number(feature) == camera.get(feature) == value
    camera.set("DeviceTemperature", -3.25)
    camera.set("PtpStatus", "Slave")
    assert client.number("DeviceTemperature") == -3.25
    assert client.text("PtpStatus") == "Slave"
    with pytest.raises(RuntimeError, match="Nonsense"):
        camera.set("Nonsense", 1)


def test_color_camera_without_a_feature() -> None:
    features = {"ExposureTime": 777.0}
    with FakeCamera(FRAMES, model="TRI050S-Q", features=features, without=["ReverseX"], offset_increment=4) as camera:
        client = Client("127.0.0.1")
        assert client.text("PixelFormat") == "BayerRG8"
        assert client.number("ExposureTime") == camera.get("ExposureTime") == 777.0
        step = arv("get_integer_increment", ctypes.c_int64, [Pointer, Text], client.camera, b"OffsetX")
        assert step == 4
        with pytest.raises(OSError, match="ReverseX"):
            arv("get_boolean", Int, [Pointer, Text], client.camera, b"ReverseX")
        client.close()
    with pytest.raises(KeyError, match="Nonsense"):
        genicam(camera_features("TRI050S-P", "1", SIZE, 1), ["Nonsense"])


def test_clock(client: Client, camera: FakeCamera) -> None:
    """Stamps follow the system's clock, another one, and one that stands still."""
    before = time.time_ns()
    stamp = take(client)[2]
    assert before < stamp < time.time_ns()
    camera.clock(-1e9, drift=1e5)
    start = time.time_ns()
    with client.acquiring() as next_frame:
        first, last = [next_frame() for _ in range(8)][::7]
        passed = time.time_ns() - start
    assert 0 < first[2] - (start - 10**18) < last[2] - (start - 10**18) < 1.1 * passed
    camera.clock(5.0, drift=-1e6)
    assert take(client)[2] == take(client)[2] > time.time_ns()
    assert camera.sent()[0] > 3


def test_packets_are_lost(client: Client, camera: FakeCamera) -> None:
    camera.lose(1.0)
    with client.acquiring() as next_frame:
        end = time.monotonic() + TIMEOUT
        while camera.sent()[0] < 2:
            assert time.monotonic() < end
        assert next_frame(0.1) is None
        camera.lose(0.0)
        assert next_frame() is not None


def test_software_trigger(client: Client, camera: FakeCamera) -> None:
    client.set("TriggerSource", "Software")
    client.set("TriggerMode", "On")
    with client.acquiring() as next_frame:
        assert next_frame(0.3) is None
        arv("execute_command", None, [Pointer, Text], client.camera, b"TriggerSoftware")
        assert next_frame()[0] == 0
        assert next_frame(0.1) is None
    assert camera.sent()[0] == 1


def test_kill_and_start(camera: FakeCamera) -> None:
    client = Client("127.0.0.1")
    with client.acquiring() as next_frame:
        assert next_frame()[0] == 0
        camera.kill()
        while next_frame(0.5) is not None:
            pass
        camera.start()
    client.close()
    client = Client("127.0.0.1")
    assert take(client)[1] < 65410
    client.close()


def test_cameras_by_their_serial_numbers() -> None:
    """Discovery as bytes: each camera answers a broadcast on loopback with its address, model and serial number."""
    with loopback_addresses(3) as addresses:
        cameras = [FakeCamera(FRAMES, address=a, serial=f"POL00{k}") for k, a in enumerate(addresses)]
        try:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
                probe.bind(("127.0.0.1", 0))
                probe.settimeout(TIMEOUT)
                probe.sendto(struct.pack(">4H", 0x4211, 2, 0, 1), ("255.255.255.255", PORT))
                answers = [probe.recv(1000)[8:] for _ in addresses]
            found = {(a[0x24:0x28], a[0x68:0x88].rstrip(b"\0"), a[0xD8:0xE8].rstrip(b"\0")) for a in answers}
            assert found == {(socket.inet_aton(a), b"TRI050S-P", b"POL00%d" % k) for k, a in enumerate(addresses)}
            assert len({a[0x08:0x10] for a in answers}) == len(addresses)  # MAC addresses
            function("arv_update_device_list", None)()  # Aravis keeps the cameras of other tests, with their addresses
            for k in (2, 0, 1):
                client = Client(f"LUCID Vision Labs-POL00{k}")
                assert client.text("DeviceSerialNumber") == f"POL00{k}"
                take(client)
                client.close()
        finally:
            for camera in cameras:
                camera.close()
