"""The engine as the node builds it, fed with serialized frames and heard by topics in memory: no ROS takes part."""

from __future__ import annotations

import itertools
import struct
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, Dict, Iterator, List, Set

import cv2
import numpy as np
import pytest
from calibrations import some_calibration
from rosbags_messages import decode
from stand_in import StandIn
from support import REAL_FRAMES, real_frame, wait_for
from test_processor import RAW, settings
from test_publisher import Bench, calibration, demand

from polar_pipeline import SENSORS, Pipeline, merge_exposures
from polar_pipeline.backends.cpu.backend import CpuBackend
from polar_pipeline.backends.cuda.backend import problem
from polar_pipeline.calibration import save_calibration
from polar_pipeline.camera.facts import read_facts
from polar_pipeline.cli import main
from polar_pipeline.live.frame import ReceivedImage
from polar_pipeline.live.pipelines import Fallback
from polar_pipeline.live.processor import FrameProcessor
from polar_pipeline.options.topics import LATENCY, PRODUCT_TOPICS
from polar_pipeline.recordings import messages
from polar_pipeline.recordings.source import open_source


class Engine(Bench):
    """Processor and publisher, and the settings that a test may change."""

    def __init__(self, **values: Any) -> None:
        super().__init__()
        self.settings = settings(queue_size=16, **values)
        self.background = ThreadPoolExecutor(1)
        self.processor = FrameProcessor(
            lambda: self.settings, Fallback(), self.diagnostics, self.publisher, self.background
        )
        self.processor.warm_up()
        self.processor.start()

    def subscribe(self, *names: str, **others: Any) -> None:
        wanted = demand(*names, **others)
        for name, topic in self.topics.items():
            topic.subscriptions = int(name in wanted)

    def feed(self, cdr: bytes) -> None:
        self.diagnostics.received(messages.peek_stamp(cdr))
        self.processor.put(ReceivedImage(cdr, time.perf_counter(), 0))

    def frame(self, stamp_ns: int, raw: np.ndarray = RAW) -> Any:
        """What is published of a good frame."""
        return self.send(bytes(messages.encode_image(stamp_ns, "camera", "mono8", raw)))

    def send(self, cdr: bytes) -> Any:
        """What is published of the good frame in a message."""
        count = len(self.sender.sent)
        self.feed(cdr)
        wait_for(lambda: len(self.sender.sent) > count, "the frame")
        return self.sender.sent[-1]


@pytest.fixture
def engine() -> Iterator[Engine]:
    made = Engine()
    yield made
    made.processor.close()
    made.background.shutdown()


def test_frames_become_messages(engine: Engine) -> None:
    engine.subscribe("dolp", "ssim", others=["polarization/camera_info", LATENCY], numbers=["total_ms"])
    engine.processor.put_camera_info(calibration(48, 32))
    sent = engine.frame(7)
    assert set(sent) == {"polarization/dolp", "quality/ssim", "polarization/camera_info"}
    expected = Pipeline(products="dolp, ssim", backend="cpu")(RAW)
    dolp = messages.decode_image(sent["polarization/dolp"])
    assert (dolp.stamp_ns, dolp.frame_id) == (7, "camera")
    np.testing.assert_array_equal(messages.to_array(dolp), expected["dolp"])
    assert decode(sent["quality/ssim"], messages.FLOAT32).data == float(expected["ssim"])
    wait_for(lambda: engine.topics[LATENCY].published, "its times")
    assert len(engine.topics["latency/total_ms"].published) == 1
    assert engine.publisher.last_frame == {"input": "48x32 mono8", "products": "dolp, ssim"}
    values = engine.values()
    assert (values["received"], values["published"], values["last error"]) == ("1", "1", "")


