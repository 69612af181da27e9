"""The shipped SROS 2 policy: it grants the node's endpoints in DDS and no others, and a secured network obeys it.

Keys and signatures are made by openssl's command line, permissions by the rules of DDS-Security and of ROS's names of
topics, without sros2.
"""
# ruff: noqa: E402 - rclpy may be missing

from __future__ import annotations

import re
import shutil
import subprocess
from importlib import import_module
from pathlib import Path
from typing import Any, Dict, Iterator, List, Set
from xml.etree import ElementTree as ET

import pytest

rclpy = pytest.importorskip("rclpy")

import drill
from services import ask, change_state
from std_srvs.srv import SetBool, Trigger
from support import ROOT, wait_for

from polar_pipeline.options.topics import PRODUCT_TOPICS

pytestmark = pytest.mark.ros
POLICY = ROOT / "config" / "sros2_policy.xml"
NODE = "/polar_pipeline"
#: Every node of ROS tells others of its endpoints on this topic, which no policy names.
GRAPH = "ros_discovery_info"
#: Prefix and suffix of a topic in DDS by what a profile grants (design.ros2.org, "Topic and Service name mapping").
NAMES = {
    "publish": (("publish", "rt", ""),),
    "subscribe": (("subscribe", "rt", ""),),
    "reply": (("publish", "rr", "Reply"), ("subscribe", "rq", "Request")),
}


def granted(is_reduced: bool = False) -> Dict[str, Set[str]]:
    """The topics of DDS that the policy grants: "publish" and "subscribe".

    Args:
        is_reduced: Without the lines that only a node with a camera of its own, or a managed node, needs.
    """
    text = POLICY.read_text(encoding="utf-8").partition("?>")[2]
    if is_reduced:
        text, count = re.subn(r"<!-- with the .*?(?=<!-- with the |</topics>|</services>)", "", text, flags=re.DOTALL)
        assert count == 4
    (profile,) = ET.fromstring(text).iter("profile")
    namespace, node = profile.attrib["ns"], profile.attrib["node"]
    topics: Dict[str, Set[str]] = {"publish": {GRAPH}, "subscribe": {GRAPH}}
    for group in profile:
        ((right, verdict),) = group.attrib.items()
        assert verdict == "ALLOW"
        for name in (row.text or "" for row in group):
            full = name if name[0] == "/" else f"{namespace}{name}".replace("/~", f"/{node}")
            for action, prefix, suffix in NAMES[right]:
                topics[action].add(f"{prefix}{full}{suffix}")
    return topics


# ---------------------------------------------------------------------------------------------------------------- keys


GOVERNANCE = """<dds><domain_access_rules><domain_rule>
<domains><id_range><min>0</min><max>230</max></id_range></domains>
<allow_unauthenticated_participants>false</allow_unauthenticated_participants>
<enable_join_access_control>true</enable_join_access_control>
<discovery_protection_kind>ENCRYPT</discovery_protection_kind>
<liveliness_protection_kind>ENCRYPT</liveliness_protection_kind>
<rtps_protection_kind>SIGN</rtps_protection_kind>
<topic_access_rules><topic_rule><topic_expression>*</topic_expression>
<enable_discovery_protection>true</enable_discovery_protection>
<enable_liveliness_protection>true</enable_liveliness_protection>
<enable_read_access_control>true</enable_read_access_control>
<enable_write_access_control>true</enable_write_access_control>
<metadata_protection_kind>ENCRYPT</metadata_protection_kind><data_protection_kind>ENCRYPT</data_protection_kind>
</topic_rule></topic_access_rules></domain_rule></domain_access_rules></dds>
"""
PERMISSIONS = """<dds><permissions><grant name="{name}"><subject_name>CN={name}</subject_name>
<validity><not_before>2020-01-01T00:00:00</not_before><not_after>2037-01-01T00:00:00</not_after></validity>
<allow_rule><domains><id_range><min>0</min><max>230</max></id_range></domains>
<publish><topics>{publish}</topics></publish><subscribe><topics>{subscribe}</topics></subscribe></allow_rule>
<default>DENY</default></grant></permissions></dds>
"""


