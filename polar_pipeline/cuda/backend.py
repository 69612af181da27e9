"""The CUDA backend: at most two launches per frame, compiled for its format and scheduled for the device."""

from __future__ import annotations

import math
import time
from contextlib import suppress
from functools import lru_cache
from typing import Dict, Mapping, NamedTuple, Optional, Tuple

import numpy as np

from polar_pipeline.backend import Buffers, Output
from polar_pipeline.cuda.compile import compile_kernel
from polar_pipeline.cuda.driver import DeviceError, DeviceLostError, DeviceMemoryError, Driver
from polar_pipeline.cuda.memory import SLOTS, FrameBuffers, Sizes, Slot
from polar_pipeline.cuda.model import ssim
from polar_pipeline.cuda.model.partition import partitions
from polar_pipeline.cuda.model.schedule import Schedule, grid, schedule_defines, shared_bytes
from polar_pipeline.cuda.model.ssim import COMPARISON, Similarity
from polar_pipeline.cuda.model.work import CAMERA_FORMATS, FRAME, OUTPUTS, PAIRS, Work, defines, make_work, noise_frames
from polar_pipeline.options import Options, make_options
from polar_pipeline.plan import Plan, make_plan
from polar_pipeline.sensor.frames import Frame, PackedFrame, RawFrame

#: Formats of frames that are kept ready.
_KEPT = 4
#: Frames whose times count where kinds of memory are compared, and those before them, which find cold caches.
_MEASURED, _WARM_UP = 5, 2
#: Place of a mark in `Slot.marks`.
_COMPUTED = 3
#: Shape and type of an array.
_Kind = Tuple[Tuple[int, ...], str]


class Ticket(NamedTuple):
    """A frame under way.

    Attributes:
        launch: What works on it.
        slot: Where.
        arrays: What is being filled, by output.
        staging: Seconds that its bytes took to pinned memory.
        is_compared: Whether SSIM has something to compare with.
    """

    launch: Launch
    slot: Slot
    arrays: Dict[str, np.ndarray]
    staging: float
    is_compared: bool


class _Comparison:
    """The second launch: similarity of images that are on the device.

    Args:
        driver: The device.
        work: What the kernel does.
        schedule: How.

    Attributes:
        kinds: Arrays that it fills for the host, by name: `ssim_map` if wanted, `ssim`, and `blocks`.
        scratch: Bytes of what it needs on the device, by name.

    Raises:
        CompileError: The kernel does not compile.
    """

    def __init__(self, driver: Driver, work: Similarity, schedule: Schedule) -> None:
        self._driver = driver
        self._schedule = schedule
        self._grid = ssim.grid(work, self._schedule)
        self._shared = ssim.shared_bytes(self._schedule)
        flags = {**ssim.defines(work), **ssim.schedule_defines(self._schedule)}
        self._kernel = driver.load(compile_kernel("ssim", flags, driver.device.arch), "ssim", self._shared)
        self.kinds: Dict[str, _Kind] = {"ssim": ((), "float32"), "blocks": (work.block_size, "float32")}
        if work.map_dtype:
            self.kinds["ssim_map"] = (work.map_size, work.map_dtype)
        self.scratch = {"pieces": 4 * ssim.pieces(work, self._schedule), "done": 4}

    def launch(self, stream: int, first: int, second: int, places: Mapping[str, int]) -> None:
        """Start on two images, or twice the mosaic, in the stream's order.

        Args:
            stream: Its stream.
            first: Where an image lies, or the mosaic.
            second: And the other one.
            places: Where everything in `kinds` and `scratch` lies.
        """
        argument = np.zeros((), COMPARISON)
        argument["first"], argument["second"] = first, second
        argument["mean"] = places["ssim"]
        argument["map"] = places.get("ssim_map", 0)
        for name in ("blocks", *self.scratch):
            argument[name] = places[name]
        self._driver.launch(self._kernel, self._grid, self._schedule.threads, self._shared, stream, argument)

    def close(self) -> None:
        """Give everything back."""
        self._driver.unload(self._kernel)


