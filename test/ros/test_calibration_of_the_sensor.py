"""The parameter `calibration`, with the real executable over real rclpy and DDS, and what a snapshot says of it."""
# ruff: noqa: E402 - rclpy may be missing

from __future__ import annotations

from pathlib import Path
from typing import Iterator, List

import pytest

rclpy = pytest.importorskip("rclpy")

import drill
from calibrations import some_calibration
from support import wait_for

from polar_pipeline import messages
from polar_pipeline.calibration import load_calibration, save_calibration
from polar_pipeline.live.parameters import PARAMETERS, make_settings
from polar_pipeline.live.snapshot import Snapshot, write_snapshot
from polar_pipeline.options import make_options
from polar_pipeline.sensor.mosaic import SENSORS

pytestmark = pytest.mark.ros
SENSOR = SENSORS["IMX250MZR"]
#: (height, width) that is calibrated: all of the drill's frames but its largest ones.
REGION = (256, 320)


@pytest.fixture(name="paths")
def fixture_paths(tmp_path: Path) -> List[Path]:
    """Two calibrations, and one of another sensor."""
    paths = [tmp_path / f"{name}.npz" for name in ("first", "second", "color")]
    save_calibration(paths[0], some_calibration(SENSOR, REGION))
    save_calibration(paths[1], some_calibration(SENSOR, REGION, seed=1))
    save_calibration(paths[2], some_calibration(SENSORS["IMX250MYR"], REGION))
    return paths


@pytest.fixture(name="node")
def fixture_node(paths: List[Path], tmp_path: Path) -> Iterator[drill.Process]:
    """The node, started with the first calibration."""
    process = drill.start_node(
        tmp_path / "node.log",
        *("-p", f"calibration:={paths[0]}", "-p", f"snapshot.folder:={tmp_path}/snapshots"),
        is_forked=True,
    )
    yield process
    process.close()
    assert process.wait() == 0, process.text


@pytest.mark.usefixtures("node")
def test_frames_are_corrected(peer: drill.Peer, paths: List[Path], tmp_path: Path) -> None:
    """From the start; by another file once that is set; a file that does not fit changes nothing."""
    peer.listen("dolp", "intensity")
    peer.advance("dolp", "intensity")
    settings = {"camera": {"calibration": str(paths[0])}}
    assert drill.check(peer.heard, **settings)
    peer.says("pipeline", load_calibration(paths[0]).digest)

    for value, reason in (
        (str(tmp_path / "none.npz"), f"calibration: {tmp_path}/none.npz cannot be read: there is no such file"),
        (str(paths[2]), "calibration is of a IMX250MYR"),
    ):
        answer = peer.change(calibration=value, frame_id="refused")
        wait_for(answer.done, "the answer")
        assert not answer.result().result.successful
        assert reason in answer.result().result.reason

    answer = peer.change(calibration=str(paths[1]), frame_id="second")
    wait_for(answer.done, "the answer")
    assert answer.result().result.successful, answer.result().result.reason
    peer.advance("dolp", "intensity")
    settings["second"] = {"calibration": str(paths[1])}
    assert drill.check(peer.heard, **settings)

    answer = peer.change(calibration="", frame_id="plain")
    wait_for(answer.done, "the answer")
    peer.advance("dolp", "intensity")
    settings["plain"] = {}
    drill.check(peer.heard, **settings)
    seen = {messages.decode_image(cdr).frame_id for cdr in peer.heard["dolp"]}
    assert seen == {"camera", "second", "plain"}


def _calibration_of(folder: Path) -> str:
    from mcap.reader import make_reader

    with (folder / "raw.mcap").open("rb") as stream:
        (row,) = make_reader(stream).iter_metadata()
    return str(row.metadata["calibration"])


def test_a_snapshot_needs_no_file(paths: List[Path], tmp_path: Path) -> None:
    """The calibration was removed after the node had read it."""
    values = {**{name: row.default for name, row in PARAMETERS.items()}, "backend": "cpu"}
    values.update({"calibration": str(paths[0]), "snapshot.folder": str(tmp_path / "snapshots")})
    settings, digest = make_settings(values), load_calibration(paths[0]).digest
    paths[0].unlink()
    cdr = bytes(messages.encode_image(10**9, "camera", "mono8", drill.picture(10**9)))
    folder = write_snapshot(Snapshot("node", cdr, 0, values, settings, None, None, ()))
    assert (folder / "dolp.npy").exists()
    assert _calibration_of(folder) == digest


def test_the_largest_frame_is_what_is_calibrated(paths: List[Path]) -> None:
    values = {name: row.default for name, row in PARAMETERS.items()}
    settings = make_settings({**values, "calibration": str(paths[0]), "raw.roi_offset": [100, 20]})
    assert settings.options.largest_frame() == (236, 220)
    assert make_options().largest_frame() == (2048, 2448)
    for offset in ([305, 0], [0, 241]):
        with pytest.raises(ValueError, match=r"roi_offset .* lies outside the calibration, which is of 320x256 pixels"):
            make_settings({**values, "calibration": str(paths[0]), "raw.roi_offset": offset})


def test_a_small_calibration_is_no_obstacle_to_the_start(tmp_path: Path, peer: drill.Peer) -> None:
    """The node warms up with frames of the size that is calibrated."""
    small = tmp_path / "small.npz"
    save_calibration(small, some_calibration(SENSOR, (48, 64), (10, 6)))
    process = drill.start_node(tmp_path / "small.log", "-p", f"calibration:={small}", "-p", "raw.roi_offset:=[10, 6]")
    try:
        peer.listen("dolp")
        peer.advance("dolp")
        drill.check(peer.heard, camera={"calibration": str(small), "roi_offset": (10, 6)})
        assert "Traceback" not in process.text
    finally:
        process.close()
