"""The node as a managed node, driven through its states by the services that lifecycle managers call."""
# ruff: noqa: E402 - rclpy may be missing

from __future__ import annotations

import signal
import threading
import tracemalloc
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Set, Tuple, Union
from xml.etree import ElementTree as ET

import numpy as np
import pytest

rclpy = pytest.importorskip("rclpy")
pytest.importorskip("lifecycle_msgs")

import drill
from calibrations import ideal_calibration
from lifecycle_msgs.msg import TransitionEvent
from lifecycle_msgs.srv import GetState
from rclpy.executors import SingleThreadedExecutor
from rclpy.parameter import Parameter
from sensor_msgs.msg import Image
from services import ask, change_state
from std_srvs.srv import SetBool, Trigger
from support import ROOT, ended_afterwards, wait_for

from polar_pipeline import SENSORS
from polar_pipeline.calibration import save_calibration
from polar_pipeline.options.topics import PRODUCT_TOPICS
from polar_pipeline.recordings import messages
from polar_pipeline.ros import WRONG_USAGE
from polar_pipeline.ros.lifecycle import ManagedNode

pytestmark = pytest.mark.ros
#: Topics that rclpy gives every node, the report, and the lifecycle's own.
ALWAYS = {"/rosout", "/parameter_events", "/diagnostics", "/polar_pipeline/transition_event"}
INPUTS = {"/image_raw", "/camera_info", "/reference"}


class Manager(drill.Peer):
    """A lifecycle manager, which is camera and viewer too."""

    def step(self, transition: Union[str, int], node: str = "/polar_pipeline") -> bool:
        """Ask for a transition, by its label or as managers do by its number; whether it succeeded."""
        return change_state(self.node, node, transition)

    def state(self, node: str = "/polar_pipeline") -> str:
        return str(ask(self.node, GetState, f"{node}/get_state").current_state.label)

    def published(self) -> Set[str]:
        return {name for name, _ in self.node.get_publisher_names_and_types_by_node("polar_pipeline", "/")}

    def subscribed(self) -> Set[str]:
        return {name for name, _ in self.node.get_subscriber_names_and_types_by_node("polar_pipeline", "/")}

    def offered(self) -> Set[str]:
        return {name for name, _ in self.node.get_service_names_and_types_by_node("polar_pipeline", "/")}


@pytest.fixture
def manager() -> Iterator[Manager]:
    made = Manager()
    yield made
    made.close()


def test_states(managed: Any, manager: Manager, start: Any) -> None:
    """What exists in each state, and that a camera's frames come out while the node is active only, and none is wrong.

    Subscriptions come and go under an executor that waits for them.
    """
    process = managed()
    camera = start(drill.__file__, "camera", "1000000000000")
    events: List[Any] = []
    topic = "/polar_pipeline/transition_event"
    manager.node.create_subscription(TransitionEvent, topic, lambda event: events.append(event), 100)  # noqa: PLW0108 - rclpy looks at the signature
    outputs = {f"/{row.name}" for row in PRODUCT_TOPICS.values()}
    assert manager.state() == "unconfigured"
    wait_for(lambda: manager.published() == ALWAYS, "no outputs")
    assert manager.subscribed() == set()
    manager.says("pipeline", "unconfigured")

    for _ in range(2):
        assert manager.step("configure")
        assert manager.state() == "inactive"
        manager.listen("intensity", "dolp")
        wait_for(lambda: manager.published() >= ALWAYS | outputs, "the outputs")
        assert manager.subscribed() == set()
        assert "/polar_pipeline/snapshot" not in manager.offered()
        manager.says("frames", "the node is inactive")

        for _ in range(2):
            count = {name: len(heard) for name, heard in manager.heard.items()}
            assert manager.step("activate")
            assert manager.state() == "active"
            wait_for(lambda: manager.subscribed() == INPUTS, "the inputs")
            wait_for(lambda: "/polar_pipeline/snapshot" in manager.offered(), "the snapshots")
            wait_for(lambda n=count: all(len(manager.heard[name]) > n[name] + 1 for name in n), "frames")
            manager.says("pipeline", "cpu (")

            assert manager.step("deactivate")
            assert manager.state() == "inactive"
            wait_for(lambda: not manager.subscribed(), "that the inputs are gone")
            assert manager.published() >= outputs
            manager.reports.clear()
            manager.says("frames", "the node is inactive")
            count = {name: len(heard) for name, heard in manager.heard.items()}
            manager.reports.clear()
            manager.says("frames", "the node is inactive")
            assert {name: len(heard) for name, heard in manager.heard.items()} == count

        assert manager.step("cleanup")
        assert manager.state() == "unconfigured"
        wait_for(lambda: manager.published() == ALWAYS, "that the outputs are gone")
    camera.close()
    assert drill.check(manager.heard)
    assert process.text.count("waits for frames on /image_raw") == 4
    wait_for(lambda: [row.goal_state.label for row in events[-2:]] == ["cleaningup", "unconfigured"], "the events")
    process.assert_end(0, signal.SIGTERM)


