"""The CPU backend against the float64 reference, within the error bounds of the design."""

from __future__ import annotations

import itertools
import os
import re
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Callable, Dict, List, Sequence, Set, Tuple

import numpy as np
import pytest
from calibrations import mild_calibration, some_calibration
from comparison import compare, random_frame
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support import examples, pairs_of, representative, run_python

from polar_pipeline import Pipeline, RawFrame
from polar_pipeline.backends import reference
from polar_pipeline.options.methods import METHODS
from polar_pipeline.options.products import PRODUCTS
from polar_pipeline.sensor.forward import expose
from polar_pipeline.sensor.mosaic import SENSORS

#: Resolution and demosaic of the ways that a frame can take.
WAYS = tuple(itertools.product(("half", "full"), METHODS))


#: The smallest; odd ones; rows of several pieces, and several tiles, with a last one of few rows or columns.
SHAPES = ((64, 48), (67, 53), (16, 16), (34, 2075), (150, 1030), (16, 2049), (66, 515), (150, 259), (16, 257))


@pytest.mark.parametrize(
    ("sensor", "way", "shape", "depth", "dtype"),
    pairs_of(
        *(("IMX250MZR", "IMX250MYR"), WAYS, SHAPES),
        *(((8, 255), (8, 200), (12, 4095), (12, 3000), (16, 65535)), ("float32", "uint8", "uint16")),
    ),
)
def test_matches_reference(sensor: str, way: Any, shape: Tuple[int, int], depth: Tuple[int, int], dtype: str) -> None:
    """Numbers above full scale mean full scale; every frame is also computed with angles at their own sites."""
    frame = RawFrame(random_frame(shape, depth[0]).mosaic, depth[1])
    compare(frame, sensor=sensor, dtype=dtype, resolution=way[0], demosaic=way[1])
    compare(frame, sensor=sensor, dtype=dtype, co_sited=False, min_intensity=0.0)


@pytest.mark.parametrize("sensor", ["IMX250MZR", "IMX250MYR"])
@pytest.mark.parametrize("resolution", ["half", "full"])
def test_adaptive_demosaic_in_the_dark(sensor: str, resolution: str) -> None:
    """Local means of 0, and of up to one 8-bit level, between which the method limits its divisors."""
    raw = np.random.default_rng(5).integers(0, 17, (64, 60)).astype(np.uint16)  # 16 of 4095 are 1/256
    raw[:24], raw[24:44] = 0, raw[24:44] // 8
    for dtype in ("float32", "uint8"):
        compare(RawFrame(raw, 4095), sensor=sensor, resolution=resolution, demosaic="adaptive", dtype=dtype)


@pytest.mark.parametrize("sensor", ["IMX250MZR", "IMX250MYR"])
@pytest.mark.parametrize(("resolution", "co_sited"), [("half", True), ("half", False), ("full", True)])
@pytest.mark.parametrize("limit", [39.5, 40.0])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_dark_is_below_the_limit(sensor: str, resolution: str, co_sited: bool, limit: float, dtype: Any) -> None:
    """Sums of four samples around the limit, in numbers that float32 holds exactly: multiples of 1/64 of full scale."""
    raw = np.random.default_rng(6).integers(8, 13, (60, 70)).astype(dtype)
    options: Dict[str, Any] = {"sensor": sensor, "resolution": resolution, "demosaic": "bilinear", "co_sited": co_sited}
    options["min_intensity"] = limit / 2 / 64
    compare(RawFrame(raw, 64), **options)
    uniform = Pipeline(products="dolp", **options, backend="cpu")(RawFrame(np.full((60, 70), 10, dtype), 64))
    assert uniform.invalid == (0, 0)  # the sum is 40, which is not below the limit


#: Products, bits, resolution, demosaic.
CHOICES = [
    (products, bits, *way)
    for products in [*((name,) for name in PRODUCTS), ("intensity", "dolp", "aolp"), ("dolp", "ssim")]
    for bits in (8, 10, 16)
    for way in WAYS
]


@pytest.mark.parametrize(
    ("products", "bits", "resolution", "demosaic"),
    representative(CHOICES, lambda row: [(row[0], row[1]), (row[0], row[2:]), row[1:]]),
)
def test_products_alone_equal_products_together(
    products: Tuple[str, ...], bits: int, resolution: str, demosaic: str
) -> None:
    """What is computed does not depend on what else is; rows of several pieces, of odd length."""
    frame = random_frame((34, 2075), bits)
    together, alone = (
        Pipeline(products=names, resolution=resolution, demosaic=demosaic, backend="cpu")(frame)
        for names in (tuple(PRODUCTS), products)
    )
    for name in products:
        np.testing.assert_array_equal(alone[name], together[name], err_msg=name)
    assert alone.invalid[0] == together.invalid[0] > 0


