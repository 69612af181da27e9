"""`polar-pipeline tune`: what it measures, what it keeps; on a GPU, elsewhere on stand-ins for it."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any, Iterator, Optional

import pytest
from calibrations import mild_calibration
from test_backend import COPIED, MAPPED, HostDriver, on_gpus, real_driver, stand_in

from polar_pipeline.backends.backend import CompileError, DeviceLostError
from polar_pipeline.backends.cuda import tune as module
from polar_pipeline.backends.cuda.launch import Schedule
from polar_pipeline.backends.cuda.program import Program, requested_launches
from polar_pipeline.backends.cuda.schedules import TUNED_VARIABLE, candidates
from polar_pipeline.backends.cuda.tune import tune
from polar_pipeline.options import make_options

SIZE = (128, 64)
OPTIONS = make_options(products="dolp,ssim_map,ssim", dtype="uint8")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where files of tuned schedules go; two schedules of each launch are tried, on few frames."""
    monkeypatch.setenv(TUNED_VARIABLE, str(tmp_path / "tuned"))
    monkeypatch.setattr(module, "_TRIED", 2)
    monkeypatch.setattr(module, "_FRAMES", 2)
    return tmp_path / "tuned"


@pytest.fixture(params=[MAPPED, COPIED], ids=lambda device: device.name)
def driver(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> HostDriver:
    """A machine whose GPU maps host memory, and one that copies it."""
    made = stand_in(request.param)
    monkeypatch.setattr(module, "Driver", lambda: made)
    return made


def test_the_fastest_schedule_of_every_launch_is_kept(
    driver: HostDriver, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    falling = itertools.count(1000, -1)
    monkeypatch.setattr(driver, "elapsed", lambda *_: next(falling) / 1000)
    found = tune(OPTIONS, driver.device.name, "u8", SIZE)
    rows = json.loads((folder / f"{driver.device.name}.json").read_text(encoding="utf-8"))
    assert {row["work"]: Schedule(**row["schedule"]) for row in rows} == {
        name: best.schedule for name, best in found.items()
    }
    for launch in requested_launches(OPTIONS, "u8", SIZE):  # the last one that was tried took least time
        assert found[launch.key].schedule == candidates(launch, driver.device)[1]
    assert not driver.on_device


@pytest.mark.usefixtures("driver")
@pytest.mark.parametrize("driver", [COPIED], indirect=True)
def test_calibrated_and_rotated_frames_of_12_bit() -> None:
    options = make_options(products="dolp,ssim", rotate=90, calibration=mild_calibration((64, 128)), bit_depth=12)
    found = tune(options, "h200", "12p", SIZE)
    assert [name.split()[0] for name in found] == ["mono", "transform", "ssim"]


def test_another_machine_is_refused(driver: HostDriver, folder: Path) -> None:
    with pytest.raises(RuntimeError, match=f"the GPU of this machine is {driver.device.name}, not orin"):
        tune(OPTIONS, "orin", "u8", SIZE)
    assert not folder.exists()


@pytest.mark.usefixtures("driver")
@pytest.mark.parametrize("driver", [COPIED], indirect=True)
def test_what_fails_is_passed_over(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    failures: Iterator[Optional[Exception]] = itertools.cycle([CompileError("tile.cu(3): error: no"), None])

    def fail(*arguments: Any, **more: Any) -> Program:
        failure = next(failures)
        if failure is not None:
            raise failure
        return Program(*arguments, **more)

    monkeypatch.setattr(module, "Program", fail)
    assert len(tune(OPTIONS, "h200", "u8", SIZE)) == 2
    assert "tile.cu(3): error: no" in caplog.text
    kept = (folder / "h200.json").read_bytes()
    for error, said in ((CompileError("no"), "no schedule of .* could be measured"), (DeviceLostError("gone"), "gone")):
        failures = itertools.cycle([error])
        with pytest.raises(RuntimeError, match=said):
            tune(OPTIONS, "h200", "u8", SIZE)
        assert (folder / "h200.json").read_bytes() == kept


@pytest.mark.parametrize("driver", [COPIED], indirect=True)
def test_schedules_that_disagree_are_an_error(driver: HostDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second one stores nothing."""
    launch, turns = driver.launch, itertools.count()
    of_the_first = 2 * module._FRAMES
    monkeypatch.setattr(driver, "launch", lambda *call: next(turns) < of_the_first and launch(*call))
    with pytest.raises(RuntimeError, match=r"gives another .* than the first schedule of its kernel"):
        tune(OPTIONS, "h200", "u8", SIZE)


@pytest.mark.parametrize("name", on_gpus[:1])
@pytest.mark.parametrize("maps_host", [False, True])  # then kernels read what the host sees, as on a Jetson
@pytest.mark.parametrize("raw_format", ["u8", "12p"])  # of 12-bit frames, SSIM compares floats
def test_on_a_gpu(name: str, raw_format: str, maps_host: bool, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = real_driver(name)
    device = replace(driver.device, maps_host=maps_host)
    monkeypatch.setattr(driver, "device", device)
    monkeypatch.setattr(module, "Driver", lambda: driver)
    found = tune(OPTIONS, device.name, raw_format, SIZE)
    assert len(found) == 2
    assert all(0 < best.us < 1e4 for best in found.values())
    assert len(json.loads((folder / f"{device.name}.json").read_text(encoding="utf-8"))) == 2
