"""Records what comes back of the frames of a benchmark while they are being sent. Imports no ROS."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Dict, List, Sequence

from polar_pipeline import messages
from polar_pipeline.ros.bench_figures import FrameBlock, ProcessUsage
from polar_pipeline.topics import FLOAT32, PRODUCT_TOPICS


@dataclass(frozen=True)
class CameraLoad:
    """How the camera sends: `rate` frames a second, or, with 0, whenever fewer than `in_flight` are unanswered."""

    rate: float = 0.0
    in_flight: int = 1


@dataclass(frozen=True)
class Arrival:
    """A message that the viewer received.

    Attributes:
        topic: Its topic, from the root.
        time_ns: When it arrived, by `time.time_ns`.
        cdr: The message; of an image only the first bytes.
    """

    topic: str
    time_ns: int
    cdr: bytes


def has_stamp(product: str) -> bool:
    """Whether messages of a product carry the stamp of their frame."""
    return PRODUCT_TOPICS[product].message_type != FLOAT32


class BlockRecorder:
    """The frames of a block as they are sent and answered.

    Args:
        products: Products that the viewer subscribes to.
    """

    def __init__(self, products: Sequence[str]) -> None:
        stamped = [product for product in products if has_stamp(product)]
        self.sent: Dict[int, int] = {}
        self.arrived: Dict[str, Dict[int, int]] = {product: {} for product in stamped}
        self.unstamped = {product: 0 for product in products if product not in stamped}
        self.stages: List[Dict[str, float]] = []
        #: Stamp of a frame that may still be answered -> products that have not arrived.
        self.unanswered: Dict[int, int] = {}

    def send(self, stamp: int) -> None:
        """Note that a frame is about to be published."""
        self.unanswered[stamp] = len(self.arrived)
        self.sent[stamp] = time.time_ns()

    def take(self, product: str, arrival: Arrival) -> bool:
        """Note a product that arrived; returns whether it belongs to a frame of this block."""
        if product in self.unstamped:
            self.unstamped[product] += 1
            return True
        stamp = messages.peek_stamp(arrival.cdr)
        if stamp is None or stamp not in self.sent:
            return False
        self.arrived[product][stamp] = arrival.time_ns
        if stamp in self.unanswered:
            self.unanswered[stamp] -= 1
            if not self.unanswered[stamp]:
                del self.unanswered[stamp]
        return True

    def block(self, usage: ProcessUsage, load: CameraLoad) -> FrameBlock:
        """What was recorded."""
        period_ms = 1000 / load.rate if load.rate else math.inf
        return FrameBlock(self.sent, self.arrived, self.unstamped, self.stages, usage, period_ms)
