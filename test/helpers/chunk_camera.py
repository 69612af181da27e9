"""A GigE Vision camera on loopback that sends chunks and can misbehave; in threads of the test, without Aravis.

It has the features of `fake_camera`. A frame's exposure is the one in the register when it begins.
"""

from __future__ import annotations

import random
import socket
import struct
import threading
import time
from contextlib import ExitStack
from typing import Any, Callable, Dict, NamedTuple, Optional

import numpy as np
from fake_camera import PORT, Feature, camera_features, genicam, this_machine, wait_for_port

#: Chunks by name: number, and format of the value.
CHUNKS = {"Image": (1, ""), "ExposureTime": (2, ">d"), "Gain": (3, ">d"), "Timestamp": (4, ">Q"), "FrameID": (5, ">Q")}
#: Addresses of the camera's description and of registers of GigE Vision.
_XML, _URL, _BIG_ENDIAN, _STREAMS, _HOST_PORT, _PACKET, _HOST = 0x10000, 0x200, 4, 0x904, 0xD00, 0xD04, 0xD18
#: Seconds from the end of an exposure until the frame is sent.
_READOUT = 0.002


class Sent(NamedTuple):
    """What is true of a frame: time by this computer in nanoseconds when its exposure began, microseconds, and dB."""

    start_ns: int
    exposure_us: float
    gain_db: float = 0.0


#: Address of the register by which a client takes control.
_CONTROL = struct.pack(">I", 0xA00)


