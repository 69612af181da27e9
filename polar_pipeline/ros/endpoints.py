"""How the node subscribes and publishes: message classes and QoS of its topics."""

from __future__ import annotations

import copy
from typing import Any

from diagnostic_msgs.msg import DiagnosticArray
from rclpy.node import Node
from rclpy.publisher import Publisher
from rclpy.qos import QoSPolicyKind, QoSPresetProfiles
from rclpy.qos_overriding_options import QoSOverridingOptions
from sensor_msgs.msg import CameraInfo, CompressedImage, Image
from std_msgs.msg import Float32

from polar_pipeline import topics
from polar_pipeline.ros.publisher import OutputTopics

try:
    from rclpy.event_handler import PublisherEventCallbacks, SubscriptionEventCallbacks
except ImportError:  # Humble
    from rclpy.qos_event import PublisherEventCallbacks, SubscriptionEventCallbacks

#: Message type -> its class.
MESSAGE_CLASSES = {
    topics.IMAGE: Image,
    topics.COMPRESSED: CompressedImage,
    topics.CAMERA_INFO: CameraInfo,
    topics.FLOAT32: Float32,
    topics.DIAGNOSTICS: DiagnosticArray,
}
#: Inputs take best effort, so that every camera matches; outputs are as the middleware has them by default.
_INPUT_QOS, _OUTPUT_QOS = QoSPresetProfiles.SENSOR_DATA, QoSPresetProfiles.SYSTEM_DEFAULT
#: Policies that parameters `qos_overrides.*` may change.
_QOS_OVERRIDES = QoSOverridingOptions(
    (QoSPolicyKind.HISTORY, QoSPolicyKind.DEPTH, QoSPolicyKind.RELIABILITY, QoSPolicyKind.DURABILITY)
)


def create_output(node: Node, message_type: str, name: str) -> Publisher:
    """A publisher of serialized or typed messages."""
    return node.create_publisher(
        MESSAGE_CLASSES[message_type],
        name,
        copy.copy(_OUTPUT_QOS.value),  # an override is written into it
        event_callbacks=PublisherEventCallbacks(use_default_callbacks=False),  # see `LossCounter`
        qos_overriding_options=_QOS_OVERRIDES,
    )


def create_input(node: Node, message_type: str, name: str, callback: Any) -> Any:
    """A subscription whose callback takes serialized messages."""
    return node.create_subscription(
        MESSAGE_CLASSES[message_type],
        name,
        callback,
        copy.copy(_INPUT_QOS.value),  # an override is written into it
        raw=True,
        event_callbacks=SubscriptionEventCallbacks(use_default_callbacks=False),  # see `LossCounter`
        qos_overriding_options=_QOS_OVERRIDES,
    )


def create_outputs(node: Node) -> OutputTopics:
    """Publishers of every output of a node but its report."""
    return OutputTopics(
        {name: create_output(node, row.message_type, row.name) for name, row in topics.PRODUCT_TOPICS.items()},
        {name: create_output(node, topics.COMPRESSED, topic) for name, topic in topics.COMPRESSED_TOPICS.items()},
        {topic: create_output(node, topics.CAMERA_INFO, topic) for topic in topics.CAMERA_INFO_TOPICS},
        create_output(node, topics.DIAGNOSTICS, topics.LATENCY),
    )
