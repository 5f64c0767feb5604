"""Operators of each family against PyTorch: results in float32, gradients in float64."""

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

X = (2, 3, 6, 4)
INDEX = torch.tensor([[0, 2], [1, 0]])
SWAP = torch.tensor([[0, 1], [1, 0]])

# A function of tensors, and the shapes of its operands.
CASES: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]]]] = {
    "arithmetic": (lambda x, y: (x + 2 * y - x / (y.abs() + 1)) ** 2, [X, X]),
    "alpha": (lambda x, y: torch.add(x, y, alpha=0.5) + torch.sub(3, x), [X, X]),
    "floors": (lambda x: torch.floor(x) + x.round() + torch.trunc(x) + x % 0.7, [X]),
    "powers": (lambda x: x.abs().sqrt() + x.abs() ** 0.5 + x**3 + (x.abs() + 1) ** -1.5, [X]),
    "logs": (lambda x: torch.log1p(x.abs()) + torch.log(x.abs() + 1) + torch.exp(-x), [X]),
    "trigonometry": (lambda x: torch.sin(x) * torch.atan2(x, x + 3) + torch.tanh(x), [X]),
    "clamp": (lambda x: x.clamp(-0.5, 0.7) + x.clamp_min(0.1), [X]),
    "where": (lambda x, y: torch.where(x > y, x, y.exp()) + x.masked_fill(x < 0, 2.0), [X, X]),
    "relu family": (lambda x: F.relu(x) + F.leaky_relu(x) + F.elu(x) + F.selu(x), [X]),
    "silu family": (lambda x: F.silu(x) + F.gelu(x) + F.gelu(x, approximate="tanh"), [X]),
    "mish family": (lambda x: F.mish(x) + F.hardswish(x) + F.softplus(x) + F.celu(x), [X]),
    "shrink family": (lambda x: F.softshrink(x) + F.hardtanh(x) + F.hardsigmoid(x), [X]),
    "prelu, glu": (lambda x, w: F.glu(F.prelu(x, w), dim=2), [X, (3,)]),
    "softmax": (lambda x: F.softmax(x, 1) + F.log_softmax(x, -1), [X]),
    "views": (lambda x: x.view(2, -1).t().reshape(9, 4, 4).permute(2, 0, 1), [X]),
    "axes": (
        lambda x: x.transpose(1, 3).unsqueeze(2).squeeze(2).flatten(1, 2).unflatten(1, (4, 6)),
        [X],
    ),
    "slices": (lambda x: x[:, 1:, ::2, -1] + x.narrow(2, 1, 3)[:, 1:, :, 0], [X]),
    "cat, stack": (
        lambda x, y: torch.stack([torch.cat([x, y], 1), torch.cat([y, x], 1)], -1),
        [X, X],
    ),
    "split": (
        lambda x: sum(c.sum() * i for i, c in enumerate(x.split([1, 2], 1) + x.chunk(4, 2))),
        [X],
    ),
    "expand, repeat": (lambda x: x[:, :1].expand(-1, 5, -1, -1).repeat(1, 2, 1, 1), [X]),
    "pads": (
        lambda x: F.pad(x, (1, 2, 0, 1), value=3.0) + F.pad(x, (1, 2, 0, 1), mode="reflect"),
        [X],
    ),
    "roll, flip": (lambda x: x.roll((1, -2), (2, 3)).flip(1, 3), [X]),
    "tril, diagonal": (lambda x: x.tril(-1) + x.diagonal(0, 2, 3).sum(), [X]),
    "unfold": (lambda x: x.unfold(2, 3, 2), [X]),
    "pixel shuffle": (lambda x: F.pixel_unshuffle(F.pixel_shuffle(x, 2), 2), [(2, 8, 3, 4)]),
    "sums": (lambda x: x.sum((1, 3)) + x.mean((1, 3)) + x.sum() + x.prod(3).sum(1), [X]),
    "spread": (lambda x: x.var(1) + x.std((1,), unbiased=False) + x.norm(dim=1), [X]),
    "extremes": (lambda x: x.amax((1,)) + x.max(1).values + x.min(1)[0] + x.logsumexp(1), [X]),
    "cumulative": (lambda x: x.cumsum(2) + x.cumprod(1), [X]),
    "sorting": (lambda x: x.sort(2, descending=True)[0] + x.topk(6, 2)[0] + x.sort(2)[0], [X]),
    "products": (
        lambda x, y: torch.matmul(x, y) + torch.einsum("bcij,bcjk->bcik", x, y),
        [X, (2, 3, 4, 5)],
    ),
    "linear": (lambda x, w, b: F.linear(x, w, b), [X, (5, 4), (5,)]),
    "addmm": (lambda c, a, b: torch.addmm(c, a, b, beta=0.5, alpha=2), [(3, 5), (3, 4), (4, 5)]),
    "cdist, cosine": (
        lambda a, b: torch.cdist(a, b) + F.cosine_similarity(a, a, -1)[:, None],
        [(3, 4), (3, 4)],
    ),
    "conv2d": (lambda x, w, b: F.conv2d(x, w, b, stride=2, padding=1), [X, (5, 3, 3, 2), (5,)]),
    "grouped conv": (lambda x, w: F.conv2d(x, w, groups=3, dilation=(2, 1)), [X, (6, 1, 2, 2)]),
    "conv1d, conv3d": (
        lambda x, w, v, u: F.conv1d(x, w, padding="same").sum() + F.conv3d(v, u),
        [(2, 3, 7), (4, 3, 3), (1, 2, 4, 4, 4), (3, 2, 2, 2, 2)],
    ),
    "transposed conv": (
        lambda x, w: F.conv_transpose2d(x, w, stride=2, padding=1, output_padding=1, groups=3),
        [X, (3, 2, 3, 3)],
    ),
    "pools": (lambda x: F.max_pool2d(x, 3, 2, 1) + F.avg_pool2d(x, 3, 2, 1), [X]),
    "ceiling pools": (
        lambda x: F.max_pool2d(x, 2, 2, ceil_mode=True) + F.avg_pool2d(x, 2, ceil_mode=True),
        [(1, 2, 5, 7)],
    ),
    "adaptive pools": (
        lambda x: F.adaptive_avg_pool2d(x, (4, 3)) + F.adaptive_max_pool2d(x, (4, 3)),
        [X],
    ),
    "batch norm": (
        lambda x, m, v, w, b: F.batch_norm(x, m.detach(), v.detach().abs() + 1, w, b),
        [X, (3,), (3,), (3,), (3,)],
    ),
    "layer norm": (lambda x, w, b: F.layer_norm(x, (4,), w, b), [X, (4,), (4,)]),
    "group norm": (lambda x, w, b: F.group_norm(x, 2, w, b), [(2, 4, 3, 3), (4,), (4,)]),
    "instance norm": (lambda x: F.instance_norm(x), [X]),
    "embedding": (lambda w: F.embedding(INDEX, w), [(3, 4)]),
    "gather, scatter": (
        lambda x: x.gather(1, INDEX) + torch.zeros(2, 2, dtype=x.dtype).scatter(1, SWAP, x[:, :2]),
        [(2, 3)],
    ),
    "index": (lambda x: x[:, INDEX[0]] + x.index_select(1, INDEX[1]), [X]),
    "index put": (
        lambda x, v: torch.index_put(x, (INDEX[0],), v, accumulate=True),
        [(3, 4), (2, 4)],
    ),
    "scatter add": (
        lambda x, v: x.scatter_add(1, INDEX, v).index_add(0, INDEX[1], x),
        [(2, 3), (2, 2)],
    ),
    "attention": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        [(2, 2, 5, 4)] * 3,
    ),
    "attention with a mask": (
        lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, attn_mask=m, scale=0.3),
        [(2, 2, 5, 4)] * 3 + [(5, 5)],
    ),
    "nearest": (lambda x: F.interpolate(x, scale_factor=2.5, mode="nearest"), [X]),
    "bilinear": (lambda x: F.interpolate(x, size=(9, 3), mode="bilinear"), [X]),
    "corners": (lambda x: F.interpolate(x, size=(9, 3), mode="bilinear", align_corners=True), [X]),
    "bicubic": (lambda x: F.interpolate(x, size=(9, 3), mode="bicubic"), [X]),
    "antialias": (lambda x: F.interpolate(x, size=(3, 2), mode="bilinear", antialias=True), [X]),
    "cross entropy": (lambda x: F.cross_entropy(x, INDEX[0]) + F.mse_loss(x, x * 2), [(2, 3)]),
    "in place": (lambda x: x.clone().mul_(2).add_(1).relu_(), [X]),
}  # fmt: skip


