"""The launches of a frame, made ready on the GPU for frames of one format and size."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, Callable, Dict, Mapping, Optional, Tuple

import numpy as np

from polar_pipeline.backends.backend import Buffers, CupyArray, DeviceError, Result
from polar_pipeline.backends.cuda.arguments import FRAME_ARGUMENT, as_compared, fill_options
from polar_pipeline.backends.cuda.correction import DeviceCorrection
from polar_pipeline.backends.cuda.device_arrays import DeviceResult
from polar_pipeline.backends.cuda.driver import Driver
from polar_pipeline.backends.cuda.launch import UNUSED_COUNTS, ArrayType, SsimLaunch, TransformLaunch, compile_launch
from polar_pipeline.backends.cuda.memory import SLOTS, Sizes, Slot, device_bytes, make_slots, stage
from polar_pipeline.backends.cuda.work import (
    CAMERA_FORMATS,
    OUTPUTS,
    PAIRS,
    PolarizationWork,
    SsimWork,
    TransformWork,
    Work,
)
from polar_pipeline.options import Options
from polar_pipeline.options.products import invalid_level

#: Index of an event in `Slot.marks`.
_COMPUTED = 4
#: Alignment of the first row that kernels rely on, bytes.
ROW_ALIGNMENT = 16


class PreparedLaunches:
    """The launches of a frame, compiled, with their memory.

    Args:
        driver: The device.
        works: Works of the launches in order, by `make_works`.
        options: Options of the pipeline.
        maps_host: Whether kernels work on pinned host memory, rather than on copies in device memory.
        correction: Correction of the frames, with a calibration.
        frames: Number of frames of a batch, which each launch computes; 0 for single frames.

    Attributes:
        maps_host: The same.
        output_size: (height, width) of the products.
        memory: Bytes of host or device memory that kernels use.

    Raises:
        CompileError: A kernel does not compile.
        DeviceMemoryError: The device is too small.
        ScheduleError: No schedule fits the device.
    """

    def __init__(
        self,
        driver: Driver,
        works: Tuple[Work, ...],
        options: Options,
        maps_host: bool,
        correction: Optional[DeviceCorrection] = None,
        frames: int = 0,
    ) -> None:
        self._driver = driver
        self._correction = correction
        self._replaces_defects = correction is not None and correction.has_defects
        self._count = count = max(1, frames)
        self._stays = options.output == "device"
        self.maps_host = maps_host
        work = next(row for row in works if isinstance(row, PolarizationWork))
        transform = next((row for row in works if isinstance(row, TransformWork)), None)
        ssim = next((row for row in works if isinstance(row, SsimWork)), None)
        products = transform or work
        self._work = work
        self._places = [(name, OUTPUTS.index(name)) for name in work.dtypes]
        self._products = options.products
        self._mode = options.ssim_mode
        self.output_size = products.output_size
        self._row_bytes = CAMERA_FORMATS[work.raw_format].row_bytes(work.width)
        #: What SSIM reads and the launch before it stores -> bytes of one image.
        self._plane_bytes = {
            name: int(np.prod(self.output_size)) * np.dtype(dtype).itemsize
            for name, dtype in products.outputs
            if name in PAIRS
        }
        self._ssim: Optional[SsimLaunch] = None
        self._transform: Optional[TransformLaunch] = None
        self._outputs: Dict[str, ArrayType] = {
            name: (options.shape_of(name, self.output_size), dtype)
            for name, dtype in products.outputs
            if name not in PAIRS
        }
        with ThreadPoolExecutor() as pool:  # each kernel takes up to a second to compile
            kernels = [pool.submit(compile_launch, driver, row, count) for row in (work, ssim) if row is not None]
            if transform is not None:
                self._transform = TransformLaunch(driver, transform, options, work.full_scale, count)
        self._polarization = kernels[0].result()
        if ssim is not None:
            outside = None if self._transform is None else self._transform.outside
            self._ssim = SsimLaunch(driver, ssim, kernels[1].result(), outside)
            self._outputs.update(self._ssim.outputs)
        if frames:
            self._outputs = {name: ((frames, *shape), dtype) for name, (shape, dtype) in self._outputs.items()}
        sizes = self._sizes()
        self._slots = make_slots(driver, sizes, maps_host, self._stays)
        self.memory = device_bytes(sizes, maps_host=False)  # on an integrated GPU, mapped memory is the device's, too
        self._argument = np.zeros((), FRAME_ARGUMENT)
        self._addresses = self._argument["out"]  # a view
        self._argument["raw_stride"] = work.height * self._row_bytes
        self._argument["width"], self._argument["height"] = work.width, work.height
        self._argument["step"] = self._row_bytes
        fill_options(self._argument, options, work.full_scale)
        if correction is not None:
            correction.fill(self._argument)
        self._previous: Optional[Slot] = None  # of the previous frame, in mode `temporal`
        self._is_first = True  # nothing to compare the next frame with
        self._reference_type = products.dtypes.get("s0", "")

    def _sizes(self) -> Sizes:
        """Return the sizes of the buffers of a frame in bytes."""
        scratch = {} if self._ssim is None else dict(self._ssim.scratch)
        if self._transform is not None:
            scratch.update(self._transform.scratch)
        for name, plane in self._plane_bytes.items():
            scratch[name] = plane * (2 if name == "sums" else 1)
        reference = self._plane_bytes["s0"] if self._mode == "reference" and self._plane_bytes else 0
        outputs = {
            name: int(np.prod(shape)) * np.dtype(dtype).itemsize for name, (shape, dtype) in self._outputs.items()
        }
        all_scratch = {name: self._count * size for name, size in scratch.items()}
        return Sizes(self._count * self._work.height * self._row_bytes, outputs, all_scratch, reference, self._count)

    def submit(
        self, rows: CupyArray, buffers: Buffers, reference: Optional[np.ndarray] = None, is_pinned: bool = False
    ) -> Callable[[], Result]:
        """Start computing a frame.

        Args:
            rows: (H, ...) pixels or packed bytes; or a CuPy array of pixels, (N, H, W) of a batch.
            buffers: Source of pinned arrays for the outputs.
            reference: (h, w) float32 that SSIM compares S0/2 with, in mode `reference`.
            is_pinned: Whether the device can read `rows` where they lie.

        Returns:
            What waits for the frame and returns its results; a DeviceLostError or, for results that were taken before,
            a RuntimeError comes from there.

        Raises:
            DeviceLostError: The device stopped working.
            RuntimeError: Too many frames are in flight.
        """
        slot = self._slots[0]
        if slot.hold:
            raise RuntimeError(f"{SLOTS} frames are in flight: take a result before the next frame")
        self._slots.rotate(-1)
        if self._stays:
            self._reuse(slot, rows)
        slot.use += 1
        slot.source = rows
        is_new = False
        if reference is not None and self._ssim is not None and not np.array_equal(reference, slot.staged):
            is_new, slot.staged = True, reference.copy()
            compared = as_compared(reference, self._reference_type)
            slot.reference.view(compared.dtype).reshape(compared.shape)[...] = compared
        try:
            is_compared = self._enqueue(slot, buffers, is_pinned, is_new)
        except BaseException:
            self._release(slot)
            raise
        collect = self._hand_over if self._stays else self._collect
        return partial(collect, slot, slot.hold, is_compared)

    def _reuse(self, slot: Slot, rows: Any) -> None:
        """Choose the stream of a slot's next frame, and have it follow what reads the results of the last one there.

        A frame on the device is computed in the caller's stream, like other work on it: to wait for another stream and
        to be waited for takes as long as a third of a frame. Waits here for the last frame, whose pinned memory is
        overwritten.
        """
        driver, stream, readers = self._driver, slot.own_stream, {}
        if slot.use:
            driver.wait(slot.marks[-1])
        if not isinstance(rows, np.ndarray):
            current = driver.current_stream()
            stream, readers = current.ptr, {current.ptr: current}
        for reader in slot.readers:
            if reader != stream:
                driver.record(slot.read, reader)
                driver.follow(stream, slot.read)
        slot.stream, slot.readers = stream, readers

    def _upload(self, slot: Slot, is_pinned: bool) -> int:
        """Return the address of a slot's frame for kernels, in the order of its stream; copied if it has to be."""
        rows: Any = slot.source
        driver, stream = self._driver, slot.stream
        if not isinstance(rows, np.ndarray):
            return self._on_device(slot, rows)
        is_aligned = not (self.maps_host and rows.ctypes.data % ROW_ALIGNMENT)
        if not is_pinned or self._replaces_defects or not is_aligned:
            stage(slot.raw, rows)
            slot.source = rows = slot.raw
            if self._correction is not None:
                self._correction.replace_defects(rows, self._work.raw_format)
        if self.maps_host:
            return int(rows.ctypes.data)
        driver.upload(slot.raw_pointer, rows, stream)
        return slot.raw_pointer

    def _on_device(self, slot: Slot, array: Any) -> int:
        """Return the address of a frame in device memory, as `_upload`."""
        driver, correction = self._driver, self._correction
        current = driver.current_stream().ptr
        if current != slot.stream:
            driver.record(slot.read, current)
            driver.follow(slot.stream, slot.read)
        if array.flags.c_contiguous and not (self._replaces_defects or array.data.ptr % ROW_ALIGNMENT):
            return int(array.data.ptr)
        with driver.in_stream(slot.stream):
            slot.source = array if array.flags.c_contiguous else array.copy()
            driver.copy_on_device(slot.raw_pointer, slot.source, slot.stream)
            if correction is not None and self._replaces_defects:
                memory = driver.memory_at(slot.raw_pointer, array.nbytes, slot)
                correction.replace_on_device(driver.array_in(memory, array.shape, array.dtype.name))
        return slot.raw_pointer

    def _enqueue(self, slot: Slot, buffers: Buffers, is_pinned: bool, has_new_reference: bool) -> bool:
        """Put a frame's copies and launches into its stream; returns whether SSIM compares it with something."""
        driver, stream = self._driver, slot.stream
        start, uploaded, polarized, transformed, computed, done = slot.marks
        record = _record_nothing if self._stays else driver.record  # such results have no times
        record(start, stream)
        self._argument["raw"] = self._upload(slot, is_pinned)
        if self._stays:
            slot.hold = {name: driver.array_in(slot.memory[name], *kind) for name, kind in self._outputs.items()}
        else:  # while the frame is uploaded
            slot.hold = {name: buffers.get(*kind) for name, kind in self._outputs.items()}
        if has_new_reference and not self.maps_host:
            driver.upload(slot.reference_pointer, slot.reference, stream)
        driver.clear(slot.counts_pointer, slot.counts.nbytes, stream)
        record(uploaded, stream)
        if self._previous is not None and self._previous.stream != stream:
            driver.follow(stream, self._previous.marks[_COMPUTED])  # its S0 is read, and what it read is overwritten
        outputs = slot.outputs
        if self.maps_host:
            outputs = {name: array.ctypes.data for name, array in slot.hold.items()}
        addresses = {**outputs, **slot.scratch}
        self._argument["counts"] = slot.counts_pointer if self._transform is None else addresses[UNUSED_COUNTS]
        for name, place in self._places:
            self._addresses[place] = addresses[name]
        self._polarization.launch(stream, self._argument)
        record(polarized, stream)
        if self._transform is not None:
            self._transform.launch(stream, slot.counts_pointer, addresses)
            record(transformed, stream)
        is_compared = self._compare(slot, addresses)
        driver.record(computed, stream)
        if self._stays:
            if not is_compared and self._ssim is not None:
                with driver.in_stream(stream):
                    self._make_invalid(slot.hold)
        else:
            if not self.maps_host:
                for name, array in slot.hold.items():
                    if is_compared or self._ssim is None or name not in self._ssim.outputs:
                        driver.download(array, slot.outputs[name], stream)
            driver.download(slot.counts, slot.counts_pointer, stream)
        driver.record(done, stream)
        return is_compared

    def _release(self, slot: Slot) -> None:
        """Free the slot of a frame that failed half-way, once the device has finished with it."""
        with suppress(DeviceError):
            self._driver.record(slot.marks[-1], slot.stream)
            self._driver.wait(slot.marks[-1])
        slot.hold, slot.source = {}, None
        slot.staged = slot.staged[:0]
        self.forget()

    def _compare(self, slot: Slot, addresses: Mapping[str, int]) -> bool:
        """Start the SSIM launch, if there is one and it has something to compare with."""
        if self._ssim is None:
            return False
        previous = self._previous
        stored = "sums" if self._mode == "consistency" else "s0"
        first = addresses[stored]
        second: Optional[int] = first
        if self._mode == "consistency":
            second = first + self._plane_bytes["sums"]
        elif self._mode == "reference":
            second = slot.reference_pointer
        elif self._mode == "temporal":
            second = None if previous is None or self._is_first else previous.scratch["s0"]
            self._previous, self._is_first = slot, False
        if second is not None:
            stride = self._plane_bytes[stored] * (2 if stored == "sums" else 1)
            self._ssim.launch(slot.stream, first, second, addresses, stride)
        return second is not None

    def _make_invalid(self, arrays: Dict[str, Any]) -> None:
        """Fill the outputs of SSIM, if there are any, for a frame without another one to compare with."""
        for name in self._ssim.outputs if self._ssim is not None else ():
            arrays[name].fill(invalid_level(name, str(arrays[name].dtype)))

    def forget(self) -> None:
        """Compare the next frame with none before it; it still follows that one, whose S0 may be in use."""
        self._is_first = True

    @property
    def is_busy(self) -> bool:
        """Whether a frame is in flight here."""
        return any(slot.hold for slot in self._slots)

    def _collect(self, slot: Slot, arrays: Dict[str, np.ndarray], is_compared: bool) -> Result:
        """Wait for a frame.

        Args:
            slot: Its place in memory.
            arrays: The arrays being filled, by output.
            is_compared: Whether SSIM has something to compare with.

        Raises:
            DeviceLostError: The device stopped working.
            RuntimeError: The frame's result was taken before.
        """
        _check_in_flight(slot, arrays)
        with self._driver.selected():
            self._driver.wait(slot.marks[-1])
            timings = self._timings(slot)
        saturated, dark = (int(count) for count in slot.counts)
        slot.hold, slot.source = {}, None  # free for the next frame
        if not is_compared:
            self._make_invalid(arrays)
        products = {name: arrays[name] for name in self._products}
        return Result(products, timings, (saturated, dark), arrays.get("blocks"))

    def _timings(self, slot: Slot) -> Dict[str, float]:
        """Return the seconds per stage of a complete frame."""
        start, uploaded, polarized, transformed, computed, done = slot.marks
        elapsed = self._driver.elapsed
        timings = {"upload": elapsed(start, uploaded), "polarization": elapsed(uploaded, polarized)}
        if self._transform is not None:
            timings["geometry"] = elapsed(polarized, transformed)
            polarized = transformed
        if self._ssim is not None:
            timings["ssim"] = elapsed(polarized, computed)
        timings["download"] = elapsed(computed, done)
        return timings

    def _hand_over(self, slot: Slot, arrays: Dict[str, Any], *_: Any) -> Result:
        """Return the results of a frame on the device, without waiting for it; arguments and errors as `_collect`."""
        _check_in_flight(slot, arrays)
        slot.hold = {}  # `source` stays: the device may still read it
        products = {name: arrays[name] for name in self._products}
        return DeviceResult(self._driver, slot, products, arrays.get("blocks"))


def _record_nothing(_event: int, _stream: int) -> None:
    """Stand in for `Driver.record` where no times are wanted."""


def _check_in_flight(slot: Slot, arrays: Dict[str, Any]) -> None:
    """Refuse to take the results of a frame twice."""
    if slot.hold is not arrays:
        raise RuntimeError("the frame is not in flight: its result was taken")
