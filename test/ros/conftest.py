"""Processes of the tests of the node."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Any, Callable, Iterator

import pytest
from support import ended_afterwards


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Start Python with a command as a `drill.Process`; it is ended afterwards."""
    pytest.importorskip("rclpy")
    import drill

    numbers = count()
    yield from ended_afterwards(
        lambda *command: drill.Process(tmp_path / f"{next(numbers)}.log", *command), drill.Process.close
    )


@pytest.fixture
def node(start: Callable[..., Any]) -> Callable[..., Any]:
    """Start the node on the CPU, with arguments of `--ros-args`."""
    command = ("-m", "polar_pipeline.node", "--ros-args", "-p", "backend:=cpu")
    return lambda *arguments: start(*command, *arguments)
