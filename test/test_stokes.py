"""Stokes vectors and angles of arrays: answers by hand, the products of the pipeline, and the types of arrays."""

from __future__ import annotations

import math
import subprocess
import sys
from typing import Any, Iterable, List

import numpy as np
import pytest

import polar_pipeline
from polar_pipeline import Pipeline, stokes
from polar_pipeline.polarimetry.coefficients import SIGMA_LENGTH

#: Largest rounding of float32 in an expression of a few terms of about 1.
ROUNDING = 1e-6


def light(s0: float, degree: float, degrees: float) -> np.ndarray:
    """What ideal polarizers at 0, 45, 90 and 135 degrees transmit (Malus)."""
    return np.array([s0 / 2 * (1 + degree * math.cos(2 * math.radians(degrees - angle))) for angle in (0, 45, 90, 135)])


@pytest.mark.parametrize("degrees", [0.0, 10.0, 45.0, 89.0, 135.0, 179.9])
def test_light_of_a_known_state(degrees: float) -> None:
    vector = stokes.from_angles(*light(0.8, 0.3, degrees))
    np.testing.assert_allclose(vector[0], 0.8, atol=1e-12)
    np.testing.assert_allclose(stokes.dolp(vector), 0.3, atol=1e-12)
    np.testing.assert_allclose(np.degrees(stokes.aolp(vector)), degrees, atol=1e-9)


def test_products_are_those_of_the_pipeline() -> None:
    """Where the pipeline has values; a saturated pixel, of which the angles know nothing, is NaN there."""
    raw = np.random.default_rng(0).integers(20, 250, (64, 80)).astype(np.uint8)
    raw[10, 10], raw[20:24, 20:24] = 255, 0
    angles = [f"angle_{degrees}" for degrees in (0, 45, 90, 135)]
    out = Pipeline(products=(*angles, "stokes", "dolp", "aolp"), backend="cpu", min_intensity=0)(raw)
    vector = stokes.from_angles(*(out[name] for name in angles))
    valid = ~np.isnan(out["dolp"])
    assert 0 < np.count_nonzero(~valid) < 20
    assert np.isnan(stokes.dolp(vector)[10, 10]) == np.isnan(stokes.aolp(vector)[10, 10]) == (vector[10, 10, 0] <= 0)
    np.testing.assert_allclose(vector[valid], out["stokes"][valid], atol=ROUNDING)
    valid &= vector[..., 0] > 0.1
    np.testing.assert_allclose(stokes.dolp(vector)[valid], out["dolp"][valid], atol=2e-5)
    turn = stokes.angle_difference(stokes.aolp(vector), out["aolp"])[valid & (out["dolp"] > 0.05)]
    np.testing.assert_allclose(turn, 0, atol=2e-4)  # the kernels' arc tangent is a polynomial


@pytest.mark.parametrize(
    ("dtype", "top", "result"),
    [
        *((dtype, 255, "f4") for dtype in ("u1", "u2", ">u2", "i2", "f2", "f4")),
        *((dtype, 2**31 - 1, "f8") for dtype in ("i4", "u4", "i8", ">f8")),
    ],
)
def test_integers_neither_overflow_nor_are_truncated(dtype: str, top: int, result: str) -> None:
    i0, i45, i90, i135 = (np.array([value, 1], dtype) for value in (1, top, top, 0))
    vector = stokes.from_angles(i0, i45, i90, i135)
    np.testing.assert_array_equal(vector, np.array([[top + 0.5, 1 - top, top], [2, 0, 0]], result))
    assert vector.dtype == result
    assert stokes.dolp(vector).dtype == stokes.aolp(vector).dtype == result


def test_light_without_polarization_and_without_light() -> None:
    vector = np.array([[1, 0, 0], [0, 0, 0], [-1, 0.5, 0], [np.nan, 1, 1], [1, np.nan, 0], [0.5, 3, 4]], np.float32)
    np.testing.assert_array_equal(stokes.dolp(vector), np.array([0, *[np.nan] * 4, 1], np.float32))
    want = np.array([0, *[np.nan] * 4, math.atan2(4, 3) / 2], np.float32)
    np.testing.assert_allclose(stokes.aolp(vector), want, atol=ROUNDING)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_any_axis(axis: int) -> None:
    planes = np.random.default_rng(0).random((4, 5, 6))
    vector = stokes.from_angles(*planes, axis=axis)
    assert vector.shape[axis] == 3
    last = stokes.from_angles(*planes)
    np.testing.assert_array_equal(stokes.dolp(vector, axis), stokes.dolp(last))
    np.testing.assert_array_equal(stokes.aolp(vector, axis), stokes.aolp(last))


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_wrapped_angles_are_below_pi(dtype: str) -> None:
    tiny = np.finfo(dtype).tiny
    angles = np.array([-tiny, tiny, 0, -1e-9, np.pi, np.nextafter(np.pi, 0), 3.5 * np.pi, -0.25 * np.pi, np.nan], dtype)
    wrapped = stokes.wrap(angles)
    assert wrapped.dtype == dtype
    assert ((wrapped[:-1] >= 0) & (wrapped[:-1].astype(float) < np.pi)).all()
    np.testing.assert_allclose(np.sin(wrapped - angles.astype(float)), [*[0] * 8, np.nan], atol=ROUNDING)
    assert isinstance(stokes.wrap(-0.5), float)
    assert stokes.wrap(-0.5) == pytest.approx(np.pi - 0.5)


