"""What the kernels execute and move, by the GPU's counters, for launches that `model.py` measured.

    python benchmarks/counters.py FILE [--seconds S]
    python benchmarks/counters.py --fit FILE

FILE is a result file of `model.py`. Each of its launches runs once under Nsight Compute (`ncu`, which must be allowed
to read the counters), with as many frames as were measured and clocks left as they are; chosen schedules come first.
Sums over all frames are written to `results/counters_*.json`. `--fit` reads such a file, needs no GPU, and writes
`polar_pipeline/cuda/model/executed_counts.py`: how many instructions a thread, a row and a pixel take in the kernels,
by what a work asks of them (`executed.py`, `tile_cost.py`), and how many clocks `tile` loses in shared memory
(`bank_conflicts.py`). The fit is a linear one of relative errors; counts are not negative, and near those in the code
where launches do not tell them apart.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Tuple

import common
import numpy as np
from configurations import KNOWN

from polar_pipeline.cuda.model.bank_conflicts import conflict_quantities
from polar_pipeline.cuda.model.cost import ISSUE_SLOTS
from polar_pipeline.cuda.model.device import DEVICES, WARP
from polar_pipeline.cuda.model.executed import (
    computes_in_halves,
    executed_stage,
    in_the_code,
    quantities,
)
from polar_pipeline.cuda.model.instructions import SHARES
from polar_pipeline.cuda.model.launch_model import launch_model
from polar_pipeline.cuda.model.polarization_cost import COUNTED
from polar_pipeline.cuda.model.schedule import Schedule
from polar_pipeline.cuda.model.tile_cost import tile_quantities, tile_stage
from polar_pipeline.cuda.model.work import PolarizationWork

TARGET = Path(__file__).resolve().parent.parent / "polar_pipeline" / "cuda" / "model" / "executed_counts.py"
#: Name in the result file -> Nsight Compute's.
METRICS = {
    "instructions": "smsp__inst_executed.sum",
    "alu": "smsp__inst_executed_pipe_alu.sum",
    "fma": "smsp__inst_executed_pipe_fma.sum",
    "special": "smsp__inst_executed_pipe_xu.sum",
    "load_store": "smsp__inst_executed_pipe_lsu.sum",
    "uniform": "smsp__inst_executed_pipe_uniform.sum",
    "bank_conflicts": "l1tex__data_bank_conflicts_pipe_lsu.sum",
    "memory_read_bytes": "dram__bytes_read.sum",
    "memory_written_bytes": "dram__bytes_write.sum",
    "cache_bytes": "lts__t_bytes.sum",
    "issue_percent": "smsp__issue_active.avg.pct_of_peak_sustained_active",
    "resident_warps": "sm__warps_active.avg.per_cycle_active",
    "registers": "launch__registers_per_thread",
    "ns": "gpu__time_duration.sum",
}
#: How firmly counts of outputs are held near those in the code, and others near 1: of two things that launches always
#: have together, each gets a part. DoLP and AoLP as floats come with angles as floats only.
FIRM, WEAK, FIRMER = 0.05, 1e-3, {"dolp float32": 3.0, "aolp float32": 3.0}


# ----------------------------------------------------------------------------------------------------------- measuring


def launches(path: Path) -> List[Dict[str, Any]]:
    """Rows of a result file of `model.py`, chosen schedules first."""
    rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
    return sorted(rows, key=lambda row: not row.get("is_chosen", True))


def launch_all(path: Path, seconds: float) -> None:
    """Launch each row once, as long as seconds suffice; the kernels are compiled ahead, on every core."""
    import gpu
    from timed_launch import TimedLaunch, compiled, cupy

    start, bench = time.monotonic(), gpu.Bench()
    rows = launches(path)
    models = [launch_model(KNOWN[row["name"]].work, bench.device) for row in rows]
    schedules = [Schedule(**row["schedule"]) for row in rows]
    with ThreadPoolExecutor() as pool:
        made = [pool.submit(compiled, *pair, bench.arch) for pair in zip(models, schedules)]
        for row, model, schedule, code in zip(rows, models, schedules, made):
            if time.monotonic() - start > seconds:
                break
            code.result()
            launch = TimedLaunch(model, schedule, row["frames"], bench.arch)
            launch()
            cupy.cuda.Device().synchronize()
            del launch
            cupy.get_default_memory_pool().free_all_blocks()
        for code in made:
            code.cancel()


def read_counters(text: str) -> List[Dict[str, Any]]:
    """Kernel and counters of each launch, from the table that Nsight Compute writes.

    Raises:
        SystemExit: The text has no table with a launch.
    """
    table = list(csv.reader(line for line in text.splitlines() if line.startswith('"')))
    if len(table) < 3:
        raise SystemExit(f"expected a table of ncu, got: {text[-500:]}")
    head, _, *launched = table  # the second line has units
    return [
        {
            "kernel": row["Kernel Name"],
            **{name: float(row[metric].replace(",", "")) for name, metric in METRICS.items()},
        }
        for row in (dict(zip(head, values)) for values in launched)
    ]


def measure(path: Path, seconds: float) -> Dict[str, Any]:
    """The counters of as many launches as seconds suffice for.

    Raises:
        SystemExit: Nsight Compute failed.
    """
    import gpu

    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "counters.csv"
        command = [
            *("ncu", "--clock-control", "none", "--cache-control", "none", "--csv", "--page", "raw"),
            *("--metrics", ",".join(METRICS.values()), "--log-file", str(log)),
            *("--kernel-name", "regex:^(tile|mono_|color_|ssim)"),
            *(sys.executable, __file__, str(path), "--launch", "--seconds", str(seconds)),
        ]
        status = subprocess.run(command, check=False).returncode
        text = log.read_text(encoding="utf-8") if log.exists() else ""
        if status:
            raise SystemExit(f"ncu ended with {status}: {text[-500:]}")
    return {"device": gpu.Bench().name, "rows": named(launches(path), read_counters(text))}


def named(rows: List[Dict[str, Any]], counted: List[Dict[str, Any]]) -> List[Dict[str, Any]]:
    """Rows of a result file with the counters of their launches, which have the same order.

    Raises:
        SystemExit: A launch is of another kernel.
    """
    made = []
    for row, found in zip(rows, counted):
        kernel = row["schedule"]["kernel"]
        if found["kernel"] != kernel:
            raise SystemExit(f"{row['name']}: expected a launch of {kernel}, got {found['kernel']}")
        counters = {name: value for name, value in found.items() if name != "kernel"}
        made.append({**{key: row[key] for key in ("name", "schedule", "frames")}, **counters})
    return made


# ------------------------------------------------------------------------------------------------------------- fitting


#: A launch: its configuration, how often it needs each thing that is counted, and what a frame took of the GPU.
Sample = Tuple[str, Dict[str, float], float]


def samples(report: Dict[str, Any]) -> Dict[str, List[Sample]]:
    """Key of `COUNTS` -> launches, with the instructions of their lanes.

    Quantities count as often as one in pairs of half has the instructions of one in float.
    """
    capability, found = DEVICES["h200"].capability, defaultdict(list)
    for row in report["rows"]:
        work, schedule = KNOWN[row["name"]].work, Schedule(**row["schedule"])
        if not isinstance(work, PolarizationWork):
            continue
        executed = WARP * row["instructions"] / row["frames"]
        if schedule.kernel == "tile":
            wanted = {
                name: number * SHARES[tile_stage(name), work.half_precision, capability].issue
                for name, number in tile_quantities(work, schedule).items()
            }
            found["tile"].append((row["name"], wanted, executed))
        elif schedule.kernel in COUNTED:
            share = SHARES[executed_stage(work, schedule), computes_in_halves(work, schedule), capability].issue
            wanted = {name: number * share for name, number in quantities(work, schedule).items()}
            found[schedule.kernel].append((row["name"], wanted, executed))
    return dict(sorted(found.items()))


def conflict_samples(report: Dict[str, Any]) -> Dict[str, Tuple[List[Sample], List[float]]]:
    """Key of `CONFLICTS` -> launches of `tile` with the clocks that they lost, and those in which they could issue all.

    A multiprocessor can issue four instructions a clock.
    """
    found: Dict[str, Tuple[List[Sample], List[float]]] = {}
    for row in report["rows"]:
        work, schedule = KNOWN[row["name"]].work, Schedule(**row["schedule"])
        if schedule.kernel == "tile" and isinstance(work, PolarizationWork):
            wanted = conflict_quantities(work, schedule, tile_quantities(work, schedule))
            launches, clocks = found.setdefault("half" if work.half_precision else "float", ([], []))
            launches.append((row["name"], wanted, row["bank_conflicts"] / row["frames"]))
            clocks.append(row["instructions"] / row["frames"] / (ISSUE_SLOTS / WARP))
    return dict(sorted(found.items()))


def fitted(rows: List[Sample], scale: Optional[Sequence[float]] = None, digits: int = 1) -> Dict[str, float]:
    """Counts by name that give what launches took; none is negative.

    Args:
        rows: The launches.
        scale: What the error of each is divided by; None: by what it took.
        digits: To round the counts to.
    """
    names = sorted({name for _, wanted, _ in rows for name, number in wanted.items() if number})
    taken = np.array([took for _, _, took in rows])
    divisors = taken if scale is None else np.array(scale)
    matrix = np.array([[wanted.get(name, 0.0) for name in names] for _, wanted, _ in rows]) / divisors[:, None]
    known = np.array([in_the_code(name) for name in names])
    firmness = np.array([FIRMER.get(name, FIRM) for name in names])
    held = np.where(np.isnan(known), WEAK, firmness) * np.sqrt((matrix**2).sum(0))
    right = np.concatenate([taken / divisors, held * np.nan_to_num(known, nan=1.0)])
    system = np.vstack([matrix, np.diag(held)])
    kept = list(range(len(names)))
    while True:
        counts = np.linalg.lstsq(system[:, kept], right, rcond=None)[0]
        if counts.min() >= 0:
            break
        kept.pop(int(counts.argmin()))
    found = dict.fromkeys(names, 0.0)
    found.update({names[index]: round(float(count), digits) for index, count in zip(kept, counts)})
    return found


def show_errors(key: str, rows: List[Sample], counts: Dict[str, float], divisors: Sequence[float]) -> None:
    """Print the root mean square of the errors, and the largest one."""
    off = [
        (sum(counts[name] * number for name, number in wanted.items() if number) - took) / divisor
        for (_, wanted, took), divisor in zip(rows, divisors)
    ]
    worst = max(range(len(rows)), key=lambda index: abs(off[index]))
    square = math.sqrt(sum(each**2 for each in off) / len(off))
    print(f"{key}: {len(rows)} launches, off by {square:.1%}, at most {off[worst]:+.1%}: {rows[worst][0]}")


def write_counts(report: Dict[str, Any]) -> None:
    """Fit, show what is off, and write the package's module.

    Clocks that are lost in shared memory are fitted, and shown, as shares of those in which all could be issued.
    """
    tables: Dict[str, Dict[str, Dict[str, float]]] = {"COUNTS": {}, "CONFLICTS": {}}
    for kernel, rows in samples(report).items():
        tables["COUNTS"][kernel] = fitted(rows)
        show_errors(kernel, rows, tables["COUNTS"][kernel], [took for _, _, took in rows])
    for precision, (rows, clocks) in conflict_samples(report).items():
        tables["CONFLICTS"][precision] = fitted(rows, clocks, digits=2)
        show_errors(f"bank conflicts in {precision}", rows, tables["CONFLICTS"][precision], clocks)
    text = TARGET.read_text(encoding="utf-8")
    for table, found in tables.items():
        lines = [f"{table}: Dict[str, Dict[str, float]] = {{"]
        for key, counts in found.items():
            lines += [f'    "{key}": {{', *(f'        "{name}": {count},' for name, count in counts.items()), "    },"]
        head, _, rest = text.partition(f"\n{table}: ")
        text = "\n".join([head, *lines, "}"]) + rest.partition("\n}")[2]
    TARGET.write_text(text, encoding="utf-8")


def main() -> None:
    """Measure, or fit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, help="a result file of model.py; with --fit, of this program")
    parser.add_argument("--seconds", type=float, default=math.inf, help="to launch in")
    parser.add_argument("--output", type=Path, help="result file, instead of the one in results/")
    parser.add_argument("--fit", action="store_true", help="write the package's counts")
    parser.add_argument("--launch", action="store_true", help=argparse.SUPPRESS)
    values = parser.parse_args()
    if values.launch:
        launch_all(values.file, values.seconds)
    elif values.fit:
        write_counts(json.loads(values.file.read_text(encoding="utf-8")))
    else:
        report = measure(values.file, values.seconds)
        common.write(values.output or common.RESULTS / f"counters_{common.slug(report['device'])}.json", report)


if __name__ == "__main__":
    main()
