"""Kinds of errors: what lacks memory, and errors that are raised again as errors of another kind."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Callable, Iterator, Type

#: Code of OpenCV's errors that lack memory, `cv2.Error.StsNoMem`.
_OPENCV_NO_MEMORY = -4


def lacks_memory(err: BaseException) -> bool:
    """Return whether an error of Python or OpenCV says that memory does not suffice."""
    return isinstance(err, MemoryError) or getattr(err, "code", None) == _OPENCV_NO_MEMORY


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
