"""Paths as users write them, and the order of file names."""

from __future__ import annotations

import re
from pathlib import Path
from typing import List, Tuple, Union
from urllib.parse import unquote

from polar_pipeline._util.text import printable, quoted

#: A path, as public functions accept it.
AnyPath = Union[str, Path]
#: A URL of a file on this machine; a `Path` of one has lost two slashes.
_FILE_URL = re.compile(r"file:(?://([^/]*))?(/.*)", re.IGNORECASE | re.DOTALL)


def as_path(name: AnyPath) -> Path:
    """Return a path, with `~` replaced by a user's home; `name` may also be a URL such as `file:///data/a.mcap`.

    Raises:
        ValueError: The URL names another machine, or the user of `~` is unknown.
    """
    url = _FILE_URL.fullmatch(str(name))
    if url is not None:
        host, place = url.groups()
        if host not in (None, "", "localhost"):
            raise ValueError(f"a URL of a file on this machine is written file:///data/a.mcap, got {quoted(str(name))}")
        return Path(unquote(place))
    try:
        return Path(name).expanduser()
    except (RuntimeError, KeyError) as err:  # the latter up to Python 3.8
        raise ValueError(f"no home is known for {printable(str(name))}") from err


def natural_order(name: AnyPath) -> Tuple[List[Union[str, int]], str]:
    """Return a key that sorts names by the numbers in them: `frame_2` before `frame_10`."""
    parts = re.split("([0-9]+)", str(name))
    return [int(part) if index % 2 else part for index, part in enumerate(parts)], str(name)


def is_hidden(path: AnyPath) -> bool:
    """Return whether a file is hidden, as the `._x.png` that macOS writes beside `x.png` on foreign disks."""
    return Path(path).name.startswith(".")
