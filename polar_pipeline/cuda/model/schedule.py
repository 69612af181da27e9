"""A schedule: how one launch does its work."""

from __future__ import annotations

from dataclasses import dataclass


class ScheduleError(ValueError):
    """A schedule that cannot run; the message gives what is needed and the limit."""


@dataclass(frozen=True, order=True)
class Schedule:
    """How one launch does its work.

    Attributes:
        kernel: Stem of the file in `kernels/`.
        window: Where the lines live: `registers`, `ring` or `tile`.
        threads: Per block.
        tile_x: Output pixels along x: of a block (tile, ring), or of a thread (registers).
        tile_y: Output pixels along y of a block (tile), else 0.
        rows: Rows that a thread marches down: of the output (registers, ring), or in ADR's first stage (tile).
        lines: Lines in the ring, else 0.
    """

    kernel: str
    window: str
    threads: int
    tile_x: int
    tile_y: int = 0
    rows: int = 0
    lines: int = 0
