"""Kernels from source to device code through NVRTC, for an architecture that this machine need not have.

The library comes with the CUDA toolkit (JetPack has it) or with pip (`nvidia-cuda-nvrtc-cu12`).
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import re
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Tuple, Union

from polar_pipeline.backends.cuda.source import OPTIONS, source


class NvrtcError(RuntimeError):
    """What cannot be compiled; the text holds the compiler's log."""


class Nvrtc:
    """One NVRTC library.

    Args:
        path: What the system's loader takes: a path or a name.

    Attributes:
        path: The same.
        version: (major, minor).
        archs: Compute capabilities that it compiles for, such as 72.

    Raises:
        OSError: It cannot be loaded.
        AttributeError: It is older than 11.2, or something else.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._library = ctypes.CDLL(path)
        major, minor, count = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
        self._call("Version", ctypes.byref(major), ctypes.byref(minor))
        self.version = (major.value, minor.value)
        self._call("GetNumSupportedArchs", ctypes.byref(count))
        archs = (ctypes.c_int * count.value)()
        self._call("GetSupportedArchs", archs)
        self.archs: Tuple[int, ...] = tuple(archs)

    def compile(self, text: str, name: str, arch: str, options: Tuple[str, ...]) -> bytes:
        """CUDA C++ -> device code.

        Args:
            text: The source.
            name: Its name in messages.
            arch: `sm_72` for a cubin, `compute_72` for PTX that a driver compiles for any GPU of 7.2 or newer.
            options: Other command-line options.

        Raises:
            NvrtcError: It does not compile.
        """
        program = ctypes.c_void_p()
        self._call("CreateProgram", ctypes.byref(program), text.encode(), name.encode(), 0, None, None)
        try:
            every = (*options, f"--gpu-architecture={arch}")
            flags = (ctypes.c_char_p * len(every))(*(option.encode() for option in every))
            try:
                self._call("CompileProgram", program, len(every), flags)
            except NvrtcError as err:
                log = self._read("ProgramLog", program).rstrip(b"\0").decode(errors="replace")
                raise NvrtcError(f"{name}: {err}\n{log}") from None
            return self._read("PTX" if arch.startswith("compute_") else "CUBIN", program)
        finally:
            self._call("DestroyProgram", ctypes.byref(program))

    def _call(self, name: str, *arguments: Any) -> None:
        code = getattr(self._library, f"nvrtc{name}")(*arguments)
        if code != 0:
            text = self._library.nvrtcGetErrorString
            text.restype = ctypes.c_char_p
            raise NvrtcError(f"nvrtc{name}: {text(code).decode()}")

    def _read(self, what: str, program: ctypes.c_void_p) -> bytes:
        size = ctypes.c_size_t()
        self._call(f"Get{what}Size", program, ctypes.byref(size))
        data = ctypes.create_string_buffer(size.value)
        self._call(f"Get{what}", program, data)
        return data.raw


def _library_paths() -> Iterator[str]:
    """Where NVRTC may lie, best first: pip's wheels, the toolkit, the loader's own path; newest first in each."""
    folders: List[Path] = []
    nvidia = importlib.util.find_spec("nvidia")
    for root in nvidia.submodule_search_locations or () if nvidia else ():
        folders += [Path(root, "cuda_nvrtc", "lib"), *sorted(Path(root).glob("cu[0-9]*/lib"), reverse=True)]
    toolkits = [os.environ.get(name, "") for name in ("CUDA_PATH", "CUDA_HOME")] + ["/usr/local/cuda"]
    folders += [Path(toolkit, "lib64") for toolkit in toolkits if toolkit]
    for folder in folders:
        yield from sorted((str(path) for path in folder.glob("libnvrtc.so.*")), reverse=True)
    yield from ("libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2", "libnvrtc.so")


@lru_cache(maxsize=1)
def libraries() -> Tuple[Nvrtc, ...]:
    """Every NVRTC library of this machine, one per version, best first."""
    found: Dict[Tuple[int, int], Nvrtc] = {}
    for path in _library_paths():
        with suppress(OSError, AttributeError):
            library = Nvrtc(path)
            found.setdefault(library.version, library)
    return tuple(found.values())


def find_library(arch: str) -> Nvrtc:
    """An NVRTC library that compiles for an architecture such as `sm_72` or `compute_72`.

    Raises:
        NvrtcError: None is installed, or none that knows the architecture.
    """
    number = re.fullmatch(r"(?:sm|compute)_(\d+)", arch)
    if number is None:
        raise NvrtcError(f"an architecture is written sm_72 or compute_72, got {arch!r}")
    for library in libraries():
        if int(number.group(1)) in library.archs:
            return library
    have = "; ".join(
        f"NVRTC {library.version[0]}.{library.version[1]} compiles for {', '.join(map(str, library.archs))}"
        for library in libraries()
    )
    raise NvrtcError(
        f"no NVRTC for {arch}: {have or 'none is installed'}; it comes with the CUDA toolkit, or with "
        "pip install nvidia-cuda-nvrtc-cu12"
    )


def compile_kernel(name: str, defines: Mapping[str, Union[int, str]], arch: str) -> bytes:
    """The device code of `kernels/<name>.cu`.

    Args:
        name: Name of the kernel and of its file.
        defines: Preprocessor definitions.
        arch: `sm_72` for a cubin; `compute_72` for PTX, which the driver compiles when it loads it, for any newer GPU.

    Raises:
        FileNotFoundError: There is no such kernel.
        NvrtcError: It does not compile, or there is nothing to compile it with.
    """
    return find_library(arch).compile(source(name, defines), f"{name}.cu", arch, OPTIONS)
