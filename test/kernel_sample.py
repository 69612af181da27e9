"""What the CPU's kernels may be asked for, from every corner, in memory that ends where their business does.

Run as a program it writes every result into a file, for `test_sanitizers.py` to compare builds of the kernels:

    kernel_sample.py RESULTS.npz [--kernels FOLDER] [--part PART]
"""

from __future__ import annotations

import argparse
import ctypes
import itertools
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Callable, Dict, List, Tuple

import numpy as np

from polar_pipeline import Pipeline, RawFrame
from polar_pipeline.cpu import native
from polar_pipeline.cpu.images import COLOR_HALO, MONO_HALO
from polar_pipeline.cpu.kernel_products import KernelNoise, make_noise, make_products
from polar_pipeline.cpu.kernels import DEBAYERS, Kernels, is_by_superpixel, mosaic_scale
from polar_pipeline.cpu.ssim import SsimWindow
from polar_pipeline.noise import noise_model
from polar_pipeline.options import make_options
from polar_pipeline.products import PRODUCTS
from polar_pipeline.sensor.mosaic import ANGLES, SENSORS

Results = Dict[str, np.ndarray]
#: Odd ones, the smallest, rows of one piece (512 output pixels), of one more, and of several; of several tiles.
SHAPES = ((16, 16), (17, 19), (35, 38), (18, 1024), (16, 1027), (20, 2075), (131, 259))
#: Types of a mosaic, and what is full scale; numbers above it occur.
FORMATS = (("uint8", 255), ("uint8", 200), ("uint16", 1023), ("uint16", 65535))
#: Methods that the kernels know, and whether at half resolution.
METHODS = (
    ("own_site", True),
    *((method, half) for method in ("bilinear", "gradient", "adaptive") for half in (True, False)),
)
#: Those that only the products `polarizer` and `aolp_color` depend on.
SHOWN = make_options("IMX250MZR", polarizer_angle=150.0)
#: Nothing, everything, and parts.
CHOICES: Tuple[Tuple[str, ...], ...] = ((), tuple(PRODUCTS), ("dolp",), ("aolp",), ("preview",), ("angle_45", "stokes"))

_malloc = ctypes.CDLL(None).malloc
_malloc.restype, _malloc.argtypes = ctypes.c_void_p, (ctypes.c_size_t,)


def memory(shape: Tuple[int, ...], dtype: str, step: int = 0, offset: int = 0) -> np.ndarray:
    """An array in a piece of memory of its own, which ends with the array's last byte; never freed.

    Args:
        shape: Of the array.
        dtype: Of its elements.
        step: Bytes from one row to the next, if not just a row's.
        offset: Bytes in front of it, behind an address that is a multiple of 16.
    """
    row = int(np.prod(shape[1:])) * np.dtype(dtype).itemsize
    step = step or row
    size = offset + step * (shape[0] - 1) + row
    block = (ctypes.c_ubyte * size).from_address(_malloc(size))
    ctypes.memset(block, 0xA5, size)
    strides = np.empty(shape[1:], dtype).strides
    return np.ndarray(shape, dtype, block, offset, (step, *strides))


def noise(key: str, array: np.ndarray, end: float) -> np.ndarray:
    """Fill an array with numbers up to `end`, a block of them dark; those of a key are always the same."""
    values = np.random.default_rng(zlib.crc32(key.encode())).random(array.shape) * end
    values[:4, :6] = 0
    array[...] = values.astype(array.dtype)
    return array


def outputs(
    key: str, names: Tuple[str, ...], dtype: str, size: Tuple[int, int], offset: int, is_color: bool = False
) -> Results:
    """Where the products go, by the name of the result."""
    found = {}
    for name in names:
        product = PRODUCTS[name]
        kind = product.dtype(dtype)
        if product.channels[0] and not product.shrinks:
            start = offset * np.dtype(kind).itemsize
            found[f"{key} {name}"] = memory(product.shape(size, is_color), kind, offset=start)
    return found


def noise_of(sensor: str, method: str, half: bool, scale: float) -> KernelNoise:
    """Noise of frames of a method, of which DoLP's bias and the less certain angles are taken out."""
    options = make_options(
        sensor,
        resolution="half" if half else "full",
        co_sited=method != "own_site",
        demosaic="auto" if method == "own_site" else method,
        debias=True,
        max_aolp_sigma=5.0,
    )
    model = noise_model(options, SENSORS[sensor], 255)
    found = make_noise(model, options, scale)
    found.model = model  # holds the gains that it points to
    return found


