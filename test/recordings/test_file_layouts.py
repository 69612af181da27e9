"""Layouts of files: read as the light from which they were made, or refused with the option that says what they are.

The light is known: Stokes vectors by Malus' law in float64. Every command of `docs/files.md` is run on files in the
layout that its row describes.
"""

from __future__ import annotations

import io
import re
import shlex
import struct
import zipfile
import zlib
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable, Dict, List, NamedTuple, Sequence, Tuple

import cv2
import numpy as np
import pytest
import tifffile
from recorded_frames import stamp, write
from support import REAL_FRAMES, ROOT, on_cpu, real_frame

from polar_pipeline import FrameError, Pipeline, cli, read_frames
from polar_pipeline._util.paths import natural_order
from polar_pipeline.recordings import messages
from polar_pipeline.recordings.angle_files import _angle_places
from polar_pipeline.recordings.limits import SourceError
from polar_pipeline.sensor.frames import FORMATS, pack

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # of bits and broken pixels in small synthetic frames

DEGREES = (0, 45, 90, 135)
#: Tile of an IMX250MZR, row by row, as places in `DEGREES`.
TILE = (2, 1, 3, 0)
HEIGHT, WIDTH = 64, 80
#: Errors of S0, S1, S2, of full scale 1, by rounding: half a level in each of two to four numbers.
TOLERANCES = {8: 1.1 / 255, 10: 1.1 / 1023, 12: 1.1 / 4095, 16: 1.1 / 65535}
#: Weights of red, green and blue in the Stokes vectors of color images: a Bayer lattice has twice as many green pixels.
WEIGHTS = (0.25, 0.5, 0.25)


# ------------------------------------------------------------------------------------------------------------ the light


def malus(s0: np.ndarray, dolp: np.ndarray, aolp: np.ndarray) -> np.ndarray:
    """(4, H, W) light behind ideal polarizers at `DEGREES`; angles in radians."""
    return np.stack([s0 / 2 * (1 + dolp * np.cos(2 * (np.radians(angle) - aolp))) for angle in DEGREES])


