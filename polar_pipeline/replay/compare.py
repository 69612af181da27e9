"""Comparison with a golden recording: frames matched by stamp, one row of figures per product."""

from __future__ import annotations

import math
from collections import Counter
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Dict, Iterator, List, Mapping, Optional, Tuple

import cv2
import numpy as np

from polar_pipeline import messages
from polar_pipeline._util.text import printable
from polar_pipeline.coefficients import LUMA, SSIM_C1, SSIM_C2, SSIM_SIGMA, SSIM_WINDOW
from polar_pipeline.messages import FLOAT32, IMAGE, Cdr
from polar_pipeline.products import PRODUCTS, full_level, get_products, level_scale
from polar_pipeline.replay.limits import MAX_BYTES, SourceError, Span, reading
from polar_pipeline.replay.rosbag2 import open_recording
from polar_pipeline.replay.source import Recorded
from polar_pipeline.sensor.frames import FrameError
from polar_pipeline.topics import PRODUCT_TOPICS

if TYPE_CHECKING:  # needs the extra `recordings`
    from polar_pipeline.replay.bags import Bag, Topics

#: AoLP is compared where the golden DoLP reaches the first, DoLP and AoLP where the golden intensity reaches the
#: second: below them is mostly noise.
MIN_DOLP = 0.05
MIN_INTENSITY = 0.05


class Golden:
    """The products of a recording, by stamp; open it with `open_golden`.

    A message with a header is found by its stamp; a plain number, which has no header, by its time of recording.

    Attributes:
        path: The recording.
        places: Product -> stamp in nanoseconds -> times of recording; several if frames have equal stamps.
    """

    def __init__(self, path: Path, recording: Bag) -> None:
        self.path = path
        self.places: Dict[str, Dict[int, List[int]]] = {}
        self._recording = recording
        self._topics = _product_topics(path, recording.topics)
        for name in self._topics:
            for stamp_ns, time_ns, _ in self._messages(name):
                self.places.setdefault(name, {}).setdefault(stamp_ns, []).append(time_ns)

    def _messages(self, name: str, span: Optional[Span] = None) -> Iterator[Tuple[int, int, Cdr]]:
        """Yield stamps, times of recording and messages of a product."""
        topic = self._topics[name]
        kind, _ = self._recording.topics[topic]
        for time_ns, data in self._recording.messages(topic, kind, span):
            cdr = Recorded(time_ns, kind, data).message()
            yield messages.decode_image(cdr).stamp_ns if kind == IMAGE else time_ns, time_ns, cdr

    def load(self, name: str, stamp_ns: int, before: int = 0) -> Optional[np.ndarray]:
        """Read a product of one frame as `Pipeline` returns it, or None if the recording lacks it.

        Args:
            name: Product.
            stamp_ns: Stamp ns of the frame.
            before: How many frames with that stamp came before it.

        Raises:
            SourceError: The recording is damaged there.
        """
        times = self.places.get(name, {}).get(stamp_ns, [])
        if before >= len(times):
            return None
        time_ns = times[before]
        with reading(self.path, f"is damaged: {name} of stamp {stamp_ns} cannot be read"):
            rows = [cdr for stamp, _, cdr in self._messages(name, (time_ns, time_ns + 1)) if stamp == stamp_ns]
            kind, _ = self._recording.topics[self._topics[name]]
            return product_array(kind, rows[times[:before].count(time_ns)])

    def intensity(self, stamp_ns: int) -> Optional[np.ndarray]:
        """Read S0/2 of one frame for SSIM mode `reference`, (h, w) float32 in [0, 1], or None without it.

        Raises:
            FrameError: There are several of that stamp (cause `reference`).
        """
        count = len(self.places.get("intensity", {}).get(stamp_ns, []))
        if count > 1:
            raise FrameError("reference", f"needs one reference with stamp {stamp_ns}, {self.path} has {count}")
        image = self.load("intensity", stamp_ns)
        return None if image is None else _gray(image)


