"""Comparison with a golden recording: frames matched by stamp, one row of figures per product."""

from __future__ import annotations

import math
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Counter, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

import cv2
import numpy as np

from polar_pipeline._util.errors import errors_as
from polar_pipeline._util.paths import AnyPath, as_path
from polar_pipeline._util.text import printable
from polar_pipeline.options.products import PRODUCTS, full_level, get_products, level_scale
from polar_pipeline.options.topics import PRODUCT_TOPICS
from polar_pipeline.polarimetry.coefficients import LUMA, SSIM_C1, SSIM_C2, SSIM_SIGMA, SSIM_WINDOW
from polar_pipeline.recordings import messages
from polar_pipeline.recordings.limits import MAX_BYTES, SourceError, reading
from polar_pipeline.recordings.messages import FLOAT32, IMAGE, Cdr
from polar_pipeline.recordings.rosbag2 import open_recording
from polar_pipeline.recordings.source import Recorded
from polar_pipeline.sensor.frames import FrameError

if TYPE_CHECKING:  # needs the extra `recordings`
    from polar_pipeline.recordings.bags import Bag, Topics

#: AoLP is compared where the golden DoLP reaches the first, DoLP and AoLP where the golden intensity reaches the
#: second: below them is mostly noise.
MIN_DOLP = 0.05
MIN_INTENSITY = 0.05


class GoldenError(SourceError):
    """A golden recording that is missing, was cut off or is damaged, so that nothing can be compared with it."""


class Golden:
    """The products of a recording, by stamp; open it with `open_golden`.

    The stamp of a plain number, which has no header, is its time of recording.
    """

    def __init__(self, path: Path, recording: Bag) -> None:
        self.path = path
        #: Product -> stamp in nanoseconds -> times of recording; several if frames have equal stamps.
        self.places: Dict[str, Dict[int, List[int]]] = {}
        self._recording = recording
        self._topics = _product_topics(path, recording.topics)
        for name in self._topics:
            for stamp_ns, time_ns, _ in self._messages(name):
                self.places.setdefault(name, {}).setdefault(stamp_ns, []).append(time_ns)

    def _messages(self, name: str, at_ns: Optional[int] = None) -> Iterator[Tuple[int, int, Cdr]]:
        """Yield stamps, times of recording and messages of a product; with `at_ns`, those of that time of recording."""
        for message_type, time_ns, data in self._recording.messages([self._topics[name]], at_ns):
            cdr = Recorded(time_ns, message_type, data).message()
            yield messages.decode_image(cdr).stamp_ns if message_type == IMAGE else time_ns, time_ns, cdr

    def frames(self) -> List[Tuple[int, int]]:
        """Return stamp, and number of frames with that stamp before it, of each frame in the order of recording."""
        rows = [(stamp_ns, times) for places in self.places.values() for stamp_ns, times in places.items()]
        frames = sorted((time_ns, stamp_ns, before) for stamp_ns, times in rows for before, time_ns in enumerate(times))
        return list(dict.fromkeys((stamp_ns, before) for _, stamp_ns, before in frames))

    def load(self, name: str, stamp_ns: int, before: int = 0) -> Optional[np.ndarray]:
        """Read a product of one frame as `Pipeline` returns it, or None if the recording lacks it.

        `before` is the number of frames with the same stamp that came before the frame.

        Raises:
            GoldenError: The recording is damaged there.
        """
        times = self.places.get(name, {}).get(stamp_ns, [])
        if before >= len(times):
            return None
        time_ns = times[before]
        state = f"is damaged: {name} of stamp {stamp_ns} cannot be read"
        with errors_as(GoldenError, SourceError), reading(self.path, state):
            rows = [cdr for stamp, _, cdr in self._messages(name, time_ns) if stamp == stamp_ns]
            cdr = rows[times[:before].count(time_ns)]
            if self._topics[name][1] == FLOAT32:
                return np.array(messages.decode_float32(cdr))
            return messages.to_array(messages.decode_image(cdr))

    def intensity(self, stamp_ns: int, size: Tuple[int, int]) -> np.ndarray:
        """Read S0/2 of one frame for SSIM mode `reference`, (h, w) float32 in [0, 1].

        Raises:
            FrameError: No frame of the stamp has the size (h, w), or several frames have the stamp (cause
                `reference`).
        """
        count = len(self.places.get("intensity", {}).get(stamp_ns, []))
        image = self.load("intensity", stamp_ns) if count == 1 else None
        if image is None or image.shape[:2] != size:
            got = count if image is None else f"one of {image.shape[1]}x{image.shape[0]}"
            text = f"needs one reference with stamp {stamp_ns} of {size[1]}x{size[0]} pixels, {self.path} has {got}"
            raise FrameError("reference", text)
        return _gray(image)


