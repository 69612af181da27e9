"""Fixtures of several test files."""

from __future__ import annotations

import pytest
from harness import COMPILER, Launch, gpu, gpu_driver, host


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
