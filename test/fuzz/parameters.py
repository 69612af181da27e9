"""Target: parameters, options, and what a pipeline is called with."""

from __future__ import annotations

import math
import random
from array import array
from dataclasses import asdict
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any, Callable, Dict, List, Tuple

import numpy as np

from fuzz.engine import Case, Target, WrongError, refused
from fuzz.mutate import words
from polar_pipeline import Pipeline
from polar_pipeline.display import make_display
from polar_pipeline.options import OPTIONS, Options, make_options
from polar_pipeline.products import PRODUCTS, full_level
from polar_pipeline.quality.statistics import LIMITS, make_quality_limits
from polar_pipeline.ros.parameters import PARAMETERS, make_settings
from polar_pipeline.sensor.frames import FrameError, RawFormat, RawFrame, frame_from_buffer

#: Characters of the longest message.
_LONGEST = 1000


class Odd:
    """A value that answers everything with something odd."""

    def __repr__(self) -> str:
        return "\x1b[2J" * 100

    def __len__(self) -> int:
        return 2

    def __float__(self) -> float:
        return 1.0

    def __index__(self) -> int:
        return 1


class Text(str):
    """Text of a type of its own."""


def _frame(kind: str, shape: Tuple[int, int] = (20, 18)) -> np.ndarray:
    rows = np.arange(shape[0] * shape[1]).reshape(shape) * 37 % 251
    return rows.astype(kind)


def _objects(*items: Any) -> np.ndarray:
    """An array of any objects, which NumPy does not look into."""
    made = np.empty(len(items), object)
    for k, item in enumerate(items):
        made[k] = item
    return made


#: What inputs, which are Python expressions, can name.
_NAMES: Dict[str, Any] = {
    "np": np,
    "array": array,
    "Decimal": Decimal,
    "Fraction": Fraction,
    "math": math,
    "Odd": Odd,
    "Text": Text,
    "RawFrame": RawFrame,
    "RawFormat": RawFormat,
    "wrap": frame_from_buffer,
    "frame": _frame,
    "objects": _objects,
}
_NUMBERS = words(
    r"""
    0  1  -1  2  3  4  8  11  12  15  16  17  64  90  100  255  256  257  -0.0  65535  65536  2**31  2**63
    2**63 - 1  -2**63  2**64  10**400  10**5000  0.5  1.5  5.0  1e-9  5e-324  1e308  math.nan  math.inf  -math.inf
    2.0  12.0  1.9999999  np.uint8(2)  np.int64(12)  np.float32(0.5)  np.float16('nan')  np.longdouble(3)
    np.bool_(True)  np.array(1)  Decimal(1)  Decimal('NaN')  Fraction(3, 2)  1j  True  False  np.datetime64(1, 's')
    """
)
_OTHERS = words(
    r"""
    None  ''  'auto'  b'auto'  'x' * 100000  '\x1b[2J'  '\ud800'  '\0'  object  Odd()  Text('cpu')  []  ()  {}
    set()  [[]]  [1, 2]  (0, 0)  [None, None]  (1, 2, 3)  ['1', '1', '1']  [True, False]  array('q', [1, 2])
    array('d', [1, math.nan])  np.zeros(2)  np.zeros((2, 2))  np.array([1, 0], bool)  range(2)  iter([1, 2])
    '90 45 / 135 0'  '90 45 / 135'  '1 1 1'  '64 64 64'  '1e400 1 1'  [0] * 10**6
    'R90 R45 G90 G45 / R135 R0 G135 G0 / G90 G45 B90 B45 / G135 G0 B135 B0'  '9' * 5000  ['dolp']  'dolp,aolp'
    """
)
_WORDS = words(
    r"""
    auto  cpu  cuda  half  full  fp32  fp16  bilinear  gradient  adaptive  consistency  retry  temporal  reference
    float32  uint8  lsb  msb  IMX250MZR  IMX250MYR  none  stop  dolp  ssim
    """
)


def _value(rng: random.Random, depth: int = 0) -> str:
    """An expression of any value."""
    near = rng.random()
    if near < 0.35:
        return rng.choice(_NUMBERS)
    if near < 0.45:
        return repr(
            rng.choice((rng.randint(-10, 100), rng.uniform(-1, 3), rng.getrandbits(80), 10 ** rng.uniform(-320, 308)))
        )
    if near < 0.65:
        return repr(rng.choice(_WORDS))
    if near < 0.9 or depth > 2:
        return rng.choice(_OTHERS)
    items = ", ".join(_value(rng, depth + 1) for _ in range(rng.randint(1, 3)))
    return rng.choice(("[{}]", "({},)", "objects({})")).format(items)


