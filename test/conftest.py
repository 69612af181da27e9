"""Fixtures of several test files."""

from __future__ import annotations

import signal

import pytest
from harness import COMPILER, Launch, gpu, gpu_driver, host


def pytest_configure() -> None:
    """A shell has what it starts in the background ignore Ctrl-C, and all that this starts in turn."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(params=[host, pytest.param(gpu, marks=pytest.mark.gpu)], ids=lambda launch: launch.__name__)
def launch(request: pytest.FixtureRequest) -> Launch:
    """Where kernels run: compiled for the CPU, and on a GPU if there is one."""
    if request.param is host and COMPILER is None:
        pytest.skip("no C++ compiler (c++, or what CXX names)")
    if request.param is gpu:
        try:
            gpu_driver()
        except RuntimeError as err:
            pytest.skip(str(err))
    return request.param
