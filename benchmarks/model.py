"""The cost model of the CUDA kernels against measurements, for every launch in `configurations.py`.

    python benchmarks/model.py [--output FILE] [--others N] [--seconds S] [--pipes] [name ...]
    python benchmarks/model.py --predict FILE [--expect]
    python benchmarks/model.py --held-out FILE

Times are of single launches between CUDA events, medians, as in `gpu.py`: 64 different frames per launch, or one frame
alone. `--others` also measures so many other schedules that the model thinks fast; the summary does not count them.
`--predict` reads a result file and rewrites it with today's predictions for the same schedules. `--expect` also stores
schedules and predictions of the configurations that are held out; `--held-out` measures those and adds them to the same
file. `--predict` and `--expect` need no GPU. `--pipes` measures the throughput of the pipes of a multiprocessor, too.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, astuple
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List
from zlib import crc32

import common
from configuration import Configuration
from configurations import HELD_OUT, KNOWN, LISTS

from polar_pipeline.cuda.model import ssim_cost
from polar_pipeline.cuda.model.device import DEVICES, Device
from polar_pipeline.cuda.model.launch_model import KernelWork, launch_model
from polar_pipeline.cuda.model.schedule import Schedule
from polar_pipeline.cuda.model.ssim_work import SsimWork
from polar_pipeline.cuda.model.tuned import choose


def predicted_us(work: KernelWork, schedule: Schedule, device: Device, frames: int) -> float:
    """Predicted microseconds per frame: those of a launch of so many frames, alone, divided by their number."""
    if isinstance(work, SsimWork):
        return ssim_cost.predict(work, schedule, device, frames, is_alone=True).us / frames
    return launch_model(work, device).predict(schedule, frames).us / frames


# ------------------------------------------------------------------------------------------------------------- results


def expected(device: Device) -> List[Dict[str, Any]]:
    """Predictions for the configurations that are held out, with the schedules to measure them with."""
    made = []
    for configuration in HELD_OUT:
        schedule = choose(launch_model(configuration.work, device))
        us = predicted_us(configuration.work, schedule, device, configuration.frames)
        made.append({**described(configuration, schedule, device), "expected_us": round(us, 3)})
    return made


#: How much longer a schedule may take than the chosen one, by prediction, for `--others` to measure it.
_WORTH_MEASURING = 1.35


def other_schedules(configuration: Configuration, device: Device, number: int) -> List[Schedule]:
    """The chosen schedule and others that are predicted to be fast, of another kernel or with two other sizes."""
    model = launch_model(configuration.work, device)
    taken = [choose(model)]
    limit = _WORTH_MEASURING * model.predict(taken[0]).us
    for schedule in sorted(model.candidates(), key=lambda schedule: model.predict(schedule).us):
        fields = astuple(schedule)
        if len(taken) > number or model.predict(schedule).us > limit:
            break
        others = [astuple(each) for each in taken]
        if all(fields[:2] != each[:2] or sum(a != b for a, b in zip(fields, each)) > 1 for each in others):
            taken.append(schedule)
    return taken


def described(configuration: Configuration, schedule: Schedule, device: Device) -> Dict[str, Any]:
    """A row of a result file, without times."""
    return {
        "name": configuration.name,
        "work": launch_model(configuration.work, device).key,
        "size": [configuration.work.width, configuration.work.height],
        "frames": configuration.frames,
        "schedule": asdict(schedule),
    }


def asked_for(names: List[str], device: Device, others: int = 0) -> Iterator[Dict[str, Any]]:
    """Rows, without times, of the named configurations; without names, of all that are not held out."""
    for group, configurations in LISTS.items():
        for configuration in configurations:
            if configuration.name in names or (not names and group != "held out"):
                schedules = other_schedules(configuration, device, others)
                for schedule in dict.fromkeys((*schedules, *configuration.schedules)):
                    yield {**described(configuration, schedule, device), "is_chosen": schedule == schedules[0]}


def measured(
    wanted: Iterable[Dict[str, Any]], device: Device, arch: str, seconds: float = math.inf
) -> Iterator[Dict[str, Any]]:
    """Rows with measured times, as many as seconds suffice for.

    Args:
        wanted: Rows without times.
        device: The GPU.
        arch: What to compile for, such as `sm_90`.
        seconds: From which on no other row is measured, with the time that compilation takes.

    Raises:
        SystemExit: A row is of a launch that its configuration no longer describes.
    """
    from timed_launch import compiled, measure

    start, rows = time.monotonic(), list(wanted)
    models = [launch_model(KNOWN[row["name"]].work, device) for row in rows]
    schedules = [Schedule(**row["schedule"]) for row in rows]
    for row, model in zip(rows, models):
        if model.key != row["work"]:
            raise SystemExit(f"{row['name']} is another work now: {model.key}; predict it again")
    with ThreadPoolExecutor() as pool:  # compiled ahead, on every core
        list(pool.map(lambda model, schedule: compiled(model, schedule, arch), models, schedules))
    for row, model, schedule in zip(rows, models, schedules):
        if time.monotonic() - start > seconds:
            break
        us = measure(model, schedule, row["frames"], arch)
        print(row["name"], round(us, 2), flush=True)
        yield {**row, "measured_us": round(us, 3)}


def with_predictions(found: List[Dict[str, Any]], device: Device) -> List[Dict[str, Any]]:
    """Rows with their list, today's prediction, and the ratios of prediction and expectation to the measured time."""
    groups = {configuration.name: group for group, configurations in LISTS.items() for configuration in configurations}
    made = []
    for row in found:
        configuration = KNOWN[row["name"]]
        us = predicted_us(configuration.work, Schedule(**row["schedule"]), device, configuration.frames)
        new = {**row, "list": groups[row["name"]], "predicted_us": round(us, 3)}
        new["predicted_to_measured"] = round(us / row["measured_us"], 3)
        if "expected_us" in row:
            new["expected_to_measured"] = round(row["expected_us"] / row["measured_us"], 3)
        made.append(new)
    return made


