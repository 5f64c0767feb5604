"""Operators of each family compared with PyTorch: results in float32, gradients in float64."""

from __future__ import annotations

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
BAG, OFFSETS, ENDS = torch.tensor([1, 5, 0, 1, 3]), torch.tensor([0, 2, 2]), torch.tensor([0, 2, 5])
MASK = torch.tensor([[True, False, True], [False, True, True]])
SPOTS = torch.tensor([[0, 2, 1], [1, 0, 2]])


def _scattered_integers(x, s):
    ints, values = (x * 9).int(), (s * 99).int()
    means = ints.scatter_reduce(1, SPOTS, values, "mean")
    return means + ints.scatter_reduce(1, SPOTS, values, "amax", include_self=False)


def _sum(parts: Any) -> Any:
    """A weighted sum of all gradients."""
    return torch.cat([(i + 1) * part.flatten() for i, part in enumerate(parts) if part is not None])


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
    "weight norm": (
        lambda v, g: torch._weight_norm(v, g, 2) + torch._weight_norm(v, g.sum(2, True), 1),
        [(3, 1, 4), (1, 1, 4)],
    ),
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
    "ceiling pools of one element": (
        lambda x: torch.stack([
            pool(x, *how, ceil_mode=True)
            for pool in (F.max_pool2d, F.avg_pool2d)
            for how in ((1, 2), (2, 2), (3, 3), (2, 3), (3, 2, 1), (5, 5, 2), (4, 5, 2))
        ]),
        [(1, 2, 1, 1)],
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
    "select by a scalar": (lambda x: x.index_select(1, INDEX[0, 1]), [X]),
    "search of a number": (
        lambda x: x * torch.searchsorted(torch.tensor([1.0, 2.0, 4.0]), 2.5), [(2,)],
    ),
    "search in rows": (
        lambda x, v: v * torch.searchsorted(x.detach().sort(-1)[0], v.detach(), right=True),
        [(2, 3, 5), (2, 3, 4)],
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
    "grid sample": (
        lambda x, g: F.grid_sample(x, g.tanh(), align_corners=False), [(2, 3, 4, 5), (2, 3, 3, 2)]
    ),
    "grid sample bicubic": (
        lambda x, g: F.grid_sample(x, g * 1.5, "bicubic", "zeros", True),
        [(2, 2, 5, 5), (2, 3, 3, 2)],
    ),
    "grid sample reflection": (
        lambda x, g: F.grid_sample(x, g * 2, "bilinear", "reflection", False),
        [(1, 2, 4, 4), (1, 3, 3, 2)],
    ),
    "grid sample volume": (
        lambda x, g: F.grid_sample(x, g.tanh(), align_corners=True),
        [(1, 2, 3, 4, 3), (1, 2, 2, 2, 3)],
    ),
    "bag sum": (lambda w: F.embedding_bag(BAG, w, OFFSETS, mode="sum"), [(6, 3)]),
    "bag mean": (lambda w: F.embedding_bag(BAG, w, OFFSETS, mode="mean"), [(6, 3)]),
    "bag max": (lambda w: F.embedding_bag(BAG, w, OFFSETS, mode="max"), [(6, 3)]),
    "bag weighted": (
        lambda w, s: F.embedding_bag(BAG, w, OFFSETS, mode="sum", per_sample_weights=s),
        [(6, 3), (5,)],
    ),
    "bag padding": (
        lambda w: F.embedding_bag(BAG, w, OFFSETS, mode="mean", padding_idx=1), [(6, 3)]
    ),
    "bag last offset": (
        lambda w: F.embedding_bag(BAG, w, ENDS, mode="sum", include_last_offset=True), [(6, 3)]
    ),
    "pdist": (lambda x: F.pdist(x), [(5, 3)]),
    "pdist 1": (lambda x: F.pdist(x, 1.0), [(5, 3)]),
    "pdist 3": (lambda x: F.pdist(x, 3.0), [(5, 3)]),
    "fold": (lambda x: F.fold(x, (5, 6), (2, 3), stride=(1, 2), padding=(1, 0)), [(2, 12, 12)]),
    "fold dilated": (lambda x: F.fold(x, (6, 6), 2, dilation=2), [(3, 8, 16)]),
    "masked scatter": (lambda x, s: x.masked_scatter(MASK, s), [(2, 3), (7,)]),
    "fft": (
        lambda x: torch.fft.fft(x).real + torch.fft.rfft(x, norm="ortho").abs().sum(),
        [(3, 6)],
    ),
    "rfft irfft": (
        lambda x: torch.fft.irfft2(torch.fft.rfft2(x, norm="forward") * 2, s=x.shape[-2:]),
        [(2, 4, 6)],
    ),
    "irfft odd": (lambda x: torch.fft.irfft(torch.fft.rfft(x), n=5, norm="ortho"), [(2, 5)]),
    "stride": (lambda x: x * x.contiguous().stride(0), [(3, 4)]),
    "scatter max": (lambda x, s: x.scatter_reduce(1, SPOTS, s, "amax"), [(2, 4), (2, 3)]),
    "scatter amin alone": (
        lambda x, s: x.scatter_reduce(1, SPOTS, s, "amin", include_self=False), [(2, 4), (2, 3)],
    ),
    "scatter amax alone": (
        lambda x, s: x.scatter_reduce(0, SPOTS, s, "amax", include_self=False), [(3, 4), (2, 3)],
    ),
    "scatter sum alone": (
        lambda x, s: x.scatter_reduce(0, SPOTS, s, "sum", include_self=False), [(3, 4), (2, 3)],
    ),
    "scatter prod alone": (
        lambda x, s: x.scatter_reduce(0, SPOTS, s, "prod", include_self=False), [(3, 4), (2, 3)],
    ),
    "scatter mean": (lambda x, s: x.scatter_reduce(1, SPOTS, s, "mean"), [(2, 4), (2, 3)]),
    "scatter mean alone": (
        lambda x, s: x.scatter_reduce(1, SPOTS, s, "mean", include_self=False), [(2, 4), (2, 3)],
    ),
    "scatter of integers": (lambda x, s: x + s.sum() + _scattered_integers(x, s).to(x.dtype),
                            [(2, 4), (2, 3)]),
    "scatter prod": (lambda x, s: x.scatter_reduce(0, SPOTS, s, "prod"), [(3, 4), (2, 3)]),
    "backward conv": (
        lambda dy, x, w: _sum(torch.ops.aten.convolution_backward(
            dy, x, w, [4], [2, 1], [1, 0], [1, 1], False, [0, 0], 1, [True, True, True])),
        [(2, 4, 3, 3), (2, 2, 5, 5), (4, 2, 3, 3)],
    ),
    "backward conv transposed": (
        lambda dy, x, w: _sum(torch.ops.aten.convolution_backward(
            dy, x, w, [2], [2, 2], [0, 0], [1, 1], True, [0, 0], 1, [True, False, True])),
        [(1, 2, 7, 7), (1, 4, 3, 3), (4, 2, 3, 3)],
    ),
    "backward avg pool": (
        lambda dy, x: torch.ops.aten.avg_pool2d_backward(
            dy, x, [2, 2], [2, 2], [1, 1], False, True, None),
        [(1, 2, 3, 3), (1, 2, 4, 4)],
    ),
    "backward max pool": (
        lambda dy, x: torch.ops.aten.max_pool2d_with_indices_backward(
            dy, x, [2, 2], [2, 2], [0, 0], [1, 1], False,
            F.max_pool2d(x, 2, return_indices=True)[1]),
        [(1, 2, 2, 2), (1, 2, 4, 4)],
    ),
    "backward adaptive pool": (
        lambda dy, x: torch.ops.aten._adaptive_avg_pool2d_backward(dy, x),
        [(1, 2, 2, 3), (1, 2, 5, 7)],
    ),
    "backward layer norm": (
        lambda dy, x, w, b: _sum(torch.ops.aten.native_layer_norm_backward(
            dy, x, [4], *torch.ops.aten.native_layer_norm(x, [4], w, b, 1e-5)[1:], w, b,
            [True, True, True])),
        [(2, 3, 4), (2, 3, 4), (4,), (4,)],
    ),
    "backward embedding": (
        lambda dy: torch.ops.aten.embedding_dense_backward(dy, BAG, 6, 1, True), [(5, 3)]
    ),
    "cross entropy": (lambda x: F.cross_entropy(x, INDEX[0]) + F.mse_loss(x, x * 2), [(2, 3)]),
    "index reduce": (lambda x, v: x.index_reduce(1, SPOTS[0], v, "amax"), [(2, 4), (2, 3)]),
    "index reduce alone": (
        lambda x, v: x.index_reduce(0, SPOTS[0], v, "mean", include_self=False), [(4, 2), (3, 2)],
    ),
    "put": (lambda x, v: x.put(INDEX[0], v[0]) + x.put(SWAP, v, accumulate=True),
            [(2, 3), (2, 2)]),
    "mode": (lambda x: torch.mode(x.round(), 1)[0] + torch.mode(x.round(), 1)[1], [(4, 9)]),
    "strided": (
        lambda x, v: torch.as_strided_copy(x.t(), (2, 2), (1, 2), 1)
        # PyTorch's gradient of this one is wrong.
        + torch.as_strided_scatter(x.detach(), v.detach(), (2, 2), (1, 3), 1)[:2, 1:3] * v.sum(),
        [(3, 4), (2, 2)],
    ),
    "places of truth": (
        lambda x: x.sum() + torch.nonzero_static(x > 0, size=9).to(x.dtype), [(2, 3)],
    ),
    "scalars along an axis": (
        lambda x: x.cummax(0)[0] + x.topk(1)[0] + x.index_select(0, SPOTS[0, :1])
        + x.index_fill(0, SPOTS[0, :1], 2.0) + x.index_copy(0, SPOTS[0, :1], x * 3)
        + x.index_add(0, SPOTS[0, :1], x * 2) + x.log_softmax(0) + x.softmax(0)
        + x.index_fill(0, INDEX[0, :0], 2.0) + x.index_copy(0, INDEX[0, :0], x.new_zeros(0)),
        [()],
    ),
    "einsum that sums": (lambda x: torch.einsum("i...->i", x), [X]),
    "tensordot of a stretched axis": (
        lambda x, y: torch.tensordot(x, y, ([0, 1], [1, 0]))
        + torch.tensordot(y, x, ([1], [0])).sum(),
        [(1, 3, 2), (3, 4)],
    ),
    "masked scatter that broadcasts": (lambda x, s: x.masked_scatter(MASK, s), [(3,), (7,)]),
    "roll of nothing": (lambda x: x[:, :0].roll(1, 1).sum(1) + x.sum(1), [(2, 3)]),
    "lu": (
        lambda x: torch.cat(torch.lu_unpack(*torch.linalg.lu_factor(x))[1:]), [(3, 3)],
    ),
    "special": (
        lambda x: torch.special.i0e(x) + torch.special.i1(x) + torch.special.i1e(x)
        + torch.special.log_ndtr(x) + torch.special.ndtri(x.sigmoid())
        + torch.special.entr(x.abs()) + torch.special.xlog1py(x, x.abs()),
        [(3, 4)],
    ),
    "zeta, divisors": (
        lambda x: torch.special.zeta(3.0, x.detach().abs() + 1) + x
        + torch.gcd((x * 20).int(), (x * 8).int()) + torch.lcm((x * 5).int(), (x * 3).int()),
        [(3, 4)],
    ),
    "histogram": (
        lambda x, w: torch.histogram(x.detach(), 5, range=(-1.0, 1.0), weight=w.detach())[0]
        + torch.histogram(x.detach().round(), 5, range=(0.0, 0.0))[0]
        + torch.histogram(x.detach(), torch.linspace(-1, 2, 6, dtype=x.dtype), density=True)[0]
        + x.sum() * w.sum(),
        [(4, 5), (4, 5)],
    ),
    "windows": (
        lambda x: x * torch.hamming_window(5, dtype=x.dtype)
        + torch.kaiser_window(5, periodic=False, beta=8.0, dtype=x.dtype)
        + torch.blackman_window(5, dtype=x.dtype) * torch.bartlett_window(5, dtype=x.dtype)
        + torch.hamming_window(5, True, 0.6, 0.4, dtype=x.dtype),
        [(2, 5)],
    ),
    "extremes so far of bools": (
        lambda x: x * torch.cummax(x > 0, 1)[0] + torch.cummin(x > 0, 0)[1] + (x > 0).cummax(0)[1],
        [(4, 5)],
    ),
    "padding of other dtypes": (
        lambda x: F.pad(x, (1, 1), value=2.7)
        * F.pad((x.abs() * 5).to(torch.uint8), (1, 1), value=2.7)
        + F.pad(x > 0, (1, 1), value=2.7),
        [(2, 3)],
    ),
    "spread of complex numbers": (
        lambda x: sum((*torch.var_mean(torch.complex(x, x * x), 1)[:1],
                       torch.std_mean(torch.complex(x, x * 2), 1)[0],
                       torch.complex(x, x + 1).var(1), torch.complex(x, x).std(1))),
        [(3, 4)],
    ),
    "no differences": (lambda x: torch.diff(x, n=0, dim=0, prepend=x, append=x), [(2, 3)]),
    "a bool as a number": (lambda x: x + (x.sum() > 0).item() + (x.sum() < 0).item(), [(2, 3)]),
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


def check(function: Callable[..., Any], shapes: list[tuple[int, ...]]) -> None:
    """Compares the result in float32 and the gradients in float64 with PyTorch's."""
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


@pytest.mark.parametrize("name", CASES)
def test_an_operator(name: str) -> None:
    check(*CASES[name])
    assert CASES[name][1]


def test_each_core_operator_has_a_rule() -> None:
    """Core ATen is what remains after all decompositions of `torch.export`."""
    from graphc.importers.torch.table import RULES

    packets = [getattr(torch.ops.aten, name) for name in dir(torch.ops.aten)]
    overloads = [
        getattr(packet, name)
        for packet in packets
        if hasattr(packet, "overloads")
        for name in packet.overloads()
    ]
    core = {str(each) for each in overloads if torch.Tag.core in each.tags}
    assert len(core) > 180 and core - set(RULES) == set()
