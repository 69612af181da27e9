"""A GigE Vision polarization camera on loopback: Aravis's fake camera in a process that a test can kill.

It has a GenICam description of its own, like that of a LUCID Triton, and sends given frames. `FakeCamera` starts the
process, which is this file as a program, and sends it commands. It needs nothing but libaravis-0.8.so.0, by ctypes.

Every camera answers every broadcast, so only one process of tests has cameras at a time; the others wait.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import random
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple, Union

import numpy as np

from polar_pipeline.sensor.frames import FORMATS, pack

LIBRARY = "libaravis-0.8.so.0"
#: UDP port of GigE Vision's control protocol.
PORT = 3956
#: Seconds to wait until another camera has left the port.
TIMEOUT = 20.0

# ------------------------------------------------------------------------------------------------------------ features

#: Pixel formats of the mono and of the color camera, with PFNC numbers; LUCID's own ones begin with 81. RGB8 is no
#: mosaic; only the first third of its bytes is filled.
MONO = """Mono8 01080001 Mono10p 010A0046 Mono12 01100005 Mono12p 010C0047 Mono12Packed 010C0006 Mono16 01100007
    PolarizeMono8 81080001 PolarizeMono12p 810C0047 RGB8 02180014"""
COLOR = "BayerRG8 01080009 BayerRG12p 010C0059 BayerRG16 0110002E"
#: Features of a camera whose frames begin at multiples of their period, in step with PTP: attributes of `Feature`.
SCHEDULED: Dict[str, Dict[str, Any]] = {
    "AcquisitionStartMode": {"kind": "enum", "value": "Normal", "entries": "Normal 0 PTPSync 1"},
    "PTPSyncFrameRate": {"kind": "rate", "value": 24.0, "address": 0x138, "low": 0.1, "high": 1000.0},
}
#: States of PTP with their numbers.
PTP = """Initializing 1 Faulty 2 Disabled 3 Listening 4 PreMaster 5 Master 6 Passive 7 Uncalibrated 8 Slave 9"""


class Feature(NamedTuple):
    """A feature of the camera, and its register.

    Attributes:
        kind: `string`, `int`, `float`, `rate` (a float whose register has the period in us), `bool`, `enum`, `command`,
            or `formula` (of other features, without a register).
        value: Initial value; of a command the number that it writes; of a formula its text.
        address: Where Aravis's fake camera or a client expects the register; 0 takes a free address.
        high: Upper limit, or a formula of it; length of a string.
        scale: Units of the register per unit of a float.
        entries: Names and hexadecimal numbers of an enumeration.
        more: Further XML of the register.
        unit: Unit that the description states.
    """

    name: str
    kind: str
    value: Any
    address: int = 0
    low: float = 0
    high: Union[float, str] = 0xFFFFFFFF
    step: int = 1
    scale: float = 1.0
    entries: str = ""
    more: str = ""
    access: str = "RW"
    unit: str = ""

    @property
    def numbers(self) -> Dict[str, int]:
        """Numbers of an enumeration by name."""
        words = self.entries.split()
        return {name: int(number, 16) for name, number in zip(words[::2], words[1::2])}

    def encode(self, value: Any) -> bytes:
        """Return a value as the register has it."""
        if self.kind == "string":
            return str(value).encode().ljust(int(self.high), b"\0")
        if self.kind in ("float", "rate"):
            value = round(1e6 / value if self.kind == "rate" else value * self.scale)
        number = self.numbers[value] if self.entries else int(value)
        return (number & 0xFFFFFFFF).to_bytes(4, "big")

    def decode(self, data: bytes) -> Any:
        """Return the value of a register."""
        if self.kind == "string":
            return data.split(b"\0")[0].decode()
        number = int.from_bytes(data, "big", signed=self.low < 0) & (0xFFFF if "LSB" in self.more else -1)
        if self.entries:
            return next(name for name, value in self.numbers.items() if value == number)
        if self.kind in ("float", "rate"):
            return 1e6 / number if self.kind == "rate" else number / self.scale
        return bool(number) if self.kind == "bool" else number


def camera_features(
    model: str, serial: str, size: Tuple[int, int], step: int, changes: Optional[Dict[str, Dict[str, Any]]] = None
) -> Dict[str, Feature]:
    """Return the features of a camera by name.

    Args:
        model: Those that end with Q are color cameras.
        serial: Serial number.
        size: (height, width) of the sensor.
        step: Increment of width, height and offsets.
        changes: Changed attributes of features by their names, and the attributes of other features.
    """
    formats = COLOR if model.endswith("Q") else MONO
    selected = '<pIndex Offset="32">TriggerSelectorRegister</pIndex>'
    auto, read_only = "Off 0 Continuous 1", {"access": "RO"}
    rows = [
        Feature("DeviceVendorName", "string", "LUCID Vision Labs", 0x48, high=32, **read_only),
        Feature("DeviceModelName", "string", model, 0x68, high=32, **read_only),
        Feature("DeviceSerialNumber", "string", serial, 0xD8, high=16, **read_only),
        Feature("DeviceTemperature", "float", 41.5, low=-100, high=200, scale=1000, **read_only),
        Feature("SensorWidth", "int", size[1], 0x11C, **read_only),
        Feature("SensorHeight", "int", size[0], 0x118, **read_only),
        Feature("WidthMax", "formula", "SensorWidth / BinningHorizontal"),
        Feature("HeightMax", "formula", "SensorHeight / BinningVertical"),
        Feature("Width", "int", size[1], 0x100, step, "SensorWidth / BinningHorizontal - OffsetX", step),
        Feature("Height", "int", size[0], 0x104, step, "SensorHeight / BinningVertical - OffsetY", step),
        Feature("OffsetX", "int", 0, 0x130, 0, "SensorWidth / BinningHorizontal - Width", step),
        Feature("OffsetY", "int", 0, 0x134, 0, "SensorHeight / BinningVertical - Height", step),
        Feature("BinningHorizontal", "int", 1, 0x108, 1, 2),
        Feature("BinningVertical", "int", 1, 0x10C, 1, 2),
        Feature("ReverseX", "bool", False),
        Feature("ReverseY", "bool", False),
        Feature("PixelFormat", "enum", formats.split()[0], 0x128, entries=formats),
        Feature("AcquisitionMode", "enum", "Continuous", 0x12C, entries="Continuous 1"),
        Feature("AcquisitionStart", "command", 1, 0x124),
        Feature("AcquisitionStop", "command", 0, 0x124),
        Feature("AcquisitionFrameRateEnable", "bool", False),
        Feature("AcquisitionFrameRate", "rate", 24.0, 0x138, 0.1, "200 * SensorHeight / Height"),
        Feature("TriggerSelector", "enum", "FrameStart", entries="FrameStart 0 AcquisitionStart 1"),
        Feature("TriggerMode", "enum", "Off", 0x300, entries="Off 0 On 1", more=selected),
        Feature("TriggerSource", "enum", "Line0", 0x304, entries="Line0 0 Software 1", more=selected),
        Feature("TriggerSoftware", "command", 1, 0x30C),
        Feature("ExposureTime", "float", 5000.0, 0x120, 30.0, 10e6),
        Feature("ExposureAuto", "enum", "Off", entries=auto),
        Feature("Gain", "float", 0.0, 0x110, 0.0, 48.0, scale=10),
        Feature("GainAuto", "enum", "Off", 0x114, entries=auto),
        Feature("BlackLevel", "float", 0.0, high=100.0, scale=1000),
        Feature("Gamma", "float", 1.0, low=0.2, high=2.0, scale=1000),
        Feature("PtpEnable", "bool", False),
        Feature("PtpStatus", "enum", "Disabled", entries=PTP, **read_only),
        Feature("PtpDataSetLatch", "command", 1),
        Feature("PayloadSize", "formula", "Width * Height * ((PixelFormat &gt;&gt; 16) &amp; 255) / 8"),
        Feature("TLParamsLocked", "int", 0, high=1),
        Feature("GevTimestampTickFrequency", "int", 10**9, 0x940, **read_only),
        Feature("GevSCPHostPort", "int", 0, 0xD00),
        Feature("GevSCPSPacketSize", "int", 9000, 0xD04, 220, 9000, 4, more="<LSB>31</LSB><MSB>16</MSB>"),
        Feature("GevSCPD", "int", 0, 0xD08),
        Feature("GevSCDA", "int", 0, 0xD18),
    ]
    others = dict(changes or {})
    rows = [row._replace(**others.pop(row.name, {})) for row in rows]
    rows += [Feature(name, **attributes) for name, attributes in others.items()]
    return {row.name: row._replace(address=row.address or 0x2000 + 4 * k) for k, row in enumerate(rows)}


def genicam(features: Dict[str, Feature], without: Sequence[str]) -> str:
    """Return the GenICam description of a camera as XML, without some features; their registers stay."""
    nodes: Dict[str, str] = {}

    def add(kind: str, name: str, more: str = "", **values: Any) -> None:
        inner = more + "".join(f"<{tag}>{value}</{tag}>" for tag, value in values.items())
        nodes[name] = f'<{kind} Name="{name}">{inner}</{kind}>'

    def add_formula(name: str, formula: str) -> None:
        used = [word for word in features if re.search(rf"\b{word}\b", formula)]
        more = "".join(f'<pVariable Name="{word}">{word}Register</pVariable>' for word in used)
        add("IntSwissKnife", name, more, Formula=formula)

    for row in features.values():
        name, kind, value, address, low, high, step, scale, _, more, access, unit = row
        place = {"Address": address, "Length": 4, "AccessMode": access, "pPort": "Device", "Cachable": "NoCache"}
        register = {"pValue": f"{name}Register"}
        limits = {"Unit": unit, "Min": low, "Max": high} if unit else {"Min": low, "Max": high}
        if isinstance(high, str):
            add_formula(f"{name}Limit", high)
            limits = {"Min": low, "pMax": f"{name}Limit"}
        if kind not in ("string", "formula"):
            sign = "Signed" if low < 0 else "Unsigned"
            form = "MaskedIntReg" if "LSB" in more else "IntReg"
            add(form, f"{name}Register", more, **place, Sign=sign, Endianess="BigEndian")
        if kind == "string":
            add("StringReg", name, **{**place, "Length": high})
        elif kind == "formula":
            add_formula(name, value)
        elif kind == "int":
            add("Integer", name, **register, **limits, Inc=step)
        elif kind == "bool":
            add("Boolean", name, **register, OnValue=1, OffValue=0)
        elif kind == "command":
            add("Command", name, **register, CommandValue=value)
        elif kind == "enum":
            named = (f'<EnumEntry Name="{entry}"><Value>{n}</Value></EnumEntry>' for entry, n in row.numbers.items())
            add("Enumeration", name, "".join(named), **register)
        else:
            to, back = ("1e6 / FROM", "1e6 / TO") if kind == "rate" else (f"FROM * {scale}", f"TO / {float(scale)}")
            add("Converter", f"{name}Converter", FormulaTo=f"{to} + 0.5", FormulaFrom=back, **register)
            add("Float", name, pValue=f"{name}Converter", **limits)
    for name in without:
        del nodes[name]
    shown = "".join(f"<pFeature>{name}</pFeature>" for name in features if name in nodes)
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n<RegisterDescription ModelName="Fake" VendorName="Fake" '
        'SchemaMajorVersion="1" SchemaMinorVersion="1" xmlns="http://www.genicam.org/GenApi/Version_1_1">\n'
        f'<Category Name="Root">{shown}</Category>\n' + "\n".join(nodes.values()) + '\n<Port Name="Device"/>\n'
        "</RegisterDescription>\n"
    )


# ------------------------------------------------------------------------------------------------------------- process


def sent_bytes(picture: np.ndarray, pixel_format: str) -> bytes:
    """Return a picture in a pixel format; rows of packed formats follow each other without padding.

    Args:
        picture: (H, W) uint8, or uint16 of 12 bits. Formats of 8 and 10 bits get the high bits; 16 bits are filled from
            the high end.
        pixel_format: Name such as `Mono12p`.
    """
    fmt = FORMATS[re.sub(r"^\D+", "", pixel_format)]
    shift = fmt.bits - (8 if picture.dtype == np.uint8 else 12)
    values = picture.astype(np.uint16).reshape(1, -1)
    return pack(values << shift if shift > 0 else values >> -shift, fmt)


def function(name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
    """Return a function of Aravis, or of GLib, by the types of its result and its arguments."""
    named = ctypes.CDLL(LIBRARY)[name]
    named.restype, named.argtypes = result, arguments
    return named


_Pointer, _Word, _Text = ctypes.c_void_p, ctypes.c_uint32, ctypes.c_char_p


class _Process:
    """The camera in its own process; `FakeCamera` describes the methods that it calls."""

    def __init__(self, settings: Dict[str, Any]) -> None:
        self._features = camera_features(
            *(settings[name] for name in ("model", "serial", "size", "offset_increment", "changes"))
        )
        self._jitter, self._count = 0.0, 0
        self.show(settings["frames"])
        self.clock(0.0, 0.0)
        description = Path(settings["folder"], "camera.xml")
        description.write_text(genicam(self._features, settings["without"]))
        texts = [settings["address"], settings["serial"], str(description)]
        self._device = function("arv_gv_fake_camera_new_full", _Pointer, *[_Text] * 3)(*(t.encode() for t in texts))
        if not function("arv_gv_fake_camera_is_running", ctypes.c_int, _Pointer)(self._device):
            sys.exit(f"fake camera: no network interface has the address {settings['address']}")
        if (settings["address"], PORT) not in _stay_on_loopback():  # of which Aravis only warns
            sys.exit(f"fake camera: port {PORT} of {settings['address']} is taken")
        self._camera = function("arv_gv_fake_camera_get_fake_camera", _Pointer, _Pointer)(self._device)
        self._read_memory, self._write_memory = (
            function(f"arv_fake_camera_{name}_memory", ctypes.c_int, _Pointer, _Word, _Word, _Pointer)
            for name in ("read", "write")
        )
        address = bytes(random.Random(settings["serial"]).choices(range(256), k=4))
        self._write_memory(self._camera, 0xC, 4, address)  # the end of the MAC address
        start = {row.name: row.value for row in self._features.values() if row.kind not in ("command", "formula")}
        for name, value in {**start, **settings["features"]}.items():
            self.set(name, value)
        # ticks at which Aravis looks for a software trigger
        function("arv_fake_camera_set_trigger_frequency", None, _Pointer, ctypes.c_double)(self._camera, 200.0)
        self._buffer_data = function("arv_buffer_get_data", _Pointer, _Pointer, _Pointer)
        self._buffer_frame = function("arv_buffer_get_frame_id", ctypes.c_uint64, _Pointer)
        self._set_timestamp = function("arv_buffer_set_timestamp", None, _Pointer, ctypes.c_uint64)
        kind = ctypes.CFUNCTYPE(None, _Pointer, _Pointer, _Word, _Word, _Word)
        self._callback = kind(self._fill)  # lives as long as the camera
        function("arv_fake_camera_set_fill_pattern", None, _Pointer, kind, _Pointer)(self._camera, self._callback, None)

    def _fill(self, buffer: int, *_: Any) -> None:
        """Fill the buffer of the next frame. An exception ends the process: ctypes would drop it."""
        try:
            start, offset, rate = self._clock
            now, number = time.time_ns(), self._buffer_frame(buffer)
            if "AcquisitionStartMode" in self._features and self.get("AcquisitionStartMode") == "PTPSync":
                period_ns = int(1e9 / self.get("PTPSyncFrameRate"))
                number = now // period_ns
                now = number * period_ns
            self._set_timestamp(buffer, max(0, now + offset + int((now - start) * rate)))
            time.sleep(random.uniform(0.0, self._jitter))
            data = self._picture(number)
            ctypes.memmove(self._buffer_data(buffer, None), data, len(data))
            self._count += 1
        except BaseException as err:  # noqa: BLE001 - none may reach the caller
            os.write(2, f"fake camera: {err!r}\n".encode())
            os._exit(1)

    def _picture(self, frame: int) -> bytes:
        """Return the bytes of a frame: its region of the mirrored picture, as GenICam's SFNC has it for ReverseX."""
        names = "Width Height OffsetX OffsetY BinningHorizontal BinningVertical ReverseX ReverseY PixelFormat"
        wanted = [self.get(name) for name in names.split()]
        frames, packed = self._shown
        if packed.get("for") != wanted:
            packed.clear()
            packed["for"] = wanted
        index = frame % len(frames)
        if index not in packed:
            width, height, x, y, h, v, reverse_x, reverse_y, pixel_format = wanted
            mirrored = frames[index, ::v, ::h][:: -1 if reverse_y else 1, :: -1 if reverse_x else 1]
            part = mirrored[y : y + height, x : x + width]
            picture = np.zeros((height, width), part.dtype)  # black beyond the sensor
            picture[: part.shape[0], : part.shape[1]] = part
            data = sent_bytes(picture, pixel_format)
            bits = width * height * (self._features["PixelFormat"].numbers[pixel_format] >> 16 & 255)
            packed[index] = data[: bits // 8]
        return packed[index]

    def show(self, path: str) -> None:
        frames = np.load(path)
        self._shown: Tuple[np.ndarray, Dict[Any, Any]] = (frames.reshape(-1, *frames.shape[-2:]), {})

    def clock(self, offset_s: float, drift: float) -> None:
        self._clock = time.time_ns(), int(offset_s * 1e9), drift * 1e-6

    def jitter(self, seconds: float) -> None:
        self._jitter = seconds

    def lose(self, ratio: float) -> None:
        change = function("g_object_set", None, _Pointer, _Text, ctypes.c_double, _Pointer)
        change(self._device, b"gvsp-lost-ratio", ratio, None)

    def set(self, name: str, value: Any) -> None:
        data = self._features[name].encode(value)
        self._write_memory(self._camera, self._features[name].address, len(data), data)

    def get(self, name: str) -> Any:
        row = self._features[name]
        memory = ctypes.create_string_buffer(int(row.high) if row.kind == "string" else 4)
        self._read_memory(self._camera, row.address, len(memory), memory)
        return row.decode(memory.raw)

    def sent(self) -> int:
        return self._count

    def describe(self, *urls: Optional[str]) -> None:
        for register, url in zip((0x200, 0x400), urls):
            if url is not None:
                self._write_memory(self._camera, register, 512, url.encode().ljust(512, b"\0"))


def _stay_on_loopback() -> List[Any]:
    """Have this process's camera answer broadcasts of the loopback interface alone; return the names of its sockets.

    Clients ask for the stream at the interface by which they find the camera. As root, Aravis takes packets from that
    interface itself, and those of this machine pass by loopback only.
    """
    names = []
    for path in Path("/proc/self/fd").iterdir():
        with suppress(OSError), socket.socket(fileno=os.dup(int(path.name))) as one:
            names.append(one.getsockname())
            if names[-1] == ("255.255.255.255", PORT):
                one.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"lo")
    return names