#: Arrays of 40x50 numbers that lie in memory in different ways.
LAYOUTS: Dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "padded rows": lambda numbers: np.pad(numbers, ((0, 0), (3, 11)))[:, 3:53],
    "every second column": lambda numbers: numbers.repeat(2, 1)[:, ::2],
    "rows backwards": lambda numbers: numbers[::-1],
    "columns backwards": lambda numbers: numbers[:, ::-1],
    "columns first": np.asfortranarray,
    "odd address": lambda numbers: np.frombuffer(b"x" + numbers.tobytes(), "<u2", offset=1).reshape(40, 50),
    "a row repeated without memory": lambda numbers: np.broadcast_to(numbers[:1], (40, 50)),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("resolution", "demosaic"), WAYS)
def test_frames_of_any_layout_in_memory(layout: str, resolution: str, demosaic: str) -> None:
    view = LAYOUTS[layout](random_frame((40, 50), 12).mosaic).view()
    view.flags.writeable = False
    before = view.copy()
    compare(RawFrame(view, 3000), resolution=resolution, demosaic=demosaic)
    np.testing.assert_array_equal(view, before)


def test_error_of_the_arctangent() -> None:
    angles = np.linspace(0, np.pi, 4096, endpoint=False)
    truth = np.stack([np.ones_like(angles), 0.9 * np.cos(2 * angles), 0.9 * np.sin(2 * angles)], -1).reshape(64, 64, 3)
    raw = expose(np.repeat(np.repeat(truth, 2, 0), 2, 1).astype(np.float32), SENSORS["IMX250MZR"], 16)
    pipeline = Pipeline(products=("stokes", "aolp"), co_sited=False, backend="cpu")
    out = pipeline(raw)
    vector = out["stokes"].astype(float)
    error = np.abs(out["aolp"] - reference.aolp(vector))
    assert np.rad2deg(np.minimum(error, np.pi - error).max()) < 1e-3  # the series' own 0.0007 degrees


def test_equal_images_are_alike_to_the_last_bit() -> None:
    image = random_frame((70, 650), 8).mosaic.astype(np.float32) / 255
    raw = np.repeat(np.repeat(np.rint(255 * image).astype(np.uint8), 2, 0), 2, 1)  # no polarization anywhere
    out = Pipeline(products=("ssim_map", "ssim"), co_sited=False, backend="cpu")(raw)
    assert np.array_equal(out["ssim_map"], np.ones_like(image))
    np.testing.assert_allclose(out["ssim"], 1, atol=1e-6)


@pytest.mark.parametrize(
    ("stride", "shape_of_window", "dtype"),
    pairs_of((1, 2, 3, 8), ((11, 1.5), (3, 0.5), (15, 5.0)), ("float32", "uint8")),
)
def test_similarity_of_any_window_and_stride(stride: int, shape_of_window: Tuple[int, float], dtype: str) -> None:
    window, sigma = shape_of_window
    window_options = {"ssim_stride": stride, "ssim_window": window, "ssim_sigma": sigma}
    for shape in ((16, 16), (291, 331)):  # the smallest, where windows are larger than the map; more than one block
        compare(random_frame(shape, 8), **window_options, dtype=dtype)


def results(frames: Sequence[RawFrame], threads: int, **options: Any) -> List[Dict[str, bytes]]:
    """Every product of frames, with the counts and the blocks, as bytes: NaN and zeros have to be the same, too.

    Args:
        frames: One after the other, of one size.
        threads: To work on.
        **options: The pipeline's.
    """
    pipeline = Pipeline(**options, products=tuple(PRODUCTS), threads=threads, backend="cpu")
    size = pipeline.options.output_size(frames[0].mosaic.shape)
    reference = np.linspace(0, 1, size[0] * size[1], dtype=np.float32).reshape(size)
    given = {"reference": reference} if options.get("ssim_mode") == "reference" else {}
    found = []
    for frame in frames:
        out = pipeline(frame, **given)
        found.append({name: np.ascontiguousarray(image).tobytes() for name, image in out.items()})
        found[-1].update(invalid=repr(out.invalid).encode(), blocks=out.blocks.tobytes())
    pipeline.close()
    return found


