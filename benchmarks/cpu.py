"""The CPU backend side by side with the Python libraries in use today: time and accuracy.

    python benchmarks/cpu.py

Contenders take turns, repetition by repetition, so that a change of the machine's load meets all of them; figures are
medians. Each works on the same frame or pair and returns what its users get. Writes
`benchmarks/results/cpu_<device>.json`. Needs polanalyser and scikit-image.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Tuple

import cv2
import numpy as np
from common import RESULTS, cpu_model, machine, slug, table, write
from scenes import synthetic
from skimage.metrics import structural_similarity

from polar_pipeline import Pipeline
from polar_pipeline.backends import reference
from polar_pipeline.calibration import Calibration, PixelParameters
from polar_pipeline.geometry import make_lens
from polar_pipeline.sensor.forward import expose
from polar_pipeline.sensor.mosaic import ANGLES, SENSORS

#: Seconds before each call: the threads of OpenBLAS, which polanalyser's matrix product starts, keep a core busy for
#: some 25 ms after it, and would run into the time of whoever comes next.
SETTLE = 0.05
#: Calls that do not count: caches, buffers and threads warm up.
WARM_UP = 2
#: Raw frame of a real camera, 8 bit.
REAL_FRAME = Path(__file__).resolve().parents[1] / "frames" / "imx250mzr_fruits.png"
ANGLE_NAMES = tuple(f"angle_{angle}" for angle in ANGLES)
PACKAGES = ("polar-pipeline", "numpy", "opencv-python", "opencv-python-headless", "polanalyser", "scikit-image")


def interleaved(
    contenders: Dict[str, Callable[[], Any]], repeats: int, settle: float = SETTLE
) -> Dict[str, Dict[str, float]]:
    """Milliseconds per contender: median, quartiles as the spread, and the lowest CPU time of all threads."""
    times: Dict[str, List[Tuple[float, float]]] = {name: [] for name in contenders}
    for repeat in range(WARM_UP + repeats):
        for name, call in contenders.items():
            time.sleep(settle)
            start, cpu = time.perf_counter(), time.process_time()
            call()
            if repeat >= WARM_UP:
                times[name].append((1e3 * (time.perf_counter() - start), 1e3 * (time.process_time() - cpu)))
    return {
        name: {**quartiles([wall for wall, _ in taken]), "cpu_ms": round(min(cpu for _, cpu in taken), 2)}
        for name, taken in times.items()
    }


def quartiles(taken: List[float]) -> Dict[str, float]:
    """Of milliseconds."""
    names = ("quartile_1_ms", "median_ms", "quartile_3_ms")
    return dict(zip(names, np.round(np.percentile(taken, (25, 50, 75)), 2).tolist()))


def rmse(difference: np.ndarray) -> float:
    """Root mean square."""
    return float(f"{np.sqrt(np.mean(difference**2)):.4g}")


def polanalyser_polarimetry(raw: np.ndarray) -> Tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Its Stokes vector, DoLP and AoLP."""
    import polanalyser

    vector = polanalyser.calcStokes(polanalyser.demosaicing(raw), np.deg2rad(ANGLES))
    return vector, polanalyser.cvtStokesToDoLP(vector), polanalyser.cvtStokesToAoLP(vector)


def polarimetry(shape: Tuple[int, int], repeats: int, scene: str = "plastic") -> Dict[str, Any]:
    """Full-resolution Stokes, DoLP and AoLP of a mono frame, both bilinear, float."""
    truth = synthetic(scene, shape).astype(float)
    raw = expose(truth, SENSORS["IMX250MZR"])
    pipeline = Pipeline("IMX250MZR", ("stokes", "dolp", "aolp"), "cpu", "full", demosaic="bilinear")
    contenders = {"polar_pipeline": lambda: pipeline(raw), "polanalyser": lambda: polanalyser_polarimetry(raw)}
    times = interleaved(contenders, repeats)
    out = pipeline(raw)
    valid = ~np.isnan(out["dolp"])
    vector, degree, angle = polanalyser_polarimetry(raw)
    for name, (s, d, a) in {
        "polar_pipeline": (out["stokes"], out["dolp"], out["aolp"]),
        "polanalyser": (vector / 255, degree, angle),
    }.items():
        wrong = np.rad2deg(a - reference.aolp(truth))
        times[name].update(
            stokes_rmse=rmse((s - truth)[valid]),
            dolp_rmse=rmse((d - reference.dolp(truth))[valid]),
            aolp_rmse_deg=rmse(((wrong + 90) % 180 - 90)[valid]),
        )
    return times


def saturated(shape: Tuple[int, int], repeats: int) -> Dict[str, Any]:
    """The same with a frame that has saturated pixels, which this package finds and marks."""
    return polarimetry(shape, repeats, "spheres")


