"""Progress bars of commands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Iterable, Type, TypeVar

from polar_pipeline._util.imports import importing

if TYPE_CHECKING:
    from tqdm import tqdm

Item = TypeVar("Item")


def with_bar(items: Iterable[Item], total: int, unit: str = "frame") -> Iterable[Item]:
    """Return the items, with a progress bar in a terminal if tqdm is installed."""
    try:
        tqdm_bar = import_tqdm()
    except ImportError:
        return items
    bar: Iterable[Item] = tqdm_bar(items, total=total, unit=unit, disable=None, miniters=1)
    return bar


def import_tqdm() -> Type[tqdm]:
    """Return tqdm's progress bar, which starts no thread: where memory is short, Python may wait for one forever.

    Raises:
        ImportError: tqdm is not installed.
    """
    with importing():
        from tqdm import tqdm
    tqdm.monitor_interval = 0
    return tqdm
