"""The kernels on this machine's GPU, side by side with a plain copy, with NPP and with the CPU backend.

    python benchmarks/gpu.py [--output FILE] [--candidates] [what ...]

Every case (`gpu_cases.py`) runs on 64 different frames per launch, so that caches do not help; CUDA events, medians.
Before it is timed, every product is compared with the float64 reference, invalid pixels among them. `share` is the part
of the copy's bandwidth that is reached, counting each input byte, each byte of a calibration and each output byte once.
Whole frames, from memory of the host to memory of the host, are measured against their copies (`whole_frames.py`); the
first frames of fresh processes without compiled kernels (`first_frames.py`). `--candidates` measures every schedule
that fits the GPU instead of the chosen one.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import common
import numpy as np
from batches import calibration, check, raw_frames
from first_frames import first_frames
from gpu_cases import CASES, DENOISED, GEOMETRIES, TWO_LAUNCHES, Case, launches_of, options_of
from npp import find_debayer
from timed_launch import TimedLaunches, every_schedule, resources
from timing import FRAMES, ROUNDS, SHAPE, capture, cupy, driver, frames, medians
from whole_frames import WHOLE_FRAMES, whole_frames

from polar_pipeline import Pipeline
from polar_pipeline.backends.cuda.device import occupancy
from polar_pipeline.backends.cuda.launch import Launch
from polar_pipeline.options import Options

#: Frames in a launch with a geometry: one, few enough for their planes to stay in the cache of an H200 until the second
#: launch has read them, and all.
_BATCHES = (1, 4, FRAMES)
#: Cases that are also measured with one frame in a launch.
_SINGLE = ("mono_half", "color_fused", "color_angles", "color_default")


def options_at(case: Case) -> Options:
    """The case's options on frames of `SHAPE`, with its calibration."""
    return options_of(case, calibration=calibration(case.sensor, SHAPE)) if case.calibrated else options_of(case)


def launches_at(case: Case) -> Tuple[Launch, ...]:
    """The case's launches on frames of `SHAPE`."""
    return launches_of(options_at(case), case, SHAPE)


def timed(case: Case, launches: Sequence[Launch], count: int = FRAMES) -> TimedLaunches:
    """Launches of a case by the schedules that the backend chooses for `count` frames."""
    return TimedLaunches(launches, options_at(case), {"raw": raw_frames(launches[0])}, count)


