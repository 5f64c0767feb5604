"""Passes that plant an error in one node, and the networks for them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import jax.numpy as jnp
import numpy as np

import graphc as gc
from graphc.ir.node import Node, Tensor
from graphc.ir.program import Program
from graphc.ir.types import TensorType
from graphc.ops.catalogue import CATALOGUE
from graphc.passes.core.base import Pass, PassResult

Change = Callable[[Node], list[Node]]


@dataclass(frozen=True)
class Plant(Pass):
    """Replaces the node `name` at any depth by the nodes that `change` returns."""

    name_of_node: str
    change: Change

    @property
    def name(self) -> str:
        return "plant"

    def run(self, program: Program) -> PassResult:
        changed = self._changed(program)
        assert changed is not program, f"no node {self.name_of_node}"
        return PassResult(changed, 1)

    def _changed(self, program: Program) -> Program:
        nodes: list[Node] = []
        for node in program.nodes:
            regions = tuple(self._changed(region) for region in node.regions)
            if any(new is not old for new, old in zip(regions, node.regions, strict=True)):
                node = node.replace(regions=regions)
            nodes += self.change(node) if node.name == self.name_of_node else [node]
        same = len(nodes) == len(program.nodes) and all(
            a is b for a, b in zip(nodes, program.nodes, strict=True)
        )
        return program if same else program.replace(nodes=tuple(nodes))


def with_attrs(**attrs: object) -> Change:
    """Changes attributes, such as epsilon."""
    return lambda node: [node.replace(attrs={**node.attrs, **attrs})]


def with_kernel(function: Callable[..., object]) -> Change:
    """A wrong kernel: `function(correct result)`."""

    def change(node: Node) -> list[Node]:
        lower = node.op.lower
        op = replace(node.op, lower=lambda ctx, *xs, **attrs: function(lower(ctx, *xs, **attrs)))
        return [node.replace(op=op)]

    return change


def rounded_to_bf16(node: Node) -> list[Node]:
    """The result rounded to bfloat16 and back."""
    (result,) = node.outputs
    inner = Tensor(result.type, "inner")
    narrow = Tensor(TensorType(np.dtype(jnp.bfloat16), result.type.shape), "narrow")
    cast = CATALOGUE["Cast"]
    return [
        node.replace(outputs=(inner,)),
        Node(cast, (inner,), (narrow,), {"dtype": narrow.type.dtype}, name="to_bf16"),
        Node(cast, (narrow,), (result,), {"dtype": result.type.dtype}, name="back"),
    ]


def shifted(value):  # type: ignore[no-untyped-def]
    """A wrong layout: the last two axes in another order, for square sizes."""
    return jnp.swapaxes(value, -1, -2)


Network = tuple[gc.Graph, Mapping[gc.Tensor, np.ndarray], object]


def cnn() -> Network:
    rng = np.random.default_rng(0)
    graph = gc.Graph(seed=0)
    with graph:
        x = gc.placeholder((2, 8, 8, 3), name="x")
        h = gc.nn.Conv2D(4, 3, activation=gc.nn.relu, name="first")(x)
        h = gc.nn.Conv2D(4, 3, name="second")(h)
        h = gc.nn.relu(h, name="kept")
        h = gc.reduce_mean(h, axis=(1, 2), name="pooled")
        y = gc.nn.Dense(5, name="head")(h)
    return graph, {x: rng.normal(size=(2, 8, 8, 3)).astype(np.float32)}, y


def transformer(layers: int = 1) -> Network:
    rng = np.random.default_rng(0)
    graph = gc.Graph(seed=0)
    with graph:
        x = gc.placeholder((2, 8, 8), name="x")
        h = x
        for i in range(layers):
            with gc.name_scope(f"block{i}"):
                n = gc.nn.LayerNorm(name="norm")(h)
                q, k, v = (gc.nn.Dense(8, name=name)(n) for name in "qkv")
                scores = gc.matmul(q, gc.swapaxes(k, 1, 2), name="scores") / np.sqrt(8.0)
                weights = gc.nn.softmax(scores, name="weights")
                h = gc.add(h, gc.matmul(weights, v, name="mixed"), name="added")
                h = gc.add(h, gc.nn.Dense(8, activation=gc.nn.gelu, name="mlp")(h), name="out")
        y = gc.reduce_sum(h, axis=-1, name="y")
    return graph, {x: rng.normal(size=(2, 8, 8)).astype(np.float32)}, y


def lstm() -> Network:
    rng = np.random.default_rng(0)
    graph = gc.Graph(seed=0)
    with graph:
        x = gc.placeholder((6, 2, 4), name="x")
        w = gc.variable(rng.normal(size=(8, 16)).astype(np.float32), name="w")

        def step(carry, x):  # type: ignore[no-untyped-def]
            h, c = carry
            z = gc.matmul(gc.concatenate([x, h], axis=-1), w, name="gates")
            i, f, g, o = gc.split(z, 4, axis=-1)
            c = gc.sigmoid(f) * c + gc.sigmoid(i) * gc.tanh(g, name="candidate")
            h = gc.sigmoid(o) * gc.tanh(c, name="squashed")
            return (h, c), h

        start = (np.zeros((2, 4), np.float32), np.zeros((2, 4), np.float32))
        _, hs = gc.scan(step, start, x, name="lstm")
        y = gc.reduce_mean(hs, name="y")
    return graph, {x: rng.normal(size=(6, 2, 4)).astype(np.float32)}, y
