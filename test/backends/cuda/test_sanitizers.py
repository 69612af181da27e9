"""The CPU's kernels under the compiler's sanitizers, and with the flags by which distributions harden programs."""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Dict, List

import pytest
from harness import COMPILER
from support import MATRIX_VARIABLE, ROOT, run_python

#: The instruction set that compiles fastest.
LEVEL = "sse4" if platform.machine() == "x86_64" else "base"
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g1", "-O1")
#: Finds reads and writes beyond an array, and compiles in a quarter of the time.
ADDRESSES = ("-fsanitize=address", "-g1", "-O0")
#: What Ubuntu's packages are built with.
HARDENED = ["-D_FORTIFY_SOURCE=3", "-O2", "-fstack-protector-strong", "-fstack-clash-protection"]
if platform.machine() == "x86_64":
    HARDENED.append("-fcf-protection")
#: A quarter of the tests, and of one lens: NumPy makes the maps of all lenses.
_CHOSEN = ("--share", "4", "-k", "not (equidistant or rational_polynomial)")
#: Computes every product of every way from mosaic to angle images, each with another geometry, some without flags. The
#: rows of the Stokes image are longer than a piece; samples at the identity's positions reach its last pixel.
FRAMES = """
import checked_kernels
import itertools
import numpy as np
from calibrations import lens
from polar_pipeline import Pipeline
from polar_pipeline.geometry import make_lens
from polar_pipeline.options.methods import METHODS
from polar_pipeline.options.products import NOISE_PRODUCTS, PRODUCTS

SHAPE = (38, 1030)
raw = np.random.default_rng(0).integers(0, 256, SHAPE).astype(np.uint8)
k = (100, 0, 0, 0, 100, 0, 0, 0, 1)
identity = make_lens(SHAPE, "plumb_bob", (0, 0, 0, 0), k, np.zeros(9), np.zeros(12))
geometries = itertools.cycle([
    {"scale": 4}, {"rectify": identity}, {"rotate": 90, "roi": (3, 5, 16, 507)}, {"scale": 2, "rotate": 180},
    {"rectify": lens(SHAPE)}, {"rectify": lens(SHAPE), "scale": 2},
])
ways = [*itertools.product(("half", "full"), METHODS, (True,)), ("half", "bilinear", False)]
for sensor, (resolution, demosaic, co_sited) in itertools.product(("IMX250MZR", "IMX250MYR"), ways):
    options = dict(sensor=sensor, resolution=resolution, demosaic=demosaic, co_sited=co_sited, backend="cpu")
    Pipeline(products=tuple(PRODUCTS), **options)(raw)
    Pipeline(products=tuple(set(PRODUCTS) - set(NOISE_PRODUCTS)), **next(geometries), **options)(raw)
    Pipeline(products="intensity,angle_0", dtype="uint8", **next(geometries), **options)(raw.astype(np.uint16))
learned = dict(demosaic="learned", resolution="full", backend="cpu", roi_offset=(1, 1))
Pipeline(products=tuple(PRODUCTS), **learned)(raw // 16)
Pipeline(products="stokes", rotate=90, **learned)(raw[:17, :19] // 16)
"""


def compiler() -> List[str]:
    if COMPILER is None:
        pytest.skip("no C++ compiler (c++, or what CXX names)")
    return [COMPILER]


def build(folder: Path, *flags: str) -> Path:
    """Build the kernels with flags that come last, so that they win; returns the library's folder."""
    source, script = folder / "source", folder / "compiler"
    (source / "polar_pipeline" / "polarimetry").mkdir(parents=True)
    for name in ("kernels/cpu", "resource"):
        shutil.copytree(str(ROOT / name), str(source / name))
    for name in ("setup.py", "README.md", "polar_pipeline/__init__.py", "polar_pipeline/polarimetry/coefficients.py"):
        shutil.copy(str(ROOT / name), str(source / name))
    shutil.copy(str(ROOT / "kernels" / "formulas.h"), str(source / "kernels"))
    script.write_text(f'#!/bin/sh\nexec {shlex.join(compiler())} "$@" {shlex.join(flags)}\n')
    script.chmod(0o755)
    subprocess.run(
        [*(sys.executable, "setup.py", "-q", "build_ext", "--levels", LEVEL), "--build-lib", str(folder)],
        cwd=str(source),
        env={**os.environ, "CXX": shlex.quote(str(script))},
        check=True,
    )
    return folder / "polar_pipeline" / "backends" / "cpu"


def run(kernels: Path, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run Python with the kernels of a folder, for whoever imports `checked_kernels`."""
    path = os.pathsep.join([str(ROOT / "test" / "helpers"), str(ROOT)])
    environment.update({"PYTHONPATH": path, MATRIX_VARIABLE: "", "CHECKED_KERNELS": str(kernels)})
    return run_python(*command, cwd=str(ROOT), env=environment, stderr=subprocess.STDOUT)


def run_tests(kernels: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the tests of the CPU backend with the kernels of a folder."""
    paths = [f"test/backends/cpu/test_{name}.py" for name in ("cpu", "calibrated", "geometry", "rectify")]
    paths.append("test/backends/cuda/test_random_pipelines.py::test_random_pipelines_on_the_cpu")
    command = ("-m", "pytest", "-qs", "-p", "checked_kernels", "-p", "no:cacheprovider", *_CHOSEN, *paths)
    return run(kernels, *command, **environment)


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


def test_kernels_stay_within_their_memory(tmp_path: Path, sanitizers: Dict[str, str]) -> None:
    """The same as the next test on few frames, which no reference computes too, in a tenth of the time."""
    done = run(build(tmp_path, *ADDRESSES), "-c", FRAMES, **sanitizers)
    assert done.returncode == 0, done.stdout[-8000:]


@pytest.mark.exhaustive
@pytest.mark.timeout(1200)
def test_kernels_read_and_write_only_what_is_theirs(tmp_path: Path, sanitizers: Dict[str, str]) -> None:
    done = run_tests(build(tmp_path, *SANITIZERS), **sanitizers)
    assert done.returncode == 0, done.stdout[-8000:]


@pytest.mark.exhaustive
@pytest.mark.timeout(1200)
def test_hardened_kernels_pass(tmp_path: Path) -> None:
    done = run_tests(build(tmp_path, *HARDENED))
    assert done.returncode == 0, done.stdout[-8000:]
