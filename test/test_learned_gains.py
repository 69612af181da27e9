"""`benchmarks/learned.py`: its figures by hand, its patterns by their definition, and a small run."""

from __future__ import annotations

import json
from pathlib import Path

import learned
import numpy as np
import pytest
from scenes import behind_polarizers, polarized

from polar_pipeline.backends import reference


def flat(dolp: float, aolp: float) -> np.ndarray:
    """Four angle images, (4, 64, 80), of S0/2 0.4."""
    return behind_polarizers(polarized(np.full((64, 80), 0.4), np.array(dolp), np.array(aolp)))


def test_errors_by_hand() -> None:
    """S1 is wrong by 0.08 in the left half, and S2 by 0.16 in the right half; 1e-9: float64."""
    truth, measured = flat(0.5, 0), flat(0.4, 0)
    measured[:, :, 40:] = behind_polarizers(np.array([0.8, 0.4, 0.16]))[:, np.newaxis, np.newaxis]
    assert learned.errors(measured, truth) == pytest.approx([0.08 / np.sqrt(2), 0.16 / np.sqrt(2)], abs=1e-9)
    is_left = np.broadcast_to(np.arange(80) < 40, (64, 80))
    assert learned.errors(measured, truth, is_left) == pytest.approx([0.08, 0], abs=1e-9)


@pytest.mark.parametrize("kind", learned.KINDS)
def test_gratings_modulate_what_their_name_says(kind: str) -> None:
    """The range of a wave of 12 pixels, which the average over a pixel reduces by less than 3 %."""
    stokes = reference.stokes(learned.grating(kind, 12, 30))
    ranges = {
        "light": np.ptp(stokes[..., 0] / 2),
        "DoLP": np.ptp(reference.dolp(stokes)),
        "AoLP": np.ptp(np.mod(reference.aolp(stokes) + 1, np.pi)),
    }
    expected = {
        "light": 0.45 * (kind == "DoLP and light"),
        "DoLP": 0.8 * ("DoLP" in kind),
        "AoLP": 1.0 * (kind == "AoLP"),
    }
    assert ranges == pytest.approx(expected, abs=0.04)
    assert stokes[..., 0].mean() / 2 == pytest.approx(0.45, abs=0.01)


def test_small_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Every table is there; in dim light the network gains, without noise in 12 bits it changes nothing."""
    output = tmp_path / "learned.json"
    monkeypatch.setattr("sys.argv", ["learned.py", "--size", "96", "128", "--output", str(output)])
    for name, values in {"BITS": (12,), "PERIODS": (8,), "DIRECTIONS": (30,), "FLAT_AOLP": (30,)}.items():
        monkeypatch.setattr(learned, name, values)
    assert learned.main() == 0
    report = json.loads(output.read_text(encoding="utf-8"))
    assert len(report["scenes"]["scenes"]) == 6
    assert set(report["scenes"]["12 bits"]) == set(learned.EXPOSURES)
    assert report["scenes"]["12 bits"]["none"]["gains of the scenes"]["S1"] == 6 * [0]
    assert min(report["scenes"]["mean gain in dim light"].values()) > 0.3
    assert len(report["gratings"]["10 %"]["ratios of S1 and S2"]) == 3
    assert len(report["flat fields"]["rows"]) == 16
    assert len(report["faults"]["scenes"]) == learned.FAULT_SCENES
    assert 0.5 < report["largest change over the limit"] < 1.001
    assert "| hot pixels | part |" in capsys.readouterr().out
