"""Recordings in object storage and on web servers, through fsspec: listing, and copies in a bounded folder."""

from __future__ import annotations

import errno
import fcntl
import os
import random
import re
import tempfile
import time
from contextlib import ExitStack, contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Tuple, TypeVar

from polar_pipeline._util.files import remove_leftovers, temporary_folder
from polar_pipeline.batch import recordings
from polar_pipeline.batch.recordings import File, Recording, StorageError, is_web, name_of, shown
from polar_pipeline.replay.limits import described, megabytes

#: Default limit for the total size of the copies of recordings, in bytes.
SPOOL_BYTES = 64 << 30
#: Attempts of every request, and the seconds before the second one; each further one waits twice as long.
ATTEMPTS = 4
BACKOFF_S = 0.5
#: Seconds without a byte after which a request counts as failed.
STALL_S = 60.0
#: Properties that distinguish versions of an object, the best first.
_VERSIONS = (
    *("etag", "generation", "version_id", "content-md5", "md5hash", "md5", "last-modified", "lastmodified"),
    *("updated", "last_modified", "mtime", "modified"),
)
#: Errors of the local disk, which another attempt does not solve.
_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.ENAMETOOLONG)
#: HTTP states below 500 that pass: timeout, too early, too many requests.
_PASSING = (408, 425, 429)
#: Name of a copy's folder, with the size of the copy.
_COPY = r"polar_pipeline_copy_(\d+)_\w+"
#: Seconds between two looks at the space in the folder for copies.
_POLL_S = 0.1
_ABSENT = "there is nothing of this name"
Result = TypeVar("Result")


def find_remote(source: str) -> Optional[Tuple[List[File], List[File]]]:
    """Return the files that a URL or pattern names and the files below the folders that it names, as far as recordings.

    Returns:
        None if the URL is not a pattern and names nothing.

    Raises:
        StorageError: The scheme is unknown, a package is not installed, or the server cannot be reached or refuses.
    """
    storage = _storage(source)
    storage.invalidate_cache()  # a worker lives long
    return _retried(lambda: _find(storage, source), shown(source))


def _storage(url: str) -> Any:
    """Return the fsspec file system of a URL. Settings of the user in fsspec's configuration take precedence."""
    fsspec = import_module("fsspec")
    scheme = recordings.scheme_of(url)
    given: Mapping[str, Any] = fsspec.config.conf.get(scheme, {})
    try:
        settings = {key: {**value, **given.get(key, {})} for key, value in _settings(scheme).items()}
        if scheme in ("s3", "s3a"):  # one stream: the default of ten pieces of 50 MB would all be in memory
            settings["max_concurrency"] = given.get("max_concurrency", 1)
        storage = fsspec.filesystem(scheme, **settings)
    except ImportError as err:
        raise StorageError(f"{scheme}:// needs a package that is not installed: {shown(str(err))}") from err
    except Exception as err:  # a wrong setting in fsspec's configuration, or no credentials
        if scheme not in fsspec.available_protocols():
            expected = "expected a path, s3://, gs://, https://, or another of fsspec"
            raise StorageError(f"{shown(url)}: {scheme}:// is unknown; {expected}") from err
        raise StorageError(f"{scheme}:// cannot be used: {shown(described(err))}") from err
    storage.retries = 1  # of s3fs: each attempt here is one request
    return storage


def _settings(scheme: str) -> Dict[str, Any]:
    """Return the settings of a file system for requests that fail after `STALL_S` without a byte."""
    if scheme in ("s3", "s3a"):
        retries = {"total_max_attempts": 1}
        return {"config_kwargs": {"retries": retries, "connect_timeout": STALL_S, "read_timeout": STALL_S}}
    if scheme in ("http", "https", "gs", "gcs"):
        # aiohttp limits a request to five minutes, whatever its size, and ignores proxies by default
        timeout = import_module("aiohttp").ClientTimeout(total=None, sock_connect=STALL_S, sock_read=STALL_S)
        key = "client_kwargs" if scheme.startswith("http") else "session_kwargs"
        return {key: {"timeout": timeout, "trust_env": True}}
    return {}


def _find(storage: Any, source: str) -> Optional[Tuple[List[File], List[File]]]:
    path = storage._strip_protocol(source)
    if recordings.has_wildcard(source) and (is_web(source) or not storage.exists(path)):
        start = len(re.split(r"[*?\[]", path)[0].rpartition("/")[0])
        rows = [row for row in storage.glob(path, detail=True).values() if _is_visible(row["name"][start:])]
    elif is_web(source) and not recordings.is_part_name(name_of(source)):  # its index is a file like others
        rows = [{"name": f"{path.rstrip('/')}/", "type": "directory"}]
    else:
        try:
            rows = [storage.info(path)]
        except FileNotFoundError as err:
            if _final(err) == _ABSENT:
                return None
            raise
    below: Dict[str, Mapping[str, Any]] = {}
    for folder in (row["name"] for row in rows if row["type"] == "directory"):
        found = storage.find(folder, detail=True)
        below.update((name, row) for name, row in found.items() if _is_visible(name[len(folder.rstrip("/")) :]))
    named = [row for row in rows if row["type"] != "directory"]
    return _files(storage, named), _files(storage, below.values())


def _is_visible(path: str) -> bool:
    return not any(part.startswith(".") for part in path.split("/"))


