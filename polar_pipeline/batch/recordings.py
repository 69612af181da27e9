"""Recordings to process: which ones local folders and object storage hold, and a unique name for each."""

from __future__ import annotations

import glob
import hashlib
import json
import os
import re
import stat
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple
from urllib.parse import unquote, urlsplit

from polar_pipeline._util.text import quoted
from polar_pipeline.replay.limits import SourceError
from polar_pipeline.replay.source import SUFFIXES

METADATA = "metadata.yaml"
#: Longest name of a recording in characters; file systems allow 255 bytes.
MAX_NAME = 100
_EXPECTED = f".mcap, .db3, .bag, a rosbag2 folder, {', '.join(SUFFIXES)}"
_BAG = r"\.(?:mcap|db3)(?:\.zstd)?"
_SUFFIX = re.compile(rf"(?:{_BAG}|\.bag|{'|'.join(map(re.escape, SUFFIXES))})$", re.IGNORECASE)
#: Local recordings up to this size are identified by all their bytes, larger ones by samples.
_FULL_BYTES = 4 << 20
_SAMPLES, _SAMPLE_BYTES = 8, 64 << 10


class StorageError(SourceError):
    """A source without recordings, or a recording that cannot be fetched; the text is one short sentence."""


@dataclass(frozen=True)
class Recording:
    """One recording.

    Attributes:
        name: Unique among the recordings listed together, and safe as the name of a folder.
        location: Absolute path or URL. A URL may contain a signature: `shown` removes it for logs and tables.
        size: In bytes.
        token: Identity of the content, 64 hexadecimal digits. For local recordings up to 4 MiB it covers all bytes.
            For larger ones it covers the size, the time of modification, and eight samples of 64 KiB: reading all
            bytes would double the reads of a run. Recorders write an index with offsets and counts to the end (mcap,
            ROS 1) or a counter of changes to the beginning (sqlite3), and other changes show in the time.
            For remote files it covers the size and the etag, version or date that the server reports.
    """

    name: str
    location: str
    size: int
    token: str


class File(NamedTuple):
    """A file: its path or URL, its size in bytes, and for a remote file its version, "" if the server reports none."""

    location: str
    size: int
    version: str = ""

    @property
    def name(self) -> str:
        """The last part of the path."""
        return name_of(self.location)


class Listed(NamedTuple):
    """A recording without a name: its location, and its files."""

    location: str
    files: Sequence[File]

    def token(self) -> str:
        """Compute `Recording.token`."""
        is_folder = self.files[0].location != self.location
        if not scheme_of(self.location):
            return token_of(self.files, is_folder)
        rows = sorted([file.name if is_folder else "", file.size, file.version] for file in self.files)
        return hashlib.sha256(json.dumps(rows).encode()).hexdigest()


def list_recordings(
    sources: Sequence[str], exclude: Sequence[Path] = (), names: Optional[Mapping[str, str]] = None
) -> List[Recording]:
    """List the recordings that sources name, each once, sorted by location.

    Args:
        sources: Files; folders, with all that is below them; patterns, in which `**` stands for any folders; `@FILE`, a
            list of sources; URLs of files, folders and patterns. Hidden files in folders are skipped.
        exclude: Local folders that are not entered, such as the folder of the results.
        names: Names of an earlier run by location, which are kept.

    Raises:
        StorageError: A source has no recording, cannot be read, or is not understood.
    """
    chosen: Dict[str, Listed] = {}
    for source in _expanded(sources):
        rows = _listed(source, exclude)
        if not rows:
            raise StorageError(f"{shown(source)} holds no recording; expected {_EXPECTED}")
        for row in rows:
            key = row.location if scheme_of(row.location) else os.path.realpath(row.location)
            chosen[key] = min(row, chosen.get(key, row), key=lambda each: each.location)
    # a file that is also part of a folder's recording counts once, as the folder
    found = sorted(row for key, row in chosen.items() if parent_of(key) not in chosen)
    named = unique_names([row.location for row in found], names or {})
    return [
        Recording(named[row.location], row.location, sum(file.size for file in row.files), row.token()) for row in found
    ]