class Launch:
    """A plan, ready to run on frames of one format and shape.

    Args:
        driver: The device.
        work: What the first kernel does, with what SSIM compares among its outputs; that is not stored where SSIM is
            predicted to be faster from the mosaic.
        plan: What to compute.
        options: How.
        maps_host: Whether kernels work on pinned host memory, rather than on copies in device memory.

    Attributes:
        maps_host: The same.

    Raises:
        CompileError: A kernel does not compile.
        DeviceMemoryError: The device is too small.
        ScheduleError: No schedule fits the device.
    """

    def __init__(self, driver: Driver, work: Work, plan: Plan, options: Options, maps_host: bool) -> None:
        self._driver = driver
        self.maps_host = maps_host
        chosen = partitions(work, plan, options, driver.device._replace(maps_host=maps_host))[0]
        self._work = work = chosen.work
        self._mode = options.ssim_mode
        self._is_fused = chosen.is_fused
        self._schedule: Schedule = chosen.schedule
        self._shared = shared_bytes(work, self._schedule)
        flags = {**defines(work), **schedule_defines(work, self._schedule)}
        code = compile_kernel(self._schedule.kernel, flags, driver.device.arch)
        self._kernel = driver.load(code, self._schedule.kernel, self._shared)
        self._comparison: Optional[_Comparison] = None
        self._kinds: Dict[str, _Kind] = {
            name: (options.shape_of(name, work.output_size), dtype) for name, dtype in work.outputs if name not in PAIRS
        }
        scratch: Dict[str, int] = {}
        reference = 0
        self._step = CAMERA_FORMATS[work.raw_format].row_bytes(work.width)
        try:
            if chosen.similarity is not None and chosen.comparison is not None:
                self._comparison = _Comparison(driver, chosen.similarity, chosen.comparison)
                self._kinds.update(self._comparison.kinds)
                scratch = dict(self._comparison.scratch)
                for name, dtype in work.outputs:
                    if name in PAIRS:
                        self._plane = int(np.prod(work.output_size)) * np.dtype(dtype).itemsize
                        scratch[name] = self._plane * (2 if name == "sums" else 1)
                        reference = self._plane if self._mode == "reference" else 0
            outputs = {
                name: int(np.prod(shape)) * np.dtype(dtype).itemsize for name, (shape, dtype) in self._kinds.items()
            }
            sizes = Sizes(work.height * self._step, outputs, scratch, reference)
            self._buffers = FrameBuffers(driver, sizes, maps_host)
        except RuntimeError:
            self._unload()
            raise
        self._frame = np.zeros((), FRAME)
        self._frame["raw_stride"] = work.height * self._step
        self._frame["width"], self._frame["height"] = work.width, work.height
        self._frame["step"] = self._step
        self._frame["full_scale"] = work.full_scale
        self._frame["min_intensity"] = options.min_intensity
        self._former: Optional[Slot] = None  # of the frame before here, in mode `temporal`
        self._is_first = True  # nothing to compare the next frame with
        self._reference = np.empty(0, np.float32)
        self._version = 0

    def submit(self, rows: np.ndarray, buffers: Buffers, reference: Optional[np.ndarray] = None) -> Ticket:
        """Start on a frame.

        Args:
            rows: (H, ...) pixels or packed bytes.
            buffers: Where pinned arrays for the outputs come from.
            reference: (h, w) float32 that SSIM compares S0/2 with, in mode `reference`.

        Raises:
            DeviceLostError: The device stopped working.
            RuntimeError: Too many frames are under way.
        """
        slot = self._buffers.take()
        began = time.perf_counter()
        np.copyto(slot.raw.view(rows.dtype).reshape(rows.shape), rows)
        is_new = reference is not None and self._stage_reference(slot, reference)
        staging = time.perf_counter() - began
        slot.hold = {name: buffers.get(*kind) for name, kind in self._kinds.items()}
        try:
            is_compared = self._enqueue(slot, is_new)
        except BaseException:
            self._give_up(slot)
            raise
        return Ticket(self, slot, slot.hold, staging, is_compared)

    def _enqueue(self, slot: Slot, is_new: bool) -> bool:
        """Put a frame's work into its stream, its reference too if it is new; gives whether SSIM compares."""
        driver, stream = self._driver, slot.stream
        start, uploaded, polarized, computed, done = slot.marks
        driver.record(start, stream)
        if not self.maps_host:
            driver.upload(slot.raw_pointer, slot.raw, stream)
            if is_new:
                driver.upload(slot.reference_pointer, slot.reference, stream)
        driver.clear(slot.counts_pointer, slot.counts.nbytes, stream)
        driver.record(uploaded, stream)
        if self._former is not None:  # its S0 is read, and what it read itself is overwritten
            driver.follow(stream, self._former.marks[_COMPUTED])
        hold = {name: array.ctypes.data for name, array in slot.hold.items()}
        places = {**(hold if self.maps_host else slot.outputs), **slot.scratch}
        self._frame["raw"], self._frame["counts"] = slot.raw_pointer, slot.counts_pointer
        for name in self._work.dtypes:
            self._frame["out"][OUTPUTS.index(name)] = places[name]
        blocks, threads = grid(self._work, self._schedule), self._schedule.threads
        driver.launch(self._kernel, blocks, threads, self._shared, stream, self._frame)
        driver.record(polarized, stream)
        is_compared = self._compare(slot, places)
        driver.record(computed, stream)
        if not self.maps_host:
            for name, array in slot.hold.items():
                if is_compared or self._comparison is None or name not in self._comparison.kinds:
                    driver.download(array, slot.outputs[name], stream)
        driver.download(slot.counts, slot.counts_pointer, stream)
        driver.record(done, stream)
        return is_compared

    def _give_up(self, slot: Slot) -> None:
        """Free the place of a frame that failed half-way, once the device has left it."""
        with suppress(DeviceError):
            self._driver.record(slot.marks[-1], slot.stream)
            self._driver.wait(slot.marks[-1])
        slot.hold, slot.version = {}, 0
        self.forget()

    def _stage_reference(self, slot: Slot, reference: np.ndarray) -> bool:
        """Put the reference where the slot's frame finds it; gives whether it was another one before."""
        if not np.array_equal(reference, self._reference):
            self._reference = reference.copy()
            self._version += 1
        if slot.version == self._version:
            return False
        slot.version = self._version
        staged = slot.reference.view(self._work.dtypes["s0"]).reshape(reference.shape)
        np.copyto(staged, reference, casting="same_kind")
        return True

    def _compare(self, slot: Slot, places: Mapping[str, int]) -> bool:
        """Start the second launch, if there is one and it has something to compare with."""
        if self._comparison is None:
            return False
        former = self._former
        first = slot.raw_pointer if self._is_fused else places["sums" if self._mode == "consistency" else "s0"]
        second: Optional[int] = first
        if self._mode == "consistency" and not self._is_fused:
            second = first + self._plane
        elif self._mode == "reference":
            second = slot.reference_pointer
        elif self._mode == "temporal":
            second = None if former is None or self._is_first else former.scratch["s0"]
            self._former, self._is_first = slot, False
        if second is not None:
            self._comparison.launch(slot.stream, first, second, places)
        return second is not None

    def forget(self) -> None:
        """Compare the next frame with none before it; it still follows that one, whose S0 may be in use."""
        self._is_first = True

    @property
    def is_busy(self) -> bool:
        """Whether a frame is under way here."""
        return self._buffers.is_busy

    def collect(self, ticket: Ticket) -> Dict[str, float]:
        """Wait for a frame; gives seconds per stage.

        Raises:
            DeviceLostError: The device stopped working.
            RuntimeError: Its result was taken before, or this is closed.
        """
        if ticket.slot.hold is not ticket.arrays:
            raise RuntimeError("the frame is not under way: its result was taken, or its pipeline closed")
        start, uploaded, polarized, computed, done = ticket.slot.marks
        self._driver.wait(done)
        ticket.slot.hold = {}
        if self._comparison is not None and not ticket.is_compared:
            for name in self._comparison.kinds:
                ticket.arrays[name].fill(0 if ticket.arrays[name].dtype == np.uint8 else np.nan)
        timings = {
            "upload": ticket.staging + self._driver.elapsed(start, uploaded),
            "kernel": self._driver.elapsed(uploaded, polarized),
            "ssim": self._driver.elapsed(polarized, computed),
            "download": self._driver.elapsed(computed, done),
        }
        if self._comparison is None:
            del timings["ssim"]
        return timings

    def measure(self, buffers: Buffers) -> float:
        """Seconds that a frame takes, from the caller's array to the caller's arrays: the median of a few, of noise.

        Args:
            buffers: Where pinned arrays for the outputs come from.

        Raises:
            DeviceMemoryError: The device is too small.
            DeviceLostError: The device stopped working.
        """
        (rows,) = noise_frames(self._work, 1)
        reference = np.zeros(self._work.output_size, np.float32) if self._mode == "reference" else None
        try:
            frames = [self.collect(self.submit(rows, buffers, reference)) for _ in range(_WARM_UP + _MEASURED)]
        finally:
            self.forget()
        return float(np.median([sum(timings.values()) for timings in frames[_WARM_UP:]]))

    def close(self) -> None:
        """Give everything back."""
        self._buffers.close()
        self._unload()

    def _unload(self) -> None:
        self._driver.unload(self._kernel)
        if self._comparison is not None:
            self._comparison.close()


