"""Files in object storage and on web servers, through fsspec: listing, identity, and fetching with retries."""

from __future__ import annotations

import asyncio
import errno
import os
import random
import re
import secrets
import time
from concurrent.futures import wait
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Set, Tuple, TypeVar

from polar_pipeline.batch.sources import METADATA, StorageError, has_wildcard, is_file_name, path_of, scheme_of, shown
from polar_pipeline.replay.limits import described

#: Attempts of every request, and the seconds before the second one; each further one waits twice as long.
ATTEMPTS = 4
BACKOFF_S = 0.5
#: Seconds without a byte after which a request counts as failed.
STALL_S = 60.0
#: What pip installs for a scheme.
_PACKAGES = {"s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "http": "aiohttp", "https": "aiohttp"}
#: What tells one version of an object from another, the best first.
_VERSIONS = (
    *("etag", "generation", "version_id", "content-md5", "md5hash", "md5", "last-modified", "lastmodified"),
    *("updated", "last_modified", "mtime", "modified"),
)
#: Errors of the local disk, which trying again does not help.
_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.ENAMETOOLONG)
#: HTTP states below 500 that pass: timeout, too early, too many requests.
_PASSING = (408, 425, 429)

Result = TypeVar("Result")


@dataclass(frozen=True)
class RemoteFile:
    """One object.

    Attributes:
        url: Where it is.
        name: The last part of its path.
        size: In bytes.
        version: Its etag, version or date, as the server gives it; "" if it gives none.
    """

    url: str
    name: str
    size: int
    version: str


