"""`replay --compare` of outputs for the next node: equal options pass, any other option is named as a difference."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Dict, Tuple

import numpy as np
import pytest
from recorded_frames import Row, write
from support import real_frame

from polar_pipeline import cli
from polar_pipeline.products import NOISE_PRODUCTS, PRODUCTS

NAMES = [name for name in PRODUCTS if name not in NOISE_PRODUCTS]
#: The options of the golden recording.
OPTIONS = {
    "--scale": "2",
    "--rotate": "90",
    "--roi": "1 2 24 30",
    "--polarizer-angle": "20",
    "--color-style": "faded",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two frames as a recording, and the golden recordings of both output depths."""
    path = tmp_path_factory.mktemp("compare")
    raw = np.ascontiguousarray(real_frame("imx250mzr_fruits.png")[850:978, 900:1060])
    write(path / "in.mcap", [(stamp, Row(stamp, stamp, raw).cdr()) for stamp in (10**9, 2 * 10**9)])
    for depth in ("float32", "uint8"):
        assert replay(path, OPTIONS, "--dtype", depth, "-o", str(path / f"{depth}.mcap")) == 0
    return path


def replay(folder: Path, options: Dict[str, str], *others: str) -> int:
    """Replay the recording of all products; gives the exit code."""
    words = [word for row in options.items() for word in " ".join(row).split()]
    common = ["--products", ",".join(NAMES), "--backend", "cpu"]
    return cli.main(["replay", str(folder / "in.mcap"), *common, *words, *others])


def failed(text: str) -> Tuple[str, ...]:
    """The products that a comparison names as different."""
    rows = re.findall(r"^(\w+) .* (ok|FAILED)\b", text, re.MULTILINE)
    assert [name for name, _ in rows] == NAMES
    return tuple(name for name, verdict in rows if verdict == "FAILED")


@pytest.mark.parametrize("depth", ["float32", "uint8"])
def test_equal_options_pass(folder: Path, depth: str, capsys: pytest.CaptureFixture[str]) -> None:
    golden = ["--compare", str(folder / f"{depth}.mcap"), "--dtype", depth]
    assert replay(folder, OPTIONS, *golden, "--threads", "1") == 0
    assert failed(capsys.readouterr().out) == ()


@pytest.mark.parametrize(
    ("option", "value", "different"),
    [
        ("--scale", "1", tuple(NAMES)),
        ("--rotate", "270", tuple(NAMES)),
        ("--roi", "2 2 24 30", tuple(NAMES)),
        ("--polarizer-angle", "50", ("polarizer",)),
        ("--color-style", "dark", ("aolp_color",)),
    ],
)
def test_another_option_is_a_difference(
    option: str, value: str, different: Tuple[str, ...], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    golden = ["--compare", str(folder / "float32.mcap"), "--dtype", "float32"]
    assert replay(folder, {**OPTIONS, option: value}, *golden) == 1
    found = set(failed(capsys.readouterr().out))
    assert found <= set(different)
    assert set(different) - found <= {"ssim_map", "ssim"}, "which are nearly 1 everywhere in this scene"