def scene(seed: int = 0, height: int = HEIGHT, width: int = WIDTH) -> np.ndarray:
    """Texture, edges, noise, a part without polarization and a saturated corner: (4, H, W) from 0 to 1."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:height, :width]
    texture = cv2.GaussianBlur(rng.normal(size=(height, width)), (0, 0), 1.0)
    s0 = 0.5 + 0.2 * np.sin(x / 9 + seed) + 0.06 * texture / texture.std()
    s0 = np.where((x // 16 + y // 16) % 2, s0, 0.45 * s0)
    dolp = np.where(np.hypot(x - width / 2, y - height / 2) < height / 4, 0.5, 0.25 + 0.25 * np.sin(y / 11 + 1))
    dolp[:, : width // 4] = 0
    light = malus(np.clip(s0, 0.04, 1), dolp, np.radians(30) + x / 40 + (y > height / 2))
    light += rng.normal(size=light.shape) * 0.004
    light[:, :6, -10:] = 1
    return np.clip(light, 0, 1)


def smooth(dolp: float = 0.5, aolp: float = 0.5) -> np.ndarray:
    y, x = np.mgrid[:HEIGHT, :WIDTH]
    return malus(0.3 + 0.4 * x / WIDTH + 0.2 * y / HEIGHT, dolp * np.ones_like(x), aolp * np.ones_like(x))


def color(seed: int = 0) -> np.ndarray:
    """(4, H, W, 3)."""
    y, x = np.mgrid[:HEIGHT, :WIDTH]
    colors = np.stack([0.9 + 0 * x, 0.5 + 0.4 * np.sin(x / 13), 0.3 + 0.2 * np.cos(y / 7)], -1)
    return scene(seed)[..., np.newaxis] * colors


def stokes(light: np.ndarray) -> np.ndarray:
    gray = light @ np.array(WEIGHTS) if light.ndim == 4 else light
    return np.stack([gray.sum(0) / 2, gray[0] - gray[2], gray[1] - gray[3]], -1)


def levels(light: np.ndarray, bits: int = 8) -> np.ndarray:
    return np.rint(light * ((1 << bits) - 1)).astype(np.uint8 if bits == 8 else np.uint16)


def mosaic(images: np.ndarray) -> np.ndarray:
    result = np.empty((2 * images.shape[1], 2 * images.shape[2]), images.dtype)
    for place, angle in enumerate(TILE):
        result[place // 2 :: 2, place % 2 :: 2] = images[angle]
    return result


def tiles(images: np.ndarray, order: Sequence[int] = (0, 1, 2, 3)) -> np.ndarray:
    rows = [np.concatenate([images[order[k]], images[order[k + 1]]], 1) for k in (0, 2)]
    return np.concatenate(rows)


def lattice(light: np.ndarray, order: str = "RGGB") -> np.ndarray:
    """(4, H, W) of (4, H, W, 3), behind a Bayer lattice."""
    result = np.empty(light.shape[:3])
    for row, column, channel in zip((0, 0, 1, 1), (0, 1, 0, 1), map("RGB".index, order)):
        result[:, row::2, column::2] = light[:, row::2, column::2, channel]
    return result


A, B, C, SMOOTH, WEAK = scene(), scene(1), color(), smooth(), smooth(0.01)
#: One color and polarization everywhere: what interpolation between colors leaves as it is.
PLAIN = malus(*(value * np.ones((HEIGHT, WIDTH)) for value in (0.8, 0.4, 0.5)))
PLAIN_COLOR = PLAIN[..., np.newaxis] * np.array([0.9, 0.6, 0.3])
#: Four frames of a color sensor behind a polarizer that was turned.
TURNED = [malus(A[0], 0.9 + 0 * A[0], np.radians(angle))[..., np.newaxis] * C[0] for angle in DEGREES]


# ------------------------------------------------------------------------------------------------------------ the files


def save(path: Path, image: np.ndarray, *parameters: int) -> Path:
    """Write a picture, with its colors in the order red, green, blue."""
    path.parent.mkdir(parents=True, exist_ok=True)
    assert cv2.imwrite(str(path), image[..., ::-1] if image.ndim == 3 else image, parameters)
    return path


def save_pages(path: Path, images: np.ndarray) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    assert cv2.imwritemulti(str(path), [page[..., ::-1] if page.ndim == 3 else page for page in images])
    return path


def save_array(path: Path, array: np.ndarray) -> Path:
    np.save(path, array)
    return path


def save_archive(path: Path, **arrays: Any) -> Path:
    np.savez(path, **arrays)
    return path


def save_mat(path: Path, **arrays: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pytest.importorskip("scipy.io").savemat(str(path), arrays)
    return path


def save_raw(path: Path, name: str, *mosaics: np.ndarray) -> Path:
    path.write_bytes(b"".join(pack(each, FORMATS[name]) for each in mosaics))
    return path


def save_video(path: Path, frames: Sequence[np.ndarray], codec: str = "FFV1", is_color: bool = False) -> Path:
    size = (frames[0].shape[1], frames[0].shape[0])
    options = [cv2.VIDEOWRITER_PROP_IS_COLOR, int(is_color)]
    writer = cv2.VideoWriter(str(path), cv2.CAP_FFMPEG, cv2.VideoWriter_fourcc(*codec), 24, size, options)
    if not writer.isOpened():
        pytest.skip(f"this OpenCV does not write {codec}")
    for frame in frames:
        writer.write(frame)
    writer.release()
    return path


def save_angles(folder: Path, name: str, images: np.ndarray, order: Sequence[int] = (0, 1, 2, 3)) -> Path:
    """Write four angle images; `name` has `{}` for the angle."""
    for place, index in enumerate(order):
        save(folder / name.format(DEGREES[place]), images[index])
    return folder


def alpha(image: np.ndarray, value: int) -> np.ndarray:
    """An image of three equal or different channels with an alpha channel, as OpenCV writes it."""
    colors = image if image.ndim == 3 else np.repeat(image[..., np.newaxis], 3, 2)
    return np.concatenate([np.full((*image.shape[:2], 1), value, image.dtype), colors], 2)  # reversed by `save`


class Layout(NamedTuple):
    """How files are made in a folder, what is read from them, and the light in them."""

    make: Callable[[Path], Any]
    lights: Tuple[np.ndarray, ...]
    options: Dict[str, Any]
    bits: int = 8
    depth: int = 0


def layout(make: Callable[[Path], Any], *lights: np.ndarray, bits: int = 8, depth: int = 0, **options: Any) -> Layout:
    return Layout(make, lights or (A,), options, bits, depth)


def array(value: np.ndarray, *lights: np.ndarray, **options: Any) -> Layout:
    return layout(lambda folder: save_array(folder / "in.npy", value), *lights, **options)


def picture(value: np.ndarray, *lights: np.ndarray, suffix: str = ".png", **options: Any) -> Layout:
    return layout(lambda folder: save(folder / f"in{suffix}", value), *lights, **options)


def named(name: str, light: np.ndarray = A, pattern: str = "", bits: int = 8, **options: Any) -> Layout:
    """Four files in a folder, read as the folder or by a pattern."""

    def make(folder: Path) -> str:
        save_angles(folder / "set", name, levels(light, bits))
        return f"{folder}/set/{pattern}" if pattern else f"{folder}/set"

    return layout(make, light, bits=bits, **options)


def folders(names: Sequence[str], pattern: str = "", in_files: str = "") -> Layout:
    def make(folder: Path) -> str:
        for k, name in enumerate(names):
            for frame, light in enumerate((A, B)):
                save(folder / "set" / name / f"{in_files.format(DEGREES[k])}{frame:04d}.png", levels(light)[k])
        return f"{folder}/set/{pattern}" if pattern else f"{folder}/set"

    return layout(make, A, B)


def words_of(folder: Path, name: str, words: Sequence[str], order: Sequence[int], images: Any = None) -> str:
    """Four angle images, or other ones, with these words in their names, and the pattern of these."""
    for word, index in zip(words, order):
        save(folder / name.format(word), (levels(A) if images is None else images)[index])
    return f"{folder}/{name.format('{' + ','.join(words) + '}')}"


def save_imagej(path: Path, images: np.ndarray, angles: str, name: str = "pol {}") -> Path:
    tifffile.imwrite(path, images, imagej=True, metadata={"Labels": [name.format(angle) for angle in angles.split()]})
    return path


def save_ome(path: Path, images: np.ndarray, angles: str, axes: str = "CYX", **metadata: Any) -> Path:
    names = {"Channel": {"Name": angles.split()}} if angles else {}
    tifffile.imwrite(path, images, ome=True, photometric="minisblack", metadata={"axes": axes, **names, **metadata})
    return path


def save_hyperstack(path: Path, images: np.ndarray, _: str, axes: str) -> Path:
    tifffile.imwrite(path, images, imagej=True, metadata={"axes": axes})
    return path


def save_shaped(path: Path, images: np.ndarray, _: str, axes: str) -> Path:
    tifffile.imwrite(path, images, photometric="minisblack", metadata={"axes": axes} if axes else {})
    return path


def in_axes(frames: Sequence[np.ndarray], axes: str) -> np.ndarray:
    """Frames of four images, or images of four angles of each frame."""
    return np.stack(frames, 1 if axes[0] == "C" else 0)


def shape_of(axes: str) -> Tuple[int, ...]:
    """The shape of eight mosaics as frames of four channels, or channels of frames."""
    return (*((4, 2) if axes[0] == "C" else (2, 4)), 2 * HEIGHT, 2 * WIDTH)


def save_page_names(path: Path, images: np.ndarray, angles: str) -> Path:
    with tifffile.TiffWriter(path) as file:
        for image, angle in zip(images, angles.split()):
            file.write(image, contiguous=False, metadata=None, extratags=[(285, "s", 0, f"angle {angle}", True)])
    return path


def save_numbered_pages(path: Path, images: np.ndarray) -> Path:
    with tifffile.TiffWriter(path) as file:
        for k, image in enumerate(images):
            number = len(images) - 1 - k
            file.write(image, contiguous=False, metadata=None, extratags=[(297, "H", 2, (number, len(images)), True)])
    return path


def save_tags(path: Path, image: np.ndarray, *tags: Tuple[int, str, int, Any], **options: Any) -> Path:
    """Write a TIFF file with additional tags: number, type, count and value of each."""
    path.parent.mkdir(parents=True, exist_ok=True)
    options = {"photometric": "rgb" if image.ndim == 3 else "minisblack", "metadata": None, **options}
    tifffile.imwrite(path, image, extratags=[(*tag, True) for tag in tags], **options)
    return path


def save_planes(folder: Path, images: np.ndarray) -> Path:
    """Write four color images, each color of which is a plane of its own."""
    for k, angle in enumerate(DEGREES):
        planes = np.ascontiguousarray(np.moveaxis(images[k], 2, 0))
        save_tags(folder / f"s_{angle}.tif", planes, planarconfig="separate")
    return folder


def save_v5(path: Path, image: np.ndarray, flag: int, kind: int) -> Path:
    """Write a MAT file of version 5 in which a class of arrays has numbers of another type, or an unknown one."""
    save_mat(path, raw=image)
    data = bytearray(path.read_bytes())
    data[144], data[176] = flag, kind
    path.write_bytes(data)
    return path


def damaged_v4(folder: Path) -> Path:
    """A MAT file of version 4 whose array states more rows than the memory of a computer holds."""
    pytest.importorskip("scipy.io").savemat(str(folder / "in.mat"), {"raw": mosaic(levels(A))}, format="4")
    data = bytearray((folder / "in.mat").read_bytes())
    data[7] = 0x59
    (folder / "in.mat").write_bytes(data)
    return folder / "in.mat"


def turned_video(folder: Path) -> Path:
    """A video whose track has a matrix that turns it by 90 degrees."""
    path = save_video(folder / "in.mp4", [mosaic(levels(A))] * 2)
    data = bytearray(path.read_bytes())
    at = data.index(b"tkhd") + 44  # of the matrix
    data[at : at + 36] = struct.pack(">9i", 0, 1 << 16, 0, -1 << 16, 0, 0, 0, 0, 1 << 30)
    path.write_bytes(data)
    return path


def with_chunk(path: Path, kind: bytes, data: bytes) -> Path:
    """Insert a chunk behind the header of a PNG file."""
    content = path.read_bytes()
    chunk = len(data).to_bytes(4, "big") + kind + data + zlib.crc32(kind + data).to_bytes(4, "big")
    path.write_bytes(content[:33] + chunk + content[33:])
    return path


def several(folder: Path) -> Path:
    for frame, light in ((2, A), (10, B)):  # 2 before 10
        save_angles(folder, f"s{frame}_{{}}.png", levels(light))
    return folder


READ: Dict[str, Layout] = {
    **{
        f"mosaic {bits} bit": picture(mosaic(levels(A, bits)), bits=bits, depth=bits % 8 and bits)
        for bits in (8, 12, 16)
    },
    "mosaic 12 bit in the high bits": picture(mosaic(levels(A, 12)) << 4, bits=12),
    "mosaic BMP": picture(mosaic(levels(A)), suffix=".bmp"),
    "mosaic, upper-case suffix": picture(mosaic(levels(A)), suffix=".TIF"),
    "mosaic as RGB": picture(np.repeat(mosaic(levels(A))[..., np.newaxis], 3, 2)),
    "mosaic with opaque alpha": picture(alpha(mosaic(levels(A)), 255)),
    "mosaics of little polarization": picture(mosaic(levels(WEAK)), WEAK),
    "TIFF pages": layout(lambda f: save_pages(f / "in.tif", np.stack([mosaic(levels(x)) for x in (A, B)])), A, B),
    "TIFF with a white level that is a fraction": layout(
        lambda f: save_tags(f / "in.tif", mosaic(levels(A, 12)), (50717, "2I", 1, (4095, 1)), (50714, "2I", 1, (0, 1))),
        bits=12,
    ),
    "TIFF of planes of 8 bit": layout(lambda f: save_planes(f, levels(C)), C),
    "TIFF of a single plane": layout(
        lambda f: save_tags(f / "in.tif", mosaic(levels(A, 16)), (284, "H", 1, 2)), bits=16
    ),
    "TIFF of float32": picture(mosaic(A).astype(np.float32), suffix=".tif", bits=16),
    "TIFF of float64": picture(mosaic(A), suffix=".tif", bits=16),
    "four pages": layout(lambda f: save_pages(f / "in.tif", levels(A))),
    "four pages of colors": layout(lambda f: save_pages(f / "in.tif", levels(C)), C),
    "eight pages": layout(lambda f: save_pages(f / "in.tif", np.concatenate([levels(A), levels(B)])), A, B),
    # ------------------------------------------------------------------------------------------------------- by names
    **{
        f"{name} {pattern}".strip(): named(name, pattern=pattern)
        for name, pattern in (
            ("I{}.png", ""),
            ("I{}.png", "*"),
            ("img_{}deg_001.png", ""),
            ("pol{:03d}.png", "*.png"),
            ("a b {} (x).PNG", ""),
            ("scène[1]_{}.tif", "*.tif"),
            ("cam0_45mm_{}.png", ""),
            ("x_{:03d}.png", "x_{000,090,045,135}.png"),
            ("x_{:03d}.png", "{name}_{angle}.png"),
        )
    },
    "several scenes": layout(several, A, B),
    "scenes whose numbers are angles too": layout(
        lambda f: [scenes(f, f"{k:03d}_{{1:03d}}.png", A) for k in (0, 1, 45, 90, 135)] and f, A, A, A, A, A
    ),
    "colors in 16 bit": named("s_{}.png", C, bits=16),
    "colors in 12 of 16 bit": layout(lambda f: save_angles(f, "s_{}.png", levels(C, 12)), C, bits=12, depth=12),
    "colors with opaque alpha": layout(
        lambda f: save_angles(f, "s_{}.png", np.stack([alpha(each, 255)[..., [0, 3, 2, 1]] for each in levels(C)])), C
    ),
    "gray as RGB": layout(lambda f: save_angles(f, "s_{}.png", np.repeat(levels(A)[..., np.newaxis], 3, 3))),
    "Bayer lattices": layout(
        lambda f: str(save_angles(f, "b{}.png", levels(lattice(C))) / "b{0,45,90,135}.png"), lattice(C)
    ),
    "folders": folders(("0", "45", "90", "135")),
    "folders 0d": folders(("0d", "45d", "90d", "135d"), "{0d,45d,90d,135d}/*.png"),
    "folders by a wildcard": folders(("000", "045", "090", "135"), "*/*.png"),
    "angles in folders and files": folders(("0", "45", "90", "135"), in_files="x_{:03d}_"),
    "{angle}/{frame}": folders(("0", "45", "90", "135"), "{angle}/{frame}.png"),
    "other words": layout(
        lambda f: str(save_angles(f, "x{}.png", levels(A)) / "x{0,45,90,135}.png"), order=(0, 45, 90, 135)
    ),
    "words in another order": layout(
        lambda f: str(save_angles(f, "x{}.png", levels(A), (2, 1, 3, 0)) / "x{0,45,90,135}.png"),
        order=(90, 45, 135, 0),
    ),
    "mosaics with such names": layout(
        lambda f: save_angles(f, "f{}.png", np.stack([mosaic(levels(x)) for x in (A, B, A, B)])),
        A,
        B,
        A,
        B,
        content="mosaics",
    ),
    "a session of 0 to 180 degrees": layout(
        lambda f: [save(f / f"{angle:03d}.png", mosaic(levels(x))) for angle, x in ((0, A), (45, B), (180, A))] and f,
        A,
        B,
        A,
    ),
    **{
        f"angles {words}": layout(
            lambda f, words=words, order=order, name=name: words_of(f, name, words, order), order=()
        )
        for name, words, order in (
            ("x_{}.png", ("0", "-45", "-90", "-135"), (0, 3, 2, 1)),
            ("x_{}.png", ("-45", "0", "45", "90"), (3, 0, 1, 2)),
            ("x_{}.png", ("45", "90", "135", "180"), (1, 2, 3, 0)),
            ("x_{}.png", ("0.0", "90.0", "45.0", "135.0"), (0, 2, 1, 3)),
            ("x{}.png", ("-0", "-45", "-90", "-135"), (0, 1, 2, 3)),
            ("x_{}.png", ("s-0", "s-45", "s-90", "s-135"), (0, 1, 2, 3)),
            ("x_{}.png", ("135deg", "0deg", "90deg", "45deg"), (3, 0, 2, 1)),
            ("x_{}.png", ("11", "12", "13", "14"), (0, 1, 2, 3)),
        )
    },
    "folders 0 45 90 -45": folders(("0", "45", "90", "-45")),
    "folders 180 45 90 135": folders(("180", "45", "90", "135")),
    "folders with decimals": folders(("p0.0", "p45.0", "p90.0", "p135.0")),
    "four mosaics by a pattern": layout(
        lambda f: words_of(f, "x_{}.png", "abcd", (0, 1, 2, 3), np.stack([mosaic(levels(x)) for x in (A, B, A, B)])),
        *(A, B, A, B),
        content="mosaics",
    ),
    "a class of characters": layout(
        lambda f: (
            [save(f / f"f_{n}.png", mosaic(levels(x))) for n, x in (("1", A), ("2", B), ("x", SMOOTH))]
            and f"{f}/f_[!a-z].png"
        ),
        A,
        B,
    ),
    "pages of each angle": layout(
        lambda f: (
            [save_pages(f / f"s_{a}.tif", np.stack([levels(A)[k], levels(B)[k]])) for k, a in enumerate(DEGREES)] and f
        ),
        A,
        B,
    ),
    "gray beside RGB of gray": layout(
        lambda f: (
            save(
                save_angles(f, "s_{}.png", levels(A)) / "s_45.png", np.repeat(levels(A)[1][..., np.newaxis], 3, 2)
            ).parent
        )
    ),
    # ------------------------------------------------------------------------------------- what a file says of planes
    **{
        f"{kind} of other angles": layout(
            lambda f, write=write: write(f / "in.tif", levels(A)[[2, 1, 0, 3]], "90 45 0 135")
        )
        for kind, write in (("ImageJ labels", save_imagej), ("OME channels", save_ome), ("page names", save_page_names))
    },
    **{
        f"labels {name.format('90')!r}": layout(
            lambda f, name=name: save_imagej(f / "in.tif", levels(A)[[2, 1, 0, 3]], "90 45 0 135", name)
        )
        for name in ("img_{}.tif", "c:1/4 - {}", "p {}.", "pol {} exp 10", "I_{}.0deg", "{}\nExposure=3")
    },
    "OME frames of four channels": layout(
        lambda f: save_ome(
            f / "in.tif", np.stack([levels(x)[[2, 1, 0, 3]] for x in (A, B)]), "90 45 0 135", axes="TCYX"
        ),
        A,
        B,
    ),
    **{
        f"labels {labels}": layout(lambda f, labels=labels: save_imagej(f / "in.tif", levels(A), labels, "{}"))
        for labels in (
            "10 20 30 40",
            "t=0.1 t=0.2 t=0.3 t=0.4",
            "1018 1020 1023 1024",
            "exp45 exp45 exp45 exp45",
            "4 3 2 1",
        )
    },
    **{
        f"labels {labels}": layout(
            lambda f, labels=labels: save_imagej(f / "in.tif", levels(A)[[2, 1, 0, 3]], labels, "{}")
        )
        for labels in ("pol=90.0,x=1 pol=45.0,x=2 pol=0.0,x=3 pol=135.0,x=4", "90 +45 0 -45", "90 45 0 \u221245")
    },
    "NPZ of angles of tiles": layout(
        lambda f: save_archive(f / "in.npz", raw=tiles(levels(A), (2, 1, 0, 3)), angles=[90, 45, 0, 135])
    ),
    "NPZ of the angles of a sensor's tiles": layout(
        lambda f: save_archive(f / "in.npz", raw=tiles(levels(A), TILE), angles=[90, 45, 135, 0])
    ),
    "NPZ of angles in radians": layout(
        lambda f: save_archive(f / "in.npz", raw=levels(A)[[2, 1, 0, 3]], angles=[1.571, 0.785, 0, 2.356])
    ),
    "NPZ of an angle in each of four files": layout(
        lambda f: (
            [
                save_archive(f / f"cam{k + 1}.npz", raw=levels(A)[index], angle=DEGREES[index])
                for k, index in enumerate((2, 1, 0, 3))
            ]
            and f"{f}/cam{{1,2,3,4}}.npz"
        )
    ),
    "NPZ of one angle": layout(lambda f: save_archive(f / "in.npz", raw=levels(A), angle=45)),
    "(N, H, W, 4) of tall images": array(
        np.stack([levels(scene(k, 128, 24)) for k in range(64)]).transpose(0, 2, 3, 1),
        *(scene(k, 128, 24) for k in range(64)),
    ),
    "NPZ of angles of something else": layout(
        lambda f: save_archive(f / "in.npz", raw=levels(A), angles=np.arange(10), bits=np.arange(3))
    ),
    "14 bits that hold 12": layout(
        lambda f: save_archive(f / "in.npz", raw=mosaic(levels(A, 12)) << 2, bit_depth=14), bits=10
    ),
    "PNG with names of chunks in a text": layout(
        lambda f: with_chunk(save(f / "in.png", mosaic(levels(A, 16))), b"tEXt", b"a\0uses gAMA, sBIT\x0c and acTL"),
        bits=16,
    ),
    "labels that count": layout(lambda f: save_imagej(f / "in.tif", levels(A), "1 2 3 4")),
    "NPZ of a tile": layout(
        lambda f: save_archive(f / "in.npz", raw=mosaic(levels(A)), angles=np.array([[90, 45], [135, 0]]))
    ),
    "NPZ of angles as text, nearly": layout(
        lambda f: save_archive(
            f / "in.npz", images=levels(A)[[2, 1, 0, 3]], angles=np.array(["90.2", "45", "180", "135"])
        )
    ),
    "NPZ of bits of something else": layout(
        lambda f: save_archive(f / "in.npz", raw=mosaic(levels(A)), bits=np.arange(10))
    ),
    "12 significant bits of OME, high": layout(
        lambda f: save_ome(f / "in.tif", levels(A, 12) << 4, "0 45 90 135", SignificantBits=12), bits=12
    ),
    "three pages in each of four files": layout(
        lambda f: (
            [save_pages(f / f"s_{a}.tif", np.stack([levels(x)[k] for x in (A, B, A)])) for k, a in enumerate(DEGREES)]
            and f
        ),
        A,
        B,
        A,
    ),
    **{
        f"{count} {kind} frames of axes {axes}, {names or 'without names'}": layout(
            lambda f, write=write, axes=axes, names=names, count=count: write(
                f / "in.tif", in_axes([levels(scene(k), 16) for k in range(count)], axes), names, axes
            ),
            *map(scene, range(count)),
            bits=16,
        )
        for count in (2, 3, 4, 5)
        for kind, write, axes, names in (
            ("OME", save_ome, "TCYX", "0 45 90 135"),
            ("OME", save_ome, "TCYX", ""),
            ("OME", save_ome, "CTYX", "0 45 90 135"),
            ("OME", save_ome, "CZYX", ""),
            ("ImageJ", save_hyperstack, "TCYX", ""),
            ("tifffile", save_shaped, "CTYX", ""),
            ("tifffile", save_shaped, "TZYX", ""),
        )
    },
    "OME channels that change slowest, in another order": layout(
        lambda f: save_ome(
            f / "in.tif", in_axes([levels(x)[[2, 1, 0, 3]] for x in (A, B)], "CTYX"), "90 45 0 135", axes="CTYX"
        ),
        A,
        B,
    ),
    "stacks of angles without names of axes": layout(
        lambda f: save_shaped(f / "in.tif", np.stack([levels(x) for x in (A, B, A, B, A)], 1), "", ""), A, B, A, B, A
    ),
    "pages of three colors of four angles": layout(
        lambda f: save_shaped(f / "in.tif", np.moveaxis(levels(C), 3, 1), "", ""), C
    ),
    **{
        f"mosaics of axes {axes}": layout(
            lambda f, axes=axes: save_ome(
                f / "in.tif", np.stack([mosaic(levels(scene(k))) for k in range(8)]).reshape(shape_of(axes)), "", axes
            ),
            *map(scene, range(8)),
        )
        for axes in ("TCYX", "CTYX")
    },
    "NPZ of the tile of another sensor": layout(
        lambda f: save_archive(f / "in.npz", raw=mosaic(levels(A)), angles=[[0, 45], [135, 90]]), content="mosaics"
    ),
    "NPZ of angles in ascending order": layout(
        lambda f: save_archive(f / "in.npz", raw=mosaic(levels(A)), angles=list(DEGREES))
    ),
    "files -45 to 90": layout(
        lambda f: [save(f / f"x_{a}.png", levels(A)[k]) for a, k in ((-45, 3), (0, 0), (45, 1), (90, 2))] and f
    ),
    "12 significant bits of OME": layout(
        lambda f: save_ome(f / "in.tif", levels(A, 12), "0 45 90 135", SignificantBits=12), bits=12
    ),
    "12 significant bits of PNG": layout(
        lambda f: with_chunk(save(f / "in.png", mosaic(levels(A, 12))), b"sBIT", bytes([12])), bits=12
    ),
    "12 significant bits of PNG, as the standard has them": layout(
        lambda f: with_chunk(save(f / "in.png", mosaic(levels(A, 12)) << 4), b"sBIT", bytes([12])), bits=12
    ),
    "NPZ of other angles": layout(
        lambda f: save_archive(f / "in.npz", images=levels(A)[[2, 1, 0, 3]], angles=np.array([90, 45, 0, 135]))
    ),
    "NPZ of 12 bit": layout(lambda f: save_archive(f / "in.npz", raw=mosaic(levels(A, 12)), bit_depth=12), bits=12),
    "NPZ of negative angles": layout(
        lambda f: save_archive(f / "in.npz", **dict(zip(("I0", "I-45", "I-90", "I-135"), levels(A)[[0, 3, 2, 1]])))
    ),
    "NPZ of angles, of little polarization": layout(
        lambda f: save_archive(f / "in.npz", **dict(zip(("I0", "I45", "I90", "I135"), levels(WEAK)))), WEAK
    ),
    # --------------------------------------------------------------------------------------------------------- tiles
    "tiles": picture(tiles(levels(A))),
    "tiles of smooth light": picture(tiles(levels(SMOOTH)), SMOOTH),
    "tiles of colors": picture(tiles(levels(C)), C),
    "large tiles": picture(tiles(levels(scene(9, 640, 700))), scene(9, 640, 700)),
    "tiles as a sensor's": picture(tiles(levels(A), TILE), order=(90, 45, 135, 0)),
    "tiles of little polarization": picture(tiles(levels(WEAK)), WEAK, content="tiles", order=DEGREES),
    "a stack of tiles": array(np.stack([tiles(levels(A)), tiles(levels(B))]), A, B),
    # --------------------------------------------------------------------------------------------------------- arrays
    "big-endian": array(mosaic(levels(A, 16)).astype(">u2"), bits=16),
    "Fortran order": array(np.asfortranarray(mosaic(levels(A, 16))), bits=16),
    "16 bit in int64": array(mosaic(levels(A, 16)).astype(np.int64), bits=16),
    "float16": array(mosaic(A).astype(np.float16), bits=10),
    "(N, H, W)": array(np.stack([mosaic(levels(x)) for x in (A, B, A, B, A)]), A, B, A, B, A),
    "(4, H, W) mosaics": array(np.stack([mosaic(levels(scene(k))) for k in range(4)]), *map(scene, range(4))),
    "(H, W, N)": array(np.stack([mosaic(levels(scene(k))) for k in range(5)], 2), *map(scene, range(5))),
    "(H, W, N) of many frames": array(np.stack([mosaic(levels(A))] * 20, 2), *[A] * 20),
    "(H, W, 4) mosaics of a still scene": array(np.stack([mosaic(levels(A))] * 4, 2), *[A] * 4),
    "(N, 1, H, W)": array(np.stack([mosaic(levels(x)) for x in (A, B)])[:, np.newaxis], A, B),
    "float with rounding errors": array(mosaic(A) * (1 + 1e-7) - 1e-8, bits=16),
    "float of equal channels": array(np.repeat(mosaic(A)[..., np.newaxis], 3, 2), bits=16),
    "(4, H, W, N)": array(np.stack([levels(scene(k)) for k in range(5)], -1), *map(scene, range(5))),
    "(H, W, N, 4)": array(
        np.stack([levels(scene(k)) for k in range(5)], -1).transpose(1, 2, 3, 0), *map(scene, range(5))
    ),
    "(H, W, 4, N)": array(np.stack([levels(A)] * 4, -1).transpose(1, 2, 0, 3), *[A] * 4),
    "(N, H, W, 4)": array(
        np.stack([levels(scene(k)) for k in range(37)]).transpose(0, 2, 3, 1), *map(scene, range(37))
    ),
    "(N, H, W) of many small frames": array(
        np.stack([mosaic(levels(scene(k, 48, 40))) for k in range(100)]), *(scene(k, 48, 40) for k in range(100))
    ),
    "(4, H, W)": array(levels(A)),
    "(4, 2, H, W)": array(np.stack([levels(A), levels(B)], 1), A, B),
    "(4, 4, H, W) of a still scene": array(np.stack([levels(A)] * 4, 1), *[A] * 4),
    "(H, W, 4) float": array(np.moveaxis(A, 0, 2), bits=16),
    "(H, W, 4) of little polarization": array(np.moveaxis(levels(WEAK), 0, 2), WEAK),
    "(4, H, W) in a stated order": array(levels(A)[[0, 2, 1, 3]], order=(0, 90, 45, 135)),
    "(2, 4, H, W)": array(np.stack([levels(A), levels(B)]), A, B),
    "(2, H, W, 4)": array(np.moveaxis(np.stack([levels(A), levels(B)]), 1, 3), A, B),
    "(4, H, W, 3)": array(levels(C), C),
    "(H, W, 4, 3)": array(np.moveaxis(levels(C), 0, 2), C),
    "(H, W, 3, 4)": array(np.moveaxis(levels(C), 0, 3), C),
    "(H, W, 12) colors of an angle together": array(np.moveaxis(levels(C), 0, 2).reshape(HEIGHT, WIDTH, 12), C),
    "(H, W, 12) angles of a color together": array(np.moveaxis(levels(C), 0, 3).reshape(HEIGHT, WIDTH, 12), C),
    "(12, H, W)": array(np.moveaxis(levels(C), 3, 1).reshape(12, HEIGHT, WIDTH), C),
    "(4, H, W) Bayer lattices": array(levels(lattice(C)), lattice(C), content="angles"),
    "Stokes": array(stokes(A), bits=16),
    "(N, H, W, 3) Stokes": array(np.stack([stokes(A), stokes(B)]), A, B, bits=16),
    "NPZ": layout(lambda f: save_archive(f / "in.npz", raw=mosaic(levels(A)), gain=np.arange(5))),
    "NPZ by name": layout(
        lambda f: save_archive(
            f / "in.npz", raw=mosaic(levels(A)), dark=np.zeros((128, 160), np.uint8), o=np.array([{}])
        ),
        array="raw",
    ),
    "NPZ of angles": layout(lambda f: save_archive(f / "in.npz", **dict(zip(("I0", "I45", "I90", "I135"), levels(A))))),
    "MAT": layout(lambda f: save_mat(f / "in.mat", images=np.moveaxis(A, 0, 2)), bits=16),
    # ---------------------------------------------------------------------------------------------- raw dumps and video
    **{
        f"raw {name}": layout(
            lambda f, name=name: save_raw(f / "in.raw", name, *(mosaic(levels(x, FORMATS[name].bits)) for x in (A, B))),
            A,
            B,
            bits=FORMATS[name].bits,
            raw=f"{2 * WIDTH}x{2 * HEIGHT}:Mono{name}",
        )
        for name in ("8", "12p", "12Packed", "16")
    },
    "raw, four numbers a pixel": layout(
        lambda f: (f / "in.bin").write_bytes(np.moveaxis(levels(A), 0, 2).tobytes()) and f / "in.bin",
        raw=f"{WIDTH}x{HEIGHT}:Angles8",
    ),
    "a folder of raw dumps beside a picture": layout(
        lambda f: save(f / "p.png", levels(A)[0]) and save_raw(f / "0.raw", "8", mosaic(levels(A))).parent,
        raw=f"{2 * WIDTH}x{2 * HEIGHT}:Mono8",
    ),
    "FFV1": layout(lambda f: save_video(f / "in.mkv", [mosaic(levels(x)) for x in (A, B)]), A, B),
    "FFV1 of tiles": layout(lambda f: save_video(f / "in.mkv", [tiles(levels(x)) for x in (A, B)]), A, B),
}


def read(source: Any, depth: int = 0, **options: Any) -> List[np.ndarray]:
    """The Stokes vectors of all frames, at half resolution without interpolation."""
    settings = {"products": "stokes", "resolution": "half", "co_sited": False, "backend": "cpu", "bit_depth": depth}
    with Pipeline(**settings) as pipeline:
        return [np.array(pipeline(frame)["stokes"]) for frame in read_frames(source, **options)]


def check(results: Sequence[np.ndarray], lights: Sequence[np.ndarray], tolerance: float) -> None:
    """Compare Stokes vectors with the truth; saturated pixels are NaN."""
    assert [result.shape for result in results] == [(*light.shape[1:3], 3) for light in lights]
    for result, light in zip(results, lights):
        assert np.isnan(result).mean() < 0.05
        np.testing.assert_allclose(np.where(np.isnan(result), stokes(light), result), stokes(light), 0, tolerance)


@pytest.mark.parametrize("name", READ)
def test_layouts_are_read_as_the_light_that_they_hold(name: str, tmp_path: Path) -> None:
    row = READ[name]
    check(read(row.make(tmp_path), row.depth, **row.options), row.lights, TOLERANCES[row.bits])


# -------------------------------------------------------------------------------------------------------------- refused


def unlike(folder: Path) -> Path:
    return save_angles(folder, "f{}.png", np.stack([levels(scene(k))[k] for k in range(4)]))


def missing(folder: Path) -> Path:
    save_angles(folder, "I{}.png", levels(A))
    (folder / "I90.png").unlink()
    return folder


def with_others(name: str, folder: Path) -> Path:
    return save(save_angles(folder, "I{}.png", levels(A)) / name, levels(A)[0]).parent


def beside_folders(folder: Path) -> Path:
    return save(save_angles(folder, "{}/a.png", levels(A)) / "preview.png", levels(A)[0]).parent


def two_of(folder: Path) -> str:
    return str(with_others("I045.png", folder) / "I{angle}.png")


def other_names(folder: Path) -> Path:
    for k, angle in enumerate(DEGREES):
        save(folder / str(angle) / f"t{k + 7}.png", levels(A)[k])
    return folder


def noisy(place: int) -> np.ndarray:
    """One of four angle images with a noise of three percent, in which neighbors are not alike."""
    light = SMOOTH[place] + np.random.default_rng(place).normal(0, 0.03, SMOOTH[place].shape)
    return levels(np.clip(light, 0, 1))


def circle(folder: Path) -> Path:
    """A TIFF file of one page, which is followed by itself."""
    path = save(folder / "in.tif", mosaic(levels(A)))
    data = bytearray(path.read_bytes())
    start = int.from_bytes(data[4:8], "little")
    end = start + 2 + 12 * int.from_bytes(data[start : start + 2], "little")
    data[end : end + 4] = data[4:8]
    path.write_bytes(data)
    return path


def two_arrays(folder: Path) -> Path:
    with (folder / "in.npy").open("wb") as file:
        for light in (A, B):
            np.save(file, mosaic(levels(light)))
    return folder / "in.npy"


def cut_video(folder: Path) -> Path:
    path = save_video(folder / "in.mkv", [mosaic(levels(A))] * 3)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    return path


#: Name -> layout, and what the error must say.
REFUSED: Dict[str, Tuple[Layout, str]] = {
    "one of four angle images": (
        layout(lambda f: save_angles(f, "I{}.png", levels(A)) / "I45.png"),
        r"one of four angle images.*I\{0,45,90,135\}\.png'.*--content mosaics",
    ),
    "names that contradict the light": (
        layout(lambda f: save_angles(f, "I{}.png", levels(A), (0, 2, 1, 3))),
        "the order 0,90,45,135 fits: say which by --angle-order",
    ),
    "an angle that is missing": (layout(missing), r"no images at 90 degrees \(mosaics: --content mosaics\)"),
    "two files of an angle": (layout(two_of), "2 images at 45 degrees"),
    "another file beside four": (layout(partial(with_others, "other.png")), "not clear what other.png is.*--content"),
    "five angles": (
        layout(partial(with_others, "I180.png")),
        r"can be a mosaic \(--content mosaics\), or one of several angle images",
    ),
    "a picture beside folders of angles": (layout(beside_folders), r"the folders 0,45,90,135.*\{0,45,90,135\}/\*"),
    "folders of different names": (layout(other_names), r"not clear what t7\.png is.*--content mosaics"),
    "four mosaics named by angles": (
        layout(lambda f: save_angles(f, "f{}.png", np.stack([mosaic(levels(SMOOTH))] * 4))),
        "--content angles.*--content mosaics",
    ),
    "folders of mosaics named by angles": (
        layout(lambda f: save_angles(f, "{}/a.png", np.stack([mosaic(levels(SMOOTH))] * 4))),
        "--content angles.*--content mosaics",
    ),
    "four mosaics of a color sensor named by angles": (
        layout(lambda f: save_angles(f, "f{}.png", np.stack([mosaic(levels(lattice(x))) for x in TURNED]))),
        "--content angles.*--content mosaics",
    ),
    "polarizers at 0, 60 and 120 degrees": (
        layout(lambda f: [save(f / f"{60 * k}.png", levels(A)[k]) for k in range(3)] and f),
        "can be a mosaic .*or one of several angle images",
    ),
    "four files with numbers": (
        layout(lambda f: [save(f / f"x_p{k}.png", levels(x)[k - 1]) for x in (A, B) for k in (1, 2, 3, 4)] and f),
        r"one of several angle images.*'name_\{a,b,c,d\}\.png'",
    ),
    "four files with letters": (
        layout(lambda f: [save(f / f"{'adhv'[k]}.png", levels(A)[k]) for k in range(4)] and f),
        r"one of several angle images.*'name_\{a,b,c,d\}\.png'",
    ),
    **{
        f"the angles {words}": (
            layout(lambda f, words=words: words_of(f, "x_{}.png", words, (0, 1, 2, 3))),
            "must be 0, 45, 90 and 135 degrees.*--angle-order",
        )
        for words in (("0", "30", "60", "90"), ("0", "22.5", "45", "67.5"), ("0", "60", "120", "180"))
    },
    "noisy images behind polarizers at 0, 60 and 120 degrees": (
        layout(lambda f: [save(f / f"{60 * k}.png", noisy(k)) for k in range(3)] and f),
        "can be a mosaic .*or one of several angle images",
    ),
    "steps of 22.5 degrees": (
        layout(lambda f: [save(f / f"x_{int(22.5 * k):03d}.png", noisy(k % 4)) for k in range(8)] and f),
        "can be a mosaic .*or one of several angle images",
    ),
    "folders of more angles": (
        layout(lambda f: [save(f / str(a) / "1.png", noisy(0)) for a in (0, 22, 45, 67, 90, 135)] and f),
        r"and of others \(0, 22, 45, 67, 90, 135\).*\{0,45,90,135\}",
    ),
    "folders in a folder": (
        layout(lambda f: [save(f / n / "a.png", mosaic(levels(A))) for n in ("x", "y")] and f),
        r"Pictures in its folders are named by a pattern.*\{scene\}/\{angle\}",
    ),
    "a raw dump for each angle": (
        layout(
            lambda f: (
                [save_raw(f / f"s_{a}.raw", "8", levels(A)[k]) for k, a in enumerate(DEGREES)]
                and f"{f}/s_{{angle}}.raw"
            ),
            raw=f"{WIDTH}x{HEIGHT}:Mono8",
        ),
        "not read from files without a header: save them as TIFF or NPY",
    ),
    "a folder of raw dumps for each angle": (
        layout(
            lambda f: [save_raw(f / f"s_{a}.raw", "8", levels(A)[k]) for k, a in enumerate(DEGREES)] and f,
            raw=f"{WIDTH}x{HEIGHT}:Mono8",
        ),
        "four angle images by its names.*--content mosaics",
    ),
    "a video for each angle": (
        layout(lambda f: [save_video(f / f"s_{a}.mkv", [levels(A)[k]]) for k, a in enumerate(DEGREES)] and f),
        "not read as one: save them as TIFF or NPY",
    ),
    "planes of other angles": (
        array(
            levels(np.stack([SMOOTH.sum(0) / 4 * (1 + 0.5 * np.cos(2 * np.radians(22.5 * k - 30))) for k in range(8)]))
        ),
        "--content mosaics.*--content angles",
    ),
    "planes of two frames, in another order": (
        array(levels(np.concatenate([A[[0, 2, 1, 3]], B[[0, 2, 1, 3]]])), content="angles"),
        r"do not follow each other: save them as \(N, 4, H, W\)",
    ),
    **{
        f"labels {labels}": (layout(lambda f, labels=labels: save_imagej(f / "in.tif", levels(A), labels)), text)
        for labels, text in (
            ("0 60 120 180", r"states the angles \[0.0, 60.0, 120.0, 0.0\]"),
            ("0x90 45x0 90x45 135x0", "not clear which angles the names"),
        )
    },
    **{
        f"an archive of the angles {angles}": (
            layout(lambda f, angles=angles: save_archive(f / "in.npz", images=levels(A)[[2, 1, 0, 3]], angles=angles)),
            "the file states the angles.*--angle-order",
        )
        for angles in ([0, 45, 90, 180], [0, 30, 60, 90], [0, 0, 45, 90])
    },
    "mosaics behind a polarizer that was turned": (
        layout(
            lambda f: save_archive(
                f / "in.npz",
                raw=np.stack(
                    [mosaic(levels(malus(SMOOTH.sum(0) / 2, 0.95 + 0 * SMOOTH[0], np.radians(a)))) for a in DEGREES]
                ),
                angles=np.array(DEGREES),
            )
        ),
        "--content mosaics.*--content angles",
    ),
    "four arrays of three images": (
        layout(
            lambda f: (
                [
                    save_array(f / f"s_{a}.npy", np.stack([levels(x)[k] for x in (A, B, A)]))
                    for k, a in enumerate(DEGREES)
                ]
                and f
            )
        ),
        "can be three frames or three colors",
    ),
    "the tile of another sensor": (
        layout(lambda f: save_archive(f / "in.npz", raw=mosaic(levels(A)), angles=[[0, 45], [135, 90]])),
        "--content mosaics --sensor '0 45 / 135 90'",
    ),
    **{
        f"pages by angle of different scenes{text}": (
            layout(
                lambda f: save_page_names(
                    f / "in.tif",
                    np.concatenate(
                        [levels(smooth(0.6, 0.3 * k))[[k] * 2] // np.array([[[1]], [[3]]], np.uint8) for k in range(4)]
                    ),
                    "0 0 45 45 90 90 135 135",
                ),
                **options,
            ),
            r"must follow each other: save them as \(N, 4, H, W\); or say --content mosaics",
        )
        for text, options in (("", {}), (" in a stated order", {"order": DEGREES}))
    },
    "dark frames without a lattice": (
        array(np.random.default_rng(0).integers(60, 70, (100, 64, 48)).astype(np.uint16)),
        "--content mosaics.*--content angles",
    ),
    "three images of each angle in an archive": (
        layout(
            lambda f: save_archive(
                f / "in.npz",
                **{f"I{a}": np.stack([x[k] for x in map(levels, (A, B, A))]) for k, a in enumerate(DEGREES)},
            )
        ),
        "can be three frames or three colors",
    ),
    "pages in a circle": (layout(circle), "follow each other in a circle"),
    **{
        f"a bit depth of {bits}": (
            layout(lambda f, bits=bits: save_archive(f / "in.npz", raw=mosaic(levels(A, 12)), bit_depth=bits)),
            "significant bits, which must be",
        )
        for bits in (1e12, -3, 12.5, float("nan"), "11")
    },
    "15 significant bits of PNG": (
        layout(lambda f: with_chunk(save(f / "in.png", mosaic(levels(A, 16)) >> 1), b"sBIT", bytes([15]))),
        "states 15 significant bits",
    ),
    "folders of an angle twice": (
        layout(lambda f: [save(f / str(a) / "1.png", noisy(0)) for a in (0, 45, 90, 135, 180)] and f),
        r"and of others .*180",
    ),
    "pages by angle": (
        layout(lambda f: save_imagej(f / "in.tif", np.repeat(levels(A), 2, 0), "0 0 45 45 90 90 135 135")),
        "0, 45, 90 and 135 of a frame must follow each other",
    ),
    "pages in another order": (
        layout(lambda f: save_numbered_pages(f / "in.tif", levels(A))),
        r"pages have the numbers \[3, 2, 1, 0\]",
    ),
    "another order than the file states": (
        layout(
            lambda f: save_archive(f / "in.npz", images=levels(A), angles=np.array([0, 45, 90, 135])),
            order=(90, 45, 0, 135),
        ),
        "the file states the angles.*--angle-order",
    ),
    "an order of angles of a mosaic": (picture(mosaic(levels(A))[:-2], order=DEGREES), "four angle images or tiles"),
    "an order of angles of a dump": (
        layout(lambda f: f / "in.bin", raw="80x64:Angles8", order=(45, 0, 90, 135)),
        "in the order 0, 45, 90, 135",
    ),
    "a name of an array of a picture": (picture(mosaic(levels(A)), array="raw"), "--array names an array of"),
    "int16": (array((mosaic(levels(A, 16)) >> 1).astype(np.int16)), "full scale of 32767 or of 65535"),
    "two arrays in an NPY file": (layout(two_arrays), "bytes behind the array"),
    "Stokes as integers": (
        array((stokes(A) * 1000).astype(np.int16), content="stokes"),
        "Stokes vectors are floats.*got int16",
    ),
    "(3, H, W) Stokes": (array(np.moveaxis(stokes(A), 2, 0), content="stokes"), r"must be \(H, W, 3\)"),
    "an archive without pixels": (
        layout(lambda f: save_archive(f / "in.npz", a=np.arange(4), b=np.array(["x"]))),
        "no array of pixels as numbers",
    ),
    "a bit depth that no camera has": (
        layout(lambda f: save_archive(f / "in.npz", raw=mosaic(levels(A, 12)), bit_depth=11)),
        "states 11 significant bits, which must be",
    ),
    "four different pictures": (layout(unlike), "not images of one scene: --content angles if they are, or mosaics"),
    "files of different sizes": (
        layout(lambda f: save(save_angles(f, "I{}.png", levels(A)) / "I90.png", levels(A)[0, 2:]).parent),
        "must have one size and type",
    ),
    "colors behind a mask": (
        picture(alpha(levels(C)[0], 100)),
        r"four angle images \(4, H, W\) or \(H, W, 4\)",
    ),
    "a color picture": (picture(levels(C)[0]), "a color picture is not a mosaic"),
    "(3, H, W) colors": (array(np.moveaxis(levels(C)[0], 2, 0)), "three smooth images.*--content mosaics"),
    "(4, H, W) in another order": (array(levels(A)[[0, 2, 1, 3]]), "the order 0,90,45,135 fits.*--angle-order"),
    "(4, H, W) as a sensor's tile": (array(levels(A)[list(TILE)]), r"90,45,135,0 \(a sensor's tile\).*--angle-order"),
    "(4, H, W) of little polarization": (array(levels(WEAK)), "--content mosaics.*--content angles"),
    "(4, H, W) Bayer lattices": (array(levels(lattice(C))), "--content mosaics.*--content angles"),
    "tiles clockwise": (picture(tiles(levels(A), (0, 1, 3, 2))), "0,45,135,90 fits: say which by --angle-order"),
    "tiles in columns": (picture(tiles(levels(A), (0, 2, 1, 3))), "0,90,45,135 fits: say which by --angle-order"),
    "tiles of little polarization": (picture(tiles(levels(WEAK))), "--content mosaics.*--content tiles"),
    "tiles of Bayer lattices": (picture(tiles(levels(lattice(C)))), "--content mosaics.*--content tiles"),
    "8 bit in int64": (array(mosaic(levels(A)).astype(np.int64)), "save uint8 or uint16"),
    "negative numbers": (array(mosaic(levels(A)).astype(np.int32) - 20), "integers from 0 to 65535"),
    "float above 1": (array(mosaic(levels(A)).astype(np.float32)), r"0 to 1.*divide by it"),
    "NaN": (array(np.where(mosaic(A) > 0.9, np.nan, mosaic(A))), "0 to 1, got nan to nan, and .* not finite"),
    "bool": (array(mosaic(A) > 0.5), "got bool"),
    "fields": (array(np.zeros((64, 64), [("a", "u1"), ("b", "u1")])), "raw pixels are integers"),
    "an empty array": (array(np.zeros((0, 64, 64), np.uint8)), "each side at least 16"),
    "a tiny array": (array(np.zeros((4, 4), np.uint8)), "each side at least 16"),
    "Stokes of levels": (array(stokes(A) * 255), "divide S0, S1 and S2 by full scale"),
    "Stokes in reverse": (array(stokes(A)[..., ::-1], content="stokes"), "not S0, S1, S2 of light"),
    "Stokes with S3": (array(np.concatenate([stokes(A), stokes(A)[..., :1]], 2)), r"\(H, W, 4\)"),
    "two arrays": (layout(lambda f: save_archive(f / "in.npz", a=levels(A), b=levels(B))), "--array NAME"),
    "arrays a0, b0, a45, ...": (
        layout(
            lambda f: save_archive(
                f / "in.npz", **{f"{n}{a}": levels(A)[k] for k, a in enumerate(DEGREES) for n in "ab"}
            )
        ),
        "--array NAME",
    ),
    "no array of this name": (layout(lambda f: save_archive(f / "in.npz", a=levels(A)), array="b"), "'b'"),
    "a dump without its format": (
        layout(lambda f: save_raw(f / "in.raw", "8", mosaic(levels(A)))),
        "--raw 2448x2048:Mono12p",
    ),
    "a dump of another size": (
        layout(lambda f: save_raw(f / "in.raw", "8", mosaic(levels(A))), raw="160x100:Mono8"),
        "not a number of frames of 160x100 Mono8",
    ),
    "planes in a dump": (
        layout(lambda f: save_raw(f / "in.raw", "8", mosaic(levels(A))), raw="80x64:Mono8", content="angles"),
        "1224x1024:Angles8",
    ),
    "a video with losses": (layout(lambda f: save_video(f / "in.avi", [mosaic(levels(A))], "MJPG")), "lossless"),
    "a video of colors": (
        layout(lambda f: save_video(f / "in.mkv", [levels(C)[0]], is_color=True)),
        "lossless.*gray of 8 bit",
    ),
    **{
        f"TIFF of planes of {kind}": (layout(lambda f, images=images: save_planes(f, images)), "planar configuration")
        for kind, images in (("16 bit", levels(C, 16)), ("float", C.astype(np.float32)))
    },
    **{
        f"DNG with {name}": (layout(lambda f, tag=tag: save_tags(f / "in.tif", mosaic(levels(A)), tag)), "black level")
        for name, tag in (
            ("a black level", (50714, "2I", 1, (240, 1))),
            ("black levels of a tile", (50714, "H", 4, (240, 241, 240, 240))),
            ("black levels of columns", (50715, "2i", 2 * WIDTH, (1, 1) * (2 * WIDTH))),
            ("a table", (50712, "H", 256, tuple(range(256)))),
        )
    },
    "a MAT file of an unknown type": (layout(lambda f: save_v5(f / "in.mat", mosaic(levels(A)), 9, 60)), "damaged MAT"),
    "a MAT file that states many rows": (layout(damaged_v4), "in.mat: a damaged MAT file"),
    "a MAT file of doubles that are stored as integers": (
        layout(lambda f: save_v5(f / "in.mat", mosaic(levels(A)), 6, 2)),
        "shares of full scale.*divide by it",
    ),
    "a MAT file of a structure": (layout(lambda f: save_mat(f / "in.mat", a={"b": levels(A)})), r"but a \(object"),
    "an NPY file named .npz": (
        layout(lambda f: save_array(f / "in.npy", levels(A)).rename(f / "in.npz")),
        "name it .npy",
    ),
    "a video that is turned": (layout(turned_video), "turned by 90 degrees"),
    "a video that is cut off": (layout(cut_video), "damaged video"),
    "a pattern of three": (layout(lambda f: f"{f}/x_{{0,45,90}}.png"), "four alternatives"),
    "nothing that matches": (layout(lambda f: f"{f}/*.png"), "no picture, array or video matches"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_clear_is_refused_with_the_option_that_says_it(name: str, tmp_path: Path) -> None:
    row, text = REFUSED[name]
    source = row.make(tmp_path)
    with pytest.raises((SourceError, FrameError, ValueError), match=text):
        read(source, row.depth, **row.options)


def test_a_stated_order_that_the_light_contradicts_is_a_warning(tmp_path: Path) -> None:
    (frame,) = read_frames(save_array(tmp_path / "in.npy", levels(A)), order=(0, 90, 45, 135))
    assert [row.cause for row in frame.warnings] == ["mosaic"]


@pytest.mark.parametrize(
    "planes",
    [
        levels(np.repeat(A, 2, 0)),  # two frames behind each polarizer
        levels(np.stack([SMOOTH.sum(0) / 4 * (1 + 0.5 * np.cos(2 * np.radians(30 * k - 75))) for k in range(4)])),
    ],
)
def test_planes_that_are_no_polarization_are_a_warning(planes: np.ndarray, tmp_path: Path) -> None:
    frame, *_ = read_frames(save_array(tmp_path / "in.npy", planes), content="angles")
    assert "mosaic" in [row.cause for row in frame.warnings]


@pytest.mark.parametrize("factor", [1.0, 0.5, 0.9])
@pytest.mark.parametrize(
    ("size", "count", "is_paged"),
    [
        ((64, 400), 30, True),
        ((64, 400), 30, False),
        ((256, 2048), 20, False),
        ((200, 300), 100, False),
        ((64, 64), 30, True),
    ],
)
def test_stacks_of_any_shape_begin_with_the_frames(
    size: Tuple[int, int], count: int, is_paged: bool, factor: float, tmp_path: Path
) -> None:
    """Frames that are wide, that move, and whose exposures alternate."""
    rng = np.random.default_rng(0)
    light = mosaic(scene(3, size[0] // 2 + 2, size[1] // 2 + count))
    frames = np.stack([light[: size[0], 2 * (k % 4) : 2 * (k % 4) + size[1]] for k in range(count)])
    frames[1::2] *= factor
    stack = levels(np.clip(frames + rng.normal(0, 0.005, frames.shape), 0, 1))
    path = save_pages(tmp_path / "in.tif", stack) if is_paged else save_array(tmp_path / "in.npy", stack)
    content = "auto" if count % 4 else "mosaics"  # else they can be four angle images too
    assert [frame.array.shape for frame in read_frames(path, content=content)] == [size] * count


def test_options_for_files_are_refused_for_recordings(tmp_path: Path) -> None:
    in_mcap(tmp_path)
    with pytest.raises(SourceError, match="states what its images are"):
        list(read_frames(tmp_path / "drive.mcap", content="mosaics"))


def test_an_archive_that_states_large_images_is_not_decompressed(tmp_path: Path) -> None:
    path = tmp_path / "in.npz"
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "|u1", "fortran_order": False, "shape": (60000, 60000)})
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("raw.npy", header.getvalue())  # no pixels: reading them would be another error
    with pytest.raises(FrameError, match="an image of 3433 MB"):
        read(path)


@pytest.mark.parametrize("name", REAL_FRAMES)
def test_real_frames_as_angle_images(name: str, tmp_path: Path) -> None:
    raw = real_frame(name)[512:1152, 600:1400]
    images = np.stack([raw[1::2, 1::2], raw[::2, 1::2], raw[::2, ::2], raw[1::2, ::2]])
    light = images / 255
    for path in (
        save(tmp_path / "raw.png", raw),
        save(tmp_path / "tiles.png", tiles(images)),
        save_array(tmp_path / "last.npy", np.moveaxis(images, 0, 2)),
        save_angles(tmp_path / "files", "I{}.png", images),
    ):
        check(read(path), [light], 1e-5)
    stack = np.stack([raw, raw[:, ::-1], raw[::-1], raw[::-1, ::-1]])
    assert len(list(read_frames(save_array(tmp_path / "four.npy", stack)))) == 4
    with pytest.raises(FrameError, match="--content mosaics"):
        read(save_angles(tmp_path / "session", "{}.png", stack))
    for order in ((0, 2, 1, 3), (0, 1, 3, 2), TILE):
        wrong = images[list(order)]
        for path in (save_array(tmp_path / "wrong.npy", wrong), save(tmp_path / "wrong.png", tiles(wrong))):
            with pytest.raises(FrameError, match=r"fits|say which"):
                read(path)


# -------------------------------------------------------------------------------------------- the commands of the guide


def scenes(folder: Path, name: str, *lights: np.ndarray, bits: int = 8) -> None:
    """Write angle images of several scenes; `name` has `{0}` for the number of the scene and `{1}` for the angle."""
    for number, light in enumerate(lights):
        for k, angle in enumerate(DEGREES):
            save(folder / name.format(number, angle), levels(light, bits)[k])


def in_bytes(folder: Path) -> None:
    save_raw(folder / "dump.raw", "12p", *(mosaic(levels(x, 12)) for x in (A, B)))


def in_mcap(folder: Path) -> None:
    image = messages.encode_image(stamp(0), "cam", "mono8", mosaic(levels(A)))
    write(folder / "drive.mcap", [(stamp(0), bytes(image))])


def polargb(folder: Path) -> None:
    scenes(folder, "polargb/{0:03d}_{1:03d}.png", C, color(1))
    save(folder / "polargb" / "000_rgb.png", levels(C)[0])


def converted(folder: Path) -> None:
    """Run the program of the guide on Stokes vectors in color, and on DoLP and AoLP in degrees."""
    with_colors = np.stack([stokes(light) for light in np.moveaxis(C, 3, 0)], 3)  # (H, W, 3, 3)
    np.save(folder / "stokes_color.npy", with_colors)
    s0, s1, s2 = np.moveaxis(with_colors, 2, 0)
    named_arrays = {"s0": s0, "dolp": np.hypot(s1, s2) / s0, "aolp": np.degrees(np.arctan2(s2, s1) / 2)}
    for name, value in named_arrays.items():
        np.save(folder / f"{name}.npy", value)
    programs = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
    exec(next(program for program in programs if "angle_images" in program), {})


GUIDE = (ROOT / "docs" / "files.md").read_text(encoding="utf-8")
COLOR_SCALED = C / C.max()
#: Command of the guide -> how its files are made, the light in them, and the bits of their numbers.
COMMANDS: Dict[str, Tuple[Callable[[Path], Any], Tuple[np.ndarray, ...], int]] = {
    "raw.png": (lambda f: save(f / "raw.png", mosaic(levels(A))), (A,), 8),
    "raw12.png --bit-depth 12": (lambda f: save(f / "raw12.png", mosaic(levels(A, 12))), (A,), 12),
    "color.png --sensor IMX250MYR": (lambda f: save(f / "color.png", mosaic(levels(lattice(PLAIN_COLOR)))), (), 8),
    "frames/": (
        lambda f: [save(f / "frames" / f"{k}.png", mosaic(levels(x))) for k, x in ((2, A), (10, B))],
        (A, B),
        8,
    ),
    "'frames/left_*.png'": (
        lambda f: [save(f / "frames" / f"{n}.png", mosaic(levels(x))) for n, x in (("left_1", A), ("right_1", B))],
        (A,),
        8,
    ),
    "pages.tif": (lambda f: save_pages(f / "pages.tif", np.stack([mosaic(levels(x)) for x in (A, B)])), (A, B), 8),
    "stack.npy": (lambda f: save_array(f / "stack.npy", np.stack([mosaic(levels(x)) for x in (A, B)])), (A, B), 8),
    "session.npz --array raw": (
        lambda f: save_archive(f / "session.npz", raw=mosaic(levels(A)), dark=mosaic(levels(B))),
        (A,),
        8,
    ),
    "dump.raw --raw 2448x2048:Mono12p": (in_bytes, (A, B), 12),
    "frames.mkv": (lambda f: save_video(f / "frames.mkv", [mosaic(levels(x)) for x in (A, B)]), (A, B), 8),
    "drive.mcap": (in_mcap, (A,), 8),
    "- < raw.png": (lambda f: save(f / "raw.png", mosaic(levels(A))), (A,), 8),
    "scenes/": (lambda f: scenes(f, "scenes/s{}_{}.png", A, B), (A, B), 8),
    "by_angle/": (lambda f: scenes(f, "by_angle/{1}/{0}.png", A, B), (A, B), 8),
    "'mixed/view_{000,045,090,135}.png'": (
        lambda f: with_others("x.png", save_angles(f / "mixed", "view_{:03d}.png", levels(B))),
        (B,),
        8,
    ),
    "'set/{scene}/I{angle}.tif'": (lambda f: scenes(f, "set/{}/I{}.tif", A, B), (A, B), 8),
    "'numbered/cam{1,2,3,4}.png'": (
        lambda f: [save(f / "numbered" / f"cam{k + 1}.png", levels(A)[k]) for k in range(4)],
        (A,),
        8,
    ),
    "'numbered/part_{a,b,c,d}.png' --angle-order 90,45,135,0": (
        lambda f: [save(f / "numbered" / f"part_{'abcd'[k]}.png", levels(A)[TILE[k]]) for k in range(4)],
        (A,),
        8,
    ),
    "'bayer/{0,45,90,135}.png' --sensor IMX250MYR": (
        lambda f: save_angles(f / "bayer", "{}.png", levels(lattice(PLAIN_COLOR))),
        (),
        8,
    ),
    "'grbg/{0,45,90,135}.png' --sensor 'G90 G45 R90 R45 / G135 G0 R135 R0 / B90 B45 G90 G45 / B135 B0 G135 G0'": (
        lambda f: save_angles(f / "grbg", "{}.png", levels(lattice(PLAIN_COLOR, "GRBG"))),
        (),
        8,
    ),
    "'stacks/s_{0,45,90,135}.tif'": (
        lambda f: [
            save_pages(f / "stacks" / f"s_{a}.tif", np.stack([levels(A)[k], levels(B)[k]]))
            for k, a in enumerate(DEGREES)
        ],
        (A, B),
        8,
    ),
    "angles.tif": (lambda f: save_pages(f / "angles.tif", levels(A)), (A,), 8),
    "tiles.png": (lambda f: save(f / "tiles.png", tiles(levels(A))), (A,), 8),
    "tiles_sensor.png --angle-order 90,45,135,0": (
        lambda f: save(f / "tiles_sensor.png", tiles(levels(A), TILE)),
        (A,),
        8,
    ),
    "angles.npy": (lambda f: save_array(f / "angles.npy", np.moveaxis(levels(C), 0, 2)), (C,), 8),
    "angles.npz": (
        lambda f: save_archive(f / "angles.npz", **dict(zip(("I0", "I45", "I90", "I135"), levels(A)))),
        (A,),
        8,
    ),
    "stokes.npy": (lambda f: save_array(f / "stokes.npy", stokes(A)), (A,), 16),
    "from_stokes.npy": (converted, (COLOR_SCALED,), 12),
    "from_dolp.npy": (converted, (COLOR_SCALED,), 12),
    "'prism/polar/{0d,45d,90d,135d}/*.png' --sensor IMX250MYR": (
        lambda f: save_angles(f / "prism" / "polar", "{}d/000001.png", levels(lattice(PLAIN_COLOR))),
        (),
        8,
    ),
    "'polargb/{frame}_{000,045,090,135}.png'": (polargb, (C, color(1)), 8),
    "'pidsr/{scene}/RGB_{0,45,90,135}.png'": (
        lambda f: scenes(f, "pidsr/{}/RGB_{}.png", C, color(1), bits=16),
        (C, color(1)),
        16,
    ),
    "tokyo/apple.mat": (
        lambda f: save_mat(f / "tokyo" / "apple.mat", **{f"RGB_{angle}": C[k] for k, angle in enumerate(DEGREES)}),
        (C,),
        16,
    ),
    "'lapray/{scene}/Raw/NIR_filtre_nir_{angle}_aligned.tif' --content angles": (
        lambda f: scenes(f, "lapray/scene{}/Raw/NIR_filtre_nir_{}_aligned.tif", A, B),
        (A, B),
        8,
    ),
    "'sattar/{band}_{angle}.tif'": (lambda f: scenes(f, "sattar/b{}_{:03d}.tif", A, B), (A, B), 8),
    "housecat6d/pol/ --content tiles": (
        lambda f: save(f / "housecat6d" / "pol" / "000000.png", tiles(levels(C))),
        (C,),
        8,
    ),
    "hammer/pol/": (lambda f: scenes(f, "hammer/pol/{:06d}_{:03d}.png", C), (C,), 8),
    "'potato/*_raw.png' --sensor IMX250MYR": (
        lambda f: save(f / "potato" / "exp07_frame022868_raw.png", mosaic(levels(lattice(PLAIN_COLOR)))),
        (),
        8,
    ),
    "'zju/{0,45,90,135}/*.png'": (lambda f: scenes(f, "zju/{1}/{0}.png", C, color(1)), (C, color(1)), 8),
    "deepsfp/bird1_f.mat --array images": (
        lambda f: save_mat(
            f / "deepsfp" / "bird1_f.mat",
            images=np.moveaxis(A, 0, 2),
            mask=np.ones((HEIGHT, WIDTH), np.uint8),
            normals_gt=np.zeros((HEIGHT, WIDTH, 3)),
        ),
        (A,),
        16,
    ),
    "'spw/*polar.npy'": (
        lambda f: (f / "spw").mkdir() or save_array(f / "spw" / "1_polar.npy", np.moveaxis(A, 0, 2)),
        (A,),
        16,
    ),
}


def test_every_command_of_the_guide_is_run() -> None:
    commands = re.findall(r"\| `polar-pipeline process ([^`]*)`", GUIDE)
    assert {command.replace(" -o out", "") for command in commands} == set(COMMANDS)
    assert len(commands) == len(COMMANDS)


def test_the_program_of_the_guide(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    scenes(tmp_path, "scenes/s{}_{}.png", A, B)
    exec(
        next(program for program in re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL) if "read_frames" in program),
        {},
    )
    with np.load("s1.npz") as result:
        s0, s1, s2 = np.moveaxis(stokes(B), 2, 0)
        known = ~np.isnan(result["dolp"]) & (s0 > 0.2)
        error = np.abs(result["dolp"] - np.hypot(s1, s2) / s0)[known]
    assert error.max() < 4 * TOLERANCES[8] / 0.2  # rounding of S0, S1 and S2, over S0


@pytest.mark.parametrize("command", COMMANDS)
def test_the_commands_of_the_guide(command: str, tmp_path: Path, monkeypatch: Any) -> None:
    make, lights, bits = COMMANDS[command]
    monkeypatch.chdir(tmp_path)
    make(tmp_path)
    words, _, stdin = command.replace("2448x2048", f"{2 * WIDTH}x{2 * HEIGHT}").partition(" < ")
    if stdin:
        monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(Path(stdin).read_bytes())))
    arguments = ["process", *shlex.split(words), "-o", "out", "--format", "npy", "--products", "stokes"]
    assert cli.main(on_cpu([*arguments, "--resolution", "half", "--no-co-sited"])) == 0
    results = [np.load(path) for path in sorted(Path("out").glob("*_stokes.npy"), key=natural_order)]
    if lights:
        check(results, lights, TOLERANCES[bits])
        return
    (result,) = results  # behind a Bayer lattice, whose colors are interpolated except at the borders
    truth = np.median(stokes(PLAIN_COLOR), (0, 1))
    np.testing.assert_allclose(np.median(result, (0, 1)), truth, 0, 2 * TOLERANCES[bits])


def test_a_video_whose_relative_name_has_a_colon(tmp_path: Path, monkeypatch: Any) -> None:
    save_video(tmp_path / "in.mkv", [mosaic(levels(A))]).rename(tmp_path / "2026-12-01T12:30:05.mkv")
    monkeypatch.chdir(tmp_path)
    check(read("2026-12-01T12:30:05.mkv"), [A], TOLERANCES[8])


#: Pattern -> names of frames.
PATTERNS = {"{scene}/a.png": ["left", "right"], "{scene}/*.png": ["left_a", "right_a"], "left/*.png": ["a"]}


def test_names_of_a_pattern(tmp_path: Path) -> None:
    """A named part is the name of a frame: one file each has it as four files have it."""
    for scene_name in ("left", "right"):
        save(tmp_path / scene_name / "a.png", mosaic(levels(A)))
    names = {pattern: [frame.name for frame in read_frames(f"{tmp_path}/{pattern}")] for pattern in PATTERNS}
    assert names == PATTERNS


def test_numbers_that_a_path_repeats_are_looked_at_a_few_times() -> None:
    path = Path("/".join(["7"] * 75), "x_7_45.png")
    assert len(list(_angle_places(path))) < 100
    assert ((f"{path.parent}/x_7_", "", ".png"), 45) in list(_angle_places(path))


def test_a_folder_is_not_listed_for_every_frame(tmp_path: Path, monkeypatch: Any) -> None:
    counts: List[int] = []
    for number in (2, 7):
        folder = tmp_path / str(number)
        folder.mkdir()
        for k in range(number):
            cv2.imwrite(str(folder / f"{k}.png"), np.full((32, 32), 9, np.uint8))
        listings: List[Path] = []
        iterdir = Path.iterdir
        with monkeypatch.context() as patch:
            patch.setattr(Path, "iterdir", lambda path: (listings.append(path), iterdir(path))[1])  # noqa: B023
            assert len(list(read_frames(folder, content="mosaics"))) == number
        counts.append(len(listings))
    assert counts[0] == counts[1] > 0


def test_a_stack_is_decoded_once_to_count_and_once_to_read(tmp_path: Path, monkeypatch: Any) -> None:
    path = tmp_path / "stack.tiff"
    assert cv2.imwritemulti(str(path), [np.full((32, 32), k, np.uint8) for k in range(5)])
    decodings: List[Any] = []
    decode = cv2.imreadmulti
    monkeypatch.setattr(cv2, "imreadmulti", lambda *args, **more: (decodings.append(args), decode(*args, **more))[1])
    assert len(list(read_frames(path, content="mosaics"))) == 5
    assert len(decodings) <= 2
