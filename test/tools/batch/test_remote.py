"""Recordings on real servers of this machine, over HTTP and S3: listing, fetching, and what faults lead to."""

from __future__ import annotations

import fcntl
import random
import resource
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Dict, Iterator, List, Tuple

import pytest

pytest.importorskip("aiohttp")
pytest.importorskip("fsspec")

from recordings import record
from servers import SLOW_PIECES, SLOW_S, S3Storage, Storage, WebStorage
from support import wait_for

from polar_pipeline import cli
from polar_pipeline.tools.batch import copies, files
from polar_pipeline.tools.batch.copies import local_copy, reserved
from polar_pipeline.tools.batch.files import StorageError
from polar_pipeline.tools.batch.recordings import Recording, list_recordings

DATA = random.Random(0).randbytes(300_001) if sys.version_info >= (3, 9) else bytes(range(251)) * 1200
LIMIT = 10 << 20


@pytest.fixture(scope="module")
def s3() -> Iterator[Tuple[str, int]]:
    """The address of a server of S3."""
    moto = pytest.importorskip("moto.server", reason="needs pip install 'moto[s3]' flask flask-cors s3fs")
    pytest.importorskip("s3fs", reason="needs pip install s3fs")
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    yield server.get_host_and_port()
    server.stop()


@pytest.fixture(params=["http", "s3"])
def storage(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Storage]:
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.setattr(files, "BACKOFF_S", 0.001)
    with ExitStack() as stack:
        if request.param == "s3":
            yield S3Storage(request.getfixturevalue("s3"), monkeypatch, stack)
        else:
            yield WebStorage(tmp_path / "served", stack)


def listed(*sources: str) -> Dict[str, int]:
    return {row.location: row.size for row in list_recordings(sources)}


def only(source: str) -> Recording:
    (found,) = list_recordings([source])
    return found


def copied(recording: Recording, spool: Path) -> Dict[str, bytes]:
    """What is fetched, by path in the spool's entry; checks that nothing else is there, and nothing afterwards."""
    with local_copy(recording, spool, LIMIT) as path:
        entry = path.parent
        found = {str(each.relative_to(entry)): each.read_bytes() for each in entry.rglob("*") if each.is_file()}
        assert path.exists()
    assert_empty(spool)
    return found


def refuse(recording: Recording, spool: Path, text: str, limit: int = LIMIT) -> None:
    """Check the error of a recording that cannot be copied, and that nothing of it stays."""
    with pytest.raises(StorageError, match=text), local_copy(recording, spool, limit):
        raise AssertionError("there is no copy")
    assert not spool.exists() or [path.name for path in spool.iterdir()] == [".lock"]


def assert_empty(spool: Path) -> None:
    assert [path.name for path in spool.iterdir()] == [".lock"]


# ------------------------------------------------------------------------------------------------------------- listing


def test_files_folders_and_patterns(storage: Storage) -> None:
    put, root = storage.put, storage.root
    files = ["a/x.mcap", "a/drive/metadata.yaml", "a/drive/drive_0.db3", "a/drive/drive_1.db3", "b/x.bag"]
    for name in [*files, "a/.hidden.mcap", "c/1.png", "c/2.png", "README.md", "b/deep/er/y.mcap.zstd"]:
        put(name, name.encode())
    drive = {f"{root}/a/drive": sum(len(name) for name in files[1:4])}
    x, bag = {f"{root}/a/x.mcap": 8}, {f"{root}/b/x.bag": 7}
    pictures, deep = {f"{root}/c": 14}, {f"{root}/b/deep/er/y.mcap.zstd": 21}
    assert listed(root) == {**drive, **x, **bag, **pictures, **deep}
    assert listed(f"{root}/a") == listed(f"{root}/a/") == {**drive, **x}
    assert listed(f"{root}/a/x.mcap", f"{root}/a/*.mcap", f"{root}/a/x.mcap") == x
    assert listed(f"{root}/**/*.mcap") == x
    assert listed(f"{root}/*/*.bag", f"{root}/b/deep/**") == {**bag, **deep}
    assert listed(f"{root}/a/drive/drive_1.db3") == drive, "a file of a rosbag2 folder stands for the folder"
    assert listed(f"{root}/*") == {**drive, **x, **bag, **pictures, **deep}
    assert [row.name for row in list_recordings([root])] == ["drive", "a_x", "y", "b_x", "c"]


