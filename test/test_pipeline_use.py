"""A pipeline used by two threads, after a fork, after its end; and what it and its results say of themselves."""

from __future__ import annotations

import multiprocessing
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from support import TIMEOUT

from polar_pipeline import Pipeline
from polar_pipeline.cpu.backend import CpuBackend

RAW = np.random.default_rng(0).integers(0, 256, (32, 48)).astype(np.uint8)


@pytest.mark.parametrize("step", ["submit", "result", "reset", "close"])
def test_two_threads_at_once(monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """On a GPU their frames were mixed."""
    entered, go_on = threading.Event(), threading.Event()
    original = getattr(CpuBackend, step)

    def slow(*arguments: Any) -> Any:
        entered.set()
        assert go_on.wait(TIMEOUT)
        return original(*arguments)

    pipeline = Pipeline(backend="cpu")
    pending = pipeline.submit(RAW)
    monkeypatch.setattr(CpuBackend, step, slow)
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


def test_an_error_leaves_it_usable() -> None:
    with Pipeline(backend="cpu") as pipeline:
        with pytest.raises(ValueError, match="raw"):
            pipeline(RAW[0])
        pipeline(RAW)


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
