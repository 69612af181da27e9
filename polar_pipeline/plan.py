"""From products wanted to operators to launches; knows no backend.

The graph is small and known. Four passes: `expand` turns every product into the chain of basic operators behind it;
`simplify` keeps each value once and nothing that no product needs; `aggregate` finds what can share a launch;
`partition` cuts that to what a device allows. A backend has one stage per operator, under the same name.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Dict, Iterable, List, Mapping, NamedTuple, Tuple

from polar_pipeline.products import get_products
from polar_pipeline.sensor.mosaic import ANGLES

#: The input: what every operator starts from.
MOSAIC = "mosaic"


class Operator(NamedTuple):
    """A basic operator.

    Attributes:
        needs: The values it computes from, by name.
        text: What it computes.
        window: Whether it looks at neighbours of what it needs, rather than at the same pixel only.
    """

    needs: Tuple[str, ...]
    text: str
    window: bool = False


#: Every operator by the name of the value it makes; `mosaic` is the input. Listed so that needs come first.
OPERATORS: Dict[str, Operator] = {
    "angles": Operator((MOSAIC,), "demosaic to four angle images, on a colour sensor in RGB", window=True),
    "grey": Operator(("angles",), "luma of the four angle images; the images themselves on a mono sensor"),
    "sums": Operator(("grey",), "I0 + I90 and I45 + I135, shared by S0 and by SSIM's consistency mode"),
    "stokes_planes": Operator(("grey", "sums"), "S0, S1, S2"),
    "saturated": Operator((MOSAIC,), "saturated pixels, counted", window=True),
    "invalid": Operator(("saturated", "stokes_planes"), "saturated and dark pixels, the latter counted too"),
    **{f"angle_{angle}": Operator(("angles",), f"angle image {angle}") for angle in ANGLES},
    "intensity": Operator(("angles",), "S0/2, on a colour sensor per channel"),
    "stokes": Operator(("stokes_planes", "invalid"), "Stokes vector"),
    "polar": Operator(("stokes_planes",), "length and direction of (S1, S2), shared by DoLP, AoLP and preview"),
    "dolp": Operator(("polar", "stokes_planes", "invalid"), "degree of linear polarization"),
    "aolp": Operator(("polar", "invalid"), "angle of linear polarization"),
    "preview": Operator(("polar", "stokes_planes", "invalid"), "HSV display of AoLP, DoLP and intensity"),
    "ssim_pair": Operator(("sums", "stokes_planes"), "the two images that SSIM compares"),
    "ssim_map": Operator(("ssim_pair",), "structural similarity", window=True),
    "ssim": Operator(("ssim_map",), "mean similarity, one sum per block"),
}
#: Counted in every frame, whatever is asked for.
_ALWAYS = ("saturated",)
#: Why a launch computes again what a former one computed.
_ANEW = "it starts from the mosaic again: computing what it needs anew takes less than storing and reading it"
#: Name of a launch by how many launches come before it.
_STAGES = ("polarization", "ssim")


class LimitError(ValueError):
    """A launch that needs more than the device has; the text gives need and limit."""


class Limits(NamedTuple):
    """What one launch may use on a device.

    Attributes:
        outputs: Arrays that it can store.
        shared_bytes: Shared memory of a block.
        windows: Operator -> bytes of shared memory that its smallest window takes; others take none.
        recomputes: Whether later launches start from the mosaic again; then nothing is stored for them.
    """

    outputs: int = len(OPERATORS)
    shared_bytes: int = 0
    windows: Mapping[str, int] = {}
    recomputes: bool = False


NO_LIMITS = Limits()


class Group(NamedTuple):
    """Operators that can share a launch, and why."""

    operators: Tuple[str, ...]
    reason: str


class Launch(NamedTuple):
    """One pass over the frame.

    Attributes:
        name: The stage it is timed as.
        operators: What it computes, needs first.
        reads: Values that it takes from memory.
        writes: Values that it stores: products, and what later launches read.
        reason: Why these operators stand together.
    """

    name: str
    operators: Tuple[str, ...]
    reads: Tuple[str, ...]
    writes: Tuple[str, ...]
    reason: str


class Plan(NamedTuple):
    """What to compute, in order.

    Attributes:
        products: Product names, in the table's order.
        launches: The passes over the frame, in order.
    """

    products: Tuple[str, ...]
    launches: Tuple[Launch, ...]

    @property
    def pixel(self) -> Tuple[str, ...]:
        """Operators that start from the mosaic, without a window over computed values."""
        return _levels(self.products)[0].operators

    @property
    def window(self) -> Tuple[str, ...]:
        """Operators over windows of the former ones' results, and what follows."""
        return tuple(name for group in _levels(self.products)[1:] for name in group.operators)