class RemoteStore:
    """The file system of a URL.

    Args:
        url: Any URL in it.

    Raises:
        StorageError: Its scheme is unknown, or a package is not installed.
    """

    def __init__(self, url: str) -> None:
        scheme = scheme_of(url)
        self._is_web = scheme in ("http", "https")
        try:
            fsspec: Any = import_module("fsspec")
        except ImportError as err:
            raise StorageError(f"{scheme}:// needs fsspec: pip install '/path/to/polar_pipeline[batch]'") from err
        try:
            kind = fsspec.get_filesystem_class(scheme)
        except ImportError as err:
            needed = _PACKAGES.get(scheme)
            advice = f"pip install {needed}" if needed else shown(str(err))
            raise StorageError(f"{scheme}:// needs a package that is not installed: {advice}") from err
        except ValueError as err:
            raise StorageError(
                f"{shown(url)}: {scheme}:// is unknown; expected a path, s3://, gs://, https://, or another of fsspec"
            ) from err
        try:
            self._fs: Any = kind(**self._settings(fsspec, scheme))
        except Exception as err:  # a wrong setting in fsspec's configuration, or no credentials
            raise StorageError(f"{scheme}:// cannot be used: {shown(described(err))}") from err

    def _settings(self, fsspec: Any, scheme: str) -> Dict[str, Any]:
        """What is set here; fsspec's configuration of the user comes first."""
        if self._is_web:
            # aiohttp limits a request to five minutes, whatever the size, and ignores proxies by default
            # twice: while a file is fetched, the check of `_receive` comes first
            limit = import_module("aiohttp").ClientTimeout(total=None, sock_connect=STALL_S, sock_read=2 * STALL_S)
            ours: Dict[str, Any] = {"timeout": limit, "trust_env": True}
            return {"client_kwargs": {**ours, **fsspec.config.conf.get(scheme, {}).get("client_kwargs", {})}}
        if scheme in ("s3", "s3a"):
            theirs = fsspec.config.conf.get(scheme, {})
            # one stream: the default of ten pieces of 50 MB would all be in memory. botocore's own retries multiply
            own = {"retries": {"total_max_attempts": 1}, **theirs.get("config_kwargs", {})}
            return {"max_concurrency": theirs.get("max_concurrency", 1), "config_kwargs": own}
        return {}

    # --------------------------------------------------------------------------------------------------------- listing

    def find(self, source: str) -> Optional[Tuple[List[RemoteFile], List[RemoteFile]]]:
        """(files that a URL or pattern names, files below the folders that it names), of names that recordings have.

        Returns:
            None if it is no pattern and names nothing.

        Raises:
            StorageError: The server cannot be reached, or refuses.
        """
        self._fs.invalidate_cache()  # a worker lives long
        return self._retried(partial(self._find, source), shown(source))

    def _find(self, source: str) -> Optional[Tuple[List[RemoteFile], List[RemoteFile]]]:
        path = self._fs._strip_protocol(source)
        if has_wildcard(source):
            named = self._matching(path)
        else:
            row = self._info(path)
            if row is None:
                return None
            named = [row]
        folders = [row["name"] for row in named if row.get("type") == "directory"]
        below = {row["name"]: row for folder in folders for row in self._below(folder)}
        return self._files(row for row in named if row.get("type") != "directory"), self._files(below.values())

    def file(self, url: str) -> Optional[RemoteFile]:
        """A file, or None if there is none of this name.

        Raises:
            StorageError: The server cannot be reached, or refuses.
        """
        self._fs.invalidate_cache()
        row = self._retried(lambda: self._info(self._fs._strip_protocol(url)), shown(url))
        files = self._files([row]) if row and row.get("type") != "directory" else []
        return files[0] if files else None

    def folder(self, url: str) -> List[RemoteFile]:
        """The files in a folder, without those in its folders.

        Raises:
            StorageError: The server cannot be reached, or refuses.
        """
        self._fs.invalidate_cache()
        return self._retried(partial(self._folder, url), shown(url))

    def _folder(self, url: str) -> List[RemoteFile]:
        path = self._fs._strip_protocol(url)
        rows = self._ls(f"{path.rstrip('/')}/" if self._is_web else path)
        return self._files(row for row in rows if row.get("type") != "directory")

    def _ls(self, folder: str) -> List[Dict[str, Any]]:
        try:
            return self._fs.ls(folder, detail=True)
        except FileNotFoundError as err:
            if _is_absent(err):
                return []
            raise

    def _info(self, path: str) -> Optional[Dict[str, Any]]:
        if self._is_web and not is_file_name(path_of(path)):
            return {"name": f"{path.rstrip('/')}/", "type": "directory"}
        try:
            return self._fs.info(path)
        except FileNotFoundError as err:
            if _is_absent(err):
                return None
            raise

    def _below(self, folder: str) -> Iterable[Dict[str, Any]]:
        """The files in and below a folder, without hidden ones."""
        if self._is_web:
            return [row for row in self._links(folder, set()) if row["type"] != "directory"]
        rows: Iterable[Dict[str, Any]] = self._fs.find(folder, detail=True).values()
        start = len(folder.rstrip("/"))
        return [row for row in rows if row.get("type") == "file" and _is_visible(row["name"][start:])]

    def _links(self, folder: str, seen: Set[str]) -> Iterator[Dict[str, Any]]:
        """What is below a folder of a web server, by the links in its index. fsspec's own search reads all files."""
        seen.add(folder)
        for row in self._ls(folder):
            name = row["name"]
            if name in seen or not name.startswith(folder) or "?" in name or not _is_visible(name[len(folder) :]):
                continue
            yield row
            if row["type"] == "directory":
                yield from self._links(name, seen)
            seen.add(name)

    def _matching(self, pattern: str) -> List[Dict[str, Any]]:
        """What a pattern names, without hidden files and folders, as with local ones."""
        parts = re.split(r"(\*\*/|\*\*|\*)" if self._is_web else r"([*?[].*)", pattern.rstrip("/"))
        root = parts[0][: parts[0].rfind("/") + 1]
        if self._is_web:
            meaning = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*"}
            matcher = re.compile("".join(meaning.get(part, re.escape(part)) for part in parts) + "/?")
            return [row for row in self._links(root, set()) if matcher.fullmatch(row["name"])]
        found: Mapping[str, Dict[str, Any]] = self._fs.glob(pattern, detail=True)
        return [row for row in found.values() if _is_visible(row["name"][len(root) :])]

    def _files(self, rows: Iterable[Mapping[str, Any]]) -> List[RemoteFile]:
        found = []
        for row in rows:
            path = row["name"]
            url = path if self._is_web else self._fs.unstrip_protocol(path)
            name = path_of(url).rpartition("/")[2]
            if not (is_file_name(name) or name == METADATA):
                continue
            info = self._fs.info(path) if self._is_web else row  # an index has neither sizes nor versions
            if not isinstance(info.get("size"), int):
                raise StorageError(f"{shown(url)}: the server does not say its size")
            found.append(RemoteFile(url, name, info["size"], _version(info)))
        return found

    # -------------------------------------------------------------------------------------------------------- fetching

    def fetch(self, file: RemoteFile, target: Path) -> None:
        """Copy an object to a local file, which has this name once it is complete.

        Raises:
            StorageError: The server cannot be reached, refuses, or sends another number of bytes; or the disk is full.
        """
        self._retried(partial(self._fetch, file, target), shown(file.url))

    def _fetch(self, file: RemoteFile, target: Path) -> None:
        # a name of its own for each attempt: one that was cancelled may still write
        part = target.with_name(f".{secrets.token_hex(8)}.part")
        try:
            received = _Received(file.size)
            self._receive(file, part, received)
            size = part.stat().st_size
            if not size == received.count == file.size:  # s3fs sizes the file first: its size alone says nothing
                raise OSError(errno.EIO, f"{min(size, received.count)} of {file.size} bytes were received")
            part.replace(target)
        finally:
            if part.exists():
                part.unlink()

    def _receive(self, file: RemoteFile, part: Path, received: _Received) -> None:
        path = self._fs._strip_protocol(file.url)
        callback = import_module("fsspec.callbacks").Callback(hooks={"received": received.update})
        if not self._fs.async_impl:  # such as SFTP: with timeouts of its own
            self._fs.get_file(path, str(part), callback=callback)
            return
        future = asyncio.run_coroutine_threadsafe(self._fs._get_file(path, str(part), callback=callback), self._fs.loop)
        try:
            while not wait([future], timeout=max(received.time + STALL_S - time.monotonic(), 0.01)).done:
                if time.monotonic() >= received.time + STALL_S:
                    raise OSError(errno.ETIMEDOUT, f"nothing was received for {STALL_S:g} s")
            future.result()
        finally:
            future.cancel()

    # --------------------------------------------------------------------------------------------------------- retries

    def _retried(self, action: Callable[[], Result], what: str) -> Result:
        """The result of an action, which is tried again where that can help; `StorageError` where it cannot."""
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return action()
            except StorageError:
                raise
            except Exception as err:
                reason = _reason(err)
                is_final = _is_final(reason)
                if is_final or attempt == ATTEMPTS:
                    times = "" if is_final else f", {ATTEMPTS} times"
                    raise StorageError(f"{what} cannot be read{times}: {_text(reason)}") from err
            # at random, so that the workers of a cluster do not all come back at once
            time.sleep(BACKOFF_S * 2 ** (attempt - 1) * random.uniform(0.5, 1.0))
        raise AssertionError("unreachable")