def _product_topics(path: Path, recorded: Topics) -> Dict[str, Tuple[str, str]]:
    """Find the topic of each product in a recording, with its type."""
    topics: Dict[str, Tuple[str, str]] = {}
    second = tuple(f"/{row.paired}" for row in PRODUCT_TOPICS.values() if row.paired)
    for topic, message_type in recorded:
        if f"/{topic}".endswith(second):
            continue
        # recorded in a namespace, a topic ends like the product's
        rows = (row for row in PRODUCT_TOPICS.items() if f"/{topic}".endswith(f"/{row[1].name}"))
        name = next((name for name, row in rows if row.message_type == message_type), None)
        if name is not None and topics.setdefault(name, (topic, message_type)) != (topic, message_type):
            raise SourceError(f"{path} holds {name} twice: on {printable(topics[name][0])}, {printable(topic)}")
    if not any(map(recorded.get, topics.values())):
        raise SourceError(f"{path} holds no products: {', '.join(row.name for row in PRODUCT_TOPICS.values())}")
    return topics


def golden_products(path: Path, max_bytes: int = MAX_BYTES) -> Tuple[str, ...]:
    """Return the products for which a recording has topics, in the order of `PRODUCTS`, without reading messages.

    The arguments and errors are those of `open_golden`.
    """
    with reading(path), open_recording(path, max_bytes) as recording:
        return get_products(_product_topics(path, recording.topics))


@contextmanager
def open_golden(path: AnyPath, max_bytes: int = MAX_BYTES, allow_truncated: bool = False) -> Iterator[Golden]:
    """Open a recording of products, such as one that replay wrote; see `bags.open_recording`.

    Raises:
        GoldenError: The recording cannot be read, holds no products, or holds one twice.
    """
    path = as_path(path)
    with ExitStack() as stack:
        with errors_as(GoldenError, SourceError), reading(path):
            recording = stack.enter_context(open_recording(path, max_bytes, allow_truncated))
            golden = Golden(path, recording)
        yield golden


@dataclass(frozen=True)
class WorstFrame:
    """The frame with the largest error of a product."""

    index: int  # its place in the recording, from 0
    stamp_ns: int
    #: (x, y) of the largest error; None for plain numbers, and where types or shapes do not match.
    pixel: Optional[Tuple[int, int]] = None
    #: The expected and the computed image, and the error in the unit of the comparison, infinite where only one of them
    #: is NaN; empty if the error is within the tolerance.
    images: Tuple[np.ndarray, ...] = ()

    def __str__(self) -> str:
        """Return the place in words."""
        place = "" if self.pixel is None else ", pixel x {}, y {}".format(*self.pixel)
        return f"frame {self.index}, stamp {format_stamp(self.stamp_ns)}{place}"


def format_stamp(stamp_ns: int) -> str:
    """Format a stamp in seconds, with all of its digits."""
    return f"{stamp_ns // 10**9}.{stamp_ns % 10**9:09d} s"


