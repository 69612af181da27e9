"""The sun found in simulated skies: through the pipeline, tilted, cloudy, and with its deviations."""

from __future__ import annotations

from typing import Any, Dict, List, Optional

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rendering import molecular, rayleigh, singular

from polar_pipeline import Pipeline
from polar_pipeline.geometry import LensCalibration, make_lens
from polar_pipeline.polarimetry.world import SunFit, sky_compass, viewing_rays
from polar_pipeline.sensor.forward import expose
from polar_pipeline.sensor.mosaic import SENSORS

SENSOR = SENSORS["IMX250MZR"]
#: Rows and columns of the raw frames, twice those of the images.
SIDE = 256
PRODUCTS = "dolp,aolp,dolp_sigma,aolp_sigma"


def lens_of(view: float) -> LensCalibration:
    """A fisheye lens with this field of view in degrees."""
    focal, center = SIDE / np.radians(view), (SIDE - 1) / 2
    k = (focal, 0, center, 0, focal, center, 0, 0, 1)
    return make_lens((SIDE, SIDE), "equidistant", (0.0,) * 4, k, (0.0,) * 9, (0.0,) * 12)


def tilted(tilt: float, toward: float) -> np.ndarray:
    """Rotation to level axes of a camera that looks `tilt` degrees from the zenith, toward an azimuth."""
    c, s, e, f = (g(np.radians(a)) for a in (tilt, toward) for g in (np.cos, np.sin))
    about = np.array([[e, -f, 0], [f, e, 0], [0, 0, 1.0]])
    return about @ np.array([[c, 0, s], [0, 1, 0], [-s, 0, c]]) @ about.T


def direction(azimuth: float, elevation: float) -> np.ndarray:
    a, e = np.radians([azimuth, elevation])
    return np.array([np.cos(e) * np.cos(a), np.cos(e) * np.sin(a), np.sin(e)])


def off(fit: SunFit, azimuth: float, candidate: int = 0) -> float:
    """Degrees from the true azimuth to a candidate."""
    return float((np.degrees(fit.azimuths[candidate]) - azimuth + 180) % 360 - 180)


