"""Pictures as a video file that browsers play: VP9 in `.webm`, H.264 in `.mp4`."""

from __future__ import annotations

from contextlib import contextmanager
from fractions import Fraction
from typing import Any, Dict, Iterator, NamedTuple, Tuple

import numpy as np

from polar_pipeline._util.files import replacing
from polar_pipeline._util.imports import importing
from polar_pipeline._util.paths import AnyPath, as_path


class _Codec(NamedTuple):
    """An encoder of FFmpeg, and its options: a quality at which pictures of polarization show no blocks."""

    name: str
    options: Dict[str, str]


#: End of a file's name -> its encoder.
CODECS = {
    ".webm": _Codec("libvpx-vp9", {"crf": "24", "b": "0", "deadline": "realtime", "cpu-used": "6", "row-mt": "1"}),
    ".mp4": _Codec("libx264", {"crf": "18", "preset": "medium"}),
}
#: Largest number of frames per second: `.webm` counts milliseconds.
MAX_RATE = 1000.0
#: Number of BT.709 in H.273, and of its range from 16 to 235. Players take untagged colors for those of other systems.
_BT709, _LIMITED = 1, 1


class VideoWriter:
    """A video file that is being written; `open_video` makes one. Its frames have the `size` (height, width)."""

    def __init__(self, av: Any, container: Any, stream: Any, size: Tuple[int, int]) -> None:
        self._av = av
        self._container = container
        self._stream = stream
        self.size = size
        self.frames = 0

    def add(self, rgb: np.ndarray) -> None:
        """Append a frame, (h, w, 3) uint8 RGB.

        Raises:
            ValueError: It has another size or type than the video.
        """
        height, width = self.size
        if rgb.shape != (height, width, 3) or rgb.dtype != np.uint8:
            raise ValueError(
                f"a frame of this video must be uint8 of shape ({height}, {width}, 3), got {rgb.dtype} of {rgb.shape}"
            )
        even = np.pad(rgb, ((0, height % 2), (0, width % 2), (0, 0)), mode="edge")
        frame = self._av.VideoFrame.from_ndarray(even, format="rgb24")
        frame = frame.reformat(format="yuv420p", dst_colorspace="ITU709", dst_color_range="MPEG")
        frame.pts = self.frames
        self._container.mux(self._stream.encode(frame))
        self.frames += 1


@contextmanager
def open_video(path: AnyPath, size: Tuple[int, int], rate: float, force: bool = False) -> Iterator[VideoWriter]:
    """Open a video file for writing; it appears under its name when the block ends without an error.

    Its colors are BT.709 with one color value for 2x2 pixels (`yuv420p`), which all browsers play. It is lossy.

    Args:
        path: The file: `.webm` for VP9, `.mp4` for H.264.
        size: (height, width) of the frames; a video of an odd size repeats its last row or column.
        rate: Frames per second, above 0 and at most `MAX_RATE`.
        force: Whether a file of that name may be replaced.

    Raises:
        ImportError: PyAV is not installed, or cannot be used.
        ValueError: The name has another end, the rate is outside its range, or there was no frame.
        FileExistsError: The file exists, and `force` is false.
        OSError: The file cannot be written.
    """
    path = as_path(path)
    codec = CODECS.get(path.suffix.lower())
    if codec is None:
        raise ValueError(f"the name of a video must end with {' or '.join(CODECS)}, got {path.name}")
    if not 0 < rate <= MAX_RATE:
        raise ValueError(f"the rate of a video must be above 0 and at most {MAX_RATE:g} frames per second, got {rate}")
    try:
        with importing():
            import av
    except ImportError as err:
        raise ImportError(f"{err}; pip install '/path/to/polar_pipeline[video]'") from err
    if codec.name not in av.codecs_available:
        raise ValueError(f"PyAV has no encoder {codec.name} here, which {path.suffix} needs")
    with replacing(path, force) as file:
        # by its path, as FFmpeg's errors are lost on the way through a Python file
        target = f"/dev/fd/{file.fileno()}"
        try:
            with av.open(target, "w", format=path.suffix.lower()[1:]) as container:
                stream = container.add_stream(codec.name, rate=Fraction(rate).limit_denominator(1001))
                height, width = size
                stream.height, stream.width, stream.pix_fmt = height + height % 2, width + width % 2, "yuv420p"
                stream.options = codec.options
                context = stream.codec_context
                context.colorspace = context.color_primaries = context.color_trc = _BT709
                context.color_range = _LIMITED
                writer = VideoWriter(av, container, stream, size)
                yield writer
                if not writer.frames:
                    raise ValueError("a video needs at least one frame")
                container.mux(stream.encode(None))
        except OSError as err:
            if err.filename != target:
                raise
            raise OSError(err.errno, err.strerror, str(path)) from err
