"""Programs that PyTorch saves here: each operator, and changes of tensors and their views."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import graphc as gc  # noqa: E402
from graphc.errors import ModelFileError, ModelImportError  # noqa: E402
from graphc.importers.torch.archive import views  # noqa: E402
from graphc.importers.torch.table import RULES  # noqa: E402
from tests.importers.torch.test_operators import CASES, Function, operands  # noqa: E402
from tests.near import assert_near  # noqa: E402


def check(function: Callable[..., Any], values: list[Any], path: Path) -> None:
    """Saves a program of a function, reads and runs it, and compares all results."""
    module = Function(function)
    torch.export.save(torch.export.export(module, tuple(v.clone() for v in values)), path)
    want = torch.utils._pytree.tree_flatten(module(*[v.clone() for v in values]))[0]
    alone = gc.from_torch(path).to_graph()
    feeds = dict(zip(alone.inputs.values(), [v.numpy() for v in values], strict=True))
    with gc.Session(alone.graph, unused_feeds="ignore") as session:
        found = session.run(list(alone.outputs.values()), feeds)
    assert len(found) == len(want)
    for got, wanted in zip(found, want, strict=True):
        assert (np.asarray(got).dtype, got.shape) == (wanted.numpy().dtype, tuple(wanted.shape))
        assert_near(np.asarray(got), wanted.numpy(), rtol=2e-5, atol=2e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_an_operator(name: str, tmp_path: Path) -> None:
    function, shapes = CASES[name]
    check(function, operands(shapes, torch.float32), tmp_path / "m.pt2")


def test_operators_that_are_made_of_others(tmp_path: Path) -> None:
    def function(x: Any, y: Any) -> Any:
        fft = torch.fft
        return (
            *(torch.absolute(x), torch.arctan2(x, y), torch.clip(x, -0.5, 0.5), torch.fix(x * 3)),
            *(torch.greater(x, y), torch.multiply(x, 3), torch.true_divide(x, y), x.negative()),
            *(torch.special.erf(x), torch.special.expit(x), torch.special.log_softmax(x, 1)),
            *torch.broadcast_tensors(x[:, :1], y),
            *torch.var_mean(x, dim=1),
            *torch.std_mean(x, dim=(0, 1), keepdim=True, correction=0),
            *(fft.fft(x).abs(), fft.rfftn(x, norm="ortho").abs(), fft.ifft2(x).real),
            *(fft.irfft(fft.rfft(x), n=5), fft.fftshift(x, dim=1)),
            *(torch.atleast_2d(x[0]), torch.atleast_3d(x), torch.hstack([x, y]), x.ravel()),
            *(torch.vstack([x[0], y]), torch.dstack([x, y]), torch.column_stack([x[:, 0], y])),
            *(torch.inner(x, y), torch.tensordot(x, y, dims=([0, 1], [0, 1])), x.sum_to_size(1, 4)),
            *(x.reshape_as(y.t()), torch.swapaxes(x, 0, 1), torch.fliplr(x), x.float_power(2)),
            *(torch.nn.functional.pairwise_distance(x, y), torch.linalg.vecdot(x, y)),
            *(x.sum(1, dtype=torch.float64), torch.full_like(x, 2, dtype=torch.int64)),
            *(torch.sub(x, y, alpha=3), torch.nn.functional.gelu(x, approximate="tanh")),
            torch._weight_norm(x, y[:, :1], 0),
            *(torch.diff(x, n=2), torch.diff(x, dim=0, prepend=y[:1]), torch.diff(x > 0)),
            *((x > 0) & (y > 0), (x > 0) | (y > 0), (x > 0) ^ (y > 0)),
        )

    check(function, operands([(3, 4), (3, 4)], torch.float32), tmp_path / "m.pt2")


def test_axes_that_are_not_given(tmp_path: Path) -> None:
    """The defaults of operators with several names differ."""

    def function(x: Any, y: Any) -> Any:
        square, other = x[:, :3], y[:, :3]
        three = torch.stack([x, y])
        return (
            *(torch.cross(square, other), torch.cross(x, y), torch.linalg.cross(square, other)),
            *(torch.linalg.diagonal(three), torch.diagonal(three), x.narrow(1, -2, 2)),
            *(x.narrow(0, 1, 2), torch.linalg.diagonal(three, offset=1)),
            torch.take_along_dim(x, torch.tensor([[1], [0], [2]]), 1),
            torch.take_along_dim(x, torch.tensor([[2, 1, 0, 3]]), 1),
            torch.take_along_dim(x, torch.tensor([5, 7])),
        )

    values = [torch.randn(3, 4) for _ in range(2)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch.cross without an axis
        check(function, values, tmp_path / "m.pt2")


def test_a_buffer_that_shares_its_memory_is_not_changed(tmp_path: Path) -> None:
    class Shares(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("a", torch.zeros(3))
            self.register_buffer("b", self.a[:2])

        def forward(self, x: Any) -> Any:
            self.a.add_(x)
            return self.b + 0

    torch.export.save(torch.export.export(Shares(), (torch.ones(3),)), tmp_path / "m.pt2")
    with pytest.raises(ModelFileError, match=r"changes 'a', which shares its memory with 'b'"):
        gc.from_torch(tmp_path / "m.pt2")


def test_tensors_that_repeat_their_elements(tmp_path: Path) -> None:
    """`expand` gives an axis the stride 0; the file has the elements before it."""

    class Module(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rows = torch.nn.Parameter(torch.randn(3).expand(2, 3))
            self.columns = torch.nn.Parameter(torch.randn(2, 1).expand(2, 3))
            self.register_buffer("one", torch.tensor(2.0).expand(3000, 3000))
            self.register_buffer("tail", torch.randn(6)[3:].expand(2, 3))
            self.register_buffer("mask", torch.tensor([True, False, True]).expand(2, 3))
            self.register_buffer("short", torch.randn(3).to(torch.bfloat16).expand(2, 3))
            self.register_buffer("steps", torch.arange(4.0).as_strided((2, 3), (1, 1)))

        def forward(self, x: Any) -> Any:
            x = torch.where(self.mask, x * self.rows, x + self.columns) * self.one[:2, :3]
            return x + self.tail * self.short.float() - self.steps

    module, x = Module(), torch.randn(2, 3)
    torch.export.save(torch.export.export(module, (x,)), tmp_path / "m.pt2")
    layer = gc.from_torch(tmp_path / "m.pt2")
    for name, tensor in module.state_dict().items():
        np.testing.assert_array_equal(
            layer.weights[name].astype(np.float32), tensor.float().numpy(), strict=True
        )
    alone = layer.to_graph()
    (given,), (y,) = alone.inputs.values(), alone.outputs.values()
    with gc.Session(alone.graph) as session:
        assert_near(session.run(y, {given: x.numpy()}), module(x).detach().numpy(), rtol=1e-6)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("LSTM", {"bidirectional": True}),
        ("LSTM", {"proj_size": 2}),
        ("LSTM", {"proj_size": 2, "bias": False, "bidirectional": True}),
        ("GRU", {"bidirectional": True, "bias": False}),
        ("RNN", {}),
    ],
)
def test_recurrent_layers(kind: str, options: dict[str, Any], tmp_path: Path) -> None:
    torch.manual_seed(0)
    layer = getattr(torch.nn, kind)(3, 4, num_layers=2, **options)
    (x,) = operands([(5, 2, 3)], torch.float32)
    torch.export.save(torch.export.export(layer, (x,)), tmp_path / "m.pt2")
    want = [v.detach().numpy() for v in torch.utils._pytree.tree_flatten(layer(x))[0]]
    for source, args in ((tmp_path / "m.pt2", None), (layer, (x,))):
        alone = gc.from_torch(source, args).to_graph()
        with gc.Session(alone.graph) as session:
            (fed,) = alone.inputs.values()
            found = session.run(list(alone.outputs.values()), {fed: x.numpy()})
        for got, wanted in zip(found, want, strict=True):
            assert_near(np.asarray(got), wanted, rtol=1e-5, atol=1e-6)


def parts(x: Any) -> Any:
    y = x * 2
    y[:, 0] = 5
    y[1] += y[0]
    z = y.view(-1)
    z += 1
    return y, z


def turned(x: Any) -> Any:
    y = x.clone()
    z = y.t()
    w = z[0]
    w.mul_(3)
    a = y.permute(1, 0).unsqueeze(0)
    a.relu_()
    y.sub_(0.5)
    return y, z, w, a


def copied_or_not(x: Any) -> Any:
    """Of these, some are views and some are copies, by the order of the elements."""
    y = x + 1
    a, b, c, d = y.contiguous(), y.t().contiguous(), y.reshape(-1), y.t().reshape(-1)
    e, f = y.to(torch.float32), y.to(torch.float64)
    g = torch.nn.functional.dropout(y, 0.5, False)
    for i, each in enumerate((a, b, c, d, e, f, g)):
        each.add_(i + 1)
    return y, a, b, c, d, e, f, g


def filled(x: Any) -> Any:
    y = torch.zeros(3, 4)
    y[1:, ::2] = x[1:, ::2]
    y.masked_fill_(y > 0, 7.0)
    y.index_put_((torch.tensor([0, 2]),), torch.ones(2, 4))
    y.copy_(y.flip(0))
    z = y.flatten()
    z[3] = 9
    y.clamp_(0, 6).add_(2).t().mul_(x.t())
    w = torch.ones(2)
    w.zero_()
    return y, z, w


def permuted(x: Any) -> Any:
    y = (x * 2).reshape(3, 2, 2)
    y.permute(1, -1, 0)[0] += 5
    y.squeeze(0).unsqueeze(1).transpose(0, 2).mul_(2)
    return y


def in_a_region(x: Any) -> Any:
    with torch.no_grad():
        y = x * 2
        y += 1
    y += 3
    return y


CHANGES = [parts, turned, copied_or_not, filled, permuted, in_a_region]


@pytest.mark.parametrize("function", CHANGES)
def test_changes_of_tensors_and_views(function: Callable[..., Any], tmp_path: Path) -> None:
    check(function, operands([(3, 4)], torch.float32), tmp_path / "m.pt2")


def shared_by_a_region(x: Any) -> Any:
    y = x + 1
    with torch.no_grad():
        z = y.view(-1)
    z += 1
    return y, z


def two_results_of_a_region(x: Any) -> Any:
    with torch.no_grad():
        y = x + 1
        z = y.view(-1)
    z += 1
    return y, z


def a_split(x: Any) -> Any:
    y = x + 1
    left, _ = y.split(2, 1)
    left += 1
    return y


def another_order_in_memory(x: Any) -> Any:
    whole = x * 1
    copy = whole.contiguous(memory_format=torch.channels_last)
    whole.add_(1)
    return copy


def an_input(x: Any) -> Any:
    x += 1
    return x


REFUSED = [shared_by_a_region, two_results_of_a_region, a_split, an_input]


@pytest.mark.parametrize("function", REFUSED)
def test_changes_that_are_refused(function: Callable[..., Any], tmp_path: Path) -> None:
    with pytest.raises(ModelImportError, match="changes a"):
        check(function, operands([(3, 4)], torch.float32), tmp_path / "m.pt2")


def copied_by_to(x: Any) -> Any:
    whole = x * 1
    copy = whole.to(whole.dtype, copy=True)
    whole.add_(1)
    return copy


def perhaps_an_input(x: Any) -> Any:
    same = x.contiguous(memory_format=torch.channels_last)
    return same.add_(1)


def seen_by_another_name(x: Any) -> Any:
    changed = (whole := x * 1).add_(1)
    same = whole.contiguous(memory_format=torch.channels_last)
    same.mul_(2)
    return changed


UNSURE = [another_order_in_memory, copied_by_to, perhaps_an_input, seen_by_another_name]


@pytest.mark.parametrize("function", UNSURE)
def test_changes_that_another_tensor_may_see_are_refused(
    function: Callable[..., Any], tmp_path: Path
) -> None:
    """Whether an operator copies may depend on the order of the elements in memory."""
    with pytest.raises(ModelImportError, match="may share its memory"):
        check(function, [torch.randn(1, 2, 3, 4)], tmp_path / "m.pt2")


def test_operators_whose_results_share_memory_are_known() -> None:
    known = views._VIEWS | views._SOMETIMES | views._MANY
    for key in RULES:
        namespace, _, rest = key.partition(".")
        name, _, overload = rest.partition(".")
        if namespace != "aten" or overload == "out" or name.endswith("_"):
            continue
        operator = getattr(getattr(torch.ops.aten, name, None), overload, None)
        if operator is not None and any(r.alias_info for r in operator._schema.returns):
            assert name in known, key