class Bench:
    """One GPU."""

    def __init__(self) -> None:
        self.name, self.device = driver().name, driver().device
        self._from, self._to = (cupy.zeros(512 << 20, cupy.uint8) for _ in range(2))

    def copy(self) -> None:
        """A plain copy of 512 MiB."""
        cupy.cuda.runtime.memcpyAsync(
            self._to.data.ptr, self._from.data.ptr, self._from.nbytes, 3, cupy.cuda.get_current_stream().ptr
        )

    def batch(self, case: Case) -> Dict[str, Any]:
        """64 frames a launch, by the chosen schedule: errors, then times."""
        launch = launches_at(case)[0]
        run = timed(case, (launch,))
        run()
        worst = check(run.arrays, launch, options_at(case))
        return {**self.measure(launch, run), "levels_off_reference": worst}

    def every_schedule(self, case: Case) -> List[Dict[str, Any]]:
        """64 frames a launch by every schedule that fits the GPU, the fastest first."""
        launch = launches_at(case)[0]
        every = every_schedule(launch, options_at(case), {"raw": raw_frames(launch)})
        return sorted((self.measure(launch, run, 9) for run in every), key=lambda row: float(row["us_per_frame"]))

    def measure(self, launch: Launch, run: TimedLaunches, rounds: int = ROUNDS) -> Dict[str, Any]:
        """64 frames a launch against the copy."""
        milliseconds = medians({"copy": self.copy, "kernel": run}, rounds)
        moved = FRAMES * (launch.read_bytes + launch.written_bytes)
        copied = 2 * self._from.nbytes / milliseconds["copy"]
        schedule = run.schedules[0]
        need = resources(launch, schedule)
        return {
            **need,
            "us_per_frame": round(1000 * milliseconds["kernel"] / FRAMES, 3),
            "gb_per_s": round(moved / milliseconds["kernel"] / 1e6, 1),
            "copy_gb_per_s": round(copied / 1e6, 1),
            "share": round(moved / milliseconds["kernel"] / copied, 4),
            "occupancy": round(occupancy(self.device, schedule.threads, need["registers"], need["shared_bytes"]), 3),
        }

    def single(self, case: Case) -> Dict[str, Any]:
        """One frame: 64 launches chained in a graph, and one alone between events."""
        run = timed(case, launches_at(case)[:1], 1)
        milliseconds = medians({"graph": run.graph(), "alone": run})
        return {
            "us_in_graph_of_64": round(1000 * milliseconds["graph"] / FRAMES, 3),
            "us_alone_between_events": round(1000 * milliseconds["alone"], 3),
        }

    def with_ssim(self, case: Case) -> Dict[str, Any]:
        """One frame to all of a case's products, SSIM among them, in two launches: 64 frames chained in a graph."""
        run, raw = timed(case, launches_at(case), 1), frames(case.sensor)
        milliseconds = medians({"graph": run.graph()})
        with closing(Pipeline(case.sensor, case.products, "cpu", dtype="uint8", **case.options)) as pipeline:
            errors = [abs(float(run.arrays["ssim"][k]) - pipeline(raw[k])["ssim"]) for k in (0, FRAMES - 1)]
        return {
            "text": case.text,
            "goal": case.goal,
            "schedules": [asdict(schedule) for schedule in run.schedules],
            "us_in_graph_of_64": round(1000 * milliseconds["graph"] / FRAMES, 3),
            "ssim_off_cpu": float(max(errors)),
        }

    def ssim_schedules(self) -> Dict[str, Any]:
        """SSIM map and mean of 64 frames a launch, by the chosen schedule and by the fastest of all that fit."""
        case = TWO_LAUNCHES["mono_everything"]
        launches, options = launches_at(case), options_at(case)
        similarity, both = launches[1], timed(case, launches)
        both()  # makes the images that SSIM compares
        chosen = TimedLaunches((similarity,), options, both.arrays)
        runs = {"chosen": chosen}
        for k, run in enumerate(every_schedule(similarity, options, both.arrays)):
            runs[str(k)] = run
        us = {name: 1000 * time / FRAMES for name, time in medians(runs, 9).items()}
        fastest = min(us, key=us.__getitem__)
        return {
            "chosen_us": round(us["chosen"], 3),
            "fastest_us": round(us[fastest], 3),
            "times_fastest": round(us["chosen"] / us[fastest], 3),
            "chosen": asdict(chosen.schedules[0]),
            "fastest": asdict(runs[fastest].schedules[0]),
            "schedules": len(runs) - 1,
        }

    def with_geometry(self, case: Case) -> Dict[str, Any]:
        """Frames to the products of a geometry, in two launches; and how many times that of `mono_half` they take."""
        every = {str(count): timed(case, launches_at(case), count) for count in _BATCHES}
        milliseconds = medians({name: run.graph() for name, run in every.items()})
        us, plain = {name: round(1000 * ms / FRAMES, 3) for name, ms in milliseconds.items()}, CASES["mono_half"]
        without = {"1": self.single(plain)["us_in_graph_of_64"], str(FRAMES): self.batch(plain)["us_per_frame"]}
        return {
            "text": case.text,
            "goal": case.goal,
            "schedules": [asdict(schedule) for schedule in every[str(FRAMES)].schedules],
            "us_per_frame_by_frames_a_launch": us,
            "times_mono_half": {name: round(us[name] / time, 2) for name, time in without.items()},
            "levels_off_cpu": _levels_off_cpu(case, every[str(FRAMES)].arrays),
        }

    def denoised(self, case: Case) -> Dict[str, Any]:
        """64 frames a launch with `denoise`, with a network if there is one, and without both."""
        launches, options = launches_at(case), options_at(case)
        plain = options.changed(denoise="off", demosaic=options.interpolation)
        raw = {"raw": raw_frames(launches[0])}
        runs = {"on": TimedLaunches(launches, options, raw)}
        runs["off"] = TimedLaunches(launches_of(plain, case, SHAPE), plain, raw)
        runs["planes"] = TimedLaunches(launches[:1], options, raw)
        if options.is_learned:
            without_network = plain.changed(denoise="on")
            runs["without network"] = TimedLaunches(launches_of(without_network, case, SHAPE), without_network, raw)
        us = {name: 1000 * time / FRAMES for name, time in medians(runs).items()}
        network = {"us_of_network": round(us["on"] - us["without network"], 3)} if options.is_learned else {}
        return {
            "text": case.text,
            "goal": case.goal,
            **network,
            "us_per_frame": round(us["on"], 3),
            "us_per_frame_without": round(us["off"], 3),
            "times": round(us["on"] / us["off"], 2),
            "us_of_denoising": round(us["on"] - us["planes"], 3),
            **resources(launches[1], runs["on"].schedules[1]),
            **({"levels_off_cpu": _levels_off_cpu(case, runs["on"].arrays)} if case.dtype == "uint8" else {}),
        }

    def npp(self) -> Optional[Dict[str, Any]]:
        """The four-angle color demosaic against four calls of NPP's bilinear debayer a frame.

        NPP gets the angles ready split, and its calls chained in a graph, so that launching costs little.
        """
        debayer = find_debayer()
        if debayer is None:
            return None
        height, width = SHAPE[0] // 2, SHAPE[1] // 2
        raw = frames("IMX250MYR")
        planes = cupy.asarray(np.stack([raw[:16, i::2, j::2] for i in range(2) for j in range(2)]))
        out = cupy.zeros((4, 16, height, width, 3), cupy.uint8)

        def four_calls(frame: int) -> None:
            for angle in range(4):
                debayer(planes[angle, frame].data.ptr, out[angle, frame].data.ptr, width, height)

        def all_calls() -> None:
            for frame in range(16):
                four_calls(frame)

        all_calls()  # loads the library's kernels before the capture
        cupy.cuda.get_current_stream().synchronize()
        case = CASES["color_angles"]
        milliseconds = medians({"npp": capture(all_calls), "kernel": timed(case, launches_at(case))}, 15)
        npp_us, us = 1000 * milliseconds["npp"] / 16, 1000 * milliseconds["kernel"] / FRAMES
        return {"npp_us": round(npp_us, 2), "kernel_us": round(us, 3), "times_faster": round(npp_us / us, 2)}

    def against_cpu(self, case: Case) -> Dict[str, Any]:
        """The kernel alone against the CPU backend of this machine."""
        us = self.batch(case)["us_per_frame"]
        raw = frames(case.sensor)
        with closing(Pipeline(case.sensor, case.products, "cpu", dtype="uint8", **case.options)) as pipeline:
            device = pipeline.device
            times = []
            for k in range(12):
                start = time.perf_counter()
                pipeline(raw[k])
                times.append(time.perf_counter() - start)
        cpu = 1e6 * statistics.median(times[2:])
        return {"cpu": device, "cpu_us": round(cpu), "kernel_us": us, "times_faster": round(cpu / us)}


