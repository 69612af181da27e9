"""`python -m polar_pipeline` is the tool `polar-pipeline`."""

import sys

from polar_pipeline.cli import main

sys.exit(main())
