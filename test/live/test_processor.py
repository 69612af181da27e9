"""The worker without ROS: order, errors, the GPU's faults, overload, and its end."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, Callable, Collection, Dict, FrozenSet, Iterator, List, Optional, Tuple
from unittest.mock import Mock

import numpy as np
import pytest
from fuzz import cdr
from stand_in import StandIn
from support import TIMEOUT, ended_afterwards, wait_for

from polar_pipeline.backends.backend import ALIGNMENT, DeviceLostError
from polar_pipeline.backends.cpu.backend import CpuBackend
from polar_pipeline.camera.facts import read_facts
from polar_pipeline.live.diagnostics import Diagnostics
from polar_pipeline.live.frame import LiveFrame, ReceivedImage
from polar_pipeline.live.parameters import Settings, make_settings
from polar_pipeline.live.pipelines import SIZE_STEP, Fallback
from polar_pipeline.live.processor import (
    FRAMES_AT_ONCE,
    IDLE_PERIOD,
    MESSAGES_A_FRAME,
    FrameProcessor,
    decode_reference,
)
from polar_pipeline.options.topics import LATENCY, PRODUCT_TOPICS
from polar_pipeline.pipeline import Pipeline
from polar_pipeline.recordings import messages
from polar_pipeline.sensor.frames import FrameError
from polar_pipeline.sensor.mosaic import FULL_FRAME

RAW = np.random.default_rng(0).integers(10, 200, (32, 48)).astype(np.uint8)


def image(stamp_ns: int, raw: np.ndarray = RAW) -> ReceivedImage:
    return ReceivedImage(bytes(messages.encode_image(stamp_ns, "camera", "mono8", raw)), time.perf_counter(), 0)


def settings(**values: Any) -> Settings:
    return make_settings({"backend": "cpu", **{key.replace("__", "."): v for key, v in values.items()}})


class Log:
    """Keeps what is logged, as (level, text)."""

    def __init__(self) -> None:
        self.lines: List[Tuple[str, str]] = []

    def __getattr__(self, level: str) -> Callable[[str], None]:
        return lambda text: self.lines.append((level, text))


class StubPipeline:
    """A pipeline that computes nothing and notes, in `steps`, what it is called for."""

    def __init__(self, depth: int, backend: str = "cpu") -> None:
        self.depth = depth
        self.device = f"a {backend}"
        self.options = SimpleNamespace(backend=backend, ssim_mode="consistency", products=())
        self.shapes: List[Tuple[int, ...]] = []  # of complete frames in one call
        self.resets = 0
        self.memory: List[int] = []  # sizes of what was asked for
        self.steps: List[Tuple[str, int]] = []
        self.faults: Dict[Tuple[str, int], Exception] = {}

    def _step(self, name: str, number: int) -> None:
        self.steps.append((name, number))
        if (name, number) in self.faults:
            raise self.faults[name, number]

    def __call__(self, raw: np.ndarray) -> Any:
        self.shapes.append(raw.shape)
        self._step("call", len(self.shapes))
        return SimpleNamespace()

    def frame_memory(self, size: int) -> np.ndarray:
        self.memory.append(size)
        return np.empty(size, np.uint8)

    def reset(self) -> None:
        self.resets += 1

    def submit(self, _: Any, reference: Any = None) -> int:
        assert reference is None
        number = sum(name == "submit" for name, _ in self.steps)
        self._step("submit", number)
        return number

    def result(self, pending: int) -> Any:
        self._step("result", pending)
        return SimpleNamespace(timings={"polarization": 0.001}, number=pending)


class StubPipelines:
    """Gives the same pipeline for everything."""

    def __init__(self, pipeline: StubPipeline) -> None:
        self.pipeline = pipeline
        self.asked: List[Tuple[str, ...]] = []
        self.resets = self.clears = 0
        self.former: Optional[Settings] = None
        self.is_compiling = False

    def get(self, wanted: Settings, products: Tuple[str, ...], _: Any) -> Tuple[StubPipeline, Settings]:
        self.asked.append(products)
        self.pipeline.options.products = ("stokes",) if self.is_compiling else products
        return self.pipeline, self.former or wanted

    def reset(self) -> None:
        self.resets += 1

    def clear(self) -> None:
        self.clears += 1

    def close(self) -> None: ...

    def release_replaced(self, in_use: Collection[Any] = ()) -> None:
        assert set(in_use) <= {self.pipeline}


class Output:
    """Keeps finished frames; `gate` holds the worker up as a publisher that is behind would."""

    def __init__(self) -> None:
        self.products: FrozenSet[str] = frozenset({"dolp"})
        self.wants_latency = False
        self.frames: List[LiveFrame] = []
        self.gate = threading.Event()
        self.gate.set()
        self.busy = threading.Event()

    def demand(self) -> FrozenSet[str]:
        latency = [LATENCY] if self.wants_latency else []
        return frozenset([PRODUCT_TOPICS[name].name for name in self.products] + latency)

    def submit(self, frame: LiveFrame) -> None:
        self.busy.set()
        assert self.gate.wait(TIMEOUT)
        self.frames.append(frame)

    def close(self) -> None: ...

    @property
    def stamps(self) -> List[int]:
        return [frame.image.stamp_ns for frame in self.frames]


class Bench:
    """A processor, with everything around it in reach."""

    def __init__(self, depth: int = 1, backend: str = "cpu", **values: Any) -> None:
        self.settings = settings(**values)
        self.pipeline = StubPipeline(depth, backend)
        self.pipelines = StubPipelines(self.pipeline)
        self.fallback = Fallback()
        self.log = Log()
        self.diagnostics = Diagnostics("node", self.log)
        self.output = Output()
        self.background = ThreadPoolExecutor(1)
        self.processor = FrameProcessor(
            lambda: self.settings, self.fallback, self.diagnostics, self.output, self.background
        )
        self.processor._pipelines = self.pipelines
        self.processor.start()

    def values(self) -> Dict[str, str]:
        return self.diagnostics.statuses("", "")[0].values

    def hold(self) -> None:
        """Let the worker wait in its output, with one frame."""
        self.output.gate.clear()
        self.processor.put(image(0))
        assert self.output.busy.wait(TIMEOUT)

    def close(self) -> None:
        self.output.gate.set()
        self.processor.close()
        self.background.shutdown()


@pytest.fixture
def real() -> Iterator[Callable[..., FrameProcessor]]:
    """Make processors with real pipelines."""

    def make(wanted: Any, output: Output, log: Optional[Log] = None) -> FrameProcessor:
        return FrameProcessor(wanted, Fallback(), Diagnostics("node", log or Log()), output, background)

    with ThreadPoolExecutor(1) as background:
        yield from ended_afterwards(make, FrameProcessor.close)


@pytest.fixture
def bench() -> Iterator[Callable[..., Bench]]:
    yield from ended_afterwards(Bench, Bench.close)


@pytest.mark.parametrize("depth", [1, 3])
def test_frames_stay_in_order(bench: Any, depth: int) -> None:
    b = bench(depth=depth, queue_size=16)
    b.hold()
    for stamp in range(1, 10):
        b.processor.put(image(stamp))
    b.output.gate.set()
    wait_for(lambda: len(b.output.frames) == 10, "every frame")
    assert b.output.stamps == list(range(10))
    assert [frame.result.number for frame in b.output.frames] == list(range(10))
    steps = b.pipeline.steps
    ahead = max(
        sum(name == "submit" for name, _ in steps[:k]) - sum(name == "result" for name, _ in steps[:k])
        for k in range(len(steps) + 1)
    )
    assert ahead == depth, "frames submitted and not finished"


def test_a_frame_alone_is_finished_at_once(bench: Any) -> None:
    b = bench(depth=3)
    b.processor.put(image(5))
    wait_for(lambda: b.output.stamps == [5], "the frame, although others could be submitted")


@pytest.mark.parametrize("depth", [1, 3])
def test_frames_that_fail_cost_themselves_only(bench: Any, depth: int) -> None:
    b = bench(depth=depth, queue_size=16)
    b.hold()
    b.pipeline.faults = {("submit", 1): ValueError("a defect"), ("result", 2): MemoryError("no room")}
    for stamp in range(1, 4):
        b.processor.put(image(stamp))
    b.processor.put(ReceivedImage(b"\0\1\0\0", time.perf_counter(), 0))
    b.processor.put(image(5))
    b.output.gate.set()
    wait_for(lambda: len(b.output.frames) == 3, "the good frames")
    assert b.output.stamps == [0, 3, 5]
    values = b.values()
    assert {key: values[f"dropped: {key}"] for key in ("internal", "memory", "cdr")} == dict.fromkeys(
        ("internal", "memory", "cdr"), "1"
    )
    warnings = {text.split(",")[0]: "Traceback" in text for level, text in b.log.lines if level == "warning"}
    assert warnings == {"internal": True, "memory": False, "cdr": False}


@pytest.mark.parametrize("mode", ["cpu", "retry", "stop"])
def test_a_device_that_fails_gives_up_frames_in_progress(bench: Any, mode: str) -> None:
    b = bench(depth=3, backend="cuda", queue_size=16, on_device_error=mode)
    b.hold()
    b.pipeline.faults = {("result", 1): DeviceLostError("the GPU was lost")}
    for stamp in range(1, 5):
        b.processor.put(image(stamp))
    b.output.gate.set()
    wait_for(lambda: b.output.stamps == [0, 4], "the frame after the fault")
    assert b.values()["dropped: device"] == "3", "frame 1, and the two that were submitted after it"
    assert b.pipelines.clears == 1
    assert b.processor.failure == ("the GPU was lost" if mode == "stop" else "")
    assert [text for level, text in b.log.lines if level == "fatal"] == ["ends: the GPU was lost"] * (mode == "stop")
    assert b.fallback.reason == "", "frame 4 was computed on the GPU"
    b.pipeline.faults = {("submit", 5): DeviceLostError("the GPU was lost")}
    b.processor.put(image(5))
    wait_for(lambda: b.values()["dropped: device"] == "4", "the fault")
    wanted = settings(backend="cuda", on_device_error=mode)
    assert b.fallback.settings(wanted).options.backend == ("cpu" if mode == "cpu" else "cuda")
    assert b.fallback.problem(wanted).endswith("the GPU was lost")


@pytest.mark.parametrize("mode", ["cpu", "stop"])
def test_a_device_that_fails_at_the_start(real: Any, monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    processor = real(lambda: settings(on_device_error=mode), Output())
    monkeypatch.setattr(Pipeline, "__call__", lambda *_: (_ for _ in ()).throw(DeviceLostError("the GPU was lost")))
    if mode == "stop":
        with pytest.raises(DeviceLostError):
            processor.warm_up()
    else:
        processor.warm_up()
        assert processor._fallback.reason == "the GPU was lost"


def test_the_age_is_that_at_receipt(bench: Any) -> None:
    b = bench(queue_size=4)
    for time_ns in (0, 5_000_000, 60_000_000_000):
        b.processor.put(ReceivedImage(image(2_000_000).cdr, time.perf_counter(), time_ns))
    wait_for(lambda: len(b.output.frames) == 3, "every frame")
    ages = [frame.age for frame in b.output.frames]
    assert ages == [None, pytest.approx(0.003), None], "no clock yet, 3 ms, and a stamp of another clock"


def test_under_overload_the_oldest_frames_are_dropped(bench: Any) -> None:
    b = bench(queue_size=2)
    b.hold()
    for stamp in range(1, 6):
        b.processor.put(image(stamp))
    b.output.gate.set()
    wait_for(lambda: len(b.output.frames) == 3, "the newest frames")
    assert b.output.stamps == [0, 4, 5]
    assert b.values()["dropped: overload"] == "3"


@pytest.mark.parametrize("depth", [1, 3])
def test_closed_while_busy(bench: Any, depth: int) -> None:
    """What is computed is handed over, what waits is dropped, and `close` returns after that."""
    b = bench(depth=depth, queue_size=16)
    b.hold()
    b.processor.put(image(1))
    closing = threading.Thread(target=b.processor.close)
    closing.start()
    wait_for(lambda: b.processor._is_closed, "the end of the queue")
    assert closing.is_alive(), "it waits for the frame at work"
    b.output.gate.set()
    closing.join(TIMEOUT)
    assert not closing.is_alive()
    b.processor.put(image(2))
    b.processor.close()
    assert b.output.stamps == [0]
    assert "dropped: overload" not in b.values()


def test_what_has_no_subscriber_is_not_computed(bench: Any) -> None:
    b = bench()
    b.output.products = frozenset()
    b.processor.put(image(1))
    wait_for(lambda: b.values()["unwanted"] == "1", "a frame without subscribers")
    b.output.wants_latency = True
    b.processor.put(image(2))
    wait_for(lambda: b.output.stamps == [2], "a frame of which the times are wanted")
    assert (b.output.frames[0].result, b.pipeline.steps) == (None, [])
    assert set(b.output.frames[0].timings) == {"queue", "decode"}
    b.settings = settings(quality__always=True)
    b.processor.put(image(3))
    wait_for(lambda: b.output.stamps == [2, 3], "a frame whose quality is judged")
    assert b.pipelines.asked == [("dolp", "ssim")]


def test_memory_is_there_before_the_first_frame(bench: Any) -> None:
    """As many frames of a camera's size as there can be at once, for every new set of subscribers."""
    b = bench()
    wait_for(lambda: b.pipeline.resets == 1, "the products of subscribers")
    b.output.products = frozenset({"dolp", "ssim"})
    wait_for(lambda: b.pipeline.resets == 2, "those of others")
    time.sleep(3 * IDLE_PERIOD)
    assert b.pipeline.shapes == 2 * FRAMES_AT_ONCE * [FULL_FRAME], "once for each set"
    assert b.pipelines.asked == [("dolp",), ("dolp", "ssim")]
    b.processor.put(image(1))
    wait_for(lambda: b.output.stamps == [1], "the first frame")
    b.output.products = frozenset({"aolp"})
    time.sleep(2 * IDLE_PERIOD)
    assert len(b.pipeline.shapes) == 2 * FRAMES_AT_ONCE, "no more once frames come in"
    assert len(b.pipeline.memory) == 2 * FRAMES_AT_ONCE * MESSAGES_A_FRAME, "for messages too"
    assert len(set(b.pipeline.memory)) == 1
    assert b.pipeline.memory[0] > FULL_FRAME[0] * FULL_FRAME[1]


