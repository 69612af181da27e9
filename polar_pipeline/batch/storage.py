"""Recordings to process: lists what local folders and object storage hold, and makes remote ones available locally."""

from __future__ import annotations

import glob
import hashlib
import json
import os
import stat
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Set, Tuple
from urllib.parse import unquote, urlsplit

from polar_pipeline._util.text import quoted
from polar_pipeline.batch.remote import RemoteFile, RemoteStore
from polar_pipeline.batch.sources import (
    EXPECTED,
    METADATA,
    StorageError,
    has_wildcard,
    is_file_name,
    parent_of,
    path_of,
    read_list,
    recordings_in,
    scheme_of,
    shown,
    suffix_of,
    unique_names,
)
from polar_pipeline.batch.spool import Spool
from polar_pipeline.replay.source import recording_of

#: Recordings up to this size are identified by all their bytes, larger ones by samples.
_FULL_BYTES = 4 << 20
_SAMPLES, _SAMPLE_BYTES = 8, 64 << 10
#: A local file and what the file system says about it.
_Opened = Tuple[Path, os.stat_result]


@dataclass(frozen=True)
class Recording:
    """One recording.

    Attributes:
        name: Unique among those listed together, and safe as the name of a folder.
        location: Absolute path or URL. A URL may hold a signature: `sources.shown` makes it fit for logs and tables.
        size: In bytes.
        token: Identity of the content, 64 hexadecimal digits. Of local recordings up to 4 MiB it covers all bytes.
            Of larger ones it covers size, time of modification, and eight samples of 64 KiB from begin to end, as
            reading all bytes would double what a run reads: recorders write an index with offsets and counts to the
            end (mcap, ROS 1) or a counter of changes to the beginning (sqlite3), and other changes show in the time.
            Of remote files it covers size, and etag, version or date, whichever the server gives.
    """

    name: str
    location: str
    size: int
    token: str


@dataclass(frozen=True)
class _Listed:
    location: str
    size: int
    token: str


def list_recordings(
    sources: Sequence[str], exclude: Sequence[Path] = (), names: Optional[Mapping[str, str]] = None
) -> List[Recording]:
    """The recordings that sources name, each once, sorted by location.

    Args:
        sources: Files; folders, with all that is below them; patterns, in which `**` stands for any folders; `@FILE`, a
            list of sources; URLs of files, folders and patterns. Hidden files are skipped in folders.
        exclude: Local folders that are not entered, such as the one of the results.
        names: Names of an earlier run by location, which are kept. Without them, a further recording can give another
            one a longer name.

    Raises:
        StorageError: A source holds no recording, cannot be read, or is not understood.
    """
    excluded = {os.path.realpath(str(path)) for path in exclude}
    found: Dict[str, _Listed] = {}
    for source in _expanded(sources):
        scheme = scheme_of(source)
        path = unquote(urlsplit(source).path) if scheme == "file" else source
        rows = _remote(source) if scheme not in ("", "file") else _local(path, excluded)
        if not rows:
            raise StorageError(f"{shown(source)} holds no recording; expected {EXPECTED}")
        for row in rows:
            key = row.location if scheme_of(row.location) else os.path.realpath(row.location)
            found[key] = min(row, found.get(key, row), key=lambda each: each.location)
    # of a file and the folder that it is part of, the folder
    chosen = {row.location: row for key, row in found.items() if parent_of(key) not in found}
    named = unique_names(list(chosen), names or {})
    return [Recording(named[each], each, row.size, row.token) for each, row in sorted(chosen.items())]


def _expanded(sources: Iterable[str]) -> Iterator[str]:
    for source in sources:
        if source.startswith("@"):
            yield from read_list(Path(source[1:]))
        else:
            yield source


# --------------------------------------------------------------------------------------------------------------- local


def _local(source: str, excluded: Set[str]) -> List[_Listed]:
    if Path(source).exists():
        matches = [source]
    elif has_wildcard(source):
        # Path.glob takes no absolute patterns
        matches = [path for path in glob.glob(source, recursive=True) if Path(path).is_dir() or is_file_name(path)]  # noqa: PTH207
    else:
        raise StorageError(f"{quoted(source)} does not exist")
    places: Set[Path] = set()
    for match in matches:
        path = Path(match).absolute()
        path = path.resolve() if ".." in path.parts else path
        if path.is_dir():
            places.update(_below(path, excluded))
        elif is_file_name(path.name):
            places.add(recording_of(path))
    return [_identified(str(place)) for place in places]


def _below(folder: Path, excluded: Set[str]) -> Iterator[Path]:
    """Paths of the recordings in and below a folder; links to folders are followed, each folder is entered once."""

    def refuse(err: OSError) -> None:
        raise StorageError(f"{quoted(err.filename)} cannot be read: {err.strerror}") from err

    seen = set(excluded)
    for place, folders, files in os.walk(str(folder), onerror=refuse, followlinks=True):
        real = os.path.realpath(place)
        if real in seen:
            folders[:] = []
            continue
        seen.add(real)
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name, _ in recordings_in(Path(real).name, files):
            yield Path(place, name)


def _identified(location: str) -> _Listed:
    """A local recording as it is at this time.

    Raises:
        StorageError: It cannot be read.
    """
    path = Path(location)
    try:
        files = [path]
        if path.is_dir():
            found = recordings_in(path.resolve().name, [each.name for each in path.iterdir()])
            files = [path / name for own, names in found if not own for name in names]
        rows = [(file, file.stat()) for file in files]
        if not all(stat.S_ISREG(info.st_mode) for _, info in rows):  # a FIFO would wait for its writer
            raise StorageError(f"{quoted(location)} is no regular file")
        return _Listed(location, sum(info.st_size for _, info in rows), _token(rows, path.is_dir()))
    except OSError as err:
        raise StorageError(f"{quoted(str(err.filename or location))} cannot be read: {err.strerror}") from err


