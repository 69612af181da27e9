"""The network of `demosaic: learned`: its layers, and the file of their weights.

`training/` makes the file, and `docs/learned.md` describes what it was trained on.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Dict, NamedTuple, Tuple

import numpy as np

from polar_pipeline.sensor.mosaic import Sensor


class Layer(NamedTuple):
    """A convolution of superpixels, beyond whose image everything is 0.

    Attributes:
        inputs: Channels that it reads.
        outputs: Channels that it writes.
        size: Height and width of its weights.
        stride: Superpixels from one output to the next: 2 halves the resolution.
    """

    inputs: int
    outputs: int
    size: int
    stride: int = 1


#: Channels of the network's input and output (`reference/learned.py` names them), and of the images at full, half and
#: quarter resolution.
INPUTS, OUTPUTS = 29, 16
CHANNELS = (16, 32, 32)
#: Superpixels in a side of the squares that every level of resolution divides.
ALIGNMENT = 4
#: The layers in the order in which they are applied. `up` layers write four channels for each of theirs: those of a
#: superpixel of twice the resolution, row after row.
LAYERS: Dict[str, Layer] = {
    "enter": Layer(INPUTS, CHANNELS[0], 1),
    "encode_0": Layer(CHANNELS[0], CHANNELS[0], 3),
    "down_1": Layer(CHANNELS[0], CHANNELS[1], 2, 2),
    "encode_1": Layer(CHANNELS[1], CHANNELS[1], 3),
    "down_2": Layer(CHANNELS[1], CHANNELS[2], 2, 2),
    "encode_2": Layer(CHANNELS[2], CHANNELS[2], 3),
    "up_1": Layer(CHANNELS[2], 4 * CHANNELS[1], 1),
    "decode_1": Layer(CHANNELS[1], CHANNELS[1], 3),
    "up_0": Layer(CHANNELS[1], 4 * CHANNELS[0], 1),
    "decode_0": Layer(CHANNELS[0], CHANNELS[0], 3),
    "leave": Layer(CHANNELS[0], OUTPUTS, 1),
}
_FILE = Path(__file__).parent / "network.npz"


@lru_cache(maxsize=1)
def weights() -> Dict[str, np.ndarray]:
    """Load the weights: float16 arrays, read-only.

    Returns:
        Name of each layer -> (outputs, inputs, size, size); and with `_bias` after its name -> (outputs,).
    """
    with np.load(_FILE) as file:
        arrays = {name: file[name] for name in file.files}
    for array in arrays.values():
        array.flags.writeable = False
    return arrays


def alignment(sensor: Sensor) -> Tuple[Tuple[int, int], int]:
    """Return how a mosaic lies to the superpixels of the network.

    Returns:
        Rows and columns of superpixels that begin before the frame, and the sign of S2.
    """
    row, column = sensor.position(90)
    return (row, column), 1 if sensor.angles[row][1 - column] == 45 else -1


def grid_size(sensor: Sensor, shape: Tuple[int, int]) -> Tuple[int, int]:
    """Return the rows and columns of superpixels that cover a frame of (height, width), multiples of `ALIGNMENT`."""
    before, _ = alignment(sensor)
    rows, columns = (-(-(side + more) // (2 * ALIGNMENT)) * ALIGNMENT for side, more in zip(shape, before))
    return rows, columns
