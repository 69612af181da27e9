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
from polar_pipeline.backends.cuda.device import DEVICES, Device
from polar_pipeline.backends.cuda.driver import TO_DEVICE, TO_HOST, Argument, Driver, LoadedKernel
from polar_pipeline.backends.cuda.launch import Defines, Launch, Schedule
from polar_pipeline.backends.cuda.pixels import OUTPUTS, PLANES
from polar_pipeline.backends.cuda.polarization import PolarizationLaunch
from polar_pipeline.backends.cuda.source import OPTIONS as COMPILER_OPTIONS
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


#: From the buffers' addresses to a kernel's argument.
MakeArgument = Callable[[Mapping[str, int]], np.ndarray]


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
        kernel: A `.cu` file with one entry point of its name that takes a structure.
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
    make_argument: MakeArgument,
    grid: Grid,
    buffers: Mapping[str, np.ndarray],
    reverse: bool = False,
    poison: int = 0xFF,
) -> None:
    """Run a kernel once.

    Args:
        library: From `build`.
        make_argument: Makes the kernel's argument.
        grid: Launch parameters.
        buffers: Every memory that the kernel may touch; read-only arrays are inputs, the others change in place.
        reverse: Whether threads and blocks run from the last one to the first.
        poison: Byte that shared memory is filled with before every block.

    Raises:
        KernelError: Memory out of bounds or misaligned, a race in shared memory, a deadlock, or undefined arithmetic.
    """
    argument = make_argument({name: array.ctypes.data for name, array in buffers.items()})
    rows = [
        (array.ctypes.data, array.nbytes, int(array.flags.writeable), name.encode()) for name, array in buffers.items()
    ]
    message = ctypes.create_string_buffer(1024)
    launch, kernel = _load(library)
    with _LAUNCH:
        failed = launch(
            kernel,
            argument.ctypes.data,
            argument.nbytes,
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


# ----------------------------------------------------------------------------------------------------- one whole launch


class Outputs(NamedTuple):
    """What a kernel made of a batch of frames.

    Attributes:
        images: Output -> (frames, ...) array; `sums` is (frames, 2, height, width).
        counts: (frames, 2) saturated and dark pixels.
    """

    images: Dict[str, np.ndarray]
    counts: np.ndarray


#: Runs a kernel once: (stem of its file, definitions, argument from addresses, grid, buffers, reverse, poison).
Runner = Callable[[str, Defines, MakeArgument, Grid, Mapping[str, np.ndarray], bool, int], None]


def host(
    file: str,
    definitions: Defines,
    make_argument: MakeArgument,
    grid: Grid,
    buffers: Mapping[str, np.ndarray],
    reverse: bool,
    poison: int,
) -> None:
    """`Runner` on the CPU."""
    launch_on_host(build(KERNELS / f"{file}.cu", definitions), make_argument, grid, buffers, reverse, poison)


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
    file: str,
    definitions: Defines,
    make_argument: MakeArgument,
    grid: Grid,
    buffers: Mapping[str, np.ndarray],
    _: bool,
    poison: int,
) -> None:
    """Run a kernel once on the GPU, which has an order of its own; bytes around the buffers must stay as they are.

    Args:
        driver: The GPU.
        file: Stem of the kernel's file, and its entry point.
        definitions: For the preprocessor.
        make_argument: Makes the kernel's argument.
        grid: Launch parameters.
        buffers: Every memory that the kernel may touch; arrays that can be written change in place.
        poison: Byte around the buffers.

    Raises:
        KernelError: It wrote outside of a buffer.
    """
    kernel = driver.load(file, definitions, grid.shared_bytes)
    padded = {name: np.pad(array.reshape(-1), _MARGIN, constant_values=poison) for name, array in buffers.items()}
    addresses = {name: driver.malloc(array.nbytes) for name, array in padded.items()}
    for name, array in padded.items():
        driver.copy_now(addresses[name], array.ctypes.data, array.nbytes, TO_DEVICE)
    argument = Argument(make_argument({name: address + _MARGIN for name, address in addresses.items()}))
    driver.launch(kernel.function, *grid.blocks, grid.threads, 1, 1, grid.shared_bytes, 0, argument.parameters, 0)
    for name, array in padded.items():
        driver.copy_now(array.ctypes.data, addresses[name], array.nbytes, TO_HOST)
        driver.free(addresses[name])
        if np.any(array[:_MARGIN] != poison) or np.any(array[-_MARGIN:] != poison):
            raise KernelError(f"writes outside of {name}")
        if buffers[name].flags.writeable:
            buffers[name][...] = array[_MARGIN:-_MARGIN].reshape(buffers[name].shape)


