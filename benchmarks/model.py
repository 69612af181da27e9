"""The cost model against measurements: predicted and measured times of what it was fitted to, and of what it was not.

    python benchmarks/model.py [--output FILE] [--pipes] [name ...]
    python benchmarks/model.py --predict FILE [--expect]
    python benchmarks/model.py --held-out FILE

Times are of single launches between CUDA events, medians, as in `gpu.py`: 64 different frames a launch, or one frame
alone. A configuration is in one of three lists. The numbers of the model are chosen by `FITTED`; its form, by that and
`FORMERLY_HELD_OUT`. `HELD_OUT` is measured once: `--expect` stores schedules and predictions of it in a result file,
and `--held-out` measures them, into the same file. `--predict` reads a result file and writes it again with what the
model says today of the same schedules. `--predict` and `--expect` need no GPU. With `--pipes` the throughput of the
pipes of a multiprocessor is measured too.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Tuple

import common
from polar_pipeline.cuda.choice import AnyWork, choose, work_key
from polar_pipeline.cuda.device import DEVICES, Device
from polar_pipeline.cuda.schedule import Schedule
from polar_pipeline.cuda.ssim import Similarity
from polar_pipeline.cuda.work import make_work

from polar_pipeline.cuda import schedule as polarization
from polar_pipeline.cuda import ssim
from polar_pipeline.options import make_options
from polar_pipeline.plan import MOSAIC, make_plan
from polar_pipeline.products import PRODUCTS
from polar_pipeline.sensor import FULL_FRAME

FRAMES = 64
MONO, COLOR = "IMX250MZR", "IMX250MYR"
POLAR = "intensity,dolp,aolp"
LIVE = f"{POLAR},preview"
ANGLES = "angle_0,angle_45,angle_90,angle_135"
ALL = ",".join(PRODUCTS)
SMALL, LARGE, THREE, HD = (1024, 1232), (3000, 4096), (1536, 2048), (1080, 1920)
_FULL_SCALE = {"u8": 255, "u16": 4095, "12p": 4095, "12packed": 4095}


class Configuration(NamedTuple):
    """One launch that is measured.

    Attributes:
        name: In results.
        work: What it does.
        schedules: How; empty: as the solver chooses.
        frames: Per launch.
    """

    name: str
    work: AnyWork
    schedules: Tuple[Schedule, ...] = ()
    frames: int = FRAMES


def first(
    name: str,
    sensor: str,
    products: str,
    raw_format: str = "u8",
    shape: Tuple[int, int] = FULL_FRAME,
    dtype: str = "uint8",
    schedules: Tuple[Schedule, ...] = (),
    frames: int = FRAMES,
    **options: Any,
) -> Configuration:
    """A first launch; options are the pipeline's."""
    made = make_options(sensor, tuple(products.split(",")), dtype, **options)
    work = make_work(make_plan(made.products), made, raw_format, _FULL_SCALE[raw_format], shape)
    return Configuration(name, work, schedules, frames)


def second(
    name: str,
    source: str = "float16",
    window: int = 11,
    stride: int = 1,
    map_dtype: str = "float32",
    shape: Tuple[int, int] = (1024, 1224),
    schedules: Tuple[Schedule, ...] = (),
    frames: int = FRAMES,
) -> Configuration:
    """A second launch."""
    return Configuration(name, Similarity(*shape, stride, window, 1.5, source, map_dtype), schedules, frames)


def _tiles(*sizes: Tuple[int, int, int, int]) -> Tuple[Schedule, ...]:
    return tuple(Schedule("tile", "tile", *size) for size in sizes)