def product_array(kind: str, cdr: Cdr) -> np.ndarray:
    """Decode a product from a message of a type, as `Pipeline` returns it.

    Raises:
        FrameError: The bytes are not such a message, or no product is published as such an image.
    """
    if kind == FLOAT32:
        return np.array(messages.decode_float32(cdr))
    return messages.to_array(messages.decode_image(cdr))


def _product_topics(path: Path, known: Topics) -> Dict[str, str]:
    """Find the topic of each product in a recording.

    Raises:
        SourceError: There are no products, or one is on several topics.
    """
    topics: Dict[str, str] = {}
    second = tuple(f"/{row.paired}" for row in PRODUCT_TOPICS.values() if row.paired)
    for topic in known:
        if f"/{topic}".endswith(second):
            continue
        # recorded in a namespace, a topic ends like the product's
        name = next((name for name, row in PRODUCT_TOPICS.items() if f"/{topic}".endswith(f"/{row.name}")), None)
        if name is not None and topics.setdefault(name, topic) != topic:
            raise SourceError(f"{path} holds {name} twice: on {printable(topics[name])}, {printable(topic)}")
    if not any(known[topic][1] for topic in topics.values()):
        raise SourceError(f"{path} holds no products: {', '.join(row.name for row in PRODUCT_TOPICS.values())}")
    return topics


def golden_products(path: Path, max_bytes: int = MAX_BYTES) -> Tuple[str, ...]:
    """Return the products for which a recording has topics, in the order of `PRODUCTS`, without reading messages.

    The arguments and errors are those of `open_golden`.
    """
    with reading(path), open_recording(path, max_bytes) as recording:
        return get_products(_product_topics(path, recording.topics))


@contextmanager
def open_golden(path: Path, max_bytes: int = MAX_BYTES) -> Iterator[Golden]:
    """Open a recording of products, such as one that replay wrote.

    Args:
        path: The file.
        max_bytes: Largest size of an uncompressed chunk.

    Raises:
        SourceError: The recording cannot be read, holds no products, or holds one twice.
    """
    with ExitStack() as stack:
        with reading(path):
            golden = Golden(path, stack.enter_context(open_recording(path, max_bytes)))
        yield golden


@dataclass(frozen=True)
class ProductComparison:
    """Comparison of one product with the golden recording.

    Attributes:
        name: Product.
        frames: Frames compared.
        missing: Frames that only one of the two has.
        error: Largest error, in `unit`; infinite where shapes, types or NaNs do not match.
        tolerance: Largest error allowed.
        unit: Unit of both.
        psnr: In dB over all frames; infinite if equal.
        ssim: Mean over the frames; NaN for plain numbers.
        note: Description of a mismatch; empty if everything matches.
    """

    name: str
    frames: int
    missing: int
    error: float
    tolerance: float
    unit: str
    psnr: float
    ssim: float
    note: str

    @property
    def passed(self) -> bool:
        """Whether every frame is there and within the tolerance."""
        return self.frames > 0 and self.missing == 0 and self.error <= self.tolerance


@dataclass
class Tally:
    """The running figures of one product.

    Attributes:
        frames: Frames compared.
        unmatched: Frames that the golden recording lacks.
        error: Largest error.
        squares: Sum of the squared errors of each frame.
        pixels: Pixels compared.
        similarity: Mean SSIM of each frame.
        is_byte: Whether the newest frame has 8 bits a pixel.
        note: Description of a mismatch; empty if everything matches.
    """

    frames: int = 0
    unmatched: int = 0
    error: float = 0.0
    squares: List[float] = field(default_factory=list)
    pixels: int = 0
    similarity: List[float] = field(default_factory=list)
    is_byte: bool = False
    note: str = ""

    def add(self, later: Tally) -> None:
        """Add the figures of later frames."""
        self.frames += later.frames
        self.unmatched += later.unmatched
        self.error = max(self.error, later.error)
        self.squares += later.squares
        self.pixels += later.pixels
        self.similarity += later.similarity
        self.is_byte = later.is_byte if later.frames else self.is_byte
        self.note = later.note or self.note


