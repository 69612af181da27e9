"""A GigE Vision polarization camera on loopback: Aravis's fake camera in a process that a test can kill.

The camera has its own GenICam description, like that of a LUCID Triton, and sends given frames. It needs nothing but
libaravis-0.8.so.0, by ctypes. `python fake_camera.py SETTINGS` is the process; `FakeCamera` starts it and asks it.

Cameras need one address each, and all answer every broadcast: of the processes that run tests on this machine only one
has cameras at a time, the others wait.
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
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple, Union

import numpy as np

from polar_pipeline.sensor.frames import FORMATS, pack

ROOT = Path(__file__).resolve().parent.parent.parent
LIBRARY = "libaravis-0.8.so.0"
#: UDP port of GigE Vision's control protocol.
PORT = 3956
#: Seconds to wait until another camera has left the port.
PATIENCE = 20.0

# ----------------------------------------------------------------------------------------------------------- features

#: Pixel formats of the mono and of the color camera, with their PFNC numbers; LUCID's own ones begin with 0x81. RGB8 is
#: no mosaic; only its first third is filled.
MONO: Dict[str, int] = {
    "Mono8": 0x01080001,
    "Mono10p": 0x010A0046,
    "Mono12": 0x01100005,
    "Mono12p": 0x010C0047,
    "Mono12Packed": 0x010C0006,
    "Mono16": 0x01100007,
    "PolarizeMono8": 0x81080001,
    "PolarizeMono12p": 0x810C0047,
    "RGB8": 0x02180014,
}
COLOR: Dict[str, int] = {"BayerRG8": 0x01080009, "BayerRG12p": 0x010C0059, "BayerRG16": 0x0110002E}

_OFF_ON = {"Off": 0, "On": 1}
_AUTO = {"Off": 0, "Continuous": 1}
_PTP = "Initializing Faulty Disabled Listening PreMaster Master Passive Uncalibrated Slave"


class Feature(NamedTuple):
    """A feature of the camera.

    Attributes:
        name: Its name in GenICam.
        kind: `string`, `int`, `float`, `rate` (a float whose register has the period in us), `bool`, `enum`, `command`,
            or `formula` (of registers, without one of its own).
        value: Initial value; of a command the one that it writes.
        address: Of its register; 0 takes a free one. Some are read by Aravis's fake camera itself.
        low: Least value.
        high: Greatest value, or a formula of registers.
        step: Increment.
        scale: Register units per unit of a float.
        entries: Values of an enumeration by name.
        more: Further XML of the register.
        access: Of clients.
    """

    name: str
    kind: str
    value: Any
    address: int = 0
    low: float = 0
    high: Union[float, str] = 0xFFFFFFFF
    step: int = 1
    scale: float = 1.0
    entries: Dict[str, int] = {}
    more: str = ""
    access: str = "RW"


def camera_features(model: str, serial: str, size: Tuple[int, int], step: int) -> Dict[str, Feature]:
    """Features of a camera by name, each with an address.

    Args:
        model: Its model; those that end with Q are color cameras.
        serial: Serial number.
        size: (height, width) of the sensor.
        step: Increment of width, height and offsets.
    """
    height, width = size
    formats = COLOR if model.endswith("Q") else MONO
    selected = '<pIndex Offset="32">TriggerSelectorRegister</pIndex>'
    read = {"access": "RO"}
    rows = [
        Feature("DeviceVendorName", "string", "LUCID Vision Labs", 0x48, high=32, **read),
        Feature("DeviceModelName", "string", model, 0x68, high=32, **read),
        Feature("DeviceSerialNumber", "string", serial, 0xD8, high=16, **read),
        Feature("DeviceTemperature", "float", 41.5, low=-100, high=200, scale=1000, **read),
        Feature("SensorWidth", "int", width, 0x11C, **read),
        Feature("SensorHeight", "int", height, 0x118, **read),
        Feature("WidthMax", "formula", "SensorWidth / BinningHorizontal"),
        Feature("HeightMax", "formula", "SensorHeight / BinningVertical"),
        Feature("Width", "int", width, 0x100, step, "SensorWidth / BinningHorizontal - OffsetX", step),
        Feature("Height", "int", height, 0x104, step, "SensorHeight / BinningVertical - OffsetY", step),
        Feature("OffsetX", "int", 0, 0x130, 0, "SensorWidth / BinningHorizontal - Width", step),
        Feature("OffsetY", "int", 0, 0x134, 0, "SensorHeight / BinningVertical - Height", step),
        Feature("BinningHorizontal", "int", 1, 0x108, 1, 2),
        Feature("BinningVertical", "int", 1, 0x10C, 1, 2),
        Feature("ReverseX", "bool", False),
        Feature("ReverseY", "bool", False),
        Feature("PixelFormat", "enum", next(iter(formats)), 0x128, entries=formats),
        Feature("AcquisitionMode", "enum", "Continuous", 0x12C, entries={"Continuous": 1}),
        Feature("AcquisitionStart", "command", 1, 0x124),
        Feature("AcquisitionStop", "command", 0, 0x124),
        Feature("AcquisitionFrameRateEnable", "bool", False),
        Feature("AcquisitionFrameRate", "rate", 24.0, 0x138, 0.1, 200.0),
        Feature("TriggerSelector", "enum", "FrameStart", entries={"FrameStart": 0, "AcquisitionStart": 1}),
        Feature("TriggerMode", "enum", "Off", 0x300, entries=_OFF_ON, more=selected),
        Feature("TriggerSource", "enum", "Line0", 0x304, entries={"Line0": 0, "Software": 1}, more=selected),
        Feature("TriggerSoftware", "command", 1, 0x30C),
        Feature("ExposureTime", "float", 5000.0, 0x120, 30.0, 10e6),
        Feature("ExposureAuto", "enum", "Off", entries=_AUTO),
        Feature("Gain", "float", 0.0, 0x110, 0.0, 48.0, scale=10),
        Feature("GainAuto", "enum", "Off", 0x114, entries=_AUTO),
        Feature("BlackLevel", "float", 0.0, low=0.0, high=100.0, scale=1000),
        Feature("Gamma", "float", 1.0, low=0.2, high=2.0, scale=1000),
        Feature("PtpEnable", "bool", False),
        Feature("PtpStatus", "enum", "Disabled", entries={n: k + 1 for k, n in enumerate(_PTP.split())}, **read),
        Feature("PtpDataSetLatch", "command", 1),
        Feature("PayloadSize", "formula", "Width * Height * ((PixelFormat &gt;&gt; 16) &amp; 255) / 8"),
        Feature("TLParamsLocked", "int", 0, high=1),
        Feature("GevStreamChannelCount", "int", 1, 0x904, **read),
        Feature("GevTimestampTickFrequency", "int", 10**9, 0x940, **read),
        Feature("GevSCPHostPort", "int", 0, 0xD00),
        Feature("GevSCPSPacketSize", "int", 9000, 0xD04, 220, 9000, 4, more="<LSB>31</LSB><MSB>16</MSB>"),
        Feature("GevSCPD", "int", 0, 0xD08),
        Feature("GevSCDA", "int", 0, 0xD18),
    ]
    return {row.name: row._replace(address=row.address or 0x2000 + 4 * k) for k, row in enumerate(rows)}


def genicam(features: Dict[str, Feature], without: Sequence[str] = ()) -> str:
    """GenICam description of a camera, as XML, without some of its features."""

    def formula(name: str, text: str) -> str:
        names = [n for n in features if re.search(rf"\b{n}\b", text)]
        variables = "".join(f'<pVariable Name="V{n}">{n}Register</pVariable>' for n in names)
        for n in names:
            text = re.sub(rf"\b{n}\b", f"V{n}", text)
        return f'<IntSwissKnife Name="{name}">{variables}<Formula>{text}</Formula></IntSwissKnife>'

    nodes = []
    for name, kind, value, address, low, high, step, scale, entries, more, access in features.values():
        register = f"<pValue>{name}Register</pValue>"
        limits = f"<Min>{low}</Min>" + (
            f"<Max>{high}</Max>" if not isinstance(high, str) else f"<pMax>{name}Max_</pMax>"
        )
        port = f"<Address>{address}</Address><Length>%d</Length><AccessMode>{access}</AccessMode><pPort>Device</pPort>"
        if kind not in ("string", "formula"):
            masked = "MaskedIntReg" if "<LSB>" in more else "IntReg"
            sign = "Signed" if low < 0 else "Unsigned"
            nodes.append(
                f'<{masked} Name="{name}Register">{port % 4}{more}<Cachable>NoCache</Cachable><Sign>{sign}</Sign>'
                f"<Endianess>BigEndian</Endianess></{masked}>"
            )
        if isinstance(high, str):
            nodes.append(formula(f"{name}Max_", high))
        if kind in ("float", "rate"):
            to, back = (f"FROM * {scale} + 0.5", f"TO / {float(scale)}")
            if kind == "rate":
                to, back = ("1000000.0 / FROM + 0.5", "1000000.0 / TO")
            formulas = f"<FormulaTo>{to}</FormulaTo><FormulaFrom>{back}</FormulaFrom>"
            nodes.append(f'<Converter Name="{name}Converter">{formulas}{register}</Converter>')
        if name in without:
            continue
        if kind == "string":
            nodes.append(f'<StringReg Name="{name}">{port % high}</StringReg>')
        elif kind == "formula":
            nodes.append(formula(name, value))
        elif kind == "int":
            nodes.append(f'<Integer Name="{name}">{register}{limits}<Inc>{step}</Inc></Integer>')
        elif kind == "bool":
            nodes.append(f'<Boolean Name="{name}">{register}<OnValue>1</OnValue><OffValue>0</OffValue></Boolean>')
        elif kind == "command":
            nodes.append(f'<Command Name="{name}">{register}<CommandValue>{value}</CommandValue></Command>')
        elif kind == "enum":
            values = "".join(f'<EnumEntry Name="{n}"><Value>{v}</Value></EnumEntry>' for n, v in entries.items())
            nodes.append(f'<Enumeration Name="{name}">{values}{register}</Enumeration>')
        else:
            nodes.append(f'<Float Name="{name}"><pValue>{name}Converter</pValue>{limits}</Float>')
    names = "".join(f"<pFeature>{name}</pFeature>" for name in features if name not in without)
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n<RegisterDescription ModelName="Fake" VendorName="Fake" '
        'StandardNameSpace="GEV" SchemaMajorVersion="1" SchemaMinorVersion="1" SchemaSubMinorVersion="0" '
        'MajorVersion="1" MinorVersion="0" SubMinorVersion="0" ProductGuid="0" VersionGuid="0" '
        'xmlns="http://www.genicam.org/GenApi/Version_1_1">\n'
        '<Category Name="Root"><pFeature>Camera</pFeature></Category>\n'
        f'<Category Name="Camera">{names}</Category>\n' + "\n".join(nodes) + '\n<Port Name="Device"/>\n'
        "</RegisterDescription>\n"
    )


# ----------------------------------------------------------------------------------------------------------- pictures


def read_out(frame: np.ndarray, offset: Sequence[int], shape: Sequence[int], flip: Sequence[int]) -> np.ndarray:
    """The part of a sensor's frame that a camera sends, as `Sensor.as_read_out` defines it; black beyond the sensor.

    Args:
        frame: (H, W) in the sensor's own readout.
        offset: (x, y) of the region on the sensor, before any flip.
        shape: (height, width) of the region.
        flip: (ReverseX, ReverseY).
    """
    sent = np.zeros(tuple(shape), frame.dtype)
    part = frame[offset[1] : offset[1] + shape[0], offset[0] : offset[0] + shape[1]]
    sent[: part.shape[0], : part.shape[1]] = part
    return sent[:: -1 if flip[1] else 1, :: -1 if flip[0] else 1]


def sent_bytes(picture: np.ndarray, pixel_format: str) -> bytes:
    """Bytes of a picture in a pixel format; the rows of packed formats follow each other without padding.

    Args:
        picture: (H, W) of uint8, or uint16 with 12 bits. Formats of 8 and 10 bits get the high ones; 16 bits are filled
            from the high end.
        pixel_format: Name such as `Mono12p`.
    """
    fmt = FORMATS[re.sub(r"^\D+", "", pixel_format)]
    shift = fmt.bits - (8 if picture.dtype == np.uint8 else 12)
    values = picture.astype(np.uint16).reshape(1, -1)
    return pack(values << shift if shift > 0 else values >> -shift, fmt)


# ------------------------------------------------------------------------------------------------------------ process


class _Value(ctypes.Structure):
    """GObject's GValue."""

    _fields_ = (("type", ctypes.c_size_t), ("data", ctypes.c_uint64 * 2))


