"""What `tile` loses in shared memory and at the edges of tiles, and that whatever it can make has a count."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any, List, Tuple

import numpy as np
import pytest

from polar_pipeline.cuda.model import polarization_cost, tuned
from polar_pipeline.cuda.model.bank_conflicts import BANKS, Access, lost_clocks
from polar_pipeline.cuda.model.cost import Prediction
from polar_pipeline.cuda.model.device import DEVICES
from polar_pipeline.cuda.model.launch_model import launch_model
from polar_pipeline.cuda.model.polarization_cost import cost
from polar_pipeline.cuda.model.requested_work import make_work
from polar_pipeline.cuda.model.schedule import Schedule
from polar_pipeline.cuda.model.work import OUTPUTS, PAIRS, PolarizationWork
from polar_pipeline.options import make_options
from polar_pipeline.plan import make_plan
from polar_pipeline.products import PRODUCTS

H200 = DEVICES["h200"]
TILE = Schedule("tile", "tile", 128, 32, 16)


def work_of(**values: Any) -> PolarizationWork:
    options = make_options(**{"products": "intensity", "dtype": "uint8", **values})
    return make_work(make_plan(options.products), options, "u8", 255, (2048, 2448))


@pytest.mark.parametrize(
    ("access", "lost"),
    [
        (Access(1, 32, 32, 0, 1, 1), 0),  # neighbouring words
        (Access(1, 32, 32, 0, 2, 1), 1),  # every other one: 16 banks, two words of each
        (Access(1, 32, 32, 0, 4, 1), 3),
        (Access(2, 16, 32, 16, 1, 1), 0),  # the second line goes on where the first one ends
        (Access(2, 16, 32, 32, 1, 1), 1),  # in the same banks
        (Access(2, 16, 32, 33, 1, 1), 1),  # one bank further, 15 are the same
        (Access(2, 16, 32, 48, 1, 1), 0),
        (Access(1, 32, 32, 0, 2, 2), 0),  # 8 bytes: 16 lanes at a time
        (Access(1, 8, 16, 0, 4, 4), 0),  # 16 bytes: 8 lanes at a time
        (Access(2, 8, 16, 32, 2, 2), 1),  # both lines at a time
        # 40 columns: a warp on 32 of each line first, then the 8 that are left of both
        (Access(2, 40, 32, 40, 1, 1), 0),
        (Access(2, 40, 32, 64, 1, 1), 1),
    ],
)
def test_lost_clocks_by_hand(access: Access, lost: int) -> None:
    assert lost_clocks(access) == lost


def items(access: Access) -> List[Tuple[int, int]]:
    """Line and column of each thread, as `item` of `kernels/tile_layout.cuh` says it in words."""
    whole = access.columns // access.group * access.group
    if whole == 0:
        return list(product(range(access.lines), range(access.columns)))
    first = list(product(range(access.lines), range(whole)))
    return first + list(product(range(access.lines), range(whole, access.columns)))


@pytest.mark.parametrize("seed", range(20))
def test_lost_clocks_are_those_of_counting(seed: int) -> None:
    """Every word of every lane, put into its bank one after the other."""
    random = np.random.default_rng(seed)
    lines, columns, pitch = (int(random.integers(1, high)) for high in (12, 80, 200))
    words = int(random.choice([1, 2, 4]))
    access = Access(lines, columns, int(random.choice([16, 32])), pitch, words * int(random.integers(1, 4)), words)
    at_a_time, lost = min(32, BANKS // words), 0
    threads = items(access)
    for first in range(0, len(threads), at_a_time):
        banks = [0] * BANKS
        for line, column in threads[first : first + at_a_time]:
            for word in range(words):
                banks[(line * pitch + column * access.stride + word) % BANKS] += 1
        lost += max(banks) - 1
    assert lost_clocks(access) == lost


@pytest.mark.parametrize(
    ("products", "tile_x", "width", "shared"),
    [
        # images of bytes, 1224 across: lines begin at multiples of 8 bytes, so three of four tiles end in a sector
        ("intensity", 32, 2448, 38 * 0.75),
        ("intensity", 64, 2448, 19 * 0.75),
        ("intensity", 64, 2560, 0),  # 1280 across: every tile begins with a sector
        ("intensity", 40, 2560, 31 * 0.75),
        ("preview", 32, 2560, 0),  # three bytes a pixel
        ("intensity,dolp", 64, 2448, 2 * 19 * 0.75),
    ],
)
def test_sectors_that_two_tiles_share(products: str, tile_x: int, width: int, shared: float) -> None:
    work = replace(work_of(products=products), width=width)
    schedule = replace(TILE, tile_x=tile_x)
    assert polarization_cost._shared_sectors(work, schedule) == pytest.approx(1024 * shared)
    whole = cost(replace(work, width=2560), replace(TILE, tile_x=64), H200)
    assert (cost(work, schedule, H200).reread > whole.reread) == (shared > 0) or tile_x < 64


@pytest.mark.parametrize("sensor", ["IMX250MZR", "IMX250MYR"])
def test_whatever_it_can_make_is_counted(sensor: str) -> None:
    """Also what no measured launch had."""
    any_work = work_of(sensor=sensor)
    for output in OUTPUTS:
        inner = ("float32", "uint16") if output in PAIRS else ("float32", "float16")  # of PLANES
        for dtype in PRODUCTS[output].types if output in PRODUCTS else inner:
            for half, half_precision in product((True, False), repeat=2):
                work = replace(any_work, outputs=((output, dtype),), half=half, half_precision=half_precision)
                assert cost(work, TILE, H200).operations > 0, (output, dtype)


def test_of_schedules_that_take_as_long_the_one_that_leaves_most_of_the_gpu_is_chosen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plans = [replace(TILE, tile_y=y) for y in (8, 16, 32)]
    one = dict(zip(plans, (10.0, 10.05, 12.0)))
    many = dict(zip(plans, (600.0, 500.0, 100.0)))
    model = launch_model(work_of(demosaic="gradient"), H200)
    monkeypatch.setattr(model, "candidates", lambda: plans)
    monkeypatch.setattr(
        model, "predict", lambda plan, frames=1: Prediction((one if frames == 1 else many)[plan], 0.0, 0.0, 0.0)
    )
    assert tuned.predicted_fastest(model) == plans[1]
    one[plans[1]] = 10.4
    assert tuned.predicted_fastest(model) == plans[0]
