"""The public API: `Pipeline` turns raw frames into a `Result` of products."""

from __future__ import annotations

import inspect
import os
import textwrap
import time
import warnings
from collections import deque
from contextlib import suppress
from functools import partial
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    Deque,
    Dict,
    Iterable,
    Iterator,
    List,
    MutableSet,
    NamedTuple,
    Optional,
    Protocol,
    Sequence,
    Tuple,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)
from weakref import WeakSet

import numpy as np

from polar_pipeline._util.text import quoted
from polar_pipeline._util.use_guard import UseGuard
from polar_pipeline.backends.backend import Backend, is_on_device
from polar_pipeline.backends.compared_image import check_reference_argument
from polar_pipeline.backends.result import Result
from polar_pipeline.options import OPTIONS, Accepts, Options, make_options
from polar_pipeline.sensor.frames import (
    MIN_SIDE,
    SIXTEEN_BITS,
    Frame,
    FrameError,
    FrameWarning,
    RawFrame,
    as_frame,
    bit_warnings,
)

if TYPE_CHECKING:
    from typing_extensions import Concatenate, ParamSpec

    _P = ParamSpec("_P")

__all__ = ["Pending", "Pipeline", "Raw", "Result", "backend_problem", "input_frame"]

#: Value of a saturated pixel in frames of bytes.
_BYTE_MAX = 255


class SupportsFrame(Protocol):
    """A frame of a file or recording, as `polar_pipeline.read_frames` yields it."""

    def to_frame(self, options: Options) -> Frame:
        """Return the frame's numbers with the meaning that the file and the options state.

        Raises:
            FrameError: The options contradict it.
        """


#: A frame as callers give it: (H, W) integers, or an object that brings its own scale or packing; or (N, H, W), a
#: batch.
Raw = Union[np.ndarray, Frame, SupportsFrame]


#: The pipelines of this process.
_PIPELINES: MutableSet[Pipeline] = WeakSet()
#: Backends of the processes that this one was forked from. They are kept: to release one would release memory of the
#: parent's GPU.
_OF_PARENTS: List[Optional[Backend]] = []


class Pending(NamedTuple):
    """A frame that was submitted and whose result was not taken yet.

    Attributes:
        finish: Waits for the frame on a GPU, or computes it on the CPU, and returns its results.
        seconds: Time spent before it was submitted.
        process: Number of the process that submitted it.
    """

    finish: Callable[[], Result]
    seconds: float
    process: int


def _takes(options: Callable[_P, Options]) -> Callable[[Callable[..., None]], Callable[Concatenate[Any, _P], None]]:
    """Give a constructor the signature of `Options` and their texts, for `help`, editors and type checkers."""
    hints = get_type_hints(options)
    first = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    others = [
        row.replace(annotation=get_args(hint)[0] if get_origin(hint) is Accepts else hint)
        for row, hint in ((row, hints[name]) for name, row in inspect.signature(options).parameters.items())
    ]
    texts = (f"{row.name}: {' '.join(filter(None, (row.text, row.note)))}" for row in OPTIONS.values())
    lines = (textwrap.fill(text, 100, initial_indent=" " * 4, subsequent_indent=" " * 8) for text in texts)

    def _decorate(constructor: Callable[..., None]) -> Callable[Concatenate[Any, _P], None]:
        constructor.__signature__ = inspect.Signature([first, *others], return_annotation=None)  # type: ignore[attr-defined]
        constructor.__doc__ = "\n".join(["Make a pipeline.\n\nArgs:", *lines])
        return constructor

    return _decorate