@dataclass(frozen=True)
class ProductComparison:
    """Comparison of one product with the golden recording."""

    name: str
    frames: int  # frames compared
    missing: int  # frames that only one of the two recordings has
    error: float  # largest error, in `unit`; infinite where shapes, types or NaNs do not match
    tolerance: float  # largest error allowed
    unit: str  # unit of error and tolerance
    psnr: float  # in dB over all frames; infinite if equal
    ssim: float  # mean over the frames; NaN for plain numbers
    note: str  # description of a mismatch; empty if everything matches
    worst: Optional[WorstFrame] = None  # the frame with the largest error; None if every error is 0
    missing_stamp_ns: Optional[int] = None  # stamp of the earliest missing frame; None if no frame is missing

    @property
    def passed(self) -> bool:
        """Whether every frame is there and within the tolerance."""
        return self.frames > 0 and self.missing == 0 and self.error <= self.tolerance

    @property
    def reason(self) -> str:
        """Why the comparison failed, in words; "" if it passed."""
        texts = ["no frame was compared"] if not self.frames else []
        if self.missing_stamp_ns is not None:
            stamp = format_stamp(self.missing_stamp_ns)
            texts.append(f"{self.missing} frames are in only one of the two recordings, the earliest has stamp {stamp}")
        if self.worst is not None and self.error > self.tolerance:
            unit = "" if self.unit == "1" else f" {self.unit}"
            size = self.note or f"error {self.error:.4g}{unit}, tolerance {self.tolerance:.4g}"
            texts.append(f"{self.worst}: {size}")
        return "; ".join(texts)


@dataclass
class _Tally:
    """The running figures of one product; see `ProductComparison`. `limit` takes the place of its own tolerance."""

    name: str
    limit: Optional[float]
    frames: int = 0
    stamps: Counter[int] = field(default_factory=Counter)  # frames by stamp, compared or not
    error: float = 0.0
    squares: List[float] = field(default_factory=list)  # sum of the squared errors of each frame
    pixels: int = 0
    similarity: List[float] = field(default_factory=list)  # mean SSIM of each frame
    is_byte: bool = False  # of the newest frame
    note: str = ""
    worst: Optional[WorstFrame] = None

    def _keep_largest(self, error: float, note: str, worst: WorstFrame) -> None:
        """Keep the largest error of a frame if it is larger than those of the frames before."""
        if error > self.error:
            self.error, self.note, self.worst = error, note, worst

    @property
    def tolerance(self) -> float:
        """Largest error allowed."""
        product = PRODUCTS[self.name]
        default = product.tolerance_levels if self.is_byte else product.tolerance
        return default if self.limit is None else self.limit

    def add(self, got: np.ndarray, golden: Mapping[str, Optional[np.ndarray]], frame: WorstFrame) -> None:
        """Compare the product of one frame with the golden products of the frame, and add the figures."""
        expected = golden[self.name]
        self.stamps[frame.stamp_ns] += 1
        if expected is None:
            return
        self.frames += 1
        self.is_byte = got.dtype == np.uint8
        if expected.shape != got.shape or expected.dtype != got.dtype:
            note = f"{got.dtype} {got.shape}, golden {expected.dtype} {expected.shape}"
            self._keep_largest(np.inf, note, frame)
            return
        images: Tuple[np.ndarray, ...] = expected, got
        mask = _meaningful(self.name, expected, golden)
        if got.dtype == np.uint16:
            got, expected = _physical(self.name, got), _physical(self.name, expected)
        with np.errstate(all="ignore"):  # the recording may hold any numbers
            is_finite = np.isfinite(got) & np.isfinite(expected)
            differing = ~is_finite & ~(np.isnan(got) & np.isnan(expected))
            error = _errors(self.name, got, expected)
            self.similarity += [_similarity(self.name, got, expected)] if got.ndim else []
        squares = np.square(error[mask & is_finite])
        self.squares.append(float(squares.sum()))
        self.pixels += squares.size
        error = np.where(differing, np.inf, np.where(mask & is_finite, error, 0.0))
        largest = float(error.max(initial=0.0))
        if got.ndim:
            row, column = np.unravel_index(error.argmax(), error.shape)[:2]
            images = (*images, error) if largest > self.tolerance else ()
            frame = replace(frame, pixel=(int(column), int(row)), images=images)
        note = ""
        if np.isinf(largest):
            note = f"{np.count_nonzero(differing)} pixels are NaN or infinite in one of the two"
        self._keep_largest(largest, note, frame)

    def row(self, places: Mapping[int, List[int]]) -> ProductComparison:
        """Return the comparison with the golden recording, of whose frames the product is in these `places`."""
        product, expected = PRODUCTS[self.name], Counter({stamp_ns: len(times) for stamp_ns, times in places.items()})
        missing = (expected - self.stamps) + (self.stamps - expected)
        peak = (128.0 if product.wraps else 255.0) if self.is_byte else 90.0 if product.wraps else 1.0
        mean = sum(self.squares) / self.pixels if self.pixels else 0.0
        psnr = 10 * (2 * math.log10(peak) - math.log10(mean)) if mean else math.inf
        similarity = float(np.mean(self.similarity)) if self.similarity else np.nan
        unit = "levels" if self.is_byte else "deg" if product.wraps else product.unit
        figures = self.frames, sum(missing.values()), self.error, self.tolerance, unit, psnr, similarity
        return ProductComparison(self.name, *figures, self.note, self.worst, min(missing, default=None))


