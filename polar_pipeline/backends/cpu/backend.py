"""The CPU backend: one call of the compiled kernels for a frame.

The float64 reference computes a frame where there are no kernels, or if it is light without a mosaic
(`RawFrame.light`).
"""

from __future__ import annotations

import logging
import platform
import time
from functools import partial
from typing import Callable, Dict, Optional, Set, Tuple

import numpy as np

from polar_pipeline._util.cpus import available_cores
from polar_pipeline._util.memory_limit import require_address_space
from polar_pipeline.backends.backend import Buffers
from polar_pipeline.backends.cpu.arguments import FrameArguments
from polar_pipeline.backends.cpu.library import Kernels, KernelsError, load_kernels
from polar_pipeline.backends.noise.model import require_one_noise
from polar_pipeline.backends.result import Result
from polar_pipeline.geometry import SamplingMap, make_map
from polar_pipeline.options import Options
from polar_pipeline.options.products import PRODUCTS
from polar_pipeline.sensor.frames import Frame, FrameError, RawFrame

_LOG = logging.getLogger(__name__)
#: Bytes that a frame takes beside its arrays, and a thread with its stack.
_SPARE, _THREAD = 16 << 20, 12 << 20
#: Bytes that the reference takes at most for a raw pixel, as measured in color with ADR; without and with `denoise`.
#: In mono with a network it takes 600.
_REFERENCE_BYTES = {False: 500, True: 1100}


