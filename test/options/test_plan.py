"""The plan: what is expanded, shared, dropped, and put together into stages."""

from __future__ import annotations

from typing import List

from hypothesis import given
from hypothesis import strategies as st

from polar_pipeline.options.plan import MOSAIC, OPERATORS, make_stages, needed_operators, shared_values
from polar_pipeline.options.products import DARK_PRODUCTS, PRODUCTS

SUBSETS = st.lists(st.sampled_from(list(PRODUCTS)), min_size=1, unique=True)


def test_each_value_is_computed_once_and_nothing_else() -> None:
    planes = ("angles", "gray", "sums", "stokes_planes")
    assert needed_operators(("intensity",)) == ("angles", "intensity")
    assert needed_operators(("aolp", "dolp")) == (*planes, "saturated", "invalid", "polar", "dolp", "aolp")
    assert needed_operators(("ssim",)) == (*planes, "ssim_pair", "ssim_map", "ssim")


def test_shared_values_name_the_products_they_serve() -> None:
    shared = shared_values(("intensity", "dolp", "aolp"))
    assert shared["polar"] == ("dolp", "aolp")
    assert shared["angles"] == ("intensity", "dolp", "aolp")
    assert "intensity" not in shared
    assert shared_values(("intensity",)) == {}


def test_windows_over_computed_values_are_in_the_next_stage() -> None:
    first, second = make_stages(("dolp", "ssim"))
    assert (first.name, first.reads, first.writes) == ("polarization", (MOSAIC,), ("dolp", "ssim_pair"))
    assert (second.name, second.reads, second.writes) == ("ssim", ("ssim_pair",), ("ssim",))
    assert second.operators == ("ssim_map", "ssim")
    assert "mosaic" in first.reason
    assert "neighbors in ssim_pair" in second.reason


def test_only_what_products_need_is_computed() -> None:
    """Of SSIM alone dark pixels are not counted, and only its pair is stored; saturation is always counted."""
    (only,) = make_stages(("intensity",))
    assert only.operators == ("angles", "saturated", "intensity")
    first, second = make_stages(("ssim",))
    assert (first.writes, second.operators) == (("ssim_pair",), ("ssim_map", "ssim"))
    assert "invalid" not in first.operators
    assert tuple(name for name in PRODUCTS if "invalid" in needed_operators((name,))) == DARK_PRODUCTS


@given(SUBSETS)
def test_every_plan_can_run_in_its_order(products: List[str]) -> None:
    stored, computed = {MOSAIC}, set()
    for stage in make_stages(products):
        known = set(stage.reads)
        assert known <= stored
        for name in stage.operators:
            assert set(OPERATORS[name].needs) <= known
            known.add(name)
        assert set(stage.writes) <= known
        stored |= set(stage.writes)
        computed |= set(stage.operators)
    assert set(products) <= stored
    assert computed == set(needed_operators((*products, "saturated")))