def make_launch(driver: Driver, work: Work, plan: Plan, options: Options, buffers: Buffers) -> Launch:
    """What works on frames of a format; on an integrated GPU with the faster one of both kinds of memory, as measured.

    Such a GPU reads what the CPU wrote without a copy, but does not cache it (NVIDIA, CUDA for Tegra): which of both
    costs less depends on the device, and on how often kernels read a line again.

    Args:
        driver: The device.
        work: See `Launch`.
        plan: What to compute.
        options: How.
        buffers: Where pinned arrays for the outputs come from.

    Raises:
        CompileError: A kernel does not compile.
        DeviceError: The device is too small, or stopped working.
        ScheduleError: No schedule fits the device.
    """

    def make(maps_host: bool) -> Launch:
        return Launch(driver, work, plan, options, maps_host)

    if not driver.device.integrated:
        return make(driver.device.maps_host)
    seconds: Dict[Launch, float] = {}
    chosen: Optional[Launch] = None
    try:
        mapped = make(True)
        seconds[mapped] = math.inf
        seconds[mapped] = mapped.measure(buffers)
        with suppress(DeviceMemoryError):  # copies take more
            copied = make(False)
            seconds[copied] = math.inf
            seconds[copied] = copied.measure(buffers)
        chosen = min(seconds, key=seconds.__getitem__)
        return chosen
    finally:
        for launch in seconds:
            if launch is not chosen:
                launch.close()


