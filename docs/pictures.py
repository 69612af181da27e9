"""Pictures of the example frames for the documentation site, painted whenever it is built (`make docs`).

A line `<!-- picture: NAME -->` in a document becomes the picture of that name in `PICTURES`, with its caption. To look
at them without the site: `python docs/pictures.py FOLDER`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple, Tuple

import cv2
import numpy as np
from figures import sheet  # beside this file

from polar_pipeline import Pipeline
from polar_pipeline.colormaps import COLOR_STYLES
from polar_pipeline.geometry import LensCalibration, make_lens
from polar_pipeline.replay.picture import encode_picture, legend

FRAMES = Path(__file__).resolve().parent.parent / "frames"
#: Gain of the pictures of the dark frame: what is white stays below full scale.
GAIN = 1.4
#: The part with the reflections, as the option `roi`: x, y, width, height at half resolution and `scale` 2.
REFLECTIONS = (280, 20, 320, 440)
#: A lens for wide angles, made up: the lens of the example frames is not known, and hardly distorts.
CAMERA, DISTORTION = np.array([[1500.0, 0, 1224], [0, 1500, 1024], [0, 0, 1]]), (-0.25, 0.05, 0.0, 0.0, 0.0)
#: Lines of the grid in the rectified picture in each direction, and points on each.
LINES, POINTS = 13, 200

Size = Tuple[int, int]


class Picture(NamedTuple):
    """A picture: what paints it, as (H, W, 3) uint8 RGB; what it shows, for those who do not see it; its caption."""

    paint: Callable[[], np.ndarray]
    alt: str
    caption: str


def products(frame: str, names: str, **options: Any) -> Dict[str, np.ndarray]:
    """Products of an example frame as RGB in 8 bit."""
    raw = cv2.imread(str(FRAMES / f"imx250mzr_{frame}.png"), cv2.IMREAD_UNCHANGED)
    with Pipeline(products=names, dtype="uint8", backend="cpu", **options) as pipeline:
        found = {name: np.array(array) for name, array in pipeline(raw).items()}
    return {
        name: array if array.ndim == 3 else np.repeat(array[..., np.newaxis], 3, -1) for name, array in found.items()
    }


def glare() -> np.ndarray:
    """The intensity, the image without reflections, and what was taken away."""
    found = products("fruits", "intensity,unpolarized,polarized", scale=2, roi=REFLECTIONS)
    found["polarized"] = np.rint(found["polarized"] / 2).astype(np.uint8)
    labels = {"intensity": "intensity", "unpolarized": "unpolarized", "polarized": "polarized / 2"}
    return sheet([[(labels[name], bright(image)) for name, image in found.items()]], 1)


def bright(image: np.ndarray) -> np.ndarray:
    """An image with the gain of the pictures."""
    return np.rint(np.minimum(image * GAIN, 255)).astype(np.uint8)


def aolp_maps() -> np.ndarray:
    """AoLP in every style, each with its legend."""
    cells = []
    for style in COLOR_STYLES:
        image = products("camera", "aolp_color", color_style=style, scale=4)["aolp_color"]
        wheel = legend("aolp_color", style)
        side = np.full((len(image), wheel.shape[1] + 16, 3), 255, np.uint8)
        side[: len(wheel), 8:-8] = wheel
        cells.append((style, np.hstack([image, side])))
    return sheet([cells[:2], cells[2:]], 1)


def lens() -> LensCalibration:
    """The made-up lens calibration."""
    return make_lens((0, 0), "plumb_bob", DISTORTION, tuple(CAMERA.reshape(-1)), (0.0,) * 9, (0.0,) * 12)


def rectified() -> np.ndarray:
    """A frame as it is and rectified, with the lines that become straight."""
    before = products("camera", "intensity", scale=2)["intensity"]
    after = products("camera", "intensity", scale=2, rectify=lens())["intensity"]
    for points in grid(after.shape[:2]):
        normal = np.linalg.inv(CAMERA) @ np.vstack([raw_pixels(points), np.ones(len(points))])
        bent, _ = cv2.projectPoints(normal.T.copy(), np.zeros(3), np.zeros(3), CAMERA, np.array(DISTORTION))
        for image, line in ((after, points), (before, (bent[:, 0] + 0.5) / 4 - 0.5)):
            drawn = np.rint(line * 16).astype(np.int32)  # with four bits behind the point
            cv2.polylines(image, [drawn], False, (255, 150, 0), 1, cv2.LINE_AA, 4)
    return sheet([[("frame", before), ("rectified", after)]], 1)


def raw_pixels(points: np.ndarray) -> np.ndarray:
    """(N, 2) pixels of an output at half resolution and `scale` 2 as (2, N) pixels of the frame."""
    return ((points + 0.5) * 4 - 0.5).T


def grid(size: Size) -> List[np.ndarray]:
    """The lines of a straight grid over an image of (height, width), (N, 2) points each."""
    height, width = size
    rows, columns = np.linspace(0, height - 1, LINES), np.linspace(0, width - 1, LINES)
    across, down = np.linspace(0, width - 1, POINTS), np.linspace(0, height - 1, POINTS)
    lines = [np.stack([across, np.full(POINTS, y)], 1) for y in rows]
    return lines + [np.stack([np.full(POINTS, x), down], 1) for x in columns]


#: Name of a file -> the picture.
PICTURES: Dict[str, Picture] = {
    "glare.jpg": Picture(
        glare,
        "An orange and a banana three times: with bright reflections, without them, and the reflections alone.",
        f"Glare removed, {GAIN} times as bright as measured. From left to right: `intensity`, `unpolarized`, and half "
        "of `polarized`, which is the difference. Reflections off the peel are polarized, the light that comes out of "
        "the fruit is hardly so.",
    ),
    "aolp_maps.jpg": Picture(
        aolp_maps,
        "The angle of polarization of a camera on a mat in four styles of color, each beside a wheel of its colors.",
        "`aolp_color` in the styles `plain`, `light`, `dark` and `faded`, each with its legend: the direction in the "
        "wheel is AoLP, the distance from the center DoLP. Black plastic polarizes what it reflects, the mat hardly "
        "does. Where the mat is saturated, pixels are invalid and black.",
    ),
    "rectified.jpg": Picture(
        rectified,
        "A camera on a mat, with a grid of curved lines, and the same rectified, where these lines are straight.",
        "A frame, left, and its rectified image. The lens calibration is made up (`plumb_bob`, strong barrel "
        "distortion), as that of the frame is not known: lines that such a lens would show curved become straight.",
    ),
}


def painted() -> Dict[str, bytes]:
    """Every picture as the bytes of its file."""
    return {name: encode_picture(row.paint(), Path(name).suffix) for name, row in PICTURES.items()}


if __name__ == "__main__":
    for file, data in painted().items():
        (Path(sys.argv[1]) / file).write_bytes(data)
