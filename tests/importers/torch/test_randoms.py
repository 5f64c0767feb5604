"""Draws of PyTorch's distributions: their moments are those of theory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402

import graphc as gc  # noqa: E402
from tests.importers.torch.test_operators import Function  # noqa: E402

COUNT = 40_000
MIDDLE = np.pi**2 / 6  # the variance of Gumbel's distribution

# A function of COUNT numbers, their value, and the mean and the variance of the result.
DRAWS: dict[str, tuple[Callable[..., Any], float, float, float]] = {
    "exponential": (lambda x: torch.empty_like(x).exponential_(2.0), 0.0, 0.5, 0.25),
    "geometric": (lambda x: torch.empty_like(x).geometric_(0.25), 0.0, 4.0, 12.0),
    "log normal": (
        lambda x: torch.empty_like(x).log_normal_(0.5, 0.25), 0.0,
        np.exp(0.5 + 1 / 32), (np.exp(1 / 16) - 1) * np.exp(1 + 1 / 16),
    ),
    "cauchy": (
        lambda x: torch.empty_like(x).cauchy_(3.0, 2.0).sub(3).abs().gt(2).to(x.dtype), 0.0,
        0.5, 0.25,
    ),
    "gamma": (lambda x: torch._standard_gamma(x), 3.0, 3.0, 3.0),
    "poisson": (lambda x: torch.poisson(x), 3.0, 3.0, 3.0),
    "binomial": (lambda x: torch.binomial(x, torch.full_like(x, 0.25)), 8.0, 2.0, 1.5),
    "gumbel": (
        lambda x: -torch.empty_like(x).exponential_().log(), 0.0, np.euler_gamma, MIDDLE,
    ),
    "alpha dropout": (lambda x: F.alpha_dropout(torch.randn_like(x), 0.3, True), 0.0, 0.0, 1.0),
    "rrelu": (lambda x: F.rrelu(x, 0.1, 0.4, training=True), -2.0, -0.5, 0.03),
    "multinomial": (
        lambda x: torch.multinomial(torch.tensor([1.0, 0.0, 2.0, 1.0]), x.shape[0], True) * 1.0,
        0.0, 1.75, 18 / 16 + 1 / 16,
    ),
}  # fmt: skip


def drawn(function: Callable[..., Any], x: Any) -> np.ndarray[Any, Any]:
    layer = gc.from_torch(Function(function), (x,))
    alone = layer.to_graph()
    (fetch,) = alone.outputs.values()
    feeds = {given: x.numpy() for given in alone.inputs.values()}
    with gc.Session(alone.graph, unused_feeds="ignore") as session:
        first, second = (np.asarray(session.run(fetch, feeds)) for _ in range(2))
    assert not np.array_equal(first, second), "every run draws anew"
    return second


@pytest.mark.parametrize("name", DRAWS)
def test_moments(name: str) -> None:
    function, value, mean, variance = DRAWS[name]
    found = drawn(function, torch.full((COUNT,), value)).astype(np.float64)
    assert found.shape == (COUNT,)
    assert abs(found.mean() - mean) < 5 * np.sqrt(variance / COUNT)
    assert found.var() == pytest.approx(variance, rel=0.1)


def test_multinomial_without_replacement() -> None:
    weights = torch.tensor([1.0, 2.0, 3.0, 0.0]).expand(4000, 4).contiguous()
    found = drawn(lambda w: torch.multinomial(w, 2), weights)
    assert found.shape == (4000, 2) and found.dtype == np.int64
    assert np.all(found[:, 0] != found[:, 1]) and found.max() == 2
    shares = np.bincount(found[:, 0], minlength=3) / 4000
    assert np.abs(shares - np.array([1, 2, 3]) / 6).max() < 0.04


@pytest.mark.parametrize(
    ("rate", "training", "times"), [(1.0, True, 0), (0.5, False, 1), (0.0, True, 1)]
)
def test_alpha_dropout_of_everything_and_of_nothing(
    rate: float, training: bool, times: int
) -> None:
    x = torch.randn(7)
    layer = gc.from_torch(Function(lambda x: F.alpha_dropout(x, rate, training)), (x,))
    alone = layer.to_graph()
    (given,), (fetch,) = alone.inputs.values(), alone.outputs.values()
    session = gc.Session(alone.graph, unused_feeds="ignore")
    assert np.asarray(session.run(fetch, {given: x.numpy()})).tolist() == (x * times).tolist()


@pytest.mark.parametrize("order", [1.0, 2.0, float("inf")])
def test_an_embedding_with_a_largest_norm(order: float) -> None:
    """It changes its rows when they are used, and trains."""
    module = torch.nn.Embedding(5, 3, max_norm=1.0, norm_type=order)
    with torch.no_grad():
        module.weight.mul_(3)
    places = torch.tensor([[0, 2], [2, 4]])
    layer = gc.from_torch(module, (places,), trainable=True)
    result = module(places)
    (result**2).sum().backward()
    with gc.Graph() as graph:
        given = gc.placeholder((2, 2), "int64")
        rows = layer(given)
        (weight,) = graph.variables.values()
        slope = gc.gradients(gc.reduce_sum(rows**2), [weight])[0]
    session = gc.Session(graph)
    got, gradient = map(np.asarray, session.run([rows, slope], {given: places.numpy()}))
    assert np.abs(session.get(weight) - module.weight.detach().numpy()).max() < 1e-5
    assert np.abs(got - result.detach().numpy()).max() < 1e-5
    assert np.abs(gradient - module.weight.grad.numpy()).max() < 1e-5
    assert np.linalg.norm(got, order, axis=-1).max() < 1.0001
