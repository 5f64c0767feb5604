"""Results and gradients at the points where formulas have none: ties, zeros, rows without a key."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402

import graphc as gc  # noqa: E402
from tests.near import assert_near  # noqa: E402


def wide(*values: float) -> Any:
    return torch.tensor(values, dtype=torch.float64)


LINE = wide(-3, -1, -0.5, 0, 0, 0.5, 1, 1, 3, 6)
TIES = wide(1, 1, 0, 0, 2, 2, -1, -1).reshape(2, 4)
SHARES = wide(0.5, 0, 1, 1e-60, 1 - 1e-9, 0.3)
HIDING = torch.tensor([[False, False], [True, False]])
LOWEST = wide(float("-inf"), float("-inf"), 0, 1).reshape(2, 2)
FIRST = torch.tensor([[1.0], [0.0]], dtype=torch.float64)
PLACES = torch.tensor([[0, 1, 1], [1, 0, 1]])


def attention(mask: Any) -> Callable[..., Any]:
    def function(x: Any) -> Any:
        x = x.reshape(1, 1, 2, 4)
        return F.scaled_dot_product_attention(x, x, x, attn_mask=mask)

    return function


CASES: dict[str, tuple[Callable[..., Any], Any]] = {
    "attention, a query that sees no key": (attention(HIDING), TIES),
    "attention, a mask of infinities": (attention(LOWEST), TIES),
    "a grid of an affine map": (
        lambda x: F.affine_grid(x.reshape(1, 2, 4)[:, :, :3], (1, 1, 3, 4), align_corners=False),
        TIES,
    ),
    "strides of a transposed tensor": (lambda x: x.T.as_strided((2, 3), (4, 1), 1), TIES),
    "searchsorted, side": (lambda x: x + torch.searchsorted(wide(0, 1, 2), x, side="right"), LINE),
    "searchsorted, sorter": (
        lambda x: x + torch.searchsorted(wide(2, 0, 1), x, sorter=torch.tensor([1, 2, 0])),
        LINE,
    ),
    "embedding, padding": (lambda x: F.embedding(PLACES, x, padding_idx=1), TIES),
    "embedding, by frequency": (
        lambda x: F.embedding(PLACES, x, padding_idx=0, scale_grad_by_freq=True),
        TIES,
    ),
    "clamp": (lambda x: x.clamp(-1, 1) + x.clamp(min=1) + x.clamp(max=-1), LINE),
    "clamp of NaN": (lambda x: (x / x).clamp(0, 2), LINE),
    "clamp by tensors": (
        lambda x: torch.clamp(x, -torch.ones_like(x), torch.ones_like(x)),
        LINE,
    ),
    "abs": (lambda x: x.abs() + 1, LINE),
    "l1": (lambda x: 3 + F.l1_loss(x, torch.ones_like(x), reduction="none"), TIES),
    "max along an axis": (lambda x: x.max(1).values + x.min(1, keepdim=True).values, TIES),
    "adaptive maxima": (lambda x: F.adaptive_max_pool2d(x.reshape(1, 2, 4), (2, 3)), TIES),
    "places of adaptive maxima": (
        lambda x: sum(F.adaptive_max_pool2d(x.reshape(1, 4, 2), (3, 1), return_indices=True)),
        TIES,
    ),
    "cumulative": (lambda x: x.cummax(1).values + x.cummin(1).values * torch.arange(4), TIES),
    "norms": (lambda x: 1 + x.norm(1, dim=1) + torch.linalg.vector_norm(x, 3, dim=1), TIES * FIRST),
    "norm of zeros": (lambda x: 1 + (x * 0).norm() + x.norm(), TIES),
    "std of equals": (lambda x: (x * FIRST + 1).std(1), TIES),
    "distances": (lambda x: torch.cdist(x, x) + torch.cdist(x, x, p=3.0), TIES),
    "distances of pairs": (lambda x: 1 + F.pdist(x.reshape(4, 2)), TIES * FIRST),
    "cosines": (lambda x: 1 + F.cosine_similarity(x * FIRST, x + 1), TIES),
    "largest distances": (lambda x: torch.cdist(x, x * 2 + wide(0, 0.5, 1, 3), p=torch.inf), TIES),
    "binary cross-entropy": (
        lambda x: F.binary_cross_entropy(x, wide(1, 1, 0, 1, 0, 0.4), reduction="none"),
        SHARES,
    ),
}


_NEWER = ("clamp", "clamp by tensors")


@pytest.mark.parametrize("name", CASES)
def test_an_edge(name: str) -> None:
    if name in _NEWER and torch.__version__ < "2.14":
        pytest.skip("the gradient of clamp at its bounds is that of PyTorch 2.14")
    function, x = CASES[name]

    class Module(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return function(x)

    given = x.clone().requires_grad_()
    want = function(given)
    want.square().sum().backward()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch.export
        alone = gc.from_torch(Module(), (x,)).to_graph()
    (fed,), (got,) = alone.inputs.values(), alone.outputs.values()
    with alone.graph:
        (slope,) = gc.gradients(gc.reduce_sum(gc.square(got)), [fed])
    with gc.Session(alone.graph) as session:
        found, slope = session.run([got, slope], {fed: x.numpy()})
    assert_near(np.asarray(found), want.detach().numpy(), rtol=1e-12, atol=1e-12)
    assert_near(np.asarray(slope), given.grad.numpy(), rtol=1e-7, atol=1e-12)
