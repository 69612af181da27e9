"""The CUDA backend: one fused launch per frame, compiled for the frame's format and scheduled for the device."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Dict, NamedTuple, Optional, Tuple

import numpy as np

from polar_pipeline.cpu.strips import compare, cores
from polar_pipeline.cuda.compile import compile_cubin
from polar_pipeline.cuda.driver import Driver
from polar_pipeline.cuda.memory import SLOTS, FrameBuffers, Slot
from polar_pipeline.cuda.schedule import Schedule, choose, grid, schedule_defines, shared_bytes
from polar_pipeline.cuda.work import FRAME, OUTPUTS, Work, defines, make_work
from polar_pipeline.options import Options, make_options
from polar_pipeline.output import Buffers, Output
from polar_pipeline.plan import Plan, make_plan
from polar_pipeline.products import PRODUCTS
from polar_pipeline.sensor import Frame, PackedFrame, RawFrame

#: Formats of frames that are kept ready.
_KEPT = 4


class Ticket(NamedTuple):
    """A frame under way.

    Attributes:
        launch: What works on it.
        slot: Where.
        arrays: What is being filled, by output.
        staging: Seconds that its bytes took to pinned memory.
    """

    launch: Launch
    slot: Slot
    arrays: Dict[str, np.ndarray]
    staging: float


class Launch:
    """A plan, ready to run on frames of one format and shape.

    Args:
        driver: The device.
        work: What the kernel does.
        options: What to compute.

    Raises:
        CompileError: The kernel does not compile.
        DeviceMemoryError: The device is too small.
        ScheduleError: No schedule fits the device.
    """

    def __init__(self, driver: Driver, work: Work, options: Options) -> None:
        self._driver = driver
        self._work = work
        self._schedule: Schedule = choose(work, driver.device)
        self._shared = shared_bytes(work, self._schedule)
        flags = {**defines(work), **schedule_defines(work, self._schedule)}
        cubin = compile_cubin(self._schedule.kernel, flags, driver.device.arch)
        self._kernel = driver.load(cubin, self._schedule.kernel, self._shared)
        shapes = {name: _output_shape(name, work) for name in work.dtypes}
        self._arrays = {name: (shapes[name], work.dtypes[name]) for name in shapes}
        sizes = {name: int(np.prod(shape)) * np.dtype(dtype).itemsize for name, (shape, dtype) in self._arrays.items()}
        self._step = _row_bytes(work)
        try:
            self._buffers = FrameBuffers(driver, work.height * self._step, sizes)
        except RuntimeError:
            driver.unload(self._kernel)
            raise
        self._frame = np.zeros((), FRAME)
        self._frame["raw_stride"] = work.height * self._step
        self._frame["width"], self._frame["height"] = work.width, work.height
        self._frame["step"] = self._step
        self._frame["full_scale"] = work.full_scale
        self._frame["min_intensity"] = options.min_intensity

    def submit(self, rows: np.ndarray, buffers: Buffers) -> Ticket:
        """Start on a frame.

        Args:
            rows: (H, ...) pixels or packed bytes.
            buffers: Where pinned arrays for the outputs come from.

        Raises:
            DeviceLostError: The device stopped working.
            RuntimeError: Too many frames are under way.
        """
        driver, slot = self._driver, self._buffers.take()
        stream, (start, uploaded, computed, done) = slot.stream, slot.marks
        began = time.perf_counter()
        np.copyto(slot.raw.view(rows.dtype).reshape(rows.shape), rows)
        staging = time.perf_counter() - began
        slot.hold = {name: buffers.get(*kind) for name, kind in self._arrays.items()}
        integrated = driver.device.integrated
        driver.record(start, stream)
        if not integrated:
            driver.upload(slot.raw_pointer, slot.raw, stream)
        driver.clear(slot.counts_pointer, slot.counts.nbytes, stream)
        driver.record(uploaded, stream)
        self._frame["raw"], self._frame["counts"] = slot.raw_pointer, slot.counts_pointer
        for name, array in slot.hold.items():
            self._frame["out"][OUTPUTS.index(name)] = array.ctypes.data if integrated else slot.outputs[name]
        blocks, threads = grid(self._work, self._schedule), self._schedule.threads
        driver.launch(self._kernel, blocks, threads, self._shared, stream, self._frame)
        driver.record(computed, stream)
        if not integrated:
            for name, array in slot.hold.items():
                driver.download(array, slot.outputs[name], stream)
        driver.download(slot.counts, slot.counts_pointer, stream)
        driver.record(done, stream)
        return Ticket(self, slot, slot.hold, staging)

    def collect(self, ticket: Ticket) -> Dict[str, float]:
        """Wait for a frame; gives seconds per stage.

        Raises:
            DeviceLostError: The device stopped working.
        """
        start, uploaded, computed, done = ticket.slot.marks
        self._driver.wait(done)
        ticket.slot.hold = {}
        return {
            "upload": ticket.staging + self._driver.elapsed(start, uploaded),
            "kernel": self._driver.elapsed(uploaded, computed),
            "download": self._driver.elapsed(computed, done),
        }

    def close(self) -> None:
        """Give everything back."""
        self._buffers.close()
        self._driver.unload(self._kernel)


def _output_shape(name: str, work: Work) -> Tuple[int, ...]:
    """Shape of an output's array."""
    if name in PRODUCTS:
        return PRODUCTS[name].shape(work.output_size, work.sensor.is_color)
    return (2, *work.output_size) if name == "sums" else work.output_size


