"""Fits the constants of the cost model to measured times, and tells by cross-validation how well it predicts.

    python benchmarks/fit.py [--keep NAME ...] [FILE]

FILE is a result file of `model.py`; needs no GPU. The measured configurations belong to groups, by size, frames,
sensor, method and format (`group_of`). For each group, the constants are fitted to all other groups, and predict that
group. Least squares of the logarithm of predicted over measured, with less weight to what is far off, and each constant
held near the value that the package has (`PRIOR`): a constant that only one group determines keeps that value, which
was fitted with it, so that counts flatter a little. They are good to compare one form of the model with another.
`--keep` leaves constants as they are, by the beginning of the names that the last part of the output shows.
"""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Sequence, Tuple

import common
import numpy as np
from model import KNOWN, Configuration, predicted_us
from polar_pipeline.cuda.device import DEVICES, Device
from polar_pipeline.cuda.schedule import KERNELS, OPERATIONS, Schedule
from polar_pipeline.cuda.ssim import Similarity

from polar_pipeline.cuda import schedule as polarization
from polar_pipeline.cuda import ssim
from polar_pipeline.plan import MOSAIC

#: Logarithm by which a constant may leave the package's value at the price of a row that is off by `SPREAD`.
PRIOR, SPREAD = 0.3, 0.1
#: Logarithm of predicted over measured from which on a row counts for less.
FAR_OFF = 0.15
STEPS = 8


@dataclass(frozen=True)
class Row:
    """A measured configuration."""

    configuration: Configuration
    schedule: Schedule
    measured_us: float


@dataclass(frozen=True)
class Constant:
    """A number of the model that is fitted."""

    name: str
    get: Callable[[], float]
    put: Callable[[float], None]


def _attribute(module: Any, name: str) -> Constant:
    return Constant(name, lambda: float(getattr(module, name)), lambda value: setattr(module, name, value))


def _entry(name: str, table: Dict[Any, Any], key: Any) -> Constant:
    return Constant(f"{name} {key}", lambda: float(table[key]), lambda value: table.__setitem__(key, value))


def _effort(kernel: str, k: int) -> Constant:
    def put(value: float) -> None:
        effort = list(KERNELS[kernel].effort)
        effort[k] = value
        KERNELS[kernel] = KERNELS[kernel]._replace(effort=tuple(effort))

    return Constant(f"effort {kernel}", lambda: KERNELS[kernel].effort[k], put)


def constants() -> List[Constant]:
    """What is fitted; all are positive."""
    own = ("IDLE_SHARE", "REREAD_SHARE", "LATENCY_S", "BUSY_WARPS", "TAIL_SHARE", "BLOCKS_PER_CLOCK")
    return [
        *(_entry("operations", OPERATIONS, key) for key in OPERATIONS),
        *(_entry("conflicts", polarization.CONFLICTS, key) for key in polarization.CONFLICTS),
        *(_attribute(polarization, name) for name in own),
        *(_effort(name, 0) for name in ("mono_half", "mono_full", "color_half")),
        _entry("launch, integrated", polarization.LAUNCH_US, False),
        *(_attribute(ssim, name) for name in SIMILARITY),
    ]


#: Fitted constants of the second launch.
SIMILARITY = ("_TENSOR_STEP", "_TENSOR_ENDS", "_COUNT_US", "_BUSY_WARPS", "_WAITING")


def group_of(row: Row) -> str:
    """The group that a row is left out with."""
    work = row.configuration.work
    if isinstance(work, Similarity):
        return f"SSIM {_similarity_group(work, row.schedule)}"
    if row.configuration.frames == 1:
        return "one frame"
    if (work.width, work.height) != (2448, 2048):
        return "small frames" if work.width < 2448 else "large frames"
    sensor = "colour" if work.sensor.is_color else "mono"
    if work.half and not work.co_sited:
        return f"{sensor} own site"
    if work.demosaic == "adaptive":
        return f"{sensor} ADR"
    bits = "" if work.raw_format == "u8" else ", 12 and 16 bit"
    return f"{sensor} {'half' if work.half else 'full'}{bits}"


def _similarity_group(work: Similarity, schedule: Schedule) -> str:
    if schedule.window == "tensor":
        return "on tensor cores"
    if work.stride > 1:
        return "with a stride"
    if work.source == MOSAIC:
        return "from the mosaic"
    return "up to 9 taps" if work.window <= 9 else "11 taps" if work.window == 11 else "13 and 15 taps"


