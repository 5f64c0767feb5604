"""Every operator with every dtype: the result has the declared type, or the error states a reason.

docs/dtypes.md lists the refused dtypes; it is made from the same `representatives`.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphc.ir.dtypes import is_inexact
from graphc.ir.graph import Graph
from tests.compiling import fusions_as_users
from tests.laws.case import Case
from tests.laws.dtypes import candidates, representative
from tests.laws.harness import Array, Built, build_case, evaluate, functional, tolerance, widened
from tests.near import assert_near

PAGE = Path(__file__).parents[2] / "docs" / "make_dtypes.py"

# Dtypes for which the oracle, not the operator, is wrong.
WITHOUT_ORACLE = {
    ("Cast", "complex64"): "the case goes through a real type",
    ("Cast", "complex128"): "the same",
    ("Round", "uint64"): "NumPy's goes through float64",
    ("DimValue", "bool"): "a size over 1 is no bool",
}


WITHOUT_NEGATIVE_ZERO = {"float8_e4m3b11fnuz", "float8_e4m3fnuz", "float8_e5m2fnuz"}


@pytest.mark.slow
@pytest.mark.parametrize("op", sorted(candidates()))
def test_every_dtype(op: str) -> None:
    """One program for all dtypes that the operator accepts; sometimes a second one, which is
    compiled as for users and takes longer."""
    found = representative(op)
    assert found is not None
    case, outcomes = found
    accepted = [dtype for dtype, reason in outcomes.items() if reason is None]
    special = [dtype for dtype in accepted if fusions_as_users() and dtype in WITHOUT_NEGATIVE_ZERO]
    check_dtypes(case, [dtype for dtype in accepted if dtype not in special], {})
    check_dtypes(case, special, fusions_as_users())


def check_dtypes(case: Case, dtypes: Sequence[str], xla_options: dict[str, Any]) -> None:
    if not dtypes:
        return
    graph = Graph(seed=1)
    with graph:
        built = [build_case(case, dtype, f"in_{dtype}") for dtype in dtypes]
    fetches = list(dict.fromkeys(t for b in built for t in b.outputs))
    program = functional(graph, fetches, [t for b in built for t in b.tensors])
    arrays = [array for b in built for array in b.arrays]
    values = dict(zip(fetches, evaluate(program, arrays, xla_options), strict=True))
    for b in built:
        for tensor in b.outputs:
            assert values[tensor].dtype == tensor.type.dtype, b.title
            assert values[tensor].shape == tensor.type.shape, b.title
        if case.oracle is not None and (case.op, b.dtype) not in WITHOUT_ORACLE:
            check(b, [values[t] for t in b.outputs])


def check(b: Built, got: list[Array]) -> None:
    """Compares with the oracle, in the widest type of the kind."""
    inexact = all(is_inexact(value.dtype) for value in got)
    with np.errstate(all="ignore"):  # the inputs suit most dtypes, but not all
        inputs = zip(b.arrays, b.case.inputs, strict=True)
        wanted = b.case.oracle(*[fit_for_oracle(a, i.dtype == "T" and inexact) for a, i in inputs])
        wanted = wanted if isinstance(wanted, (tuple, list)) else [wanted]
        # Integers wrap around.
        wanted = [
            np.asarray(w) if is_inexact(v.dtype) else np.asarray(w).astype(v.dtype)
            for v, w in zip(got, wanted, strict=True)
        ]
    for value, expected in zip(got, wanted, strict=True):
        near = tolerance(b.case, value.dtype)
        assert_near(widened(value), widened(expected), **near, each=True, err_msg=b.title)


def fit_for_oracle(array: Array, as_fraction: bool) -> Array:
    """The input in a dtype in which NumPy computes exactly: from int8, NumPy makes float16."""
    if is_inexact(array.dtype):
        return widened(array)
    if as_fraction:
        return array.astype(np.float64)
    return array.astype(np.int64) if array.dtype.name in ("int4", "uint4") else array


def test_the_table_of_dtypes_is_that_of_the_operators() -> None:
    spec = importlib.util.spec_from_file_location("make_dtypes", PAGE)
    assert spec is not None and spec.loader is not None
    make_dtypes = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(make_dtypes)
    assert make_dtypes.PAGE.read_text() == make_dtypes.page(), "run python docs/make_dtypes.py"
