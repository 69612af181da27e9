"""Recordings: what sources name, which files belong to one, names of recordings, and the identity of their content."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import List, Tuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support import ROOT

from polar_pipeline.recordings.source import open_source
from polar_pipeline.tools.batch.copies import local_copy
from polar_pipeline.tools.batch.files import StorageError, without_secrets
from polar_pipeline.tools.batch.recordings import MAX_NAME, list_recordings, read_list, recordings_in, unique_names

LARGE = (4 << 20) + 1000


def make(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode())


def listed(*sources: object) -> List[Tuple[str, str, int]]:
    return [(row.name, row.location, row.size) for row in list_recordings([str(each) for each in sources])]


def token(path: Path) -> str:
    (found,) = list_recordings([str(path)])
    return found.token


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    fleet = tmp_path / "fleet"
    make(fleet, "r1/drive.mcap", "r1/.hidden.mcap", "r1/.cache/x.mcap", "r2/drive.mcap", "r2/notes.txt", "r2/old.bag")
    make(fleet, "bag/metadata.yaml", "bag/bag_0.db3", "bag/bag_1.db3", "frames/1.png", "frames/2.png")
    return fleet


def test_folders_files_and_patterns(fleet: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bag, frames = ("bag", str(fleet / "bag"), 43), ("frames", str(fleet / "frames"), 24)
    one, two = ("r1_drive", str(fleet / "r1/drive.mcap"), 13), ("r2_drive", str(fleet / "r2/drive.mcap"), 13)
    old = ("old", str(fleet / "r2/old.bag"), 10)
    assert listed(fleet) == [bag, frames, one, two, old]
    assert listed(fleet / "*") == listed(fleet / "**") == listed(fleet, fleet / "bag/bag_1.db3", fleet) == listed(fleet)
    assert listed(fleet / "**/*.mcap") == [one, two]
    assert listed(fleet / "bag/bag_0.db3") == [bag]
    assert listed(fleet / "r?/*.bag", fleet / "frames") == [frames, old]
    (tmp_path / "list.txt").write_text("fleet/r2\n# fleet/r1\n", encoding="utf-8")
    assert listed(f"@{tmp_path / 'list.txt'}") == [("drive", *two[1:]), old]
    assert listed((fleet / "bag").as_uri()) == [bag]
    monkeypatch.chdir(fleet / "bag")
    assert listed(".") == listed("../bag") == [bag]


def test_names_with_wildcards_and_links(tmp_path: Path) -> None:
    make(tmp_path, "a/x[1].mcap", "b/y.mcap")
    assert listed(tmp_path / "a/x[1].mcap") == [("x_1", str(tmp_path / "a/x[1].mcap"), 11)]
    (tmp_path / "a/loop").symlink_to(tmp_path / "a")
    (tmp_path / "a/b").symlink_to(tmp_path / "b")
    (tmp_path / "a/z.mcap").symlink_to(tmp_path / "b/y.mcap")
    assert [row[1] for row in listed(tmp_path / "a")] == [str(tmp_path / "a/b/y.mcap"), str(tmp_path / "a/x[1].mcap")]


def test_excluded_folders_and_known_names(fleet: Path) -> None:
    found = list_recordings([str(fleet)], exclude=[fleet / "r2"], names={str(fleet / "bag"): "mine"})
    assert [row.name for row in found] == ["mine", "frames", "drive"]


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("nothing.mcap", "nothing.mcap does not exist"),
        ("*.mcap", r"\*.mcap holds no recording; expected .mcap, .db3, .bag, a rosbag2 folder, .png"),
        ("r2/notes.txt", "notes.txt holds no recording"),
        ("empty", "empty holds no recording"),
        ("broken", "No such file or directory: .*gone.mcap"),
        ("pipe", "pipe.mcap' is not a regular file"),
    ],
)
def test_sources_that_are_refused(source: str, text: str, fleet: Path) -> None:
    for name in ("empty", "broken", "pipe"):
        (fleet / name).mkdir()
    (fleet / "broken/gone.mcap").symlink_to(fleet / "gone")
    os.mkfifo(str(fleet / "pipe/pipe.mcap"))
    with pytest.raises((StorageError, OSError), match=text):
        listed(fleet / source)


def test_a_folder_of_pictures_is_one_recording(tmp_path: Path) -> None:
    """Also if recordings are beside it; it is opened where it is, without a copy."""
    (tmp_path / "frames").mkdir()
    for name in ("imx250mzr_camera.png", "imx250mzr_fruits.png"):
        (tmp_path / "frames" / name).symlink_to(ROOT / "frames" / name)
    (found,) = list_recordings([str(tmp_path)])
    with local_copy(found, tmp_path / "spool", 1) as path, open_source(path) as source:
        assert (path, source.total) == (tmp_path / "frames", 2)
    assert not (tmp_path / "spool").exists()
    (tmp_path / "frames" / "more.png").write_bytes(b"")
    with pytest.raises(StorageError, match="frames changed since it was listed; run again"), local_copy(
        found, tmp_path / "spool", 1
    ):
        raise AssertionError("it changed")


@pytest.mark.parametrize("place", [0, LARGE // 7, LARGE - 1])
def test_tokens_of_large_files(place: int, tmp_path: Path) -> None:
    """A byte at the begin, in a sample, and at the end, although size and time stay; and the time."""
    path = tmp_path / "x.mcap"
    path.write_bytes(bytes(LARGE))
    before, info = token(path), path.stat()
    path.touch()
    os.utime(str(path), ns=(info.st_atime_ns, info.st_mtime_ns))
    assert token(path) == before
    with path.open("r+b") as stream:
        stream.seek(place)
        stream.write(b"x")
    os.utime(str(path), ns=(info.st_atime_ns, info.st_mtime_ns))
    changed = token(path)
    assert changed != before
    os.utime(str(path), ns=(1, 1))
    assert token(path) not in (before, changed)


def test_tokens_of_small_files_and_folders(fleet: Path) -> None:
    """Those of files are those of their bytes; a folder's do not include other files."""
    one, two = fleet / "r1/drive.mcap", fleet / "r2/drive.mcap"
    two.write_bytes(one.read_bytes())
    os.utime(str(two), ns=(1, 1))
    assert token(two) == token(one)
    two.write_bytes(b"A" + one.read_bytes()[1:])
    assert token(two) != token(one)
    before = token(fleet / "bag")
    make(fleet, "bag/notes.txt")
    assert token(fleet / "bag") == before
    (fleet / "bag/bag_1.db3").write_bytes(b"other bytes")
    changed = token(fleet / "bag")
    make(fleet, "bag/bag_2.db3")
    assert len({before, changed, token(fleet / "bag")}) == 3


