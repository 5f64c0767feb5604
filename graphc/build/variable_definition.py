"""`variable`: state that persists across runs, and its initial value, computed on the host."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from graphc.build.initializer_names import as_initializer
from graphc.build.specs import as_static_shape, check_name
from graphc.errors import (
    AttributeValueError,
    DTypeError,
    GraphcError,
    GraphError,
    GraphFinalizedError,
    ShapeError,
)
from graphc.ir.dtypes import FLOAT32, Array, DType, as_dtype, is_inexact, kind_of
from graphc.ir.graph import Graph
from graphc.ir.host_values import fitted, read
from graphc.ir.mapped import is_constant
from graphc.ir.node import Tensor
from graphc.ir.opdef import Effects
from graphc.ir.operand import Operand
from graphc.ir.program import effects_of
from graphc.ir.scopes import AMBIENT, current_graph, no_control_inputs, requested_device
from graphc.ir.source import current_source
from graphc.ir.types import TensorType
from graphc.ir.variable import Initializer, Variable
from graphc.ops.core.checks import refuse
from graphc.ops.core.emit import as_array, to_dtype
from graphc.typing import DTypeLike, ShapeLike, TensorLike

InitialValue: TypeAlias = TensorLike | Initializer | str
"""A value, an initializer, or the name of an initializer."""


def variable(
    init: InitialValue,
    *,
    shape: ShapeLike | None = None,
    dtype: DTypeLike | None = None,
    trainable: bool = True,
    name: str = "variable",
    collections: Sequence[str] = (),
) -> Variable:
    """State of the graph being built, under the name `<name scope>/<name>`.

    A name that is already used in its scope gets a suffix `_1`, `_2`, ...; `Variable.name` is the
    final name. The device and the user's line are those of this call. In the body of an operator
    (such as `scan`) the variable belongs to the whole graph: there is one variable for all
    iterations.

    Args:
        init: the initial value: a number, nested lists or an array; an initializer of
            `gc.nn.initializers` or its name, such as "glorot_uniform"; any function
            `(rng, shape, dtype) -> array`, called when the value is first needed: by a program
            that uses the variable, or by a read; or a tensor of the graph, computed from the
            initial values of other variables.
        shape: required for an initializer. Every size must be known. A single initial number fills
            the shape.
        dtype: by default that of the value; float32 for an initializer.
        trainable: whether `gc.minimize` updates it by default. Integers and bools are never
            updated.
        collections: names of collections of the graph to add it to.

    Raises:
        ShapeError: the shape is missing, a size is not known, or the initial value does not match.
        DTypeError: the dtype is invalid or not numeric.
        AttributeValueError: `init` is an unknown name of an initializer.
        GraphError: no graph is being built, or an initial tensor depends on a feed.
        GraphFinalizedError: the graph has run.

    Examples:
        >>> w = gc.variable([1.0, 2.0], name="w")
        >>> run(w.assign_add([10.0, 10.0]))
        Array([11., 12.], dtype=float32)
        >>> gc.variable("glorot_uniform", shape=(784, 10), name="kernel")
        <Variable kernel f32[784, 10]>
    """
    graph = current_graph().root
    check_name(name, "variable")
    if graph.finalized:
        refuse(
            f"variable: the graph has run, so the variable {name!r} can no longer be added",
            hint="build the whole graph before the first run, or add to it inside "
            "`with graph.extend():`",
            error=GraphFinalizedError,
        )
    what = f"variable {name!r}"
    wanted = None if shape is None else as_static_shape(shape, what)
    own = None if dtype is None else as_dtype(dtype)
    type, initial = _as_initial(init, wanted, own, graph, what)
    return _added(graph, graph.unique_name(name), type, initial, trainable, collections)


def _added(
    graph: Graph,
    name: str,
    type: TensorType,
    initial: Array | Initializer | Tensor,
    trainable: bool,
    collections: Sequence[str],
) -> Variable:
    """A new variable, added to the graph and to its collections."""
    result = Variable(
        graph,
        name,
        type,
        initial,
        trainable=trainable and is_inexact(type.dtype),
        collections=tuple(collections),
        device=requested_device("Variable", name, (type,)),
        source=AMBIENT.source or current_source(),
    )
    graph.variables[result.name] = result
    for collection in result.collections:
        graph.add_to_collection(collection, result)
    return result


def _as_initial(
    init: Any, shape: tuple[int, ...] | None, dtype: DType | None, graph: Graph, what: str
) -> tuple[TensorType, Array | Initializer | Tensor]:
    """The type, and the initial value in one of the three forms that a `Variable` stores."""
    if isinstance(init, Operand):
        tensor = _initial_tensor(init, dtype, graph, what)
        _check_shape(tensor.type.shape, shape, what)
        return tensor.type, tensor
    if isinstance(init, (str, type)):
        init = as_initializer(init, what)  # rejects a class
    if callable(init):
        if shape is None:
            refuse(f"{what}: an initializer needs a shape", hint="pass shape=(...)")
        return TensorType(FLOAT32 if dtype is None else dtype, shape), init
    if isinstance(init, np.generic) and dtype is None:
        # A variable keeps the dtype of a NumPy scalar, for example from a checkpoint.
        init = np.asarray(init)
    array = as_array(init, dtype)
    if not is_constant(array):  # weights of imported models are constant, and are not copied
        array = np.array(array)
    if array.ndim == 0 and shape is not None:
        array = np.full(shape, array)
    _check_shape(array.shape, shape, what)
    array.flags.writeable = False
    return TensorType(array.dtype, array.shape), array


def _check_shape(got: Any, wanted: Any, what: str) -> None:
    if wanted is not None and got != wanted:
        refuse(
            f"{what}: the initial value has the shape ({', '.join(map(str, got))}), "
            f"not ({', '.join(map(str, wanted))})",
            hint="omit the shape, or give a value with this shape",
        )


def _initial_tensor(init: Operand, dtype: DType | None, graph: Graph, what: str) -> Tensor:
    """`init` as a tensor of the whole graph. It must not depend on a feed or an assignment."""
    with graph, no_control_inputs():  # an initial value belongs to no run and to no body
        tensor = graph.adopt(to_dtype(init, init.type.dtype if dtype is None else dtype))
    if not tensor.type.is_static:
        refuse(
            f"{what}: every size of its initial value must be known, got {tensor.type}",
            hint="a variable keeps its shape; a value that depends on a feed is a tensor",
            init=tensor,
        )
    seen, pending = set(), [tensor]
    while pending:
        current = pending.pop()
        if current in seen:
            continue
        seen.add(current)
        node = graph.producer(current)
        if effects_of(node) & (Effects.FEED | Effects.WRITE | Effects.HOST):
            refuse(
                f"{what}: its initial value depends on {node.op.name} {node.name!r}",
                error=GraphError,
                hint="compute it from constants and from other variables only; "
                "to store a value later, assign it",
                **{"init": tensor, node.op.name: current},
            )
        pending += node.inputs
    return tensor


def initial_rng(seed: int, name: str) -> np.random.Generator:
    """The generator of the initial value of the variable `name` in a graph of this seed.

    It depends on nothing else, so adding a variable to a graph does not change the others. The
    generator is Philox4x64-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011),
    keyed with the first 128 bits of SHA-256 of seed and name.
    """
    digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
    return np.random.Generator(np.random.Philox(key=int.from_bytes(digest[:16], "little")))


def initial_value(variable: Variable, seed: int) -> Array:
    """Computes the initial value of a variable whose `initial` is an array or an initializer.

    Args:
        variable: must not have an initial tensor, because only a run can compute that.
        seed: the seed of the graph.

    Returns:
        An array of the variable's shape and dtype: a new one, or one that cannot be written to.

    Raises:
        ShapeError, DTypeError: a user's function returned a value that does not match. Errors
            raised inside the function are passed on, with the variable's line in a note.
        GraphError: the initial value is a tensor.
    """
    initial, (dtype, shape) = variable.initial, variable.type
    if isinstance(initial, Tensor):
        raise GraphError(
            f"variable {variable.name!r}: its initial value is a tensor, {initial.name}, "
            "which only a run can compute",
            source=variable.source,
        )
    if isinstance(initial, np.ndarray):
        return initial if is_constant(initial) else initial.copy()
    sizes = as_static_shape(shape, f"variable {variable.name!r}")
    try:
        value = read(initial(initial_rng(seed, variable.name), sizes, dtype))
    except Exception as error:
        if isinstance(error, GraphcError) and error.source is None:
            error.source = variable.source
        error.add_note(
            f"while computing the initial value of variable {variable.name!r}, "
            f"defined at {variable.source}"
        )
        raise
    return _as_declared(variable, value, sizes, dtype)


def _as_declared(variable: Variable, value: Array, sizes: tuple[int, ...], dtype: DType) -> Array:
    """The result of an initializer, in the variable's type. Raises if it does not match."""
    if value.shape != sizes:
        raise ShapeError(
            f"variable {variable.name!r}: its initializer returned the shape {value.shape}, "
            f"not {sizes}",
            source=variable.source,
            hint="return an array of the shape that the initializer is called with",
        )
    if value.dtype != dtype and not _fits(value.dtype, dtype):
        raise DTypeError(
            f"variable {variable.name!r}: its initializer returned {value.dtype.name}, "
            f"not {dtype.name}",
            source=variable.source,
            hint="return an array of the dtype that the initializer is called with",
        )
    try:
        return np.array(fitted(value, dtype))
    except DTypeError as error:
        raise DTypeError(
            f"variable {variable.name!r}: its initializer returned {value.dtype.name} values that "
            f"do not fit {dtype.name}",
            details=error.details,
            source=variable.source,
            hint=error.hint,
        ) from None


def _fits(given: np.dtype[Any], wanted: DType) -> bool:
    """Whether `given` is a numeric dtype of the same kind, as for feeds."""
    try:
        return kind_of(as_dtype(given)) == kind_of(wanted)
    except DTypeError:
        return False


def trainable_variables(scope: str | None = None) -> list[Variable]:
    """The trainable variables of the graph being built, in the order of their creation.

    Args:
        scope: if given, only variables in this name scope are returned.

    Raises:
        GraphError: no graph is being built.

    Examples:
        >>> weights = gc.variable([1.0, 2.0], name="weights")
        >>> count = gc.variable(0, name="count")
        >>> gc.trainable_variables()
        [<Variable weights f32[2]>]
    """
    if scope is not None and not isinstance(scope, str):
        raise AttributeValueError.here(
            f"trainable_variables: {scope!r} is not a name scope",
            hint='write the name, such as "generator"; a layer has trainable_variables of its own',
        )
    prefix = "" if scope is None else scope.rstrip("/") + "/"
    return [
        v for v in current_graph().variables.values() if v.trainable and v.name.startswith(prefix)
    ]
