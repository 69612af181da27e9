"""JPEG by OpenCV and by nvImageCodec: what decoders see of it, and what follows where nvImageCodec fails."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, Callable, List, Sequence

import cv2
import numpy as np
import pytest
from support import real_frame
from test_processor import Log

from polar_pipeline import Pipeline
from polar_pipeline._util import jpeg
from polar_pipeline._util.jpeg import Encode, encode_with_opencv, make_gpu_encoder
from polar_pipeline.backends.cuda.backend import problem
from polar_pipeline.live.publisher import JpegEncoder


def pictures(backend: str = "cpu") -> List[np.ndarray]:
    """A gray and a color image of a real frame; (217, 301), so that there are parts of blocks."""
    found = Pipeline(products="intensity, aolp_color", dtype="uint8", backend=backend)(
        real_frame("imx250mzr_fruits.png")[400:834, 600:1202]
    )
    return [found["intensity"], found["aolp_color"]]


def decoded(data: np.ndarray, image: np.ndarray) -> np.ndarray:
    """What OpenCV reads, in the order of the image's channels."""
    found = cv2.imdecode(data, cv2.IMREAD_UNCHANGED)
    return found[..., ::-1] if image.ndim == 3 else found


def error(image: np.ndarray, wanted: np.ndarray) -> float:
    """Root mean square difference in levels."""
    return float(np.sqrt(np.mean((image.astype(float) - wanted) ** 2)))


def test_opencv() -> None:
    for image in pictures():
        data = encode_with_opencv(image, 95)
        assert (data.dtype, data.ndim) == (np.uint8, 1)
        # 1 and 9 levels here, where colors change within a block; with red and blue exchanged 80
        assert error(decoded(data, image), image) < (3 if image.ndim == 2 else 15)


def assert_like_opencv(encode: Encode, images: Sequence[np.ndarray]) -> None:
    """Encoded images come back as from OpenCV's JPEG.

    Both quantize by the tables of the JPEG standard, scaled alike by the quality, and average chroma over 2x2 pixels.
    They may round the transform and the conversion of colors differently: a level each, which at some coefficients
    makes a step of quantization.
    """
    for image in images:
        for quality in (50, 90):
            ours, oracle = encode(image, quality), encode_with_opencv(image, quality)
            found, wanted = decoded(ours, image), decoded(oracle, image)
            assert (ours.dtype, ours.ndim, found.shape) == (np.uint8, 1, image.shape)
            apart, loss = error(found, wanted), error(wanted, image)
            assert apart < max(1, 0.5 * loss), "nearer to OpenCV's than that is to the image"
            assert error(found, image) < 1.1 * loss + 0.2
            assert 0.8 < len(ours) / len(oracle) < 1.25  # Huffman tables of the standard, or fitted ones


def test_nvimagecodec_without_a_gpu() -> None:
    """The real library through the same calls, with its encoder for CPUs, in a process that loads all plug-ins."""
    pytest.importorskip("nvidia.nvimgcodec")
    code = (
        f"import sys; sys.path[:0] = {sys.path!r}\n"
        "from functools import partial\nimport nvidia.nvimgcodec as codec, test_jpeg\n"
        "try: encoder = codec.Encoder(device_id=codec.NVIMGCODEC_DEVICE_CPU_ONLY)\n"
        "except RuntimeError as err: sys.exit(f'needs a GPU: {err}')\n"
        "encode = partial(test_jpeg.jpeg._encode_with_nvimagecodec, codec, encoder)\n"
        "test_jpeg.assert_like_opencv(encode, test_jpeg.pictures())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=300)
    if "needs a GPU" in done.stderr:
        pytest.skip(f"this nvImageCodec {done.stderr.splitlines()[-1]}")
    assert done.returncode == 0, done.stderr


@pytest.mark.gpu
def test_nvimagecodec_on_a_gpu() -> None:
    pytest.importorskip("nvidia.nvimgcodec")
    reason = problem()
    if reason:
        pytest.skip(reason)
    images = pictures("cuda")  # in pinned memory, beside CuPy's use of the GPU
    encode = make_gpu_encoder()
    with ThreadPoolExecutor(1) as thread:  # as the node's publisher has
        thread.submit(assert_like_opencv, encode, images).result()
    large = np.random.default_rng(0).integers(0, 256, (1024, 1224, 3)).astype(np.uint8)
    assert decoded(encode(large, 90), large).shape == large.shape, "of another size, from another thread"


def failing() -> Any:
    """A module `nvidia.nvimgcodec` whose encoder returns None, as the real one does for what it cannot encode."""
    return SimpleNamespace(
        QualityType=SimpleNamespace(QUALITY=2),
        EncodeParams=lambda **_: None,
        BackendKind=SimpleNamespace(HW_GPU_ONLY=1, GPU_ONLY=2, HYBRID_CPU_GPU=3),
        Backend=lambda kind: kind,
        Encoder=lambda **_: SimpleNamespace(encode=lambda *_, **__: None),
    )


def older() -> Any:
    """A module `nvidia.nvimgcodec` with another interface."""
    return SimpleNamespace(__version__="0.1")


def missing() -> Any:
    raise ModuleNotFoundError("No module named 'nvidia'")


@pytest.mark.parametrize(
    ("load", "level", "reason"),
    [(missing, "info", "No module named"), (older, "warning", "BackendKind"), (failing, "warning", "cannot encode")],
)
def test_opencv_takes_over(load: Callable[[], Any], level: str, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    loads: List[str] = []

    def import_module(name: str) -> Any:
        loads.append(name)
        return load()

    monkeypatch.setattr(jpeg.importlib, "import_module", import_module)
    log, image = Log(), np.arange(64, dtype=np.uint8).reshape(8, 8)
    encoder, wanted = JpegEncoder(log), encode_with_opencv(image, 90)
    np.testing.assert_array_equal(encoder.encode(image, 90, on_gpu=False), wanted)
    assert (loads, log.lines) == ([], []), "nothing is loaded where the CPU computes"
    for _ in range(2):
        np.testing.assert_array_equal(encoder.encode(image, 90, on_gpu=True), wanted)
    assert loads == ["nvidia.nvimgcodec"], "tried once"
    found, text = log.lines[-1]
    assert (found, "OpenCV on the CPU" in text, reason in text) == (level, True, True)
    assert [line for line in log.lines if "OpenCV" in line[1]] == log.lines[-1:]