def logarithms(rows: Sequence[Row], device: Device) -> np.ndarray:
    """Logarithm of predicted over measured, by row."""
    polarization._weight.cache_clear()
    return np.array(
        [
            math.log(predicted_us(r.configuration.work, r.schedule, device, r.configuration.frames) / r.measured_us)
            for r in rows
        ]
    )


def fit(rows: Sequence[Row], device: Device, found: Sequence[Constant]) -> None:
    """Fit the constants, from what they are, to rows."""
    start = np.log([constant.get() for constant in found])
    at, step = start.copy(), 1e-3

    def off(place: np.ndarray) -> np.ndarray:
        for constant, value in zip(found, np.exp(place)):
            constant.put(float(value))
        return logarithms(rows, device)

    def price(residuals: np.ndarray, place: np.ndarray) -> float:
        robust = 2 * (FAR_OFF / SPREAD) ** 2 * (np.sqrt(1 + (residuals / FAR_OFF) ** 2) - 1)
        return float(robust.sum() + (((place - start) / PRIOR) ** 2).sum())

    here = off(at)
    damping = 1e-2
    for _ in range(STEPS):
        slopes = np.stack([(off(at + step * unit) - here) / step for unit in np.eye(len(at))], axis=1)
        weights = 1 / SPREAD**2 / np.sqrt(1 + (here / FAR_OFF) ** 2)
        normal = slopes.T @ (weights[:, None] * slopes) + np.eye(len(at)) / PRIOR**2
        gradient = slopes.T @ (weights * here) + (at - start) / PRIOR**2
        for _ in range(6):
            trial = at - np.linalg.solve(normal + damping * np.diag(np.diag(normal)), gradient)
            there = off(trial)
            if price(there, trial) < price(here, at):
                at, here, damping = trial, there, damping / 5
                break
            damping *= 5
    off(at)


def read(path: Path) -> Tuple[List[Row], Device]:
    """Rows of a result file, and their device."""
    report = json.loads(path.read_text(encoding="utf-8"))
    rows = [Row(KNOWN[row["name"]], Schedule(**row["schedule"]), row["measured_us"]) for row in report["rows"]]
    return rows, DEVICES[report["model"]]


def left_out(rows: Sequence[Row], device: Device, found: Sequence[Constant]) -> Iterator[Tuple[str, List[Row], Any]]:
    """(group, its rows, logarithms) with constants fitted to the other groups."""
    start = [constant.get() for constant in found]
    groups = [group_of(row) for row in rows]
    for group in dict.fromkeys(groups):
        inside = [row for row, name in zip(rows, groups) if name == group]
        fit([row for row, name in zip(rows, groups) if name != group], device, found)
        yield group, inside, logarithms(inside, device)
        for constant, value in zip(found, start):
            constant.put(value)


def summary(logs: np.ndarray) -> List[Any]:
    """How many, how many within 15 %, root mean square and largest error."""
    off = np.abs(np.exp(logs) - 1)
    return [len(off), int((off <= 0.15).sum()), f"{np.sqrt((off**2).mean()):.3f}", f"{off.max():.2f}"]


def main() -> None:
    """Cross-validate, then fit to all, and print both."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="?", type=Path, default=common.RESULTS / "model_nvidia_h200.json")
    parser.add_argument("--keep", nargs="*", default=(), metavar="NAME", help="beginnings of constants not to fit")
    values = parser.parse_args()
    rows, device = read(values.file)
    found = [constant for constant in constants() if not constant.name.startswith(tuple(values.keep))]
    table, everything = [], []
    for group, inside, logs in left_out(rows, device, found):
        table.append([group, *summary(logs)])
        everything.append(logs)
        for row, log in zip(inside, logs):
            if abs(math.exp(log) - 1) > 0.15:
                print(f"{group}: {row.configuration.name}: {math.exp(log):.2f}", flush=True)
    table.append(["all, cross-validated", *summary(np.concatenate(everything))])
    table.append(["all, as the package has it", *summary(logarithms(rows, device))])
    start = [constant.get() for constant in found]
    fit(rows, device, found)
    table.append(["all, fitted to all", *summary(logarithms(rows, device))])
    print(common.table(("group", "configurations", "within 15 %", "rms", "largest"), table))
    for constant, value in zip(found, start):
        print(f"{constant.name}: {value:.4g} -> {constant.get():.4g}")


if __name__ == "__main__":
    main()