def clouds(seed: int) -> np.ndarray:
    """(SIDE, SIDE) cover, 0 to 1, of a third of the sky, in soft patches."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:SIDE, :SIDE]
    cover = np.zeros((SIDE, SIDE))
    for cx, cy, radius in rng.uniform([0, 0, 20], [SIDE, SIDE, 45], (9, 3)):
        cover = np.maximum(cover, np.clip(2 - 2 * np.hypot(x - cx, y - cy) / radius, 0, 1))
    return cover


def sky(
    view: float, sun: np.ndarray, rotation: np.ndarray, cover: Optional[np.ndarray] = None, highest: float = 0.7
) -> np.ndarray:
    """Stokes vectors of a sky at the raw pixels, with unpolarized clouds that are twice as bright."""
    light = 0.7 * rayleigh(viewing_rays(lens_of(view), (SIDE, SIDE)), sun, highest, rotation)
    if cover is not None:
        light = light * (1 - cover[..., np.newaxis])
        light[..., 0] += 1.4 * cover
    return light


def fits(light: np.ndarray, view: float, rotation: np.ndarray, count: int, **options: Any) -> List[SunFit]:
    """What several noisy frames of a sky give."""
    rng = np.random.default_rng(5)
    rays = viewing_rays(lens_of(view), (SIDE // 2, SIDE // 2), 2)
    with Pipeline(products=PRODUCTS, bit_depth=12, backend="cpu", resolution="half") as pipeline:
        frames = (expose(light, SENSOR, 12, SENSOR.full_well, SENSOR.read_noise, rng) for _ in range(count))
        return [sky_compass(pipeline(frame), rays, rotation, **{"min_dolp": 0.2, **options}) for frame in frames]


@pytest.mark.parametrize("view", [60, 110, 170])
@pytest.mark.parametrize(("azimuth", "elevation", "tilt"), [(20, 5, 0), (130, 35, 20), (-100, 50, 10), (-20, 25, 20)])
@pytest.mark.parametrize("is_known", [False, True])
def test_the_sun_is_found(view: float, azimuth: float, elevation: float, tilt: float, is_known: bool) -> None:
    """Behind masked clouds, in a frame with noise: the heading within 0.3 degrees."""
    rotation, cover = tilted(tilt, 70), clouds(round(azimuth) % 360)
    light = sky(view, direction(azimuth, elevation), rotation, cover)
    known = np.radians(elevation) if is_known else None
    mask = cover[::2, ::2] == 0
    (fit,) = fits(light, view, rotation, 1, mask=mask, elevation=known)
    assert abs(off(fit, azimuth)) < 0.3
    assert off(fit, azimuth + 180, 1) == pytest.approx(off(fit, azimuth), abs=1e-9)
    assert np.degrees(fit.azimuth_sigma) < 0.1
    assert np.degrees(fit.elevation) == pytest.approx(elevation, abs=0.3 if known is None else 1e-9)
    assert (fit.elevation_sigma == 0) == is_known
    assert np.isnan(fit.angles[~mask]).all()
    assert np.nanmedian(np.abs(fit.angles)) == pytest.approx(fit.residuals[0])
    if is_known:
        assert fit.residuals[1] > 2 * fit.residuals[0], "the elevation tells which azimuth it is"
    else:
        assert fit.residuals[1] == pytest.approx(fit.residuals[0])


@pytest.mark.parametrize("is_known", [False, True])
def test_clouds_without_a_mask(is_known: bool) -> None:
    """Their low DoLP, and the residuals of their borders, reject them."""
    rotation, (azimuth, elevation) = tilted(20, 200), (75, 30)
    light = sky(110, direction(azimuth, elevation), rotation, clouds(3))
    (fit,) = fits(light, 110, rotation, 1, elevation=np.radians(elevation) if is_known else None)
    assert abs(off(fit, azimuth)) < 0.3
    assert 0.2 < np.isnan(fit.angles).mean() < 0.6


def test_polarized_things_without_a_mask() -> None:
    """A tenth of the picture, polarized in another direction, is rejected."""
    rotation, (azimuth, elevation) = tilted(10, 200), (75, 30)
    light = sky(110, direction(azimuth, elevation), rotation)
    light[:80, :80] = [0.7, 0.2, 0.2]
    (fit,) = fits(light, 110, rotation, 1)
    assert abs(off(fit, azimuth)) < 0.3


@pytest.mark.parametrize(
    ("view", "azimuth", "elevation", "is_known", "has_sigma"),
    [(60, 50, 35, False, True), (170, 110, 10, False, True), (170, 110, 55, True, True), (60, 50, 35, False, False)],
)
def test_deviations_are_those_of_noise(
    view: float, azimuth: float, elevation: float, is_known: bool, has_sigma: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within 20 % of the spread over noisy frames, which the demosaic correlates between pixels; with clouds masked."""
    rotation, cover = tilted(20, -30), clouds(8)
    known = np.radians(elevation) if is_known else None
    light = sky(view, direction(azimuth, elevation), rotation, cover)
    if not has_sigma:
        monkeypatch.setitem(globals(), "PRODUCTS", "dolp,aolp")
    found = fits(light, view, rotation, 80, mask=cover[::2, ::2] == 0, elevation=known)
    spread = np.std([off(fit, azimuth) for fit in found])
    assert np.median([np.degrees(fit.azimuth_sigma) for fit in found]) / spread == pytest.approx(1, abs=0.2)
    assert abs(np.mean([off(fit, azimuth) for fit in found])) < 0.5 * spread + 0.005
    if not is_known:
        spread = np.std([np.degrees(fit.elevation) for fit in found])
        assert np.median([np.degrees(fit.elevation_sigma) for fit in found]) / spread == pytest.approx(1, abs=0.2)


def test_the_oracles_meet() -> None:
    """Neutral points that merge give Rayleigh's sky; thin air does nearly, and other air splits them above the sun."""
    rotation, sun = tilted(15, 70), (40.0, 35.0)
    single = rayleigh(RAYS, direction(*sun), 1.0, rotation)
    np.testing.assert_allclose(singular(RAYS, sun, 0, 1.0, rotation), single, atol=1e-8)
    np.testing.assert_allclose(molecular(RAYS, direction(*sun), 1e-4, rotation), single, atol=2e-3)
    for babinet in (sun[1] + 15, sun[1] - 15):
        neutral = direction(sun[0], babinet) @ rotation
        assert np.abs(singular(neutral, sun, 30, 1.0, rotation)[1:]).max() < 1e-6
    over = np.stack([direction(40, height) for height in np.arange(10, 80, 0.25)])
    polarized = molecular(over, direction(*sun), 0.1, np.eye(3))[:, 1:]
    least = np.sort(np.arange(10, 80, 0.25)[np.argsort(np.hypot(*polarized.T))][:8])
    assert least[0] < 22 < 45 < least[-1], "on both sides of the sun"


