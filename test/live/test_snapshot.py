"""Snapshots for bug reports: what is in them, and that replay makes the same of it."""

from __future__ import annotations

import errno
import resource
import shutil
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any, Dict

import cv2
import numpy as np
import pytest

yaml = pytest.importorskip("yaml")

from calibrations import some_calibration  # noqa: E402
from mcap.reader import make_reader  # noqa: E402
from raw_frames import picture_pixels  # noqa: E402
from support import on_cpu  # noqa: E402

from polar_pipeline import SENSORS, Pipeline, cli  # noqa: E402
from polar_pipeline.calibration import load_calibration, save_calibration  # noqa: E402
from polar_pipeline.live import snapshot as snapshots  # noqa: E402
from polar_pipeline.live.parameters import PARAMETERS, make_settings  # noqa: E402
from polar_pipeline.live.preset import flatten  # noqa: E402
from polar_pipeline.live.snapshot import Snapshot, output_folder, write_snapshot  # noqa: E402
from polar_pipeline.options.products import PRODUCTS  # noqa: E402
from polar_pipeline.recordings import messages  # noqa: E402 - yaml may be missing
from polar_pipeline.recordings.messages import Status  # noqa: E402
from polar_pipeline.recordings.source import open_source  # noqa: E402
from polar_pipeline.replay.compare import open_golden  # noqa: E402

STAMP = 1_700_000_000_123_456_789
DEFAULTS = {name: row.default for name, row in PARAMETERS.items()}