class CudaBackend:
    """Runs a plan on frames.

    Args:
        plan: What to compute.
        options: How.
        driver: The GPU; by default the first.

    Raises:
        RuntimeError: There is no GPU, or no CuPy.
    """

    #: Frames that can be under way.
    depth = SLOTS

    def __init__(self, plan: Plan, options: Options, driver: Optional[Driver] = None) -> None:
        self._plan = plan
        self._options = options
        self._driver = driver or Driver()
        self._launches: Dict[Tuple[str, int, Tuple[int, int]], Launch] = {}
        self._pinned = Buffers(self._driver.host_array)
        self._latest: Optional[Launch] = None  # of the frame before

    @property
    def device(self) -> str:
        """What it runs on, as text; where it was measured on frames, whether it works on the host's memory."""
        facts = [self._driver.name, self._driver.device.arch]
        if self._driver.device.integrated and self._launches:
            latest = list(self._launches.values())[-1]
            facts.append("host memory mapped" if latest.maps_host else "copies in device memory")
        return f"cuda ({', '.join(facts)})"

    def is_ready(self, frame: Frame) -> bool:
        """Whether the kernel for frames like this one is compiled and loaded."""
        return _key(_readable(frame)) in self._launches

    def prepare(self, frame: Frame) -> None:
        """Compile and load the kernels for frames like this one, and get its memory.

        Raises:
            CompileError: The kernel does not compile.
            DeviceMemoryError: The device is too small.
            DeviceLostError: The device stopped working.
        """
        with self._driver.selected():
            self._launch(_readable(frame))

    def _launch(self, frame: Frame) -> Launch:
        key = _key(frame)
        launch = self._launches.pop(key, None)
        if launch is None:
            work = make_work(self._plan, self._options, *key)
            launch = make_launch(self._driver, work, self._plan, self._options, self._pinned)
        if len(self._launches) >= _KEPT:
            idle = next((key for key, row in self._launches.items() if not row.is_busy), None)
            if idle is not None:
                self._launches.pop(idle).close()
        self._launches[key] = launch  # last: the others are older
        return launch

    def submit(self, frame: Frame, reference: Optional[np.ndarray] = None) -> Ticket:
        """Start on a frame, without waiting for it; at most `depth` can be under way.

        Args:
            frame: The mosaic.
            reference: (h, w) float32 that SSIM compares S0/2 with, in mode `reference`; uploaded when it changes.

        Raises:
            CompileError: Its kernel does not compile.
            DeviceMemoryError: The device is too small.
            DeviceLostError: The device stopped working.
            RuntimeError: `depth` frames are under way.
        """
        frame = _readable(frame)
        rows = frame.rows if isinstance(frame, PackedFrame) else frame.mosaic
        with self._driver.selected():
            launch = self._launch(frame)
            if launch is not self._latest:  # what that one had before is not the frame before
                launch.forget()
                self._latest = launch
            return launch.submit(rows, self._pinned, reference)

    def result(self, ticket: Ticket) -> Output:
        """Wait for a frame; frames come back in the order in which they were submitted.

        Raises:
            DeviceLostError: The device stopped working.
            RuntimeError: Its result was taken before, or this is closed.
        """
        with self._driver.selected():
            timings = ticket.launch.collect(ticket)
        saturated, dark = (int(count) for count in ticket.slot.counts)
        products = {name: ticket.arrays[name] for name in self._plan.products}
        return Output(products, timings, (saturated, dark), ticket.arrays.get("blocks"))

    def reset(self) -> None:
        """Forget the frame before (SSIM mode `temporal`)."""
        self._latest = None

    def close(self) -> None:
        """Give everything back but the results that somebody holds; safe on a lost device, and twice."""
        with self._driver.selected():
            for launch in self._launches.values():
                launch.close()
        self._launches.clear()
        self._latest = None


