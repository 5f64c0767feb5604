"""`Variable`: named state of a graph, with an initial value that is data."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from graphc.ir.node import _METHODS, Operand, Tensor
from graphc.ir.sharding import Spec
from graphc.ir.types import TensorType

if TYPE_CHECKING:
    from graphc.ir.graph import Graph
    from graphc.ir.source import Source


class Initializer(Protocol):
    """Makes an initial value on the host: `(rng, shape, dtype) -> array`."""

    def __call__(
        self, rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype[Any], /
    ) -> np.ndarray[Any, Any]: ...


class Variable(Operand):
    """State that lives across runs, under one name; made by `gc.variable`.

    As an operand it is read where it stands in program order. A run that chooses an assignment
    updates it; fetching the variable gives its value after the run.

    Attributes:
        initial: an array, an `Initializer`, or a tensor of the same graph, computed from the
            initial values of other variables when it is first needed.
        shard: how it lies on a mesh of devices, an entry for each axis, as `gc.shard` says; None
            where nothing is said.
        shard_source: the line that says it.
    """

    __slots__ = (
        "__weakref__",
        "collections", "device", "graph", "initial", "name", "shard", "shard_source", "source",
        "trainable", "type",
    )  # fmt: skip

    instead = (
        "send the graph, which can be pickled and copied, and find it there: graph.variable(name). "
        "To have a layer twice, make two"
    )

    def __init__(
        self,
        graph: Graph,
        name: str,
        type: TensorType,
        initial: np.ndarray[Any, Any] | Initializer | Tensor,
        *,
        trainable: bool = True,
        collections: tuple[str, ...] = (),
        device: str = "",
        source: Source | None = None,
        shard: Spec | None = None,
    ) -> None:
        self.graph = graph
        self.name = name
        self.type = type
        self.initial = initial
        self.trainable = trainable
        self.collections = collections
        self.device = device
        self.source = source
        self.shard = shard
        self.shard_source = source

    def read(self) -> Tensor:
        """The value at this point of program order: after the assignments chosen before it."""
        return _method("read")(self)

    def assign(self, value: Any) -> Tensor:
        """Adds an assignment of `value` (cast-free, same shape); gives the value assigned.

        It happens in runs whose fetches need it: fetch it, or name it in `gc.group` or
        `gc.control_dependencies`.
        """
        return _method("assign")(self, value)

    def assign_add(self, value: Any) -> Tensor:
        """`assign(read() + value)`."""
        return _method("assign_add")(self, value)

    def assign_sub(self, value: Any) -> Tensor:
        """`assign(read() - value)`."""
        return _method("assign_sub")(self, value)

    def __repr__(self) -> str:
        return f"<Variable {self.name} {self.type}>"


def _method(name: str) -> Callable[..., Tensor]:
    return _METHODS[name]