def check_tolerances(tolerances: Mapping[str, float], products: Tuple[str, ...]) -> None:
    """Check the largest errors allowed, by product.

    Raises:
        ValueError: A tolerance is negative, or is for a product that is not compared.
    """
    for name, value in tolerances.items():
        if name not in products:
            raise ValueError(f"a tolerance is for what is compared, {', '.join(products)}; got {name!r}")
        if not value >= 0:
            raise ValueError(f"the tolerance of {name} must be >= 0, got {value}")


class Comparison:
    """Comparison of frame after frame with a golden recording; `tolerances` take the place of those in products' rows.

    Raises:
        ValueError: A tolerance is not allowed (`check_tolerances`).
    """

    def __init__(
        self, golden: Golden, products: Tuple[str, ...], tolerances: Optional[Mapping[str, float]] = None
    ) -> None:
        self._golden = golden
        limits = tolerances or {}
        check_tolerances(limits, products)
        self._tallies = {name: _Tally(name, limits.get(name)) for name in products}
        self._frames: Counter[int] = Counter()  # stamp -> number of frames that were added

    def add(self, stamp_ns: int, products: Mapping[str, np.ndarray], index: Optional[int] = None) -> None:
        """Compare the products of one frame; frames of equal stamps are compared in their order.

        The frame counts as missing for a product that it lacks. `index` is its place in the recording, from 0; by
        default, the number of frames added before.
        """
        index = sum(self._frames.values()) if index is None else index
        before = self._frames[stamp_ns]
        self._frames[stamp_ns] += 1
        golden = {name: self._golden.load(name, stamp_ns, before) for name in {*self._tallies, "dolp", "intensity"}}
        for name, tally in self._tallies.items():
            if name in products:
                tally.add(products[name], golden, WorstFrame(index, stamp_ns))

    def rows(self) -> List[ProductComparison]:
        """Return one row per product."""
        return [tally.row(self._golden.places.get(name, {})) for name, tally in self._tallies.items()]


def _physical(name: str, image: np.ndarray) -> np.ndarray:
    """Convert a product's image to float32 in the unit of the float product."""
    return image.astype(np.float32) / np.float32(level_scale(name, str(image.dtype)))


def _gray(image: np.ndarray) -> np.ndarray:
    """Convert an intensity image to (h, w) float32 in [0, 1]."""
    values = _physical("intensity", image)
    return values if values.ndim == 2 else (values @ np.array(LUMA)).astype(np.float32)


