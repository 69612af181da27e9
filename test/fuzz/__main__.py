"""The fuzzer: python test/fuzz SECONDS [--seed S] [--target NAME]; the corpus: `--record` and `--replay`."""
# ruff: noqa: E402 - the folder's own modules come after it is found

from __future__ import annotations

import sys
from pathlib import Path

# the folder itself would hide other modules behind its own
_TEST = Path(__file__).resolve().parent.parent
sys.path[:1] = [str(_TEST), str(_TEST.parent)]

from fuzz.run import main

if __name__ == "__main__":
    sys.exit(main())