def mosaics(kernels: Kernels) -> Results:
    """Every product of mosaics of each shape, type and layout in memory."""
    results: Results = {}

    def take(
        key: str, raw: np.ndarray, full_scale: int, way: Tuple[str, bool], names: Tuple[str, ...], dtype: str
    ) -> None:
        size = (raw.shape[0] // 2, raw.shape[1] // 2) if way[1] else raw.shape
        odd = len(results) % 2
        out = outputs(key, names, dtype, size, odd)
        is_uint16 = is_by_superpixel(*way) and raw.dtype == np.uint8 and dtype == "uint8"
        kind = "uint16" if is_uint16 else "float32"
        scale = mosaic_scale(full_scale, *way)
        count = (0, 1, 2)[len(results) % 3] if kind == "float32" else 2
        pair = [memory(size, kind, offset=odd * np.dtype(kind).itemsize) for _ in range(count)]
        to = make_products(
            {name.split()[-1]: array for name, array in out.items()},
            [name.split()[-1] for name in out],
            pair,
            size[1],
            scale,
            0.05 / scale if {"dolp", "aolp", "stokes", "preview"} & set(names) else 0.0,
            SHOWN,
            noise_of("IMX250MZR", *way, scale) if "dolp_sigma" in names else None,
        )
        counts = kernels.mosaic(RawFrame(raw, full_scale), SENSORS["IMX250MZR"], *way, to)
        results.update(out)
        results.update({f"{key} pair {k}": image for k, image in enumerate(pair)})
        results[f"{key} counts"] = np.array(counts)

    for shape in SHAPES:
        for kind, full_scale in FORMATS:
            for way in METHODS:
                for dtype in ("float32", "uint8", "uint16"):
                    key = f"mosaic {shape} {kind} {full_scale} {way} {dtype}"
                    raw = noise(key, memory(shape, kind), np.iinfo(kind).max + 0.9)
                    take(key, raw, full_scale, way, tuple(PRODUCTS), dtype)
    for names in CHOICES:
        for full_scale in (255, 256):  # some saturated, or none
            key = f"products {names} {full_scale}"
            take(key, noise(key, memory((33, 50), "uint8"), 255.9), full_scale, ("bilinear", True), names, "float32")
    for kind in ("uint8", "uint16"):
        size = np.dtype(kind).itemsize
        layouts: List[Tuple[str, np.ndarray]] = [
            ("padded", memory((20, 39), kind, step=64 * size)),
            ("odd step", memory((20, 39), kind, step=41 * size)),
            ("odd address", memory((20, 39), kind, offset=1)),
            ("upside down", memory((20, 39), kind)[::-1]),
            ("every second column", memory((20, 78), kind)[:, ::2]),
        ]
        for layout, raw in layouts:
            for way in METHODS:
                key = f"layout {layout} {kind} {way}"
                take(key, noise(key, raw, 255.9), 255, way, ("stokes", "preview"), "float32")
    return results


def colors(kernels: Kernels) -> Results:
    """Colours of a mosaic with its halo, the angles of one of them, and the switch that they share."""
    results: Results = {}
    for shape in ((16, 16), (17, 19), (131, 259), (64, 512)):
        halo = MONO_HALO["adaptive"]
        key = f"colors {shape}"
        z = noise(key, memory((shape[0] + 2 * halo, shape[1] + 2 * halo), "float32", offset=4), 1.0)
        switch = results[f"{key} switch"] = kernels.polarization_switch(z)
        for method in DEBAYERS:
            halo_of_color = COLOR_HALO[method]
            size = (shape[0] + 2 * halo_of_color, shape[1] + 2 * halo_of_color)
            raw = noise(f"{key} {method}", memory(size, "float32", offset=4), 1.0)
            channels = kernels.debayer(method, raw, SENSORS["IMX250MYR"])
            results.update({f"{key} {method} {channel}": image for channel, image in enumerate(channels)})
        for method, half in METHODS[1:]:
            inside = halo - MONO_HALO[method]
            part = z[inside:-inside, inside:-inside] if inside else z
            for given in (None, switch) if method == "adaptive" else (None,):
                images = kernels.color(part, SENSORS["IMX250MYR"], method, half, given)
                name = f"{key} {method} {half} {given is None}"
                results.update({f"{name} {angle}": image for angle, image in zip(ANGLES, images)})
    return results


def planes(kernels: Kernels) -> Results:
    """Products of rows of the angle images of three colours, with and without saturated pixels."""
    results: Results = {}
    cases = itertools.product((8, 511, 512, 1037), ("float32", "uint8", "uint16"), (True, False))
    for width, dtype, is_hot in cases:
        key = f"planes {width} {dtype} {is_hot}"
        out = outputs(key, tuple(PRODUCTS), dtype, (9, width), 1, is_color=True)
        pair = [memory((9, width), "float32") for _ in range(2)]
        to = make_products(
            *({name.split()[-1]: array for name, array in out.items()}, [name.split()[-1] for name in out]),
            *(pair, width, 1.0, 0.05, SHOWN, noise_of("IMX250MYR", "adaptive", False, 1.0)),
        )
        counts = []
        for rows in ((0, 4), (4, 9)):
            height = rows[1] - rows[0]
            steps = (4 * width, 4 * width + 4, 4 * width, 4 * width + 64) * 3
            angles = [memory((height, width), "float32", step, 4) for step in steps]
            for k, image in enumerate(angles):
                noise(f"{key} {rows} {k}", image, 1.0)
            hot = noise(f"{key} {rows}", memory((height, width), "uint8"), 1.1) if is_hot else None
            counts.append(kernels.planes(angles, hot, rows, to))
        results.update(out)
        results.update({f"{key} pair {k}": image for k, image in enumerate(pair)})
        results[f"{key} counts"] = np.array(counts)
    return results


def similarities(kernels: Kernels) -> Results:
    """Maps and sums of every window and stride, also of maps smaller than the window, and of whole blocks."""
    results: Results = {}
    for shape in ((8, 8), (9, 11), (64, 128), (65, 203), (131, 389)):
        for stride in (1, 2, 3, 8):
            for size in (3, 5, 7, 9, 11, 13, 15):
                for kind, dtype in (("float32", "float32"), ("uint16", "uint8"), ("float32", "uint16"), ("uint16", "")):
                    key = f"similarity {shape} {stride} {size} {kind} {dtype}"
                    pair = (memory(shape, kind, offset=4), memory(shape, kind))
                    end = 1.0 if kind == "float32" else 8160.0
                    for k, image in enumerate(pair):
                        noise(f"{key} {k}", image, end)
                    window = SsimWindow(stride, size, 1.5)
                    out_shape = (shape[0] // stride, shape[1] // stride)
                    out = memory(out_shape, dtype, offset=np.dtype(dtype).itemsize) if dtype else None
                    results[f"{key} sums"] = kernels.similarity(pair, 1 / end, out, window)
                    if out is not None:
                        results[key] = out
    return results


def pipelines(kernels: Kernels) -> Results:
    """Whole frames by ways that only a part of the kernels takes; `test_cpu.py` compares more of them."""
    results: Results = {}
    choices: List[Dict[str, Any]] = [
        {"sensor": "IMX250MYR"},
        {"sensor": "IMX250MYR", "resolution": "full", "dtype": "uint8"},
        {"resolution": "full", "ssim_window": 15},
        {"demosaic": "adaptive", "ssim_stride": 2},
        {"ssim_mode": "temporal", "dtype": "uint8"},
    ]
    for number, options in enumerate(choices):
        for shape in ((16, 16), (67, 53)):
            with_all = make_options(products=tuple(PRODUCTS), **options)
            pipeline = Pipeline(products=with_all.products, backend="cpu", threads=kernels.threads, **options)
            for frame in range(2):
                key = f"pipeline {number} {shape} {frame}"
                out = pipeline(noise(key, np.empty(shape, np.uint8), 255.9))
                results.update({f"{key} {name}": array.copy() for name, array in out.items()})
            pipeline.close()
    return results


PARTS: Dict[str, Callable[[Kernels], Results]] = {
    "mosaics": mosaics,
    "colors": colors,
    "planes": planes,
    "similarities": similarities,
    "pipelines": pipelines,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path)
    parser.add_argument("--kernels", type=Path, help="a folder of their sources")
    parser.add_argument("--part", choices=PARTS, help="only this one")
    values = parser.parse_args()
    if values.kernels:
        native.share_path = lambda *_: values.kernels
    results: Results = {}
    with ThreadPoolExecutor(3) as pool:
        kernels = Kernels(native.find_library(), pool, 3)
        for part in [values.part] if values.part else PARTS:
            results.update(PARTS[part](kernels))
    np.savez(str(values.results), **results)


if __name__ == "__main__":
    main()
