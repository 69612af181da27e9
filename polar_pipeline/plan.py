"""The operator graph: the operators that compute the requested products, and their stages.

`expand` turns every product into the chain of operators behind it; `simplify` keeps each value once and drops what no
product needs; `aggregate` groups operators that one pass over the frame can compute. The CPU backend runs these stages;
a GPU makes one launch of each. No backend is known here.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Dict, Iterable, List, Tuple

from polar_pipeline.products import PRODUCTS, get_products

#: The input: what every operator starts from.
MOSAIC = "mosaic"


@dataclass(frozen=True)
class Operator:
    """A basic operator.

    Attributes:
        needs: The values it computes from, by name.
        text: Description of the value.
        window: Whether it looks at neighbors of what it needs, rather than at the same pixel only.
    """

    needs: Tuple[str, ...]
    text: str
    window: bool = False


#: Operators whose values are not products. Listed so that needs come first.
_INNER: Dict[str, Operator] = {
    "angles": Operator((MOSAIC,), "demosaic to four angle images, on a color sensor in RGB", window=True),
    "gray": Operator(("angles",), "luma of the four angle images; the images themselves on a mono sensor"),
    "sums": Operator(("gray",), "I0 + I90 and I45 + I135, shared by S0 and by SSIM's consistency mode"),
    "stokes_planes": Operator(("gray", "sums"), "S0, S1, S2"),
    "saturated": Operator((MOSAIC,), "saturated pixels, counted", window=True),
    "invalid": Operator(("saturated", "stokes_planes"), "saturated and dark pixels, the latter counted too"),
    "polar": Operator(("stokes_planes",), "length and direction of (S1, S2), shared by DoLP, AoLP and preview"),
    "noise": Operator(
        ("angles", "polar"), "standard deviations of DoLP and AoLP; `debias` and `max_aolp_sigma` use them"
    ),
    "ssim_pair": Operator(("sums", "stokes_planes"), "the two images that SSIM compares"),
}
#: Every operator by the name of the value it makes; `mosaic` is the input. Needs come first.
OPERATORS: Dict[str, Operator] = {
    **_INNER,
    **{row.name: Operator(row.needs, row.text, row.window) for row in PRODUCTS.values()},
}
#: Counted in every frame, whatever the products.
_ALWAYS = ("saturated",)
#: The stages, in order: a backend reports its time under these names.
STAGES = ("polarization", "ssim")
#: The stage between them where outputs have a geometry.
GEOMETRY = "geometry"
#: What the stage before it computes.
_BEFORE_GEOMETRY = ("angles", "gray", "sums", "stokes_planes", "saturated", "invalid")


@dataclass(frozen=True)
class Group:
    """Operators that can share a pass over the frame, and why."""

    operators: Tuple[str, ...]
    reason: str


@dataclass(frozen=True)
class Stage:
    """One pass over the frame.

    Attributes:
        name: One of `STAGES`.
        operators: Operators of the stage, needs first.
        reads: Values that it takes from memory.
        writes: Values that it stores: products, and what later stages read.
        reason: Why these operators are computed together.
    """

    name: str
    operators: Tuple[str, ...]
    reads: Tuple[str, ...]
    writes: Tuple[str, ...]
    reason: str


@dataclass(frozen=True)
class Plan:
    """Operators of a set of products, in order.

    Attributes:
        products: Product names, in the table's order.
        stages: The passes over the frame, in order.
    """

    products: Tuple[str, ...]
    stages: Tuple[Stage, ...]

    @property
    def pixel(self) -> Tuple[str, ...]:
        """Operators of the first stage: they start from the mosaic, without a window over computed values."""
        return self.stages[0].operators

    @property
    def window(self) -> Tuple[str, ...]:
        """Operators of the later stages: windows over the first one's results, and what follows."""
        return tuple(name for stage in self.stages[1:] for name in stage.operators)


