"""The nests of a module's inputs and results, and the names of sizes in them."""

from __future__ import annotations

from typing import Any, NamedTuple

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
    assert list(layer.outputs) == ["scores", "all_1", "all_2"]
    with gc.Graph() as graph:
        found = layer(gc.ones((2,)))
    assert found["task"] == "classify" and found["mask"] is None and found["all"][0] is None
    scores, *rest = gc.Session(graph).run([found["scores"], *found["all"][1:]])
    assert np.array_equal(scores, [2, 2])
    assert np.array_equal(rest[0], [2, 2]) and rest[1] == 3


class Pair(NamedTuple):
    first: Any
    second: Any


@pytest.mark.parametrize(
    ("made", "want"),
    [
        (lambda x: x, ["output_0"]),
        (lambda x: (x, [x + 1]), ["output_0", "output_1"]),
        (lambda x: {"b": x, "a": x + 1}, ["b", "a"]),
        (lambda x: Pair(x, {"u": x + 1}), ["first", "second_u"]),
        (lambda x: (x, {"cache": (x + 1, x + 2)}), ["output_0", "cache_0", "cache_1"]),
        (lambda x: {"a": {"b": x}, "a_b": x + 1}, ["output_0", "output_1"]),  # the same name twice
        (lambda x: (x, {"output_0": x + 1}), ["output_0", "output_1"]),
        (
            lambda x: {"0": x, "a/b": x + 1, "": x + 2, "a": x + 3, "x": x},  # FPNs have "0"
            ["output_0", "output_1", "output_2", "a", "output_4"],
        ),
    ],
)
def test_results_have_the_keys_of_the_nest_as_names(made: Any, want: list[str]) -> None:
    class Returns(nn.Module):
        def forward(self, x: Any) -> Any:
            return made(x * 2)

    layer = gc.from_torch(Returns(), (torch.ones(2),))
    assert list(layer.outputs) == want
    alone = layer.to_graph()
    assert list(gc.Signature(dict(alone.inputs), dict(alone.outputs)).outputs) == want
    found = gc.Session(alone.graph).run(dict(alone.outputs), {alone.inputs["x"]: np.ones(2, "f4")})
    leaves = torch.utils._pytree.tree_leaves(Returns()(torch.ones(2)))
    for name, leaf in zip(want, leaves, strict=True):
        assert np.array_equal(found[name], leaf)


class Keyed:
    """As the outputs of transformers: a class that PyTorch takes apart by keys."""

    def __init__(self, **parts: Any) -> None:
        self.parts = parts


torch.utils._pytree.register_pytree_node(
    Keyed,
    lambda keyed: (list(keyed.parts.values()), list(keyed.parts)),
    lambda values, keys: Keyed(**dict(zip(keys, values, strict=True))),
    serialized_type_name="tests.Keyed",
)


def test_objects_with_keys_are_dicts_when_a_file_is_read(tmp_path: Any) -> None:
    class Returns(nn.Module):
        def forward(self, x: Any) -> Any:
            return Keyed(logits=x + 1, hidden=[x * 2])

    program = torch.export.export(Returns(), (torch.ones(2),), strict=False)
    torch.export.save(program, tmp_path / "keyed.pt2")
    layer = gc.from_torch(tmp_path / "keyed.pt2")
    assert layer.outputs == ("logits", "hidden_0")
    with gc.Graph() as graph:
        found = layer(gc.ones((2,)))
    logits, hidden = gc.Session(graph).run([found["logits"], found["hidden"][0]])
    assert np.array_equal(logits, [2, 2]) and np.array_equal(hidden, [2, 2])


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
