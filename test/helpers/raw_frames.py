"""Raw frames that tests record, and the frames that a replay reads."""

from __future__ import annotations

from pathlib import Path
from typing import List

import numpy as np

from polar_pipeline.recordings import messages
from polar_pipeline.recordings.rawpicture import read_picture
from polar_pipeline.recordings.source import open_source

#: Height and width of `random_frame`.
SHAPE = (96, 128)


def random_frame(stamp_ns: int, encoding: str = "mono8") -> bytes:
    """A serialized frame of random bits, the same for each stamp; `Mono12p` has 3 bytes for 2 pixels."""
    height, width = SHAPE
    step = width * 3 // 2 if encoding == "Mono12p" else width
    data = np.random.default_rng(stamp_ns).integers(0, 256, height * step).astype(np.uint8)
    return messages.encode_message(
        messages.ImageMessage(stamp_ns, "camera", height, width, encoding, False, step, data)
    )


def replayed_images(path: Path) -> List[bytes]:
    """The serialized images that a replay of a recording gets."""
    with open_source(path) as source:
        return [record.cdr() for record in source.records]


def picture_pixels(path: Path) -> np.ndarray:
    """The numbers in a picture file, as the package reads them."""
    return messages.to_raw(read_picture(path)).unpack().mosaic
