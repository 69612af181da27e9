"""Calls to CUDA, with errors that say what happened. The only module that imports CuPy.

CuPy's own arrays, pools and streams are not used: what is allocated here is freed at a known time, also on a lost
device.
"""

from __future__ import annotations

import ctypes
import errno
import importlib
import logging
import os
import re
import sys
import tempfile
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Iterator, Mapping, Optional, Tuple, TypeVar, Union

import numpy as np

from polar_pipeline._util.imports import importing
from polar_pipeline._util.stop_flag import PROCESS_STOP, StoppedError
from polar_pipeline._util.text import printable, printable_lines
from polar_pipeline.backends.backend import CompileError, DeviceError, DeviceLostError, DeviceMemoryError
from polar_pipeline.backends.cuda.device import Device, board_model, from_properties
from polar_pipeline.backends.cuda.source import OPTIONS, source
from polar_pipeline.sensor.frames import FrameError

_LOG = logging.getLogger(__name__)
_T = TypeVar("_T")

#: Status codes after which a CUDA context is of no use any more: the device is gone or busy (46, 100, 101), memory
#: failed (214, 220), a kernel accessed memory out of bounds or took too long (700, 702, 714 to 719), or the cause is
#: unknown (999).
_LOST = (46, 100, 101, 201, 214, 220, 700, 702, 709, 710, *range(714, 720), 999)
_OUT_OF_MEMORY = 2
#: What CUDA answers in a process that was forked from one that had started it.
_NOT_INITIALIZED = 3
#: Directions of copies.
TO_DEVICE, TO_HOST, ON_DEVICE = 1, 2, 3
_NON_BLOCKING = 1
_NO_TIMES = 2
_HOST_MAPPED = 2
_LOCAL_BYTES, _MAX_DYNAMIC_SHARED = 3, 8
#: The GPU that is used.
_FIRST = 0
#: Dynamic shared memory that a kernel may have without asking.
_FREE_SHARED = 48 * 1024
#: Seconds above which a kernel was compiled, and not read from disk.
_LONG_COMPILATION = 0.2


@dataclass(frozen=True)
class LoadedKernel:
    """A loaded kernel: the driver's handle, and the object of CuPy that keeps it loaded."""

    function: int
    owner: Any = None


class Argument:
    """The argument of a kernel, a structure that is passed by value.

    Args:
        values: What it holds at first.

    Attributes:
        values: The structure.
        parameters: Address of the pointer to it, as the driver wants it.
    """

    def __init__(self, values: np.ndarray) -> None:
        self.values = values.copy()
        self._pointer = ctypes.c_void_p(self.values.ctypes.data)
        self.parameters = ctypes.addressof(self._pointer)


def cause(error: Exception) -> str:
    """Return the cause of a failed import: the last line of its message, since CuPy adds a page of advice."""
    lines = [line.strip() for line in str(error).splitlines()]
    return next((line for line in reversed(lines) if re.search(r"\w", line)), str(error))


def import_cupy() -> Any:
    """Import CuPy.

    Raises:
        RuntimeError: CuPy cannot be imported.
    """
    if "cupy" not in sys.modules:
        try:
            folder = Path(os.environ.get("CUPY_CACHE_DIR") or Path.home() / ".cupy" / "kernel_cache")
            folder.mkdir(parents=True, exist_ok=True)
            if not os.access(str(folder), os.W_OK | os.X_OK):
                raise PermissionError(errno.EACCES, "cannot be written", str(folder))
        except (OSError, RuntimeError) as err:
            _disable_kernel_cache(err)
    try:
        with importing():
            return importlib.import_module("cupy")
    except ImportError as err:
        raise RuntimeError(f"CuPy cannot be imported ({cause(err)}); pip extras cuda11, cuda12, cuda13") from err


def _disable_kernel_cache(reason: Exception) -> None:
    """Prevent CuPy from reading and writing its folder of compiled kernels."""
    _LOG.warning("kernel cache disabled (%s): set CUPY_CACHE_DIR to a folder of your own", reason)
    os.environ.update(CUPY_CACHE_IN_MEMORY="1", CUPY_CACHE_DIR=tempfile.gettempdir())


