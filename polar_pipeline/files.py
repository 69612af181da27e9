"""Files that are there as a whole or not at all."""

from __future__ import annotations

import io
import os
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Iterator


class _File(io.FileIO):
    """A file under a temporary name; what goes wrong with it tells the name that it is to have."""

    def __init__(self, temporary: Path, path: Path) -> None:
        self._path = path
        with self._telling():
            super().__init__(str(temporary), "x")

    def write(self, data: Any) -> int:
        with self._telling():
            return super().write(data)

    @contextmanager
    def _telling(self) -> Iterator[None]:
        try:
            yield
        except OSError as err:
            raise OSError(err.errno, err.strerror, str(self._path)) from err


@contextmanager
def replacing(path: Path, force: bool = False) -> Iterator[BinaryIO]:
    """Write a file under a temporary name beside it, which becomes `path` when the block ends without an error.

    Args:
        path: The file to make.
        force: Whether a file of that name may be replaced.

    Raises:
        FileExistsError: There is one and it may not.
        OSError: It cannot be written.
    """
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder, not a file to write")
    if path.exists() and not force:
        raise FileExistsError(f"{path} exists already; --force replaces it")
    partial = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with io.BufferedWriter(_File(partial, path)) as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        partial.replace(path)
    finally:
        if partial.exists():
            partial.unlink()
