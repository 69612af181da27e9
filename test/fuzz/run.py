"""The command line of the fuzzer."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence

from fuzz import corpus
from fuzz.engine import MAX_MB, Case, Tally, fuzz, line, save, scratch
from fuzz.targets import TARGETS, load

ROOT = Path(__file__).resolve().parent.parent.parent
#: Where inputs go that show a defect.
FINDINGS = ROOT / "build" / "fuzz"


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Run the fuzzer: exit code 1 if something was found."""
    parser = argparse.ArgumentParser(prog="python test/fuzz", description="Try random inputs on the package.")
    parser.add_argument(
        "seconds", type=float, nargs="?", default=60.0, help="in all, shared by the targets (default: 60)"
    )
    parser.add_argument("--seed", type=int, help="of the inputs (default: another one each time)")
    parser.add_argument("--target", action="append", choices=tuple(TARGETS), help="what to try (default: all)")
    parser.add_argument("--inputs", type=int, default=sys.maxsize, help="at most so many for a target")
    parser.add_argument("--max-mb", type=int, default=MAX_MB, help="that a target may take (default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="add the figures of this run to a file")
    parser.add_argument("--replay", type=Path, nargs="+", metavar="FILE", help="try these inputs on the one --target")
    parser.add_argument("--record", action="store_true", help="write down the corpus's outcomes as they are now")
    values = parser.parse_args(arguments)
    names: List[str] = values.target or list(TARGETS)
    if values.record:
        for name in names:
            for file, outcome in corpus.record(name).items():
                print(f"{name}/{file}: {outcome}")
        return 0
    if values.replay:
        if len(names) != 1:
            parser.error("--replay needs one --target")
        return _replay(names[0], values.replay)
    seed = values.seed if values.seed is not None else time.time_ns() % 10**9
    print(f"seed {seed}", flush=True)
    tallies: Dict[str, Tally] = {}
    for name in names:
        tally = tallies[name] = fuzz(load(name), seed, values.seconds / len(names), values.inputs, values.max_mb)
        print(line(name, tally), flush=True)
        for finding in tally.findings:
            path = save(finding, name, FINDINGS)
            print(f"  {finding.what}: " + finding.text.replace("\n", "\n    "))
            print(f"    input {finding.index} of seed {seed}: {path}")
            print(f"    again: python test/fuzz --target {name} --replay {path}")
            print(f"    once fixed: cp {path} test/corpus/{name}/, then python test/fuzz --target {name} --record")
    if values.json is not None:
        _add(values.json, seed, values, tallies)
    return int(any(tally.findings for tally in tallies.values()))


def _replay(name: str, paths: List[Path]) -> int:
    failed = 0
    with tempfile.TemporaryDirectory(dir=scratch()) as folder:
        target = load(name)(Path(folder))
        for path in paths:
            try:
                print(f"{path}: {target.run(Case(path.suffix[1:], path.read_bytes()))}")
            except BaseException as err:  # noqa: PERF203 - whatever was found
                failed = 1
                print(f"{path}: {type(err).__name__}: {err}")
                if len(paths) == 1:
                    raise
    return failed


def _add(path: Path, seed: int, values: argparse.Namespace, tallies: Dict[str, Tally]) -> None:
    """One more run in a file of results."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    import common

    packages = ("numpy", "opencv-python-headless", "rosbags", "mcap", "PyYAML", "ruamel.yaml", "zstandard", "lz4")
    report: Dict[str, Any] = {
        "definition": "Inputs per target and run, all with the oracles of test/fuzz. peak_mb: most memory of the "
        "process that tries them, libraries and all; slowest_s: the slowest input; findings: of distinct kinds.",
        "machine": common.machine(packages),
        "max_mb": values.max_mb,
        "inputs": 0,
        "runs": [],
    }
    if path.exists():
        report["runs"] = json.loads(path.read_text(encoding="utf-8"))["runs"]
    figures = {
        name: {
            "inputs": tally.inputs,
            "per_second": round(tally.inputs / max(tally.seconds, 1e-9)),
            "seconds": round(tally.seconds, 1),
            "peak_mb": round(tally.peak_mb),
            "slowest_s": round(tally.slowest_s, 2),
            "outcomes": tally.outcomes,
            "findings": [f"{row.what}: {row.text.splitlines()[0]}" for row in tally.findings],
        }
        for name, tally in tallies.items()
    }
    report["runs"].append({"seed": seed, "targets": figures})
    report["inputs"] = sum(row["inputs"] for run in report["runs"] for row in run["targets"].values())
    common.write(path, report)
