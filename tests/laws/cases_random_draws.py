"""Cases of graphc/ops/draws: random_draws and dropout. tests/ops/test_random.py tests values."""

from __future__ import annotations

from graphc.errors import AttributeValueError, DTypeError, ShapeError
from graphc.ops.core.emit import emit
from graphc.ops.draws import random_draws as ops
from graphc.ops.draws.dropout import DROPOUT, dropout
from graphc.ops.draws.location_scale import normal, truncated_normal, uniform
from tests.laws.case import Bad, Case, In
from tests.laws.cases_random_keys import KEY

F64 = {"dtypes": ("float64",), "gradient": False}


def draw(op, **attrs):
    return lambda key: emit(op, (key,), shape=(4, 3), **attrs)


CASES = (
    Case("RandomNormal", draw(ops.RANDOM_NORMAL), [KEY], None, **F64),
    Case("RandomNormal", lambda x: normal((4,), x, 2.0, "float64", seed=1) * x, [In((4,))],
         None, dtypes=("float64",), label="mean, stddev"),
    Case("TruncatedNormal", draw(ops.TRUNCATED_NORMAL, lower=-1.0), [KEY], None, **F64),
    Case("TruncatedNormal", lambda x: x + truncated_normal((4,), seed=1), [In((4,))],
         None, dtypes=("float32",), label="function"),
    Case("RandomUniform", draw(ops.RANDOM_UNIFORM), [KEY], None, **F64),
    Case("RandomUniform", lambda x: uniform((3,), -5, 5, "int8", seed=1), [In((4,))],
         None, gradient=False, label="integers", bad=[
            Bad(lambda x: uniform((3,), 1.0, 1.0), [In((4,))], AttributeValueError,
                "minval 1.0 must be less than maxval 1.0"),
            Bad(lambda x: uniform((3,), 0, 300, "int8"), [In((4,))], AttributeValueError,
                "must be ints that fit int8"),
            Bad(lambda x: uniform(("n",)), [In((4,))], AttributeValueError, "size"),
            Bad(lambda x: normal((3,), dtype="int32"), [In((4,))], AttributeValueError,
                "dtype must be floating"),
         ]),
    Case("RandomBernoulli", lambda key, p: emit(ops.RANDOM_BERNOULLI, (key, p), shape=(4, 3)),
         [KEY, In((3,), low=0.0, high=1.0)], None, gradient=False, bad=[
            Bad(lambda p: ops.bernoulli(p, (2,)), [In((3,))], ShapeError, "broadcast"),
            Bad(lambda p: ops.bernoulli(p), [In((3,), "int32")], DTypeError, "p must be floating"),
         ]),
    Case("Dropout", lambda x, key: emit(DROPOUT, (x, key), rate=0.3),
         [In((4, 3), batch_axis=0), KEY], None, layout=False,
         dtypes=("bfloat16", "float32", "float64")),
    Case("Dropout", lambda x: dropout(x, 0.5, seed=3), [In((4, 3))], None, label="function",
         bad=[
            Bad(lambda x: dropout(x, 1.0), [In((4,))], AttributeValueError,
                "rate must be at least 0 and less than 1"),
            Bad(lambda x: dropout(x, 0.5), [In((4,), "int32")], DTypeError, "floating"),
         ]),
)  # fmt: skip
