"""What `gpu.py` measures: launches with what the project asks of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Dict, Mapping, Tuple, Union

from polar_pipeline.backends.cuda.launch import Launch
from polar_pipeline.backends.cuda.program import requested_launches
from polar_pipeline.geometry import make_lens
from polar_pipeline.options import Options, make_options

POLAR = ("intensity", "dolp", "aolp")
#: What the live node publishes by default, but for SSIM.
LIVE = (*POLAR, "preview")
WITH_SSIM = (*LIVE, "ssim_map", "ssim")
ANGLES = ("angle_0", "angle_45", "angle_90", "angle_135")
#: The live node's types.
FLOAT: Mapping[str, str] = {"intensity": "uint8", "preview": "uint8", "dolp": "float32", "aolp": "float32"}
MONO, COLOR = "IMX250MZR", "IMX250MYR"


@dataclass(frozen=True)
class Case:
    """What is measured, and what the project asks of the result.

    Attributes:
        text: The case in words.
        sensor: Name of the sensor.
        products: What is computed. With SSIM, `batch` measures the first launch, which stores what SSIM compares.
        goal: What is asked of it, in words; empty: nothing.
        dtype: Element type of all products, or product -> type.
        raw_format: A key of `CAMERA_FORMATS`; 16-bit words have 12 bits.
        calibrated: Whether a calibration corrects the pixels.
        options: Of the pipeline.
    """

    text: str
    sensor: str
    products: Tuple[str, ...]
    goal: str = ""
    dtype: Union[str, Mapping[str, str]] = "uint8"
    raw_format: str = "u8"
    calibrated: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)


_OWN = {"co_sited": False}
_FULL = {"resolution": "full"}
_BILINEAR = {**_FULL, "demosaic": "bilinear"}
_GRADIENT = {**_FULL, "demosaic": "gradient"}
_ON = {"denoise": "on"}
CASES: Dict[str, Case] = {
    "mono_half": Case("mono half, intensity dolp aolp", MONO, POLAR, "share 0.82"),
    "color_angles": Case("color half own site MHC, four RGB angles", COLOR, ANGLES, "share 0.82", options=_OWN),
    "color_fused": Case("the same, and intensity dolp aolp", COLOR, ANGLES + POLAR, "share 0.75", options=_OWN),
    "mono_live_float_ssim": Case("mono half, live, float, SSIM's inputs", MONO, WITH_SSIM, "7.3 us", FLOAT),
    "mono_live_float": Case("mono half, live, float", MONO, LIVE, "5.7 us", FLOAT),
    "mono_live_ssim": Case("mono half, live, SSIM's inputs", MONO, WITH_SSIM, "5.3 us"),
    "mono_live": Case("mono half, live", MONO, LIVE, "3.8 us"),
    "mono_live_float_12": Case(
        "mono half, live, float, SSIM's inputs, 12 bit", MONO, WITH_SSIM, "8.6 us", FLOAT, "u16"
    ),
    "mono_live_12": Case("mono half, live, SSIM's inputs, 12 bit", MONO, WITH_SSIM, "6.5 us", raw_format="u16"),
    "color_live_float": Case("color half, live, float", COLOR, LIVE, "9.3 us", FLOAT),
    "color_default": Case("color half, live", COLOR, LIVE, "8.7 us"),
    "color_co_sited": Case("color half, four RGB angles", COLOR, ANGLES, "7.5 us"),
    "color_live_float_12": Case("color half, live, float, 12 bit", COLOR, LIVE, "18 us", FLOAT, "u16"),
    "mono_full": Case("mono full bilinear, intensity dolp aolp", MONO, POLAR, "6.7 us", options=_BILINEAR),
    "mono_gradient": Case("mono full gradient, intensity dolp aolp", MONO, POLAR, "9.5 us", options=_GRADIENT),
    "mono_adaptive": Case("mono full ADR, intensity dolp aolp", MONO, POLAR, "58 us", options=_FULL),
    "color_adaptive": Case("color full ADR, intensity dolp aolp", COLOR, POLAR, "172 us", options=_FULL),
    "mono_stokes": Case("mono half, stokes float", MONO, ("stokes",), dtype="float32"),
    "mono_fp32": Case("mono half in fp32, intensity dolp aolp", MONO, POLAR, options={"precision": "fp32"}),
    "mono_calibrated": Case("mono half, calibrated, intensity dolp aolp", MONO, POLAR, "8.3 us", calibrated=True),
    "color_calibrated": Case("color half, calibrated, live", COLOR, LIVE, calibrated=True),
    "mono_full_calibrated": Case(
        "mono full bilinear, calibrated, intensity dolp aolp", MONO, POLAR, calibrated=True, options=_BILINEAR
    ),
}
#: One frame at a time with SSIM, which takes a second launch.
TWO_LAUNCHES: Dict[str, Case] = {
    "color_everything": Case(
        "color half own site: four RGB angles, intensity dolp aolp, SSIM map and mean",
        COLOR,
        (*ANGLES, *POLAR, "ssim_map", "ssim"),
        "at most 18 us",
        options=_OWN,
    ),
    "mono_everything": Case("mono half: intensity dolp aolp, SSIM map and mean", MONO, (*POLAR, "ssim_map", "ssim")),
}
#: A wide lens in front of frames of `timing.SHAPE`.
LENS = make_lens(
    (2048, 2448),
    "plumb_bob",
    (-0.12, 0.05, 0.0005, -0.0003, 0.0),
    (2000.0, 0.0, 1220.0, 0.0, 2000.0, 1030.0, 0.0, 0.0, 1.0),
    (0.0,) * 9,
    (0.0,) * 12,
)
#: With a geometry, in two launches; `goal`: times that of the case of `CASES` with the same products.
GEOMETRIES: Dict[str, Case] = {
    "mono_rectified": Case(
        "mono half, rectified, intensity dolp aolp",
        MONO,
        POLAR,
        options={"rectify": LENS},
    ),
    "mono_rotated": Case("mono half, rotated by 90 degrees, intensity dolp aolp", MONO, POLAR, options={"rotate": 90}),
}
#: With `denoise`, in two launches, or with the network behind it; `goal`: times the same case without it, or the
#: network's own time.
DENOISED: Dict[str, Case] = {
    "mono_half": Case("mono half", MONO, POLAR, "at most 2.2 times", options=_ON),
    "mono_half_12": Case("mono half, float, 12 bit", MONO, POLAR, dtype="float32", raw_format="u16", options=_ON),
    "mono_gradient": Case("mono full gradient", MONO, POLAR, "at most 2.5 times", options={**_GRADIENT, **_ON}),
    "mono_adaptive": Case("mono full ADR", MONO, POLAR, "at most 1.25 times", options={**_FULL, **_ON}),
    "mono_learned": Case("mono full learned", MONO, POLAR, "network 500 us", options={**_FULL, "demosaic": "learned"}),
    "color_half": Case("color half", COLOR, POLAR, options=_ON),
    "color_adaptive": Case("color full ADR", COLOR, POLAR, options={**_FULL, **_ON}),
}


def options_of(case: Case, **more: Any) -> Options:
    """The case's options, without its calibration; `more` options take precedence."""
    depth = {"bit_depth": 12} if case.raw_format == "u16" else {}
    return make_options(case.sensor, case.products, dtype=case.dtype, **{**depth, **case.options, **more})


def launches_of(options: Options, case: Case, shape: Tuple[int, int]) -> Tuple[Launch, ...]:
    """A case's launches on frames of (height, width), by its options."""
    return requested_launches(options, case.raw_format, (shape[1], shape[0]))
