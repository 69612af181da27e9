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

from polar_pipeline.cuda import tune as module
from polar_pipeline.cuda.device import DEVICES
from polar_pipeline.cuda.driver import Driver
from polar_pipeline.cuda.kernels import Schedule, kernels_of
from polar_pipeline.cuda.solver import candidates, requested_works
from polar_pipeline.cuda.tune import tune
from polar_pipeline.cuda.tuned import TUNED_VARIABLE
from polar_pipeline.options import make_options

XAVIER = DEVICES["xavier"]
SIZE = (128, 64)
OPTIONS = make_options(products="dolp,ssim_map,ssim", dtype="uint8")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where files of tuned schedules go."""
    monkeypatch.setenv(TUNED_VARIABLE, str(tmp_path / "tuned"))
    return tmp_path / "tuned"


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

    def tune_kernel(self, kernel: str, text: Any, grid: Any, arguments: List[Any], space: Any, **more: Any) -> Any:
        assert [more[f"grid_div_{axis}"] for axis in "xyz"] == [[], [], []], "the grid is complete"
        assert more["lang"] == "CUPY"
        assert "--fmad=false" in more["compiler_options"]
        assert len(more["answer"]) == len(arguments) == 1
        rows = []
        (threads,) = space["block_size_x"]
        self.calls.append((kernel, threads, len(space["choice"])))
        for number in space["choice"]:
            values = {"block_size_x": threads, "choice": number}
            assert f"#define THREADS {threads}\n" in text(values)
            assert f"#define SHARED_BYTES {more['smem_args']['size'](values)}\n" in text(values)
            assert min(grid(values)) > 0
            assert more["verify"](None, None, None)
            failed = number == 1
            rows.append({**values, "time": "RuntimeFailedConfig" if failed else 1.0 + 1.0 / (threads + number)})
        return rows, {}


@pytest.fixture
def tuner(monkeypatch: pytest.MonkeyPatch) -> Tuner:
    """A machine with a Xavier, as far as `tune` can see."""
    synchronize = SimpleNamespace(deviceSynchronize=lambda: None)
    tuner = Tuner()
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(asarray=Array, cuda=SimpleNamespace(runtime=synchronize)))
    monkeypatch.setitem(sys.modules, "kernel_tuner", tuner)
    driver = SimpleNamespace(device=XAVIER, host_array=lambda shape, dtype: np.full(shape, 7, dtype))
    monkeypatch.setattr(module, "Driver", lambda: driver)
    monkeypatch.setattr(module, "prepare_launches", lambda *_: SimpleNamespace(maps_host=True, close=lambda: None))
    return tuner


def test_every_launch_is_measured_and_kept(tuner: Tuner, folder: Path) -> None:
    works = requested_works(OPTIONS, "u8", SIZE)
    found = tune(OPTIONS, "xavier", "u8", SIZE)
    assert set(found) == {work.key for work in works}
    rows = json.loads((folder / "xavier.json").read_text(encoding="utf-8"))
    assert {row["work"]: Schedule(**row["schedule"]) for row in rows} == {
        name: best.schedule for name, best in found.items()
    }
    able: Dict[str, List[Schedule]] = {
        work.key: [row for kernel in kernels_of(work) for row in candidates(kernel, work, XAVIER)[: module._TRIED]]
        for work in works
    }
    assert sum(number for *_, number in tuner.calls) == sum(map(len, able.values())), "each is tried once"
    for name, best in found.items():  # as `Tuner` has it, the more threads the faster
        assert best.schedule.threads == max(row.threads for row in able[name])


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


@pytest.mark.gpu
@pytest.mark.parametrize("maps_host", [False, True])  # then kernels read what the host sees, as on a Jetson
@pytest.mark.parametrize("raw_format", ["u8", "12p"])  # of 12-bit frames, SSIM compares floats
def test_on_a_gpu(raw_format: str, maps_host: bool, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With two schedules of each kernel: each takes a second."""
    pytest.importorskip("kernel_tuner")
    try:
        device = Driver().device
    except RuntimeError as err:
        pytest.skip(str(err))

    def driver() -> Driver:
        found = Driver()
        found.device = replace(found.device, maps_host=maps_host)
        return found

    monkeypatch.setattr(module, "Driver", driver)
    monkeypatch.setattr(module, "_TRIED", 2)
    found = tune(OPTIONS, device.name, raw_format, SIZE)
    assert len(found) == 2
    assert all(0 < (best.us or 0) < 1e4 for best in found.values())
    assert len(json.loads((folder / f"{device.name}.json").read_text(encoding="utf-8"))) == 2
