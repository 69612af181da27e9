"""Figures of a stream of frames through a node: rates, missed frames, latency and jitter. Imports no ROS.

Fields in capitals are named and defined as `BasicPerformanceMetrics` of ros2_benchmark, which isaac_ros_benchmark
writes; a frame has arrived when its last product has. Rates and jitter are taken within blocks, never across the pause
between two. All times are milliseconds of one clock.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Dict, Iterable, List, Sequence, TypedDict

import numpy as np


@dataclass(frozen=True)
class ProcessUsage:
    """Resources that a process used.

    Attributes:
        cpu_ms: Time of all cores.
        page_faults: Pages of memory mapped for it; a fresh buffer of 5 MB takes 1224.
    """

    cpu_ms: float
    page_faults: int

    def since(self, before: ProcessUsage) -> ProcessUsage:
        """Resources used since an earlier look."""
        return ProcessUsage(self.cpu_ms - before.cpu_ms, self.page_faults - before.page_faults)


@dataclass(frozen=True)
class FrameBlock:
    """Frames that were sent without a pause.

    Attributes:
        sent: Stamp -> when the frame was given to the middleware, in nanoseconds, oldest first.
        arrived: Product -> stamp -> when it reached the viewer, in nanoseconds; every product asked for has an entry.
        unstamped: Product without a stamp -> how many arrived.
        stages: Times that the node published, frame by frame: stage -> milliseconds.
        usage: Resources that the node's process used.
        period_ms: From one frame to the next; infinite where the next one waits for an answer.
    """

    sent: Dict[int, int]
    arrived: Dict[str, Dict[int, int]]
    unstamped: Dict[str, int]
    stages: List[Dict[str, float]]
    usage: ProcessUsage
    period_ms: float

    def complete(self) -> Dict[int, int]:
        """Stamp -> when the last product arrived, of frames whose products all did, in the order of arrival."""
        arrivals = {stamp: [times.get(stamp) for times in self.arrived.values()] for stamp in self.sent}
        ends = {stamp: max(t for t in times if t) for stamp, times in arrivals.items() if times and None not in times}
        return dict(sorted(ends.items(), key=lambda item: item[1]))


class LoadFigures(TypedDict, total=False):
    """The figures of one node at one load; what nothing arrived for is left out.

    Attributes:
        missed: Product -> frames without it.
        latency_ms: Product -> percentiles; `frame`: until the last product.
        stages_ms: Stage -> percentiles, as the node itself measured them.
        late: Frames that were in the node for longer than a frame period.
        cpu_ms_per_frame: CPU time of the node's process.
        page_faults_per_frame: Pages of memory mapped for it.
        dropped: Cause -> frames that the node dropped.
    """

    NUM_FRAMES_SENT: int
    NUM_MISSED_FRAMES: int
    MEAN_PLAYBACK_FRAME_RATE: float
    MEAN_FRAME_RATE: float
    RECEIVED_DURATION: float
    MEAN_LATENCY: float
    MIN_LATENCY: float
    MAX_LATENCY: float
    MEAN_JITTER: float
    STD_DEV_JITTER: float
    MIN_JITTER: float
    MAX_JITTER: float
    missed: Dict[str, int]
    latency_ms: Dict[str, Dict[str, float]]
    stages_ms: Dict[str, Dict[str, float]]
    late: int
    cpu_ms_per_frame: float
    page_faults_per_frame: float
    dropped: Dict[str, int]


def percentiles(values: Sequence[float]) -> Dict[str, float]:
    """p50, p95, p99 and maximum, to a microsecond of milliseconds."""
    names = ("p50", "p95", "p99", "max")
    return {name: round(float(v), 3) for name, v in zip(names, np.percentile(values, (50, 95, 99, 100)))}


def summarize(blocks: Sequence[FrameBlock]) -> LoadFigures:
    """The figures of all blocks of one node at one load; what nothing arrived for is left out.

    Returns:
        Everything but `dropped`; `late` only of frames that come at a rate.
    """
    ends = [block.complete() for block in blocks]
    sent = [block.sent for block in blocks]
    latencies = [(t - block.sent[stamp]) / 1e6 for block, end in zip(blocks, ends) for stamp, t in end.items()]
    gaps = [np.diff(list(end.values())) / 1e6 for end in ends]
    jitter = np.concatenate([np.abs(np.diff(gap)) for gap in gaps]) if gaps else np.zeros(0)
    frames = sum(map(len, sent))
    report: LoadFigures = {
        "NUM_FRAMES_SENT": frames,
        "NUM_MISSED_FRAMES": frames - len(latencies),
        "MEAN_PLAYBACK_FRAME_RATE": _rate([np.diff(list(times.values())) / 1e6 for times in sent]),
        "MEAN_FRAME_RATE": _rate(gaps),
        "RECEIVED_DURATION": _round(sum(float(gap.sum()) for gap in gaps)),
    }
    if latencies:
        report["MEAN_LATENCY"] = _round(np.mean(latencies))
        report["MIN_LATENCY"], report["MAX_LATENCY"] = _round(min(latencies)), _round(max(latencies))
    if jitter.size:
        report["MEAN_JITTER"], report["STD_DEV_JITTER"] = _round(jitter.mean()), _round(jitter.std())
        report["MIN_JITTER"], report["MAX_JITTER"] = _round(np.min(jitter)), _round(np.max(jitter))
    report["missed"] = {name: frames - count for name, count in _count(blocks).items()}
    times = {
        name: [(t - block.sent[stamp]) / 1e6 for block in blocks for stamp, t in block.arrived[name].items()]
        for name in (blocks[0].arrived if blocks else ())
    }
    report["latency_ms"] = {name: percentiles(v) for name, v in {**times, "frame": latencies}.items() if v}
    stages: Dict[str, List[float]] = {}
    for block in blocks:
        for timings in block.stages:
            for stage, value in timings.items():
                stages.setdefault(stage, []).append(value)
    report["stages_ms"] = {stage: percentiles(values) for stage, values in stages.items()}
    rated = [block for block in blocks if block.stages and math.isfinite(block.period_ms)]
    if rated:
        report["late"] = sum(times.get("total", 0.0) > block.period_ms for block in rated for times in block.stages)
    if latencies:
        usages = [block.usage for block in blocks]
        report["cpu_ms_per_frame"] = _round(sum(usage.cpu_ms for usage in usages) / len(latencies))
        report["page_faults_per_frame"] = _round(sum(usage.page_faults for usage in usages) / len(latencies))
    return report


def format_figures(load: str, figures: LoadFigures) -> str:
    """The figures of one load as text."""
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


def _count(blocks: Iterable[FrameBlock]) -> Dict[str, int]:
    """Product -> how many arrived."""
    counts: Dict[str, int] = {}
    for block in blocks:
        for name, number in {**{n: len(times) for n, times in block.arrived.items()}, **block.unstamped}.items():
            counts[name] = counts.get(name, 0) + number
    return counts


def _rate(gaps: Sequence[np.ndarray]) -> float:
    """Frames per second from the milliseconds between them."""
    total = sum(float(gap.sum()) for gap in gaps)
    return _round(1000 * sum(gap.size for gap in gaps) / total) if total else 0.0


def _round(value: Any) -> float:
    return round(float(value), 3)
