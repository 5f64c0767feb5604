"""The two graphs of an estimator: one that trains, one that predicts.

They have the same variables by name. The graph that predicts is built with `training=False` where
the build function asks for it, and is small: it has no gradients and no optimizer.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphc.build.pickling import copy_error, graph_of
from graphc.build.placeholders import placeholder
from graphc.errors import GraphError, SerialError
from graphc.ir.dtypes import Array
from graphc.ir.graph import Graph
from graphc.ir.node import Node, Tensor
from graphc.ir.scopes import name_scope
from graphc.ir.serial import dump_graph, to_bytes
from graphc.ir.values import bytes_of
from graphc.ops.core.emit import cast
from graphc.ops.elementwise.arithmetic import maximum
from graphc.ops.elementwise.comparison import equal, where
from graphc.ops.reductions.reduction import reduce_sum
from graphc.optim import minimize
from graphc.runtime.state.initial import initial_values
from graphc.sklearn.blueprint import Blueprint, source_of

FEATURES, TARGETS, WEIGHTS = "features", "targets", "weights"
ENCODING, OUTPUTS, LOSS, WEIGHT, STEP = "encoding", "outputs", "loss", "weight", "step"
_LEAST = 1e-30  # no batch whose rows all have the weight 0 divides by 0


@dataclass(frozen=True)
class Network:
    """A graph in serial form, and the names of what is fed and fetched.

    Attributes:
        data: the graph, with the seed 0: the values of its variables lie elsewhere.
        names: role -> the name of the tensor or node.
        digest: equal for networks that differ only in the lines on which they were built.
    """

    data: bytes
    names: dict[str, str]
    digest: bytes

    def graph(self) -> Graph:
        """The graph, made anew."""
        return graph_of(self.data)


@dataclass(frozen=True)
class Networks:
    """Both graphs of an estimator."""

    training: Network
    inference: Network


def networks(blueprint: Blueprint, seed: int) -> tuple[Networks, dict[str, Array]]:
    """Both graphs, and the initial values of all variables.

    Raises:
        GraphcError: the functions of the blueprint return something that does not fit, or no
            gradient can be computed.
        CopyError: a graph has no serial form.
    """
    training, names = _built(blueprint, seed, training=True)
    inference, other_names = _built(blueprint, seed, training=False)
    _check_alike(blueprint, training, inference)
    values = {name: np.asarray(value) for name, value in initial_values(training).items()}
    return Networks(_network(training, names), _network(inference, other_names)), values


def _built(blueprint: Blueprint, seed: int, *, training: bool) -> tuple[Graph, dict[str, str]]:
    graph = Graph(seed=seed, name=blueprint.estimator)
    with graph:
        x = placeholder((None, blueprint.features), blueprint.dtype, name=FEATURES)
        encoding = blueprint.encoded(x, graph, training)
        with name_scope("decoder"):
            outputs = blueprint.decoded(encoding, graph, training)
        y, wanted = _targets(blueprint, x)
        w = placeholder((None,), blueprint.dtype, name=WEIGHTS)
        rows = cast(blueprint.row_losses(outputs, y, graph), blueprint.dtype)
        total = reduce_sum(where(equal(w, 0.0), 0.0, rows) * w)
        weight = reduce_sum(w)
        loss = total / maximum(weight, _LEAST)
        found: dict[str, Tensor | Node] = {
            FEATURES: x, WEIGHTS: w, ENCODING: encoding, OUTPUTS: outputs, LOSS: loss,
            WEIGHT: weight, **wanted,
        }  # fmt: skip
        if training:
            found[STEP] = minimize(loss, blueprint.optimizer, name="optimizer")
    return graph, {role: item.name for role, item in found.items()}


def _targets(blueprint: Blueprint, x: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    if blueprint.target is None:
        return x, {}
    dtype, columns = blueprint.target
    y = placeholder((None,) if columns is None else (None, columns), dtype, name=TARGETS)
    return y, {TARGETS: y}


def _check_alike(blueprint: Blueprint, training: Graph, inference: Graph) -> None:
    types = {name: variable.type for name, variable in training.variables.items()}
    for name, variable in inference.variables.items():
        if types.get(name) != variable.type:
            raise GraphError(
                f"{blueprint.estimator}: build creates other variables when it is called again",
                details=[f"variable {name!r}: {types.get(name)} at first, then {variable.type}"],
                source=source_of(blueprint.build),
                hint="create the same variables, in the same order, whatever `training` is",
            )


def _network(graph: Graph, names: dict[str, str]) -> Network:
    graph.seed = 0  # the initial values are known by now
    try:
        manifest, arrays = dump_graph(graph)
        lasting = json.dumps([_without_lines(manifest), names], sort_keys=True).encode()
        parts = [lasting, *(name.encode() + bytes_of(arrays[name]) for name in sorted(arrays))]
        digest = hashlib.sha256(b"".join(parts)).digest()
        return Network(to_bytes(manifest, arrays), names, digest)
    except SerialError as error:
        what = f"{graph.name}: the graph of build cannot be saved"
        hint = "use operators and initializers of graphc in build"
        raise copy_error(what, error, hint) from error


def _without_lines(data: Any) -> Any:
    if isinstance(data, dict):
        return {key: _without_lines(value) for key, value in data.items() if key != "source"}
    return [_without_lines(item) for item in data] if isinstance(data, list) else data
