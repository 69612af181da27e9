"""Merged exposures: what is taken from which, errors and their stated deviations, motion, and what is refused."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any, List, Sequence, Tuple, Union

import numpy as np
import pytest

from polar_pipeline import Pipeline, RawFrame, merge_exposures
from polar_pipeline.backends.noise.model import exposure_noise, level_of, raw_noise
from polar_pipeline.calibration import Calibration, PixelParameters
from polar_pipeline.options import make_options
from polar_pipeline.quality.statistics import measure
from polar_pipeline.sensor.forward import analyzed, digitize
from polar_pipeline.sensor.frames import SIXTEEN_BITS, FrameError
from polar_pipeline.sensor.mosaic import SENSORS

MONO, COLOR = "IMX250MZR", "IMX250MYR"
#: Exposure times of most tests: four stops apart, as the ratio of 16.
TIMES = (100.0, 1600.0)
#: Noise of a pixel of the IMX250: electrons at full scale and read noise.
FULL_WELL, READ_NOISE = SENSORS[MONO].full_well, SENSORS[MONO].read_noise
#: Superpixels inside, beyond the reach of mirrored borders.
INSIDE = (slice(4, -4), slice(4, -4))
#: Sum of four squares over their variances above which superpixels, or sums over 3 x 3, differ.
LIMIT = 30.0


def taken(
    stokes: np.ndarray,
    chance: np.random.Generator,
    times: Sequence[float] = TIMES,
    sensor: str = MONO,
    bits: int = 12,
    gains_db: Sequence[float] = (0.0, 0.0),
    black: Union[float, np.ndarray] = 0.0,
) -> List[RawFrame]:
    """Exposures of a scene, whose Stokes vectors are shares of the first exposure's full scale."""
    light = analyzed(np.repeat(stokes[:, :, np.newaxis], 3, 2) if SENSORS[sensor].is_color else stokes, SENSORS[sensor])
    frames = []
    for time, gain_db in zip(times, gains_db):
        gain = 10 ** (gain_db / 20)
        pixels = digitize(light * time / times[0] * gain, bits, FULL_WELL / gain, READ_NOISE, chance, black)
        frames.append(RawFrame(pixels, (1 << bits) - 1))
    return frames


def scene(s0: Any, dolp: Any, aolp: float = 0.4, shape: Tuple[int, int] = (64, 64)) -> np.ndarray:
    """Stokes vectors of a shape."""
    s0, dolp = np.broadcast_to(s0, shape), np.broadcast_to(dolp, shape)
    return np.stack([s0, s0 * dolp * np.cos(2 * aolp), s0 * dolp * np.sin(2 * aolp)], -1)


def wedge() -> Tuple[np.ndarray, np.ndarray]:
    """A scene of nine steps of a stop along x, and DoLP 0.1 to 0.9 along y; and the DoLP of superpixels.

    The brightest step has an S0 of 0.9: with a DoLP of 0.9 no angle is saturated in the shortest exposure.
    """
    s0 = 0.9 * 2.0 ** np.arange(-8, 1).repeat(32)[np.newaxis]
    dolp = np.linspace(0.1, 0.9, 5).repeat(32)[:, np.newaxis]
    shape = dolp.size, s0.size
    return scene(s0, dolp, shape=shape), np.broadcast_to(dolp, shape)[::2, ::2]


def by_patch(image: np.ndarray) -> np.ndarray:
    """The pixels of each patch of `wedge` (5, 9, n), at half resolution, without those beside its border."""
    return image.reshape(5, 16, 9, 16).swapaxes(1, 2)[:, :, 2:-2, 2:-2].reshape(5, 9, -1)


