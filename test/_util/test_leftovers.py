"""What a process left that was killed is removed by the next one; what a running one is at stays."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Callable, ContextManager, List

import pytest
import zstandard
from support import ROOT, TIMEOUT

from polar_pipeline._util.files import PARTIAL, remove_leftovers, replacing, replacing_folder

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs locks of POSIX")

#: Makes something in the folder `here`; `pause()` while it is not complete.
MAKERS = {
    "file": """
from polar_pipeline._util.files import replacing
with replacing(here / "out.mcap", force=True) as stream:
    stream.write(b"data")
    pause()
""",
    "snapshot": """
from polar_pipeline.live import snapshot
from polar_pipeline.live.parameters import make_settings
snapshot._texts = lambda _: [("parameters.yaml", "text")]
snapshot._write_frame = lambda *_: pause()
settings = make_settings({"snapshot.folder": str(here)})
snapshot.write_snapshot(snapshot.Snapshot("robot/node", b"", 0, {}, settings, None, None, ()))
""",
    "inflated": """
from polar_pipeline.recordings import bags
with bags.inflated(here / "bag.mcap.zstd", 1 << 20) as path:
    assert path.read_bytes() == b"bag"
    pause()
""",
}
START = """
import os, sys, tempfile, time
from pathlib import Path
here, is_paused = Path(sys.argv[1]), sys.argv[2] == "pause"
def pause():
    print("there", flush=True)
    if is_paused:
        sys.stdin.read()
"""


def start(folder: Path, kind: str, how: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(folder)}
    command = [sys.executable, "-c", START + MAKERS[kind], str(folder), how]
    return subprocess.Popen(command, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def incomplete(folder: Path) -> List[Path]:
    """Files and folders with temporary names."""
    return sorted(
        path for path in folder.iterdir() if path.name.endswith(".part") or path.name.startswith("polar_pipeline_")
    )


@pytest.mark.parametrize("kind", MAKERS)
def test_the_next_process_removes_what_a_killed_one_left(kind: str, tmp_path: Path) -> None:
    """The second one is still running when the third one begins: what it is at stays."""
    pytest.importorskip("yaml")
    (tmp_path / "bag.mcap.zstd").write_bytes(zstandard.compress(b"bag"))
    for is_killed in (True, False):
        process = start(tmp_path, kind, "pause")
        assert process.stdout is not None
        assert process.stdout.readline() == "there\n"
        left = incomplete(tmp_path)
        assert len(left) == 1, "the second one removed what the first one left"
        if is_killed:
            process.kill()
            process.communicate()
    with start(tmp_path, kind, "go on") as other:
        other.communicate(timeout=TIMEOUT)
    assert other.returncode == 0
    assert incomplete(tmp_path) == left
    process.communicate("", timeout=TIMEOUT)
    assert process.returncode == 0, "it could complete its own"
    assert not incomplete(tmp_path)


@pytest.mark.parametrize("name", [".out.mcap.part", ".out.mcap.mine.part", ".other.0af3.part", "out.mcap.0af3.part"])
def test_files_of_other_names_stay(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    remove_leftovers(tmp_path, rf"\.out\.mcap{PARTIAL}")
    assert (tmp_path / name).exists()


@pytest.mark.parametrize("make", [replacing, replacing_folder])
def test_an_interrupt_before_the_lock(
    make: Callable[[Path], ContextManager], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first name of a file or a folder is not one that a later process would remove."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(fcntl, "flock", interrupt)
    with pytest.raises(KeyboardInterrupt), make(tmp_path / "out"):
        pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("force", [False, True])
def test_a_file_that_another_process_wrote_meanwhile(force: bool, tmp_path: Path) -> None:
    path = tmp_path / "out.mcap"
    with ExitStack() as stack:
        if not force:
            stack.enter_context(pytest.raises(FileExistsError, match="exists already; --force replaces it"))
        stream = stack.enter_context(replacing(path, force))
        stream.write(b"mine")
        path.write_bytes(b"theirs")
    assert path.read_bytes() == (b"mine" if force else b"theirs")
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_leads_nowhere(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("kept")
    (tmp_path / ".out.mcap.0af3.part").symlink_to(tmp_path / "precious")
    os.mkfifo(tmp_path / ".out.mcap.1bf3.part")
    with replacing(tmp_path / "out.mcap") as stream:
        stream.write(b"data")
    assert (tmp_path / "precious").read_text() == "kept"


@pytest.mark.parametrize("make", [replacing, replacing_folder])
def test_nothing_is_removed_before_it_is_locked(
    make: Callable[[Path], ContextManager[object]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process looks for leftovers between the two."""
    lock = fcntl.flock

    def lock_later(descriptor: int, operation: int) -> None:
        monkeypatch.setattr(fcntl, "flock", lock)
        remove_leftovers(tmp_path, rf"\..+{PARTIAL}")
        lock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", lock_later)
    with make(tmp_path / "made"):
        remove_leftovers(tmp_path, rf"\..+{PARTIAL}")
    assert [path.name for path in tmp_path.iterdir()] == ["made"]
