"""`apply_gradients`: one step of an optax transformation along given gradients."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from typing import Any, NoReturn

import optax

from graphc.collection import without_collection
from graphc.errors import DTypeError, GradientError, GraphError, ShapeError
from graphc.ir.graph import Graph
from graphc.ir.node import Node, Tensor
from graphc.ir.scopes import AMBIENT, absolute_scope, building, exact_device, no_control_inputs
from graphc.ir.variable import Variable
from graphc.ops.core.checks import refuse, same_shape
from graphc.optim.step import add_step, check_loss, check_transformation, step_node


@without_collection()
def apply_gradients(
    grads_and_vars: Iterable[tuple[Tensor | None, Variable]],
    tx: optax.GradientTransformation,
    *,
    loss: Tensor | None = None,
    name: str = "train",
) -> Node:
    """One step of `tx` along given gradients: a node to fetch in each training run.

    This is the second part of `gc.minimize`, with the same names and slots. Use it for gradients
    that you average over towers, clip, or compute yourself. In the body of a branch or a loop, it
    makes a step whenever the body runs; `loss` cannot be passed there. It does not run the
    assignments of the collection "updates" (moving averages of batch norm): `gc.group` them with
    it. Dynamic loss scaling applies only to gradients of a scaled loss.

    Args:
        grads_and_vars: pairs of a gradient and a variable, of the same shape and dtype. Pairs with
            None as the gradient are omitted.
        tx: any optax transformation; see `gc.minimize`.
        loss: a floating scalar, for transformations that use it
            (`optax.contrib.reduce_on_plateau`).
        name: the name of the node, and the scope of the nodes and variables that belong to it.

    Returns:
        The node; fetching it returns None.

    Raises:
        GradientError: there are no gradients, or two for one variable; or the transformation uses
            the loss, which was not passed. Line searches need `gc.minimize`.
        GraphError: an item is not a pair of a tensor and a variable of the same graph.
        ShapeError, DTypeError: a gradient has another type than its variable.
        JaxImportError: the transformation contains something that cannot become nodes.
        GraphFinalizedError: the graph has run. Errors that optax raises are passed on.

    Source: tf.compat.v1.train.Optimizer.apply_gradients.

    Examples:
        >>> w = gc.variable([4.0, 2.0], name="w")
        >>> train = gc.train.apply_gradients([(gc.constant([1.0, -1.0]), w)], optax.sgd(0.5))
        >>> run([train, w])
        [None, Array([3.5, 2.5], dtype=float32)]
    """
    gradients = _checked(grads_and_vars)
    check_transformation("apply_gradients", tx)
    graph = _graph_of(gradients, loss)
    with nullcontext() if AMBIENT.graphs else building(graph):
        label = graph.unique_name(name)
        with no_control_inputs(), absolute_scope(f"{label}/"), exact_device(""):
            assigned = add_step(
                "apply_gradients", tx, gradients, label, loss=loss, objective=_no_objective
            )
        return step_node(graph, label, assigned)


def _checked(pairs: Iterable[Any]) -> dict[Variable, Tensor]:
    """The gradients by variable."""
    found: dict[Variable, Tensor] = {}
    for pair in pairs:
        whole = isinstance(pair, Sequence) and len(pair) == 2
        gradient, variable = pair if whole else (None, None)
        if not isinstance(gradient, Tensor | None) or not isinstance(variable, Variable):
            refuse(
                f"apply_gradients: expected pairs (gradient, variable), got {pair!r}",
                hint="apply_gradients(zip(gc.gradients(loss, variables), variables), tx)",
                error=GraphError,
            )
        if gradient is None:
            continue
        if variable in found:
            refuse(
                f"apply_gradients: two gradients for the variable {variable.name!r}",
                hint="add them up, or average them, first",
                error=GradientError,
            )
        _check_type(gradient, variable)
        found[variable] = gradient
    if not found:
        refuse(
            "apply_gradients: there are no gradients",
            hint="pass pairs: zip(gc.gradients(loss, variables), variables)",
            error=GradientError,
        )
    return found


def _check_type(gradient: Tensor, variable: Variable) -> None:
    same = same_shape(gradient.shape, variable.shape, gradient)
    if gradient.dtype == variable.dtype and same:
        return
    error = DTypeError if gradient.dtype != variable.type.dtype else ShapeError
    refuse(
        f"apply_gradients: the gradient of {variable.name!r} must be {variable.type}, "
        f"got {gradient.type}",
        hint="each pair is (gradient, variable), in the order of the variables of gc.gradients",
        error=error,
        gradient=gradient,
    )


def _graph_of(slopes: dict[Variable, Tensor], loss: Tensor | None) -> Graph:
    """The graph that is being built, to which all gradients and the loss belong: itself, or the
    body of a branch or loop in it."""
    if loss is not None:
        return check_loss(loss)
    first = next(iter(slopes.values())).graph
    graph = AMBIENT.graphs[-1] if AMBIENT.graphs else first and first.root
    strange = [t for t in slopes.values() if graph is None or not _is_visible(t, graph)]
    if graph is None or strange:
        refuse(
            f"apply_gradients: the gradient {strange[0].name!r} is not of the graph being built",
            hint="apply gradients in their own graph, or in a body inside it",
            error=GraphError,
        )
    return graph


def _is_visible(tensor: Tensor, graph: Graph) -> bool:
    inside: Graph | None = graph
    while inside is not None and tensor.graph is not inside:
        inside = inside.parent
    return inside is not None


def _no_objective(parameters: Sequence[Variable]) -> NoReturn:
    refuse(
        "apply_gradients: this optax transformation evaluates the loss at other parameters",
        hint="use gc.minimize(loss, tx), which knows how the loss is calculated",
        error=GradientError,
    )
