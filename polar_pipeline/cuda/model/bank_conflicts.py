"""Clocks that `tile` loses in shared memory, where lanes of a warp want different words of one bank at a time."""

from __future__ import annotations

from functools import lru_cache
from typing import Dict, Iterator, Mapping, NamedTuple, Tuple

import numpy as np

from polar_pipeline.cuda.model.device import WARP
from polar_pipeline.cuda.model.geometry import halos, is_adaptive, output_step, round_up, unit_count
from polar_pipeline.cuda.model.schedule import Schedule
from polar_pipeline.cuda.model.work import PolarizationWork

#: Banks of shared memory, each with a word of four bytes at a time.
BANKS = 32
#: Neighbouring threads that have neighbouring columns of one line, in passes over pairs and over two pairs:
#: `GROUP_OF_PAIRS` and `GROUP_OF_QUADS` of `kernels/tile_layout.cuh`.
_GROUP_OF_PAIRS, _GROUP_OF_QUADS = 32, 16


class Access(NamedTuple):
    """An access to shared memory that every item of a block makes.

    Attributes:
        lines: Of items.
        columns: Items of a line.
        group: Threads that have neighbouring columns of one line.
        pitch: Words from one line of items to the next.
        stride: Words from one item of a line to the next.
        words: Of each item.
    """

    lines: int
    columns: int
    group: int
    pitch: int
    stride: int
    words: int


@lru_cache(maxsize=1 << 14)
def lost_clocks(access: Access) -> int:
    """Clocks of a block in which a bank serves another word of the same access.

    The hardware serves as many neighbouring lanes at a time as have words for all banks.
    """
    number = access.lines * access.columns
    index = np.arange(number)
    grouped = access.columns // access.group * access.group
    rest = access.columns - grouped
    if grouped and rest:  # `item` of `kernels/tile_layout.cuh`
        behind = index - access.lines * grouped
        line = np.where(behind < 0, index // grouped, behind // rest)
        column = np.where(behind < 0, index % grouped, grouped + behind % rest)
    else:
        line, column = np.divmod(index, access.columns)
    words = (line * access.pitch + column * access.stride)[:, None] + np.arange(access.words)
    at_a_time = index // min(WARP, BANKS // access.words)
    served = np.bincount(
        (at_a_time[:, None] * BANKS + words % BANKS).ravel(), minlength=(int(at_a_time[-1]) + 1) * BANKS
    )
    return int((served.reshape(-1, BANKS).max(axis=1) - 1).sum())


def _of_adaptive(work: PolarizationWork, schedule: Schedule) -> Iterator[Tuple[Access, int]]:
    """Accesses of ADR's passes, with how many a thread has of each."""
    step, channels = output_step(work), 3 if work.sensor.is_color else 1
    x, y, word = step * schedule.tile_x, step * schedule.tile_y, 1 if work.half_precision else 2
    mosaic, plane, tile = (x + 2 * round_up(halos(work)[0], 4)) // 2, x // 2 + 4, x // 2
    runs = -(-(y + 2) // schedule.rows)
    gradients, edges, slide = -(-(y + 4) // runs), -(-y // runs), -(-(y + 2) // runs)
    passes = (  # lines, columns, rows of a run, and (pitch, accesses) of what is read and written
        (runs, plane - 2, gradients, ((mosaic, 3 * channels * (gradients + 4)), (plane, 2 * gradients))),
        (runs, tile, edges, ((plane, 6 * (edges + 4)), (tile, edges))),
        (runs * channels, plane - 2, slide, ((mosaic, 5 * (slide + 6)), (plane, 2 * slide), (tile, 4 * slide))),
    )
    for lines, columns, rows, accesses in passes:
        for pitch, number in accesses:
            yield Access(lines, columns, _GROUP_OF_PAIRS, rows * pitch * word, word, word), number
    for pitch, number in ((mosaic, 9), (plane, 18), (tile, 5)):  # the last stage, of two pairs at a time
        yield Access(y, x // 4, _GROUP_OF_QUADS, pitch * word, 2 * word, 2 * word), number * channels


def _of_others(work: PolarizationWork, schedule: Schedule) -> Access:
    """What interpolation by the other methods reads, all of it alike."""
    step, word = output_step(work), 1 if work.half_precision else 2
    pitch = (step * schedule.tile_x + 2 * round_up(halos(work)[0], 4)) // 2
    columns = schedule.tile_x // 4
    return Access(schedule.tile_y, columns, columns, step * pitch * word, 2 * step * word, word)


def conflict_quantities(work: PolarizationWork, schedule: Schedule, lanes: Mapping[str, float]) -> Dict[str, float]:
    """How often one frame needs what `CONFLICTS` has: warps of a stage, and clocks that accesses lose.

    Args:
        work: What `tile` has to do.
        schedule: How.
        lanes: Of the stages of `tile`, as often as they count (`tile_cost.py`).
    """
    found: Dict[str, float] = {}
    for stage, number in lanes.items():
        name = stage.split()[0]
        if name in ("load", "color", "co-site"):
            found["load" if name == "load" else stage] = number / WARP
    units = unit_count(work, schedule)
    if is_adaptive(work):
        lost = sum(number * lost_clocks(access) for access, number in _of_adaptive(work, schedule))
        found["passes of ADR"] = units * lost
    else:
        name = f"angles at {'half' if work.half else 'full'} resolution"
        found[name] = units * (3 if work.sensor.is_color else 1) * lost_clocks(_of_others(work, schedule))
    return found
