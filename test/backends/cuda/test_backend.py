"""The CUDA backend around its kernels: memory, order, overlap, failures, and the choice of the backend.

Without a GPU, a stand-in for the driver keeps "device" memory on the host, queues what streams are given, does it no
earlier than somebody waits, in the worst order, and runs the real kernels through the host harness. The same tests run
on a GPU.
"""

from __future__ import annotations

import ctypes
import gc
import itertools
import os
import subprocess
import sys
import tempfile
import types
from collections import deque
from dataclasses import replace
from pathlib import Path
from typing import Any, Callable, Deque, Dict, Iterator, List, Mapping, Set, Tuple

import numpy as np
import pytest
from calibrations import defective_calibration
from comparison import problems_of, run_floats, run_reference
from harness import COMPILER, GPUS, KERNELS, Grid, aligned, build, gpu_driver, launch_on_host
from support import representative

from polar_pipeline import FrameError, Pipeline, RawFrame, merge_exposures, pipeline
from polar_pipeline._util.stop_flag import PROCESS_STOP, StoppedError
from polar_pipeline.backends.backend import Buffers, CompileError, DeviceError, DeviceLostError, DeviceMemoryError
from polar_pipeline.backends.cuda import backend
from polar_pipeline.backends.cuda.backend import CudaBackend
from polar_pipeline.backends.cuda.denoising import DENOISE_ARGUMENT
from polar_pipeline.backends.cuda.device import DEVICES, Device
from polar_pipeline.backends.cuda.driver import ON_DEVICE, TO_DEVICE, Driver, LoadedKernel, import_cupy
from polar_pipeline.backends.cuda.geometry import TRANSFORM_ARGUMENT
from polar_pipeline.backends.cuda.launch import CompiledLaunch
from polar_pipeline.backends.cuda.learned import LEARNED_ARGUMENT
from polar_pipeline.backends.cuda.memory import SLOTS, Sizes, make_slots
from polar_pipeline.backends.cuda.pixels import FRAME_ARGUMENT
from polar_pipeline.backends.cuda.source import OPTIONS
from polar_pipeline.backends.cuda.ssim import SSIM_ARGUMENT, as_compared
from polar_pipeline.options import Options, make_options
from polar_pipeline.polarimetry.coefficients import SSIM_FULL
from polar_pipeline.sensor.frames import FORMATS, frame_from_buffer, pack
from polar_pipeline.tools.doctor import checks as doctor

SHAPE = (32, 48)


def mosaic(seed: int, top: int = 200) -> np.ndarray:
    return np.random.default_rng(seed).integers(10, top, SHAPE).astype(np.uint8 if top < 256 else np.uint16)


# ------------------------------------------------------------------------------------------------------- the stand-in


#: Structures of the kernels' arguments; all others have that of a frame.
_ARGUMENTS = {
    "ssim": SSIM_ARGUMENT,
    "transform": TRANSFORM_ARGUMENT,
    "denoise": DENOISE_ARGUMENT,
    "learned": LEARNED_ARGUMENT,
}


