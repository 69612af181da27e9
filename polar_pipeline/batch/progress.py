"""Progress of a batch: bars in a terminal, a line a minute without one."""

from __future__ import annotations

import sys
import time
from typing import Any, Dict, Optional

from tqdm import tqdm

#: Seconds between two lines where there is no terminal.
LINE_S = 60.0


class Progress:
    """Shows how many recordings and frames are done, how fast, and for how long it goes on.

    The number of frames to come is estimated from the recordings' sizes, until each is known.

    Args:
        recordings: How many there are.
        size: Bytes of those that are to be processed.
        done: Recordings that are complete already.
    """

    def __init__(self, recordings: int, size: int, done: int = 0) -> None:
        self._total = recordings
        self._size = size
        self._started = self._shown = 0.0
        self._done = done
        self._frames = 0
        self._known: Dict[str, int] = {}  # recording -> images in it
        self._known_size = 0
        self._bars: Optional[Any] = None

    def start(self) -> None:
        """Work begins now."""
        self._started = self._shown = time.monotonic()
        if sys.stderr is not None and sys.stderr.isatty():
            self._bars = (
                tqdm(total=self._total, initial=self._done, unit="recording", position=0),
                tqdm(total=0, unit="frame", position=1),
            )

    def advance(self, name: str, frames: int, total: int, size: int) -> None:
        """Frames of a recording are done.

        Args:
            name: Of the recording.
            frames: How many more.
            total: Images in it.
            size: Its bytes.
        """
        if name not in self._known:
            self._known[name] = total
            self._known_size += size
        self._frames += frames

    def recording_done(self) -> None:
        """A recording is done."""
        self._done += 1
        self.show()

    def show(self) -> None:
        """Show the state, if it is time for that."""
        if self._bars is not None:
            for bar, value, total in zip(self._bars, (self._done, self._frames), (self._total, self.expected_frames)):
                bar.total = total
                bar.update(value - bar.n)
        elif time.monotonic() - self._shown >= LINE_S:
            self._shown = time.monotonic()
            print(self.line(), file=sys.stderr, flush=True)

    @property
    def expected_frames(self) -> int:
        """Frames in all, as far as is known."""
        known = sum(self._known.values())
        rest = max(0, self._size - self._known_size)
        return max(self._frames, known + (round(known * rest / self._known_size) if self._known_size else 0))

    def line(self) -> str:
        """The state as one line."""
        seconds = time.monotonic() - self._started
        rate = self._frames / seconds if seconds > 0 else 0.0
        left = (self.expected_frames - self._frames) / rate if rate > 0 else 0.0
        rest = f", about {tqdm.format_interval(left)} to go" if left > 0 else ""
        return (
            f"{self._done} of {self._total} recordings, {self._frames} of about {self.expected_frames} frames, "
            f"{rate:.1f} frames/s{rest}"
        )

    def close(self) -> None:
        """End the bars."""
        for bar in self._bars or ():
            bar.close()
