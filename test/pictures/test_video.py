"""Videos, decoded again."""

from __future__ import annotations

import resource
import sys
from fractions import Fraction
from pathlib import Path
from typing import List

import numpy as np
import pytest

from polar_pipeline.pictures.video import open_video

av = pytest.importorskip("av", reason="PyAV is not installed: pip extra video")

#: (height, width) of the frames: odd.
SIZE = (47, 63)


def frames() -> List[np.ndarray]:
    """Frames of two colors; the border moves by two pixels per frame."""
    rows = []
    for k in range(12):
        rgb = np.empty((*SIZE, 3), np.uint8)
        rgb[:, : 8 + 2 * k], rgb[:, 8 + 2 * k :] = (200, 100, 50), (30, 60, 220)
        rows.append(rgb)
    return rows


def planes_of(rgb: np.ndarray) -> List[np.ndarray]:
    """Y, Cb and Cr of BT.709 in their limited ranges, from its definition."""
    red, blue = rgb[..., 0] / 255, rgb[..., 2] / 255
    y = rgb / 255 @ np.array([0.2126, 0.7152, 0.0722])
    return [16 + 219 * y, 128 + 224 * (blue - y) / 1.8556, 128 + 224 * (red - y) / 1.5748]


@pytest.mark.parametrize(("suffix", "codec"), [(".webm", "vp9"), (".mp4", "h264")])
def test_a_video_has_its_frames_in_their_colors(suffix: str, codec: str, tmp_path: Path) -> None:
    path = tmp_path / f"a{suffix}"
    with open_video(path, SIZE, 29.97) as video:
        for rgb in frames():
            video.add(rgb)
        assert not path.exists(), "not before it is complete"
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
    with av.open(str(path)) as container:
        (stream,) = container.streams
        context = stream.codec_context
        assert (context.name, context.pix_fmt, context.height, context.width) == (codec, "yuv420p", 48, 64)
        assert (context.colorspace, context.color_primaries, context.color_range) == (1, 1, 1)
        assert float(stream.average_rate) == pytest.approx(29.97, rel=2e-3)  # of 12 frames by milliseconds
        decoded = list(container.decode(stream))
    assert len(decoded) == 12
    for k, (image, rgb) in enumerate(zip(decoded, frames())):
        assert image.time == pytest.approx(k / Fraction("29.97"), abs=1e-3)
        far = np.abs(np.arange(SIZE[1]) - 8 - 2 * k) > 4  # quantization rings around the border of the colors
        bright, *chroma = planes_of(np.pad(rgb, ((0, 1), (0, 1), (0, 0)), mode="edge"))
        data = image.to_ndarray(format="yuv420p").reshape(-1)
        shown = data[: 48 * 64].reshape(48, 64).astype(float)
        # one level of rounding, two of quantization at this quality
        assert np.abs(shown - bright)[:, np.append(far, far[-1])].max() <= 3
        for plane, expected in zip(np.split(data[48 * 64 :], 2), chroma):
            assert np.abs(plane.reshape(24, 32) - expected[::2, ::2])[:, far[::2]].max() <= 3


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (np.zeros((48, 64, 3), np.uint8), r"uint8 of shape \(47, 63, 3\), got uint8 of \(48, 64, 3\)"),
        (np.zeros((*SIZE, 3), np.float32), "got float32"),
        (None, "at least one frame"),
    ],
)
@pytest.mark.parametrize("suffix", [".webm", ".mp4"])
def test_a_video_with_an_error_is_absent(suffix: str, frame: np.ndarray, message: str, tmp_path: Path) -> None:
    added = [] if frame is None else [frames()[0], frame]
    with pytest.raises(ValueError, match=message), open_video(tmp_path / f"a{suffix}", SIZE, 24) as video:
        list(map(video.add, added))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("name", "rate"), [("a.avi", 24), ("a.webm", 0), ("a.webm", float("nan")), ("a.mp4", 1e6)])
def test_other_names_and_rates_are_refused(name: str, rate: float, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="must"), open_video(tmp_path / name, SIZE, rate):
        pass


def test_the_extra_is_named_where_it_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(ImportError, match=r"polar_pipeline\[video\]"), open_video(tmp_path / "a.mp4", SIZE, 24):
        pass


def test_a_video_replaces_a_file_only_if_told_to(tmp_path: Path) -> None:
    path = tmp_path / "a.webm"
    path.write_text("before", encoding="utf-8")
    with pytest.raises(FileExistsError), open_video(path, SIZE, 24):
        pass
    with open_video(path, SIZE, 24, force=True) as video:
        video.add(frames()[0])
    assert path.stat().st_size > 100


@pytest.mark.parametrize("suffix", [".webm", ".mp4"])
def test_a_full_disk(suffix: str, tmp_path: Path) -> None:
    """A file must not grow beyond a limit, which fails as a write does on a full disk."""
    noise = list(np.random.default_rng(0).integers(0, 255, (20, *SIZE, 3)).astype(np.uint8))
    path, before = tmp_path / f"a{suffix}", resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, before[1]))
    try:
        with pytest.raises(OSError, match=f"File too large: '{path}'"), open_video(path, SIZE, 24) as video:
            list(map(video.add, noise))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list(tmp_path.iterdir()) == []
