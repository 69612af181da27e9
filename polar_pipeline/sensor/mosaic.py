"""Mosaics of polarization sensors: which polarizer angle and which color covers each pixel.

A new sensor is one row in :data:`SENSORS`, a new camera is one name in `_MODELS`. Source: tiles of Sony's
IMX250, IMX253 and IMX264 as printed in the camera makers' manuals.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Dict, Optional, Tuple, Union

from polar_pipeline._util.text import did_you_mean, quoted

#: Polarizer angles in degrees, in the order of every four-angle axis of this package.
ANGLES = (0, 45, 90, 135)
#: Color channels, in the order of every color axis of this package.
CHANNELS = "RGB"
Tile = Tuple[Tuple[int, ...], ...]
#: Electrons at full scale and read noise in electrons at a gain of 0 dB of the pixel that IMX250, IMX253 and IMX264
#: share. EMVA 1288 data sheets of cameras with an IMX250 have 10.3 to 10.6 thousand, and 2.3 to 2.5.
PIXEL_NOISE = (10_500.0, 2.4)
#: (height, width) of the frames of IMX250 and IMX264, and those of IMX253.
FULL_FRAME, LARGE_FRAME = (2048, 2448), (3000, 4096)
#: Characters of the longest text that is taken for a tile.
_TILE_TEXT = 1000


@dataclass(frozen=True)
class Sensor:
    """Mosaic of a sensor: the polarizer angle and color of each pixel.

    Attributes:
        name: Name of the sensor, for messages.
        angles: 2x2 polarizer angles in degrees, row-major.
        colors: 4x4 indices into `CHANNELS`, row-major, whose four stride-2 lattices are Bayer patterns; None for a
            monochrome sensor.
        full_well: Electrons of a pixel at full scale, at a gain of 0 dB.
        read_noise: Standard deviation of a pixel in the dark, in electrons.
        size: (height, width) of its frames; what is prepared before the first one depends on it, nothing else.
    """

    name: str
    angles: Tile
    colors: Optional[Tile] = None
    full_well: float = PIXEL_NOISE[0]
    read_noise: float = PIXEL_NOISE[1]
    size: Tuple[int, int] = field(default=FULL_FRAME, compare=False)

    @property
    def is_color(self) -> bool:
        """Whether the sensor has a Bayer lattice over its polarizers."""
        return self.colors is not None

    @property
    def period(self) -> int:
        """Pixels after which the mosaic repeats along x and y: 2 (mono) or 4 (color)."""
        return 4 if self.is_color else 2

    def angle_index(self, row: int, column: int) -> int:
        """Return the index into `ANGLES` of the polarizer at a pixel."""
        return ANGLES.index(self.angles[row % 2][column % 2])

    def color_index(self, row: int, column: int) -> int:
        """Return the index into `CHANNELS` of the color filter at a pixel; 0 for a mono sensor."""
        return 0 if self.colors is None else self.colors[row % 4][column % 4]

    def position(self, angle: int) -> Tuple[int, int]:
        """Return (row, column) of a polarizer angle, in degrees, within the 2x2 tile."""
        return next((i, j) for i in range(2) for j in range(2) if self.angles[i][j] == angle)

    def tile(self) -> str:
        """Format the mosaic as `parse_tile` reads it."""
        cells = range(self.period)
        return " / ".join(" ".join(f"{self._color(r, c)}{self.angles[r % 2][c % 2]}" for c in cells) for r in cells)

    def _color(self, row: int, column: int) -> str:
        return CHANNELS[self.color_index(row, column)] if self.is_color else ""

    def as_read_out(
        self,
        offset: Tuple[int, int] = (0, 0),
        flip: Tuple[bool, bool] = (False, False),
        shape: Tuple[int, int] = (0, 0),
    ) -> Sensor:
        """Return the mosaic as a frame shows it, permuted by region of interest and readout direction.

        Angles stay those of the scene: in a mirrored picture an AoLP of `a` points along `pi - a`, as
        `docs/interpreting_images.md` defines it.

        Args:
            offset: (x, y) of the frame's first pixel in the sensor's own readout, in pixels, before any flip.
            flip: (ReverseX, ReverseY).
            shape: (height, width) of the frame; its parity decides where a reversed row starts.

        Raises:
            ValueError: An offset is negative.
        """
        if min(offset) < 0:
            raise ValueError(f"ROI offset must be >= 0, got {tuple(offset)}")

        def place(index: int, size: int, start: int, reverse: bool) -> int:
            return (size - 1 - index if reverse else index) + start

        rows = [place(r, shape[0], offset[1], flip[1]) for r in range(4)]
        columns = [place(c, shape[1], offset[0], flip[0]) for c in range(4)]
        angles = tuple(tuple(self.angles[r % 2][c % 2] for c in columns[:2]) for r in rows[:2])
        colors = None if self.colors is None else tuple(tuple(self.colors[r % 4][c % 4] for c in columns) for r in rows)
        return replace(self, angles=angles, colors=colors)


def readout_order(flip: Tuple[bool, bool]) -> Tuple[slice, slice]:
    """Return slices of rows and columns from the order of a frame with this flip to the sensor's own, and back."""
    return slice(None, None, -1 if flip[1] else 1), slice(None, None, -1 if flip[0] else 1)


