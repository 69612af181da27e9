"""The limit of a process's memory: an allocation beyond it is an error, and commands run under it."""

from __future__ import annotations

import resource
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from polar_pipeline import cli
from polar_pipeline._util import memory_limit
from polar_pipeline._util.memory_limit import limited_memory
from polar_pipeline._util.progress import import_tqdm
from polar_pipeline._util.threads import thread_pool

LIMITS = resource.getrlimit(resource.RLIMIT_DATA)


def used() -> int:
    """Private writable memory of this process in bytes."""
    (line,) = (row for row in Path("/proc/self/status").read_text().splitlines() if row.startswith("VmData:"))
    return int(line.split()[1]) << 10


def test_memory_beyond_the_limit_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with limited_memory():
        limit, _ = resource.getrlimit(resource.RLIMIT_DATA)
        monkeypatch.setattr(memory_limit, "memory_limit", lambda: limit + 1)
        with limited_memory():  # a lower limit stays
            assert resource.getrlimit(resource.RLIMIT_DATA)[0] == limit
    assert 0 < limit < used() + (1 << 50)
    monkeypatch.setattr(memory_limit, "memory_limit", lambda: used() + (64 << 20))
    with pytest.raises(MemoryError), limited_memory():
        bytearray(256 << 20)
    assert resource.getrlimit(resource.RLIMIT_DATA) == LIMITS
    assert len(bytearray(256 << 20)) == 256 << 20


def test_a_container_has_less(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(memory_limit, "_CGROUP", tmp_path)
    complete = memory_limit.memory_limit()
    (tmp_path / "memory.max").write_text("2000000\n")
    (tmp_path / "memory.current").write_text("500000\n")
    contained = memory_limit.memory_limit()
    assert complete is not None
    assert contained is not None
    assert abs(contained - used() - 1_500_000) < 64 << 20 < complete - used()


def test_commands_run_under_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    raw = np.lib.format.open_memmap(str(tmp_path / "raw.npy"), "w+", np.uint16, (14000, 15000))  # takes no disk
    del raw
    np.ones((512, 512)) @ np.ones(
        (512, 512)
    )  # OpenBLAS takes memory of its own once, and ends the process if it gets none
    monkeypatch.setattr(memory_limit, "memory_limit", lambda: used() + (8 << 20))
    assert cli.main(["process", str(tmp_path / "raw.npy"), "-o", str(tmp_path), "--backend", "cpu"]) == 1
    assert "polar-pipeline: not enough memory" in capsys.readouterr().err
    assert resource.getrlimit(resource.RLIMIT_DATA) == LIMITS


@pytest.mark.timeout(60)
def test_threads_start_however_little_memory_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that got no memory before its first line kept its starter waiting, for most limits below 8 MB."""
    for left in range(0, 12 << 20, 256 << 10):
        monkeypatch.setattr(memory_limit, "memory_limit", lambda left=left: used() + left)
        with suppress(MemoryError), limited_memory(), thread_pool(2) as pool:
            assert list(pool.map(abs, (-1, -2, -3))) == [1, 2, 3]
        assert resource.getrlimit(resource.RLIMIT_DATA) == LIMITS


def test_progress_bars_start_no_thread() -> None:
    pytest.importorskip("tqdm")
    before = threading.active_count()
    with import_tqdm()(total=1) as bar:
        bar.update()
        assert threading.active_count() == before
