"""Which files are recordings, and the names of recordings."""

from __future__ import annotations

import re
from pathlib import Path
from typing import List

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from polar_pipeline.batch.sources import MAX_NAME, StorageError, read_list, recordings_in, shown, unique_names

PARTS = st.sampled_from(["a", "A", "b", "a_b", "ü", "走行", "..", "-x", ".y", "a b", "a" * 120, "x-2d711642"])
LOCATIONS = st.lists(PARTS, min_size=1, max_size=4).map(lambda parts: "/" + "/".join(parts))
SUFFIXES = st.sampled_from([".mcap", ".mcap.zstd", ".bag", ".db3", ""])


@given(st.lists(st.builds(str.__add__, LOCATIONS, SUFFIXES), unique=True, max_size=12))
@example(["/a_b/c.mcap", "/a/b_c.mcap", "/a/b/c.mcap"])
@example(["/a.mcap", "/a.bag", "/A.mcap"])
def test_names_are_unique_and_safe(locations: List[str]) -> None:
    names = unique_names(locations, {})
    assert set(names) == set(locations)
    assert len({name.lower() for name in names.values()}) == len(locations)
    assert all(re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name) for name in names.values())
    assert all(len(name) <= MAX_NAME for name in names.values())
    assert unique_names(locations[::-1], {}) == names


@given(
    st.lists(LOCATIONS, unique=True, min_size=1, max_size=6), st.lists(LOCATIONS, unique=True, min_size=1, max_size=6)
)
def test_known_names_stay(before: List[str], after: List[str]) -> None:
    known = unique_names(before, {})
    names = unique_names(after, known)
    assert all(names[location] == known[location] for location in set(before) & set(after))
    assert len({name.lower() for name in {**known, **names}.values()}) == len({*before, *after})


@pytest.mark.parametrize(
    ("locations", "names"),
    [
        (["/data/drive.mcap"], ["drive"]),
        (["/d/r1/drive.mcap", "/d/r2/drive.mcap", "/d/r2/other.bag"], ["r1_drive", "r2_drive", "other"]),
        (["/x/1/d.mcap", "/y/1/d.mcap", "/y/2/d.mcap"], ["x_1_d", "y_1_d", "2_d"]),
        (["s3://bucket/day 1/a.mcap.zstd", "https://host/f%20g.mcap?sig=a/b.mcap"], ["a", "f_g"]),
        (["https://one.example/a.mcap", "https://two.example/a.mcap"], ["one.example_a", "two.example_a"]),
    ],
)
def test_names(locations: List[str], names: List[str]) -> None:
    found = unique_names(locations, {})
    assert [found[location] for location in locations] == names


def test_the_same_path_with_another_suffix_has_a_hash() -> None:
    names = unique_names(["/a.mcap", "/a.bag"], {})
    assert all(re.fullmatch(r"a-[0-9a-f]{8}", name) for name in names.values())


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
        ("e", ".x.mcap.0a.part .x.mcap notes.txt", []),
    ],
)
def test_recordings_in_a_folder(folder: str, files: str, found: list) -> None:
    assert recordings_in(folder, files.split()) == [(name, parts.split()) for name, parts in found]


def test_list_files(tmp_path: Path) -> None:
    path = tmp_path / "list.txt"
    path.write_text("\ufeff# a comment\n\n  drives/*.mcap \r\n/abs/#x.bag\ns3://b/x.mcap\n", encoding="utf-8")
    assert read_list(path) == [str(tmp_path / "drives/*.mcap"), "/abs/#x.bag", "s3://b/x.mcap"]


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"# nothing\n", "names no source; it has one per line"),
        (b"\xff", "cannot be read: it is no UTF-8 text"),
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
    assert "word" not in shown(text)
    assert "abc" not in shown(text)
    assert "host/x.mcap?..." in shown(text)