def _row_bytes(work: Work) -> int:
    """Bytes of a raw row without padding."""
    if work.raw_format in ("u8", "u16"):
        return work.width * {"u8": 1, "u16": 2}[work.raw_format]
    whole = work.width + work.width % 2 if work.raw_format == "12packed" else work.width
    return (3 * whole + 1) // 2


class CudaBackend:
    """Runs a plan on frames.

    Args:
        plan: What to compute.
        options: How.
        threads: CPU threads for what runs there; 0 for one per core.
        driver: The GPU; by default the first.

    Raises:
        RuntimeError: There is no GPU, or no CuPy.
    """

    #: Frames that can be under way.
    depth = SLOTS

    def __init__(self, plan: Plan, options: Options, threads: int = 0, driver: Optional[Driver] = None) -> None:
        self._plan = plan
        self._options = options
        self._driver = driver or Driver()
        self._launches: Dict[Tuple[str, int, Tuple[int, int]], Launch] = {}
        self._pinned = Buffers(self._driver.host_array)
        self._buffers = Buffers()
        self._pool = ThreadPoolExecutor(threads or cores(), "polar_pipeline")

    @property
    def device(self) -> str:
        """What it runs on, for people."""
        return f"cuda ({self._driver.name}, {self._driver.device.arch})"

    def is_ready(self, frame: Frame) -> bool:
        """Whether the kernel for frames like this one is compiled and loaded."""
        return _key(_readable(frame)) in self._launches

    def prepare(self, frame: Frame) -> None:
        """Compile and load the kernel for frames like this one, and get its memory.

        Raises:
            CompileError: The kernel does not compile.
            DeviceMemoryError: The device is too small.
            DeviceLostError: The device stopped working.
        """
        self._launch(_readable(frame))

    def _launch(self, frame: Frame) -> Launch:
        key = _key(frame)
        launch = self._launches.pop(key, None)
        if launch is None:
            work = make_work(self._plan, self._options, *key)
            launch = Launch(self._driver, work, self._options)
        self._launches[key] = launch  # last: the others are older
        if len(self._launches) > max(_KEPT, SLOTS):
            self._launches.pop(next(iter(self._launches))).close()
        return launch

    def submit(self, frame: Frame) -> Ticket:
        """Start on a frame, without waiting for it; at most `depth` can be under way.

        Raises:
            CompileError: Its kernel does not compile.
            DeviceMemoryError: The device is too small.
            DeviceLostError: The device stopped working.
            RuntimeError: `depth` frames are under way.
        """
        frame = _readable(frame)
        rows = frame.rows if isinstance(frame, PackedFrame) else frame.mosaic
        return self._launch(frame).submit(rows, self._pinned)

    def result(self, ticket: Ticket, other: Optional[np.ndarray] = None) -> Output:
        """Wait for a frame; frames come back in the order in which they were submitted.

        Args:
            ticket: What `submit` gave.
            other: (h, w) float32 that SSIM compares S0/2 with; None in mode `consistency` and for a first frame.

        Raises:
            DeviceLostError: The device stopped working.
        """
        plan, options, arrays = self._plan, self._options, ticket.arrays
        timings = ticket.launch.collect(ticket)
        saturated, dark = (int(count) for count in ticket.slot.counts)
        products = {name: arrays[name] for name in plan.products if name in arrays}
        value = None
        if plan.window:
            began = time.perf_counter()
            one = arrays["sums"][0] if options.ssim_mode == "consistency" else arrays["s0"]
            for name in plan.products:
                if name not in products:
                    shape = PRODUCTS[name].shape(one.shape, options.sensor.is_color)
                    products[name] = self._buffers.get(shape, options.dtype_of(name))
            compare(self._pool, one, arrays["sums"][1] if options.ssim_mode == "consistency" else other, products)
            timings["ssim"] = time.perf_counter() - began
            value = one if options.ssim_mode == "temporal" else None
        return Output({name: products[name] for name in plan.products}, timings, (saturated, dark), value)

    def close(self) -> None:
        """Give everything back but the results that somebody holds; safe on a lost device, and twice."""
        for launch in self._launches.values():
            launch.close()
        self._launches.clear()
        self._pool.shutdown()


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
    """Why the backend cannot work on this machine, None if it can: a small frame was computed."""
    backend = None
    try:
        backend = CudaBackend(make_plan(("dolp",)), make_options(products=("dolp",)), 1)
        backend.result(backend.submit(RawFrame(np.zeros((32, 32), np.uint8), 255)))
    except (RuntimeError, ValueError, OSError) as err:
        return str(err)
    finally:
        if backend is not None:
            backend.close()
    return None
