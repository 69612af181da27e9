"""Polarized light of surfaces and skies from first principles, as an oracle of `polar_pipeline.polarimetry.world`.

Amplitudes come from the continuity of fields at a boundary, E in space is kept as a (3, 3) coherency matrix, and a lens
turns this matrix onto the optical axis by the formula of Rodrigues. Nothing is taken from the package.
"""

from __future__ import annotations

from typing import Tuple

import numpy as np


def amplitudes(sine: np.ndarray, outer: float, inner: float) -> Tuple[np.ndarray, np.ndarray]:
    """Amplitudes at a boundary from the index `outer`, where the light comes from, to `inner`.

    With E across the plane of incidence, E and H along the boundary are continuous: 1 + r = t and
    outer cos a (1 - r) = inner cos b t. With E in the plane: outer (1 + r) = inner t and cos a (1 - r) = cos b t.

    Returns:
        (..., 2) reflected and transmitted power, for E across and in the plane.
    """
    first = np.sqrt(1 - sine**2)
    second = np.sqrt(1 - (outer / inner * sine) ** 2)
    one = np.ones_like(first)
    across = [[one, -one], [-outer * first, -inner * second]], [-one, -outer * first]
    within = [[outer * one, -inner * one], [-first, -second]], [-outer * one, -first]
    powers = []
    for matrix, right in (across, within):
        a, b = np.moveaxis(np.array(matrix), (0, 1), (-2, -1)), np.moveaxis(np.array(right), 0, -1)
        r, t = np.moveaxis(np.linalg.solve(a, b[..., np.newaxis])[..., 0], -1, 0)
        powers.append((r**2, t**2 * inner * second / (outer * first)))
    (reflected_s, passed_s), (reflected_p, passed_p) = powers
    return np.stack([reflected_s, reflected_p], -1), np.stack([passed_s, passed_p], -1)


def powers(zenith: np.ndarray, index: float, model: str) -> np.ndarray:
    """(..., 2) light toward a viewer at this angle from the normal, with E across and in the plane of incidence."""
    sine = np.sin(zenith)
    return amplitudes(sine, 1.0, index)[0] if model == "specular" else amplitudes(sine / index, index, 1.0)[1]


def degree(zenith: np.ndarray, index: float, model: str) -> np.ndarray:
    s, p = np.moveaxis(powers(zenith, index, model), -1, 0)
    return np.abs(s - p) / (s + p)


def onto_axis(rays: np.ndarray) -> np.ndarray:
    """(..., 3, 3) rotations from rays to the optical axis about their common perpendicular."""
    axis = np.cross(rays, [0.0, 0.0, 1.0])
    sine = np.linalg.norm(axis, axis=-1)[..., np.newaxis, np.newaxis]
    angle = np.arctan2(sine, rays[..., 2, np.newaxis, np.newaxis])
    x, y, z = np.moveaxis(axis / np.maximum(sine[..., 0], 1e-300), -1, 0)
    zero = np.zeros_like(x)
    cross = np.moveaxis(np.array([[zero, -z, y], [z, zero, -x], [-y, x, zero]]), (0, 1), (-2, -1))
    return np.eye(3) + np.sin(angle) * cross + (1 - np.cos(angle)) * cross @ cross


def seen(coherency: np.ndarray, rays: np.ndarray) -> np.ndarray:
    """(..., 3, 3) coherency matrices of light along rays -> (..., 3) Stokes vectors at the sensor, y upwards."""
    turn = onto_axis(rays)
    flat = turn @ coherency @ np.swapaxes(turn, -1, -2)
    xx, yy, xy = flat[..., 0, 0], flat[..., 1, 1], flat[..., 0, 1]
    return np.stack([xx + yy, xx - yy, -2 * xy], -1)


def outer(vectors: np.ndarray) -> np.ndarray:
    return vectors[..., :, np.newaxis] * vectors[..., np.newaxis, :]


