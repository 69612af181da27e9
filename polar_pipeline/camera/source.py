"""Threads that keep one camera connected and hand over its frames as serialized image messages."""

from __future__ import annotations

import math
import queue
import re
import threading
import time
from collections import deque
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Callable, Deque, Dict, Mapping, Optional, Protocol, Tuple

import numpy as np

from polar_pipeline._util.machine import SOCKET_BUFFER
from polar_pipeline._util.text import printable
from polar_pipeline.backends.backend import ALIGNMENT, Buffers, skip_to_alignment
from polar_pipeline.camera.aravis import (
    CameraDevice,
    CameraError,
    FoundCamera,
    Received,
    answers,
    is_address,
    list_cameras,
    load_aravis,
    serial_at,
)
from polar_pipeline.camera.clock import DeviceClock, ptp_stamp
from polar_pipeline.camera.exposure import ExposureControl
from polar_pipeline.camera.facts import (
    EXPOSURE,
    GAIN,
    PTP_LOCKED,
    CameraFacts,
    Number,
    find_number,
    read_changing,
    read_facts,
    read_number,
    read_ptp,
)
from polar_pipeline.camera.hdr import CapturedFrame, Pairs
from polar_pipeline.camera.sets import Arrival
from polar_pipeline.camera.settings import (
    CameraSettings,
    changed_fields,
    ranges,
    read_back,
    read_features,
    stops_frames,
    undo,
    write,
)
from polar_pipeline.quality.brightest import exposure_region, measure_brightest
from polar_pipeline.quality.statistics import Level
from polar_pipeline.recordings import messages
from polar_pipeline.recordings.messages import Cdr
from polar_pipeline.sensor.encodings import ENCODINGS
from polar_pipeline.sensor.frames import Frame, FrameError, RawFormat
from polar_pipeline.sensor.mosaic import sensor_of_model

if TYPE_CHECKING:  # futures of a type need Python 3.9
    FutureResult = Future[None]  # novermin

#: Longest wait in seconds for a frame or a request, and period of reading gain, temperature and PTP.
_WAIT, _POLL_PERIOD = 0.05, 1.0
#: Readings of the exposure time before and after a frame; the smallest one counts for the clock.
_BEFORE, _AFTER = 3, 2
#: Seconds without a frame after which the camera is asked whether it is still there.
_QUIET = 0.4
#: Seconds between two looks for a camera that has gone, by its address and on the whole network.
_LOOK_PERIOD, _SEARCH_PERIOD = 0.2, 3.0
#: Shortest and longest seconds between two attempts to open a camera that refuses, and longest seconds until a camera
#: is connected again whose frames do not match.
_BACKOFF, _MAX_PAUSE = (1.0, 30.0), 5.0
#: Longest time in seconds that the start and each request, such as a change of parameters, wait for the camera.
_REQUEST_TIMEOUT = 15.0
#: What helps when packets of USB3 Vision are lost, and of GigE Vision.
_REMEDIES = (
    "a USB 3 port without other devices helps, and more memory for USB "
    "(/sys/module/usbcore/parameters/usbfs_memory_mb)",
    f"larger socket buffers help (sudo sysctl -w net.core.rmem_max={SOCKET_BUFFER}), jumbo frames (sudo ip link set "
    "DEVICE mtu 9000), and with several cameras on one link camera.packet_delay_ns",
)
#: Raises a ValueError for a state of the camera that contradicts parameters.
Check = Callable[[CameraFacts], object]


class Client(Protocol):
    """Receiver of a camera's frames. Two threads call its methods, which raise nothing: see `CameraSource`."""

    def memory(self) -> Optional[np.ndarray]:
        """Return memory for the next message, or None if any will do."""

    def take(self, cdr: Cdr, facts: CameraFacts, arrival: Arrival, before: Optional[CapturedFrame] = None) -> None:
        """Take a frame as serialized `sensor_msgs/Image`, and how it came.

        With `camera.hdr_ratio`, `before` is the frame before, of the other exposure.
        """

    def read(self, cdr: Cdr) -> Frame:
        """Return the mosaic in a frame, with the full scale by which it will be processed; may raise FrameError."""

    def check(self, facts: CameraFacts) -> None:
        """Raise ValueError if parameters contradict the state of the camera."""

    def dropped(self, cause: str, count: int) -> None:
        """Count frames that were lost."""

    def refuse(self, cause: str, reason: str) -> None:
        """Count a frame that cannot be used, and log now and then why."""

    def info(self, message: str) -> object:
        """Log a line."""

    def warning(self, message: str) -> object:
        """Log a warning."""


