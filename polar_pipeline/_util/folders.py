"""This user's folder for data, as the XDG Base Directory Specification defines it.

Not platformdirs: its releases for Python 3.8 take a relative variable as a folder below the current one.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def data_folder() -> Path:
    """Return the folder of measured data: `$XDG_DATA_HOME/polar_pipeline`, or `~/.local/share/polar_pipeline`.

    Raises:
        FileNotFoundError: The user has no home.
    """
    named = Path(os.environ.get("XDG_DATA_HOME", ""))
    if named.is_absolute():  # the specification has relative paths ignored
        return named / "polar_pipeline"
    with suppress(RuntimeError, KeyError):  # the latter up to Python 3.8
        home = Path.home()
        if home.is_absolute():
            return home / ".local" / "share" / "polar_pipeline"
    raise FileNotFoundError("this user has no home folder; set XDG_DATA_HOME to a folder of your own")
