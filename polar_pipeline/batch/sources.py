"""Names of recordings: which files belong to one, unique folder names for their results, sources that users write."""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from pathlib import Path, PurePosixPath
from typing import Dict, List, Mapping, Sequence, Set, Tuple
from urllib.parse import unquote, urlsplit

from polar_pipeline._util.text import quoted
from polar_pipeline.replay.limits import SourceError
from polar_pipeline.replay.rosbag2 import is_bag_file
from polar_pipeline.replay.source import SUFFIXES

#: What a source can be, for errors.
EXPECTED = f".mcap, .db3, .bag, a rosbag2 folder, {', '.join(SUFFIXES)}"
METADATA = "metadata.yaml"
#: A file of a rosbag2 folder: the folder's name is put in front.
_PART = r"_(?P<number>\d{1,9})(?P<suffix>\.mcap|\.db3)(\.zstd)?"
_SUFFIX = re.compile(
    r"(?:(?:\.mcap|\.db3)(?:\.zstd)?|\.bag|" + "|".join(map(re.escape, SUFFIXES)) + ")$", re.IGNORECASE
)
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
#: Characters of the longest name; file systems take 255 bytes.
MAX_NAME = 100
_HASH_DIGITS = 8


class StorageError(SourceError):
    """Sources that hold no recordings, or a recording that cannot be fetched; the text is one short sentence."""


# ------------------------------------------------------------------------------------------------------------- sources


def scheme_of(source: str) -> str:
    """The scheme of a URL in lower case; "" for a path."""
    found = _URL.match(source)
    return found.group(1).lower() if found else ""


def shown(text: str) -> str:
    """A URL, or a text with URLs, as errors show it: short, and without passwords and signatures."""
    text = re.sub(r"(://[^\s?'\"]*)\?[^\s'\")]+", r"\1?...", re.sub(r"://[^/@\s]+@", "://...@", text))
    return quoted(text)[1:-1]


def has_wildcard(source: str) -> bool:
    """Whether a source is a pattern. In URLs of web servers, `?` begins the query."""
    return any(char in source for char in ("*" if scheme_of(source) in ("http", "https") else "*?["))


def read_list(path: Path) -> List[str]:
    """The sources in a list file: one per line; empty lines and lines that begin with `#` are skipped.

    Paths are relative to the folder of the list.

    Raises:
        StorageError: It cannot be read, is no UTF-8, is empty, or names another list.
    """
    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8-sig").splitlines()]
    except (OSError, UnicodeDecodeError) as err:
        reason = err.strerror if isinstance(err, OSError) else "it is no UTF-8 text"
        raise StorageError(f"the list {path} cannot be read: {reason}") from err
    found = [line for line in lines if line and not line.startswith("#")]
    if not found:
        raise StorageError(f"the list {path} names no source; it has one per line")
    for line in found:
        if line.startswith("@"):
            raise StorageError(f"the list {path} names another list, {quoted(line)}; ./{line} is a file of that name")
    return [line if scheme_of(line) else str(path.parent / Path(line).expanduser()) for line in found]


def is_file_name(name: str) -> bool:
    """Whether a file of this name is a recording, part of one, or a picture."""
    return _SUFFIX.search(name) is not None


def recordings_in(folder: str, names: Sequence[str]) -> List[Tuple[str, List[str]]]:
    """The recordings among the files of one folder, as `open_source` reads them.

    Pictures count only where there is nothing else. Without `metadata.yaml`, files are one recording if they are named
    as a recorder names them, `FOLDER_NUMBER.mcap`; otherwise each file is one.

    Args:
        folder: Name of the folder, without its parents.
        names: Names of its files; hidden ones are skipped.

    Returns:
        (name, its files) of each, sorted; the name "" stands for the folder.
    """
    names = sorted(name for name in names if not name.startswith("."))
    parts = [name for name in names if is_bag_file(Path(name))]
    pictures = [name for name in names if PurePosixPath(name).suffix.lower() in SUFFIXES]
    found = [(name, [name]) for name in names if name.endswith(".bag")]
    if METADATA in names:
        found.append(("", [METADATA, *parts]))
    elif parts and not pictures and _are_one_recording(folder, parts):
        found.append(("", parts))
    else:
        found += [(name, [name]) for name in parts]
        if pictures and not found:
            found.append(("", pictures))
    return sorted(found)


