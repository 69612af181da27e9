"""Registers that a thread of the polarization launch takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Tuple

from polar_pipeline.cuda.model.device import WARP, Device
from polar_pipeline.cuda.model.geometry import is_adaptive, needs_all_angles
from polar_pipeline.cuda.model.schedule import Schedule
from polar_pipeline.cuda.model.specs import ANGLE_IMAGES, COMPONENTS
from polar_pipeline.cuda.model.work import PAIRS, PolarizationWork


@dataclass(frozen=True)
class Registers:
    """Registers of a thread of `tile`.

    Attributes:
        need: With fewer it spills.
        taken: With room it takes these at most.
        everything: Likewise where the Stokes vector is stored beside other products.
    """

    need: int
    taken: int
    everything: int


#: As compiled for the Jetsons, by (method, what a thread works on): mono in half and in float, colour in half and in
#: float. Both rows: it brings the angles of two raw rows together.
_TILE_REGISTERS = {
    ("plain", "one row"): (
        Registers(64, 56, 70),
        Registers(64, 64, 72),
        Registers(64, 72, 80),
        Registers(96, 96, 112),
    ),
    ("plain", "both rows"): (
        Registers(64, 72, 72),
        Registers(75, 80, 80),
        Registers(80, 80, 96),
        Registers(96, 96, 104),
    ),
    ("adaptive", "one row"): (
        Registers(80, 90, 90),
        Registers(96, 104, 104),
        Registers(80, 100, 100),
        Registers(96, 128, 128),
    ),
    ("adaptive", "both rows"): (
        Registers(80, 96, 96),
        Registers(96, 104, 104),
        Registers(80, 100, 100),
        Registers(96, 112, 112),
    ),
}
#: What ADR needs there in colour and in float from sm_80 on: with 96, one of eight kernels spills 8 bytes.
_ADAPTIVE_COLOR_FLOAT = 104
#: What `tile` without ADR takes at most where it corrects pixels as it loads them, if the rows above have less; and how
#: many more than those where it brings the angles of two rows together.
_CALIBRATED_REGISTERS, _CALIBRATED_BOTH_ROWS = 72, 8
#: What `tile` takes at least, if it has them, where outputs depend on noise: four covariance matrices at once. Second,
#: from sm_90 on for mono at half resolution, where gains are literals: without ADR; with it, in half, and in float.
_NOISE_REGISTERS, _NOISE_LITERAL_REGISTERS = 112, (72, 80, 96)
#: What `tile` needs on a colour sensor where outputs depend on noise, and in float from sm_80 on. On sm_72, in float, 8
#: to 16 bytes are spilled with what 30 % occupancy leaves.
_NOISE_COLOR_NEED = (96, 112)
#: What `tile` takes at least on a colour sensor, if it has them, where components of the light are outputs.
_COMPONENT_REGISTERS = 88
#: What `tile` needs on sm_87 where it brings the angles of two rows together for a preview.
_BOTH_ROWS_PREVIEW = 128
#: Those of `tile` from sm_90 on, without a launch bound, at most in pairs of half, and by ADR in mono on both rows.
_HOPPER_REGISTERS = 80
#: Likewise in float without ADR.
_HOPPER_FLOAT_REGISTERS = 96
#: Those of `color_strip` with two sites a thread in half, of angles at their own sites, for products of luma.
_OWN_SITE_STRIP_REGISTERS = 96
#: Registers of a window in registers, where its launch bound leaves as many.
_WINDOW_REGISTERS = 96
_REGISTERS_PER_SCHEDULER = 16384


def register_bound(threads: int, blocks: int) -> int:
    """Registers of a thread that a launch bound leaves.

    Args:
        threads: Per block.
        blocks: That a multiprocessor has to have room for.
    """
    warps = -(-blocks * (threads // WARP) // 4)
    return min(255, _REGISTERS_PER_SCHEDULER // (warps * WARP) // 8 * 8)


def resident_threads(device: Device) -> int:
    """`RESIDENT` of `kernels/frame.cuh`."""
    return 512 if 80 <= device.capability < 90 else 640


def _tile_registers(work: PolarizationWork, schedule: Schedule, device: Device) -> Tuple[int, int]:
    """Registers that `tile` needs in order not to spill, and those that it takes at most (its launch bound)."""
    both_rows = work.half and work.co_sited and work.demosaic != "bilinear"
    rows = _TILE_REGISTERS["adaptive" if is_adaptive(work) else "plain", "both rows" if both_rows else "one row"]
    row = rows[2 * work.sensor.is_color + (not work.half_precision)]
    asked = row.everything if "stokes" in work.dtypes and len(work.outputs) > 1 else row.taken
    need = row.need
    if both_rows and not is_adaptive(work) and "preview" in work.dtypes and 80 <= device.capability < 90:
        need = asked = max(asked, _BOTH_ROWS_PREVIEW)
    if work.calibrated and not is_adaptive(work):
        asked = max(asked + _CALIBRATED_BOTH_ROWS * both_rows, _CALIBRATED_REGISTERS)
    if work.sensor.is_color and not work.dtypes.keys().isdisjoint(COMPONENTS):
        asked = max(asked, _COMPONENT_REGISTERS)
    if work.half_precision and device.capability >= 90:
        asked = min(asked, _HOPPER_REGISTERS)
    elif device.capability >= 90 and not is_adaptive(work):
        asked = min(asked, _HOPPER_FLOAT_REGISTERS)
    if work.uses_noise:
        has_literals = work.half and not work.sensor.is_color and device.capability >= 90
        literal = _NOISE_LITERAL_REGISTERS[is_adaptive(work) * (2 - work.half_precision)]
        asked = max(asked, literal if has_literals else _NOISE_REGISTERS)
    if is_adaptive(work) and work.sensor.is_color and not work.half_precision and device.capability >= 80:
        need = _ADAPTIVE_COLOR_FLOAT
    if work.uses_noise and work.sensor.is_color:
        has_more = device.capability >= 80 and not work.half_precision
        need = max(need, _NOISE_COLOR_NEED[has_more])
    return need, min(asked, _tile_bound(schedule, device))


def _tile_bound(schedule: Schedule, device: Device) -> int:
    """Registers that the launch bound of `tile` leaves a thread."""
    return register_bound(
        schedule.threads, -(-resident_threads(device) // schedule.threads) if device.capability < 90 else 1
    )


def registers(work: PolarizationWork, schedule: Schedule, device: Device) -> int:
    """Registers of a thread that the solver counts with: never fewer than the compiled kernel takes on a Jetson."""
    if schedule.kernel == "tile":
        return _tile_registers(work, schedule, device)[1]
    resident = 640 if schedule.kernel == "mono_half" else resident_threads(device)
    if device.capability >= 90 and schedule.kernel == "mono_full":
        is_plain = (
            work.demosaic == "bilinear" and set(work.dtypes.values()) == {"uint8"} and "preview" not in work.dtypes
        )
        resident = 1024 if is_plain else 768
    elif device.capability >= 90 and schedule.kernel == "color_strip":
        resident = 512
    if schedule.threads > resident:
        return _WINDOW_REGISTERS
    bound = register_bound(schedule.threads, resident // schedule.threads)
    has_angles = any(name in ANGLE_IMAGES or name == "stokes" for name in work.dtypes)
    is_narrow = schedule.kernel == "color_strip" and schedule.tile_x == 2
    has_pair = not work.dtypes.keys().isdisjoint(PAIRS)
    if is_narrow and not (work.co_sited or has_angles or has_pair) and work.half_precision:
        return min(bound, _OWN_SITE_STRIP_REGISTERS)
    return bound


def _half_spills(work: PolarizationWork, schedule: Schedule, device: Device) -> bool:
    """Whether `mono_half` spills, as compiled for the Jetsons; on sm_90 8 bytes of a few works are not counted."""
    is_wide, is_bytes = work.full_scale > 4095, work.raw_format == "u8"
    has_many, has_floats = len(work.outputs) > 5, "float32" in work.dtypes.values()
    has_pair, has_preview = bool(work.dtypes.keys() & {*PAIRS}), "preview" in work.dtypes
    if schedule.tile_x == 4:
        is_large = is_wide or has_many or (has_preview and work.raw_format == "u16")
        return (schedule.rows > 2 and is_large) or (is_wide and has_many and device.capability < 80)
    has_words = any(dtype == "uint16" and name not in PAIRS for name, dtype in work.outputs)
    if has_many or is_wide or ((has_floats or has_words) and has_preview and has_pair):
        return True
    if schedule.rows > 2:
        return not is_bytes or has_floats or has_pair or has_preview
    return not is_bytes and (has_floats or has_pair)


def spills(work: PolarizationWork, schedule: Schedule, device: Device) -> bool:
    """Whether its launch bound leaves too few registers."""
    if schedule.kernel == "tile":
        return _tile_registers(work, schedule, device)[0] > _tile_bound(schedule, device)
    if schedule.kernel == "color_strip":
        return _strip_spills(work, schedule, device)
    if schedule.kernel == "mono_half_calibrated":  # in float, what packed pixels take more
        return work.raw_format in ("12p", "12packed") and not (work.half_precision or 80 <= device.capability < 90)
    return schedule.kernel == "mono_half" and _half_spills(work, schedule, device)


def _has_more_than_angles(work: PolarizationWork) -> bool:
    """Whether images of angles are stored beside others."""
    return needs_all_angles(work) and any(name in ANGLE_IMAGES for name in work.dtypes)


def spills_to_keep_warps(work: PolarizationWork, schedule: Schedule, device: Device) -> bool:
    """Whether `color_strip` keeps 56 to 96 bytes of a thread in local memory, although `spills` does not count it.

    On sm_90, where `tile` is predicted to take longer still.
    """
    is_it = schedule.kernel == "color_strip" and device.capability >= 90 and not spills(work, schedule, device)
    return is_it and work.co_sited and not work.half_precision and _has_more_than_angles(work)


def _strip_spills(work: PolarizationWork, schedule: Schedule, device: Device) -> bool:
    """Whether `color_strip` spills, as compiled: on sm_90 a few bytes of it are worth their warps."""
    with_angles = _has_more_than_angles(work)
    if device.capability >= 90:
        return schedule.tile_x > 2 and (not work.half_precision or (work.co_sited and with_angles))
    if schedule.tile_x > 2 or (not work.half_precision and device.capability < 80):
        return True
    return work.co_sited and with_angles and (not work.half_precision or device.capability < 80)
