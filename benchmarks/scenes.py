"""Synthetic polarized scenes: what a polarization camera might look at, as Stokes fields for `sensor.forward`.

Surfaces follow the statistics of photographs (dead leaves with power-law sizes, 1/f texture, edges shared by all
angles, a lens that softens the finest detail) and polarize by textbook optics: Fresnel's equations for reflection and
for light leaving a dielectric, Mueller calculus for stressed plastic.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Callable, Dict, Tuple

import cv2
import numpy as np

from polar_pipeline.sensor.mosaic import ANGLES, Sensor

#: Refractive index of glass, plastic and varnish.
INDEX = 1.5
#: Gaussian blur of the lens in pixels: contrast at the pixel grid's Nyquist frequency is about 10 %.
LENS_SIGMA = 0.7
#: Wavelengths in nm that the R, G and B pixels see; a mono pixel takes the middle one.
_WAVELENGTHS = (610.0, 540.0, 460.0)

Size = Tuple[int, int]


def _stokes(light: np.ndarray, q: np.ndarray, u: np.ndarray) -> np.ndarray:
    """Combine light S0/2 and broadcast q = S1/S0 and u = S2/S0 to (..., 3) Stokes vectors."""
    field: np.ndarray = 2 * np.stack([light, light * q, light * u], -1)
    return field


def polarized(light: np.ndarray, degree: np.ndarray, angle: np.ndarray) -> np.ndarray:
    """Combine light S0/2 and broadcast DoLP and AoLP in rad to (..., 3) Stokes vectors."""
    return _stokes(light, degree * np.cos(2 * angle), degree * np.sin(2 * angle))


def _grid(size: Size) -> Tuple[np.ndarray, np.ndarray]:
    """Return x, rightwards (1, W, 1), and y, upwards (H, 1, 1), from the center in units of the shorter side."""
    height, width = size
    unit = min(size)
    x = (np.arange(width, dtype=np.float32) - (width - 1) / 2) / unit
    y = ((height - 1) / 2 - np.arange(height, dtype=np.float32)) / unit
    return x[np.newaxis, :, np.newaxis], y[:, np.newaxis, np.newaxis]


@lru_cache(maxsize=8)
def _texture(size: Size, seed: int) -> np.ndarray:
    """Draw an (H, W, 1) random field of mean 0 and deviation 1 with a 1/f amplitude spectrum, as in photographs."""
    rng = np.random.default_rng(seed)
    spectrum = np.fft.rfft2(rng.standard_normal(size))
    frequency = np.hypot(np.fft.fftfreq(size[0])[:, np.newaxis], np.fft.rfftfreq(size[1]))
    frequency[0, 0] = np.inf
    field = np.fft.irfft2(spectrum / frequency, size)
    out: np.ndarray = (field / field.std()).astype(np.float32)[..., np.newaxis]
    return out


@lru_cache(maxsize=8)
def _leaves(size: Size, seed: int) -> Tuple[np.ndarray, np.ndarray]:
    """Draw the dead leaves model: overlapping ellipses of power-law size, each with one color and one surface normal.

    Returns:
        Albedo (H, W, 3), 0.03 to 0.9, textured; polarization (H, W, 2) as S1/S0 and S2/S0 of diffuse reflection.
    """
    rng = np.random.default_rng(seed)
    smallest, largest = 6.0, max(min(size) / 4, 12.0)
    mean_square = 2 * smallest**2 * np.log(largest / smallest)
    count = int(4 * size[0] * size[1] / (np.pi * mean_square)) + 40
    radii = np.minimum(smallest / np.sqrt(rng.uniform(0.0, 1.0, count)), largest)
    centers = rng.uniform(-0.05, 1.05, (count, 2)) * (size[1], size[0])
    gray = rng.beta(1.2, 2.2, (count, 1))
    colors = np.clip(gray * rng.uniform(0.75, 1.25, (count, 3)), 0.03, 0.9)
    degree, angle = _diffuse_degree(np.sin(rng.uniform(0, 1.3, count))), rng.uniform(0, np.pi, count)
    normals = 0.5 + 0.5 * np.stack([degree * np.cos(2 * angle), degree * np.sin(2 * angle), 0 * angle], -1)
    albedo = np.full((*size, 3), 80, np.uint8)
    slant = np.full((*size, 3), 128, np.uint8)
    for center, radius, shape, color, normal in zip(centers, radii, rng.uniform(0.3, 1, (count, 2)), colors, normals):
        # 1/16 pixel steps and smooth borders, so that edges have no staircase.
        middle = tuple(int(v) for v in center * 16)
        axes = (int(radius * 16), int(radius * 16 * shape[0]))
        for canvas, values in ((albedo, color), (slant, normal)):
            cv2.ellipse(canvas, middle, axes, 180 * shape[1], 0, 360, 255 * values, -1, cv2.LINE_AA, 4)
    textured = albedo / np.float32(255) * (1 + 0.12 * _texture(size, seed + 1))
    return np.clip(textured, 0.02, 0.95), (slant[..., :2] / np.float32(255) - np.float32(128 / 255)) * 2


def _channels(color: np.ndarray, is_color: bool) -> np.ndarray:
    """Return (..., 3) RGB itself, or (..., 1) as a mono sensor sees it."""
    return color if is_color else color.mean(-1, keepdims=True)


def _matte(size: Size, seed: int, light: np.ndarray, is_color: bool) -> np.ndarray:
    """Draw dead leaves under a light as (H, W, C, 3) Stokes vectors, polarized by diffuse reflection."""
    albedo, slant = _leaves(size, seed)
    return _stokes(light * _channels(albedo, is_color), slant[..., :1], slant[..., 1:])


def _diffuse_degree(sine: np.ndarray) -> np.ndarray:
    """Compute the DoLP of light leaving a dielectric at a zenith angle of this sine (Atkinson and Hancock, 2006)."""
    n, sine2 = INDEX, np.square(sine)
    below = 2 + 2 * n * n - (n + 1 / n) ** 2 * sine2 + 4 * np.sqrt((1 - sine2) * (n * n - sine2))
    degree: np.ndarray = (n - 1 / n) ** 2 * sine2 / below
    return degree


def _fresnel(cosine: np.ndarray) -> Tuple[np.ndarray, np.ndarray]:
    """Compute the reflectance of the s and p components at an angle of incidence of this cosine."""
    inside = np.sqrt(INDEX**2 - 1 + cosine**2)
    s = (cosine - inside) / (cosine + inside)
    p = (INDEX**2 * cosine - inside) / (INDEX**2 * cosine + inside)
    return s * s, p * p


def _spheres(size: Size, seed: int, time: float, is_color: bool) -> np.ndarray:
    """Draw varnished balls on a matte ground: diffuse polarization inside, specular along the rim."""
    rng = np.random.default_rng(seed)
    x, y = _grid(size)
    scene = _matte(size, seed + 10, 0.75 + 0.25 * y, is_color)
    # Wet ground under a gray sky, seen flatter toward the top of the picture.
    s, p = _fresnel(np.cos(np.deg2rad(52 + 30 * y)))
    sky = (0.8 + 0.1 * _texture(size, seed + 40)) * (s + p) / 2
    scene += polarized(sky * np.ones(scene.shape[2], np.float32), (s - p) / (s + p), 0.2 * x)
    albedo, _ = _leaves(size, seed + 20)
    for _ in range(7):
        radius, speed, start = rng.uniform(0.1, 0.24), rng.uniform(-0.3, 0.3), rng.uniform(0, 2 * np.pi, 2)
        color = rng.uniform(0.03, 0.8, 3) * rng.choice([0.1, 0.6])
        cx = 0.55 * size[1] / min(size) * np.sin(start[0] + speed * time)
        cy = 0.42 * np.sin(start[1] + 0.6 * speed * time)
        dx, dy = (x - np.float32(cx)) / radius, (y - np.float32(cy)) / radius
        distance = np.hypot(dx, dy)
        sine = np.minimum(distance, 0.995)
        cosine = np.sqrt(1 - sine**2)
        azimuth = np.arctan2(dy, dx)
        shade = np.clip(0.3 + 0.55 * cosine + 0.35 * dy - 0.2 * dx, 0.05, 1)
        paint = color.astype(np.float32) * (0.85 + 0.3 * albedo)
        ball = polarized(shade * _channels(paint, is_color), _diffuse_degree(sine), azimuth)
        # The surroundings mirrored in the varnish: a bright ceiling above, a lamp as a hard-edged square.
        s, p = _fresnel(cosine)
        ceiling = 0.8 + 0.7 * np.tanh(6 * dy * cosine + 0.4 * _texture(size, seed + 30))
        lamp = 8 * np.clip(0.5 + radius * min(size) * (0.13 - np.maximum(abs(dx + 0.3), abs(dy - 0.35))), 0, 1)
        mirrored = np.broadcast_to((ceiling + lamp) * (s + p) / 2, (*size, scene.shape[2]))
        ball += polarized(mirrored, (s - p) / (s + p), azimuth + np.float32(np.pi / 2))
        cover = np.clip(0.5 + radius * min(size) * (1 - distance), 0, 1)[..., np.newaxis]
        scene += cover * (ball - scene)
    return scene


def _plastic(size: Size, seed: int, time: float, is_color: bool) -> np.ndarray:
    """Draw loaded plastic discs and a printed slide before a polarized screen: AoLP and DoLP follow the stress."""
    rng = np.random.default_rng(seed)
    x, y = _grid(size)
    wavelengths = np.array(_WAVELENGTHS if is_color else _WAVELENGTHS[1:2], np.float32)
    retardation, axis = np.float32(0), np.float32(0)
    cover = np.zeros((*size, 1), np.float32)
    for middle_x, middle_y, radius in ((-0.28, 0.2, 0.22), (0.25, 0.12, 0.3), (-0.1, -0.28, 0.18)):
        cx, cy = (np.float32(c + rng.uniform(-0.04, 0.04)) for c in (middle_x, middle_y))
        load = rng.uniform(0.8, 1.4) * (1 + 0.4 * np.sin(time + rng.uniform(0, 6)))
        turn = rng.uniform(0, np.pi)
        difference, shear = np.float32(0), np.float32(0)
        for side in (-1, 1):
            # Flamant's radial stress of a point load on the rim, blunted by the width of the clamp.
            ux, uy = side * np.float32(np.cos(turn)), side * np.float32(np.sin(turn))
            dx, dy = x - cx - radius * ux, y - cy - radius * uy
            square = dx**2 + dy**2 + np.float32(0.2 * radius) ** 2
            stress = 3 * load * radius * -(dx * ux + dy * uy) / square**2
            difference, shear = difference + stress * (dx**2 - dy**2), shear + stress * 2 * dx * dy
        disc = np.clip(0.5 + min(size) * (radius - np.hypot(x - cx, y - cy)), 0, 1)
        retardation = np.where(disc > 0, np.hypot(difference, shear), retardation)
        axis = np.where(disc > 0, np.arctan2(shear, difference), axis)
        cover = np.maximum(cover, disc)
    # A screen of DoLP 0.8 at 0 degrees, through a retarder of fast axis `axis`/2.
    phase = retardation * 540 / wavelengths
    cos, sin = np.cos(axis), np.sin(axis)
    s1 = 0.8 * (1 + cover * sin**2 * (np.cos(phase) - 1))
    s2 = 0.8 * cover * sin * cos * (1 - np.cos(phase))
    slide = 0.25 + 0.75 * _channels(_leaves(size, seed + 40)[0], is_color)
    screen = 0.55 * (1 - 0.5 * (x**2 + y**2)) * slide * (1 - 0.15 * cover) * _print(size, seed)
    return _stokes(screen, s1, s2)


@lru_cache(maxsize=4)
def _print(size: Size, seed: int) -> np.ndarray:
    """Draw the (H, W, 1) transmission of black text on film, in letters from fine to large."""
    rng = np.random.default_rng(seed)
    film = np.full(size, 255, np.uint8)
    line, scale = 0, 0.3
    while line < size[0]:
        line += int(36 * scale)
        words = " ".join("".join(rng.choice(list("ABEHKMRSXZ0123456789"), 5)) for _ in range(3))
        start = (int(rng.uniform(-0.1, 0.7) * size[1]), line)
        cv2.putText(film, words, start, cv2.FONT_HERSHEY_SIMPLEX, scale, 30, 1 + int(scale), cv2.LINE_AA)
        scale = 0.3 if scale > 1.2 else 1.25 * scale
        line += int(20 * scale)
    transmission: np.ndarray = film[..., np.newaxis] / np.float32(255)
    return transmission


def _window(size: Size, seed: int, time: float, is_color: bool) -> np.ndarray:
    """Draw a window at an angle: an interior, blinds, and the street mirrored in its panes near Brewster's angle."""
    x, y = _grid(size)
    interior = _matte(size, seed + 50, np.float32(0.75), is_color)
    # Blinds in the upper left quarter, whose slats narrow to 2.5 pixels, near Nyquist, toward the top.
    slats = 0.5 + 0.5 * np.sin(2 * np.pi * np.cumsum(1 / (2.5 + 15 * np.clip(0.5 - y, 0, 1)), 0))
    interior *= np.where((x < -0.1) & (y > 0.05), 0.3 + 0.7 * slats, 1)[..., np.newaxis]
    street = _channels(_leaves(size, seed + 60)[0], is_color)
    street = np.roll(street, int(np.rint(40 * time)), 1) * np.float32(1.6) + np.clip(2 * y, 0, 1)
    panes = np.floor(2.5 * x + 0.5) + 7 * np.floor(2.5 * y)
    incidence = np.deg2rad(30 + 40 * (x - x.min()) / np.ptp(x)) + 0.05 * np.sin(5 * panes)
    normal = np.float32(np.pi / 2) + 0.35 * np.sin(3 * panes) + 0.3 * y
    s, p = (2 * r / (1 + r) for r in _fresnel(np.cos(incidence)))
    scene: np.ndarray = (1 - (s + p) / 2)[..., np.newaxis] * interior
    mirrored = street * (s + p) / 2
    scene += polarized(mirrored, (s - p) / (s + p), normal)
    # Light from the interior is polarized at right angles to the reflection when it leaves the glass.
    scene[..., 1] -= interior[..., 0] * (s - p) / 2 * np.cos(2 * normal)
    scene[..., 2] -= interior[..., 0] * (s - p) / 2 * np.sin(2 * normal)
    # Painted bars between the panes.
    to_bar = np.minimum(abs((2.5 * x) % 1 - 0.5), abs((2.5 * y + 0.5) % 1 - 0.5))
    bar = np.clip(0.5 + min(size) * (0.03 - to_bar) / 2.5, 0, 1)[..., np.newaxis]
    paint = 0.55 * (1 + 0.06 * _texture(size, seed + 70)) * np.ones(interior.shape[2], np.float32)
    scene += bar * (polarized(paint, np.float32(0.04), np.float32(np.pi / 2)) - scene)
    return scene