def merged_by_numpy(
    frames: Sequence[RawFrame], lights: Sequence[float], black: np.ndarray, keeps_black: bool
) -> Tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The rule in float64, superpixel after superpixel: mosaic, exposure, motion, and where that is certain.

    The longest exposure comes first. The kernels round the deviations that they sum to 1/8, by which a sum of nine has
    an error of 0.1 standard deviations: nothing is certain where a statistic is within 10 % of the limit, and around.
    """
    shot, floor = raw_noise(make_options(), frames[0].full_scale)
    offset = level_of(frames[0].full_scale) / 2
    images = [np.minimum(row.mosaic, row.full_scale) / row.full_scale for row in frames]
    height, width = frames[0].shape
    rows, columns, last = -(-height // 2), -(-width // 2), len(frames) - 1
    index = np.full((rows, columns), last, np.uint8)
    deviations = np.zeros((last, rows + 2, columns + 2, 2, 2))
    own_statistic, statistic = np.zeros((2, last, rows, columns))
    for y, x in np.ndindex(rows, columns):
        place = slice(2 * y, 2 * y + 2), slice(2 * x, 2 * x + 2)
        b = black[place]
        for k in range(last):
            own, after, ratio = images[k][place], images[k + 1][place], lights[k] / lights[k + 1]
            seen, scaled = own - b, ratio * (after - b)
            light = np.maximum(np.where(own < 1, seen, scaled), 0)
            difference = np.where((own == 1) & (scaled > seen), 0, seen - scaled)
            noise = shot * (light + b) + floor + ratio**2 * (shot * (light / ratio + b) + floor)
            error, common = 1e-4 * light**2, offset**2 * (1 + ratio**2)
            own_statistic[k, y, x] = np.sum(difference**2 / (noise + error))
            if own_statistic[k, y, x] <= LIMIT:
                deviation = difference / np.sqrt(noise + 9 * (error + common))
                deviations[k, y + 1, x + 1, : b.shape[0], : b.shape[1]] = deviation
        index[y, x] = next((k for k in range(last) if (images[k][place] < 1).all()), last)
    for k, y, x in np.ndindex(last, rows, columns):
        sums = deviations[k, y : y + 3, x : x + 3].sum((0, 1)) / 3
        statistic[k, y, x] = np.sum(sums**2)
    moved = _grown((np.maximum(own_statistic, statistic) > LIMIT).any(0), 1)
    is_close = [(np.abs(row / LIMIT - 1) < 0.1).any(0) for row in (own_statistic, statistic)]
    is_certain = ~(_grown(is_close[0], 2) | _grown(is_close[1], 1))
    index[moved] = last
    out = np.zeros((height, width))
    for y, x in np.ndindex(height, width):
        k = index[y // 2, x // 2]
        value = (images[k][y, x] - black[y, x]) / lights[k] + keeps_black * black[y, x]
        out[y, x] = value if images[k][y, x] < 1 else 1
    return np.clip(np.floor(SIXTEEN_BITS * out + 0.5), 0, SIXTEEN_BITS), index, moved, is_certain


# ------------------------------------------------------------------------------------------------------ what is taken


def test_a_superpixel_by_hand() -> None:
    """The long exposure where all four are below full scale, divided by the ratio; the short one elsewhere."""
    short, long = np.full((16, 16), 16, np.uint8), np.full((16, 16), 64, np.uint8)
    short[4:6, 4:6], long[4:6, 4:6] = [[10, 20], [30, 64]], [[40, 80], [120, 255]]
    frame = merge_exposures([short, long], [250, 1000])
    assert (frame.full_scale, frame.is_split) == (65535, False)
    np.testing.assert_array_equal(frame.mosaic[:4], round(65535 / 255 * 16))
    np.testing.assert_array_equal(frame.mosaic[4:6, 4:6], 257 * np.array([[10, 20], [30, 64]]))
    exposures = frame.exposures
    assert exposures is not None
    assert (exposures.lights, exposures.gains_db) == ((4.0, 1.0), (0.0, 0.0))
    assert np.argwhere(exposures.index).tolist() == [[2, 2]]
    assert not exposures.moved.any()
    # saturated in both
    short[4, 4] = long[4, 4] = 255
    assert merge_exposures([short, long], [250, 1000]).mosaic[4, 4] == 65535


@pytest.mark.parametrize(("bits", "shape"), [(8, (33, 47)), (12, (48, 1057)), (16, (17, 64))])
@pytest.mark.parametrize("black", [0.0, 0.02])
def test_kernels_follow_the_rule(bits: int, shape: Tuple[int, int], black: float) -> None:
    """Three exposures of noise and steps of light, in an order of their own; odd sizes, rows with gaps."""
    chance = np.random.default_rng(bits)
    s0 = 2.0 ** chance.uniform(-9, 1, shape)
    s0[:, -12:] = 0.04
    frames = taken(
        scene(s0, 0.3, shape=shape), chance, (100.0, 1600.0, 400.0), bits=bits, gains_db=(0,) * 3, black=black
    )
    frames[1].mosaic[: shape[0] // 2, :9] //= 2  # something moved
    weak = frames[1].mosaic[: shape[0] // 2, -8:]
    weak[:] = 1.06 * weak  # little light is added, which only sums show
    frames[1].mosaic[-2:] = np.minimum(frames[1].mosaic[-2:], frames[1].full_scale - 1)
    gap = np.zeros((shape[0], shape[1] + 3), frames[0].mosaic.dtype)
    gap[:, 1:-2] = frames[0].mosaic
    given = [RawFrame(gap[:, 1:-2], frames[0].full_scale), *frames[1:]]
    number = round(black * frames[0].full_scale)
    found = merge_exposures(given, (100.0, 1600.0, 400.0), black=number)
    levels = np.full(shape, number / frames[0].full_scale)
    ordered = [frames[1], frames[2], frames[0]]
    mosaic, index, moved, is_certain = merged_by_numpy(ordered, (16.0, 4.0, 1.0), levels, False)
    assert found.exposures is not None
    assert found.exposures.lights == pytest.approx((16, 4, 1))
    assert is_certain.mean() > 0.5
    np.testing.assert_array_equal(found.exposures.index[is_certain], index[is_certain])
    np.testing.assert_array_equal(found.exposures.moved[is_certain], moved[is_certain])
    assert set(np.unique(index)) == {0, 1, 2}
    assert 0 < moved.mean() < 0.9
    is_certain = is_certain.repeat(2, 0).repeat(2, 1)[: shape[0], : shape[1]]
    assert np.abs(found.mosaic - mosaic)[is_certain].max() <= 1  # float32
    np.testing.assert_array_equal((found.mosaic == 65535)[is_certain], (mosaic == 65535)[is_certain])
    for threads in (1, 2):
        np.testing.assert_array_equal(
            merge_exposures(given, (100, 1600, 400), black=number, threads=threads).mosaic, found.mosaic
        )


def test_gain_counts_as_light_and_raises_noise() -> None:
    """12 dB of gain give four times the numbers of the same time, by a quarter of the electrons at full scale."""
    frames = taken(scene(0.2, 0.3), np.random.default_rng(1), (100.0, 100.0), gains_db=(0.0, 12.0412))
    frame = merge_exposures(frames, (100.0, 100.0), (0.0, 12.0412))
    assert frame.exposures is not None
    assert frame.exposures.lights == pytest.approx((4, 1), rel=1e-5)
    (shot, floor), (own_shot, own_floor) = exposure_noise(make_options(), frame)
    assert (own_shot, own_floor) == pytest.approx(raw_noise(make_options(), 4095), rel=1e-3)
    assert shot == pytest.approx(4 / FULL_WELL / 4)  # no less than in the other exposure
    assert floor == pytest.approx(((4 * READ_NOISE / FULL_WELL) ** 2 + 1 / 4095**2 / 12) / 16, rel=0.02)


@pytest.mark.parametrize("highest", [4095, 4094, 4020, 3900])
def test_numbers_below_full_scale_that_are_too_low_are_not_taken(highest: int) -> None:
    """A camera that saturates below full scale: the long exposure contradicts the short one, which is taken."""
    short, long = taken(scene(3 / 16, 0.5), np.random.default_rng(12))
    assert (long.mosaic == 4095).any(1).all()  # 1.2 to 2.25 times full scale in every angle but one
    long = RawFrame(np.minimum(long.mosaic, highest).astype(np.uint16), 4095)
    with warnings.catch_warnings():
        warnings.filterwarnings("default" if highest < 4095 else "error", "the exposures show different light")
        merged = merge_exposures([short, long], TIMES)
    assert merged.exposures is not None
    assert (merged.exposures.index == 1).all()
    assert merged.exposures.moved.all() == (highest < 4095)
    with Pipeline(products="dolp,intensity", backend="cpu", co_sited=False) as pipeline:
        ours, theirs = pipeline(merged), pipeline(short)
    for name in ("dolp", "intensity"):
        np.testing.assert_allclose(ours[name], theirs[name], atol=1e-4)  # steps of 16 bits
    merged = merge_exposures([RawFrame(row.mosaic, highest) for row in (short, long)], TIMES)
    assert merged.exposures is not None
    assert (merged.exposures.index == 1).all()
    assert not merged.exposures.moved.any(), "its full scale was stated"


# -------------------------------------------------------------------------------------------------------------- errors


def test_a_wedge_has_errors_of_the_better_exposure_and_its_deviations() -> None:
    """Eight stops, DoLP 0.1 to 0.9: root mean square errors of DoLP, and the stated ones, patch by patch.

    40 frames of 144 pixels in a patch: the error of a root mean square is 0.9 %.
    """
    stokes, truth = wedge()
    chance = np.random.default_rng(2)
    errors: List[List[np.ndarray]] = [[], [], []]
    stated = []
    with Pipeline(products="dolp,dolp_sigma", backend="cpu", min_intensity=0.0, co_sited=False) as pipeline:
        for _ in range(40):
            short, long = taken(stokes, chance)
            merged = merge_exposures([short, long], TIMES)
            assert merged.exposures is not None
            assert merged.exposures.moved.mean() < 3e-3
            for place, frame in enumerate((merged, short, long)):
                out = pipeline(frame)
                errors[place].append(by_patch(out["dolp"] - truth))
                if not place:
                    stated.append(by_patch(out["dolp_sigma"].copy()))
    of_merged, of_short, of_long = (np.sqrt(np.mean(np.square(rows), (0, 3))) for rows in errors)
    assert not np.isnan(of_merged).any()
    is_whole = ~np.isnan(of_long)  # elsewhere, pixels of the long exposure are saturated
    assert is_whole.sum() >= 20
    assert (~is_whole).sum() >= 15
    better = np.where(is_whole, np.fmin(of_short, of_long), of_short)
    assert (of_merged / better).max() < 1.05
    said = np.sqrt(np.mean(np.square(stated), (0, 3)))
    deviation = np.std(errors[0], (0, 3))
    # below a DoLP of three deviations, what is stated is the error of debiased DoLP
    is_significant = by_patch(truth).mean(-1) > 3 * said
    assert is_significant.sum() >= 30
    np.testing.assert_allclose((said / deviation)[is_significant], 1, atol=0.1)


@pytest.mark.parametrize("sensor", [MONO, COLOR])
@pytest.mark.parametrize(
    "options",
    [
        {"co_sited": True},
        {"co_sited": False},
        {"resolution": "full", "demosaic": "bilinear"},
        {"resolution": "full", "demosaic": "adaptive"},
    ],
    ids=lambda options: " ".join(map(str, options.values())),
)
def test_deviations_where_exposures_meet(sensor: str, options: Any) -> None:
    """Pixels that are interpolated from superpixels of several exposures: 150 frames, and what they state.

    The brightest angle is 6 % above the full scale of the long exposure in the left half, and 6 % below in the other.
    """
    stokes = scene(2 / 1.359 / 16 * np.where(np.arange(64) < 32, 1.06, 0.94), 0.5)
    chance, found, stated = np.random.default_rng(3), [], []
    with Pipeline(sensor, "dolp,dolp_sigma", "cpu", min_intensity=0.0, **options) as pipeline:
        for _ in range(150):
            frame = merge_exposures(taken(stokes, chance, sensor=sensor), TIMES)
            out = pipeline(frame)
            found.append(out["dolp"][8:-8].copy())
            stated.append(out["dolp_sigma"][8:-8].copy())
    assert frame.exposures is not None
    np.testing.assert_array_equal(frame.exposures.index, (np.arange(32) < 16) * np.ones((32, 1), int))
    edge = 32 if options.get("resolution") == "full" else 16
    beside = slice(edge - 2, edge + 2)
    deviation = np.sqrt(np.mean(np.var(found, 0)[:, beside], 0))
    said = np.sqrt(np.mean(np.square(stated), (0, 1)))[beside]
    assert said.max() > 2 * said.min()  # one exposure has four times the noise of the other
    # what ADR does is not linear, and at edges, as this one of 12 %, known to 0.7 to 1.3 times only (docs/noise.md)
    np.testing.assert_allclose(said / deviation, 1, atol=0.2 if options.get("demosaic") == "adaptive" else 0.1)


def test_a_ratio_of_16_adds_four_stops() -> None:
    """The range is from the light with a DoLP error of 0.05 to the brightest that is not saturated."""
    stops = np.arange(-14, 2, 0.25)
    shape = 96, 16 * stops.size
    stokes = scene(0.9 * 2.0 ** stops.repeat(16)[np.newaxis], 0.3, shape=shape)
    short, long = taken(stokes, np.random.default_rng(4))
    ranges = []
    with Pipeline(products="dolp", backend="cpu", min_intensity=0.0, co_sited=False) as pipeline:
        for frame in (merge_exposures([short, long], TIMES), short, long):
            error = pipeline(frame)["dolp"] - 0.3
            of_step = np.sqrt(np.mean(np.square(error.reshape(48, stops.size, 8)), (0, 2)))
            ranges.append(np.ptp(stops[of_step < 0.05]))  # NaN, where saturated, is not below
    merged, *others = ranges
    assert merged - max(others) >= 3.75


# -------------------------------------------------------------------------------------------------------------- motion


@pytest.mark.parametrize("shift", [1, 2, 7, 20])
def test_nothing_is_wrong_beside_what_is_flagged(shift: int) -> None:
    """A bar moves between the exposures: unflagged pixels have the polarization of one of the two moments.

    Bright, it saturates the long exposure; its DoLP and AoLP differ from those of the ground.
    """
    chance = np.random.default_rng(shift)
    for level, ground in ((0.7, 0.02), (0.02, 0.7), (0.04, 0.01), (0.9, 0.4)):
        moments = []
        for start in (60, 60 + shift):
            stokes = scene(ground, 0.2, 0.3, (96, 192))
            stokes[20:70, start : start + 40] = scene(level, 0.6, 1.3, (50, 40))
            moments.append(stokes)
        frames = [taken(stokes, chance)[place] for place, stokes in enumerate(moments)]
        merged = merge_exposures(frames, TIMES)
        assert merged.exposures is not None
        moved = merged.exposures.moved
        edges = np.abs(moments[0] - moments[1]).sum(-1).reshape(48, 2, 96, 2).max((1, 3)) > 0
        if min(level, ground) < 0.1:  # otherwise the long exposure, saturated before and after, tells nothing
            assert moved[edges].mean() > 0.97
        assert moved[~_grown(edges, 1)].mean() < 1e-3
        assert (merged.exposures.index[moved] == 1).all()
        with Pipeline(products="stokes,dolp,dolp_sigma,aolp", backend="cpu") as pipeline:
            ideal = [
                pipeline(RawFrame(np.rint(analyzed(stokes, SENSORS[MONO]) * 65535).astype(np.uint16), 65535))[
                    "dolp"
                ].copy()
                for stokes in moments
            ]
            out = pipeline(merged)
        wrong = np.min([np.abs(out["dolp"] - row) for row in ideal], 0) > 5 * out["dolp_sigma"] + 0.01
        assert not (wrong & ~moved)[INSIDE].any()


def _grown(mask: np.ndarray, reach: int) -> np.ndarray:
    around, (height, width) = np.pad(mask, reach), mask.shape
    steps = range(2 * reach + 1)
    grown: np.ndarray = np.any([around[y : y + height, x : x + width] for y in steps for x in steps], 0)
    return grown


def test_a_quiet_scene_is_not_flagged() -> None:
    """By noise alone, fewer than 2 of 10 000 superpixels, at every brightness and in 8 bits too."""
    for bits in (8, 12):
        stokes = scene(0.9 * 2.0 ** np.linspace(-12, 0, 512)[np.newaxis], 0.4, shape=(512, 512))
        frame = merge_exposures(taken(stokes, np.random.default_rng(bits), bits=bits), TIMES)
        assert frame.exposures is not None
        assert frame.exposures.moved.mean() < 2e-4


@pytest.mark.parametrize("bits", [8, 12])
def test_patches_of_one_brightness_are_not_flagged(bits: int) -> None:
    """Rounding to 8 bits gives all superpixels of a patch one error, and so does a black level wrong by a number.

    The same bound holds as in the scene above; 1/255 and 1/4095 are a raw number.
    """
    chance = np.random.default_rng(13)
    s0 = 0.9 * 2.0 ** chance.uniform(-12, 0, (16, 16)).repeat(32, 0).repeat(32, 1)
    frames = taken(scene(s0, 0.4, shape=s0.shape), chance, bits=bits, black=16 / ((1 << bits) - 1))
    for black in (16, 16.5, 17) if bits == 12 else (16,):
        frame = merge_exposures(frames, TIMES, black=black)
        assert frame.exposures is not None
        assert frame.exposures.moved.mean() < 2e-4


@pytest.mark.parametrize(("s0", "change"), [(0.8, 0.12), (0.4, 0.16), (0.2, 0.24), (0.1, 0.34), (0.05, 0.56)])
def test_another_polarization_of_the_same_light_is_flagged(s0: float, change: float) -> None:
    """What a change of DoLP must be to be found, at an S0 in full scales of the long exposure: as `docs/hdr.md` says.

    The single superpixels show it by their noise in less than half of the cases, sums over 3 x 3 in 99 %.
    """
    chance = np.random.default_rng(14)
    before, after = (scene(s0 / 16, dolp, shape=(256, 256)) for dolp in (0.1, 0.1 + change))
    frame = merge_exposures([taken(before, chance)[0], taken(after, chance)[1]], TIMES)
    assert frame.exposures is not None
    assert frame.exposures.moved[2:-2, 2:-2].mean() > 0.98
    assert frame.exposures.index[frame.exposures.moved].all()


def test_saturated_superpixels_do_not_hide_wrong_exposures() -> None:
    """Seven of ten columns are saturated in the long exposure: nothing can be compared there."""
    columns = np.arange(320)
    frames = taken(scene(np.where(columns < 224, 0.6, 0.03), 0.3, shape=(64, 320)), np.random.default_rng(15))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        merge_exposures(frames, TIMES)
    for factor in (0.5, 0.9, 1.1, 1.5):
        with pytest.warns(UserWarning, match=r"different light in (9\d|100)% of the superpixels that can be compared"):
            merge_exposures(frames, (TIMES[0], factor * TIMES[1]))


def test_a_few_moved_superpixels_beside_saturated_ones_are_no_misfit() -> None:
    """The long exposure is saturated but for one superpixel, in which something moved."""
    frames = taken(scene(0.6, 0.3), np.random.default_rng(16))
    frames[1].mosaic[20:22, 20:22] = 100
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        merged = merge_exposures(frames, TIMES)
    assert merged.exposures is not None
    assert np.count_nonzero(merged.exposures.moved) == 9


def test_wrong_exposures_are_warned_of() -> None:
    frames = taken(scene(0.05, 0.3), np.random.default_rng(5))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        merge_exposures(frames, TIMES)
    with pytest.warns(
        UserWarning, match="different light in 100% of the superpixels that can be compared: exposure times, gains, the"
    ):
        merge_exposures(frames, (100, 800))
    bright = taken(scene(0.05, 0.3), np.random.default_rng(5), black=0.05)
    with pytest.warns(UserWarning, match="black"):
        merge_exposures(bright, TIMES)
    merge_exposures(bright, TIMES, black=0.05 * 4095)
    dark = taken(scene(0.0005, 0.3), np.random.default_rng(6), (100.0, 100_000.0))
    with pytest.warns(UserWarning, match="steps exceed the noise of the longest exposure"):
        merge_exposures(dark, (100, 100_000))


# ---------------------------------------------------------------------------------------- what follows in the pipeline


def test_a_calibration_corrects_black_level_and_gain() -> None:
    """Black levels of 2 to 3 % and gains of 0.9 to 1.1, pixel by pixel, in both exposures."""
    chance, shape = np.random.default_rng(7), (64, 64)
    black, gain = chance.uniform(0.02, 0.03, shape), chance.uniform(0.9, 1.1, shape)
    none = np.zeros(shape)
    calibration = Calibration.from_parameters(PixelParameters(black, gain, none, none), SENSORS[MONO])
    light = analyzed(scene(np.where(np.arange(64) < 32, 0.6, 0.02), 0.3), SENSORS[MONO])
    frames = [RawFrame(digitize(light * times / gain, 12, black=black), 4095) for times in (1, 16)]
    with Pipeline(products="intensity,dolp", backend="cpu", calibration=calibration, co_sited=False) as pipeline:
        merged = merge_exposures(frames, TIMES, options=pipeline.options)
        assert merged.exposures is not None
        assert not merged.exposures.moved.any()
        assert merged.exposures.index[:, 2:14].all()
        assert not merged.exposures.index[:, 18:].any()
        out = pipeline(merged)
        np.testing.assert_allclose(out["dolp"], 0.3, atol=0.02)
        np.testing.assert_allclose(out["intensity"][:, 18:], 0.01, atol=1e-4)
        with pytest.raises(ValueError, match="0 with a calibration, which has it; got 5"):
            merge_exposures(frames, TIMES, black=5, options=pipeline.options)


def test_defective_pixels_do_not_count_as_motion() -> None:
    """A pixel that is stuck at half of full scale is replaced in both exposures before they are compared."""
    shape, stuck = (64, 64), np.zeros((64, 64), bool)
    stuck[20, 20] = True
    none, frames = np.zeros(shape), taken(scene(0.05, 0.3), np.random.default_rng(11))
    for row in frames:
        row.mosaic[20, 20] = 2000
    parameters = PixelParameters(none, np.ones(shape), none, none)
    calibration = Calibration.from_parameters(parameters, SENSORS[MONO], defects=stuck)
    with Pipeline(products="dolp", backend="cpu", calibration=calibration, co_sited=False) as pipeline:
        assert np.array_equal(merge_exposures(frames, TIMES).exposures.moved, _grown(stuck[::2, ::2], 1))  # type: ignore[union-attr]
        merged = merge_exposures(frames, TIMES, options=pipeline.options)
        assert merged.exposures is not None
        assert not merged.exposures.moved.any()
        np.testing.assert_allclose(pipeline(merged)["dolp"][10, 10], 0.3, atol=0.1)


def test_one_exposure_everywhere_is_that_exposure() -> None:
    """A merged frame in which the long exposure is nowhere saturated has its products, scaled, and its deviations."""
    short, long = taken(scene(0.05, 0.3), np.random.default_rng(8))
    merged = merge_exposures([short, long], TIMES)
    # `adaptive` judges details by their share of full scale, which is another one
    for options in ({}, {"resolution": "full", "demosaic": "gradient"}, {"debias": True, "max_aolp_sigma": 10}):
        with Pipeline(products="intensity,dolp,aolp,dolp_sigma,significance", backend="cpu", **options) as pipeline:
            ours, theirs = pipeline(merged), pipeline(long)
        np.testing.assert_allclose(16 * ours["intensity"], theirs["intensity"], atol=1e-4)
        for name in ("dolp", "aolp", "dolp_sigma", "significance"):
            np.testing.assert_allclose(ours[name], theirs[name], atol=2e-3)


def test_dark_pixels_are_those_of_the_longest_exposure() -> None:
    """`min_intensity` is a share of its full scale: 0.01 is 0.01/16 in the merged frame."""
    frames = taken(scene(np.where(np.arange(64) < 32, 0.0005, 0.0008), 0.3), np.random.default_rng(9), bits=16)
    with Pipeline(products="dolp", backend="cpu") as pipeline:
        merged = merge_exposures(frames, TIMES)
        result = pipeline(merged)
        np.testing.assert_array_equal(np.isnan(result["dolp"])[:, 4:12], True)
        np.testing.assert_array_equal(np.isnan(result["dolp"])[:, 20:28], False)
        assert measure(pipeline, merged, result).saturated == 0


def test_frames_of_files_and_arrays_of_ready_angles(tmp_path: Any) -> None:
    import cv2

    from polar_pipeline import read_frames

    frames = taken(scene(0.3, 0.3), np.random.default_rng(10), bits=8)
    for place, row in enumerate(frames):
        cv2.imwrite(str(tmp_path / f"{place}.png"), row.mosaic)
    merged = merge_exposures(list(read_frames(tmp_path)), TIMES)
    np.testing.assert_array_equal(merged.mosaic, merge_exposures(frames, TIMES).mosaic)
    split = [replace(row, is_split=True) for row in frames]
    merged = merge_exposures(split, TIMES)
    with Pipeline(products="dolp", backend="cpu") as pipeline, Pipeline(backend="cpu", co_sited=False) as other:
        np.testing.assert_array_equal(pipeline(merged)["dolp"], other(replace(merged, is_split=False))["dolp"])


@pytest.mark.filterwarnings("error")
def test_what_is_refused() -> None:
    one, two = np.zeros((16, 16), np.uint8), np.ones((16, 18), np.uint8)
    for times, gains in (
        ((1,), 0.0),
        ((1, 0), 0.0),
        ((1, float("nan")), 0.0),
        ((1, 2), (0.0,)),
        ((1, 2), float("inf")),
        ((1, 2), (0.0, float("nan"))),
        ((1, 2), (0.0, 97.0)),
        ((1, 2), -4000.0),
        ((1, 2), 1e6),
        ((1e-300, 1e300), 0.0),
        ((1e-323, 1e-323), (-96.0, 0.0)),
        ((1, 65536), 0.0),
        ((1, 20000), (0.0, 12.0)),
    ):
        with pytest.raises(
            ValueError, match=r"2 to 16 frames must come with|must be above 0|factor of at most 65535; got times"
        ):
            merge_exposures([one, one], times, gains)
    with pytest.raises(ValueError, match="got 1 frames"):
        merge_exposures([one], [1])
    with pytest.raises(FrameError, match="one size, type and full scale, got"):
        merge_exposures([one, two], [1, 2])
    merged = merge_exposures([one, one], [1, 2])
    with pytest.raises(FrameError, match="mosaics"):
        merge_exposures([merged, merged], [1, 2])
    for black in (-1, 255, float("nan")):
        with pytest.raises(ValueError, match="black must be a raw number below 255"):
            merge_exposures([one, one], [1, 2], black=black)
    with Pipeline(denoise="on", backend="cpu") as pipeline, pytest.raises(
        FrameError, match="denoise needs frames of one"
    ):
        pipeline(merged)