class ChunkCamera:
    """A camera; a context manager.

    Args:
        picture: (H, W) uint8, which every frame shows.
        rate: Frames per second.
        has_chunks: Whether it has features of chunks.
        payload: Type of the payload of frames with chunks.
        steps: Exposure times in microseconds; each frame has another one of them by chance.
        delay: Seconds by which acknowledgements of commands are late.

    Attributes:
        render: Picture of a frame by its exposure time in microseconds and its gain in dB; by default `picture`.
        sent: Truth of each frame, by its number in `FrameID` and, without chunks, that of its block.
        silence: Number of commands from now on that are executed without an acknowledgement.
        missing_columns: Columns by which frames are said to be narrower than they are set to.
    """

    def __init__(
        self,
        picture: np.ndarray,
        *,
        rate: float = 50.0,
        has_chunks: bool = True,
        payload: int = 0x4001,
        steps: Optional[Any] = None,
        delay: float = 0.0,
    ) -> None:
        self.render: Callable[[float, float], np.ndarray] = lambda *_: picture
        self._delay = delay
        self.sent: Dict[int, Sent] = {}
        self.silence = self.missing_columns = 0
        self._picture, self._rate, self._payload, self._steps = picture, rate, payload, steps
        self._enabled = {"Image"}
        height, width = picture.shape
        features = camera_features("TRI050S-P", "CHUNK1", (height, width), 1)
        more = ""
        if has_chunks:
            entries = " ".join(f"{name} {number}" for name, (number, _) in CHUNKS.items())
            for row in (
                Feature("ChunkModeActive", "bool", False, 0x4000),
                Feature("ChunkSelector", "enum", "Image", 0x4004, entries=entries),
                Feature("ChunkEnable", "bool", True, 0x4008),
            ):
                features[row.name] = row
            more = "".join(_chunk_nodes(name) for name in CHUNKS if name != "Image")
        features["PayloadSize"] = Feature("PayloadSize", "int", picture.size, 0x400C)
        self._features = features
        text = genicam(features, ()).replace("</RegisterDescription>", f"{more}</RegisterDescription>").encode()
        self._memory = bytearray(_XML + len(text) + 8)
        self._memory[_XML : _XML + len(text)] = text
        self._write(_URL, f"Local:camera.xml;{_XML:x};{len(text):x}".encode().ljust(512, b"\0"))
        self._write(_BIG_ENDIAN, (0x80000001).to_bytes(4, "big"))
        self._write(_STREAMS, (1).to_bytes(4, "big"))
        for row in features.values():
            if row.kind not in ("command", "formula"):
                self._write(row.address, row.encode(row.value))
        with ExitStack() as stack:
            stack.enter_context(this_machine())
            wait_for_port("127.0.0.1")
            self._control, self._stream = (
                stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) for _ in range(2)
            )
            self._control.bind(("127.0.0.1", PORT))
            self._control.settimeout(0.05)
            self._closing = threading.Event()
            threads = [threading.Thread(target=run) for run in (self._answer, self._send)]
            for thread in threads:
                thread.start()
                stack.callback(thread.join)
            stack.callback(self._closing.set)
            self._stack = stack.pop_all()

    def __enter__(self) -> ChunkCamera:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def get(self, feature: str) -> Any:
        """Read a feature."""
        row = self._features[feature]
        return row.decode(bytes(self._memory[row.address : row.address + 4]))

    def set(self, feature: str, value: Any) -> None:
        """Change a feature behind the client's back."""
        row = self._features[feature]
        self._write(row.address, row.encode(value))

    def _write(self, address: int, data: bytes) -> None:
        self._memory[address : address + len(data)] = data

    def _register(self, address: int) -> int:
        return int.from_bytes(self._memory[address : address + 4], "big")

    def _command(self, address: int, data: bytes) -> None:
        """Write what a client writes, and what follows from it."""
        self._write(address, data)
        if "ChunkSelector" not in self._features:
            return
        selected = self.get("ChunkSelector")
        if address == self._features["ChunkEnable"].address:
            (self._enabled.add if self.get("ChunkEnable") else self._enabled.discard)(selected)
        self.set("ChunkEnable", selected in self._enabled)
        chunks = 8 * (2 * len(self._enabled) - 1) if self.get("ChunkModeActive") else 0
        self.set("PayloadSize", self._picture.size + chunks)

    def _answer(self) -> None:
        """Answer commands of GigE Vision's control protocol; only who controls the camera may write."""
        controller = None  # where its commands come from; a client of an earlier camera here may still write
        while not self._closing.is_set():
            try:
                data, client = self._control.recvfrom(1024)
            except socket.timeout:
                continue
            _, flags, command, _, number = struct.unpack(">BBHHH", data[:8])
            body, answer = data[8:], b""
            if command == 0x82 and body[:4] == _CONTROL and controller in (None, client):
                controller = client if any(body[4:8]) else None
                self._write(0xA00, body[4:8])
            elif command in (0x82, 0x86) and client != controller:
                continue
            if command == 0x02:
                answer = bytes(self._memory[:0xF8])
            elif command == 0x80:
                places = (place for (place,) in struct.iter_unpack(">I", body))
                answer = b"".join(bytes(self._memory[place : place + 4]) for place in places)
            elif command == 0x82:
                for place, value in struct.iter_unpack(">I4s", body):
                    self._command(place, value)
                answer = struct.pack(">HH", 0, len(body) // 8)
            elif command == 0x84:
                place, size = struct.unpack(">IxxH", body)
                answer = body[:4] + bytes(self._memory[place : place + size])
            elif command == 0x86:
                self._command(int.from_bytes(body[:4], "big"), body[4:])
                answer = struct.pack(">HH", 0, len(body) - 4)
            time.sleep(self._delay)
            if self.silence:
                self.silence -= 1
            elif flags & 1:
                self._control.sendto(struct.pack(">HHHH", 0, command + 1, len(answer), number) + answer, client)

    def _send(self) -> None:
        """Send frames while acquisition is on."""
        chance, number, due = random.Random(5), 70_000, 0
        while not self._closing.is_set():
            if not self._register(0x124) or not self._register(_HOST_PORT):
                self._closing.wait(0.002)
                due = time.time_ns()
                continue
            due += int(1e9 / self._rate)
            if self._steps is not None:
                self.set("ExposureTime", float(chance.choice(self._steps)))
            exposure_us, gain_db = self.get("ExposureTime"), self.get("Gain")
            time.sleep(max(0.0, (due - time.time_ns()) / 1e9 + exposure_us / 1e6 + _READOUT))
            number += 1
            self._send_frame(number, Sent(due, exposure_us, gain_db))

    def _send_frame(self, number: int, sent: Sent) -> None:
        block = number % 0xFFFF + 1
        is_chunked = "ChunkModeActive" in self._features and self.get("ChunkModeActive")
        self.sent[number if is_chunked else block] = sent
        device_ns, data = sent.start_ns - 10**18, self.render(*sent[1:]).tobytes()  # a clock that is far behind
        payload = self._payload if is_chunked else 1
        if is_chunked:
            values = {"ExposureTime": sent.exposure_us, "Gain": sent.gain_db, "Timestamp": device_ns}
            data += struct.pack(">II", CHUNKS["Image"][0], len(data))
            for name in (name for name in CHUNKS if name in self._enabled and name != "Image"):
                data += struct.pack(CHUNKS[name][1] + "II", values.get(name, number), CHUNKS[name][0], 8)
        leader = struct.pack(">HHQ", 0, payload, device_ns)
        if payload != 4:
            height, width = self._picture.shape
            code = self._register(self._features["PixelFormat"].address)
            leader += struct.pack(">IIIIIHH", code, width - self.missing_columns, height, 0, 0, 0, 0)
        size = (self._register(_PACKET) & 0xFFFF) - 36
        parts = [data[start : start + size] for start in range(0, len(data), size)]
        trailer = struct.pack(">HHI", 0, payload, self._picture.shape[0])
        host = socket.inet_ntoa(self._memory[_HOST : _HOST + 4]), self._register(_HOST_PORT) & 0xFFFF
        if not host[1]:  # the client has just left
            return
        for index, part in enumerate([leader, *parts, trailer]):
            kind = 1 if not index else 2 if index > len(parts) else 3
            self._stream.sendto(struct.pack(">HHI", 0, block, kind << 24 | index) + part, host)


def _chunk_nodes(name: str) -> str:
    """Return the description of a chunk's value."""
    number, form = CHUNKS[name]
    kind, register = ("Float", "FloatReg") if form == ">d" else ("Integer", "IntReg")
    return (
        f'<Port Name="Chunk{name}Port"><ChunkID>{number:08x}</ChunkID></Port>'
        f'<{register} Name="Chunk{name}Register"><Address>0</Address><Length>8</Length><AccessMode>RO</AccessMode>'
        f"<pPort>Chunk{name}Port</pPort><Cachable>NoCache</Cachable><Endianess>BigEndian</Endianess></{register}>"
        f'<{kind} Name="Chunk{name}"><pValue>Chunk{name}Register</pValue></{kind}>'
    )