_BUILD: Dict[str, Callable[[Size, int, float, bool], np.ndarray]] = {
    "spheres": _spheres,
    "plastic": _plastic,
    "window": _window,
}
#: Names of the scenes.
SCENES: Tuple[str, ...] = tuple(_BUILD)


def synthetic(name: str, shape: Size, seed: int = 0, time: float = 0.0, is_color: bool = False) -> np.ndarray:
    """Draw a scene as the sensor's pixels see it.

    Args:
        name: One of `SCENES`.
        shape: (height, width) in pixels.
        seed: Picks the scene's details.
        time: Seconds; things move.
        is_color: RGB instead of one channel.

    Returns:
        Stokes vectors float32, (H, W, 3), or (H, W, 3, 3) with RGB as axis 2. S0 lies in [0, 2], where 1 behind the
        polarizer is full scale; lamps saturate.

    Raises:
        ValueError: The scene does not exist.
    """
    if name not in _BUILD:
        raise ValueError(f"scene must be one of {', '.join(SCENES)}, got {name!r}")
    scene = _BUILD[name]((int(shape[0]), int(shape[1])), seed, time, is_color).astype(np.float32)
    planes = scene.reshape(*scene.shape[:2], -1)
    blurred = [cv2.GaussianBlur(planes[..., k], (7, 7), LENS_SIGMA) for k in range(planes.shape[2])]
    scene = np.dstack(blurred).reshape(scene.shape)
    scene *= np.minimum(1, 2 / np.maximum(scene[..., :1], 1e-6))
    return scene if is_color else scene[:, :, 0]


def behind_polarizers(stokes: np.ndarray) -> np.ndarray:
    """(..., 3) Stokes vectors -> (4, ...), what passes each of `ANGLES`."""
    theta = 2 * np.deg2rad(ANGLES)
    return np.stack([(stokes @ np.array([1, np.cos(t), np.sin(t)])) / 2 for t in theta])


def sample_mosaic(angles: np.ndarray, sensor: Sensor) -> np.ndarray:
    """Four full angle images -> the mosaic, for measuring a demosaic against truth.

    Args:
        angles: (4, H, W) in the order of `ANGLES`, or (4, H, W, 3) RGB for a color sensor; any type.
        sensor: The mosaic.

    Returns:
        (H, W) of the same type.
    """
    mosaic = np.empty(angles.shape[1:3], angles.dtype)
    for row in range(sensor.period):
        for column in range(sensor.period):
            site = (slice(row, None, sensor.period), slice(column, None, sensor.period))
            plane = angles[sensor.angle_index(row, column)]
            mosaic[site] = plane[site] if not sensor.is_color else plane[site][..., sensor.color_index(row, column)]
    return mosaic
