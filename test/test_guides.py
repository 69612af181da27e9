"""Guides as written: their Python and their commands run, on small synthetic files; the tutorial shows what it stores.

The blocks of a page are one script, in order: a page can use names and files of its earlier blocks. A comment
`<!-- not run: REASON -->` before a block leaves it out.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import re
from base64 import b64decode
from pathlib import Path

import cv2
import numpy as np
import pytest
from recorded_frames import PERIOD, START, TOPIC
from support import REAL_FRAMES, ROOT, real_frame, run_python

from polar_pipeline import SENSORS, cli
from polar_pipeline.recordings import messages
from polar_pipeline.recordings.sink import open_sink
from polar_pipeline.sensor.forward import expose

#: Pages whose blocks run. `test_file_layouts.py` tests those of docs/files.md.
NAMES = ("library", "troubleshooting", "calibration", "calibration_sessions", "gallery", "noise", "hdr", "view", "cli")
PAGES = ("README.md", *(f"docs/{name}.md" for name in NAMES))
#: What a page needs of modules that a machine may lack -> how a block shows it.
OPTIONAL = {
    "torch": "torch",
    "av": r"open_video|--video",
    "rosbags": r"\.bag",
    "scipy": r"\.mat\b",
    "rerun": "^polar-pipeline view",
}
#: Commands that are quick, need no camera, and open no window.
COMMANDS = re.compile(r"polar-pipeline (?:process|replay|layout|calibrate|view(?=.* --save)) ")
_BLOCK = re.compile(r"^(<!-- not run: .+ -->\n+)?```(python|sh)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def lacks(code: str) -> bool:
    """Return whether code needs a module that is not installed."""
    return any(re.search(sign, code) and importlib.util.find_spec(name) is None for name, sign in OPTIONAL.items())


def script_of(page: str) -> str:
    """Return the blocks of a page as one script, whose lines have the numbers that they have in the page.

    Code that needs a module that is not installed is left out.
    """
    text = (ROOT / page).read_text(encoding="utf-8")
    lines = [""] * text.count("\n")
    lines[0] = "from guide_commands import run"
    for match in _BLOCK.finditer(text):
        is_left_out, language, code = match.groups()
        if is_left_out or (language == "python" and lacks(code)):
            continue
        first = text.count("\n", 0, match.start(3))
        if language == "sh":
            code = re.sub(r"\\\n", " ", code) + "\n" * code.count("\\\n")
            code = "\n".join(
                f"run({line!r})" if COMMANDS.match(line) and not lacks(line) else "" for line in code.split("\n")
            )
        rows = code.rstrip("\n").split("\n")
        lines[first : first + len(rows)] = rows
    return "\n".join(lines) + "\n"


def mosaic(width: int, height: int, degree: float) -> np.ndarray:
    """A raw frame in 8 bit of light with a slope, of one DoLP, at 30 degrees."""
    light = np.linspace(0.5, 0.9, width) * np.ones((height, 1))
    turn = np.radians(60)
    stokes = np.stack([light, degree * light * np.cos(turn), degree * light * np.sin(turn)], -1)
    return expose(stokes, SENSORS["IMX250MZR"])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that guides name: example frames (a part of them), pictures, a recording, a calibration session."""
    made = tmp_path_factory.mktemp("guides")
    for name in ("frames", "pictures"):
        (made / name).mkdir()
    files = {f"frames/{name}": real_frame(name)[:1216, :1408] for name in REAL_FRAMES}
    files["raw.png"] = raw = mosaic(1408, 1216, 0.2)
    files["frame.png"] = raw
    files["short.png"], files["long.png"] = raw // 4, np.minimum(raw // 4 * 16.0, 255).astype(np.uint8)
    files["raw12.png"] = raw.astype(np.uint16) * 16
    files.update({f"pictures/{k:03d}.png": raw for k in range(8)})
    files.update({"scene_000.png": raw[1::2, 1::2], "scene_045.png": raw[::2, 1::2]})
    files.update({"scene_090.png": raw[::2, ::2], "scene_135.png": raw[1::2, ::2]})
    for name, pixels in files.items():
        cv2.imwrite(str(made / name), pixels, [cv2.IMWRITE_PNG_COMPRESSION, 1])
    large = mosaic(2448, 2048, 0.6)
    with open_sink(made / "drive.mcap", {}) as sink:
        for stamp in (START, START + PERIOD):
            sink.write(TOPIC, messages.IMAGE, stamp, messages.encode_image(stamp, "camera", "mono8", large))
    assert (
        cli.main(["simulate", str(made / "session"), "--size", "160x128", "--frames", "4", "--dark-frames", "8"]) == 0
    )
    return made


