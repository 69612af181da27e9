"""How far the frames of a benchmark have come while none is answered, and whether waiting longer can help.

Imports no ROS.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, Mapping

from polar_pipeline.doctor.checks import named_profiles, transport_checks

#: Frames without an answer after which their cause is taken for permanent.
CONCLUSIVE_FRAMES = 10


def drops_of(report: Mapping[str, str]) -> Dict[str, int]:
    """Cause -> frames that a node has dropped, by the values of its status `frames`."""
    prefix = "dropped: "
    return {key[len(prefix) :]: int(value) for key, value in report.items() if key.startswith(prefix)}


@dataclass(frozen=True)
class WaitState:
    """How far frames have come while no frame is answered.

    Attributes:
        state: As a word.
        text: As a sentence.
        is_in_vain: Whether waiting longer is useless.
    """

    state: str
    text: str
    is_in_vain: bool = False


def waits_for(is_matched: bool, frames: int, report: Mapping[str, str]) -> WaitState:
    """The state of frames that are not answered.

    Args:
        is_matched: Whether camera and node have found each other.
        frames: Frames sent since then.
        report: Values of the node's status `frames`; empty before its first report.
    """
    if not is_matched:
        return WaitState("start", "the node is starting, and may have to compile")
    if not report:
        return WaitState("report", "the node has not reported in /diagnostics yet")
    received, published, unwanted = (int(report.get(key, 0)) for key in ("received", "published", "unwanted"))
    dropped = sum(drops_of(report).values())
    if 2 * received < frames or not received:  # now and then one comes through
        text, is_enough = f"{received} of {frames} frames have reached the node", frames >= CONCLUSIVE_FRAMES
        return WaitState("raw", f"{text}; {transport_advice()}" if is_enough else text, is_enough)
    if not published and dropped >= CONCLUSIVE_FRAMES:
        return WaitState("use", f"the node could use none of {received} frames; {report.get('last error', '')}", True)
    if not published:
        found = ", and took them for unwanted" if unwanted else ""
        return WaitState("compute", f"the node received {received} frames and has finished none{found}")
    text = f"the viewer has got all products of no frame, the node published those of {published}"
    is_enough = published >= CONCLUSIVE_FRAMES
    return WaitState("product", f"{text}; {transport_advice()}" if is_enough else text, is_enough)


def transport_advice() -> str:
    """Why this machine may lose large messages, by its settings."""
    problems = [check.text for check in transport_checks() if check.state == "problem"]
    profile = ", ".join(f"{name}={value}" for name, value in named_profiles().items())
    return "; ".join(problems) or f"Fast DDS's profile ({profile}) may not suit messages of this size"
