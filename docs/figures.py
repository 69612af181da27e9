"""Writes the pictures of docs/adaptive_demosaic.md into docs/images: `python docs/figures.py`.

Run it by hand when the adaptive method changes. Everything is computed by the float64 reference from the patterns of
`benchmarks/edges.py`, 8 bit, point spread function of 0.6 pixels, so the pictures show what the tables measure.
Cutouts are enlarged without interpolation: one square is one pixel of the sensor.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Callable, Dict, List, Tuple

import cv2
import numpy as np

from polar_pipeline.backends import reference
from polar_pipeline.pictures.text import BACK, draw_text
from polar_pipeline.sensor.forward import expose
from polar_pipeline.sensor.mosaic import ANGLES, SENSORS

sys.path.append(str(Path(__file__).resolve().parents[1] / "benchmarks"))
from edges import edge_pattern
from scenes import behind_polarizers

IMAGES = Path(__file__).resolve().parent / "images"
SENSOR = SENSORS["IMX250MZR"]
#: (height, width) of the patterns in pixels, and the spread of the lens, as in benchmarks/accuracy.py.
SIZE, SPREAD = (256, 320), 0.6
#: Pixels of the picture around a cell, and height of its label.
GAP, LABEL = 4, 22

Cell = Tuple[str, np.ndarray]


def gray(image: np.ndarray) -> np.ndarray:
    """(H, W) in [0, 1] -> RGB."""
    return np.repeat(reference.display("intensity", image)[..., np.newaxis], 3, -1)


def color(stokes: np.ndarray, intensity: np.ndarray) -> np.ndarray:
    """AoLP of (H, W, 3) Stokes vectors as hue, DoLP as saturation, and an intensity, as in the product `preview`."""
    return reference.preview(intensity, reference.dolp(stokes), reference.aolp(stokes))


def sheet(rows: List[List[Cell]], scale: int) -> np.ndarray:
    """Labeled cells in rows, each enlarged `scale` times."""
    painted = []
    for row in rows:
        cells = []
        for label, image in row:
            large = np.repeat(np.repeat(image, scale, 0), scale, 1)
            framed = np.full((large.shape[0] + LABEL + GAP, large.shape[1] + 2 * GAP, 3), BACK, np.uint8)
            framed[LABEL:-GAP, GAP:-GAP] = large
            draw_text(framed, label, (GAP, LABEL / 2), 14, 0)
            cells.append(framed)
        painted.append(np.hstack(cells))
    return np.vstack(painted)


def switches() -> np.ndarray:
    """Raw mosaic, truth and switch, at edges of polarization and of intensity."""
    rows = []
    for name, (top, left) in {"tape": (88, 120), "lcd text": (96, 64), "intensity star": (92, 124)}.items():
        truth = edge_pattern(name, SIZE, SPREAD).astype(np.float64)
        raw = expose(truth, SENSOR) / 255
        cut = (slice(top, top + 72), slice(left, left + 72))
        rows.append(
            [
                (f"{name}: raw mosaic", gray(raw)[cut]),
                ("truth: S0/2", gray(reference.intensity(behind_polarizers(truth)))[cut]),
                ("truth: AoLP and DoLP", color(truth, np.ones(SIZE))[cut]),
                ("switch: 0 black, 1 white", gray(reference.polarization_switch(raw))[cut]),
            ]
        )
    return sheet(rows, 4)


def edges() -> np.ndarray:
    """Text on a display by several methods, and the truth."""
    truth = edge_pattern("lcd text", SIZE, SPREAD).astype(np.float64)
    raw = expose(truth, SENSOR) / 255
    results: Dict[str, np.ndarray] = {
        "truth": behind_polarizers(truth),
        "bilinear": reference.demosaic_bilinear(raw, SENSOR),
        "ADR without the switch": reference.demosaic_adaptive(raw, SENSOR, switch=np.zeros(SIZE)),
        "ADR": reference.demosaic_adaptive(raw, SENSOR),
    }
    cut = (slice(96, 126), slice(88, 130))
    rows: List[List[Cell]] = [[], [], []]
    for name, angles in results.items():
        stokes = reference.stokes(angles)
        rows[0].append((f"{name}: {ANGLES[0]} deg", gray(angles[0])[cut]))
        rows[1].append((f"{name}: S0/2", gray(reference.intensity(angles))[cut]))
        rows[2].append((f"{name}: preview", color(stokes, stokes[..., 0] / 2)[cut]))
    return sheet(rows, 7)


#: File in docs/images -> what paints it, as RGB.
PICTURES: Dict[str, Callable[[], np.ndarray]] = {"adaptive_switch.png": switches, "adaptive_edges.png": edges}

if __name__ == "__main__":
    for file, paint in PICTURES.items():
        cv2.imwrite(str(IMAGES / file), paint()[..., ::-1], [cv2.IMWRITE_PNG_COMPRESSION, 9])
