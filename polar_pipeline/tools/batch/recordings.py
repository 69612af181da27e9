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
from typing import Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Set, Tuple
from urllib.parse import urlsplit

from polar_pipeline._util.errors import errors_as
from polar_pipeline._util.paths import as_path, is_hidden, natural_order
from polar_pipeline._util.text import quoted
from polar_pipeline.recordings.angle_files import EXPECTED, SUFFIXES
from polar_pipeline.recordings.bag_names import BAG_METADATA, is_bag_file, plain_name
from polar_pipeline.recordings.rawpicture import CAMERA_FILE
from polar_pipeline.tools.batch import files as paths
from polar_pipeline.tools.batch.files import File, Listing, StorageError, parent_of, scheme_of, without_secrets

#: Longest name of a recording in characters; file systems allow 255 bytes.
MAX_NAME = 100
#: Local recordings up to this size are identified by all their bytes, larger ones by samples.
_FULL_BYTES = 4 << 20
_SAMPLES, _SAMPLE_BYTES = 8, 64 << 10


@dataclass(frozen=True)
class Recording:
    """One recording.

    Attributes:
        name: Unique among the recordings listed together, and safe as the name of a folder.
        location: Absolute path or URL. A URL may contain a signature: `without_secrets` removes it for logs and tables.
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


def list_recordings(
    sources: Sequence[str], exclude: Sequence[Path] = (), names: Optional[Mapping[str, str]] = None
) -> List[Recording]:
    """List the recordings that sources name, each once, in the natural order of locations.

    Args:
        sources: Files; folders, with all that is below them; patterns, in which `**` stands for any folders; `@FILE`, a
            list of sources; URLs of files, folders and patterns. Hidden files in folders are skipped.
        exclude: Local folders that are not entered, such as the folder of the results.
        names: Names of an earlier run by location, which are kept.

    Raises:
        StorageError: A source has no recording, is not understood, or is a URL that cannot be read.
        OSError: A local file or folder cannot be read.
    """
    files: Dict[str, Sequence[File]] = {}
    for source in _expanded(sources):
        recordings = _files_of(source, exclude)
        if not recordings:
            raise StorageError(f"{without_secrets(source)} holds no recording; expected {EXPECTED}")
        files.update(recordings)
    # a recording with several paths has the first of them
    real = {place if scheme_of(place) else os.path.realpath(place): place for place in sorted(files, reverse=True)}
    # a file that is also part of a folder's recording counts once, as the folder
    places = sorted((place for path, place in real.items() if parent_of(path) not in real), key=natural_order)
    named = unique_names(places, names or {})
    return [
        Recording(named[place], place, sum(file.size for file in files[place]), _token(place, files[place]))
        for place in places
    ]


def current_files(recording: Recording) -> Sequence[File]:
    """Return the files of a recording.

    Raises:
        StorageError: The recording changed since it was listed, or its URL cannot be read.
        OSError: A local file cannot be read.
    """
    files = _files_of(recording.location).get(recording.location)
    if files is None or _token(recording.location, files) != recording.token:
        raise StorageError(f"{without_secrets(recording.location)} changed since it was listed; run again")
    return files


_local = errors_as(StorageError)(as_path)


def _expanded(sources: Iterable[str]) -> Iterator[str]:
    for source in sources:
        for each in read_list(_local(source[1:])) if source.startswith("@") else [source]:
            yield each if scheme_of(each) not in ("", "file") else str(_local(each))


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
    return [line if scheme_of(line) else str(path.parent / _local(line)) for line in lines]


def _files_of(source: str, exclude: Sequence[Path] = ()) -> Dict[str, Sequence[File]]:
    """Return location of a recording -> its files; a `.db3` file stands for the rosbag2 folder that it is in."""
    listing = _listing(source, exclude)
    if listing is None:
        raise StorageError(f"{without_secrets(source)} does not exist")
    named, below = listing
    recordings = _grouped(below)
    for file in named:
        folder = parent_of(file.location)
        if file.name.lower().endswith((".db3", ".db3.zstd")) and _listing(f"{folder}/{BAG_METADATA}"):
            recordings.update({place: parts for place, parts in _files_of(folder).items() if place == folder})
        elif file.name not in (BAG_METADATA, CAMERA_FILE):
            recordings[file.location] = [file]
    return recordings


def _listing(source: str, exclude: Sequence[Path] = ()) -> Optional[Listing]:
    """Return the files that a source names, and those below the folders that it names; None if it does not exist."""
    if scheme_of(source):
        return paths.list_remote(source)
    matches = [source]
    if not Path(source).exists():
        if not paths.has_wildcard(source):
            return None
        matches = glob.glob(source, recursive=True)  # noqa: PTH207 - Path.glob accepts no absolute patterns
    entered = {os.path.realpath(str(path)) for path in exclude}
    named: List[File] = []
    below: List[File] = []
    for match in matches:
        path = Path(match).absolute()
        path = path.resolve() if ".." in path.parts else path
        if path.is_dir():
            below += map(_local_file, _paths_below(path, entered))
        elif paths.is_part_name(path.name):
            named.append(_local_file(path))
    return named, below


def _paths_below(folder: Path, entered: Set[str]) -> Iterator[Path]:
    """Yield the files in and below a folder; links to folders are followed, each folder is entered once."""

    def refuse(err: OSError) -> None:
        raise err

    for place, folders, names in os.walk(str(folder), onerror=refuse, followlinks=True):
        real = os.path.realpath(place)
        if real in entered:
            folders.clear()
            continue
        entered.add(real)
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (Path(place, name) for name in names if paths.is_part_name(name) and not is_hidden(name))


def _local_file(path: Path) -> File:
    info = path.stat()
    if not stat.S_ISREG(info.st_mode):  # a FIFO would wait for its writer
        raise StorageError(f"{quoted(str(path))} is not a regular file")
    return File(str(path), info.st_size)


# ------------------------------------------------------------------------------------------- files that form recordings


def recordings_in(folder: str, names: Iterable[str]) -> List[Tuple[str, List[str]]]:
    """Find the recordings among the files of one folder, as `open_source` reads them.

    Pictures count only in a folder without bags, with the state of their camera. Without `metadata.yaml`, files are one
    recording if they are named as a recorder names them, `FOLDER_NUMBER.mcap`; otherwise each file is one.

    Args:
        folder: Name of the folder, without its parents.
        names: Names of its files; hidden files are skipped.

    Returns:
        (name, its files) of each recording, sorted; the name "" stands for the folder.
    """
    names = sorted((name for name in names if not is_hidden(name)), key=natural_order)
    parts = [name for name in names if is_bag_file(Path(name))]
    pictures = [name for name in names if name.lower().endswith(SUFFIXES)]
    rows = [(name, [name]) for name in names if name.lower().endswith(".bag")]
    if BAG_METADATA in names:
        rows.append(("", [BAG_METADATA, *parts]))
    elif parts and not pictures and _are_one_recording(folder, parts):
        rows.append(("", parts))
    else:
        rows += [(name, [name]) for name in parts]
        if pictures and not rows:
            rows.append(("", pictures + [name for name in names if name == CAMERA_FILE]))
    return sorted(rows, key=lambda row: natural_order(row[0]))


def _are_one_recording(folder: str, names: Sequence[str]) -> bool:
    # a recorder that was killed leaves a file beside its incomplete compressed copy
    plain = {plain_name(Path(name)) for name in names}
    parts = [re.fullmatch(re.escape(folder) + r"_(\d{1,9})\.((?i:mcap|db3))", name) for name in plain]
    numbers = {int(part.group(1)) for part in parts if part}
    return all(parts) and len({part.group(2).lower() for part in parts if part}) == 1 and len(numbers) == len(plain)


def _grouped(files: Iterable[File]) -> Dict[str, Sequence[File]]:
    """Find the recordings among all files of some folders."""
    folders: Dict[str, Dict[str, File]] = defaultdict(dict)
    for file in files:
        folders[parent_of(file.location)][file.name] = file
    return {
        inside[name].location if name else folder: [inside[part] for part in parts]
        for folder, inside in folders.items()
        for name, parts in recordings_in(
            paths.name_of(folder if scheme_of(folder) else os.path.realpath(folder)), inside
        )
    }


# ------------------------------------------------------------------------------------------------ identities and names


def _token(location: str, files: Sequence[File]) -> str:
    """Compute `Recording.token`."""
    is_small = sum(file.size for file in files) <= _FULL_BYTES
    rows = []
    for file in files:
        version = file.version if scheme_of(location) else _sampled(file, is_small)
        # the name of a single file does not change its content
        rows.append([file.name if file.location != location else "", file.size, version])
    return hashlib.sha256(json.dumps(sorted(rows)).encode()).hexdigest()


def _sampled(file: File, is_small: bool) -> str:
    """Return a digest of a local file: of all bytes, or of samples and the time of modification."""
    path, last = Path(file.location), max(0, file.size - _SAMPLE_BYTES)
    samples = [(last * index // (_SAMPLES - 1), _SAMPLE_BYTES) for index in range(_SAMPLES)]
    digest = hashlib.sha256(b"" if is_small else str(path.stat().st_mtime_ns).encode())
    with path.open("rb") as stream:
        for offset, size in [(0, _FULL_BYTES)] if is_small else samples:
            stream.seek(offset)
            digest.update(stream.read(size))
    return digest.hexdigest()


def is_name(text: str) -> bool:
    """Return whether a text can be the name of a recording, as `unique_names` gives them."""
    return len(text) <= MAX_NAME and re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]*", text) is not None


def unique_names(locations: Sequence[str], earlier: Mapping[str, str]) -> Dict[str, str]:
    """Name each recording so that a folder can have the name: ASCII letters, digits, `.`, `_`, `-`; unique in any case.

    The name is the end of the path, with as many folders as make it unique; if all folders are not enough, a hash of
    the location follows. The order of the locations does not matter.

    Args:
        locations: Different paths and URLs.
        earlier: Names of an earlier run by location, which are kept, so that results stay where they are.

    Returns:
        Location -> name.
    """
    names = {location: earlier[location] for location in locations if location in earlier}
    used = {name.casefold() for name in earlier.values()}
    depth = 0
    while len(names) < len(set(locations)):
        depth += 1
        candidates = {location: _name(location, depth) for location in locations if location not in names}
        counts = Counter(name.casefold() for name in candidates.values())
        free = {name for name, count in counts.items() if count == 1} - used
        names.update({location: name for location, name in candidates.items() if name.casefold() in free})
        used |= free
    return names


def _name(location: str, depth: int) -> str:
    """Join the last `depth` parts of a path or URL; if it has fewer, or the name is long, it ends with a hash."""
    host = urlsplit(location).hostname or "" if paths.is_web(location) else ""
    parts = [part for part in f"{host}/{paths.path_of(location)}".split("/") if part not in ("", ".", "..")] or [
        "recording"
    ]
    parts[-1] = paths.RECORDING_SUFFIX.sub("", parts[-1]) or parts[-1]
    name = "_".join(filter(None, (re.sub(r"[^A-Za-z0-9._-]+", "_", part).strip("._-") for part in parts[-depth:])))
    if depth <= len(parts) and len(name) <= MAX_NAME:
        return name or "recording"
    digits = 8 * max(1, depth - len(parts))
    digest = hashlib.sha256(location.encode("utf-8", "surrogateescape")).hexdigest()[:digits]
    return f"{name[-(MAX_NAME - 1 - digits) :].lstrip('._-') or 'recording'}-{digest}"
