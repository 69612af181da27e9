"""Servers on this machine for tests: files over HTTP, S3 by moto, and in front of them a proxy that injects faults."""

from __future__ import annotations

import http.client
import http.server
import os
import threading
from collections import deque
from contextlib import ExitStack, contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Deque, Dict, Iterator, List, Tuple, Union

import pytest

#: Seconds between the pieces of a slow response, and their number.
SLOW_S, SLOW_PIECES = 0.25, 8


class Proxy(http.server.ThreadingHTTPServer):
    """Passes requests on to another server, and spoils the responses to some of those for recordings.

    Attributes:
        faults: What to do to the next requests of these methods, in order; "" for nothing.
        always: What to do to all requests for data.
        seen: (method, path) of every request.
        released: Ends responses that wait.
    """

    daemon_threads = True

    def __init__(self, upstream: Tuple[str, int]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.upstream = upstream
        self.faults: Dict[str, Deque[str]] = {"GET": deque(), "HEAD": deque()}
        self.always = ""
        self.seen: List[Tuple[str, str]] = []
        self.released = threading.Event()

    def handle_error(self, *_: Any) -> None:
        """Clients that hang up are part of the tests."""

    def fetched(self) -> int:
        """How often a recording's bytes were requested."""
        return sum(method == "GET" and is_data(path) for method, path in self.seen)


def is_data(path: str) -> bool:
    return ".mcap" in path and "list-type" not in path


class Handler(http.server.BaseHTTPRequestHandler):
    server: Proxy

    def _pass_on(self) -> None:
        upstream = http.client.HTTPConnection(*self.server.upstream, timeout=30)
        upstream.request(self.command, self.path, headers=dict(self.headers.items()))
        response = upstream.getresponse()
        data = response.read()
        upstream.close()
        self.server.seen.append((self.command, self.path))
        fault = ""
        if is_data(self.path) and self.command in self.server.faults:
            waiting = self.server.faults[self.command]
            fault = waiting.popleft() if waiting else self.server.always if self.command == "GET" else ""
        if fault.isdigit():
            self.send_response(int(fault))
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        half = len(data) // 2
        data = {"short": data[:half], "long": data * 2}.get(fault, data)
        self.send_response(response.status)
        for name, value in response.getheaders():
            if name.lower() not in ("content-length", "connection", "transfer-encoding", "server", "date"):
                self.send_header(name, value)
        length = str(len(data)) if self.command == "GET" else response.getheader("Content-Length", "0")
        self.send_header("Content-Length", length)
        self.end_headers()
        if fault in ("break", "stall"):
            self.wfile.write(data[:half])
            self.wfile.flush()
            if fault == "stall":
                self.server.released.wait(30)
        elif fault == "slow":
            step = len(data) // SLOW_PIECES + 1
            for begin in range(0, len(data), step):
                self.wfile.write(data[begin : begin + step])
                self.wfile.flush()
                self.server.released.wait(SLOW_S)
        elif self.command != "HEAD":
            self.wfile.write(data)

    do_GET = do_HEAD = _pass_on  # noqa: N815 - the names of http.server

    def log_message(self, *_: Any) -> None:
        """Keep quiet."""


class Files(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Keep quiet."""


@contextmanager
def served(server: http.server.HTTPServer) -> Iterator[Tuple[str, int]]:
    """The address of a server while it runs."""
    with server:
        threading.Thread(target=server.serve_forever, args=(0.01,)).start()
        try:
            yield server.server_address[0], server.server_address[1]  # type: ignore[misc]
        finally:
            server.shutdown()


class WebStorage:
    """A folder on a web server, behind a proxy; `root` is its URL."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        folder.mkdir()
        files = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Files, directory=str(folder)))
        files.daemon_threads = True
        self.proxy = Proxy(stack.enter_context(served(files)))
        host, port = stack.enter_context(served(self.proxy))
        stack.callback(self.proxy.released.set)
        self.root, self._folder = f"http://{host}:{port}", folder

    def put(self, name: str, data: bytes) -> str:
        """Store a file; its URL."""
        path = self._folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return f"{self.root}/{name}"

    def remove(self, name: str) -> None:
        (self._folder / name).unlink()

    def age(self, name: str) -> None:
        """Make a file appear newer: its version is its time in seconds."""
        path = self._folder / name
        later = path.stat().st_mtime + 10
        os.utime(str(path), (later, later))


class S3Storage:
    """A bucket of a server of S3, behind a proxy, as `WebStorage`."""

    def __init__(self, server: Tuple[str, int], patch: pytest.MonkeyPatch, stack: ExitStack) -> None:
        config, fsspec = import_module("fsspec.config"), import_module("fsspec")
        self.proxy = Proxy(server)
        host, port = stack.enter_context(served(self.proxy))
        stack.callback(self.proxy.released.set)
        settings = {"key": "k", "secret": "s", "endpoint_url": f"http://{host}:{port}"}
        patch.setitem(config.conf, "s3", settings)
        for name, value in settings.items():  # of processes that are started later
            patch.setenv(f"FSSPEC_S3_{name.upper()}", value)
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        self._bucket = f"fleet{port}"  # the server keeps what earlier tests stored
        self._fs = fsspec.filesystem("s3", endpoint_url=f"http://{server[0]}:{server[1]}")
        self._fs.mkdir(self._bucket)
        self.root = f"s3://{self._bucket}"

    def put(self, name: str, data: bytes) -> str:
        self._fs.pipe_file(f"{self._bucket}/{name}", data)
        return f"{self.root}/{name}"

    def remove(self, name: str) -> None:
        self._fs.rm_file(f"{self._bucket}/{name}")

    def age(self, name: str) -> None:
        """Do nothing: another content has another etag."""


Storage = Union[WebStorage, S3Storage]
