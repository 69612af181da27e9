"""The kernels on this machine's GPU, side by side with a plain copy, with NPP and with the CPU backend.

    python benchmarks/gpu.py [--output FILE] [--candidates] [case ...]

Every case (`gpu_cases.py`) runs on 64 different frames per launch, so that caches do not help; CUDA events, medians.
Before it is timed, every product is compared with the float64 reference, invalid pixels among them. `share` is the part
of the copy's bandwidth that is reached, counting each input byte, each byte of a calibration and each output byte once.
Whole frames, from memory of the host to memory of the host, are measured against their copies (`whole_frames.py`).
`--candidates` measures every schedule that the solver lists for a case instead of the chosen one.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any, Dict, List, Optional

import common
import numpy as np
from batches import BatchBuffers, calibration, check
from gpu_cases import CASES, GEOMETRIES, TWO_LAUNCHES, Case, options_of, works_of
from npp import find_debayer
from timed_launch import TimedGeometry, TimedLaunch, TimedSsim, chosen, loaded
from timing import FRAMES, ROUNDS, SHAPE, cupy, driver, frames, medians
from whole_frames import WHOLE_FRAMES, whole_frames

from polar_pipeline import Pipeline
from polar_pipeline.backends.cuda.device import occupancy
from polar_pipeline.backends.cuda.kernels import kernels_of
from polar_pipeline.backends.cuda.solver import Launch, candidates
from polar_pipeline.backends.cuda.work import PolarizationWork
from polar_pipeline.options import Options

#: Frames in a launch with a geometry: one, few enough for their planes to stay in the cache of an H200 until the second
#: launch has read them, and all.
_BATCHES = (1, 4, FRAMES)


def options_at(case: Case) -> Options:
    """The case's options on frames of `SHAPE`, with its calibration."""
    return options_of(case, calibration=calibration(case.sensor, SHAPE)) if case.calibrated else options_of(case)


