"""The examples of `docs/batch_queries.md`, as they stand there, over tables whose answers are known."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Dict, List

import pytest
from batch_samples import START, frame, summary
from support import ROOT

pytest.importorskip("pyarrow")

from polar_pipeline.replay.run import ReplayedFrame
from polar_pipeline.tools.batch.table import FRAME_SCHEMA, frame_table, table_path, write_table

PAGE = (ROOT / "docs" / "batch_queries.md").read_text(encoding="utf-8")
SECOND = 10**9


def examples(language: str) -> List[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture(name="batch", scope="module")
def fixture_batch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dirty lens from the second minute on, a recording with motion, and one that lacks frames; a frame a second."""
    folder = tmp_path_factory.mktemp("batch")
    dirty = [
        frame(k, stamp=START + k * SECOND, lowest=0.3 if k >= 40 else 0.9, x=64 if k >= 40 else k, y=32)
        for k in range(100)
    ]
    moving = [frame(k, stamp=START + k * SECOND, lowest=0.4, x=k, saturated=0.1, late=True) for k in range(40)]
    broken: List[ReplayedFrame] = [
        frame(k, stamp=START + k * SECOND, total=0.1 * k, lowest=0.9, saturated=0.0) for k in (1, 2, 6)
    ]
    broken.insert(2, ReplayedFrame(None, "cdr", "cut off"))
    for name, frames in {"robot7_monday": dirty, "moving.mcap": moving, "broken.mcap": broken}.items():
        write_table(frame_table(summary(frames, 1.0)), table_path(folder, name))
    return folder


def test_examples_for_duckdb(batch: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    found = []
    with duckdb.connect() as connection:
        for query in examples("sql"):
            cursor = connection.execute(query.replace("OUT/", f"{batch}/"))
            names = [column[0] for column in cursor.description or ()]
            found.append([dict(zip(names, row)) for row in cursor.fetchall()])
    _, low, dirt, drops, latency = found
    minutes = [(row["recording"], str(row["minute"]), round(row["similarity"], 6)) for row in low]
    assert minutes == [("robot7_monday", "2023-11-14 22:14:00", 0.3), ("moving.mcap", "2023-11-14 22:13:00", 0.4)]
    assert [(row["recording"], str(row["minute"]), row["lowest_x"], row["share"]) for row in dirt] == [
        ("robot7_monday", "2023-11-14 22:14:00", 64, 1.0)
    ]
    assert drops == [{"recording": "broken.mcap", "frames": 4, "lost": 2, "rejected": 1, "mostly": "cdr"}]
    assert latency[0]["recording"] == "broken.mcap"
    assert latency[0]["slowest"] == pytest.approx(600)
    assert latency[0]["p50_p95_p99"][0] == pytest.approx(200)


def executed(example: str, batch: Path) -> Dict[str, Any]:
    names: Dict[str, Any] = {}
    exec(example.replace('"OUT/', f'"{batch}/'), names)
    return names


def test_example_for_pandas(batch: Path) -> None:
    pytest.importorskip("pandas")
    (example,) = [code for code in examples("python") if "import pandas" in code]
    names = executed(example, batch)
    assert {recording for recording, _ in names["bright"].index} == {"robot7_monday", "moving.mcap"}
    assert names["bright"].loc["moving.mcap"]["saturated"].tolist() == pytest.approx([0.1])
    assert len(names["one"]) == 100


def test_example_for_dask(batch: Path) -> None:
    dask = pytest.importorskip("dask")
    pytest.importorskip("dask.dataframe", reason="needs dask[dataframe]")
    (example,) = [code for code in examples("python") if "import dask" in code]
    with dask.config.set(scheduler="synchronous"):
        figures = executed(example, batch)["figures"]
    assert figures["dark"] == pytest.approx(0.125)
    assert figures["late"] == 0  # all late frames are saturated


def test_every_column_is_described() -> None:
    table = PAGE.partition("## Columns")[2].partition("## ")[0]
    rows = [line.split(" | ")[0] for line in table.splitlines() if line.startswith("| `")]
    described = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    assert sorted(described) == sorted(["recording", *FRAME_SCHEMA.names])
