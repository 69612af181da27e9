"""The table of options of a pipeline."""

from __future__ import annotations

from typing import Dict, Tuple

from polar_pipeline.coefficients import SSIM_SIGMA, SSIM_WINDOW
from polar_pipeline.colormaps import COLOR_STYLES
from polar_pipeline.geometry import ROTATIONS, SCALES
from polar_pipeline.options.option import Option
from polar_pipeline.sensor.frames import ALIGNMENTS
from polar_pipeline.sensor.mosaic import SENSORS

#: Fewest and most CPU threads that can be asked for; 0 is one per core.
THREADS = (0, 256)

_TABLE = (
    Option("sensor", "IMX250MZR", f"Mosaic of the sensor: {', '.join(SENSORS)}, or a tile such as '90 45 / 135 0'."),
    Option(
        "products",
        ("intensity", "dolp", "aolp"),
        "Names of the products to compute, separated by commas; `polar_pipeline.PRODUCTS` holds them all.",
    ),
    Option(
        "backend",
        "auto",
        "What computes: 'cpu', 'cuda', or 'auto' for the fastest one that works on this machine.",
        ("auto", "cpu", "cuda"),
    ),
    Option(
        "resolution",
        "half",
        "'half': one output pixel per 2x2 superpixel. 'full': one per raw pixel.",
        ("half", "full"),
    ),
    Option(
        "precision",
        "auto",
        "Arithmetic: 'fp32' is single precision, 'fp16' half precision (CUDA backend only), 'auto' half precision for "
        "8-bit frames on a GPU, unless SSIM needs single precision, 16-bit integers where a CPU corrects 8-bit frames "
        "by a calibration at half resolution, and single precision everywhere else.",
        ("auto", "fp32", "fp16"),
    ),
    Option(
        "dtype",
        "float32",
        "Element type of the products that offer a choice: 'float32' (physical values), 'uint8' (display encoding) or "
        "'uint16' (the same with 256 times as fine levels).",
        ("float32", "uint8", "uint16"),
    ),
    Option(
        "demosaic",
        "auto",
        "Interpolation: 'bilinear', 'gradient', 'adaptive', or 'auto', which is bilinear (with Malvar-He-Cutler on a "
        "colour lattice) at half resolution and adaptive at full. On a CPU adaptive takes longer than a camera's frame "
        "period at full size; gradient is several times faster.",
        ("auto", "bilinear", "gradient", "adaptive"),
    ),
    Option(
        "co_sited",
        True,
        "At half resolution, whether the four angles are interpolated to the superpixel's centre, or else taken where "
        "they are.",
    ),
    Option(
        "ssim_mode",
        "consistency",
        "What SSIM compares. 'consistency': I0+I90 with I45+I135. 'temporal': S0 with the previous frame. 'reference': "
        "S0/2 with a reference image (the node's topic 'reference', replay's --reference, or the argument of a call).",
        ("consistency", "temporal", "reference"),
    ),
    Option(
        "ssim_stride",
        1,
        "SSIM compares images averaged over this many pixels in each direction, 1 to 8: cheaper, and coarser.",
        limits=(1, 8),
        unit="pixels",
    ),
    Option(
        "ssim_window",
        SSIM_WINDOW,
        "Taps of SSIM's Gaussian window in each direction, odd, 3 to 15.",
        numbers=tuple(range(3, 16, 2)),
        unit="taps",
    ),
    Option(
        "ssim_sigma",
        SSIM_SIGMA,
        "Standard deviation of SSIM's Gaussian window in (averaged) pixels, 0.5 to 5.",
        limits=(0.5, 5.0),
        unit="pixels",
    ),
    Option(
        "min_intensity",
        0.01,
        "Smallest S0 that has a polarization, 0 to 2 (full scale, excluded); darker pixels are invalid.",
        limits=(0.0, 2.0),
        unit="S0",
    ),
    Option(
        "camera_gain",
        0.0,
        "Gain in dB, -48 to 48, above the one at which full well and read noise hold; for the noise only.",
        limits=(-48.0, 48.0),
        unit="dB",
    ),
    Option(
        "debias",
        False,
        "Subtract from DoLP what noise adds to it on average (Plaszczynski et al., 2014).",
    ),
    Option(
        "max_aolp_sigma",
        0.0,
        "Largest standard deviation by noise of an AoLP that is shown, 0 to 90 degrees: above it AoLP is invalid, and "
        "the preview grey. 0 shows all.",
        limits=(0.0, 90.0),
        unit="degrees",
    ),
    Option(
        "polarizer_angle",
        90.0,
        "Angle of the polarizer of the product `polarizer`, 0 to 180 degrees: of the light that it lets through, as in "
        "AoLP. 90 takes away reflections off level ground where the camera is upright.",
        limits=(0.0, 180.0),
        unit="degrees",
    ),
    Option(
        "color_style",
        "plain",
        "Colours of the product `aolp_color`: 'plain', or the less DoLP the more faded, to white ('light'), to black "
        "('dark'), or to a grey as bright as the colours ('faded').",
        tuple(COLOR_STYLES),
    ),
    Option(
        "bit_depth",
        0,
        "Significant bits of 16-bit pixels, 8 to 16; 0 takes those of the encoding, or 16 where it does not say. "
        "Numbers above full scale mean full scale.",
        numbers=(0, *range(8, 17)),
        unit="bits",
    ),
    Option("alignment", "lsb", "Where the significant bits of 16-bit pixels lie: 'lsb' or 'msb'.", ALIGNMENTS),
    Option(
        "roi_offset",
        (0, 0),
        "(x, y) of the frame's first pixel in the sensor's own readout, before any flip.",
        unit="pixels",
    ),
    Option("flip", (False, False), "Mirrored readout: (ReverseX, ReverseY) as set in the camera."),
    Option(
        "calibration",
        "",
        "File with the calibration of this very sensor (`polar-pipeline calibrate`), by which every pixel is corrected "
        "before anything else; '' for none.",
    ),
    Option(
        "scale",
        1,
        "Outputs are means of the Stokes vector over this many pixels in each direction: 1, 2, 4 or 8.",
        numbers=SCALES,
        unit="pixels",
    ),
    Option(
        "rotate",
        0,
        "Turns outputs counter-clockwise by 0 to 270 degrees in steps of 90, after scale; AoLP turns with the image.",
        numbers=ROTATIONS,
        unit="degrees",
    ),
    Option(
        "roi",
        (0, 0, 0, 0),
        "(x, y, width, height) of the part of the outputs that is computed, after scale and rotate; a width or height "
        "of 0 reaches to the border.",
        unit="pixels",
    ),
    Option(
        "rectify",
        "",
        "Lens calibration by which outputs are rectified, before scale: a YAML file of ROS's camera_calibration; "
        "'camera_info' for the one that comes with the frames (the node's topic, replay's recording); '' for none.",
    ),
    Option(
        "threads",
        0,
        f"CPU threads, at most {THREADS[1]}; 0 for one per core.",
        limits=THREADS,
        unit="threads",
        read_only=True,
    ),
)

#: Every option of `Pipeline` by name, in the order of its arguments.
OPTIONS: Dict[str, Option] = {row.name: row for row in _TABLE}
#: Allowed words of every option that is a choice.
CHOICES: Dict[str, Tuple[str, ...]] = {row.name: row.choices for row in _TABLE if row.choices}
