"""The public API: `Pipeline` turns raw frames into a `Result` of products."""

from __future__ import annotations

import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Deque, Dict, Iterable, Iterator, Mapping, Optional, Tuple, Union

import numpy as np

from polar_pipeline._util.text import quoted
from polar_pipeline._util.use_guard import UseGuard
from polar_pipeline._util.values import whole_number
from polar_pipeline.backend import Backend, Ticket
from polar_pipeline.calibration import Calibration
from polar_pipeline.coefficients import SSIM_SIGMA, SSIM_WINDOW
from polar_pipeline.cpu.backend import CpuBackend
from polar_pipeline.cuda.backend import CudaBackend
from polar_pipeline.cuda.backend import problem as cuda_problem
from polar_pipeline.geometry import LensCalibration
from polar_pipeline.options import OPTIONS, THREADS, Options, make_options
from polar_pipeline.plan import Plan, make_plan
from polar_pipeline.reference_image import check_reference_argument
from polar_pipeline.sensor.frames import Frame, as_frame
from polar_pipeline.sensor.mosaic import Sensor

#: A frame as callers give it: (H, W) uint8 or uint16, or a record that brings its own scale or packing.
Raw = Union[np.ndarray, Frame]


class Result(Mapping[str, np.ndarray]):
    """The products of one frame: a mapping from product name to array.

    Attributes:
        timings: Seconds per stage, in the order of the stages.
        invalid: Output pixels that are (saturated, dark): NaN in float polarization images, 0 in 8-bit ones, 255 in
            those of standard deviations. Dark ones are counted only with a product that depends on them: stokes, dolp,
            aolp, dolp_sigma, aolp_sigma, preview, aolp_color or dolp_color.
        blocks: (rows, columns) float32, mean similarity of the map's blocks of `SSIM_BLOCK` x `SSIM_BLOCK` pixels; None
            unless `ssim` or `ssim_map` is a product.
    """

    def __init__(
        self,
        products: Dict[str, np.ndarray],
        timings: Dict[str, float],
        invalid: Tuple[int, int],
        blocks: Optional[np.ndarray] = None,
    ) -> None:
        self._products = products
        self.timings = timings
        self.invalid = invalid
        self.blocks = blocks

    def __getitem__(self, name: str) -> np.ndarray:
        try:
            return self._products[name]
        except KeyError:
            raise KeyError(f"{quoted(name)} was not asked for; this result has {', '.join(self)}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._products)

    def __len__(self) -> int:
        return len(self._products)

    def __repr__(self) -> str:
        shapes = ", ".join(f"{name} {array.dtype}{list(array.shape)}" for name, array in self.items())
        return f"Result({shapes})"


@dataclass(frozen=True)
class Pending:
    """A frame that was submitted and whose result was not taken yet.

    Attributes:
        ticket: What the backend returned for the frame.
        seconds: Time spent before it was submitted.
    """

    ticket: Ticket
    seconds: float


class Pipeline:
    """Raw mosaic frames in, polarization products out.

    One pipeline serves one stream of frames, from one thread at a time and in the process that made it. As a context
    manager it is closed at the end. A GPU's memory is released once nothing refers to the pipeline, too.

    Example:
        >>> pipeline = Pipeline(sensor="IMX250MZR", products=("intensity", "dolp", "aolp"))
        >>> out = pipeline(raw)  # raw: (H, W) uint8 or uint16
        >>> out["dolp"].shape, out.timings

    Args:
        sensor: Mosaic of the sensor: IMX250MZR, IMX250MYR, IMX264MZR, IMX264MYR, IMX253MZR, IMX253MYR, or a tile such
            as '90 45 / 135 0'. Or a `Sensor`.
        products: Names of the products to compute, separated by commas; `polar_pipeline.PRODUCTS` holds them all. Or a
            sequence of names.
        backend: What computes: 'cpu', 'cuda', or 'auto' for the fastest one that works on this machine. A GPU that is
            full or lost for the moment counts as one that works: frames then raise a `RuntimeError` that says so.
        resolution: 'half': one output pixel per 2x2 superpixel. 'full': one per raw pixel.
        precision: Arithmetic: 'fp32' is single precision, 'fp16' half precision (CUDA backend only), 'auto' half
            precision for 8-bit frames on a GPU, unless SSIM needs single precision, 16-bit integers where a
            CPU corrects 8-bit frames by a calibration at half resolution, and single precision everywhere else.
        dtype: Element type of the products that offer a choice: 'float32' (physical values), 'uint8' (display encoding)
            or 'uint16' (the same with 256 times as fine levels). Or a mapping product -> type. `stokes` and `ssim` are
            always float32; `preview`, `aolp_color` and `dolp_color` always uint8.
        demosaic: Interpolation: 'bilinear', 'gradient', 'adaptive', or 'auto', which is bilinear (with
            Malvar-He-Cutler on a colour lattice) at half resolution and adaptive at full. On a CPU adaptive takes
            longer than a camera's frame period at full size; gradient is several times faster.
        co_sited: At half resolution, whether the four angles are interpolated to the superpixel's centre, or else taken
            where they are.
        ssim_mode: What SSIM compares. 'consistency': I0+I90 with I45+I135. 'temporal': S0 with the previous frame.
            'reference': S0/2 with a reference image (the node's topic 'reference', replay's --reference, or the
            argument of a call).
        ssim_stride: SSIM compares images averaged over this many pixels in each direction, 1 to 8: cheaper, and
            coarser.
        ssim_window: Taps of SSIM's Gaussian window in each direction, odd, 3 to 15.
        ssim_sigma: Standard deviation of SSIM's Gaussian window in (averaged) pixels, 0.5 to 5.
        min_intensity: Smallest S0 that has a polarization, 0 to 2 (full scale, excluded); darker pixels are invalid.
        camera_gain: Gain in dB, -48 to 48, above the one at which full well and read noise hold; for the noise only.
        debias: Subtract from DoLP what noise adds to it on average (Plaszczynski et al., 2014).
        max_aolp_sigma: Largest standard deviation by noise of an AoLP that is shown, 0 to 90 degrees: above it AoLP is
            invalid, and the preview grey. 0 shows all.
        polarizer_angle: Angle of the polarizer of the product `polarizer`, 0 to 180 degrees: of the light that it lets
            through, as in AoLP. 90 takes away reflections off level ground where the camera is upright.
        color_style: Colours of the product `aolp_color`: 'plain', or the less DoLP the more faded, to white ('light'),
            to black ('dark'), or to a grey as bright as the colours ('faded').
        bit_depth: Significant bits of 16-bit pixels, 8 to 16; 0 takes those of the encoding, or 16 where it does not
            say. Numbers above full scale mean full scale. A `RawFrame` brings its own scale.
        alignment: Where the significant bits of 16-bit pixels lie: 'lsb' or 'msb'.
        roi_offset: (x, y) of the frame's first pixel in the sensor's own readout, before any flip.
        flip: Mirrored readout: (ReverseX, ReverseY) as set in the camera.
        calibration: File with the calibration of this very sensor (`polar-pipeline calibrate`), by which every pixel is
            corrected before anything else; '' for none. Or a `Calibration`.
        scale: Outputs are means of the Stokes vector over this many pixels in each direction: 1, 2, 4 or 8.
        rotate: Turns outputs counter-clockwise by 0 to 270 degrees in steps of 90, after scale; AoLP turns with the
            image.
        roi: (x, y, width, height) of the part of the outputs that is computed, after scale and rotate; a width or
            height of 0 reaches to the border.
        rectify: Lens calibration by which outputs are rectified, before scale: a YAML file of ROS's camera_calibration;
            'camera_info' for the one that comes with the frames (the node's topic, replay's recording); '' for none. Or
            a `LensCalibration`.
        threads: CPU threads, at most 256; 0 for one per core.

    Raises:
        ValueError: An option that does not exist or is out of range; the message says what is allowed.
        RuntimeError: The backend asked for cannot work on this machine. Frames raise it where the pipeline is in use
            by another thread, is closed, or was made before a fork of the process.
    """

    def __init__(
        self,
        sensor: Union[str, Sensor] = "IMX250MZR",
        products: Union[str, Iterable[str]] = ("intensity", "dolp", "aolp"),
        backend: str = "auto",
        resolution: str = "half",
        precision: str = "auto",
        dtype: Union[str, Mapping[str, str]] = "float32",
        demosaic: str = "auto",
        co_sited: bool = True,
        ssim_mode: str = "consistency",
        ssim_stride: int = 1,
        ssim_window: int = SSIM_WINDOW,
        ssim_sigma: float = SSIM_SIGMA,
        min_intensity: float = 0.01,
        camera_gain: float = 0.0,
        debias: bool = False,
        max_aolp_sigma: float = 0.0,
        polarizer_angle: float = 90.0,
        color_style: str = "plain",
        bit_depth: int = 0,
        alignment: str = "lsb",
        roi_offset: Tuple[int, int] = (0, 0),
        flip: Tuple[bool, bool] = (False, False),
        calibration: Union[str, Path, Calibration] = "",
        scale: int = 1,
        rotate: int = 0,
        roi: Tuple[int, int, int, int] = (0, 0, 0, 0),
        rectify: Union[str, Path, LensCalibration] = "",
        threads: int = 0,
    ) -> None:
        given = {name: value for name, value in locals().items() if name in OPTIONS and name != "threads"}
        self.options: Options = make_options(**given)
        self._guard = UseGuard()
        self.plan = make_plan(self.options.products)
        self._backend = _make_backend(self.plan, self.options, whole_number("threads", threads, *THREADS))

    def __enter__(self) -> Pipeline:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        options = self.options
        shown = {"sensor": options.sensor.name, "products": options.products, "resolution": options.resolution}
        values = ", ".join(f"{name}={quoted(value)}" for name, value in {**shown, "device": self.device}.items())
        return f"<{'closed ' if self._guard.is_closed else ''}Pipeline {values}>"

    @property
    def device(self) -> str:
        """Description of what the pipeline runs on."""
        return self._backend.device

    def output_size(self, shape: Tuple[int, int]) -> Tuple[int, int]:
        """(height, width) of the products of a frame of (height, width)."""
        return self.options.output_size(shape)

    def is_ready(self, raw: Raw) -> bool:
        """Whether a frame of this one's shape and type can be processed without preparation."""
        return self._backend.is_ready(input_frame(raw, self.options))

    def prepare(self, raw: Raw) -> None:
        """Prepare for frames of this one's shape and type: on a GPU, compile and load the kernels.

        Otherwise the first frame does so and takes that much longer. Can run in another thread before the first frame.

        Raises:
            FrameError: A frame of the wrong type, shape or size.
            RuntimeError: A kernel does not compile, or the device is too small or was lost; or the pipeline is closed.
        """
        self._guard.check()
        self._backend.prepare(input_frame(raw, self.options))

    def __call__(self, raw: Raw, *, reference: Optional[np.ndarray] = None) -> Result:
        """Process one frame.

        Args:
            raw: (H, W) uint8 or uint16, at least 16x16, or a `RawFrame`, also one of `RawFrame.of_angles`.
            reference: (h, w) float32 of the output's size, S0/2 in [0, 1] (`check_reference`): what SSIM compares with
                in mode `reference`.

        Returns:
            The products. In SSIM mode `temporal` a frame without a predecessor of its size (on a GPU also of
            its type) has a similarity of NaN.

        Raises:
            FrameError: A frame of the wrong type, shape or size, or a reference beyond [0, 1] (cause `reference`).
            ValueError: A reference is missing, not wanted, or of the wrong type or shape.
            RuntimeError: Another thread uses the pipeline, it is closed, or it was made before a fork.
        """
        return self.result(self.submit(raw, reference=reference))

    def stream(self, frames: Iterable[Raw]) -> Iterator[Result]:
        """Process frames one after the other; on a GPU, transfers and computation of neighbouring frames overlap.

        Results equal those of single calls. If a frame is refused, the results of the frames before it come first. Not
        for SSIM mode `reference`.

        Raises:
            FrameError: A frame of the wrong type, shape or size.
        """
        return _stream(self, frames)

    def frame_memory(self, size: int) -> Optional[np.ndarray]:
        """(size,) uint8 to receive a frame in, from which a GPU takes it without a copy; None where any memory does.

        The frame may lie anywhere in it. Once nothing refers to the memory, nor to a part of it, it is given out again.
        May be called from any thread.
        """
        return self._backend.frame_memory(size)

    @property
    def depth(self) -> int:
        """Frames that can be submitted before the result of the first is taken."""
        return self._backend.depth

    def submit(self, raw: Raw, *, reference: Optional[np.ndarray] = None) -> Pending:
        """Start processing a frame; arguments and errors are those of a call. A GPU computes it in the background.

        The arrays given must not change until `result`: the CPU reads them then.

        Raises:
            RuntimeError: On a GPU, `depth` frames were submitted and their results not taken; the CPU, which computes
                a frame when its result is taken, accepts any number. Or as for a call.
        """
        start = time.perf_counter()
        frame = input_frame(raw, self.options)
        check_reference_argument(reference, self.options, self.output_size(frame.shape))
        checked = time.perf_counter()
        with self._guard.exclusive():
            return Pending(self._backend.submit(frame, reference), checked - start)

    def result(self, pending: Pending) -> Result:
        """The products of a submitted frame; frames come back in the order of submission.

        Raises:
            RuntimeError: On a GPU, its result was taken before. Or as for a call.
        """
        with self._guard.exclusive():
            output = self._backend.result(pending.ticket)
        return Result(output.products, {"prepare": pending.seconds, **output.timings}, output.invalid, output.blocks)

    def debug(self, raw: Raw) -> Dict[str, np.ndarray]:
        """Diagnostic images of a frame, by name; slow, and the same for every backend.

        `polarization_switch`: (H, W) float32, 0 where `adaptive` restores detail, up to 1 at edges of polarization.

        Raises:
            ValueError: The options do not use the adaptive demosaic. Frames are refused as by a call.
        """
        from polar_pipeline.cpu.diagnostics import diagnostics  # here: nothing else in a pipeline needs it

        self._guard.check()
        return diagnostics(input_frame(raw, self.options).unpack(), self.options)

    def reset(self) -> None:
        """Forget the previous frame (SSIM mode `temporal`), as after a jump in time.

        Raises:
            RuntimeError: As for a call.
        """
        with self._guard.exclusive():
            self._backend.reset()

    def close(self) -> None:
        """Release threads and buffers; the pipeline cannot be used afterwards. Safe to call twice.

        Raises:
            RuntimeError: Another thread uses the pipeline.
        """
        if self._guard.is_closed or self._guard.is_forked:  # a fork has nothing to release
            return
        with self._guard.exclusive():
            self._backend.close()
            self._guard.is_closed = True


def input_frame(raw: Raw, options: Options) -> Frame:
    """Validate a raw frame; in 16-bit arrays, the option `full_scale` is a saturated pixel."""
    is_wide = isinstance(raw, np.ndarray) and raw.dtype == np.uint16
    frame = as_frame(raw, options.full_scale if is_wide else 0)
    options.for_frame(frame)  # refuses frames that the options exclude
    return frame


def _stream(pipeline: Pipeline, frames: Iterable[Raw]) -> Iterator[Result]:
    """`Pipeline.stream`."""
    pending: Deque[Pending] = deque()
    try:
        try:
            for raw in frames:
                pending.append(pipeline.submit(raw))
                if len(pending) == pipeline.depth:
                    yield pipeline.result(pending.popleft())
        except Exception:
            while pending:
                yield pipeline.result(pending.popleft())
            raise
        while pending:
            yield pipeline.result(pending.popleft())
    finally:
        for unused in pending:  # the caller stopped early: free their places in the backend
            with suppress(RuntimeError):
                pipeline.result(unused)


def _make_backend(plan: Plan, options: Options, threads: int) -> Backend:
    """The backend that the options name; for `auto` CUDA if it works here.

    Raises:
        RuntimeError: CUDA was asked for and cannot work here.
        ValueError: The precision needs CUDA.
    """
    on_cpu = options.backend == "cpu"
    reason = None if on_cpu else backend_problem("cuda")
    if reason and options.backend == "cuda":
        raise RuntimeError(f"backend 'cuda' cannot work here: {reason}")
    if not on_cpu and not reason:
        return CudaBackend(options)
    if options.precision == "fp16":
        raise ValueError(
            "precision 'fp16' needs backend 'cuda'; the cpu backend computes in fp32 ('auto' or 'fp32')"
            + (f"; no CUDA here: {reason}" if reason else "")
        )
    return CpuBackend(plan, options, threads)


def backend_problem(name: str) -> Optional[str]:
    """Why a backend (`auto`, `cpu`, `cuda`) cannot work on this machine, or None if it can."""
    return cuda_problem() if name == "cuda" else None
