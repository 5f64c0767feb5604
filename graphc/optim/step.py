"""`minimize`: a training step from a loss and an optax transformation, as visible nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import optax

from graphc.autodiff import gradients
from graphc.collection import without_collection
from graphc.config import DEFAULT
from graphc.errors import (
    AttributeValueError,
    DTypeError,
    GradientError,
    GraphError,
    JaxImportError,
    ShapeError,
)
from graphc.ir.dtypes import is_floating
from graphc.ir.graph import Graph
from graphc.ir.node import Node, Tensor, describe_tensors
from graphc.ir.scopes import AMBIENT, absolute_scope, building, name_scope, no_control_inputs
from graphc.ir.source import current_source
from graphc.ir.variable import Variable
from graphc.ops.emit import constant
from graphc.ops.state import GROUP, node_names
from graphc.ops.training import loss_adjoint, step_gradients, step_updates
from graphc.optim.kept import Cache, recipe_of
from graphc.optim.objective import Objective, objective_of
from graphc.optim.recipe import NeedsObjective, paste
from graphc.optim.slots import make_slots
from graphc.optim.updates import updates_of


@without_collection()
def minimize(
    loss: Tensor,
    tx: optax.GradientTransformation,
    *,
    variables: Iterable[Variable] | None = None,
    name: str = "train",
    accumulate: int = 1,
    cache: Cache = DEFAULT,
) -> Node:
    """One step of `tx` down the gradient of `loss`: a node to fetch in each training run.

    The gradients, the jaxprs of the transformation's `init` and `update`, and the assignments
    become nodes under the name scope `name`, which passes see and `graphc inspect` shows. All of
    them use the parameters' values from before the step. Its state becomes variables that are
    not trainable: `<parameter>/<name>/<path>` for what it keeps for a parameter,
    `<name>/<path>` otherwise, where the path is that of the leaf in optax's state:
    `hidden/kernel/train/0/mu`, `train/0/count`. Fetching the node runs the assignments of the
    collection "updates" too that have to do with the loss (moving averages of batch norm).

    Args:
        loss: floating, a scalar.
        tx: any optax transformation. It is called with the parameters, as a dict from their
            names (for masks and `optax.partition`), and, if it takes extra arguments, with
            `value=loss`, `grad=` the gradients, and the loss and its gradients as functions of
            such a dict, `value_fn=` (also `obj_fn=`) and `grad_fn=`. So line searches
            (`optax.lbfgs()`) find the loss at other parameters, for the same feeds and random
            keys, as often as they ask, and `optax.contrib.sophia` products with its Hessian.
            `optax.MultiSteps` accumulates over runs.
        variables: the parameters; by default all trainable variables that the loss depends on.
        name: of the node, and the scope of what it is made of.
        accumulate: into how many micro-batches the batch that is fed is cut for the gradients, one
            after the other: the same step, but for random draws, in the memory of a micro-batch.
            What the loss takes of the whole batch before its gradient (`gc.nn.BatchNorm` in
            training, but for `local=True`) is an error when the step is compiled.
        cache: the folder where what JAX traced of `tx` is kept for later processes, or None to
            trace it anew; by default that of `gc.CompileOptions`. It is found again by what the
            functions of `tx` are and hold: another rate, schedule or mask is another entry, and a
            function of one's own that reaches for more than numbers, `jax.numpy`, `optax` and the
            like has none.

    Returns:
        The node; fetching it gives None.

    Raises:
        ShapeError, DTypeError: the loss is not a floating scalar.
        GradientError: no gradient path from one of `variables`, or none at all, to the loss; a
            line search, and the loss draws, assigns or calls back inside a loop or branch.
        JaxImportError: the transformation holds what cannot become nodes.
        GraphFinalizedError: the graph has run. Errors of optax's own pass through.
    """
    source = AMBIENT.source or current_source()
    graph = _check_loss(loss)
    if type(accumulate) is not int or accumulate < 1:
        raise AttributeValueError(
            f"minimize: accumulate must be an int of at least 1, got {accumulate!r}",
            source=source,
            mend="pass into how many micro-batches to cut a batch",
        )
    if not (callable(getattr(tx, "init", None)) and callable(getattr(tx, "update", None))):
        raise AttributeValueError(
            f"minimize: {tx!r} is no optax transformation",
            source=source,
            mend="pass one, such as optax.adam(1e-3)",
        )
    inside: AbstractContextManager[Any] = nullcontext() if AMBIENT.graphs else building(graph)
    with inside:
        label = graph.unique_name(name)
        with no_control_inputs(), absolute_scope(f"{label}/"):
            slopes = _gradients(graph, loss, variables, label)
            assigned = _add_step(loss, tx, slopes, label, cache, accumulate)
        items = [*updates_of(graph, loss), *assigned]
        chosen = tuple(dict.fromkeys(AMBIENT.control_inputs + node_names(items)))
        node = Node(
            GROUP, (), (), name=label, source=source, device=AMBIENT.device, control_inputs=chosen
        )
        graph.restore(node)  # under the name that was taken for it before its parts were made
    return node


def _check_loss(loss: Any) -> Graph:
    """The graph of the loss.

    Raises:
        GraphError, ShapeError, DTypeError: it cannot be minimized.
    """
    source = AMBIENT.source or current_source()
    if not isinstance(loss, Tensor) or loss.graph is None:
        raise GraphError(f"minimize: the loss must be a tensor, got {loss!r}", source=source)
    details = describe_tensors({"loss": loss})
    if loss.shape != ():
        raise ShapeError(
            f"minimize: the loss must be a scalar, got {loss.type}",
            details=details,
            source=source,
            mend="take its gc.reduce_mean or gc.reduce_sum",
        )
    if not is_floating(loss.dtype):
        raise DTypeError(
            f"minimize: the loss must be floating, got {loss.type}", details=details, source=source
        )
    elsewhere = bool(AMBIENT.graphs) and AMBIENT.graphs[-1] is not loss.graph
    if elsewhere or loss.graph.parent is not None:
        raise GraphError(
            f"minimize: the loss {loss.name!r} is not of the graph being built",
            details=details,
            source=source,
            mend="minimize in the graph of the loss, outside the bodies of gc.scan and the like",
        )
    return loss.graph


def _gradients(
    graph: Graph, loss: Tensor, variables: Iterable[Variable] | None, label: str
) -> dict[Variable, Tensor]:
    """The gradient for each parameter, of the step `label`."""
    one = loss_adjoint(constant(1, loss.dtype), label)
    if variables is not None:
        given = list(dict.fromkeys(variables))
        if not given:
            raise GradientError("minimize: no variables are given", source=current_source())
        return dict(zip(given, gradients(loss, given, one), strict=True))
    trainable = [v for v in graph.variables.values() if v.trainable]
    found = gradients(loss, trainable, one, unconnected="none") if trainable else []
    slopes = {v: g for v, g in zip(trainable, found, strict=True) if g is not None}
    if not slopes:
        raise GradientError(
            f"minimize: the loss {loss.name!r} depends on no trainable variable",
            details=describe_tensors({"loss": loss}),
            source=AMBIENT.source or current_source(),
            mend="calculate it from variables by differentiable operators",
        )
    return slopes


def _add_step(
    loss: Tensor,
    tx: Any,
    slopes: Mapping[Variable, Tensor],
    label: str,
    cache: Cache,
    accumulate: int,
) -> list[Tensor]:
    """The nodes of the step; gives the assignments."""
    parameters = sorted(slopes, key=lambda v: v.name)  # as JAX sorts dicts
    reads = [v.read() for v in parameters]
    types = {v.name: t.type for v, t in zip(parameters, reads, strict=True)}
    objective: Objective | None = None
    try:
        try:
            recipe = recipe_of(tx, types, loss.type, label, cache)
        except NeedsObjective:
            objective = objective_of(loss, parameters)
            captured = [t.type for t in objective.captured]
            recipe = recipe_of(tx, types, loss.type, label, cache, captured)
        with name_scope("init"):
            slots = make_slots(recipe.slots, paste(recipe.init, reads), parameters, label)
        state = [slot.read() for slot in slots]
        adjoints = step_gradients([slopes[v] for v in parameters], label, accumulate)
        taken = [*adjoints, *state, *reads, loss]
        with name_scope("update"):
            if objective is None:
                results = paste(recipe.update, taken)
            else:
                taken += objective.captured
                results = paste(recipe.update, taken, objective.body_for)
    except JaxImportError as error:
        raise JaxImportError(
            f"minimize: this optax transformation cannot be used: {error.what}",
            details=error.details,
            source=AMBIENT.source or current_source(),
            mend=error.mend,
        ) from error
    results = list(step_updates([*reads, *state], results, label))
    return [v.assign(t) for v, t in zip([*parameters, *slots], results, strict=True)]
