"""Single launches of compiled schedules on a GPU, and the throughput of its pipes, for `model.py`."""

from __future__ import annotations

import statistics
from typing import Any, Dict

import numpy as np
from polar_pipeline.cuda.choice import AnyWork
from polar_pipeline.cuda.schedule import Schedule
from polar_pipeline.cuda.ssim import Similarity
from polar_pipeline.cuda.work import CAMERA_FORMATS, FRAME, OUTPUTS, Work, defines

from polar_pipeline.cuda import schedule as polarization
from polar_pipeline.cuda import ssim
from polar_pipeline.plan import MOSAIC
from polar_pipeline.sensor import pack

ROUNDS = 15


class Launch:
    """A compiled schedule with frames and outputs on the GPU."""

    def __init__(self, work: AnyWork, schedule: Schedule, frames: int, arch: str) -> None:
        import cupy
        import gpu

        self._arrays: Dict[str, Any] = {}
        rng = np.random.default_rng(1)
        if isinstance(work, Similarity):
            flags = {**ssim.defines(work), **ssim.schedule_defines(schedule)}
            self.shared, self.grid = ssim.shared_bytes(schedule), ssim.grid(work, schedule, frames)
            if work.source == MOSAIC:
                one = rng.integers(13, 204, (2 * work.height, 2 * work.width), np.uint8)
            else:
                base = rng.random((work.height, work.width)) * 0.8
                one = np.stack([base, base + 0.02 * rng.random(base.shape)]).astype(work.source)
            images = self._keep("images", cupy.stack([cupy.asarray(np.roll(one, 8 * k, -1)) for k in range(frames)]))
            argument = np.zeros((), ssim.COMPARISON)
            argument["first"] = images.data.ptr
            argument["second"] = images.data.ptr + (0 if work.source == MOSAIC else images[0, 0].nbytes)
            argument["first_stride"] = argument["second_stride"] = images[0].nbytes
            sizes = {
                "map": (work.map_size, work.map_dtype or "uint8"),
                "pieces": ((ssim.pieces(work, schedule),), "float32"),
                "done": ((), "uint32"),
                "blocks": (work.block_size, "float32"),
                "mean": ((), "float32"),
            }
            for name, (shape, dtype) in sizes.items():
                argument[name] = self._keep(name, cupy.zeros((frames, *shape), dtype)).data.ptr
        else:
            flags = {**defines(work), **polarization.schedule_defines(work, schedule)}
            self.shared = polarization.shared_bytes(work, schedule)
            self.grid = polarization.grid(work, schedule, frames)
            raw = self._keep("raw", _frames(work, frames))
            argument = np.zeros((), FRAME)
            argument["raw"] = raw.data.ptr
            argument["counts"] = self._keep("counts", cupy.zeros((frames, 2), cupy.uint32)).data.ptr
            for name, dtype in work.outputs:
                size = polarization.output_bytes(work._replace(outputs=((name, dtype),)))
                argument["out"][OUTPUTS.index(name)] = self._keep(name, cupy.zeros(frames * size, cupy.uint8)).data.ptr
            argument["raw_stride"] = raw[0].nbytes
            argument["step"] = CAMERA_FORMATS[work.raw_format].row_bytes(work.width)
            argument["width"], argument["height"] = work.width, work.height
            argument["full_scale"], argument["min_intensity"] = work.full_scale, 0.01
        self._argument, self._threads, self._driver = argument, schedule.threads, gpu._driver()
        self._kernel = self._driver.load(gpu.compile_kernel(schedule.kernel, flags, arch), schedule.kernel, self.shared)

    def _keep(self, name: str, array: Any) -> Any:
        self._arrays[name] = array
        return array

    def __call__(self) -> None:
        import cupy

        stream = cupy.cuda.get_current_stream().ptr
        self._driver.launch(self._kernel, self.grid, self._threads, self.shared, stream, self._argument)


def _frames(work: Work, frames: int) -> Any:
    """(frames, bytes) on the GPU: a scene, moved by whole tiles from frame to frame."""
    import cupy
    import gpu

    raw = gpu.frames("IMX250MYR" if work.sensor.is_color else "IMX250MZR", (work.height, work.width))
    if work.raw_format != "u8":
        fine = raw[0].astype(np.uint16) * 16
        packed = np.frombuffer(pack(fine, CAMERA_FORMATS[work.raw_format]), np.uint8)
        if work.raw_format == "u16":
            packed = np.frombuffer(fine.tobytes(), np.uint8)
        step = CAMERA_FORMATS[work.raw_format].row_bytes(work.width)
        one = cupy.asarray(packed).reshape(work.height, step)
        return cupy.stack([cupy.roll(one, 8 * k, 0) for k in range(frames)])
    return cupy.asarray(raw[:frames])


def measure(work: AnyWork, schedule: Schedule, frames: int, arch: str) -> float:
    """Microseconds a frame; the median of some launches."""
    import cupy
    import gpu

    launch = Launch(work, schedule, frames, arch)
    launch()
    found = statistics.median(gpu.milliseconds(launch) for _ in range(ROUNDS))
    del launch
    cupy.get_default_memory_pool().free_all_blocks()
    return 1000 * found / frames


#: Instructions by the pipe that takes them, for inline assembly: eight independent chains, each of one instruction.
_PIPES = {
    "half2": "fma.rn.f16x2 %0,%0,%1,%1;",
    "float": "fma.rn.f32 %0,%0,%1,%1;",
    "integer": "lop3.b32 %0,%0,%1,%1,0x96;",
    "special": "ex2.approx.ftz.f32 %0,%0;",
}


def pipes() -> Dict[str, float]:
    """Results a clock and multiprocessor, of 32-bit words, by pipe."""
    import cupy

    found = {}
    for name, text in _PIPES.items():
        kind, letter = ("float", "f") if ".f32" in text else ("unsigned", "r")
        chains = "".join(f'asm volatile("{text}" : "+{letter}"(v[{k}]) : "{letter}"(w));' for k in range(8))
        code = (
            f'extern "C" __global__ void probe(long long* clocks, {kind}* out) {{ {kind} v[8], w = ({kind})threadIdx.x;'
            "for (int k = 0; k < 8; k++) v[k] = w + k; __syncthreads(); long long t = clock64();"
            f"for (int i = 0; i < 1024; i++) {{ {chains} }} __syncthreads();"
            "if (threadIdx.x == 0) clocks[blockIdx.x] = clock64() - t;"
            "for (int k = 0; k < 8; k++) if (v[k] == 12345) *out = v[k]; }"
        )
        kernel = cupy.RawKernel(code, "probe")
        clocks, out = cupy.zeros(1, cupy.int64), cupy.zeros(1, cupy.uint32)
        for _ in range(3):
            kernel((1,), (1024,), (clocks, out))
        found[name] = round(1024 * 8 * 1024 / float(clocks.get()[0]), 1)
    return found
