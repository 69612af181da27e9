"""Answers the service `~/snapshot`: one snapshot at a time, in a thread of its own."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Optional

from std_srvs.srv import Trigger

from polar_pipeline._util.text import printable
from polar_pipeline.live.parameters import Settings
from polar_pipeline.live.problems import Logger
from polar_pipeline.live.snapshot import Snapshot, write_snapshot

#: Characters of a path in an answer.
MAX_PATH = 4096
#: Minimum seconds between two snapshots.
SNAPSHOT_PERIOD = 1.0


class SnapshotService:
    """Writes snapshots while frames go on.

    The executor's thread calls `refusal` and `take`, the main thread `close`; `_write` runs in a thread of this object.

    Args:
        logger: Takes the reason where a snapshot fails.
    """

    def __init__(self, logger: Logger) -> None:
        self._logger = logger
        self._thread = ThreadPoolExecutor(1, "polar_pipeline_snapshot")
        self._running: Optional[Any] = None  # a future
        self._due = 0.0

    def refusal(self) -> str:
        """Why no snapshot can be taken now; "" if one can."""
        if self._running is not None and not self._running.done():
            return "another snapshot is being written"
        if time.monotonic() < self._due:
            return f"the last snapshot was less than {SNAPSHOT_PERIOD:g} s ago"
        return ""

    def take(self, settings: Settings, snapshot: Snapshot) -> Any:
        """Start to write a snapshot; the future's result is the service's response, also where that fails."""
        self._due = time.monotonic() + SNAPSHOT_PERIOD
        self._running = self._thread.submit(self._write, settings, snapshot)
        return self._running

    def _write(self, settings: Settings, snapshot: Snapshot) -> Trigger.Response:
        try:
            folder = write_snapshot(settings.snapshot_folder, settings.snapshot_quota_mb * 1_000_000, snapshot)
        except Exception as err:  # noqa: BLE001
            reason = printable(f"{type(err).__name__}: {err}")
            self._logger.error(f"no snapshot: {reason}")
            return Trigger.Response(success=False, message=reason)
        return Trigger.Response(success=True, message=printable(str(folder), MAX_PATH))

    def close(self) -> None:
        """Finish the snapshot that is being written, and end the thread; safe to call twice."""
        self._thread.shutdown()
