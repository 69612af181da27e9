"""`python -m polar_pipeline`: the tool `polar-pipeline`."""

from __future__ import annotations

import sys

from polar_pipeline.cli import main

if __name__ == "__main__":
    sys.exit(main())
