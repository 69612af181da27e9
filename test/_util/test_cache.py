"""The cache of compiled kernels: what is trusted, what is refused and why, and what others see of it meanwhile."""

from __future__ import annotations

import grp
import logging
import os
import pwd
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Callable, Iterator, List

import pytest

from polar_pipeline._util import cache
from polar_pipeline._util.cache import (
    UntrustedError,
    cache_folder,
    check_cache,
    entry_name,
    private_folder,
    read_entry,
    write_entry,
)

NAME = entry_name("anything", ".so")
NOBODY = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: gives files to another user")
Give = Callable[[Path], None]


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


@pytest.fixture(params=["as reported", pytest.param("really", marks=needs_root)])
def give_away(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Give:
    """Makes a file, folder or link another user's, or has it look like that."""
    if request.param == "really":
        return lambda path: os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
    given: List[int] = []
    original = os.fstat

    def foreign(descriptor: int) -> os.stat_result:
        info = original(descriptor)
        return os.stat_result((*info[:4], NOBODY, *info[5:])) if info.st_ino in given else info

    monkeypatch.setattr(os, "fstat", foreign)
    return lambda path: given.append(path.lstat().st_ino)


@pytest.fixture
def nobody() -> Iterator[Path]:
    """Be another user, who has nothing; the folder is root's, and can be read."""
    place = Path(tempfile.mkdtemp())
    place.chmod(0o755)
    os.seteuid(NOBODY)
    yield place
    os.seteuid(0)
    shutil.rmtree(str(place))


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o7777


def refusal() -> str:
    """Why the cache is refused; nothing is read or kept there, and nobody gets an exception."""
    with pytest.raises(UntrustedError) as caught:
        check_cache()
    write_entry(NAME, b"later")
    assert read_entry(NAME) is None
    return str(caught.value)


def planted(folder: Path, content: bytes = b"theirs") -> Path:
    """A folder that looks like the cache, with an entry that is whole."""
    before = os.environ["XDG_CACHE_HOME"]
    os.environ["XDG_CACHE_HOME"] = str(folder)
    write_entry(NAME, content)
    os.environ["XDG_CACHE_HOME"] = before
    return folder / "polar_pipeline" / NAME


# -------------------------------------------------------------------------------------------------------- what is made


@pytest.mark.parametrize("umask", [0, 0o002, 0o022, 0o077])
def test_what_is_made_is_for_this_user_alone(umask: int, home: Path) -> None:
    before = os.umask(umask)
    try:
        write_entry(NAME, b"program")
    finally:
        os.umask(before)
    assert [mode(path) for path in (home, home / "polar_pipeline", home / "polar_pipeline" / NAME)] == [
        *(0o700, 0o700, 0o600)
    ]
    assert read_entry(NAME) == b"program"
    assert check_cache() == home / "polar_pipeline" == cache_folder()


def test_what_earlier_versions_left_is_tightened(folder: Path) -> None:
    folder.chmod(0o755)
    (folder / NAME).chmod(0o644)
    assert read_entry(NAME) == b"ours"
    assert (mode(folder), mode(folder / NAME)) == (0o700, 0o600)


def test_descriptors_are_closed(folder: Path) -> None:
    (folder / "link").symlink_to("nowhere")
    before = len(list(Path("/proc/self/fd").iterdir()))
    for name in (NAME, "missing", "link"):
        read_entry(name)
        write_entry(NAME, b"again")
    check_cache()
    folder.chmod(0o777)
    refusal()
    assert len(list(Path("/proc/self/fd").iterdir())) == before


# -------------------------------------------------------------------------------------------------- what is not trusted


@pytest.mark.parametrize("bits", [0o602, 0o666, 0o646])
def test_an_entry_that_others_could_write_is_replaced(
    bits: int, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (folder / NAME).chmod(bits)
    assert read_entry(NAME) is None
    assert "could have been written by other users" in caplog.text
    write_entry(NAME, b"new")
    assert read_entry(NAME) == b"new"
    assert mode(folder / NAME) == 0o600


def test_an_entry_of_somebody_else_is_replaced(folder: Path, give_away: Give) -> None:
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
        entry.symlink_to(planted(tmp_path / "elsewhere"))
    elif kind == "folder":
        entry.mkdir()
    elif kind == "fifo":
        os.mkfifo(str(entry))
    else:
        entry.write_bytes(data[:-1] if kind == "truncated" else b"")
    assert read_entry(NAME) is None
    write_entry(NAME, b"new")
    assert read_entry(NAME) == (None if kind == "folder" else b"new")
    assert list(folder.iterdir()) == [entry]  # nothing half written stays, also where it cannot be replaced
    if kind == "link":
        assert (tmp_path / "elsewhere" / "polar_pipeline" / NAME).read_bytes().startswith(b"theirs")


@pytest.mark.parametrize("bits", [0o777, 0o702, 0o1777])
def test_a_folder_that_others_can_write_to_is_refused(bits: int, folder: Path) -> None:
    folder.chmod(bits)
    assert refusal() == f"other users can write to {folder}; run rm -r {folder}"
    assert mode(folder) == bits
    shutil.rmtree(str(folder))  # as advised
    assert check_cache() == folder
    assert mode(folder) == 0o700


@pytest.mark.parametrize("where", ["folder", "parent", "two above"])
def test_a_folder_of_somebody_else_is_refused(where: str, folder: Path, give_away: Give) -> None:
    place = {"folder": folder, "parent": folder.parent, "two above": folder.parent.parent}[where]
    give_away(place)
    reason = refusal()
    assert reason.startswith(f"{place} belongs to user ")
    assert f"({NOBODY}), not to you; set XDG_CACHE_HOME" in reason or f"user {NOBODY}, not to you" in reason


def test_a_parent_that_others_can_write_to_is_refused_unless_sticky(folder: Path) -> None:
    folder.parent.chmod(0o777)
    assert refusal() == f"other users can write to {folder.parent}; run chmod go-w {folder.parent}"
    folder.parent.chmod(0o1777)  # like /tmp: nobody can replace what is ours
    assert read_entry(NAME) == b"ours"
    shutil.rmtree(str(folder))
    write_entry(NAME, b"again")
    assert read_entry(NAME) == b"again"


@pytest.mark.parametrize("where", ["folder", "parent"])
def test_links_are_followed_if_they_are_ours(where: str, home: Path, tmp_path: Path, give_away: Give) -> None:
    planted(tmp_path / "elsewhere", b"moved by the user")
    if where == "parent":
        link, target = home, "elsewhere"  # relative
    else:
        home.mkdir()
        link, target = home / "polar_pipeline", str(tmp_path / "elsewhere" / "polar_pipeline")
    link.symlink_to(target)
    assert read_entry(NAME) == b"moved by the user"
    give_away(link)
    assert refusal().startswith(f"{link} belongs to user ")


def test_links_in_a_circle_end(home: Path) -> None:
    home.symlink_to("cache")
    with pytest.raises(OSError, match="Too many levels"):
        check_cache()
    write_entry(NAME, b"nowhere")
    assert read_entry(NAME) is None


@pytest.mark.parametrize(
    ("group", "members", "is_own"),
    [("me", [], True), ("me", ["me"], True), ("me", ["me", "eve"], False), ("users", [], False)],
)
def test_a_group_of_one_is_no_other(
    group: str, members: List[str], is_own: bool, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ubuntu gives every user a group, and what they make is theirs and the group's to write."""
    number = folder.stat().st_gid
    for path in (folder.parent, folder):
        path.chmod(0o775)
    (folder / NAME).chmod(0o664)
    monkeypatch.setattr(pwd, "getpwuid", lambda _: SimpleNamespace(pw_name="me", pw_gid=number))
    monkeypatch.setattr(grp, "getgrgid", lambda _: SimpleNamespace(gr_name=group, gr_mem=members))
    if is_own:
        assert read_entry(NAME) == b"ours"
        assert (mode(folder), mode(folder / NAME)) == (0o700, 0o600)
    else:
        assert "can write to" in refusal()


def test_nothing_is_made_in_the_home_of_somebody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, give_away: Give
) -> None:
    """As with sudo, which leaves HOME as it is on some systems."""
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    give_away(tmp_path / "home")
    assert "sudo -H" in refusal()
    assert not list((tmp_path / "home").iterdir())


@needs_root
def test_what_root_has_put_there_is_trusted(nobody: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(nobody))
    os.seteuid(0)
    write_entry(NAME, b"root's")
    (nobody / "polar_pipeline").chmod(0o755)
    (nobody / "polar_pipeline" / NAME).chmod(0o644)
    os.seteuid(NOBODY)
    assert read_entry(NAME) == b"root's"
    assert mode(nobody / "polar_pipeline" / NAME) == 0o644
    with pytest.raises(OSError, match="cannot be written"):
        check_cache()
    write_entry(NAME, b"another")
    assert read_entry(NAME) == b"root's"


@needs_root
def test_a_folder_of_root_that_others_can_write_to_is_not_mended_by_a_user(
    nobody: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(nobody))
    os.seteuid(0)
    nobody.chmod(0o777)
    os.seteuid(NOBODY)
    assert refusal().startswith(f"other users can write to {nobody}; set XDG_CACHE_HOME")


@needs_root
def test_root_does_not_trust_others(nobody: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.seteuid(0)
    os.chown(nobody, NOBODY, NOBODY)
    os.seteuid(NOBODY)
    monkeypatch.setenv("XDG_CACHE_HOME", str(nobody))
    write_entry(NAME, b"a user's")
    assert read_entry(NAME) == b"a user's"
    os.seteuid(0)
    assert "belongs to user" in refusal()


def test_a_relative_folder_is_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "here")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "polar_pipeline"


def test_the_reason_is_logged_once_and_without_control_characters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    place = tmp_path / "a\x1b[2J b"
    place.mkdir()
    place.chmod(0o777)
    monkeypatch.setenv("XDG_CACHE_HOME", str(place))
    for _ in range(3):
        refusal()
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    shown = f"{tmp_path}/a\\x1b[2J b"
    assert record.getMessage().endswith(f"other users can write to {shown}; run chmod go-w '{shown}'")


# ------------------------------------------------------------------------------------------------- disks and processes


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


# ------------------------------------------------------------------------------------------------ the temporary folder


def test_the_temporary_folder_is_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    tmp_path.chmod(0o1777)
    before = os.umask(0)
    try:
        with private_folder() as folder:
            assert folder.parent == tmp_path
            assert mode(folder) == 0o700
    finally:
        os.umask(before)
    assert not list(tmp_path.iterdir())


def test_a_temporary_folder_where_others_can_replace_ours_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    tmp_path.chmod(0o777)
    with pytest.raises(
        UntrustedError, match=f"other users can replace what is in {tmp_path}; run chmod \\+t"
    ), private_folder():
        pass
    tmp_path.chmod(0o700)
    with private_folder():
        pass


@needs_root
def test_a_temporary_folder_of_somebody_else_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    os.chown(tmp_path, NOBODY, NOBODY)
    with pytest.raises(UntrustedError, match=f"{tmp_path} belongs to user .*set TMPDIR"), private_folder():
        pass
