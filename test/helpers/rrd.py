"""Reads `.rrd` files with Rerun itself, whichever version is installed. Skips the test file that imports it without."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, List

import numpy as np
import pytest

rerun = pytest.importorskip("rerun", reason="Rerun is not installed: pip extra view")
if not hasattr(rerun, "DepthImage"):
    pytest.skip("the module 'rerun' is not Rerun's: pip extra view", allow_module_level=True)
chunks = pytest.importorskip("rerun.chunk", reason="this Rerun cannot read what it has written")

#: Rerun's numbers of element types -> NumPy's.
DTYPES = {6: np.uint8, 8: np.uint16, 33: np.float16, 34: np.float32}
#: Of an entity at a time: the components that were logged, by name, and the timelines `frame` and, of frames
#: with times, `stamp`.
Row = Dict[str, Any]


def read(path: Path) -> Dict[str, List[Row]]:
    """Entity -> what was logged, in the order of the frames."""
    found: Dict[str, List[Row]] = {}
    for chunk in chunks.RrdReader(path).stream():
        batch = chunk.to_record_batch()
        for index in range(batch.num_rows if "frame" in batch.schema.names else 0):
            row: Row = {}
            for name in batch.schema.names:
                value = batch.column(name)[index]
                if name == "stamp":
                    row[name] = value.value
                elif name == "frame":
                    row[name] = value.as_py()
                elif ":" in name and value.is_valid and len(value):
                    row[name.rpartition(":")[2]] = _single(value)
            found.setdefault(chunk.entity_path, []).append(row)
    return {entity: sorted(rows, key=lambda row: row["frame"]) for entity, rows in found.items()}


def _single(value: Any) -> Any:
    """The only value of a component; the bytes of an image as an array."""
    assert len(value) == 1
    first = value[0]
    if hasattr(first, "values") and str(first.type).startswith("list"):
        return np.asarray(first.values)
    return first.as_py()


def image(row: Row) -> np.ndarray:
    """The pixels of an image, as they were logged."""
    form = row["format"]
    assert form["pixel_format"] is None
    array = row["buffer"].view(DTYPES[form["channel_datatype"]])
    shape = (form["height"], form["width"])
    return array.reshape(shape if array.size == shape[0] * shape[1] else (*shape, 3))
