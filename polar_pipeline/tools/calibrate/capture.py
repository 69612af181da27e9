"""Capture of raw frames from a camera into folders, each of which is either complete or absent."""

from __future__ import annotations

import queue
import re
import time
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple

import cv2
import numpy as np

from polar_pipeline._util.files import PARTIAL, remove_leftovers, replacing_folder
from polar_pipeline._util.imports import importing
from polar_pipeline._util.progress import with_bar
from polar_pipeline.camera.aravis import CameraError
from polar_pipeline.camera.facts import CameraFacts
from polar_pipeline.camera.recorded import save_facts
from polar_pipeline.camera.settings import CameraSettings
from polar_pipeline.camera.source import CameraSource, Connection
from polar_pipeline.options import make_options
from polar_pipeline.pictures.files import encode_picture
from polar_pipeline.quality.frame_checks import check_frame, first_warnings, log_warnings
from polar_pipeline.recordings import messages
from polar_pipeline.recordings.messages import COMPRESSED, Cdr
from polar_pipeline.recordings.rawpicture import CAMERA_FILE
from polar_pipeline.recordings.rawzstd import TRANSPORT, compress_message
from polar_pipeline.sensor.frames import Frame, RawFrame
from polar_pipeline.tools.calibrate.captured import difference
from polar_pipeline.tools.calibrate.session import FRAMES_FILE

#: Formats of files.
FORMATS = ("png", "npy", "mcap")
#: Topic of frames in a recording.
_TOPIC = f"/image_raw/{TRANSPORT}"
#: Frames that can wait for the writer.
_WAITING = 8
#: Frames that are skipped at least: their exposures may have begun before the request, and stamps are not exact.
_SKIPPED = 2
#: Seconds to wait for a frame, and exposures and periods of frames to wait in addition.
_FRAME_TIMEOUT, _EXTRA_PERIODS = 5.0, 3
#: Places along each side by which the light is compared, and the share of superpixels above `FrameLight.brightest`.
_PLACES, _BRIGHTER = 8, 1e-3


class FrameLight(NamedTuple):
    """Light of a frame, as readings of pixels when the polarizer is along theirs, in shares of full scale.

    The reading is half the sum of a superpixel, which does not depend on the polarizer's angle. `brightest` is that of
    the brightest pixels, infinite if pixels are saturated; `places` are the means by place, (8, 8).
    """

    brightest: float
    places: np.ndarray


