"""The publisher's thread without ROS: which messages, in which order, and what an error costs."""

from __future__ import annotations

import threading
import time
from typing import Any, Dict, FrozenSet, List, Optional, Sequence, Tuple

import cv2
import numpy as np
import pytest
from rosbags_messages import decode
from support import TIMEOUT, wait_for
from test_processor import Log, settings

from polar_pipeline import SENSORS, Pipeline
from polar_pipeline.geometry import make_lens
from polar_pipeline.live.diagnostics import Diagnostics
from polar_pipeline.live.frame import LiveFrame, ReceivedImage
from polar_pipeline.live.parameters import Settings
from polar_pipeline.live.publisher import FramePublisher, OutgoingMessage
from polar_pipeline.options.topics import (
    COMPRESSED_TOPICS,
    LATENCY,
    NUMBER_TOPICS,
    OUTPUT_TOPICS,
    PRODUCT_OF_TOPIC,
    PRODUCT_TOPICS,
)
from polar_pipeline.quality.frame_checks import NO_FRAME, FrameCheck
from polar_pipeline.recordings import messages
from polar_pipeline.sensor.frames import Frame, Light, RawFrame

RAW = np.random.default_rng(0).integers(10, 200, (32, 48)).astype(np.uint8)


class Topic:
    """A topic with a number of subscriptions; keeps what is published on it directly."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.subscriptions = 0
        self.published: List[bytes] = []

    def publish(self, cdr: bytes) -> None:
        self.published.append(cdr)

    def get_subscription_count(self) -> int:
        return self.subscriptions


class Sender:
    """Keeps what is sent, as topic and bytes; `gate` holds it up, `fault` makes it fail."""

    def __init__(self) -> None:
        self.sent: List[Dict[str, bytes]] = []
        self.gate = threading.Event()
        self.gate.set()
        self.busy = threading.Event()
        self.fault: Optional[Exception] = None

    def send(self, outgoing: Sequence[OutgoingMessage]) -> None:
        self.busy.set()
        assert self.gate.wait(TIMEOUT)
        fault, self.fault = self.fault, None
        if fault is not None:
            raise fault
        self.sent.append({topic.name: bytes(cdr) for topic, cdr in outgoing})  # type: ignore[attr-defined]


class Bench:
    """A publisher, with everything around it in reach."""

    def __init__(self) -> None:
        self.topics = {name: Topic(name) for name in OUTPUT_TOPICS}
        self.sender = Sender()
        self.log = Log()
        self.diagnostics = Diagnostics("node", self.log)
        self.publisher = FramePublisher(self.topics, self.sender.send, self.diagnostics)

    def values(self) -> Dict[str, str]:
        return self.diagnostics.statuses("", "")[0].values

    def submit(self, stamp_ns: int, demand: FrozenSet[str], raw: np.ndarray = RAW, **changes: Any) -> None:
        self.publisher.submit(finished(stamp_ns, demand, raw, **changes))


def finished(
    stamp_ns: int,
    demand: FrozenSet[str],
    raw: np.ndarray = RAW,
    chosen: Optional[Settings] = None,
    age: Optional[float] = 0.002,
    is_restart: bool = False,
    is_early: bool = False,
    camera_info: Optional[bytes] = None,
) -> LiveFrame:
    """A frame with those of its products that are demanded, which came in now, or before all others."""
    chosen = chosen or settings()
    came = -1.0 if is_early else time.perf_counter()
    encoding = "mono8" if raw.dtype == np.uint8 else "mono16"
    encoding = f"PolarizedQuadMono{encoding[4:]}" if raw.ndim == 3 else encoding
    received = ReceivedImage(bytes(messages.encode_image(stamp_ns, "camera", encoding, raw)), came, 0)
    image = messages.decode_image(received.cdr)
    wanted = {PRODUCT_OF_TOPIC.get(topic) for topic in demand}
    names = tuple(name for name in PRODUCT_TOPICS if name in wanted)
    frame = LiveFrame(received, image, messages.to_raw(image), chosen, demand, {"queue": 0.001}, age, is_restart)
    frame.camera_info = camera_info
    if names:
        frame.pipeline = Pipeline(**chosen.arguments(names))
        frame.result = frame.pipeline(messages.to_raw(image))
    return frame


def demand(
    *products: str, compressed: Sequence[str] = (), others: Sequence[str] = (), numbers: Sequence[str] = ()
) -> FrozenSet[str]:
    names = [PRODUCT_TOPICS[name].name for name in products] + [COMPRESSED_TOPICS[name] for name in compressed]
    return frozenset([*names, *(NUMBER_TOPICS[name] for name in numbers), *others])


@pytest.fixture
def bench() -> Any:
    made = Bench()
    yield made
    made.sender.gate.set()
    made.publisher.close()


def jpeg_of(sent: Dict[str, bytes], name: str) -> Tuple[str, np.ndarray]:
    """Format and decoded image of a product's JPEG."""
    message = decode(sent[COMPRESSED_TOPICS[name]], messages.COMPRESSED)
    return message.format, cv2.imdecode(message.data, cv2.IMREAD_UNCHANGED)


