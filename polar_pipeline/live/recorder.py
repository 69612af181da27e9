"""Recordings of the raw frames that the live node takes. Imports no ROS.

A recording has its name and grows from the start, so that a process that is killed leaves all complete chunks.
"""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Optional, Tuple

from polar_pipeline._util.imports import importing
from polar_pipeline._util.machine import with_remedy
from polar_pipeline._util.text import failure
from polar_pipeline.camera.facts import CAMERA_METADATA, CameraFacts
from polar_pipeline.live.diagnostics import Diagnostics
from polar_pipeline.live.frame import ReceivedImage
from polar_pipeline.live.parameters import Settings
from polar_pipeline.live.snapshot import NAME, new_path, output_folder, total_size
from polar_pipeline.quality.statistics import Level
from polar_pipeline.recordings import messages
from polar_pipeline.recordings.messages import CAMERA_INFO, COMPRESSED, DIAGNOSTICS, IMAGE
from polar_pipeline.recordings.rawzstd import TRANSPORT, compress_message
from polar_pipeline.sensor.frames import FrameError

if TYPE_CHECKING:  # the sink needs the extra `recordings`, and futures of a type Python 3.9
    from polar_pipeline.recordings.sink import Sink

    #: Whether a request succeeded, and the answer.
    Answer = Tuple[bool, str]
    FutureAnswer = Future[Answer]  # novermin

#: Bytes of frames that can wait for the writer: a second of full 8-bit frames.
QUEUE_BYTES = 128 << 20
#: Bytes and seconds after which a chunk is complete; the mcap library holds several copies of a chunk.
_CHUNK_BYTES, CHUNK_PERIOD = 8 << 20, 1.0
#: Topic of a recording with the state of the camera, whenever that changed.
CAMERA_TOPIC = "/camera_state"
#: Largest size in bytes of the index: of the file, and for each frame.
_INDEX_BYTES = 16384, 256


