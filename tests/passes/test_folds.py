"""Every operator's `fold` against the expected results of its law cases.

Only folds that `fold-constants` itself would accept count: a fold may decline, and if NumPy reports
a doubtful value (a division by zero), the node stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from graphc.ir.graph import Graph
from graphc.ir.program import Program
from graphc.ops.catalogue import CATALOGUE
from graphc.passes.simplify.fold_constants import fold_node
from tests.laws.harness import as_list, build_case, families, functional, tolerance, widened
from tests.near import assert_near

CASES = [case for cases in families().values() for case in cases]
FOLDED = sorted({c.op for c in CASES if c.oracle and CATALOGUE[c.op].fold is not None})


def folded(program: Program, inputs: Sequence[np.ndarray]) -> list[Any] | None:
    """The outputs after every node was folded; None if a node stays."""
    values = dict(zip(program.input_tensors(), inputs, strict=True))
    for node in program.nodes:
        results = fold_node(node, [values[t] for t in node.inputs])
        if results is None:
            return None
        values.update(zip(node.outputs, results, strict=True))
    return [values[t] for t in program.output_tensors()]


@pytest.mark.parametrize("op", FOLDED)
def test_a_fold_gives_what_the_operator_means(op: str) -> None:
    tried = 0
    for case in (c for c in CASES if c.op == op and c.oracle):
        for dtype in case.dtypes:
            graph = Graph(seed=1)
            with graph:
                built = build_case(case, dtype, "x")
            got = folded(functional(graph, built.outputs, built.tensors), built.arrays)
            if got is None:
                continue
            tried += 1
            wanted = as_list(case.oracle(*[widened(a) for a in built.arrays]))
            for value, expected in zip(got, wanted, strict=True):
                assert_near(
                    widened(value),
                    np.asarray(expected),
                    **tolerance(case, value.dtype),
                    err_msg=built.title,
                )
    assert tried, f"no case of {op} was folded"