def summary(found: List[Dict[str, Any]]) -> Dict[str, Any]:
    """Errors by list: number of rows, how many are within 15 %, the largest, and the root mean square.

    Only schedules that were chosen count; rows that were held out with the prediction stored before they were measured.
    """
    made = {}
    for group in LISTS:
        key = "predicted_to_measured" if group == "fitted" else "expected_to_measured"
        rows = [row for row in found if row["list"] == group and row.get("is_chosen", True)]
        ratios = [row[key] for row in rows if key in row]
        if ratios:
            off = [abs(ratio - 1) for ratio in ratios]
            made[group] = {
                "configurations": len(off),
                "within_15_percent": sum(error <= 0.15 for error in off),
                "largest_error": round(max(off), 3),
                "root_mean_square": round(math.sqrt(statistics.fmean(error**2 for error in off)), 3),
            }
    return made


def measure_all(report: Dict[str, Any], values: argparse.Namespace) -> Device:
    """Measure the named configurations, or those that a report has only expectations of, and add them to the report.

    Returns:
        The device to predict for.
    """
    import gpu

    bench = gpu.Bench()
    if values.held_out:
        done = {row["name"] for row in report["rows"]}
        wanted = [row for row in report["expected"] if row["name"] not in done]
        if report["device"] != bench.name:
            raise SystemExit(f"{values.held_out} is of {report['device']}, this is {bench.name}")
    else:
        report.update(device=bench.name, model=bench.device.name, rows=[])
        asked = asked_for(values.names, bench.device, values.others)
        wanted = sorted(asked, key=lambda row: (not row["is_chosen"], crc32(row["name"].encode())))
    if values.pipes:
        from timed_launch import pipes

        report["results_a_clock"] = pipes()
        print(report["results_a_clock"], flush=True)
    report["rows"] = [*report["rows"], *measured(wanted, bench.device, bench.arch, values.seconds)]
    packages = ["cupy-cuda11x", "cupy-cuda12x", "cupy-cuda13x", "numpy"]
    report["machine_of_held_out" if values.held_out else "machine"] = common.machine(packages)
    return DEVICES.get(report["model"], bench.device)


def main() -> None:
    """Measure or read, predict, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="configurations; by default all but those held out")
    parser.add_argument("--output", type=Path, help="result file; a run of all writes one in results/")
    parser.add_argument("--predict", type=Path, metavar="FILE", help="a result file, for new predictions")
    parser.add_argument("--expect", action="store_true", help="with --predict: of what is held out, too")
    parser.add_argument("--held-out", type=Path, metavar="FILE", help="a result file, to measure what it expects")
    parser.add_argument("--others", type=int, default=0, metavar="N", help="other schedules of each to measure, too")
    parser.add_argument("--seconds", type=float, default=math.inf, help="to measure in; other schedules come last")
    parser.add_argument("--pipes", action="store_true", help="measure the throughput of the pipes, too")
    values = parser.parse_args()
    read = values.predict or values.held_out
    report: Dict[str, Any] = json.loads(read.read_text(encoding="utf-8")) if read else {}
    device = DEVICES[report["model"]] if values.predict else measure_all(report, values)
    if values.expect:
        report["expected"] = expected(device)
    found = with_predictions(report.pop("rows"), device)
    report["summary"], report["rows"] = summary(found), found
    columns = ("list", "name", "measured_us", "predicted_us", "predicted_to_measured")
    print(common.table(columns, [[row[column] for column in columns] for row in found]))
    print(json.dumps(report["summary"], indent=1))
    if read or values.output or not values.names:
        path = common.RESULTS / f"model_{common.slug(report['device'])}.json"
        common.write(values.output or read or path, report)


if __name__ == "__main__":
    main()
