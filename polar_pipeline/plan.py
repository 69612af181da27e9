"""From products wanted to operators to passes; knows no backend.

The graph is small and known: composite products expand to basic operators, operators shared by several products stand
once, operators that nothing needs are dropped, and what is left is cut into passes over the frame. A backend has one
stage per operator, under the same name.
"""

from __future__ import annotations

from typing import Dict, Iterable, List, NamedTuple, Tuple

from polar_pipeline.products import get_products
from polar_pipeline.sensor import ANGLES


class Operator(NamedTuple):
    """A basic operator: the values it needs, by name, and what it computes."""

    needs: Tuple[str, ...]
    text: str


#: Every operator by the name of the value it makes; `mosaic` is the input. Listed so that needs come first.
OPERATORS: Dict[str, Operator] = {
    "angles": Operator(("mosaic",), "demosaic to four angle images, on a colour sensor in RGB"),
    "grey": Operator(("angles",), "luma of the four angle images; the images themselves on a mono sensor"),
    "sums": Operator(("grey",), "I0 + I90 and I45 + I135, shared by S0 and by SSIM's consistency mode"),
    "stokes_planes": Operator(("grey", "sums"), "S0, S1, S2"),
    "saturated": Operator(("mosaic",), "saturated pixels, counted"),
    "invalid": Operator(("saturated", "stokes_planes"), "saturated and dark pixels, the latter counted too"),
    **{f"angle_{angle}": Operator(("angles",), f"angle image {angle}") for angle in ANGLES},
    "intensity": Operator(("angles",), "S0/2, on a colour sensor per channel"),
    "stokes": Operator(("stokes_planes", "invalid"), "Stokes vector"),
    "polar": Operator(("stokes_planes",), "length and direction of (S1, S2), shared by DoLP, AoLP and preview"),
    "dolp": Operator(("polar", "stokes_planes", "invalid"), "degree of linear polarization"),
    "aolp": Operator(("polar", "invalid"), "angle of linear polarization"),
    "preview": Operator(("polar", "stokes_planes", "invalid"), "HSV display of AoLP, DoLP and intensity"),
    "ssim_pair": Operator(("sums", "stokes_planes"), "the two images that SSIM compares"),
    "ssim_map": Operator(("ssim_pair",), "structural similarity"),
    "ssim": Operator(("ssim_map",), "mean similarity"),
}
#: Counted in every frame, whatever is asked for.
_ALWAYS = ("saturated",)
#: Operators that look at neighbours in the output image and so wait for the first pass.
_SECOND_PASS = ("ssim_map", "ssim")


class Plan(NamedTuple):
    """What to compute, in order.

    Attributes:
        products: Product names, in the table's order.
        pixel: Operators of the first pass: mosaic to products, pixel by pixel.
        window: Operators of the second pass, over windows of the first one's results.
    """

    products: Tuple[str, ...]
    pixel: Tuple[str, ...]
    window: Tuple[str, ...]


def expand(products: Iterable[str]) -> Tuple[str, ...]:
    """Every operator that the products need, each once, needs first."""
    live = set()
    pending: List[str] = [*products, *_ALWAYS]
    while pending:
        name = pending.pop()
        if name in OPERATORS and name not in live:
            live.add(name)
            pending.extend(OPERATORS[name].needs)
    return tuple(name for name in OPERATORS if name in live)


def make_plan(products: Iterable[str]) -> Plan:
    """The plan for a set of products.

    Raises:
        ValueError: A product does not exist, or none is asked for.
    """
    names = get_products(products)
    operators = expand(names)
    return Plan(
        names,
        tuple(name for name in operators if name not in _SECOND_PASS),
        tuple(name for name in operators if name in _SECOND_PASS),
    )