class Keystore:
    """Keys of one authority, as ROS looks for them.

    Args:
        folder: For `ROS_SECURITY_KEYSTORE`.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir()
        self._openssl("req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=authority")
        (folder / "new.pem").rename(folder / "authority.pem")
        (folder / "new.key").rename(folder / "authority.key")

    def _openssl(self, command: str, *more: str) -> None:
        """Run a command of openssl with `new.pem` and `new.key` as outputs."""
        words = ["openssl", *command.split(), "-keyout", "new.key", "-out", "new.pem", *more]
        subprocess.run(words, cwd=self._folder, check=True, capture_output=True)

    def add(self, enclave: str, publish: Set[str], subscribe: Set[str]) -> None:
        """Create the keys and the signed permissions of an enclave."""
        folder = self._folder / "enclaves" / enclave[1:]
        folder.mkdir(parents=True)
        authority = ("-signer", "authority.pem", "-inkey", "authority.key")
        request = "req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes"
        self._openssl(request, "-subj", f"/CN={enclave}".replace("CN=/", "CN=\\/"))
        sign = "openssl x509 -req -in new.pem -CA authority.pem -CAkey authority.key -CAcreateserial -days 2 -out"
        subprocess.run([*sign.split(), folder / "cert.pem"], cwd=self._folder, check=True, capture_output=True)
        (self._folder / "new.key").rename(folder / "key.pem")
        lists = {
            name: "".join(f"<topic>{topic}</topic>" for topic in sorted(topics))
            for name, topics in (("publish", publish), ("subscribe", subscribe))
        }
        documents = {"governance": GOVERNANCE, "permissions": PERMISSIONS.format(name=enclave, **lists)}
        for name, text in documents.items():
            command = ["openssl", "smime", "-sign", "-text", *authority, "-out", folder / f"{name}.p7s"]
            subprocess.run(command, cwd=self._folder, check=True, input=text.encode())
        for name in ("identity_ca.cert.pem", "permissions_ca.cert.pem"):
            shutil.copy(self._folder / "authority.pem", folder / name)

    def environment(self) -> Dict[str, str]:
        return {
            "ROS_SECURITY_KEYSTORE": str(self._folder),
            "ROS_SECURITY_ENABLE": "true",
            "ROS_SECURITY_STRATEGY": "Enforce",
        }


@pytest.fixture
def keystore(tmp_path: Path) -> Keystore:
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    return Keystore(tmp_path / "keys")


@pytest.fixture
def secured(keystore: Keystore, monkeypatch: pytest.MonkeyPatch) -> Keystore:
    """A keystore with an operator who may do everything, which this process and those that it starts use."""
    keystore.add("/operator", {"*"}, {"*"})
    for name, value in keystore.environment().items():
        monkeypatch.setenv(name, value)
    context = rclpy.Context()
    try:
        context.init(args=["--ros-args", "--enclave", "/operator"])
        rclpy.create_node("probe", context=context).destroy_node()
    except Exception as err:
        # in the words of Fast DDS and of CycloneDDS
        if not re.search("doesn't have the security libraries|does not have security support", str(err)):
            raise
        pytest.skip("the middleware was built without security, as that of the wheels of ROS is")
    finally:
        context.try_shutdown()
    return keystore


@pytest.fixture
def operator(secured: Keystore, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:  # noqa: ARG001 - its keys
    """Camera, viewers and operator with keys."""
    initialize = rclpy.Context.init
    arguments = ["--ros-args", "--enclave", "/operator"]
    monkeypatch.setattr(rclpy.Context, "init", lambda self: initialize(self, args=arguments))
    made = drill.Peer()
    yield made
    made.close()


# --------------------------------------------------------------------------------------------------------------- tests


def test_the_policy_grants_the_endpoints_in_dds(managed: Any, peer: drill.Peer) -> None:
    """No endpoint is missing and none is too much, by the middleware's own names."""
    managed("-p", "use_sim_time:=true")
    for transition in ("configure", "activate"):
        assert change_state(peer.node, NODE, transition)
    present: Dict[str, Set[str]] = {"publish": set(), "subscribe": set()}

    def looked() -> bool:
        by_node = {
            "publish": peer.node.get_publisher_names_and_types_by_node,
            "subscribe": peer.node.get_subscriber_names_and_types_by_node,
        }
        for action, query in by_node.items():
            present[action] = {name for name, _ in query(NODE[1:], "/", no_demangle=True)}
        return f"rr{NODE}/recordReply" in present["publish"] and "rt/image_raw" in present["subscribe"]

    wait_for(looked, "the node's endpoints")
    later = {f"{prefix}{NODE}/{name}" for prefix, name in (("rr", "triggerReply"), ("rq", "triggerRequest"))}
    camera: Dict[str, Set[str]] = {"publish": {"rt/image_raw", "rt/camera_info"}, "subscribe": set()}
    for action, topics in granted().items():
        assert present[action] <= topics, f"{action}: the policy lacks topics"
        left = topics - present[action] - {GRAPH} - later - camera[action]
        assert not {name for name in left if "get_type_description" not in name}, f"{action}: too much"