@pytest.mark.parametrize(
    ("view", "elevation", "split", "light", "is_known", "error"),
    [
        (40, 50, 45, 1.0, False, 0.45),
        (40, 30, 45, 1.0, True, 0.05),
        (40, 50, 0, 1.0, True, 0.2),
        (40, 50, 10, 1.0, True, 0.25),
        (110, 30, 30, 1.0, False, 0.02),
        (15, 30, 30, 0.05, False, 0.25),
        (15, 30, 30, 0.05, True, 0.25),
    ],
)
def test_deviations_hold_where_neutral_points_are_apart(
    view: float, elevation: float, split: float, light: float, is_known: bool, error: float
) -> None:
    """Azimuths spread by their deviation, in bright and dim light, and have no bias; elevations have a stated one.

    The spread of 40 frames is known to 11 %. Where neutral points are 10 degrees apart, the term is 1.5 times its
    deviation, so that many images do not show it. Rules that drop or shrink such a term err by 0.3 to 0.4 degrees.
    """
    azimuth, rotation = 40.0, tilted(25, 85)
    rays = viewing_rays(lens_of(view), (SIDE, SIDE))
    stokes = 0.7 * light * singular(rays, (azimuth, elevation), split, 0.7, rotation)
    known, min_dolp = np.radians(elevation) if is_known else None, 0.2 if light == 1 else 0.1
    results = fits(stokes, view, rotation, 40, elevation=known, min_dolp=min_dolp)
    spread = np.sqrt(np.mean([off(fit, azimuth) ** 2 for fit in results]))
    assert spread < error
    assert np.median([np.degrees(fit.azimuth_sigma) for fit in results]) / spread == pytest.approx(1, abs=0.3)
    if is_known:
        assert {(fit.elevation, fit.elevation_sigma) for fit in results} == {(known, 0.0)}
    else:
        heights = [(fit.elevation - np.radians(elevation)) / fit.elevation_sigma for fit in results]
        assert 0.5 < np.sqrt(np.mean(np.square(heights))) < 1.2


