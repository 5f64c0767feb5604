"""Cases of graphc/ops/structure/sharding.py.

Without a mesh, and on replicas, an annotation has no effect.
"""

from __future__ import annotations

import graphc as gc
from graphc.errors import AttributeValueError, ShapeError
from tests.laws.case import Bad, Case, In

CASES = (
    Case(
        "Shard",
        lambda x: gc.shard(x, ("data", None)),
        [In((4, 2), batch_axis=0)],
        lambda x: x,
        dtypes=("bool", "int8", "uint32", "bfloat16", "float32", "float64", "complex64"),
        bad=(
            Bad(
                lambda x: gc.shard(x, ("data", None, "model")),
                [In((4, 2))],
                ShapeError,
                r"3 entries for f32\[4, 2\], which has 2 axes",
            ),
            Bad(
                lambda x: gc.shard(x, ("data", "data")),
                [In((4, 2))],
                AttributeValueError,
                "has an axis of the mesh twice",
            ),
            Bad(
                lambda x: gc.shard(x, "data"),
                [In((4, 2))],
                AttributeValueError,
                "'data' does not give the mesh axes to split along",
            ),
        ),
    ),
    Case(
        "Shard",
        lambda x: gc.shard(x, (("data", "model"),)) * x,
        [In((2, 4), batch_axis=1)],
        lambda x: x * x,
        label="by two axes",
    ),
)
