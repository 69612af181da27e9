"""The program of a frame format: its launches, compiled, and the memory of the frames in flight."""

from __future__ import annotations

from contextlib import suppress
from ctypes import addressof, c_char
from dataclasses import replace
from functools import partial
from itertools import repeat
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

import numpy as np

from polar_pipeline._util.threads import thread_pool
from polar_pipeline.backends.backend import Buffers, CupyArray, DeviceError
from polar_pipeline.backends.cuda.defects import DefectReplacement
from polar_pipeline.backends.cuda.denoising import DenoiseLaunch
from polar_pipeline.backends.cuda.device_arrays import DeviceResult
from polar_pipeline.backends.cuda.driver import ON_DEVICE, TO_DEVICE, TO_HOST, Driver
from polar_pipeline.backends.cuda.geometry import GeometryLaunch
from polar_pipeline.backends.cuda.launch import ArrayType, Launch, Schedule, Strip, compile_launch
from polar_pipeline.backends.cuda.learned import learned_launches
from polar_pipeline.backends.cuda.memory import SLOTS, Constants, Sizes, Slot, make_slots, stage
from polar_pipeline.backends.cuda.pixels import OUTPUTS, PLANES, SSIM_INPUTS
from polar_pipeline.backends.cuda.planes import PlaneLaunch
from polar_pipeline.backends.cuda.polarization import (
    CAMERA_FORMATS,
    PolarizationLaunch,
    noise_frames,
    polarization_launch,
)
from polar_pipeline.backends.cuda.schedules import choose
from polar_pipeline.backends.cuda.ssim import SsimLaunch, as_compared, compared_type
from polar_pipeline.backends.result import Result
from polar_pipeline.geometry import make_map
from polar_pipeline.options import Options
from polar_pipeline.options.products import invalid_level

#: What is said where a result is taken twice.
TAKEN = "the frame is not in flight: its result was taken"
#: Alignment of the first row that kernels rely on, bytes.
ROW_ALIGNMENT = 16
#: Bytes of a frame that is divided into two strips: those of smaller frames take longer to start than they save.
MIN_DIVIDED_BYTES = 4 << 20


def make_launches(options: Options, raw_format: str, full_scale: int, shape: Tuple[int, int]) -> Tuple[Launch, ...]:
    """Return the launches of a frame in order.

    That of the polarization comes first, then those of denoising, of the network, of a geometry and of SSIM where the
    options ask for them.

    Args:
        options: Options of the pipeline.
        raw_format: A key of `CAMERA_FORMATS`.
        full_scale: Raw number of a saturated pixel.
        shape: (height, width) of the mosaic.

    Raises:
        FrameError: The geometry does not fit the frame.
    """
    geometry, size = options.geometry, options.stokes_size(shape)
    compared = compared_type(options)
    products = tuple((name, options.dtype_of(name)) for name in options.products if name in OUTPUTS)
    ssim_inputs = ((SSIM_INPUTS[options.ssim_mode != "consistency"], compared),) if options.has_ssim else ()
    first = polarization_launch(options, raw_format, full_scale, shape, (*products, *ssim_inputs))
    launches: List[Launch] = [first]
    planes = "float16" if first.half_precision else "float32"
    is_denoised = options.denoising != "off" and bool(products)
    is_learned = options.is_learned and is_denoised
    readers: List[PlaneLaunch] = []  # of planes that the first launch stores
    stored = products
    if geometry is not None:
        last = GeometryLaunch(
            first,
            *options.output_size(shape),
            planes,
            products if is_denoised else (*products, *ssim_inputs),
            geometry,
            size,
            "learned" if is_learned else "denoise" if is_denoised else "polarization",
        )
        launches.append(last)
        stored = tuple((name, planes) for name in last.plane_names)
        if not is_denoised:
            readers.append(last)
        elif ssim_inputs:  # SSIM compares what was not denoised
            readers.append(replace(last, stored=ssim_inputs, planes_of="polarization", counts_invalid=False))
            launches.append(readers[0])
    if is_denoised:
        corrections = learned_launches(first, size, planes, stored) if is_learned else []
        if is_learned:
            stored = tuple((name, planes) for name in PLANES[:2])  # the third one stays as it is
        denoising = [DenoiseLaunch(first, *size, planes, stored, options.denoising == "auto"), *corrections]
        readers += denoising
        launches[1:1] = denoising
    if readers:
        names = {name for launch in readers for name in launch.plane_names}
        ordered = (name for name in PLANES if name in names)
        launches[0] = first.with_planes(ordered, planes, ssim_inputs if geometry is None else ())
    if options.has_ssim:
        has_gaps = geometry is not None and geometry.lens is not None
        similarity = SsimLaunch(
            *options.output_size(shape),
            options.ssim_stride,
            options.ssim_window,
            options.ssim_sigma,
            compared,
            options.dtype_of("ssim_map") if "ssim_map" in options.products else "",
            options.ssim_mode,
            geometry if has_gaps else None,
            size,
        )
        launches.append(similarity)
    return tuple(launches)


