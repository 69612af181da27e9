"""The camera of a node: its frames go to the node, and to a driver's topics with subscribers. Imports no ROS."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Callable, List, Mapping, Optional, Sequence

import numpy as np

from polar_pipeline._util.errors import errors_as
from polar_pipeline.camera.facts import CameraFacts
from polar_pipeline.camera.hdr import CapturedFrame
from polar_pipeline.camera.sets import Arrival
from polar_pipeline.camera.settings import CameraSettings
from polar_pipeline.camera.source import CameraSource
from polar_pipeline.geometry.lens import load_lens
from polar_pipeline.live.diagnostics import Diagnostics
from polar_pipeline.live.parameters import Settings
from polar_pipeline.live.publisher import OutgoingMessage, OutputTopic
from polar_pipeline.options import topics
from polar_pipeline.recordings import messages
from polar_pipeline.recordings.messages import CameraInfo, Cdr
from polar_pipeline.sensor.frames import Frame

#: frame_id of the messages if the node's parameter names none.
FRAME_ID = "camera"


class CameraInput:
    """A camera as the input of a node; the client of its `source`, with the counts and the log of the diagnostics.

    The thread for frames calls `memory`, `receive` (with the frame, the state of the camera, the serialized lens
    calibration and the frame before, if both are merged) and `send`. `outputs` has publishers of `CAMERA_TOPICS` by
    name.

    Raises:
        CameraError: Aravis is not installed.
        ValueError: `camera.info_file` cannot be read.
    """

    def __init__(
        self,
        settings: Callable[[], Settings],
        memory: Callable[[], Optional[np.ndarray]],
        receive: Callable[[Cdr, CameraFacts, bytes, Optional[CapturedFrame]], None],
        outputs: Mapping[str, OutputTopic],
        send: Callable[[Sequence[OutgoingMessage]], None],
        diagnostics: Diagnostics,
    ) -> None:
        now = settings()
        self._settings = settings
        self.memory, self._receive = memory, receive
        self._outputs = outputs
        self._send = send
        #: Called with stamp, start of the exposure, arrival and state of the camera, and what hands the frame over.
        self.gate: Callable[[int, int, Arrival, CameraFacts, Callable[[], None]], None] = lambda *row: row[-1]()
        self._refuse_error = diagnostics.refuse_error
        self.dropped, self.refuse = diagnostics.dropped, diagnostics.refuse
        self.info, self.warning = diagnostics.logger.info, diagnostics.logger.warning
        self._info = _camera_info(now.camera)
        self.name = f"camera {now.camera.source}"
        self.source = CameraSource(now.camera, self.frame_id, self)

    @property
    def frame_id(self) -> str:
        """The frame_id of messages by the settings of the node."""
        return self._settings().frame_id or FRAME_ID

    # --------------------------------------------------------------------------------------------- the camera's threads

    def take(self, cdr: Cdr, facts: CameraFacts, arrival: Arrival, before: Optional[CapturedFrame] = None) -> None:
        """Pass a frame, or a pair, through the gate."""
        connection = self.source.connection
        region = connection.settings.roi if connection else (0, 0, 0, 0)
        stamp_ns = messages.peek_stamp(cdr) or 0
        before_ns = int(1000 * facts.exposure_us) // 2 if self._settings().camera.stamp == "middle" else 0
        deliver = partial(self._deliver, cdr, facts, before, self._encode_info(*region))
        self.gate(stamp_ns, stamp_ns - before_ns, arrival, facts, deliver)

    def _deliver(self, cdr: Cdr, facts: CameraFacts, before: Optional[CapturedFrame], info: bytes) -> None:
        """Hand a frame, or a pair, to the node, and publish it if its topics have subscribers."""
        outgoing: List[OutgoingMessage] = []
        for image in [cdr] if before is None else [before.cdr, cdr]:
            camera_info = messages.restamp(info, messages.peek_stamp(image) or 0)
            contents = {topics.IMAGE_INPUT: image, topics.CAMERA_INFO_INPUT: camera_info}
            outgoing += [
                (topic, contents[name]) for name, topic in self._outputs.items() if topic.get_subscription_count()
            ]
        self._receive(cdr, facts, camera_info, before)
        if not outgoing:
            return
        try:
            self._send(outgoing)
        except RuntimeError as err:
            self._refuse_error(err)

    def _encode_info(self, x: int, y: int, width: int, height: int) -> bytes:
        """Serialize the lens calibration of frames of a region; without a file it has their size only."""
        if self._info is None:
            info = CameraInfo(0, "", height, width, "", np.zeros(0), np.zeros(9), np.zeros(9), np.zeros(12))
        elif (self._info.height, self._info.width) in ((0, 0), (height, width)):
            info = replace(self._info, height=height, width=width)
        else:
            info = replace(self._info, region=(x, y, height, width))
        return bytes(messages.encode_camera_info(info, 0, self.frame_id))

    def read(self, cdr: Cdr) -> Frame:
        """Return the mosaic in a frame as the pipeline reads it; may raise FrameError."""
        return messages.to_raw(messages.decode_image(cdr), self._settings().options)

    def check(self, facts: CameraFacts) -> None:
        """Raise ValueError if the camera contradicts the parameters; warn of pixel values that are not linear."""
        self._settings().of_camera(facts)
        if facts.nonlinearity:
            self.warning(f"camera: {facts.nonlinearity}")


def _camera_info(settings: CameraSettings) -> Optional[CameraInfo]:
    """Read the lens calibration that the parameters name; raise ValueError if the file cannot be read."""
    if not settings.info_file:
        return None
    with errors_as(lambda text: ValueError(f"camera.info_file: {text}")):
        lens = load_lens(settings.info_file)
    k, d, r, p = (matrix.reshape(-1) for matrix in lens.numbers())
    return CameraInfo(0, "", lens.height, lens.width, lens.model, d, k, r, p)
