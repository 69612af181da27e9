"""Processes of the tests of the node."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable, Iterator, List

import pytest


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Start Python with a command as a `drill.Process`; it is ended afterwards."""
    pytest.importorskip("rclpy")
    import drill

    started: List[drill.Process] = []

    def make(*command: str) -> drill.Process:
        started.append(drill.Process(tmp_path / f"{len(started)}.log", *command))
        return started[-1]

    yield make
    for process in started:
        process.close()


@pytest.fixture
def node(start: Callable[..., Any]) -> Callable[..., Any]:
    """Start the node on the CPU, with arguments of `--ros-args`."""
    command = ("-m", "polar_pipeline.node", "--ros-args", "-p", "backend:=cpu")
    return lambda *arguments: start(*command, *arguments)