#: State -> transitions that are possible there, by the design of managed nodes, and one that leads to the next state.
POSSIBLE = {
    "unconfigured": ({1, 5}, 1),  # configure, shutdown
    "inactive": ({2, 3, 6}, 3),  # cleanup, activate, shutdown
    "active": ({4, 7}, 7),  # deactivate, shutdown
    "finalized": (set(), 0),
}


def test_what_is_not_possible_is_refused_by_number(managed: Any, manager: Manager) -> None:
    """Jazzy's rclpy raises, and never answered."""
    process = managed()
    for state, (possible, way) in POSSIBLE.items():
        assert manager.state() == state
        for number in {*range(1, 8), 10, 255} - possible:
            assert not manager.step(number), (state, number)
        assert manager.state() == state
        assert not way or manager.step(way)
    manager.says("frames", lambda line: "refused" not in line)
    assert process.is_alive()
    assert "Traceback" not in process.text


def test_rig(manager: Manager, start: Any, tmp_path: Path) -> None:
    """The cameras of one process have a state each; one that cannot be configured stops no other."""
    wrong = "{quality: {ssim_warn: 0.1, ssim_error: 0.9}}"
    path = tmp_path / "rig.yaml"
    path.write_text(
        "cameras:\n"
        "  - {namespace: front, image_topic: /image_raw, parameters: {backend: cpu, frame_id: camera}}\n"
        f"  - {{namespace: rear, image_topic: /image_raw, parameters: {wrong}}}\n"
    )
    main = "import sys; from polar_pipeline.node import rig; sys.exit(rig())"
    process = start("-c", main, str(path), "--lifecycle", "--namespace", "robot")
    front, rear = "/robot/front/polar_pipeline", "/robot/rear/polar_pipeline"
    assert not manager.step("configure", rear)
    assert manager.step("configure", front)
    assert manager.step("activate", front)
    assert [manager.state(name) for name in (front, rear)] == ["active", "unconfigured"]
    wait_for(lambda: manager.node.count_subscribers("/image_raw") == 1, "the input of one of them")
    assert manager.step("shutdown", rear)
    process.assert_end(0, signal.SIGTERM)


def test_arguments_that_do_not_exist(start: Any) -> None:
    """A misspelled option would start an ordinary node."""
    process = start("-m", "polar_pipeline.node", "--lifecycel", "--ros-args", "-r", "__ns:=/a")
    process.assert_end(WRONG_USAGE)
    assert "unrecognized arguments: --lifecycel" in process.text


def test_without_the_lifecycle_messages(start: Any) -> None:
    """The option is refused with what is missing; the ordinary node starts."""
    main = "import sys; sys.modules['lifecycle_msgs'] = None; from polar_pipeline import node; sys.exit(node.main())"
    process = start("-c", main, "--lifecycle")
    process.assert_end(WRONG_USAGE)
    assert "--lifecycle needs the ROS package lifecycle_msgs: " in process.text
    process = start("-c", main, "--ros-args", "-p", "backend:=cpu")
    wait_for(lambda: "waits for frames" in process.text, "the ordinary node")


# ------------------------------------------------------------------------------------------------ in the test's process


class Host:
    """A managed node in this process, which the test spins while it waits."""

    def __init__(self, **values: Any) -> None:
        self.context = rclpy.Context()
        self.context.init()
        overrides = [Parameter(name, value=value) for name, value in {"backend": "cpu", **values}.items()]
        self.node = ManagedNode([], context=self.context, parameter_overrides=overrides)
        self.peer = rclpy.create_node("peer", context=self.context)
        self.executor = SingleThreadedExecutor(context=self.context)
        self.executor.add_node(self.node)

    def step(self, label: str, found: str = "SUCCESS") -> None:
        assert getattr(self.node, f"trigger_{label}")().name == found, self.node.problem

    def state(self) -> str:
        assert self.node._state_machine.current_state[1] == self.node.state
        return str(self.node.state)

    def set(self, **values: Any) -> bool:
        changes = [Parameter(name, value=value) for name, value in values.items()]
        return bool(self.node.set_parameters_atomically(changes).successful)

    def topics(self) -> Dict[str, Set[str]]:
        """Names of the node's topics and services, by the right that it needs for them."""
        name, namespace = self.node.get_name(), self.node.get_namespace()
        return {
            "publish": {row for row, _ in self.node.get_publisher_names_and_types_by_node(name, namespace)},
            "subscribe": {row for row, _ in self.node.get_subscriber_names_and_types_by_node(name, namespace)},
            "reply": {row for row, _ in self.node.get_service_names_and_types_by_node(name, namespace)},
        }

    def published(self) -> int:
        return int(self.node._diagnostics.statuses("", "")[0].values["published"])

    def wait(self, condition: Callable[[], Any], what: str) -> Any:
        return wait_for(lambda: self.executor.spin_once(timeout_sec=0.01) or condition(), what)

    def close(self) -> None:
        self.node.close()
        self.executor.shutdown()
        self.node.destroy_node()
        self.peer.destroy_node()
        self.context.try_shutdown()


