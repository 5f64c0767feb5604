"""The methods of tensors and variables, which `graphc.ops` gives to `graphc.ir`."""

from __future__ import annotations

import re
from pathlib import Path

import graphc.ops.methods  # noqa: F401  binds the methods
from graphc.ir import operators


def test_each_method_that_ir_names_has_a_function() -> None:
    """A missing one would be found only by the call."""
    folder = Path(operators.__file__).parent
    texts = [path.read_text() for path in folder.rglob("*.py")]
    named = {name for text in texts for name in re.findall(r'METHODS\["(\w+)"\]', text)}
    assert "getitem" in named
    assert named <= operators.METHODS.keys()
    assert all(map(callable, operators.METHODS.values()))
