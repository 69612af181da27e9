"""The compiled kernels of the CPU: how they are built and chosen, and what happens without them."""

from __future__ import annotations

import logging
import re
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, Iterator, List, Optional, Set
from unittest.mock import Mock

import numpy as np
import pytest
from calibrations import some_calibration
from comparison import compare
from support import ROOT, run_python

from polar_pipeline import Pipeline, RawFrame
from polar_pipeline.backends.cpu import library
from polar_pipeline.backends.cpu.backend import CpuBackend
from polar_pipeline.backends.cpu.library import LEVELS, Kernels, KernelsError, load_kernels, processor_features
from polar_pipeline.options.products import NOISE_PRODUCTS, PRODUCTS
from polar_pipeline.sensor.mosaic import SENSORS

RAW = np.random.default_rng(7).integers(0, 256, (64, 50)).astype(np.uint8)


@pytest.fixture(autouse=True)
def _loaded_again() -> Iterator[None]:
    """What a test loads, or fails to load, is not kept for others."""
    load_kernels.cache_clear()
    yield
    load_kernels.cache_clear()


# ------------------------------------------------------------------------------------------------------------ building


def build(folder: Path, compiler: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Build the kernels by a compiler's command."""
    pytest.importorskip("setuptools", reason="builds the package")
    folders = ("--build-lib", str(folder), "--build-temp", str(folder / "objects"))
    command = ("setup.py", "-q", "build_ext", "--force", *options, *folders)
    return run_python(*command, cwd=str(ROOT), env={"CXX": compiler}, stderr=subprocess.STDOUT)


def built(folder: Path) -> Set[str]:
    """The instruction sets of the kernels in a folder."""
    return {path.stem.partition("_")[2] for path in (folder / "polar_pipeline" / "backends" / "cpu").glob("*.so")}


def stand_in(folder: Path, target: str, refuses: str = "nothing") -> str:
    """A compiler for a target, which writes empty files, and fails where an argument is `refuses`."""
    program = folder / "c++"
    program.write_text(
        f'#!/bin/sh\n[ "$1" = -dumpmachine ] && echo {target} && exit\n'
        f'for argument; do [ "$argument" = {refuses} ] && echo "unknown: {refuses}" >&2 && exit 1\n'
        'last=$output; output=$argument; [ "$last" = -o ] && touch "$argument"; done; exit 0\n'
    )
    program.chmod(0o755)
    return str(program)


@pytest.mark.parametrize(
    ("target", "levels"), [("x86_64-linux-gnu", set(LEVELS) - {"base"}), ("aarch64-linux-gnu", {"base"})]
)
def test_kernels_are_built_for_each_instruction_set(target: str, levels: Set[str], tmp_path: Path) -> None:
    done = build(tmp_path, stand_in(tmp_path, target))
    assert done.returncode == 0, done.stdout
    assert built(tmp_path) == levels
    assert "WARNING" not in done.stdout


def test_an_instruction_set_that_a_compiler_does_not_know_is_left_out(tmp_path: Path) -> None:
    done = build(tmp_path, stand_in(tmp_path, "x86_64-linux-gnu", "-march=icelake-client"))
    assert done.returncode == 0, done.stdout
    assert built(tmp_path) == {"sse4", "avx2"}
    assert "unknown: -march=icelake-client" in done.stdout
    assert "WARNING: polar_pipeline.backends.cpu.kernels_avx512 was not built" in done.stdout


@pytest.mark.parametrize("compiler", ["/nonexistent/c++", "false"])
def test_without_a_compiler_the_build_succeeds_and_says_so(compiler: str, tmp_path: Path) -> None:
    done = build(tmp_path, compiler)
    assert done.returncode == 0, done.stdout
    assert built(tmp_path) == set()
    assert "no CPU kernels were built" in done.stdout
    assert "sudo apt install g++" in done.stdout


# ------------------------------------------------------------------------------------------------------------- loading


@pytest.mark.parametrize(
    ("features", "there", "level"),
    [
        (LEVELS["avx512"] | LEVELS["sse4"], ("sse4", "avx2", "avx512"), "avx512"),
        (LEVELS["avx512"] | LEVELS["sse4"], ("sse4", "avx2"), "avx2"),
        (LEVELS["avx512"] - {"fma"} | LEVELS["sse4"], ("sse4", "avx2", "avx512"), "sse4"),
        ({"sse4_2"}, ("sse4", "avx2", "avx512"), None),
        (set(), ("base",), "base"),
        (LEVELS["avx512"], (), None),
    ],
)
def test_the_best_instruction_set_of_the_processor_is_chosen(
    features: Set[str], there: Any, level: Optional[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in there:
        (tmp_path / f"kernels_{name}.so").touch()
    monkeypatch.setattr(library, "FOLDER", tmp_path)
    monkeypatch.setattr(library, "processor_features", lambda: features)
    monkeypatch.setattr(library, "_load", lambda path, level: Kernels(path.name, level))
    if level is None:
        with pytest.raises(KernelsError, match="no CPU kernels were built"):
            load_kernels()
    else:
        assert load_kernels() == Kernels(f"kernels_{level}.so", level)


@pytest.mark.parametrize(("machine", "is_known"), [("x86_64", True), ("aarch64", False)])
def test_features_are_those_of_x86_processors(
    machine: str, is_known: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An emulated arm64 process reads the features of the host, whose kernels it cannot load."""
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nflags\t\t: fpu avx2 fma\n")
    monkeypatch.setattr(library, "Path", lambda _: tmp_path / "cpuinfo")
    monkeypatch.setattr(library.platform, "machine", lambda: machine)
    assert processor_features() == ({"fpu", "avx2", "fma"} if is_known else set())


def test_a_library_of_another_version_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "kernels_base.so").touch()
    monkeypatch.setattr(library, "FOLDER", tmp_path)
    monkeypatch.setattr(library.ctypes, "CDLL", lambda _: SimpleNamespace(frame_bytes=Mock(return_value=8)))
    with pytest.raises(KernelsError, match="of another version: install the package again"):
        load_kernels()
    monkeypatch.undo()
    monkeypatch.setattr(library, "FOLDER", tmp_path)
    (tmp_path / "kernels_base.so").write_text("garbage")
    with pytest.raises(KernelsError, match=r"cannot be loaded: .*kernels_base\.so"):
        load_kernels()


def test_a_lack_of_memory_is_an_error() -> None:
    kernels = Kernels(SimpleNamespace(compute_frame=lambda *_: 1), "base")  # type: ignore[arg-type]
    with pytest.raises(MemoryError, match="not enough memory to compute a frame"):
        kernels.compute(library.Frame(), 1)


def is_usable(level: str) -> bool:
    """`base` is built for other processors only: what `test/arm64.py` builds lies in the same checkout."""
    features = processor_features()
    has_level = LEVELS[level] <= features and (level != "base") == bool(features)
    return has_level and (library.FOLDER / f"kernels_{level}.so").exists()


@pytest.mark.parametrize(
    "options",
    [{}, {"sensor": "IMX250MYR", "resolution": "full"}, {"demosaic": "learned", "resolution": "full"}],
    ids=str,
)
@pytest.mark.parametrize("level", LEVELS)
def test_every_instruction_set_computes_the_products(
    level: str, options: Dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_usable(level):
        pytest.skip(f"no kernels for {level} here, or no such processor")
    monkeypatch.setattr(library, "LEVELS", {level: LEVELS[level]})
    with Pipeline(backend="cpu") as pipeline:
        assert pipeline.device.endswith(f"compiled, {level})")
    compare(RawFrame(RAW, 255), **options)


# -------------------------------------------------------------------------------------------------- without the kernels

_LIGHT = tuple(name for name in PRODUCTS if name not in NOISE_PRODUCTS)
#: Products and options that differ in how a frame is computed.
_CHOICES: List[Dict[str, Any]] = [
    {"products": tuple(PRODUCTS)},
    {"products": tuple(PRODUCTS), "sensor": "IMX250MYR", "dtype": "uint8"},
    {"products": tuple(PRODUCTS), "resolution": "full", "dtype": "uint16", "debias": True, "max_aolp_sigma": 9.0},
    {"products": ("angle_0", "dolp"), "sensor": "IMX250MYR", "resolution": "full", "demosaic": "gradient"},
    {"products": _LIGHT, "scale": 2, "rotate": 90, "ssim_stride": 2},
    {"products": _LIGHT, "ssim_mode": "temporal", "co_sited": False},
    {"products": ("ssim", "ssim_map", "aolp_color"), "ssim_mode": "reference", "sensor": "IMX250MYR"},
    {"products": ("intensity", "stokes"), "calibration": some_calibration(SENSORS["IMX250MZR"]), "roi_offset": (2, 3)},
]


def without_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "FOLDER", tmp_path)
    monkeypatch.setattr(CpuBackend, "_has_warned", False)
    load_kernels.cache_clear()


@pytest.mark.parametrize("options", _CHOICES, ids=lambda row: ", ".join(name for name in row if name != "products"))
def test_without_kernels_every_product_is_there(
    options: Dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same shapes, types, stages and counts; values are the reference's, which `test_cpu.py` compares."""
    frames = [RAW, RAW[::-1].copy()]
    results = []
    for is_compiled in (True, False):
        if not is_compiled:
            without_kernels(tmp_path, monkeypatch)
        with Pipeline(backend="cpu", **options) as pipeline:
            assert ("reference" in pipeline.device) is not is_compiled
            size = pipeline.output_size(RAW.shape)
            given = {"reference": np.full(size, 0.5, np.float32)} if options.get("ssim_mode") == "reference" else {}
            results.append([pipeline(frame, **given) for frame in frames])
    for kernels, slow in zip(*results):
        assert slow.invalid == kernels.invalid
        assert list(slow.timings) == list(kernels.timings)
        assert (slow.blocks is None) == (kernels.blocks is None)
        if slow.blocks is not None:
            np.testing.assert_allclose(slow.blocks, kernels.blocks, atol=1e-4)
        for name, image in slow.items():
            assert (image.shape, image.dtype) == (kernels[name].shape, kernels[name].dtype)
            if image.dtype == np.float32:
                np.testing.assert_array_equal(np.isnan(image), np.isnan(kernels[name]))
            if name in ("intensity", "angle_0", "stokes", "ssim_map", "ssim"):
                bound = 1e-3 if image.dtype == np.float32 else 1
                error = np.abs(np.nan_to_num(image).astype(float) - np.nan_to_num(kernels[name]))
                assert error.max() <= bound, name


def test_without_kernels_an_angle_just_below_pi_is_not_rounded_to_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_kernels(tmp_path, monkeypatch)

    def run(*_: Any) -> Dict[str, Any]:
        angles = np.full((8, 8), np.pi - 1e-12)
        angles[1:3, 0] = np.nan, 1.0
        return {"value": None, "aolp": angles, "blocks": None, "invalid": (0, 0), "seconds": {}}

    monkeypatch.setattr("polar_pipeline.backends.reference.operators.run", run)
    with Pipeline(backend="cpu", products=("aolp",)) as pipeline:
        image = pipeline(np.zeros((16, 16), np.uint8))["aolp"]
    np.testing.assert_array_equal(image[:, 1:], 0)
    np.testing.assert_array_equal(image[:4, 0], [0, np.nan, 1, 0])


def test_without_kernels_one_warning_says_how_long_a_frame_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    without_kernels(tmp_path, monkeypatch)
    with caplog.at_level(logging.WARNING, "polar_pipeline"):
        for _ in range(2):
            with Pipeline(backend="cpu") as pipeline:
                pipeline(RAW)
                pipeline(RAW)
    (text,) = caplog.messages
    assert "install g++" in text
    assert re.search(r"reference computes frames: the first, 50x64, in [\d.e-]+ s$", text)
