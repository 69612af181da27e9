"""Copies of remote recordings, in a folder whose size is limited."""

from __future__ import annotations

import fcntl
import os
import re
import tempfile
import time
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Iterator, Optional

from polar_pipeline._util.files import remove_leftovers, temporary_folder
from polar_pipeline.recordings.limits import megabytes
from polar_pipeline.tools.batch.files import StorageError, fetch, retried, scheme_of, without_secrets
from polar_pipeline.tools.batch.recordings import Recording, current_files

#: Default limit for the total size of the copies of recordings, in bytes.
SPOOL_BYTES = 64 << 30
#: Name of a copy's folder, with the size of the copy.
_COPY = r"polar_pipeline_copy_(\d+)_\w+"
#: Seconds between two looks at the space in the folder for copies.
_POLL_S = 0.1


@contextmanager
def local_copy(recording: Recording, spool: Optional[Path], max_bytes: int) -> Iterator[Path]:
    """Provide a recording on this machine: its own path, or that of a copy which exists while the block lasts.

    Args:
        recording: As `list_recordings` returned it.
        spool: Folder for copies on a local disk, shared by all processes of a machine; None for a temporary one.
        max_bytes: Largest total size of the copies in the folder. The call waits until the copy fits. Do not
            request a second copy in the block: two processes that do so could wait for each other.

    Raises:
        StorageError: The recording changed since it was listed, cannot be fetched, or is larger than `max_bytes`.
    """
    if not scheme_of(recording.location):
        current_files(recording)
        yield Path(recording.location)
        return
    with reserved(_folder(spool), recording.size, max_bytes, recording.name) as folder:
        files = current_files(recording)
        is_folder = files[0].location != recording.location
        place = folder / recording.name if is_folder else folder
        place.mkdir(exist_ok=True)
        for file in files:
            retried(partial(fetch, file, place / file.name), without_secrets(file.location))
        current_files(recording)
        yield place if is_folder else place / files[0].name


def _folder(spool: Optional[Path]) -> Path:
    return spool or Path(tempfile.gettempdir()) / f"polar_pipeline_spool_{os.getuid()}"


def remove_unused_copies(spool: Optional[Path]) -> None:
    """Remove the copies that killed processes left; `spool` as for `local_copy`."""
    remove_leftovers(_folder(spool), _COPY)


@contextmanager
def reserved(spool: Path, size: int, max_bytes: int, name: str) -> Iterator[Path]:
    """Provide an empty folder in `spool` for `size` bytes, which is removed at the end, once there is space for it.

    The name of the folder states its size; a folder that a killed process left is removed by the next process
    (`temporary_folder`). A process that waits for space makes the later ones wait too.
    """
    if size > max_bytes:
        raise StorageError(f"{name} has {megabytes(size)}, and the spool takes {megabytes(max_bytes)}")
    with ExitStack() as stack:
        try:
            spool.mkdir(mode=0o700, parents=True, exist_ok=True)
            with (spool / ".lock").open("w") as queue:
                fcntl.flock(queue, fcntl.LOCK_EX)
                while size + _reserved_bytes(spool) > max_bytes:
                    time.sleep(_POLL_S)
                folder = stack.enter_context(temporary_folder(f"copy_{size}", spool))
        except OSError as err:
            raise StorageError(f"the spool {spool} cannot be used: {err.strerror}") from err
        yield folder


def _reserved_bytes(spool: Path) -> int:
    remove_unused_copies(spool)
    copies = [re.fullmatch(_COPY, path.name) for path in spool.iterdir()]
    return sum(int(copy.group(1)) for copy in copies if copy)