def noise_frame(launches: Tuple[Launch, ...], options: Options) -> Tuple[np.ndarray, Optional[np.ndarray]]:
    """Create a frame of noise to measure launches with, and in mode `reference` an image that SSIM compares it with."""
    (rows,) = noise_frames(launches[0], 1)
    needs_reference = options.ssim_mode == "reference"
    return rows, np.zeros(launches[-1].output_size, np.float32) if needs_reference else None


def requested_launches(options: Options, raw_format: str, size: Tuple[int, int]) -> Tuple[Launch, ...]:
    """Return the launches of some options on frames of (width, height), at the full scale of their format.

    Raises:
        FrameError: The frame has pixels that the calibration lacks, or the geometry does not fit it.
    """
    shape = size[1], size[0]
    options.correction(shape)
    full_scale = options.full_scale if raw_format == "u16" else CAMERA_FORMATS[raw_format].full_scale
    return make_launches(options, raw_format, full_scale, shape)


class Program:
    """The launches of frames of one format and size, compiled, with memory for the frames in flight.

    A frame takes a slot. It is staged into pinned memory unless it lies there, uploaded, computed by each launch in
    turn, and its outputs are downloaded; all in the order of the slot's stream. The first launch makes a large frame in
    strips: while one is uploaded, what it made of the one before is downloaded. With mapped memory, kernels read and
    write pinned memory, and nothing is copied.

    Args:
        driver: The device.
        launches: The launches in order, by `make_launches`.
        options: Options of the pipeline.
        constants: Arrays on the device that programs share.
        maps_host: Whether kernels work on pinned host memory, rather than on copies in device memory.
        frames: Number of frames of a batch, which each launch computes; 0 for single frames.
        schedules: Schedules of launches by their keys, in place of those that `choose` offers.

    Attributes:
        maps_host: The same.
        memory: Bytes of host or device memory that kernels use.

    Raises:
        CompileError: A kernel does not compile.
        DeviceMemoryError: The device is too small.
        ScheduleError: No schedule fits the device.
    """

    #: Whether results stay on the device.
    stays = False

    def __init__(
        self,
        driver: Driver,
        launches: Tuple[Launch, ...],
        options: Options,
        constants: Constants,
        maps_host: bool,
        frames: int = 0,
        schedules: Optional[Mapping[str, Schedule]] = None,
    ) -> None:
        self._driver, self.maps_host = driver, maps_host
        self._products, self._mode = options.products, options.ssim_mode if options.has_ssim else ""
        self._frames, count = frames, max(1, frames)
        first = launches[0]
        assert isinstance(first, PolarizationLaunch)
        self._raw_format = first.raw_format
        correction = options.correction((first.height, first.width))
        self._defects = DefectReplacement(correction) if correction and correction.defects[0].size else None
        ends: Tuple[int, ...] = (first.height,)
        if first.raw_bytes >= MIN_DIVIDED_BYTES and not (maps_host or self.stays or self._defects):
            ends = first.height // 2, first.height
            first = replace(first, in_strips=True)
            launches = (first, *launches[1:])
        forced = schedules or {}
        offers = [
            iter([("measured", forced[launch.key])]) if launch.key in forced else choose(launch, driver.device, count)
            for launch in launches
        ]
        with thread_pool(len(launches)) as pool:  # each kernel takes up to a second to compile
            self._launches = list(pool.map(compile_launch, repeat(driver), launches, offers, repeat(count)))
        self._row_bytes = first.raw_bytes // first.height
        schedule = self._launches[0].schedule
        self._whole, self._strips = (first.strips(schedule, rows, count) for rows in ((first.height,), ends))
        self._stages = ("upload", *(launch.stage for launch in launches), "download")
        # a geometry and SSIM read the same map, which is kept while it is in use
        sampling = None if options.geometry is None else make_map(options.geometry, first.output_size)
        self._outputs: Dict[str, ArrayType] = {}
        scratch: Dict[str, int] = {}
        for compiled in self._launches:
            compiled.set_up(options, constants)
            for name, (shape, dtype) in compiled.outputs.items():
                self._outputs[name] = ((frames, *shape) if frames else shape), dtype
            scratch.update((name, count * size) for name, size in compiled.scratch.items())
        del sampling
        reference = launches[-1].image_bytes if isinstance(launches[-1], SsimLaunch) else 0
        sizes = Sizes(
            count * first.raw_bytes,
            {name: int(np.prod(shape)) * np.dtype(dtype).itemsize for name, (shape, dtype) in self._outputs.items()},
            scratch,
            reference if self._mode == "reference" else 0,
            count,
        )
        self.memory = sizes.device_bytes(maps_host=False)  # on an integrated GPU, mapped memory is the device's, too
        self._slots = make_slots(driver, sizes, maps_host, self.stays)
        self._previous: Optional[Slot] = None  # of the previous frame, with which mode `temporal` compares
        self._is_first = True  # nothing to compare the next frame with
        self._compared = compared_type(options)

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
        slot, driver = self._slots[0], self._driver
        if slot.hold:
            raise RuntimeError(f"{SLOTS} frames are in flight: take a result before the next frame")
        self._slots.rotate(-1)
        if self.stays:
            self._choose_stream(slot, rows)
        slot.use += 1
        slot.source, stream = rows, slot.stream
        record = _record_nothing if self.stays else driver.record  # such results have no times
        missing: List[str] = []  # outputs of launches that have nothing to compare the frame with
        try:
            strips = self._strips if isinstance(rows, np.ndarray) else self._whole
            is_split = len(strips) > 1
            record(slot.marks[0], slot.uploads if is_split else stream)
            self._upload(slot, strips, is_pinned)
            slot.hold = self._make_outputs(slot, buffers)  # while the frame is uploaded
            if reference is not None and self._mode == "reference":
                self._upload_reference(slot, reference)
            if self._mode == "temporal":
                self._follow_previous(slot)
            driver.fill(slot.addresses["counts"], 0, slot.counts.nbytes, stream)
            for strip, uploaded in zip(strips, slot.uploaded):
                if is_split:
                    driver.follow(stream, uploaded)
                if strip is strips[-1]:
                    record(slot.marks[1], stream)
                self._launches[0].start(slot, strip)
                if strip is not strips[-1]:
                    self._download_strip(slot, strip)
            record(slot.marks[2], stream)
            for launch, mark in zip(self._launches[1:], slot.marks[3:]):
                if not launch.start(slot):
                    missing += launch.outputs
                record(mark, stream)
            slot.has_moved = False
            driver.record(slot.computed, stream)
            self._download(slot, missing, strips[-1])
            if is_split:
                driver.follow(stream, slot.downloaded)
            driver.record(slot.done, stream)
        except BaseException:
            self._release(slot)
            raise
        return partial(self._collect, slot, slot.hold, missing)

    def _choose_stream(self, slot: Slot, rows: CupyArray) -> None:
        """Choose the stream of a slot's next frame, where results stay on the device."""

    def _upload(self, slot: Slot, strips: Tuple[Strip, ...], is_pinned: bool) -> None:
        """Bring a slot's frame to where kernels read it; an event follows each of several strips."""
        rows: Any = slot.source
        if not isinstance(rows, np.ndarray):
            slot.place("raw", self._on_device(slot, rows))
            return
        address = int(rows.__array_interface__["data"][0])
        if not is_pinned or self._defects is not None or (self.maps_host and address % ROW_ALIGNMENT):
            stage(slot.raw, rows)
            slot.source, address = slot.raw, slot.staging
            if self._defects is not None:
                self._defects.replace(slot.raw, self._raw_format)
        if self.maps_host:
            slot.place("raw", address)
            return
        slot.place("raw", slot.raw_pointer)
        copy, target = self._driver.copy, slot.raw_pointer
        if len(strips) == 1:
            copy(target, address, rows.nbytes, TO_DEVICE, slot.stream)
            return
        for strip, uploaded in zip(strips, slot.uploaded):
            begin, end = strip.raw.start * self._row_bytes, strip.raw.stop * self._row_bytes
            copy(target + begin, address + begin, end - begin, TO_DEVICE, slot.uploads)
            self._driver.record(uploaded, slot.uploads)

    def _on_device(self, slot: Slot, array: CupyArray) -> int:
        """Return the address of a frame in device memory for kernels, in the order of the slot's stream."""
        driver, current = self._driver, self._driver.current_stream().ptr
        if current != slot.stream:
            driver.record(slot.read, current)
            driver.follow(slot.stream, slot.read)
        if array.flags.c_contiguous and not (self._defects or array.data.ptr % ROW_ALIGNMENT):
            return int(array.data.ptr)
        with driver.in_stream(slot.stream):
            slot.source = array if array.flags.c_contiguous else array.copy()
            driver.copy(slot.raw_pointer, slot.source.data.ptr, array.nbytes, ON_DEVICE, slot.stream)
            if self._defects is not None:
                memory = driver.memory_at(slot.raw_pointer, array.nbytes, slot)
                self._defects.replace_on_device(driver.array_in(memory, array.shape, array.dtype.name))
        return slot.raw_pointer

    def _make_outputs(self, slot: Slot, buffers: Buffers) -> Dict[str, Any]:
        """Return the arrays that a frame fills, by output."""
        arrays = dict(zip(self._outputs, map(buffers.get, *zip(*self._outputs.values()))))
        if self.maps_host:
            for name, array in arrays.items():
                slot.place(name, array.ctypes.data)
        return arrays

    def _upload_reference(self, slot: Slot, reference: np.ndarray) -> None:
        """Give a slot the image that SSIM compares with, if it does not have it."""
        if np.array_equal(reference, slot.staged):
            return
        slot.staged = reference.copy()
        compared = as_compared(reference, self._compared)
        slot.reference.view(compared.dtype).reshape(compared.shape)[...] = compared
        if not self.maps_host:
            target, source = slot.addresses["reference"], slot.reference
            self._driver.copy(target, source.ctypes.data, source.nbytes, TO_DEVICE, slot.stream)

    def _follow_previous(self, slot: Slot) -> None:
        """Order a frame behind the previous one, whose S0 it is compared with, and whose own comparison it follows."""
        previous, self._previous = self._previous, slot
        slot.place("previous", 0 if previous is None or self._is_first else previous.addresses.get("s0", 0))
        if previous is not None and previous.stream != slot.stream:
            self._driver.follow(slot.stream, previous.computed)
        self._is_first = False

    def _copy_back(self, slot: Slot, name: str, rows: Optional[slice], stream: int) -> None:
        """Copy an output to the host, or some rows of it, in the order of a stream."""
        array, source = slot.hold[name], slot.addresses[name]
        if rows is not None:
            array, source = array[rows], source + rows.start * array.strides[0]
        address = addressof(c_char.from_buffer(array))  # NumPy takes three times as long to tell it
        self._driver.copy(address, source, array.nbytes, TO_HOST, stream)

    def _download_strip(self, slot: Slot, strip: Strip) -> None:
        """Copy what the first launch made of a strip to the host, while the next strip is uploaded and computed."""
        driver, stream = self._driver, slot.downloads
        driver.record(slot.computed, slot.stream)
        driver.follow(stream, slot.computed)
        for name in self._launches[0].outputs:
            self._copy_back(slot, name, strip.rows, stream)
        driver.record(slot.downloaded, stream)

    def _download(self, slot: Slot, missing: List[str], last: Strip) -> None:
        """Copy to the host what is not there yet: of the first launch the last strip, all other outputs, counters."""
        if not self.maps_host:
            for name in slot.hold:
                if name not in missing:
                    rows = last.rows if name in self._launches[0].outputs else None
                    self._copy_back(slot, name, rows, slot.stream)
        counts = slot.counts_pointer, slot.addresses["counts"], slot.counts.nbytes
        self._driver.copy(*counts, TO_HOST, slot.stream)

    def _collect(self, slot: Slot, arrays: Dict[str, Any], missing: List[str]) -> Result:
        """Wait for a frame.

        Args:
            slot: Its place in memory.
            arrays: The arrays being filled, by output.
            missing: Outputs that no launch has filled.

        Raises:
            DeviceLostError: The device stopped working.
            RuntimeError: The frame's result was taken before.
        """
        if slot.hold is not arrays:
            raise RuntimeError(TAKEN)
        timings = self._driver.run(self._wait, slot)
        saturated, dark = slot.counts.tolist()
        slot.hold, slot.source = {}, None  # free for the next frame
        if missing:
            _fill_invalid(arrays, missing)
        products = dict(zip(self._products, map(arrays.__getitem__, self._products)))
        return Result(products, timings, (saturated, dark), arrays.get("blocks"))

    def _wait(self, slot: Slot) -> Dict[str, float]:
        """Wait until a frame is complete, and return its seconds per stage."""
        self._driver.wait(slot.done)
        timings: Dict[str, float] = {}
        before = slot.marks[0]
        for name, mark in zip(self._stages, (*slot.marks[1 : len(self._stages)], slot.done)):
            timings[name] = timings.get(name, 0) + self._driver.elapsed(before, mark) / 1000
            before = mark
        return timings

    def _release(self, slot: Slot) -> None:
        """Free the slot of a frame that failed half-way, once the device has finished with it."""
        driver = self._driver
        with suppress(DeviceError):
            for stream in (slot.uploads, slot.downloads, slot.stream):
                driver.run(driver.record, slot.done, stream)
                driver.run(driver.wait, slot.done)
        slot.hold, slot.source = {}, None
        slot.staged = slot.staged[:0]
        self.forget()

    def forget(self) -> None:
        """Treat the next frame as the first, but keep its order after the last one, whose S0 may be in use."""
        self._is_first = True

    @property
    def is_busy(self) -> bool:
        """Whether a frame is in flight here."""
        return any(slot.hold for slot in self._slots)


