"""A folder for copies of remote recordings, whose total size is bounded across all processes of a machine.

A reservation is a folder in it, whose name holds its number and its bytes, and on which its process has a lock. The
lock ends with the process, however that ends; the next one removes what it left.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
import shutil
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Iterator, List, Tuple

from polar_pipeline._util.files import fcntl, hold, remove_leftovers
from polar_pipeline.batch.sources import StorageError
from polar_pipeline.replay.limits import megabytes

#: Most that copies of recordings take together, unless another limit is given.
SPOOL_BYTES = 64 << 30
_LOG = logging.getLogger(__name__)
_ENTRY = r"copy_(\d+)_(\d+)_[0-9a-f]{8}"
_LOCK = ".lock"
#: Seconds between two looks at whether there is space.
_POLL_S = 0.1


class Spool:
    """A bounded folder for copies.

    Reservations are granted in the order of request, so that a large one is not passed by small ones forever.

    Args:
        folder: Where the copies are, on a local disk; made if it is not there. Nothing else in it is touched.
        max_bytes: Largest size of all copies. All processes that share the folder should give the same.

    Raises:
        StorageError: The folder cannot be made, or this system has no file locks.
    """

    def __init__(self, folder: Path, max_bytes: int) -> None:
        if fcntl is None:
            raise StorageError("copies of remote recordings need file locks, which this system does not have")
        self._folder = folder
        self._max_bytes = max_bytes
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as err:
            raise StorageError(f"the spool {folder} cannot be made: {err.strerror}") from err

    @contextmanager
    def reserve(self, size: int, name: str) -> Iterator[Path]:
        """An empty folder for files of `size` bytes together, removed with all that is in it when the block ends.

        It waits until other reservations leave enough space. Do not request a second one in the block: two processes
        that do so could wait for each other.

        Args:
            size: Bytes to reserve.
            name: Of the recording, for errors.

        Raises:
            StorageError: It is larger than the spool, or the spool cannot be used.
        """
        if size > self._max_bytes:
            raise StorageError(f"{name} has {megabytes(size)}, and the spool takes {megabytes(self._max_bytes)}")
        with ExitStack() as stack:
            try:
                number, entry = self._request(size, stack)
                self._wait(number, size, name)
            except OSError as err:
                raise StorageError(f"the spool {self._folder} cannot be used: {err.strerror}") from err
            yield entry

    def _request(self, size: int, stack: ExitStack) -> Tuple[int, Path]:
        """A new reservation behind all others, locked until the stack is closed, when it is removed."""
        with self._locked():
            number = max((row[0] for row in self._entries()), default=0) + 1
            entry = self._folder / f"copy_{number:012d}_{size}_{secrets.token_hex(4)}"
            entry.mkdir(mode=0o700)
            descriptor = os.open(str(entry), os.O_RDONLY)
            stack.callback(os.close, descriptor)  # the last to be called: the lock lasts until all is removed
            stack.callback(shutil.rmtree, str(entry), ignore_errors=True)
            hold(descriptor, entry)
        return number, entry

    def _wait(self, number: int, size: int, name: str) -> None:
        """Wait until this reservation and those before it, granted or not, fit.

        All granted ones then fit: the one with the highest number was granted when it and all before it did.
        """
        is_logged = False
        while True:
            with self._locked():
                remove_leftovers(self._folder, _ENTRY)
                before = sum(row[1] for row in self._entries() if row[0] < number)
            if before + size <= self._max_bytes:
                return
            if not is_logged:
                _LOG.info("%s waits for space in the spool %s", name, self._folder)
                is_logged = True
            time.sleep(_POLL_S)

    def _entries(self) -> List[Tuple[int, int]]:
        """(number, bytes) of the reservations."""
        found = filter(None, map(re.compile(_ENTRY).fullmatch, os.listdir(str(self._folder))))  # noqa: PTH208
        return [(int(row.group(1)), int(row.group(2))) for row in found]

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """A block that only one thread of one process at a time is in."""
        descriptor = os.open(str(self._folder / _LOCK), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)
