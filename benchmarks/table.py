"""A query over a million rows of tables of frames, by DuckDB and by pandas.

    python benchmarks/table.py [--rows N] [--recordings N] [--repeats N] [--output FILE]

The query: minutes in which the mean similarity of the lowest block is below a limit, per recording. The tables are
those that a batch writes, with the columns of `polar_pipeline/batch/table.py`, of random values; they are in the
system's cache of files. Both answers are compared with one by NumPy before anything is timed; then both run in turns.
Writes `benchmarks/results/table_<processor>.json` and prints it as a Markdown table.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Callable, Dict, List, Tuple

import common
import numpy as np

from polar_pipeline.batch.table import FRAME_SCHEMA, STAGES, table_path, write_table

try:
    import duckdb
    import pandas as pd
    import pyarrow as pa
except ImportError as err:
    sys.exit(f"needs pyarrow, duckdb and pandas ({err})")

LIMIT = 0.5
START = 1_700_000_000 * 10**9
PERIOD = 10**9 // 25
MINUTE = 60 * 10**9
#: (recording, minute since 1970) -> mean of the lowest blocks.
Answer = Dict[Tuple[str, int], float]


def values(rows: int, seed: int) -> Dict[str, np.ndarray]:
    """Columns of a recording at 25 Hz, with some minutes of low similarity, some frames rejected."""
    generator = np.random.default_rng(seed)
    stamp = START + seed * 10**13 + np.arange(rows) * PERIOD
    minutes = stamp // MINUTE - stamp[0] // MINUTE
    level = generator.choice([0.9, 0.8, 0.4], minutes[-1] + 1, p=[0.7, 0.2, 0.1])[minutes]
    total = generator.lognormal(1.5, 0.3, rows)
    return {
        "index": np.arange(rows),
        "stamp": stamp,
        "rejected": generator.random(rows) < 0.001,
        "late": total > 40,
        "lost": generator.poisson(0.001, rows),
        **{f"{stage}_ms": total * generator.uniform(0.05, 0.2, rows) for stage in STAGES if stage != "total"},
        "total_ms": total,
        "ssim": level + generator.normal(0.05, 0.01, rows),
        "lowest": level + generator.normal(0, 0.05, rows),
        "expected": np.ones(rows),
        "lowest_x": generator.integers(0, 20, rows) * 64 + 32,
        "lowest_y": generator.integers(0, 16, rows) * 64 + 32,
        "saturated": generator.uniform(0, 0.01, rows),
        "dark": generator.uniform(0, 0.01, rows),
        "intensity": generator.uniform(0.3, 0.4, rows),
        "dolp": generator.uniform(0.1, 0.2, rows),
        "layout_fits": np.ones(rows, bool),
        "fingerprint": generator.integers(0, 2**32, rows),
        "repeated": np.zeros(rows, bool),
    }


def write_recording(folder: Path, name: str, rows: int, seed: int) -> Answer:
    """Write the table of a recording; what the query finds in it, by NumPy."""
    columns = values(rows, seed)
    is_good = ~columns["rejected"]
    texts = {"recording": [name] * rows, "cause": np.where(is_good, None, "size"), "lowest_place": ["center"] * rows}
    arrays = {**columns, **texts}
    filled = ("index", "stamp", "rejected", "late", "recording", "cause", "repeated", "layout_fits", "lost")
    table = pa.table(
        [
            pa.array(arrays[field.name], mask=None if field.name in filled else ~is_good).cast(field.type)
            for field in FRAME_SCHEMA
        ],
        schema=FRAME_SCHEMA,
    )
    write_table(table, table_path(folder, name))
    lowest, minutes = columns["lowest"].astype(np.float32)[is_good], columns["stamp"][is_good] // MINUTE
    means = {int(minute): float(lowest[minutes == minute].mean(dtype=np.float64)) for minute in np.unique(minutes)}
    return {(name, minute): mean for minute, mean in means.items() if mean < LIMIT}


def by_duckdb(folder: Path) -> Answer:
    """The query as SQL."""
    found = duckdb.sql(
        f"""
        SELECT recording, epoch_ns(stamp) // {MINUTE} AS minute, avg(lowest) AS similarity
        FROM read_parquet('{folder}/frames/*/*.parquet', hive_partitioning = true)
        GROUP BY ALL HAVING similarity < {LIMIT}
        """
    ).fetchall()
    return {(name, minute): similarity for name, minute, similarity in found}


def by_pandas(folder: Path) -> Answer:
    """The query by groups."""
    frames = pd.read_parquet(folder / "frames", columns=["recording", "stamp", "lowest"])
    minutes = frames["stamp"].dt.floor("min").rename("minute")
    means = frames["lowest"].astype("float64").groupby([frames["recording"], minutes], observed=True).mean()
    bad = means[means < LIMIT]
    return {(name, int(minute.value) // MINUTE): float(value) for (name, minute), value in bad.items()}


def check(got: Answer, want: Answer) -> None:
    """Raise unless two answers agree."""
    if got.keys() != want.keys() or any(abs(got[key] - want[key]) > 1e-6 for key in want):
        raise SystemExit(f"answers differ: {len(got)} minutes, expected {len(want)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--recordings", type=int, default=40)
    parser.add_argument("--repeats", type=int, default=9)
    name = f"table_{common.slug(common.cpu_model())}.json"
    parser.add_argument("--output", type=Path, default=common.RESULTS / name)
    given = parser.parse_args()
    queries: Dict[str, Callable[[Path], Answer]] = {"DuckDB": by_duckdb, "pandas": by_pandas}
    with tempfile.TemporaryDirectory() as temporary:
        folder, want = Path(temporary), {}
        each = given.rows // given.recordings
        for k in range(given.recordings):
            want.update(write_recording(folder, f"run_{k:03d}.mcap", each, k))
        size = sum(path.stat().st_size for path in folder.rglob("*.parquet"))
        for query in queries.values():
            check(query(folder), want)
        seconds: Dict[str, List[float]] = {name: [] for name in queries}
        for _ in range(given.repeats):
            for name, query in queries.items():
                started = time.perf_counter()
                query(folder)
                seconds[name].append(time.perf_counter() - started)
    report = {
        "machine": common.machine(["duckdb", "pandas", "pyarrow", "numpy"]),
        "rows": each * given.recordings,
        "recordings": given.recordings,
        "megabytes": round(size / 1e6, 1),
        "minutes_found": len(want),
        "seconds": {
            name: {"median": round(statistics.median(times), 4), "max": round(max(times), 4)}
            for name, times in seconds.items()
        },
    }
    common.write(given.output, report)
    print(f"{report['rows']} rows in {given.recordings} files, {report['megabytes']} MB, {len(want)} minutes found\n")
    rows = [(name, 1000 * found["median"], 1000 * found["max"]) for name, found in report["seconds"].items()]
    print(common.table(["query by", "median [ms]", "max [ms]"], rows))


if __name__ == "__main__":
    main()