PARTS = st.sampled_from(["a", "A", "b", "a_b", "ü", "走行", "..", "-x", ".y", "a b", "a" * 120, "x-2d711642"])
LOCATIONS = st.lists(PARTS, min_size=1, max_size=4).map(lambda parts: "/" + "/".join(parts))
SUFFIXES = st.sampled_from([".mcap", ".mcap.zstd", ".bag", ".db3", ""])


PATHS = st.lists(st.builds(str.__add__, LOCATIONS, SUFFIXES), unique=True, max_size=12)


@given(PATHS, PATHS)
@example(["/a_b/c.mcap", "/a/b_c.mcap", "/a/b/c.mcap"], [])
@example(["/a.mcap", "/a.bag", "/A.mcap"], [])
def test_names_are_unique_and_safe_and_stay(before: List[str], after: List[str]) -> None:
    known = unique_names(before, {})
    assert set(known) == set(before)
    assert unique_names(before[::-1], {}) == known
    names = unique_names(after, known)
    assert all(names[location] == known[location] for location in set(before) & set(after))
    names.update(known)
    assert len({name.lower() for name in names.values()}) == len({*before, *after})
    assert all(re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name) for name in names.values())
    assert all(len(name) <= MAX_NAME for name in names.values())


@pytest.mark.parametrize(
    ("locations", "names"),
    [
        (["/data/drive.mcap"], ["drive"]),
        (["/d/r1/drive.mcap", "/d/r2/drive.mcap", "/d/r2/other.bag"], ["r1_drive", "r2_drive", "other"]),
        (["/x/1/d.mcap", "/y/1/d.mcap", "/y/2/d.mcap"], ["x_1_d", "y_1_d", "2_d"]),
        (["s3://bucket/day 1/a.mcap.zstd", "https://host/f%20g.mcap?sig=a/b.mcap"], ["a", "f_g"]),
        (["https://one.example/a.mcap", "https://two.example/a.mcap"], ["one.example_a", "two.example_a"]),
        (["/a.mcap", "/a.bag"], ["a-[0-9a-f]{8}"] * 2),
    ],
)
def test_names(locations: List[str], names: List[str]) -> None:
    found = unique_names(locations, {})
    assert all(re.fullmatch(name, found[location]) for location, name in zip(locations, names))