class _Process:
    """The camera in its own process; commands are its methods without an underscore."""

    def __init__(self, settings: Dict[str, Any]) -> None:
        self._features = camera_features(*(settings[name] for name in ("model", "serial", "size", "offset_increment")))
        self.show(settings["frames"])
        self.clock()
        self._jitter, self._count, self._last = 0.0, 0, (0, 0)
        self._wanted: List[Any] = []
        pointer, word = ctypes.c_void_p, ctypes.c_uint32
        library = ctypes.CDLL(LIBRARY)

        def function(name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
            found = library[name]  # of GLib, too, which it is linked with
            found.restype, found.argtypes = result, arguments
            return found

        self._function = function
        with tempfile.NamedTemporaryFile("w", suffix=".xml") as file:
            file.write(genicam(self._features, settings["without"]))
            file.flush()
            text = [settings["address"], settings["serial"], file.name]
            new = function("arv_gv_fake_camera_new_full", pointer, *[ctypes.c_char_p] * 3)
            self._device = new(*(value.encode() for value in text))
        if not function("arv_gv_fake_camera_is_running", ctypes.c_int, pointer)(self._device):
            sys.exit(f"no network interface has the address {settings['address']}")
        _stay_on_loopback()
        self._camera = function("arv_gv_fake_camera_get_fake_camera", pointer, pointer)(self._device)
        self._memory = {
            name: function(f"arv_fake_camera_{name}_memory", ctypes.c_int, pointer, word, word, pointer)
            for name in ("read", "write")
        }
        self._data = function("arv_buffer_get_data", pointer, pointer, pointer)
        self._frame = function("arv_buffer_get_frame_id", ctypes.c_uint64, pointer)
        self._stamp = function("arv_buffer_set_timestamp", None, pointer, ctypes.c_uint64)
        self._write(0x0C, bytes(random.Random(settings["serial"]).choices(range(256), k=4)))  # of the MAC address
        for name, row in self._features.items():
            if row.kind not in ("command", "formula"):
                self.set(name, row.value)
        for name, value in settings["features"].items():
            self.set(name, value)
        function("arv_fake_camera_set_trigger_frequency", None, pointer, ctypes.c_double)(self._camera, 200.0)
        self._fill = ctypes.CFUNCTYPE(None, pointer, pointer, word, word, word)(self._fill_buffer)  # must stay
        function("arv_fake_camera_set_fill_pattern", None, pointer, type(self._fill), pointer)(
            self._camera, self._fill, None
        )

    def _read(self, address: int, size: int = 4) -> bytes:
        memory = ctypes.create_string_buffer(size)
        self._memory["read"](self._camera, address, size, memory)
        return memory.raw

    def _write(self, address: int, data: bytes) -> None:
        self._memory["write"](self._camera, address, len(data), data)

    def _fill_buffer(self, buffer: int, _data: int, _exposure: int, _gain: int, _format: int) -> None:
        """Fill the buffer of the next frame. ctypes prints an exception and drops it."""
        start, offset, rate = self._clock
        now = time.time_ns()
        stamp = max(0, now + offset + int((now - start) * rate))
        self._stamp(buffer, stamp)
        if self._jitter:
            time.sleep(random.uniform(0.0, self._jitter))
        frame = self._frame(buffer)
        data = self._packed(frame)
        ctypes.memmove(self._data(buffer, None), data, min(len(data), self._payload))
        self._count, self._last = self._count + 1, (frame, stamp)

    def _packed(self, frame: int) -> bytes:
        names = (
            "Width",
            "Height",
            "OffsetX",
            "OffsetY",
            "BinningHorizontal",
            "BinningVertical",
            "ReverseX",
            "ReverseY",
        )
        pixel_format, frames = self.get("PixelFormat"), self._frames
        wanted = [*(self.get(name) for name in names), pixel_format]
        if wanted != self._wanted or frames is not self._cached:
            self._wanted, self._cached, self._cache = wanted, frames, {}
            self._payload = (
                wanted[0] * wanted[1] * (self._features["PixelFormat"].entries[pixel_format] >> 16 & 255) // 8
            )
        index = frame % len(frames)
        if index not in self._cache:
            width, height, x, y, horizontal, vertical, *flip = wanted[:8]
            picture = read_out(frames[index, ::vertical, ::horizontal], (x, y), (height, width), flip)
            self._cache[index] = sent_bytes(picture, pixel_format)
        return self._cache[index]

    def show(self, path: str) -> None:
        frames = np.load(path)
        self._frames = frames.reshape(-1, *frames.shape[-2:])

    def clock(self, offset_s: float = 0.0, drift: float = 0.0) -> None:
        self._clock = time.time_ns(), int(offset_s * 1e9), drift * 1e-6

    def jitter(self, seconds: float) -> None:
        self._jitter = seconds

    def lose(self, ratio: float) -> None:
        value = _Value()
        pointer = ctypes.POINTER(_Value)
        self._function("g_value_init", ctypes.c_void_p, pointer, ctypes.c_size_t)(value, 15 << 2)  # G_TYPE_DOUBLE
        self._function("g_value_set_double", None, pointer, ctypes.c_double)(value, ratio)
        set_property = self._function("g_object_set_property", None, ctypes.c_void_p, ctypes.c_char_p, pointer)
        set_property(self._device, b"gvsp-lost-ratio", value)

    def set(self, name: str, value: Any) -> None:
        row = self._features[name]
        if row.kind == "string":
            self._write(row.address, str(value).encode().ljust(int(row.high), b"\0"))
            return
        if row.kind in ("float", "rate"):
            value = round(1e6 / value if row.kind == "rate" else value * row.scale)
        number = row.entries[value] if row.kind == "enum" else int(value)
        self._write(row.address, (number & 0xFFFFFFFF).to_bytes(4, "big"))

    def get(self, name: str) -> Any:
        row = self._features[name]
        if row.kind == "string":
            return self._read(row.address, int(row.high)).split(b"\0")[0].decode()
        number = int.from_bytes(self._read(row.address), "big", signed=row.low < 0)
        if "<LSB>16" in row.more:
            number &= 0xFFFF
        if row.kind == "enum":
            return {value: entry for entry, value in row.entries.items()}[number]
        if row.kind in ("float", "rate"):
            return 1e6 / number if row.kind == "rate" else number / row.scale
        return bool(number) if row.kind == "bool" else number

    def sent(self) -> Tuple[int, int, int]:
        return (self._count, *self._last)


def _stay_on_loopback() -> None:
    """Have this process's camera answer broadcasts of the loopback interface alone.

    A client that finds it by way of another interface asks for the stream there, where none arrives if it takes packets
    from the interface itself, as Aravis does for root.
    """
    for descriptor in os.listdir("/proc/self/fd"):
        with suppress(OSError), socket.socket(fileno=os.dup(int(descriptor))) as one:
            if one.getsockname() == ("255.255.255.255", PORT):
                one.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"lo")


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
    os._exit(0)  # the camera's thread does not end by itself


