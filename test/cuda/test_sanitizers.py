"""The CPU's kernels under the compiler's sanitizers, and with the flags by which distributions harden programs."""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Dict, List, NamedTuple, Tuple

import numpy as np
import pytest
from support import ROOT, first_of

from polar_pipeline._util.folders import cache_folder
from polar_pipeline.cpu import native
from polar_pipeline.cpu.native import NativeError, find_compiler

SAMPLE = Path(__file__).parents[1] / "kernel_sample.py"
OBJECTS = Path(__file__).parents[1] / "kept_objects.py"
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g1", "-O1")
#: Without it, how many products are rounded with their sum depends on how far the compiler optimises.
SAME_BITS = "-ffp-contract=off"
WATCHED = (*SANITIZERS, SAME_BITS)
#: What Ubuntu's packages are built with.
HARDENED = ["-D_FORTIFY_SOURCE=3", "-O2", "-fstack-protector-strong", "-fstack-clash-protection"]
if platform.machine() == "x86_64":
    HARDENED.append("-fcf-protection")


def compiler() -> List[str]:
    try:
        return list(find_compiler())
    except NativeError as err:
        pytest.skip(str(err))


def compiler_with(folder: Path, *flags: str) -> str:
    """A compiler's command for `CXX`, whose flags come last: the kernels' own would win against those in `CXX`.

    Objects are kept in the folder's parent, for other libraries of the same sources.
    """
    script = folder / "compiler"
    command = shlex.join([sys.executable, str(OBJECTS), str(folder.parent), *compiler()])
    # what is preloaded is meant for the kernels, not for the compiler
    script.write_text(f'#!/bin/sh\nunset LD_PRELOAD\nexec {command} "$@" {shlex.join(flags)}\n')
    script.chmod(0o755)
    return shlex.quote(str(script))


