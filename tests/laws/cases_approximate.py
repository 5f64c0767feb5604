"""Cases of graphc/ops/reductions/approximate.py: on CPU the search is exact."""

from __future__ import annotations

from graphc.errors import AttributeValueError, DTypeError, ShapeError
from graphc.ops.reductions.approximate import approx_top_k
from tests.laws.case import Bad, Case, In
from tests.laws.cases_sorting import greatest

X = In((4, 3, 5), batch_axis=0, distinct=True)


def least(x, k):
    values, places = greatest(-x, k)
    return -values, places


CASES = (
    Case("ApproxTopK", lambda x: approx_top_k(x, 2, 0.9), [X], lambda x: greatest(x, 2),
         ("float16", "bfloat16", "float32", "float64"), bad=[
            Bad(lambda x: approx_top_k(x, 4), [In((2, 3))], ShapeError, "k is 4 of 3 elements"),
            Bad(lambda x: approx_top_k(x, 0), [In((3,))], AttributeValueError, "must be pos"),
            Bad(lambda x: approx_top_k(x, 1, 1.5), [In((3,))], AttributeValueError, "at most 1"),
            Bad(lambda x: approx_top_k(x, 1), [In(())], ShapeError, "x must have an axis"),
            Bad(lambda x: approx_top_k(x, 1), [In((3,), "int32")], DTypeError, "must be floating"),
         ]),
    Case("ApproxTopK", lambda x: approx_top_k(x, 2, smallest=True), [X], lambda x: least(x, 2),
         ("float64",), label="the least"),
)  # fmt: skip
