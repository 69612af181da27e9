"""Publishers and subscriptions of the node: message classes, QoS, lost messages, and other nodes that do not fit."""

from __future__ import annotations

import copy
from contextlib import nullcontext
from typing import Any, ContextManager

from diagnostic_msgs.msg import DiagnosticArray
from rclpy.impl.implementation_singleton import rclpy_implementation as _rclpy
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

from polar_pipeline._util.errors import errors_as
from polar_pipeline.live.preset import QOS
from polar_pipeline.options import topics
from polar_pipeline.ros.parameters import ParameterNode

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


def create_output(node: ParameterNode, message_type: str, name: str) -> Publisher:
    """Create a publisher of serialized or typed messages; ValueError if its QoS parameters are wrong."""
    with _naming_overrides(node, name):
        return node.create_publisher(
            MESSAGE_CLASSES[message_type],
            name,
            copy.copy(_OUTPUT_QOS),  # an override is written into it
            event_callbacks=PublisherEventCallbacks(use_default_callbacks=False),  # see `LossCounter`
            qos_overriding_options=_QOS_OVERRIDES,
        )


def create_input(node: ParameterNode, message_type: str, name: str, callback: Any) -> Any:
    """Create a subscription whose callback takes serialized messages; ValueError if its QoS parameters are wrong."""
    with _naming_overrides(node, name):
        return node.create_subscription(
            MESSAGE_CLASSES[message_type],
            name,
            callback,
            copy.copy(_INPUT_QOS),  # an override is written into it
            raw=True,
            event_callbacks=SubscriptionEventCallbacks(use_default_callbacks=False),  # see `LossCounter`
            qos_overriding_options=_QOS_OVERRIDES,
        )


def _naming_overrides(node: ParameterNode, name: str) -> ContextManager[None]:
    """Turn errors of rcl into a ValueError that names the QoS parameters of a topic, if it was given any."""
    prefix = f"{QOS}{node.resolve_topic_name(name)}."
    values = [f"{key}={row.value}" for key, row in node.overrides.items() if key.startswith(prefix)]
    if not values:
        return nullcontext()
    return errors_as(lambda text: ValueError(f"{', '.join(values)}: {text}"), RuntimeError)


def find_namesake(node: Node) -> str:
    """Describe other nodes that have this node's name; "" if there are none."""
    nodes = node.get_node_names_and_namespaces().count((node.get_name(), node.get_namespace()))
    if nodes < 2:
        return ""
    name = node.get_fully_qualified_name()
    return f"{nodes} nodes are called {name}: all of them publish, and all take its parameters"


def find_mismatch(node: Node, subscription: Any, message_type: str) -> str:
    """Describe a publisher whose type or QoS does not fit that of a subscription; "" if all publishers fit."""
    for publisher in node.get_publishers_info_by_topic(subscription.topic_name):
        if publisher.topic_type != message_type:
            is_packed = publisher.topic_type == topics.COMPRESSED
            help_text = ": name the topic of raw images, or decompress with image_transport's republish" * is_packed
            sends = f"a publisher on {subscription.topic_name} sends {publisher.topic_type}"
            return f"{sends}, the node takes {message_type}{help_text}"
        compatibility, reason = qos_check_compatible(publisher.qos_profile, subscription.qos_profile)
        if compatibility == QoSCompatibility.ERROR:
            return f"a publisher on {subscription.topic_name} is not heard: {reason}"
    return ""


class LossCounter:
    """Counter of the messages that the middleware has lost for a subscription.

    rclpy would call back instead (`message_lost`), and with its events executor that is a deadlock: its thread takes
    the event and waits for the reader's lock, which the middleware's thread holds while it reports the next loss
    (ros2/rmw_fastrtps #890). Without a callback the middleware reports nothing, so the second half of it never happens.
    For the same reason the node's topics have no other callbacks for QoS events.

    Not counted: what was sent before publisher and subscription found each other, and what a newer message replaced in
    the subscription's own queue.
    """

    def __init__(self, subscription: Any) -> None:
        make: Any = getattr(_rclpy, "EventHandle", None) or getattr(_rclpy, "QoSEvent")  # noqa: B009 - on Humble
        try:
            self._event = make(subscription.handle, _rclpy.rcl_subscription_event_type_t.RCL_SUBSCRIPTION_MESSAGE_LOST)
        except _rclpy.UnsupportedEventTypeError:
            self._event = None
        self._reported = 0

    def poll(self) -> int:
        """Return the number of messages lost since the last call; 0 if the middleware does not count them."""
        if self._event is None:
            return 0
        with self._event:
            total = int(self._event.take_event().total_count)
        lost, self._reported = total - self._reported, total
        return max(0, lost)

    def close(self) -> None:
        """Release the middleware's handle, before that of the subscription."""
        if self._event is not None:
            self._event.destroy_when_not_in_use()
            self._event = None
