"""The public API: what it accepts, refuses and says; threads, a fork, the end, and the polarization switch."""

from __future__ import annotations

import multiprocessing
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Dict

import numpy as np
import pytest
from edges import edge_pattern
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from support import TIMEOUT

from polar_pipeline import SENSORS, FrameError, Pipeline, RawFrame
from polar_pipeline.backends import reference
from polar_pipeline.backends.compared_image import check_reference
from polar_pipeline.backends.cpu.backend import CpuBackend
from polar_pipeline.options import make_options
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
        (RAW.astype(">u2"), "type"),
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


def _use(pipeline: Pipeline, answers: Any) -> None:
    try:
        pipeline(RAW)
    except RuntimeError as err:
        answers.put(str(err))
    pipeline.close()


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="no fork here")
@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
def test_after_a_fork() -> None:
    """The child waited forever for threads that it has not."""
    fork = multiprocessing.get_context("fork")
    answers = fork.SimpleQueue()
    with Pipeline(backend="cpu") as pipeline:
        pipeline(RAW)
        child = fork.Process(target=_use, args=(pipeline, answers), daemon=True)
        child.start()
        child.join(TIMEOUT)
        try:
            assert child.exitcode == 0
        finally:
            child.kill()
        assert "method 'spawn'" in answers.get()
        pipeline(RAW)


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


SHAPE = (96, 112)


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
