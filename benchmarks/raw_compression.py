"""Lossless compression of raw mosaics: bytes and CPU time of several ways, on real frames.

    python benchmarks/raw_compression.py [--repeats N] [--output FILE]

`polar_zstd` is the format of the package (`recordings/rawzstd.py`). Each way turns a frame into bytes and back; every
result is compared with the frame before anything is timed. Then all run in turns. Times are CPU seconds of one
thread, the fastest of the repeats. The frames of `frames/` (mono, 8 bit) are taken as they are, and made up as 12 bit
in 16 and packed (PFNC 12p), with four random low bits, which no way can compress. Synthetic scenes of the same size,
with the noise of 10,000 electrons, give color frames of 8, 12 and 16 bit and mono ones of 16 bit. Ways that do not
know packed pixels see bytes. Writes `benchmarks/results/raw_compression_<processor>.json` and prints it as a Markdown
table.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Callable, Dict, List, NamedTuple, Tuple

import common
import cv2
import numpy as np
import zstandard
from scenes import SCENES, synthetic

from polar_pipeline.recordings.messages import ImageMessage
from polar_pipeline.recordings.rawzstd import compress_raw, decompress_raw
from polar_pipeline.sensor.encodings import get_format
from polar_pipeline.sensor.forward import expose
from polar_pipeline.sensor.frames import FORMATS, pack
from polar_pipeline.sensor.mosaic import SENSORS

FRAMES = Path(__file__).parent.parent / "frames"


class Way(NamedTuple):
    """How a frame is compressed, and how it is read back from bytes, its size and its type."""

    encode: Callable[[np.ndarray], bytes]
    decode: Callable[[bytes, Tuple[int, int], np.dtype], np.ndarray]


def zstd(level: int) -> Way:
    """Zstd of the rows."""

    def decode(data: bytes, shape: Tuple[int, int], dtype: np.dtype) -> np.ndarray:
        return np.frombuffer(zstandard.decompress(data), dtype).reshape(shape)

    return Way(lambda raw: zstandard.compress(raw.tobytes(), level), decode)


def product(encoding: str) -> Way:
    """The format of the package, for a frame of this encoding."""
    packing = get_format(encoding).packing

    def encode(raw: np.ndarray) -> bytes:
        height, step = raw.shape[0], raw.strides[0]
        width = step * 8 // get_format(encoding).bits if packing == "p" else raw.shape[1]
        data = raw.reshape(-1).view(np.uint8)
        return compress_raw(ImageMessage(1, "", height, width, encoding, False, step, data))

    def decode(data: bytes, shape: Tuple[int, int], dtype: np.dtype) -> np.ndarray:
        return decompress_raw(data, 1, "").data.view(dtype).reshape(shape)

    return Way(encode, decode)


def png(level: int) -> Way:
    """PNG by OpenCV, whose filters do not know of phases."""

    def encode(raw: np.ndarray) -> bytes:
        return bytes(cv2.imencode(".png", raw, [cv2.IMWRITE_PNG_COMPRESSION, level])[1])

    def decode(data: bytes, _: Tuple[int, int], __: np.dtype) -> np.ndarray:
        return cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED)

    return Way(encode, decode)


def ways(encoding: str) -> Dict[str, Way]:
    """Every way by its name, for frames of this encoding."""
    return {"polar_zstd": product(encoding), "PNG, level 1": png(1), "zstd 3": zstd(3)}


def images() -> Dict[str, Tuple[np.ndarray, str]]:
    """The frames by name: rows of numbers or of packed bytes, and their encoding."""
    generator = np.random.default_rng(0)
    found = {}
    for path in sorted(FRAMES.glob("*.png")):
        raw = cv2.imread(str(path), cv2.IMREAD_UNCHANGED)
        found[f"{path.stem}, 8 bit"] = raw, "mono8"
        fine = generator.integers(0, 16, raw.shape).astype(np.uint16)
        deep = raw.astype(np.uint16) * 16 + fine
        found[f"{path.stem}, 12 bit"] = deep, "mono16"
        packed = np.frombuffer(pack(deep, FORMATS["12p"]), np.uint8).reshape(len(deep), -1)
        found[f"{path.stem}, 12 bit packed"] = packed, "Mono12p"
    for scene in SCENES:
        for sensor, depths in ((SENSORS["IMX250MZR"], (16,)), (SENSORS["IMX250MYR"], (8, 12, 16))):
            stokes = synthetic(scene, (2048, 2448), is_color=sensor.is_color)
            for bits in depths:
                raw = expose(stokes, sensor, bits, 10000, 2.5, np.random.default_rng(0))
                encoding = f"{'bayer_rggb' if sensor.is_color else 'mono'}{8 if bits == 8 else 16}"
                found[f"synthetic {scene}, {'color' if sensor.is_color else 'mono'}, {bits} bit"] = raw, encoding
    return found


def seconds(function: Callable[[], object]) -> float:
    """CPU seconds of this thread."""
    started = time.thread_time()
    function()
    return time.thread_time() - started


def measure(found: Dict[str, Tuple[np.ndarray, str]], repeats: int) -> List[Dict[str, object]]:
    """A row per frame and way: share of the size that is left, and CPU milliseconds to encode and to decode."""
    frames = {name: raw for name, (raw, _) in found.items()}
    cases = [(frame, name, way) for frame, (_, kind) in found.items() for name, way in ways(kind).items()]
    encoded = {}
    for frame, name, way in cases:
        raw = frames[frame]
        data = encoded[frame, name] = way.encode(raw)
        again = way.decode(data, raw.shape, raw.dtype)
        if again.dtype != raw.dtype or not np.array_equal(again, raw):
            raise SystemExit(f"{name} does not give {frame} back")
    times: Dict[Tuple[str, str], List[Tuple[float, float]]] = {}
    for _ in range(repeats):
        for frame, name, way in cases:
            raw, data = frames[frame], encoded[frame, name]
            pair = (
                seconds(lambda w=way, r=raw: w.encode(r)),
                seconds(lambda w=way, d=data, r=raw: w.decode(d, r.shape, r.dtype)),
            )
            times.setdefault((frame, name), []).append(pair)
    return [
        {
            "frame": frame,
            "way": name,
            "share": round(len(encoded[frame, name]) / frames[frame].nbytes, 4),
            "encode_ms": round(1000 * min(pair[0] for pair in times[frame, name]), 1),
            "decode_ms": round(1000 * min(pair[1] for pair in times[frame, name]), 1),
        }
        for frame, name, _ in cases
    ]


def main() -> None:
    """Measure, write and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    name = f"raw_compression_{common.slug(common.cpu_model())}.json"
    parser.add_argument("--output", type=Path, default=common.RESULTS / name)
    given = parser.parse_args()
    rows = measure(images(), given.repeats)
    machine = common.machine(["zstandard", "numpy", "opencv-python-headless"])
    zstd = ".".join(map(str, zstandard.ZSTD_VERSION))
    common.write(given.output, {"machine": machine, "zstd": zstd, "repeats": given.repeats, "rows": rows})
    print("| frame | way | share of the size | encode [ms] | decode [ms] |\n| --- | --- | --- | --- | --- |")
    for row in rows:
        print("| " + " | ".join(str(value) for value in row.values()) + " |")


if __name__ == "__main__":
    main()
