"""The CPU backend: strips of rows that stay in cache, one thread per core; one method per operator of the plan."""

from __future__ import annotations

import platform
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Dict, Optional, Set, Tuple, Union

import numpy as np

from polar_pipeline._util.address_space import require_address_space
from polar_pipeline._util.cpus import available_cores
from polar_pipeline.backend import Buffers, Output, Ticket
from polar_pipeline.cpu.frame_job import FrameJob
from polar_pipeline.cpu.kernels import Kernels
from polar_pipeline.cpu.native import NativeError, find_library
from polar_pipeline.cpu.ssim import SsimWindow
from polar_pipeline.cpu.strip import compute_strip
from polar_pipeline.cpu.strips import compare, strips
from polar_pipeline.cpu.transform import TransformJob
from polar_pipeline.geometry import SamplingMap, make_map
from polar_pipeline.options import Options
from polar_pipeline.plan import Plan
from polar_pipeline.sensor.frames import Frame

#: Bytes beside those of the strips: threads' own memory, SSIM's temporaries.
_SPARE = 16 << 20


class CpuBackend:
    """Runs a plan on frames.

    Args:
        plan: What to compute.
        options: How.
        threads: Threads to use; 0 for one per core.
    """

    def __init__(self, plan: Plan, options: Options, threads: int = 0) -> None:
        self._plan = plan
        self._options = options
        self._threads = threads or available_cores()
        self._window = SsimWindow(options.ssim_stride, options.ssim_window, options.ssim_sigma)
        self._buffers = Buffers()
        self._pool = ThreadPoolExecutor(self._threads, "polar_pipeline")
        try:
            self._kernels: Optional[Kernels] = Kernels(find_library(), self._pool, self._threads)
        except NativeError:  # `polar-pipeline doctor` says why
            self._kernels = None
        self._previous: Optional[np.ndarray] = None
        self._computed: Set[Tuple[Tuple[int, int], np.dtype]] = set()
        self._geometry = options.geometry
        self._maps: Dict[Tuple[int, int], SamplingMap] = {}

    #: Frames that can be in flight.
    depth = 1

    @property
    def device(self) -> str:
        """What it runs on, as text."""
        method = "compiled" if self._kernels else "OpenCV"
        return f"cpu ({platform.machine()}, {self._threads} threads, {method})"

    def is_ready(self, frame: Frame) -> bool:
        """Whether nothing has to be made for frames like this one; only the map of a geometry may have to be."""
        return self._geometry is None or self._options.stokes_size(frame.shape) in self._maps

    def prepare(self, frame: Frame) -> None:
        """Get ready for frames like this one: make the map of their geometry.

        Raises:
            FrameError: The geometry does not fit them.
        """
        if self._geometry is not None:
            self._map(frame.shape)

    def frame_memory(self, _: int) -> None:
        """None: any memory will do."""

    def submit(self, frame: Frame, reference: Optional[np.ndarray] = None) -> Ticket:
        """Accept a frame, which is computed when its result is asked for.

        Args:
            frame: The mosaic.
            reference: (h, w) float32 that SSIM compares S0/2 with, in mode `reference`.
        """
        return Ticket(partial(self._compute, frame, reference))

    def result(self, ticket: Ticket) -> Output:
        """Compute every product of a frame."""
        return ticket.finish()

    def _compute(self, frame: Frame, reference: Optional[np.ndarray]) -> Output:
        plan, options, mode = self._plan, self._options.for_frame(frame), self._options.ssim_mode
        marks = [("", time.perf_counter())]
        sampling = None if self._geometry is None else self._map(frame.shape)
        job: Union[FrameJob, TransformJob]
        first_job = job = FrameJob(frame.unpack(), plan, options, self._buffers, self._kernels, sampling is not None)
        kind = (job.raw_size, job.mosaic.dtype)
        if kind not in self._computed:  # once it was enough, it stays with the process
            needed = _SPARE + job.correction_bytes + self._threads * job.strip_bytes
            require_address_space(needed, "a frame of this size")
        invalid = self._pixel_pass(job)
        marks.append(("polarization", time.perf_counter()))
        if sampling is not None:
            job = TransformJob(plan, options, first_job, sampling, self._buffers, self._kernels)
            invalid = job.run(self._pool, sum(invalid) > 0)
            marks.append(("geometry", time.perf_counter()))
        blocks = None
        if plan.window:
            first, others = job.pair[0], {"reference": reference, "temporal": self._previous}
            second = job.pair[1] if mode == "consistency" else others[mode]
            if second is not None and second.shape != first.shape:
                second = None
            outside = None if sampling is None else sampling.outside
            blocks = compare(self._pool, first, second, job.out, self._window, self._kernels, job.pair_scale, outside)
            marks.append(("ssim", time.perf_counter()))
            self._previous = first if mode == "temporal" else None
        self._computed.add(kind)
        timings = {name: now - before for (_, before), (name, now) in zip(marks, marks[1:])}
        return Output({name: job.out[name] for name in plan.products}, timings, invalid, blocks)

    def _pixel_pass(self, job: FrameJob) -> Tuple[int, int]:
        """The first stage; returns (saturated, dark) counts."""
        counts = []
        if job.strip_operators:
            job.correct()
            counts = list(self._pool.map(partial(compute_strip, job), strips(job.size)))
        if self._kernels and job.is_from_mosaic:
            how = (job.sensor, job.method, job.half)
            return self._kernels.mosaic(job.frame, *how, job.target, job.correction, job.words)
        return sum(saturated for saturated, _ in counts), sum(dark for _, dark in counts)

    def _map(self, shape: Tuple[int, int]) -> SamplingMap:
        """The map for frames of (height, width); that of the size before is kept only where it fits.

        Raises:
            FrameError: The geometry does not fit them.
        """
        assert self._geometry is not None
        source = self._options.stokes_size(shape)
        found = self._maps.get(source)
        if found is None:
            found = make_map(self._geometry, source)
            self._maps = {source: found}
        return found

    def reset(self) -> None:
        """Forget the frame before (SSIM mode `temporal`)."""
        self._previous = None

    def close(self) -> None:
        """End the threads, and release all memory but the results that are still in use."""
        self._pool.shutdown()
        self._buffers, self._maps, self._previous = Buffers(), {}, None
