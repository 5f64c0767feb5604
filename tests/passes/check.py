"""Helpers for tests of passes: a program before the pass, and the expected program after it."""

from __future__ import annotations

from textwrap import dedent

from graphc.ir.compare import difference
from graphc.ir.parse import parse_program
from graphc.ir.program import Program
from graphc.ir.text import print_program
from graphc.ir.verify import verify
from graphc.ops.catalogue import CATALOGUE
from graphc.passes.core.base import Pass
from graphc.passes.simplify.prune import Prune

SOURCE = "model.py"


def program(text: str) -> Program:
    """Parses and verifies the program `text`; each node's source line is its line in the text."""
    parsed = parse_program(dedent(text).strip(), CATALOGUE, source_file=SOURCE)
    verify(parsed, "functional")
    return parsed


def check(a_pass: Pass, before: str, after: str, *, prune: bool = True) -> None:
    """Checks that `a_pass` turns the program `before` into the program `after`.

    Unused nodes are removed first, unless `prune` is False.
    """
    start, expected = program(before), program(after)
    result = a_pass.run(start)
    verify(result.program, "functional")
    assert result.changed > 0, "nothing changed"
    got = Prune().run(result.program).program if prune else result.program
    found = difference(got, expected)
    assert found is None, f"{found}\n\ngot\n{print_program(got, sources=False)}"


def check_stays(a_pass: Pass, text: str) -> None:
    """Checks that `a_pass` changes nothing and returns the same program object."""
    start = program(text)
    result = a_pass.run(start)
    assert result.program is start, print_program(result.program, sources=False)
    assert result.changed == 0


def pair(text: str) -> tuple[str, str]:
    """Returns the two programs of a short form: inputs, nodes before, `=>`, nodes after.

    This form suits rules of one or two lines. `=> stays` returns the same program twice.
    """
    inputs, _, rest = dedent(text).strip().partition("\n")
    before, _, after = rest.partition("=>")
    if after.strip() == "stays":
        after = before
    return tuple(f"program p({inputs}) {{\n{nodes}\n}}" for nodes in (before, after))  # type: ignore[return-value]


def check_pair(a_pass: Pass, text: str) -> None:
    """Calls `check` or `check_stays` with the programs of a short form."""
    before, after = pair(text)
    if before == after:
        check_stays(a_pass, before)
    else:
        check(a_pass, before, after)
