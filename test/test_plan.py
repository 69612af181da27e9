"""The plan: what is expanded, shared, dropped, put together and cut into launches."""

from __future__ import annotations

from typing import List

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polar_pipeline.plan import (
    MOSAIC,
    OPERATORS,
    LimitError,
    Limits,
    aggregate,
    expand,
    make_plan,
    shared_values,
    simplify,
)
from polar_pipeline.products import PRODUCTS

SUBSETS = st.lists(st.sampled_from(list(PRODUCTS)), min_size=1, unique=True)


def test_every_product_has_an_operator_of_its_name() -> None:
    assert set(PRODUCTS) <= set(OPERATORS)


def test_expand_gives_every_chain_with_its_repeats() -> None:
    assert expand(("intensity",)) == ("angles", "intensity")
    assert expand(("saturated", "angle_0", "angle_90")) == ("saturated", "angles", "angle_0", "angles", "angle_90")
    planes = ("angles", "grey", "angles", "grey", "sums", "stokes_planes")
    assert expand(("polar",)) == (*planes, "polar")


def test_simplify_keeps_each_value_once_and_nothing_dead() -> None:
    chains = expand(("aolp", "dolp"))
    assert chains.count("stokes_planes") == 5  # polar and invalid of each, and dolp's own
    assert simplify(chains) == (
        *("angles", "grey", "sums", "stokes_planes", "saturated", "invalid", "polar", "dolp", "aolp"),
    )
    assert simplify(expand(("ssim",))) == (
        *("angles", "grey", "sums", "stokes_planes", "ssim_pair", "ssim_map", "ssim"),
    )


def test_shared_values_name_the_products_they_serve() -> None:
    shared = shared_values(("intensity", "aolp", "dolp"))
    assert shared["polar"] == ("dolp", "aolp")
    assert shared["angles"] == ("intensity", "dolp", "aolp")
    assert "intensity" not in shared
    assert shared_values(("intensity",)) == {}


def test_aggregate_puts_windows_over_computed_values_into_the_next_launch() -> None:
    first, second = aggregate(simplify(expand(("saturated", "ssim"))))
    assert first.operators == ("angles", "grey", "sums", "stokes_planes", "saturated", "ssim_pair")
    assert second.operators == ("ssim_map", "ssim")
    assert "mosaic" in first.reason
    assert "neighbours in ssim_pair" in second.reason


def test_launches_read_and_write_what_they_must() -> None:
    first, second = make_plan(("dolp", "ssim")).launches
    assert (first.name, first.reads, first.writes) == ("polarization", (MOSAIC,), ("dolp", "ssim_pair"))
    assert (second.name, second.reads, second.writes) == ("ssim", ("ssim_pair",), ("ssim",))


def test_ssim_alone_counts_no_dark_pixels_and_stores_only_its_pair() -> None:
    plan = make_plan(("ssim",))
    assert plan.window == ("ssim_map", "ssim")
    assert plan.launches[0].writes == ("ssim_pair",)
    assert "invalid" not in plan.pixel


def test_dead_products_are_dropped() -> None:
    plan = make_plan(("intensity",))
    assert plan.pixel == ("angles", "saturated", "intensity")  # saturation is counted whatever is asked for
    assert plan.window == ()


def test_too_many_outputs_take_another_launch_that_computes_what_it_needs() -> None:
    plan = make_plan(("intensity", "dolp", "aolp", "ssim_map"), Limits(outputs=2))
    assert [launch.name for launch in plan.launches] == ["polarization_1", "polarization_2", "ssim"]
    assert [launch.writes for launch in plan.launches] == [("intensity", "dolp"), ("aolp", "ssim_pair"), ("ssim_map",)]
    assert "intensity" not in plan.launches[1].operators
    assert "polar" in plan.launches[0].operators
    assert "polar" in plan.launches[1].operators
    assert plan.pixel == make_plan(plan.products).pixel


def test_a_later_launch_can_start_from_the_mosaic_again() -> None:
    plan = make_plan(("dolp", "ssim"), Limits(recomputes=True))
    first, second = plan.launches
    assert (first.reads, first.writes) == ((MOSAIC,), ("dolp",))
    assert (second.reads, second.writes) == ((MOSAIC,), ("ssim",))
    assert "ssim_pair" not in first.operators
    assert second.operators == simplify(expand(("ssim",)))
    assert "mosaic again" in second.reason
    stored = make_plan(plan.products)
    assert (plan.pixel, plan.window) == (stored.pixel, stored.window)


def test_a_window_that_does_not_fit_gives_need_and_limit() -> None:
    windows = {"angles": 5000, "ssim_map": 9000}
    assert len(make_plan(("ssim",), Limits(shared_bytes=9000, windows=windows)).launches) == 2
    with pytest.raises(LimitError, match=r"launch ssim needs 9000 bytes for ssim_map of shared memory.*has 8999"):
        make_plan(("ssim",), Limits(shared_bytes=8999, windows=windows))


@given(SUBSETS, st.integers(1, 12))
def test_every_plan_can_run_in_its_order(products: List[str], outputs: int) -> None:
    plan = make_plan(products, Limits(outputs))
    stored = {MOSAIC}
    for launch in plan.launches:
        known = set(launch.reads)
        assert known <= stored
        for name in launch.operators:
            assert set(OPERATORS[name].needs) <= known
            known.add(name)
        assert len(launch.writes) <= outputs
        assert set(launch.writes) <= known
        stored |= set(launch.writes)
    assert set(plan.products) <= stored
    assert set(plan.pixel) | set(plan.window) == set(simplify(expand((*products, "saturated"))))


def test_unknown_and_missing_products_are_refused() -> None:
    with pytest.raises(ValueError, match=r"intensity.*'dop'"):
        make_plan(("dop",))
    with pytest.raises(ValueError, match="none"):
        make_plan(())
