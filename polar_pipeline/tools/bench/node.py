"""Measurement of the node as a robot runs it: between a camera and a viewer, over the real middleware."""

from __future__ import annotations

import os
import sys
from typing import Any, Callable, Dict, List, Sequence, Tuple

import numpy as np
from rclpy.node import Node

from polar_pipeline.recordings import messages
from polar_pipeline.ros.fast_dds import transport_checks, transport_environment
from polar_pipeline.sensor.forward import expose
from polar_pipeline.sensor.mosaic import get_sensor
from polar_pipeline.tools.bench.figures import has_stamp, summarize
from polar_pipeline.tools.bench.rig import BenchRig, CameraLoad, Contender

#: Different frames, sent in turn, so that caches do not help.
FRAMES = 8
#: Domains of measurements: their ports lie above those that Linux gives to any connection, and robots use low ones.
DOMAINS = range(215, 232)
#: Frames unanswered at once when the camera goes as fast as the node: one at work, and the next.
IN_FLIGHT = 2


def own_node(name: str, backend: str, sensor: str = "IMX250MZR") -> Contender:
    """Return this package's node."""
    parameters = ("-p", f"backend:={backend}", "-p", f"sensor:={sensor}")
    return Contender(name, (sys.executable, "-m", "polar_pipeline.node", "--ros-args", *parameters))


def isolate() -> None:
    """Keep this process and its children apart from other nodes, with transport for large frames.

    Call it before `rclpy.init`; it changes the environment.
    """
    others = [number for number in DOMAINS if str(number) != os.environ.get("ROS_DOMAIN_ID")]
    os.environ["ROS_DOMAIN_ID"] = str(others[os.getpid() % len(others)])
    # by what is installed: wheels set no ROS_DISTRO. Iron's rclpy has both, the method and the range.
    knows_range = hasattr(Node, "add_post_set_parameters_callback")
    os.environ.update({"ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST"} if knows_range else {"ROS_LOCALHOST_ONLY": "1"})
    os.environ.update(transport_environment())


def raw_frames(sensor: str, size: Tuple[int, int]) -> List[bytes]:
    """Serialize 8-bit frames of polarized waves with noise; size is (width, height)."""
    row = get_sensor(sensor)
    rng = np.random.default_rng(0)
    y, x = np.meshgrid(np.arange(size[1]) / 50, np.arange(size[0]) / 50, indexing="ij")
    light = 0.8 + 0.6 * np.sin(x) * np.cos(7 * y)
    polarized = 0.4 * light * (1 + np.sin(y))
    stokes = np.stack([light, polarized * np.cos(x), polarized * np.sin(x)], -1)
    if row.is_color:
        stokes = np.stack([share * stokes for share in (0.8, 1.0, 0.6)], 2)
    raws = [expose(stokes, row, 8, 10_000, 2.0, rng) for _ in range(FRAMES)]
    return [bytes(messages.encode_image(0, "camera", "mono8", raw)) for raw in raws]


def measure(
    backend: str,
    sensor: str,
    size: Tuple[int, int],
    products: Sequence[str],
    rate: float,
    seconds: float,
    say: Callable[[str], None] = lambda _: None,
) -> Dict[str, Dict[str, Any]]:
    """Measure this package's node on this machine: at a camera's rate, and at full speed.

    Args:
        backend: Parameter `backend` of the node.
        sensor: Parameter `sensor` of the node.
        size: (width, height) of the raw frames, 8 bit.
        products: Products to subscribe to.
        rate: Frames per second.
        seconds: Duration of each measurement.
        say: Takes lines about what is done and waited for.

    Returns:
        Load (`camera`, `fastest`) -> its figures by `summarize`, and `dropped`: cause -> frames that the node dropped.

    Raises:
        RuntimeError: The node does not start, or no product has a stamp by which its frame is known.
    """
    if not any(map(has_stamp, products)):
        raise RuntimeError(
            f"at least one product must be an image, whose stamp tells its frame; got {', '.join(products)}"
        )
    isolate()
    for check in transport_checks():
        if check.state == "problem":
            say(f"{check.topic}: {check.text}")
    report: Dict[str, Dict[str, Any]] = {}
    with BenchRig(own_node("bench", backend, sensor), products, raw_frames(sensor, size)) as rig:
        rig.wait_ready(say)
        before = rig.drops()
        for load, how in (("camera", CameraLoad(rate)), ("fastest", CameraLoad(in_flight=IN_FLIGHT))):
            say(f"measures {load}, {seconds:g} s")
            figures = summarize([rig.block(how, seconds)])
            after = rig.drops()
            dropped = {cause: count - before.get(cause, 0) for cause, count in after.items()}
            report[load] = {**figures, "dropped": {cause: count for cause, count in dropped.items() if count}}
            before = after
    return report
