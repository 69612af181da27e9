"""Cameras of GigE Vision and USB3 Vision through the C library Aravis 0.8, called by ctypes.

Discovery, GenICam features by name, and frames that Aravis receives into memory of the caller. Aravis's own thread
receives. One thread at a time may call the methods of a `CameraDevice`, and beside it a second thread `pop` and
`stream_count`, which do not wait for the camera.
"""

from __future__ import annotations

import ctypes
import math
import re
import socket
import threading
import time
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple, Union

import numpy as np

from polar_pipeline._util.machine import SOCKET_BUFFER
from polar_pipeline._util.text import printable, quoted
from polar_pipeline.sensor.frames import FrameError

#: Name of the library, through which those of GLib are found too, and the command that installs it.
_LIBRARY = "libaravis-0.8.so.0"
INSTALL = "sudo apt install libaravis-0.8-0"
#: Types of C by letter: pointer, text, int or gboolean, unsigned int, 64 bits (signed, unsigned), size, double, none.
_TYPES: Dict[str, Any] = {
    "p": ctypes.c_void_p,
    "s": ctypes.c_char_p,
    "i": ctypes.c_int,
    "u": ctypes.c_uint,
    "l": ctypes.c_int64,
    "U": ctypes.c_uint64,
    "z": ctypes.c_size_t,
    "d": ctypes.c_double,
    "v": None,
}
#: What functions of C take and return: pointers, texts, numbers, or references to these.
CValue = Any
_CNumber = Union[ctypes.c_double, ctypes.c_int64]
#: Function -> letters of its result and its arguments; `E` is a `GError **`, after which `_Library.call` looks.
_FUNCTIONS = {
    "arv_update_device_list": "v",
    "arv_get_n_devices": "u",
    **{f"arv_get_device_{name}": "su" for name in ("id", "vendor", "model", "serial_nbr", "address")},
    "arv_camera_new": "psE",
    "arv_camera_get_device": "pp",
    "arv_camera_get_device_serial_number": "spE",
    "arv_camera_get_payload": "upE",
    "arv_camera_create_stream": "ppppE",
    "arv_camera_start_acquisition": "vpE",
    "arv_camera_stop_acquisition": "vpE",
    "arv_camera_is_gv_device": "ip",
    "arv_camera_is_feature_available": "ipsE",
    "arv_camera_get_float": "dpsE",
    "arv_camera_execute_command": "vpsE",
    "arv_camera_dup_available_enumerations_as_strings": "ppspE",
    "arv_camera_get_integer_bounds": "vpsppE",
    "arv_camera_get_integer_increment": "lpsE",
    "arv_camera_get_float_bounds": "vpsppE",
    "arv_camera_set_trigger": "vpsE",
    "arv_camera_clear_triggers": "vpE",
    "arv_camera_software_trigger": "vpE",
    "arv_camera_gv_auto_packet_size": "upE",
    "arv_camera_gv_set_packet_size": "vpiE",
    "arv_camera_gv_get_packet_size": "upE",
    "arv_camera_gv_set_packet_delay": "vplE",
    "arv_camera_gv_get_packet_delay": "lpE",
    "arv_gv_device_is_controller": "ip",
    "arv_gv_device_take_control": "ipE",
    "arv_device_get_feature": "pps",
    "arv_device_read_register": "ipUpE",
    **{f"arv_gc_{kind}_get_type": "z" for kind in ("float", "integer")},
    **{f"arv_gc_{kind}_get_unit": "sp" for kind in ("float", "integer")},
    "arv_gc_feature_node_get_value_as_string": "spE",
    "arv_gc_feature_node_set_value_from_string": "vpsE",
    "arv_buffer_new": "pzp",
    "arv_buffer_get_status": "ip",
    "arv_buffer_get_payload_type": "ip",
    "arv_buffer_has_chunks": "ip",
    "arv_buffer_get_timestamp": "Up",
    "arv_buffer_get_system_timestamp": "Up",
    "arv_buffer_get_frame_id": "Up",
    "arv_buffer_get_image_width": "ip",
    "arv_buffer_get_image_height": "ip",
    "arv_buffer_get_image_pixel_format": "up",
    "arv_camera_create_chunk_parser": "pp",
    "arv_chunk_parser_get_float_value": "dppsE",
    "arv_chunk_parser_get_integer_value": "lppsE",
    "arv_stream_push_buffer": "vpp",
    "arv_stream_timeout_pop_buffer": "ppU",
    "arv_stream_get_info_uint64_by_name": "Ups",
    "g_type_check_instance_is_a": "ipz",
    "g_object_set": "vpsip",  # of one int; the last pointer is None
    "g_object_unref": "vp",
    "g_free": "vp",
    "g_error_free": "vp",
}
#: Register of GigE Vision that tells who controls the device; 0 without a controller.
_CONTROL_PRIVILEGE = 0x0A00
#: UDP port and discovery command of GigE Vision, which every camera acknowledges; seconds to wait for that.
_PORT, _DISCOVERY, _ACKNOWLEDGED = 3956, bytes.fromhex("4211000200000001"), bytes.fromhex("00000003")
_READ_REGISTER = bytes.fromhex("4201008000040001")
_READ_MEMORY = bytes.fromhex("4201008400080001")
#: Place of a camera's description, `Local:NAME;ADDRESS;SIZE` in hexadecimal, as Aravis reads it; largest size in bytes.
_DESCRIPTION = re.compile(r"(?is)local:[^?#;]*;\s*(?:0x)?[0-9a-f]+;\s*(?:0x)?([0-9a-f]+)\s*(?:[?#].*)?")
_MAX_DESCRIPTION = 16 << 20
_PROBE_TIMEOUT = 0.2
#: Statuses of a buffer (ArvBufferStatus): complete, given back without a frame, and with a frame that cannot be used.
_COMPLETE, _CLEARED, _ABORTED = 0, 1, 7
_TIMEOUT, _MISSING_PACKETS, _WRONG_PACKET_ID, _SIZE_MISMATCH, _PAYLOAD_NOT_SUPPORTED = 2, 3, 4, 5, 8
#: Types of payload without flags: image, chunks of which the first is an image of unstated size, image with chunks.
_IMAGE, _CHUNK_DATA, _EXTENDED_CHUNK_DATA, _WITHOUT_FLAGS = 1, 4, 5, 0x3FFF
#: Values of a frame that the camera may send with it as chunks (SFNC): features `Chunk...`, and their types.
_FLOAT, _INTEGER = ("float", "integer"), ("integer", "float")  # some cameras have the other one
_CHUNKS = {"ExposureTime": _FLOAT, "Gain": _FLOAT, "Timestamp": _INTEGER, "FrameID": _INTEGER}
#: Buffers that wait for frames: a fixed number, and in addition the frames of some seconds, up to some bytes.
BUFFERS, BUFFERED_SECONDS, _BUFFERED_BYTES = 10, 0.1, 1 << 28


