"""`minimize`: turns a loss and an optax transformation into a training step of visible nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import optax

from graphc.autodiff import gradients
from graphc.collection import without_collection
from graphc.errors import AttributeValueError, DTypeError, GradientError, GraphError, JaxImportError
from graphc.ir.dtypes import is_floating
from graphc.ir.graph import Graph
from graphc.ir.node import Node, Tensor, is_among
from graphc.ir.operand import Operand
from graphc.ir.program import Program
from graphc.ir.scopes import (
    AMBIENT,
    absolute_scope,
    building,
    exact_device,
    name_scope,
    no_control_inputs,
    requested_device,
)
from graphc.ir.source import current_source
from graphc.ir.types import TensorType
from graphc.ir.variable import Variable
from graphc.ops.core.checks import refuse
from graphc.ops.core.emit import constant, convert, graph_of
from graphc.ops.structure.state import GROUP, node_names
from graphc.ops.structure.training import loss_adjoint, step_gradients, step_updates
from graphc.optim.objective import Objective, objective_of
from graphc.optim.recipe import NeedsObjective, NeedsTensor, Recipe, paste
from graphc.optim.slots import make_slots
from graphc.optim.traced import traced
from graphc.optim.updates import updates_of


@without_collection()
def minimize(
    loss: Tensor,
    tx: optax.GradientTransformation,
    *,
    variables: Iterable[Variable] | None = None,
    name: str = "train",
    accumulate: int = 1,
) -> Node:
    """One step of `tx` down the gradient of `loss`: a node to fetch in each training run.

    The gradients, the jaxprs of the transformation's `init` and `update`, and the assignments
    become nodes under the name scope `name`, which passes see and `graphc inspect` shows. All of
    them use the values that the parameters have before the step. The state of the transformation
    becomes variables that are not trainable: `<parameter>/<name>/<path>` for state of one
    parameter, `<name>/<path>` otherwise. The path is that of the leaf in optax's state:
    `hidden/kernel/train/0/mu`, `train/0/count`. Fetching the node also runs the assignments of the
    collection "updates" that belong to the loss (moving averages of batch norm).

    Args:
        loss: a floating scalar.
        tx: any optax transformation. It receives the parameters as a dict by name (for masks and
            `optax.partition`). If it takes extra arguments, it also receives `value=loss`, the
            gradients as `grad=`, and the loss and its gradients as functions of such a dict,
            `value_fn=` (also `obj_fn=`) and `grad_fn=`. Line searches (`optax.lbfgs()`) can thus
            evaluate the loss at other parameters, for the same feeds and random keys, any number of
            times, and `optax.contrib.sophia` can use products with its Hessian. `optax.MultiSteps`
            accumulates over runs.
        variables: the parameters; by default all trainable variables that the loss depends on.
        name: the name of the node, and the scope of the nodes and variables that belong to it.
        accumulate: the number of micro-batches into which the fed batch is divided for the
            gradients. They are computed one after the other. The step is the same, except for
            random draws, but needs the memory of one micro-batch only. If the loss computes
            something from the whole batch before its gradient (`gc.nn.BatchNorm` in training,
            unless `local=True`), compiling the step raises an error.

    Returns:
        The node; fetching it returns None.

    Raises:
        ShapeError, DTypeError: the loss is not a floating scalar.
        AttributeValueError: `tx` is not an optax transformation, or `accumulate` is not a positive
            int.
        GradientError: there is no gradient path from the loss to one of `variables`, or to any
            variable; or, with a line search, the loss draws random numbers, assigns or calls back
            inside a loop or branch.
        JaxImportError: the transformation contains something that cannot become nodes.
        GraphFinalizedError: the graph has run. Errors that optax raises are passed on.

    Examples:
        >>> w = gc.variable([4.0, 2.0], name="w")
        >>> train = gc.minimize(gc.reduce_sum(w**2), optax.sgd(0.1))
        >>> run([train, w])  # w - 0.1 * 2 * w
        [None, Array([3.2, 1.6], dtype=float32)]
    """
    graph = check_loss(loss)
    if type(accumulate) is not int or accumulate < 1:
        refuse(
            f"minimize: accumulate must be an int of at least 1, got {accumulate!r}",
            hint="pass the number of micro-batches into which a batch is split",
            error=AttributeValueError,
        )
    check_transformation("minimize", tx)
    inside: AbstractContextManager[Any] = nullcontext() if AMBIENT.graphs else building(graph)
    with inside:
        label = graph.unique_name(name)
        with no_control_inputs(), absolute_scope(f"{label}/"):
            slopes = _gradients(graph, loss, variables, label)
            with exact_device(""):  # the placer puts updates where their variables are
                assigned = add_step(
                    "minimize", tx, slopes, label, loss=loss, accumulate=accumulate,
                    objective=lambda parameters: objective_of(loss, parameters),
                )  # fmt: skip
        return step_node(graph, label, [*updates_of(graph, loss), *assigned])


def step_node(graph: Graph, label: str, items: Iterable[Any]) -> Node:
    """The node that runs `items`, under the name that was reserved before they were created."""
    chosen = tuple(dict.fromkeys(AMBIENT.control_inputs + node_names(items)))
    device = requested_device(GROUP.name, label, ())
    source = AMBIENT.source or current_source()
    node = Node(GROUP, (), (), name=label, source=source, device=device, control_inputs=chosen)
    graph.restore(node)
    return node


def check_transformation(caller: str, tx: Any) -> None:
    """
    Raises:
        AttributeValueError: `tx` is not an optax transformation.
    """
    if not (callable(getattr(tx, "init", None)) and callable(getattr(tx, "update", None))):
        refuse(
            f"{caller}: {tx!r} is not an optax transformation",
            hint="pass one, such as optax.adam(1e-3)",
            error=AttributeValueError,
        )


def check_loss(loss: Any) -> Graph:
    """The graph of the loss.

    Raises:
        GraphError, ShapeError, DTypeError: it cannot be minimized.
    """
    if not isinstance(loss, Tensor) or loss.graph is None:
        refuse(
            f"minimize: the loss must be a tensor, got {loss!r}",
            hint="the loss comes first: gc.minimize(loss, optimizer)"
            if hasattr(loss, "update")
            else "compute the loss with functions of gc, such as gc.reduce_mean((y - t) ** 2)",
            error=GraphError,
        )
    if loss.shape != ():
        refuse(
            f"minimize: the loss must be a scalar, got {loss.type}",
            loss=loss,
            hint="take its gc.reduce_mean or gc.reduce_sum",
        )
    if not is_floating(loss.dtype):
        refuse(
            f"minimize: the loss must be floating, got {loss.type}",
            error=DTypeError,
            loss=loss,
            hint='gc.cast(x, "float32") where integers become numbers',
        )
    elsewhere = bool(AMBIENT.graphs) and AMBIENT.graphs[-1] is not loss.graph
    if elsewhere or loss.graph.parent is not None:
        refuse(
            f"minimize: the loss {loss.name!r} is not of the graph being built",
            error=GraphError,
            loss=loss,
            hint="minimize in the graph of the loss; in the body of gc.cond or a loop, call "
            "gc.train.apply_gradients with its gradients and without loss=",
        )
    return loss.graph


def _gradients(
    graph: Graph, loss: Tensor, variables: Iterable[Variable] | None, label: str
) -> dict[Variable, Tensor]:
    """The gradients of the step `label`, one for each parameter."""
    one = loss_adjoint(constant(1, loss.dtype), label)
    if variables is not None:
        if isinstance(variables, Mapping) or not isinstance(variables, Iterable):
            refuse(
                f"minimize: variables must be a list of variables, got {variables!r}",
                hint="layer.trainable_variables are those of a layer, list(d.values()) of a dict",
                error=AttributeValueError,
            )
        given = list(dict.fromkeys(variables))
        if not given:
            raise GradientError.here(
                "minimize: no variables are given",
                hint="a layer has variables once it is called; without variables= all are trained",
            )
        return dict(zip(given, gradients(loss, given, one), strict=True))
    trainable = [v for v in graph.variables.values() if v.trainable]
    found = gradients(loss, trainable, one, unconnected="none") if trainable else []
    slopes = {v: g for v, g in zip(trainable, found, strict=True) if g is not None}
    if not slopes:
        refuse(
            f"minimize: the loss {loss.name!r} depends on no trainable variable",
            hint="calculate it from variables by differentiable operators",
            error=GradientError,
            loss=loss,
        )
    return slopes


def add_step(
    caller: str,
    tx: Any,
    slopes: Mapping[Variable, Tensor],
    label: str,
    *,
    loss: Tensor | None,
    objective: Callable[[Sequence[Variable]], Objective],
    accumulate: int = 1,
) -> list[Tensor]:
    """Adds the nodes of one step of `tx` for the gradients `slopes`; returns the assignments.

    Args:
        caller: the function that the user called, for errors.
        loss: the loss that the transformation receives, or None.
        objective: returns the loss as a function of the parameters; called only if it is needed.

    Raises:
        JaxImportError: the transformation contains something that cannot become nodes.
        GradientError: it uses the loss, and there is none. Errors of `objective` are passed on.
    """
    parameters = sorted(slopes, key=lambda v: v.name)  # the order in which JAX sorts dicts
    reads = [v.read() for v in parameters]
    types = {v.name: t.type for v, t in zip(parameters, reads, strict=True)}
    value = constant(0, "float32") if loss is None else loss
    try:
        recipe, evaluated, referred = _recipe(tx, types, value.type, label, parameters, objective)
        after = len(referred) + (0 if evaluated is None else len(evaluated.captured))
        if loss is None and _uses(recipe.update, -1 - after):
            refuse(
                f"{caller}: this optax transformation needs the loss, and none was given",
                error=GradientError,
                hint="pass loss=, for example the mean of the towers' losses",
            )
        with name_scope("init"):
            slots = make_slots(recipe.slots, paste(recipe.init, reads), parameters, label)
        state = [slot.read() for slot in slots]
        adjoints = step_gradients([slopes[v] for v in parameters], label, accumulate)
        taken = [*adjoints, *state, *reads, value, *map(convert, referred)]
        with name_scope("update"):
            if evaluated is None:
                results = paste(recipe.update, taken)
            else:
                taken += evaluated.captured
                results = paste(recipe.update, taken, evaluated.body_for)
    except JaxImportError as error:
        raise JaxImportError(
            f"{caller}: this optax transformation cannot be used: {error.what}",
            details=error.details,
            source=AMBIENT.source or current_source(),
            hint=error.hint,
        ) from error
    results = list(step_updates([*reads, *state], results, label))
    return [v.assign(t) for v, t in zip([*parameters, *slots], results, strict=True)]


def _recipe(
    tx: Any,
    types: Mapping[str, TensorType],
    loss: TensorType,
    label: str,
    parameters: Sequence[Variable],
    objective: Callable[[Sequence[Variable]], Objective],
) -> tuple[Recipe, Objective | None, list[Operand]]:
    """The recipe, the objective if the transformation evaluates it, and the tensors of the graph
    to which the transformation refers. The transformation is traced again for each of these that
    it needs."""
    evaluated: Objective | None = None
    captured: list[TensorType] | None = None
    referred: list[Operand] = []
    graph = graph_of(parameters)
    count = len(graph.nodes)
    while True:
        try:
            return traced(tx, types, loss, label, captured, referred), evaluated, referred
        except NeedsObjective:
            evaluated = objective(parameters)
            captured = [t.type for t in evaluated.captured]
        except NeedsTensor as needs:
            if isinstance(needs.operand, Tensor) and needs.operand.node in graph.nodes[count:]:
                raise JaxImportError(
                    f"it makes the tensor {needs.operand!r} whenever it runs",
                    hint="calculate the tensor before, and let the transformation refer to it",
                ) from None
            referred.append(needs.operand)


def _uses(program: Program, number: int) -> bool:
    """Whether a program uses the input with this number."""
    value = program.input_tensors()[number]
    return value in program.users() or is_among(value, program.output_tensors())
