"""The launches of a frame, made ready on the GPU for frames of one format and size."""

from __future__ import annotations

import time
from contextlib import suppress
from functools import partial
from typing import Any, Callable, Dict, Mapping, Optional, Tuple

import numpy as np

from polar_pipeline.backend import Buffers, CupyArray, DeviceError, Result
from polar_pipeline.cuda.arguments import FRAME_ARGUMENT, as_compared, fill_options
from polar_pipeline.cuda.correction import DeviceCorrection
from polar_pipeline.cuda.device_arrays import DeviceResult
from polar_pipeline.cuda.driver import Driver
from polar_pipeline.cuda.launch import UNUSED_COUNTS, ArrayType, SsimLaunch, TransformLaunch, compile_launch
from polar_pipeline.cuda.memory import SLOTS, Sizes, Slot, device_bytes, make_slots
from polar_pipeline.cuda.work import CAMERA_FORMATS, OUTPUTS, PAIRS, PolarizationWork, SsimWork, TransformWork, Work
from polar_pipeline.options import Options
from polar_pipeline.products import invalid_level

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
        self._polarization = compile_launch(driver, work, count)
        self._ssim: Optional[SsimLaunch] = None
        self._transform: Optional[TransformLaunch] = None
        self._outputs: Dict[str, ArrayType] = {
            name: (options.shape_of(name, self.output_size), dtype)
            for name, dtype in products.outputs
            if name not in PAIRS
        }
        if transform is not None:
            self._transform = TransformLaunch(driver, transform, options, work.full_scale, count)
        if ssim is not None:
            outside = None if self._transform is None else self._transform.outside
            self._ssim = SsimLaunch(driver, ssim, outside, count)
            self._outputs.update(self._ssim.outputs)
        if frames:
            self._outputs = {name: ((frames, *shape), dtype) for name, (shape, dtype) in self._outputs.items()}
        sizes = self._sizes()
        self._slots = make_slots(driver, sizes, maps_host, is_timed=not self._stays)
        self.memory = device_bytes(sizes, maps_host=False)  # on an integrated GPU, mapped memory is the device's, too
        self._argument = np.zeros((), FRAME_ARGUMENT)
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
        start = time.perf_counter()
        slot.source = rows
        if isinstance(rows, np.ndarray) and (
            not is_pinned or self._correction is not None or (self.maps_host and rows.ctypes.data % ROW_ALIGNMENT)
        ):
            slot.source = slot.raw
            np.copyto(slot.raw.view(rows.dtype).reshape(rows.shape), rows)  # without padding
            if self._correction is not None:
                self._correction.replace_defects(slot.raw, self._work.raw_format)
        is_new = False
        if reference is not None and self._ssim is not None and not np.array_equal(reference, slot.staged):
            is_new, slot.staged = True, reference.copy()
            compared = as_compared(reference, self._reference_type)
            slot.reference.view(compared.dtype).reshape(compared.shape)[...] = compared
        staging_s = time.perf_counter() - start
        if self._stays:
            at = self._driver.array_at
            slot.hold = {name: at(slot.outputs[name], *array_type, slot) for name, array_type in self._outputs.items()}
        else:
            slot.hold = {name: buffers.get(*array_type) for name, array_type in self._outputs.items()}
        try:
            is_compared = self._enqueue(slot, slot.source, is_new)
        except BaseException:
            self._release(slot)
            raise
        collect = self._hand_over if self._stays else self._collect
        return partial(collect, slot, slot.hold, staging_s, is_compared)

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

    def _on_device(self, slot: Slot, array: Any) -> int:
        """Return the address of a frame in device memory, in the order of a slot's stream; copied if it has to be."""
        driver, correction = self._driver, self._correction
        current = driver.current_stream().ptr
        if current != slot.stream:
            driver.record(slot.read, current)
            driver.follow(slot.stream, slot.read)
        is_changed = correction is not None and correction.has_defects
        if array.flags.c_contiguous and not (is_changed or array.data.ptr % ROW_ALIGNMENT):
            return int(array.data.ptr)
        with driver.in_stream(slot.stream):
            slot.source = array if array.flags.c_contiguous else array.copy()
            driver.copy_on_device(slot.raw_pointer, slot.source, slot.stream)
            if correction is not None and is_changed:
                copied = driver.array_at(slot.raw_pointer, array.shape, array.dtype.name, slot)
                correction.replace_on_device(copied)
        return slot.raw_pointer

    def _enqueue(self, slot: Slot, source: Any, has_new_reference: bool) -> bool:
        """Put a frame's copies and launches into its stream; returns whether SSIM compares it with something."""
        driver, stream = self._driver, slot.stream
        start, uploaded, polarized, transformed, computed, done = slot.marks
        driver.record(start, stream)
        if not isinstance(source, np.ndarray):
            raw_pointer = self._on_device(slot, source)
        else:
            raw_pointer = source.ctypes.data if self.maps_host else slot.raw_pointer
            if not self.maps_host:
                driver.upload(raw_pointer, source, stream)
        if has_new_reference and not self.maps_host:
            driver.upload(slot.reference_pointer, slot.reference, stream)
        driver.clear(slot.counts_pointer, slot.counts.nbytes, stream)
        driver.record(uploaded, stream)
        if self._previous is not None and self._previous.stream != stream:
            driver.follow(stream, self._previous.marks[_COMPUTED])  # its S0 is read, and what it read is overwritten
        outputs = slot.outputs
        if self.maps_host:
            outputs = {name: array.ctypes.data for name, array in slot.hold.items()}
        addresses = {**outputs, **slot.scratch}
        self._argument["raw"] = raw_pointer
        self._argument["counts"] = slot.counts_pointer if self._transform is None else addresses[UNUSED_COUNTS]
        for name, place in self._places:
            self._argument["out"][place] = addresses[name]
        self._polarization.launch(stream, self._argument)
        driver.record(polarized, stream)
        if self._transform is not None:
            self._transform.launch(stream, slot.counts_pointer, addresses)
            driver.record(transformed, stream)
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

    def _collect(self, slot: Slot, arrays: Dict[str, np.ndarray], staging_s: float, is_compared: bool) -> Result:
        """Wait for a frame.

        Args:
            slot: Its place in memory.
            arrays: The arrays being filled, by output.
            staging_s: Seconds that copying its bytes to pinned memory took.
            is_compared: Whether SSIM has something to compare with.

        Raises:
            DeviceLostError: The device stopped working.
            RuntimeError: The frame's result was taken before.
        """
        _check_in_flight(slot, arrays)
        with self._driver.selected():
            self._driver.wait(slot.marks[-1])
            timings = self._timings(slot, staging_s)
        saturated, dark = (int(count) for count in slot.counts)
        slot.hold, slot.source = {}, None  # free for the next frame
        if not is_compared:
            self._make_invalid(arrays)
        products = {name: arrays[name] for name in self._products}
        return Result(products, timings, (saturated, dark), arrays.get("blocks"))

    def _timings(self, slot: Slot, staging_s: float) -> Dict[str, float]:
        """Return the seconds per stage of a complete frame."""
        start, uploaded, polarized, transformed, computed, done = slot.marks
        elapsed = self._driver.elapsed
        timings = {"upload": staging_s + elapsed(start, uploaded), "polarization": elapsed(uploaded, polarized)}
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


def _check_in_flight(slot: Slot, arrays: Dict[str, Any]) -> None:
    """Refuse to take the results of a frame twice."""
    if slot.hold is not arrays:
        raise RuntimeError("the frame is not in flight: its result was taken")
