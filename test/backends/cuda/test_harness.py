"""The harness finds a fault of each kind that it is there to find."""

from __future__ import annotations

from pathlib import Path
from typing import Dict

import numpy as np
import pytest
from harness import COMPILER, Grid, KernelError, aligned, build, launch_on_host

from polar_pipeline.backends.cuda.pixels import FRAME_ARGUMENT, output_defines
from polar_pipeline.polarimetry.coefficients import literals

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler (c++, or what CXX names)")

WORDS = 64
#: A kernel of one block, which runs the body of the number `frame.height`; `words` is shared memory of `WORDS`.
SOURCE = """
#include "raw.cuh"
DEVICE u32 word(const FrameArguments& frame, int k) { return load32(frame.raw + 4 * k); }
extern "C" __global__ void probe(const FrameArguments frame) {
    SHARED_MEMORY(shared);
    u32* const words = (u32*)shared;
    u32* const out = (u32*)frame.out[0];
    const int t = threadIdx.x;
    switch (frame.height) { %s }
}
"""
FAULTS = [
    ("out[0] = load32(frame.raw + 2);", "misaligned read of 4 bytes .*probe.cu:9"),
    ("out[t] = load32(frame.raw + 4 * (t + 1));", "thread 63: read of 4 bytes at offset 256 of raw, which has 256"),
    ("*(u32*)frame.raw = 0;", "write of 4 bytes at offset 0 of raw, an input"),
    ("words[t + 1] = 0;", "thread 63: write of 4 bytes at offset 256 of shared memory"),
    ("async_copy16(shared + 256, frame.raw);", "async copy to offset 256 of shared memory, which has 256"),
    ("words[t] = t; out[t] = words[63 - t];", "thread 32: race: .* shared byte 1.., which thread 31 has"),
    (
        "if (t < 16) sync_block(); else sync_warp();",
        "different barriers: 16 at sync_warp .first: 16., 16 at sync_block",
    ),
    ("if (t < 16) out[t] = shuffle_down(t, 16);", "shuffle from lane 16, which does not take part"),
    (
        "MatrixC c; if (t < 16) tensor_multiply_add(c, MatrixA{}, MatrixB{});",
        "lane 16 does not take part in a product of the whole warp",
    ),
    ("u32 a[4] = {1, 2, 3, 4}; out[t] = a[word(frame, t) & 7];", "probe.cu:9: index outside of the array"),
]


def run(choice: int, folder: Path) -> None:
    """Run a body, compiled with all others, on the words 0 to 63."""
    cases = (f"case {number}: {{\n#line 9\n{body}\n}} break;" for number, (body, _) in enumerate(FAULTS))
    kernel = folder / "probe.cu"
    kernel.write_text(SOURCE % " ".join(cases))
    raw, out, counts = aligned(4 * WORDS), aligned(4 * WORDS), aligned(8)
    raw.view(np.uint32)[:] = np.arange(WORDS)
    raw.flags.writeable = False

    def make_argument(addresses: Dict[str, int]) -> np.ndarray:
        frame = np.zeros((), FRAME_ARGUMENT)
        frame["raw"], frame["counts"], frame["width"] = addresses["raw"], addresses["counts"], WORDS
        frame["out"][0], frame["height"] = addresses["out"], choice
        return frame

    library = build(kernel, {**output_defines({}), **literals()})
    buffers = {"raw": raw, "out": out, "counts": counts}
    launch_on_host(library, make_argument, Grid((1, 1, 1), WORDS, 4 * WORDS), buffers)


@pytest.mark.parametrize("number", range(len(FAULTS)), ids=[body for body, _ in FAULTS])
def test_faults_are_found(number: int, tmp_path: Path) -> None:
    with pytest.raises(KernelError, match=FAULTS[number][1]):
        run(number, tmp_path)
