"""Planned launches as compiled kernels on the device."""

from __future__ import annotations

from typing import Dict, Mapping, Tuple

import numpy as np

from polar_pipeline.cuda.compile import compile_kernel
from polar_pipeline.cuda.driver import Driver
from polar_pipeline.cuda.model.launch_model import SsimModel
from polar_pipeline.cuda.model.partition import AnyLaunch, PlannedLaunch
from polar_pipeline.cuda.model.ssim_search import piece_count
from polar_pipeline.cuda.model.ssim_work import SSIM_ARGUMENT

#: Shape and element type of an array.
ArrayType = Tuple[Tuple[int, ...], str]


class CompiledLaunch:
    """The kernel of a planned launch, compiled and loaded.

    Args:
        driver: The device.
        planned: What the kernel does and how.

    Raises:
        CompileError: The kernel does not compile.
    """

    def __init__(self, driver: Driver, planned: AnyLaunch) -> None:
        model, schedule = planned.model, planned.schedule
        self._driver = driver
        self._grid = model.grid(schedule)
        self._threads = schedule.threads
        self._shared_bytes = model.shared_bytes(schedule)
        code = compile_kernel(schedule.kernel, model.defines(schedule), driver.device.arch)
        self._kernel = driver.load(code, schedule.kernel, self._shared_bytes)

    def launch(self, stream: int, argument: np.ndarray) -> None:
        """Start the kernel, in the stream's order.

        Args:
            stream: Handle of the stream.
            argument: The kernel's only argument, a structure passed by value.
        """
        self._driver.launch(self._kernel, self._grid, self._threads, self._shared_bytes, stream, argument)

    def close(self) -> None:
        """Unload the kernel."""
        self._driver.unload(self._kernel)


class SsimLaunch:
    """The SSIM launch, with the arrays that it fills.

    Args:
        driver: The device.
        planned: What the kernel does and how.

    Attributes:
        outputs: Type of each array that it fills for the host, by name: `ssim_map` if it is wanted, `ssim`, `blocks`.
        scratch: Bytes of each array that it needs on the device, by name.

    Raises:
        CompileError: The kernel does not compile.
    """

    def __init__(self, driver: Driver, planned: PlannedLaunch[SsimModel]) -> None:
        work = planned.model.work
        self._compiled = CompiledLaunch(driver, planned)
        self.outputs: Dict[str, ArrayType] = {"ssim": ((), "float32"), "blocks": (work.block_size, "float32")}
        if work.map_dtype:
            self.outputs["ssim_map"] = (work.map_size, work.map_dtype)
        self.scratch = {"pieces": 4 * piece_count(work, planned.schedule), "done": 4}

    def launch(self, stream: int, first: int, second: int, addresses: Mapping[str, int]) -> None:
        """Compare two images, in the stream's order.

        Args:
            stream: Handle of the stream.
            first: Address of the first image, or of the mosaic.
            second: Address of the second image; of the mosaic again if it is compared.
            addresses: Address of every array in `outputs` and `scratch`.
        """
        argument = np.zeros((), SSIM_ARGUMENT)
        argument["first"], argument["second"] = first, second
        argument["mean"] = addresses["ssim"]
        argument["map"] = addresses.get("ssim_map", 0)
        for name in ("blocks", *self.scratch):
            argument[name] = addresses[name]
        self._compiled.launch(stream, argument)

    def close(self) -> None:
        """Unload the kernel."""
        self._compiled.close()
