"""A simulated camera under the exposure control, whose commands take effect some frames later, and scenes before it."""

from __future__ import annotations

import math
from collections import deque
from typing import Any, Callable, Deque, List, Tuple

import numpy as np

from polar_pipeline.camera.exposure import ExposureControl
from polar_pipeline.camera.settings import CameraSettings
from polar_pipeline.quality.brightest import measure_brightest
from polar_pipeline.sensor.frames import RawFrame

#: Superpixels each way, electrons of a full pixel, and electrons of noise without light.
SIDE, FULL_WELL, READ_NOISE = 64, 10500.0, 2.5
#: Directions of the polarizers of a tile, row by row.
POLARIZERS = np.deg2rad([90, 45, 135, 0])
RANGES = {"exposure_us": (30.0, 1e6), "gain_db": (0.0, 24.0)}


def light_of(kind: str) -> np.ndarray:
    """Electrons per microsecond behind the polarizers, (H, W, 4), of a scene."""
    chance = np.random.default_rng(3)
    y, x = np.mgrid[:SIDE, :SIDE] / SIDE
    if kind == "street":  # sky, cars, road, and 0.2 % of glints
        sky, road = y < 0.35, y > 0.65
        light = np.where(sky, 3.0, np.where(road, 0.6, 0.9)) * np.exp(chance.normal(0, 0.35, y.shape))
        light = np.where(chance.random(y.shape) < 0.002, 30 * light, light)
        degree = np.where(sky, 0.55 * (1 - y), np.where(road, 0.35, 0.15))
    elif kind == "contrast":  # most of nine stops
        light, degree = np.exp(chance.normal(0, 1.4, y.shape)), 0.6 * chance.random(y.shape)
    elif kind == "wall":
        light, degree = 1 + 0.1 * x, np.full(y.shape, 0.05)
    elif kind == "low contrast":
        light, degree = np.exp(chance.normal(0, 0.02, y.shape)), np.full(y.shape, 0.05)
    elif kind == "flat":
        light, degree = np.ones(y.shape), np.zeros(y.shape)
    elif kind == "sky":
        light, degree = 1 - 0.4 * y, 0.55 * np.sin(0.2 + 1.3 * np.hypot(x, y) / 1.414) ** 2
    elif kind == "bimodal":  # 30 % is 50 times as bright as the rest
        light, degree = np.where(x + y / SIDE < 0.7, 0.02, 1.0), np.full(y.shape, 0.1)
        light = light * np.exp(chance.normal(0, 0.07, y.shape))
    else:  # a window in a dark room
        light = np.where((x < 0.15) & (y < 0.15), 60.0, 1.0) * np.exp(chance.normal(0, 0.3, y.shape))
        degree = np.full(y.shape, 0.3)
    return 0.3 * light[..., None] * (1 + degree[..., None] * np.cos(2 * (POLARIZERS - np.pi * x[..., None])))


class SimulatedCamera:
    """A camera under control: commands take effect some frames later.

    Attributes:
        exposures, levels, saturated: Of each frame: stops, percentile, share of superpixels with a saturated angle.
        changes: Frames after which the control gave a command.
        lost: Number of the next commands that the camera ignores.
        rounds: Exposure time that the camera makes of one that it is given.
    """

    def __init__(self, latency: int, bits: int = 12, is_stated: bool = True, **settings: Any) -> None:
        self.settings = CameraSettings(**settings)
        self.lost = 0
        self.rounds: Callable[[float], float] = float
        self.control = ExposureControl(self.settings, RANGES, 1000.0, 0.0)
        self._pipe: Deque[Tuple[float, float]] = deque([(1000.0, 0.0)] * (latency + 1))
        self._command = (1000.0, 0.0)
        self._bits, self._is_stated = bits, is_stated
        self._chance = np.random.default_rng(latency)
        self.exposures: List[float] = []
        self.levels: List[float] = []
        self.saturated: List[float] = []
        self.changes: List[int] = []

    def expose(self, light: np.ndarray) -> None:
        """Take a frame, and let the control judge it."""
        time_us, gain_db = self._pipe.popleft()
        electrons = self._chance.poisson(np.minimum(light * time_us, 3 * FULL_WELL))
        electrons = np.minimum(electrons + self._chance.normal(0, READ_NOISE, light.shape), FULL_WELL)
        full = (1 << self._bits) - 1
        pixels = np.clip(np.rint(electrons * 10 ** (gain_db / 20) / FULL_WELL * full), 0, full)
        mosaic = pixels.reshape(SIDE, SIDE, 2, 2).transpose(0, 2, 1, 3).reshape(2 * SIDE, 2 * SIDE)
        frame = RawFrame(mosaic.astype(np.uint8 if self._bits == 8 else np.uint16), full)
        brightest = measure_brightest(frame, self.settings.exposure_percentile)
        stated = (time_us, gain_db) if self._is_stated else (None, None)
        command = self.control.step(brightest, *stated)
        if command is not None:
            self.changes.append(len(self.exposures))
            if self.lost:
                self.lost -= 1
            else:
                self.set(*command)
        self._pipe.append(self._command)
        self.exposures.append(math.log2(time_us) + gain_db / (20 * math.log10(2)))
        self.levels.append(brightest.level)
        self.saturated.append(float((pixels >= full).any(-1).mean()))

    def set(self, time_us: float, gain_db: float) -> None:
        """Give the camera an exposure, as another program may."""
        self._command = self.rounds(time_us), gain_db

    def run(self, light: np.ndarray, frames: int) -> int:
        """Take frames of a scene that stands still; return the first one of their exposure of the end."""
        begun = len(self.exposures)
        for _ in range(frames):
            self.expose(light)
        moved = np.flatnonzero(np.abs(np.diff(self.exposures[begun:])) > 0.01)
        return int(moved[-1]) + 1 if moved.size else 0

    def reversals(self, frames: int) -> int:
        """Count changes of direction among the exposures of the last frames."""
        steps = np.diff(self.exposures[-frames:])
        return int((np.diff(np.sign(steps[np.abs(steps) > 0.01])) != 0).sum())
