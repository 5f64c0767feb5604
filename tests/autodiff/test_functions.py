"""The functions that gradient rules may call have the types of the real functions."""

import inspect
from typing import get_type_hints

import pytest

from graphc.ir.functions import Binary, Functions, Unary
from graphc.ops.catalogue import FUNCTIONS

DECLARED = {name: rule for name, rule in vars(Functions).items() if inspect.isfunction(rule)}
DECLARED = {name: rule for name, rule in DECLARED.items() if not name.startswith("_")}


@pytest.mark.parametrize("name", sorted(DECLARED))
def test_a_signature_is_that_of_the_function(name: str) -> None:
    _, *wanted = inspect.signature(DECLARED[name]).parameters.values()
    found = inspect.signature(getattr(FUNCTIONS, name)).parameters.values()
    assert [(p.name, p.kind) for p in wanted] == [(p.name, p.kind) for p in found]
    for mine, theirs in zip(wanted, found, strict=True):
        assert mine.default in (theirs.default, ...)


def test_functions_of_one_and_two_operands() -> None:
    counts = {Unary: 1, Binary: 2}
    for name, kind in get_type_hints(Functions).items():
        *operands, named = inspect.signature(getattr(FUNCTIONS, name)).parameters.values()
        assert len(operands) == counts[kind] and named.name == "name"
