"""The command line: `graphc train`, `compile`, `run`, `inspect`, `tune`, `profile`, `export`,
`plan`, `scale`, `devices`, `cache`, `opt`, `compare`, `import`, `serve`, `launch`, `submit`,
`jobs`.

This module and `graphc.cli.arguments` import nothing slow, so that `graphc --help` is quick. The
module of a command is imported when the command runs.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module

from graphc.cli.arguments import parse
from graphc.cli.failures import ScriptError, one_line
from graphc.errors import GraphcError

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command.

    Args:
        arguments: the arguments after `graphc`; by default those of the process.

    Returns:
        the exit code: 0, or 2 if the input is wrong (a message is then on standard error).

    Raises:
        SystemExit: after `--help` and `--version`, and for arguments that do not parse.
    """
    options = parse(sys.argv[1:] if arguments is None else arguments)
    launcher = sys._getframe(1).f_code.co_filename  # its lines are not the user's
    try:
        name = getattr(options, "module", options.command)  # `import` is a word of Python
        import_module(f"graphc.cli.{name}").run(options)
        sys.stdout.flush()
    except ScriptError as error:
        print(error.traceback, end="", file=sys.stderr)
        return _fail(options, error, launcher)
    except GraphcError as error:
        return _fail(options, error, launcher)
    except BrokenPipeError:  # `graphc inspect ... | head` stopped reading, which is not an error
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        print(f"graphc {options.command}: interrupted", file=sys.stderr)
        return 130
    return 0


def _fail(options: argparse.Namespace, error: GraphcError, launcher: str) -> int:
    whole = getattr(options, "whole_errors", False)
    text = str(error) if whole else one_line(error, launcher)
    print(f"graphc {options.command}: {text}", file=sys.stderr)
    return 2
