"""How close every demosaic method comes to the truth of four angle images: the tables of `docs/accuracy.md`.

    python benchmarks/accuracy.py                       # the synthetic scenes, and patterns with sharp edges
    python benchmarks/accuracy.py --data DIR [DIR ...]  # scenes of your own: files as `docs/files.md` describes them
    python benchmarks/accuracy.py --public DIR          # the scenes of public_scenes.py, whose repositories are in DIR

RGB scenes are measured as color, and their green channel as mono, as the literature does; gray scenes as mono only. A
mosaic of a mono sensor becomes four angle images of a quarter of its width and height, each pixel the mean of 16.

Definitions. The truth is divided by its 99.9th percentile, and clipped there. Times the exposure, it is sampled by
the sensor's mosaic, gets the shot and read noise of an IMX250 at 0 dB, and is rounded to 12 bits. `none` is an
exposure of 95 % without noise. The demosaiced angle images are divided by the exposure again. At half resolution the
truth is the mean of 2x2 pixels. All figures leave out 8 pixels at each border and, in color, take the three channels
together. I: mean of the PSNR of the four angle images. S0, S1, S2: PSNR in dB; the peak is the largest value that
each can have (2 for S0 = (I0+I45+I90+I135)/2, 1 for the others). DoLP: root mean square error over pixels whose true
S0/2 is at least 0.05; the truth of darker ones is mostly its own noise and rounding. AoLP: root mean square of the
angle between result and truth in degrees, over those of these pixels whose true DoLP is at least 0.1. A scene has no
figure of which less than 1 % of its pixels count. A scene's figures are averaged over the scenes. In color,
`gradient` debayers by Malvar-He-Cutler, `adaptive` by edge-weighted differences, and `EARI` is CEARI. Patterns are
mono, recorded without noise, each with two widths of the lens's point spread function; every case has a line of its
own, because a mean would hide where a method fails.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence

import numpy as np
from common import RESULTS, machine, table, write
from edges import EDGES, edge_pattern
from public_scenes import PUBLIC
from scenes import SCENES, behind_polarizers, sample_mosaic, synthetic

from polar_pipeline import Pipeline, SourceError, read_frames
from polar_pipeline.backends import reference
from polar_pipeline.sensor.forward import digitize
from polar_pipeline.sensor.mosaic import ANGLES, SENSORS, Sensor

#: Border that is left out, and smallest height and width of a scene, in pixels.
CROP, MIN_SIZE = 8, 64
#: Name of each figure and its unit; DoLP has none.
FIGURES = {"I": "dB", "S0": "dB", "S1": "dB", "S2": "dB", "DoLP": "", "AoLP": "deg"}
#: Figures of patterns.
EDGE_FIGURES = ("I", "AoLP")
#: Bits of the raw images.
BITS = 12
#: Title of an exposure -> largest signal as a share of full scale, and whether there is noise.
EXPOSURES = {
    "none": (0.95, False),
    "95 %": (0.95, True),
    "50 %": (0.5, True),
    "20 %": (0.2, True),
    "5 %": (0.05, True),
}
#: Name of each row of this package -> its options.
OURS: Dict[str, Dict[str, Any]] = {
    "bilinear": {"resolution": "full", "demosaic": "bilinear"},
    "gradient": {"resolution": "full", "demosaic": "gradient"},
    "adaptive": {"resolution": "full", "demosaic": "adaptive"},
    "half, auto": {"resolution": "half", "demosaic": "auto"},
    "half, bilinear": {"resolution": "half", "demosaic": "bilinear"},
    "half, gradient": {"resolution": "half", "demosaic": "gradient"},
    "half, adaptive": {"resolution": "half", "demosaic": "adaptive"},
}
#: The same with `denoise`; those at half resolution by every method would say little more.
DENOISED = ("bilinear", "gradient", "adaptive", "half, auto")
OURS.update({f"{name}, denoised": {**OURS[name], "denoise": "on"} for name in DENOISED})
#: Least true S0/2 of pixels whose DoLP is compared, and least true DoLP of those whose AoLP is.
MIN_LIGHT, MIN_DOLP = 0.05, 0.1
#: Least share of pixels that a figure needs.
MIN_SHARE = 0.01
#: Standard deviations of the point spread functions of patterns, and their size, in pixels.
SPREADS, PATTERN_SIZE = (0.35, 0.6), (256, 320)

Method = Callable[[np.ndarray], np.ndarray]


class Scene(NamedTuple):
    """Truth: (4, H, W) or (4, H, W, 3) floats in the order of `ANGLES`; 1 is the brightest light but for 0.1 %."""

    name: str
    source: str
    angles: np.ndarray


def make_scene(name: str, source: str, angles: np.ndarray, size: Optional[Sequence[int]] = None) -> Scene:
    """Scale angle images, and cut their middle, to `size` at most and whole 4x4 tiles, so that mosaics are alike.

    Raises:
        ValueError: They are too small.
    """
    height, width = (min(sides) // 4 * 4 for sides in zip(angles.shape[1:3], size or angles.shape[1:3]))
    if min(height, width) < MIN_SIZE:
        raise ValueError(f"scenes must have at least {MIN_SIZE}x{MIN_SIZE} pixels, {name} would have {height}x{width}")
    top, left = (angles.shape[1] - height) // 2, (angles.shape[2] - width) // 2
    angles = angles[:, top : top + height, left : left + width].astype(np.float32)
    return Scene(name, source, np.clip(angles / max(np.percentile(angles, 99.9), 1e-6), 0, 1))


def synthetic_scenes(size: Sequence[int]) -> Iterator[Scene]:
    """The scenes of this package, in color."""
    for name in SCENES:
        angles = behind_polarizers(synthetic(name, (size[0], size[1]), is_color=True))
        yield make_scene(name, "benchmarks/scenes.py", angles)


def stored_scenes(data: str, source: str, content: str, size: Sequence[int]) -> Iterator[Scene]:
    """The four angle images, or mosaics of a mono sensor, of a folder, file or pattern.

    Raises:
        SourceError: There are none, or it is not clear what the files are.
        FrameError: A file cannot be read.
        ValueError: `content` is not known, or a scene is too small.
    """
    names = tuple(f"angle_{angle}" for angle in ANGLES)
    for frame in read_frames(data, content=content):
        numbers = frame.array
        if numbers.ndim == 2:
            result = Pipeline(SENSORS["IMX250MZR"], names, resolution="half", dtype="float32", backend="cpu")(frame)
            numbers = halved(np.stack([result[name] for name in names]))
        elif numbers.dtype.kind != "f":
            numbers = numbers / np.iinfo(numbers.dtype).max
        yield make_scene(frame.name, source, numbers, size)


def halved(angles: np.ndarray) -> np.ndarray:
    """Average (4, H, W, ...) angle images over 2x2 pixels; an odd row or column is left out."""
    height, width = (side // 2 for side in angles.shape[1:3])
    cut = angles[:, : 2 * height, : 2 * width]
    averaged: np.ndarray = cut.reshape(4, height, 2, width, 2, *angles.shape[3:]).mean((2, 4))
    return averaged


def methods(is_color: bool) -> Dict[str, Method]:
    """Name -> raw numbers of `BITS` bits to the four angle images as shares of full scale."""
    sensor = SENSORS["IMX250MYR" if is_color else "IMX250MZR"]
    names = tuple(f"angle_{angle}" for angle in ANGLES)
    top = (1 << BITS) - 1

    def own(options: Dict[str, Any]) -> Method:
        pipeline = Pipeline(sensor, names, dtype="float32", bit_depth=BITS, backend="cpu", **options)

        def run(raw: np.ndarray) -> np.ndarray:
            result = pipeline(raw)
            return np.stack([result[name] for name in names])

        return run

    made = {name: own(options) for name, options in OURS.items()}
    try:
        import pyeari
    except ImportError as err:
        print(f"eari-demosaic is left out: {err}", file=sys.stderr)
    else:

        def eari(raw: np.ndarray) -> np.ndarray:
            image = raw.astype(np.float32) / top
            i90, i0, i45, i135 = pyeari.CEARI(image, "RGGB") if is_color else pyeari.MEARI(image)
            return np.clip([i0, i45, i90, i135], 0, 1)

        made["EARI"] = eari
    try:
        import polanalyser
    except ImportError as err:
        print(f"polanalyser is left out: {err}", file=sys.stderr)
    else:
        code = polanalyser.COLOR_PolarRGB if is_color else polanalyser.COLOR_PolarMono

        def polar(raw: np.ndarray) -> np.ndarray:
            images = np.stack(polanalyser.demosaicing(raw, code)) / top
            return images[..., ::-1] if is_color else images

        made["polanalyser"] = polar
    return made


def psnr(difference: np.ndarray, peak: float = 1.0) -> float:
    """Decibels."""
    return float(10 * np.log10(peak**2 / np.mean(difference**2)))


def rms(difference: np.ndarray, count: int) -> Optional[float]:
    """Root mean square; None for too few of `count` pixels."""
    return float(np.sqrt(np.mean(difference**2))) if difference.size >= MIN_SHARE * count else None


def figures(angles: np.ndarray, truth: np.ndarray) -> List[Optional[float]]:
    """The row of the table for one scene: `FIGURES`. None where too few pixels count."""
    inner = (slice(None), slice(CROP, -CROP), slice(CROP, -CROP))
    found, wanted = angles[inner].astype(float), truth[inner].astype(float)
    ours, true = reference.stokes(found), reference.stokes(wanted)
    is_lit = true[..., 0] / 2 >= MIN_LIGHT
    degree = reference.dolp(true[is_lit])
    is_polarized = degree >= MIN_DOLP
    turned = reference.aolp(ours[is_lit][is_polarized]) - reference.aolp(true[is_lit][is_polarized])
    turned = (np.rad2deg(turned) + 90) % 180 - 90
    return [
        float(np.mean([psnr(one - two) for one, two in zip(found, wanted)])),
        psnr(ours[..., 0] - true[..., 0], peak=2),
        psnr(ours[..., 1] - true[..., 1]),
        psnr(ours[..., 2] - true[..., 2]),
        rms(reference.dolp(ours[is_lit]) - degree, is_lit.size),
        rms(turned, is_lit.size),
    ]


def record(angles: np.ndarray, sensor: Sensor, exposure: str, seed: int = 0) -> np.ndarray:
    """Truth -> the raw image, uint16 of `BITS` bits."""
    share, is_noisy = EXPOSURES[exposure]
    light = share * sample_mosaic(angles, sensor).astype(float)
    if not is_noisy:
        return digitize(light, BITS)
    return digitize(light, BITS, sensor.full_well, sensor.read_noise, np.random.default_rng(seed))


def rounded(row: Sequence[Optional[float]]) -> Dict[str, Optional[float]]:
    """Figures by name, as results store them."""
    return {name: None if value is None else round(value, 4) for name, value in zip(FIGURES, row)}


def cells(row: Dict[str, Optional[float]]) -> List[str]:
    """Figures as a table shows them."""
    return [
        "" if value is None else f"{value:.4f}" if name == "DoLP" else f"{value:.2f}" for name, value in row.items()
    ]


def measure(truths: Sequence[Scene], sensor: Sensor, made: Dict[str, Method]) -> Dict[str, Dict[str, Any]]:
    """Every scene at every exposure by every method: exposure -> method -> the mean, and each scene by its number."""
    each: Dict[str, Dict[str, List[List[Optional[float]]]]] = {
        exposure: {name: [] for name in made} for exposure in EXPOSURES
    }
    for seed, truth in enumerate(truths):
        reduced = halved(truth.angles)
        for exposure, (share, _) in EXPOSURES.items():
            raw = record(truth.angles, sensor, exposure, seed)
            for name, method in made.items():
                angles = method(raw) / share
                same = truth.angles if angles.shape == truth.angles.shape else reduced
                each[exposure][name].append(figures(angles, same))
        print(f"{truth.source}: {truth.name}", file=sys.stderr, flush=True)
    return {exposure: {name: summary(rows) for name, rows in lines.items()} for exposure, lines in each.items()}


def summary(rows: Sequence[Sequence[Optional[float]]]) -> Dict[str, Any]:
    """The mean of scenes, each figure over those that have it, and the scenes."""
    known = [[value for value in column if value is not None] for column in zip(*rows)]
    mean = [float(np.mean(values)) if values else None for values in known]
    return {"mean": rounded(mean), "scenes": [list(rounded(row).values()) for row in rows]}


def measure_edges(made: Dict[str, Method]) -> Dict[str, Dict[str, Dict[str, Dict[str, Optional[float]]]]]:
    """Every pattern by every method: spread -> pattern -> method -> I and AoLP."""
    found: Dict[str, Dict[str, Dict[str, Dict[str, Optional[float]]]]] = {}
    share = EXPOSURES["none"][0]
    for spread in SPREADS:
        rows = found[f"{spread} px"] = {}
        for name in EDGES:
            truth = behind_polarizers(edge_pattern(name, PATTERN_SIZE, spread))
            raw = record(truth, SENSORS["IMX250MZR"], "none")
            each = {method: rounded(figures(run(raw) / share, truth)) for method, run in made.items()}
            rows[name] = {method: {figure: row[figure] for figure in EDGE_FIGURES} for method, row in each.items()}
        for figure in EDGE_FIGURES:
            title = f"{figure} {FIGURES[figure]}, patterns, spread {spread} px"
            lines = [(name, *(row[method][figure] for method in made)) for name, row in rows.items()]
            print("\n" + table((title, *made), lines), flush=True)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--data", nargs="+", metavar="DIR", help="scenes: folders, files or patterns")
    which.add_argument("--public", type=Path, metavar="DIR", help="folder with the repositories of public_scenes.py")
    parser.add_argument(
        "--content", default="auto", help="what the files of --data hold, as of `polar-pipeline process`"
    )
    parser.add_argument(
        "--size",
        type=int,
        nargs=2,
        metavar=("HEIGHT", "WIDTH"),
        help="of synthetic scenes, by default 512 640; largest of others, by default 1024 1024",
    )
    parser.add_argument("--methods", nargs="+", metavar="NAME", help="only these, e.g. bilinear adaptive EARI")
    parser.add_argument("--output", type=Path, help="default: in benchmarks/results, except with --data")
    arguments = parser.parse_args()

    size = arguments.size or ((1024, 1024) if arguments.data or arguments.public else (512, 640))
    try:
        if arguments.data:
            scenes = [scene for data in arguments.data for scene in stored_scenes(data, data, arguments.content, size)]
        elif arguments.public:
            scenes = [
                scene
                for row in PUBLIC
                for scene in stored_scenes(str(arguments.public / row.data), row.repository, row.content, size)
                if scene.name not in row.without
            ]
        else:
            scenes = list(synthetic_scenes(size))
    except (SourceError, ValueError) as err:
        parser.error(str(err))
    report: Dict[str, Any] = {
        "sources": [row._asdict() for row in PUBLIC]
        if arguments.public
        else sorted({scene.source for scene in scenes}),
        "definition": " ".join((__doc__ or "").partition("Definitions. ")[2].split()),
        "machine": machine(["numpy", "opencv-python", "opencv-python-headless", "eari-demosaic", "polanalyser"]),
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
        exposures = measure(truths, sensor, chosen)
        report[kind] = {
            "scenes": [[truth.source, truth.name, *truth.angles.shape[1:3]] for truth in truths],
            "exposures": exposures,
        }
        for exposure, rows in exposures.items():
            head = (f"{kind}, {exposure}", *(f"{figure} {unit}".strip() for figure, unit in FIGURES.items()))
            print("\n" + table(head, [(name, *cells(row["mean"])) for name, row in rows.items()]), flush=True)
        if not (arguments.data or arguments.public or sensor.is_color):
            whole = {name: method for name, method in chosen.items() if OURS.get(name, {}).get("resolution") != "half"}
            report["patterns"] = measure_edges(whole)
    default = None if arguments.data else RESULTS / ("accuracy_scenes.json" if arguments.public else "accuracy.json")
    if arguments.output or default:
        write(arguments.output or default, report)
    return 0


if __name__ == "__main__":
    sys.exit(main())
