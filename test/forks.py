"""Programs of this package that begin where ROS and NumPy are imported: copies of a process that has done so.

Importing takes more than half of the time that a short test of the node needs. What a program does from its first line
to its last is the same as in a new process; how libraries are unloaded behind it is not, and is left out. As a program,
this is the process that is copied:

python forks.py

It reads a line of JSON for each copy, [file of its output, environment, arguments of Python], and writes its number.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import json
import os
import runpy
import signal
import subprocess
import sys
import threading
import time
import traceback
from functools import lru_cache
from pathlib import Path
from typing import List, Mapping, Optional, Tuple

from support import ROOT

#: Number of Linux's `prctl` by which a process becomes the parent of orphans below it.
SUBREAPER = 36


class Fork:
    """A copy that runs a program; with the methods of `subprocess.Popen` that tests of processes need. Needs Linux.

    Args:
        log: File of its output.
        environment: Its environment variables.
        command: Arguments of Python: `-m` and a module, or a file; then the program's own.
    """

    def __init__(self, log: Path, environment: Mapping[str, str], command: Tuple[str, ...]) -> None:
        server, prctl = _server(), ctypes.CDLL(None).prctl
        assert server.stdin is not None
        assert server.stdout is not None
        prctl(SUBREAPER, 1, 0, 0, 0)  # so that it can be waited for here; other orphans are none of ours
        server.stdin.write(json.dumps([str(log), dict(environment), command]) + "\n")
        server.stdin.flush()
        self.pid = int(server.stdout.readline())
        prctl(SUBREAPER, 0, 0, 0, 0)
        self.returncode: Optional[int] = None

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """End it at once."""
        self.send_signal(signal.SIGKILL)

    def poll(self) -> Optional[int]:
        """Its exit code, or the negative number of the signal that ended it; None while it runs."""
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
        return self.returncode

    def wait(self, timeout: Optional[float] = None) -> int:
        """Its exit code.

        Raises:
            subprocess.TimeoutExpired: It runs for longer than `timeout` seconds.
        """
        end = None if timeout is None else time.monotonic() + timeout
        while self.poll() is None:
            if end is not None and time.monotonic() > end:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0)
            time.sleep(0.005)
        assert self.returncode is not None
        return self.returncode


@lru_cache(maxsize=None)
def _server() -> subprocess.Popen[str]:
    """The process that is copied, which ends with this one."""
    return subprocess.Popen(
        [sys.executable, __file__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])},
    )


# -------------------------------------------------------------------------------------------------- as another process


def _copy(log: str, environment: Mapping[str, str], command: List[str]) -> int:
    """The number of a copy that runs the command; 0 in the copy. Its parent is whoever adopts orphans."""
    reading, writing = os.pipe()
    middle = os.fork()
    if middle:
        os.close(writing)
        with os.fdopen(reading) as stream:
            copy = int(stream.read())
        os.waitpid(middle, 0)
        return copy
    os.close(reading)
    copy = os.fork()
    if copy:
        os.write(writing, str(copy).encode())
        os._exit(0)
    os.close(writing)
    output = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for target, source in ((0, nothing), (1, output), (2, output)):
        os.dup2(source, target)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = command[1:] if command[0] == "-m" else command
    return 0


def _serve() -> List[str]:
    """Make copies for as long as they are asked for; in a copy, gives the arguments of Python."""
    for line in sys.stdin:
        log, environment, command = json.loads(line)
        copy = _copy(log, environment, command)
        if not copy:
            return list(command)
        print(copy, flush=True)
    return []


def _run(program: str) -> int:
    """The exit code of a program whose arguments are in `sys.argv`, after all that Python does at its end."""
    code: object = 0
    try:
        if program == "-m":
            runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(program, run_name="__main__")
    except SystemExit as err:
        code = err.code
    except BaseException:  # noqa: BLE001 - shown as Python would
        traceback.print_exc()
        code = 1
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    atexit._run_exitfuncs()
    gc.collect()  # nodes that hold themselves: until they are destroyed, their shared memory stays
    if isinstance(code, str):
        print(code, file=sys.stderr)
    sys.stdout.flush()
    sys.stderr.flush()
    return code if isinstance(code, int) else int(code is not None)


if __name__ == "__main__":
    import drill  # noqa: F401

    import polar_pipeline.ros.main  # noqa: F401
    from polar_pipeline.messages import typestore

    typestore()  # which imports a tenth of all, when the first message is made
    todo = _serve()
    if todo:
        os._exit(_run(todo[0]))
