"""The public function that calibrates: what it returns, raises and takes from files beside the frames."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from sessions import true_parameters

from polar_pipeline import SENSORS, Pipeline, cli, make_calibration
from polar_pipeline.calibration import load_calibration
from polar_pipeline.camera.facts import CameraFacts
from polar_pipeline.camera.recorded import save_facts
from polar_pipeline.tools.calibrate.make import CalibrationError, SessionArgumentError
from polar_pipeline.tools.calibrate.simulation import Deviations, simulate_sensor

SIZE = (64, 96)


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A session of 9 angles that no test changes."""
    folder = tmp_path_factory.mktemp("simulated") / "session"
    size = ["--size", "96x64", "--angles", "9", "--frames", "10", "--dark-frames", "16", "--shading", "0"]
    assert cli.main(["simulate", str(folder), *size]) == 0
    return folder


def test_from_a_session_to_corrected_frames(session: Path) -> None:
    calibration, report = make_calibration(str(session), bit_depth=12, roi_offset=(0, 0), temperature=21.5)
    assert not report.problems
    assert report.is_accepted
    assert (calibration.shape, calibration.bit_depth) == (SIZE, 12)
    assert calibration.facts["temperature"] == 21.5
    camera = simulate_sensor(SENSORS["IMX250MZR"], SIZE, 0, Deviations(defects=5e-4, shading=0.0))
    error = (calibration.parameters().gain - true_parameters(camera).gain)[camera.defects == 0]
    assert np.sqrt(np.mean(error**2)) < 0.0035  # as in `test_from_a_session_to_a_file`
    raw = cv2.imread(str(session / "test" / "dolp_0.30_aolp_070.png"), cv2.IMREAD_UNCHANGED)
    errors = []
    for own in (None, calibration):
        out = Pipeline(products="dolp", bit_depth=12, backend="cpu", calibration=own)(raw)
        errors.append(np.sqrt(np.nanmean((out["dolp"] - 0.3) ** 2)))
    assert errors[1] < 0.7 * errors[0]


def test_the_command_writes_what_the_function_returns(session: Path, tmp_path: Path, capsys: Any) -> None:
    calibration, report = make_calibration([session], bit_depth=12, roi_offset=(0, 0), flat_field=True)
    out = tmp_path / "sensor.npz"
    capsys.readouterr()
    words = ["calibrate", str(session), "-o", str(out), "--bit-depth", "12", "--roi-offset", "0", "0", "--flat-field"]
    assert cli.main(words) == 0
    assert load_calibration(out) == calibration
    assert str(report) in capsys.readouterr().out
    report.save(tmp_path / "own.html")
    assert (tmp_path / "own.html").read_text(encoding="utf-8") == out.with_suffix(".html").read_text(encoding="utf-8")
    with pytest.raises(FileExistsError):
        report.save(tmp_path / "own.html")


def test_a_calibration_that_is_worse_than_none_is_not_returned(session: Path, tmp_path: Path) -> None:
    """Of a lamp whose texture of 10 % counts as gains of pixels."""
    folder = Path(shutil.copytree(session, tmp_path / "textured"))
    grains = cv2.GaussianBlur(np.random.default_rng(0).standard_normal(SIZE), (0, 0), 2)
    for path in (folder / "light").iterdir():
        raw = cv2.imread(str(path), cv2.IMREAD_UNCHANGED)
        textured = (raw - 33.0) * (1 + 0.1 * grains / grains.std()) + 33
        cv2.imwrite(str(path), np.clip(np.rint(textured), 0, 4095).astype(np.uint16))
    with pytest.raises(CalibrationError, match=r"accept_bad=True returns it:\n.*texture before the camera") as caught:
        make_calibration(folder, bit_depth=12, roi_offset=(0, 0))
    assert caught.value.report.problems
    assert "No calibration was written" in caught.value.report.html()
    calibration, report = make_calibration(folder, bit_depth=12, roi_offset=(0, 0), accept_bad=True)
    assert calibration == caught.value.report.result.calibration
    assert report.problems == caught.value.report.problems
    assert "No calibration was written" not in report.html()


def test_the_state_of_the_camera_beside_the_frames(session: Path, tmp_path: Path) -> None:
    """It states region, bits and exposure, which arguments may repeat but not contradict."""
    folder = Path(shutil.copytree(session, tmp_path / "session"))
    facts = CameraFacts("", "", "", "IMX250MZR", "Mono12", (96, 64), (2, 4), (False, False), 0.0, 8000.0, 30.0)
    save_facts(folder / "camera.yaml", facts)
    calibration, _ = make_calibration(folder, roi_offset=(2, 4))
    assert calibration.offset == (2, 4)
    assert (calibration.facts["exposure"], calibration.facts["temperature"]) == (8.0, 30.0)
    with pytest.raises(SessionArgumentError, match=r"--exposure 9\.0 contradicts .*camera\.yaml: 8\.0"):
        make_calibration(folder, exposure=9.0)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"bit_depth": 12}, "name the place of their first pixel with --roi-offset X Y"),
        ({"bit_depth": 7}, "bit_depth must be one of 0, 8"),
        ({"sensor": "IMX999"}, "IMX999"),
        ({"angle_error": 0}, r"angle_error must be in \[0.001, 90.0\], got 0"),
        ({"polarizer_extinction": 1}, r"polarizer_extinction must be in \[2.0, inf\], got 1"),
        ({"temperature": "warm"}, "temperature must be a number, got 'warm'"),
    ],
)
def test_wrong_arguments(arguments: Any, words: str, session: Path) -> None:
    with pytest.raises(SessionArgumentError, match=words):
        make_calibration(session, **arguments)


def test_no_session() -> None:
    with pytest.raises(SessionArgumentError, match="got none"):
        make_calibration([])
