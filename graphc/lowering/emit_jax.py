"""Turns a program into a JAX function: calls each node's `lower`, in program order."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import jax

from graphc.errors import GraphcError, LoweringError
from graphc.ir.dim_limits import substitute_limited
from graphc.ir.dims import Dim, Shape
from graphc.ir.dtypes import is_64bit
from graphc.ir.node import Node, Tensor
from graphc.ir.opdef import OpDef
from graphc.ir.program import Program
from graphc.ops.catalogue import CATALOGUE
from graphc.ops.matrices.narrow_operands import PRODUCTS, widens
from graphc.passes.core.keys import body_key


def symbolic(dim: Dim, sizes: Mapping[str, Any]) -> Any:
    """A size in JAX's symbolic dimensions. Limited sizes become `max(size, 0)`: JAX compares that
    in less time than the divisions that graphc has for it."""
    return substitute_limited(dim, sizes, lambda size: jax.core.max_dim(size, 0))


class Emitter:
    """The context of one lowering: see `ir.opdef.LowerContext`.

    Args:
        axis_name: the replica axis of a data-parallel run, or None.
        sizes: named sizes -> JAX's symbolic dims; used for symbolic export only.
        mesh: the mesh of the sharding annotations, or None.
    """

    def __init__(
        self,
        axis_name: str | None = None,
        replicas: int = 1,
        sizes: Mapping[str, Any] | None = None,
        mesh: jax.sharding.Mesh | None = None,
    ) -> None:
        self.axis_name = axis_name
        self.mesh = mesh
        self.replicas = replicas
        self.catalogue: Mapping[str, OpDef] = CATALOGUE
        self.node: Node
        self.in_loop = False
        self._sizes = sizes or {}
        self._functions: dict[Hashable, Callable[..., list[Any]]] = {}

    def dim(self, dim: Dim) -> Any:
        return dim if isinstance(dim, int) else symbolic(dim, self._sizes)

    def shape(self, shape: Shape) -> tuple[Any, ...]:
        return tuple(self.dim(d) for d in shape)

    def lower_region(
        self, region: Program, args: Sequence[Any], *, loop: bool = False
    ) -> list[Any]:
        outside, self.in_loop = self.in_loop, self.in_loop or loop
        try:
            return self.run(region, args)
        finally:
            self.in_loop = outside

    def call_region(self, region: Program, args: Sequence[Any]) -> list[Any]:
        # Passes may have copied a body that several calls shared.
        key = (body_key(region), self.in_loop)
        function = self._functions.get(key)
        if function is None:

            def body(*values: Any) -> list[Any]:
                return self.run(region, values)

            body.__name__ = region.name
            function = self._functions[key] = jax.jit(body)
        return function(*args)

    def run(self, program: Program, args: Sequence[Any]) -> list[Any]:
        """Emits every node of `program` for the JAX values `args`; returns its outputs."""
        values: dict[Tensor, Any] = dict(zip(program.input_tensors(), args, strict=True))
        narrow: dict[Tensor, Any] = {}  # the operands of casts to wider dtypes
        for node in program.nodes:
            self.node = node
            operands = [values[t] for t in node.inputs]
            if narrow and node.op in PRODUCTS and all(t in narrow for t in node.inputs):
                operands = [narrow[t] for t in node.inputs]
            elif widens(node):
                narrow[node.outputs[0]] = operands[0]
            try:
                with jax.named_scope(node.name or node.op.name):
                    result = node.op.lower(self, *operands, **node.attrs)
            except (GraphcError, RecursionError):  # see `ir.stack` for RecursionError
                raise
            except Exception as error:
                raise LoweringError(
                    f"{node.op.name} {node.name!r} could not be lowered: {error}",
                    details=[f"operand {i}: {t.type}" for i, t in enumerate(node.inputs)],
                    source=node.source,
                ) from error
            if len(node.outputs) == 1 and not isinstance(result, tuple):
                values[node.outputs[0]] = result
            else:
                values.update(zip(node.outputs, result, strict=True))
        return [values[t] for t in program.output_tensors()]


def to_function(
    program: Program,
    *,
    axis_name: str | None = None,
    replicas: int = 1,
    sizes: Mapping[str, Any] | None = None,
    mesh: jax.sharding.Mesh | None = None,
) -> Callable[..., list[Any]]:
    """A JAX function of the program's inputs, in port order. It returns the list of its outputs."""

    def function(*args: Any) -> list[Any]:
        return Emitter(axis_name, replicas, sizes, mesh).run(program, args)

    function.__name__ = program.name
    return function


def needs_x64(program: Program) -> bool:
    """Whether any tensor of the program has a 64-bit dtype, which must be enabled in JAX."""
    tensors = [port.tensor for port in (*program.inputs, *program.outputs)]
    return any(is_64bit(t.type.dtype) for t in tensors) or any(
        is_64bit(t.type.dtype) for node in program.walk() for t in node.outputs
    )
