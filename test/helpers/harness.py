"""Kernels under test: the very same `kernels/*.cu`, run on the CPU by `host/`, or on a GPU where there is one."""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import shutil
import subprocess
import threading
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Callable, Dict, Mapping, NamedTuple, Optional, Sequence, Tuple

import numpy as np
import nvrtc
from support import ROOT

from polar_pipeline._util.files import replacing
from polar_pipeline.backends.cuda.arguments import FRAME_ARGUMENT, fill_options
from polar_pipeline.backends.cuda.correction import fill_argument
from polar_pipeline.backends.cuda.device import DEVICES, Device
from polar_pipeline.backends.cuda.driver import Driver, LoadedKernel
from polar_pipeline.backends.cuda.kernels import KERNELS as REGISTRY
from polar_pipeline.backends.cuda.kernels import Schedule, launch_defines
from polar_pipeline.backends.cuda.source import OPTIONS as COMPILER_OPTIONS
from polar_pipeline.backends.cuda.work import OUTPUTS, PLANES, PolarizationWork, Work
from polar_pipeline.calibration import Correction
from polar_pipeline.options import Options
from polar_pipeline.options.products import PRODUCTS

HOST = Path(__file__).resolve().parent / "host"
KERNELS = ROOT / "kernels"
#: Libraries kept, about twice those of a full run.
CACHED = 1000
CACHE = ROOT / ".pytest_cache" / "d" / "kernels"
COMPILER = shutil.which(os.environ.get("CXX", "c++"))
_INCLUDES = (f"-I{KERNELS}", f"-I{HOST}")
_COMMON = (
    "-std=c++14",
    "-g1",  # lines, for the messages of faults
    "-fno-var-tracking",
    "-gdwarf-4",
    "-fPIC",
    "-shared",
    "-fno-omit-frame-pointer",  # for the chain of calls in messages of faults
    "-ffp-contract=off",
    "-DPOLAR_HOST",
    *_INCLUDES,
)
#: The sanitizers' hooks are in the library of `runner.cpp`; their own libraries are left out with all others.
_CHECKED = (
    *("-nostdlib", "-Wl,-rpath,$ORIGIN"),
    "-fvisibility=hidden",
    "-O0",  # compiles in half the time of -O1, which matters more here than how fast the kernels run
    "-fsanitize=thread,alignment,bounds,shift-exponent,float-cast-overflow,integer-divide-by-zero",
    "-fno-exceptions",  # nothing unwinds: a tenth less to compile
    "-fno-asynchronous-unwind-tables",
    "-fno-optimize-sibling-calls",  # or callers of hooks would be missing in that chain
    "-Wno-unknown-pragmas",
)

#: Every launch happens twice, and must not depend on these: (threads and blocks in reverse, content of memory that
#: nobody has written).
VARIANTS = ((False, 0xFF), (True, 0x35))


#: From the buffers' addresses to a kernel's argument, of type `FRAME_ARGUMENT`.
MakeFrame = Callable[[Mapping[str, int]], np.ndarray]


class KernelError(AssertionError):
    """A kernel did what a GPU would punish, or may punish on some days."""


class Grid(NamedTuple):
    """How a kernel is launched: blocks along x, y, z; threads of a block; bytes of shared memory."""

    blocks: Tuple[int, int, int]
    threads: int
    shared_bytes: int = 0


class _Buffer(ctypes.Structure):
    _fields_ = [
        ("begin", ctypes.c_uint64),
        ("size", ctypes.c_uint64),
        ("writable", ctypes.c_int),
        ("name", ctypes.c_char_p),
    ]


# ----------------------------------------------------------------------------------------------------------- on the CPU


def _compile(output: Path, *arguments: str) -> Path:
    """Run the compiler, unless its result is kept and so counts as used now; the result appears at once or never."""
    with suppress(FileNotFoundError):
        os.utime(output)
        return output
    output.parent.mkdir(parents=True, exist_ok=True)
    part = output.with_name(f"{output.name}.{os.getpid()}.{threading.get_ident()}")
    run = subprocess.run([str(COMPILER), *arguments, "-o", str(part)], capture_output=True, text=True, check=False)
    if run.returncode:
        raise KernelError(f"{output.name} does not compile:\n{run.stderr}")
    part.replace(output)
    return output


