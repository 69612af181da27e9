"""Viewing rays against OpenCV's projections, attitudes, and the angle to the horizon."""

from __future__ import annotations

from typing import Any, Tuple

import cv2
import numpy as np
import pytest
from rendering import between, surface

from polar_pipeline.geometry import LensCalibration, make_lens
from polar_pipeline.polarimetry.world import horizon_angle, viewing_rays

SIZE = (96, 128)
#: Models with distortion at their widest, by name: coefficients, and the focal length in pixels.
LENSES: Any = {
    "none": ("", (), 110.0),
    "plumb_bob": ("plumb_bob", (-0.25, 0.05, 0.002, -0.003, 0.01), 110.0),
    "plumb_bob 4": ("plumb_bob", (0.15, 0.02, -0.002, 0.004), 90.0),
    "rational": ("rational_polynomial", (0.4, 0.05, 0.001, -0.001, 0.002, 0.6, 0.1, 0.01), 80.0),
    "fisheye": ("equidistant", (0.02, -0.005, 0.001, -0.0002), 60.0),
}


def lens_of(name: str, size: Tuple[int, int] = SIZE) -> LensCalibration:
    model, d, focal = LENSES[name]
    k = (focal, 0.0, 60.0, 0.0, focal * 1.01, 50.0, 0.0, 0.0, 1.0)
    return make_lens(size, model, d, k, (0.0,) * 9, (0.0,) * 12)


