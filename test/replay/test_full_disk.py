"""A disk that fills up under what writes files: it is said, and nothing half written stays behind."""

from __future__ import annotations

import re
import resource
import subprocess
import sys
from pathlib import Path
from typing import List, NamedTuple

import cv2
import numpy as np
import pytest

from polar_pipeline import messages
from polar_pipeline.replay.sink import open_sink

SHAPE = (512, 512)


class Case(NamedTuple):
    """A command, the bytes that its disk takes, and the file that does not fit."""

    command: str
    room: int
    file: str


CASES = {
    "recording": Case("replay {bag} --backend cpu --products dolp -o {disk}/out.mcap --force", 256 << 10, "out.mcap"),
    "compressed": Case("compress {bag} -o {disk}/out.mcap --force", 256 << 10, "out.mcap"),
    "report": Case(
        "replay {bag} --backend cpu --products ssim -o {other}.mcap --report {disk}/out.html --force",
        6 << 10,
        "out.html",
    ),
    "product": Case(
        "process {image} --backend cpu --products stokes --format npy -o {disk} --force", 256 << 10, "raw_stokes.npy"
    ),
}


def _limited(command: List[str], room: int) -> subprocess.CompletedProcess[str]:
    """Run a command whose files must not grow beyond `room`, which fails as a write does on a full disk."""
    return subprocess.run(
        command,
        text=True,
        capture_output=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (room, room)),
        check=False,
    )


@pytest.mark.parametrize("name", CASES)
def test_a_full_disk(tmp_path: Path, name: str) -> None:
    raw, case = np.random.default_rng(0).integers(10, 200, SHAPE).astype(np.uint8), CASES[name]
    bag, image, disk = tmp_path / "in.mcap", tmp_path / "raw.png", tmp_path / "disk"
    with open_sink(bag, {}) as sink:
        for stamp in range(4):
            sink.write("/image_raw", messages.IMAGE, stamp, messages.encode_image(stamp, "camera", "mono8", raw))
    cv2.imwrite(str(image), raw)
    disk.mkdir()
    before = {"out.mcap": "an older recording", "out.html": "an older report"}
    for file, text in before.items():
        (disk / file).write_text(text)
    words = case.command.format(bag=bag, image=image, disk=disk, other=tmp_path / "other").split()
    done = _limited([sys.executable, "-m", "polar_pipeline", *words], case.room)
    assert done.returncode == 1, done
    assert re.search(rf"(No space left on device|File too large): '{disk}/{case.file}'", done.stderr), done
    assert "Traceback" not in done.stderr
    assert {path.name: path.read_text() for path in disk.iterdir()} == before
