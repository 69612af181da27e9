"""Pages: templates that extend `templates/page.html.j2`, and the pictures in them.

Jinja escapes every text that goes into a page.
"""

from __future__ import annotations

import base64
import math
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import jinja2
import numpy as np

from polar_pipeline.replay.html import charts


@dataclass(frozen=True)
class ColorBar:
    """The color bar below a picture: a CSS gradient and the labels of its ends."""

    gradient: str
    low: str
    high: str


@dataclass(frozen=True)
class Wheel:
    """The legend of angles below a picture: a picture of the colors as an address, and a sentence about DoLP, or ""."""

    url: str
    text: str


#: Numbers around a wheel of radius 100, as (degrees, x, y) from its center; y downwards.
WHEEL_NUMBERS = tuple(
    (degrees % 180, 125 * math.cos(math.radians(degrees)), -120 * math.sin(math.radians(degrees)))
    for degrees in range(0, 360, 45)
)


def gradient(colors: np.ndarray) -> str:
    """Return (n, 3) uint8 colors as a CSS gradient from left to right, by at most 17 of them."""
    places = np.unique(np.linspace(0, len(colors) - 1, 17).astype(int))
    return f"linear-gradient(90deg,{','.join('#' + colors[k].tobytes().hex() for k in places)})"


@lru_cache(maxsize=4)
def page_template(folder: Path, name: str = "report.html.j2") -> jinja2.Template:
    """Load a template of a folder; it can extend and import the templates of this package."""
    # by their folders: the loader for packages needs setuptools in Jinja 2.10, the one of Ubuntu 20.04
    folders = [str(folder), str(Path(__file__).parent / "templates")]
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folders),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.globals.update(
        width=charts.WIDTH, height=charts.HEIGHT, margin=charts.MARGIN, wheel_numbers=WHEEL_NUMBERS
    )
    return environment.get_template(name)


def data_url(picture: bytes, kind: str = "jpeg") -> str:
    """Encode the bytes of a picture file as the address of an `img`; `kind` is jpeg or png."""
    return f"data:image/{kind};base64,{base64.b64encode(picture).decode()}"