@lru_cache(maxsize=None)
def _sources() -> bytes:
    """Digest of what every build depends on, besides the kernel: the shared sources and the compiler.

    Two compilers of one version may still differ in the flags that they set by themselves, so their files count too.
    """
    version = subprocess.run([str(COMPILER), "--version"], capture_output=True, check=True).stdout
    shared = [*sorted(KERNELS.glob("*.cuh")), *sorted(KERNELS.glob("*.h")), *sorted(HOST.iterdir())]
    read = [Path(str(COMPILER)).read_bytes(), version, *(path.read_bytes() for path in shared if path.is_file())]
    return hashlib.sha256(b"".join(read)).digest()


def _key(*parts: object) -> str:
    return hashlib.sha256(_sources() + repr(parts).encode()).hexdigest()[:24]


def _runner() -> Path:
    """The library that all kernels need. Used for each, so that it is never among those used longest ago."""
    target = CACHE / f"runner-{_key(_COMMON)}.so"
    sources = (str(HOST / "runner.cpp"), str(HOST / "arithmetic.cpp"))
    return _compile(target, *_COMMON, "-O2", f"-Wl,-soname,{target.name}", *sources)


def build(kernel: Path, definitions: Mapping[str, object]) -> Path:
    """The library of one kernel, compiled unless it has been before.

    Args:
        kernel: A `.cu` file with one entry point of its name that takes a `Frame`.
        definitions: For the preprocessor.
    """
    options = [f"-D{name}={value}" for name, value in sorted(definitions.items())]
    target = CACHE / f"{kernel.stem}-{_key(kernel.read_bytes(), options, _COMMON, _CHECKED)}.so"
    names = f'-DKERNEL_FILE="{kernel}"', f"-DKERNEL_NAME={kernel.stem}"
    files = str(HOST / "entry.cpp"), str(_runner())
    return _compile(target, *_COMMON, *_CHECKED, *options, *names, *files, "-lm", "-lgcc")


def prune_cache() -> None:
    """Forget the libraries that were used longest ago. Other processes of tests may build meanwhile."""
    ages: Dict[Path, float] = {}
    for path in CACHE.glob("*"):
        with suppress(FileNotFoundError):
            ages[path] = path.stat().st_mtime
    for path in sorted(ages, key=ages.__getitem__)[:-CACHED]:
        path.unlink(missing_ok=True)


@lru_cache(maxsize=None)
def _load(library: Path) -> Tuple[Callable[..., int], int]:
    """The function that launches kernels, and the address of one."""
    kernel = ctypes.CDLL(str(library))
    function = ctypes.CDLL(str(_runner())).host_launch
    function.argtypes = [
        *(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64),
        *(ctypes.POINTER(ctypes.c_uint32), ctypes.c_uint32, ctypes.c_uint32),
        *(ctypes.POINTER(_Buffer), ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint64),
    ]
    return function, ctypes.cast(kernel.host_entry, ctypes.c_void_p).value or 0


#: The runner runs one kernel at a time.
_LAUNCH = threading.Lock()


def _source_lines(library: Path, message: str) -> str:
    """A message whose second line is of calls in the library, with the lines of the kernel in its place."""
    text, _, calls = message.partition("\n")
    tool = shutil.which("addr2line")
    if not calls or not tool:
        return text
    command = [tool, "-i", "-e", str(library), *calls.split()]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    places = [Path(line.split(" ")[0]).name for line in run.stdout.splitlines()]
    chain = [place for place in places if re.match(r"(?!host\.).*\.(cuh?|h):", place)]
    return text + (f" (at {', from '.join(chain)})" if chain else "")