def _readable(frame: Frame) -> Frame:
    """A frame that kernels can read: 10-bit packed pixels are unpacked here."""
    return frame.unpack() if isinstance(frame, PackedFrame) and frame.fmt.bits != 12 else frame


def _key(frame: Frame) -> Tuple[str, int, Tuple[int, int]]:
    """(raw format, full scale, shape): what a kernel is compiled for."""
    if isinstance(frame, PackedFrame):
        return {"p": "12p", "packed": "12packed"}[frame.fmt.packing], frame.full_scale, frame.shape
    return {1: "u8", 2: "u16"}[frame.mosaic.itemsize], frame.full_scale, frame.shape


@lru_cache(maxsize=1)
def problem() -> Optional[str]:
    """Why the backend cannot work on this machine, None if it can: a small frame was computed.

    A GPU that is full or was lost is none of the reasons: that may pass, and whoever uses it is told by every frame.
    """
    backend = None
    try:
        backend = CudaBackend(make_plan(("dolp",)), make_options(products=("dolp",)))
        backend.result(backend.submit(RawFrame(np.zeros((32, 32), np.uint8), 255)))
    except (DeviceMemoryError, DeviceLostError):
        return None
    except (RuntimeError, ValueError, OSError) as err:
        return str(err)
    finally:
        if backend is not None:
            backend.close()
    return None