# --------------------------------------------------------------------------------------------------------------- tests


class FakeCamera:
    """A camera in a process of its own; a context manager.

    Args:
        frames: (H, W) or (N, H, W) of uint8, or uint16 with 12 bits, in the sensor's own readout, or an `.npy` file of
            them. A frame with the number k shows image k mod N; the first number is 65401, and 1 follows 65535.
        address: IPv4 address of an interface (`loopback_addresses`).
        serial: Serial number, at most 15 characters.
        model: Model; those that end with Q are color cameras.
        size: (height, width) of the sensor; by default of the frames.
        features: Initial values by name of the feature.
        without: Names of features that the camera lacks.
        offset_increment: Increment of Width, Height, OffsetX and OffsetY.
    """

    def __init__(
        self,
        frames: Union[np.ndarray, str, Path],
        *,
        address: str = "127.0.0.1",
        serial: str = "POL001",
        model: str = "TRI050S-P",
        size: Optional[Tuple[int, int]] = None,
        features: Optional[Dict[str, Any]] = None,
        without: Sequence[str] = (),
        offset_increment: int = 1,
    ) -> None:
        self._folder = tempfile.mkdtemp()
        self._files = 0
        path = self._path(frames)
        self._settings = {
            **{"frames": path, "address": address, "serial": serial, "model": model, "features": features or {}},
            **{"size": size or np.load(path, mmap_mode="r").shape[-2:], "offset_increment": offset_increment},
            "without": list(without),
        }
        self._turn = this_machine()
        self._turn.__enter__()
        try:
            self.start()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> FakeCamera:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Start the camera, again after `kill`, as after a power cut: with its initial values and frames."""
        wait_for_port(self._settings["address"])
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
        command = [sys.executable, __file__, json.dumps(self._settings)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self._process = subprocess.Popen(command, env=environment, text=True, start_new_session=True, **pipes)
        if self._process.stdout.readline() != "ready\n":
            raise RuntimeError("the camera did not start")

    def kill(self) -> None:
        """End the camera's process without warning."""
        self._process.kill()
        self._process.communicate()

    def close(self) -> None:
        """End the camera, and let other processes have theirs."""
        if hasattr(self, "_process"):
            self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)
        self._turn.__exit__(None, None, None)

    def lose(self, ratio: float) -> None:
        """Lose packets of frames from now on, by chance: a ratio from 0 to 1."""
        self._ask("lose", ratio)

    def clock(self, offset_s: float = 0.0, drift: float = 0.0) -> None:
        """Set the clock that frames are stamped with: `offset_s` seconds ahead of the system's now.

        From now on it gains `drift` parts per million; -1e6 stops it. It never reads less than 0.
        """
        self._ask("clock", offset_s, drift)

    def jitter(self, seconds: float) -> None:
        """Delay each frame by a random time up to this, after it is stamped; controls wait as well."""
        self._ask("jitter", seconds)

    def show(self, frames: Union[np.ndarray, str, Path]) -> None:
        """Send other frames of the same sensor from now on."""
        self._ask("show", self._path(frames))

    def set(self, feature: str, value: Any) -> None:
        """Change a feature behind the client's back: a number, a bool, a name of an enumeration or a text."""
        self._ask("set", feature, value)

    def get(self, feature: str) -> Any:
        """Read a feature that has a register, as `set` takes it."""
        return self._ask("get", feature)

    def sent(self) -> Tuple[int, int, int]:
        """Return how many frames were sent, and the number and the timestamp in ns of the last one."""
        count, frame, stamp = self._ask("sent")
        return count, frame, stamp

    def _ask(self, name: str, *arguments: Any) -> Any:
        self._process.stdin.write(json.dumps([name, arguments]) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer["result"]

    def _path(self, frames: Union[np.ndarray, str, Path]) -> str:
        if not isinstance(frames, np.ndarray):
            return str(Path(frames).resolve())
        self._files += 1
        path = Path(self._folder, f"{self._files}.npy")
        np.save(path, frames)
        return str(path)


def missing() -> str:
    """Why there can be no cameras here; empty if there can."""
    try:
        ctypes.CDLL(LIBRARY)
    except OSError:
        return f"{LIBRARY} is not installed"
    return ""


_turns: List[Any] = []


@contextmanager
def this_machine() -> Iterator[None]:
    """Wait until no other process has cameras on this machine, and keep others waiting; may be nested."""
    if not _turns:
        lock = Path(tempfile.gettempdir(), "polar_pipeline_fake_cameras").open("w")
        fcntl.flock(lock, fcntl.LOCK_EX)
        _turns.append(lock)
    _turns.append(None)
    try:
        yield
    finally:
        _turns.pop()
        if len(_turns) == 1:
            _turns.pop().close()


def wait_for_port(address: str) -> None:
    """Wait until nothing listens at a camera's port.

    Raises:
        RuntimeError: Something does, or no interface has the address.
    """
    end = time.monotonic() + PATIENCE
    while True:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            try:
                return probe.bind((address, PORT))
            except OSError as err:
                if time.monotonic() > end:
                    raise RuntimeError(f"port {PORT} of {address}: {err.strerror}") from None
        time.sleep(0.05)


@contextmanager
def loopback_addresses(count: int) -> Iterator[List[str]]:
    """Give the loopback interface addresses for so many cameras; skips the test where that is not allowed."""
    import pytest

    added: List[str] = []
    root = [] if os.geteuid() == 0 else ["sudo", "-n"]
    with this_machine():
        try:
            for k in range(2, count + 1):
                command = [*root, "ip", "address", "add", f"127.0.0.{k}/8", "dev", "lo"]
                if not shutil.which(command[0]) or subprocess.run(command, capture_output=True, check=False).returncode:
                    pytest.skip(f"{' '.join(command)} fails")
                added.append(command[-3])
            yield [f"127.0.0.{k}" for k in range(1, count + 1)]
        finally:
            for address in added:
                subprocess.run([*root, "ip", "address", "del", address, "dev", "lo"], check=True)


if __name__ == "__main__":
    main()
