"""Pictures of the example frames for the documentation site, painted whenever it is built (`make docs`).

A line `<!-- picture: NAME -->` in a document becomes the picture of that name in `PICTURES`, with its caption. To look
at them without the site: `python docs/pictures.py FOLDER`.
"""

from __future__ import annotations

import sys
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple, Tuple

import cv2
import numpy as np
from figures import sheet  # beside this file

from polar_pipeline import SENSORS, Pipeline, StoredFrame, read_frames
from polar_pipeline.geometry import LensCalibration, make_lens
from polar_pipeline.options.products import NOISE_PRODUCTS
from polar_pipeline.pictures.colors import legend, picture
from polar_pipeline.pictures.export import Brightness, Exporter
from polar_pipeline.pictures.files import encode_picture
from polar_pipeline.pictures.overview import overview
from polar_pipeline.pictures.text import BACK
from polar_pipeline.polarimetry.colormaps import COLOR_STYLES, DOLP_MAP
from polar_pipeline.polarimetry.world import diffuse_dolp, normal_candidates, sky_compass, specular_dolp, viewing_rays
from polar_pipeline.polarimetry.world.rays import turned
from polar_pipeline.sensor.forward import expose

FRAMES = Path(__file__).resolve().parent.parent / "frames"
#: Gain of the pictures of the dark frame: what is white stays below full scale.
GAIN = 1.4
#: The part with the reflections, as the option `roi`: x, y, width, height at half resolution and `scale` 2.
REFLECTIONS = (280, 20, 320, 440)
#: A lens for wide angles, made up: the lens of the example frames is not known, and hardly distorts.
CAMERA, DISTORTION = np.array([[1500.0, 0, 1224], [0, 1500, 1024], [0, 0, 1]]), (-0.25, 0.05, 0.0, 0.0, 0.0)
#: Width of deviations in the gallery, in pixels: their noise makes large files.
SIGMA_WIDTH = 480
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
        side = np.full((len(image), wheel.shape[1] + 16, 3), BACK, np.uint8)
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


def recorded(light: np.ndarray, names: str) -> Dict[str, np.ndarray]:
    """Products of (H, W, 3) Stokes vectors as an IMX250MZR records them with noise in 12 bit; where NaN, invalid."""
    sensor = SENSORS["IMX250MZR"]
    raw = expose(np.nan_to_num(light), sensor, 12, sensor.full_well, sensor.read_noise, np.random.default_rng(1))
    with Pipeline(products=names, resolution="half", bit_depth=12, min_intensity=0.01, backend="cpu") as pipeline:
        return {name: np.array(array) for name, array in pipeline(raw).items()}


def scaled(values: np.ndarray, highest: float) -> np.ndarray:
    """Values from 0 to the highest in the colors of DoLP; NaN is black."""
    levels = np.rint(np.clip(np.nan_to_num(values) / highest, 0, 1) * 255).astype(np.uint8)
    return np.where(np.isnan(values)[..., np.newaxis], 0, DOLP_MAP[levels]).astype(np.uint8)


def normals() -> np.ndarray:
    """A sphere that scatters, and one that reflects: preview, zenith angle, its deviation, normals of one candidate."""
    y, x = (np.mgrid[:560, :560] - 279.5) / 265
    zenith = np.arcsin(np.where(x * x + y * y < 1, np.hypot(x, y), np.nan))
    rows = []
    for model, name, azimuth in (("diffuse", "zenith", "aolp"), ("specular", "below_brewster", "aolp+90")):
        degree = np.maximum((specular_dolp if model == "specular" else diffuse_dolp)(zenith), 1e-9)
        double = 2 * np.arctan2(-y, x) + (np.pi if model == "specular" else 0)
        light = 0.9 * np.stack([degree / degree, degree * np.cos(double), degree * np.sin(double)], -1)
        images = recorded(light, "preview,dolp,aolp,dolp_sigma,aolp_sigma")
        candidates = normal_candidates(images, model)
        vectors = np.nan_to_num(candidates.normal(name, azimuth) * (1, -1, -1), nan=-1)
        cells = [
            (f"{model}: preview", images["preview"]),
            (f"{name}, 0 to 90 degrees", scaled(candidates.zenith[name], np.pi / 2)),
            ("its deviation, 0 to 5 degrees", scaled(candidates.zenith_sigma[name], np.radians(5))),
            (f"normals by {azimuth}", np.rint((vectors + 1) * 127.5).astype(np.uint8)),
        ]
        rows.append(cells)
    return sheet(rows, 1)


def sun() -> np.ndarray:
    """A sky with clouds through a fisheye lens, and the angles that the fit of the sun leaves."""
    k = (275.0, 0, 399.5, 0, 275.0, 399.5, 0, 0, 1)
    fisheye = make_lens((800, 800), "equidistant", (0.0,) * 4, k, (0.0,) * 9, (0.0,) * 12)
    rays, towards = viewing_rays(fisheye, (800, 800)), np.array([0.7, -0.4, 0.59])
    towards /= np.linalg.norm(towards)
    across = turned(np.cross(rays, towards), rays * (-1, -1, 1))
    double, cosine = 2 * np.arctan2(-across[..., 1], across[..., 0]), rays @ towards
    noise = cv2.GaussianBlur(np.random.default_rng(4).standard_normal((800, 800)), (0, 0), 45)
    cover = np.clip(noise / noise.std() - 0.6, 0, 1)
    degree = 0.75 * (1 - cosine**2) / (1 + cosine**2) * (1 - cover)
    light = (0.6 + 0.4 * cover)[..., np.newaxis] * np.stack(
        [np.ones_like(degree), degree * np.cos(double), degree * np.sin(double)], -1
    )
    light[rays[..., 2] < np.cos(np.radians(82))] = np.nan
    images = recorded(light, "dolp,aolp,aolp_color,dolp_color,aolp_sigma")
    rays = viewing_rays(fisheye, (400, 400), 2)
    fit = sky_compass(images, rays, np.eye(3), mask=rays[..., 2] > np.cos(np.radians(81)))
    left = scaled(np.abs(fit.angles), np.radians(2))
    angle = np.pi / 2 - fit.elevation
    place = 199.5 + 137.5 * angle * np.array([np.cos(fit.azimuths[0]), np.sin(fit.azimuths[0])])
    for image in (images["aolp_color"], images["dolp_color"], left):
        cv2.circle(image, tuple(int(16 * value) for value in place), 16 * 7, (255, 255, 255), 2, cv2.LINE_AA, 4)
    labels = ("AoLP", "DoLP", "difference in AoLP, 0 to 2 degrees")
    return sheet([list(zip(labels, (images["aolp_color"], images["dolp_color"], left)))], 1)