def test_two_exposures_become_one_frame(engine: Engine) -> None:
    """Products of a pair are those of the merged frame, stamped in the middle; figures tell what came from which."""
    short = np.where(np.arange(48) < 24, RAW // 8, RAW)
    long = np.minimum(8 * short.astype(int), 255).astype(np.uint8)
    facts = [replace(read_facts(StandIn()), sensor="IMX250MZR", exposure_us=time) for time in (4000.0, 500.0)]
    now = time.perf_counter()
    first, second = (
        ReceivedImage(bytes(messages.encode_image(stamp, "camera", "mono8", raw)), now, 0, state)
        for stamp, raw, state in zip((100, 300), (long, short), facts)
    )
    engine.subscribe("dolp", "dolp_sigma", others=[LATENCY])
    engine.processor.put(replace(second, before=first))
    wait_for(lambda: engine.sender.sent, "the frame")
    merged = merge_exposures([long, short], [4000, 500])
    assert merged.exposures is not None
    assert 0 < merged.exposures.index.mean() < 1
    expected = Pipeline(products="dolp, dolp_sigma", backend="cpu")(merged)
    for name in ("dolp", "dolp_sigma"):
        image = messages.decode_image(engine.sender.sent[-1][f"polarization/{name}"])
        assert image.stamp_ns == 200
        np.testing.assert_array_equal(messages.to_array(image), expected[name])
    wait_for(lambda: engine.topics[LATENCY].published, "its times")
    figures = str(engine.topics[LATENCY].published[-1])
    assert "moved [%]" in figures
    share = f"{100 * (1 - merged.exposures.index.mean()):.3f}"
    assert share in figures
    # a part of another size costs the pair only
    small = bytes(messages.encode_image(400, "camera", "mono8", RAW[:16]))
    engine.processor.put(replace(second, before=replace(first, cdr=small)))
    wait_for(lambda: engine.values().get("dropped: exposures") == "1", "the refusal")


def test_bad_frames_are_counted_and_the_next_one_comes_through(engine: Engine) -> None:
    engine.subscribe("dolp")
    good = bytes(messages.encode_image(1, "camera", "mono8", RAW))
    rgb = bytes(messages.encode_image(1, "camera", "rgb8", np.zeros((4, 4, 3), np.uint8)))
    no_time = good[:8] + struct.pack("<I", 10**9) + good[12:]
    for cdr in (b"", good[:40], good[:-9], rgb, no_time):
        engine.feed(cdr)
    for stamp in (2, -(2**31) * 10**9 + 5, 3):
        assert messages.peek_stamp(engine.frame(stamp)["polarization/dolp"]) == stamp
    values = engine.values()
    found = {name: value for name, value in values.items() if name.startswith("dropped: ")}
    assert found == {"dropped: cdr": "4", "dropped: encoding": "1"}


def test_settings_and_subscribers_change_between_frames(engine: Engine) -> None:
    engine.subscribe("dolp")
    assert messages.decode_image(engine.frame(1)["polarization/dolp"]).height == 16
    engine.settings = settings(resolution="full", frame_id="front", queue_size=16)
    dolp = messages.decode_image(engine.frame(2)["polarization/dolp"])
    assert (dolp.height, dolp.frame_id) == (32, "front")
    engine.subscribe("aolp", compressed=["preview"])
    assert set(engine.frame(3)) == {"polarization/aolp", "polarization/preview/compressed"}


#: Settings that change together; each field of a message tells them apart.
TOGETHER: List[Dict[str, Any]] = [
    {"resolution": "half", "output_depth": "float32", "ssim_stride": 1, "frame_id": "a", "min_intensity": 0.01},
    {"resolution": "full", "output_depth": "uint8", "ssim_stride": 2, "frame_id": "b", "min_intensity": 0.5},
    {"resolution": "half", "output_depth": "uint16", "ssim_stride": 4, "frame_id": "c", "min_intensity": 0.9},
]


@pytest.mark.parametrize("compiles", [False, True])
def test_messages_of_a_frame_are_of_one_setting(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, compiles: bool
) -> None:
    names, chosen = ("dolp", "ssim_map"), [settings(queue_size=16, **row) for row in TOGETHER]
    expected = {row.frame_id: Pipeline(**row.arguments(names))(RAW) for row in chosen}
    ready: Set[CpuBackend] = set()
    if compiles:  # as a GPU's does
        monkeypatch.setattr(CpuBackend, "is_ready", lambda backend, _: backend in ready)
        monkeypatch.setattr(CpuBackend, "prepare", lambda backend, _: (time.sleep(0.005), ready.add(backend)))
    engine.subscribe(*names, others=["quality/camera_info"])
    engine.processor.put_camera_info(calibration(48, 32))
    seen: List[str] = []
    for stamp in range(1, 120):
        engine.settings = chosen[stamp // 4 % 3]
        sent = engine.frame(stamp)
        info = messages.decode_camera_info(sent["quality/camera_info"])
        images = {name: messages.decode_image(sent[PRODUCT_TOPICS[name].name]) for name in names}
        (setting,) = {info.frame_id, *(image.frame_id for image in images.values())} - {"camera"}
        seen.append(setting)
        for name, image in images.items():
            np.testing.assert_array_equal(messages.to_array(image), expected[setting][name], err_msg=name)
        assert (info.height, info.width) == expected[setting]["ssim_map"].shape
        time.sleep(0.003 if compiles else 0)
    assert set(seen) == {"a", "b", "c"}
    assert compiles or seen == [TOGETHER[stamp // 4 % 3]["frame_id"] for stamp in range(1, 120)]


def test_geometry(engine: Engine) -> None:
    """Frames that it does not fit, and products that it excludes, are counted and named."""
    engine.subscribe("dolp", "dolp_sigma")
    engine.settings = settings(queue_size=16, output__roi=[0, 10, 24, 6])
    stamps = itertools.count(1)  # the former settings are in use until those are prepared
    wait_for(lambda: set(engine.frame(next(stamps))) == {"polarization/dolp"}, "a part of the image")
    engine.feed(bytes(messages.encode_image(next(stamps), "camera", "mono8", RAW[:24])))
    wait_for(lambda: engine.values().get("dropped: output") == "1", "the refusal")
    engine.settings = settings(queue_size=16)
    wait_for(lambda: len(engine.frame(next(stamps))) == 2, "the product that the geometry excluded")
    assert int(engine.values()["refused: product"]) >= 2


#: Coefficients of a lens with barrel distortion.
D = np.array([-0.2, 0, 0, 0, 0])


def lens(**changes: Any) -> bytes:
    """A lens calibration of the engine's frames, fields changed."""
    info = messages.decode_camera_info(calibration(48, 32))
    return bytes(messages.encode_camera_info(replace(info, **changes), info.stamp_ns, info.frame_id))


#: Lens calibrations by which no output can be rectified; those of other sizes can be read.
BAD_LENSES = {
    "model": lens(distortion_model="kannala_brandt4"),
    "damaged": lens(d=np.array([np.nan, 0, 0, 0, 0])),
    "too many": lens(d=np.zeros(500)),
    "not calibrated": lens(k=np.zeros(9)),
    "truncated": lens()[:99],
    "size": calibration(24, 16),
}


def test_each_frame_is_rectified_by_the_calibration_of_its_stamp(engine: Engine) -> None:
    """A lens that changes in every frame, as with a zoom, while frames wait; one that comes too late is counted."""
    engine.subscribe("dolp", others=["polarization/camera_info"])
    engine.settings = settings(queue_size=16, output__rectify="camera_info")
    lenses = [lens(k=np.array([90.0 + f, 0, 23.5, 0, 90 + f, 15.5, 0, 0, 1]), d=D) for f in range(0, 60, 5)]
    for stamp, cdr in enumerate(lenses, 1):
        engine.processor.put_camera_info(messages.restamp(cdr, stamp))
    for stamp in range(1, len(lenses) + 1):
        engine.feed(bytes(messages.encode_image(stamp, "camera", "mono8", RAW)))
    wait_for(lambda: len(engine.sender.sent) == len(lenses), "every frame")
    for cdr, sent in zip(lenses, engine.sender.sent):
        rectify = messages.lens_of(messages.decode_camera_info(cdr))
        want = Pipeline(products="dolp", backend="cpu", rectify=rectify)(RAW)["dolp"]
        np.testing.assert_array_equal(messages.to_array(messages.decode_image(sent["polarization/dolp"])), want)
        assert messages.decode_camera_info(sent["polarization/camera_info"]).k[0] == rectify.k[0] / 2
    assert "refused: camera_info" not in engine.values()
    for stamp in (100, 101):
        engine.frame(stamp)
        engine.processor.put_camera_info(messages.restamp(lenses[0], stamp))
    engine.frame(102)
    assert engine.values()["refused: camera_info"] == "1", "that of frame 100"


def test_outputs_are_rectified_by_the_newest_calibration(engine: Engine) -> None:
    """No output without a usable one, which is counted and logged now and then; the next good one works."""
    engine.subscribe("dolp")
    engine.settings = settings(queue_size=16, output__rectify="camera_info")
    stamps = itertools.count(1)
    for refused, bad in enumerate([None, *BAD_LENSES.values()]):
        engine.processor.camera_info = bad
        for _ in range(3):
            engine.feed(bytes(messages.encode_image(next(stamps), "camera", "mono8", RAW)))
        wait_for(lambda n=refused: engine.values().get("dropped: output") == str(3 * n + 3), "the refusals")
        center = 20.5 + refused
        good = lens(k=np.array([100.0, 0, center, 0, 100, 15.5, 0, 0, 1]), d=D)
        engine.processor.camera_info = good
        rectify = messages.lens_of(messages.decode_camera_info(good))
        want = Pipeline(products="dolp", backend="cpu", rectify=rectify)(RAW)["dolp"]
        dolp = messages.decode_image(engine.frame(next(stamps))["polarization/dolp"])
        np.testing.assert_array_equal(messages.to_array(dolp), want)
    assert engine.values()["refused: camera_info"] == str(len(BAD_LENSES) - 1)
    lines = [text.split(",")[0] for level, text in engine.log.lines if level == "warning"]
    assert sorted(lines) == ["camera_info", "output"], "once for each cause"


def test_frames_are_corrected_by_the_sensors_calibration(tmp_path: Path) -> None:
    """One that covers a part of the sensor is no obstacle to the start; larger frames are refused."""
    path = tmp_path / "sensor.npz"
    save_calibration(path, some_calibration(SENSORS["IMX250MZR"], RAW.shape, (10, 6)))
    made = Engine(calibration=str(path), raw__roi_offset=[10, 6])
    with closing(made.processor):
        made.subscribe("dolp")
        dolp = messages.to_array(messages.decode_image(made.frame(1)["polarization/dolp"]))
        want = Pipeline(products="dolp", backend="cpu", calibration=path, roi_offset=(10, 6))(RAW)["dolp"]
        np.testing.assert_array_equal(dolp, want)
        assert not np.array_equal(want, Pipeline(products="dolp", backend="cpu")(RAW)["dolp"], equal_nan=True)
        made.feed(bytes(messages.encode_image(2, "camera", "mono8", np.full((64, 64), 99, np.uint8))))
        wait_for(lambda: made.values().get("dropped: calibration") == "1", "the refusal")
        assert "the calibration is of 48x32 pixels from (10, 6)" in made.values()["last error"]


def with_step(cdr: bytes, size: int, step: int) -> bytes:
    """An image of `size` bytes of pixels that claims other rows: the step stands in front of their number."""
    place = len(cdr) - size - 8
    return cdr[:place] + struct.pack("<I", step) + cdr[place + 4 :]


def test_reference(engine: Engine) -> None:
    """Bad ones are counted and cost SSIM only; saturation is counted without one."""
    engine.settings = settings(queue_size=16, ssim_mode="reference")
    engine.subscribe("ssim", numbers=["saturated"])
    assert engine.frame(1) == {}
    wait_for(lambda: engine.topics["quality/saturated"].published, "the ratio of saturated pixels")
    engine.subscribe("ssim", "dolp")
    intensity = Pipeline(products="intensity", backend="cpu")(RAW)["intensity"]
    good = bytes(messages.encode_image(0, "", "32FC1", intensity))
    holes = np.where(intensity == intensity.max(), np.float32(np.nan), intensity)
    bad = [
        bytes(messages.encode_image(0, "", "32FC1", intensity[1:])),
        bytes(messages.encode_image(0, "", "mono16", np.zeros((16, 24), np.uint16))),
        bytes(messages.encode_image(0, "", "32FC1", holes)),
        good[:-1],
        *(with_step(good, intensity.nbytes, step) for step in (0, 4, 4 * 24 - 1)),
    ]
    for stamp, cdr in enumerate(bad, 2):
        engine.processor.reference = cdr
        assert set(engine.frame(stamp)) == {"polarization/dolp"}
    assert engine.values()["refused: reference"] == str(1 + len(bad))
    engine.processor.reference = good
    sent = engine.frame(99)
    ssim = decode(sent["quality/ssim"], messages.FLOAT32).data
    assert ssim == pytest.approx(1.0, abs=1e-6)  # float32 rounding of an image compared with itself


@pytest.mark.parametrize("resolution", ["half", "full"])  # `demosaic: auto` takes another method at each
@pytest.mark.parametrize("backend", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_replay_makes_the_same_messages(engine: Engine, tmp_path: Path, backend: str, resolution: str) -> None:
    """Bit for bit: header, encoding and pixels, of parts of real frames."""
    reader = pytest.importorskip("mcap.reader")
    if backend == "cuda" and problem():
        pytest.skip(str(problem()))
    names = ("intensity", "dolp", "aolp", "preview", "ssim_map", "ssim")
    (tmp_path / "frames").mkdir()
    for name in REAL_FRAMES:
        cv2.imwrite(str(tmp_path / "frames" / name), real_frame(name)[:512, :612])
    golden = tmp_path / "golden.mcap"
    command = ["replay", str(tmp_path / "frames"), "-o", str(golden), "--products", ",".join(names)]
    assert main([*command, "--resolution", resolution, "--backend", backend]) == 0

    engine.settings = settings(backend=backend, resolution=resolution, queue_size=16)
    engine.subscribe(*names)
    wait_for(lambda: engine.processor._pipelines._active_key[2] == names, "what the subscribers get")
    live: Dict[Any, bytes] = {}
    with open_source(tmp_path / "frames") as source:
        for record in source.records:
            sent = engine.send(record.cdr())
            live.update({(record.image().stamp_ns, f"/{topic}"): cdr for topic, cdr in sent.items()})
    assert len(live) == len(REAL_FRAMES) * len(names)
    with golden.open("rb") as stream:
        rows = list(reader.make_reader(stream).iter_messages())
    replayed = {(row.log_time, channel.topic): row.data for _, channel, row in rows}
    assert {key: cdr for key, cdr in replayed.items() if key[1] != "/quality/saturated"} == live
