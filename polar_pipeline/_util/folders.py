"""This user's folders for caches and data, as the XDG Base Directory Specification defines them.

Not platformdirs: its releases for Python 3.8 take a relative variable as a folder below the current one, where others
could put compiled programs.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def cache_folder() -> Path:
    """Where compiled kernels are kept: `$XDG_CACHE_HOME/polar_pipeline`, by default `~/.cache/polar_pipeline`.

    Raises:
        FileNotFoundError: The user has no home.
    """
    return _user_folder("XDG_CACHE_HOME", ".cache")


def data_folder() -> Path:
    """Where measured data is kept: `$XDG_DATA_HOME/polar_pipeline`, by default `~/.local/share/polar_pipeline`.

    Raises:
        FileNotFoundError: The user has no home.
    """
    return _user_folder("XDG_DATA_HOME", ".local/share")


def _user_folder(variable: str, default: str) -> Path:
    """The folder of this package in the one that an environment variable names, or by default in one of the home."""
    named = Path(os.environ.get(variable, ""))
    if named.is_absolute():  # the specification has relative paths ignored
        return named / "polar_pipeline"
    with suppress(RuntimeError, KeyError):  # the latter up to Python 3.8
        home = Path.home()
        if home.is_absolute():
            return home / default / "polar_pipeline"
    raise FileNotFoundError(f"this user has no home folder; set {variable} to a folder of your own")