def _files(storage: Any, rows: Iterable[Mapping[str, Any]]) -> List[File]:
    files = []
    for row in rows:
        path = row["name"]
        url = path if is_web(path) else storage.unstrip_protocol(path)
        if not recordings.is_part_name(name_of(url)):
            continue
        info = storage.info(path) if is_web(url) else row  # the index of a web server has neither sizes nor versions
        if not isinstance(info.get("size"), int):
            raise StorageError(f"{shown(url)}: the server does not report its size")
        values = {key.lower(): value for key, value in info.items() if value}
        version = next((f"{key}={values[key]}" for key in _VERSIONS if key in values), "")
        files.append(File(url, info["size"], version))
    return files


# -------------------------------------------------------------------------------------------------------------- copies


@contextmanager
def local_copy(recording: Recording, spool: Optional[Path], max_bytes: int) -> Iterator[Path]:
    """Provide a recording on this machine: its own path, or that of a copy which exists while the block lasts.

    Args:
        recording: As `list_recordings` returned it.
        spool: Folder for copies on a local disk, shared by all processes of a machine; None for a temporary one.
        max_bytes: Largest total size of the copies in the folder. While there is no space, the call waits. Do not
            request a second copy in the block: two processes that do so could wait for each other.

    Raises:
        StorageError: The recording changed since it was listed, cannot be fetched, or is larger than `max_bytes`.
    """
    if not recordings.scheme_of(recording.location):
        recordings.current_files(recording)
        yield Path(recording.location)
        return
    spool = spool or Path(tempfile.gettempdir()) / f"polar_pipeline_spool_{os.getuid()}"
    with reserved(spool, recording.size, max_bytes, recording.name) as folder:
        files = recordings.current_files(recording)
        is_folder = files[0].location != recording.location
        place = folder / recording.name if is_folder else folder
        place.mkdir(exist_ok=True)
        for file in files:
            _retried(partial(_fetch, file, place / file.name), shown(file.location))
        recordings.current_files(recording)
        yield place if is_folder else place / files[0].name


@contextmanager
def reserved(spool: Path, size: int, max_bytes: int, name: str) -> Iterator[Path]:
    """Provide an empty folder in `spool` for `size` bytes, which is removed at the end, once there is space for it.

    The name of the folder states its size; a folder that a killed process left is removed by the next process
    (`temporary_folder`). A process that waits for space makes the later ones wait too.
    """
    if size > max_bytes:
        raise StorageError(f"{name} has {megabytes(size)}, and the spool takes {megabytes(max_bytes)}")
    with ExitStack() as stack:
        try:
            spool.mkdir(mode=0o700, parents=True, exist_ok=True)
            with (spool / ".lock").open("w") as queue:
                fcntl.flock(queue, fcntl.LOCK_EX)
                while size + _reserved_bytes(spool) > max_bytes:
                    time.sleep(_POLL_S)
                folder = stack.enter_context(temporary_folder(f"copy_{size}", spool))
        except OSError as err:
            raise StorageError(f"the spool {spool} cannot be used: {err.strerror}") from err
        yield folder


def _reserved_bytes(spool: Path) -> int:
    remove_leftovers(spool, _COPY)
    copies = [re.fullmatch(_COPY, path.name) for path in spool.iterdir()]
    return sum(int(copy.group(1)) for copy in copies if copy)


def _fetch(file: File, target: Path) -> None:
    received = 0

    def count(_: Optional[int], value: int, **__: object) -> None:
        nonlocal received
        received = value
        if value > file.size:  # no space is reserved for more
            raise OSError(errno.EIO, f"more than {file.size} bytes were received")

    storage = _storage(file.location)
    callback = import_module("fsspec.callbacks").Callback(hooks={"received": count})
    storage.get_file(storage._strip_protocol(file.location), str(target), callback=callback)
    if not received == file.size == target.stat().st_size:
        raise OSError(errno.EIO, f"{received} of {file.size} bytes were received")


# ------------------------------------------------------------------------------------------------------------- retries


def _retried(action: Callable[[], Result], what: str) -> Result:
    """Return the result of an action, which is tried again while that can help."""
    attempt = 0
    while True:
        try:
            return action()
        except StorageError:
            raise
        except Exception as err:
            attempt += 1
            reason = _final(err)
            if reason:
                raise StorageError(f"{what} cannot be read: {reason}") from err
            if attempt == ATTEMPTS:
                raise StorageError(f"{what} cannot be read, {attempt} times: {shown(described(_cause(err)))}") from err
        # at random, so that the workers of a cluster do not all come back at once
        time.sleep(BACKOFF_S * 2 ** (attempt - 1) * random.uniform(0.5, 1.0))


def _cause(err: BaseException) -> BaseException:
    """Return the original error; fsspec reports failures of a web server as missing files, or without a message."""
    while type(err.__cause__).__name__ not in ("NoneType", "ClientError") and (
        isinstance(err, FileNotFoundError) or not str(err)
    ):
        assert err.__cause__ is not None
        err = err.__cause__
    return err


def _final(err: BaseException) -> str:
    """Explain why another attempt would fail in the same way; "" if it may succeed."""
    err = _cause(err)
    status = getattr(err, "status", None) or getattr(err, "code", None)  # of aiohttp and gcsfs
    if isinstance(err, FileNotFoundError) or status in (404, 410):
        return _ABSENT
    if isinstance(err, PermissionError) or status in (401, 403):
        return f"access is refused ({shown(described(err))})"
    if isinstance(err, OSError) and err.errno in _DISK:
        return f"the spool cannot take it: {os.strerror(err.errno)}"
    is_lasting = isinstance(status, int) and 400 <= status < 500 and status not in _PASSING
    return shown(described(err)) if is_lasting else ""