class HostDriver:
    """`Driver` without a GPU.

    Args:
        device: What it stands for.

    Attributes:
        capacity: Bytes of "device" memory.
        lost: Whether the device is gone: everything but giving back fails.
        held: Address -> every memory that kernels may touch.
        slow: Which memory, `host` or `device`, the first launch is slow on.
        others_first: Whether streams that nobody waits for run ahead, the newest first, or stay behind: nothing but
            `follow` orders them.
    """

    name = "stand-in"

    def __init__(self, device: Device) -> None:
        self.device = device
        self.capacity = 1 << 30
        self.lost = False
        self.slow = ""
        self.others_first = True
        self.held: Dict[int, np.ndarray] = {}
        self.on_device: Dict[int, int] = {}
        self._queues: Dict[int, Deque[Tuple[int, Callable[[], None]]]] = {}
        self._latest: Dict[int, int] = {}  # when a stream was given something
        self._passed: Dict[int, int] = {}
        self._timed: Set[int] = set()
        self._recorded: Dict[int, int] = {}
        self._set: Dict[int, int] = {}
        self._clock = 0
        self._kernels: List[Tuple[str, Path]] = []

    def _check(self) -> None:
        if self.lost:
            raise DeviceLostError("the GPU was lost (unplugged)")

    def _hold(self, size: int) -> int:
        array = aligned(size, 0xA5)
        self.held[array.ctypes.data] = array
        return array.ctypes.data

    def malloc(self, size: int) -> int:
        self._check()
        if size > self.capacity - sum(self.on_device.values()):
            raise DeviceMemoryError(f"device memory of {size} bytes cannot be had")
        pointer = self._hold(size)
        self.on_device[pointer] = size
        return pointer

    def total_memory(self) -> int:
        return self.capacity

    def free(self, pointer: int) -> None:
        del self.on_device[pointer], self.held[pointer]

    def host_array(self, shape: Tuple[int, ...], dtype: str) -> np.ndarray:
        self._check()
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        return self.held[self._hold(size)].view(dtype).reshape(shape)

    def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return function(*arguments)

    def make_stream(self) -> int:
        self._check()
        self._queues[len(self._queues) + 1] = deque()
        return len(self._queues)

    def make_event(self, is_timed: bool = False) -> int:
        self._check()
        self._clock += 1
        self._timed.update([self._clock] if is_timed else [])
        return self._clock

    def free_stream(self, stream: int) -> None:
        self._queues[stream].clear()

    def free_event(self, event: int) -> None:
        self._passed.pop(event, None)

    def _enqueue(self, stream: int, action: Callable[[], None], event: int = 0) -> None:
        self._check()
        self._clock += 1
        self._latest[stream] = self._clock
        self._queues[stream].append((event, action))

    def copy_now(self, target: int, source: int, size: int, kind: int) -> None:
        self._check()
        assert (target in self.on_device) == (kind == TO_DEVICE)
        ctypes.memmove(target, source, size)

    def copy(self, target: int, source: int, size: int, kind: int, stream: int) -> None:
        is_on_device = any(begin <= target < begin + bytes_ for begin, bytes_ in self.on_device.items())
        assert kind == ON_DEVICE or is_on_device == (kind == TO_DEVICE)
        self._enqueue(stream, lambda: ctypes.memmove(target, source, size))

    def fill(self, pointer: int, byte: int, size: int, stream: int) -> None:
        self._enqueue(stream, lambda: self.held[pointer][:size].fill(byte))

    def record(self, event: int, stream: int) -> None:
        def now() -> None:
            self._clock += 1
            self._passed[event] = self._clock
            self._set[event] = self._set.get(event, 0) + 1

        self._recorded[event] = self._recorded.get(event, 0) + 1
        self._enqueue(stream, now, event)

    def wait(self, event: int) -> None:
        self._check()
        own = next((queue for queue in self._queues.values() if any(waiting == event for waiting, _ in queue)), deque())
        for stream in sorted(self._latest, key=self._latest.__getitem__, reverse=True):
            queue = self._queues[stream]
            while self.others_first and queue and queue is not own:
                queue.popleft()[1]()
        while any(waiting == event for waiting, _ in own):
            own.popleft()[1]()

    def follow(self, stream: int, event: int) -> None:
        times = self._recorded.get(event, 0)  # as often as it was set until now

        def wait() -> None:
            while self._set.get(event, 0) < times:
                queue = next(q for q in self._queues.values() if any(waiting == event for waiting, _ in q))
                queue.popleft()[1]()

        self._enqueue(stream, wait)

    def elapsed(self, first: int, second: int) -> float:
        self._check()
        assert self._timed >= {first, second}
        assert self._passed[second] > self._passed[first]
        return self._passed[second] - self._passed[first]

    def load(self, name: str, defines: Mapping[str, Any], shared: int) -> LoadedKernel:
        self._check()
        assert shared <= self.device.shared_per_block
        self._kernels.append((name, build(KERNELS / f"{name}.cu", dict(defines))))
        return LoadedKernel(len(self._kernels) - 1)

    def local_bytes(self, kernel: LoadedKernel) -> int:
        return 0 * kernel.function

    def launch(self, function: int, *numbers: int) -> None:
        grid, threads, (shared, stream, parameters, _) = numbers[:3], numbers[3], numbers[6:]
        name, library = self._kernels[function]
        kind = _ARGUMENTS.get(name, FRAME_ARGUMENT)
        address = ctypes.c_void_p.from_address(parameters).value
        assert address is not None
        frame = np.frombuffer(ctypes.string_at(address, kind.itemsize), kind).copy()  # by value
        words = np.frombuffer(frame.tobytes()[: frame.nbytes // 8 * 8], np.uint64)

        def start() -> None:
            memory = {
                str(begin): array
                for begin, array in self.held.items()
                if np.any((words >= begin) & (words < begin + array.nbytes))
            }
            if frame.dtype == FRAME_ARGUMENT and self.slow == (
                "device" if int(frame["raw"][0]) in self.on_device else "host"
            ):
                self._clock += 1000
            launch_on_host(library, lambda _: frame, Grid(grid, threads, shared), memory)

        self._enqueue(stream, start)


#: Devices with one kind of memory each, so that it is not chosen by a measurement.
MAPPED = replace(DEVICES["xavier"], integrated=False)
COPIED = DEVICES["h200"]
STAND_INS = ["stand-in, mapped memory", "stand-in, copies"]
on_gpus = [pytest.param(name, marks=pytest.mark.gpu) for name in GPUS]


def real_driver(name: str) -> Driver:
    """A GPU by its name in `GPUS`; skips the test where there is none, or no compiler for it."""
    try:
        return gpu_driver(name)
    except RuntimeError as err:
        pytest.skip(str(err))


def stand_in(device: Device) -> HostDriver:
    """A stand-in for a GPU, which compiles kernels for the host when it loads them; skips without a compiler."""
    if COMPILER is None:
        pytest.skip("needs a C++ compiler")
    return HostDriver(device)


def make_driver(name: str) -> Any:
    """A GPU by its name in `GPUS`, a stand-in of `STAND_INS`, or one for a device, with one kind of memory."""
    if name in GPUS:
        return real_driver(name)
    devices = dict(zip(STAND_INS, (MAPPED, COPIED)))
    return stand_in(devices.get(name) or replace(DEVICES[name], integrated=False))


@pytest.fixture(params=[*STAND_INS, *on_gpus])
def driver(request: pytest.FixtureRequest) -> Any:
    """A stand-in for a GPU that maps host memory and for one that copies it; a real GPU as itself and as Jetsons."""
    return make_driver(request.param)


def make(driver: Any, products: Any = ("intensity", "dolp"), **options: Any) -> CudaBackend:
    chosen = make_options(products=products, **options)
    return CudaBackend(chosen, driver)


def compute_both(
    driver: Any, frame: Any, products: Tuple[str, ...], **options: Any
) -> Tuple[Options, Any, Dict[str, Any]]:
    """Options, what the backend makes of a frame, and what the reference does; the same pixels are invalid."""
    chosen = make_options(products=products, **options)
    made = make(driver, products, **options)
    result = run(made, frame)
    made.close()
    truth = run_floats(frame, chosen)
    assert result.invalid == truth["invalid"]
    return chosen, result, truth


def run(made: CudaBackend, frame: Any, reference: Any = None) -> Any:
    return made.submit(frame, reference)()


def expected(
    frame: RawFrame, products: Any = ("intensity", "dolp"), other: Any = None, **options: Any
) -> Dict[str, np.ndarray]:
    """What the float64 reference makes of a frame, its defects replaced."""
    return run_reference(frame, make_options(products=products, **options).for_frame(frame), other)


# -------------------------------------------------------------------------------------------------------------- frames

FRAMES = {
    "u8": RawFrame(mosaic(0), 255),
    "u8 with padded rows": RawFrame(np.pad(mosaic(1), ((0, 0), (0, 5)))[:, :-5], 255),
    "u16 of 12 bit": RawFrame(mosaic(2, 4000), 4095),
    "12p": frame_from_buffer(pack(mosaic(3, 4000), FORMATS["12p"]), FORMATS["12p"], *SHAPE),
    "12Packed, padded": frame_from_buffer(
        np.pad(np.frombuffer(pack(mosaic(4, 4000), FORMATS["12Packed"]), np.uint8).reshape(32, -1), ((0, 0), (0, 56))),
        FORMATS["12Packed"],
        *SHAPE,
        step=128,
    ),
    "10p": frame_from_buffer(pack(mosaic(5, 1000), FORMATS["10p"]), FORMATS["10p"], *SHAPE),
    "angle images": RawFrame(mosaic(6), 255, is_split=True),
}


def received(made: CudaBackend, frame: np.ndarray, offset: int, padding: int = 0) -> np.ndarray:
    """A frame in memory for frames, `offset` bytes after its start, its rows `padding` bytes apart."""
    height, width = frame.shape
    memory = made.frame_memory(offset + height * (width + padding))
    assert memory is not None
    assert memory.dtype == np.uint8
    rows = memory[offset:].reshape(height, width + padding)[:, :width]
    rows[...] = frame
    return rows


class Uploads:
    """Notes the addresses that frames are uploaded from, or read at."""

    def __init__(self, driver: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.addresses: List[int] = []
        launch, copy = driver.launch, driver.copy

        def launched(*numbers: int) -> None:
            address = ctypes.c_void_p.from_address(numbers[-2]).value
            assert address is not None
            self.addresses.append(ctypes.c_uint64.from_address(address).value)  # `raw` comes first
            launch(*numbers)

        def copied(target: int, source: int, *others: int) -> None:
            self.addresses.append(source)
            copy(target, source, *others)

        monkeypatch.setattr(driver, "launch", launched)
        monkeypatch.setattr(driver, "copy", copied)


@pytest.mark.parametrize(("offset", "padding"), [(0, 0), (64, 0), (68, 0), (64, 5)])
def test_frames_in_memory_for_frames_are_not_copied(
    driver: Any, monkeypatch: pytest.MonkeyPatch, offset: int, padding: int
) -> None:
    """Where kernels read host memory, only if it is aligned; never rows with padding."""
    made, uploads = make(driver), Uploads(driver, monkeypatch)
    rows = [received(made, mosaic(seed), offset, padding) for seed in range(SLOTS)]
    tickets = [made.submit(RawFrame(frame, 255)) for frame in rows]
    for seed, ticket in enumerate(tickets):
        wanted = expected(RawFrame(mosaic(seed), 255))["intensity"]
        np.testing.assert_allclose(ticket()["intensity"], wanted, atol=2e-3)
    is_in_place = not padding and not (driver.device.maps_host and offset % 16)
    assert [frame.ctypes.data in uploads.addresses for frame in rows] == SLOTS * [is_in_place]
    made.close()


def test_memory_for_frames_is_kept_until_the_device_has_read_it(driver: Any) -> None:
    made = make(driver)
    rows = received(made, mosaic(0), 0)
    address, ticket = rows.ctypes.data, made.submit(RawFrame(rows, 255))
    del rows
    other = received(made, mosaic(1), 0)
    assert other.ctypes.data != address
    wanted = expected(FRAMES["u8"])["intensity"]
    np.testing.assert_allclose(ticket()["intensity"], wanted, atol=2e-3)
    assert received(made, mosaic(2), 0).ctypes.data == address, "nothing refers to it any more"
    made.close()


def test_memory_for_frames_of_another_pipeline_is_copied(driver: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """As any array; and so are frames whose defects are replaced."""
    made, other = make(driver), make(driver)
    rows = received(other, mosaic(0), 0)
    uploads = Uploads(driver, monkeypatch)
    wanted = expected(FRAMES["u8"])["intensity"]
    np.testing.assert_allclose(run(made, RawFrame(rows, 255))["intensity"], wanted, atol=2e-3)
    corrected_one = make(driver, "intensity", **CALIBRATED)
    own = received(corrected_one, mosaic(0), 0)
    run(corrected_one, RawFrame(own, 255))
    np.testing.assert_array_equal(own, mosaic(0))
    assert not {rows.ctypes.data, own.ctypes.data} & set(uploads.addresses)


def test_without_pinned_memory_there_is_none_for_frames(driver: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made = make(driver)

    def full(*_: Any) -> np.ndarray:
        raise DeviceMemoryError("no more pinned memory")

    monkeypatch.setattr(made._frames, "_buffers", Buffers(full))
    assert made.frame_memory(100) is None


def test_on_a_cpu_any_memory_will_do() -> None:
    with Pipeline(backend="cpu") as made:
        assert made.frame_memory(100) is None


#: Frames that ask for a launch of their own each: one more than are kept.
FORMATS_APART = [FRAMES[name] for name in ("u8", "u16 of 12 bit", "12p", "12Packed, padded", "10p")]


def test_the_formats_used_last_stay_ready(driver: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made = make(driver, "intensity")
    for frame in FORMATS_APART:
        made.prepare(frame)
    assert all(made.is_ready(frame) for frame in FORMATS_APART)
    one = max(row.memory for row in made._programs.values())
    monkeypatch.setattr(made, "_kept", 2 * one)
    made.prepare(FORMATS_APART[1])
    made.prepare(RawFrame(mosaic(6, 4000), 4000))
    assert made.is_ready(FORMATS_APART[1])
    assert not any(made.is_ready(frame) for frame in (FORMATS_APART[0], *FORMATS_APART[2:]))
    assert sum(row.memory for row in made._programs.values()) <= 2 * one
    monkeypatch.setattr(made, "_kept", 0)
    made.prepare(FORMATS_APART[0])
    assert len(made._programs) == 1
    made.close()


def test_merged_exposures(driver: Any) -> None:
    """Dark pixels are those of the longest exposure, whatever the ratio; products with noise are refused."""
    raw = np.tile(np.array([[2, 1], [1, 2]], np.uint8), (SHAPE[0] // 2 + 1, SHAPE[1] // 2 + 1))[: SHAPE[0], : SHAPE[1]]
    made, dark = make(driver, "intensity,dolp", min_intensity=0.05), []
    for ratio in (2.01, 1.99, 16):
        merged = merge_exposures([raw, np.rint(ratio * raw).astype(np.uint8)], [1, ratio])
        found = run(made, merged)
        reference = expected(merged, "intensity,dolp", min_intensity=0.05)
        for name in ("intensity", "dolp"):
            np.testing.assert_allclose(found[name], reference[name], atol=2e-3)
        dark.append(bool(np.isnan(found["dolp"]).all()))
    assert dark == [True, True, False]
    assert len(made._programs) == 2
    made.close()
    noisy = make(driver, "dolp,dolp_sigma")
    for _ in range(2):
        with pytest.raises(FrameError, match=r"merged frames need compiled kernels and --backend cpu"):
            noisy.submit(merged)
    noisy.close()


def test_former_formats_make_room_for_a_new_one() -> None:
    driver = stand_in(COPIED)
    made = make(driver, "intensity")
    made.prepare(FORMATS_APART[0])
    driver.capacity = int(1.5 * sum(driver.on_device.values()))
    made.prepare(FORMATS_APART[1])
    assert [made.is_ready(frame) for frame in FORMATS_APART[:2]] == [False, True]
    driver.capacity = 100
    with pytest.raises(DeviceMemoryError, match="3 frames need") as caught:
        made.prepare(FORMATS_APART[2])
    assert not driver.on_device, "also while somebody keeps the exception"
    del caught


@pytest.mark.usefixtures("fresh_problem")
def test_a_pipeline_that_nothing_refers_to_releases_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = stand_in(COPIED)
    monkeypatch.setattr(backend, "Driver", lambda: driver)
    out = Pipeline(products=("intensity", "ssim"), backend="cuda")(mosaic(0))
    unfinished = Pipeline(products="intensity", backend="cuda").submit(mosaic(1))
    assert driver.on_device
    del unfinished
    gc.collect()
    assert not driver.on_device
    np.testing.assert_allclose(out["intensity"], expected(RawFrame(mosaic(0), 255))["intensity"], atol=2e-3)


def test_a_frame_under_way_keeps_its_format_ready(driver: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made = make(driver, "intensity")
    monkeypatch.setattr(made, "_kept", 0)
    ticket = made.submit(FORMATS_APART[0])
    for frame in FORMATS_APART[1:]:
        made.prepare(frame)
    np.testing.assert_allclose(ticket()["intensity"], expected(FRAMES["u8"], "intensity")["intensity"], atol=2e-3)
    with pytest.raises(RuntimeError, match="result was taken"):
        ticket()
    del ticket
    made.close()
    if isinstance(driver, HostDriver):
        assert not driver.on_device


# --------------------------------------------------------------------------------------------------------- calibration


#: Of a region that holds the frames at offset (2, 1).
REGION = (SHAPE[0] + 4, SHAPE[1] + 4)
CALIBRATION = defective_calibration("IMX250MZR", REGION)
CALIBRATED: Dict[str, Any] = {"calibration": CALIBRATION, "roi_offset": (2, 1), "precision": "fp32"}


@pytest.mark.parametrize("are_lost", [False, True], ids=["", "lost"])
@pytest.mark.parametrize("name", FRAMES)
def test_frames_of_every_format_are_corrected(
    driver: Any, name: str, are_lost: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Defects are replaced, and not in the caller's array; every one of them would show in the image.

    Defects that no pixel can replace become saturated.
    """
    if are_lost:
        monkeypatch.setattr("polar_pipeline.calibration.correction._STEPS", [])
    frame = FRAMES[name].unpack()
    calibrated = {**CALIBRATED, "calibration": defective_calibration("IMX250MZR", REGION)}  # has no correction yet
    correction = make_options(**calibrated).correction(SHAPE)
    assert correction is not None
    assert len(correction.lost[0]) == are_lost * len(correction.defects[0])
    broken = frame.mosaic.copy()
    broken[correction.defects] = np.where(np.arange(len(correction.defects[0])) % 2, frame.full_scale, 0)
    fmt = getattr(FRAMES[name], "fmt", None)
    given: Any = RawFrame(broken, frame.full_scale)
    if fmt is not None:
        given = frame_from_buffer(pack(broken, fmt), fmt, *SHAPE)
    before = (given.mosaic if fmt is None else given.rows).copy()
    made = make(driver, **calibrated)
    made.prepare(given)
    assert made.is_ready(given)
    for _ in range(SLOTS + 1):
        found, wanted = run(made, given), expected(RawFrame(broken, frame.full_scale), **calibrated)
        assert found.invalid == wanted["invalid"]
        np.testing.assert_allclose(found["intensity"], wanted["intensity"], atol=2e-5)
        np.testing.assert_allclose(found["dolp"], wanted["dolp"], atol=2e-3)
    np.testing.assert_array_equal(given.mosaic if fmt is None else given.rows, before)
    made.close()


def test_codes_are_uploaded_once_for_a_shape(driver: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Formats of one shape share them; those of another shape, and another calibration, have their own."""
    sizes: List[int] = []
    copy = driver.copy_now
    monkeypatch.setattr(driver, "copy_now", lambda *call: (sizes.append(call[2]), copy(*call)))
    made = make(driver, "intensity", **CALIBRATED)
    codes = 4 * SHAPE[0] * SHAPE[1]
    for name in ("u8", "12p", "u8"):
        run(made, FRAMES[name])
    assert sizes.count(codes) == 1
    small = RawFrame(np.ascontiguousarray(FRAMES["u8"].mosaic[:24, :40]), 255)
    wanted = expected(small, "intensity", **CALIBRATED)["intensity"]
    np.testing.assert_allclose(run(made, small)["intensity"], wanted, atol=2e-5)
    assert sizes.count(4 * 24 * 40) == 1
    other = {**CALIBRATED, "calibration": defective_calibration("IMX250MZR", REGION, seed=1)}
    changed = make(driver, "intensity", **other)
    found = run(changed, FRAMES["u8"])["intensity"]
    np.testing.assert_allclose(found, expected(FRAMES["u8"], "intensity", **other)["intensity"], atol=2e-5)
    assert np.abs(found - run(made, FRAMES["u8"])["intensity"]).max() > 1e-3
    assert sizes.count(codes) == 2
    for each in (made, changed):
        each.close()
    if isinstance(driver, HostDriver):
        assert not driver.on_device


def test_codes_of_a_shape_that_is_no_longer_prepared_are_released(driver: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    freed: List[int] = []
    free = driver.free
    monkeypatch.setattr(driver, "free", lambda pointer: (freed.append(pointer), free(pointer)))
    made = make(driver, "intensity", **CALIBRATED)
    monkeypatch.setattr(made, "_kept", 0)
    made.prepare(FRAMES["u8"])
    (first,) = (each.pointer for each in made._constants._arrays.values())
    made.prepare(FRAMES["12p"])
    assert first not in freed
    made.prepare(RawFrame(np.zeros((24, 40), np.uint8), 255))
    assert first in freed
    made.close()


def test_a_frame_beyond_the_calibration_is_refused_and_leaves_nothing(driver: Any) -> None:
    made = make(driver, **{**CALIBRATED, "roi_offset": (6, 0)})
    with pytest.raises(FrameError, match=r"the calibration is of 52x36 pixels from \(0, 0\), the frame has 48x32"):
        made.submit(FRAMES["u8"])
    assert not made.is_ready(FRAMES["u8"])
    made.close()
    if isinstance(driver, HostDriver):
        assert not driver.on_device


def test_a_plan_without_room_beside_its_calibration_leaves_nothing() -> None:
    driver = stand_in(COPIED)
    driver.capacity = 4 * SHAPE[0] * SHAPE[1] + 100
    made = make(driver, "intensity", **CALIBRATED)
    with pytest.raises(DeviceMemoryError, match="3 frames need") as caught:
        made.prepare(FRAMES["u8"])
    assert not driver.on_device
    del caught
    driver.capacity = 100
    with pytest.raises(DeviceMemoryError, match=f"{4 * SHAPE[0] * SHAPE[1]} bytes"):
        made.prepare(FRAMES["u8"])
    assert not driver.on_device


# ---------------------------------------------------------------------------------------------------------------- SSIM


def test_references_are_limited_to_what_integers_hold() -> None:
    slack = 2.0**-10  # what `check_reference` lets pass
    values = np.array([[-slack, -0.0, 0.0, 1e-45, 1.0, 1 + slack]], np.float32)
    assert as_compared(values, "uint16").tolist() == [[0, 0, 0, 0, SSIM_FULL, SSIM_FULL]]
    np.testing.assert_array_equal(as_compared(values, "float32"), values)


def test_nothing_to_compare_with(driver: Any) -> None:
    for dtype in ("float32", "uint8"):
        made = make(driver, "ssim_map, ssim", ssim_mode="temporal", dtype=dtype)
        for frame in (FRAMES["u8"], FRAMES["u16 of 12 bit"], FRAMES["u8"]):  # none has the type of the one before
            found = run(made, frame)
            assert np.isnan(found["ssim"])
            assert np.isnan(found.blocks).all()
            image = found["ssim_map"]
            assert np.isnan(image).all() if dtype == "float32" else not image.any()
        made.reset()
        assert np.isnan(run(made, FRAMES["u8"])["ssim"])
        assert float(run(made, FRAMES["u8"])["ssim"]) == pytest.approx(1, abs=1e-3)


def test_a_reset_keeps_the_order(driver: Any) -> None:
    """The frame after it takes the place of an image that is still being compared."""
    frames = [RawFrame(mosaic(seed), 255) for seed in range(4)]
    one, other = (make(driver, "ssim", ssim_mode="temporal") for _ in range(2))
    wanted = [float(run(one, frame)["ssim"]) for frame in frames[:3]]
    tickets = [other.submit(frame) for frame in frames[:3]]
    driver.others_first = False
    found = [tickets.pop(0)()]
    driver.others_first = True
    other.reset()
    tickets.append(other.submit(frames[3]))
    found += [ticket() for ticket in tickets]
    np.testing.assert_array_equal([float(each["ssim"]) for each in found], [*wanted, np.nan])


def test_a_reference_is_uploaded_when_it_changes(driver: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made, uploads = make(driver, "ssim", ssim_mode="reference"), []
    copy = driver.copy

    def copied(*call: int) -> None:
        uploads.extend([call] if call[3] == TO_DEVICE else [])
        copy(*call)

    monkeypatch.setattr(driver, "copy", copied)
    image = np.random.default_rng(8).random((16, 24)).astype(np.float32)
    wanted = [expected(FRAMES["u8"], "ssim", other, ssim_mode="reference")["ssim"] for other in (image, 1 - image)]
    for turn in range(2):
        for _ in range(2 * SLOTS):
            assert abs(float(run(made, FRAMES["u8"], image)["ssim"]) - wanted[turn]) < 1e-3
        np.subtract(1, image, out=image)  # in place
    maps_host = driver.device.maps_host
    assert len(uploads) == (0 if maps_host else 4 * SLOTS + 2 * SLOTS)  # every frame, and to every slot per reference


# ------------------------------------------------------------------------------------------------------------- overlap


def test_a_frame_too_many_is_refused_and_the_others_come_back(driver: Any) -> None:
    made = make(driver, "intensity")
    tickets = [made.submit(FRAMES["u8"]) for _ in range(made.depth)]
    with pytest.raises(RuntimeError, match=f"{made.depth} frames are in flight"):
        made.submit(FRAMES["u8"])
    images = [ticket()["intensity"] for ticket in tickets]
    for image in images[1:]:
        np.testing.assert_array_equal(image, images[0])


def test_the_raw_array_may_change_after_submit(driver: Any) -> None:
    made = make(driver, "intensity")
    raw = mosaic(20)
    ticket = made.submit(RawFrame(raw, 255))
    wanted = expected(RawFrame(raw.copy(), 255), "intensity")["intensity"]
    raw[:] = 0
    np.testing.assert_allclose(ticket()["intensity"], wanted, atol=2e-3)


def test_nothing_is_allocated_once_running(driver: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made = make(driver, ("intensity", "dolp", "ssim_map"))
    for _ in range(2 * SLOTS):
        run(made, FRAMES["u8"])
    for name in ("malloc", "host_array", "make_stream", "make_event", "load"):
        monkeypatch.setattr(driver, name, lambda *_: pytest.fail("allocated"), raising=True)
    for _ in range(2 * SLOTS):
        run(made, FRAMES["u8"])


# -------------------------------------------------------------------------------------------------------------- memory


SIZES = Sizes(1000, {"dolp": 400}, {"sums": 300, "done": 4}, 200)


@pytest.mark.parametrize("maps_host", [False, True])
def test_memory_is_what_was_planned_and_given_back(maps_host: bool) -> None:
    driver = HostDriver(DEVICES["xavier"])
    of_host = 0 if maps_host else 1000 + 400 + 200
    slots = make_slots(driver, SIZES, maps_host)  # type: ignore[arg-type]
    assert sum(driver.on_device.values()) == SIZES.device_bytes(maps_host) == SLOTS * (of_host + 304 + 8)
    assert len({slot.raw.ctypes.data for slot in slots}) == SLOTS
    assert len({slot.stream for slot in slots}) == SLOTS
    if maps_host:
        assert all(slot.raw_pointer == slot.raw.ctypes.data for slot in slots)
        assert all(slot.addresses["reference"] == slot.reference.ctypes.data for slot in slots)
    slots.clear()
    assert not driver.on_device


@pytest.fixture
def integrated() -> HostDriver:
    """A stand-in that shares its memory with the CPU."""
    return stand_in(DEVICES["xavier"])


@pytest.mark.parametrize(
    ("slow", "mode"),
    representative(
        list(itertools.product(("host", "device"), ("consistency", "reference", "temporal"))), lambda row: row
    ),
)
def test_the_memory_that_is_faster_is_used(integrated: HostDriver, slow: str, mode: str) -> None:
    """As measured when the first frame is prepared for, per format; nothing of the measurement shows afterwards."""
    integrated.slow = slow
    products = ("intensity", "ssim_map", "ssim")
    images = [np.random.default_rng(seed).random((16, 24)).astype(np.float32) for seed in range(2)]
    other = images[0] if mode == "reference" else None
    made = make(integrated, products, ssim_mode=mode)
    assert made.device == "cuda (stand-in, sm_72)"
    made.prepare(FRAMES["u8"])
    of_one = sum(integrated.on_device.values())
    assert made.device.endswith("copies in device memory)" if slow == "host" else "host memory mapped)")
    first = run(made, FRAMES["u8"], other)
    if mode == "temporal":
        assert np.isnan(first["ssim"]), "there is no frame before the first"
    else:
        options = make_options(products=products, ssim_mode=mode)
        assert problems_of(options, FRAMES["u8"], first, run_floats(FRAMES["u8"], options, other)) == []
    for frame in FRAMES.values():
        wanted = expected(frame.unpack(), "intensity")["intensity"]
        np.testing.assert_allclose(run(made, frame, other)["intensity"], wanted, atol=2e-3)
    assert sum(integrated.on_device.values()) > of_one
    made.close()
    assert not integrated.on_device


def test_without_room_for_copies_host_memory_is_mapped(integrated: HostDriver) -> None:
    integrated.slow = "host"
    integrated.capacity = 100
    made = make(integrated, "intensity")
    np.testing.assert_allclose(
        run(made, FRAMES["u8"])["intensity"], expected(FRAMES["u8"], "intensity")["intensity"], atol=2e-3
    )
    assert made.device.endswith("host memory mapped)")
    made.close()
    assert not integrated.on_device


@pytest.mark.parametrize("fails_at", range(1, 60, 7))
def test_a_measurement_that_fails_gives_everything_back(
    integrated: HostDriver, fails_at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, calls, record = make(integrated, "intensity"), [0], integrated.record

    def failing(event: int, stream: int) -> None:
        calls[0] += 1
        if calls[0] == fails_at:
            raise DeviceError("a call to the GPU failed")
        record(event, stream)

    monkeypatch.setattr(integrated, "record", failing)
    with pytest.raises(DeviceError) as caught:
        made.prepare(FRAMES["u8"])
    assert not integrated.on_device, "also while somebody keeps the exception"
    del caught
    monkeypatch.undo()


# ------------------------------------------------------------------------------------------------------------ failures


@pytest.mark.parametrize("driver", STAND_INS, indirect=True)
def test_a_lost_device_is_said_and_a_new_backend_works(driver: HostDriver) -> None:
    made = make(driver, "intensity")
    held = run(made, FRAMES["u8"])["intensity"]
    ticket = made.submit(FRAMES["u8"])
    driver.lost = True
    with pytest.raises(DeviceLostError, match="unplugged"):
        ticket()
    with pytest.raises(DeviceLostError, match="unplugged"):
        made.submit(FRAMES["u8"])
    made.close()
    made.close()
    driver.lost = False
    np.testing.assert_array_equal(run(make(driver, "intensity"), FRAMES["u8"])["intensity"], held)


@pytest.mark.parametrize("step", ["first copy", "launch", "last copy"])
@pytest.mark.parametrize("mode", ["reference", "temporal"])
def test_a_frame_that_fails_half_way_leaves_its_place(
    driver: Any, monkeypatch: pytest.MonkeyPatch, mode: str, step: str
) -> None:
    made, alike = (make(driver, "ssim", ssim_mode=mode) for _ in range(2))
    images = np.random.default_rng(8).random((2, 16, 24)).astype(np.float32) if mode == "reference" else (None, None)
    run(made, FRAMES["u8"], images[0])
    copy = driver.copy

    def fail(*arguments: Any) -> None:
        if step != "last copy" or arguments[3] != TO_DEVICE:
            raise DeviceError("a call to the GPU failed: cudaErrorLaunchOutOfResources")
        copy(*arguments)

    with monkeypatch.context() as broken:
        broken.setattr(*((CompiledLaunch, "start") if step == "launch" else (driver, "copy")), fail)
        for _ in range(SLOTS + 1):
            with pytest.raises(DeviceError, match="cudaErrorLaunchOutOfResources"):
                made.submit(FRAMES["u8"], images[1])
    for seed in range(SLOTS + 1):
        frame = RawFrame(mosaic(seed), 255)
        found, wanted = (run(each, frame, images[1])["ssim"] for each in (made, alike))
        np.testing.assert_array_equal(found, wanted)


class CudaError(RuntimeError):
    def __init__(self, status: int) -> None:
        super().__init__(f"cudaError {status}")
        self.status = status


class CompilerError(Exception):
    def get_message(self) -> str:
        return str(self)


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> types.SimpleNamespace:
    """CuPy as far as the driver goes, on a machine with a Xavier; fails with `status` unless it is 0."""
    told: Dict[str, Any] = {"name": b"Xavier", "major": 7, "minor": 2, "multiProcessorCount": 8, "integrated": 1}
    told.update(sharedMemPerBlockOptin=49152, sharedMemPerMultiprocessor=98304, regsPerMultiprocessor=65536)
    told.update(maxThreadsPerMultiProcessor=2048, maxBlocksPerMultiProcessor=32, memoryBusWidth=256)
    told.update(clockRate=1377000, memoryClockRate=2133000)
    fake = types.SimpleNamespace(status=0)

    def call(*_: Any) -> int:
        if fake.status:
            raise CudaError(fake.status)
        return 4096

    names = "malloc free hostAlloc freeHost memcpy memcpyAsync memsetAsync streamCreateWithFlags streamDestroy"
    events = "eventCreate eventDestroy eventRecord eventSynchronize eventElapsedTime streamWaitEvent"
    runtime = dict.fromkeys(f"{names} {events}".split(), call)
    fake.cuda = types.SimpleNamespace(
        runtime=types.SimpleNamespace(
            **runtime,
            CUDARuntimeError=CudaError,
            memGetInfo=lambda: (100, 1000),
            getDeviceProperties=lambda _: (call(), told)[1],
            getDevice=lambda: 0,
        ),
        driver=types.SimpleNamespace(CUDADriverError=CudaError, launchKernel=call),
        compiler=types.SimpleNamespace(CompileException=CompilerError),
    )
    monkeypatch.setitem(sys.modules, "cupy", fake)
    return fake


def test_errors_of_the_driver_say_what_happened(cupy: types.SimpleNamespace) -> None:
    driver = Driver()
    assert driver.name == "Xavier"
    assert (driver.device.arch, driver.device.integrated) == ("sm_72", True)
    assert driver.malloc(10) == 4096
    cupy.status = 2
    with pytest.raises(
        DeviceMemoryError, match=r"5000 bytes of device memory.*100 of the 1000 bytes of Xavier are free"
    ):
        driver.malloc(5000)
    with pytest.raises(DeviceMemoryError, match=r"24 bytes of pinned host memory"):
        driver.host_array((2, 3), "float32")
    for status in (700, 719, 46):
        cupy.status = status
        with pytest.raises(DeviceLostError, match=f"cudaError {status}.*new"):
            driver.run(driver.wait, 1)
        with pytest.raises(DeviceLostError):
            driver.malloc(1)
    cupy.status = 1  # an invalid value is neither
    for call in (lambda: driver.run(driver.wait, 1), lambda: driver.malloc(1)):
        with pytest.raises(DeviceError, match="failed: cudaError 1") as error:
            call()
        assert error.type is DeviceError


class Compiler:
    """`RawModule`, whose functions are `outcomes` in turn; the last one again and again."""

    def __init__(self, *outcomes: Any) -> None:
        self.outcomes = list(outcomes)
        self.sources: List[str] = []

    def __call__(self, code: str, options: Tuple[str, ...]) -> Compiler:
        assert options == OPTIONS
        self.sources.append(code)
        return self

    def get_function(self, name: str) -> Any:
        outcome = self.outcomes.pop(0) if len(self.outcomes) > 1 else self.outcomes[0]
        if isinstance(outcome, Exception):
            raise outcome
        return types.SimpleNamespace(name=name, kernel=types.SimpleNamespace(ptr=outcome))


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        (CompilerError('tile.cu(3): error: "\x1b]0;"'), CompileError, r"does not compile\ntile.cu\(3\): .*\\x1b\]0;"),
        (RuntimeError("advice\nCuPy failed to load libnvrtc.so.12"), CompileError, "cannot be compiled: CuPy failed"),
        (CudaError(700), DeviceLostError, "was lost"),
    ],
)
def test_why_a_kernel_is_not_loaded_is_said(
    cupy: types.SimpleNamespace, error: Exception, kind: Any, said: str
) -> None:
    cupy.RawModule = Compiler(error)
    with pytest.raises(kind, match=said):
        Driver().load("tile", {}, 0)


def test_a_cache_of_kernels_that_cannot_be_written_only_misses(
    cupy: types.SimpleNamespace, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("CUPY_CACHE_IN_MEMORY", "CUPY_CACHE_DIR"):
        monkeypatch.setenv(name, "0")
    cupy.RawModule = Compiler(PermissionError(13, "Permission denied", "/home/robot/.cupy"), 7)
    assert Driver().load("tile", {"RADIUS": 2}, 0).function == 7
    assert os.environ["CUPY_CACHE_IN_MEMORY"] == "1"
    assert "set CUPY_CACHE_DIR" in caplog.text
    assert cupy.RawModule.sources[0].startswith("#define RADIUS 2\n")


def test_no_kernel_is_compiled_once_the_process_is_to_end(
    cupy: types.SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    cupy.RawModule = Compiler(7)
    monkeypatch.setattr(PROCESS_STOP, "_is_set", True)
    with pytest.raises(StoppedError):
        Driver().load("tile", {}, 0)
    assert not cupy.RawModule.sources


@pytest.mark.parametrize("how", ["a file", "read only", "no home"])
def test_a_folder_of_kernels_that_cannot_be_written_is_not_used(
    how: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """CuPy makes its folder while it is imported."""
    monkeypatch.setitem(sys.modules, "cupy", None)
    monkeypatch.delitem(sys.modules, "cupy")
    monkeypatch.setenv("CUPY_CACHE_IN_MEMORY", "0")
    folder = tmp_path / "kernels"
    monkeypatch.setenv("CUPY_CACHE_DIR", "" if how == "no home" else str(folder))
    if how == "a file":
        folder.touch()
    elif how == "read only":
        monkeypatch.setattr(os, "access", lambda *_: False)
    else:
        monkeypatch.setattr(Path, "home", lambda: Path(os.devnull))
    monkeypatch.setattr("importlib.import_module", lambda name: name)
    assert import_cupy() == "cupy"
    assert os.environ["CUPY_CACHE_IN_MEMORY"] == "1"
    assert os.environ["CUPY_CACHE_DIR"] == tempfile.gettempdir()
    assert "set CUPY_CACHE_DIR" in caplog.text


def test_giving_back_to_a_lost_device_is_quiet_and_a_forked_process_gives_nothing_back(
    cupy: types.SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = Driver()
    cupy.status = 700
    driver.free(4096)
    driver.free_host(4096)
    driver.free_stream(1)
    driver.free_event(1)
    monkeypatch.setattr(os, "getpid", lambda: 1)
    monkeypatch.setattr(cupy.cuda.runtime, "free", lambda _: pytest.fail("freed"))
    driver.free(4096)


def test_the_first_gpu_is_current_where_it_is_used_and_another_one_before_and_after(
    cupy: types.SimpleNamespace,
) -> None:
    runtime, chosen = cupy.cuda.runtime, [1]
    runtime.getDevice, runtime.setDevice = lambda: chosen[-1], chosen.append
    driver = Driver()
    assert driver.run(lambda: chosen[-1]) == 0
    assert chosen == [1, 0, 1]
    with pytest.raises(KeyError):
        driver.run({}.__getitem__, "no such key")
    assert chosen[-1] == 1


def test_no_gpu_is_said(cupy: types.SimpleNamespace) -> None:
    cupy.status = 100
    with pytest.raises(DeviceError, match="no GPU: cudaError 100"):
        Driver()
    cupy.status = 3  # what CUDA answers in a process that was forked from one that used it
    with pytest.raises(DeviceError, match=r"forked .* 'spawn'"):
        Driver()


@pytest.mark.gpu
def test_a_fork_is_named_on_a_gpu() -> None:
    real_driver("gpu")
    code = (
        "import os, numpy as np\n"
        "from polar_pipeline import Pipeline\n"
        "raw = np.zeros((32, 32), np.uint8)\n"
        "used, auto = Pipeline(backend='cuda'), Pipeline()\n"
        "used(raw), auto(raw)\n"
        "print(auto.device, flush=True)\n"
        "if os.fork() == 0:\n"
        "    for use in (lambda: Pipeline(backend='cuda')(raw), lambda: used(raw)):\n"
        "        try: use()\n"
        "        except RuntimeError as err: print(err, flush=True)\n"
        "    auto(raw), used.close(), auto.close()\n"
        "    print(auto.device, flush=True)\n"
        "    os._exit(0)\n"
        "os.wait(), used(raw), auto(raw)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300)
    before, new, old, after = done.stdout.splitlines()
    assert (before[:5], after[:4]) == ("cuda ", "cpu "), "a pipeline of backend `auto` moves to the CPU"
    for text in (new, old):
        assert "forked" in text, done
        assert "spawn" in text, done


# -------------------------------------------------------------------------------------------------------------- choice


@pytest.fixture
def fresh_problem() -> Iterator[None]:
    """What was found out about this machine is forgotten, before and after."""
    backend.problem.cache_clear()
    yield
    backend.problem.cache_clear()


@pytest.mark.usefixtures("fresh_problem")
def test_without_cupy_auto_takes_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)  # import raises ImportError
    assert "CuPy cannot be imported" in str(pipeline.backend_problem("cuda"))
    assert pipeline.backend_problem("auto") is None
    assert Pipeline(backend="auto").device.startswith("cpu")
    with pytest.raises(RuntimeError, match=r"'cuda' cannot work here: CuPy cannot be imported.*cuda12"):
        Pipeline(backend="cuda")
    with pytest.raises(ValueError, match=r"'fp16' needs backend 'cuda'.*no CUDA here: CuPy cannot be imported"):
        Pipeline(backend="auto", precision="fp16")


@pytest.mark.usefixtures("fresh_problem")
def test_auto_takes_a_gpu_that_works(driver: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "Driver", lambda: driver)
    assert pipeline.backend_problem("cuda") is None
    for name in ("auto", "cuda"):
        made = Pipeline(backend=name, precision="fp16")
        assert made.device.startswith("cuda (")
        assert made(mosaic(0))["dolp"].shape == (16, 24)
        made.close()
    assert Pipeline(backend="cpu").device.startswith("cpu")


@pytest.mark.usefixtures("fresh_problem")
def test_a_gpu_whose_kernels_fail_is_not_taken(driver: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> LoadedKernel:
        raise CompileError("tile.cu(3): error: no")

    monkeypatch.setattr(backend, "Driver", lambda: driver)
    monkeypatch.setattr(driver, "load", fail)
    assert pipeline.backend_problem("cuda") == "tile.cu(3): error: no"
    assert Pipeline(backend="auto").device.startswith("cpu")


@pytest.mark.usefixtures("fresh_problem")
@pytest.mark.parametrize("driver", ["xavier"], indirect=True)
@pytest.mark.parametrize("fault", ["memory", "lost"])
def test_a_gpu_that_fails_for_the_moment_is_a_gpu(
    driver: HostDriver, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    monkeypatch.setattr(backend, "Driver", lambda: driver)
    driver.capacity, driver.lost = (0, False) if fault == "memory" else (driver.capacity, True)
    said = {"memory": "cannot be had", "lost": "the GPU was lost"}[fault]
    made = Pipeline(products="dolp")
    assert made.device.startswith("cuda (")
    with pytest.raises(DeviceError, match=said):
        made(mosaic(0))
    (check,) = [check for check in doctor.run_checks() if check.topic == "backend cuda"]
    assert check.state == "problem"
    assert said in check.text
    made.close()
    driver.capacity, driver.lost = 1 << 30, False
    assert Pipeline(products="dolp")(mosaic(0))["dolp"].shape == (16, 24)


# ------------------------------------------------------------------------------------------------------------ pipeline


@pytest.fixture
def on_gpu(driver: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Pipelines of backend `cuda` run on `driver`."""
    monkeypatch.setattr(backend, "Driver", lambda: driver)
    monkeypatch.setattr(pipeline, "backend_problem", lambda _: None)
    return driver


@pytest.mark.usefixtures("on_gpu")
@pytest.mark.parametrize(
    "more", [{}, {"ssim_mode": "temporal"}, {"ssim_mode": "temporal", "rotate": 90, "scale": 2}], ids=str
)
def test_a_stream_is_single_calls(more: Mapping[str, Any]) -> None:
    """Also with a geometry: frames in flight have planes of their own."""
    options: Mapping[str, Any] = {"products": "intensity, ssim", "backend": "cuda", **more}
    raws = [mosaic(seed) for seed in range(5)]
    one, other = Pipeline(**options), Pipeline(**options)
    streamed = list(one.stream(iter(raws)))
    assert len(streamed) == len(raws)
    for raw, found in zip(raws, streamed):
        single = other(raw)
        np.testing.assert_array_equal(found["intensity"], single["intensity"])
        np.testing.assert_array_equal(found["ssim"], single["ssim"])


@pytest.mark.usefixtures("on_gpu")
def test_a_bad_frame_costs_nothing_else() -> None:
    """The frames before it come, and so do those of the next stream, also where one was given up."""
    made = Pipeline(products="dolp", backend="cuda")
    with pytest.raises(FrameError):
        made(mosaic(0)[:8])
    raws = [mosaic(seed) for seed in range(4)]
    wanted = [made(raw)["dolp"] for raw in raws]

    def source() -> Iterator[np.ndarray]:
        yield from raws
        raise OSError("no such file")

    for frames, error in (([*raws, raws[0][:8], raws[0]], FrameError), (source(), OSError)):
        results = made.stream(frames)
        for each in wanted:
            np.testing.assert_array_equal(next(results)["dolp"], each)
        with pytest.raises(error):
            next(results)
    for _ in made.stream(raws):
        break  # those under way are given up
    assert len(list(made.stream(raws))) == len(raws)


@pytest.mark.usefixtures("on_gpu")
def test_a_pipeline_is_closed_under_a_stream() -> None:
    made = Pipeline(products="dolp", backend="cuda")
    stream = made.stream([mosaic(seed) for seed in range(4)])
    next(stream)
    pending = made.submit(mosaic(4))
    made.close()
    stream.close()  # type: ignore[attr-defined] - it is a generator, and gives up what is under way
    with pytest.raises(RuntimeError, match="this pipeline is closed"):
        made.result(pending)


# ------------------------------------------------------------------------------------------------- on a real GPU alone


@pytest.fixture(params=on_gpus)
def real(request: pytest.FixtureRequest) -> Driver:
    return real_driver(request.param)


@pytest.mark.whole_gpu
@pytest.mark.parametrize("real", on_gpus[:1], indirect=True)
def test_gpu_out_of_memory_and_after(real: Driver) -> None:
    import cupy

    free, _ = cupy.cuda.runtime.memGetInfo()
    rest = 16 << 20
    ballast = real.malloc(free - rest)
    try:
        made = make(real, "stokes", resolution="full")
        with pytest.raises(DeviceMemoryError, match=r"3 frames need \d+ bytes"):
            made.prepare(RawFrame(np.zeros((2048, 2448), np.uint8), 255))
        made.close()
    finally:
        real.free(ballast)
    made = make(real, "stokes", resolution="full")
    made.prepare(RawFrame(np.zeros((2048, 2448), np.uint8), 255))
    made.close()


def test_gpu_frames_in_flight_at_once_are_as_single_ones(real: Driver) -> None:
    """Each in two launches, in a stream of its own."""
    products = ("angle_0", "intensity", "dolp", "ssim_map", "ssim")
    made = make(real, products, sensor="IMX250MYR", dtype="uint8", co_sited=False)
    raws = np.random.default_rng(0).integers(10, 200, (made.depth, 1024, 1232)).astype(np.uint8)
    frames = [RawFrame(raw, 255) for raw in raws]

    def contents(found: Any) -> List[bytes]:
        return [found[name].tobytes() for name in products]

    alone = [contents(run(made, frame)) for frame in frames]
    for _ in range(50):
        tickets = [made.submit(frame) for frame in frames]
        assert [contents(ticket()) for ticket in tickets] == alone
    made.close()


ASTRAY = """
import cupy
import numpy as np
from polar_pipeline.backends.cuda.backend import CudaBackend
from polar_pipeline.backends.backend import DeviceLostError
from polar_pipeline.backends.cuda.driver import Driver
from polar_pipeline.options import Options, make_options
from polar_pipeline.sensor.frames import RawFrame
driver, options = Driver(), make_options(products=("intensity",))
made = CudaBackend(options, driver)
frame = RawFrame(np.full((32, 32), 100, np.uint8), 255)
held = made.submit(frame)()["intensity"]
code = 'extern "C" __global__ void astray(long long place) { *(int*)place = 1; }'
cupy.RawKernel(code, "astray")((1,), (32,), (np.int64(8),))
for attempt in range(2):
    try:
        made.submit(frame)()
    except DeviceLostError as err:
        print("lost:", err)
made.close()
made.close()
assert np.allclose(held, 100 / 255, atol=2e-3)
print("closed")
"""


@pytest.mark.parametrize("real", on_gpus[:1], indirect=True)
@pytest.mark.usefixtures("real")
def test_gpu_after_a_fault() -> None:
    """In a process of its own, which a fault spoils for good."""
    done = subprocess.run([sys.executable, "-c", ASTRAY], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("lost: ") == 2, done.stdout + done.stderr
    assert "closed" in done.stdout
    assert "polar_pipeline" not in done.stderr, "CuPy's own modules say that they cannot be unloaded"
