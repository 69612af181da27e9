"""A disk that fills up under what writes files: it is said, and nothing half written stays behind."""

from __future__ import annotations

import re
import resource
import shutil
import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import Callable, List, NamedTuple

import cv2
import numpy as np
import pytest
from support import representative

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
Run = Callable[[List[str], Path, int], "subprocess.CompletedProcess[str]"]


def _limited(command: List[str], _: Path, room: int) -> subprocess.CompletedProcess[str]:
    """Run a command whose files must not grow beyond `room`, which fails as a write does on a full disk."""
    return subprocess.run(
        command,
        text=True,
        capture_output=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (room, room)),
        check=False,
    )


def _on_a_small_disk(command: List[str], disk: Path, room: int) -> subprocess.CompletedProcess[str]:
    """Run a command with a disk of `room` bytes in the place of a folder; what lies on it is copied back."""
    script = (
        'disk=$1 copy=$2 room=$3; shift 3; cp -r "$disk" "$copy"; '
        'mount -t tmpfs -o size=$room tmpfs "$disk" || exit 99; '
        'cp -r "$copy"/. "$disk"; "$@"; code=$?; rm -r "$copy"; cp -r "$disk" "$copy"; exit $code'
    )
    copy = disk.with_name("copy")
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", script, "sh", str(disk), str(copy), str(room), *command],
        text=True,
        capture_output=True,
        check=False,
    )
    if done.returncode == 99 or "unshare:" in done.stderr:
        pytest.skip(f"no file system can be mounted: {done.stderr}")
    shutil.rmtree(disk)
    copy.rename(disk)
    return done


@pytest.mark.parametrize(
    ("run", "name"), representative(list(product((_limited, _on_a_small_disk), CASES)), lambda row: row)
)
def test_a_full_disk(tmp_path: Path, run: Run, name: str) -> None:
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
    done = run([sys.executable, "-m", "polar_pipeline", *words], disk, case.room)
    assert done.returncode == 1, done
    assert re.search(rf"(No space left on device|File too large): '{disk}/{case.file}'", done.stderr), done
    assert "Traceback" not in done.stderr
    assert {path.name: path.read_text() for path in disk.iterdir()} == before
