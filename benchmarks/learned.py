"""How much closer `demosaic: learned` comes to the truth than ADR with and without `denoise`, and where it fails.

    python benchmarks/learned.py                             # the synthetic scenes
    python benchmarks/learned.py --public DIR --mosaics DIR  # and those of public_scenes.py, and mosaics of an IMX250

- Scenes: PSNR of I, S1 and S2 as `accuracy.py` defines them, recorded by an IMX250 in 8 and 12 bits. Of RGB scenes the
  green and the red channel are two scenes. The gain of a figure is its PSNR minus the larger PSNR of ADR and of
  denoised ADR. A cell is one figure of one scene at one exposure and bit depth.
- Gratings: sine waves of polarization, 12 bits. The ratio is the root mean square error of S1 or S2 over the smaller
  error of ADR and of denoised ADR.
- Flat fields of 4 AoLP: the bias is the DoLP of the means of S1/S0 and S2/S0 over the image, in which noise averages
  out, minus the true DoLP. At 5 % exposure and below, 8 bits round the raw means by as much as 0.05 of DoLP for every
  method. The mean of the product `dolp` does contain the noise.
- Faults: gain of S1 and S2 at 10 % exposure, 12 bits, with defective pixels, saturation, darkness, and noise that
  `camera_gain` states wrongly. Besides the whole image, it is measured more than 8 pixels away from defective and
  saturated pixels, and in the dark half of the image.
- Sigma: what `dolp_sigma` and `aolp_sigma` state over the standard deviation of `dolp` and `aolp` over some recordings
  of a scene, as roots of the mean variances of all pixels whose DoLP is at least five sigmas.
- Change: the largest difference of S0, S1 and S2 from denoised ADR in all these frames, over `LEARNED_LIMIT` times the
  standard deviation of a raw pixel. By design it is at most 1; rounding to float32 adds about 0.0001.

Frames without noise are recorded at 95 % of full scale (gratings at 80 %, so that none of their pixels saturate), and
the pipelines get a noise model without noise. Figures exclude the 8 pixels along each border.

Writes `benchmarks/results/learned.json`.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import accuracy
import cv2
import numpy as np
from accuracy import CROP, Scene, figures, stored_scenes, synthetic_scenes
from common import RESULTS, machine, table, write
from public_scenes import PUBLIC
from scenes import behind_polarizers, polarized, sample_mosaic

from polar_pipeline import Pipeline, SourceError
from polar_pipeline.backends import reference
from polar_pipeline.backends.reference.noise import raw_variances
from polar_pipeline.polarimetry.coefficients import LEARNED_LIMIT
from polar_pipeline.sensor.forward import digitize
from polar_pipeline.sensor.mosaic import ANGLES, SENSORS

SENSOR = SENSORS["IMX250MZR"]
NAMES = tuple(f"angle_{angle}" for angle in ANGLES)
PRODUCTS, SIGMA_PRODUCTS = (*NAMES, "dolp"), ("dolp", "aolp", "dolp_sigma", "aolp_sigma")
SHARED: Dict[str, Any] = {"resolution": "full", "dtype": "float32", "min_intensity": 0.0, "backend": "cpu"}
METHODS: Dict[str, Dict[str, Any]] = {
    "ADR": {"demosaic": "adaptive"},
    "denoised": {"demosaic": "adaptive", "denoise": "on"},
    "learned": {"demosaic": "learned"},
}
FIGURES, BITS = ("I", "S1", "S2"), (8, 12)
#: Title of an exposure -> largest signal as a share of full scale, and whether there is noise.
EXPOSURES = {"none": (0.95, False), **{f"{percent} %": (percent / 100, True) for percent in (95, 20, 10, 5, 2)}}
#: Exposures of dim light, over which the mean gain is reported; gain in dB below which a cell is listed.
DIM, MIN_GAIN = ("10 %", "5 %", "2 %"), -0.2
#: Height and width of gratings and flat fields, and their mean S0/2 at full exposure.
SIDE, LIGHT = 256, 0.45
#: Gratings: what is modulated, periods in pixels, directions in degrees, exposures, and the ratio that is counted.
KINDS, PERIODS, DIRECTIONS = ("AoLP", "DoLP", "DoLP and light"), (4, 5, 6, 7, 8, 10, 12), (0, 30, 45, 90, 135)
GRATING_EXPOSURES, MAX_RATIO = {"none": (0.8, False), "10 %": (0.1, True)}, 1.2
FLAT_DOLP, FLAT_AOLP, FLAT_EXPOSURES = (0.0, 0.05, 0.3, 0.6), (0, 30, 70, 135), ("20 %", "10 %", "5 %", "2 %")
#: Number of scenes with faults, their exposure, and the stated over the true standard deviation of the noise.
FAULT_SCENES, FAULT_SHARE, STATED = 3, 0.1, (0.7, 0.85, 1.2, 1.5)
#: Recordings of a scene in which sigma is measured, the exposures, and the least share of pixels that tell.
RECORDINGS, SIGMA_EXPOSURES, MIN_PIXELS = 8, ("95 %", "20 %", "10 %", "5 %", "2 %"), 0.02
#: Standard deviations of DoLP from which on pixels tell. Those of AoLP are inverse to DoLP, so that at three few pixels
#: of small values decide their mean: in simulated noise it is 1.26 times the truth, and 1.03 at five.
MIN_SIGMAS = 5
#: Error of sigma beyond which scenes are counted.
SIGMA_TOLERANCE = 0.15
INNER = (slice(CROP, -CROP), slice(CROP, -CROP))


class Recording(NamedTuple):
    """A raw image: its bit depth, its exposure, whether there is noise, and the camera gain to state, in dB."""

    raw: np.ndarray
    bits: int
    share: float
    is_noisy: bool
    camera_gain: float = 0.0


def record(angles: np.ndarray, bits: int, share: float, is_noisy: bool, seed: int = 0) -> Recording:
    """Record (4, H, W) angle images."""
    noise = (SENSOR.full_well, SENSOR.read_noise, np.random.default_rng(seed)) if is_noisy else ()
    return Recording(digitize(share * sample_mosaic(angles, SENSOR).astype(float), bits, *noise), bits, share, is_noisy)


@lru_cache(maxsize=None)
def pipelines(bits: int, is_noisy: bool, camera_gain: float) -> Dict[str, Pipeline]:
    """Return the pipeline of each method."""
    sensor = SENSOR if is_noisy else replace(SENSOR, full_well=1e7, read_noise=0.0)
    stated: Dict[str, Any] = {"bit_depth": bits, "camera_gain": camera_gain}
    return {name: Pipeline(sensor, PRODUCTS, **SHARED, **stated, **options) for name, options in METHODS.items()}


class Bench:
    """The three methods, and the largest change by the network in any frame so far, as a share of its limit."""

    change = 0.0

    def run(self, frame: Recording) -> Tuple[List[np.ndarray], List[float]]:
        """Return, in the order of `METHODS`, the angle images over the exposure, and the means of `dolp`."""
        made = pipelines(frame.bits, frame.is_noisy, frame.camera_gain)
        outputs = [pipeline(frame.raw) for pipeline in made.values()]
        angles = [np.stack([output[name] for name in NAMES]).astype(float) for output in outputs]
        # the network's unit is the noise of a raw pixel at the mean S0/2 of a superpixel
        options, (height, width) = made["learned"].options, frame.raw.shape
        level = angles[1].reshape(4, height // 2, 2, width // 2, 2).mean((0, 2, 4))
        limit = LEARNED_LIMIT * np.sqrt(raw_variances(level, options.sensor, options, (1 << frame.bits) - 1))
        change = np.abs(reference.stokes(angles[2] - angles[1])).max(-1) / limit.repeat(2, 0).repeat(2, 1)
        self.change = max(self.change, float(change.max()))
        return [images / frame.share for images in angles], [float(output["dolp"][INNER].mean()) for output in outputs]


def all_scenes(public: Optional[Path], mosaics: Optional[Path], size: Sequence[int]) -> Iterator[Scene]:
    """Yield mono scenes. Public scenes are left out if their repository lacks the pictures."""
    rows = [(public / row.data, row.repository, row.content, row.without) for row in PUBLIC] if public else []
    rows += [(mosaics, "mosaics", "mosaics", ())] if mosaics else []
    scenes = list(synthetic_scenes(size))
    for data, source, content, without in rows:
        try:
            scenes += [scene for scene in stored_scenes(str(data), source, content, size) if scene.name not in without]
        except SourceError as err:  # noqa: PERF203
            print(f"{source} is left out: {err}", file=sys.stderr)
    for scene in scenes:
        if scene.angles.ndim == 3:
            yield scene
        else:
            for channel, name in ((1, "green"), (0, "red")):
                yield scene._replace(name=f"{scene.name}, {name}", angles=scene.angles[..., channel])


def titles_of(scenes: Sequence[Scene]) -> List[str]:
    """Return what reports call the scenes."""
    return [f"{scene.source}: {scene.name}" for scene in scenes]


def measure_scenes(bench: Bench, scenes: Sequence[Scene]) -> Dict[str, Any]:
    """Measure every scene at every exposure and bit depth."""
    titles = titles_of(scenes)
    report: Dict[str, Any] = {"scenes": titles}
    below: List[List[Any]] = []
    lines, dim = [], []
    for bits, (exposure, (share, is_noisy)) in product(BITS, EXPOSURES.items()):
        rows = []
        for seed, scene in enumerate(scenes):
            angles, _ = bench.run(record(scene.angles, bits, share, is_noisy, seed))
            rows.append([figures(images, scene.angles) for images in angles])
        decibels = np.array(rows, float)[..., [list(accuracy.FIGURES).index(name) for name in FIGURES]]
        gains = decibels[:, 2] - decibels[:, :2].max(1)
        dim += [gains[:, 1:]] if exposure in DIM else []
        report.setdefault(f"{bits} bits", {})[exposure] = {
            **{f"{name} gain": by_name(FIGURES, of(gains, 0)) for name, of in (("mean", np.mean), ("least", np.min))},
            "mean PSNR": {name: by_name(FIGURES, row) for name, row in zip(METHODS, decibels.mean(0))},
            "gains of the scenes": dict(zip(FIGURES, gains.T.round(2).tolist())),
        }
        cells = [(k, j, float(gains[k, j])) for k, j in np.argwhere(gains < MIN_GAIN)]
        below += [[bits, exposure, titles[k], FIGURES[j], round(gain, 3)] for k, j, gain in cells]
        lines.append((bits, exposure, *gains.mean(0), *gains.min(0), titles[gains[:, 1:].min(1).argmin()]))
        print(f"scenes, {bits} bits, {exposure}", file=sys.stderr, flush=True)
    head = [f"{which} {name}" for which in ("mean", "least") for name in FIGURES]
    print("\n" + table(("gain: bits", "exposure", *head, "scene of the least S1 or S2"), lines))
    report["below"], report["mean gain in dim light"] = below, by_name(FIGURES[1:], np.concatenate(dim).mean(0))
    print(f"\nMean gain at 10 % and below: {report['mean gain in dim light']}")
    print(f"\n{len(below)} cells below {MIN_GAIN} dB\n" + table(("bits", "exposure", "scene", "figure", "gain"), below))
    return report


def by_name(names: Sequence[str], values: Sequence[float]) -> Dict[str, float]:
    """Return rounded values by their names."""
    return {name: round(float(value), 4) for name, value in zip(names, values)}


def errors(angles: np.ndarray, truth: np.ndarray, where: Optional[np.ndarray] = None) -> np.ndarray:
    """Return the root mean square errors of S1 and S2, by default over all pixels."""
    squares = reference.stokes(angles - truth)[INNER][..., 1:] ** 2
    return np.sqrt((squares.reshape(-1, 2) if where is None else squares[where[INNER]]).mean(0))


def grating(kind: str, period: float, direction: float) -> np.ndarray:
    """Return the (4, SIDE, SIDE) angle images of a sine wave of one of `KINDS`; pixels average 4x4 subpixels."""
    place, turn = (np.arange(4 * SIDE) + 0.5) / 4, np.deg2rad(direction)
    wave = np.sin(2 * np.pi / period * (place * np.cos(turn) + place[:, np.newaxis] * np.sin(turn)))
    light = LIGHT * (1 + (0.5 if kind == "DoLP and light" else 0) * wave)
    degree, angle = (np.array(0.6), 0.3 + 0.5 * wave) if kind == "AoLP" else (0.4 * (1 + wave), np.array(0.3))
    stokes = polarized(light, degree, angle)
    return behind_polarizers(stokes.reshape(SIDE, 4, SIDE, 4, 3).mean((1, 3)))


def measure_gratings(bench: Bench) -> Dict[str, Any]:
    """Measure all gratings without and with noise."""
    report: Dict[str, Any] = {}
    lines = []
    for exposure, (share, is_noisy) in GRATING_EXPOSURES.items():
        rows: List[List[Any]] = []
        for kind, period, direction in product(KINDS, PERIODS, DIRECTIONS):
            truth = grating(kind, period, direction)
            angles, _ = bench.run(record(truth, 12, share, is_noisy, len(rows)))
            adr, denoised, learned = (errors(images, truth) for images in angles)
            rows.append([kind, period, direction, *(learned / np.minimum(adr, denoised)).round(3).tolist()])
        ratios = np.array([row[3:] for row in rows])
        largest, above = float(ratios.max()), int((ratios > MAX_RATIO).sum())
        report[exposure] = {"largest ratio": largest, "number above": above, "ratios of S1 and S2": rows}
        at = "{} of {} px at {} degrees".format(*rows[ratios.max(1).argmax()])
        lines.append((exposure, ratios.mean(), largest, at, f"{above} of {ratios.size}"))
    print("\n" + table(("gratings", "mean ratio", "largest", "at", f"above {MAX_RATIO}"), lines))
    return report


def measure_flat_fields(bench: Bench) -> Dict[str, Any]:
    """Measure flat fields: the largest absolute bias of all AoLP, and the mean of `dolp`, by method."""
    rows: List[List[Any]] = []
    for bits, exposure, degree in product(BITS, FLAT_EXPOSURES, FLAT_DOLP):
        biases, degrees = [], []
        for seed, angle in enumerate(FLAT_AOLP):
            light = behind_polarizers(polarized(np.full((SIDE, SIDE), LIGHT), np.array(degree), np.deg2rad(angle)))
            angles, means = bench.run(record(light, bits, *EXPOSURES[exposure], seed))
            stokes = [reference.stokes(images)[INNER] for images in angles]
            biases.append([np.hypot(*(each[..., 1:] / each[..., :1]).mean((0, 1))) - degree for each in stokes])
            degrees.append(means)
        values = [*np.abs(biases).max(0), *np.mean(degrees, 0)]
        rows.append([bits, exposure, degree, *(round(float(value), 4) for value in values)])
    head = ["bits", "exposure", "DoLP", *(f"{of} {name}" for of in ("bias", "dolp") for name in METHODS)]
    print("\n" + table(head, [[str(cell) for cell in row] for row in rows]))
    biases_of = {f"{bits} bits": [row[3:6] for row in rows if row[0] == bits] for bits in BITS}
    largest = {title: by_name(list(METHODS), np.max(values, 0)) for title, values in biases_of.items()}
    print(f"\nLargest bias: {largest}")
    return {"largest bias": largest, "head": head, "rows": rows}


def faults(angles: np.ndarray, seed: int) -> Iterator[Tuple[str, np.ndarray, Recording, Optional[np.ndarray]]]:
    """Yield faults: their name, the truth, the frame, and the pixels to look at besides the whole image."""
    shape, chance = angles.shape[1:], np.random.default_rng(seed)
    exposure, around = (12, FAULT_SHARE, True, seed), np.ones((2 * CROP + 1, 2 * CROP + 1), np.uint8)
    frame = record(angles, *exposure)
    is_hot = chance.random(shape) < 0.001
    hot = frame._replace(raw=np.where(is_hot, np.uint16(4095), frame.raw))
    yield "hot pixels", angles, hot, cv2.dilate(is_hot.astype(np.uint8), around) == 0
    lamp = np.zeros(shape, np.uint8)
    lamp[shape[0] // 4 : shape[0] // 2, shape[1] // 4 : shape[1] // 2] = 1
    bright = np.where(lamp > 0, 2 / FAULT_SHARE, angles)  # twice full scale
    yield "saturation", np.minimum(bright, 1 / FAULT_SHARE), record(bright, *exposure), cv2.dilate(lamp, around) == 0
    is_dark = np.broadcast_to(np.arange(shape[1]) < shape[1] // 2, shape)
    dim = np.where(is_dark, 0.02 * angles, angles)
    yield "darkness", dim, record(dim, *exposure), is_dark
    for factor in STATED:
        yield f"{factor} times the noise", angles, frame._replace(camera_gain=20 * np.log10(factor**2)), None


def measure_faults(bench: Bench, scenes: Sequence[Scene]) -> Dict[str, Any]:
    """Measure faults in some scenes: the least gains over ADR and over denoised ADR, of S1 and S2."""
    some = scenes[:: -(-len(scenes) // FAULT_SCENES)]
    gains: Dict[Tuple[str, str], List[np.ndarray]] = {}
    for seed, scene in enumerate(some):
        for name, truth, frame, part in faults(scene.angles, seed):
            angles, _ = bench.run(frame)
            for where, mask in (("whole image", None), ("part", part))[: 1 if part is None else 2]:
                adr, denoised, learned = (errors(images, truth, mask) for images in angles)
                gains.setdefault((name, where), []).append(20 * np.log10(np.stack([adr, denoised]) / learned).ravel())
    rows = [[*key, *np.min(values, 0).round(3).tolist()] for key, values in gains.items()]
    head = ["fault", "where", *(f"{name} over {other}" for other in ("ADR", "denoised") for name in FIGURES[1:])]
    least = min(min(row[2:4]) for row in rows)
    print("\n" + table(head, rows) + f"\n\nLeast gain over ADR with faults: {least:.2f} dB")
    return {"scenes": titles_of(some), "least gain over ADR": least, "head": head, "rows": rows}


def sigma_ratios(pipeline: Pipeline, frames: Sequence[np.ndarray]) -> List[float]:
    """Return what is stated of the noise of DoLP and of AoLP over what it is; NaN if too few pixels tell."""
    results = [pipeline(raw) for raw in frames]
    images = {name: np.stack([each[name][INNER] for each in results]).astype(float) for name in SIGMA_PRODUCTS}
    is_certain = images["dolp"].mean(0) > MIN_SIGMAS * np.sqrt((images["dolp_sigma"] ** 2).mean(0))
    if is_certain.mean() < MIN_PIXELS:
        return [np.nan, np.nan]
    turns = np.exp(2j * images["aolp"])
    angle = np.angle(turns / turns.mean(0)) / 2  # from the mean
    ratios = []
    for name, values in (("dolp", images["dolp"]), ("aolp", angle)):
        by_sigma, by_values = (images[f"{name}_sigma"] ** 2).mean(0), values.var(0, ddof=1)
        ratios.append(float(np.sqrt(by_sigma[is_certain].mean() / by_values[is_certain].mean())))
    return ratios


def measure_sigma(scenes: Sequence[Scene]) -> Dict[str, Any]:
    """Measure the stated sigma of denoised ADR and of the network in every scene, 12 bits."""
    report: Dict[str, Any] = {"scenes": titles_of(scenes)}
    lines = []
    for method in ("denoised", "learned"):
        pipeline = Pipeline(SENSOR, SIGMA_PRODUCTS, **SHARED, bit_depth=12, **METHODS[method])
        for exposure in SIGMA_EXPOSURES:
            share, is_noisy = EXPOSURES[exposure]
            rows = []
            for scene in scenes:
                frames = [record(scene.angles, 12, share, is_noisy, seed).raw for seed in range(RECORDINGS)]
                rows.append(sigma_ratios(pipeline, frames))
            ratios = np.array(rows)
            report.setdefault(method, {})[exposure] = {
                name: [None if np.isnan(value) else round(value, 2) for value in values]
                for name, values in zip(("DoLP", "AoLP"), ratios.T.tolist())
            }
            spread = np.nanpercentile(ratios, (0, 10, 50, 90, 100), axis=0)
            beyond = int(np.sum(np.abs(ratios[:, 0] - 1) > SIGMA_TOLERANCE))
            lines.append((method, exposure, *spread.T.ravel(), f"{beyond} of {np.isfinite(ratios[:, 0]).sum()}"))
    head = [f"{name} {part}" for name in ("DoLP", "AoLP") for part in ("least", "10 %", "median", "90 %", "largest")]
    print("\n" + table(("sigma over noise", "exposure", *head, f"DoLP off by {SIGMA_TOLERANCE}"), lines))
    return report


def main() -> int:
    """Measure, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--public", type=Path, metavar="DIR", help="folder with the repositories of public_scenes.py")
    parser.add_argument("--mosaics", type=Path, metavar="DIR", help="folder with mosaics of an IMX250MZR")
    parser.add_argument("--size", type=int, nargs=2, default=(480, 480), metavar=("HEIGHT", "WIDTH"), help="largest")
    parser.add_argument("-o", "--output", type=Path, default=RESULTS / "learned.json")
    values = parser.parse_args()
    scenes, bench = list(all_scenes(values.public, values.mosaics, values.size)), Bench()
    report: Dict[str, Any] = {
        "machine": machine(["numpy", "opencv-python", "opencv-python-headless"]),
        "scenes": measure_scenes(bench, scenes),
        "gratings": measure_gratings(bench),
        "flat fields": measure_flat_fields(bench),
        "faults": measure_faults(bench, scenes),
        "sigma": measure_sigma(scenes),
    }
    report["largest change over the limit"] = round(bench.change, 5)
    print(f"\nLargest change over the limit: {bench.change:.5f}")
    write(values.output, report)
    return 0


if __name__ == "__main__":
    sys.exit(main())
