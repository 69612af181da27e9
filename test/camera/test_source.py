"""A camera as a source of frames, without ROS: Aravis, memory, faults and time, with a camera on loopback."""

from __future__ import annotations

import ctypes
import math
import os
import random
import socket
import threading
import time
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

import numpy as np
import pytest
from chunk_camera import ChunkCamera
from fake_camera import SCHEDULED, FakeCamera, loopback_addresses
from support import wait_for

from polar_pipeline._util.machine import SOCKET_BUFFER
from polar_pipeline.camera import aravis
from polar_pipeline.camera import source as source_module
from polar_pipeline.camera.aravis import (
    BUFFERS,
    CameraDevice,
    CameraError,
    FoundCamera,
    answers,
    is_address,
    list_cameras,
    load_aravis,
)
from polar_pipeline.camera.clock import DeviceClock
from polar_pipeline.camera.facts import Number, read_number
from polar_pipeline.camera.settings import KEEP_GAIN, CameraSettings, read_features
from polar_pipeline.camera.source import CameraSource, _encoding, find_camera
from polar_pipeline.quality.statistics import Level
from polar_pipeline.recordings import messages
from polar_pipeline.sensor.encodings import ENCODINGS
from polar_pipeline.sensor.frames import FrameError

HEIGHT, WIDTH = 64, 96
FRAMES = np.random.default_rng(40).integers(0, 256, (5, HEIGHT, WIDTH)).astype(np.uint8)
DEEP = np.random.default_rng(41).integers(0, 4096, (3, HEIGHT, WIDTH)).astype(np.uint16)
#: A camera that sends 100 frames a second of short exposure.
FAST: Dict[str, Any] = {"ExposureTime": 100.0, "AcquisitionFrameRate": 100.0}


class Client:
    """Takes frames, and keeps the newest ones and what is said."""

    def __init__(self) -> None:
        self.frames: List[Any] = []
        self.facts: Any = None
        self.lines: List[str] = []
        self.refused: List[str] = []
        self.refused_causes: List[str] = []
        self.lost = 0
        self.lost_by: Dict[str, int] = {}
        self.errors: Dict[str, Exception] = {}
        self.block: Optional[np.ndarray] = None

    def _raise(self, name: str) -> None:
        if name in self.errors:
            raise self.errors[name]

    def memory(self) -> Optional[np.ndarray]:
        self._raise("memory")
        return self.block

    def take(self, cdr: Any, facts: Any, _: int) -> None:
        self._raise("take")
        self.facts = facts
        self.frames = [*self.frames[-99:], cdr]

    def read(self, cdr: Any) -> Any:
        return messages.to_raw(messages.decode_image(cdr))

    def check(self, _: Any) -> None:
        self._raise("check")

    def dropped(self, cause: str, count: int) -> None:
        self.lost += count
        self.lost_by[cause] = self.lost_by.get(cause, 0) + count

    def refuse(self, cause: str, reason: str) -> None:
        self.refused.append(reason)
        self.refused_causes.append(cause)

    def info(self, text: str) -> None:
        self.lines.append(text)

    warning = info

    def wait(self, count: int = 3) -> List[Any]:
        """Forget what came, wait for so many frames, and return them decoded."""
        self.frames = []
        wait_for(lambda: len(self.frames) >= count, "frames")
        return [messages.decode_image(cdr) for cdr in self.frames]


@pytest.fixture
def camera() -> Iterator[Callable[..., FakeCamera]]:
    with ExitStack() as stack:
        yield lambda frames=FRAMES, **options: stack.enter_context(FakeCamera(frames, **options))


@pytest.fixture
def quick_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """Find the camera by its address, without the second that a search of the network takes."""

    def search() -> List[FoundCamera]:
        if not answers("127.0.0.1"):
            return []
        device = CameraDevice(FoundCamera("127.0.0.1", "", "", "", "127.0.0.1"))
        names = [device.get(f"Device{name}") for name in ("VendorName", "ModelName", "SerialNumber")]
        device.close()
        return [FoundCamera("127.0.0.1", *names, "127.0.0.1")]

    monkeypatch.setattr(source_module, "list_cameras", search)


@pytest.fixture
def connect(camera: Any, quick_search: Any) -> Iterator[Callable[..., Tuple[CameraSource, Client]]]:  # noqa: ARG001
    with ExitStack() as stack:

        def start(client: Optional[Client] = None, **settings: Any) -> Tuple[CameraSource, Client]:
            client = client or Client()
            made = CameraSource(CameraSettings(**{"source": "aravis", **settings}), "camera", client)
            stack.callback(made.close)
            made.start()
            return made, client

        yield start


def check_pixels(image: Any, pictures: np.ndarray) -> int:
    """Which of the pictures an image is, bit by bit."""
    mosaic = messages.to_raw(image).unpack().mosaic
    return next(k for k, picture in enumerate(pictures) if np.array_equal(picture, mosaic))


def apply(made: CameraSource, **changes: Any) -> CameraSettings:
    connection = made.connection
    old = connection.settings if connection else made._settings
    return made.apply(replace(old, **changes), lambda _: None)


# ----------------------------------------------------------------------------------------------------- without a camera


def test_without_aravis_a_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aravis, "_LIBRARY", "libnone.so.0")
    load_aravis.cache_clear()
    try:
        for call in (
            load_aravis,
            list_cameras,
            lambda: CameraDevice(FoundCamera("a", "b", "c", "d", "e")),
            lambda: CameraSource(CameraSettings(source="aravis"), "camera", Client()),
        ):
            with pytest.raises(CameraError) as caught:
                call()
            assert "libnone.so.0" in str(caught.value)
            assert str(caught.value).endswith(": sudo apt install libaravis-0.8-0")
            assert "\n" not in str(caught.value)
    finally:
        load_aravis.cache_clear()


@pytest.mark.camera
def test_an_old_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(aravis._FUNCTIONS, "arv_camera_fly", "vp")
    load_aravis.cache_clear()
    try:
        with pytest.raises(CameraError, match=r"arv_camera_fly.*sudo apt install"):
            load_aravis()
    finally:
        load_aravis.cache_clear()


def scripted(monkeypatch: pytest.MonkeyPatch, **answers: Any) -> CameraDevice:
    """A device for which functions of Aravis return, raise or call the answers, by name without `arv_`; or return 1."""

    def call(name: str, *arguments: Any) -> Any:
        answer = answers.get(name[4:], 1)
        if isinstance(answer, Exception):
            raise answer
        return answer(*arguments) if callable(answer) else answer

    monkeypatch.setattr(aravis, "load_aravis", lambda: SimpleNamespace(call=call))
    # a test beside this one may have a camera at the address
    monkeypatch.setattr(aravis, "_probe", lambda *_: b"")
    return CameraDevice(FoundCamera("id", "", "", "", "127.0.0.1"))


def test_a_number_that_is_a_text_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = {"camera_get_float": CameraError("not a float"), "gc_feature_node_get_value_as_string": "Low"}
    with pytest.raises(CameraError, match="Gain is not a number: 'Low'"):
        scripted(monkeypatch, **answers).number("Gain")


def test_a_step_of_zero_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    assert scripted(monkeypatch, camera_get_integer_increment=0).increment("Width") == 1


