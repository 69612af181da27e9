"""What each kernel that makes products from a mosaic can do, and what it asks for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Dict, Optional, Tuple

from polar_pipeline.cuda.model.work import OUTPUTS, PAIRS, PolarizationWork, red_sites


def _has(**fields: Any) -> Callable[[PolarizationWork], bool]:
    return lambda work: all(getattr(work, name) == value for name, value in fields.items())


def _stores(*images: str, pairs: bool = False) -> Callable[[PolarizationWork], bool]:
    able = {(name, "uint8") for name in images} | {(name, "float16") for name in (PAIRS if pairs else ())}
    return lambda work: able.issuperset(work.outputs)


def _regular(work: PolarizationWork) -> bool:
    return len(set(red_sites(work.sensor).values())) == 1


ANGLE_IMAGES = tuple(name for name in OUTPUTS if name.startswith("angle_"))
_BYTES_IN = (
    ("pixels without a calibration", _has(calibrated=False)),
    ("8-bit pixels of full scale 255", _has(raw_format="u8", full_scale=255)),
    ("a width that is a multiple of 16", lambda work: work.width % 16 == 0),
    ("half precision", _has(half_precision=True)),
)
_MONO = ("a mono sensor", lambda work: not work.sensor.is_color)
_PIXELS = ("intensity", "dolp", "aolp")


@dataclass(frozen=True)
class KernelSpec:
    """What one kernel can do and needs.

    Attributes:
        windows: Where its lines can live.
        pixels: Output pixels of a thread along x with a register window; 0 without.
        threads: Numbers of threads to try with a register window.
        rows: Rows that it can march down with a register window without spilling; for angle images alone, and others.
        effort: Issue slots against those of `tile` (`OPERATIONS`), per window, as measured.
        needs: (what it needs in words, whether a work has it).
    """

    windows: Tuple[str, ...]
    pixels: int
    threads: Tuple[int, ...]
    rows: Tuple[Tuple[int, ...], Tuple[int, ...]]
    effort: Tuple[float, ...]
    needs: Tuple[Tuple[str, Callable[[PolarizationWork], bool]], ...] = ()


#: Every kernel that makes products from a mosaic; `tile` does any work.
KERNELS: Dict[str, KernelSpec] = {
    "mono_half": KernelSpec(
        ("registers",),
        8,
        (64, 128, 160),
        ((2, 4), (2, 4)),
        (0.25,),
        (
            *_BYTES_IN,
            _MONO,
            ("half resolution, bilinear, co-sited", _has(half=True, demosaic="bilinear", co_sited=True)),
            (
                "intensity, dolp and aolp as uint8, and what SSIM compares as float16, only",
                _stores(*_PIXELS, pairs=True),
            ),
        ),
    ),
    "mono_full": KernelSpec(
        ("registers",),
        16,
        (32, 64, 128),
        ((2,), (2,)),
        (0.46,),
        (
            *_BYTES_IN,
            _MONO,
            ("full resolution, bilinear", _has(half=False, demosaic="bilinear")),
            ("intensity, dolp and aolp as uint8 only", _stores(*_PIXELS)),
        ),
    ),
    "color_half": KernelSpec(
        ("registers", "ring"),
        4,
        (32, 64, 96, 160),
        ((2, 4, 6), (2,)),
        (0.47, 0.4),
        (
            *_BYTES_IN,
            ("a colour sensor with red at the same place of all four lattices", _regular),
            ("half resolution, every angle at its own site", _has(half=True, co_sited=False)),
            ("Malvar-He-Cutler", _has(debayer="mhc")),
            (
                "intensity, angle images, dolp, aolp and preview as uint8, and what SSIM compares as float16, only",
                _stores(*_PIXELS, *ANGLE_IMAGES, "preview", pairs=True),
            ),
        ),
    ),
    "tile": KernelSpec(("tile",), 0, (), ((), ()), (1.0,)),
}


def supports(kernel: str, work: PolarizationWork) -> Optional[str]:
    """Why a kernel cannot do a work, None if it can."""
    for text, met in KERNELS[kernel].needs:
        if not met(work):
            return f"{kernel} needs {text}"
    return None
