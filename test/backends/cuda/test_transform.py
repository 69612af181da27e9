"""Outputs scaled, rotated, cut and rectified by the CUDA backend: against the float64 reference."""

from __future__ import annotations

from typing import Any, Dict, List, Tuple

import comparison
import numpy as np
import pytest
from calibrations import defective_calibration, lens
from comparison import GEOMETRY_BOUND, problems_of
from test_backend import compute_both, make, make_driver, on_gpus, run

from polar_pipeline import FrameError, RawFrame
from polar_pipeline.backends import reference
from polar_pipeline.backends.cuda.device import DEVICES
from polar_pipeline.backends.cuda.driver import TO_DEVICE
from polar_pipeline.backends.cuda.geometry import GeometryLaunch, pack_map
from polar_pipeline.backends.cuda.program import requested_launches
from polar_pipeline.backends.cuda.report import make_plan, plan_text
from polar_pipeline.backends.cuda.schedules import choose
from polar_pipeline.geometry import make_map
from polar_pipeline.options import make_options
from polar_pipeline.options.products import NOISE_PRODUCTS, PRODUCTS

SHAPE = (48, 72)
#: What the launch of a geometry makes.
IMAGES = tuple(name for name in PRODUCTS if name not in NOISE_PRODUCTS and not name.startswith("ssim"))
POLAR = ("intensity", "dolp", "aolp")
#: Bound where planes are floats: positions in 1/1024 of a pixel, as on the CPU.
FLOAT_BOUND = 6e-4


def random_frame(shape: Tuple[int, int] = SHAPE, bits: int = 8, sigma: float = 1.0) -> RawFrame:
    """Smooth noise over the complete range, with saturated pixels and a dark part."""
    frame = comparison.random_frame(shape, bits, sigma=sigma)
    frame.mosaic[16:34, 14:36] = 0
    frame.mosaic[5:7, 40:43] = frame.full_scale
    return frame


@pytest.fixture(params=["xavier", *on_gpus])
def driver(request: pytest.FixtureRequest) -> Any:
    """One stand-in, and GPUs."""
    return make_driver(request.param)


def compare(driver: Any, frame: RawFrame, products: Tuple[str, ...], **options: Any) -> None:
    """Every product lies within its bound around the reference's; the same pixels are invalid."""
    chosen, found, truth = compute_both(driver, frame, products, **options)
    assert min(found.invalid) > 0 or "roi" in options, "pixels are saturated, and others dark"
    planes = FLOAT_BOUND if chosen.precision == "fp32" else GEOMETRY_BOUND
    assert problems_of(chosen, frame, found, truth, planes=planes, strays=0) == []


RECTIFIED = {"rectify": lens(SHAPE)}
#: Device, sensor and options.
CASES: List[Tuple[str, str, Tuple[str, ...], Dict[str, Any]]] = [
    ("h200", "IMX250MZR", IMAGES, {**RECTIFIED, "resolution": "full", "demosaic": "bilinear"}),
    ("h200", "IMX250MYR", IMAGES, {"rectify": lens(SHAPE, turned=True), "scale": 2, "rotate": 270, "dtype": "uint8"}),
    ("xavier", "IMX250MZR", POLAR, {"rectify": lens(SHAPE, zoom=0.6), "dtype": "uint8"}),
    ("orin", "IMX250MZR", IMAGES, {"rotate": 90, "roi": (3, 2, 12, 20), "precision": "fp32", "dtype": "uint16"}),
    ("xavier", "IMX250MZR", POLAR, {"rectify": lens(SHAPE, turned=True), "precision": "fp32", "rotate": 180}),
    # computed in float, on planes of halves; an odd width of the output splits the threads of `mono_half`
    ("xavier", "IMX250MZR", POLAR, {"bit_depth": 12, "rectify": lens((36, 50))}),
    ("xavier", "IMX250MZR", POLAR, {"rectify": lens(SHAPE, turned=True), "flip": (False, True)}),
    ("h200", "IMX250MZR", POLAR, {"scale": 4, "rotate": 180, "co_sited": False}),
    ("h200", "IMX250MZR", POLAR, {**RECTIFIED, "resolution": "full"}),
    (
        "xavier",
        "IMX250MZR",
        IMAGES,
        {**RECTIFIED, "calibration": defective_calibration("IMX250MZR", SHAPE)},
    ),  # mono_half_calibrated
    (
        "orin",
        "IMX250MYR",
        POLAR,
        {"rotate": 90, "calibration": defective_calibration("IMX250MYR", SHAPE), "dtype": "uint8"},
    ),
    (
        "xavier",
        "IMX250MZR",
        POLAR,
        {"rectify": lens(SHAPE), "min_intensity": 0.25, "rotate": 180, "roi": (3, 2, 21, 15)},
    ),
    ("xavier", "IMX250MZR", POLAR, {"rectify": lens(SHAPE, turned=True), "roi": (3, 8, 30, 1)}),
    ("xavier", "IMX250MZR", POLAR, {"rectify": lens(SHAPE, turned=True), "roi": (8, 2, 1, 20)}),
]


