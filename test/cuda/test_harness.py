"""The harness itself: arithmetic as the GPU's, barriers, and every fault that it is there to find."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Callable, Dict, Sequence, Tuple

import numpy as np
import pytest
from harness import COMPILER, VARIANTS, Grid, KernelError, aligned, build, launch_on_host

from polar_pipeline.coefficients import literals
from polar_pipeline.cuda.arguments import FRAME_ARGUMENT, output_defines

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler (c++, or what CXX names)")

WORDS = 64
INDICES = np.arange(WORDS)
Probe = Callable[..., np.ndarray]

_SOURCE = """
#include "raw.cuh"
DEVICE u32 word(const FrameArguments& frame, int k) { return load32(frame.raw + 4 * k); }
extern "C" __global__ void probe(const FrameArguments frame) {
    SHARED_MEMORY(shared);
    u32* const words = (u32*)shared;
    u32* const out = (u32*)frame.out[0];
    const int t = threadIdx.x;
    %s
    grid_dependency_wait();
}
"""


@pytest.fixture
def probe(tmp_path: Path) -> Probe:
    """Run a kernel's body on (n,) uint32 words: `word(frame, k)` in, `out[k]` back; `words` is shared memory.

    `choice` is the number of the body to run of several; see `one_of`.
    """

    def run(
        body: str,
        words: np.ndarray = INDICES,
        threads: int = WORDS,
        blocks: Tuple[int, int, int] = (1, 1, 1),
        shared_words: int = WORDS,
        variant: Tuple[bool, int] = VARIANTS[0],
        choice: int = 0,
        **defines: int,
    ) -> np.ndarray:
        kernel = tmp_path / "probe.cu"
        kernel.write_text(_SOURCE % body)
        raw, out, counts = aligned(4 * len(words)), aligned(4 * len(words)), aligned(8)
        raw.view(np.uint32)[:] = words
        raw.flags.writeable = False

        def make_frame(addresses: Dict[str, int]) -> np.ndarray:
            frame = np.zeros((), FRAME_ARGUMENT)
            frame["raw"], frame["counts"], frame["width"] = addresses["raw"], addresses["counts"], len(words)
            frame["out"][0], frame["height"] = addresses["out"], choice
            return frame

        grid = Grid(blocks, threads, 4 * shared_words)
        library = build(kernel, {**output_defines({}), **literals(), **defines})
        launch_on_host(library, make_frame, grid, {"raw": raw, "out": out, "counts": counts}, *variant)
        return np.concatenate([out.view(np.uint32), counts.view(np.uint32)])[: len(words) + 2]

    return run


def one_of(bodies: Sequence[str]) -> str:
    """A body that runs one of several, each as line 9 of its kernel; compiled once for all of them."""
    cases = (f"case {number}: {{\n#line 9\n{body}\n}} break;" for number, body in enumerate(bodies))
    return f"switch (frame.height) {{ {' '.join(cases)} }}"


# ---------------------------------------------------------------------------------------------------------- arithmetic


def interesting_halves() -> np.ndarray:
    """(n, 3) bits of halves: random ones, and all combinations of borders (subnormal, infinite, NaN, ties)."""
    rng = np.random.default_rng(0)
    near = np.array([0.0, 6e-8, 6.1e-5, 0.5, 1.0, 1.5, 2048.0, 2049.0, 65504.0, np.inf, np.nan], np.float16)
    borders = np.concatenate([near, -near, np.nextafter(near[:-2], np.float16(1))]).view(np.uint16)
    grid = np.stack(np.meshgrid(borders, borders, borders), -1).reshape(-1, 3)
    spread = rng.integers(0, 1 << 16, (20000, 3), dtype=np.uint16)
    # close exponents, where sums round
    tight = (rng.integers(0, 1 << 12, (20000, 3)) + 0x3400).astype(np.uint16)
    return np.concatenate([grid, spread, tight, tight ^ np.uint16(0x8000) * np.array([0, 1, 0], np.uint16)])


def exact_fma(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """Fused multiply-add of float16 arrays; the sum in long double, wide enough to be exact where it matters."""
    return (a.astype(np.longdouble) * b.astype(np.longdouble) + c.astype(np.longdouble)).astype(np.float64).astype("f2")


def exact_saturated(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    value = exact_fma(a, b, c)
    return np.where(np.isnan(value), 0, np.clip(value, 0, 1)).astype(np.float16)


HALF_OPERATIONS: Dict[str, Tuple[str, Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]]] = {
    "add": ("half2_add(a, b)", lambda a, b, _: a + b),
    "sub": ("half2_sub(a, b)", lambda a, b, _: a - b),
    "mul": ("half2_mul(a, b)", lambda a, b, _: a * b),
    "fma": ("half2_fma(a, b, c)", exact_fma),
    "fma_sat": ("half2_fma_sat(a, b, c)", exact_saturated),
    "abs": ("half2_abs(a)", lambda a, _b, _c: np.abs(a)),
    "min": ("half2_min(a, b)", lambda a, b, _: np.fmin(a, b)),
    "max": ("half2_max(a, b)", lambda a, b, _: np.fmax(a, b)),
    "fma_relu": ("half2_fma_relu(a, b, c)", lambda a, b, c: np.fmax(exact_fma(a, b, c), np.float16(0))),
    "low and high": ("half2_pack(half2_low(a), half2_high(a))", lambda a, _b, _c: a),
}


@pytest.mark.parametrize("name", list(HALF_OPERATIONS))
def test_half_arithmetic_rounds_once_to_nearest_even(name: str, probe: Probe) -> None:
    expressions, (_, exact) = [row[0] for row in HALF_OPERATIONS.values()], HALF_OPERATIONS[name]
    operands = interesting_halves()
    operands = operands[: len(operands) // 2 * 2]
    a, b, c = (np.ascontiguousarray(operands[:, k]) for k in range(3))
    pairs = np.stack([half.view(np.uint32) for half in (a, b, c)], -1).reshape(-1)
    # one thread for all: three words in, one out
    got = probe(
        f"for (int k = 0; k < frame.width; k += 3) {{"
        f"u32 a = word(frame, k), b = word(frame, k + 1), c = word(frame, k + 2); (void)b, (void)c;"
        f"{one_of([f'out[k / 3] = {expression};' for expression in expressions])} }}",
        pairs,
        threads=1,
        choice=list(HALF_OPERATIONS).index(name),
    )[: len(pairs) // 3].view(np.float16)
    with np.errstate(all="ignore"):
        want = exact(*(half.view(np.float16) for half in (a, b, c)))
    np.testing.assert_array_equal(got, want)
    zero = want == 0
    any_sign = name in ("fma_sat", "fma_relu", "min", "max")
    assert any_sign or np.array_equal(np.signbit(got[zero]), np.signbit(want[zero]))


def test_floats_pack_to_the_nearest_half(probe: Probe) -> None:
    rng = np.random.default_rng(1)
    floats = np.concatenate(
        [
            rng.integers(0, 1 << 32, 20000, dtype=np.uint32).view(np.float32),
            (rng.integers(-(1 << 13), 1 << 13, 20000) * 0.25).astype(np.float32),  # many ties
            np.array([65519.996, 65520, -65520, 2.98e-8, 2.981e-8, 8.9e-8], np.float32),
        ]
    )
    got = probe(
        "for (int k = 0; k < frame.width; k++) out[k] = half2_pack(as_float(word(frame, k)), 1.0f);",
        floats.view(np.uint32),
        threads=1,
    )[:-2]
    with np.errstate(over="ignore", invalid="ignore"):
        want = floats.astype(np.float16)
    np.testing.assert_array_equal((got & 0xFFFF).astype(np.uint16).view(np.float16), want)
    assert np.all(got >> 16 == 0x3C00)


def test_permute_picks_bytes(probe: Probe) -> None:
    got = probe(
        "out[0] = permute(0x33221100, 0x77665544, 0x7531); out[1] = permute(word(frame, 0), word(frame, 1), 0x4040);",
        np.array([0xA1, 0xB2]),
        threads=1,
    )
    assert [hex(word) for word in got[:2]] == ["0x77553311", "0xb2a1b2a1"]


def test_approximations_flush_subnormals(probe: Probe) -> None:
    values = np.array([2.0, 0.0, 1e-40, -1e-40, 3e38, np.inf, np.nan, 4.0], np.float32)
    each = "for (int k = 0; k < frame.width; k++) out[k] = as_bits({}(as_float(word(frame, k))));"
    names = ("fast_rcp", "fast_sqrt", "saturate")
    body = one_of([each.format(name) for name in names])
    found = {
        name: probe(body, values.view(np.uint32), threads=1, choice=number)[:-2].view(np.float32)
        for number, name in enumerate(names)
    }
    np.testing.assert_array_equal(found["fast_rcp"], np.array([0.5, np.inf, np.inf, -np.inf, 0, 0, np.nan, 0.25]))
    np.testing.assert_allclose(found["fast_sqrt"], [2**0.5, 0, 0, 0, 1.73205e19, np.inf, np.nan, 2], rtol=1e-4)
    np.testing.assert_array_equal(found["saturate"], np.array([1, 0, values[2], 0, 1, 1, 0, 1], np.float32))


# ------------------------------------------------------------------------------------------------------------- threads


@pytest.mark.parametrize("variant", VARIANTS)
def test_barriers_order_shared_memory(variant: Tuple[bool, int], probe: Probe) -> None:
    body = """
    words[t] = word(frame, t);
    for (int step = 1; step < 64; step *= 2) {  // running sum
        sync_block();
        u32 sum = words[t] + (t >= step ? words[t - step] : 0);
        sync_block();
        words[t] = sum;
    }
    if (t >= 48) return;  // a barrier does not wait for those who have ended
    sync_block();
    out[t] = words[47 - t] + (any_in_block(t == 20) ? 1000 : 0) + (any_in_block(false) ? 10000 : 0);
    """
    got = probe(body, variant=variant)
    np.testing.assert_array_equal(got[:48], np.cumsum(np.arange(64))[47::-1] + 1000)


@pytest.mark.parametrize("variant", VARIANTS)
def test_shuffles_stay_within_their_warp(variant: Tuple[bool, int], probe: Probe) -> None:
    lane, warp = np.arange(64) % 32, np.arange(64) // 32 * 32
    wanted = {
        "shuffle_down(100 + t, 3)": np.where(lane + 3 < 32, lane + 3, lane),
        "shuffle_up(100 + t, 5)": np.where(lane >= 5, lane - 5, lane),
        "shuffle_xor(100 + t, 16)": lane ^ 16,
        "shuffle(100 + t, 7)": np.full(64, 7),
        # two in a row must not mix
        "shuffle_down(shuffle_down(100 + t, 1), 1)": np.where(lane < 30, lane + 2, 31),
    }
    body = one_of([f"out[t] = {expression};" for expression in wanted])
    for number, source in enumerate(wanted.values()):
        np.testing.assert_array_equal(probe(body, variant=variant, choice=number)[:64], 100 + warp + source)


COPIED = (1, 31, 32, 33, 64, 256, 257, 600)


@pytest.mark.parametrize("count", COPIED)
def test_copy_items_copies_every_item_once(count: int, probe: Probe) -> None:
    # the harness reports reads beyond the words, and items that two threads store
    body = one_of(
        [
            f"copy_items<{number}, 32>([&](int i) {{ return word(frame, i); }}, [&](int i, u32 w) {{ words[i] = w; }});"
            f"sync_block(); for (int i = t; i < {number}; i += 32) out[i] = words[i];"
            for number in COPIED
        ]
    )
    choice = COPIED.index(count)
    got = probe(body, 5 + np.arange(count), threads=32, shared_words=count, choice=choice)
    np.testing.assert_array_equal(got[:count], 5 + np.arange(count))


def test_warp_barrier_orders_lanes_only(probe: Probe) -> None:
    body = "words[t] = t; sync_warp(); out[t] = words[t ^ {}];"
    np.testing.assert_array_equal(probe(body.format(31))[:64], np.arange(64) ^ 31)
    with pytest.raises(KernelError, match="thread 63: race: read of shared byte 124, which thread 31 has written"):
        probe(body.format(32), variant=(True, 0))


def test_blocks_have_their_places_and_count_together(probe: Probe) -> None:
    body = """
    u32 block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    out[block * blockDim.x + t] = blockIdx.x + 10 * blockIdx.y + 100 * blockIdx.z + 1000 * t;
    count_add(frame.counts + 1, 2);
    """
    got = probe(body, threads=4, blocks=(2, 4, 2))
    want = [x + 10 * y + 100 * z + 1000 * t for z in range(2) for y in range(4) for x in range(2) for t in range(4)]
    np.testing.assert_array_equal(got, [*want, 0, 128])


def test_async_copies_arrive_when_waited_for(probe: Probe) -> None:
    body = """
    for (int k = 0; k < 2; k++) { async_copy16(shared + 16 * k, frame.raw + 16 * k); async_commit(); }
    async_wait<WAITED>();
    out[0] = words[0]; out[1] = words[4];
    """
    first = [7, 0, 0, 0, 9, 0, 0, 0]
    for waited, want in ((0, [7, 9]), (1, [7, 0xFFFFFFFF]), (2, [0xFFFFFFFF] * 2)):
        np.testing.assert_array_equal(probe(body, np.array(first), threads=1, WAITED=waited)[:2], want)


def test_tensor_cores_multiply_as_their_fragments_lie(probe: Probe) -> None:
    rng = np.random.default_rng(1)
    left, right = (rng.standard_normal(shape).astype(np.float16) for shape in ((16, 16), (16, 8)))
    g, t = np.divmod(np.arange(32), 4)
    pairs = [left[g + down][np.arange(32), 2 * t + k + right_] for right_ in (0, 8) for down in (0, 8) for k in (0, 1)]
    pairs += [right[2 * t + k + down, g] for down in (0, 8) for k in (0, 1)]
    words = np.stack(pairs, -1).view(np.uint32)  # (32, 6): a0 .. a3, b0, b1
    body = """
    u32 w[6];
    for (int k = 0; k < 6; k++) w[k] = word(frame, 6 * t + k);
    MatrixC c{{0, 1, 2, 3}};
    tensor_multiply_add(c, MatrixA{{w[0], w[1], w[2], w[3]}}, MatrixB{{w[4], w[5]}});
    for (int k = 0; k < 4; k++) out[4 * t + k] = as_bits(c.value[k]);
    """
    found = probe(body, words.reshape(-1), threads=32)[:128].view(np.float32).reshape(32, 4)
    want = left.astype(float) @ right.astype(float)
    for k in range(4):  # to a float's last place
        np.testing.assert_allclose(found[:, k], want[g + 8 * (k // 2), 2 * t + k % 2] + k, rtol=0, atol=2e-6)


def test_the_last_of_a_launchs_blocks_knows(probe: Probe) -> None:
    body = """
    const bool is_last = is_last_block(frame.counts, gridDim.x);
    if (is_last) out[t] = 1 + blockIdx.x + (u32)load_bypassing_l1((float*)frame.counts);  // the counter is 0 again
    """
    for variant, last in zip(VARIANTS, (3, 1)):  # blocks run in reverse in the second one
        got = probe(body, blocks=(3, 1, 1), variant=variant)
        np.testing.assert_array_equal(got, [*[last] * WORDS, 0, 0])


def test_unwritten_shared_memory_is_poison_in_every_block(probe: Probe) -> None:
    body = "out[blockIdx.x] = words[0]; words[0] = 1;"
    for reverse, poison in VARIANTS:
        got = probe(body, threads=1, blocks=(3, 1, 1), variant=(reverse, poison))
        np.testing.assert_array_equal(got[:3], [poison * 0x01010101] * 3)


# -------------------------------------------------------------------------------------------------------------- faults


FAULTS = [
    ("out[0] = load32(frame.raw + 2);", "misaligned read of 4 bytes .*probe.cu:9"),
    ("uint4 v = load128(frame.raw + 8); out[0] = v.x;", "misaligned read of 16 bytes"),
    ("store64((u8*)out + 4, 1, 2);", "misaligned write of 8 bytes"),
    ("((uint4*)(shared + 8))->x = 1;", "probe.cu:9: misaligned access"),
    ("async_copy16(shared + 4, frame.raw);", "misaligned write of 16 bytes"),
    ("out[t] = load32(frame.raw + 4 * (t + 1));", "thread 63: read of 4 bytes at offset 256 of raw, which has 256"),
    ("out[t] = load8(frame.raw - 1 - t);", "read of 1 bytes at offset -1 of raw"),
    ("store32(out + 64, 0);", "write of 4 bytes at offset 256 of out, which has 256"),
    ("out[t + 1] = 0;", "thread 63: write of 4 bytes at offset 256 of out.*probe.cu:9"),
    ("*(u32*)frame.raw = 0;", "write of 4 bytes at offset 0 of raw, an input"),
    ("words[t + 1] = 0;", "thread 63: write of 4 bytes at offset 256 of shared memory"),
    ("async_copy16(shared + 256, frame.raw);", "async copy to offset 256 of shared memory, which has 256"),
    ("store32(words, 0);", "write of 4 bytes of shared memory as global"),
    ("*(u32*)(u64)64 = 0;", "outside of every buffer"),
    ("count_add((u32*)frame.raw, 1);", "write of 4 bytes"),
    ("words[t] = t; out[t] = words[63 - t];", "thread 32: race: .* shared byte 1.., which thread 31 has"),
    ("out[t] = words[63 - t]; words[t] = t;", "race: .* shared byte 1.., which thread 31 has"),
    ("words[0] = t;", "race: write of shared byte 0, which thread 0 has written"),
    (
        "if (t < 16) sync_block(); else sync_warp();",
        "different barriers: 16 at sync_warp .first: 16., 16 at sync_block",
    ),
    ("if (t < 16) out[t] = shuffle_down(t, 16);", "shuffle from lane 16, which does not take part"),
    (
        "MatrixC c; if (t < 16) tensor_multiply_add(c, MatrixA{}, MatrixB{});",
        "lane 16 does not take part in a product of the whole warp",
    ),
    ("out[t] = permute(t, t, 0x8000);", "permute with selector 0x8000"),
    ("u32 a[4] = {1, 2, 3, 4}; out[t] = a[word(frame, t) & 7];", "probe.cu:9: index outside of the array"),
    ("out[t] = 1u << word(frame, t);", "thread 32: probe.cu:9: shift by the type's width"),
    ("out[t] = (u32)(nan_value() * word(frame, t));", "probe.cu:9: float outside of the integer's range"),
    ("out[t] = 7 / (int)word(frame, t);", "probe.cu:9: division by zero"),
    ("return;", "block .0, 0, 0.: ended without grid_dependency_wait or grid_dependency_wait_in_one_block"),
]


@pytest.mark.parametrize(("body", "message"), FAULTS)
def test_faults_are_found(body: str, message: str, probe: Probe) -> None:
    bodies = [body for body, _ in FAULTS]
    with pytest.raises(KernelError, match=message):
        probe(one_of(bodies), choice=bodies.index(body))


def test_a_fault_is_shown_with_the_calls_that_led_there(probe: Probe) -> None:
    with pytest.raises(KernelError, match=r"of raw, which has 256 \(at probe.cu:3, from probe.cu:9\)$"):
        probe("out[t] = word(frame, t + 1);")


def test_launch_after_a_fault_starts_afresh(probe: Probe) -> None:
    body = "words[t] = t; sync_block(); if (word(frame, 0)) out[64] = 0; sync_block(); out[t] = words[63 - t];"
    with pytest.raises(KernelError, match="offset 256 of out"):
        probe(body, np.arange(1, 65))
    np.testing.assert_array_equal(probe(body)[:64], np.arange(64)[::-1])


def test_compiler_messages_are_shown(probe: Probe) -> None:
    with pytest.raises(KernelError, match=r"does not compile(.|\n)*no_such_name"):
        probe("out[0] = no_such_name;")


# --------------------------------------------------------------------------------------------------- hardened compilers


@pytest.mark.parametrize(
    "flags",
    [
        ("-D_FORTIFY_SOURCE=3", "-O2"),  # its checks exist from -O1 on
        pytest.param(
            ("-fstack-protector-strong", "-fstack-clash-protection", "-fcf-protection"), marks=pytest.mark.exhaustive
        ),
    ],
    ids=lambda flags: flags[0],
)
def test_it_works_with_the_flags_that_ubuntus_compiler_sets_by_itself(flags: Tuple[str, ...], tmp_path: Path) -> None:
    """In a process of its own: where the C library disagrees, it aborts."""
    compiler = tmp_path / "c++"
    compiler.write_text(f'#!/bin/sh\nexec {shlex.quote(str(COMPILER))} "$@" {shlex.join(flags)}\n')
    compiler.chmod(0o755)
    empty = tmp_path / "empty.cpp"
    empty.touch()
    command = [str(compiler), "-Werror", "-c", str(empty), "-o", str(tmp_path / "empty.o")]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip(f"the compiler has no {flags[0]}")
    harness, kernels = Path(__file__), Path(__file__).with_name("test_kernels.py")
    sample = [
        f"{harness}::test_a_fault_is_shown_with_the_calls_that_led_there",
        f"{harness}::test_launch_after_a_fault_starts_afresh",
        f"{harness}::test_tensor_cores_multiply_as_their_fragments_lie",
        f"{kernels}::test_matches_reference[host-tile mono half auto True float32 fp32]",
    ]
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *sample],
        env={**os.environ, "CXX": str(compiler)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout[-8000:]
    assert "4 passed" in run.stdout