class Bench:
    """One GPU."""

    def __init__(self) -> None:
        self.name, self.device = driver().name, driver().device
        self._from, self._to = (cupy.zeros(512 << 20, cupy.uint8) for _ in range(2))

    def work(self, case: Case) -> PolarizationWork:
        """The case's first launch."""
        work = works_of(options_at(case), case, SHAPE)[0]
        assert isinstance(work, PolarizationWork)
        return work

    def copy(self) -> None:
        """A plain copy of 512 MiB."""
        cupy.cuda.runtime.memcpyAsync(
            self._to.data.ptr, self._from.data.ptr, self._from.nbytes, 3, cupy.cuda.get_current_stream().ptr
        )

    def batch(self, case: Case) -> Dict[str, Any]:
        """64 frames a launch, with the chosen schedule: errors, then times."""
        work = self.work(case)
        kernel, buffers = TimedLaunch(chosen(work)), BatchBuffers(work, FRAMES)
        kernel(buffers.argument())
        worst = check(buffers, work, options_at(case))
        return {**self.measure(kernel, buffers), "levels_off_reference": worst}

    def every_schedule(self, case: Case) -> List[Dict[str, Any]]:
        """Likewise with every schedule that the solver lists, fastest first."""
        work = self.work(case)
        rows = [row for kernel in kernels_of(work) for row in candidates(kernel, work, self.device)]
        able = [Launch(work, schedule, self.device) for schedule in rows]
        with ThreadPoolExecutor() as pool:  # compiled ahead, on every core
            list(pool.map(loaded, able))
        buffers = BatchBuffers(work, FRAMES)
        rows = [self.measure(TimedLaunch(launch), buffers, 9) for launch in able]
        return sorted(rows, key=lambda row: float(row["us_per_frame"]))

    def measure(self, kernel: TimedLaunch, buffers: BatchBuffers, rounds: int = ROUNDS) -> Dict[str, Any]:
        """64 frames a launch against the copy."""
        argument, schedule = buffers.argument(), kernel.schedule
        found = medians({"copy": self.copy, "kernel": lambda: kernel(argument)}, rounds)
        moved = buffers.nbytes
        copied = 2 * self._from.nbytes / found["copy"]
        return {
            "schedule": asdict(schedule),
            "us_per_frame": round(1000 * found["kernel"] / FRAMES, 3),
            "gb_per_s": round(moved / found["kernel"] / 1e6, 1),
            "copy_gb_per_s": round(copied / 1e6, 1),
            "share": round(moved / found["kernel"] / copied, 4),
            "registers": kernel.registers,
            "spill_bytes": kernel.spill_bytes,
            "shared_bytes": kernel.shared_bytes,
            "occupancy": round(occupancy(self.device, schedule.threads, kernel.registers, kernel.shared_bytes), 3),
        }

    def single(self, case: Case) -> Dict[str, Any]:
        """One frame: 64 launches chained in a graph, and one alone between events."""
        work = self.work(case)
        kernel, buffers = TimedLaunch(chosen(work)), BatchBuffers(work, FRAMES)
        arguments = [buffers.argument(k) for k in range(FRAMES)]
        stream = cupy.cuda.Stream(non_blocking=True)
        with stream:
            stream.begin_capture()
            for argument in arguments:
                kernel(argument, 1)
            graph = stream.end_capture()
            found = medians({"graph": lambda: graph.launch(stream), "alone": lambda: kernel(arguments[0], 1)})
        return {
            "us_in_graph_of_64": round(1000 * found["graph"] / FRAMES, 3),
            "us_alone_between_events": round(1000 * found["alone"], 3),
        }

    def with_ssim(self, case: Case) -> Dict[str, Any]:
        """One frame to all of a case's products, SSIM among them, in two launches: 64 frames chained in a graph."""
        raw, (work, similarity) = frames(case.sensor), works_of(options_of(case), case, SHAPE)
        assert isinstance(work, PolarizationWork)
        first, buffers = TimedLaunch(chosen(work)), BatchBuffers(work, FRAMES)
        sums, size = buffers.out["sums"].data.ptr, buffers.sizes["sums"]
        second = TimedSsim(chosen(similarity), sums, sums + size // 2, size)
        arguments = [buffers.argument(k) for k in range(FRAMES)]
        stream = cupy.cuda.Stream(non_blocking=True)
        with stream:
            stream.begin_capture()
            for k in range(FRAMES):
                first(arguments[k], 1)
                second.compare(k, 1)
            graph = stream.end_capture()
            found = medians({"graph": lambda: graph.launch(stream)})
        with closing(Pipeline(case.sensor, case.products, "cpu", dtype="uint8", **case.options)) as pipeline:
            wanted = [float(pipeline(raw[k])["ssim"]) for k in (0, FRAMES - 1)]
        got = [float(second.arrays["mean"][k]) for k in (0, FRAMES - 1)]
        return {
            "text": case.text,
            "goal": case.goal,
            "schedules": [asdict(first.schedule), asdict(second.schedule)],
            "us_in_graph_of_64": round(1000 * found["graph"] / FRAMES, 3),
            "ssim_off_cpu": float(np.abs(np.subtract(got, wanted)).max()),
        }

    def with_geometry(self, case: Case) -> Dict[str, Any]:
        """Frames to the products of a geometry, in two launches; and how many times that of `mono_half` they take."""
        options = options_of(case)
        launches, graphs = TimedGeometry(works_of(options, case, SHAPE), options), {}
        stream = cupy.cuda.Stream(non_blocking=True)
        with stream:
            for count in _BATCHES:
                stream.begin_capture()
                for k in range(0, FRAMES, count):
                    launches(k, count)
                graphs[str(count)] = stream.end_capture()
            found = medians({name: lambda graph=graph: graph.launch(stream) for name, graph in graphs.items()})
        us, plain = {name: round(1000 * ms / FRAMES, 3) for name, ms in found.items()}, CASES["mono_half"]
        without = {"1": self.single(plain)["us_in_graph_of_64"], str(FRAMES): self.batch(plain)["us_per_frame"]}
        return {
            "text": case.text,
            "goal": case.goal,
            "schedules": [asdict(schedule) for schedule in launches.schedules],
            "us_per_frame_by_frames_a_launch": us,
            "times_mono_half": {name: round(us[name] / time, 2) for name, time in without.items()},
            "levels_off_cpu": _levels_off_cpu(case, launches.out),
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

        work = self.work(CASES["color_angles"])
        kernel, buffers = TimedLaunch(chosen(work)), BatchBuffers(work, FRAMES)
        argument = buffers.argument()
        stream = cupy.cuda.Stream(non_blocking=True)
        with stream:
            four_calls(0)  # loads the library's kernels before the capture
            stream.synchronize()
            stream.begin_capture()
            for frame in range(16):
                four_calls(frame)
            graph = stream.end_capture()
            found = medians({"npp": lambda: graph.launch(stream), "kernel": lambda: kernel(argument)}, 15)
        npp_us, us = 1000 * found["npp"] / 16, 1000 * found["kernel"] / FRAMES
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


def _levels_off_cpu(case: Case, out: Dict[str, Any]) -> Dict[str, int]:
    """Product -> largest difference of two frames from those of the CPU, in levels; AoLP around the circle."""
    raw, worst = frames(case.sensor), {}
    with closing(Pipeline(case.sensor, case.products, "cpu", dtype="uint8", **case.options)) as pipeline:
        for k in (0, FRAMES - 1):
            wanted = pipeline(raw[k])
            for name, images in out.items():
                error = np.abs(images[k].get().astype(int) - wanted[name])
                error = np.minimum(error, 256 - error) if name == "aolp" else error
                error = error[wanted["dolp"] >= 13] if name == "aolp" else error  # below, the angle is noise
                worst[name] = max(worst.get(name, 0), int(error.max()))
    return worst


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", help=f"of {', '.join((*CASES, *GEOMETRIES))}; all by default")
    parser.add_argument("--output", type=Path, help="result file; a run of all cases writes one in results/")
    parser.add_argument("--candidates", action="store_true", help="measure every schedule of every case")
    values = parser.parse_args()
    bench = Bench()
    report: Dict[str, Any] = {"device": bench.name, "frames": FRAMES, "size": list(SHAPE[::-1]), "cases": {}}
    asked = values.cases or [*CASES, *GEOMETRIES]
    names, geometries = ([name for name in asked if name in table] for table in (CASES, GEOMETRIES))
    if values.candidates:
        for name in names:
            report["cases"][name] = bench.every_schedule(CASES[name])
            for row in report["cases"][name][:5]:
                print(name, row["us_per_frame"], row["share"], row["registers"], row["schedule"], flush=True)
    else:
        rows = []
        for name in names:
            case = CASES[name]
            found = {"text": case.text, "goal": case.goal, **bench.batch(case)}
            if name in ("mono_half", "color_fused", "color_angles", "color_default"):
                found["single_frame"] = bench.single(case)
            report["cases"][name] = found
            columns = ("us_per_frame", "share", "goal", "registers")
            rows.append((case.text, *(found[column] for column in columns)))
            print(name, json.dumps(found), flush=True)
        report["with_geometry"] = {name: bench.with_geometry(GEOMETRIES[name]) for name in geometries}
        print("with a geometry:", json.dumps(report["with_geometry"]))
        if not values.cases:
            report["with_ssim"] = {name: bench.with_ssim(case) for name, case in TWO_LAUNCHES.items()}
            print("with SSIM:", json.dumps(report["with_ssim"]))
            report["whole_frames_us"] = {name: whole_frames(name) for name in WHOLE_FRAMES}
            print("whole frames:", json.dumps(report["whole_frames_us"]))
        report["npp"] = bench.npp()
        report["cpu"] = bench.against_cpu(CASES["mono_half"])
        print(common.table(("case", "us a frame", "of copy", "asked", "registers"), rows))
        print("NPP:", report["npp"], "CPU:", report["cpu"])
    report["machine"] = common.machine(["cupy-cuda11x", "cupy-cuda12x", "cupy-cuda13x", "numpy"])
    if not (values.candidates or values.cases) or values.output:
        common.write(values.output or common.RESULTS / f"gpu_{common.slug(bench.name)}.json", report)


if __name__ == "__main__":
    main()
