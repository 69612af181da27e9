"""Topics as other packages look for them: the layout for Foxglove, calibrations beside images, formats of JPEG."""

from __future__ import annotations

import json
import re
from typing import Any, Dict, Iterator, Tuple

from rosbags_messages import typestore
from support import ROOT

from polar_pipeline.options import topics

#: Topic -> message type, of all that the node publishes at the root.
TYPES = {
    **{f"/{row.name}": row.message_type for row in topics.PRODUCT_TOPICS.values()},
    **{f"/{name}": topics.COMPRESSED for name in topics.COMPRESSED_TOPICS.values()},
    **{f"/{name}": topics.FLOAT32 for name in topics.NUMBER_TOPICS.values()},
    f"/{topics.LATENCY}": topics.DIAGNOSTICS,
    topics.REPORT: topics.DIAGNOSTICS,
}
#: The stages of `latency`, of which each layout may show some.
STAGES = {"queue", "decode", "polarization", "ssim", "handover", "encode", "publish", "total"}
#: What both layouts show at once, and all that they have: every image but Stokes vectors.
SHOWN = {"/intensity", "/polarization/dolp", "/polarization/aolp", "/polarization/preview", "/quality/ssim_map"}


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


def test_every_image_has_a_topic_that_image_transport_pairs() -> None:
    """It subscribes to `camera_info` in place of the last name of the image's topic, without `/compressed`."""
    second = {"intensity": ("intensity", "polarization/intensity")}
    for name, row in topics.PRODUCT_TOPICS.items():
        assert row.names == second.get(name, (row.name,))
        pairs = ["/".join([*topic.split("/")[:-1], "camera_info"]) for topic in row.names]
        assert pairs[-1] in topics.CAMERA_INFO_TOPICS
        if name in topics.COMPRESSED_TOPICS:
            assert topics.jpeg_topics(name) == tuple(f"{topic}/compressed" for topic in row.names)
            assert topics.COMPRESSED_TOPICS[name] == topics.jpeg_topics(name)[0]


def test_jpeg_formats() -> None:
    """As `compressed_image_transport` of ROS 2 writes them: with a space at the end where there is no color."""
    gray, color = "mono8; jpeg compressed ", "rgb8; jpeg compressed bgr8"
    found = {
        name: tuple(topics.jpeg_format(name, color) for color in (False, True)) for name in topics.COMPRESSED_TOPICS
    }
    light, values, colors = ("unpolarized", "polarized", "polarizer"), ("dolp", "aolp"), ("aolp_color", "dolp_color")
    assert (
        found.items()
        >= {
            **dict.fromkeys(("intensity", *light), (gray, color)),
            **dict.fromkeys((*values, "ssim_map"), (gray, gray)),
            **dict.fromkeys(("preview", *colors), (color, color)),
        }.items()
    )
