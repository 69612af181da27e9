"""The tool `polar-pipeline`: one module per command; `entry` finds and runs them."""

from __future__ import annotations

from polar_pipeline.cli.entry import main, make_parser

__all__ = ["main", "make_parser"]
