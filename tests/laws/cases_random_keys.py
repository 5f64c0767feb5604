"""Cases of graphc/ops/random_keys.py; values are tested in tests/ops/test_random.py."""

from __future__ import annotations

from graphc.errors import AttributeValueError, DTypeError, ShapeError
from graphc.ops import random_keys as ops
from tests.laws.case import Bad, Case, In

KEY = In((2,), "uint32", values=[0, 42])

CASES = (
    Case(
        "FoldIn",
        lambda key: (ops.fold_in(key, 3), ops.fold_in(key, -1)),
        [KEY],
        None,
        gradient=False,
        dtypes=("uint32",),
        bad=[
            Bad(lambda key: ops.fold_in(key, 3), [In((2,), "int32")], DTypeError, "key must be"),
            Bad(lambda key: ops.fold_in(key, 3), [In((3,), "uint32")], ShapeError, "key must be"),
            Bad(lambda x: ops.random_key(-1), [In((2,))], AttributeValueError, "seed must be"),
            Bad(lambda x: ops.random_key(x), [In((2,))], ShapeError, "seed must be an int32"),
        ],
    ),
)
