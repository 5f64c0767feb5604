"""Cases of graphc/ops/structure/ordering.py."""

from __future__ import annotations

from graphc.ops.core.emit import emit
from graphc.ops.structure.ordering import AFTER
from tests.laws.case import Case, In

CASES = (
    Case(
        "After",
        lambda x, other: emit(AFTER, (x, other)),
        [In((4, 2), batch_axis=0), In((4, 3), batch_axis=0, grad=False)],
        lambda x, other: x,
        dtypes=("bool", "int8", "uint32", "bfloat16", "float32", "float64", "complex64"),
    ),
)