class _Received:
    """Counts the bytes of one transfer.

    Attributes:
        count: Bytes so far.
        time: Of the newest ones, monotonic, in seconds.
    """

    def __init__(self, expected: int) -> None:
        self._expected = expected
        self.count = 0
        self.time = time.monotonic()

    def update(self, _: Optional[int], count: int, **__: object) -> None:
        """Called by fsspec with the bytes so far.

        Raises:
            OSError: There are more than expected, for which no space is reserved.
        """
        if count > self.count:
            self.count, self.time = count, time.monotonic()
        if count > self._expected:
            raise OSError(errno.EIO, f"more than {self._expected} bytes were received")


def _is_visible(path: str) -> bool:
    return not any(part.startswith(".") for part in path.split("/"))


def _version(row: Mapping[str, Any]) -> str:
    values = {key.lower(): value for key, value in row.items() if value}
    return next((f"{key}={values[key]}" for key in _VERSIONS if key in values), "")


def _reason(err: BaseException) -> BaseException:
    """What is behind an error: fsspec reports every failure of a web server as a file that is not there."""
    while isinstance(err, FileNotFoundError) and err.__cause__ is not None:
        err = err.__cause__
    return err


def _is_absent(err: FileNotFoundError) -> bool:
    reason = _reason(err)
    return isinstance(reason, FileNotFoundError) or _status(reason) in (404, 410)


def _status(err: BaseException) -> int:
    """The HTTP state in an error of aiohttp, botocore or gcsfs; 0 if there is none."""
    response = getattr(err, "response", None)
    found = getattr(err, "status", None) or getattr(err, "code", None)
    if isinstance(response, dict):
        found = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    return found if isinstance(found, int) else 0


def _is_final(err: BaseException) -> bool:
    """Whether another attempt would end the same way."""
    status = _status(err)
    if status:
        return 400 <= status < 500 and status not in _PASSING
    if isinstance(err, OSError) and err.errno in (*_DISK, errno.EINVAL):
        return True
    if type(err).__name__ == "NoCredentialsError":  # of botocore
        return True
    return isinstance(err, (FileNotFoundError, PermissionError, NotImplementedError, ValueError, TypeError))


def _text(err: BaseException) -> str:
    if isinstance(err, FileNotFoundError) or _status(err) in (404, 410):
        return "there is nothing of this name"
    if isinstance(err, PermissionError) or _status(err) in (401, 403):
        return f"access is refused ({shown(described(err))})"
    if isinstance(err, OSError) and err.errno in _DISK:
        return f"the spool cannot take it: {os.strerror(err.errno)}"
    return shown(described(err))