def launch_on_host(
    library: Path,
    make_frame: MakeFrame,
    grid: Grid,
    buffers: Mapping[str, np.ndarray],
    reverse: bool = False,
    poison: int = 0xFF,
) -> None:
    """Run a kernel once.

    Args:
        library: From `build`.
        make_frame: Makes the kernel's argument.
        grid: Launch parameters.
        buffers: Every memory that the kernel may touch; read-only arrays are inputs, the others change in place.
        reverse: Whether threads and blocks run from the last one to the first.
        poison: Byte that shared memory is filled with before every block.

    Raises:
        KernelError: Memory out of bounds or misaligned, a race in shared memory, a deadlock, or undefined arithmetic.
    """
    frame = make_frame({name: array.ctypes.data for name, array in buffers.items()})
    rows = [
        (array.ctypes.data, array.nbytes, int(array.flags.writeable), name.encode()) for name, array in buffers.items()
    ]
    message = ctypes.create_string_buffer(1024)
    launch, kernel = _load(library)
    with _LAUNCH:
        failed = launch(
            kernel,
            frame.ctypes.data,
            frame.nbytes,
            (ctypes.c_uint32 * 3)(*grid.blocks),
            grid.threads,
            grid.shared_bytes,
            (_Buffer * len(rows))(*rows),
            len(rows),
            int(reverse),
            poison,
            message,
            len(message),
        )
    if failed:
        raise KernelError(f"{library.name.split('-')[0]}: {_source_lines(library, message.value.decode())}")


def aligned(size: int, fill: int = 0, alignment: int = 256) -> np.ndarray:
    """(size,) uint8 at an address as a GPU's allocator gives it."""
    room = np.full(size + alignment, fill, np.uint8)
    start = -room.ctypes.data % alignment
    return room[start : start + size]


# ------------------------------------------------------------------------------------------------------- one whole work


class Outputs(NamedTuple):
    """What a kernel made of a batch of frames.

    Attributes:
        images: Output -> (frames, ...) array; `sums` is (frames, 2, height, width).
        counts: (frames, 2) saturated and dark pixels.
    """

    images: Dict[str, np.ndarray]
    counts: np.ndarray


class Program(NamedTuple):
    """A kernel and what it is compiled with.

    Attributes:
        stem: Of its file, and its entry point.
        definitions: For the preprocessor.
    """

    stem: str
    definitions: Mapping[str, object]

    def library(self) -> Path:
        """For the CPU."""
        return build(KERNELS / f"{self.stem}.cu", self.definitions)


#: Runs a program once: (program, argument from addresses, grid, buffers, reverse, poison).
Launch = Callable[[Program, MakeFrame, Grid, Mapping[str, np.ndarray], bool, int], None]


def program_of(work: Work, plan: Schedule) -> Program:
    """What does a work by a schedule."""
    return Program(plan.kernel, launch_defines(work, plan))


def grid_of(work: Work, plan: Schedule, frames: int = 1) -> Grid:
    """The launch of a work by a schedule."""
    kernel = REGISTRY[plan.kernel]
    return Grid(kernel.grid(work, plan, frames), plan.threads, kernel.shared_bytes(work, plan))


def host(
    program: Program,
    make_frame: MakeFrame,
    grid: Grid,
    buffers: Mapping[str, np.ndarray],
    reverse: bool,
    poison: int,
) -> None:
    """`Launch` on the CPU."""
    launch_on_host(program.library(), make_frame, grid, buffers, reverse, poison)


#: Bytes around each buffer that show writes beyond it.
_MARGIN = 256


def _as_jetson(name: str) -> Device:
    """A Jetson whose code is PTX, which the driver of any newer GPU compiles.

    Its schedules, launches, branches below its compute capability and mapped host memory are a Jetson's. Other kinds of
    memory are not tried: which one is faster means nothing on another GPU.
    """
    device = DEVICES[name]
    return replace(device, arch=device.arch.replace("sm_", "compute_"), integrated=False, maps_host=True)


#: What the GPU of this machine is used as: itself, with copies in its memory; or a Jetson. Without CuPy, tests of GPUs
#: are skipped once each.
GPUS: Dict[str, Optional[Device]] = {"gpu": None}
if find_spec("cupy") is not None:
    GPUS.update((f"gpu-as-{name}", _as_jetson(name)) for name in ("xavier", "orin"))