@pytest.mark.parametrize("frame_id", ["", "camera", "a longer one, of another camera"])
def test_memory_for_messages_is_of_the_last_ones_size(bench: Any, frame_id: str) -> None:
    b = bench()
    assert b.processor.message_memory() is None
    cdr = bytes(messages.encode_image(1, frame_id, "mono8", RAW))
    b.processor.put(ReceivedImage(cdr, time.perf_counter(), 0))
    wait_for(lambda: b.output.stamps == [1], "the first frame")
    memory = b.processor.message_memory()
    assert memory.nbytes >= len(cdr)
    memory[: len(cdr)] = np.frombuffer(cdr, np.uint8)
    pixels = messages.decode_image(memory[: len(cdr)].data).data
    assert pixels.ctypes.data % ALIGNMENT == 0
    assert b.pipeline.memory == [SIZE_STEP], "the same for every name"


def test_memory_waits_for_kernels_that_are_compiled(bench: Any) -> None:
    b = bench()
    b.pipelines.is_compiling = True
    wait_for(lambda: len(b.pipelines.asked) > 2, "questions whether they are")
    assert not b.pipeline.shapes
    b.pipelines.is_compiling = False
    wait_for(lambda: b.pipeline.resets == 1, "the memory")


@pytest.mark.parametrize("fault", [ValueError("a defect"), MemoryError("no room"), DeviceLostError("the GPU was lost")])
def test_a_fault_before_the_first_frame_costs_no_frame(bench: Any, fault: Exception) -> None:
    b = bench(backend="cuda")
    b.settings = settings(backend="cuda")
    b.pipeline.faults = {("call", 2): fault}
    wait_for(lambda: len(b.pipeline.shapes) == 2, "the fault")
    time.sleep(2 * IDLE_PERIOD)
    assert len(b.pipeline.shapes) == 2, "not tried again and again"
    assert (b.fallback.reason != "") == isinstance(fault, DeviceLostError), "the CPU takes over"
    b.processor.put(image(1))
    wait_for(lambda: b.output.stamps == [1], "the first frame")