class CameraError(RuntimeError):
    """A camera, or the library for cameras, does not do what it was asked for."""


class _GError(ctypes.Structure):
    """Structure GError."""

    _fields_ = [("domain", ctypes.c_uint32), ("code", ctypes.c_int), ("message", ctypes.c_char_p)]


class _Library:
    """Functions of Aravis and GLib in `_FUNCTIONS`; OSError without the library, AttributeError if it is too old."""

    def __init__(self) -> None:
        library = ctypes.CDLL(_LIBRARY)
        self._functions: Dict[str, Any] = {}
        for name, letters in _FUNCTIONS.items():
            function = getattr(library, name)
            function.restype = _TYPES[letters[0]]
            function.argtypes = [_TYPES["p" if letter == "E" else letter] for letter in letters[1:]]
            self._functions[name] = function

    def call(self, name: str, *arguments: CValue) -> CValue:
        """Call a function, with texts as `str`; raise CameraError if it reports an error."""
        values = [value.encode(errors="replace") if isinstance(value, str) else value for value in arguments]
        error = ctypes.POINTER(_GError)()
        if _FUNCTIONS[name].endswith("E"):
            values.append(ctypes.byref(error))
        result = self._functions[name](*values)
        if error:
            text = printable(error.contents.message.decode(errors="replace"), 300)
            self._functions["g_error_free"](error)
            raise CameraError(text)
        return result.decode(errors="replace") if isinstance(result, bytes) else result