@pytest.mark.parametrize("name", ["stand-in", *on_gpus])
@pytest.mark.parametrize(("device", "sensor", "products", "options"), CASES)
def test_matches_reference(
    device: str, sensor: str, products: Tuple[str, ...], options: Dict[str, Any], name: str
) -> None:
    driver = make_driver(device if name == "stand-in" else name)
    frame = random_frame((36, 50), options["bit_depth"]) if "bit_depth" in options else random_frame()
    compare(driver, frame, products, sensor=sensor, **options)


@pytest.mark.parametrize("precision", ["auto", "fp32"])
@pytest.mark.parametrize(("mode", "zoom"), [("consistency", 0.5), ("reference", 0.5), ("consistency", 2.0)])
def test_similarity_where_pixels_are_outside(driver: Any, mode: str, zoom: float, precision: str) -> None:
    """Or all are inside, where the lens magnifies."""
    frame, image = random_frame(sigma=0.5), None
    options: Dict[str, Any] = {"products": ("ssim_map", "ssim"), "rectify": lens(SHAPE, zoom=zoom), "ssim_window": 7}
    options.update(ssim_mode=mode, precision=precision)
    if mode == "reference":
        image = random_frame(sigma=2.0).mosaic[::2, ::2].astype(np.float32) / 255
    made = make(driver, **options)
    found = run(made, frame, image)
    made.close()
    chosen = make_options(**options)
    wanted = reference.run(frame, chosen, image)
    outside = np.isnan(wanted["ssim_map"])
    assert 0.2 < outside.mean() < 0.9 if zoom < 1 else not outside.any()
    assert np.nanmin(wanted["ssim_map"]) < 0.9, "the images differ"
    np.testing.assert_array_equal(np.isnan(found["ssim_map"]), outside)
    # the bound of `comparison`; S0/2 of noise is interpolated in halves of 11 bits
    bound = 2e-3 if (mode, precision) == ("reference", "auto") else 1e-3
    for name in ("ssim_map", "ssim"):
        np.testing.assert_allclose(found[name], wanted[name], atol=bound)
    np.testing.assert_allclose(found.blocks, wanted["blocks"], atol=bound)


def test_maps_are_uploaded_before_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = make_driver("h200")
    copies: List[int] = []
    uploads: List[int] = []
    copy_now, copy = driver.copy_now, driver.copy
    monkeypatch.setattr(driver, "copy_now", lambda *call: (copies.append(call[2]), copy_now(*call)))
    monkeypatch.setattr(driver, "copy", lambda *call: (call[3] == TO_DEVICE and uploads.append(call[2]), copy(*call)))
    frame = random_frame()
    made = make(driver, POLAR, dtype="uint8", **RECTIFIED)
    made.prepare(frame)
    assert len(copies) == 3, "positions, origins and turns"
    first = made.submit(frame)
    second = made.submit(frame)
    assert list(first().timings) == ["upload", "polarization", "geometry", "download"]
    second()
    assert (uploads, len(copies)) == ([frame.mosaic.nbytes] * 2, 3)
    del first, second
    made.close()
    assert not driver.on_device


@pytest.mark.parametrize(
    ("options", "said"),
    [({"roi": (0, 0, 90, 0)}, "reaches beyond"), ({"rectify": lens((24, 32))}, "is of 32x24"), ({"scale": 8}, "")],
)
def test_frames_that_do_not_fit_leave_nothing(options: Dict[str, Any], said: str) -> None:
    driver = make_driver("h200")
    made = make(driver, POLAR, **options)
    if said:
        with pytest.raises(FrameError, match=said):
            made.submit(random_frame())
        assert not driver.on_device
    else:  # one tile that is hardly used
        assert run(made, random_frame())["dolp"].shape == (3, 4)
    made.close()


# ----------------------------------------------------------------------------------------------------------------- maps


def test_wide_tiles_have_coarser_positions() -> None:
    """A tile's pixels are far apart in the frame: 16 bits then have 9 for the part of a pixel."""
    shape = (256, 512)
    options = make_options(products=POLAR, rectify=lens(shape, zoom=0.45))
    assert options.geometry is not None
    _, launch = requested_launches(options, "u8", (shape[1], shape[0]))
    assert isinstance(launch, GeometryLaunch)
    _, schedule = next(choose(launch, DEVICES["h200"]))
    assert pack_map(make_map(options.geometry, launch.source), launch, schedule).fraction == 9
    compare(make_driver("h200"), random_frame(shape), POLAR, rectify=lens(shape, zoom=0.45))


# ---------------------------------------------------------------------------------------------------------------- plans


def test_the_plan_shows_its_launch() -> None:
    options = make_options(products=POLAR, dtype="uint8", scale=2, rectify=lens((2048, 2448)))
    plan = make_plan(options, DEVICES["orin"], "u8", (2448, 2048))
    text, operators = plan_text(plan), list(plan["operators"])
    assert "geometry       rectified (plumb_bob, 2448x2048" in text
    assert "from, to   differences, means -> intensity, dolp, aolp" in text
    assert "launch geometry" in text
    assert plan["launches"][1]["size"] == [612, 512]
    assert operators.index("geometry") < operators.index("polar")
    assert [stage["name"] for stage in plan["launches"]] == ["polarization", "geometry"]
