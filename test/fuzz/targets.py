"""All targets by name; each module is imported only where its target is tried."""

from __future__ import annotations

from importlib import import_module
from typing import Dict, Type

from fuzz.engine import Target

#: Name -> module, class.
TARGETS: Dict[str, str] = {
    "messages": "fuzz.messages:Messages",
    "values": "fuzz.values:Values",
    "recordings": "fuzz.recordings:Recordings",
    "rawzstd": "fuzz.rawzstd:RawZstd",
    "parameters": "fuzz.parameters:Parameters",
    "files": "fuzz.files:Files",
    "commands": "fuzz.commands:Commands",
}


def load(name: str) -> Type[Target]:
    """A target by its name."""
    module, _, kind = TARGETS[name].partition(":")
    found: Type[Target] = getattr(import_module(module), kind)
    return found
