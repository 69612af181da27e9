"""The service `~/record` of the real node over real middleware."""
# ruff: noqa: E402 - rclpy may be missing

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
from support import on_cpu, wait_for

rclpy = pytest.importorskip("rclpy")
pytest.importorskip("mcap")

import drill
from raw_frames import SHAPE, random_frame, replayed_images
from sensor_msgs.msg import CameraInfo
from services import ask, change_state
from std_srvs.srv import SetBool

from polar_pipeline import cli
from polar_pipeline.recordings import messages
from polar_pipeline.recordings.source import open_source

pytestmark = pytest.mark.ros
STAMP = 10**9


def record(peer: drill.Peer, starts: bool) -> Any:
    """The node's answer to a request to begin or to end a recording."""
    return ask(peer.node, SetBool, "/polar_pipeline/record", SetBool.Request(data=starts))


@pytest.mark.parametrize("encoding", ["mono8", "Mono12p"])
def test_replay_gets_the_very_frames(node: Any, peer: drill.Peer, tmp_path: Path, encoding: str) -> None:
    node("-p", f"record.folder:={tmp_path / 'out'}")
    assert (record(peer, False).success, record(peer, False).message) == (False, "nothing was recorded")
    peer.listen("intensity")
    infos = peer.node.create_publisher(CameraInfo, "camera_info", 10)
    wait_for(infos.get_subscription_count, "the subscription")
    paths, wanted = [], [random_frame(STAMP + k, encoding) for k in range(3)]
    for _ in range(2):
        started = record(peer, True)
        assert started.success, started.message
        paths.append(Path(started.message))
        again = record(peer, True)
        assert (again.success, "another recording is being written" in again.message) == (False, True)
        infos.publish(CameraInfo(width=SHAPE[1], height=SHAPE[0]))
        peer.heard["intensity"].clear()
        for cdr in wanted:
            stamp = messages.peek_stamp(cdr)
            wait_for(lambda c=cdr, s=stamp: peer.send(cdr=c) and peer.newest("intensity") == s, "the frame's product")
        stopped = record(peer, False)
        read = replayed_images(paths[-1])
        assert (stopped.success, stopped.message) == (True, f"{paths[-1]}: {len(read)} frames, 0 dropped")
        assert list(dict.fromkeys(read)) == wanted
        peer.says("pipeline", f"recording={stopped.message}")
    peer.send(cdr=random_frame(STAMP + 9, encoding))
    assert sorted((tmp_path / "out").iterdir()) == sorted(set(paths))
    for path in paths:
        with open_source(path) as source:
            info = next(source.records).camera_info
            assert info is not None
            assert info.width == SHAPE[1]
    command = ["replay", str(paths[0]), "-o", str(tmp_path / "again.mcap"), "--products", "dolp"]
    assert cli.main(on_cpu(command)) == 0


def test_a_killed_node_leaves_the_complete_chunks(node: Any, peer: drill.Peer, start: Any, tmp_path: Path) -> None:
    process = node("-p", f"record.folder:={tmp_path / 'out'}")
    path = Path(record(peer, True).message)
    start(drill.__file__, "camera", str(STAMP))
    wait_for(lambda: path.stat().st_size > 12_000_000, "some chunks")
    process.send(signal.SIGKILL)
    process.wait()
    read = replayed_images(path)
    # frames take at most 0.31 MB, and the chunk that was being written at most 8 MiB and a frame
    assert len(read) >= (12_000_000 - 8_700_000) // 310_000
    assert read == [drill.image(messages.peek_stamp(cdr)) for cdr in read]  # type: ignore[arg-type]
    peer.hear_camera()


def test_the_node_goes_on_where_the_quota_ends_a_recording(node: Any, peer: drill.Peer, tmp_path: Path) -> None:
    process = node("-p", f"record.folder:={tmp_path / 'out'}", "-p", "record.quota_mb:=1")
    path = Path(record(peer, True).message)
    peer.listen("intensity")
    for _ in range(5):  # 0.3 MB each
        peer.advance("intensity", variant=drill.BIG)
    peer.says("frames", "refused: record 1")
    peer.says("frames", "recordings take record.quota_mb, 1 MB")
    answer = record(peer, False)
    assert (answer.success, "record.quota_mb" in answer.message) == (False, True)
    read = replayed_images(path)
    assert read == [drill.image(messages.peek_stamp(cdr)) for cdr in read]  # type: ignore[arg-type]
    assert 1 <= len(read) <= 4
    assert path.stat().st_size <= 1_000_000
    peer.advance("intensity")
    again = record(peer, True)
    assert again.success, again.message
    record(peer, False)
    process.assert_end(0, signal.SIGTERM)


@pytest.mark.parametrize("end", ["deactivate", "SIGTERM"])
def test_the_end_of_the_node_completes_the_file(managed: Any, peer: drill.Peer, tmp_path: Path, end: str) -> None:
    process = managed("-p", f"record.folder:={tmp_path}")
    assert change_state(peer.node, "/polar_pipeline", "configure")
    assert change_state(peer.node, "/polar_pipeline", "activate")
    path = Path(record(peer, True).message)
    peer.listen("intensity")
    peer.advance("intensity")
    if end == "deactivate":
        assert change_state(peer.node, "/polar_pipeline", "deactivate")
    else:
        process.assert_end(0, signal.SIGTERM)
    with open_source(path, allow_truncated=False):
        pass
    read = replayed_images(path)
    assert len(read) > 0
    assert read == [drill.image(messages.peek_stamp(cdr)) for cdr in read]  # type: ignore[arg-type]
