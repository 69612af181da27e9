"""`benchmarks/accuracy.py`: its figures by hand, its exposures by their statistics, and scenes of files."""

from __future__ import annotations

import json
from pathlib import Path

import accuracy
import cv2
import numpy as np
import pytest
from scenes import behind_polarizers, sample_mosaic, synthetic

from polar_pipeline.sensor.mosaic import ANGLES, SENSORS


def light(s0: float, dolp: float, aolp: float) -> np.ndarray:
    """Four angle images, (4, 48, 64), of even light: S0, DoLP, AoLP in degrees."""
    turn = 2 * np.deg2rad(np.array(ANGLES) - aolp)
    return np.tile((s0 * (1 + dolp * np.cos(turn)) / 2)[:, np.newaxis, np.newaxis], (1, 48, 64))


def test_figures_by_hand() -> None:
    """S0 is wrong by 0.02, S1 and S2 by what a turn of 10 degrees across 180 makes; 1e-9: float64."""
    truth, found = light(1, 0.5, 5), light(1.02, 0.4, 175)
    row = dict(zip(accuracy.FIGURES, accuracy.figures(found, truth)))
    s1 = 0.5 * np.cos(np.deg2rad(10)) - 0.408 * np.cos(np.deg2rad(350))
    s2 = 0.5 * np.sin(np.deg2rad(10)) - 0.408 * np.sin(np.deg2rad(350))
    wrong = {"S0": 20 * np.log10(2 / 0.02), "S1": -20 * np.log10(abs(s1)), "S2": -20 * np.log10(abs(s2))}
    angles = -20 * np.log10(np.abs(found - truth)[:, 0, 0])
    assert row == pytest.approx({"I": angles.mean(), **wrong, "DoLP": 0.1, "AoLP": 10}, abs=1e-9)


def test_pixels_that_do_not_count() -> None:
    """A dark half has no DoLP, an unpolarized one no AoLP, in spite of errors there; nor has a scene of such pixels."""
    truth, found = light(1, 0.5, 20), light(1.01, 0.5, 50)
    truth[:, :, :32], found[:, :, :32] = light(0.09, 0.5, 20)[:, :, :32], light(0.08, 0.9, 20)[:, :, :32]
    assert accuracy.figures(found, truth)[4:] == pytest.approx([0, 30])
    truth[:, :, 32:], found[:, :, 32:] = light(1, 0.09, 20)[:, :, 32:], light(1.01, 0.19, 20)[:, :, 32:]
    assert accuracy.figures(found, truth)[4:] == [pytest.approx(0.1), None]
    assert accuracy.figures(light(0.08, 0.9, 0), light(0.09, 0.5, 20))[4:] == [None, None]


@pytest.mark.parametrize("exposure", accuracy.EXPOSURES)
def test_exposures(exposure: str) -> None:
    """Mean and variance of 200,000 pixels, within five standard errors, are those of the sensor's noise."""
    sensor, truth = SENSORS["IMX250MZR"], np.full((4, 400, 500), 0.5)
    raw = accuracy.record(truth, sensor, exposure, seed=1) / 4095
    share, is_noisy = accuracy.EXPOSURES[exposure]
    variance = (share / 2 / 10_500 + (2.4 / 10_500) ** 2) if is_noisy else 0
    assert raw.mean() == pytest.approx(share / 2, abs=5 * np.sqrt(variance / raw.size) + 0.5 / 4095)
    assert raw.var() == pytest.approx(variance + is_noisy / 12 / 4095**2, rel=5 * np.sqrt(2 / raw.size))


def store(folder: Path, name: str, angles: np.ndarray) -> None:
    """Write four angle images, of full scale 1, as 16 bit (RGB) or 8 bit (gray)."""
    for angle, image in zip(ANGLES, angles):
        top = 65535 if image.ndim == 3 else 255
        numbers = np.rint(image * top).astype(np.uint16 if image.ndim == 3 else np.uint8)
        cv2.imwrite(str(folder / f"{name}_{angle:03}.png"), numbers[..., ::-1] if image.ndim == 3 else numbers)


def test_scenes_of_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Scenes of two folders; figures are those of the arrays, and worse with less light, at half resolution too."""
    color, gray = tmp_path / "color", tmp_path / "gray"
    color.mkdir()
    gray.mkdir()
    angles = behind_polarizers(synthetic("plastic", (96, 128), is_color=True))
    store(color, "one", angles)
    store(gray, "two", behind_polarizers(synthetic("window", (66, 96))))
    output, pattern = tmp_path / "out.json", str(gray / "{scene}_{angle}.png")
    arguments = ["--data", str(color), pattern, "--methods", "gradient", "half, adaptive", "--output", str(output)]
    monkeypatch.setattr("sys.argv", ["accuracy.py", *arguments])
    assert accuracy.main() == 0
    report = json.loads(output.read_text(encoding="utf-8"))
    assert report["mono"]["scenes"] == [[str(color), "one", 96, 128], [pattern, "two", 64, 96]]
    assert report["color"]["scenes"] == [[str(color), "one", 96, 128]]

    truth = accuracy.make_scene("", "", angles).angles
    half = np.stack([cv2.resize(image, (64, 48), interpolation=cv2.INTER_AREA) for image in truth])
    raw = accuracy.record(truth, SENSORS["IMX250MYR"], "20 %")
    for method, same in (("gradient", truth), ("half, adaptive", half)):
        stored = report["color"]["exposures"]["20 %"][method]
        expected = accuracy.figures(accuracy.methods(is_color=True)[method](raw) / 0.2, same)
        assert stored["scenes"][0] == pytest.approx(expected, rel=0.01)  # files have 16 bits
        assert list(stored["mean"].values()) == stored["scenes"][0]
    for kind in ("mono", "color"):
        for method in ("gradient", "half, adaptive"):
            means = [report[kind]["exposures"][name][method]["mean"] for name in accuracy.EXPOSURES]
            assert [mean["S1"] for mean in means] == sorted((mean["S1"] for mean in means), reverse=True)
            assert [mean["DoLP"] for mean in means] == sorted(mean["DoLP"] for mean in means)
    assert "| gradient |" in capsys.readouterr().out


def test_mosaics_become_angle_images_of_a_quarter(tmp_path: Path) -> None:
    """A mosaic of even light gives its angles; 0.002: half a step of 8 bits."""
    truth = np.repeat(np.repeat(light(0.9, 0.5, 30), 6, 1), 6, 2)
    cv2.imwrite(str(tmp_path / "a.png"), sample_mosaic(np.rint(255 * truth).astype(np.uint8), SENSORS["IMX250MZR"]))
    scene = next(accuracy.stored_scenes(str(tmp_path / "a.png"), "source", "mosaics", (1024, 1024)))
    assert scene.name == "a"
    assert scene.angles.shape == (4, 72, 96)
    assert np.abs(scene.angles[:, 0, 0] - truth[:, 0, 0] / truth.max()).max() < 0.002 / truth.max()


def test_scenes_that_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "out.json"
    for angles, reason in ((light(1, 0.5, 30), "would have 48x64"), (np.ones((0, 1, 1)), str(tmp_path))):
        for path in tmp_path.glob("*.png"):
            path.unlink()
        store(tmp_path, "small", angles)
        monkeypatch.setattr("sys.argv", ["accuracy.py", "--data", str(tmp_path), "--output", str(output)])
        with pytest.raises(SystemExit, match="2"):
            accuracy.main()
        assert reason in capsys.readouterr().err
    assert not output.exists()
