"""`gc.gradients`: its arguments, and the errors for arguments that have no gradient."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NoReturn, TypeAlias, overload

from graphc.autodiff.accumulation import accumulate
from graphc.errors import AttributeValueError, GradientError, GraphError
from graphc.ir.dtypes import is_inexact
from graphc.ir.graph import Graph
from graphc.ir.node import Node, Tensor, describe_tensors
from graphc.ir.opdef import PURE, Effects
from graphc.ir.scopes import AMBIENT, absolute_scope, building, no_control_inputs
from graphc.ir.variable import Variable
from graphc.ops.catalogue import FUNCTIONS
from graphc.ops.core.checks import refuse, same_shape
from graphc.ops.core.emit import convert
from graphc.typing import TensorLike

Differentiable: TypeAlias = Tensor | Variable


@overload
def gradients(
    ys: Differentiable | Sequence[Differentiable],
    xs: Differentiable,
    grad_ys: TensorLike | Sequence[TensorLike | None] | None = None,
    *,
    unconnected: Literal["error", "zero"] = "error",
    colocate: bool = True,
    name: str = "gradients",
) -> Tensor: ...


@overload
def gradients(
    ys: Differentiable | Sequence[Differentiable],
    xs: Sequence[Differentiable],
    grad_ys: TensorLike | Sequence[TensorLike | None] | None = None,
    *,
    unconnected: Literal["error", "zero"] = "error",
    colocate: bool = True,
    name: str = "gradients",
) -> list[Tensor]: ...


@overload
def gradients(
    ys: Differentiable | Sequence[Differentiable],
    xs: Differentiable,
    grad_ys: TensorLike | Sequence[TensorLike | None] | None = None,
    *,
    unconnected: str,
    colocate: bool = True,
    name: str = "gradients",
) -> Tensor | None: ...


@overload
def gradients(
    ys: Differentiable | Sequence[Differentiable],
    xs: Sequence[Differentiable],
    grad_ys: TensorLike | Sequence[TensorLike | None] | None = None,
    *,
    unconnected: str,
    colocate: bool = True,
    name: str = "gradients",
) -> list[Tensor | None]: ...


def gradients(
    ys: Differentiable | Sequence[Differentiable],
    xs: Differentiable | Sequence[Differentiable],
    grad_ys: TensorLike | Sequence[TensorLike | None] | None = None,
    *,
    unconnected: str = "error",
    colocate: bool = True,
    name: str = "gradients",
) -> Tensor | list[Tensor] | list[Tensor | None] | None:
    """The gradients of the sum of `ys` with respect to each of `xs`.

    Args:
        ys: a tensor or a list of tensors, floating or complex.
        xs: a tensor, a variable, or a list of them. The gradient with respect to a variable is
            the sum over all its reads.
        grad_ys: adjoints of `ys`, of their types; ones by default. Complex adjoints follow
            `jax.vjp`: nothing is conjugated.
        unconnected: what to do if no y depends on an x: "error", "zero" or "none".
        colocate: whether gradient nodes request the devices of the nodes that they differentiate.
            With False, they request the device that `gc.device` sets here.

    Returns:
        A list of tensors of the types of `xs` (None for an unconnected x, if requested); one tensor
            if `xs` is not a list.

    Raises:
        GradientError: there is no path from an x to the ys, one of them is an integer, or an
            operator cannot be differentiated.

    Examples:
        >>> x = gc.constant([1.0, 2.0, 3.0])
        >>> run(gc.gradients(gc.reduce_sum(x**2), x))
        Array([2., 4., 6.], dtype=float32)
    """
    _check_unconnected(unconnected)
    y_list = [convert(y) for y in _as_list(ys)]
    x_list = _as_list(xs)
    if not y_list:
        refuse(
            "there is nothing to differentiate: ys is empty",
            hint="the loss comes first: gc.gradients(loss, variables)",
            error=GradientError,
        )
    seeds = [None] * len(y_list) if grad_ys is None else _as_list(grad_ys)
    graph = AMBIENT.graphs[-1] if AMBIENT.graphs else y_list[0].graph
    if graph is None:
        refuse("the ys do not belong to a graph", error=GradientError)
    with building(graph), no_control_inputs(), absolute_scope(f"{AMBIENT.name_scope}{name}/"):
        found = _gradients(graph, y_list, x_list, seeds, unconnected, colocate)
    return found if isinstance(xs, (list, tuple)) else found[0]


def _check_unconnected(unconnected: object) -> None:
    if unconnected not in ("error", "zero", "none"):
        raise AttributeValueError.here(
            f'unconnected must be "error", "zero" or "none", got {unconnected!r}',
            hint='"zero" gives zeros where no path leads to a variable, "none" gives None',
        )


def _gradients(
    graph: Graph,
    ys: Sequence[Tensor],
    xs: list[Any],
    seeds: list[Any],
    unconnected: str,
    colocate: bool,
) -> list[Tensor | None]:
    ys = [graph.adopt(y) for y in ys]
    _check_inexact("y", ys)
    _check_inexact("x", xs)
    adjoints = [_checked_seed(y, seed) for y, seed in zip(ys, _padded(seeds, ys), strict=True)]
    for x in xs:
        if x.graph is None or x.graph.root is not graph.root:
            raise GraphError.here(
                f"{x.name!r} belongs to another graph than the ys",
                hint="differentiate in the graph that both were built in",
            )
    _refuse_carried(graph, ys, xs)
    found = accumulate(graph, ys, _tensors_of(graph, xs), adjoints, colocate)
    for i, x in enumerate(xs):
        if found[i] is None and unconnected == "error":
            _refuse_unconnected(x, ys)
        if found[i] is None and unconnected == "zero":
            found[i] = FUNCTIONS.zeros(x.shape, x.dtype)
    return found


def _padded(seeds: list[Any], ys: list[Tensor]) -> list[Any]:
    if len(seeds) != len(ys):
        raise GradientError.here(
            f"{len(ys)} ys but {len(seeds)} grad_ys", hint="give one adjoint, or None, for each y"
        )
    return seeds


def _as_list(items: Any) -> list[Any]:
    return list(items) if isinstance(items, (list, tuple)) else [items]


def _check_inexact(what: str, items: Sequence[Any]) -> None:
    for item in items:
        if not isinstance(item, (Tensor, Variable)):
            raise GradientError.here(
                f"{what} must be a tensor or a variable, got {item!r}",
                hint=_differentiable_hint(item),
            )
        if not is_inexact(item.dtype):
            raise GradientError.here(
                f"{item.name!r} is {item.dtype.name}: only floating and complex tensors have "
                "gradients",
                hint="gc.cast it to float32 first, where a derivative makes sense",
            )


def _differentiable_hint(item: Any) -> str:
    if isinstance(item, str):
        return "a variable is found by its name: graph.variable(name)"
    if isinstance(item, Mapping):
        return "a list: gradients(y, list(parameters.values())), in the order of the dict"
    if hasattr(item, "trainable_variables"):
        return "layer.trainable_variables are those of a layer"
    return "xs are tensors and variables, one or a list of them"


def _checked_seed(y: Tensor, seed: Any) -> Tensor | None:
    if seed is None:
        return None
    tensor = convert(seed, y.dtype)
    if tensor.dtype != y.dtype or not same_shape(tensor.shape, y.shape, y):
        raise GradientError.here(
            f"the adjoint of {y.name!r} must be {y.type}, got {tensor.type}",
            details=describe_tensors({"y": y, "grad_y": tensor}),
            hint="grad_ys has the shape and the dtype of ys",
        )
    return tensor


def _refuse_unconnected(x: Tensor | Variable, ys: Sequence[Tensor]) -> NoReturn:
    names = ", ".join(repr(y.name) for y in ys)
    hint = (
        "the y must be computed from the x by differentiable operators (not argmax, "
        'comparisons, casts to integers, stop_gradient); unconnected="zero" gives zeros'
    )
    if isinstance(x, Variable) and not x.trainable:  # such as a moving average of batch norm
        hint = "the variable is not trainable: leave it out, as a layer's trainable_variables do"
    refuse(
        f"no gradient path from {x.name!r} to {names}",
        error=GradientError,
        hint=hint,
        **{f"y{i}": y for i, y in enumerate(ys)},
    )


def _tensors_of(graph: Graph, xs: Sequence[Tensor | Variable]) -> list[list[Tensor]]:
    """The tensors of `graph` that represent each x: the tensor itself, its captures, or the reads
    of a variable."""
    reads: dict[str, list[Tensor]] = {x.name: [] for x in xs if isinstance(x, Variable)}
    if reads:
        for node in graph.nodes:
            if node.op.effects is not PURE and node.op.effects & Effects.READ:
                reads.get(node.attrs["variable"], []).append(node.outputs[0])
    return [[graph.captures.get(x, x)] if isinstance(x, Tensor) else reads[x.name] for x in xs]


def _refuse_carried(graph: Graph, ys: Sequence[Tensor], xs: Sequence[Tensor | Variable]) -> None:
    """Raises if a body on the path to the ys reads and assigns a variable among the xs.

    Its later values are computed from the first one, and the gradient would have to pass
    through the assignments.
    """
    wanted = {x.name for x in xs if isinstance(x, Variable)}
    needed = set(ys)
    for node in reversed(graph.nodes) if wanted else ():
        if needed.isdisjoint(node.outputs):
            continue
        needed.update(node.inputs)
        inside = [inner for body in node.regions for inner in body.walk()]
        carried = wanted & _variables(inside, Effects.READ) & _variables(inside, Effects.WRITE)
        if carried:
            raise GradientError(
                f"no gradient with respect to {min(carried)!r}: the body of {node.op.name} "
                f"{node.name!r} assigns it, and the gradient does not pass through assignments",
                source=node.source,
                hint="give the body variable.read(), and assign its result outside",
            )


def _variables(nodes: Sequence[Node], effect: Effects) -> set[str]:
    return {node.attrs["variable"] for node in nodes if node.op.effects & effect}
