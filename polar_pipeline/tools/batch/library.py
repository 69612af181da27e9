"""Recordings as futures, for users with a cluster of their own."""

from __future__ import annotations

from pathlib import Path
from typing import List, Sequence, Union

from distributed import Client, Future

from polar_pipeline.tools.batch.cluster import check_workers
from polar_pipeline.tools.batch.recordings import Recording, list_recordings
from polar_pipeline.tools.batch.results import completed, make_folders, set_table_aside
from polar_pipeline.tools.batch.settings import BatchSettings, result_key
from polar_pipeline.tools.batch.units import Task, run_task


def process(
    recordings: Sequence[Union[str, Path, Recording]], folder: Path, client: Client, settings: BatchSettings
) -> List[Future]:
    """Process recordings on a cluster, each by one worker.

    Args:
        recordings: Recordings, or their places (`list_recordings`).
        folder: Where results go, as `polar-pipeline batch` writes them; every worker sees it.
        client: Client of the cluster.
        settings: Settings by which to process the recordings.

    Returns:
        A future for each recording, of its `Outcome`: one that fails says so in its outcome, and one that is complete
        already is not processed again.

    Raises:
        SourceError: A recording is not there, or a golden one is missing.
        ValueError: An option is not allowed.
        ClusterError: A worker differs from this process.
        OSError: The folder cannot be made or changed.
    """
    places = [str(row) for row in recordings if not isinstance(row, Recording)]
    listed = [row for row in recordings if isinstance(row, Recording)] + (list_recordings(places) if places else [])
    described, folder = settings.described(), folder.resolve()
    make_folders(folder)
    check_workers(client, settings, described, folder)
    tasks = [Task(settings, described, row, folder, result_key(settings, described, row)) for row in listed]
    for task in tasks:
        if completed(folder, task.recording.name, task.unit) is None:
            set_table_aside(folder, task.recording.name)
    futures: List[Future] = client.map(run_task, tasks, pure=False)
    return futures
