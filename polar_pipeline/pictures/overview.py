"""Overview of a result: one annotated picture of intensity, DoLP, AoLP and preview, each with its legend."""

from __future__ import annotations

from dataclasses import dataclass
from typing import List, Mapping, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from polar_pipeline.options.display import automatic_gain, brighten, sample_pixels
from polar_pipeline.options.products import PRODUCTS
from polar_pipeline.pictures.brightness import display_gain, for_display, white_balance
from polar_pipeline.pictures.colors import bar_colors, fades, picture, pictured_range, shrunk, wheel
from polar_pipeline.pictures.text import BACK, SOFT, draw_text, shorten, wrap

#: Longest side of an overview by default, in pixels: its text can be read down to a width of 800 pixels.
MAX_SIDE = 1200
#: Panels in their order; each shows the first of its products that there is.
PANELS = (("intensity",), ("dolp", "dolp_color"), ("aolp", "aolp_color"), ("preview",))
#: Panels side by side, by their number; more are in rows of three.
_COLUMNS = {1: 1, 2: 2, 4: 2}
#: Smallest and largest height of a panel's picture as a share of its width; other shapes have bars beside the picture.
_ASPECTS = (0.2, 1.25)
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
class _RenderSettings:
    """Brightness of light, and the option `color_style`."""

    gain: float
    balance: Sequence[float]
    color_style: str


class _Panel(NamedTuple):
    """A product or a plane of it, and what its legend says in words."""

    name: str
    plane: int
    notes: Sequence[str]


