"""Clusters: workers on this machine, or a scheduler that runs already; and the check of every worker."""

from __future__ import annotations

import logging
import os
import platform
import subprocess
import sys
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Optional

import dask
from distributed import Client, LocalCluster
from distributed.system import MEMORY_LIMIT

from polar_pipeline._util.cpus import available_cores
from polar_pipeline.pipeline import Pipeline
from polar_pipeline.replay.job import metadata
from polar_pipeline.tools.batch import worker_setup
from polar_pipeline.tools.batch.pipelines import Arguments
from polar_pipeline.tools.batch.settings import BatchSettings
from polar_pipeline.tools.batch.units import differences

#: Memory in bytes that a worker on this machine has at least; fewer workers are started if it does not suffice.
WORKER_BYTES = 1 << 30
#: Workers that share a GPU by default.
WORKERS_OF_A_GPU = 4
#: Level of Dask's log in this process: the outcomes report lost workers.
_LOG_LEVEL = logging.CRITICAL
#: Dask's settings for workers on this machine. By default, a process samples stacks 100 times a second, and looks at
#: its event loop 50, at memory 10 and at disks and network 2 times; the scheduler keeps 1000 log entries of each kind.
_SETTINGS = {
    "distributed.worker.multiprocessing-method": "forkserver",  # a worker does not import its modules again
    "distributed.worker.profile.enabled": False,
    "distributed.admin.tick.interval": "1s",
    "distributed.worker.memory.monitor-interval": "250ms",
    "distributed.admin.system-monitor.interval": "5s",
    "distributed.admin.low-level-log-length": 100,
    "distributed.diagnostics.nvml": False,  # a worker does not start if pynvml cannot find the GPU that it is given
}
#: Seconds that the closing of a client or cluster may take.
_CLOSING_S = 10
#: Prints the number of GPUs that work with this package, in a process of its own, so that CUDA starts only there.
_COUNT_GPUS = (
    "from polar_pipeline.backends.cuda import driver\n"
    "from polar_pipeline.pipeline import backend_problem\n"
    "print(0 if backend_problem('cuda') else driver.device_count())"
)


class ClusterError(RuntimeError):
    """A worker that cannot take part, or a scheduler that does not answer."""


def gpu_names(backend: str) -> List[str]:
    """Return the GPUs to use, as `CUDA_VISIBLE_DEVICES` names them; [] for the CPU's backend or without one."""
    if backend == "cpu" or find_spec("cupy") is None:
        return []
    done = subprocess.run([sys.executable, "-c", _COUNT_GPUS], capture_output=True, text=True, check=False)
    count = int(done.stdout) if done.returncode == 0 and done.stdout.strip().isdigit() else 0
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = [name.strip() for name in visible.split(",")] if visible else [str(index) for index in range(count)]
    return names[:count]


def default_jobs(gpus: List[str]) -> int:
    """Return the number of workers on this machine: one per core as far as memory suffices; of GPUs at most a few each.

    A GPU waits for one worker, which reads, decodes and writes, three quarters of the time.
    """
    most = max(1, min(available_cores(), int(MEMORY_LIMIT // WORKER_BYTES)))
    return max(len(gpus), min(most, WORKERS_OF_A_GPU * len(gpus))) if gpus else most


def threads_of_each(jobs: int) -> int:
    """Return the CPU threads of each of `jobs` workers on this machine."""
    return max(1, available_cores() // jobs)


@contextmanager
def local_client(jobs: int, gpus: List[str], retries: int) -> Iterator[Client]:
    """Provide a client of a new cluster on this machine, which ends with the block.

    Args:
        jobs: Worker processes, each of one thread.
        gpus: Names of the GPUs that they share; empty for none.
        retries: Number of workers that may be lost with a unit before it counts as failed.
    """
    environment = {worker_setup.THREADS_VARIABLE: str(threads_of_each(jobs)), **worker_setup.MALLOC}
    with dask.config.set({**_SETTINGS, "distributed.scheduler.allowed-failures": retries}):
        cluster = LocalCluster(
            n_workers=jobs,
            threads_per_worker=1,
            memory_limit=int(MEMORY_LIMIT // jobs),
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
            worker_dashboard_address="127.0.0.1:0",
            scheduler_kwargs={"dashboard": find_spec("bokeh") is not None},
            silence_logs=_LOG_LEVEL,
            env={**environment, worker_setup.GPUS_VARIABLE: ",".join(gpus)},
            preload=[worker_setup.__name__],
        )
        try:
            with _client(cluster) as client:
                yield client
        finally:
            cluster.close(timeout=_CLOSING_S)


@contextmanager
def remote_client(scheduler: str) -> Iterator[Client]:
    """Provide a client of a cluster that runs already, by the address of its scheduler.

    Raises:
        ClusterError: The scheduler does not answer, or has no workers.
    """
    with _client(scheduler) as client:
        if not client.nthreads():
            raise ClusterError(f"the scheduler {scheduler} has no workers")
        yield client


@contextmanager
def _client(address: Any) -> Iterator[Client]:
    for handler in logging.getLogger("distributed").handlers:  # errors are raised, too
        handler.setLevel(_LOG_LEVEL)
    try:
        client = Client(address, set_as_default=False)
    except (OSError, TimeoutError) as err:
        raise ClusterError(f"the scheduler {address} does not answer: {err}") from err
    try:
        yield client
    finally:
        with suppress(Exception):  # of a scheduler that is gone
            client.close(timeout=_CLOSING_S)


def dashboard_of(client: Client) -> str:
    """Return the address of the cluster's dashboard, or a hint how to enable it."""
    try:
        link = client.dashboard_link
        has_one = client.run_on_scheduler(find_spec, "bokeh") is not None  # its address answers without it, too
    except Exception:  # noqa: BLE001 - work does not depend on it
        return "unknown"
    return str(link) if link and has_one else "none (pip install bokeh)"


def check_workers(client: Client, settings: BatchSettings, described: Mapping[str, str], folder: Path) -> None:
    """Make sure that every worker has the same version, Python and options as this process, and sees the folder.

    `described` is `BatchSettings.described` of this process.

    Raises:
        ClusterError: One does not; the message names it.
    """
    expected = {**described, "Python": _python()}
    workers = client.run(_worker_facts, dict(settings.arguments), folder, on_error="return")
    for address, facts in sorted(workers.items()):
        if isinstance(facts, BaseException):
            raise ClusterError(f"worker {address} cannot take part: {type(facts).__name__}: {facts}")
        if facts is None:
            raise ClusterError(f"worker {address} does not see the folder {folder}; it must be on a shared file system")
        difference = differences(expected, facts)
        if difference:
            raise ClusterError(f"worker {address} differs: {difference}")


def _worker_facts(arguments: Arguments, folder: Path) -> Optional[Dict[str, str]]:
    """Return what `check_workers` compares of a worker; None if it does not see the folder."""
    with Pipeline(**arguments) as pipeline:  # not kept: this runs in the thread of the worker's messages
        return {**metadata(pipeline.options), "Python": _python()} if folder.is_dir() else None


def _python() -> str:
    """Return the major and minor version of Python."""
    return ".".join(platform.python_version_tuple()[:2])