@pytest.mark.parametrize("name", LENSES)
@pytest.mark.parametrize("step", [1, 2])
def test_rays_project_onto_their_pixels(name: str, step: int) -> None:
    lens = lens_of(name)
    rays = viewing_rays(lens, (SIZE[0] // step, SIZE[1] // step), step)
    np.testing.assert_allclose(np.linalg.norm(rays, axis=-1), 1, atol=1e-12)
    project = cv2.fisheye.projectPoints if lens.model == "equidistant" else cv2.projectPoints
    zero = np.zeros(3)
    seen, _ = project(rays.reshape(-1, 1, 3), zero, zero, lens.matrix("k"), np.array(lens.d))
    row, column = np.mgrid[: rays.shape[0], : rays.shape[1]]
    expected = np.stack([column, row], -1) * step + (step - 1) / 2
    np.testing.assert_allclose(seen.reshape(expected.shape), expected, atol=1e-4)


def test_a_fisheye_sees_behind_itself() -> None:
    lens = make_lens((0, 0), "equidistant", (0.0,) * 4, (30.0, 0, 60, 0, 30.0, 50, 0, 0, 1), (0.0,) * 9, (0.0,) * 12)
    rays = viewing_rays(lens, (101, 121))
    np.testing.assert_allclose(rays[50, 60 + 57], [np.sin(1.9), 0, np.cos(1.9)], atol=1e-8)
    assert np.isnan(viewing_rays(lens, (101, 200))[50, 60 + 95]).all(), "beyond 180 degrees there is nothing"


def test_nothing_is_seen_beyond_a_fold() -> None:
    """With k1 alone, radii grow until r^2 = -1/(3 k1), up to 2/3 of this r."""
    k1, focal = -0.3, 50.0
    d, k = (k1, 0.0, 0.0, 0.0), (focal, 0, 0.0, 0, focal, 0, 0, 0, 1)
    rays = viewing_rays(make_lens((0, 0), "plumb_bob", d, k, (0.0,) * 9, (0.0,) * 12), (1, 128))
    largest = 2 / 3 * np.sqrt(-1 / (3 * k1)) * focal
    np.testing.assert_array_equal(np.isnan(rays[0, :, 0]), np.arange(128) > largest)


def test_nothing_is_seen_beyond_a_fold_of_the_tangential_distortion() -> None:
    """A wide lens near 90 degrees, far beyond what its calibration saw: each ray is right or NaN."""
    d, k = LENSES["rational"][1], (25.0, 0, 64.0, 0, 25.0, 48.0, 0, 0, 1)
    rays = viewing_rays(make_lens(SIZE, "rational_polynomial", d, k, (0.0,) * 9, (0.0,) * 12), SIZE)
    is_seen = np.isfinite(rays).all(-1)
    assert 0.8 < is_seen.mean() < 0.99
    seen, _ = cv2.projectPoints(
        rays[is_seen].reshape(-1, 1, 3), np.zeros(3), np.zeros(3), np.reshape(k, (3, 3)), np.array(d)
    )
    np.testing.assert_allclose(seen[:, 0], np.argwhere(is_seen)[:, ::-1], atol=0.01)


@pytest.mark.parametrize("step", [0, 1.5, "2"])
def test_steps_are_checked(step: Any) -> None:
    with pytest.raises(ValueError, match="step must be"):
        viewing_rays(lens_of("none"), SIZE, step)


@pytest.mark.parametrize("size", [None, 96, (96,), (96, 128, 3), (0, 128), "ab", (96.5, 128)])
def test_sizes_are_checked(size: Any) -> None:
    with pytest.raises(ValueError, match="size must be"):
        viewing_rays(lens_of("none"), size)


def test_a_lens_is_a_calibration() -> None:
    with pytest.raises(ValueError, match=r"lens must be a LensCalibration, as load_lens returns it, got 'left\.yaml'"):
        viewing_rays("left.yaml", SIZE)  # type: ignore[arg-type]


def test_images_must_be_of_the_lens() -> None:
    with pytest.raises(ValueError, match=r"with a step of 2 images have \(48, 64\) rows and columns, got \(96, 128\)"):
        viewing_rays(lens_of("none"), SIZE, 2)


def rotation(roll: float, pitch: float) -> np.ndarray:
    """From the axes of a camera, which first looks along the level y axis, to level axes; degrees."""
    (c, s), (e, f) = ((np.cos(a), np.sin(a)) for a in np.radians([roll, pitch]))
    upright = np.array([[1.0, 0, 0], [0, 0, 1], [0, -1, 0]])
    nod = np.array([[1.0, 0, 0], [0, e, -f], [0, f, e]])
    return nod @ upright @ np.array([[c, -s, 0], [s, c, 0], [0, 0, 1.0]])


@pytest.mark.parametrize(("roll", "pitch"), [(0, -20), (15, -30), (-70, -10)])
def test_water_polarizes_along_the_horizon(roll: float, pitch: float) -> None:
    """With a wide lens, in every pixel that looks down; by rotation and by gravity."""
    rays = viewing_rays(lens_of("plumb_bob"), SIZE)
    turn = rotation(roll, pitch)
    light = surface(np.broadcast_to(turn[2], rays.shape), rays, 1.33, "specular")
    below = (rays @ turn[2]) < -0.02
    assert below.mean() > 0.4
    for attitude in (turn, -3 * turn[2]):
        angle = horizon_angle(light, attitude, rays)
        assert np.degrees(np.abs(angle[below])).max() < 1e-6
    assert np.degrees(np.abs(horizon_angle(light, turn)[below])).max() > 3, "without rays the error is that of the lens"


def test_glass_polarizes_across_the_horizon() -> None:
    """An upright window, beside the camera that looks level."""
    rays = viewing_rays(lens_of("none"), SIZE)
    light = surface(np.broadcast_to([-1.0, 0, 0], rays.shape), rays, 1.5, "specular")[50, 61:]
    angle = horizon_angle(light[np.newaxis], np.array([0, 9.81, 0]), rays[50:51, 61:])
    np.testing.assert_allclose(np.abs(angle), np.pi / 2, atol=1e-9)


def test_aolp_above_the_horizon_counts_counter_clockwise() -> None:
    stokes = np.array([[[1, np.cos(2 * a), np.sin(2 * a)] for a in np.radians([0, 30, 89, 91, 150])]])
    angle = horizon_angle(stokes, np.array([0, 1.0, 0]))
    np.testing.assert_allclose(np.degrees(angle), [[0, 30, 89, -89, -30]], atol=1e-9)
    assert np.isnan(horizon_angle(stokes, np.array([0, 0, 1.0]))).all(), "straight down there is no horizon"
    turned = horizon_angle(stokes, np.array([np.sin(0.1), np.cos(0.1), 0]))  # the camera rolls to its right
    np.testing.assert_allclose((angle - turned) % np.pi, 0.1, atol=1e-9)
    upright = horizon_angle(stokes, np.array([9.81, 0, 0]))  # mounted sideways, which leaves a heading undefined
    np.testing.assert_allclose(np.degrees((angle - upright) % np.pi), 90, atol=1e-9)


@pytest.mark.parametrize("attitude", [np.eye(3) * 2, np.diag([1.0, 1, -1]), np.zeros(3), np.ones(4), [np.nan, 0, 1]])
def test_attitudes_are_checked(attitude: Any) -> None:
    with pytest.raises(ValueError, match="attitude must be"):
        horizon_angle(np.ones((4, 4, 3)), attitude)


def test_rays_must_fit_the_images() -> None:
    with pytest.raises(ValueError, match=r"rays must have the shape \(4, 4, 3\), got \(4, 5, 3\)"):
        horizon_angle(np.ones((4, 4, 3)), np.array([0, 1.0, 0]), np.ones((4, 5, 3)))


def test_the_oracle_keeps_lengths() -> None:
    """The rendering itself: a ray along the axis and one beside it show the same surface in its own frame."""
    rays = viewing_rays(lens_of("fisheye"), SIZE)
    light = surface(-rays, rays, 1.5, "diffuse")
    assert np.abs(light[..., 1:]).max() < 1e-12
    assert between(rays[0, 0], rays[-1, -1]) > 60
