"""The nests of a module's inputs and results, and the names of sizes in them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import graphc as gc  # noqa: E402

N, M = (torch.export.Dim(name, min=1, max=9) for name in "NM")


class Two(nn.Module):
    def forward(self, x: Any, y: Any) -> Any:
        return x * 2 + y.sum()


class Number(nn.Module):
    def forward(self, k: int, x: Any, y: Any) -> Any:
        return x * k + y.sum()


class Nested(nn.Module):
    def forward(self, a: Any, u: Any) -> Any:
        return a["q"] + a["r"][1].sum() + u.sum()


class Variadic(nn.Module):
    def forward(self, a: Any, *rest: Any, **named: Any) -> Any:
        return a["q"] + a["r"][1].sum() + rest[1].sum() + named["u"].sum()


ONE, THREE = torch.ones(5), torch.ones(2, 3, 4)
NEST = {"q": torch.ones(5), "r": (torch.ones(2), torch.ones(3))}
STATIC = torch.export.Dim.STATIC
EXPORTS_VARIADIC = pytest.mark.skipif(
    torch.__version__ < (2, 14),
    reason="torch.export names the arguments of *rest and **named since PyTorch 2.14",
)


@pytest.mark.parametrize(
    ("module", "args", "kwargs", "shapes", "want"),
    [
        (Two, (ONE, THREE), {}, {"y": {2: N}, "x": None}, ["5", "2 3 N"]),
        (Two, (ONE, THREE), {}, {"y": {0: N}, "x": {0: M}}, ["M", "N 3 4"]),
        (Two, (ONE,), {"y": THREE}, ({0: M}, (STATIC, N, STATIC)), ["M", "2 N 4"]),
        (Two, (), {"y": THREE, "x": ONE}, {"x": {0: M}, "y": {1: N}}, ["2 N 4", "M"]),
        (Number, (3, THREE, ONE), {}, (None, {2: N}, None), ["2 3 N", "5"]),
        (
            Nested,
            (NEST,),
            {"u": torch.ones(7)},
            {"a": {"q": None, "r": (None, {0: N})}, "u": {0: M}},
            ["5", "2", "N", "M"],
        ),
        pytest.param(
            Variadic,
            (NEST, torch.ones(4), torch.ones(6)),
            {"u": torch.ones(7)},
            {
                "a": {"q": None, "r": (None, {0: N})},
                "rest": (None, {0: M}),
                "named": {"u": None},
            },
            ["5", "2", "N", "4", "M", "7"],
            marks=EXPORTS_VARIADIC,
        ),
    ],
)
def test_sizes_have_the_names_that_dynamic_shapes_gives_them(
    module: Any, args: Any, kwargs: Any, shapes: Any, want: list[str]
) -> None:
    layer = gc.from_torch(module(), args, kwargs, dynamic_shapes=shapes)
    assert [" ".join(map(str, spec.shape)) for spec in layer.inputs.values()] == want


def test_names_of_sizes_of_a_program_and_by_a_collection() -> None:
    shapes = {"y": {2: N}, "x": None}
    program = torch.export.export(Two(), (ONE, THREE), dynamic_shapes=shapes)
    layer = gc.from_torch(program, dynamic_shapes=shapes)
    assert str(layer.inputs["y"].shape[2]) == "N"
    collection = torch.export.ShapesCollection()
    collection[ONE] = {0: M}
    for _ in range(2):  # it is not changed
        layer = gc.from_torch(Two(), (ONE, THREE), dynamic_shapes=collection)
        assert str(layer.inputs["x"].shape[0]) == "M"


def test_results_that_are_no_tensors_stay_in_the_nest() -> None:
    class Mixed(nn.Module):
        def forward(self, x: Any) -> Any:
            return {"scores": x + 1, "task": "classify", "mask": None, "all": [None, x * 2, 3]}

    layer = gc.from_torch(Mixed(), (torch.ones(2),))
    assert list(layer.outputs) == ["output_0", "output_1", "output_2"]
    with gc.Graph() as graph:
        found = layer(gc.ones((2,)))
    assert found["task"] == "classify" and found["mask"] is None and found["all"][0] is None
    scores, *rest = gc.Session(graph).run([found["scores"], *found["all"][1:]])
    assert np.array_equal(scores, [2, 2])
    assert np.array_equal(rest[0], [2, 2]) and rest[1] == 3


def test_attention_without_weights_has_one_output() -> None:
    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.MultiheadAttention(4, 2, batch_first=True)

        def forward(self, x: Any) -> Any:
            return self.inner(x, x, x, need_weights=False)

    layer = gc.from_torch(Attention(), (torch.ones(1, 2, 4),))
    assert list(layer.to_graph().signature().outputs) == ["output_0"]
    with gc.Graph():
        assert layer(gc.ones((1, 2, 4)))[1] is None
