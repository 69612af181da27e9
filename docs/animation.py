"""Writes the moving picture of README.md, docs/images/polarizer.gif: `python docs/animation.py`. It needs Pillow.

A polarizer turns in front of an example frame: the product `polarizer` at angles from 0 to 175 degrees.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import List, Sequence

import cv2
import numpy as np
from PIL import Image

from polar_pipeline import Pipeline, read_frames
from polar_pipeline.pictures.text import draw_text

ROOT = Path(__file__).resolve().parent.parent
#: The picture, and the frame in it.
FILE, FRAME = ROOT / "docs" / "images" / "polarizer.gif", ROOT / "frames" / "imx250mzr_fruits.png"
#: Angles of the polarizer in degrees, and how long each is shown in milliseconds.
ANGLES, DURATION = range(0, 180, 5), 90
#: Factor of brightness, and levels of gray: noise between more levels makes the file large.
GAIN, LEVELS = 1.5, 36


def turning(angles: Sequence[int] = ANGLES) -> List[np.ndarray]:
    """Paint the polarizer at angles in degrees, each as (512, 612) uint8 levels of gray below `LEVELS`."""
    frame = next(read_frames(FRAME))
    painted = []
    for angle in angles:
        with Pipeline(products="polarizer", polarizer_angle=float(angle), scale=2, backend="cpu") as pipeline:
            image = np.rint(255 * np.clip(GAIN * pipeline(frame)["polarizer"], 0, 1)).astype(np.uint8)
        painted.append(np.rint(dial(image, angle) * ((LEVELS - 1) / 255)).astype(np.uint8))
    return painted


def dial(image: np.ndarray, angle: int) -> np.ndarray:
    """Draw a polarizer into the lower right corner of a gray image; its lines have the direction that it transmits."""
    rgb = np.repeat(image[..., np.newaxis], 3, -1)
    center, radius = np.array([rgb.shape[1] - 52, rgb.shape[0] - 68]), 36
    cv2.circle(rgb, center.tolist(), radius, (40, 40, 40), -1, cv2.LINE_AA)
    turn = np.radians(angle)
    along, across = np.array([np.cos(turn), -np.sin(turn)]), np.array([np.sin(turn), np.cos(turn)])
    for shift in range(-28, 29, 8):
        middle, half = center + shift * across, np.sqrt(radius**2 - shift**2) - 4
        ends = [tuple(np.rint(16 * (middle + side * half * along)).astype(int).tolist()) for side in (-1, 1)]
        cv2.line(rgb, ends[0], ends[1], (235, 235, 235), 2, cv2.LINE_AA, 4)
    draw_text(rgb, f"{angle} deg", (int(center[0]), rgb.shape[0] - 16), 18, color=(40, 40, 40))
    return np.asarray(rgb[..., 0])


def animation() -> bytes:
    """Encode the turning polarizer as a GIF that repeats."""
    grays = [round(level * 255 / (LEVELS - 1)) for level in range(LEVELS) for _ in range(3)]
    images = [Image.fromarray(levels) for levels in turning()]
    for image in images:
        image.putpalette(grays)
    data = io.BytesIO()
    options = {"save_all": True, "append_images": images[1:], "duration": DURATION, "loop": 0, "optimize": False}
    images[0].save(data, "GIF", **options)
    return data.getvalue()


if __name__ == "__main__":
    FILE.write_bytes(animation())
