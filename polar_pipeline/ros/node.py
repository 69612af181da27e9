"""The live node: a ROS 2 node around the engine of `live/`.

The executor's thread takes messages, answers services and reports. `FrameProcessor` computes and `FramePublisher`
publishes, each in a thread of its own. `CameraSource` has two, so that a lost answer of the camera delays no frame. The
background thread of `ParameterNode` does the rest. Two tasks have their own threads while they run: a recording, which
would lose frames if it waited, and a snapshot, whose checks of the machine can take minutes.
"""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence

from rclpy.clock import Clock, ClockType
from rclpy.exceptions import ParameterException
from rclpy.publisher import Publisher
from std_srvs.srv import SetBool, Trigger

from polar_pipeline._util.malloc import release_freed_memory
from polar_pipeline._util.text import failure, printable
from polar_pipeline.camera.facts import CameraFacts
from polar_pipeline.camera.hdr import CapturedFrame
from polar_pipeline.camera.settings import CameraSettings
from polar_pipeline.camera.source import Connection
from polar_pipeline.live.camera import FRAME_ID, CameraInput
from polar_pipeline.live.frame import ReceivedImage
from polar_pipeline.live.parameters import PARAMETERS, Settings
from polar_pipeline.live.preset import QOS
from polar_pipeline.live.processor import FrameProcessor
from polar_pipeline.live.publisher import FramePublisher
from polar_pipeline.live.recorder import Recorder
from polar_pipeline.live.rig import RigSync
from polar_pipeline.live.snapshot import Snapshot, save_parameters, write_snapshot
from polar_pipeline.options import topics
from polar_pipeline.quality.statistics import Level
from polar_pipeline.recordings import messages
from polar_pipeline.ros.endpoints import LossCounter, create_input, create_output, find_mismatch, find_namesake
from polar_pipeline.ros.parameters import ParameterNode
from polar_pipeline.ros.transport import DirectInput, MessagePublisher, load_rcl

#: Seconds between two reports in `/diagnostics`.
REPORT_PERIOD = 1.0
#: Minimum seconds between two snapshots.
SNAPSHOT_PERIOD = 1.0
#: Characters of a path in the answers of `~/snapshot` and `~/record`.
MAX_PATH = 4096
#: What `configure` and `activate` raise where the node cannot work with its parameters, or on this machine.
START_ERRORS = (ValueError, RuntimeError, TypeError, OverflowError, MemoryError, ParameterException)