def test_the_mean_of_angles() -> None:
    np.testing.assert_allclose(np.degrees(stokes.mean_angle(np.radians([170, 20, np.nan]))), 5, atol=1e-9)
    image = np.radians(np.array([[178, 1, 4], [90, 90, np.nan], [0, 90, np.nan], [30, 75, 120]], np.float32))
    rows = stokes.mean_angle(image, axis=1)
    assert rows.dtype == np.float32
    np.testing.assert_allclose(np.degrees(rows), [1, 90, np.nan, 75], atol=1e-4)
    assert np.isnan(stokes.mean_angle(np.full((2, 3), np.nan), axis=0)).all()
    np.testing.assert_allclose(np.degrees(stokes.mean_angle(image[3:], axis=(0, 1))), 75, atol=1e-4)
    rng = np.random.default_rng(0)
    noisy = stokes.wrap(np.radians(rng.normal(179, 5, 10_000)))
    assert np.degrees(stokes.angle_difference(stokes.mean_angle(noisy), np.radians(179))) == pytest.approx(0, abs=0.2)


def test_the_difference_of_angles() -> None:
    first, second = np.radians([[10.0], [90.0], [170.0]]), np.radians([5.0, 100.0, 175.0])
    want = [[5, -90, 15], [85, -10, -85], [-15, 70, -5]]
    np.testing.assert_allclose(np.degrees(stokes.angle_difference(first, second)), want, atol=1e-9)
    assert stokes.angle_difference(first.astype(np.float32), np.float64(1)).dtype == np.float32
    assert stokes.angle_difference(np.pi / 2, 0.0) == -np.pi / 2
    second = np.random.default_rng(0).random(10_000, np.float32)
    edge = stokes.angle_difference(second + np.float32(np.pi / 2), second)  # about 90 degrees, either way
    assert edge.dtype == np.float32
    assert (edge < np.float32(np.pi / 2)).all()
    assert (edge >= -np.float32(np.pi / 2)).all()
    np.testing.assert_allclose(np.abs(edge), np.pi / 2, atol=ROUNDING)


def test_the_standard_deviation_of_dolp() -> None:
    degree, sigma = np.array([[0.0, 0.05, 0.1, np.nan, 0.3, 0.3, 0.0]]), np.array([0.1, 0.1, 0.1, 0.1, np.nan, 0, 0])
    found = stokes.dolp_std(degree, sigma)
    want = [[0, 0.1 * math.sqrt(1 - math.exp(-1 / 8)), 0.1 * math.sqrt(1 - math.exp(-1 / 2)), np.nan, np.nan, 0, 0]]
    np.testing.assert_allclose(found, want, atol=1e-12)
    tiny = np.float32(1e-6)
    np.testing.assert_allclose(stokes.dolp_std(tiny, np.float32(0.1)), tiny / math.sqrt(2), rtol=1e-5)
    assert stokes.dolp_std(degree.astype(np.float32), 0.1).dtype == np.float32
    assert stokes.dolp_std(0.1, 0.0) == 0