class Function(torch.nn.Module):
    """A module that calls a function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *operands: Any) -> Any:
        return self.function(*operands)


def operands(shapes: list[tuple[int, ...]], dtype: Any) -> list[Any]:
    generator = torch.Generator().manual_seed(len(shapes))
    return [torch.randn(s, generator=generator, dtype=torch.float64).to(dtype) for s in shapes]


def results(layer: gc.ImportedModel, values: list[Any], *, gradients: bool = False) -> list[Any]:
    alone = layer.to_graph()
    with alone.graph:
        fetches = list(alone.outputs.values())
        if gradients:
            total = gc.reduce_sum(fetches[0] * weights_of(fetches[0].shape))
            fetches = gc.gradients(total, list(alone.inputs.values()), unconnected="zero")
    feeds = dict(zip(alone.inputs.values(), [v.detach().numpy() for v in values], strict=True))
    with gc.Session(alone.graph, unused_feeds="ignore") as session:
        return [np.asarray(v) for v in session.run(list(fetches), feeds)]


def weights_of(shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(3).normal(size=shape)


@pytest.fixture(autouse=True)
def without_warnings() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch.export
        yield


@pytest.mark.parametrize("name", CASES)
def test_an_operator(name: str) -> None:
    function, shapes = CASES[name]
    module = Function(function)
    values = operands(shapes, torch.float32)
    want = module(*values)
    (got,) = results(gc.from_torch(module, tuple(values)), values)
    assert (got.dtype, got.shape) == (want.numpy().dtype, tuple(want.shape))
    assert_near(got, want.numpy(), rtol=2e-5, atol=2e-5)

    wide = [v.requires_grad_() for v in operands(shapes, torch.float64)]
    layer = gc.from_torch(module, tuple(v.detach() for v in wide))
    found = results(layer, wide, gradients=True)
    result = module(*wide)
    total = (result * torch.from_numpy(np.asarray(weights_of(tuple(result.shape))))).sum()
    slopes = torch.autograd.grad(total, wide, allow_unused=True)
    for got, slope, value in zip(found, slopes, wide, strict=True):
        wanted = np.zeros(value.shape) if slope is None else slope.numpy()
        assert_near(got, wanted, rtol=1e-7, atol=1e-7)
