"""Which schedule a launch takes: measured before predicted, and the files of what was measured."""

from __future__ import annotations

import json
import math
import os
from dataclasses import replace
from pathlib import Path
from typing import Any, Dict, List, Tuple

import pytest

from polar_pipeline.cuda.model import tuned as choice
from polar_pipeline.cuda.model.device import DEVICES, Device, get_device
from polar_pipeline.cuda.model.launch_model import KernelWork, launch_model
from polar_pipeline.cuda.model.partition import Partition, partitions
from polar_pipeline.cuda.model.requested_work import work_of
from polar_pipeline.cuda.model.schedule import Schedule, ScheduleError
from polar_pipeline.cuda.model.specs import KERNELS
from polar_pipeline.cuda.model.ssim_work import SsimWork, make_ssim_work
from polar_pipeline.cuda.model.tuned import (
    TUNED_VARIABLE,
    Measured,
    choose,
    keep,
    shipped_path,
    tuned,
    tuned_folder,
    tuned_path,
)
from polar_pipeline.cuda.model.work import PolarizationWork
from polar_pipeline.options import make_options
from polar_pipeline.plan import make_plan

XAVIER, H200 = (get_device(name) for name in ("xavier", "h200"))
SIZE = (2448, 2048)
LIVE = "intensity,dolp,aolp,preview"


def make(
    products: str = "intensity,dolp,aolp", raw_format: str = "u8", size: Tuple[int, int] = SIZE, **options: Any
) -> PolarizationWork:
    return work_of(make_options(products=products, dtype="uint8", **options), raw_format, size)


def compared(products: str = "ssim_map,ssim", size: Tuple[int, int] = SIZE, **values: Any) -> SsimWork:
    options = make_options(products=products, dtype="uint8", **values)
    return make_ssim_work(work_of(options, "u8", size), make_plan(options.products), options)


@pytest.mark.parametrize(
    ("work", "key"),
    [
        (make(), "mono half bilinear u8 fp16 intensity:uint8+dolp:uint8+aolp:uint8"),
        (
            make("stokes", "12p", sensor="IMX250MYR", co_sited=False),
            "color half own-site mhc 12p fp32 stokes:float32",
        ),
        (make("ssim", resolution="full"), "mono full adaptive u8 fp32 sums:uint16"),
        (compared(), "ssim uint16 to uint8, 11 taps"),
        (compared("ssim", ssim_stride=2, ssim_window=7), "ssim uint16 to means only, 7 taps, stride 2"),
    ],
)
def test_work_key(work: KernelWork, key: str) -> None:
    assert launch_model(work, XAVIER).key == key


