"""Synthetic test patterns with sharp edges of polarization or of intensity, for measuring demosaic methods.

The scenes of `scenes.py` look like photographs, where most edges are of intensity. These patterns are
their counterpart: what polarizes is cut out sharply, as on liquid-crystal displays, adhesive tape and retarder films.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass
from typing import Callable, Dict, List, Tuple

import cv2
import numpy as np
from scenes import polarized

from polar_pipeline._util.text import quoted

#: Subpixels along each side of a pixel, in which patterns are painted.
_FINE = 8
#: Fixed-point bits of coordinates that OpenCV draws at.
_SHIFT = 4

Size = Tuple[int, int]


@dataclass(frozen=True)
class Material:
    """What a region of a pattern sends to the camera.

    Attributes:
        light: S0/2, full scale 1.
        degree: DoLP.
        angle: AoLP in rad.
    """

    light: float
    degree: float
    angle: float


#: Number of a material for every subpixel, (H, W) uint8, and the materials.
Painting = Tuple[np.ndarray, List[Material]]


def _canvas(size: Size) -> np.ndarray:
    return np.zeros((size[0] * _FINE, size[1] * _FINE), np.uint8)


def _lcd_text(size: Size, rng: np.random.Generator) -> Painting:
    """Text on a liquid-crystal display: the same light everywhere, crossed polarization in the letters."""
    canvas = _canvas(size)
    line, height = 0.0, 9.0
    while line < size[0]:
        scale = height * _FINE / cv2.getTextSize("X", cv2.FONT_HERSHEY_SIMPLEX, 1, 1)[0][1]
        stroke = max(1, round(height * _FINE / 7))
        text = " ".join("".join(rng.choice(list("ABEHKMRSXZ0123456789"), 5)) for _ in range(12))
        start = (round(rng.uniform(-20, 0) * _FINE), round((line + 1.2 * height) * _FINE))
        cv2.putText(canvas, text, start, cv2.FONT_HERSHEY_SIMPLEX, scale, 1, stroke)
        line += 1.6 * height
        height = 9.0 if height > 30 else 1.3 * height
    angle = rng.uniform(0, np.pi)
    return canvas, [Material(0.45, 0.98, angle), Material(0.45, 0.98, angle + np.pi / 2)]


def _tape(size: Size, rng: np.random.Generator) -> Painting:
    """Strips of tape across a polarized screen: each is clear, and turns the polarization."""
    canvas, materials = _canvas(size), [Material(0.45, 0.95, rng.uniform(0, np.pi))]
    for _ in range(10):
        center = rng.uniform(0, 1, 2) * (size[1], size[0]) * _FINE
        strip = (tuple(center), (3 * max(size) * _FINE, rng.uniform(12, 40) * _FINE), rng.uniform(0, 180))
        corners = np.rint(cv2.boxPoints(strip) * (1 << _SHIFT)).astype(np.int32)
        cv2.fillConvexPoly(canvas, corners, len(materials), cv2.LINE_8, _SHIFT)
        materials.append(Material(0.43, 0.93, rng.uniform(0, np.pi)))
    return canvas, materials


def _discs(size: Size, rng: np.random.Generator) -> Painting:
    """Half-wave discs on a polarized screen, each with its axis turned."""
    canvas, materials = _canvas(size), [Material(0.45, 0.95, 0.0)]
    for _ in range(60):
        center = rng.uniform(0, 1, 2) * (size[1], size[0]) * _FINE * (1 << _SHIFT)
        radius = rng.uniform(4, 24) * _FINE * (1 << _SHIFT)
        cv2.circle(canvas, tuple(np.rint(center).astype(int)), round(radius), len(materials), -1, cv2.LINE_8, _SHIFT)
        materials.append(Material(0.45, 0.95, 2 * rng.uniform(0, np.pi)))
    return canvas, materials


def _kinds(rng: np.random.Generator) -> Dict[str, List[Material]]:
    """Two materials that differ in polarization only, and two that differ in intensity only."""
    angle = rng.uniform(0, np.pi)
    return {
        "polarization": [Material(0.45, 0.9, angle), Material(0.45, 0.9, angle + np.pi / 2)],
        "intensity": [Material(0.15, 0.3, angle), Material(0.75, 0.3, angle)],
    }


def _coordinates(size: Size) -> Tuple[np.ndarray, np.ndarray]:
    """Every subpixel's x (1, W), rightwards, and y (H, 1), downwards, in pixels from the center."""
    height, width = size
    x = (np.arange(width * _FINE, dtype=np.float32) + 0.5) / _FINE - width / 2
    y = (np.arange(height * _FINE, dtype=np.float32) + 0.5) / _FINE - height / 2
    return x[np.newaxis], y[:, np.newaxis]


def _star(kind: str) -> Callable[[Size, np.random.Generator], Painting]:
    """A Siemens star of 36 sectors: finer and finer toward its center."""

    def paint(size: Size, rng: np.random.Generator) -> Painting:
        x, y = _coordinates(size)
        sectors = np.floor(36 * (np.arctan2(y, x) / (2 * np.pi) + 0.5))
        return (sectors % 2).astype(np.uint8), _kinds(rng)[kind]

    return paint


def _stripes(kind: str, period: float) -> Callable[[Size, np.random.Generator], Painting]:
    """Oblique stripes of one period in pixels."""

    def paint(size: Size, rng: np.random.Generator) -> Painting:
        x, y = _coordinates(size)
        slope = np.deg2rad(27)  # near no direction of the mosaic
        across = (x * np.cos(slope) + y * np.sin(slope)) / period
        return (np.floor(2 * across) % 2).astype(np.uint8), _kinds(rng)[kind]

    return paint


#: Periods of the stripes, in pixels.
PERIODS = (2, 3, 4, 6, 8)
_PAINT: Dict[str, Callable[[Size, np.random.Generator], Painting]] = {
    "lcd text": _lcd_text,
    "tape": _tape,
    "discs": _discs,
    "polarization star": _star("polarization"),
    "intensity star": _star("intensity"),
    **{
        f"{kind} stripes, {period} px": _stripes(kind, period)
        for kind in ("polarization", "intensity")
        for period in PERIODS
    },
}
#: Names of the patterns.
EDGES: Tuple[str, ...] = tuple(_PAINT)


def edge_pattern(name: str, shape: Size, spread: float, seed: int = 0) -> np.ndarray:
    """A pattern as the sensor's pixels see it.

    Args:
        name: One of `EDGES`.
        shape: (height, width) in pixels.
        spread: Standard deviation of the lens's Gaussian point spread function, in pixels. After it, every pixel
            averages over its area.
        seed: Picks the pattern's details.

    Returns:
        (H, W, 3) float32 Stokes vectors; S0 lies in [0, 2], where 1 behind the polarizer is full scale.

    Raises:
        ValueError: The pattern does not exist.
    """
    if name not in _PAINT:
        raise ValueError(f"pattern must be one of {'; '.join(EDGES)}; got {quoted(name)}")
    size = (int(shape[0]), int(shape[1]))
    numbers, materials = _PAINT[name](size, np.random.default_rng(seed))
    stokes = polarized(*np.array([astuple(material) for material in materials]).T).astype(np.float32)
    planes = []
    for component in stokes.T:
        blurred = cv2.GaussianBlur(component[numbers], (0, 0), spread * _FINE, borderType=cv2.BORDER_REFLECT)
        planes.append(cv2.resize(blurred, size[::-1], interpolation=cv2.INTER_AREA))
    return np.dstack(planes)
