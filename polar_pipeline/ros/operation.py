"""What a node has only while it takes frames: inputs, threads that compute and publish, the service `~/snapshot`."""

from __future__ import annotations

import time
from typing import Any, Callable, List, Optional

from std_srvs.srv import Trigger

from polar_pipeline import messages, topics
from polar_pipeline.live.diagnostics import Diagnostics
from polar_pipeline.live.fallback import Fallback
from polar_pipeline.live.frame import ReceivedImage
from polar_pipeline.live.jpeg import JpegEncoder
from polar_pipeline.live.parameters import PARAMETERS, Settings
from polar_pipeline.live.pipelines import PipelineSwitch
from polar_pipeline.live.problems import ProblemLog
from polar_pipeline.live.processor import FrameProcessor
from polar_pipeline.live.publisher import FramePublisher, OutputTopics
from polar_pipeline.live.snapshot import Snapshot
from polar_pipeline.ros._rcl import load_rcl
from polar_pipeline.ros.direct_input import DirectInput
from polar_pipeline.ros.endpoints import create_input
from polar_pipeline.ros.guarded_node import GuardedNode
from polar_pipeline.ros.losses import LossCounter
from polar_pipeline.ros.message_publisher import MessagePublisher
from polar_pipeline.ros.snapshot_service import SnapshotService


class Operation:
    """Takes frames from its construction until `close`; that leaves no subscription, no thread and no memory of frames.

    Callbacks run in the executor's thread, which constructs and closes it too, or the main thread in its place.

    Args:
        node: Subscribes, and offers the service.
        outputs: Where to publish.
        settings: Gives the settings asked for.
        fallback: Which settings hold after a failure of the GPU.
        diagnostics: Counts frames.
        problems: Counts and logs what could not be used.

    Attributes:
        input: The subscription of raw frames.
        processor: Computes frames.
        publisher: Publishes them.
        statuses: The node's newest report, for snapshots.

    Raises:
        RuntimeError: The backend cannot work on this machine.
    """

    def __init__(
        self,
        node: GuardedNode,
        outputs: OutputTopics,
        settings: Callable[[], Settings],
        fallback: Fallback,
        diagnostics: Diagnostics,
        problems: ProblemLog,
    ) -> None:
        self.input: Any = None
        self.statuses: List[messages.Status] = []
        self._node = node
        self._name = node.get_fully_qualified_name().lstrip("/")
        self._settings = settings
        self._diagnostics = diagnostics
        self._newest: Optional[ReceivedImage] = None
        self._others: List[Any] = []  # subscriptions beside `input`
        self._direct_input: Optional[DirectInput] = None
        self._losses: Optional[LossCounter] = None
        self._service: Any = None
        logger = node.get_logger()
        self._pipelines = PipelineSwitch()
        self._snapshots = SnapshotService(logger)
        self.processor = FrameProcessor(settings, self._pipelines, fallback, diagnostics, problems, logger)
        self.publisher = FramePublisher(
            self._name, outputs, MessagePublisher(), diagnostics, problems, settings().limits, JpegEncoder(logger)
        )
        try:
            self.processor.warm_up()
            self._connect()
        except BaseException:
            self.close()
            raise
        self.processor.start(self.publisher)  # last, so that a node that cannot start leaves no thread

    def _connect(self) -> None:
        """Subscribe, and offer the service; from here on callbacks run."""
        node = self._node
        self.input = create_input(node, topics.IMAGE, topics.IMAGE_INPUT, self._on_image)
        rcl = load_rcl()
        if rcl is not None:
            node.hidden_subscription = self.input
            self._direct_input = DirectInput(node, self.input, rcl, self.processor.message_memory)
            node.add_waitable(self._direct_input)
        self._losses = LossCounter(self.input)
        self._others = [
            create_input(node, topics.CAMERA_INFO, topics.CAMERA_INFO_INPUT, self._on_camera_info),
            create_input(node, topics.IMAGE, topics.REFERENCE_INPUT, self._on_reference),
        ]
        self._service = node.create_service(Trigger, "~/snapshot", self._on_snapshot)

    def close(self) -> None:
        """Finish the frame and the snapshot at work, end all threads and release everything; safe to call twice."""
        node = self._node
        self.processor.close()
        self.publisher.close()
        self._snapshots.close()
        self._pipelines.close()
        if self._losses is not None:
            self._losses.close()
        if self._direct_input is not None:
            self._direct_input.close()
            node.remove_waitable(self._direct_input)
        for subscription in filter(None, (self.input, *self._others)):
            node.destroy_subscription(subscription)
        node.hidden_subscription = None
        if self._service is not None:
            node.destroy_service(self._service)
        self.input = self._service = self._direct_input = self._newest = None
        self._others = []

    def lost(self) -> int:
        """Raw frames that the middleware lost since the last call."""
        return self._losses.poll() if self._losses is not None else 0

    def _on_image(self, cdr: messages.Cdr) -> None:
        self._diagnostics.received(messages.peek_stamp(cdr))
        self._newest = ReceivedImage(cdr, time.perf_counter(), self._node.get_clock().now().nanoseconds)
        self.processor.put(self._newest)

    def _on_camera_info(self, cdr: bytes) -> None:
        self.publisher.camera_info = self.processor.lens.cdr = cdr

    def _on_reference(self, cdr: bytes) -> None:
        self.processor.reference = cdr

    def _on_snapshot(self, _: Trigger.Request, response: Trigger.Response) -> Any:
        """Have the newest frame written for a bug report; gives a response, or a future of it."""
        newest = self._newest
        if newest is None:
            response.message = f"no frame came in on {self.input.topic_name} yet"
            return response
        response.message = self._snapshots.refusal()
        if response.message:
            return response
        settings = self._settings()
        values = {name: self._node.get_parameter(name).value for name in PARAMETERS}
        camera_info, reference = self.publisher.camera_info, self.processor.reference
        digest = settings.options.calibration.digest if settings.options.calibration else ""
        snapshot = Snapshot(
            self._name, newest.cdr, newest.time_ns, values, camera_info, reference, self.statuses, digest
        )
        return self._snapshots.take(settings, snapshot)
