"""The lens calibrations of a frame's outputs as messages: what the node publishes and replay records."""

from __future__ import annotations

from dataclasses import replace
from typing import Dict, Iterable, Optional

from polar_pipeline.geometry import Geometry
from polar_pipeline.options import FROM_FRAMES, Options
from polar_pipeline.recordings import messages
from polar_pipeline.sensor.frames import Frame, FrameError


def encode_camera_infos(
    cdr: Optional[messages.Cdr],
    options: Options,
    frame: Frame,
    topics: Iterable[str],
    stamp_ns: int,
    frame_id: str,
) -> Dict[str, messages.Cdr]:
    """Serialize the `sensor_msgs/CameraInfo` beside each topic of images; empty without a known calibration.

    Args:
        cdr: That of the message of the raw frame; None without one. Outputs that are rectified have that of the option
            `rectify`.
        options: Options of the pipeline.
        frame: The raw frame.
        topics: Some of `CAMERA_INFO_TOPICS`.
        stamp_ns: Stamp of the frame.
        frame_id: Its frame.

    Raises:
        FrameError: The calibration cannot be read, is of frames of another size, or cannot be rotated (causes `cdr`,
            `camera_info`, `output`).
    """
    geometry = options.geometry or Geometry(step=2 if options.resolution == "half" else 1)
    shape, source = frame.shape, options.stokes_size(frame.shape)
    lens, info = geometry.lens, None
    if frame.is_split and lens is None:  # the pixels of the message are those of the Stokes image
        geometry, shape = replace(geometry, step=1), source
    if lens is not None:
        of = (lens.height, lens.width)
    elif cdr is None or options.rectify == FROM_FRAMES:
        return {}
    else:
        info = messages.decode_camera_info(cdr)
        of = messages.frame_size(info)
    if of not in ((0, 0), shape):
        raise FrameError("camera_info", f"{of[1]}x{of[0]} of a frame of {shape[1]}x{shape[0]} pixels")
    strides = {topic: options.ssim_stride if topic.startswith("quality/") else 1 for topic in topics}
    encoded = {
        stride: messages.encode_camera_info(
            messages.transform_camera_info(info, geometry, source, stride), stamp_ns, frame_id
        )
        for stride in set(strides.values())
        if stride <= min(geometry.output_size(source))
    }
    return {topic: encoded[stride] for topic, stride in strides.items() if stride in encoded}