def surface(normals: np.ndarray, rays: np.ndarray, index: float, model: str) -> np.ndarray:
    """(..., 3) normals and rays -> Stokes vectors of S0 1; NaN where no surface is, or it is seen from behind."""
    rays = np.broadcast_to(rays, normals.shape)
    across = np.cross(rays, normals)
    length = np.linalg.norm(across, axis=-1, keepdims=True)
    across = np.where(length > 0, across / np.maximum(length, 1e-300), np.cross(rays, [0.0, 1.0, 0.0]))
    zenith = np.arctan2(length[..., 0], -np.sum(rays * normals, -1))
    s, p = np.moveaxis(powers(np.where(zenith < np.pi / 2, zenith, np.nan), index, model), -1, 0)[..., None, None]
    light = seen(s * outer(across) + p * outer(np.cross(across, rays)), rays)
    return light / light[..., :1]


def rayleigh(rays: np.ndarray, sun: np.ndarray, highest: float, rotation: np.ndarray) -> np.ndarray:
    """Stokes vectors of S0 1 of a sky of dipoles in unpolarized sunlight.

    Args:
        rays: (..., 3) viewing rays in the camera's axes.
        sun: (3,) its direction in level axes.
        highest: DoLP at 90 degrees from the sun; the rest there is unpolarized.
        rotation: (3, 3) from the camera's axes to level axes.
    """
    sun = sun @ rotation  # in the camera's axes
    first = np.cross(sun, [0.3, -0.5, 0.8])
    first /= np.linalg.norm(first)
    coherency = np.zeros((*rays.shape, 3))
    for field in (first, np.cross(sun, first)):  # each drives dipoles along itself
        coherency += outer(field - np.sum(field * rays, -1, keepdims=True) * rays)
    share = (1 / highest - 1) / 2
    light = seen(coherency + share * (np.eye(3) - outer(rays)), rays)
    return light / light[..., :1]


def singular(
    rays: np.ndarray, sun: Tuple[float, float], split: float, highest: float, rotation: np.ndarray
) -> np.ndarray:
    """Stokes vectors of S0 1 of a sky with four neutral points.

    Berry, Dennis and Lee: Polarization singularities in the clear sky, New Journal of Physics 6, 162, 2004: in
    stereographic coordinates z = tan(zenith angle / 2) exp(i azimuth) the field is a product with a zero at each
    neutral point, scaled to 1 at 90 degrees from the sun. Half its phase is the direction of E in these coordinates,
    which keep angles.

    Args:
        rays: (..., 3) viewing rays in the camera's axes.
        sun: Azimuth and elevation in degrees.
        split: Degrees between the neutral points above and below the sun; as many are between those of the antisun.
        highest: DoLP where the field is 1.
        rotation: (3, 3) from the camera's axes to level axes.
    """
    azimuth, elevation = np.radians(sun)
    x, y, up = np.moveaxis(rays @ rotation.T, -1, 0)
    z = (x + 1j * y) / (1 + up)
    babinet, brewster = (
        np.tan((np.pi / 2 - elevation - half) / 2) * np.exp(1j * azimuth)
        for half in (np.radians(split) / 2, -np.radians(split) / 2)
    )
    fourth, arago = -1 / np.conj(babinet), -1 / np.conj(brewster)
    field = -4 * (z - babinet) * (z - brewster) * (z - arago) * (z - fourth) * np.exp(-2j * azimuth)
    field /= (1 + np.abs(z) ** 2) ** 2 * np.abs(babinet - fourth) * np.abs(brewster - arago)
    degree = highest * np.abs(field) / (2 - np.abs(field))
    # A step along exp(i phase / 2) from each ray, in the coordinates, gives E on the sphere.
    step = 1e-6 * (1 + np.abs(z) ** 2) * np.exp(0.5j * np.angle(field))
    ends = [np.stack([2 * end.real, 2 * end.imag, 1 - np.abs(end) ** 2], -1) for end in (z - step, z + step)]
    start, end = (point / np.linalg.norm(point, axis=-1, keepdims=True) for point in ends)
    electric = (end - start) @ rotation
    electric /= np.linalg.norm(electric, axis=-1, keepdims=True)
    flat = np.eye(3) - outer(rays)
    degree = degree[..., np.newaxis, np.newaxis]
    return seen(degree * outer(electric) + (1 - degree) / 2 * flat, rays)


