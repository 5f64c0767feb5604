"""`placeholder`: a value that the caller feeds; `trace`: turns a Python function into a graph."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from graphc.build.specs import HasShape, SpecShape, TensorSpec, check_name, resolve_shape
from graphc.errors import AttributeValueError, GraphcError, GraphError
from graphc.ir.dims import Shape, symbol
from graphc.ir.dtypes import SHORT, as_dtype
from graphc.ir.graph import Graph
from graphc.ir.node import Tensor
from graphc.ir.operand import Operand
from graphc.ir.scopes import current_graph
from graphc.ops.core.emit import convert, emit
from graphc.ops.structure.state import PLACEHOLDER
from graphc.typing import DTypeLike, TensorTree

_BATCH = symbol("batch")


def placeholder(
    shape: SpecShape | TensorSpec,
    dtype: DTypeLike = "float32",
    *,
    name: str | None = None,
    batch_axis: int | str | None = "default",
) -> Tensor:
    """A tensor whose value the caller feeds.

    Args:
        shape: a dim for each axis: an int; None for a size that is known only when it is fed (each
            None is a separate named size, `<name>_<axis>`, until an operator requires it to equal
            another); a string that names a size ("batch" is the same size in all placeholders) or
            an expression over named sizes ("2*batch"). Or a `TensorSpec`, which also gives the
            dtype and the name.
        dtype: anything that names a dtype.
        name: the name of the tensor (`<name>:0`), unique in its name scope. Feeds may use it.
        batch_axis: the axis along which a data-parallel run may split the feed. The default is 0 if
            the leading dim is None or "batch". With None, each replica receives the whole feed.

    Raises:
        ShapeError, DTypeError: the shape or the dtype is invalid.
        AttributeValueError: `batch_axis` is not an axis of the shape, or `name` is not valid.
        GraphError: no graph is being built, or the body of an operator is being built.

    Examples:
        >>> x = gc.placeholder(("batch", 3), name="x")
        >>> x, run(gc.reduce_sum(x, axis=1), {x: [[1, 2, 3], [4, 5, 6]]})
        (<Tensor x:0 f32[batch, 3]>, Array([ 6., 15.], dtype=float32))
    """
    graph = current_graph()
    if graph.parent is not None:
        raise GraphError.here(
            "placeholder: the body of an operator such as scan takes its values as arguments",
            hint="create the placeholder before the body; the body may use it",
        )
    if isinstance(shape, TensorSpec):
        dtype, name, shape = shape.dtype, name or shape.name, shape.shape
    _refuse_dtype_first(shape, dtype)
    base = "Placeholder" if name is None else check_name(name, "placeholder")
    unknown_lead = isinstance(shape, (tuple, list)) and len(shape) > 0 and shape[0] is None
    dims = resolve_shape(shape, graph, base, "placeholder")
    if batch_axis == "default":
        axis = 0 if unknown_lead or (dims and dims[0] == _BATCH) else None
    else:
        axis = _as_batch_axis(batch_axis, dims)
    result: Tensor = emit(
        PLACEHOLDER, (), name=base, dtype=as_dtype(dtype), shape=dims, batch_axis=axis
    )
    return result


def _refuse_dtype_first(shape: Any, dtype: Any) -> None:
    """Raises for the order of TensorFlow: `placeholder("float32", (None, 4))`."""
    named = isinstance(shape, type | np.dtype) or (
        isinstance(shape, str) and shape in {known.name for known in SHORT}
    )
    sizes = isinstance(dtype, tuple | list)
    if not named or not (sizes or isinstance(dtype, str) or isinstance(shape, type)):
        return
    name = shape if isinstance(shape, str) else np.dtype(shape).name
    given = tuple(dtype) if isinstance(dtype, tuple | list) else (None, 4)
    raise AttributeValueError.here(
        f"placeholder: {name!r} is a dtype, where the shape is expected",
        hint=f'the shape comes first: gc.placeholder({given}, "{name}")',
    )


def _as_batch_axis(axis: Any, dims: Shape) -> int | None:
    if axis is None:
        return None
    if type(axis) is not int or not -len(dims) <= axis < len(dims):
        raise AttributeValueError.here(
            f"placeholder: batch_axis must be an axis of ({', '.join(map(str, dims))}) or None, "
            f"got {axis!r}",
            hint="it is the axis that data parallelism divides, often 0",
        )
    return axis % len(dims)


def trace(
    fn: Callable[..., TensorTree],
    *specs: TensorSpec | HasShape,
    seed: int = 0,
    name: str | None = None,
) -> Graph:
    """Builds the graph of a Python function of tensors. `fn` is called once, on placeholders.

    The placeholders are named by their specs, otherwise by the parameters of `fn`. The collection
    "inputs" contains them in the order of `specs`. The collection "outputs" contains the results,
    in the order in which JAX flattens the nest that `fn` returns (a dict by sorted keys); a number
    or array among them becomes a constant.

    Args:
        fn: takes one tensor for each spec.
        specs: `TensorSpec`s, or anything with a shape and a dtype.
        seed: the seed of the graph.
        name: the name of the graph; by default that of `fn`.

    Raises:
        AttributeValueError: an argument is not a spec, or `fn` is a tensor.
        GraphError: `fn` returns nothing, or something other than tensors.

    Examples:
        >>> traced = gc.trace(lambda x: x + 1.0, gc.TensorSpec((None,)))
        >>> traced.collection("inputs"), traced.collection("outputs")
        ([<Tensor x:0 f32[x_0]>], [<Tensor Add:0 f32[x_0]>])
    """
    if isinstance(fn, Operand):
        raise AttributeValueError.here(
            "trace: takes a Python function of tensors, got a tensor",
            hint="gc.linalg.trace(x) is the sum of a diagonal",
        )
    graph = Graph(seed=seed, name=name or getattr(fn, "__name__", "traced").strip("<>"))
    with graph:
        for label, spec in zip(_parameter_names(fn, len(specs)), specs, strict=True):
            given = TensorSpec.of(spec)
            tensor = placeholder(given, name=given.name or label)
            graph.add_to_collection("inputs", tensor)
        outputs = jax.tree.leaves(fn(*graph.collection("inputs")))
        for output in outputs:
            graph.add_to_collection("outputs", _as_output(output, graph))
    if not outputs:
        raise GraphError.here(
            f"trace: {graph.name} returned nothing", hint="return the tensors that are its results"
        )
    return graph


def _as_output(output: Any, graph: Graph) -> Tensor:
    try:
        return graph.adopt(convert(output))
    except GraphcError as error:
        raise GraphError.here(
            f"trace: {graph.name} returned {output!r}, which is not a tensor of this graph",
            details=[error.what],
            hint="return tensors computed from the arguments, alone or nested",
        ) from error


def _parameter_names(fn: Callable[..., Any], count: int) -> list[str]:
    """The names of the first `count` parameters; `args_0`, ... for the arguments of `*args`."""
    try:
        parameters = list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError):  # built-in functions without a signature
        parameters = []
    names: list[str] = []
    for parameter in parameters:
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            names.append(parameter.name)
        elif parameter.kind is parameter.VAR_POSITIONAL:
            names += [f"{parameter.name}_{i}" for i in range(count - len(names))]
    return [*names, *(f"arg_{i}" for i in range(len(names), count))][:count]