def sample(folder: Path, command: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the sample with the kernels as `command` compiles them; results lie in `<folder>/results.npz`."""
    values = {**os.environ, "CXX": command, "XDG_CACHE_HOME": str(folder / "cache"), **environment}
    values.pop(native.VARIABLE, None)
    run = [sys.executable, str(SAMPLE), str(folder / "results.npz"), *arguments]
    return subprocess.run(
        run, cwd=str(ROOT), env=values, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )


def results(folder: Path, command: str, *arguments: str, **environment: str) -> Dict[str, bytes]:
    """What the sample gives, as bytes."""
    done = sample(folder, command, *arguments, **environment)
    assert done.returncode == 0, done.stdout[-8000:]
    with np.load(str(folder / "results.npz")) as stored:
        return {name: stored[name].tobytes() for name in stored.files}


def differences(one: Dict[str, bytes], other: Dict[str, bytes]) -> List[str]:
    assert list(one) == list(other)
    assert len(one) > 1000
    return [name for name, data in one.items() if data != other[name]]


@pytest.fixture(scope="module")
def sanitizers(tmp_path_factory: pytest.TempPathFactory) -> Dict[str, str]:
    """The environment in which Python can load what the sanitizers are compiled into."""
    folder = tmp_path_factory.mktemp("probe")
    (folder / "probe.cpp").write_text("int f(int* p) { return *p; }\n")
    found = subprocess.run([*compiler(), "-print-file-name=libasan.so"], stdout=subprocess.PIPE, text=True, check=True)
    library = found.stdout.strip()
    probe = [*compiler(), *SANITIZERS, "-fPIC", "-shared", str(folder / "probe.cpp"), "-o", str(folder / "probe.so")]
    if not Path(library).is_absolute() or subprocess.run(probe, capture_output=True, check=False).returncode:
        pytest.skip("the compiler has no address sanitizer that can be preloaded (libasan)")
    return {
        "LD_PRELOAD": f"{library} libstdc++.so.6",
        "ASAN_OPTIONS": "detect_leaks=0",  # Python's own
    }


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Beside those of the other tests of this file."""
    return Path(tempfile.mkdtemp(dir=str(tmp_path_factory.getbasetemp())))


@pytest.mark.exhaustive
def test_kernels_read_and_write_only_what_is_theirs(folder: Path, sanitizers: Dict[str, str]) -> None:
    """No finding in the whole sample, and the bits that come out without the sanitizers."""
    watched = results(folder, compiler_with(folder, *WATCHED), **sanitizers)
    (folder / "plain").mkdir()
    plain = results(folder / "plain", compiler_with(folder / "plain", SAME_BITS))
    assert not differences(watched, plain)


class Fault(NamedTuple):
    """A mistake in a copy of a kernel: the change, and the part of the sample and the report that show it.

    Attributes:
        found_in: The file that the report names, if not the changed one.
    """

    file: str
    text: str
    becomes: str
    part: str
    report: Tuple[str, ...]
    found_in: str = ""


_PIXELS = "x < n; x++) {\n    const float clipped"
_ANGLES = "x < n; x++) out[x] = line[x] * (1.0f / 255)"
_GREEN = "line < of.from.height + 2"
FAULTS = {
    "reads one row too far": Fault(
        file="superpixels.cpp",
        text="mirrored(2 * y - 1 + k, from.height)",
        becomes="(2 * y - 1 + k)",
        part="mosaics",
        report=("heap-buffer-overflow", "READ of size"),
    ),
    "reads lines beyond the border": Fault(
        file="lines.hpp",
        text="mirrored(y, frame.height)",
        becomes="y",
        part="mosaics",
        report=("heap-buffer-overflow", "READ of size"),
    ),
    "reads one line too many": Fault(
        file="debayer.cpp",
        text=_GREEN,
        becomes=_GREEN.replace("2", "4"),
        part="colors",
        report=("heap-buffer-overflow", "READ of size"),
    ),
    "writes one angle too far": Fault(
        file="demosaic.cpp",
        text=_ANGLES,
        becomes=_ANGLES.replace("<", "<=", 1),
        part="colors",
        report=("heap-buffer-overflow", "WRITE of size"),
    ),
    "writes one pixel too far": Fault(
        file="ssim.cpp",
        text=_PIXELS,
        becomes=_PIXELS.replace("<", "<=", 1),
        part="similarities",
        report=("heap-buffer-overflow", "WRITE of size"),
    ),
    "reads aligned words from any address": Fault(
        file="mosaic.hpp",
        text="__attribute__((aligned(1), may_alias)) Word",
        becomes="__attribute__((may_alias)) Word",
        part="mosaics",
        report=("runtime error: load of misaligned address",),
        found_in="superpixels.cpp",
    ),
    "counts beyond its type": Fault(
        file="superpixels.cpp",
        text="height = from->height / 2;",
        becomes="height = from->height * 0x10000000 / 0x20000000;",
        part="mosaics",
        report=("runtime error: signed integer overflow",),
    ),
}


@pytest.mark.parametrize("name", first_of(list(FAULTS)))
def test_a_broken_kernel_is_found(name: str, folder: Path, sanitizers: Dict[str, str]) -> None:
    fault, kernels = FAULTS[name], folder / "kernels"
    shutil.copytree(str(ROOT / "kernels" / "cpu"), str(kernels))
    source = (kernels / fault.file).read_text(encoding="utf-8")
    assert fault.text in source, "the kernel has changed: break it elsewhere"
    (kernels / fault.file).write_text(source.replace(fault.text, fault.becomes), encoding="utf-8")
    command = compiler_with(folder, *WATCHED, "-O0")  # compiles in half the time
    done = sample(folder, command, "--kernels", str(kernels), "--part", fault.part, **sanitizers)
    assert done.returncode != 0
    for words in (fault.found_in or fault.file, *fault.report):
        assert words in done.stdout, done.stdout[-8000:]


@pytest.mark.exhaustive
def test_hardened_kernels_give_the_same_bits(tmp_path: Path) -> None:
    """Plain ones are those that every test uses, compiled before."""
    for name in ("hardened", "plain"):
        (tmp_path / name).mkdir()
    hardened = results(tmp_path / "hardened", shlex.join([*compiler(), *HARDENED]))
    kept = str(cache_folder().parent)
    assert not differences(hardened, results(tmp_path / "plain", shlex.join(compiler()), XDG_CACHE_HOME=kept))
