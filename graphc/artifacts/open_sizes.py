"""The named sizes of a signature: those that it fixes, and those that stay open in the file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import jax

from graphc.artifacts.signature import Signature
from graphc.errors import FeedError, UnknownNameError, nearest
from graphc.ir.dim_limits import is_limited, limits_named
from graphc.ir.dims import Dim, DimExpr, as_symbol, symbol, symbols_of
from graphc.ir.graph import Graph
from graphc.ir.node import Tensor
from graphc.ir.program import Program
from graphc.lowering.emit_jax import symbolic


def fixed_sizes(
    graph: Graph, name: str, signature: Signature, inputs: Iterable[Tensor]
) -> dict[str, int]:
    """The sizes that the signature fixes, by the names that represent their classes of equal
    sizes."""
    known = {s: None for t in inputs for dim in t.type.shape for s in sorted(symbols_of(dim))}
    sizes: dict[str, int] = {}
    for given, size in signature.sizes.items():
        dim = graph.constraints.find(symbol(given)) if given in known else None
        if dim is None:
            raise UnknownNameError(
                f"signature {name!r}: no input has a size {given!r}",
                hint=nearest(given, known) or "its inputs have no open sizes",
            )
        stands = as_symbol(dim)
        fixed = dim if stands is None else sizes.setdefault(stands, size)
        if fixed != size:
            raise FeedError(f"signature {name!r}: {given} is {fixed} in the graph, not {size}")
    return sizes


def symbolic_sizes(program: Program) -> dict[str, Any]:
    """The named sizes of a program as JAX's symbolic ones."""

    def sizes(conditions: Sequence[str]) -> dict[str, Any]:
        scope = jax.export.SymbolicScope(conditions)
        return {
            name: jax.export.symbolic_shape(f"d{i}", scope=scope)[0]
            for i, name in enumerate(program.symbols())
        }

    shapes = [tensor.type.shape for node in program.walk() for tensor in node.outputs]
    limited = {dim: None for shape in shapes for dim in shape if _may_seem_negative(dim)}
    free = sizes(())
    return sizes([f"{symbolic(dim, free)} >= 0" for dim in limited]) if limited else free


def _may_seem_negative(dim: Dim) -> bool:
    """Whether JAX must be told that a size is not negative. Each such condition multiplies the time
    that JAX needs to compare sizes."""
    if not is_limited(dim):
        return False
    named, _ = limits_named(dim)
    return is_limited(named) or (isinstance(named, DimExpr) and any(c < 0 for _, c in named.terms))


def how_to_fix(program: Program) -> str:
    """The hint for a program whose named sizes must have values."""
    sizes = ", ".join([f"{size!r}: ..." for size in program.symbols()])
    return f"fix the sizes: gc.Signature(..., sizes={{{sizes}}})"
