"""`polar-pipeline tune`: what it measures, what it keeps; on a GPU with Kernel Tuner, elsewhere with stand-ins."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, List, Tuple

import numpy as np
import pytest

from polar_pipeline.cuda.driver import Driver
from polar_pipeline.cuda.model import tuned as choice
from polar_pipeline.cuda.model.device import get_device
from polar_pipeline.cuda.model.launch_model import LaunchModel, PolarizationModel, SsimModel
from polar_pipeline.cuda.model.schedule import Schedule
from polar_pipeline.cuda.tools import tune as module
from polar_pipeline.cuda.tools.tune import tune
from polar_pipeline.options import make_options

XAVIER = get_device("xavier")
SIZE = (128, 64)
#: On 8-bit frames at half resolution there are two partitions, of two launches each.
OPTIONS = make_options(products="dolp,ssim_map,ssim", dtype="uint8")
LAUNCHES = {
    "mono half bilinear u8 fp16 dolp:uint8",
    "mono half bilinear u8 fp16 dolp:uint8+sums:uint16",
    "ssim mosaic to uint8, 11 taps",
    "ssim uint16 to uint8, 11 taps",
}


@pytest.fixture(name="folder")
def fixture_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where files of tuned schedules go."""
    folder = tmp_path / "tuned"
    monkeypatch.setattr(choice, "tuned_path", lambda device: folder / f"{device.name}.json")
    return folder


