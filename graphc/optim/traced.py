"""An optax transformation traced by JAX, and its equations as recorded nodes."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import jax
import optax
from jax import lax
from jax import numpy as jnp

from graphc.errors import JaxImportError
from graphc.interrupts import uninterrupted
from graphc.ir.graph import Graph
from graphc.ir.opdef import Effects
from graphc.ir.operand import Operand
from graphc.ir.operators import capturing
from graphc.ir.program import Program, effects_of, region
from graphc.ir.scopes import AMBIENT, absolute_scope, at_source, building
from graphc.ir.source import current_source
from graphc.ir.types import TensorType
from graphc.jaxpr.keys import is_key
from graphc.jaxpr.objective import loss_and_slopes
from graphc.jaxpr.tracing import Traced, trace
from graphc.ops.draws.random_keys import as_jax_key
from graphc.optim.recipe import NeedsObjective, NeedsTensor, Recipe, Slot


def traced(
    tx: Any,
    parameters: Mapping[str, TensorType],
    loss: TensorType,
    label: str,
    captured: Sequence[TensorType] | None = None,
    referred: Sequence[Operand] = (),
) -> Recipe:
    """The recipe of an optax transformation.

    Args:
        parameters: name -> type, in the order of the names.
        loss: the type of the loss.
        label: the name of the step.
        captured: the types of the values besides the parameters from which the loss is calculated;
            None if they are not known yet.
        referred: the tensors of the graph to which the transformation refers.

    Raises:
        NeedsObjective: it evaluates the loss, and `captured` is None.
        NeedsTensor: it refers to a tensor that is not in `referred`.
        JaxImportError: a part of it cannot be turned into nodes. Errors of optax are passed on.
    """
    tx = optax.with_extra_args_support(tx)
    names, types = list(parameters), list(parameters.values())
    with capturing(_refuse):
        init = uninterrupted(
            trace, lambda *values: tx.init(dict(zip(names, values, strict=True))), types
        )
    fills, own = init.fills(), init.out_types()
    others = [*(operand.type for operand in referred), *(captured or ())]
    taken = [*types, *own, *types, loss, *others]
    update = _trace_update(tx, parameters, init, taken, captured, referred)
    places = {name: place for place, name in enumerate(names)}
    slots = [
        Slot(*_place(path, places), type, fill)
        for path, type, fill in zip(_paths(init.out_tree), own, fills, strict=True)
    ]
    _check_state(slots, names, label, init, update)
    scope = f"{label}/bodies/"  # for nodes in the bodies of nodes
    return Recipe(
        tuple(slots),
        _recorded(init, types, f"{scope}init/", [fill is None for fill in fills]),
        _recorded(update, taken, f"{scope}update/"),
    )


def _trace_update(
    tx: Any,
    parameters: Mapping[str, TensorType],
    init: Traced,
    types: Sequence[TensorType],
    captured: Sequence[TensorType] | None,
    referred: Sequence[Operand],
) -> Traced:
    """`tx.update` and `optax.apply_updates` of flat lists: gradients, state, parameters, loss,
    the tensors to which `tx` refers, and the other values from which the loss is calculated."""
    names, count = list(parameters), len(parameters)
    last = len(types) - len(captured or ()) - len(referred) - 1
    keys = [is_key(aval.dtype) for aval in init.jaxpr.out_avals]

    def update(*values: Any) -> Any:
        adjoints = dict(zip(names, values[:count], strict=True))
        leaves = zip(values[count : last - count], keys, strict=True)
        state = jax.tree.unflatten(init.out_tree, [as_jax_key(v) if k else v for v, k in leaves])
        point = dict(zip(names, values[last - count : last], strict=True))
        others = None if captured is None else values[last + 1 + len(referred) :]
        known = dict(zip(referred, values[last + 1 :], strict=False))
        extras = {"value": values[last], "grad": adjoints}
        extras |= _functions(parameters, others, types[last])
        with capturing(lambda operand: _value_of(operand, known)):
            updates, state = tx.update(adjoints, state, point, **_taken(tx.update, extras))
        return [optax.apply_updates(point, updates), state]

    return uninterrupted(trace, update, types)


def _value_of(operand: Operand, known: Mapping[Operand, Any]) -> Any:
    if operand not in known:
        raise NeedsTensor(operand)
    return known[operand]


def _refuse(operand: Operand) -> NoReturn:
    raise JaxImportError(
        f"its state begins with a value of {operand!r}",
        hint="optax.inject_hyperparams takes numbers: begin with one, and change it by session.set",
    )


def _functions(
    parameters: Mapping[str, TensorType], captured: Sequence[Any] | None, loss: TensorType
) -> dict[str, Callable[..., Any]]:
    """The loss and its gradient as functions of the parameters: `value_fn`, also passed as
    `obj_fn`, and `grad_fn`."""

    def flat(nest: Any) -> list[Any]:
        if captured is None:
            raise NeedsObjective
        if not isinstance(nest, Mapping) or nest.keys() != parameters.keys():
            raise JaxImportError(
                f"it evaluates the loss at {jax.tree.structure(nest)}",
                details=[f"the parameters are {', '.join(parameters)}"],
                hint="give `value_fn` the parameters, changed or not, and nothing else",
            )
        return [
            lax.convert_element_type(jnp.broadcast_to(nest[name], type.shape), type.dtype)
            for name, type in parameters.items()
        ]

    value, slopes = loss_and_slopes(len(parameters), captured or (), loss.dtype)

    def value_fn(nest: Any, grad_fn: Any = None, obj_fn: Any = None) -> Any:
        # Line searches pass on all extra arguments, and raise an error for names it does not have.
        return value(*flat(nest))

    def grad_fn(nest: Any, step: Any = None) -> Any:  # optax.contrib.sam passes `step`
        return dict(zip(parameters, slopes(*flat(nest)), strict=True))

    return {"value_fn": value_fn, "obj_fn": value_fn, "grad_fn": grad_fn}


def _taken(update: Callable[..., Any], extras: Mapping[str, Any]) -> dict[str, Any]:
    """The `extras` that `update` accepts. Some transformations accept only named ones."""
    parameters = inspect.signature(update).parameters
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return dict(extras)
    return {name: value for name, value in extras.items() if name in parameters}


def _check_state(
    slots: Sequence[Slot], names: Sequence[str], label: str, init: Traced, update: Traced
) -> None:
    """Raises unless `update` returns a state with the structure and types of `init`."""
    state_tree = update.out_tree.children()[1]
    types = update.out_types()[len(names) :]
    if state_tree != init.out_tree:
        raise JaxImportError(
            "update returns a state with another structure than that of init",
            details=[f"init    {init.out_tree}", f"update  {state_tree}"],
        )
    for slot, type in zip(slots, types, strict=True):
        if slot.type != type:
            raise JaxImportError(
                f"update makes {type} of the state {slot.name(names, label)!r}, a {slot.type}"
            )


def _recorded(
    traced: Traced, types: Sequence[TensorType], scope: str, used: Sequence[bool] | None = None
) -> Program:
    """The nodes of a traced function. Nodes without a line in the user's code get the current
    line."""
    source = AMBIENT.source or current_source()
    scratch = Graph()
    with building(scratch), absolute_scope(scope), at_source(source):
        inputs = [scratch.add_input(type, f"a{i}") for i, type in enumerate(types)]
        results = traced.replay(inputs, used)
    if any(effects_of(node) & Effects.HOST for node in scratch.nodes):
        raise JaxImportError(
            "it prints or calls back to Python",
            hint="leave that out; gc.print shows tensors of the graph",
        )
    return region(scope, inputs, scratch.nodes, results)


def _paths(tree: Any) -> list[Any]:
    """The path of each leaf of a nest."""
    nest = jax.tree.unflatten(tree, range(tree.num_leaves))
    return [path for path, _ in jax.tree_util.tree_flatten_with_path(nest)[0]]


def _place(path: Sequence[Any], places: Mapping[str, int]) -> tuple[int | None, str]:
    """The parameter that the leaf at `path` belongs to, and the rest of the path."""
    keys = [_key(entry) for entry in path]
    for i in reversed(range(len(keys))):
        if isinstance(path[i], jax.tree_util.DictKey) and keys[i] in places:
            return places[keys[i]], "/".join(map(_plain, keys[:i] + keys[i + 1 :]))
    return None, "/".join(map(_plain, keys))


def _key(entry: Any) -> str:
    """An entry of a path as text: a field, a key, or a position."""
    for attribute in ("name", "key", "idx"):
        if hasattr(entry, attribute):
            return str(getattr(entry, attribute))
    return str(entry)


def _plain(key: str) -> str:
    """A user's key as part of a name."""
    return re.sub(r"[^\w.-]+", "_", key) or "_"
