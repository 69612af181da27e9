"""The two launches of a frame with a geometry, for `gpu.py`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Dict, List

import numpy as np
from batches import BatchBuffers
from gpu_cases import Case, options_of, work_of
from timed_launch import compiled
from timing import FRAMES, SHAPE, cupy, driver, frames, medians

from polar_pipeline import Pipeline
from polar_pipeline.cuda.model.device import Device
from polar_pipeline.cuda.model.launch_model import TransformModel
from polar_pipeline.cuda.model.partition import partitions
from polar_pipeline.cuda.model.transform_cost import plane_bytes, source_bytes
from polar_pipeline.cuda.model.transform_work import TRANSFORM_ARGUMENT
from polar_pipeline.cuda.model.work import OUTPUTS, fill_options
from polar_pipeline.cuda.sampling import DeviceMap
from polar_pipeline.geometry import make_map
from polar_pipeline.plan import make_plan

#: Frames in a launch: one, few enough for their planes to stay in the cache of an H200 until the second launch has read
#: them, and all.
BATCHES = (1, 4, FRAMES)


class GeometryLaunches:
    """Both launches of a case, on frames side by side.

    Args:
        case: With a geometry.
        device: The GPU.
        arch: What to compile for.
    """

    def __init__(self, case: Case, device: Device, arch: str) -> None:
        options = options_of(case)
        plan, work = make_plan(options.products), work_of(options, case, SHAPE)
        partition = partitions(work, plan, options, device)[0]
        assert partition.transform is not None
        assert options.geometry is not None
        self._case, self._first, planned = case, partition.polarization, partition.transform
        sampling = make_map(options.geometry, work.output_size)
        self._map = DeviceMap(driver(), sampling, planned.model.work, planned.schedule)
        self._work = transform = replace(planned.model.work, fraction=self._map.fraction)
        self._second = replace(planned, model=TransformModel(transform, device))
        self._buffers = BatchBuffers(work, FRAMES)
        self._planes = {n: cupy.zeros(size, cupy.uint8) for n, size in plane_bytes(transform, FRAMES).items()}
        self._out = {
            name: cupy.zeros((FRAMES, *options.shape_of(name, transform.output_size)), dtype)
            for name, dtype in transform.outputs
        }
        self._counts = cupy.zeros((FRAMES, 2), cupy.uint32)
        self._kernels = []
        for launch in (self._first, self._second):
            model, schedule = launch.model, launch.schedule
            code, shared = compiled(model, schedule, arch), model.shared_bytes(schedule)
            self._kernels.append(driver().load(code, schedule.kernel, shared))
        self._arguments = self._make_arguments(options)

    def _make_arguments(self, options: Any) -> List[Any]:
        """(first, second) argument for the batch that begins at each frame.

        Every frame has planes of its own: a first launch may begin while the second one before it still reads.
        """
        found = []
        for k in range(FRAMES):
            first, second = self._buffers.argument(k), np.zeros((), TRANSFORM_ARGUMENT)
            for frame in (first, second["frame"]):
                fill_options(frame, options, self._first.model.work.full_scale)
            self._map.fill(second)
            for name, plane in self._planes.items():
                place = plane.data.ptr + k * self._buffers.sizes[name]
                first["out"][OUTPUTS.index(name)] = second[name] = place
            for name, images in self._out.items():
                second["frame"]["out"][OUTPUTS.index(name)] = images[k].data.ptr
            second["frame"]["counts"] = self._counts[k].data.ptr
            found.append((first, second))
        return found

    def launch(self, k: int, count: int) -> None:
        """Both launches of some frames."""
        stream = cupy.cuda.get_current_stream().ptr
        for launch, kernel, argument in zip((self._first, self._second), self._kernels, self._arguments[k]):
            model, schedule = launch.model, launch.schedule
            grid, shared = model.grid(schedule, count), model.shared_bytes(schedule)
            driver().launch(kernel, grid, schedule.threads, shared, stream, argument)

    def measure(self) -> Dict[str, Any]:
        """Microseconds a frame by frames in a launch, in a graph; and how far products are off those of the CPU."""
        graphs: Dict[str, Any] = {}
        stream = cupy.cuda.Stream(non_blocking=True)
        with stream:
            for count in BATCHES:
                stream.begin_capture()
                for k in range(0, FRAMES, count):
                    self.launch(k, count)
                graphs[str(count)] = stream.end_capture()
            runs = {name: lambda graph=graph: graph.launch(stream) for name, graph in graphs.items()}
            found = medians(runs)
        return {
            "text": self._case.text,
            "goal": self._case.goal,
            "us_per_frame_by_frames_a_launch": {n: round(1000 * ms / FRAMES, 3) for n, ms in found.items()},
            "plane_bytes": source_bytes(self._work),
            "levels_off_cpu": self._worst(),
        }

    def _worst(self) -> Dict[str, int]:
        """Product -> largest difference of two frames from those of the CPU, in levels; AoLP around the circle."""
        raw, worst = frames(self._case.sensor), {}
        with Pipeline(self._case.sensor, self._case.products, "cpu", dtype="uint8", **self._case.options) as pipeline:
            for k in (0, FRAMES - 1):
                wanted = pipeline(raw[k])
                for name, images in self._out.items():
                    error = np.abs(images[k].get().astype(int) - wanted[name])
                    error = np.minimum(error, 256 - error) if name == "aolp" else error
                    error = error[wanted["dolp"] >= 13] if name == "aolp" else error  # below, the angle is noise
                    worst[name] = max(worst.get(name, 0), int(error.max()))
        return worst
