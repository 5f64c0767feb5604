"""Pytrees of variables, which are named by their paths and assigned together."""

from __future__ import annotations

import re
from typing import Any

import jax
from jax.tree_util import keystr

from graphc.build.variable_definition import variable
from graphc.errors import AttributeValueError
from graphc.ir.node import Node
from graphc.ir.variable import Variable
from graphc.ops.structure.state import group
from graphc.typing import ArrayTree, TensorTree, VariableTree


def variables(tree: ArrayTree, *, name: str = "", trainable: bool = True) -> VariableTree:
    """Creates a variable for each array of a pytree, named by its path: `params/Dense_0/kernel`.

    Use it for the parameters of flax, haiku and equinox, and for the state of optax. `Session.get`
    and `Session.set` take the tree of variables.

    Args:
        tree: the initial values, in lists, tuples, dicts, named tuples or other pytrees.
        name: the beginning of all names; it is the name of the variable if the tree is one array.
        trainable: as for `gc.variable`.

    Returns:
        The same nest with a `Variable` for each array.

    Raises:
        DTypeError: a leaf is not an array.
        GraphError: no graph is being built.

    Examples:
        >>> layers = gc.variables({"w": np.ones((2, 2)), "b": [0.0]}, name="dense")
        >>> layers
        {'b': [<Variable dense/b/0 f32[]>], 'w': <Variable dense/w f64[2, 2]>}
        >>> gc.Session(graph).get(layers)["b"]
        [Array(0., dtype=float32)]
    """
    rows, structure = jax.tree_util.tree_flatten_with_path(tree)
    made = [variable(leaf, name=_name(name, path), trainable=trainable) for path, leaf in rows]
    return jax.tree.unflatten(structure, made)


def _name(first: str, path: Any) -> str:
    text = re.sub(r"[^\w./-]+", "_", keystr(path, simple=True, separator="/"))
    return "/".join(part for part in (first, text) if part) or "variable"


def assign(tree: VariableTree, new: TensorTree) -> Node:
    """Assigns new values to all variables of a pytree, as a single fetch.

    Args:
        tree: variables, as `gc.variables` returns them.
        new: a tensor for each, in the same nest.

    Raises:
        AttributeValueError: the nests differ, or `tree` contains something other than variables.
        ShapeError, DTypeError: a value does not fit its variable.

    Examples:
        >>> layers = gc.variables({"w": 1.0, "b": 2.0})
        >>> halved = gc.assign(layers, {name: v / 2 for name, v in layers.items()})
        >>> session = gc.Session(graph)
        >>> session.run(halved), session.get(layers)
        (None, {'b': Array(1., dtype=float32), 'w': Array(0.5, dtype=float32)})
    """
    structure: Any
    targets, structure = jax.tree.flatten(tree)
    other = [target for target in targets if not isinstance(target, Variable)]
    if other or not targets:
        raise AttributeValueError.here(
            f"assign: {other[0]!r} is not a variable" if other else "assign: no variables",
            hint="a variable comes first: gc.assign(v, value); v.read().at[index].set(values) is a "
            "value with another part",
        )
    values = values_in_nest(structure, new, "assign: the new values")
    # All values are read before one is assigned, so that values may be swapped.
    values = [value.read() if isinstance(value, Variable) else value for value in values]
    return group(*[target.assign(value) for target, value in zip(targets, values, strict=True)])


def values_in_nest(structure: Any, nest: Any, what: str) -> list[Any]:
    """One value for each variable of a nest of variables, whose `structure` JAX has found.

    Raises:
        AttributeValueError: `nest` is another nest; the message begins with `what`.
    """
    try:
        values: list[Any] = structure.flatten_up_to(nest)
    except (TypeError, ValueError) as error:
        raise AttributeValueError.here(
            f"{what} are not in the nest of the variables, {structure}",
            details=[str(error).splitlines()[0]],
            hint="pass one value for each variable, in the same nest",
        ) from error
    return values
