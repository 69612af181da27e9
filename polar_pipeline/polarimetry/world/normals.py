"""Candidates of surface normals from DoLP and AoLP."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, Optional, Tuple

import numpy as np

from polar_pipeline._util.values import choice
from polar_pipeline.polarimetry.world.fresnel import diffuse_zenith, specular_zeniths
from polar_pipeline.polarimetry.world.light import Images, measured_light
from polar_pipeline.polarimetry.world.rays import checked_rays, turned

#: Model of reflection -> names of its zenith angles, names of its azimuths with their degrees from AoLP.
MODELS: Dict[str, Tuple[Tuple[str, ...], Dict[str, float]]] = {
    "diffuse": (("zenith",), {"aolp": 0.0, "aolp+180": 180.0}),
    "specular": (("below_brewster", "above_brewster"), {"aolp+90": 90.0, "aolp-90": -90.0}),
}


@dataclass(frozen=True, eq=False)
class NormalCandidates:
    """Normals that explain an image: each zenith angle with each azimuth. All images are (H, W) float64 in rad.

    Attributes:
        zenith: Name -> angle between the normal and the viewing ray, 0 to pi/2. NaN where invalid, and where DoLP
            exceeds what the model allows at the refractive index: the model, the index, or both are wrong there.
        zenith_sigma: Name -> standard deviation of `zenith`: half of its change from one deviation of DoLP below to one
            above. NaN without `dolp_sigma`.
        azimuth: Name -> direction of the normal across the viewing ray, 0 to 2 pi, counter-clockwise from the image's
            x axis.
        azimuth_sigma: Standard deviation of every azimuth: that of AoLP. NaN without `aolp_sigma`.
        rays: Viewing rays (H, W, 3), or (3,) for one of all pixels.
    """

    zenith: Dict[str, np.ndarray]
    zenith_sigma: Dict[str, np.ndarray]
    azimuth: Dict[str, np.ndarray]
    azimuth_sigma: np.ndarray
    rays: np.ndarray

    def normal(self, zenith: str, azimuth: str) -> np.ndarray:
        """Compute the normals of one candidate.

        Args:
            zenith: A name in `zenith`.
            azimuth: A name in `azimuth`.

        Returns:
            (H, W, 3) unit vectors in the camera's axes, toward the camera; NaN where not defined.

        Raises:
            KeyError: A name is not among the candidates.
        """
        tilt, turn = self.zenith[zenith], self.azimuth[azimuth]
        sine = np.sin(tilt)
        return turned(np.stack([sine * np.cos(turn), -sine * np.sin(turn), -np.cos(tilt)], -1), self.rays)


def normal_candidates(
    images: Images, model: str = "diffuse", refractive_index: float = 1.5, rays: Optional[np.ndarray] = None
) -> NormalCandidates:
    """Compute the surface normals that explain DoLP and AoLP of a smooth dielectric.

    Args:
        images: Products `dolp` and `aolp`, or `stokes`, with `dolp_sigma` and `aolp_sigma` for standard deviations; or
            a Stokes image (H, W, 3).
        model: `diffuse`: light scattered inside the material; one zenith angle, `zenith`, and the azimuths `aolp` and
            `aolp+180`. `specular`: reflected unpolarized light; two zenith angles, `below_brewster` and
            `above_brewster`, and the azimuths `aolp+90` and `aolp-90`.
        refractive_index: Index of the material, 1.01 to 10.
        rays: `viewing_rays` of the images; None for a view along the optical axis in every pixel.

    Raises:
        ValueError: Products are missing, not of floats or of different shapes; or the model is unknown, the index out
            of range, or the shape of the rays another one.
    """
    zeniths, azimuths = MODELS[choice("model", model, tuple(MODELS))]
    light = measured_light(images)
    directions = checked_rays(rays, light.dolp.shape)

    def solve(dolp: np.ndarray) -> Tuple[np.ndarray, ...]:
        if model == "specular":
            return specular_zeniths(dolp, refractive_index)
        return (diffuse_zenith(dolp, refractive_index),)

    angles = solve(light.dolp)
    highest = 1.0 if model == "specular" else (refractive_index**2 - 1) / (refractive_index**2 + 1)
    lower, upper = (solve(np.clip(light.dolp + side * light.dolp_sigma, 0, highest * (1 - 1e-12))) for side in (-1, 1))
    sigmas = (np.where(np.isnan(angle), np.nan, np.abs(b - a) / 2) for angle, a, b in zip(angles, lower, upper))
    return NormalCandidates(
        dict(zip(zeniths, angles)),
        dict(zip(zeniths, sigmas)),
        {name: (light.aolp + np.deg2rad(turn)) % (2 * np.pi) for name, turn in azimuths.items()},
        np.full(light.aolp.shape, np.nan) if light.aolp_sigma is None else light.aolp_sigma,
        directions,
    )
