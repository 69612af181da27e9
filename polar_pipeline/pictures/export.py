"""Products as files: pictures to look at, exact numbers, or archives of arrays."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, Mapping, Optional, Sequence

import numpy as np

from polar_pipeline._util.files import check_absent, replacing
from polar_pipeline.options.display import brighten
from polar_pipeline.options.products import PRODUCTS
from polar_pipeline.pictures.brightness import display_gain, for_display, white_balance
from polar_pipeline.pictures.colors import legend, picture
from polar_pipeline.pictures.files import encode_picture
from polar_pipeline.pictures.overview import overview

#: Formats of files: pictures to look at; TIFF of floats, others as PNG of 8 or 16 bit; arrays; one archive per frame.
FORMATS = ("png", "tiff", "npy", "npz")
#: Name of the annotated picture among those of products.
OVERVIEW = "overview"


@dataclass
class Brightness:
    """Display gain and white balance; those that are None follow from the first image of light, and then stay."""

    gain: Optional[float] = None
    balance: Optional[Sequence[float]] = None

    def set_by(self, products: Mapping[str, np.ndarray]) -> None:
        """Choose what is not chosen by the first image of light of a frame."""
        light = next((row for name, row in products.items() if PRODUCTS[name].is_light), None)
        if self.balance is None:
            self.balance = (1.0,) if light is None else white_balance(light)
        if self.gain is None:
            self.gain = 1.0 if light is None else display_gain(light, self.balance)


@dataclass(frozen=True)
class Exporter:
    """Writes the products of frames as files, which are complete or absent.

    Attributes:
        folder: Where they go; it exists.
        format: One of `FORMATS`.
        has_overview: Whether an annotated picture is written too.
        force: Whether files that exist may be replaced.
        color_style: The option by which `aolp_color` was computed.
        is_exact: Whether PNG holds levels of 8 and 16 bit as they are; otherwise brightness applies to them.
        brightness: Of images of light in pictures.
    """

    folder: Path
    format: str
    has_overview: bool
    force: bool
    color_style: str
    is_exact: bool
    brightness: Brightness

    def paths(self, frame: str, products: Mapping[str, np.ndarray]) -> Dict[str, Path]:
        """Return the files of a frame by product; an archive of all has the name ""."""
        paths = {"": self.folder / f"{frame}.npz"} if self.format == "npz" else {}
        for name, array in products.items():
            if self.format != "npz" and array.ndim:
                is_png = self.format == "tiff" and array.dtype != np.float32
                paths[name] = self.folder / f"{frame}_{name}.{'png' if is_png else self.format}"
        if self.has_overview:
            paths[OVERVIEW] = self.folder / f"{frame}_{OVERVIEW}.png"
        return paths

    def check(self, frame: str, products: Mapping[str, np.ndarray]) -> None:
        """Refuse to replace files of a frame.

        Raises:
            FileExistsError: A file exists, and `force` is false.
        """
        for path in self.paths(frame, products).values():
            check_absent(path, self.force)

    def write(self, frame: str, products: Mapping[str, np.ndarray]) -> None:
        """Write the files of a frame; numbers go into archives only.

        Raises:
            OSError: A file exists, or cannot be written.
        """
        for name, path in self.paths(frame, products).items():
            with replacing(path, self.force) as stream:
                if name == "":
                    members: Dict[str, Any] = dict(products)
                    np.savez(stream, **members)
                else:
                    array = self.overview(frame, products) if name == OVERVIEW else self._stored(name, products[name])
                    stream.write(encode_picture(array, path.suffix))

    def legends(self, products: Sequence[str]) -> Dict[Path, bytes]:
        """Return the files of the legends of colors in pictures of products, without those that are there already.

        Raises:
            FileExistsError: A file of another legend exists, and `force` is false.
        """
        legends = {name: legend(name, self.color_style) for name in products if self.format in ("png", "tiff")}
        files: Dict[Path, bytes] = {}
        for name, rgb in legends.items():
            path = self.folder / f"{name}_legend.png"
            data = b"" if rgb is None else encode_picture(rgb, ".png")
            if data and not (path.is_file() and path.read_bytes() == data):
                check_absent(path, self.force)
                files[path] = data
        return files

    def write_legends(self, legends: Mapping[Path, bytes]) -> None:
        """Write the files that `legends` returned.

        Raises:
            OSError: A file exists, or cannot be written.
        """
        for path, data in legends.items():
            with replacing(path, self.force) as stream:
                stream.write(data)

    def overview(self, frame: str, products: Mapping[str, np.ndarray]) -> np.ndarray:
        """Draw the annotated picture of a frame, (h, w, 3) uint8 RGB."""
        gain, balance = self.brightness.gain, self.brightness.balance
        return overview(products, frame, gain=gain, balance=balance, color_style=self.color_style)

    def picture(self, name: str, array: np.ndarray) -> np.ndarray:
        """Return a product as a picture to look at, (h, w, 3) uint8 RGB."""
        gain, balance = self.brightness.gain or 1.0, self.brightness.balance or (1.0,)
        if PRODUCTS[name].is_light:
            return for_display(array, gain, balance)
        if name == "preview":
            return brighten(array, gain)
        return picture(name, array)

    def _stored(self, name: str, array: np.ndarray) -> np.ndarray:
        """Return what the file of a product holds: its numbers, or a picture of floats; light of one color is gray."""
        if self.format != "png" or (self.is_exact and array.dtype != np.float32):
            return array
        rgb = self.picture(name, array)
        return rgb[..., 0] if PRODUCTS[name].is_light and array.ndim == 2 else rgb