def _are_one_recording(folder: str, names: Sequence[str]) -> bool:
    found = [re.fullmatch(re.escape(folder) + _PART, name) for name in names]
    suffixes = {row.group("suffix") for row in found if row}
    # a recorder that was killed leaves a file beside its incomplete compressed copy
    plain = {name[: -len(".zstd")] if name.endswith(".zstd") else name for name in names}
    numbers = {int(row.group("number")) for row in found if row}
    return all(found) and len(suffixes) == 1 and len(numbers) == len(plain)


# --------------------------------------------------------------------------------------------------------------- names


def suffix_of(name: str) -> str:
    """The suffix of a recording's file, such as `.mcap.zstd`; "" for other names."""
    found = _SUFFIX.search(name)
    return found.group() if found else ""


def path_of(url: str) -> str:
    """The path of a URL, decoded; a query is none of it. In object storage `?` and `%` are characters like others."""
    scheme = scheme_of(url)
    if scheme in ("http", "https"):
        return unquote(urlsplit(url).path)
    return url[len(scheme) + len("://") :] if scheme else url


def parent_of(location: str) -> str:
    """The path or URL of the folder around a recording."""
    is_web = scheme_of(location) in ("http", "https")
    return (location.partition("?")[0] if is_web else location).rpartition("/")[0]


def components(location: str) -> List[str]:
    """The folders and the name in a path or URL, decoded, without scheme, query, and suffix of a recording."""
    host = urlsplit(location).hostname or "" if scheme_of(location) in ("http", "https") else ""
    path = f"{host}/{path_of(location)}"
    parts = [part for part in path.split("/") if part not in ("", ".", "..")] or ["recording"]
    return [*parts[:-1], _SUFFIX.sub("", parts[-1]) or parts[-1]]


def unique_names(locations: Sequence[str], known: Mapping[str, str]) -> Dict[str, str]:
    """A name for each recording that can be a folder's: ASCII letters, digits, `.`, `_`, `-`; unique in any case.

    It is the end of the path, with as many folders as make it unique; where folders are not enough, a hash of the
    location follows. The order of the locations does not matter.

    Args:
        locations: Different paths and URLs.
        known: Names of an earlier run by location, which are kept, so that results stay where they are.

    Returns:
        Location -> name.
    """
    names = {location: known[location] for location in locations if location in known}
    taken = {name.casefold() for name in known.values()}
    parts = {location: components(location) for location in sorted(set(locations) - set(names))}
    depths = dict.fromkeys(parts, 1)
    while True:
        found = {location: _joined(parts[location][-depth:]) for location, depth in depths.items()}
        deeper = [row for row in _ambiguous(found, taken) if depths[row] < len(parts[row])]
        if not deeper:
            break
        for location in deeper:
            depths[location] += 1
    digits = _HASH_DIGITS
    ambiguous = _ambiguous(found, taken)
    while ambiguous:  # a name could be another one with its hash
        for location in ambiguous:
            base = _joined(parts[location][-depths[location] :])
            found[location] = _hashed(base, location, digits)
        ambiguous, digits = _ambiguous(found, taken), digits + _HASH_DIGITS
    return {**names, **found}


def _ambiguous(names: Mapping[str, str], taken: Set[str]) -> List[str]:
    groups: Dict[str, List[str]] = defaultdict(list)
    for location, name in names.items():
        groups[name.casefold()].append(location)
    return [row for name, rows in groups.items() if len(rows) > 1 or name in taken for row in rows]


def _joined(parts: Sequence[str]) -> str:
    """Parts of a path as one safe name of at most `MAX_NAME` characters."""
    path = "/".join(parts)
    name = "_".join(filter(None, (re.sub(r"[^A-Za-z0-9._-]+", "_", part).strip("._-") for part in parts)))
    return _hashed(name, path, _HASH_DIGITS) if len(name) > MAX_NAME else name or "recording"


def _hashed(name: str, text: str, digits: int) -> str:
    """A name with a hash of a text behind it, cut at its beginning to at most `MAX_NAME` characters."""
    digest = hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:digits]
    return f"{name[-(MAX_NAME - 1 - digits) :].lstrip('._-') or 'recording'}-{digest}"
