"""What `polar-pipeline plan` shows of a calibration: the operator, its bytes, and a frame that it does not hold."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from calibrations import ideal_calibration

from polar_pipeline import cli
from polar_pipeline.calibration import save_calibration
from polar_pipeline.sensor.mosaic import get_sensor


@pytest.fixture(name="file")
def fixture_file(tmp_path: Path) -> str:
    """A calibration of 64x48 pixels."""
    save_calibration(tmp_path / "sensor.npz", ideal_calibration(get_sensor("IMX250MZR"), (48, 64)))
    return str(tmp_path / "sensor.npz")


def test_the_correction_and_its_bytes_are_shown(file: str, capsys: pytest.CaptureFixture) -> None:
    command = ["plan", "--size", "64x48", "--products", "intensity,ssim"]
    assert cli.main([*command, "--calibration", file]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "mono half bilinear u8 fp32 calibrated intensity:uint8+sums:uint16"
    (operator, *others) = lines[lines.index("operators") + 1 :]
    assert operator.split()[0] == "correction"
    assert operator.endswith("4 bytes a pixel, 12288 in all")
    assert "  correction 12288 of the bytes read: 4 a pixel" in others
    assert f"  reads      {5 * 64 * 48} bytes" in "\n".join(others)
    assert any("ssim from the mosaic needs pixels without a calibration" in line for line in others)
    assert cli.main(command) == 0
    assert "correction" not in capsys.readouterr().out


def test_the_correction_in_json(file: str, capsys: pytest.CaptureFixture) -> None:
    for given, operators, bytes_read in ((["--calibration", file], ["correction"], 5), ([], [], 1)):
        assert cli.main(["plan", "--json", "--size", "64x48", *given]) == 0
        shown = json.loads(capsys.readouterr().out)
        assert shown["operators"][:-1][: len(operators)] == operators
        assert ("correction" in shown["operators"]) == bool(operators)
        assert shown["bytes"]["read"] == bytes_read * 64 * 48
        assert shown["bytes"]["correction"] == (bytes_read - 1) * 64 * 48


def test_a_frame_beyond_the_calibration_is_refused(file: str, capsys: pytest.CaptureFixture) -> None:
    for command in (["plan", "--size", "80x48"], ["plan", "--size", "64x48", "--roi-offset", "0", "2"]):
        assert cli.main([*command, "--calibration", file]) == 1
        assert "the calibration is of 64x48 pixels from (0, 0), the frame has " in capsys.readouterr().err