_FULL: Dict[str, Any] = {"resolution": "full"}
_OWN: Dict[str, Any] = {"co_sited": False}
_BY_REGISTERS = (Schedule("ssim", "registers", 320, 308, rows=256), Schedule("ssim", "registers", 224, 204, rows=128))
_WARPS = (Schedule("color_half", "registers", 32, 4, rows=2),)
#: What the model's numbers are fitted to.
FITTED = (
    first("mono half", MONO, POLAR),
    first("mono half, one frame", MONO, POLAR, frames=1),
    first("mono full bilinear", MONO, POLAR, demosaic="bilinear", **_FULL),
    first("colour own site, angles", COLOR, ANGLES, **_OWN),
    first("colour own site, angles, blocks of a warp", COLOR, ANGLES, schedules=_WARPS, **_OWN),
    first("colour own site, angles and polar", COLOR, f"{ANGLES},{POLAR}", **_OWN),
    first("colour half", COLOR, LIVE, schedules=_tiles((128, 32, 16, 0), (128, 16, 16, 0), (256, 32, 32, 0))),
    first("mono full gradient", MONO, POLAR, demosaic="gradient", **_FULL),
    first("mono full ADR", MONO, POLAR, schedules=_tiles((128, 64, 60, 9), (192, 64, 28, 6)), **_FULL),
    first(
        "colour full ADR",
        COLOR,
        POLAR,
        schedules=_tiles(
            (256, 64, 40, 6),
        ),
        **_FULL,
    ),
    first("mono half, 12 bit in 16, float", MONO, POLAR, "u16", dtype="float32"),
    first("mono half, 12p, float", MONO, POLAR, "12p"),
    first("mono half, everything", MONO, ALL),
    first("colour half, 12 bit in 16", COLOR, LIVE, "u16"),
    first("mono full ADR, 12 bit in 16", MONO, POLAR, "u16", **_FULL),
    first("colour half ADR", COLOR, POLAR, demosaic="adaptive"),
    second("SSIM on tensor cores"),
    second("SSIM on tensor cores, one frame", frames=1),
    second("SSIM in registers", schedules=_BY_REGISTERS),
    second("SSIM in registers, float", "float32"),
    second("SSIM from the mosaic", MOSAIC),
    first("mono half, small", MONO, POLAR, shape=SMALL),
    first("mono half, large", MONO, POLAR, shape=LARGE),
    first("mono half, small, one frame", MONO, POLAR, shape=SMALL, frames=1),
    first("mono half, live", MONO, LIVE),
    first("mono half, live, one frame", MONO, LIVE, frames=1),
    first("mono half, Stokes", MONO, "stokes", dtype="float32"),
    first("mono half, what SSIM compares too", MONO, f"{POLAR},ssim"),
    first("mono half gradient", MONO, POLAR, demosaic="gradient"),
    first("mono half ADR", MONO, POLAR, demosaic="adaptive"),
    first("mono half ADR, float", MONO, POLAR, demosaic="adaptive", precision="fp32"),
    first("mono half, 12 bit in 16, live", MONO, LIVE, "u16"),
    first("mono half, 12Packed", MONO, LIVE, "12packed"),
    first("mono full bilinear, 12 bit in 16", MONO, POLAR, "u16", demosaic="bilinear", **_FULL),
    first("mono full gradient, everything as float", MONO, ALL, dtype="float32", demosaic="gradient", **_FULL),
    first("mono full gradient, 12Packed", MONO, POLAR, "12packed", demosaic="gradient", **_FULL),
    first("mono full ADR, live, small", MONO, LIVE, shape=SMALL, **_FULL),
    first("mono full ADR, one frame", MONO, POLAR, frames=1, **_FULL),
    first("mono full ADR, float, intensity", MONO, "intensity", precision="fp32", **_FULL),
    first("colour own site, angles, small", COLOR, ANGLES, shape=SMALL, **_OWN),
    first("colour own site, polar", COLOR, POLAR, **_OWN),
    first("colour own site, live, large", COLOR, LIVE, shape=LARGE, **_OWN),
    first("colour half, angles", COLOR, ANGLES),
    first("colour half, live, one frame", COLOR, LIVE, frames=1),
    first("colour half, live, large", COLOR, LIVE, shape=LARGE),
    first("colour half, everything as float", COLOR, ALL, dtype="float32"),
    first("colour half, 12p", COLOR, POLAR, "12p"),
    first("colour full gradient", COLOR, POLAR, demosaic="gradient", **_FULL),
    first("colour full bilinear, live", COLOR, LIVE, demosaic="bilinear", **_FULL),
    first("colour full ADR, intensity, small", COLOR, "intensity", shape=SMALL, **_FULL),
    first("colour full ADR, 12 bit in 16", COLOR, POLAR, "u16", **_FULL),
    first("colour half ADR, 12 bit in 16", COLOR, LIVE, "u16", demosaic="adaptive"),
    second("SSIM, 7 taps", window=7),
    second("SSIM, means only", map_dtype=""),
    second("SSIM, full resolution", shape=FULL_FRAME, map_dtype="uint8"),
    second("SSIM, full resolution, one frame", shape=FULL_FRAME, map_dtype="uint8", frames=1),
    second("SSIM, float, 7 taps", "float32", 7),
    second("SSIM, float, 15 taps", "float32", 15, map_dtype="uint8"),
    second("SSIM, stride 2", stride=2),
    second("SSIM, stride 4, float", "float32", stride=4),
    second("SSIM, float, full resolution", "float32", shape=FULL_FRAME),
    second("SSIM from the mosaic, 7 taps", MOSAIC, 7, map_dtype="uint8"),
)
#: What no number was fitted to. Its times were known when the form of SSIM's cost was chosen, so it proves no more.
FORMERLY_HELD_OUT = (
    first("mono half, preview", MONO, "preview"),
    first("mono half, angles, small", MONO, ANGLES, shape=SMALL),
    first("mono half, float, DoLP", MONO, "dolp", dtype="float32", precision="fp32"),
    first("mono half, 12p, live, large", MONO, LIVE, "12p", shape=LARGE),
    first("mono half gradient, 12 bit in 16", MONO, POLAR, "u16", demosaic="gradient"),
    first("mono full bilinear, large", MONO, POLAR, shape=LARGE, demosaic="bilinear", **_FULL),
    first("mono full bilinear, live", MONO, LIVE, demosaic="bilinear", **_FULL),
    first("mono full gradient, live, one frame", MONO, LIVE, demosaic="gradient", frames=1, **_FULL),
    first("mono full ADR, DoLP and AoLP, large", MONO, "dolp,aolp", shape=LARGE, **_FULL),
    first("mono full ADR, 12p", MONO, POLAR, "12p", **_FULL),
    first("colour own site, angles, 4 rows, one frame", COLOR, ANGLES, frames=1, **_OWN),
    first("colour half, small", COLOR, LIVE, shape=SMALL),
    first("colour half gradient", COLOR, POLAR, demosaic="gradient"),
    first("colour full gradient, 12Packed", COLOR, POLAR, "12packed", demosaic="gradient", **_FULL),
    first("colour full ADR, live", COLOR, LIVE, **_FULL),
    second("SSIM, 9 taps, small", window=9, shape=(512, 616)),
    second("SSIM, float, 5 taps, large", "float32", 5, shape=(1500, 2048)),
    second("SSIM, float, stride 2", "float32", stride=2),
    second("SSIM, means only, one frame", map_dtype="", frames=1),
    second("SSIM from the mosaic, large", MOSAIC, shape=(1500, 2048)),
    first("mono half, live as float", MONO, LIVE, dtype="float32"),
    first("mono half, what SSIM compares too, small", MONO, f"{POLAR},ssim", shape=SMALL),
    first("mono half ADR, live", MONO, LIVE, demosaic="adaptive"),
    first("mono full gradient, intensity, 12 bit in 16", MONO, "intensity", "u16", demosaic="gradient", **_FULL),
    first("colour own site, angles, large", COLOR, ANGLES, shape=LARGE, **_OWN),
    first("colour half, float, intensity", COLOR, "intensity", precision="fp32"),
    first("colour half, Stokes", COLOR, "stokes", dtype="float32"),
    first("colour full bilinear, AoLP, small", COLOR, "aolp", shape=SMALL, demosaic="bilinear", **_FULL),
    first("colour full ADR, one frame", COLOR, POLAR, frames=1, **_FULL),
    second("SSIM, large", shape=(1500, 2048)),
    second("SSIM, float, 13 taps", "float32", 13),
)
#: Other sizes, formats, products, methods, windows and strides than all of the above; predicted, then measured once.
HELD_OUT = (
    first("mono half, 2048x1536", MONO, POLAR, shape=THREE),
    first("mono half, live, 1920x1080", MONO, LIVE, shape=HD),
    first("mono half, angles", MONO, ANGLES),
    first("mono half, DoLP, small", MONO, "dolp", shape=SMALL),
    first("mono half, 12p, AoLP", MONO, "aolp", "12p"),
    first("mono half, float, angles", MONO, ANGLES, precision="fp32"),
    first("mono half gradient, live, 2048x1536", MONO, LIVE, shape=THREE, demosaic="gradient"),
    first("mono half ADR, intensity, 2048x1536", MONO, "intensity", shape=THREE, demosaic="adaptive"),
    first("mono half, 12Packed, live, one frame", MONO, LIVE, "12packed", frames=1),
    first("mono full bilinear, 1920x1080, one frame", MONO, POLAR, shape=HD, demosaic="bilinear", frames=1, **_FULL),
    first("mono full bilinear, angles", MONO, ANGLES, demosaic="bilinear", **_FULL),
    first("mono full gradient, 12p, DoLP", MONO, "dolp", "12p", demosaic="gradient", **_FULL),
    first("mono full gradient, small", MONO, POLAR, shape=SMALL, demosaic="gradient", **_FULL),
    first("mono full ADR, 1920x1080", MONO, POLAR, shape=HD, **_FULL),
    first("mono full ADR, angles", MONO, ANGLES, **_FULL),
    first("mono full ADR, 12Packed, one frame", MONO, POLAR, "12packed", frames=1, **_FULL),
    first("colour own site, angles, 2048x1536", COLOR, ANGLES, shape=THREE, **_OWN),
    first("colour own site, live", COLOR, LIVE, **_OWN),
    first("colour own site, angles and polar, one frame", COLOR, f"{ANGLES},{POLAR}", frames=1, **_OWN),
    first("colour half, polar, 2048x1536", COLOR, POLAR, shape=THREE),
    first("colour half, preview", COLOR, "preview"),
    first("colour half, 12Packed, angles", COLOR, ANGLES, "12packed"),
    first("colour half gradient, 12 bit in 16, live", COLOR, LIVE, "u16", demosaic="gradient"),
    first("colour half ADR, small", COLOR, POLAR, shape=SMALL, demosaic="adaptive"),
    first("colour full bilinear, DoLP", COLOR, "dolp", demosaic="bilinear", **_FULL),
    first("colour full gradient, live, 2048x1536", COLOR, LIVE, shape=THREE, demosaic="gradient", **_FULL),
    first("colour full ADR, angles", COLOR, ANGLES, **_FULL),
    first("colour full ADR, 12p, small", COLOR, POLAR, "12p", shape=SMALL, **_FULL),
    second("SSIM, 5 taps", window=5),
    second("SSIM, 15 taps", window=15),
    second("SSIM, 768x512, one frame", shape=(512, 768), frames=1),
    second("SSIM, 7 taps, large", window=7, shape=(1500, 2048)),
    second("SSIM, float, 3 taps", "float32", 3),
    second("SSIM, float, one frame", "float32", frames=1),
    second("SSIM, float, 9 taps, 1024x768", "float32", 9, map_dtype="uint8", shape=(768, 1024)),
    second("SSIM, float, 7 taps, stride 2, full resolution", "float32", 7, 2, shape=FULL_FRAME),
    second("SSIM, float, stride 3", "float32", stride=3),
    second("SSIM, stride 4", stride=4),
    second("SSIM from the mosaic, 5 taps", MOSAIC, 5),
    second("SSIM from the mosaic, 7 taps, large", MOSAIC, 7, shape=(1500, 2048)),
    second("SSIM from the mosaic, 15 taps, means only, large", MOSAIC, 15, map_dtype="", shape=(1500, 2048)),
)
LISTS = {"fitted": FITTED, "formerly held out": FORMERLY_HELD_OUT, "held out": HELD_OUT}
#: All of them by name.
KNOWN = {configuration.name: configuration for configurations in LISTS.values() for configuration in configurations}