@dataclass(frozen=True)
class _PanelGrid:
    """Where everything is in an overview; all lengths are proportional to its width.

    Attributes:
        width: The width in pixels.
        unit: A thousandth of the width.
        box: (width, height) of the place of each picture.
        columns: Panels side by side.
        rows: Upper end of every row of panels, and of what would follow.
        lines: Lines of notes of every panel.
    """

    width: int
    unit: float
    box: Tuple[int, int]
    columns: int
    rows: Sequence[int]
    lines: Sequence[Sequence[str]]


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
    panel_names = [next((name for name in names if name in images), "") for names in PANELS]
    names = [name for name in panel_names if name] or list(images)
    if not names:
        raise ValueError(f"an overview needs an image, got {', '.join(products) or 'no products'}")
    images = {name: images[name] for name in names}
    settings = _render_settings(images, gain, balance, color_style)
    panels = [
        _Panel(name, plane, _notes(name, images[name], settings))
        for name in names
        for plane in range(max(1, len(PRODUCTS[name].planes)))
    ]
    title = "".join(character for character in title if character.isprintable())
    size = images[names[0]].shape[:2]
    grid = _panel_grid(panels, size, max_side, bool(title))
    while grid.rows[-1] > max_side:
        width = min(grid.width - 1, grid.width * max_side // grid.rows[-1])
        grid = _panel_grid(panels, size, width, bool(title))
    return _drawn(grid, panels, images, title, settings)


def _render_settings(
    images: Mapping[str, np.ndarray], gain: Optional[float], balance: Optional[Sequence[float]], color_style: str
) -> _RenderSettings:
    """Complete the brightness by that of the first image of light, or of the preview."""
    light = next((array for name, array in images.items() if PRODUCTS[name].is_light), None)
    if light is None:
        if gain is None and "preview" in images:
            gain = automatic_gain(sample_pixels(images["preview"]))
        return _RenderSettings(gain or 1.0, (1.0,), color_style)
    if light.ndim == 2:
        balance = (1.0,)
    elif balance is None:
        balance = white_balance(light)
    return _RenderSettings(display_gain(light, balance) if gain is None else gain, balance, color_style)


def _panel_grid(panels: Sequence[_Panel], size: Tuple[int, int], width: int, has_title: bool) -> _PanelGrid:
    """Lay out an overview of this width for images of (height, width)."""
    unit = width / 1000
    gap, columns = round(_GAP * unit), _COLUMNS.get(len(panels), 3)
    side = (width - gap) // columns - gap
    height = round(side * min(max(size[0] / size[1], _ASPECTS[0]), _ASPECTS[1]))
    lines = [
        [line for note in panel.notes for line in wrap(note, _SMALL * unit, side - _notes_left(panel.name, unit))]
        for panel in panels
    ]
    heights = [_legend_height(panel, len(rows), unit) for panel, rows in zip(panels, lines)]
    tops = [gap + round(_TITLE * unit) * has_title]
    for start in range(0, len(panels), columns):
        legend = max(heights[start : start + columns])
        tops.append(tops[-1] + round(_HEADING * unit) + height + legend + gap)
    return _PanelGrid(width, unit, (side, height), columns, tops, lines)


def _drawn(
    grid: _PanelGrid, panels: Sequence[_Panel], images: Mapping[str, np.ndarray], title: str, settings: _RenderSettings
) -> np.ndarray:
    """Draw an overview: the title, and for every panel a heading, the picture in the middle of its box, the legend."""
    unit, (width, height) = grid.unit, grid.box
    out, gap = np.full((grid.rows[-1], grid.width, 3), BACK, np.uint8), round(_GAP * unit)
    if title:
        text = shorten(title, _LARGE * unit, grid.width - 2 * gap)
        draw_text(out, text, (gap, gap + _TITLE * unit / 3), _LARGE * unit, 0)
    for k, (panel, lines) in enumerate(zip(panels, grid.lines)):
        row, column = divmod(k, grid.columns)
        x, y = gap + column * (width + gap), grid.rows[row]
        draw_text(out, _heading(panel), (x, y + (_HEADING / 2 - 1) * unit), _LARGE * unit, 0)
        y += round(_HEADING * unit)
        image = _fitted(panel, images[panel.name], grid.box, settings)
        left, top = x + (width - image.shape[1]) // 2, y + (height - image.shape[0]) // 2
        out[top : top + image.shape[0], left : left + image.shape[1]] = image
        _draw_legend(out[y + height : grid.rows[row + 1], x : x + width], panel, lines, unit, settings)
    return out


def _heading(panel: _Panel) -> str:
    row = PRODUCTS[panel.name]
    if row.planes:
        return f"{panel.name} {row.planes[panel.plane][0]}"
    return _HEADINGS.get(panel.name, f"{panel.name} in degrees" if row.unit == "rad" else panel.name)


def _fitted(panel: _Panel, array: np.ndarray, box: Tuple[int, int], settings: _RenderSettings) -> np.ndarray:
    """Color a product, smaller or enlarged by a whole factor, so that it fits into a box of (width, height)."""
    name = panel.name
    factor = min(size / side for size, side in zip(box, array.shape[1::-1]))
    array = shrunk(name, array, max(1, int(factor * max(array.shape[:2])))) if factor < 1 else array
    is_light = PRODUCTS[name].is_light
    image = for_display(array, settings.gain, settings.balance) if is_light else picture(name, array, plane=panel.plane)
    if name == "preview":
        image = brighten(image, settings.gain)
    whole = max(1, int(factor))
    return np.repeat(np.repeat(image, whole, 0), whole, 1)


def _notes(name: str, array: np.ndarray, settings: _RenderSettings) -> List[str]:
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
        share = float(np.mean((array[..., 0] | array[..., 1] | array[..., 2]) == 0))
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


def _notes_left(name: str, unit: float) -> int:
    """Return how far notes are from the left end of a panel: beside its wheel, or below its bar."""
    return round((_WHEEL + 3.4 * _NUMBERS) * unit) if _is_wheel(name) else 0


def _legend_height(panel: _Panel, lines: int, unit: float) -> int:
    """Return the height of a legend: a wheel with numbers around it, or a bar with a line of numbers, and notes."""
    if _is_wheel(panel.name):
        height = max(_WHEEL + 2 * _NUMBERS, _LINE * lines)
    else:
        height = _LINE * lines + (_BAR + _LINE if len(bar_colors(panel.name, panel.plane)) else 0)
    return round((height + _GAP) * unit)


def _draw_legend(out: np.ndarray, panel: _Panel, lines: Sequence[str], unit: float, settings: _RenderSettings) -> None:
    """Draw the wheel or the bar of a product with its numbers, and the notes beside the wheel or below the bar."""
    size, line, top, width = _SMALL * unit, _LINE * unit, _GAP * unit / 2, out.shape[1]
    colors = bar_colors(panel.name, panel.plane)
    if _is_wheel(panel.name):
        _draw_wheel(out, panel.name, settings, unit)
        y = top + (_NUMBERS + _WHEEL / 2) * unit - line * (len(lines) - 1) / 2
    elif len(colors):
        bar = slice(round(top), round(top + _BAR * unit))
        out[bar] = colors[np.arange(width) * len(colors) // width]
        for k, text in enumerate(_labels(panel, settings)):
            align = {0: 0.0, _TICKS - 1: 1.0}.get(k, 0.5)
            draw_text(out, text, (k * (width - 1) / (_TICKS - 1), bar.stop + line / 2), size, align)
        y = bar.stop + 1.5 * line
    else:
        y = top + line / 2
    for k, text in enumerate(lines):
        draw_text(out, text, (_notes_left(panel.name, unit), y + k * line), size, 0, SOFT)


def _draw_wheel(out: np.ndarray, name: str, settings: _RenderSettings, unit: float) -> None:
    """Draw a wheel at the left end of a legend, and its angles in degrees around it."""
    side, x, y = (round(length * unit) for length in (_WHEEL, 1.4 * _NUMBERS, _GAP / 2 + _NUMBERS))
    colors, inside = wheel(name, "plain" if PRODUCTS[name].wraps else settings.color_style, side)
    out[y : y + side, x : x + side][inside] = colors[inside]
    reach = side / 2 + 0.62 * _NUMBERS * unit
    for degrees in range(0, 360, 45):
        turn = np.deg2rad(degrees)
        place = (x + side / 2 + 1.1 * reach * np.cos(turn), y + side / 2 - reach * np.sin(turn))
        draw_text(out, str(degrees % 180), place, _SMALL * unit)


def _labels(panel: _Panel, settings: _RenderSettings) -> List[str]:
    """Return the numbers at a bar: percent of full scale, degrees, or the unit of the product."""
    row = PRODUCTS[panel.name]
    (low, high), factor = pictured_range(panel.name, panel.plane), 180 / np.pi if row.unit == "rad" else 1.0
    if row.is_light:
        factor = 100 / settings.gain
    return [f"{factor * (low + (high - low) * k / (_TICKS - 1)):.3g}" for k in range(_TICKS)]