def on_gpu(name: str) -> Runner:
    """`Runner` on the GPU, used as a key of `GPUS` says.

    Raises:
        RuntimeError: There is none, or no compiler for it.
    """
    runner: Any = partial(launch_on_gpu, gpu_driver(name))
    runner.__name__ = name
    return runner


def run_in_every_order(
    runner: Runner,
    launch: Launch,
    schedule: Schedule,
    options: Options,
    frames: int,
    inputs: Mapping[str, np.ndarray],
    counters: Mapping[str, int],
    outputs: Mapping[str, int],
    required: Sequence[str],
    **fields: int,
) -> Dict[str, np.ndarray]:
    """Run a launch in every order of `VARIANTS`, and return the bytes of its counters and outputs.

    Args:
        runner: `host`, or what `on_gpu` gives.
        launch: What to do.
        schedule: How.
        options: What completes the kernel's argument.
        frames: In one launch.
        inputs: Memory that the kernel only reads, beside arrays that are the same for all frames.
        counters: Bytes of memory that is 0 before the launch.
        outputs: Bytes of memory that the kernel may write.
        required: The outputs that it must write; it writes no others.
        fields: Numbers of the argument in place of those that the package sets.

    Raises:
        KernelError: A fault, outputs that differ between two orders or that hold what memory held before, or a write to
            an output that is not asked for.
    """
    kernel, argument = launch.kernel(schedule), np.zeros((), launch.argument_type)
    definitions = kernel.defines(launch, schedule)
    grid = Grid(kernel.grid(launch, schedule, frames), schedule.threads, kernel.shared_bytes(launch, schedule))
    constants = launch.set_up(argument, options, schedule)
    for name, number in fields.items():
        argument[name] = number

    def make_argument(addresses: Mapping[str, int]) -> np.ndarray:
        launch.fill(argument, addresses)
        for name in constants:
            argument[name] = addresses[name]
        return argument

    read_only = {name: aligned(array.nbytes) for name, array in {**inputs, **constants}.items()}
    for name, array in {**inputs, **constants}.items():
        read_only[name][:] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        read_only[name].flags.writeable = False
    runs = []
    for reverse, poison in VARIANTS:
        buffers = {**read_only, **{name: aligned(size) for name, size in counters.items()}}
        buffers.update((name, aligned(size, poison)) for name, size in outputs.items())
        runner(kernel.file, definitions, make_argument, grid, buffers, reverse, poison)
        for name in outputs:
            if name not in required and np.any(buffers[name] != poison):
                raise KernelError(f"{kernel.name}: writes {name}, which nobody asked for")
        runs.append(buffers)
    for name in (*counters, *required):
        differs = np.flatnonzero(runs[0][name] != runs[1][name])
        if len(differs):
            raise KernelError(
                f"{kernel.name}: {name} depends on the order of threads, or holds what memory held before: "
                f"{len(differs)} bytes of {len(runs[0][name])}, the first at {differs[0]}"
            )
    return runs[0]


def output_shape(launch: PolarizationLaunch, name: str, frames: int) -> Tuple[int, ...]:
    """Shape of an output of a batch."""
    if name == "sums":
        return (frames, 2, *launch.output_size)
    if name == "s0":
        return (frames, *launch.output_size)
    if name in PLANES:
        return (frames, 3 if launch.sensor.is_color else 1, *launch.output_size, 2 if name == "differences" else 1)
    return (frames, *PRODUCTS[name].shape(launch.output_size, launch.sensor.is_color))


def run(
    runner: Runner, launch: PolarizationLaunch, schedule: Schedule, raws: Sequence[bytes], step: int, options: Options
) -> Outputs:
    """Run a launch on frames, in every order of `VARIANTS`.

    Args:
        runner: `host`, or what `on_gpu` gives.
        launch: What to do; its size is the frames'.
        schedule: How.
        raws: The frames, each of `step` bytes a row; the last row may be shorter.
        step: Bytes from one row to the next.
        options: Of the pipeline.

    Raises:
        KernelError: As `run_in_every_order`.
    """
    frames, stride = len(raws), -(-max(map(len, raws)) // 256) * 256
    raw = np.frombuffer(b"".join(data.ljust(stride, b"\0") for data in raws[:-1]) + raws[-1], np.uint8)
    shapes = {name: output_shape(launch, name, frames) for name in OUTPUTS}
    sizes = {
        name: np.dtype(launch.dtypes.get(name, "float32")).itemsize * int(np.prod(shape))
        for name, shape in shapes.items()
    }
    made = run_in_every_order(
        *(runner, launch, schedule, options, frames, {"raw": raw}, {"counts": 8 * frames}, sizes, [*launch.dtypes]),
        raw_stride=stride,
        step=step,
    )
    images = {name: made[name].view(dtype).reshape(shapes[name]) for name, dtype in launch.stored}
    return Outputs(images, made["counts"].view(np.uint32).reshape(frames, 2))