def parse_tile(text: str, name: str = "custom") -> Sensor:
    """Parse a sensor from its tile, written as in the manuals.

    Args:
        text: `"90 45 / 135 0"`, or for color 4x4 cells such as `"R90 R45 G90 G45 / R135 R0 G135 G0 / ..."`.
        name: Name given to the sensor.

    Raises:
        ValueError: The text is no 2x2 or 4x4 tile, an angle is missing, diagonal neighbors are not orthogonal, or the
            colors are no Bayer pattern.
    """
    expected = "expected a tile such as '90 45 / 135 0' (2x2) or 'R90 R45 G90 G45 / R135 R0 ... / ...' (4x4)"
    if not isinstance(text, str) or len(text) > _TILE_TEXT:
        raise ValueError(f"{expected}, got {quoted(text)}")
    rows = [line.split() for line in text.split("/")]
    size = len(rows)
    cells = [re.fullmatch(r"([RGB]?)([0-9]{1,3})", cell) for row in rows for cell in row]
    if size not in (2, 4) or any(len(row) != size for row in rows) or not all(cells):
        raise ValueError(f"{expected}, got {quoted(text)}")
    grid = [[(m.group(1), int(m.group(2))) for m in cells[size * r : size * r + size] if m] for r in range(size)]
    tile = tuple(tuple(grid[r][c][1] for c in range(2)) for r in range(2))
    if sorted(tile[0] + tile[1]) != list(ANGLES):
        raise ValueError(f"a tile holds each of {ANGLES} once, got {tile} in {quoted(text)}")
    if abs(tile[0][0] - tile[1][1]) != 90:
        raise ValueError(f"diagonal neighbors must be orthogonal polarizers, got {tile} in {quoted(text)}")
    if size == 2:
        if any(cell[0] for row in grid for cell in row):
            raise ValueError(f"a 2x2 tile has no colors; {expected}, got {quoted(text)}")
        return Sensor(name, tile)
    if any(grid[r][c][1] != tile[r % 2][c % 2] or not grid[r][c][0] for r in range(4) for c in range(4)):
        raise ValueError(f"{quoted(text)} does not repeat its 2x2 angles, or has cells without a color; {expected}")
    colors = tuple(tuple(CHANNELS.index(cell[0]) for cell in row) for row in grid)
    for r in range(2):
        for c in range(2):
            a, b, d, e = colors[r][c], colors[r][c + 2], colors[r + 2][c], colors[r + 2][c + 2]
            if sorted((a, b, d, e)) != [0, 1, 1, 2] or not (a == e == 1 or b == d == 1):
                raise ValueError(f"the {tile[r][c]} degree pixels of {quoted(text)} form no Bayer pattern")
    return Sensor(name, tile, colors)