class Recorder:
    """Thread that compresses raw frames and writes them to one file, until `stop`, an error or the quota ends it.

    Any thread may call the methods. After the end `put` ignores frames. The recording keeps the settings that it began
    with. `diagnostics` counts frames that were not recorded, and an early end, as `record`. `started` is a future of
    whether the file was opened, and its path or the error.
    """

    def __init__(self, node: str, settings: Settings, diagnostics: Diagnostics) -> None:
        self._node = node
        self._settings = settings
        self._diagnostics = diagnostics
        self._lock = threading.Lock()  # of the next four attributes
        self._takes_frames = True
        self._waiting_bytes = 0
        self._dropped = 0
        self._ended: Optional[FutureAnswer] = None
        # only the writer's thread uses the following attributes, apart from `describe`
        self._path = Path()
        self._stream: Optional[BinaryIO] = None
        self._sink: Optional[Sink] = None
        self._complete_bytes = 0  # of the file, up to the last complete chunk
        self._pending_bytes = self._pending_frames = 0  # in the chunk that is not complete
        self._chunk_due = 0.0
        self._camera_info: Optional[bytes] = None
        self._camera: Optional[CameraFacts] = None  # of the node itself, as it was recorded last
        self._frames = 0
        self._problem = ""
        # its own thread: behind a compilation of seconds the queue would overflow
        self._thread = ThreadPoolExecutor(1, "polar_pipeline_recording")
        self.started: FutureAnswer = self._thread.submit(self._start)

    @property
    def is_active(self) -> bool:
        """Whether frames are taken, or still written."""
        return self._takes_frames or (self._ended is not None and not self._ended.done())

    def describe(self) -> str:
        """Return the file, its frames, the number of frames that were dropped, and why it ended early."""
        counts = f"{self._path}: {self._frames} frames, {self._dropped} dropped" if self._path.name else ""
        return "; ".join(filter(None, [counts, self._problem]))

    def put(self, image: ReceivedImage, camera_info: Optional[bytes]) -> None:
        """Queue an image and the newest lens calibration, without a copy; if the queue is full, count the image."""
        size = len(image.cdr)
        with self._lock:
            if not self._takes_frames:
                return
            is_full = self._waiting_bytes + size > QUEUE_BYTES
            if not is_full:
                self._waiting_bytes += size
                self._thread.submit(self._write, image, camera_info)
        if is_full:
            self._drop(f"more than {QUEUE_BYTES / 1e6:.0f} MB wait to be written")

    def stop(self) -> FutureAnswer:
        """Write what waits and end the file; return a future of what was recorded."""
        with self._lock:
            self._takes_frames = False
            if self._ended is None:
                self._ended = self._thread.submit(self._finish)
                self._thread.shutdown(wait=False)
            return self._ended

    def close(self) -> None:
        """Stop, and wait until the file is complete and the thread has ended."""
        self.stop()
        self._thread.shutdown()

    def _drop(self, reason: str) -> None:
        with self._lock:
            self._dropped += 1
        self._diagnostics.refuse("record", reason)

    # ---------------------------------------------------------------------------------------------- the writer's thread

    def _start(self) -> Answer:
        try:
            with importing():
                from polar_pipeline.recordings import sink  # noqa: F401 - `_add` needs it, and it needs an extra

            folder = output_folder(self._settings.record_folder, "record.folder")
            folder.mkdir(parents=True, exist_ok=True)
            path = new_path(folder, self._node, ".mcap")
            self._stream = path.open("xb")
            self._path = path
        except ImportError as err:
            self._end(with_remedy(err))
        except Exception as err:  # noqa: BLE001 - the request must be answered
            self._end(failure(err))
        return not self._problem, self._problem or str(self._path)

    def _write(self, image: ReceivedImage, camera_info: Optional[bytes]) -> None:
        """Add an image to the file, if that is open."""
        size = len(image.cdr)
        try:
            if self._stream is not None:
                obstacle = self._obstacle(image)
                if obstacle:
                    self._end(obstacle, is_sound=True)
                else:
                    sink = self._add(self._stream, image, camera_info)
                    self._frames += 1
                    self._pending_frames += 1
                    self._pending_bytes += size
                    self._flush(sink, self._stream)
        except FrameError as err:
            self._drop(str(err))
        except Exception as err:  # noqa: BLE001
            self._end(failure(err))
        finally:
            with self._lock:
                self._waiting_bytes -= size

    def _flush(self, sink: Sink, stream: BinaryIO) -> None:
        """Complete a chunk that is due, and pass complete chunks to the system."""
        now = time.monotonic()
        if now >= self._chunk_due:
            sink.writer.flush()  # type: ignore[no-untyped-call]
        stream.flush()
        if stream.tell() > self._complete_bytes:
            self._complete_bytes, self._chunk_due = stream.tell(), now + CHUNK_PERIOD
            self._pending_bytes = self._pending_frames = 0

    def _obstacle(self, image: ReceivedImage) -> str:
        """Return why an image cannot be added; "" if it can."""
        now, before = image.camera, self._camera
        if now is not None and before is not None and now.options() != before.options():
            return "the region, the mirrored readout or the sensor of the camera has changed"
        folder, quota = self._path.parent, self._settings.record_quota_mb
        needed = len(image.cdr) + self._pending_bytes + _INDEX_BYTES[0] + _INDEX_BYTES[1] * self._frames
        recordings = (path for path in folder.glob("*.mcap") if NAME.fullmatch(path.stem))
        if total_size(recordings) + needed > quota * 1_000_000:
            return f"recordings take record.quota_mb, {quota} MB"
        return "the disk is full" if needed > shutil.disk_usage(folder).free else ""

    def _add(self, stream: BinaryIO, image: ReceivedImage, camera_info: Optional[bytes]) -> Sink:
        """Add an image, and before the first one the metadata of all; return the sink."""
        from polar_pipeline.recordings.sink import start_sink

        cdr, time_ns = image.cdr, max(image.time_ns, 0)
        topic, kind = "/image_raw", IMAGE
        if self._settings.record_compress:
            cdr, topic, kind = compress_message(cdr), f"{topic}/{TRANSPORT}", COMPRESSED
        else:
            messages.decode_image(cdr)  # raises for what is not an image
        if self._sink is None:
            calibration = self._settings.options.calibration
            facts = {"node": self._node, "calibration": calibration.digest if calibration else ""}
            if image.camera is not None:  # replay needs its state
                facts[CAMERA_METADATA] = json.dumps(image.camera.rows())
            self._sink = start_sink(stream, facts, chunk_size=_CHUNK_BYTES)
        sink = self._sink
        if image.camera is not None and image.camera != self._camera:
            status = messages.Status(Level.OK, f"{self._node}: camera", "", image.camera.serial, image.camera.values())
            sink.write(CAMERA_TOPIC, DIAGNOSTICS, time_ns, bytes(messages.encode_diagnostics(time_ns, [status])))
            self._camera = image.camera
        if camera_info is not None and camera_info is not self._camera_info:
            sink.write("/camera_info", CAMERA_INFO, time_ns, camera_info)
            self._camera_info = camera_info
        sink.write(topic, kind, time_ns, cdr)
        return sink

    def _finish(self) -> Answer:
        self._end("" if self._frames else "no frame was recorded", is_sound=True)
        return not self._problem, self.describe()

    def _end(self, problem: str, is_sound: bool = False) -> None:
        """End the file: with an index if it is sound, else after the last complete chunk; remove it if it is empty."""
        stream, sink, self._stream, self._sink = self._stream, self._sink, None, None
        try:
            if stream is not None and sink is not None and is_sound:
                sink.writer.finish()  # type: ignore[no-untyped-call]
                stream.close()
                if not self._path.exists():  # an open file can be written after that
                    self._pending_frames = self._frames
                    raise FileNotFoundError("the file was removed or moved")
        except Exception as err:  # noqa: BLE001
            problem, is_sound = failure(err), False
        if stream is not None:
            with suppress(OSError):
                stream.close()
            if not is_sound:
                self._frames -= self._pending_frames
            with suppress(OSError):
                if not self._frames:
                    self._path.unlink()
                elif not is_sound:
                    os.truncate(str(self._path), self._complete_bytes)
        with self._lock:
            self._takes_frames = False
            self._dropped += 0 if is_sound else self._pending_frames
            self._pending_frames = 0
        if problem and not self._problem:
            self._problem = problem
            self._diagnostics.refuse("record", f"the recording ends: {problem}")
