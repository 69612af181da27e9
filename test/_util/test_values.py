"""Any value of an option or a parameter is taken for what it means, or refused in one line that says why."""

from __future__ import annotations

import itertools
import math
from array import array
from decimal import Decimal
from fractions import Fraction
from typing import Any, Callable, Dict, List, NamedTuple, Tuple

import numpy as np
import pytest

from polar_pipeline import Pipeline
from polar_pipeline.live.parameters import PARAMETERS, make_settings
from polar_pipeline.options import OPTIONS, make_options
from polar_pipeline.options.display import Display
from polar_pipeline.options.products import PRODUCTS, get_products
from polar_pipeline.quality.statistics import LIMITS, QualityLimits
from polar_pipeline.sensor.encodings import get_format
from polar_pipeline.sensor.mosaic import get_sensor, parse_tile

#: Characters of the longest message: it may be a log line, or what a service answers.
LONGEST = 500

_LOOP: List[Any] = []
_LOOP.append(_LOOP)
#: Values that are right for hardly any option.
HOSTILE: Dict[str, Any] = {
    "none": None,
    "true": True,
    "numpy true": np.bool_(True),
    "nan": math.nan,
    "infinity": math.inf,
    "numpy half": np.float16(2),
    "numpy unsigned": np.uint64(2**64 - 1),
    "3": 3,
    "2.5": 2.5,
    "2**63": 2**63,
    "beyond floats": 10**400,
    "5,000 digits": 10**5000,
    "complex": 1 + 0j,
    "decimal": Decimal("1"),
    "empty text": "",
    "text of 5,000 digits": "9" * 5000,
    "text of infinities": "inf 1 1",
    "long text": "x" * 8_000_000,
    "text of escapes": "\x1b[2J\n" * 20,
    "long text of commas": "dolp," * 100_000,
    "auto": "auto",
    "tile": "90 45 / 135 0",
    "tile of 5,000 digits": f"{'9' * 5000} 45 / 135 0",
    "product": "dolp",
    "bytes": b"half",
    "list": [],
    "pair": (1, 0),
    "pair of flags": array("b", [1, 0]),
    "pair of huge ones": [10**400, 10**5000],
    "pixels and a half": array("d", [-1, 9.5, 99, 1]),
    "three with true": [1.0, True, 1.0],
    "loop": _LOOP,
    "mapping of lists": {"dolp": ["uint8"]},
    "array": np.arange(6).reshape(2, 3),
    "array without a dimension": np.array(1),
    "array of objects": np.array([None, 1], object),
    "object": object(),
    "generator": (k for k in range(2)),
}


class Target(NamedTuple):
    """Something with options: (name of the option, what takes a value of it)."""

    name: str
    take: Callable[[Any], Any]


def _pipeline(value: Any) -> None:
    Pipeline(sensor=value, backend="cpu").close()


TARGETS = [
    *(Target(name, lambda value, name=name: make_options(**{name: value})) for name in OPTIONS),
    Target("sensor", _pipeline),
    *(Target(name, lambda value, name=name: QualityLimits(**{name: value})) for name in LIMITS),
    *(Target(name, lambda value, name=name: make_settings({name: value})) for name in PARAMETERS),
    Target("display.gain", lambda value: Display(gain=value)),
    Target("display.white_balance", lambda value: Display(balance=value)),
    Target("tile", parse_tile),
    Target("sensor", get_sensor),
    Target("products", get_products),
    Target("encoding", get_format),
]


@pytest.mark.parametrize("target", TARGETS, ids=[f"{k} {target.name}" for k, target in enumerate(TARGETS)])
def test_any_value_is_taken_or_refused_in_one_line(target: Target) -> None:
    refused = {name: refusal(target, value) for name, value in HOSTILE.items()}
    for name, message in refused.items():
        assert not message or target.name in message, (name, message)
        assert not message or any(word in message for word in ("must be", "tile", "cannot be read")), (name, message)
        assert "array(" not in message or not isinstance(HOSTILE[name], array), (
            "ROS's lists are shown as they are written"
        )
        assert message.isprintable(), name
        assert len(message) < LONGEST, (name, len(message))
    assert sum(map(bool, refused.values())) > len(HOSTILE) // 2


def refusal(target: Target, value: Any) -> str:
    """Why a value was refused; empty if it was taken. Any error but a `ValueError` goes on."""
    try:
        target.take(value)
    except ValueError as err:
        return str(err)
    return ""


def test_unknown_names_are_refused_in_one_line() -> None:
    with pytest.raises(ValueError, match=r"unknown option.*xxx") as caught:
        make_options(**{"x" * 1_000_000: 1, "\x1b[2J": 2})
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < LONGEST


def _types(options: Any) -> Dict[str, Tuple[type, ...]]:
    return {
        name: tuple(map(type, value)) if isinstance(value, tuple) else (type(value),)
        for name, value in vars(options).items()
    }


def test_options_hold_plain_values_whatever_they_came_as() -> None:
    """What goes into caches' keys, JSON and sources of kernels is Python's own."""
    plain = make_options(ssim_window=7, ssim_sigma=1.5, bit_depth=12, roi_offset=(2, 3), flip=(True, False))
    other = make_options(
        ssim_window=7.0,
        ssim_sigma=Fraction(3, 2),
        bit_depth=np.int64(12),
        roi_offset=array("q", [2, 3]),
        flip=np.array([True, False]),
        co_sited=np.int8(1),
        backend=np.str_("auto"),
    )
    assert other == plain
    assert _types(other) == _types(plain)
    assert type(other.backend) is str
    assert QualityLimits(dark_warn=np.float32(0.5), frozen_frames=5.0) == QualityLimits(dark_warn=0.5, frozen_frames=5)
    assert type(QualityLimits(frozen_frames=5.0).frozen_frames) is int


def test_limits_themselves_are_allowed() -> None:
    limits = {name: row.limits or row.choices for name, row in OPTIONS.items()}
    limits = {name: ends for name, ends in limits.items() if ends and name != "dtype"}  # which is stored per product
    assert limits.pop("min_intensity") == (0, 2)  # whose end is excluded
    for name, ends in limits.items():
        for value in ends:
            others = {"resolution": "full"} if value == "learned" else {}
            assert getattr(make_options(**{name: value, **others}), name) == value
    for threads in (-1, 257):
        with pytest.raises(ValueError, match=rf"threads must be in \[0, 256\], got {threads}"):
            Pipeline(backend="cpu", threads=threads)


def test_products_of_any_kind() -> None:
    assert get_products(name for name in ("aolp", "dolp")) == ("dolp", "aolp")
    assert get_products({"dolp": 1}) == ("dolp",)
    assert get_products(np.array(["dolp"])) == ("dolp",)
    for wrong in (None, 5, [["dolp"]], [None], [{}], b"dolp", [b"dolp"], "x" * 10**6, itertools.repeat(0, 1000)):
        with pytest.raises(ValueError, match=f"products must be among {', '.join(PRODUCTS)}, or 'all'") as caught:
            get_products(wrong)  # type: ignore[arg-type]
        assert len(str(caught.value)) < LONGEST