def test_the_first_frame_has_none_before_it(real: Any) -> None:
    """SSIM compares with the frame before, which the first one and one after a restart lack."""
    wanted, output = settings(ssim_mode="temporal", resolution="full"), Output()
    processor = real(lambda: wanted, output)
    output.products = frozenset({"ssim"})
    processor.start()
    wait_for(lambda: processor._pipelines._active is not None, "a pipeline for the subscriber")
    for count, stamp in enumerate((1, 2, 0), 1):
        processor.put(image(stamp, np.full(FULL_FRAME, 99, np.uint8)))
        wait_for(lambda count=count: len(output.frames) == count, "a frame")
    first, second, again = (float((frame.result or {})["ssim"]) for frame in output.frames)
    assert (np.isnan(first), second, np.isnan(again)) == (True, 1.0, True)


@pytest.fixture
def closed(monkeypatch: pytest.MonkeyPatch) -> List[Pipeline]:
    """The pipelines that were closed."""
    pipelines: List[Pipeline] = []
    close = Pipeline.close
    monkeypatch.setattr(Pipeline, "close", lambda pipeline: (pipelines.append(pipeline), close(pipeline)))
    return pipelines


def test_what_was_compiled_at_start_is_released_before_the_first_frame(real: Any, closed: List[Pipeline]) -> None:
    """The pipeline of every product, once that of the subscribers' products is ready."""
    wanted = settings()
    processor = real(lambda: wanted, Output())
    processor.warm_up()
    processor.start()
    wait_for(lambda: closed, "the end of the first pipeline")
    assert len(closed[0].options.products) > 10


