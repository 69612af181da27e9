"""DoLP by zenith angle against amplitudes from the continuity of fields, and round trips."""

from __future__ import annotations

from typing import Any, Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rendering import degree

from polar_pipeline.polarimetry.world import diffuse_dolp, diffuse_zenith, specular_dolp, specular_zeniths

ZENITHS = np.linspace(0, np.pi / 2 - 1e-3, 500)
ANGLES = st.floats(0.02, np.pi / 2 - 0.001)
INDICES = st.floats(1.02, 9.9)


@pytest.mark.parametrize("index", [1.3, 1.5, 1.7])
def test_dolp_is_that_of_the_amplitudes(index: float) -> None:
    np.testing.assert_allclose(diffuse_dolp(ZENITHS, index), degree(ZENITHS, index, "diffuse"), atol=1e-12)
    np.testing.assert_allclose(specular_dolp(ZENITHS, index), degree(ZENITHS, index, "specular"), atol=1e-12)


@given(ANGLES, INDICES)
def test_diffuse_round_trip(zenith: float, index: float) -> None:
    found = diffuse_zenith(diffuse_dolp(np.array([zenith]), index), index)
    np.testing.assert_allclose(found, zenith, atol=1e-5)


@given(ANGLES, INDICES)
def test_specular_round_trip(zenith: float, index: float) -> None:
    """The angle is that below or above Brewster's, where DoLP is 1 and both angles are equal."""
    below, above = specular_zeniths(specular_dolp(np.array([zenith]), index), index)
    brewster = np.arctan(index)
    assert below[0] <= brewster + 1e-6
    assert above[0] >= brewster - 1e-6
    np.testing.assert_allclose((below if zenith < brewster else above)[0], zenith, atol=1e-5)


@given(st.floats(0, 1), INDICES)
def test_angles_have_the_dolp(dolp: float, index: float) -> None:
    for zenith in specular_zeniths(np.array([dolp]), index):
        np.testing.assert_allclose(specular_dolp(zenith, index), dolp, atol=1e-6)
    zenith = diffuse_zenith(np.array([dolp]), index)
    highest = (index**2 - 1) / (index**2 + 1)
    if abs(dolp - highest) > 1e-9:
        assert np.isnan(zenith[0]) == (dolp > highest)
    if dolp < highest - 1e-9:
        np.testing.assert_allclose(diffuse_dolp(zenith, index), dolp, atol=1e-6)


def test_no_angle_has_a_dolp_outside_the_range() -> None:
    dolp = np.array([-0.1, 1.1, np.nan])
    assert np.isnan(diffuse_zenith(dolp)).all()
    assert np.isnan(specular_zeniths(dolp)).all()


@pytest.mark.parametrize("function", [diffuse_dolp, specular_dolp, diffuse_zenith, specular_zeniths])
@pytest.mark.parametrize("index", [1.0, 11.0, float("nan")])
def test_indices_are_checked(function: Callable[..., object], index: float) -> None:
    with pytest.raises(ValueError, match=r"refractive_index must be in \[1.01, 10.0\]"):
        function(np.array([0.1]), index)


@pytest.mark.parametrize("function", [diffuse_dolp, specular_dolp])
def test_zenith_angles_in_degrees_are_refused(function: Callable[..., object]) -> None:
    with pytest.raises(ValueError, match="zenith must be in rad, 0 to pi/2, got 10 to 60"):
        function(np.array([10.0, np.nan, 60.0]))


@pytest.mark.parametrize("function", [diffuse_dolp, specular_dolp, diffuse_zenith, specular_zeniths])
def test_lists_are_numbers_and_text_is_not(function: Callable[..., Any]) -> None:
    np.testing.assert_array_equal(function([0.1, 0.2]), function(np.array([0.1, 0.2])))
    for values in (None, "steep", [None]):
        with pytest.raises(ValueError, match="must be an array of numbers, got"):
            function(values)
