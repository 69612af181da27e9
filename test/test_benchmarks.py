"""Benchmarks that could measure nothing say so before they start."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from support import ROOT

SMALL = ("--shape", "64", "64", "--repeats", "1", "--output")


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=str(ROOT / "benchmarks"),
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_what_is_compared_with_must_be_there(tmp_path: Path) -> None:
    (tmp_path / "polanalyser.py").write_text("raise ImportError('not on this machine')\n")
    done = run("cpu.py", *SMALL, str(tmp_path / "cpu.json"), PYTHONPATH=os.pathsep.join([str(tmp_path), str(ROOT)]))
    assert done.returncode == 1
    assert done.stderr == "needs polanalyser to compare with (not on this machine); `make bench` installs it\n"
    assert not (tmp_path / "cpu.json").exists()


def test_benchmarks_on_a_gpu_can_be_imported_without_one(tmp_path: Path) -> None:
    """They name much of the package, and no other test on a machine without a GPU executes them."""
    (tmp_path / "cupy.py").touch()
    done = run("-c", "import gpu, npp, ssim, timed_launch", PYTHONPATH=os.pathsep.join([str(tmp_path), str(ROOT)]))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["gpu.py", "ssim.py", "model.py"])
def test_without_cupy_nothing_is_measured_on_a_gpu(name: str, tmp_path: Path) -> None:
    (tmp_path / "cupy.py").write_text("raise ImportError('not on this machine')\n")
    output = tmp_path / "result.json"
    done = run(name, "--output", str(output), PYTHONPATH=os.pathsep.join([str(tmp_path), str(ROOT)]))
    assert done.returncode == 1
    assert done.stderr.startswith("needs a GPU to measure on: CuPy cannot be imported (not on this machine)")
    assert not output.exists()


def test_growth_needs_frames_to_grow_in() -> None:
    done = run("soak.py", "--frames", "30")
    assert done.returncode == 2
    assert "expected at least 1000, from which growth counts, got '30'" in done.stderr


def test_what_is_held_out_was_expected_with_the_model_as_it_is() -> None:
    """Expectations that are stored but not yet measured belong to the configurations of today."""
    done = run(
        "-c",
        "import json, common\n"
        "from configurations import HELD_OUT\n"
        "from polar_pipeline.cuda.model.device import DEVICES\n"
        "from polar_pipeline.cuda.model.launch_model import launch_model\n"
        "report = json.loads((common.RESULTS / 'model_nvidia_h200.json').read_text())\n"
        "assert [row['name'] for row in report['expected']] == [each.name for each in HELD_OUT]\n"
        "keys = lambda rows: {(row['work'], *row['size'], row['frames']) for row in rows}\n"
        "others = [row for row in report['rows'] if row['list'] != 'held out']\n"
        "assert len(keys(report['expected'])) == len(HELD_OUT) >= 30\n"
        "assert not keys(report['expected']) & keys(others)\n"
        "for row, each in zip(report['expected'], HELD_OUT):\n"
        "    assert row['work'] == launch_model(each.work, DEVICES[report['model']]).key, row['name']\n",
    )
    assert done.returncode == 0, done.stderr


def test_a_constant_of_the_cost_model_is_found_again() -> None:
    """Fitted to times that the model itself predicts with another value of it."""
    done = run(
        "-c",
        "import fit, model\n"
        "from configurations import FITTED\n"
        "from polar_pipeline.cuda.model.schedule import Schedule\n"
        "device = fit.DEVICES['h200']\n"
        "names = ('_WAITING', 'busy warps of tile at half resolution')\n"
        "found = [each for each in fit.constants() if each.name in names]\n"
        "start = [each.get() for each in found]\n"
        "each = [c for c in FITTED if c.name in "
        "('mono half, live', 'SSIM, float, 7 taps', 'SSIM, float, 13 taps', 'mono half, preview')]\n"
        "plans = [Schedule('tile', 'tile', 128, 32, 16) if 'half' in c.name else "
        "Schedule('ssim', 'registers', 128, 104, rows=16) for c in each]\n"
        "for constant, value in zip(found, start):\n"
        "    constant.put(1.1 * value)\n"
        "us = [model.predicted_us(c.work, plan, device, c.frames) for c, plan in zip(each, plans)]\n"
        "for constant, value in zip(found, start):\n"
        "    constant.put(value)\n"
        "fit.fit(100 * [fit.MeasuredRow(*row) for row in zip(each, plans, us)], device, found)\n"
        "print(*(constant.get() / value for constant, value in zip(found, start)))\n",
    )
    assert done.returncode == 0, done.stderr
    assert [float(ratio) for ratio in done.stdout.split()] == pytest.approx([1.1, 1.1], abs=0.02)


def test_every_constant_that_is_fitted_changes_a_prediction() -> None:
    """A constant that a module imports by name, or that a record has as a default, must change there, too."""
    done = run(
        "-c",
        "import common, fit\n"
        "rows, device = fit.read(common.RESULTS / 'model_nvidia_h200.json')\n"
        "parts = [rows[first : first + 100] for first in range(0, len(rows), 100)]\n"
        "start = [fit.logarithms(part, device) for part in parts]\n"
        "def changes(part, before):\n"
        "    return abs(fit.logarithms(part, device) - before).max() > 1e-6\n"
        "for constant in fit.constants():\n"
        "    value = constant.get()\n"
        "    constant.put(3 * value)\n"
        "    assert constant.get() == 3 * value, constant.name\n"
        "    assert any(map(changes, parts, start)), constant.name  # most do in the first part\n"
        "    constant.put(value)\n"
        "assert all((fit.logarithms(part, device) == before).all() for part, before in zip(parts, start))\n",
    )
    assert done.returncode == 0, done.stderr


def test_a_constant_is_set_in_every_module_that_has_it() -> None:
    done = run(
        "-c",
        "import fit\n"
        "from polar_pipeline.cuda.model import cost, polarization_cost, ssim_cost\n"
        "constant = next(each for each in fit.constants() if each.name == 'REREAD_SHARE')\n"
        "constant.put(0.25)\n"
        "print(cost.REREAD_SHARE, polarization_cost.REREAD_SHARE, ssim_cost.REREAD_SHARE)\n"
        "ssim_cost.REREAD_SHARE = 0.5\n"
        "fit.constants()\n",
    )
    assert done.stdout == "0.25 0.25 0.25\n"
    assert "ValueError: expected one value of REREAD_SHARE, got [0.25, 0.5]" in done.stderr


def test_predictions_in_the_result_file_are_those_of_the_model(tmp_path: Path) -> None:
    """Predicted again, expectations included, the file keeps every byte."""
    path = ROOT / "benchmarks" / "results" / "model_nvidia_h200.json"
    copy = tmp_path / path.name
    copy.write_bytes(path.read_bytes())
    done = run("model.py", "--predict", str(copy), "--expect")
    assert done.returncode == 0, done.stderr
    assert copy.read_text() == path.read_text()


def test_instructions_in_the_package_are_those_of_the_counters() -> None:
    """Fitted again to the counters in the result file, the package's counts are the same."""
    done = run(
        "-c",
        "import common, counters, json\n"
        "from polar_pipeline.cuda.model.executed_counts import CONFLICTS, COUNTS\n"
        "report = json.loads((common.RESULTS / 'counters_nvidia_h200.json').read_text())\n"
        "assert {kernel: counters.fitted(rows) for kernel, rows in counters.samples(report).items()} == COUNTS\n"
        "lost = counters.conflict_samples(report)\n"
        "assert {name: counters.fitted(*pair, digits=2) for name, pair in lost.items()} == CONFLICTS\n",
    )
    assert done.returncode == 0, done.stderr