def test_what_is_not_there(storage: Storage) -> None:
    storage.put("a/README.md", b"no recording")
    for source in ("a/README.md", "a", "a/*.mcap"):
        with pytest.raises(StorageError, match=r"holds no recording; expected \.mcap, \.db3, \.bag"):
            listed(f"{storage.root}/{source}")
    with pytest.raises(StorageError, match=r"/a/x\.mcap does not exist"):
        listed(f"{storage.root}/a/x.mcap")


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("nothing://x/y.mcap", "nothing:// is unknown; expected a path, s3://, gs://, https://"),
        ("s3://b/x.mcap", "s3:// needs a package that is not installed: Install s3fs"),
    ],
)
def test_unknown_schemes_and_missing_packages(source: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    registry = pytest.importorskip("fsspec.registry")
    monkeypatch.setitem(sys.modules, "s3fs", None)
    monkeypatch.delitem(registry._registry, "s3", raising=False)
    with pytest.raises(StorageError) as error:
        listed(source)
    assert text in str(error.value)


# ------------------------------------------------------------------------------------------------------------ fetching


def test_files_and_folders_are_fetched(storage: Storage, tmp_path: Path) -> None:
    inside = {"metadata.yaml": b"files: []", "drive_0.db3": DATA, "drive_1.db3": DATA[:1000]}
    for name, data in {**inside, "notes.txt": b"not fetched"}.items():
        storage.put(f"drive/{name}", data)
    file = only(storage.put("a b/x.mcap.zstd", DATA).replace(" ", "%20" if "http" in storage.root else " "))
    assert copied(file, tmp_path / "spool") == {"x.mcap.zstd": DATA}
    folder = only(f"{storage.root}/drive")
    assert copied(folder, tmp_path / "spool") == {f"drive/{name}": data for name, data in inside.items()}
    captured = {"camera.yaml": b"sensor: IMX250MZR", "000.png": DATA}
    for name, data in captured.items():
        storage.put(f"captured/{name}", data)
    assert listed(f"{storage.root}/captured/*") == {f"{storage.root}/captured/000.png": len(DATA)}
    folder = only(f"{storage.root}/captured")
    assert copied(folder, tmp_path / "spool") == {f"captured/{name}": data for name, data in captured.items()}


@pytest.mark.parametrize("fault", ["500", "429"])
def test_faults_while_listing(fault: str, storage: Storage) -> None:
    url = storage.put("x.mcap", DATA)
    storage.proxy.faults["HEAD"].append(fault)
    storage.proxy.faults["GET"].append(fault)  # where a web server refuses HEAD, fsspec asks by GET
    assert listed(url) == {url: len(DATA)}


@pytest.mark.parametrize(
    ("fault", "requests", "text"),
    [
        ("500", 4, "4 times"),
        ("429", 4, "4 times"),
        ("short", 4, f"4 times: .*({len(DATA) // 2} of {len(DATA)} bytes|[Cc]hecksum)"),
        ("long", 4, f"4 times: .*more than {len(DATA)} bytes"),
        ("break", 4, "4 times"),
        ("stall", 4, "4 times: .*[Tt]imeout"),
        ("403", 1, "read: access is refused"),
        ("404", 1, "read: there is nothing of this name"),
    ],
)
def test_faults(
    fault: str, requests: int, text: str, storage: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fault that passes is survived if another request is made; one that stays is reported."""
    if fault == "stall":
        monkeypatch.setattr(files, "STALL_S", 0.5)  # only here: a busy machine may take long for any response
    recording = only(storage.put("x.mcap", DATA))
    if requests > 1:
        storage.proxy.faults["GET"].append(fault)
        assert copied(recording, tmp_path / "spool") == {"x.mcap": DATA}
        assert storage.proxy.fetched() == 2
        storage.proxy.seen.clear()
    storage.proxy.always = fault
    refuse(recording, tmp_path / "spool", text)
    assert storage.proxy.fetched() == requests


def test_slow_responses_are_waited_for(storage: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They take twice the time after which one without a byte counts as failed."""
    monkeypatch.setattr(files, "STALL_S", SLOW_S * SLOW_PIECES / 2)
    recording = only(storage.put("x.mcap", DATA))
    storage.proxy.always = "slow"
    assert copied(recording, tmp_path / "spool") == {"x.mcap": DATA}


def test_changes_between_listing_and_fetching(storage: Storage, tmp_path: Path) -> None:
    file, other = only(storage.put("x.mcap", DATA)), only(storage.put("y.mcap", DATA))
    storage.put("bag/metadata.yaml", b"files: []")
    storage.put("bag/bag_0.db3", DATA)
    folder = only(f"{storage.root}/bag")
    storage.put("x.mcap", DATA + b"more")
    storage.remove("y.mcap")
    storage.put("bag/bag_1.db3", b"a further file")
    for recording, text in ((file, "changed since"), (other, "does not exist"), (folder, "changed since")):
        refuse(recording, tmp_path / "spool", text)
    assert not any(method == "GET" and "x.mcap" in path for method, path in storage.proxy.seen)


def test_changes_while_fetching(storage: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the same size; at 1 s, the resolution of times over HTTP, only the test's server shows them."""
    if sys.version_info < (3, 9) and isinstance(storage, WebStorage):
        pytest.skip("fsspec for Python 3.8 reads neither etag nor date of a web server")
    recording = only(storage.put("x.mcap", DATA))
    fetch = copies.fetch

    def and_change(*arguments: Any) -> None:
        fetch(*arguments)
        storage.put("x.mcap", DATA[::-1])
        storage.age("x.mcap")

    monkeypatch.setattr(copies, "fetch", and_change)
    assert only(recording.location) == recording
    refuse(recording, tmp_path / "spool", "changed since")
    assert only(recording.location).token != recording.token


def test_larger_than_the_spool(storage: Storage, tmp_path: Path) -> None:
    recording = only(storage.put("x.mcap", DATA))
    refuse(recording, tmp_path / "spool", r"x has 0\.2\d+ MB, and the spool takes 0\.0\d+ MB", len(DATA) // 4)
    assert storage.proxy.fetched() == 0


def test_a_batch_from_storage_with_faults(storage: Storage, tmp_path: Path) -> None:
    """The command's results are those of the same recordings on disk; a second run fetches only what is new."""
    pytest.importorskip("distributed")
    pytest.importorskip("pyarrow")
    paths = [record(tmp_path / "in" / f"r{seed}.mcap", 6, seed=seed) for seed in range(3)]
    words = ["-o", str(tmp_path / "out"), "--jobs", "1", "--backend", "cpu", "--spool", str(tmp_path / "spool")]
    for path in paths[:2]:
        storage.put(f"drives/{path.name}", path.read_bytes())
    storage.proxy.faults["GET"].extend(["500", "429", "short", "", "break"])
    assert cli.main(["batch", f"{storage.root}/drives", *words]) == 0
    storage.put(f"drives/{paths[2].name}", paths[2].read_bytes())
    before = storage.proxy.fetched()
    assert before == 2 + 4
    assert cli.main(["batch", f"{storage.root}/drives", *words]) == 0
    assert storage.proxy.fetched() == before + 1
    for path in paths:
        expected = tmp_path / f"{path.stem}.mcap"
        assert cli.main(["replay", str(path), "-o", str(expected), "--report", "-", "--backend", "cpu"]) == 0
        assert (tmp_path / "out" / "recordings" / path.stem / "products.mcap").read_bytes() == expected.read_bytes()
    assert_empty(tmp_path / "spool")


def test_full_disk(storage: Storage, tmp_path: Path) -> None:
    """Files that must not grow fail as writes on a full disk do; another attempt would not help."""
    recording = only(storage.put("x.mcap", DATA))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(DATA) // 2, before[1]))
    try:
        refuse(recording, tmp_path / "spool", r"x\.mcap cannot be read: the spool cannot take it: File too large")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert storage.proxy.fetched() == 1


# --------------------------------------------------------------------------------------------------- the bounded folder


def test_the_limit_is_kept(tmp_path: Path) -> None:
    """Three threads write as many bytes as they reserve, and add up what is there."""

    def work(seed: int) -> int:
        largest = 0
        for size in random.Random(seed).choices([100, 400, 900, 1000], k=25):
            with reserved(tmp_path, size, 1000, "x") as entry:
                (entry / "data").write_bytes(bytes(size))
                largest = max(largest, sum(int(path.parent.name.split("_")[3]) for path in tmp_path.glob("*/data")))
        return largest

    with ThreadPoolExecutor(3) as pool:
        assert 0 < max(pool.map(work, range(3))) <= 1000
    assert_empty(tmp_path)


def test_a_killed_process_leaves_no_reservation(tmp_path: Path) -> None:
    """Its folder has no lock, and is removed; other files stay."""
    (tmp_path / "polar_pipeline_copy_1000_left").mkdir()
    (tmp_path / "polar_pipeline_copy_notes").write_bytes(b"mine")
    with reserved(tmp_path, 1000, 1000, "y") as entry:
        assert list(tmp_path.glob("polar_pipeline_copy_1000_*")) == [entry]
    (tmp_path / "polar_pipeline_copy_notes").unlink()
    assert_empty(tmp_path)


def test_a_small_reservation_does_not_pass_a_large_one(tmp_path: Path) -> None:
    """One that waits for space holds the lock that a later one needs."""
    granted: List[int] = []

    def reserve(size: int) -> None:
        with reserved(tmp_path, size, 1000, "x"):
            granted.append(size)

    def is_locked() -> bool:
        with (tmp_path / ".lock").open("w") as queue:
            try:
                fcntl.flock(queue, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False

    with ThreadPoolExecutor(2) as pool, reserved(tmp_path, 600, 1000, "x"):
        pool.submit(reserve, 800)
        wait_for(is_locked, "the large one to wait")
        pool.submit(reserve, 100)
        assert granted == []
    assert sorted(granted) == [100, 800]