def methods(shape: Tuple[int, int], repeats: int) -> Dict[str, Any]:
    """Full-resolution Stokes, DoLP and AoLP of a real mono frame by every method; polanalyser's is bilinear."""
    frame = cv2.imread(str(REAL_FRAME), cv2.IMREAD_UNCHANGED)
    if frame is None:
        sys.exit(f"{REAL_FRAME} cannot be read")
    raw = np.ascontiguousarray(frame[: shape[0], : shape[1]])
    contenders: Dict[str, Callable[[], Any]] = {"polanalyser": lambda: polanalyser_polarimetry(raw)}
    for method in ("bilinear", "gradient", "adaptive"):
        pipeline = Pipeline("IMX250MZR", ("stokes", "dolp", "aolp"), "cpu", "full", demosaic=method)
        contenders[method] = lambda pipeline=pipeline: pipeline(raw)
    return interleaved(contenders, repeats)


def _spin() -> None:
    while True:
        pass


def busy(shape: Tuple[int, int], repeats: int) -> Dict[str, Any]:
    """The same next to two processes that are always busy: robots share their cores."""
    others = [multiprocessing.Process(target=_spin, daemon=True) for _ in range(2)]
    for other in others:
        other.start()
    try:
        return methods(shape, repeats)
    finally:
        for other in others:
            other.terminate()
            other.join()


def similarity(shape: Tuple[int, int], repeats: int) -> Dict[str, Any]:
    """SSIM map and mean of two half-resolution float32 images."""
    raw = expose(synthetic("window", shape), SENSORS["IMX250MZR"])
    pipeline = Pipeline("IMX250MZR", ("ssim_map", "ssim"), "cpu")
    angles = Pipeline("IMX250MZR", ANGLE_NAMES, "cpu")(raw)
    first = (angles["angle_0"] + angles["angle_90"]) / 2
    second = (angles["angle_45"] + angles["angle_135"]) / 2
    stage: List[float] = []

    def ours() -> None:
        stage.append(1e3 * pipeline(raw).timings["ssim"])

    def theirs() -> Tuple[float, np.ndarray]:
        return structural_similarity(
            first, second, gaussian_weights=True, sigma=1.5, use_sample_covariance=False, data_range=1.0, full=True
        )

    whole = "polar_pipeline, with demosaicing"
    times = interleaved({whole: ours, "scikit-image": theirs}, repeats)
    times["polar_pipeline"] = quartiles(stage[WARM_UP:])
    exact = reference.ssim_map(first.astype(float), second.astype(float))
    times["polar_pipeline"]["max_error"] = float(f"{np.abs(pipeline(raw)['ssim_map'] - exact).max():.2g}")
    times["scikit-image"]["max_error"] = float(f"{np.abs(theirs()[1] - exact).max():.2g}")
    return times


def calibrated(shape: Tuple[int, int], repeats: int) -> Dict[str, Any]:
    """8-bit intensity, DoLP and AoLP of a real frame, as it is and corrected; no pixel is defective."""
    raw = cv2.imread(str(REAL_FRAME), cv2.IMREAD_UNCHANGED)[: shape[0], : shape[1]]
    rng = np.random.default_rng(0)
    parameters = PixelParameters(
        rng.normal(0.008, 0.0015, raw.shape), rng.normal(1, 0.01, raw.shape), *rng.normal(0, 0.01, (2, *raw.shape))
    )
    calibration = Calibration.from_parameters(parameters, SENSORS["IMX250MZR"])
    times: Dict[str, Any] = {}
    for resolution, method in (("half", "bilinear"), ("full", "bilinear"), ("full", "gradient"), ("full", "adaptive")):
        contenders: Dict[str, Callable[[], Any]] = {}
        for title, used in (("", None), (", corrected", calibration)):
            pipeline = Pipeline(
                *("IMX250MZR", ("intensity", "dolp", "aolp"), "cpu", resolution),
                demosaic=method,
                dtype="uint8",
                calibration=used or "",
            )
            contenders[f"{resolution}, {method}{title}"] = lambda pipeline=pipeline: pipeline(raw)
        times.update(interleaved(contenders, 4 * repeats, settle=0))  # no threads of others that must settle
    return times


