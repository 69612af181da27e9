"""Files of recordings: their paths and URLs; and those in object storage and on web servers, through fsspec."""

from __future__ import annotations

import errno
import os
import random
import re
import time
from importlib import import_module
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, List, Mapping, NamedTuple, Optional, Tuple, TypeVar
from urllib.parse import unquote, urlsplit

from polar_pipeline._util.text import described, quoted
from polar_pipeline.recordings.angle_files import SUFFIXES
from polar_pipeline.recordings.bag_names import BAG_METADATA
from polar_pipeline.recordings.limits import SourceError
from polar_pipeline.recordings.rawpicture import CAMERA_FILE

#: Pattern of the end of the name of a file of a recording.
RECORDING_SUFFIX = re.compile(
    rf"(?:\.(?:mcap|db3)(?:\.zstd)?|\.bag|{'|'.join(map(re.escape, SUFFIXES))})$", re.IGNORECASE
)
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
_ABSENT = "there is nothing of this name"
Result = TypeVar("Result")


class StorageError(SourceError):
    """A source without recordings, or a recording that cannot be fetched; the text is one short sentence."""


class File(NamedTuple):
    """A file: its path or URL, its size in bytes, and for a remote file its version, "" if the server reports none."""

    location: str
    size: int
    version: str = ""

    @property
    def name(self) -> str:
        """The last part of the path."""
        return name_of(self.location)


#: The files that a source names, and the files below the folders that it names, as far as they belong to recordings.
Listing = Tuple[List[File], List[File]]


def is_part_name(name: str) -> bool:
    """Return whether a file of this name belongs to a recording, alone or with others in its folder."""
    return name in (BAG_METADATA, CAMERA_FILE) or RECORDING_SUFFIX.search(name) is not None


def scheme_of(source: str) -> str:
    """Return the scheme of a URL in lower case; "" for a path."""
    match = re.match(r"([A-Za-z][A-Za-z0-9+.-]*)://", source)
    return match.group(1).lower() if match else ""


def is_web(source: str) -> bool:
    """Return whether a source is on a web server."""
    return scheme_of(source) in ("http", "https")


def has_wildcard(source: str) -> bool:
    """Return whether a source is a pattern. In URLs of web servers, `?` begins the query."""
    return any(char in source for char in ("*" if is_web(source) else "*?["))


def without_secrets(text: str) -> str:
    """Return a URL, or a text with URLs, for error messages: short, and without passwords and signatures."""
    text = re.sub(r"(://[^\s?'\"]*)\?[^\s'\")]+", r"\1?...", re.sub(r"://[^/@\s]+@", "://...@", text))
    return quoted(text)[1:-1]


def path_of(url: str) -> str:
    """Return the path of a URL, decoded, without the query. In object storage `?` and `%` are plain characters."""
    return unquote(urlsplit(url).path) if is_web(url) else url.partition("://")[2] if scheme_of(url) else url


def parent_of(location: str) -> str:
    """Return the path or URL of the folder around a file."""
    return (location.partition("?")[0] if is_web(location) else location).rpartition("/")[0]


def name_of(location: str) -> str:
    """Return the last part of a path or URL."""
    return path_of(location).rpartition("/")[2]


# ------------------------------------------------------------------------------------------------------------- storage


def list_remote(source: str) -> Optional[Listing]:
    """Return the files of a URL or pattern; None if the URL is not a pattern and names nothing.

    Raises:
        StorageError: The scheme is unknown, a package is not installed, or the server cannot be reached or refuses.
    """
    storage = _storage(source)
    storage.invalidate_cache()  # a worker lives long
    return retried(lambda: _listed(storage, source), without_secrets(source))


def _storage(url: str) -> Any:
    """Return the fsspec file system of a URL. Settings of the user in fsspec's configuration take precedence."""
    fsspec = import_module("fsspec")
    scheme = scheme_of(url)
    configured: Mapping[str, Any] = fsspec.config.conf.get(scheme, {})
    try:
        settings = {key: {**value, **configured.get(key, {})} for key, value in _timeouts(scheme).items()}
        if scheme in ("s3", "s3a"):  # one stream: the default of ten pieces of 50 MB would all be in memory
            settings["max_concurrency"] = configured.get("max_concurrency", 1)
        storage = fsspec.filesystem(scheme, **settings)
    except ImportError as err:
        raise StorageError(f"{scheme}:// needs a package that is not installed: {without_secrets(str(err))}") from err
    except Exception as err:  # a wrong setting in fsspec's configuration, or no credentials
        if scheme not in fsspec.available_protocols():
            expected = "expected a path, s3://, gs://, https://, or another of fsspec"
            raise StorageError(f"{without_secrets(url)}: {scheme}:// is unknown; {expected}") from err
        raise StorageError(f"{scheme}:// cannot be used: {without_secrets(described(err))}") from err
    storage.retries = 1  # of s3fs: each attempt here is one request
    return storage


