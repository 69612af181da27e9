"""Parser of the command line: argparse with a short and a complete help, and errors that say what was meant."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any, Container, Dict, List, NoReturn, Optional, Sequence, Set, Tuple

from polar_pipeline._util.text import SHOWN_REASON, did_you_mean, printable

#: Argument whose value may be several words.
_PRODUCTS = "--products"


class CommandParser(argparse.ArgumentParser):
    """Parser of the tool, a command or a part of one.

    It differs from argparse in four points: `--help` leaves out what `hide` names, and `--help-all` is for all; the
    parser that meets unknown arguments refuses them with its own usage, and names what is similar; an option of a
    command before the command is refused with the command's usage; names behind `--products` may have spaces.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"formatter_class": argparse.RawDescriptionHelpFormatter, **kwargs})
        self._help_all = self.add_argument("--help-all", action="help", help=argparse.SUPPRESS)

    @property
    def _commands(self) -> Dict[str, CommandParser]:
        """Parsers of the commands by name; empty if the command line has none at this place."""
        rows = (action.choices for action in self._actions if isinstance(action, argparse._SubParsersAction))
        return dict(next(rows, {}))

    def hide(self, names: Container[str]) -> None:
        """Leave arguments out of the help, by their names in the parsed values."""
        actions = [action for action in self._actions if action.dest in names]
        for action in actions:
            action.help = argparse.SUPPRESS
        groups = (group for group in self._action_groups if {*group._group_actions}.issubset(actions))
        also = ", ".join(str(group.title) for group in groups if group._group_actions)
        if actions:
            self._help_all.help = f"show all arguments{f' (also {also})' if also else ''} and exit"

    def error(self, message: str) -> NoReturn:
        """Print the usage and a short message without control characters, and exit with 2."""
        super().error(printable(message, SHOWN_REASON))

    def parse_known_args(  # type: ignore[override]
        self, args: Optional[Sequence[str]] = None, namespace: Optional[argparse.Namespace] = None
    ) -> Tuple[argparse.Namespace, List[str]]:
        """Parse arguments; unknown ones are an error here, in the parser that meets them."""
        words = list(sys.argv[1:] if args is None else args)
        self._refuse_unknown_options(words)
        if _PRODUCTS in self._option_string_actions:
            words = self._join_products(words)
        values, unknown = super().parse_known_args(words, namespace)
        if unknown:
            self._refuse(unknown)
        return values, []

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Refuse what is not among the choices of an argument, or not a command, and name what is similar."""
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as err:
            err.message += did_you_mean(value, map(str, action.choices or ()))
            raise

    def _refuse(self, unknown: Sequence[str]) -> NoReturn:
        """Refuse arguments that do not exist."""
        words = {*self._option_string_actions}
        if _PRODUCTS in words and not unknown[0].startswith("-"):
            words = _product_names()
        name = unknown[0].partition("=")[0]
        self.error(f"unrecognized arguments: {' '.join(unknown)}{did_you_mean(name, words)}")

    def _refuse_unknown_options(self, words: Sequence[str]) -> None:
        """Refuse an option that does not exist, before its value is taken for another argument."""
        commands = self._commands
        for word in words:
            if word == "--" or (commands and not word.startswith("-")):
                return  # what follows is not an option, or for the parser of the command
            name = word.partition("=")[0]
            # in a command, a word with one hyphen may be a negative number
            if not name.startswith("-" if commands else "--") or " " in name:
                continue
            if any(option.startswith(name) for option in self._option_string_actions):
                continue
            command = next((other for other in words if other in commands), "")
            if command:
                commands[command].error(f"arguments of {command} follow its name; {name} is before it")
            self._refuse([name])

    def _join_products(self, words: Sequence[str]) -> List[str]:
        """Join the words behind `--products` that are names of products: argparse takes one word for a value."""
        products = _product_names()
        joined: List[str] = []
        takes_value = takes_more = False  # whether the next word is the value, or may belong to it
        for word in words:
            if takes_more and word and products.issuperset(word.replace(",", " ").split()):
                if word in products and Path(word).exists():
                    self.error(f"{word} is a product and a path here: write {joined[-1]},{word} or ./{word}")
                joined[-1] += f",{word}"
                continue
            joined.append(word)
            name, equals, _ = word.partition("=")
            options = [row for row in self._option_string_actions if name.startswith("--") and row.startswith(name)]
            is_products = options == [_PRODUCTS]  # or an abbreviation
            takes_value, takes_more = is_products and not equals, takes_value or (is_products and bool(equals))
        return joined


def _product_names() -> Set[str]:
    """Return the words that `--products` takes."""
    from polar_pipeline.options.products import ALL, PRODUCTS  # here: the list of commands does without NumPy

    return {*PRODUCTS, ALL}