def _token(rows: Sequence[_Opened], is_folder: bool) -> str:
    size = sum(info.st_size for _, info in rows)
    is_small = size <= _FULL_BYTES
    last = size - _SAMPLE_BYTES
    samples = [(last * index // (_SAMPLES - 1), _SAMPLE_BYTES) for index in range(_SAMPLES)]
    digest = hashlib.sha256()
    for file, info in rows:
        # the name of a single file does not change what is in it
        named = [file.name if is_folder else "", info.st_size, 0 if is_small else info.st_mtime_ns]
        digest.update(json.dumps(named).encode())
    for offset, length in [(0, size)] if is_small else samples:
        for piece in _pieces(rows, offset, length):
            digest.update(piece)
    return digest.hexdigest()


def _pieces(rows: Sequence[_Opened], offset: int, length: int) -> Iterator[bytes]:
    """Bytes of several files, as if they were one."""
    for path, info in rows:
        if length > 0 and offset < info.st_size:
            with path.open("rb") as stream:
                stream.seek(offset)
                piece = stream.read(min(length, info.st_size - offset))
            yield piece
            length -= len(piece)
        offset = max(offset - info.st_size, 0)


# -------------------------------------------------------------------------------------------------------------- remote


def _remote(source: str) -> List[_Listed]:
    store = RemoteStore(source)
    found = store.find(source)
    if found is None:
        raise StorageError(f"{shown(source)} does not exist")
    named, below = found
    return [*_matched(store, named), *_grouped(below)]


def _grouped(files: Iterable[RemoteFile]) -> List[_Listed]:
    """The recordings among all files of some folders."""
    folders: Dict[str, Dict[str, RemoteFile]] = {}
    for file in files:
        folders.setdefault(parent_of(file.url), {})[file.name] = file
    return [
        _described(inside[name].url if name else folder, [inside[each] for each in parts], not name)
        for folder, inside in folders.items()
        for name, parts in recordings_in(path_of(folder).rpartition("/")[2], list(inside))
    ]


def _matched(store: RemoteStore, files: Iterable[RemoteFile]) -> List[_Listed]:
    """Recordings among files that are named; a `.db3` file stands for the rosbag2 folder that it is in."""
    found: Dict[str, _Listed] = {}
    for file in files:
        folder = parent_of(file.url)
        if file.name.endswith((".db3", ".db3.zstd")) and folder not in found:
            inside = store.folder(folder)
            if METADATA in (each.name for each in inside):
                found.update((row.location, row) for row in _grouped(inside) if row.location == folder)
        if file.name != METADATA and folder not in found:
            found[file.url] = _described(file.url, [file], False)
    return list(found.values())


def _described(location: str, files: Sequence[RemoteFile], is_folder: bool) -> _Listed:
    rows = sorted([file.name if is_folder else "", file.size, file.version] for file in files)
    return _Listed(location, sum(file.size for file in files), hashlib.sha256(json.dumps(rows).encode()).hexdigest())


# -------------------------------------------------------------------------------------------------------------- copies


@contextmanager
def local_copy(recording: Recording, spool: Path, max_bytes: int) -> Iterator[Path]:
    """The path of a recording: its own, or that of a copy which exists while the block lasts.

    Args:
        recording: As `list_recordings` returned it.
        spool: Folder for copies on a local disk, shared by all processes of a machine.
        max_bytes: Largest size of all copies in it together. While there is no space, it waits. Do not ask for a second
            copy in the block: two processes that do so could wait for each other.

    Raises:
        StorageError: The recording changed since it was listed, cannot be fetched, or is larger than the spool.
    """
    location = recording.location
    if not scheme_of(location):
        _check_unchanged(recording, _identified(location))
        yield Path(location)
        return
    store = RemoteStore(location)
    with Spool(spool, max_bytes).reserve(recording.size, recording.name) as folder:
        now, files = _remote_now(store, location)
        _check_unchanged(recording, now)
        is_folder = parent_of(files[0].url) == location.rstrip("/")
        path = folder / (recording.name + ("" if is_folder else suffix_of(files[0].name)))
        _make(path if is_folder else folder)
        for file in files:
            store.fetch(file, path / file.name if is_folder else path)
        _check_unchanged(recording, _remote_now(store, location)[0])
        yield path


def _make(folder: Path) -> None:
    try:
        folder.mkdir(exist_ok=True)
    except OSError as err:
        raise StorageError(f"the spool cannot take {folder.name}: {err.strerror}") from err


def _remote_now(store: RemoteStore, location: str) -> Tuple[_Listed, List[RemoteFile]]:
    """A remote recording as it is at this time, and its files."""
    file = store.file(location)
    if file is not None:
        return _described(location, [file], False), [file]
    inside = {each.name: each for each in store.folder(location)}
    found = recordings_in(path_of(location).rpartition("/")[2], list(inside))
    files = [inside[each] for own, names in found if not own for each in names]
    if not files:
        raise StorageError(f"{shown(location)} does not exist any more")
    return _described(location, files, True), files


def _check_unchanged(recording: Recording, now: _Listed) -> None:
    if now.token != recording.token:
        raise StorageError(f"{shown(recording.location)} changed since it was listed; run again")
