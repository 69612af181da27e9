"""Launches of some options: the works of a frame, and the best schedule of each.

Hard constraints prune a kernel's schedules, measured schedules come first, and a page of arithmetic orders the others:
the bytes that a schedule moves with its halos, and how well its blocks fill the device. All schedules give the same
results. What a kernel really takes is known once it is compiled: a backend goes on to the next launch that `solve`
offers while the compiled one spills registers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Iterator, List, Optional, Tuple, Union

from polar_pipeline.backends.backend import ScheduleError
from polar_pipeline.backends.cuda.device import Device, occupancy, resident_blocks
from polar_pipeline.backends.cuda.kernels import KERNELS, AnyKernel, Schedule, kernels_of, sums_in_integers
from polar_pipeline.backends.cuda.tuned import tuned
from polar_pipeline.backends.cuda.work import (
    CAMERA_FORMATS,
    OUTPUTS,
    PAIRS,
    PolarizationWork,
    SsimWork,
    TransformWork,
    Work,
)
from polar_pipeline.backends.noise.model import SHOWS_AOLP, SHOWS_DOLP
from polar_pipeline.calibration import superpixel_phase
from polar_pipeline.options import Options
from polar_pipeline.polarimetry.coefficients import gaussian

#: Share of a multiprocessor's warps that schedules keep resident where any does: below it, latency shows.
MIN_OCCUPANCY = 0.3
#: Likewise from sm_90 on of strips, whose next lines are loaded a step ahead, and of tensor cores.
_WIDE_OCCUPANCY = 0.15
MAX_THREADS = 1024
#: Largest tap of a window that averages the rounding of 16-bit images. With 3 taps, or a deviation of 0.5, it moves
#: the similarity by up to 0.0015.
_NARROW_TAP = 0.34
#: What a thread of a block takes beside its pixels, in pixels.
_START = 2
#: Exponent of the resident warps in the time of a launch.
_HIDING = 0.3


@dataclass(frozen=True)
class Launch:
    """One launch of a frame.

    Attributes:
        work: Work of the launch.
        schedule: Schedule of the work.
        device: Device that computes.
        basis: Why: `measured` by this user (`polar-pipeline tune`), `shipped` for the architecture, or `solved`.
        measured_us: Microseconds that it took when it was measured; None if it was not.
    """

    work: Work
    schedule: Schedule
    device: Device
    basis: str = "solved"
    measured_us: Optional[float] = None

    @property
    def kernel(self) -> AnyKernel:
        """The kernel of the launch."""
        return KERNELS[self.schedule.kernel]

    @property
    def registers(self) -> int:
        """Registers of a thread, at most."""
        return self.kernel.registers(self.work, self.schedule, self.device)

    @property
    def shared_bytes(self) -> int:
        """Dynamic shared memory of a block."""
        return self.kernel.shared_bytes(self.work, self.schedule)

    @property
    def grid(self) -> Tuple[int, int, int]:
        """Blocks along x, y and z."""
        return self.kernel.grid(self.work, self.schedule)

    @property
    def occupancy(self) -> float:
        """Expected share of a multiprocessor's warps that are resident, 0 to 1."""
        return occupancy(self.device, self.schedule.threads, self.registers, self.shared_bytes)

    @property
    def reread_bytes(self) -> int:
        """Bytes that blocks load again, as halos."""
        return round(self.work.read_bytes * (self.kernel.loads(self.work, self.schedule) - 1))

    @property
    def memory_us(self) -> float:
        """Microseconds that memory takes at its peak for what is read and written once: no launch is shorter."""
        return (self.work.read_bytes + self.work.written_bytes) / self.device.bandwidth_gbs / 1e3


# ---------------------------------------------------------------------------------------------------------------- works


def make_works(options: Options, raw_format: str, full_scale: int, shape: Tuple[int, int]) -> Tuple[Work, ...]:
    """Return the works of a frame in order: polarization, then a geometry and SSIM if requested.

    Args:
        options: Options of the pipeline.
        raw_format: A key of `CAMERA_FORMATS`.
        full_scale: Raw number of a saturated pixel.
        shape: (height, width) of the mosaic.

    Raises:
        FrameError: The geometry does not fit the frame.
    """
    geometry = options.geometry
    outputs = [(name, options.dtype_of(name)) for name in options.products if name in OUTPUTS]
    is_narrow = max(gaussian(options.ssim_window, options.ssim_sigma)) > _NARROW_TAP
    compares_floats = options.precision == "fp32" or (options.precision == "auto" and is_narrow)
    if options.has_ssim:
        outputs.append((PAIRS[options.ssim_mode != "consistency"], "float32" if compares_floats else "uint16"))
    is_calibrated = options.calibration is not None
    first = PolarizationWork(
        options.read_out(shape),
        options.resolution == "half",
        options.co_sited,
        options.interpolation,
        options.debayer,
        raw_format,
        full_scale,
        # half holds 11 bits: 8-bit samples and their small sums exactly, finer ones not
        options.precision == "fp16" or (options.precision == "auto" and full_scale <= 255),
        tuple(outputs),
        shape[1],
        shape[0],
        is_calibrated,
        options.debias and not SHOWS_DOLP.isdisjoint(options.products),
        options.max_aolp_sigma > 0 and not SHOWS_AOLP.isdisjoint(options.products),
        superpixel_phase(options.roi_offset, options.flip, shape) if is_calibrated else (0, 0),
    )
    # what half rounds moves the similarity by up to 0.0055
    is_rounded = geometry is not None or compares_floats or not sums_in_integers(first)
    if options.precision == "auto" and options.has_ssim and is_rounded:
        first = replace(first, half_precision=False)
    last: Union[PolarizationWork, TransformWork] = first
    works: Tuple[Work, ...] = (first,)
    if geometry is not None:
        last = TransformWork(
            first.output_size,
            *options.output_size(shape),
            geometry.scale,
            geometry.lens is not None,
            geometry.rotate % 180 != 0,
            first.sensor.is_color,
            first.half_precision,
            "float16" if first.half_precision else "float32",
            first.outputs,
        )
        works = replace(first, outputs=tuple((name, last.planes) for name in last.plane_names)), last
    if not options.has_ssim:
        return works
    similarity = SsimWork(
        *last.output_size,
        options.ssim_stride,
        options.ssim_window,
        options.ssim_sigma,
        "float32" if compares_floats else "uint16",
        options.dtype_of("ssim_map") if "ssim_map" in options.products else "",
        geometry is not None and geometry.lens is not None,
    )
    return (*works, similarity)