def _timeouts(scheme: str) -> Dict[str, Any]:
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


def _listed(storage: Any, source: str) -> Optional[Listing]:
    path = storage._strip_protocol(source)
    if has_wildcard(source) and (is_web(source) or not storage.exists(path)):
        start = len(re.split(r"[*?\[]", path)[0].rpartition("/")[0])
        rows = [row for row in storage.glob(path, detail=True).values() if _is_visible(row["name"][start:])]
    elif is_web(source) and not is_part_name(name_of(source)):  # its index is a file like others
        rows = [{"name": f"{path.rstrip('/')}/", "type": "directory"}]
    else:
        try:
            rows = [storage.info(path)]
        except FileNotFoundError as err:
            if _lasting_cause(err) == _ABSENT:
                return None
            raise
    below: Dict[str, Mapping[str, Any]] = {}
    for folder in (row["name"] for row in rows if row["type"] == "directory"):
        inside = storage.find(folder, detail=True)
        below.update((name, row) for name, row in inside.items() if _is_visible(name[len(folder.rstrip("/")) :]))
    return _files(storage, (row for row in rows if row["type"] != "directory")), _files(storage, below.values())


def _is_visible(path: str) -> bool:
    return not any(part.startswith(".") for part in path.split("/"))


def _files(storage: Any, rows: Iterable[Mapping[str, Any]]) -> List[File]:
    files = []
    for row in rows:
        path = row["name"]
        url = path if is_web(path) else storage.unstrip_protocol(path)
        if not is_part_name(name_of(url)):
            continue
        info = storage.info(path) if is_web(url) else row  # the index of a web server has neither sizes nor versions
        if not isinstance(info.get("size"), int):
            raise StorageError(f"{without_secrets(url)}: the server does not report its size")
        values = {key.lower(): value for key, value in info.items() if value}
        version = next((f"{key}={values[key]}" for key in _VERSIONS if key in values), "")
        files.append(File(url, info["size"], version))
    return files


def fetch(file: File, target: Path) -> None:
    """Copy a file to this machine.

    Raises:
        OSError: More or fewer bytes came than it had when it was listed, or the disk is full.
    """
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


def retried(action: Callable[[], Result], what: str) -> Result:
    """Return the result of an action, which is tried again while that can help.

    Raises:
        StorageError: The action fails; `what` names its object.
    """
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return action()
        except StorageError:
            raise
        except Exception as err:
            reason = _lasting_cause(err)
            if reason:
                raise StorageError(f"{what} cannot be read: {reason}") from err
            if attempt == ATTEMPTS:
                text = without_secrets(described(_cause(err)))
                raise StorageError(f"{what} cannot be read, {attempt} times: {text}") from err
        # at random, so that the workers of a cluster do not all come back at once
        time.sleep(BACKOFF_S * 2 ** (attempt - 1) * random.uniform(0.5, 1.0))
    raise AssertionError("the last attempt returns or raises")


def _cause(err: BaseException) -> BaseException:
    """Return the original error; fsspec reports failures of a web server as missing files, or without a message."""
    while type(err.__cause__).__name__ not in ("NoneType", "ClientError") and (
        isinstance(err, FileNotFoundError) or not str(err)
    ):
        assert err.__cause__ is not None
        err = err.__cause__
    return err


def _lasting_cause(err: BaseException) -> str:
    """Explain why another attempt would fail in the same way; "" if it may succeed."""
    err = _cause(err)
    status = getattr(err, "status", None) or getattr(err, "code", None)  # of aiohttp and gcsfs
    if isinstance(err, FileNotFoundError) or status in (404, 410):
        return _ABSENT
    if isinstance(err, PermissionError) or status in (401, 403):
        return f"access is refused ({without_secrets(described(err))})"
    if isinstance(err, OSError) and err.errno in _DISK:
        return f"the spool cannot take it: {os.strerror(err.errno)}"
    is_lasting = isinstance(status, int) and 400 <= status < 500 and status not in _PASSING
    return without_secrets(described(err)) if is_lasting else ""
