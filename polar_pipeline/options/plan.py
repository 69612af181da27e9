"""The operator graph: the operators that compute the requested products, and their stages.

Each value is computed once, and a stage is what one pass over the frame can compute: the CPU backend runs these stages,
and a GPU makes one launch of each. No backend is known here; `polar-pipeline plan` shows the graph.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, Iterable, List, Tuple

from polar_pipeline.options.products import PRODUCTS

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
_FOLLOWERS = "what follows looks at the same pixel only, so that it stays on chip"


@dataclass(frozen=True)
class Stage:
    """One pass over the frame.

    Attributes:
        name: One of `STAGES`, or `GEOMETRY`.
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


def needed_operators(names: Iterable[str]) -> Tuple[str, ...]:
    """Return the operators and all that they need, each once, needs first."""
    wanted = set(names)
    for name in reversed(list(OPERATORS)):  # needs come first in the table
        if name in wanted:
            wanted.update(OPERATORS[name].needs)
    return tuple(name for name in OPERATORS if name in wanted)


def shared_values(products: Iterable[str]) -> Dict[str, Tuple[str, ...]]:
    """Map operators that serve several products to these products."""
    chains = {name: needed_operators((name,)) for name in products}
    users = {step: tuple(name for name, chain in chains.items() if step in chain) for step in OPERATORS}
    return {step: found for step, found in users.items() if len(found) > 1}


def make_stages(products: Iterable[str], planes: Iterable[str] = ()) -> Tuple[Stage, ...]:
    """Build the passes over the frame that compute products, in order.

    A window over the mosaic can be recomputed wherever blocks overlap. A window over computed values would need those
    values recomputed too, so it waits until an earlier stage has stored them.

    Args:
        products: Their names, in the table's order.
        planes: Where outputs have a geometry, the names of the planes that it interpolates.
    """
    wanted, level = {*products}, {MOSAIC: 0}
    groups: List[List[str]] = [[] for _ in STAGES]
    every = needed_operators((*wanted, *_ALWAYS))
    for name in every:
        operator = OPERATORS[name]
        level[name] = max(level[need] + (operator.window and need != MOSAIC) for need in operator.needs)
        groups[level[name]].append(name)
    stages = []
    for name, group in zip(STAGES, filter(None, groups)):
        needs = {need for each in group for need in OPERATORS[each].needs}
        read_later = {need for each in every if each not in group for need in OPERATORS[each].needs}
        stored = [each for each in group if each in wanted or each in read_later]
        writes = sorted(stored, key=lambda each: each not in wanted)  # products first
        reads = (each for each in (MOSAIC, *OPERATORS) if each in needs and each not in group)
        stages.append(Stage(name, tuple(group), tuple(reads), tuple(writes), _reason(group)))
    first, *later = stages
    return (*(_split_by_geometry(first, tuple(planes)) if planes else (first,)), *later)


def _reason(operators: List[str]) -> str:
    """Explain why these operators are in one stage, and not in the one before."""
    first = OPERATORS[operators[0]]
    if MOSAIC in first.needs:
        return f"all of it starts from the mosaic; {_FOLLOWERS}"
    return f"{operators[0]} looks at neighbors in {', '.join(first.needs)}, which other blocks store; {_FOLLOWERS}"


def _split_by_geometry(stage: Stage, planes: Tuple[str, ...]) -> Tuple[Stage, Stage]:
    """Split the first stage of a plan with a geometry: one stage stores planes, and one interpolates them."""
    before = Stage(stage.name, _BEFORE_GEOMETRY, stage.reads, planes, stage.reason)
    left = (name for name in stage.operators if name not in _BEFORE_GEOMETRY or name in stage.writes)
    reason = "a pixel of the output depends on several of the Stokes image, which other blocks store; "
    return before, Stage(GEOMETRY, (GEOMETRY, *left), planes, stage.writes, reason + _FOLLOWERS)
