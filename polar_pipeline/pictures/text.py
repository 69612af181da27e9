"""Text in annotated pictures, in a font of OpenCV whose zero has no slash, and the colors of text and background."""

from __future__ import annotations

import threading
from typing import Any, List, Tuple

import cv2
import numpy as np

from polar_pipeline._util.text import SHOWN

#: Background of annotated pictures, text, and text of less weight: they suit light and dark pages.
BACK, FORE, SOFT = (21, 24, 29), (235, 237, 240), (176, 184, 194)
#: Height of capitals as a share of a font's size.
_CAPITALS = 0.72
#: Size in pixels of OpenCV's own font at a scale of 1.
_HERSHEY_SIZE = 35


#: The font of each thread: OpenCV draws wrong letters if two threads use one at a time.
_FONTS = threading.local()
#: Held while a font is loaded.
_LOADING = threading.Lock()


def _font() -> Any:
    """Return the font `uni` of OpenCV 5, whose default font has zeros with a slash; None where `uni` is missing."""
    if not hasattr(cv2, "FontFace"):
        return None
    if not hasattr(_FONTS, "face"):
        with _LOADING:
            face = cv2.FontFace("uni")
        _FONTS.face = face if face.getName() else None
    return _FONTS.face


def text_width(text: str, size: float) -> int:
    """Return the width in pixels of a line of text whose font has a `size` in pixels."""
    font = _font()
    if font is not None:
        width = cv2.getTextSize((0, 0), text, (0, 0), font, max(1, round(size)))[2]
    else:
        width = cv2.getTextSize(_ascii(text), cv2.FONT_HERSHEY_SIMPLEX, size / _HERSHEY_SIZE, 1)[0][0]
    return int(width)


def draw_text(
    image: np.ndarray,
    text: str,
    at: Tuple[float, float],
    size: float,
    align: float = 0.5,
    color: Tuple[int, int, int] = FORE,
) -> None:
    """Draw a line of text into an (h, w, 3) uint8 picture; characters that the font does not have become `?`.

    Args:
        image: The picture, which changes.
        text: A line of text.
        at: (x, y) of a point on the line through the middle of the capitals.
        size: Size of the font in pixels.
        align: Share of the text's width that is left of the point: 0 left-aligned, 0.5 centered.
        color: Red, green and blue.
    """
    corner = round(at[0] - align * text_width(text, size)), round(at[1] + size * _CAPITALS / 2)
    font = _font()
    if font is not None:
        cv2.putText(image, text, corner, color, font, max(1, round(size)), 400, wrap=(corner[0], 1 << 20))
    else:
        scale = size / _HERSHEY_SIZE
        cv2.putText(image, _ascii(text), corner, cv2.FONT_HERSHEY_SIMPLEX, scale, color, 1, cv2.LINE_AA)


def _ascii(text: str) -> str:
    return text.encode("ascii", "replace").decode()


def shorten(text: str, size: float, width: float) -> str:
    """Replace the middle of a text by three dots if the text is wider than `width` pixels."""
    short = text
    for kept in range(min(len(text), SHOWN), -1, -1):
        if text_width(short, size) <= width:
            break
        short = f"{text[: kept - kept // 2]}...{text[len(text) - kept // 2 :]}"
    return short


def wrap(text: str, size: float, width: float) -> List[str]:
    """Split a text at spaces into lines of at most `width` pixels; a word that is wider has a line of its own."""
    lines: List[str] = []
    for word in text.split(" "):
        longer = f"{lines[-1]} {word}" if lines else word
        if lines and text_width(longer, size) <= width:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines
