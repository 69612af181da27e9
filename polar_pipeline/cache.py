"""What was compiled once, kept on disk by everything that it depends on."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any, Optional

_DIGEST_BYTES = 32


def cache_folder() -> Path:
    """Where compiled kernels are kept: `$XDG_CACHE_HOME/polar_pipeline`.

    Where the user has no home, a folder that cannot be made: nothing is kept.
    """
    try:
        home = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    except (RuntimeError, KeyError):  # the latter up to Python 3.8
        home = Path(os.devnull)
    return home / "polar_pipeline"


def entry_path(depends_on: Any, suffix: str) -> Path:
    """The entry of what is made from `depends_on`: anything that JSON can write."""
    return cache_folder() / f"{hashlib.sha256(json.dumps(depends_on).encode()).hexdigest()}{suffix}"


def read_entry(path: Path) -> Optional[bytes]:
    """What an entry holds, None if it is not there or not whole.

    Its last bytes are the digest of the rest: loaders of programs do not look at what follows one.
    """
    try:
        data = path.read_bytes()
    except OSError:
        return None
    content, digest = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    return content if hashlib.sha256(content).digest() == digest else None


def write_entry(path: Path, content: bytes) -> None:
    """Keep an entry; other processes see it whole or not at all. A folder that cannot be written costs time only."""
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=str(path.parent)) as folder:
            whole = Path(folder, path.name)
            whole.write_bytes(content + hashlib.sha256(content).digest())
            whole.replace(path)