@pytest.mark.parametrize(
    ("view", "elevation", "thickness"), [(40, 10, 0.1), (40, 30, 0.3), (40, 50, 0.3), (110, 30, 0.3), (110, 60, 0.1)]
)
def test_air_that_scatters_several_times(view: float, elevation: float, thickness: float) -> None:
    """Computed from molecules; with known elevation, Rayleigh's sky alone would give azimuths off by a degree."""
    rays, rotation = viewing_rays(lens_of(view), (SIDE // 2, SIDE // 2), 2)[::2, ::2], tilted(25, 85)
    is_high = rays @ rotation[2] > np.sin(np.radians(5))
    rays[~is_high] = np.nan
    light = np.zeros_like(rays)
    light[is_high] = molecular(rays[is_high], direction(40, elevation), thickness, rotation)
    free, known = (sky_compass(light, rays, rotation, elevation=given) for given in (None, np.radians(elevation)))
    assert abs(off(free, 40)) < 0.05
    assert abs(off(known, 40)) < 0.05
    assert free.elevation == pytest.approx(np.radians(elevation), abs=1.5 * free.elevation_sigma)


def test_pixels_without_polarization_do_not_count() -> None:
    """Also where they are the most, as with `debias`, and DoLP has no limit."""
    light = rayleigh(RAYS, direction(40, 20), 0.7, np.eye(3))
    light[:80, :, 1:] = 0
    fit = sky_compass(light, RAYS, np.eye(3), min_dolp=0)
    assert off(fit, 40) == pytest.approx(0, abs=1e-6)
    assert np.isnan(fit.angles[:80]).all()


def test_without_deviations_weights_follow_dolp(monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind haze in three quarters of the sky, where AoLP is uncertain, the fit is hardly less precise."""
    rotation = tilted(10, 0)
    haze = np.where(np.arange(SIDE) < SIDE * 3 // 4, 0.9, 0.0) * np.ones((SIDE, SIDE))
    light = sky(170, direction(60, 40), rotation, haze)
    (with_sigma,) = fits(light, 170, rotation, 1, min_dolp=0.01)
    monkeypatch.setitem(globals(), "PRODUCTS", "dolp,aolp")
    (without,) = fits(light, 170, rotation, 1, min_dolp=0.01)
    assert without.azimuth_sigma < 1.1 * with_sigma.azimuth_sigma
    assert without.azimuth_sigma != with_sigma.azimuth_sigma


RAYS = viewing_rays(lens_of(120), (SIDE // 2, SIDE // 2), 2)


@given(st.floats(-179, 179), st.floats(2, 80), st.floats(0, 20), st.floats(-180, 180))
def test_without_noise_the_sun_is_exact(azimuth: float, elevation: float, tilt: float, toward: float) -> None:
    rotation = tilted(tilt, toward)
    fit = sky_compass(rayleigh(RAYS, direction(azimuth, elevation), 0.8, rotation), RAYS, rotation)
    assert abs(off(fit, azimuth)) < 1e-5
    assert np.degrees(fit.elevation) == pytest.approx(elevation, abs=1e-5)


def test_gravity_gives_azimuths_from_the_cameras_x_axis() -> None:
    rotation = tilted(15, 0)  # nods about its y axis: its x stays above the level x
    light = rayleigh(RAYS, direction(40, 20), 0.7, rotation)
    fit = sky_compass(light, RAYS, -9.81 * rotation[2])
    assert off(fit, 40) == pytest.approx(0, abs=1e-6)
    with pytest.raises(ValueError, match="gravity along the camera's x axis"):
        sky_compass(light, RAYS, np.array([1.0, 0, 0]))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mask": np.ones((128, 128))}, "mask must be an array of bool, got float64"),
        ({"mask": np.ones((3, 3), bool)}, "mask must have the shape"),
        ({"mask": np.arange(128) % np.ones((128, 128)) > 1}, "needs polarized sky in at least 12 squares"),
        ({"min_dolp": 0.9}, "needs polarized sky in at least 12 squares"),
        ({"min_dolp": 1.5}, r"min_dolp must be in \[0, 1\]"),
        ({"elevation": 90}, "elevation must be in"),
        ({"attitude": np.zeros((3, 3))}, "attitude must be"),
        ({"rays": RAYS[1:]}, "rays must have the shape"),
        ({"rays": None}, r"rays must be the viewing rays of the images \(viewing_rays\), got None"),
        ({"rays": RAYS.tolist()}, "rays must be an array of floats"),
        ({"rays": 2 * RAYS}, "rays must be unit vectors from the camera to the scene"),
        ({"rays": np.zeros_like(RAYS)}, "rays must be unit vectors from the camera to the scene"),
        ({"rays": np.full_like(RAYS, np.nan)}, "rays must be unit vectors from the camera to the scene"),
        ({"rays": -RAYS}, "rays must be unit vectors from the camera to the scene"),
        ({"mask": np.ones((128, 128), bool).tolist()}, "mask must be an array of bool, got "),
        ({"attitude": None}, "attitude must be"),
    ],
)
def test_options_are_checked(options: Dict[str, Any], message: str) -> None:
    light = rayleigh(RAYS, direction(40, 20), 0.7, np.eye(3))
    with pytest.raises(ValueError, match=message):
        sky_compass(light, **{"rays": RAYS, "attitude": np.eye(3), **options})


@pytest.mark.parametrize("is_known", [False, True])
def test_angles_that_are_not_of_a_sky_are_refused(is_known: bool) -> None:
    """Random AoLP is 45 degrees from any pattern, in the median; a fit among them finds no more than 1 degree less."""
    aolp = np.random.default_rng(1).uniform(0, np.pi, (SIDE // 2, SIDE // 2))
    with pytest.raises(
        ValueError, match=r"pattern of a clear sky by 4[3-5] degrees \(median\), at most 30 are allowed"
    ):
        sky_compass({"dolp": 0.5 + 0 * aolp, "aolp": aolp}, RAYS, np.eye(3), elevation=0.4 if is_known else None)


def test_pixels_without_a_ray_are_left_out() -> None:
    """As `viewing_rays` marks those outside of a lens model."""
    rays = RAYS.copy()
    rays[:40] = np.nan
    light = rayleigh(RAYS, direction(40, 20), 0.7, np.eye(3))
    light[:40, :, 1:] *= -1  # another direction there, which would turn the sun
    fit = sky_compass(light, rays, np.eye(3))
    assert off(fit, 40) == pytest.approx(0, abs=1e-6)
    assert np.isnan(fit.angles[:40]).all()