def _levels_off_cpu(case: Case, arrays: Dict[str, Any]) -> Dict[str, int]:
    """Product -> largest difference of two frames from those of the CPU, in levels; AoLP around the circle."""
    raw = frames(case.sensor)
    worst: Dict[str, int] = {}
    with closing(Pipeline(case.sensor, case.products, "cpu", dtype="uint8", **case.options)) as pipeline:
        for k in (0, FRAMES - 1):
            expected = pipeline(raw[k])
            for name, image in expected.items():
                error = np.abs(arrays[name][k].get().astype(int) - image)
                error = np.minimum(error, 256 - error) if name == "aolp" else error
                error = error[expected["dolp"] >= 13] if name == "aolp" else error  # below, the angle is noise
                worst[name] = max(worst.get(name, 0), int(error.max()))
    return worst


def _first_frames(_: Bench) -> Dict[str, Any]:
    sensor, products, dtype = WHOLE_FRAMES["the node's, with SSIM"]
    return first_frames({"sensor": sensor, "products": products, "dtype": dtype, "backend": "cuda"}, SHAPE)


#: What is measured besides cases, by its name in the report.
PARTS: Dict[str, Callable[[Bench], Any]] = {
    "with_geometry": lambda bench: {name: bench.with_geometry(case) for name, case in GEOMETRIES.items()},
    "denoised": lambda bench: {name: bench.denoised(case) for name, case in DENOISED.items()},
    "with_ssim": lambda bench: {name: bench.with_ssim(case) for name, case in TWO_LAUNCHES.items()},
    "ssim_schedules": Bench.ssim_schedules,
    "whole_frames_us": lambda _: {name: whole_frames(name) for name in WHOLE_FRAMES},
    "first_frames": _first_frames,
    "npp": Bench.npp,
    "cpu": lambda bench: bench.against_cpu(CASES["mono_half"]),
}


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", help=f"of {', '.join((*CASES, *PARTS))}; all by default")
    parser.add_argument("--output", type=Path, help="result file; a run of everything writes one in results/")
    parser.add_argument("--candidates", action="store_true", help="measure every schedule of every case")
    values = parser.parse_args()
    bench = Bench()
    report: Dict[str, Any] = {"device": bench.name, "frames": FRAMES, "size": list(SHAPE[::-1]), "cases": {}}
    asked = values.what or [*CASES, *PARTS]
    if not {*CASES, *PARTS}.issuperset(asked):
        parser.error(f"what to measure must be among {', '.join((*CASES, *PARTS))}")
    rows = []
    for name, case in CASES.items():
        if name not in asked:
            continue
        if values.candidates:
            report["cases"][name] = bench.every_schedule(case)
            for row in report["cases"][name][:5]:
                print(name, row["us_per_frame"], row["share"], row["registers"], row["schedule"], flush=True)
            continue
        result = {"text": case.text, "goal": case.goal, **bench.batch(case)}
        if name in _SINGLE:
            result["single_frame"] = bench.single(case)
        report["cases"][name] = result
        rows.append((case.text, *(result[column] for column in ("us_per_frame", "share", "goal", "registers"))))
        print(name, json.dumps(result), flush=True)
    if rows:
        print(common.table(("case", "us a frame", "of copy", "asked", "registers"), rows))
    for name, part in PARTS.items():
        if name in asked and not values.candidates:
            report[name] = part(bench)
            print(name, json.dumps(report[name]), flush=True)
    report["machine"] = common.machine(["cupy-cuda11x", "cupy-cuda12x", "cupy-cuda13x", "numpy"])
    if not (values.candidates or values.what) or values.output:
        common.write(values.output or common.RESULTS / f"gpu_{common.slug(bench.name)}.json", report)


if __name__ == "__main__":
    main()