def geometry(shape: Tuple[int, int], repeats: int) -> Dict[str, Any]:
    """8-bit intensity, DoLP and AoLP of a mono frame at half resolution, by the geometry of the outputs."""
    height, width = shape
    raw = np.random.default_rng(0).integers(20, 200, shape).astype(np.uint8)
    matrix = (0.8 * width, 0, width / 2, 0, 0.8 * width, height / 2, 0, 0, 1)
    lens = make_lens(shape, "plumb_bob", (-0.2, 0.05, 0.001, -0.002, 0.0), matrix, np.zeros(9), np.zeros(12))
    options: Dict[str, Dict[str, Any]] = {
        "none": {},
        "rectify": {"rectify": lens},
        "rectify, scale 2": {"rectify": lens, "scale": 2},
        "rotate 180": {"rotate": 180},
        "rotate 90": {"rotate": 90},
        "scale 2": {"scale": 2},
        "roi of a quarter": {"roi": (width // 8, height // 8, width // 4, height // 4)},
    }
    contenders: Dict[str, Callable[[], Any]] = {}
    for name, given in options.items():
        pipeline = Pipeline("IMX250MZR", ("intensity", "dolp", "aolp"), "cpu", dtype="uint8", **given)
        contenders[name] = lambda pipeline=pipeline: pipeline(raw)
    return interleaved(contenders, 2 * repeats, settle=0)


def color(shape: Tuple[int, int], repeats: int) -> Dict[str, Any]:
    """Four full-resolution RGB angle images, 8 bit, of a color frame."""
    import polanalyser

    stokes = synthetic("window", shape, is_color=True)
    raw = expose(stokes, SENSORS["IMX250MYR"])
    pipelines = {
        f"polar_pipeline {method}": Pipeline("IMX250MYR", ANGLE_NAMES, "cpu", "full", demosaic=method, dtype="uint8")
        for method in ("bilinear", "gradient", "adaptive")
    }
    contenders: Dict[str, Callable[[], Any]] = {
        name: lambda pipeline=pipeline: pipeline(raw) for name, pipeline in pipelines.items()
    }
    contenders["polanalyser"] = lambda: polanalyser.demosaicing(raw, polanalyser.COLOR_PolarRGB)
    times = interleaved(contenders, repeats)
    images = {name: [pipeline(raw)[angle] for angle in ANGLE_NAMES] for name, pipeline in pipelines.items()}
    images["polanalyser"] = [image[..., ::-1] for image in contenders["polanalyser"]()]
    for name, found in images.items():
        errors = []
        for image, angle in zip(found, np.deg2rad(2 * np.array(ANGLES))):
            truth = np.clip(stokes @ np.array([1, np.cos(angle), np.sin(angle)], np.float32) / 2, 0, 1)
            errors.append(np.mean((image / np.float32(255) - truth) ** 2))
        times[name]["psnr_db"] = round(float(-10 * np.log10(np.mean(errors))), 2)
    return times


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--shape", type=int, nargs=2, default=(2048, 2448), metavar=("HEIGHT", "WIDTH"))
    parser.add_argument("--output", type=Path, help="default: benchmarks/results/cpu_<device>.json")
    arguments = parser.parse_args()

    parts = {
        # Name: measurement, ours, theirs, how many times as fast ours has to be.
        "mono: Stokes, DoLP, AoLP": (polarimetry, "polar_pipeline", "polanalyser", 6.0),
        "mono: the same, some pixels saturated": (saturated, "polar_pipeline", "polanalyser", 6.0),
        **{
            f"mono, real frame{title}: {method}": (run, method, "polanalyser", target)
            for run, title in ((methods, ""), (busy, " and two busy processes"))
            for method, target in (("bilinear", 8.0), ("gradient", 8.0), ("adaptive", 3.0))
        },
        **{
            f"corrected, {way}": (calibrated, f"{way}, corrected", way, 0.67)
            for way in ("half, bilinear", "full, bilinear", "full, gradient", "full, adaptive")
        },
        "SSIM: map and mean": (similarity, "polar_pipeline", "scikit-image", 4.0),
        "color: four RGB images, bilinear": (color, "polar_pipeline bilinear", "polanalyser", 1.0),
        "color: four RGB images, gradient": (color, "polar_pipeline gradient", "polanalyser", 1.0),
    }
    device = Pipeline(backend="cpu").device
    if "compiled" not in device:
        sys.exit(f"{device}: without compiled kernels there is nothing to compare; `polar-pipeline doctor` says why")
    try:
        import polanalyser  # noqa: F401 - only whether it is there, before minutes of measurements
    except ImportError as err:
        sys.exit(f"needs polanalyser to compare with ({err}); `make bench` installs it")
    measured = {
        run: run(tuple(arguments.shape), arguments.repeats)
        for run in (polarimetry, saturated, methods, busy, calibrated, geometry, similarity, color)
    }
    ratios = {}
    for title, (run, ours, theirs, target) in parts.items():
        ratio = measured[run][theirs]["median_ms"] / measured[run][ours]["median_ms"]
        ratios[title] = {"times_as_fast": round(ratio, 2), "target": target}
    for run, contenders in measured.items():
        print(f"\n{(run.__doc__ or '').strip()}\n")
        head = list(dict.fromkeys(key for figures in contenders.values() for key in figures))
        print(
            table(
                ["", *head],
                [(name, *(f"{row[k]:.4g}" if k in row else "" for k in head)) for name, row in contenders.items()],
            )
        )
    print("\n" + table(["", "times as fast", "target"], [(title, *row.values()) for title, row in ratios.items()]))
    report = {
        "machine": {**machine(PACKAGES), "opencv_threads": cv2.getNumThreads()},
        "shape": list(arguments.shape),
        "repeats": arguments.repeats,
        "ratios": ratios,
        **{run.__name__: contenders for run, contenders in measured.items()},
    }
    write(arguments.output or RESULTS / f"cpu_{slug(cpu_model())}.json", report)
    return 0


if __name__ == "__main__":
    sys.exit(main())
