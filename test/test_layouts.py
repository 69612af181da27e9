"""The layouts for RViz and Foxglove: every topic, type and field that they name is one that the node publishes."""

from __future__ import annotations

import json
import math
import re
from typing import Any, Dict, Iterator, List, Tuple

import pytest
from support import ROOT

from polar_pipeline import topics
from polar_pipeline.messages import typestore

#: Topic -> message type, of all that the node publishes at the root.
TYPES = {
    **{f"/{row.name}": row.message_type for row in topics.PRODUCT_TOPICS.values()},
    **{f"/{name}": topics.COMPRESSED for name in topics.COMPRESSED_TOPICS.values()},
    **{f"/{name}": topics.FLOAT32 for name in topics.NUMBER_TOPICS.values()},
    f"/{topics.LATENCY}": topics.DIAGNOSTICS,
    topics.REPORT: topics.DIAGNOSTICS,
}
#: Topic -> encodings of its images; viewers show none of 32FC3, and the layouts' ranges are not those of 16 bits.
ENCODINGS = {
    f"/{row.name}": [
        topics.image_encoding(name, row.dtype(depth), color)
        for depth in ("float32", "uint8")
        for color in (False, True)
    ]
    for name, row in topics.PRODUCT_TOPICS.items()
    if row.message_type == topics.IMAGE
}
#: Topic -> the largest value that images of floats are shown with, by hand; the smallest is 0.
TOPS = {
    "/polarization/dolp": 1.0,
    "/polarization/aolp": math.pi,
    "/polarization/dolp_sigma": 0.1,
    "/polarization/aolp_sigma": math.pi / 2 / math.sqrt(3),
    "/quality/ssim_map": 1.0,
}
#: The stages of `latency`, of which each layout may show some.
STAGES = {"queue", "decode", "polarization", "ssim", "handover", "encode", "publish", "total"}
#: What both layouts show at once, and all that they have: every image but Stokes vectors.
SHOWN = {"/intensity", "/polarization/dolp", "/polarization/aolp", "/polarization/preview", "/quality/ssim_map"}
IMAGES = {topic for topic, encodings in ENCODINGS.items() if "32FC3" not in encodings}
#: Images for slow links, in a tab of Foxglove's.
JPEGS = {
    *("/intensity/compressed", "/polarization/unpolarized/compressed"),
    *("/polarization/aolp_color/compressed", "/polarization/dolp_color/compressed"),
}


def rviz_displays() -> List[Dict[str, Any]]:
    yaml = pytest.importorskip("yaml")
    document = yaml.safe_load((ROOT / "config" / "polar_pipeline.rviz").read_text(encoding="utf-8"))
    found: List[Dict[str, Any]] = document["Visualization Manager"]["Displays"]
    return found


def test_rviz() -> None:
    shown = {}
    for display in rviz_displays():
        topic = f"/{display['Topic']['Value']}"
        assert (display["Class"], TYPES[topic]) == ("rviz_default_plugins/Image", "sensor_msgs/msg/Image")
        assert set(ENCODINGS[topic]) <= {"mono8", "rgb8", "32FC1"}, topic
        assert display["Normalize Range"] is False, "fixed ranges"
        assert display["Topic"]["Reliability Policy"] == "Best Effort"
        if topic in TOPS:
            assert (display["Min Value"], display["Max Value"]) == (0, pytest.approx(TOPS[topic], abs=2e-4)), topic
        assert display["Enabled"] is display["Value"]
        assert topic not in shown
        shown[topic] = display["Enabled"]
    assert set(shown) == IMAGES
    assert {topic for topic, is_enabled in shown.items() if is_enabled} == SHOWN
    assert len(IMAGES) >= 16


def foxglove() -> Tuple[Dict[str, Any], Any]:
    document = json.loads((ROOT / "config" / "foxglove_layout.json").read_text(encoding="utf-8"))
    return document["configById"], document["layout"]


def leaves(node: Any) -> Iterator[str]:
    """The panels of a layout, or of a tab."""
    if isinstance(node, str):
        yield node
    else:
        assert node["direction"] in ("row", "column")
        assert 0 < node["splitPercentage"] < 100
        yield from leaves(node["first"])
        yield from leaves(node["second"])


