"""Normals of rendered spheres and planes, their deviations against simulated noise, and the input of all functions."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any, Dict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rendering import between, degree, sphere, sphere_before_rays, surface
from support import representative

from polar_pipeline import Pipeline
from polar_pipeline.geometry import make_lens
from polar_pipeline.polarimetry.world import (
    NormalCandidates,
    horizon_angle,
    normal_candidates,
    sky_compass,
    viewing_rays,
)
from polar_pipeline.sensor.forward import expose
from polar_pipeline.sensor.mosaic import SENSORS

AXIS = np.array([0.0, 0.0, 1.0])
MODELS, INDICES = ("diffuse", "specular"), (1.3, 1.5, 1.7)
#: IMX250MZR with more noise.
FULL_WELL, READ_NOISE = 10_000.0, 2.4
SENSOR = replace(SENSORS["IMX250MZR"], full_well=FULL_WELL, read_noise=READ_NOISE)
NAMES = {
    "diffuse": [("zenith", "aolp"), ("zenith", "aolp+180")],
    "specular": [(z, a) for z in ("below_brewster", "above_brewster") for a in ("aolp+90", "aolp-90")],
}


def errors(candidates: NormalCandidates, normals: np.ndarray) -> np.ndarray:
    """Degrees from the nearest candidate."""
    pairs = [(zenith, azimuth) for zenith in candidates.zenith for azimuth in candidates.azimuth]
    return np.min([between(candidates.normal(*pair), normals) for pair in pairs], 0)


def nearest(images: Dict[str, np.ndarray], wanted: np.ndarray, period: float) -> np.ndarray:
    """Differences of the nearest image from wanted angles in rad."""
    differences = np.array([(image - wanted + period / 2) % period - period / 2 for image in images.values()])
    return np.take_along_axis(differences, np.abs(differences).argmin(0)[np.newaxis], 0)[0]


@pytest.mark.parametrize("index", INDICES)
@pytest.mark.parametrize("model", MODELS)
def test_a_sphere(model: str, index: float) -> None:
    """Without noise every normal is a candidate, by zenith, azimuth and vector; names tell which."""
    normals = sphere(101, 0.95)
    candidates = normal_candidates(surface(normals, AXIS, index, model), model, index)
    assert [(z, a) for z in candidates.zenith for a in candidates.azimuth] == NAMES[model]
    visible = np.isfinite(normals[..., 0])
    visible[50, 50] = False  # there is no azimuth at the center
    zenith, azimuth = np.arccos(-normals[..., 2]), np.arctan2(-normals[..., 1], normals[..., 0])
    names = ("zenith",) if model == "diffuse" else ("below_brewster", "above_brewster")
    expected = np.where(zenith < np.arctan(index), candidates.zenith[names[0]], candidates.zenith[names[-1]])
    assert np.degrees(np.abs(expected - zenith)[visible]).max() < 1e-4
    assert np.degrees(np.abs(nearest(candidates.azimuth, azimuth, 2 * np.pi))[visible]).max() < 1e-6
    assert errors(candidates, normals)[visible].max() < 1e-4
    assert np.isnan(candidates.zenith[names[0]][~np.isfinite(normals[..., 0])]).all()
    first, second = (candidates.normal(names[0], name) for name in candidates.azimuth)
    np.testing.assert_allclose(first[visible] * [-1, -1, 1], second[visible], atol=1e-9)


@pytest.mark.parametrize(("model", "index"), representative([*product(MODELS, INDICES)], lambda row: row))
def test_a_sphere_through_the_pipeline(model: str, index: float) -> None:
    """A mosaic of 16 bits without noise: zenith within 0.2 degrees where DoLP tells it, azimuth within 0.05."""
    size = 768
    normals = sphere(size, 0.95)
    light = np.nan_to_num(surface(normals, AXIS, index, model) * 0.9)
    raw = expose(light, SENSOR, 16)
    with Pipeline(sensor=SENSOR, products="dolp,aolp", bit_depth=16, backend="cpu", resolution="half") as pipeline:
        candidates = normal_candidates(pipeline(raw), model, index)
    blocks = normals.reshape(size // 2, 2, size // 2, 2, 3).mean((1, 3))
    blocks /= np.linalg.norm(blocks, axis=-1, keepdims=True)
    zenith, azimuth = np.arccos(-blocks[..., 2]), np.arctan2(-blocks[..., 1], blocks[..., 0])
    # Not the rim, where pixels see more than one zenith angle, the center, nor Brewster's angle.
    tells = (degree(zenith, index, model) > 0.02) & (zenith < np.radians(75))
    if model == "specular":
        tells &= np.abs(zenith - np.arctan(index)) > np.radians(4)
    assert tells.mean() > 0.25
    assert np.degrees(np.abs(nearest(candidates.zenith, zenith, 4.0)[tells])).max() < 0.2
    assert np.degrees(np.abs(nearest(candidates.azimuth, azimuth, 2 * np.pi)[tells])).max() < 0.05


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("thing", ["sphere", "plane"])
def test_a_wide_lens(model: str, thing: str) -> None:
    """With 60 degrees of view normals are exact by the viewing rays, and off by many degrees without them."""
    focal = 80 / np.tan(np.radians(30))
    d, k = (-0.2, 0.03, 0.002, -0.001, 0.0), (focal, 0, 79.5, 0, focal, 59.5, 0, 0, 1)
    rays = viewing_rays(make_lens((120, 160), "plumb_bob", d, k, (0.0,) * 9, (0.0,) * 12), (120, 160))
    plane = np.array([0.2, -0.6, -1.0]) / np.sqrt(1.4)
    normals = np.broadcast_to(plane, rays.shape)
    if thing == "sphere":
        normals = sphere_before_rays(rays, np.array([0.3, 0.1, 2.0]), 1.3)
    light = surface(normals, rays, 1.5, model)
    found = errors(normal_candidates(light, model, rays=rays), normals)
    assert np.nanmax(found) < 1e-6
    assert np.isfinite(found).mean() > 0.5
    wrong = errors(normal_candidates(light, model), normals)
    assert np.nanmax(wrong) > 20
    assert np.nanmedian(wrong) > 5


def raw_flat(degrees: float, angle: float, seed: int) -> np.ndarray:
    """A mosaic of one polarization with noise, 12 bits."""
    vector = np.array([1.0, degrees * np.cos(2 * angle), degrees * np.sin(2 * angle)])
    shape = (256, 256, 3)
    return expose(np.broadcast_to(vector, shape), SENSOR, 12, FULL_WELL, READ_NOISE, np.random.default_rng(seed))


@pytest.mark.parametrize("index", [1.3, 1.7])
@pytest.mark.parametrize(
    ("model", "name", "degrees"),
    [
        *(("diffuse", "zenith", zenith) for zenith in (45, 60, 75, 85)),
        *(("specular", "below_brewster", zenith) for zenith in (15, 30, 45)),
        *(("specular", "above_brewster", zenith) for zenith in (68, 75, 85)),
    ],
)
def test_deviations_are_those_of_noise(model: str, name: str, degrees: float, index: float) -> None:
    """Within 15 % of the spread of the pixels of noisy mosaics through the pipeline."""
    true = float(degree(np.radians(degrees), index, model))
    products = "dolp,aolp,dolp_sigma,aolp_sigma"
    with Pipeline(sensor=SENSOR, products=products, bit_depth=12, backend="cpu", resolution="half") as pipeline:
        candidates = normal_candidates(pipeline(raw_flat(true, 0.7, round(degrees))), model, index)
    inside = (slice(8, -8),) * 2
    zenith, azimuth = candidates.zenith[name][inside], next(iter(candidates.azimuth.values()))[inside]
    assert np.isfinite(zenith).all()
    assert np.median(candidates.zenith_sigma[name][inside]) / zenith.std() == pytest.approx(1, abs=0.15)
    assert np.median(candidates.azimuth_sigma[inside]) / azimuth.std() == pytest.approx(1, abs=0.15)
    assert abs(np.median(zenith) - np.radians(degrees)) < 0.2 * zenith.std(), "DoLP has a bias by noise"


@given(st.floats(0.0, 0.999), st.floats(0, 0.2), st.sampled_from(MODELS))
def test_deviations_are_finite_where_angles_are(dolp: float, sigma: float, model: str) -> None:
    """Even at DoLP 0 and at Brewster's angle, where the slope of the angle is infinite; NaN elsewhere."""
    image = np.full((1, 1), 1.0)
    images = {"dolp": dolp * image, "aolp": image, "dolp_sigma": sigma * image, "aolp_sigma": image}
    candidates = normal_candidates(images, model)
    for name, zenith in candidates.zenith.items():
        deviation = candidates.zenith_sigma[name]
        assert np.isfinite(deviation) == np.isfinite(zenith)
        assert not deviation < 0
        assert not deviation > np.pi / 4


