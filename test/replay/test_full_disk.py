"""A disk that fills up under what writes files: it is said, and nothing half written stays behind."""

from __future__ import annotations

import re
import resource
import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest
from recorded_frames import Row, write

from polar_pipeline import cli

#: A command, the bytes that its disk takes, and the file that does not fit.
CASES = [
    ("replay {bag} --backend cpu --products dolp -o {disk}/out.mcap --force", 256 << 10, "out.mcap"),
    ("compress {bag} -o {disk}/out.mcap --force", 256 << 10, "out.mcap"),
    (
        "replay {bag} --backend cpu --products ssim -o {disk}/out.mcap --report {disk}/out.html --force",
        6 << 10,
        "out.html",
    ),
    ("process {image} --backend cpu --products stokes --format npy -o {disk} --force", 256 << 10, "raw_stokes.npy"),
    (
        "calibrate {session} --bit-depth 12 --roi-offset 0 0 -o {disk}/sensor.npz --report {disk}/out.html --force",
        64 << 10,
        "out.html",
    ),
]


@pytest.mark.parametrize(("command", "room", "file"), CASES)
def test_a_full_disk(command: str, room: int, file: str, tmp_path: Path) -> None:
    """Files must not grow beyond `room`, which fails as a write does on a full disk."""
    raw = np.random.default_rng(0).integers(10, 200, (512, 512)).astype(np.uint8)
    bag = write(tmp_path / "in.mcap", [(stamp, Row(stamp, stamp, raw).cdr()) for stamp in range(4)])
    image, disk = tmp_path / "raw.png", tmp_path / "disk"
    cv2.imwrite(str(image), raw)
    disk.mkdir()
    session = tmp_path / "session"
    if "{session}" in command:
        assert cli.main(["simulate", str(session), "--size", "96x64", "--angles", "9", "--frames", "2"]) == 0
    places = {"bag": bag, "image": image, "disk": disk, "session": session}
    before = {"out.mcap": "an older recording", "out.html": "an older report", "sensor.npz": "older"}
    for name, text in before.items():
        (disk / name).write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", "polar_pipeline", *command.format(**places).split()],
        text=True,
        capture_output=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (room, room)),
        check=False,
    )
    assert done.returncode == 1, done
    assert re.search(rf"(No space left on device|File too large): {disk}/{file}$", done.stderr, re.MULTILINE), done
    assert "Traceback" not in done.stderr
    assert {path.name: path.read_text() for path in disk.iterdir()} == before