@pytest.fixture(name="file")
def fixture_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of a device on which nothing was measured."""
    path = tmp_path / "tuned" / "xavier.json"
    monkeypatch.setattr(choice, "tuned_path", lambda _: path)
    return path


def slowest(work: KernelWork, device: Device) -> Schedule:
    """What no prediction takes."""
    model = launch_model(work, device)
    return max(model.candidates(), key=lambda schedule: model.predict(schedule).us)


WORKS = pytest.mark.parametrize("work", [make(), compared()], ids=["polarization", "ssim"])


@WORKS
def test_a_measured_schedule_wins_for_its_size(file: Path, work: KernelWork) -> None:
    assert tuned(launch_model(work, XAVIER)) is None
    predicted, measured = choose(launch_model(work, XAVIER)), slowest(work, XAVIER)
    assert measured != predicted
    keep(launch_model(work, XAVIER), Measured(measured, 2.5))
    assert choose(launch_model(work, XAVIER)) == measured
    assert tuned(launch_model(work, XAVIER)) == Measured(measured, 2.5)
    assert tuned(launch_model(replace(work, height=work.height // 2), XAVIER)) is None
    keep(launch_model(work, XAVIER), Measured(predicted, 2.25))  # another day
    assert tuned(launch_model(work, XAVIER)) == Measured(predicted, 2.25)
    assert len(json.loads(file.read_text(encoding="utf-8"))) == 1


@WORKS
def test_a_measured_schedule_that_does_not_hold_is_passed_over(file: Path, work: KernelWork) -> None:
    wrong = replace(slowest(work, XAVIER), tile_x=100_000, tile_y=64, rows=16, lines=0)
    keep(launch_model(work, XAVIER), Measured(wrong, 1.0))
    assert str(wrong.tile_x) in file.read_text(encoding="utf-8")
    assert tuned(launch_model(work, XAVIER)) is None
    assert choose(launch_model(work, XAVIER)) in launch_model(work, XAVIER).candidates()


def test_what_was_measured_before_is_kept(file: Path) -> None:
    rows: List[KernelWork] = [make(), compared(), make("dolp")]
    for us, work in enumerate(rows):
        keep(launch_model(work, XAVIER), Measured(choose(launch_model(work, XAVIER)), us))
    found = [tuned(launch_model(work, XAVIER)) for work in rows]
    assert [row.us for row in found if row is not None] == [0, 1, 2]
    assert [path.name for path in file.parent.iterdir()] == [file.name]  # nothing half written is left


def test_what_this_user_measured_comes_before_what_is_shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TUNED_VARIABLE, str(tmp_path / "of" / "mine"))
    shipped = json.loads(shipped_path(H200).read_text(encoding="utf-8"))
    model = launch_model(make(LIVE, sensor="IMX250MYR"), H200)
    assert (model.key, list(model.size)) in [(row["work"], row["size"]) for row in shipped]
    other = slowest(model.work, H200)
    assert choose(model) != other
    assert keep(model, Measured(other, 1.0)) == tmp_path / "of" / "mine" / "h200.json" == tuned_path(H200)
    assert choose(model) == other
    assert choose(launch_model(make(), H200)).rows == 4  # the others are still those that are shipped
    assert json.loads(shipped_path(H200).read_text(encoding="utf-8")) == shipped
    assert len(json.loads(tuned_path(H200).read_text(encoding="utf-8"))) == 1


def test_where_tuned_schedules_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TUNED_VARIABLE, "")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert tuned_folder() == tmp_path / "polar_pipeline" / "tuned"
    monkeypatch.setenv("XDG_DATA_HOME", "here")  # relative
    monkeypatch.setenv("HOME", str(tmp_path))
    assert tuned_folder() == tmp_path / ".local" / "share" / "polar_pipeline" / "tuned"
    monkeypatch.setenv("HOME", "nowhere")
    work = make(LIVE, sensor="IMX250MYR")
    assert tuned(launch_model(work, H200)) is not None  # shipped
    with pytest.raises(FileNotFoundError, match="no home folder; set XDG_DATA_HOME"):
        keep(launch_model(work, H200), Measured(slowest(work, H200), 1.0))


def entry(**changes: Any) -> str:
    """A file of one measured schedule, with some of its values changed."""
    schedule = {"kernel": "tile", "window": "tile", "threads": 64, "tile_x": 8}
    return json.dumps([{"work": "x", "size": [1, 2], "schedule": schedule, "us": 1, **changes}])


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[1]",
        '[{"work": "x"}]',
        '[{"work": "x", "size": [1, 2], "schedule": {"y": 1}, "us": 1}]',
        '[{"work": "x", "size": [1, 2], "schedule": {"kernel": "tile", "window": "tile", "threads": null}, "us": 1}]',
        '[{"work": "x", "size": [1, 2], "schedule": {"kernel": "tile", "window": "tile", "threads": 64.0}, "us": 1}]',
        "{}",
        "5",
        "[" * 100_000,
        "[" + "9" * 500_000 + "]",
        entry(work=5),
        entry(work=[]),
        entry(size=[1]),
        entry(size="12"),
        entry(size=[True, 2]),
        entry(size=[1.5, 2]),
        entry(size=[10**9, 2]),
        entry(us="1"),
        entry(us=True),
        entry(us=math.nan),
        entry(us=math.inf),
        entry(us=10**900),
        entry(us=-1),
        entry(schedule=[]),
        entry(schedule={"kernel": 1, "window": "tile", "threads": 64, "tile_x": 8}),
        entry(schedule={"kernel": "tile", "window": [], "threads": 64, "tile_x": 8}),
        entry(schedule={"kernel": "tile", "window": "tile", "threads": 64, "tile_x": 10**900}),
        entry(schedule={"kernel": "tile", "window": "tile", "threads": True, "tile_x": 8}),
        entry(schedule={"kernel": "tile", "window": "tile", "threads": 64, "tile_x": 8, "more": 1}),
        entry()[:-3] + ', "us": 2}]',
    ],
    ids=lambda text: text[:60],
)
def test_a_broken_file_is_an_error_and_stays(file: Path, text: str) -> None:
    file.parent.mkdir()
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ScheduleError, match=r"xavier\.json is no list of tuned schedules") as caught:
        choose(launch_model(make(), XAVIER))
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 800
    with pytest.raises(ScheduleError, match=r"xavier\.json is no list of tuned schedules"):
        keep(launch_model(make(), XAVIER), Measured(Schedule("tile", "tile", 128, 16, 16), 1.0))
    assert file.read_text(encoding="utf-8") == text


@pytest.mark.timeout(60)
def test_what_is_no_file_is_an_error(file: Path) -> None:
    file.parent.mkdir()
    os.mkfifo(file)
    with pytest.raises(ScheduleError, match="no regular file"):
        choose(launch_model(make(), XAVIER))
    file.unlink()
    file.mkdir()
    with pytest.raises(ScheduleError, match="no regular file"):
        choose(launch_model(make(), XAVIER))


@pytest.mark.parametrize("sizes", [(0, 0, 0, 0, 0), (1 << 20,) * 5, (32, 0, 0, 1, 1), (64, 7, 3, 2, 1)])
@pytest.mark.parametrize(("kernel", "window"), [("tile", "tile"), ("tile", "no"), ("no", "tile"), ("ssim", "tensor")])
def test_a_schedule_of_no_sense_is_passed_over(file: Path, kernel: str, window: str, sizes: Tuple[int, ...]) -> None:
    works: List[KernelWork] = [make(), make(resolution="full"), make(sensor="IMX250MYR", resolution="full"), compared()]
    for work in works:
        keep(launch_model(work, XAVIER), Measured(Schedule(kernel, window, *sizes), 1.0))
        assert tuned(launch_model(work, XAVIER)) is None
    assert file.is_file()


def test_no_schedule_fits() -> None:
    tiny = replace(XAVIER, name="tiny", shared_per_block=256)
    with pytest.raises(ScheduleError, match=r"ssim on tiny: a map of 1224x1024 needs \d+ bytes.* a block has 256 and"):
        choose(launch_model(compared(), tiny))


@pytest.mark.parametrize("device", DEVICES.values(), ids=DEVICES)
@pytest.mark.parametrize("window", [3, 11, 15])
def test_every_size_has_a_schedule_of_ssim(device: Device, window: int) -> None:
    """The widest sensors have 14192 columns; blocks of more than 352 threads do not fit twice on a multiprocessor."""
    for width in (16, 48, 1224, 5320, 10880, 10896, 14192, 65520):
        work = replace(compared("ssim", (width, 10640), resolution="full", ssim_window=window), source="float32")
        chosen = choose(launch_model(work, device))
        assert chosen.tile_x + window - 1 <= chosen.threads <= 352


def test_shipped_files_belong_to_devices() -> None:
    folder = shipped_path(XAVIER).parent
    for path in folder.glob("*.json"):
        assert path.stem in DEVICES
        for entry in json.loads(path.read_text(encoding="utf-8")):
            assert entry["schedule"]["kernel"] in {*KERNELS, "ssim"}
            assert set(entry) == {"work", "size", "schedule", "us"}


def test_the_solver_takes_what_was_measured_on_an_h200() -> None:
    work = make(LIVE, sensor="IMX250MYR")
    assert choose(launch_model(work, H200)) == Schedule("color_strip", "strip", 64, 4, rows=16)
    assert choose(launch_model(make(), H200)).rows == 4  # the model itself prefers 2 for a frame alone


def ways(values: Dict[str, Any]) -> List[Partition]:
    options = make_options(products="dolp,ssim_map", dtype="uint8", **values)
    return partitions(work_of(options, "u8", SIZE), make_plan(options.products), options, XAVIER)


@pytest.mark.usefixtures("file")
@pytest.mark.parametrize("is_fused", [True, False])
def test_the_cut_that_was_measured_to_be_faster_is_taken(is_fused: bool) -> None:
    """First all but one launch is measured, which decides nothing, then that one."""
    predicted = ways({})
    assert [way.measured_us for way in predicted] == [None, None]
    launches = [
        (launch.model, launch.schedule, 10.0 if way.ssim_from_mosaic == is_fused else 20.0)
        for way in predicted
        for launch in way.launches
    ]
    for model, schedule, us in launches:
        assert [way.ssim_from_mosaic for way in ways({})] == [way.ssim_from_mosaic for way in predicted]
        keep(model, Measured(schedule, us))
    assert [(way.ssim_from_mosaic, way.measured_us) for way in ways({})] == [(is_fused, 20.0), (not is_fused, 40.0)]
