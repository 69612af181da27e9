"""Recordings as futures, for those who run a cluster of their own."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import List, Sequence, Union

from distributed import Client, Future

from polar_pipeline.batch.cluster import check_workers
from polar_pipeline.batch.results import make_folders
from polar_pipeline.batch.settings import BatchSettings, unit_of
from polar_pipeline.batch.storage import Recording, list_recordings
from polar_pipeline.batch.units import Task, recording_unit


def process(
    recordings: Sequence[Union[str, Path, Recording]], folder: Path, client: Client, settings: BatchSettings
) -> List[Future]:
    """Process recordings on a cluster; each is processed as one.

    Args:
        recordings: Recordings, or where they are (`list_recordings`).
        folder: Where results go, as `polar-pipeline batch` writes them; every worker sees it.
        client: Of the cluster.
        settings: How to process them.

    Returns:
        A future for each recording, of its `Outcome`: one that fails says so in its outcome, and one that is complete
        already is not processed again.

    Raises:
        SourceError: A recording is not there, or a golden one is missing.
        ValueError: An option is not allowed.
        WorkerError: A worker differs from this process.
        OSError: The folder cannot be made.
    """
    places = [str(row) for row in recordings if not isinstance(row, Recording)]
    listed = [row for row in recordings if isinstance(row, Recording)] + (list_recordings(places) if places else [])
    described, folder = settings.described(), folder.resolve()
    make_folders(folder)
    check_workers(client, settings, described, folder)
    run = secrets.token_hex(8)
    futures = []
    for recording in listed:
        task = Task(settings, described, recording, folder, unit_of(settings, described, recording), run)
        futures.append(client.submit(recording_unit, task, pure=False))
    return futures