def _mapping(rng: random.Random, defaults: Dict[str, Any], changes: int, is_open: bool = True) -> str:
    """An expression of a mapping in which some values are others, and where it is open, some names too."""
    chosen = {name: repr(value) for name, value in defaults.items()}
    for _ in range(changes):
        near = rng.random()
        if near < 0.95 or not is_open:
            chosen[rng.choice(list(defaults))] = _value(rng)
        elif near < 0.97:
            chosen[rng.choice(("", "foreign", "x" * 500))] = _value(rng)
        else:
            chosen.pop(rng.choice(list(defaults)), None)
    return "{" + ", ".join(f"{name!r}: {value}" for name, value in chosen.items()) + "}"


_OPTIONS: Dict[str, Any] = {name: row.default for name, row in OPTIONS.items() if name != "threads"}
_ARRAYS = words(
    r"""
    frame('u1')  frame('u2')  frame('>u2')  frame('<u2')  frame('f4')  frame('i2')  frame('O')  frame('?')
    np.ma.masked_array(frame('u1'))  np.matrix(frame('u1'))  frame('u1')[::-1]  frame('u1')[:, ::-1]  None  5
    np.asfortranarray(frame('u2'))  frame('u2').T  frame('u1', (40, 40))[::2, ::2]  frame('u1').tolist()  'x'
    np.broadcast_to(frame('u1')[:1], (20, 18))  np.broadcast_to(np.uint16(9), (16, 16))  frame('u1', (15, 16))
    frame('u1', (16, 16))  frame('u1')[None]  frame('u1')[..., None]  np.zeros((0, 20), np.uint8)  np.zeros(5)
    np.empty(20 * 18 * 2 + 1, np.uint8)[1:].view(np.uint16).reshape(20, 18) * 0 + frame('u2')
    frame('u1').view(np.int8)  frame('u2').view(np.recarray)  np.broadcast_to(np.uint8(1), (70000, 20))
    np.zeros((), np.uint8)  b'x' * 400  np.lib.stride_tricks.as_strided(frame('u1'), (16, 16), (1, 1))
    wrap(bytes(540), RawFormat(12, 'p'), 20, 18)  np.broadcast_to(np.uint8(1), (40000, 40000))
    wrap(bytes(560), RawFormat(10, 'packed'), 20, 18, 28)
    """
)


def _array(rng: random.Random) -> str:
    text = rng.choice(_ARRAYS)
    if rng.random() < 0.2:
        return f"RawFrame({text}, {rng.choice((_value(rng), '255', '4095', '1', '0'))})"
    return text


def _reference(rng: random.Random) -> str:
    shape = rng.choice(("(10, 9)", "(10, 9)", "(10, 9)", "(20, 18)", "(9, 10)", "(10, 9, 1)"))
    fill = rng.choice(
        ("0.5", "0.5", "0", "1", "1.0009", "1.01", "-1e-9", "-0.1", "1e30", "math.nan", "math.inf", "-0.0")
    )
    kind = rng.choice(("np.float32", "np.float32", "np.float32", "np.float64", "np.uint8", "'>f4'"))
    made = f"np.full({shape}, {fill}).astype({kind})"
    return rng.choice((made, made, made, f"np.asfortranarray({made})", f"{made}[::-1]", "None", _value(rng)))