def test_invalid_pixels_and_dolp_beyond_the_model_are_nan() -> None:
    stokes = np.array([[[1, 0.2, 0.0], [1, 0.5, 0], [0, 0, 0], [np.nan] * 3]], np.float32)
    candidates = normal_candidates(stokes)
    np.testing.assert_array_equal(np.isnan(candidates.zenith["zenith"]), [[False, True, True, True]])
    np.testing.assert_array_equal(np.isnan(candidates.azimuth["aolp"]), [[False, False, True, True]])
    np.testing.assert_array_equal(np.isnan(candidates.normal("zenith", "aolp")).all(-1), [[False, True, True, True]])
    assert np.isnan(candidates.zenith_sigma["zenith"]).all(), "without dolp_sigma"
    assert np.isnan(candidates.azimuth_sigma).all(), "without aolp_sigma"
    with pytest.raises(KeyError, match="below_brewster"):
        candidates.normal("below_brewster", "aolp")


def test_products_and_stokes_vectors_give_the_same() -> None:
    stokes = surface(sphere(40, 0.9), AXIS, 1.5, "diffuse")
    with_angles = {
        "dolp": np.hypot(stokes[..., 1], stokes[..., 2]) / stokes[..., 0],
        "aolp": np.arctan2(stokes[..., 2], stokes[..., 1]) / 2 % np.pi,
    }
    first, *others = (normal_candidates(images) for images in (stokes, {"stokes": stokes}, with_angles))
    for other in others:
        np.testing.assert_allclose(other.zenith["zenith"], first.zenith["zenith"], atol=1e-12)
        np.testing.assert_allclose(other.azimuth["aolp"], first.azimuth["aolp"], atol=1e-12)


