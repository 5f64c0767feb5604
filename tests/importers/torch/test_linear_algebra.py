"""Factorizations of PyTorch, by results that do not depend on signs, and what came with them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402

import graphc as gc  # noqa: E402
from graphc.errors import ModelImportError  # noqa: E402
from tests.importers.torch.test_operators import (  # noqa: E402
    Function,
    check,
    operands,
    results,
)
from tests.near import assert_near  # noqa: E402

A, B, ROWS = (2, 3, 3), (2, 3, 2), (4, 6)
CLASSES = torch.tensor([[1, 0, -100], [2, 2, 1]])
L = torch.linalg
EYE = 4 * torch.eye(3)


def _definite(a: Any) -> Any:
    return a @ a.mT + EYE.to(a.dtype)


def _rebuilt(a: Any) -> Any:
    u, s, vh = L.svd(a, full_matrices=False)
    return u @ torch.diag_embed(s**2) @ vh


def _rotated(a: Any) -> Any:
    values, vectors = L.eigh(a + a.mT, UPLO="U")
    return vectors @ torch.diag_embed(torch.exp(values)) @ vectors.mT


def _by_lu(a: Any, b: Any) -> Any:
    factors, pivots = L.lu_factor(a, pivot=True)
    return L.lu_solve(factors, pivots, b)


def _by_lu_of_each(a: Any, b: Any) -> Any:
    """Batches of matrices, from both sides, and of the adjoint."""
    factors, pivots = L.lu_factor(a)
    left = [L.lu_solve(factors, pivots, b, adjoint=adjoint) for adjoint in (False, True)]
    right = [
        L.lu_solve(factors, pivots, b.mT, left=False, adjoint=adjoint) for adjoint in (False, True)
    ]
    return sum(left) + torch.tanh(sum(right)).mT


def _by_qr(a: Any) -> Any:
    q, r = L.qr(a)
    return q @ torch.tanh(r.abs().sum((-2, -1), keepdim=True) * (q.mT @ a))


def _entropy(x: Any, y: Any, w: Any) -> Any:
    """All forms of smoothed labels, and of probabilities."""
    weights, total = w.detach().abs() + 0.5, 0.0
    for kind in ("mean", "sum", "none"):
        for given in (None, weights):
            options = {"weight": given, "reduction": kind}
            total = total + F.cross_entropy(x, CLASSES, label_smoothing=0.2, **options).mean()
            for smoothing in (0.0, 0.3):
                shares = F.softmax(y, 1)
                loss = F.cross_entropy(x, shares, label_smoothing=smoothing, **options)
                total = total + loss.mean()
    return total


CASES: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]]]] = {
    "LU, batches": (_by_lu_of_each, [(2, 3, 3), (2, 3, 2)]),
    "svd": (_rebuilt, [(2, 4, 3)]),
    "singular values": (lambda a: L.svdvals(a) + L.matrix_norm(a, "nuc")[:, None], [A]),
    "eigh": (_rotated, [A]),
    "eigenvalues": (lambda a: L.eigvalsh(a) + L.eigvalsh(a, UPLO="U"), [A]),
    "norms along other axes": (
        lambda a: L.matrix_norm(a, dim=(0, 1))
        + L.matrix_norm(a, 2, dim=(2, 0), keepdim=True)[0, :, 0], [(3, 3, 3)],
    ),
    "qr": (_by_qr, [(2, 4, 3)]),
    "determinants": (lambda a: L.det(a) + L.slogdet(a)[1] + torch.logdet(_definite(a)), [A]),
    "inverse": (lambda a: L.inv(_definite(a)) + L.inv_ex(_definite(a))[0], [A]),
    "pinv": (lambda a: L.pinv(a) + L.pinv(a, rtol=1e-3) + L.pinv(a, atol=0.01), [(2, 4, 3)]),
    "solve": (lambda a, b: L.solve(_definite(a), b), [A, B]),
    "solve vectors": (lambda a, b: L.solve(_definite(a), b), [A, (2, 3)]),
    "solve from the right": (lambda a, b: L.solve(_definite(a), b.mT, left=False), [A, B]),
    "lu": (_by_lu, [(3, 3), (3, 2)]),
    "triangular": (
        lambda a, b: L.solve_triangular(_definite(a), b, upper=True)
        + L.solve_triangular(_definite(a), b.mT, upper=False, left=False).mT
        + torch.triangular_solve(b, _definite(a), upper=False, transpose=True)[0], [A, B],
    ),
    "cholesky": (
        lambda a: L.cholesky(_definite(a)) + L.cholesky(_definite(a), upper=True).mT, [A],
    ),
    "cholesky solve": (
        lambda a, b: torch.cholesky_solve(b, L.cholesky(_definite(a)))
        + torch.cholesky_solve(b, L.cholesky(_definite(a), upper=True), upper=True), [A, B],
    ),
    "cholesky inverse": (lambda a: torch.cholesky_inverse(L.cholesky(_definite(a[0]))), [A]),
    "exponential": (lambda a: L.matrix_exp(a * 0.3), [A]),
    "cross entropy": (_entropy, [(2, 3, 3), (2, 3, 3), (3,)]),
    "sums of windows": (
        lambda x: F.avg_pool2d(x, 2, 2, 1, count_include_pad=False, divisor_override=3),
        [(2, 3, 4, 6)],
    ),
    "corners, antialias": (
        lambda x: F.interpolate(
            x, size=(3, 2), mode="bilinear", antialias=True, align_corners=True
        )
        + F.interpolate(x, size=(3, 2), mode="bicubic", antialias=True, align_corners=True),
        [(2, 3, 6, 4)],
    ),
    "bag without the last row": (
        lambda w: F.embedding_bag(
            torch.tensor([1, 5, 0, 5]), w, torch.tensor([0, 2]), mode="sum", padding_idx=-1
        ),
        [(6, 3)],
    ),
    "layer norm of a vector": (lambda x, w, b: F.layer_norm(x, (4,), w, b), [(4,)] * 3),
    "places": (
        lambda x: x.median() + x.kthvalue(2, 1)[0] + x.nanmedian() + x.median(0)[0].sum(), [ROWS],
    ),
    "special": (
        lambda x, y: torch.special.polygamma(2, x.abs() + 1) + torch.ldexp(x, y.sign()), [ROWS] * 2,
    ),
    "distance": (lambda x, y: torch.dist(x, y, 3), [ROWS] * 2),
    "complex": (lambda x, y: torch.complex(x, y).abs() + torch.frexp(x)[0], [ROWS] * 2),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_function(name: str) -> None:
    check(*CASES[name])
    assert CASES[name][1]


FILED: dict[str, Callable[..., Any]] = {
    "decompositions": lambda a: L.svd(a)[1] + L.svdvals(a) + torch.svd(a)[1] + L.eigvalsh(a + a.mT),
    "eigh": lambda a: L.eigh(_definite(a))[0],
    "norms": lambda a: L.matrix_norm(a) + L.matrix_norm(a, "nuc") + L.matrix_norm(a, 1),
    "powers": lambda a: (
        L.matrix_power(a, 3) + L.multi_dot([a[0], a[1], a[0]]) + L.pinv(a, rtol=0.1)
    ),
    "solvers": lambda a: L.solve(_definite(a), a) + torch.logdet(_definite(a))[:, None, None],
    "vectors": lambda a: torch.svd(a)[0].abs() + torch.svd(a)[2].abs(),
}


@pytest.mark.parametrize("name", FILED)
def test_a_file_without_decompositions(name: str, tmp_path: Path) -> None:
    module, (a,) = Function(FILED[name]), operands([A], torch.float32)
    path = tmp_path / "model.pt2"
    torch.export.save(torch.export.export(module, (a,)), path)
    (got,) = results(gc.from_torch(path), [a])
    assert_near(got, module(a).numpy(), rtol=1e-4, atol=1e-5)


def test_without_pivots() -> None:
    for function in (L.lu, L.lu_factor):
        module = Function(lambda a, function=function: function(a, pivot=False)[0])
        with pytest.raises(ModelImportError, match="without pivots is not supported"):
            gc.from_torch(module, (torch.eye(3),))


def test_not_a_number_in_medians() -> None:
    values = torch.tensor([[1.0, float("nan"), 0.0, 3.0, 2.0], [4.0, 1.0, 3.0, 2.0, 0.0]])
    module = Function(lambda x: (x.median(1)[0], x.nanmedian(1)[0], x.median(), x.nanmedian()))
    got = results(gc.from_torch(module, (values,)), [values])
    for mine, theirs in zip(got, module(values), strict=True):
        assert_near(mine, theirs.numpy(), rtol=0)


NAN = float("nan")
COMPLEX = torch.tensor([[1j, 2.0], [0.0, 1 - 1j]])
# What few programs have: a function and its operand.
RARE: dict[str, tuple[Callable[..., Any], Any]] = {
    "pinv, atol 0": (lambda a: L.pinv(a, atol=torch.tensor(0.0)), torch.ones(3, 3)),
    "pinv, atol of each": (
        lambda a: L.pinv(a, atol=torch.tensor([0.0, 0.5])), torch.ones(2, 3, 3) * 0.1,
    ),
    "pinv of nothing": (L.pinv, torch.zeros(0, 3)),
    "norm of complex": (L.matrix_norm, COMPLEX),
    "dist of complex": (lambda a: torch.dist(a[0], a[1]), COMPLEX),
    "cholesky of a triangle": (L.cholesky, torch.tensor([[4.0, 0.0], [2.0, 5.0]])),
    "cholesky of the other": (
        lambda a: L.cholesky(a, upper=True), torch.tensor([[4.0, 2.0], [0.0, 5.0]]),
    ),
    "median of bfloat16": (
        lambda x: x.bfloat16().median(1)[0].float(), torch.tensor([[1.0, NAN, 0.0], [3, 1, 2]]),
    ),
    "r alone": (lambda a: L.qr(a, mode="r")[0], torch.eye(3)),
    "svd without vectors": (lambda a: torch.svd(a, compute_uv=False)[2], torch.ones(3, 2)),
    "labels of bfloat16": (
        lambda x: F.cross_entropy(x.bfloat16(), F.softmax(x, 1).bfloat16()).float(),
        torch.eye(3),
    ),
    "median of a scalar": (lambda x: x.median(0)[0], torch.tensor(2.0)),
    "nanmedian of a scalar": (lambda x: x.nanmedian(0, keepdim=True)[0], torch.tensor(2.0)),
    "value of a scalar": (lambda x: x.kthvalue(1)[1], torch.tensor(2.0)),
}  # fmt: skip


@pytest.mark.parametrize("name", RARE)
def test_a_rare_call(name: str) -> None:
    function, value = RARE[name]
    want = function(value).numpy()
    (got,) = results(gc.from_torch(Function(function), (value,)), [value])
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    assert_near(got, want, rtol=1e-2 if "bfloat16" in name else 1e-5, atol=1e-6)


def test_named_tuples_of_pytorch() -> None:
    module = Function(lambda x: OrderedDict(largest=torch.max(x, 1), sorted=[x.sort(1)]))
    (x,) = operands([ROWS], torch.float32)
    layer = gc.from_torch(module, (x,))
    with gc.Graph() as graph:
        fed = gc.placeholder(ROWS, name="x")
        found = layer(fed)
    assert found["largest"]._fields == ("values", "indices")
    largest, order = gc.Session(graph).run([found["largest"], found["sorted"][0]], {fed: x.numpy()})
    assert_near(largest.values, x.max(1).values.numpy(), rtol=0)
    assert np.array_equal(order.indices, x.sort(1).indices.numpy())


def test_without_gradients() -> None:
    places = torch.tensor([[0, 1], [2, 0]])

    def function(x: Any) -> Any:
        changed = torch.scatter(x, 1, places, 2.0, reduce="multiply")
        return L.qr(x, mode="r")[1].abs(), torch.scatter(changed, 0, places, x, reduce="add")

    module, (x,) = Function(function), operands([ROWS], torch.float32)
    got = results(gc.from_torch(module, (x,)), [x])
    for mine, theirs in zip(got, module(x), strict=True):
        assert_near(mine, theirs.numpy(), rtol=2e-5, atol=2e-5)


def test_draws_around_tensors() -> None:
    module = Function(lambda m, s: torch.normal(m, s) + torch.normal(m, 2.0) * 0)
    mean, std = torch.full((4000,), 3.0), torch.full((4000,), 0.5)
    (drawn,) = results(gc.from_torch(module, (mean, std)), [mean, std])
    assert abs(drawn.mean() - 3) < 0.05 and abs(drawn.std() - 0.5) < 0.03
