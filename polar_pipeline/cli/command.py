"""What each module of a command provides."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Callable


@dataclass(frozen=True)
class Command:
    """A command of the tool. Every module of a command has one, named `COMMAND`.

    Attributes:
        add_arguments: Adds the command's arguments to its parser.
        run: Runs the command with the parsed arguments and returns the exit code: 0, or 1 where something failed or a
            comparison did not hold.
    """

    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]