@pytest.mark.parametrize("depth", ["float32", "uint8", "uint16"])
def test_every_viewed_product_comes_as_jpeg_of_its_display_encoding(bench: Bench, depth: str) -> None:
    raw = cv2.resize(RAW[:6, :8], (48, 32), interpolation=cv2.INTER_CUBIC)
    raw[:4] = 255  # invalid: black in the display encoding, NaN in float
    names = tuple(COMPRESSED_TOPICS)
    chosen = settings(output_depth=depth, jpeg_quality=95, frame_id="front")
    bench.submit(1, demand("dolp", compressed=names), raw, chosen=chosen)
    (sent,) = bench.sender.sent
    assert set(sent) == {"polarization/dolp", *COMPRESSED_TOPICS.values()}, "only what is demanded"
    dolp = messages.decode_image(sent["polarization/dolp"])
    assert (str(messages.to_array(dolp).dtype), dolp.stamp_ns, dolp.frame_id) == (depth, 1, "front")
    expected = Pipeline(products=names, dtype="uint8", backend="cpu")(raw)
    for name in names:
        text, image = jpeg_of(sent, name)
        wanted = expected[name] if expected[name].ndim == 2 else expected[name][..., ::-1]
        assert text == ("mono8; jpeg compressed " if wanted.ndim == 2 else "rgb8; jpeg compressed bgr8")
        _, oracle = cv2.imencode(".jpg", np.ascontiguousarray(wanted), [cv2.IMWRITE_JPEG_QUALITY, 95])
        difference = np.abs(image.astype(int) - cv2.imdecode(oracle, cv2.IMREAD_UNCHANGED))
        # rounded from float32 instead of what the kernels had: a level at few pixels, which JPEG spreads
        assert difference.mean() <= (0 if str(depth) == "uint8" or wanted.ndim == 3 else 0.5), name