class CpuBackend:
    """Backend that computes frames on the CPU.

    Args:
        options: Options of the pipeline.
        threads: Threads to use; 0 for one per core.
    """

    #: Frames that can be in flight.
    depth = 1
    #: Whether frames that the reference computes were warned of.
    _has_warned = False

    def __init__(self, options: Options, threads: int = 0) -> None:
        self._options = options
        self._threads = threads or available_cores()
        self._buffers = Buffers()
        self._kernels: Optional[Kernels] = None
        try:
            self._kernels = load_kernels()
        except KernelsError as err:
            self._problem = str(err)
        self._previous: Optional[np.ndarray] = None
        self._computed: Set[Tuple[Tuple[int, int], np.dtype]] = set()
        self._maps: Dict[Tuple[int, int], SamplingMap] = {}

    @property
    def device(self) -> str:
        """Description of the processor, threads and kernels."""
        if self._kernels is None:
            return f"cpu ({platform.machine()}, float64 reference: slow)"
        return f"cpu ({platform.machine()}, {self._threads} threads, compiled, {self._kernels.level})"

    def is_ready(self, frame: Frame) -> bool:
        """Return whether a frame of this shape needs no preparation; only the map of a geometry may need some."""
        return self._options.geometry is None or self._options.stokes_size(frame.shape) in self._maps

    def prepare(self, frame: Frame) -> None:
        """Get ready for frames like this one: make the map of their geometry.

        Raises:
            FrameError: The geometry does not fit them.
        """
        if self._options.geometry is not None:
            self._map(frame.shape)

    def frame_memory(self, _: int) -> Optional[np.ndarray]:
        """Return None: any memory will do."""
        return None

    def device_frame(self, _: object) -> Frame:
        """Refuse a frame in device memory.

        Raises:
            FrameError: Always.
        """
        raise FrameError("type", "a frame in device memory needs backend 'cuda'; this pipeline computes on the CPU")

    def submit(self, frame: Frame, reference: Optional[np.ndarray] = None) -> Callable[[], Result]:
        """Accept a frame, which is computed when its result is asked for.

        Args:
            frame: The mosaic.
            reference: (h, w) float32 that SSIM compares S0/2 with, in mode `reference`.

        Returns:
            What computes every product.
        """
        return partial(self._compute, frame, reference)

    def _compute(self, frame: Frame, reference: Optional[np.ndarray]) -> Result:
        start = time.perf_counter()
        raw, options = frame.unpack(), self._options.for_frame(frame)
        kind = (raw.shape, raw.mosaic.dtype)
        if kind not in self._computed:  # once it was enough, it stays with the process
            of_pixel = _REFERENCE_BYTES[options.denoising != "off"]
            needed = self._threads * _THREAD if self._kernels else raw.mosaic.size * of_pixel
            require_address_space(_SPARE + needed, "a frame of this size")
        other = self._previous if options.ssim_mode == "temporal" else reference
        if self._kernels is None or raw.light is not None:
            result = self._compute_by_reference(raw, options, other)
        else:
            result = self._compute_by_kernels(self._kernels, raw, options, other)
        later = sum(result.timings.values())
        self._computed.add(kind)
        result.timings = {"polarization": time.perf_counter() - start - later, **result.timings}
        return result

    def _compute_by_kernels(
        self, kernels: Kernels, raw: RawFrame, options: Options, other: Optional[np.ndarray]
    ) -> Result:
        sampling = None if options.geometry is None else self._map(raw.shape)
        job = FrameArguments(raw, options, sampling, self._buffers)
        if options.has_ssim:
            second = job.compared[1] if len(job.compared) == 2 else other
            if second is not None and second.shape == job.compared[0].shape:
                outside = None if sampling is None else sampling.outside
                job.compare(np.require(second, requirements=["C", "A"]), outside)
            self._previous = job.compared[0] if options.ssim_mode == "temporal" else None
        kernels.compute(job.frame, self._threads)
        is_run = (options.denoising != "off", sampling is not None, bool(job.compared))
        stages = zip(("denoise", "geometry", "ssim"), job.frame.seconds, is_run)
        timings = {name: seconds for name, seconds, is_in in stages if is_in}
        invalid = (job.frame.invalid.saturated, job.frame.invalid.dark)
        return Result(job.out, timings, invalid, job.similarity() if job.compared else None)

    def _compute_by_reference(self, raw: RawFrame, options: Options, other: Optional[np.ndarray]) -> Result:
        from polar_pipeline.backends.reference.operators import run  # here: few frames need it

        start = time.perf_counter()
        require_one_noise(options, raw)
        correction = options.correction(raw.shape)
        if correction is not None:
            raw = correction.replace_defects(raw, self._buffers.get)
        size = options.output_size(raw.shape)
        if other is not None and other.shape != size:
            other = None
        computed = run(raw, options, other)
        self._previous = computed["value"] if options.ssim_mode == "temporal" else None
        out = {}
        for name in options.products:
            out[name] = self._buffers.get(computed[name].shape, options.dtype_of(name))
            out[name][...] = computed[name]
            if PRODUCTS[name].wraps and out[name].dtype == np.float32:
                out[name][out[name] >= np.float32(np.pi)] = 0  # rounded up from just below pi
        if self._kernels is None and not CpuBackend._has_warned:
            CpuBackend._has_warned = True
            shape, seconds = f"{raw.shape[1]}x{raw.shape[0]}", time.perf_counter() - start
            _LOG.warning(
                f"{self._problem}. The float64 reference computes frames: the first, {shape}, in {seconds:.3g} s"
            )
        blocks = None if computed["blocks"] is None else computed["blocks"].astype(np.float32)
        return Result(out, computed["seconds"], computed["invalid"], blocks)

    def _map(self, shape: Tuple[int, int]) -> SamplingMap:
        """Return the map of the geometry for frames of (height, width). The map of one size is kept.

        Raises:
            FrameError: The geometry does not fit them.
        """
        geometry = self._options.geometry
        assert geometry is not None
        source = self._options.stokes_size(shape)
        if source not in self._maps:
            self._maps = {source: make_map(geometry, source)}
        return self._maps[source]

    def reset(self) -> None:
        """Forget the frame before (SSIM mode `temporal`)."""
        self._previous = None

    def close(self) -> None:
        """Release all memory but the results that are still in use."""
        self._buffers, self._maps, self._previous = Buffers(), {}, None
