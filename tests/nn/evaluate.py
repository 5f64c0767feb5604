"""Runs a graph node by node, in program order: enough to test the values of layers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import jax
import numpy as np

from graphc.build import initial_value
from graphc.ir.dims import substitute
from graphc.ir.graph import Graph
from graphc.ir.node import Tensor


def evaluate(
    graph: Graph,
    fetches: list[Tensor],
    feeds: dict[Tensor, Any] | None = None,
    state: dict[str, Any] | None = None,
    key: int = 0,
) -> list[np.ndarray]:
    """The values of `fetches`. Every node runs; assignments change `state`.

    Sizes must be known or bound by the feeds: each node is lowered for its values.
    """
    state = {} if state is None else state
    for name, variable in graph.variables.items():
        state.setdefault(name, initial_value(variable, graph.seed))
    values: dict[Tensor, Any] = dict(feeds or {})
    bindings: dict[str, int] = {}
    for tensor, array in values.items():
        for dim, size in zip(tensor.shape, np.shape(array), strict=True):
            if not isinstance(dim, int):
                bindings[str(dim)] = size

    def bind(dim: Any) -> int:
        found = graph.constraints.find(dim)
        return found if isinstance(found, int) else substitute(found, bindings)

    context: Any = SimpleNamespace(
        dim=bind, shape=lambda s: tuple(map(bind, s)), axis_name=None, replicas=1
    )
    with jax.enable_x64(True):
        for node in graph.nodes:
            context.node = node
            operands = [jax.numpy.asarray(values[t]) for t in node.inputs if t in values]
            if len(operands) < len(node.inputs) or node.op.name == "Placeholder":
                continue  # depends on a missing feed
            if node.op.name == "ReadVariable":
                results: Any = state[node.attrs["variable"]]
            elif node.op.name == "Assign":
                results = state[node.attrs["variable"]] = np.asarray(operands[0])
            elif node.op.name == "RandomKey":
                results = jax.random.key_data(jax.random.key(key, impl="threefry2x32"))
            else:
                results = node.op.lower(context, *operands, **node.attrs)
            if not isinstance(results, tuple):
                results = (results,)
            values.update(zip(node.outputs, results, strict=True))
    return [np.asarray(values[t]) for t in fetches]