def test_openssl_verifies_the_signatures(keystore: Keystore, tmp_path: Path) -> None:
    """The documents that the secured tests depend on, where these are skipped too."""
    keystore.add(NODE, **granted())
    folder = tmp_path / "keys" / "enclaves" / "polar_pipeline"
    verify = ["openssl", "smime", "-verify", "-text", "-CAfile", "permissions_ca.cert.pem", "-in", "permissions.p7s"]
    text = subprocess.run(verify, cwd=folder, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
    assert {row.text for row in ET.fromstring(text).iter("topic")} == set().union(*granted().values())
    chain = subprocess.run(
        ["openssl", "verify", "-CAfile", "identity_ca.cert.pem", "cert.pem"], cwd=folder, check=False
    )
    assert chain.returncode == 0


#: Prints which topics have publishers, and what comes of them.
READER = """
import sys, rclpy
from rclpy.utilities import remove_ros_args
from sensor_msgs.msg import Image
rclpy.init()
node = rclpy.create_node("reader")
topics = remove_ros_args(sys.argv)[1:]
rows = [node.create_subscription(Image, topic, lambda _: print("message", flush=True), 10) for topic in topics]
print("listens", flush=True)
while rclpy.ok():
    rclpy.spin_once(node, timeout_sec=0.1)
    if any(row.get_publisher_count() for row in rows):
        print("publisher", flush=True)
"""


def listen_to_all(node: Any) -> Dict[str, List[bytes]]:
    """Subscribe to every topic of the node; the messages come into the lists."""
    heard: Dict[str, List[bytes]] = {}
    for topic, (kind,) in node.get_publisher_names_and_types_by_node(NODE[1:], "/"):
        package, _, name = kind.partition("/msg/")
        message, messages = getattr(import_module(f"{package}.msg"), name), heard.setdefault(topic, [])
        node.create_subscription(message, topic, messages.append, 10, raw=True)
    return heard


def test_everything_works_for_those_with_keys(
    secured: Keystore, operator: drill.Peer, node: Any, start: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All topics and services under the reduced policy; a reader without keys sees no publisher and no message."""
    secured.add(NODE, **granted(is_reduced=True))
    node("--enclave", NODE, "-p", f"snapshot.folder:={tmp_path}", "-p", f"record.folder:={tmp_path}")
    operator.listen(*(name for name in PRODUCT_TOPICS if name != "ssim"))
    topics = ("image_raw", *(row.name for row in PRODUCT_TOPICS.values()))
    with monkeypatch.context() as without:
        without.delenv("ROS_SECURITY_ENABLE")
        stranger = start("-c", READER, *topics)
    colleague = start("-c", READER, *topics, "--ros-args", "--enclave", "/operator")
    wait_for(lambda: all("listens" in reader.text for reader in (stranger, colleague)), "the readers")
    heard = listen_to_all(operator.node)
    assert len(heard) > 30
    assert wait_for(operator.change(min_intensity=0.2).done, "the answer to a change of parameters")
    silent = {
        topic for topic in heard if topic.endswith("camera_info") or topic == "/camera_info_out"
    }  # no calibration
    operator.advance(*operator.heard)

    def all_came() -> bool:
        operator.advance("intensity")
        return not {topic for topic, messages in heard.items() if not messages} - silent

    wait_for(all_came, "a message on every topic")
    assert drill.check({"intensity": operator.heard["intensity"]}, camera={"min_intensity": 0.2})
    assert ask(operator.node, Trigger, f"{NODE}/snapshot").success
    assert ask(operator.node, SetBool, f"{NODE}/record", SetBool.Request(data=True)).success
    operator.advance("intensity")
    assert ask(operator.node, SetBool, f"{NODE}/record", SetBool.Request(data=False)).success
    operator.says("frames", "received")
    wait_for(lambda: "publisher" in colleague.text and "message" in colleague.text, "a reader with keys")
    assert set(stranger.text.split()) == {"listens"}


@pytest.mark.parametrize(("action", "topic"), [("subscribe", "rt/image_raw"), ("publish", "rt/polarization/dolp")])
def test_what_the_policy_does_not_grant_is_refused(secured: Keystore, node: Any, action: str, topic: str) -> None:
    topics = granted()
    topics[action].remove(topic)
    secured.add(NODE, **topics)
    process = node("--enclave", NODE)
    assert process.wait() != 0
    assert "cannot start" in process.text


def test_a_node_without_keys_does_not_start(keystore: Keystore, node: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in keystore.environment().items():
        monkeypatch.setenv(name, value)
    process = node("--enclave", NODE)
    process.assert_end(2)
    assert "polar_pipeline cannot start: failed to initialize rcl: SECURITY ERROR: " in process.text
    assert "enclaves/polar_pipeline' does not exist" in process.text
