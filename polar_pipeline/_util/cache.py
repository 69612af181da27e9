"""Compiled kernels kept on disk, under a hash of everything that they depend on.

A kernel becomes part of the program that reads it, so it is used only if its file and the folder belong to this user or
to root, and no other user can write to them. Both are checked on the open descriptors that are read: nobody can put
something else in their place in between. If a check fails, nothing is read and nothing is kept: that costs the time to
compile, and is logged once.
"""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import os
import shlex
import stat
import sys
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Iterator, Optional

from polar_pipeline._util.files import replacing
from polar_pipeline._util.folders import cache_folder
from polar_pipeline._util.text import printable

_LOG = logging.getLogger(__name__)
_DIGEST_BYTES = 32
#: Modes of the folder and of the files made here.
_FOLDER, _FILE = 0o700, 0o600


class UntrustedError(PermissionError):
    """A folder or file that other users could have written; the text says which, why, and what to do about it."""


def entry_name(depends_on: object, suffix: str) -> str:
    """The name of the entry made from `depends_on`, which is anything that JSON can write."""
    return hashlib.sha256(json.dumps(depends_on).encode()).hexdigest() + suffix


def read_entry(name: str) -> Optional[bytes]:
    """The content of an entry; None if it is absent or damaged, or if another user could have written it."""
    try:
        with _open_folder(cache_folder()) as folder:
            # not blocking: a FIFO would wait for a writer
            descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
        with os.fdopen(descriptor, "rb") as stream:
            info = os.fstat(descriptor)
            if info.st_uid not in (0, os.geteuid()) or _others_write(info):
                raise UntrustedError(f"{name} could have been written by other users; it is compiled again")
            data = stream.read()
    except UntrustedError as err:
        _warn(str(err))
        return None
    except OSError:  # nothing there, or nothing that can be read
        return None
    content, digest = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    return content if hashlib.sha256(content).digest() == digest else None


def write_entry(name: str, content: bytes) -> None:
    """Keep an entry; other processes see all of it or nothing. Where it cannot be written, nothing is kept."""
    try:
        with replacing(check_cache() / name, force=True) as stream:
            os.fchmod(stream.fileno(), _FILE)
            # The digest, which reveals damage, is at the end: loaders ignore what follows a program.
            stream.write(content + hashlib.sha256(content).digest())
    except UntrustedError as err:
        _warn(str(err))
    except OSError:  # read-only, full, no home
        pass


def check_cache() -> Path:
    """The folder, made if it was not there, if entries can be kept in it.

    Raises:
        UntrustedError: Other users could put programs there.
        OSError: It cannot be made, read or written.
    """
    path = cache_folder()
    if os.name != "posix":
        raise OSError(f"nothing is kept on {sys.platform}")
    if not path.exists():
        above = next(parent for parent in path.parents if parent.exists())
        _check_owner(above, above.stat())  # as with sudo, which leaves HOME as it is on some systems
        if above != path.parent:
            path.parent.mkdir(_FOLDER, parents=True, exist_ok=True)
        path.mkdir(_FOLDER, exist_ok=True)
    with _open_folder(path):
        if not os.access(path, os.W_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids):
            raise PermissionError(errno.EACCES, "cannot be written", str(path))
    return path


@contextmanager
def _open_folder(path: Path) -> Iterator[int]:
    """The folder as a descriptor; what earlier versions let other users do in it, they cannot do any more."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        info = os.fstat(folder)
        _check_owner(path, info)
        if info.st_uid == os.geteuid() and stat.S_IMODE(info.st_mode) & ~_FOLDER:
            with suppress(OSError):  # a read-only file system
                os.fchmod(folder, _FOLDER)
        if _others_write(os.fstat(folder)):
            raise UntrustedError(f"other users can write to {printable(str(path))}; {_command('chmod go-w', path)}")
        yield folder
    finally:
        os.close(folder)


def _check_owner(path: Path, info: os.stat_result) -> None:
    if info.st_uid not in (0, os.geteuid()):  # root can do anything anyway
        raise UntrustedError(
            f"{printable(str(path))} belongs to user {info.st_uid}, not to you; "
            "set XDG_CACHE_HOME to a folder of your own (with sudo: sudo -H)"
        )


def _others_write(info: os.stat_result) -> bool:
    return bool(info.st_mode & (stat.S_IWGRP | stat.S_IWOTH))


def _command(command: str, path: Path) -> str:
    return f"run {command} {printable(shlex.quote(str(path)))}"


@lru_cache(maxsize=None)
def _warn(reason: str) -> None:
    """Log once per process why the cache, or an entry, is not used."""
    _LOG.warning("compiled kernels on disk are not used: %s", reason)