class Parameters(Target):
    """Values of every type for the node's parameters, a pipeline's options, and what it is called with."""

    name = "parameters"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._pipelines: Dict[str, Pipeline] = {}

    def make(self, rng: random.Random) -> Case:
        kind = rng.choice(
            ("settings", "settings", "options", "options", "limits", "display", "pipeline", "call", "call")
        )
        return Case(kind, getattr(self, f"_make_{kind}")(rng).encode("utf-8", "backslashreplace"))

    def _make_settings(self, rng: random.Random) -> str:
        return _mapping(rng, {name: row.default for name, row in PARAMETERS.items()}, rng.choice((1, 1, 1, 2, 3, 8)))

    def _make_options(self, rng: random.Random) -> str:
        defaults = {**_OPTIONS, "sensor": "IMX250MZR", "products": ("dolp",), "dtype": "float32"}
        return _mapping(rng, defaults, rng.choice((1, 1, 1, 2, 3, 8)))

    def _make_limits(self, rng: random.Random) -> str:
        return _mapping(rng, dict.fromkeys(LIMITS, 1), rng.choice((1, 2, 8)))

    def _make_display(self, rng: random.Random) -> str:
        return f"({_value(rng)}, {_value(rng)})"

    def _make_pipeline(self, rng: random.Random) -> str:
        defaults = {**_OPTIONS, "sensor": "IMX250MZR", "products": ("dolp", "ssim"), "dtype": "float32", "threads": 1}
        return _mapping(rng, {**defaults, "backend": "cpu"}, rng.choice((0, 1, 1, 2, 3)), is_open=False)

    def _make_call(self, rng: random.Random) -> str:
        mode = rng.choice(("consistency", "consistency", "temporal", "reference"))
        other = _reference(rng) if (mode == "reference") != (rng.random() < 0.05) else "None"
        return f"({mode!r}, {_array(rng)}, {other})"

    def run(self, case: Case) -> str:
        value = eval(case.data.decode(), dict(_NAMES))
        run: Callable[[Any], None] = getattr(self, f"_run_{case.kind}")
        try:
            run(value)
        except FrameError as err:
            _check_text(err)
            if case.kind != "call" or err.cause not in ("type", "size", "reference"):
                raise WrongError(f"FrameError with cause {err.cause} is not documented here: {err}") from err
            return refused(err, err.cause)
        except ValueError as err:
            if type(err) is not ValueError:
                raise
            _check_text(err)
            return refused(err)
        except RuntimeError as err:
            if case.kind != "pipeline":
                raise
            _check_text(err)
            return refused(err)
        return "accepted"

    def _run_settings(self, values: Dict[str, Any]) -> None:
        settings = make_settings(values)
        _check_plain(settings.options)
        settings.on_cpu()
        arguments = settings.arguments(tuple(PRODUCTS))
        del arguments["threads"]
        make_options(**arguments)  # what is allowed by itself makes a pipeline
        # only parameters' own names are looked at
        again = make_settings({name: values[name] for name in PARAMETERS})
        if again != settings:
            raise WrongError("the same values make other settings")

    def _run_options(self, values: Dict[str, Any]) -> None:
        options = make_options(**values)
        _check_plain(options)
        if make_options(**options.arguments()) != options:
            raise WrongError(f"options do not make themselves again: {options}")

    def _run_limits(self, values: Dict[str, Any]) -> None:
        for name, value in asdict(make_quality_limits(**values)).items():
            low, high = LIMITS[name].limits
            if not low <= value <= high:
                raise WrongError(f"{name} is {value}, out of {low} to {high}")

    def _run_display(self, values: Tuple[Any, Any]) -> None:
        display = make_display(*values)
        for factor in (display.gain, *(display.balance or ())):
            if factor is not None and not 0 < factor <= 64:
                raise WrongError(f"a factor of {factor}")

    def _run_pipeline(self, values: Dict[str, Any]) -> None:
        pipeline = Pipeline(**values)
        try:
            raw = _frame("u1")
            other = np.full(pipeline.output_size(raw.shape), 0.5, np.float32)
            _check_result(
                pipeline, pipeline(raw, reference=other if pipeline.options.ssim_mode == "reference" else None), raw
            )
        finally:
            pipeline.close()

    def _run_call(self, values: Tuple[str, Any, Any]) -> None:
        mode, raw, other = values
        if mode not in self._pipelines:
            products = ("intensity", "dolp", "aolp", "ssim_map", "ssim")
            self._pipelines[mode] = Pipeline(backend="cpu", threads=1, products=products, ssim_mode=mode)
        pipeline = self._pipelines[mode]
        pipeline.reset()
        try:
            result = pipeline(raw, reference=other)
        except ValueError:
            if isinstance(raw, np.ndarray) and type(raw) is np.ndarray and other is None and mode != "reference":
                _check_refusal(raw)
            raise
        _check_result(pipeline, result, raw)
        if not isinstance(raw, np.ndarray):
            return
        pipeline.reset()
        again = pipeline(np.array(raw, order="C", subok=False), reference=other)
        for name, image in again.items():
            if not np.array_equal(image, result[name], equal_nan=True):
                raise WrongError(f"{name} depends on where the frame lies in memory")


def _check_refusal(raw: np.ndarray) -> None:
    """An array that fits the description must not be refused."""
    is_right = raw.dtype in (np.uint8, np.uint16) and raw.ndim == 2
    if is_right and min(raw.shape) >= 16 and max(raw.shape) <= 65535 and raw.size <= 1 << 28:
        raise WrongError(f"{raw.dtype} {raw.shape} is refused")


def _check_text(err: Exception) -> None:
    text = str(err)
    if not text or not text.isprintable() or len(text) > _LONGEST:
        raise WrongError(f"a message of {len(text)} characters, or not printable: {text[:300]!r}") from err


_PLAIN = (bool, int, float, str, tuple)


def _check_plain(options: Options) -> None:
    """Options hold Python's own values, which can be keys, JSON and source code."""
    for name, value in vars(options).items():
        items: List[Any] = list(value) if type(value) is tuple and name != "sensor" else [value]
        if (name, value) == ("calibration", None):
            continue
        if name != "sensor" and not all(type(item) in _PLAIN for item in items):
            raise WrongError(f"{name} is {value!r}")
    hash(options)


def _check_result(pipeline: Pipeline, result: Any, raw: Any) -> None:
    """Products have the documented shapes and values."""
    options = pipeline.options
    size = options.output_size(raw.shape)
    for name, image in result.items():
        if image.shape != options.shape_of(name, size) or str(image.dtype) != options.dtype_of(name):
            raise WrongError(f"{name} is {image.dtype} {image.shape}")
        known = image[~np.isnan(image)]
        low, high = PRODUCTS[name].values if image.dtype == np.float32 else (0, full_level(str(image.dtype)))
        if known.size and not low - 1e-5 <= known.min() <= known.max() <= high + 1e-5:
            raise WrongError(f"{name} goes from {known.min()} to {known.max()}")
