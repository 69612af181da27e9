"""The command line of the fuzzer, and the corpus: small inputs with the outcome that each should have."""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from importlib import import_module
from pathlib import Path
from typing import Dict, List, Optional, Sequence, Type

from fuzz.engine import Case, Target, fuzz

TEST = Path(__file__).resolve().parent.parent
CORPUS = TEST / "corpus"
#: Where inputs go that show a defect.
FINDINGS = TEST.parent / "build" / "fuzz"
#: Name -> module, class.
TARGETS: Dict[str, str] = {"messages": "fuzz.messages:Messages", "recordings": "fuzz.recordings:Recordings"}


def load(name: str) -> Type[Target]:
    """A target by its name."""
    module, _, kind = TARGETS[name].partition(":")
    found: Type[Target] = getattr(import_module(module), kind)
    return found


def corpus_files(name: str) -> List[Path]:
    """The inputs of the corpus for a target."""
    return sorted(path for path in (CORPUS / name).glob("*") if path.name != "expected.json")


def outcome(target: Target, path: Path) -> str:
    """What becomes of an input; see `Target.run`."""
    return target.run(Case(path.suffix[1:], path.read_bytes()))


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Run the fuzzer; an input that shows a defect ends it with its exception."""
    parser = argparse.ArgumentParser(prog="python test/fuzz", description="Try random inputs on the package.")
    parser.add_argument("seconds", type=float, nargs="?", default=60.0, help="shared by the targets (default: 60)")
    parser.add_argument("--seed", type=int, help="of the inputs (default: another one each time)")
    parser.add_argument("--target", action="append", choices=tuple(TARGETS), help="what to try (default: all)")
    parser.add_argument("--inputs", type=int, default=1 << 60, help="at most so many for a target")
    parser.add_argument("--replay", type=Path, nargs="+", metavar="FILE", help="try these inputs on the one --target")
    parser.add_argument("--record", action="store_true", help="write down the corpus's outcomes as they are now")
    values = parser.parse_args(arguments)
    names: List[str] = values.target or list(TARGETS)
    if values.record or values.replay:
        for name in names:
            with tempfile.TemporaryDirectory() as folder:
                target = load(name)(Path(folder))
                found = {path.name: outcome(target, path) for path in values.replay or corpus_files(name)}
            text = json.dumps(found, indent=1, sort_keys=True)
            print(text)
            if values.record:
                (CORPUS / name / "expected.json").write_text(text + "\n", encoding="utf-8")
        return 0
    seed = values.seed if values.seed is not None else time.time_ns() % 10**9
    FINDINGS.mkdir(parents=True, exist_ok=True)
    for name in names:
        print(f"seed {seed}; an input that shows a defect stays in {FINDINGS}", flush=True)
        outcomes = fuzz(load(name), seed, values.seconds / len(names), FINDINGS, values.inputs)
        print(f"{name}: {sum(outcomes.values())} inputs: {outcomes}", flush=True)
    return 0
