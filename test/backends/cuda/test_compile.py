"""Source to device code: includes and lines, and what every kernel takes of a Jetson."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Dict

import nvrtc
import pytest
from support import ROOT

from polar_pipeline.backends.cuda import source as module
from polar_pipeline.backends.cuda.source import source

needs_nvrtc = pytest.mark.skipif(
    not any(72 in library.archs for library in nvrtc.libraries()), reason="needs an NVRTC that knows sm_72"
)


def test_includes_are_expanded_once_and_lines_stay_true(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "share_path", lambda _, name: tmp_path / name)
    (tmp_path / "a.cuh").write_text('#include "b.cuh"\nA\n')
    (tmp_path / "b.cuh").write_text("B\n")
    (tmp_path / "k.cu").write_text('one\n#include "a.cuh"\n  #include "b.cuh"\n#include "elsewhere.cuh"\nfive\n')
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


#: On a color sensor in float, the memory that a block of a geometry keeps leaves space for 14 of 64 warps.
COLOR_FLOATS = "transform, color: default, scale 2"


def min_occupancy(arch: str, name: str) -> float:
    """Share of a multiprocessor's warps that a kernel must let be resident.

    On tensor cores, 12 of 48 warps are enough by design: a warp has many independent products. Two blocks of `denoise`
    fit into the 96 KB of sm_72, and in color into the registers; so do two of `learned`.
    """
    if name.startswith(("ssim_tensor", "denoise", "learned")):
        return 0.25
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