def measure_light(frame: RawFrame) -> FrameLight:
    """Measure the light of a frame of the camera."""
    height, width = (side // 2 * 2 for side in frame.shape)
    pixels = frame.mosaic[:height, :width]
    light = pixels.reshape(height // 2, 2, width // 2, 2).sum((1, 3), dtype=np.float32) / (2 * frame.full_scale)
    is_saturated = np.mean(pixels >= frame.full_scale) > _BRIGHTER
    brightest = np.inf if is_saturated else float(np.quantile(light, 1 - _BRIGHTER))
    return FrameLight(brightest, cv2.resize(light, (_PLACES, _PLACES), interpolation=cv2.INTER_AREA))


class FrameCapture:
    """A connected camera that delivers frames on request; a context manager, and the client of its `CameraSource`.

    `lost` counts frames that were incomplete or missing since the last request. `log` takes lines about the camera.

    Raises:
        CameraError: Aravis is not installed. On entering: no camera is found, or it refuses a setting.
    """

    def __init__(self, settings: CameraSettings, log: Callable[[str], None]) -> None:
        self.info = log
        self._source = CameraSource(settings, "camera", self)
        self._queue: Any = queue.Queue(_WAITING)  # of (message, facts)
        self._is_capturing = False
        self._reason = ""
        self.lost = 0

    def __enter__(self) -> FrameCapture:
        try:
            self._source.start()
            _ = self.connection
        except BaseException:
            self._source.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._source.close()

    @property
    def connection(self) -> Connection:
        """The connected camera.

        Raises:
            CameraError: No camera is connected.
        """
        connection = self._source.connection  # the camera's thread may remove it meanwhile
        if connection is None:
            raise CameraError(self._source.problem or "the camera does not answer")
        return connection

    @property
    def facts(self) -> CameraFacts:
        """State of the camera."""
        return self.connection.facts

    def expose(self, exposure_us: float = 0.0) -> None:
        """Set the exposure time in microseconds; 0 keeps the one that the camera has chosen by itself."""
        settings = self.connection.settings
        time_us = exposure_us or settings.exposure_us
        self._source.apply(replace(settings, exposure_us=time_us, exposure_auto="off"), lambda _: None)

    def look(self) -> FrameLight:
        """Measure the light of a frame; errors are those of `frames`."""
        (light,) = (measure_light(messages.to_raw(messages.decode_image(cdr)).unpack()) for cdr in self.frames(1))
        return light

    def frames(self, count: int) -> Iterator[Cdr]:
        """Yield frames whose exposures begin from now on as serialized `sensor_msgs/Image`.

        Lost frames are taken again.

        Raises:
            CameraError: No frame comes, or the camera's state changes by more than an automatic exposure time.
        """
        connection = self.connection
        facts, rate = connection.facts, connection.settings.frame_rate
        timeout = _FRAME_TIMEOUT + _EXTRA_PERIODS * (facts.exposure_us / 1e6 + (1 / rate if rate else 0.0))
        with suppress(queue.Empty):
            while True:
                self._queue.get_nowait()
        self.lost, self._reason, self._is_capturing = 0, "", True
        begun_ns, skipped, captured = time.time_ns(), 0, 0
        first: Optional[CameraFacts] = None
        try:
            while captured < count:
                try:
                    cdr, state = self._queue.get(timeout=timeout)
                except queue.Empty:
                    reason = self._source.problem or self._reason or "the camera sends nothing"
                    raise CameraError(f"no frame came for {timeout:.0f} s: {reason}") from None
                # frames wait in the system if this computer has much to do
                start_ns = (messages.peek_stamp(cdr) or 0) - int(1000 * state.exposure_us / 2)
                if skipped < _SKIPPED or (not captured and start_ns < begun_ns):
                    skipped += 1
                    continue
                if connection.settings.exposure_auto != "off":
                    state = replace(state, exposure_us=facts.exposure_us, gain_db=facts.gain_db)
                first = first or state  # values in frames may differ from the features by rounding
                changes = difference(first, state)
                if changes:
                    raise CameraError(f"the state of the camera changed between frames: {changes}")
                captured += 1
                yield cdr
        finally:
            self._is_capturing = False

    # ------------------------------------------------------------------------------------------- the camera's threads

    def memory(self) -> Optional[np.ndarray]:
        """Return None: any memory will do."""
        return None

    def read(self, cdr: Cdr) -> Frame:
        """Return the mosaic in a frame; may raise FrameError."""
        return messages.to_raw(messages.decode_image(cdr))

    def take(self, cdr: Cdr, facts: CameraFacts, *_: object) -> None:
        """Queue a frame on request if there is space."""
        if self._is_capturing:
            with suppress(queue.Full):
                self._queue.put_nowait((cdr, facts))

    def check(self, facts: CameraFacts) -> None:
        """Accept every state."""

    def dropped(self, cause: str, count: int) -> None:  # noqa: ARG002 - of the protocol
        """Count frames that were lost."""
        self.lost += count

    def refuse(self, cause: str, reason: str) -> None:  # noqa: ARG002 - of the protocol
        """Count a frame that cannot be used, and keep the reason."""
        self.lost += 1
        self._reason = reason

    def warning(self, message: str) -> None:
        """Log nothing: the same text is in the error that ends the command."""


def capture_folder(
    camera: FrameCapture, path: Path, count: int, kind: str, force: bool = False
) -> Tuple[List[FrameLight], int]:
    """Capture frames into a new folder, with the state of the camera beside them.

    `kind` is one of `FORMATS`; pictures are aligned to the least significant bit.

    Returns:
        The light of each frame, and how many other frames were lost.

    Raises:
        CameraError: As `FrameCapture.frames`.
        StrictError: Frames look wrong, and warnings are errors.
        OSError: The folder cannot be written.
    """
    facts = camera.facts
    arguments: Dict[str, Any] = facts.options()
    options = make_options(**arguments)
    light, checks = [], []
    remove_leftovers(path.parent, rf"\.{re.escape(path.name)}{PARTIAL}")
    with ExitStack() as stack:
        folder = stack.enter_context(replacing_folder(path, force))
        if kind == "mcap":
            with importing():
                from polar_pipeline.recordings.sink import open_sink  # needs the extra `recordings`

            sink = stack.enter_context(open_sink(folder / FRAMES_FILE, facts.values()))
        for index, cdr in enumerate(with_bar(camera.frames(count), count)):
            image = messages.decode_image(cdr)
            frame = messages.to_raw(image).unpack()
            light.append(measure_light(frame))
            checks.append(check_frame(frame, options).warnings)
            if kind == "mcap":
                sink.write(_TOPIC, COMPRESSED, image.stamp_ns, compress_message(cdr))
            else:
                name = f"{index:0{max(3, len(str(count - 1)))}d}.{kind}"
                (folder / name).write_bytes(encode_picture(np.ascontiguousarray(frame.mosaic), f".{kind}"))
        save_facts(folder / CAMERA_FILE, facts)
        # an error with `--strict`, which leaves no folder; dark frames are judged by their light
        log_warnings(row for row in first_warnings(checks) if row.cause != "dark")
    return light, camera.lost
