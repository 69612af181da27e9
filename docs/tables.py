"""Writes the tables of topics and parameters in docs/ros.md from the code: `python docs/tables.py`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Dict, List, Sequence

from polar_pipeline.products import PRODUCTS
from polar_pipeline.ros.parameters import PARAMETERS, Parameter
from polar_pipeline.topics import FLOAT32, PRODUCT_TOPICS, image_encoding

DOCUMENT = Path(__file__).parent / "ros.md"


def _table(head: Sequence[str], rows: List[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def topics() -> str:
    """One row per product: topic, type and encodings, content."""
    rows = []
    for row in PRODUCTS.values():
        topic = PRODUCT_TOPICS[row.name]
        if topic.message_type == FLOAT32:
            kind = "Float32"
        else:
            names = [image_encoding(row.name, dtype, is_color) for dtype in topic.dtypes for is_color in (False, True)]
            kind = f"Image ({', '.join(dict.fromkeys(names))})"
        unit = f", in {row.unit}" if row.unit in ("rad",) else ""
        rows.append((f"`{topic.name}`", kind, f"`{row.name}`", row.text + unit))
    return _table(("topic", "type (encodings)", "product", "what it is"), rows)


def _allowed(row: Parameter) -> str:
    if row.choices:
        return ", ".join(f"`{choice}`" for choice in row.choices)
    unit = f" ({row.unit})" if row.unit else ""
    return f"{row.limits[0]} to {row.limits[1]}{unit}" if row.limits else ""


def _default(value: object) -> str:
    if isinstance(value, str):
        return f'`"{value}"`'
    text = str(list(value) if isinstance(value, tuple) else value)
    return f"`{text.lower()}`"


def parameters() -> str:
    """One row per parameter of the node."""
    rows = [
        (
            f"`{row.name}`",
            _default(row.default),
            _allowed(row),
            row.text + (" Fixed at start." if row.read_only else ""),
        )
        for row in PARAMETERS.values()
    ]
    return _table(("parameter", "default", "allowed", "what it does"), rows)


def fill(text: str) -> str:
    """The text of the document with its tables up to date."""
    tables: Dict[str, str] = {"topics": topics(), "parameters": parameters()}
    for name, table in tables.items():
        mark = f"<!-- {name} -->"
        text = re.sub(f"{mark}.*?{mark}", lambda _, t=table, m=mark: f"{m}\n{t}\n{m}", text, flags=re.DOTALL)
    return text


if __name__ == "__main__":
    DOCUMENT.write_text(fill(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