@lru_cache(maxsize=None)
def load_aravis() -> _Library:
    """Load Aravis; without it the `CameraError` has the command that installs it."""
    try:
        return _Library()
    except (OSError, AttributeError) as err:
        raise CameraError(f"cameras need Aravis 0.8 ({printable(str(err))}): {INSTALL}") from err


class FoundCamera(NamedTuple):
    """A camera on the network or on USB.

    Attributes:
        device_id: Name by which Aravis opens it.
        address: IP address; for other buses the text that Aravis shows.
    """

    device_id: str
    vendor: str
    model: str
    serial: str
    address: str

    def describe(self) -> str:
        """Describe the camera in a few words."""
        return printable(f"{self.vendor} {self.model} {self.serial} at {self.address}", 200)


#: Aravis has one list of devices in a process. Time at which the last search began, and its cameras.
_LISTING = threading.Lock()
_search: List[Any] = [-math.inf, []]


def list_cameras() -> List[FoundCamera]:
    """Search for cameras, which takes a second, and sort them by serial number; waiting threads share a search."""
    library, asked = load_aravis(), time.monotonic()
    with _LISTING:
        if _search[0] >= asked:
            return list(_search[1])
        began = time.monotonic()
        library.call("arv_update_device_list")
        names = ("id", "vendor", "model", "serial_nbr", "address")
        rows = [
            [library.call(f"arv_get_device_{name}", index) or "" for name in names]
            for index in range(library.call("arv_get_n_devices"))
        ]
        cameras = sorted((FoundCamera(*row) for row in rows), key=lambda row: (row.serial, row.device_id))
        _search[:] = began, cameras
        return list(cameras)


def is_address(text: str) -> bool:
    """Return whether a text is an IPv4 address."""
    try:
        socket.inet_pton(socket.AF_INET, text)
    except (OSError, ValueError):  # ValueError: characters that no address has
        return False
    return True


def _probe(address: str, command: bytes) -> bytes:
    """Return the answer of a GigE Vision camera at an IP address; nothing if none comes within `_PROBE_TIMEOUT`."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.settimeout(_PROBE_TIMEOUT)
            probe.connect((address, _PORT))
            probe.send(command)
            return probe.recv(1024)
    except OSError:
        return b""


def answers(address: str) -> bool:
    """Return whether a GigE Vision camera answers at an IP address."""
    return serial_at(address) is not None


def serial_at(address: str) -> Optional[str]:
    """Return the serial number of the GigE Vision camera that answers at an IP address; None if none answers."""
    answer = _probe(address, _DISCOVERY)
    serial = answer[8 + 0xD8 : 8 + 0xE8].rstrip(b"\0")
    return serial.decode(errors="replace") if answer[:4] == _ACKNOWLEDGED else None


def _check_description(address: str) -> None:
    """Raise CameraError if a GigE Vision camera's description is not in its own memory, or too large for Aravis."""
    for register in (0x200, 0x400):  # Aravis reads the second place if the first is empty
        answer = _probe(address, _READ_MEMORY + bytes([0, 0, register >> 8, 0, 0, 0, 2, 0]))
        url = answer[12:].partition(b"\0")[0].decode(errors="replace")
        match = _DESCRIPTION.fullmatch(url)
        if match is not None and int(match.group(1), 16) <= _MAX_DESCRIPTION:
            return
        if url:
            limit = f"in its own memory and have at most {_MAX_DESCRIPTION >> 20} MiB"
            raise CameraError(f"the description of the camera at {address} must be {limit}, got {quoted(url)}")


