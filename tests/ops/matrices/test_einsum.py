"""`einsum` compared with NumPy: labels, dots, diagonals, orders of products, errors, gradients."""

from __future__ import annotations

import numpy as np
import pytest

from graphc.autodiff import gradients
from graphc.build.placeholders import placeholder
from graphc.errors import AttributeValueError, ShapeError
from graphc.ir.graph import Graph
from graphc.ops.matrices.einsum import einsum
from tests.ops.table import Row, check

RNG = np.random.default_rng(0)

TABLE = (
    ("i,ij->j", (1,), (3, 4)),
    ("i,ij->", (1,), (3, 4)),
    ("ij,ij->j", (1, 4), (3, 4)),
    ("i,ij,j->", (1,), (3, 4), (1,)),
    ("ij,jk->ik", (2, 3), (3, 4)),
    ("ij,jk", (2, 3), (3, 4)),
    ("ba,cb", (2, 3), (4, 2)),
    ("ij->ji", (2, 3)),
    ("ij", (2, 3)),
    ("ba", (2, 3)),
    ("ij->", (2, 3)),
    ("ij->i", (2, 3)),
    ("ii", (3, 3)),
    ("ii->i", (3, 3)),
    ("iij->ji", (3, 3, 2)),
    ("iii->i", (3, 3, 3)),
    ("ijij->ij", (2, 3, 2, 3)),
    ("i,i", (3,), (3,)),
    ("i,i->i", (3,), (3,)),
    ("i,j->ij", (3,), (2,)),
    ("ij,kl->k", (2, 3), (4, 5)),
    ("bij,bjk->bik", (2, 3, 4), (2, 4, 5)),
    ("bqhd,bkhd->bhqk", (2, 3, 2, 4), (2, 5, 2, 4)),
    (" i j , j k -> i k ", (2, 3), (3, 4)),
    ("...ij,...jk->...ik", (2, 3, 4), (4, 5)),
    ("...ij,...jk", (1, 3, 4), (2, 4, 5)),
    ("...ij,...jk->...ik", (6, 1, 3, 4), (2, 4, 5)),
    ("...i->i...", (2, 3, 4)),
    ("i...,i...->...", (3, 2), (3, 1)),
    ("ij,ij->ij", (1, 3), (2, 3)),
    ("ij,jk,kl->il", (2, 30), (30, 4), (4, 5)),
    ("ij,jk,kl,lm,mn->in", (2, 3), (3, 4), (4, 2), (2, 5), (5, 3)),
    ("i,i,i->", (3,), (3,), (3,)),
    ("ij,ik,il->jkl", (3, 2), (3, 4), (3, 5)),
    ("ij,,k->jk", (2, 3), (), (4,)),
    ("aab,bcc,a->c", (2, 2, 3), (3, 4, 4), (2,)),
)


def rows(make):
    return [
        Row(
            f"{spec} {shapes}",
            lambda *xs, spec=spec: einsum(spec, *xs),
            lambda *xs, spec=spec: np.einsum(spec, *xs),
            [make(shape) for shape in shapes],
            near=1e-10,
        )
        for spec, *shapes in TABLE
    ]


def test_floats() -> None:
    check(rows(RNG.standard_normal))


def test_complex_numbers() -> None:
    check(rows(lambda s: RNG.standard_normal(s) + 1j * RNG.standard_normal(s)))


def test_narrow_integers_and_bools_keep_their_dtype() -> None:
    check(rows(lambda s: RNG.integers(0, 2, s).astype(np.int8)))
    check(rows(lambda s: RNG.integers(0, 2, s).astype(bool)))
    with Graph():
        for dtype in ("int8", "bool", "bfloat16"):
            x = placeholder((2, 2), dtype)
            assert einsum("ii->i", x).dtype == einsum("ij->", x).dtype == x.dtype


def test_the_order_of_least_cost() -> None:
    with Graph() as graph:
        a, b, c = placeholder((100, 2)), placeholder((2, 100)), placeholder((100, 2))
        einsum("ij,jk,kl->il", a, b, c)
    sizes = [n.outputs[0].shape for n in graph.nodes if n.op.name == "DotGeneral"]
    assert sizes in ([(2, 2), (100, 2)], [(2, 2), (2, 100)])  # never 100 x 100


def test_named_sizes_and_gradients() -> None:
    with Graph():
        x = placeholder(("batch", 3), "float64")
        w, v = placeholder((3, 4), "float64"), placeholder(("batch", 4), "float64")
        y = einsum("bi,ij,bj->b", x, w, v, name="score")
        assert (y.shape, y.name) == ((x.shape[0],), "score:0")
        assert [g.type for g in gradients(y, [x, w, v])] == [x.type, w.type, v.type]


@pytest.mark.parametrize(
    ("spec", "shapes", "error", "words"),
    [
        ("ij,jk->ik", [(2, 3)], AttributeValueError, "2 lists of letters for 1 operands"),
        ("ijk->i", [(2, 3)], AttributeValueError, "names 3 axes of an operand of rank 2"),
        ("i->i", [(2, 3)], AttributeValueError, "names 1 axes of an operand of rank 2"),
        ("ij->ik", [(2, 3)], AttributeValueError, "'k' of the result must occur once"),
        ("ij->ii", [(2, 3)], AttributeValueError, "'i' of the result must occur once"),
        ("i...->i", [(2, 3)], AttributeValueError, r"the result needs '\.\.\.'"),
        ("i1->i", [(2, 3)], AttributeValueError, "must be letters and at most one"),
        ("......->", [(2, 3)], AttributeValueError, "must be letters and at most one"),
        ("ij,jk->ik", [(2, 3), (4, 5)], ShapeError, "sizes under 'j' differ, 3 and 4"),
        ("ii->i", [(2, 3)], ShapeError, "differ, 2 and 3"),
        ("", [], AttributeValueError, "no operands"),
    ],
)
def test_errors(spec, shapes, error, words) -> None:
    with Graph():
        tensors = [placeholder(shape) for shape in shapes]
        with pytest.raises(error, match=rf"(?s)einsum.*{words}.*at test_einsum.py:"):
            einsum(spec, *tensors)


@pytest.mark.slow
def test_subscripts_stand_first() -> None:
    with Graph():
        x = placeholder((2, 3))
        with pytest.raises(AttributeValueError, match="must be a string, got Tensor"):
            einsum(x, "ij->ji")
