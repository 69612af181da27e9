"""Hand-written files, read within bounds: a bad file is a short error that names it, never an endless wait."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

from polar_pipeline._util.text import described, printable

#: Largest size of a file in bytes; those of this package have a few thousand.
MAX_DOCUMENT_BYTES = 1 << 20


def regular_status(path: Path) -> os.stat_result:
    """Return the status of a regular file; opening a pipe would wait for a writer, and a device may never end.

    Raises:
        OSError: There is no such file, or it cannot be looked at.
        ValueError: The file is a folder, a pipe or a device, or no file can have such a name.
    """
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise ValueError("it is not a regular file")
    return status


def read_limited(path: Path) -> bytes:
    """Return the bytes of a regular file.

    Raises:
        ValueError: It is not a regular file (but a folder, a pipe or a device), has more than `MAX_DOCUMENT_BYTES`, or
            cannot be read; the message names it.
    """
    try:
        regular_status(path)
        with path.open("rb") as stream:
            data = stream.read(MAX_DOCUMENT_BYTES + 1)  # the size that a file states may be wrong, as in /proc
        if len(data) > MAX_DOCUMENT_BYTES:
            raise ValueError(f"it has more than {MAX_DOCUMENT_BYTES} bytes")
    except (OSError, ValueError) as err:  # ValueError also of a path that no file can have
        raise unreadable(path, described(err)) from err
    return data


def unreadable(path: Path, reason: str) -> ValueError:
    """Return the error for a file that cannot be used, as one line."""
    return ValueError(f"{printable(str(path))} cannot be read: {printable(reason)}")


def read_json(path: Path) -> Any:
    """Return the content of a JSON file.

    Raises:
        ValueError: The file cannot be read or is not JSON; the message names the file.
    """
    data = read_limited(path)
    try:
        return json.loads(data)
    except (RecursionError, ValueError) as err:
        raise unreadable(path, str(err)) from err
