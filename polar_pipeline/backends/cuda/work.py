"""The works of a frame's launches: polarization, geometry, SSIM."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, Iterable, Tuple, Union

import numpy as np

from polar_pipeline.options.methods import LATTICE_METHODS, METHODS
from polar_pipeline.options.products import NOISE_PRODUCTS, PRODUCTS, SSIM_PRODUCTS
from polar_pipeline.polarimetry.coefficients import SSIM_BLOCK
from polar_pipeline.sensor.frames import FORMATS
from polar_pipeline.sensor.mosaic import Sensor

#: What SSIM compares: both sums of two angles, or S0/2.
PAIRS = ("sums", "s0")
#: What the launch of a geometry interpolates: S1 and S2, S0/2, and (I0 + I90 - I45 - I135)/4, of each color.
PLANES = ("differences", "means", "excesses")
#: What kernels can store: every product but SSIM's, what SSIM compares, and what is interpolated.
OUTPUTS = (*(name for name in PRODUCTS if name not in SSIM_PRODUCTS), *PAIRS, *PLANES)
ANGLE_IMAGES = tuple(name for name in OUTPUTS if name.startswith("angle_"))
#: Raw formats as kernels read them -> as cameras call them.
CAMERA_FORMATS = {"u8": FORMATS["8"], "u16": FORMATS["16"], "12p": FORMATS["12p"], "12packed": FORMATS["12Packed"]}
#: Values per pixel of the outputs that are not products: (mono, color).
_VALUES_PER_PIXEL = {
    "sums": (2, 2),
    "s0": (1, 1),
    "differences": (2, 6),
    "means": (1, 3),
    "excesses": (1, 3),
    **{name: PRODUCTS[name].channels for name in OUTPUTS if name in PRODUCTS},
}
#: Bytes of a calibration for a raw pixel.
CORRECTION_BYTES = 4
#: Most bits of a sample's position below a pixel: those of `geometry.sampling.STEP`.
MAX_FRACTION = 10


@dataclass(frozen=True)
class PolarizationWork:
    """The first launch: mosaic in, products out; with a geometry, planes of the Stokes image instead.

    Attributes:
        sensor: The mosaic as the frame shows it (`Sensor.as_read_out`).
        half: Whether one output pixel stands for a superpixel.
        co_sited: At half resolution, angles interpolated to the superpixel's center.
        demosaic: Method on the polarizer mosaic.
        debayer: Method on the color lattice.
        raw_format: A key of `CAMERA_FORMATS`.
        full_scale: Raw number of a saturated pixel.
        half_precision: Whether the kernel computes in pairs of half.
        outputs: (name in `OUTPUTS`, `uint8` or `float32`) of what is stored; what SSIM reads can be `uint16`, what a
            geometry interpolates `float16`.
        width: Raw pixels along x.
        height: Raw pixels along y.
        calibrated: Whether pixels are corrected by a calibration as they are loaded.
        debias: Whether DoLP gets rid of its bias.
        limits_aolp: Whether AoLP is invalid beyond a standard deviation.
        phase: Where the calibration's superpixels lie (`Correction.phase`).
    """

    sensor: Sensor
    half: bool
    co_sited: bool
    demosaic: str
    debayer: str
    raw_format: str
    full_scale: int
    half_precision: bool
    outputs: Tuple[Tuple[str, str], ...]
    width: int
    height: int
    calibrated: bool = False
    debias: bool = False
    limits_aolp: bool = False
    phase: Tuple[int, int] = (0, 0)

    @property
    def output_size(self) -> Tuple[int, int]:
        """(height, width) of the outputs."""
        return (self.height // 2, self.width // 2) if self.half else (self.height, self.width)

    @property
    def size(self) -> Tuple[int, int]:
        """(width, height) of the frame, under which schedules are kept."""
        return self.width, self.height

    @property
    def step(self) -> int:
        """Raw pixels from one output pixel to the next."""
        return 2 if self.half else 1

    @property
    def dtypes(self) -> Dict[str, str]:
        """Element type per output."""
        return dict(self.outputs)

    @property
    def uses_noise(self) -> bool:
        """Whether an output depends on the noise."""
        return self.debias or self.limits_aolp or any(name in NOISE_PRODUCTS for name in self.dtypes)

    @property
    def halos(self) -> Tuple[int, int]:
        """Reach of (polarizer interpolation, debayering) in raw pixels."""
        mono = 0 if self.half and not self.co_sited else METHODS[self.demosaic].reach
        return mono, LATTICE_METHODS[self.debayer].reach if self.sensor.is_color else 0

    @property
    def is_adaptive(self) -> bool:
        """Whether the launch runs the adaptive demosaic; angles at their own sites need no interpolation."""
        return self.demosaic == "adaptive" and self.halos[0] > 0

    @property
    def read_bytes(self) -> int:
        """Bytes of one frame and of its correction."""
        raw = self.height * CAMERA_FORMATS[self.raw_format].row_bytes(self.width)
        return raw + self.correction_bytes

    @property
    def correction_bytes(self) -> int:
        """Bytes of the calibration for one frame; 0 without one."""
        return CORRECTION_BYTES * self.width * self.height if self.calibrated else 0

    @property
    def written_bytes(self) -> int:
        """Bytes that the launch stores for one frame."""
        return image_bytes(self.output_size, self.outputs, self.sensor.is_color)

    @property
    def key(self) -> str:
        """The work as short text without its size: the key of measured schedules."""
        parts = ["color" if self.sensor.is_color else "mono", "half" if self.half else "full"]
        parts.append(self.demosaic if self.co_sited or not self.half else "own-site")
        parts += [self.debayer] if self.sensor.is_color else []
        parts += [self.raw_format, "fp16" if self.half_precision else "fp32"]
        if self.calibrated:
            parts.append("calibrated" + "-odd" * any(self.phase))
        parts += ["debias"] * self.debias + ["limits-aolp"] * self.limits_aolp
        return " ".join((*parts, "+".join(f"{name}:{dtype}" for name, dtype in self.outputs)))


@dataclass(frozen=True)
class TransformWork:
    """The launch of a geometry: planes of the Stokes image in, products of another geometry out.

    Attributes:
        source: (height, width) of the planes.
        height: Height of the outputs.
        width: Width of the outputs.
        scale: Samples along each side of an output pixel.
        positions: Whether a map gives positions of samples between pixels; else samples are pixels.
        by_columns: Whether neighboring columns of the output lie in neighboring rows of the planes.
        color: Whether there are planes of three colors.
        half_precision: Whether the kernel computes in pairs of half.
        planes: Element type of the planes.
        outputs: (name, element type) of each stored output.
        fraction: Bits of a position below a pixel; meaningless without positions.
    """

    source: Tuple[int, int]
    height: int
    width: int
    scale: int
    positions: bool
    by_columns: bool
    color: bool
    half_precision: bool
    planes: str
    outputs: Tuple[Tuple[str, str], ...]
    fraction: int = MAX_FRACTION

    @property
    def output_size(self) -> Tuple[int, int]:
        """(height, width) of the outputs."""
        return self.height, self.width

    @property
    def size(self) -> Tuple[int, int]:
        """(width, height) of the outputs, under which schedules are kept."""
        return self.width, self.height

    @property
    def dtypes(self) -> Dict[str, str]:
        """Element type per output."""
        return dict(self.outputs)

    @property
    def has_excess(self) -> bool:
        """Whether the third of `PLANES` is read."""
        return any(name == "sums" or name in ANGLE_IMAGES for name in self.dtypes)

    @property
    def plane_names(self) -> Tuple[str, ...]:
        """The planes of `PLANES` that the launch reads."""
        return PLANES if self.has_excess else PLANES[:2]

    @property
    def plane_bytes(self) -> Dict[str, int]:
        """Bytes of memory for each plane, with space behind the last one for a row and a pixel without weight."""
        (height, width), number = self.source, np.dtype(self.planes).itemsize
        pixels = height * width * (3 if self.color else 1) + width + 1
        return {name: pixels * number * _VALUES_PER_PIXEL[name][False] for name in self.plane_names}

    @property
    def map_bytes(self) -> int:
        """Bytes of the map: a position for each sample, and a rotation for four pixels; 0 where samples are pixels."""
        turns = 2 * np.dtype(self.planes).itemsize
        return self.height * self.width * (4 * self.scale**2 + turns // 4) if self.positions else 0

    @property
    def read_bytes(self) -> int:
        """Bytes of the planes of one frame, and of the map."""
        planes = image_bytes(self.source, ((name, self.planes) for name in self.plane_names), self.color)
        return planes + self.map_bytes

    @property
    def written_bytes(self) -> int:
        """Bytes that the launch stores for one frame."""
        return image_bytes(self.output_size, self.outputs, self.color)

    @property
    def key(self) -> str:
        """The work as short text without its size: the key of measured schedules."""
        parts = ["transform", "color" if self.color else "mono", "fp16" if self.half_precision else "fp32", self.planes]
        parts += ["rectified"] * self.positions + [f"scale-{self.scale}"] * (self.scale > 1)
        parts += ["by-columns"] * self.by_columns
        return " ".join((*parts, "+".join(f"{name}:{dtype}" for name, dtype in self.outputs)))


@dataclass(frozen=True)
class SsimWork:
    """The SSIM launch: two images in, their similarity out.

    Attributes:
        height: Pixels of an image along y.
        width: And along x.
        stride: Pixels in each direction over which images are averaged first.
        window: Taps of the Gaussian, odd.
        sigma: Its standard deviation in averaged pixels.
        source: Element type of the images: `uint16` or `float32`.
        map_dtype: Element type of the map, empty if it is not wanted.
        masked: Whether a mask says where the images have no values: there the map has none, and means take none.
    """

    height: int
    width: int
    stride: int
    window: int
    sigma: float
    source: str
    map_dtype: str
    masked: bool = False

    @property
    def size(self) -> Tuple[int, int]:
        """(width, height) of the images, under which schedules are kept."""
        return self.width, self.height

    @property
    def map_size(self) -> Tuple[int, int]:
        """(height, width) of the map."""
        return self.height // self.stride, self.width // self.stride

    @property
    def block_size(self) -> Tuple[int, int]:
        """(rows, columns) of the blocks whose means are taken."""
        height, width = self.map_size
        return -(-height // SSIM_BLOCK), -(-width // SSIM_BLOCK)

    @property
    def read_bytes(self) -> int:
        """Bytes of both images."""
        return 2 * self.height * self.width * np.dtype(self.source).itemsize

    @property
    def written_bytes(self) -> int:
        """Bytes of the map."""
        height, width = self.map_size
        return height * width * np.dtype(self.map_dtype).itemsize if self.map_dtype else 0

    @property
    def key(self) -> str:
        """The work as short text without its size: the key of measured schedules."""
        shown = f"ssim {self.source} to {self.map_dtype or 'means only'}, {self.window} taps"
        return shown + (f", stride {self.stride}" if self.stride > 1 else "") + ", masked" * self.masked


#: What one launch has to do.
Work = Union[PolarizationWork, TransformWork, SsimWork]


def image_bytes(size: Tuple[int, int], outputs: Iterable[Tuple[str, str]], is_color: bool) -> int:
    """Return the bytes of some outputs, given as (name, element type), of (height, width)."""
    values = sum(_VALUES_PER_PIXEL[name][is_color] * np.dtype(dtype).itemsize for name, dtype in outputs)
    return size[0] * size[1] * values


def red_sites(sensor: Sensor) -> Dict[Tuple[int, int], Tuple[int, int]]:
    """Map tile positions to (row, column) of red on their Bayer lattice; empty for a mono sensor."""
    if sensor.colors is None:
        return {}
    return {
        (i, j): next((r, c) for r in range(2) for c in range(2) if sensor.color_index(2 * r + i, 2 * c + j) == 0)
        for i in range(2)
        for j in range(2)
    }


def noise_frames(work: PolarizationWork, frames: int, seed: int = 0) -> np.ndarray:
    """Create (frames, height, bytes of a row) uint8: raw frames of noise to measure with.

    16-bit pixels have 5 to 80 % of full scale, bytes 5 to 80 % of 255: saturated pixels are rare, and slower.
    """
    noise, step = np.random.default_rng(seed), CAMERA_FORMATS[work.raw_format].row_bytes(work.width)
    if work.raw_format == "u16":
        low, high = work.full_scale // 20, work.full_scale * 4 // 5
        return noise.integers(low, high, (frames, work.height, work.width), np.uint16).view(np.uint8)
    return noise.integers(13, 204, (frames, work.height, step), np.uint8)
