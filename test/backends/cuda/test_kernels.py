"""Kernels against the float64 reference, within the error bounds of the design; on the CPU, and on a GPU if there is.

Every launch also checks memory, races and what is written: see `harness.run`.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from functools import lru_cache
from itertools import count, cycle, product
from typing import Any, DefaultDict, Iterator, List, NamedTuple, Sequence, Tuple

import numpy as np
import pytest
from calibrations import realistic_calibration
from comparison import (
    ADAPTIVE_FACTOR,
    ADAPTIVE_SHARE,
    DARK_BAND,
    LIGHT_BOUND,
    problems_of,
    random_frame,
    run_floats,
)
from harness import Outputs, Runner, host, run
from scenes import synthetic
from support import IS_EXHAUSTIVE

from polar_pipeline.backends import reference
from polar_pipeline.backends.cuda.device import DEVICES
from polar_pipeline.backends.cuda.launch import Schedule
from polar_pipeline.backends.cuda.pixels import SSIM_INPUTS
from polar_pipeline.backends.cuda.polarization import PolarizationLaunch
from polar_pipeline.backends.cuda.program import make_launches
from polar_pipeline.backends.cuda.schedules import candidates as on_device
from polar_pipeline.calibration import Calibration
from polar_pipeline.options import Options, make_options
from polar_pipeline.options.methods import METHODS
from polar_pipeline.options.products import LIGHT_PRODUCTS, NOISE_PRODUCTS, PRODUCTS, VALUE_PRODUCTS
from polar_pipeline.polarimetry.coefficients import SSIM_FULL
from polar_pipeline.sensor.forward import expose
from polar_pipeline.sensor.frames import FORMATS, RawFormat, RawFrame, pack
from polar_pipeline.sensor.mosaic import ANGLES, Sensor, get_sensor

MONO, COLOR = "IMX250MZR", "IMX250MYR"
ALL = tuple(PRODUCTS)
#: Products by color maps.
COLOR_MAPS = ("aolp_color", "dolp_color")
#: What kernels other than `tile` can make, too.
COMMON = tuple(name for name in ALL if name == "dolp" or name not in (*VALUE_PRODUCTS, *COLOR_MAPS))
#: What `color_strip` can make.
OF_STRIPS = tuple(name for name in COMMON if name not in LIGHT_PRODUCTS)
MEASURED = [DEVICES[name] for name in ("xavier", "orin", "h200")]
#: Pixel formats by name, and the one that a `bit_depth` of 8 makes of 16-bit pixels.
KNOWN = {**FORMATS, "8 in 16": RawFormat(8, "u16")}
RAW_FORMATS = {"u8": "u8", "u16": "u16", "p": "12p", "packed": "12packed"}

#: How far the dither of what SSIM reads moves a value, at most: 15 sixteenths of a unit, and what float rounds.
DITHERED = 0.95 / SSIM_FULL
#: What SSIM reads, from kernels that sum it in integers: its dither, and a 64th of a level, which a color below 0 takes
#: from the other lane.
INTEGER_BOUND = DITHERED + 1 / 64 / 255
#: Share of the pixels that may exceed a bound, and by which factor.
Band = Tuple[float, float]
STRICT: Band = (0.0, 1.0)
#: ADR beside steep edges of corrected pixels, which are rounded where raw ones are exact. At most: in float 2.7e-5 at 2
#: of 4896 values, in half at half resolution a DoLP of 0.0024 at one of 329.
ROUNDED: Band = (4e-3, 2.0)


# ------------------------------------------------------------------------------------------------------------- frames


def smooth(shape: Tuple[int, int], sensor: Sensor, top: int, seed: int = 0) -> np.ndarray:
    """Smooth noise over the whole range: some pixels are black, some saturated."""
    return random_frame(shape, int(top).bit_length(), seed + sensor.is_color).mosaic.astype(float)


def noise(shape: Tuple[int, int], sensor: Sensor, top: int, seed: int = 0) -> np.ndarray:
    """Every pixel on its own: the steepest edges that there are."""
    return np.random.default_rng(seed + sensor.is_color).integers(0, top, shape).astype(float)


def scene(shape: Tuple[int, int], sensor: Sensor, top: int, seed: int = 0) -> np.ndarray:
    """What a camera might see."""
    stokes = synthetic("window", shape, seed, is_color=sensor.is_color)
    bits = int(top).bit_length()
    return expose(stokes, sensor, bits, 10000.0, 2.5, np.random.default_rng(seed)).astype(float)


def patches(shape: Tuple[int, int], sensor: Sensor, top: int, seed: int = 0) -> np.ndarray:
    """Flat fields of different polarization, one of them black and one saturated."""
    y, x = np.indices(shape) // 6
    degree, angle = ((x + 2 * y) % 5) / 4, (x + 3 * y + seed) % 8 / 8 * np.pi
    value = 0.45 * ((x * 5 + y * 3) % 4 != 0) * (1 + 3 * ((x + y) % 7 == 3))
    stokes = (
        2
        * value[..., np.newaxis]
        * np.stack([np.ones(shape), degree * np.cos(2 * angle), degree * np.sin(2 * angle)], -1)
    )
    planes = stokes if not sensor.is_color else stokes[:, :, np.newaxis, :] * np.array([0.9, 1.0, 0.7])[:, np.newaxis]
    return expose(planes, sensor, int(top).bit_length()).astype(float)


def spots(shape: Tuple[int, int], sensor: Sensor, top: int, seed: int = 0) -> np.ndarray:
    """Smooth, with saturated pixels that have no such neighbor, at every place of a word of four bytes."""
    y, x = np.indices(shape)
    return np.where((y % 5 == 2) & ((x + 3 * y) % 9 == 0), top, np.rint(0.8 * smooth(shape, sensor, top, seed)))


def sparks(shape: Tuple[int, int], sensor: Sensor, top: int, seed: int = 0) -> np.ndarray:
    """Noise with saturated pixels."""
    is_white = np.random.default_rng(seed + 2).random(shape) < 0.01
    return np.where(is_white, top, noise(shape, sensor, top, seed))


class Picture(NamedTuple):
    """One batch of frames: content, (height, width), bytes of padding per row, frames."""

    content: Any
    shape: Tuple[int, int]
    padding: int = 0
    frames: int = 1


#: No side is a multiple of a tile; every parity.
PICTURES = (
    Picture(scene, (70, 130)),
    Picture(smooth, (48, 64), 16, 2),
    Picture(noise, (23, 17), 2),
    Picture(patches, (32, 51), 6),
    Picture(patches, (16, 16)),
)
#: For blocks whose tiles, halos included, are inside of the picture, in rows of whole words.
INNER_PICTURES = (Picture(spots, (80, 144)),)
#: For kernels that ask for rows of whole 16 bytes, without padding.
WIDE_PICTURES = (
    Picture(scene, (70, 144)),
    Picture(smooth, (48, 64), frames=2),
    Picture(noise, (23, 48)),
    Picture(patches, (33, 80)),
    Picture(patches, (16, 16)),
)
#: For the kernel whose rows are multiples of 8 pixels, without padding: two and many rows of lanes in a warp, and every
#: way in which a picture ends below a step of two rows; frames of sensors have a multiple of 4 rows.
STRIP_PICTURES = (
    Picture(sparks, (38, 136)),
    Picture(noise, (23, 24), frames=2),
    Picture(noise, (28, 40)),
)


#: For `mono_half`, which asks for rows without padding: every alignment of rows, and superpixels that two threads make.
HALF_PICTURES = (
    Picture(scene, (70, 130)),
    Picture(smooth, (48, 64), frames=2),
    Picture(noise, (23, 17)),
    Picture(patches, (32, 52)),
)


@lru_cache(maxsize=None)  # cases of one launch ask alike
def candidates(launch: PolarizationLaunch) -> Tuple[Schedule, ...]:
    """Every schedule of a launch that fits a device, from the smallest tile to the largest."""
    fitting = {row for device in MEASURED for row in on_device(launch, device)}
    return tuple(sorted(fitting, key=lambda row: (row.tile_x, row.tile_y, row)))


class Case(NamedTuple):
    """One kernel and what it is compiled for.

    Attributes:
        name: For people.
        kernel: Stem of its file.
        options: Of the pipeline.
        fmt: Raw format.
        pictures: What it is fed.
        turn: Number of the width of tiles that it takes on the host.
    """

    name: str
    kernel: str
    options: Options
    fmt: RawFormat
    pictures: Sequence[Picture]
    turn: int

    def launch(self, shape: Tuple[int, int]) -> PolarizationLaunch:
        """The launch of a frame of (height, width)."""
        launch, *_ = make_launches(self.options, RAW_FORMATS[self.fmt.packing], self.fmt.full_scale, shape)
        assert isinstance(launch, PolarizationLaunch)
        return launch

    def _candidates(self) -> List[Schedule]:
        """Every schedule of the kernel that fits a device, from the smallest tile to the largest."""
        rows = [row for row in candidates(self.launch(self.pictures[0].shape)) if row.kernel == self.kernel]
        assert rows, f"there is no schedule for {self.name}"
        return rows

    def host_schedule(self) -> Schedule:
        """The smallest schedule; cases of a kernel other than `tile` take the widths of its tiles by turns."""
        rows = self._candidates()
        widths = sorted({row.tile_x for row in rows})
        width = widths[0 if self.kernel == "tile" else self.turn % len(widths)]
        return next(row for row in rows if row.tile_x == width)

    def schedules(self, count: int) -> List[Schedule]:
        """Up to `count` schedules of the kernel that fit a device, from the smallest tile to the largest."""
        rows = self._candidates()
        places = np.linspace(0, len(rows) - 1, min(count, len(rows)))
        return [rows[int(place)] for place in places]


#: Each case of a kernel begins with another one of its pictures.
_TURNS: DefaultDict[str, Iterator[int]] = defaultdict(count)


def case(
    sensor: str,
    fmt: str = "8",
    products: Tuple[str, ...] = (),
    kernel: str = "tile",
    pictures: Sequence[Picture] = (),
    shift: int = 0,
    **options: Any,
) -> Case:
    """A case, named by what is special about it; without products, of all that the kernel can make."""
    everything = {"tile": ALL, "color_strip": OF_STRIPS}.get(kernel, COMMON)
    products = products or everything
    words = [kernel, {MONO: "mono", COLOR: "color"}.get(sensor, "tile")]
    words += ["calibrated" if isinstance(value, Calibration) else str(value) for value in options.values()]
    words += [fmt + (f"<<{shift}" if shift else "")] * (fmt != "8") + ["+".join(products)] * (products != everything)
    made = make_options(sensor, products, **options)
    special = {"tile": PICTURES, "mono_half": HALF_PICTURES, "color_strip": STRIP_PICTURES}
    chosen = pictures or special.get(kernel, WIDE_PICTURES)
    turn = next(_TURNS[kernel])
    some = [chosen[(turn + k) % len(chosen)] for k in range(min(2 if kernel == "tile" else 1, len(chosen)))]
    return Case(" ".join(words), kernel, made, replace(KNOWN[fmt], shift=shift), some, turn // len(chosen))


# ------------------------------------------------------------------------------------------------------------- compare


def make_frames(picture: Picture, sensor: Sensor, fmt: RawFormat) -> List[np.ndarray]:
    """Mosaics as numbers; in words of 16 bits, some lie above full scale."""
    top = (1 << fmt.bits) - 1
    mosaics = []
    for seed in range(picture.frames):
        mosaic = np.clip(picture.content(picture.shape, sensor, top, seed), 0, top).astype(np.uint16) << fmt.shift
        if fmt.packing == "u16":
            rng = np.random.default_rng(seed)
            anywhere = rng.random(picture.shape) < 0.02
            values = [0, fmt.full_scale, min(fmt.full_scale + 1, 65535), 65535, rng.integers(65536)]
            mosaic[anywhere] = rng.choice(values, anywhere.sum())
        mosaics.append(mosaic)
    return mosaics


def raw_bytes(mosaic: np.ndarray, fmt: RawFormat, padding: int) -> Tuple[bytes, int]:
    """The frame as a camera sends it, and its step; no padding behind the last row."""
    row = fmt.row_bytes(mosaic.shape[1])
    rows = np.frombuffer(pack(mosaic, replace(fmt, shift=0)), np.uint8).reshape(-1, row)
    step = row + padding
    padded = np.pad(rows, ((0, 0), (0, padding)), constant_values=255).tobytes()
    return padded[: len(padded) - padding], step


def check(
    got: Outputs, k: int, frame: RawFrame, case: Case, launch: PolarizationLaunch, where: str, band: Band = STRICT
) -> None:
    """Frame k of a batch lies within the bounds around the reference."""
    options = case.options
    products = {name: got.images[name][k] for name in launch.dtypes if name not in SSIM_INPUTS}
    truth = run_floats(frame, options)
    assert problems_of(options, frame, products, truth, band=band) == [], where
    angles = np.stack([truth[f"angle_{degrees}"] for degrees in ANGLES])
    gray = reference.luma(angles) if launch.sensor.is_color else angles
    near_dark = np.abs(2 * gray.mean(0) - options.min_intensity) <= DARK_BAND[launch.half_precision]
    assert near_dark.mean() < 0.05, where  # the band excuses few pixels
    saturated, dark = truth["invalid"]
    assert got.counts[k][0] == saturated, where
    assert abs(int(got.counts[k][1]) - dark) <= near_dark.sum(), where
    pairs = {"s0": gray.mean(0), "sums": np.stack([(gray[0] + gray[2]) / 2, (gray[1] + gray[3]) / 2])}
    is_exact = launch.sums_in_integers and launch.kernels[0].name == case.kernel and launch.raw_format == "u8"
    bound = INTEGER_BOUND if is_exact else LIGHT_BOUND[launch.half_precision] + DITHERED
    for name in set(SSIM_INPUTS) & set(launch.dtypes):
        image = got.images[name][k] / (SSIM_FULL if launch.dtypes[name] == "uint16" else 1)
        error = np.abs(image - pairs[name])
        text = f"{where}: {name}: up to {error.max()}, {(error > bound).sum()} of {error.size} beyond {bound}"
        share, factor = (ADAPTIVE_SHARE, ADAPTIVE_FACTOR) if is_steep(launch) else band
        assert (error > bound).sum() <= share * error.size, text
        assert error.max() <= factor * bound, text


def is_steep(launch: PolarizationLaunch) -> bool:
    """Whether ADR divides by what is nearly nothing, in half."""
    return launch.half_precision and not launch.half and launch.demosaic == "adaptive"


def check_case(case: Case, runner: Runner, schedule: Schedule) -> None:
    """A kernel on pictures against the reference."""
    for picture in case.pictures:
        launch = case.launch(picture.shape)
        mosaics = make_frames(picture, launch.sensor, case.fmt)
        raws = [raw_bytes(mosaic, case.fmt, picture.padding) for mosaic in mosaics]
        got = run(runner, launch, schedule, [raw for raw, _ in raws], raws[0][1], case.options)
        for k, mosaic in enumerate(mosaics):
            where = f"{picture.content.__name__} {picture.shape[1]}x{picture.shape[0]} frame {k}"
            steep = picture.content in (noise, patches, spots) and launch.demosaic == "adaptive"
            frame = RawFrame(np.minimum(mosaic, case.fmt.full_scale).astype(np.uint16), case.fmt.full_scale)
            band = ROUNDED if steep and launch.calibrated else STRICT
            if case.fmt.packing == "u16" and launch.half_precision and launch.demosaic == "adaptive":
                band = (ADAPTIVE_SHARE, ADAPTIVE_FACTOR)  # single white pixels
            check(got, k, frame, case, launch, where, band)


# ---------------------------------------------------------------------------------------------------------------- cases

#: Every way from mosaic to angle images: (resolution, demosaic, co_sited).
WAYS = (
    *(("half", method, True) for method in ("auto", *METHODS)),
    *(("half", method, False) for method in ("auto", "bilinear", "adaptive")),
    *(("full", method, True) for method in METHODS),
)
#: Type of the products and precision of the kernel, by turns.
TURNS = (("float32", "fp32"), ("uint8", "fp16"), ("float32", "fp16"))
_POLAR = ("intensity", "dolp", "aolp")
_LIVE = (*_POLAR, "preview")
_ANGLES = ("angle_0", "angle_45", "angle_90", "angle_135")
_TILE = "0 45 / 135 90"
#: For frames that do not begin at the first pixel of a tile.
SHIFTED_PICTURES = (Picture(smooth, (30, 46)), Picture(patches, (36, 38), 3))
CASES = [
    *(
        case(sensor, resolution=resolution, demosaic=demosaic, co_sited=co_sited, dtype=turn[0], precision=turn[1])
        for (sensor, (resolution, demosaic, co_sited)), turn in zip(product((MONO, COLOR), WAYS), cycle(TURNS))
    ),
    case(MONO, "12", shift=4, dtype="uint8"),
    case(MONO, "16", dtype="uint8"),
    case(MONO, "12p", dtype="uint8"),
    case(MONO, "12Packed", dtype="uint8"),
    case(COLOR, products=("preview",), dtype="uint8"),
    case(MONO, products=("angle_0", "angle_90", "stokes", "preview"), dtype="uint8"),
    case(MONO, products=("intensity", "ssim_map"), demosaic="gradient"),
    case(MONO, products=("intensity", "dolp_color", "ssim"), ssim_mode="temporal"),
    case(COLOR, products=("intensity", "angle_90", "polarizer", "dolp", "aolp", *NOISE_PRODUCTS), dtype="uint16"),
    *(
        case(sensor, fmt, products, resolution="full", dtype=dtype, camera_gain=20.0, debias=True, max_aolp_sigma=limit)
        for sensor, fmt, products, dtype, limit in (
            (MONO, "12", ("dolp", "aolp", "preview"), "uint8", 9.0),
            (COLOR, "10", ("dolp", "aolp", "significance"), "float32", 7.0),
        )
    ),
    *(
        case(sensor, roi_offset=offset, flip=flip, dtype="uint8", pictures=SHIFTED_PICTURES)
        for sensor in (MONO, COLOR)
        for offset, flip in (((1, 0), (False, False)), ((2, 3), (True, False)), ((3, 1), (True, True)))
    ),
    case(_TILE, resolution="full", demosaic="gradient", roi_offset=(1, 0), dtype="uint8", pictures=SHIFTED_PICTURES),
    *(
        case(MONO, fmt, _POLAR, "tile", INNER_PICTURES, resolution="full", precision="fp16", dtype="uint8")
        for fmt in ("8", "12p", "12Packed")
    ),
    case(COLOR, "12", _POLAR, "tile", INNER_PICTURES, resolution="full", demosaic="bilinear", dtype="uint8"),
    case(MONO, "8 in 16"),  # in half
    case(MONO, "12", shift=4, resolution="full", demosaic="gradient", ssim_mode="temporal", dtype="uint8"),
    case(COLOR, "12", shift=4, demosaic="adaptive", co_sited=False, roi_offset=(1, 0), dtype="uint8"),
    *(case(COLOR, fmt, resolution="full", demosaic="bilinear") for fmt in ("12", "8 in 16")),
]
FAST_CASES = [
    *(
        case(MONO, "8", _POLAR, kernel, resolution=size, demosaic="bilinear", roi_offset=offset, dtype="uint8")
        for kernel, size in (("mono_half", "half"), ("mono_full", "full"))
        for offset in ((0, 0), (1, 0), (0, 1))
    ),
    case(MONO, "8", _LIVE, "mono_full", WIDE_PICTURES[:3], resolution="full", demosaic="gradient", dtype="uint8"),
    case(MONO, "8", (*_POLAR, "ssim"), "mono_half", dtype="uint8"),
    case(MONO, "8", ("ssim",), "mono_half", ssim_mode="temporal", dtype="uint8"),
    *(
        case(MONO, fmt, shift=shift, kernel="mono_half", dtype=dtype, precision=precision)
        for fmt, shift, dtype, precision in (
            ("8", 0, "float32", "fp32"),
            ("8", 0, "uint16", "fp16"),
            ("10", 0, "float32", "fp32"),
            ("12", 0, "uint8", "fp16"),
            ("12", 4, "float32", "fp32"),
            ("16", 0, "uint8", "fp16"),
            ("12p", 0, "float32", "fp32"),
            ("12Packed", 0, "uint8", "fp16"),
        )
    ),
    case(MONO, kernel="mono_half", co_sited=False, ssim_mode="temporal", dtype="uint8"),
    case(MONO, "16", kernel="mono_half", co_sited=False, ssim_mode="temporal"),
    case(MONO, "8", ("stokes",), "mono_half"),
    *(
        case(COLOR, "8", _ANGLES, "color_strip", co_sited=False, roi_offset=offset, dtype="uint8")
        for offset in ((0, 0), (2, 0), (0, 2))
    ),
    # luma is in integers with a similarity; pixels are both saturated and below 0.8
    case(COLOR, "8", (*_POLAR, "ssim"), "color_strip", dtype="uint8", min_intensity=0.8),
    case(COLOR, "8", (*_LIVE, "angle_45"), "color_strip", dtype="uint16"),
    case(COLOR, kernel="color_strip", dtype="uint8"),
    case(COLOR, "8", _POLAR, "color_strip", co_sited=False, dtype="uint8"),
    case(COLOR, "12p", OF_STRIPS, "color_strip", co_sited=False, ssim_mode="temporal"),
    case(COLOR, "12", OF_STRIPS, "color_strip", shift=4, dtype="uint8"),
    case(COLOR, "12Packed", (*_LIVE, "angle_45"), "color_strip", dtype="uint16"),
    case(MONO, "10", kernel="mono_half", shift=4),  # full scale 16368, which has bits that are 0
    case(MONO, "8 in 16", kernel="mono_half", co_sited=False),
    case(COLOR, "8 in 16", _LIVE, "color_strip", dtype="uint8"),
]


#: Of regions that contain the pictures.
CALIBRATIONS = {name: realistic_calibration(get_sensor(name), (110, 150)) for name in (MONO, COLOR, _TILE)}
#: Superpixels that the picture cuts at each of its sides; rows that are aligned to words, and rows that are not.
CALIBRATED_PICTURES = (Picture(smooth, (37, 60), frames=2), Picture(patches, (32, 51), 6), Picture(scene, (23, 24)))


#: For `mono_half_calibrated`: one, two and many rows of lanes in a warp, the last strip complete or not.
CALIBRATED_HALF_PICTURES = (
    Picture(smooth, (38, 144), frames=2),
    Picture(noise, (22, 24)),
)


def calibrated(sensor: str, fmt: str = "8", kernel: str = "tile", **options: Any) -> Case:
    """A case with a calibration."""
    pictures = CALIBRATED_PICTURES if kernel == "tile" else CALIBRATED_HALF_PICTURES
    return case(sensor, fmt, kernel=kernel, pictures=pictures, calibration=CALIBRATIONS[sensor], **options)


CALIBRATED_CASES = [
    calibrated(MONO, dtype="uint8", precision="fp16"),
    calibrated(MONO, demosaic="adaptive"),
    calibrated(MONO, co_sited=False, dtype="uint8", precision="fp16"),
    calibrated(MONO, demosaic="adaptive", co_sited=False, precision="fp16"),
    calibrated(MONO, resolution="full", demosaic="bilinear", precision="fp32"),
    calibrated(COLOR, demosaic="gradient", dtype="uint8", precision="fp16"),
    calibrated(COLOR, co_sited=False, precision="fp32"),
    calibrated(COLOR, resolution="full", demosaic="bilinear", precision="fp32"),
    calibrated(COLOR, resolution="full", dtype="uint8", precision="fp16"),
    *(calibrated(MONO, fmt, dtype="uint8") for fmt in ("10", "12p", "12Packed")),
    calibrated(MONO, "12", resolution="full", dtype="uint8"),
    calibrated(COLOR, "12", resolution="full"),
    calibrated(MONO, "8 in 16", resolution="full"),
    *(
        calibrated(MONO, roi_offset=offset, flip=flip, dtype="uint8")
        for offset, flip in (((1, 0), (False, False)), ((2, 3), (True, False)), ((3, 1), (True, True)))
    ),
    calibrated(_TILE, resolution="full", demosaic="gradient", roi_offset=(0, 1), dtype="uint8"),
    *(
        calibrated(MONO, fmt, "mono_half_calibrated", co_sited=co_sited, dtype=dtype, precision=precision)
        for fmt, co_sited, dtype, precision in (
            ("8", True, "float32", "fp16"),
            ("8", False, "float32", "fp16"),
            ("10", True, "uint8", "fp16"),
            ("12", False, "uint8", "auto"),
            ("12p", True, "float32", "fp32"),
            ("12Packed", True, "uint16", "fp32"),
        )
    ),
]


def cases(every: Sequence[Case]) -> Any:
    """Parametrizes a test by cases."""
    return pytest.mark.parametrize("case", every, ids=lambda case: case.name)


@cases([*CASES, *CALIBRATED_CASES, *FAST_CASES])
def test_matches_reference(case: Case, runner: Runner) -> None:
    """Also of 16-bit numbers above full scale, which mean full scale. Cases of a kernel take its pictures by turns."""
    # a GPU compiles in no time, and so it tries the largest tile, too: small frames have one strip then
    for schedule in [case.host_schedule()] if runner is host else case.schedules(2):
        check_case(case, runner, schedule)


#: Cases whose schedules must not show in the result.
SCHEDULED = [
    case(MONO, dtype="uint8"),
    case(MONO, resolution="full", demosaic="bilinear", dtype="uint8"),
    case(MONO, resolution="full", dtype="uint8"),
    case(COLOR, dtype="uint8"),
    case(COLOR, co_sited=False, dtype="uint8"),
    case(COLOR, resolution="full", precision="fp32"),
    calibrated(MONO, dtype="uint8", precision="fp16"),
    calibrated(MONO, kernel="mono_half_calibrated", dtype="uint8"),
    case(MONO, "8", _POLAR, "mono_half", demosaic="bilinear", dtype="uint8"),
    case(MONO, "8", _POLAR, "mono_full", resolution="full", demosaic="bilinear", dtype="uint8"),
    case(MONO, "8", (*_POLAR, "ssim"), "mono_half", dtype="uint8"),
    case(MONO, "8", _LIVE, "mono_full", WIDE_PICTURES[:3], resolution="full", demosaic="gradient", dtype="uint8"),
    case(COLOR, kernel="color_strip", dtype="uint8"),
]


@cases(SCHEDULED)
def test_schedules_do_not_show(case: Case, runner: Runner) -> None:
    shape = (38, 139 if case.kernel == "mono_half" else 144)
    launch = case.launch(shape)
    mosaic = make_frames(Picture(noise, shape), launch.sensor, case.fmt)[0]  # sums whose order matters
    raw, step = raw_bytes(mosaic, case.fmt, 0)
    first, *others = case.schedules(6 if IS_EXHAUSTIVE else 2)
    want = run(runner, launch, first, [raw], step, case.options)
    assert others, "one schedule alone tells nothing"
    for schedule in others:
        got = run(runner, launch, schedule, [raw], step, case.options)
        np.testing.assert_array_equal(got.counts, want.counts, err_msg=str(schedule))
        for name in launch.dtypes:
            message = f"{name}: {schedule} against {first}"
            np.testing.assert_array_equal(got.images[name], want.images[name], err_msg=message)
