"""The tool `polar-pipeline`: one module per command; `entry` finds and runs them.

Shells complete its command line by argcomplete, which looks here for PYTHON_ARGCOMPLETE_OK.
"""

from __future__ import annotations

from polar_pipeline.cli.entry import main, make_parser

__all__ = ["main", "make_parser"]
