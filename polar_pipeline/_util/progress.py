"""Progress bars of commands."""

from __future__ import annotations

from typing import Iterable, TypeVar

from polar_pipeline._util.imports import importing

Item = TypeVar("Item")


def with_bar(items: Iterable[Item], total: int, unit: str = "frame") -> Iterable[Item]:
    """Return the items, with a progress bar in a terminal if tqdm is installed."""
    try:
        with importing():
            from tqdm import tqdm
    except ImportError:
        return items
    bar: Iterable[Item] = tqdm(items, total=total, unit=unit, disable=None)
    return bar