def is_taken(address: str) -> bool:
    """Return whether a process controls the GigE Vision camera at an IP address, without an attempt to do so."""
    answer = _probe(address, _READ_REGISTER + _CONTROL_PRIVILEGE.to_bytes(4, "big"))
    # an exclusive controller has the camera refuse to answer
    return len(answer) >= 2 and (answer[:2] != bytes(2) or any(answer[8:12]))


class Received(NamedTuple):
    """A complete frame in the memory that it was received into.

    Attributes:
        memory: The memory, as it was given to `CameraDevice.start`.
        device_ns: Timestamp by the device's clock, in nanoseconds.
        arrival_ns: Time of this computer when its first packet came, in nanoseconds since 1970.
        number: Number of the frame, counted by the camera.
        size: (width, height), as the frame itself states; None if it does not.
        pixel_format: Number of the pixel format, as the frame itself states; 0 if it does not.
        exposure_us: Exposure time of the frame in microseconds; None if it does not state one.
        gain: Gain of the frame in the camera's unit; None if it does not state one.
    """

    memory: np.ndarray
    device_ns: int
    arrival_ns: int
    number: int
    size: Optional[Tuple[int, int]]
    pixel_format: int
    exposure_us: Optional[float] = None
    gain: Optional[float] = None


def _fault(status: int) -> FrameError:
    """Return the error of a frame that cannot be used, by the status of its buffer."""
    if status in (_TIMEOUT, _MISSING_PACKETS):
        return FrameError("incomplete", "packets of a frame are missing")
    if status in (_WRONG_PACKET_ID, _SIZE_MISMATCH):
        reason = "USB lost data, or the camera changed by itself"
        return FrameError("size", f"a frame has more or fewer bytes than PayloadSize of the camera: {reason}")
    if status == _PAYLOAD_NOT_SUPPORTED:
        reason = "such as JPEG or parts: change it by camera.features"
        return FrameError("type", f"the camera sends something else than images, {reason}")
    return FrameError("camera", f"Aravis gives a frame the status {status}")