class Pipeline:
    """Pipeline from raw mosaic frames to polarization products.

    One pipeline serves one stream of frames, from one thread at a time. As a context manager it is closed at the end. A
    GPU's memory is released once nothing refers to the pipeline, too.

    A pipeline is pickled as its options: another process gets a new pipeline with these. A forked process that uses the
    pipeline computes with threads and memory of its own, without the frames of its parent. CUDA cannot be used in a
    process that was forked from one that uses it: there `auto` means the CPU.

    Examples:
        >>> pipeline = Pipeline(sensor="IMX250MZR", products=("intensity", "dolp", "aolp"))
        >>> out = pipeline(raw)  # raw: (H, W) uint8 or uint16
        >>> out["dolp"].shape, out.timings

    Arguments are the options that `polar_pipeline.options.Options` declares.

    Raises:
        ValueError: An option that does not exist or is out of range; the message says what is allowed.
        RuntimeError: The backend asked for cannot work on this machine, or in this process after a fork. Frames raise
            it where the pipeline is in use by another thread, or closed.
    """

    @_takes(Options)
    def __init__(self, *first: Any, **others: Any) -> None:
        self.options = make_options(*first, **others)
        self._guard = UseGuard()
        self._has_warned = False
        self._takes_reference = self.options.ssim_mode == "reference"
        self._valid: Optional[Tuple[np.dtype, Tuple[int, ...]]] = None  # type and shape of valid frames of bytes
        self._made: Optional[Backend] = _make_backend(self.options)
        _PIPELINES.add(self)

    @property
    def _backend(self) -> Backend:
        """The backend; a process that was just forked makes its own when it is first needed."""
        if self._made is None:
            self._made = _make_backend(self.options)
        return self._made

    def _begin_after_fork(self) -> None:
        """Forget the lock and the backend of the parent, whose threads and GPU a fork does not have."""
        self._guard = UseGuard(self._guard.is_closed)
        _OF_PARENTS.append(self._made)
        self._made = None

    def __reduce__(self) -> Tuple[Any, ...]:
        arguments: Dict[str, Any] = self.options.arguments()
        return partial(type(self), **arguments), ()

    def __enter__(self) -> Pipeline:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        options, backend = self.options, self._made
        values = {"sensor": options.sensor.name, "products": options.products, "resolution": options.resolution}
        if backend is not None:  # not yet in a process that was just forked
            values["device"] = backend.device
        text = ", ".join(f"{name}={quoted(value)}" for name, value in values.items())
        return f"<{'closed ' if self._guard.is_closed else ''}Pipeline {text}>"

    @property
    def device(self) -> str:
        """Description of the device that the pipeline runs on."""
        return self._backend.device

    def output_size(self, shape: Tuple[int, int]) -> Tuple[int, int]:
        """Return (height, width) of the products of a frame of (height, width)."""
        return self.options.output_size(shape)

    def is_ready(self, raw: Raw) -> bool:
        """Return whether a frame of this shape and type can be processed without preparation."""
        return self._backend.is_ready(self._frames(raw)[0])

    def prepare(self, raw: Raw) -> None:
        """Prepare for frames of this one's shape and type: on a GPU, compile and load the kernels.

        Otherwise the first frame does so and takes that much longer. Can run in another thread before the first frame.

        Raises:
            FrameError: A frame of the wrong type, shape or size.
            RuntimeError: A kernel does not compile, or the device is too small or was lost; or the pipeline is closed.
        """
        self._guard.check()
        self._backend.prepare(self._frames(raw)[0])

    def __call__(self, raw: Raw, *, reference: Optional[np.ndarray] = None) -> Result:
        """Process one frame, or a batch of frames.

        Args:
            raw: (H, W), at least 16x16, of uint8, uint16 or other integers up to 65535 in any byte order; a
                frame of `read_frames`; or a `RawFrame`. A batch is (N, H, W). With backend `cuda` also a uint8 or
                uint16 array on the GPU of any library (`__dlpack__`, `__cuda_array_interface__`); a batch there needs
                output `device`, and the other way round.
            reference: (h, w) float32 of the output's size, S0/2 in [0, 1] (`check_reference`): what SSIM compares every
                frame with in mode `reference`.

        Returns:
            The products; with output `device` a `DeviceResult`, whose arrays the GPU may still be computing. In SSIM
            mode `temporal` a frame without a predecessor of its size (on a GPU also of its type) has a similarity of
            NaN. Products of a batch are those of its frames in order, (N, ...), and so is `blocks`; `timings` and
            `invalid` are sums over its frames.

        Raises:
            FrameError: A frame of the wrong type, shape or size, or a reference beyond [0, 1] (cause `reference`).
            ValueError: A reference is missing, not wanted, or of the wrong type or shape.
            RuntimeError: Another thread uses the pipeline, it is closed, or its backend cannot work after a fork.
        """
        return self.result(self.submit(raw, reference=reference))

    def stream(self, frames: Iterable[Raw]) -> Iterator[Result]:
        """Process frames one after the other; on a GPU, transfers and computation of neighboring frames overlap.

        Results equal those of single calls. If a frame is refused, the results of the frames before it come first. Not
        for SSIM mode `reference`.

        Raises:
            FrameError: A frame of the wrong type, shape or size.
        """
        pending: Deque[Pending] = deque()
        try:
            try:
                for raw in frames:
                    pending.append(self.submit(raw))
                    if len(pending) == self.depth:
                        yield self.result(pending.popleft())
            except Exception:
                while pending:
                    yield self.result(pending.popleft())
                raise
            while pending:
                yield self.result(pending.popleft())
        finally:
            for unused in pending:  # the caller stopped early: free their places in the backend
                with suppress(RuntimeError):
                    self.result(unused)

    def frame_memory(self, size: int) -> Optional[np.ndarray]:
        """Return a (size,) uint8 buffer for a frame, which saves the GPU a copy, or None if any memory will do.

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
        if type(raw) is np.ndarray and (raw.dtype, raw.shape) == self._valid:
            frames: List[Any] = [RawFrame(raw, _BYTE_MAX)]
        else:
            frames = self._frames(raw)
        if reference is not None or self._takes_reference:
            check_reference_argument(reference, self.options, self.output_size(frames[0].shape))
        seconds = time.perf_counter() - start
        with self._guard:
            if _is_batch(raw):
                finish: Callable[[], Result] = partial(_compute_batch, self._backend, frames, reference)
            else:
                finish = self._backend.submit(frames[0], reference)
            return Pending(finish, seconds, os.getpid())

    def result(self, pending: Pending) -> Result:
        """Return the products of a submitted frame; frames come back in the order of submission.

        Raises:
            RuntimeError: On a GPU, its result was taken before; or it was submitted before a fork. Or as for a call.
        """
        if pending.process != os.getpid():
            raise RuntimeError("this frame was submitted before a fork: submit it in the process that takes its result")
        with self._guard:
            result = pending.finish()
        result.timings = {"prepare": pending.seconds, **result.timings}
        return result

    def _frames(self, raw: Raw) -> List[Any]:
        """Validate a raw frame on the host or on the device, or the frames of a batch on the host.

        Raises:
            FrameError: A frame of the wrong type, shape or size.
        """
        stated: Iterable[FrameWarning] = getattr(raw, "warnings", ())  # of a file
        has_stated = hasattr(raw, "to_frame")
        raw = _numbers(raw, self.options)
        array: Any = raw.mosaic if isinstance(raw, RawFrame) else raw
        if not isinstance(array, np.ndarray) and is_on_device(array):
            return [self._backend.device_frame(raw)]
        mosaics = _mosaics(raw, self.options) if _is_batch(raw) else [raw]
        frames = [input_frame(mosaic, self.options) for mosaic in mosaics]
        self.output_size(frames[0].shape)  # refuses frames of which a geometry leaves nothing
        if type(raw) is np.ndarray and raw.dtype == np.uint8 and raw.ndim == 2:
            self._valid = (raw.dtype, raw.shape)
        if not self._has_warned and (has_stated or (isinstance(raw, np.ndarray) and raw.dtype != np.uint8)):
            bits = self.options.bit_depth, self.options.calibrated_bits
            rows = [row for frame in frames for row in bit_warnings(frame, *bits)]
            texts = {row.text for row in (*stated, *rows)}
            for text in sorted(texts):
                self._has_warned = True
                warnings.warn(text, stacklevel=4)
        return frames

    def debug(self, raw: Raw) -> Dict[str, np.ndarray]:
        """Compute diagnostic images of a frame by name; slow, and the same for every backend.

        `polarization_switch`: (H, W) float32, 0 where `adaptive` restores detail, up to 1 at edges of polarization.

        Raises:
            ValueError: The options do not use the adaptive demosaic. Frames are refused as by a call.
        """
        from polar_pipeline.backends.cpu.diagnostics import diagnostics  # here: nothing else in a pipeline needs it

        self._guard.check()
        return diagnostics(input_frame(raw, self.options).unpack(), self.options)

    def reset(self) -> None:
        """Forget the previous frame (SSIM mode `temporal`), as after a jump in time.

        Raises:
            RuntimeError: The same causes as for a call.
        """
        with self._guard:
            self._backend.reset()

    def close(self) -> None:
        """Release threads and buffers; the pipeline cannot be used afterwards. Safe to call twice.

        Raises:
            RuntimeError: Another thread uses the pipeline.
        """
        if self._guard.is_closed:
            return
        with self._guard:
            if self._made is not None:  # a process that was just forked has nothing to release
                self._made.close()
            self._guard.is_closed = True


def _begin_after_fork() -> None:
    for pipeline in list(_PIPELINES):
        pipeline._begin_after_fork()


os.register_at_fork(after_in_child=_begin_after_fork)


def _numbers(raw: Raw, options: Options) -> Union[np.ndarray, Frame]:
    """Return the numbers of a frame of a file, or the frame itself."""
    to_frame: Optional[Callable[[Options], Frame]] = getattr(raw, "to_frame", None)
    return cast("Union[np.ndarray, Frame]", raw) if to_frame is None else to_frame(options)


def _is_batch(raw: Raw) -> bool:
    """Return whether a raw array on the host has three axes."""
    array = raw.mosaic if isinstance(raw, RawFrame) else raw
    return isinstance(array, np.ndarray) and array.ndim == 3


def _mosaics(raw: Raw, options: Options) -> Sequence[Raw]:
    """Return the mosaics of a batch, (N, H, W). A color picture, (H, W, 3), is not one: its frames are too small.

    Raises:
        FrameError: There are no frames, they are too small, or their results would be on a GPU (cause `size`).
    """
    array: Any = raw.mosaic if isinstance(raw, RawFrame) else raw
    if not len(array) or min(array.shape[1:]) < MIN_SIDE:
        raise FrameError(
            "size",
            f"raw must be (H, W), or (N, H, W) for a batch of at least one frame of {MIN_SIDE}x{MIN_SIDE} pixels, got "
            f"shape {array.shape}",
        )
    if options.output == "device":
        raise FrameError("size", "a batch for output='device' must be on the GPU, got a NumPy array")
    if isinstance(raw, RawFrame):
        return [RawFrame(mosaic, raw.full_scale, raw.is_split) for mosaic in array]
    return list(array)


def _compute_batch(backend: Backend, frames: Sequence[Frame], reference: Optional[np.ndarray]) -> Result:
    """Compute frames one after the other, and stack their products."""
    products: Dict[str, np.ndarray] = {}
    timings: Dict[str, float] = {}
    blocks: List[np.ndarray] = []
    invalid = (0, 0)
    for index, frame in enumerate(frames):
        result = backend.submit(frame, reference)()
        for name, array in result.items():
            if name not in products:
                products[name] = np.empty((len(frames), *array.shape), array.dtype)
            products[name][index] = array
        for stage, seconds in result.timings.items():
            timings[stage] = timings.get(stage, 0.0) + seconds
        invalid = (invalid[0] + result.invalid[0], invalid[1] + result.invalid[1])
        if result.blocks is not None:
            blocks.append(result.blocks)
    return Result(products, timings, invalid, np.stack(blocks) if blocks else None, len(frames))


def input_frame(raw: Raw, options: Options) -> Frame:
    """Validate a raw frame; `Options.full_scale_of` is the value of a saturated pixel in arrays of wide integers."""
    raw = _numbers(raw, options)
    is_wide = isinstance(raw, np.ndarray) and raw.dtype != np.uint8
    frame = as_frame(raw, SIXTEEN_BITS if is_wide else 0)
    if is_wide and isinstance(frame, RawFrame):
        frame = RawFrame(frame.mosaic, options.full_scale_of(frame.mosaic))
    options.for_frame(frame)  # refuses frames that the options exclude
    return frame


def _make_backend(options: Options) -> Backend:
    """Create the backend that the options name; for `auto` CUDA if it works here.

    Raises:
        RuntimeError: CUDA was asked for and cannot work here.
        ValueError: An option needs the other backend.
    """
    reason = None if options.backend == "cpu" else backend_problem("cuda")
    if reason and options.backend == "cuda":
        raise RuntimeError(f"backend 'cuda' cannot work here: {reason}")
    if options.backend != "cpu" and not reason:
        from polar_pipeline.backends.cuda.backend import CudaBackend  # here: it loads all that a GPU needs

        return CudaBackend(options)
    if options.output == "device":
        raise ValueError("output 'device' needs backend 'cuda'" + (f"; no CUDA here: {reason}" if reason else ""))
    if options.precision == "fp16":
        raise ValueError(
            "precision 'fp16' needs backend 'cuda'; the cpu backend computes in fp32 ('auto' or 'fp32')"
            + (f"; no CUDA here: {reason}" if reason else "")
        )
    from polar_pipeline.backends.cpu.backend import CpuBackend

    return CpuBackend(options, options.threads)


def backend_problem(name: str) -> Optional[str]:
    """Return why a backend (`auto`, `cpu`, `cuda`) cannot work on this machine, or None if it can."""
    if name != "cuda":
        return None
    from polar_pipeline.backends.cuda.backend import problem

    return problem()