class JetsonDriver(Driver):
    """The GPU of this machine, with kernels in PTX for a Jetson's `arch` (`compute_72`), which its driver compiles."""

    def _compile(self, text: str, name: str) -> LoadedKernel:
        entry = CACHE.parent / "ptx" / f"{hashlib.sha256(f'{self.device.arch} {text}'.encode()).hexdigest()}.ptx"
        if not entry.exists():
            code = nvrtc.find_library(self.device.arch).compile(text, f"{name}.cu", self.device.arch, COMPILER_OPTIONS)
            entry.parent.mkdir(parents=True, exist_ok=True)
            with replacing(entry, force=True) as stream:
                stream.write(code)
        self._call(self._runtime.free, 0)  # makes the runtime's context this thread's
        module = self._call(self._driver.moduleLoadData, entry.read_bytes())
        return LoadedKernel(self._call(self._driver.moduleGetFunction, module, name))


@lru_cache(maxsize=None)
def gpu_driver(name: str = "gpu") -> Driver:
    """The GPU.

    Args:
        name: Of what it is used as: a key of `GPUS`.

    Raises:
        RuntimeError: There is none, or no compiler for it.
    """
    device = GPUS[name]
    if device is None:
        return Driver()
    nvrtc.find_library(device.arch)
    return JetsonDriver(device)


def launch_on_gpu(
    driver: Driver,
    program: Program,
    make_frame: MakeFrame,
    grid: Grid,
    buffers: Mapping[str, np.ndarray],
    _: bool,
    poison: int,
) -> None:
    """Run a kernel once on the GPU, which has an order of its own; bytes around the buffers must stay as they are.

    Args:
        driver: The GPU.
        program: The kernel.
        make_frame: Makes the kernel's argument.
        grid: Launch parameters.
        buffers: Every memory that the kernel may touch; arrays that can be written change in place.
        poison: Byte around the buffers.

    Raises:
        KernelError: It wrote outside of a buffer.
    """
    kernel = driver.load(program.stem, dict(program.definitions), grid.shared_bytes)
    held = {name: np.pad(array.reshape(-1), _MARGIN, constant_values=poison) for name, array in buffers.items()}
    addresses = {name: driver.malloc(array.nbytes) for name, array in held.items()}
    for name, array in held.items():
        driver.upload(addresses[name], array, 0)
    argument = make_frame({name: address + _MARGIN for name, address in addresses.items()})
    driver.launch(kernel, grid.blocks, grid.threads, grid.shared_bytes, 0, argument)
    for name, array in held.items():
        driver.download(array, addresses[name], 0)
    done = driver.make_event()
    driver.record(done, 0)
    driver.wait(done)
    driver.free_event(done)
    for name, array in held.items():
        driver.free(addresses[name])
        if np.any(array[:_MARGIN] != poison) or np.any(array[-_MARGIN:] != poison):
            raise KernelError(f"writes outside of {name}")
        if buffers[name].flags.writeable:
            buffers[name][...] = array[_MARGIN:-_MARGIN].reshape(buffers[name].shape)


def on_gpu(name: str) -> Launch:
    """`Launch` on the GPU, used as a key of `GPUS` says.

    Raises:
        RuntimeError: There is none, or no compiler for it.
    """
    launch: Any = partial(launch_on_gpu, gpu_driver(name))
    launch.__name__ = name
    return launch


