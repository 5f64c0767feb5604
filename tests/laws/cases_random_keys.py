"""Cases of graphc/ops/draws/random_keys.py; values are tested in tests/ops/test_random.py."""

from __future__ import annotations

from graphc.errors import AttributeValueError, DTypeError, ShapeError
from graphc.ops.draws import random_keys as ops
from tests.laws.case import Bad, Case, In

KEY = In((2,), "uint32", values=[0, 42])
KEYS = In((2, 2), "uint32", values=[[0, 42], [7, 1]])

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
    Case(
        "FoldIn",
        lambda keys, numbers: ops.fold_in(keys, numbers),
        [KEYS, In((2,), "int32", values=[3, -1])],
        None,
        gradient=False,
        dtypes=("uint32",),
        label="each by itself",
        bad=[
            Bad(
                lambda keys: ops.fold_in(keys, 3),
                [In((4, 2), "uint32")],
                ShapeError,
                "data must be an int32 for each key",
            )
        ],
    ),
    Case(
        "SplitKey",
        lambda key, keys: (ops.split_key(key), ops.split_key(keys, (3, 1))),
        [KEY, KEYS],
        None,
        gradient=False,
        dtypes=("uint32",),
        bad=[Bad(lambda x: ops.split_key(x), [In((2,), "int32")], DTypeError, "key must be")],
    ),
    Case(
        "RandomBits",
        lambda key, keys: (ops.random_bits(key, 4, "uint8"), ops.random_bits(keys, (2, 1))),
        [KEY, KEYS],
        None,
        gradient=False,
        dtypes=("uint32",),
        bad=[
            Bad(lambda x: ops.random_bits(x), [In((3,), "uint32")], ShapeError, "key must be"),
            Bad(
                lambda x: ops.random_bits(x, (), "int32"),
                [KEY],
                AttributeValueError,
                "dtype must be an unsigned integer",
            ),
        ],
    ),
)
