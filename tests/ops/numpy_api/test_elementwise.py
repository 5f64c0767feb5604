"""Composite elementwise functions and statistics, compared with NumPy and SciPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import special

import graphc as gc
from graphc.autodiff.reverse import gradients
from graphc.build.placeholders import placeholder
from graphc.errors import AttributeValueError, DTypeError, ShapeError
from graphc.ir.graph import Graph
from graphc.ops.scipy_api.special import zeta
from tests.laws.harness import evaluate, functional
from tests.near import assert_near
from tests.ops.table import Row, check

RNG = np.random.default_rng(0)
X = RNG.normal(size=(4, 5)).astype(np.float32)
Y = RNG.normal(size=(5,)).astype(np.float32)
POSITIVE = np.abs(X) + np.float32(0.1)
UNIT = (1 / (1 + np.exp(-X))).astype(np.float32)
ODD = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.5, -2.5], np.float32)
SIGNS = np.array([-0.5, 0.0, 2.0, np.nan, np.inf, -np.inf], np.float32)
WHOLE = RNG.integers(-9, 9, (4, 5)).astype(np.int32)

ONE = [
    (gc.exp2, np.exp2, X),
    (gc.exp2, np.exp2, WHOLE),
    (gc.exp1, special.exp1, POSITIVE),
    (gc.log2, np.log2, POSITIVE),
    (gc.log10, np.log10, POSITIVE),
    (gc.trunc, np.trunc, X * 3),
    (gc.trunc, np.trunc, WHOLE),
    (gc.fix, np.trunc, ODD),
    (gc.around, np.rint, X * 3),
    (lambda x: gc.around(x, 2), lambda x: np.round(x, 2), X),
    (lambda x: gc.around(x, -1), lambda x: np.round(x, -1), WHOLE * 7),
    (gc.fabs, np.fabs, WHOLE),
    (gc.positive, np.positive, X),
    (gc.isinf, np.isinf, ODD),
    (gc.isinf, np.isinf, np.array([1j * np.inf, 1 + 1j], np.complex64)),
    (gc.isinf, np.isinf, WHOLE),
    (gc.isposinf, np.isposinf, ODD),
    (gc.isneginf, np.isneginf, ODD),
    (lambda x: gc.nan_to_num(x, 7.0, 8.0, -8.0), lambda x: np.nan_to_num(x, True, 7, 8, -8), ODD),
    (gc.nan_to_num, lambda x: np.nan_to_num(x.astype(np.float32)), ODD),
    (gc.nan_to_num, lambda x: x, WHOLE),
    (gc.isreal, np.isreal, np.array([1j, 2, 3 + 0j], np.complex64)),
    (gc.isreal, np.isreal, X),
    (gc.iscomplex, np.iscomplex, np.array([1j, 2, 3 + 0j], np.complex64)),
    (gc.bitwise_count, np.bitwise_count, WHOLE),
    (gc.modf, np.modf, ODD),
    (gc.modf, np.modf, X * 3),
    (gc.deg2rad, np.deg2rad, X),
    (gc.degrees, np.degrees, X),
    (gc.angle, np.angle, (X + 1j * X[::-1]).astype(np.complex64)),
    (gc.angle, np.angle, X),
    (gc.logit, special.logit, UNIT),
    (gc.ndtr, special.ndtr, X * 3),
    (gc.entr, special.entr, np.array([0.0, 0.5, 2.0, -1.0], np.float32)),
    (gc.gamma, special.gamma, np.array([0.5, 3.0, -0.5, -1.5, 5.2], np.float32)),
    (gc.factorial, special.factorial, np.array([0, 1, 5, 10, -1])),
    (gc.i0, special.i0, X * 3),
    (gc.i1, special.i1, X * 3),
]
TWO = [
    (gc.logaddexp2, np.logaddexp2, X, Y),
    (gc.copysign, np.copysign, X, Y),
    (gc.copysign, np.copysign, ODD, -ODD),
    (gc.heaviside, np.heaviside, ODD, np.float32(0.5)),
    (gc.fmax, np.fmax, ODD, np.float32(1.0)),
    (gc.fmin, np.fmin, ODD, np.float32(1.0)),
    (gc.fmax, np.fmax, WHOLE, WHOLE[0]),
    (gc.divmod, np.divmod, X, Y),
    (gc.isclose, np.isclose, ODD, ODD),
    (lambda x, y: gc.isclose(x, y, equal_nan=True),
     lambda x, y: np.isclose(x, y, equal_nan=True), ODD, ODD),
    (lambda x, y: gc.isclose(x, y, rtol=0.5), lambda x, y: np.isclose(x, y, 0.5), X, Y),
    (gc.allclose, np.allclose, X, X + np.float32(1e-8)),
    (gc.array_equal, np.array_equal, X, X),
    (gc.array_equal, np.array_equal, X, Y),
    (gc.array_equal, np.array_equal, X, X[:2]),
    (gc.rel_entr, special.rel_entr, POSITIVE, POSITIVE[0]),
    (gc.kl_div, special.kl_div, POSITIVE, POSITIVE[0]),
    (gc.rel_entr, special.rel_entr, SIGNS, SIGNS[:, None]),
    (gc.kl_div, special.kl_div, SIGNS, SIGNS[:, None]),
    (gc.betaln, special.betaln, POSITIVE, POSITIVE[0]),
    (gc.comb, special.comb, np.array([5, 10, 3, 30, 2, -1, 4]), np.array([2, 3, 3, 5, 3, 0, -1])),
    (gc.comb, special.comb, np.float32([2.5, 7.5]), np.float32([1.0, 2.0])),
    (gc.poch, special.poch, np.float32([0.5, -1.5, -3, -3, -2, 4, -0.5]),
     np.float32([2.0, 3.5, 2, 5, 2, 0, 1])),
    (gc.boxcox, special.boxcox, POSITIVE, np.float32([0, 1, 0.5, -1, 1e-6])),
    (gc.boxcox, special.boxcox, np.float32([0.0, 0.0, 0.0]), np.float32([0, 2, -1])),
]  # fmt: skip


def test_elementwise_as_numpy() -> None:
    check(
        [Row(f"{i} {f}", f, oracle, (x,), 1e-5) for i, (f, oracle, x) in enumerate(ONE)]
        + [Row(f"{i} {f}", f, oracle, (x, y), 1e-5) for i, (f, oracle, x, y) in enumerate(TWO)]
    )


HOLES = np.where(RNG.random((4, 5, 3)) < 0.3, np.nan, RNG.normal(size=(4, 5, 3)))
HOLES[1, 2] = np.nan
HOLES = HOLES.astype(np.float32)
CUBE = RNG.normal(size=(4, 5, 3)).astype(np.float32)
REDUCTIONS = [
    (gc.std, np.std, CUBE),
    (gc.ptp, np.ptp, CUBE),
    (gc.count_nonzero, np.count_nonzero, WHOLE.reshape(4, 5, 1)),
    (gc.median, np.median, CUBE),
    (gc.nansum, np.nansum, HOLES),
    (gc.nanprod, np.nanprod, HOLES),
    (gc.nanmax, np.nanmax, HOLES),
    (gc.nanmin, np.nanmin, HOLES),
    (gc.nanmean, np.nanmean, HOLES),
    (gc.nanvar, np.nanvar, HOLES),
    (gc.nanstd, np.nanstd, HOLES),
    (gc.nanmedian, np.nanmedian, HOLES),
]


@pytest.mark.filterwarnings("ignore:.*:RuntimeWarning")  # NumPy warns of rows without numbers
def test_statistics_as_numpy() -> None:
    axes = [(None, False), (1, True), ((0, 2), False), (-1, False)]
    rows = [
        Row(
            f"{f.__name__} {axis} {keepdims}",
            lambda x, f=f, axis=axis, keepdims=keepdims: f(x, axis, keepdims),
            lambda x, f=oracle, axis=axis, keepdims=keepdims: f(x, axis=axis, keepdims=keepdims),
            (x,),
            1e-5,
        )
        for f, oracle, x in REDUCTIONS
        for axis, keepdims in axes
    ]
    rows += [
        Row("var ddof", lambda x: gc.var(x, 1, ddof=1), lambda x: x.var(1, ddof=1), (CUBE,)),
        Row("std ddof", lambda x: gc.std(x, (0, 1), True, 2),
            lambda x: x.std((0, 1), ddof=2, keepdims=True), (CUBE,)),
        Row("nanvar ddof", lambda x: gc.nanvar(x, 0, ddof=1),
            lambda x: np.nanvar(x, 0, ddof=1), (HOLES,), 1e-5),
        Row("nanargmax", lambda x: gc.nanargmax(x, 0), lambda x: np.nanargmax(x, 0), (HOLES,)),
        Row("nanargmin", gc.nanargmin, np.nanargmin, (HOLES,)),
        Row("nancumsum", lambda x: gc.nancumsum(x, 1), lambda x: np.nancumsum(x, 1), (HOLES,)),
        Row("nanmax of integers", gc.nanmax, np.max, (WHOLE,)),
        Row("average", lambda x, w: gc.average(x, 1, w),
            lambda x, w: np.average(x, 1, w), (CUBE, POSITIVE[0])),
        Row("average in the order of the axes", lambda x, w: gc.average(x, (2, 0), w),
            lambda x, w: np.average(x, (2, 0), w), (CUBE, np.abs(CUBE[:, 0].T))),
        Row("average of all", lambda x, w: gc.average(x, weights=w),
            lambda x, w: np.average(x, weights=w), (X, POSITIVE)),
        Row("average without weights", lambda x: gc.average(x, 0), lambda x: x.mean(0), (CUBE,)),
    ]  # fmt: skip
    check(rows)


@pytest.mark.filterwarnings("ignore:.*:RuntimeWarning")
def test_quantiles_as_numpy() -> None:
    shares = np.array([0.0, 0.1, 0.35, 0.5, 1.0], np.float32)
    rows = []
    for method in ("linear", "lower", "higher", "midpoint", "nearest"):
        for axis, keepdims in ((None, False), (1, True), ((0, 2), False)):
            attrs = {"axis": axis, "method": method, "keepdims": keepdims}
            rows += [
                Row(f"quantile {attrs}", lambda x, q, a=attrs: gc.quantile(x, q, **a),
                    lambda x, q, a=attrs: np.quantile(x, q, **a), (CUBE, shares), 1e-5),
                Row(f"quantile of one {attrs}", lambda x, a=attrs: gc.quantile(x, 0.3, **a),
                    lambda x, a=attrs: np.quantile(x, 0.3, **a), (CUBE,), 1e-5),
                Row(f"nanquantile {attrs}", lambda x, q, a=attrs: gc.nanquantile(x, q, **a),
                    lambda x, q, a=attrs: np.nanquantile(x, q, **a), (HOLES, shares), 1e-5),
            ]  # fmt: skip
    rows += [
        Row("percentile", lambda x: gc.percentile(x, [25, 75], 0),
            lambda x: np.percentile(x, [25, 75], 0), (CUBE,), 1e-5),
        Row("nanpercentile", lambda x: gc.nanpercentile(x, 30, 0),
            lambda x: np.nanpercentile(x, 30, 0), (HOLES,), 1e-5),
        Row("NaN", lambda x: gc.quantile(x, 0.5, 1), lambda x: np.quantile(x, 0.5, 1), (HOLES,)),
        Row("integers", lambda x: gc.median(x, 1), lambda x: np.median(x, 1), (WHOLE,)),
    ]  # fmt: skip
    check(rows)


def test_what_statistics_refuse() -> None:
    with Graph():
        x = placeholder((4, 5), "float32", name="x")
        with pytest.raises(AttributeValueError, match="method must be one of linear, lower"):
            gc.quantile(x, 0.5, method="hazen")
        with pytest.raises(ShapeError, match="a number or a vector"):
            gc.quantile(x, [[0.5]])
        with pytest.raises(ShapeError, match="of the shape of x or of its axes"):
            gc.average(x, (0, 1), np.ones(4, np.float32))
        with pytest.raises(ShapeError, match="of the shape of x or of its axes"):
            gc.average(x, (0, 1), np.ones((5, 4), np.float32))
        with pytest.raises(ShapeError, match="of the shape of x or of its axes"):
            gc.average(x, 1, np.ones((1, 5), np.float32))


def test_extremes_refuse_complex_numbers() -> None:
    with Graph():
        x = placeholder((4,), "complex64", name="x")
        for function in (gc.nanmax, gc.nanmin, gc.nanargmax, gc.nanargmin):
            with pytest.raises(DTypeError, match="x must be real or bool, got complex64"):
                function(x)
        for function in (gc.segment_max, gc.segment_min):
            with pytest.raises(DTypeError, match="operand must be real, got complex64"):
                function(x, [0, 1, 1, 0], 2)


def test_the_derivative_of_zeta() -> None:
    """JAX has none, so central differences are the reference. The first operand has none."""
    q = np.linspace(0.5, 3.0, 6)
    graph = Graph()
    with graph:
        s, x = placeholder((), "float64", name="s"), placeholder(q.shape, "float64", name="x")
        found = gradients([gc.sum(zeta(s, x))], [s, x])
    by_s, by_q = evaluate(functional(graph, found, [s, x]), [np.asarray(2.5), q])
    wanted = (special.zeta(2.5, q + 1e-6) - special.zeta(2.5, q - 1e-6)) / 2e-6
    assert_near(by_q, wanted, rtol=1e-7, each=True)
    assert np.isnan(by_s)


@pytest.mark.parametrize("function", [gc.rel_entr, gc.kl_div])
def test_entropies_have_gradients_outside_their_domain(function: Any) -> None:
    """There they are constants."""
    with Graph() as graph:
        x, y = (placeholder((3,), name=name) for name in "xy")
        slopes = gradients(function(x, y), [x, y])
    program = functional(graph, slopes, [x, y])
    for slope in evaluate(program, [np.float32([-1, 2, -1]), np.float32([2, -3, -1])]):
        assert slope.tolist() == [0, 0, 0]


@pytest.mark.parametrize("function", [gc.rel_entr, gc.kl_div])
def test_entropies_of_dtypes_without_infinity(function: Any) -> None:
    """It is NaN there, which has no effect on other elements."""
    with Graph() as graph:
        x, y = (placeholder((2,), "float8_e4m3fn", name=name) for name in "xy")
        found = function(x, y)
    operands = [np.array(row).astype(x.dtype) for row in ([1, -1], [1, 1])]
    (value,) = evaluate(functional(graph, [found], [x, y]), operands)
    assert value[0] == 0 and np.isnan(value[1])
