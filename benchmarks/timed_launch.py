"""Single launches of compiled schedules on a GPU, and the throughput of its pipes, for `model.py`."""

from __future__ import annotations

import statistics
from typing import Any, Dict

import numpy as np
from batches import BatchBuffers
from polar_pipeline.cuda.model.launch_model import LaunchModel, PolarizationModel, SsimModel
from polar_pipeline.cuda.model.schedule import Schedule
from polar_pipeline.cuda.model.ssim_search import piece_count
from polar_pipeline.cuda.model.ssim_work import SSIM_ARGUMENT, SsimWork, as_compared
from timing import cupy, driver, milliseconds

from polar_pipeline.cuda.compile import compile_kernel
from polar_pipeline.plan import MOSAIC

ROUNDS = 15


def compiled(model: LaunchModel, schedule: Schedule, arch: str) -> bytes:
    """The machine code of a launch for an architecture such as `sm_90`."""
    return compile_kernel(schedule.kernel, model.defines(schedule), arch)


class TimedLaunch:
    """A compiled schedule with inputs and outputs for a number of frames on the GPU; calling it launches it once.

    Args:
        model: What the launch does.
        schedule: How.
        frames: Frames per launch.
        arch: What to compile for, such as `sm_90`.
    """

    def __init__(self, model: LaunchModel, schedule: Schedule, frames: int, arch: str) -> None:
        self._arrays: Dict[str, Any] = {}
        if isinstance(model, SsimModel):
            self._argument = self._ssim_argument(model.work, schedule, frames)
        elif isinstance(model, PolarizationModel):
            self._buffers = BatchBuffers(model.work, frames)
            self._argument = self._buffers.argument()
        else:
            raise TypeError(f"expected the model of a polarization or SSIM launch, got {type(model).__name__}")
        self._shared, self._grid = model.shared_bytes(schedule), model.grid(schedule, frames)
        self._threads, self._driver = schedule.threads, driver()
        self._kernel = self._driver.load(compiled(model, schedule, arch), schedule.kernel, self._shared)

    def _keep(self, name: str, array: Any) -> Any:
        """The array, which now lives as long as the launch."""
        self._arrays[name] = array
        return array

    def _ssim_argument(self, work: SsimWork, schedule: Schedule, frames: int) -> np.ndarray:
        images = self._keep("images", _images(work, frames))
        argument = np.zeros((), SSIM_ARGUMENT)
        argument["first"] = images.data.ptr
        argument["second"] = images.data.ptr + (0 if work.source == MOSAIC else images[0, 0].nbytes)
        argument["first_stride"] = argument["second_stride"] = images[0].nbytes
        sizes = {
            "map": (work.map_size, work.map_dtype or "uint8"),
            "pieces": ((piece_count(work, schedule),), "float32"),
            "done": ((), "uint32"),
            "blocks": (work.block_size, "float32"),
            "mean": ((), "float32"),
        }
        for name, (shape, dtype) in sizes.items():
            argument[name] = self._keep(name, cupy.zeros((frames, *shape), dtype)).data.ptr
        return argument

    def __call__(self) -> None:
        stream = cupy.cuda.get_current_stream().ptr
        self._driver.launch(self._kernel, self._grid, self._threads, self._shared, stream, self._argument)


def _images(work: SsimWork, frames: int) -> Any:
    """Images on the GPU, noise moved by 8 columns from frame to frame.

    Returns:
        (frames, 2, height, width): the two images to compare; or (frames, 2 * height, 2 * width): the mosaic.
    """
    rng = np.random.default_rng(1)
    if work.source == MOSAIC:
        one = rng.integers(13, 204, (2 * work.height, 2 * work.width), np.uint8)
    else:
        base = rng.random((work.height, work.width)) * 0.8
        one = as_compared(np.stack([base, base + 0.02 * rng.random(base.shape)]), work.source)
    return cupy.stack([cupy.asarray(np.roll(one, 8 * k, -1)) for k in range(frames)])


def measure(model: LaunchModel, schedule: Schedule, frames: int, arch: str) -> float:
    """Microseconds per frame; the median of `ROUNDS` launches."""
    launch = TimedLaunch(model, schedule, frames, arch)
    launch()
    found = statistics.median(milliseconds(launch) for _ in range(ROUNDS))
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
    """Measured results per clock and multiprocessor, of 32-bit words, by pipe."""
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