def test_foxglove_places_every_panel_once() -> None:
    panels, layout = foxglove()
    placed = list(leaves(layout))
    for name in [name for name in placed if name.startswith("Tab!")]:
        tabs = panels[name]["tabs"]
        assert 0 <= panels[name]["activeTabIdx"] < len(tabs)
        placed += [leaf for tab in tabs for leaf in leaves(tab["layout"])]
    assert sorted(placed) == sorted(panels)
    first = [
        leaf for name in leaves(layout) for leaf in ([name] if "tabs" not in panels[name] else active(panels[name]))
    ]
    assert {panels[name]["imageMode"]["imageTopic"] for name in first if name.startswith("Image!")} == SHOWN


def active(tabs: Dict[str, Any]) -> Iterator[str]:
    """The panels of the tab that is shown at first; others have no subscriptions."""
    return leaves(tabs["tabs"][tabs["activeTabIdx"]]["layout"])


def test_foxglove_images() -> None:
    panels, _ = foxglove()
    modes = [panel["imageMode"] for name, panel in panels.items() if name.startswith("Image!")]
    assert sorted(mode["imageTopic"] for mode in modes) == sorted(IMAGES | JPEGS)
    for mode in modes:
        topic = mode["imageTopic"]
        assert TYPES[topic] == f"sensor_msgs/msg/{'CompressedImage' if topic in JPEGS else 'Image'}"
        if topic in JPEGS:
            assert "colorMap" not in mode
            continue
        assert set(ENCODINGS[topic]) <= {"mono8", "rgb8", "32FC1"}, topic
        assert ("colorMap" in mode) == ("32FC1" in ENCODINGS[topic]), topic
        if topic in TOPS:
            assert (mode["minValue"], mode["maxValue"]) == (0, pytest.approx(TOPS[topic], abs=2e-4)), topic


def resolve(path: str) -> str:
    """The type of what a message path of Foxglove leads to; a filter of key and value must name a stage."""
    match = re.match(r"(/[\w/]+)\.", path)
    assert match, path
    store, kind = typestore(), TYPES[match.group(1)]
    for part in re.findall(r"[^.{]+(?:\{[^}]*\})?", path[match.end() :]):
        name, index, key = re.fullmatch(r'(\w+)(\[\w*:?\w*\])?(?:\{key=="(.*)"\})?', part).groups()
        fields = dict(store.get_msgdef(kind).fields)
        assert name in fields, f"{path}: {kind} has no {name}, but {', '.join(fields)}"
        node, described = fields[name]
        is_sequence = node.name in ("ARRAY", "SEQUENCE")
        assert (index is not None) == is_sequence, path
        kind = str((described[0] if is_sequence else (node, described))[1])
        if key is not None:
            assert kind == "diagnostic_msgs/msg/KeyValue"
            assert key in STAGES, path
        if not is_sequence and node.name == "BASE":
            return str(described[0] if isinstance(described, tuple) else described)
    return kind


def test_foxglove_curves() -> None:
    panels, _ = foxglove()
    paths = [path["value"] for name, panel in panels.items() if name.startswith("Plot!") for path in panel["paths"]]
    assert {"/quality/ssim.data", "/quality/saturated.data", "/latency/total_ms.data"} <= set(paths)
    for path in paths:
        assert resolve(path) in ("float32", "string"), "numbers, or texts of numbers in diagnostics"
    summaries = [panel for name, panel in panels.items() if name.startswith("DiagnosticSummary!")]
    assert [TYPES[panel["topicToRender"]] for panel in summaries] == ["diagnostic_msgs/msg/DiagnosticArray"]


@pytest.mark.parametrize(
    "path", ["/quality/ssim.value", "/quality/none.data", '/latency.status[0].values[:]{key=="none"}.value']
)
def test_a_path_that_leads_nowhere_is_found(path: str) -> None:
    with pytest.raises((AssertionError, KeyError)):
        resolve(path)
