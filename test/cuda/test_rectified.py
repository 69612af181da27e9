"""Outputs that the first launch rectifies by itself: against the float64 reference, and which launches can."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, Dict, List, Tuple

import numpy as np
import pytest
from harness import GPUS
from test_backend import make
from test_transform import IMAGES, POLAR, compare, compare_with_an_image, device_driver, lens, random_frame

from polar_pipeline.cuda import backend
from polar_pipeline.cuda.model import rectified_cost
from polar_pipeline.cuda.model.device import get_device
from polar_pipeline.cuda.model.launch_model import RectifiedModel
from polar_pipeline.cuda.model.partition import Partition, partitions
from polar_pipeline.cuda.model.rectified_work import (
    MAX_MIN_INTENSITY,
    TILES,
    RectifiedWork,
    column_bits,
    make_rectified_work,
    not_in_one_launch,
)
from polar_pipeline.cuda.model.requested_work import work_of
from polar_pipeline.cuda.model.schedule import Schedule, ScheduleError
from polar_pipeline.cuda.sampling import pack_window_map
from polar_pipeline.cuda.tools.report import plan_json, plan_report, plan_text
from polar_pipeline.options import Options, make_options
from polar_pipeline.plan import make_plan

#: Of frames, of which the kernel's threads take 16 pixels along x.
SHAPE = (96, 160)
FULL = (2048, 2448)
#: What the launch makes: it has no images of angles.
PRODUCTS = tuple(name for name in IMAGES if not name.startswith("angle_"))
on_gpus = [pytest.param(name, marks=pytest.mark.gpu) for name in GPUS]


def found_partitions(options: Options, shape: Tuple[int, int] = SHAPE, device: str = "h200") -> List[Partition]:
    """The launches of frames of (height, width), the fastest first."""
    work = work_of(options, "u8", (shape[1], shape[0]))
    return partitions(work, make_plan(options.products), options, get_device(device))


def kernels(partition: Partition) -> List[str]:
    return [launch.schedule.kernel for launch in partition.launches]


def rectified_work(shape: Tuple[int, int] = SHAPE, **options: Any) -> RectifiedWork:
    """The launch for intensity, DoLP and AoLP."""
    chosen = make_options(products=POLAR, **{"dtype": "uint8", "rectify": lens(shape), **options})
    work, plan = work_of(chosen, "u8", (shape[1], shape[0])), make_plan(POLAR)
    assert not_in_one_launch(work, plan, chosen) is None
    return make_rectified_work(work, plan, chosen)


def force(monkeypatch: pytest.MonkeyPatch, tile: Tuple[int, int] = TILES[0]) -> None:
    """Whatever is predicted: the backend takes the launch that rectifies, with one tile."""
    schedule = Schedule("mono_rectified", "tile", tile[0] * tile[1] // 8, *tile)
    monkeypatch.setattr(rectified_cost, "candidates", lambda *_: [schedule])
    monkeypatch.setattr(
        backend,
        "partitions",
        lambda *given: [row for row in partitions(*given) if kernels(row)[0] == "mono_rectified"],
    )


CASES: List[Tuple[Tuple[str, ...], Dict[str, Any]]] = [
    (POLAR, {"rectify": lens(SHAPE, turned=True), "dtype": "uint8"}),
    (PRODUCTS, {"rectify": lens(SHAPE), "rotate": 180, "roi": (5, 3, 41, 30)}),
    ((*POLAR, "stokes", "preview"), {"rectify": lens(SHAPE, zoom=0.6), "dtype": "float32"}),
    (PRODUCTS, {"rectify": lens(SHAPE), "dtype": "uint16"}),
    (("dolp",), {"rectify": lens(SHAPE), "dtype": "uint8"}),
    (POLAR, {"rectify": lens(SHAPE), "min_intensity": MAX_MIN_INTENSITY}),
]


@pytest.mark.parametrize("device", ["h200", *on_gpus, pytest.param("xavier", marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize(("products", "options"), CASES)
def test_matches_reference(
    device: str, products: Tuple[str, ...], options: Dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = device_driver(device, monkeypatch)
    force(monkeypatch)
    compare(driver, random_frame(SHAPE), products, **options)


@pytest.mark.parametrize("device", ["h200", *on_gpus])
@pytest.mark.parametrize("tile", TILES[1:])
def test_every_tile(device: str, tile: Tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    driver = device_driver(device, monkeypatch)
    force(monkeypatch, tile)
    compare(driver, random_frame(SHAPE), POLAR, rectify=lens(SHAPE, turned=True))


@pytest.mark.parametrize("device", ["h200", *on_gpus])
def test_similarity(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where pixels are outside the frame, too."""
    driver = device_driver(device, monkeypatch)
    force(monkeypatch)
    # half of the bound as in `cpu_comparison`; S0/2 is interpolated in halves, as `transform` does
    wanted = compare_with_an_image(driver, SHAPE, 2e-3, rectify=lens(SHAPE, zoom=0.6), precision="fp16")
    assert 0.1 < np.isnan(wanted).mean() < 0.9


