"""The example of docs/replay.md: the files are those in the text, and the test runs, as a user's repository would."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Tuple

import numpy as np
import pytest
from support import ROOT, TIMEOUT

from polar_pipeline.cli import main
from polar_pipeline.recordings import messages
from polar_pipeline.recordings.sink import open_sink

EXAMPLES = ROOT / "docs" / "examples"
#: What `ros2 launch PACKAGE FILE ARGUMENTS` does.
LAUNCH = f"""
import sys
from test_launch import RUN
sys.argv[1:3] = ["{ROOT}/launch/" + sys.argv[2]]
exec(RUN)
"""
#: `ros2`, for which there are no wheels.
ROS2 = f"""#!/bin/sh
case "$1" in
run) shift 3; exec {sys.executable} -m polar_pipeline "$@" ;;
bag) exec {sys.executable} {ROOT}/test/ros/bag_player.py "$@" ;;
launch) shift; exec {sys.executable} -c '{LAUNCH}' "$@" ;;
esac
"""


def test_files_are_those_of_the_text() -> None:
    text = (ROOT / "docs" / "replay.md").read_text(encoding="utf-8")
    for name, kind in (("test_drive.py", "python"), ("replay.yml", "yaml")):
        assert f"```{kind}\n{(EXAMPLES / name).read_text(encoding='utf-8')}```\n" in text, f"docs/examples/{name}"


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the test, a recording and its golden recording, and a `ros2`."""
    shutil.copy(EXAMPLES / "test_drive.py", tmp_path)
    rng = np.random.default_rng(4)
    with open_sink(tmp_path / "drive.mcap", {}) as sink:
        for stamp in range(10**11, 10**11 + 10**9, 2 * 10**8):
            mosaic = rng.integers(10, 200, (48, 64)).astype(np.uint8)
            sink.write("/image_raw", messages.IMAGE, stamp, messages.encode_image(stamp, "", "mono8", mosaic))
    words = ["-o", str(tmp_path / "golden.mcap"), "--report", "-", "--params", str(ROOT / "config/triton_mono.yaml")]
    assert main(["replay", str(tmp_path / "drive.mcap"), *words]) == 0
    program = tmp_path / "bin" / "ros2"
    program.parent.mkdir()
    program.write_text(ROS2)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=os.pathsep)
    for folder in (ROOT, ROOT / "test", ROOT / "test" / "ros"):
        monkeypatch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)
    return tmp_path


def run(repository: Path, name: str) -> Tuple[int, str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_drive.py", "-k", name]
    done = subprocess.run(command, cwd=repository, capture_output=True, text=True, timeout=4 * TIMEOUT, check=False)
    return done.returncode, done.stdout + done.stderr


def test_offline(repository: Path) -> None:
    code, said = run(repository, "products")
    assert code == 0, said
    assert 'failures="0"' in (repository / "replay_results" / "replay.xml").read_text(encoding="utf-8")
    words = ["-o", str(repository / "golden.mcap"), "--report", "-", "--force", "--rotate", "180"]
    assert main(["replay", str(repository / "drive.mcap"), *words]) == 0
    code, said = run(repository, "products")
    assert code == 1, said
    assert "intensity: frame " in said


@pytest.mark.ros
def test_live(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("launch_ros")
    marker = tmp_path / "share/ament_index/resource_index/packages/polar_pipeline"
    node = tmp_path / "lib/polar_pipeline/polar_pipeline_node"
    for path, text in ((marker, ""), (node, f'#!/bin/sh\nexec {sys.executable} -m polar_pipeline.node "$@"\n')):
        path.parent.mkdir(parents=True)
        path.write_text(text)
        path.chmod(0o755)
    monkeypatch.setenv("AMENT_PREFIX_PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv("ROS_LOG_DIR", str(tmp_path / "log"))
    code, said = run(repository, "node")
    assert code == 0, said