@pytest.mark.parametrize("page", PAGES)
def test_blocks_run_as_written(page: str, folder: Path, tmp_path: Path) -> None:
    for entry in folder.iterdir():
        (tmp_path / entry.name).symlink_to(entry)
    script = script_of(page)
    assert script.count("\n") == (ROOT / page).read_text(encoding="utf-8").count("\n"), "lines have moved"
    assert re.search(r"^run\(|^from polar_pipeline", script, re.MULTILINE), "nothing runs"
    paths = os.pathsep.join([str(ROOT), str(ROOT / "test/helpers"), os.environ.get("PYTHONPATH", "")])
    (tmp_path / "page.py").write_text(script, encoding="utf-8")
    done = run_python("page.py", cwd=tmp_path, env={"PYTHONPATH": paths})
    assert done.returncode == 0, f"{page} (lines as in the page):\n{done.stdout}\n{done.stderr}"


def test_the_tutorial_shows_what_it_stores() -> None:
    """Numbers within 5 %, pictures by their pixels; its links lead to files."""
    code = (
        f"import json, sys; sys.path.insert(0, {str(ROOT / 'docs')!r}); import tutorial; "
        "document = tutorial.load(); tutorial.execute(document); print(json.dumps(document))"
    )  # not by PYTHONPATH: docs/site.py would hide Python's module of this name
    done = run_python("-c", code)
    assert done.returncode == 0, done.stderr
    stored, computed = (
        [cell.get("outputs", []) for cell in document["cells"]]
        for document in (json.loads((ROOT / "docs" / "tutorial.ipynb").read_text("utf-8")), json.loads(done.stdout))
    )
    assert sum(map(len, stored)) > 8
    for before, after in zip(stored, computed):
        assert [sorted(output["data"]) for output in before] == [sorted(output["data"]) for output in after]
        for first, second in ((old["data"], new["data"]) for old, new in zip(before, after)):
            numbers = [re.findall(r"[\d.]+\d", "".join(data["text/plain"])) for data in (first, second)]
            np.testing.assert_allclose(*(np.array(row, float) for row in numbers), rtol=0.05, atol=0.02)
            if "image/jpeg" in first:
                images = [
                    cv2.imdecode(np.frombuffer(b64decode(data["image/jpeg"]), np.uint8), 1) for data in (first, second)
                ]
                assert images[0].shape == images[1].shape
                assert np.abs(images[0].astype(int) - images[1]).mean() < 4, "run `python docs/tutorial.py`"
    links = re.findall(r"\]\(([^)#:]+)[)#]", (ROOT / "docs" / "tutorial.ipynb").read_text("utf-8"))
    assert len(links) > 5
    assert not [link for link in links if not (ROOT / "docs" / link).exists()]


def test_the_turning_polarizer_is_up_to_date(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stored levels and painted ones, at some angles; OpenCV before 5 has other letters."""
    image_module = pytest.importorskip("PIL.Image")
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    animation = importlib.import_module("animation")
    assert animation.FILE.stat().st_size <= 3_000_000
    angles = [0, 90, 175]
    with image_module.open(animation.FILE) as stored:
        assert stored.n_frames == len(animation.ANGLES)
        for angle, painted in zip(angles, animation.turning(angles)):
            stored.seek(animation.ANGLES.index(angle))
            gray = np.asarray(stored.convert("L"))
            expected = np.rint(painted * (255 / (animation.LEVELS - 1)))
            assert np.mean(np.abs(gray - expected) > 8) < 0.02, f"{angle} degrees: run `python docs/animation.py`"
