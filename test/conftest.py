"""Fixtures of several test files."""

from __future__ import annotations

import signal

import pytest
from harness import COMPILER, GPUS, Launch, host, on_gpu
from skips import pytest_terminal_summary  # noqa: F401 - pytest calls it


def pytest_configure() -> None:
    """A shell has what it starts in the background ignore Ctrl-C, and all that this starts in turn."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(params=["host", *(pytest.param(name, marks=pytest.mark.gpu) for name in GPUS)])
def launch(request: pytest.FixtureRequest) -> Launch:
    """Where kernels run: compiled for the CPU; and on a GPU if there is one, also as a Jetson's code."""
    if request.param == "host":
        if COMPILER is None:
            pytest.skip("no C++ compiler (c++, or what CXX names)")
        return host
    try:
        return on_gpu(request.param)
    except RuntimeError as err:
        pytest.skip(str(err))
