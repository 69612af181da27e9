"""Names of a recorder's files."""

from __future__ import annotations

import re
from pathlib import Path, PurePath
from typing import List, Tuple

from polar_pipeline._util.paths import is_hidden

#: Name of the description of a folder.
BAG_METADATA = "metadata.yaml"
#: Suffixes of a recorder's files, and the one that is added to compressed files.
SUFFIXES = (".mcap", ".db3")
ZSTD = ".zstd"


def is_bag_file(path: Path) -> bool:
    """Return whether a file has the name of a recorder's file: `.mcap`, `.db3`, `.mcap.zstd` or `.db3.zstd`."""
    return PurePath(plain_name(path)).suffix.lower() in SUFFIXES


def bag_files(folder: Path) -> List[Path]:
    """List a recorder's files in a folder in the order of recording: by the number that their names end in.

    Hidden files are left out: systems such as macOS leave them, and they are not recordings.
    If a file exists both compressed and uncompressed, the compressed one is left out: a recorder that was killed had
    not finished it.
    """
    files = {path.name: path for path in folder.iterdir() if is_bag_file(path) and not is_hidden(path)}
    complete = [path for name, path in files.items() if not (is_zstd(path) and plain_name(path) in files)]
    return sorted(complete, key=lambda path: (numbered(path)[1], path.name))


def is_zstd(path: Path) -> bool:
    """Return whether the name of a file says that all of it is compressed."""
    return path.suffix.lower() == ZSTD


def plain_name(path: Path) -> str:
    """Return the name that a file has when it is not compressed."""
    return path.stem if is_zstd(path) else path.name


def numbered(path: Path) -> Tuple[str, int]:
    """Split the name of a recorder's file into the name without its number, and the number, or -1 without one."""
    name = PurePath(plain_name(path))
    start, number = re.fullmatch(r"(.*?)(?:_([0-9]{1,9}))?", name.stem).groups()  # type: ignore[union-attr]
    return f"{start}{name.suffix}", int(number or -1)
