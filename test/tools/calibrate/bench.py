"""A polarization camera before a lamp and a turned polarizer, with the faults of a real bench.

The simulator shares nothing with the package but Malus's law: it would show a mistake in the package's own model.
Images are (H, W), x points right, y up, and the corners of the field have radius 1. Stokes vectors are tuples (S0, S1,
S2) of numbers or images as shares of full scale; a pixel without a polarizer's loss would read S0/2.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple, Union

import numpy as np

from polar_pipeline import Pipeline
from polar_pipeline.calibration import Calibration
from polar_pipeline.options import make_options
from polar_pipeline.sensor.frames import FrameError, RawFrame
from polar_pipeline.sensor.mosaic import SENSORS, Sensor
from polar_pipeline.tools.calibrate.estimate import CalibrationResult, calibrate
from polar_pipeline.tools.calibrate.session import SessionFrame, add_frames
from polar_pipeline.tools.calibrate.sums import DARK

Field = Union[float, np.ndarray]
Stokes = Tuple[Field, Field, Field]

#: Angles of the polarizers in degrees, and channels (R, G, B = 0, 1, 2) of the color filters, from the top left pixel.
_ANGLES = ((90, 45), (135, 0))
_CHANNELS = ((0, 0, 1, 1), (0, 0, 1, 1), (1, 1, 2, 2), (1, 1, 2, 2))
#: Directions of the light that calibrations are judged by, in degrees, and its S0: DoLP 0.9 does not saturate.
_DIRECTIONS = tuple(np.arange(0, 180, 22.5))
_S0 = 0.96
#: What a leaky pixel reads in the dark, as a share of full scale.
_LEAKAGE = (0.02, 0.3)
#: Number and radius of dust spots on the polarizer.
_SPOTS, _SPOT_RADIUS = 8, 0.12
#: Side of the square of texture, larger than any camera here.
_GRAINS = 320
#: Index of the setting that is misread grossly; there are as few as four.
GROSS = 2
_EVERY_10_DEGREES = tuple(range(0, 180, 10))


# -------------------------------------------------------------------------------------------------------------- camera


@dataclass(frozen=True)
class Camera:
    """A camera; the same arguments give the same pixels.

    Attributes:
        seed: Seed of its pixels.
        shape: (height, width).
        is_color: Whether it has the color filters of the IMX250MYR.
        gain: Standard deviation of the gains.
        columns: Standard deviation of the gains of columns, which all pixels of a column share.
        turned: Standard deviation of the axes of the polarizers from their nominal angles, in degrees.
        stress: Rotation of all axes in degrees.
        black: Mean and standard deviation of the black levels, as shares of full scale.
        shading: Share of the light that the lens loses in the corners.
        defects: Share of single pixels that are leaky, dead or stuck.
        clusters: (row, column, side) of squares of dead pixels.
        full_well: Electrons at full scale.
        read_noise: Standard deviation in electrons.
        gamma: Exponent of its response; 1 is linear.
    """

    seed: int = 0
    shape: Tuple[int, int] = (128, 160)
    is_color: bool = False
    gain: float = 0.01
    columns: float = 0.0
    turned: float = 0.8
    stress: float = 0.0
    black: Tuple[float, float] = (0.008, 0.0015)
    shading: float = 0.1
    defects: float = 5e-4
    clusters: Tuple[Tuple[int, int, int], ...] = ()
    full_well: float = 10_500.0
    read_noise: float = 2.4
    gamma: float = 1.0

    @property
    def sensor(self) -> Sensor:
        """The sensor as the package knows it, with full frames of this camera's size."""
        return replace(SENSORS["IMX250MYR" if self.is_color else "IMX250MZR"], size=self.shape)

    def measure(self, stokes: Stokes, spectrum: Tuple[float, float, float] = (1.0, 1.0, 1.0)) -> np.ndarray:
        """Return what the pixels collect of light as shares of full scale, by Malus's law.

        Args:
            stokes: Stokes vector.
            spectrum: How much R, G and B pixels react to the light.
        """
        pixels = _pixels(self)
        s0, s1, s2 = stokes
        passed = s0 + pixels.modulation * (np.cos(2 * pixels.axis) * s1 + np.sin(2 * pixels.axis) * s2)
        return pixels.gain / 2 * np.array(spectrum)[pixels.channel] * passed + pixels.leakage

    def read(
        self, light: np.ndarray, bit_depth: int, rng: Optional[np.random.Generator] = None, count: int = 1
    ) -> np.ndarray:
        """Return the (count, H, W) integer mosaics of pixels that collected light.

        Args:
            light: As `measure` returns it.
            bit_depth: 8 to 16; the values are aligned to the least significant bit.
            rng: Source of the noise; None for none.
            count: How many frames.
        """
        pixels = _pixels(self)
        value = np.tile((light + pixels.black).astype(np.float32), (count, 1, 1))
        if rng is not None:
            variance = np.maximum(light, 0) / self.full_well + (self.read_noise / self.full_well) ** 2
            value += np.sqrt(variance).astype(np.float32) * rng.standard_normal(value.shape, np.float32)
        value[:, pixels.is_stuck] = pixels.leakage[pixels.is_stuck]
        value = np.clip(value, 0, 1) ** self.gamma * ((1 << bit_depth) - 1)
        return np.rint(value, out=value).astype(np.uint8 if bit_depth == 8 else np.uint16)


