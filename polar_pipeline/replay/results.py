"""Results of a comparison for programs: JSON, and JUnit XML, which CI services show."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, Dict, Sequence
from xml.dom import minidom
from xml.etree import ElementTree as ET

from polar_pipeline import __version__
from polar_pipeline._util.text import SHOWN_REASON, printable
from polar_pipeline.replay.compare import ProductComparison, format_rows, verdict
from polar_pipeline.replay.run import Summary


def as_json(source: Path, golden: Path, summary: Summary, rows: Sequence[ProductComparison]) -> str:
    """Format a comparison as JSON; numbers that are infinite or not defined are null."""
    report = {
        "passed": all(row.passed for row in rows),
        "verdict": verdict(rows, golden),
        "recording": str(source),
        "golden": str(golden),
        "polar_pipeline": __version__,
        "frames": len(summary.stamps),
        "unusable": _unusable(summary),
        "products": [_product(row) for row in rows],
    }
    return json.dumps(report, indent=2, allow_nan=False) + "\n"


def _product(row: ProductComparison) -> Dict[str, Any]:
    worst = row.worst
    x, y = (worst and worst.pixel) or (None, None)
    place = worst and {"frame": worst.index, "stamp_ns": worst.stamp_ns, "x": x, "y": y}
    figures = {"name": row.name, "passed": row.passed, "reason": row.reason, **vars(row), "worst": place}
    del figures["note"]  # the reason contains it
    is_defined = {name: not isinstance(value, float) or math.isfinite(value) for name, value in figures.items()}
    return {name: value if is_defined[name] else None for name, value in figures.items()}


def _unusable(summary: Summary) -> Dict[str, str]:
    """Return the causes of unusable frames, with their number and the first reason."""
    rows = summary.rejected.items()
    return {cause: printable(f"{len(reasons)}, the first: {reasons[0]}", SHOWN_REASON) for cause, reasons in rows}


def as_junit(source: Path, golden: Path, summary: Summary, rows: Sequence[ProductComparison]) -> str:
    """Format a comparison as JUnit XML, with a test case for each product."""
    counts = {"tests": str(len(rows)), "failures": str(sum(not row.passed for row in rows)), "errors": "0"}
    suites = ET.Element("testsuites", counts)
    suite = ET.SubElement(suites, "testsuite", {"name": "polar_pipeline replay", **counts})
    properties = ET.SubElement(suite, "properties")
    facts = {"golden": golden, "polar_pipeline": __version__, "frames": len(summary.stamps), **_unusable(summary)}
    for name, value in facts.items():
        ET.SubElement(properties, "property", {"name": name, "value": printable(str(value), SHOWN_REASON)})
    for row in rows:
        case = ET.SubElement(suite, "testcase", {"classname": printable(source.name), "name": row.name})
        if not row.passed:
            failure = {"message": row.reason, "type": "comparison"}
            ET.SubElement(case, "failure", failure).text = format_rows([row])
    ET.SubElement(suite, "system-out").text = verdict(rows, golden)
    return minidom.parseString(ET.tostring(suites)).toprettyxml("  ", encoding="utf-8").decode()