@settings(max_examples=examples(30), deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(
    shape=st.tuples(st.integers(16, 300), st.integers(16, 300)),
    threads=st.integers(2, 5),
    bits=st.sampled_from([8, 10, 16]),
    options=st.fixed_dictionaries(
        {
            "sensor": st.sampled_from(["IMX250MZR", "IMX250MYR"]),
            "resolution": st.sampled_from(["half", "full"]),
            "demosaic": st.sampled_from([*METHODS]),
            "co_sited": st.booleans(),
            "dtype": st.sampled_from(["float32", "uint8", "uint16"]),
            "flip": st.tuples(st.booleans(), st.booleans()),
            "ssim_mode": st.sampled_from(["consistency", "temporal", "reference"]),
            "ssim_stride": st.integers(1, 3),
            "ssim_window": st.sampled_from([3, 11, 15]),
            "calibration": st.sampled_from([None, some_calibration, mild_calibration]),
        }
    ),
    seed=st.integers(0, 2**32),
)
def test_threads_do_not_show_for_any_options(
    shape: Tuple[int, int], threads: int, bits: int, options: Dict[str, Any], seed: int
) -> None:
    """The same bits from several threads as from one."""
    if options["calibration"] is mild_calibration:
        options.update(sensor="IMX250MZR", calibration=mild_calibration(shape))
    elif options["calibration"] is not None:
        options["calibration"] = some_calibration(SENSORS[options["sensor"]], shape)
    frames = [random_frame(shape, bits, seed + k) for k in range(2)]
    for got, want in zip(results(frames, threads, **options), results(frames, 1, **options)):
        assert [name for name in want if got[name] != want[name]] == []


def test_threads_are_kept_and_handle_no_signals() -> None:
    """They wait between frames; a signal goes to the threads of the program."""

    def tasks() -> Set[str]:
        return {path.name for path in Path("/proc/self/task").iterdir()}

    frame, before = random_frame((320, 320), 8), tasks()
    with Pipeline(threads=3, backend="cpu") as pipeline:
        pipeline(frame)
        kept = tasks()
        for _ in range(20):
            pipeline(frame)
        assert tasks() == kept
    for task in kept - before:
        blocked = re.search(r"SigBlk:\s*(\w+)", Path(f"/proc/self/task/{task}/status").read_text(encoding="ascii"))
        assert blocked is not None
        assert int(blocked.group(1), 16) >> signal.SIGTERM - 1 & 1


def test_threads_of_several_callers() -> None:
    """Pipelines of several threads share those that help, also more than there are."""
    frames = [random_frame((320, 320), 8, seed) for seed in range(4)]

    def products(frame: RawFrame) -> List[bytes]:
        with Pipeline(threads=3, backend="cpu") as pipeline:
            return [pipeline(frame)["dolp"].tobytes() for _ in range(20)]

    with ThreadPoolExecutor(len(frames)) as pool:
        found = list(pool.map(products, frames))
    for frame, rows in zip(frames, found):
        assert set(rows) == {Pipeline(threads=1, backend="cpu")(frame)["dolp"].tobytes()}


def test_a_fork_has_threads_of_its_own() -> None:
    code = (
        "import os, numpy as np\n"
        "from polar_pipeline import Pipeline\n"
        "raw = np.zeros((320, 320), np.uint8)\n"
        "Pipeline(threads=3, backend='cpu')(raw)\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    Pipeline(threads=3, backend='cpu')(raw)\n"
        "    os._exit(len(os.listdir('/proc/self/task')))\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) if hasattr(os, 'waitstatus_to_exitcode') else 3)\n"
    )
    done = run_python("-c", code)
    assert done.stdout.split() == ["3"], done


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="has one processor")
def test_other_threads_run_on_other_processors() -> None:
    """They may run on all processors that the caller may use but one, on which it was."""
    allowed = os.sched_getaffinity(0)
    code = (
        "import os\n"
        "from pathlib import Path\n"
        "import numpy as np\n"
        "from polar_pipeline import Pipeline\n"
        "with Pipeline(threads=3, backend='cpu') as pipeline:\n"
        "    before = set(Path('/proc/self/task').iterdir())\n"
        "    pipeline(np.zeros((320, 320), np.uint8))\n"
        "    threads = set(Path('/proc/self/task').iterdir()) - before\n"
        "    print(*(len(os.sched_getaffinity(int(thread.name))) for thread in threads))\n"
    )
    assert run_python("-c", code).stdout.split() == 2 * [str(len(allowed) - 1)]


def test_one_processor_is_enough() -> None:
    allowed, frame = os.sched_getaffinity(0), random_frame((320, 320), 8)
    with Pipeline(threads=3, backend="cpu") as pipeline:
        want = pipeline(frame)["dolp"].tobytes()
        assert os.sched_getaffinity(0) == allowed
        try:
            os.sched_setaffinity(0, {min(allowed)})
            assert pipeline(frame)["dolp"].tobytes() == want
        finally:
            os.sched_setaffinity(0, allowed)


def test_the_frame_before_is_of_the_same_stream_and_size() -> None:
    frames = [random_frame((64, 64), 8, seed) for seed in range(2)]
    small = RawFrame(frames[1].mosaic[:40], 255)
    with Pipeline(products="ssim", ssim_mode="temporal", backend="cpu") as pipeline:
        first, other, frozen = (float(pipeline(frames[k])["ssim"]) for k in (0, 1, 1))
        assert np.isnan(first)
        assert other < 0.9
        assert frozen == pytest.approx(1.0, abs=1e-6)
        pipeline.reset()
        assert np.isnan(pipeline(frames[0])["ssim"])
        assert np.isnan(pipeline(small)["ssim"])
        assert float(pipeline(small)["ssim"]) == pytest.approx(1.0, abs=1e-6)
