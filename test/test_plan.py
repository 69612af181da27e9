"""The plan: what is expanded, shared, dropped and put into which pass."""

from __future__ import annotations

import pytest

from polar_pipeline.plan import OPERATORS, expand, make_plan
from polar_pipeline.products import PRODUCTS


def test_every_product_has_an_operator_of_its_name() -> None:
    assert set(PRODUCTS) <= set(OPERATORS)


def test_operators_come_after_what_they_need() -> None:
    order = ("mosaic", *expand(PRODUCTS))
    for name in order[1:]:
        assert all(order.index(need) < order.index(name) for need in OPERATORS[name].needs)


def test_shared_operators_stand_once() -> None:
    order = expand(("dolp", "aolp", "preview"))
    assert order.count("polar") == order.count("stokes_planes") == 1


def test_dead_products_are_dropped() -> None:
    plan = make_plan(("intensity",))
    assert "polar" not in plan.pixel
    assert "ssim_pair" not in plan.pixel
    assert "stokes_planes" not in plan.pixel
    assert "saturated" in plan.pixel  # counted whatever is asked for
    assert plan.window == ()


def test_ssim_waits_for_the_first_pass() -> None:
    plan = make_plan(("ssim",))
    assert plan.window == ("ssim_map", "ssim")
    assert "ssim_pair" in plan.pixel


def test_unknown_and_missing_products_are_refused() -> None:
    with pytest.raises(ValueError, match=r"intensity.*'dop'"):
        make_plan(("dop",))
    with pytest.raises(ValueError, match="none"):
        make_plan(())