@lru_cache(maxsize=None)
def example(frame: str) -> StoredFrame:
    """The stored example frame."""
    return next(read_frames(FRAMES / f"imx250mzr_{frame}.png"))


def as_exported(frame: str, names: str, **options: Any) -> Dict[str, np.ndarray]:
    """Products of an example frame as `polar-pipeline process` writes them into PNG files, one picture a plane."""
    with Pipeline(products=names, resolution="half", backend="cpu", **options) as pipeline:
        out = pipeline(example(frame))
    exporter = Exporter(FRAMES, "png", False, False, "faded", False, Brightness())
    exporter.brightness.set_by(out)
    images = {}
    for name in names.split(","):
        if name == "stokes":
            images.update({f"stokes: S{plane}": picture(name, out[name], plane=plane) for plane in range(3)})
        else:
            images[name] = exporter.picture(name, out[name])
            if name in NOISE_PRODUCTS:  # without `scale`
                images[name] = picture(name, out[name], SIGMA_WIDTH)
    return images


def gallery(names: str, **options: Any) -> np.ndarray:
    """Products of both example frames: side by side, or if there are several, a row for each frame."""
    many = "," in names or names == "stokes"
    options = {"scale": 4 if many else 2, **options}
    rows = [list(as_exported(frame, names, **options).items()) for frame in ("fruits", "camera")]
    return sheet(rows if many else [rows[0] + rows[1]], 1)


def overviews() -> np.ndarray:
    """The annotated picture of a frame."""
    with Pipeline(products="intensity,dolp_color,aolp_color,preview", color_style="faded", backend="cpu") as pipeline:
        return overview(pipeline(example("fruits")), "imx250mzr_fruits", 1080, color_style="faded")


#: Product, or several in one picture -> what the picture shows, for those who do not see it; options of the pipeline.
GALLERY: Dict[str, Tuple[str, Dict[str, Any]]] = {
    "intensity": ("Fruits, and a camera on a mat, in grays.", {}),
    "angle_0,angle_45,angle_90,angle_135": ("Both frames behind polarizers at four angles.", {}),
    "unpolarized": ("Both frames without reflections.", {}),
    "polarized": ("The reflections alone, on black.", {}),
    "polarizer": ("Both frames behind a vertical polarizer.", {"polarizer_angle": 90.0}),
    "stokes": ("S0 of both frames in grays, S1 and S2 in blue and orange.", {}),
    "dolp_color": ("Reflections in bright colors on dark blue.", {}),
    "aolp_color": ("Angles as colors, which fade where light is hardly polarized.", {"color_style": "faded"}),
    "preview": ("Both frames with the hues of the angle of polarization where light is polarized.", {}),
    "dolp_sigma": ("The uncertainty of the degree of polarization: high where the frame is dark.", {"scale": 1}),
    "aolp_sigma": ("The uncertainty of the angle: high where light is hardly polarized.", {"scale": 1}),
    "significance": ("Dark where light is surely polarized; bright specks where it may be noise.", {"scale": 1}),
    "ssim_map": ("White areas with gray grain at edges and in dark parts.", {}),
}

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
    "normals.jpg": Picture(
        normals,
        "Two spheres with colors of polarization, their angles, and normals as colors, half of which are wrong.",
        "Simulated spheres of index 1.5 with the noise of an IMX250MZR: above one that scatters, below one that "
        "reflects an even sky. From left to right: the preview; a zenith angle, of the lower sphere right only within "
        "Brewster's angle; its standard deviation; normals of one azimuth, right in half of the picture.",
    ),
    "sun.jpg": Picture(
        sun,
        "A round sky with a pattern of angles and degrees of polarization, and clouds; a ring marks the sun.",
        "Simulated single-scattering sky with clouds, through a fisheye lens. From left to right: `aolp_color`, "
        "`dolp_color`, and the angles between measured AoLP and that of the fitted sun (ring); black pixels, which "
        "the fit rejects by their low DoLP, are clouds and the sky near the sun.",
    ),
    "overview.jpg": Picture(
        overviews,
        "The fruits four times: gray, with a bar; degree of polarization; angle, with a wheel; preview.",
        "The overview that `polar-pipeline process` writes of every frame unless `--products` names others.",
    ),
    **{
        f"gallery_{names.partition(',')[0]}.jpg": Picture(
            partial(gallery, names, **options),
            alt,
            f"{', '.join(f'`{name}`' for name in names.split(','))} of the two example frames.",
        )
        for names, (alt, options) in GALLERY.items()
    },
}


def painted() -> Dict[str, bytes]:
    """Every picture as the bytes of its file."""
    return {name: encode_picture(row.paint(), Path(name).suffix) for name, row in PICTURES.items()}


if __name__ == "__main__":
    for file, data in painted().items():
        (Path(sys.argv[1]) / file).write_bytes(data)
