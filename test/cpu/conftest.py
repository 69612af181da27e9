"""Fixtures of the CPU backend's tests."""

from __future__ import annotations

import pytest

from polar_pipeline.cpu import native


@pytest.fixture(params=["compiled", "opencv"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways of the CPU backend: its own compiled kernels, and OpenCV."""
    monkeypatch.setenv(native.VARIABLE, request.param)
    if request.param == "compiled":
        try:
            native.find_compiler()
        except native.NativeError as err:
            pytest.skip(str(err))
        native.find_library()  # raises what the backend would be silent about
    return str(request.param)
