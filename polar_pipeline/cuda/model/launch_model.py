"""One launch on one device: its schedules, what each takes, and how long it should take.

The solver (`tuned.py`, `partition.py`), the backend and the tools work with `LaunchModel` and need not know which
launch it is; `launch_model` makes one from a description of the work.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Dict, List, NoReturn, Tuple, Union

from polar_pipeline.cuda.model import (
    geometry,
    polarization_cost,
    registers,
    search,
    ssim_cost,
    ssim_search,
    transform_cost,
)
from polar_pipeline.cuda.model.cost import Cost, Prediction
from polar_pipeline.cuda.model.device import Device
from polar_pipeline.cuda.model.schedule import Schedule, ScheduleError
from polar_pipeline.cuda.model.ssim_work import SsimWork, ssim_defines, ssim_key
from polar_pipeline.cuda.model.transform_work import TransformWork, transform_defines, transform_key
from polar_pipeline.cuda.model.work import PolarizationWork, polarization_defines, polarization_key

#: What one launch has to do.
KernelWork = Union[PolarizationWork, TransformWork, SsimWork]


class LaunchModel(ABC):
    """What one launch takes on a device, by schedule.

    Args:
        device: The GPU.

    Attributes:
        device: The same.
        key: The work as short text without its size: the key of tuned schedules.
        size: (width, height) of the frame, or of the images that a later launch makes or compares.
    """

    def __init__(self, device: Device, key: str, size: Tuple[int, int]) -> None:
        self.device = device
        self.key = key
        self.size = size

    @abstractmethod
    def candidates(self) -> List[Schedule]:
        """Every schedule that meets the hard constraints."""

    def check(self, schedule: Schedule) -> None:
        """Refuse a schedule that cannot do the work on the device.

        Raises:
            ScheduleError: It is not one of the candidates, or with what it needs and what is available.
        """
        if schedule not in self.candidates():
            raise ScheduleError(f"{schedule.kernel} on {self.device.name}: {schedule} is not one of its schedules")

    @abstractmethod
    def refuse(self) -> NoReturn:
        """Say why no schedule fits the device.

        Raises:
            ScheduleError: In any case; what the smallest schedule needs, and the limit.
        """

    @abstractmethod
    def defines(self, schedule: Schedule) -> Dict[str, Union[int, str]]:
        """The preprocessor definitions that compile the work and a schedule into the kernel."""

    @abstractmethod
    def grid(self, schedule: Schedule, frames: int = 1) -> Tuple[int, int, int]:
        """Blocks along x, y and z; z counts frames."""

    @abstractmethod
    def shared_bytes(self, schedule: Schedule) -> int:
        """Dynamic shared memory of a block."""

    @abstractmethod
    def registers(self, schedule: Schedule) -> int:
        """Registers of a thread that the solver expects."""

    @abstractmethod
    def cost(self, schedule: Schedule) -> Cost:
        """What one frame moves and computes."""

    @abstractmethod
    def predict(self, schedule: Schedule, frames: int = 1) -> Prediction:
        """Predicted time of a launch."""


class PolarizationModel(LaunchModel):
    """The polarization launch: from the mosaic to every product but SSIM's.

    Args:
        work: What it does.
        device: The GPU.

    Attributes:
        work: The same.
    """

    def __init__(self, work: PolarizationWork, device: Device) -> None:
        super().__init__(device, polarization_key(work), (work.width, work.height))
        self.work = work

    def candidates(self) -> List[Schedule]:
        return search.candidates(self.work, self.device)

    def check(self, schedule: Schedule) -> None:
        search.check(self.work, schedule, self.device)

    def refuse(self) -> NoReturn:
        search.refuse(self.work, self.device)

    def defines(self, schedule: Schedule) -> Dict[str, Union[int, str]]:
        return {**polarization_defines(self.work), **geometry.schedule_defines(self.work, schedule)}

    def grid(self, schedule: Schedule, frames: int = 1) -> Tuple[int, int, int]:
        return geometry.grid(self.work, schedule, frames)

    def shared_bytes(self, schedule: Schedule) -> int:
        return geometry.shared_bytes(self.work, schedule)

    def registers(self, schedule: Schedule) -> int:
        return registers.registers(self.work, schedule, self.device)

    def cost(self, schedule: Schedule) -> Cost:
        return polarization_cost.cost(self.work, schedule, self.device)

    def predict(self, schedule: Schedule, frames: int = 1) -> Prediction:
        return polarization_cost.predict(self.work, schedule, self.device, frames)

    def occupancy(self, schedule: Schedule) -> float:
        """Expected share of a multiprocessor's warps that are resident, 0 to 1."""
        return search.expected_occupancy(self.work, schedule, self.device)


