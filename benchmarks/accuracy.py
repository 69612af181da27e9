"""How close every demosaic method comes to four-angle truth images: the tables of `docs/adaptive_demosaic.md`.

    python benchmarks/accuracy.py                  # the synthetic scenes, and patterns with sharp edges
    python benchmarks/accuracy.py FOLDER           # truth images, see below

Truth images: one picture per polarizer angle, all of one size, named `<scene>_0`, `_45`, `_90`, `_135` (or `_000`,
`_045`, `_090`), `.png` or `.tif`, 8 or 16 bit, gray or RGB, in the folder or in one folder per scene, where
`<scene>_` may be missing. RGB scenes are measured as color, and their green channel as mono, as the literature does;
gray ones as mono only.

Definitions. The truth is rounded to 8 bit, sampled by the sensor's mosaic, and demosaiced to four angle images, which
are rounded to 8 bit too. All figures leave out 8 pixels at each border and take all other pixels, and in color the
three channels, together. I: mean of the PSNR of the four angle images. S0, S1, S2, DoLP: PSNR; the peak is the largest
value that each can have with full scale 1 (2 for S0 = (I0+I45+I90+I135)/2, 1 for the others). AoLP: root mean square of
the angle between result and truth, at most 90 degrees; all pixels count, unpolarized ones too, whose AoLP is noise.
A scene's figures are averaged over the scenes. Each table comes twice: without noise, and with shot and read noise in
the raw image. In color, `gradient` debayers by Malvar-He-Cutler, `adaptive` by edge-weighted differences, and `EARI`
is CEARI. Patterns are mono and without noise, each with two widths of the lens's point spread function; every case has
a line of its own, because a mean would hide where a method fails.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Tuple

import cv2
import numpy as np
from common import RESULTS, machine, table, write
from edges import EDGES, edge_pattern
from scenes import SCENES, behind_polarizers, sample_mosaic, synthetic

from polar_pipeline import Pipeline
from polar_pipeline.backends import reference
from polar_pipeline.sensor.mosaic import ANGLES, SENSORS, Sensor

#: Border that is left out, in pixels.
CROP = 8
FIGURES = ("I", "S0", "S1", "S2", "DoLP", "AoLP")
#: Figures of patterns, and their units.
EDGE_FIGURES = {"I": "dB", "AoLP": "deg"}
#: The noise of one exposure: electrons at full scale and read noise, about those of the IMX250.
FULL_WELL, READ_NOISE = 10_000, 2.5
OURS = ("bilinear", "gradient", "adaptive")
#: Standard deviations of the point spread functions of patterns, and their size, in pixels.
SPREADS, PATTERN_SIZE = (0.35, 0.6), (256, 320)

Method = Callable[[np.ndarray], np.ndarray]


class Scene(NamedTuple):
    """Truth: (4, H, W) or (4, H, W, 3) uint8 in the order of `ANGLES`."""

    name: str
    angles: np.ndarray


def angle_images(stokes: np.ndarray) -> np.ndarray:
    """(..., 3) Stokes -> (4, ...) uint8, what passes each of `ANGLES`."""
    return np.rint(255 * np.clip(behind_polarizers(stokes), 0, 1)).astype(np.uint8)


def synthetic_scenes(size: Tuple[int, int]) -> Iterator[Scene]:
    """The scenes of this package, in color."""
    for name in SCENES:
        yield Scene(name, angle_images(synthetic(name, size, is_color=True)))


def load_scenes(folder: Path) -> Iterator[Scene]:
    """The truth images of a folder.

    Raises:
        ValueError: No scene is complete, or its images differ in size.
    """
    found: Dict[str, Dict[int, Path]] = defaultdict(dict)
    for path in sorted(folder.rglob("*")):
        match = re.fullmatch(r"(?:(.*)_)?(0|000|45|045|90|090|135)\.(?:png|tiff?)", path.name, re.IGNORECASE)
        if match:
            found[str((path.parent / (match.group(1) or "")).relative_to(folder))][int(match.group(2))] = path
    complete = {name: paths for name, paths in found.items() if set(paths) == set(ANGLES)}
    if not complete:
        raise ValueError(f"{folder} holds no scene with images ending in _0, _45, _90 and _135 (.png, .tif)")
    for name, paths in complete.items():
        images = [cv2.imread(str(paths[angle]), cv2.IMREAD_UNCHANGED) for angle in ANGLES]
        if any(image is None or image.shape != images[0].shape for image in images):
            raise ValueError(f"the images of scene {name} cannot be read or differ in size")
        stack = np.stack(images)
        if stack.ndim == 4:
            stack = stack[..., 2::-1]
        if stack.dtype != np.uint8:
            stack = np.rint(stack / np.iinfo(stack.dtype).max * 255).astype(np.uint8)
        # Whole 4x4 tiles, so that every method sees the same mosaic.
        yield Scene(name, stack[:, : stack.shape[1] // 4 * 4, : stack.shape[2] // 4 * 4])


def methods(is_color: bool) -> Dict[str, Method]:
    """Name -> raw uint8 to the four angle images, uint8."""
    sensor = SENSORS["IMX250MYR" if is_color else "IMX250MZR"]
    names = tuple(f"angle_{angle}" for angle in ANGLES)

    def own(demosaic: str) -> Method:
        pipeline = Pipeline(sensor, names, resolution="full", demosaic=demosaic, dtype="uint8", backend="cpu")
        return lambda raw: np.stack([pipeline(raw)[name] for name in names])

    made = {name: own(name) for name in OURS}
    try:
        import pyeari
    except ImportError:
        print("eari-demosaic is not installed: left out", file=sys.stderr)
    else:

        def eari(raw: np.ndarray) -> np.ndarray:
            image = raw.astype(np.float32) / 255
            i90, i0, i45, i135 = pyeari.CEARI(image, "RGGB") if is_color else pyeari.MEARI(image)
            return np.rint(255 * np.clip([i0, i45, i90, i135], 0, 1)).astype(np.uint8)

        made["EARI"] = eari
    try:
        import polanalyser
    except ImportError:
        print("polanalyser is not installed: left out", file=sys.stderr)
    else:
        code = polanalyser.COLOR_PolarRGB if is_color else polanalyser.COLOR_PolarMono

        def polar(raw: np.ndarray) -> np.ndarray:
            images = np.stack(polanalyser.demosaicing(raw, code))
            return images[..., ::-1] if is_color else images

        made["polanalyser"] = polar
    return made


def psnr(difference: np.ndarray, peak: float = 1.0) -> float:
    """Decibels."""
    return float(10 * np.log10(peak**2 / np.mean(difference**2)))


def figures(angles: np.ndarray, truth: np.ndarray) -> List[float]:
    """The row of the table for one scene: `FIGURES`."""
    inner = (slice(None), slice(CROP, -CROP), slice(CROP, -CROP))
    found, wanted = angles[inner] / 255, truth[inner] / 255
    ours, true = reference.stokes(found), reference.stokes(wanted)
    wrong = np.rad2deg(reference.aolp(ours) - reference.aolp(true))
    wrong = (wrong + 90) % 180 - 90
    return [
        float(np.mean([psnr(one - two) for one, two in zip(found, wanted)])),
        psnr(ours[..., 0] - true[..., 0], peak=2),
        psnr(ours[..., 1] - true[..., 1]),
        psnr(ours[..., 2] - true[..., 2]),
        psnr(reference.dolp(ours) - reference.dolp(true)),
        float(np.sqrt(np.mean(wrong**2))),
    ]


def record(angles: np.ndarray, sensor: Sensor, noise: bool, seed: int) -> np.ndarray:
    """Truth images -> the raw image, uint8."""
    raw = sample_mosaic(angles, sensor)
    if not noise:
        return raw
    rng = np.random.default_rng(seed)
    electrons = rng.poisson(raw / 255 * FULL_WELL) + rng.normal(0, READ_NOISE, raw.shape)
    return np.clip(np.rint(electrons / FULL_WELL * 255), 0, 255).astype(np.uint8)


def measure_edges(made: Dict[str, Method]) -> Dict[str, Dict[str, Dict[str, Dict[str, float]]]]:
    """Every pattern by every method: spread -> pattern -> method -> I and AoLP."""
    found: Dict[str, Dict[str, Dict[str, Dict[str, float]]]] = {}
    for spread in SPREADS:
        rows = found[f"{spread} px"] = {}
        for name in EDGES:
            truth = angle_images(edge_pattern(name, PATTERN_SIZE, spread))
            raw = sample_mosaic(truth, SENSORS["IMX250MZR"])
            each = {method: figures(run(raw), truth) for method, run in made.items()}
            rows[name] = {
                method: {figure: round(value, 3) for figure, value in zip(FIGURES, row) if figure in EDGE_FIGURES}
                for method, row in each.items()
            }
        for figure, unit in EDGE_FIGURES.items():
            title = f"{figure} {unit}, patterns, spread {spread} px"
            lines = [(name, *(row[method][figure] for method in made)) for name, row in rows.items()]
            print("\n" + table((title, *made), lines), flush=True)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", help="truth images; the synthetic scenes by default")
    parser.add_argument("--size", type=int, nargs=2, default=(512, 640), help="height and width of synthetic scenes")
    parser.add_argument("--methods", nargs="+", help="only these, e.g. bilinear adaptive EARI")
    parser.add_argument("--output", type=Path, help="default: benchmarks/results/accuracy.json for synthetic scenes")
    arguments = parser.parse_args()

    try:
        scenes = list(load_scenes(arguments.folder) if arguments.folder else synthetic_scenes(arguments.size))
    except ValueError as err:
        parser.error(str(err))
    report: Dict[str, Any] = {
        "scenes": {scene.name: list(scene.angles.shape[1:]) for scene in scenes},
        "definition": " ".join((__doc__ or "").partition("Definitions. ")[2].split()),
        "machine": machine(["numpy", "opencv-python", "opencv-python-headless", "eari-demosaic", "polanalyser"]),
        "tables": {},
    }
    for kind, sensor in (("mono", SENSORS["IMX250MZR"]), ("color", SENSORS["IMX250MYR"])):
        truths = [
            scene._replace(angles=scene.angles if sensor.is_color or scene.angles.ndim == 3 else scene.angles[..., 1])
            for scene in scenes
            if scene.angles.ndim == 4 or not sensor.is_color
        ]
        if not truths:
            continue
        available = methods(sensor.is_color)
        unknown = set(arguments.methods or ()) - set(available)
        if unknown:
            parser.error(f"methods must be among {', '.join(available)}, got {', '.join(sorted(unknown))}")
        chosen = {name: available[name] for name in arguments.methods or available}
        for noise in (False, True):
            rows = {}
            for name, method in chosen.items():
                each = [
                    figures(method(record(truth.angles, sensor, noise, seed)), truth.angles)
                    for seed, truth in enumerate(truths)
                ]
                rows[name] = {
                    "mean": dict(zip(FIGURES, np.round(np.mean(each, 0), 3).tolist())),
                    "scenes": {t.name: dict(zip(FIGURES, np.round(row, 3).tolist())) for t, row in zip(truths, each)},
                }
            title = kind + (f", noise of {FULL_WELL} electrons full well, {READ_NOISE} read" if noise else "")
            report["tables"][title] = rows
            units = (title, *(f"{figure} {'deg' if figure == 'AoLP' else 'dB'}" for figure in FIGURES))
            print("\n" + table(units, [(name, *row["mean"].values()) for name, row in rows.items()]), flush=True)
        if not (arguments.folder or sensor.is_color):
            report["patterns"] = measure_edges(chosen)
    output = arguments.output or (None if arguments.folder else RESULTS / "accuracy.json")
    if output:
        write(output, report)
    return 0


if __name__ == "__main__":
    sys.exit(main())