class CameraDevice:
    """An open camera, which this process controls until `close`.

    Raises:
        CameraError: The camera cannot be opened, for example because another process controls it. Every method but
            `close` raises it for what the camera refuses, or if it does not answer.
    """

    def __init__(self, camera: FoundCamera) -> None:
        self._call = load_aravis().call
        self._place = camera
        self._stream: Optional[int] = None
        self._parser: Optional[int] = None  # of chunks; None if frames have none
        self._chunks: List[str] = []  # of `_CHUNKS`, those that frames have
        self._waiting: Dict[int, np.ndarray] = {}  # memory of each buffer that Aravis has
        self._memory: Callable[[int], np.ndarray] = lambda size: np.empty(size, np.uint8)
        self._size = self._headroom = 0
        if is_address(camera.address):
            _check_description(camera.address)
        with _LISTING:
            self._camera = self._call("arv_camera_new", camera.device_id)
        self._device = self._call("arv_camera_get_device", self._camera)
        self.is_gige = bool(self._call("arv_camera_is_gv_device", self._camera))

    def close(self) -> None:
        """End the stream, and release the control of the camera; safe to call twice."""
        with suppress(CameraError):  # it is gone
            self.stop()
        for instance in (self._parser, self._camera):
            if instance is not None:
                self._call("g_object_unref", instance)
        self._parser = self._camera = None

    @contextmanager
    def tolerating_refusal(self) -> Iterator[None]:
        """Suppress an error if the camera has refused something, but not if it does not answer."""
        try:
            yield
        except CameraError:
            if not self.is_controlled():
                raise

    def has(self, feature: str) -> bool:
        """Return whether the camera has a GenICam feature, and it is available now."""
        answer = 0
        with self.tolerating_refusal():  # where the camera's description of the feature is wrong
            answer = self._call("arv_camera_is_feature_available", self._camera, feature)
        return bool(answer)

    def _node(self, feature: str) -> int:
        node: Optional[int] = self._call("arv_device_get_feature", self._device, feature)
        if not node:
            raise CameraError(f"the camera has no feature {quoted(feature)}")
        return node

    def get(self, feature: str) -> str:
        """Read a feature of any type as text."""
        text = self._call("arv_gc_feature_node_get_value_as_string", self._node(feature))
        if text is None:
            raise CameraError(f"{feature} cannot be read")
        return str(text)

    def set(self, feature: str, value: object) -> None:
        """Write a feature of any type; a number and a truth value are written as GenICam reads them."""
        text = str(value).lower() if isinstance(value, bool) else str(value)
        try:
            self._call("arv_gc_feature_node_set_value_from_string", self._node(feature), text)
        except CameraError as err:
            raise CameraError(f"{feature} cannot be {quoted(text)}: {err}") from err

    def serial(self) -> str:
        """Return the serial number."""
        return str(self._call("arv_camera_get_device_serial_number", self._camera) or "")

    def number(self, feature: str) -> float:
        """Read a feature that is a number, perhaps NaN; as text, a float would have six digits."""
        with suppress(CameraError):  # an integer
            return float(self._call("arv_camera_get_float", self._camera, feature))
        text = self.get(feature)
        try:
            return float(text)
        except ValueError:
            raise CameraError(f"{feature} is not a number: {quoted(text)}") from None

    def kind_and_unit(self, feature: str) -> Tuple[str, str]:
        """Return whether a feature is a `float` or an `integer`, or "", and its unit; "" if it states none."""
        node = self._node(feature)
        for kind in ("float", "integer"):
            if self._call("g_type_check_instance_is_a", node, self._call(f"arv_gc_{kind}_get_type")):
                return kind, self._call(f"arv_gc_{kind}_get_unit", node) or ""
        return "", ""

    def is_on(self, feature: str) -> bool:
        """Read a feature that is a truth value."""
        return self.get(feature).lower() in ("true", "1")

    def execute(self, feature: str) -> None:
        """Execute a command."""
        self._call("arv_camera_execute_command", self._camera, feature)

    def bounds(self, feature: str) -> Tuple[float, float]:
        """Return the lowest and the highest value of a number."""

        def read(name: str, low: _CNumber, high: _CNumber) -> Tuple[float, float]:
            self._call(f"arv_camera_get_{name}_bounds", self._camera, feature, ctypes.byref(low), ctypes.byref(high))
            return float(low.value), float(high.value)

        with suppress(CameraError):  # an integer
            return read("float", ctypes.c_double(), ctypes.c_double())
        return read("integer", ctypes.c_int64(), ctypes.c_int64())

    def increment(self, feature: str) -> int:
        """Return the step between the values of an integer."""
        return max(1, int(self._call("arv_camera_get_integer_increment", self._camera, feature)))

    def choices(self, feature: str) -> List[str]:
        """List the values of an enumeration that are available now."""
        count = ctypes.c_uint()
        pointer = self._call(
            "arv_camera_dup_available_enumerations_as_strings", self._camera, feature, ctypes.byref(count)
        )
        if not pointer:
            return []
        texts = ctypes.cast(pointer, ctypes.POINTER(ctypes.c_char_p))
        names = [(texts[index] or b"").decode(errors="replace") for index in range(count.value)]
        self._call("g_free", pointer)
        return names

    def set_trigger(self, source: str) -> None:
        """Start each frame by a trigger: `Software`, a line such as `Line0`, or "" for the camera's own rate."""
        if source:
            self._call("arv_camera_set_trigger", self._camera, source)
        elif self.has("TriggerMode"):
            self._call("arv_camera_clear_triggers", self._camera)

    def trigger(self) -> None:
        """Start a frame."""
        self._call("arv_camera_software_trigger", self._camera)

    def set_packets(self, size: int, delay_ns: int) -> None:
        """Set the bytes of a packet of GigE Vision, 0 for the most that arrive, and the time between two packets."""
        if not self.is_gige:
            return
        if size:
            self._call("arv_camera_gv_set_packet_size", self._camera, size)
        else:
            self._call("arv_camera_gv_auto_packet_size", self._camera)
        if delay_ns != self.packets()[1]:  # refused by a camera without a timestamp, also where it is 0
            self._call("arv_camera_gv_set_packet_delay", self._camera, delay_ns)

    def packets(self) -> Tuple[int, int]:
        """Return the bytes of a packet and the nanoseconds between two packets; zeros if it is not GigE Vision."""
        if not self.is_gige:
            return 0, 0
        names = ("arv_camera_gv_get_packet_size", "arv_camera_gv_get_packet_delay")
        size, delay = (int(self._call(name, self._camera)) for name in names)
        return size, delay

    def is_controller(self) -> bool:
        """Return whether this process got the control of the camera."""
        return not self.is_gige or bool(self._call("arv_gv_device_is_controller", self._device))

    def require_control(self) -> None:
        """Raise an error if another process got the control of the camera."""
        if not self.is_controller():
            raise CameraError(f"another process controls {self._place.describe()}")

    def is_controlled(self) -> bool:
        """Ask the camera whether this process controls it still: not after a restart, or once another process does."""
        # Aravis would wait for 2.5 s; one packet may be lost
        if self.is_gige and not (answers(self._place.address) or answers(self._place.address)):
            return False
        value = ctypes.c_uint32()
        try:
            if not self.is_gige:
                return bool(self.get("Width"))
            self._call("arv_device_read_register", self._device, _CONTROL_PRIVILEGE, ctypes.byref(value))
            # refused if the controller is another process
            return value.value != 0 and bool(self._call("arv_gv_device_take_control", self._device))
        except CameraError:
            return False

    def start(self, memory: Callable[[int], np.ndarray], headroom: int = 0, rate: float = 0.0) -> None:
        """Begin to receive frames.

        Args:
            memory: Returns (`headroom` + N,) uint8 for a frame of N bytes; called now, and for each frame of `pop`.
            headroom: Bytes in front of a frame.
            rate: Frames per second; 0 if unknown.
        """
        self._enable_chunks()
        self._size, self._memory = int(self._call("arv_camera_get_payload", self._camera)), memory
        self._headroom = headroom
        stream = self._call("arv_camera_create_stream", self._camera, None, None)
        if not stream:
            raise CameraError("a stream cannot be opened: memory or a free UDP port is missing")
        self._stream = stream
        if self.is_gige:
            # the system gives at most net.core.rmem_max; Aravis itself asks for none
            self._call("g_object_set", stream, "socket-buffer-size", SOCKET_BUFFER, None)
        more = min(int(BUFFERED_SECONDS * rate), _BUFFERED_BYTES // max(self._size, 1))
        for _ in range(BUFFERS + more):
            self._offer(self._memory(self._size))
        self._call("arv_camera_start_acquisition", self._camera)

    def _enable_chunks(self) -> None:
        """Have each frame carry its own exposure time, gain, timestamp and number, as far as the camera can."""
        self._chunks = []
        if not self.has("ChunkModeActive"):
            return
        with self.tolerating_refusal():
            self.set("ChunkModeActive", True)
            for name in set(self.choices("ChunkSelector")) & set(_CHUNKS):
                with self.tolerating_refusal():
                    self.set("ChunkSelector", name)
                    if not self.is_on("ChunkEnable"):
                        self.set("ChunkEnable", True)
                    self._chunks.append(name)
        with self.tolerating_refusal():
            if not self._chunks:
                self.set("ChunkModeActive", False)
        self._parser = self._parser or self._call("arv_camera_create_chunk_parser", self._camera)

    def _read_chunks(self, buffer: int) -> Dict[str, float]:
        """Return the values of `_CHUNKS` that a frame carries."""
        values: Dict[str, float] = {}
        for name in self._chunks if self._call("arv_buffer_has_chunks", buffer) else ():
            for kind in _CHUNKS[name]:
                function = f"arv_chunk_parser_get_{kind}_value"
                with suppress(CameraError):  # the feature is of another type, or the frame lacks it
                    values[name] = self._call(function, self._parser, buffer, f"Chunk{name}")
                    break
        return {name: value for name, value in values.items() if math.isfinite(value)}

    def _offer(self, memory: np.ndarray) -> None:
        """Give Aravis memory for a frame."""
        buffer = self._call("arv_buffer_new", self._size, memory.ctypes.data + self._headroom)
        self._waiting[buffer] = memory
        self._call("arv_stream_push_buffer", self._stream, buffer)

    def _next_buffer(self, timeout: float) -> Optional[int]:
        """Return the next buffer with a frame, perhaps a damaged one, or None if none comes within `timeout` seconds.

        Aravis also gives back buffers without a frame. With the rights to do so it reads packets from the interface
        itself, and until its filter is set, those of other programs as well.
        """
        end, wait = time.monotonic() + timeout, timeout
        while wait >= 0:
            buffer: int = self._call("arv_stream_timeout_pop_buffer", self._stream, int(1e6 * wait))
            if not buffer:
                return None
            if self._call("arv_buffer_get_status", buffer) not in (_CLEARED, _ABORTED):
                return buffer
            self._call("arv_stream_push_buffer", self._stream, buffer)
            wait = end - time.monotonic()
        return None

    def pop(self, timeout: float) -> Optional[Received]:
        """Return the oldest frame that was received, or None if none comes within `timeout` seconds.

        The memory is the caller's from then on.

        Raises:
            FrameError: The frame that was received cannot be used. Its number is unknown: the packet that states it may
                be missing.
            CameraError: `start` has failed, or was not called.
        """
        if self._stream is None:
            raise CameraError("the camera sends no frames")
        buffer = self._next_buffer(timeout)
        if buffer is None:
            return None

        def read(*names: str) -> List[int]:
            return [int(self._call(f"arv_buffer_get_{name}", buffer)) for name in names]

        status, payload = read("status", "payload_type")
        payload &= _WITHOUT_FLAGS
        if status == _COMPLETE and payload not in (_IMAGE, _CHUNK_DATA, _EXTENDED_CHUNK_DATA):
            status = _PAYLOAD_NOT_SUPPORTED
        if status != _COMPLETE:
            self._call("arv_stream_push_buffer", self._stream, buffer)
            raise _fault(status)
        device_ns, arrival_ns, number = read("timestamp", "system_timestamp", "frame_id")
        size, code = None, 0
        if payload != _CHUNK_DATA:
            width, height, code = read("image_width", "image_height", "image_pixel_format")
            size = width, height
        chunks = self._read_chunks(buffer)
        stated_ns = int(chunks.get("Timestamp", device_ns))
        if not device_ns or abs(stated_ns - device_ns) < 1e9:  # more than a second apart, it counts other ticks
            device_ns = stated_ns
        contents = int(chunks.get("FrameID", number)), size, code, chunks.get("ExposureTime"), chunks.get("Gain")
        memory = self._waiting.pop(buffer)
        self._call("g_object_unref", buffer)
        self._offer(self._memory(self._size))
        return Received(memory, device_ns, arrival_ns, *contents)

    def stream_count(self, name: str) -> int:
        """Return a counter of Aravis's stream such as `n_resent_packets`; 0 without a stream."""
        return 0 if self._stream is None else int(self._call("arv_stream_get_info_uint64_by_name", self._stream, name))

    def stop(self) -> None:
        """End the stream; memory that waits for frames is released."""
        stream, self._stream = self._stream, None
        if stream is None:
            return
        try:
            self._call("arv_camera_stop_acquisition", self._camera)
        finally:
            self._call("g_object_unref", stream)  # ends Aravis's thread, and its use of the buffers
            self._waiting.clear()
