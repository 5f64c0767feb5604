"""Cases of graphc/ops/core/ranges.py."""

from __future__ import annotations

from graphc.ops.core.emit import emit
from graphc.ops.core.ranges import IN_RANGE
from tests.laws.case import Case, In

CASES = (
    Case(
        "InRange",
        lambda x: emit(IN_RANGE, (x,), low=(0, -1), high=(3, 4), what="indices"),
        [In((4, 2), batch_axis=0)],
        lambda x: x,
        dtypes=("int8", "int32", "int64", "uint32"),
    ),
)
