"""Source to device code: includes and lines, the compiler's messages, resources, and every kernel."""

from __future__ import annotations

import importlib
import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Dict, Optional

import pytest
from support import ROOT

from polar_pipeline.cuda import source as module
from polar_pipeline.cuda.source import source

sys.path.append(str(ROOT / "benchmarks"))
import nvrtc
from nvrtc import NvrtcError, compile_kernel
from resource_usage import kernel_resources

needs_nvrtc = pytest.mark.skipif(
    not any(72 in library.archs for library in nvrtc.libraries()), reason="needs an NVRTC that knows sm_72"
)
KERNEL = 'extern "C" __global__ void tiny(int* out) { *out = VALUE; }\n'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of kernels of our own."""
    monkeypatch.setattr(module, "share_path", lambda _, name: tmp_path / name)
    (tmp_path / "tiny.cu").write_text(KERNEL)
    return tmp_path


# -------------------------------------------------------------------------------------------------------------- source


def test_includes_are_expanded_once_and_lines_stay_true(folder: Path) -> None:
    (folder / "a.cuh").write_text('#include "b.cuh"\nA\n')
    (folder / "b.cuh").write_text("B\n")
    (folder / "k.cu").write_text('one\n#include "a.cuh"\n  #include "b.cuh"\n#include "elsewhere.cuh"\nfive\n')
    lines = source("k", {"WIDTH": 3}).splitlines()
    assert lines[0] == "#define WIDTH 3"
    lines = lines[1:]
    assert [line for line in lines if line and not line.startswith("#line")] == [
        *("one", "B", "A", '#include "elsewhere.cuh"', "five")
    ]
    places: Dict[str, str] = {}
    name, number = "", 0
    for line in lines:
        directive = re.fullmatch(r'#line (\d+) "(.+)"', line)
        if directive:
            number, name = int(directive.group(1)), directive.group(2)
        else:
            places[line] = f"{name}:{number}"
            number += 1
    assert places["B"] == "b.cuh:1"
    assert places["A"] == "a.cuh:2"
    assert places["five"] == "k.cu:5"


@needs_nvrtc
def test_errors_point_to_the_file(folder: Path) -> None:
    (folder / "inner.cuh").write_text("\n\nint broken = nothing;\n")
    (folder / "tiny.cu").write_text('#include "inner.cuh"\n' + KERNEL)
    with pytest.raises(NvrtcError, match=r'inner\.cuh\(3\): error: identifier "nothing"'):
        compile_kernel("tiny", {"VALUE": 1}, "sm_72")


@needs_nvrtc
@pytest.mark.usefixtures("folder")
def test_a_virtual_architecture_gives_ptx_for_it() -> None:
    text = compile_kernel("tiny", {"VALUE": 1}, "compute_72").decode()
    assert re.search(r"^\.target sm_72$", text, re.M)
    assert ".entry tiny(" in text
    assert text.endswith("\0"), "the driver's loader takes a C string"


# ----------------------------------------------------------------------------------------------------------- resources


def ptxas() -> Optional[str]:
    """NVIDIA's assembler, from the toolkit or from pip."""
    nvidia = importlib.util.find_spec("nvidia")
    roots = list(nvidia.submodule_search_locations or ()) if nvidia else []
    wheels = [path for root in roots for path in Path(root).glob("*/bin/ptxas")]
    return str(wheels[0]) if wheels else shutil.which("ptxas")


@needs_nvrtc
@pytest.mark.parametrize("arch", ["sm_72", "sm_87", "sm_90"])
def test_resources_are_what_the_assembler_says(arch: str, folder: Path) -> None:
    """Of a kernel with shared memory, and with an array that must live in local memory: its index is an argument."""
    (folder / "tiny.cu").write_text(
        'extern "C" __global__ void tiny(int* data, int k) {\n'
        "    __shared__ int tile[128];\n"
        "    int array[32];\n"
        "    for (int i = 0; i < 32; i++) array[i] = data[i];\n"
        "    tile[threadIdx.x] = array[k];\n"
        "    __syncthreads();\n"
        "    for (int i = 0; i < 32; i++) data[i] = array[(i * k) & 31] + tile[i ^ k];\n"
        "}\n"
    )
    tool, output = ptxas(), folder / "tiny.cubin"
    if tool is None:
        pytest.skip("needs ptxas (CUDA toolkit, or nvidia-cuda-nvcc-cu12)")
    (folder / "tiny.ptx").write_bytes(compile_kernel("tiny", {}, "compute_72").rstrip(b"\0"))
    command = [tool, "-v", f"-arch={arch}", str(folder / "tiny.ptx"), "-o", str(output)]
    said = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True).stdout
    found = kernel_resources(output.read_bytes())
    assert (found.name, found.shared_bytes, found.spill_bytes) == ("tiny", 512, 128)
    assert f"Used {found.registers} registers" in said
    assert "512 bytes smem" in said
    assert "128 bytes stack frame" in said


# -------------------------------------------------------------------------------------------------------- every kernel


#: On a color sensor in float, the memory that a block of a geometry keeps leaves space for 14 of 64 warps.
COLOR_FLOATS = "transform, color: default, scale 2"


def min_occupancy(arch: str, name: str) -> float:
    """Share of a multiprocessor's warps that a kernel must let be resident."""
    return 0.2 if (arch, name) == ("sm_72", COLOR_FLOATS) else 0.3


@needs_nvrtc
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("arch", "limit", "step"),
    [
        ("sm_72", 48 << 10, 6),
        *(pytest.param(*row, 1, marks=pytest.mark.exhaustive) for row in (("sm_72", 48 << 10), ("sm_87", 163 << 10))),
    ],
)
def test_kernels_fit_the_jetsons(arch: str, limit: int, step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """No spills, within the shared memory of a block, and enough warps to hide latencies; every default, or a few."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    rows = importlib.import_module("kernels").usages(arch, step)
    assert len(rows) >= (30 if step == 1 else 5)
    misfits = [
        row
        for row in rows
        if row.shared_bytes > limit or row.spill_bytes or not min_occupancy(arch, row.name) <= row.occupancy <= 1
    ]
    assert not misfits, "\n".join(map(str, misfits))