def main() -> None:
    """Run a camera until the standard input ends: each line is a command's name and arguments, and gets an answer."""
    camera = _Process(json.loads(sys.argv[1]))
    print("ready", flush=True)
    for line in sys.stdin:
        name, arguments = json.loads(line)
        try:
            answer = {"result": getattr(camera, name)(*arguments)}
        except Exception as err:  # noqa: BLE001 - raised by `FakeCamera`
            answer = {"error": repr(err)}
        print(json.dumps(answer), flush=True)
    os._exit(0)  # the camera's thread goes on


# --------------------------------------------------------------------------------------------------------------- tests


class FakeCamera:
    """A camera in a process of its own; a context manager.

    Args:
        frames: (H, W) or (N, H, W) uint8, or uint16 of 12 bits, in the sensor's own readout, of the sensor's size. The
            frame with the number k shows image k mod N; the first number is 65401, and 1 follows 65535. With the
            features `SCHEDULED`, in the mode `PTPSync`, k is the time since 1970 in periods of the frames: cameras show
            the same image at the same moment, whatever their clocks say.
        address: Address of the loopback interface (`loopback_addresses`).
        serial: Serial number, at most 15 characters.
        model: Models that end with Q are color cameras.
        features: Initial values by name of the feature.
        without: Names of features that the camera lacks.
        offset_increment: Increment of Width, Height, OffsetX and OffsetY.
        changes: Those of `camera_features`.

    Attributes:
        address: As above.
    """

    def __init__(
        self,
        frames: np.ndarray,
        *,
        address: str = "127.0.0.1",
        serial: str = "POL001",
        model: str = "TRI050S-P",
        features: Optional[Dict[str, Any]] = None,
        without: Sequence[str] = (),
        offset_increment: int = 1,
        changes: Optional[Dict[str, Dict[str, Any]]] = None,
    ) -> None:
        self.address = address
        with ExitStack() as stack:
            stack.enter_context(this_machine())
            self._folder = stack.enter_context(tempfile.TemporaryDirectory())
            self._settings: Dict[str, Any] = {"address": address, "serial": serial, "model": model}
            self._settings.update(frames=self._saved(frames), size=frames.shape[-2:], folder=self._folder)
            self._settings.update(features=features or {}, without=without, offset_increment=offset_increment)
            self._settings.update(changes=changes or {})
            self.start()
            stack.callback(self.kill)
            self._stack = stack.pop_all()

    def __enter__(self) -> FakeCamera:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Start the camera, again after `kill`: as after a power cut, with its first values and frames."""
        wait_for_port(self.address)
        path = os.pathsep.join([str(Path(__file__).resolve().parents[2]), os.environ.get("PYTHONPATH", "")])
        command, env = [sys.executable, __file__, json.dumps(self._settings)], {**os.environ, "PYTHONPATH": path}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self._process = subprocess.Popen(command, env=env, start_new_session=True, **pipes)  # not for Ctrl-C
        if self._process.stdout.readline() != "ready\n":
            self.kill()
            raise RuntimeError("the camera did not start; its last words are in the standard error output")

    def kill(self) -> None:
        """End the camera's process without warning."""
        self._process.kill()
        self._process.communicate()

    def close(self) -> None:
        """End the camera, and let other processes have theirs."""
        self._stack.close()

    def lose(self, ratio: float) -> None:
        """Lose packets of frames from now on, by chance: a ratio from 0 to 1."""
        self._ask("lose", ratio)

    def clock(self, offset_s: float = 0.0, drift: float = 0.0) -> None:
        """Set the clock that frames are stamped with to `offset_s` seconds after the system's, but at least to 0.

        From now on it gains `drift` parts per million.
        """
        self._ask("clock", offset_s, drift)

    def jitter(self, seconds: float) -> None:
        """Delay each frame after its stamp by a random time up to this; answers to the client wait as well."""
        self._ask("jitter", seconds)

    def show(self, frames: np.ndarray) -> None:
        """Send other frames of the sensor from now on."""
        self._ask("show", self._saved(frames))

    def set(self, feature: str, value: Any) -> None:
        """Change a feature behind the client's back; the value is a number, a bool, a text, or an entry's name."""
        self._ask("set", feature, value)

    def get(self, feature: str) -> Any:
        """Read a feature that has a register."""
        return self._ask("get", feature)

    def describe(self, first: Optional[str], second: str) -> None:
        """Say that the GenICam description is elsewhere: at the second place if the first is empty; None keeps it."""
        self._ask("describe", first, second)

    def sent(self) -> int:
        """Return the number of frames sent."""
        return int(self._ask("sent"))

    def _ask(self, name: str, *arguments: Any) -> Any:
        self._process.stdin.write(json.dumps([name, arguments]) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer["result"]

    def _saved(self, frames: np.ndarray) -> str:
        path = Path(self._folder, f"{len(list(Path(self._folder).iterdir()))}.npy")
        np.save(path, frames)
        return str(path)


def wait_for_port(address: str) -> None:
    """Wait until nothing listens at a camera's port.

    Raises:
        RuntimeError: Something does.
    """
    end = time.monotonic() + TIMEOUT
    while True:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            try:
                return probe.bind((address, PORT))
            except OSError as err:
                if time.monotonic() > end:
                    raise RuntimeError(f"port {PORT} of {address}: {err.strerror}") from None
        time.sleep(0.05)


_held: List[Any] = []


@contextmanager
def this_machine() -> Iterator[None]:
    """Wait until no other process of this user has cameras, and have others wait; may be nested."""
    path = Path(f"/dev/shm/polar_pipeline_cameras_{os.getuid()}")  # whatever TMPDIR is
    lock = _held[0] if _held else path.open("w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    _held.append(lock)
    try:
        yield
    finally:
        _held.pop()
        if not _held:
            lock.close()


@contextmanager
def loopback_addresses(count: int) -> Iterator[List[str]]:
    """Give the loopback interface addresses of `count` cameras. Skips the test where this user may not."""
    import pytest

    sudo = [] if os.geteuid() == 0 else ["sudo", "-n"]
    addresses = [f"127.0.0.{k + 1}" for k in range(count)]
    with ExitStack() as stack:
        stack.enter_context(this_machine())
        for address in addresses[1:]:
            add, remove = ([*sudo, "ip", "address", verb, f"{address}/8", "dev", "lo"] for verb in ("replace", "del"))
            if not shutil.which(add[0]) or subprocess.run(add, capture_output=True, check=False).returncode:
                pytest.skip(f"{' '.join(add)} fails")
            stack.callback(subprocess.run, remove, check=True)
        yield addresses


if __name__ == "__main__":
    main()