def expand(products: Iterable[str]) -> Tuple[str, ...]:
    """The chain of basic operators behind each product, one after the other, needs first; repeats are kept."""
    chains: List[str] = []
    for name in products:
        chains += expand(need for need in OPERATORS[name].needs if need != MOSAIC)
        chains.append(name)
    return tuple(chains)


def simplify(operators: Iterable[str]) -> Tuple[str, ...]:
    """Every operator once, in the table's order: what several chains share is computed a single time."""
    wanted = set(operators)
    return tuple(name for name in OPERATORS if name in wanted)


def shared_values(products: Iterable[str]) -> Dict[str, Tuple[str, ...]]:
    """Operators whose value serves several of the products -> those products."""
    names = get_products(products)
    users = {step: tuple(name for name in names if step in expand((name,))) for step in OPERATORS}
    return {step: found for step, found in users.items() if len(found) > 1}


def aggregate(operators: Iterable[str]) -> Tuple[Group, ...]:
    """Operators by the launch that they can be part of, in order.

    A window over the mosaic can be computed again wherever blocks overlap. One over computed values cannot be without
    computing those again too, so it waits until a launch has stored them.
    """
    level: Dict[str, int] = {MOSAIC: 0}
    groups: List[List[str]] = []
    for name in operators:
        needs, _, window = OPERATORS[name]
        level[name] = max(level[need] + (window and need != MOSAIC) for need in needs)
        if level[name] == len(groups):
            groups.append([])
        groups[level[name]].append(name)
    return tuple(Group(tuple(group), _reason(group)) for group in groups)


def _reason(operators: List[str]) -> str:
    """Why these operators stand in one launch, and not in the one before."""
    first = OPERATORS[operators[0]]
    followers = "what follows looks at the same pixel only, so that it stays on chip"
    if MOSAIC in first.needs:
        return f"all of it starts from the mosaic; {followers}"
    return f"{operators[0]} looks at neighbours in {', '.join(first.needs)}, which other blocks store; {followers}"


def partition(groups: Tuple[Group, ...], products: Tuple[str, ...], limits: Limits) -> Tuple[Launch, ...]:
    """Groups cut into launches within the limits; each computes anew what its outputs share with another's.

    With `limits.recomputes` that goes for what a launch would read of a former one, too.

    Raises:
        LimitError: A launch's windows do not fit the shared memory.
    """
    every = {name for group in groups for name in group.operators}
    launches = []
    for index, (operators, reason) in enumerate(groups):
        outside = {need for name in every - set(operators) for need in OPERATORS[name].needs}
        stored = [name for name in operators if name in products or (name in outside and not limits.recomputes)]
        anew = bool(index) and limits.recomputes
        size = limits.outputs
        for part in range(0, max(1, len(stored)), size):
            writes = tuple(stored[part : part + size])
            needed = expand((*writes, *(() if index else _ALWAYS)))
            live = simplify(name for name in needed if anew or name in operators)
            reads = {need for name in live for need in OPERATORS[name].needs} - set(live)
            name = _STAGES[index] + (f"_{part // size + 1}" if len(stored) > size else "")
            _check_windows(name, live, limits)
            ordered = tuple(n for n in (MOSAIC, *OPERATORS) if n in reads)
            launches.append(Launch(name, live, ordered, writes, _ANEW if anew else reason))
    return tuple(launches)


def _check_windows(launch: str, operators: Iterable[str], limits: Limits) -> None:
    windows = {name: limits.windows[name] for name in operators if name in limits.windows}
    if sum(windows.values()) > limits.shared_bytes:
        needs = " + ".join(f"{size} bytes for {name}" for name, size in windows.items())
        raise LimitError(f"launch {launch} needs {needs} of shared memory, the device has {limits.shared_bytes}")


def make_plan(products: Iterable[str], limits: Limits = NO_LIMITS) -> Plan:
    """The plan for a set of products.

    Args:
        products: Their names.
        limits: What a launch may use; by default nothing is in the way.

    Raises:
        ValueError: A product does not exist, or none is asked for.
        LimitError: The device is too small for it.
    """
    names = get_products(products)
    return Plan(names, partition(_levels(names), names, limits))


@lru_cache(maxsize=64)  # backends ask with every frame
def _levels(products: Tuple[str, ...]) -> Tuple[Group, ...]:
    """The operators of products by launch, as if nothing were in the way."""
    return aggregate(simplify(expand((*products, *_ALWAYS))))