def predicted_us(work: AnyWork, schedule: Schedule, device: Device, frames: int) -> float:
    """Microseconds a frame, without what a launch takes by itself where it has many frames."""
    solver: Any = ssim if isinstance(work, Similarity) else polarization
    found = solver.predict(work, schedule, device, frames)
    return float(found.us / frames)


# ------------------------------------------------------------------------------------------------------------- results


def expected(device: Device) -> List[Dict[str, Any]]:
    """Predictions of the configurations that are held out, with the schedules to measure them with."""
    made = []
    for configuration in HELD_OUT:
        work = configuration.work
        schedule = choose(work, device)
        us = predicted_us(work, schedule, device, configuration.frames)
        made.append({**described(configuration, schedule), "expected_us": round(us, 3)})
    return made


def described(configuration: Configuration, schedule: Schedule) -> Dict[str, Any]:
    """A row of a result file, without times."""
    return {
        "name": configuration.name,
        "work": work_key(configuration.work),
        "size": [configuration.work.width, configuration.work.height],
        "frames": configuration.frames,
        "schedule": schedule._asdict(),
    }


def asked_for(names: List[str], device: Device) -> Iterator[Dict[str, Any]]:
    """Rows of every configuration that is not held out, or of those named, without times."""
    for group, configurations in LISTS.items():
        for configuration in configurations:
            if configuration.name in names or (not names and group != "held out"):
                for schedule in configuration.schedules or (choose(configuration.work, device),):
                    yield described(configuration, schedule)


