"""Equalities between sizes: what stands for what, and what cannot be."""

import pytest

import graphc as gc
from graphc.errors import ShapeError
from graphc.ir.dims import DimConstraints, symbol

N, M = symbol("n"), symbol("m")


def test_an_equality_that_cannot_hold_leaves_nothing_behind() -> None:
    sizes = DimConstraints()
    assert sizes.unify(2 * N, M + 1)
    assert sizes.unify(M, 5)
    before = sizes.equalities()
    assert not sizes.unify(N, 4), "2*n == 6"
    assert sizes.equalities() == before
    assert sizes.unify(N, 3)
    assert sizes.find(N * M) == 15


def test_the_first_name_stands_for_the_class() -> None:
    sizes = DimConstraints()
    assert sizes.unify(N, M)
    assert sizes.find(M + 1) == N + 1
    assert sizes.equal(N, M) and not sizes.equal(N, M + 1)


def test_an_operator_that_is_refused_leaves_no_equality_behind() -> None:
    g = gc.Graph()
    with g:
        a = gc.placeholder(("n", 3), name="a")
        b = gc.placeholder(("m", 4), name="b")
        with pytest.raises(ShapeError, match="do not broadcast together: 3 against 4"):
            a + b
    assert not g.constraints.equal(N, M)
