"""The real node with a camera of its own: a GigE Vision camera on loopback, over real middleware."""
# ruff: noqa: E402 - rclpy may be missing

from __future__ import annotations

import math
import re
import signal
import time
from collections import deque
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Callable, Deque, Dict, Iterator, List, Set, Tuple

import numpy as np
import pytest
from support import wait_for

rclpy = pytest.importorskip("rclpy")
import drill
from calibrations import realistic_calibration
from chunk_camera import ChunkCamera
from diagnostic_msgs.msg import DiagnosticArray
from fake_camera import FakeCamera, loopback_addresses
from raw_frames import replayed_images
from rcl_interfaces.srv import DescribeParameters
from rclpy.qos import QoSProfile
from rclpy.serialization import deserialize_message
from rig_in_step import IN_STEP, SetWatcher, pictures, rig_file
from sensor_msgs.msg import CameraInfo, Image
from services import ask, get_parameters
from std_srvs.srv import SetBool, Trigger

from polar_pipeline import Pipeline, cli
from polar_pipeline.calibration import save_calibration
from polar_pipeline.recordings import messages
from polar_pipeline.replay.compare import open_golden
from polar_pipeline.sensor.frames import RawFrame
from polar_pipeline.sensor.mosaic import SENSORS

pytestmark = [pytest.mark.ros, pytest.mark.camera]
SHAPE = (128, 160)


@pytest.fixture
def camera() -> Iterator[Callable[..., FakeCamera]]:
    """Start cameras. They end after the nodes, which would take those of another process."""
    with ExitStack() as stack:
        yield lambda *arguments, **options: stack.enter_context(FakeCamera(*arguments, **options))


@pytest.fixture
def node(camera: Any, node: Any) -> Any:  # noqa: ARG001 - ends after the nodes
    """Start the node with a camera of its own, and with parameters by name."""

    def start(*words: str, **parameters: object) -> Any:
        rows = {"camera.source": "aravis", **{name.replace("__", "."): value for name, value in parameters.items()}}
        return node(*(word for name, value in rows.items() for word in ("-p", f"{name}:={value}")), *words)

    return start


def random_frames(count: int, bits: int = 8) -> np.ndarray:
    """Different frames of random numbers, (count, H, W)."""
    kind = np.uint8 if bits == 8 else np.uint16
    return np.random.default_rng(40).integers(0, 1 << bits, (count, *SHAPE)).astype(kind)