class Array:
    """As much of CuPy's arrays as `tune` needs."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = np.array(array)
        self.data = SimpleNamespace(ptr=self._array.ctypes.data)
        self.fill, self.copy = self._array.fill, self._array.copy


class Tuner:
    """Kernel Tuner without a GPU: "runs" configurations in turn, and gives them times; the second fails to launch."""

    observers = SimpleNamespace(BenchmarkObserver=object)

    def __init__(self) -> None:
        self.calls: List[Tuple[str, int, int]] = []

    def tune_kernel(
        self,
        kernel: str,
        text: Any,
        grid: Any,
        arguments: List[Any],
        space: Any,
        *,
        grid_div_x: List[str],
        grid_div_y: List[str],
        grid_div_z: List[str],
        answer: List[Any],
        verify: Any,
        lang: str,
        smem_args: Dict[str, Any],
        compiler_options: List[str],
        defines: Dict[str, Any],
        iterations: int,
        observers: List[Any],
    ) -> Any:
        assert (grid_div_x, grid_div_y, grid_div_z, defines) == ([], [], [], {}), "text and grid have them all"
        assert len(answer) == len(arguments) == 1
        assert lang == "CUPY"
        assert "--std=c++14" in compiler_options
        assert iterations > 0
        assert len(observers) == 1
        rows = []
        (threads,) = space["block_size_x"]
        self.calls.append((kernel, threads, len(space["choice"])))
        for number in space["choice"]:
            values = {"block_size_x": threads, "choice": number}
            assert f"#define THREADS {threads}\n" in text(values)
            assert f"#define SHARED_BYTES {smem_args['size'](values)}\n" in text(values)
            assert min(grid(values)) > 0
            assert arguments[0].nbytes > 0
            assert verify(None, None, None)
            failed = number == 1
            rows.append({**values, "time": "RuntimeFailedConfig" if failed else 1.0 + 1.0 / (threads + number)})
        return rows, {}


@pytest.fixture(name="tuner")
def fixture_tuner(monkeypatch: pytest.MonkeyPatch) -> Tuner:
    """A machine with a Xavier, as far as `tune` can see."""
    synchronize = SimpleNamespace(deviceSynchronize=lambda: None)
    cupy = SimpleNamespace(asarray=Array, cuda=SimpleNamespace(runtime=synchronize))
    tuner = Tuner()
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setitem(sys.modules, "kernel_tuner", tuner)
    driver = SimpleNamespace(device=XAVIER, host_array=lambda shape, dtype: np.full(shape, 7, dtype))
    monkeypatch.setattr(module, "Driver", lambda: driver)
    mapped = SimpleNamespace(maps_host=True, close=lambda: None)
    monkeypatch.setattr(module, "prepare_plan", lambda *_: mapped)
    return tuner


def test_every_launch_of_both_partitions_is_measured_and_kept(tuner: Tuner, folder: Path) -> None:
    found = tune(OPTIONS, "xavier", "u8", SIZE)
    assert set(found) == LAUNCHES
    rows = json.loads((folder / "xavier.json").read_text(encoding="utf-8"))
    assert {row["work"]: Schedule(**row["schedule"]) for row in rows} == {
        name: best.schedule for name, best in found.items()
    }
    for best in found.values():  # as `Tuner` has it, the more threads the faster
        assert best.us > 0
    assert found["ssim mosaic to uint8, 11 taps"].schedule.threads == max(
        threads for kernel, threads, _ in tuner.calls if kernel == "ssim"
    )


def test_every_candidate_is_tried_once(tuner: Tuner, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    able: Dict[str, int] = {}

    for kind in (PolarizationModel, SsimModel):
        original = kind.candidates

        def counted(model: LaunchModel, original: Any = original) -> List[Schedule]:
            found: List[Schedule] = original(model)
            able[model.key] = len(found)
            return found

        monkeypatch.setattr(kind, "candidates", counted)
    tune(OPTIONS, "xavier", "u8", SIZE)
    assert set(able) == LAUNCHES
    assert sum(number for _, _, number in tuner.calls) == sum(able.values())
    assert folder.is_dir()


def test_another_machine_is_refused(tuner: Tuner, folder: Path) -> None:
    with pytest.raises(RuntimeError, match="the GPU of this machine is xavier, not orin"):
        tune(OPTIONS, "orin", "u8", SIZE)
    assert tuner.calls == []
    assert not folder.exists()


def test_nothing_is_written_where_nothing_runs(tuner: Tuner, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuner, "tune_kernel", lambda *_, **__: ([{"choice": 0, "time": "CompilationFailedConfig"}], {}))
    with pytest.raises(RuntimeError, match=r"no schedule of .* could be measured"):
        tune(OPTIONS, "xavier", "u8", SIZE)
    assert not folder.exists()


@pytest.fixture(name="device")
def fixture_device(folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Name of this machine's GPU, for which there are two schedules of each window: each takes a second."""
    try:
        found = Driver().device
    except RuntimeError as err:
        pytest.skip(str(err))
    pytest.importorskip("kernel_tuner")

    for kind in (PolarizationModel, SsimModel):
        original = kind.candidates

        def few(model: LaunchModel, original: Any = original) -> List[Schedule]:
            able = original(model)
            windows = [[row for row in able if row.window == window] for window in ("registers", "tile", "tensor")]
            return [row for rows in windows for row in rows[:40:20]]

        monkeypatch.setattr(kind, "candidates", few)
    assert not folder.exists()
    return found.name


@pytest.mark.gpu
@pytest.mark.parametrize("maps_host", [False, True])  # then kernels read what the host sees, as on a Jetson
@pytest.mark.parametrize("raw_format", ["u8", "12p"])  # of 12-bit frames, SSIM compares floats, and reads no mosaic
def test_on_the_gpu(
    raw_format: str, maps_host: bool, device: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def driver() -> Driver:
        found = Driver()
        found.device = replace(found.device, maps_host=maps_host)
        return found

    monkeypatch.setattr(module, "Driver", driver)
    found = tune(OPTIONS, device, raw_format, SIZE)
    assert len(found) == (4 if raw_format == "u8" else 2)
    assert all(0 < best.us < 1e4 for best in found.values())
    assert len(json.loads((folder / f"{device}.json").read_text(encoding="utf-8"))) == len(found)


@pytest.mark.gpu
def test_schedules_that_differ_in_their_results_are_refused(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = module._SsimTrial.text

    def wrong(self: Any, schedule: Schedule) -> str:
        """The formula's constant goes by the schedule."""
        return text(self, schedule).replace("#define SSIM_C1 ", f"#define SSIM_C1 {schedule.rows} * ")

    monkeypatch.setattr(module._SsimTrial, "text", wrong)
    with pytest.raises(RuntimeError, match="verif"):
        tune(OPTIONS, device, "u8", SIZE)