@pytest.mark.parametrize("depth", [1, 3])
def test_a_replaced_pipeline_is_closed_after_its_last_frame(
    real: Any, closed: List[Pipeline], monkeypatch: pytest.MonkeyPatch, depth: int
) -> None:
    """With as many frames in flight as on a GPU: every frame arrives, and one pipeline remains."""
    monkeypatch.setattr(CpuBackend, "depth", depth)
    wanted = [settings(queue_size=16, min_intensity=k / 10) for k in range(8)]
    current = iter(wanted)
    log, output = Log(), Output()
    processor = real(lambda: next(current, wanted[-1]), output, log)
    for stamp in range(12):
        processor.put(image(stamp))
    processor.start()
    wait_for(lambda: len(output.frames) == 12, "every frame")
    wait_for(lambda: not processor._pipelines._replaced, "the end of the replaced pipelines")
    used = {frame.pipeline for frame in output.frames}
    assert len(used) > 4
    assert used - set(closed) == {output.frames[-1].pipeline}
    assert log.lines[1:] == []


def test_outputs_go_by_the_settings_of_their_pipeline(bench: Any) -> None:
    """While a change is compiled these are the former ones; without a pipeline those asked for."""
    b = bench(frame_id="new")
    b.pipelines.former = settings(frame_id="former")
    b.processor.put(image(1))
    wait_for(lambda: b.output.frames, "a frame")
    b.output.products, b.output.wants_latency = frozenset(), True
    b.processor.put(image(2))
    wait_for(lambda: len(b.output.frames) == 2, "the next frame")
    assert [frame.settings.frame_id for frame in b.output.frames] == ["former", "new"]


