"""Imports of libraries that may be missing or broken: every failure is an `ImportError`."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Iterator


@contextmanager
def importing() -> Iterator[None]:
    """Turn every error in a block that imports a library into an `ImportError`.

    A library that was built for another Python or NumPy, or that lacks libraries of its own, has raised SyntaxError,
    OSError, AttributeError, TypeError, ValueError and RuntimeError, so every exception counts.
    """
    try:
        yield
    except ImportError:
        raise
    except Exception as err:
        raise ImportError(f"{type(err).__name__}: {err}") from err
