"""Cases of graphc/ops/draws/random_parametric.py.

tests/ops/draws/test_distributions.py tests the distributions.
"""

from __future__ import annotations

from graphc.errors import AttributeValueError, DTypeError, ShapeError
from graphc.ops.core.emit import emit
from graphc.ops.draws import random_parametric as ops
from graphc.ops.draws.categorical import permutation
from graphc.ops.draws.counts import binomial, multinomial, poisson
from graphc.ops.draws.distributions import gamma
from tests.laws.case import Bad, Case, In
from tests.laws.cases_random_keys import KEY

FLOATS = ("float32", "float64")
SHARES = In((3,), low=0.1, high=0.9)
POSITIVE = In((3,), low=0.5, high=3.0)


def draw(op, **attrs):
    return lambda key, parameter: emit(op, (key, parameter), shape=(4, 3), **attrs)


CASES = (
    Case("RandomGamma", draw(ops.RANDOM_GAMMA), [KEY, POSITIVE], None, FLOATS, gradient=False),
    Case("RandomGamma", draw(ops.RANDOM_GAMMA, log=True), [KEY, POSITIVE], None,
         ("float64",), label="log"),
    Case("RandomGamma", lambda a: gamma(a, a, seed=1), [POSITIVE], None, ("float64",),
         label="function", gradient=False, bad=[
        Bad(lambda a: gamma(a, shape=(2,)), [In((3,))], ShapeError, "alpha f32.* broadcast"),
        Bad(gamma, [In((3,), "complex64")], DTypeError, "alpha must be a float of 16 bits or more"),
    ]),
    Case("RandomPoisson", draw(ops.RANDOM_POISSON), [KEY, POSITIVE], None, FLOATS, gradient=False,
         bad=[
            Bad(lambda a: poisson(a, dtype="int8"), [In((3,))], AttributeValueError, "int32 or"),
            Bad(lambda a: poisson(a, (2,)), [In((3,))], ShapeError, "does not broadcast"),
         ]),
    Case("RandomBinomial",
         lambda key, p: emit(ops.RANDOM_BINOMIAL, (key, 9 * p, p), shape=(4, 3)), [KEY, SHARES],
         None, FLOATS, gradient=False, bad=[
            Bad(lambda p: binomial(5, p, dtype="int8"), [In((3,))], AttributeValueError, "int32"),
            Bad(lambda p: binomial(p, 0.5, (2,)), [In((3,))], ShapeError, "n f32.* broadcast"),
            Bad(lambda p: binomial(5, p, (2,)), [In((3,))], ShapeError, "p f32.* broadcast"),
            Bad(lambda p: binomial(p, 0.5), [In((3,), "complex64")], DTypeError, "of trials"),
         ]),
    Case("RandomMultinomial",
         lambda key, p: emit(ops.RANDOM_MULTINOMIAL, (key, 9 * p[0], p), shape=(4,)),
         [KEY, SHARES], None, FLOATS, gradient=False, bad=[
            Bad(lambda p: multinomial(5, p[0]), [In((3,))], ShapeError, "an axis of classes"),
            Bad(lambda p: multinomial(5, p, (2,)), [In((4, 3))], ShapeError, "p f32.* broadcast"),
         ]),
    Case("RandomPermutation", lambda x: permutation(x, seed=2), [In((6, 2))], None,
         ("int32", "float64"), bad=[
            Bad(lambda x: permutation(x, 1), [In((3,))], AttributeValueError, "axis 1 is out of"),
         ]),
)  # fmt: skip
