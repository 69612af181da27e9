"""JPEG encoders: OpenCV, and nvImageCodec on a GPU."""

from __future__ import annotations

import importlib
from functools import partial
from typing import Any, Callable

import cv2
import numpy as np

#: Encodes (h, w) gray or (h, w, 3) RGB uint8 with a quality of 1 to 100; gives the bytes of a JPEG file, (N,) uint8.
Encode = Callable[[np.ndarray, int], np.ndarray]


def encode_with_opencv(image: np.ndarray, quality: int) -> np.ndarray:
    """Encode an image on the CPU; an `Encode`.

    Raises:
        RuntimeError: OpenCV cannot encode the image.
    """
    bgr = cv2.cvtColor(image, cv2.COLOR_RGB2BGR) if image.ndim == 3 else image
    is_done, data = cv2.imencode(".jpg", bgr, [cv2.IMWRITE_JPEG_QUALITY, quality])
    if not is_done:
        raise RuntimeError(f"OpenCV cannot write a JPEG of shape {image.shape}")
    return data


def _encode_with_nvimagecodec(codec: Any, encoder: Any, image: np.ndarray, quality: int) -> np.ndarray:
    """Encode an image by NVIDIA's nvImageCodec; chroma has half the resolution, as with OpenCV.

    `codec` is the module `nvidia.nvimgcodec`, and `encoder` its encoder; the others are arguments of an `Encode`.

    Raises:
        RuntimeError: The encoder cannot encode the image; it has written the reason to stderr.
    """
    params = codec.EncodeParams(quality_type=codec.QualityType.QUALITY, quality_value=quality)
    stream = encoder.encode(np.ascontiguousarray(image), "jpeg", params=params)
    if stream is None:
        raise RuntimeError(f"nvImageCodec cannot encode a JPEG of shape {image.shape}; is nvJPEG installed?")
    return np.frombuffer(stream, np.uint8)


def make_gpu_encoder() -> Encode:
    """Create an nvImageCodec encoder on this thread's CUDA device, without encoders for CPUs.

    Raises:
        ModuleNotFoundError: The encoder is not installed.
        RuntimeError: The encoder does not work on this machine.
    """
    codec: Any = importlib.import_module("nvidia.nvimgcodec")
    kinds = (codec.BackendKind.HW_GPU_ONLY, codec.BackendKind.GPU_ONLY, codec.BackendKind.HYBRID_CPU_GPU)
    encoder = codec.Encoder(max_num_cpu_threads=1, backends=[codec.Backend(kind) for kind in kinds])
    return partial(_encode_with_nvimagecodec, codec, encoder)
