"""The operator graph: the operators that compute the requested products, and the passes over the frame that run them.

Each value is computed once. The CPU backend runs these stages, and a GPU makes one launch of each. No backend is known
here; `polar-pipeline plan` shows the graph.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Dict, Iterable, NamedTuple, Sequence, Set, Tuple

from polar_pipeline.options.products import PRODUCTS

#: The input: what every operator starts from.
MOSAIC = "mosaic"


@dataclass(frozen=True)
class Operator:
    """A basic operator.

    Attributes:
        needs: The values it computes from, by name.
        text: Description of the value.
    """

    needs: Tuple[str, ...]
    text: str


#: Every operator by the name of the value it makes. Needs come first.
OPERATORS: Dict[str, Operator] = {
    "angles": Operator((MOSAIC,), "demosaic to four angle images, on a color sensor in RGB"),
    "gray": Operator(("angles",), "luma of the four angle images; the images themselves on a mono sensor"),
    "sums": Operator(("gray",), "I0 + I90 and I45 + I135, shared by S0 and by SSIM's consistency mode"),
    "stokes_planes": Operator(("gray", "sums"), "S0, S1, S2"),
    "saturated": Operator((MOSAIC,), "saturated pixels, counted"),
    "invalid": Operator(("saturated", "stokes_planes"), "saturated and dark pixels, the latter counted too"),
    "polar": Operator(("stokes_planes",), "length and direction of (S1, S2), shared by DoLP, AoLP and preview"),
    "noise": Operator(("angles", "polar"), "errors of DoLP and AoLP by noise; `debias` and `max_aolp_sigma` use them"),
    "ssim_pair": Operator(("sums", "stokes_planes"), "the two images that SSIM compares"),
    **{row.name: Operator(row.needs, row.text) for row in PRODUCTS.values()},
}
#: The stages between the polarization and SSIM where the options ask for them, and the operators before them.
DENOISE, LEARNED, GEOMETRY = "denoise", "learned", "geometry"
_BEFORE_PLANES = ("angles", "gray", "sums", "stokes_planes", "saturated", "invalid")
#: Operators of the stage for SSIM: a window over the mosaic can be recomputed wherever blocks overlap, but one over
#: computed values would need those recomputed too, so it waits until a stage has stored them.
_SSIM_OPERATORS = ("ssim_map", "ssim")
_FOLLOWERS = "what follows looks at the same pixel only, so that it stays on chip"
_REASONS = {
    "polarization": f"all of it starts from the mosaic; {_FOLLOWERS}",
    DENOISE: f"a pixel depends on a window of the Stokes image, which other blocks store; {_FOLLOWERS}",
    LEARNED: "a layer of the network looks at neighbors, which other blocks store",
    GEOMETRY: f"a pixel of the output depends on several of the Stokes image, which other blocks store; {_FOLLOWERS}",
    "ssim": f"ssim_map looks at neighbors in ssim_pair, which other blocks store; {_FOLLOWERS}",
}


@dataclass(frozen=True)
class Stage:
    """One pass over the frame.

    Attributes:
        name: `polarization`, `denoise`, `learned`, `geometry` or `ssim`.
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
    needed = set(names)
    for name in reversed(list(OPERATORS)):  # needs come first in the table
        if name in needed:
            needed.update(OPERATORS[name].needs)
    return tuple(name for name in OPERATORS if name in needed)


def shared_values(products: Iterable[str]) -> Dict[str, Tuple[str, ...]]:
    """Map operators that serve several products to these products."""
    chains = {name: needed_operators((name,)) for name in products}
    users = {step: tuple(name for name, chain in chains.items() if step in chain) for step in OPERATORS}
    return {step: names for step, names in users.items() if len(names) > 1}


class PlanePass(NamedTuple):
    """A pass over planes of the Stokes image.

    Attributes:
        name: `DENOISE`, `LEARNED` or `GEOMETRY`.
        reads: Planes, and images of the network, that it takes from memory.
        writes: Products, what SSIM compares, or planes and images for the next pass.
    """

    name: str
    reads: Tuple[str, ...]
    writes: Tuple[str, ...]


def make_stages(products: Iterable[str], passes: Sequence[PlanePass] = ()) -> Tuple[Stage, ...]:
    """Build the passes over the frame that compute products, in order.

    Args:
        products: Their names, in the table's order.
        passes: Passes over planes, where outputs are denoised or have a geometry.
    """
    requested = {*products}
    needed = needed_operators((*requested, "saturated"))  # which is counted in every frame
    groups = {
        "polarization": tuple(name for name in needed if name not in _SSIM_OPERATORS),
        "ssim": tuple(name for name in needed if name in _SSIM_OPERATORS),
    }
    first, *later = (_make_stage(name, group, needed, requested) for name, group in groups.items() if group)
    if not passes:
        return (first, *later)
    outputs = {name for each in passes for name in each.writes}
    planes = {name: None for each in passes for name in each.reads if name not in outputs}
    pair = tuple(name for name in first.writes if name not in outputs)  # what SSIM compares, where it is not denoised
    before = replace(first, operators=(*_BEFORE_PLANES, *pair), writes=(*planes, *pair))
    stages = [before]
    for each in passes:
        ends = {*each.writes} & {*first.writes}
        elsewhere = {*before.operators, *first.writes} - ends
        after = (name for name in first.operators if name in ends or (ends & requested and name not in elsewhere))
        stages.append(Stage(each.name, (each.name, *after), each.reads, each.writes, _REASONS[each.name]))
    return (*stages, *later)


def _make_stage(name: str, operators: Tuple[str, ...], needed: Tuple[str, ...], requested: Set[str]) -> Stage:
    """Build a stage of some operators among all that are needed, `needed`."""
    needs = {need for each in operators for need in OPERATORS[each].needs}
    read_later = {need for each in needed if each not in operators for need in OPERATORS[each].needs}
    stored = [each for each in operators if each in requested or each in read_later]
    writes = sorted(stored, key=lambda each: each not in requested)  # products first
    reads = tuple(each for each in (MOSAIC, *OPERATORS) if each in needs and each not in operators)
    return Stage(name, operators, reads, tuple(writes), _REASONS[name])
