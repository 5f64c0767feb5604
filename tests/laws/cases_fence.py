"""Cases of graphc/ops/structure/ordering.py."""

from __future__ import annotations

from graphc.ops.core.emit import emit
from graphc.ops.structure.ordering import FENCE
from tests.laws.case import Case, In

CASES = (
    Case(
        "Fence",
        lambda x: emit(FENCE, (x,), number=1),
        [In((4, 2), batch_axis=0)],
        lambda x: x,
        dtypes=("bool", "int8", "uint32", "bfloat16", "float32", "float64", "complex64"),
    ),
)
