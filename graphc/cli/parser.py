"""The parser of a command: one-line errors, and help from the docstring of a function."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any, NoReturn

_LONGEST_FORM = 200  # characters; a longer usage text is shown by --help only


class Parser(argparse.ArgumentParser):
    """Reports errors in one line."""

    def __init__(self, **options: Any) -> None:
        formatter = argparse.RawDescriptionHelpFormatter
        super().__init__(formatter_class=formatter, allow_abbrev=False, **options)

    def error(self, message: str) -> NoReturn:
        usage = " ".join(self.format_usage().split()).removeprefix("usage: ").replace("[-h] ", "")
        form = f"; write {usage}" if len(usage) <= _LONGEST_FORM else ""
        self.exit(2, f"{self.prog}: {message}{form} (see {self.prog} --help)\n")


def add_command(commands: Any, name: str, add: Callable[[Parser], None]) -> Parser:
    """Adds a command. The docstring of `add` is its help: a paragraph, then an example."""
    text, _, example = (add.__doc__ or "").partition("\n\n")
    example = "\n".join(line.strip() for line in example.strip().splitlines())
    parser: Parser = commands.add_parser(
        name,
        help=text,
        description=text,
        epilog="example:\n  " + example.replace("\n", "\n  "),
    )
    add(parser)
    return parser
