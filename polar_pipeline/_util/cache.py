"""Compiled programs kept on disk, under a hash of everything that they depend on.

An entry becomes part of the program that reads it, so it is used only if no user but this one and root could have
written it or put it there. Owner and mode of every folder on the path, and of the entry, are checked on open
descriptors, and the same descriptors are read. If a check fails, nothing is read and nothing is kept: that costs the
time to compile, and is logged once.
"""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import os
import secrets
import shlex
import stat
import sys
import tempfile
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePath
from typing import Iterator, List, Optional, Tuple

from polar_pipeline._util.files import PARTIAL, hold, remove_leftovers, temporary_folder
from polar_pipeline._util.folders import cache_folder
from polar_pipeline._util.text import printable

_LOG = logging.getLogger(__name__)
_DIGEST_BYTES = 32
#: Modes of the folders and files made here.
_FOLDER, _FILE = 0o700, 0o600
#: Advice where this user cannot change the folder.
_USE_OWN_FOLDER = "set XDG_CACHE_HOME to a folder of your own (with sudo: sudo -H)"
#: Symbolic links that are followed on the path to the folder: as many as the kernel follows.
_MAX_LINKS = 40


class UntrustedError(PermissionError):
    """A folder or file that other users could have written; the text says which, why, and what to do about it."""


@dataclass(frozen=True)
class CacheEntry:
    """An entry that passed all checks.

    Attributes:
        descriptor: Its file, open for reading; the caller closes it.
        content: The content of the file.
    """

    descriptor: int
    content: bytes


# -------------------------------------------------------------------------------------------------------------- entries


def entry_name(depends_on: object, suffix: str) -> str:
    """The name of the entry made from `depends_on`, which is anything that JSON can write."""
    return hashlib.sha256(json.dumps(depends_on).encode()).hexdigest() + suffix


def open_entry(name: str) -> Optional[CacheEntry]:
    """An entry with its open file; None if it is absent or damaged, or if another user could have written it."""
    try:
        with _open_cache(make=False) as folder:
            return _open_checked(folder, name)
    except UntrustedError as err:
        _warn(str(err))
    except OSError:  # nothing there, or nothing that can be read
        pass
    return None


def read_entry(name: str) -> Optional[bytes]:
    """The content of an entry; None as for `open_entry`."""
    entry = open_entry(name)
    if entry is None:
        return None
    os.close(entry.descriptor)
    return entry.content


def write_entry(name: str, content: bytes) -> None:
    """Keep an entry; other processes see all of it or nothing. Where it cannot be written, nothing is kept."""
    try:
        with _open_cache(make=True) as folder:
            _replace(folder, name, content + hashlib.sha256(content).digest())
    except UntrustedError as err:
        _warn(str(err))
    except OSError:  # read-only, full, no home
        pass


def _open_checked(folder: int, name: str) -> Optional[CacheEntry]:
    # not blocking: a FIFO would wait for a writer
    descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    try:
        info = os.fstat(descriptor)
        if stat.S_ISREG(info.st_mode):
            if info.st_uid not in _trusted() or _others_write(info):
                raise UntrustedError(f"{name} could have been written by other users; it is compiled again")
            _tighten(descriptor, info, _FILE)
            with os.fdopen(descriptor, "rb", closefd=False) as stream:
                data = stream.read()
            # The digest, which reveals damage, is at the end: loaders ignore what follows a program.
            content, digest = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
            if hashlib.sha256(content).digest() == digest:
                kept, descriptor = CacheEntry(descriptor, content), -1
                return kept
    finally:
        if descriptor >= 0:
            os.close(descriptor)
    return None


def _replace(folder: int, name: str, data: bytes) -> None:
    remove_leftovers(folder, PARTIAL)
    while True:
        part = f".{secrets.token_hex(8)}.part"
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _FILE, dir_fd=folder)
        if hold(descriptor, part, folder):
            break
        os.close(descriptor)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.replace(part, name, src_dir_fd=folder, dst_dir_fd=folder)  # while it is locked
    except OSError:
        with suppress(OSError):
            os.unlink(part, dir_fd=folder)
        raise


@lru_cache(maxsize=None)
def _warn(reason: str) -> None:
    """Log once per process why the cache, or an entry, is not used."""
    _LOG.warning("compiled kernels on disk are not used: %s", reason)


# -------------------------------------------------------------------------------------------------------------- folders


def check_cache() -> Path:
    """The folder, made if it was not there, if entries can be kept in it.

    Raises:
        UntrustedError: Other users could put programs there.
        OSError: It cannot be made, read or written.
    """
    path = cache_folder()
    with _open_cache(make=True) as folder:
        if not os.access(".", os.W_OK, dir_fd=folder, effective_ids=True):
            raise PermissionError(errno.EACCES, "cannot be written", str(path))
    return path


@contextmanager
def private_folder() -> Iterator[Path]:
    """A temporary folder that only this user can enter, removed at the end.

    Raises:
        UntrustedError: Other users could replace it.
        OSError: It cannot be made.
    """
    if os.name == "posix":
        parent = Path(tempfile.gettempdir())
        info = parent.stat()
        # In a user namespace, root's files may appear to belong to another user: the owner of `/`.
        if info.st_uid not in (*_trusted(), Path("/").stat().st_uid):
            raise UntrustedError(f"{_belongs(parent, info)}; set TMPDIR to a folder of your own")
        if _others_write(info) and not info.st_mode & stat.S_ISVTX:
            raise UntrustedError(f"other users can replace what is in {_shown(parent)}; {_command('chmod +t', parent)}")
    with temporary_folder("private") as folder:
        yield folder