def molecular(rays: np.ndarray, sun: np.ndarray, thickness: float, rotation: np.ndarray) -> np.ndarray:
    """Stokes vectors of S0 1 of air without aerosol above black ground, with all orders of scattering.

    Every molecule is driven by the coherency of all light at its height, and sends what is across the direction.

    Args:
        rays: (..., 3) viewing rays in the camera's axes, above the horizon.
        sun: (3,) its direction in level axes.
        thickness: Optical thickness of the air: 0.1 for red, 0.24 for blue light.
        rotation: (3, 3) from the camera's axes to level axes.
    """
    layers, (nodes, shares) = 20, np.polynomial.legendre.leggauss(16)
    edges = np.linspace(0, thickness, layers + 1)
    depth = (edges[:-1] + edges[1:]) / 2
    cosines, shares, turns = (nodes + 1) / 2, shares / 2, 2 * np.pi * np.arange(16) / 16
    direct = 3 / (8 * np.pi) * np.exp(-depth / sun[2])[:, np.newaxis, np.newaxis] * (np.eye(3) - outer(sun))
    exchange = []  # (layers to, layers from), and (16, 3, 3) projections along rays, for each slant
    for cosine, share in zip(cosines, shares):
        # Transmittance from both edges of the layer where light comes from; a layer sees half of itself either way.
        paths = np.exp(-np.abs(depth[:, np.newaxis] - edges) / cosine)
        passed = np.abs(np.diff(paths))
        np.fill_diagonal(passed, 1 - paths.diagonal())
        sine = np.sqrt(1 - cosine**2)
        for sign, above in ((1, np.tri(layers)), (-1, np.tri(layers).T)):
            around = np.stack([sine * np.cos(turns), sine * np.sin(turns), 0 * turns + sign * cosine], -1)
            exchange.append((3 / 4 * share * passed * above, np.eye(3) - outer(around)))
    dipoles = direct
    for _ in range(20):  # orders of scattering: each is weaker than the one before by a factor of 3 or more
        light = direct.copy()
        for passed, flat in exchange:
            sent = np.einsum("pab,jbc,pcd->jad", flat, dipoles, flat, optimize=True) / len(turns)
            light += np.einsum("ij,jab->iab", passed, sent)
        dipoles = light
    up = (rays @ rotation.T)[..., 2, np.newaxis]
    weights = np.diff(np.exp((edges - thickness) / up), axis=-1)
    coherency = rotation.T @ np.einsum("...j,jab->...ab", weights, dipoles) @ rotation
    flat = np.eye(3) - outer(rays)
    light = seen(flat @ coherency @ flat, rays)
    return light / light[..., :1]


def sphere(size: int, radius: float) -> np.ndarray:
    """(size, size, 3) normals toward the camera of a sphere seen along the optical axis; NaN outside."""
    y, x = (np.mgrid[:size, :size] - (size - 1) / 2) / (radius * size / 2)
    square = x * x + y * y
    z = np.sqrt(np.where(square < 1, 1 - square, np.nan))
    return np.stack([x + 0 * z, y + 0 * z, -z], -1)


def sphere_before_rays(rays: np.ndarray, center: np.ndarray, radius: float) -> np.ndarray:
    """Normals of a sphere where rays from the origin first hit it; NaN elsewhere."""
    along = rays @ center
    gap = along**2 - center @ center + radius**2
    distance = along - np.sqrt(np.where(gap > 0, gap, np.nan))
    return (distance[..., np.newaxis] * rays - center) / radius


def between(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Degrees between unit vectors, precise for small angles."""
    cross = np.linalg.norm(np.cross(first, second), axis=-1)
    return np.degrees(np.arctan2(cross, np.sum(first * second, -1)))
