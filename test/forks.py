"""Programs of this package that begin where ROS and NumPy are imported: copies of a process that has done so.

Importing takes more than half of the time that a short test of the node needs. What a program does from its first line
to its last is the same as in a new process; how libraries are unloaded behind it is not, and is left out.
"""

from __future__ import annotations

import atexit
import gc
import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
import threading
from functools import lru_cache
from pathlib import Path
from typing import Any, Mapping, Optional, Tuple

import pytest
from support import ROOT


class Fork:
    """A copy that runs a program; with the methods of `subprocess.Popen` that tests of processes need.

    Args:
        log: File of its output.
        environment: Its environment variables.
        command: Arguments of Python: `-m` and a module, or a file; then the program's own.
    """

    def __init__(self, log: Path, environment: Mapping[str, str], command: Tuple[str, ...]) -> None:
        with pytest.MonkeyPatch.context() as patch:
            # the server imports from the path that it is started with, and a copy nothing of pytest's own program
            patch.setenv(
                "PYTHONPATH", os.pathsep.join([str(ROOT / "test"), str(ROOT), os.environ.get("PYTHONPATH", "")])
            )
            patch.setattr(sys.modules["__main__"], "__spec__", None)
            patch.delattr(sys.modules["__main__"], "__file__", raising=False)
            self._process = _context().Process(target=_run, args=(str(log), dict(environment), command))
            self._process.start()
        self.pid = self._process.pid or 0

    @property
    def returncode(self) -> Optional[int]:
        """Its exit code, or the negative number of the signal that ended it; None while it runs."""
        return self._process.exitcode

    def poll(self) -> Optional[int]:
        """The same."""
        return self.returncode

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """End it at once."""
        self.send_signal(signal.SIGKILL)

    def wait(self, timeout: Optional[float] = None) -> int:
        """Its exit code.

        Raises:
            subprocess.TimeoutExpired: It runs for longer than `timeout` seconds.
        """
        self._process.join(timeout)
        code = self.returncode
        if code is None:
            raise subprocess.TimeoutExpired(str(self.pid), timeout or 0)
        return code


@lru_cache(maxsize=None)
def _context() -> Any:
    """Starts copies of a server that has imported what the node needs."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["drill", "polar_pipeline.ros.main"])
    return context


def _run(log: str, environment: Mapping[str, str], command: Tuple[str, ...]) -> None:
    """Run a program in a copy, and what Python does at a program's end."""
    output = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    for target in (1, 2):
        os.dup2(output, target)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = list(command[1:] if command[0] == "-m" else command)
    try:
        if command[0] == "-m":
            runpy.run_module(command[1], run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(command[0], run_name="__main__")
    finally:
        for thread in threading.enumerate():
            if thread is not threading.current_thread() and not thread.daemon:
                thread.join()
        atexit._run_exitfuncs()
        gc.collect()  # nodes that hold themselves: until they are destroyed, their shared memory stays