def test_the_region_of_camera_info_is_taken(bench: Any) -> None:
    """That of the newest message which can be decoded; what contradicts it is refused with the cause `region`."""
    b = bench(queue_size=16)
    sent = [
        (None, "the frame", (0, 0)),
        (cdr.write_camera_info((101, 200, 48, 32)), "the region", (101, 200)),
        (b"damaged", "the region before", (101, 200)),
        (cdr.write_camera_info((7, 9, 48, 32)), "another region", (7, 9)),
        (cdr.write_camera_info((7, 9, 40, 32)), "", None),
        (cdr.write_camera_info(binning=(2, 2)), "", None),
        (cdr.write_camera_info(), "no region", (0, 0)),
    ]
    offsets, refused = [], 0
    for stamp, (info, _, offset) in enumerate(sent):
        b.processor.camera_info = info
        b.processor.put(image(stamp))
        if offset is None:
            refused += 1
            wait_for(lambda count=refused: b.values().get("dropped: region") == str(count), "the refusal")
        else:
            offsets.append(offset)
            wait_for(lambda: len(b.output.frames) == len(offsets), "the frame")
    assert [frame.settings.options.roi_offset for frame in b.output.frames] == offsets
    assert b.values()["refused: camera_info"] == "1", "the damaged one"
    assert "binning of 2x2" in b.values()["last error"]
    b.settings = settings(raw__roi_offset=[1, 0])
    b.processor.camera_info = cdr.write_camera_info((101, 200, 48, 32))
    b.processor.put(image(10))
    wait_for(lambda: b.output.stamps[-1] == 10, "the frame of an offset that is the same modulo the tile")
    b.processor.camera_info = cdr.write_camera_info((102, 200, 48, 32))
    b.processor.put(image(11))
    wait_for(lambda: b.values()["dropped: region"] == "3", "the refusal of the offset that differs modulo the tile")
    assert b.output.frames[-1].settings.options.roi_offset == (1, 0), "the parameter"
    assert "(102, 200)" in b.values()["last error"]
    assert "raw.roi_offset (--roi-offset) is (1, 0)" in b.values()["last error"]


