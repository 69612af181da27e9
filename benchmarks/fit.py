"""Fits the constants of the cost model to measured times, and shows by cross-validation how well it predicts.

    python benchmarks/fit.py [--keep NAME ...] [FILE]

FILE is a result file of `model.py`; needs no GPU. The measured configurations belong to groups, by size, frames,
sensor, method and format (`group_of`). For each group, the constants are fitted to all other groups, and predict that
group. The fit is a least-squares one of the logarithm of predicted over measured, with less weight on rows that are far
off, and each constant is held near its value in the package (`PRIOR`). A constant that only one group determines keeps
that value, which was fitted with the group, so that the counts are a little too good. They serve to compare one form of
the model with another. `--keep` leaves constants as they are; it takes the beginnings of the names that the last part
of the output shows.
"""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from types import ModuleType
from typing import Any, Callable, Dict, Iterator, List, Sequence, Tuple

import common
import numpy as np
from configuration import Configuration
from configurations import KNOWN
from model import predicted_us

import polar_pipeline.cuda
from polar_pipeline.cuda.model import cost, polarization_cost, ssim_cost
from polar_pipeline.cuda.model.device import DEVICES, Device
from polar_pipeline.cuda.model.schedule import Schedule
from polar_pipeline.cuda.model.specs import KERNELS
from polar_pipeline.cuda.model.ssim_work import SsimWork
from polar_pipeline.plan import MOSAIC

#: Logarithm by which a constant may leave the package's value at the price of a row that is off by `SPREAD`.
PRIOR, SPREAD = 0.3, 0.1
#: Logarithm of predicted over measured from which on a row counts for less.
FAR_OFF = 0.15
STEPS = 8
#: What a row of another schedule than the chosen one counts: such schedules are not what runs.
OTHER_SCHEDULE = 0.5


@dataclass(frozen=True)
class MeasuredRow:
    """A measured configuration, with the chosen schedule or another."""

    configuration: Configuration
    schedule: Schedule
    measured_us: float
    is_chosen: bool = True


@dataclass(frozen=True)
class Constant:
    """A number of the model that is fitted."""

    name: str
    get: Callable[[], float]
    put: Callable[[float], None]


@lru_cache(maxsize=1)
def _modules() -> Tuple[ModuleType, ...]:
    """Every module of `polar_pipeline.cuda`; importing them needs no GPU."""
    found = walk_packages(polar_pipeline.cuda.__path__, f"{polar_pipeline.cuda.__name__}.")
    return tuple(import_module(module.name) for module in found)


def _attribute(name: str) -> Constant:
    """A module's constant, set in every module that defines it or imports it by name.

    Raises:
        ValueError: No module has it, or two modules have different values, so that they are different constants.
    """
    holders = [module for module in _modules() if name in vars(module)]
    values = {float(vars(module)[name]) for module in holders}
    if len(values) != 1:
        raise ValueError(f"expected one value of {name}, got {sorted(values)}")

    def put(value: float) -> None:
        for module in holders:
            setattr(module, name, value)

    return Constant(name, lambda: float(vars(holders[0])[name]), put)


def _entry(name: str, table: Dict[Any, Any], key: Any) -> Constant:
    """An entry of a dictionary, which all modules share."""
    return Constant(f"{name} {key}", lambda: float(table[key]), lambda value: table.__setitem__(key, value))


def _entries(name: str, table: Dict[Any, Any]) -> List[Constant]:
    """All entries of a dictionary."""
    return [_entry(name, table, key) for key in table]


def _effort(kernel: str) -> Constant:
    """The effort of a kernel with its first window."""

    def put(value: float) -> None:
        spec = KERNELS[kernel]
        KERNELS[kernel] = replace(spec, effort=(value, *spec.effort[1:]))

    return Constant(f"effort {kernel}", lambda: KERNELS[kernel].effort[0], put)


#: Fitted constants of all launches, of `tile`, and of SSIM. `BUSY_WARPS` and `TAIL_SHARE` are not among them: fields of
#: `LaunchFootprint` have them as defaults, so that setting them in the module changes nothing. Nor is `_COUNT_US`, with
#: which schedules of the second launch are in the order of their times. Those of SSIM on tensor cores are estimates:
#: no launch of a warp with 32 columns is among the rows.
COMMON = (
    "IDLE_SHARE",
    "REREAD_SHARE",
    "IMAGE_SHARE",
    "LATENCY_S",
    "UNLOADED_SHARE",
    "CACHED_SHARE",
    "BLOCKS_PER_CLOCK",
)
TILE = ("RUN_IDLE_SHARE", "_BORDER_SHARE", "_BLOCK_LATENCY_US", "_PARTED_SECTOR_BYTES", "_ANGLES_SHARE", "_SPILL_SHARE")
SSIM = ("_WAITING", "_ALONE_SHARE")


