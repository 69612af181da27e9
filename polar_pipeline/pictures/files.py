"""Pictures and arrays as the bytes of files."""

from __future__ import annotations

import io

import cv2
import numpy as np


def encode_picture(rgb: np.ndarray, suffix: str = ".jpg") -> bytes:
    """Encode (h, w, 3) RGB, (h, w, 4) RGBA or (h, w) gray uint8 as a picture file's bytes, or any array as `.npy`.

    Raises:
        ValueError: OpenCV cannot write that format.
    """
    if suffix == ".npy":
        stream = io.BytesIO()  # into a file, NumPy hides the reason of an error
        np.save(stream, rgb)
        return stream.getvalue()
    lossless = [cv2.IMWRITE_TIFF_COMPRESSION, 1] if suffix == ".tiff" else []  # OpenCV 4.2 rounds float TIFF otherwise
    swapped = {3: cv2.COLOR_RGB2BGR, 4: cv2.COLOR_RGBA2BGRA}
    done, data = cv2.imencode(suffix, cv2.cvtColor(rgb, swapped[rgb.shape[2]]) if rgb.ndim == 3 else rgb, lossless)
    if not done:
        raise ValueError(f"OpenCV cannot write {rgb.shape} as {suffix}")
    return bytes(data)
