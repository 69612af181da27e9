"""What launches that store pixels share: names, types and sizes of the arrays, and the argument of their kernels."""

from __future__ import annotations

from abc import abstractmethod
from typing import Dict, Iterable, Mapping, Tuple

import numpy as np

from polar_pipeline.backends.cuda.launch import ArrayType, Defines, Launch, Schedule
from polar_pipeline.backends.noise.model import raw_noise
from polar_pipeline.calibration.quantization import FIELDS
from polar_pipeline.options import Options
from polar_pipeline.options.products import PRODUCTS, SSIM_PRODUCTS
from polar_pipeline.polarimetry.colormaps import AOLP_MAP, DOLP_MAP

#: Names of the images that SSIM compares: both sums of two angles in one array, or S0/2.
SSIM_INPUTS = ("sums", "s0")
#: What the launch of a geometry interpolates: S1 and S2, S0/2, and (I0 + I90 - I45 - I135)/4, of each color.
PLANES = ("differences", "means", "excesses")
#: The same once they are denoised, under names of their own.
DENOISED = {name: f"denoised_{name}" for name in PLANES}
#: And once a network has corrected them.
CORRECTED = {name: f"corrected_{name}" for name in PLANES}
#: Names of the planes by the stage that stores them.
STAGE_PLANES = {"polarization": {name: name for name in PLANES}, "denoise": DENOISED, "learned": CORRECTED}
#: What kernels can store: every product but SSIM's, what SSIM compares, and what is interpolated.
OUTPUTS = (*(name for name in PRODUCTS if name not in SSIM_PRODUCTS), *SSIM_INPUTS, *PLANES)
ANGLE_IMAGES = tuple(name for name in OUTPUTS if name.startswith("angle_"))
#: Values per pixel of the outputs that are not products: (mono, color).
_VALUES_PER_PIXEL = {
    "sums": (2, 2),
    "s0": (1, 1),
    "differences": (2, 6),
    "means": (1, 3),
    "excesses": (1, 3),
    **{name: PRODUCTS[name].channels for name in OUTPUTS if name in PRODUCTS},
}
#: Numbers by which kernels know element types.
TYPE_NUMBERS = {"": 0, "uint8": 1, "float32": 2, "uint16": 3, "float16": 3}
#: `struct FrameArguments` of `kernels/frame.cuh`.
FRAME_ARGUMENT = np.dtype(
    [
        ("raw", np.uint64),
        ("counts", np.uint64),
        ("out", np.uint64, (len(OUTPUTS),)),
        ("raw_stride", np.uint64),
        *((name, np.int32) for name in ("width", "height", "step", "full_scale", "first_block")),
        ("min_intensity", np.float32),
        ("phase_y", np.int32),
        ("phase_x", np.int32),
        ("codes", np.uint64),
        ("slope", np.float32, (len(FIELDS),)),
        ("base", np.float32, (len(FIELDS),)),
        *((name, np.float32) for name in ("one", "shot", "dark", "max_aolp_sigma")),
        ("half_slope", np.uint32, (len(FIELDS),)),
        ("half_base", np.uint32, (len(FIELDS),)),
        ("polarizer", np.float32, (2,)),
        ("fading", np.float32, (2,)),
    ],
    align=True,
)


def fill_options(argument: np.ndarray, options: Options, full_scale: int) -> None:
    """Fill in the options that a kernel is not compiled for, and that can change between two frames.

    Args:
        argument: A `FRAME_ARGUMENT`.
        options: Options of the pipeline.
        full_scale: Raw number of a saturated pixel.
    """
    argument["full_scale"], argument["min_intensity"] = full_scale, options.min_intensity
    argument["polarizer"], argument["fading"] = options.polarizer, options.fading
    argument["shot"], argument["dark"] = raw_noise(options, full_scale)
    argument["max_aolp_sigma"] = np.deg2rad(options.max_aolp_sigma)


def output_defines(dtypes: Mapping[str, str]) -> Defines:
    """Return the definitions of every output, of the stored ones by their element types, and of their color maps."""
    defines: Defines = {"OUTPUT_NAMES": ",".join(name.upper() for name in OUTPUTS)}
    for name in OUTPUTS:
        defines[f"OUT_{name.upper()}"] = TYPE_NUMBERS[dtypes.get(name, "")]
    for name, colors in (("aolp_color", AOLP_MAP), ("dolp_color", DOLP_MAP)):
        if name in dtypes:
            packed = colors.astype(np.uint32) @ np.array([1, 1 << 8, 1 << 16], np.uint32)
            defines[f"{name.upper()}_MAP"] = "{" + ",".join(map(str, packed)) + "}"
    return defines


def image_bytes(size: Tuple[int, int], stored: Iterable[Tuple[str, str]], is_color: bool) -> int:
    """Return the bytes of some arrays, given as (name, element type), of (height, width)."""
    values = sum(_VALUES_PER_PIXEL[name][is_color] * np.dtype(dtype).itemsize for name, dtype in stored)
    return size[0] * size[1] * values


class PixelLaunch(Launch):
    """A launch that stores arrays of pixels: products for the caller, and what the next launches read.

    Subclasses have `stored`: (name in `OUTPUTS`, element type) of each array.
    """

    stored: Tuple[Tuple[str, str], ...]

    @property
    @abstractmethod
    def is_color(self) -> bool:
        """Whether the sensor is a color sensor."""

    @property
    def dtypes(self) -> Dict[str, str]:
        """Element type of each stored array."""
        return dict(self.stored)

    @property
    def stored_text(self) -> str:
        """The stored arrays as a part of `key`."""
        return "+".join(f"{name}:{dtype}" for name, dtype in self.stored)

    @property
    def written_bytes(self) -> int:
        """Bytes that the launch stores for one frame."""
        return image_bytes(self.output_size, self.stored, self.is_color)

    @property
    def outputs(self) -> Dict[str, ArrayType]:
        size, is_color = self.output_size, self.is_color
        return {name: (PRODUCTS[name].shape(size, is_color), dtype) for name, dtype in self.stored if name in PRODUCTS}

    def scratch(self, _: Schedule) -> Dict[str, int]:
        """Return the bytes of what SSIM compares, and of planes, behind which there are a row and a pixel."""
        sizes: Dict[str, int] = {}
        for name, dtype in self.stored:
            size = image_bytes(self.output_size, ((name, dtype),), self.is_color)
            if name in SSIM_INPUTS:
                sizes[name] = size
            elif name in PLANES:
                behind = image_bytes((1, self.output_size[1] + 1), ((name, dtype),), False)
                sizes[STAGE_PLANES[self.stage][name]] = size + behind
        return sizes

    def fill_outputs(self, frame: np.ndarray, addresses: Mapping[str, int], counts: str = "counts") -> None:
        """Fill in the addresses of what is stored, and of the counters.

        Args:
            frame: A `FRAME_ARGUMENT`.
            addresses: Addresses of a frame's arrays.
            counts: Name of the counters.
        """
        names = {**{name: name for name in self.dtypes}, **STAGE_PLANES.get(self.stage, {})}
        frame["counts"] = addresses[counts]
        frame["out"] = [addresses[names[name]] if name in self.dtypes else 0 for name in OUTPUTS]