def test_one_launch_with_its_map(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = device_driver("h200", monkeypatch)
    force(monkeypatch)
    uploads: List[int] = []
    upload = driver.upload
    monkeypatch.setattr(driver, "upload", lambda *given: (uploads.append(given[1].nbytes), upload(*given)))
    frame, made = random_frame(SHAPE), make(driver, POLAR, dtype="uint8", rectify=lens(SHAPE))
    made.prepare(frame)
    assert len(uploads) == 3, "positions, origins and turns"
    uploads.clear()
    first, second = made.submit(frame), made.submit(frame)
    assert list(made.result(first).timings) == ["upload", "polarization", "download"]
    made.result(second)
    assert uploads == [frame.mosaic.nbytes] * 2
    made.close()
    assert not driver.on_device


# ------------------------------------------------------------------------------------------------------------------ map


@pytest.mark.parametrize("tile", TILES)
def test_windows_hold_samples_and_their_neighbours(tile: Tuple[int, int]) -> None:
    work = rectified_work((288, 480), rectify=lens((288, 480), zoom=0.8))
    model = RectifiedModel(work, get_device("h200"))
    schedule = next(row for row in model.candidates() if (row.tile_x, row.tile_y) == tile)
    packed, window = pack_window_map(work, schedule), work.window(tile)
    bits = column_bits(window)
    columns, rows = packed.positions >> 10 & ((1 << bits) - 1), packed.positions >> (20 + bits)
    is_outside = columns == window[0]
    assert 0.005 < is_outside.mean() < 0.9
    left, top = packed.origins[:, np.newaxis] & 0xFFFF, packed.origins[:, np.newaxis] >> 16
    assert not (left % 8).any(), "threads make eight superpixels"
    assert (rows[~is_outside] + 1 < window[1]).all()
    assert (columns[~is_outside] + 2 < window[0]).all(), "the last column has no right neighbour"
    assert ((columns > 0) | (left == 0))[~is_outside].all(), "the first one has no left neighbour"
    # the same positions as in the map, tile by tile
    (x, y), across = tile, -(-work.size[1] // tile[0])
    assert work.sampling.positions is not None
    for k, (row, column) in enumerate(np.ndindex(-(-work.size[0] // y), across)):
        wanted = work.sampling.positions[row * y : (row + 1) * y, column * x : (column + 1) * x]
        height, width = wanted.shape[:2]
        part = packed.positions[k].reshape(y, x)[:height, :width].astype(np.int64)
        inside = wanted[..., 0] >= 0
        found_x = left[k] + (part & ((1 << 10 + bits) - 1) & 0x3FF) / 1024 + (part >> 10 & ((1 << bits) - 1))
        found_y = top[k] + (part >> (10 + bits)) / 1024
        np.testing.assert_array_equal(found_x[inside], wanted[..., 0][inside])
        np.testing.assert_array_equal(found_y[inside], wanted[..., 1][inside])
        assert (is_outside[k].reshape(y, x)[:height, :width] == ~inside).all()
    assert sum(part.nbytes for part in (packed.positions, packed.origins, packed.turns)) == rectified_cost.map_bytes(
        work, schedule
    )


def test_a_map_in_use_is_not_made_again() -> None:
    """Launches are planned several times, for each kind of memory."""
    first, second = rectified_work(), rectified_work()
    assert first.sampling is second.sampling
    assert rectified_work(rotate=180).sampling is not first.sampling


# ---------------------------------------------------------------------------------------------------------------- plans


def test_the_fastest_of_a_full_frame() -> None:
    """On every device: it moves a third of the bytes."""
    options = make_options(products=POLAR, dtype="uint8", rectify=lens(FULL))
    for device in ("h200", "orin", "xavier"):
        best, other = found_partitions(options, FULL, device)
        assert kernels(best) == ["mono_rectified"]
        assert kernels(other)[1:] == ["transform"]
        assert best.transform is None
        assert best.products is best.polarization
        assert best.frames.raw_format == "u8"
        assert set(best.frames.dtypes) == set(POLAR)
        model, schedule = best.polarization.model, best.polarization.schedule
        assert model.check(schedule) is None
        taken = model.cost(schedule)
        assert taken.written == 3 * 1024 * 1224
        assert 2448 * 2048 < taken.read < 2448 * 2048 + 5.3 * 1024 * 1224
        assert model.predict(schedule, 16).us < 16 * model.predict(schedule).us


def test_temporal_similarity_is_one_more_launch() -> None:
    asked = {"products": (*POLAR, "ssim"), "dtype": "uint8", "ssim_mode": "temporal", "rectify": lens(FULL)}
    best = found_partitions(make_options(precision="fp16", **asked), FULL)[0]
    assert kernels(best) == ["mono_rectified", "ssim"]
    assert best.ssim is not None
    assert best.ssim.model.work.masked
    (by_itself,) = found_partitions(make_options(**asked), FULL)  # half is too coarse for two frames
    assert kernels(by_itself) == ["mono_half", "transform", "ssim"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"scale": 2}, "rectify without scale"),
        ({"rotate": 90}, "rotate 0 or 180"),
        ({"sensor": "IMX250MYR"}, "a mono sensor"),
        ({"resolution": "full", "demosaic": "bilinear"}, "half resolution"),
        ({"co_sited": False}, "co-sited"),
        ({"precision": "fp32"}, "half precision"),
        ({"products": (*POLAR, "angle_0")}, "images of angles"),
        ({"products": (*POLAR, "ssim")}, "half precision"),
        ({"products": (*POLAR, "ssim"), "precision": "fp16"}, "ssim_mode consistency"),
        ({"min_intensity": 0.3}, "min_intensity up to 0.25"),
    ],
)
def test_what_takes_two_launches(options: Dict[str, Any], said: str) -> None:
    chosen = make_options(**{"products": POLAR, "rectify": lens(SHAPE), **options})
    work, plan = work_of(chosen, "u8", (SHAPE[1], SHAPE[0])), make_plan(chosen.products)
    reason = not_in_one_launch(work, plan, chosen)
    assert reason is not None
    assert said in reason
    assert all("mono_rectified" not in kernels(row) for row in found_partitions(chosen))


def test_other_frames_take_two_launches() -> None:
    options, plan = make_options(products=POLAR, rectify=lens((96, 168))), make_plan(POLAR)
    work = work_of(options, "u8", (160, 96))
    others = {
        "multiple of 16": work_of(options, "u8", (168, 96)),
        "8-bit pixels": replace(work, raw_format="u16", full_scale=4095),
        "without a calibration": replace(work, calibrated=True),
        "even height": replace(work, height=95),
    }
    assert not_in_one_launch(work, plan, options) is None
    for said, other in others.items():
        assert said in (not_in_one_launch(other, plan, options) or "")


def test_samples_too_far_apart_take_two_launches() -> None:
    options = make_options(products=POLAR, rectify=lens(FULL, zoom=0.1))
    (found,) = found_partitions(options, FULL)
    assert kernels(found)[1:] == ["transform"]
    model = RectifiedModel(rectified_work(FULL, rectify=lens(FULL, zoom=0.1)), get_device("h200"))
    with pytest.raises(ScheduleError, match="samples of a tile lie too far apart"):
        model.refuse()


def test_the_plan_shows_one_launch() -> None:
    options = make_options(products=POLAR, dtype="uint8", rectify=lens(FULL))
    report = plan_report(options, get_device("orin"), "u8", (FULL[1], FULL[0]))
    text, shown = plan_text(report), json.loads(plan_json(report))
    assert "geometry       rectified (plumb_bob, 2448x2048" in text
    assert "schedule   mono_rectified" in text
    assert f"map        {shown['bytes']['map']} of the bytes read" in text
    assert shown["operators"].index("geometry") < shown["operators"].index("polar")
    assert [stage["name"] for stage in shown["launches"]] == ["polarization"]
