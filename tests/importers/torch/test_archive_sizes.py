"""Expressions of sizes in .pt2 files: read, never evaluated."""

from __future__ import annotations

from typing import Any

import pytest

from graphc.errors import GraphcError
from graphc.importers.torch.archive.sizes import size_of
from graphc.importers.torch.call import Refused

S = "Symbol('s77', positive=True, integer=True)"


def of(text: str) -> Any:
    return size_of({"as_expr": {"expr_str": text, "hint": None}})


@pytest.mark.parametrize(
    ("text", "want"),
    [
        (S, "s77"),
        ("Integer(3)", "3"),
        (f"Add({S}, Integer(1))", "s77 + 1"),
        (f"Mul(Integer(2), {S}, Symbol('b'))", "2*b*s77"),
        (f"Add(Mul(Integer(-1), {S}), Integer(9))", "-1*s77 + 9"),
        (f"FloorDiv({S}, Integer(2))", "floordiv(s77, 2)"),
        (f"Pow({S}, Integer(2))", "s77*s77"),
        ("2*s0 + 1", "2*s0 + 1"),  # as older versions write it
    ],
)
def test_sizes(text: str, want: str) -> None:
    assert str(of(text)).replace(" ", "") == want.replace(" ", "")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "__import__('os').abort()",
        "().__class__",
        f"Mod({S}, Integer(2))",
        f"Pow({S}, Integer(99999999))",
        "9**9**9**9",
        "Symbol('a b')",
        "True",
        "Integer(-3)",
        "FloorDiv(Integer(1), Integer(0))",
        "(" * 500 + "s0" + ")" * 500,
        "-" * 1900 + "s0",
        "s0 + " * 1000 + "s0",
    ],
)
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises((Refused, GraphcError), match="size"):
        of(text)


@pytest.mark.parametrize("size", [-1, 2**70, True, 1.5, "3", None])
def test_numbers_that_are_no_sizes(size: object) -> None:
    with pytest.raises(Refused, match="has the size"):
        size_of({"as_int": size})
