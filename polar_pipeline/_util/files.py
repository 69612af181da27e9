"""Files that are either complete or absent.

Until it is complete, a file or a folder has a temporary name, and the process that makes it holds a lock on it, which
ends with the process. A file with such a name and no lock was left by a process that was killed; the next one removes
it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import secrets
import shutil
import stat
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Iterator, Optional

#: End of the names of incomplete files, as a pattern; it also matches those of earlier versions, which had the number
#: of the process.
PARTIAL = r"\.[0-9a-f]+\.part"
#: End of the names of files and folders that are not locked yet.
_NEW = ".new"
_PREFIX = "polar_pipeline_"
#: Errors of a disk that is full, which do not name the file.
_FULL = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)


def check_absent(path: Path, force: bool) -> None:
    """Refuse to write a file that exists, unless `force` is true.

    Raises:
        FileExistsError: It exists.
    """
    if path.exists() and not force:
        raise FileExistsError(f"{path} exists already; --force replaces it")


@contextmanager
def replacing(path: Path, force: bool = False) -> Iterator[BinaryIO]:
    """Write a file under a temporary name beside it, which becomes `path` when the block ends without an error.

    Args:
        path: The file to make.
        force: Whether a file of that name may be replaced.

    Raises:
        FileExistsError: There is one, and `force` is false.
        OSError: The file cannot be written.
    """
    if not path.parent.is_dir():
        raise FileNotFoundError(f"cannot write {path}: there is no folder {path.parent}")
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder, not a file to write")
    if path.exists() and not path.is_file():  # /dev/null, for example, would become a plain file
        raise OSError(f"{path} is not a regular file")
    check_absent(path, force)
    remove_leftovers(path.parent, rf"\.{re.escape(path.name)}{PARTIAL}")
    partial = partial_path(path)
    new = partial.with_suffix(_NEW)
    try:
        with new.open("xb") as stream:
            _hold(stream.fileno(), new, partial)
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
            check_absent(path, force)  # another process may have been faster
            partial.replace(path)  # while it is locked
    except OSError as err:
        if err.filename in (str(new), str(partial)) or (err.filename is None and err.errno in _FULL):
            raise OSError(err.errno, err.strerror, str(path)) from err
        raise
    finally:
        for left in (new, partial):
            if left.exists():
                left.unlink()


@contextmanager
def replacing_folder(path: Path, force: bool = False) -> Iterator[Path]:
    """Create a folder under a temporary name, which becomes `path` when the block ends without an error.

    Args:
        path: The folder to make.
        force: Whether a folder of that name may be replaced; with several that replace it, the last one remains.

    Raises:
        OSError: The file cannot be made, or `path` is there already.
    """
    partial = partial_path(path)
    new = partial.with_suffix(_NEW)
    try:
        new.mkdir(parents=True)
    except FileNotFoundError:  # another process just removed the folder around it, which was empty
        new.mkdir(parents=True)
    with _held_folder(new, partial):
        yield partial
        while True:
            try:
                partial.rename(path)
                return
            except OSError as err:
                if not force or err.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
            discard_folder(path)


def discard_folder(path: Path) -> None:
    """Remove a folder, which is gone at once under its name; another process may do the same."""
    with suppress(FileNotFoundError):
        old = path.rename(partial_path(path))
        shutil.rmtree(old, ignore_errors=True)


@contextmanager
def temporary_folder(purpose: str, place: Optional[Path] = None) -> Iterator[Path]:
    """Create a folder for temporary files that only this user can enter, and remove it at the end.

    Args:
        purpose: A word in its name.
        place: The folder around it; None for the system's folder of temporary files.

    Raises:
        OSError: The file cannot be made.
    """
    prefix = f"{_PREFIX}{purpose}_"
    place = place or Path(tempfile.gettempdir())
    remove_leftovers(place, rf"{prefix}\w+")
    new = Path(tempfile.mkdtemp(prefix=f".{prefix}", dir=str(place)))
    with _held_folder(new, new.with_name(new.name[1:])) as folder:
        yield folder


# ------------------------------------------------------------------------------------------------------------ leftovers


def partial_path(path: Path) -> Path:
    """Return a temporary name beside `path`, for a file that becomes `path` when it is complete."""
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")


def _hold(descriptor: int, new: Path, path: Path) -> None:
    """Lock a new file or folder for as long as its descriptor is open; then give it the name of an incomplete one.

    Under its first name, `remove_leftovers` does not find it: nobody removes it before it is locked.
    """
    with suppress(OSError):  # a file system without locks, on which nothing is removed either
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    new.rename(path)


@contextmanager
def _held_folder(new: Path, path: Path) -> Iterator[Path]:
    """Hold a new folder, and remove its remains at the end."""
    descriptor = os.open(str(new), os.O_RDONLY)
    try:
        _hold(descriptor, new, path)
        yield path
    finally:
        for left in (new, path):
            shutil.rmtree(left, ignore_errors=True)
        os.close(descriptor)


def remove_leftovers(folder: Path, pattern: str) -> None:
    """Remove what killed processes left: files and folders of this user with these names that no process has locked.

    Args:
        folder: Where to look; errors are ignored.
        pattern: Regular expression that the full name matches.
    """
    with suppress(OSError):
        for path in [path for path in folder.iterdir() if re.fullmatch(pattern, path.name)]:
            with suppress(OSError):
                _remove_if_free(path)


def _remove_if_free(path: Path) -> None:
    # not blocking: a FIFO would wait for a writer
    descriptor = os.open(str(path), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        info = os.fstat(descriptor)
        if info.st_uid != os.geteuid():
            return
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if stat.S_ISREG(info.st_mode):
            path.unlink()
        elif stat.S_ISDIR(info.st_mode):
            shutil.rmtree(path, ignore_errors=True)
    finally:
        os.close(descriptor)