def scene(dolp: float, aolp: float) -> np.ndarray:
    """The mosaic of an IMX250MZR of light with one AoLP in degrees and all shades of gray, (H, W) of 12 bit."""
    tile = np.tile([[90, 45], [135, 0]], (SHAPE[0] // 2, SHAPE[1] // 2))
    light = np.linspace(0.2, 0.5, SHAPE[1])[None, :] + np.linspace(0, 0.05, SHAPE[0])[:, None]
    return np.rint(4095 * light * (1 + dolp * np.cos(2 * np.deg2rad(tile - aolp)))).astype(np.uint16)


class Topic:
    """Decoded messages of one of the node's topics of images."""

    def __init__(self, peer: drill.Peer, name: str, kind: Any = Image) -> None:
        self.messages: Deque[Any] = deque(maxlen=500)
        decode = messages.decode_image if kind is Image else messages.decode_camera_info

        def keep(cdr: bytes) -> None:  # rclpy looks at the signature
            self.messages.append(decode(cdr))

        subscription = peer.node.create_subscription(kind, name, keep, QoSProfile(depth=100), raw=True)
        wait_for(subscription.get_publisher_count, name)

    def wait(self, count: int = 1) -> List[Any]:
        """Forget what came, wait for so many messages, and return them."""
        self.messages.clear()
        wait_for(lambda: len(self.messages) >= count, "messages")
        return list(self.messages)


@pytest.mark.parametrize(("pixel_format", "encoding", "bits"), [("8", "mono8", 8), ("12p", "PolarizeMono12p", 12)])
def test_frames_arrive_bit_exact(
    camera: Any, node: Any, peer: drill.Peer, pixel_format: str, encoding: str, bits: int
) -> None:
    frames = random_frames(5, bits)
    pipeline = Pipeline(backend="cpu", products=("intensity", "dolp"), dtype={"intensity": "uint8", "dolp": "float32"})
    expected = [
        {name: np.array(image) for name, image in pipeline(RawFrame(frame, (1 << bits) - 1)).items()}
        for frame in frames
    ]
    camera(frames)
    node(camera__pixel_format=pixel_format)  # ROS reads 8 as a number
    raw, info = Topic(peer, "image_raw"), Topic(peer, "camera_info", CameraInfo)
    topics = {"intensity": Topic(peer, "intensity"), "dolp": Topic(peer, "polarization/dolp")}
    sent = raw.wait(15)
    assert {(row.encoding, row.width, row.height) for row in sent} == {(encoding, SHAPE[1], SHAPE[0])}
    numbers = [_number(frames, messages.to_raw(row).unpack().mosaic) for row in sent]
    assert all((after - before) % 5 == 1 for before, after in zip(numbers, numbers[1:]))
    stamps = [row.stamp_ns for row in sent]
    assert stamps == sorted(set(stamps))
    assert abs(stamps[-1] / 1e9 - time.time()) < 10
    by_stamp = dict(zip(stamps, numbers))
    for name, topic in topics.items():
        rows = [row for row in list(topic.messages) if row.stamp_ns in by_stamp]
        assert rows
        for row in rows:
            np.testing.assert_array_equal(messages.to_array(row), expected[by_stamp[row.stamp_ns]][name])
    assert {(row.width, row.height) for row in info.wait(3)} == {(SHAPE[1], SHAPE[0])}


def test_two_exposures_become_one_frame(node: Any, peer: drill.Peer) -> None:
    """20 pairs a second with a ratio of 16: bright and dark parts in one frame, half as many as the camera sends."""
    tile = 1 + 0.5 * np.cos(2 * np.deg2rad(np.tile([[90, 45], [135, 0]], (SHAPE[0] // 2, SHAPE[1] // 2)) - 30))
    light = np.where(np.arange(SHAPE[1]) < SHAPE[1] // 2, 130.0, 8.0) * tile  # numbers after a millisecond
    with ChunkCamera(light, rate=40) as camera:
        camera.render = lambda time_us, _: np.minimum(np.rint(light * (time_us / 1000)), 255).astype(np.uint8)
        node(camera__source="aravis:127.0.0.1", camera__hdr_ratio=16.0, camera__exposure_us=16000.0)
        raw, dolp, sigma = (Topic(peer, name) for name in ("image_raw", "polarization/dolp", "polarization/dolp_sigma"))
        rows = dolp.wait(20)
        sent, deviations = list(raw.messages), {row.stamp_ns: messages.to_array(row) for row in sigma.messages}

        def has_pairs(line: str) -> bool:  # a busy machine writes some exposures too late
            frames, incomplete = (
                int(re.findall(rf"\b{name}=(\d+)", line)[0]) for name in ("frames", "incomplete pairs")
            )
            return incomplete < 0.2 * frames

        peer.says("camera", has_pairs)
    assert {row.exposure_us for row in list(camera.sent.values())[5:]} == {1000, 16000}
    stamps = {row.stamp_ns for row in sent}
    for row in rows[:-2]:
        image = messages.to_array(row)
        assert row.stamp_ns not in stamps  # in the middle between two
        for part in (image[:, 2:36], image[:, 44:-2]):
            np.testing.assert_allclose(part, 0.5, atol=0.03)
        found = deviations.get(row.stamp_ns)
        if found is not None:
            assert found[:, 60:].mean() < found[:, :20].mean() * 1.2


def _number(frames: np.ndarray, image: np.ndarray) -> int:
    """Which of the frames an image is, bit by bit."""
    return next(k for k, frame in enumerate(frames) if np.array_equal(frame, image))


@pytest.mark.parametrize("flip", [(True, False), (False, True)])
def test_region_and_mirror_of_the_camera_need_no_parameter(
    camera: Any, node: Any, peer: drill.Peer, flip: Tuple[bool, bool]
) -> None:
    features = {"OffsetX": 3, "OffsetY": 1, "Width": 96, "Height": 64, "ReverseX": flip[0], "ReverseY": flip[1]}
    sensor = scene(0.5, 37.0)
    camera(sensor, features=features)
    node(camera__pixel_format="12p")
    x, y = SHAPE[1] - 3 - 96 if flip[0] else 3, SHAPE[0] - 1 - 64 if flip[1] else 1
    peer.says("camera", f"region=96x64 at {x},{y}")
    (raw, *_) = Topic(peer, "image_raw").wait()
    place = sensor[y : y + 64, x : x + 96][:: -1 if flip[1] else 1, :: -1 if flip[0] else 1]
    np.testing.assert_array_equal(messages.to_raw(raw).unpack().mosaic, place)
    (message, *_) = Topic(peer, "polarization/aolp").wait()
    turned = 2 * messages.to_array(message)[2:-2, 2:-2].astype(np.float64)  # the border is interpolated less exactly
    aolp = math.degrees(math.atan2(np.sin(turned).mean(), np.cos(turned).mean())) / 2
    assert abs((aolp - 37 + 90) % 180 - 90) < 0.1


def test_the_lens_calibration_of_the_camera_is_that_of_the_outputs(
    camera: Any, node: Any, peer: drill.Peer, tmp_path: Path
) -> None:
    path = tmp_path / "lens.yaml"
    path.write_text(
        f"image_width: {SHAPE[1]}\nimage_height: {SHAPE[0]}\ndistortion_model: plumb_bob\n"
        "camera_matrix: {data: [100, 0, 80, 0, 100, 64, 0, 0, 1]}\n"
        "distortion_coefficients: {data: [0.1, 0, 0, 0, 0]}\n"
        "rectification_matrix: {data: [1, 0, 0, 0, 1, 0, 0, 0, 1]}\n"
        "projection_matrix: {data: [100, 0, 80, 0, 0, 100, 64, 0, 0, 0, 1, 0]}\n"
    )
    camera(random_frames(3))
    node(camera__info_file=path)
    dolp, info = Topic(peer, "polarization/dolp"), Topic(peer, "polarization/camera_info", CameraInfo)
    (message, *_) = info.wait()
    assert (message.width, message.k[0], message.d[0]) == (SHAPE[1] // 2, 50, 0.1)
    wait_for(peer.change(output__rectify="camera_info").done, "the answer")
    wait_for(lambda: not info.wait()[-1].d.any(), "rectified outputs")
    dolp.wait()


def test_what_contradicts_the_camera_is_named(camera: Any, start: Any, tmp_path: Path) -> None:
    calibration = tmp_path / "color.npz"
    save_calibration(calibration, realistic_calibration(SENSORS["IMX250MYR"], SHAPE))
    linear = tmp_path / "mono.npz"
    save_calibration(linear, realistic_calibration(SENSORS["IMX250MZR"], SHAPE))
    camera(random_frames(1), features={"OffsetX": 2, "Width": 96})
    rows: Tuple[Tuple[Dict[str, str], Tuple[str, ...]], ...] = (
        ({"sensor": "IMX250MYR"}, ("sensor is", "has IMX250MZR")),
        ({"raw.roi_offset": "[4,0]"}, ("raw.roi_offset is (4, 0)", "has (2, 0)")),
        ({"raw.flip": "[true,false]"}, ("raw.flip is (True, False)", "has (False, False)")),
        ({"camera_gain": "6.0"}, ("camera_gain is 6.0", "has 0.0")),
        ({"calibration": str(calibration)}, ("calibration",)),
        ({"calibration": str(linear), "camera.features": "Gamma=0.8"}, ("calibration needs linear", "gamma 0.8")),
        ({"use_sim_time": "true"}, ("use_sim_time false",)),
        ({"camera.pixel_format": "14p"}, ("camera.pixel_format '14p'", "PolarizeMono8")),
        ({"camera.gain_db": "70.0"}, ("camera.gain_db", "[0, 48]", "got 70")),
        ({"camera.source": "usb"}, ("camera.source must be", "got 'usb'")),
    )
    lists = [
        [word for row in {"camera.source": "aravis", **parameters}.items() for word in ("-p", ":=".join(row))]
        for parameters, _ in rows
    ]
    for (text, code), (_, words) in zip(drill.failed_starts(start, *lists), rows):
        assert code in (1, 2), text
        assert all(word in text for word in ("cannot start", *words)), text


def parameters_of(peer: drill.Peer, *names: str) -> List[Any]:
    return get_parameters(peer.node, "/polar_pipeline", *names)


def test_parameters_change_the_camera(camera: Any, node: Any, peer: drill.Peer) -> None:
    fake = camera(random_frames(3), features={"ExposureTime": 4000.0, "ExposureAuto": "Continuous"})
    node()
    peer.says("camera", "TRI050S-P POL001 at 127.0.0.1")
    names = ("camera.exposure_us", "camera.exposure_auto", "camera.roi", "camera.gain_db")
    wait_for(lambda: parameters_of(peer, *names)[1] == "camera", "the state of the camera")
    assert [row if isinstance(row, (str, float)) else list(row) for row in parameters_of(peer, *names)] == [
        4000.0,
        "camera",
        [0, 0, SHAPE[1], SHAPE[0]],
        0.0,
    ]
    request = DescribeParameters.Request(names=["camera.gain_db"])
    (row,) = ask(peer.node, DescribeParameters, "/polar_pipeline/describe_parameters", request).descriptors
    assert (row.floating_point_range[0].from_value, row.floating_point_range[0].to_value) == (0.0, 48.0)

    def refusal(**values: Any) -> str:
        future = peer.change(**values)
        wait_for(future.done, "the answer")
        return "" if future.result().result.successful else str(future.result().result.reason)

    assert "while camera.exposure_auto is camera" in refusal(camera__exposure_us=900.0)
    assert refusal(camera__exposure_auto=False, camera__exposure_us=900.0) == ""
    assert (fake.get("ExposureAuto"), round(fake.get("ExposureTime"))) == ("Off", 900)
    assert "[0, 48]" in refusal(camera__gain_db=70.0, camera__exposure_us=800.0)
    assert round(fake.get("ExposureTime")) == 900  # all or nothing
    assert refusal(camera__gain_db=6.0) == ""
    peer.says("camera", "gain [dB]=6.00")
    assert refusal(camera__exposure_auto=True) == ""
    assert (fake.get("ExposureAuto"), parameters_of(peer, "camera.exposure_auto")) == ("Continuous", ["camera"])
    assert "did you mean polarization?" in refusal(camera__exposure_auto="polarisation")
    assert refusal(camera__exposure_auto=False) == ""
    assert refusal(camera__frame_rate=33.333) == ""
    assert parameters_of(peer, "camera.frame_rate") == [pytest.approx(fake.get("AcquisitionFrameRate"), rel=1e-9)]
    raw = Topic(peer, "image_raw")
    assert refusal(camera__roi=[3, 1, 96, 64]) == ""
    assert list(parameters_of(peer, "camera.roi")[0]) == [2, 0, 96, 64]
    wait_for(lambda: raw.wait()[-1].width == 96, "frames of the region")
    assert refusal(camera__frame_rate=300.0) == ""  # which the camera allows for this height only
    assert "must lie within" in refusal(camera__roi=[100, 0, 96, 64])
    assert "no feature 'Nonsense'" in refusal(camera__features="Nonsense=1")
    assert refusal(camera__features="BlackLevel=7") == ""
    assert round(float(fake.get("BlackLevel"))) == 7
    assert refusal(camera__pixel_format=8) == ""
    assert refusal(camera__features="Gamma=0.8, BlackLevel=7") == ""
    peer.says("camera", "the camera applies gamma 0.8")
    assert refusal(camera__features="Gamma=1.0") == ""
    assert "sensor is" in refusal(sensor="IMX250MYR")
    assert "mixes polarizer angles" in refusal(camera__features="Width=60, BinningHorizontal=2")
    assert (fake.get("BinningHorizontal"), fake.get("Width")) == (1, 96)  # all or nothing
    assert "RGB8 is not a mosaic" in refusal(camera__features="PixelFormat=RGB8")
    assert fake.get("PixelFormat") == "PolarizeMono8"
    assert refusal(camera__features="PixelFormat=Mono16, TriggerSource=Software, TriggerMode=On") == ""
    assert parameters_of(peer, "camera.pixel_format", "camera.trigger") == ["Mono16", "software"]
    assert refusal(camera__features="", camera__pixel_format="8", camera__trigger="free") == ""
    raw.wait()
    assert not ask(peer.node, Trigger, "/polar_pipeline/trigger").success
    assert refusal(camera__trigger="software", camera__roi=[0, 0, 0, 0]) == ""
    time.sleep(0.3)  # frames on their way
    raw.messages.clear()
    assert ask(peer.node, Trigger, "/polar_pipeline/trigger").success
    wait_for(lambda: raw.messages, "a frame")
    assert refusal(camera__trigger="free") == ""
    raw.wait(3)


def test_a_frame_id_is_that_of_raw_frames_too(camera: Any, node: Any, peer: drill.Peer) -> None:
    """Also a longer one, whose header needs more space in front of the pixels, and after the camera came back."""
    frames = random_frames(3)
    fake = camera(frames)
    node(frame_id="left")
    topics = [Topic(peer, "image_raw"), Topic(peer, "camera_info", CameraInfo), Topic(peer, "intensity")]

    def names() -> Set[str]:
        return {row.frame_id for topic in topics for row in topic.wait(3)}

    assert names() == {"left"}
    for name in ("a/much/longer/name/of/a/frame", "f", ""):
        answer = peer.change(frame_id=name)
        wait_for(answer.done, "the answer")
        assert answer.result().result.successful, answer.result().result.reason
        wait_for(lambda name=name: names() == {name or "camera"}, "frames of the new name")
        for row in topics[0].wait(3):
            _number(frames, messages.to_raw(row).unpack().mosaic)
    fake.kill()
    peer.reports.clear()
    peer.says("camera", lambda line: "has gone" in line or "is not found" in line)
    wait_for(peer.change(frame_id="back").done, "the answer")
    fake.start()
    wait_for(lambda: names() == {"back"}, "frames of the camera that came back")


def test_a_camera_that_goes_comes_back(camera: Any, node: Any, peer: drill.Peer) -> None:
    process = node(camera__source="aravis:POL009")
    peer.says("camera", "POL009 is not found")
    fake = camera(random_frames(3), serial="POL009", features={"OffsetX": 3, "OffsetY": 1, "Width": 96, "Height": 64})
    raw = Topic(peer, "image_raw")
    raw.wait(3)
    for _ in range(2):
        fake.kill()
        peer.reports.clear()
        peer.says("camera", "has gone, or was started again")
        fake.start()
        raw.wait(3)
    peer.reports.clear()
    peer.says("camera", "connections=3")
    peer.says("camera", "TRI050S-P POL009 at 127.0.0.1")
    peer.says("camera", "region=96x64 at 3,1")  # of the camera's own, also where it is odd
    fake.kill()
    process.assert_end(0, signal.SIGTERM)  # without its camera, too


def test_incomplete_frames_are_counted_and_not_published(camera: Any, node: Any, peer: drill.Peer) -> None:
    frames = random_frames(3)
    fake = camera(frames)
    process = node(camera__packet_size=600)
    raw = Topic(peer, "image_raw")
    fake.lose(0.02)  # of 36 packets a frame; what is sent again may be lost too
    peer.says("camera", lambda line: int(re.search(r"incomplete=(\d+)", line).group(1)) > 0)  # type: ignore[union-attr]
    peer.says("frames", "dropped: incomplete=")
    for row in raw.wait(10):
        _number(frames, messages.to_raw(row).unpack().mosaic)
    wait_for(lambda: "net.core.rmem_max" in process.text, "the advice in the log")


def test_a_camera_of_another_process_is_named(camera: Any, node: Any, peer: drill.Peer) -> None:
    camera(random_frames(3))
    node("-r", "__node:=other")
    Topic(peer, "image_raw").wait()
    process = node()
    assert process.wait() == 1
    assert "another process controls LUCID Vision Labs TRI050S-P POL001 at 127.0.0.1" in process.text


def test_recordings_have_the_state_of_the_camera(
    camera: Any, node: Any, peer: drill.Peer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("mcap")
    from mcap.reader import make_reader

    frame = (scene(0.5, 20.0) >> 4).astype(np.uint8)
    camera(frame, features={"OffsetX": 3, "Width": 96})
    node(record__folder=tmp_path / "out")
    Topic(peer, "image_raw").wait(2)
    started = ask(peer.node, SetBool, "/polar_pipeline/record", SetBool.Request(data=True))
    assert started.success, started.message
    time.sleep(0.5)
    stopped = ask(peer.node, SetBool, "/polar_pipeline/record", SetBool.Request(data=False))
    assert stopped.success, stopped.message
    path = Path(started.message)
    for cdr in replayed_images(path):
        np.testing.assert_array_equal(messages.to_raw(messages.decode_image(cdr)).unpack().mosaic, frame[:, 3:99])
    with path.open("rb") as stream:
        states = [message.data for _, _, message in make_reader(stream).iter_messages(["/camera_state"])]
    (status,) = deserialize_message(states[0], DiagnosticArray).status
    values = {pair.key: pair.value for pair in status.values}
    assert (values["region"], values["gain [dB]"], values["flip"]) == ("96x128 at 3,0", "0.00", "none")
    # replay takes the region from the recording
    words = ["replay", str(path), "-o", str(tmp_path / "again.mcap"), "--products", "aolp", "--backend", "cpu"]
    assert cli.main([*words, "--roi-offset", "2", "0"]) == 2
    assert "roi_offset is" in capsys.readouterr().err
    assert cli.main(words) == 0
    with open_golden(tmp_path / "again.mcap") as golden:
        turned = np.exp(2j * golden.load("aolp", *golden.frames()[0])[2:-2, 2:-2])
    assert abs(np.rad2deg(np.angle(turned.mean())) / 2 - 20) < 0.5  # rounded to 8 bits


def test_replay_of_a_snapshot_gives_the_products_of_the_node(
    camera: Any, node: Any, peer: drill.Peer, tmp_path: Path
) -> None:
    pytest.importorskip("mcap")
    camera(scene(0.5, 20.0), features={"OffsetX": 3, "Width": 96, "ReverseY": True, "Gain": 0.0})
    node(snapshot__folder=tmp_path, camera__pixel_format="12p")
    (message, *_) = Topic(peer, "polarization/aolp").wait()
    answer = ask(peer.node, Trigger, "/polar_pipeline/snapshot")
    assert answer.success, answer.message
    folder, out = Path(answer.message), tmp_path / "again.mcap"
    words = ["replay", str(folder / "raw.mcap"), "--params", str(folder / "parameters.yaml"), "-o", str(out)]
    assert cli.main([*words, "--products", "aolp"]) == 0
    with open_golden(out) as golden:
        (frame,) = golden.frames()
        np.testing.assert_array_equal(golden.load("aolp", *frame), messages.to_array(message))


def test_cameras_of_a_rig_come_by_serial_number(camera: Any, start: Any, peer: drill.Peer, tmp_path: Path) -> None:
    count = 3
    pictures = random_frames(count)
    with loopback_addresses(count) as addresses:
        rows = []
        for k, address in enumerate(addresses):
            camera(pictures[k], address=address, serial=f"RIG{k}")
            rows.append(f"  - {{namespace: cam{k}, parameters: {{backend: cpu, camera.source: 'aravis:RIG{k}'}}}}\n")
        rig = tmp_path / "rig.yaml"
        rig.write_text("cameras:\n" + "".join(rows), encoding="utf-8")
        process = start("-c", "from polar_pipeline.node import rig; rig()", str(rig))
        for k in range(count):
            for row in Topic(peer, f"cam{k}/image_raw").wait(2):
                np.testing.assert_array_equal(messages.to_raw(row).unpack().mosaic, pictures[k])
        process.close()


@pytest.mark.parametrize("is_strict", [False, True])
def test_a_rig_in_step_flags_every_set_that_it_does_not_match(
    camera: Any, start: Any, peer: drill.Peer, tmp_path: Path, is_strict: bool
) -> None:
    """The faults of the soak test (`benchmarks/rig_soak.py`), each for a moment, and the leader's exposure."""
    rate, names = 20.0, {"cam0", "cam1", "cam2"}
    with loopback_addresses(len(names)) as addresses:
        fakes = [
            camera(pictures(SHAPE), address=address, serial=f"RIG{k}", **IN_STEP) for k, address in enumerate(addresses)
        ]
        rig = tmp_path / "rig.yaml"
        rig.write_text(rig_file(3, rate, is_strict=is_strict, exposure_factors={2: 0.5}), encoding="utf-8")
        watcher = SetWatcher(peer.node, 3)
        process = start("-c", "from polar_pipeline.node import rig; rig()", str(rig))

        def wait(status: str, count: int = 5) -> None:
            before = watcher.judge(names).get(status, 0)
            wait_for(lambda: watcher.judge(names).get(status, 0) >= before + count, f"sets that are {status}")

        wait("matched", 10)
        assert [fake.get("ExposureTime") for fake in fakes] == [5000.0, 5000.0, 2500.0]
        fakes[0].set("ExposureTime", 8000.0)
        wait_for(lambda: fakes[2].get("ExposureTime") == 4000.0, "the exposure of the leader")
        wait("matched", 10)
        for jump in (1 / rate, -1 / rate, 0.003):
            fakes[1].clock(jump)
            wait("missing" if jump == 0.003 else "late")
            fakes[1].clock(0.0)
            wait("matched", 10)
        fakes[2].lose(0.5)
        wait("missing")
        fakes[2].lose(0.0)
        wait("matched", 10)
        fakes[1].kill()
        wait("missing")
        fakes[1].start()
        wait("matched", 20)
        process.close()
    counts = watcher.judge(names, is_strict)
    assert counts["mixed"] == counts["twice"] == 0
    assert counts["unseen"] < counts["matched"] / 10
    if is_strict:
        matched = {frame for text, stamps in watcher.sets if text == "matched" for frame in stamps.items()}
        last = max(watcher.sets[-1].stamps.values())
        assert {frame for frame in watcher.pictures if frame[1] < last} <= matched
