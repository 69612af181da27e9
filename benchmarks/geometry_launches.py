"""The launches of a frame with a geometry, for `gpu.py`: every way that the package knows, side by side."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any, Dict, List, Tuple

import numpy as np
from batches import BatchBuffers
from gpu_cases import Case, options_of, work_of
from timed_launch import compiled
from timing import FRAMES, SHAPE, cupy, driver, frames, medians

from polar_pipeline import Pipeline
from polar_pipeline.cuda.model.device import Device
from polar_pipeline.cuda.model.launch_model import TransformModel
from polar_pipeline.cuda.model.partition import Partition, partitions
from polar_pipeline.cuda.model.transform_cost import plane_bytes, source_bytes
from polar_pipeline.cuda.model.transform_work import TRANSFORM_ARGUMENT
from polar_pipeline.cuda.model.work import OUTPUTS, fill_options
from polar_pipeline.cuda.sampling import DeviceMap, pack_map
from polar_pipeline.geometry import make_map
from polar_pipeline.options import Options
from polar_pipeline.plan import make_plan

#: Frames in a launch: one, few enough for their planes to stay in the cache of an H200 until the second launch has read
#: them, and all.
BATCHES = (1, 4, FRAMES)


def geometry_launches(case: Case, device: Device, arch: str) -> List[GeometryLaunches]:
    """The launches of each partition of a case with a geometry; the first is what the package takes.

    Args:
        case: The case.
        device: The GPU.
        arch: What to compile for.
    """
    options = options_of(case)
    found = partitions(work_of(options, case, SHAPE), make_plan(options.products), options, device)
    return [GeometryLaunches(case, partition, options, arch) for partition in found]


class GeometryLaunches:
    """The launches of a partition, on frames side by side.

    Args:
        case: With a geometry.
        partition: Of it.
        options: Of the case.
        arch: What to compile for.
    """

    def __init__(self, case: Case, partition: Partition, options: Options, arch: str) -> None:
        self._case, self._partition, self._options = case, partition, options
        work, products = partition.frames, partition.products.model.work
        self._buffers = BatchBuffers(work, FRAMES)
        self._out = {
            name: cupy.zeros((FRAMES, *options.shape_of(name, products.output_size)), dtype)
            for name, dtype in products.outputs
        }
        self._counts = cupy.zeros((FRAMES, 2), cupy.uint32)
        self._launches = list(partition.launches)
        transform = partition.transform
        assert transform is not None
        assert options.geometry is not None
        sampling, planned = make_map(options.geometry, work.output_size), transform.model.work
        packed = None if sampling.positions is None else pack_map(sampling, planned, transform.schedule)
        self._map = DeviceMap(driver(), sampling, packed)
        if packed is not None:
            planned = replace(planned, fraction=packed.fraction)
        self._launches[1] = replace(transform, model=TransformModel(planned, transform.model.device))
        self._planes = {n: cupy.zeros(size, cupy.uint8) for n, size in plane_bytes(planned, FRAMES).items()}
        self._kernels = []
        for launch in self._launches:
            model, schedule = launch.model, launch.schedule
            code, shared = compiled(model, schedule, arch), model.shared_bytes(schedule)
            self._kernels.append(driver().load(code, schedule.kernel, shared))
        self._arguments = [self._arguments_of(k) for k in range(FRAMES)]

    def _arguments_of(self, k: int) -> Tuple[np.ndarray, ...]:
        """The argument of each launch for the batch that begins at a frame.

        Every frame has planes of its own: a first launch may begin while the second one before it still reads.
        """
        last = np.zeros((), TRANSFORM_ARGUMENT)
        frame, full_scale = self._buffers.argument(k), self._partition.frames.full_scale
        self._map.fill(last)
        if not self._planes:
            last["frame"] = frame
        for argument in (frame, last["frame"]):
            fill_options(argument, self._options, full_scale)
        for name, plane in self._planes.items():
            place = plane.data.ptr + k * self._buffers.sizes[name]
            frame["out"][OUTPUTS.index(name)] = last[name] = place
        for name, images in self._out.items():
            last["frame"]["out"][OUTPUTS.index(name)] = images[k].data.ptr
        last["frame"]["counts"] = self._counts[k].data.ptr
        return (frame, last) if self._planes else (last,)

    def launch(self, k: int, count: int) -> None:
        """All launches of some frames."""
        stream = cupy.cuda.get_current_stream().ptr
        for launch, kernel, argument in zip(self._launches, self._kernels, self._arguments[k]):
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
        predicted = sum(launch.model.predict(launch.schedule, FRAMES).us for launch in self._launches) / FRAMES
        planes = sum(source_bytes(row.model.work) for row in self._launches if isinstance(row.model, TransformModel))
        return {
            "schedules": [asdict(launch.schedule) for launch in self._launches],
            "us_per_frame_by_frames_a_launch": {n: round(1000 * ms / FRAMES, 3) for n, ms in found.items()},
            "predicted_us": round(predicted, 2),
            "plane_bytes": planes,
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