_MZR = "90 45 / 135 0"
_MYR = "R90 R45 G90 G45 / R135 R0 G135 G0 / G90 G45 B90 B45 / G135 G0 B135 B0"
#: The sensors known by name: tile, size, and the noise of a pixel.
SENSORS: Dict[str, Sensor] = {
    name: replace(parse_tile(tile, name), size=size, full_well=noise[0], read_noise=noise[1])
    for name, tile, size, noise in (
        ("IMX250MZR", _MZR, FULL_FRAME, PIXEL_NOISE),
        ("IMX250MYR", _MYR, FULL_FRAME, PIXEL_NOISE),
        ("IMX264MZR", _MZR, FULL_FRAME, PIXEL_NOISE),
        ("IMX264MYR", _MYR, FULL_FRAME, PIXEL_NOISE),
        ("IMX253MZR", _MZR, LARGE_FRAME, PIXEL_NOISE),
        ("IMX253MYR", _MYR, LARGE_FRAME, PIXEL_NOISE),
    )
}
#: Models of polarization cameras by sensor, and the endings of their names that state the lens mount. Source: the
#: makers' lists of models and manuals, and names that users' programs compare.
_MODELS = (
    ("IMX250MZR", ("PHX050S-P", "TRI050S-P"), ("", "C")),  # LUCID Phoenix, Triton
    ("IMX250MYR", ("PHX050S-Q", "TRI050S-Q"), ("", "C")),
    ("IMX264MZR", ("PHX050S1-P", "TRI050S1-P"), ("", "C")),
    ("IMX264MYR", ("PHX050S1-Q", "TRI050S1-Q"), ("", "C")),
    ("IMX250MZR", ("BFS-U3-51S5P", "BFS-PGE-51S5P"), ("", "-C")),  # FLIR Blackfly S
    ("IMX250MYR", ("BFS-U3-51S5PC", "BFS-PGE-51S5PC"), ("", "-C")),
    ("IMX253MZR", ("BFS-PGE-123S6P",), ("", "-C")),
    ("IMX250MZR", ("DZK 33GX250", "DZK 33UX250"), ("",)),  # The Imaging Source
    ("IMX250MYR", ("DYK 33GX250", "DYK 33UX250"), ("",)),
    ("IMX250MZR", ("VCXG-50MP", "VCXU-50MP"), ("",)),  # Baumer
    ("IMX250MZR", ("GO-5100MP", "GO-5100MP-PGE", "GO-5100MP-USB"), ("",)),  # JAI
    ("IMX250MZR", ("Mako G-508B POL",), ("",)),  # Allied Vision
    ("IMX250MZR", ("XCG-CP510",), ("",)),  # Sony
    ("IMX250MZR", ("PL-D755MU-POL",), ("",)),  # Pixelink
)
#: Model of a camera -> name of its sensor.
CAMERA_MODELS: Dict[str, str] = {
    f"{model}{mount}": sensor for sensor, models, mounts in _MODELS for model in models for mount in mounts
}
#: What some cameras state before the name of their model.
_SERIES = "blackfly s "


def sensor_of_model(model: str) -> str:
    """Return the name of the sensor of a known model of a polarization camera; "" for all other models."""
    name = model.lower()
    name = name[len(_SERIES) :] if name.startswith(_SERIES) else name
    return next((sensor for row, sensor in CAMERA_MODELS.items() if row.lower() == name), "")


def get_sensor(sensor: Union[str, Sensor]) -> Sensor:
    """Return a sensor from its name, a camera's model in `CAMERA_MODELS` (capitals or not), or its tile (`parse_tile`).

    Raises:
        ValueError: The text is neither a known name nor a tile.
    """
    if isinstance(sensor, Sensor):
        return sensor
    if isinstance(sensor, str):
        name = next((name for name in SENSORS if name.lower() == sensor.lower()), "") or sensor_of_model(sensor)
        if name:
            return SENSORS[name]
    try:
        return parse_tile(sensor)
    except ValueError as err:
        raise ValueError(
            f"sensor must be one of {', '.join(SENSORS)} or a tile, or the model of a camera such as "
            f"{next(iter(CAMERA_MODELS))}: {err}{did_you_mean(sensor, [*SENSORS, *CAMERA_MODELS])}"
        ) from err