def constants() -> List[Constant]:
    """The constants that are fitted; all are positive."""
    return [
        *map(_attribute, COMMON),
        *map(_effort, ("mono_half", "mono_full", "color_strip")),
        *_entries("busy warps", polarization_cost._BUSY_WARPS_OF),
        *_entries("busy warps of tile", polarization_cost._BUSY_WARPS_OF_TILE),
        *_entries("tail", polarization_cost._TAIL_OF),
        *_entries("tail of tile", polarization_cost._TAIL_OF_TILE),
        _entry("tail of SSIM", ssim_cost._TAIL, "registers"),
        *_entries("measured", polarization_cost._MEASURED_SHARE),
        *_entries("frame", polarization_cost._FRAME_US),
        *_entries("conflicts", polarization_cost._CONFLICT_SHARE),
        *_entries("uncached", polarization_cost._UNCACHED_SHARE),
        *map(_attribute, ("_INVALID_ROW_US", *TILE)),
        _entry("launch, integrated", cost.LAUNCH_US, False),
        *map(_attribute, SSIM),
        _entry("latency of SSIM", ssim_cost._LATENCY_US, "registers"),
        *_entries("large strides", ssim_cost._LARGE_STRIDE_SHARE),
    ]


def group_of(row: MeasuredRow) -> str:
    """The group that a row is left out with."""
    work = row.configuration.work
    if isinstance(work, SsimWork):
        return f"SSIM {_ssim_group(work, row.schedule)}"
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


def _ssim_group(work: SsimWork, schedule: Schedule) -> str:
    if schedule.window == "tensor":
        return "on tensor cores"
    if work.stride > 1:
        return "with a stride"
    if work.source == MOSAIC:
        return "from the mosaic"
    return "up to 9 taps" if work.window <= 9 else "11 taps" if work.window == 11 else "13 and 15 taps"


def logarithms(rows: Sequence[MeasuredRow], device: Device) -> np.ndarray:
    """Logarithm of predicted over measured, by row."""
    cost._weight.cache_clear()
    return np.array(
        [
            math.log(predicted_us(r.configuration.work, r.schedule, device, r.configuration.frames) / r.measured_us)
            for r in rows
        ]
    )


def fit(rows: Sequence[MeasuredRow], device: Device, found: Sequence[Constant]) -> None:
    """Fit the constants, from what they are, to rows."""
    start = np.log([constant.get() for constant in found])
    at, step = start.copy(), 1e-3
    shares = np.array([1.0 if row.is_chosen else OTHER_SCHEDULE for row in rows])

    def off(place: np.ndarray) -> np.ndarray:
        for constant, value in zip(found, np.exp(place)):
            constant.put(float(value))
        return logarithms(rows, device)

    def price(residuals: np.ndarray, place: np.ndarray) -> float:
        robust = shares * 2 * (FAR_OFF / SPREAD) ** 2 * (np.sqrt(1 + (residuals / FAR_OFF) ** 2) - 1)
        return float(robust.sum() + (((place - start) / PRIOR) ** 2).sum())

    here = off(at)
    damping = 1e-2
    for _ in range(STEPS):
        slopes = np.stack([(off(at + step * unit) - here) / step for unit in np.eye(len(at))], axis=1)
        weights = shares / SPREAD**2 / np.sqrt(1 + (here / FAR_OFF) ** 2)
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


def read(path: Path) -> Tuple[List[MeasuredRow], Device]:
    """Rows of a result file, and their device."""
    report = json.loads(path.read_text(encoding="utf-8"))
    rows = [
        MeasuredRow(KNOWN[row["name"]], Schedule(**row["schedule"]), row["measured_us"], row.get("is_chosen", True))
        for row in report["rows"]
        if row["list"] == "fitted"
    ]
    return rows, DEVICES[report["model"]]


def left_out(
    rows: Sequence[MeasuredRow], device: Device, found: Sequence[Constant]
) -> Iterator[Tuple[str, List[MeasuredRow], Any]]:
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
