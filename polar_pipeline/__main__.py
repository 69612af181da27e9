"""`python -m polar_pipeline`: the tool `polar-pipeline`. Shells complete it by argcomplete: PYTHON_ARGCOMPLETE_OK."""

from __future__ import annotations

import sys

from polar_pipeline.cli import main

if __name__ == "__main__":
    sys.exit(main())
