"""Shard: how a tensor lies on a mesh of devices; and `shard`, which says so of variables too."""

from __future__ import annotations

from typing import Any, TypeVar, overload

from jax import lax
from jax.sharding import NamedSharding, PartitionSpec

from graphc.errors import AttributeValueError, GraphFinalizedError
from graphc.ir.layouts import Layout, LayoutContext, LayoutPlan, Partial
from graphc.ir.node import Node, Tensor
from graphc.ir.opdef import Attr, InferContext, LowerContext, OpDef
from graphc.ir.scopes import AMBIENT
from graphc.ir.sharding import Spec, as_spec
from graphc.ir.source import current_source
from graphc.ir.types import TensorType
from graphc.ir.variable import Variable
from graphc.ops.core.cost_rules import free
from graphc.ops.core.emit import convert, emit_one

__all__ = ["shard"]

V = TypeVar("V", bound=Variable)


def _infer_shard(ctx: InferContext, x: TensorType, *, spec: Spec) -> TensorType:
    ctx.require(
        len(spec) == x.rank,
        f"{len(spec)} entries for {x}, which has {x.rank} axes",
        hint="pass one entry for each axis",
    )
    return x


def _lower_shard(ctx: LowerContext, x: Any, *, spec: Spec) -> Any:
    if ctx.mesh is None:
        return x
    return lax.with_sharding_constraint(x, NamedSharding(ctx.mesh, PartitionSpec(*spec)))


def _layout_shard(ctx: LayoutContext, node: Node, x: Layout) -> LayoutPlan:
    """The spec is stated again, for the node must not be taken for one that would do the same to
    any piece of x, or to x of another shape: mesh axes may not divide that."""
    return LayoutPlan([x], [x], None if isinstance(x, Partial) else node.attrs)


SHARD = OpDef(
    name="Shard",
    signature="x -> y",
    precision="follow",
    attrs={"spec": Attr("spec", doc="for each axis the mesh axes that it is cut along")},
    infer=_infer_shard,
    lower=_lower_shard,
    gradient=lambda ctx, node, dy: [ctx.ops.shard(dy, node.attrs["spec"])],
    layout=_layout_shard,
    cost=free,
    doc="The operand, cut over the devices of a mesh as `spec` says; without a mesh, the operand. "
    "The adjoint lies likewise. All dtypes. Source: GSPMD (Xu et al. 2021), "
    "`jax.lax.with_sharding_constraint`.",
)


@overload
def shard(x: V, spec: Any, *, name: str | None = None) -> V: ...
@overload
def shard(x: Any, spec: Any, *, name: str | None = None) -> Tensor: ...
def shard(x: Any, spec: Any, *, name: str | None = None) -> Any:
    """Says how `x` lies on the devices of a `gc.devices.Mesh`; without one it means nothing.

    The program stays the same program: what each device then computes, and what they exchange,
    XLA works out from such annotations (GSPMD: Xu et al. 2021), so that a few are enough. Those of
    Megatron-LM (Shoeybi et al. 2019) for a layer of two products: `(None, "model")` for the first
    kernel, `("model", None)` for the second one.

    Args:
        x: a tensor; or a variable, which is then kept so, before the graph's first run. What an
            optimizer keeps for it in its shape, under its name, lies likewise unless it has an
            annotation of its own.
        spec: for each axis None (whole), the name of an axis of the mesh, or a tuple of such
            names (cut along all of them); entries left out at the end are None.

    Returns:
        `x` with that annotation: a new tensor, or the variable itself.

    Raises:
        AttributeValueError: no such spec, or a mesh axis twice in it.
        ShapeError: more entries than axes.
        GraphFinalizedError: the graph of the variable has run.

    Whether a mesh has these axes, and sizes divide by them, is checked when it is compiled.

    >>> import graphc as gc
    >>> with gc.Graph() as g:
    ...     x = gc.placeholder((None, 8), name="x")
    ...     kernel = gc.variable(gc.nn.initializers.Ones(), shape=(8, 16))
    ...     kernel = gc.shard(kernel, (None, "model"))
    ...     y = gc.shard(x @ kernel, ("data", "model"))
    >>> kernel.shard
    (None, 'model')
    """
    source = AMBIENT.source or current_source()
    if isinstance(x, Variable):
        return _shard_variable(x, spec, source)
    x = convert(x)
    return emit_one(SHARD, (x,), name, spec=as_spec(spec, x.type, "shard", source))


def _shard_variable(variable: Variable, spec: Any, source: Any) -> Variable:
    wanted = as_spec(spec, variable.type, f"shard: variable {variable.name!r}", source)
    if variable.graph.finalized:
        raise GraphFinalizedError(
            f"shard: the graph has run, and variable {variable.name!r} lies somewhere",
            source=source,
            hint="annotate variables before the first run",
        )
    if variable.shard not in (None, wanted):
        raise AttributeValueError(
            f"shard: variable {variable.name!r} lies {variable.shard} already, by "
            f"{variable.shard_source}",
            source=source,
            hint="annotate it once",
        )
    variable.shard, variable.shard_source = wanted, source
    return variable


OPS: tuple[OpDef, ...] = (SHARD,)