@pytest.mark.parametrize("ratio", [0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
def test_the_standard_deviation_of_dolp_is_that_of_its_scatter(ratio: float) -> None:
    """Stated deviations are 1.07 to 0.98 times the scatter of lengths whose two components have normal noise.

    The standard error of the scatter of 100,000 samples is 0.2 % of it: 1 % are five.
    """
    component = 1e-3
    plane = np.random.default_rng(round(100 * ratio)).normal([ratio * component, 0], component, (100_000, 2))
    degree = np.hypot(*plane.T)
    sigma = component * (1 - SIGMA_LENGTH / (1 + (degree / component) ** 4) ** 2)  # the product `dolp_sigma`
    stated, uncorrected = (
        np.sqrt(np.mean(values**2)) / degree.std() for values in (stokes.dolp_std(degree, sigma), sigma)
    )
    assert 0.97 < stated < 1.08
    assert uncorrected > (1.29 if ratio <= 0.5 else 0.99)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: stokes.from_angles(*np.zeros((3, 4, 5)), np.zeros(5)), r"one shape, got \(4, 5\), .*\(5,\)"),
        (lambda: stokes.dolp(np.zeros((3, 4))), r"along axis -1, got shape \(3, 4\)"),
        (lambda: stokes.aolp(np.zeros(3), axis=1), r"along axis 1, got shape \(3,\)"),
        (lambda: stokes.dolp(np.zeros(3, complex)), "real numbers, got complex128"),
        (lambda: stokes.from_angles(*np.zeros((4, 2), bool)), "real numbers, got bool"),
        (lambda: stokes.dolp_std(np.zeros(2, np.uint8), 0.1), "from 0 to 1, got uint8: divide levels"),
        (lambda: stokes.dolp_std(0.1, np.zeros(2, np.uint16)), "from 0 to 1, got uint16: divide levels"),
        (lambda: stokes.wrap(np.zeros(2, np.uint8)), "in rad, got uint8: one level of the product is pi/256"),
        (lambda: stokes.angle_difference(0.0, np.zeros(2, np.uint16)), "in rad, got uint16: .* pi/65536"),
    ],
)
def test_values_without_a_meaning_are_refused(call: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        call()


class Device(np.lib.mixins.NDArrayOperatorsMixin):
    """An array of another library, as CuPy's: its functions and methods never return or take NumPy's arrays."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = array

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._array, name)
        return (lambda *args, **more: _wrapped(value(*args, **more))) if callable(value) else value

    def __getitem__(self, key: Any) -> Any:
        return _wrapped(self._array[key])

    def __iter__(self) -> Any:
        return map(Device, self._array)

    def __array__(self, *_: Any) -> np.ndarray:
        raise TypeError("Implicit conversion to a NumPy array is not allowed")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **more: Any) -> Any:
        assert not any(isinstance(value, np.ndarray) for value in inputs)
        return _wrapped(getattr(ufunc, method)(*map(_inner, inputs), **more))

    def __array_function__(self, function: Any, _: Any, args: Any, more: Any) -> Any:
        return _wrapped(function(*_inner(args), **more))


def _inner(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value)(map(_inner, value))
    return value._array if isinstance(value, Device) else value


def _wrapped(value: Any) -> Any:
    return Device(np.asarray(value)) if isinstance(value, (np.ndarray, np.generic)) else value


def _all_results(planes: Iterable[Any]) -> List[Any]:
    """Every function of `stokes` on the images of four angles."""
    vector = stokes.from_angles(*planes)
    angle = stokes.aolp(vector)
    return [
        vector,
        stokes.dolp(vector),
        stokes.dolp_std(stokes.dolp(vector), stokes.dolp(vector) / 3),
        stokes.dolp_std(stokes.dolp(vector), 0.1),
        angle,
        stokes.mean_angle(angle, axis=0),
        stokes.mean_angle(angle),
        stokes.angle_difference(angle, 1.0),
    ]


def test_arrays_of_another_library_stay_there() -> None:
    planes = np.random.default_rng(0).integers(0, 255, (4, 6, 7)).astype(np.uint8)
    for ours, theirs in zip(_all_results(map(Device, planes)), _all_results(planes)):
        assert isinstance(ours, Device)
        np.testing.assert_allclose(ours._array, theirs, rtol=2e-7)  # vectors and their remainder: a last place


@pytest.mark.gpu
def test_arrays_of_cupy() -> None:
    cupy = pytest.importorskip("cupy")
    planes = np.random.default_rng(0).integers(0, 255, (4, 6, 7)).astype(np.uint8)
    vector, want = stokes.from_angles(*cupy.asarray(planes)), stokes.from_angles(*planes)
    for function in (stokes.dolp, stokes.aolp, lambda vector: stokes.dolp_std(stokes.dolp(vector), 0.1)):
        found = function(vector)
        assert isinstance(found, cupy.ndarray)
        np.testing.assert_allclose(found.get(), function(want), atol=ROUNDING)
    angle, own = stokes.aolp(vector), stokes.aolp(want)
    for found, expected in (
        (stokes.mean_angle(angle, axis=0), stokes.mean_angle(own, axis=0)),
        (stokes.mean_angle(angle), stokes.mean_angle(own)),
        (stokes.angle_difference(angle, 1.0), stokes.angle_difference(own, 1.0)),
        (stokes.wrap(angle + 4), stokes.wrap(own + 4)),
    ):
        assert isinstance(found, cupy.ndarray)
        np.testing.assert_allclose(found.get(), expected, atol=ROUNDING)


def test_public_names() -> None:
    """Also the module, as an attribute of the package that was not imported before."""
    assert {"Pipeline", "Result", "make_calibration", "stokes", "__version__"} <= {*dir(polar_pipeline)}
    assert not [name for name in dir(polar_pipeline) if name.startswith("_") and not name.startswith("__")]
    assert "importlib" not in dir(polar_pipeline)
    for name in polar_pipeline.__all__:
        assert getattr(polar_pipeline, name) is not None
    code = "import polar_pipeline; print(polar_pipeline.stokes.wrap(4.0)); import polar_pipeline.stokes"
    said = subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.PIPE, timeout=60).stdout
    assert float(said) == pytest.approx(4 - math.pi)