class Comparison:
    """Comparison of frame after frame with a golden recording.

    Attributes:
        tallies: Product -> its figures so far.

    Args:
        golden: The expected products.
        products: The products to compare.
        tolerances: Product -> largest error allowed, in place of the one in its row.

    Raises:
        ValueError: A tolerance is negative, or is for a product that is not compared.
    """

    def __init__(
        self, golden: Golden, products: Tuple[str, ...], tolerances: Optional[Mapping[str, float]] = None
    ) -> None:
        self._golden = golden
        self._given = dict(tolerances or {})
        for name, value in self._given.items():
            if name not in products:
                raise ValueError(f"a tolerance is for what is compared, {', '.join(products)}; got {name!r}")
            if not value >= 0:
                raise ValueError(f"the tolerance of {name} must be >= 0, got {value}")
        self.tallies = {name: Tally() for name in products}
        self._known: Dict[int, int] = Counter()  # frames by stamp

    def add(self, stamp_ns: int, products: Mapping[str, np.ndarray]) -> None:
        """Compare the products of one frame; frames of equal stamps are compared in their order."""
        before = self._known[stamp_ns]
        self._known[stamp_ns] += 1
        golden = {name: self._golden.load(name, stamp_ns, before) for name in {*self.tallies, "dolp", "intensity"}}
        for name, tally in self.tallies.items():
            tally.add(_compared(name, products[name], golden))

    def rows(self) -> List[ProductComparison]:
        """Return one row per product."""
        return [self._row(name, tally) for name, tally in self.tallies.items()]

    def _row(self, name: str, tally: Tally) -> ProductComparison:
        expected = sum(map(len, self._golden.places.get(name, {}).values()))
        missing = tally.unmatched + expected - tally.frames
        product = PRODUCTS[name]
        tolerance = self._given.get(name, product.tolerance_levels if tally.is_byte else product.tolerance)
        peak = (128.0 if product.wraps else 255.0) if tally.is_byte else 90.0 if product.wraps else 1.0
        mean = sum(tally.squares) / tally.pixels if tally.pixels else 0.0
        psnr = 10 * (2 * math.log10(peak) - math.log10(mean)) if mean else math.inf
        similarity = float(np.mean(tally.similarity)) if tally.similarity else np.nan
        unit = "levels" if tally.is_byte else "deg" if product.wraps else product.unit
        return ProductComparison(
            name, tally.frames, missing, tally.error, tolerance, unit, psnr, similarity, tally.note
        )


def _compared(name: str, got: np.ndarray, golden: Mapping[str, Optional[np.ndarray]]) -> Tally:
    """Compare a product of one frame with the golden products of the frame."""
    expected = golden[name]
    if expected is None:
        return Tally(unmatched=1)
    tally = Tally(frames=1, is_byte=got.dtype == np.uint8)
    if expected.shape != got.shape or expected.dtype != got.dtype:
        tally.error, tally.note = np.inf, f"{got.dtype} {got.shape}, golden {expected.dtype} {expected.shape}"
        return tally
    mask = _meaningful(name, expected, golden)
    if got.dtype == np.uint16:
        got, expected = _physical(name, got), _physical(name, expected)
    with np.errstate(all="ignore"):  # the recording may hold any numbers
        known = np.isfinite(got) & np.isfinite(expected)
        differing = int(np.count_nonzero(~known & ~(np.isnan(got) & np.isnan(expected))))
        error = _errors(name, got, expected)[mask & known]
        tally.similarity = [_similarity(name, got, expected)] if got.ndim else []
    if error.size:
        tally.error, tally.squares, tally.pixels = float(error.max()), [float(np.square(error).sum())], error.size
    if differing:
        tally.error, tally.note = np.inf, f"{differing} pixels are NaN or infinite in one of the two"
    return tally


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


def format_rows(rows: List[ProductComparison]) -> str:
    """Format the rows as a plain-text table."""
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
    return "\n".join(lines)
