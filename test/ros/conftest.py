"""Processes of the tests of the node."""

from __future__ import annotations

from typing import Any, Callable

import pytest


@pytest.fixture
def node(start: Callable[..., Any]) -> Callable[..., Any]:
    """Start the node on the CPU, with arguments of `--ros-args`."""
    command = ("-m", "polar_pipeline.node", "--ros-args", "-p", "backend:=cpu")
    return lambda *arguments: start(*command, *arguments)


@pytest.fixture
def managed(start: Callable[..., Any]) -> Callable[..., Any]:
    """Start the managed node on the CPU, with arguments of `--ros-args`."""
    command = ("-m", "polar_pipeline.node", "--lifecycle", "--ros-args", "-p", "backend:=cpu")
    return lambda *arguments: start(*command, *arguments)