def test_instructions_are_found_again() -> None:
    """In launches whose counts are known; what two of them share is shared, and none is negative."""
    done = run(
        "-c",
        "import counters\n"
        "known = {'thread': 100.0, 'row': 20.0, 'dolp': 5.0, 'aolp': 5.0}\n"
        "lanes = [{'thread': 32, 'row': 32 * rows, **({'dolp': 9 * rows, 'aolp': 9 * rows} if polar else {})}\n"
        "         for rows in (2, 4, 8) for polar in (False, True)]\n"
        "rows = [(str(each), each, sum(known[name] * number for name, number in each.items())) for each in lanes]\n"
        "found = counters.fitted(rows)\n"
        "assert found.keys() == known.keys()\n"
        "assert all(abs(found[name] / known[name] - 1) < 0.02 for name in known), found\n"
        "less = [(name, {**each, 'odd': i % 2}, made - 50 * (i % 2)) for i, (name, each, made) in enumerate(rows)]\n"
        "assert counters.fitted(less)['odd'] == 0\n",
    )
    assert done.returncode == 0, done.stderr


COUNTERS = """==PROF== Connected to process 1
"Kernel Name","{names}"
"","{units}"
"mono_half","{values}"
"""


def test_counters_of_launches_are_read(tmp_path: Path) -> None:
    (tmp_path / "text").write_text(COUNTERS)
    done = run(
        "-c",
        "import counters, sys\n"
        "metrics = list(counters.METRICS.values())\n"
        "text = open(sys.argv[1]).read().format(names='\",\"'.join(metrics), units='\",\"'.join('' for _ in metrics), "
        "values='\",\"'.join(f'1,{index:03}' for index, _ in enumerate(metrics)))\n"
        "(found,) = counters.read_counters(text)\n"
        "assert found == {'kernel': 'mono_half', **{name: 1000.0 + i for i, name in enumerate(counters.METRICS)}}\n"
        "row = {'name': 'mono half', 'frames': 64, 'schedule': {'kernel': 'tile'}}\n"
        "assert counters.named([{**row, 'schedule': {'kernel': 'mono_half'}}], [found])[0]['ns'] == found['ns']\n"
        "try:\n"
        "    counters.named([row], [found])\n"
        "except SystemExit as err:\n"
        "    print(err)\n"
        "counters.read_counters('==ERROR== no permission')\n",
        str(tmp_path / "text"),
    )
    assert done.stdout == "mono half: expected a launch of tile, got mono_half\n", done.stderr
    assert done.stderr == "expected a table of ncu, got: ==ERROR== no permission\n"