def requested_works(options: Options, raw_format: str, size: Tuple[int, int]) -> Tuple[Work, ...]:
    """Return the works of some options on frames of (width, height), at the full scale of their format.

    Raises:
        FrameError: The frame has pixels that the calibration lacks, or the geometry does not fit it.
    """
    shape = size[1], size[0]
    options.correction(shape)
    full_scale = options.full_scale if raw_format == "u16" else CAMERA_FORMATS[raw_format].full_scale
    return make_works(options, raw_format, full_scale, shape)


# ------------------------------------------------------------------------------------------------------------ schedules


def _fits(work: Work, schedule: Schedule, device: Device) -> bool:
    """Return whether a schedule can do a work on a device."""
    kernel = KERNELS.get(schedule.kernel)
    if kernel is None or not kernel.can(work) or schedule not in kernel.schedules(work, device):
        return False
    return _limit(work, schedule, device) is None


def _limit(work: Work, schedule: Schedule, device: Device) -> Optional[str]:
    """Return the limit of a device that a schedule exceeds, or None."""
    kernel = KERNELS[schedule.kernel]
    if schedule.threads > MAX_THREADS:
        return f"needs {schedule.threads} threads, a block has {MAX_THREADS}"
    shared = kernel.shared_bytes(work, schedule)
    if shared > device.shared_per_block:
        return f"needs {shared} bytes of shared memory, a block has {device.shared_per_block}"
    registers = kernel.registers(work, schedule, device)
    if not resident_blocks(device, schedule.threads, registers, shared):
        need = schedule.threads * registers
        return f"needs {need} registers, a multiprocessor has {device.registers_per_multiprocessor}"
    return None


def candidates(kernel: AnyKernel, work: Work, device: Device) -> List[Schedule]:
    """Return a kernel's schedules that fit a device, best first; few resident warps only if no other fits."""
    able = [Launch(work, row, device) for row in kernel.schedules(work, device) if _limit(work, row, device) is None]
    most = max((launch.occupancy for launch in able), default=0)
    enough = [launch for launch in able if launch.occupancy >= min(_min_occupancy(launch), most)]
    return [launch.schedule for launch in sorted(enough, key=lambda launch: (_effort(launch), launch.schedule))]


def _min_occupancy(launch: Launch) -> float:
    """Return the share of resident warps that a schedule needs."""
    is_wide = launch.schedule.window in ("strip", "tensor")
    return _WIDE_OCCUPANCY if is_wide and launch.device.overlaps else MIN_OCCUPANCY


def _effort(launch: Launch) -> float:
    """Estimate a figure proportional to the expected time of a schedule, to compare schedules of a kernel.

    Factors: the bytes moved with halos, the start of the blocks by their threads, the last wave of blocks, which is
    half empty on average, and the resident warps, which hide latency.
    """
    work, schedule, device = launch.work, launch.schedule, launch.device
    moved = work.read_bytes + launch.kernel.halo_cost * launch.reread_bytes + work.written_bytes
    blocks = launch.grid[0] * launch.grid[1]
    resident = resident_blocks(device, schedule.threads, launch.registers, launch.shared_bytes)
    waves = blocks / (device.multiprocessors * resident)
    starts = 1 + _START * schedule.threads * blocks / (work.size[0] * work.size[1])
    return moved * starts * (1 + 0.5 / waves) * launch.occupancy**-_HIDING


def solve(work: Work, device: Device) -> Iterator[Launch]:
    """Yield the launches that can do a work, the best first: measured schedules, then those of preferred kernels.

    Raises:
        ScheduleError: None fits the device (the message names the need of the last kernel's smallest schedule, and the
            limit), or a file of measured schedules is broken.
    """
    seen = set()
    for basis, row in tuned(work, device):
        if row.schedule not in seen and _fits(work, row.schedule, device):
            seen.add(row.schedule)
            yield Launch(work, row.schedule, device, basis, row.us)
    for kernel in kernels_of(work):
        for schedule in candidates(kernel, work, device):
            if schedule not in seen:
                seen.add(schedule)
                yield Launch(work, schedule, device)
    if not seen:
        smallest = min(kernel.schedules(work, device), key=lambda row: kernel.shared_bytes(work, row))
        raise ScheduleError(f"{kernel.name} on {device.name}: {_limit(work, smallest, device)}")


def launches(works: Tuple[Work, ...], device: Device) -> Tuple[Launch, ...]:
    """Return the first choice for each launch of a frame.

    Raises:
        ScheduleError: A launch has no schedule that fits the device.
    """
    return tuple(next(solve(work, device)) for work in works)
