"""Files of recordings: their paths and URLs, and which names they have."""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from polar_pipeline._util.text import quoted
from polar_pipeline.recordings.bag_names import BAG_METADATA
from polar_pipeline.recordings.limits import SourceError
from polar_pipeline.recordings.rawpicture import CAMERA_FILE
from polar_pipeline.recordings.source import SUFFIXES

#: Pattern of the end of the name of a file of a recording.
RECORDING_SUFFIX = re.compile(
    rf"(?:\.(?:mcap|db3)(?:\.zstd)?|\.bag|{'|'.join(map(re.escape, SUFFIXES))})$", re.IGNORECASE
)


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


def name_of(location: str) -> str:
    """Return the last part of a path or URL."""
    return path_of(location).rpartition("/")[2]