def run_in_every_order(
    launch: Launch,
    program: Program,
    make_frame: MakeFrame,
    grid: Grid,
    inputs: Mapping[str, np.ndarray],
    counters: Mapping[str, int],
    outputs: Mapping[str, int],
    wanted: Sequence[str],
) -> Dict[str, np.ndarray]:
    """Run a program in every order of `VARIANTS`, and return the bytes of its counters and outputs.

    Args:
        launch: `host`, or what `on_gpu` gives.
        program: The kernel.
        make_frame: Makes the kernel's argument.
        grid: Launch parameters.
        inputs: Memory that the kernel only reads.
        counters: Bytes of memory that is 0 before the launch.
        outputs: Bytes of memory that the kernel may write.
        wanted: The outputs that it must write; it writes no others.

    Raises:
        KernelError: A fault, outputs that differ between two orders or that hold what memory held before, or a write to
            an output that is not asked for.
    """
    given = {name: aligned(array.nbytes) for name, array in inputs.items()}
    for name, array in inputs.items():
        given[name][:] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        given[name].flags.writeable = False
    found = []
    for reverse, poison in VARIANTS:
        buffers = {**given, **{name: aligned(size) for name, size in counters.items()}}
        buffers.update((name, aligned(size, poison)) for name, size in outputs.items())
        launch(program, make_frame, grid, buffers, reverse, poison)
        for name in outputs:
            if name not in wanted and np.any(buffers[name] != poison):
                raise KernelError(f"{program.stem}: writes {name}, which nobody asked for")
        found.append(buffers)
    for name in (*counters, *wanted):
        differs = np.flatnonzero(found[0][name] != found[1][name])
        if len(differs):
            raise KernelError(
                f"{program.stem}: {name} depends on the order of threads, or holds what memory held before: "
                f"{len(differs)} bytes of {len(found[0][name])}, the first at {differs[0]}"
            )
    return found[0]


def output_shape(work: PolarizationWork, name: str, frames: int) -> Tuple[int, ...]:
    """Shape of an output of a batch."""
    if name == "sums":
        return (frames, 2, *work.output_size)
    if name == "s0":
        return (frames, *work.output_size)
    if name in PLANES:
        return (frames, 3 if work.sensor.is_color else 1, *work.output_size, 2 if name == "differences" else 1)
    return (frames, *PRODUCTS[name].shape(work.output_size, work.sensor.is_color))


def run(
    launch: Launch,
    work: PolarizationWork,
    plan: Schedule,
    raws: Sequence[bytes],
    step: int,
    min_intensity: float = 0.01,
    correction: Optional[Correction] = None,
    options: Optional[Options] = None,
) -> Outputs:
    """Run a work on frames, in every order of `VARIANTS`.

    Args:
        launch: `host`, or what `on_gpu` gives.
        work: What to do; its size is the frames'.
        plan: How.
        raws: The frames, each of `step` bytes a row; the last row may be shorter.
        step: Bytes from one row to the next.
        min_intensity: Smallest S0 with a polarization.
        correction: Of the frames, for a calibrated work.
        options: What says how noisy frames are, for a work that uses noise.

    Raises:
        KernelError: As `run_in_every_order`.
    """
    frames = len(raws)
    stride = -(-max(map(len, raws)) // 256) * 256
    inputs = {"raw": np.frombuffer(b"".join(data.ljust(stride, b"\0") for data in raws[:-1]) + raws[-1], np.uint8)}
    if correction is not None:
        inputs["codes"] = correction.codes
    shapes = {name: output_shape(work, name, frames) for name in OUTPUTS}

    def make_frame(addresses: Mapping[str, int]) -> np.ndarray:
        frame = np.zeros((), FRAME_ARGUMENT)
        frame["raw"], frame["counts"] = addresses["raw"], addresses["counts"]
        frame["out"] = [addresses[name] for name in OUTPUTS]
        frame["raw_stride"], frame["step"] = stride, step
        frame["width"], frame["height"] = work.width, work.height
        frame["full_scale"], frame["min_intensity"] = work.full_scale, min_intensity
        if correction is not None:
            fill_argument(frame, correction, addresses["codes"])
        if options is not None:
            fill_options(frame, options, work.full_scale)
        return frame

    sizes = {
        name: np.dtype(work.dtypes.get(name, "float32")).itemsize * int(np.prod(shape))
        for name, shape in shapes.items()
    }
    program, grid = program_of(work, plan), grid_of(work, plan, frames)
    found = run_in_every_order(launch, program, make_frame, grid, inputs, {"counts": 8 * frames}, sizes, [*work.dtypes])
    images = {name: found[name].view(dtype).reshape(shapes[name]) for name, dtype in work.outputs}
    return Outputs(images, found["counts"].view(np.uint32).reshape(frames, 2))
