"""Writes pictures of docs/adaptive_demosaic.md, denoising.md, learned.md and performance.md: `python docs/figures.py`.

They go into docs/images. Run it by hand when these methods or the results of the benchmarks change. The pictures of the
adaptive method are computed by the float64 reference from the patterns of `benchmarks/edges.py`, 8 bit, point spread
function of 0.6 pixels, so they show what the tables measure. Cutouts are enlarged without interpolation: one square is
one pixel of the sensor, or of half resolution.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Callable, Dict, List, Sequence, Tuple
from xml.sax.saxutils import escape

import cv2
import numpy as np

from polar_pipeline.backends import reference
from polar_pipeline.options import make_options
from polar_pipeline.pictures.text import BACK, draw_text
from polar_pipeline.sensor.forward import digitize, expose
from polar_pipeline.sensor.frames import RawFrame
from polar_pipeline.sensor.mosaic import ANGLES, SENSORS

sys.path.append(str(Path(__file__).resolve().parents[1] / "benchmarks"))
from accuracy import halved
from edges import edge_pattern
from scenes import behind_polarizers, sample_mosaic

ROOT = Path(__file__).resolve().parent.parent
IMAGES = ROOT / "docs" / "images"
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


def dim_light(
    exposures: Sequence[float], pictures: Sequence[str], methods: Dict[str, Dict[str, Any]], cut: Tuple[slice, slice]
) -> np.ndarray:
    """A real frame at several exposures, as shares of full scale, by several methods.

    The frame is made smaller, so that it has little noise of its own, and recorded again.
    """
    mosaic = cv2.imread(str(ROOT / "frames" / "imx250mzr_fruits.png"), cv2.IMREAD_UNCHANGED)
    names = tuple(f"angle_{angle}" for angle in ANGLES)
    options = make_options(products=names)
    angles = reference.run(RawFrame(mosaic, 255), options)
    truth = halved(np.stack([angles[name] for name in names]))
    truth = np.clip(truth / np.percentile(truth, 99.9), 0, 1)
    light = sample_mosaic(truth, SENSOR)
    rows: List[List[Cell]] = []
    for share in exposures:
        raw = digitize(share * light, 12, SENSOR.full_well, SENSOR.read_noise, np.random.default_rng(1))
        cells = []
        for name in pictures:
            for label, method in methods.items():
                options = make_options(products=name, min_intensity=0, **method)
                picture = reference.run(RawFrame(raw, 4095), options)[name]
                cells.append((f"{share * 100:.0f} %, {label}", picture[cut]))
        rows.append(cells)
    return sheet(rows, 2)


def denoised() -> np.ndarray:
    """DoLP and AoLP in color, denoised and not, at half resolution."""
    methods: Dict[str, Dict[str, Any]] = {"as measured": {}, "denoised": {"denoise": "on"}}
    cut = slice(96, 226), slice(88, 258)
    return dim_light((0.9, 0.2, 0.05), ("dolp_color", "aolp_color"), methods, cut)


def learned() -> np.ndarray:
    """DoLP in color by ADR, denoised, and corrected by the network, at full resolution."""
    methods: Dict[str, Dict[str, Any]] = {
        "adaptive": {"resolution": "full"},
        "denoised": {"resolution": "full", "denoise": "on"},
        "learned": {"resolution": "full", "demosaic": "learned"},
    }
    return dim_light((0.1, 0.02), ("dolp_color",), methods, (slice(200, 400), slice(200, 440)))


#: Width of the chart, of the bars' labels and of the longest bar; height of a title and of a bar's line; all in pixels.
CHART, LABELS, LONGEST, TITLE, LINE = 480, 150, 230, 44, 28
#: Colors in light and in dark mode, which the page selects by its `color-scheme`.
STYLE = """<style>
    text { font: 15px system-ui, "DejaVu Sans", sans-serif; fill: #1c2630 }
    .title { font-weight: bold }
    rect { fill: #a3aeb8 }
    .ours { fill: #00796b }
    @media (prefers-color-scheme: dark) {
      text { fill: #e4e7ea }
      rect { fill: #66727d }
      .ours { fill: #4db6ac }
    }
  </style>"""

#: Label of a bar, its value, and the text of the value.
Bar = Tuple[str, float, str]


def measured() -> Dict[str, List[Bar]]:
    """The bars of each part of the chart, by its title, from the results of the benchmarks."""

    def results(name: str) -> Any:
        return json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text(encoding="utf-8"))

    cpu, node = results("cpu_intel_r_xeon_r_processor"), results("node_amd_epyc")["runs"]["with SSIM"]["camera"]

    def times(part: str, ours: str, other: str) -> List[Bar]:
        rows = (("polar_pipeline", ours), (other, other))
        return [(label, cpu[part][name]["median_ms"], f"{cpu[part][name]['median_ms']:.1f} ms") for label, name in rows]

    nodes = {"relay": "relay (copies only)", "ours": "polar_pipeline", "usual": "usual node"}
    latencies = {label: node[name]["latency_ms"]["frame"]["p50"] for name, label in nodes.items()}
    missed = {label: (node[name]["NUM_MISSED_FRAMES"], node[name]["NUM_FRAMES_SENT"]) for name, label in nodes.items()}
    return {
        "CPU: Stokes vector, DoLP and AoLP of a frame": times("polarimetry", "polar_pipeline", "polanalyser"),
        "CPU: four RGB angle images, bilinear": times("color", "polar_pipeline bilinear", "polanalyser"),
        "CPU: SSIM map and mean": times("similarity", "polar_pipeline", "scikit-image"),
        "Live node at 24 Hz: latency": [(label, time, f"{time:.1f} ms") for label, time in latencies.items()],
        "Live node at 24 Hz: missed frames": [
            (label, count, f"{count} of {sent}") for label, (count, sent) in missed.items()
        ],
    }


def performance() -> str:
    """The chart of docs/performance.md as SVG: parts of bars, each part to its own scale."""
    lines, y = [], 0
    for title, bars in measured().items():
        y += TITLE
        lines.append(f'<text class="title" x="0" y="{y - 12}">{escape(title)}</text>')
        longest = max(value for _, value, _ in bars)
        for label, value, text in bars:
            width = LONGEST * value / longest
            kind = ' class="ours"' if label == "polar_pipeline" else ""
            lines += [
                f'<text x="0" y="{y + 15}">{escape(label)}</text>',
                f'<rect{kind} x="{LABELS}" y="{y}" width="{width:.1f}" height="{LINE - 8}"/>',
                f'<text x="{LABELS + width + 6:.1f}" y="{y + 15}">{text}</text>',
            ]
            y += LINE
    body = "\n  ".join(["<title>Times and missed frames of polar_pipeline and others</title>", STYLE, *lines])
    size = f'width="{CHART}" height="{y}" viewBox="0 0 {CHART} {y}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}>\n  {body}\n</svg>\n'


#: File in docs/images -> what paints it, as RGB.
PICTURES: Dict[str, Callable[[], np.ndarray]] = {
    "adaptive_switch.png": switches,
    "adaptive_edges.png": edges,
    "denoising.png": denoised,
    "learned.png": learned,
}
#: File in docs/images -> what draws it, as SVG.
CHARTS: Dict[str, Callable[[], str]] = {"performance.svg": performance}

if __name__ == "__main__":
    for file, paint in PICTURES.items():
        cv2.imwrite(str(IMAGES / file), paint()[..., ::-1], [cv2.IMWRITE_PNG_COMPRESSION, 9])
    for file, draw in CHARTS.items():
        (IMAGES / file).write_text(draw(), encoding="utf-8")
