"""Local recordings: what sources name, and what identifies their content."""

from __future__ import annotations

import os
from pathlib import Path
from typing import List, Tuple

import pytest

from polar_pipeline.batch import storage
from polar_pipeline.batch.sources import StorageError
from polar_pipeline.batch.storage import list_recordings, local_copy
from polar_pipeline.replay.source import open_source

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
        ("nothing.mcap", "nothing.mcap' does not exist"),
        ("*.mcap", r"\*.mcap holds no recording; expected .mcap, .db3, .bag, a rosbag2 folder, .png"),
        ("r2/notes.txt", "notes.txt holds no recording"),
        ("empty", "empty holds no recording"),
        ("broken", "gone.mcap' cannot be read: No such file"),
        ("pipe", "pipe.mcap' is no regular file"),
    ],
)
def test_sources_that_are_refused(source: str, text: str, fleet: Path) -> None:
    for name in ("empty", "broken", "pipe"):
        (fleet / name).mkdir()
    (fleet / "broken/gone.mcap").symlink_to(fleet / "gone")
    os.mkfifo(str(fleet / "pipe/pipe.mcap"))
    with pytest.raises(StorageError, match=text):
        listed(fleet / source)


def test_what_is_listed_is_what_replay_opens(tmp_path: Path) -> None:
    """Real pictures; a folder of recordings beside them is not one recording."""
    frames = Path(__file__).parents[2] / "frames"
    folder = tmp_path / "frames"
    folder.mkdir()
    for name in ("imx250mzr_camera.png", "imx250mzr_fruits.png"):
        (folder / name).symlink_to(frames / name)
    (found,) = list_recordings([str(tmp_path)])
    with local_copy(found, tmp_path / "spool", 1) as path, open_source(path) as source:
        assert source.total == 2
    assert not (tmp_path / "spool").exists(), "local recordings need no copy"


@pytest.mark.parametrize("place", [0, LARGE // 7, LARGE - 1])
def test_tokens_of_large_files(place: int, tmp_path: Path) -> None:
    """A byte at the begin, in a sample, and at the end, although size and time stay."""
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
    assert token(path) != before


def test_tokens_of_large_files_and_times(tmp_path: Path) -> None:
    path = tmp_path / "x.mcap"
    path.write_bytes(bytes(LARGE))
    before = token(path)
    os.utime(str(path), ns=(1, 1))
    assert token(path) != before


def test_tokens_of_small_files_are_those_of_their_bytes(tmp_path: Path) -> None:
    make(tmp_path, "a/x.mcap")
    (tmp_path / "y.mcap").write_bytes((tmp_path / "a/x.mcap").read_bytes())
    os.utime(str(tmp_path / "y.mcap"), ns=(1, 1))
    assert token(tmp_path / "y.mcap") == token(tmp_path / "a/x.mcap")
    (tmp_path / "y.mcap").write_bytes(b"A" + (tmp_path / "a/x.mcap").read_bytes()[1:])
    assert token(tmp_path / "y.mcap") != token(tmp_path / "a/x.mcap")


def test_tokens_of_folders(fleet: Path) -> None:
    before = token(fleet / "bag")
    make(fleet, "bag/notes.txt")
    assert token(fleet / "bag") == before
    (fleet / "bag/bag_1.db3").write_bytes(b"other bytes")
    changed = token(fleet / "bag")
    assert changed != before
    make(fleet, "bag/bag_2.db3")
    assert token(fleet / "bag") not in (before, changed)


def test_samples_cover_folders_as_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "_FULL_BYTES", 10)
    monkeypatch.setattr(storage, "_SAMPLE_BYTES", 4)
    make(tmp_path, "bag/metadata.yaml", "bag/bag_0.mcap", "bag/bag_1.mcap")
    rows = [(path, path.stat()) for path in sorted((tmp_path / "bag").iterdir())]
    data = b"".join(path.read_bytes() for path, _ in rows)
    for offset in range(len(data)):
        assert b"".join(storage._pieces(rows, offset, 20)) == data[offset : offset + 20]


def test_local_recordings_that_changed(fleet: Path, tmp_path: Path) -> None:
    (found,) = list_recordings([str(fleet / "r1")])
    with local_copy(found, tmp_path / "spool", 1) as path:
        assert path == fleet / "r1/drive.mcap"
    (fleet / "r1/drive.mcap").write_bytes(b"longer than before")
    with pytest.raises(StorageError, match=r"drive\.mcap changed since it was listed; run again"), local_copy(
        found, tmp_path / "spool", 1
    ):
        raise AssertionError("it changed")