IMAGE = np.zeros((4, 4), np.float32)


@pytest.mark.parametrize(
    ("images", "message"),
    [
        ({"dolp": IMAGE}, "needs the products dolp and aolp, or stokes; got dolp"),
        ({}, "got none"),
        ({"dolp": IMAGE, "aolp": IMAGE.astype(np.uint8)}, "aolp must be an array of floats"),
        (np.zeros((4, 4, 3), np.uint8), "stokes must be an array of floats"),
        (np.zeros((4, 4, 2)), r"stokes must have the shape \(H, W, 3\), got \(4, 4, 2\)"),
        ({"dolp": IMAGE, "aolp": IMAGE[1:]}, r"images must have one shape \(H, W\)"),
        ({"dolp": IMAGE[0], "aolp": IMAGE[0]}, r"images must have one shape \(H, W\)"),
        (None, "images must be a result, a mapping of products or a Stokes array, got None"),
        ([[[1.0, 0.1, 0.0]]], "images must be a result, a mapping of products or a Stokes array"),
        ({"dolp": IMAGE.tolist(), "aolp": IMAGE}, "dolp must be an array of floats"),
        ({"dolp": IMAGE, "aolp": None}, "aolp must be an array of floats .*, got None"),
        ({"dolp": IMAGE, "aolp": IMAGE + 30}, "aolp must be in rad, 0 to pi, got 30 to 30"),
        ({"dolp": IMAGE, "aolp": IMAGE - 0.5}, "aolp must be in rad, 0 to pi, got -0.5 to -0.5"),
        ({"dolp": IMAGE + 40, "aolp": IMAGE}, "dolp must be 0 to 1, got 40 to 40"),
    ],
)
def test_images_are_checked(images: Any, message: str) -> None:
    rays = np.zeros((4, 4, 3))
    with pytest.raises(ValueError, match=message):
        normal_candidates(images)
    with pytest.raises(ValueError, match=message):
        horizon_angle(images, AXIS)
    with pytest.raises(ValueError, match=message):
        sky_compass(images, rays, np.eye(3))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model": "metal"}, "model must be one of diffuse, specular"),
        ({"refractive_index": 1.0}, "refractive_index must be in"),
        ({"refractive_index": "glass"}, "refractive_index must be a number"),
        ({"rays": np.zeros((3, 4, 3))}, "rays must have the shape"),
        ({"rays": np.zeros((4, 4, 3))}, "rays must be unit vectors"),
    ],
)
def test_options_are_checked(options: Dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        normal_candidates(np.ones((4, 4, 3)), **options)


def test_rounded_angles_are_in_range() -> None:
    """The largest AoLP below pi, in half precision, is 3.140625; rounded up it is 3.142578."""
    aolp = np.nextafter(np.full((2, 2), 3.14, np.float16), np.float16(4))
    aolp[0] = np.float16(np.pi)
    normal_candidates({"dolp": np.full((2, 2), 0.2, np.float16), "aolp": aolp})