def test_ready_angles_do_not_depend_on_the_region(real: Any) -> None:
    output = Output()
    processor = real(settings, output)
    processor.camera_info = cdr.write_camera_info((101, 200, 48, 32))
    processor.start()
    angles = np.tile(RAW[..., None], (1, 1, 4))
    encoding = "PolarizedAngles_0d_45d_90d_135d_Mono8"
    for stamp, cdr_of in enumerate((image(0).cdr, bytes(messages.encode_image(1, "camera", encoding, angles)))):
        processor.put(ReceivedImage(cdr_of, time.perf_counter(), 0))
        wait_for(lambda count=stamp + 1: len(output.frames) == count, "the frame")
    assert [frame.settings.options.roi_offset for frame in output.frames] == [(101, 200), (0, 0)]


def test_products_are_of_the_region(real: Any) -> None:
    """Light of AoLP 30 degrees, from an odd offset."""
    y, x = np.mgrid[:32, :48] + np.array([200, 101])[:, None, None]
    angles = np.array([[90, 45], [135, 0]])[y % 2, x % 2]
    raw = np.rint(120 * (1 + 0.5 * np.cos(2 * np.deg2rad(30 - angles)))).astype(np.uint8)
    output = Output()
    output.products = frozenset({"aolp"})
    processor = real(settings, output)
    processor.camera_info = cdr.write_camera_info((101, 200, 48, 32))
    processor.start()
    processor.put(image(1, raw))
    wait_for(lambda: output.frames, "the frame")
    aolp = np.rad2deg((output.frames[0].result or {})["aolp"])
    np.testing.assert_allclose(aolp, 30, atol=0.3)  # a level of 8 bit