def current_files(recording: Recording) -> Sequence[File]:
    """Return the files of a recording.

    Raises:
        StorageError: The recording changed since it was listed, or cannot be read.
    """
    row = next((row for row in _listed(recording.location) if row.location == recording.location), None)
    if row is None or row.token() != recording.token:
        raise StorageError(f"{shown(recording.location)} changed since it was listed; run again")
    return row.files


def _expanded(sources: Iterable[str]) -> Iterator[str]:
    for source in sources:
        for each in read_list(Path(source[1:])) if source.startswith("@") else [source]:
            yield unquote(urlsplit(each).path) if scheme_of(each) == "file" else each


def read_list(path: Path) -> List[str]:
    """Read the sources in a list file: one per line; empty lines and lines that begin with `#` are skipped.

    Paths are relative to the folder of the list.

    Raises:
        StorageError: The file cannot be read, is not UTF-8, is empty, or names another list.
    """
    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8-sig").splitlines()]
    except (OSError, UnicodeDecodeError) as err:
        reason = err.strerror if isinstance(err, OSError) else "it is not UTF-8 text"
        raise StorageError(f"the list {path} cannot be read: {reason}") from err
    lines = [line for line in lines if line and not line.startswith("#")]
    if not lines:
        raise StorageError(f"the list {path} names no source; it has one per line")
    for line in lines:
        if line.startswith("@"):
            raise StorageError(f"the list {path} names another list, {quoted(line)}; ./{line} is a file of that name")
    return [line if scheme_of(line) else str(path.parent / Path(line).expanduser()) for line in lines]


def _listed(source: str, exclude: Sequence[Path] = ()) -> List[Listed]:
    """List the recordings of a source; a `.db3` file stands for the rosbag2 folder that it is in."""
    files = _find(source, exclude)
    if files is None:
        raise StorageError(f"{shown(source)} does not exist")
    named, below = files
    folders = {parent_of(file.location) for file in named if file.name.endswith((".db3", ".db3.zstd"))}
    folders = {folder for folder in folders if _find(f"{folder}/{METADATA}", ())}
    rows = [*_grouped(below), *(row for folder in folders for row in _listed(folder) if row.location == folder)]
    for file in named:
        is_part = parent_of(file.location) in folders and file.name.endswith((".db3", ".db3.zstd"))
        if not is_part and file.name != METADATA:
            rows.append(Listed(file.location, [file]))
    return rows


def _find(source: str, exclude: Sequence[Path]) -> Optional[Tuple[List[File], List[File]]]:
    """Find the files that a source names, and the files below the folders that it names; None if it does not exist."""
    if scheme_of(source):
        from polar_pipeline.batch.remote import find_remote  # which imports this module

        return find_remote(source)
    return _find_local(source, exclude)


# ------------------------------------------------------------------------------------------- files that form recordings


def is_file_name(name: str) -> bool:
    """Return whether a file of this name is a recording, part of a recording, or a picture."""
    return _SUFFIX.search(name) is not None


def is_part_name(name: str) -> bool:
    """Return whether a file of this name belongs to a recording, alone or with others in its folder."""
    return is_file_name(name) or name == METADATA