class _Pixels(NamedTuple):
    """Properties of the pixels of a camera, (H, W) each; axes in rad, gains with the lens."""

    gain: np.ndarray
    axis: np.ndarray
    modulation: np.ndarray
    black: np.ndarray
    leakage: np.ndarray
    channel: np.ndarray
    is_stuck: np.ndarray
    is_bad: np.ndarray


@lru_cache(maxsize=4)
def _pixels(camera: Camera) -> _Pixels:
    rng = np.random.default_rng(camera.seed)
    shape = camera.shape

    def tiled(tile: Tuple[Tuple[int, ...], ...]) -> np.ndarray:
        repeats = [-(-side // len(tile)) for side in shape]
        return np.tile(np.array(tile), repeats)[: shape[0], : shape[1]]

    x, y = _places(shape)
    gain = 1 + camera.gain * rng.standard_normal(shape)
    gain *= 1 + camera.columns * np.random.default_rng((camera.seed, 4)).standard_normal(shape[1])
    turned = camera.stress + camera.turned * rng.standard_normal(shape)
    extinction = np.maximum(rng.normal(300, 80, shape), 50)
    black = rng.normal(*camera.black, shape)
    kind = np.where(rng.random(shape) < camera.defects, rng.integers(1, 4, shape), 0)  # leaky, dead, stuck
    for row, column, side in camera.clusters:
        kind[row : row + side, column : column + side] = 2
    leakage = np.where(kind == 1, rng.uniform(*_LEAKAGE, shape), np.where(kind == 3, rng.random(shape), 0))
    shade = 1 - camera.shading * (x**2 + y**2)
    return _Pixels(
        gain=np.where(kind >= 2, 0, gain * shade),
        axis=np.deg2rad(tiled(_ANGLES) + turned),
        modulation=(extinction - 1) / (extinction + 1),
        black=black,
        leakage=leakage,
        channel=tiled(_CHANNELS) if camera.is_color else np.zeros(shape, int),
        is_stuck=kind == 3,
        is_bad=kind > 0,
    )


def _places(shape: Tuple[int, int]) -> Tuple[np.ndarray, np.ndarray]:
    """Return x (1, W) and y (H, 1) of the pixels."""
    radius = np.hypot(*shape) / 2
    y, x = (np.arange(side) - (side - 1) / 2 for side in shape)
    return x[np.newaxis] / radius, -y[:, np.newaxis] / radius


# --------------------------------------------------------------------------------------------------------------- bench


@dataclass(frozen=True)
class Bench:
    """A lamp, a polarizer in a rotation mount, and what somebody records and reads off there; without faults.

    Attributes:
        seed: Seed of the noise, of readings and of dust.
        angles: True angles of the mount, in degrees.
        frames: Frames at each angle.
        dark_frames: Dark frames.
        bit_depth: Bits of the frames.
        light: S0 behind the polarizer, as a share of full scale.
        spectrum: How much R, G and B pixels react to the lamp.
        reading_error: Standard deviation of the readings, in degrees.
        gross_error: Error of the reading of setting `GROSS`, in degrees.
        zero: Reading where the axis of the polarizer is along x, in degrees; or backlash of a mount.
        eccentricity: Amplitude in degrees of the readings' error by a scale that is not centered.
        tilt: Angle in degrees between the axis of rotation and the optical axis; about a line at 30 degrees.
        wobble: Angle in degrees between the polarizer's normal and the axis of rotation; about its own axis.
        field_angle: Angle in degrees between the optical axis and the rays to the corners.
        lamp_polarization: DoLP of the lamp, uniform, at 20 degrees.
        slanted_polarization: DoLP of the lamp where x is 1, of the other sign where x is -1, at 20 degrees.
        radial_polarization: DoLP of the lamp in the corners; polarized radially, and as the square of the radius.
        lamp_turn: Angle in degrees by which the lamp is turned; or the camera, with the polarizer, the other way.
        turning_gradient: Relative change of the light from center to corner, in a direction that turns with the mount.
        dust: Share of the light that dust spots on the polarizer absorb.
        texture: Standard deviation of the lamp's brightness from place to place, relative.
        grain: Standard deviation in pixels of the blur that makes this texture of white noise.
        wedge: Pixels by which the polarizer shifts the image of the lamp, along the polarizer's axis.
        drift: Share of its light that the lamp loses over the session.
        dark_light: Signal of the dark frames, as a share of full scale.
        room_light: Light that does not pass the polarizer, relative to the light that does.
        polarizer_extinction: Extinction ratio of the polarizer.
    """

    seed: int = 0
    angles: Tuple[float, ...] = _EVERY_10_DEGREES
    frames: int = 16
    dark_frames: int = 64
    bit_depth: int = 12
    light: float = 0.75
    spectrum: Tuple[float, float, float] = (1.0, 1.0, 1.0)
    reading_error: float = 0.0
    gross_error: float = 0.0
    zero: float = 0.0
    eccentricity: float = 0.0
    tilt: float = 0.0
    wobble: float = 0.0
    field_angle: float = 0.0
    lamp_polarization: float = 0.0
    slanted_polarization: float = 0.0
    radial_polarization: float = 0.0
    lamp_turn: float = 0.0
    turning_gradient: float = 0.0
    dust: float = 0.0
    texture: float = 0.0
    grain: float = 3.0
    wedge: float = 0.0
    drift: float = 0.0
    dark_light: float = 0.0
    room_light: float = 0.0
    polarizer_extinction: float = 1e5

    def names(self) -> List[str]:
        """Return the names of the settings, which say the angles that were meant."""
        return [f"{angle:05.1f}" for angle in self.angles]

    def readings(self, number: int = 1) -> List[float]:
        """Return the angles as read off the scale in the session of this number, in degrees."""
        rng = np.random.default_rng((self.seed, 1, number))
        readings = np.array(self.angles) + self.zero + self.reading_error * rng.standard_normal(len(self.angles))
        readings += self.eccentricity * np.sin(np.deg2rad(self.angles))
        readings[GROSS] += self.gross_error
        return [float(reading) for reading in readings]

    def stokes(self, setting: int, shape: Tuple[int, int]) -> Stokes:
        """Return the Stokes vector before the camera over the field."""
        x, y = _places(shape)
        angle = np.deg2rad(self.angles[setting])
        s1, s2 = self._lamp(x, y)
        axis = self._axis(angle, x, y)
        cosine, sine = np.cos(2 * axis), np.sin(2 * axis)
        # the Mueller matrix of a polarizer that lets 1 through along its axis and `leak` across
        leak = 1 / self.polarizer_extinction
        along, across = s1 * cosine + s2 * sine, s2 * cosine - s1 * sine
        s0 = 1 + leak + (1 - leak) * along
        parallel = 1 - leak + (1 + leak) * along
        diagonal = 2 * np.sqrt(leak) * across
        light = self.light * (1 - self.drift * setting / (len(self.angles) - 1)) * self._transmission(angle, x, y)
        return (
            light * s0 + self.light * self.room_light,
            light * (parallel * cosine - diagonal * sine),
            light * (parallel * sine + diagonal * cosine),
        )

    def _lamp(self, x: np.ndarray, y: np.ndarray) -> Tuple[Field, Field]:
        """Return S1 and S2 of the lamp relative to its S0."""
        turn = np.deg2rad(self.lamp_turn)
        direction = 2 * (np.deg2rad(20) + turn)
        linear = self.lamp_polarization + self.slanted_polarization * (x * np.cos(turn) + y * np.sin(turn))
        # (x^2 - y^2, 2 x y) is radius^2 (cos, sin) of twice the azimuth; the lamp can turn without a change of it
        s1 = linear * np.cos(direction) + self.radial_polarization * (x**2 - y**2)
        s2 = linear * np.sin(direction) + self.radial_polarization * 2 * x * y
        return s1, s2

    def _axis(self, angle: float, x: np.ndarray, y: np.ndarray) -> Field:
        """Return the angle of the light behind the polarizer in rad, from the position of the polarizer in space.

        Light keeps the field across the absorbing axis c: along c x k for a ray k. A turn from k to the optical axis
        by the shortest way brings it into the sensor's plane.
        """
        if not (self.tilt or self.wobble or self.field_angle):
            return angle
        absorbing = _turn(0.0, self.wobble) @ np.array([0.0, 1.0, 0.0])
        spin = np.array([[np.cos(angle), -np.sin(angle), 0], [np.sin(angle), np.cos(angle), 0], [0, 0, 1]])
        absorbing = _turn(30.0, self.tilt) @ spin @ absorbing
        slope = np.tan(np.deg2rad(self.field_angle))
        rays = np.stack(np.broadcast_arrays(x * slope, y * slope, 1.0), -1)
        rays = rays / np.linalg.norm(rays, axis=-1, keepdims=True)
        kept = np.cross(absorbing, rays)
        kept = kept - (kept[..., 2:] / (1 + rays[..., 2:])) * (rays + np.array([0, 0, 1]))
        return np.arctan2(kept[..., 1], kept[..., 0])

    def _transmission(self, angle: float, x: np.ndarray, y: np.ndarray) -> Field:
        """Return the brightness over the field, which turns with the polarizer."""
        if not (self.turning_gradient or self.dust or self.texture):
            return 1.0
        light = 1 + self.turning_gradient * (x * np.cos(angle) + y * np.sin(angle))
        rng = np.random.default_rng((self.seed, 2))
        for place_x, place_y in rng.uniform(-0.7, 0.7, (_SPOTS if self.dust else 0, 2)):
            spot_x = place_x * np.cos(angle) - place_y * np.sin(angle)
            spot_y = place_x * np.sin(angle) + place_y * np.cos(angle)
            light = light * (1 - self.dust * np.exp(-((x - spot_x) ** 2 + (y - spot_y) ** 2) / 2 / _SPOT_RADIUS**2))
        return light * (1 + self.texture * self._grains(angle)[: y.size, : x.size]) if self.texture else light

    def _grains(self, angle: float) -> np.ndarray:
        """Return the texture of the lamp, shifted by the wedge: blurred noise with a standard deviation of 1."""
        spectrum = np.fft.fft2(np.random.default_rng((self.seed, 5)).standard_normal((_GRAINS, _GRAINS)))
        down, right = np.fft.fftfreq(_GRAINS)[:, np.newaxis], np.fft.fftfreq(_GRAINS)
        spectrum *= np.exp(-2 * (np.pi * self.grain) ** 2 * (down**2 + right**2))
        spectrum[0, 0] = 0
        scale = np.linalg.norm(spectrum) / _GRAINS**2  # by Parseval's theorem
        shift = self.wedge * (right * np.cos(angle) - down * np.sin(angle))
        grains: np.ndarray = np.fft.ifft2(spectrum * np.exp(-2j * np.pi * shift)).real / scale
        return grains


def _turn(azimuth: float, degrees: float) -> np.ndarray:
    """Return the (3, 3) rotation by an angle about a line in the sensor's plane, both in degrees."""
    x, y = np.cos(np.deg2rad(azimuth)), np.sin(np.deg2rad(azimuth))
    cross = np.array([[0, 0, y], [0, 0, -x], [-y, x, 0]])
    angle = np.deg2rad(degrees)
    return np.eye(3) + np.sin(angle) * cross + (1 - np.cos(angle)) * cross @ cross


# ------------------------------------------------------------------------------------------------------------ sessions


@dataclass(frozen=True)
class Case:
    """A calibration of a camera, and what its user says about the frames.

    Attributes:
        camera: The camera.
        benches: The bench in each session; the settings of the k-th are named `k/NAME` from the second on.
        used: The camera where the calibration is used, if other than on the bench.
        region: (x, y, width, height) of the frames, whose offset the user does not say; the whole sensor by default.
        said_bits: Bits of the frames according to the user; those of the frames by default.
        is_said_mono: Whether the user takes a color sensor for a monochrome one.
        arguments: Further arguments of `calibrate`.
    """

    camera: Camera
    benches: Tuple[Bench, ...]
    used: Optional[Camera] = None
    region: Optional[Tuple[int, int, int, int]] = None
    said_bits: int = 0
    is_said_mono: bool = False
    arguments: Dict[str, Any] = field(default_factory=dict)

    @property
    def sensor(self) -> Sensor:
        """The sensor according to the user."""
        return replace(self.camera, is_color=False).sensor if self.is_said_mono else self.camera.sensor

    def frames(self) -> Iterator[SessionFrame]:
        """Yield the frames of all sessions."""
        x, y, width, height = self.region or (0, 0, *self.camera.shape[::-1])
        crop = (slice(y, y + height), slice(x, x + width))
        for number, bench in enumerate(self.benches, 1):
            rng = np.random.default_rng((bench.seed, 0, number))
            full_scale = (1 << (self.said_bits or bench.bit_depth)) - 1
            pictures = [(DARK, (2 * bench.dark_light, 0.0, 0.0), bench.dark_frames)]
            names = _names(bench, number)
            pictures += [(name, bench.stokes(k, self.camera.shape), bench.frames) for k, name in enumerate(names)]
            for setting, stokes, count in pictures:
                light = self.camera.measure(stokes, bench.spectrum)
                for index, mosaic in enumerate(self.camera.read(light, bench.bit_depth, rng, count)):
                    frame = RawFrame(np.ascontiguousarray(mosaic[crop]), full_scale)
                    yield SessionFrame(setting, f"{setting}_{index}", frame)

    def readings(self) -> Dict[str, float]:
        """Return the angles of the settings as read off the scale, in degrees."""
        readings: Dict[str, float] = {}
        for number, bench in enumerate(self.benches, 1):
            readings.update(zip(_names(bench, number), bench.readings(number)))
        return readings


def _names(bench: Bench, number: int) -> List[str]:
    """Return the names of the settings of the session of this number."""
    return [name if number == 1 else f"{number}/{name}" for name in bench.names()]


@dataclass(frozen=True)
class Outcome:
    """What came of a session.

    Attributes:
        case: The session.
        result: The result; None if the session was refused.
        refusal: Why.
    """

    case: Case
    result: Optional[CalibrationResult]
    refusal: str = ""

    @property
    def problems(self) -> List[str]:
        """What keeps the command from writing a file."""
        return [self.refusal] if self.result is None else list(self.result.problems)

    @property
    def warnings(self) -> List[str]:
        """Warnings of the result."""
        return [] if self.result is None else list(self.result.warnings)

    def judge(self, dolp: float = 0.1) -> Judgment:
        """Measure the errors of the result in uniform light, with frames without noise."""
        assert self.result is not None
        used = self.case.used or self.case.camera
        return judge(used, self.result.calibration, dolp, self.case.sensor, not self.case.is_said_mono)


def run_session(case: Case) -> Outcome:
    """Calibrate a camera from its sessions."""
    try:
        sums = add_frames(case.frames(), make_options(sensor=case.sensor))
        return Outcome(case, calibrate(sums, case.readings(), case.sensor, **case.arguments))
    except ValueError as err:
        return Outcome(case, None, str(err))


class Judgment(NamedTuple):
    """Root mean square errors of DoLP over pixels and directions, without (`before`) and with a calibration.

    Superpixels with defects count only with the calibration, which is to replace them. A pipeline that refuses the
    frames has infinite errors.
    """

    dolp_before: float
    dolp_error: float

    @property
    def ratio(self) -> float:
        """Error of DoLP without over that with the calibration."""
        return self.dolp_before / self.dolp_error


def judge(camera: Camera, calibration: Calibration, dolp: float, sensor: Sensor, has_own_sites: bool) -> Judgment:
    """Measure errors through the public pipeline on uniform light of half of full scale, in 16 bits without noise.

    The light is uniform on the sensor: with so few pixels, a lens's shading changes within a superpixel by as much as
    calibrations are wrong, and it stays in the image.

    Args:
        camera: The camera where the calibration is used.
        calibration: The calibration.
        dolp: DoLP of the light.
        sensor: The sensor according to the user.
        has_own_sites: Whether the four angles come from the pixels of a superpixel alone: neighbors would blur errors.
            They have to take part where the user mistakes colors for gains.
    """
    height, width = calibration.shape
    camera = replace(camera, shading=0.0)
    good = ~_pixels(camera).is_bad[:height, :width]
    good = good.reshape(height // 2, 2, width // 2, 2).all((1, 3))
    squares = []
    for corrected in (None, calibration):
        pipeline = Pipeline(
            sensor=sensor, products="dolp", backend="cpu", co_sited=not has_own_sites, calibration=corrected
        )
        rows = []
        for direction in _DIRECTIONS:
            turn = np.deg2rad(2 * direction)
            light = camera.measure((_S0, _S0 * dolp * np.cos(turn), _S0 * dolp * np.sin(turn)))
            mosaic = np.ascontiguousarray(camera.read(light, 16)[0, :height, :width])
            try:
                out = pipeline(RawFrame(mosaic, 65535))
            except FrameError:
                rows.append(np.inf)
                continue
            counts = good if corrected is None else np.isfinite(out["dolp"])
            rows.append(np.nanmean((out["dolp"][counts] - dolp) ** 2))
        squares.append(np.mean(rows))
    return Judgment(*np.sqrt(squares).tolist())


# --------------------------------------------------------------------------------------------------------------- cases


def turned(case: Case) -> Case:
    """Return a case with a second session, before which the lamp was turned by 90 degrees."""
    (bench,) = case.benches
    return replace(case, benches=(bench, replace(bench, lamp_turn=90.0)))


def cases(seed: int) -> Dict[str, Case]:
    """Return sessions with each fault of a bench in several strengths, by name."""
    camera, bench = Camera(seed), Bench(seed)
    led = (0.45, 1.0, 0.65)
    faults = {
        "readings of {} degrees": ("reading_error", (0.1, 0.3, 0.5, 1.0)),
        "one reading of {} degrees": ("gross_error", (10.0,)),
        "mount tilted by {} degrees": ("tilt", (4.5, 10.0)),
        "zero off by {} degrees": ("zero", (0.7, 1.0, 2.0, 4.0, 8.0)),
        "scale off its center by {} degree": ("eccentricity", (1.0,)),
        "lamp polarized by {}": ("lamp_polarization", (0.01, 0.02)),
        "lamp polarized by {} at an edge": ("slanted_polarization", (0.01, 0.02, 0.04)),
        "lamp radially polarized by {}": ("radial_polarization", (0.01, 0.02, 0.04)),
        "gradient of {} that turns": ("turning_gradient", (0.01, 0.02, 0.05, 0.1)),
        "dust of {}": ("dust", (0.01, 0.02, 0.05)),
        "lamp drifts by {}": ("drift", (0.05, 0.2)),
        "light of {} in dark frames": ("dark_light", (0.01, 0.03, 0.09)),
        "room light of {}": ("room_light", (0.01, 0.03, 0.1)),
        "polarizer of {}:1": ("polarizer_extinction", (30.0, 200.0)),
        "{} frame a setting": ("frames", (1, 4)),
        "{} dark frame": ("dark_frames", (1,)),
        "{} bit": ("bit_depth", (8, 10)),
    }
    found = {"clean": Case(camera, (bench,))}
    for text, (name, strengths) in faults.items():
        for strength in strengths:
            found[text.format(f"{strength:g}")] = Case(camera, (replace(bench, **{name: strength}),))
    for name in (
        "clean",
        "lamp polarized by 0.02",
        "lamp polarized by 0.04 at an edge",
        "lamp radially polarized by 0.04",
        "gradient of 0.05 that turns",
        "dust of 0.02",
        "room light of 0.03",
    ):
        found[f"{name}, lamp turned"] = turned(found[name])
    # with a camera that is turned alone the lamp turns the other way, and the scale's zero with it
    polarized = replace(bench, lamp_polarization=0.02)
    after = replace(polarized, lamp_turn=-90.0, zero=90.0)
    found["lamp polarized by 0.02, camera turned"] = Case(camera, (polarized, after))
    for degrees in (4.5, 10.0):
        wobbling = replace(bench, wobble=degrees, field_angle=3.0)
        found[f"polarizer wobbles by {degrees:g} degrees"] = Case(camera, (wobbling,))
    for degrees in (2.0, 4.0, 8.0):
        found[f"stress of {degrees:g} degrees"] = Case(replace(camera, stress=degrees), (bench,))
    for texture in (0.02, 0.05, 0.1):
        for grain in (1.5, 3.0, 6.0, 10.0):
            grainy = replace(bench, texture=texture, grain=grain)
            found[f"texture of {texture:g}, {grain:g} pixels"] = Case(camera, (grainy,))
    for wedge in (0.5, 1.0, 3.0):
        for grain in (3.0, 6.0):
            moving = replace(bench, texture=0.05, grain=grain, wedge=wedge)
            found[f"wedge of {wedge:g} pixels, {grain:g} pixels"] = Case(camera, (moving,))
    full_turn = replace(moving, grain=3.0, angles=tuple(float(angle) for angle in range(0, 360, 20)))
    found["wedge of 3 pixels, 3 pixels, 360 degrees"] = Case(camera, (full_turn,))
    found["texture of 0.05, color"] = Case(
        replace(camera, is_color=True), (replace(bench, texture=0.05, spectrum=led),)
    )
    found["columns of 0.01"] = Case(replace(camera, columns=0.01), (bench,))
    found["lens that loses 0.6 of the light"] = Case(replace(camera, shading=0.6), (bench,))
    for count in (4, 5, 8):
        found[f"{count} settings"] = Case(camera, (_settings(bench, count),))
    few = {"reading_error": 0.5, "frames": 4}
    found["5 settings, 4 frames, readings of 0.5 degrees"] = Case(camera, (replace(_settings(bench, 5), **few),))
    for extinction in (30.0, 200.0):
        known = replace(bench, polarizer_extinction=extinction)
        arguments = {"polarizer_extinction": extinction}
        found[f"polarizer known to have {extinction:g}:1"] = Case(camera, (known,), arguments=arguments)
    found["cluster of 18x18 in a corner"] = Case(replace(camera, defects=0.0, clusters=((0, 0, 18),)), (bench,))
    large = replace(camera, shape=(224, 272), defects=0.0, clusters=((95, 119, 34),))  # 1.9 % of the pixels
    found["cluster of 34x34 inside"] = Case(large, (bench,))
    color = replace(camera, is_color=True)
    found["white LED, color"] = Case(color, (replace(bench, spectrum=led),))
    for extinction in (25.0, 100.0):
        found[f"polarizer of {extinction:g}:1, color"] = Case(color, (replace(bench, polarizer_extinction=extinction),))
    even = replace(camera, gain=0.005, turned=0.4)
    found["polarizer of 200:1, even pixels"] = Case(even, (replace(bench, polarizer_extinction=200.0),))
    found["room light of 0.05, even pixels"] = Case(even, (replace(bench, room_light=0.05),))
    found["lens of 60 degrees, even pixels"] = Case(even, (replace(bench, field_angle=30.0),))
    found["color as mono"] = Case(color, (replace(bench, spectrum=led),), is_said_mono=True)
    whole = replace(camera, shape=(192, 224))
    found["odd ROI offset not given"] = Case(whole, (bench,), region=(33, 32, 160, 128))
    found["even ROI offset not given"] = Case(whole, (bench,), region=(32, 32, 160, 128))
    found["black clipped at 0"] = Case(replace(camera, black=(0.0, 0.0015)), (bench,))
    found["12 bit given as 10"] = Case(camera, (bench,), said_bits=10)
    found["12 bit given as 16"] = Case(camera, (bench,), said_bits=16)
    gamma = replace(camera, gamma=0.8)
    found["gamma 0.8 on the bench"] = Case(gamma, (bench,), used=camera)
    found["gamma 0.8"] = Case(gamma, (bench,))
    found["8 bit, few electrons"] = Case(camera, (replace(bench, bit_depth=8, light=0.04),))
    return found


def random_case(seed: int) -> Case:
    """Return a session with readings of random precision and random faults, few of them at once."""
    rng = np.random.default_rng((seed, 3))
    count = int(rng.choice((8, 12, 18, 24)))
    bench = replace(
        _settings(Bench(seed), count, float(rng.choice((180, 360)))),
        frames=int(rng.choice((4, 8, 16))),
        reading_error=float(rng.choice((0.0, 0.1, 0.3, 0.5, 1.0))),
    )
    highest = {
        "radial_polarization": 0.04,
        "turning_gradient": 0.04,
        "dust": 0.03,
        "tilt": 6.0,
        "lamp_polarization": 0.02,
        "drift": 0.1,
        "room_light": 0.03,
        "dark_light": 0.03,
    }
    faults = {name: rng.uniform(0, high) for name, high in highest.items() if rng.random() < 0.15}
    stress = rng.uniform(-6, 6) if rng.random() < 0.2 else 0.0
    return Case(Camera(seed, stress=float(stress)), (replace(bench, **faults),))


def _settings(bench: Bench, count: int, span: float = 180.0) -> Bench:
    """Return a bench with evenly spread angles of the mount."""
    return replace(bench, angles=tuple(float(angle) for angle in np.arange(count) * span / count))