def test_the_first_frame_waits_for_a_camera_info_that_is_published(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    b = bench()
    b.processor.expects_camera_info = True
    b.processor.put(image(1))
    time.sleep(0.1)
    assert not b.output.frames
    b.processor.camera_info = cdr.write_camera_info((101, 200, 48, 32))
    wait_for(lambda: b.output.stamps == [1], "the frame")
    assert b.output.frames[0].settings.options.roi_offset == (101, 200)
    monkeypatch.setattr("polar_pipeline.live.processor.INFO_TIMEOUT", 0.05)
    silent = bench()
    silent.processor.expects_camera_info = True
    for stamp in (1, 2):
        silent.processor.put(image(stamp))
    wait_for(lambda: silent.output.stamps == [1, 2], "the frames, without a region")
    assert silent.values()["refused: camera_info"] == "1"


def test_time_that_runs_backwards_is_a_restart(bench: Any) -> None:
    b = bench(queue_size=16)
    for stamp in (-10, 20, 20, 10, 11):
        b.processor.put(image(stamp))
    wait_for(lambda: len(b.output.frames) == 5, "every frame")
    assert [frame.is_restart for frame in b.output.frames] == [False, False, False, True, False]
    assert (b.pipelines.resets, b.values()["restarts"]) == (1, "1")


def test_reference_images_of_every_depth() -> None:
    levels = np.arange(256, dtype=np.uint8).reshape(16, 16)
    for encoding, image_of in (
        ("mono8", levels),
        ("16UC1", levels * np.uint16(257)),
        ("32FC1", levels / np.float32(255)),
    ):
        found = decode_reference(bytes(messages.encode_image(0, "", encoding, image_of)), (16, 16))
        np.testing.assert_allclose(found, levels / 255, rtol=1e-6, err_msg=encoding)
    with pytest.raises(FrameError, match="must be mono8, 16UC1 or 32FC1, got '16UC3'"):
        decode_reference(bytes(messages.encode_image(0, "", "16UC3", np.zeros((16, 16, 3), np.uint16))), (16, 16))


def test_a_reference_of_another_size_costs_no_frame(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """However large it is: its pixels are not converted."""
    b = bench(ssim_mode="reference")
    b.output.products = frozenset({"dolp", "ssim"})
    b.processor.reference = bytes(messages.encode_image(0, "", "mono8", np.zeros((17, 24), np.uint8)))
    monkeypatch.setattr(messages, "to_array", Mock(side_effect=MemoryError("out of memory")))
    b.processor.put(image(1))
    wait_for(lambda: b.output.stamps == [1], "the frame")
    assert b.pipelines.asked == [("dolp",)]
    assert b.values()["last error"] == "reference: the reference cannot be used: it must be 24x16, got 24x17"


def test_settings_follow_the_gain_of_frames_but_not_each_change(real: Any) -> None:
    """Each other set of settings needs a pipeline of its own."""
    start = settings(sensor="IMX250MZR")
    processor = real(lambda: start, Output())
    processor.start()
    facts = read_facts(StandIn(Gain=6.0))
    first = processor._settings_in_use(facts, "mono8")
    assert first.options.camera_gain == 6.0
    other = replace(facts, exposure_us=7.0, temperature=50.0, gain_db=6.05)
    assert processor._settings_in_use(other, "mono8") is first
    later = processor._settings_in_use(replace(facts, gain_db=6.12), "mono8")
    assert later.options.camera_gain == 6.12
    assert processor._settings_in_use(facts, "mono8").options.camera_gain == 6.0
