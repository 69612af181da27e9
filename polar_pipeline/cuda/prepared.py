"""The launches of a frame, made ready on the GPU for frames of one format and size."""

from __future__ import annotations

import time
from contextlib import suppress
from functools import partial
from typing import Callable, Dict, Mapping, Optional, Tuple

import numpy as np

from polar_pipeline.backend import Buffers, Result
from polar_pipeline.cuda.arguments import FRAME_ARGUMENT, as_compared, fill_options
from polar_pipeline.cuda.correction import DeviceCorrection
from polar_pipeline.cuda.driver import DeviceError, Driver
from polar_pipeline.cuda.launch import UNUSED_COUNTS, ArrayType, SsimLaunch, TransformLaunch, compile_launch
from polar_pipeline.cuda.memory import SLOTS, Sizes, Slot, device_bytes, make_slots
from polar_pipeline.cuda.work import (
    CAMERA_FORMATS,
    OUTPUTS,
    PAIRS,
    PolarizationWork,
    SsimWork,
    TransformWork,
    Work,
)
from polar_pipeline.options import Options
from polar_pipeline.products import invalid_level

#: Index of an event in `Slot.marks`.
_COMPUTED = 4
#: Alignment of the first row that kernels rely on, bytes.
ROW_ALIGNMENT = 16


def _stage_reference(slot: Slot, image: np.ndarray, dtype: str) -> bool:
    """Put the image that SSIM compares with into a slot's pinned memory; returns whether it differs from the one there.

    Args:
        slot: Where it goes.
        image: (h, w) float32.
        dtype: Element type in which SSIM reads it.
    """
    if np.array_equal(image, slot.staged):
        return False
    slot.staged = image.copy()
    slot.reference.view(dtype).reshape(image.shape)[...] = as_compared(image, dtype)
    return True


class PreparedLaunches:
    """The launches of a frame, compiled, with their memory.

    Args:
        driver: The device.
        works: Works of the launches in order, by `make_works`.
        options: Options of the pipeline.
        maps_host: Whether kernels work on pinned host memory, rather than on copies in device memory.
        correction: Correction of the frames, with a calibration.

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
    ) -> None:
        self._driver = driver
        self._correction = correction
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
        self._polarization = compile_launch(driver, work)
        self._ssim: Optional[SsimLaunch] = None
        self._transform: Optional[TransformLaunch] = None
        self._outputs: Dict[str, ArrayType] = {
            name: (options.shape_of(name, self.output_size), dtype)
            for name, dtype in products.outputs
            if name not in PAIRS
        }
        if transform is not None:
            self._transform = TransformLaunch(driver, transform, options, work.full_scale)
        if ssim is not None:
            self._ssim = SsimLaunch(driver, ssim, None if self._transform is None else self._transform.outside)
            self._outputs.update(self._ssim.outputs)
        sizes = self._sizes()
        self._slots = make_slots(driver, sizes, maps_host)
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
        return Sizes(self._work.height * self._row_bytes, outputs, scratch, reference)

    def submit(
        self, rows: np.ndarray, buffers: Buffers, reference: Optional[np.ndarray] = None, is_pinned: bool = False
    ) -> Callable[[], Result]:
        """Start computing a frame.

        Args:
            rows: (H, ...) pixels or packed bytes.
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
        start = time.perf_counter()
        slot.source = rows
        if not is_pinned or self._correction is not None or (self.maps_host and rows.ctypes.data % ROW_ALIGNMENT):
            slot.source = slot.raw
            np.copyto(slot.raw.view(rows.dtype).reshape(rows.shape), rows)  # without padding
            if self._correction is not None:
                self._correction.replace_defects(slot.raw, self._work.raw_format)
        is_new = False
        if reference is not None and self._ssim is not None:
            is_new = _stage_reference(slot, reference, self._reference_type)
        staging_s = time.perf_counter() - start
        slot.hold = {name: buffers.get(*array_type) for name, array_type in self._outputs.items()}
        try:
            is_compared = self._enqueue(slot, slot.source, is_new)
        except BaseException:
            self._release(slot)
            raise
        return partial(self._collect, slot, slot.hold, staging_s, is_compared)

    def _enqueue(self, slot: Slot, source: np.ndarray, has_new_reference: bool) -> bool:
        """Put a frame's copies and launches into its stream; returns whether SSIM compares it with something."""
        driver, stream = self._driver, slot.stream
        raw_pointer = source.ctypes.data if self.maps_host else slot.raw_pointer
        start, uploaded, polarized, transformed, computed, done = slot.marks
        driver.record(start, stream)
        if not self.maps_host:
            driver.upload(raw_pointer, source, stream)
            if has_new_reference:
                driver.upload(slot.reference_pointer, slot.reference, stream)
        driver.clear(slot.counts_pointer, slot.counts.nbytes, stream)
        driver.record(uploaded, stream)
        if self._previous is not None:  # its S0 is read, and what it read itself is overwritten
            driver.follow(stream, self._previous.marks[_COMPUTED])
        held = {name: array.ctypes.data for name, array in slot.hold.items()}
        addresses = {**(held if self.maps_host else slot.outputs), **slot.scratch}
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
            self._ssim.launch(slot.stream, first, second, addresses)
        return second is not None

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
        if slot.hold is not arrays:
            raise RuntimeError("the frame is not in flight: its result was taken")
        start, uploaded, polarized, transformed, computed, done = slot.marks
        elapsed = self._driver.elapsed
        with self._driver.selected():
            self._driver.wait(done)
            timings = {
                "upload": staging_s + elapsed(start, uploaded),
                "polarization": elapsed(uploaded, polarized),
            }
            if self._transform is not None:
                timings["geometry"] = elapsed(polarized, transformed)
                polarized = transformed
            if self._ssim is not None:
                timings["ssim"] = elapsed(polarized, computed)
            timings["download"] = elapsed(computed, done)
        saturated, dark = (int(count) for count in slot.counts)
        slot.hold, slot.source = {}, None  # free for the next frame
        if self._ssim is not None and not is_compared:
            for name in self._ssim.outputs:
                arrays[name].fill(invalid_level(name, str(arrays[name].dtype)))
        products = {name: arrays[name] for name in self._products}
        return Result(products, timings, (saturated, dark), arrays.get("blocks"))
