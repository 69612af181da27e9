"""`polar-pipeline batch`: interruption, a lost scheduler, a full disk, wrong usage; options of `replay`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from subprocess import DEVNULL, PIPE
from typing import Any, List

import numpy as np
import pytest

pytest.importorskip("distributed")
pytest.importorskip("pyarrow")
import dask
import psutil
from mcap.reader import make_reader
from recordings import is_writing, partial_files, record
from support import wait_for

from polar_pipeline import cli
from polar_pipeline.recordings.messages import IMAGE, encode_image
from polar_pipeline.recordings.sink import open_sink
from polar_pipeline.tools.batch import cluster
from polar_pipeline.tools.batch.results import make_folders

#: Of the command, and for each recording of a few seconds of work.
COMMAND = [sys.executable, "-m", "polar_pipeline", "batch", "--backend", "cpu", "--products", "dolp,ssim"]
LONG, SIDE = 150, 512
#: Prints the address of its scheduler; the worker is in the same process.
CLUSTER = """
from distributed import LocalCluster
options = {"n_workers": 1, "threads_per_worker": 1, "protocol": "tcp", "dashboard_address": None}
with LocalCluster(host="127.0.0.1", processes=False, **options) as cluster:
    print(cluster.scheduler_address, flush=True)
    input()
