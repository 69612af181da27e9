"""The unit of systemd: systemd reads every line, its command starts the node, and the documents name its settings."""
# ruff: noqa: E402 - rclpy may be missing

from __future__ import annotations

import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Dict, List, Tuple

import pytest

rclpy = pytest.importorskip("rclpy")

from support import ROOT

from polar_pipeline.ros.fast_dds import profile_variable

pytestmark = pytest.mark.ros
UNIT = ROOT / "config" / "polar_pipeline.service"


def rows(key: str) -> List[str]:
    """The values of a key, which may stand several times."""
    return re.findall(rf"^{key}=(.*)$", UNIT.read_text(), re.MULTILINE)


def environment() -> Dict[str, str]:
    return dict(word.split("=", 1) for row in rows("Environment") for word in shlex.split(row))


def command() -> List[str]:
    """What systemd starts: `$$` is a dollar sign."""
    (row,) = rows("ExecStart")
    assert not re.search(r"(?<!\$)\$(?!\$)|%", row), "systemd would replace a variable or a specifier"
    return shlex.split(row.replace("$$", "$"))


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
@pytest.mark.parametrize("change", [("", ""), ("Restart=always", "Restrt=always"), ("always", "often")])
def test_systemd_understands_every_line(change: Tuple[str, str], tmp_path: Path) -> None:
    path = tmp_path / UNIT.name
    path.write_text(UNIT.read_text().replace(*change))
    done = subprocess.run(["systemd-analyze", "verify", str(path)], check=False, stderr=subprocess.PIPE, timeout=60)
    says = [line for line in done.stderr.decode().splitlines() if path.name in line]
    assert bool(says) == any(change), says


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The unit's environment, with a setup file for a `ros2` that knows where the executables of this package are."""
    folder = tmp_path / "it's a prefix" / "lib" / "polar_pipeline"
    folder.mkdir(parents=True)
    program = '#!/bin/sh\nexec "{}" -m {} "$@"\n'
    ros2 = f'#!/bin/sh\ncase "$*" in\n"pkg prefix polar_pipeline") echo "{folder.parent.parent}";;\n'
    ros2 += (
        f'"run polar_pipeline polar-pipeline env") exec "{sys.executable}" -m polar_pipeline env;;\n*) exit 3;;\nesac\n'
    )
    texts = {
        folder / "polar_pipeline_node": program.format(sys.executable, "polar_pipeline.node"),
        tmp_path / "ros2": ros2,
    }
    for path, text in texts.items():
        path.write_text(text)
        path.chmod(0o755)
    setup = tmp_path / "setup.bash"
    setup.write_text(f'export PATH="{tmp_path}:$PATH" PYTHONPATH="{ROOT}"\n')
    monkeypatch.delenv(profile_variable())
    for name, value in {**environment(), "SETUP": str(setup)}.items():
        monkeypatch.setenv(name, value)


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(("arguments", "code"), [("-p backend:=cpu", 0), ("-p backend:=abacus", 2)])
def test_the_command_is_the_node(arguments: str, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process of the command is the node: it gets the signal, and its exit code decides on a restart."""
    monkeypatch.setenv("ARGUMENTS", f"{environment()['ARGUMENTS']} {arguments}")
    process = subprocess.Popen(command(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        lines: List[str] = []
        while code == 0 and "waits for frames on /arena_camera_node/images" not in "".join(lines[-1:]):
            lines.append(process.stdout.readline().decode())  # type: ignore[union-attr]
            assert lines[-1], lines
        if code == 0:
            values = Path(f"/proc/{process.pid}/environ").read_bytes().decode().split("\0")
            assert any(value.startswith(f"{profile_variable()}=") and "fastdds_large" in value for value in values)
            assert "RMW_FASTRTPS_PUBLICATION_MODE=ASYNCHRONOUS" in values
            process.send_signal(signal.SIGTERM)
        assert process.wait(30) == code, lines
    finally:
        process.kill()
        process.communicate()
    assert (str(code) in rows("RestartPreventExitStatus")) == (code == 2)


def test_the_settings_are_those_of_the_document() -> None:
    text, _, rest = (ROOT / "docs" / "robot.md").read_text().partition("### CycloneDDS and Zenoh\n")
    text += rest.partition("\n## ")[2]  # without what other middleware needs
    limits = re.findall(r"\bnet\.[\w.]+=\d+", text)
    assert len(limits) == 4
    assert limits == re.findall(r"\bnet\.[\w.]+=\d+", " ".join(rows("ExecStartPre")))
    variables = re.findall(r"^export (RMW_\w+=\w+)", text, re.MULTILINE)
    assert variables
    assert set(variables) <= {"=".join(row) for row in environment().items()}
    assert rows("#CPUAffinity") == re.findall(r"taskset -c ([\d-]+)", text)
    assert "jetson_clocks" in text
    assert "-+/usr/bin/jetson_clocks" in rows("ExecStartPre")