def device_count() -> int:
    """Count the GPUs that this process may see; 0 without CuPy. Starts CUDA in this process."""
    try:
        return int(import_cupy().cuda.runtime.getDeviceCount())
    except RuntimeError:  # CuPy's own errors are such errors too
        return 0


class Driver:
    """The first GPU of those that this process may see (`CUDA_VISIBLE_DEVICES`).

    Args:
        device: The device to treat it as, with its schedules and use of host memory; by default the one that it is.

    Calls of every frame are CUDA's own, without a layer in between; their errors become those of this package in `run`.

    Attributes:
        name: The manufacturer's name of the GPU.
        device: Limits of the GPU.
        copy_now: `cudaMemcpy(target, source, bytes, TO_DEVICE | TO_HOST | ON_DEVICE)`, of pinned host memory.
        copy: `cudaMemcpyAsync`, the same with a stream.
        fill: `cudaMemsetAsync(pointer, byte, bytes, stream)`.
        record: `cudaEventRecord(event, stream)`.
        wait: `cudaEventSynchronize(event)`.
        follow: `cudaStreamWaitEvent(stream, event)`.
        elapsed: `cudaEventElapsedTime(first, second)`, milliseconds between two timed events.
        launch: `cuLaunchKernel(function, blocks x, y, z, threads x, y, z, shared bytes, stream, parameters, 0)`.

    Raises:
        DeviceError: There is no GPU, or no driver for it.
        RuntimeError: CuPy cannot be imported.
    """

    def __init__(self, device: Optional[Device] = None) -> None:
        self._process = os.getpid()
        self._cupy = import_cupy()
        self._runtime, self._driver = self._cupy.cuda.runtime, self._cupy.cuda.driver
        self._errors = (self._runtime.CUDARuntimeError, self._driver.CUDADriverError)
        try:
            properties = self._runtime.getDeviceProperties(_FIRST)
        except self._errors as err:
            if err.status == _NOT_INITIALIZED:
                raise DeviceError(
                    f"CUDA cannot start ({err}), as in a process that was forked from one that used the GPU: start "
                    "processes with multiprocessing's method 'spawn'"
                ) from err
            raise DeviceError(f"no GPU: {err}") from err
        runtime = self._runtime
        self.copy_now, self.copy, self.fill = runtime.memcpy, runtime.memcpyAsync, runtime.memsetAsync
        self.elapsed, self.launch = runtime.eventElapsedTime, self._driver.launchKernel
        self.record, self.wait, self.follow = runtime.eventRecord, runtime.eventSynchronize, runtime.streamWaitEvent
        self.name: str = properties["name"].decode()
        self.device: Device = device or from_properties(properties, board_model())

    def _call(self, function: Any, *arguments: Any) -> Any:
        try:
            return function(*arguments)
        except self._errors as err:
            raise _translate(err) from err

    def _release(self, function: Any, *arguments: Any) -> None:
        """Free a resource; a lost device has freed it already, and a forked process must not."""
        if os.getpid() == self._process and not sys.is_finalizing():
            with suppress(DeviceError):
                self.run(function, *arguments)

    def run(self, function: Callable[..., _T], *arguments: Any) -> _T:
        """Call a function while this GPU is the current one of the thread: what is made belongs to the current GPU.

        Raises:
            DeviceError: A call to the GPU failed within.
        """
        previous = _FIRST
        try:
            previous = self._runtime.getDevice()
            if previous != _FIRST:
                self._runtime.setDevice(_FIRST)
            return function(*arguments)
        except self._errors as err:
            raise _translate(err) from err
        finally:
            if previous != _FIRST:
                with suppress(*self._errors):
                    self._runtime.setDevice(previous)

    def _allocate(self, where: str, size: int, function: Any, *arguments: Any) -> int:
        try:
            pointer: int = function(*arguments)
        except self._errors as err:
            if err.status != _OUT_OF_MEMORY:
                raise _translate(err) from err
            free, total = self._call(self._runtime.memGetInfo)
            raise DeviceMemoryError(
                f"{size} bytes of {where} are not available; {free} of the {total} bytes of {self.name} are free"
            ) from err
        return pointer

    # -- memory ----------------------------------------------------------------------------------------------------

    def malloc(self, size: int) -> int:
        """Allocate device memory.

        Raises:
            DeviceMemoryError: Not enough is free.
        """
        return self._allocate("device memory", size, self._runtime.malloc, size)

    def total_memory(self) -> int:
        """Return the size of the device memory in bytes."""
        _, total = self._call(self._runtime.memGetInfo)
        return int(total)

    def free(self, pointer: int) -> None:
        """Free device memory."""
        self._release(self._runtime.free, pointer)

    def host_array(self, shape: Tuple[int, ...], dtype: str) -> np.ndarray:
        """Allocate an array in pinned host memory, which kernels can access; it is freed like any array.

        Raises:
            DeviceMemoryError: Not enough is free.
        """
        size = max(1, int(np.prod(shape)) * np.dtype(dtype).itemsize)
        pointer = self._allocate("pinned host memory", size, self._runtime.hostAlloc, size, _HOST_MAPPED)
        return np.asarray(_HostBlock(self, pointer, shape, dtype))

    def free_host(self, pointer: int) -> None:
        """Free pinned host memory."""
        self._release(self._runtime.freeHost, pointer)

    def memory_at(self, pointer: int, size: int, owner: object) -> Any:
        """Return device memory that `owner` keeps as CuPy takes it, for `array_in`."""
        return self._cupy.cuda.MemoryPointer(self._cupy.cuda.UnownedMemory(pointer, size, owner, _FIRST), 0)

    def array_in(self, memory: Any, shape: Tuple[int, ...], dtype: str) -> Any:
        """Return a CuPy array that begins at `memory_at`."""
        return self._cupy.ndarray(shape, dtype, memory)

    def as_array(self, array: Any) -> Any:
        """Return a CuPy array of an array of any library that is on this GPU, without a copy.

        What its library's current stream does first, CuPy's current stream waits for.

        Raises:
            FrameError: Its library does not share the array: PyTorch refuses tensors that require gradients.
            ValueError: It is on another device.
        """
        is_ready = isinstance(array, self._cupy.ndarray) and array.device.id == _FIRST
        return array if is_ready else self.run(self._as_array, array)

    def _as_array(self, array: Any) -> Any:
        if not isinstance(array, self._cupy.ndarray):
            convert = self._cupy.from_dlpack if hasattr(array, "__dlpack__") else self._cupy.asarray
            try:
                array = convert(array)
            except (BufferError, RuntimeError) as err:
                if isinstance(err, self._errors):  # of the device, not of the array
                    raise
                text = f"raw must be a uint8 or uint16 array that its library shares, got a {type(array).__name__}"
                raise FrameError("type", f"{text}: {printable(str(err))}") from None
        if int(array.device.id) != _FIRST:
            raise ValueError(f"a frame must be on GPU {_FIRST}, got one on GPU {array.device.id}")
        return array

    def current_stream(self) -> Any:
        """Return the stream of CuPy (`ptr` is its handle) that gets the work of this thread."""
        return self._cupy.cuda.get_current_stream()

    @contextmanager
    def in_stream(self, stream: int) -> Iterator[None]:
        """Give CuPy's work of this thread to a stream."""
        cuda = self._cupy.cuda
        takes_protocol = hasattr(cuda.Stream, "from_external")  # CuPy 14
        with cuda.Stream.from_external(_Stream(stream)) if takes_protocol else cuda.ExternalStream(stream):
            yield

    # -- order -----------------------------------------------------------------------------------------------------

    def make_stream(self) -> int:
        """Create a stream that runs concurrently with all others."""
        stream: int = self._call(self._runtime.streamCreateWithFlags, _NON_BLOCKING)
        return stream

    def free_stream(self, stream: int) -> None:
        """Destroy a stream."""
        self._release(self._runtime.streamDestroy, stream)

    def make_event(self, is_timed: bool = False) -> int:
        """Create an event; one that notes its time for `elapsed` keeps the device busy for a microsecond."""
        event: int = self._call(self._runtime.eventCreateWithFlags, 0 if is_timed else _NO_TIMES)
        return event

    def free_event(self, event: int) -> None:
        """Destroy an event."""
        self._release(self._runtime.eventDestroy, event)

    # -- kernels ---------------------------------------------------------------------------------------------------

    def load(self, name: str, defines: Mapping[str, Union[int, str]], shared: int) -> LoadedKernel:
        """Compile and load a kernel. CuPy keeps it on disk, and loaded until the process ends.

        Args:
            name: The kernel's name, and that of its file in `kernels/`.
            defines: Preprocessor definitions.
            shared: Dynamic shared memory that launches will ask for, bytes.

        Raises:
            CompileError: The source does not compile, or there is nothing to compile it with.
            FileNotFoundError: There is no such kernel.
            StoppedError: This process was asked to end.
        """
        if PROCESS_STOP.is_set():
            raise StoppedError("asked to end while GPU kernels were compiled")
        begin = time.monotonic()
        kernel = self._compile(source(name, defines), name)
        seconds = time.monotonic() - begin
        if seconds > _LONG_COMPILATION:
            _LOG.info("compiled the GPU kernel %s in %.1f s; it stays on disk", name, seconds)
        if shared > _FREE_SHARED:
            self._call(self._driver.funcSetAttribute, kernel.function, _MAX_DYNAMIC_SHARED, shared)
        return kernel

    def _compile(self, text: str, name: str) -> LoadedKernel:
        """Compile a source for this GPU, and load its kernel."""
        self._call(self._runtime.free, 0)  # makes the runtime's context this thread's, which loading needs
        module = self._cupy.RawModule(code=text, options=OPTIONS)

        def load() -> LoadedKernel:
            kernel = module.get_function(name)
            return LoadedKernel(kernel.kernel.ptr, kernel)

        try:
            try:
                return load()
            except OSError as err:  # as on a full disk
                _disable_kernel_cache(err)
                return load()
        except self._errors as err:
            raise _translate(err) from err
        except self._cupy.cuda.compiler.CompileException as err:
            raise CompileError(f"{name}.cu does not compile\n{printable_lines(err.get_message())}") from None
        except (RuntimeError, ImportError) as err:  # no compiler, or one that does not know this GPU
            raise CompileError(f"{name}.cu cannot be compiled: {cause(err)}") from err

    def local_bytes(self, kernel: LoadedKernel) -> int:
        """Return the bytes of local memory of a thread, for values that registers cannot hold."""
        return max(0, int(self._call(self._driver.funcGetAttribute, _LOCAL_BYTES, kernel.function)))


def _translate(err: Any) -> DeviceError:
    """Translate an error of CuPy to one of this module."""
    if err.status in _LOST:
        return DeviceLostError(
            f"the GPU was lost ({err}): close the pipeline and make a new one; after a fault of a kernel that takes a "
            "new process"
        )
    return DeviceError(f"a call to the GPU failed: {err}")


class _Stream:
    """A stream in the protocol by which libraries take streams of each other."""

    def __init__(self, handle: int) -> None:
        self._handle = handle

    def __cuda_stream__(self) -> Tuple[int, int]:
        """Return the version of the protocol and the handle."""
        return 0, self._handle


class _HostBlock:
    """Pinned memory with NumPy's array interface; the array made from it keeps it alive."""

    def __init__(self, driver: Driver, pointer: int, shape: Tuple[int, ...], dtype: str) -> None:
        self._driver = driver
        self._pointer = pointer
        self.__array_interface__ = {
            "version": 3,
            "shape": shape,
            "typestr": np.dtype(dtype).str,
            "data": (pointer, False),
        }

    def __del__(self) -> None:
        self._driver.free_host(self._pointer)
