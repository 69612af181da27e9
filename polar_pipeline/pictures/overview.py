"""Overview of a result: one annotated picture of intensity, DoLP, AoLP and preview, each with its legend."""

from __future__ import annotations

from dataclasses import dataclass
from typing import List, Mapping, Optional, Sequence, Tuple

import numpy as np

from polar_pipeline.options.display import brighten, exposure, sample_pixels
from polar_pipeline.options.products import PRODUCTS
from polar_pipeline.pictures.brightness import display_gain, for_display, white_balance
from polar_pipeline.pictures.colors import bar_colors, fades, picture, shrunk, wheel
from polar_pipeline.pictures.text import draw_text, shorten, wrap

#: Longest side of an overview by default, in pixels: its text can be read down to a width of 800 pixels.
MAX_SIDE = 1200
#: Panels in their order; each shows the first of its products that there is.
PANELS = (("intensity",), ("dolp", "dolp_color"), ("aolp", "aolp_color"), ("preview",))
#: Panels side by side, by their number; more are in rows of three.
_COLUMNS = {1: 1, 2: 2, 4: 2}
#: Smallest and largest height of a panel's picture as a share of its width; other shapes have bars beside the picture.
_ASPECTS = (0.2, 1.25)
_BACK, _FORE, _SOFT = (21, 24, 29), (235, 237, 240), (176, 184, 194)
#: Lengths in thousandths of the overview's width: space between parts, lines of text, bars, wheels and their numbers.
_GAP, _TITLE, _HEADING, _LINE, _BAR, _WHEEL, _NUMBERS = 14, 32, 28, 20, 14, 112, 24
#: Sizes of the font in the same unit.
_LARGE, _SMALL = 18, 14.5
#: Numbers at a bar.
_TICKS = 5
_HEADINGS = {
    "intensity": "Intensity",
    "dolp": "DoLP",
    "dolp_color": "DoLP",
    "aolp": "AoLP in degrees",
    "aolp_color": "AoLP in degrees",
    "preview": "Preview",
}


@dataclass(frozen=True)
class _Settings:
    """Brightness of light, and the option `color_style`."""

    gain: float
    balance: Sequence[float]
    color_style: str