"""


def start(sources: List[Path], out: Path, *more: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*COMMAND, *map(str, sources), "-o", str(out), *more],
        stdout=PIPE,
        stderr=PIPE,
        text=True,
        start_new_session=True,
    )


def children_of(process: subprocess.Popen[str]) -> List[psutil.Process]:
    return psutil.Process(process.pid).children(recursive=True)


def workers_of(process: subprocess.Popen[str]) -> List[psutil.Process]:
    """Its grandchildren, the children of the fork server."""
    return [child for child in children_of(process) if child.ppid() != process.pid]


def completed(out: Path) -> List[str]:
    return sorted(path.parent.name for path in out.glob("recordings/*/result.json"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_batch(number: signal.Signals, tmp_path: Path) -> None:
    """A signal to every process of the terminal; the next run keeps what is complete, and only that."""
    sources = [record(tmp_path / "in" / "first.mcap", 4), record(tmp_path / "in" / "second.mcap", LONG, SIDE)]
    out = tmp_path / "out"
    with start(sources, out, "--jobs", "1") as process:
        wait_for(lambda: completed(out) == ["first"] and is_writing(out), "second recording")
        children = children_of(process)
        assert children
        os.killpg(process.pid, number)
        for child in children if number == signal.SIGKILL else ():
            child.kill()  # one that has a process group of its own
        _, said = process.communicate(timeout=60)
    assert process.returncode == (130 if number == signal.SIGINT else -number)
    assert "Traceback" not in said
    assert psutil.wait_procs(children, timeout=10)[1] == []
    assert completed(out) == ["first"]
    assert bool(partial_files(out)) == (number == signal.SIGKILL)
    before = (out / "recordings" / "first" / "result.json").stat().st_mtime_ns
    with start(sources, out, "--jobs", "1") as process:
        printed, _ = process.communicate(timeout=120)
    assert "2 ok, 0 differ, 0 failed; 1 were complete already" in printed
    assert (out / "recordings" / "first" / "result.json").stat().st_mtime_ns == before
    assert completed(out) == ["first", "second"]
    assert partial_files(out) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_workers_start(number: signal.Signals, tmp_path: Path) -> None:
    source, out = record(tmp_path / "in" / "a.mcap", LONG, SIDE), tmp_path / "out"
    with start([source], out, "--jobs", "2") as process:
        wait_for(lambda: workers_of(process), "workers")
        children = children_of(process)
        process.send_signal(number)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert f"polar-pipeline: {'interrupted' if number == signal.SIGINT else 'terminated'}" in said.splitlines()
    assert "Traceback" not in said
    assert psutil.wait_procs(children, timeout=10)[1] == []
    assert completed(out) == partial_files(out) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_waits_for_nobody(number: signal.Signals, tmp_path: Path) -> None:
    """Not for a worker that does not answer; what it was writing is removed."""
    source, out = record(tmp_path / "in" / "a.mcap", LONG, SIDE), tmp_path / "out"
    with start([source], out, "--jobs", "1") as process:
        wait_for(lambda: list(out.glob("recordings/.*.part/*")), "recording")
        (worker,) = workers_of(process)
        worker.suspend()
        before = partial_files(out)
        process.send_signal(number)
        _, said = process.communicate(timeout=60)
    assert before
    assert process.returncode == 128 + number
    assert "Traceback" not in said
    assert psutil.wait_procs([worker], timeout=10)[1] == []
    assert partial_files(out) == []


def test_a_lost_scheduler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT", "3s")
    sources = [record(tmp_path / "in" / "first.mcap", 4), record(tmp_path / "in" / "second.mcap", LONG, SIDE)]
    out = tmp_path / "out"
    with subprocess.Popen(
        [sys.executable, "-c", CLUSTER], stdin=PIPE, stdout=PIPE, stderr=DEVNULL, text=True
    ) as scheduler:
        assert scheduler.stdout
        address = scheduler.stdout.readline().strip()
        with start(sources, out, "--scheduler", address) as process:
            wait_for(lambda: completed(out) == ["first"] and is_writing(out), "second recording")
            scheduler.kill()
            _, said = process.communicate(timeout=60)
    assert process.returncode == 1
    assert f"the scheduler {address} no longer answers" in said
    assert "Traceback" not in said
    assert "first" in completed(out)
    make_folders(out)  # as the next run does
    assert partial_files(out) == []


def test_no_scheduler(tmp_path: Path, capsys: Any) -> None:
    source = record(tmp_path / "in" / "short.mcap", 4)
    with dask.config.set({"distributed.comm.timeouts.connect": "100ms"}):
        code = cli.main(["batch", str(source), "-o", str(tmp_path / "out"), "--scheduler", "tcp://127.0.0.1:9"])
    assert (code, "the scheduler tcp://127.0.0.1:9 does not answer" in capsys.readouterr().err) == (1, True)


def test_a_full_disk(tmp_path: Path) -> None:
    """The recording that does not fit is named, the other is complete; with more space only the first is processed.

    Files that must not grow fail as writes on a full disk do.
    """
    sources = [record(tmp_path / "in" / "large.mcap", 20, SIDE), record(tmp_path / "in" / "small.mcap", 4)]
    out = tmp_path / "out"
    words = [*COMMAND, *map(str, sources), "-o", str(out), "--jobs", "1"]
    limited = ["sh", "-c", 'ulimit -f 4096; exec "$@"', "sh", *words]  # 2 MiB
    done = subprocess.run(limited, text=True, capture_output=True, check=False)
    assert done.returncode == 1, done.stderr
    assert "large: failed: File too large" in done.stderr
    assert "Traceback" not in done.stderr
    assert completed(out) == ["small"]
    assert partial_files(out) == []
    done = subprocess.run(words, text=True, capture_output=True, check=True)
    assert "2 ok, 0 differ, 0 failed; 1 were complete already" in done.stdout


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--scheduler", "tcp://a:1", "--jobs", "2"], 2, "--jobs is for processes on this machine"),
        (["--scheduler", "tcp://a:1", "--retries", "2"], 2, "--retries is for processes on this machine"),
        (["--tolerance", "dolp=1"], 2, "--tolerance is for --compare"),
        (["--ssim-mode", "reference"], 2, "--ssim-mode reference and --reference DIR go together"),
        (["--ssim-stride", "99"], 2, "ssim_stride"),
        (["--rectify", "camera_info"], 2, "name its YAML file, not camera_info"),
        (["-o", "{}/in"], 2, "is an input"),
        (["--compare", "{}/out"], 2, "would replace those that they are compared with"),
        (["--compare", "{}/golden"], 1, "has no golden recording of any of the 1 recordings"),
    ],
)
def test_wrong_usage(words: List[str], code: int, said: str, tmp_path: Path, capsys: Any) -> None:
    source = record(tmp_path / "in" / "short.mcap", 4)
    (tmp_path / "golden").mkdir()
    words = [word.format(tmp_path) for word in words]
    assert cli.main(["batch", str(source.parent), "-o", str(tmp_path / "out"), *words]) == code
    assert said in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


# ----------------------------------------------------------------------------------------- the same as replay

PARAMS = """
/**:
  ros__parameters:
    co_sited: false
    ssim_mode: temporal
"""


@pytest.fixture(name="source")
def fixture_source(tmp_path: Path) -> Path:
    return record(tmp_path / "in" / "drive.mcap", 6)


def batch(source: Path, out: Path, *words: str) -> bytes:
    """The products that `batch` makes of a recording."""
    assert cli.main(["batch", str(source), "-o", str(out), "--jobs", "1", "--backend", "cpu", *words]) == 0
    return (out / "recordings" / "drive" / "products.mcap").read_bytes()


def replayed(source: Path, out: Path, *words: str) -> bytes:
    """The products that `replay` makes of it."""
    assert cli.main(["replay", str(source), "-o", str(out), "--report", "-", "--backend", "cpu", *words]) == 0
    return out.read_bytes()


def test_params(source: Path, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second batch, in which all is complete, starts no worker, and writes the page again."""
    path, out = tmp_path / "params.yaml", tmp_path / "out"
    path.write_text(PARAMS)
    words = ["--products", "dolp,ssim", "--params", str(path)]
    found = batch(source, out, *words)
    assert found == replayed(source, tmp_path / "same.mcap", *words)
    assert found != replayed(source, tmp_path / "other.mcap", *words[:2])
    (out / "index.html").unlink()
    monkeypatch.setattr(cluster, "local_client", None)
    assert batch(source, out, *words) == found
    assert "1 ok, 0 differ, 0 failed; 1 were complete already" in capsys.readouterr().out
    assert (out / "index.html").exists()
    path.write_text("/**: {ros__parameters: {co_sitted: false}}")
    assert cli.main(["batch", str(source), "-o", str(tmp_path / "none"), *words]) == 2
    assert "co_sitted" in capsys.readouterr().err


def test_reference(source: Path, tmp_path: Path) -> None:
    """Every recording has the reference of its name, here in the results of an earlier batch."""
    batch(source, tmp_path / "earlier", "--products", "intensity", "--no-co-sited")
    words = ["--products", "ssim,ssim_map", "--ssim-mode", "reference", "--reference"]
    found = batch(source, tmp_path / "out", *words, str(tmp_path / "earlier"))
    reference = tmp_path / "earlier" / "recordings" / "drive" / "products.mcap"
    assert found == replayed(source, tmp_path / "same.mcap", *words, str(reference))


def test_products_of_a_golden_recording(source: Path, tmp_path: Path) -> None:
    """Those that are compared are those that it holds, also where it was recorded in a namespace."""
    found = replayed(source, tmp_path / "replayed.mcap", "--products", "dolp")
    golden = tmp_path / "golden"
    golden.mkdir()
    with (tmp_path / "replayed.mcap").open("rb") as stream, open_sink(golden / "drive.mcap", {}) as sink:
        for schema, channel, row in make_reader(stream).iter_messages(log_time_order=False):
            sink.write(f"/front{channel.topic}", schema.name, row.log_time, row.data)
    assert batch(source, tmp_path / "out", "--compare", str(golden)) == found


def test_warnings_of_a_batch(tmp_path: Path, capfd: Any) -> None:
    """A dark recording beside a good one: listed in result, overview and at the end; failed with --strict, and back."""
    record(tmp_path / "in" / "good.mcap", 3)
    with open_sink(tmp_path / "in" / "night.mcap", {}) as sink:
        for stamp in (1, 2, 3):
            raw = np.random.default_rng(stamp).integers(0, 20, (64, 64)).astype(np.uint8)
            sink.write("/raw", IMAGE, stamp, encode_image(stamp, "cam", "mono8", raw))
    out = tmp_path / "out"
    words = ["batch", str(tmp_path / "in"), "-o", str(out), "--jobs", "1", "--backend", "cpu", "--products", "dolp"]
    for more, code, line in (
        ([], 0, "night: dark: nothing is brighter than 7.5% of full scale"),
        (["--strict"], 1, "night: failed: dark: nothing is brighter than 7.5% of full scale"),
        ([], 0, "night: dark: nothing is brighter than 7.5% of full scale"),
    ):
        assert cli.main([*words, *more]) == code
        said = capfd.readouterr()
        assert line in said.err
        assert sum("dark:" in row for row in said.err.splitlines()) == 1, "workers say nothing themselves"
        assert f"2 recordings: {2 - code} ok, 0 differ, {code} failed" in said.out
        assert "nothing is brighter than" in (out / "index.html").read_text()
        assert (out / "frames" / "recording=night" / "part-0.parquet").exists() == (code == 0)
    assert json.loads((out / "recordings" / "night" / "result.json").read_text())["warnings"].startswith("dark: ")
    assert json.loads((out / "recordings" / "good" / "result.json").read_text())["warnings"] == ""