def recordings_in(folder: str, names: Iterable[str]) -> List[Tuple[str, List[str]]]:
    """Find the recordings among the files of one folder, as `open_source` reads them.

    Pictures count only in a folder without bags. Without `metadata.yaml`, files are one recording if they are named as
    a recorder names them, `FOLDER_NUMBER.mcap`; otherwise each file is one.

    Args:
        folder: Name of the folder, without its parents.
        names: Names of its files; hidden files are skipped.

    Returns:
        (name, its files) of each recording, sorted; the name "" stands for the folder.
    """
    names = sorted(name for name in names if not name.startswith("."))
    parts = [name for name in names if re.search(f"{_BAG}$", name)]
    pictures = [name for name in names if name.lower().endswith(SUFFIXES)]
    rows = [(name, [name]) for name in names if name.endswith(".bag")]
    if METADATA in names:
        rows.append(("", [METADATA, *parts]))
    elif parts and not pictures and _are_one_recording(folder, parts):
        rows.append(("", parts))
    else:
        rows += [(name, [name]) for name in parts]
        if pictures and not rows:
            rows.append(("", pictures))
    return sorted(rows)


def _are_one_recording(folder: str, names: Sequence[str]) -> bool:
    # a recorder that was killed leaves a file beside its incomplete compressed copy
    plain = {name[: -len(".zstd")] if name.endswith(".zstd") else name for name in names}
    parts = [re.fullmatch(re.escape(folder) + r"_(\d{1,9})\.(mcap|db3)", name) for name in plain]
    numbers = {int(part.group(1)) for part in parts if part}
    return all(parts) and len({part.group(2) for part in parts if part}) == 1 and len(numbers) == len(plain)


def _grouped(files: Iterable[File]) -> List[Listed]:
    """Find the recordings among all files of some folders."""
    folders: Dict[str, Dict[str, File]] = defaultdict(dict)
    for file in files:
        folders[parent_of(file.location)][file.name] = file
    return [
        Listed(inside[name].location if name else folder, [inside[part] for part in parts])
        for folder, inside in folders.items()
        for name, parts in recordings_in(name_of(folder if scheme_of(folder) else os.path.realpath(folder)), inside)
    ]


# --------------------------------------------------------------------------------------------------------------- local


def _find_local(source: str, exclude: Sequence[Path]) -> Optional[Tuple[List[File], List[File]]]:
    if Path(source).exists():
        matches = [source]
    elif has_wildcard(source):
        matches = glob.glob(source, recursive=True)  # noqa: PTH207 - Path.glob accepts no absolute patterns
    else:
        return None
    excluded = {os.path.realpath(str(path)) for path in exclude}
    named: List[File] = []
    below: Dict[str, File] = {}
    for match in matches:
        path = Path(match).absolute()
        path = path.resolve() if ".." in path.parts else path
        if path.is_dir():
            below.update((str(each), local_file(each)) for each in _files_below(path, excluded))
        elif is_file_name(path.name):
            named.append(local_file(path))
    return named, list(below.values())


def _files_below(folder: Path, excluded: Set[str]) -> Iterator[Path]:
    """Yield the files in and below a folder; links to folders are followed, each folder is entered once."""

    def refuse(err: OSError) -> None:
        raise StorageError(f"{quoted(err.filename)} cannot be read: {err.strerror}") from err

    entered = set(excluded)
    for place, folders, names in os.walk(str(folder), onerror=refuse, followlinks=True):
        real = os.path.realpath(place)
        if real in entered:
            folders.clear()
            continue
        entered.add(real)
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (Path(place, name) for name in names if is_part_name(name) and not name.startswith("."))


def local_file(path: Path) -> File:
    """Return a regular file of this machine."""
    try:
        info = path.stat()
    except OSError as err:
        raise StorageError(f"{quoted(str(path))} cannot be read: {err.strerror}") from err
    if not stat.S_ISREG(info.st_mode):  # a FIFO would wait for its writer
        raise StorageError(f"{quoted(str(path))} is not a regular file")
    return File(str(path), info.st_size)


