"""What each kernel that makes products from a mosaic can do, and what it asks for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Optional, Tuple

from polar_pipeline.cuda.model.work import OUTPUTS, PAIRS, PLANES, PolarizationWork, red_sites


def _has(**fields: Any) -> Callable[[PolarizationWork], bool]:
    return lambda work: all(getattr(work, name) == value for name, value in fields.items())


def _within(*images: str) -> Callable[[PolarizationWork], bool]:
    return lambda work: set(images).issuperset(work.dtypes)


def _regular(work: PolarizationWork) -> bool:
    return len(set(red_sites(work.sensor).values())) == 1


ANGLE_IMAGES = tuple(name for name in OUTPUTS if name.startswith("angle_"))
#: Of the light of each colour, from its own Stokes vector.
COMPONENTS = ("unpolarized", "polarized", "polarizer")
#: Products by colour maps, which `tile` makes.
COLOR_MAPS = ("aolp_color", "dolp_color")
_UNCALIBRATED = ("pixels without a calibration", _has(calibrated=False))
_WITHOUT_NOISE = (
    "neither standard deviations, debias nor max_aolp_sigma",
    lambda work: not work.uses_noise,
)
_WITHOUT_COMPONENTS = (
    "neither unpolarized, polarized nor polarizer",
    lambda work: work.dtypes.keys().isdisjoint(COMPONENTS),
)
_WITHOUT_MAPS = (
    "neither aolp_color nor dolp_color",
    lambda work: work.dtypes.keys().isdisjoint(COLOR_MAPS),
)
_WITHOUT_PLANES = ("no scale, rotate, roi and rectify", lambda work: work.dtypes.keys().isdisjoint(PLANES))
_BYTES_OF_255 = ("full scale 255 of 8-bit pixels", lambda work: work.raw_format != "u8" or work.full_scale == 255)
_HALF_PRECISION = ("half precision", _has(half_precision=True))
_BYTES_IN = (
    _UNCALIBRATED,
    _WITHOUT_NOISE,
    ("8-bit pixels of full scale 255", _has(raw_format="u8", full_scale=255)),
    ("a width that is a multiple of 16", lambda work: work.width % 16 == 0),
    _HALF_PRECISION,
)
_MONO = ("a mono sensor", lambda work: not work.sensor.is_color)
_PIXELS = ("intensity", "dolp", "aolp")
#: What the SSIM launch needs of a mosaic that it starts from: (in words, whether a work has it).
SSIM_FROM_MOSAIC = (
    *_BYTES_IN,
    _MONO,
    ("half resolution, bilinear, co-sited", _has(half=True, demosaic="bilinear", co_sited=True)),
)


_PLAIN_HALF = (
    "half resolution, bilinear or every angle at its own site",
    lambda work: work.half and (not work.co_sited or work.demosaic == "bilinear"),
)


@dataclass(frozen=True)
class KernelSpec:
    """What one kernel can do and needs.

    Attributes:
        windows: Where its lines can live.
        pixels: Output pixels that a thread can make along x with a register window, or in strips; empty in tiles.
        threads: Numbers of threads to try with a register window or in strips.
        rows: Rows that it can march down there without spilling; for angle images alone, and others.
        effort: Issue slots that pass for one that is counted (`executed.py`, `polarization_cost.py`), per window, as
            measured; empty where none is fitted.
        needs: (what it needs in words, whether a work has it).
    """

    windows: Tuple[str, ...]
    pixels: Tuple[int, ...]
    threads: Tuple[int, ...]
    rows: Tuple[Tuple[int, ...], Tuple[int, ...]]
    effort: Tuple[float, ...]
    needs: Tuple[Tuple[str, Callable[[PolarizationWork], bool]], ...] = ()


#: Every kernel that makes products from a mosaic; `tile` does any work.
KERNELS: Dict[str, KernelSpec] = {
    "mono_half": KernelSpec(
        ("registers",),
        (4, 8),
        (64, 128, 160),
        ((2, 4), (2, 4)),
        (0.889,),
        (
            _UNCALIBRATED,
            _WITHOUT_NOISE,
            _WITHOUT_MAPS,
            _BYTES_OF_255,
            _MONO,
            _PLAIN_HALF,
            ("at least 16x2 pixels", lambda work: work.width >= 16 and work.height >= 2),
        ),
    ),
    "mono_half_calibrated": KernelSpec(
        ("strip",),
        (4,),
        (32, 64, 128),
        ((4, 8, 16, 32), (4, 8, 16, 32)),
        (),
        (
            ("pixels with a calibration", _has(calibrated=True)),
            ("superpixels of the calibration that begin at even rows and columns", _has(phase=(0, 0))),
            _WITHOUT_NOISE,
            _WITHOUT_MAPS,
            _BYTES_OF_255,
            _MONO,
            _PLAIN_HALF,
            (
                "a width that is a multiple of 8, and an even height",
                lambda work: work.width % 8 == 0 and work.height % 2 == 0,
            ),
        ),
    ),
    "mono_full": KernelSpec(
        ("registers",),
        (16,),
        (32, 64, 128),
        ((2,), (2,)),
        (1.1,),
        (
            *_BYTES_IN,
            _MONO,
            (
                "full resolution, bilinear or gradient",
                lambda work: not work.half and work.demosaic in ("bilinear", "gradient"),
            ),
            ("intensity, dolp, aolp and preview only", _within(*_PIXELS, "preview")),
        ),
    ),
    "color_strip": KernelSpec(
        ("strip",),
        (4, 2),
        (32, 64, 128),
        ((4, 8, 16), (4, 8, 16)),
        (1.24,),
        (
            _UNCALIBRATED,
            _WITHOUT_NOISE,
            _WITHOUT_MAPS,
            _WITHOUT_COMPONENTS,
            _WITHOUT_PLANES,
            _BYTES_OF_255,
            ("a width that is a multiple of 8", lambda work: work.width % 8 == 0),
            ("a colour sensor with red at the same place of all four lattices", _regular),
            _PLAIN_HALF,
            ("Malvar-He-Cutler", _has(debayer="mhc")),
        ),
    ),
    "tile": KernelSpec(("tile",), (), (), ((), ()), (1.0,)),
}


def supports(kernel: str, work: PolarizationWork) -> Optional[str]:
    """Why a kernel cannot do a work, None if it can."""
    for text, met in KERNELS[kernel].needs:
        if not met(work):
            return f"{kernel} needs {text}"
    return None


def sums_in_integers(kernel: str, work: PolarizationWork) -> bool:
    """Whether a kernel sums the angles in integers for SSIM, whatever it computes the rest in."""
    if supports(kernel, work) is not None:
        return False
    if kernel == "color_strip":
        spills_on_xavier = "stokes" in work.dtypes and any(name in ANGLE_IMAGES for name in work.dtypes)
        return work.half_precision and work.raw_format == "u8" and not spills_on_xavier
    return kernel == "mono_half"


def usable_kernels(work: PolarizationWork) -> List[str]:
    """The kernels that a work may be scheduled on.

    Where SSIM compares images, rounding in half shows. If any kernel sums in integers, only such kernels are used then.
    """
    supported = [kernel for kernel in KERNELS if supports(kernel, work) is None]
    if not work.half_precision or work.dtypes.keys().isdisjoint(PAIRS):
        return supported
    return [kernel for kernel in supported if sums_in_integers(kernel, work)] or supported
