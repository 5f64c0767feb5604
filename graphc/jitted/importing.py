"""Imports a JAX function, for given forms of its arguments, as a graph whose variables are donated
leaves."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
from jax.core import Tracer

from graphc.build.placeholders import placeholder
from graphc.build.variable_definition import variable
from graphc.collection import without_collection
from graphc.devices.mesh import Strategy
from graphc.errors import AttributeValueError, JaxImportError
from graphc.ir.dtypes import UINT32, as_dtype
from graphc.ir.graph import Graph
from graphc.ir.node import Tensor
from graphc.ir.scopes import AMBIENT, building
from graphc.ir.types import TensorType
from graphc.ir.variable import Variable
from graphc.jaxpr.avals import is_array
from graphc.jaxpr.keys import is_key
from graphc.jaxpr.tracing import Traced, trace, trace_jitted
from graphc.jitted.arguments import Call, Form, Roles, kind_of_leaf
from graphc.jitted.packed import unpack
from graphc.ops.core.emit import constant
from graphc.ops.structure.state import identity

# An array that the function holds becomes an argument of the program from this many elements on.
_LARGE = 1024


@dataclass(frozen=True)
class Leaf:
    """One array among the arguments: its argument, and its number in that argument."""

    argument: int
    number: int


@dataclass
class Imported:
    """A function that was imported as a graph.

    Attributes:
        feeds: the placeholder of each leaf that is not a variable.
        held: the placeholders of large arrays that the function holds, with these arrays.
        variables: the variable of each donated leaf, which has its initial value.
        results: a tensor for each leaf of the result, or the variable that holds it after the
            call.
        assigned: the node that assigns the variables.
        out_tree, out_avals: the structure of the result.
        segments: for each argument that is replaced as a whole, the number of the first leaf of
            the result that replaces it.
    """

    graph: Graph
    feeds: dict[Leaf, Tensor]
    held: list[tuple[Tensor, Any]]
    variables: dict[Leaf, Variable]
    results: list[Tensor | Variable]
    assigned: list[Tensor]
    out_tree: Any
    out_avals: Sequence[Any]
    segments: dict[int, int] = field(default_factory=dict)

    def fetched(self) -> list[Tensor]:
        """The leaves of the result that are not variables, in order."""
        return [result for result in self.results if isinstance(result, Tensor)]


@without_collection()
def import_function(
    traced: Traced,
    name: str,
    roles: Roles,
    call: Call,
    forms: Sequence[Form],
    strategy: Strategy | None = None,
    batched: Iterable[int | str] | None = None,
    for_file: bool = False,
) -> Imported:
    """The graph of one call of a function.

    A donated argument that is also in the result, with the same structure and types, becomes
    variables, and the call assigns them.

    Args:
        traced: the call: see `trace_call`.
        name: of the function.
        batched: under a strategy, the arguments whose leaves have the batch as their first axis;
            None for the arguments that are not donated.
        for_file: whether to create a function that needs nothing of this process: donated arguments
            are placeholders, and large arrays that it holds are variables with their values.

    Raises:
        JaxImportError: the function contains something that cannot be turned into nodes.
        AttributeValueError: it is not clear which arguments have a batch axis.
    """
    leaves = [Leaf(i, n) for i, form in enumerate(forms) for n in range(len(form.avals))]
    names = _names([roles.name(label) for label in call.labels], forms)
    _check(traced)
    donated = [i for i, label in enumerate(call.labels) if roles.is_donated(label)]
    out_avals = traced.jaxpr.out_avals
    segments = {} if for_file else _segments(traced.out_tree, out_avals, forms, donated)
    axes = _batch_axes(roles, call, forms, batched) if strategy is not None else {}
    graph = Graph(name=re.sub(r"\W+", "_", name).strip("_"))
    imported = Imported(graph, {}, [], {}, [], [], traced.out_tree, out_avals, segments)
    replaced = {
        Leaf(argument, n): first + n
        for argument, first in segments.items()
        for n in range(len(forms[argument].avals))
    }
    with building(graph):
        operands = []
        for leaf in leaves:
            type, name = type_of(forms[leaf.argument].avals[leaf.number]), names[leaf]
            if leaf in replaced:
                made = variable("zeros", shape=type.sizes, dtype=type.dtype, name=name)
                imported.variables[leaf] = made
                operands.append(made.read())
            else:
                axis = axes.get(leaf)
                operand = placeholder(type.shape, type.dtype, name=name, batch_axis=axis)
                imported.feeds[leaf] = operand
                operands.append(operand)
        held = _Held(graph, imported.held, for_file)
        results = traced.replay(operands, whole=True, constant=held)
        results = _apart(results, replaced.values())
        _assign(imported, replaced, operands, leaves, results)
    return imported


@without_collection()
def trace_call(by_jax: Any, call: Call, forms: Sequence[Form]) -> Traced:
    """The trace of one call of a function of `jax.jit`.

    Raises:
        JaxImportError: it contains something that only JAX can run.
    """
    args, kwargs = call.arguments(unpack(list(call.values)))
    return trace_jitted(by_jax, args, kwargs, [type_of(a) for form in forms for a in form.avals])


@without_collection()
def trace_forms(function: Callable[..., Any], call: Call, forms: Sequence[Form]) -> Traced:
    """The trace of a call of which only the forms of the arguments are left.

    Raises:
        JaxImportError: it contains something that only JAX can run.
    """

    def flat(*values: Any) -> Any:
        given = iter(values)
        trees = [jax.tree.unflatten(form.tree, [next(given) for _ in form.avals]) for form in forms]
        args, kwargs = call.arguments(trees)
        return function(*args, **kwargs)

    avals = [aval for form in forms for aval in form.avals]
    structs = [
        jax.ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=aval.weak_type) for aval in avals
    ]
    return trace(flat, [type_of(aval) for aval in avals], structs)


def _check(traced: Traced) -> None:
    """Checks that graphc can run a trace.

    Raises:
        JaxImportError: only JAX can.
    """
    if any(isinstance(value, Tracer) for value in traced.jaxpr.consts):
        raise JaxImportError("it uses a value that jax.grad, jax.vmap or jax.jit is tracing")
    if traced.jaxpr.effects:
        raise JaxImportError("it has side effects: jax.debug.print, io_callback or references")
    if not all(map(is_array, traced.jaxpr.out_avals)):
        raise JaxImportError("it returns a value that is not an array, such as a token")


def _apart(results: Sequence[Tensor], replacing: Iterable[int]) -> list[Tensor]:
    """The results, with a node of its own for each further use of a tensor.

    Each place of the result then gets its own array. If two places shared one, a function that
    takes the first as a donated argument would delete the second.

    Args:
        replacing: the numbers of the results that replace variables. They keep their tensors: a
            variable that does not change needs no copy.
    """
    made = list(results)
    seen: set[Tensor] = set()
    for number in dict.fromkeys([*replacing, *range(len(made))]):
        if made[number] in seen:
            made[number] = identity(made[number])
        seen.add(made[number])
    return made


def _assign(
    imported: Imported,
    replaced: dict[Leaf, int],
    operands: Sequence[Tensor],
    leaves: Sequence[Leaf],
    results: Sequence[Tensor],
) -> None:
    """Assigns the results that replace variables."""
    imported.results = list(results)
    reads = dict(zip(leaves, operands, strict=True))
    for leaf, number in replaced.items():
        made = imported.variables[leaf]
        if results[number] is not reads[leaf]:
            imported.assigned.append(made.assign(results[number]))
        imported.results[number] = made


class _Held:
    """Creates the tensor of an array that the function holds.

    Large JAX arrays, such as weights in a closure, become arguments of the program. They are not
    compiled into it, and not hashed for its key.
    """

    def __init__(self, graph: Graph, held: list[tuple[Tensor, Any]], as_variables: bool) -> None:
        self._graph, self._held, self._as_variables = graph, held, as_variables
        self._made: dict[int, Tensor] = {}  # by id; the traced function keeps the arrays alive

    def __call__(self, array: Any) -> Tensor:
        if not isinstance(array, jax.Array) or array.size < _LARGE:
            return constant(jax.device_get(array))
        made = self._made.get(id(array))
        if made is None:
            with building(self._graph):
                made = self._made[id(array)] = self._port(array, f"held_{len(self._made)}")
        return AMBIENT.graphs[-1].adopt(made)

    def _port(self, array: jax.Array, name: str) -> Tensor:
        if self._as_variables:
            return variable(array, name=name, trainable=False).read()
        port = placeholder(array.shape, array.dtype, name=name, batch_axis=None)
        self._held.append((port, array))
        return port


def type_of(aval: Any) -> TensorType:
    """The type of a leaf in the graph; for random keys, the type of their words."""
    if is_key(aval.dtype):
        return TensorType(UINT32, (*aval.shape, 2))
    return TensorType(as_dtype(aval.dtype), aval.shape)


def _names(names: Sequence[str], forms: Sequence[Form]) -> dict[Leaf, str]:
    """The names of the leaves in the graph."""
    return {
        Leaf(i, n): "/".join(filter(None, re.sub(r"[^\w./-]+", "_", path).split("/"))) or "_"
        for i, (name, form) in enumerate(zip(names, forms, strict=True))
        for n, path in enumerate(form.paths(name))
    }


def _segments(
    tree: Any, avals: Sequence[Any], forms: Sequence[Form], donated: Sequence[int]
) -> dict[int, int]:
    """For each donated argument that is also in the result, the number of its first leaf there."""
    nodes: list[tuple[Any, int]] = []  # (tree, number of its first leaf), outer ones first

    def visit(node: Any, first: int) -> None:
        nodes.append((node, first))
        for child in node.children():
            visit(child, first)
            first += child.num_leaves

    visit(tree, 0)
    found: dict[int, int] = {}
    kinds, free = list(map(kind_of_leaf, avals)), [True] * len(avals)
    for argument in donated:
        form = forms[argument]
        count = len(form.avals)
        for node, first in nodes if count else ():
            span = slice(first, first + count)
            alike = node == form.tree and tuple(kinds[span]) == form.key[1]
            if alike and all(free[span]):
                found[argument] = first
                free[span] = [False] * count
                break
    return found


def _batch_axes(
    roles: Roles, call: Call, forms: Sequence[Form], batched: Iterable[int | str] | None
) -> dict[Leaf, int]:
    """The batch axis of leaves, which is always 0. It affects only speed, not the results."""
    if batched is None:
        chosen = [i for i, label in enumerate(call.labels) if not roles.is_donated(label)]
    else:
        wanted = set(batched)
        chosen = [i for i, label in enumerate(call.labels) if {label, roles.name(label)} & wanted]
    sizes = {
        Leaf(i, n): aval.shape[0]
        for i in chosen
        for n, aval in enumerate(forms[i].avals)
        if aval.shape and not _is_random(aval)
    }
    if len(set(sizes.values())) != 1:
        rows = {roles.name(call.labels[leaf.argument]): size for leaf, size in sizes.items()}
        raise AttributeValueError.here(
            "jit: the arguments have different first sizes, so it is not clear which hold the batch"
            if sizes
            else "jit: no argument holds a batch",
            details=[f"{name}: {size}" for name, size in rows.items()],
            hint="name them: gc.jit(..., batch_argnums=(2, 3))",
        )
    return dict.fromkeys(sizes, 0)


def _is_random(aval: Any) -> bool:
    """Whether a value is a random key, or has the form of the words of one."""
    return is_key(aval.dtype) or (aval.dtype == UINT32 and aval.shape == (2,))
