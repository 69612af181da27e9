"""The calibration of one sensor: the parameters of its pixels, and how they were measured."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import Any, Dict, Mapping, NamedTuple, Optional, Tuple

import numpy as np

from polar_pipeline._util.text import quoted
from polar_pipeline._util.values import number, whole_number
from polar_pipeline.calibration.quantization import FIELDS, Scales, dequantize, quantize, turned
from polar_pipeline.sensor.mosaic import Sensor

#: Most of a sensor's pixels that can be defective: with more, something else is wrong.
MAX_DEFECTS = 0.02
#: Most pixels of a calibration; the largest polarization sensors have 12 megapixels.
MAX_CALIBRATED_PIXELS = 1 << 24


class PixelParameters(NamedTuple):
    """Images of the four parameters, each (H, W); see the package's description.

    Attributes:
        black: Black level d, as a share of full scale.
        gain: What the signal is multiplied by, u = 1/g.
        e1: Correction by S1.
        e2: Correction by S2.
    """

    black: np.ndarray
    gain: np.ndarray
    e1: np.ndarray
    e2: np.ndarray


#: Lowest and highest value of each number of a usable pixel; a polarizer with an extinction ratio of 2 has a term of 1.
_RANGES = {"black": (-1.0, 1.0), "gain": (0.1, 10.0), "own term": (-1.0, 1.0), "other term": (-1.0, 1.0)}
#: Range of the electrons at full scale.
_FULL_WELL = (10.0, 1e7)


@dataclass(frozen=True, eq=False)
class Calibration:
    """The parameters of every pixel of a region of a sensor, in the order of the sensor's own readout.

    Build it with `from_parameters`. Calibrations with the same digest are equal. Values that no sensor has are refused
    with a ValueError.

    Attributes:
        sensor: The mosaic.
        offset: (x, y) of the first pixel in the sensor's own readout.
        codes: (H, W) uint32, the parameters of a pixel by `quantization.FIELDS`; read-only.
        scales: Scales of the codes.
        defects: (n, 2) int32, read-only: row and column of the pixels that cannot be used, in rising order.
        bit_depth: Bit depth of the frames that it was measured from.
        facts: How it was measured, and the sensor's noise: what JSON can hold.
        digest: SHA-256 of everything else, as hexadecimal digits; of a file of version 1, of that file's content.
        corrections: Those in use; of `correction.correction_for` alone.
    """

    sensor: Sensor
    offset: Tuple[int, int]
    codes: np.ndarray
    scales: Scales
    defects: np.ndarray
    bit_depth: int
    facts: Dict[str, object] = field(default_factory=dict)
    digest: str = ""
    corrections: Dict[object, Any] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        if len(self.defects) > MAX_DEFECTS * self.codes.size:
            share = len(self.defects) / self.codes.size
            raise ValueError(f"at most {MAX_DEFECTS:.0%} of the pixels can be defective, got {share:.1%}")
        for (name, (low, high)), (lowest, step), (_, bits) in zip(_RANGES.items(), self.scales, FIELDS):
            highest = lowest + step * ((1 << bits) - 1)
            if not low <= lowest <= highest <= high:  # NaN is refused too
                raise ValueError(f"{name} must be in [{low}, {high}], got {lowest:.6g} to {highest:.6g}")
        whole_number("bit_depth", self.bit_depth, 8, 16)
        _ = self.noise
        self.codes.flags.writeable = self.defects.flags.writeable = False
        if self.digest:
            return
        digest = hashlib.sha256(json.dumps(self.header(), sort_keys=True).encode())
        for array in (self.codes, self.defects):
            digest.update(np.ascontiguousarray(array).data)
        object.__setattr__(self, "digest", digest.hexdigest())

    @property
    def gain_db(self) -> float:
        """Gain of the camera at which it was measured, in dB; 0 if the file does not tell."""
        gain = self.facts.get("gain_db")
        return float(gain) if isinstance(gain, (int, float)) else 0.0

    def __reduce__(self) -> Tuple[Any, ...]:
        """Pickle without the corrections in use; arrays are read-only again in the copy."""
        rows = (self.sensor, self.offset, self.codes, self.scales, self.defects, self.bit_depth, self.facts)
        return Calibration, (*rows, self.digest)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Calibration) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"Calibration({self.describe()})"

    @staticmethod
    def from_parameters(
        parameters: PixelParameters,
        sensor: Sensor,
        offset: Tuple[int, int] = (0, 0),
        defects: Optional[np.ndarray] = None,
        bit_depth: int = 12,
        facts: Optional[Mapping[str, object]] = None,
    ) -> Calibration:
        """Build the calibration with these parameters, rounded to 32 bits per pixel.

        Args:
            parameters: Parameters of every pixel, in the order of the sensor's own readout.
            sensor: The mosaic.
            offset: (x, y) of the first pixel in that readout.
            defects: (H, W) bool: pixels that cannot be used; their parameters do not count. None if there are none.
            bit_depth: Bit depth of the frames that it was measured from.
            facts: Description of the measurement.

        Raises:
            ValueError: Parameters are not finite or out of range, or there are too many pixels, or too many of them are
                defective.
        """
        shape = parameters.black.shape
        if parameters.black.size > MAX_CALIBRATED_PIXELS:
            raise ValueError(f"at most {MAX_CALIBRATED_PIXELS} pixels can be calibrated, got {shape[1]}x{shape[0]}")
        used = np.ones(shape, bool) if defects is None else ~defects
        for name, image in parameters._asdict().items():
            if image.shape != shape or not np.isfinite(image[used]).all():
                raise ValueError(f"{name} must be finite numbers of {shape[1]}x{shape[0]} pixels")
        terms = turned(parameters.e1, parameters.e2, sensor.as_read_out(offset), -1)
        codes, scales = quantize((parameters.black, parameters.gain, *terms), used)
        places = np.argwhere(~used).astype(np.int32)
        return Calibration(sensor, offset, codes, scales, places, bit_depth, dict(facts or {}))

    @property
    def shape(self) -> Tuple[int, int]:
        """(height, width) of the region."""
        height, width = self.codes.shape
        return height, width

    def parameters(self) -> PixelParameters:
        """Return the parameters as float64 images; those of defective pixels are meaningless."""
        return parameters_of(self.codes, self.scales, self.sensor.as_read_out(self.offset))

    @property
    def noise(self) -> Optional[Tuple[float, float]]:
        """(electrons at full scale, read noise in electrons) as measured; None if they were not.

        Raises:
            ValueError: The facts have something else in their place, or values that no sensor has.
        """
        noise = self.facts.get("noise")
        if noise is None:
            return None
        if not isinstance(noise, Mapping):
            raise ValueError(f"noise must be a full_well and a read_noise, got {quoted(noise)}")
        full_well = number("full_well", noise.get("full_well"), *_FULL_WELL)
        return full_well, number("read_noise", noise.get("read_noise"), 0, full_well)

    def header(self) -> Dict[str, object]:
        """Return everything but the arrays, in values for JSON."""
        return {
            "sensor": self.sensor.name,
            "tile": self.sensor.tile(),
            "offset": list(self.offset),
            "scales": [[float(number) for number in scale] for scale in self.scales],
            "bit_depth": self.bit_depth,
            "facts": self.facts,
        }

    def describe(self) -> str:
        """Describe sensor, size and digest in one line."""
        height, width = self.shape
        return f"{self.sensor.name}, {width}x{height} pixels from {self.offset}, sha256 {self.digest}"


def parameters_of(codes: np.ndarray, scales: Scales, sensor: Sensor, dtype: str = "float64") -> PixelParameters:
    """Decode the parameters of pixels; `sensor` is the mosaic of these pixels."""
    black, gain, own, other = dequantize(codes, scales, dtype)
    return PixelParameters(black, gain, *turned(own, other, sensor, 1))
