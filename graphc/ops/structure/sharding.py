"""Shard: annotates how a tensor or a variable is distributed over a mesh of devices."""

from __future__ import annotations

from collections.abc import Sequence
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
from graphc.ops.core.defining import define
from graphc.ops.core.emit import convert, emit_one
from graphc.typing import TensorLike

__all__ = ["shard"]

SpecLike = Sequence[str | Sequence[str] | None]
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
    """The plan repeats the spec, so that no pass applies the node to a piece of x or to another
    shape: mesh axes may not divide that."""
    return LayoutPlan([x], [x], None if isinstance(x, Partial) else node.attrs)


SHARD = define(
    "Shard(x) -> y",
    precision="follow",
    attrs={"spec": Attr("spec", doc="the mesh axes along which each axis is split")},
    infer=_infer_shard,
    lower=_lower_shard,
    gradient=lambda ctx, node, dy: [ctx.ops.shard(dy, node.attrs["spec"])],
    layout=_layout_shard,
    cost=free,
    doc="The operand, split over the devices of a mesh by `spec`; without a mesh, the operand. "
    "The adjoint is split in the same way. All dtypes. Source: GSPMD (Xu et al. 2021), "
    "`jax.lax.with_sharding_constraint`.",
)


@overload
def shard(x: V, spec: SpecLike, *, name: str | None = None) -> V: ...  # type: ignore[overload-overlap]
@overload
def shard(x: TensorLike, spec: SpecLike, *, name: str | None = None) -> Tensor: ...
def shard(x: TensorLike, spec: SpecLike, *, name: str | None = None) -> Tensor | Variable:
    """Annotates how `x` is distributed over a `gc.devices.Mesh`. Without a mesh it has no effect.

    The annotation does not change the meaning of the program. XLA derives from a few annotations
    what each device computes and what the devices exchange (GSPMD: Xu et al. 2021). Megatron-LM
    (Shoeybi et al. 2019) annotates a layer of two products with `(None, "model")` for the first
    kernel and `("model", None)` for the second.

    Args:
        x: a tensor; or a variable, before the graph's first run. The optimizer's slots of the
            variable's shape, under its name, are distributed in the same way unless they have
            their own annotation.
        spec: for each axis None (not split), the name of a mesh axis, or a tuple of such names
            (split along all of them). Missing entries at the end are None.

    Returns:
        `x` with the annotation: a new tensor, or the variable itself.

    Raises:
        AttributeValueError: `spec` is invalid, or it names a mesh axis twice.
        ShapeError: `spec` has more entries than `x` has axes.
        GraphFinalizedError: the graph of the variable has run.

    Compilation checks that the mesh has these axes and that the sizes divide by them.

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
            f"shard: the graph has run, and variable {variable.name!r} already has a layout",
            source=source,
            hint="annotate variables before the first run",
        )
    if variable.shard not in (None, wanted):
        raise AttributeValueError(
            f"shard: variable {variable.name!r} has the annotation {variable.shard} already, by "
            f"{variable.shard_source}",
            source=source,
            hint="annotate it once",
        )
    variable.shard, variable.shard_source = wanted, source
    return variable


OPS: tuple[OpDef, ...] = (SHARD,)