@pytest.fixture(autouse=True)
def checked_once(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the test of the texts runs the doctor."""
    if request.function is not test_texts:
        monkeypatch.setattr(snapshots, "_doctor", lambda: "")


def raw(dtype: str = "uint8") -> np.ndarray:
    return np.random.default_rng(5).integers(10, 200, (96, 128)).astype(dtype)


def make(cdr: Any = None, reference: Any = None, **changes: Any) -> Snapshot:
    cdr = bytes(messages.encode_image(STAMP, "camera", "mono8", raw())) if cdr is None else cdr
    statuses = [Status(1, "front/polar_pipeline: frames", "dropped: overload 1", "", {"rate [Hz]": "24.00"})]
    values = {**DEFAULTS, "backend": "cpu", **changes}
    return Snapshot("front/polar_pipeline", cdr, 77, values, make_settings(values), None, reference, statuses)


def load(folder: Path) -> Dict[str, np.ndarray]:
    """The products in a snapshot."""
    arrays: Dict[str, np.ndarray] = {path.stem: np.load(path) for path in folder.glob("*.npy")}
    for path in folder.glob("*.png"):
        pixels = cv2.imread(str(path), cv2.IMREAD_UNCHANGED)
        arrays[path.stem] = cv2.cvtColor(pixels, cv2.COLOR_BGR2RGB) if pixels.ndim == 3 else pixels
    return arrays


def replayed(folder: Path, tmp_path: Path, *options: str) -> Dict[str, np.ndarray]:
    """What `polar-pipeline replay` makes of a snapshot's frame on the CPU."""
    tmp_path.mkdir(exist_ok=True)
    out = tmp_path / "out.mcap"
    command = ["replay", str(folder / "raw.mcap"), "-o", str(out), "--products", ",".join(PRODUCTS), *options]
    assert cli.main(on_cpu(command)) == 0
    with open_golden(out) as golden:
        found = {name: golden.load(name, STAMP) for name in PRODUCTS}
    assert all(array is not None for array in found.values())
    return {name: array for name, array in found.items() if array is not None}


def write(folder: Path, snapshot: Snapshot, quota_mb: int = 1000) -> Path:
    changes = {"snapshot_folder": str(folder), "snapshot_quota_mb": quota_mb}
    return write_snapshot(replace(snapshot, settings=replace(snapshot.settings, **changes)))


def test_replay_reads_it_back(tmp_path: Path) -> None:
    snapshot = make(sensor="IMX250MYR", resolution="full", demosaic="bilinear", ssim_stride=2)
    folder = write(tmp_path / "new" / "folder", snapshot)
    assert folder.parent == tmp_path / "new" / "folder"
    assert folder.name.startswith("front_polar_pipeline_20")
    with open_source(folder / "raw.mcap") as source:
        (record,) = source.records
    assert record.cdr() == snapshot.cdr, "as it came"
    arrays = load(folder)
    np.testing.assert_array_equal(arrays.pop("raw"), raw())
    np.testing.assert_array_equal(picture_pixels(folder / "raw.png"), raw())
    again = replayed(folder, tmp_path, "--params", str(folder / "parameters.yaml"))
    assert set(arrays) == set(again) == set(PRODUCTS)
    for name, array in again.items():
        np.testing.assert_array_equal(arrays[name], array, err_msg=name)


def test_reference_goes_along(tmp_path: Path) -> None:
    reference = bytes(messages.encode_image(5, "", "mono8", np.full((48, 64), 90, np.uint8)))
    folder = write(tmp_path, make(reference=reference, ssim_mode="reference"))
    arrays = load(folder)
    assert set(PRODUCTS) - set(arrays) == {"ssim", "ssim_map"}
    again = replayed(folder, tmp_path, "--ssim-mode", "reference", "--reference", str(folder / "reference.mcap"))
    np.testing.assert_array_equal(again["dolp"], arrays["dolp"])
    assert -1 < float(again["ssim"]) < 1


def test_texts(tmp_path: Path) -> None:
    folder = write(tmp_path, make(**{"raw.flip": [True, False], "display.white_balance": "auto"}))
    document = yaml.safe_load((folder / "parameters.yaml").read_text())
    assert flatten(document["/**"]["ros__parameters"]) == {
        name: list(value) if isinstance(value, (tuple, list)) else value
        for name, value in make(**{"raw.flip": [True, False], "display.white_balance": "auto"}).parameters.items()
    }
    assert "backend cpu" in (folder / "doctor.txt").read_text()
    assert "frames: dropped: overload 1\n    rate [Hz]: 24.00" in (folder / "diagnostics.txt").read_text()
    assert not (folder / "error.txt").exists()


def test_the_calibrations_file_may_be_gone(tmp_path: Path) -> None:
    """The node has read it; a recording names its content."""
    path = tmp_path / "sensor.npz"
    save_calibration(path, some_calibration(SENSORS["IMX250MZR"], raw().shape))
    snapshot, digest = make(calibration=str(path)), load_calibration(path).digest
    path.unlink()
    folder = write(tmp_path / "snapshots", snapshot)
    assert f'calibration: "{path}"\n' in (folder / "parameters.yaml").read_text()
    assert (folder / "dolp.npy").exists()
    with (folder / "raw.mcap").open("rb") as stream:
        (row,) = make_reader(stream).iter_metadata()
    assert row.metadata["calibration"] == digest


@pytest.mark.parametrize(
    ("cdr", "said"),
    [
        (bytes(messages.encode_image(STAMP, "camera", "rgb8", np.zeros((20, 20, 3), np.uint8))), "encoding"),
        (b"\x00\x01\x00\x00half", "8 bytes are not a sensor_msgs/msg/Image"),
    ],
)
def test_a_frame_that_cannot_be_used_is_kept_too(tmp_path: Path, cdr: bytes, said: str) -> None:
    folder = write(tmp_path, make(cdr))
    assert said in (folder / "error.txt").read_text()
    with open_source(folder / "raw.mcap") as source:
        (record,) = source.records
    assert record.data == cdr
    assert load(folder) == {}


def test_full_disk(tmp_path: Path) -> None:
    """Files of at most 10000 bytes, as a disk that is full after that many; the frame alone has more."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, before[1]))
    try:
        with pytest.raises(OSError, match="too large") as caught:
            write(tmp_path, make())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert caught.value.errno == errno.EFBIG
    assert list(tmp_path.iterdir()) == []
    assert write(tmp_path, make()).is_dir()


def test_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROS_HOME", "/ros/home")
    assert output_folder("", "snapshot.folder") == Path("/ros/home/polar_pipeline")
    monkeypatch.delenv("ROS_HOME")
    monkeypatch.setenv("HOME", "/home/robot")
    assert output_folder("", "snapshot.folder") == Path("/home/robot/.ros/polar_pipeline")
    assert output_folder("/other", "snapshot.folder") == Path("/other")
    assert output_folder("~/other", "snapshot.folder") == Path("/home/robot/other")


@pytest.mark.parametrize("name", ["", "~/other", "~nosuch/other"])
def test_a_user_without_a_home(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    def nobody(*_: Any) -> None:
        raise KeyError("uid not found")

    for variable in ("ROS_HOME", "HOME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr("pwd.getpwuid", nobody)
    with pytest.raises(OSError, match=r"name another one as snapshot\.folder"):
        output_folder(name, "snapshot.folder")


def test_a_stamp_that_a_recording_cannot_hold(tmp_path: Path) -> None:
    cdr = bytearray(make().cdr)
    struct.pack_into("<iI", cdr, 4, -7, 5)
    folder = write(tmp_path, make(bytes(cdr)))
    with open_source(folder / "raw.mcap") as source:
        (record,) = source.records
    assert record.data == cdr, "as it came"
    assert record.time_ns == make().received_ns
    assert set(load(folder)) == {"raw", *PRODUCTS}


def test_the_oldest_make_room(tmp_path: Path) -> None:
    (tmp_path / "kept_20200101_000000_000").write_text("a file")
    (tmp_path / "my own folder").mkdir()
    (tmp_path / "link_20200101_000000_000").symlink_to(tmp_path / "my own folder")
    mine = {path.name for path in tmp_path.iterdir()}
    large = make(bytes(messages.encode_image(STAMP, "camera", "mono8", np.zeros((480, 640), np.uint8))))
    first = write(tmp_path, large)
    size = sum(path.stat().st_size for path in first.iterdir())
    assert 2_000_000 < size < 10_000_000
    quota_mb = int(3.5 * size / 1e6)
    snapshots = [first, *(write(tmp_path, large, quota_mb) for _ in range(5))]
    left = sorted(path for path in tmp_path.iterdir() if path.name not in mine)
    assert left == sorted(snapshots[-3:])
    assert {path.name for path in tmp_path.iterdir()} >= mine, "what is no snapshot stays"
    with pytest.raises(OSError, match="larger than the quota of 1000000"):
        write(tmp_path, large, 1)
    assert sorted(path for path in tmp_path.iterdir() if path.name not in mine) == left


def test_another_node_makes_room_in_the_same_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    others = [tmp_path / f"other_2020010{day}_000000_000" for day in (1, 2)]
    for path in others:
        path.mkdir()
    match, looked_at = snapshots.NAME, []

    class Name:
        pattern = match.pattern

        def fullmatch(self, name: str) -> Any:
            looked_at.append(name)
            if len(looked_at) == len(others):  # all are listed, and none was opened
                shutil.rmtree(others[0])
            return match.fullmatch(name)

    monkeypatch.setattr(snapshots, "NAME", Name())
    folder = write(tmp_path, make())
    assert sorted(tmp_path.iterdir()) == sorted([folder, others[1]])


def test_replay_refuses_what_are_no_parameters(tmp_path: Path, capsys: Any) -> None:
    folder, path, out = write(tmp_path, make()), tmp_path / "wrong.yaml", tmp_path / "out.mcap"
    path.write_text("resolution: full")
    assert cli.main(["replay", str(folder / "raw.mcap"), "-o", str(out), "--params", str(path)]) == 2
    assert "wrong.yaml is not a file of ROS parameters" in capsys.readouterr().err
    assert not out.exists()


def test_what_the_command_line_names_wins(tmp_path: Path) -> None:
    folder = write(tmp_path, make(resolution="full", output_depth="uint8", min_intensity=0.5))
    params = ("--params", str(folder / "parameters.yaml"))
    as_node = replayed(folder, tmp_path / "a", *params)
    assert (as_node["dolp"].shape, as_node["dolp"].dtype) == ((96, 128), np.uint8)
    half = replayed(folder, tmp_path / "b", *params, "--resolution", "half", "--dtype", "float32")
    assert (half["dolp"].shape, half["dolp"].dtype) == ((48, 64), np.float32)
    assert np.isnan(half["dolp"]).any()  # by the file's min_intensity
    bright = replayed(folder, tmp_path / "c", *params, "--dtype", "float32", "--min-intensity", "0")
    assert not np.isnan(bright["dolp"]).any()


def test_a_rectified_frame(tmp_path: Path) -> None:
    """By the lens calibration that the snapshot holds too."""
    k, d = np.array([90.0, 0, 63, 0, 90, 48, 0, 0, 1]), np.array([-0.2, 0.03, 0.01, 0, 0])
    info = messages.CameraInfo(10**9, "camera", 96, 128, "plumb_bob", d, k, np.zeros(9), np.zeros(12))
    cdr = bytes(messages.encode_camera_info(info, 10**9, "camera"))
    snapshot = replace(make(**{"output.rectify": "camera_info"}), camera_info=cdr)
    arrays = load(write(tmp_path, snapshot))
    want = Pipeline(products="dolp", backend="cpu", rectify=messages.lens_of(info))(raw())["dolp"]
    np.testing.assert_array_equal(arrays["dolp"], want)
    assert "dolp_sigma" not in arrays
