"""Batch norm of PyTorch that trains becomes the operators that graphc has passes for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphc as gc
from tests.near import assert_near

torch = pytest.importorskip("torch")
nn = torch.nn

CASES = {
    "images": (lambda: nn.BatchNorm2d(5, eps=1e-3), (4, 5, 3, 2)),
    "rows": (lambda: nn.BatchNorm1d(5), (6, 5)),
    "sequences": (lambda: nn.BatchNorm1d(5), (6, 5, 3)),
    "volumes": (lambda: nn.BatchNorm3d(5), (2, 5, 3, 2, 2)),
    "no scale": (lambda: nn.BatchNorm2d(5, affine=False), (4, 5, 3, 2)),
    "no averages": (lambda: nn.BatchNorm2d(5, track_running_stats=False), (4, 5, 3, 2)),
    "groups": (lambda: nn.GroupNorm(2, 6), (4, 6, 3, 2)),
    "instances": (lambda: nn.InstanceNorm2d(5, affine=True), (4, 5, 3, 2)),
}


@pytest.mark.parametrize(("make", "shape"), CASES.values(), ids=CASES)
@pytest.mark.parametrize(("dtype", "near"), [("float64", 1e-10), ("bfloat16", 0.05)])
def test_results_and_gradients_are_those_of_pytorch(
    make: Any, shape: tuple[int, ...], dtype: str, near: float
) -> None:
    kind = getattr(torch, dtype)
    torch.manual_seed(0)
    module, x = make().to(kind), (torch.randn(shape) * 3 + 2).to(kind)
    for parameter in module.parameters():
        nn.init.normal_(parameter)
    with gc.Graph() as graph:
        given = gc.placeholder(shape, dtype, name="given")
        y = gc.from_torch(module, (x,), training=True)(given)
        loss = gc.reduce_sum(gc.cast(y, "float32") ** 3)
        trained = [v for v in graph.variables.values() if v.trainable]
        slopes = gc.gradients(loss, [given, *trained])
    found = [np.asarray(v, "float64") for v in _run(graph, [y, *slopes], x)]
    fed = x.clone().requires_grad_()
    wanted = module.train()(fed)
    (wanted.float() ** 3).sum().backward()
    grads = [fed.grad, *(p.grad for _, p in module.named_parameters())]
    assert [v.name for v in trained] == [name for name, _ in module.named_parameters()]
    for got, want in zip(found, [wanted.detach(), *grads], strict=True):
        want = want.double().numpy()
        assert_near(got / np.abs(want).max(), want / np.abs(want).max(), near, near)


def _run(graph: Any, fetches: Any, x: Any) -> Any:
    fed = x.view(torch.int16).numpy().view("bfloat16") if x.dtype == torch.bfloat16 else x.numpy()
    return gc.Session(graph).run(fetches, {"given": fed})


def test_it_is_one_variance_and_one_batch_norm() -> None:
    """With `cpu-moments` and the gradient of `BatchNorm`, MobileNet-V2 takes 0.75 of the time."""
    module = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 1))
    with gc.Graph() as graph:
        given = gc.placeholder((2, 3, 8, 8), name="given")
        y = gc.from_torch(module, (torch.zeros(2, 3, 8, 8),), training=True)(given)
    session = gc.Session(graph)
    session.run(y, {given: np.ones((2, 3, 8, 8), np.float32)})
    names = [node.op.name for node in session.executables[0].program.walk()]
    assert [names.count(name) for name in ("Variance", "BatchNorm", "Square")] == [1, 1, 0]
    assert names.count("Transpose") <= 4  # of x, of two kernels, and of y