def overview(
    products: Mapping[str, np.ndarray],
    title: str = "",
    max_side: int = MAX_SIDE,
    *,
    gain: Optional[float] = None,
    balance: Optional[Sequence[float]] = None,
    color_style: str = "plain",
) -> np.ndarray:
    """Draw one annotated picture of those of intensity, DoLP, AoLP and preview that there are.

    `dolp_color` and `aolp_color` stand in for `dolp` and `aolp`. A result without any of these shows all its images.
    Large images shrink, small ones are enlarged by a whole factor.

    Args:
        products: Arrays by the names of products, as `Pipeline` returns them: float32 or levels, mono or RGB.
        title: First line, such as the name of a file. Characters that cannot be printed are left out, and the middle
            of a title that is too long.
        max_side: Longest side of the overview in pixels.
        gain: Factor of brightness of intensity and preview; by default that of `display_gain`.
        balance: Factors of red, green and blue of light in color; by default those of `white_balance`.
        color_style: The option of that name by which `aolp_color` was computed.

    Returns:
        (h, w, 3) uint8 RGB.

    Raises:
        ValueError: There is no image among the products.
    """
    images = {name: array for name, array in products.items() if name in PRODUCTS and array.ndim}
    panels = [next((name for name in names if name in images), "") for names in PANELS]
    names = [name for name in panels if name] or list(images)
    if not names:
        raise ValueError(f"an overview needs an image, got {', '.join(products) or 'no products'}")
    images = {name: images[name] for name in names}
    settings = _settings(images, gain, balance, color_style)
    title = "".join(character for character in title if character.isprintable())
    width = max_side
    while True:
        out = _drawn(images, title, width, settings)
        if len(out) <= max_side:
            return out
        width = min(width - 1, width * max_side // len(out))


def _settings(
    images: Mapping[str, np.ndarray], gain: Optional[float], balance: Optional[Sequence[float]], color_style: str
) -> _Settings:
    """Complete the brightness by that of the first image of light, or of the preview."""
    light = next((array for name, array in images.items() if PRODUCTS[name].is_light), None)
    if light is None:
        if gain is None and "preview" in images:
            gain = exposure(sample_pixels(images["preview"]))
        return _Settings(gain or 1.0, (1.0,), color_style)
    if light.ndim == 2:
        balance = (1.0,)
    elif balance is None:
        balance = white_balance(light)
    return _Settings(display_gain(light, balance) if gain is None else gain, balance, color_style)


def _drawn(images: Mapping[str, np.ndarray], title: str, width: int, settings: _Settings) -> np.ndarray:
    """Draw an overview of this width; all lengths in it are proportional to the width."""
    unit = width / 1000
    gap, columns = round(_GAP * unit), _COLUMNS.get(len(images), 3)
    side = (width - gap) // columns - gap
    first = next(iter(images.values()))
    height = side * min(max(first.shape[0] / first.shape[1], _ASPECTS[0]), _ASPECTS[1])
    panels = [_panel(name, array, (side, round(height)), unit, settings) for name, array in images.items()]
    top = round(_TITLE * unit) if title else 0
    rows = [panels[start : start + columns] for start in range(0, len(panels), columns)]
    heights = [max(map(len, row)) + gap for row in rows]
    out = np.full((gap + top + sum(heights), width, 3), _BACK, np.uint8)
    if title:
        text = shorten(title, _LARGE * unit, width - 2 * gap)
        draw_text(out, text, (gap, gap + top / 3), _LARGE * unit, _FORE, 0)
    y = gap + top
    for row, row_height in zip(rows, heights):
        for column, panel in enumerate(row):
            x = gap + column * (side + gap)
            out[y : y + len(panel), x : x + side] = panel
        y += row_height
    return out


def _panel(name: str, array: np.ndarray, box: Tuple[int, int], unit: float, settings: _Settings) -> np.ndarray:
    """Draw a heading, the picture in a box of (width, height), and the legend; all are as wide as the box."""
    heading = np.full((round(_HEADING * unit), box[0], 3), _BACK, np.uint8)
    draw_text(heading, _HEADINGS.get(name, name), (0, len(heading) / 2 - unit), _LARGE * unit, _FORE, 0)
    image = _fitted(name, array, box, settings)
    left, top = ((size - side) // 2 for size, side in zip(box, image.shape[1::-1]))
    framed = np.full((box[1], box[0], 3), _BACK, np.uint8)
    framed[top : top + image.shape[0], left : left + image.shape[1]] = image
    return np.vstack([heading, framed, _legend(name, _notes(name, array, settings), box[0], unit, settings)])


def _fitted(name: str, array: np.ndarray, box: Tuple[int, int], settings: _Settings) -> np.ndarray:
    """Color a product, smaller or enlarged by a whole factor, so that it fits into a box of (width, height)."""
    factor = min(size / side for size, side in zip(box, array.shape[1::-1]))
    array = shrunk(name, array, max(1, int(factor * max(array.shape[:2])))) if factor < 1 else array
    is_light = PRODUCTS[name].is_light
    image = for_display(array, settings.gain, settings.balance) if is_light else picture(name, array)
    if name == "preview":
        image = brighten(image, settings.gain)
    whole = max(1, int(factor))
    return np.repeat(np.repeat(image, whole, 0), whole, 1)


def _notes(name: str, array: np.ndarray, settings: _Settings) -> List[str]:
    """Say what a legend cannot draw: brightness, the direction of angles, and invalid pixels."""
    row, notes = PRODUCTS[name], []
    if row.is_light:
        notes.append(f"percent of full scale; display gain {settings.gain:.3g}")
        if len(settings.balance) > 1:
            notes.append("white balance " + ", ".join(f"{factor:.2f}" for factor in settings.balance))
    if _is_wheel(name):
        notes.append("counter-clockwise from the x axis of the image")
        if fades(name, settings.color_style) and not row.wraps:
            notes.append("DoLP: 0 at the center, 1 at the rim")
    if name == "preview":
        notes.append(f"brightness: intensity, display gain {settings.gain:.3g}")
        notes.append("gray: unpolarized or invalid")
    elif not row.unit:
        share = float(np.mean(~array.any(-1)))
        notes += [f"black: invalid ({_percent(share)})"] * bool(share)
    elif array.dtype == np.float32:
        invalid = np.isnan(array)
        share = float(np.mean(invalid if invalid.ndim == 2 else invalid.any(-1)))
        notes += [f"black: invalid ({_percent(share)})"] * bool(share)
    elif not row.is_light:
        notes.append("invalid pixels are black" if row.is_invalid_high else "invalid pixels have the color of 0")
    return notes


def _percent(share: float) -> str:
    return "<0.1%" if share < 0.001 else f"{100 * share:.1f}%"


def _is_wheel(name: str) -> bool:
    """Whether the legend is a wheel of angles."""
    return PRODUCTS[name].wraps or PRODUCTS[name].legend == "wheel"


def _legend(name: str, notes: Sequence[str], width: int, unit: float, settings: _Settings) -> np.ndarray:
    """Draw the wheel or the bar of a product with its numbers, and the notes beside the wheel or below the bar."""
    size, line, top = _SMALL * unit, _LINE * unit, round(_GAP * unit / 2)
    colors = bar_colors(name)
    is_wheel = _is_wheel(name)
    side, numbers = (round(_WHEEL * unit), round(_NUMBERS * unit)) if is_wheel else (0, 0)
    bar = round(_BAR * unit) if len(colors) and not is_wheel else 0
    left = round(side + 3.4 * numbers)
    lines = [part for note in notes for part in wrap(note, size, width - left)]
    if is_wheel:
        height = max(side + 2 * numbers, line * len(lines))
        y = top + numbers + (side - line * (len(lines) - 1)) / 2
    else:
        height = bar + line * (len(lines) + bool(bar))
        y = top + bar + line * (bool(bar) + 0.5)
    out = np.full((round(height) + 2 * top, width, 3), _BACK, np.uint8)
    if is_wheel:
        _draw_wheel(out, name, settings, (round(1.4 * numbers), top + numbers), unit)
    elif bar:
        out[top : top + bar] = colors[np.arange(width) * len(colors) // width]
        for k, text in enumerate(_labels(name, settings)):
            align = {0: 0.0, _TICKS - 1: 1.0}.get(k, 0.5)
            draw_text(out, text, (k * (width - 1) / (_TICKS - 1), top + bar + line / 2), size, _FORE, align)
    for k, text in enumerate(lines):
        draw_text(out, text, (left, y + k * line), size, _SOFT, 0)
    return out


def _draw_wheel(out: np.ndarray, name: str, settings: _Settings, at: Tuple[int, int], unit: float) -> None:
    """Draw a wheel with its upper left corner at (x, y), and its angles in degrees around it."""
    side, (x, y) = round(_WHEEL * unit), at
    colors, inside = wheel(name, "plain" if PRODUCTS[name].wraps else settings.color_style, side)
    out[y : y + side, x : x + side][inside] = colors[inside]
    reach = side / 2 + 0.62 * _NUMBERS * unit
    for degrees in range(0, 360, 45):
        turn = np.deg2rad(degrees)
        place = (x + side / 2 + 1.1 * reach * np.cos(turn), y + side / 2 - reach * np.sin(turn))
        draw_text(out, str(degrees % 180), place, _SMALL * unit, _FORE)


def _labels(name: str, settings: _Settings) -> List[str]:
    """Return the numbers at a bar: percent of full scale, degrees, or the unit of the product."""
    row = PRODUCTS[name]
    (low, high), factor = row.pictured, 180 / np.pi if row.unit == "rad" else 1.0
    if row.is_light:
        factor = 100 / settings.gain
    return [f"{factor * (low + (high - low) * k / (_TICKS - 1)):.3g}" for k in range(_TICKS)]
