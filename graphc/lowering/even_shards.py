"""Adds constraints to a JAX function, so that it computes the same on a mesh as on one device.

XLA decides how values without annotations are split. It may split an axis whose size the mesh does
not divide, and then pads the last piece; several of its rules read that padding, so results are
wrong. It handles a few operations wrongly even for even sizes: see `partitioner_rules`. Here each
equation of the traced function is bound again, and values with axes that XLA must not split get a
sharding constraint: replicated along these axes, and unconstrained along all others.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import jax
import numpy as np
from jax import lax
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal
from jax.sharding import NamedSharding, PartitionSpec

from graphc.lowering.partitioner_rules import whole_axes

_FREE = PartitionSpec.UNCONSTRAINED

# Calls whose derivative is no longer needed. They are replaced by their bodies.
_INLINED = {"custom_jvp_call": "call_jaxpr", "custom_vjp_call": "call_jaxpr"}


def with_even_shards(
    function: Callable[..., Any], mesh: jax.sharding.Mesh
) -> Callable[..., list[Any]]:
    """`function`, which takes and returns flat lists of arrays, with constraints for `mesh`."""

    def constrained(*args: Any) -> list[Any]:
        closed = jax.make_jaxpr(function)(*args)
        return _Replay(mesh).run(closed, args)

    constrained.__name__ = function.__name__
    return constrained


def uneven_axes(shape: Sequence[int], mesh: Mapping[str, int]) -> tuple[int, ...]:
    """The axes of a shape that no axis of the mesh divides.

    Args:
        mesh: the axes and their sizes.
    """
    parts = [size for size in mesh.values() if size > 1]
    return tuple([i for i, n in enumerate(shape) if parts and all(n % size for size in parts)])


class _Replay:
    """Binds the equations of jaxprs again, with constraints on operands and results."""

    def __init__(self, mesh: jax.sharding.Mesh) -> None:
        self._mesh = mesh
        self._sizes = dict(mesh.shape)
        # The key is the id of a body. The old body is stored too, so that its id stays unique.
        self._bodies: dict[int, tuple[Any, Any]] = {}

    def run(self, jaxpr: Any, args: Sequence[Any]) -> list[Any]:
        """The results of `jaxpr` (closed or open) for `args`."""
        inner = getattr(jaxpr, "jaxpr", jaxpr)
        values: dict[Any, Any] = dict(
            zip(inner.constvars, getattr(jaxpr, "consts", ()), strict=True)
        )
        values.update(zip(inner.invars, args, strict=True))

        def read(atom: Any) -> Any:
            return atom.val if isinstance(atom, Literal) else values[atom]

        for eqn in inner.eqns:
            name = str(eqn.source_info.name_stack)  # which profilers show
            with jax.named_scope(name) if name else nullcontext():
                results = self._bind(eqn, [read(atom) for atom in eqn.invars])
            values.update(zip(eqn.outvars, results, strict=True))
        return [read(atom) for atom in inner.outvars]

    def _bind(self, eqn: Any, operands: Sequence[Any]) -> Sequence[Any]:
        name = eqn.primitive.name
        if name in _INLINED:
            return self.run(eqn.params[_INLINED[name]], operands)
        taken, given = whole_axes(eqn, self._mesh)
        operands = [self._whole(x, axes) for x, axes in zip(operands, taken, strict=True)]
        params = {key: self._with_body(value) for key, value in eqn.params.items()}
        results = eqn.primitive.bind(*operands, **params)
        listed = results if eqn.primitive.multiple_results else [results]
        return [
            self._whole(x, {*axes, *uneven_axes(x.shape, self._sizes)})
            for x, axes in zip(listed, given, strict=True)
        ]

    def _whole(self, x: Any, axes: Collection[int]) -> Any:
        if not axes or not isinstance(x.dtype, np.dtype):  # JAX's random keys have no NumPy dtype
            return x
        spec = PartitionSpec(*[None if i in axes else _FREE for i in range(len(x.shape))])
        return lax.with_sharding_constraint(x, NamedSharding(self._mesh, spec))

    def _with_body(self, value: Any) -> Any:
        """A parameter of an equation, with constraints in its bodies."""
        if isinstance(value, (Jaxpr, ClosedJaxpr)):
            if id(value) not in self._bodies:
                self._bodies[id(value)] = (value, self._body(value))
            return self._bodies[id(value)][1]
        if isinstance(value, tuple) and any(isinstance(v, (Jaxpr, ClosedJaxpr)) for v in value):
            made = [self._with_body(v) for v in value]
            return type(value)(*made) if hasattr(value, "_fields") else tuple(made)
        return value

    def _body(self, jaxpr: Any) -> Any:
        """A body with constraints: closed or open, as `jaxpr` is."""
        inner = getattr(jaxpr, "jaxpr", jaxpr)
        shapes = [
            jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype, weak_type=v.aval.weak_type)
            for v in inner.invars
        ]

        def body(*args: Any) -> list[Any]:
            return self.run(jaxpr, args)

        made = jax.make_jaxpr(body)(*shapes)
        # An open body has no constants, and constraints add none.
        return made if isinstance(jaxpr, ClosedJaxpr) else made.jaxpr
