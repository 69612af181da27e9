"""The cache of compiled kernels: what is trusted, what is refused and why, and what others see of it meanwhile."""

from __future__ import annotations

import logging
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Callable, List

import pytest

from polar_pipeline._util import cache
from polar_pipeline._util.cache import UntrustedError, cache_folder, check_cache, entry_name, read_entry, write_entry

NAME = entry_name("anything", ".cubin")
NOBODY = 65534


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that the cache lies in."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    cache._warn.cache_clear()
    return folder


@pytest.fixture
def folder(home: Path) -> Path:
    """The cache, with one entry."""
    write_entry(NAME, b"ours")
    assert read_entry(NAME) == b"ours"
    return home / "polar_pipeline"


@pytest.fixture
def give_away(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    """Makes a file or folder another user's; without root, has it look like that."""
    if os.geteuid() == 0:
        return lambda path: os.chown(path, NOBODY, NOBODY)
    given: List[int] = []

    def foreign(info: os.stat_result) -> os.stat_result:
        return os.stat_result((*info[:4], NOBODY, *info[5:])) if info.st_ino in given else info

    fstat, stat = os.fstat, Path.stat
    monkeypatch.setattr(os, "fstat", lambda descriptor: foreign(fstat(descriptor)))
    monkeypatch.setattr(Path, "stat", lambda path, **options: foreign(stat(path, **options)))
    return lambda path: given.append(stat(path).st_ino)


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o7777


def refusal() -> str:
    """Why the cache is refused; nothing is read or kept there, and nobody gets an exception."""
    with pytest.raises(UntrustedError) as caught:
        check_cache()
    write_entry(NAME, b"later")
    assert read_entry(NAME) is None
    return str(caught.value)


@pytest.mark.parametrize("umask", [0, 0o077])
def test_what_is_made_is_for_this_user_alone(umask: int, home: Path) -> None:
    before = os.umask(umask)
    try:
        write_entry(NAME, b"program")
    finally:
        os.umask(before)
    assert [mode(path) for path in (home / "polar_pipeline", home / "polar_pipeline" / NAME)] == [0o700, 0o600]
    assert read_entry(NAME) == b"program"
    assert check_cache() == home / "polar_pipeline" == cache_folder()


def test_a_folder_that_others_could_write_to_is_tightened(folder: Path) -> None:
    """What they may have put there is theirs, and not read."""
    folder.chmod(0o777)
    assert read_entry(NAME) == b"ours"
    assert mode(folder) == 0o700


@pytest.mark.parametrize("bits", [0o602, 0o620])
def test_an_entry_that_others_could_write_is_replaced(
    bits: int, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (folder / NAME).chmod(bits)
    assert read_entry(NAME) is None
    assert "could have been written by other users" in caplog.text
    write_entry(NAME, b"new")
    assert read_entry(NAME) == b"new"


def test_an_entry_of_somebody_else_is_replaced(folder: Path, give_away: Callable[[Path], None]) -> None:
    give_away(folder / NAME)
    assert read_entry(NAME) is None
    write_entry(NAME, b"new")
    assert read_entry(NAME) == b"new"


@pytest.mark.parametrize("kind", ["link", "folder", "fifo", "truncated", "empty"])
def test_what_is_no_whole_file_is_no_entry(kind: str, folder: Path, tmp_path: Path) -> None:
    entry = folder / NAME
    data = entry.read_bytes()
    entry.unlink()
    if kind == "link":
        (tmp_path / "elsewhere").write_bytes(data)
        entry.symlink_to(tmp_path / "elsewhere")
    elif kind == "folder":
        entry.mkdir()
    elif kind == "fifo":
        os.mkfifo(str(entry))
    else:
        entry.write_bytes(data[:-1] if kind == "truncated" else b"")
    assert read_entry(NAME) is None
    write_entry(NAME, b"new")
    assert read_entry(NAME) == (None if kind in ("folder", "fifo") else b"new")
    assert list(folder.iterdir()) == [entry]  # nothing half written stays, also where it cannot be replaced
    assert kind != "link" or (tmp_path / "elsewhere").read_bytes() == data


def test_a_folder_of_somebody_else_is_refused(folder: Path, give_away: Callable[[Path], None]) -> None:
    give_away(folder)
    assert refusal().startswith(f"{folder} belongs to user {NOBODY}, not to you; set XDG_CACHE_HOME")


def test_nothing_is_made_in_the_home_of_somebody_else(home: Path, give_away: Callable[[Path], None]) -> None:
    """As with sudo, which leaves HOME as it is on some systems."""
    home.mkdir()
    give_away(home)
    assert "sudo -H" in refusal()
    assert not list(home.iterdir())


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: acts as another user")
def test_what_root_has_put_there_is_read_and_not_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    place = Path(tempfile.mkdtemp())  # where another user can come
    monkeypatch.setenv("XDG_CACHE_HOME", str(place))
    write_entry(NAME, b"root's")
    for path, bits in ((place, 0o755), (place / "polar_pipeline", 0o755), (place / "polar_pipeline" / NAME, 0o644)):
        path.chmod(bits)
    os.seteuid(NOBODY)
    try:
        write_entry(NAME, b"another")
        assert read_entry(NAME) == b"root's"
        with pytest.raises(OSError, match="cannot be written"):
            check_cache()
    finally:
        os.seteuid(0)
        shutil.rmtree(place)


def test_a_relative_folder_is_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "here")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "polar_pipeline"


def test_the_reason_is_logged_once_and_without_control_characters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, give_away: Callable[[Path], None]
) -> None:
    place = tmp_path / "a\x1b[2J b"
    place.mkdir()
    give_away(place)
    monkeypatch.setenv("XDG_CACHE_HOME", str(place))
    for _ in range(3):
        refusal()
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert f"{tmp_path}/a\\x1b[2J b belongs to" in record.getMessage()


def test_a_full_disk_leaves_nothing(folder: Path) -> None:
    code = (
        "from polar_pipeline._util.cache import *; "
        f"write_entry({NAME!r}, bytes(1 << 16)); assert read_entry({NAME!r}) == b'ours'"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 10, 1 << 10)),
        stderr=subprocess.PIPE,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    assert list(folder.iterdir()) == [folder / NAME]


def test_processes_that_write_at_once_see_whole_entries(folder: Path) -> None:
    code = (
        "import sys; from polar_pipeline._util.cache import *\n"
        "for _ in range(100):\n"
        f"    write_entry({NAME!r}, sys.argv[1].encode() * 100000)\n"
        f"    assert len(set(read_entry({NAME!r}))) == 1\n"
    )
    running = [subprocess.Popen([sys.executable, "-c", code, letter], stderr=subprocess.PIPE) for letter in "abc"]
    for process in running:
        _, said = process.communicate()
        assert process.returncode == 0, said.decode()
    assert list(folder.iterdir()) == [folder / NAME]