def test_functions_that_instructions_are_counted_by_are_in_the_kernels() -> None:
    """A function that was renamed would be counted with the wrong stage, or not at all."""
    done = run(
        "-c",
        "import instructions\n"
        "import re\n"
        "text = ''.join(path.read_text() for path in sorted(instructions.KERNELS.glob('*.cu*')))\n"
        "pairs = [name for pair in instructions.PIECEWISE for name in pair]\n"
        "named = sorted({*instructions.RARE, *instructions.STAGES, *pairs})\n"
        "print(*(name for name in named if not re.search(rf'\\b{name}\\(', text)))\n"
        "print(len(instructions.lines_not_in_every_iteration()))\n",
    )
    assert done.returncode == 0, done.stderr
    missing, lines = done.stdout.splitlines()
    assert missing == ""
    assert int(lines) > 5


def test_queries_of_tables_agree(tmp_path: Path) -> None:
    """With NumPy's answer, which the benchmark checks itself before it measures anything."""
    for name in ("pyarrow", "duckdb", "pandas"):
        pytest.importorskip(name)
    output = tmp_path / "table.json"
    few = ("--rows", "20000", "--recordings", "2", "--repeats", "1", "--output", str(output))
    done = run("table.py", *few)
    assert done.returncode == 0, done.stderr
    report = json.loads(output.read_text(encoding="utf-8"))
    assert (report["rows"], report["recordings"]) == (20000, 2)
    assert report["minutes_found"] > 0
    assert set(report["seconds"]) == {"DuckDB", "pandas"}


def test_compressed_mosaics_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    module = importlib.import_module("raw_compression")
    small = np.array([0, -1, 1, -2, 2, 127, -128], np.int8).view(np.uint8)
    assert module.folded(small).tolist() == [0, 1, 2, 3, 4, 254, 255]
    random = np.random.default_rng(0)
    for dtype in (np.uint8, np.uint16):
        raw = random.integers(0, np.iinfo(dtype).max, (30, 44), dtype, endpoint=True)
        for name, way in module.ways({np.uint8: "mono8", np.uint16: "mono16"}[dtype]).items():
            again = way.decode(way.encode(raw), raw.shape, raw.dtype)
            assert again.dtype == raw.dtype, name
            np.testing.assert_array_equal(again, raw, err_msg=name)
