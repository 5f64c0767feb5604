"""Branches and loops of PyTorch's modules."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

import graphc as gc  # noqa: E402
from tests.near import assert_near  # noqa: E402


def test_branches() -> None:
    class Branch(nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x * 2, (x,))

    for sign in (1, -1):
        x = torch.ones(3) * sign
        alone = gc.from_torch(Branch(), (x,)).to_graph()
        with gc.Session(alone.graph) as session:
            got = session.run(alone.outputs["output_0"], {alone.inputs["x"]: x.numpy()})
        np.testing.assert_array_equal(got, Branch()(x).numpy())


def test_a_loop_until_values_agree() -> None:
    """The loop's condition takes a tensor from outside, and its graph returns no tuple."""

    class Settled(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            scale = x.mean()

            def differ(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
                return (a - b).abs().gt(0.01).any()

            def step(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
                return b.clone(), b * 0.5 + scale

            return torch.while_loop(differ, step, (x, x + 1))[1]

    x = torch.rand(5)
    alone = gc.from_torch(Settled(), (x,)).to_graph()
    (feed,), (fetch,) = alone.inputs.values(), alone.outputs.values()
    with gc.Session(alone.graph) as session:
        assert_near(session.run(fetch, {feed: x.numpy()}), Settled()(x).numpy(), rtol=1e-6)
