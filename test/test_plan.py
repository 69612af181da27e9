"""The plan: what is expanded, shared, dropped, and put together into stages."""

from __future__ import annotations

from typing import List

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polar_pipeline.plan import (
    MOSAIC,
    OPERATORS,
    aggregate,
    expand,
    make_plan,
    shared_values,
    simplify,
)
from polar_pipeline.products import PRODUCTS

SUBSETS = st.lists(st.sampled_from(list(PRODUCTS)), min_size=1, unique=True)


def test_expand_gives_every_chain_with_its_repeats() -> None:
    assert expand(("intensity",)) == ("angles", "intensity")
    assert expand(("saturated", "angle_0", "angle_90")) == ("saturated", "angles", "angle_0", "angles", "angle_90")
    planes = ("angles", "gray", "angles", "gray", "sums", "stokes_planes")
    assert expand(("polar",)) == (*planes, "polar")


def test_simplify_keeps_each_value_once_and_nothing_dead() -> None:
    chains = expand(("aolp", "dolp"))
    assert chains.count("stokes_planes") == 5  # polar and invalid of each, and dolp's own
    assert simplify(chains) == (
        *("angles", "gray", "sums", "stokes_planes", "saturated", "invalid", "polar", "dolp", "aolp"),
    )
    assert simplify(expand(("ssim",))) == (
        *("angles", "gray", "sums", "stokes_planes", "ssim_pair", "ssim_map", "ssim"),
    )


def test_shared_values_name_the_products_they_serve() -> None:
    shared = shared_values(("intensity", "aolp", "dolp"))
    assert shared["polar"] == ("dolp", "aolp")
    assert shared["angles"] == ("intensity", "dolp", "aolp")
    assert "intensity" not in shared
    assert shared_values(("intensity",)) == {}


def test_aggregate_puts_windows_over_computed_values_into_the_next_stage() -> None:
    first, second = aggregate(simplify(expand(("saturated", "ssim"))))
    assert first.operators == ("angles", "gray", "sums", "stokes_planes", "saturated", "ssim_pair")
    assert second.operators == ("ssim_map", "ssim")
    assert "mosaic" in first.reason
    assert "neighbors in ssim_pair" in second.reason


def test_stages_read_and_write_what_they_must() -> None:
    first, second = make_plan(("dolp", "ssim")).stages
    assert (first.name, first.reads, first.writes) == ("polarization", (MOSAIC,), ("dolp", "ssim_pair"))
    assert (second.name, second.reads, second.writes) == ("ssim", ("ssim_pair",), ("ssim",))


def test_only_what_products_need_is_computed() -> None:
    """Of SSIM alone dark pixels are not counted, and only its pair is stored; saturation is always counted."""
    assert make_plan(("intensity",)).pixel == ("angles", "saturated", "intensity")
    assert make_plan(("intensity",)).window == ()
    plan = make_plan(("ssim",))
    assert plan.window == ("ssim_map", "ssim")
    assert plan.stages[0].writes == ("ssim_pair",)
    assert "invalid" not in plan.pixel


@given(SUBSETS)
def test_every_plan_can_run_in_its_order(products: List[str]) -> None:
    plan = make_plan(products)
    stored = {MOSAIC}
    for stage in plan.stages:
        known = set(stage.reads)
        assert known <= stored
        for name in stage.operators:
            assert set(OPERATORS[name].needs) <= known
            known.add(name)
        assert set(stage.writes) <= known
        stored |= set(stage.writes)
    assert set(plan.products) <= stored
    assert set(plan.pixel) | set(plan.window) == set(simplify(expand((*products, "saturated"))))


def test_unknown_and_missing_products_are_refused() -> None:
    with pytest.raises(ValueError, match=r"intensity.*'dop'"):
        make_plan(("dop",))
    with pytest.raises(ValueError, match="none"):
        make_plan(())