@pytest.fixture
def host() -> Iterator[Callable[..., Host]]:
    yield from ended_afterwards(Host, Host.close)


def own_threads() -> Set[str]:
    return {thread.name for thread in threading.enumerate() if thread.name.startswith("polar_pipeline")}


@pytest.mark.parametrize("kind", ["default", "full", "calibrated"])
def test_nothing_of_a_frames_size_is_kept(host: Any, kind: str, tmp_path: Path) -> None:
    """Of all that Python and NumPy allocate while the node is active; of a calibration after cleanup."""
    raw = np.random.default_rng(1).integers(10, 200, (1024, 1224)).astype(np.uint8)
    options: Dict[str, Any] = {"resolution": "full", "demosaic": "bilinear"} if kind == "full" else {}
    if kind == "calibrated":
        options["calibration"] = str(tmp_path / "sensor.npz")
        save_calibration(tmp_path / "sensor.npz", ideal_calibration(SENSORS["IMX250MZR"], raw.shape))
    cdr = bytes(messages.encode_image(10**9, "camera", "mono8", raw))
    before = own_threads()
    made = host(**options)
    images = [name for name, row in PRODUCT_TOPICS.items() if row.message_type == messages.IMAGE]
    for name in images:
        made.peer.create_subscription(Image, PRODUCT_TOPICS[name].name, lambda _: None, 10)
    camera = made.peer.create_publisher(Image, "image_raw", 10)

    def kept() -> List[Tuple[int, str]]:
        traces = tracemalloc.take_snapshot().traces
        return [(row.size, str(row.traceback)) for row in traces if row.size >= raw.nbytes // 4]

    def is_heard() -> bool:
        heard = made.node.publisher.demand()
        return bool(camera.get_subscription_count()) and all(PRODUCT_TOPICS[name].name in heard for name in images)

    tracemalloc.start()
    try:
        for _ in range(2):
            made.step("configure")
            made.step("activate")
            made.wait(is_heard, "viewers and camera")
            for _ in range(3):
                count = made.published()
                camera.publish(cdr)
                made.wait(lambda count=count: made.published() > count, "a frame")
            assert own_threads() > before
            assert max(kept())[0] > raw.nbytes, "the test sees no arrays"
            made.step("deactivate")
            for _ in range(5):
                made.executor.spin_once(timeout_sec=0.01)
            assert own_threads() == before
            assert bool(kept()) == (kind == "calibrated"), kept()
            made.step("cleanup")
            assert not kept()
    finally:
        tracemalloc.stop()


def test_parameters_in_every_state(host: Any) -> None:
    """They hold from the next activation on; what is wrong by itself is refused in every state.

    Wrong ones of the start fail configuration, with the reason in diagnostics; once they are right, the node goes on.
    """
    made = host(resolution="third")

    def fails(said: str) -> None:
        made.step("configure", "FAILURE")
        assert made.state() == "unconfigured"
        assert made.node.problem.startswith(f"cannot be configured: {said}")
        row = next(row for row in made.node._make_statuses() if row.name.endswith("pipeline"))
        assert (int(row.level), said in row.message) == (2, True)

    def check(state: str) -> None:
        assert made.state() == state
        for name, value in (("resolution", "quarter"), ("resolution", 3), ("threads", 2)):
            assert not made.set(**{name: value})
        assert made.set(frame_id=state)
        assert made.node.settings is None or made.node.settings.frame_id == state

    fails("resolution must be one of half, full")
    assert made.set(resolution="full")
    check("unconfigured")
    # alone neither value would fit what the other one is
    assert made.set(**{"quality.ssim_error": 0.9})
    fails("quality.ssim_error must be at most quality.ssim_warn")
    assert made.set(**{"quality.ssim_warn": 0.95})
    made.step("configure")
    assert made.node.settings.frame_id == "unconfigured"
    check("inactive")
    assert made.set(**{"quality.ssim_warn": 0.1})  # held back, as it would be below the limit of an error
    assert made.node.settings.limits.ssim_warn == 0.95
    assert "quality.ssim_warn=0.1" in made.node._make_statuses()[-1].message
    made.step("activate")
    check("active")
    made.step("deactivate")
    made.step("cleanup")
    assert made.set(sensor="IMX250MYR")
    made.step("configure")
    assert made.node.settings.options.sensor.name == "IMX250MYR"


@pytest.mark.parametrize("steps", [[], ["configure"], ["configure", "activate"]])
def test_shutdown(host: Any, steps: List[str]) -> None:
    """Everything is released; the node stays with its parameters."""
    made = host()
    topics = made.topics()
    for label in [*steps, "shutdown"]:
        made.step(label)
    assert made.state() == "finalized"
    assert made.topics() == topics
    assert made.set(frame_id="late")


def test_the_security_policy_names_what_a_managed_node_has(host: Any) -> None:
    made = host(use_sim_time=True)
    made.step("configure")
    made.step("activate")
    found = made.topics()
    (profile,) = ET.parse(ROOT / "config" / "sros2_policy.xml").getroot().iter("profile")
    for right, names in found.items():
        allowed = {row.text or "" for group in profile if group.get(right) == "ALLOW" for row in group}
        expanded = {name.replace("~", "/polar_pipeline") if name[0] in "~/" else f"/{name}" for name in allowed}
        others = {"/polar_pipeline/get_type_description", "/polar_pipeline/trigger"}  # of Jazzy on; of a camera
        others |= {"/image_raw", "/camera_info"} if right == "publish" else set()  # of a camera too
        assert expanded - others <= names <= expanded, right


def test_simulated_time_is_not_for_a_camera(host: Any) -> None:
    """Whether it is set before the node is configured or after."""
    made = host(**{"camera.source": "aravis:NONE", "use_sim_time": True})
    made.step("configure", "FAILURE")
    assert "use_sim_time false" in made.node.problem
    assert made.set(use_sim_time=False)
    made.step("configure")
    assert not made.set(use_sim_time=True)
    assert "camera.source needs use_sim_time false" in made.node._diagnostics.statuses("", "")[0].values["last error"]


def test_an_error_that_was_not_expected(host: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Error processing ends unconfigured, with nothing left; from there the node starts again."""
    made = host()
    made.step("configure")
    threads = own_threads()
    monkeypatch.setattr("polar_pipeline.ros.node.LossCounter", lambda _: 1 / 0)
    made.step("activate", "ERROR")
    assert made.state() == "unconfigured"
    assert own_threads() == threads
    assert not [row for row in made.node.subscriptions if row.topic_name in INPUTS]
    assert (
        made.node._diagnostics.statuses("", "")[0].values["last error"]
        == "internal: ZeroDivisionError: division by zero"
    )
    monkeypatch.undo()
    made.step("configure")
    made.step("activate")
    assert made.node.problem == ""


def test_a_backend_that_fails_leaves_the_node_inactive(host: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made = host()
    made.step("configure")

    def fail(_: Any) -> None:
        raise RuntimeError("no GPU today")

    monkeypatch.setattr("polar_pipeline.ros.node.FrameProcessor.warm_up", fail)
    made.step("activate", "FAILURE")
    assert made.state() == "inactive"
    assert made.node.problem == "cannot be activated: no GPU today"
    monkeypatch.undo()
    made.step("activate")


def test_wrong_qos_fails_configure_and_leaves_no_publisher(host: Any) -> None:
    made = host(**{"qos_overrides./polarization/dolp.publisher.reliability": "maybe"})
    publishers = {row.topic_name for row in made.node.publishers}
    made.step("configure", "FAILURE")
    assert "maybe" in made.node.problem
    assert {row.topic_name for row in made.node.publishers} == publishers


def test_an_executor_that_calls_back_late(host: Any) -> None:
    """It may have seen a message before the subscription was destroyed."""
    made = host()
    for label in ("configure", "activate", "deactivate"):
        made.step(label)
    for callback in (made.node._on_image, made.node._on_camera_info, made.node._on_reference):
        callback(b"")
    answer = made.node._on_snapshot(Trigger.Request(), Trigger.Response())
    again = made.node._on_record(SetBool.Request(data=True), SetBool.Response())
    saved = made.node._on_save(Trigger.Request(), Trigger.Response())
    for each in (answer, again, saved):
        assert (each.success, each.message) == (False, "the node is inactive")
    assert made.node._diagnostics.statuses("", "")[0].values["received"] == "0"
