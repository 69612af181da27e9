"""Files that are there as a whole or not at all."""

from __future__ import annotations

import io
import os
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, Iterable, Iterator, Set, Tuple


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


def check_outputs(outputs: Iterable[Path], inputs: Iterable[Path]) -> None:
    """Refuse to write over what is read, whatever name, link or folder leads there. Call it before anything is opened.

    Args:
        outputs: Files to write.
        inputs: Files and folders to read.

    Raises:
        ValueError: An output is an input, or lies in a folder that is one.
    """
    outputs = list(outputs)
    for path in inputs:
        is_folder = path.is_dir()
        files = _identities(path.iterdir()) if is_folder else _identities([path])
        for output in outputs:
            if _identities([output]) & files or _real(output) == _real(path):
                raise ValueError(f"{output} would replace an input, {path}")
            if is_folder and _identities([*_real(output).parents, *_own_place(output).parents]) & _identities([path]):
                raise ValueError(f"{output} lies in an input, the folder {path}")


def _identities(paths: Iterable[Path]) -> Set[Tuple[int, int]]:
    """Device and number of the files and folders that exist; the same for all names and links of one."""
    found = set()
    for path in paths:
        with suppress(OSError):
            status = path.stat()
            found.add((status.st_dev, status.st_ino))
    return found


def _real(path: Path) -> Path:
    """Where a path leads, all links followed."""
    return Path(os.path.realpath(str(path)))


def _own_place(path: Path) -> Path:
    """Where the name itself is, if it is a link."""
    return _real(path.parent) / path.name


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
    if not path.parent.is_dir():
        raise FileNotFoundError(f"cannot write {path}: there is no folder {path.parent}")
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder, not a file to write")
    if path.exists() and not path.is_file():  # /dev/null, for one, would be a plain file from then on
        raise OSError(f"{path} is no regular file")
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
