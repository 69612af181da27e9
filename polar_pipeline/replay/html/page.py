"""Pages: templates that extend `templates/page.html.j2`, and the pictures in them.

Jinja escapes every text that goes into a page.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import jinja2

from polar_pipeline.polarimetry.colormaps import AOLP_MAP
from polar_pipeline.replay.html import charts


@dataclass(frozen=True)
class ColorBar:
    """The color bar below a picture: a CSS gradient and the labels of its ends."""

    gradient: str
    low: str
    high: str


#: Gradients of color bars, from the left end to the right one.
VIRIDIS = "linear-gradient(90deg,#440154,#3b528b,#21918c,#5ec962,#fde725)"
PHASE = f"linear-gradient(90deg,{','.join('#' + AOLP_MAP[k % 256].tobytes().hex() for k in range(0, 257, 16))})"
GRAYS = "linear-gradient(90deg,#000,#fff)"


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
    environment.globals.update(width=charts.WIDTH, height=charts.HEIGHT, margin=charts.MARGIN)
    return environment.get_template(name)


def data_url(picture: bytes, kind: str = "jpeg") -> str:
    """Encode the bytes of a picture file as the address of an `img`; `kind` is jpeg or png."""
    return f"data:image/{kind};base64,{base64.b64encode(picture).decode()}"