class TransformModel(LaunchModel):
    """The launch of a geometry: from the planes of the Stokes image to the products of the transformed one.

    Args:
        work: What it does.
        device: The GPU.

    Attributes:
        work: The same.
    """

    def __init__(self, work: TransformWork, device: Device) -> None:
        super().__init__(device, f"transform {transform_key(work)}", (work.width, work.height))
        self.work = work

    def candidates(self) -> List[Schedule]:
        return transform_cost.candidates(self.work, self.device)

    def refuse(self) -> NoReturn:
        transform_cost.refuse(self.work, self.device)

    def defines(self, schedule: Schedule) -> Dict[str, Union[int, str]]:
        return {**transform_defines(self.work), **transform_cost.schedule_defines(self.work, schedule)}

    def grid(self, schedule: Schedule, frames: int = 1) -> Tuple[int, int, int]:
        return transform_cost.grid(self.work, schedule, frames)

    def shared_bytes(self, schedule: Schedule) -> int:
        return transform_cost.shared_bytes(self.work, schedule)

    def registers(self, schedule: Schedule) -> int:
        return transform_cost.registers(self.work, schedule, self.device)

    def cost(self, schedule: Schedule) -> Cost:
        return transform_cost.cost(self.work, schedule, self.device)

    def predict(self, schedule: Schedule, frames: int = 1) -> Prediction:
        return transform_cost.predict(self.work, schedule, self.device, frames)

    def occupancy(self, schedule: Schedule) -> float:
        """Expected share of a multiprocessor's warps that are resident, 0 to 1."""
        return transform_cost.expected_occupancy(self.work, schedule, self.device)


class SsimModel(LaunchModel):
    """The SSIM launch: from two images, or the mosaic they are made of, to their similarity.

    Args:
        work: What it does.
        device: The GPU.

    Attributes:
        work: The same.
    """

    def __init__(self, work: SsimWork, device: Device) -> None:
        super().__init__(device, f"ssim {ssim_key(work)}", (work.width, work.height))
        self.work = work

    def candidates(self) -> List[Schedule]:
        return ssim_search.candidates(self.work, self.device)

    def refuse(self) -> NoReturn:
        ssim_search.refuse(self.work, self.device)

    def defines(self, schedule: Schedule) -> Dict[str, Union[int, str]]:
        return {**ssim_defines(self.work), **ssim_search.schedule_defines(schedule)}

    def grid(self, schedule: Schedule, frames: int = 1) -> Tuple[int, int, int]:
        return ssim_search.grid(self.work, schedule, frames)

    def shared_bytes(self, schedule: Schedule) -> int:
        return ssim_search.shared_bytes(schedule)

    def registers(self, schedule: Schedule) -> int:
        return ssim_search.registers(self.work, schedule)

    def cost(self, schedule: Schedule) -> Cost:
        return ssim_cost.cost(self.work, schedule, self.device)

    def predict(self, schedule: Schedule, frames: int = 1) -> Prediction:
        return ssim_cost.predict(self.work, schedule, self.device, frames)


def launch_model(work: KernelWork, device: Device) -> LaunchModel:
    """The model of a launch.

    Args:
        work: What it does.
        device: The GPU.
    """
    if isinstance(work, SsimWork):
        return SsimModel(work, device)
    return TransformModel(work, device) if isinstance(work, TransformWork) else PolarizationModel(work, device)
