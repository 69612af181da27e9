"""ROS's rules for names of nodes and topics, checked here because ROS itself would fail later. Imports no ROS."""

from __future__ import annotations

import re

#: Characters that a full name may have: ROS allows 247, of which a node's own topics and services need up to 32.
MAX_NAME = 200
#: What a name is made of, for error messages.
RULE = f"letters, digits and single underscores, no digit first, parts joined by /, at most {MAX_NAME} characters"
_FULL = re.compile(r"(/[A-Za-z_][A-Za-z0-9_]*)+")


def is_name(full: str) -> bool:
    """Whether a text is a valid full name of a node or topic, such as `/front/polar_pipeline`."""
    # names with two underscores in a row are keywords of remapping rules, such as __node
    return len(full) <= MAX_NAME and "__" not in full and _FULL.fullmatch(full) is not None


def expand(topic: str, node: str) -> str:
    """A topic's name from the root.

    Args:
        topic: Its name for a node: from the root, below the node (`~/`), or else in the node's namespace.
        node: The node's name from the root.
    """
    if topic.startswith("/"):
        return topic
    folder = node if topic.startswith("~/") else node.rpartition("/")[0]
    return f"{folder}/{topic[2:] if topic.startswith('~/') else topic}"
