"""The public API: what it accepts, refuses and says; threads, a fork, the end, and the polarization switch."""

from __future__ import annotations

import gc
import multiprocessing
import pickle
import re
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Dict, List, Tuple

import numpy as np
import pytest
from calibrations import lens, some_calibration
from edges import edge_pattern
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from support import TIMEOUT

from polar_pipeline import SENSORS, FrameError, Pipeline, RawFrame, Result
from polar_pipeline.backends import reference
from polar_pipeline.backends.compared_image import check_reference
from polar_pipeline.backends.cpu.backend import CpuBackend
from polar_pipeline.options import make_options
from polar_pipeline.pipeline import Pending
from polar_pipeline.sensor.forward import expose

RAW = (np.arange(32 * 40).reshape(32, 40) % 251).astype(np.uint8)


def test_result_is_a_mapping_with_timings() -> None:
    out = Pipeline(products="aolp, dolp, ssim", backend="cpu")(RAW)
    assert list(out) == ["dolp", "aolp", "ssim"]
    assert len(out) == 3
    assert out["ssim"].shape == ()
    assert list(out.timings) == ["prepare", "polarization", "ssim"]
    assert all(seconds >= 0 for seconds in out.timings.values())
    assert "dolp float32[16, 20]" in repr(out)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"sensor": "IMX999"}, f"{', '.join(SENSORS)} or a tile.*IMX999"),
        ({"products": ("dop",)}, "among intensity.*'dop'"),
        ({"backend": "opencl"}, "auto, cpu, cuda.*'opencl'"),
        ({"precision": "fp16"}, "needs backend 'cuda'"),
        ({"dtype": "int8"}, "float32, uint8.*'int8'"),
        ({"dtype": {"dop": "uint8"}}, "'dop'"),
        ({"ssim_window": 17}, "one of 3, 5, .*15, got 17"),
        ({"ssim_sigma": float("nan")}, r"\[0.5, 5.0\].*nan"),
        ({"min_intensity": 2.0}, r"\[0, 2\).*2.0"),
        ({"roi_offset": (-1, 0)}, r"in \[0, 65535\]"),
        ({"roi_offset": (1, 2, 3)}, "pair"),
        ({"ssim_window": 12.5}, "ssim_window.*whole.*12.5"),
        ({"flip": ("false", "true")}, "flip.*true or false.*'false'"),
        ({"co_sited": "false"}, "co_sited.*true or false.*'false'"),
    ],
)
def test_impossible_options_say_what_is_allowed(options: Dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Pipeline(**{"backend": "cpu", **options})


def test_reference_images_are_checked() -> None:
    good = np.zeros((16, 20), np.float32)
    with pytest.raises(ValueError, match="takes no reference"):
        Pipeline(backend="cpu")(RAW, reference=good)
    pipeline = Pipeline(products=("ssim",), ssim_mode="reference", backend="cpu")
    with pytest.raises(ValueError, match="needs a reference"):
        pipeline(RAW)
    with pytest.raises(FrameError, match=r"reference must hold numbers in \[0, 1\].*got") as caught:
        pipeline(RAW, reference=good - 1e30)
    assert caught.value.cause == "reference"
    assert len(str(caught.value)) < 200


#: The largest float32 that a reference may hold: one step of half precision above 1.
SLACK = np.float32(2**-10)


@given(arrays(np.float32, (4, 5), elements=st.floats(width=32) | st.floats(-1, 2, width=32)))
def test_a_reference_is_checked_number_by_number(image: np.ndarray) -> None:
    fits = all(-SLACK <= float(value) <= 1 + SLACK for value in image.ravel())  # NaN compares as false
    for view in (image, image[::-1], np.repeat(image, 2, 1)[:, ::2]):
        if fits:
            check_reference(view)
        else:
            with pytest.raises(FrameError, match="reference must hold"):
                check_reference(view)


@pytest.mark.parametrize("value", [0.0, -0.0, 1e-45, -1e-45, 1e-38, 1.0, 1 + float(SLACK), -float(SLACK)])
@pytest.mark.parametrize("level", [0, 100, 255])
def test_similarity_to_a_flat_reference_is_a_number(value: float, level: int) -> None:
    raw = np.full((32, 40), level, np.uint8)
    reference = np.full((16, 20), value, np.float32)
    out = Pipeline(products=("ssim", "ssim_map"), ssim_mode="reference", backend="cpu")(raw, reference=reference)
    x, y, c1 = level / 255, float(np.float32(value)), 0.01**2
    # flat images have no variance: what is left of the formula is the comparison of means
    np.testing.assert_allclose(out["ssim_map"], (2 * x * y + c1) / (x * x + y * y + c1), atol=1e-3)


@pytest.mark.parametrize(
    "reference",
    [
        [[0.0] * 20] * 16,
        np.zeros((16, 19), np.float32),
        np.zeros((16, 20)),
        np.zeros((16, 20), ">f4"),
        np.ma.masked_array(np.zeros((16, 20), np.float32)),
        np.zeros((16, 20), object),
        np.float32(0),
        "reference",
    ],
)
def test_references_of_another_type_or_size_are_refused(reference: Any) -> None:
    pipeline = Pipeline(products=("ssim",), ssim_mode="reference", backend="cpu")
    with pytest.raises(ValueError, match=r"reference must be a float32 array of shape \(16, 20\), got"):
        pipeline(RAW, reference=reference)


def vast(*shape: int) -> np.ndarray:
    """An array of any shape in the memory of one byte."""
    return np.lib.stride_tricks.as_strided(np.zeros(1, np.uint8), shape, (0,) * len(shape))


@pytest.mark.parametrize(
    ("raw", "cause"),
    [
        (None, "type"),
        (5, "type"),
        (RAW.tolist(), "type"),
        (memoryview(RAW), "type"),
        (RAW.astype(bool), "type"),
        (RAW.astype(np.int8), "type"),
        (RAW.astype(np.int64) - 1, "type"),
        (RAW.astype(np.int32) + 65500, "type"),
        (RAW.astype(object), "type"),
        (RAW.astype("S1000"), "type"),
        (np.zeros((32, 40), [("a" * 400, "u1"), ("b" * 400, "u1")]), "type"),
        (np.ma.masked_array(RAW, RAW > 100), "type"),
        (np.array(None, object), "type"),
        (RAW[..., np.newaxis], "size"),
        (RAW[:0], "size"),
        (RAW[:8], "size"),
        (RAW.astype(np.float32), "type"),
        (RAW.reshape((1,) * 30 + RAW.shape), "size"),
        (vast(2**31, 2**31), "size"),
        (vast(65536, 16), "size"),
        (vast(20000, 20000), "size"),
        (vast(*(2**3,) * 20), "size"),
        (RawFrame(None, 255), "type"),  # type: ignore[arg-type]
        *(
            (RawFrame(RAW, full_scale), "size")
            for full_scale in (True, None, "255", 1.5, np.nan, np.inf, -1, 10**400, 10**5000, 256, 1j, [255], RAW)
        ),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) else value,
)
def test_what_is_no_frame_is_refused_in_one_line(raw: Any, cause: str) -> None:
    pipeline = Pipeline(products=("dolp",), backend="cpu")
    for call in (pipeline, pipeline.prepare, pipeline.is_ready, pipeline.submit):
        with pytest.raises(FrameError, match="got") as caught:
            call(raw)  # type: ignore[operator]
        assert caught.value.cause == cause
        assert str(caught.value).isprintable()
        assert len(str(caught.value)) < 500
    assert pipeline(RAW)["dolp"].shape == (16, 20), "the next good frame works"


def test_a_full_scale_of_numpys_does_not_overflow() -> None:
    want = Pipeline(products=("intensity",), backend="cpu")(RawFrame(RAW, 200))["intensity"]
    for full_scale in (np.uint8(200), np.float32(200), 200.0):
        got = Pipeline(products=("intensity",), backend="cpu")(RawFrame(RAW, full_scale))["intensity"]  # type: ignore[arg-type]
        np.testing.assert_array_equal(got, want)


def test_submit_and_result_are_a_call_in_two_steps() -> None:
    frames = [np.random.default_rng(k).integers(10, 240, (32, 48)).astype(np.uint8) for k in range(3)]
    products = ("dolp", "ssim")
    one = Pipeline(products=products, backend="cpu", ssim_mode="temporal")
    other = Pipeline(products=products, backend="cpu", ssim_mode="temporal")
    for frame in frames:
        want, got = one(frame), other.result(other.submit(frame))
        assert list(got) == list(want)
        assert set(got.timings) == set(want.timings)
        for name in products:
            np.testing.assert_array_equal(got[name], want[name])
    assert other.depth >= 1
    with pytest.raises(ValueError, match="takes no reference"):
        other.submit(frames[0], reference=np.zeros((16, 24), np.float32))


@pytest.mark.parametrize("step", ["submit", "result", "reset", "close"])
def test_two_threads_at_once(monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """On a GPU their frames were mixed."""
    entered, go_on = threading.Event(), threading.Event()
    method = {"result": "_compute_by_kernels"}.get(step, step)
    original = getattr(CpuBackend, method)

    def slow(*arguments: Any) -> Any:
        entered.set()
        assert go_on.wait(TIMEOUT)
        return original(*arguments)

    pipeline = Pipeline(backend="cpu")
    pending = pipeline.submit(RAW)
    monkeypatch.setattr(CpuBackend, method, slow)
    arguments = {"submit": (RAW,), "result": (pending,)}.get(step, ())
    with ThreadPoolExecutor(1) as other:
        first = other.submit(getattr(pipeline, step), *arguments)
        try:
            assert entered.wait(TIMEOUT)
            for use in (lambda: pipeline(RAW), lambda: pipeline.result(pending), pipeline.reset, pipeline.close):
                with pytest.raises(RuntimeError, match="one thread at a time"):
                    use()
        finally:
            go_on.set()
        first.result()
    if step != "close":
        pipeline(RAW)
    pipeline.close()


def test_threads_in_turn() -> None:
    with Pipeline(products="dolp", backend="cpu") as pipeline, ThreadPoolExecutor(1) as other:
        pending = other.submit(pipeline.submit, RAW).result()
        np.testing.assert_array_equal(pipeline.result(pending)["dolp"], pipeline(RAW)["dolp"])


# ------------------------------------------------------------------------------------------------------- processes

SHAPE = (96, 112)
#: Frames larger than what one thread computes alone.
FRAMES = [np.random.default_rng(seed).integers(10, 250, SHAPE).astype(np.uint8) for seed in range(5)]
#: The pipeline of a worker.
_OWN: List[Pipeline] = []


def with_all_kinds_of_options() -> Pipeline:
    """A pipeline whose options hold a sensor of the caller's, a calibration and a lens."""
    sensor = replace(SENSORS["IMX250MZR"], name="mine", full_well=9000.0)
    pixels = some_calibration(sensor, SHAPE)
    return Pipeline(
        sensor, ("intensity", "dolp", "ssim"), "cpu", calibration=pixels, rectify=lens(SHAPE), dtype={"dolp": "uint16"}
    )


def _keep(pipeline: Pipeline) -> None:
    _OWN[:] = [pipeline]


def _compute(raw: np.ndarray) -> Result:
    return _OWN[0](raw)


def assert_same(got: Result, want: Result) -> None:
    assert list(got) == list(want)
    assert got.invalid == want.invalid
    for name, array in want.items():
        np.testing.assert_array_equal(got[name], array)
        assert got[name].dtype == array.dtype


def test_a_pipeline_is_pickled_by_its_options() -> None:
    pipeline = with_all_kinds_of_options()
    want = pipeline(FRAMES[0])
    other = pickle.loads(pickle.dumps(pipeline))
    assert other.options == pipeline.options
    assert other.options.sensor.full_well == 9000.0
    assert not other.options.calibration.codes.flags.writeable
    assert_same(other(FRAMES[0]), want)
    assert len(pickle.dumps(pipeline)) < 8 * FRAMES[0].size, "the correction of a frame is not part of it"
    pipeline.close()
    assert_same(pickle.loads(pickle.dumps(pipeline))(FRAMES[0]), want)


@pytest.mark.parametrize("method", multiprocessing.get_all_start_methods())
@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
def test_workers_compute_with_a_pipeline_that_was_made_and_used_before(method: str) -> None:
    """A fork has none of its parent's threads, for which the kernels of the CPU would wait forever."""
    with with_all_kinds_of_options() as pipeline:
        want = [pipeline(raw) for raw in FRAMES]
        with multiprocessing.get_context(method).Pool(2, _keep, (pipeline,)) as pool:
            for got, expected in zip(pool.map_async(_compute, FRAMES, chunksize=1).get(TIMEOUT), want):
                assert_same(got, expected)
        assert_same(pipeline(FRAMES[0]), want[0])


def test_forks_never_release_the_backends_of_their_parents() -> None:
    """They would release memory of the parent's GPU: in a fork, in a fork of it, and after the pipeline's end."""
    pipeline = Pipeline(backend="cpu")
    backends = [weakref.ref(pipeline._backend)]
    for _ in range(2):
        pipeline._begin_after_fork()
        pipeline(np.zeros((16, 16), np.uint8))
        backends.append(weakref.ref(pipeline._backend))
    del pipeline
    gc.collect()
    assert [backend() is not None for backend in backends] == [True, True, False]


def _use_after_a_fork(pipeline: Pipeline, pending: Pending, answers: Any) -> None:
    assert repr(pipeline).startswith("<Pipeline sensor=")
    try:
        pipeline.result(pending)
    except RuntimeError as err:
        answers.put(str(err))
    answers.put(float(pipeline(RAW)["ssim"]))
    answers.put(float(pipeline(RAW)["ssim"]))
    pipeline.close()
    answers.put(repr(pipeline))


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="no fork here")
@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
def test_a_fork_while_a_thread_uses_the_pipeline(monkeypatch: pytest.MonkeyPatch) -> None:
    """The child has neither that thread, nor its lock, nor the frames of its parent."""
    fork = multiprocessing.get_context("fork")
    answers = fork.Queue()
    entered, go_on = threading.Event(), threading.Event()

    class SlowBackend(CpuBackend):
        def reset(self) -> None:
            entered.set()
            assert go_on.wait(TIMEOUT)

    pipeline = Pipeline(products="ssim", backend="cpu", ssim_mode="temporal")
    pipeline(RAW)
    pending = pipeline.submit(RAW)
    monkeypatch.setattr(CpuBackend, "reset", SlowBackend.reset)
    with ThreadPoolExecutor(1) as other:
        busy = other.submit(pipeline.reset)
        try:
            assert entered.wait(TIMEOUT)
            child = fork.Process(target=_use_after_a_fork, args=(pipeline, pending, answers), daemon=True)
            child.start()
            said = [answers.get(timeout=TIMEOUT) for _ in range(4)]
            child.join(TIMEOUT)
        finally:
            go_on.set()
        busy.result()
    assert child.exitcode == 0
    assert "submitted before a fork" in said[0]
    assert np.isnan(said[1]), "the child has no frame before this one"
    assert said[2] == pytest.approx(1)
    assert said[3].startswith("<closed Pipeline")
    assert pipeline.result(pending)["ssim"] == pytest.approx(1), "the parent's pipeline is open, with its frames"


class Frames:
    """A data set of PyTorch, as in `docs/library.md`."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline

    def __len__(self) -> int:
        return len(FRAMES)

    def __getitem__(self, index: int) -> Dict[str, np.ndarray]:
        return dict(self.pipeline(FRAMES[index]))


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
def test_data_loader(method: str) -> None:
    data = pytest.importorskip("torch.utils.data")
    pipeline = Pipeline(products=("intensity", "dolp", "ssim"), backend="cpu", threads=1)
    want = [pipeline(raw) for raw in FRAMES]
    loader = data.DataLoader(Frames(pipeline), batch_size=2, num_workers=2, multiprocessing_context=method)
    batches = list(loader)
    assert [len(batch["dolp"]) for batch in batches] == [2, 2, 1]
    for name in ("intensity", "dolp", "ssim"):
        got = np.concatenate([batch[name].numpy() for batch in batches])
        np.testing.assert_array_equal(got, np.stack([result[name] for result in want]))


# ------------------------------------------------------------------------------------------- batches and integer types


@pytest.mark.parametrize("mode", ["consistency", "temporal", "reference"])
@pytest.mark.parametrize("sensor", ["IMX250MZR", "IMX250MYR"])
def test_a_batch_is_its_frames_one_by_one(backend: str, sensor: str, mode: str) -> None:
    """Every product, numbers too; 16-bit frames among which one is dark, which would have another scale alone."""
    frames = np.stack(FRAMES).astype(np.uint16) << 4
    frames[1] //= 50
    products = ("intensity", "angle_45", "stokes", "dolp", "aolp", "preview", "ssim_map", "ssim")
    options: Dict[str, Any] = {"sensor": sensor, "products": products, "ssim_mode": mode, "bit_depth": 12}
    one, other = (Pipeline(backend=backend, **options) for _ in range(2))
    more = {"reference": np.full((48, 56), 0.5, np.float32)} if mode == "reference" else {}
    singles = [one(raw, **more) for raw in frames]
    batch = other(frames, **more)
    assert list(batch) == list(products)
    for name in products:
        np.testing.assert_array_equal(batch[name], np.stack([single[name] for single in singles]))
        assert batch[name].dtype == singles[0][name].dtype
    blocks = [single.blocks for single in singles]
    np.testing.assert_array_equal(batch.blocks, np.stack(blocks))  # type: ignore[arg-type]
    assert batch.invalid == tuple(sum(counts) for counts in zip(*(single.invalid for single in singles)))
    assert list(batch.timings) == list(singles[0].timings)
    of_a_record = one(RawFrame(frames, 4095), **more)
    again = other(frames, **more)
    np.testing.assert_array_equal(of_a_record["stokes"], again["stokes"])


@pytest.mark.parametrize(
    "shape", [(480, 640, 3), (480, 640, 4), (0, 32, 40), (3, 8, 40), (2, 2, 32, 40), (32, 40, 1)], ids=str
)
def test_a_color_picture_is_not_a_batch(shape: Tuple[int, ...]) -> None:
    pipeline = Pipeline(backend="cpu")
    for raw in (np.zeros(shape, np.uint8), RawFrame(np.zeros(shape, np.uint8), 255)):
        with pytest.raises(FrameError, match=rf"raw must be \(H, W\).*got shape {re.escape(str(shape))}") as caught:
            pipeline(raw)
        assert caught.value.cause == "size"


@pytest.mark.filterwarnings("ignore:no 16-bit number is above 4095:UserWarning")
@pytest.mark.parametrize("dtype", [">u2", "<u2", "<i2", ">i2", "<i4", ">u4", "<i8", ">u8"])
def test_integers_of_other_types_hold_the_same_numbers(dtype: str) -> None:
    raw = np.random.default_rng(0).integers(0, 4096, SHAPE)
    options: Dict[str, Any] = {"products": ("stokes", "ssim"), "backend": "cpu"}
    for more in ({}, {"bit_depth": 12}):
        want = Pipeline(**options, **more)(raw.astype(np.uint16))
        pipeline = Pipeline(**options, **more)
        assert_same(pipeline(raw.astype(dtype)), want)
        np.testing.assert_array_equal(pipeline(raw.astype(dtype)[np.newaxis])["stokes"][0], want["stokes"])
    assert_same(
        Pipeline(**options)(RawFrame(raw.astype(dtype), 4095)), Pipeline(**options)(RawFrame(raw.astype("u2"), 4095))
    )
    angles = np.stack([raw, raw // 2, raw // 3, raw // 4], -1)
    sensor = SENSORS["IMX250MZR"]
    want = Pipeline(**options)(RawFrame.of_angles(angles.astype(np.uint16), sensor, 4095))
    assert_same(Pipeline(**options)(RawFrame.of_angles(angles.astype(dtype), sensor, 4095)), want)


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (RAW.astype(np.int16) - 300, r"integers from 0 to 65535, got -300 \(int16\)"),
        (RAW.astype(np.int32) + 70000, r"integers from 0 to 65535, got 70250 \(int32\)"),
        (np.full(RAW.shape, 1 << 63, np.uint64), r"integers from 0 to 65535, got 9223372036854775808 \(uint64\)"),
        (RAW / 255, r"got float64; for values from 0 to 1, np\.rint\(65535 \* raw\)\.astype\(np\.uint16\)"),
        (RAW > 100, "other integers from 0 to 65535, got bool$"),
        (RAW.astype(np.int8), "got int8$"),
    ],
    ids=lambda value: value.dtype if isinstance(value, np.ndarray) else "",
)
def test_numbers_without_a_scale_are_refused(raw: np.ndarray, words: str) -> None:
    pipeline = Pipeline(backend="cpu")
    for frame in (raw, raw[np.newaxis], RawFrame(raw, 255)):
        with pytest.raises(FrameError, match=words) as caught:
            pipeline(frame)
        assert caught.value.cause == "type"


def test_after_the_end() -> None:
    with Pipeline(backend="cpu") as pipeline:
        pending = pipeline.submit(RAW)
        assert repr(pipeline).startswith("<Pipeline sensor='IMX250MZR', products=('intensity', 'dolp', 'aolp')")
        assert pipeline.device in repr(pipeline)
    pipeline.close()
    for use in (
        lambda: pipeline(RAW),
        lambda: pipeline.result(pending),
        lambda: pipeline.prepare(RAW),
        lambda: list(pipeline.stream([RAW])),
        pipeline.reset,
    ):
        with pytest.raises(RuntimeError, match="this pipeline is closed"):
            use()
    assert repr(pipeline).startswith("<closed Pipeline")


def test_a_product_that_was_not_asked_for() -> None:
    with Pipeline(products="dolp,aolp", backend="cpu") as pipeline:
        result = pipeline(RAW)
    with pytest.raises(KeyError, match="'ssim' was not asked for; this result has dolp, aolp"):
        result["ssim"]
    assert "ssim" not in result
    assert result.get("ssim") is None


def pattern(name: str, sensor: str = "IMX250MZR") -> np.ndarray:
    """What a sensor records of a pattern; gray for a color sensor."""
    stokes = edge_pattern(name, SHAPE, 0.6)
    if SENSORS[sensor].is_color:
        stokes = np.repeat(stokes[:, :, np.newaxis], 3, 2)
    return expose(stokes, SENSORS[sensor])


def switch(raw: Any, **options: Any) -> np.ndarray:
    with Pipeline(**{"resolution": "full", "backend": "cpu", **options}) as pipeline:
        found = pipeline.debug(raw)
    assert list(found) == ["polarization_switch"]
    return found["polarization_switch"]


def on_edges(name: str, image: np.ndarray) -> np.ndarray:
    """The pixels of an image at the edges of a pattern."""
    stokes = edge_pattern(name, SHAPE, 0.6).astype(float)
    slope = sum(np.abs(np.gradient(stokes, axis=axis)).sum(-1) for axis in (0, 1))
    return image[slope > 0.3]


@pytest.mark.parametrize("sensor", ["IMX250MZR", "IMX250MYR"])
@pytest.mark.parametrize(
    "layout",
    [{}, {"roi_offset": (1, 2), "flip": (False, True)}, {"resolution": "half", "demosaic": "adaptive"}],
    ids=str,
)
def test_switch_of_a_frame(layout: Dict[str, Any], sensor: str) -> None:
    """That of luma, of the mosaic as the frame shows it, at its resolution also where the products have half of it."""
    raw, seen = pattern("discs", sensor), make_options(sensor, **layout).read_out(SHAPE)
    luma = reference.debayer_weighted(raw / 255, seen) @ [0.25, 0.5, 0.25] if seen.is_color else raw / 255
    found = switch(raw, sensor=sensor, **layout)
    assert (found.dtype, found.shape) == (np.float32, SHAPE)
    assert (found.min(), found.max()) == (0, 1)
    np.testing.assert_allclose(found, reference.polarization_switch(luma), rtol=0, atol=1e-6)


@pytest.mark.parametrize("sensor", ["IMX250MZR", "IMX250MYR"])
def test_switch_tells_edges_apart(sensor: str) -> None:
    for name in ("lcd text", "tape", "polarization star"):
        assert np.mean(on_edges(name, switch(pattern(name, sensor), sensor=sensor))) > 0.9, name
    for name in ("intensity star", "intensity stripes, 8 px"):
        assert np.mean(on_edges(name, switch(pattern(name, sensor), sensor=sensor))) < 0.05, name


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"resolution": "half"}, "uses 'bilinear', here demosaic='auto': set demosaic='adaptive'"),
        ({"demosaic": "bilinear"}, "uses 'bilinear': set demosaic='adaptive'"),
        ({"demosaic": "gradient"}, "uses 'gradient': set demosaic='adaptive'"),
        (
            {"demosaic": "adaptive", "resolution": "half", "co_sited": False},
            "co_sited=False at half resolution .* set co_sited=True and demosaic='adaptive'",
        ),
    ],
)
def test_options_without_a_switch(options: Dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        switch(pattern("tape"), **options)


def test_debug_after_the_end() -> None:
    raw = pattern("tape")
    with Pipeline(resolution="full", backend="cpu") as pipeline:
        before = pipeline(raw)["dolp"]
        pipeline.debug(raw)
        np.testing.assert_array_equal(pipeline(raw)["dolp"], before)
        with pytest.raises(FrameError, match=r"uint8 or uint16.*float32"):
            pipeline.debug(raw.astype(np.float32))
    with pytest.raises(RuntimeError, match="this pipeline is closed"):
        pipeline.debug(raw)
