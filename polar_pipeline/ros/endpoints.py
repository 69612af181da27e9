"""How the node subscribes and publishes: message classes and QoS of its topics, and who else is there."""

from __future__ import annotations

import copy
from typing import Any

from diagnostic_msgs.msg import DiagnosticArray
from rclpy.node import Node
from rclpy.publisher import Publisher
from rclpy.qos import (
    QoSCompatibility,
    QoSDurabilityPolicy,
    QoSPolicyKind,
    QoSPresetProfiles,
    QoSProfile,
    QoSReliabilityPolicy,
    qos_check_compatible,
)
from rclpy.qos_overriding_options import QoSOverridingOptions
from sensor_msgs.msg import CameraInfo, CompressedImage, Image
from std_msgs.msg import Float32

from polar_pipeline import topics
from polar_pipeline.live.publisher import OutputTopics

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
#: QoS of inputs: best effort matches the publishers of every camera.
_INPUT_QOS = QoSPresetProfiles.SENSOR_DATA.value
#: QoS of outputs: reliable matches every subscription. Volatile, which Fast DDS is not by default: a new subscriber of
#: a transient-local topic gets an old image first. One message: the newest frame replaces one that waits for a reader.
_OUTPUT_QOS = QoSProfile(depth=1, reliability=QoSReliabilityPolicy.RELIABLE, durability=QoSDurabilityPolicy.VOLATILE)
#: Policies that parameters `qos_overrides.*` may change.
_QOS_OVERRIDES = QoSOverridingOptions(
    (QoSPolicyKind.HISTORY, QoSPolicyKind.DEPTH, QoSPolicyKind.RELIABILITY, QoSPolicyKind.DURABILITY)
)


def create_output(node: Node, message_type: str, name: str) -> Publisher:
    """A publisher of serialized or typed messages."""
    return node.create_publisher(
        MESSAGE_CLASSES[message_type],
        name,
        copy.copy(_OUTPUT_QOS),  # an override is written into it
        event_callbacks=PublisherEventCallbacks(use_default_callbacks=False),  # see `LossCounter`
        qos_overriding_options=_QOS_OVERRIDES,
    )


def create_input(node: Node, message_type: str, name: str, callback: Any) -> Any:
    """A subscription whose callback takes serialized messages."""
    return node.create_subscription(
        MESSAGE_CLASSES[message_type],
        name,
        callback,
        copy.copy(_INPUT_QOS),  # an override is written into it
        raw=True,
        event_callbacks=SubscriptionEventCallbacks(use_default_callbacks=False),  # see `LossCounter`
        qos_overriding_options=_QOS_OVERRIDES,
    )


def create_outputs(node: Node) -> OutputTopics:
    """Publishers of every output of a node but its report.

    Raises:
        RuntimeError: A parameter `qos_overrides.*` is wrong; then no publisher is left.
    """
    others = set(node.publishers)
    try:
        return OutputTopics(
            {
                name: [create_output(node, row.message_type, topic) for topic in row.names]
                for name, row in topics.PRODUCT_TOPICS.items()
            },
            {
                name: [create_output(node, topics.COMPRESSED, topic) for topic in topics.jpeg_topics(name)]
                for name in topics.COMPRESSED_TOPICS
            },
            {topic: create_output(node, topics.CAMERA_INFO, topic) for topic in topics.CAMERA_INFO_TOPICS},
            {name: create_output(node, topics.FLOAT32, topic) for name, topic in topics.NUMBER_TOPICS.items()},
            create_output(node, topics.DIAGNOSTICS, topics.LATENCY),
        )
    except BaseException:
        for publisher in set(node.publishers) - others:
            node.destroy_publisher(publisher)
        raise


def destroy_outputs(node: Node, outputs: OutputTopics) -> None:
    """Destroy the publishers of `create_outputs`."""
    for publisher in outputs.all():
        node.destroy_publisher(publisher)


def find_namesake(node: Node) -> str:
    """That other nodes have this one's name; "" where none has."""
    nodes = node.get_node_names_and_namespaces().count((node.get_name(), node.get_namespace()))
    if nodes < 2:
        return ""
    name = node.get_fully_qualified_name()
    return f"{nodes} nodes are called {name}: all of them publish, and all take its parameters"


def find_mismatch(node: Node, subscription: Any) -> str:
    """A publisher whose QoS does not fit a subscription's; "" where there is none."""
    for publisher in node.get_publishers_info_by_topic(subscription.topic_name):
        found, reason = qos_check_compatible(publisher.qos_profile, subscription.qos_profile)
        if found == QoSCompatibility.ERROR:
            return f"a publisher on {subscription.topic_name} is not heard: {reason}"
    return ""