def _meaningful(name: str, image: np.ndarray, golden: Mapping[str, Optional[np.ndarray]]) -> np.ndarray:
    """Return a mask of the pixels that are compared, as the product's row says."""
    mask = np.ones(image.shape, bool)
    pixels = mask.reshape(*image.shape[:2], -1)  # a view: one mask for all channels
    intensity, dolp = golden["intensity"], golden["dolp"]
    compared = PRODUCTS[name].compared
    if compared != "all" and intensity is not None and intensity.shape[:2] == image.shape[:2]:
        pixels &= (_gray(intensity) >= MIN_INTENSITY)[..., np.newaxis]
    if compared == "polarized" and dolp is not None and dolp.shape == image.shape[:2]:
        pixels &= ~(dolp < MIN_DOLP * full_level(str(dolp.dtype)))[..., np.newaxis]
    return mask


def _errors(name: str, got: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Compute absolute errors in the unit of the comparison; errors of angles are circular."""
    error = np.abs(got.astype(np.float64) - expected.astype(np.float64))
    if not PRODUCTS[name].wraps:
        return error
    if got.dtype == np.uint8:
        return np.minimum(error, 256 - error)
    error = np.rad2deg(error) % 180  # a recording may hold angles beyond half a turn
    return np.minimum(error, 180 - error)


def _similarity(name: str, got: np.ndarray, expected: np.ndarray) -> float:
    """Compute the mean SSIM of two images; for an angle of its sine and cosine, which do not jump where it wraps."""
    planes = []
    for image in (got, expected):
        values = np.nan_to_num(image).astype(np.float32)
        if PRODUCTS[name].wraps:
            turn = values * np.float32(2 * np.pi / 256 if image.dtype == np.uint8 else 2)
            values = np.stack([np.cos(turn), np.sin(turn)], -1) / 2 + np.float32(0.5)
        elif image.dtype == np.uint8:
            values /= 255
        elif PRODUCTS[name].planes:
            values = PRODUCTS[name].planes_of(values)
        planes.append(np.atleast_3d(values))
    pairs = zip(*(np.ascontiguousarray(image.transpose(2, 0, 1)) for image in planes))
    return float(np.mean([_ssim(x, y).mean() for x, y in pairs]))


def _ssim(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Compute the structural similarity (Wang et al., 2004) of two images, (H, W) float32 in [0, 1]; it is (H, W).

    Works on the sum and the difference of the images, whose four moments suffice: the small difference loses the least.
    """

    def blur(image: np.ndarray) -> np.ndarray:
        return cv2.GaussianBlur(image, (SSIM_WINDOW, SSIM_WINDOW), SSIM_SIGMA, borderType=cv2.BORDER_REFLECT)

    p, q = x + y, x - y
    a, b = blur(p) ** 2, blur(q) ** 2
    v, u = blur(p * p) - a, blur(q * q) - b
    c1, c2 = np.float32(2 * SSIM_C1), np.float32(2 * SSIM_C2)
    return (a - b + c1) * (v - u + c2) / ((a + b + c1) * (v + u + c2))


def verdict(rows: Sequence[ProductComparison], golden: Path) -> str:
    """Return the result of a comparison in a sentence, with the name of the golden recording."""
    failed = [row.name for row in rows if not row.passed]
    result = f"failed: {', '.join(failed)} of" if failed else "passed:"
    return f"{result} {len(rows)} products compared with {printable(golden.name)}"


def format_rows(rows: List[ProductComparison]) -> str:
    """Format the rows as a plain-text table, and below it the reason of each failure."""
    lines = [
        f"{'product':<10} {'frames':>6} {'missing':>7} {'max error':>10} {'tolerance':>10} {'unit':<10} "
        f"{'PSNR/dB':>8} {'SSIM':>8}  result"
    ]
    for row in rows:
        similarity = "-" if np.isnan(row.ssim) else f"{row.ssim:.6f}"
        note = f": {row.note}" if row.note else ""
        lines.append(
            f"{row.name:<10} {row.frames:>6} {row.missing:>7} {row.error:>10.4g} {row.tolerance:>10.4g} {row.unit:<10} "
            f"{row.psnr:>8.2f} {similarity:>8}  {'ok' if row.passed else 'FAILED'}{note}"
        )
    return "\n".join([*lines, *(f"{row.name}: {row.reason}" for row in rows if not row.passed)])
