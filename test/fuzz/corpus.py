"""The corpus: small inputs with the outcome that each should have, replayed by `make test`."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Dict, List

from fuzz.engine import Case, Target, scratch
from fuzz.targets import load

FOLDER = Path(__file__).resolve().parent.parent / "corpus"
#: In each target's folder: name of a file -> its outcome.
EXPECTED = "expected.json"


def files(name: str) -> List[Path]:
    """The inputs for a target."""
    return sorted(path for path in (FOLDER / name).glob("*") if path.name != EXPECTED)


def expected(name: str) -> Dict[str, str]:
    """File -> outcome."""
    path = FOLDER / name / EXPECTED
    found: Dict[str, str] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return found


def outcome(target: Target, path: Path) -> str:
    """What becomes of an input; see `Target.run`."""
    return target.run(Case(path.suffix[1:], path.read_bytes()))


def record(name: str) -> Dict[str, str]:
    """Write down the outcomes as they are now; gives back those that changed."""
    before = expected(name)
    with tempfile.TemporaryDirectory(dir=scratch()) as folder:
        target = load(name)(Path(folder))
        now = {path.name: outcome(target, path) for path in files(name)}
    (FOLDER / name / EXPECTED).write_text(json.dumps(now, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    return {key: value for key, value in now.items() if before.get(key) != value}
