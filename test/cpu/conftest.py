"""Fixtures of the CPU backend's tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, List, Tuple

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


def pytest_collection_modifyitems(items: List[pytest.Item]) -> None:
    """Tests that differ by their way alone follow each other, and share what the reference says."""
    of_ways: List[Tuple[int, Any]] = []
    order: Dict[Tuple[Any, ...], int] = {}
    for place, item in enumerate(items):
        parameters = getattr(getattr(item, "callspec", None), "params", {})
        if item.path.parent == Path(__file__).parent and "way" in parameters:
            of_ways.append((place, item))
    for _, item in of_ways:
        order.setdefault(_without_way(item), len(order))
    ordered = sorted((item for _, item in of_ways), key=lambda item: order[_without_way(item)])
    for (place, _), item in zip(of_ways, ordered):
        items[place] = item


def _without_way(item: Any) -> Tuple[Any, ...]:
    """A test's name without the way, its part of the parameters' names."""
    words = item.callspec.id.split("-")
    words.remove(item.callspec.params["way"])
    return item.path, item.originalname, *words