def measured(wanted: Iterable[Dict[str, Any]], arch: str) -> Iterator[Dict[str, Any]]:
    """Rows with measured times."""
    from launch import measure

    for row in wanted:
        work = KNOWN[row["name"]].work
        if work_key(work) != row["work"]:
            raise SystemExit(f"{row['name']} is another work now: {work_key(work)}; predict it again")
        us = measure(work, Schedule(**row["schedule"]), row["frames"], arch)
        print(row["name"], round(us, 2), flush=True)
        yield {**row, "measured_us": round(us, 3)}


def with_predictions(found: List[Dict[str, Any]], device: Device) -> List[Dict[str, Any]]:
    """Rows with their list, what the model says today, and how far it, or what was expected of it, is off."""
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
    """By list: how many, how far off at most, the root mean square, and how many are within 15 %.

    What is held out counts as it was expected before it was measured.
    """
    made = {}
    for group in LISTS:
        key = "expected_to_measured" if group == "held out" else "predicted_to_measured"
        ratios = [row[key] for row in found if row["list"] == group and key in row]
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
    """Measure what is asked for, or what a report only has expectations of, into the report."""
    import gpu

    bench = gpu.Bench()
    if values.held_out:
        done = {row["name"] for row in report["rows"]}
        wanted = [row for row in report["expected"] if row["name"] not in done]
        if report["device"] != bench.name:
            raise SystemExit(f"{values.held_out} is of {report['device']}, this is {bench.name}")
    else:
        report.update(device=bench.name, model=bench.device.name, rows=[])
        wanted = list(asked_for(values.names, bench.device))
    if values.pipes:
        from launch import pipes

        report["results_a_clock"] = pipes()
        print(report["results_a_clock"], flush=True)
    report["rows"] = [*report["rows"], *measured(wanted, bench.arch)]
    packages = ["cupy-cuda11x", "cupy-cuda12x", "cupy-cuda13x", "numpy"]
    report["machine_of_held_out" if values.held_out else "machine"] = common.machine(packages)
    return DEVICES.get(report["model"], bench.device)


def main() -> None:
    """Measure or read, predict, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="configurations; by default all but those held out")
    parser.add_argument("--output", type=Path, help="result file; a run of all writes one in results/")
    parser.add_argument("--predict", type=Path, metavar="FILE", help="a result file, for new predictions")
    parser.add_argument("--expect", action="store_true", help="with --predict: of what is held out, too")
    parser.add_argument("--held-out", type=Path, metavar="FILE", help="a result file, to measure what it expects")
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
