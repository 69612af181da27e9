"""Recordings of raw frames: nothing is lost without being counted, and every end leaves a readable file."""

from __future__ import annotations

import json
import resource
import shutil
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Iterator

import numpy as np
import pytest
from support import TIMEOUT, ended_afterwards

pytest.importorskip("mcap")

from mcap.reader import make_reader
from raw_frames import SHAPE, random_frame, replayed_images
from stand_in import StandIn
from test_processor import Log

from polar_pipeline.camera.facts import facts_of, read_facts
from polar_pipeline.live import recorder
from polar_pipeline.live.diagnostics import Diagnostics
from polar_pipeline.live.frame import ReceivedImage
from polar_pipeline.live.parameters import make_settings
from polar_pipeline.live.recorder import Recorder
from polar_pipeline.recordings import messages
from polar_pipeline.recordings.source import open_source, recorded_metadata

STAMP = 1_700_000_000_000_000_000


def frame(k: int, encoding: str = "mono8") -> bytes:
    """A serialized frame of random bits."""
    return random_frame(STAMP + k, encoding)


def camera_info(k: int) -> bytes:
    identity, projection = np.eye(3).ravel(), np.eye(3, 4).ravel()
    info = messages.CameraInfo(STAMP, "camera", *SHAPE, "plumb_bob", np.zeros(5), identity, identity, projection)
    return bytes(messages.encode_camera_info(info, STAMP + k, "camera"))


class Run:
    """A recording into a folder, and what it counts."""

    def __init__(self, folder: Path, **changes: Any) -> None:
        values = {"record_folder": str(folder), **changes}
        self.diagnostics = Diagnostics("node", Log())
        self.time_ns = STAMP
        self.recording = Recorder("front/node", replace(make_settings({"backend": "cpu"}), **values), self.diagnostics)
        self.is_started, self.text = self.recording.started.result(TIMEOUT)

    @property
    def path(self) -> Path:
        return Path(self.text)

    def put(self, *cdrs: bytes, info: Any = None, camera: Any = None) -> None:
        for cdr in cdrs:
            self.time_ns += 1
            self.recording.put(ReceivedImage(cdr, 0.0, self.time_ns, camera), info)

    def refused(self) -> int:
        """What the diagnostics count."""
        (frames, _) = self.diagnostics.statuses("", "")
        return int(frames.values.get("refused: record", 0))


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Any]:
    folder = tmp_path / "new" / "folder"
    yield from ended_afterwards(
        lambda folder=folder, **changes: Run(folder, **changes), lambda made: made.recording.close()
    )


def has_index(path: Path) -> bool:
    """Whether the mcap library finds one."""
    with path.open("rb") as stream:
        try:
            return make_reader(stream).get_summary() is not None
        except Exception:  # noqa: BLE001 - it lists none
            return False


@pytest.mark.parametrize("encoding", ["mono8", "Mono12p"])
@pytest.mark.parametrize("compress", [True, False])
def test_replay_gets_the_very_frames(run: Any, encoding: str, compress: bool) -> None:
    cdrs = [frame(k, encoding) for k in range(5)]
    r = run(record_compress=compress)
    assert (r.is_started, r.path.is_file(), r.path.name[:11]) == (True, True, "front_node_")
    r.put(*cdrs[:3], info=camera_info(0))
    r.put(*cdrs[3:], info=camera_info(3))
    assert r.recording.stop().result(TIMEOUT) == (True, f"{r.path}: 5 frames, 0 dropped")
    assert replayed_images(r.path) == cdrs
    assert has_index(r.path)
    with open_source(r.path) as source:
        infos = [record.camera_info for record in source.records]
    assert [info and info.stamp_ns - STAMP for info in infos] == [0, 0, 0, 3, 3]
    with r.path.open("rb") as stream:
        rows = make_reader(stream).get_summary().statistics.channel_message_counts  # type: ignore[union-attr]
    assert sorted(rows.values()) == [2, 5], "each lens calibration once"
    r.put(frame(9))  # a camera's thread may be late
    assert r.recording.stop().result(TIMEOUT)[1].endswith("5 frames, 0 dropped")


def test_a_file_that_was_removed_meanwhile_is_not_a_success(run: Any) -> None:
    r = run()
    r.put(frame(0))
    r.recording._thread.submit(lambda: shutil.rmtree(str(r.path.parent))).result(TIMEOUT)
    answer = r.recording.stop().result(TIMEOUT)
    assert answer == (False, f"{r.path}: 0 frames, 1 dropped; the file was removed or moved")