@pytest.mark.parametrize(
    ("folder", "files", "found"),
    [
        ("d", "metadata.yaml d_0.db3 d_1.db3 notes.txt 1.png", [("", "metadata.yaml d_0.db3 d_1.db3")]),
        ("d", "metadata.yaml", [("", "metadata.yaml")]),
        ("d", "metadata.yaml x.bag", [("", "metadata.yaml"), ("x.bag", "x.bag")]),
        ("d", "d_0.mcap d_1.mcap d_2.mcap.zstd", [("", "d_0.mcap d_1.mcap d_2.mcap.zstd")]),
        ("d", "d_0.mcap d_0.mcap.zstd", [("", "d_0.mcap d_0.mcap.zstd")]),
        ("d", "d_0.mcap d_00.mcap", [("d_0.mcap", "d_0.mcap"), ("d_00.mcap", "d_00.mcap")]),
        ("d", "d_0.mcap d_1.db3", [("d_0.mcap", "d_0.mcap"), ("d_1.db3", "d_1.db3")]),
        ("e", "d_0.mcap d_1.mcap", [("d_0.mcap", "d_0.mcap"), ("d_1.mcap", "d_1.mcap")]),
        ("e", "x.mcap thumbnail.png", [("x.mcap", "x.mcap")]),
        ("e", "2.png 1.TIF .3.png", [("", "1.TIF 2.png")]),
        ("e", "1.png camera.yaml", [("", "1.png camera.yaml")]),
        ("e", "x.mcap camera.yaml", [("x.mcap", "x.mcap")]),
        ("e", "camera.yaml", []),
        ("e", ".x.mcap.0a.part .x.mcap notes.txt", []),
    ],
)
def test_recordings_in_a_folder(folder: str, files: str, found: list) -> None:
    assert recordings_in(folder, files.split()) == [(name, parts.split()) for name, parts in found]


def test_lists(tmp_path: Path) -> None:
    path = tmp_path / "list.txt"
    path.write_bytes("\ufeff# a comment\n\n  drives/*.mcap \r\n/abs/#x.bag\ns3://b/x.mcap\n".encode())
    assert read_list(path) == [str(tmp_path / "drives/*.mcap"), "/abs/#x.bag", "s3://b/x.mcap"]


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"# nothing\n", "names no source; it has one per line"),
        (b"\xff", "cannot be read: it is not UTF-8 text"),
        (b"@more.txt", "names another list, '@more.txt'; ./@more.txt is a file of that name"),
    ],
)
def test_lists_that_are_refused(data: bytes, text: str, tmp_path: Path) -> None:
    path = tmp_path / "list.txt"
    path.write_bytes(data)
    with pytest.raises(StorageError) as error:
        read_list(path)
    assert str(error.value) == f"the list {path} {text}"


def test_secrets_are_not_shown() -> None:
    text = "403, url='https://me:word@host/x.mcap?X-Signature=abc&y=1' (s3://b/a?b.mcap)"
    assert "word" not in without_secrets(text)
    assert "abc" not in without_secrets(text)
    assert "host/x.mcap?..." in without_secrets(text)
