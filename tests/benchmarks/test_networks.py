"""The benchmarks' networks are equal in graphc and in hand-written JAX."""

from __future__ import annotations

import pytest

from benchmarks.cpu import graphc_network, jax_network
from benchmarks.networks import Network, alexnet, data, mlp, resnet50
from tests.near import assert_near

SMALL = {
    "resnet": lambda: resnet50(32, 10, ((8, 1), (8, 2))),
    "alexnet": lambda: alexnet(63, 10),
    "mlp": mlp,
}


@pytest.mark.slow
@pytest.mark.one_jax
@pytest.mark.parametrize("name", SMALL)
def test_both_give_the_same_losses(name: str) -> None:
    network: Network = SMALL[name]()
    x, y = data(network, 4)
    forms = [jax_network(network, x, y, 1), graphc_network(network, x, y, 1, "O3")]
    for _ in range(2):
        theirs, ours = (form() for form in forms)
        assert_near(ours, theirs, rtol=1e-4)
