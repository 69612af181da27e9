"""Figures of a stream of frames through a node: rates, missed frames, latency and jitter. Imports no ROS.

Fields in capitals are named and defined as `BasicPerformanceMetrics` of ros2_benchmark, which isaac_ros_benchmark
writes; a frame has arrived when its last product has. Rates and jitter are taken within blocks, never across the pause
between two. All times are milliseconds of one clock.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional, Sequence

import numpy as np

from polar_pipeline.options.topics import FLOAT32, PRODUCT_TOPICS
from polar_pipeline.quality.latency import percentiles
from polar_pipeline.recordings import messages


def has_stamp(product: str) -> bool:
    """Return whether messages of a product carry the stamp of their frame."""
    return PRODUCT_TOPICS[product].message_type != FLOAT32


@dataclass
class FrameBlock:
    """Frames that were sent without a pause, and the messages that came back.

    Attributes:
        arrived: Product -> stamp -> when it reached the viewer, in nanoseconds; every product asked for has an entry.
        unstamped: Product without a stamp -> how many arrived.
        period_ms: From one frame to the next; infinite where the next one waits for an answer.
        sent: Stamp -> when the frame was given to the middleware, in nanoseconds, oldest first.
        unanswered: Stamp of a frame that may still be answered -> how many products have not arrived.
        stages: Times that the node published, frame by frame: stage -> milliseconds.
        cpu_ms: CPU time of the node's process, of all cores.
        page_faults: Pages of memory mapped for the node's process; a fresh buffer of 5 MB takes 1224.
    """

    arrived: Dict[str, Dict[int, int]]
    unstamped: Dict[str, int]
    period_ms: float = math.inf
    sent: Dict[int, int] = field(default_factory=dict)
    unanswered: Dict[int, int] = field(default_factory=dict)
    stages: List[Dict[str, float]] = field(default_factory=list)
    cpu_ms: float = 0.0
    page_faults: int = 0

    @staticmethod
    def of(products: Sequence[str], rate: float = 0.0) -> FrameBlock:
        """Make an empty block for a viewer of these products and a camera of `rate` frames a second (0: no rate)."""
        return FrameBlock(
            {product: {} for product in products if has_stamp(product)},
            {product: 0 for product in products if not has_stamp(product)},
            1000 / rate if rate else math.inf,
        )

    def send(self, stamp: int) -> None:
        """Note that a frame is about to be published."""
        self.unanswered[stamp] = len(self.arrived)
        self.sent[stamp] = time.time_ns()

    def take(self, product: str, time_ns: int, cdr: bytes) -> bool:
        """Record the arrival of a product, and return whether it belongs to a frame of this block."""
        if product in self.unstamped:
            self.unstamped[product] += 1
            return True
        stamp = messages.peek_stamp(cdr)
        if stamp is None or stamp not in self.sent:
            return False
        self.arrived[product][stamp] = time_ns
        if stamp in self.unanswered:
            self.unanswered[stamp] -= 1
            if not self.unanswered[stamp]:
                del self.unanswered[stamp]
        return True

    def complete(self) -> Dict[int, int]:
        """Return the arrival of the last product by stamp, for complete frames in the order of arrival."""
        stamps = set(self.sent).intersection(*self.arrived.values()) if self.arrived else set()
        ends = {stamp: max(times[stamp] for times in self.arrived.values()) for stamp in stamps}
        return dict(sorted(ends.items(), key=lambda item: item[1]))

    def latencies(self, product: Optional[str] = None) -> List[float]:
        """Return the milliseconds until a product, or the last product, arrived."""
        times = self.complete() if product is None else self.arrived[product]
        return [(end - self.sent[stamp]) / 1e6 for stamp, end in times.items()]


def summarize(blocks: Sequence[FrameBlock]) -> Dict[str, Any]:
    """Summarize all blocks of one node at one load; figures without messages are left out.

    Returns:
        Besides the fields of ros2_benchmark: `missed`: product -> frames without it. `latency_ms`: product ->
        percentiles; `frame`: until the last product. `stages_ms`: stage -> percentiles, as the node itself measured
        them. `late`: frames that were in the node for longer than a frame period. `cpu_ms_per_frame` and
        `page_faults_per_frame` of the node's process.
    """
    gaps = [np.diff(list(block.complete().values())) / 1e6 for block in blocks]
    times = {name: [t for block in blocks for t in block.latencies(name)] for name in blocks[0].arrived}
    latencies = [t for block in blocks for t in block.latencies()]
    jitter = np.concatenate([np.abs(np.diff(gap)) for gap in gaps])
    frames = sum(len(block.sent) for block in blocks)
    report: Dict[str, Any] = {
        "NUM_FRAMES_SENT": frames,
        "NUM_MISSED_FRAMES": frames - len(latencies),
        "MEAN_PLAYBACK_FRAME_RATE": _rate([np.diff(list(block.sent.values())) / 1e6 for block in blocks]),
        "MEAN_FRAME_RATE": _rate(gaps),
        "RECEIVED_DURATION": _round(sum(gap.sum() for gap in gaps)),
    }
    if latencies:
        least, most = min(latencies), max(latencies)
        report.update(MEAN_LATENCY=_round(np.mean(latencies)), MIN_LATENCY=_round(least), MAX_LATENCY=_round(most))
    if jitter.size:
        report.update(MEAN_JITTER=_round(jitter.mean()), STD_DEV_JITTER=_round(jitter.std()))
        report.update(MIN_JITTER=_round(jitter.min()), MAX_JITTER=_round(jitter.max()))
    counts = {name: len(values) for name, values in times.items()}
    counts.update({name: sum(block.unstamped[name] for block in blocks) for name in blocks[0].unstamped})
    report["missed"] = {name: frames - count for name, count in counts.items()}
    report["latency_ms"] = {name: percentiles(v) for name, v in {**times, "frame": latencies}.items() if v}
    stages: Dict[str, List[float]] = defaultdict(list)
    for timings in (timings for block in blocks for timings in block.stages):
        for stage, value in timings.items():
            stages[stage].append(value)
    report["stages_ms"] = {stage: percentiles(values) for stage, values in stages.items()}
    rated = [block for block in blocks if block.stages and math.isfinite(block.period_ms)]
    if rated:
        report["late"] = sum(row.get("total", 0.0) > block.period_ms for block in rated for row in block.stages)
    if latencies:
        report["cpu_ms_per_frame"] = _round(sum(block.cpu_ms for block in blocks) / len(latencies))
        report["page_faults_per_frame"] = _round(sum(block.page_faults for block in blocks) / len(latencies))
    return report


def format_figures(load: str, figures: Dict[str, Any]) -> str:
    """Format the figures of one load as text."""
    lines = [
        f"{load}: {figures['NUM_FRAMES_SENT']} frames sent, {figures['MEAN_PLAYBACK_FRAME_RATE']:.1f} Hz; "
        f"{figures['NUM_MISSED_FRAMES']} missed; {figures['MEAN_FRAME_RATE']:.1f} Hz answered"
    ]
    if "cpu_ms_per_frame" in figures:
        lines[0] += f", {figures['cpu_ms_per_frame']:.1f} ms of CPU time"
        lines[0] += f" and {figures['page_faults_per_frame']:.0f} page faults each"
    if "late" in figures:
        lines.append(f"  late, not out when the next one was due: {figures['late']}")
    lines += [f"  dropped by the node, {cause}: {count}" for cause, count in figures.get("dropped", {}).items()]
    for title, times in (("until the viewer has", figures["latency_ms"]), ("in the node", figures["stages_ms"])):
        if times:
            lines.append(f"  {title + ' [ms]':<26}{'p50':>9}{'p95':>9}{'p99':>9}{'max':>9}")
            for name, row in times.items():
                lines.append(f"    {name:<24}" + "".join(f"{row[column]:9.2f}" for column in row))
    return "\n".join(lines)


def _rate(gaps: Sequence[np.ndarray]) -> float:
    """Compute frames per second from the milliseconds between frames."""
    total = sum(float(gap.sum()) for gap in gaps)
    return _round(1000 * sum(gap.size for gap in gaps) / total) if total else 0.0


def _round(value: Any) -> float:
    return round(float(value), 3)
