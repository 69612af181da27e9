"""Simulated cameras of a rig in step: frames that tell when they were exposed, and the sets that the rig reports."""

from __future__ import annotations

from collections import Counter
from typing import Any, Dict, List, NamedTuple, Optional, Set, Tuple

import numpy as np
from fake_camera import SCHEDULED
from rclpy.qos import QoSProfile
from sensor_msgs.msg import Image

from polar_pipeline.options import topics
from polar_pipeline.recordings import messages
from polar_pipeline.ros.endpoints import MESSAGE_CLASSES

#: Pictures that cameras show in turn, each for one period: equal pictures at the same time are of the same moment.
PICTURES = 250
#: A camera with PTP that starts its frames in step; options of `FakeCamera`.
IN_STEP: Dict[str, Any] = {"changes": SCHEDULED, "features": {"PtpStatus": "Slave"}}


def pictures(shape: Tuple[int, int]) -> np.ndarray:
    """Return the pictures, (PICTURES, H, W): every pixel has the picture's number."""
    return np.broadcast_to(np.arange(PICTURES, dtype=np.uint8)[:, None, None], (PICTURES, *shape)).copy()


def rig_file(count: int, rate: float, *, is_strict: bool, exposure_factors: Optional[Dict[int, float]] = None) -> str:
    """Return the YAML file of a rig of cameras with the serial numbers RIG0, RIG1 and so on; the first one leads."""
    rows = []
    for k in range(count):
        more = (
            f", frame_rate: {rate}, trigger: scheduled, ptp: true, exposure_us: 5000.0, gain_db: 0.0" if k == 0 else ""
        )
        factor = (exposure_factors or {}).get(k, 1.0)
        rows.append(
            f"  - {{namespace: cam{k}, exposure_factor: {factor}, parameters: "
            f"{{backend: cpu, camera: {{source: 'aravis:RIG{k}'{more}}}}}}}\n"
        )
    return f"sync: {{leader: cam0, tolerance_ms: 1.0, strict: {str(is_strict).lower()}}}\ncameras:\n{''.join(rows)}"


class ReportedSet(NamedTuple):
    """A set as `/diagnostics` reports it: its text, and the stamp of each frame by the camera's name."""

    text: str
    stamps: Dict[str, int]


class SetWatcher:
    """Viewer of the raw frames of a rig, and of its sets; `node` is a node of rclpy that the caller spins.

    Attributes:
        sets: Reported sets.
        pictures: (camera, stamp) of frames that came -> the numbers of their pictures, in the order in which they came:
            a clock that is set back gives a stamp again.
        counts: Newest counts of sets by status.
        received: Frames by camera.
    """

    def __init__(self, node: Any, count: int) -> None:
        self.sets: List[ReportedSet] = []
        self.pictures: Dict[Tuple[str, int], List[int]] = {}
        self.counts: Dict[str, int] = {}
        self.received: Counter[str] = Counter()
        node.create_subscription(MESSAGE_CLASSES[topics.DIAGNOSTICS], topics.REPORT, self._on_report, 100)
        for k in range(count):
            self._subscribe(node, f"cam{k}")

    def _subscribe(self, node: Any, name: str) -> None:
        def keep(cdr: bytes) -> None:  # rclpy looks at the signature
            image = messages.decode_image(cdr)
            mosaic = messages.to_raw(image).unpack().mosaic
            assert mosaic.min() == mosaic.max()
            self.pictures.setdefault((name, image.stamp_ns), []).append(int(mosaic[0, 0]))
            self.received[name] += 1

        node.create_subscription(Image, f"{name}/image_raw", keep, QoSProfile(depth=100), raw=True)

    def _on_report(self, report: Any) -> None:
        for row in report.status:
            if row.name.endswith(": matched"):
                values = {pair.key: pair.value for pair in row.values}
                stamps = {key.split("/")[0]: int(value) for key, value in values.items() if key.endswith("[ns]")}
                assert report.header.stamp.sec * 10**9 + report.header.stamp.nanosec == min(stamps.values())
                assert row.level == (b"\0" if row.message == "matched" else b"\1"), row
                self.sets.append(ReportedSet(row.message, stamps))
                self.counts = {name: int(values[name]) for name in ("complete", "late", "missing", "unequal")}

    def judge(self, cameras: Set[str], is_strict: bool = False) -> Dict[str, int]:
        """Count what is true of the sets so far; of a strict rig, whose other frames do not come, of matched ones.

        Returns:
            sets: by the first word of their text; `mixed`: matched sets with frames of different moments, or not of all
            `cameras`; `unseen`: frames of matched sets that did not come as a message; `twice`: frames that came and
            are in several sets.
        """
        result: Counter[str] = Counter({"mixed": 0, "unseen": 0})
        uses: Counter[Tuple[str, int]] = Counter()
        for text, stamps in list(self.sets):
            result[text.split(":")[0]] += 1
            if is_strict and text != "matched":
                continue
            moments = [self.pictures.get(frame, [])[uses[frame] :][:1] for frame in stamps.items()]
            uses.update(stamps.items())
            if text == "matched":
                result["unseen"] += moments.count([])
                is_mixed = len({each for one in moments for each in one}) > 1 or set(stamps) != cameras
                result["mixed"] += is_mixed
                if is_mixed:
                    print(f"mixed: stamps {stamps}, pictures {dict(zip(stamps, moments))}", flush=True)
        came = {frame: len(rows) for frame, rows in list(self.pictures.items())}  # others come meanwhile
        result["twice"] = sum(count > came.get(frame, count) for frame, count in uses.items())
        return dict(result)
