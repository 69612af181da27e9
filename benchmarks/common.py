"""What the benchmarks share: the machine's name, versions, result files and Markdown tables."""

from __future__ import annotations

import json
import os
import platform
import re
from importlib import metadata
from pathlib import Path
from typing import Any, Dict, Iterable, List, Sequence

RESULTS = Path(__file__).resolve().parent / "results"


def cpu_model() -> str:
    """Name of the processor."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.processor() or platform.machine()
    found = re.search(r"(?:model name|Model)\s*:\s*(.+)", text)
    return found.group(1) if found else platform.machine()


def versions(names: Iterable[str]) -> Dict[str, str]:
    """Installed distribution -> version; those that are not installed are left out."""
    wanted = set(names)
    return {dist.metadata["Name"]: dist.version for dist in metadata.distributions() if dist.metadata["Name"] in wanted}


def machine(names: Iterable[str]) -> Dict[str, Any]:
    """The processor, its cores that this process may use, Python, and the versions of packages."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {"cpu": cpu_model(), "cores": cores, "python": platform.python_version(), "packages": versions(names)}


def slug(text: str) -> str:
    """A device's name as part of a file name."""
    return re.sub(r"\W+", "_", text).strip("_").lower()


def write(path: Path, report: Dict[str, Any]) -> None:
    """Write a report as a result file; a list or mapping without others inside takes one line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = re.sub(r"[\[{][^][{}]*[]}]", lambda found: " ".join(found[0].split()), json.dumps(report, indent=1))
    path.write_text(text + "\n", encoding="utf-8")


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A Markdown table; numbers get two decimals."""
    lines: List[Sequence[object]] = [head, ["---"] * len(head), *rows]
    return "\n".join(
        "| " + " | ".join(f"{cell:.2f}" if isinstance(cell, float) else str(cell) for cell in line) + " |"
        for line in lines
    )
