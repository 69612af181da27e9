"""JPEG encoding of images for viewing: nvImageCodec on a GPU that computes them, else OpenCV. Imports no ROS."""

from __future__ import annotations

from typing import Optional

import numpy as np

from polar_pipeline._util.jpeg import Encode, encode_with_opencv, make_gpu_encoder
from polar_pipeline._util.text import printable
from polar_pipeline.live.diagnostics import Logger


class JpegEncoder:
    """JPEG encoder for images of both backends: on the GPU if it computed them and nvImageCodec works, else on the CPU.

    After the first failure of nvImageCodec, which is logged, OpenCV encodes all images. One thread at a time calls it.

    Args:
        logger: Takes the line that says what encodes.
    """

    def __init__(self, logger: Logger) -> None:
        self._logger = logger
        self._gpu: Optional[Encode] = None
        self._failed = False

    def encode(self, image: np.ndarray, quality: int, on_gpu: bool) -> np.ndarray:
        """Encode an image as the bytes of a JPEG file, as an `Encode` does.

        Args:
            image: (h, w) gray or (h, w, 3) RGB, uint8.
            quality: 1 to 100.
            on_gpu: Whether a GPU computed the image.

        Raises:
            RuntimeError: OpenCV cannot encode it.
        """
        if on_gpu and not self._failed:
            try:
                if self._gpu is None:
                    self._gpu = make_gpu_encoder()
                    self._logger.info("JPEG is encoded by nvImageCodec on the GPU")
                return self._gpu(image, quality)
            except Exception as err:  # noqa: BLE001 - whatever fails in there, OpenCV works
                self._gpu, self._failed = None, True
                log = self._logger.info if isinstance(err, ModuleNotFoundError) else self._logger.warning
                log(f"JPEG is encoded by OpenCV on the CPU: {type(err).__name__}: {printable(str(err))}")
        return encode_with_opencv(image, quality)
