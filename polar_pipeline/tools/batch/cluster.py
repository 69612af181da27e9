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
from typing import Dict, Iterable, Iterator, Mapping, Union

import dask
from distributed import Client, LocalCluster
from distributed.system import MEMORY_LIMIT

from polar_pipeline._util.cpus import available_cores
from polar_pipeline.pipeline import Pipeline
from polar_pipeline.replay.job import metadata
from polar_pipeline.tools.batch import units
from polar_pipeline.tools.batch.pipelines import Arguments
from polar_pipeline.tools.batch.settings import BatchSettings

#: Memory in bytes of this machine, and of a GPU, that a worker has at least.
WORKER_BYTES = 1 << 30
#: Workers that share a GPU by default: more of them gain nothing, since CUDA starts them one after the other.
WORKERS_OF_A_GPU = 8
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
#: Prints the memory of each GPU that works with this package, in a process of its own, so that CUDA starts only there.
_LIST_GPUS = """
from polar_pipeline.backends.cuda import driver
from polar_pipeline.pipeline import backend_problem
for index in range(0 if backend_problem("cuda") else driver.device_count()):
    print(driver.import_cupy().cuda.runtime.getDeviceProperties(index)["totalGlobalMem"])
"""


class ClusterError(RuntimeError):
    """A worker that cannot take part, or a scheduler that does not answer."""


def usable_gpus() -> Dict[str, int]:
    """Return the bytes of memory of each GPU that works with this package, by its name in `CUDA_VISIBLE_DEVICES`."""
    done = subprocess.run([sys.executable, "-c", _LIST_GPUS], capture_output=True, text=True, check=False)
    sizes = [int(line) for line in done.stdout.split() if done.returncode == 0]
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = [name.strip() for name in visible.split(",")] if visible else [str(index) for index in range(len(sizes))]
    return dict(zip(names, sizes))


def default_jobs(gpus: Mapping[str, int]) -> int:
    """Return the number of workers on this machine: one per core, as far as the memory of machine and GPUs suffices.

    `gpus` are those of `usable_gpus` for backend `cuda`, and none for the CPU.
    """
    most = max(1, min(available_cores(), int(MEMORY_LIMIT // WORKER_BYTES)))
    of_gpus = sum(max(1, min(WORKERS_OF_A_GPU, size // WORKER_BYTES)) for size in gpus.values())
    return min(most, of_gpus or most)


@contextmanager
def local_client(jobs: int, gpus: Iterable[str], retries: int) -> Iterator[Client]:
    """Provide a client of a new cluster on this machine, which ends with the block.

    Args:
        jobs: Worker processes, each of one thread; they share the cores as threads of their pipelines.
        gpus: Names of the GPUs that they share; empty for none.
        retries: Number of workers that may be lost with a unit before it counts as failed.
    """
    threads = max(1, available_cores() // jobs)
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
            env={units.THREADS_VARIABLE: str(threads), units.GPUS_VARIABLE: ",".join(gpus)},
            preload=[units.__name__],
        )
        try:
            with client_of(cluster) as client:
                yield client
        finally:
            cluster.close(timeout=_CLOSING_S)


@contextmanager
def client_of(cluster: Union[LocalCluster, str]) -> Iterator[Client]:
    """Provide a client of a cluster that runs already; `cluster` may be the address of its scheduler.

    Raises:
        ClusterError: The scheduler does not answer, or has no workers.
    """
    for handler in logging.getLogger("distributed").handlers:  # errors are raised, too
        handler.setLevel(_LOG_LEVEL)
    try:
        client = Client(cluster, set_as_default=False)
    except (OSError, TimeoutError) as err:
        raise ClusterError(f"the scheduler {cluster} does not answer: {err}") from err
    try:
        if not client.nthreads():
            raise ClusterError(f"the scheduler {cluster} has no workers")
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
    expected = {**described, "Python": _python_version()}
    problems = client.run(_worker_problem, dict(settings.arguments), expected, folder, on_error="return")
    for address, problem in sorted(problems.items()):
        if isinstance(problem, BaseException):
            raise ClusterError(f"worker {address} cannot take part: {type(problem).__name__}: {problem}")
        if problem:
            raise ClusterError(f"worker {address} {problem}")


def _worker_problem(arguments: Arguments, expected: Mapping[str, str], folder: Path) -> str:
    """Return why this worker cannot take part; "" if it can."""
    if not folder.is_dir():
        return f"does not see the folder {folder}; it must be on a shared file system"
    with Pipeline(**arguments) as pipeline:  # not kept: this runs in the thread of the worker's messages
        facts = {**metadata(pipeline.options), "Python": _python_version()}
    difference = units.differences(expected, facts)
    return f"differs: {difference}" if difference else ""


def _python_version() -> str:
    """Return the major and minor version of Python."""
    return ".".join(platform.python_version_tuple()[:2])
