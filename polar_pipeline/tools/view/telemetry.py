"""Switch for the telemetry of Rerun's viewer: the usage statistics that it sends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from polar_pipeline._util.documents import read_json
from polar_pipeline._util.files import replacing

#: The entry of Rerun's settings that says whether it sends statistics.
_ENABLED = "analytics_enabled"


def settings_file() -> Path:
    """Return the file in which Rerun keeps whether it sends statistics, for this user."""
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "rerun" / "analytics.json"
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "rerun" / "analytics.json"


def disable_telemetry() -> None:
    """Turn off Rerun's usage statistics for this user, as `rerun analytics disable` does.

    That command sends statistics too, but not in the first session of a user. It runs only if there are no settings.

    Raises:
        RuntimeError: The statistics cannot be turned off.
    """
    path = settings_file()
    try:
        if not path.exists():  # the command writes them
            command = [sys.executable, "-m", "rerun", "analytics", "disable"]
            done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
            if done.returncode:
                raise OSError(f"'rerun analytics disable' fails: {done.stderr.decode(errors='replace').strip()}")
        settings = read_json(path)
        if settings[_ENABLED] is not False:
            settings[_ENABLED] = False
            with replacing(path, force=True) as stream:
                stream.write(json.dumps(settings).encode())
    except (OSError, ValueError, KeyError, TypeError) as err:
        raise RuntimeError(f"Rerun's usage statistics cannot be turned off in {path}: {err}") from err
