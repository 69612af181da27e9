"""The fault drill for GPUs: a stand-in for the driver fails under the real node, over real rclpy and DDS.

The stand-in runs the real kernels through the host harness (`test_backend.HostDriver`), so no GPU is needed.
"""
# ruff: noqa: E402 - rclpy may be missing

from __future__ import annotations

import threading
import time
from functools import partial
from typing import Any, Callable, Iterator, List

import pytest

rclpy = pytest.importorskip("rclpy")

import drill
from harness import COMPILER
from rclpy.parameter import Parameter
from support import ended_afterwards, wait_for
from test_backend import HostDriver

from polar_pipeline._util.stop_flag import StopFlag
from polar_pipeline.backends.backend import DeviceError
from polar_pipeline.backends.cuda import backend
from polar_pipeline.backends.cuda.device import DEVICES
from polar_pipeline.options import Options
from polar_pipeline.ros.main import run
from polar_pipeline.ros.node import PolarNode

pytestmark = pytest.mark.ros
#: What may be wrong with the GPU, and what is said about it.
FAULTS = {"memory": "cannot be had", "lost": "the GPU was lost", "launch": "LAUNCH_OUT_OF_RESOURCES"}


class FailingDriver(HostDriver):
    """The stand-in for a GPU, for the two threads of a node, with faults."""

    def __init__(self) -> None:
        super().__init__(DEVICES["xavier"])
        self._fault = ""
        self._lock = threading.RLock()
        for name in ("malloc", "free", "host_array", "make_stream", "wait"):
            setattr(self, name, partial(self._alone, getattr(self, name)))

    def _alone(self, method: Callable[..., Any], *arguments: Any) -> Any:
        """Call a method in one thread at a time."""
        with self._lock:
            return method(*arguments)

    def fail(self, fault: str) -> None:
        """From now on `memory` (nothing can be had), `lost`, `launch` (no kernel starts), or "": it works again."""
        self._fault = fault
        self.lost = fault == "lost"
        self.capacity = 0 if fault == "memory" else 1 << 30

    def launch(self, *arguments: Any) -> None:
        if self._fault == "launch":
            raise DeviceError("a call to the GPU failed: CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES")
        super().launch(*arguments)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[FailingDriver]:
    """A GPU for the nodes of this process."""
    if COMPILER is None:
        pytest.skip("needs a C++ compiler")
    driver = FailingDriver()
    monkeypatch.setattr("polar_pipeline.backends.cuda.backend.Driver", lambda: driver)
    # what the node prepares for
    monkeypatch.setattr(Options, "largest_frame", lambda _: drill.VARIANTS[0][1])
    monkeypatch.setattr("polar_pipeline.live.pipelines.RETRY_PERIOD", 0.5)
    backend.problem.cache_clear()
    yield driver
    backend.problem.cache_clear()


@pytest.fixture
def hosted(gpu: FailingDriver, peer: drill.Peer) -> Iterator[Callable[..., Any]]:
    """Make a node in this process."""

    def make(**parameters: Any) -> Any:
        overrides = [Parameter(name, value=value) for name, value in parameters.items()]
        node = PolarNode(context=peer.context, parameter_overrides=overrides)
        peer.spinner.add(node)
        return node

    def end(node: Any) -> None:
        gpu.fail("")
        peer.spinner.end(node)

    yield from ended_afterwards(make, end)
    assert not gpu.on_device, "device memory was left behind"


def recover(peer: drill.Peer) -> None:
    """Send frames until the node says that they are computed on the GPU."""
    peer.reports.clear()

    def recovered() -> bool:
        peer.advance("intensity")
        return any(row.message.startswith("cuda (") for report in list(peer.reports) for row in report.status)

    wait_for(recovered, "the GPU")


@pytest.mark.parametrize("fault", FAULTS)
def test_the_cpu_takes_over_until_the_gpu_works(gpu: FailingDriver, hosted: Any, peer: drill.Peer, fault: str) -> None:
    hosted()
    peer.listen("intensity")
    peer.advance("intensity")
    peer.says("pipeline", "cuda (stand-in")
    gpu.fail(fault)
    peer.advance("intensity", variant=1)  # another format, which needs memory of its own
    assert FAULTS[fault] in peer.says("pipeline", "the CPU took over: ").message
    peer.says("frames", "last error=device: ")
    change = peer.change(min_intensity=0.02)
    wait_for(change.done, "the answer")
    assert change.result().result.successful, change.result()
    for _ in range(10):
        peer.advance("intensity", variant=1)
    gpu.fail("")
    recover(peer)
    peer.advance("intensity")
    drill.check(peer.heard, levels=1)


def test_the_next_frame_tries_again(gpu: FailingDriver, hosted: Any, peer: drill.Peer) -> None:
    hosted(on_device_error="retry")
    peer.listen("intensity")
    peer.advance("intensity")
    gpu.fail("lost")
    for _ in range(5):  # more than can be under way
        peer.send(variant=1)
        time.sleep(0.05)
    assert FAULTS["lost"] in peer.says("pipeline", "the next frame tries again: ").message
    gpu.fail("")
    peer.advance("intensity", variant=1)
    peer.reports.clear()
    peer.says("pipeline", "cuda (")
    drill.check(peer.heard, levels=1)


def test_the_node_ends(gpu: FailingDriver, peer: drill.Peer) -> None:
    codes: List[int] = []
    arguments = ["node", "--ros-args", "-p", "on_device_error:=stop"]
    thread = threading.Thread(target=lambda: codes.append(run(arguments, StopFlag())))
    thread.start()
    peer.listen("intensity")
    peer.advance("intensity")
    gpu.fail("lost")
    wait_for(lambda: peer.send() and codes, "the end of the node")
    thread.join()
    assert codes == [1]
    drill.check(peer.heard, levels=1)


def test_a_gpu_that_fails_at_the_start(gpu: FailingDriver, hosted: Any, peer: drill.Peer) -> None:
    gpu.fail("memory")
    hosted(on_device_error="cpu", backend="cuda")
    peer.listen("intensity")
    assert FAULTS["memory"] in peer.says("pipeline", "the CPU took over: ").message
    peer.advance("intensity")
    gpu.fail("")
    recover(peer)
    drill.check(peer.heard, levels=1)


def test_a_gpu_that_fails_at_the_start_and_must_not(gpu: FailingDriver, hosted: Any) -> None:
    gpu.fail("memory")
    with pytest.raises(DeviceError, match="cannot be had"):
        hosted(on_device_error="stop", backend="cuda")
