"""Cases of graphc/ops/ranges.py."""

from __future__ import annotations

from graphc.ops.ranges import in_range
from tests.laws.case import Case, In

CASES = (
    Case(
        "InRange",
        lambda x: in_range(x, (0, -1), (3, 4), "indices"),
        [In((4, 2), batch_axis=0)],
        lambda x: x,
        dtypes=("int8", "int32", "int64", "uint32"),
    ),
)