def test_a_slow_writer_loses_frames_by_count_and_never_waits(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go = threading.Event(), threading.Event()
    compress = recorder.compress_message

    def slow(cdr: bytes) -> bytes:
        begun.set()
        assert go.wait(TIMEOUT)
        return compress(cdr)

    monkeypatch.setattr(recorder, "compress_message", slow)
    monkeypatch.setattr(recorder, "QUEUE_BYTES", 3 * len(frame(0)))
    r = run()
    cdrs = [frame(k) for k in range(8)]
    r.put(*cdrs)
    assert begun.wait(TIMEOUT)
    assert r.refused() == 5
    go.set()
    assert r.recording.stop().result(TIMEOUT) == (True, f"{r.path}: 3 frames, 5 dropped")
    assert replayed_images(r.path) == cdrs[:3]


@pytest.mark.parametrize("period", [0, 1e9])
@pytest.mark.parametrize(("cause", "said"), [("disk", "the disk is full"), ("quota", "record.quota_mb, 1 MB")])
def test_too_little_space_ends_a_complete_file(
    run: Any, cause: str, said: str, period: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the frames are in a chunk that is not in the file yet."""

    def disk_usage(folder: Path) -> Any:
        return SimpleNamespace(free=1_000_000 - sum(path.stat().st_size for path in folder.iterdir()))

    if cause == "disk":
        monkeypatch.setattr(recorder.shutil, "disk_usage", disk_usage)
    (tmp_path / "other_20200101_000000_000.mcap").write_bytes(bytes(500_000))
    if cause == "quota":
        (tmp_path / "my own.mcap").write_bytes(bytes(600_000))  # is not a recording of a node
    monkeypatch.setattr(recorder, "CHUNK_PERIOD", period)
    r = run(tmp_path, record_quota_mb=1 if cause == "quota" else 1000)
    cdrs = [frame(k) for k in range(80)]  # 1 MB of random bits, which no compression makes smaller
    r.put(*cdrs)
    is_good, text = r.recording.stop().result(TIMEOUT)
    assert (is_good, said in text, r.refused()) == (False, True, 1), text
    read = replayed_images(r.path)
    assert 25 < len(read) < 40
    assert read == cdrs[: len(read)]
    assert has_index(r.path)
    assert r.path.stat().st_size <= 500_000
    assert not r.recording.is_active


@pytest.mark.parametrize(("period", "kept", "dropped"), [(0, 7, 1), (1e9, 1, 9)])
def test_a_write_that_fails_leaves_the_complete_chunks(
    run: Any, period: float, kept: int, dropped: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files of at most 100,000 bytes, as on a disk that another program fills, and frames of 12,000 bytes.

    The first frame is a chunk of its own. The others are too, or all of them are one chunk.
    """
    monkeypatch.setattr(recorder, "CHUNK_PERIOD", period)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    try:
        r = run(record_compress=False)
        cdrs = [frame(k) for k in range(10)]
        r.put(*cdrs)
        is_good, text = r.recording.stop().result(TIMEOUT)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert (is_good, "File too large" in text, r.refused()) == (False, True, 1), text
    assert replayed_images(r.path) == cdrs[:kept]
    assert f": {kept} frames, {dropped} dropped; " in text
    assert not has_index(r.path)


def test_the_camera_is_that_of_the_first_frame(run: Any) -> None:
    """It may be connected after the start. A change by which replay would misread frames ends a complete file."""
    r = run()
    camera = read_facts(StandIn())
    r.put(frame(0), camera=camera)
    r.put(frame(1), camera=replace(camera, gain_db=6.0))
    r.put(frame(2), camera=replace(camera, roi_offset=(2, 0)))
    is_good, text = r.recording.stop().result(TIMEOUT)
    assert not is_good
    assert text.endswith("dropped; the region, the mirrored readout or the sensor of the camera has changed")
    assert replayed_images(r.path) == [frame(0), frame(1)]
    assert has_index(r.path)
    assert facts_of(json.loads(recorded_metadata(r.path)["camera"])) == camera


def test_what_is_no_image_is_counted(run: Any) -> None:
    r = run()
    r.put(frame(0), b"\x00\x01\x00\x00half", frame(1))
    assert r.recording.stop().result(TIMEOUT) == (True, f"{r.path}: 2 frames, 1 dropped")
    assert replayed_images(r.path) == [frame(0), frame(1)]
    assert r.refused() == 1


def test_names(run: Any, tmp_path: Path) -> None:
    """A recording without frames leaves no file."""
    paths = set()
    for _ in range(3):
        r = run(tmp_path)
        r.put(frame(0))
        r.recording.close()
        paths.add(r.path)
    assert set(tmp_path.iterdir()) == paths
    assert len(paths) == 3
    assert "no frame was recorded" in run(tmp_path).recording.stop().result(TIMEOUT)[1]
    assert set(tmp_path.iterdir()) == paths


def test_a_folder_that_cannot_be_made(run: Any, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    r = run(tmp_path / "file" / "folder")
    assert not r.is_started
    assert r.text == f"Not a directory: {tmp_path / 'file' / 'folder'}"
    r.put(frame(0))
    assert r.recording.stop().result(TIMEOUT) == (False, r.text)
    assert r.refused() == 1


@pytest.mark.parametrize("period", [0, 1e9])
def test_thousands_of_tiny_frames_stay_within_the_quota(
    run: Any, period: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The index of a frame is as large as the frame: with it, the complete file is below the quota, and not by much."""
    monkeypatch.setattr(recorder, "CHUNK_PERIOD", period)
    r = run(tmp_path, record_quota_mb=1, record_compress=False)
    tiny = messages.encode_image(STAMP, "c", "mono8", np.zeros((16, 16), np.uint8))
    r.put(*[bytes(messages.restamp(tiny, STAMP + k)) for k in range(4000)])
    is_good, text = r.recording.stop().result(TIMEOUT)
    assert (is_good, "record.quota_mb, 1 MB" in text) == (False, True), text
    assert has_index(r.path)
    assert 0.6e6 < r.path.stat().st_size <= 1e6
