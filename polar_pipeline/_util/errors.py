"""Errors that are raised again as errors of another kind."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Callable, Iterator, Type


@contextmanager
def errors_as(make: Callable[[str], Exception], kind: Type[Exception] = ValueError) -> Iterator[None]:
    """Turn an error of a kind in this block, or in a function that this decorates, into another with the same text.

    Args:
        make: Makes the other error of the text; usually its class.
        kind: Kind of the error that is raised in the block.
    """
    try:
        yield
    except kind as err:
        raise make(str(err)) from err