@pytest.mark.parametrize(
    ("silent", "read", "unknown"),
    [
        ("camera_is_feature_available", lambda device: device.has("ReverseX"), False),
        ("camera_get_float", lambda device: read_number(device, ("DeviceTemperature",)), None),
        ("device_get_feature", lambda device: read_features(device, CameraSettings(features="Gamma=1")), {}),
    ],
)
def test_a_camera_that_does_not_answer_is_not_one_that_refuses(
    silent: str, read: Callable[[CameraDevice], object], unknown: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = {"gc_feature_node_get_value_as_string": CameraError("timeout"), silent: CameraError("timeout")}
    device = scripted(monkeypatch, **answers)
    monkeypatch.setattr(device, "is_controlled", lambda: False)
    with pytest.raises(CameraError, match="timeout"):
        read(device)
    monkeypatch.setattr(device, "is_controlled", lambda: True)
    assert read(device) == unknown


@pytest.mark.parametrize(
    ("controller", "answer", "expected"), [(2, True, True), (0, True, False), (2, CameraError("access denied"), False)]
)
def test_who_controls_an_open_camera(
    controller: int, answer: Any, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No process after a restart of the camera; perhaps another one, if this process was stopped for a while."""

    def read(*arguments: Any) -> None:
        arguments[-1]._obj.value = controller

    monkeypatch.setattr(aravis, "answers", lambda _: True)
    device = scripted(monkeypatch, device_read_register=read, gv_device_take_control=answer)
    assert device.is_controlled() is expected


@pytest.mark.parametrize(
    ("status", "cause", "reason"),
    [
        (-1, "camera", "status -1"),
        (2, "incomplete", "packets of a frame are missing"),  # timeout
        (3, "incomplete", "packets of a frame are missing"),
        (4, "size", "more or fewer bytes than PayloadSize"),  # wrong packet ID
        (5, "size", "more or fewer bytes than PayloadSize"),
        (6, "camera", "status 6"),  # filling, which no stream gives back
        (8, "type", "something else than images"),
    ],
)
@pytest.mark.parametrize("is_gige", [True, False])
def test_a_frame_that_cannot_be_used_is_counted_by_its_cause(
    status: int, cause: str, reason: str, is_gige: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_module, "load_aravis", lambda: None)
    returned: List[Any] = []
    device = scripted(
        monkeypatch,
        camera_is_gv_device=is_gige,
        buffer_get_status=status,
        buffer_get_frame_id=CameraError("the packet that states it may be missing"),
        stream_push_buffer=lambda _, buffer: returned.append(buffer),
    )
    device.start(lambda size: np.zeros(size, np.uint8))
    returned.clear()
    client = Client()
    made = CameraSource(CameraSettings(source="aravis"), "camera", client)
    assert made._receive(device)
    assert client.refused_causes == [cause]
    assert reason in client.refused[0]
    assert ("net.core.rmem_max" in client.refused[0]) is (cause == "incomplete" and is_gige)
    assert ("usbfs_memory_mb" in client.refused[0]) is (cause == "incomplete" and not is_gige)
    assert made._counts["incomplete"] == (cause == "incomplete")
    assert len(returned) == 1, "Aravis gets the buffer again"


@pytest.mark.parametrize("status", [1, 7])
def test_a_buffer_that_was_given_back_is_not_a_frame(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    device = scripted(monkeypatch, buffer_get_status=status)
    device.start(lambda size: np.zeros(size, np.uint8))
    assert device.pop(0.1) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [("10.0.0.2", True), ("999.1.1.1", False), ("10.0.0", False), ("POL001", False), ("\0", False), ("", False)],
)
def test_addresses(text: str, expected: bool) -> None:
    """The name of a computer would be looked up, which may take long."""
    assert is_address(text) is expected


@pytest.mark.parametrize(
    ("name", "encoding"),
    [
        ("Mono8", "mono8"),
        ("PolarizeMono8", "mono8"),
        ("BayerRG8", "bayer_rggb8"),
        ("BayerBG16", "bayer_bggr16"),
        ("BayerRGPolarized8", "bayer_rggb8"),
        ("Mono16", "mono16"),
        ("Mono12", "Mono12"),
        ("PolarizeMono12p", "PolarizeMono12p"),
        ("BayerRG12Packed", "BayerRG12Packed"),
    ],
)
def test_encodings_of_messages(name: str, encoding: str) -> None:
    assert _encoding(name, ENCODINGS[name]) == encoding
    known, fmt = ENCODINGS[encoding], ENCODINGS[name]
    assert (known.packing, known.channels) == (fmt.packing, fmt.channels)


@pytest.mark.parametrize(
    ("models", "wanted", "expected"),
    [
        (("A1", "PolariCam", "TRI050S-P"), "", "TRI050S-P"),
        (("A1", "Cam-POL"), "", "Cam-POL"),
        (("A1", "POLICE"), "", None),
        (("A1", "B2"), "S1", "B2"),
        (("A1", "B2"), "10.0.0.1", "B2"),
        (("A1", "B2"), "id1", "B2"),
        (("A1",), "S7", None),
        (("A1",), "10.9.9.9", ""),  # in another network, where it answers
    ],
)
def test_which_camera_is_found(
    models: Tuple[str, ...], wanted: str, expected: Optional[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [FoundCamera(f"id{k}", "maker", model, f"S{k}", f"10.0.0.{k}") for k, model in enumerate(models)]
    monkeypatch.setattr(source_module, "list_cameras", lambda: rows)
    monkeypatch.setattr(source_module, "answers", lambda _: True)
    if expected is None:
        with pytest.raises(CameraError, match=r"is not found; cameras here: maker A1 S0 at 10\.0\.0\.0"):
            find_camera(wanted)
    else:
        assert find_camera(wanted).model == expected


@pytest.mark.camera
def test_missing_frames_are_counted_over_the_wrap_of_their_numbers() -> None:
    client = Client()
    made = CameraSource(CameraSettings(source="aravis"), "camera", client)
    for numbers, missed in (
        ((1, 2, 3), 0),
        ((1, 5), 3),
        ((65533, 65534, 65535, 1, 2), 0),
        ((65534, 3), 3),
        ((70000, 70001, 70003), 1),
        ((7, 7, 6), 0),
        ((5, 9000), 0),  # numbers of another acquisition
        ((1, None, 3), 0),  # no number: it could not be used
        ((1, None, None, 6), 2),
        ((65535, None, 2), 0),
        ((None, None, 5, 6), 0),
    ):
        made._number, made._unusable, client.lost = None, 0, 0
        for number in numbers:
            if number is None:
                made._unusable += 1
            else:
                made._count_missed(number)
        assert client.lost == missed, numbers


def test_requests_before_and_after_the_thread_are_refused_soon(connect: Any) -> None:
    idle = CameraSource(CameraSettings(source="aravis:NONE"), "camera", Client())
    for call in (lambda: idle.trigger().result(), lambda: apply(idle, gain_db=1.0)):
        with pytest.raises(CameraError, match="the camera is closed"):
            call()
    idle.close()
    idle.close()
    idle.start()  # ends at once
    assert idle.connection is None
    made, client = connect(source="aravis:NONE")
    level, text, _ = made.status()
    assert level == Level.ERROR
    assert text.startswith("NONE is not found; cameras here: ")  # perhaps that of another process's tests
    assert any("NONE is not found" in line for line in client.lines)
    assert apply(made, gain_db=3.0).gain_db == 3.0  # kept until it is there
    with pytest.raises(CameraError, match="NONE is not found"):
        made.trigger().result()
    made.close()
    with pytest.raises(CameraError, match="the camera is closed"):
        made.trigger().result()
    made.close()


@pytest.mark.camera
def test_what_was_reported_as_late_does_not_happen_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_module, "_REQUEST_TIMEOUT", 0.3)
    made = CameraSource(CameraSettings(source="aravis:NONE"), "camera", Client())
    free, busy = threading.Event(), threading.Event()
    monkeypatch.setattr(made, "_find", lambda: busy.set() or (free.wait(20) and None))
    made.start()
    assert busy.wait(20)
    with pytest.raises(CameraError, match=r"the camera did not answer within 0.3 s"):
        apply(made, gain_db=5.0)
    free.set()
    monkeypatch.setattr(source_module, "_REQUEST_TIMEOUT", 20.0)
    assert apply(made, exposure_us=77.0).exposure_us == 77.0
    assert made._settings.gain_db == KEEP_GAIN
    made.close()


@pytest.mark.camera
def test_cameras_are_searched_once_for_threads_that_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    searches, begun = [], threading.Event()

    def call(name: str, *_: Any) -> Any:
        if name == "arv_update_device_list":
            searches.append(name)
            begun.set()
            time.sleep(0.3)
        return 0

    monkeypatch.setattr(aravis, "load_aravis", lambda: SimpleNamespace(call=call))
    threads = [threading.Thread(target=list_cameras) for _ in range(10)]
    threads[0].start()
    assert begun.wait(20)
    for thread in threads[1:]:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(searches) == 2
    list_cameras()
    assert len(searches) == 3


# --------------------------------------------------------------------------------------------------------------- memory


class Living:
    """Counts of Aravis's objects that exist, by the function that makes them."""

    MAKERS = ("arv_camera_new", "arv_camera_create_stream", "arv_buffer_new")

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.counts = dict.fromkeys(self.MAKERS, 0)
        self.made = dict.fromkeys(self.MAKERS, 0)
        notify = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
        watch = ctypes.CDLL("libgobject-2.0.so.0").g_object_weak_ref
        watch.argtypes, watch.restype = (ctypes.c_void_p, notify, ctypes.c_void_p), None
        self._ends = [notify(lambda _, __, name=name: self._add(name, -1)) for name in self.MAKERS]
        self._lock = threading.Lock()
        library = load_aravis()
        original = library.call

        def call(name: str, *arguments: Any) -> Any:
            result = original(name, *arguments)
            if name in self.MAKERS and result:
                self._add(name, 1)
                watch(result, self._ends[self.MAKERS.index(name)], None)
            return result

        monkeypatch.setattr(library, "call", call)

    def _add(self, name: str, step: int) -> None:
        with self._lock:
            self.counts[name] += step
            self.made[name] += step > 0


def resident() -> int:
    """Bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[1]) * os.sysconf("SC_PAGESIZE")


def used() -> Tuple[int, int]:
    """Threads and open files of this process."""
    threads, files = (len(list(Path("/proc/self", name).iterdir())) for name in ("task", "fd"))
    return threads, files


def next_complete(device: CameraDevice, patience: float = 20.0) -> Any:
    """The next frame of which no packet is missing: a busy machine loses some, for as long as it is busy."""
    end = time.monotonic() + patience
    while time.monotonic() < end:
        with suppress(FrameError):
            return device.pop(patience)
    return None


def test_nothing_of_aravis_is_left_behind(camera: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    camera(features={"AcquisitionFrameRate": 50.0})  # on a busy machine, faster frames come with packets missing
    living = Living(monkeypatch)
    (found,) = list_cameras()
    memory: List[int] = []
    for cycle in range(20):
        device = CameraDevice(found)
        for _ in range(2):
            device.start(lambda size: np.empty(size, np.uint8))
            assert next_complete(device) is not None
            assert living.counts == dict(zip(Living.MAKERS, (1, 1, BUFFERS)))
            device.stop()
            assert living.counts == dict(zip(Living.MAKERS, (1, 0, 0)))
        device.close()
        device.close()
        assert living.counts == dict.fromkeys(Living.MAKERS, 0)
        if cycle == 10:
            before = used()
            memory.append(resident())
    assert used() == before
    assert resident() - memory[0] < 8 << 20
    assert living.made["arv_camera_create_stream"] == 40


def test_packets_of_other_programs_do_not_end_the_wait_for_a_frame(camera: Any) -> None:
    # as root, Aravis gets some of them at the start of a stream, before its filter is set
    camera(features={"AcquisitionFrameRate": 50.0})
    device, is_over = CameraDevice(list_cameras()[0]), threading.Event()

    def send() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other, suppress(OSError):
            while not is_over.wait(1e-4):
                other.sendto(bytes(100), ("127.0.0.1", 9))

    sender = threading.Thread(target=send)
    sender.start()
    try:
        for _ in range(30):
            device.start(lambda size: np.empty(size, np.uint8))
            assert next_complete(device) is not None
            device.stop()
    finally:
        is_over.set()
        sender.join()
        device.close()


def test_a_stream_ends_although_the_camera_does_not_answer(camera: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    camera()
    living = Living(monkeypatch)
    library = load_aravis()
    watched = library.call

    def call(name: str, *arguments: Any) -> Any:
        if name == "arv_camera_stop_acquisition":
            raise CameraError("timeout")
        return watched(name, *arguments)

    monkeypatch.setattr(library, "call", call)
    device = CameraDevice(list_cameras()[0])
    device.start(lambda size: np.empty(size, np.uint8))
    with pytest.raises(CameraError, match="timeout"):
        device.stop()
    assert living.counts == dict(zip(Living.MAKERS, (1, 0, 0)))
    device.start(lambda size: np.empty(size, np.uint8))
    device.close()
    assert living.counts == dict.fromkeys(Living.MAKERS, 0)


def test_memory_is_flat_over_thousands_of_frames(camera: Any, connect: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    picture = np.random.default_rng(1).integers(0, 256, (256, 256)).astype(np.uint8)
    camera(picture, features={"AcquisitionFrameRate": 200.0, "ExposureTime": 100.0})
    living = Living(monkeypatch)
    made, _ = connect()
    wait_for(lambda: made._counts["frames"] > 200, "frames")
    before, threads = resident(), used()
    wait_for(lambda: made._counts["frames"] > 1000, "frames")
    assert resident() - before < 8 << 20  # 52 MB came
    assert used() == threads
    assert 19 + BUFFERS <= living.counts["arv_buffer_new"] <= 20 + BUFFERS  # those of 0.1 s, and more
    assert living.made["arv_buffer_new"] > 1000


def test_aravis_never_writes_into_memory_that_was_handed_over(camera: Any) -> None:
    fake = camera(features={"AcquisitionFrameRate": 200.0})
    (found,) = list_cameras()
    given: List[np.ndarray] = []

    def memory(size: int) -> np.ndarray:
        given.append(np.full(size + 3, 0x5A, np.uint8))
        return given[-1]

    handed: List[np.ndarray] = []
    for end in ("stop", "stop", "close", "restart"):
        device = CameraDevice(found)
        device.start(memory, headroom=3)
        while len(handed) % 50 != 49:
            frame = device.pop(20.0)
            assert frame is not None
            assert frame.size == (WIDTH, HEIGHT)
            np.testing.assert_array_equal(frame.memory[3:], FRAMES[frame.number % 5].ravel())
            assert set(frame.memory[:3]) == {0x5A}
            frame.memory[:] = 0xA5
            handed.append(frame.memory)
        handed.append(np.full(1, 0xA5, np.uint8))
        if end == "restart":
            fake.kill()
            fake.start()
        device.close() if end == "close" else device.stop()
        for block in given:  # Aravis has no memory of ours any more
            block[:] = 0xA5
        time.sleep(0.1)
        assert all((block == 0xA5).all() for block in given)
        device.close()
    assert all((block == 0xA5).all() for block in handed)


def test_what_the_camera_refuses_is_raised(camera: Any, connect: Any) -> None:
    camera(features={"ExposureTime": 100.0})
    device = CameraDevice(list_cameras()[0])
    calls: Any = (device.get, device.number, device.is_on, device.execute, device.bounds, device.increment)
    for call in (*calls, device.choices, lambda name: device.set(name, 1), lambda _: device.set_trigger("Nonsense")):
        with pytest.raises(CameraError, match=r"Nonsense|not found"):
            call("Nonsense")
    for name, value in (("Width", "wide"), ("ExposureAuto", "Sometimes"), ("Width", "\udcff"), ("TriggerSoftware", 1)):
        with pytest.raises(CameraError, match=f"{name} cannot be"):
            device.set(name, value)
    assert (device.bounds("Gain"), device.bounds("BinningVertical")) == ((0.0, 48.0), (1.0, 2.0))
    assert not device.has("Nonsense")
    device.close()
    with pytest.raises(CameraError, match=r"camera.gain_db of this camera must be in \[0, 48\], got 70"):
        connect(gain_db=70.0)


def test_the_socket_has_the_largest_buffer(camera: Any) -> None:
    camera()
    device = CameraDevice(list_cameras()[0])
    device.start(lambda size: np.empty(size, np.uint8))
    assert device.pop(20.0) is not None
    sizes = set()
    for path in Path("/proc/self/fd").iterdir():
        if path.is_socket():
            with socket.socket(fileno=os.dup(int(path.name))) as one:
                sizes.add(one.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF))
    device.close()
    allowed = int(Path("/proc/sys/net/core/rmem_max").read_text(encoding="utf-8"))
    assert 2 * min(allowed, SOCKET_BUFFER) in sizes  # the kernel doubles it


def test_frames_land_in_the_memory_of_the_client(camera: Any, connect: Any) -> None:
    camera()
    client = Client()
    client.block = np.zeros(200, np.uint8)  # too small
    made, _ = connect(client)
    client.wait()
    assert not client.block.any()
    blocks = [np.zeros(100_000, np.uint8) for _ in range(64)]
    client.memory = iter(blocks).__next__  # type: ignore[method-assign]
    apply(made, pixel_format="Mono8")
    client.wait()
    assert any(np.shares_memory(np.asarray(client.frames[-1]), block) for block in blocks)


# --------------------------------------------------------------------------------------------------------------- frames


@pytest.mark.parametrize(
    ("pixel_format", "width", "encoding"),
    [("12p", WIDTH, "PolarizeMono12p"), ("Mono12Packed", 34, "Mono12Packed"), ("Mono10p", 36, "Mono10p")],
)
def test_packed_frames(camera: Any, connect: Any, pixel_format: str, width: int, encoding: str) -> None:
    camera(DEEP, features={"Width": width})
    made, client = connect(pixel_format=pixel_format)
    (image, *_) = client.wait()
    assert (image.encoding, image.width, image.height) == (encoding, width, HEIGHT)
    check_pixels(image, DEEP[:, :, :width] >> (2 if pixel_format == "Mono10p" else 0))
    for odd in ("Mono12p", "Mono12Packed", "Mono10p") if width == WIDTH else ():
        apply(made, pixel_format=odd, features="Width=33")
        client.refused, client.frames = [], []
        wait_for(lambda: client.refused, "a refusal")
        assert f"rows of 33 pixels of {odd} do not end at whole bytes: set camera.roi" in client.refused[-1]
        assert not client.frames
        apply(made, features="Width=32")
        client.wait()


def test_a_camera_that_changes_its_pixel_format_by_itself_is_set_up_again(camera: Any, connect: Any) -> None:
    """Smaller frames are complete frames to Aravis, and 12Packed has as many bytes as 12p."""
    fake = camera(DEEP, features=FAST)
    made, client = connect(pixel_format="12p")
    client.wait()
    for count, name in enumerate(("PolarizeMono8", "Mono12Packed"), 2):
        client.frames = []
        fake.set("PixelFormat", name)
        wait_for(lambda count=count: made._counts["connections"] == count, "another connection")
        client.wait()
        assert any("frames have another pixel format than PolarizeMono12p" in line for line in client.lines)
        for cdr in client.frames:
            check_pixels(messages.decode_image(cdr), DEEP)
        assert fake.get("PixelFormat") == "PolarizeMono12p"


def test_a_camera_that_another_program_has_binned_gets_its_region_again(camera: Any, connect: Any) -> None:
    """Binned pictures are smaller than the region."""
    fake = camera(features=FAST)
    made, client = connect()
    client.wait()
    fake.set("BinningHorizontal", 2)
    fake.set("Width", WIDTH // 2)
    wait_for(lambda: made._counts["connections"] == 2, "another connection")
    assert {image.width for image in client.wait()} == {WIDTH}
    assert fake.get("BinningHorizontal") == 1


def test_a_color_camera(camera: Any, connect: Any) -> None:
    camera(model="TRI050S-Q", serial="COL1")
    made, client = connect(source="aravis:COL1")
    (image, *_) = client.wait()
    assert image.encoding == "bayer_rggb8"
    check_pixels(image, FRAMES)
    assert client.facts.options() == {"sensor": "IMX250MYR", "roi_offset": (0, 0), "flip": (False, False)}
    assert made.status()[0] == Level.OK


def test_a_camera_that_lacks_features(camera: Any, connect: Any) -> None:
    without = (
        *("ReverseX", "ReverseY", "Gain", "GainAuto", "ExposureTime", "ExposureAuto", "PtpEnable", "PtpStatus"),
        *("BinningHorizontal", "BinningVertical", "TriggerMode", "TriggerSelector", "TriggerSource", "TriggerSoftware"),
        *("DeviceTemperature", "AcquisitionFrameRate", "AcquisitionFrameRateEnable", "Gamma"),
    )
    camera(model="Unknown", without=without, features={"GevTimestampTickFrequency": 0})
    made, client = connect(source="aravis:POL001")
    client.wait()
    facts = client.facts
    assert (facts.sensor, facts.gain_db, facts.exposure_us, facts.temperature) == ("", None, 0.0, None)
    assert made.connection is not None
    assert made.connection.ranges == {}
    level, text, values = made.status()
    assert (level, text, values["sensor"], values["ptp"]) == (Level.OK, "Unknown POL001 at 127.0.0.1", "unknown", "off")
    for changes, words in (
        ({"trigger": "software"}, "Trigger"),
        ({"packet_delay_ns": 100}, "timestamp tick frequency"),
    ):
        with pytest.raises(CameraError, match=words):
            apply(made, **changes)
    with pytest.raises(CameraError, match=r"camera.trigger is free, not software"):
        made.trigger().result()
    client.wait()


def test_lost_packets(camera: Any, connect: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = camera(features=FAST)
    living = Living(monkeypatch)
    made, client = connect(packet_size=600)
    fake.lose(0.1)  # of 13 packets a frame; what is sent again may be lost too
    wait_for(lambda: made._counts["incomplete"] > 3 and len(client.frames) > 20, "incomplete frames")
    fake.lose(0.0)
    client.wait()
    assert sum(made._counts[name] for name in ("frames", "incomplete", "missed")) <= fake.sent()
    assert client.refused_causes.count("incomplete") == made._counts["incomplete"]
    assert "packets of a frame are missing" in client.refused[-1]
    assert "net.core.rmem_max" in client.refused[-1]
    for cdr in client.frames:
        check_pixels(messages.decode_image(cdr), FRAMES)
    assert 9 + BUFFERS <= living.counts["arv_buffer_new"] <= 10 + BUFFERS


# ------------------------------------------------------------------------------------------------------------- changes


def test_changes_are_all_or_none(camera: Any, connect: Any) -> None:
    fake = camera(features=FAST, offset_increment=4)
    made, client = connect()
    client.wait()
    state = apply(made, gain_db=6.0, roi=(7, 5, 66, 32), features="BlackLevel=4")
    assert (state.gain_db, state.roi, fake.get("BlackLevel")) == (6.0, (4, 4, 68, 32), 4.0)
    assert made.connection is not None
    assert made.connection.settings == state
    for changes, words in (
        ({"gain_db": 70.0, "exposure_us": 300.0}, "camera.gain_db of this camera"),
        ({"features": "BlackLevel=9, Gamma=1.5, ExposureAuto=Sometimes", "gain_db": 1.0}, "ExposureAuto"),
        ({"features": "BlackLevel=9, Nonsense=1"}, "no feature 'Nonsense'"),
        ({"pixel_format": "14p", "trigger": "software"}, "camera.pixel_format '14p'"),
        ({"roi": (0, 0, 200, 32), "pixel_format": "12p"}, "camera.roi must lie within 96x64"),
        ({"features": "BinningHorizontal=2"}, "BinningHorizontal is 2"),
    ):
        with pytest.raises(CameraError, match=words):
            apply(made, **changes)
        assert made.connection.settings == state, changes
        assert [fake.get(name) for name in ("BlackLevel", "Gamma", "BinningHorizontal")] == [4.0, 1.0, 1]
        assert (fake.get("Gain"), fake.get("ExposureTime"), fake.get("TriggerMode")) == (6.0, 100.0, "Off")
        assert {image.width for image in client.wait()} == {68}

    def contradicts(_: Any) -> None:
        raise ValueError("sensor is another")

    with pytest.raises(ValueError, match="sensor is another"):
        made.apply(replace(state, gain_db=2.0, roi=(0, 0, 96, 64)), contradicts)
    assert (made.connection.settings, fake.get("Gain")) == (state, 6.0)
    client.wait()
    assert made._counts["connections"] == 1


def test_each_software_trigger_starts_a_frame(camera: Any, connect: Any) -> None:
    fake = camera()
    made, client = connect(trigger="software")
    for count in (1, 2):
        time.sleep(0.2)
        assert (fake.sent(), len(client.frames)) == (count - 1, count - 1)
        made.trigger().result()
        wait_for(lambda number=count: len(client.frames) == number, "a frame")


def test_a_stream_that_cannot_start_again_is_set_up_anew(camera: Any, connect: Any) -> None:
    fake = camera(features=FAST)
    made, client = connect()
    client.wait()
    assert made.connection is not None
    new = replace(made.connection.settings, pixel_format="12p")
    with pytest.raises(MemoryError):  # while no frames come
        made.apply(new, lambda _: client.errors.update(memory=MemoryError("no memory")))
    wait_for(lambda: made.connection is None, "the loss of the camera")
    wait_for(lambda: made.status()[1] == "MemoryError: no memory", "the reason")
    client.errors.clear()
    assert client.wait()[-1].encoding == "mono8"  # as before
    assert fake.get("PixelFormat") == "PolarizeMono8"
    assert made.status()[0] == Level.OK


def test_a_camera_that_goes_in_the_middle_of_a_change(camera: Any, connect: Any) -> None:
    fake = camera(features=FAST)
    made, client = connect(gain_db=2.0)
    client.wait()
    assert made.connection is not None
    new = replace(made.connection.settings, roi=(0, 0, 64, 32), gain_db=4.0)
    with pytest.raises(CameraError):
        made.apply(new, lambda _: fake.kill())
    wait_for(lambda: made.connection is None, "the loss of the camera")
    fake.start()
    assert client.wait()[-1].width == WIDTH
    assert fake.get("Gain") == 2.0
    made.close()  # releases it
    assert answers("127.0.0.1")
    (found,) = list_cameras()
    device = CameraDevice(found)
    assert device.is_controller()
    device.close()


def test_a_change_of_a_camera_that_has_gone_is_refused_soon(
    camera: Any, connect: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_module, "_QUIET", math.inf)  # the change finds it out
    fake = camera()
    made, _ = connect()
    fake.kill()
    began = time.monotonic()
    with pytest.raises(CameraError, match="has gone"):
        apply(made, features="BlackLevel=4, Gamma=1, ExposureAuto=Off")
    assert time.monotonic() - began < 2


def test_an_error_of_the_client_does_not_end_the_thread(camera: Any, connect: Any) -> None:
    camera(features=FAST)
    client = Client()
    client.errors["check"] = ValueError("sensor is another")
    with pytest.raises(ValueError, match="sensor is another"):
        connect(client)
    made, client = connect()
    for name in ("take", "memory"):
        client.wait()
        connections = made._counts["connections"]
        client.errors[name] = KeyError(name)
        wait_for(lambda count=connections: made._counts["connections"] > count or made.connection is None, "the loss")
        wait_for(lambda said=name: any(f"KeyError: '{said}'" in line for line in client.lines), "the reason")
        client.errors.clear()
    client.wait()


def test_a_camera_that_fails_after_its_stream_has_started_is_released(
    camera: Any, connect: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    camera(features=FAST)
    client, errors = Client(), [CameraError("PtpDataSetLatch cannot be executed")]

    def read_ptp(_: CameraDevice) -> str:
        if errors:
            raise errors.pop()
        return ""

    monkeypatch.setattr(source_module, "read_ptp", read_ptp)
    with pytest.raises(CameraError, match="PtpDataSetLatch"):
        connect(client)
    client.wait()
    assert not any("another process controls" in line for line in client.lines)


def test_a_search_names_another_camera_at_the_address(camera: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """With Aravis's own search, whose names of cameras contain their serial numbers."""
    monkeypatch.setattr(source_module, "_SEARCH_PERIOD", 0.2)
    monkeypatch.setattr(source_module, "_BACKOFF", (0.2, 1.0))
    client, fake = Client(), camera()
    made = CameraSource(CameraSettings(source="aravis:POL001"), "camera", client)
    with closing(made):
        made.start()
        client.wait()
        fake.kill()
        fake._settings["serial"] = "POL002"
        fake.start()
        words = "POL001 is not found; cameras here: LUCID Vision Labs TRI050S-P POL002 at 127.0.0.1"
        wait_for(lambda: words in made.problem, "a reason")
        assert (
            client.lines.count("camera: LUCID Vision Labs TRI050S-P POL001 at 127.0.0.1 is another camera now, POL002")
            == 1
        )
        assert not any("not found" in line and "cameras here" not in line for line in client.lines)


def test_another_camera_at_the_same_address(camera: Any, connect: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not replace the camera, also where that was the first one on the network."""
    monkeypatch.setattr(source_module, "_SEARCH_PERIOD", 0.2)
    monkeypatch.setattr(source_module, "_BACKOFF", (0.2, 1.0))
    fake = camera()
    made, client = connect()
    client.wait()
    fake.kill()
    fake._settings["serial"] = "POL002"
    fake.start()
    wait_for(
        lambda: "POL001 is not found; cameras here: LUCID Vision Labs TRI050S-P POL002" in made.problem, "a reason"
    )
    assert any("POL001 at 127.0.0.1 is another camera now, POL002" in line for line in client.lines)
    fake.kill()
    fake._settings["serial"] = "POL001"
    fake.start()
    client.wait()


def test_it_closes_at_any_moment(camera: Any) -> None:
    camera(features=FAST)
    chance = random.Random(3)
    for _ in range(3):
        made = CameraSource(CameraSettings(source="aravis"), "camera", Client())
        starter = threading.Thread(target=made.start)
        starter.start()
        time.sleep(chance.uniform(0.0, 1.6))
        made.close()
        starter.join(20)
        assert not starter.is_alive()
        assert not made._thread.is_alive()
    device = CameraDevice(list_cameras()[0])
    assert device.is_controller()
    device.close()


def test_a_camera_that_changes_its_region_by_itself_is_set_up_again(camera: Any, connect: Any) -> None:
    fake = camera()
    made, client = connect()
    client.wait()
    height = int(fake.get("Height"))
    fake.set("Height", height // 2)
    wait_for(lambda: made._counts["connections"] == 2, "a second connection")
    client.frames.clear()
    for image in client.wait():
        check_pixels(image, FRAMES)
    assert fake.get("Height") == height
    assert any(f"x{height // 2} pixels, " in line for line in client.lines)


def test_ten_cameras_in_a_process(camera: Any) -> None:
    with loopback_addresses(10) as addresses:
        pictures = np.random.default_rng(2).integers(0, 256, (10, HEIGHT, WIDTH)).astype(np.uint8)
        for k, address in enumerate(addresses):
            camera(pictures[k], address=address, serial=f"TEN{k}")
        clients = [Client() for _ in addresses]
        made: List[CameraSource] = []
        for k, client in enumerate(clients):
            made.append(CameraSource(CameraSettings(source=f"aravis:TEN{k}"), "camera", client))
        threads = [threading.Thread(target=one.start) for one in made]
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            for k, client in enumerate(clients):
                for image in client.wait():
                    assert check_pixels(image, pictures) == k
        finally:
            for one in made:
                one.close()


# ---------------------------------------------------------------------------------------------------------------- time


class Stamps:
    """Times by the device of frames, when they arrived, and their stamps."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rows: List[Tuple[int, int, int]] = []
        original = CameraSource._stamp

        def stamp(made: CameraSource, frame: Any, exposure_us: float) -> int:
            result = original(made, frame, exposure_us)
            self.rows.append((frame.device_ns, frame.arrival_ns, result))
            return result

        monkeypatch.setattr(CameraSource, "_stamp", stamp)
        # root's packets come from a ring of the interface, which hands them over every 5 ms
        library = load_aravis()
        call, disable = library.call, ctypes.CDLL(aravis._LIBRARY).arv_camera_gv_set_stream_options
        disable.argtypes, disable.restype = (ctypes.c_void_p, ctypes.c_int), None

        def call_and_disable(name: str, *arguments: Any) -> Any:
            if name == "arv_camera_create_stream":
                disable(arguments[0], 1)
            return call(name, *arguments)

        monkeypatch.setattr(library, "call", call_and_disable)


def test_stamps_with_drift_jitter_and_steps(camera: Any, connect: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stamps are the camera's times of the frames: 5 ms of jitter do not reach them, nor do 100 ppm of drift."""
    fake = camera(features={"AcquisitionFrameRate": 100.0, "ExposureTime": 2000.0})
    stamps = Stamps(monkeypatch)
    fake.clock(1000.0, 100.0)
    began = time.time_ns()
    fake.jitter(0.005)
    made, _ = connect(stamp="start")

    def errors(offset_s: float, drift: float, start: int, first: int) -> np.ndarray:
        """Seconds by which stamps and arrivals are after the times of the frames, (N, 2)."""
        rows = [
            ((device - int(offset_s * 1e9) - start) / (1 + drift * 1e-6) + start, arrival, stamp)
            for device, arrival, stamp in stamps.rows[first:]
        ]
        return np.array([[stamp + 2_000_000 - true, arrival - true] for true, arrival, stamp in rows]) / 1e9

    wait_for(lambda: len(stamps.rows) > 600, "frames")
    late = errors(1000.0, 100.0, began, 100)
    assert np.ptp(np.percentile(late[:, 1], (5, 95))) > 0.003  # arrivals have jitter
    assert -0.0001 < late[:, 0].min() <= late[:, 0].max() < 0.002  # stamps have not
    for offset in (1007.0, 3.0):
        fake.clock(offset, 0.0)
        step = time.time_ns()
        jumps, count = made._clock.jumps, len(stamps.rows)
        wait_for(lambda number=jumps: made._clock.jumps > number, "the jump")
        wait_for(lambda number=count: len(stamps.rows) > number + 60, "frames")
        after = errors(offset, 0.0, step, count + 20)
        assert np.abs(after[:, 0]).max() < 0.007
        assert all(
            later[2] > earlier[2] for earlier, later in zip(stamps.rows[count + 20 :], stamps.rows[count + 21 :])
        )
    assert made.status()[2]["clock jumps"] == str(made._clock.jumps)
    apply(made, stamp="middle")
    count = len(stamps.rows)
    wait_for(lambda: len(stamps.rows) > count + 10, "frames")
    middle = errors(3.0, 0.0, step, count + 5)
    assert 0.0005 < np.median(middle[:, 0]) - np.median(after[:, 0]) < 0.0015


def test_the_time_of_ptp_is_taken_as_it_is(camera: Any, connect: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = camera(features={**FAST, "PtpStatus": "Slave"})
    stamps = Stamps(monkeypatch)
    fake.clock(37.05)  # TAI, and 50 ms that are not explained by the network
    made, client = connect(ptp=True, stamp="start")
    client.wait()
    assert made.status()[2]["ptp"] == "Slave"
    assert {stamp - device for device, _, stamp in stamps.rows} == {-37_000_000_000}
    fake.clock(0.05)  # UTC
    count = len(stamps.rows) + 5
    wait_for(lambda: len(stamps.rows) > count + 20, "frames")
    assert {stamp - device for device, _, stamp in stamps.rows[count:]} == {0}
    fake.clock(500.0)  # the network has another time
    count = len(stamps.rows) + 5
    wait_for(lambda: len(stamps.rows) > count + 20, "frames")
    assert all(abs(arrival - stamp) < 300_000_000 for _, arrival, stamp in stamps.rows[count:])
    fake.clock(0.0)
    fake.set("PtpStatus", "Listening")
    wait_for(lambda: made.status()[2]["ptp"] == "Listening", "the state of PTP")
    count = len(stamps.rows) + 5
    wait_for(lambda: len(stamps.rows) > count + 20, "frames")
    assert 0 not in {stamp - device for device, _, stamp in stamps.rows[count:]}  # by the model


@pytest.mark.camera
def test_a_camera_follows_another_one_within_its_ranges(
    camera: Any, connect: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = camera(features={**FAST, "PtpStatus": "Slave"}, changes=SCHEDULED)
    made, client = connect(exposure_us=5000.0, exposure_auto="off")
    client.wait()

    def follow(**values: Any) -> Tuple[float, float, float, float]:
        made.follow(values).result(timeout=10)
        settings = made.connection.settings
        return settings.exposure_us, settings.gain_db, fake.get("ExposureTime"), fake.get("Gain")

    assert follow(exposure_us=7000.0, gain_db=6.0) == (7000.0, 6.0, 7000.0, 6.0)
    assert follow(exposure_us=8000.0) == (8000.0, 6.0, 8000.0, 6.0), "the gain stays"
    assert follow(exposure_us=1.0, gain_db=99.0) == (30.0, 48.0, 30.0, 48.0), "the camera's limits"
    assert follow(exposure_us=1234.7, gain_db=3.04) == (1235.0, 3.0, 1235.0, 3.0), "as the camera rounds"
    wait_for(lambda: client.facts.exposure_us == 1235.0, "the exposure of frames")
    follow(trigger="scheduled", ptp=True, frame_rate=25.0)
    assert (fake.get("AcquisitionStartMode"), fake.get("PTPSyncFrameRate"), fake.get("PtpEnable")) == (
        "PTPSync",
        25.0,
        True,
    )
    client.wait()
    changes, change = [], made._change
    monkeypatch.setattr(made, "_change", lambda *arguments: changes.append(arguments) or change(*arguments))
    for count in (1, 2, 2, 2):  # rounded numbers differ from those before, once
        follow(exposure_us=1500.4)
        assert len(changes) == count
    apply(made, exposure_auto="camera")
    with pytest.raises(CameraError, match=r"while camera.exposure_auto is camera"):
        follow(exposure_us=2000.0)
    with pytest.raises(CameraError, match=r"camera.trigger 'Line7'"):
        follow(exposure_us=2000.0, exposure_auto="off", trigger="Line7")
    follow(exposure_us=2000.0, exposure_auto="off", trigger="Line7")  # it was refused before
    assert (made.connection.settings.trigger, fake.get("ExposureAuto")) == ("scheduled", "Continuous"), "all or none"
    fake.kill()
    wait_for(lambda: made.connection is None, "its end")
    made.follow({"exposure_us": 2000.0}).result(timeout=10)
    assert made._settings.exposure_us != 2000.0


@pytest.mark.camera
def test_late_frames_have_the_time_of_ptp() -> None:
    made = CameraSource(CameraSettings(source="aravis", stamp="start"), "camera", Client())
    made._ptp, made._clock = "Slave", DeviceClock()
    now = 1_700_000_000 * 10**9
    for k in range(100):
        device = now + k * 40_000_000
        late = 900_000_000 if k % 10 == 9 else 1_000_000
        frame: Any = SimpleNamespace(device_ns=device, arrival_ns=device + late)
        assert made._stamp(frame, 0.0) == device


# ---------------------------------------------------------------------------------------------------------- each frame


@pytest.mark.camera
@pytest.mark.parametrize("payload", [0x4001, 4], ids=["image with chunks", "chunks"])
def test_each_frame_states_its_exposure(payload: int, quick_search: Any, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: ARG001
    """Every frame has another exposure, which no reading of a register could follow; its number has 17 bits."""
    stamps = Stamps(monkeypatch)
    with ChunkCamera(FRAMES[0], payload=payload, steps=range(500, 15000, 500)) as fake:
        client = Client()
        rows: List[Tuple[int, float, float]] = []
        original = client.take

        def take(cdr: Any, facts: Any, arrival_ns: int) -> None:
            original(cdr, facts, arrival_ns)
            rows.append((made._number or 0, facts.exposure_us, facts.gain_db))

        client.take = take  # type: ignore[method-assign]
        made = CameraSource(CameraSettings(source="aravis", stamp="start", packet_size=1500), "camera", client)
        try:
            made.start()
            fake.set("Gain", 12.5)
            wait_for(lambda: len(rows) >= 90, "frames")
        finally:
            made.close()
        assert [exposure for _, exposure, _ in rows] == [fake.sent[number].exposure_us for number, _, _ in rows]
        assert rows[-1][2] == 12.5
        late = [stamp - fake.sent[number].start_ns for (number, _, _), (_, _, stamp) in zip(rows, stamps.rows)]
        assert 0 < min(late[30:]) <= max(late[30:]) < 10_000_000  # by the exposures of other frames: up to 14 ms off
        assert check_pixels(messages.decode_image(client.frames[-1]), FRAMES) == 0
        assert fake.get("ChunkModeActive")


@pytest.mark.parametrize("step", [20_000, 500_000])
@pytest.mark.parametrize("lead", [0, 1, 2])
def test_an_exposure_that_is_read_early_or_late_does_not_spoil_the_clock(
    step: int, lead: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The register is read after a frame has come, and has the exposure of that frame or of one that follows."""
    monkeypatch.setattr(source_module, "load_aravis", lambda: None)  # no camera is asked
    made = CameraSource(CameraSettings(source="aravis", stamp="start"), "camera", Client())
    made._reads_exposure = True
    chance, device = random.Random(8), 0
    exposures = [1000.0 + (step if k // 7 % 2 else 0) for k in range(400 + lead)]  # microseconds
    errors = []
    made._note_exposure(exposures[lead])
    for exposure, leading in zip(exposures, exposures[lead:]):
        device += 42_000_000 + int(1000 * max(exposure - 40_000, 0.0))
        arrival = 10**18 + device + int(1000 * exposure) + chance.randrange(500_000)
        frame: Any = SimpleNamespace(device_ns=device, arrival_ns=arrival)
        errors.append((made._stamp(frame, made._readings[1][-1]) - 10**18 - device) / 1e6)
        made._note_exposure(leading)
    assert made._clock.jumps == 0
    assert -0.5 < min(errors[30:]) <= max(errors[30:]) < 0.5  # in ms: the jitter of the arrivals


def test_without_chunks_the_exposure_of_each_frame_is_read(connect: Any) -> None:
    with ChunkCamera(FRAMES[0], has_chunks=False) as fake:
        made, client = connect(packet_size=1500)
        client.wait()
        for exposure in (9000.0, 500.0, 12000.0):
            fake.set("ExposureTime", exposure)
            wait_for(lambda value=exposure: client.facts.exposure_us == value, "the exposure")
        assert made.connection is not None
        assert made.connection.facts.exposure_us != 500.0  # which is read once a second


@pytest.mark.camera
@pytest.mark.parametrize("has_chunks", [True, False])
def test_exposure_and_gain_follow_the_light(connect: Any, has_chunks: bool) -> None:
    """Full scale is 10 us at 0 dB times `light`; the darkest light needs gain too."""
    with ChunkCamera(FRAMES[0], has_chunks=has_chunks, rate=40.0, delay=0.005) as fake:
        light = 1.0

        def render(exposure_us: float, gain_db: float) -> np.ndarray:
            level = 255 * light * exposure_us / 1000 * 10 ** (gain_db / 20)
            return np.full((HEIGHT, WIDTH), min(level, 255), np.uint8)

        fake.render = render
        fake.set("Gain", 6.0)
        fake.set("ExposureTime", 60000.0)
        made, client = connect(packet_size=1500, exposure_auto="polarization", exposure_max_us=8000.0, gain_max_db=12.0)
        for light, exposure_us, gain_db in ((1.0, 850.0, 0.0), (0.05, 8000.0, 6.5), (1e-3, 8000.0, 12.0)):

            def is_exposed(time_us: float = exposure_us, gain: float = gain_db) -> bool:
                ratio = fake.get("ExposureTime") / time_us
                return 0.85 < ratio < 1.1 and abs(fake.get("Gain") - gain) < 1.5

            wait_for(is_exposed, f"the exposure of light {light}")
        assert made.status()[2]["automatic exposure"] == "polarization"
        assert float(made.status()[2]["exposure to add [EV]"]) > 1
        assert made.connection is not None
        with pytest.raises(
            CameraError, match=r"camera.gain_db cannot be set while camera.exposure_auto is polarization"
        ):
            apply(made, gain_db=3.0)
        with pytest.raises(ValueError, match=r"camera.exposure_roi must lie within 96x64 pixels"):
            apply(made, exposure_roi=(0, 0, 98, 0))
        assert apply(made, exposure_auto="off").exposure_auto == "off"
        light = 1.0
        client.wait(20)
        assert fake.get("ExposureTime") == 8000.0, "nobody changes it"
        assert not client.refused
        made.close()  # later, it would release the camera of the next test


@pytest.mark.camera
def test_a_refused_exposure_is_counted(connect: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with ChunkCamera(np.full((HEIGHT, WIDTH), 20, np.uint8)) as fake:
        written = CameraDevice.set

        def write(device: CameraDevice, feature: str, value: object) -> None:
            if feature == "ExposureTime":
                raise CameraError("not now")
            written(device, feature, value)

        monkeypatch.setattr(CameraDevice, "set", write)
        made, client = connect(packet_size=1500, exposure_auto="polarization")
        wait_for(lambda: client.refused, "the refusal")
        assert (client.refused_causes[0], client.refused[0]) == ("exposure", "not now")
        client.wait()
        assert made._counts["connections"] == 1
        assert fake.get("ExposureTime") == 5000.0


@pytest.mark.parametrize("refused", ["ExposureTime", "Gain"])
def test_a_refused_exposure_is_written_again(refused: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_module, "load_aravis", lambda: None)  # no camera is asked
    client, values, refusals = Client(), {"ExposureTime": 5000.0, "Gain": 0.0}, [refused]

    def write(feature: str, value: float) -> None:
        if feature in refusals:
            refusals.remove(feature)
            raise CameraError("busy")
        values[feature] = value

    device: Any = SimpleNamespace(set=write, is_controlled=lambda: True)
    made = CameraSource(CameraSettings(source="aravis"), "camera", client)
    made._time, made._gain = (Number(name) for name in values)
    made._commands.append((100.0, 6.0))
    for _ in range(3):
        made._write_exposure(device)
    assert client.refused == ["busy"]
    assert values == {"ExposureTime": 100.0, "Gain": 6.0}
    values["Gain"] = 0.0  # by another program; frames state it, and the control repeats its command
    made._commands.append((100.0, 6.0))
    made._write_exposure(device)
    assert values == {"ExposureTime": 100.0, "Gain": 6.0}


def test_frames_do_not_wait_for_acknowledgements(connect: Any) -> None:
    """Aravis waits 0.5 s for one: more frames come than buffers wait for."""
    with ChunkCamera(FRAMES[0], has_chunks=False, rate=100.0) as fake:
        made, client = connect(packet_size=1500)
        client.wait()
        fake.silence = 2
        wait_for(lambda: not fake.silence, "commands without an acknowledgement")
        client.wait(60)
        counts = made._counts
        assert (counts["missed"], counts["underruns"], counts["incomplete"]) == (0, 0, 0)


def test_frames_without_a_free_buffer_are_counted_as_such(camera: Any, connect: Any) -> None:
    fake = camera(features=FAST)
    client, free = Client(), threading.Event()
    free.set()
    original = client.take

    def take(cdr: Any, facts: Any, arrival_ns: int) -> None:
        free.wait(20)
        original(cdr, facts, arrival_ns)

    client.take = take  # type: ignore[method-assign]
    made, _ = connect(client)
    client.wait()
    free.clear()
    sent = fake.sent()
    wait_for(lambda: fake.sent() > sent + 10 + BUFFERS + 20, "more frames than buffers")
    free.set()
    wait_for(lambda: made._counts["underruns"] > 5, "frames that are missing")
    assert client.lost_by == {"underrun": made._counts["underruns"]}
    assert made._counts["missed"] == 0
    assert made.status()[2]["underruns"] == str(made._counts["underruns"])


def test_frames_that_never_match_are_reported_once(connect: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_module, "_LOOK_PERIOD", 0.01)
    monkeypatch.setattr(source_module, "_MAX_PAUSE", 0.05)
    with ChunkCamera(FRAMES[0]) as fake:
        fake.missing_columns = 2
        made, client = connect(packet_size=1500)
        wait_for(lambda: made._counts["connections"] >= 6, "connections")
        assert client.lost_by["size"] >= 4
        fake.missing_columns = 0
        client.wait()
        wait_for(lambda: made._pause == 0.01, "the end of the pauses")
        words = ("frames have 94x64 pixels, TRI050S-P CHUNK1 was set to (96, 64)", "is connected")
        reports, connected = ([line for line in client.lines if text in line] for text in words)
        others = len(client.lines) - len(reports) - len(connected)  # a busy computer may answer late
        assert 1 <= len(reports) <= 1 + others
        assert 2 <= len(connected) <= 2 + others


@pytest.mark.parametrize("payload", [2, 6, 0x4006])
def test_other_data_than_images_is_refused(payload: int, monkeypatch: pytest.MonkeyPatch) -> None:
    returned: List[Any] = []
    device = scripted(
        monkeypatch,
        buffer_get_status=0,
        buffer_get_payload_type=payload,
        stream_push_buffer=lambda _, buffer: returned.append(buffer),
    )
    device.start(lambda size: np.zeros(size, np.uint8))
    returned.clear()
    with pytest.raises(FrameError, match="something else than images"):
        device.pop(1.0)
    assert len(returned) == 1


@pytest.mark.parametrize("refused", ["ChunkModeActive", "ChunkSelector", "ChunkEnable"])
def test_a_camera_that_refuses_chunks_sends_frames_without_them(refused: str, monkeypatch: pytest.MonkeyPatch) -> None:
    device = scripted(
        monkeypatch,
        camera_get_payload=6,
        buffer_get_status=0,
        gc_feature_node_get_value_as_string="false",
        buffer_get_timestamp=77,
        buffer_get_frame_id=5,
        buffer_get_image_width=3,
        buffer_get_image_height=2,
    )
    monkeypatch.setattr(device, "is_controlled", lambda: True)
    monkeypatch.setattr(device, "choices", lambda _: ["Image", "ExposureTime"])

    def write(feature: str, _: object) -> None:
        if feature == refused:
            raise CameraError("access denied")

    monkeypatch.setattr(device, "set", write)
    device.start(lambda size: np.zeros(size, np.uint8))
    frame = device.pop(1.0)
    assert frame is not None
    assert (frame.device_ns, frame.number, frame.size, frame.exposure_us, frame.gain) == (77, 5, (3, 2), None, None)