class LiveNode(ParameterNode):
    """The node `polar_pipeline`: topics, parameters and diagnostics as in `docs/ros.md`.

    `configure` checks the parameters and creates the outputs, `activate` starts to take frames; `deactivate` and
    `cleanup` undo them. Parameters can be set at any time, and `/diagnostics` reports always.

    Callbacks run in the executor's thread. Beside it, a camera's thread calls `receive`, the background thread changes
    parameters, which reads `camera`, and this thread and that of a snapshot run `_written`. The processor reads the
    settings once per frame.

    Arguments are those of `ParameterNode`, and the rig in step that the camera belongs to.

    Attributes:
        state: `unconfigured`, `inactive` or `active`.
        problem: Why the last step failed; "" if it did not.
        input: Subscription of raw frames while the node is active without a camera of its own; None otherwise.
        camera: Camera that the node reads itself while it is active; None otherwise.
        processor: Computes frames while the node is active; None otherwise.
        publisher: Publishes frames while the node is active; None otherwise.
    """

    input: Any = None  # rclpy looks at `subscriptions` early
    _direct_input: Optional[DirectInput] = None

    def __init__(self, argv: Optional[Sequence[str]] = None, rig: Optional[RigSync] = None, **arguments: Any) -> None:
        super().__init__(argv, **arguments)
        self._rig = rig
        self.state = "unconfigured"
        self.problem = ""
        self.processor: Optional[FrameProcessor] = None
        self.publisher: Optional[FramePublisher] = None
        self.camera: Optional[CameraInput] = None
        self._failure = ""  # of the last processor
        self._outputs: Dict[str, Publisher] = {}
        self._camera_outputs: Dict[str, Publisher] = {}
        self._configured = ExitStack()  # releases what the node has while it is configured
        self._activated = ExitStack()  # releases what the node has while it is active
        self._losses: Optional[LossCounter] = None
        self._newest: Optional[ReceivedImage] = None
        self._info_topic = ""
        self._statuses: List[messages.Status] = []  # the newest report, for snapshots
        self._snapshot: Optional[Any] = None  # future of the newest snapshot's response
        self._snapshot_due = 0.0
        self._recording: Optional[Recorder] = None
        self._report = create_output(self, topics.DIAGNOSTICS, topics.REPORT)
        # a steady clock: a simulated one may stand still or jump
        self.create_timer(REPORT_PERIOD, self._on_report, clock=Clock(clock_type=ClockType.STEADY_TIME))

    @property
    def failure(self) -> str:
        """Why the node has to end; "" while it works."""
        return self.processor.failure if self.processor else self._failure

    @property
    def subscriptions(self) -> Iterator[Any]:
        """Subscriptions whose messages the executor takes: not those that `DirectInput` takes."""
        return (row for row in super().subscriptions if self._direct_input is None or row is not self.input)

    # ---------------------------------------------------------------------------------------------------------- states

    def configure(self) -> None:
        """Check the parameters against each other and the machine, and create the outputs; may raise `START_ERRORS`."""
        self.read_settings()
        with ExitStack() as stack:
            stack.callback(self.forget_settings)
            has_camera = bool(self._current_settings().camera.source)
            self._make_outputs(stack, self._outputs, topics.OUTPUT_TOPICS)
            self._make_outputs(stack, self._camera_outputs, topics.CAMERA_TOPICS if has_camera else {})
            self._configured = stack.pop_all()
        self.state = "inactive"

    def _make_outputs(self, stack: ExitStack, outputs: Dict[str, Publisher], kinds: Mapping[str, str]) -> None:
        """Create publishers of topics with their types; `stack` removes them."""
        stack.callback(outputs.clear)
        for topic, message_type in kinds.items():
            outputs[topic] = create_output(self, message_type, topic)
            stack.callback(self.destroy_publisher, outputs[topic])

    def activate(self) -> None:
        """Take frames from now on, or wait for a missing camera; may raise `START_ERRORS`."""
        settings = self._current_settings()
        sender = MessagePublisher(self._background)
        self.publisher = FramePublisher(self._outputs, sender.send, self._diagnostics)
        self.processor = FrameProcessor(
            self._current_settings, self.fallback, self._diagnostics, self.publisher, self._background
        )
        with ExitStack() as stack:
            stack.callback(self._forget_frames)
            stack.callback(self.end_background)
            stack.callback(self.processor.close)
            self.processor.warm_up()
            self._connect(self.processor, stack)
            self._check_topics()
            self.processor.start()  # last, so that a node that cannot start leaves no thread
            self._activated = stack.pop_all()
        self.state = "active"
        options = self._settings_in_use(settings).options
        self.get_logger().info(
            f"waits for frames on {self.input_name}; sensor {printable(options.sensor.name)}, "
            f"backend {options.backend}, device {printable(self.processor.device or 'unknown')}"
        )

    def _connect(self, processor: FrameProcessor, stack: ExitStack) -> None:
        """Subscribe and offer the service; from here on callbacks run. `stack` undoes it, the last step first."""
        if self._current_settings().camera.source:
            self._open_camera(processor, stack)
        else:
            self._subscribe_frames(processor, stack)
        self._subscribe(stack, topics.IMAGE, topics.REFERENCE_INPUT, self._on_reference)
        saver = self.create_service(Trigger, "~/save_parameters", self._on_save)
        stack.callback(self.destroy_service, saver)
        recorder = self.create_service(SetBool, "~/record", self._on_record)
        stack.callback(self.destroy_service, recorder)
        stack.callback(self._end_recording)
        # the last endpoint: `replay.launch.py` waits for it
        service = self.create_service(Trigger, "~/snapshot", self._on_snapshot)
        stack.callback(self.destroy_service, service)
        stack.callback(self._end_snapshot)

    def _check_topics(self) -> None:
        """Raise ValueError for an output on the topic of an input or of the camera, and for QoS of no topic."""
        self.check_qos_overrides()
        raw_topics = {row.topic_name for row in (*super().subscriptions, *self._camera_outputs.values())}
        for name, output in self._outputs.items():
            if output.topic_name in raw_topics:
                raise ValueError(f"the output {name} cannot be {output.topic_name}, a topic of raw frames or inputs")

    def _subscribe_frames(self, processor: FrameProcessor, stack: ExitStack) -> None:
        """Take frames and lens calibrations from topics."""
        self.input = self._subscribe(stack, topics.IMAGE, topics.IMAGE_INPUT, self._on_image)
        rcl = load_rcl()
        if rcl is not None:
            self._direct_input = DirectInput(self, self.input, rcl, processor.message_memory)
            self.add_waitable(self._direct_input)
            stack.callback(self.remove_waitable, self._direct_input)
            stack.callback(self._direct_input.close)
        self._losses = LossCounter(self.input)
        stack.callback(self._losses.close)
        infos = self._subscribe(stack, topics.CAMERA_INFO, topics.CAMERA_INFO_INPUT, self._on_camera_info)
        self._info_topic = infos.topic_name

    def _open_camera(self, processor: FrameProcessor, stack: ExitStack) -> None:
        """Take frames from a camera, and offer to trigger it."""
        camera = CameraInput(
            self._current_settings,
            processor.message_memory,
            self.receive,
            self._camera_outputs,
            MessagePublisher().send,
            self._diagnostics,
        )
        stack.callback(camera.source.close)
        self.camera = camera
        if self._rig is not None:
            camera.gate = partial(self._rig.take, self._name)
            self._rig.join(self._name, camera)
            stack.callback(self._rig.join, self._name, None)
            if self._rig.sync.leader == self._name:
                self._rig.publish = self._publish_report
        camera.source.start()
        self._follow_camera()
        service = self.create_service(Trigger, "~/trigger", self._on_trigger)
        stack.callback(self.destroy_service, service)

    def _subscribe(self, stack: ExitStack, message_type: str, topic: str, callback: Callable[[Any], None]) -> Any:
        subscription = create_input(self, message_type, topic, callback)
        stack.callback(self.destroy_subscription, subscription)
        return subscription

    def _forget_frames(self) -> None:
        """Release what holds frames, when the processor has ended."""
        self._failure = self.failure
        self.processor = self.publisher = self.input = self._losses = self._direct_input = self.camera = None
        self._newest = self._snapshot = None
        self._statuses = []
        release_freed_memory()

    def deactivate(self) -> None:
        """Finish the frame and the snapshot at work, and take no more; releases threads and memory of frames."""
        self._activated.close()
        self.state = "inactive"

    def cleanup(self) -> None:
        """Release the outputs, and what the parameters stand for, such as a calibration."""
        self.deactivate()
        self._configured.close()
        self.state = "unconfigured"
        release_freed_memory()

    def close(self) -> None:
        """Finish the frame and the snapshot at work, end all threads and release the pipelines; safe to call twice."""
        self._is_closed = True
        self._activated.close()
        super().close()

    def _current_settings(self) -> Settings:
        """Return the requested settings; the node must be configured."""
        if self.settings is None:
            raise RuntimeError("the node is not configured")
        return self.settings

    # ---------------------------------------------------------------------------------------------------------- inputs

    # After a subscription was destroyed, an executor may still call back for a message that it has seen before.

    def _on_image(self, cdr: messages.Cdr) -> None:
        self.receive(cdr)

    def receive(
        self,
        cdr: messages.Cdr,
        camera: Optional[CameraFacts] = None,
        camera_info: Optional[bytes] = None,
        before: Optional[CapturedFrame] = None,
    ) -> None:
        """Take a raw frame: of the topic in the executor's thread, or of a camera, with its state, in the camera's.

        The serialized lens calibration of the camera takes the place of the topic `camera_info`. With the frame
        `before`, of the same camera, it is merged to one.
        """
        processor, recording = self.processor, self._recording
        if processor is None:
            return
        self._diagnostics.received(messages.peek_stamp(cdr))
        if camera_info is not None:
            self._on_camera_info(camera_info)
        elif self._newest is None:
            processor.expects_camera_info = self.count_publishers(self._info_topic) > 0
        now = time.perf_counter(), self.get_clock().now().nanoseconds
        first = None if before is None else ReceivedImage(before.cdr, *now, before.facts)
        self._newest = image = ReceivedImage(cdr, *now, camera, first)
        for row in (first, image):
            if recording is not None and row is not None:
                recording.put(row, processor.camera_info_of(row.cdr))
        processor.put(image)

    def _on_camera_info(self, cdr: bytes) -> None:
        if self.processor is not None:
            self.processor.put_camera_info(cdr)

    def _on_reference(self, cdr: bytes) -> None:
        if self.processor is not None:
            self.processor.reference = cdr

    # ---------------------------------------------------------------------------------------------------------- camera

    @property
    def input_name(self) -> str:
        """Topic or camera that frames come from."""
        return str(self.input.topic_name) if self.input is not None else self.camera.name if self.camera else "nothing"

    @property
    def _connection(self) -> Optional[Connection]:
        """The connected camera."""
        camera = self.camera  # a deactivation makes it None, beside the thread that writes settings to it
        return camera.source.connection if camera is not None else None

    def apply_camera(self, settings: Settings) -> CameraSettings:
        """Write the settings and the frame_id to the camera; set the parameters to what it has, and return that."""
        camera = self.camera
        if camera is None:
            return settings.camera
        camera.source.rename(settings.frame_id or FRAME_ID)
        actual = camera.source.apply(settings.camera, settings.of_camera)
        connection = self._connection
        if connection is not None:  # ranges change too: of the frame rate with the region
            self.show_camera(actual, connection.ranges)
        return actual

    def _validated(self, changes: Mapping[str, Any]) -> Settings:
        settings = super()._validated(changes)
        if settings.camera.source and changes.get("use_sim_time", self.get_parameter("use_sim_time").value):
            raise ValueError("camera.source needs use_sim_time false: frames of a camera are of this computer's time")
        if self._rig is not None and not settings.camera.source:
            raise ValueError("sync in the rig's file needs camera.source of every camera, got ''")
        if self._rig is not None and settings.camera.hdr_ratio > 1:
            raise ValueError(f"sync in the rig's file needs camera.hdr_ratio 1, got {settings.camera.hdr_ratio:g}")
        connection = self._connection
        if connection is not None and self.settings is not None and settings.camera == self.settings.camera:
            settings.of_camera(connection.facts)
        return settings

    def _settings_in_use(self, settings: Settings) -> Settings:
        """Return the settings in use, for reports; contradictions to the camera are reported elsewhere."""
        connection = self._connection
        with suppress(ValueError):
            settings = settings if connection is None else settings.of_camera(connection.facts)
        return self.fallback.settings(settings)

    def _follow_camera(self) -> None:
        """Set the parameters of the camera to what it has, after it was connected."""
        connection = self._connection
        if connection is None or not self._changing.acquire(blocking=False):  # a change sets them itself
            return
        try:
            if self.settings is not None and self.settings.camera != connection.settings:
                self.show_camera(connection.settings, connection.ranges)
        finally:
            self._changing.release()

    def _on_trigger(self, _: Trigger.Request, response: Trigger.Response) -> Any:
        """Start a frame of a camera that is triggered by software; return the response, or a future of it."""
        camera = self.camera
        if camera is None:
            response.message = f"the node is {self.state}"
            return response

        def answer(done: Any) -> Trigger.Response:
            err = done.exception()
            return Trigger.Response(success=err is None, message=printable(str(err or "")))

        return _response(camera.source.trigger(), answer)

    # ------------------------------------------------------------------------------------------------------- snapshots

    def _on_snapshot(self, _: Trigger.Request, response: Trigger.Response) -> Any:
        """Write the newest frame for a bug report; return the response, or a future of it."""
        newest = self._newest  # a camera's thread replaces it
        if self.processor is None:
            response.message = f"the node is {self.state}"
        elif newest is None:
            response.message = f"no frame came in on {self.input_name} yet"
        elif self._snapshot is not None and not self._snapshot.done():
            response.message = "another snapshot is being written"
        elif time.monotonic() < self._snapshot_due:
            response.message = f"the last snapshot was less than {SNAPSHOT_PERIOD:g} s ago"
        else:
            self._snapshot_due = time.monotonic() + SNAPSHOT_PERIOD
            parameters = {name: self.get_parameter(name).value for name in PARAMETERS}
            camera_info, reference = self.processor.camera_info_of(newest.cdr), self.processor.reference
            settings = self._current_settings()
            if newest.camera is not None:  # replay has no camera
                with suppress(ValueError):
                    settings = settings.of_camera(newest.camera)
                parameters.update(settings.camera_parameters(newest.camera))
            snapshot = Snapshot(
                self._name, newest.cdr, newest.time_ns, parameters, settings, camera_info, reference, self._statuses
            )
            # its checks of the machine may take minutes, for which no other request should wait
            thread = ThreadPoolExecutor(1, "polar_pipeline_snapshot")
            self._snapshot = thread.submit(self._written, "snapshot", partial(write_snapshot, snapshot))
            thread.shutdown(wait=False)  # it ends with the snapshot
            return self._snapshot
        return response

    def _end_snapshot(self) -> None:
        """Wait until the snapshot at work is written, if there is one."""
        if self._snapshot is not None:
            self._snapshot.result()

    def _on_save(self, _: Trigger.Request, response: Trigger.Response) -> Any:
        """Write the parameters in use to a file; return the response, or a future of it."""
        if self.processor is None:
            response.message = f"the node is {self.state}"
            return response
        overrides = (name for name in self.overrides if name.startswith(QOS) and self.has_parameter(name))
        values = {name: self.get_parameter(name).value for name in (*PARAMETERS, *overrides)}
        folder = self._current_settings().snapshot_folder
        return self._background.submit(self._written, "file", partial(save_parameters, folder, self._name, values))

    def _written(self, what: str, write: Callable[[], Path]) -> Trigger.Response:
        """Write a file or a folder beside the executor; return the service's response, also after a failure."""
        try:
            path = write()
        except Exception as err:  # noqa: BLE001
            reason = failure(err)
            self.get_logger().error(f"no {what}: {reason}")
            return Trigger.Response(success=False, message=reason)
        return Trigger.Response(success=True, message=printable(str(path), MAX_PATH))

    # ------------------------------------------------------------------------------------------------------ recordings

    def _on_record(self, request: SetBool.Request, response: SetBool.Response) -> Any:
        """Start or stop to record raw frames; return the response, or a future of it."""
        recording = self._recording
        if self.processor is None:
            response.message = f"the node is {self.state}"
        elif request.data and recording is not None and recording.is_active:
            response.message = printable(f"another recording is being written, {recording.describe()}", MAX_PATH)
        elif request.data:
            self._end_recording()
            self._recording = Recorder(self._name, self._current_settings(), self._diagnostics)
            return _response(self._recording.started, _record_answer)
        elif recording is None:
            response.message = "nothing was recorded"
        else:
            return _response(recording.stop(), _record_answer)
        return response

    def _end_recording(self) -> None:
        """Complete the file of the recording, if there is one."""
        if self._recording is not None:
            self._recording.close()
            self._recording = None

    # ---------------------------------------------------------------------------------------------------- diagnostics

    def _on_report(self) -> None:
        """Publish the node's report; count lost frames, and log when frames stay away."""
        lost = self._losses.poll() if self._losses is not None else 0
        if lost:
            self._diagnostics.dropped("transport", lost)
        self._follow_camera()
        line = self._diagnostics.note_subscribers(self.publisher is not None and bool(self.publisher.demand()))
        if line is not None:
            origin = self.input_name
            publishers = "" if self.camera else f" has {self.count_publishers(origin)} publishers"
            mismatch = self._find_mismatch()
            self.get_logger().warning(f"{line}; {origin}{publishers}{f': {mismatch}' * bool(mismatch)}")
        now = messages.stamp_within_range(self.get_clock().now().nanoseconds)  # a simulated clock may show any time
        self._statuses = self._make_statuses()
        self._publish_report(now, *self._statuses)

    def _find_mismatch(self) -> str:
        """Describe a publisher that the node does not hear, if it receives nothing; "" otherwise."""
        if self.input is None or self._diagnostics.is_receiving:
            return ""
        return find_mismatch(self, self.input, topics.IMAGE)

    def _publish_report(self, stamp_ns: int, *statuses: messages.Status) -> None:
        self._report.publish(bytes(messages.encode_diagnostics(stamp_ns, statuses)))

    def _make_statuses(self) -> List[messages.Status]:
        """Report frames, latency and pipeline; while the node is active also quality and layout."""
        processor, publisher = self.processor, self.publisher
        if self.settings is None or processor is None or publisher is None:
            reason = self.problem or find_namesake(self) or self.contradiction
            level = Level.ERROR if self.problem else Level.WARN if reason else Level.OK
            text = f"{self.state}: {reason}" if reason else self.state
            return [
                *self._diagnostics.statuses("", f"the node is {self.state}"),
                messages.Status(level, f"{self._name}: pipeline", text, "", {}),
            ]
        options = self._settings_in_use(self.settings).options
        sensor = self.camera.name if self.camera else options.sensor.name
        values = {
            "backend": options.backend,
            "device": processor.device,
            "resolution": options.resolution,
            "demosaic": options.interpolation,
            "ssim_mode": options.ssim_mode,
            "calibration": options.calibration.describe() if options.calibration else "none",
            "recording": printable(self._recording.describe(), MAX_PATH) if self._recording else "none",
            **publisher.last_frame,
        }
        causes = (find_namesake(self), self._find_mismatch(), self.fallback.problem(self.settings), self.contradiction)
        problems = "; ".join(filter(None, causes))
        level, text = (Level.WARN, problems) if problems else (Level.OK, processor.device)
        statuses = [
            *self._diagnostics.statuses(sensor, f"nothing arrives on {self.input_name}"),
            messages.Status(level, f"{self._name}: pipeline", text, sensor, values),
        ]
        if self.camera is not None:
            level, text, values = self.camera.source.status()
            statuses.append(messages.Status(level, f"{self._name}: camera", text, sensor, values))
        return [*statuses, *publisher.statuses(sensor)]


def _response(future: Any, answer: Callable[[Any], Any]) -> Any:
    """Return a future of the response that `answer` makes of another future once it is done."""
    response: Any = Future()
    future.add_done_callback(lambda done: response.set_result(answer(done)))
    return response


def _record_answer(done: Any) -> SetBool.Response:
    is_success, text = done.result()
    return SetBool.Response(success=is_success, message=printable(text, MAX_PATH))


class PolarNode(LiveNode):
    """A live node that takes frames from its construction on, which may raise `START_ERRORS`; see `LiveNode`."""

    def __init__(self, argv: Optional[Sequence[str]] = None, **arguments: Any) -> None:
        super().__init__(argv, **arguments)
        self.configure()
        self.activate()