def token_of(files: Sequence[File], is_folder: bool = False) -> str:
    """Compute `Recording.token` of local files."""
    digest = hashlib.sha256()
    is_small = sum(file.size for file in files) <= _FULL_BYTES
    for file in files:
        last = max(0, file.size - _SAMPLE_BYTES)
        samples = [(last * index // (_SAMPLES - 1), _SAMPLE_BYTES) for index in range(_SAMPLES)]
        try:
            time_ns = 0 if is_small else Path(file.location).stat().st_mtime_ns
            # the name of a single file does not change its content
            digest.update(json.dumps([file.name if is_folder else "", file.size, time_ns]).encode())
            with Path(file.location).open("rb") as stream:
                for offset, size in [(0, _FULL_BYTES)] if is_small else samples:
                    stream.seek(offset)
                    digest.update(stream.read(size))
        except OSError as err:
            raise StorageError(f"{quoted(file.location)} cannot be read: {err.strerror}") from err
    return digest.hexdigest()


# ------------------------------------------------------------------------------------------------------ paths and names


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


def shown(text: str) -> str:
    """Return a URL, or a text with URLs, for error messages: short, and without passwords and signatures."""
    text = re.sub(r"(://[^\s?'\"]*)\?[^\s'\")]+", r"\1?...", re.sub(r"://[^/@\s]+@", "://...@", text))
    return quoted(text)[1:-1]


def path_of(url: str) -> str:
    """Return the path of a URL, decoded, without the query. In object storage `?` and `%` are plain characters."""
    return unquote(urlsplit(url).path) if is_web(url) else url.partition("://")[2] if scheme_of(url) else url


def parent_of(location: str) -> str:
    """Return the path or URL of the folder around a file."""
    return (location.partition("?")[0] if is_web(location) else location).rpartition("/")[0]


def suffix_of(name: str) -> str:
    """Return the suffix of a recording's file, such as `.mcap.zstd`; "" for other names."""
    match = _SUFFIX.search(name)
    return match.group() if match else ""


def name_of(location: str) -> str:
    """Return the last part of a path or URL."""
    return path_of(location).rpartition("/")[2]


def unique_names(locations: Sequence[str], known: Mapping[str, str]) -> Dict[str, str]:
    """Name each recording so that a folder can have the name: ASCII letters, digits, `.`, `_`, `-`; unique in any case.

    The name is the end of the path, with as many folders as make it unique; if all folders are not enough, a hash of
    the location follows. The order of the locations does not matter.

    Args:
        locations: Different paths and URLs.
        known: Names of an earlier run by location, which are kept, so that results stay where they are.

    Returns:
        Location -> name.
    """
    names = {location: known[location] for location in locations if location in known}
    taken = {name.casefold() for name in known.values()}
    parts = {location: _components(location) for location in sorted(set(locations) - set(names))}
    depth = 1
    while parts:
        candidates = {location: _joined(row, depth, location) for location, row in parts.items()}
        counts = Counter(name.casefold() for name in candidates.values())
        for location, name in candidates.items():
            if counts[name.casefold()] == 1 and name.casefold() not in taken:
                names[location] = name
                del parts[location]
        taken |= {names[location].casefold() for location in candidates if location in names}
        depth += 1
    return names


def _components(location: str) -> List[str]:
    """Split a path or URL into folders and name, decoded, without scheme, query, and suffix of a recording."""
    host = urlsplit(location).hostname or "" if is_web(location) else ""
    parts = [part for part in f"{host}/{path_of(location)}".split("/") if part not in ("", ".", "..")] or ["recording"]
    return [*parts[:-1], _SUFFIX.sub("", parts[-1]) or parts[-1]]


def _joined(parts: Sequence[str], depth: int, location: str) -> str:
    """Join the last parts of a path into a safe name; a long or ambiguous name is cut and ends with a hash."""
    last = parts[-depth:]
    name = "_".join(filter(None, (re.sub(r"[^A-Za-z0-9._-]+", "_", part).strip("._-") for part in last)))
    digits, text = 8 * max(0, depth - len(parts)), location
    if not digits and len(name) > MAX_NAME:
        digits, text = 8, "/".join(last)
    if not digits:
        return name or "recording"
    digest = hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:digits]
    return f"{name[-(MAX_NAME - 1 - digits) :].lstrip('._-') or 'recording'}-{digest}"