@dataclass(frozen=True)
class Connection:
    """State of a connected camera.

    Attributes:
        settings: Settings as the camera has them.
        ranges: Lowest and highest value of settings that are numbers, by name.
    """

    settings: CameraSettings
    facts: CameraFacts
    ranges: Dict[str, Tuple[float, float]]
    camera: FoundCamera


class CameraSource:
    """A camera by its parameters: connected when it is there, and again when it comes back.

    One thread of this object controls the camera: it alone waits for the camera's answers, which may take seconds if
    one is lost, and calls `check`, `info` and `warning` of the client. While the camera sends, a second thread takes
    frames from Aravis and hands them to the client. Other threads call `start`, `apply`, `follow`, `trigger`, `status`
    and `close`, and read `connection`. Without Aravis the constructor raises CameraError.

    Attributes:
        connection: The connected camera; None while no camera is connected.
        problem: Why no camera is connected; "" while one is, and before the first search.
    """

    def __init__(self, settings: CameraSettings, frame_id: str, client: Client) -> None:
        load_aravis()
        self.connection: Optional[Connection] = None
        self.problem = ""
        self._settings = settings
        self._frame_id = frame_id
        self._client = client
        self._requests: Any = queue.Queue()  # of functions that take the device, or None while there is none
        self._closing, self._wake = threading.Event(), threading.Event()  # the second one: a request or a frame came
        self._attempted: Any = Future()  # of the first attempt
        self._thread = threading.Thread(target=self._run, name="polar_pipeline_camera", daemon=True)
        self._frames_thread: Optional[threading.Thread] = None
        self._takes_frames = False
        self._failure: Optional[Exception] = None  # why the thread for frames has ended by itself
        self._last_sign = -math.inf  # when the last frame came, or the camera answered
        self._buffers = Buffers()
        self._clock = DeviceClock()
        self._ptp = ""
        self._format: RawFormat = ENCODINGS["Mono8"]
        self._encoding = ""
        self._number: Optional[int] = None  # of the last complete frame
        self._unusable = 0  # frames since then that cannot be used
        self._underruns = 0  # packets for which no buffer was free, before the last gap between complete frames
        self._code = 0  # number of the pixel format, as the first complete frame states it
        self._followed: Optional[Tuple[CameraSettings, CameraSettings]] = None  # settings wanted, and those before
        self._identity = settings.source.partition(":")[2]  # serial number or IP address; "" for any camera
        self._last: Optional[FoundCamera] = None  # the camera that was connected last
        self._searched = -math.inf
        self._counts = {"frames": 0, "incomplete": 0, "missed": 0, "underruns": 0, "connections": 0}
        self._resent = 0
        self._pause = _LOOK_PERIOD  # seconds until the next connection
        self._warned = ""  # the last problem in the log
        self._reads_exposure = self._is_gain_automatic = False  # the first one: frames do not state their exposure
        self._time: Optional[Number] = None  # the camera's exposure time
        self._gain: Optional[Number] = None  # the camera's gain, in whose unit frames state theirs
        self._exposure: Optional[ExposureControl] = None  # with camera.exposure_auto `polarization`
        self._commands: Deque[Tuple[float, float]] = deque(maxlen=1)  # its newest exposure time and gain, until written
        self._is_short = False  # the exposure that was written last, of two by turns
        self._pairs = Pairs()
        self._readings: Tuple[int, Tuple[float, ...]] = 0, ()  # of the exposure time: their number, and the last ones
        # device time and arrival of frames whose exposure is uncertain, and number and values of the readings before
        self._uncertain: Deque[Tuple[int, int, int, Tuple[float, ...]]] = deque()

    # ------------------------------------------------------------------------------------------------ the other threads

    def start(self) -> None:
        """Start the thread, and wait until the first attempt to connect has ended; no camera is not an error.

        Raises:
            ValueError: Parameters contradict the camera.
            CameraError: The camera refuses parameters.
        """
        self._thread.start()
        with suppress(FutureTimeoutError):  # the thread goes on
            self._attempted.result(timeout=_REQUEST_TIMEOUT)

    def close(self) -> None:
        """Release the camera and end the thread, without a wait for a camera that has gone; safe to call twice."""
        self._closing.set()
        self._wake.set()
        if self._thread.ident is not None:
            self._thread.join(_REQUEST_TIMEOUT)

    def apply(self, settings: CameraSettings, check: Check) -> CameraSettings:
        """Write settings to the camera, all or none; without a camera they are kept until it is there.

        Returns:
            The settings as the camera has them.

        Raises:
            CameraError: The camera refuses a setting.
            ValueError: By `check`: the state of the camera contradicts other parameters.
        """
        return self._ask(lambda device: self._change(device, settings, check))

    def rename(self, frame_id: str) -> None:
        """Give later frames another frame_id; the camera is connected again, as their headers need other space."""

        def change(_: Optional[CameraDevice]) -> None:
            self._end_frames()
            self._frame_id, self.connection = frame_id, None

        if frame_id != self._frame_id:
            self._ask(change)

    def follow(self, values: Mapping[str, object]) -> FutureResult:
        """Change settings by name to those of another camera, within this one's ranges, if it is there.

        Returns:
            A future, which has a CameraError if the camera refuses a setting.
        """
        return self._submit(lambda device: self._follow(device, values))

    def trigger(self) -> FutureResult:
        """Start a frame by software; return a future, which has a CameraError if the camera cannot."""
        return self._submit(self._trigger)

    def _submit(self, request: Callable[[Optional[CameraDevice]], Any]) -> Any:
        """Have the camera's thread run a request within `_REQUEST_TIMEOUT` seconds; return a future of the result."""
        answer: Any = Future()
        end = time.monotonic() + _REQUEST_TIMEOUT

        def run(device: Optional[CameraDevice]) -> None:
            if not answer.set_running_or_notify_cancel():
                return
            try:
                if time.monotonic() > end:
                    raise _no_answer()
                answer.set_result(request(device))
            except Exception as err:  # noqa: BLE001 - raised where it was asked for
                answer.set_exception(err)

        if self._thread.is_alive():
            self._requests.put(run)
            self._wake.set()
        else:
            answer.set_exception(CameraError("the camera is closed"))
        return answer

    def _ask(self, request: Callable[[Optional[CameraDevice]], Any]) -> Any:
        """Have the camera's thread run a request, and return its result or raise its error."""
        answer, end = self._submit(request), time.monotonic() + _REQUEST_TIMEOUT
        while self._thread.is_alive() and time.monotonic() < end:
            with suppress(FutureTimeoutError):
                return answer.result(timeout=_LOOK_PERIOD)
        if answer.cancel() or not answer.done():  # it must not happen later
            raise _no_answer() if self._thread.is_alive() else CameraError("the camera is closed")
        return answer.result()

    def status(self) -> Tuple[Level, str, Dict[str, str]]:
        """Return level, message and values for the diagnostics."""
        connection, clock, control = self.connection, self._clock, self._exposure
        values = {name: str(count) for name, count in self._counts.items()}
        values["resent packets"] = str(self._resent)
        if self._settings.hdr_ratio > 1:
            values["incomplete pairs"] = str(self._pairs.incomplete)
        if connection is None:
            return Level.ERROR, self.problem or "looks for the camera", values
        offset, drift, jitter = clock.offset_ns, clock.drift_ppm, clock.jitter_ns
        values = {
            **connection.facts.values(),
            "address": connection.camera.address,
            "trigger": connection.settings.trigger,
            "automatic exposure": connection.settings.exposure_auto,
            **({"exposure to add [EV]": f"{control.stops:.2f}"} if control else {}),
            "packet size": str(connection.settings.packet_size),
            **values,
            "clock offset [s]": "n/a" if offset is None else f"{offset / 1e9:.6f}",
            "clock drift [ppm]": "n/a" if drift is None else f"{drift:.2f}",
            "clock jitter [ms]": "n/a" if jitter is None else f"{jitter / 1e6:.3f}",
            "clock jumps": str(clock.jumps),
            "ptp": self._ptp or "off",
        }
        text, problem = f"{connection.facts.name} at {connection.camera.address}", connection.facts.nonlinearity
        return (Level.WARN, f"{text}: {problem}", values) if problem else (Level.OK, text, values)

    # --------------------------------------------------------------------------------------------- the control's thread

    def _run(self) -> None:
        backoff = _BACKOFF[0]
        while not self._closing.is_set():
            try:
                device = self._connect()
            except Exception as err:  # noqa: BLE001 - the thread goes on
                self._record_disconnect(err)
                self._finish_attempt(err)
                is_changed = self._idle(backoff)
                backoff = _BACKOFF[0] if is_changed else min(2 * backoff, _BACKOFF[1])
                continue
            self._finish_attempt()
            if device is None:
                self._idle(_LOOK_PERIOD)
                continue
            backoff = _BACKOFF[0]
            try:
                self._control(device)
            except Exception as err:  # noqa: BLE001 - the thread goes on
                self._record_disconnect(err)
            self.connection = None
            self._end_frames()
            _close(device)
            is_useless = self._failure is not None and self._number is None
            self._pause = min(2 * self._pause, _MAX_PAUSE) if is_useless else _LOOK_PERIOD
            self._idle(self._pause)
        self._finish_attempt()

    def _finish_attempt(self, err: Optional[Exception] = None) -> None:
        if self._attempted.done():
            return
        if isinstance(err, (CameraError, ValueError)):
            self._attempted.set_exception(err)
        else:
            self._attempted.set_result(None)

    def _record_disconnect(self, err: Exception) -> None:
        """Record why no camera is connected, and log a new reason."""
        kind = "" if isinstance(err, (CameraError, ValueError)) else f"{type(err).__name__}: "
        problem = printable(f"{kind}{err}", 500)
        if problem != self._warned:
            self._client.warning(f"camera: {problem}")
        self.problem = self._warned = problem

    def _idle(self, seconds: float) -> bool:
        """Wait without a camera; a request ends the wait. Returns whether there was one."""
        end = time.monotonic() + seconds
        while not self._closing.is_set() and time.monotonic() < end:
            try:
                self._requests.get(timeout=min(_LOOK_PERIOD, seconds))(None)
            except queue.Empty:
                continue
            return True
        return False

    def _find(self) -> Optional[FoundCamera]:
        """Look for the camera: where it was, and now and then on the whole network."""
        last = self._last
        serial = serial_at(last.address) if last is not None and is_address(last.address) else None
        if last is not None and serial is not None:
            if last.serial in ("", serial):
                return last
            self._last = None
            raise CameraError(f"{last.describe()} is another camera now, {serial}")
        if time.monotonic() - self._searched < _SEARCH_PERIOD:
            return None
        try:
            return find_camera(self._identity)
        except CameraError as err:
            self._record_disconnect(err)
            return None
        finally:
            self._searched = time.monotonic()

    def _connect(self) -> Optional[CameraDevice]:
        """Open and set up the camera if it is there."""
        camera = self._find()
        if camera is None:
            return None
        device = CameraDevice(camera)
        try:
            device.require_control()
            write(device, self._settings, [row.name for row in fields(CameraSettings)])
            self._note(device, self._settings, camera, self._client.check)
            self._clock, self._ptp, self._resent = DeviceClock(), read_ptp(device), 0
            self._start(device)
        except BaseException:
            self.connection = None
            _close(device)
            raise
        self._last, self.problem, self._followed = camera, "", None
        self._identity = self._identity or camera.serial  # settings and calibration are those of this camera
        self._counts["connections"] += 1
        if self._pause == _LOOK_PERIOD:  # otherwise once its frames match
            self._report_connected()
        return device

    def _report_connected(self) -> None:
        self._warned = ""
        self._client.info(f"camera {self._connected().camera.describe()} is connected")

    def _note(self, device: CameraDevice, settings: CameraSettings, camera: FoundCamera, check: Check) -> None:
        """Read the state of the camera, and check it against the parameters."""
        facts = read_facts(device)
        self._note_exposure(facts.exposure_us)
        self._time, self._gain = find_number(device, EXPOSURE), find_number(device, GAIN)
        check(facts)
        actual = read_back(device, settings)
        if any(settings.roi) and tuple(settings.roi) != actual.roi:
            self._client.info(
                f"camera.roi {list(settings.roi)} becomes {list(actual.roi)}: numbers are even, so that the mosaic "
                "keeps its order, and multiples of the camera's steps"
            )
        if actual.pixel_format != settings.pixel_format:
            self._client.info(f"camera.pixel_format {settings.pixel_format} becomes {actual.pixel_format}")
        self.connection = Connection(actual, facts, ranges(device, actual), camera)
        self._settings = actual
        self._exposure = None
        self._commands.clear()
        if actual.exposure_auto == "polarization":
            exposure_region(actual.exposure_roi, facts.size[::-1])
            self._exposure = ExposureControl(actual, self.connection.ranges, facts.exposure_us, facts.gain_db)
            self._commands.append(self._exposure.command)

    def _change(self, device: Optional[CameraDevice], new: CameraSettings, check: Check) -> CameraSettings:
        """Write changed settings, or none if the camera refuses one."""
        old, connection = self._settings, self.connection
        if device is None or connection is None:
            self._settings = new
            return new
        self._require_camera(device)  # without it each call would take seconds
        changed = changed_fields(old, new)
        features = read_features(device, new) if "features" in changed else {}
        is_stopped = stops_frames(changed)
        before = read_back(device, old)

        def rewrite(step: Callable[[], None], settings: CameraSettings, check: Check) -> None:
            if is_stopped:
                self._end_frames()
                device.stop()
            step()
            self._note(device, settings, connection.camera, check)
            if is_stopped:
                self._start(device)

        try:
            rewrite(lambda: write(device, new, changed), new, check)
        except Exception:
            try:
                self._require_camera(device)
                rewrite(lambda: undo(device, before, changed, features), old, lambda _: None)
            except Exception as err:  # noqa: BLE001 - the state is unknown: the camera is set up again
                self._settings, self.connection = old, None
                self._record_disconnect(err)
            raise
        return self._settings

    def _follow(self, device: Optional[CameraDevice], values: Mapping[str, Any]) -> None:
        limits = self.connection.ranges if self.connection else {}
        limited = {name: float(np.clip(values[name], *limits[name])) for name in values.keys() & limits}
        attempt = replace(self._settings, **{**values, **limited}), self._settings
        if device is not None and attempt[0] != attempt[1] and attempt != self._followed:
            self._followed = attempt  # what the camera rounds or refuses is not written again
            self._change(device, attempt[0], lambda _: None)

    def _trigger(self, device: Optional[CameraDevice]) -> None:
        if device is None:
            raise CameraError(self.problem or "the camera is not connected")
        if self._settings.trigger != "software":
            raise CameraError(f"camera.trigger is {self._settings.trigger}, not software")
        device.trigger()

    def _start(self, device: CameraDevice) -> None:
        """Begin to receive frames, each behind the header of its message."""
        connection = self._connected()
        name, rate = connection.facts.pixel_format, connection.settings.frame_rate
        self._format = ENCODINGS[name]
        self._encoding, self._number, self._unusable, self._code = _encoding(name, self._format), None, 0, 0
        self._underruns, self._pairs.waiting = 0, None
        head = len(messages.image_head(self._frame_id, self._encoding, (1, 1), 1))

        def memory(size: int) -> np.ndarray:
            block = self._client.memory()
            if block is None or block.nbytes < head + size:
                block = skip_to_alignment(self._buffers.get((head + size + ALIGNMENT,), "uint8"), head)
            return block[: head + size]

        device.start(memory, head, rate)
        self._uncertain.clear()
        self._failure, self._takes_frames = None, True
        self._last_sign = time.monotonic()
        name = "polar_pipeline_frames"
        self._frames_thread = threading.Thread(target=self._take_frames, args=(device,), name=name, daemon=True)
        self._frames_thread.start()

    def _end_frames(self) -> None:
        """End the thread for frames, so that the stream can be stopped."""
        thread, self._frames_thread, self._takes_frames = self._frames_thread, None, False
        if thread is not None:
            thread.join()

    def _control(self, device: CameraDevice) -> None:
        """Answer requests and read what changes, until the end or an error of the camera or of its frames."""
        last_sign = polled = time.monotonic()
        while not self._closing.is_set():
            self._wake.wait(_WAIT)
            self._wake.clear()
            while not self._requests.empty():
                self._requests.get()(device)
                if self.connection is None:
                    return
            self._write_exposure(device)
            if self._failure is not None:
                raise self._failure
            if time.monotonic() - self._last_sign > _QUIET:
                self._require_camera(device)
                self._last_sign = time.monotonic()
            if self._number is not None and self._pause != _LOOK_PERIOD:
                self._pause = _LOOK_PERIOD
                self._report_connected()
            if self._last_sign == last_sign:  # a camera that has gone would block
                continue
            last_sign = self._last_sign
            try:
                self._alternate(device)
                if last_sign - polled > _POLL_PERIOD:
                    polled = last_sign
                    self._read_changing(device)
                    self._is_gain_automatic = device.has("GainAuto") and device.get("GainAuto") != "Off"
                    self._ptp = read_ptp(device)
                    self._resent = device.stream_count("n_resent_packets")
                elif self._is_gain_automatic:
                    self._read_changing(device)
                elif self._reads_exposure:
                    self._note_exposure(read_number(device, EXPOSURE) or 0.0)
            except CameraError:
                self._require_camera(device)
                raise

    def _write_exposure(self, device: CameraDevice) -> None:
        """Write the newest exposure time and gain of the exposure control until the camera has taken both.

        Values that were written before are written too: the control repeats a command that the camera has lost.
        """
        command = self._commands[0] if self._commands else None
        if command is None:
            return
        try:
            for feature, value in zip((self._time, self._gain), command):
                if feature is not None:
                    device.set(feature.name, feature.invert(value))
        except CameraError as err:
            self._require_camera(device)
            self._client.refuse("exposure", str(err))
            return
        with suppress(ValueError):  # a newer command has replaced it
            self._commands.remove(command)

    def _alternate(self, device: CameraDevice) -> None:
        """Write the other one of two exposures by turns; frames tell which one each has."""
        if self._settings.hdr_ratio > 1 and self._time is not None:
            self._is_short = not self._is_short
            exposure_us = self._settings.exposure_us / (self._settings.hdr_ratio if self._is_short else 1)
            device.set(self._time.name, self._time.invert(exposure_us))

    def _read_changing(self, device: CameraDevice) -> None:
        connection = self._connected()
        facts = read_changing(device, connection.facts)
        self._note_exposure(facts.exposure_us)
        self.connection = replace(connection, facts=facts)

    def _note_exposure(self, exposure_us: float) -> None:
        count, values = self._readings
        self._readings = count + 1, (*values, max(exposure_us, 0.0))[-_BEFORE:]

    def _require_camera(self, device: CameraDevice) -> None:
        """Raise an error if the camera has gone, or was restarted."""
        if not device.is_controlled():
            raise CameraError(f"{self._connected().facts.name} has gone, or was started again")

    def _connected(self) -> Connection:
        if self.connection is None:
            raise CameraError("the camera is not connected")
        return self.connection

    # ---------------------------------------------------------------------------------------------- the frames' thread

    def _take_frames(self, device: CameraDevice) -> None:
        """Hand over frames until `_end_frames`, or until one does not match."""
        try:
            while self._takes_frames:
                if self._receive(device):
                    self._last_sign = time.monotonic()
                    self._wake.set()
        except Exception as err:  # noqa: BLE001 - the control's thread connects the camera again
            self._failure = err
            self._wake.set()

    def _receive(self, device: CameraDevice) -> bool:
        """Hand over the next frame, or count it if it cannot be used; return whether one came."""
        try:
            frame = device.pop(_WAIT)
        except FrameError as err:
            self._unusable += 1
            is_incomplete = err.cause == "incomplete"
            self._counts["incomplete"] += is_incomplete
            self._client.refuse(err.cause, f"{err}; {_REMEDIES[device.is_gige]}" if is_incomplete else str(err))
            return True
        if frame is not None:
            self._take(frame, device.stream_count("n_underruns"))
        return frame is not None

    def _take(self, frame: Received, underruns: int) -> None:
        """Hand over a complete frame; CameraError if its region or pixel format is not that of the settings."""
        facts, fmt = self._facts_of(frame), self._format
        width, height = frame.size or facts.size
        self._code = self._code or frame.pixel_format  # a camera's numbers may differ from those of the standard
        if (width, height) != facts.size:
            self._client.dropped("size", 1)
            raise CameraError(f"frames have {width}x{height} pixels, {facts.name} was set to {facts.size}")
        if frame.pixel_format not in (0, self._code):
            self._client.dropped("encoding", 1)
            raise CameraError(
                f"frames have another pixel format than {facts.pixel_format}, to which {facts.name} was set"
            )
        self._count_missed(frame.number, underruns)
        nbytes = fmt.row_bytes(width) * height
        head = messages.image_head(self._frame_id, self._encoding, (height, width), nbytes)
        if nbytes != fmt.row_bytes(width * height) or len(head) + nbytes > frame.memory.nbytes:
            self._client.refuse(
                "size",
                f"rows of {width} pixels of {self._encoding} do not end at whole bytes: set camera.roi to an even "
                "width, or another camera.pixel_format",
            )
            return
        self._counts["frames"] += 1
        stamp_ns = messages.stamp_within_range(self._stamp(frame, facts.exposure_us))
        cdr = frame.memory[: len(head) + nbytes].data
        cdr[: len(head)] = messages.restamp(head, stamp_ns)
        if self._settings.hdr_ratio == 1:
            self._client.take(cdr, facts, Arrival(frame.arrival_ns, frame.number))
            self._expose(cdr, frame, facts)
        else:
            self._take_exposure(CapturedFrame(cdr, facts, frame.number), frame)

    def _expose(self, cdr: Cdr, frame: Received, facts: CameraFacts) -> None:
        """Let the exposure control judge a frame; the control's thread writes what it chooses."""
        control, settings = self._exposure, self._settings
        if control is None:
            return
        try:
            brightest = measure_brightest(self._client.read(cdr), settings.exposure_percentile, settings.exposure_roi)
        except FrameError as err:
            self._client.refuse(err.cause, str(err))
            return
        time_us, gain_db = (None if frame.exposure_us is None else facts.exposure_us), facts.gain_db
        command = control.step(brightest, time_us, None if frame.gain is None else gain_db)
        self._commands.extend([command] if command else [])

    def _take_exposure(self, exposed: CapturedFrame, frame: Received) -> None:
        """Hand over a frame with the one before if they are a pair, or count the one before if it has no neighbor."""
        if frame.exposure_us is None:
            raise CameraError("camera.hdr_ratio needs frames that state their exposure (ChunkModeActive)")
        incomplete = self._pairs.incomplete
        before = self._pairs.take(exposed, self._settings.hdr_ratio)
        if self._pairs.incomplete > incomplete:
            self._client.refuse("exposures", "a frame without a neighbor of the other exposure was left out")
        if before is not None:
            self._client.take(exposed.cdr, exposed.facts, Arrival(frame.arrival_ns, frame.number), before)

    def _facts_of(self, frame: Received) -> CameraFacts:
        """Return the state of the camera with the exposure time and the gain of a frame, as far as they are known."""
        facts, (_, readings) = self._connected().facts, self._readings
        self._reads_exposure = frame.exposure_us is None
        exposure_us = readings[-1] if frame.exposure_us is None else max(frame.exposure_us, 0.0)
        gain_db = facts.gain_db if frame.gain is None or self._gain is None else self._gain.convert(frame.gain)
        return replace(facts, exposure_us=exposure_us, gain_db=gain_db)

    def _count_missed(self, number: int, underruns: int = 0) -> None:
        """Count the frames between two complete ones that did not arrive at all, by the number of the second one.

        Numbers have 16 bits in older cameras and wrap to 1. Frames that cannot be used have none. If more `underruns`
        were counted than at the last gap, packets for which no buffer was free, this computer has lost the frames.
        """
        last, self._number = self._number, number
        unusable, self._unusable = self._unusable, 0
        between = 0 if last is None else number - last - 1 if number > last else number - 1 + (0xFFFF - last)
        missed = between - unusable
        if 0 < missed < 1000:
            is_underrun, self._underruns = underruns > self._underruns, underruns
            self._counts["underruns" if is_underrun else "missed"] += missed
            self._client.dropped("underrun" if is_underrun else "camera", missed)

    def _stamp(self, frame: Received, exposure_us: float) -> int:
        """Return the time of a frame in nanoseconds since 1970: the middle or the start of its exposure."""
        exposure_ns = int(1000 * exposure_us)
        self._observe(frame, exposure_ns)
        start_ns = self._clock.convert(frame.device_ns, frame.arrival_ns - exposure_ns)
        if self._ptp in PTP_LOCKED:
            exact_ns = ptp_stamp(frame.device_ns, start_ns)  # frames that arrive late do not count
            start_ns = start_ns if exact_ns is None else exact_ns
        return start_ns + (exposure_ns // 2 if self._settings.stamp == "middle" else 0)

    def _observe(self, frame: Received, exposure_ns: int) -> None:
        """Add frames to the model of the clock once their exposure is certain.

        The register may have changed before the frame or after it. Too long an exposure would make the frame early,
        which spoils the model, too short a one only makes it late: the smallest of the readings around it counts.
        """
        if not self._reads_exposure or not self._clock.agrees(frame.device_ns, frame.arrival_ns, exposure_ns):
            self._uncertain.clear()
            self._clock.observe(frame.device_ns, frame.arrival_ns - exposure_ns)
            return
        count, readings = self._readings
        self._uncertain.append((frame.device_ns, frame.arrival_ns, count, readings))
        while count - self._uncertain[0][2] >= _AFTER:
            device_ns, arrival_ns, _, before = self._uncertain.popleft()
            self._clock.observe(device_ns, arrival_ns - int(1000 * min(before + readings)))


def _encoding(pixel_format: str, fmt: RawFormat) -> str:
    """Return the encoding of messages: a name of ROS, which viewers know, if it is exact; otherwise the camera's."""
    if fmt.packing != "u8" and (fmt.packing, fmt.bits) != ("u16", 16):
        return pixel_format
    pattern = re.search("Bayer(RG|BG|GB|GR)", pixel_format)
    bayer = {"RG": "rggb", "BG": "bggr", "GB": "gbrg", "GR": "grbg"}[pattern.group(1)] if pattern else ""
    return f"bayer_{bayer}{fmt.bits}" if bayer else f"mono{fmt.bits}"


def find_camera(identity: str) -> FoundCamera:
    """Search for a camera by its serial number, IP address or name in Aravis; "" for the first polarization camera."""
    rows = list_cameras()
    if identity:
        cameras = [row for row in rows if identity in (row.serial, row.address, row.device_id)]
        if not cameras and is_address(identity) and answers(identity):  # in another network
            cameras = [FoundCamera(identity, "", "", "", identity)]
    else:  # an unknown model may tell of polarizers by its name
        known_models = [row for row in rows if sensor_of_model(row.model)]
        cameras = known_models or [row for row in rows if re.search(r"(?i)polari|POL\b", row.model)]
    if not cameras:
        others = ", ".join(row.describe() for row in rows) or "none"
        raise CameraError(f"{identity or 'a polarization camera'} is not found; cameras here: {others}")
    return cameras[0]


def _no_answer() -> CameraError:
    return CameraError(f"the camera did not answer within {_REQUEST_TIMEOUT:g} s")


def _close(device: CameraDevice) -> None:
    """Close a device; calls to a camera that has gone, or was started again, take seconds: nothing waits for them."""
    if device.is_controlled():
        device.close()
    else:
        threading.Thread(target=device.close, name="polar_pipeline_camera_end", daemon=True).start()