def expand(products: Iterable[str]) -> Tuple[str, ...]:
    """Chain the basic operators behind each product, needs first; repeats are kept."""
    chains: List[str] = []
    for name in products:
        chains += expand(need for need in OPERATORS[name].needs if need != MOSAIC)
        chains.append(name)
    return tuple(chains)


def simplify(operators: Iterable[str]) -> Tuple[str, ...]:
    """List every operator once, in the table's order, so that shared operators are computed a single time."""
    wanted = set(operators)
    return tuple(name for name in OPERATORS if name in wanted)


def shared_values(products: Iterable[str]) -> Dict[str, Tuple[str, ...]]:
    """Map operators that serve several products to these products."""
    names = get_products(products)
    users = {step: tuple(name for name in names if step in expand((name,))) for step in OPERATORS}
    return {step: found for step, found in users.items() if len(found) > 1}


def aggregate(operators: Iterable[str]) -> Tuple[Group, ...]:
    """Group operators by the stage that they can be part of, in order.

    A window over the mosaic can be recomputed wherever blocks overlap. A window over computed values would need those
    values recomputed too, so it waits until an earlier stage has stored them.
    """
    level: Dict[str, int] = {MOSAIC: 0}
    groups: List[List[str]] = []
    for name in operators:
        operator = OPERATORS[name]
        level[name] = max(level[need] + (operator.window and need != MOSAIC) for need in operator.needs)
        if level[name] == len(groups):
            groups.append([])
        groups[level[name]].append(name)
    return tuple(Group(tuple(group), _reason(group)) for group in groups)


def _reason(operators: List[str]) -> str:
    """Explain why these operators are in one stage, and not in the one before."""
    first = OPERATORS[operators[0]]
    followers = "what follows looks at the same pixel only, so that it stays on chip"
    if MOSAIC in first.needs:
        return f"all of it starts from the mosaic; {followers}"
    return f"{operators[0]} looks at neighbors in {', '.join(first.needs)}, which other blocks store; {followers}"


def _make_stages(products: Tuple[str, ...]) -> Tuple[Stage, ...]:
    """Build the stages of a set of products, given in the table's order."""
    groups = aggregate(simplify(expand((*products, *_ALWAYS))))
    every = {name for group in groups for name in group.operators}
    stages = []
    for index, group in enumerate(groups):
        read_later = {need for name in every - set(group.operators) for need in OPERATORS[name].needs}
        kept = (name for name in group.operators if name in products or name in read_later)
        writes = tuple(sorted(kept, key=lambda name: name not in products))  # products first
        needed = expand((*writes, *(() if index else _ALWAYS)))
        live = simplify(name for name in needed if name in group.operators)
        inputs = {need for name in live for need in OPERATORS[name].needs} - set(live)
        reads = tuple(name for name in (MOSAIC, *OPERATORS) if name in inputs)
        stages.append(Stage(STAGES[index], live, reads, writes, group.reason))
    return tuple(stages)


def geometry_stages(stage: Stage, planes: Iterable[str]) -> Tuple[Stage, Stage]:
    """Split the first stage of a plan with a geometry: one stage stores planes, and one interpolates.

    Args:
        stage: The plan's first stage.
        planes: Names of the planes.
    """
    reads = tuple(planes)
    writes = stage.writes
    before = Stage(stage.name, _BEFORE_GEOMETRY, stage.reads, reads, stage.reason)
    left = tuple(name for name in stage.operators if name not in _BEFORE_GEOMETRY or name in writes)
    reason = "a pixel of the output depends on several of the Stokes image, which other blocks store; " + (
        "what follows looks at the same pixel only, so that it stays on chip"
    )
    return before, Stage(GEOMETRY, (GEOMETRY, *left), reads, writes, reason)


@lru_cache(maxsize=64)
def _plan(products: Tuple[str, ...]) -> Plan:
    return Plan(products, _make_stages(products))


def make_plan(products: Iterable[str]) -> Plan:
    """Build the plan for a set of products.

    Args:
        products: Their names.

    Raises:
        ValueError: A product does not exist, or none is asked for.
    """
    return _plan(get_products(products))