@pytest.mark.parametrize("device", ["cuda (Orin, sm_87)", "cpu (2 threads)"])
def test_the_gpu_encodes_what_it_computed(bench: Bench, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: List[bool] = []

    def encode(_image: np.ndarray, _quality: int, on_gpu: bool) -> np.ndarray:
        asked.append(on_gpu)
        return np.frombuffer(b"JPEG", np.uint8)

    monkeypatch.setattr(bench.publisher._jpeg, "encode", encode)
    monkeypatch.setattr(Pipeline, "device", device)
    bench.submit(1, demand(compressed=["intensity"]))
    assert asked == [device.startswith("cuda")]


def test_display_changes_what_is_for_eyes_alone(bench: Bench) -> None:
    chosen = settings(sensor="IMX250MYR", display__gain=2.0, display__white_balance=[1.5, 1.0, 2.0])
    raw = np.full((32, 48), 60, np.uint8)
    bench.submit(1, demand("intensity", "preview", compressed=["intensity", "preview"]), raw, chosen=chosen)
    (sent,) = bench.sender.sent
    assert (messages.to_array(messages.decode_image(sent["intensity"])) == 60).all()
    assert (messages.to_array(messages.decode_image(sent["polarization/preview"])) == 120).all()
    # a constant picture survives JPEG but for the rounding of its color space; OpenCV reads BGR
    assert np.abs(jpeg_of(sent, "intensity")[1].astype(int) - [240, 120, 180]).max() <= 2
    assert np.abs(jpeg_of(sent, "preview")[1].astype(int) - 120).max() <= 2


def test_a_restart_begins_with_the_same_display(bench: Bench) -> None:
    """`auto` follows the scene; a recording that loops looks the same in every round."""
    chosen = settings(display__gain="auto")
    dark, bright = (np.full((32, 48), level, np.uint8) for level in (20, 200))
    for stamp, raw, is_restart in ((1, dark, False), (2, bright, False), (1, dark, True)):
        bench.submit(stamp, demand("preview"), raw, chosen=chosen, is_restart=is_restart)
    first, _, again = (row["polarization/preview"] for row in bench.sender.sent)
    assert first == again


def test_limits_of_quality_are_those_of_the_frame(bench: Bench) -> None:
    levels = []
    for stamp, lowest in ((1, -1.0), (2, 0.9)):
        chosen = settings(quality__ssim_warn=lowest, quality__ssim_error=-1.0)
        bench.submit(stamp, demand("ssim"), chosen=chosen)
        wait_for(lambda: bench.publisher._quality._newest is not None, "the frame")
        levels.append(bench.publisher.statuses("")[0].level)
    assert levels == [0, 1], "random numbers resemble nothing"


def test_the_layout_is_checked_now_and_then(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    colors = np.array([60, 120, 90], np.uint8)[np.array(SENSORS["IMX250MYR"].colors)]
    raw = np.tile(colors, (64, 64))
    for offset, level, text in (([1, 0], 1, "the colors do not fit"), ([0, 0], 0, "the colors fit")):
        bench.submit(1, demand("dolp"), raw, chosen=settings(sensor="IMX250MYR", raw__roi_offset=offset))
        wait_for(lambda t=text: t in bench.publisher.statuses("")[1].message, text)
        assert bench.publisher.statuses("")[1].level == level
        bench.publisher._check_due = 0.0
    checked: List[int] = []

    def check(raw: Frame, *_: object) -> FrameCheck:
        checked.append(raw.shape[0])
        return NO_FRAME

    monkeypatch.setattr("polar_pipeline.live.publisher.check_frame", check)
    for stamp in (2, 3):
        bench.submit(stamp, demand("dolp"))
    bench.publisher.close()
    assert checked == [32], "one of them, and the next one a second later"


def hold_up(bench: Bench, stamp_ns: int) -> None:
    """Submit a frame that came in before the one before was out, and is now being published."""
    bench.submit(0, demand("dolp"))
    bench.sender.gate.clear()
    bench.sender.busy.clear()
    bench.submit(stamp_ns, demand("dolp"), is_early=True)
    assert bench.sender.busy.wait(TIMEOUT)


def test_frames_are_published_one_after_the_other(bench: Bench) -> None:
    """The frame after the one that is being published can be submitted; the next one has to wait."""
    hold_up(bench, 1)
    bench.sender.busy.clear()
    frames = [finished(stamp, demand("dolp"), is_early=True) for stamp in (2, 3)]
    submitted: List[int] = []

    def submit() -> None:
        for frame in frames:
            bench.publisher.submit(frame)
            submitted.append(frame.image.stamp_ns)

    worker = threading.Thread(target=submit)
    worker.start()
    time.sleep(0.05)
    assert submitted == [], "the frame before is not out"
    bench.sender.gate.set()
    worker.join(TIMEOUT)
    wait_for(lambda: len(bench.sender.sent) == 4, "every frame")
    assert [messages.peek_stamp(row["polarization/dolp"]) for row in bench.sender.sent] == [0, 1, 2, 3]


def test_a_frame_that_fails_costs_itself_only(bench: Bench) -> None:
    bench.sender.fault = RuntimeError("the middleware refuses")
    for stamp in (1, 2):
        bench.submit(stamp, demand("dolp"))
    assert messages.peek_stamp(bench.sender.sent[0]["polarization/dolp"]) == 2
    assert bench.values()["dropped: internal"] == "1"
    ((level, text),) = bench.log.lines
    assert level == "warning"
    assert "the middleware refuses" in text


def test_closed_while_busy(bench: Bench) -> None:
    hold_up(bench, 1)
    closing = threading.Thread(target=bench.publisher.close)
    closing.start()
    time.sleep(0.05)
    assert closing.is_alive()
    bench.sender.gate.set()
    closing.join(TIMEOUT)
    assert not closing.is_alive()
    assert len(bench.sender.sent) == 2, "the last frame is published"
    bench.publisher.close()


def latency(bench: Bench) -> List[Any]:
    return [decode(cdr, messages.DIAGNOSTICS).status for cdr in bench.topics[LATENCY].published]


def test_times_and_quality_of_every_frame(bench: Bench) -> None:
    bench.submit(1, demand("ssim", others=[LATENCY]))
    first, quality = latency(bench)[0]
    values = {pair.key: pair.value for pair in first.values}
    assert list(values) == ["queue", "handover", "encode", "publish", "total", "quality", "age"]
    assert values["age"] == "2.000"
    stages = sum(float(values[name]) for name in ("handover", "encode", "publish"))
    assert stages <= float(values["total"]) < 1000 * TIMEOUT, "since the image was received"
    assert (first.name, first.message, quality.name) == ("node: latency", "ms", "node: quality")
    bench.submit(2, demand(others=[LATENCY]), age=None)
    (second,) = latency(bench)[1]
    values = {pair.key: pair.value for pair in second.values}
    assert list(values) == ["queue", "handover", "publish", "total", "age"]
    assert values["age"] == "n/a"
    assert bench.publisher.last_frame["products"] == "ssim", "of the last frame that was computed"


def numbers(bench: Bench) -> Dict[str, List[float]]:
    return {
        name: [decode(cdr, messages.FLOAT32).data for cdr in bench.topics[topic].published]
        for name, topic in NUMBER_TOPICS.items()
    }


def test_numbers_are_those_demanded(bench: Bench) -> None:
    raw = RAW.copy()
    raw[4:12, 8:20] = 255  # of 32x48 raw pixels; at half resolution 4x6 of 16x24
    bench.submit(1, demand("dolp", others=[LATENCY], numbers=["saturated"]), raw)
    found = numbers(bench)
    assert (found["total_ms"], found["saturated"]) == ([], [24 / 384])
    bench.submit(2, demand(others=[LATENCY], numbers=["saturated", "total_ms"]), raw)
    found = numbers(bench)
    assert len(found["saturated"]) == 1
    values = {pair.key: pair.value for pair in latency(bench)[1][0].values}
    assert [f"{value:.3f}" for value in found["total_ms"]] == [values["total"]], "also as text, in `latency`"


@pytest.mark.parametrize(
    ("level", "target", "roi", "stops"),
    [
        (64, 0.5, [0, 0, 0, 0], 1.0),  # 64 of 255, to half a level
        (64, 0.25, [0, 0, 0, 0], 0.0),
        (128, 0.25, [0, 0, 0, 0], -1.0),
        (128, 0.25, [0, 0, 16, 16], -1.0),
        (128, 0.25, [16, 16, 16, 16], 1.0),  # where it is darker
    ],
)
def test_stops_of_exposure_to_add(bench: Bench, level: int, target: float, roi: List[int], stops: float) -> None:
    raw = np.full((32, 48), level, np.uint8)
    raw[16:, 16:] = 32 if roi[0] else level
    chosen = settings(camera__exposure_target=target, camera__exposure_roi=roi)
    bench.submit(1, demand(numbers=["exposure_ev"]), raw, chosen=chosen)
    assert numbers(bench)["exposure_ev"] == [pytest.approx(stops, abs=0.05)]
    wait_for(lambda: bench.publisher.statuses("")[0].values, "the figures")
    assert float(bench.publisher.statuses("")[0].values["exposure to add [EV]"]) == pytest.approx(stops, abs=0.05)


def test_stops_to_add_are_unknown(bench: Bench) -> None:
    """Before a frame, of light that is no mosaic, and if the region lies outside of the frame, which is counted."""
    assert bench.publisher.statuses("")[0].values["exposure to add [EV]"] == "n/a"
    frame = finished(1, demand(numbers=["exposure_ev"]))
    frame.raw = RawFrame.of_light(Light(np.full((4, 16, 24), 0.5, np.float32)), SENSORS["IMX250MZR"])
    bench.publisher.submit(frame)
    chosen = settings(camera__exposure_roi=[40, 0, 16, 16])
    bench.submit(2, demand(numbers=["exposure_ev"]), chosen=chosen)
    assert np.isnan(numbers(bench)["exposure_ev"]).tolist() == [True, True]
    assert bench.values()["refused: exposure"] == "1"
    assert "camera.exposure_roi must lie within 48x32 pixels" in bench.log.lines[-1][1]


def test_late_frames_are_named(bench: Bench) -> None:
    bench.submit(0, demand(others=[LATENCY]))
    for stamp in range(100):
        bench.diagnostics.received(stamp)  # a nanosecond from frame to frame
    bench.submit(1, demand(others=[LATENCY]))
    found = [(row.level, row.message) for (row,) in latency(bench)]
    assert found == [(0, "ms"), (1, "ms; late: the next frame was due before")]


def calibration(width: int, height: int) -> bytes:
    """A serialized `CameraInfo` whose principal point is the image's center."""
    k = np.array([100, 0, (width - 1) / 2, 0, 100, (height - 1) / 2, 0, 0, 1], np.float64)
    p = np.zeros(12)
    info = messages.CameraInfo(0, "", height, width, "plumb_bob", np.zeros(5), k, np.eye(3).reshape(-1), p)
    return bytes(messages.encode_camera_info(info, 0, ""))


def test_calibrations_are_scaled_to_their_images(bench: Bench) -> None:
    wanted = demand("dolp", others=["camera_info_out", "quality/camera_info"])
    for stamp, cdr in ((1, None), (2, calibration(48, 32)), (3, calibration(99, 32))):
        bench.submit(stamp, wanted, chosen=settings(ssim_stride=4), camera_info=cdr)
    without, scaled, misfit = bench.sender.sent
    assert list(without) == list(misfit) == ["polarization/dolp"]
    infos = [messages.decode_camera_info(scaled[topic]) for topic in ("camera_info_out", "quality/camera_info")]
    assert [(info.width, info.height, info.stamp_ns) for info in infos] == [(24, 16, 2), (6, 4, 2)]
    assert [tuple(info.k[[2, 5]]) for info in infos] == [(11.5, 7.5), (2.5, 1.5)], "the centers of 24x16 and 6x4 pixels"
    assert bench.values()["refused: camera_info"] == "1"


def test_the_calibration_of_ready_angles_is_of_their_pixels(bench: Bench) -> None:
    """The message has half the sensor's pixels each way, and so have the outputs."""
    wanted = demand("dolp", others=["camera_info_out"])
    for stamp, scale in ((1, 2), (2, 1)):
        angles, chosen = np.full((16, 24, 4), 99, np.uint8), settings(output__scale=scale)
        bench.submit(stamp, wanted, angles, chosen=chosen, camera_info=calibration(24, 16))
    small, same = (messages.decode_camera_info(sent["camera_info_out"]) for sent in bench.sender.sent)
    assert [(info.width, info.height, info.k[0]) for info in (small, same)] == [(12, 8, 50), (24, 16, 100)]
    assert [tuple(info.k[[2, 5]]) for info in (small, same)] == [(5.5, 3.5), (11.5, 7.5)], "the centers"


@pytest.mark.parametrize("heard", [(0,), (1,), (0, 1)])
def test_a_product_of_two_topics_goes_where_subscribers_are(bench: Bench, heard: Tuple[int, ...]) -> None:
    names = [("intensity", "polarization/intensity")[k] for k in heard]
    wanted = {*names, *(f"{name}/compressed" for name in names)}
    bench.submit(1, demand(others=sorted(wanted)))
    assert set(bench.sender.sent[0]) == wanted
    assert len({bench.sender.sent[0][name] for name in names}) == 1


def test_rectified_outputs_have_a_calibration_without_a_topic(bench: Bench) -> None:
    """That of the file; what topic `camera_info` says does not matter then."""
    k, p = (60.0, 0, 31, 0, 62, 24, 0, 0, 1), (50.0, 0, 30, 0, 0, 52, 22, 0, 0, 0, 1, 0)
    lens = make_lens((32, 48), "plumb_bob", (-0.1, 0.01, 0, 0, 0), k, np.zeros(9), p)
    chosen = settings().rectified_by(lens)
    for stamp, cdr in ((1, None), (2, calibration(99, 32)), (3, b"junk")):
        bench.submit(stamp, demand("dolp", others=["polarization/camera_info"]), chosen=chosen, camera_info=cdr)
        info = messages.decode_camera_info(bench.sender.sent[-1]["polarization/camera_info"])
        assert (info.width, info.height, info.stamp_ns) == (24, 16, stamp)
        # (x + 1/2) / 2 - 1/2 of the principal point (30, 22)
        np.testing.assert_allclose(info.p, [25, 0, 14.75, 0, 0, 26, 10.75, 0, 0, 0, 1, 0])
        np.testing.assert_allclose(info.k, [25, 0, 14.75, 0, 26, 10.75, 0, 0, 1])
        assert not info.d.any()
    assert "refused: camera_info" not in bench.values()


def test_quality_is_compared_with_no_frame_from_before_a_restart(bench: Bench) -> None:
    chosen = settings(quality__frozen_frames=2)
    for stamp, is_restart in ((5, False), (1, True)):
        bench.submit(stamp, demand("dolp"), chosen=chosen, is_restart=is_restart)
    bench.publisher.close()
    assert "frozen" not in bench.publisher.statuses("")[0].message


def test_a_warning_is_logged_when_its_cause_first_appears(bench: Bench) -> None:
    dark, even = np.full((64, 64), 3, np.uint8), np.full((64, 64), 100, np.uint8)
    for stamp, raw in enumerate((dark, dark, even, dark), 1):
        bench.publisher._check_due = 0.0
        bench.submit(stamp, demand("intensity"), raw)
    bench.publisher.close()
    assert [(level, text.partition(":")[0]) for level, text in bench.log.lines] == [
        ("warning", "dark"),
        ("warning", "dead"),
    ]
    assert bench.publisher.statuses("")[2].message.startswith("nothing is brighter than 1.2% of full scale")