@contextmanager
def _open_cache(make: bool) -> Iterator[int]:
    """The cache's folder as a descriptor, with `make` made if it is not there.

    Raises:
        UntrustedError: Other users could put programs there.
        OSError: It cannot be opened or made.
    """
    path = cache_folder()
    if not hasattr(os, "O_PATH"):
        raise OSError(f"nothing is kept on {sys.platform}, only on Linux")
    with _walk(path, make) as place:
        folder = os.open(".", os.O_RDONLY | os.O_DIRECTORY, dir_fd=place)
        try:
            _tighten(folder, os.fstat(folder), _FOLDER)
            yield folder
        finally:
            os.close(folder)


@contextmanager
def _walk(path: Path, make: bool) -> Iterator[int]:
    """A folder that only this user and root can write to or replace, as a descriptor of its place (O_PATH).

    Every step below `/` is checked. A symbolic link is followed if it is root's or this user's, and a folder that all
    may write to, such as `/tmp`, is passed if it is sticky.

    Raises:
        UntrustedError: Another user could.
        OSError: It cannot be reached or made.
    """
    opened: List[int] = [os.open("/", os.O_PATH)]
    try:
        at, place, names, links = opened[0], Path("/"), list(reversed(path.parts[1:])), 0
        while names:
            here = place / names.pop()
            step = _enter(at, here, make)
            opened.append(step)
            info = os.fstat(step)
            if info.st_uid not in _trusted():
                raise UntrustedError(f"{_belongs(here, info)}; {_USE_OWN_FOLDER}")
            if not stat.S_ISLNK(info.st_mode):
                if _others_write(info) and not (names and info.st_mode & stat.S_ISVTX):
                    # what already lies in the folder itself could be theirs
                    advice = _command("chmod go-w" if names else "rm -r", here)
                    advice = advice if info.st_uid == os.geteuid() else _USE_OWN_FOLDER
                    raise UntrustedError(f"other users can write to {_shown(here)}; {advice}")
                at, place = step, here
                continue
            links += 1
            if links > _MAX_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
            target = PurePath(os.readlink(here.name, dir_fd=at))
            names += reversed(target.parts[1:] if target.is_absolute() else target.parts)
            if target.is_absolute():
                at, place = opened[0], Path("/")
        yield at
    finally:
        for descriptor in opened:
            os.close(descriptor)


def _enter(parent: int, path: Path, make: bool) -> int:
    """Where `path` lies, or the link that it is, below its parent; with `make` made if it is not there."""
    flags = os.O_PATH | os.O_NOFOLLOW
    try:
        try:
            return os.open(path.name, flags, dir_fd=parent)
        except FileNotFoundError:
            if not make:
                raise
        with suppress(FileExistsError):  # another process has just made it
            os.mkdir(path.name, _FOLDER, dir_fd=parent)
        return os.open(path.name, flags, dir_fd=parent)
    except OSError as err:
        raise OSError(err.errno, os.strerror(err.errno or 0), str(path)) from None


# ---------------------------------------------------------------------------------------------------------------- trust
# `pwd` and `grp` are imported where they are needed: systems other than Linux, where nothing is kept, may lack them.


def _trusted() -> Tuple[int, int]:
    """Users whose files may become part of this program: root, which can do anything anyway, and this one."""
    return (0, os.geteuid())


def _others_write(info: os.stat_result) -> bool:
    """Whether users other than a file's owner may write to it; this user's own group does not count."""
    if info.st_mode & stat.S_IWOTH:
        return True
    return bool(info.st_mode & stat.S_IWGRP) and not _is_own_group(info.st_gid)


def _is_own_group(number: int) -> bool:
    """Whether this user is the only member of a group. Ubuntu makes one for every user, with the right to write."""
    import grp
    import pwd

    try:
        user, group = pwd.getpwuid(os.geteuid()), grp.getgrgid(number)
    except KeyError:
        return False
    return user.pw_gid == number and group.gr_name == user.pw_name and set(group.gr_mem) <= {user.pw_name}


def _tighten(descriptor: int, info: os.stat_result, mode: int) -> None:
    """Take away the permissions that earlier versions gave to other users, if the file belongs to this user."""
    if info.st_uid == os.geteuid() and stat.S_IMODE(info.st_mode) & ~mode:
        with suppress(OSError):  # a read-only file system
            os.fchmod(descriptor, mode)


def _shown(path: Path) -> str:
    return printable(str(path))


def _belongs(path: Path, info: os.stat_result) -> str:
    import pwd

    try:
        name = f"{pwd.getpwuid(info.st_uid).pw_name} ({info.st_uid})"
    except KeyError:
        name = str(info.st_uid)
    return f"{_shown(path)} belongs to user {printable(name)}, not to you"


def _command(command: str, path: Path) -> str:
    return f"run {command} {printable(shlex.quote(str(path)))}"