class DeviceProgram(Program):
    """A program whose results stay on the device, as arrays of CuPy; they have no times."""

    stays = True

    def _choose_stream(self, slot: Slot, rows: CupyArray) -> None:
        """Choose the stream of a slot's next frame, and have it follow what reads the results of the last one there.

        A frame on the device is computed in the caller's stream, like other work on it: to wait for another stream and
        to be waited for takes as long as a third of a frame. Waits here for the last frame, whose pinned memory is
        overwritten.
        """
        driver, stream, readers = self._driver, slot.own_stream, {}
        if slot.use:
            driver.wait(slot.done)
        if not isinstance(rows, np.ndarray):
            current = driver.current_stream()
            stream, readers = current.ptr, {current.ptr: current}
        for reader in slot.readers:
            if reader != stream:
                driver.record(slot.read, reader)
                driver.follow(stream, slot.read)
        slot.stream, slot.readers = stream, readers

    def _make_outputs(self, slot: Slot, _: Buffers) -> Dict[str, Any]:
        return {name: self._driver.array_in(slot.memory[name], *kind) for name, kind in self._outputs.items()}

    def _download(self, slot: Slot, missing: List[str], _: Strip) -> None:
        if missing:
            with self._driver.in_stream(slot.stream):
                _fill_invalid(slot.hold, missing)

    def _collect(self, slot: Slot, arrays: Dict[str, Any], _: List[str]) -> Result:
        """Return the results of a frame, without waiting for it; errors as those of `Program`."""
        if slot.hold is not arrays:
            raise RuntimeError(TAKEN)
        slot.hold = {}  # `source` stays: the device may still read it
        products = {name: arrays[name] for name in self._products}
        return DeviceResult(self._driver, slot, products, arrays.get("blocks"), self._frames)


def _fill_invalid(arrays: Dict[str, Any], names: List[str]) -> None:
    """Fill outputs of a frame that could not be computed."""
    for name in names:
        arrays[name].fill(invalid_level(name, str(arrays[name].dtype)))


def _record_nothing(_event: int, _stream: int) -> None:
    """Stand in for `Driver.record` where no times are wanted."""
